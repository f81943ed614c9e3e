//! The coordinator: executes its clients' operations, each on one key, against any majority.
//!
//! A read queries all members for the key's tag. When a majority has answered, the newest tag among the answers is at
//! least that of every write that ended before the read began. If a majority is known to hold this tag, the read is done
//! in one round. Otherwise its value is written back to the members that are behind until a majority holds it, so that no
//! later read finds an older one.
//!
//! A write queries all members for the key's tag only, chooses a greater one when a majority has answered, and sends the
//! value to all until a majority holds it.

use super::message::{Item, OperationId};
use super::operation::{Kind, Operations, Phase, Place};
use super::options::Timing;
use super::outbox::Outbox;
use crate::contract::{Effects, Now, RETIRED, Request, Ticket};
use crate::planted::Fault;
use crate::registers::floor::MOVED;
use crate::registers::{Errors, Keys, MemberSet, Plan, Question, Registers, RequestId, Requests, Tag};
use kv::{Command, List, Register, UnixMs, Version};
use std::collections::BTreeSet;

/// The counters of a coordinator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Reads that ended when a majority had answered.
    pub one_round_reads: u64,
    /// Reads that wrote their value back first.
    pub two_round_reads: u64,
    /// Members to which a value was written back.
    pub write_backs: u64,
    /// How often operations repeated their messages.
    pub retries: u64,
    /// Requests refused because no majority answered: nothing was changed.
    pub refused: u64,
    /// Writes of unknown outcome.
    pub unknown: u64,
}

pub(super) const NO_MAJORITY: &str =
    "CLUSTERDOWN NOQUORUM no majority of the replicas answered in time; nothing was changed";
const UNKNOWN: &str = "UNKNOWN the write was sent to the replicas and too few acknowledged it in time; it may still take effect";
const OUT_OF_TAGS: &str = "ERR the tags of this key have run out; nothing was written";
pub(super) const OVERLOAD: &str =
    "TRYAGAIN OVERLOADED too many requests wait for a majority; nothing was changed";

/// How often the time between two tries is doubled.
const DOUBLINGS_MAX: u32 = 4;

/// A replica's coordinator.
#[derive(Debug, Default)]
pub(super) struct Coordinator {
    pub(super) operations: Operations,
    pub(super) requests: Requests,
    pub(super) outbox: Outbox,
    pub(super) counters: Counters,
    /// When operations are next checked for unanswered questions.
    retry_us: u64,
    /// Since when too many links for a majority are down.
    cut_off_us: Option<u64>,
    /// A request has failed: its operations are to be dropped.
    has_failed: bool,
    /// What this replica holds for operations but may lose in a crash until a record is durable: (record, operation,
    /// tag).
    pub(super) undurable: BTreeSet<(u64, OperationId, Tag)>,
}

/// The context of every step of a coordinator.
pub(super) struct Context<'a> {
    pub(super) registers: &'a mut Registers,
    pub(super) timing: &'a Timing,
    pub(super) now: Now,
    pub(super) effects: &'a mut Effects,
}

/// What a member answered about an operation's key.
#[derive(Clone, Copy)]
enum Answer<'a> {
    /// The member holds this tag, with this deadline if the tag is newer than the query's; the answer is without the
    /// value.
    Tag(Tag, UnixMs),
    /// The member holds the tag in the query.
    Same,
    /// The member has seen this tag, with this deadline, and might lose it in a crash.
    Seen(Tag, UnixMs),
    /// The member holds this register, which is newer than the query's tag.
    Value(Register<'a>),
}

impl Coordinator {
    pub(super) fn new(registers: &Registers, serial: u64) -> Coordinator {
        let group = &registers.group;
        let peers = match registers.planted.has(Fault::FixedQuorum) {
            true => MemberSet::first(group.majority()).without(MemberSet::only(group.own())),
            false => group.others(),
        };
        Coordinator {
            operations: Operations::new(serial as u32),
            outbox: Outbox::new(group.len(), peers),
            ..Coordinator::default()
        }
    }

