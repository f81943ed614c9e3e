//! What clients of other nodes see when a leader dies or is paused: they wait for the next one.

use crate::support::{Client, Cluster, assert_error, setup};
use node::NodeId;

const KEYSPACES: [&str; 4] = [
    "prefix= replication=consensus",
    "prefix= replication=consensus lease=off",
    "prefix= acks=majority",
    "prefix= acks=all",
];

/// Starts a cluster with this keyspace. Returns it with the leader and the two others.
fn start(nodes: u16, keyspace: &str) -> (Cluster, NodeId, Vec<NodeId>) {
    let mut cluster = setup(nodes, &[keyspace]).start();
    let client = cluster.client(1);
    assert_eq!(cluster.ask(client, "SET before 1"), "OK");
    let leads = |cluster: &Cluster, id: NodeId| cluster.keyspace(id, "default").role == "leader";
    let leader = (1..=nodes).find(|id| leads(&cluster, *id)).expect("one leads");
    (cluster, leader, (1..=nodes).filter(|id| *id != leader).collect())
}

/// Sends requests whose replies are known beforehand, so that they show whether order is kept.
fn send_counted(cluster: &mut Cluster, client: Client, key: &str, numbers: std::ops::Range<u32>) {
    for number in numbers {
        cluster.send(client, &format!("SET {key} {number}"));
        cluster.send(client, &format!("GET {key}"));
        cluster.send(client, &format!("INCR {key}"));
    }
}

fn assert_counted(cluster: &mut Cluster, client: Client, numbers: std::ops::Range<u32>) {
    for number in numbers {
        assert_eq!(cluster.reply(client), "OK");
        assert_eq!(cluster.reply(client), format!("\"{number}\""));
        assert_eq!(cluster.reply(client), (number + 1).to_string());
    }
}

#[test]
fn requests_without_a_leader_wait_for_the_next_one_and_keep_their_order() {
    for keyspace in KEYSPACES {
        for is_paused in [false, true] {
            let (mut cluster, leader, others) = start(3, keyspace);
            let clients: Vec<Client> = others.iter().map(|node| cluster.client(*node)).collect();
            match is_paused {
                false => cluster.kill(leader),
                // The others notice the pause when they have sent the leader a request and get no answer.
                true => {
                    cluster.pause(leader);
                    let probing = cluster.client(others[0]);
                    cluster.send(probing, "GET before");
                    cluster.turns(400);
                }
            }
            // A pipeline that continues while the next leader takes over.
            let took_ms = cluster.time(|cluster| {
                for part in 0..30 {
                    for (client, node) in clients.iter().zip(&others) {
                        send_counted(cluster, *client, &format!("k{node}"), 3 * part..3 * part + 3);
                    }
                    cluster.turns(30);
                }
                clients.iter().for_each(|client| assert_counted(cluster, *client, 0..90));
            });
            assert!(took_ms < 4000, "{keyspace}: {took_ms} ms");
        }
    }
}

#[test]
fn requests_to_a_paused_leader_end_when_another_one_leads() {
    for keyspace in KEYSPACES {
        let (mut cluster, leader, others) = start(3, keyspace);
        let client = cluster.client(others[0]);
        cluster.pause(leader);
        let mut replies = Vec::new();
        let took_ms = cluster.time(|cluster| {
            let lines = ["GET before", "SET k v", "GET before", "INCR n", "GET n"];
            lines.iter().for_each(|line| cluster.send(client, line));
            replies.extend(lines.map(|_| cluster.reply(client)));
        });
        assert!(took_ms < 2000, "{keyspace}: {took_ms} ms");
        if keyspace.contains("consensus") {
            assert_eq!(
                replies,
                ["\"1\"", "OK", "\"1\"", "1", "\"1\""],
                "all of it is known never to have happened"
            );
        } else {
            [1, 3].iter().for_each(|place| assert_error(&replies[*place], "UNKNOWN"));
            assert_eq!(
                [&replies[0], &replies[2], &replies[4]],
                ["\"1\"", "\"1\"", "nil"],
                "reads are asked again"
            );
        }
        // All of these requests are still unread in the leader's socket.
        cluster.go_on(leader);
        cluster.settle();
        cluster.turns(1000);
        let answer = cluster.ask(client, "MGET k n");
        match keyspace.contains("consensus") {
            true => assert_eq!(answer, "[\"v\", \"1\"]", "once"),
            false => {
                assert!(
                    ["[nil, nil]", "[\"v\", nil]", "[\"v\", \"1\"]"].contains(&answer.as_str()),
                    "{answer}"
                )
            }
        }
    }
}

