//! The encodings of `consensus`: encoded messages are read back, and all other bytes are refused and never cause a
//! panic, either here or in a replica that receives what can be read.

use kv::{Command, Condition, Expiry, SetAnswer};
use omnipaxos::ballot_leader_election::Ballot;
use omnipaxos::messages::ballot_leader_election::{HeartbeatMsg, HeartbeatReply, HeartbeatRequest};
use omnipaxos::messages::sequence_paxos::{
    AcceptDecide, AcceptSync, Accepted, Decide, NotAccepted, PaxosMsg, Prepare, PrepareReq, Promise,
};
use omnipaxos::util::{LogSync, SequenceNumber};
use proptest::prelude::*;
use protocol::consensus::{
    Body, Change, Entry, Envelope, Group, Head, Identity, Lease, Member, Message, Moment, Options, Proposer,
    Replica, StopSign, Timing, Voter,
};
use protocol::contract::{Configuration, Effects, Input, Now, Replica as _};

fn ballots() -> impl Strategy<Value = Ballot> {
    // Small numbers, so that they coincide with those of a replica.
    (0..3u32, 0..4u32, 0..5u64).prop_map(|(n, config_id, pid)| Ballot {
        config_id: config_id.min(1),
        n,
        priority: 0,
        pid,
    })
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let entry = (0..4u16, any::<u64>(), prop::collection::vec(any::<[u8; 3]>(), 0..3)).prop_map(
        |(node, batch, keys)| {
            let mut commands = Vec::new();
            for key in &keys {
                let command = Command::Set {
                    key,
                    value: b"v",
                    expiry: Expiry::Clear,
                    condition: Condition::Always,
                    answer: SetAnswer::Status,
                };
                command.encode(&mut commands);
            }
            let proposer = Proposer { node, life: 1, batch };
            Entry::new(Head { proposer, time: batch % 1000, count: keys.len() as u32 }, &commands)
        },
    );
    let stop_sign = (1..4u16, any::<u64>(), 1..4u32, nodes()).prop_map(|(node, batch, id, members)| {
        let proposer = Proposer { node, life: 1, batch };
        Entry::stop(Head { proposer, time: 1, count: 0 }, &StopSign { id, members })
    });
    prop::collection::vec(prop_oneof![5 => entry, 1 => stop_sign], 0..4)
}

/// Members by ascending number, as a group has them.
fn nodes() -> impl Strategy<Value = Vec<u16>> {
    prop::collection::btree_set(1..5u16, 1..4).prop_map(|nodes| nodes.into_iter().collect())
}

fn groups() -> impl Strategy<Value = Group> {
    (1..4u32, nodes(), 0..9u64).prop_map(|(id, nodes, begins)| Group {
        id,
        members: nodes.into_iter().map(|node| Member { node, since: 1 }).collect(),
        begins,
    })
}

fn identities() -> impl Strategy<Value = Identity> {
    let storage = prop_oneof![Just(100), 0..4u64];
    (storage, 0..4u64, 0..3u64).prop_map(|(storage, life, process)| Identity { storage, life, process })
}

fn voters() -> impl Strategy<Value = Voter> {
    (1..5u16, 0..3u32, identities())
        .prop_map(|(node, since, identity)| Voter { member: Member { node, since }, identity })
}

fn syncs() -> impl Strategy<Value = LogSync<Entry>> {
    (0..6usize, entries()).prop_map(|(sync_idx, suffix)| LogSync {
        decided_snapshot: None,
        suffix,
        sync_idx,
        stopsign: None,
    })
}

fn numbers() -> impl Strategy<Value = SequenceNumber> {
    (0..3u64, 0..4u64).prop_map(|(session, counter)| SequenceNumber { session, counter })
}

fn moments() -> impl Strategy<Value = Moment> {
    let groups = prop_oneof![Just(Group::default()), groups()];
    (0..9u64, 0..9u64, any::<u64>(), 0..99u64, groups)
        .prop_map(|(index, offset, time, floor, group)| Moment { index, offset, time, floor, group })
}

