//! Locks: which are held and by which owner, which requests wait, and which fencing tokens were given.
//!
//! A lock is a lease with a fencing token. This is the state machine of one group's locks: a pure function of the
//! records applied to it, so that all replicas agree on the holders. It knows no clock. A record ends a lease
//! ([`LockCommand::Expire`]), and the leader measures when it is due: on its own monotonic clock, from when the grant
//! took effect, or from when it began to lead if that is later. So a failover can make a lease longer but never
//! shorter, and no wall clock matters.
//!
//! * **A grant is a part of the record that frees the lock.** Waiting requests are in a queue that all replicas know;
//!   when the lock is released, or its lease ends, the first in the queue gets it in that same step. A hand-off is one
//!   record.
//! * **A token is the version of the record that granted the lock.** Versions only grow, in every incarnation and under
//!   every leader, so tokens do too.
//! * **A repeated request does no harm.** An owner that holds the lock gets the same token again; one that waits keeps
//!   its place. So a client that does not know the outcome of a request repeats it.
//! * **A grant can be given back only while its owner cannot know of it.** The coordinator of a request that has waited
//!   withdraws it, within the same incarnation. Anything the owner does after the grant (it repeats the request, it
//!   renews) shows that it knows of the grant, and ends that right.
//! * **Free locks are forgotten**, except for the highest token of any lock in the same part of all names: so a stale
//!   token is refused ([`Locks::allows`]) even when nothing is left of its lock, and memory does not grow with the
//!   names ever used. A token whose lock is free may be refused although it is the newest: it guards nothing any more.
//!
//! [`LockEvent`]s report what else follows from a record beside its reply: which requests were granted a lock, and
//! which leases began. Reading order: this file, `queue`, `copies`.

mod copies;
mod queue;
mod session;
#[cfg(test)]
mod tests;

use crate::Version;
use crate::command::{Hold, LockCommand, WaiterId};
use crate::planted::{Fault, Planted};
use crate::reply::{Reply, ReplyBuffer};
use queue::{Queue, Waiter};
use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};
use session::Session;
pub use session::SessionId;
use std::collections::{BTreeMap, BTreeSet};

/// Longest name of a lock, in bytes.
pub const LOCK_NAME_BYTES_MAX: usize = 1024;

/// Longest name of an owner, in bytes.
pub const OWNER_BYTES_MAX: usize = 256;

/// Longest lease, and longest wait, in milliseconds: one day.
pub const LEASE_MS_MAX: u64 = 24 * 60 * 60 * 1000;

/// Most requests that may wait for one lock.
pub const WAITERS_MAX: usize = 10_000;

/// Most requests that may wait for all locks of a group.
pub const WAITING_MAX: usize = 100_000;

/// Most locks that may be held in a group.
pub const LOCKS_MAX: usize = 1_000_000;

/// Most sessions of a group.
pub const SESSIONS_MAX: usize = 100_000;

/// The reply to a request that waits.
pub const QUEUED: &[u8] = b"QUEUED";

/// Number of parts of all names. It must not change: replicas would differ.
const BUCKETS: usize = 1024;

/// A lock that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lock {
    owner: Box<[u8]>,
    token: Version,
    hold: Hold,
    /// Counts how often the lease was given or renewed, so that a measurement of an older lease does not end a newer
    /// one.
    number: u64,
    /// The request that was granted the lock, as long as its client may not know of the grant.
    waiter: Option<WaiterId>,
    queue: Queue,
}

/// The object that a lease is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The lock of this name.
    Lock(Box<[u8]>),
    /// The session of this number.
    Session(Version),
}

/// A lease, for the leader to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The token of the grant, or the number of the session.
    pub token: Version,
    /// Which lease of this grant or session: each renewal increments it.
    pub number: u64,
    /// Its duration in milliseconds.
    pub ms: u64,
}

/// A notification for a waiting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockNotification {
    /// It holds the lock now, with this token.
    Granted(Version),
    /// The session under which it was waiting has ended.
    SessionOver,
    /// Its owner has repeated the request elsewhere, and now waits there.
    Superseded,
    /// The request was given up, because its coordinator seemed to be lost.
    Dropped,
    /// It waited for elements, and was served: its coordinator must ask again to get them.
    Served,
}

/// The effects of a record beside its reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockEvent {
    /// A lease begins now, and replaces the subject's previous one.
    Leased(Subject, Lease),
    /// The subject no longer has a lease.
    Ended(Subject),
    /// A notification for a request that waits for the lock of this name, or for elements: then the name is empty.
    Notified {
        /// The request.
        waiter: WaiterId,
        /// The lock's name.
        name: Box<[u8]>,
        /// The notification.
        notification: LockNotification,
    },
}

