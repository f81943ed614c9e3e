//! Replies that are too long for one frame: they are sent to their client's node in parts, which clients do not
//! notice.

use crate::support::{Client, Cluster, Setup, assert_error, setup};

const CONSENSUS: &str = "prefix= replication=consensus";
const LEADER_FOLLOWER: &str = "prefix= acks=majority";

/// Parts of 50 bytes, four of them in flight.
const LONG_BYTES: usize = 400;
const PART_BYTES: usize = 50;
/// How much a peer is owed before its requests wait.
const OWED_BYTES_MAX: usize = 1024 * PART_BYTES;

// An envelope begins with its kind.
const OUTCOMES: u8 = 3;
const OUTCOME_PART: u8 = 11;

/// Three nodes, where replies of more than 400 bytes are sent in parts.
fn three(keyspace: &str) -> Setup {
    setup(3, &[keyspace]).with(|configuration| configuration.long_command_bytes = LONG_BYTES)
}

fn value(byte: char, length: usize) -> String {
    (0..length).map(|at| if at % 7 == 0 { byte } else { char::from(b'a' + (at % 26) as u8) }).collect()
}

fn quoted(value: &str) -> String {
    format!("\"{value}\"")
}

/// Returns a client of a node that does not lead, and the leader.
fn client_elsewhere(cluster: &mut Cluster) -> (Client, u16) {
    let leader = cluster.keyspace(1, "default").leader;
    (cluster.client(leader % 3 + 1), leader)
}

/// Returns how many replies a node has sent in parts.
fn long_replies(cluster: &mut Cluster, node: u16) -> u64 {
    let client = cluster.client(node);
    let answer = cluster.ask(client, "INFO stats");
    let (_, rest) = answer.split_once("long_replies:").expect("INFO has the field");
    rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|count| count.parse().ok()).expect("a number")
}

/// Whether these nodes hold no parts of replies, neither as senders nor as receivers.
fn nothing_is_held(cluster: &mut Cluster, nodes: &[u16]) -> bool {
    nodes.iter().all(|node| cluster.node(*node).long_reply_bytes() == (0, 0))
}

/// Asserts [`nothing_is_held`], after a turn in which the senders learn what has arrived.
fn assert_nothing_is_held(cluster: &mut Cluster, nodes: &[u16]) {
    cluster.turn();
    assert!(nothing_is_held(cluster, nodes));
}

#[test]
fn every_kind_of_reply_may_be_long_through_any_node() {
    for keyspace in [
        CONSENSUS,
        LEADER_FOLLOWER,
        "prefix= replication=consensus storage=disk storage_threshold=64",
        "prefix= replication=consensus coding=2 coding_threshold=100",
    ] {
        let mut cluster = three(keyspace).start();
        let (a, b) = (value('A', 3000), value('B', 401));
        let (qa, qb) = (quoted(&a), quoted(&b));
        for node in [1, 2, 3] {
            let client = cluster.client(node);
            let mut ask = |request: &str, expected: &str| {
                let reply = cluster.ask(client, request);
                assert_eq!(
                    reply,
                    expected,
                    "{keyspace}: {} through node {node}",
                    &request[..request.len().min(30)]
                );
            };
            ask(&format!("MSET k {a} l {b} m 1"), "OK");
            ask(&format!("HSET h f {a} g {b}"), "2");
            ask("GET k", &qa);
            ask("GET l", &qb);
            ask("MGET k none l k m", &format!("[{qa}, nil, {qb}, {qa}, \"1\"]"));
            ask("GETRANGE k 1 -2", &quoted(&a[1..2999]));
            ask("GETEX k EX 100", &qa);
            ask(&format!("SET k {b} GET"), &qa);
            ask("GETDEL l", &qb);
            ask("HGETALL h", &format!("[\"f\", {qa}, \"g\", {qb}]"));
            ask("HMGET h g f", &format!("[{qb}, {qa}]"));
            ask("EVAL return(redis.call('HVALS',KEYS[1])) 1 h", &format!("[{qa}, {qb}]"));
            ask("MULTI", "OK");
            ask("GET k", "QUEUED");
            ask("INCR m", "QUEUED");
            ask("HGET h f", "QUEUED");
            ask("EXEC", &format!("[{qb}, 2, {qa}]"));
            ask("DEL k m h", "3");
        }
        let leader = cluster.keyspace(1, "default").leader;
        assert!(long_replies(&mut cluster, leader) >= 10, "{keyspace}");
        assert_nothing_is_held(&mut cluster, &[1, 2, 3]);
    }
}

