//! Large values stored as fragments: what clients see, and what is left when nodes fail.

use crate::support::{Client, Cluster, Setup, assert_error, setup};

/// Five nodes; values of a hundred bytes and more are in three parts.
fn five() -> Setup {
    setup(5, &["prefix= replication=consensus coding=3 coding_threshold=100"])
}

fn value(byte: char, length: usize) -> String {
    (0..length).map(|at| if at % 7 == 0 { byte } else { char::from(b'a' + (at % 26) as u8) }).collect()
}

fn insist(cluster: &mut Cluster, client: Client, request: &str) {
    cluster.until("it is done", |cluster| cluster.ask(client, request) == "OK");
}

/// Returns a number from a node's `INFO`.
fn info(cluster: &mut Cluster, node: u16, field: &str) -> u64 {
    let client = cluster.client(node);
    let info = cluster.ask(client, "INFO coding");
    cluster.node(node).disconnect(client.id);
    let start = info.find(&format!("{field}:")).unwrap_or_else(|| panic!("{field} is missing in {info}"));
    let rest = &info[start + field.len() + 1..];
    rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().expect("a number")
}

#[test]
fn every_node_takes_every_command_on_a_large_value() {
    let mut cluster = five().start();
    let clients = [1, 2, 3, 4, 5].map(|node| cluster.client(node));
    let large = value('A', 10_000);
    assert_eq!(cluster.ask(clients[1], &format!("SET k {large}")), "OK");
    for client in clients {
        assert_eq!(cluster.ask(client, "GET k"), format!("\"{large}\""));
        assert_eq!(cluster.ask(client, "STRLEN k"), "10000");
        assert_eq!(cluster.ask(client, "GETRANGE k 7 9"), format!("\"{}\"", &large[7..10]));
        assert_eq!(cluster.ask(client, "OBJECT ENCODING k"), "\"raw\"");
    }
    assert_eq!(cluster.ask(clients[0], "SET small v"), "OK");
    assert_eq!(
        cluster.ask(clients[2], "MGET small k none k"),
        format!("[\"v\", \"{large}\", nil, \"{large}\"]")
    );
    assert_eq!(cluster.ask(clients[3], "COPY k copy"), "1");
    assert_eq!(cluster.ask(clients[3], "RENAME k renamed"), "OK");
    assert_eq!(cluster.ask(clients[4], "EXISTS k renamed copy"), "2");
    assert_eq!(cluster.ask(clients[4], "DEL renamed"), "1");
    assert_eq!(cluster.ask(clients[0], "GET copy"), format!("\"{large}\""));
    assert_eq!(cluster.ask(clients[0], &format!("SET copy {large} NX")), "nil");
    assert_eq!(cluster.ask(clients[0], &format!("SET fleeting {large} PX 50")), "OK");
    cluster.turns(60);
    assert_eq!(cluster.ask(clients[1], "GET fleeting"), "nil");
    cluster.until("only the fragments of copy are left", |cluster| {
        (1..=5).all(|node| info(cluster, node, "coded_fragments") == 1)
    });
}

/// Keys of several shards and of another keyspace, whose values are in fragments, whole, or neither yet.
#[test]
fn large_values_take_part_in_transactions_over_shards() {
    let keyspaces = [
        "prefix= replication=consensus shards=3 coding=3 coding_threshold=100",
        "prefix=@1 replication=consensus coding=2 coding_threshold=100",
    ];
    for node in 1..=5 {
        let mut cluster = setup(5, &keyspaces).start();
        let (client, database) = (cluster.client(node), cluster.client(node));
        assert_eq!(cluster.ask(database, "SELECT 1"), "OK");
        let values = ['A', 'B', 'C'].map(|byte| value(byte, 3000));
        for (key, value) in ["a", "b", "c"].iter().zip(&values) {
            assert_eq!(cluster.ask(client, &format!("SET {key} {value}")), "OK");
        }
        let [a, b, c] = values.each_ref().map(|value| format!("\"{value}\""));
        assert_eq!(cluster.ask(client, "MGET a b none c"), format!("[{a}, {b}, nil, {c}]"));
        let transaction = |cluster: &mut Cluster, commands: &[&str]| {
            assert_eq!(cluster.ask(client, "MULTI"), "OK");
            commands.iter().for_each(|command| assert_eq!(cluster.ask(client, command), "QUEUED"));
            cluster.ask(client, "EXEC")
        };
        assert_eq!(
            transaction(&mut cluster, &["GET a", "SET small v", "GETRANGE b 0 1"]),
            format!("[{a}, OK, \"{}\"]", &b[1..3])
        );
        assert_eq!(
            transaction(&mut cluster, &["APPEND a x", "APPEND b y", "APPEND c z"]),
            "[3001, 3001, 3001]"
        );
        let longer = [&values[0], "x"].concat();
        assert_eq!(cluster.ask(client, "GET a"), format!("\"{longer}\""));
        // In fragments again: they are moved, and overwritten.
        for (key, value) in ["a", "b", "c"].iter().zip(&values) {
            assert_eq!(cluster.ask(client, &format!("SET {key} {value}")), "OK");
        }
        assert_eq!(cluster.ask(client, "RENAME a d"), "OK");
        assert_eq!(cluster.ask(client, "COPY b e"), "1");
        assert_eq!(cluster.ask(client, "MOVE c 1"), "1");
        assert_eq!(cluster.ask(client, "MGET a b c d e"), format!("[nil, {b}, nil, {a}, {b}]"));
        assert_eq!(cluster.ask(database, "GET c"), c);
        assert_eq!(cluster.ask(client, &format!("MSET b {0} d {0} e small", values[2])), "OK");
        assert_eq!(cluster.ask(client, "MGET b d e"), format!("[{c}, {c}, \"small\"]"));
        // Whatever leads now has the same.
        cluster.kill(node);
        cluster.restart(node);
        let other = cluster.client(node % 5 + 1);
        cluster.until("it is done", |cluster| cluster.ask(other, "APPEND d w") == "3001");
        let found = format!("[{c}, \"{}w\"]", values[2]);
        cluster.until("it is read", |cluster| cluster.ask(other, "MGET b d") == found);
        cluster.until("no fragments are left", |cluster| {
            (1..=5).all(|node| info(cluster, node, "coded_fragments") == 0)
        });
    }
}

