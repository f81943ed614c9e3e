//! What a node says of itself (`CLUSTER REPORT`), as far as it is shown here. Fields that a node does not send, as another
//! version of it may, are zero or empty.

use node::NodeId;
use serde::{Deserialize, Serialize};

/// One node's report. Times in the unit of their names, everything else in bytes or counted.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Report {
    pub(super) node: NodeId,
    pub(super) cluster: String,
    pub(super) version: String,
    pub(super) ready: bool,
    pub(super) control_leader: NodeId,
    pub(super) keyspaces: Vec<Replica>,
    pub(super) uptime_s: u64,
    pub(super) admitted: bool,
    pub(super) refusal: Option<String>,
    pub(super) memory: Memory,
    pub(super) disk: Disk,
    pub(super) clock: Clock,
    pub(super) links: Vec<Link>,
    pub(super) counters: Counters,
    pub(super) groups: Vec<Figures>,
}

/// A shard of a keyspace, as a node sees it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Replica {
    pub(super) prefix: String,
    pub(super) shard: u16,
    pub(super) ready: bool,
    pub(super) writable: bool,
    pub(super) role: String,
    pub(super) leader: NodeId,
    pub(super) epoch: u64,
    pub(super) offset: u64,
    pub(super) explanation: String,
    pub(super) followers: Vec<Follower>,
}

/// A follower, as the leader sees it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Follower {
    pub(super) node: NodeId,
    pub(super) state: String,
    pub(super) lag: u64,
    pub(super) lag_ms: u64,
}

/// Memory of a node. A bound of 0 is none.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Memory {
    pub(super) resident: u64,
    pub(super) max: u64,
    pub(super) machine: u64,
    pub(super) data: u64,
    pub(super) data_max: u64,
    pub(super) clients: u64,
    pub(super) full: bool,
}

/// The disk with a node's folder. Both 0: not known.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Disk {
    pub(super) free: u64,
    pub(super) size: u64,
    pub(super) full: bool,
}

/// A machine's clock.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Clock {
    pub(super) off: bool,
    pub(super) ahead_ms: i64,
}

/// A node's link to another one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Link {
    pub(super) node: NodeId,
    pub(super) up: bool,
    pub(super) silent_ms: u64,
}

/// What a node has counted since its start; `clients` are those connected now.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Counters {
    pub(super) clients: u64,
    pub(super) commands: u64,
    pub(super) errors: u64,
    pub(super) forwarded: u64,
    pub(super) calls: u64,
    pub(super) calls_us: u64,
    pub(super) client_bytes_in: u64,
    pub(super) client_bytes_out: u64,
    pub(super) peer_bytes_in: u64,
    pub(super) peer_bytes_out: u64,
}

/// Figures of a shard's replica.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Figures {
    pub(super) prefix: String,
    pub(super) shard: u16,
    pub(super) keys: u64,
    pub(super) memory: u64,
    pub(super) memory_max: u64,
    pub(super) evicted: u64,
    pub(super) lookups: u64,
}

impl Report {
    /// This node's view of a shard.
    pub(super) fn replica(&self, prefix: &str, shard: u16) -> Option<&Replica> {
        self.keyspaces.iter().find(|replica| replica.prefix == prefix && replica.shard == shard)
    }

    /// This node's figures of a shard.
    pub(super) fn figures(&self, prefix: &str, shard: u16) -> Option<&Figures> {
        self.groups.iter().find(|figures| figures.prefix == prefix && figures.shard == shard)
    }

    /// Whether its link to a node is up.
    pub(super) fn reaches(&self, node: NodeId) -> bool {
        self.links.iter().any(|link| link.node == node && link.up)
    }
}
