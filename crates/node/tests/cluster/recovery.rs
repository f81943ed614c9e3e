//! Nodes die and restart without their memory: nothing that was acknowledged under `majority` or `all` is lost.

use crate::support::{Client, Cluster, assert_error, setup};
use std::collections::BTreeMap;

fn cluster_with(keyspace: &str) -> Cluster {
    setup(3, &[keyspace]).start()
}

#[test]
fn a_leader_without_memory_answers_nothing_until_it_has_recovered() {
    let mut cluster = cluster_with("prefix= acks=majority");
    let writer = cluster.client(1);
    for number in 0..50 {
        assert_eq!(cluster.ask(writer, &format!("SET k{number} v{number}")), "OK");
    }
    cluster.kill(1);
    cluster.restart(1);
    assert!(!cluster.health(1).ready);
    for node in 1..=3 {
        let client = cluster.client(node);
        for request in ["GET k7", "SET k7 x", "DBSIZE", "WAIT 1 0"] {
            cluster.send(client, request);
        }
        if node == 1 {
            assert_eq!(cluster.arrived(client), None, "it waits");
        }
        let replies: Vec<String> = (0..4).map(|_| cluster.reply(client)).collect();
        assert_eq!(replies[..3], ["\"v7\"", "OK", "50"], "at node {node}");
        assert!(["1", "2"].contains(&replies[3].as_str()), "{replies:?}");
        assert_eq!(cluster.ask(client, "SET k7 v7"), "OK");
    }
    cluster.settle();
    for node in 1..=3 {
        let client = cluster.client(node);
        assert_eq!(cluster.ask(client, "DBSIZE"), "50");
        assert_eq!(cluster.ask(client, "GET k7"), "\"v7\"");
    }
}

#[test]
fn a_client_of_a_follower_gets_the_error_that_the_leader_is_loading() {
    let mut cluster = cluster_with("prefix= acks=majority");
    let writer = cluster.client(1);
    cluster.ask(writer, "SET k v");
    // With one follower paused, the leader does not get the acknowledgements that it needs.
    cluster.pause(3);
    cluster.kill(1);
    cluster.restart(1);
    let client = cluster.client(2);
    assert_error(&cluster.ask(client, "GET k"), "LOADING");
    assert!(!cluster.health(1).ready);
    cluster.go_on(3);
    cluster.settle();
    assert_eq!(cluster.ask(client, "GET k"), "\"v\"");
}

