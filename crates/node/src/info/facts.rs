//! The data that `INFO` is written from.

use crate::clock::ClockFacts;
use crate::coding::{ChoiceSummary, CodingCounters, Trace};
use crate::values::ValueCounters;
use commands::statistics::CommandStatistics;

/// Everything that `INFO` reports. Unknown facts keep their default, zero or empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// About the process and its machine.
    pub(crate) server: ServerFacts,
    pub(crate) clients: ClientFacts,
    pub(crate) memory: MemoryFacts,
    /// Counters since the start.
    pub(crate) stats: StatsFacts,
    pub(crate) locks: LockFacts,
    /// Replication of the default keyspace.
    pub(crate) replication: ReplicationFacts,
    pub(crate) cpu: CpuFacts,
    /// Values that are kept as fragments.
    pub(crate) coding: CodingFacts,
    /// Large values on the disk.
    pub(crate) values: ValueFacts,
    /// All keyspaces.
    pub(crate) keyspaces: Vec<KeyspaceFacts>,
    /// Counters of commands and errors.
    pub(crate) commands: CommandStatistics,
    /// What `LASTSAVE` returns, in milliseconds.
    pub(crate) saved_ms: u64,
    /// Whether the node is still loading its data.
    pub(crate) loading: bool,
    /// Whether the disk has no room but the reserve; how many bytes of log can still be written; and how many commands
    /// were refused for lack of room.
    pub(crate) disk_is_full: bool,
    pub(crate) disk_ready_bytes: u64,
    pub(crate) disk_refused: u64,
}

/// The process and its machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerFacts {
    /// The operating system.
    pub(crate) os: String,
    pub(crate) process_id: u32,
    /// 40 hexadecimal digits drawn at the start.
    pub(crate) run_id: String,
    /// The port for Redis clients.
    pub(crate) tcp_port: u16,
    /// Microseconds since the Unix epoch.
    pub(crate) unix_us: u64,
    /// How the machine's wall clock compares with the other nodes'.
    pub(crate) clock: ClockFacts,
    /// Seconds since the start.
    pub(crate) uptime_seconds: u64,
    /// The program's path.
    pub(crate) executable: String,
    /// The configuration file's path.
    pub(crate) config_file: String,
    /// The system interface that the event loop waits on, such as `epoll`.
    pub(crate) multiplexing_api: String,
    /// The release of this program, and the cluster's level.
    pub(crate) release: u16,
    pub(crate) level: u16,
    pub(crate) node: u64,
    pub(crate) cluster: String,
    /// The number of nodes in the cluster.
    pub(crate) nodes: usize,
}

/// Connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientFacts {
    /// Clients connected now.
    pub(crate) connected: u64,
    /// The most clients at a time.
    pub(crate) connections_max: u64,
    /// Clients blocked in a command such as `WAIT`.
    pub(crate) blocked: u64,
    /// Clients that get invalidations.
    pub(crate) tracking: usize,
}

/// Memory, in bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryFacts {
    /// Everything that the node accounts for.
    pub(crate) used: u64,
    /// The highest `used` so far.
    pub(crate) used_peak: u64,
    /// Memory of keys and values.
    pub(crate) dataset: u64,
    /// History that is kept for replicas that return.
    pub(crate) backlog: u64,
    /// The process's resident memory.
    pub(crate) resident: u64,
    /// The machine's memory.
    pub(crate) machine: u64,
    /// The most that the default keyspace may use, 0: no limit; and which of its keys are evicted, in Redis's words.
    pub(crate) keyspace_max: u64,
    pub(crate) policy: &'static str,
    /// The most that the process may use, 0: no limit; and the part of it that data may use.
    pub(crate) bytes_max: u64,
    pub(crate) data_max: u64,
    /// Memory of clients, of data, and bytes of requests under way, as last measured.
    pub(crate) clients: u64,
    pub(crate) data: u64,
    pub(crate) requests: u64,
    /// Whether data may not grow.
    pub(crate) is_full: bool,
    /// The number of script texts that are kept, and their bytes.
    pub(crate) scripts: (usize, usize),
}

/// Counters since the start. Calls and errors of commands are in [`Facts::commands`].
#[derive(Clone, Debug, Default)]
pub(crate) struct StatsFacts {
    /// Connections accepted.
    pub(crate) connections: u64,
    /// Connections refused because there were too many.
    pub(crate) rejected_connections: u64,
    pub(crate) auth_failures: u64,
    pub(crate) http_requests_refused: u64,
    /// Commands per second, lately.
    pub(crate) operations_per_second: u64,
    /// Bytes from clients.
    pub(crate) input_bytes: u64,
    /// Bytes to clients.
    pub(crate) output_bytes: u64,
    /// Bytes from other nodes.
    pub(crate) replication_input_bytes: u64,
    /// Bytes to other nodes.
    pub(crate) replication_output_bytes: u64,
    /// Snapshot transfers.
    pub(crate) full_resyncs: u64,
    pub(crate) partial_resyncs: u64,
    pub(crate) expired_keys: u64,
    pub(crate) evicted_keys: u64,
    /// Lookups of keys that existed.
    pub(crate) keyspace_hits: u64,
    /// Lookups of keys that did not exist.
    pub(crate) keyspace_misses: u64,
    /// Clients closed because they did not read.
    pub(crate) output_overflows: u64,
    /// Requests forwarded to another node.
    pub(crate) forwarded: u64,
    /// Requests that wait until there is a node to send them to.
    pub(crate) waiting: usize,
    /// Channels with listeners here.
    pub(crate) channels: usize,
    /// Patterns with listeners here.
    pub(crate) patterns: usize,
    /// Channels of shards with listeners here.
    pub(crate) shard_channels: usize,
    /// The numbers of clients that track, of keys that they cache, of these counted once for each client, and of prefixes.
    pub(crate) tracked: [usize; 4],
    /// Messages of channels that were not sent to a peer because too much was under way to it.
    pub(crate) messages_dropped: u64,
    /// Writes that were sent to their groups in parts.
    pub(crate) long_writes: u64,
    /// Replies that were sent to other nodes in parts.
    pub(crate) long_replies: u64,
}

