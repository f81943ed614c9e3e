//! Peers may send anything: invalid messages are refused or have no effect, and never end a node.

use crate::support::{Cluster, assert_error, setup};
use kv::codec::Writer;
use kv::{Command, Condition, Coordinator, Deadline, Expiry, Padded, SetAnswer, ValueId};
use proptest::prelude::*;
use protocol::NodeId;
use protocol::leader_follower::{Message, Position};
use storage::MemoryDisk;

// An envelope begins with its kind.
const GROUP: u8 = 1;
const REQUESTS: u8 = 2;
const OUTCOMES: u8 = 3;
const OUTCOME_PART: u8 = 11;
const PARTS_ARRIVED: u8 = 12;

/// Starts two keyspaces, so that followers, leaders and coordinators are among the nodes.
fn cluster() -> Cluster {
    let mut cluster = setup(3, &["prefix= acks=majority reads=any", "prefix=b: acks=all leader=2"]).start();
    let client = cluster.client(3);
    cluster.pipeline(client, &["SET k v", "SET b:k v", "INCR n", "SET e v PX 5000"]);
    cluster.settle();
    cluster
}

/// Gives a node a payload, which it may refuse, and checks that the node goes on and does not panic.
fn survives(cluster: &mut Cluster, from: NodeId, to: NodeId, payload: &[u8]) {
    let now = cluster.now;
    let node = cluster.node(to);
    node.begin_turn(now);
    let _ = node.peer_frame(from, payload);
    node.flush();
    node.end_turn(&mut MemoryDisk::new());
    for peer in (1..=3).filter(|peer| *peer != to) {
        node.peer_output(peer).clear();
    }
}

fn group_message(group: u16, message: &Message<'_>) -> Vec<u8> {
    let mut payload = vec![GROUP];
    payload.put_u16(group + 1); // Ids count from 1.
    message.encode(&mut payload);
    payload
}

/// Encodes a forwarded request as a peer does.
fn forwarded(id: u64, group: u16, remaining_ms: u32, command: &Command<'_>) -> Vec<u8> {
    let mut payload = vec![REQUESTS];
    payload.put_u64(id);
    payload.put_u16(group + 1); // Ids count from 1.
    payload.put_bool(false);
    payload.put_u64(0);
    payload.put_u32(remaining_ms);
    payload.put_u8(1);
    payload.put_u64(0);
    payload.put_bool(true);
    command.encode(&mut payload);
    payload
}

#[test]
fn invalid_envelopes_are_refused() {
    let mut cluster = cluster();
    let node = cluster.node(1);
    let broken: [&[u8]; 8] =
        [b"", b"\0", b"\x04", b"\xff\xff\xff", &[GROUP], &[GROUP, 1, 0], &[REQUESTS, 1], &[OUTCOMES, 1]];
    for payload in broken {
        assert!(node.peer_frame(2, payload).is_err(), "{payload:?}");
    }
    assert!(node.peer_frame(2, &[REQUESTS]).is_ok(), "no requests at all");
}

/// A node that does not know a new keyspace yet forwards commands on its keys to the keyspace that they belonged to before.
#[test]
fn a_command_forwarded_to_the_wrong_keyspace_is_refused() {
    let mut cluster = cluster();
    let node = cluster.node(1);
    let strayed = Command::Get { key: b"b:k" };
    assert!(node.peer_frame(2, &forwarded(1, 0, 100, &strayed)).is_ok());
    node.flush();
    node.end_turn(&mut MemoryDisk::new());
    let answer = String::from_utf8_lossy(node.peer_output(2)).into_owned();
    assert!(answer.contains("TRYAGAIN MOVED") && answer.contains("nothing was done"), "{answer}");
}

/// The same for a long command, whose keys are in its parts.
#[test]
fn a_long_command_forwarded_to_the_wrong_keyspace_is_refused() {
    let (mut set, value) = (Vec::new(), [b'v'; 100]);
    let (expiry, condition, answer) = (Expiry::Clear, Condition::Always, SetAnswer::Status);
    Command::Set { key: b"b:k", value: &value, expiry, condition, answer }.encode(&mut set);
    let id = ValueId { coordinator: Coordinator { node: 2, life: 9 }, counter: 1 };
    let part = Command::LongPart { id, offset: 0, length: set.len() as u32, bytes: &set };
    let mut cluster = cluster();
    assert!(cluster.node(1).peer_frame(2, &forwarded(1, 0, 1000, &part)).is_ok());
    cluster.settle();
    let end = Command::LongEnd { id, watched_in: Padded(None) };
    let node = cluster.node(1);
    assert!(node.peer_frame(2, &forwarded(2, 0, 1000, &end)).is_ok());
    node.flush();
    node.end_turn(&mut MemoryDisk::new());
    let answer = String::from_utf8_lossy(node.peer_output(2)).into_owned();
    assert!(answer.contains("TRYAGAIN MOVED") && answer.contains("nothing was done"), "{answer}");
}

