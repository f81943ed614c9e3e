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
mod summary;

use crate::contract::{
    Configuration, Effects, Input, NOBODY, NodeId, Now, Progress, Request, Submission, Ticket, Trace,
};
use crate::registers::{self, Incarnation, LivesView, Loss, Replacement, Sender, Upkeep};
use crate::vouch::Vouch;
use coordinator::Coordinator;
pub use item::{Answer, Ask};
use kv::codec::Malformed;
use kv::{Command, ReplyBuffer, Table, UnixMs};
pub use locks::{Holder, Lock};
pub use message::{Items, Message};
pub use options::{Options, Retry, Timing};
pub use state::Counters;
use state::State;

/// The status of one member, as another member sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// The member.
    pub id: NodeId,
    /// Whether a message from it arrived recently.
    pub answers: bool,
}

/// A replica's status, for `INFO`, `/health` and tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// `replica`, `refilling` or `idle`.
    pub role: &'static str,
    /// The replica has its memory, and enough others answer: requests can be served here.
    pub ready: bool,
    /// Whether it gets its memory back from members that have theirs.
    pub catches_up: bool,
    /// Why it is not ready, for people; empty when it is.
    pub explanation: String,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Operations under way at this coordinator.
    pub operations: usize,
    /// The number of locks that this replica has granted and whose lease has not run out.
    pub locks: usize,
    /// Tombstones held.
    pub tombstones: usize,
    /// The counters of coordinator and replica.
    pub counters: Counters,
    /// The counters of refilling, repair and the collection of tombstones.
    pub upkeep: registers::Counters,
    /// The status of the other members.
    pub peers: Vec<PeerStatus>,
}