#[test]
fn a_write_that_needs_the_bytes_gets_them() {
    let mut cluster = five().start();
    let (writer, other) = (cluster.client(2), cluster.client(4));
    let large = value('A', 3000);
    let store = |cluster: &mut Cluster| {
        assert_eq!(cluster.ask(writer, &format!("SET k {large}")), "OK");
    };
    store(&mut cluster);
    assert_eq!(cluster.ask(other, "APPEND k xyz"), "3003");
    assert_eq!(cluster.ask(writer, "GET k"), format!("\"{large}xyz\""));
    store(&mut cluster);
    assert_eq!(cluster.ask(other, "SETRANGE k 1 __"), "3000");
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
}

#[test]
fn transactions_read_and_change_large_values_in_one_step() {
    let mut cluster = five().start();
    let (one, other) = (cluster.client(2), cluster.client(4));
    let large = value('A', 3000);
    assert_eq!(cluster.ask(one, &format!("SET k {large}")), "OK");
    assert_eq!(cluster.pipeline(one, &["MULTI", "GET k", "STRLEN k"]), ["OK", "QUEUED", "QUEUED"]);
    assert_eq!(cluster.ask(one, "EXEC"), format!("[\"{large}\", 3000]"));
    assert_eq!(cluster.ask(one, "WATCH k"), "OK");
    assert_eq!(cluster.pipeline(one, &["MULTI", "APPEND k x", "GET k"]), ["OK", "QUEUED", "QUEUED"]);
    assert_eq!(cluster.ask(one, "EXEC"), format!("[3001, \"{large}x\"]"), "what is put in is no change");
    assert_eq!(cluster.ask(one, "WATCH k"), "OK");
    assert_eq!(cluster.ask(other, &format!("SET k {large}")), "OK");
    assert_eq!(cluster.pipeline(one, &["MULTI", "APPEND k x"]), ["OK", "QUEUED"]);
    assert_eq!(cluster.ask(one, "EXEC"), "nil");
}

#[test]
fn any_minority_may_fail_and_stored_values_can_be_read() {
    for dead in [[1, 2], [2, 5], [4, 5]] {
        let mut cluster = five().start();
        let client = cluster.client(3);
        let large = value('A', 5000);
        assert_eq!(cluster.ask(client, &format!("SET k {large}")), "OK");
        dead.into_iter().for_each(|node| cluster.kill(node));
        // Node 3, which has the value in memory, loses it.
        cluster.kill(3);
        cluster.restart(3);
        let client = cluster.client(3);
        insist(&mut cluster, client, "SET after v");
        assert_eq!(cluster.ask(client, "GET k"), format!("\"{large}\""), "without {dead:?}");
        // With two nodes missing, the others store whole copies.
        insist(&mut cluster, client, &format!("SET l {large}"));
        assert_eq!(cluster.ask(client, "GET l"), format!("\"{large}\""));
        assert_eq!(info(&mut cluster, 3, "coded_values_copied"), 1);
    }
}

