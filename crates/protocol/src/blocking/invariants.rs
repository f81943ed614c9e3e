//! Invariants of blocking, besides those that all register protocols share ([`crate::registers`]): the conditions on
//! which "Why it is safe" in the parent module rests, as far as a single replica can check them. Each function is named
//! after the statement that it checks.

use super::Blocking;
use super::coordinator::Coordinator;
use super::coordinator::operation::{Operation, Phase};
use super::locks::COUNT_BITS;
use super::state::State;
use crate::contract::Now;
use crate::registers::Tag;
use std::collections::BTreeSet;

impl Blocking {
    /// Checks the state of locks and operations. O(locks and operations).
    pub(super) fn check_all(&self, now: Now, serves: bool) {
        let Blocking { state, coordinator } = self;
        let operations = coordinator.operations.values();
        coordinator.requests.check_invariants(now, operations.clone().map(|operation| operation.request));
        if serves {
            a_grants_number_is_given_once(state, now);
            coordinator.an_attempts_number_is_used_once(state);
            coordinator.every_operation_is_looked_at_again();
            coordinator.operations_of_a_key_stand_in_line();
            coordinator.a_lock_that_is_not_needed_is_released(state);
            what_does_not_count_is_not_durable(state);
            operations.for_each(|operation| its_phase_is_not_over(operation, coordinator, state));
        }
    }
}

/// No replica ever reuses the number of a grant, in any incarnation; one holder has a lock, for no longer than a lease.
fn a_grants_number_is_given_once(state: &State, now: Now) {
    let (own_life, locks) = (u64::from(state.lives().own()), &state.locks);
    assert_eq!(locks.grants >> COUNT_BITS, own_life, "grants bear the number of another incarnation");
    let mut given = BTreeSet::new();
    for (key, lock) in &locks.held {
        assert!(
            given.insert(lock.grant),
            "one grant for two locks, one of {:?}",
            String::from_utf8_lossy(key)
        );
        assert!(
            lock.grant <= locks.grants && lock.grant >> COUNT_BITS == own_life,
            "a grant that was not given"
        );
        assert!(
            lock.expires_us <= now.monotonic_us.saturating_add(locks.lease_us),
            "a lease that is too long"
        );
        let Some(member) = state.group().index_of(lock.holder.node) else {
            panic!("a lock is held by node {}, which is no member", lock.holder.node);
        };
        let (life, known) = (lock.holder.attempt >> COUNT_BITS, u64::from(state.lives().of(member)));
        assert!(life >= known, "a lock is held in incarnation {life}, which is over: {known} has begun");
    }
}

/// What this replica holds counts as soon as it is durable.
fn what_does_not_count_is_not_durable(state: &State) {
    let durable = state.registers.journal.durable_to();
    let next = state.undurable.first();
    assert!(
        next.is_none_or(|(record, ..)| *record > durable),
        "a holder is durable and not counted: {next:?}"
    );
}

impl Coordinator {
    /// Everything that a replica sends belongs to one attempt, a number that is never reused.
    fn an_attempts_number_is_used_once(&self, state: &State) {
        let own_life = u64::from(state.lives().own());
        assert_eq!(
            self.attempts_begun >> COUNT_BITS,
            own_life,
            "attempts bear the number of another incarnation"
        );
        for (attempt, id) in &self.attempts {
            assert!(*attempt <= self.attempts_begun, "an attempt that was not begun");
            let is_its = self.operations.get(id).is_some_and(|operation| operation.attempt == *attempt);
            assert!(is_its, "attempt {attempt} is of no operation");
        }
        for (id, operation) in &self.operations {
            let asks = !matches!(operation.phase, Phase::Queued | Phase::BackingOff);
            assert_eq!(
                asks,
                self.attempts.get(&operation.attempt) == Some(id),
                "an operation that requests locks has an attempt number"
            );
        }
    }

    /// No operation is forgotten.
    fn every_operation_is_looked_at_again(&self) {
        let times: BTreeSet<(u64, u64)> = self.operations.iter().map(|(id, it)| (it.due_us, *id)).collect();
        assert_eq!(times, self.timers, "when operations are looked at");
        let is_late = |operation: &Operation| operation.due_us > operation.deadline_us;
        assert!(!self.operations.values().any(is_late), "a deadline passes unseen");
        let bytes: usize = self.operations.values().map(Operation::bytes).sum();
        assert_eq!(bytes, self.open_bytes, "bytes of keys and values under way");
    }

    /// Of the operations queued on a key only the first one is under way.
    fn operations_of_a_key_stand_in_line(&self) {
        assert!(self.ready.is_empty(), "an operation may begin and does not");
        for (key, queue) in &self.queues {
            assert!(!queue.is_empty(), "a line without operations");
            for (place, id) in queue.iter().enumerate() {
                let operation = self.operations.get(id).expect("an operation in line is under way");
                assert_eq!(operation.key, *key, "an operation stands in another key's line");
                assert!(
                    place == 0 || operation.phase == Phase::Queued,
                    "an operation does not wait for its turn"
                );
            }
        }
    }

    /// Every granted lock is released, this replica's own at once.
    fn a_lock_that_is_not_needed_is_released(&self, state: &State) {
        let own = state.group().own();
        assert!(self.releases.open[own].is_empty(), "a lock of this replica waits to be released");
        let node = state.group().node(own);
        for (_, lock) in state.locks.held.iter().filter(|(_, lock)| lock.holder.node == node) {
            let is_needed = self.attempts.contains_key(&lock.holder.attempt);
            assert!(is_needed, "attempt {} is over, and holds a lock here", lock.holder.attempt);
        }
    }
}

/// An operation takes its next step as soon as what is known allows one. A write has its writer's own tag, and its counter
/// is greater than that of the write before.
fn its_phase_is_not_over(operation: &Operation, coordinator: &Coordinator, state: &State) {
    let majority = state.group().majority();
    match operation.phase {
        Phase::Queued | Phase::BackingOff => {}
        Phase::Locking => {
            assert!(operation.grants().len() < majority, "a majority has granted the lock, and it waits")
        }
        Phase::Storing(tag) | Phase::Withdrawing(tag) => {
            assert!(operation.holders(tag).len() < majority, "a majority holds it, and it goes on");
            if !operation.is_read() {
                let writer = (tag.member(), tag.incarnation());
                assert_eq!(
                    writer,
                    (state.group().own(), state.lives().own()),
                    "a write has another writer's tag"
                );
                assert!(tag.counter() <= coordinator.highest_counter, "a write's counter may be given again");
            }
        }
    }
    let withdraws_a_read = operation.is_read() && matches!(operation.phase, Phase::Withdrawing(_));
    assert!(!withdraws_a_read, "a read is called back");
}

impl Operation {
    /// Every answer is held by a majority.
    pub(super) fn a_majority_holds_it(&self, tag: Tag, state: &State) {
        let is_held = self.holders(tag).len() >= state.group().majority();
        assert!(
            is_held || !state.registers.planted.has_invariants(),
            "an operation ends that no majority holds"
        );
    }
}
