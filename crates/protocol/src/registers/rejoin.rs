//! A replica that has started without its memory: it has forgotten what it acknowledged, and first gets that from the
//! others.
//!
//! It sends a hello with the number of its new incarnation. A member that admits it knows from then on that answers of
//! its earlier incarnations no longer count, and reports the new one in every message. Then the newcomer gets the tables
//! of enough others to share a member with the rest of any majority that had counted it. [`registers`](super) explains
//! why that is enough.
//!
//! If no member holds anything, there is nothing to get and the group begins. That is so when all members were empty at
//! one moment, or when a majority was empty at one moment and none of its members was ever started before: then no
//! majority can ever have acknowledged anything. "At one moment" means: all had reported it before a question was sent,
//! and all reported it again in answer to that question.

use super::lives::Sender;
use super::members::MemberSet;
use super::message::{Body, Message, Past};
use super::record::Change;
use super::tag::{Incarnation, Tag};
use super::{Registers, Timing};
use crate::effects::{Effects, Now, Trace};
use crate::transfer::{Arrival, Incoming};
use kv::codec::Writer;

/// The last report of another member.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    /// Identifies its incarnation; 0: it has not reported.
    nonce: u64,
    ready: bool,
    past: Past,
    admitted: bool,
    /// This replica's newest question when the member first reported its present state.
    since_round: u32,
    /// This replica's newest question to which the member gave the same answer.
    last_round: u32,
}

/// How much of its table another member has sent.
#[derive(Clone, Copy, Debug, Default)]
enum Source {
    #[default]
    None,
    /// A snapshot is arriving.
    Coming { transfer: u64, chunks: Incoming },
    /// The whole snapshot has arrived; the member took it in this incarnation.
    Whole(Incarnation),
}

/// A newcomer's progress after an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Waiting,
    /// It again holds everything that it ever acknowledged.
    Refilled,
    /// No member holds anything: the group begins, with the members that were empty.
    Begins(MemberSet),
}

/// A replica's way back into the group.
#[derive(Debug)]
pub(super) struct Rejoin {
    /// What was before this incarnation.
    past: Past,
    nonce: u64,
    round: u32,
    began_us: u64,
    asked_us: u64,
    heard: Vec<Heard>,
    sources: Vec<Source>,
    transfers: u64,
    /// This member's incarnation numbers have run out.
    exhausted: bool,
    /// The incarnations that began the group, as one of them reported.
    pub(super) began: Vec<u8>,
}

impl Rejoin {
    pub(super) fn new(registers: &Registers, now: Now, past: Past, nonce: u64) -> Rejoin {
        let members = registers.group.len();
        Rejoin {
            past,
            nonce,
            round: 1,
            began_us: now.monotonic_us,
            asked_us: now.monotonic_us,
            heard: vec![Heard::default(); members],
            sources: vec![Source::None; members],
            transfers: 0,
            exhausted: false,
            began: Vec::new(),
        }
    }

    /// What was before this incarnation.
    pub(super) fn past(&self) -> Past {
        self.past
    }

    /// An operator has given up what this member has forgotten. True when there was something to give up.
    pub(super) fn give_up(&mut self, registers: &Registers, now: Now, effects: &mut Effects) -> bool {
        if !may_be_lost(registers, self.past) {
            return false;
        }
        self.past = Past::GivenUp;
        self.ask_again(registers, now, effects);
        true
    }

    /// Returns the members that have lost their memory, if at least one other member has its memory. While they are a
    /// majority, no member can recover what it has forgotten. Empty when no member holds anything: then the group may
    /// begin.
    pub(super) fn lost(&self, registers: &Registers) -> MemberSet {
        let mut lost = MemberSet::EMPTY;
        if !self.heard.iter().any(|heard| heard.ready) {
            return lost;
        }
        if may_be_lost(registers, self.past) {
            lost.insert(registers.group.own());
        }
        for member in registers.group.others().iter() {
            let heard = self.heard[member];
            if heard.nonce != 0 && !heard.ready && may_be_lost(registers, heard.past) {
                lost.insert(member);
            }
        }
        lost
    }

    /// The other members that have reported that they have their memory.
    pub(super) fn ready(&self) -> MemberSet {
        let mut ready = MemberSet::EMPTY;
        for (member, _) in self.heard.iter().enumerate().filter(|(_, heard)| heard.ready) {
            ready.insert(member);
        }
        ready
    }

    /// Notes that this member's incarnation numbers have run out: it never becomes ready.
    pub(super) fn exhaust(&mut self) {
        self.exhausted = true;
    }