/// A replica's counters since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockStatistics {
    /// Locks that were granted.
    pub grants: u64,
    /// Leases of locks and sessions that ran out.
    pub expiries: u64,
}

/// The state of a held lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing<'l> {
    /// The owner that holds it.
    pub owner: &'l [u8],
    /// The token of the grant.
    pub token: Version,
    /// For how long it is held.
    pub hold: Hold,
    /// The current lease: the lock's, or its session's. `None` if that has ended, which only a fault can cause.
    pub lease: Option<Lease>,
    /// How many requests wait.
    pub waiters: usize,
}

/// The locks of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locks {
    held: BTreeMap<Box<[u8]>, Lock>,
    sessions: BTreeMap<Version, Session>,
    /// For each part of all names, the highest token of a forgotten lock. Empty until a lock is forgotten.
    forgotten: Vec<Version>,
    // The rest are indexes, which can be rebuilt from the above.
    /// The lock that each request waits for.
    waiting: BTreeMap<WaiterId, Box<[u8]>>,
    /// The locks held, and the requests waiting, under each session.
    under: BTreeSet<(Version, Box<[u8]>, Option<WaiterId>)>,
    statistics: LockStatistics,
    planted: Planted,
}

/// The result of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Integer(Version),
    Null,
    Queued,
    Session(SessionId),
    Error(&'static str),
}

const NO_SESSION: Answer =
    Answer::Error("NOSESSION there is no such session: it was closed, or its lease is over");
const UNDER_SESSION: Answer =
    Answer::Error("ERR the lock is held under a session, which is what has to be renewed");
const TOO_MANY_WAIT: Answer =
    Answer::Error("TRYAGAIN OVERLOADED too many wait for locks already; nothing was done");
const TOO_MANY_HELD: Answer =
    Answer::Error("TRYAGAIN OVERLOADED too many locks or sessions in this group; nothing was done");

fn bucket_of(name: &[u8]) -> usize {
    const SECRETS: RapidSecrets = RapidSecrets::seed(0x6c6f_636b);
    (rapidhash_v3_seeded(name, &SECRETS) % BUCKETS as u64) as usize
}

fn flag(is_true: bool) -> Answer {
    Answer::Integer(is_true.into())
}

impl Answer {
    pub(crate) fn write(self, out: &mut ReplyBuffer) {
        match self {
            Answer::Integer(value) => out.integer(value as i64),
            Answer::Null => out.null(),
            Answer::Queued => out.push(Reply::Status(QUEUED)),
            Answer::Session(id) => out.bulk(id.to_string().as_bytes()),
            Answer::Error(text) => out.error(text),
        }
    }
}

impl Locks {
    /// Plants a fault, in tests.
    pub fn plant(&mut self, planted: Planted) {
        self.planted = planted;
    }

    /// Carries out a record of this version, and appends the events that result from it.
    pub(crate) fn apply(
        &mut self,
        command: &LockCommand<'_>,
        version: Version,
        events: &mut Vec<LockEvent>,
    ) -> Answer {
        use LockCommand::*;
        match *command {
            Acquire { name, owner, hold, waiter } => self.acquire(name, owner, hold, waiter, version, events),
            Renew { name, token, lease_ms } => self.renew(name, token, lease_ms, events),
            Release { name, token } => match self.is_held_with(name, token) {
                true => self.pass_on(name, version, events),
                false => flag(false),
            },
            Withdraw { name, waiter } => self.withdraw(name, waiter, version, events),
            DropWaiters { node, spared } => self.drop_waiters(node, spared.0, events),
            Expire { name, token, number } => {
                let is_this = |lock: &&Lock| {
                    (lock.token, lock.number) == (token, number) && matches!(lock.hold, Hold::Lease(_))
                };
                if self.held.get(name).filter(is_this).is_none() {
                    return flag(false);
                }
                self.statistics.expiries += 1;
                self.pass_on(name, version, events)
            }
            OpenSession { group, lease_ms, .. } => self.open_session(group, lease_ms, version, events),
            RenewSession { session, .. } => flag(self.renew_session(session, events)),
            CloseSession { session, .. } => flag(self.end_session(session, None, version, events)),
            ExpireSession { session, number } => {
                flag(self.end_session(session, Some(number), version, events))
            }
            Check { name, waiter } => self.check(name, waiter),
            Describe { .. } => Answer::Error("ERR a description is no record"),
        }
    }

