//! For Knossos: one key as a `cas-register`, or one lock as a `mutex`.
//!
//! There a read of nil fits every state, so an absent key is the value `:absent`, and the history begins with a write
//! of it. A delete is such a write, and a write if the key is absent is a `:cas` from `:absent`.
//!
//! A mutex has no leases: a lock whose lease ran out is held forever, and every later grant is wrong. A lock is
//! therefore exported only if each holder sent its release while its lease could not have ended.

use std::collections::BTreeMap;
use std::io::Write;

use super::edn::{self, Edn, Ended, Lines, Words};
use super::{Checker, ExportError, Exported, Subject, refused, says_nothing, subject};
use crate::history::{Action, Answer, History, OperationId, Outcome, Value};
use crate::history::{Hold, LockAction};

const ABSENT: Edn<'static> = Edn::Keyword("absent");

pub(super) fn write(
    history: &History,
    ids: &[OperationId],
    output: impl Write,
) -> Result<Exported, ExportError> {
    let mut exported = Exported::default();
    let mut listed = Vec::with_capacity(ids.len());
    let mut of = None;
    for id in ids {
        let operation = history.operation(*id);
        let this = subject(history, *id);
        if *of.get_or_insert(this) != this {
            let reason = "Knossos checks one key or one lock at a time: name one of them";
            return Err(ExportError::Refused(reason.to_owned()));
        }
        let is_renewal = matches!(operation.action, Action::Lock(LockAction::Renew { .. }));
        exported.note("renewals of leases", is_renewal);
        if is_renewal || says_nothing(history, *id) {
            continue;
        }
        let words = words(history, *id).map_err(|what| refused(history, *id, Checker::Knossos, what))?;
        let is_answered = matches!(operation.outcome, Outcome::Ok(_));
        exported.note("conditions that did not hold (:fail)", is_answered && words.ended == Ended::Fail);
        listed.push(*id);
    }
    check_leases(history, ids)?;
    exported.operations = listed.len();
    let mut lines = Lines::new(output);
    let first = listed.iter().map(|id| history.operation(*id).start).min();
    if let (Some(Some(Subject::Key(_))), Some(first)) = (of, first) {
        let process = lines.new_process();
        for kind in ["invoke", "ok"] {
            lines.line(first, process, kind, "write", &ABSENT)?;
        }
    }
    // All operations have words, as checked above.
    let words_of = |id: OperationId| words(history, id).unwrap_or_else(|what| unreachable!("{what}"));
    edn::write(history, &listed, words_of, &mut lines)?;
    Ok(exported)
}

fn words(history: &History, id: OperationId) -> Result<Words<'_>, &'static str> {
    let operation = history.operation(id);
    let bytes = |value: Option<Value>| value.map_or(ABSENT, |value| Edn::Bytes(history.value_bytes(value)));
    let cas = |old: Option<Value>, new| ("cas", Edn::Vector(vec![bytes(old), bytes(Some(new))]));
    let (mut ended, answer) = match operation.outcome {
        Outcome::Ok(answer @ (Answer::Applied(false) | Answer::Token(None))) => (Ended::Fail, Some(answer)),
        Outcome::Ok(answer) => (Ended::Ok, Some(answer)),
        Outcome::Failed => (Ended::Fail, None),
        Outcome::Unknown => (Ended::Info, None),
    };
    let (function, completed) = match (operation.action, answer) {
        (Action::Get, Some(Answer::Value(value))) => ("read", bytes(value)),
        (Action::Delete, Some(Answer::Applied(false))) => {
            ended = Ended::Ok;
            ("read", ABSENT)
        }
        (Action::Delete, None | Some(Answer::Done)) => ("write", ABSENT),
        (Action::Delete, _) => return Err("a delete that found something, whatever it was"),
        (Action::Set(value), None | Some(Answer::Done)) | (Action::GetAndSet(value), None) => {
            ("write", bytes(Some(value)))
        }
        (Action::GetAndSet(value), Some(Answer::Value(before))) => cas(before, value),
        (Action::SetIfAbsent(value), None | Some(Answer::Applied(_))) => cas(None, value),
        (Action::CompareAndSet { expected, value }, None | Some(Answer::Applied(_))) => cas(expected, value),
        (Action::Increment(_), _) => return Err("an increment"),
        (Action::Lock(LockAction::Acquire { waits, .. }), None | Some(Answer::Token(_))) => {
            if waits && ended == Ended::Fail && answer.is_some() {
                // A client that waited in vain may have held the lock for a while without knowing.
                ended = Ended::Info;
            }
            ("acquire", Edn::Nil)
        }
        (Action::Lock(LockAction::Release { .. }), None | Some(Answer::Applied(_))) => ("release", Edn::Nil),
        _ => return Err("an answer that this operation never has"),
    };
    let invoked = if function == "read" { Edn::Nil } else { completed.clone() };
    Ok(Words { function, ended, invoked, completed })
}

/// A grant of a lock.
struct Grant {
    id: OperationId,
    /// Its lease cannot end before this.
    leased_until: u64,
    /// Whether its release was sent, and not too late.
    is_released: bool,
}

/// Refuses a lock that may have been free before its release: a mutex becomes free only by a release.
fn check_leases(history: &History, ids: &[OperationId]) -> Result<(), ExportError> {
    let mut sorted = ids.to_vec();
    sorted.sort_by_key(|id| history.operation(*id).start);
    let mut grants: BTreeMap<u64, Grant> = BTreeMap::new();
    for id in sorted {
        let operation = history.operation(id);
        let until = |ms: u32| operation.start.saturating_add(u64::from(ms) * 1_000_000);
        let Action::Lock(action) = operation.action else { continue };
        match (action, operation.outcome) {
            (LockAction::Acquire { hold: Hold::Lease(ms), .. }, Outcome::Ok(Answer::Token(Some(token)))) => {
                let grant = Grant { id, leased_until: until(ms), is_released: false };
                if grants.insert(token, grant).is_some() {
                    let what = "a lock that its holder is granted again";
                    return Err(refused(history, id, Checker::Knossos, what));
                }
            }
            (LockAction::Renew { token, lease_ms }, outcome) => {
                let Some(grant) = grants.get_mut(&token) else { continue };
                match outcome {
                    Outcome::Ok(Answer::Applied(true)) => grant.leased_until = until(lease_ms),
                    // It may have shortened the lease.
                    Outcome::Unknown => grant.leased_until = grant.leased_until.min(until(lease_ms)),
                    _ => {}
                }
            }
            (LockAction::Release { token }, outcome) => {
                let Some(grant) = grants.get_mut(&token) else { continue };
                grant.is_released |= match outcome {
                    Outcome::Ok(answer) => answer == Answer::Applied(true),
                    Outcome::Unknown => operation.start <= grant.leased_until,
                    Outcome::Failed => false,
                };
            }
            _ => {}
        }
    }
    // No grant follows the last one, so it need not be released.
    grants.pop_last();
    match grants.values().find(|grant| !grant.is_released) {
        Some(grant) => {
            let what = "leases, and this one may have run out before the lock was released";
            Err(refused(history, grant.id, Checker::Knossos, what))
        }
        None => Ok(()),
    }
}
