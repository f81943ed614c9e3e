//! The verbs of the golden scripts of abd.

use protocol::contract::NodeId;

/// What a script can say. Nothing leaves a node before it is flushed: a turn is one or more inputs and a flush.
#[derive(goldenscript::Command)]
pub(crate) enum Verb {
    /// Makes a group of `n` nodes and lets it settle, unless `fresh=true`.
    Cluster {
        #[arg(key)]
        n: NodeId,
        /// With `durability=fsync` replicas keep records, and what is not synced is lost in a crash.
        #[arg(key)]
        durability: Option<String>,
        /// Milliseconds between sweeps; without it there are none.
        #[arg(key)]
        sweep: Option<u64>,
        /// Bytes of a copy's chunk, and chunks under way.
        #[arg(key)]
        chunk: Option<usize>,
        #[arg(key)]
        chunks: Option<usize>,
        /// Bytes sent to a member that is not heard.
        #[arg(key)]
        window: Option<usize>,
        /// A fault of `protocol::planted::Fault`.
        #[arg(key)]
        planted: Option<String>,
        #[arg(key, optional)]
        fresh: bool,
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
    /// A client asks a node for several keys' values; keys are told like a,b.
    Mget { node: NodeId, keys: String },
    /// A client asks a node how many of some keys there are.
    Exists { node: NodeId, keys: String },
    /// A client asks a node for the milliseconds that a key has left.
    Pttl { node: NodeId, key: String },
    /// A client asks a node to delete keys.
    Del {
        node: NodeId,
        keys: String,
        #[arg(key)]
        client: Option<String>,
    },
    /// A client adds 1 to a key.
    Incr { node: NodeId, key: String },
    /// A client asks a node to remove all keys.
    Flushall { node: NodeId },
    /// A client asks a node for the keys that it holds.
    Keys { node: NodeId },
    /// A client asks a node how many others hold what it has written.
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
    /// Keeps the letters that fit back until `release`.
    Hold {
        #[arg(key)]
        from: Option<NodeId>,
        #[arg(key)]
        to: Option<NodeId>,
        #[arg(key)]
        kind: Option<String>,
    },
    /// Puts held letters back on their way.
    Release,
    /// Time passes: all clocks move on, then every node has a turn.
    Advance { duration: String },
    /// A node's wall clock is set ahead of the others', in milliseconds.
    Clock { node: NodeId, ahead: i64 },
    /// A link goes `down`, with all that is under way on it, or `up`. With `hint=false` nobody is told.
    Link {
        ends: String,
        state: String,
        #[arg(key)]
        hint: Option<bool>,
    },
    /// A node stops and forgets all that is not on its disk, but for so many records that were not synced. With
    /// `silent=true` its peers are not told.
    Crash {
        node: NodeId,
        #[arg(key)]
        kept: Option<u64>,
        #[arg(key, optional)]
        silent: bool,
    },
    /// A crashed node starts with what is on its disk. With `lost_disk=true` that is lost, or what it was when a copy was
    /// put aside.
    Restart {
        node: NodeId,
        #[arg(key, optional)]
        lost_disk: bool,
    },
    /// An operator gives up what a node has forgotten and cannot get back.
    Giveup { node: NodeId },
    /// How a node, or each, stands.
    Status { node: Option<NodeId> },
    /// What each node's table holds, with tags, and whether all tables are equal.
    Table,
    /// A node's disk, or each one's, has all that was written: what waits for that goes on.
    Sync { node: Option<NodeId> },
    /// A node writes a checkpoint.
    Checkpoint { node: NodeId },
    /// A copy of a node's disk is put aside.
    Backup { node: NodeId },
    /// Flushes, syncs and delivers until nothing is under way.
    Stabilize,
}
