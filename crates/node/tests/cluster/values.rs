//! Large values on the disk (`storage = "disk"`): what clients see, and what is left when nodes fail.

use crate::support::{Client, Cluster, Setup, assert_error, setup};
use node::StartError;
use protocol::planted::{Fault, Planted};
use storage::simulated::Random;
use storage::{ValueName, ValueStore as _};

const CONSENSUS: &str = "replication=consensus";
const LEADER_FOLLOWER: &str = "replication=leader-follower durability=fsync";
/// Longer values are stored as fragments, and the fragments are on the disk.
const CODED: &str = "replication=consensus coding=2 coding_threshold=500";
/// A keyspace of which nothing is in the log.
const WITHOUT_RECORDS: &str = "replication=leader-follower durability=none";

/// Three nodes; values of a hundred bytes and more are on the disk, with memory for a few of them.
fn three(replication: &str) -> Setup {
    setup(3, &[&format!("prefix= {replication} storage=disk storage_threshold=100 backlog_bytes=20000")])
        .with(|configuration| configuration.storage.cache_bytes = 10_000)
}

/// As [`three`], with frequent checkpoints.
fn with_checkpoints(replication: &str) -> Setup {
    three(replication).with(|configuration| {
        configuration.storage.segment_bytes = 64 << 10;
        configuration.storage.checkpoint_bytes = 32 << 10;
    })
}

fn value(number: usize, length: usize) -> String {
    let letter = |at| char::from(b'a' + ((at * 7 + number * 5 + at / 26) % 26) as u8);
    format!("{number}-{}", (0..length).map(letter).collect::<String>())
}

fn info(cluster: &mut Cluster, node: u16, field: &str) -> u64 {
    let client = cluster.client(node);
    let info = cluster.ask(client, "INFO everything");
    cluster.node(node).disconnect(client.id);
    let start = info.find(&format!("{field}:")).unwrap_or_else(|| panic!("{field} is missing in {info}"));
    let rest = &info[start + field.len() + 1..];
    rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().expect("a number")
}

fn insist(cluster: &mut Cluster, client: Client, request: &str) {
    cluster.until("it is done", |cluster| cluster.ask(client, request) == "OK");
}

fn every_node_takes_every_command_on_a_large_value(replication: &str) {
    let mut cluster = three(replication).start();
    let clients = [1, 2, 3].map(|node| cluster.client(node));
    let large = value(1, 5000);
    let length = large.len();
    assert_eq!(cluster.ask(clients[1], &format!("SET k {large}")), "OK");
    for client in clients {
        assert_eq!(cluster.ask(client, "GET k"), format!("\"{large}\""));
        assert_eq!(cluster.ask(client, "STRLEN k"), length.to_string());
        assert_eq!(cluster.ask(client, "GETRANGE k 7 9"), format!("\"{}\"", &large[7..10]));
        assert_eq!(cluster.ask(client, "OBJECT ENCODING k"), "\"raw\"");
    }
    assert_eq!(cluster.ask(clients[0], "SET small v"), "OK");
    assert_eq!(
        cluster.ask(clients[2], "MGET small k none k"),
        format!("[\"v\", \"{large}\", nil, \"{large}\"]")
    );
    assert_eq!(cluster.ask(clients[2], "COPY k copy"), "1");
    assert_eq!(cluster.ask(clients[1], "RENAME k renamed"), "OK");
    assert_eq!(cluster.ask(clients[1], "EXISTS k renamed copy"), "2");
    assert_eq!(cluster.ask(clients[0], "DEL renamed"), "1");
    assert_eq!(cluster.ask(clients[0], "GET copy"), format!("\"{large}\""));
    assert_eq!(cluster.ask(clients[0], &format!("MSET a {large} b {large}")), "OK");
    assert_eq!(cluster.ask(clients[1], "GET b"), format!("\"{large}\""));
    assert_eq!(cluster.ask(clients[0], &format!("SET fleeting {large} PX 50")), "OK");
    cluster.turns(60);
    assert_eq!(cluster.ask(clients[1], "GET fleeting"), "nil");
    assert_eq!(cluster.ask(clients[1], "FLUSHALL"), "OK");
    cluster.until("nothing is on the disk", |cluster| {
        (1..=3).all(|node| info(cluster, node, "values_on_disk") == 0)
    });
}

