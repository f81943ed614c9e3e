//! Leases of locks and sessions, as the leader measures them.
//!
//! The leader measures on its own monotonic clock, from when it applied the grant or the renewal, or from when it began to
//! lead if that is later: whoever led before it measured from an earlier moment, so a failover can make a lease longer and
//! never shorter. It adds a margin, in the proportion of [`Timing::lease_margin_ms`](super::Timing) to its lease: the holder
//! measures, too, and its clock may be the slower one. When a lease is over the leader orders a record that says so, which
//! names the very lease; one that was renewed in a record before does not end by it.
//!
//! A node that is gone answers none of its clients. The leader orders that they wait no longer, so that nobody behind them
//! waits for leases that nobody will use. What was granted to them already they keep: they may know it.

use super::options::{Settings, Timing};
use super::proposals::Proposals;
use crate::contract::{Effects, NodeId, Notice, Now};
use kv::locks::{Lease, LockEvent, Locks, Subject, Word};
use kv::{Command, LockCommand, ReplyBuffer, Version, WaiterId};
use omnipaxos::ballot_leader_election::Ballot;
use std::collections::{BTreeMap, BTreeSet};

/// A node whose link is down for so long is gone, as far as its waiting clients are concerned. A link that breaks for a
/// moment costs nobody the place in the queue.
const GONE_MS: u64 = 1000;

/// Most leases that are ended in one turn.
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
    /// The next one to end first. What has been ordered to end is not in it any more.
    due: BTreeSet<(u64, Subject)>,
    /// When that ballot began here.
    ballot_since_us: u64,
    /// Nodes whose link is up, and since when others' is down.
    linked: BTreeSet<NodeId>,
    unlinked: BTreeMap<NodeId, u64>,
    /// The last batch that says that a node is gone: no other before it has an end.
    forsake_batch: u64,
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

    /// A lease that is over, if there is one.
    fn take_due(&mut self, now_us: u64) -> Option<(&Subject, Lease)> {
        self.due.first().filter(|(due_us, _)| *due_us <= now_us)?;
        let (_, subject) = self.due.pop_first()?;
        // It is known as long as the record that ends it is not applied: somebody may ask how much is left.
        self.by_subject.get_key_value(&subject).map(|(subject, measured)| (subject, measured.lease))
    }

    /// Every lease that is to end is one that is measured, and ends when that says. O(leases).
    pub(super) fn check(&self) {
        let is_measured = |(due_us, subject): &(u64, Subject)| {
            self.by_subject.get(subject).is_some_and(|measured| measured.due_us == *due_us)
        };
        assert!(self.due.iter().all(is_measured), "a lease ends that nobody has: {:?}", self.due);
    }

    /// When the next lease ends.
    pub(super) fn next_due_us(&self) -> Option<u64> {
        self.due.first().map(|(due_us, _)| *due_us)
    }

    /// A link came up or went down.
    pub(super) fn link(&mut self, now: Now, peer: NodeId, up: bool) {
        if up {
            self.linked.insert(peer);
            self.unlinked.remove(&peer);
        } else {
            self.linked.remove(&peer);
            self.unlinked.entry(peer).or_insert(now.monotonic_us);
        }
    }

    fn is_gone(&self, now: Now, node: NodeId) -> bool {
        // Of a node that was never linked only this is known: it has not been since this replica leads.
        let since_us = self.unlinked.get(&node).copied().unwrap_or_default().max(self.ballot_since_us);
        !self.linked.contains(&node) && now.ms_since(since_us) >= GONE_MS
    }

    /// Orders the end of the leases that are over, and says which nodes are gone.
    pub(super) fn order(
        &mut self,
        now: Now,
        ballot: Ballot,
        locks: &Locks,
        proposals: &Proposals,
        settings: &Settings,
        mut order: impl FnMut(Command<'_>),
    ) {
        if self.ballot != Some(ballot) {
            // It begins to lead.
            self.ballot = Some(ballot);
            self.ballot_since_us = now.monotonic_us;
            self.forget();
            for (subject, lease) in locks.leases() {
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
        if locks.waiters() == 0 || self.forsake_batch > proposals.settled() {
            return;
        }
        for node in locks.coordinators() {
            if node != settings.id && self.is_gone(now, node) {
                order(Command::Lock(LockCommand::Forsake { node, spared: None }));
                self.forsake_batch = proposals.last() + 1;
            }
        }
    }

    /// Does what follows from the records of an entry that is applied.
    pub(super) fn follow(
        &mut self,
        now_us: u64,
        (leads_in, timing): (Option<Ballot>, &Timing),
        events: Vec<LockEvent>,
        (teller, offset): (Teller, Version),
        effects: &mut Effects,
    ) {
        let measures = leads_in.is_some() && leads_in == self.ballot;
        for event in events {
            match event {
                LockEvent::Leased(subject, lease) if measures => self.begin(now_us, timing, subject, lease),
                LockEvent::Ended(subject) if measures => self.end(&subject),
                LockEvent::Leased(..) | LockEvent::Ended(_) => {}
                LockEvent::Told { waiter, name, word } => teller.tell(waiter, name, word, offset, effects),
            }
        }
    }

    /// How a lock stands, and how much of its lease is left as a leader measures it.
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

/// Tells coordinators what becomes of locks: the leader every one, others that of their own node, which learns it in this
/// way though the leader's message be lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Teller {
    pub(super) node: NodeId,
    pub(super) is_leader: bool,
}

impl Teller {
    pub(super) fn tell(
        self,
        waiter: WaiterId,
        name: Box<[u8]>,
        word: Word,
        offset: Version,
        effects: &mut Effects,
    ) {
        if waiter.node == self.node || self.is_leader {
            effects.notices.push(Notice::Told { waiter, name, word, offset });
        }
    }
}
