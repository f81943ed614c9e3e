//! Quiescent groups of all protocols send nothing, and still notice when a member fails.

use crate::support::{Client, Cluster, setup};

/// One keyspace of each kind, with eight groups each.
const KEYSPACES: [&str; 8] = [
    "prefix= replication=consensus shards=8",
    "prefix= acks=all shards=8",
    "prefix= acks=all durability=fsync shards=8",
    "prefix= acks=majority durability=os shards=8",
    "prefix= acks=none shards=8",
    "prefix= replication=abd shards=8",
    "prefix= replication=abd durability=fsync shards=8",
    "prefix= replication=blocking shards=8",
];

/// Returns how many messages replicas send each other in `turns` turns, except those of the control group.
pub(crate) fn messages(cluster: &mut Cluster, turns: u64) -> usize {
    cluster.record();
    cluster.turns(turns);
    let is_of_group = |payload: &[u8]| node::replica_message(payload).is_some_and(|(group, _)| group != 0);
    cluster.recorded().iter().filter(|(_, _, payload)| is_of_group(payload)).count()
}

fn becomes_quiescent(cluster: &mut Cluster) {
    cluster.turns(3000);
    assert_eq!(messages(cluster, 2000), 0, "all groups are quiescent");
}

fn insist(cluster: &mut Cluster, client: Client, request: &str) -> u64 {
    cluster.time(|cluster| cluster.until("it is done", |cluster| cluster.ask(client, request) == "OK"))
}

/// Whether the map lists these nodes as in sync in all groups.
fn are_in_sync(cluster: &mut Cluster, asked: u16, nodes: &[u16]) -> bool {
    let groups = &cluster.node(asked).cluster_map().groups;
    groups.iter().filter(|(id, _)| **id != 0).all(|(_, group)| group.in_sync == nodes)
}

#[test]
fn idle_groups_send_no_messages_and_serve_at_once() {
    for keyspace in KEYSPACES {
        let mut cluster = setup(3, &[keyspace]).start();
        let clients = [1, 2, 3].map(|node| cluster.client(node));
        for number in 0..30 {
            assert_eq!(cluster.ask(clients[number % 3], &format!("SET {number} v")), "OK");
        }
        becomes_quiescent(&mut cluster);
        assert!((1..=3).all(|node| cluster.keyspace(node, "default").ready), "and are ready");
        for (client, request) in clients.into_iter().zip(["SET k w", "GET k", "SET 7 w"]) {
            let took_ms = cluster.time(|cluster| drop(cluster.ask(client, request)));
            assert!(took_ms < 20, "{keyspace}: {request} took {took_ms} ms");
            let sent = messages(&mut cluster, 500);
            assert!(sent < 250, "one group of eight is awake, or two: {sent} messages");
            becomes_quiescent(&mut cluster);
        }
        let contents = [1, 2, 3].map(|node| cluster.contents(node));
        assert!(contents[0].len() == 31 && contents.iter().all(|it| *it == contents[0]), "{keyspace}");
    }
}

#[test]
fn keys_expire_before_a_group_becomes_quiescent() {
    for keyspace in KEYSPACES {
        let mut cluster = setup(3, &[keyspace]).start();
        let client = cluster.client(1);
        assert_eq!(cluster.ask(client, "SET e v PX 5000"), "OK");
        cluster.turns(3000);
        assert!(messages(&mut cluster, 500) > 0, "{keyspace}");
        // Registers keep a tombstone once a key has expired by every clock, and then agree to forget it.
        cluster.turns(70_000);
        assert_eq!(cluster.ask(client, "DBSIZE"), "0");
        assert_eq!(cluster.ask(client, "SET k v"), "OK");
        assert_eq!(cluster.ask(client, "DEL k"), "1");
        becomes_quiescent(&mut cluster);
    }
}

#[test]
fn a_failed_leader_of_quiescent_groups_is_replaced_as_fast_as_any_other() {
    for acks in ["all", "majority"] {
        for is_killed in [true, false] {
            let mut took_ms = [0, 0];
            for is_quiescent in [false, true] {
                let mut cluster = setup(3, &[&format!("prefix= acks={acks}")]).start();
                let client = cluster.client(2);
                assert_eq!(cluster.ask(client, "SET k v"), "OK");
                if is_quiescent {
                    becomes_quiescent(&mut cluster);
                }
                assert_eq!(cluster.keyspace(2, "default").leader, 1);
                match is_killed {
                    true => cluster.kill(1),
                    false => cluster.pause(1),
                }
                took_ms[usize::from(is_quiescent)] = cluster.time(|cluster| {
                    cluster.until("another one leads", |cluster| {
                        [2, 3].iter().any(|node| {
                            let keyspace = cluster.keyspace(*node, "default");
                            keyspace.role == "leader" && keyspace.ready
                        })
                    });
                });
                insist(&mut cluster, client, "SET k w");
                match is_killed {
                    true => cluster.restart(1),
                    false => cluster.go_on(1),
                }
                cluster.settle();
                becomes_quiescent(&mut cluster);
                let client = cluster.client(1);
                assert_eq!(cluster.ask(client, "GET k"), "\"w\"");
            }
            assert!(took_ms[1] <= took_ms[0] + 200, "{acks}, killed {is_killed}: {took_ms:?} ms");
        }
    }
}

