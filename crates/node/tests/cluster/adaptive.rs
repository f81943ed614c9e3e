//! `coding = "adaptive"`: how a value is stored depends on its size, on the links' throughput, and on which nodes are
//! up.

use crate::support::{Client, Cluster, Setup, assert_error, setup};
use std::collections::BTreeMap;

/// Five nodes that choose for values of a thousand bytes and more. Their timeouts are long: only values are measured.
fn five() -> Setup {
    setup(5, &["prefix= replication=consensus coding=adaptive coding_threshold=1000"])
        .with(|configuration| configuration.patience = 5)
}

fn value(length: usize) -> String {
    (0..length).map(|at| char::from(b'a' + (at % 26) as u8)).collect()
}

fn insist(cluster: &mut Cluster, client: Client, request: &str) {
    cluster.until("it is done", |cluster| cluster.ask(client, request) == "OK");
}

/// Returns how many values a node has stored in each way, from `INFO`.
fn chosen(cluster: &mut Cluster, node: u16) -> BTreeMap<String, u64> {
    let client = cluster.client(node);
    let info = cluster.ask(client, "INFO coding");
    cluster.close(client);
    let lines = info.lines().flat_map(|line| line.split("\\r\\n"));
    let fields = lines.filter_map(|line| line.strip_prefix("coded_chosen_")?.split_once(':'));
    fields.filter_map(|(way, count)| Some((way.to_owned(), count.trim().parse().ok()?))).collect()
}

/// Stores values of this length, one after the other, and returns how many were stored in each way.
fn ways_of(cluster: &mut Cluster, client: Client, length: usize, count: usize) -> BTreeMap<String, u64> {
    let before = chosen(cluster, client.node);
    let large = value(length);
    (0..count).for_each(|number| insist(cluster, client, &format!("SET k{number} {large}")));
    let mut ways = chosen(cluster, client.node);
    ways.iter_mut().for_each(|(way, count)| *count -= before.get(way).copied().unwrap_or(0));
    ways.retain(|_, count| *count > 0);
    ways
}

fn only(way: &str, count: u64) -> BTreeMap<String, u64> {
    [(way.to_owned(), count)].into()
}

#[test]
fn values_below_the_threshold_are_not_measured() {
    let mut cluster = five().start();
    let client = cluster.client(2);
    assert_eq!(ways_of(&mut cluster, client, 999, 5), BTreeMap::new());
    let fragments = cluster.ask(client, "INFO coding");
    assert!(fragments.contains("coded_fragments:0"), "{fragments}");
}

#[test]
fn values_are_coded_on_slow_links_and_not_on_fast_ones() {
    let mut cluster = five().start();
    let client = cluster.client(1);
    let first = ways_of(&mut cluster, client, 2000, 6);
    assert_eq!(first.get("log"), Some(&5), "after one that shows how fast links are: {first:?}");
    for node in 2..=5 {
        cluster.set_bandwidth(1, node, Some(100));
    }
    // The first value takes much longer than it should, and the second one shows why.
    let after = ways_of(&mut cluster, client, 2000, 8);
    assert!(after.get("log").is_some_and(|count| *count <= 2), "{after:?}");
    assert!(after.get("k3").is_some_and(|count| *count >= 4), "{after:?}");
}

#[test]
fn a_slow_link_is_avoided_until_it_recovers() {
    let mut cluster = five().start();
    let client = cluster.client(1);
    let large = 600_000;
    ways_of(&mut cluster, client, large, 3);
    assert_eq!(ways_of(&mut cluster, client, large, 5), only("k3", 5), "all links are fast");
    cluster.set_bandwidth(1, 5, Some(200));
    // Two values are enough to notice the slow link; with three parts, each of them takes a second.
    ways_of(&mut cluster, client, large, 2);
    assert_eq!(ways_of(&mut cluster, client, large, 5), only("k2", 5), "node 5 is not waited for");
    let took_ms = cluster.time(|cluster| insist(cluster, client, &format!("SET k {}", value(large))));
    assert!(took_ms < 100, "{took_ms} ms");
    cluster.set_bandwidth(1, 4, Some(200));
    ways_of(&mut cluster, client, large, 2);
    assert_eq!(ways_of(&mut cluster, client, large, 5), only("log", 5), "a majority is fast");
    [4, 5].into_iter().for_each(|node| cluster.set_bandwidth(1, node, None));
    // Trials show this in the end.
    cluster.until("links are known to be fast", |cluster| {
        cluster.turns(500);
        ways_of(cluster, client, large, 1) == only("k3", 1)
    });
}

#[test]
fn dead_nodes_are_not_counted_on() {
    let mut cluster = five().start();
    let client = cluster.client(1);
    cluster.kill(5);
    assert_eq!(ways_of(&mut cluster, client, 200_000, 3), only("k2", 3));
    let info = cluster.ask(client, "INFO coding");
    assert!(info.contains("coded_fallbacks:0"), "{info}");
}

#[test]
fn a_running_keyspace_can_become_adaptive_and_be_changed_back() {
    let mut cluster = setup(3, &["prefix= replication=consensus"]).start();
    let client = cluster.client(2);
    let large = value(100_000);
    for (coding, key) in [("adaptive", "a"), ("2", "b"), ("adaptive", "c"), ("none", "d")] {
        cluster.send_words(client, &[b"KEYSPACE", b"SET", b"", format!("coding={coding}").as_bytes()]);
        assert_eq!(cluster.reply(client), "OK");
        insist(&mut cluster, client, &format!("SET {key} {large}"));
    }
    let ways = chosen(&mut cluster, 2);
    assert_eq!(ways.values().sum::<u64>(), 2, "only where the keyspace was adaptive: {ways:?}");
    cluster.kill(1);
    for key in ["a", "b", "c", "d"] {
        cluster.until("another one leads", |cluster| {
            cluster.ask(client, &format!("GET {key}")) == format!("\"{large}\"")
        });
    }
}

#[test]
fn nodes_cannot_leave_if_values_may_have_too_many_parts_for_the_others() {
    let mut cluster = five().start();
    let client = cluster.client(1);
    cluster
        .until("four nodes can hold three parts", |cluster| cluster.ask(client, "CLUSTER REMOVE 5") == "OK");
    cluster.until("they have settled", |cluster| !cluster.node(1).cluster_map().nodes.contains_key(&5));
    let refused = cluster.ask(client, "CLUSTER REMOVE 4");
    assert_error(&refused, "ERR");
    assert!(refused.contains("set its coding to 2 or less"), "{refused}");
}
