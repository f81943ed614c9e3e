//! What a client is as a replica of Redis.

/// What a replica of Redis has said of itself (`REPLCONF`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReplicaWishes {
    /// It takes copies that end with a mark. Others are preceded by their length.
    pub(crate) takes_mark: bool,
    /// It wants a copy of all keys, and no changes after it.
    pub(crate) wants_only_copy: bool,
    /// It has asked for a copy, or for changes: it must have the right to them as long as it is connected.
    pub(crate) is_one: bool,
}