#[test]
fn a_failed_follower_leaves_the_in_sync_set_and_returns_to_it() {
    for is_killed in [true, false] {
        let mut cluster = setup(3, &["prefix= acks=all shards=8"]).start();
        let client = cluster.client(1);
        assert_eq!(cluster.ask(client, "SET k v"), "OK");
        becomes_quiescent(&mut cluster);
        assert!(are_in_sync(&mut cluster, 1, &[1, 2, 3]));
        match is_killed {
            true => cluster.kill(3),
            false => cluster.pause(3),
        }
        let took_ms = cluster.time(|cluster| {
            cluster.until("it is not in sync", |cluster| {
                let groups = &cluster.node(1).cluster_map().groups;
                groups.iter().filter(|(id, _)| **id != 0).all(|(_, group)| !group.in_sync.contains(&3))
            });
        });
        // It takes a second to notice that a node is paused.
        let most_ms = if is_killed { 800 } else { 1800 };
        assert!(took_ms < most_ms, "{took_ms} ms");
        let took_ms = cluster.time(|cluster| assert_eq!(cluster.ask(client, "SET k w"), "OK"));
        assert!(took_ms < 20, "{took_ms} ms");
        match is_killed {
            // The others become quiescent without that member, and it joins them again.
            true => {
                becomes_quiescent(&mut cluster);
                cluster.restart(3);
            }
            false => cluster.go_on(3),
        }
        cluster.until("it is in sync", |cluster| {
            let groups = &cluster.node(1).cluster_map().groups;
            groups.iter().filter(|(id, _)| **id != 0).all(|(_, group)| group.in_sync.len() == 3)
        });
        becomes_quiescent(&mut cluster);
        assert_eq!(cluster.contents(3), cluster.contents(1));
    }
}

#[test]
fn a_write_does_not_wait_longer_for_a_follower_paused_in_a_quiescent_group() {
    let mut cluster = setup(3, &["prefix= acks=all"]).start();
    let client = cluster.client(1);
    assert_eq!(cluster.ask(client, "SET k v"), "OK");
    becomes_quiescent(&mut cluster);
    cluster.pause(3);
    cluster.turns(100);
    // The node is not known to be paused yet.
    let took_ms = cluster.time(|cluster| assert_eq!(cluster.ask(client, "SET k w"), "OK"));
    assert!(took_ms < 600, "{took_ms} ms");
}

#[test]
fn a_broken_link_ends_quiescence_and_missed_records_are_sent() {
    for keyspace in KEYSPACES {
        let mut cluster = setup(3, &[keyspace]).start();
        let client = cluster.client(1);
        for number in 0..20 {
            assert_eq!(cluster.ask(client, &format!("SET {number} v")), "OK");
        }
        becomes_quiescent(&mut cluster);
        cluster.cut_off(3);
        for number in 10..40 {
            insist(&mut cluster, client, &format!("SET {number} w"));
        }
        cluster.turns(2000);
        cluster.reconnect(3);
        cluster.turns(2000);
        becomes_quiescent(&mut cluster);
        let contents = [1, 2, 3].map(|node| cluster.contents(node));
        assert!(contents[0].len() == 40 && contents.iter().all(|it| *it == contents[0]), "{keyspace}");
    }
}

#[test]
fn registers_of_a_paused_or_restarted_member_are_made_equal_before_quiescence() {
    for keyspace in KEYSPACES.into_iter().filter(|keyspace| keyspace.contains("replication=")) {
        for is_killed in [true, false] {
            let mut cluster = setup(3, &[keyspace]).start();
            let client = cluster.client(1);
            for number in 0..20 {
                assert_eq!(cluster.ask(client, &format!("SET {number} v")), "OK");
            }
            becomes_quiescent(&mut cluster);
            match is_killed {
                true => cluster.kill(3),
                false => cluster.pause(3),
            }
            cluster.turns(100);
            for number in 10..40 {
                insist(&mut cluster, client, &format!("SET {number} w"));
            }
            cluster.turns(3000);
            match is_killed {
                true => cluster.restart(3),
                false => cluster.go_on(3),
            }
            cluster.settle();
            cluster.turns(2000);
            becomes_quiescent(&mut cluster);
            let contents = [1, 2, 3].map(|node| cluster.contents(node));
            assert!(contents[0].len() == 40 && contents.iter().all(|it| *it == contents[0]), "{keyspace}");
        }
    }
}

#[test]
fn hundreds_of_groups_of_each_protocol_become_quiescent_and_resume_together() {
    let keyspaces = [
        "prefix=l: acks=all shards=128",
        "prefix=c: replication=consensus shards=128",
        "prefix=a: replication=abd shards=64",
        "prefix=b: replication=blocking shards=64",
    ];
    let mut cluster = setup(3, &keyspaces).start();
    cluster.turns(5000);
    becomes_quiescent(&mut cluster);
    let clients = [1, 2, 3].map(|node| cluster.client(node));
    for prefix in ["l", "c", "a", "b"] {
        for (number, client) in clients.into_iter().enumerate() {
            let took_ms = cluster.time(|cluster| {
                assert_eq!(cluster.ask(client, &format!("SET {prefix}:{number} v")), "OK");
                assert_eq!(cluster.ask(client, &format!("GET {prefix}:{number}")), "\"v\"");
            });
            assert!(took_ms < 40, "{took_ms} ms");
        }
    }
    let sent = messages(&mut cluster, 500);
    assert!((1..800).contains(&sent), "twelve groups of 384 are awake: {sent} messages");
    becomes_quiescent(&mut cluster);
}
