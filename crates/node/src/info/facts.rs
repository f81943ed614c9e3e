//! What `INFO` is told from.

use crate::clock::ClockFacts;
use crate::coding::{ChoiceTold, CodingCounters, Trace};
use crate::command::statistics::CommandStatistics;
use crate::values::ValueCounters;

/// Everything that `INFO` tells. What is not known stays at its default, zero or empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// The process and its machine.
    pub(crate) server: ServerFacts,
    /// Connections.
    pub(crate) clients: ClientFacts,
    /// Memory.
    pub(crate) memory: MemoryFacts,
    /// Counters since the start.
    pub(crate) stats: StatsFacts,
    /// Locks.
    pub(crate) locks: LockFacts,
    /// Replication of the default keyspace.
    pub(crate) replication: ReplicationFacts,
    /// Processor time.
    pub(crate) cpu: CpuFacts,
    /// Values that are kept as fragments.
    pub(crate) coding: CodingFacts,
    /// Large values that are on the disk.
    pub(crate) values: ValueFacts,
    /// All keyspaces.
    pub(crate) keyspaces: Vec<KeyspaceFacts>,
    /// Counters of commands and errors.
    pub(crate) commands: CommandStatistics,
    /// True while the node has not got its data together yet.
    pub(crate) loading: bool,
    /// There is no room on the disk but the reserve; how many bytes of log can be written all the same; and commands that
    /// were refused for that.
    pub(crate) disk_is_full: bool,
    pub(crate) disk_ready_bytes: u64,
    pub(crate) disk_refused: u64,
}

/// The process and its machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerFacts {
    /// The operating system.
    pub(crate) os: String,
    /// The process's number.
    pub(crate) process_id: u32,
    /// 40 hexadecimal digits drawn at the start.
    pub(crate) run_id: String,
    /// Port for Redis clients.
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
    /// What the event loop waits with, such as `epoll`.
    pub(crate) multiplexing_api: String,
    /// The node's number.
    pub(crate) node: u64,
    /// The cluster's name.
    pub(crate) cluster: String,
    /// Number of nodes in the cluster.
    pub(crate) nodes: usize,
}

/// Connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientFacts {
    /// Clients connected now.
    pub(crate) connected: u64,
    /// Most clients at a time.
    pub(crate) connections_max: u64,
    /// Clients that wait for the outcome of a command such as `WAIT`.
    pub(crate) blocked: u64,
}

/// Memory, in bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryFacts {
    /// All that the node accounts for.
    pub(crate) used: u64,
    /// The most that this ever was.
    pub(crate) used_peak: u64,
    /// Keys and values.
    pub(crate) dataset: u64,
    /// Kept for replicas that come back.
    pub(crate) backlog: u64,
    /// What the operating system has given to the process.
    pub(crate) resident: u64,
    /// What the machine has.
    pub(crate) machine: u64,
    /// What the process may take, 0: any; and what data may take of it.
    pub(crate) bytes_max: u64,
    pub(crate) data_max: u64,
    /// What clients hold, what data takes, and bytes of requests under way, as last measured.
    pub(crate) clients: u64,
    pub(crate) data: u64,
    pub(crate) requests: u64,
    /// Data may not grow.
    pub(crate) is_full: bool,
    /// Texts of scripts that are kept, and their bytes.
    pub(crate) scripts: (usize, usize),
}

/// Counters since the start. Calls and errors of commands are in [`Facts::commands`].
#[derive(Clone, Debug, Default)]
pub(crate) struct StatsFacts {
    /// Connections taken.
    pub(crate) connections: u64,
    /// Connections refused because there were too many.
    pub(crate) rejected_connections: u64,
    pub(crate) auth_failures: u64,
    pub(crate) http_requests_refused: u64,
    /// Commands a second, lately.
    pub(crate) operations_per_second: u64,
    /// Bytes from clients.
    pub(crate) input_bytes: u64,
    /// Bytes to clients.
    pub(crate) output_bytes: u64,
    /// Bytes from other nodes.
    pub(crate) replication_input_bytes: u64,
    /// Bytes to other nodes.
    pub(crate) replication_output_bytes: u64,
    /// Full resyncs.
    pub(crate) full_resyncs: u64,
    /// Partial resyncs.
    pub(crate) partial_resyncs: u64,
    /// Keys that expired.
    pub(crate) expired_keys: u64,
    /// Keys that were asked for and were there.
    pub(crate) keyspace_hits: u64,
    /// Keys that were asked for and were not there.
    pub(crate) keyspace_misses: u64,
    /// Clients closed because they did not read.
    pub(crate) output_overflows: u64,
    /// Requests passed on to another node.
    pub(crate) forwarded: u64,
    /// Requests that wait until somebody can be asked.
    pub(crate) waiting: usize,
    /// Channels that clients listen to here.
    pub(crate) channels: usize,
    /// Patterns that clients listen to here.
    pub(crate) patterns: usize,
    /// Channels of shards that clients listen to here.
    pub(crate) shard_channels: usize,
    /// Messages of channels that were not sent to a peer with too much on its way to it.
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
    /// Requests that wait for one.
    pub(crate) waiters: u64,
    /// Sessions.
    pub(crate) sessions: u64,
    /// Locks that were granted.
    pub(crate) grants: u64,
    /// Leases of locks and sessions that have ended by themselves.
    pub(crate) expiries: u64,
    /// Clients of this node that wait.
    pub(crate) waiting_clients: u64,
}