fn a_write_that_needs_the_bytes_gets_them(replication: &str) {
    let mut cluster = three(replication).start();
    let (writer, other) = (cluster.client(2), cluster.client(3));
    let large = value(1, 3000);
    let length = large.len();
    let store = |cluster: &mut Cluster| {
        assert_eq!(cluster.ask(writer, &format!("SET k {large}")), "OK");
    };
    store(&mut cluster);
    assert_eq!(cluster.ask(other, "APPEND k xyz"), (length + 3).to_string());
    assert_eq!(cluster.ask(writer, "GET k"), format!("\"{large}xyz\""));
    assert_eq!(info(&mut cluster, 1, "values_on_disk"), 1, "the changed value is on the disk again");
    store(&mut cluster);
    assert_eq!(cluster.ask(other, "SETRANGE k 1 __"), length.to_string());
    assert_eq!(cluster.ask(other, "GETRANGE k 0 3"), format!("\"{}__{}\"", &large[..1], &large[3..4]));
    store(&mut cluster);
    assert_eq!(cluster.ask(other, "SET k v GET"), format!("\"{large}\""));
    store(&mut cluster);
    assert_eq!(cluster.ask(other, "GETEX k PX 60000"), format!("\"{large}\""));
    assert_eq!(cluster.ask(other, "GETDEL k"), format!("\"{large}\""));
    store(&mut cluster);
    assert_error(&cluster.ask(other, "INCR k"), "ERR");
    assert_eq!(cluster.ask(other, &format!("SET k v IFEQ {large}x")), "nil");
    assert_eq!(cluster.ask(other, &format!("SET k v IFEQ {large}")), "OK");
    store(&mut cluster);
    for request in ["MULTI", "GET k", "APPEND k !", "STRLEN k"] {
        cluster.ask(other, request);
    }
    assert_eq!(cluster.ask(other, "EXEC"), format!("[\"{large}\", {0}, {0}]", length + 1));
    let script = [&b"EVAL"[..], b"return #redis.call('GET', KEYS[1])", b"1", b"k"];
    cluster.send_words(other, &script);
    assert_eq!(cluster.reply(other), (length + 1).to_string());
}

fn pipelined_commands_of_one_client_take_effect_in_order(replication: &str) {
    let mut cluster = three(replication).start();
    let client = cluster.client(3);
    let large = value(1, 4000);
    insist(&mut cluster, client, &format!("SET k {large}"));
    // After these writes, the value is no longer in memory.
    for number in 0..10 {
        insist(&mut cluster, client, &format!("SET other{number} {}", value(number, 3000)));
    }
    // As in the server, requests that the node does not want yet stay in the socket.
    let requests = ["GET k", "APPEND k !", "SET k short", "GET k"];
    for request in requests {
        cluster.until("it is wanted", |cluster| cluster.node(3).wants_input(client.id));
        cluster.send(client, request);
    }
    let replies = requests.map(|_| cluster.reply(client));
    let appended = (large.len() + 1).to_string();
    let shown: Vec<&str> = replies.iter().map(|reply| &reply[..reply.len().min(30)]).collect();
    let expected = [format!("\"{large}\""), appended, "OK".into(), "\"short\"".into()];
    assert!(replies == expected, "{shown:?}");
}

fn values_beyond_the_cache_survive_the_death_of_all_nodes(replication: &str) {
    let mut cluster = with_checkpoints(replication).start();
    let client = cluster.client(1);
    for round in 0..2 {
        for number in 0..100 {
            insist(&mut cluster, client, &format!("SET k{number} {}", value(number + round, 1000)));
        }
    }
    for number in 0..100 {
        assert_eq!(
            cluster.ask(client, &format!("GET k{number}")),
            format!("\"{}\"", value(number + 1, 1000))
        );
    }
    let leader = (1..=3).find(|node| info(&mut cluster, *node, "values_cache_misses") > 0);
    let leader = leader.expect("a node has read from the disk");
    assert!(info(&mut cluster, leader, "values_cache_memory") <= 10_000);
    assert_eq!(cluster.ask(client, "GET k7"), cluster.ask(client, "GET k7"));
    assert!(info(&mut cluster, leader, "values_cache_hits") > 0);
    cluster.until("overwritten values are removed", |cluster| {
        insist(cluster, client, "SET small v");
        insist(cluster, client, &format!("SET more {}", value(0, 1000)));
        (1..=3).all(|node| cluster.values(node).len() < 160)
    });
    // Not only the processes end: the machines lose power.
    (1..=3).for_each(|node| cluster.kill(node));
    (1..=3).for_each(|node| cluster.values(node).lose_power(&mut Random::new(node.into())));
    (1..=3).for_each(|node| cluster.restart(node));
    cluster.settle();
    let client = cluster.client(2);
    for number in 0..100 {
        assert_eq!(
            cluster.ask(client, &format!("GET k{number}")),
            format!("\"{}\"", value(number + 1, 1000))
        );
    }
    let removed = |cluster: &mut Cluster, node| cluster.values(node).len() <= 160;
    assert!((1..=3).all(|node| removed(&mut cluster, node)));
}

