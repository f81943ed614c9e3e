//! The verbs of the golden scripts.

use protocol::contract::NodeId;

/// What a script can say. Nothing leaves a node before it is flushed: a turn is one or more inputs and a flush.
#[derive(goldenscript::Command)]
pub(crate) enum Verb {
    /// Makes a group of `n` nodes, led by node 1 in epoch 1, and lets it settle, unless `fresh=true`.
    Cluster {
        #[arg(key)]
        n: NodeId,
        #[arg(key)]
        acks: String,
        #[arg(key)]
        reads: Option<String>,
        /// With `durability=fsync` replicas tell records, and what is not synced is lost in a crash.
        #[arg(key)]
        durability: Option<String>,
        /// With `lease=manual` nobody has a lease before the script gives one.
        #[arg(key)]
        lease: Option<String>,
        /// Values of at least so many bytes are kept outside the tables, each node's in a store of its own.
        #[arg(key)]
        spill: Option<usize>,
        /// Bytes of history that each node keeps.
        #[arg(key)]
        backlog: Option<usize>,
        /// Bytes of history kept beyond that for a snapshot under way.
        #[arg(key)]
        resync_backlog: Option<usize>,
        /// Milliseconds between messages to a follower that nobody waits for.
        #[arg(key)]
        lazy_send: Option<u64>,
        /// Bytes under way to a follower.
        #[arg(key)]
        window: Option<usize>,
        /// Bytes that wait for followers.
        #[arg(key)]
        uncommitted: Option<usize>,
        /// Bytes of a snapshot's chunk.
        #[arg(key)]
        chunk: Option<usize>,
        /// Chunks under way.
        #[arg(key)]
        chunks: Option<u32>,
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
    /// A client adds 1 to a key.
    Incr {
        node: NodeId,
        key: String,
        #[arg(key)]
        client: Option<String>,
    },
    /// A client waits until so many followers hold everything written until now.
    Wait {
        node: NodeId,
        count: u32,
        #[arg(key)]
        client: Option<String>,
        #[arg(key)]
        timeout: Option<u64>,
    },
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
    /// Loses the letters that fit; with `n`, only so many of them.
    Drop {
        #[arg(key)]
        from: Option<NodeId>,
        #[arg(key)]
        to: Option<NodeId>,
        #[arg(key)]
        kind: Option<String>,
        #[arg(key)]
        n: Option<usize>,
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
    /// Time passes: both clocks move on, then every node has a turn.
    Advance { duration: String },
    /// A node, or each, has a turn in which nothing but time is new.
    Tick { node: Option<NodeId> },
    /// A link goes `down`, with all that is under way on it, or `up`. With `hint=false` nobody is told.
    Link {
        ends: String,
        state: String,
        #[arg(key)]
        hint: Option<bool>,
    },
    /// Nodes say whether they reach each other: all, both ends of a link, or with `at` one of them.
    Reach {
        state: String,
        #[arg(key)]
        ends: Option<String>,
        #[arg(key)]
        at: Option<NodeId>,
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
    /// A crashed node starts with what its disk holds; a leader needs a new epoch.
    ///
    /// With `distrusted=true` the replica is told that its records may be lost in part.
    Restart {
        node: NodeId,
        #[arg(key, optional)]
        distrusted: bool,
        #[arg(key)]
        epoch: Option<u64>,
    },
    /// The control group says something new, to all or to one node. What is not named stays as it is.
    Configure {
        #[arg(key)]
        epoch: Option<u64>,
        #[arg(key)]
        leader: Option<NodeId>,
        #[arg(key)]
        in_sync: Option<String>,
        #[arg(key)]
        members: Option<String>,
        #[arg(key)]
        to: Option<NodeId>,
    },
    /// A node gets a lease for so long from now.
    Lease { node: NodeId, duration: String },
    /// Everything that a node, or each, has recorded is durable.
    Sync { node: Option<NodeId> },
    /// A node writes a whole checkpoint, or with `n` so many records of it.
    Checkpoint {
        node: NodeId,
        #[arg(key)]
        n: Option<usize>,
        #[arg(key)]
        chunk: Option<usize>,
    },
    /// A node's store has read the values for which its copies wait.
    Values { node: NodeId },
    /// What each node's store holds.
    Stored,
    /// A crashed node's disk is lost.
    Wipe { node: NodeId },
    /// How a node, or each, stands.
    Status { node: Option<NodeId> },
    /// What each node's table holds, with versions and deadlines, and whether all tables are equal.
    Table,
    /// Flushes and delivers until nothing is under way.
    Stabilize,
}
