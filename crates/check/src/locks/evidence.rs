//! The evidence in a history about each grant of each lock, and about each session.

use std::collections::BTreeMap;

use super::Rule;
use crate::history::{Action, Answer, History, Key, Operation, OperationId, Outcome, Value};
use crate::history::{Hold, LockAction};

/// The time between the grant of a lock and its end, identified by the token, with the operations that are evidence
/// about it.
#[derive(Default)]
pub(super) struct Tenure {
    /// Requests for the lock that got the token. The first is the grant, the others found the lock held by their
    /// owner.
    pub(super) acquires: Vec<OperationId>,
    /// All operations that restarted the lease: these requests, and renewals.
    pub(super) setters: Vec<(OperationId, Hold)>,
    /// Renewals with an unknown outcome.
    pub(super) open_setters: Vec<(OperationId, Hold)>,
    pub(super) release: Option<OperationId>,
    /// Releases with an unknown outcome.
    pub(super) open_releases: Vec<OperationId>,
    /// Operations whose answer says that this token holds nothing.
    pub(super) denials: Vec<OperationId>,
    /// Writes with this token that took effect, each with the latest instant at which it did.
    pub(super) writes: Vec<(OperationId, u64)>,
}

/// The evidence about one lock.
#[derive(Default)]
pub(super) struct Lock {
    pub(super) tenures: BTreeMap<u64, Tenure>,
    /// Requests for the lock with an unknown outcome.
    pub(super) open: Vec<OperationId>,
    /// The same, by owner.
    pub(super) open_of: BTreeMap<Value, Vec<OperationId>>,
    /// Requests that did not wait and found the lock held by another owner.
    pub(super) denied: Vec<OperationId>,
    /// Requests that waited in vain.
    pub(super) in_vain: Vec<OperationId>,
    /// Releases, renewals and writes with unknown outcomes or denials; kept until all grants are known.
    later: Vec<(u64, OperationId)>,
}

/// The evidence about one session.
#[derive(Default)]
pub(super) struct Session {
    pub(super) opened: Option<OperationId>,
    /// The length of the lease, in nanoseconds.
    pub(super) lease: Option<u64>,
    /// What started its lease: the opening, and renewals.
    pub(super) setters: Vec<OperationId>,
    pub(super) close: Option<OperationId>,
    pub(super) open_closes: Vec<OperationId>,
    pub(super) denials: Vec<OperationId>,
    /// Grants under it: nothing is granted under a session that has ended.
    pub(super) grants: Vec<(Key, u64, OperationId)>,
    /// Releases of what was held under it and nothing else.
    pub(super) releases: Vec<OperationId>,
}

/// A rule that answers break by themselves, whatever the times are.
pub(super) struct Broken {
    pub(super) rule: Rule,
    pub(super) subject: Key,
    pub(super) answered: OperationId,
    pub(super) because: Option<OperationId>,
}

/// All evidence of a history.
#[derive(Default)]
pub(super) struct Evidence {
    pub(super) locks: BTreeMap<Key, Lock>,
    pub(super) sessions: BTreeMap<Key, Session>,
}

impl Evidence {
    pub(super) fn gather(history: &History) -> Result<Evidence, Broken> {
        let mut evidence = Evidence::default();
        for id in history.ids() {
            let operation = history.operation(id);
            match (operation.action, operation.outcome) {
                // Although it failed, it may have been in the queue.
                (Action::Lock(LockAction::Acquire { waits: true, .. }), Outcome::Failed) => {
                    evidence.locks.entry(operation.key).or_default().in_vain.push(id);
                }
                (_, Outcome::Failed) => {}
                (Action::Lock(action), _) => evidence.take(history, id, operation, action)?,
                _ => {}
            }
        }
        evidence.take_fences(history);
        for (key, lock) in &mut evidence.locks {
            lock.sort_later(history);
            lock.check_grants(history, *key)?;
        }
        evidence.link_sessions(history);
        Ok(evidence)
    }

