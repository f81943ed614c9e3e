//! Keyspaces of registers with a durability: replicas recover what they recorded.

use crate::support::{Cluster, assert_error, setup};
use cluster::control::CONTROL_GROUP;

/// Each protocol with each durability.
const KEYSPACES: [&str; 4] = [
    "prefix=r: replication=abd durability=fsync",
    "prefix=r: replication=abd durability=os",
    "prefix=r: replication=blocking durability=fsync",
    "prefix=r: replication=blocking durability=os",
];

/// Writes some keys through all nodes.
fn fill(cluster: &mut Cluster, numbers: std::ops::Range<u32>, value: &str) {
    let clients = [1, 2, 3].map(|node| cluster.client(node));
    for number in numbers {
        let client = clients[number as usize % 3];
        assert_eq!(cluster.ask(client, &format!("SET r:{number} {value}{number}")), "OK");
    }
    clients.into_iter().for_each(|client| cluster.node(client.node).disconnect(client.id));
}

fn assert_filled(cluster: &mut Cluster, node: u16, numbers: std::ops::Range<u32>, value: &str) {
    let client = cluster.client(node);
    for number in numbers {
        assert_eq!(cluster.ask(client, &format!("GET r:{number}")), format!("\"{value}{number}\""));
    }
}

fn role(cluster: &Cluster, node: u16) -> String {
    cluster.keyspace(node, "r:").role
}

#[test]
fn acknowledged_writes_survive_when_all_nodes_die_at_once() {
    for keyspace in KEYSPACES {
        let mut cluster = setup(3, &[keyspace]).start();
        for round in ["early", "late"] {
            fill(&mut cluster, 0..30, round);
            let client = cluster.client(2);
            assert_eq!(cluster.ask(client, "DEL r:0"), "1");
            (1..=3).for_each(|node| cluster.kill(node));
            (1..=3).for_each(|node| cluster.restart(node));
            cluster.settle();
            assert_filled(&mut cluster, 3, 1..30, round);
            let client = cluster.client(1);
            assert_eq!(cluster.ask(client, "GET r:0"), "nil");
        }
    }
}

/// A replica that was recovered from the disk has no configuration until its node is admitted.
#[test]
fn a_command_that_comes_before_the_admission_waits_for_it() {
    for keyspace in KEYSPACES {
        let mut cluster = setup(3, &[keyspace]).start();
        fill(&mut cluster, 0..3, "v");
        cluster.settle();
        (1..=3).for_each(|node| cluster.kill(node));
        (1..=3).for_each(|node| cluster.restart(node));
        for node in 1..=3 {
            assert_eq!(role(&cluster, node), "idle", "it has its records, and no configuration");
        }
        let clients = [1, 2, 3].map(|node| cluster.client(node));
        clients.iter().for_each(|client| cluster.send(*client, "GET r:1"));
        for client in clients {
            assert_eq!(cluster.reply(client), "\"v1\"", "{keyspace}");
        }
    }
}

/// The same if its node is never admitted, as in a minority.
#[test]
fn a_command_that_waits_for_the_admission_ends_in_time() {
    for keyspace in KEYSPACES {
        let mut cluster = setup(3, &[keyspace]).start();
        fill(&mut cluster, 0..3, "v");
        (1..=3).for_each(|node| cluster.kill(node));
        cluster.restart(2);
        let client = cluster.client(2);
        let reply = cluster.ask(client, "GET r:1");
        assert!(
            reply.starts_with("-LOADING") && reply.contains("not admitted node 2"),
            "{keyspace}: {reply}"
        );
    }
}