/// One group's state machine on one node: coordinator and replica.
#[derive(Debug)]
pub struct Replica {
    id: NodeId,
    /// How often the node was started, this time included.
    starts: u64,
    state: State,
    coordinator: Coordinator,
    /// `None` before the group is known.
    upkeep: Option<Upkeep>,
    /// The replica has its memory and serves.
    serves: bool,
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
        Replica {
            id,
            starts,
            state: State::new(options, timing, seed, table_seed),
            coordinator: Coordinator::new(seed),
            upkeep: None,
            serves: false,
        }
    }

    /// Takes changed promises of the keyspace.
    pub fn set_options(&mut self, options: Options) {
        self.state.options = options;
    }

    /// Answers a read from what this replica holds: for people and tests that look at one replica.
    pub fn peek(&mut self, command: &Command<'_>, now: UnixMs, out: &mut ReplyBuffer) {
        self.state.registers.table.read(command, now, out);
    }

    /// Returns the locks that this replica has granted and whose lease has not run out, in the order of their keys.
    pub fn locks(&self, now: Now) -> impl Iterator<Item = (&[u8], &Lock)> {
        self.state.locks.live(now.monotonic_us)
    }

    /// Returns the replica's status. O(members and locks).
    pub fn status(&self, now: Now) -> Status {
        let State { registers, timing, counters, locks, .. } = &self.state;
        let peer = |member| PeerStatus {
            id: registers.group.node(member),
            answers: registers.is_heard(member, &timing.upkeep, now),
        };
        let peers: Vec<PeerStatus> = registers.group.others().iter().map(peer).collect();
        let (role, explanation) = match &self.upkeep {
            None => ("idle", "it has no configuration".to_string()),
            Some(upkeep) if !upkeep.is_ready() => ("refilling", upkeep.explain(registers)),
            Some(_) => ("replica", registers.lacks(&timing.upkeep, now)),
        };
        Status {
            role,
            ready: explanation.is_empty(),
            catches_up: self.upkeep.as_ref().is_some_and(|it| it.catches_up(registers)),
            explanation,
            incarnation: registers.lives.own(),
            operations: self.coordinator.open(),
            locks: locks.live(now.monotonic_us).count(),
            tombstones: registers.table.tombstones(),
            counters: Counters { expired: locks.expired, ..*counters },
            upkeep: registers.counters,
            peers,
        }
    }

    fn configure(&mut self, now: Now, configuration: &Configuration, effects: &mut Effects) {
        if let Some(upkeep) = &mut self.upkeep {
            // A group of registers keeps its members: tags identify them by their place.
            if configuration.is_given_up {
                upkeep.give_up(&mut self.state.registers, now, effects);
            }
            return;
        }
        if let Err(why) = self.state.registers.join(self.id, configuration) {
            return effects.trace.push(Trace::Rejected { peer: self.id, why });
        }
        self.upkeep = Some(Upkeep::new(&mut self.state.registers, now, self.starts, effects));
        self.notice();
    }

    fn request(
        &mut self,
        now: Now,
        (ticket, follows, deadline_us): (Ticket, bool, u64),
        request: &Request<'_>,
        effects: &mut Effects,
    ) {
        // A node that has just started configures its replicas when it is admitted. Until then requests wait there.
        let Some(upkeep) = &self.upkeep else { return effects.redirect(ticket, NOBODY) };
        let Replica { state, coordinator, .. } = self;
        if upkeep.is_ready() {
            return coordinator.request(state, now, (ticket, follows, deadline_us), request, effects);
        }
        // Any ready node can execute any command. While none is known, hold the request: one may become ready in a
        // moment.
        match (state.registers.refusal(), upkeep.ready_node(&state.registers)) {
            (Some(refusal), _) => effects.refuse(ticket, &refusal),
            (None, Some(to)) => effects.redirect(ticket, to),
            (None, None) => coordinator.hold(state, (ticket, deadline_us), request, effects),
        }
    }

    /// Requests that were held while this replica was without its memory begin once this replica, or another member, has
    /// its memory.
    fn go_on_with_held(&mut self, now: Now, effects: &mut Effects) {
        let (Some(upkeep), registers) = (&self.upkeep, &self.state.registers) else { return };
        if upkeep.is_ready() {
            self.coordinator.release_held(&mut self.state, now, effects);
        } else if let Some(to) = upkeep.ready_node(registers)
            && registers.standstill().is_none()
        {
            self.coordinator.hand_on_held(to, effects);
        }
    }

    fn message(&mut self, now: Now, from: NodeId, message: Message<'_>, effects: &mut Effects) {
        let (Some(from), Some(upkeep)) = (self.state.group().index_of(from), &mut self.upkeep) else {
            return;
        };
        if from == self.state.group().own() {
            return;
        }
        match message {
            Message::Upkeep(message) => {
                let timing = self.state.timing.upkeep;
                upkeep.message(&mut self.state.registers, &timing, now, from, message, effects);
                self.notice();
                self.go_on_with_held(now, effects);
            }
            Message::Turn { .. } if !upkeep.is_ready() => {} // This replica cannot answer, and waits for no answers.
            Message::Turn { lives, asks, answers } => {
                if !self.learn_from(now, from, lives, effects) {
                    return;
                }
                self.notice();
                asks.iter().for_each(|ask| self.state.serve(now, from, ask));
                for answer in answers.iter() {
                    self.coordinator.answered(&mut self.state, now, from, answer, effects);
                }
                self.state.send(self.state.timing.batch_bytes, effects);
            }
        }
    }

    /// Learns the incarnations in a message. True when the message counts.
    fn learn_from(&mut self, now: Now, from: usize, lives: LivesView<'_>, effects: &mut Effects) -> bool {
        let registers = &mut self.state.registers;
        match registers.learn_from(from, lives) {
            Sender::Current => {
                registers.heard(from, now);
                registers.has_memory(from);
            }
            Sender::Earlier => return false,
            Sender::Impossible => {
                registers.reject(from, "it names impossible incarnations", effects);
                return false;
            }
        }
        true
    }

    /// Acts on news from the upkeep: this replica may have its memory again, and other members may have begun new
    /// incarnations.
    fn notice(&mut self) {
        if self.upkeep.as_ref().is_some_and(Upkeep::is_ready) && !self.serves {
            self.serves = true;
            self.take_up_work();
        }
        let renewed = self.state.registers.lives.take_renewed();
        if !renewed.is_empty() {
            self.state.free_locks_of_earlier_lives(renewed);
            self.coordinator.renew(renewed);
        }
    }

    /// Starts to serve. Grants and attempts get numbers that no earlier incarnation has used. Grants of an earlier
    /// incarnation of this replica ended with it: a write under such a grant is refused, and its coordinator requests the
    /// lock again, or withdraws the write.
    fn take_up_work(&mut self) {
        let State { registers, locks, .. } = &mut self.state;
        locks.begin_life(registers.lives.own());
        self.coordinator.begin_life(registers.lives.own());
    }

    fn link(&mut self, peer: NodeId, up: bool, effects: &mut Effects) {
        let (Some(member), Some(upkeep)) = (self.state.group().index_of(peer), &mut self.upkeep) else {
            return;
        };
        let registers = &mut self.state.registers;
        registers.set_link(member, up);
        if up {
            upkeep.link_up(registers, member, effects);
        }
    }

    /// Whether no lock is held here, and none waits to be freed elsewhere. Locks end with time, so while there are some
    /// the group cannot be quiescent.
    fn has_no_locks(&self) -> bool {
        self.state.locks.is_empty() && self.coordinator.has_no_locks()
    }

    fn tick(&mut self, now: Now, effects: &mut Effects) {
        let may_stop = self.has_no_locks();
        let Some(upkeep) = &mut self.upkeep else { return };
        let timing = self.state.timing.upkeep;
        upkeep.tick(&mut self.state.registers, &timing, now, may_stop, effects);
        self.notice();
        self.go_on_with_held(now, effects);
        self.state.locks.sweep(now.monotonic_us);
        self.coordinator.tick(&mut self.state, now, effects);
        self.state.send(self.state.timing.batch_bytes, effects);
    }
}

