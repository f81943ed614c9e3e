//! What a node's own texts, `INFO` and the metrics, show beyond its report.

use crate::Usage;
use crate::report::{GroupFigures, KeyspaceHealth, Report};
use cluster::{NodeAddress, ProcessFacts};
use commands::RedisVersion;
use commands::statistics::CommandStatistics;
use kv::ValueId;
use protocol::NodeId;
use wire::release::Release;

/// What `INFO` and the metrics are written from. Unknown facts keep their default, zero or empty.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// What other nodes and programs get, too.
    pub report: Report,
    /// The resources that the process uses, as last measured.
    pub usage: Usage,
    /// About the process, its machine and its cluster.
    pub server: ServerFacts,
    /// Connections.
    pub clients: ClientFacts,
    /// Memory.
    pub memory: MemoryFacts,
    /// Counters since the start.
    pub stats: StatsFacts,
    /// Locks and queues, of all groups with a replica here.
    pub locks: LockFacts,
    /// Replication of the default keyspace.
    pub replication: ReplicationFacts,
    /// Values that are kept as fragments.
    pub coding: CodingFacts,
    /// Large values on the disk.
    pub values: ValueFacts,
    /// Counters of commands and errors.
    pub commands: CommandStatistics,
    /// What `LASTSAVE` returns, in milliseconds.
    pub saved_ms: u64,
    /// Whether the node is still loading its data.
    pub loading: bool,
    /// How many bytes of log can still be written, the reserve included; and how many commands were refused
    /// for lack of room.
    pub disk_ready_bytes: u64,
    /// See [`Facts::disk_ready_bytes`].
    pub disk_refused: u64,
}

impl Facts {
    /// The host and the port at which clients reach a node.
    pub fn address_of(&self, id: NodeId) -> (&str, u16) {
        let node = self.server.nodes.iter().find(|node| node.id == id);
        node.map_or(("", 0), |node| (&node.host, node.client_port))
    }

    /// The state of the default keyspace here; of its first shard.
    pub fn default_keyspace(&self) -> KeyspaceHealth {
        let mut shards = self.report.health.keyspaces.iter();
        shards.find(|shard| shard.prefix.is_empty()).cloned().unwrap_or_default()
    }

    /// The most memory that was in use so far.
    pub fn used_peak(&self) -> u64 {
        self.usage.resident_bytes_peak.max(self.memory.used)
    }

    /// How many times what the node accounts for the process takes; 0 where nothing is in use.
    pub fn fragmentation(&self) -> f64 {
        if self.memory.used == 0 { 0.0 } else { self.report.memory.resident as f64 / self.memory.used as f64 }
    }

    /// The sum of a figure of all groups.
    pub(crate) fn sum(&self, figure: fn(&GroupFigures) -> u64) -> u64 {
        self.report.groups.iter().map(figure).sum()
    }
}

/// The process, its machine and its cluster.
#[derive(Clone, Debug, Default)]
pub struct ServerFacts {
    /// The process.
    pub process: ProcessFacts,
    /// The version of Redis that the node is configured to say; `None`: that of the cluster's level.
    pub redis_version: Option<RedisVersion>,
    /// The nodes of the cluster.
    pub nodes: Vec<NodeAddress>,
    /// The newest release that all nodes know.
    pub level_attainable: Release,
    /// Groups whose replica here stands still before a record that has ended the process.
    pub quarantined_groups: usize,
    /// The number of known wall clocks, including this node's, and whether they are a majority of all nodes'
    /// clocks.
    pub clocks_known: usize,
    /// See [`ServerFacts::clocks_known`].
    pub clocks_agree: bool,
}

/// Connections.
#[derive(Clone, Debug, Default)]
pub struct ClientFacts {
    /// The most clients at a time.
    pub connections_max: u64,
    /// Clients blocked in a command such as `WAIT`.
    pub blocked: u64,
    /// Clients that wait for a lock, and clients that wait for elements.
    pub wait_for_locks: usize,
    /// See [`ClientFacts::wait_for_locks`].
    pub wait_for_elements: usize,
    /// Keys at which clients wait for elements; and those of these where a client stops waiting when the key is gone.
    pub awaited_keys: usize,
    /// See [`ClientFacts::awaited_keys`].
    pub consumed_keys: usize,
}

