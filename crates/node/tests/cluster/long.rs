//! Writes that are too long for one record: they are sent to their group in parts, which clients do not notice.

use crate::support::{Client, Cluster, Setup, setup};

/// Three nodes; writes of more than 400 bytes are sent in parts of 50.
fn three(keyspace: &str) -> Setup {
    setup(3, &[keyspace]).with(|configuration| configuration.long_command_bytes = 400)
}

const CONSENSUS: &str = "prefix= replication=consensus";
const LEADER_FOLLOWER: &str = "prefix= acks=majority";
const KEYSPACES: [&str; 4] = [
    CONSENSUS,
    LEADER_FOLLOWER,
    "prefix= replication=consensus storage=disk storage_threshold=64",
    "prefix= replication=consensus coding=2 coding_threshold=100",
];

fn value(byte: char, length: usize) -> String {
    (0..length).map(|at| if at % 7 == 0 { byte } else { char::from(b'a' + (at % 26) as u8) }).collect()
}

/// Sends requests one after the other, as a server does, which reads only those that the node wants. Waits for the
/// replies.
fn streamed(cluster: &mut Cluster, client: Client, requests: &[&str]) -> Vec<String> {
    for request in requests {
        cluster.until("it is wanted", |cluster| cluster.node(client.node).wants_input(client.id));
        cluster.send(client, request);
    }
    requests.iter().map(|_| cluster.reply(client)).collect()
}

/// Asserts that in the end every node's own reads return the same.
fn assert_same_everywhere(cluster: &mut Cluster) {
    cluster.until("all nodes have the same", |cluster| {
        let [one, two, three] = [1, 2, 3].map(|node| cluster.contents(node));
        one == two && two == three
    });
}

#[test]
fn every_kind_of_write_may_be_long_through_any_node() {
    for keyspace in KEYSPACES {
        let mut cluster = three(keyspace).start();
        for node in [1, 2, 3] {
            let client = cluster.client(node);
            let (a, b) = (value('A', 3000), value('B', 500));
            let mut ask = |request: &str, expected: &str| {
                let reply = cluster.ask(client, request);
                assert_eq!(reply, expected, "{keyspace}: {}", &request[..request.len().min(30)]);
            };
            ask(&format!("SET k {a}"), "OK");
            ask("GET k", &format!("\"{a}\""));
            ask(&format!("SET k {b} NX"), "nil");
            ask(&format!("APPEND k {b}"), "3500");
            ask(&format!("SETRANGE k 1 {b}"), "3500");
            ask(&format!("SET k {b} IFEQ {a}"), "nil");
            ask("GETRANGE k 0 2", &format!("\"{}{}\"", &a[..1], &b[..2]));
            ask(&format!("SET k {b} GET"), &format!("\"{}{b}{}{b}\"", &a[..1], &a[501..]));
            ask(&format!("MSET k {a} l {b} m 1"), "OK");
            ask(&format!("HSET h f {a} g {b}"), "2");
            ask("HGET h f", &format!("\"{a}\""));
            ask("MULTI", "OK");
            ask(&format!("SET k {b}"), "QUEUED");
            ask(&format!("APPEND l {a}"), "QUEUED");
            ask("GET m", "QUEUED");
            ask("EXEC", "[OK, 3500, \"1\"]");
            ask(&format!("EVAL return(redis.call('APPEND',KEYS[1],ARGV[1])) 1 m {a}"), "3001");
            ask("DEL k l m h", "4");
        }
        assert_same_everywhere(&mut cluster);
    }
}

