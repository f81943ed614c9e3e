//! Leases of locks and sessions, as the leader measures them.
//!
//! The leader measures on its own monotonic clock, from when it applied the grant or the renewal, or from when it began to
//! lead if that is later. The previous leader measured from an earlier moment, so a failover can make a lease longer and
//! never shorter. The leader adds a margin, in the proportion of [`Timing::lease_margin_ms`](super::Timing) to its own
//! lease: the holder measures, too, and its clock may be the slower one. When a lease has ended the leader orders a command
//! that ends exactly that lease: if an earlier record has renewed it, the command has no effect.

use super::options::{Settings, Timing};
use super::proposals::Proposals;
use crate::contract::{Effects, Now};
use crate::waiters::{Notifier, Reach};
use kv::locks::{Lease, LockEvent, Locks, Subject};
use kv::{Command, LockCommand, ReplyBuffer, Table, Version};
use omnipaxos::ballot_leader_election::Ballot;
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of leases that are ended in one turn.
const EXPIRIES_MAX: usize = 1000;

#[derive(Debug)]
struct Measured {
    lease: Lease,
    began_us: u64,
    due_us: u64,
}

/// The leases that this replica measures in one ballot.
#[derive(Debug, Default)]
pub(super) struct LockLeases {
    ballot: Option<Ballot>,
    by_subject: BTreeMap<Subject, Measured>,
    /// By the time when they end. A lease whose end has been ordered is no longer in it.
    due: BTreeSet<(u64, Subject)>,
    /// Which nodes are lost.
    pub(super) reach: Reach,
    /// The last batch that drops waiters of a lost node: no other does before it is settled.
    drop_batch: u64,
}

impl LockLeases {
    fn begin(&mut self, now_us: u64, timing: &Timing, subject: Subject, lease: Lease) {
        self.end(&subject);
        let lease_us = lease.ms.saturating_mul(1000);
        let margin_us = lease_us / timing.lease_ms.max(1) * timing.lease_margin_ms;
        let due_us = now_us.saturating_add(lease_us).saturating_add(margin_us);
        self.due.insert((due_us, subject.clone()));
        self.by_subject.insert(subject, Measured { lease, began_us: now_us, due_us });
    }

    fn end(&mut self, subject: &Subject) {
        if let Some((subject, measured)) = self.by_subject.remove_entry(subject) {
            self.due.remove(&(measured.due_us, subject));
        }
    }

    fn forget(&mut self) {
        self.by_subject.clear();
        self.due.clear();
    }

    /// Takes a lease that has ended, if there is one.
    fn take_due(&mut self, now_us: u64) -> Option<(&Subject, Lease)> {
        self.due.first().filter(|(due_us, _)| *due_us <= now_us)?;
        let (_, subject) = self.due.pop_first()?;
        // It stays known until the record that ends it is applied: a client may ask how much of it is left.
        self.by_subject.get_key_value(&subject).map(|(subject, measured)| (subject, measured.lease))
    }

    /// Every lease in `due` is measured, with the same end. O(leases).
    pub(super) fn check(&self) {
        let is_measured = |(due_us, subject): &(u64, Subject)| {
            self.by_subject.get(subject).is_some_and(|measured| measured.due_us == *due_us)
        };
        assert!(self.due.iter().all(is_measured), "a lease is due that is not measured: {:?}", self.due);
    }

    /// When the next lease ends.
    pub(super) fn next_due_us(&self) -> Option<u64> {
        self.due.first().map(|(due_us, _)| *due_us)
    }

