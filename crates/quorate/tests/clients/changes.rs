//! Change streams of real processes, and replicas of Redis and Valkey that follow a cluster.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::dump::{Draw, client_of, compare, fill, keys_of, run};
use crate::live::step;
use crate::scripts::Redis;
use crate::support::{Cluster, PATIENCE, as_text, ask, free_ports, until};

/// A change: its keys with their events, and the words of the effects. Bytes that are not valid text are left out.
type Change = (String, Vec<String>);

/// Reads a reply or a push and returns its words, without their types and lengths.
fn read(stream: &mut BufReader<TcpStream>) -> std::io::Result<Vec<String>> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    let count = || line[1..].trim_end().parse::<usize>().unwrap();
    match line.as_bytes()[0] {
        b'$' => {
            let mut bytes = vec![0; count() + 2];
            stream.read_exact(&mut bytes)?;
            bytes.truncate(bytes.len() - 2);
            Ok(vec![String::from_utf8(bytes).unwrap_or_default()])
        }
        mark @ (b'*' | b'>' | b'%') => {
            let count = if mark == b'%' { 2 * count() } else { count() };
            let mut words = Vec::new();
            for _ in 0..count {
                words.extend(read(stream)?);
            }
            Ok(words)
        }
        _ => Ok(vec![line.trim_end().to_string()]),
    }
}

/// Adds the changes that a node sends after a version, until the last change or the end of the connection.
fn watch(port: u16, from: &str, changes: &mut Vec<Change>) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("HELLO 3\r\nKEYSPACE WATCH \"\" FROM {from}\r\n").as_bytes())?;
    let mut stream = BufReader::new(stream);
    loop {
        let words = read(&mut stream)?;
        match words[0].as_str() {
            "change" => changes.push((words[2].clone(), words[3..].to_vec())),
            "ended" => panic!("{words:?}"),
            _ => continue,
        }
        if changes.last().is_some_and(|(_, words)| words[0] == "end") {
            return Ok(());
        }
    }
}

/// The same over HTTP.
fn listen(port: u16, from: &str, changes: &mut Vec<Change>) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let request = format!("GET /changes/ HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: {from}\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let (mut event, mut head) = (String::new(), true);
    for line in BufReader::new(stream).lines() {
        let line = line?;
        if head {
            assert!(!line.starts_with("HTTP/1.1 4"), "{line}");
            if line.starts_with("HTTP/1.1 5") {
                break;
            }
            head = !line.is_empty();
        } else if let Some(name) = line.strip_prefix("event: ") {
            event = name.to_string();
        } else if let Some(data) = line.strip_prefix("data: ") {
            assert_eq!(event, "change", "{data}");
            let data: serde_json::Value = serde_json::from_str(data).unwrap();
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_string();
            let events = data["events"].as_array().unwrap().iter();
            let effects = data["effects"].as_array().unwrap().iter().flat_map(|it| it.as_array().unwrap());
            let words = events.flat_map(|it| [text(&it["key"]), text(&it["event"])]).chain(effects.map(text));
            changes.push((text(&data["version"]), words.collect()));
            if changes.last().is_some_and(|(_, words)| words[0] == "end") {
                return Ok(());
            }
        }
    }
    Err(std::io::ErrorKind::UnexpectedEof.into())
}

