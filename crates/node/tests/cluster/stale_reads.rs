//! `reads = any`: followers answer, perhaps with old values, but never with older ones than their client has seen.

use crate::support::{Cluster, assert_error, setup};

fn any_replica_answers(acks: &str) -> Cluster {
    setup(3, &[&format!("prefix= acks={acks} reads=any")]).start()
}

#[test]
fn a_follower_answers_reads_even_without_its_leader() {
    let mut cluster = any_replica_answers("majority");
    let writer = cluster.client(1);
    cluster.ask(writer, "SET k old");
    cluster.settle();
    cluster.cut_off(3);
    cluster.ask(writer, "SET k new");

    let reader = cluster.client(3);
    cluster.send(reader, "GET k");
    assert_eq!(cluster.arrived(reader).as_deref(), Some("\"old\""), "at once, from its own memory");
    assert_error(&cluster.ask(reader, "SET k x"), "NOLEADER");
    cluster.reconnect(3);
    cluster.until("node 3 catches up", |cluster| cluster.ask(reader, "GET k") == "\"new\"");
}

#[test]
fn linearizable_reads_are_never_answered_by_a_follower() {
    let mut cluster = setup(3, &["prefix= acks=majority", "prefix=any: acks=majority reads=any"]).start();
    let client = cluster.client(2);
    cluster.pipeline(client, &["SET k v", "SET any:k v"]);
    cluster.settle();
    cluster.cut_off(2);
    assert_eq!(cluster.ask(client, "GET any:k"), "\"v\"");
    assert_error(&cluster.ask(client, "GET k"), "NOLEADER");
}

#[test]
fn a_client_of_a_follower_reads_its_own_writes() {
    for acks in ["none", "majority", "all"] {
        let mut cluster = any_replica_answers(acks);
        for node in 1..=3 {
            let client = cluster.client(node);
            for number in 0..30 {
                assert_eq!(cluster.ask(client, &format!("SET k {number}")), "OK");
                assert_eq!(
                    cluster.ask(client, "GET k"),
                    format!("\"{number}\""),
                    "acks={acks} at node {node}"
                );
            }
        }
    }
}

#[test]
fn a_client_of_a_follower_sees_its_own_flush() {
    // Because of the second keyspace, the flush involves several groups.
    let keyspaces = ["prefix= acks=majority reads=any", "prefix=b: acks=majority reads=any"];
    let mut cluster = setup(3, &keyspaces).start();
    let client = cluster.client(2);
    cluster.ask(client, "SET k v");
    cluster.settle();
    assert_eq!(cluster.ask(client, "FLUSHALL"), "OK");
    assert_eq!(cluster.ask(client, "GET k"), "nil");
}

#[test]
fn a_client_does_not_go_back_in_time_between_two_reads_of_one_follower() {
    let mut cluster = any_replica_answers("majority");
    let (writer, reader) = (cluster.client(1), cluster.client(3));
    let mut newest = 0;
    for number in 1..200 {
        cluster.send(writer, &format!("SET k {number}"));
        cluster.turn();
        let read = cluster.ask(reader, "GET k");
        let read: i32 = read.trim_matches('"').parse().unwrap_or(0);
        assert!(read >= newest, "{read} after {newest}");
        newest = read;
    }
    assert!(newest > 100, "it follows: {newest}");
}

#[test]
fn a_follower_without_memory_answers_nothing_before_it_has_recovered() {
    let mut cluster = any_replica_answers("majority");
    let writer = cluster.client(1);
    cluster.ask(writer, "SET k v");
    cluster.kill(3);
    cluster.restart(3);
    cluster.cut_off(3);
    let reader = cluster.client(3);
    assert_error(&cluster.ask(reader, "GET k"), "LOADING");
    cluster.reconnect(3);
    cluster.settle();
    assert_eq!(cluster.ask(reader, "GET k"), "\"v\"");
}

#[test]
fn an_expired_key_does_not_exist_at_any_node() {
    let mut cluster = any_replica_answers("all");
    let clients = [1, 2, 3].map(|node| cluster.client(node));
    cluster.ask(clients[0], "SET k v PX 50");
    cluster.settle();
    let deadlines = clients.map(|client| cluster.ask(client, "PEXPIRETIME k"));
    assert_eq!(deadlines[0], deadlines[1]);
    assert_eq!(deadlines[0], deadlines[2]);
    cluster.turns(60);
    assert_eq!(clients.map(|client| cluster.ask(client, "GET k")), ["nil", "nil", "nil"]);
    cluster.until("the leader removes what has expired", |cluster| {
        clients.iter().all(|client| cluster.ask(*client, "DBSIZE") == "0")
    });
}