fn a_snapshot_transfer_includes_the_values(replication: &str) {
    let mut cluster = with_checkpoints(replication).start();
    let client = cluster.client(1);
    insist(&mut cluster, client, "SET small v");
    cluster.kill(3);
    for number in 0..100 {
        insist(&mut cluster, client, &format!("SET k{number} {}", value(number, 1000)));
    }
    cluster.restart(3);
    cluster.until("all values are there", |cluster| info(cluster, 3, "values_on_disk") == 100);
    // Without node 1, node 3 serves together with node 2.
    cluster.until("nothing is in memory only", |cluster| info(cluster, 3, "values_pending_memory") == 0);
    cluster.kill(1);
    let client = cluster.client(3);
    for number in 0..100 {
        let expected = format!("\"{}\"", value(number, 1000));
        cluster.until("it is read", |cluster| cluster.ask(client, &format!("GET k{number}")) == expected);
    }
}

fn a_disk_without_room_for_values_refuses_writes_until_there_is_room(replication: &str) {
    let keyspace = format!("prefix= {replication} storage=disk storage_threshold=100");
    let mut cluster = setup(1, &[&keyspace]).start();
    let client = cluster.client(1);
    insist(&mut cluster, client, &format!("SET k {}", value(1, 1000)));
    cluster.until("it is on the disk", |cluster| info(cluster, 1, "values_pending_memory") == 0);
    cluster.values(1).capacity = Some(1500);
    assert_eq!(cluster.ask(client, &format!("SET l {}", value(2, 1000))), "OK", "the log has it");
    cluster.until("writes are refused", |cluster| cluster.ask(client, "SET m v").starts_with("-NOSPACE"));
    assert_eq!(cluster.ask(client, "GET l"), format!("\"{}\"", value(2, 1000)));
    assert_eq!(cluster.ask(client, "GET k"), format!("\"{}\"", value(1, 1000)));
    cluster.kill(1);
    cluster.values(1).capacity = None;
    cluster.restart(1);
    let client = cluster.client(1);
    insist(&mut cluster, client, "SET m v");
    cluster.values(1).capacity = Some(0);
    insist(&mut cluster, client, &format!("SET n {}", value(3, 1000)));
    cluster.until("writes are refused", |cluster| cluster.ask(client, "SET m v").starts_with("-NOSPACE"));
    cluster.values(1).capacity = None;
    insist(&mut cluster, client, "SET m w");
    assert_eq!(cluster.ask(client, "GET l"), format!("\"{}\"", value(2, 1000)));
}

/// Stores sixty values, of which no node has more than the first ones in memory, and damages them on the disks of `nodes`.
fn sixty_values_damaged_at(setup: Setup, nodes: &[u16]) -> Cluster {
    let mut cluster = setup.start();
    let client = cluster.client(1);
    for number in 0..60 {
        insist(&mut cluster, client, &format!("SET k{number} {}", value(number, 1000)));
    }
    cluster.until("all are on the disk", |cluster| {
        let has_all = |cluster: &mut Cluster, node| {
            info(cluster, node, "values_on_disk") == 60 && info(cluster, node, "values_pending_memory") == 0
        };
        (1..=3).all(|node| has_all(cluster, node))
    });
    for node in nodes.iter().copied() {
        (0..60).for_each(|place| assert!(cluster.values(node).rot(place | place << 20)));
    }
    cluster
}

fn if_all_copies_are_damaged_a_read_fails_and_never_returns_wrong_bytes(replication: &str) {
    let mut cluster = sixty_values_damaged_at(with_checkpoints(replication), &[1, 2, 3]);
    let client = cluster.client(1);
    assert_error(&cluster.ask(client, "GET k0"), "DAMAGED");
    assert_error(&cluster.ask(client, "APPEND k1 v"), "DAMAGED");
    insist(&mut cluster, client, &format!("SET k0 {}", value(7, 1000)));
    assert_eq!(cluster.ask(client, "GET k0"), format!("\"{}\"", value(7, 1000)));
    let damaged =
        |cluster: &mut Cluster| (1..=3).map(|node| info(cluster, node, "values_damaged")).sum::<u64>();
    let before = damaged(&mut cluster);
    cluster.turns(1000);
    assert_eq!(damaged(&mut cluster), before, "nodes do not keep asking each other");
    assert!((1..=3).all(|node| info(&mut cluster, node, "values_repaired") == 0));
}

/// Checks keys that [`sixty_values_damaged_at`] has set, or that were set in the same way.
fn assert_values(cluster: &mut Cluster, client: Client, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let expected = format!("\"{}\"", value(number, 1000));
        assert_eq!(cluster.ask(client, &format!("GET k{number}")), expected, "k{number}");
    }
}

/// The names of the values on a node's disk.
fn names(cluster: &mut Cluster, node: u16) -> Vec<ValueName> {
    let mut names = Vec::new();
    let mut add = |name| {
        names.push(name);
        true
    };
    cluster.values(node).names(&ValueName::FIRST, &mut add).expect("a list is never refused");
    names
}

/// The node whose disk is read for a client of node 1.
fn reader(replication: &str) -> u16 {
    let mut cluster = sixty_values_damaged_at(with_checkpoints(replication), &[]);
    let client = cluster.client(1);
    cluster.ask(client, "GET k0");
    let reads = (1..=3).find(|node| info(&mut cluster, *node, "values_cache_misses") > 0);
    reads.expect("a node has read from the disk")
}