/// Memory, in bytes.
#[derive(Clone, Debug, Default)]
pub struct MemoryFacts {
    /// Everything that the node accounts for.
    pub used: u64,
    /// Memory of keys and values.
    pub dataset: u64,
    /// History that is kept for replicas that return.
    pub backlog: u64,
    /// The most that the default keyspace may use, 0: no limit; and which of its keys are evicted, in Redis's
    /// words.
    pub keyspace_max: u64,
    /// See [`MemoryFacts::keyspace_max`].
    pub policy: &'static str,
    /// Bytes of requests under way, as last measured.
    pub requests: u64,
    /// The number of script texts that are kept, and their bytes.
    pub scripts: (usize, usize),
}

/// Counters since the node's start, or since the last `CONFIG RESETSTAT`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Connections accepted.
    pub connections: u64,
    /// Connections refused because there were too many.
    pub rejected_connections: u64,
    /// Unauthenticated clients that were closed to make room for others.
    pub unauthenticated_closed: u64,
    /// Connections to the port for Redis clients that sent HTTP, and were closed.
    pub http_requests_refused: u64,
    /// Requests of clients.
    pub commands: u64,
    /// Requests forwarded to another node.
    pub forwarded: u64,
    /// Error replies.
    pub errors: u64,
    /// Clients closed because they did not read.
    pub output_overflows: u64,
    /// Channel messages that were dropped because too much was already under way to the peer.
    pub messages_dropped: u64,
    /// Clients that were closed for the memory that they held.
    pub memory_closed: u64,
    /// Commands that were refused for lack of memory.
    pub memory_refused: u64,
    /// Writes that were sent to their groups in parts.
    pub long_writes: u64,
    /// Replies that were sent to other nodes in parts.
    pub long_replies: u64,
    /// Requests of clients over several groups.
    pub transaction_requests: u64,
    /// Transactions over several groups that were begun for them: one may be for several requests.
    pub transactions_begun: u64,
    /// Those that were committed.
    pub transactions_committed: u64,
    /// Those of which nothing was done.
    pub transactions_refused: u64,
    /// Those whose outcome this node does not know.
    pub transactions_unknown: u64,
    /// How often one was begun again, since another one was in the way.
    pub transactions_repeated: u64,
    /// Votes on transactions of coordinators that have ended which this node has had its groups forget.
    pub votes_forgotten: u64,
    /// What clients were refused for lack of rights: to a command, a key, a channel, a database.
    pub denied: [u64; 4],
}

/// What has happened since the start, and what there is now. Calls and errors of commands are in
/// [`Facts::commands`].
#[derive(Clone, Debug, Default)]
pub struct StatsFacts {
    /// What the node counts.
    pub counters: Counters,
    /// Attempts to authenticate that failed.
    pub auth_failures: u64,
    /// Commands per second, lately.
    pub operations_per_second: u64,
    /// Snapshot transfers.
    pub full_resyncs: u64,
    /// Resyncs from the backlog.
    pub partial_resyncs: u64,
    /// What the tables have counted.
    pub counted: kv::Statistics,
    /// Parts of collections and tables that were removed and are still to be freed.
    pub untidy: u64,
    /// Requests that wait until there is a node to send them to.
    pub waiting: usize,
    /// Channels with listeners here.
    pub channels: usize,
    /// Patterns with listeners here.
    pub patterns: usize,
    /// Channels of shards with listeners here.
    pub shard_channels: usize,
    /// The numbers of clients that track, of keys that they cache, of these counted once for each client, and
    /// of prefixes.
    pub tracked: [usize; 4],
}

/// Locks, of all groups with a replica here.
#[derive(Clone, Debug, Default)]
pub struct LockFacts {
    /// Sessions that hold locks.
    pub sessions: u64,
    /// Locks that were granted.
    pub grants: u64,
    /// Leases of locks and sessions that ran out.
    pub expiries: u64,
}

/// Replication of the default keyspace.
#[derive(Clone, Debug, Default)]
pub struct ReplicationFacts {
    /// Whether this node calls itself a master.
    pub is_master: bool,
    /// The oldest offset that a partial resync can begin after.
    pub backlog_start: u64,
    /// Bytes of history held.
    pub backlog_bytes: u64,
    /// Most bytes of history held.
    pub backlog_bytes_max: u64,
    /// At a follower: whether a snapshot transfer to it is under way.
    pub is_resyncing: bool,
    /// At a follower: milliseconds since the last message from the leader.
    pub leader_silent_ms: u64,
}

