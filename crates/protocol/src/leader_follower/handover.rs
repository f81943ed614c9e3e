//! What a leader knows of its handover: see `leader/handover.rs`.

use crate::contract::NodeId;
use kv::Version;

/// A handover that a leader has begun in its epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handover {
    pub(super) to: NodeId,
    /// The last offset that the leader assigned in its epoch.
    pub(super) head: Version,
    /// When it has taken too long, or, after the leader has resigned, when to ask the control group again.
    pub(super) due_us: u64,
    /// Whether the leader may answer nothing more in its epoch.
    pub(super) has_resigned: bool,
}
