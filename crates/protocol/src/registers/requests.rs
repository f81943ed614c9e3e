//! Clients' requests under way at a coordinator.
//!
//! A request has one key or several, each of which is read or written by a separate operation. This module keeps the
//! client of each request, and what its operations have found so far. It also ensures that one client's requests on one
//! key take effect in the order in which they were sent: a request waits until the same client's earlier requests on the
//! same key have ended ([`Requests::must_wait`]).

use super::commands::Question;
use crate::effects::{Effects, NodeId, Request, Ticket};
use crate::parked;
use crate::planted::{Fault, Planted};
use kv::{Register, Table, UnixMs};
use std::ops::Range;

/// Identifies an open request. Numbers are reused after requests have ended.
pub type RequestId = u32;

/// The number of places in the filter that finds whether a client's earlier request on a key may be open.
const MARKS: usize = 4096;

#[derive(Debug)]
pub(super) struct Slot {
    /// `None`: the place is free, or the request has ended and its operations are being dropped.
    pub(super) ticket: Option<Ticket>,
    pub(super) deadline_us: u64,
    question: Question,
    /// The number of keys that are not done yet.
    pub(super) open: u32,
    /// True when the request may have changed a replica.
    pub(super) changed: bool,
    /// Its deadline has passed, or it has failed: its operations are to be dropped.
    pub(super) dropped: bool,
    count: i64,
    /// Its places in the filter.
    pub(super) marks: Vec<u16>,
    /// For a request of several keys: the range of each value, `None` for a missing one.
    pub(super) parts: Vec<Option<Range<usize>>>,
    values: Vec<u8>,
}

type ParkedRequest = parked::ParkedRequest<()>;

/// A coordinator's errors for requests that could not be completed.
#[derive(Clone, Copy, Debug)]
pub struct Errors<'a> {
    /// For a request that has changed nothing.
    pub refused: &'a str,
    /// For a write that may take effect.
    pub unknown: &'static str,
    /// A planted fault, in tests.
    pub planted: Planted,
}

/// All open requests.
#[derive(Debug)]
pub struct Requests {
    pub(super) slots: Vec<Slot>,
    pub(super) free: Vec<RequestId>,
    /// How many keys of open requests fall on each place: a counting Bloom filter of (client, key). If two share a
    /// place, a pipelined request waits without need, which does no harm.
    pub(super) marks: Vec<u32>,
    /// Requests that wait for an earlier one of their client, or for this replica's memory.
    pub(super) deferred: parked::ParkedRequests<()>,
    /// Some of them wait for the replica's memory.
    are_held: bool,
    /// No open request has a deadline before this moment.
    pub(super) earliest_us: u64,
    /// True when a request has ended since deferred ones were last checked.
    ended: bool,
}

impl Default for Requests {
    fn default() -> Self {
        Requests {
            slots: Vec::new(),
            free: Vec::new(),
            marks: vec![0; MARKS],
            deferred: parked::ParkedRequests::default(),
            are_held: false,
            earliest_us: u64::MAX,
            ended: false,
        }
    }
}

