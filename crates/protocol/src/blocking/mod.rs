//! Blocking quorum registers: an operation locks its key on a majority, reads there, writes there, and unlocks.
//!
//! ```text
//!  client    coordinator 1                         replica 2        replica 3
//!    | SET k    | locks its own copy                   |                |
//!    |--------->|-- Lock ----------------------------->|                |
//!    |          |-- Lock -------------------------------------------->  |
//!    |          |<- Granted, holds 6.2.1 --------------|                |
//!    |          | a majority: the write is 7.1.1       |                |
//!    |          |-- Write 7.1.1 under the grant ------>| checks the lock|
//!    |          |<- Stored ----------------------------|                |
//!    |          | stores it too: a majority holds it   |                |
//!    |<-- OK ---|-- Unlock --------------------------->|                |
//!    |          |<- Granted, holds 6.2.1 -----------------------------  |
//!    |          |-- Write 7.1.1, Unlock ----------------------------->  |
//! ```
//!
//! Any replica can coordinate, and any majority is enough. A lock belongs to one *attempt* of one coordinator in one of
//! its incarnations: first come, first served, for the length of a lease on the replica's own monotonic clock. A grant
//! reports what the replica holds, so locking and reading take one round (in the study, the client read in a separate
//! round). A GET whose majority agrees is then done; any other GET first writes the newest value back under its locks. A
//! SET or DEL chooses a tag greater than all reported ones, and writes under its grants. Tags, incarnations, refilling,
//! repair and the collection of tombstones are shared by all register protocols ([`crate::registers`]).
//!
//! # Promise
//!
//! * Each key is linearizable, with any minority of the replicas crashed, cut off, paused or without memory, and whatever
//!   the clocks do.
//! * `retry = none`: an operation that is denied a majority of the locks fails (`LOCKED`), as in the study, and each
//!   operation competes separately. `retry = backoff`: operations of one coordinator on one key form a queue; a denied
//!   operation releases all its locks, waits a random time whose bound doubles, and tries again until its deadline.
//! * Every granted lock is released, including locks beyond the majority, locks granted after the operation is over, and
//!   locks of a failed attempt. A lost release is sent again. Leases end only locks whose coordinator died or was cut
//!   off.
//! * A refused write has not happened and never will. A write that may have happened is reported as unknown.
//!
//! # Why it is safe
//!
//! **Tags order everything.** A tag is unique to its writer: no two members share one, nor do two incarnations of a
//! member, and within an incarnation each write's counter is greater than that of the write before. A majority holds each
//! write that is done, and each value before a read returns it. Every operation that begins later gets reports from a
//! majority, in grants made to it after it began. The two majorities share a replica that holds that tag or a greater
//! one, in an incarnation in which it still does ([`crate::registers`] shows why, for restarts too). So a later read
//! returns nothing older, and a later write's tag is greater. This is the argument of ABD, and it does not mention locks.
//!
//! **So what are the locks for?** Not for linearizability. Let A's lease run out when one replica has stored its write,
//! and let B lock a majority, read, and write. If B saw A's write, B's tag is greater. If it did not, A's write is not
//! done and may be ordered before or after B's, as their tags order them. Any operation that reads a value stored only at
//! a minority repairs it. None of this requires B to have waited for A. A lock with a lease cannot be relied on for more,
//! since its holder may be paused for any time. What the locks do provide:
//!
//! 1. *A write can be withdrawn* ("called back" in errors and documents). A replica accepts a write only under exactly
//!    the grant that the write names, and no replica ever reuses the number of a grant. So when a replica reports that it
//!    does not hold the write, and has freed the lock or reports that the grant has ended, it will never accept that
//!    write. If all replicas to which the write was sent report this, in the incarnation in which the write was sent to
//!    them, no replica has ever held the write and none will: it is refused, where ABD can only report it as unknown. For
//!    this, the coordinator's own replica stores last, when it completes a majority. And for this the replica's check
//!    matters: without it, a write that was reported as refused appears later (`golden/naive_write_without_lock_check`).
//! 2. *Operations on one key rarely run concurrently*, so reads rarely find a half-finished write.
//!
//! If a replica loses its memory between a write and its answer, whether it held the write stays unknown forever: another
//! operation may have read the write there before, and be about to write it back. Then the outcome is unknown.
//!
//! **A majority never has two holders**: a replica grants a lock to one holder at a time. A grant ends with its lease,
//! and with the incarnation of the replica that made it. A holder that does not know of this yet believes that it has
//! more locks than it has, which is harmless: what it writes under such a grant is refused, and it requests the lock
//! again, or withdraws the write. So a restarted replica grants locks at once, without waiting for those that it has
//! forgotten to end. The locks of a coordinator end at once when its node is known to have begun a later incarnation, and
//! writes sent under them are refused. A silent coordinator may be dead or only paused, so its locks end with their
//! leases.
//!
//! **Progress.** A denied operation holds no locks while it waits, and an attempt that has met a lock does not wait for
//! replicas that do not answer. Otherwise two attempts, each with a part of the locks, would wait for each other until
//! the leases end. An operation in its second phase keeps its locks and continues to request the missing ones: it no
//! longer needs those of replicas that have stored its write, and it gets the others when their holders release them or
//! their leases run out.
//!
//! # Caveats
//!
//! * Clients cannot take these locks: they need a lease with a fencing token instead.
//! * There is no read-modify-write: with leases the locks do not make it atomic.
//! * DEL counts what existed when the key was locked. Several keys in one command are several operations.
//! * With backoff there is no order among waiting coordinators: an operation may be unlucky for a long time, and fail at
//!   its deadline.
//! * Keys that a dead coordinator had locked stay locked until it is restarted, or its leases end. Locks are not
//!   recorded: only stored values survive a crash.
//! * As in `abd`, tombstones are collected, and values that a minority missed are repaired, in the background and without
//!   a lock.
//!
//! Sources: quorums: Gifford 1979; leases: Gray and Cheriton 1989; tags and write-back: Attiya, Bar-Noy and Dolev 1995,
//! Lynch and Shvartsman 1997; a number for each grant, checked where the data is stored: Chubby's sequencers (Burrows
//! 2006).
//!
//! Reading order: [`item`] and [`message`] (the messages), [`locks`] and `state` (the replica's side), then `coordinator`:
//! `operation` (what an operation knows), `steps` (what it does next), `releases`. The folder `golden` shows each behaviour
//! message by message.

