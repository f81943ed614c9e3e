//! What a node writes to its log's folder, and why it cannot start with what is there.

pub(crate) mod journal;
pub(crate) mod start_error;
