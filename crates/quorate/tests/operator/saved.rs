//! Backups and exports while a keyspace is not served: they save what answers, and name what does not.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::served::{run, without_registers};
use super::started::Started;
use super::support::{Server, configuration, free_ports, quorate, try_http, until};

/// The names of the files in a folder and its folders, sorted.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path.file_name().unwrap().to_string_lossy().into_owned()),
        }
    }
    found.sort();
    found
}

#[test]
fn a_backup_saves_what_is_served_and_names_the_rest() {
    let (started, _nodes) = without_registers();
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("backups");
    let place = place.to_str().unwrap();
    let (code, text) = run(&started, 1, &["backup", "--to", place, "--fail-on-missing"]);
    assert!(code == 1 && text.contains("no backup was made: keyspace 'r:': it is not served"), "{text}");
    let left = files(Path::new(place));
    assert!(!left.iter().any(|name| name.ends_with(".rdb") || name == "manifest.json"), "{left:?}");

    for node in 1..=3 {
        let (code, text) = run(&started, node, &["backup", "--to", place]);
        assert!(code == 1 && text.contains("2 shards copied (2 keys)"), "{text}");
        assert!(text.contains("not saved: keyspace 'r:': it is not served: nodes 2, 3,"), "{text}");
        assert!(text.contains("it is not in the backup") && !text.contains("Error("), "{text}");
    }
    let (code, text) = run(&started, 1, &["backup", "--to", place, "--keyspace", "cart:"]);
    assert!(code == 0 && text.contains("1 shard copied (1 key)"), "{text}");
    let (code, text) = run(&started, 1, &["backup", "--list", place, "--max-age", "1h"]);
    assert!(code == 1 && text.contains("keyspace 'r:' never"), "the newest was not asked for it: {text}");
    let (code, text) = run(&started, 1, &["backup", "--to", place, "--keyspace", "nope:"]);
    assert!(code == 1 && text.contains("there is no keyspace \"nope:\""), "{text}");
    let (_, text) = run(&started, 1, &["backup", "--to", place, "--keyspace", "r:"]);
    assert!(text.contains("no backup was made: no keyspace can be read: keyspace 'r:'"), "{text}");

    // The last one has the keyspaces that it did not copy as the ones before.
    let other = Started::new(1, &[]);
    let (code, text) = run(&other, 1, &["restore", "--from", place]);
    assert!(code == 0 && text.contains("2 keys compared"), "{text}");
    assert_eq!(other.ask(1, "EXISTS k"), ":1");
    assert_eq!(other.ask(1, "EXISTS cart:k"), ":1");
}

#[test]
fn a_keyspace_that_is_not_served_stays_in_the_backup_as_it_was_and_is_restored_alone() {
    let started = Started::new(3, &super::served::KEYSPACES);
    for key in ["k", "r:k", "cart:k"] {
        assert_eq!(started.ask(1, &format!("SET {key} before")), "+OK");
    }
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    let (code, text) = run(&started, 1, &["backup", "--to", place]);
    assert!(code == 0 && text.contains("3 shards copied (3 keys)"), "{text}");
    let list = |age| run(&started, 1, &["backup", "--list", place, "--max-age", age]);
    assert_eq!(list("1h").0, 0);
    std::thread::sleep(Duration::from_secs(1));
    let (code, text) = list("1s");
    assert!(code == 1 && text.contains("keyspace 'r:' since "), "{text}");
    assert_eq!(started.ask(1, "SET cart:k after"), "+OK");
    started.kill_all(&[2, 3]);
    let _nodes = [2, 3].map(|node| started.spawn(node));
    until("they have forgotten", || started.ask(1, "GET r:k").contains("a majority"));
    let (code, text) = run(&started, 2, &["backup", "--to", place, "--keep", "1"]);
    assert!(code == 1 && text.contains("it stays in the backup"), "{text}");

    let (_, text) = run(&started, 1, &["restore", "--from", place, "--dry-run"]);
    assert!(
        text.contains("keyspace 'r:' was not saved by this backup, and it is from an earlier one"),
        "{text}"
    );
    let restore = ["restore", "--from", place, "--keyspace", "r:", "--same-cluster", "--empty-first"];
    let (code, text) = run(&started, 1, &restore);
    assert!(code == 1 && text.contains("keyspace 'r:': it is not served"), "{text}");
    until("it is given up", || started.ask(1, "KEYSPACE RECOVER r: ACCEPTLOSS") == "+OK");
    until("all serve", || (1..=3).all(|node| started.is_ready(node)));
    assert_eq!(started.ask(1, "SET r:k wrong"), "+OK");
    assert_eq!(started.ask(1, "SET r:new wrong"), "+OK");
    assert_eq!(run(&started, 1, &restore[..6]).0, 1, "it has keys");
    let (code, text) = run(&started, 1, &restore);
    assert!(code == 0 && text.contains("1 key compared"), "{text}");
    let mut client = started.cluster.client(1);
    assert_eq!((client.ask("GET r:k"), client.line()), ("$6".into(), "before".into()));
    assert_eq!(client.ask("EXISTS r:new"), ":0");
    assert_eq!(
        (client.ask("GET cart:k"), client.line()),
        ("$5".into(), "after".into()),
        "no other is touched"
    );
}

