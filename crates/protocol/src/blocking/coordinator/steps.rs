//! An operation's steps, from the locks to its end.

use super::operation::{Found, Operation, Phase};
use super::releases::Late;
use super::{Coordinator, LOCKED, NO_QUORUM};
use crate::blocking::item::Ask;
use crate::blocking::options::{Retry, Timing};
use crate::blocking::state::State;
use crate::contract::{Effects, Now};
use crate::planted::Fault;
use crate::registers::Tag;

const CALLED_BACK: &str =
    "LOCKED the write's locks ended before a majority held it; it was called back and nothing was done";
const COUNTERS_USED_UP: &str = "ERR no tag is left for another write; nothing was done";

impl Coordinator {
    /// Begins an attempt: requests the lock from every replica. This node's own answers at once.
    pub(super) fn lock(&mut self, state: &mut State, now: Now, id: u64, effects: &mut Effects) {
        let Some(operation) = self.operations.get_mut(&id) else { return };
        self.attempts_begun += 1;
        operation.begin_attempt(self.attempts_begun);
        self.attempts.insert(operation.attempt, id);
        for member in state.group().all().iter() {
            ask_for_lock(state, now, operation, member);
        }
        self.set_timer(state, now, id);
        self.advance(state, now, id, effects);
    }

    /// Takes the next step of an operation, if what is known allows one.
    pub(super) fn advance(&mut self, state: &mut State, now: Now, id: u64, effects: &mut Effects) {
        let Some(operation) = self.operations.get(&id) else { return };
        let (members, majority) = (state.group().len(), state.group().majority());
        match operation.phase {
            Phase::Locking if operation.grants().len() >= majority => self.decide(state, now, id, effects),
            Phase::Locking => {
                // Absent replicas will not grant it either. Without any denial the attempt may still wait for them. With
                // a denial it may not: two attempts that each hold some of the locks would wait for each other.
                let denials = operation.denials();
                let absent = operation.silent().and(state.absent(now));
                if !denials.is_empty() && denials.len() + absent.len() > members - majority {
                    self.attempt_failed(state, now, id, effects);
                }
            }
            Phase::Storing(tag) => self.store_if_last(state, now, id, tag, effects),
            Phase::Withdrawing(tag) => self.conclude(state, now, id, tag, effects),
            Phase::Queued | Phase::BackingOff => {}
        }
    }

    /// Too many replicas denied the lock: releases the granted ones. The operation fails, or waits and tries again.
    fn attempt_failed(&mut self, state: &mut State, now: Now, id: u64, effects: &mut Effects) {
        let Some(operation) = self.operations.get_mut(&id) else { return };
        if state.options.retry == Retry::None {
            return self.refuse(state, now, id, LOCKED, effects);
        }
        state.counters.backoffs += 1;
        self.attempts.remove(&operation.attempt);
        self.releases.release(state, now, operation, Late::Unlock);
        operation.phase = Phase::BackingOff;
        operation.met_locks |= operation.met_a_lock();
        let Timing { backoff_min_ms, backoff_max_ms, .. } = state.timing;
        let bound_ms =
            backoff_min_ms.saturating_mul(1 << operation.failed_attempts.min(30)).min(backoff_max_ms);
        operation.failed_attempts += 1;
        let wait_us = self.random.up_to(bound_ms.saturating_mul(1000)); // Full jitter: attempts that collided move apart.
        self.set_due(id, now.monotonic_us.saturating_add(wait_us));
    }

    /// A majority granted the lock and reported what it holds. A read whose majority agrees is done; any other read first
    /// writes the newest value back. A write chooses its tag.
    fn decide(&mut self, state: &mut State, now: Now, id: u64, effects: &mut Effects) {
        let Some(operation) = self.operations.get_mut(&id) else { return };
        let own = state.group().own();
        // This node's own table can be read without a lock, and may hold something newer than what the grants reported.
        let held = state.table().register(&operation.key);
        let held_tag = Tag::of_version(held.version);
        if held_tag >= operation.found.tag {
            let value = operation.is_read().then(|| held.value.into());
            operation.found = Found { tag: held_tag, deadline: held.deadline, value };
        }
        own_holds(state, operation, held_tag);
        let found = operation.found.tag;
        if operation.is_read() {
            let agrees = operation.holders(found).len() >= state.group().majority();
            if agrees || state.has(Fault::ReadWithoutRepair) {
                state.counters.one_round_reads += 1;
                return self.done(state, now, id, found, effects);
            }
            state.counters.repairs += 1;
            operation.phase = Phase::Storing(found);
        } else {
            let counter =
                found.counter().max(self.highest_counter).max(state.registers.generations.floor()) + 1;
            let Some(tag) = Tag::new(counter, state.lives().own(), own) else {
                return self.refuse(state, now, id, COUNTERS_USED_UP, effects);
            };
            assert!(
                tag > found && counter > self.highest_counter,
                "a write's tag is not greater than those before"
            );
            self.highest_counter = counter;
            operation.phase = Phase::Storing(tag);
            if !operation.is_only {
                self.requests.has_changed(operation.request); // Its other keys may fail.
            }
        }
        if let Phase::Storing(tag) = operation.phase {
            for member in state.group().others().iter() {
                write_if_granted(state, operation, member, tag);
            }
        }
        self.set_timer(state, now, id);
        self.advance(state, now, id, effects);
    }

