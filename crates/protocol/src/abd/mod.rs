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
//!   until an operator gives those writes up ([`Configuration::is_given_up`]); then it continues with what the others
//!   hold. When all members have lost their memory, the group begins empty.
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
mod summary;

use crate::contract::{
    Configuration, Effects, Input, NOBODY, NodeId, Now, Progress, Request, Submission, Ticket, Trace,
};
use crate::planted::Fault;
use crate::registers::{self, Incarnation, LivesView, Loss, Registers, Replacement, Sender, Tag, Upkeep};
use crate::vouch::Vouch;
pub use coordinator::Counters;
use coordinator::{Context, Coordinator, answer_to_query};
use kv::Table;
use kv::codec::Malformed;
pub use message::{Item, Message};
pub use options::{Options, Timing};

/// The status of one member, as another member sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// Its node.
    pub id: NodeId,
    /// Whether a message from it arrived recently.
    pub answering: bool,
    /// The milliseconds since the last message from it.
    pub silent_ms: u64,
    /// The newest incarnation known of it; 0 when none is.
    pub incarnation: Incarnation,
}

/// A replica's status, for `INFO`, `/health` and tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// `replica`, `refilling` or `idle`.
    pub role: &'static str,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The replica has its memory, and was recently in contact with a majority (including itself) that has its memory:
    /// requests can be served.
    pub ready: bool,
    /// Whether it gets its memory back from members that have theirs.
    pub catches_up: bool,
    /// The number of operations that it coordinates at present.
    pub open_operations: usize,
    /// Tombstones held.
    pub tombstones: usize,
    /// The other members.
    pub peers: Vec<PeerStatus>,
    /// The counters of its coordinator.
    pub counters: Counters,
    /// The counters of its upkeep.
    pub upkeep: registers::Counters,
    /// Why it is not ready, for people; empty when it is.
    pub explanation: String,
}