/// How many values on two nodes' disks have the same name but different bytes.
fn differing(cluster: &mut Cluster, one: u16, other: u16) -> u64 {
    let stored =
        names(cluster, one).into_iter().map(|name| (name, cluster.values(one).value(&name).cloned()));
    let stored: Vec<_> = stored.collect();
    let is_other = |(name, value): &(ValueName, _)| {
        cluster.values(other).value(name).is_some_and(|it| Some(it) != Option::as_ref(value))
    };
    stored.into_iter().filter(is_other).count() as u64
}

fn a_damaged_value_is_repaired_from_another_replica(replication: &str) {
    let leader = reader(replication);
    let (next, third) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    for damaged in [vec![leader], vec![leader, next]] {
        let mut cluster = sixty_values_damaged_at(with_checkpoints(replication), &damaged);
        let before = differing(&mut cluster, leader, third);
        let client = cluster.client(1);
        assert_values(&mut cluster, client, 0..30);
        let repaired = info(&mut cluster, leader, "values_repaired");
        assert!((20..=30).contains(&repaired), "{repaired} of those that were not in memory");
        assert_eq!(info(&mut cluster, leader, "values_damaged"), repaired);
        cluster.until("the repaired values are stored", |cluster| {
            info(cluster, leader, "values_pending_memory") == 0
        });
        assert_eq!(differing(&mut cluster, leader, third), before - repaired, "damaged at {damaged:?}");
        let length = value(30, 1000).len() + 1;
        assert_eq!(cluster.ask(client, "APPEND k30 !"), length.to_string(), "a write gets it, too");
    }
}

/// A node of the previous release does not know this message, and would close the link.
fn members_of_the_previous_release_are_not_asked(replication: &str) {
    let leader = reader(replication);
    let mut cluster = sixty_values_damaged_at(with_checkpoints(replication), &[leader]);
    for (one, other) in (1..=3).flat_map(|one| [1, 2, 3].map(|other| (one, other))) {
        if one != other {
            cluster.node(one).peer_link(other, Some(1));
        }
    }
    cluster.settle();
    let client = cluster.client(1);
    assert_error(&cluster.ask(client, "GET k0"), "DAMAGED");
    assert!(info(&mut cluster, leader, "values_repaired") == 0 && cluster.ask(client, "SET a 1") == "OK");
}

fn a_snapshot_transfer_from_a_damaged_disk_has_whole_values(replication: &str) {
    let mut cluster = sixty_values_damaged_at(with_checkpoints(replication), &[]);
    cluster.kill(3);
    let client = cluster.client(1);
    for number in 60..100 {
        insist(&mut cluster, client, &format!("SET k{number} {}", value(number, 1000)));
    }
    cluster.until("all are on the disk", |cluster| {
        (1..=2).all(|node| info(cluster, node, "values_pending_memory") == 0)
    });
    // One of the two nodes has an undamaged copy of each value.
    for node in 1..=2 {
        let names = names(&mut cluster, node);
        let is_chosen = |name: &ValueName| name.0.last().is_some_and(|last| u16::from(last % 2) == node % 2);
        let places = (0..).zip(&names).filter(|(_, name)| is_chosen(name)).map(|(place, _)| place);
        places.for_each(|place| assert!(cluster.values(node).rot(place)));
    }
    cluster.restart(3);
    cluster.until("all values are there", |cluster| info(cluster, 3, "values_on_disk") == 100);
    assert!((1..=2).any(|node| info(&mut cluster, node, "values_repaired") > 0));
    cluster.until("nothing is in memory only", |cluster| info(cluster, 3, "values_pending_memory") == 0);
    cluster.kill(1);
    let client = cluster.client(3);
    for number in 0..100 {
        let expected = format!("\"{}\"", value(number, 1000));
        cluster.until("it is read", |cluster| cluster.ask(client, &format!("GET k{number}")) == expected);
    }
}

/// A paused node is asked for a value: other clients do not wait for it, and another node is asked in time.
fn a_slow_fetch_does_not_hold_up_other_clients(replication: &str) {
    let leader = reader(replication);
    let mut cluster = sixty_values_damaged_at(with_checkpoints(replication), &[leader]);
    let (reads, other) = (cluster.client(leader), cluster.client(leader));
    cluster.pause(leader % 3 + 1);
    cluster.send(reads, "GET k0");
    cluster.turns(5);
    assert_eq!(info(&mut cluster, leader, "values_damaged"), 1, "another node is asked for it");
    let took_ms = cluster.time(|cluster| {
        assert_eq!(cluster.pipeline(other, &["SET a 1", "INCR a", "GET a"]), ["OK", "2", "\"2\""]);
    });
    assert!(took_ms < 100, "they took {took_ms} ms");
    assert_eq!(cluster.arrived(reads), None);
    let took_ms = cluster.time(|cluster| {
        assert_eq!(cluster.reply(reads), format!("\"{}\"", value(0, 1000)));
    });
    assert!(took_ms < 2000, "it took {took_ms} ms");
}

