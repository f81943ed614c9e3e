//! Backups of several shards and keyspaces under load: all that take part in transactions show one moment.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::{Connection, RedisResult, Value};

use crate::dump::{Draw, quorate, run};
use crate::support::{Cluster, as_text, ask, until};

const KEYSPACES: [&str; 5] = [
    "prefix= shards=4 changes_bytes=64mb",
    "prefix=b: shards=2",
    "prefix=c: replication=leader-follower acks=1",
    "prefix=weak: replication=leader-follower acks=none",
    "prefix=reg: replication=abd",
];

/// The prefixes of accounts between which amounts move; all amounts together are 0.
const ACCOUNTS: [&str; 3] = ["", "b:", "c:"];
const NUMBERS: u64 = 12;

fn account(draw: &mut Draw) -> String {
    format!("{}account:{}", ACCOUNTS[draw.below(3) as usize], draw.below(NUMBERS))
}

/// One step of a client: moves an amount, writes two keys at once, or writes one after the other.
fn step(client: &mut Connection, draw: &mut Draw, number: u64) -> RedisResult<()> {
    let at = draw.below(NUMBERS);
    match draw.below(3) {
        0 => {
            let (from, to, amount) = (account(draw), account(draw), draw.below(100));
            let mut both = redis::pipe();
            both.atomic().cmd("DECRBY").arg(from).arg(amount).cmd("INCRBY").arg(to).arg(amount);
            both.query::<Value>(client)?;
        }
        1 => {
            let (one, other) = (format!("pair:{at}"), format!("c:pair:{at}"));
            redis::cmd("MSET").arg(one).arg(number).arg(other).arg(number).query::<Value>(client)?;
        }
        _ => {
            // A client of its own for each key: numbers only grow.
            for key in [format!("first:{at}"), format!("b:second:{at}"), format!("third:{at}")] {
                let mut steps = redis::cmd("EVAL");
                let script = "local n = tonumber(redis.call('GET', KEYS[1]) or 0) \
                              if tonumber(ARGV[1]) > n then redis.call('SET', KEYS[1], ARGV[1]) end return 1";
                steps.arg(script).arg(1).arg(key).arg(number).query::<Value>(client)?;
            }
        }
    }
    Ok(())
}

fn number_of(client: &mut Connection, key: &str) -> i64 {
    as_text(&run(client, &[b"GET", key.as_bytes()])).trim_matches('"').parse().unwrap_or(0)
}

/// Checks what a backup shows.
fn check(client: &mut Connection, name: &str) {
    let mut sum = 0;
    for prefix in ACCOUNTS {
        (0..NUMBERS).for_each(|at| sum += number_of(client, &format!("{prefix}account:{at}")));
    }
    assert_eq!(sum, 0, "{name}: half a transaction");
    for at in 0..NUMBERS {
        let (one, other) = (format!("pair:{at}"), format!("c:pair:{at}"));
        assert_eq!(number_of(client, &one), number_of(client, &other), "{name}: half of MSET {one} {other}");
        let keys = [format!("first:{at}"), format!("b:second:{at}"), format!("third:{at}")];
        let [first, second, third] = keys.map(|key| number_of(client, &key));
        assert!(third <= second && second <= first, "{name}: {at}: {first}, then {second}, then {third}");
    }
}