#[test]
fn messages_for_an_unknown_group_are_ignored_or_refused() {
    let mut cluster = cluster();
    let node = cluster.node(1);
    assert!(node.peer_frame(2, &[&[GROUP, 9, 0][..], &[1; 40]].concat()).is_ok());
    assert!(node.peer_frame(2, &forwarded(1, 9, 100, &Command::Size {})).is_ok());
    node.flush();
    node.end_turn(&mut MemoryDisk::new());
    let answer = String::from_utf8_lossy(node.peer_output(2)).into_owned();
    assert!(answer.contains("TRYAGAIN MOVED") && answer.contains("nothing was done"), "{answer}");
}

/// The node whose map is old may be this one or the other: what was refused because of that is sent again, and the client of a
/// command that cannot be sent again gets the same error as if this node had found out.
#[test]
fn a_command_that_another_node_refuses_by_its_map_is_sent_again() {
    for has_later in [false, true] {
        let mut cluster = cluster();
        let client = cluster.client(3);
        cluster.record();
        cluster.send(client, "SET k w");
        if has_later {
            cluster.send(client, "SET k x");
        }
        cluster.turns(2);
        let asked =
            cluster.recorded().into_iter().find(|(from, _, payload)| (*from, payload[0]) == (3, REQUESTS));
        let (_, to, request) = asked.expect("node 3 passes it on");
        let mut refusal = vec![OUTCOMES];
        refusal.extend_from_slice(&request[1..9]);
        refusal.put_u8(1);
        let mut reply = kv::ReplyBuffer::new();
        reply.error("TRYAGAIN MOVED in the words of another release");
        refusal.put_bytes(reply.as_bytes());
        cluster.node(3).peer_frame(to, &refusal).expect("it is well formed");
        match has_later {
            false => assert_eq!(cluster.reply(client), "OK"),
            true => {
                assert_error(&cluster.reply(client), "MOVED");
                assert_eq!(cluster.reply(client), "OK");
            }
        }
    }
}

#[test]
fn every_role_survives_every_message_with_extreme_numbers() {
    let numbers = [0, 1, 2, 7, u64::from(u32::MAX), u64::MAX - 1, u64::MAX];
    let mut record = Vec::new();
    Command::Set {
        key: b"k",
        value: b"w",
        expiry: Expiry::Set(Deadline::In(i64::MAX)),
        condition: kv::Condition::Always,
        answer: kv::SetAnswer::Status,
    }
    .encode(&mut record);
    for epoch in numbers {
        for number in numbers {
            let position = Position { epoch, offset: number };
            let early = Position { epoch: 0, offset: number };
            let (time, commit, leader_offset) = (number, number, number);
            let append = |previous, batch_epoch, count, records| Message::Append {
                epoch,
                previous,
                batch_epoch,
                count,
                time,
                commit,
                leader_offset,
                acknowledge: true,
                rest: true,
                records,
            };
            let mut payloads: Vec<Vec<u8>> = [
                append(position, epoch, 0, &[]),
                append(early, 0, 0, &[]),
                append(position, epoch, 1, &record),
                append(early, 0, 1, &record),
                Message::SnapshotChunk { epoch, transfer: number, index: number as u32, entries: &[] },
                Message::SnapshotEnd { epoch, transfer: number, chunks: number as u32 },
                Message::SnapshotProgress { epoch, transfer: number, next: number as u32 },
                Message::Probe { epoch },
                Message::Holding { epoch, last: position, intact: true },
                Message::Stale { epoch },
            ]
            .iter()
            .map(|message| group_message((number % 2) as u16, message))
            .collect();
            // Messages whose fields may still change are written by their layout: tag, epoch, then numbers.
            for (tag, fields) in [(2u8, 2), (3, 4), (4, 4), (5, 7), (11, 1)] {
                let mut payload = vec![GROUP];
                payload.put_u16((number % 2) as u16);
                payload.put_u8(tag);
                payload.put_u64(epoch);
                (0..fields).for_each(|_| payload.put_u64(number));
                payloads.push(payload);
            }
            let mut cluster = cluster();
            for payload in &payloads {
                for (from, to) in [(1, 2), (2, 1), (1, 3), (3, 2)] {
                    survives(&mut cluster, from, to, payload);
                }
            }
            cluster.now.monotonic_us += 10_000_000;
            for id in 1..=3 {
                survives(&mut cluster, id % 3 + 1, id, &[REQUESTS]);
            }
        }
    }
}

