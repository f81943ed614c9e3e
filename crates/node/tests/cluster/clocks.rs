//! Wall clocks that are set wrong.

use crate::support::{Cluster, setup};
use protocol::CLOCK_BOUND_MS;

const DAY_MS: i64 = 86_400_000;

const PROTOCOLS: [&str; 4] = ["consensus", "leader-follower", "abd", "blocking"];

fn cluster(protocol: &str) -> Cluster {
    setup(3, &[&format!("prefix= replication={protocol}")]).start()
}

/// Asserts that a key with a second to live exists until then, and no longer afterwards, at every node.
fn expires_in_time(cluster: &mut Cluster, what: &str) {
    for node in 1..=3 {
        let client = cluster.client(node);
        assert_eq!(cluster.ask(client, "SET short v PX 1500"), "OK", "{what}");
        assert_eq!(cluster.ask(client, "GET short"), "\"v\"", "{what}, node {node}: too early");
        cluster.turns(1500 + CLOCK_BOUND_MS);
        assert_eq!(cluster.ask(client, "GET short"), "nil", "{what}, node {node}: never");
    }
}

fn info(cluster: &mut Cluster, node: u16, field: &str) -> String {
    let client = cluster.client(node);
    let info = cluster.ask(client, "INFO server");
    let start = info.find(&format!("{field}:")).expect("the field") + field.len() + 1;
    info[start..].chars().take_while(|it| it.is_ascii_alphanumeric() || *it == '-').collect()
}

#[test]
fn one_wrong_clock_ends_no_key_early_and_keeps_none() {
    for protocol in PROTOCOLS {
        let mut cluster = cluster(protocol);
        let client = cluster.client(1);
        assert_eq!(cluster.ask(client, "SET hour v EX 3600"), "OK");
        for node in 1..=3 {
            for ahead_ms in [DAY_MS, -DAY_MS] {
                cluster.set_clock(node, ahead_ms);
                expires_in_time(&mut cluster, protocol);
                assert_eq!(cluster.ask(client, "GET hour"), "\"v\"", "{protocol}: node {node} was set");
                assert_eq!(info(&mut cluster, node, "clock_status"), "off", "{protocol}");
                assert_eq!(info(&mut cluster, node % 3 + 1, "clock_status"), "ok", "{protocol}");
                let answer: i64 = info(&mut cluster, node, "clock_ahead_ms").parse().unwrap();
                assert!(answer.abs_diff(ahead_ms) < 10, "{answer}");
                cluster.set_clock(node, 0);
                cluster.turns(200);
                assert_eq!(info(&mut cluster, node, "clock_status"), "ok", "{protocol}");
            }
        }
        expires_in_time(&mut cluster, protocol);
        assert_eq!(cluster.ask(client, "GET hour"), "\"v\"", "{protocol}");
    }
}

#[test]
fn a_node_that_starts_with_a_wrong_clock_adopts_the_others_time() {
    for protocol in PROTOCOLS {
        let mut cluster = cluster(protocol);
        let client = cluster.client(2);
        assert_eq!(cluster.ask(client, "SET hour v EX 3600"), "OK");
        cluster.kill(1);
        cluster.set_clock(1, DAY_MS);
        cluster.restart(1);
        cluster.settle();
        expires_in_time(&mut cluster, protocol);
        assert_eq!(cluster.ask(client, "GET hour"), "\"v\"", "{protocol}");
    }
}

#[test]
fn keys_set_while_all_clocks_were_wrong_expire() {
    for protocol in PROTOCOLS {
        let mut cluster = cluster(protocol);
        (1..=3).for_each(|node| cluster.set_clock(node, DAY_MS));
        cluster.turns(1500);
        let client = cluster.client(1);
        assert_eq!(cluster.ask(client, "SET k v"), "OK");
        let seconds = |cluster: &mut Cluster| -> u64 {
            let answer = cluster.ask(client, "TIME");
            answer.chars().filter(char::is_ascii_digit).take(10).collect::<String>().parse().unwrap()
        };
        let right = cluster.now.unix_ms / 1000;
        assert!(seconds(&mut cluster).abs_diff(right + DAY_MS as u64 / 1000) < 2, "{protocol}");
        (1..=3).for_each(|node| cluster.set_clock(node, 0));
        cluster.turns(1500);
        let right = cluster.now.unix_ms / 1000;
        assert!(seconds(&mut cluster).abs_diff(right) < 2, "{protocol}: time goes on from where it was");
        expires_in_time(&mut cluster, protocol);
    }
}

#[test]
fn scripts_see_the_agreed_time() {
    for protocol in ["consensus", "leader-follower"] {
        let mut cluster = cluster(protocol);
        (1..=3).for_each(|node| {
            cluster.set_clock(node, DAY_MS);
            let client = cluster.client(2);
            let script = b"redis.call('set', KEYS[1], 'y') return redis.call('time')[1]";
            cluster.send_words(client, &[b"EVAL", script, b"1", b"x"]);
            let answer = cluster.reply(client);
            let answer: u64 = answer.trim_matches('"').parse().unwrap_or_else(|_| panic!("{answer}"));
            assert!(answer.abs_diff(cluster.now.unix_ms / 1000) < 2, "{protocol}: {answer}");
            cluster.set_clock(node, 0);
            cluster.turns(1500);
        });
    }
}