    /// This node's own replica stores last, when it completes a majority that holds the write: until then the write can
    /// be withdrawn. When a majority holds it, the operation is done.
    fn store_if_last(&mut self, state: &mut State, now: Now, id: u64, tag: Tag, effects: &mut Effects) {
        let Some(operation) = self.operations.get_mut(&id) else { return };
        let (own, majority) = (state.group().own(), state.group().majority());
        let holders = operation.holders(tag);
        if holders.len() + 1 == majority
            && !holders.contains(own)
            && let Some(grant) = operation.grant(own)
            && (!operation.is_read() || state.registers.may_take(&operation.key, operation.to_store(tag)))
        {
            let holder = state.own_holder(operation.attempt);
            if state.store(
                now,
                &operation.key,
                (holder, grant),
                (operation.generation, operation.to_store(tag)),
            ) {
                // The write cannot be withdrawn any more, even if it does not count yet.
                operation.write_sent(own);
                own_holds(state, operation, tag);
            } else {
                operation.lost(own, grant);
            }
        }
        if operation.holders(tag).len() >= majority {
            return self.done(state, now, id, tag, effects);
        }
        // With backoff, the lock is requested again from a replica where it was lost. The tag stays the same, so replicas
        // that accepted the write before hold the same write.
        if state.options.retry == Retry::None
            && operation.may_come_to_hold(tag, state.group().all()).len() < majority
        {
            self.give_up(state, now, id, effects);
        }
    }

    /// An operation cannot be completed, or not in time. A write is withdrawn.
    fn give_up(&mut self, state: &mut State, now: Now, id: u64, effects: &mut Effects) {
        let Some(operation) = self.operations.get_mut(&id) else { return };
        let Phase::Storing(tag) = operation.phase else { return };
        if operation.is_read() {
            let why = if operation.met_a_lock() { LOCKED } else { NO_QUORUM };
            return self.refuse(state, now, id, why, effects);
        }
        operation.phase = Phase::Withdrawing(tag);
        self.ask_again(state, now, id);
        self.advance(state, now, id, effects);
    }

    /// Ends a write that is being withdrawn, once its fate is known.
    fn conclude(&mut self, state: &mut State, now: Now, id: u64, tag: Tag, effects: &mut Effects) {
        let Some(operation) = self.operations.get(&id) else { return };
        if operation.holders(tag).len() >= state.group().majority() {
            self.done(state, now, id, tag, effects);
        } else if operation.is_withdrawn() {
            state.counters.withdrawn += 1;
            self.refuse(state, now, id, CALLED_BACK, effects);
        } else if operation.undecided(tag).is_empty() {
            self.unknown(state, now, id, effects);
        }
    }

    // Time.

    /// Handles an operation that is due.
    pub(super) fn due(&mut self, state: &mut State, now: Now, id: u64, effects: &mut Effects) {
        let Some(operation) = self.operations.get(&id) else { return };
        let is_over = operation.deadline_us <= now.monotonic_us;
        match operation.phase {
            Phase::Withdrawing(_) if is_over => self.unknown(state, now, id, effects),
            Phase::Storing(_) if operation.withdraw_us(&state.timing) <= now.monotonic_us => {
                self.give_up(state, now, id, effects);
            }
            _ if is_over => {
                let why = if self.met_locks(id) { LOCKED } else { NO_QUORUM };
                self.refuse(state, now, id, why, effects);
            }
            Phase::BackingOff => self.lock(state, now, id, effects),
            Phase::Withdrawing(tag) => {
                self.ask_again(state, now, id);
                self.conclude(state, now, id, tag, effects); // A replica's new incarnation may have decided it.
            }
            // The others have not answered for a long time, and another holder has a lock: they count as if they had
            // denied it.
            Phase::Locking if !operation.denials().is_empty() => self.attempt_failed(state, now, id, effects),
            Phase::Queued | Phase::Locking | Phase::Storing(_) => {
                self.ask_again(state, now, id);
                self.advance(state, now, id, effects);
            }
        }
    }