mod coordinator;
mod invariants;
pub mod item;
pub mod locks;
pub mod message;
mod options;
mod state;

use crate::contract::{Effects, NodeId, Now, Request, Ticket};
use crate::leaderless::{self, Strategy};
use crate::registers::floor::MOVED;
use crate::registers::{self, LivesView, MemberSet, Registers, Requests};
use crate::status::{Counter, counter};
use coordinator::Coordinator;
pub use item::{Answer, Ask};
pub use locks::{Holder, Lock};
pub use message::{Items, Message, Sequence};
pub use options::{Options, Retry, Timing};
pub use state::Counters;
use state::State;

/// One group's state machine on one node.
pub type Replica = leaderless::Replica<Blocking>;

/// A replica's status.
pub type Status = leaderless::Status<Counters>;

/// Reads and writes under locks of a majority.
#[derive(Debug)]
pub struct Blocking {
    state: State,
    coordinator: Coordinator,
}

impl Replica {
    /// Returns an empty replica, which does nothing until it is configured. `starts` counts the node's starts, this one
    /// included; no two incarnations may have the same number. `seed` identifies this incarnation and determines how long
    /// operations wait for locks; `table_seed` protects the table from hash flooding.
    pub fn new(
        id: NodeId,
        options: Options,
        timing: Timing,
        starts: u64,
        seed: u64,
        table_seed: u64,
    ) -> Replica {
        let state = State::new(options, timing, seed, table_seed);
        Replica::with(id, starts, Blocking { state, coordinator: Coordinator::new(seed) })
    }

    /// Takes changed promises of the keyspace.
    pub fn set_options(&mut self, options: Options) {
        self.strategy.state.options = options;
    }

    /// Returns the locks that this replica has granted and whose lease has not run out, in the order of their keys.
    pub fn locks(&self, now: Now) -> impl Iterator<Item = (&[u8], &Lock)> {
        self.strategy.state.locks.live(now.monotonic_us)
    }
}

impl Blocking {
    /// Sends messages that have become large.
    fn send(&mut self, effects: &mut Effects) {
        self.state.send(self.state.timing.batch_bytes, effects);
    }
}

impl Strategy for Blocking {
    type Items<'a> = Items<'a>;
    type Counters = Counters;

    fn registers(&self) -> &Registers {
        &self.state.registers
    }

    fn registers_mut(&mut self) -> &mut Registers {
        &mut self.state.registers
    }

