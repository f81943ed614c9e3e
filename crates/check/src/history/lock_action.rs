//! Operations on locks and sessions, and fences of writes.

use super::{Key, Value};

/// How long a lock is held if it is not released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// This many milliseconds from the grant or the last renewal.
    Lease(u32),
    /// As long as this session lasts.
    Session(Key),
}

/// An operation on a lock or a session, which the operation's key names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockAction {
    /// Requests a lock (`LOCK`); answered by [`Answer::Token`](crate::Answer::Token). An owner that already holds it
    /// gets the same token, and its lease restarts.
    Acquire {
        /// The owner.
        owner: Value,
        /// How long the lock is held.
        hold: Hold,
        /// Whether the request waits for a while if another owner holds the lock.
        waits: bool,
    },
    /// Restarts the lease, with a new length (`LOCK.RENEW`); answered by [`Answer::Applied`](crate::Answer::Applied).
    Renew {
        /// The token of the grant.
        token: u64,
        /// The new length, in milliseconds.
        lease_ms: u32,
    },
    /// Releases a lock (`UNLOCK`); answered by [`Answer::Applied`](crate::Answer::Applied).
    Release {
        /// The token of the grant.
        token: u64,
    },
    /// Opens a session (`LOCK.SESSION OPEN`); answered by [`Answer::Session`](crate::Answer::Session). The
    /// operation's key has no meaning.
    OpenSession {
        /// The session ends by itself this many milliseconds after it was opened or last renewed.
        lease_ms: u32,
    },
    /// Restarts the session's lease (`LOCK.SESSION RENEW`); answered by [`Answer::Applied`](crate::Answer::Applied).
    RenewSession,
    /// Ends a session, and releases what is held under it (`LOCK.SESSION CLOSE`); answered by
    /// [`Answer::Applied`](crate::Answer::Applied).
    CloseSession,
}

impl LockAction {
    /// Returns the action's name in JSON Lines and in texts.
    pub fn name(&self) -> &'static str {
        match self {
            LockAction::Acquire { .. } => "acquire",
            LockAction::Renew { .. } => "renew",
            LockAction::Release { .. } => "release",
            LockAction::OpenSession { .. } => "open-session",
            LockAction::RenewSession => "renew-session",
            LockAction::CloseSession => "close-session",
        }
    }
}

/// The fence of a write, which takes effect only with the newest token of a lock (`SET ... FENCE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The lock whose token is required.
    pub lock: Key,
    /// The token that the write carries.
    pub token: u64,
    /// Whether the write was refused because its token is not the newest (`FENCED`), and for no other reason. Its
    /// outcome is then [`Outcome::Failed`](crate::Outcome::Failed).
    pub is_refused: bool,
}