impl crate::contract::Replica for Replica {
    type Message<'a> = Message<'a>;

    fn decode(message: &[u8]) -> std::result::Result<Message<'_>, Malformed> {
        Message::decode(message)
    }

    fn step(&mut self, now: Now, input: Input<'_, Message<'_>>, effects: &mut Effects) {
        match input {
            Input::Request(&Submission { ticket, request, follows, deadline_us, .. }) => {
                self.request(now, (ticket, follows, deadline_us), request, effects);
                self.state.send(self.state.timing.batch_bytes, effects);
            }
            Input::Message { from, message } => self.message(now, from, message, effects),
            Input::Configure(configuration) => self.configure(now, configuration, effects),
            Input::Link { peer, up } => self.link(peer, up, effects),
            Input::Tick => self.tick(now, effects),
            Input::Flush => {
                self.a_refilling_replica_sends_no_answers();
                self.state.registers.journal.flush(effects);
                self.state.send(1, effects);
            }
            Input::Durable { record } => {
                self.state.registers.durable(record);
                self.coordinator.durable(&mut self.state, now, effects);
                self.state.send(self.state.timing.batch_bytes, effects);
            }
            Input::Lease { .. } => {} // There is no leader.
            Input::Retire => self.coordinator.end_requests(&mut self.state, now, effects),
        }
    }

    fn wakeup_us(&self, now: Now) -> u64 {
        match &self.upkeep {
            None => u64::MAX,
            Some(upkeep) => {
                let upkeep_us =
                    upkeep.wakeup_us(&self.state.registers, &self.state.timing.upkeep, self.has_no_locks());
                upkeep_us.min(self.coordinator.wakeup_us()).max(now.monotonic_us)
            }
        }
    }

    fn set_reached(&mut self, _now: Now, peer: NodeId, is_reached: bool) {
        self.state.registers.set_reached(peer, is_reached);
    }

    fn vouched(&mut self, peer: NodeId, vouch: Vouch) {
        self.state.registers.vouches.note(peer, vouch);
    }

    fn is_resting(&self) -> bool {
        let has_rest = |upkeep: &Upkeep| upkeep.is_resting(&self.state.registers);
        self.coordinator.is_idle() && self.has_no_locks() && self.upkeep.as_ref().is_some_and(has_rest)
    }

    fn check_invariants(&self, now: Now) {
        self.check_all(now);
    }

    fn replay(&mut self, _now: Now, record: &[u8]) -> std::result::Result<(), Malformed> {
        self.state.registers.replay(record)
    }

    fn begin_checkpoint(&mut self) -> bool {
        self.state.registers.begin_checkpoint()
    }

    fn checkpoint_record(&mut self, bytes_max: usize, record: &mut Vec<u8>) -> Progress {
        self.state.registers.checkpoint_record(bytes_max, record)
    }

    fn abandon_checkpoint(&mut self) {
        self.state.registers.abandon_checkpoint();
    }

    fn table(&self) -> &Table {
        self.state.table()
    }

    fn replaced(&mut self, replacement: &Replacement) {
        self.state.registers.replaced(replacement);
    }

    fn set_room(&mut self, has_room: bool) {
        self.state.registers.set_room(has_room);
    }

    fn loss(&self, now: Now) -> Option<Loss> {
        self.upkeep.as_ref()?.loss(&self.state.registers, &self.state.timing.upkeep, now)
    }

    fn summary(&self, now: Now) -> crate::status::Status {
        self.status(now).into()
    }
}