    /// Whether locks prevented an operation, or the one that it waited for, from ending.
    fn met_locks(&self, id: u64) -> bool {
        let Some(operation) = self.operations.get(&id) else { return false };
        let first = self.queues.get(&operation.key).and_then(|queue| self.operations.get(queue.front()?));
        let met = |operation: &Operation| operation.met_locks || operation.met_a_lock();
        met(operation) || first.is_some_and(met)
    }

    /// Repeats unanswered requests.
    fn ask_again(&mut self, state: &mut State, now: Now, id: u64) {
        let Some(operation) = self.operations.get_mut(&id) else { return };
        state.counters.retries += 1;
        match operation.phase {
            Phase::Locking => {
                for member in operation.silent().and(state.group().all()).iter() {
                    ask_for_lock(state, now, operation, member);
                }
            }
            Phase::Storing(tag) => {
                let lacking = state.group().all().without(operation.holders(tag));
                for member in lacking.iter() {
                    if operation.grant(member).is_none()
                        && (operation.silent().contains(member) || state.options.retry == Retry::Backoff)
                    {
                        ask_for_lock(state, now, operation, member);
                    }
                    write_if_granted(state, operation, member, tag);
                }
            }
            Phase::Withdrawing(tag) => {
                for member in operation.undecided(tag).and(state.group().others()).iter() {
                    state.ask(member, Ask::Unlock { attempt: operation.attempt, key: &operation.key, tag });
                }
            }
            Phase::Queued | Phase::BackingOff => {}
        }
        self.set_timer(state, now, id);
    }

    /// Makes an operation that waits for answers due again.
    fn set_timer(&mut self, state: &State, now: Now, id: u64) {
        let Some(operation) = self.operations.get(&id) else { return };
        let Timing { retry_ms, withdraw_ms, .. } = state.timing;
        let after_ms = |ms: u64| now.monotonic_us.saturating_add(ms.max(1).saturating_mul(1000));
        let due_us = match operation.phase {
            Phase::Storing(_) => after_ms(retry_ms).min(operation.withdraw_us(&state.timing)),
            Phase::Withdrawing(_) => after_ms(retry_ms.min(withdraw_ms / 4)),
            Phase::Queued | Phase::Locking | Phase::BackingOff => after_ms(retry_ms),
        };
        self.set_due(id, due_us);
    }
}

/// Requests the lock from a replica. This node's own answers at once.
fn ask_for_lock(state: &mut State, now: Now, operation: &mut Operation, member: usize) {
    let attempt = operation.attempt;
    if member != state.group().own() {
        operation.ask_again(member);
        let held = Tag::of_version(state.table().register(&operation.key).version);
        let newer_than = operation.is_read().then_some(held);
        return state.ask(member, Ask::Lock { attempt, key: &operation.key, newer_than });
    }
    let holder = state.own_holder(attempt);
    match state.lock(now, &operation.key, holder) {
        Some(grant) => {
            let held = state.table().register(&operation.key);
            let (tag, deadline) = (Tag::of_version(held.version), held.deadline);
            operation.granted(member, grant, (tag, deadline), None);
            own_holds(state, operation, tag);
        }
        None => operation.denied(member),
    }
}

/// Notes that this replica holds a tag of an operation's key, or something newer. That counts once it survives a crash.
fn own_holds(state: &mut State, operation: &mut Operation, tag: Tag) {
    match state.registers.held_after(&operation.key) {
        0 => operation.holds(state.group().own(), tag),
        record => drop(state.undurable.insert((record, operation.attempt, tag))),
    }
}

/// Sends what must be stored to another replica that granted the lock and lacks the value.
pub(super) fn write_if_granted(state: &mut State, operation: &mut Operation, member: usize, tag: Tag) {
    let Some(grant) = operation.grant(member) else { return };
    if member == state.group().own() || operation.holders(tag).contains(member) {
        return;
    }
    operation.write_sent(member);
    let (attempt, key, generation) = (operation.attempt, &*operation.key, operation.generation);
    state.ask(member, Ask::Write { attempt, grant, key, generation, register: operation.to_store(tag) });
}