#[test]
fn a_recovering_leader_continues_from_the_most_advanced_follower() {
    let mut cluster = cluster_with("prefix= acks=majority");
    let writer = cluster.client(1);
    cluster.ask(writer, "SET early v");
    cluster.settle();
    cluster.cut_off(2);
    cluster.ask(writer, "SET late v");
    cluster.kill(1);
    cluster.mend_link(2, 3);
    cluster.restart(1);
    cluster.settle();
    let client = cluster.client(2);
    assert_eq!(cluster.ask(client, "MGET early late"), r#"["v", "v"]"#);
}

#[test]
fn with_too_few_answers_a_recovering_leader_does_not_serve() {
    let mut cluster = cluster_with("prefix= acks=majority");
    let writer = cluster.client(1);
    cluster.cut_off(2);
    cluster.ask(writer, "SET k v"); // Held by nodes 1 and 3.
    cluster.kill(1);
    cluster.kill(3);
    cluster.restart(1);
    let client = cluster.client(1);
    cluster.turns(10_000);
    // Node 2 never received the write, so its answer alone is not enough to continue from.
    assert_error(&cluster.ask(client, "GET k"), "LOADING");
    assert!(!cluster.keyspace(1, "default").explanation.is_empty());
}

#[test]
fn with_acks_all_one_surviving_follower_is_enough() {
    let mut cluster = cluster_with("prefix= acks=all");
    let writer = cluster.client(1);
    cluster.ask(writer, "SET k v");
    cluster.settle();
    cluster.kill(1);
    cluster.kill(2);
    cluster.restart(1);
    let client = cluster.client(1);
    cluster.until("it serves", |cluster| cluster.ask(client, "GET k") == "\"v\"");
}

#[test]
fn the_last_member_of_the_in_sync_set_leads() {
    let mut cluster = cluster_with("prefix= acks=all");
    let writer = cluster.client(1);
    cluster.ask(writer, "SET k v");
    // Node 3 holds the write, and the others die before it learns that node 2 held it, too.
    cluster.kill(1);
    cluster.kill(2);
    let client = cluster.client(3);
    cluster.turns(2000);
    assert_error(&cluster.ask(client, "GET k"), "NOLEADER"); // One node alone cannot appoint a leader.
    cluster.restart(1);
    cluster.until("node 3 leads", |cluster| cluster.keyspace(3, "default").role == "leader");
    cluster.until("it serves", |cluster| cluster.ask(client, "GET k") == "\"v\"");
}

#[test]
fn a_new_cluster_serves_soon_after_its_nodes_see_each_other() {
    let mut cluster = setup(3, &["prefix= acks=majority"]).start_cold();
    let took_ms = cluster.time(Cluster::settle);
    assert!(took_ms < 1000, "{took_ms}");
}

#[test]
fn a_restarted_follower_catches_up_and_becomes_equal() {
    let mut cluster = cluster_with("prefix= acks=majority reads=any");
    let writer = cluster.client(1);
    for number in 0..200 {
        cluster.ask(writer, &format!("SET k{number} v{number} PX {}", 1_000_000 + number));
    }
    cluster.kill(3);
    cluster.ask(writer, "DEL k5");
    cluster.restart(3);
    // Writes continue while the follower catches up.
    for number in 200..260 {
        assert_eq!(cluster.ask(writer, &format!("SET k{number} v{number}")), "OK");
    }
    cluster.settle();
    let leader = cluster.contents(1);
    assert_eq!(leader.len(), 259);
    assert_eq!(cluster.contents(2), leader);
    assert_eq!(cluster.contents(3), leader);
}

#[test]
fn acks_all_waits_for_a_dead_follower_until_it_is_no_longer_in_sync() {
    let mut cluster = cluster_with("prefix= acks=all");
    let client = cluster.client(2);
    cluster.ask(client, "SET k before");
    cluster.kill(3);
    let took_ms = cluster.time(|cluster| assert_eq!(cluster.ask(client, "SET k meanwhile"), "OK"));
    assert!((100..1000).contains(&took_ms), "{took_ms}");
    assert_eq!(cluster.ask(client, "GET k"), "\"meanwhile\"");
    cluster.restart(3);
    cluster.settle();
    assert_eq!(cluster.ask(client, "SET k after"), "OK");
}

#[test]
fn an_unacknowledged_write_is_unknown_and_ends_up_on_all_replicas_or_none() {
    let mut cluster = cluster_with("prefix= acks=2 reads=any");
    let client = cluster.client(1);
    cluster.ask(client, "SET k before");
    cluster.settle();
    cluster.pause(3);
    let took_ms = cluster.time(|cluster| assert_error(&cluster.ask(client, "SET k after"), "UNKNOWN"));
    assert!((5000..5200).contains(&took_ms), "it has as long as a command may take: {took_ms}");
    cluster.go_on(3);
    cluster.settle();
    let leader = cluster.contents(1);
    assert_eq!(leader["k"].0, "\"after\"", "it was sent, and the follower has it now");
    assert_eq!(cluster.contents(2), leader);
    assert_eq!(cluster.contents(3), leader);
}

/// What clients know about keys whose values only grow: the last number acknowledged and the last one sent.
#[derive(Default)]
struct Knowledge {
    acknowledged: BTreeMap<String, u64>,
    sent: BTreeMap<String, u64>,
}

struct Writer {
    client: Client,
    pending: Option<(String, u64)>,
}

impl Knowledge {
    fn step(&mut self, cluster: &mut Cluster, writer: &mut Writer, key: String) {
        if let Some((key, number)) = writer.pending.take() {
            match cluster.arrived(writer.client) {
                None => return writer.pending = Some((key, number)),
                Some(reply) if reply == "OK" => {
                    let known = self.acknowledged.entry(key).or_default();
                    *known = number.max(*known);
                }
                Some(reply) => assert!(reply.starts_with('-'), "{reply}"),
            }
        }
        let number = self.sent.get(&key).map_or(1, |number| number + 1);
        self.sent.insert(key.clone(), number);
        cluster.send(writer.client, &format!("SET {key} {number}"));
        writer.pending = Some((key, number));
    }
}

/// Followers and leaders die in turn, at moments that depend on the seed, while clients of all nodes write. Each key
/// has one writer, so a smaller value than before would be a lost write.
fn no_acknowledged_write_is_lost(acks: &str, seed: u64) {
    let mut cluster = setup(3, &[&format!("prefix= acks={acks}")]).start();
    let mut random = seed;
    let mut draw = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let mut knowledge = Knowledge::default();
    for round in 0..4 {
        let mut writers: Vec<Writer> =
            (0..6).map(|number| Writer { client: cluster.client(number % 3 + 1), pending: None }).collect();
        for _ in 0..20 + draw(60) {
            for (number, writer) in writers.iter_mut().enumerate() {
                let key = format!("key:{round}:{number}:{}", draw(3));
                knowledge.step(&mut cluster, writer, key);
            }
            cluster.turn();
        }
        let victim = if round % 2 == 0 { 1 } else { 2 + draw(2) as u16 };
        cluster.kill(victim);
        cluster.turns(draw(50));
        cluster.restart(victim);
        cluster.settle();
        for writer in writers.iter().filter(|writer| writer.client.node != victim) {
            cluster.node(writer.client.node).disconnect(writer.client.id);
        }
    }
    let client = cluster.client(3);
    for (key, acknowledged) in &knowledge.acknowledged {
        let value = cluster.ask(client, &format!("GET {key}"));
        let value: u64 = value.trim_matches('"').parse().unwrap_or(0);
        let sent = knowledge.sent[key];
        assert!(
            (*acknowledged..=sent).contains(&value),
            "{key} is {value}; {acknowledged} was acknowledged, {sent} sent (acks={acks}, seed {seed})"
        );
    }
    assert!(knowledge.acknowledged.len() > 20);
}

#[test]
fn no_acknowledged_write_is_lost_by_the_death_of_any_node() {
    for seed in 0..20 {
        no_acknowledged_write_is_lost("majority", seed);
        no_acknowledged_write_is_lost("all", seed);
    }
}