fn values_that_are_not_read_are_scrubbed_and_repaired(replication: &str) {
    let setup =
        with_checkpoints(replication).with(|configuration| configuration.storage.scrub_period_us = 2_000_000);
    let mut cluster = sixty_values_damaged_at(setup, &[2]);
    let pass = |cluster: &mut Cluster, count| {
        let until = info(cluster, 2, "values_scrub_passes") + count;
        cluster.until("all are scrubbed", |cluster| info(cluster, 2, "values_scrub_passes") >= until);
    };
    // One pass may have begun before the values were damaged.
    pass(&mut cluster, 2);
    // Some damaged values may have been overwritten by writes that were sent again.
    let damaged = info(&mut cluster, 2, "values_damaged");
    assert!((50..=60).contains(&damaged), "{damaged} are found");
    assert_eq!(info(&mut cluster, 2, "values_repaired"), damaged);
    pass(&mut cluster, 2);
    assert_eq!(info(&mut cluster, 2, "values_damaged"), damaged, "repaired values are whole");
    assert!(info(&mut cluster, 2, "values_cache_memory") <= 10_000);
    let (scrubbed, passes) =
        (info(&mut cluster, 2, "values_scrubbed"), info(&mut cluster, 2, "values_scrub_passes"));
    assert!(scrubbed <= 60 * (passes + 2), "{scrubbed} values in {passes} passes");
}

/// How many values on a node's disk are not what their names say.
fn not_whole(cluster: &mut Cluster, node: u16) -> usize {
    let names = names(cluster, node);
    let mut is_whole = |name: &ValueName| {
        let value = cluster.values(node).value(name).expect("it is listed");
        name.0.ends_with(&kv::digest::digest_of(value).to_be_bytes())
    };
    names.iter().filter(|name| !is_whole(name)).count()
}

#[test]
fn pieces_of_fragments_that_are_not_read_are_scrubbed_and_rebuilt() {
    let setup =
        with_checkpoints(CODED).with(|configuration| configuration.storage.scrub_period_us = 2_000_000);
    let mut cluster = setup.start();
    let client = cluster.client(1);
    for number in 0..60 {
        insist(&mut cluster, client, &format!("SET k{number} {}", value(number, 1000)));
    }
    cluster.until("all are on the disks", |cluster| {
        let has_all = |cluster: &mut Cluster, node| {
            names(cluster, node).len() == 60 && info(cluster, node, "values_pending_memory") == 0
        };
        (1..=3).all(|node| has_all(cluster, node))
    });
    assert_eq!(info(&mut cluster, 2, "values_on_disk"), 0, "no value is there as a whole");
    (0..60).for_each(|place| assert!(cluster.values(2).rot(place | place << 20)));
    assert_eq!(not_whole(&mut cluster, 2), 60);
    cluster.until("all are found", |cluster| info(cluster, 2, "values_damaged") == 60);
    cluster.until("all are rebuilt", |cluster| {
        info(cluster, 2, "values_repaired") == 60 && info(cluster, 2, "coded_fragments_lacking") == 0
    });
    cluster.until("they are stored", |cluster| info(cluster, 2, "values_pending_memory") == 0);
    assert_eq!(not_whole(&mut cluster, 2), 0);
    let passes = info(&mut cluster, 2, "values_scrub_passes");
    cluster.until("all are scrubbed", |cluster| info(cluster, 2, "values_scrub_passes") >= passes + 2);
    assert_eq!(info(&mut cluster, 2, "values_damaged"), 60, "rebuilt pieces are whole");
    // Every value now needs the fragment of node 2.
    cluster.kill(1);
    let client = cluster.client(3);
    for number in 0..60 {
        let expected = format!("\"{}\"", value(number, 1000));
        cluster.until("it is read", |cluster| cluster.ask(client, &format!("GET k{number}")) == expected);
    }
}

/// What is found damaged while no other replica can be reached would stay so until the next pass.
fn scrubbing_pauses_while_no_other_replica_can_be_reached(replication: &str) {
    let setup =
        with_checkpoints(replication).with(|configuration| configuration.storage.scrub_period_us = 2_000_000);
    let mut cluster = sixty_values_damaged_at(setup, &[]);
    [1, 3].into_iter().for_each(|node| cluster.kill(node));
    cluster.turns(10);
    (0..60).for_each(|place| assert!(cluster.values(2).rot(place | place << 20)));
    let scrubbed = info(&mut cluster, 2, "values_scrubbed");
    cluster.turns(4000);
    assert_eq!(info(&mut cluster, 2, "values_scrubbed"), scrubbed);
    assert_eq!(info(&mut cluster, 2, "values_damaged"), 0);
    [1, 3].into_iter().for_each(|node| cluster.restart(node));
    let passes = info(&mut cluster, 2, "values_scrub_passes");
    cluster.until("all are scrubbed", |cluster| info(cluster, 2, "values_scrub_passes") >= passes + 2);
    let damaged = info(&mut cluster, 2, "values_damaged");
    assert!((50..=60).contains(&damaged), "{damaged} are found");
    assert_eq!(info(&mut cluster, 2, "values_repaired"), damaged);
}

