//! What nodes send each other.

pub(crate) mod envelope;
pub(crate) mod transfer;
