//! Known faults that a test can plant in the locks, to show that tests and simulator find them.
//!
//! Without the feature `planted-bugs` nothing can be planted: [`Planted::has`] is false and the branches behind it are not
//! compiled in.

/// A fault of published systems, each the absence of one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Whoever names a lock can release or renew it, whatever the token.
    FreedByNonOwner,
    /// Tokens are counted from those of the locks that are held: they begin again when these are free.
    TokenReused,
    /// A request that has waited is granted the lock under a session that is over.
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

    /// True when this fault is planted.
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