#[test]
fn stored_values_survive_the_death_of_all_nodes() {
    let small_log = |configuration: &mut node::Configuration| {
        configuration.storage.segment_bytes = 64 << 10;
        configuration.storage.checkpoint_bytes = 128 << 10;
    };
    let mut cluster = five().with(small_log).start();
    let client = cluster.client(1);
    for number in 0..200 {
        let large = value('A', 5000 + number);
        assert_eq!(cluster.ask(client, &format!("SET k{} {large}", number % 20)), "OK");
    }
    (1..=5).for_each(|node| cluster.kill(node));
    (1..=5).for_each(|node| cluster.restart(node));
    cluster.settle();
    let client = cluster.client(2);
    for number in 180..200 {
        let large = value('A', 5000 + number);
        assert_eq!(cluster.ask(client, &format!("GET k{}", number % 20)), format!("\"{large}\""));
    }
}

#[test]
fn a_node_that_was_away_rebuilds_its_missing_fragments() {
    let mut cluster = five().start();
    cluster.kill(5);
    let client = cluster.client(1);
    let large = value('A', 5000);
    insist(&mut cluster, client, &format!("SET k {large}"));
    cluster.restart(5);
    cluster.until("it lacks nothing", |cluster| {
        info(cluster, 5, "coded_fragments") == 1 && info(cluster, 5, "coded_fragments_lacking") == 0
    });
    assert_eq!(info(&mut cluster, 5, "coded_fragments_rebuilt"), 1);
    // Node 5's fragment is as good as any other: the value has two parts, and at the write three of four
    // fragments were kept.
    [1, 2].into_iter().for_each(|node| cluster.kill(node));
    let client = cluster.client(5);
    insist(&mut cluster, client, "SET after v");
    assert_eq!(cluster.ask(client, "GET k"), format!("\"{large}\""));
}

#[test]
fn fragments_of_removed_values_are_dropped() {
    let mut cluster = five().start();
    let client = cluster.client(1);
    for round in 0..10 {
        let large = value(char::from(b'A' + round), 5000);
        assert_eq!(cluster.ask(client, &format!("SET k {large}")), "OK");
    }
    cluster.until("they are gone", |cluster| (1..=5).all(|node| info(cluster, node, "coded_fragments") == 1));
    assert_eq!(cluster.ask(client, "FLUSHALL"), "OK");
    cluster.until("all are gone", |cluster| (1..=5).all(|node| info(cluster, node, "coded_fragments") == 0));
}

#[test]
fn requests_of_one_client_keep_their_order() {
    let mut cluster = five().start();
    let client = cluster.client(2);
    let (large, larger) = (value('A', 3000), value('B', 9000));
    let set = |value: &str| format!("SET k {value}");
    // As in the server, input is read only when the node wants it.
    let mut replies = Vec::new();
    for line in [&set("v"), &set(&large), "APPEND k x", "GET k", &set(&larger), "GET k", "INCR n", "GET n"] {
        cluster.until("the next may be sent", |cluster| cluster.node(2).wants_input(client.id));
        cluster.send(client, line);
    }
    (0..8).for_each(|_| replies.push(cluster.reply(client)));
    let expected =
        ["OK", "OK", "3001", &format!("\"{large}x\""), "OK", &format!("\"{larger}\""), "1", "\"1\""];
    assert_eq!(replies, expected);
}

#[test]
fn values_of_many_pieces_are_stored_and_read() {
    let large = |configuration: &mut node::Configuration| {
        configuration.value_bytes_max = 8 << 20;
        configuration.output_bytes_max = 64 << 20;
    };
    let mut cluster = five().with(large).start();
    let client = cluster.client(4);
    let huge = value('A', 7_000_000);
    assert_eq!(cluster.ask(client, &format!("SET k {huge}")), "OK");
    let reader = cluster.client(1);
    assert!(cluster.ask(reader, "GET k") == format!("\"{huge}\""));
    assert_eq!(cluster.ask(reader, "GETRANGE k 6999990 -1"), format!("\"{}\"", &huge[6_999_990..]));
}

#[test]
fn a_smaller_value_does_not_wait_for_a_larger_one() {
    let large = |configuration: &mut node::Configuration| configuration.value_bytes_max = 8 << 20;
    let mut cluster = five().with(large).start();
    let (first, second) = (cluster.client(4), cluster.client(4));
    cluster.send(first, &format!("SET k {}", value('A', 7_000_000)));
    cluster.turns(2);
    cluster.send(second, &format!("SET l {}", value('B', 90_000)));
    let took_ms = cluster.time(|cluster| assert_eq!(cluster.reply(second), "OK"));
    assert!(took_ms < 15, "{took_ms} ms, and a turn takes one");
    assert_eq!(cluster.arrived(first), None, "the larger one is still on its way");
    assert_eq!(cluster.reply(first), "OK");
}