    fn acquire(
        &mut self,
        name: &[u8],
        owner: &[u8],
        hold: Hold,
        waiter: Option<WaiterId>,
        version: Version,
        events: &mut Vec<LockEvent>,
    ) -> Answer {
        if let Hold::Session(session) = hold
            && !self.sessions.contains_key(&session)
        {
            return NO_SESSION;
        }
        if let Some(id) = waiter {
            // A node that asks in a new incarnation has forgotten its earlier requests.
            self.drop_waiters(id.node, Some(id.life), events);
            if self.waiting.get(&id).is_some_and(|other| **other != *name) {
                self.leave_queue(id);
            }
        }
        let token = self.token_of(version);
        let too_many_held = self.held.len() >= LOCKS_MAX;
        let too_many_wait = self.waiting.len() >= WAITING_MAX;
        let Some(lock) = self.held.get_mut(name) else {
            if too_many_held {
                return TOO_MANY_HELD;
            }
            let (owner, queue) = (owner.into(), Queue::default());
            self.held.insert(name.into(), Lock { owner, token, hold, number: 0, waiter, queue });
            self.statistics.grants += 1;
            self.begin_hold(name, hold, events);
            return Answer::Integer(token);
        };
        if *lock.owner == *owner {
            let before = std::mem::replace(&mut lock.hold, hold);
            lock.number += 1;
            // The owner may know the token by now, through either request, so no other request can give the grant back.
            if lock.waiter != waiter {
                lock.waiter = None;
            }
            let token = lock.token;
            self.end_hold(name, before, events);
            self.begin_hold(name, hold, events);
            return Answer::Integer(token);
        }
        let Some(id) = waiter else { return Answer::Null };
        if !lock.queue.has_owner(owner) && (too_many_wait || lock.queue.len() >= WAITERS_MAX) {
            return TOO_MANY_WAIT;
        }
        if let Some(before) = lock.queue.push(Waiter { id, owner: owner.into(), hold }) {
            self.leave_indexes(name, &before);
            if before.id != id {
                let notification = LockNotification::Superseded;
                events.push(LockEvent::Notified { waiter: before.id, name: name.into(), notification });
            }
        }
        self.waiting.insert(id, name.into());
        if let Hold::Session(session) = hold {
            self.under.insert((session, name.into(), Some(id)));
        }
        Answer::Queued
    }

    /// The token of a grant by a record of this version.
    fn token_of(&self, version: Version) -> Version {
        match self.planted.has(Fault::LockTokenReused) {
            true => self.held.values().map(|lock| lock.token).max().unwrap_or(0) + 1,
            false => version,
        }
    }

    fn is_held_with(&self, name: &[u8], token: Version) -> bool {
        let owns = |lock: &Lock| lock.token == token || self.planted.has(Fault::LockFreedByNonOwner);
        self.held.get(name).is_some_and(owns)
    }

    fn renew(&mut self, name: &[u8], token: Version, lease_ms: u64, events: &mut Vec<LockEvent>) -> Answer {
        if !self.is_held_with(name, token) {
            return flag(false);
        }
        let Some(lock) = self.held.get_mut(name) else { return flag(false) };
        if matches!(lock.hold, Hold::Session(_)) {
            return UNDER_SESSION;
        }
        lock.hold = Hold::Lease(lease_ms);
        lock.number += 1;
        // The owner knows the token, so it does not need to be notified.
        lock.waiter = None;
        self.begin_hold(name, Hold::Lease(lease_ms), events);
        flag(true)
    }

    /// Withdraws a waiting request: its client has left, or its time has run out. If an earlier record has granted the lock
    /// to the request and its client may not know, the lock is passed on.
    fn withdraw(
        &mut self,
        name: &[u8],
        id: WaiterId,
        version: Version,
        events: &mut Vec<LockEvent>,
    ) -> Answer {
        if self.waiting.get(&id).is_some_and(|waits_for| **waits_for == *name) {
            self.leave_queue(id);
            return flag(true);
        }
        match self.held.get(name).is_some_and(|lock| lock.waiter == Some(id)) {
            true => self.pass_on(name, version, events),
            false => flag(false),
        }
    }

    /// Gives up all waiting requests of a node, except those of the `spared` incarnation.
    fn drop_waiters(&mut self, node: u16, spared: Option<u64>, events: &mut Vec<LockEvent>) -> Answer {
        let dropped: Vec<WaiterId> = self.waiters_of(node, spared).collect();
        for waiter in &dropped {
            if let Some(name) = self.leave_queue(*waiter) {
                events.push(LockEvent::Notified {
                    waiter: *waiter,
                    name,
                    notification: LockNotification::Dropped,
                });
            }
        }
        Answer::Integer(dropped.len() as u64)
    }

