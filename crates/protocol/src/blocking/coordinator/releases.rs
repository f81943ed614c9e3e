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
pub(in crate::blocking) struct Release {
    key: Box<[u8]>,
    begun_us: u64,
    sent_us: u64,
    /// False: the replica is expected to say first that it granted the lock.
    is_sent: bool,
    /// The replica has said so, and a release was on its way.
    is_granted: bool,
}

/// Releases that are not answered, for each replica by attempt.
#[derive(Debug, Default)]
pub(in crate::blocking) struct Releases {
    pub(in crate::blocking) open: [BTreeMap<u64, Release>; MEMBERS_MAX],
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

    /// A lock was granted that nobody needs any more. It is released; but first, as long as it lasts, the replica gets
    /// what it lacks: else the replica that is always the last to answer would have to be repaired all the time.
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
            release.is_granted = true; // See what became of that one first.
            return;
        }
        state.write_own(member, (attempt, grant), key, tag);
        self.send(state, now, member, attempt, key);
    }

    /// Frees a lock, and goes on until the replica has answered.
    fn send(&mut self, state: &mut State, now: Now, member: usize, attempt: u64, key: &[u8]) {
        state.ask(member, Ask::Unlock { attempt, key, tag: Tag::NONE });
        self.begin(now, member, attempt, key, true);
    }

    fn begin(&mut self, now: Now, member: usize, attempt: u64, key: &[u8], is_sent: bool) {
        let (begun_us, sent_us) = (now.monotonic_us, now.monotonic_us);
        let release = Release { key: key.into(), begun_us, sent_us, is_sent, is_granted: false };
        self.open[member].insert(attempt, release);
    }

    /// The lock is free; or it was when the release came, overtook the request for it, and freed nothing.
    pub(super) fn answered(&mut self, state: &mut State, now: Now, member: usize, attempt: u64, freed: bool) {
        if let Some(release) = self.open[member].remove(&attempt)
            && release.is_granted
            && !freed
        {
            self.send(state, now, member, attempt, &release.key);
        }
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
        for member in state.group().others().iter() {
            let heard_us = state.registers.heard_us[member];
            // The lease has run out there by now: nobody waits for the release any more.
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

    /// When it wants the next tick: never, while nothing is open.
    pub(super) fn wakeup_us(&self) -> u64 {
        if self.is_empty() { u64::MAX } else { self.next_us }
    }
}
