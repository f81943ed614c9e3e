//! Backups of real clusters, restored into other real clusters.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redis::{Connection, Value};

use crate::dump::{Draw, client_of, compare, fill, keys_of, quorate, run};
use crate::live::step;
use crate::support::{Cluster, as_text, ask, until};

const KEEPS: &str = "prefix= changes_bytes=64mb";

fn address(cluster: &Cluster) -> String {
    format!("127.0.0.1:{}", cluster.client_port(1))
}

/// Makes a backup, and returns its output.
fn back_up(cluster: &Cluster, folder: &Path, more: &[&str]) -> String {
    let arguments = ["backup", "--to", folder.to_str().unwrap(), "--addr", &address(cluster)];
    let (code, output) = quorate(&[&arguments[..], more].concat());
    assert_eq!(code, 0, "{output}");
    output
}

fn restore(folder: &Path, cluster: &Cluster, more: &[&str]) -> (i32, String) {
    let arguments = ["restore", "--from", folder.to_str().unwrap(), "--addr", &address(cluster)];
    quorate(&[&arguments[..], more].concat())
}

/// Restores a backup that must be restored completely.
fn restored(folder: &Path, nodes: u16, more: &[&str]) -> (Cluster, String) {
    let cluster = Cluster::start(nodes, &[]);
    let (code, output) = restore(folder, &cluster, &[more, &["--compare", "whole"]].concat());
    assert_eq!(code, 0, "{output}");
    (cluster, output)
}

/// The names of the backups in a folder, the oldest first.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<String> = entries
        .filter(|path| path.join("manifest.json").exists())
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .filter(|name| !name.ends_with(".part"))
        .collect();
    names.sort();
    names
}

/// The cluster's time, as `--until` takes it.
fn time(client: &mut Connection) -> String {
    let (seconds, micros): (u64, u32) = redis::cmd("TIME").query(client).unwrap();
    let ms = seconds * 1000 + u64::from(micros / 1000);
    let output =
        Command::new("date").args(["-u", "-d", &format!("@{seconds}"), "+%Y-%m-%dT%H:%M:%S"]).output();
    format!("{}.{:03}Z", String::from_utf8(output.unwrap().stdout).unwrap().trim(), ms % 1000)
}

/// Waits for some time by the clock of the cluster: more than the difference between its nodes' clocks.
fn moment_later(client: &mut Connection) {
    let mut ms = || {
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(client).unwrap();
        seconds * 1000 + micros / 1000
    };
    let before = ms();
    until("time passes", || ms() > before + 50);
}

fn files(folder: &Path, end: &str) -> Vec<PathBuf> {
    let folders = names(folder).into_iter().flat_map(|name| fs::read_dir(folder.join(name)).unwrap());
    let mut files: Vec<PathBuf> = folders.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.to_str().unwrap().ends_with(end));
    files.sort();
    files
}

