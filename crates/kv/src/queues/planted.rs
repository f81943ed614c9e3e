//! The faults that can be planted in queues, and in what is taken at random: see [`crate::planted`].

/// The absence of one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// What was served and not claimed is forgotten when the node is gone or the request withdrawn.
    ServedForgotten,
    /// What was claimed goes back when the node seems gone, though a client may have it.
    ClaimedGivenBack,
    /// What goes back to a list goes to the other end.
    GivenBackBehind,
    /// A member that is taken from a set at random is drawn from what this replica happened to read.
    DrawnApart,
}

/// The fault that is planted in queues, if any.
pub type Planted = crate::planted::Planted<Fault>;
