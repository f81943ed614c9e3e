//! Locks: leases with fencing tokens, and the rules that they must keep.
//!
//! A lock is granted, renewed and released; or its lease is over, and it ends by itself. Time matters only in this
//! case: **a lease ends by itself no earlier than its length after it was granted or last renewed.** How late it may
//! end is never specified. Everything else is an order of steps, each between the start and the end of an operation:
//!
//! * An acquire is granted the lock when it is free, with a token larger than all before. An owner that already holds
//!   it gets its token again, and its lease restarts. Otherwise the acquire may fail because another owner holds the
//!   lock, or wait.
//! * A renewal or a release with a token is executed exactly if the lock is held with that token.
//! * A write with a fence takes effect only if the lock was granted with its token, and with none larger since. It is
//!   refused only if the lock is not held with its token.
//! * What is held under a session ends with the session. A session is a lease, too. Nothing is granted under one that
//!   has ended.
//! * A request that was in the queue before another one was sent is granted the lock before it. Histories record this
//!   ([`History::set_queued`]) where it is known.
//!
//! The owner of a grant may therefore believe that it holds the lock until it has sent its release, or until a lease
//! has passed since it sent its last renewal. No other owner is granted the lock in between.
//!
//! **Tokens give the order.** Grants took effect in the order of their tokens, so there is nothing to search: see
//! `instants`. An operation with an unknown outcome may or may not have happened; where that leaves a choice, it is
//! decided in favour of the store, so no history of a correct store is rejected. What locks reveal about the time of
//! a write with a fence is used by the check of its key.
//!
//! Reading order: `action`, this file, `evidence`, `instants`, `words`.

mod evidence;
mod instants;

use std::collections::BTreeMap;

use crate::history::{Action, Fence, History, Key, Operation, OperationId, Outcome};
use crate::window::{Breach, Rule, Window};
use evidence::{Broken, Evidence, Lock};
use instants::Settled;

/// The earliest and latest instants at which writes with fences took effect, as far as locks reveal them.
pub(crate) type Fenced = BTreeMap<OperationId, (u64, u64)>;

/// The numbers of operations and locks that were checked, or the breach; and when writes with fences took effect.
pub(crate) struct Checked {
    pub(crate) operations: usize,
    pub(crate) locks: usize,
    pub(crate) fenced: Fenced,
}

/// Checks all locks and sessions of a history.
pub(crate) fn check(history: &History) -> Result<Checked, Window> {
    let operations = history.operations().iter().filter(|operation| operation.action.is_of_locks()).count();
    if operations == 0 && history.fences().next().is_none() {
        return Ok(Checked { operations, locks: 0, fenced: Fenced::new() });
    }
    find(history)
        .map(|(locks, fenced)| Checked { operations, locks, fenced })
        .map_err(|broken| window(history, &broken))
}

fn find(history: &History) -> Result<(usize, Fenced), Broken> {
    let evidence = Evidence::gather(history)?;
    let settled = Settled::find(history, &evidence)?;
    for (key, lock) in &evidence.locks {
        check_denials(history, *key, lock, &settled)?;
        check_turns(history, *key, lock)?;
    }
    let mut fenced = Fenced::new();
    for (key, lock) in &evidence.locks {
        for (token, tenure) in &lock.tenures {
            let Some(instants) = settled.grant(*key, *token) else { continue };
            let next_by = settled.next_granted_by(*key, *token);
            fenced
                .extend(tenure.writes.iter().map(|(id, by)| (*id, (instants.granted.at, next_by.min(*by)))));
        }
    }
    Ok((evidence.locks.len(), fenced))
}

/// Checks the answers that say that another owner holds the lock.
fn check_denials(history: &History, key: Key, lock: &Lock, settled: &Settled) -> Result<(), Broken> {
    for denied in &lock.denied {
        let operation = history.operation(*denied);
        let (start, end) = (operation.start, operation.end.unwrap_or(u64::MAX));
        let is_another = |id: OperationId| evidence::owner(history, id) != evidence::owner(history, *denied);
        let held = lock.tenures.iter().any(|(token, tenure)| {
            let overlaps = settled
                .grant(key, *token)
                .is_some_and(|grant| grant.granted.at <= end && grant.ended_by >= start);
            overlaps && tenure.acquires.first().is_none_or(|id| is_another(*id))
        });
        // An owner may have held it without knowing.
        let mut unknown = lock.open.iter().chain(&lock.in_vain);
        if !held && !unknown.any(|id| is_another(*id) && history.operation(*id).start <= end) {
            return Err(Broken { rule: Rule::HeldByNobody, subject: key, answered: *denied, because: None });
        }
    }
    Ok(())
}

/// Checks that no request is granted a lock before one that was already waiting when it was sent.
fn check_turns(history: &History, key: Key, lock: &Lock) -> Result<(), Broken> {
    let mut first_queued: Option<(u64, OperationId)> = None;
    for tenure in lock.tenures.values().rev() {
        let asked = lock.first_asked(history, tenure).map_or(0, |id| history.operation(id).start);
        if let (Some((queued, because)), Some(answered)) = (first_queued, tenure.acquires.first())
            && queued < asked
        {
            let (rule, because) = (Rule::OutOfTurn, Some(because));
            return Err(Broken { rule, subject: key, answered: *answered, because });
        }
        let queued = tenure.acquires.iter().filter_map(|id| Some((history.queued(*id)?, *id)));
        first_queued = queued.chain(first_queued).min();
    }
    Ok(())
}

/// Returns a breach as a window: the two operations.
fn window(history: &History, broken: &Broken) -> Window {
    let Broken { rule, subject, answered, because } = *broken;
    let mut operations: Vec<OperationId> =
        because.into_iter().filter(|id| *id != answered).chain([answered]).collect();
    operations.sort_by_key(|id| (history.operation(*id).start, history.operation(*id).end));
    let answered_at = |id: &OperationId| {
        let operation = history.operation(*id);
        operation.end.filter(|_| operation.outcome != Outcome::Unknown)
    };
    let culprit = operations.iter().copied().max_by_key(answered_at).unwrap_or(answered);
    let breach = Some(Breach { rule, answered, because });
    Window { key: subject, operations, culprit, origins: Vec::new(), is_from_any: false, breach }
}

/// Returns a write with a fence as the check of its key takes it: it took effect while its token was the newest.
pub(crate) fn narrowed(operation: &Operation, id: OperationId, fenced: &Fenced) -> Operation {
    let mut operation = *operation;
    let Some((from, by)) = fenced.get(&id).copied() else { return operation };
    operation.start = operation.start.max(from);
    operation.end = Some(by.max(operation.start));
    if let (Outcome::Unknown, Action::Set(_)) = (operation.outcome, operation.action) {
        operation.outcome = Outcome::Ok(crate::Answer::Done);
    }
    operation
}

#[cfg(test)]
mod tests;