    /// Takes a client's request at a ready replica.
    #[inline]
    pub(super) fn request(
        &mut self,
        cx: &mut Context<'_>,
        (ticket, follows, deadline_us): (Ticket, bool, u64),
        request: &Request<'_>,
    ) {
        if self.requests.must_wait(ticket, follows, request) {
            return self.requests.defer(ticket, deadline_us, request);
        }
        let effects = &mut *cx.effects;
        let command = match *request {
            Request::Command(command) => command,
            Request::Wait { .. } => {
                // Everything acknowledged is held by a majority, which may include this replica.
                let start = effects.replies.len();
                effects.replies.integer(cx.registers.group.majority() as i64 - 1);
                return effects.done(ticket, start, 0, 0);
            }
        };
        if self.is_cut_off(cx.timing, cx.now) {
            self.counters.refused += 1;
            return effects.refuse(ticket, NO_MAJORITY);
        }
        if let Some(refusal) = cx.registers.refusal() {
            self.counters.refused += 1;
            return effects.refuse(ticket, &refusal);
        }
        if self.operations.bytes > cx.timing.open_bytes_max {
            self.counters.refused += 1;
            return effects.refuse(ticket, OVERLOAD);
        }
        match Plan::of(command, cx.now.unix_ms, "abd") {
            Plan::Read(question, keys) => {
                let id = self.requests.begin(ticket, deadline_us, question);
                self.read(cx, id, keys);
            }
            Plan::Set { key, deadline, value } => {
                let id = self.requests.begin(ticket, deadline_us, Question::Written);
                let place = self.requests.add_key(id, key);
                let value = if deadline == Register::UNWRITTEN.deadline { b"" } else { value };
                self.begin(cx, Kind::Set, (id, place), key, (deadline, value));
            }
            Plan::Delete(keys) => {
                let id = self.requests.begin(ticket, deadline_us, Question::Deleted);
                self.delete(cx, id, keys);
            }
            Plan::Local => self.local(cx, ticket, command),
            Plan::Refused(why) => effects.refuse(ticket, &why),
        }
    }

    /// Answers a command about the table as a whole from what this replica holds.
    fn local(&mut self, cx: &mut Context<'_>, ticket: Ticket, command: &Command<'_>) {
        let start = cx.effects.replies.len();
        cx.registers.table.read(command, cx.now.unix_ms, &mut cx.effects.replies);
        cx.effects.done(ticket, start, 0, 0);
    }

    #[inline]
    fn read(&mut self, cx: &mut Context<'_>, id: RequestId, keys: Keys<'_>) {
        let nothing = (0, &b""[..]);
        match keys {
            Keys::One(key) => {
                let place = self.requests.add_key(id, key);
                self.begin(cx, Kind::Read, (id, place), key, nothing);
            }
            Keys::Many(keys) => {
                // All are added before the first can end, which happens at once in a group of one.
                for key in keys.iter() {
                    self.requests.add_key(id, key);
                }
                self.requests.end_if_empty(id, cx.effects);
                for (key, place) in keys.iter().zip(0..) {
                    self.begin(cx, Kind::Read, (id, place), key, nothing);
                }
            }
        }
    }

    fn delete(&mut self, cx: &mut Context<'_>, id: RequestId, keys: List<'_>) {
        // A key that is named twice is deleted, and counted, once.
        let mut seen = BTreeSet::new();
        let keys: Vec<&[u8]> = keys.iter().filter(|key| seen.insert(*key)).collect();
        for key in keys.iter() {
            self.requests.add_key(id, key);
        }
        self.requests.end_if_empty(id, cx.effects);
        for (key, place) in keys.iter().zip(0..) {
            if self.requests.is_dropped(id) {
                break;
            }
            self.begin(cx, Kind::Delete, (id, place), key, (Register::UNWRITTEN.deadline, b""));
        }
    }

