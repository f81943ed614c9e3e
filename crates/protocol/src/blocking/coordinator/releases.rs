//! Locks that are not needed any more and whose replicas have not said yet that they are free.
//!
//! An operation's outcome does not wait for its locks to be freed, and a release that is lost would block the key for
//! a whole lease. So each one is kept until it is answered, and sent again to a replica that has been heard since: one
//! that is silent gets nothing, however many locks it holds.

use super::operation::Operation;
use crate::blocking::item::Ask;
use crate::blocking::state::State;
use crate::contract::Now;
use crate::planted::Fault;
use crate::registers::{MEMBERS_MAX, MemberSet, Tag};
use std::collections::BTreeMap;

#[derive(Debug)]
struct Release {
    key: Box<[u8]>,
    begun_us: u64,
    sent_us: u64,
}

/// Releases that are not answered, for each replica by attempt.
#[derive(Debug, Default)]
pub(super) struct Releases {
    open: [BTreeMap<u64, Release>; MEMBERS_MAX],
    heard_us: [u64; MEMBERS_MAX],
    next_us: u64,
}

/// What becomes of a lock that is still to be granted when its operation is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Late {
    /// It is released at once.
    Unlock,
    /// The replica brings its copy up to date under it first: see [`Releases::surplus`].
    Fill,
}

impl Releases {
    /// An attempt is over: frees what it was granted, and sees to what it may yet be granted.
    pub(super) fn release(&mut self, state: &mut State, now: Now, operation: &Operation, late: Late) {
        let Operation { attempt, key, .. } = operation;
        for member in state.group().all().iter() {
            let is_granted = operation.grant(member).is_some();
            if member == state.group().own() {
                let holder = state.own_holder(*attempt);
                state.unlock(key, holder);
            } else if is_granted {
                self.send(state, now, member, *attempt, key);
            } else if operation.silent().contains(member) && !state.has(Fault::SurplusLockKept) {
                match late {
                    Late::Fill if state.links().contains(member) => self.expect(now, member, *attempt, key),
                    _ => state.ask(member, Ask::Unlock { attempt: *attempt, key, tag: Tag::NONE }),
                }
            }
        }
    }

    /// A lock was granted that nobody needs any more. It is released; but first, as long as it lasts, the replica gets
    /// what it lacks: else the replicas that are always the last to answer would have to be repaired all the time.
    pub(super) fn surplus(
        &mut self,
        state: &mut State,
        now: Now,
        member: usize,
        (attempt, grant): (u64, u64),
        (key, tag): (&[u8], Tag),
    ) {
        if state.has(Fault::SurplusLockKept) {
            return;
        }
        state.counters.surplus_released += 1;
        state.write_own(member, (attempt, grant), key, tag);
        self.send(state, now, member, attempt, key);
    }

    /// Frees a lock, and goes on until the replica has answered.
    fn send(&mut self, state: &mut State, now: Now, member: usize, attempt: u64, key: &[u8]) {
        state.ask(member, Ask::Unlock { attempt, key, tag: Tag::NONE });
        self.expect(now, member, attempt, key);
    }

    /// The replica will say that it granted the lock, and then it is freed. If it does not say so, it is told all the
    /// same.
    fn expect(&mut self, now: Now, member: usize, attempt: u64, key: &[u8]) {
        let (begun_us, sent_us) = (now.monotonic_us, now.monotonic_us);
        self.open[member].insert(attempt, Release { key: key.into(), begun_us, sent_us });
    }

    /// The lock is free.
    pub(super) fn answered(&mut self, member: usize, attempt: u64) {
        self.open[member].remove(&attempt);
    }

    /// A message of this replica has arrived.
    pub(super) fn heard(&mut self, now: Now, member: usize) {
        self.heard_us[member] = now.monotonic_us;
    }

    /// These replicas began new lives and have forgotten their locks.
    pub(super) fn renew(&mut self, members: MemberSet) {
        members.iter().for_each(|member| self.open[member].clear());
    }

    pub(super) fn tick(&mut self, state: &mut State, now: Now) {
        if now.monotonic_us < self.next_us {
            return;
        }
        self.next_us = now.monotonic_us.saturating_add(state.timing.retry_ms * 1000);
        for member in 0..MEMBERS_MAX {
            let heard_us = self.heard_us[member];
            // The lease has run out there by now: nobody waits for the release any more.
            self.open[member].retain(|_, release| now.ms_since(release.begun_us) < state.timing.lease_ms);
            for (attempt, release) in &mut self.open[member] {
                if now.ms_since(release.sent_us) >= state.timing.retry_ms && heard_us > release.sent_us {
                    release.sent_us = now.monotonic_us;
                    state.counters.retries += 1;
                    state.ask(member, Ask::Unlock { attempt: *attempt, key: &release.key, tag: Tag::NONE });
                }
            }
        }
    }

    /// When it wants the next tick: never, while nothing is open.
    pub(super) fn wakeup_us(&self) -> u64 {
        if self.open.iter().all(BTreeMap::is_empty) { u64::MAX } else { self.next_us }
    }
}
