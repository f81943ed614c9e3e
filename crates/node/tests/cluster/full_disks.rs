//! Full disks: of all nodes, and of one.

use crate::support::{Cluster, assert_error, setup};

/// Each protocol whose replicas keep records.
const KEYSPACES: [&str; 5] = [
    "prefix=r: replication=consensus",
    "prefix=r: replication=leader-follower acks=all durability=fsync",
    "prefix=r: replication=leader-follower acks=majority durability=os",
    "prefix=r: replication=abd durability=fsync",
    "prefix=r: replication=blocking durability=fsync",
];

const KEYS: usize = 100;

fn value(number: usize) -> String {
    format!("{number:06}").repeat(200)
}

/// Starts a cluster of three with some keys, and with small segments.
fn filled(keyspace: &str) -> Cluster {
    let small = |configuration: &mut node::Configuration| {
        configuration.storage.segment_bytes = 64 << 10;
        configuration.storage.checkpoint_bytes = 64 << 10;
    };
    let mut cluster = setup(3, &[keyspace]).with(small).start();
    let client = cluster.client(1);
    for number in 0..KEYS {
        let set = format!("SET r:{number} {}", value(number));
        cluster.until("it is written", |cluster| cluster.ask(client, &set) == "OK");
    }
    cluster
}

fn assert_readable(cluster: &mut Cluster, numbers: impl Iterator<Item = usize> + Clone) {
    for node in 1..=3 {
        let client = cluster.client(node);
        for number in numbers.clone() {
            let expected = format!("\"{}\"", value(number));
            cluster
                .until("it is read", |cluster| cluster.ask(client, &format!("GET r:{number}")) == expected);
        }
        cluster.close(client);
    }
}

/// Fills all disks, and then the logs, until every node refuses writes.
fn fill_all(cluster: &mut Cluster) {
    (1..=3).for_each(|node| cluster.set_disk_full(node, true));
    let clients = [1, 2, 3].map(|node| cluster.client(node));
    cluster.until("writes are refused by all", |cluster| {
        let set = format!("SET r:0 {}", value(0));
        clients.iter().all(|client| cluster.ask(*client, &set).starts_with("-NOSPACE"))
    });
    clients.into_iter().for_each(|client| cluster.close(client));
}

#[test]
fn when_all_disks_are_full_reads_and_deletions_go_on_and_deletions_free_space() {
    for keyspace in KEYSPACES {
        println!("{keyspace}");
        let mut cluster = filled(keyspace);
        fill_all(&mut cluster);
        assert_readable(&mut cluster, (0..KEYS).step_by(9));
        // The disks stay full for longer than any lease, and the nodes are then restarted without room.
        cluster.turns(3000);
        assert_readable(&mut cluster, (0..KEYS).step_by(17));
        for node in 1..=3 {
            cluster.kill(node);
            cluster.restart(node);
            cluster.settle();
        }
        assert_readable(&mut cluster, (0..KEYS).step_by(9));
        for node in 1..=3 {
            let client = cluster.client(node);
            let number = usize::from(node);
            assert_eq!(cluster.ask(client, &format!("DEL r:{number}")), "1", "{keyspace}");
            assert_eq!(cluster.ask(client, &format!("GET r:{number}")), "nil");
            assert_error(&cluster.ask(client, &format!("SET r:{number} v")), "NOSPACE");
        }
        assert_readable(&mut cluster, (4..KEYS).step_by(9));
        let client = cluster.client(2);
        if keyspace.contains("=abd") || keyspace.contains("=blocking") {
            // Registers have no command that removes all keys.
            for number in 4..KEYS {
                assert_eq!(cluster.ask(client, &format!("DEL r:{number}")), "1", "{keyspace}");
            }
        } else {
            assert_eq!(cluster.ask(client, "FLUSHALL"), "OK", "{keyspace}");
        }
        for node in 1..=3 {
            let client = cluster.client(node);
            cluster.until("there is room, though the disk has no more", |cluster| {
                cluster.ask(client, &format!("SET r:{node} v")) == "OK"
            });
        }
        (1..=3).for_each(|node| cluster.kill(node));
        (1..=3).for_each(|node| cluster.restart(node));
        cluster.settle();
        let client = cluster.client(3);
        for node in 1..=3 {
            assert_eq!(cluster.ask(client, &format!("GET r:{node}")), "\"v\"", "{keyspace}");
        }
        assert_eq!(cluster.ask(client, "GET r:50"), "nil");
    }
}