fn long_damaged_values_are_fetched_in_parts(replication: &str) {
    let setup = with_checkpoints(replication).with(|configuration| configuration.long_command_bytes = 300);
    let mut cluster = sixty_values_damaged_at(setup, &[1, 2]);
    let client = cluster.client(1);
    for number in 0..60 {
        assert_eq!(
            cluster.ask(client, &format!("GET k{number}")),
            format!("\"{}\"", value(number, 1000)),
            "k{number}"
        );
    }
    assert!((1..=2).any(|node| info(&mut cluster, node, "values_repaired") > 0));
    assert!(info(&mut cluster, 3, "long_replies") > 0, "node 3 has sent them in parts");
}

fn a_node_without_its_values_does_not_start(replication: &str) {
    let mut cluster = with_checkpoints(replication).start();
    let client = cluster.client(1);
    for number in 0..100 {
        insist(&mut cluster, client, &format!("SET k{number} {}", value(number, 2000)));
    }
    cluster.kill(2);
    *cluster.values(2) = Default::default();
    let why = cluster.try_restart(2).expect_err("values are missing");
    assert!(matches!(&why, StartError::Values(_)), "{why}");
    assert!(why.to_string().contains("lacks") && why.to_string().contains("'default'"), "{why}");
}

fn a_dropped_keyspace_leaves_nothing_on_the_disk(replication: &str) {
    let mut cluster = three(replication).start();
    let client = cluster.client(1);
    let created = format!("KEYSPACE CREATE blob: {replication} storage=disk storage_threshold=100");
    insist(&mut cluster, client, &created);
    cluster.until("it is served", |cluster| {
        cluster.ask(client, &format!("SET blob:k {}", value(1, 1000))) == "OK"
    });
    insist(&mut cluster, client, &format!("SET other {}", value(2, 1000)));
    assert_error(&cluster.ask(client, "KEYSPACE SET blob: storage=memory"), "ERR");
    insist(&mut cluster, client, "KEYSPACE DROP blob:");
    cluster.until("its values are gone", |cluster| (1..=3).all(|node| cluster.values(node).len() == 1));
    assert_eq!(cluster.ask(client, "GET other"), format!("\"{}\"", value(2, 1000)));
}

/// The tests that every protocol must pass.
macro_rules! with_each {
    ($protocol:ident, $replication:expr, $($test:ident),+ $(,)?) => {
        mod $protocol {
            $(
                #[test]
                fn $test() {
                    super::$test($replication);
                }
            )+
        }
    };
}

with_each!(
    consensus,
    super::CONSENSUS,
    every_node_takes_every_command_on_a_large_value,
    a_write_that_needs_the_bytes_gets_them,
    pipelined_commands_of_one_client_take_effect_in_order,
    values_beyond_the_cache_survive_the_death_of_all_nodes,
    a_snapshot_transfer_includes_the_values,
    a_disk_without_room_for_values_refuses_writes_until_there_is_room,
    if_all_copies_are_damaged_a_read_fails_and_never_returns_wrong_bytes,
    a_damaged_value_is_repaired_from_another_replica,
    members_of_the_previous_release_are_not_asked,
    a_snapshot_transfer_from_a_damaged_disk_has_whole_values,
    long_damaged_values_are_fetched_in_parts,
    a_slow_fetch_does_not_hold_up_other_clients,
    values_that_are_not_read_are_scrubbed_and_repaired,
    scrubbing_pauses_while_no_other_replica_can_be_reached,
    a_node_without_its_values_does_not_start,
    a_dropped_keyspace_leaves_nothing_on_the_disk,
);

with_each!(
    leader_follower,
    super::LEADER_FOLLOWER,
    every_node_takes_every_command_on_a_large_value,
    a_write_that_needs_the_bytes_gets_them,
    pipelined_commands_of_one_client_take_effect_in_order,
    values_beyond_the_cache_survive_the_death_of_all_nodes,
    a_snapshot_transfer_includes_the_values,
    a_disk_without_room_for_values_refuses_writes_until_there_is_room,
    if_all_copies_are_damaged_a_read_fails_and_never_returns_wrong_bytes,
    a_damaged_value_is_repaired_from_another_replica,
    members_of_the_previous_release_are_not_asked,
    a_snapshot_transfer_from_a_damaged_disk_has_whole_values,
    long_damaged_values_are_fetched_in_parts,
    a_slow_fetch_does_not_hold_up_other_clients,
    values_that_are_not_read_are_scrubbed_and_repaired,
    scrubbing_pauses_while_no_other_replica_can_be_reached,
    a_node_without_its_values_does_not_start,
    a_dropped_keyspace_leaves_nothing_on_the_disk,
);

