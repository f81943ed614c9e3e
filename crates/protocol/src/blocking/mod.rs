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
//! Any replica coordinates, any majority answers. A lock belongs to one *attempt* of one coordinator in one of its
//! lives; first come, first served, for a lease on the replica's own monotonic clock. A grant says what the replica
//! holds, so locking and reading are one round (the study's client read in a round of its own). A GET whose majority
//! agrees is done then; another one writes the newest back under its locks first. A SET or DEL chooses a tag above all
//! that it was told, and writes under its grants. Tags, lives, refilling, repair and the collection of tombstones are
//! those of all [`crate::registers`].
//!
//! # Promise
//!
//! * Each key is linearizable, with any minority of the replicas crashed, cut off, paused or without memory, and
//!   whatever clocks do.
//! * `retry = none`: an operation that is denied a majority of the locks fails (`LOCKED`), as the study's did, and each
//!   operation fights for itself. `retry = backoff`: operations of one coordinator on one key stand in line, and one
//!   that is denied releases all, waits a random time whose bound doubles, and tries again until its deadline.
//! * Every lock that was granted is released: those beyond the majority, those that are granted when the operation is
//!   over, and those of a failed attempt. A release that is lost is sent again. A lease only ends what a coordinator
//!   that died or was cut off has left.
//! * A refused write has not happened and never will. One that may have is told as unknown.
//!
//! # Why it holds
//!
//! **Tags order everything.** A tag is its writer's own: no two members share one, nor two lives of a member, and within
//! a life each write's counter is greater than that of the write before. A write that is done is held by a majority, and
//! so is what a read tells before it tells it. Every operation that begins later hears from a majority, in grants that
//! were given to it after it began, and the two share a replica that holds that tag or a greater one and is in a life
//! in which it still does ([`crate::registers`] shows why, for restarts too). So a later read tells nothing
//! older, and a later write's tag is greater: this is the argument of ABD, and it speaks of no lock.
//!
//! **So what are the locks for?** Not for linearizability. Let A's lease run out when one replica has stored its write,
//! and let B lock a majority, read, and write: B's tag is greater if it saw A's write; if it did not, A's write is not
//! done and may be ordered before or after B's by its tag, whichever it is. What is stored at a minority is repaired by
//! whoever reads it. Nothing here needs B to have waited for A. A lock with a lease cannot be relied upon for more,
//! since its holder may be paused for any time. What the locks do give:
//!
//! 1. *A write can be called back.* A replica takes a write only under the very grant that it names, and no replica ever
//!    gives the number of a grant twice. So when a replica says that it does not hold the write, and has freed the lock
//!    or says that the grant has ended, it will never take that write. If all replicas to which the write was sent say
//!    so, in the life in which it was sent to them, nobody has ever held it and nobody will: the write is refused, where
//!    ABD can only say unknown. That is why the coordinator's own replica stores last, when a majority is there with it,
//!    and why the check on the server matters: without it, a write that its client was told is refused appears later
//!    (`golden/naive_write_without_lock_check`).
//! 2. *Operations on one key hardly ever run side by side*, so reads rarely find a half-finished write.
//!
//! A replica that lost its memory between a write and its answer leaves the question open for good: somebody may have
//! read the write there before, and be about to write it back. Then the outcome is unknown.
//!
//! **Two holders of a majority** there are not: a replica grants a lock to one holder at a time. A grant ends with the life
//! of the replica that gave it, as it does with its lease. Whoever does not know of that yet holds less than it thinks, and
//! that is harmless: what it writes under such a grant is refused, and it asks for the lock again, or calls the write back.
//! So a replica that was started again grants locks at once, and waits for none that it has forgotten. Nor are the locks of
//! a coordinator kept when its node is known to have begun a later life: they end at once, and what was sent under them is
//! refused. Of one that is silent nobody knows whether it is dead or paused, and its locks end with their leases.
//!
//! **Progress.** An attempt that was denied holds nothing while it waits, and an attempt does not wait for replicas that
//! do not answer once it has met a lock: else two of them, each with a part of the locks, would wait for each other
//! until the leases end. Whoever is in its second phase keeps its locks and asks on: it needs them no more where its
//! write is stored, and it gets the others when their holders release them or their leases run out.
//!
//! # Caveats
//!
//! * A lock is not offered to clients: what they need is a lease with a fencing token.
//! * There is no read-modify-write: with leases the locks do not make it atomic.
//! * DEL's count is what was there when the key was locked. Several keys in one command are several operations.
//! * With backoff there is no order among waiting coordinators: one may be unlucky for long, and fail at its deadline.
//! * Keys that a dead coordinator had locked stay locked until it is started again, or its leases end. Locks are not
//!   recorded: only what is stored is found again after a crash.
//! * Tombstones are collected as in `abd`; so is what a minority missed repaired, in the background, without a lock.
//!
//! Sources: quorums: Gifford 1979; leases: Gray and Cheriton 1989; tags and write-back: Attiya, Bar-Noy and Dolev 1995,
//! Lynch and Shvartsman 1997; a number for each grant, checked where the data is: Chubby's sequencers (Burrows 2006).
//!
//! Reading order: [`item`] and [`message`] (what is said), [`locks`] and `state` (the replica's side), then
//! `coordinator`: `operation` (what an operation knows), `steps` (what it does next), `releases`. The folder `golden`
//! shows each behaviour message by message.

mod coordinator;
mod invariants;
pub mod item;
pub mod locks;
pub mod message;
mod options;
mod state;