fn mark(client: u64, key: &[u8]) -> u16 {
    let mut sum = client ^ key.len() as u64;
    let mut mix = |part: u64| sum = (sum ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let (words, rest) = key.as_chunks::<8>();
    words.iter().for_each(|word| mix(u64::from_le_bytes(*word)));
    mix(rest.iter().fold(0, |part, byte| part << 8 | u64::from(*byte)));
    mix(0);
    (sum >> 32) as u16 % MARKS as u16
}

impl Requests {
    /// True when no request is open or waiting.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len() && self.deferred.is_empty()
    }

    /// The moment at which the first deadline may pass.
    #[inline]
    pub fn earliest_us(&self) -> u64 {
        self.earliest_us
    }

    /// True when a request that `follows` others of its client must wait for one of those.
    #[inline]
    pub fn must_wait(&self, ticket: Ticket, follows: bool, request: &Request<'_>) -> bool {
        follows && self.stands_behind(ticket.client, request, self.deferred.len())
    }

    /// True when an open request, or one of the first `deferred` that wait, has to end first.
    fn stands_behind(&self, client: u64, request: &Request<'_>, deferred: usize) -> bool {
        if self.deferred.iter().take(deferred).any(|deferred| deferred.ticket.client == client) {
            return true;
        }
        let mut names_keys = false;
        let mut is_marked = false;
        if let Request::Command(command) = request {
            command.for_each_key(|key| {
                names_keys = true;
                is_marked |= self.marks[mark(client, key) as usize] > 0;
            });
        }
        if names_keys {
            return is_marked;
        }
        self.slots.iter().any(|slot| slot.ticket.is_some_and(|ticket| ticket.client == client))
    }

    /// Defers a request until those that it must wait for have ended.
    pub fn defer(&mut self, ticket: Ticket, deadline_us: u64, request: &Request<'_>) {
        self.earliest_us = self.earliest_us.min(deadline_us);
        self.deferred.push(ParkedRequest::new(ticket, deadline_us, (), request));
    }

    /// Keeps a request while the replica is without its memory. False when too much is kept already.
    pub fn hold(
        &mut self,
        ticket: Ticket,
        deadline_us: u64,
        request: &Request<'_>,
        bytes_max: usize,
    ) -> bool {
        let held_bytes = self.deferred.bytes() + self.deferred.len() * size_of::<ParkedRequest>();
        let has_room = held_bytes <= bytes_max;
        if has_room {
            self.defer(ticket, deadline_us, request);
            self.are_held = true;
        }
        has_room
    }

    /// The replica has its memory: the kept requests may begin.
    pub fn release_held(&mut self) {
        self.ended |= std::mem::take(&mut self.are_held);
    }

    /// Another node has its memory: hands the kept requests on to it.
    pub fn hand_on_held(&mut self, to: NodeId, effects: &mut Effects) {
        self.are_held = false;
        for deferred in self.deferred.take() {
            if !deferred.hand_on(to, effects) {
                effects.redirect(deferred.ticket, to);
            }
        }
    }

    /// Hands the requests that have not begun on to this node itself, `own`, which checks them by another map than before.
    pub(crate) fn check_again(&mut self, own: NodeId, effects: &mut Effects) {
        for deferred in self.deferred.take() {
            if !deferred.hand_on(own, effects) {
                self.deferred.push(deferred);
            }
        }
    }

    /// Takes the first deferred request that no longer has to wait. Call this repeatedly after requests may have ended,
    /// until it returns `None`.
    pub(crate) fn take_due(&mut self) -> Option<ParkedRequest> {
        if !self.ended || self.deferred.is_empty() {
            self.ended = false;
            return None;
        }
        let due = self.deferred.iter().enumerate().position(|(index, deferred)| {
            !deferred.with(|request| self.stands_behind(deferred.ticket.client, request, index))
        });
        self.ended = due.is_some();
        self.deferred.remove(due?)
    }

    /// Begins a request. Call [`Requests::add_key`] next for each of its keys.
    #[inline]
    pub fn begin(&mut self, ticket: Ticket, deadline_us: u64, question: Question) -> RequestId {
        self.earliest_us = self.earliest_us.min(deadline_us);
        if let Some(id) = self.free.pop() {
            let slot = &mut self.slots[id as usize];
            assert!(
                slot.ticket.is_none() && slot.open == 0,
                "a request gets the place of one that is under way"
            );
            (slot.ticket, slot.deadline_us, slot.question) = (Some(ticket), deadline_us, question);
            return id;
        }
        self.slots.push(Slot {
            ticket: Some(ticket),
            deadline_us,
            question,
            open: 0,
            changed: false,
            dropped: false,
            count: 0,
            marks: Vec::new(),
            parts: Vec::new(),
            values: Vec::new(),
        });
        self.slots.len() as RequestId - 1
    }

    /// Adds a key to a request. Returns the key's place among its keys.
    #[inline]
    pub fn add_key(&mut self, id: RequestId, key: &[u8]) -> u32 {
        let slot = &mut self.slots[id as usize];
        let client = slot.ticket.map_or(0, |ticket| ticket.client);
        let place = mark(client, key);
        self.marks[place as usize] += 1;
        slot.marks.push(place);
        slot.open += 1;
        slot.marks.len() as u32 - 1
    }

    /// Notes that a replica may have been changed by the request.
    #[inline]
    pub fn has_changed(&mut self, id: RequestId) {
        self.slots[id as usize].changed = true;
    }

    /// Completes one of the request's keys with what it held or, for a write, what was written. `was_live`: for a deleted
    /// key, whether it existed before. Completing the last key answers the request.
    #[inline]
    #[allow(
        clippy::too_many_arguments,
        reason = "it is called in one place of each protocol, with what is at hand"
    )]
    pub fn key_done(
        &mut self,
        id: RequestId,
        place: u32,
        key: &[u8],
        register: Register<'_>,
        was_live: bool,
        now: UnixMs,
        effects: &mut Effects,
    ) {
        let slot = &mut self.slots[id as usize];
        assert!(slot.open > 0, "one of a request's keys is done twice");
        slot.open -= 1;
        let start = effects.replies.len();
        let Some(ticket) = slot.ticket else { return };
        let (mut version, mut offset) = (register.version, 0);
        match slot.question {
            Question::Value if register.is_live(now) => effects.replies.bulk(register.value),
            Question::Value => effects.replies.null(),
            Question::Written => {
                effects.replies.ok();
                offset = version;
            }
            Question::Detail(detail) => {
                // The table that answers holds only this key: the replica's own may hold a newer value.
                let mut table = Table::new(0);
                table.put_register(key, register);
                table.read(&detail.command(key), now, &mut effects.replies);
            }
            question => {
                slot.note(place as usize, register, was_live, (now, effects.replies.reply_bytes_max()));
                slot.changed |= question == Question::Deleted;
                if slot.open > 0 {
                    return;
                }
                slot.answer(effects);
                let single = slot.marks.len() == 1;
                version = if single { version } else { 0 };
                offset = if question == Question::Deleted { register.version } else { 0 };
            }
        }
        effects.done(ticket, start, version, offset);
        self.end(id);
    }

    /// Answers a request that has no keys at once.
    pub fn end_if_empty(&mut self, id: RequestId, effects: &mut Effects) {
        let slot = &mut self.slots[id as usize];
        let (start, Some(ticket)) = (effects.replies.len(), slot.ticket) else { return };
        if slot.open == 0 {
            slot.answer(effects);
            effects.done(ticket, start, 0, 0);
            self.end(id);
        }
    }

    fn end(&mut self, id: RequestId) {
        let slot = &mut self.slots[id as usize];
        for place in slot.marks.drain(..) {
            assert!(self.marks[place as usize] > 0, "a request ends twice");
            self.marks[place as usize] -= 1;
        }
        (slot.ticket, slot.open, slot.count) = (None, 0, 0);
        (slot.changed, slot.dropped) = (false, false);
        slot.parts.clear();
        slot.values.clear();
        const KEPT_BYTES: usize = 64 << 10;
        slot.values.shrink_to(KEPT_BYTES);
        slot.parts.shrink_to(KEPT_BYTES / size_of::<Range<usize>>());
        slot.marks.shrink_to(KEPT_BYTES / size_of::<u16>());
        self.free.push(id);
        self.ended = true;
    }

    /// One of a request's operations cannot continue: the request ends with this error, refused if nothing was changed
    /// by it, else unknown. Its operations are to be dropped, see [`Requests::is_dropped`].
    pub fn fail(&mut self, id: RequestId, error: &str, effects: &mut Effects) {
        let slot = &mut self.slots[id as usize];
        slot.dropped = true;
        let Some(ticket) = slot.ticket.take() else { return };
        match slot.changed {
            false => effects.refuse(ticket, error),
            // An error about one key does not hold for all.
            true => effects.unknown(ticket, "UNKNOWN some of its keys were changed and the others were not"),
        }
    }

    /// One of a request's writes may or may not take effect: the request ends with this error, as unknown. Its
    /// operations are to be dropped, as with [`Requests::fail`].
    pub fn fail_unknown(&mut self, id: RequestId, error: &str, effects: &mut Effects) {
        let slot = &mut self.slots[id as usize];
        slot.dropped = true;
        if let Some(ticket) = slot.ticket.take() {
            effects.unknown(ticket, error);
        }
    }

    /// Ends all requests whose deadline has passed, and those for which `hopeless` returns true. Its argument is whether
    /// the request may have changed a replica. Returns the numbers (refused, unknown): unless both are 0, drop the
    /// operations of requests that are [dropped](Requests::is_dropped), and then call [`Requests::forget_dropped`].
    pub fn end_overdue(
        &mut self,
        now_us: u64,
        hopeless: impl Fn(bool) -> bool,
        errors: Errors<'_>,
        effects: &mut Effects,
    ) -> (u64, u64) {
        let (mut refused, mut unknown) = (0, 0);
        self.earliest_us = u64::MAX;
        for slot in &mut self.slots {
            let Some(ticket) = slot.ticket else { continue };
            if slot.deadline_us > now_us && !hopeless(slot.changed) {
                self.earliest_us = self.earliest_us.min(slot.deadline_us);
                continue;
            }
            (slot.ticket, slot.dropped) = (None, true);
            if slot.changed && !errors.planted.has(Fault::UnknownReportedAsRefused) {
                effects.unknown(ticket, errors.unknown);
                unknown += 1;
            } else {
                effects.refuse(ticket, errors.refused);
                refused += 1;
            }
        }
        for deferred in self.deferred.take_if(|it| it.deadline_us <= now_us || hopeless(false)) {
            effects.refuse(deferred.ticket, errors.refused);
            refused += 1;
        }
        let next_us = self.deferred.iter().map(|deferred| deferred.deadline_us).min();
        self.earliest_us = self.earliest_us.min(next_us.unwrap_or(u64::MAX));
        (refused, unknown)
    }

    /// Refuses all requests that have not begun. Returns their number.
    pub fn refuse_deferred(&mut self, why: &str, effects: &mut Effects) -> u64 {
        let deferred = self.deferred.take();
        let count = deferred.len() as u64;
        deferred.into_iter().for_each(|deferred| effects.refuse(deferred.ticket, why));
        count
    }

    /// True when the request has ended, but its operations have not been dropped yet.
    #[inline]
    pub fn is_dropped(&self, id: RequestId) -> bool {
        self.slots[id as usize].dropped
    }

    /// Frees the places of all dropped requests, once their operations are dropped.
    pub fn forget_dropped(&mut self) {
        let dropped = |slot: &Slot| slot.dropped;
        let ids: Vec<usize> = (0..self.slots.len()).filter(|id| dropped(&self.slots[*id])).collect();
        ids.into_iter().for_each(|id| self.end(id as RequestId));
    }
}