#[test]
fn a_restored_cluster_has_everything_that_was_backed_up() {
    let keyspaces = [
        "prefix= changes_bytes=64mb",
        "prefix=many: shards=4 changes_bytes=64mb",
        "prefix=cache: replication=leader-follower acks=1",
        "prefix=reg: replication=abd",
        "prefix=disk: storage=disk",
    ];
    let cluster = Cluster::start(3, &keyspaces);
    let (mut client, mut draw) = (cluster.client(1), Draw(3));
    let operate = |client: &mut Connection, line: &str| assert_eq!(ask(client, line), "OK", "{line}");
    fill(&mut client, &mut draw);
    for at in 0..200 {
        let (number, long) = (at.to_string(), "x".repeat(20 * at));
        run(&mut client, &[b"SET", format!("many:{at}").as_bytes(), number.as_bytes()]);
        run(&mut client, &[b"SET", format!("reg:{at}").as_bytes(), number.as_bytes()]);
        run(&mut client, &[b"SET", format!("cache:{at}").as_bytes(), number.as_bytes(), b"PX", b"100000000"]);
        run(&mut client, &[b"SET", format!("disk:{at}").as_bytes(), long.as_bytes()]);
    }
    run(&mut client, &[b"SET", b"reg:7", b"v", b"PXAT", b"4102444800123"]);
    run(&mut client, &[b"HSET", b"fields", b"stays", b"1", b"goes", b"2"]);
    run(&mut client, &[b"HPEXPIREAT", b"fields", b"4102444800456", b"FIELDS", b"1", b"goes"]);
    run(
        &mut client,
        &[b"FUNCTION", b"LOAD", b"#!lua name=mine\nredis.register_function('f', function() return 7 end)"],
    );
    operate(&mut client, "ACL SETUSER shop on >secret ~many:* +@all");

    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let output = back_up(&cluster, folder, &[]);
    assert!(
        output.contains("8 shards copied") && output.contains("keyspace 'reg:': keys are read one by one"),
        "{output}"
    );
    // Changes since then are added; a keyspace that does not keep its changes is copied again.
    for _ in 0..500 {
        let _ = step(&mut client, &mut draw);
    }
    run(&mut client, &[b"SET", b"many:new", b"v"]);
    run(&mut client, &[b"DEL", b"cache:3"]);
    run(&mut client, &[b"HPERSIST", b"fields", b"FIELDS", b"1", b"goes"]);
    run(&mut client, &[b"HPEXPIREAT", b"fields", b"4102444800789", b"FIELDS", b"1", b"stays"]);
    let output = back_up(&cluster, folder, &[]);
    assert!(output.contains("3 shards copied") && output.contains("5 continued"), "{output}");
    let (code, output) = quorate(&["backup", "--verify", folder.to_str().unwrap()]);
    assert!(code == 0 && output.matches(": whole").count() == 2, "{output}");

    let (other, output) = restored(folder, 3, &[]);
    assert!(output.contains("1 users restored") && output.contains("keys compared"), "{output}");
    // Keys with a deadline that is close must have expired.
    std::thread::sleep(Duration::from_millis(500));
    let (mut ours, mut theirs) = (cluster.client(2), other.client(1));
    for keyspace in ["", "many:", "cache:", "reg:", "disk:"] {
        let settings =
            |client: &mut Connection| as_text(&run(client, &[b"KEYSPACE", b"GET", keyspace.as_bytes()]));
        assert_eq!(settings(&mut ours), settings(&mut theirs));
    }
    let keys = keys_of(&mut ours);
    let is_register = |key: &Vec<u8>| key.starts_with(b"reg:");
    assert_eq!(keys_of(&mut theirs), keys);
    assert!(keys.len() > 800, "{}", keys.len());
    for key in keys.iter().filter(|key| is_register(key)) {
        for command in [&b"GET"[..], b"PEXPIRETIME"] {
            assert_eq!(
                run(&mut ours, &[command, key]),
                run(&mut theirs, &[command, key]),
                "{}",
                key.escape_ascii()
            );
        }
    }
    for client in [&mut ours, &mut theirs] {
        keys.iter().filter(|key| is_register(key)).for_each(|key| _ = run(client, &[b"DEL", key]));
    }
    let keys: Vec<Vec<u8>> = keys.into_iter().filter(|key| !is_register(key)).collect();
    compare(&mut ours, &mut theirs, &keys);
    let fields: [&[u8]; 6] = [b"HPEXPIRETIME", b"fields", b"FIELDS", b"2", b"stays", b"goes"];
    assert_eq!(as_text(&run(&mut theirs, &fields)), "[4102444800789, -1]");
    assert_eq!(ask(&mut theirs, "FCALL f 0"), "7");
    assert_eq!(ask(&mut theirs, "AUTH shop secret"), "OK");
    assert!(ask(&mut theirs, "GET t1").starts_with("-NOPERM"));
}

/// An interrupted restore is repeated, over everything that it had restored: also keys of registers, which no command removes
/// all at once, and keys of other databases.
#[test]
fn a_cluster_with_registers_is_emptied_before_a_restore() {
    let cluster = Cluster::start(1, &["prefix= changes_bytes=64mb", "prefix=reg: replication=abd"]);
    let mut client = cluster.client(1);
    for at in 0..2500 {
        run(&mut client, &[b"SET", format!("reg:{at}").as_bytes(), b"v"]);
        run(&mut client, &[b"SET", format!("k{at}").as_bytes(), b"v"]);
    }
    let folder = tempfile::tempdir().unwrap();
    back_up(&cluster, folder.path(), &[]);
    let (other, _) = restored(folder.path(), 1, &[]);
    let mut theirs = other.client(1);
    run(&mut theirs, &[b"SET", b"reg:more", b"v"]);
    run(&mut theirs, &[b"SET", b"more", b"v"]);
    assert_eq!(ask(&mut theirs, "KEYSPACE CREATE @3 replication=consensus"), "OK");
    run(&mut theirs, &[b"SELECT", b"3"]);
    run(&mut theirs, &[b"SET", b"of database 3", b"v"]);
    run(&mut theirs, &[b"SELECT", b"0"]);
    let (code, output) = restore(folder.path(), &other, &["--empty-first", "--compare", "whole"]);
    assert_eq!(code, 0, "{output}");
    assert_eq!(keys_of(&mut theirs), keys_of(&mut client));
    run(&mut theirs, &[b"SELECT", b"3"]);
    assert_eq!(ask(&mut theirs, "DBSIZE"), "0");
}

