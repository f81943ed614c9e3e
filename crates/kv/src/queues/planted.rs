//! The faults that can be planted in queues: see [`crate::planted`].

/// The absence of one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// What was served and not claimed is forgotten when the node is gone or the request withdrawn.
    ServedForgotten,
    /// What was claimed goes back when the node seems gone, though a client may have it.
    ClaimedGivenBack,
}

/// The fault that is planted in queues, if any.
pub type Planted = crate::planted::Planted<Fault>;
