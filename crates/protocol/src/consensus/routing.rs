//! The properties of a request other than its content, and where it belongs.

use crate::contract::{NodeId, Ticket};
use kv::Version;

/// A request without its content.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) ticket: Ticket,
    pub(super) follows: bool,
    pub(super) seen: Version,
    pub(super) deadline_us: u64,
    /// Only the current leadership may order it.
    pub(super) fenced: bool,
}

/// Where a request belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// This replica leads and may append.
    Leads,
    /// It leads, or is about to, but may not append now: an older lease may last, or too few peers are live.
    MayNotAppend,
    /// This other replica leads.
    Follows(NodeId),
    /// No leader is known.
    Nobody,
}
