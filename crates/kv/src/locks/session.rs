//! Sessions: one lease for many locks.
//!
//! A session is a lease, too. Locks can be held, and waited for, under a session instead of under leases of their own.
//! When the session is closed or its lease runs out, all of them end in the same record: each lock goes to its next
//! waiter.

use super::{Answer, Lease, LockEvent, LockNotification, Locks, SESSIONS_MAX, Subject, TOO_MANY_HELD};
use crate::Version;
use crate::command::WaiterId;
use crate::planted::Fault;
use std::fmt;

/// A session's name for clients: `group-number`. Both parts are needed to find the session, as every group has its own
/// numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionId {
    /// The session's group.
    pub group: u16,
    /// The version of the record that opened it.
    pub number: Version,
}

impl fmt::Display for SessionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.group, self.number)
    }
}

impl SessionId {
    /// Parses the output of `Display`; `None` for other text.
    pub fn parse(text: &[u8]) -> Option<SessionId> {
        let (group, number) = std::str::from_utf8(text).ok()?.split_once('-')?;
        Some(SessionId { group: group.parse().ok()?, number: number.parse().ok()? })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Session {
    pub(super) group: u16,
    pub(super) lease_ms: u64,
    /// Counts how often its lease was given or renewed.
    pub(super) number: u64,
}

impl Session {
    pub(super) fn lease(&self, id: Version) -> Lease {
        Lease { token: id, number: self.number, ms: self.lease_ms }
    }

    pub(super) fn id(&self, number: Version) -> SessionId {
        SessionId { group: self.group, number }
    }
}

impl Locks {
    pub(super) fn open_session(
        &mut self,
        group: u16,
        lease_ms: u64,
        version: Version,
        events: &mut Vec<LockEvent>,
    ) -> Answer {
        if self.sessions.len() >= SESSIONS_MAX {
            return TOO_MANY_HELD;
        }
        let session = Session { group, lease_ms, number: 0 };
        events.push(LockEvent::Leased(Subject::Session(version), session.lease(version)));
        self.sessions.insert(version, session);
        Answer::Session(SessionId { group, number: version })
    }

    pub(super) fn renew_session(&mut self, id: Version, events: &mut Vec<LockEvent>) -> bool {
        let Some(session) = self.sessions.get_mut(&id) else { return false };
        session.number += 1;
        events.push(LockEvent::Leased(Subject::Session(id), session.lease(id)));
        true
    }

    /// Ends a session. If `lease` is given, only if that is still the current lease.
    pub(super) fn end_session(
        &mut self,
        id: Version,
        lease: Option<u64>,
        version: Version,
        events: &mut Vec<LockEvent>,
    ) -> bool {
        let Some(present) = self.sessions.get(&id).map(|session| session.number) else { return false };
        if lease.is_some_and(|lease| lease != present) {
            return false;
        }
        self.statistics.expiries += u64::from(lease.is_some());
        self.sessions.remove(&id);
        events.push(LockEvent::Ended(Subject::Session(id)));
        let under: Vec<(Box<[u8]>, Option<WaiterId>)> = self
            .under
            .range((id, Box::default(), None)..)
            .take_while(|(session, ..)| *session == id)
            .map(|(_, name, waiter)| (name.clone(), *waiter))
            .collect();
        // Remove waiting requests first: nothing must be granted under a session that has ended.
        for (name, waiter) in &under {
            if let Some(waiter) = *waiter
                && !self.planted.has(Fault::LockSessionNotRechecked)
            {
                self.leave_queue(waiter);
                events.push(LockEvent::Notified {
                    waiter,
                    name: name.clone(),
                    notification: LockNotification::SessionOver,
                });
            }
        }
        for (name, _) in under.iter().filter(|(_, waiter)| waiter.is_none()) {
            self.pass_on(name, version, events);
        }
        true
    }
}
