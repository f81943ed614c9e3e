//! Backups and exports while a keyspace is not served: they save what answers, and name what does not.

use std::path::Path;
use std::time::{Duration, Instant};

use super::served::{run, without_registers};
use super::started::Started;
use super::support::until;

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
    assert!(code == 0 && text.contains("1 shards copied (1 keys)"), "{text}");
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
    assert!(code == 0 && text.contains("1 keys compared"), "{text}");
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
    let (code, text) = run(&started, 2, &["export", path, "--force", "--keyspace", ""]);
    assert!(code == 0 && text.contains("1 keys are in "), "{text}");
    let other = Started::new(1, &[]);
    let (code, text) = run(&other, 1, &["import", path]);
    assert!(code == 0, "{text}");
    assert_eq!(other.ask(1, "DBSIZE"), ":1");
}

#[test]
fn with_a_lost_majority_backup_and_export_end_within_a_bound() {
    let started = Started::new(3, &["prefix=cart: replication=leader-follower acks=majority"]);
    assert_eq!(started.ask(1, "SET k 1"), "+OK");
    started.kill_all(&[2, 3]);
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    let begun = Instant::now();
    let (code, text) = run(&started, 1, &["backup", "--to", place]);
    assert!(code == 1 && text.contains("no backup was made: no keyspace can be read: "), "{text}");
    assert!(
        text.contains("keyspace 'default': no node leads it") && text.contains("keyspace 'cart:'"),
        "{text}"
    );
    assert!(text.contains("waiting up to 30 s"), "{text}");
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    let begun = Instant::now();
    let file = folder.path().join("dump.rdb");
    let (code, text) = run(&started, 1, &["export", file.to_str().unwrap()]);
    assert!(
        code == 1 && text.contains("is not written: no keyspace can be read: keyspace 'cart:'"),
        "{text}"
    );
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}