    /// Begins an operation. This replica is among the queried ones, and answers at once.
    #[inline]
    fn begin(
        &mut self,
        cx: &mut Context<'_>,
        kind: Kind,
        of: (RequestId, u32),
        key: &[u8],
        (deadline, value): (UnixMs, &[u8]),
    ) {
        let registers = &mut *cx.registers;
        let held = registers.table.register(key);
        let (deadline, value) = match kind {
            Kind::Read => (held.deadline, held.value),
            Kind::Set => (deadline, value),
            Kind::Delete => (held.deadline, value),
        };
        let tag = Tag::of_version(held.version);
        let place = self.operations.begin(kind, of, key, value);
        let own = MemberSet::only(registers.group.own());
        let operation = self.operations.get_mut(place);
        (operation.asked, operation.tag, operation.deadline) = (tag, tag, deadline);
        (operation.answered, operation.holders) = (own, MemberSet::EMPTY);
        operation.generation = registers.generations.operation_begins();
        operation.sent_us = cx.now.monotonic_us;
        if registers.group.majority() > 1 {
            let query = Item::Query {
                operation: self.operations.id(place),
                wants_value: kind == Kind::Read,
                tag,
                key,
            };
            self.outbox.add_for_all(query, registers, cx.timing, cx.effects);
        }
        self.own_holds(cx, place);
        self.look_at_answers(cx, place);
    }

    /// Notes that this replica holds an operation's tag, or something newer. That counts once it survives a crash.
    #[inline]
    fn own_holds(&mut self, cx: &Context<'_>, place: Place) {
        let registers = &*cx.registers;
        let operation = self.operations.get_mut(place);
        match registers.held_after(operation.key()) {
            0 => operation.holders.insert(registers.group.own()),
            record => {
                let tag = operation.tag;
                self.undurable.insert((record, self.operations.id(place), tag));
            }
        }
    }

    /// Takes note that records have become durable.
    pub(super) fn durable(&mut self, cx: &mut Context<'_>) {
        let durable = cx.registers.journal.durable_to();
        while self.undurable.first().is_some_and(|(record, ..)| *record <= durable)
            && let Some((_, id, tag)) = self.undurable.pop_first()
        {
            let Some(place) = self.operations.find(id) else { continue };
            let operation = self.operations.get_mut(place);
            if operation.tag > tag {
                continue; // The operation has found something newer since, which is held too, and has a later record.
            }
            operation.holders.insert(cx.registers.group.own());
            match operation.phase {
                Phase::Query => self.look_at_answers(cx, place),
                Phase::Update => self.look_at_holders(cx, place),
                Phase::Free => {}
            }
        }
    }

    /// Takes a member's answer to one of this coordinator's operations, unless the operation is over.
    #[inline]
    pub(super) fn item(&mut self, cx: &mut Context<'_>, from: usize, item: Item<'_>) {
        match item {
            Item::Same { operation } => self.answer(cx, from, operation, Answer::Same),
            Item::Older { operation, tag } => self.answer(cx, from, operation, Answer::Tag(tag, 0)),
            Item::Newer { operation, tag, deadline } => {
                self.answer(cx, from, operation, Answer::Tag(tag, deadline));
            }
            Item::Seen { operation, tag, deadline } => {
                self.answer(cx, from, operation, Answer::Seen(tag, deadline));
            }
            Item::Value { operation, register } => {
                self.answer(cx, from, operation, Answer::Value(register));
            }
            Item::Held { operation } => {
                let Some(place) = self.operations.find(operation) else { return };
                let operation = self.operations.get_mut(place);
                if operation.phase == Phase::Update {
                    operation.holders.insert(from);
                    self.look_at_holders(cx, place);
                }
            }
            Item::Query { .. } | Item::Update { .. } => {}
        }
    }