with_each!(
    coded,
    super::CODED,
    every_node_takes_every_command_on_a_large_value,
    a_write_that_needs_the_bytes_gets_them,
    pipelined_commands_of_one_client_take_effect_in_order,
    a_node_without_its_values_does_not_start,
    a_dropped_keyspace_leaves_nothing_on_the_disk,
);

with_each!(
    without_records,
    super::WITHOUT_RECORDS,
    a_write_that_needs_the_bytes_gets_them,
    a_snapshot_transfer_includes_the_values,
    if_all_copies_are_damaged_a_read_fails_and_never_returns_wrong_bytes,
    a_damaged_value_is_repaired_from_another_replica,
    members_of_the_previous_release_are_not_asked,
    a_snapshot_transfer_from_a_damaged_disk_has_whole_values,
    long_damaged_values_are_fetched_in_parts,
    a_slow_fetch_does_not_hold_up_other_clients,
    values_that_are_not_read_are_scrubbed_and_repaired,
    a_dropped_keyspace_leaves_nothing_on_the_disk,
);

#[test]
fn without_records_a_value_is_removed_when_no_key_refers_to_it() {
    let mut cluster = three(WITHOUT_RECORDS).start();
    let client = cluster.client(1);
    for number in 0..50 {
        insist(&mut cluster, client, &format!("SET k {}", value(number, 1000)));
    }
    cluster.until("one is left", |cluster| (1..=3).all(|node| cluster.values(node).len() == 1));
    // Nothing in the log refers to what a node held before it died: it starts with an empty store.
    cluster.kill(3);
    insist(&mut cluster, client, &format!("SET k {}", value(50, 1000)));
    assert_eq!(cluster.ask(client, "DEL k"), "1");
    cluster.restart(3);
    cluster.until("none is left", |cluster| (1..=3).all(|node| cluster.values(node).is_empty()));
}

#[test]
fn without_records_writes_are_refused_while_there_is_no_room_for_values() {
    let keyspace = format!("prefix= {WITHOUT_RECORDS} storage=disk storage_threshold=100");
    let mut cluster = setup(1, &[&keyspace]).start();
    let client = cluster.client(1);
    cluster.values(1).capacity = Some(1500);
    for number in 0..2 {
        insist(&mut cluster, client, &format!("SET k{number} {}", value(number, 1000)));
    }
    cluster.until("writes are refused", |cluster| cluster.ask(client, "SET m v").starts_with("-NOSPACE"));
    assert_eq!(cluster.ask(client, "GET k1"), format!("\"{}\"", value(1, 1000)));
    cluster.values(1).capacity = None;
    insist(&mut cluster, client, "SET m v");
}

#[test]
fn a_follower_reads_from_its_own_store() {
    let mut cluster = three("replication=leader-follower reads=any").start();
    let (client, reader) = (cluster.client(1), cluster.client(3));
    for number in 0..20 {
        insist(&mut cluster, client, &format!("SET k{number} {}", value(number, 1000)));
    }
    cluster.until("node 3 has all", |cluster| {
        info(cluster, 3, "values_on_disk") == 20 && info(cluster, 3, "values_pending_memory") == 0
    });
    let before = info(&mut cluster, 1, "values_cache_misses");
    for number in 0..20 {
        assert_eq!(cluster.ask(reader, &format!("GET k{number}")), format!("\"{}\"", value(number, 1000)));
    }
    assert!(info(&mut cluster, 3, "values_cache_misses") > 0);
    assert_eq!(info(&mut cluster, 1, "values_cache_misses"), before, "the leader was not asked");
}

/// Stores values as fragments, which are in a checkpoint, and then overwrites a few. All processes die after the
/// overwritten values have been kept long enough for readers, and before the next checkpoint.
fn fragments_before_a_crash(fault: Option<Fault>) -> Cluster {
    let planted = fault.map(Planted::one).unwrap_or_default();
    let mut cluster = with_checkpoints(CODED)
        .with(|configuration| {
            configuration.storage.checkpoint_bytes = 100 << 10;
            configuration.planted = planted;
        })
        .start();
    let client = cluster.client(1);
    for number in 0..100 {
        insist(&mut cluster, client, &format!("SET k{number} {}", value(number + 1, 2000)));
    }
    cluster.turns(100);
    for number in 0..5 {
        insist(&mut cluster, client, &format!("SET k{number} {}", value(number, 2000)));
    }
    cluster.turns(6000);
    insist(&mut cluster, client, "SET small v");
    cluster.turns(100);
    (1..=3).for_each(|node| cluster.kill(node));
    cluster
}