/// Reads changes up to the last one, at one node after the other.
fn read_all(
    mut ports: Vec<u16>,
    read: impl Fn(u16, &str, &mut Vec<Change>) -> std::io::Result<()>,
) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    loop {
        let from = changes.last().map_or("0".to_string(), |(version, _)| version.clone());
        if read(ports[0], &from, &mut changes).is_ok() {
            return changes;
        }
        ports.rotate_left(1);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn consumers_get_every_change_although_the_leader_is_killed() {
    let mut cluster = Cluster::start(3, &["prefix= changes_bytes=64mb"]);
    let leader = cluster.leader();
    // They begin at the leader.
    let order: Vec<u16> = (0..3).map(|at| (leader - 1 + at) % 3 + 1).collect();
    let (clients, http): (Vec<u16>, Vec<u16>) =
        order.iter().map(|id| (cluster.client_port(*id), cluster.http_port(*id))).unzip();
    let (is_over, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let (watched, heard) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| read_all(clients.clone(), watch));
        let listener = scope.spawn(|| read_all(http, listen));
        let writer = scope.spawn(|| {
            let (mut draw, mut client) = (Draw(11), None);
            while !is_over.load(Ordering::Relaxed) {
                let port = clients[1 + draw.below(2) as usize];
                let client = client.get_or_insert_with(|| client_of(port));
                let _ = step(client, &mut draw);
                written.fetch_add(1, Ordering::Relaxed);
            }
        });
        let more = |count: u64| {
            let most = written.load(Ordering::Relaxed) + count;
            until("there are writes", || written.load(Ordering::Relaxed) >= most);
        };
        more(500);
        cluster.kill(leader);
        more(500);
        cluster.restart(leader);
        cluster.wait_until_ready(leader);
        more(500);
        is_over.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        assert_eq!(ask(&mut cluster.client(order[1]), "SET end v"), "OK");
        (watcher.join().unwrap(), listener.join().unwrap())
    });
    assert!(watched.len() > 500);
    for (one, other) in watched.iter().zip(&heard) {
        assert_eq!(one, other);
    }
    assert_eq!(watched.len(), heard.len());
}

/// A server that follows a node, receives changes under load, loses its connection, and is equal at the end.
fn follows(program: &str, keyspace: &str) {
    let cluster = Cluster::start(3, &[keyspace]);
    fill(&mut cluster.client(1), &mut Draw(21));
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let port = cluster.client_port(2).to_string();
    let own = ["--save", "", "--dir", folder.path().to_str().unwrap(), "--logfile", log.to_str().unwrap()];
    let replica = [&own[..], &["--replicaof", "127.0.0.1", &port]].concat();
    let (is_over, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let log_text = || std::fs::read_to_string(&log).unwrap_or_default();
    let server = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (mut client, mut draw) = (cluster.client(3), Draw(5));
            while !is_over.load(Ordering::Relaxed) {
                let _ = step(&mut client, &mut draw);
                written.fetch_add(1, Ordering::Relaxed);
            }
        });
        let more = |count: u64| {
            let most = written.load(Ordering::Relaxed) + count;
            until("there are writes", || written.load(Ordering::Relaxed) >= most);
        };
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            more(300);
            let server = Redis::start_program(program, free_ports(1), &replica)?;
            let mut theirs = client_of(server.1);
            let is_up = |client: &mut redis::Connection| {
                as_text(&run(client, &[b"INFO", b"replication"])).contains("master_link_status:up")
            };
            until("it follows", || is_up(&mut theirs));
            more(1000);
            run(&mut theirs, &[b"CLIENT", b"KILL", b"TYPE", b"master"]);
            more(1000);
            until("it goes on", || log_text().contains("Successful partial resynchronization"));
            until("it follows again", || is_up(&mut theirs));
            more(500);
            Some(server)
        }));
        is_over.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        outcome.unwrap_or_else(|panic| panic!("{panic:?}: {}", log_text()))
    });
    let Some(server) = server else { return };
    let (mut ours, mut theirs) = (cluster.client(1), client_of(server.1));
    run(&mut ours, &[b"SET", b"last", b"v"]);
    // Keys with a deadline that is close must have expired.
    std::thread::sleep(Duration::from_millis(600));
    until("it has the last one", || as_text(&run(&mut theirs, &[b"GET", b"last"])) == "\"v\"");
    let keys = keys_of(&mut ours);
    assert!(keys.len() > 100);
    until("it has as many keys", || keys_of(&mut theirs) == keys);
    compare(&mut ours, &mut theirs, &keys);
    assert!(!log_text().contains("CRITICAL"), "{}", log_text());
}

#[test]
fn redis_follows_a_cluster() {
    follows("redis-server", "prefix= changes_bytes=64mb");
}

#[test]
fn valkey_follows_a_cluster_with_shards() {
    // Not every Debian has a package of it, so it is never required.
    match std::process::Command::new("valkey-server").arg("--version").output() {
        Ok(_) => follows("valkey-server", "prefix= changes_bytes=64mb shards=3"),
        Err(_) => println!("skipped: valkey-server is not installed"),
    }
}