#[test]
fn a_cluster_is_restored_to_a_moment() {
    let cluster = Cluster::start(3, &[KEEPS]);
    let mut client = cluster.client(2);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run(&mut client, &[b"SET", b"n", b"0"]);
    back_up(&cluster, folder, &[]);
    let mut moments = Vec::new();
    for number in 1..=6 {
        moment_later(&mut client);
        run(&mut client, &[b"INCR", b"n"]);
        run(&mut client, &[b"RPUSH", b"l", number.to_string().as_bytes()]);
        match number {
            // A key whose first deadline has passed when it is restored, and whose deadline was removed in the
            // meantime.
            1 => drop(run(&mut client, &[b"SET", b"stays", b"v", b"PX", b"3000"])),
            2 => drop(run(&mut client, &[b"PERSIST", b"stays"])),
            3 => drop(back_up(&cluster, folder, &[])),
            5 => drop(run(&mut client, &[b"FLUSHALL"])),
            _ => {}
        }
        moment_later(&mut client);
        moments.push((time(&mut client), as_text(&run(&mut client, &[b"LRANGE", b"l", b"0", b"-1"]))));
        moment_later(&mut client);
    }
    back_up(&cluster, folder, &[]);
    let other = Cluster::start(1, &[]);
    let mut theirs = other.client(1);
    for (place, (moment, list)) in moments.iter().enumerate() {
        let (code, output) = restore(folder, &other, &["--until", moment, "--empty-first"]);
        assert!(code == 0 && output.contains(&format!("as it was at {moment}")), "{output}");
        assert_eq!(as_text(&run(&mut theirs, &[b"LRANGE", b"l", b"0", b"-1"])), *list, "{moment}");
        let stays = as_text(&run(&mut theirs, &[b"GET", b"stays"]));
        assert!((1..4).contains(&place) == (stays == "\"v\"") || place == 0, "{place}: {stays}");
    }
    // Moments that no backup covers.
    let (code, output) = restore(folder, &other, &["--until", "2999-01-01T00:00:00Z", "--empty-first"]);
    assert!(code == 1 && output.contains("choose a time up to"), "{output}");
    let (code, output) = restore(folder, &other, &["--until", "1999-01-01T00:00:00Z", "--empty-first"]);
    assert!(code == 1 && output.contains("the oldest backup was begun later"), "{output}");
    // One of the backups, by its name.
    let (code, output) = restore(folder, &other, &["--backup", &names(folder)[1], "--empty-first"]);
    assert_eq!((code, as_text(&run(&mut theirs, &[b"GET", b"n"]))), (0, "\"3\"".into()), "{output}");
}

/// Two counters that a transaction increments together are equal in every backup, whichever nodes lead and are
/// killed.
#[test]
fn backups_under_load_while_leaders_are_killed_show_one_point_of_history() {
    let mut cluster = Cluster::start(3, &[KEEPS]);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (is_over, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    let ports: Vec<u16> = (1..=3).map(|id| cluster.client_port(id)).collect();
    let mut least = Vec::new();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let (ports, is_over, acknowledged) = (&ports, &is_over, &acknowledged);
                scope.spawn(move || {
                    let mut at = writer;
                    while !is_over.load(Ordering::Relaxed) {
                        at = (at + 1) % 3;
                        let Ok(client) = redis::Client::open(("127.0.0.1", ports[at])) else { continue };
                        let Ok(mut client) = client.get_connection_with_timeout(Duration::from_secs(1))
                        else {
                            continue;
                        };
                        let _ = client.set_read_timeout(Some(Duration::from_secs(5)));
                        for _ in 0..2000 {
                            let both =
                                redis::pipe().atomic().cmd("INCR").arg("one").cmd("INCR").arg("two").clone();
                            match both.query::<Value>(&mut client) {
                                Ok(_) => _ = acknowledged.fetch_add(1, Ordering::Relaxed),
                                Err(_) => break,
                            }
                            if is_over.load(Ordering::Relaxed) {
                                break;
                            }
                        }
                    }
                })
            })
            .collect();
        let more = |count: u64| {
            let most = acknowledged.load(Ordering::Relaxed) + count;
            until("there are writes", || acknowledged.load(Ordering::Relaxed) >= most);
        };
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..3 {
                more(200);
                let leader = cluster.leader();
                if round == 1 {
                    cluster.kill(leader);
                }
                least.push(acknowledged.load(Ordering::Relaxed));
                let any = (1..=3).find(|id| round != 1 || *id != leader).unwrap();
                let addr = format!("127.0.0.1:{}", cluster.client_port(any));
                let full: &[&str] = if round == 1 { &["--full"] } else { &[] };
                let words = ["backup", "--to", folder.to_str().unwrap(), "--addr", &addr];
                let (code, output) = quorate(&[&words[..], full].concat());
                assert_eq!(code, 0, "{output}");
                if round == 1 {
                    cluster.restart(leader);
                    cluster.wait_until_ready(leader);
                }
            }
        }));
        is_over.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        outcome.unwrap();
    });
    let other = Cluster::start(1, &[]);
    for (name, least) in names(folder).iter().zip(&least) {
        let (code, output) = restore(folder, &other, &["--backup", name, "--empty-first"]);
        assert_eq!(code, 0, "{output}");
        let values = ["one", "two"].map(|key| as_text(&run(&mut other.client(1), &[b"GET", key.as_bytes()])));
        assert_eq!(values[0], values[1], "{name}");
        let value: u64 = values[0].trim_matches('"').parse().unwrap();
        assert!(value >= *least, "{name}: {value} of {least} acknowledged before it");
    }
}

