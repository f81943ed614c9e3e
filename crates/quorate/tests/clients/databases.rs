//! Databases: clients select them, and they go from Redis to a cluster, to a backup, and back to Redis.

use std::path::Path;

use redis::Connection;

use crate::dump::{Draw, client_of, compare, fill, has_loaded, in_folder, keys_of, quorate, run};
use crate::live::Import;
use crate::support::{Cluster, as_text, ask, until};

const KEYSPACES: [&str; 4] = [
    "prefix=@1 shards=2 changes_bytes=64mb",
    "prefix=@3 replication=leader-follower acks=majority",
    "prefix=@5 replication=abd",
    "prefix=p:",
];

fn select(client: &mut Connection, database: u8) {
    assert_eq!(ask(client, &format!("SELECT {database}")), "OK");
}

#[test]
fn a_pipelined_move_between_databases_is_visible_to_the_next_command() {
    let cluster = Cluster::start(3, &KEYSPACES);
    for node in 1..=3 {
        let mut client = cluster.client(node);
        let replies: (String, u8, Option<u8>, String, u8, u8, Option<u8>) = redis::pipe()
            .cmd("SET")
            .arg("k")
            .arg("7")
            .cmd("MOVE")
            .arg("k")
            .arg("1")
            .cmd("GET")
            .arg("k")
            .cmd("SELECT")
            .arg("1")
            .cmd("INCR")
            .arg("k")
            .cmd("MOVE")
            .arg("k")
            .arg("3")
            .cmd("GET")
            .arg("k")
            .query(&mut client)
            .unwrap();
        assert_eq!(replies, ("OK".into(), 1, None, "OK".into(), 8, 1, None), "node {node}");
        select(&mut client, 3);
        assert_eq!(ask(&mut client, "GETDEL k"), "\"8\"");
    }
    // As client libraries do it: the database is a part of the address.
    let url = format!("redis://127.0.0.1:{}/3", cluster.client_port(2));
    let mut client = redis::Client::open(url).unwrap().get_connection().unwrap();
    assert_eq!(ask(&mut client, "SET mine 1"), "OK");
    let mut other = cluster.client(1);
    assert_eq!(ask(&mut other, "EXISTS mine"), "0");
    select(&mut other, 3);
    assert_eq!(ask(&mut other, "KEYS *"), "[\"mine\"]");
}

/// Compares two servers, database by database.
fn compare_databases(one: &mut Connection, other: &mut Connection, databases: &[(u8, Vec<Vec<u8>>)]) {
    for (database, keys) in databases {
        select(one, *database);
        select(other, *database);
        compare(one, other, keys);
    }
}

