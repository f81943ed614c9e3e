//! ABD: each key is an atomic register that any member reads and writes through any majority. There is no leader.
//!
//! ```text
//!  client    coordinator 1           replica 2            replica 3
//!    | GET k     |                      |                     |
//!    |---------->|-- Query k, mine 7.2 ->                     |
//!    |           |-- Query k, mine 7.2 ---------------------->|
//!    |           |<- Same --------------|                     |
//!    |<-- v -----|  two of three hold 7.2: one round          |
//!    |           |<- Older 6.1 -------------------------------|
//!    | SET k w   |                      |                     |
//!    |---------->|-- Query k (tag only) -> ------------------>|
//!    |           |<- Same --------------|                     |
//!    |           | takes tag 8.1, stores it                   |
//!    |           |-- Update k 8.1 w --->| ------------------->|
//!    |           |<- Held --------------|                     |
//!    |<-- OK ----|  two of three hold 8.1                     |
//! ```
//!
//! # Promise
//!
//! * Each key is linearizable: a read sees every write that had ended before the read began, and once a read has seen a
//!   write, no later read returns an older value. Different keys are different registers: `MGET` is not a snapshot of all
//!   its keys.
//! * Any majority is enough. With a minority of the members down, slow or cut off, all operations continue, through any of
//!   the others, without any failure detection or election.
//! * A read that no majority answers in time is refused (`NOQUORUM`), and so is a write whose first round no majority
//!   answers: nothing was changed. The outcome of a write whose value was sent, and that no majority acknowledged in
//!   time, is unknown.
//! * A minority may lose its memory at the same time: a replica that restarts empty gets what it lacks before it answers.
//!   Replicas that keep records ([`Options::keeps_records`]) recover their memory, however many restart: nothing that a
//!   coordinator counts is sent before it is durable ([`journal`](crate::registers::journal)).
//!
//! # Why it is safe
//!
//! Tags order the writes of a key ([`Tag`]); no two writes share one. Let an operation's tag be that of the value that it
//! wrote or returned. When an operation ends, a majority holds its tag or a greater one, as a replica never goes back to
//! a lesser tag; a read in one round knows this from the answers. Any later operation queries a majority, which shares a
//! member with the earlier majority: so it sees that tag or a greater one, and a write chooses a greater one still. Order
//! the operations by their tags, each write before the reads of its value: this order agrees with real time, and each
//! read returns the last write before it. (Attiya, Bar-Noy, Dolev 1995; with several writers Lynch and Shvartsman 1997.)
//!
//! [`registers`] shows why the argument about the shared member survives a replica that lost its memory,
//! [`collection`](crate::registers::collection) why a tombstone may be forgotten.
//!
//! An operation's coordinator is a member: its own replica answers at once, without a message, and stores its writes
//! before they are sent.
//!
//! # Caveats
//!
//! * When a majority has lost its memory, nothing can show what it had acknowledged: the group stops and reports this,
//!   until an operator gives those writes up ([`is_given_up`](crate::Configuration::is_given_up)); then it continues with
//!   what the others hold. When all members have lost their memory, the group begins empty.
//! * The members never change: their places are a part of the tags.
//! * Expiry is judged by the clock of the coordinator that answers. One coordinator may see a key as expired while
//!   another, for as long as their clocks differ, later sees it as live.
//! * `DEL` counts the keys that existed at the time of its query. A key written after the query is deleted but not
//!   counted.
//! * `KEYS`, `SCAN`, `RANDOMKEY` and `DBSIZE` answer from what this replica holds, without any promise.
//! * Commands that need read-modify-write are refused ([`commands`](crate::registers::commands)).
//!
//! The folder `golden` shows each behaviour message by message.

mod coordinator;
mod invariants;
pub mod message;
mod operation;
mod options;
mod outbox;

