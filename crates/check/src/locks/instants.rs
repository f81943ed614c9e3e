//! The earliest and the latest instants at which each grant of a lock took effect and ended.
//!
//! Tokens give the order of a lock's grants, so there is nothing to search. At the earliest, a grant took effect when
//! it had been requested and the previous one had ended, and it ended when it was released or its last lease was
//! over; and so on, to the last. Nothing is ever forced to happen late. So if the earliest instants are early enough
//! for all answers, they are an order that explains the answers; if they are not, no order does.
//!
//! Sessions tie locks together: a lock that is held under a session ends with it at the earliest, and no lock is
//! granted under a session that has ended. Locks and sessions are processed alternately until nothing changes.
//! Instants only grow, and each is a valid lower bound at any time, so one that is too late is a contradiction at any
//! time.

use std::collections::BTreeMap;

use super::Rule;
use super::evidence::{Broken, Evidence, Lock, Session, Tenure, nanoseconds};
use crate::history::{Action, History, Key, OperationId};
use crate::history::{Hold, LockAction};
use crate::window::Why;

/// The earliest possible instant of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) at: u64,
    /// The operation from which the bound follows.
    because: OperationId,
    why: Why,
}

impl Bound {
    fn later(self, other: Bound) -> Bound {
        if other.at > self.at { other } else { self }
    }

    fn no_earlier(self, than: u64) -> Bound {
        Bound { at: self.at.max(than), ..self }
    }
}

/// Bounds for the instants of one grant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instants {
    pub(super) granted: Bound,
    pub(super) granted_by: u64,
    pub(super) ended_by: u64,
}

pub(super) struct Settled<'h> {
    history: &'h History,
    /// By lock and token.
    grants: BTreeMap<(Key, u64), Instants>,
    ends: BTreeMap<(Key, u64), Bound>,
    sessions: BTreeMap<Key, Bound>,
}

