//! Lines for operations on locks and sessions, and for writes with fences.

use super::{Bytes, Line, take};
use crate::history::{Action, Answer, History, Key, OperationId, Outcome, Value};
use crate::history::{Fence, Hold, LockAction};
use std::borrow::Cow;

/// Returns the lock's or session's key and the action; `None` if a line concerns something else.
pub(super) fn action(
    history: &mut History,
    name: &str,
    line: &mut Line,
) -> Result<Option<(LockAction, Key)>, String> {
    let action = match name {
        "acquire" => {
            let owner = take(&mut line.owner, "owner", name)?;
            let owner = history.value(&owner.0);
            let waits = line.wait.take().unwrap_or(false);
            let hold = match (line.lease_ms.take(), line.session.take()) {
                (Some(ms), None) => Hold::Lease(ms),
                (None, Some(session)) => Hold::Session(history.key(&session.0)),
                _ => return Err(format!("'{name}' needs one of the fields \"lease_ms\" and \"session\"")),
            };
            LockAction::Acquire { owner, hold, waits }
        }
        "renew" => LockAction::Renew {
            token: token(line, name)?,
            lease_ms: take(&mut line.lease_ms, "lease_ms", name)?,
        },
        "release" => LockAction::Release { token: token(line, name)? },
        "open-session" => {
            let lease_ms = take(&mut line.lease_ms, "lease_ms", name)?;
            return Ok(Some((LockAction::OpenSession { lease_ms }, history.key(b""))));
        }
        "renew-session" | "close-session" => {
            let session = take(&mut line.session, "session", name)?;
            let action = match name {
                "renew-session" => LockAction::RenewSession,
                _ => LockAction::CloseSession,
            };
            return Ok(Some((action, history.key(&session.0))));
        }
        _ => return Ok(None),
    };
    let lock = take(&mut line.lock, "lock", name)?;
    Ok(Some((action, history.key(&lock.0))))
}

fn token(line: &mut Line, name: &str) -> Result<u64, String> {
    let token = take(&mut line.token, "token", name)?;
    token.ok_or_else(|| format!("'{name}' has a token, which is not null"))
}

/// Returns the answer.
pub(super) fn answer(history: &mut History, action: LockAction, line: &mut Line) -> Result<Answer, String> {
    let name = action.name();
    Ok(match action {
        LockAction::Acquire { .. } => Answer::Token(take(&mut line.token, "token", name)?),
        LockAction::OpenSession { .. } => {
            Answer::Session(history.key(&take(&mut line.session, "session", name)?.0))
        }
        _ => Answer::Applied(take(&mut line.applied, "applied", name)?),
    })
}

/// Returns a write's fence, if it has one.
pub(super) fn fence(history: &mut History, name: &str, line: &mut Line) -> Result<Option<Fence>, String> {
    let Some(lock) = line.lock.take() else { return Ok(None) };
    let is_refused = line.fenced.take().unwrap_or(false);
    if is_refused && line.outcome != "failed" {
        return Err("what was \"fenced\" has \"failed\"".to_owned());
    }
    Ok(Some(Fence { lock: history.key(&lock.0), token: token(line, name)?, is_refused }))
}

/// Sets the fields for these in a line.
pub(super) fn write<'h>(history: &'h History, id: OperationId, line: &mut Line<'h>) {
    let name = |key: Key| Bytes(Cow::Borrowed(history.key_bytes(key)));
    let value = |value: Value| Bytes(Cow::Borrowed(history.value_bytes(value)));
    let operation = history.operation(id);
    if let Some(Fence { lock, token, is_refused }) = history.fence(id) {
        (line.lock, line.token) = (Some(name(*lock)), Some(Some(*token)));
        line.fenced = is_refused.then_some(true);
    }
    line.queued = history.queued(id);
    let Action::Lock(action) = operation.action else { return };
    line.key = None;
    let lock = Some(name(operation.key));
    match action {
        LockAction::Acquire { owner, hold, waits } => {
            (line.lock, line.owner, line.wait) = (lock, Some(value(owner)), waits.then_some(true));
            match hold {
                Hold::Lease(ms) => line.lease_ms = Some(ms),
                Hold::Session(session) => line.session = Some(name(session)),
            }
        }
        LockAction::Renew { token, lease_ms } => {
            (line.lock, line.token, line.lease_ms) = (lock, Some(Some(token)), Some(lease_ms));
        }
        LockAction::Release { token } => (line.lock, line.token) = (lock, Some(Some(token))),
        LockAction::OpenSession { lease_ms } => line.lease_ms = Some(lease_ms),
        LockAction::RenewSession | LockAction::CloseSession => line.session = lock,
    }
    match operation.outcome {
        Outcome::Ok(Answer::Token(token)) => line.token = Some(token),
        Outcome::Ok(Answer::Session(session)) => line.session = Some(name(session)),
        _ => {}
    }
}
