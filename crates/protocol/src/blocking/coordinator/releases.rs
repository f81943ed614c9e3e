//! Locks that are no longer needed and that their replicas have not yet reported as free.
//!
//! An operation's outcome does not wait for its locks to be freed, and a lost release would block the key for a whole
//! lease. So each release is kept until it is answered. It is repeated only to a replica from which something has arrived
//! since: a silent replica is sent nothing, however many locks it holds.

use super::operation::Operation;
use crate::blocking::item::Ask;
use crate::blocking::state::State;
use crate::contract::Now;
use crate::planted::Fault;
use crate::registers::{MEMBERS_MAX, MemberSet, Tag};
use std::collections::BTreeMap;

#[derive(Debug)]
pub(in crate::blocking) struct Release {
    key: Box<[u8]>,
    begun_us: u64,
    sent_us: u64,
    /// False while the release waits for the replica's report that it granted the lock.
    is_sent: bool,
    /// The replica has reported its grant while a release was on its way.
    is_granted: bool,
}

/// Unanswered releases, for each replica by attempt.
#[derive(Debug, Default)]
pub(in crate::blocking) struct Releases {
    pub(in crate::blocking) open: [BTreeMap<u64, Release>; MEMBERS_MAX],
    next_us: u64,
}

/// What happens to a lock that is granted after its operation is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Late {
    /// It is released at once.
    Unlock,
    /// First the replica's copy is brought up to date under the lock: see [`Releases::surplus`].
    Fill,
}

impl Releases {
    /// An attempt is over: frees its locks, and takes care of locks that it may still be granted.
    pub(super) fn release(&mut self, state: &mut State, now: Now, operation: &Operation, late: Late) {
        let Operation { attempt, key, .. } = operation;
        for member in state.group().all().iter() {
            let is_silent = operation.silent().contains(member);
            if member == state.group().own() {
                let holder = state.own_holder(*attempt);
                state.unlock(key, holder);
            } else if operation.grant(member).is_some() {
                self.send(state, now, member, *attempt, key);
            } else if is_silent && state.links().contains(member) && !state.has(Fault::SurplusLockKept) {
                match late {
                    Late::Unlock => self.send(state, now, member, *attempt, key),
                    Late::Fill => self.begin(now, member, *attempt, key, false),
                }
            }
        }
    }

    /// Releases a lock that was granted when it was no longer needed. But first, while the lock lasts, the replica gets
    /// the value that it lacks. Otherwise a replica that always answers last would constantly need repair.
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
        if let Some(release) = self.open[member].get_mut(&attempt).filter(|release| release.is_sent) {
            release.is_granted = true; // The outcome of the release on its way comes first.
            return;
        }
        state.write_own(member, (attempt, grant), key, tag);
        self.send(state, now, member, attempt, key);
    }

    /// Frees a lock, and repeats that until the replica has answered.
    fn send(&mut self, state: &mut State, now: Now, member: usize, attempt: u64, key: &[u8]) {
        state.ask(member, Ask::Unlock { attempt, key, tag: Tag::NONE });
        self.begin(now, member, attempt, key, true);
    }

    fn begin(&mut self, now: Now, member: usize, attempt: u64, key: &[u8], is_sent: bool) {
        let (begun_us, sent_us) = (now.monotonic_us, now.monotonic_us);
        let release = Release { key: key.into(), begun_us, sent_us, is_sent, is_granted: false };
        self.open[member].insert(attempt, release);
    }

    /// The lock is free. If the release freed nothing because it had overtaken the request for the lock, it is sent
    /// again.
    pub(super) fn answered(&mut self, state: &mut State, now: Now, member: usize, attempt: u64, freed: bool) {
        if let Some(release) = self.open[member].remove(&attempt)
            && release.is_granted
            && !freed
        {
            self.send(state, now, member, attempt, &release.key);
        }
    }

    /// These replicas began new incarnations and have forgotten their locks.
    pub(super) fn renew(&mut self, members: MemberSet) {
        members.iter().for_each(|member| self.open[member].clear());
    }

    pub(super) fn tick(&mut self, state: &mut State, now: Now) {
        if now.monotonic_us < self.next_us {
            return;
        }
        self.next_us = now.monotonic_us.saturating_add(state.timing.retry_ms * 1000);
        for member in state.group().others().iter() {
            let heard_us = state.registers.heard_us[member];
            // The lease has run out at the replica by now, so the release is no longer needed.
            self.open[member].retain(|_, release| now.ms_since(release.begun_us) < state.timing.lease_ms);
            for (attempt, release) in &mut self.open[member] {
                if now.ms_since(release.sent_us) >= state.timing.retry_ms && heard_us > release.sent_us {
                    (release.sent_us, release.is_sent) = (now.monotonic_us, true);
                    state.counters.retries += 1;
                    state.ask(member, Ask::Unlock { attempt: *attempt, key: &release.key, tag: Tag::NONE });
                }
            }
        }
    }

    /// True while nothing is open.
    pub(super) fn is_empty(&self) -> bool {
        self.open.iter().all(BTreeMap::is_empty)
    }

    /// Returns when it needs the next tick: never, while nothing is open.
    pub(super) fn wakeup_us(&self) -> u64 {
        if self.is_empty() { u64::MAX } else { self.next_us }
    }
}