#[test]
fn an_export_writes_what_is_served_and_names_the_rest() {
    let (started, _nodes) = without_registers();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dump.rdb");
    let path = file.to_str().unwrap();
    let (code, text) = run(&started, 2, &["export", path, "--fail-on-missing"]);
    assert!(code == 1 && text.contains("is not written: keyspace 'r:': it is not served"), "{text}");
    assert_eq!(files(folder.path()), Vec::<String>::new());
    let (code, text) = run(&started, 2, &["export", path]);
    assert!(code == 1 && text.contains("2 keys are in "), "{text}");
    assert!(text.contains("not written: keyspace 'r:': it is not served: nodes 2, 3,"), "{text}");
    assert!(!text.contains("Error(") && !text.contains("cannot write"), "{text}");
    assert!(text.contains("keyspace 'r:' cannot be read; waiting up to 15 s"), "{text}");
    let (code, text) = run(&started, 2, &["export", path, "--force", "--keyspace", ""]);
    assert!(code == 0 && text.contains("1 key is in "), "{text}");
    let other = Started::new(1, &[]);
    let (code, text) = run(&other, 1, &["import", path]);
    assert!(code == 0, "{text}");
    assert_eq!(other.ask(1, "DBSIZE"), ":1");
}

#[test]
fn with_a_lost_majority_backup_and_export_end_within_a_bound() {
    let started = Started::new(3, &["prefix=cart: replication=leader-follower acks=majority"]);
    (0..12).for_each(|app| assert_eq!(started.ask(1, &format!("KEYSPACE CREATE app{app}:")), "+OK"));
    assert_eq!(started.ask(1, "SET k 1"), "+OK");
    started.kill_all(&[2, 3]);
    // A leader that was alone for less than its lease may still be read, and backed up.
    until("node 1 serves nothing", || started.ask(1, "GET k").starts_with("-CLUSTERDOWN"));
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    let begun = Instant::now();
    let (code, text) = run(&started, 1, &["backup", "--to", place]);
    assert!(code == 1 && text.contains("no backup was made: no keyspace can be read: "), "{text}");
    assert!(text.contains("keyspace 'default': no node leads it") && text.contains("'cart:'"), "{text}");
    assert!(text.contains("waiting up to 30 s"), "{text}");
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    let begun = Instant::now();
    let file = folder.path().join("dump.rdb");
    let (code, text) = run(&started, 1, &["export", file.to_str().unwrap()]);
    assert!(
        code == 1 && text.contains("is not written: no keyspace can be read: ") && text.contains("'cart:'"),
        "{text}"
    );
    assert!(begun.elapsed() < Duration::from_secs(30), "of 14 keyspaces: {:?}", begun.elapsed());
}

/// What `status` says of a cluster: its exit code, and JSON.
fn status(started: &Started, node: u16) -> (i32, Value) {
    let (code, text) = run(started, node, &["status", "--json"]);
    (code, serde_json::from_str(&text).unwrap())
}

/// The risks about backups, as (about, what).
fn late(status: &Value) -> Vec<(String, String)> {
    let risks = status["risks"].as_array().unwrap().iter().filter(|risk| risk["kind"] == "backup-old");
    risks
        .map(|risk| (risk["about"].as_str().unwrap().into(), risk["what"].as_str().unwrap().into()))
        .collect()
}

