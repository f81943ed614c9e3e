//! The replica of a protocol without a leader, [`abd`](crate::abd) or [`blocking`](crate::blocking): each key is a register.
//! What its members keep, and how they get it back, is in [`registers`]. This module has what else is common to both
//! protocols: their messages, and how a replica takes its inputs. How a coordinator reads and writes, and how the other
//! members answer it, is the protocol's [`Strategy`].

use crate::contract::{
    Configuration, Effects, Input, NOBODY, NodeId, Now, Progress, Request, Submission, Ticket, Trace,
};
use crate::parked::ParkedRequest;
use crate::planted::Fault;
use crate::recovery_line::RecoveryLine;
use crate::registers::floor::MOVED;
use crate::registers::message as upkeep;
use crate::registers::{
    self, Incarnation, Lives, LivesView, Loss, MemberSet, Registers, Replacement, Requests, Sender, Upkeep,
    counters,
};
use crate::status::{self, Counter};
use crate::vouch::Vouch;
use kv::Table;
use kv::codec::{Malformed, Reader, Writer};
use std::fmt::Debug;

/// A message, whose values are still in the bytes that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a, T> {
    /// Everything that one turn has for the receiver.
    Turn {
        /// The version of the newest map that the sender knows to have taken keys from the group; 0: none did.
        floor: u64,
        /// The newest incarnation that the sender knows of each member, including its own.
        lives: LivesView<'a>,
        /// The items.
        items: T,
    },
    /// About incarnations, refilling, repair or collection.
    Upkeep(upkeep::Message<'a>),
}

/// The items of a turn, which were checked.
pub trait Items<'a>: Copy {
    /// Reads all items, up to the message's end.
    ///
    /// # Errors
    /// [`Malformed`] when an item cannot be decoded.
    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed>;
}

const TURN: u8 = 1;
/// A turn with a floor.
const TURN_ABOVE: u8 = 2;
const _: () = assert!(TURN_ABOVE < upkeep::FIRST_KIND);

/// Appends the head of a turn; its items follow up to the message's end.
#[inline]
pub(crate) fn begin_turn(floor: u64, lives: &Lives, out: &mut Vec<u8>) {
    if floor == 0 {
        out.put_u8(TURN);
    } else {
        out.put_u8(TURN_ABOVE);
        out.put_u64(floor);
    }
    lives.encode(out);
}

impl<'a, T: Items<'a>> Message<'a, T> {
    /// Decodes a message and checks every item of it, so that a replica never gets an item that cannot be decoded.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not exactly one message.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Malformed> {
        if bytes.first().is_some_and(|kind| *kind >= upkeep::FIRST_KIND) {
            return upkeep::Message::decode(bytes).map(Message::Upkeep);
        }
        let mut reader = Reader::new(bytes);
        let floor = match reader.u8()? {
            TURN => 0,
            TURN_ABOVE => reader.u64()?,
            _ => return Err(Malformed("unknown kind of message")),
        };
        let (lives, items) = (LivesView::decode(&mut reader)?, T::take(&mut reader)?);
        match reader.is_empty() {
            true => Ok(Message::Turn { floor, lives, items }),
            false => Err(Malformed("bytes behind a message")),
        }
    }
}

/// How a protocol reads and writes registers: its coordinator, and the answers of its replicas.
pub trait Strategy: Debug {
    /// What one turn of a member has for another.
    type Items<'a>: Items<'a>;
    /// What it counts.
    type Counters: Copy + Debug + Default + PartialEq;
    /// Whether a replica is ticked before it has a configuration. It does nothing then; but the simulator's runs, of which
    /// tests name the seeds, depend on when nodes have turns.
    const TICKS_EARLY: bool = false;

    /// What the replica holds.
    fn registers(&self) -> &Registers;
    /// The same, to be changed.
    fn registers_mut(&mut self) -> &mut Registers;
    /// The time limits of the upkeep.
    fn timing(&self) -> &registers::Timing;
    /// Clients' requests at this coordinator.
    fn requests(&self) -> &Requests;
    /// The same, to be changed.
    fn requests_mut(&mut self) -> &mut Requests;
    /// The number of operations that this coordinator has under way.
    fn operations(&self) -> usize;