    /// The waiting requests of a node's clients, except those of the `spared` incarnation.
    fn waiters_of(&self, node: u16, spared: Option<u64>) -> impl Iterator<Item = WaiterId> {
        let parts = WaiterId::of_node(node, spared).into_iter().flat_map(|range| self.waiting.range(range));
        parts.map(|(id, _)| *id)
    }

    /// Whether requests are waiting that a node made in an incarnation other than `life`.
    pub fn has_waiters_of_other_lives(&self, node: u16, life: u64) -> bool {
        self.waiters_of(node, Some(life)).next().is_some()
    }

    /// The state of a request that may be waiting.
    pub(crate) fn check(&self, name: &[u8], id: WaiterId) -> Answer {
        match self.held.get(name) {
            Some(lock) if lock.waiter == Some(id) => Answer::Integer(lock.token),
            Some(_) if self.waiting.get(&id).is_some_and(|waits_for| **waits_for == *name) => Answer::Queued,
            _ => Answer::Null,
        }
    }

    /// Passes the lock to the request that has waited longest. The token is this record's version: no other grant of
    /// the lock has it.
    fn pass_on(&mut self, name: &[u8], version: Version, events: &mut Vec<LockEvent>) -> Answer {
        let token = self.token_of(version);
        let Some(lock) = self.held.get_mut(name) else { return flag(false) };
        let before = lock.hold;
        let next = lock.queue.pop();
        if let Some(Waiter { id, owner, hold }) = &next {
            (lock.owner, lock.token, lock.hold, lock.number) = (owner.clone(), token, *hold, 0);
            lock.waiter = Some(*id);
        }
        self.end_hold(name, before, events);
        match next {
            Some(waiter) => {
                self.leave_indexes(name, &waiter);
                self.statistics.grants += 1;
                self.begin_hold(name, waiter.hold, events);
                let notification = LockNotification::Granted(token);
                events.push(LockEvent::Notified { waiter: waiter.id, name: name.into(), notification });
            }
            None => {
                if let Some(lock) = self.held.remove(name) {
                    self.forget(bucket_of(name), lock.token);
                }
            }
        }
        flag(true)
    }

    fn forget(&mut self, bucket: usize, token: Version) {
        self.forgotten.resize(BUCKETS, 0);
        self.forgotten[bucket] = token.max(self.forgotten[bucket]);
    }

    fn begin_hold(&mut self, name: &[u8], hold: Hold, events: &mut Vec<LockEvent>) {
        match hold {
            Hold::Session(session) => drop(self.under.insert((session, name.into(), None))),
            Hold::Lease(ms) => {
                if let Some(Lock { token, number, .. }) = self.held.get(name) {
                    let lease = Lease { token: *token, number: *number, ms };
                    events.push(LockEvent::Leased(Subject::Lock(name.into()), lease));
                }
            }
        }
    }

    fn end_hold(&mut self, name: &[u8], hold: Hold, events: &mut Vec<LockEvent>) {
        match hold {
            Hold::Session(session) => drop(self.under.remove(&(session, name.into(), None))),
            Hold::Lease(_) => events.push(LockEvent::Ended(Subject::Lock(name.into()))),
        }
    }

    /// Takes a request out of its queue, and returns the lock for which it waited.
    fn leave_queue(&mut self, id: WaiterId) -> Option<Box<[u8]>> {
        let name = self.waiting.get(&id)?.clone();
        let waiter = self.held.get_mut(&name)?.queue.remove(id)?;
        self.leave_indexes(&name, &waiter);
        Some(name)
    }

    fn leave_indexes(&mut self, name: &[u8], waiter: &Waiter) {
        self.waiting.remove(&waiter.id);
        if let Hold::Session(session) = waiter.hold {
            self.under.remove(&(session, name.into(), Some(waiter.id)));
        }
    }

    // Queries.

    /// Whether a write with this token is allowed. It is not if a newer token was granted since, nor if the token does not
    /// belong to this lock.
    pub fn allows(&self, name: &[u8], token: Version) -> bool {
        token > 0 && token == self.newest_token(name)
    }