    /// Sends a hello to all other members, or to some of them.
    pub(super) fn ask(&self, registers: &Registers, to: MemberSet, effects: &mut Effects) {
        if !self.exhausted {
            registers.send(
                to,
                Body::Hello { nonce: self.nonce, round: self.round, past: self.past },
                effects,
            );
        }
    }

    pub(super) fn tick(
        &mut self,
        registers: &mut Registers,
        timing: &Timing,
        now: Now,
        effects: &mut Effects,
    ) -> Progress {
        if now.ms_since(self.asked_us) >= timing.retry_ms {
            self.ask_again(registers, now, effects);
        }
        for member in registers.group.others().iter() {
            let Source::Coming { transfer, chunks } = self.sources[member] else { continue };
            let quiet_ms = chunks.stuck_ms(now);
            if quiet_ms >= timing.stall_ms || !registers.links.contains(member) {
                // Another source is used. This one may be used again once it reports.
                self.sources[member] = Source::None;
                self.heard[member].ready = false;
            } else if quiet_ms >= timing.retry_ms {
                self.fetch(registers, member, transfer, chunks.next(), effects);
            }
        }
        self.go_on(registers, timing, now, effects)
    }

    fn ask_again(&mut self, registers: &Registers, now: Now, effects: &mut Effects) {
        self.round += 1;
        self.asked_us = now.monotonic_us;
        self.ask(registers, registers.group.others(), effects);
    }

    fn fetch(&self, registers: &Registers, member: usize, transfer: u64, next: u32, effects: &mut Effects) {
        let fetch = Body::Fetch { nonce: self.nonce, transfer, next };
        registers.send(MemberSet::only(member), fetch, effects);
    }

    /// Takes a message of another member. Ignores messages that are not for a newcomer, which holds nothing yet.
    pub(super) fn message(
        &mut self,
        registers: &mut Registers,
        timing: &Timing,
        now: Now,
        from: usize,
        message: &Message<'_>,
        effects: &mut Effects,
    ) -> Progress {
        match message.body {
            Body::Standing { nonce, .. } | Body::SnapshotChunk { nonce, .. } if nonce != self.nonce => {
                return Progress::Waiting; // An answer to an earlier incarnation.
            }
            Body::Standing { admitted, .. } => {
                let own = registers.group.own();
                let newest = message.lives.of(own);
                if !admitted
                    && message.lives.len() == registers.group.len()
                    && newest >= registers.lives.own()
                {
                    self.begin_later_life(registers, newest, now, effects);
                }
            }
            Body::SnapshotChunk { .. } if registers.journal.has_room() => {}
            _ => return Progress::Waiting,
        }
        match registers.learn_from(from, message.lives) {
            Sender::Current => {}
            Sender::Earlier => return Progress::Waiting,
            Sender::Impossible => {
                registers.reject(from, "it names impossible incarnations", effects);
                return Progress::Waiting;
            }
        }
        registers.heard(from, now);
        match message.body {
            Body::Standing { round, own_nonce, ready, past, admitted, anew, .. } => {
                if ready {
                    registers.has_memory(from);
                }
                let heard = &mut self.heard[from];
                // An incarnation that has its memory keeps it, and a member that was given up stays so.
                let is_late = heard.nonce == own_nonce && (heard.ready || round < heard.last_round);
                if !ready && is_late {
                    return Progress::Waiting;
                }
                if (heard.nonce, heard.ready) != (own_nonce, ready) {
                    heard.since_round = self.round;
                    heard.last_round = 0;
                }
                let last_round = heard.last_round.max(round);
                *heard = Heard { nonce: own_nonce, ready, past, admitted, last_round, ..*heard };
                if !ready && matches!(self.sources[from], Source::Coming { .. }) {
                    self.sources[from] = Source::None; // That member has nothing to send.
                }
                // The group began with this replica among the empty members, so it begins too.
                let own = 8 * registers.group.own();
                if ready && anew.get(own..own + 8) == Some(&self.nonce.to_le_bytes()) {
                    self.began = anew.to_vec();
                    return Progress::Begins(MemberSet::EMPTY);
                }
            }
            Body::SnapshotChunk { transfer, index, last, bounds, entries, .. } => {
                let Source::Coming { transfer: expected, mut chunks } = self.sources[from] else {
                    return Progress::Waiting;
                };
                if transfer != expected {
                    return Progress::Waiting;
                }
                let arrival = chunks.take(now, (index, entries), &mut registers.table);
                let is_possible = Tag::of_version(registers.table.version_floor()).is_possible();
                match arrival {
                    Arrival::Again | Arrival::Early => return Progress::Waiting,
                    Arrival::Next if is_possible => {}
                    Arrival::Next | Arrival::Unreadable => {
                        registers.forget_snapshots();
                        self.sources.fill(Source::None);
                        registers.reject(from, "a snapshot that cannot be read", effects);
                        return Progress::Waiting;
                    }
                }
                registers.journal.record(&Change::SnapshotChunk(entries));
                registers.take_bounds(bounds);
                self.sources[from] = match last {
                    true => Source::Whole(registers.lives.of(from)),
                    false => Source::Coming { transfer, chunks },
                };
                self.fetch(registers, from, transfer, chunks.next(), effects);
            }
            _ => {}
        }
        self.go_on(registers, timing, now, effects)
    }