fn paxos() -> impl Strategy<Value = PaxosMsg<Entry>> {
    let index = || 0..8usize;
    prop_oneof![
        ballots().prop_map(|n| PaxosMsg::PrepareReq(PrepareReq { n })),
        (ballots(), index(), ballots(), index()).prop_map(|(n, decided_idx, n_accepted, accepted_idx)| {
            PaxosMsg::Prepare(Prepare { n, decided_idx, n_accepted, accepted_idx })
        }),
        (ballots(), ballots(), index(), index(), prop::option::of(syncs())).prop_map(
            |(n, n_accepted, decided_idx, accepted_idx, log_sync)| {
                PaxosMsg::Promise(Promise { n, n_accepted, decided_idx, accepted_idx, log_sync })
            }
        ),
        (ballots(), numbers(), index(), syncs()).prop_map(|(n, seq_num, decided_idx, log_sync)| {
            PaxosMsg::AcceptSync(AcceptSync { n, seq_num, decided_idx, log_sync })
        }),
        (ballots(), numbers(), index(), entries()).prop_map(|(n, seq_num, decided_idx, entries)| {
            PaxosMsg::AcceptDecide(AcceptDecide { n, seq_num, decided_idx, entries })
        }),
        (ballots(), index()).prop_map(|(n, accepted_idx)| PaxosMsg::Accepted(Accepted { n, accepted_idx })),
        ballots().prop_map(|n| PaxosMsg::NotAccepted(NotAccepted { n })),
        (ballots(), numbers(), index()).prop_map(|(n, seq_num, decided_idx)| PaxosMsg::Decide(Decide {
            n,
            seq_num,
            decided_idx
        })),
    ]
}

fn bodies() -> impl Strategy<Value = Body<'static>> {
    const CHUNK: &[u8] = b"no entries of a table";
    prop_oneof![
        5 => paxos().prop_map(Body::Paxos),
        1 => (0..4u32).prop_map(|round| Body::Heartbeat(HeartbeatMsg::Request(HeartbeatRequest { round }))),
        1 => (0..4u32, ballots(), ballots(), any::<bool>()).prop_map(|(round, ballot, leader, happy)| {
            Body::Heartbeat(HeartbeatMsg::Reply(HeartbeatReply { round, ballot, leader, happy }))
        }),
        1 => (ballots(), 0..9u64, 0..9u64).prop_map(|(ballot, end, decided)| Body::Position { ballot, end, decided }),
        1 => (ballots(), 0..9u64).prop_map(|(ballot, number)| Body::Confirm { ballot, number }),
        1 => (ballots(), 0..9u64).prop_map(|(ballot, number)| Body::Confirmed { ballot, number }),
        1 => (0..2u64, moments()).prop_map(|(transfer, moment)| Body::SnapshotBegin { transfer, moment }),
        1 => (0..2u64, 0..2u32, any::<bool>()).prop_map(|(transfer, index, empty)| {
            Body::SnapshotChunk { transfer, index, chunk: if empty { &[] } else { CHUNK } }
        }),
        1 => (0..2u64, 0..3u32, ballots(), entries(), prop::collection::vec(voters(), 0..3)).prop_map(
            |(transfer, chunks, round, rest, voters)| Body::SnapshotEnd { transfer, chunks, round, rest, voters }
        ),
        1 => (0..9u64, any::<bool>()).prop_map(|(index, asks)| Body::Behind { index, asks }),
        1 => (0..3u32, 0..9u64, entries())
            .prop_map(|(configuration, from, entries)| Body::Decided { configuration, from, entries }),
        1 => nodes().prop_map(|members| Body::Newer { members }),
        1 => voters().prop_map(|voter| Body::Outlived { voter }),
        1 => ballots().prop_map(|ballot| Body::LedBefore { ballot }),
        1 => ballots().prop_map(|ballot| Body::HandOver { ballot }),
        1 => (0..2u64, 0..4u32).prop_map(|(transfer, next)| Body::SnapshotProgress { transfer, next }),
    ]
}

