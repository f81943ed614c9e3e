//! The keyspaces of the cluster map, as returned over HTTP.

use crate::context::status::leader_of;
use crate::node::Node;
use cluster::control::{KeyspaceEntry, Slots};
use cluster::keyspace::Keyspace;
use protocol::NodeId;
use serde::Serialize;

/// A keyspace: its settings, and the groups of its shards.
#[derive(Clone, Debug, Serialize)]
pub struct KeyspaceDescription {
    /// Its settings.
    #[serde(flatten)]
    pub keyspace: Keyspace,
    /// One for each shard, in order of shards.
    pub groups: Vec<GroupDescription>,
}

/// The replicas of one shard.
#[derive(Clone, Debug, Serialize)]
pub struct GroupDescription {
    /// The group's number.
    pub id: u16,
    /// Which shard of its keyspace.
    pub shard: u16,
    /// Its hash slots.
    pub slots: Slots,
    /// The nodes that hold a replica.
    pub members: Vec<NodeId>,
    /// The leader, as far as this node knows. 0: there is none, or none is known.
    pub leader: NodeId,
    /// The number of the leadership (leader-follower), or of the membership.
    pub epoch: u64,
    /// leader-follower: the replicas that hold every acknowledged write. Otherwise the members that are known to take
    /// part in this membership with all that they need.
    pub in_sync: Vec<NodeId>,
    /// False from a change of members until enough of them hold everything.
    pub settled: bool,
}

/// Every keyspace of the newest map, by prefix.
pub(super) fn keyspaces(node: &Node) -> Vec<KeyspaceDescription> {
    let describe = |entry: &KeyspaceEntry| KeyspaceDescription {
        keyspace: entry.keyspace.clone(),
        groups: entry.groups.iter().filter_map(|id| group_description(node, *id)).collect(),
    };
    node.cx.map.keyspaces.values().map(describe).collect()
}

fn group_description(node: &Node, id: u16) -> Option<GroupDescription> {
    let group = node.cx.map.groups.get(&id)?;
    let has_leader = node.cx.groups.get(id).is_some_and(|group| group.keyspace.has_leader());
    Some(GroupDescription {
        id,
        shard: group.shard,
        slots: group.slots,
        members: group.members.clone(),
        leader: if has_leader { leader_of(&node.cx, id) } else { 0 },
        epoch: group.epoch,
        in_sync: group.in_sync.clone(),
        settled: group.settled,
    })
}