    #[inline]
    fn answer(&mut self, cx: &mut Context<'_>, from: usize, id: u64, answer: Answer<'_>) {
        let Some(place) = self.operations.find(id) else { return };
        let operation = self.operations.get_mut(place);
        let held = match answer {
            Answer::Same => operation.asked,
            Answer::Tag(tag, _) | Answer::Seen(tag, _) => tag,
            Answer::Value(register) => Tag::of_version(register.version),
        };
        let has_value = matches!(answer, Answer::Value(_));
        let holds = !matches!(answer, Answer::Seen(..));
        if operation.phase == Phase::Query
            && held > operation.tag
            && has_value != (operation.kind == Kind::Read)
        {
            return; // Not an answer to this operation's query.
        }
        operation.answered.insert(from);
        if operation.phase == Phase::Update {
            // A late answer: the member already holds the operation's tag, or needs the update as well.
            if held >= operation.tag {
                if holds {
                    operation.holders.insert(from);
                    self.look_at_holders(cx, place);
                }
            } else {
                self.update(cx, place, MemberSet::only(from));
            }
            return;
        }
        if held == operation.tag {
            if holds {
                operation.holders.insert(from);
            }
        } else if held > operation.tag {
            operation.tag = held;
            operation.holders = if holds { MemberSet::only(from) } else { MemberSet::EMPTY };
            match answer {
                Answer::Value(register) => {
                    // Stored here, the value has one more holder.
                    let is_taken = cx.registers.may_take(operation.key(), register);
                    if is_taken {
                        cx.registers.put(operation.key(), register);
                    }
                    self.operations.adopt(place, register);
                    if is_taken {
                        self.own_holds(cx, place);
                    }
                }
                Answer::Tag(_, deadline) | Answer::Seen(_, deadline) if operation.kind == Kind::Delete => {
                    operation.deadline = deadline
                }
                _ => {}
            }
        }
        self.look_at_answers(cx, place);
    }

    /// Ends the first round when a majority has answered.
    #[inline]
    fn look_at_answers(&mut self, cx: &mut Context<'_>, place: Place) {
        let majority = cx.registers.group.majority();
        let operation = self.operations.get_mut(place);
        if operation.answered.len() < majority {
            return;
        }
        let is_held = operation.holders.len() >= majority;
        match operation.kind {
            Kind::Read if is_held || cx.registers.planted.has(Fault::ReadWithoutWriteBack) => {
                self.counters.one_round_reads += 1;
                self.end(cx, place);
            }
            Kind::Read => {
                self.counters.two_round_reads += 1;
                operation.phase = Phase::Update;
                operation.tries = 0;
                // This replica holds the value, though perhaps not durably yet.
                let own = MemberSet::only(cx.registers.group.own());
                let behind = operation.answered.without(operation.holders).without(own);
                self.counters.write_backs += behind.len() as u64;
                self.update(cx, place, behind);
            }
            // A majority holds that the key does not exist: there is nothing to delete.
            Kind::Delete if is_held && operation.deadline == Register::UNWRITTEN.deadline => {
                self.end(cx, place);
            }
            Kind::Set | Kind::Delete => self.write(cx, place),
        }
    }

    /// The second round of a write: chooses a tag greater than all that a majority has reported, stores the write here,
    /// and sends it to all others.
    fn write(&mut self, cx: &mut Context<'_>, place: Place) {
        let registers = &mut *cx.registers;
        let operation = self.operations.get_mut(place);
        assert_eq!(operation.phase, Phase::Query, "a write takes its tag once");
        // This coordinator's own writes of the key since the query count too: they are stored here, so no two get the
        // same tag.
        let stored = Tag::of_version(registers.table.register(operation.key()).version);
        let counter = operation.tag.max(stored).counter().max(registers.generations.floor()) + 1;
        let own = registers.group.own();
        let tag = match registers.planted.has(Fault::TagWithoutWriter) {
            true => Tag::new(counter, 0, 0),
            false => Tag::new(counter, registers.lives.own(), own),
        };
        let request = operation.request;
        let Some(tag) = tag else {
            self.has_failed = true;
            return self.requests.fail(request, OUT_OF_TAGS, cx.effects);
        };
        if operation.kind == Kind::Delete {
            operation.was_live = operation.deadline > cx.now.unix_ms;
            operation.deadline = Register::UNWRITTEN.deadline;
        }
        (operation.tag, operation.phase, operation.tries) = (tag, Phase::Update, 0);
        operation.holders = MemberSet::EMPTY;
        let is_stored = registers.put(operation.key(), operation.register());
        assert!(is_stored, "a write's tag is greater than that of any write that is stored here");
        self.requests.has_changed(request);
        if registers.group.majority() > 1 {
            let operation = self.operations.get_mut(place);
            operation.sent = self.outbox.peers;
            operation.sent_us = cx.now.monotonic_us;
            let operation = self.operations.get(place);
            let update = Item::Update {
                operation: self.operations.id(place),
                generation: operation.generation,
                key: operation.key(),
                register: operation.register(),
            };
            self.outbox.add_for_all(update, registers, cx.timing, cx.effects);
        }
        self.own_holds(cx, place);
        self.look_at_holders(cx, place);
    }

