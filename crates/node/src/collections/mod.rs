//! Collections of what is in memory for a time: numbered places, and recently used values.

pub(crate) mod cache;
pub(crate) mod slab;