#[test]
fn changes_that_are_no_longer_kept_are_copied_again() {
    let cluster = Cluster::start(1, &["prefix= changes_bytes=10kb"]);
    let mut client = cluster.client(1);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run(&mut client, &[b"SET", b"first", b"v"]);
    back_up(&cluster, folder, &[]);
    for at in 0..1000 {
        run(&mut client, &[b"SET", b"k", at.to_string().as_bytes()]);
    }
    let output = back_up(&cluster, folder, &[]);
    assert!(output.contains("raise changes_bytes") && output.contains("1 shard copied (2 keys)"), "{output}");
    assert!(files(folder, ".changes").is_empty());
    run(&mut client, &[b"SET", b"k", b"last"]);
    let output = back_up(&cluster, folder, &[]);
    assert!(output.contains("1 continued (1 change)"), "{output}");
    let (other, _) = restored(folder, 1, &[]);
    assert_eq!(ask(&mut other.client(1), "GET k"), "\"last\"");
}

#[test]
fn a_damaged_backup_is_refused_with_the_place_before_anything_is_changed() {
    let cluster = Cluster::start(1, &[KEEPS]);
    let mut client = cluster.client(1);
    fill(&mut client, &mut Draw(5));
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    back_up(&cluster, folder, &[]);
    run(&mut client, &[b"SET", b"k", b"v"]);
    back_up(&cluster, folder, &[]);
    let other = Cluster::start(1, &[]);
    let mut theirs = other.client(1);
    let damaged = [files(folder, ".rdb"), files(folder, ".changes")].concat();
    assert_eq!(damaged.len(), 2);
    for file in &damaged {
        let bytes = fs::read(file).unwrap();
        for changed in [
            {
                let mut it = bytes.clone();
                it[bytes.len() / 2] ^= 1;
                it
            },
            bytes[..bytes.len() - 1].to_vec(),
            [&bytes[..], b"x"].concat(),
        ] {
            fs::write(file, changed).unwrap();
            let (code, output) = quorate(&["backup", "--verify", folder.to_str().unwrap()]);
            let name = file.file_name().unwrap().to_str().unwrap();
            assert!(code == 1 && output.contains("damaged") && output.contains(name), "{output}");
            let (code, output) = restore(folder, &other, &[]);
            assert!(code == 1 && output.contains("damaged") && output.contains(name), "{output}");
            assert_eq!(keys_of(&mut theirs), Vec::<Vec<u8>>::new());
        }
        fs::write(file, bytes).unwrap();
    }
    // The manifest has a checksum too.
    let file = folder.join(&names(folder)[1]).join("manifest.json");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replacen("\"records\": 1", "\"records\": 2", 1)).unwrap();
    let (code, output) = restore(folder, &other, &[]);
    assert!(code == 1 && output.contains("its checksum differs"), "{output}");
    fs::write(&file, text).unwrap();
    let (code, output) = restore(folder, &other, &[]);
    assert_eq!(code, 0, "{output}");
    compare(&mut client, &mut theirs, &keys_of(&mut cluster.client(1)));
}