/// One group's ABD state machine on one node.
#[derive(Debug)]
pub struct Replica {
    id: NodeId,
    starts: u64,
    seed: u64,
    timing: Timing,
    registers: Registers,
    coordinator: Coordinator,
    /// `None`: no configuration yet.
    upkeep: Option<Upkeep>,
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
        Replica {
            id,
            starts,
            seed,
            timing,
            registers: Registers::new(seed, table_seed, options.keeps_records, options.planted),
            coordinator: Coordinator::default(),
            upkeep: None,
        }
    }

    /// True when it has its memory.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.upkeep.as_ref().is_some_and(Upkeep::is_ready)
    }

    /// Returns the replica's status. O(members).
    pub fn status(&self, now: Now) -> Status {
        let registers = &self.registers;
        let (role, explanation) = match &self.upkeep {
            None => ("idle", "it has no configuration".to_string()),
            Some(upkeep) if upkeep.is_ready() => ("replica", registers.lacks(&self.timing.upkeep, now)),
            Some(upkeep) => ("refilling", upkeep.explain(registers)),
        };
        let peer = |member: usize| PeerStatus {
            id: registers.group.node(member),
            answering: registers.is_heard(member, &self.timing.upkeep, now),
            silent_ms: registers.silent_ms(member, now),
            incarnation: registers.lives.of(member),
        };
        let peers: Vec<PeerStatus> = registers.group.others().iter().map(peer).collect();
        Status {
            role,
            incarnation: registers.lives.own(),
            ready: explanation.is_empty(),
            catches_up: self.upkeep.as_ref().is_some_and(|it| it.catches_up(registers)),
            open_operations: self.coordinator.operations.len(),
            tombstones: registers.table.tombstones(),
            peers,
            counters: self.coordinator.counters,
            upkeep: registers.counters,
            explanation,
        }
    }

    #[inline]
    fn request(
        &mut self,
        now: Now,
        (ticket, follows, deadline_us): (Ticket, bool, u64),
        request: &Request<'_>,
        effects: &mut Effects,
    ) {
        // A node that has just started configures its replicas when it is admitted. Until then requests wait there.
        let Some(upkeep) = &self.upkeep else { return effects.redirect(ticket, NOBODY) };
        let Replica { timing, registers, coordinator, .. } = self;
        if !upkeep.is_ready() {
            // Any ready node takes any command. While none is known, one may become ready in a moment.
            let bytes_max = timing.open_bytes_max;
            return match (registers.refusal(), upkeep.ready_node(registers)) {
                (Some(refusal), _) => effects.refuse(ticket, &refusal),
                (None, Some(to)) => effects.redirect(ticket, to),
                (None, None) if coordinator.requests.hold(ticket, deadline_us, request, bytes_max) => {}
                (None, None) => effects.refuse(ticket, coordinator::OVERLOAD),
            };
        }
        let mut cx = Context { registers, timing, now, effects };
        coordinator.request(&mut cx, (ticket, follows, deadline_us), request);
        coordinator.resume(&mut cx);
    }

    fn message(&mut self, now: Now, from: NodeId, message: Message<'_>, effects: &mut Effects) {
        let Some(upkeep) = &mut self.upkeep else { return };
        let Some(from) = self.registers.group.index_of(from) else { return };
        if from == self.registers.group.own() {
            return;
        }
        match message {
            // A refilling replica holds too little to answer, and sends nothing that could be taken for an answer.
            Message::Turn { .. } if !upkeep.is_ready() => {}
            Message::Turn { lives, items } => self.turn(now, from, lives, items, effects),
            Message::Upkeep(message) => {
                upkeep.message(&mut self.registers, &self.timing.upkeep, now, from, message, effects);
                self.coordinator.outbox.heard(from);
                self.notice_new_lives();
                self.go_on_with_held(effects);
            }
        }
        let Replica { timing, registers, coordinator, .. } = self;
        coordinator.resume(&mut Context { registers, timing, now, effects });
    }

    /// Processes one turn of another member: answers its questions, and takes its answers.
    #[inline]
    fn turn(
        &mut self,
        now: Now,
        from: usize,
        lives: LivesView<'_>,
        items: message::Items<'_>,
        effects: &mut Effects,
    ) {
        let is_stale = match self.registers.learn_from(from, lives) {
            Sender::Current => false,
            Sender::Earlier => true,
            Sender::Impossible => {
                return self.registers.reject(from, "it names impossible incarnations", effects);
            }
        };
        if is_stale && !self.registers.planted.has(Fault::StaleAcknowledgement) {
            return;
        }
        self.registers.heard(from, now);
        self.registers.has_memory(from);
        self.coordinator.outbox.heard(from);
        self.notice_new_lives();
        let Replica { timing, registers, coordinator, .. } = self;
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
    }

    /// Requests that were held while this replica was without its memory begin once this replica, or another member, has
    /// its memory.
    fn go_on_with_held(&mut self, effects: &mut Effects) {
        let Some(upkeep) = &self.upkeep else { return };
        let requests = &mut self.coordinator.requests;
        if upkeep.is_ready() {
            requests.release_held();
        } else if let Some(to) = upkeep.ready_node(&self.registers)
            && self.registers.standstill().is_none()
        {
            requests.hand_on_held(to, effects);
        }
    }

    #[inline]
    fn notice_new_lives(&mut self) {
        let renewed = self.registers.lives.take_renewed();
        if !renewed.is_empty() && !self.registers.planted.has(Fault::StaleAcknowledgement) {
            self.coordinator.forget_answers(renewed);
        }
    }

    fn link(&mut self, now: Now, peer: NodeId, up: bool, effects: &mut Effects) {
        let Some(upkeep) = &mut self.upkeep else { return };
        let Some(member) = self.registers.group.index_of(peer) else { return };
        self.registers.set_link(member, up);
        self.coordinator.links_changed(&self.registers, now);
        if up {
            upkeep.link_up(&self.registers, member, effects);
            let Replica { timing, registers, coordinator, .. } = self;
            coordinator.link_up(&mut Context { registers, timing, now, effects }, member);
        }
    }

    /// Only the first configuration counts: the members' places are part of the tags.
    fn configure(&mut self, now: Now, configuration: &Configuration, effects: &mut Effects) {
        if let Some(upkeep) = &mut self.upkeep {
            if configuration.members != self.registers.group.nodes() {
                let why = "the members of a group of registers stay the same";
                return effects.trace.push(Trace::Rejected { peer: self.id, why });
            }
            if configuration.is_given_up {
                upkeep.give_up(&mut self.registers, now, effects);
            }
            return;
        }
        match self.registers.join(self.id, configuration) {
            Ok(()) => {
                self.coordinator = Coordinator::new(&self.registers, self.seed);
                self.upkeep = Some(Upkeep::new(&mut self.registers, now, self.starts, effects));
            }
            Err(why) => effects.trace.push(Trace::Rejected { peer: self.id, why }),
        }
    }

    /// Ends the turn: emits its records and messages.
    #[inline]
    fn flush(&mut self, effects: &mut Effects) {
        self.a_refilling_replica_sends_no_answers();
        self.registers.journal.flush(effects);
        self.coordinator.outbox.flush(&self.registers, &self.timing, effects);
    }

    /// Records have become durable: operations that waited for them continue.
    fn durable(&mut self, now: Now, record: u64, effects: &mut Effects) {
        let Replica { timing, registers, coordinator, .. } = self;
        registers.durable(record);
        let mut cx = Context { registers, timing, now, effects };
        coordinator.durable(&mut cx);
        coordinator.resume(&mut cx);
    }

    fn tick(&mut self, now: Now, effects: &mut Effects) {
        let Some(upkeep) = &mut self.upkeep else { return };
        upkeep.tick(&mut self.registers, &self.timing.upkeep, now, true, effects);
        self.notice_new_lives();
        self.go_on_with_held(effects);
        let Replica { timing, registers, coordinator, .. } = self;
        let mut cx = Context { registers, timing, now, effects };
        coordinator.tick(&mut cx);
        coordinator.resume(&mut cx);
    }
}