    /// Sends the update to members, to each only once until it is repeated.
    fn update(&mut self, cx: &mut Context<'_>, place: Place, to: MemberSet) {
        let id = self.operations.id(place);
        let operation = self.operations.get_mut(place);
        let to = to.without(operation.sent);
        operation.sent = MemberSet::union(operation.sent, to);
        operation.sent_us = cx.now.monotonic_us;
        let operation = self.operations.get(place);
        let update = Item::Update {
            operation: id,
            generation: operation.generation,
            key: operation.key(),
            register: operation.register(),
        };
        for member in to.iter() {
            self.outbox.add(member, update, cx.registers, cx.timing, cx.effects);
        }
    }

    /// Ends the second round when a majority holds the value.
    #[inline]
    fn look_at_holders(&mut self, cx: &mut Context<'_>, place: Place) {
        if self.operations.get(place).holders.len() >= cx.registers.group.majority() {
            self.end(cx, place);
        }
    }

    #[inline]
    fn end(&mut self, cx: &mut Context<'_>, place: Place) {
        let operation = self.operations.get(place);
        operation.a_majority_holds_it(cx.registers);
        cx.registers.generations.operation_ends(operation.generation);
        let (request, key_place, was_live) = (operation.request, operation.place, operation.was_live);
        let (key, register, now) = (operation.key(), operation.register(), cx.now.unix_ms);
        self.requests.key_done(request, key_place, key, register, was_live, now, cx.effects);
        self.operations.end(place);
    }

    /// Members have begun another incarnation: answers of the earlier one no longer count.
    pub(super) fn forget_answers(&mut self, of: MemberSet) {
        for place in self.operations.open() {
            let operation = self.operations.get_mut(place);
            operation.answered.remove(of);
            operation.holders.remove(of);
            operation.sent.remove(of);
        }
        of.iter().for_each(|member| self.outbox.forget(member));
    }

    /// Cleans up after an input: drops what has failed, and continues requests that waited for others.
    #[inline]
    pub(super) fn resume(&mut self, cx: &mut Context<'_>) {
        if std::mem::take(&mut self.has_failed) {
            self.drop_operations(cx);
        }
        while let Some(deferred) = self.requests.take_due() {
            let asked = (deferred.ticket, false, deferred.deadline_us);
            deferred.with(|request| self.request(cx, asked, request));
        }
    }

    /// Ends overdue requests and repeats unanswered queries and updates.
    pub(super) fn tick(&mut self, cx: &mut Context<'_>) {
        let now_us = cx.now.monotonic_us;
        let refusal = cx.registers.refusal();
        let is_hopeless = self.is_cut_off(cx.timing, cx.now) || refusal.is_some();
        if now_us >= self.requests.earliest_us() || is_hopeless {
            // Without a majority in reach, requests that have changed nothing are refused at once.
            let refused = refusal.as_deref().unwrap_or(NO_MAJORITY);
            let errors = Errors { refused, unknown: UNKNOWN, planted: cx.registers.planted };
            let (refused, unknown) =
                self.requests.end_overdue(now_us, |changed| is_hopeless && !changed, errors, cx.effects);
            self.counters.refused += refused;
            self.counters.unknown += unknown;
            if refused + unknown > 0 {
                self.drop_operations(cx);
            }
        }
        if now_us >= self.retry_us {
            self.retry_us = now_us + cx.timing.retry_ms * 500;
            self.outbox.probe(cx.timing);
            for place in self.operations.open() {
                let operation = self.operations.get(place);
                let patience_ms = cx.timing.retry_ms << operation.tries.min(DOUBLINGS_MAX);
                if cx.now.ms_since(operation.sent_us) >= patience_ms {
                    self.counters.retries += 1;
                    self.operations.get_mut(place).tries += 1;
                    self.ask_again(cx, place, self.outbox.peers);
                }
            }
        }
    }