    /// The replica has got its group.
    fn joined(&mut self) {}
    /// It has its memory, and begins to serve in this incarnation.
    fn begin(&mut self) {}
    /// Members have begun new incarnations.
    fn renewed(&mut self, members: MemberSet);
    /// A message of a member counts.
    fn heard(&mut self, _member: usize) {}
    /// The link to a member came up or went down.
    fn link(&mut self, _now: Now, _member: usize, _up: bool, _effects: &mut Effects) {}

    /// Takes a client's request (ticket, whether it follows others, deadline).
    fn request(&mut self, now: Now, asked: (Ticket, bool, u64), request: &Request<'_>, effects: &mut Effects);
    /// Keeps a request while the replica is without its memory.
    fn hold(&mut self, asked: (Ticket, u64), request: &Request<'_>, effects: &mut Effects);
    /// Begins the requests that have waited and need not wait any longer.
    fn resume(&mut self, now: Now, effects: &mut Effects);
    /// Takes the items of another member's turn.
    fn turn(
        &mut self,
        now: Now,
        from: usize,
        lives: LivesView<'_>,
        items: Self::Items<'_>,
        effects: &mut Effects,
    );
    /// Records have become durable.
    fn durable(&mut self, now: Now, effects: &mut Effects);
    /// Time has passed.
    fn tick(&mut self, now: Now, effects: &mut Effects);
    /// Sends what this turn has for the others.
    fn flush(&mut self, effects: &mut Effects);
    /// Keys have left the group, by a newer map: ends the operations whose first round is under way.
    fn end_first_rounds(&mut self, now: Now, effects: &mut Effects);
    /// Ends all requests, because the replica is being removed.
    fn retire(&mut self, now: Now, effects: &mut Effects);

    /// When it needs the next tick, if no message arrives before that.
    fn wakeup_us(&self) -> u64;
    /// Whether nothing here ends with time.
    fn is_untimed(&self) -> bool {
        true
    }
    /// Whether nothing is under way or gathered that others could take for an answer.
    fn is_silent(&self) -> bool;
    /// The counters.
    fn counters(&self) -> Self::Counters;
    /// The counters, named.
    fn list(counters: Self::Counters) -> Vec<Counter>;
    /// Asserts what the protocol's proof rests on.
    fn check(&self, now: Now, serves: bool);
}

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
pub struct Status<C> {
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
    /// The counters of its strategy.
    pub counters: C,
    /// The counters of its upkeep.
    pub upkeep: registers::Counters,
    /// Why it is not ready, for people; empty when it is.
    pub explanation: String,
}

/// One group's state machine on one node: coordinator and replica.
#[derive(Debug)]
pub struct Replica<S> {
    id: NodeId,
    /// How often the node was started, this time included.
    starts: u64,
    pub(crate) strategy: S,
    /// `None`: no configuration yet.
    upkeep: Option<Upkeep>,
    /// The replica has its memory and serves.
    serves: bool,
}

impl<S: Strategy> Replica<S> {
    /// Returns an empty replica, which does nothing until it is configured.
    pub(crate) fn with(id: NodeId, starts: u64, strategy: S) -> Replica<S> {
        Replica { id, starts, strategy, upkeep: None, serves: false }
    }

    #[inline]
    fn is_ready(&self) -> bool {
        self.upkeep.as_ref().is_some_and(Upkeep::is_ready)
    }

    /// Returns the replica's status. O(members).
    pub fn status(&self, now: Now) -> Status<S::Counters> {
        let (registers, timing) = (self.strategy.registers(), self.strategy.timing());
        let (role, explanation) = match &self.upkeep {
            None => ("idle", "it has no configuration".to_string()),
            Some(upkeep) if upkeep.is_ready() => ("replica", registers.lacks(timing, now)),
            Some(upkeep) => ("refilling", upkeep.explain(registers)),
        };
        let peer = |member: usize| PeerStatus {
            id: registers.group.node(member),
            answering: registers.is_heard(member, timing, now),
            silent_ms: registers.silent_ms(member, now),
            incarnation: registers.lives.of(member),
        };
        Status {
            role,
            incarnation: registers.lives.own(),
            ready: explanation.is_empty(),
            catches_up: self.upkeep.as_ref().is_some_and(|it| it.catches_up(registers)),
            open_operations: self.strategy.operations(),
            tombstones: registers.table.tombstones(),
            peers: registers.group.others().iter().map(peer).collect(),
            counters: self.strategy.counters(),
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
        let registers = self.strategy.registers();
        if upkeep.is_ready() {
            if let Some(to) = registers.floor.informed(&registers.group)
                && let Request::Command(_) = request
            {
                return self.hand_on(to, (ticket, follows, deadline_us), request, effects);
            }
            return self.strategy.request(now, (ticket, follows, deadline_us), request, effects);
        }
        // Any ready node takes any command. While none is known, one may become ready in a moment.
        match (registers.refusal(), upkeep.ready_node(registers)) {
            (Some(refusal), _) => effects.refuse(ticket, &refusal),
            (None, Some(to)) => effects.redirect(ticket, to),
            (None, None) => self.strategy.hold((ticket, deadline_us), request, effects),
        }
    }

    /// Requests that were held while this replica was without its memory begin once this replica, or another member, has
    /// its memory.
    fn release_held(&mut self, now: Now, effects: &mut Effects) {
        let (Some(upkeep), registers) = (&self.upkeep, self.strategy.registers()) else { return };
        if upkeep.is_ready() {
            self.strategy.requests_mut().release_held();
            self.strategy.resume(now, effects);
        } else if let Some(to) = upkeep.ready_node(registers)
            && registers.standstill().is_none()
        {
            self.strategy.requests_mut().hand_on_held(to, effects);
        }
    }

    fn message(&mut self, now: Now, from: NodeId, message: Message<'_, S::Items<'_>>, effects: &mut Effects) {
        let (Some(upkeep), registers) = (&mut self.upkeep, self.strategy.registers_mut()) else { return };
        let Some(from) = registers.group.index_of(from) else { return };
        if from == registers.group.own() {
            return;
        }
        match message {
            // A refilling replica holds too little to answer, and sends nothing that could be taken for an answer.
            Message::Turn { .. } if !upkeep.is_ready() => {}
            Message::Turn { floor, lives, items } => {
                match registers.learn_from(from, lives) {
                    Sender::Current => {}
                    Sender::Earlier if registers.planted.has(Fault::StaleAcknowledgement) => {}
                    Sender::Earlier => return,
                    Sender::Impossible => {
                        return registers.reject(from, "it names impossible incarnations", effects);
                    }
                }
                registers.heard(from, now);
                registers.has_memory(from);
                if floor > 0
                    && !registers.planted.has(Fault::OldMapGoesOn)
                    && registers.floor.is_news(floor, from)
                {
                    self.strategy.requests_mut().refuse_deferred(MOVED, effects);
                    self.strategy.end_first_rounds(now, effects);
                }
                self.strategy.heard(from);
                self.notice();
                self.strategy.turn(now, from, lives, items, effects);
            }
            Message::Upkeep(message) => {
                let timing = *self.strategy.timing();
                upkeep.message(self.strategy.registers_mut(), &timing, now, from, message, effects);
                self.strategy.heard(from);
                self.notice();
                self.release_held(now, effects);
            }
        }
    }

    /// Hands a request on to a node with a newer map, unless an earlier one of its client has to end here first.
    fn hand_on(
        &self,
        to: NodeId,
        (ticket, follows, deadline_us): (Ticket, bool, u64),
        request: &Request<'_>,
        effects: &mut Effects,
    ) {
        let must_wait = self.strategy.requests().must_wait(ticket, follows, request);
        if must_wait || !ParkedRequest::new(ticket, deadline_us, (), request).hand_on(to, effects) {
            effects.refuse(ticket, MOVED);
        }
    }

    /// Acts on news from the upkeep: this replica may have its memory again, and other members may have begun new
    /// incarnations.
    #[inline]
    fn notice(&mut self) {
        if !self.serves && self.is_ready() {
            self.serves = true;
            self.strategy.begin();
        }
        let registers = self.strategy.registers_mut();
        let renewed = registers.lives.take_renewed();
        if !renewed.is_empty() && !registers.planted.has(Fault::StaleAcknowledgement) {
            self.strategy.renewed(renewed);
        }
    }

    fn link(&mut self, now: Now, peer: NodeId, up: bool, effects: &mut Effects) {
        let (Some(upkeep), registers) = (&mut self.upkeep, self.strategy.registers_mut()) else { return };
        let Some(member) = registers.group.index_of(peer) else { return };
        registers.set_link(member, up);
        if up {
            upkeep.link_up(registers, member, effects);
        }
        self.strategy.link(now, member, up, effects);
    }

    /// Only the first configuration counts: the members' places are part of the tags.
    fn configure(&mut self, now: Now, configuration: &Configuration, effects: &mut Effects) {
        let registers = self.strategy.registers_mut();
        if let Some(upkeep) = &mut self.upkeep {
            if configuration.members != registers.group.nodes() {
                let why = "the members of a group of registers stay the same";
                return effects.trace.push(Trace::Rejected { peer: self.id, why });
            }
            if configuration.is_given_up {
                upkeep.give_up(registers, now, effects);
            }
            return;
        }
        if let Err(why) = registers.join(self.id, configuration) {
            return effects.trace.push(Trace::Rejected { peer: self.id, why });
        }
        self.strategy.joined();
        self.upkeep = Some(Upkeep::new(self.strategy.registers_mut(), now, self.starts, effects));
        self.notice();
    }

    fn tick(&mut self, now: Now, effects: &mut Effects) {
        let (may_stop, timing) = (self.strategy.is_untimed(), *self.strategy.timing());
        let Some(upkeep) = &mut self.upkeep else { return };
        upkeep.tick(self.strategy.registers_mut(), &timing, now, may_stop, effects);
        self.notice();
        self.release_held(now, effects);
        self.strategy.tick(now, effects);
    }

    /// A refilling replica has forgotten what it acknowledged, so it sends nothing that could be taken for an answer.
    #[inline]
    fn a_refilling_replica_sends_no_answers(&self) {
        assert!(self.serves || self.strategy.is_silent(), "a replica answers that is without its memory");
    }
}

impl<S: Strategy> crate::contract::Replica for Replica<S> {
    type Message<'a>
        = Message<'a, S::Items<'a>>
    where
        Self: Sized;

    fn set_map_version(&mut self, version: u64, _moves: bool) {
        self.strategy.registers_mut().floor.map_version = version;
    }

    fn set_floor(&mut self, now: Now, floor: u64, effects: &mut Effects) {
        if self.strategy.registers_mut().floor.rises(floor) {
            self.strategy.requests_mut().check_again(self.id, effects);
            self.strategy.end_first_rounds(now, effects);
        }
    }

    fn set_recovery_line(&mut self, line: RecoveryLine) {
        self.strategy.registers_mut().recovery_line = line;
    }

    fn decode(message: &[u8]) -> Result<Self::Message<'_>, Malformed> {
        Message::decode(message)
    }

    #[inline]
    fn step(&mut self, now: Now, input: Input<'_, Self::Message<'_>>, effects: &mut Effects) {
        match input {
            Input::Request(&Submission { ticket, request, follows, deadline_us, .. }) => {
                self.request(now, (ticket, follows, deadline_us), request, effects);
            }
            Input::Message { from, message } => self.message(now, from, message, effects),
            Input::Flush => {
                self.a_refilling_replica_sends_no_answers();
                self.strategy.registers_mut().journal.flush(effects);
                self.strategy.flush(effects);
            }
            Input::Tick => self.tick(now, effects),
            Input::Link { peer, up } => self.link(now, peer, up, effects),
            Input::Configure(configuration) => self.configure(now, configuration, effects),
            Input::Durable { record } => {
                self.strategy.registers_mut().durable(record);
                self.strategy.durable(now, effects);
            }
            Input::Lease { .. } => {} // There is no leader.
            Input::Retire => self.strategy.retire(now, effects),
        }
    }

    fn wakeup_us(&self, now: Now) -> u64 {
        let Some(upkeep) = &self.upkeep else {
            let retry_us = now.monotonic_us + self.strategy.timing().retry_ms * 1000;
            return if S::TICKS_EARLY { retry_us } else { u64::MAX };
        };
        let (strategy, may_stop) = (&self.strategy, self.strategy.is_untimed());
        let upkeep_us = upkeep.wakeup_us(strategy.registers(), strategy.timing(), may_stop);
        upkeep_us.min(strategy.wakeup_us()).max(now.monotonic_us)
    }

    fn set_reached(&mut self, _now: Now, peer: NodeId, is_reached: bool) {
        self.strategy.registers_mut().set_reached(peer, is_reached);
    }

    fn vouched(&mut self, peer: NodeId, vouch: Vouch) {
        self.strategy.registers_mut().vouches.note(peer, vouch);
    }

    fn is_resting(&self) -> bool {
        let has_rest = |upkeep: &Upkeep| upkeep.is_resting(self.strategy.registers());
        self.strategy.operations() == 0
            && self.strategy.requests().is_empty()
            && self.strategy.is_untimed()
            && self.upkeep.as_ref().is_some_and(has_rest)
    }

    fn check_invariants(&self, now: Now) {
        let (registers, operations) = (self.strategy.registers(), self.strategy.operations());
        if !registers.planted.has_invariants() {
            return;
        }
        registers.check_invariants(now, operations);
        self.strategy.check(now, self.serves);
        self.a_refilling_replica_sends_no_answers();
        match &self.upkeep {
            Some(upkeep) => upkeep.check_invariants(registers, self.strategy.timing()),
            None => assert_eq!(operations, 0, "an operation of a replica that knows no group"),
        }
    }

    fn replay(&mut self, _now: Now, record: &[u8]) -> Result<(), Malformed> {
        self.strategy.registers_mut().replay(record)
    }

    fn begin_checkpoint(&mut self) -> bool {
        self.strategy.registers_mut().begin_checkpoint()
    }

    fn checkpoint_record(&mut self, bytes_max: usize, record: &mut Vec<u8>) -> Progress {
        self.strategy.registers_mut().checkpoint_record(bytes_max, record)
    }

    fn abandon_checkpoint(&mut self) {
        self.strategy.registers_mut().abandon_checkpoint();
    }

    fn table(&self) -> &Table {
        &self.strategy.registers().table
    }

    fn replaced(&mut self, replacement: &Replacement) {
        self.strategy.registers_mut().replaced(replacement);
    }

    fn set_room(&mut self, has_room: bool) {
        self.strategy.registers_mut().set_room(has_room);
    }

    fn loss(&self, now: Now) -> Option<Loss> {
        self.upkeep.as_ref()?.loss(self.strategy.registers(), self.strategy.timing(), now)
    }

    /// The status in the terms that all protocols share.
    fn summary(&self, now: Now) -> status::Status {
        let Status { role, incarnation, ready, catches_up, explanation, counters, upkeep, .. } =
            self.status(now);
        let mut counted = S::list(counters);
        counted.extend(counters::upkeep(upkeep));
        status::Status {
            role,
            epoch: incarnation.into(),
            ready,
            catches_up,
            writable: ready,
            explanation,
            counters: counted,
            ..Default::default()
        }
    }
}
