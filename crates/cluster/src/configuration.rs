//! The configuration that a node is started with.

use crate::keyspace::Keyspace;
use commands::RedisVersion;
use protocol::NodeId;
use protocol::planted::Planted;
use serde::{Deserialize, Serialize};
use wire::release::Releases;

/// A node's number, host and ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeAddress {
    /// Its number, from 1.
    pub id: NodeId,
    /// Host name or address.
    pub host: String,
    /// Port for Redis clients.
    pub client_port: u16,
    /// Port for HTTP.
    pub http_port: u16,
    /// Port for the other nodes.
    pub peer_port: u16,
}

/// Facts about the process, for `INFO`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessFacts {
    /// The process's ID.
    pub process_id: u32,
    /// 40 hexadecimal digits drawn at the start.
    pub run_id: String,
    /// The program's path.
    pub executable: String,
    /// The configuration file's path.
    pub config_file: String,
    /// The operating system.
    pub os: String,
    /// What the event loop polls with, such as `epoll`.
    pub multiplexing_api: &'static str,
    /// TLS at a port for clients, if there is one.
    pub tls: Option<TlsFacts>,
}

/// Facts about TLS, for `CONFIG GET`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFacts {
    /// The port for Redis clients, or 0.
    pub client_port: u16,
    /// Whether the port for TLS is the only one for Redis clients.
    pub is_only: bool,
    /// Paths of the files with the certificate, its key and the authorities of clients.
    pub files: [String; 3],
    /// Whether clients show certificates: `no`, `optional` or `yes`.
    pub client_certificates: &'static str,
    /// Whether a client with a certificate is the user that has its common name.
    pub certificates_name_users: bool,
}

/// While more bytes than this wait to be written, nothing more is taken from peers: the disk hangs, or is full.
const BEHIND_BYTES_MAX: u64 = 64 << 20;

/// How the log and the values on the disk are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StorageSettings {
    /// The length of a segment in bytes, allocated in advance. A multiple of a sector's 512 bytes.
    pub segment_bytes: u64,
    /// The log is shortened when a start would have to read more bytes of it than this, and more than the state in
    /// memory has.
    pub checkpoint_bytes: u64,
    /// Memory for the cache of values that keyspaces keep on the disk, in bytes.
    pub cache_bytes: usize,
    /// Within this time every value on the disk is read, in microseconds, to find damaged ones. 0: never.
    #[serde(skip)]
    pub scrub_period_us: u64,
    /// While more bytes than this wait to be written, nothing is taken from peers: the disk hangs, or is full.
    #[serde(skip)]
    pub behind_bytes: u64,
    /// A planted fault, in tests.
    #[serde(skip)]
    pub planted: storage::planted::Planted,
}

impl Default for StorageSettings {
    fn default() -> Self {
        StorageSettings {
            segment_bytes: 16 << 20,
            checkpoint_bytes: 256 << 20,
            cache_bytes: 64 << 20,
            scrub_period_us: 0,
            behind_bytes: BEHIND_BYTES_MAX,
            planted: Default::default(),
        }
    }
}

/// Which clients may use `DEBUG`, as in Redis's `enable-debug-command`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DebugCommand {
    /// None.
    #[default]
    No,
    /// Clients on this machine.
    Local,
    /// Every client.
    Yes,
}

/// Which nodes call themselves a master, in `INFO`, `ROLE` and `HELLO`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Masters {
    /// Only the node that leads the default keyspace: a client that asks every node finds one master.
    #[default]
    Leader,
    /// Each that serves the default keyspace: every node takes every write, for clients that know only one of them.
    All,
}

/// The configuration that a node is started with.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// This node's number.
    pub node: NodeId,
    /// The cluster's name.
    pub cluster: String,
    /// All nodes, including this one, numbered 1 to N.
    pub nodes: Vec<NodeAddress>,
    /// The keyspaces, in any order; the default one is added if it is missing.
    pub keyspaces: Vec<Keyspace>,
    /// The longest value, in bytes.
    pub value_bytes_max: usize,
    /// The maximum number of clients at a time.
    pub connections_max: usize,
    /// The most bytes of replies that may wait for one client: a client with more is closed.
    pub output_bytes_max: usize,
    /// The memory that the process may take, in bytes: see `Node::measured`. 0: no limit.
    pub memory_max: u64,
    /// The time within which a command has its outcome, even if that is `UNKNOWN`.
    pub command_timeout_ms: u64,
    /// A write of more bytes goes to its group in parts, and a longer reply goes to another node in parts: see
    /// [`crate::LONG_COMMAND_BYTES`].
    pub long_command_bytes: usize,
    /// The factor by which heartbeats, leases and silences of consensus and of the control group are longer than
    /// usual. The same on all nodes.
    pub patience: u64,
    /// The maximum number of groups, which are shards of keyspaces, that a node may hold replicas of. A change that
    /// would exceed it is refused.
    pub groups_max: usize,
    /// How often a replica of a keyspace without a leader compares some of its keys with the others.
    pub sweep_ms: u64,
    /// The password that clients must send before any other command; `None` if they need none.
    pub password: Option<String>,
    /// The password of the user `operator`, who may do everything; `None`: there is no such user.
    pub operator_password: Option<String>,
    /// Whether the default user may change the cluster (the category `@cluster`), while the cluster map has no rules
    /// for that user.
    pub default_changes_cluster: bool,
    /// Drawn at the start: passwords are drawn from it (`ACL GENPASS`).
    pub password_seed: [u8; 32],
    /// Which clients may use `DEBUG`.
    pub enable_debug_command: DebugCommand,
    /// Which nodes call themselves a master.
    pub masters: Masters,
    /// The version of Redis that the node tells clients; `None`: that of the cluster's level.
    pub redis_version: Option<RedisVersion>,
    /// Names the log if there is none yet; drawn at the start. An existing log has its own name.
    pub identity: u64,
    /// How often the log was opened, including this time. The log itself counts that: this value is overwritten.
    pub life: u64,
    /// How the log is kept.
    pub storage: StorageSettings,
    /// Drawn at the start; seeds the node's own random numbers.
    pub seed: u64,
    /// Seeds the tables' hashes: the same on all nodes, so that replicas hold a group's keys in the same order, and
    /// otherwise secret.
    pub table_seed: u64,
    /// What this program understands: [`wire::release::RELEASES`], or less in tests.
    pub releases: Releases,
    /// The share of clients' commands that is traced, from 0 to 1; `None`: nothing is traced, not even what other
    /// nodes trace.
    pub traced_share: Option<f64>,
    /// Facts about the process.
    pub process: ProcessFacts,
    /// A planted fault, in tests.
    pub planted: Planted,
}

/// A write of more bytes goes to its group in parts, and a reply of more bytes goes to another node in parts, unless
/// configured otherwise.
pub const LONG_COMMAND_BYTES: usize = 2 << 20;

/// The number of parts of the shortest long command.
const PARTS: usize = 8;

/// How many parts of a long command a node has under way.
pub const PARTS_UNDER_WAY: usize = 4;

/// The length of a part, in bytes.
pub fn part_bytes(configuration: &Configuration) -> usize {
    (configuration.long_command_bytes / PARTS).max(1)
}