#[test]
fn impossible_settings_are_refused_by_name() {
    let refuse = |keyspace: &str| {
        let mut cluster = setup(3, &["prefix= replication=consensus"]).start();
        let client = cluster.client(1);
        cluster.ask(client, &format!("KEYSPACE CREATE {keyspace}"))
    };
    let refused = refuse("c: replication=consensus coding=3");
    assert!(refused.contains("use 2 or less"), "{refused}");
    let refused = refuse("c: replication=consensus coding=some");
    assert!(refused.contains("use \"none\", \"adaptive\" or a number of parts"), "{refused}");
    let refused = refuse("c: replication=leader-follower coding=2");
    assert!(refused.contains("is for consensus"), "{refused}");
}

#[test]
fn a_node_that_lost_its_disk_counts_again_when_it_has_rebuilt_all() {
    let mut cluster = five().start();
    let client = cluster.client(1);
    let large = value('A', 4000);
    for number in 0..20 {
        assert_eq!(cluster.ask(client, &format!("SET k{number} {large}")), "OK");
    }
    cluster.kill(5);
    cluster.wipe(5);
    cluster.restart(5);
    cluster.turns(3000);
    assert_eq!(cluster.ask(client, "CLUSTER REPLACE 5"), "OK");
    // Writes continue while members change.
    for number in 20..25 {
        insist(&mut cluster, client, &format!("SET k{number} {large}"));
    }
    cluster.until("it is in sync", |cluster| {
        let groups = &cluster.node(1).cluster_map().groups;
        let mut groups = groups.iter().filter(|(id, _)| **id != cluster::control::CONTROL_GROUP);
        groups.all(|(_, group)| group.settled && group.in_sync == [1, 2, 3, 4, 5])
    });
    assert_eq!(info(&mut cluster, 5, "coded_fragments_lacking"), 0);
    // So any two other nodes may now be lost.
    [1, 4].into_iter().for_each(|node| cluster.kill(node));
    let client = cluster.client(5);
    insist(&mut cluster, client, "SET after v");
    for number in 0..25 {
        assert_eq!(cluster.ask(client, &format!("GET k{number}")), format!("\"{large}\""));
    }
}

/// Replaces node 5 while node 4 writes large values. Returns the longest time of a write.
fn longest_write_during_changes(bytes_per_turn: usize) -> u64 {
    let mut cluster = five().start();
    let writer = cluster.client(4);
    cluster.kill(5);
    cluster.wipe(5);
    cluster.restart(5);
    cluster.turns(3000);
    [2, 3].into_iter().for_each(|node| cluster.set_bandwidth(4, node, Some(bytes_per_turn)));
    let large = value('A', 90_000);
    let operator = cluster.client(1);
    cluster.send(operator, "CLUSTER REPLACE 5");
    let mut longest_ms = 0;
    cluster.until("node 5 is a member again", |cluster| {
        let took_ms = cluster.time(|cluster| {
            assert_eq!(cluster.ask(writer, &format!("SET k {large}")), "OK");
        });
        longest_ms = longest_ms.max(took_ms);
        let groups = &cluster.node(1).cluster_map().groups;
        groups.values().all(|group| group.settled && group.members.contains(&5))
    });
    longest_ms
}

#[test]
fn a_new_member_reports_that_it_does_not_know_its_group_yet() {
    // A fragment takes 15 ms to reach members 2 and 3. An attempt that waits for an absent member would take 600 ms.
    let longest_ms = longest_write_during_changes(2000);
    assert!(longest_ms < 200, "a write took {longest_ms} ms");
}

#[test]
fn a_write_overtaken_by_a_change_of_members_is_retried_at_once() {
    // A whole copy takes 900 ms to reach members 2 and 3, so some members store theirs before a change and others
    // after it. An attempt that waits for an absent member would take 4 s.
    let longest_ms = longest_write_during_changes(100);
    assert!(longest_ms < 2000, "a write took {longest_ms} ms");
}

#[test]
fn coded_values_stay_readable_when_the_keyspace_stops_coding() {
    let mut cluster = five().start();
    let client = cluster.client(2);
    let large = value('A', 4000);
    assert_eq!(cluster.ask(client, &format!("SET k {large}")), "OK");
    cluster.send_words(client, &[b"KEYSPACE", b"SET", b"", b"coding=none"]);
    assert_eq!(cluster.reply(client), "OK");
    assert_eq!(cluster.ask(client, &format!("SET l {large}")), "OK");
    (1..=5).for_each(|node| cluster.kill(node));
    (1..=5).for_each(|node| cluster.restart(node));
    cluster.settle();
    let client = cluster.client(3);
    assert_eq!(cluster.ask(client, "MGET k l"), format!("[\"{large}\", \"{large}\"]"));
    assert_eq!(cluster.ask(client, "APPEND k x"), "4001");
}