#[test]
fn commands_ordered_by_a_leader_that_died_are_unknown_and_not_retried() {
    for is_paused in [false, true] {
        let (mut ordered, mut void) = (0, 0);
        // The leader is killed one turn later each time: before it has read the command, when it has ordered it, when
        // others have it.
        for turns in 0..12 {
            let (mut cluster, leader, others) = start(3, KEYSPACES[0]);
            let client = cluster.client(others[0]);
            cluster.send(client, "INCR n");
            cluster.turns(turns);
            match is_paused {
                true => cluster.pause(leader),
                false => cluster.kill(leader),
            }
            let reply = cluster.reply(client);
            let is_known = reply == "1";
            assert!(is_known || reply.starts_with("-UNKNOWN"), "{reply}");
            ordered += u32::from(!is_known);
            void += u32::from(is_known);
            match is_paused {
                true => cluster.go_on(leader),
                false => cluster.restart(leader),
            }
            cluster.settle();
            cluster.turns(500);
            let answer = cluster.ask(client, "GET n");
            assert!(
                answer == "\"1\"" || !is_known && answer == "nil",
                "after {turns} turns {reply}, then {answer}"
            );
        }
        assert!(ordered > 0 && void > 0, "{ordered} unknown, {void} known");
    }
}

#[test]
fn a_node_without_a_replica_gives_up_a_paused_leader() {
    for keyspace in
        ["prefix= replication=consensus replicas=3 leader=1", "prefix= acks=majority replicas=3 leader=1"]
    {
        let (mut cluster, leader, _) = start(4, keyspace);
        assert_ne!(leader, 4);
        let (reader, writer) = (cluster.client(4), cluster.client(4));
        assert_eq!(cluster.ask(writer, "SET k v"), "OK");
        cluster.pause(leader);
        let took_ms = cluster.time(|cluster| {
            cluster.send(reader, "GET k");
            cluster.send(writer, "SET k w");
            assert_eq!(cluster.reply(reader), "\"v\"");
            assert_error(&cluster.reply(writer), "UNKNOWN");
            assert_eq!(cluster.ask(writer, "SET l v"), "OK");
        });
        assert!(took_ms < 3000, "{keyspace}: {took_ms} ms");
    }
}

#[test]
fn a_leader_that_resumes_by_itself_is_not_given_up() {
    for keyspace in KEYSPACES {
        let (mut cluster, leader, others) = start(3, keyspace);
        let client = cluster.client(others[0]);
        cluster.pause(leader);
        send_counted(&mut cluster, client, "k", 0..3);
        cluster.turns(100);
        cluster.go_on(leader);
        assert_counted(&mut cluster, client, 0..3);
    }
}

#[test]
fn commands_not_ordered_by_a_deposed_leader_are_sent_to_the_next_one() {
    for keyspace in ["prefix= replication=consensus", "prefix= acks=majority"] {
        let (mut cluster, leader, _) = start(3, keyspace);
        let client = cluster.client(leader);
        cluster.cut_off(leader);
        // Until the leader knows that it no longer leads, it accepts a few writes, which are lost or have unknown
        // outcomes.
        cluster.turns(1500);
        send_counted(&mut cluster, client, "k", 0..5);
        cluster.turns(500);
        assert_eq!(cluster.arrived(client), None, "{keyspace}: it waits");
        cluster.reconnect(leader);
        let first = cluster.reply(client);
        if first.starts_with("-TRYAGAIN LOST") {
            // The old leader reached its followers before it learned of the next leader, and ordered the waiting
            // requests, which certainly had no effect.
            assert!(keyspace.contains("consensus"), "{first}");
            let rest: Vec<String> = (1..15).map(|_| cluster.reply(client)).collect();
            assert!(rest.iter().all(|reply| !reply.contains("UNKNOWN")), "{rest:?}");
            continue;
        }
        assert_eq!(first, "OK", "{keyspace}");
        assert_eq!(cluster.reply(client), "\"0\"");
        assert_eq!(cluster.reply(client), "1");
        assert_counted(&mut cluster, client, 1..5);
    }
}

/// A request that arrives after the link to its leader broke waits at once; earlier requests must precede it when they are
/// retried.
#[test]
fn retried_requests_precede_later_ones() {
    for keyspace in &KEYSPACES[..2] {
        for (before, after) in (0..4).flat_map(|before| [0, 1, 3, 30].map(|after| (before, after))) {
            let (mut cluster, leader, others) = start(3, keyspace);
            let client = cluster.client(others[0]);
            cluster.send(client, "SET k 1");
            cluster.turns(before);
            cluster.kill(leader);
            cluster.turns(after);
            for line in ["GET k", "INCR k", "GET k"] {
                cluster.send(client, line);
                cluster.turn();
            }
            if cluster.reply(client) == "OK" {
                let answer = [0; 3].map(|_| cluster.reply(client));
                assert_eq!(answer, ["\"1\"", "2", "\"2\""], "{keyspace}: {before}, {after}");
            }
        }
    }
}
