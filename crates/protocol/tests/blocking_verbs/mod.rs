//! The verbs of the golden scripts of `blocking`.

use protocol::contract::NodeId;

/// What a script can say. Nothing leaves a node before it is flushed: a turn is one or more inputs and a flush.
#[derive(goldenscript::Command)]
pub(crate) enum Verb {
    /// Makes a group of `n` nodes that begins.
    Cluster {
        #[arg(key)]
        n: NodeId,
        /// With `durability=fsync` replicas keep records, and what is not synced is lost in a crash.
        #[arg(key)]
        durability: Option<String>,
        /// `none`, or `backoff` when not told.
        #[arg(key)]
        retry: Option<String>,
        /// A fault by its name.
        #[arg(key)]
        planted: Option<String>,
        /// Milliseconds that a lock lasts.
        #[arg(key)]
        lease: Option<u64>,
        /// Milliseconds between the looks that replicas take at each other's keys: never, when not told.
        #[arg(key)]
        sweep: Option<u64>,
    },
    /// A client asks a node to set a key, for so many milliseconds if told.
    Set {
        node: NodeId,
        key: String,
        value: String,
        #[arg(key)]
        client: Option<String>,
        #[arg(key)]
        expires: Option<i64>,
        /// Milliseconds that the client waits.
        #[arg(key)]
        timeout: Option<u64>,
    },
    /// A client asks a node for a key's value.
    Get {
        node: NodeId,
        key: String,
        #[arg(key)]
        client: Option<String>,
        #[arg(key)]
        timeout: Option<u64>,
    },
    /// A client deletes keys.
    Del {
        node: NodeId,
        keys: Vec<String>,
        #[arg(key)]
        client: Option<String>,
    },
    /// A client asks for several keys.
    Mget {
        node: NodeId,
        keys: Vec<String>,
        #[arg(key)]
        client: Option<String>,
    },
    /// A client asks to add 1 to a key.
    Incr { node: NodeId, key: String },
    /// A client asks how many replicas hold its writes.
    Wait { node: NodeId },
    /// Ends the turn of a node, or of all.
    Flush { node: Option<NodeId> },
    /// Delivers the letters under way that fit, each receiver in one turn. `order=reverse`: the last sent first.
    Deliver {
        #[arg(key)]
        from: Option<NodeId>,
        #[arg(key)]
        to: Option<NodeId>,
        #[arg(key)]
        kind: Option<String>,
        #[arg(key)]
        n: Option<usize>,
        #[arg(key)]
        order: Option<String>,
    },
    /// Loses the letters that fit.
    Drop {
        #[arg(key)]
        from: Option<NodeId>,
        #[arg(key)]
        to: Option<NodeId>,
        #[arg(key)]
        kind: Option<String>,
    },
    /// Sends the letters that fit a second time.
    Duplicate {
        #[arg(key)]
        from: Option<NodeId>,
        #[arg(key)]
        to: Option<NodeId>,
        #[arg(key)]
        kind: Option<String>,
    },
    /// Keeps the letters that fit back until `release`. With `copies=true` keeps copies of them.
    Hold {
        #[arg(key)]
        from: Option<NodeId>,
        #[arg(key)]
        to: Option<NodeId>,
        #[arg(key)]
        kind: Option<String>,
        #[arg(key)]
        copies: Option<bool>,
    },
    /// Puts held letters back on their way.
    Release,
    /// Time passes, then every node has a turn.
    Advance { duration: String },
    /// A link goes `down`, with all that is under way on it, or `up`. With `hint=false` nobody is told.
    Link {
        ends: String,
        state: String,
        #[arg(key)]
        hint: Option<bool>,
    },
    /// A node stops and forgets all that is not on its disk, but for so many records that were not synced.
    Crash {
        node: NodeId,
        #[arg(key)]
        kept: Option<u64>,
    },
    /// A crashed node starts with what is on its disk.
    Restart { node: NodeId },
    /// An operator gives up what a node has forgotten and cannot get back.
    Giveup { node: NodeId },
    /// A node's disk, or each one's, has all that was written: what waits for that goes on.
    Sync { node: Option<NodeId> },
    /// How a node, or each, stands.
    Status { node: Option<NodeId> },
    /// What each node's table holds of some keys.
    Table { keys: Vec<String> },
    /// The locks that each node has granted and that last.
    Locks,
    /// Flushes, syncs and delivers until nothing is under way.
    Stabilize,
}
