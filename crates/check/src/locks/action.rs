//! What is asked of locks and sessions, and of writes that a lock guards.

use crate::history::{Key, Value};

/// For how long a lock is held if it is not released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// So many milliseconds from the grant or the last renewal.
    Lease(u32),
    /// As long as this session lasts.
    Session(Key),
}

/// What was asked of a lock, or of a session. The operation's key names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockAction {
    /// Asks for a lock (`LOCK`); answered by [`Answer::Token`](crate::Answer::Token). An owner that holds it has its
    /// token again, and its lease begins anew.
    Acquire {
        /// For whom.
        owner: Value,
        /// For how long.
        hold: Hold,
        /// Whether the request waits for its turn, for a while, where another one holds the lock.
        waits: bool,
    },
    /// The lease begins anew and has this length (`LOCK.RENEW`); answered by
    /// [`Answer::Applied`](crate::Answer::Applied).
    Renew {
        /// The token of the grant.
        token: u64,
        /// The length.
        lease_ms: u32,
    },
    /// Gives a lock back (`UNLOCK`); answered by [`Answer::Applied`](crate::Answer::Applied).
    Release {
        /// The token of the grant.
        token: u64,
    },
    /// Begins a session (`LOCK.SESSION OPEN`); answered by [`Answer::Session`](crate::Answer::Session). The operation's
    /// key means nothing.
    OpenSession {
        /// It ends by itself this long after it was opened or renewed last.
        lease_ms: u32,
    },
    /// The session's lease begins anew (`LOCK.SESSION RENEW`); answered by [`Answer::Applied`](crate::Answer::Applied).
    RenewSession,
    /// Ends a session, and frees what is held under it (`LOCK.SESSION CLOSE`); answered by
    /// [`Answer::Applied`](crate::Answer::Applied).
    CloseSession,
}

impl LockAction {
    /// The action's name in JSON Lines and in words.
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

/// A write takes effect only with the newest token of a lock (`SET ... FENCE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The lock.
    pub lock: Key,
    /// The token that the write carries.
    pub token: u64,
    /// The write was refused because its token is not the newest (`FENCED`), and for no other reason. Its outcome is
    /// [`Outcome::Failed`](crate::Outcome::Failed) then.
    pub is_refused: bool,
}