impl crate::contract::Replica for Replica {
    type Message<'a> = Message<'a>;

    fn decode(message: &[u8]) -> std::result::Result<Message<'_>, Malformed> {
        Message::decode(message)
    }

    #[inline]
    fn step(&mut self, now: Now, input: Input<'_, Message<'_>>, effects: &mut Effects) {
        match input {
            Input::Request(&Submission { ticket, request, follows, deadline_us, .. }) => {
                self.request(now, (ticket, follows, deadline_us), request, effects);
            }
            Input::Message { from, message } => self.message(now, from, message, effects),
            Input::Flush => self.flush(effects),
            Input::Tick => self.tick(now, effects),
            Input::Link { peer, up } => self.link(now, peer, up, effects),
            Input::Configure(configuration) => self.configure(now, configuration, effects),
            Input::Durable { record } => self.durable(now, record, effects),
            Input::Lease { .. } => {} // There is no leader.
            Input::Retire => self.coordinator.end_requests(&self.registers, effects),
        }
    }

    fn wakeup_us(&self, now: Now) -> u64 {
        match &self.upkeep {
            Some(upkeep) => {
                let upkeep_us = upkeep.wakeup_us(&self.registers, &self.timing.upkeep, true);
                upkeep_us.min(self.coordinator.wakeup_us(&self.timing))
            }
            None => now.monotonic_us + self.timing.upkeep.retry_ms * 1000,
        }
    }

    fn set_reached(&mut self, _now: Now, peer: NodeId, is_reached: bool) {
        self.registers.set_reached(peer, is_reached);
    }

    fn vouched(&mut self, peer: NodeId, vouch: Vouch) {
        self.registers.vouches.note(peer, vouch);
    }

    fn is_resting(&self) -> bool {
        let has_rest = |upkeep: &Upkeep| upkeep.is_resting(&self.registers);
        self.coordinator.is_idle() && self.upkeep.as_ref().is_some_and(has_rest)
    }

    fn check_invariants(&self, now: Now) {
        self.check_all(now);
    }

    fn replay(&mut self, _now: Now, record: &[u8]) -> std::result::Result<(), Malformed> {
        self.registers.replay(record)
    }

    fn begin_checkpoint(&mut self) -> bool {
        self.registers.begin_checkpoint()
    }

    fn checkpoint_record(&mut self, bytes_max: usize, record: &mut Vec<u8>) -> Progress {
        self.registers.checkpoint_record(bytes_max, record)
    }

    fn abandon_checkpoint(&mut self) {
        self.registers.abandon_checkpoint();
    }

    fn table(&self) -> &Table {
        &self.registers.table
    }

    fn replaced(&mut self, replacement: &Replacement) {
        self.registers.replaced(replacement);
    }

    fn set_room(&mut self, has_room: bool) {
        self.registers.set_room(has_room);
    }

    fn loss(&self, now: Now) -> Option<Loss> {
        self.upkeep.as_ref()?.loss(&self.registers, &self.timing.upkeep, now)
    }

    fn summary(&self, now: Now) -> crate::status::Status {
        self.status(now).into()
    }
}
