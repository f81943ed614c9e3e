//! A node's report about itself (`CLUSTER REPORT`), as far as it is shown here. Fields that a node does not send, because
//! it runs another version, are zero or empty.

use node::NodeId;
use serde::{Deserialize, Serialize};

/// One node's report. Times in the unit of their names, everything else in bytes or counted.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // The fields are on docs/reference/status.md.
pub struct Report {
    pub node: NodeId,
    pub cluster: String,
    pub version: String,
    pub release: u16,
    pub level: u16,
    pub ready: bool,
    pub explanation: String,
    pub control_leader: NodeId,
    pub keyspaces: Vec<Replica>,
    pub time_ms: u64,
    pub uptime_s: u64,
    pub admitted: bool,
    pub refusal: Option<String>,
    pub memory: Memory,
    pub disk: Disk,
    pub certificate: Option<Certificate>,
    pub clock: Clock,
    pub links: Vec<Link>,
    pub counters: Counters,
    pub groups: Vec<Figures>,
    pub commands: Vec<Command>,
}

/// A shard of a keyspace, as a node sees it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // The fields are on docs/reference/status.md.
pub struct Replica {
    pub prefix: String,
    pub shard: u16,
    pub ready: bool,
    pub writable: bool,
    pub role: String,
    pub leader: NodeId,
    pub epoch: u64,
    pub offset: u64,
    pub explanation: String,
    pub followers: Vec<Follower>,
}

/// A follower, as the leader sees it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // The fields are on docs/reference/status.md.
pub struct Follower {
    pub node: NodeId,
    pub state: String,
    pub lag: u64,
    pub lag_ms: u64,
}

/// Memory of a node. A bound of 0 means no bound.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // The fields are on docs/reference/status.md.
pub struct Memory {
    pub resident: u64,
    pub max: u64,
    pub machine: u64,
    pub data: u64,
    pub data_max: u64,
    pub clients: u64,
    pub full: bool,
}

/// The disk with a node's folder. Both are 0 if not known.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // The fields are on docs/reference/status.md.
pub struct Disk {
    pub free: u64,
    pub size: u64,
    pub full: bool,
    pub full_in_s: Option<u64>,
    pub damaged: u64,
    pub repaired: u64,
}

/// A node's certificate: in how many seconds it expires, and whether its files were changed to some that cannot be used.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // The fields are on docs/reference/status.md.
pub struct Certificate {
    pub left_s: i64,
    pub unusable: bool,
}

/// A machine's clock.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // The fields are on docs/reference/status.md.
pub struct Clock {
    pub off: bool,
    pub ahead_ms: i64,
}

/// A node's link to another one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // The fields are on docs/reference/status.md.
pub struct Link {
    pub node: NodeId,
    pub up: bool,
    pub release: u16,
    pub silent_ms: u64,
}

/// What a node has counted since its start; `clients` are those connected now.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // The fields are on docs/reference/status.md.
pub struct Counters {
    pub clients: u64,
    pub commands: u64,
    pub errors: u64,
    pub forwarded: u64,
    pub calls: u64,
    pub calls_us: u64,
    pub client_bytes_in: u64,
    pub client_bytes_out: u64,
    pub peer_bytes_in: u64,
    pub peer_bytes_out: u64,
}

/// Figures of a shard's replica.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // The fields are on docs/reference/status.md.
pub struct Figures {
    pub prefix: String,
    pub shard: u16,
    pub keys: u64,
    pub memory: u64,
    pub memory_max: u64,
    pub evicted: u64,
    pub lookups: u64,
    pub unknown_writes: u64,
    pub lost_writes: u64,
    pub began_empty_ms: u64,
    pub locks: u64,
    pub lock_waiters: u64,
    pub latency: Buckets,
}

/// Times in microseconds, each with the number of calls that took this time or up to an eighth less. In ascending
/// order.
pub type Buckets = Vec<(u64, u64)>;

/// A command of a node's clients, since its start or `CONFIG RESETSTAT`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // The fields are on docs/reference/status.md.
pub struct Command {
    pub name: String,
    pub calls: u64,
    pub failed: u64,
    pub rejected: u64,
    pub us: u64,
    pub latency: Buckets,
}

impl Report {
    /// This node's view of a shard.
    pub fn replica(&self, prefix: &str, shard: u16) -> Option<&Replica> {
        self.keyspaces.iter().find(|replica| replica.prefix == prefix && replica.shard == shard)
    }

    /// This node's figures of a shard.
    pub fn figures(&self, prefix: &str, shard: u16) -> Option<&Figures> {
        self.groups.iter().find(|figures| figures.prefix == prefix && figures.shard == shard)
    }

    /// Whether its link to a node is up.
    pub fn reaches(&self, node: NodeId) -> bool {
        self.links.iter().any(|link| link.node == node && link.up)
    }
}