/// Locks, of all groups with a replica here.
#[derive(Clone, Debug, Default)]
pub(crate) struct LockFacts {
    /// Locks that are held.
    pub(crate) held: u64,
    /// Requests that wait for a lock.
    pub(crate) waiters: u64,
    pub(crate) sessions: u64,
    pub(crate) grants: u64,
    /// Leases of locks and sessions that ran out.
    pub(crate) expiries: u64,
    /// Clients of this node that wait.
    pub(crate) waiting_clients: u64,
}

/// Replication of the default keyspace.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplicationFacts {
    /// Whether this node calls itself a master.
    pub(crate) is_master: bool,
    /// At the leader: the followers.
    pub(crate) replicas: Vec<ReplicaFacts>,
    /// 40 hexadecimal digits that name the history.
    pub(crate) replication_id: String,
    /// The last offset held here.
    pub(crate) offset: u64,
    /// The last offset applied here.
    pub(crate) applied: u64,
    /// The oldest offset that a partial resync can begin after.
    pub(crate) backlog_start: u64,
    /// Bytes of history held.
    pub(crate) backlog_bytes: u64,
    /// Most bytes of history held.
    pub(crate) backlog_bytes_max: u64,
    /// At a follower: the leader's host.
    pub(crate) leader_host: String,
    /// At a follower: the leader's port for clients.
    pub(crate) leader_port: u16,
    /// At a follower: whether it receives messages from the leader.
    pub(crate) leader_is_up: bool,
    /// At a follower: whether a snapshot transfer to it is under way.
    pub(crate) is_resyncing: bool,
    /// At a follower: milliseconds since the last message from the leader.
    pub(crate) leader_silent_ms: u64,
}

/// A follower as its leader sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplicaFacts {
    /// Its node's number.
    pub(crate) node: u64,
    pub(crate) host: String,
    /// The port for clients.
    pub(crate) port: u16,
    /// In Redis's words: `online`, `send_bulk`; ours for a follower that is away: `offline`.
    pub(crate) state: String,
    /// The last offset that the follower acknowledged, in the unit of the leader's.
    pub(crate) offset: u64,
    /// By how much that is behind the leader's.
    pub(crate) lag_records: u64,
    /// How long the oldest of them has been waiting, in milliseconds.
    pub(crate) lag_ms: u64,
}

/// Processor time in seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct CpuFacts {
    /// In the kernel.
    pub(crate) system: f64,
    /// In the program.
    pub(crate) user: f64,
}

/// A keyspace as this node sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyspaceFacts {
    /// The prefix of its keys.
    pub(crate) prefix: String,
    pub(crate) replication: String,
    /// Its acknowledgement rule.
    pub(crate) acks: String,
    pub(crate) durability: String,
    /// Its rule for reads.
    pub(crate) reads: String,
    /// This node's role in it.
    pub(crate) role: String,
    /// The node that leads it, or 0.
    pub(crate) leader: u64,
    /// The number of the leadership.
    pub(crate) epoch: u64,
    /// The last offset held here.
    pub(crate) offset: u64,
    /// Records of the leader that are not applied here.
    pub(crate) lag: u64,
    /// How long the replica has been behind, in milliseconds.
    pub(crate) lag_ms: u64,
    /// Whether it can be served.
    pub(crate) ready: bool,
    /// Keys held here.
    pub(crate) keys: u64,
    /// Of these, keys that expire.
    pub(crate) expires: u64,
    /// Bytes that they take.
    pub(crate) memory: u64,
    /// The most that they may take; 0: not bounded.
    pub(crate) memory_max: u64,
    pub(crate) eviction: String,
    /// Keys evicted.
    pub(crate) evicted: u64,
}

/// Values that are kept as fragments.
#[derive(Clone, Debug, Default)]
pub(crate) struct CodingFacts {
    /// Fragments that this node's replicas keep.
    pub(crate) fragments: u64,
    /// The bytes of these fragments.
    pub(crate) fragment_bytes: u64,
    /// Values whose fragment this node's replicas should keep but do not have.
    pub(crate) lacking: u64,
    /// Whole values in the cache.
    pub(crate) cached_values: u64,
    /// The bytes of these values.
    pub(crate) cached_bytes: u64,
    /// Since the start.
    pub(crate) counters: CodingCounters,
    /// How the values were stored for which the node chose how, and the measurements behind these choices.
    pub(crate) choice: ChoiceSummary,
    /// How long the steps of the last writes took.
    pub(crate) traces: Vec<Trace>,
}

/// Large values on the disk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ValueFacts {
    /// Values to which keys refer.
    pub(crate) on_disk: u64,
    /// Bytes of values that the store does not have yet.
    pub(crate) pending_bytes: u64,
    /// Bytes of values in the cache.
    pub(crate) cached_bytes: u64,
    /// Since the start.
    pub(crate) counters: ValueCounters,
}
