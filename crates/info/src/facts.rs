//! What a node reports about itself.

use commands::statistics::CommandStatistics;
use kv::ValueId;
use protocol::NodeId;

/// What `INFO` reports. Unknown facts keep their default, zero or empty.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// About the process and its machine.
    pub server: ServerFacts,
    /// Connections.
    pub clients: ClientFacts,
    /// Memory.
    pub memory: MemoryFacts,
    /// Counters since the start.
    pub stats: StatsFacts,
    /// Locks, of all groups with a replica here.
    pub locks: LockFacts,
    /// Replication of the default keyspace.
    pub replication: ReplicationFacts,
    /// Processor time.
    pub cpu: CpuFacts,
    /// Values that are kept as fragments.
    pub coding: CodingFacts,
    /// Large values on the disk.
    pub values: ValueFacts,
    /// All keyspaces.
    pub keyspaces: Vec<KeyspaceFacts>,
    /// Counters of commands and errors.
    pub commands: CommandStatistics,
    /// What `LASTSAVE` returns, in milliseconds.
    pub saved_ms: u64,
    /// Whether the node is still loading its data.
    pub loading: bool,
    /// Whether the disk has no room but the reserve; how many bytes of log can still be written; and how many commands
    /// were refused for lack of room.
    pub disk_is_full: bool,
    /// See [`Facts::disk_is_full`].
    pub disk_ready_bytes: u64,
    /// See [`Facts::disk_is_full`].
    pub disk_refused: u64,
}

/// The process and its machine.
#[derive(Clone, Debug, Default)]
pub struct ServerFacts {
    /// The operating system.
    pub os: String,
    /// The process's number.
    pub process_id: u32,
    /// 40 hexadecimal digits drawn at the start.
    pub run_id: String,
    /// The port for Redis clients.
    pub tcp_port: u16,
    /// Microseconds since the Unix epoch.
    pub unix_us: u64,
    /// How the machine's wall clock compares with the other nodes'.
    pub clock: ClockFacts,
    /// Seconds since the start.
    pub uptime_seconds: u64,
    /// The program's path.
    pub executable: String,
    /// The configuration file's path.
    pub config_file: String,
    /// The system interface that the event loop waits on, such as `epoll`.
    pub multiplexing_api: String,
    /// The release of this program, and the cluster's level.
    pub release: u16,
    /// See [`ServerFacts::release`].
    pub level: u16,
    /// This node's number.
    pub node: u64,
    /// The cluster's name.
    pub cluster: String,
    /// The number of nodes in the cluster.
    pub nodes: usize,
}

/// Connections.
#[derive(Clone, Debug, Default)]
pub struct ClientFacts {
    /// Clients connected now.
    pub connected: u64,
    /// The most clients at a time.
    pub connections_max: u64,
    /// Clients blocked in a command such as `WAIT`.
    pub blocked: u64,
    /// Clients that get invalidations.
    pub tracking: usize,
}

/// Memory, in bytes.
#[derive(Clone, Debug, Default)]
pub struct MemoryFacts {
    /// Everything that the node accounts for.
    pub used: u64,
    /// The highest `used` so far.
    pub used_peak: u64,
    /// Memory of keys and values.
    pub dataset: u64,
    /// History that is kept for replicas that return.
    pub backlog: u64,
    /// The process's resident memory.
    pub resident: u64,
    /// The machine's memory.
    pub machine: u64,
    /// The most that the default keyspace may use, 0: no limit; and which of its keys are evicted, in Redis's words.
    pub keyspace_max: u64,
    /// See [`MemoryFacts::keyspace_max`].
    pub policy: &'static str,
    /// The most that the process may use, 0: no limit; and the part of it that data may use.
    pub bytes_max: u64,
    /// See [`MemoryFacts::bytes_max`].
    pub data_max: u64,
    /// Memory of clients, of data, and bytes of requests under way, as last measured.
    pub clients: u64,
    /// See [`MemoryFacts::clients`].
    pub data: u64,
    /// See [`MemoryFacts::clients`].
    pub requests: u64,
    /// Whether data may not grow.
    pub is_full: bool,
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
}

/// What has happened since the start, and what there is now. Calls and errors of commands are in [`Facts::commands`].
#[derive(Clone, Debug, Default)]
pub struct StatsFacts {
    /// What the node counts.
    pub counters: Counters,
    /// Attempts to authenticate that failed.
    pub auth_failures: u64,
    /// Commands per second, lately.
    pub operations_per_second: u64,
    /// Bytes from clients.
    pub input_bytes: u64,
    /// Bytes to clients.
    pub output_bytes: u64,
    /// Bytes from other nodes.
    pub replication_input_bytes: u64,
    /// Bytes to other nodes.
    pub replication_output_bytes: u64,
    /// Snapshot transfers.
    pub full_resyncs: u64,
    /// Resyncs from the backlog.
    pub partial_resyncs: u64,
    /// Keys that have expired.
    pub expired_keys: u64,
    /// Keys removed for a bound on memory.
    pub evicted_keys: u64,
    /// Lookups of keys that existed.
    pub keyspace_hits: u64,
    /// Lookups of keys that did not exist.
    pub keyspace_misses: u64,
    /// Requests that wait until there is a node to send them to.
    pub waiting: usize,
    /// Channels with listeners here.
    pub channels: usize,
    /// Patterns with listeners here.
    pub patterns: usize,
    /// Channels of shards with listeners here.
    pub shard_channels: usize,
    /// The numbers of clients that track, of keys that they cache, of these counted once for each client, and of prefixes.
    pub tracked: [usize; 4],
}

