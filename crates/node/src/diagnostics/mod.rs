//! What a node tells those who run it: lines of its log, slow commands, and spans of requests.

pub(crate) mod hot_keys;
pub(crate) mod log;
pub(crate) mod slow;
pub(crate) mod spans;