    fn timing(&self) -> &registers::Timing {
        &self.state.timing.upkeep
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

    /// Grants and attempts get numbers that no earlier incarnation has used. Grants of an earlier incarnation of this
    /// replica ended with it: a write under such a grant is refused, and its coordinator requests the lock again, or
    /// withdraws the write.
    fn begin(&mut self) {
        let State { registers, locks, .. } = &mut self.state;
        locks.begin_life(registers.lives.own());
        self.coordinator.begin_life(registers.lives.own());
    }

    fn renewed(&mut self, members: MemberSet) {
        self.state.free_locks_of_earlier_lives(members);
        self.coordinator.renew(members);
    }

    fn request(
        &mut self,
        now: Now,
        asked: (Ticket, bool, u64),
        request: &Request<'_>,
        effects: &mut Effects,
    ) {
        self.coordinator.request(&mut self.state, now, asked, request, effects);
        self.send(effects);
    }

    fn hold(&mut self, (ticket, deadline_us): (Ticket, u64), request: &Request<'_>, effects: &mut Effects) {
        let bytes_max = self.state.timing.open_bytes_max;
        if !self.coordinator.requests.hold(ticket, deadline_us, request, bytes_max) {
            self.state.counters.refused += 1;
            effects.refuse(ticket, coordinator::OVERLOAD);
        }
    }

    fn resume(&mut self, now: Now, effects: &mut Effects) {
        self.coordinator.run_ready(&mut self.state, now, effects);
    }

    fn turn(
        &mut self,
        now: Now,
        from: usize,
        _lives: LivesView<'_>,
        Items { asks, answers }: Items<'_>,
        effects: &mut Effects,
    ) {
        asks.iter().for_each(|ask| self.state.serve(now, from, ask));
        for answer in answers.iter() {
            self.coordinator.answered(&mut self.state, now, from, answer, effects);
        }
        self.send(effects);
    }

    fn durable(&mut self, now: Now, effects: &mut Effects) {
        self.coordinator.durable(&mut self.state, now, effects);
        self.send(effects);
    }

    fn tick(&mut self, now: Now, effects: &mut Effects) {
        self.state.locks.sweep(now.monotonic_us);
        self.coordinator.tick(&mut self.state, now, effects);
        self.send(effects);
    }

    fn flush(&mut self, effects: &mut Effects) {
        self.state.send(1, effects);
    }

    fn end_first_rounds(&mut self, now: Now, effects: &mut Effects) {
        self.coordinator.refuse_cut_off(&mut self.state, now, MOVED, effects);
        self.coordinator.run_ready(&mut self.state, now, effects);
        self.send(effects);
    }

    fn retire(&mut self, now: Now, effects: &mut Effects) {
        self.coordinator.end_requests(&mut self.state, now, effects);
    }

    fn wakeup_us(&self) -> u64 {
        self.coordinator.wakeup_us()
    }

    /// Whether no lock is held here, and none waits to be freed elsewhere. Locks end with time, so while there are some
    /// the group cannot be quiescent.
    fn is_untimed(&self) -> bool {
        self.state.locks.is_empty() && self.coordinator.has_no_locks()
    }

    fn is_silent(&self) -> bool {
        self.state.locks.is_empty() && self.state.is_silent() && self.operations() == 0
    }

    fn counters(&self) -> Counters {
        Counters { expired: self.state.locks.expired, ..self.state.counters }
    }

    fn list(counted: Counters) -> Vec<Counter> {
        vec![
            counter("locks_granted", "Locks that this replica granted.", counted.granted),
            counter("locks_denied", "Locks that it denied.", counted.denied),
            counter("locks_expired", "Locks whose lease ran out.", counted.expired),
            counter("writes_denied", "Writes without the lock.", counted.writes_denied),
            counter("backoffs", "Operations that met a lock and tried again.", counted.backoffs),
            counter("one_round_reads", "Reads done in one round.", counted.one_round_reads),
            counter("repairs", "Reads that wrote back first.", counted.repairs),
            counter("surplus_released", "Locks released that were not needed.", counted.surplus_released),
            counter("retries", "Times that an operation asked again.", counted.retries),
            counter("withdrawn", "Writes called back before their deadline.", counted.withdrawn),
            counter("refused", "Requests refused, nothing changed.", counted.refused),
            counter("unknown_writes", "Writes with unknown outcome.", counted.unknown),
        ]
    }

    fn check(&self, now: Now, serves: bool) {
        self.check_all(now, serves);
    }
}