use crate::contract::{Configuration, Effects, Input, NodeId, Now, Progress, Request, Ticket, Trace};
use crate::registers::{self, Incarnation, LivesView, Loss, Replacement, Sender, Upkeep};
use coordinator::Coordinator;
pub use item::{Answer, Ask};
use kv::codec::Malformed;
use kv::{Command, ReplyBuffer, Table, UnixMs};
pub use locks::{Holder, Lock};
pub use message::{Items, Message};
pub use options::{Options, Retry, Timing};
pub use state::Counters;
use state::State;

/// How one member stands, as another one sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// The member.
    pub id: NodeId,
    /// True when it was heard not long ago.
    pub answers: bool,
}

/// How a replica stands, for `INFO`, `/health` and tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// `replica`, `refilling` or `idle`.
    pub role: &'static str,
    /// It has its memory, and enough others answer: requests can be served here.
    pub ready: bool,
    /// Why it is not ready, for people; else empty.
    pub explanation: String,
    /// Which of its lives this is.
    pub incarnation: Incarnation,
    /// Operations under way at this coordinator.
    pub operations: usize,
    /// Locks that this replica has granted and whose lease has not run out.
    pub locks: usize,
    /// Tombstones held.
    pub tombstones: usize,
    /// What has happened so far.
    pub counters: Counters,
    /// What refilling, repair and the collection of tombstones have counted.
    pub upkeep: registers::Counters,
    /// How the other members stand.
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
    /// It has its memory and has taken up its work.
    serves: bool,
}

impl Replica {
    /// An empty replica, which does nothing until it is configured. `starts` says how often the node was started, this
    /// time included; no two lives may have the same number. `seed` names this life and decides how long operations wait
    /// for locks; `table_seed` keeps the table from flooding.
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

    /// The keyspace promises something else from now on.
    pub fn set_options(&mut self, options: Options) {
        self.state.options = options;
    }

    /// Answers a read from what this replica holds: for people and tests that look at one replica.
    pub fn peek(&mut self, command: &Command<'_>, now: UnixMs, out: &mut ReplyBuffer) {
        self.state.registers.table.read(command, now, out);
    }

    /// The locks that this replica has granted and whose lease has not run out, in the order of their keys.
    pub fn locks(&self, now: Now) -> impl Iterator<Item = (&[u8], &Lock)> {
        self.state.locks.live(now.monotonic_us)
    }

    /// How it stands. O(members and locks).
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
            // A group of registers keeps its members: tags name them by their place.
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
        request: Request<'_>,
        effects: &mut Effects,
    ) {
        let Some(upkeep) = &self.upkeep else {
            return effects.refuse(
                ticket,
                "CLUSTERDOWN NOQUORUM this replica has no configuration yet; nothing was done",
            );
        };
        let Replica { state, coordinator, .. } = self;
        if upkeep.is_ready() {
            return coordinator.request(state, now, (ticket, follows, deadline_us), request, effects);
        }
        // Any node takes any command, so one that is ready does. While none is known there may be one in a moment.
        match (state.registers.refusal(), upkeep.ready_node(&state.registers)) {
            (Some(refusal), _) => effects.refuse(ticket, &refusal),
            (None, Some(to)) => effects.redirect(ticket, to),
            (None, None) => coordinator.hold(state, (ticket, deadline_us), request, effects),
        }
    }

    /// What was asked while this replica was without its memory begins when it has it, or another member has.
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
            Message::Turn { .. } if !upkeep.is_ready() => {} // It has nothing to answer with, nor to wait for.
            Message::Turn { lives, asks, answers } => {
                if !self.hear(now, from, lives, effects) {
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

    /// Learns from the lives that come with a message. True when the message is to be heeded.
    fn hear(&mut self, now: Now, from: usize, lives: LivesView<'_>, effects: &mut Effects) -> bool {
        let registers = &mut self.state.registers;
        match registers.hear(from, lives) {
            Sender::Current => {
                registers.heard(from, now);
                registers.has_memory(from);
            }
            Sender::Earlier => return false,
            Sender::Impossible => {
                registers.reject(from, "it names lives that cannot be", effects);
                return false;
            }
        }
        true
    }

    /// Follows up what the upkeep has learnt: this replica may have its memory again, and others may have begun new
    /// lives.
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

    /// Grants and attempts are told from those of earlier lives. What an earlier life of this replica had granted ended with
    /// it: a write under such a grant is refused, and its coordinator asks for the lock again, or calls the write back.
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

    /// Whether no lock is held here, nor waits to be freed elsewhere. Those end with time, and need members to be heard.
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
            Input::Request { ticket, request, follows, deadline_us, .. } => {
                self.request(now, (ticket, follows, deadline_us), request, effects);
                self.state.send(self.state.timing.batch_bytes, effects);
            }
            Input::Message { from, message } => self.message(now, from, message, effects),
            Input::Configure(configuration) => self.configure(now, configuration, effects),
            Input::Link { peer, up } => self.link(peer, up, effects),
            Input::Tick => self.tick(now, effects),
            Input::Flush => {
                self.a_refilling_replica_answers_nobody();
                self.state.registers.journal.flush(effects);
                self.state.send(1, effects);
            }
            Input::Durable { record } => {
                self.state.registers.durable(record);
                self.coordinator.durable(&mut self.state, now, effects);
                self.state.send(self.state.timing.batch_bytes, effects);
            }
            Input::Lease { .. } => {} // Nobody leads.
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