    fn take(
        &mut self,
        history: &History,
        id: OperationId,
        operation: &Operation,
        action: LockAction,
    ) -> Result<(), Broken> {
        let key = operation.key;
        let answer = match operation.outcome {
            Outcome::Ok(answer) => Some(answer),
            _ => None,
        };
        let broken_at = |subject, rule, because| Err(Broken { rule, subject, answered: id, because });
        let broken = |rule, because| broken_at(key, rule, because);
        match (action, answer) {
            (LockAction::Acquire { hold, .. }, Some(Answer::Token(Some(token)))) => {
                let tenure = self.locks.entry(key).or_default().tenures.entry(token).or_default();
                if let Some(other) = tenure.acquires.first().copied()
                    && owner(history, other) != owner(history, id)
                {
                    return broken(Rule::TokenTwice, Some(other));
                }
                tenure.acquires.push(id);
                tenure.setters.push((id, hold));
            }
            (LockAction::Acquire { waits, .. }, Some(Answer::Token(None))) => {
                let lock = self.locks.entry(key).or_default();
                if waits { lock.in_vain.push(id) } else { lock.denied.push(id) }
            }
            (LockAction::Acquire { owner, .. }, None) => {
                let lock = self.locks.entry(key).or_default();
                lock.open.push(id);
                lock.open_of.entry(owner).or_default().push(id);
            }
            (LockAction::Renew { token, lease_ms }, Some(Answer::Applied(true))) => {
                let tenure = self.locks.entry(key).or_default().tenures.entry(token).or_default();
                tenure.setters.push((id, Hold::Lease(lease_ms)));
            }
            (LockAction::Release { token }, Some(Answer::Applied(true))) => {
                let tenure = self.locks.entry(key).or_default().tenures.entry(token).or_default();
                if let Some(other) = tenure.release.replace(id) {
                    return broken(Rule::EndedTwice, Some(other));
                }
            }
            (
                LockAction::Renew { token, .. } | LockAction::Release { token },
                None | Some(Answer::Applied(false)),
            ) => self.locks.entry(key).or_default().later.push((token, id)),
            (LockAction::OpenSession { lease_ms }, Some(Answer::Session(name))) => {
                let session = self.sessions.entry(name).or_default();
                if let Some(other) = session.opened.replace(id) {
                    return broken_at(name, Rule::SessionTwice, Some(other));
                }
                session.lease = Some(nanoseconds(lease_ms));
                session.setters.push(id);
            }
            (LockAction::OpenSession { .. } | LockAction::RenewSession, None) => {}
            (LockAction::RenewSession, Some(Answer::Applied(true))) => {
                self.sessions.entry(key).or_default().setters.push(id);
            }
            (LockAction::CloseSession, Some(Answer::Applied(true))) => {
                let session = self.sessions.entry(key).or_default();
                if let Some(other) = session.close.replace(id) {
                    return broken(Rule::EndedTwice, Some(other));
                }
            }
            (LockAction::RenewSession | LockAction::CloseSession, Some(Answer::Applied(false))) => {
                self.sessions.entry(key).or_default().denials.push(id);
            }
            (LockAction::CloseSession, None) => {
                self.sessions.entry(key).or_default().open_closes.push(id);
            }
            _ => return broken(Rule::NoAnswer, None),
        }
        Ok(())
    }

    /// Takes writes with fences: those that certainly took effect, and those that were refused.
    fn take_fences(&mut self, history: &History) {
        let seen = Seen::new(history);
        for (id, fence) in history.fences() {
            let operation = history.operation(id);
            let lock = self.locks.entry(fence.lock).or_default();
            let by = match operation.outcome {
                Outcome::Ok(_) => operation.end,
                Outcome::Unknown => seen.by(operation),
                Outcome::Failed if fence.is_refused => {
                    lock.later.push((fence.token, id));
                    None
                }
                Outcome::Failed => None,
            };
            if let Some(by) = by {
                lock.tenures.entry(fence.token).or_default().writes.push((id, by));
            }
        }
    }

    fn link_sessions(&mut self, history: &History) {
        for (key, lock) in &self.locks {
            for (token, tenure) in &lock.tenures {
                let mut under = None;
                let mut is_only = true;
                for (id, hold) in &tenure.setters {
                    let Hold::Session(session) = *hold else {
                        is_only = false;
                        continue;
                    };
                    is_only &= under.replace(session).is_none_or(|other| other == session);
                    self.sessions.entry(session).or_default().grants.push((*key, *token, *id));
                }
                let may_change = !tenure.open_setters.is_empty() || !lock.open_by(history, tenure).is_empty();
                if let (Some(session), Some(release), true) = (under, tenure.release, is_only && !may_change)
                {
                    self.sessions.entry(session).or_default().releases.push(release);
                }
            }
        }
    }
}