#[test]
fn restores_and_backups_that_would_mix_data_are_refused() {
    let cluster = Cluster::start(1, &[KEEPS]);
    run(&mut cluster.client(1), &[b"SET", b"k", b"v"]);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (code, output) = restore(folder, &cluster, &[]);
    assert!(code == 1 && output.contains("there is no backup in"), "{output}");
    // An interrupted backup is not a backup, and the next one removes it.
    let part = folder.join("20200101T000000.000Z.part");
    fs::create_dir(&part).unwrap();
    fs::write(part.join("1.rdb"), "REDIS").unwrap();
    back_up(&cluster, folder, &[]);
    assert!(!part.exists() && names(folder).len() == 1);

    let (code, output) = restore(folder, &cluster, &[]);
    assert!(code == 1 && output.contains("is the one that the backup is of"), "{output}");
    let other = Cluster::start(1, &[]);
    run(&mut other.client(1), &[b"SET", b"mine", b"v"]);
    let (code, output) = restore(folder, &other, &[]);
    assert!(code == 1 && output.contains("the cluster has 1 key"), "{output}");
    let (code, output) = restore(folder, &other, &["--dry-run"]);
    assert!(code == 0 && output.contains("1 key and up to 0 changes"), "{output}");
    // All that is said before the files are read, which may take hours: these are damaged.
    let [file] = &files(folder, ".rdb")[..] else { panic!("one file of keys") };
    let bytes = fs::read(file).unwrap();
    fs::write(file, &bytes[1..]).unwrap();
    for more in [&["--keyspace", ""][..], &[]] {
        let (code, output) = restore(folder, &other, more);
        assert!(code == 1 && output.contains("--empty-first removes "), "{output}");
    }
    let (code, output) = restore(folder, &cluster, &[]);
    assert!(code == 1 && output.contains("is the one that the backup is of"), "{output}");
    let password = folder.join("password");
    fs::write(&password, "wrong").unwrap();
    let (code, output) = restore(folder, &other, &["--password-file", password.to_str().unwrap()]);
    assert!(code == 1 && output.contains("refuses the password"), "{output}");
    fs::remove_file(password).unwrap();
    let nowhere = ["restore", "--from", folder.to_str().unwrap(), "--addr", "127.0.0.1:1"];
    let (code, output) = quorate(&nowhere);
    assert!(code == 1 && output.contains("no node can be reached"), "{output}");
    let (code, output) = restore(folder, &other, &["--empty-first"]);
    assert!(code == 1 && output.contains("damaged"), "{output}");
    fs::write(file, bytes).unwrap();
    assert_eq!(keys_of(&mut other.client(1)), [b"mine".to_vec()]);
    // A backup of another cluster continues none of these.
    let output = back_up(&other, folder, &[]);
    assert!(output.contains("1 shard copied"), "{output}");
    let (code, output) = quorate(&["backup", "--to", "gs://bucket/shop"]);
    assert!(code == 1 && output.contains("no way to gs://"), "{output}");
}

#[test]
fn a_scheduled_backup_keeps_the_given_number() {
    let cluster = Cluster::start(1, &[KEEPS]);
    let mut client = cluster.client(1);
    run(&mut client, &[b"SET", b"k", b"v"]);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut scheduled = Command::new(env!("CARGO_BIN_EXE_quorate"))
        .args([
            "backup",
            "--to",
            folder.to_str().unwrap(),
            "--addr",
            &address(&cluster),
            "--every",
            "1s",
            "--keep",
            "2",
        ])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut seen = std::collections::BTreeSet::new();
    until("there were four", || {
        seen.extend(names(folder));
        seen.len() >= 4
    });
    let (code, output) = quorate(&["backup", "--to", folder.to_str().unwrap(), "--addr", &address(&cluster)]);
    assert!(code == 1 && output.contains("another backup into"), "{output}");
    scheduled.kill().unwrap();
    scheduled.wait().unwrap();
    assert!(names(folder).len() <= 3, "{:?}", names(folder));
    // Files that the newest backups need are still there.
    assert!(names(folder)[0] > *seen.first().unwrap());
    run(&mut client, &[b"SET", b"k", b"w"]);
    let output = back_up(&cluster, folder, &["--keep", "1"]);
    assert!(output.contains("1 continued (1 change)"), "{output}");
    let (_, output) = quorate(&["backup", "--list", folder.to_str().unwrap()]);
    assert!(output.lines().count() == 2 && output.contains("at any time from"), "{output}");
    let (other, _) = restored(folder, 1, &[]);
    assert_eq!(as_text(&run(&mut client_of(other.client_port(1)), &[b"GET", b"k"])), "\"w\"");
}