impl<'h> Settled<'h> {
    /// Finds all instants, or a contradiction.
    pub(super) fn find(history: &'h History, evidence: &Evidence) -> Result<Settled<'h>, Broken> {
        let (grants, ends, sessions) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut settled = Settled { history, grants, ends, sessions };
        // A session can wait for another one, so there are at most this many rounds. Stopping early would only find
        // less.
        for _ in 0..evidence.sessions.len() + 2 {
            let before = (settled.ends.clone(), settled.sessions.clone());
            for (key, lock) in &evidence.locks {
                settled.settle_lock(*key, lock)?;
            }
            for (key, session) in &evidence.sessions {
                settled.settle_session(*key, session)?;
            }
            if before == (settled.ends.clone(), settled.sessions.clone()) {
                break;
            }
        }
        Ok(settled)
    }

    /// Returns the bounds of a grant, if a request got its token or the token was used.
    pub(super) fn grant(&self, lock: Key, token: u64) -> Option<&Instants> {
        self.grants.get(&(lock, token))
    }

    /// Returns the latest instant of the first grant after the one with this token.
    pub(super) fn next_granted_by(&self, lock: Key, token: u64) -> u64 {
        let next = self.grants.range((lock, token.saturating_add(1))..).next();
        next.filter(|((key, _), _)| *key == lock).map_or(u64::MAX, |(_, next)| next.granted_by)
    }

    fn start(&self, id: OperationId) -> u64 {
        self.history.operation(id).start
    }

    fn end(&self, id: OperationId) -> u64 {
        self.history.operation(id).end.unwrap_or(u64::MAX)
    }

    /// Checks that an event that an answer shows to have happened by `by` can have happened that early.
    fn require(&self, subject: Key, answered: OperationId, by: u64, bound: Bound) -> Result<(), Broken> {
        if bound.at <= by {
            return Ok(());
        }
        // An operation that was sent too late is too late even without a lease.
        let is_acquire = hold(self.history, bound.because).is_some();
        let why = match bound.why {
            Why::Leased if self.start(bound.because) > by => {
                if is_acquire {
                    Why::Asked
                } else {
                    Why::Used
                }
            }
            why => why,
        };
        let rule = Rule::TooEarly { earliest: bound.at, why };
        Err(Broken { rule, subject, answered, because: Some(bound.because) })
    }

    fn settle_lock(&mut self, key: Key, lock: &Lock) -> Result<(), Broken> {
        let mut granted_by = u64::MAX;
        let mut latest = Vec::with_capacity(lock.tenures.len());
        for tenure in lock.tenures.values().rev() {
            let ended_by = tenure.release.map_or(granted_by, |id| granted_by.min(self.end(id)));
            let seen_by = tenure.setters.iter().map(|(id, _)| self.end(*id));
            let seen_by = seen_by.chain(tenure.writes.iter().map(|(_, by)| *by));
            granted_by = seen_by.fold(ended_by, u64::min);
            let after = |id: &&OperationId| self.start(**id) > granted_by;
            let denied_by = tenure.denials.iter().filter(after).map(|id| self.end(*id)).min();
            latest.push((granted_by, denied_by.map_or(ended_by, |by| by.min(ended_by))));
        }
        let mut floor: Option<Bound> = None;
        for ((token, tenure), (granted_by, ended_by)) in lock.tenures.iter().zip(latest.into_iter().rev()) {
            let Some(first) = lock.first_asked(self.history, tenure) else { continue };
            let asked = Bound { at: self.start(first), because: first, why: Why::Asked };
            let granted = floor.map_or(asked, |floor| floor.later(asked));
            for (id, by) in &tenure.writes {
                self.require(key, *id, *by, granted)?;
            }
            for (id, _) in &tenure.setters {
                self.require(key, *id, self.end(*id), granted)?;
            }
            let ended = self.end_of_tenure(lock, tenure, granted);
            if let Some(release) = tenure.release {
                self.require(key, release, self.end(release), ended)?;
            }
            for id in tenure.denials.iter().filter(|id| self.start(**id) > granted_by) {
                self.require(key, *id, self.end(*id), ended)?;
            }
            let written = tenure.writes.iter().map(|(id, _)| Bound {
                at: self.start(*id),
                because: *id,
                why: Why::Written,
            });
            floor = Some(written.fold(ended, Bound::later));
            self.grants.insert((key, *token), Instants { granted, granted_by, ended_by });
            self.ends.insert((key, *token), ended);
        }
        Ok(())
    }

    /// Returns the earliest end of a tenure.
    fn end_of_tenure(&self, lock: &Lock, tenure: &Tenure, granted: Bound) -> Bound {
        let used = |id: OperationId| Bound { at: self.start(id), because: id, why: Why::Used };
        let last = tenure.setters.iter().map(|(id, _)| used(*id)).fold(granted, Bound::later);
        if let Some(release) = tenure.release {
            return last.later(used(release));
        }
        // The first of these ended it. The operation that set the length last did so after all others had been
        // requested: one that was answered before then cannot have been the last.
        let known = tenure.setters.iter().filter(|(id, _)| self.end(*id) >= last.at);
        let open = tenure.open_setters.iter().copied();
        let again =
            lock.asked_again(self.history, tenure).filter_map(|id| Some((id, hold(self.history, id)?)));
        let ends = known.copied().chain(open).chain(again).map(|(id, hold)| {
            let from = last.no_earlier(self.start(id)).at;
            match hold {
                Hold::Lease(ms) => {
                    Bound { at: from.saturating_add(nanoseconds(ms)), because: id, why: Why::Leased }
                }
                Hold::Session(session) => match self.sessions.get(&session) {
                    Some(over) => over.no_earlier(from),
                    None => Bound { at: from, because: id, why: Why::Used },
                },
            }
        });
        let released = tenure.open_releases.iter().map(|id| last.no_earlier(self.start(*id)));
        // No request got the grant's token, and no renewal used it: the length of its lease is unknown, too.
        let hidden = tenure.setters.is_empty().then_some(last);
        ends.chain(released).chain(hidden).min_by_key(|bound| bound.at).unwrap_or(last)
    }

    fn settle_session(&mut self, key: Key, session: &Session) -> Result<(), Broken> {
        let used = |id: OperationId| Bound { at: self.start(id), because: id, why: Why::Used };
        let Some(last) = session.setters.iter().map(|id| used(*id)).reduce(Bound::later) else {
            return Ok(());
        };
        let grants = session.grants.iter().map(|(lock, token, id)| {
            let granted = self.grants.get(&(*lock, *token)).map(|instants| instants.granted);
            granted.map_or(used(*id), |granted| used(*id).later(granted))
        });
        let releases = session.releases.iter().map(|id| used(*id));
        let lively = grants.chain(releases).fold(last, Bound::later);
        let over = match (session.close, session.lease) {
            (Some(close), _) => lively.later(used(close)),
            (None, None) => lively,
            (None, Some(lease)) => {
                let lapsed =
                    Bound { at: last.at.saturating_add(lease), because: last.because, why: Why::Leased };
                let closed = session.open_closes.iter().map(|id| last.no_earlier(self.start(*id)));
                closed.fold(lapsed, |one, other| if other.at < one.at { other } else { one }).later(lively)
            }
        };
        if let Some(close) = session.close {
            self.require(key, close, self.end(close), over)?;
        }
        let opened_by = session.opened.map_or(u64::MAX, |id| self.end(id));
        for id in session.denials.iter().filter(|id| self.start(**id) > opened_by) {
            self.require(key, *id, self.end(*id), over)?;
        }
        self.sessions.insert(key, over);
        Ok(())
    }
}

fn hold(history: &History, id: OperationId) -> Option<Hold> {
    match history.operation(id).action {
        Action::Lock(LockAction::Acquire { hold, .. }) => Some(hold),
        _ => None,
    }
}
