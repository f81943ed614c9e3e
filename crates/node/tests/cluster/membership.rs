//! Nodes that lose their storage, and how they come in again.

use crate::support::{assert_error, setup};

const KEYSPACES: &[&str] = &[
    "prefix= replication=consensus",
    "prefix=all: acks=all",
    "prefix=disk: acks=majority durability=fsync leader=3",
    "prefix=abd: replication=abd",
];

#[test]
fn a_node_that_lost_its_storage_is_not_let_in_as_what_it_was_and_comes_in_as_a_new_member() {
    let mut cluster = setup(3, KEYSPACES).start();
    let client = cluster.client(1);
    for number in 0..50 {
        for prefix in ["", "all:", "disk:", "abd:"] {
            assert_eq!(cluster.ask(client, &format!("SET {prefix}{number} {number}")), "OK");
        }
    }
    cluster.kill(3);
    cluster.until("another one leads", |cluster| cluster.ask(client, "SET disk:k v") == "OK");
    cluster.wipe(3);
    cluster.restart(3);
    cluster.turns(3000);
    let restless = cluster.restless_turns(3, 1000);
    assert!(restless < 100, "it waits without spinning, but for {restless} of 1000 turns");
    let lost = cluster.client(3);
    assert_error(&cluster.ask(lost, "GET 1"), "LOADING");
    assert_error(&cluster.ask(client, "CLUSTER REPLACE 2"), "ERR"); // That one is alive.
    assert_eq!(cluster.ask(client, "CLUSTER REPLACE 3"), "OK");
    // It is let into one group after the other.
    cluster.until("it is in all groups", |cluster| {
        cluster.node(1).cluster_map().groups.values().all(|group| group.members.contains(&3))
    });
    cluster.settle();
    let client = cluster.client(3);
    for number in 0..50 {
        for prefix in ["", "all:", "disk:", "abd:"] {
            assert_eq!(cluster.ask(client, &format!("GET {prefix}{number}")), format!("\"{number}\""));
        }
    }
    // It counts: another one may go.
    cluster.kill(1);
    cluster.until("the others go on", |cluster| cluster.ask(client, "SET k v") == "OK");
    cluster.until("the others go on", |cluster| cluster.ask(client, "SET all:k v") == "OK");
    assert_eq!(cluster.ask(client, "GET 7"), "\"7\"");
}

#[test]
fn who_has_no_replica_asks_another_node_when_one_that_was_not_let_in_refuses() {
    // Replicas stand on nodes 1, 2 and 3. Node 4 has just started, so it asks node 1 first.
    let mut cluster = setup(4, &["prefix= replication=consensus replicas=3"]).start();
    for node in [1, 4] {
        cluster.kill(node);
        if node == 1 {
            cluster.wipe(node);
        }
        cluster.turns(2000);
        cluster.restart(node);
        cluster.turns(1000);
    }
    let client = cluster.client(4);
    cluster.until("it asks the others", |cluster| cluster.ask(client, "SET k w") == "OK");
    assert_eq!(cluster.ask(client, "GET k"), "\"w\"");
}

#[test]
fn the_leader_of_a_consensus_group_can_be_removed_while_it_leads() {
    let mut cluster = setup(4, &["prefix= replication=consensus"]).start();
    let leader = cluster.keyspace(1, "").leader;
    let other = (1..=4).find(|node| *node != leader).expect("there are four");
    let client = cluster.client(other);
    assert_eq!(cluster.ask(client, "SET k v"), "OK");
    assert_eq!(cluster.ask(client, &format!("CLUSTER REMOVE {leader}")), "OK");
    cluster.until("it is out", |cluster| !cluster.node(other).cluster_map().nodes.contains_key(&leader));
    cluster.kill(leader);
    cluster.until("the others go on", |cluster| cluster.ask(client, "SET k w") == "OK");
}

#[test]
fn a_leader_that_is_to_leave_serves_until_somebody_else_can_be_appointed() {
    let mut cluster = setup(4, &["prefix= replicas=3 leader=1"]).start();
    let client = cluster.client(2);
    assert_eq!(cluster.ask(client, "SET k v"), "OK");
    // The in-sync set begins with the leader alone; before the others are known to hold everything, it is to go.
    cluster.pause(3);
    cluster.send_words(client, &[b"KEYSPACE", b"SET", b"", b"acks=2"]);
    cluster.send(client, "CLUSTER REMOVE 1");
    assert_eq!((cluster.reply(client), cluster.reply(client)), ("OK".into(), "OK".into()));
    cluster.turns(2000);
    cluster.go_on(3);
    cluster.until("it is out", |cluster| !cluster.node(2).cluster_map().nodes.contains_key(&1));
    cluster.kill(1);
    cluster.until("the others go on", |cluster| cluster.ask(client, "SET k w") == "OK");
    assert_eq!(cluster.ask(client, "GET k"), "\"w\"");
}

#[test]
fn a_dead_node_is_replaced_once_and_comes_in_with_an_empty_disk() {
    let mut cluster = setup(3, KEYSPACES).start();
    let client = cluster.client(1);
    assert_eq!(cluster.ask(client, "SET k v"), "OK");
    cluster.kill(3);
    cluster.wipe(3);
    cluster.until("node 3 is known to be dead", |cluster| cluster.ask(client, "CLUSTER REPLACE 3") == "OK");
    cluster.turns(1000);
    cluster.restart(3);
    cluster.until("it is in all groups", |cluster| {
        cluster.node(1).cluster_map().groups.values().all(|group| group.members.contains(&3))
    });
    cluster.settle();
    let client = cluster.client(3);
    assert_eq!(cluster.ask(client, "GET k"), "\"v\"");
}
