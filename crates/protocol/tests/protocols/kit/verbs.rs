//! The verbs that the golden scripts of all protocols have.

use protocol::contract::NodeId;

/// The common verbs. Nothing leaves a node before it is flushed: a turn is one or more inputs and a flush.
#[derive(goldenscript::Command)]
pub(crate) enum Verb {
    /// A client requests that a node set a key, for the given number of milliseconds if there is one.
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
    /// A client requests a key's value from a node.
    Get {
        node: NodeId,
        key: String,
        #[arg(key)]
        client: Option<String>,
        #[arg(key)]
        timeout: Option<u64>,
    },
    /// A client requests several keys' values from a node.
    Mget {
        node: NodeId,
        keys: Vec<String>,
        #[arg(key)]
        client: Option<String>,
    },
    /// A client requests from a node how many of some keys exist.
    Exists { node: NodeId, keys: Vec<String> },
    /// A client requests from a node the milliseconds that a key has left.
    Pttl { node: NodeId, key: String },
    /// A client requests that a node delete keys.
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
    /// A client requests that a node remove all keys.
    Flushall { node: NodeId },
    /// A client requests the keys that a node holds.
    Keys { node: NodeId },
    /// A client waits until a number of other replicas hold everything written so far; by default one.
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
    /// A node, or each node, has a turn in which only the time is new.
    Tick { node: Option<NodeId> },
    /// Time passes: all clocks advance, then every node has a turn.
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
    /// Loses the letters that fit; with `n`, only that many of them.
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
    /// Keeps back the letters that fit until `release`. With `copies=true` keeps copies of them.
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
    /// A link goes `down`, with all that is under way on it and not held, or `up`. With `hint=false` no node is
    /// notified.
    Link {
        ends: String,
        state: String,
        #[arg(key)]
        hint: Option<bool>,
    },
    /// Nodes are notified that they reach each other, or do not: all nodes, both ends of a link, or with `at` one of
    /// them.
    Reach {
        state: String,
        #[arg(key)]
        ends: Option<String>,
        #[arg(key)]
        at: Option<NodeId>,
    },
    /// A node vouches for itself: all others hear that it is alive and busy.
    Vouch { node: NodeId },
    /// A node stops and forgets all that is not on its disk, except for the given number of records that were not
    /// synced. With `silent=true` its peers are not notified.
    Crash {
        node: NodeId,
        #[arg(key)]
        kept: Option<u64>,
        #[arg(key, optional)]
        silent: bool,
    },
    /// A crashed node starts with what is on its disk. With `silent=true` its peers are not notified.
    Restart {
        node: NodeId,
        #[arg(key, optional)]
        silent: bool,
    },
    /// Everything that a node, or each node, has recorded becomes durable: what waits for that leaves.
    Sync { node: Option<NodeId> },
    /// A node writes a whole checkpoint.
    Checkpoint { node: NodeId },
    /// A copy of a node's disk is put aside.
    Backup { node: NodeId },
    /// A crashed node's disk is lost; it gets an empty one.
    Wipe { node: NodeId },
    /// A crashed node's disk is restored from the copy put aside; without a copy it is empty.
    Rollback { node: NodeId },
    /// Shows the status of a node, or of each.
    Status { node: Option<NodeId> },
    /// Shows what each node's table holds, and whether all tables are equal.
    Table,
    /// Flushes and delivers until nothing is under way.
    Stabilize,
}