#[test]
fn a_long_reply_is_sent_in_short_frames_and_a_short_one_in_one() {
    let mut cluster = three(CONSENSUS).start();
    let (client, leader) = client_elsewhere(&mut cluster);
    for (length, parts) in [(LONG_BYTES - 5, 0), (LONG_BYTES, 9), (20_000, 401)] {
        let long = value('A', length);
        assert_eq!(cluster.ask(client, &format!("SET k {long}")), "OK");
        cluster.record();
        assert_eq!(cluster.ask(client, "GET k"), quoted(&long));
        let frames = cluster.recorded();
        let sent = frames.iter().filter(|(from, _, _)| *from == leader).map(|(_, _, payload)| payload);
        assert_eq!(
            sent.clone().filter(|payload| payload[0] == OUTCOME_PART).count(),
            parts,
            "{length} bytes"
        );
        assert_eq!(sent.clone().filter(|payload| payload[0] == OUTCOMES).count(), usize::from(parts == 0));
        let replies = sent.filter(|payload| [OUTCOMES, OUTCOME_PART].contains(&payload[0]));
        let longest = replies.max_by_key(|payload| payload.len()).expect("the leader has replied");
        assert!(
            longest.len() < LONG_BYTES + 50,
            "{length} bytes: {} in a frame of type {}",
            longest.len(),
            longest[0]
        );
    }
}

#[test]
fn a_value_that_changes_while_it_is_sent_arrives_unchanged() {
    for keyspace in [CONSENSUS, LEADER_FOLLOWER] {
        let mut cluster = three(keyspace).start();
        let (client, _) = client_elsewhere(&mut cluster);
        let other = cluster.client(client.node);
        let (long, same_length) = (value('A', 20_000), value('B', 20_000));
        for (change, behind) in [
            (format!("SET k {same_length}"), quoted(&same_length)),
            ("SET k short".to_owned(), quoted("short")),
            ("APPEND k more".to_owned(), quoted(&format!("{long}more"))),
            ("SETRANGE k 19998 end".to_owned(), quoted(&format!("{}end", &long[..19_998]))),
            ("PEXPIRE k 1000000".to_owned(), quoted(&long)),
            ("DEL k".to_owned(), "nil".to_owned()),
            ("FLUSHALL".to_owned(), "nil".to_owned()),
        ] {
            assert_eq!(cluster.ask(client, &format!("SET k {long}")), "OK");
            cluster.send(client, "GET k");
            cluster.ask(other, &change);
            if change.len() < LONG_BYTES {
                assert_eq!(cluster.arrived(client), None, "{keyspace}, {change}: most of it is on its way");
                assert_eq!(cluster.reply(client), quoted(&long), "{keyspace}, {change}");
            } else {
                // The change takes as long as the reply itself.
                assert_eq!(cluster.arrived(client), Some(quoted(&long)), "{keyspace}, {change}");
            }
            assert_eq!(cluster.ask(client, "GET k"), behind, "{keyspace}, {change}");
        }
        assert_nothing_is_held(&mut cluster, &[1, 2, 3]);
    }
}

#[test]
fn other_requests_are_answered_between_the_parts() {
    for keyspace in [CONSENSUS, LEADER_FOLLOWER] {
        let mut cluster = three(keyspace).start();
        let (client, leader) = client_elsewhere(&mut cluster);
        let others = [cluster.client(client.node), cluster.client(6 - leader - client.node)];
        let long = value('A', 20_000);
        assert_eq!(cluster.ask(client, &format!("SET k {long}")), "OK");
        cluster.send(client, "GET k");
        let (mut between, mut turns) = (0, 0);
        let took_ms = cluster.time(|cluster| {
            while cluster.arrived(client).is_none_or(|reply| reply != quoted(&long)) {
                for other in others {
                    turns += cluster
                        .time(|cluster| assert_eq!(cluster.ask(other, &format!("SET o {between}")), "OK"));
                    between += 1;
                }
            }
        });
        // Four parts in each round trip of two turns.
        let rounds = 20_000 / (4 * PART_BYTES) as u64;
        assert!((2 * rounds..2 * rounds + 20).contains(&took_ms), "{keyspace}: {took_ms} turns");
        assert!(between > 10 && turns / between < 12, "{keyspace}: {between} short writes in {turns} turns");
    }
}

#[test]
fn a_pipeline_is_answered_in_its_order_however_long_its_replies_are() {
    for keyspace in [CONSENSUS, LEADER_FOLLOWER] {
        let mut cluster = three(keyspace).start();
        for node in [1, 2, 3] {
            let client = cluster.client(node);
            let (a, b) = (value('A', 5000), value('B', 700));
            assert_eq!(cluster.ask(client, &format!("MSET k {a} l {b} n 0")), "OK");
            let requests = ["GET k", "INCR n", "GET l", "GET n", "SET k x", "MGET k l", "PING", "GET k"];
            let (qa, qb) = (quoted(&a), quoted(&b));
            let both = format!("[\"x\", {qb}]");
            let expected = [&qa, "1", &qb, "\"1\"", "OK", &both, "PONG", "\"x\""];
            assert_eq!(cluster.pipeline(client, &requests), expected, "{keyspace} through node {node}");
        }
        assert_nothing_is_held(&mut cluster, &[1, 2, 3]);
    }
}

