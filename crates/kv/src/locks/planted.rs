//! Planted faults of locks, to show that tests and simulator find them.
//!
//! Without the feature `planted-bugs` no fault can be planted: [`Planted::has`] returns false and the branches behind
//! it are not compiled in.

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

/// The fault that is planted, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted {
    #[cfg(feature = "planted-bugs")]
    fault: Option<Fault>,
}

impl Planted {
    /// Plants one fault.
    #[cfg(feature = "planted-bugs")]
    pub fn one(fault: Fault) -> Planted {
        Planted { fault: Some(fault) }
    }

    /// Whether this fault is planted.
    #[inline]
    pub fn has(self, fault: Fault) -> bool {
        #[cfg(feature = "planted-bugs")]
        return self.fault == Some(fault);
        #[cfg(not(feature = "planted-bugs"))]
        {
            let _ = fault;
            false
        }
    }
}