fn changes() -> impl Strategy<Value = Change> {
    prop_oneof![
        (any::<u64>(), any::<u64>()).prop_map(|(identity, life)| Change::Life { identity, life }),
        voters().prop_map(Change::Peer),
        groups().prop_map(Change::Group),
        any::<u32>().prop_map(|since| Change::Excluded { since }),
        ballots().prop_map(Change::Promise),
        ballots().prop_map(Change::Accepted),
        any::<u64>().prop_map(Change::Decided),
        entries().prop_map(Change::Append),
        (any::<u64>(), entries()).prop_map(|(from, entries)| Change::Replace(from, entries)),
        moments().prop_map(Change::SnapshotBegin),
        prop::collection::vec(any::<u8>(), 0..20).prop_map(Change::SnapshotChunk),
        Just(Change::SnapshotEnd),
    ]
}

fn encoded(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

proptest! {
    #[test]
    fn a_message_is_read_back(body in bodies(), number in any::<u64>(), life in any::<u64>()) {
        let sender = Identity { storage: 7, life, process: 8 };
        let envelope = Envelope { configuration: 1, sender, to_storage: 9, to_life: life ^ 1, number };
        let bytes = encoded(&Message { envelope, body });
        let message = Message::decode(&bytes).unwrap();
        prop_assert_eq!(message.envelope, envelope);
        prop_assert_eq!(encoded(&message), bytes.clone());
        // No prefix of it is a message, nor is it one with more bytes after it.
        for end in 0..bytes.len() {
            prop_assert!(Message::decode(&bytes[..end]).is_err());
        }
        prop_assert!(Message::decode(&[&bytes[..], &[0]].concat()).is_err());
    }

    #[test]
    fn records_are_read_back(list in prop::collection::vec(changes(), 0..4)) {
        let mut bytes = Vec::new();
        list.iter().for_each(|change| change.encode(&mut bytes));
        prop_assert_eq!(Change::decode_all(&bytes).unwrap(), list);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0..24u8) {
        let _ = Change::decode_all(&bytes);
        let _ = Entry::decode(&bytes);
        let mut message = vec![0; 52];
        message.push(kind);
        message.extend(bytes);
        let _ = Message::decode(&message);
    }

    /// A peer may send anything that can be read, in any order, and time may pass: nothing panics. The peers identify
    /// themselves and number their messages, or nothing would be taken at all.
    #[test]
    fn no_message_of_a_peer_causes_a_panic(
        letters in prop::collection::vec((2..5u16, 0..4u32, bodies(), 0..4u8), 0..60),
        log_bytes in prop_oneof![Just(0usize), Just(1 << 20)],
    ) {
        let options = Options { lease: Lease::Log, reads_any: false, log_bytes, spill_bytes_min: usize::MAX, is_bounded: false, planted: Default::default() };
        let mut replica = Replica::new(1, options, Timing::default(), 5, 100);
        let (mut effects, mut now) = (Effects::default(), Now { monotonic_us: 1_000_000, unix_ms: 1 });
        let members = vec![1, 2, 3];
        let configuration = Configuration { epoch: 1, leader: 0, members: members.clone(), in_sync: members, is_given_up: false };
        replica.step(now, Input::Configure(&configuration), &mut effects);
        let mut records = 0;
        for (number, (from, configuration, body, passes)) in letters.into_iter().enumerate() {
            let envelope = Envelope {
                // Mostly the configuration with which the replica begins.
                configuration: if configuration == 0 { 2 } else { 1 },
                sender: Identity { storage: u64::from(from), life: 1, process: 1 },
                to_storage: 100,
                to_life: 1,
                number: number as u64 + 1,
            };
            let bytes = encoded(&Message { envelope, body });
            let message = Message::decode(&bytes).unwrap();
            replica.step(now, Input::Message { from, message }, &mut effects);
            if passes == 0 {
                now.monotonic_us += 80_000;
                replica.step(now, Input::Tick, &mut effects);
            }
            if passes <= 1 {
                replica.step(now, Input::Flush, &mut effects);
                records += effects.records.len() as u64;
                effects.clear();
                replica.step(now, Input::Durable { record: records }, &mut effects);
            }
        }
    }
}
