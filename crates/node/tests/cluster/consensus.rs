//! Keyspaces of consensus: all commands on all nodes, leaders that die, and a log that survives the death of all
//! nodes.

use crate::rest::messages;
use crate::support::{Client, Cluster, setup};

const KEYSPACES: &[&str] = &["prefix= replication=consensus"];

fn leader(cluster: &Cluster) -> u16 {
    cluster.keyspace(1, "default").leader
}

/// Repeats a request until it succeeds, as a client would.
fn insist(cluster: &mut Cluster, client: Client, request: &str) -> u64 {
    cluster.time(|cluster| cluster.until("it is done", |cluster| cluster.ask(client, request) == "OK"))
}

#[test]
fn a_failed_leader_of_a_quiescent_group_is_replaced() {
    for is_killed in [true, false] {
        let mut cluster = setup(3, KEYSPACES).start();
        let is_quiescent = |cluster: &mut Cluster| {
            cluster.turns(3000);
            messages(cluster, 500) == 0
        };
        assert!(is_quiescent(&mut cluster));
        let leader = leader(&cluster);
        let client = cluster.client(leader % 3 + 1);
        match is_killed {
            true => cluster.kill(leader),
            false => cluster.pause(leader),
        }
        // A request forwarded to a paused leader would wait for it, so nothing is requested until its failure is
        // noticed.
        let other = client.node;
        let took_ms = cluster.time(|cluster| {
            cluster.until("another one leads", |cluster| {
                let keyspace = cluster.keyspace(other, "default");
                ![0, leader].contains(&keyspace.leader) && keyspace.ready
            });
        });
        // It takes a second to notice that the leader is paused, since no client requests anything.
        let most_ms = if is_killed { 500 } else { 1600 };
        assert!(took_ms < most_ms, "{took_ms} ms without a leader");
        assert_eq!(cluster.ask(client, "SET k v"), "OK");
        // The others become quiescent without that member, and it joins them again.
        assert!(is_quiescent(&mut cluster));
        match is_killed {
            true => cluster.restart(leader),
            false => cluster.go_on(leader),
        }
        cluster.settle();
        assert!(is_quiescent(&mut cluster));
        let client = cluster.client(leader);
        assert_eq!(cluster.ask(client, "GET k"), "\"v\"");
    }
}

#[test]
fn a_leader_with_a_full_disk_is_replaced_though_its_group_is_quiescent() {
    let mut cluster = setup(3, KEYSPACES).start();
    cluster.turns(3000);
    assert_eq!(messages(&mut cluster, 500), 0);
    let leader = leader(&cluster);
    let client = cluster.client(leader % 3 + 1);
    cluster.set_disk_full(leader, true);
    let took_ms = insist(&mut cluster, client, "SET k v");
    assert!(took_ms < 3000, "{took_ms} ms without a leader");
}

#[test]
fn a_request_ends_the_quiescence_of_a_group_with_a_paused_leader() {
    let mut cluster = setup(3, KEYSPACES).start();
    cluster.turns(3000);
    assert_eq!(messages(&mut cluster, 500), 0);
    let leader = leader(&cluster);
    let others = [leader % 3 + 1, (leader + 1) % 3 + 1];
    cluster.pause(leader);
    let client = cluster.client(others[0]);
    cluster.send(client, "GET k");
    let took_ms = cluster.time(|cluster| {
        cluster.until("another one leads", |cluster| {
            others.contains(&cluster.keyspace(others[1], "default").leader)
        });
    });
    assert!(took_ms < 500, "{took_ms} ms without a leader");
}

