//! The coordinator's side: clients' requests become operations, each driven by the answers of replicas.
//!
//! Answers and time only change what an operation knows; its next step follows from that alone (`steps`). This node's own
//! replica is treated like any other, but answers at once.

pub(in crate::blocking) mod operation;
mod random;
mod releases;
mod steps;

use super::item::Answer;
use super::locks::COUNT_BITS;
use super::options::Retry;
use super::state::State;
use crate::contract::{Effects, Now, RETIRED, Request, Ticket};
use crate::planted::Fault;
use crate::registers::{Errors, Incarnation, Keys, MemberSet, Plan, Question, RequestId, Requests, Tag};
use kv::Register;
use operation::{Goal, Operation, Phase};
use random::Random;
use releases::{Late, Releases};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const LOCKED: &str = "LOCKED the key is locked by another operation; nothing was done";
const NO_QUORUM: &str = "CLUSTERDOWN NOQUORUM too few replicas answered; nothing was done";
pub(super) const OVERLOAD: &str =
    "TRYAGAIN OVERLOADED too many requests wait for locks or answers; nothing was done";
const UNKNOWN: &str = "UNKNOWN too few replicas acknowledged the write in time; it may have been done";

/// All operations under way at one coordinator.
#[derive(Debug)]
pub(super) struct Coordinator {
    pub(in crate::blocking) requests: Requests,
    pub(in crate::blocking) operations: BTreeMap<u64, Operation>,
    operations_begun: u64,
    /// Bytes of their keys and values.
    pub(in crate::blocking) open_bytes: usize,
    /// The operation of each present attempt.
    pub(in crate::blocking) attempts: BTreeMap<u64, u64>,
    /// The last attempt's number: its upper bits are this incarnation, so that no two incarnations use the same number.
    pub(in crate::blocking) attempts_begun: u64,
    /// With [`Retry::Backoff`], the operations on each key in the order in which they arrived; the first one is under way.
    /// Operations of one coordinator need not compete for locks.
    pub(in crate::blocking) queues: BTreeMap<Box<[u8]>, VecDeque<u64>>,
    /// Operations that may begin now.
    pub(in crate::blocking) ready: VecDeque<u64>,
    /// When operations are next due.
    pub(in crate::blocking) timers: BTreeSet<(u64, u64)>,
    pub(in crate::blocking) releases: Releases,
    /// The highest counter that this coordinator gave to a write. The next write's is higher, whatever its key, so no two
    /// writes of one incarnation have the same tag, even if the first was never stored here.
    pub(in crate::blocking) highest_counter: u64,
    random: Random,
    /// Since when too many links for a majority are down.
    cut_off_since_us: Option<u64>,
}

impl Coordinator {
    pub(super) fn new(seed: u64) -> Coordinator {
        Coordinator {
            requests: Requests::default(),
            operations: BTreeMap::new(),
            operations_begun: 0,
            open_bytes: 0,
            attempts: BTreeMap::new(),
            attempts_begun: 0,
            queues: BTreeMap::new(),
            ready: VecDeque::new(),
            timers: BTreeSet::new(),
            releases: Releases::default(),
            highest_counter: 0,
            random: Random::new(seed),
            cut_off_since_us: None,
        }
    }

    /// Begins to serve in this incarnation. Answers still on their way to an earlier one belong to other attempts.
    pub(super) fn begin_life(&mut self, incarnation: Incarnation) {
        self.attempts_begun = u64::from(incarnation) << COUNT_BITS;
    }

    // Requests.

    /// Takes a client's request.
    pub(super) fn request(
        &mut self,
        state: &mut State,
        now: Now,
        (ticket, follows, deadline_us): (Ticket, bool, u64),
        request: &Request<'_>,
        effects: &mut Effects,
    ) {
        if self.requests.must_wait(ticket, follows, request) {
            return self.requests.defer(ticket, deadline_us, request);
        }
        self.begin_request(state, now, (ticket, deadline_us), request, effects);
        self.run_ready(state, now, effects);
    }