use crate::contract::{Effects, NodeId, Now, Request, Ticket};
use crate::leaderless::{self, Strategy};
use crate::registers::{self, LivesView, MemberSet, Registers, Requests, Tag};
use crate::status::{Counter, counter};
pub use coordinator::Counters;
use coordinator::{Context, Coordinator, answer_to_query};
pub use message::{Item, Message};
pub use options::{Options, Timing};

/// One group's ABD state machine on one node.
pub type Replica = leaderless::Replica<Abd>;

/// A replica's status.
pub type Status = leaderless::Status<Counters>;

/// Reads and writes through any majority.
#[derive(Debug)]
pub struct Abd {
    seed: u64,
    timing: Timing,
    registers: Registers,
    coordinator: Coordinator,
}

impl Replica {
    /// Returns an empty replica, which does nothing until it is configured. `starts` counts the node's starts, this one
    /// included: the node keeps the count on its disk. `seed` identifies this incarnation and must be unique to it;
    /// `table_seed` protects the table from hash flooding.
    pub fn new(
        id: NodeId,
        options: Options,
        timing: Timing,
        starts: u64,
        seed: u64,
        table_seed: u64,
    ) -> Replica {
        let registers = Registers::new(seed, table_seed, options.keeps_records, options.planted);
        Replica::with(id, starts, Abd { seed, timing, registers, coordinator: Coordinator::default() })
    }
}

impl Abd {
    /// The coordinator, with the context of its next step.
    #[inline]
    fn parts<'a>(&'a mut self, now: Now, effects: &'a mut Effects) -> (&'a mut Coordinator, Context<'a>) {
        let Abd { timing, registers, coordinator, .. } = self;
        (coordinator, Context { registers, timing, now, effects })
    }
}

impl Strategy for Abd {
    type Items<'a> = message::Items<'a>;
    type Counters = Counters;
    const TICKS_EARLY: bool = true;

    #[inline]
    fn registers(&self) -> &Registers {
        &self.registers
    }

    #[inline]
    fn registers_mut(&mut self) -> &mut Registers {
        &mut self.registers
    }

    fn timing(&self) -> &registers::Timing {
        &self.timing.upkeep
    }

    fn requests(&self) -> &Requests {
        &self.coordinator.requests
    }

    fn requests_mut(&mut self) -> &mut Requests {
        &mut self.coordinator.requests
    }

    fn operations(&self) -> usize {
        self.coordinator.operations.len()
    }

    fn joined(&mut self) {
        self.coordinator = Coordinator::new(&self.registers, self.seed);
    }

    fn renewed(&mut self, members: MemberSet) {
        self.coordinator.forget_answers(members);
    }

    #[inline]
    fn heard(&mut self, member: usize) {
        self.coordinator.outbox.heard(member);
    }

    fn link(&mut self, now: Now, member: usize, up: bool, effects: &mut Effects) {
        let (coordinator, mut cx) = self.parts(now, effects);
        coordinator.links_changed(cx.registers, now);
        if up {
            coordinator.link_up(&mut cx, member);
        }
    }

    #[inline]
    fn request(
        &mut self,
        now: Now,
        asked: (Ticket, bool, u64),
        request: &Request<'_>,
        effects: &mut Effects,
    ) {
        let (coordinator, mut cx) = self.parts(now, effects);
        coordinator.request(&mut cx, asked, request);
        coordinator.resume(&mut cx);
    }

    fn hold(&mut self, (ticket, deadline_us): (Ticket, u64), request: &Request<'_>, effects: &mut Effects) {
        if !self.coordinator.requests.hold(ticket, deadline_us, request, self.timing.open_bytes_max) {
            effects.refuse(ticket, coordinator::OVERLOAD);
        }
    }

    fn resume(&mut self, now: Now, effects: &mut Effects) {
        let (coordinator, mut cx) = self.parts(now, effects);
        coordinator.resume(&mut cx);
    }

