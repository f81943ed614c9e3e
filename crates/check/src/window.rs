//! A contradiction that a check has found, narrowed down to a few operations.

use crate::history::{Key, OperationId};

/// Operations on one key, or on one lock or session, whose answers cannot all be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The key, or the name of the lock or the session.
    pub key: Key,
    /// The operations, by their starts. If the outcome of any of them were unknown, the others would be possible.
    pub operations: Vec<OperationId>,
    /// The one of them that ended last: at its end the history became impossible.
    pub culprit: OperationId,
    /// Writes outside the window whose values were read in it, by their starts.
    pub origins: Vec<OperationId>,
    /// Whether the window suffices by itself: it is impossible whatever the key held before it.
    pub is_from_any: bool,
    /// The rule that a lock or a session has broken; `None` for a key that is not linearizable.
    pub breach: Option<Breach>,
}

/// A broken rule, with the operations that show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breach {
    /// The rule that was broken.
    pub rule: Rule,
    /// The operation whose answer is impossible.
    pub answered: OperationId,
    /// The operation that it contradicts, if there is one.
    pub because: Option<OperationId>,
}

/// The rule that a lock or a session has broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The answer shows that something had happened that cannot have happened before `earliest`.
    TooEarly {
        /// The earliest possible instant, in nanoseconds of the history.
        earliest: u64,
        /// Why it cannot have been earlier.
        why: Why,
    },
    /// One token was given to two owners.
    TokenTwice,
    /// One name was given to two sessions.
    SessionTwice,
    /// A grant or a session ended twice.
    EndedTwice,
    /// A token was used that cannot have been granted.
    GrantedToNobody,
    /// A request failed because another owner held the lock, but no other owner can have held it.
    HeldByNobody,
    /// The lock was granted first to a request that was sent later.
    OutOfTurn,
    /// The answer does not fit the request.
    NoAnswer,
}

/// Why something did not happen earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A grant with a smaller token, or with the same, was requested only then.
    Asked,
    /// A lease lasted at least until then.
    Leased,
    /// The lock or the session was still used then.
    Used,
    /// A write with a smaller token was accepted then.
    Written,
}