#[test]
fn every_node_takes_every_command() {
    let mut cluster = setup(3, KEYSPACES).start();
    let clients = [1, 2, 3].map(|node| cluster.client(node));
    assert_eq!(cluster.ask(clients[0], "SET a 1"), "OK");
    assert_eq!(cluster.ask(clients[1], "INCR a"), "2");
    assert_eq!(cluster.ask(clients[2], "APPEND a 3"), "2");
    assert_eq!(cluster.ask(clients[0], "MSET b x c y"), "OK");
    assert_eq!(cluster.ask(clients[1], "MGET a b c none"), r#"["23", "x", "y", nil]"#);
    assert_eq!(cluster.ask(clients[2], "SET b z NX"), "nil");
    assert_eq!(cluster.ask(clients[2], "SET b z GET"), "\"x\"");
    assert_eq!(cluster.ask(clients[1], "SET e v PX 50"), "OK");
    cluster.turns(60);
    assert_eq!(clients.map(|client| cluster.ask(client, "EXISTS e")), ["0", "0", "0"]);
    assert_eq!(cluster.ask(clients[0], "DBSIZE"), "3");
    assert_eq!(cluster.ask(clients[1], "FLUSHALL"), "OK");
    assert_eq!(cluster.ask(clients[2], "DBSIZE"), "0");
}

#[test]
fn a_single_node_serves_alone() {
    let mut cluster = setup(1, KEYSPACES).start();
    let client = cluster.client(1);
    assert_eq!(cluster.ask(client, "INCR n"), "1");
    cluster.kill(1);
    cluster.restart(1);
    cluster.settle();
    let client = cluster.client(1);
    assert_eq!(cluster.ask(client, "INCR n"), "2");
}

#[test]
fn a_leader_that_dies_is_replaced_and_nothing_is_lost() {
    let mut cluster = setup(5, KEYSPACES).start();
    let mut dead = Vec::new();
    for round in 0..2 {
        let client = cluster.client(5);
        assert_eq!(cluster.ask(client, &format!("SET k{round} v")), "OK");
        let victim = leader_of(&cluster, &dead);
        cluster.kill(victim);
        dead.push(victim);
        let survivor = (1..=5).find(|node| !dead.contains(node)).expect("a majority is left");
        let client = cluster.client(survivor);
        let took_ms = insist(&mut cluster, client, "SET after v");
        assert!(took_ms < 1000, "{took_ms} ms");
        for earlier in 0..=round {
            assert_eq!(cluster.ask(client, &format!("GET k{earlier}")), "\"v\"");
        }
    }
}

fn leader_of(cluster: &Cluster, dead: &[u16]) -> u16 {
    let alive = (1..=4).find(|node| !dead.contains(node)).expect("a node is left");
    cluster.keyspace(alive, "default").leader
}

#[test]
fn acknowledged_writes_survive_the_death_of_all_nodes() {
    let mut cluster = setup(3, KEYSPACES).start();
    let client = cluster.client(1);
    for number in 0..100 {
        assert_eq!(cluster.ask(client, &format!("SET k{number} {number}")), "OK");
    }
    assert_eq!(cluster.ask(client, "DEL k50"), "1");
    (1..=3).for_each(|id| cluster.kill(id));
    (1..=3).for_each(|id| cluster.restart(id));
    cluster.settle();
    let client = cluster.client(2);
    assert_eq!(cluster.ask(client, "DBSIZE"), "99");
    assert_eq!(cluster.ask(client, "GET k99"), "\"99\"");
    assert_eq!(cluster.ask(client, "GET k50"), "nil");
}

#[test]
fn checkpoints_bound_a_growing_log_and_a_node_starts_from_them() {
    let small = |configuration: &mut node::Configuration| {
        configuration.storage.segment_bytes = 64 << 10;
        configuration.storage.checkpoint_bytes = 128 << 10;
    };
    let mut cluster = setup(3, KEYSPACES).with(small).start();
    let client = cluster.client(1);
    let value = "v".repeat(1000);
    for number in 0..2000 {
        assert_eq!(cluster.ask(client, &format!("SET k{} {value}{number}", number % 20)), "OK");
    }
    let log = cluster.log_bytes(2);
    assert!(log < 1 << 20, "2 MB were written, and {log} bytes are kept");
    let at = leader(&cluster);
    (1..=3).for_each(|id| cluster.kill(id));
    (1..=3).for_each(|id| cluster.restart(id));
    cluster.settle();
    let client = cluster.client(at);
    assert_eq!(cluster.ask(client, "DBSIZE"), "20");
    assert_eq!(cluster.ask(client, "GET k19"), format!("\"{value}1999\""));
}

#[test]
fn shards_have_leaders_on_different_nodes() {
    let mut cluster = setup(3, &["prefix= replication=consensus shards=6"]).start();
    let client = cluster.client(2);
    let mut leaders: Vec<u16> = cluster.health(2).keyspaces.iter().map(|shard| shard.leader).collect();
    leaders.sort_unstable();
    assert_eq!(leaders, [1, 1, 2, 2, 3, 3]);
    for number in 0..100 {
        assert_eq!(cluster.ask(client, &format!("SET k{number} {number}")), "OK");
    }
    assert_eq!(cluster.ask(client, "DBSIZE"), "100");
    assert_eq!(cluster.ask(client, "CLUSTER KEYSLOT {user1000}.following"), "3443");
    assert!(cluster.ask(client, "CLUSTER INFO").contains("cluster_state:ok"));
}