#[test]
fn false_reports_about_a_recovering_leader_do_no_harm() {
    let numbers = [0, 1, 5, u64::MAX];
    for number in numbers {
        for epoch in [2, u64::MAX] {
            let mut cluster = cluster();
            cluster.pause(3);
            cluster.kill(1);
            cluster.restart(1);
            cluster.turns(2);
            let position = Position { epoch: 1, offset: number };
            let holding = Message::Holding { epoch, last: position, intact: true };
            survives(&mut cluster, 3, 1, &group_message(0, &holding));
            for tag in [5u8, 6, 7, 4, 1] {
                let mut payload = vec![GROUP, 0, 0, tag];
                payload.put_u64(epoch);
                (0..8).for_each(|_| payload.put_u64(number));
                survives(&mut cluster, 3, 1, &payload);
                survives(&mut cluster, 2, 1, &payload);
            }
        }
    }
}

#[test]
fn forwarded_requests_with_extreme_fields_do_no_harm() {
    let mut cluster = cluster();
    let scan = |position, count, group, next| Command::Scan {
        position,
        count,
        pattern: None,
        kind: None,
        group,
        next,
    };
    let requests = [
        scan(0, 10, 0, 0),
        scan(u64::MAX, u64::MAX, u16::MAX, u16::MAX),
        scan(7, 0, 3, 2),
        Command::RandomKey { draw: u64::MAX },
        Command::GetRange { key: b"k", start: i64::MIN, end: i64::MAX },
        Command::SetRange { key: b"k", offset: u64::MAX, value: b"x" },
        Command::Append { key: b"k", value: b"x", bytes_max: 0 },
        Command::Append { key: b"k", value: b"x", bytes_max: u64::MAX },
        Command::IncrementByFloat { key: b"n", delta: b"not a number" },
        Command::Purge { until: u64::MAX },
        Command::Replicate { key: b"k", value: b"x", version: u64::MAX },
        Command::Replicate { key: b"k", value: b"x", version: 0 },
        Command::Set {
            key: b"k",
            value: b"x",
            expiry: Expiry::Set(Deadline::At(i64::MIN)),
            condition: kv::Condition::Always,
            answer: kv::SetAnswer::Before,
        },
        Command::GetExpire { key: b"k", expiry: Expiry::Set(Deadline::In(i64::MAX)) },
        Command::Keys { pattern: b"[[[[*?\\" },
    ];
    for (id, command) in requests.iter().enumerate() {
        for remaining_ms in [0, 1, u32::MAX] {
            for (from, to) in [(2, 1), (1, 2), (1, 3)] {
                let group = id as u16 % 2;
                survives(&mut cluster, from, to, &forwarded(u64::MAX, group, remaining_ms, command));
            }
            cluster.turns(2);
        }
    }
    cluster.turns(200);
    let client = cluster.client(1);
    assert_eq!(cluster.ask(client, "PING"), "PONG");
}

#[test]
fn an_unexpected_outcome_changes_nothing() {
    let mut cluster = cluster();
    let client = cluster.client(3);
    cluster.send(client, "GET k");
    for id in [0, 1, 1 << 32, u64::MAX] {
        let mut payload = vec![OUTCOMES];
        payload.put_u64(id);
        payload.put_u8(1);
        let mut reply = kv::ReplyBuffer::new();
        reply.error("ERR a lie");
        payload.put_bytes(reply.as_bytes());
        // Node 2 was not asked: the request went to node 1.
        cluster.node(3).peer_frame(2, &payload).expect("it is well formed");
    }
    assert_eq!(cluster.reply(client), "\"v\"");
}

