//! A node's contents: every key with its value, version and deadline, read from that node alone.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};

use redis::Connection;

use crate::support::{Cluster, connect};

/// A key's value, version and deadline.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Held {
    value: String,
    version: u64,
    expires_at_ms: Option<u64>,
}

/// Returns every key of the default keyspace as a node holds it. The keyspace must have `reads=any`.
pub(crate) fn contents(cluster: &Cluster, id: u16) -> BTreeMap<String, Held> {
    let mut keys: Vec<String> = scan(&mut cluster.client(id));
    let scanned = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), scanned, "a scan returns every key once");

    let mut stream = connect(cluster.http_port(id));
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut contents = BTreeMap::new();
    // Only HTTP returns versions. Many requests are sent at a time to save round trips.
    for some in keys.chunks(100) {
        let request = |key: &String| format!("GET /get/{key} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        let requests: String = some.iter().map(request).collect();
        stream.write_all(requests.as_bytes()).unwrap();
        for key in some {
            let answer = read_json(&mut reader);
            let held = Held {
                value: answer["value"].as_str().unwrap_or_else(|| panic!("{key}: {answer}")).to_owned(),
                version: answer["version"].as_u64().unwrap(),
                expires_at_ms: answer["expires_at_ms"].as_u64(),
            };
            contents.insert(key.clone(), held);
        }
    }
    contents
}

fn scan(connection: &mut Connection) -> Vec<String> {
    let (mut cursor, mut keys) = (0u64, Vec::new());
    loop {
        let mut command = redis::cmd("SCAN");
        let (next, some): (u64, Vec<String>) =
            command.arg(cursor).arg("COUNT").arg(500).query(connection).unwrap();
        keys.extend(some);
        cursor = next;
        if cursor == 0 {
            return keys;
        }
    }
}

/// Returns the body of a reply on a connection that stays open.
fn read_json(reader: &mut BufReader<std::net::TcpStream>) -> serde_json::Value {
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    serde_json::from_slice(&body).unwrap()
}

/// Asserts that all nodes hold the same, and returns the number of keys.
pub(crate) fn assert_all_equal(cluster: &Cluster, nodes: u16) -> usize {
    cluster.wait_until_equal();
    let leader = contents(cluster, 1);
    for id in 2..=nodes {
        let follower = contents(cluster, id);
        let differs = leader.iter().find(|(key, held)| follower.get(*key) != Some(held));
        assert_eq!(differs.map(|(key, held)| (key, Some(held), follower.get(key))), None, "node {id}");
        assert_eq!(follower.len(), leader.len(), "node {id} holds keys that the leader does not");
    }
    leader.len()
}