/// Values that are kept as fragments.
#[derive(Clone, Debug, Default)]
pub struct CodingFacts {
    /// Whether some keyspace's values are kept so.
    pub is_on: bool,
    /// Fragments that this node's replicas keep.
    pub fragments: u64,
    /// The bytes of these fragments.
    pub fragment_bytes: u64,
    /// Values whose fragment this node's replicas should keep but do not have.
    pub lacking: u64,
    /// Whole values in the cache.
    pub cached_values: u64,
    /// The bytes of these values.
    pub cached_bytes: u64,
    /// Since the start.
    pub counters: CodingCounters,
    /// How the values were stored for which the node chose how, and the measurements behind these choices.
    pub choice: ChoiceFacts,
    /// How long the steps of the last writes took.
    pub traces: Vec<StoringTimes>,
}

/// Large values on the disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct ValueFacts {
    /// Values to which keys refer.
    pub on_disk: u64,
    /// Bytes of values that the store does not have yet.
    pub pending_bytes: u64,
    /// Bytes of values in the cache.
    pub cached_bytes: u64,
    /// Since the start.
    pub counters: ValueCounters,
}

/// Counters of values that are kept as fragments, since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct CodingCounters {
    /// Values that were stored as fragments.
    pub values_coded: u64,
    /// The values among these that are whole copies, because too few nodes answered for more parts.
    pub values_copied: u64,
    /// Attempts that were given up for one with fewer parts.
    pub fallbacks: u64,
    /// Reads of values that were in the cache.
    pub cache_hits: u64,
    /// Reads for which fragments were fetched.
    pub cache_misses: u64,
    /// Pieces with a wrong checksum or content.
    pub damaged_pieces: u64,
    /// Fragments of this node that were rebuilt, and their bytes.
    pub rebuilt: u64,
    /// See [`CodingCounters::rebuilt`].
    pub rebuilt_bytes: u64,
}

/// How values were stored for which the node chose how, and the measurements behind the choices.
#[derive(Clone, Debug, Default)]
pub struct ChoiceFacts {
    /// The ways, such as `log` or `k3`, each with the number of values that were stored in it.
    pub chosen: Vec<(String, u64)>,
    /// The measurements of each other node.
    pub peers: Vec<PeerFacts>,
    /// Bytes per second. `None`: not measured.
    pub uplink: Option<f64>,
    /// Bytes of values per second. `None`: not measured.
    pub encoding: Option<f64>,
    /// How long it takes to make a fragment durable here, in microseconds.
    pub keep_us: f64,
}

/// What was measured of another node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PeerFacts {
    /// The node.
    pub node: NodeId,
    /// Bytes per second. `None`: nothing was sent to it yet.
    pub bandwidth: Option<f64>,
    /// A round trip to it. `None`: not measured.
    pub round_trip_us: Option<f64>,
}

/// How long the steps took of storing one value as fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoringTimes {
    /// The value.
    pub id: ValueId,
    /// Its length.
    pub bytes: usize,
    /// In how many parts it was stored.
    pub parts: u8,
    /// Cutting it, checksums and copies: this node's processor time. 0: it was not measured.
    pub encode_us: u64,
    /// From the beginning until enough nodes kept their fragments; encoding is a part of it.
    pub disperse_us: u64,
    /// From there until the group had answered.
    pub order_us: u64,
}

/// Counters of large values on the disk, since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct ValueCounters {
    /// Lookups of values that were in memory.
    pub hits: u64,
    /// Lookups of values that were read from the disk.
    pub misses: u64,
    /// Values that were written to the store.
    pub stored: u64,
    /// Values that were removed from the store.
    pub removed: u64,
    /// Values and pieces of fragments that differed from what had been stored, or were missing.
    pub damaged: u64,
    /// Those of them that another replica had, or that were rebuilt.
    pub repaired: u64,
    /// Values that were scrubbed.
    pub scrubbed: u64,
    /// How many complete passes of scrubbing over all values were made.
    pub passes: u64,
}
