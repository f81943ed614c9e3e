//! What a node does with its groups by itself: a new map, checkpoints, evictions, and records that have crashed it.

pub(crate) mod checkpoints;
pub(crate) mod eviction;
pub(crate) mod mapping;
pub(crate) mod quarantine;