    #[inline]
    fn turn(
        &mut self,
        now: Now,
        from: usize,
        lives: LivesView<'_>,
        items: message::Items<'_>,
        effects: &mut Effects,
    ) {
        let Abd { timing, registers, coordinator, .. } = self;
        let timing = &*timing;
        // Answers to an earlier incarnation of this replica may carry operation numbers that are in use again.
        let answers_us = lives.of(registers.group.own()) == registers.lives.own();
        for item in items.iter() {
            match item {
                Item::Query { operation, wants_value, tag, key } => {
                    let held = registers.table.register(key);
                    match answer_to_query(held, operation, wants_value, tag) {
                        // No coordinator counts a tag that is older than the one in its query.
                        older @ Item::Older { .. } => {
                            coordinator.outbox.add(from, older, registers, timing, effects);
                        }
                        // A write continues from the greatest tag in any answer, whether or not its member holds it
                        // durably.
                        Item::Same { .. } | Item::Newer { .. }
                            if !wants_value && registers.held_after(key) > 0 =>
                        {
                            let (tag, deadline) = (Tag::of_version(held.version), held.deadline);
                            let seen = Item::Seen { operation, tag, deadline };
                            coordinator.outbox.add(from, seen, registers, timing, effects);
                        }
                        answer => coordinator.outbox.vouch(from, key, answer, registers, timing, effects),
                    }
                }
                Item::Update { operation, generation, key, register }
                    if registers.generations.admits(generation) && registers.may_take(key, register) =>
                {
                    registers.put(key, register);
                    let held = Item::Held { operation };
                    coordinator.outbox.vouch(from, key, held, registers, timing, effects);
                }
                Item::Update { .. } => {} // Its operation ended long ago, or there is no room for the value.
                answer if answers_us => {
                    let mut cx = Context { registers, timing, now, effects };
                    coordinator.item(&mut cx, from, answer);
                }
                _ => {}
            }
        }
        let (coordinator, mut cx) = self.parts(now, effects);
        coordinator.resume(&mut cx);
    }

    /// Operations that waited for records continue.
    fn durable(&mut self, now: Now, effects: &mut Effects) {
        let (coordinator, mut cx) = self.parts(now, effects);
        coordinator.durable(&mut cx);
        coordinator.resume(&mut cx);
    }

    fn tick(&mut self, now: Now, effects: &mut Effects) {
        let (coordinator, mut cx) = self.parts(now, effects);
        coordinator.tick(&mut cx);
        coordinator.resume(&mut cx);
    }

    #[inline]
    fn flush(&mut self, effects: &mut Effects) {
        self.coordinator.outbox.flush(&self.registers, &self.timing, effects);
    }

    fn end_first_rounds(&mut self, now: Now, effects: &mut Effects) {
        let (coordinator, mut cx) = self.parts(now, effects);
        coordinator.end_first_rounds(&mut cx);
        coordinator.resume(&mut cx);
    }

    fn retire(&mut self, _now: Now, effects: &mut Effects) {
        self.coordinator.end_requests(&self.registers, effects);
    }

    fn wakeup_us(&self) -> u64 {
        self.coordinator.wakeup_us(&self.timing)
    }

    fn is_silent(&self) -> bool {
        self.coordinator.operations.is_empty() && self.coordinator.outbox.is_empty()
    }

    fn counters(&self) -> Counters {
        self.coordinator.counters
    }

    fn list(counted: Counters) -> Vec<Counter> {
        vec![
            counter("one_round_reads", "Reads done in one round.", counted.one_round_reads),
            counter("two_round_reads", "Reads that wrote back first.", counted.two_round_reads),
            counter("write_backs", "Members that a value was written back to.", counted.write_backs),
            counter("retries", "Times that an operation asked again.", counted.retries),
            counter("refused", "Requests refused, nothing changed.", counted.refused),
            counter("unknown_writes", "Writes with unknown outcome.", counted.unknown),
        ]
    }

    fn check(&self, now: Now, _serves: bool) {
        self.check_all(now);
    }
}