    fn begin_request(
        &mut self,
        state: &mut State,
        now: Now,
        (ticket, deadline_us): (Ticket, u64),
        request: &Request<'_>,
        effects: &mut Effects,
    ) {
        let start = effects.replies.len();
        let command = match *request {
            Request::Command(command) => command,
            Request::Wait { .. } => {
                // Everything acknowledged is held by a majority.
                effects.replies.integer(state.group().majority() as i64 - 1);
                return effects.done(ticket, start, 0, 0);
            }
        };
        let times = (now.monotonic_us, deadline_us);
        match Plan::of(command, now.unix_ms, "blocking") {
            Plan::Refused(why) => {
                state.counters.refused += 1;
                effects.refuse(ticket, &why);
            }
            Plan::Local => {
                let version = state.registers.table.read(command, now.unix_ms, &mut effects.replies);
                effects.done(ticket, start, version, 0);
            }
            _ if self.is_cut_off(state, now) => {
                state.counters.refused += 1;
                effects.refuse(ticket, NO_QUORUM);
            }
            _ if state.registers.standstill().is_some() => {
                state.counters.refused += 1;
                effects.refuse(ticket, &state.registers.refusal().unwrap_or_default());
            }
            _ if self.open_bytes > state.timing.open_bytes_max => {
                state.counters.refused += 1;
                effects.refuse(ticket, OVERLOAD);
            }
            Plan::Read(question, keys) => {
                let request = self.requests.begin(ticket, deadline_us, question);
                match keys {
                    Keys::One(key) => self.begin(state, request, true, key, Goal::Read, times),
                    Keys::Many(keys) => {
                        keys.iter().for_each(|key| self.begin(state, request, false, key, Goal::Read, times));
                        self.requests.end_if_empty(request, effects);
                    }
                }
            }
            Plan::Set { key, deadline, value } => {
                let request = self.requests.begin(ticket, deadline_us, Question::Written);
                let goal = Goal::write(Register { version: 0, deadline, value });
                self.begin(state, request, true, key, goal, times);
            }
            Plan::Delete(keys) => {
                let request = self.requests.begin(ticket, deadline_us, Question::Deleted);
                let is_only = keys.len() == 1;
                for key in keys.iter() {
                    self.begin(state, request, is_only, key, Goal::write(Register::UNWRITTEN), times);
                }
                self.requests.end_if_empty(request, effects);
            }
        }
    }

    /// Queues an operation on one of a request's keys.
    fn begin(
        &mut self,
        state: &mut State,
        request: RequestId,
        is_only: bool,
        key: &[u8],
        goal: Goal,
        (begun_us, deadline_us): (u64, u64),
    ) {
        let place = self.requests.add_key(request, key);
        self.operations_begun += 1;
        let id = self.operations_begun;
        let generation = state.registers.generations.operation_begins();
        let times = (begun_us, deadline_us);
        let operation = Operation::new((request, place, is_only), key, goal, generation, times);
        self.timers.insert((operation.due_us, id));
        self.open_bytes += operation.bytes();
        self.operations.insert(id, operation);
        match self.queues.get_mut(key) {
            // The study's clients did not know of each other: each requested its own locks.
            _ if state.options.retry == Retry::None => self.ready.push_back(id),
            Some(queue) => queue.push_back(id),
            None => {
                self.queues.insert(key.into(), VecDeque::from([id]));
                self.ready.push_back(id);
            }
        }
    }

    /// Starts operations that have become first in their queue, and requests that waited for earlier ones of their
    /// client.
    pub(super) fn run_ready(&mut self, state: &mut State, now: Now, effects: &mut Effects) {
        loop {
            while let Some(id) = self.ready.pop_front() {
                self.lock(state, now, id, effects);
            }
            let Some(deferred) = self.requests.take_due() else { return };
            let times = (deferred.ticket, deferred.deadline_us);
            deferred.with(|request| self.begin_request(state, now, times, request, effects));
        }
    }

    /// True when no lock is waiting to be freed.
    pub(super) fn has_no_locks(&self) -> bool {
        self.releases.is_empty()
    }

    // Answers.

