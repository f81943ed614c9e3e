//! What a node reports about itself, declared once: the node fills it in, and all others read it.
//! `CLUSTER REPORT` is this as JSON; `GET /health`, `INFO` and the metrics are written from it, and the state
//! of a cluster is judged by it.
//!
//! The JSON is read by nodes and programs of other releases: a field keeps its name and its meaning, and one
//! that an older release does not send is zero or empty. The command needs the password, so its reply may
//! hold more than `GET /health`.

#![allow(missing_docs)] // The names are documented in docs/reference/status.md and http.md.

use protocol::NodeId;
use serde::{Deserialize, Serialize};
use wire::release::Release;

/// Everything that a node reports. Bytes and counts, unless the name says otherwise.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    #[serde(flatten)]
    pub health: Health,
    /// The cluster's agreed time, in milliseconds since the Unix epoch.
    pub time_ms: u64,
    /// Seconds since the process has started.
    pub uptime_s: u64,
    /// Whether the control group has admitted this node. If it was refused with a reason, `refusal` has it.
    pub admitted: bool,
    pub refusal: Option<String>,
    pub memory: Memory,
    pub disk: Disk,
    /// `None` without TLS.
    pub certificate: Option<Certificate>,
    pub clock: Clock,
    pub links: Vec<Link>,
    pub counters: Counters,
    /// The shards in the same order as `health.keyspaces`.
    pub groups: Vec<GroupFigures>,
    pub commands: Vec<CommandFigures>,
}

/// The state of a node, for `GET /health`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Health {
    /// Whether clients may be sent here: the node is admitted, serves some keyspace, itself or by a leader
    /// that it reaches, and none of its replicas is still catching up. So one keyspace without a quorum does
    /// not make the node unready. And when nodes are restarted one after another, each has its data before
    /// the next one stops.
    pub ready: bool,
    /// Why it is not ready, for people; absent when it is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub explanation: String,
    /// This node's number.
    pub node: NodeId,
    /// The cluster's name.
    pub cluster: String,
    /// Quorate's version.
    pub version: String,
    /// The release of this program.
    pub release: Release,
    /// The cluster's level, by this node's map: the release whose features are in use.
    pub level: Release,
    /// This node's role in the default keyspace.
    pub role: String,
    /// The epoch of the default keyspace.
    pub epoch: u64,
    /// The last offset of the default keyspace that this node holds.
    pub offset: u64,
    /// Records of the default keyspace's leader that are not applied here, as the leader last reported.
    pub lag: u64,
    /// How long the lag has lasted, in milliseconds.
    pub lag_ms: u64,
    /// The version of the cluster map that this node has. 0: none was committed yet.
    pub map_version: u64,
    /// The node that leads the control group, by this node's lease. 0: it has no lease.
    pub control_leader: NodeId,
    /// Bytes of log that the next start would have to read.
    pub journal_bytes: u64,
    /// Whether the disk has no room but the reserve. Until it has room, writes are refused, or left to
    /// others.
    pub disk_full: bool,
    /// The state of each shard of each keyspace.
    pub keyspaces: Vec<KeyspaceHealth>,
}

/// The state of a keyspace's shard on a node: fields of `Keyspace`, and of the replica's `Status`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KeyspaceHealth {
    pub prefix: String,
    pub shard: u16,
    pub replication: String,
    pub acks: String,
    pub durability: String,
    pub reads: String,
    pub ready: bool,
    pub writable: bool,
    pub role: String,
    pub leader: NodeId,
    pub epoch: u64,
    pub offset: u64,
    pub applied: u64,
    pub lag: u64,
    pub lag_ms: u64,
    /// Why the shard is not ready; absent when it is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub explanation: String,
    /// At the leader: the state of the followers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub followers: Vec<FollowerHealth>,
}

/// The state of a follower, as its leader sees it: fields of the replica's `FollowerStatus`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FollowerHealth {
    pub node: NodeId,
    pub state: String,
    pub acked: u64,
    pub lag: u64,
    pub lag_ms: u64,
}

/// Memory. A bound of 0 is none.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// What the process takes, the most that it may take, and the machine's.
    pub resident: u64,
    pub max: u64,
    pub machine: u64,
    /// What data takes, and the part of `max` that it may take.
    pub data: u64,
    pub data_max: u64,
    pub clients: u64,
    /// Whether data may not grow.
    pub full: bool,
}