/// Encodes a part of a request's outcome as a peer does.
fn outcome_part(id: u64, length: u32, offset: u32, bytes: &[u8]) -> Vec<u8> {
    let mut payload = vec![OUTCOME_PART];
    payload.put_u64(id);
    payload.put_u8(1); // Refused, without further details.
    payload.put_u32(length);
    payload.put_u32(offset);
    payload.extend_from_slice(bytes);
    payload
}

#[test]
fn parts_of_a_reply_out_of_order_are_refused_and_the_request_ends() {
    let mut reply = kv::ReplyBuffer::new();
    reply.bulk(b"a reply");
    let whole = reply.as_bytes();
    let length = whole.len() as u32;
    let too_long = u32::try_from(cluster().node(1).peer_payload_bytes_max()).expect("a limit") + 1;
    let broken = [
        vec![(length, 3, &whole[3..])], // The beginning is missing.
        vec![(length, 0, &whole[..3]), (length, 4, &whole[4..])], // Bytes in between are missing.
        vec![(length, 0, &whole[..3]), (length, 2, &whole[2..])], // The parts overlap.
        vec![(length, 0, &whole[..3]), (length, 0, whole)], // The second part begins again.
        vec![(too_long, 0, &whole[..3])],
        vec![(length - 1, 0, &whole[..whole.len() - 1])], // The parts are not a reply.
        vec![(length + 2, 0, whole), (length + 2, length, &b"\0\0"[..])], // The parts are more than one reply.
    ];
    for parts in broken {
        let mut cluster = cluster();
        let client = cluster.client(3);
        cluster.record();
        cluster.send(client, "INCR n");
        cluster.turns(2);
        let asked =
            cluster.recorded().into_iter().find(|(from, _, payload)| (*from, payload[0]) == (3, REQUESTS));
        let (_, _, request) = asked.expect("node 3 passes it on");
        let id = u64::from_le_bytes(request[1..9].try_into().expect("eight bytes"));
        let node = cluster.node(3);
        // Parts from a node that was not asked are ignored.
        assert_eq!(node.peer_frame(2, &outcome_part(id, length, 0, whole)), Ok(()));
        let read: Vec<bool> = parts
            .iter()
            .map(|(length, offset, bytes)| {
                node.peer_frame(1, &outcome_part(id, *length, *offset, bytes)).is_ok()
            })
            .collect();
        assert!(!read[read.len() - 1] && read[..read.len() - 1].iter().all(|is_read| *is_read), "{parts:?}");
        // The driver closes the link.
        cluster.break_link(1, 3);
        let reply = cluster.reply(client);
        assert!(reply.starts_with("-UNKNOWN"), "{reply}");
        assert_eq!(cluster.node(3).long_reply_bytes(), (0, 0));
    }
}

#[test]
fn a_peer_that_acknowledges_more_of_a_reply_than_was_sent_is_refused() {
    let setup = setup(3, &["prefix= acks=majority"]);
    let mut cluster = setup.with(|configuration| configuration.long_command_bytes = 400).start();
    let client = cluster.client(2);
    assert_eq!(cluster.ask(client, &format!("SET k {}", "v".repeat(20_000))), "OK");
    cluster.record();
    cluster.send(client, "GET k");
    cluster.turns(10);
    let parts = cluster.recorded();
    let (_, _, part) = parts.iter().find(|(_, _, payload)| payload[0] == OUTCOME_PART).expect("a part");
    let arrived = |so_far: u32| {
        let mut payload = vec![PARTS_ARRIVED];
        payload.extend_from_slice(&part[1..9]);
        payload.put_bool(true);
        payload.put_u32(so_far);
        payload
    };
    let leader = cluster.node(1);
    for so_far in [0, 19_999, 20_005, u32::MAX] {
        assert!(leader.peer_frame(2, &arrived(so_far)).is_err(), "{so_far} bytes");
        assert_eq!(leader.peer_frame(3, &arrived(so_far)), Ok(()), "node 3 is sent nothing");
    }
    assert_eq!(cluster.reply(client).len(), 20_002, "what is refused changes nothing");
}