#[test]
fn fragments_on_the_disk_survive_all_deaths_until_nothing_refers_to_them() {
    let mut cluster = fragments_before_a_crash(None);
    assert_eq!(cluster.values(1).len(), 105, "a restart may need the overwritten values");
    (1..=3).for_each(|node| cluster.values(node).lose_power(&mut Random::new(node.into())));
    (1..=3).for_each(|node| cluster.restart(node));
    cluster.settle();
    for reader in 1..=3 {
        let client = cluster.client(reader);
        for number in 0..100 {
            let expected = format!("\"{}\"", value(number + usize::from(number >= 5), 2000));
            assert_eq!(cluster.ask(client, &format!("GET k{number}")), expected, "k{number} at {reader}");
        }
        assert!(info(&mut cluster, reader, "values_cache_misses") > 0, "fragments are read from the disk");
        assert!(info(&mut cluster, reader, "values_cache_memory") <= 10_000);
    }
    let client = cluster.client(1);
    for number in 0..100 {
        assert_eq!(cluster.ask(client, &format!("DEL k{number}")), "1");
    }
    let mut round = 0;
    cluster.until("nothing is left on the disk", |cluster| {
        round += 1;
        insist(cluster, client, &format!("SET small {round}-{}", "v".repeat(90)));
        (1..=3).all(|node| cluster.values(node).is_empty())
    });
}

#[test]
fn a_fragment_removed_too_early_is_missing_at_the_next_start() {
    let mut cluster = fragments_before_a_crash(Some(Fault::ValueRemovedEarly));
    let why = cluster.try_restart(1);
    assert!(matches!(why, Err(StartError::Values(_))), "{why:?}");
}

#[test]
fn a_replica_that_was_away_rebuilds_its_fragments_on_the_disk() {
    let mut cluster = with_checkpoints(CODED).start();
    let client = cluster.client(1);
    insist(&mut cluster, client, "SET small v");
    cluster.kill(3);
    for number in 0..50 {
        insist(&mut cluster, client, &format!("SET k{number} {}", value(number, 1000)));
    }
    cluster.restart(3);
    cluster.until("all fragments are there", |cluster| {
        info(cluster, 3, "coded_fragments") == 50
            && info(cluster, 3, "coded_fragments_lacking") == 0
            && info(cluster, 3, "values_pending_memory") == 0
    });
    assert_eq!(info(&mut cluster, 3, "coded_fragments_rebuilt"), 50, "each once");
    assert!(cluster.values(3).len() >= 50);
    cluster.kill(1);
    let client = cluster.client(3);
    for number in 0..50 {
        let expected = format!("\"{}\"", value(number, 1000));
        cluster.until("it is read", |cluster| cluster.ask(client, &format!("GET k{number}")) == expected);
    }
}

#[test]
fn a_damaged_fragment_on_the_disk_is_not_used_and_is_rebuilt() {
    let mut cluster = with_checkpoints(CODED).start();
    let client = cluster.client(2);
    for number in 0..50 {
        insist(&mut cluster, client, &format!("SET k{number} {}", value(number, 1000)));
    }
    cluster.until("all are on the disk", |cluster| {
        (1..=3).all(|node| info(cluster, node, "values_pending_memory") == 0)
    });
    // Nothing is in memory any more.
    (1..=3).for_each(|node| cluster.kill(node));
    (1..=3).for_each(|node| cluster.restart(node));
    cluster.settle();
    (0..200).for_each(|place| assert!(cluster.values(3).rot(place | place << 20)));
    let reader = cluster.client(3);
    for number in 0..50 {
        let expected = format!("\"{}\"", value(number, 1000));
        assert_eq!(cluster.ask(reader, &format!("GET k{number}")), expected, "k{number}");
    }
    cluster.until("damaged fragments are rebuilt", |cluster| {
        info(cluster, 3, "coded_fragments_rebuilt") > 0 && info(cluster, 3, "coded_fragments_lacking") == 0
    });
}

#[test]
fn a_command_may_need_a_value_on_the_disk_and_one_in_fragments() {
    let mut cluster = three(CODED).start();
    let (leader, other) = (cluster.client(1), cluster.client(3));
    let (short, long) = (value(1, 200), value(2, 2000));
    let store = |cluster: &mut Cluster| {
        assert_eq!(cluster.ask(other, &format!("MSET s {short}")), "OK");
        assert_eq!(cluster.ask(leader, &format!("SET l {long}")), "OK");
        cluster.until("neither is in memory", |cluster| info(cluster, 1, "values_pending_memory") == 0);
    };
    for client in [leader, other] {
        store(&mut cluster);
        let both = format!("[\"{short}\", \"{long}\", nil]");
        assert_eq!(cluster.ask(client, "MGET s l none"), both);
        for request in ["MULTI", "GET s", "APPEND l !", "GET l"] {
            cluster.ask(client, request);
        }
        let expected = format!("[\"{short}\", {}, \"{long}!\"]", long.len() + 1);
        assert_eq!(cluster.ask(client, "EXEC"), expected);
    }
    assert_eq!(info(&mut cluster, 2, "values_on_disk"), 2, "the changed value is on the disk as a whole");
}
