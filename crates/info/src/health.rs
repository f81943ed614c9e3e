//! The state of a node, as `GET /health` returns it.

use protocol::NodeId;
use serde::Serialize;
use wire::release::Release;

/// The state of a node, for `GET /health`.
#[derive(Clone, Debug, Serialize)]
pub struct Health {
    /// Whether clients may be sent here: the node is admitted, serves some keyspace, itself or by a leader that it reaches,
    /// and none of its replicas is still catching up. So one keyspace without a quorum does not make the node unready. And
    /// when nodes are restarted one after another, each has its data before the next one stops.
    pub ready: bool,
    /// Why it is not ready, for people; absent when it is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub explanation: String,
    /// This node's number.
    pub node: NodeId,
    /// The cluster's name.
    pub cluster: String,
    /// Quorate's version.
    pub version: &'static str,
    /// The release of this program.
    pub release: Release,
    /// The cluster's level, by this node's map: the release whose features are in use.
    pub level: Release,
    /// This node's role in the default keyspace.
    pub role: &'static str,
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
    /// Whether the disk has no room but the reserve. Until it has room, writes are refused, or left to others.
    pub disk_full: bool,
    /// The state of each shard of each keyspace.
    pub keyspaces: Vec<KeyspaceHealth>,
}

impl Health {
    /// Whether every shard of every keyspace can be served here.
    pub fn serves_all(&self) -> bool {
        self.keyspaces.iter().all(|keyspace| keyspace.ready)
    }
}

/// The state of a keyspace's shard on a node.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)] // The fields are those of `Keyspace` and of the replica's `Status`.
pub struct KeyspaceHealth {
    pub prefix: String,
    pub shard: u16,
    pub replication: String,
    pub acks: String,
    pub durability: String,
    pub reads: String,
    pub ready: bool,
    pub writable: bool,
    pub role: &'static str,
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

/// The state of a follower, as its leader sees it.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)] // The fields are those of the replica's `FollowerStatus`.
pub struct FollowerHealth {
    pub node: NodeId,
    pub state: &'static str,
    pub acked: u64,
    pub lag: u64,
    pub lag_ms: u64,
}
