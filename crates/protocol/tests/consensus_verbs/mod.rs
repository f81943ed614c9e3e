//! The verbs of the golden scripts of `consensus`.

use protocol::contract::NodeId;

/// What a script can say. Nothing leaves a node before it is flushed: a turn is one or more inputs and a flush.
#[derive(goldenscript::Command)]
pub(crate) enum Verb {
    /// Makes a group of `n` nodes and lets it elect its leader, unless `fresh=true`: node 2 of three, node 4 of
    /// five.
    Cluster {
        #[arg(key)]
        n: NodeId,
        /// So many nodes besides, which are in no group yet and not started.
        #[arg(key, optional)]
        spares: NodeId,
        /// `log` or `off`.
        #[arg(key)]
        lease: Option<String>,
        #[arg(key)]
        reads: Option<String>,
        /// Bytes of log that each node keeps in memory.
        #[arg(key)]
        log: Option<usize>,
        /// Bytes of a copy's chunk.
        #[arg(key)]
        chunk: Option<usize>,
        /// Bytes that wait to be committed.
        #[arg(key)]
        uncommitted: Option<usize>,
        #[arg(key, optional)]
        fresh: bool,
        /// A fault to be shown.
        #[arg(key)]
        plant: Option<String>,
    },
    /// From now on disks are synced at the end of each turn (`auto`), or when the script says so (`manual`).
    Disks { how: String },
    /// Heartbeats and positions are told from now on (`on`), or only `positions`, or neither (`off`). They are sent all the
    /// same, and heartbeats delivered.
    Heartbeats { how: String },
    /// A node's disk is synced: what waited for it leaves.
    Sync { node: NodeId },
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
    /// A client asks for a lock; with `wait` it stands in the queue, as that request of the node `at`.
    Acquire {
        node: NodeId,
        name: String,
        owner: String,
        #[arg(key)]
        ms: Option<u64>,
        #[arg(key)]
        wait: Option<u64>,
        #[arg(key)]
        at: Option<NodeId>,
        #[arg(key)]
        client: Option<String>,
    },
    /// A client lets a lease begin anew.
    Renew { node: NodeId, name: String, token: u64, ms: u64 },
    /// A client gives a lock back.
    Unlock { node: NodeId, name: String, token: u64 },
    /// A client asks how a lock stands.
    Info { node: NodeId, name: String },
    /// A client sets a key that a lock guards.
    Fenced { node: NodeId, key: String, value: String, name: String, token: u64 },
    /// A node's link to another one goes down, as far as it knows.
    Unlink { node: NodeId, peer: NodeId },
    /// So many writes of the keys a, b and c, one after the other; nothing of it is told.
    Fill { node: NodeId, writes: u64 },
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
    /// Delivers the letters under way that fit, each receiver in one turn.
    Deliver {
        #[arg(key)]
        from: Option<NodeId>,
        #[arg(key)]
        to: Option<NodeId>,
        #[arg(key)]
        kind: Option<String>,
        #[arg(key)]
        n: Option<usize>,
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
    /// Time passes, in steps of a round of heartbeats: after each, every node that does not sleep has a turn. With
    /// `quiet=true` all is delivered too, and acknowledgements are not told.
    Advance {
        duration: String,
        #[arg(key, optional)]
        quiet: bool,
    },
    /// A node is stopped for a while: it takes nothing and its timers rest.
    Sleep { node: NodeId },
    /// It goes on.
    Awake { node: NodeId },
    /// A link goes `down`, with all that is under way on it, or `up`.
    Link { ends: String, state: String },
    /// A node stops, and loses what was not synced, but for the first few records if told. Its peers hear
    /// that their links are down.
    Crash {
        node: NodeId,
        #[arg(key)]
        keeps: Option<u64>,
    },
    /// A crashed node starts with what its disk holds.
    Start { node: NodeId },
    /// A crashed node's disk is replaced by an empty one.
    Wipe { node: NodeId },
    /// The control group tells a node, or all that run, who is to make up the group: `members=1,2,3`. A spare node starts.
    Configure {
        #[arg(key)]
        node: Option<NodeId>,
        #[arg(key)]
        epoch: u64,
        #[arg(key)]
        members: String,
    },
    /// What a node's disk holds is kept elsewhere.
    Backup { node: NodeId },
    /// A crashed node's disk holds again what was kept.
    Rollback { node: NodeId },
    /// A node writes a checkpoint whole, and forgets the records before it.
    Checkpoint { node: NodeId },
    /// How a node, or each, stands.
    Status { node: Option<NodeId> },
    /// What each node's table holds, with versions and deadlines, and whether all tables are equal.
    Table,
    /// Flushes and delivers until nothing is under way.
    Stabilize,
}