#[test]
fn values_of_megabytes_arrive_whole_at_clients_of_any_node() {
    let setup = setup(3, &[CONSENSUS]).with(|configuration| {
        configuration.value_bytes_max = 8 << 20;
        configuration.output_bytes_max = 64 << 20;
    });
    let mut cluster = setup.start();
    let long = value('A', 5 << 20);
    for node in [1, 2, 3] {
        let client = cluster.client(node);
        assert_eq!(cluster.ask(client, &format!("SET k {long}")), "OK");
        cluster.send(client, "GET k");
        cluster.send(client, "MULTI");
        cluster.send(client, "GET k");
        cluster.send(client, "EXEC");
        cluster.send(client, "PING");
        let is_long = |reply: String| reply.len() == long.len() + 2 && reply[1..].starts_with(&long);
        assert!(is_long(cluster.reply(client)), "through node {node}");
        assert_eq!([cluster.reply(client), cluster.reply(client)], ["OK", "QUEUED"]);
        let elements = cluster.reply(client);
        assert!(elements == format!("[\"{long}\"]"), "through node {node}");
        assert_eq!(cluster.reply(client), "PONG");
    }
    let leader = cluster.keyspace(1, "default").leader;
    assert_eq!(long_replies(&mut cluster, leader), 4, "two to each of the other nodes");
}

#[test]
fn a_client_that_leaves_ends_its_reply_at_both_ends() {
    let mut cluster = three(CONSENSUS).start();
    let (client, leader) = client_elsewhere(&mut cluster);
    assert_eq!(cluster.ask(client, &format!("SET k {}", value('A', 20_000))), "OK");
    cluster.send(client, "GET k");
    cluster.turns(20);
    let (sent, arrived) =
        (cluster.node(leader).long_reply_bytes(), cluster.node(client.node).long_reply_bytes());
    assert_eq!((sent, arrived), ((20_005, 0), (0, 20_005)), "held once at each end");
    cluster.close(client);
    cluster.turns(4);
    assert_nothing_is_held(&mut cluster, &[1, 2, 3]);
    let other = cluster.client(client.node);
    assert_eq!(cluster.ask(other, "STRLEN k"), "20000");
}

/// A client requests a long reply, and something happens when a part has arrived. Returns the client's reply.
fn interrupted(
    cluster: &mut Cluster,
    client: Client,
    request: &str,
    by: impl FnOnce(&mut Cluster),
) -> String {
    cluster.send(client, request);
    cluster.turns(20);
    assert!(cluster.node(client.node).long_reply_bytes().1 > 0, "some of it has come");
    assert_eq!(cluster.arrived(client), None, "and not all");
    by(cluster);
    cluster.reply(client)
}

#[test]
fn when_the_leader_dies_during_a_long_reply_a_write_is_unknown_and_a_read_is_retried() {
    for keyspace in [CONSENSUS, LEADER_FOLLOWER] {
        for (request, is_write) in [("GET k", false), ("GETDEL k", true)] {
            let mut cluster = three(keyspace).start();
            let (client, leader) = client_elsewhere(&mut cluster);
            let long = value('A', 20_000);
            assert_eq!(cluster.ask(client, &format!("SET k {long}")), "OK");
            let reply = interrupted(&mut cluster, client, request, |cluster| cluster.kill(leader));
            match is_write {
                true => assert_error(&reply, "UNKNOWN"),
                false => assert_eq!(reply, quoted(&long), "the next leader is asked"),
            }
            let others = [1, 2, 3].into_iter().filter(|node| *node != leader).collect::<Vec<_>>();
            assert_nothing_is_held(&mut cluster, &others);
            cluster.until("it can be read", |cluster| !cluster.ask(client, "GET k").starts_with('-'));
            let expected = if is_write { "nil".into() } else { quoted(&long) };
            assert_eq!(cluster.ask(client, "GET k"), expected, "{keyspace}");
        }
    }
}

#[test]
fn a_new_link_does_not_continue_replies_of_the_previous_one() {
    let mut cluster = three(CONSENSUS).start();
    let (client, leader) = client_elsewhere(&mut cluster);
    let other = cluster.client(client.node);
    let long = value('A', 20_000);
    assert_eq!(cluster.ask(client, &format!("SET k {long}")), "OK");
    let reply = interrupted(&mut cluster, client, "GET k", |cluster| {
        cluster.break_link(leader, client.node);
        cluster.mend_link(leader, client.node);
        assert!(nothing_is_held(cluster, &[1, 2, 3]));
        cluster.send(other, "GET k");
    });
    assert_eq!(reply, quoted(&long), "it is asked again");
    assert_eq!(cluster.reply(other), quoted(&long));
    assert_nothing_is_held(&mut cluster, &[1, 2, 3]);
}