#[test]
fn while_one_disk_is_full_its_node_stands_aside_and_forwards_writes() {
    for keyspace in KEYSPACES {
        for full in 1..=3 {
            println!("{keyspace}, node {full}");
            let mut cluster = filled(keyspace);
            cluster.set_disk_full(full, true);
            let clients = [1, 2, 3].map(|node| cluster.client(node));
            let mut written = KEYS;
            let mut write = |cluster: &mut Cluster, place: usize| {
                written += 1;
                let reply = cluster.ask(clients[place], &format!("SET r:{written} {}", value(written)));
                // There may be no leader for a moment, or the request is on its way to a node that stands aside.
                let codes = ["OK", "-TRYAGAIN", "-NOLEADER", "-UNKNOWN", "-LOST"];
                assert!(codes.iter().any(|code| reply.starts_with(code)), "{reply}");
                reply == "OK"
            };
            cluster.until("its node says so", |cluster| {
                write(cluster, written_by(full));
                cluster.health(full).disk_full
            });
            for place in 0..3 {
                cluster.until("others go on", |cluster| write(cluster, place));
            }
            let begun = cluster.now.monotonic_us;
            for number in 0..300 {
                assert!(write(&mut cluster, number % 3), "{keyspace}, node {full} full");
            }
            let took_ms = (cluster.now.monotonic_us - begun) / 1000;
            assert!(took_ms < 3000, "{keyspace}, node {full} full: 300 writes took {took_ms} ms");
            let last = written;
            cluster.set_disk_full(full, false);
            cluster.until("there is room again", |cluster| !cluster.health(full).disk_full);
            cluster.settle();
            cluster.kill(full % 3 + 1);
            let client = clients[usize::from(full) - 1];
            for number in last - 299..=last {
                let expected = format!("\"{}\"", value(number));
                cluster.until("it has caught up", |cluster| {
                    cluster.ask(client, &format!("GET r:{number}")) == expected
                });
            }
        }
    }
}

/// Returns the index of the client that writes: of a node other than the full one.
fn written_by(full: u16) -> usize {
    usize::from(full % 3)
}

/// How often a follower got what it lacked from the backlog, and how often a snapshot, as all nodes together count them.
fn resyncs(cluster: &mut Cluster) -> (u64, u64) {
    let mut counted = (0, 0);
    for node in 1..=3 {
        let client = cluster.client(node);
        let info = cluster.ask(client, "INFO stats");
        cluster.close(client);
        let field = |name: &str| -> u64 {
            let from = info.find(name).expect("it is counted") + name.len();
            info[from..]
                .chars()
                .take_while(char::is_ascii_digit)
                .collect::<String>()
                .parse()
                .expect("a number")
        };
        counted.0 += field("sync_partial_ok:");
        counted.1 += field("sync_full:");
    }
    counted
}

#[test]
fn a_follower_whose_disk_was_full_gets_what_it_lacks_from_the_backlog() {
    for keyspace in KEYSPACES.into_iter().filter(|it| it.contains("leader-follower")) {
        for full in 1..=3 {
            let mut cluster = filled(keyspace);
            let (_, before) = resyncs(&mut cluster);
            let client = cluster.client(full % 3 + 1);
            cluster.set_disk_full(full, true);
            let mut written = KEYS;
            let mut write = |cluster: &mut Cluster| {
                written += 1;
                let set = format!("SET r:{written} {}", value(written));
                cluster.until("it is written", |cluster| cluster.ask(client, &set) == "OK");
                written
            };
            cluster.until("its node says so", |cluster| {
                write(cluster);
                cluster.health(full).disk_full
            });
            let last = (0..300).map(|_| write(&mut cluster)).last().expect("it has written");
            cluster.set_disk_full(full, false);
            cluster.until("there is room again", |cluster| !cluster.health(full).disk_full);
            cluster.until("all are in step", |cluster| (1..=3).all(|node| cluster.health(node).serves_all()));
            cluster.settle();
            let (partial, whole) = resyncs(&mut cluster);
            assert_eq!(whole, before, "{keyspace}, node {full}: {partial} from the backlog");
            cluster.kill(full % 3 + 1);
            let client = cluster.client(full);
            for number in [KEYS + 1, last - 100, last] {
                let expected = format!("\"{}\"", value(number));
                cluster.until("it has caught up", |cluster| {
                    cluster.ask(client, &format!("GET r:{number}")) == expected
                });
            }
        }
    }
}