/// The value of a keyspace's metric at a node.
fn metric(started: &Started, node: u16, name: &str, keyspace: &str) -> Option<f64> {
    let (_, text) = try_http(started.cluster.http_port(node), "GET /metrics HTTP/1.1", "").unwrap();
    assert!(text.contains(&format!("# TYPE {name} gauge")), "{text}");
    let series = format!("{name}{{keyspace=\"{keyspace}\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok())
}

const AT: &str = "quorate_keyspace_backup_timestamp_seconds";
const DUE: &str = "quorate_keyspace_backup_due_timestamp_seconds";

#[test]
fn every_node_knows_how_old_the_newest_backup_is_and_a_late_one_is_a_risk() {
    let started = Started::new(3, &["prefix=cart: replication=leader-follower acks=majority"]);
    until("nothing is at risk", || status(&started, 1).0 == 0);
    let (_, before) = status(&started, 2);
    assert!(before["keyspaces"].as_array().unwrap().iter().all(|it| it["backup"].is_null()), "{before}");
    assert_eq!(metric(&started, 1, AT, "default"), None, "nobody makes backups");

    let folder = tempfile::tempdir().unwrap();
    let backup = |name: &str, more: &[&str]| {
        let place = folder.path().join(name);
        let (code, text) = run(&started, 1, &[&["backup", "--to", place.to_str().unwrap()], more].concat());
        assert!(code == 0 && !text.contains("was not told"), "{text}");
    };
    backup("one", &[]);
    let now_s = || std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    for (node, keyspace) in [(1, "default"), (2, "cart:"), (3, "default")] {
        until("the node has the map", || metric(&started, node, AT, keyspace).is_some());
        let (at, due) = (metric(&started, node, AT, keyspace), metric(&started, node, DUE, keyspace));
        assert!((now_s() - at.unwrap()).abs() < 30.0, "{at:?}");
        assert!((due.unwrap() - at.unwrap() - 26.0 * 3600.0).abs() < 0.1, "{at:?} {due:?}");
    }
    let (code, told) = status(&started, 3);
    assert!(code == 0 && late(&told).is_empty(), "{told}");
    assert!(told["keyspaces"][0]["backup"]["age_s"].as_u64().unwrap() < 60, "{told}");

    // One keyspace is saved and is due at once; the newest backup counts, wherever it is.
    backup("two", &["--keyspace", "cart:", "--next-within", "1s"]);
    until("it is late", || status(&started, 2).0 == 1);
    let risks = late(&status(&started, 2).1);
    assert!(risks.len() == 1 && risks[0].0 == "keyspace 'cart:'", "{risks:?}");
    assert!(risks[0].1.starts_with("the newest backup of keyspace 'cart:' shows it as it was "), "{risks:?}");
    let (_, text) = run(&started, 2, &["status"]);
    assert!(text.contains("quorate backup --to PLACE"), "{text}");
    started.kill(2);
    let _node = started.start_again(2);
    assert_eq!(late(&status(&started, 2).1).len(), 1, "a restarted node knows it");
    backup("one", &["--next-within", "7d"]);
    until("nothing is at risk", || status(&started, 1).0 == 0);

    // Whoever ends making backups says so.
    backup("one", &["--next-within", "1s"]);
    until("both are late", || late(&status(&started, 1).1).len() == 2);
    for (wrong, why) in
        [("1 cart:", "syntax error"), ("x cart: 1", "'x' is not a number"), ("1", "syntax error")]
    {
        let answer = started.ask(1, &format!("CLUSTER BACKUP {wrong}"));
        assert!(answer.starts_with("-ERR") && answer.contains(why), "{wrong}: {answer}");
    }
    assert_eq!(started.ask(1, "CLUSTER BACKUP 1 no-such: 1"), "+OK");
    assert_eq!(started.ask(1, "CLUSTER BACKUP FORGET"), "+OK");
    until("they are forgotten", || status(&started, 1).0 == 0);
    assert_eq!(metric(&started, 1, AT, "cart:"), None);
}

#[test]
fn a_keyspace_that_no_backup_could_read_is_a_risk() {
    let (started, _nodes) = without_registers();
    let folder = tempfile::tempdir().unwrap();
    let (code, text) = run(&started, 1, &["backup", "--to", folder.path().to_str().unwrap()]);
    assert!(code == 1 && !text.contains("was not told"), "{text}");
    let risks = late(&status(&started, 1).1);
    assert!(risks.len() == 1 && risks[0].1.starts_with("no backup holds keyspace 'r:'"), "{risks:?}");
    assert_eq!(metric(&started, 1, AT, "r:"), Some(0.0));
}

#[test]
fn a_backup_succeeds_although_the_cluster_cannot_be_told_of_it() {
    // A node that was never started keeps the cluster at level 1.
    let base = free_ports(12);
    let config = configuration(base, 4, "", "");
    let of = |id: u16| config.replace("node = 1\n", &format!("node = {id}\n"));
    let nodes: Vec<Server> = (1..=3).map(|id| Server::start_node(id, 4, base, &of(id))).collect();
    let address = format!("127.0.0.1:{}", nodes[0].client_port);
    until("it serves", || nodes[0].client().ask("SET k v") == "+OK");
    let folder = tempfile::tempdir().unwrap();
    let backup = |more: &[&str]| {
        let command = ["backup", "--addr", &address, "--to", folder.path().to_str().unwrap()];
        let output = quorate().args(command).args(more).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code().unwrap(), text)
    };
    let (code, text) = backup(&[]);
    assert!(code == 0 && text.contains("1 shard copied (1 key)"), "{text}");
    assert!(
        text.contains("the cluster was not told of this backup") && text.contains("needs level 2"),
        "{text}"
    );

    // A user of before roles knew of it.
    let rules = "resetkeys nocommands %R~* +@all -cluster|backup";
    assert_eq!(nodes[0].client().ask(&format!("ACL SETUSER old on >word {rules}")), "+OK");
    let password = folder.path().join("password");
    std::fs::write(&password, "word").unwrap();
    let (code, text) = backup(&["--user", "old", "--password-file", password.to_str().unwrap()]);
    assert!(code == 0 && text.contains("was not told of this backup") && text.contains("NOPERM"), "{text}");
}
