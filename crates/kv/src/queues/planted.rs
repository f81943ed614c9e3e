//! Planted faults of queues, to show that tests and simulator find them.
//!
//! Without the feature `planted-bugs` no fault can be planted: [`Planted::has`] returns false and the branches behind
//! it are not compiled in.

/// The absence of one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// What was served and not claimed is forgotten when the node is gone or the request withdrawn.
    ServedForgotten,
    /// What was claimed goes back when the node seems gone, though a client may have it.
    ClaimedGivenBack,
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