#[test]
fn a_replica_follows_all_keyspaces_that_keep_changes_each_into_its_database() {
    let keyspaces =
        ["prefix= ", "prefix=s: shards=2 ", "prefix=@1 "].map(|it| format!("{it}changes_bytes=16mb"));
    let [default, prefixed, database] = &keyspaces;
    let cluster = Cluster::start(1, &[default, prefixed, database, "prefix=quiet:"]);
    let mut ours = cluster.client(1);
    let set = |client: &mut redis::Connection, database: u8, key: &str| {
        assert_eq!(ask(client, &format!("SELECT {database}")), "OK");
        assert_eq!(ask(client, &format!("SET {key} {database}-{key}")), "OK");
    };
    for (database, key) in [(0, "a"), (0, "s:a"), (0, "s:b"), (0, "quiet:a"), (1, "a")] {
        set(&mut ours, database, key);
    }
    let folder = tempfile::tempdir().unwrap();
    let (log, port) = (folder.path().join("log"), cluster.client_port(1).to_string());
    let log_text = || std::fs::read_to_string(&log).unwrap_or_default();
    let options =
        ["--save", "", "--dir", folder.path().to_str().unwrap(), "--logfile", log.to_str().unwrap()];
    let options = [&options[..], &["--replicaof", "127.0.0.1", &port]].concat();
    let Some(server) = Redis::start_program("redis-server", free_ports(1), &options) else { return };
    let mut theirs = client_of(server.1);
    let mut has = |database: u8, key: &str, value: &str| {
        until(&format!("database {database} has {key}"), || {
            run(&mut theirs, &[b"SELECT", database.to_string().as_bytes()]);
            as_text(&run(&mut theirs, &[b"GET", key.as_bytes()])) == value
        });
    };
    for (database, key) in [(0, "a"), (0, "s:a"), (0, "s:b"), (1, "a")] {
        has(database, key, &format!("\"{database}-{key}\""));
    }
    for (database, key) in [(1, "b"), (0, "b"), (1, "c"), (0, "s:c"), (0, "quiet:b"), (1, "last")] {
        set(&mut ours, database, key);
    }
    for (database, key) in [(1, "last"), (1, "b"), (0, "b"), (1, "c"), (0, "s:c")] {
        has(database, key, &format!("\"{database}-{key}\""));
    }
    has(0, "quiet:a", "nil");
    has(0, "quiet:b", "nil");

    // It continues after a lost connection, in the database that the next change is in.
    let mut other = client_of(server.1);
    run(&mut other, &[b"CLIENT", b"KILL", b"TYPE", b"master"]);
    set(&mut ours, 0, "s:d");
    set(&mut ours, 1, "d");
    has(0, "s:d", "\"0-s:d\"");
    has(1, "d", "\"1-d\"");
    assert!(log_text().contains("Successful partial resynchronization"), "{}", log_text());

    // Another database is copied.
    assert_eq!(ask(&mut ours, "KEYSPACE CREATE @2 changes_bytes=16mb"), "OK");
    until("there is database 2", || ask(&mut ours, "SELECT 2") == "OK");
    set(&mut ours, 2, "a");
    has(2, "a", "\"2-a\"");
}

#[test]
fn a_replica_gets_an_error_for_keyspaces_that_cannot_be_followed() {
    let cluster = Cluster::start(1, &[]);
    let mut client = cluster.client(1);
    assert_eq!(ask(&mut client, "REPLCONF listening-port 7777"), "OK");
    assert!(ask(&mut client, "SYNC").contains("changes_bytes"));
    assert!(ask(&mut client, "REPLCONF rdb-filter-only functions").contains("FUNCTION DUMP"));
    assert_eq!(ask(&mut client, "REPLCONF capa eof capa psync2"), "OK");
    assert!(ask(&mut client, "PSYNC ? -1").contains("changes_bytes"));
    let mut operator = cluster.client(1);
    assert_eq!(ask(&mut operator, "KEYSPACE CREATE large: storage=disk changes_bytes=1048576"), "OK");
    assert!(ask(&mut client, "PSYNC ? -1").contains("keyspace 'large:' has values on the disk"));
    assert_eq!(ask(&mut operator, "KEYSPACE SET large: changes_bytes=0"), "OK");
    assert!(ask(&mut client, "PSYNC ? -1").contains("changes_bytes"), "that keyspace is left out");
}
