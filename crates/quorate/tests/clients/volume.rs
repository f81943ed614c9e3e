//! Large amounts: deep pipelines, large and binary values, many keys in one command; and keys that expire.

use std::sync::atomic::{AtomicBool, Ordering};

use redis::{Commands, Connection, cmd, pipe};

use crate::support::{Cluster, ask, until};

#[test]
fn pipelines_of_ten_thousand_are_answered_in_order() {
    let cluster = Cluster::start(3, &[]);
    for (node, mut connection) in [(1, cluster.client(1)), (2, cluster.client3(2))] {
        let mut pipeline = pipe();
        for number in 0..5_000 {
            pipeline.set(format!("{node}:{number}"), number).ignore();
            pipeline.get(format!("{node}:{number}"));
        }
        let values: Vec<u32> = pipeline.query(&mut connection).unwrap();
        assert!(values.iter().copied().eq(0..5_000), "node {node}");
    }
    assert_eq!(ask(&mut cluster.client(3), "DBSIZE"), "10000");
}

#[test]
fn keys_and_values_may_be_any_bytes_up_to_the_limits() {
    let cluster = Cluster::start(3, &["prefix= reads=any"]);
    let all_bytes: Vec<u8> = (0..=255).collect();
    let large: Vec<u8> = (0..1_000_000u32).map(|number| (number * 7 + number / 256) as u8).collect();
    let long_key = vec![b'\n'; 64 * 1024];
    for node in 1..=3 {
        let mut connection = cluster.client(node);
        for (key, value) in [
            (&all_bytes, &all_bytes),
            (&vec![0], &vec![]),
            (&vec![], &vec![b'\r', b'\n']),
            (&long_key, &large),
        ] {
            connection.set::<_, _, ()>(key, value).unwrap();
            let read: Vec<u8> = connection.get(key).unwrap();
            assert!(read == *value, "a key of {} bytes at node {node}", key.len());
        }
    }
    cluster.wait_until_equal();
    for node in 1..=3 {
        let read: Vec<u8> = cluster.client3(node).get(&long_key).unwrap();
        assert!(read == large, "node {node} has the large value");
    }
}

#[test]
fn the_longest_value_is_stored_while_others_are_served() {
    let spaces = ["prefix= replication=consensus", "prefix=lf: replication=leader-follower acks=majority"];
    let cluster = Cluster::start(3, &spaces);
    let large: Vec<u8> = (0..64 << 20).map(|number: u32| (number * 7 + number / 256) as u8).collect();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let end = End(&is_done);
        let others = scope.spawn(|| {
            let mut connection = cluster.client(3);
            let mut served = 0;
            while !is_done.load(Ordering::Relaxed) {
                served += u32::from(connection.set::<_, _, ()>("small", served).is_ok());
            }
            served
        });
        for (node, key) in [(2, "k"), (1, "lf:k")] {
            let mut connection = cluster.client(node);
            patiently(|| connection.set::<_, _, ()>(key, &large));
            assert_eq!(patiently(|| connection.strlen::<_, usize>(key)), large.len());
            let too_long = patiently(|| match connection.append::<_, _, usize>(key, "x") {
                Err(error) if error.code() == Some("ERR") => Ok(true),
                result => result.map(|_| false),
            });
            assert!(too_long, "{key}");
        }
        drop(end);
        let served = others.join().unwrap();
        assert!(served > 10, "{served} small writes beside them");
    });
    for (node, key) in [(1, "k"), (3, "lf:k")] {
        let mut connection = cluster.client(node);
        let read: Vec<u8> = patiently(|| connection.get(key));
        assert!(read == large, "{key} through node {node}");
    }
}

/// When dropped, even by a panic, makes other threads end.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Errors that a request may get while its group has no leader, or another one.
const RETRIED: [&str; 4] = ["CLUSTERDOWN", "NOREPLICAS", "TRYAGAIN", "UNKNOWN"];

/// Repeats a request while the leader changes, as it may on a busy machine. The request must be idempotent.
fn patiently<T>(mut ask: impl FnMut() -> redis::RedisResult<T>) -> T {
    let mut result = None;
    until("it is answered", || match ask() {
        Ok(answer) => {
            result = Some(answer);
            true
        }
        Err(error) if error.code().is_some_and(|code| RETRIED.contains(&code)) => false,
        Err(error) => panic!("{error}"),
    });
    result.unwrap()
}