    /// The newest token of a lock, or that of a lock which was forgotten later; 0 if there is none.
    pub fn newest_token(&self, name: &[u8]) -> Version {
        match self.held.get(name) {
            Some(lock) => lock.token,
            None => self.forgotten.get(bucket_of(name)).copied().unwrap_or(0),
        }
    }

    /// Takes the lock of this name for held with this token. For tables of copies only: they decide so about fenced writes as the
    /// lock's group would.
    ///
    /// # Panics
    /// When the token is 0, or the lock is held.
    pub(crate) fn assume(&mut self, name: &[u8], token: Version) {
        assert!(token > 0, "a token is a version");
        let (owner, hold) = (Box::default(), Hold::Lease(0));
        let lock = Lock { owner, token, hold, number: 0, waiter: None, queue: Queue::default() };
        let before = self.held.insert(name.into(), lock);
        assert!(before.is_none(), "a table of copies learns of each lock once");
    }

    /// The state of a lock; `None` if it is free.
    pub fn standing(&self, name: &[u8]) -> Option<Standing<'_>> {
        let Lock { owner, token, hold, number, queue, .. } = self.held.get(name)?;
        let lease = match *hold {
            Hold::Lease(ms) => Some(Lease { token: *token, number: *number, ms }),
            Hold::Session(session) => self.sessions.get(&session).map(|it| it.lease(session)),
        };
        Some(Standing { owner, token: *token, hold: *hold, lease, waiters: queue.len() })
    }

    /// Writes the state of a lock: a map, or null if it is free. `left_ms` is the time left of its lease, if known.
    pub fn describe(&self, name: &[u8], left_ms: Option<u64>, out: &mut ReplyBuffer) {
        let Some(Standing { owner, token, hold, lease, waiters }) = self.standing(name) else {
            return out.null();
        };
        let session = match hold {
            Hold::Session(number) => self.sessions.get(&number).map(|it| it.id(number)),
            Hold::Lease(_) => None,
        };
        let integer = |value: Option<u64>, out: &mut ReplyBuffer| match value {
            Some(value) => out.integer(value as i64),
            None => out.null(),
        };
        out.map(6);
        out.bulk(b"owner");
        out.bulk(owner);
        out.bulk(b"token");
        out.integer(token as i64);
        out.bulk(b"lease-ms");
        integer(lease.map(|lease| lease.ms), out);
        out.bulk(b"left-ms");
        integer(left_ms, out);
        out.bulk(b"waiters");
        out.integer(waiters as i64);
        out.bulk(b"session");
        match session {
            Some(id) => out.bulk(id.to_string().as_bytes()),
            None => out.null(),
        }
    }

    /// The names of the held locks, in ascending order.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.held.keys().map(|name| &**name)
    }

    /// The owners that wait for a lock, in the order in which they will get it.
    pub fn waiting_owners(&self, name: &[u8]) -> impl Iterator<Item = &[u8]> {
        let queue = self.held.get(name).map(|lock| &lock.queue);
        queue.into_iter().flat_map(|queue| queue.iter().map(|waiter| &*waiter.owner))
    }

    /// All leases, of locks and sessions, which a new leader begins to measure.
    pub fn leases(&self) -> impl Iterator<Item = (Subject, Lease)> {
        let locks = self.held.iter().filter_map(|(name, lock)| match lock.hold {
            Hold::Lease(ms) => {
                let lease = Lease { token: lock.token, number: lock.number, ms };
                Some((Subject::Lock(name.clone()), lease))
            }
            Hold::Session(_) => None,
        });
        let sessions = self.sessions.iter().map(|(id, it)| (Subject::Session(*id), it.lease(*id)));
        locks.chain(sessions)
    }

    /// The nodes with waiting requests, in ascending order.
    pub fn coordinators(&self) -> Vec<u16> {
        WaiterId::nodes(|from| self.waiting.range(from..).next().map(|(id, _)| *id))
    }

    /// The number of locks that are held.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether no lock is held.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The number of requests that wait.
    pub fn waiters(&self) -> usize {
        self.waiting.len()
    }

    /// The number of sessions.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// The counters so far.
    pub fn statistics(&self) -> LockStatistics {
        self.statistics
    }

    /// Estimated memory in bytes, assuming usual lengths of names.
    pub fn memory_bytes(&self) -> usize {
        const LOCK_BYTES: usize = 320;
        const WAITER_BYTES: usize = 480;
        const SESSION_BYTES: usize = 64;
        self.held.len() * LOCK_BYTES
            + self.waiting.len() * WAITER_BYTES
            + self.sessions.len() * SESSION_BYTES
            + self.forgotten.len() * size_of::<Version>()
    }
}
