//! Lock requests in the checker's form.

use crate::operation::guarded;
use crate::operation::{Kind, Operation, Reply};
use crate::promise::Space;
use crate::record::Entry;
use check::{Answer, Fence, History, Hold, Key, LockAction};

/// Returns what an operation concerns: a key, a lock or a session.
pub(super) fn key(operation: &Operation, space: &Space, history: &mut History, bytes: &mut Vec<u8>) -> Key {
    match (operation.kind, operation.lock.session) {
        (Kind::RenewSession | Kind::CloseSession, Some(session)) => {
            return history.key(session.to_string().as_bytes());
        }
        (Kind::SetFenced, _) => named(guarded(operation.key), space, bytes),
        _ => named(operation.key, space, bytes),
    }
    history.key(bytes)
}

fn named(key: crate::operation::Key, space: &Space, bytes: &mut Vec<u8>) {
    bytes.clear();
    key.write(&space.keyspace.prefix, bytes);
}

/// Returns the fence of a write.
pub(super) fn fence(
    entry: &Entry,
    space: &Space,
    history: &mut History,
    bytes: &mut Vec<u8>,
) -> Option<Fence> {
    if entry.operation.kind != Kind::SetFenced {
        return None;
    }
    named(entry.operation.key, space, bytes);
    let is_refused = matches!(entry.reply(), Some((_, Reply::Refused("FENCED"))));
    Some(Fence { lock: history.key(bytes), token: entry.operation.lock.token, is_refused })
}

pub(super) fn action(operation: &Operation, history: &mut History) -> LockAction {
    let (terms, lease_ms) = (operation.lock, operation.lifetime_ms.into());
    match operation.kind {
        Kind::Renew => LockAction::Renew { token: terms.token, lease_ms },
        Kind::Release => LockAction::Release { token: terms.token },
        Kind::OpenSession => LockAction::OpenSession { lease_ms },
        Kind::RenewSession => LockAction::RenewSession,
        Kind::CloseSession => LockAction::CloseSession,
        _ => {
            let owner = history.value(terms.owner_name().as_bytes());
            let hold = match terms.session {
                Some(session) => Hold::Session(history.key(session.to_string().as_bytes())),
                None => Hold::Lease(lease_ms),
            };
            LockAction::Acquire { owner, hold, waits: terms.wait_ms > 0 }
        }
    }
}

/// Returns the answer. A reply of the wrong kind becomes one that the checker rejects, too.
pub(super) fn answer(kind: Kind, reply: Reply, history: &mut History) -> Answer {
    match (kind, reply) {
        (Kind::Acquire, Reply::Integer(token)) => Answer::Token(u64::try_from(token).ok()),
        (Kind::Acquire, Reply::Nil) => Answer::Token(None),
        (Kind::OpenSession, Reply::Session(session)) => {
            Answer::Session(history.key(session.to_string().as_bytes()))
        }
        (_, Reply::Integer(flag @ (0 | 1))) => Answer::Applied(flag == 1),
        _ => Answer::Done,
    }
}