    /// Ends all requests, because the replica is being removed.
    pub(super) fn end_requests(&mut self, registers: &Registers, effects: &mut Effects) {
        let errors = Errors { refused: RETIRED, unknown: UNKNOWN, planted: registers.planted };
        let (refused, unknown) = self.requests.end_overdue(u64::MAX, |_| true, errors, effects);
        self.counters.refused += refused;
        self.counters.unknown += unknown;
    }

    /// Ends the requests with operations whose first round is under way.
    pub(super) fn end_first_rounds(&mut self, cx: &mut Context<'_>) {
        for place in self.operations.open() {
            let operation = self.operations.get(place);
            if operation.phase == Phase::Query && !self.requests.is_dropped(operation.request) {
                self.counters.refused += 1;
                self.requests.fail(operation.request, MOVED, cx.effects);
            }
        }
        self.drop_operations(cx);
    }

    /// Drops the operations of requests that have already ended.
    fn drop_operations(&mut self, cx: &mut Context<'_>) {
        for place in self.operations.open() {
            let operation = self.operations.get(place);
            if self.requests.is_dropped(operation.request) {
                cx.registers.generations.operation_ends(operation.generation);
                self.operations.end(place);
            }
        }
        self.requests.forget_dropped();
    }

    /// Repeats an operation's query or update to those of the members that have not answered.
    fn ask_again(&mut self, cx: &mut Context<'_>, place: Place, members: MemberSet) {
        let id = self.operations.id(place);
        let operation = self.operations.get_mut(place);
        operation.sent_us = cx.now.monotonic_us;
        match operation.phase {
            Phase::Query => {
                let silent = members.without(operation.answered);
                let operation = self.operations.get(place);
                let (tag, key) = (operation.asked, operation.key());
                let query =
                    Item::Query { operation: id, wants_value: operation.kind == Kind::Read, tag, key };
                for member in silent.iter() {
                    self.outbox.add(member, query, cx.registers, cx.timing, cx.effects);
                }
            }
            Phase::Update => {
                let silent = members.without(operation.holders);
                operation.sent.remove(silent);
                self.update(cx, place, silent);
            }
            Phase::Free => {}
        }
    }

    /// The link to a member came up: repeats what was on its way to the member, and was lost.
    pub(super) fn link_up(&mut self, cx: &mut Context<'_>, member: usize) {
        self.outbox.heard(member);
        if self.outbox.peers.contains(member) {
            for place in self.operations.open() {
                self.ask_again(cx, place, MemberSet::only(member));
            }
        }
    }

    /// Takes note that links came up or went down.
    pub(super) fn links_changed(&mut self, registers: &Registers, now: Now) {
        match registers.reaches_majority() {
            true => self.cut_off_us = None,
            false => self.cut_off_us = self.cut_off_us.or(Some(now.monotonic_us)),
        }
    }

    /// True when no majority has been reachable for a while.
    #[inline]
    fn is_cut_off(&self, timing: &Timing, now: Now) -> bool {
        self.cut_off_us.is_some_and(|since_us| now.ms_since(since_us) >= timing.hold_ms)
    }

    /// True when nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.operations.is_empty() && self.requests.is_empty()
    }

    /// Returns when it next has something to do, if no message arrives before that.
    pub(super) fn wakeup_us(&self, timing: &Timing) -> u64 {
        if self.is_idle() {
            return u64::MAX;
        }
        let cut_off_us = self.cut_off_us.map_or(u64::MAX, |since_us| since_us + timing.hold_ms * 1000);
        self.retry_us.min(self.requests.earliest_us()).min(cut_off_us)
    }
}

/// Returns this replica's answer to a coordinator's query, provided that it holds the register durably.
#[inline]
pub(super) fn answer_to_query(held: Register<'_>, operation: u64, wants_value: bool, asked: Tag) -> Item<'_> {
    let tag = Tag::of_version(held.version);
    let asked: Version = asked.version();
    match held.version.cmp(&asked) {
        std::cmp::Ordering::Equal => Item::Same { operation },
        std::cmp::Ordering::Less => Item::Older { operation, tag },
        std::cmp::Ordering::Greater if wants_value => Item::Value { operation, register: held },
        std::cmp::Ordering::Greater => Item::Newer { operation, tag, deadline: held.deadline },
    }
}
