//! Nodes that lose their storage, and how they return.

use crate::support::{Cluster, assert_error, setup};
use cluster::control::Group;

const KEYSPACES: &[&str] = &[
    "prefix= replication=consensus",
    "prefix=all: acks=all",
    "prefix=disk: acks=majority durability=fsync leader=3",
    "prefix=abd: replication=abd",
];

#[test]
fn a_node_that_lost_its_storage_is_refused_and_joins_as_a_new_member() {
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
    assert_error(&cluster.ask(client, "CLUSTER REPLACE 2"), "ERR"); // Node 2 is alive.
    assert_eq!(cluster.ask(client, "CLUSTER REPLACE 3"), "OK");
    // The node joins one group after the other.
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
    // The node counts again: another one may fail.
    cluster.kill(1);
    cluster.until("the others go on", |cluster| cluster.ask(client, "SET k v") == "OK");
    cluster.until("the others go on", |cluster| cluster.ask(client, "SET all:k v") == "OK");
    assert_eq!(cluster.ask(client, "GET 7"), "\"7\"");
}

#[test]
fn a_node_without_a_replica_asks_another_one_when_a_node_that_is_not_admitted_refuses() {
    // The replicas are on nodes 1, 2 and 3. Node 4 has just started, so it asks node 1 first.
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
fn a_leaving_leader_serves_until_another_one_can_be_appointed() {
    let mut cluster = setup(4, &["prefix= replicas=3 leader=1"]).start();
    let client = cluster.client(2);
    assert_eq!(cluster.ask(client, "SET k v"), "OK");
    // The in-sync set begins with the leader alone, which is removed before the others are known to hold everything.
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
fn a_dead_node_is_replaced_once_and_joins_with_an_empty_disk() {
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

/// The only replica's disk is lost. When the operator has accepted that twice, the keyspace begins again, empty.
#[test]
fn a_keyspace_whose_only_replica_is_lost_begins_again_when_the_loss_is_accepted() {
    for keyspace in [
        "prefix=one: replication=consensus replicas=1 leader=3 durability=fsync",
        "prefix=one: replication=consensus replicas=1 leader=3 durability=os shards=2",
    ] {
        let mut cluster = setup(3, &["prefix= replication=consensus", keyspace]).start();
        let client = cluster.client(1);
        for number in 0..20 {
            assert_eq!(cluster.ask(client, &format!("SET one:{number} v")), "OK");
        }
        let groups = |cluster: &mut Cluster| cluster.node(1).cluster_map().keyspaces["one:"].groups.clone();
        let before = groups(&mut cluster);
        cluster.kill(3);
        cluster.wipe(3);
        cluster.until("it is known to be dead", |cluster| {
            cluster.ask(client, "CLUSTER REPLACE 3").contains("node 3 alone held")
        });
        assert_eq!(cluster.ask(client, "CLUSTER REPLACE 3 ACCEPTLOSS"), "OK");
        let refused = cluster.ask(client, "KEYSPACE RECOVER one: ACCEPTLOSS");
        assert!(refused.starts_with("-ERR"), "only its own node knows what it has: {refused}");
        cluster.restart(3);
        cluster.turns(3000);
        let lost = cluster.client(3);
        let why = cluster.keyspace(3, "one:").explanation;
        assert!(why.contains("KEYSPACE RECOVER"), "{why}");
        let shown = cluster.ask(lost, "KEYSPACE RECOVER one:");
        assert!(shown.contains("To begin again, empty") && !shown.starts_with('-'), "{shown}");
        assert_eq!(groups(&mut cluster), before, "nothing is changed by looking");
        assert_eq!(cluster.ask(lost, "KEYSPACE RECOVER one: ACCEPTLOSS"), "OK");
        let there = |cluster: &mut Cluster, value: &str| {
            (0..20).filter(|number| cluster.ask(client, &format!("GET one:{number}")) == value).count()
        };
        let (lost_keys, kept) = (there(&mut cluster, "nil"), there(&mut cluster, "\"v\""));
        let after = groups(&mut cluster);
        assert!(after.len() == before.len() && after[0] > before[0], "no group's number is used twice");
        assert_eq!(after[1..], before[1..], "the other shard is on node 1");
        assert!(
            lost_keys > 0 && lost_keys + kept == 20 && (kept == 0) == (before.len() == 1),
            "{kept} keys are left"
        );
        assert_eq!(cluster.ask(client, "SET one:{0} w"), "OK");
        let refused = cluster.ask(lost, "KEYSPACE RECOVER one: ACCEPTLOSS");
        assert!(refused.contains("nothing to give up"), "{refused}");
        cluster.kill(3);
        cluster.restart(3);
        let client = cluster.client(1);
        cluster.until("it is served again", |cluster| cluster.ask(client, "GET one:{0}") == "\"w\"");
    }
}

/// Until the new, empty folder was started, the old one may come back after all: then nothing is lost.
#[test]
fn a_disk_that_is_found_after_its_loss_was_accepted_still_serves() {
    let keyspace = "prefix=one: replication=consensus replicas=1 leader=3 durability=fsync";
    let mut cluster = setup(3, &[keyspace]).start();
    let client = cluster.client(1);
    assert_eq!(cluster.ask(client, "SET one:k v"), "OK");
    cluster.kill(3);
    cluster.until("it is known to be dead", |cluster| {
        cluster.ask(client, "CLUSTER REPLACE 3 ACCEPTLOSS") == "OK"
    });
    cluster.restart(3);
    cluster.until("it serves what it has", |cluster| cluster.ask(client, "GET one:k") == "\"v\"");
    let held = cluster.client(3);
    let refused = cluster.ask(held, "KEYSPACE RECOVER one: ACCEPTLOSS");
    assert!(refused.contains("nothing to give up"), "{refused}");
    cluster.until("the control group knows it", |cluster| holds_everything(cluster, 1, 3));
}

/// A leader-follower keyspace begins again by itself: the control group appoints its leader, which needs no votes.
#[test]
fn a_leader_without_followers_begins_again_when_its_loss_is_accepted() {
    for acks in ["all", "none", "majority"] {
        let keyspace = format!("prefix=one: acks={acks} replicas=1 leader=3 durability=fsync");
        let mut cluster = setup(3, &[&keyspace]).start();
        let client = cluster.client(1);
        assert_eq!(cluster.ask(client, "SET one:k v"), "OK");
        cluster.kill(3);
        cluster.wipe(3);
        cluster.until("it is known to be dead", |cluster| {
            cluster.ask(client, "CLUSTER REPLACE 3 ACCEPTLOSS") == "OK"
        });
        cluster.restart(3);
        cluster.until("it is served", |cluster| cluster.ask(client, "SET one:j w") == "OK");
        assert_eq!(cluster.ask(client, "GET one:k"), "nil");
    }
}

/// The leader and one follower hold a write. The leader loses its disk, and the follower is paused. The new leader has no
/// answer from that follower yet: it must keep waiting for it, even though the lost node is being replaced.
#[test]
fn no_removal_leaves_a_leader_alone_before_it_has_taken_over() {
    let keyspace = "prefix=one: acks=1 replicas=3 leader=3 durability=fsync";
    let mut cluster = setup(5, &[keyspace]).start();
    let client = cluster.client(1);
    assert_eq!(cluster.ask(client, "SET one:k before"), "OK");
    let members = |cluster: &mut Cluster| {
        let map = cluster.node(1).cluster_map();
        map.groups[&map.keyspaces["one:"].groups[0]].members.clone()
    };
    assert_eq!(members(&mut cluster), [3, 4, 5]);
    cluster.break_link(3, 4);
    assert_eq!(cluster.ask(client, "SET one:k v"), "OK", "held by nodes 3 and 5");
    cluster.kill(3);
    cluster.wipe(3);
    cluster.pause(5);
    cluster.until("node 4 is to lead", |cluster| {
        let map = cluster.node(1).cluster_map();
        map.groups[&map.keyspaces["one:"].groups[0]].leader == 4
    });
    cluster.until("it is replaced", |cluster| cluster.ask(client, "CLUSTER REPLACE 3") == "OK");
    cluster.turns(5000);
    cluster.send(client, "GET one:k");
    cluster.turns(2000);
    cluster.go_on(5);
    let reply = cluster.reply(client);
    assert!(reply == "\"v\"" || reply.starts_with('-'), "what was acknowledged is lost: {reply}");
    cluster.until("it is out", |cluster| members(cluster) == [4, 5]);
    cluster.until("it is read", |cluster| cluster.ask(client, "GET one:k") == "\"v\"");
}

/// Whether a node is known to hold everything in each of its groups.
fn holds_everything(cluster: &mut Cluster, asked: u16, node: u16) -> bool {
    let map = cluster.node(asked).cluster_map();
    let is_in = |group: &Group| group.settled && group.in_sync.contains(&node);
    map.keyspaces.values().flat_map(|entry| &entry.groups).all(|id| is_in(&map.groups[id]))
}

const REMOVABLE: &[&str] = &["prefix= replication=consensus", "prefix=all: acks=all durability=fsync"];

#[test]
fn a_removed_node_notices_it_and_joins_again_with_its_old_folder() {
    for node in [3, 4] {
        let mut cluster = setup(4, REMOVABLE).start();
        let client = cluster.client(1);
        assert_eq!(cluster.ask(client, "SET k v"), "OK");
        assert_eq!(cluster.ask(client, &format!("CLUSTER REMOVE {node}")), "OK");
        assert_eq!(cluster.ask(client, &format!("CLUSTER REMOVE {node}")), "OK", "asked for again");
        cluster.until("it knows that it was removed", |cluster| cluster.node(node).is_removed());
        let answer = cluster.ask(client, &format!("CLUSTER REMOVE {node}"));
        assert!(answer.contains(&format!("there is no node {node}")), "{answer}");
        // Its process ends when it is removed.
        cluster.kill(node);
        assert_eq!(cluster.ask(client, &format!("CLUSTER ADD {node} 127.0.0.1 1 2 3")), "OK");
        cluster.restart(node);
        cluster.until("it holds everything", |cluster| holds_everything(cluster, 1, node));
        assert!(!cluster.node(node).is_removed());
        // The node counts again: another one may fail.
        cluster.kill(2);
        cluster.until("the others go on", |cluster| cluster.ask(client, "SET k w") == "OK");
        cluster.until("the others go on", |cluster| cluster.ask(client, "SET all:k w") == "OK");
    }
}

#[test]
fn a_running_node_that_missed_its_removal_and_addition_is_admitted() {
    let mut cluster = setup(4, REMOVABLE).start();
    let client = cluster.client(1);
    cluster.cut_off(4);
    cluster.until("it is known to be dead", |cluster| cluster.ask(client, "SET all:k v") == "OK");
    assert_eq!(cluster.ask(client, "CLUSTER REMOVE 4"), "OK");
    cluster.until("it is out", |cluster| !cluster.node(1).cluster_map().nodes.contains_key(&4));
    assert_eq!(cluster.ask(client, "CLUSTER ADD 4 127.0.0.1 1 2 3"), "OK");
    cluster.reconnect(4);
    cluster.until("it holds everything", |cluster| holds_everything(cluster, 1, 4));
    assert!(!cluster.node(4).is_removed());
    cluster.kill(2);
    cluster.until("the others go on", |cluster| cluster.ask(client, "SET k w") == "OK");
}

#[test]
fn a_node_that_the_others_need_is_not_removed() {
    let mut cluster = setup(4, REMOVABLE).start();
    let client = cluster.client(1);
    cluster.kill(4);
    cluster.kill(2);
    cluster.turns(1000);
    let answer = cluster.ask(client, "CLUSTER REMOVE 3");
    assert!(answer.contains("without FORCE") || answer.contains("cannot be removed now"), "{answer}");
    let answer = cluster.ask(client, "CLUSTER REMOVE 3 FORCE");
    assert!(answer.contains("cannot be removed now") && answer.contains("node 2"), "{answer}");
    cluster.restart(2);
    cluster.until("one that is dead goes", |cluster| cluster.ask(client, "CLUSTER REMOVE 4") == "OK");
    cluster.until("it is out", |cluster| !cluster.node(1).cluster_map().nodes.contains_key(&4));
    let answer = cluster.ask(client, "CLUSTER REMOVE 3");
    assert!(answer.contains("without FORCE") && answer.contains("2 of 3 replicas"), "{answer}");
    assert_eq!(cluster.ask(client, "CLUSTER REMOVE 3 FORCE"), "OK");
    cluster.until("it is out", |cluster| !cluster.node(1).cluster_map().nodes.contains_key(&3));
    assert_eq!(cluster.ask(client, "SET k v"), "OK");
}

#[test]
fn the_number_of_groups_on_a_node_is_bounded() {
    let mut cluster = setup(3, &["prefix= replication=consensus"]).with(|it| it.groups_max = 20).start();
    let client = cluster.client(1);
    assert_eq!(cluster.ask(client, "KEYSPACE CREATE a: shards=16"), "OK");
    let answer = cluster.ask(client, "KEYSPACE CREATE b: shards=4");
    assert!(
        answer.contains("17 groups") && answer.contains("may hold 20 (limits.groups_max): 4 more"),
        "{answer}"
    );
    assert_eq!(cluster.ask(client, "KEYSPACE CREATE b: shards=3"), "OK");
    assert_eq!(cluster.ask(client, "KEYSPACE DROP a:"), "OK");
    assert_eq!(cluster.ask(client, "KEYSPACE CREATE c: shards=16"), "OK", "there is room again");
}