#[test]
fn a_replica_with_a_full_disk_accepts_nothing_and_catches_up_later() {
    for keyspace in KEYSPACES {
        let small = |configuration: &mut node::Configuration| configuration.storage.segment_bytes = 64 << 10;
        let mut cluster = setup(3, &[keyspace]).with(small).start();
        let (client, reader) = (cluster.client(1), cluster.client(3));
        let value = "v".repeat(1000);
        let mut written = 0;
        let mut write = |cluster: &mut Cluster| {
            written += 1;
            assert_eq!(cluster.ask(client, &format!("SET r:{written} {value}")), "OK");
            written
        };
        cluster.set_disk_full(3, true);
        cluster.until("node 3 says so", |cluster| {
            write(cluster);
            cluster.health(3).disk_full
        });
        // Other nodes store what is written through the full node.
        assert_eq!(cluster.ask(reader, &format!("SET r:1 {value}")), "OK");
        // The full node receives nothing: no writes, no read repair, no sweeps.
        let keys =
            |cluster: &mut Cluster, client| cluster.ask(client, "DBSIZE").parse::<u32>().expect("a number");
        let before = keys(&mut cluster, reader);
        let last = (0..200).map(|_| write(&mut cluster)).last().expect("it has written");
        for number in last - 50..=last {
            assert_eq!(cluster.ask(reader, &format!("GET r:{number}")), format!("\"{value}\""));
        }
        cluster.turns(1000);
        assert_eq!(keys(&mut cluster, reader), before, "{keyspace}");
        cluster.set_disk_full(3, false);
        cluster.until("node 3 holds all", |cluster| keys(cluster, reader) == last);
        assert_eq!(cluster.ask(reader, "SET r:mine v"), "OK");
    }
}

#[test]
fn a_restarted_node_recovers_its_memory_without_others() {
    for keyspace in KEYSPACES {
        let mut cluster = setup(3, &[keyspace]).start();
        fill(&mut cluster, 0..20, "v");
        cluster.settle();
        (1..=3).for_each(|node| cluster.kill(node));
        // Admission takes two nodes, and they are a majority. With state in memory only, a node would need both of
        // the others.
        cluster.restart(2);
        cluster.restart(3);
        cluster.until("both have their memory", |cluster| {
            [2, 3].iter().all(|node| role(cluster, *node) == "replica")
        });
        // With blocking, locks that node 1 may remember have to expire first.
        let client = cluster.client(2);
        cluster.until("they serve", |cluster| cluster.ask(client, "SET r:0 v0") == "OK");
        assert_filled(&mut cluster, 3, 0..20, "v");
    }
}

#[test]
fn a_node_that_lost_its_storage_is_replaced_and_refilled() {
    for keyspace in KEYSPACES {
        let mut cluster = setup(3, &[keyspace]).start();
        fill(&mut cluster, 0..20, "v");
        cluster.kill(3);
        let client = cluster.client(1);
        assert_eq!(cluster.ask(client, "SET r:7 new"), "OK"); // Held by nodes 1 and 2.
        cluster.wipe(3);
        cluster.restart(3);
        cluster.turns(2000);
        let lost = cluster.client(3);
        assert!(cluster.ask(lost, "GET r:1").starts_with('-'), "it is not admitted");
        cluster.until("it may be replaced", |cluster| cluster.ask(client, "CLUSTER REPLACE 3") == "OK");
        cluster.settle();
        cluster.until("the control group has it back, too", |cluster| {
            let group = &cluster.node(1).cluster_map().groups[&CONTROL_GROUP];
            group.settled && group.members.len() == 3 && group.in_sync.contains(&3)
        });
        cluster.kill(1);
        let client = cluster.client(3);
        cluster.until("the other two go on", |cluster| cluster.ask(client, "GET r:7") == "\"new\"");
        // The replaced node's records count from now on.
        cluster.kill(3);
        cluster.kill(2);
        [2, 3].into_iter().for_each(|node| cluster.restart(node));
        let client = cluster.client(3);
        cluster.until("they are back", |cluster| cluster.ask(client, "GET r:7") == "\"new\"");
        assert_filled(&mut cluster, 3, 8..20, "v");
    }
}

#[test]
fn the_only_replica_is_replaced_only_if_the_loss_is_accepted() {
    let mut cluster = setup(3, &["prefix=r: replication=abd durability=fsync replicas=1 leader=3"]).start();
    fill(&mut cluster, 0..5, "v");
    cluster.kill(3);
    cluster.wipe(3);
    cluster.turns(2000);
    let client = cluster.client(1);
    let reply = cluster.ask(client, "CLUSTER REPLACE 3");
    assert_error(&reply, "ERR");
    assert!(reply.contains("alone held everything"), "{reply}");
    assert_eq!(cluster.ask(client, "CLUSTER REPLACE 3 ACCEPTLOSS"), "OK");
    cluster.restart(3);
    cluster.settle();
    assert_eq!(cluster.ask(client, "GET r:1"), "nil");
    fill(&mut cluster, 0..5, "w");
    cluster.kill(3);
    cluster.restart(3);
    cluster.settle();
    assert_filled(&mut cluster, 2, 0..5, "w");
}