    /// Takes a replica's answer. For an attempt that is over, an answer only shows that a lock must be released, or is
    /// free.
    pub(super) fn answered(
        &mut self,
        state: &mut State,
        now: Now,
        from: usize,
        answer: Answer<'_>,
        effects: &mut Effects,
    ) {
        let id = self.attempts.get(&answer.attempt()).copied();
        let operation = id.and_then(|id| self.operations.get_mut(&id));
        let Some((id, operation)) = id.zip(operation) else {
            match answer {
                Answer::Granted { attempt, key, grant, tag, .. } => {
                    self.releases.surplus(state, now, from, (attempt, grant), (key, tag));
                }
                Answer::Unlocked { attempt, freed, .. } => {
                    self.releases.answered(state, now, from, attempt, freed);
                }
                Answer::Denied { .. } | Answer::Stored { .. } | Answer::Lost { .. } => {}
            }
            return;
        };
        match answer {
            Answer::Granted { grant, tag, deadline, value, .. } => {
                operation.granted(from, grant, (tag, deadline), value);
                operation.holds(from, tag);
                if let Phase::Storing(tag) = operation.phase {
                    steps::write_if_granted(state, operation, from, tag);
                }
            }
            Answer::Denied { .. } => operation.denied(from),
            Answer::Stored { .. } => {
                if let Phase::Storing(tag) | Phase::Withdrawing(tag) = operation.phase {
                    operation.holds(from, tag);
                }
            }
            Answer::Lost { grant, .. } => operation.lost(from, grant),
            Answer::Unlocked { holds, .. } => {
                if let Phase::Withdrawing(tag) = operation.phase {
                    operation.unlocked(from, holds.then_some(tag));
                }
            }
        }
        self.advance(state, now, id, effects);
        self.run_ready(state, now, effects);
    }

    /// Records have become durable: this replica's registers in them count now.
    pub(super) fn durable(&mut self, state: &mut State, now: Now, effects: &mut Effects) {
        let (own, durable) = (state.group().own(), state.registers.journal.durable_to());
        while state.undurable.first().is_some_and(|(record, ..)| *record <= durable)
            && let Some((_, attempt, tag)) = state.undurable.pop_first()
        {
            let Some(id) = self.attempts.get(&attempt).copied() else { continue };
            if let Some(operation) = self.operations.get_mut(&id) {
                operation.holds(own, tag);
                self.advance(state, now, id, effects);
            }
        }
        self.run_ready(state, now, effects);
    }

    /// Members began new incarnations: answers of their earlier ones no longer count.
    pub(super) fn renew(&mut self, members: MemberSet) {
        self.releases.renew(members);
        for operation in self.operations.values_mut() {
            members.iter().for_each(|member| operation.renew(member));
        }
    }

    // Ends.

    /// Removes an operation everywhere, and releases its locks.
    fn end(&mut self, state: &mut State, now: Now, id: u64, late: Late) -> Option<Operation> {
        let operation = self.operations.remove(&id)?;
        self.open_bytes -= operation.bytes();
        self.timers.remove(&(operation.due_us, id));
        state.registers.generations.operation_ends(operation.generation);
        if self.attempts.remove(&operation.attempt).is_some() {
            self.releases.release(state, now, &operation, late);
        }
        if let Some(queue) = self.queues.get_mut(&operation.key) {
            let was_first = queue.front() == Some(&id);
            queue.retain(|waiting| *waiting != id);
            match queue.front() {
                Some(next) if was_first => self.ready.push_back(*next),
                Some(_) => {}
                None => drop(self.queues.remove(&operation.key)),
            }
        }
        Some(operation)
    }

    /// Ends an operation whose value a majority holds.
    fn done(&mut self, state: &mut State, now: Now, id: u64, tag: Tag, effects: &mut Effects) {
        let is_read = self.operations.get(&id).is_some_and(Operation::is_read);
        let late = if is_read { Late::Unlock } else { Late::Fill };
        let Some(operation) = self.end(state, now, id, late) else { return };
        operation.a_majority_holds_it(tag, state);
        let was_live = operation.found.deadline > now.unix_ms;
        let (request, place) = (operation.request, operation.place);
        let register = operation.to_store(tag);
        self.requests.key_done(request, place, &operation.key, register, was_live, now.unix_ms, effects);
    }

    /// Ends an operation that has had no effect and never will. Its request ends with it.
    fn refuse(&mut self, state: &mut State, now: Now, id: u64, why: &str, effects: &mut Effects) {
        let Some(operation) = self.end(state, now, id, Late::Unlock) else { return };
        state.counters.refused += 1;
        self.requests.fail(operation.request, why, effects);
        self.sweep_dropped(state, now);
    }

    /// Ends a write that may have been accepted at a replica, or may still be.
    fn unknown(&mut self, state: &mut State, now: Now, id: u64, effects: &mut Effects) {
        let Some(operation) = self.operations.get(&id) else { return };
        if state.has(Fault::UnknownReportedAsRefused) {
            return self.refuse(state, now, id, NO_QUORUM, effects);
        }
        state.counters.unknown += 1;
        let request = operation.request;
        self.end(state, now, id, Late::Unlock);
        self.requests.fail_unknown(request, UNKNOWN, effects);
        self.sweep_dropped(state, now);
    }