#[test]
fn a_node_that_stops_sending_parts_is_not_waited_for_forever() {
    let mut cluster = three(CONSENSUS).with(|configuration| configuration.command_timeout_ms = 300).start();
    let (client, leader) = client_elsewhere(&mut cluster);
    let long = value('A', 20_000);
    assert_eq!(cluster.ask(client, &format!("SET k {long}")), "OK");
    let mut reply = String::new();
    let took_ms = cluster.time(|cluster| {
        reply = interrupted(cluster, client, "GET k", |cluster| cluster.pause(leader));
    });
    assert_error(&reply, "NOLEADER");
    assert!((300..1500).contains(&took_ms), "{took_ms}");
    assert_eq!(cluster.node(client.node).long_reply_bytes(), (0, 0));
    cluster.go_on(leader);
    cluster.until("what is left of it is not wanted", |cluster| nothing_is_held(cluster, &[1, 2, 3]));
    cluster.until("it can be read", |cluster| cluster.ask(client, "GET k") == quoted(&long));
}

#[test]
fn a_reply_may_outlast_the_command_timeout_while_its_parts_arrive() {
    let timeout_ms = 200;
    let mut cluster =
        three(LEADER_FOLLOWER).with(|configuration| configuration.command_timeout_ms = timeout_ms).start();
    let (client, leader) = client_elsewhere(&mut cluster);
    let at_leader = cluster.client(leader);
    let long = value('A', 100_000);
    assert_eq!(cluster.ask(at_leader, &format!("SET k {long}")), "OK");
    cluster.settle();
    cluster.set_bandwidth(leader, client.node, Some(80));
    let took_ms = cluster.time(|cluster| assert_eq!(cluster.ask(client, "GET k"), quoted(&long)));
    assert!(took_ms > 5 * timeout_ms, "{took_ms}");
}

#[test]
fn a_node_whose_clients_request_much_gets_it_piece_by_piece() {
    let mut cluster = three(LEADER_FOLLOWER).start();
    let (client, leader) = client_elsewhere(&mut cluster);
    let long = value('A', 20_000);
    assert_eq!(cluster.ask(client, &format!("SET k {long}")), "OK");
    (0..20).for_each(|_| cluster.send(client, "GET k"));
    let (mut most, mut answered) = (0, 0);
    cluster.until("all are answered", |cluster| {
        let (sent, _) = cluster.node(leader).long_reply_bytes();
        most = most.max(sent);
        assert!(cluster.waiting_bytes(leader, client.node) < 20 * PART_BYTES, "a few parts at a time");
        while let Some(reply) = cluster.arrived(client) {
            assert_eq!(reply, quoted(&long));
            answered += 1;
        }
        answered == 20
    });
    assert!((OWED_BYTES_MAX..OWED_BYTES_MAX + 21_000).contains(&most), "{most} bytes of replies were held");
    assert_nothing_is_held(&mut cluster, &[1, 2, 3]);
}

#[test]
fn a_forwarding_node_forwards_a_long_reply_back() {
    let setup = setup(4, &["prefix= replication=consensus replicas=3 leader=1"]);
    let mut cluster = setup.with(|configuration| configuration.long_command_bytes = LONG_BYTES).start();
    let long = value('A', 3_000);
    let at_leader = cluster.client(1);
    assert_eq!(cluster.ask(at_leader, &format!("SET k {long}")), "OK");
    // Node 4 has no replica. It cannot reach the leader, but node 2 can.
    cluster.break_link(1, 4);
    let client = cluster.client(4);
    assert_eq!(cluster.ask(client, "GET k"), quoted(&long));
    assert_eq!([1, 2].map(|node| long_replies(&mut cluster, node)), [1, 1]);
    assert_nothing_is_held(&mut cluster, &[1, 2, 3, 4]);

    // When the client's node is cut off, the forwarding node drops the parts that it can no longer deliver.
    cluster.send(client, "GET k");
    cluster.turns(8);
    assert!(cluster.node(2).long_reply_bytes().1 > 0, "some of it has come there");
    cluster.cut_off(4);
    assert_error(&cluster.reply(client), "NOLEADER");
    cluster.turns(4);
    assert_nothing_is_held(&mut cluster, &[1, 2, 3, 4]);
    assert_eq!([1, 2].map(|node| long_replies(&mut cluster, node)), [2, 1]);
}