impl Lock {
    /// Returns the requests with an unknown outcome that may have caused a grant in this tenure: those of its owner,
    /// or all if its owner is unknown.
    pub(super) fn open_by<'l>(&'l self, history: &History, tenure: &Tenure) -> &'l [OperationId] {
        match tenure.acquires.first().and_then(|id| owner(history, *id)) {
            Some(owner) => self.open_of.get(&owner).map_or(&[], Vec::as_slice),
            None => &self.open,
        }
    }

    /// Returns the earliest request of those that may have been granted the lock.
    pub(super) fn first_asked(&self, history: &History, tenure: &Tenure) -> Option<OperationId> {
        let all = tenure.acquires.iter().copied().chain(self.asked_again(history, tenure));
        all.min_by_key(|id| history.operation(*id).start)
    }

    /// Returns the requests that may have been granted the lock, or have found it granted to their owner, without
    /// getting such an answer: those with an unknown outcome, and those that waited in vain. Of the latter it is only
    /// known that they no longer waited when their time was over.
    pub(super) fn asked_again(
        &self,
        history: &History,
        tenure: &Tenure,
    ) -> impl Iterator<Item = OperationId> {
        let holder = tenure.acquires.first().and_then(|id| owner(history, *id));
        let is_its = move |id: &&OperationId| holder.is_some() && owner(history, **id) == holder;
        self.open_by(history, tenure).iter().chain(self.in_vain.iter().filter(is_its)).copied()
    }

    fn sort_later(&mut self, history: &History) {
        for (token, id) in std::mem::take(&mut self.later) {
            // A denial for a token that was never granted is no evidence.
            let Some(tenure) = self.tenures.get_mut(&token) else { continue };
            let operation = history.operation(id);
            match (operation.action, operation.outcome) {
                (Action::Lock(LockAction::Renew { lease_ms, .. }), Outcome::Unknown) => {
                    tenure.open_setters.push((id, Hold::Lease(lease_ms)));
                }
                (Action::Lock(LockAction::Release { .. }), Outcome::Unknown) => tenure.open_releases.push(id),
                _ => tenure.denials.push(id),
            }
        }
    }

    /// Checks that for every token that was used, some request may have been granted the lock.
    fn check_grants(&self, history: &History, key: Key) -> Result<(), Broken> {
        for tenure in self.tenures.values() {
            if !tenure.acquires.is_empty() || !self.open.is_empty() {
                continue;
            }
            let uses = tenure.setters.iter().map(|(id, _)| *id).chain(tenure.release);
            let uses = uses.chain(tenure.writes.iter().map(|(id, _)| *id));
            if let Some(first) = uses.min_by_key(|id| history.operation(*id).end) {
                return Err(Broken {
                    rule: Rule::GrantedToNobody,
                    subject: key,
                    answered: first,
                    because: None,
                });
            }
        }
        Ok(())
    }
}

/// Returns the owner that a lock was requested for.
pub(super) fn owner(history: &History, id: OperationId) -> Option<Value> {
    match history.operation(id).action {
        Action::Lock(LockAction::Acquire { owner, .. }) => Some(owner),
        _ => None,
    }
}

pub(super) fn nanoseconds(ms: u32) -> u64 {
    u64::from(ms) * 1_000_000
}

/// Values that were read, and the operations that may have written them: a write whose value was read did happen,
/// even if its client never got an answer.
struct Seen {
    by: BTreeMap<(Key, Value), u64>,
    writers: BTreeMap<(Key, Value), usize>,
}

impl Seen {
    fn new(history: &History) -> Seen {
        let mut seen = Seen { by: BTreeMap::new(), writers: BTreeMap::new() };
        let is_open =
            |(id, _): (OperationId, &super::Fence)| history.operation(id).outcome == Outcome::Unknown;
        if !history.fences().any(is_open) {
            return seen;
        }
        for operation in history.operations().iter().filter(|it| it.outcome != Outcome::Failed) {
            if let Some(value) = operation.action.stores() {
                *seen.writers.entry((operation.key, value)).or_default() += 1;
            }
            if let (Outcome::Ok(Answer::Value(Some(value))), Some(end)) = (operation.outcome, operation.end) {
                let by = seen.by.entry((operation.key, value)).or_insert(end);
                *by = end.min(*by);
            }
        }
        seen
    }

    /// Returns when an operation had certainly taken effect.
    fn by(&self, operation: &Operation) -> Option<u64> {
        let of = (operation.key, operation.action.stores()?);
        self.by.get(&of).copied().filter(|_| self.writers.get(&of) == Some(&1))
    }
}
