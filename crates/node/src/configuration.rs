//! What a node is told at its start.

use crate::keyspace::Keyspace;
use protocol::NodeId;
use protocol::planted::Planted;
use serde::{Deserialize, Serialize};

/// Where a node is reached.
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
    /// The process's number.
    pub process_id: u32,
    /// 40 hexadecimal digits drawn at the start.
    pub run_id: String,
    /// The program's path.
    pub executable: String,
    /// The configuration file's path.
    pub config_file: String,
    /// The operating system.
    pub os: String,
    /// What the event loop waits with, such as `epoll`.
    pub multiplexing_api: &'static str,
}

/// When so much waits to be written, nothing more is taken from peers: the disk stands still, or is full.
const BEHIND_BYTES_MAX: u64 = 64 << 20;

/// How the log is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StorageSettings {
    /// Length of a segment, made in advance. A multiple of a sector's 512 bytes.
    pub segment_bytes: u64,
    /// The log is shortened when a start would have to read more than this, or as much as there is in memory.
    pub checkpoint_bytes: u64,
    /// Memory for values of keyspaces that keep theirs on the disk, in bytes.
    pub cache_bytes: usize,
    /// While more than so much waits to be written, nothing is taken from peers: the disk stands still, or is full.
    #[serde(skip)]
    pub behind_bytes: u64,
    /// A fault to be found, in tests.
    #[serde(skip)]
    pub planted: storage::planted::Planted,
}

impl Default for StorageSettings {
    fn default() -> Self {
        StorageSettings {
            segment_bytes: 64 << 20,
            checkpoint_bytes: 256 << 20,
            cache_bytes: 64 << 20,
            behind_bytes: BEHIND_BYTES_MAX,
            planted: Default::default(),
        }
    }
}

/// Who may use `DEBUG`, as Redis's `enable-debug-command` says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DebugCommand {
    /// Nobody.
    #[default]
    No,
    /// Clients on this machine.
    Local,
    /// Every client.
    Yes,
}

/// What a node is told at its start.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// This node.
    pub node: NodeId,
    /// The cluster's name.
    pub cluster: String,
    /// All nodes, this one among them, numbered 1 to N.
    pub nodes: Vec<NodeAddress>,
    /// The keyspaces, in any order; the default one is added if it is missing.
    pub keyspaces: Vec<Keyspace>,
    /// Longest value, in bytes.
    pub value_bytes_max: usize,
    /// Most clients at a time.
    pub connections_max: usize,
    /// Replies waiting for one client, in bytes: beyond it the client is closed.
    pub output_bytes_max: usize,
    /// Memory that the process may take, in bytes: see [`crate::Node::measured`]. 0: any.
    pub memory_max: u64,
    /// A command has its outcome after so long, be it `UNKNOWN`.
    pub command_timeout_ms: u64,
    /// A write of more bytes goes to its group in parts, and so does a longer reply to another node: see
    /// [`crate::LONG_COMMAND_BYTES`].
    pub long_command_bytes: usize,
    /// How many times as long as usual heartbeats, leases and silences of consensus and of the control group are. The same
    /// on all nodes.
    pub patience: u64,
    /// Most groups, shards of keyspaces, of which a node may hold a replica. Who creates one too many is told.
    pub groups_max: usize,
    /// A replica of a keyspace without a leader compares some of its keys with the others this often.
    pub sweep_ms: u64,
    /// What clients must say before anything else.
    pub password: Option<String>,
    /// Who may use `DEBUG`.
    pub enable_debug_command: DebugCommand,
    /// Drawn at the start: whose log it is, if there is none yet. A log that is there has its own.
    pub identity: u64,
    /// How often the log was opened, this time included. It says so itself: this is overwritten.
    pub life: u64,
    /// How the log is kept.
    pub storage: StorageSettings,
    /// Drawn at the start; seeds the node's own random numbers.
    pub seed: u64,
    /// Seeds the tables' hashes: the same on all nodes, so that replicas hold a group's keys in the same order, and known to
    /// nobody else.
    pub table_seed: u64,
    /// Facts about the process.
    pub process: ProcessFacts,
    /// A fault to be found, in tests.
    pub planted: Planted,
}