    /// Ends the remaining operations of requests that already have their outcome.
    fn sweep_dropped(&mut self, state: &mut State, now: Now) {
        let is_dropped = |operation: &Operation| self.requests.is_dropped(operation.request);
        let dropped = self.operations.iter().filter(|(_, operation)| is_dropped(operation));
        let dropped: Vec<u64> = dropped.map(|(id, _)| *id).collect();
        dropped.into_iter().for_each(|id| drop(self.end(state, now, id, Late::Unlock)));
        self.requests.forget_dropped();
    }

    // Time.

    /// Makes an operation due at `due_us`, or when its deadline passes.
    fn set_due(&mut self, id: u64, due_us: u64) {
        let Some(operation) = self.operations.get_mut(&id) else { return };
        self.timers.remove(&(operation.due_us, id));
        operation.due_us = due_us.min(operation.deadline_us);
        self.timers.insert((operation.due_us, id));
    }

    pub(super) fn tick(&mut self, state: &mut State, now: Now, effects: &mut Effects) {
        self.releases.tick(state, now);
        let refusal = state.registers.refusal();
        let is_hopeless = self.is_cut_off(state, now) || refusal.is_some();
        let refused = refusal.as_deref().unwrap_or(NO_QUORUM);
        if is_hopeless {
            self.refuse_cut_off(state, now, refused, effects);
            state.counters.refused += self.requests.refuse_deferred(refused, effects);
        }
        while let Some((due_us, id)) = self.timers.first().copied()
            && due_us <= now.monotonic_us
        {
            self.due(state, now, id, effects);
        }
        if self.requests.earliest_us() <= now.monotonic_us {
            // This covers requests that waited for others of their client, or for this replica's memory. Requests that
            // had begun were ended above.
            let errors = Errors { refused, unknown: UNKNOWN, planted: state.options.planted };
            let (refused, _) = self.requests.end_overdue(now.monotonic_us, |_| false, errors, effects);
            state.counters.refused += refused;
            self.sweep_dropped(state, now);
        }
        self.run_ready(state, now, effects);
    }

    /// Returns when it needs the next tick.
    pub(super) fn wakeup_us(&self) -> u64 {
        let timer_us = self.timers.first().map_or(u64::MAX, |(due_us, _)| *due_us);
        timer_us.min(self.requests.earliest_us()).min(self.releases.wakeup_us())
    }

    /// Whether too many links for a majority have been down for so long that requests need not wait.
    fn is_cut_off(&mut self, state: &State, now: Now) -> bool {
        if state.registers.reaches_majority() {
            self.cut_off_since_us = None;
            return false;
        }
        let since_us = *self.cut_off_since_us.get_or_insert(now.monotonic_us);
        now.ms_since(since_us) >= state.timing.hold_ms
    }

    /// Ends all requests, because the replica is being removed.
    pub(super) fn end_requests(&mut self, state: &mut State, now: Now, effects: &mut Effects) {
        // First the operations that may take effect: they decide the outcome of a request with several keys.
        let stored = self.operations.iter().filter(|(_, operation)| operation.may_take_effect());
        let stored: Vec<u64> = stored.map(|(id, _)| *id).collect();
        stored.into_iter().for_each(|id| self.unknown(state, now, id, effects));
        self.refuse_cut_off(state, now, RETIRED, effects);
        assert!(self.operations.is_empty(), "an operation has stored something or it has not");
        let errors = Errors { refused: RETIRED, unknown: UNKNOWN, planted: state.options.planted };
        let (refused, unknown) = self.requests.end_overdue(u64::MAX, |_| true, errors, effects);
        state.counters.refused += refused;
        state.counters.unknown += unknown;
    }

    /// Refuses all operations that have stored nothing yet.
    pub(super) fn refuse_cut_off(&mut self, state: &mut State, now: Now, why: &str, effects: &mut Effects) {
        let waiting = self.operations.iter().filter(|(_, operation)| !operation.may_take_effect());
        let waiting: Vec<u64> = waiting.map(|(id, _)| *id).collect();
        waiting.into_iter().for_each(|id| self.refuse(state, now, id, why, effects));
    }
}