#[test]
fn a_clients_commands_keep_their_order_and_others_go_between_the_parts() {
    for keyspace in KEYSPACES {
        let mut cluster = three(keyspace).start();
        let (client, other) = (cluster.client(2), cluster.client(3));
        let long = value('A', 20_000);
        let requests =
            ["SET k before", &format!("SET k {long}"), "APPEND k x", "STRLEN k", "SET k after", "GET k"];
        let expected = ["OK", "OK", "20001", "20001", "OK", "\"after\""];
        assert_eq!(streamed(&mut cluster, client, &requests), expected, "{keyspace}");

        cluster.send(client, &format!("MSET k {long} l v"));
        let mut between = 0;
        while cluster.arrived(client).is_none() {
            assert_eq!(cluster.ask(other, &format!("SET other {between}")), "OK");
            between += 1;
        }
        assert!(between > 3, "{keyspace}: {between} short writes beside a long one");
    }
}

#[test]
fn a_watched_key_is_compared_when_the_last_part_has_arrived() {
    for keyspace in KEYSPACES {
        let mut cluster = three(keyspace).start();
        let (client, other) = (cluster.client(2), cluster.client(3));
        let long = value('A', 20_000);
        for is_changed in [true, false] {
            assert_eq!(cluster.ask(client, "SET k 1"), "OK");
            assert_eq!(cluster.ask(client, "WATCH k"), "OK");
            assert_eq!(cluster.pipeline(client, &["MULTI", &format!("SET l {long}")]), ["OK", "QUEUED"]);
            cluster.send(client, "EXEC");
            if is_changed {
                assert_eq!(cluster.ask(other, "SET k 2"), "OK");
            }
            let expected = if is_changed { "nil" } else { "[OK]" };
            assert_eq!(cluster.reply(client), expected, "{keyspace}");
        }
    }
}

#[test]
fn keys_watched_under_another_leadership_do_not_count_as_unchanged() {
    // A failover of leader-follower may lose writes and reuse their versions.
    let mut cluster = three(LEADER_FOLLOWER).start();
    let client = cluster.client(2);
    assert_eq!(cluster.ask(client, "SET k 1"), "OK");
    assert_eq!(cluster.ask(client, "WATCH k"), "OK");
    cluster.kill(1);
    let other = cluster.client(3);
    cluster.until("another node leads", |cluster| cluster.ask(other, "SET other 1") == "OK");
    let queued = cluster.pipeline(client, &["MULTI", &format!("SET l {}", value('A', 2_000))]);
    assert_eq!(queued, ["OK", "QUEUED"]);
    cluster.until("it is aborted", |cluster| match cluster.ask(client, "EXEC").as_str() {
        "nil" => true,
        reply => panic!("{reply}"),
    });
}

#[test]
fn a_long_write_takes_effect_whole_or_not_at_all_when_its_leader_dies() {
    for keyspace in [CONSENSUS, LEADER_FOLLOWER] {
        let mut cluster = three(keyspace).start();
        let leader = cluster.keyspace(1, "default").leader;
        let client = cluster.client(leader % 3 + 1);
        assert_eq!(cluster.ask(client, "SET k before"), "OK");
        let long = value('A', 30_000);
        cluster.send(client, &format!("SET k {long}"));
        cluster.turns(12);
        assert_eq!(cluster.arrived(client), None, "it takes longer");
        cluster.kill(leader);
        let reply = cluster.reply(client);
        let expected = match reply.as_str() {
            "OK" => format!("\"{long}\""),
            // A write that failed before its last part has done nothing.
            refused => {
                assert!(refused.contains("nothing was done"), "{refused}");
                "\"before\"".into()
            }
        };
        cluster.until("it can be read", |cluster| !cluster.ask(client, "GET k").starts_with('-'));
        assert_eq!(cluster.ask(client, "GET k"), expected, "{keyspace}: {}", &reply[..reply.len().min(80)]);
    }
}

#[test]
fn gathered_parts_survive_a_restart_and_a_snapshot_transfer() {
    let mut cluster = three(CONSENSUS).start();
    let client = cluster.client(2);
    let long = value('A', 100_000);
    cluster.send(client, &format!("SET k {long}"));
    cluster.turns(40);
    for node in [1, 3] {
        cluster.kill(node);
        cluster.restart(node);
        cluster.turns(20);
    }
    assert_eq!(cluster.reply(client), "OK");
    assert_eq!(cluster.ask(client, "GET k"), format!("\"{long}\""));
    assert_same_everywhere(&mut cluster);
}