/// Records frames of all kinds that nodes send each other: joining, filling, writing, forwarding, recovering.
fn frames() -> Vec<(NodeId, NodeId, Vec<u8>)> {
    let setup = setup(3, &["prefix= acks=majority reads=any", "prefix=b: acks=all leader=2"]);
    let mut cluster = setup.with(|configuration| configuration.long_command_bytes = 100).start_cold();
    cluster.record();
    cluster.settle();
    let client = cluster.client(3);
    let requests = [
        "SET k v PX 50",
        "SET b:k v",
        "GET b:k",
        "INCR n",
        "APPEND n 1",
        "WAIT 1 0",
        "MSET a 1 c 2",
        "DEL a c",
        "SCAN 0",
        "KEYS *",
        "RENAME n m",
        "COPY m o",
        "SETRANGE m 3 x",
        "GETEX m EX 5",
        "EXPIRE o 100 NX",
        "SETRANGE b:l 200 end",
        "GET b:l",
    ];
    cluster.pipeline(client, &requests);
    cluster.turns(60);
    cluster.kill(1);
    cluster.restart(1);
    cluster.settle();
    cluster.kill(3);
    cluster.restart(3);
    cluster.settle();
    let mut frames = cluster.recorded();
    // Heartbeats are all alike, and would crowd out rare messages.
    let mut kept = std::collections::BTreeSet::new();
    frames.retain(|(from, to, payload)| {
        let head = payload.iter().take(4).copied().collect::<Vec<u8>>();
        kept.insert((*from, *to, head, payload.len()))
    });
    assert!(frames.len() > 30, "{}", frames.len());
    frames
}

#[derive(Clone, Debug)]
enum Change {
    Set(usize, u8),
    Cut(usize),
    Append(Vec<u8>),
    /// Overwrites eight bytes with an extreme number.
    Number(usize, u64),
}

fn change() -> impl Strategy<Value = Change> {
    let number = prop_oneof![Just(0), Just(u64::MAX), Just(u64::MAX - 1), Just(1 << 63), any::<u64>()];
    prop_oneof![
        (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        any::<usize>().prop_map(Change::Cut),
        proptest::collection::vec(any::<u8>(), 1..20).prop_map(Change::Append),
        (any::<usize>(), number).prop_map(|(at, number)| Change::Number(at, number)),
    ]
}

fn changed(payload: &[u8], changes: &[Change]) -> Vec<u8> {
    let mut bytes = payload.to_vec();
    for change in changes {
        match change {
            _ if bytes.is_empty() => {}
            Change::Set(at, byte) => {
                let at = at % bytes.len();
                bytes[at] = *byte;
            }
            Change::Cut(at) => bytes.truncate(at % bytes.len()),
            Change::Append(more) => bytes.extend_from_slice(more),
            Change::Number(at, number) => {
                let at = at % bytes.len();
                bytes[at..].iter_mut().zip(number.to_le_bytes()).for_each(|(place, byte)| *place = byte);
            }
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_do_no_harm(payloads in proptest::collection::vec(
        (0..=PARTS_ARRIVED, proptest::collection::vec(any::<u8>(), 0..200)), 1..100)) {
        let mut cluster = cluster();
        for (kind, mut payload) in payloads {
            payload.insert(0, kind);
            for (from, to) in [(1, 2), (2, 1), (2, 3)] {
                survives(&mut cluster, from, to, &payload);
            }
        }
    }

    #[test]
    fn altered_frames_do_no_harm(
        picks in proptest::collection::vec(
            (any::<usize>(), proptest::collection::vec(change(), 1..4), any::<bool>()), 1..150)) {
        thread_local!(static FRAMES: Vec<(NodeId, NodeId, Vec<u8>)> = frames());
        let mut cluster = cluster();
        FRAMES.with(|frames| {
            for (pick, changes, elsewhere) in &picks {
                let (from, to, payload) = &frames[pick % frames.len()];
                // Some frames go to a node other than the intended one.
                let to = if *elsewhere { 6 - from - to } else { *to };
                survives(&mut cluster, *from, to, &changed(payload, changes));
                cluster.now.monotonic_us += 1000 * (*pick as u64 % 50);
            }
        });
    }
}

#[test]
fn messages_from_nodes_outside_the_map_are_ignored() {
    let mut cluster = setup(3, &[]).start();
    cluster.record();
    let client = cluster.client(2);
    assert_eq!(cluster.ask(client, "SET k v"), "OK");
    let frames = cluster.recorded();
    assert!(!frames.is_empty());
    for (_, to, payload) in frames {
        assert_eq!(cluster.node(to).peer_frame(9, &payload), Ok(()));
    }
    assert_eq!(cluster.ask(client, "GET k"), "\"v\"");
}
