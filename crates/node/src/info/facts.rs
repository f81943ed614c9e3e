//! What `INFO` is told from.

use crate::command::statistics::CommandStatistics;

/// Everything that `INFO` tells. What is not known stays at its default, zero or empty.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The process and its machine.
    pub server: ServerFacts,
    /// Connections.
    pub clients: ClientFacts,
    /// Memory.
    pub memory: MemoryFacts,
    /// Counters since the start.
    pub stats: StatsFacts,
    /// Replication of the default keyspace.
    pub replication: ReplicationFacts,
    /// Processor time.
    pub cpu: CpuFacts,
    /// All keyspaces.
    pub keyspaces: Vec<KeyspaceFacts>,
    /// Counters of commands and errors.
    pub commands: CommandStatistics,
    /// True while the node has not got its data together yet.
    pub loading: bool,
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
    /// Port for Redis clients.
    pub tcp_port: u16,
    /// Microseconds since the Unix epoch.
    pub unix_us: u64,
    /// Seconds since the start.
    pub uptime_seconds: u64,
    /// The program's path.
    pub executable: String,
    /// The configuration file's path.
    pub config_file: String,
    /// What the event loop waits with, such as `epoll`.
    pub multiplexing_api: String,
    /// The node's number.
    pub node: u64,
    /// The cluster's name.
    pub cluster: String,
    /// Number of nodes in the cluster.
    pub nodes: usize,
}

/// Connections.
#[derive(Clone, Debug, Default)]
pub struct ClientFacts {
    /// Clients connected now.
    pub connected: u64,
    /// Most clients at a time.
    pub connections_max: u64,
    /// Clients that wait for the outcome of a command such as `WAIT`.
    pub blocked: u64,
}

/// Memory, in bytes.
#[derive(Clone, Debug, Default)]
pub struct MemoryFacts {
    /// All that the node accounts for.
    pub used: u64,
    /// The most that this ever was.
    pub used_peak: u64,
    /// Keys and values.
    pub dataset: u64,
    /// Kept for replicas that come back.
    pub backlog: u64,
    /// What the operating system has given to the process.
    pub resident: u64,
    /// What the machine has.
    pub machine: u64,
}

/// Counters since the start. Calls and errors of commands are in [`Facts::commands`].
#[derive(Clone, Debug, Default)]
pub struct StatsFacts {
    /// Connections taken.
    pub connections: u64,
    /// Connections refused because there were too many.
    pub rejected_connections: u64,
    /// Commands a second, lately.
    pub operations_per_second: u64,
    /// Bytes from clients.
    pub input_bytes: u64,
    /// Bytes to clients.
    pub output_bytes: u64,
    /// Bytes from other nodes.
    pub replication_input_bytes: u64,
    /// Bytes to other nodes.
    pub replication_output_bytes: u64,
    /// Full resyncs.
    pub full_resyncs: u64,
    /// Partial resyncs.
    pub partial_resyncs: u64,
    /// Partial resyncs that became full ones.
    pub failed_partial_resyncs: u64,
    /// Keys that expired.
    pub expired_keys: u64,
    /// Keys that were asked for and were there.
    pub keyspace_hits: u64,
    /// Keys that were asked for and were not there.
    pub keyspace_misses: u64,
    /// Clients closed because they did not read.
    pub output_overflows: u64,
    /// Requests passed on to another node.
    pub forwarded: u64,
}

/// Replication of the default keyspace.
#[derive(Clone, Debug, Default)]
pub struct ReplicationFacts {
    /// This node leads.
    pub is_leader: bool,
    /// At the leader: the followers.
    pub replicas: Vec<ReplicaFacts>,
    /// 40 hexadecimal digits that name the history.
    pub replication_id: String,
    /// The last offset held here.
    pub offset: u64,
    /// The last offset applied here.
    pub applied: u64,
    /// The oldest offset that a partial resync can begin behind.
    pub backlog_start: u64,
    /// Bytes of history held.
    pub backlog_bytes: u64,
    /// Most bytes of history held.
    pub backlog_bytes_max: u64,
    /// At a follower: the leader's host.
    pub leader_host: String,
    /// At a follower: the leader's port for clients.
    pub leader_port: u16,
    /// At a follower: it hears from the leader.
    pub leader_is_up: bool,
    /// At a follower: a snapshot is on its way to it.
    pub is_resyncing: bool,
    /// At a follower: milliseconds since it heard from the leader.
    pub leader_silent_ms: u64,
}

/// A follower as its leader sees it.
#[derive(Clone, Debug, Default)]
pub struct ReplicaFacts {
    /// Its node's number.
    pub node: u64,
    /// Its host.
    pub host: String,
    /// Its port for clients.
    pub port: u16,
    /// In Redis's words: `online`, `wait_bgsave`, `send_bulk`; ours for one that is away: `offline`.
    pub state: String,
    /// The last offset that it acknowledged.
    pub offset: u64,
    /// Records that it has not acknowledged.
    pub lag_records: u64,
    /// For how long the oldest of them has been waiting, in milliseconds.
    pub lag_ms: u64,
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
    /// Its protocol.
    pub replication: String,
    /// Its acknowledgement rule.
    pub acks: String,
    /// Its durability.
    pub durability: String,
    /// Its rule for reads.
    pub reads: String,
    /// This node's role in it.
    pub role: String,
    /// The node that leads it, or 0.
    pub leader: u64,
    /// The leadership's number.
    pub epoch: u64,
    /// The last offset held here.
    pub offset: u64,
    /// Records of the leader that are not applied here.
    pub lag: u64,
    /// For how long that has been so, in milliseconds.
    pub lag_ms: u64,
    /// It can be served.
    pub ready: bool,
    /// Keys held here.
    pub keys: u64,
    /// Of these, keys that expire.
    pub expires: u64,
}