    /// Another incarnation of this member had the same number or a later one, so this incarnation takes a number later
    /// than both.
    fn begin_later_life(
        &mut self,
        registers: &mut Registers,
        newest: Incarnation,
        now: Now,
        effects: &mut Effects,
    ) {
        let Some(incarnation) = newest.checked_add(1) else {
            self.exhausted = true;
            return;
        };
        registers.begin_later_life(incarnation);
        if self.past == Past::None {
            self.past = Past::Forgotten;
        }
        // Every member to be counted must know of this incarnation.
        self.heard.fill(Heard::default());
        self.sources.fill(Source::None);
        effects.trace.push(Trace::Refilling { incarnation });
        self.ask_again(registers, now, effects);
    }

    fn go_on(&mut self, registers: &Registers, timing: &Timing, now: Now, effects: &mut Effects) -> Progress {
        let group = &registers.group;
        if self.exhausted {
            return Progress::Waiting;
        }
        if let Some(empty) = self.empty_at_one_moment(registers, timing, now) {
            return Progress::Begins(empty);
        }
        let (mut sources, mut given_up) = (0, 0);
        for member in group.others().iter() {
            match self.sources[member] {
                // The source has lost its memory since: the snapshot may lack what it stored in its new incarnation.
                Source::Whole(life) if registers.lives.of(member) != life => {
                    self.sources[member] = Source::None;
                    self.heard[member].ready = false;
                }
                Source::Whole(_) => sources += 1,
                Source::None if self.has_nothing(registers, member) => sources += 1,
                Source::None if self.is_given_up(member) => given_up += 1,
                Source::None | Source::Coming { .. } => {}
            }
        }
        // If members were given up, nothing that the rest hold may be missed, so all of them must answer.
        let needed = if given_up > 0 { group.others().len() } else { group.refill_sources() };
        if sources >= group.refill_sources() || sources + given_up >= group.others().len() {
            return Progress::Refilled;
        }
        sources += given_up;
        sources += self.sources.iter().filter(|source| matches!(source, Source::Coming { .. })).count();
        for member in group.others().iter() {
            let heard = self.heard[member];
            let may_serve = heard.ready && heard.admitted && registers.links.contains(member);
            if sources < needed && may_serve && matches!(self.sources[member], Source::None) {
                self.transfers += 1;
                let transfer = self.transfers;
                self.sources[member] = Source::Coming { transfer, chunks: Incoming::new(now) };
                self.fetch(registers, member, transfer, 0, effects);
                sources += 1;
            }
        }
        // All have reported their state for the first time: ask at once whether it is still the same.
        let others = group.others();
        let fresh = |member: &usize| {
            let heard = self.heard[*member];
            !heard.ready && heard.since_round == self.round && heard.last_round == self.round
        };
        if others.iter().filter(fresh).count() == others.len() {
            self.ask_again(registers, now, effects);
        }
        Progress::Waiting
    }

    /// True for a member that keeps records and never vouched for anything: there is nothing to get from it, and its
    /// acknowledgements from now on carry this incarnation. Without records a member cannot be sure that it has nothing
    /// to remember: a lost disk leaves no trace.
    fn has_nothing(&self, registers: &Registers, member: usize) -> bool {
        let heard = self.heard[member];
        registers.journal.is_kept()
            && heard.nonce != 0
            && heard.past == Past::None
            && !heard.ready
            && heard.admitted
    }

    /// True for a member that has not recovered its memory, and need not: an operator has given it up. Its
    /// acknowledgements from now on carry this incarnation.
    fn is_given_up(&self, member: usize) -> bool {
        let heard = self.heard[member];
        heard.nonce != 0 && heard.past == Past::GivenUp && !heard.ready && heard.admitted
    }