#[test]
fn the_longest_value_is_read_through_every_node_while_others_are_served() {
    let cluster = Cluster::start(3, &["prefix= replication=consensus"]);
    let large: Vec<u8> = (0..64 << 20).map(|number: u32| (number * 7 + number / 256) as u8).collect();
    let mut writer = cluster.client(1);
    patiently(|| writer.set::<_, _, ()>("k", &large));
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let end = End(&is_done);
        let others: Vec<_> = (1..=3)
            .map(|node| {
                let (cluster, is_done) = (&cluster, &is_done);
                scope.spawn(move || {
                    let mut connection = cluster.client(node);
                    let mut served = 0;
                    while !is_done.load(Ordering::Relaxed) {
                        served +=
                            u32::from(connection.set::<_, _, ()>(format!("small:{node}"), served).is_ok());
                    }
                    served
                })
            })
            .collect();
        for node in 1..=3 {
            let mut connection = cluster.client(node);
            let read: Vec<u8> = patiently(|| connection.get("k"));
            assert!(read == large, "through node {node}");
            let mut pipeline = pipe();
            pipeline.getrange("k", 1, -1).ping().mget(&["k", "nothing"]);
            type Told = (Vec<u8>, String, (Vec<u8>, Option<Vec<u8>>));
            let (part, pong, (whole, nothing)): Told = patiently(|| pipeline.query(&mut connection));
            assert!(
                part == large[1..] && pong == "PONG" && whole == large && nothing.is_none(),
                "node {node}"
            );
        }
        drop(end);
        let served: Vec<u32> = others.into_iter().map(|other| other.join().unwrap()).collect();
        assert!(served.iter().all(|served| *served > 10), "{served:?} small writes beside them");
    });
    let sent = |node| {
        let (_, text) = cluster.http(node, "GET /metrics HTTP/1.1", "");
        let text = text.as_str().unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix("quorate_long_replies_total "));
        value.unwrap().parse::<u64>().unwrap()
    };
    // Unless the leader has changed so often that each node has read locally.
    until("long replies go in parts", || {
        for node in 1..=3 {
            let mut connection = cluster.client(node);
            assert!(patiently(|| connection.get::<_, Vec<u8>>("k")) == large, "node {node}");
        }
        (1..=3).map(sent).sum::<u64>() > 0
    });
}

#[test]
fn a_long_value_is_read_over_http_at_every_node() {
    let cluster = Cluster::start(3, &["prefix= replication=consensus"]);
    let large: String = (0..5 << 20).map(|number: u32| char::from(b'a' + (number % 23) as u8)).collect();
    cluster.client(1).set::<_, _, ()>("k", &large).unwrap();
    for node in 1..=3 {
        let (status, answered) = cluster.http(node, "GET /get/k HTTP/1.1", "");
        assert!(status == 200 && answered["value"] == large.as_str(), "node {node}: {status}");
    }
}

#[test]
fn a_thousand_keys_in_one_command() {
    let cluster = Cluster::start(3, &[]);
    for node in [1, 2] {
        let mut connection = cluster.client(node);
        let pairs: Vec<(String, u32)> =
            (0..1000).map(|number| (format!("{node}:{number}"), number)).collect();
        connection.mset::<_, _, ()>(&pairs).unwrap();
        let keys: Vec<&String> = pairs.iter().map(|(key, _)| key).collect();
        let values: Vec<u32> = connection.mget(&keys).unwrap();
        assert!(values.into_iter().eq(0..1000));
        assert_eq!(connection.del::<_, u32>(&keys).unwrap(), 1000);
    }
}

#[test]
fn keys_expire_on_all_nodes_even_if_no_client_reads_them() {
    let cluster = Cluster::start(3, &["prefix= reads=any"]);
    let mut writer = cluster.client(2);
    let mut pipeline = pipe();
    (0..300).for_each(|number| _ = pipeline.pset_ex(format!("k{number}"), "v", 700).ignore());
    pipeline.set("stays", "v").ignore();
    pipeline.query::<()>(&mut writer).unwrap();
    cluster.wait_until_equal();
    let mut connections = [cluster.client(1), cluster.client(2), cluster.client(3)];
    let deadlines = connections.each_mut().map(|connection| ask(connection, "PEXPIRETIME k7"));
    assert_eq!([&deadlines[1], &deadlines[2]], [&deadlines[0], &deadlines[0]]);

    // Once the deadline has passed, no node returns the key, whether it has been removed or not. Nodes use the time
    // on which a majority of their clocks agree, which may be some milliseconds behind this process's clock.
    let deadline: u64 = deadlines[0].parse().unwrap();
    let time_ms = |connection: &mut Connection| {
        let (seconds, microseconds): (u64, u64) = cmd("TIME").query(connection).unwrap();
        seconds * 1000 + microseconds / 1000
    };
    until("the time is over at each node", || {
        connections.iter_mut().all(|connection| time_ms(connection) >= deadline)
    });
    for connection in &mut connections {
        assert_eq!(ask(connection, "GET k7"), "nil");
        assert_eq!(ask(connection, "EXISTS k7"), "0");
        assert_eq!(ask(connection, "TTL k7"), "-2");
    }
    // The leader also removes, for all replicas, keys that no client requests.
    until("all are removed", || connections.iter_mut().all(|connection| ask(connection, "DBSIZE") == "1"));
    assert_eq!(ask(&mut connections[2], "KEYS *"), "[\"stays\"]");
}
