//! The faults that can be planted in locks: see [`crate::planted`].

/// A fault of published systems, each the absence of one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Any client that names a lock can release or renew it, whatever the token.
    FreedByNonOwner,
    /// Tokens are counted from those of the held locks: they start over when these are free.
    TokenReused,
    /// A waiting request is granted the lock under a session that has ended.
    SessionNotRechecked,
}

/// The fault that is planted in locks, if any.
pub type Planted = crate::planted::Planted<Fault>;