    /// Returns the members that were all empty when the present question was sent, if they are enough to begin.
    fn empty_at_one_moment(&self, registers: &Registers, timing: &Timing, now: Now) -> Option<MemberSet> {
        let group = &registers.group;
        let (mut empty, mut never_started) = (MemberSet::EMPTY, MemberSet::EMPTY);
        empty.insert(group.own());
        if self.past == Past::None {
            never_started.insert(group.own());
        }
        for member in group.others().iter() {
            let heard = self.heard[member];
            if heard.nonce != 0
                && !heard.ready
                && heard.since_round < self.round
                && heard.last_round == self.round
            {
                empty.insert(member);
                if heard.past == Past::None {
                    never_started.insert(member);
                }
            }
        }
        if empty == group.all() {
            return Some(empty);
        }
        // A lost disk makes a replica believe that it was never started. So members that know otherwise get some time to
        // report it.
        let waited = now.ms_since(self.began_us) >= timing.begin_grace_ms;
        let anybody_ready = self.heard.iter().any(|heard| heard.ready);
        (self.past == Past::None && waited && !anybody_ready && never_started.len() >= group.majority())
            .then_some(never_started)
    }

    /// Returns the nonces of the incarnations that were empty at one moment, for the members among them.
    pub(super) fn names(&self, registers: &Registers, empty: MemberSet) -> Vec<u8> {
        let mut names = Vec::new();
        for (member, heard) in self.heard.iter().enumerate() {
            let nonce = if member == registers.group.own() { self.nonce } else { heard.nonce };
            names.put_u64(if empty.contains(member) { nonce } else { 0 });
        }
        names
    }

    /// A ready member, to which clients' requests can be redirected.
    pub(super) fn ready_member(&self, registers: &Registers) -> Option<usize> {
        let is_ready = |member: &usize| self.heard[*member].ready && registers.links.contains(*member);
        registers.group.others().iter().find(is_ready)
    }

    pub(super) fn wakeup_us(&self, timing: &Timing) -> u64 {
        self.asked_us + timing.retry_ms * 1000
    }

    /// Checks that snapshots come from other members that have their memory, and that each is requested once.
    pub(super) fn check_invariants(&self, registers: &Registers) {
        let own = registers.group.own();
        assert!(
            matches!(self.sources[own], Source::None) && self.heard[own].nonce == 0,
            "it refills from itself"
        );
        for source in &self.sources {
            let is_asked_for = !matches!(source, Source::Coming { transfer, .. } if *transfer == 0 || *transfer > self.transfers);
            assert!(is_asked_for, "a snapshot comes that was not asked for: {source:?}");
        }
    }

    /// Describes what it waits for, for people.
    pub(super) fn explain(&self, registers: &Registers) -> String {
        if self.exhausted {
            return "it has been started more often than its tags can tell apart; the group must be set up again".into();
        }
        let group = &registers.group;
        let needed = group.refill_sources();
        let of = |fits: &dyn Fn(&Heard) -> bool| {
            let fitting = group.others().iter().filter(|member| fits(&self.heard[*member]));
            fitting.map(|member| group.node(member).to_string()).collect::<Vec<_>>()
        };
        let ready = of(&|heard| heard.ready);
        let refilling = of(&|heard| heard.nonce != 0 && !heard.ready);
        let silent = of(&|heard| heard.nonce == 0);
        if ready.len() >= needed {
            let whole = self.sources.iter().filter(|source| matches!(source, Source::Whole(_))).count();
            return format!(
                "it has started without its memory and gets it back: {whole} of {needed} snapshots are here"
            );
        }
        let list = |nodes: Vec<String>| if nodes.is_empty() { "none".into() } else { nodes.join(", ") };
        format!(
            "it has started without its memory and needs snapshots of {needed} other nodes that have theirs; ready: {}; \
             without memory too: {}; not heard: {}; start the nodes that are not there",
            list(ready),
            list(refilling),
            list(silent),
        )
    }
}

/// Whether a member without its memory may have acknowledged something that it has forgotten and that was not given up.
pub(super) fn may_be_lost(registers: &Registers, past: Past) -> bool {
    match past {
        Past::Forgotten => true,
        // Without records this is not certain: a lost disk leaves no trace.
        Past::None => !registers.journal.is_kept(),
        Past::GivenUp => false,
    }
}
