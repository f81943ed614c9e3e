//! A replica that is taken away leaves no request without an outcome, and refuses only requests that can no longer take
//! effect.

use kv::{Command, Condition, Expiry, SetAnswer};
use protocol::contract::{
    Configuration, Effects, Input, NodeId, Now, Request, Result as Outcome, Submission, Ticket,
};
use protocol::leader_follower::{Acks, Durability};
use protocol::{Replica, abd, blocking, consensus, leader_follower};
use std::collections::BTreeMap;

/// Three replicas whose messages arrive at once, and whose records are durable at once.
struct Group<R> {
    replicas: Vec<R>,
    now: Now,
    recorded: Vec<u64>,
}

impl<R: Replica> Group<R> {
    fn new(make: impl Fn(NodeId) -> R) -> Group<R> {
        let replicas = (1..=3).map(make).collect();
        let now = Now { monotonic_us: 1_000_000, unix_ms: 1_700_000_000_000 };
        let mut group = Group { replicas, now, recorded: vec![0; 3] };
        let members = vec![1, 2, 3];
        let configuration =
            Configuration { epoch: 1, leader: 1, in_sync: members.clone(), members, is_given_up: false };
        for id in 1..=3 {
            group.replicas[id - 1].begin_with_group();
            group.step(id, Input::Configure(&configuration));
            group.step(id, Input::Lease { until_us: 1 << 40 });
            for peer in (1..=3).filter(|peer| *peer != id) {
                group.step(id, Input::Link { peer: peer as NodeId, up: true });
            }
        }
        group
    }

    /// Runs one step, and what follows from it at the others.
    fn step(&mut self, id: usize, input: Input<'_, &[u8]>) {
        let mut effects = Effects::default();
        let input = input.with_message(R::decode).expect("replicas send what can be read");
        self.replicas[id - 1].step(self.now, input, &mut effects);
        for message in &effects.messages {
            let bytes = message.bytes.parts(&effects.bytes).concat();
            self.step(message.to as usize, Input::Message { from: id as NodeId, message: &bytes });
        }
        if !effects.records.is_empty() {
            self.recorded[id - 1] += effects.records.len() as u64;
            self.step(id, Input::Durable { record: self.recorded[id - 1] });
        }
    }

    /// Runs until the group serves.
    fn settle(&mut self) {
        for _ in 0..5000 {
            self.now.monotonic_us += 1000;
            self.now.unix_ms += 1;
            for id in 1..=3 {
                self.step(id, Input::Tick);
                self.step(id, Input::Flush);
            }
        }
        let serves = |replica: &R| replica.summary(self.now).ready;
        assert!(self.replicas.iter().all(serves), "the group serves");
    }

    /// Sends the leader, or any replica, a write, a read after it and a `WAIT`, and takes the replica away before any other
    /// has answered. Returns the outcome of each: `None` where the request was handed on.
    fn ask_and_retire(mut self) -> BTreeMap<u64, Option<Outcome>> {
        let replica = self.replicas.iter().position(Replica::is_leader).unwrap_or(0);
        let replica = &mut self.replicas[replica];
        let mut effects = Effects::default();
        let set = Command::Set {
            key: b"k",
            value: b"v",
            condition: Condition::Always,
            expiry: Expiry::Clear,
            answer: SetAnswer::Status,
        };
        let asked = [
            Request::Command(&set),
            Request::Command(&Command::Get { key: b"k" }),
            Request::Wait { offset: u64::MAX, count: 2 },
        ];
        for (request, sequence) in asked.iter().zip(0..) {
            let ticket = Ticket { client: 1, sequence };
            let deadline_us = self.now.monotonic_us + 5_000_000;
            let follows = sequence > 0;
            let submission = Submission { ticket, request, follows, seen: 0, deadline_us, fenced: false };
            replica.step(self.now, Input::Request(&submission), &mut effects);
        }
        replica.step(self.now, Input::Flush, &mut effects);
        replica.step(self.now, Input::Retire, &mut effects);
        let mut ends = BTreeMap::new();
        for outcome in &effects.outcomes {
            let before = ends.insert(outcome.ticket.sequence, Some(outcome.result));
            assert_eq!(before, None, "one outcome for each");
        }
        for handed_on in &effects.handed_on {
            assert_eq!(ends.insert(handed_on.ticket.sequence, None), None, "one outcome for each");
        }
        assert_eq!(ends.len(), 3, "an outcome for each: {ends:?}");
        ends
    }
}

fn retires<R: Replica>(make: impl Fn(NodeId) -> R) -> [BTreeMap<u64, Option<Outcome>>; 2] {
    let before = Group::new(&make).ask_and_retire();
    let mut group = Group::new(&make);
    group.settle();
    [before, group.ask_and_retire()]
}

const WRITE: u64 = 0;
const READ: u64 = 1;

#[test]
fn leader_follower_reports_unknown_for_sent_writes_and_hands_on_the_rest() {
    let [_, served] = retires(|id| {
        let options = leader_follower::Options {
            acks: Acks::All,
            reads_any: false,
            backlog_bytes: 1 << 20,
            spill_bytes_min: usize::MAX,
            durability: Durability::None,
            planted: Default::default(),
        };
        leader_follower::Replica::new(id, options, Default::default(), 1)
    });
    assert_eq!(served[&WRITE], Some(Outcome::Unknown), "a follower may hold it");
    assert_eq!(served[&READ], None, "another node is asked");
}

#[test]
fn consensus_reports_unknown_for_its_proposals() {
    let [unled, led] = retires(|id| {
        let options = consensus::Options {
            lease: consensus::Lease::Log,
            reads_any: false,
            log_bytes: 1 << 20,
            spill_bytes_min: usize::MAX,
            is_bounded: false,
            planted: Default::default(),
        };
        let random = u64::from(id) * 1_000_003;
        consensus::Replica::new(id, options, Default::default(), 1, random)
    });
    assert_eq!(unled[&WRITE], Some(Outcome::Refused), "there was no leader, so it was never proposed");
    assert_eq!(led[&WRITE], Some(Outcome::Unknown), "a follower may have accepted it");
    assert_eq!(led[&READ], Some(Outcome::Refused));
}

#[test]
fn abd_refuses_a_write_that_has_sent_only_its_query() {
    let [empty, ready] = retires(|id| {
        let options = abd::Options { keeps_records: false, planted: Default::default() };
        abd::Replica::new(id, options, Default::default(), 1, u64::from(id), 1)
    });
    assert_eq!(empty[&WRITE], Some(Outcome::Refused), "it was without its memory, and had not begun");
    assert_eq!(ready[&WRITE], Some(Outcome::Refused));
    assert_eq!(ready[&READ], Some(Outcome::Refused));
}

#[test]
fn blocking_refuses_operations_that_lack_their_locks() {
    let [empty, ready] = retires(|id| {
        let retry = blocking::Retry::Backoff;
        let options = blocking::Options { retry, keeps_records: false, planted: Default::default() };
        blocking::Replica::new(id, options, Default::default(), 1, u64::from(id), 1)
    });
    assert_eq!(empty[&WRITE], Some(Outcome::Refused), "it was without its memory, and had not begun");
    assert_eq!(ready[&WRITE], Some(Outcome::Refused), "no lock was granted, so nothing was sent");
    assert_eq!(ready[&READ], Some(Outcome::Refused));
}