#[test]
fn when_a_majority_is_lost_no_node_answers_until_the_loss_is_accepted() {
    // The replicas are on nodes 1 to 3; all five nodes know the cluster map.
    let keyspace = "prefix=r: replication=abd durability=fsync replicas=3";
    let mut cluster = setup(5, &[keyspace]).start();
    fill(&mut cluster, 0..10, "v");
    cluster.settle(); // Node 1 holds everything.
    for node in [2, 3] {
        cluster.kill(node);
        cluster.wipe(node);
    }
    cluster.turns(2000);
    let client = cluster.client(1);
    for node in [2, 3] {
        let replace = format!("CLUSTER REPLACE {node}");
        cluster.until("it may be replaced", |cluster| cluster.ask(client, &replace) == "OK");
        cluster.restart(node);
    }
    cluster.turns(3000);
    for node in [2, 3] {
        let lost = cluster.client(node);
        assert!(cluster.ask(lost, "GET r:1").starts_with("-CLUSTERDOWN NOQUORUM"));
        let why = cluster.keyspace(node, "r:").explanation;
        assert!(why.contains("nodes 2, 3, a majority") && why.contains("KEYSPACE RECOVER"), "{why}");
        cluster.kill(node);
    }
    cluster.turns(2000);
    for node in [2, 3] {
        let replace = format!("CLUSTER REPLACE {node} ACCEPTLOSS");
        cluster.until("it may be replaced", |cluster| cluster.ask(client, &replace) == "OK");
        cluster.restart(node);
    }
    cluster.settle();
    assert_filled(&mut cluster, 3, 0..10, "v");
}

/// The other way, without a second restart: the nodes are admitted, and the loss of their data is accepted.
#[test]
fn when_a_majority_has_lost_its_disks_the_keyspace_can_be_recovered() {
    for protocol in ["abd", "blocking"] {
        let keyspace = format!("prefix=r: replication={protocol} durability=fsync replicas=3");
        let mut cluster = setup(5, &[&keyspace]).start();
        fill(&mut cluster, 0..10, "v");
        cluster.settle(); // Node 1 holds everything.
        for node in [2, 3] {
            cluster.kill(node);
            cluster.wipe(node);
        }
        cluster.turns(2000);
        let client = cluster.client(1);
        for node in [2, 3] {
            let replace = format!("CLUSTER REPLACE {node}");
            cluster.until("it may be replaced", |cluster| cluster.ask(client, &replace) == "OK");
            cluster.restart(node);
        }
        cluster.until("it stands still", |cluster| {
            cluster.ask(client, "KEYSPACE RECOVER r:").contains("nodes [2, 3] have lost their memory")
        });
        assert_eq!(cluster.ask(client, "KEYSPACE RECOVER r: ACCEPTLOSS"), "OK");
        cluster.settle();
        assert_filled(&mut cluster, 3, 0..10, "v");
        (1..=3).for_each(|node| cluster.kill(node));
        [2, 3].into_iter().for_each(|node| cluster.restart(node));
        let client = cluster.client(3);
        cluster.until("their records count again", |cluster| cluster.ask(client, "GET r:7") == "\"v7\"");
    }
}

#[test]
fn checkpoints_bound_the_log() {
    let small = |configuration: &mut node::Configuration| {
        (configuration.storage.segment_bytes, configuration.storage.checkpoint_bytes) = (16 << 10, 64 << 10);
    };
    for protocol in ["abd", "blocking"] {
        let keyspace = format!("prefix=r: replication={protocol} durability=fsync");
        let mut cluster = setup(3, &[&keyspace]).with(small).start();
        let value = "v".repeat(500);
        for round in 0..100 {
            fill(&mut cluster, 0..10, &format!("{value}{round}-"));
        }
        cluster.settle();
        for node in 1..=3 {
            let bytes = cluster.log_bytes(node);
            assert!(bytes < 400 << 10, "node {node} keeps {bytes} bytes of half a megabyte and more");
        }
        (1..=3).for_each(|node| cluster.kill(node));
        (1..=3).for_each(|node| cluster.restart(node));
        cluster.settle();
        assert_filled(&mut cluster, 1, 0..10, &format!("{value}99-"));
    }
}