#[test]
fn a_long_write_without_a_leader_is_refused_in_time_and_not_done() {
    let mut cluster = three(CONSENSUS).with(|configuration| configuration.command_timeout_ms = 500).start();
    let client = cluster.client(2);
    assert_eq!(cluster.ask(client, "SET k before"), "OK");
    cluster.send(client, &format!("SET k {}", value('A', 30_000)));
    cluster.turns(12);
    [1, 3].into_iter().for_each(|node| cluster.cut_off(node));
    let reply = cluster.reply(client);
    assert!(reply.starts_with('-') && reply.contains("nothing was done"), "{reply}");
    [1, 3].into_iter().for_each(|node| cluster.reconnect(node));
    cluster.until("it serves again", |cluster| cluster.ask(client, "GET k") == "\"before\"");
}

#[test]
fn the_write_of_a_client_that_leaves_is_dropped() {
    let mut cluster = three(CONSENSUS).start();
    let (client, other) = (cluster.client(2), cluster.client(3));
    cluster.send(client, &format!("SET k {}", value('A', 30_000)));
    cluster.turns(8);
    cluster.close(client);
    cluster.turns(200);
    assert_eq!(cluster.ask(other, "GET k"), "nil");
}

#[test]
fn a_full_disk_refuses_long_writes_until_there_is_room() {
    let mut cluster = three(CONSENSUS).start();
    let client = cluster.client(2);
    let long = format!("SET k {}", value('A', 100_000));
    (1..=3).for_each(|node| cluster.set_disk_full(node, true));
    let mut reply = String::new();
    cluster.until("there is no room", |cluster| {
        reply = cluster.ask(client, &long);
        reply != "OK"
    });
    assert!(reply.starts_with('-') && reply.contains("nothing was done"), "{reply}");
    (1..=3).for_each(|node| cluster.set_disk_full(node, false));
    cluster.until("there is room again", |cluster| cluster.ask(client, &long) == "OK");
}

/// A part may be answered after its command has ended. A node that took this for remaining work would never be idle again.
#[test]
fn a_node_is_idle_after_its_last_long_command_was_refused() {
    let mut cluster = three("prefix= replication=consensus memory_max=20000 eviction=none").start();
    let client = cluster.client(2);
    let mut reply = String::new();
    for number in 0.. {
        reply = cluster.ask(client, &format!("SET {number} {}", value('A', 3_000)));
        if reply != "OK" || number == 20 {
            break;
        }
    }
    assert!(reply.starts_with("-OOM"), "{reply}");
    cluster.turns(100);
    let restless = cluster.restless_turns(2, 1000);
    assert!(restless < 100, "it is idle except in {restless} of 1000 turns");
}

/// A node that was down when a keyspace was created routes by its old map until it has the new one. What it acknowledges must
/// be found in the new keyspace.
#[test]
fn writes_that_wait_for_the_newest_map_go_to_its_keyspaces_or_are_refused() {
    let long = value('x', 1000);
    for (replication, value) in
        [("consensus", "v"), ("consensus", &long), ("leader-follower", "v"), ("leader-follower", &long)]
    {
        let mut cluster = three(CONSENSUS).start();
        cluster.kill(3);
        let other = cluster.client(1);
        let created = format!("KEYSPACE CREATE p: replication={replication}");
        cluster.until("it is created", |cluster| cluster.ask(other, &created) == "OK");
        cluster.until("it is served", |cluster| cluster.ask(other, "SET p:k v") == "OK");
        cluster.restart(3);
        let client = cluster.client(3);
        let reply = cluster.ask(client, &format!("SET p:new {value}"));
        match reply == "OK" {
            true => assert_eq!(cluster.ask(other, "GET p:new"), format!("\"{value}\"")),
            false => assert!(reply.starts_with("-TRYAGAIN MOVED"), "{reply}"),
        }
    }
}