    /// Orders the ends of the leases that have ended, and the removal of lost nodes' waiters.
    pub(super) fn order(
        &mut self,
        now: Now,
        ballot: Ballot,
        table: &Table,
        proposals: &Proposals,
        settings: &Settings,
        mut order: impl FnMut(Command<'_>),
    ) {
        if self.ballot != Some(ballot) {
            // This replica begins to lead.
            self.ballot = Some(ballot);
            self.reach.begin(now);
            self.forget();
            for (subject, lease) in table.locks().leases() {
                self.begin(now.monotonic_us, &settings.timing, subject, lease);
            }
        }
        for _ in 0..EXPIRIES_MAX {
            let Some((subject, lease)) = self.take_due(now.monotonic_us) else { break };
            let Lease { token, number, .. } = lease;
            let command = match subject {
                Subject::Lock(name) => LockCommand::Expire { name, token, number },
                Subject::Session(session) => LockCommand::ExpireSession { session: *session, number },
            };
            order(Command::Lock(command));
        }
        if self.drop_batch > proposals.settled() {
            return;
        }
        let mut dropped = self.reach.to_drop(now, settings.id, table).peekable();
        if dropped.peek().is_some() {
            self.drop_batch = proposals.last() + 1;
        }
        dropped.for_each(order);
    }

    /// Handles the lock events of an entry that was applied.
    pub(super) fn follow(
        &mut self,
        now_us: u64,
        (leads_in, timing): (Option<Ballot>, &Timing),
        events: Vec<LockEvent>,
        (notifier, offset): (Notifier, Version),
        effects: &mut Effects,
    ) {
        let measures = leads_in.is_some() && leads_in == self.ballot;
        for event in events {
            match event {
                LockEvent::Leased(subject, lease) if measures => self.begin(now_us, timing, subject, lease),
                LockEvent::Ended(subject) if measures => self.end(&subject),
                LockEvent::Leased(..) | LockEvent::Ended(_) => {}
                LockEvent::Notified { waiter, name, notification } => {
                    notifier.notify(waiter, name, notification, offset, effects)
                }
            }
        }
    }

    /// Describes a lock, and how much of its lease is left as a leader measures it.
    pub(super) fn describe(
        &self,
        now: Now,
        name: &[u8],
        locks: &Locks,
        is_leader: bool,
        replies: &mut ReplyBuffer,
    ) {
        let subject = locks.standing(name).map(|standing| match standing.hold {
            kv::Hold::Lease(_) => Subject::Lock(name.into()),
            kv::Hold::Session(session) => Subject::Session(session),
        });
        let measured = subject.and_then(|subject| self.by_subject.get(&subject));
        let left_ms = measured.filter(|_| is_leader).map(|it| {
            let end_us = it.began_us.saturating_add(it.lease.ms.saturating_mul(1000));
            end_us.saturating_sub(now.monotonic_us) / 1000
        });
        locks.describe(name, left_ms, replies);
    }
}

#[cfg(test)]
mod tests {
    use super::super::kit::settings;
    use super::*;

    fn now(ms: u64) -> Now {
        Now { monotonic_us: ms * 1000, unix_ms: 0 }
    }

    fn lock() -> Subject {
        Subject::Lock((*b"lock").into())
    }

    fn follow(leases: &mut LockLeases, ms: u64, event: LockEvent) {
        let (settings, notifier) = (settings(1), Notifier { node: 1, is_leader: true });
        let measured = (leases.ballot, &settings.timing);
        leases.follow(ms * 1000, measured, vec![event], (notifier, 1), &mut Effects::default());
    }

    /// The commands that are ordered.
    fn order(leases: &mut LockLeases, ms: u64, ballot: Ballot) -> Vec<String> {
        let (mut ordered, proposals) = (Vec::new(), Proposals::default());
        let order = |command: Command<'_>| ordered.push(format!("{command:?}"));
        leases.order(now(ms), ballot, &Table::new(1), &proposals, &settings(1), order);
        leases.check();
        ordered
    }

    #[test]
    fn a_lease_ends_once_a_margin_after_its_renewal() {
        let (mut leases, ballot) = (LockLeases::default(), Ballot::with(1, 1, 0, 1));
        order(&mut leases, 0, ballot);
        follow(&mut leases, 100, LockEvent::Leased(lock(), Lease { token: 5, number: 0, ms: 3000 }));
        follow(&mut leases, 200, LockEvent::Leased(lock(), Lease { token: 5, number: 1, ms: 3000 }));
        assert!(order(&mut leases, 3499, ballot).is_empty(), "a tenth longer than its holder measures");
        let ordered = order(&mut leases, 3500, ballot);
        assert_eq!(ordered.len(), 1);
        assert!(ordered[0].contains("number: 1"), "{ordered:?}");
        assert!(order(&mut leases, 9000, ballot).is_empty());
    }

    #[test]
    fn a_released_lease_does_not_end_and_another_leadership_measures_again() {
        let (mut leases, ballot) = (LockLeases::default(), Ballot::with(1, 1, 0, 1));
        order(&mut leases, 0, ballot);
        let lease = Lease { token: 5, number: 0, ms: 1000 };
        follow(&mut leases, 0, LockEvent::Leased(lock(), lease));
        follow(&mut leases, 1, LockEvent::Ended(lock()));
        assert_eq!(leases.next_due_us(), None);
        follow(&mut leases, 2, LockEvent::Leased(lock(), lease));
        assert!(order(&mut leases, 9000, Ballot::with(1, 2, 0, 1)).is_empty());
        assert_eq!(leases.next_due_us(), None, "the table has no lock");
    }
}