/// The disk with the node's folder: its free bytes and its size, both 0 where the system does not report
/// them; in how many seconds it is full at the rate of the last hour, if it fills; how many values it has
/// damaged since the node's start, and how many of these were fetched from another replica.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Disk {
    pub free: u64,
    pub size: u64,
    pub full: bool,
    pub full_in_s: Option<u64>,
    pub damaged: u64,
    pub repaired: u64,
}

/// The node's certificate: in how many seconds it expires, below 0 if it has, and whether the files have been
/// changed to some that cannot be used: the node goes on with those that it has read, and would not start
/// with these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Certificate {
    pub left_s: i64,
    pub unusable: bool,
}

/// How the machine's wall clock compares with the other nodes'.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Clock {
    /// Whether it is farther off than the bound.
    pub off: bool,
    /// By how many milliseconds it is ahead of the time that is used.
    pub ahead_ms: i64,
}

/// The link to another node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Link {
    pub node: NodeId,
    pub up: bool,
    /// The release that both sides speak; 0 while the link is down.
    pub release: Release,
    /// For how long nothing has been received from the node.
    pub silent_ms: u64,
}

/// Counted since the process has started, apart from `clients`, which are those connected now.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    pub clients: u64,
    pub commands: u64,
    pub errors: u64,
    pub forwarded: u64,
    /// Commands that have ended since `CONFIG RESETSTAT`, and how long they took in all.
    pub calls: u64,
    pub calls_us: u64,
    pub client_bytes_in: u64,
    pub client_bytes_out: u64,
    pub peer_bytes_in: u64,
    pub peer_bytes_out: u64,
}

/// A shard of a keyspace. Counted since the replica was made.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupFigures {
    pub group: u16,
    pub prefix: String,
    pub shard: u16,
    pub keys: u64,
    /// Of these, keys that expire, and hashes with fields that do.
    pub expires: u64,
    pub expiring_hashes: u64,
    pub memory: u64,
    pub memory_max: u64,
    pub eviction: String,
    pub evicted: u64,
    pub lookups: u64,
    pub unknown_writes: u64,
    pub lost_writes: u64,
    pub began_empty_ms: u64,
    pub locks: u64,
    pub lock_waiters: u64,
    /// Latencies of its commands that came from clients of this node.
    pub latency: Buckets,
}

/// Times in microseconds, each with the number of calls that took this time or up to an eighth less. In
/// ascending order.
pub type Buckets = Vec<(u64, u64)>;

/// A command of this node's clients, since `CONFIG RESETSTAT`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CommandFigures {
    pub name: String,
    pub calls: u64,
    pub failed: u64,
    pub rejected: u64,
    pub us: u64,
    pub latency: Buckets,
}

impl Health {
    /// Whether every shard of every keyspace can be served here.
    pub fn serves_all(&self) -> bool {
        self.keyspaces.iter().all(|keyspace| keyspace.ready)
    }
}

impl FollowerHealth {
    /// The state in Redis's words: `online`, `send_bulk`; ours for a follower that is away: `offline`.
    pub fn redis_state(&self) -> &'static str {
        match self.state.as_str() {
            "streaming" => "online",
            "snapshot" => "send_bulk",
            _ => "offline",
        }
    }

    /// Whether the follower has a connection to the leader.
    pub fn is_connected(&self) -> bool {
        self.redis_state() != "offline"
    }
}

impl Report {
    /// This node's view of a shard.
    pub fn shard(&self, prefix: &str, shard: u16) -> Option<&KeyspaceHealth> {
        self.health.keyspaces.iter().find(|view| view.prefix == prefix && view.shard == shard)
    }

    /// This node's figures of a shard.
    pub fn figures(&self, prefix: &str, shard: u16) -> Option<&GroupFigures> {
        self.groups.iter().find(|figures| figures.prefix == prefix && figures.shard == shard)
    }

    /// Whether its link to a node is up.
    pub fn reaches(&self, node: NodeId) -> bool {
        self.links.iter().any(|link| link.node == node && link.up)
    }
}