impl Slot {
    /// Notes what one of several keys held.
    fn note(
        &mut self,
        place: usize,
        register: Register<'_>,
        was_live: bool,
        (now, bytes_max): (UnixMs, usize),
    ) {
        let is_live = register.is_live(now);
        match self.question {
            Question::Values => {
                if self.parts.len() <= place {
                    self.parts.resize(place + 1, None);
                }
                if is_live && self.values.len() <= bytes_max {
                    let start = self.values.len();
                    self.values.extend_from_slice(register.value);
                    self.parts[place] = Some(start..self.values.len());
                }
            }
            Question::Deleted => self.count += i64::from(was_live),
            _ => self.count += i64::from(is_live),
        }
    }

    fn answer(&self, effects: &mut Effects) {
        let replies = &mut effects.replies;
        if self.question != Question::Values {
            return replies.integer(self.count);
        }
        const ELEMENT_BYTES: usize = 5;
        let bytes_max = replies.reply_bytes_max();
        if self.values.len() + self.parts.len() * ELEMENT_BYTES > bytes_max {
            return replies.error(&format!("ERR the reply would hold more than {bytes_max} bytes"));
        }
        replies.array(self.parts.len());
        for part in &self.parts {
            match part {
                Some(range) => replies.bulk(&self.values[range.clone()]),
                None => replies.null(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::codec::Reader;
    use kv::{Command, Reply};

    fn ticket(client: u64, sequence: u64) -> Ticket {
        Ticket { client, sequence }
    }

    fn get(key: &[u8]) -> Command<'_> {
        Command::Get { key }
    }

    fn live(value: &[u8]) -> Register<'_> {
        Register { version: 7, deadline: Register::NEVER, value }
    }

    fn errors() -> Errors<'static> {
        Errors { refused: "NOQUORUM", unknown: "UNKNOWN", planted: Planted::default() }
    }

    #[test]
    fn a_request_waits_only_for_its_clients_earlier_one_on_the_same_key() {
        let (mut requests, mut effects) = (Requests::default(), Effects::default());
        let first = requests.begin(ticket(1, 1), 100, Question::Value);
        requests.add_key(first, b"k");
        assert!(!requests.must_wait(ticket(1, 2), true, &Request::Command(&get(b"other"))));
        assert!(!requests.must_wait(ticket(2, 1), true, &Request::Command(&get(b"k"))), "another client");
        assert!(
            !requests.must_wait(ticket(1, 2), false, &Request::Command(&get(b"k"))),
            "it has an outcome of all others"
        );
        assert!(requests.must_wait(ticket(1, 2), true, &Request::Command(&get(b"k"))));
        requests.defer(ticket(1, 2), 100, &Request::Command(&get(b"k")));
        assert!(
            requests.must_wait(ticket(1, 3), true, &Request::Command(&get(b"other"))),
            "it may not overtake"
        );
        requests.defer(ticket(1, 3), 100, &Request::Command(&get(b"other")));
        assert!(requests.take_due().is_none());
        requests.key_done(first, 0, b"k", live(b"v"), false, 0, &mut effects);
        let due = requests.take_due().unwrap();
        assert_eq!(due.ticket, ticket(1, 2));
        due.with(|request| assert_eq!(*request, Request::Command(&get(b"k"))));
        assert_eq!(requests.take_due().unwrap().ticket, ticket(1, 3));
        assert!(requests.take_due().is_none() && requests.is_empty());
    }

    #[test]
    fn several_keys_are_answered_in_the_order_of_the_request() {
        let (mut requests, mut effects) = (Requests::default(), Effects::default());
        let id = requests.begin(ticket(1, 1), 100, Question::Values);
        for key in [b"a", b"b", b"c"] {
            requests.add_key(id, key);
        }
        requests.key_done(id, 2, b"c", live(b"third"), false, 0, &mut effects);
        requests.key_done(id, 0, b"a", live(b"first"), false, 0, &mut effects);
        assert!(effects.outcomes.is_empty());
        requests.key_done(id, 1, b"b", Register::UNWRITTEN, false, 0, &mut effects);
        let mut reader = Reader::new(effects.replies.as_bytes());
        let mut next = || Reply::decode(&mut reader).unwrap();
        assert_eq!(
            [next(), next(), next(), next()],
            [Reply::Array(3), Reply::Bulk(b"first"), Reply::Null, Reply::Bulk(b"third")]
        );
    }

    #[test]
    fn a_request_that_changed_nothing_is_refused_at_its_deadline_and_others_are_unknown() {
        let (mut requests, mut effects) = (Requests::default(), Effects::default());
        for (sequence, changes) in [(1, false), (2, true), (3, false)] {
            let id = requests.begin(ticket(1, sequence), 100 * sequence, Question::Written);
            requests.add_key(id, b"k");
            if changes {
                requests.has_changed(id);
            }
        }
        assert_eq!(requests.earliest_us(), 100);
        assert_eq!(requests.end_overdue(200, |_| false, errors(), &mut effects), (1, 1));
        assert_eq!(requests.earliest_us(), 300);
        assert!(requests.is_dropped(0) && requests.is_dropped(1) && !requests.is_dropped(2));
        requests.forget_dropped();
        assert_eq!(requests.begin(ticket(1, 4), 300, Question::Value), 1, "places are given anew");
        let results: Vec<_> = effects.outcomes.iter().map(|outcome| outcome.result).collect();
        assert_eq!(results, [crate::Result::Refused, crate::Result::Unknown]);
    }
}
