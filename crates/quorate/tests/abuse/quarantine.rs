//! Records that crash every process that executes them: the group stops, everything else is served, and an operator
//! resumes the group by command. The planted crash works only in programs that are built with debug assertions.

#![cfg(debug_assertions)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::bounded::Cluster;
use crate::support::{Client, http, request, try_http, until};

const NODES: u16 = 3;

/// How long nodes are restarted until all of them have stopped before the record.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the record's keyspace, with two others that must not be affected.
fn keyspaces(of_the_record: &str) -> String {
    format!(
        "[[keyspace]]\nprefix = \"\"\nreads = \"any\"\n\n[[keyspace]]\nprefix = \"other:\"\nreplication = \"leader-follower\"\ndurability = \"fsync\"\n\n\
         [[keyspace]]\nprefix = \"bad:\"\nreads = \"any\"\n{of_the_record}\n"
    )
}

/// Sends the command that crashes nodes.
fn send(cluster: &Cluster, words: &[&[u8]]) {
    let mut stream = TcpStream::connect(("127.0.0.1", cluster.client_port(1))).unwrap();
    stream.write_all(&request(words)).unwrap();
    std::thread::sleep(Duration::from_millis(200));
}

/// Returns a reply's first line, and the text that follows if it is a bulk string.
fn ask(client: &mut Client, command: &str) -> String {
    let first = client.ask(command);
    match first.strip_prefix('$') {
        Some("-1") => first,
        Some(length) => {
            let bytes = client.bytes(length.parse::<usize>().unwrap() + 2);
            String::from_utf8(bytes).unwrap().trim_end().to_owned()
        }
        None => first,
    }
}

/// Returns the answer of a node, if it runs. It may crash at any moment.
fn list(cluster: &Cluster, id: u16) -> Option<String> {
    try_http(cluster.http_port(id), "GET /health HTTP/1.1", "")?;
    let mut stream = TcpStream::connect(("127.0.0.1", cluster.client_port(id))).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.write_all(b"CLUSTER QUARANTINE LIST\r\n").ok()?;
    let (mut reader, mut first) = (BufReader::new(stream), String::new());
    reader.read_line(&mut first).ok()?;
    let Some(length) = first.trim_end().strip_prefix('$') else { return Some(first) };
    let mut text = vec![0; length.parse().ok()?];
    reader.read_exact(&mut text).ok()?;
    String::from_utf8(text).ok()
}

/// Acts as a process supervisor: restarts each node that has ended, until all have stopped at one record. Returns the
/// group, the record, and the number of restarts.
fn supervise(cluster: &mut Cluster) -> (String, String, u32) {
    let (by, mut starts) = (Instant::now() + PATIENCE, 0);
    loop {
        for id in 1..=NODES {
            if !cluster.runs(id) {
                cluster.restart(id);
                starts += 1;
            }
        }
        std::thread::sleep(Duration::from_millis(50));
        let lists: Vec<Option<String>> =
            (1..=NODES).map(|id| if cluster.runs(id) { list(cluster, id) } else { None }).collect();
        let stand = |list: &Option<String>| {
            list.as_ref().is_some_and(|it| it.contains("state=standing nodes=1,2,3 "))
        };
        if lists.iter().all(stand) {
            let list = lists[0].clone().unwrap();
            let word = |name: &str| {
                let found = list.split_whitespace().find_map(|word| word.strip_prefix(name));
                found.unwrap_or_else(|| panic!("no {name} in {list}")).to_owned()
            };
            return (word("group="), word("offset="), starts);
        }
        assert!(Instant::now() < by, "they do not stand still: {lists:?}");
    }
}