#[test]
fn databases_go_from_redis_through_backups_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let Some(redis) = in_folder(folder.path(), &["--appendonly", "yes"]) else { return };
    let (mut theirs, mut draw) = (client_of(redis.1), Draw(7));
    let mut databases = Vec::new();
    for database in [0, 1, 3] {
        select(&mut theirs, database);
        fill(&mut theirs, &mut draw);
        run(&mut theirs, &[b"SET", b"number", database.to_string().as_bytes()]);
        databases.push((database, keys_of(&mut theirs)));
    }
    let to = ["--database", "1=@1", "--database", "3=@3"];

    // From a running server.
    let cluster = Cluster::start(3, &KEYSPACES);
    let address = |cluster: &Cluster| format!("127.0.0.1:{}", cluster.client_port(1));
    let import = Import::start(redis.1, &cluster, &[&to[..], &["--compare", "whole"]].concat());
    for (database, keys) in &mut databases {
        select(&mut theirs, *database);
        for at in 0..50 {
            run(&mut theirs, &[b"SET", format!("late{at}").as_bytes(), b"v", b"PX", b"100000000"]);
        }
        *keys = keys_of(&mut theirs);
    }
    let (went_well, output) = import.end();
    assert!(went_well && output.contains(", 0 differ"), "{output}");
    let mut ours = cluster.client(2);
    compare_databases(&mut theirs, &mut ours, &databases);

    // From its files.
    run(&mut theirs, &[b"SAVE"]);
    let (dump, log) = (folder.path().join("dump.rdb"), folder.path().join("appendonlydir"));
    let from_file = |file: &Path| {
        let other = Cluster::start(1, &KEYSPACES);
        let file = file.to_str().unwrap();
        let (code, output) = quorate(&[&["import", file, "--addr", &address(&other)][..], &to[..]].concat());
        assert_eq!(code, 0, "{output}");
        other
    };
    compare_databases(&mut theirs, &mut from_file(&dump).client(1), &databases);
    // Redis reads its own log for the comparison: the log lacks how many entries a group has read.
    drop(redis);
    let redis = in_folder(folder.path(), &["--appendonly", "yes"]).unwrap();
    let mut theirs = client_of(redis.1);
    until("the files are read", || has_loaded(&mut theirs));
    compare_databases(&mut theirs, &mut from_file(&log).client(1), &databases);
    let other = Cluster::start(1, &[]);
    let arguments = ["import", dump.to_str().unwrap(), "--addr", &address(&other)];
    let (code, output) = quorate(&[&arguments[..], &to].concat());
    assert_eq!(code, 0, "{output}");
    let mut created = other.client(1);
    select(&mut created, 3);
    assert_eq!(
        as_text(&run(&mut created, &[b"DBSIZE"])),
        databases[2].1.len().to_string(),
        "with its first use"
    );

    // Into a backup, and into another cluster, which has no such databases yet.
    let backups = tempfile::tempdir().unwrap();
    let back_up = || {
        let arguments = ["backup", "--to", backups.path().to_str().unwrap(), "--addr", &address(&cluster)];
        let (code, output) = quorate(&arguments);
        assert_eq!(code, 0, "{output}");
    };
    // Registers are read one by one, and prefixes mean nothing there.
    select(&mut ours, 5);
    for key in ["k", "p:k", "@3"] {
        run(&mut ours, &[b"SET", key.as_bytes(), key.as_bytes()]);
    }
    back_up();
    select(&mut ours, 1);
    run(&mut ours, &[b"SET", b"later", b"v"]);
    run(&mut ours, &[b"DEL", b"late7"]);
    let in_one = keys_of(&mut ours);
    databases[1].1 = in_one;
    back_up();
    let restored = Cluster::start(3, &[]);
    let arguments = ["restore", "--from", backups.path().to_str().unwrap(), "--addr", &address(&restored)];
    let (code, output) = quorate(&[&arguments[..], &["--compare", "whole"]].concat());
    assert_eq!(code, 0, "{output}");
    let mut again = restored.client(3);
    compare_databases(&mut ours, &mut again, &databases);
    let (code, output) = quorate(&arguments);
    let count: usize = databases.iter().map(|(_, keys)| keys.len()).sum();
    let found = output.split("the cluster has ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
    // A node counts only the registers that it holds.
    assert!(code != 0 && found.is_some_and(|found| (count..=count + 3).contains(&found)), "{output}");

    select(&mut again, 5);
    for key in ["k", "p:k", "@3"] {
        assert_eq!(as_text(&run(&mut again, &[b"GET", key.as_bytes()])), format!("\"{key}\""));
        run(&mut again, &[b"DEL", key.as_bytes()]);
    }

    // And back.
    let exported = tempfile::tempdir().unwrap();
    let file = exported.path().join("dump.rdb");
    let arguments = ["export", file.to_str().unwrap(), "--addr", &address(&restored)];
    assert_eq!(quorate(&arguments).0, 0);
    let back = in_folder(exported.path(), &[]).unwrap();
    let mut back = client_of(back.1);
    until("the file is read", || has_loaded(&mut back));
    compare_databases(&mut again, &mut back, &databases);
    assert_eq!(as_text(&run(&mut back, &[b"GET", b"number"])), "\"3\"");
}
