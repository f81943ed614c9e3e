//! The verbs that the golden scripts of all protocols have.

use protocol::contract::NodeId;

/// What a script can say. Nothing leaves a node before it is flushed: a turn is one or more inputs and a flush.
#[derive(goldenscript::Command)]
pub(crate) enum Verb {
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
    /// A client asks a node for several keys' values.
    Mget {
        node: NodeId,
        keys: Vec<String>,
        #[arg(key)]
        client: Option<String>,
    },
    /// A client asks a node how many of some keys there are.
    Exists { node: NodeId, keys: Vec<String> },
    /// A client asks a node for the milliseconds that a key has left.
    Pttl { node: NodeId, key: String },
    /// A client asks a node to delete keys.
    Del {
        node: NodeId,
        keys: Vec<String>,
        #[arg(key)]
        client: Option<String>,
    },
    /// A client adds 1 to a key.
    Incr {
        node: NodeId,
        key: String,
        #[arg(key)]
        client: Option<String>,
    },
    /// A client asks a node to remove all keys.
    Flushall { node: NodeId },
    /// A client asks a node for the keys that it holds.
    Keys { node: NodeId },
    /// A client waits until so many other replicas hold everything written until now; one when it is not said how many.
    Wait {
        node: NodeId,
        count: Option<u32>,
        #[arg(key)]
        client: Option<String>,
        #[arg(key)]
        timeout: Option<u64>,
    },
    /// Ends the turn of a node, or of all.
    Flush { node: Option<NodeId> },
    /// A node, or each, has a turn in which nothing but time is new.
    Tick { node: Option<NodeId> },
    /// Time passes: all clocks move on, then every node has a turn.
    Advance { duration: String },
    /// A node's wall clock is set ahead of the others', in milliseconds.
    Clock { node: NodeId, ahead: i64 },
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
    /// Sends the letters that fit a second time, after all others.
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
        #[arg(key, optional)]
        copies: bool,
    },
    /// Puts held letters back on their way.
    Release,
    /// A link goes `down`, with all that is under way on it and not held, or `up`. With `hint=false` nobody is told.
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
    /// A crashed node starts with what is on its disk. With `silent=true` its peers are not told.
    Restart {
        node: NodeId,
        #[arg(key, optional)]
        silent: bool,
    },
    /// Everything that a node, or each, has recorded is durable: what waits for that leaves.
    Sync { node: Option<NodeId> },
    /// A node writes a whole checkpoint.
    Checkpoint { node: NodeId },
    /// A copy of a node's disk is put aside.
    Backup { node: NodeId },
    /// A crashed node's disk is lost; it gets an empty one.
    Wipe { node: NodeId },
    /// A crashed node's disk holds again what was put aside; without that it is empty.
    Rollback { node: NodeId },
    /// How a node, or each, stands.
    Status { node: Option<NodeId> },
    /// What each node's table holds, and whether all tables are equal.
    Table,
    /// Flushes and delivers until nothing is under way.
    Stabilize,
}