/// Waits until every node gives the expected answer.
#[track_caller]
fn all_answer(cluster: &Cluster, command: &str, expected: &str) {
    for id in 1..=NODES {
        let mut last = String::new();
        let mut is_so = || {
            last = ask(&mut cluster.client(id), command);
            last == expected
        };
        let by = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < by, "{command} on node {id}: {last}, not {expected}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Goes through all stages of a record that crashes all nodes. `words` are its command.
fn goes_through(of_the_record: &str, words: &[&[u8]], retries: bool) {
    let mut cluster = Cluster::start(NODES, &keyspaces(of_the_record));
    let mut client = cluster.client(1);
    for number in 0..20 {
        for prefix in ["", "other:", "bad:"] {
            assert_eq!(client.ask(&format!("SET {prefix}k{number} v{number}")), "+OK");
        }
    }
    send(&cluster, words);
    let (group, offset, starts) = supervise(&mut cluster);
    // Each node crashes twice at most, and there are a few restarts between which nothing was decided.
    assert!(starts <= 12, "{starts} starts");

    for id in 1..=NODES {
        let mut client = cluster.client(id);
        until("the other keyspaces are served", || {
            client.ask("SET during x") == "+OK" && client.ask("SET other:during x") == "+OK"
        });
        for command in ["GET bad:k1", "SET bad:k1 x", "DEL bad:k2"] {
            let begun = Instant::now();
            let answer = client.ask(command);
            let expected =
                format!("-QUARANTINED keyspace 'bad:' stands still before record {offset} of group {group}");
            assert!(answer.starts_with(&expected), "{answer}");
            assert!(begun.elapsed() < Duration::from_secs(1), "{command} took {:?}", begun.elapsed());
        }
        let (status, health) = http(cluster.http_port(id), "GET /health?keyspace=bad: HTTP/1.1", "");
        assert!(
            status == 503 && health.contains("QUARANTINED") && health.contains("\"quarantined\""),
            "{health}"
        );
        assert_eq!(http(cluster.http_port(id), "GET /get/bad:k1 HTTP/1.1", "").0, 503);
        assert_eq!(cluster.metric(id, "quorate_quarantined_groups"), 1);
        let info = ask(&mut client, "CLUSTER INFO");
        assert!(info.contains("cluster_quarantined_groups:1"), "{info}");
        let info = ask(&mut client, "INFO quorate");
        assert!(info.contains("prefix=bad:") && info.contains("role=quarantined"), "{info}");
    }
    let skip = format!("CLUSTER QUARANTINE SKIP {group} {offset}");
    until("a log says what to type", || (1..=NODES).any(|id| cluster.log(id).contains(&skip)));

    let mut client = cluster.client(2);
    let wrong = client.ask(&format!("CLUSTER QUARANTINE SKIP {group} 1"));
    assert!(wrong.contains(&format!("it stands before record {offset}, not before 1")), "{wrong}");
    if retries {
        assert_eq!(client.ask(&format!("CLUSTER QUARANTINE RETRY {group}")), "+OK");
        until("a node dies of it again", || (1..=NODES).any(|id| !cluster.runs(id)));
        assert_eq!(supervise(&mut cluster).1, offset);
        client = cluster.client(2);
    }
    assert_eq!(client.ask(&skip), "+OK");
    let check = |cluster: &Cluster| {
        for number in 0..20 {
            all_answer(cluster, &format!("GET bad:k{number}"), &format!("v{number}"));
            all_answer(cluster, &format!("GET other:k{number}"), &format!("v{number}"));
        }
        all_answer(cluster, "EXISTS bad:planted:panic bad:scripted", ":0");
        all_answer(cluster, "GET bad:after", "y");
    };
    until("it takes writes again", || client.ask("SET bad:after y") == "+OK");
    check(&cluster);
    cluster.assert_serves();
    let listed = ask(&mut client, "CLUSTER QUARANTINE LIST");
    assert!(listed.contains("state=skipped") && !listed.contains("state=standing"), "{listed}");

    // It stays skipped, however the nodes end.
    (1..=NODES).for_each(|id| cluster.kill(id));
    (1..=NODES).for_each(|id| cluster.restart(id));
    cluster.assert_serves();
    check(&cluster);
    assert_eq!(cluster.metric(1, "quorate_quarantined_groups"), 0);
}

#[test]
fn a_record_that_panics_on_every_node_is_skipped_by_consensus() {
    goes_through("", &[b"SET", b"bad:planted:panic", b"x"], false);
}

#[test]
fn a_script_that_crashes_every_node_is_skipped_by_leader_and_followers() {
    let script = b"--planted:abort\nreturn redis.call('SET', KEYS[1], 'x')";
    let keyspace = "replication = \"leader-follower\"\nacks = \"majority\"\ndurability = \"fsync\"";
    goes_through(keyspace, &[b"EVAL", script, b"1", b"bad:scripted"], true);
}

#[test]
fn killing_processes_from_outside_puts_nothing_in_quarantine() {
    let mut cluster = Cluster::start(NODES, &keyspaces(""));
    let port = cluster.client_port(1);
    let working = std::thread::spawn(move || {
        let mut client = Client::connect(port);
        for number in 0..400 {
            let key = format!("bad:k{number}");
            client.send(request(&[
                b"EVAL",
                b"for i = 1, 2000 do redis.call('SET', KEYS[1], i) end",
                b"1",
                key.as_bytes(),
            ]));
            client.line();
        }
    });
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(300));
        cluster.kill(2);
        cluster.restart(2);
        until("it listens", || TcpStream::connect(("127.0.0.1", cluster.client_port(2))).is_ok());
    }
    working.join().unwrap();
    cluster.assert_serves();
    for id in 1..=NODES {
        assert_eq!(ask(&mut cluster.client(id), "CLUSTER QUARANTINE LIST"), "");
        assert_eq!(cluster.metric(id, "quorate_quarantined_groups"), 0);
    }
}