/// Locks, of all groups with a replica here.
#[derive(Clone, Debug, Default)]
pub struct LockFacts {
    /// Locks that are held.
    pub held: u64,
    /// Requests that wait for a lock.
    pub waiters: u64,
    /// Sessions that hold locks.
    pub sessions: u64,
    /// Locks that were granted.
    pub grants: u64,
    /// Leases of locks and sessions that ran out.
    pub expiries: u64,
    /// Clients of this node that wait.
    pub waiting_clients: u64,
}

/// Replication of the default keyspace.
#[derive(Clone, Debug, Default)]
pub struct ReplicationFacts {
    /// Whether this node calls itself a master.
    pub is_master: bool,
    /// At the leader: the followers.
    pub replicas: Vec<ReplicaFacts>,
    /// 40 hexadecimal digits that name the history.
    pub replication_id: String,
    /// The last offset held here.
    pub offset: u64,
    /// The last offset applied here.
    pub applied: u64,
    /// The oldest offset that a partial resync can begin after.
    pub backlog_start: u64,
    /// Bytes of history held.
    pub backlog_bytes: u64,
    /// Most bytes of history held.
    pub backlog_bytes_max: u64,
    /// At a follower: the leader's host.
    pub leader_host: String,
    /// At a follower: the leader's port for clients.
    pub leader_port: u16,
    /// At a follower: whether it receives messages from the leader.
    pub leader_is_up: bool,
    /// At a follower: whether a snapshot transfer to it is under way.
    pub is_resyncing: bool,
    /// At a follower: milliseconds since the last message from the leader.
    pub leader_silent_ms: u64,
}

/// A follower as its leader sees it.
#[derive(Clone, Debug, Default)]
pub struct ReplicaFacts {
    /// Its node's number.
    pub node: u64,
    /// Its node's host.
    pub host: String,
    /// The port for clients.
    pub port: u16,
    /// In Redis's words: `online`, `send_bulk`; ours for a follower that is away: `offline`.
    pub state: String,
    /// The last offset that the follower acknowledged, in the unit of the leader's.
    pub offset: u64,
    /// By how much that is behind the leader's.
    pub lag_records: u64,
    /// How long the oldest of them has been waiting, in milliseconds.
    pub lag_ms: u64,
}

impl ReplicaFacts {
    /// Whether the follower has a connection to the leader.
    pub fn is_connected(&self) -> bool {
        self.state != "offline"
    }
}

/// Processor time in seconds.
#[derive(Clone, Debug, Default)]
pub struct CpuFacts {
    /// In the kernel.
    pub system: f64,
    /// In the program.
    pub user: f64,
}

/// A keyspace as this node sees it.
#[derive(Clone, Debug, Default)]
pub struct KeyspaceFacts {
    /// The prefix of its keys.
    pub prefix: String,
    /// The protocol that replicates it.
    pub replication: String,
    /// Its acknowledgement rule.
    pub acks: String,
    /// When a record counts as durable.
    pub durability: String,
    /// Its rule for reads.
    pub reads: String,
    /// This node's role in it.
    pub role: String,
    /// The node that leads it, or 0.
    pub leader: u64,
    /// The number of the leadership.
    pub epoch: u64,
    /// The last offset held here.
    pub offset: u64,
    /// Records of the leader that are not applied here.
    pub lag: u64,
    /// How long the replica has been behind, in milliseconds.
    pub lag_ms: u64,
    /// Whether it can be served.
    pub ready: bool,
    /// Keys held here.
    pub keys: u64,
    /// Of these, keys that expire.
    pub expires: u64,
    /// Bytes that they take.
    pub memory: u64,
    /// The most that they may take; 0: not bounded.
    pub memory_max: u64,
    /// Which keys are evicted.
    pub eviction: String,
    /// Keys evicted.
    pub evicted: u64,
}

/// Values that are kept as fragments.
#[derive(Clone, Debug, Default)]
pub struct CodingFacts {
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

/// How a node's wall clock compares with the others'.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockFacts {
    /// By how many milliseconds this node's wall clock is ahead of the time that is used.
    pub ahead_ms: i64,
    /// Whether this node's wall clock is farther off than the bound.
    pub is_off: bool,
    /// The number of known wall clocks, including this node's.
    pub answers: usize,
    /// Whether the known clocks are a majority of all nodes' clocks.
    pub is_agreed: bool,
}
