//! A voter that learns how its configuration ended, and cannot apply all of that at once.

use kv::{Command, Condition, Expiry, SetAnswer};
use omnipaxos::ballot_leader_election::Ballot;
use omnipaxos::messages::sequence_paxos::{AcceptDecide, AcceptSync, PaxosMsg, Prepare};
use omnipaxos::util::{LogSync, SequenceNumber};
use protocol::consensus::{
    Body, Entry, Envelope, Head, Identity, Lease, Message, Options, Proposer, Replica, StopSign, Timing,
};
use protocol::contract::{Configuration, Effects, Input, Now, Replica as _};

const NOW: Now = Now { monotonic_us: 1_000_000, unix_ms: 1 };

fn head(batch: u64, count: u32) -> Head {
    Head { proposer: Proposer { node: 2, life: 1, batch }, time: 1, count }
}

fn write(batch: u64) -> Entry {
    let mut bytes = Vec::new();
    let (condition, answer) = (Condition::Always, SetAnswer::Status);
    Command::Set { key: b"k", value: b"v", expiry: Expiry::Clear, condition, answer }.encode(&mut bytes);
    Entry::new(head(batch, 1), &bytes)
}

fn deliver(replica: &mut Replica, from: u16, number: u64, body: Body<'_>) {
    let sender = Identity { storage: u64::from(from), life: 1, process: 1 };
    let envelope = Envelope { configuration: 1, sender, to_storage: 100, to_life: 1, number };
    let mut bytes = Vec::new();
    Message { envelope, body }.encode(&mut bytes);
    let message = Message::decode(&bytes).expect("it was encoded here");
    replica.step(NOW, Input::Message { from, message }, &mut Effects::default());
    replica.check_invariants(NOW);
}

/// The last message is one that the leader sent before it knew of the end. The crate, which had received only the first
/// entry, put it after the stop-sign, and moved the decided index back.
#[test]
fn entries_of_an_old_leader_are_not_put_after_the_stop_sign() {
    let options = Options {
        lease: Lease::Log,
        reads_any: false,
        log_bytes: 1 << 20,
        spill_bytes_min: usize::MAX,
        is_bounded: false,
        planted: Default::default(),
    };
    let mut replica = Replica::new(1, options, Timing::default(), 5, 100);
    let members = vec![1, 2, 3];
    let configuration =
        Configuration { epoch: 1, leader: 0, members: members.clone(), in_sync: members, is_given_up: false };
    replica.step(NOW, Input::Configure(&configuration), &mut Effects::default());
    let n = Ballot { config_id: 1, n: 5, priority: 0, pid: 2 };
    let prepare = Prepare { n, decided_idx: 0, n_accepted: Ballot::default(), accepted_idx: 0 };
    deliver(&mut replica, 2, 1, Body::Paxos(PaxosMsg::Prepare(prepare)));
    let seq_num = |counter| SequenceNumber { session: 1, counter };
    let log_sync = LogSync { decided_snapshot: None, suffix: Vec::new(), sync_idx: 0, stopsign: None };
    let sync = AcceptSync { n, seq_num: seq_num(1), decided_idx: 0, log_sync };
    deliver(&mut replica, 2, 2, Body::Paxos(PaxosMsg::AcceptSync(sync)));
    let accept = |batch, counter, decided_idx| {
        let entries = vec![write(batch)];
        Body::Paxos(PaxosMsg::AcceptDecide(AcceptDecide {
            n,
            seq_num: seq_num(counter),
            decided_idx,
            entries,
        }))
    };
    deliver(&mut replica, 2, 3, accept(1, 2, 0));

    replica.stand_before(Some(2));
    let stop_sign = StopSign { id: 2, members: vec![1, 2, 3] };
    let entries = vec![write(1), write(2), Entry::stop(head(3, 0), &stop_sign)];
    deliver(&mut replica, 3, 1, Body::Decided { configuration: 1, from: 0, entries });
    assert_eq!(replica.status(NOW).applied_entries, 1);
    deliver(&mut replica, 2, 4, accept(2, 3, 1));

    replica.stand_before(None);
    replica.step(NOW, Input::Flush, &mut Effects::default());
    replica.check_invariants(NOW);
    let status = replica.status(NOW);
    assert_eq!((status.applied_entries, status.configuration), (3, 2));
}