/// Replication of the default keyspace.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplicationFacts {
    /// This node leads.
    pub(crate) is_leader: bool,
    /// At the leader: the followers.
    pub(crate) replicas: Vec<ReplicaFacts>,
    /// 40 hexadecimal digits that name the history.
    pub(crate) replication_id: String,
    /// The last offset held here.
    pub(crate) offset: u64,
    /// The last offset applied here.
    pub(crate) applied: u64,
    /// The oldest offset that a partial resync can begin behind.
    pub(crate) backlog_start: u64,
    /// Bytes of history held.
    pub(crate) backlog_bytes: u64,
    /// Most bytes of history held.
    pub(crate) backlog_bytes_max: u64,
    /// At a follower: the leader's host.
    pub(crate) leader_host: String,
    /// At a follower: the leader's port for clients.
    pub(crate) leader_port: u16,
    /// At a follower: it hears from the leader.
    pub(crate) leader_is_up: bool,
    /// At a follower: a snapshot is on its way to it.
    pub(crate) is_resyncing: bool,
    /// At a follower: milliseconds since it heard from the leader.
    pub(crate) leader_silent_ms: u64,
}

/// A follower as its leader sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplicaFacts {
    /// Its node's number.
    pub(crate) node: u64,
    /// Its host.
    pub(crate) host: String,
    /// Its port for clients.
    pub(crate) port: u16,
    /// In Redis's words: `online`, `wait_bgsave`, `send_bulk`; ours for one that is away: `offline`.
    pub(crate) state: String,
    /// The last offset that it acknowledged.
    pub(crate) offset: u64,
    /// Records that it has not acknowledged.
    pub(crate) lag_records: u64,
    /// For how long the oldest of them has been waiting, in milliseconds.
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
    /// Its protocol.
    pub(crate) replication: String,
    /// Its acknowledgement rule.
    pub(crate) acks: String,
    /// Its durability.
    pub(crate) durability: String,
    /// Its rule for reads.
    pub(crate) reads: String,
    /// This node's role in it.
    pub(crate) role: String,
    /// The node that leads it, or 0.
    pub(crate) leader: u64,
    /// The leadership's number.
    pub(crate) epoch: u64,
    /// The last offset held here.
    pub(crate) offset: u64,
    /// Records of the leader that are not applied here.
    pub(crate) lag: u64,
    /// For how long that has been so, in milliseconds.
    pub(crate) lag_ms: u64,
    /// It can be served.
    pub(crate) ready: bool,
    /// Keys held here.
    pub(crate) keys: u64,
    /// Of these, keys that expire.
    pub(crate) expires: u64,
}

/// Values that are kept as fragments.
#[derive(Clone, Debug, Default)]
pub(crate) struct CodingFacts {
    /// Fragments that this node's replicas keep.
    pub(crate) fragments: u64,
    /// Bytes of these.
    pub(crate) fragment_bytes: u64,
    /// Values of which its replicas should keep a fragment and do not.
    pub(crate) lacking: u64,
    /// Whole values at hand.
    pub(crate) cached_values: u64,
    /// Bytes of these.
    pub(crate) cached_bytes: u64,
    /// Since the start.
    pub(crate) counters: CodingCounters,
    /// How values were stored that the node chose it for, and what that rests on.
    pub(crate) choice: ChoiceTold,
    /// Where the time of the last writes went.
    pub(crate) traces: Vec<Trace>,
}

/// Large values that are on the disk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ValueFacts {
    /// Values to which keys refer.
    pub(crate) on_disk: u64,
    /// Bytes of values that the store does not have yet.
    pub(crate) pending_bytes: u64,
    /// Bytes of values that are kept for who asks next.
    pub(crate) cached_bytes: u64,
    /// Since the start.
    pub(crate) counters: ValueCounters,
}