/// Runs clients while `during` does.
fn under_load(cluster: &mut Cluster, during: impl FnOnce(&mut Cluster, &AtomicU64)) {
    let (is_over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let ports: Vec<u16> = (1..=3).map(|id| cluster.client_port(id)).collect();
    let number = AtomicU64::new(1);
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let (ports, is_over, done, number) = (&ports, &is_over, &done, &number);
            scope.spawn(move || {
                let (mut draw, mut at) = (Draw(writer + 1), writer as usize);
                while !is_over.load(Ordering::Relaxed) {
                    at += 1;
                    let Ok(client) = redis::Client::open(("127.0.0.1", ports[at % 3])) else { continue };
                    let Ok(mut client) = client.get_connection_with_timeout(Duration::from_secs(1)) else {
                        continue;
                    };
                    let _ = client.set_read_timeout(Some(Duration::from_secs(8)));
                    while !is_over.load(Ordering::Relaxed) {
                        if step(&mut client, &mut draw, number.fetch_add(1, Ordering::Relaxed)).is_err() {
                            break;
                        }
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| during(cluster, &done)));
        is_over.store(true, Ordering::Relaxed);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
}

fn back_up(cluster: &Cluster, node: u16, folder: &Path, more: &[&str]) -> (i32, String) {
    let address = format!("127.0.0.1:{}", cluster.client_port(node));
    quorate(&[&["backup", "--to", folder.to_str().unwrap(), "--addr", &address][..], more].concat())
}

#[test]
fn a_backup_shows_one_moment_of_all_shards_that_take_part_in_transactions() {
    let mut cluster = Cluster::start(3, &KEYSPACES);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut names = Vec::new();
    under_load(&mut cluster, |cluster, done| {
        for round in 0..6 {
            let most = done.load(Ordering::Relaxed) + 100;
            until("there are writes", || done.load(Ordering::Relaxed) >= most);
            let leader = cluster.leader();
            let others = (1..=3).find(|id| *id != leader).unwrap();
            if round == 4 {
                cluster.kill(leader);
            }
            let more: &[&str] = if round % 2 == 1 { &["--full"] } else { &[] };
            let (code, output) = back_up(cluster, others, folder, more);
            assert_eq!(code, 0, "{output}");
            assert!(output.contains("its shards show one moment"), "{output}");
            let apart: Vec<&str> =
                output.lines().filter(|line| line.starts_with("not of one moment")).collect();
            let are = |at: usize, what: &str| apart.get(at).is_some_and(|line| line.contains(what));
            assert!(apart.len() == 2 && are(0, "'reg:'") && are(1, "'weak:'"), "{output}");
            let name = output.lines().find_map(|line| line.strip_prefix("backup "));
            names.push(name.unwrap().split(':').next().unwrap().to_owned());
            eprintln!("{output}");
            if round == 4 {
                cluster.restart(leader);
                cluster.wait_until_ready(leader);
            }
        }
    });
    let (_, listed) = quorate(&["backup", "--list", folder.to_str().unwrap()]);
    assert_eq!(listed.matches("are as at one moment").count(), 6, "{listed}");
    let other = Cluster::start(3, &KEYSPACES);
    let mut theirs = other.client(1);
    let address = format!("127.0.0.1:{}", other.client_port(1));
    for name in &names {
        let words = ["restore", "--from", folder.to_str().unwrap(), "--addr", &address, "--backup", name];
        let (code, output) = quorate(&[&words[..], &["--empty-first"]].concat());
        assert_eq!(code, 0, "{output}");
        check(&mut theirs, name);
    }
}

/// A keyspace without a leader keeps the others from nothing.
#[test]
fn shards_without_a_leader_are_left_out_of_the_moment() {
    let mut cluster = Cluster::start(3, &["prefix= shards=2", "prefix=b:", "prefix=lone: replicas=1"]);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut client = cluster.client(1);
    ["a", "z", "b:k", "lone:k"]
        .iter()
        .for_each(|key| drop(run(&mut client, &[b"SET", key.as_bytes(), b"1"])));
    let (code, output) = back_up(&cluster, 1, folder, &[]);
    assert!(code == 0 && !output.contains("not of one moment"), "{output}");
    let report = (1..=3).find(|id| {
        let health = cluster.health(*id);
        let keyspaces = health["keyspaces"].as_array().unwrap().clone();
        keyspaces.iter().any(|it| it["prefix"] == "lone:" && it["role"] == "leader")
    });
    let victim = report.unwrap();
    cluster.kill(victim);
    let node = (1..=3).find(|id| *id != victim).unwrap();
    let (code, output) = back_up(&cluster, node, folder, &["--keyspace", "", "--keyspace", "b:"]);
    assert!(code == 0 && output.contains("show one moment") && !output.contains("not of one"), "{output}");
    let begun = Instant::now();
    let (code, output) = back_up(&cluster, node, folder, &[]);
    assert!(code == 1 && output.contains("show one moment"), "{output}");
    assert!(output.contains("not saved: keyspace 'lone:'"), "{output}");
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert_eq!(ask(&mut cluster.client(node), "SET b:k 2"), "OK");
}
