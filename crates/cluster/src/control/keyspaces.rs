//! Changes of keyspaces: which groups a new one gets, on which nodes, and which of its settings may change.

use super::MAP_GROUP;
use super::change::GROUPS_MAX;
use super::level::Feature;
use super::map::{CONTROL_GROUP, ClusterMap, Group, GroupId, KeyspaceEntry, Slots, settles_with};
use super::refusal::{Refusal, refuse};
use crate::keyspace::{KEYSPACES_MAX, Keyspace};
use crate::setting::Protocol;
use protocol::NodeId;
use protocol::leader_follower::Acks;
use std::collections::BTreeMap;

/// Settings that can change while a keyspace is in use.
const CHANGEABLE: [&str; 12] = [
    "acks",
    "reads",
    "backlog_bytes",
    "retry",
    "lease",
    "coding",
    "coding_threshold",
    "script_cost_max",
    "memory_max",
    "eviction",
    "changes_bytes",
    "leader",
];

impl ClusterMap {
    /// Adds a keyspace. Nodes that are not alive hold replicas of it only where there are too few others, and are its first
    /// leaders only if the keyspace names them or no other holds a replica.
    pub(super) fn create_keyspace(
        &mut self,
        keyspace: Keyspace,
        is_alive: &dyn Fn(NodeId) -> bool,
    ) -> Result<(), Refusal> {
        let nodes = self.staying();
        let keyspace = keyspace.resolved(nodes.len())?;
        let (name, protocol) = (keyspace.name(), keyspace.replication);
        let Keyspace { leader, shards, .. } = keyspace;
        if let Some(entry) = self.keyspaces.get(&keyspace.prefix) {
            // A client that does not know whether its first request was carried out sends it again, and that succeeds.
            let is_equal = entry.keyspace == keyspace;
            return if is_equal { Ok(()) } else { Err(Refusal::KeyspaceExists(keyspace.prefix)) };
        }
        if self.keyspaces.len() >= KEYSPACES_MAX {
            refuse!("keyspace '{name}': a cluster can have {KEYSPACES_MAX} keyspaces at most");
        }
        if leader != 0 && !nodes.contains(&leader) {
            refuse!("keyspace '{name}': leader = {leader} is not one of the nodes {nodes:?}");
        }
        let there = self.groups.len() - 1; // Without the control group.
        if there + usize::from(shards) > GROUPS_MAX {
            refuse!(
                "keyspace '{name}': the cluster has {there} groups and may have {GROUPS_MAX}: {shards} more \
                 (shards = {shards}) are too many"
            );
        }
        if self.next_group + u32::from(shards) > u32::from(MAP_GROUP) {
            refuse!("keyspace '{name}': all group numbers are used up; none is ever used twice");
        }
        let mut groups = Vec::new();
        for shard in 0..shards {
            let first = self.first_node(&keyspace, shard, is_alive);
            let members = ring(&nodes, first, keyspace.replicas_on(nodes.len()), is_alive);
            let leader = match protocol {
                // Another one is appointed only when it was silent for some time.
                Protocol::LeaderFollower if !is_alive(first) => {
                    members.iter().copied().find(|node| is_alive(*node)).unwrap_or(first)
                }
                _ if protocol.has_registers() => 0,
                _ => first,
            };
            let group = Group {
                keyspace: keyspace.prefix.clone(),
                shard,
                slots: Slots::of_shard(shard, shards),
                leader,
                preferred: if self.prefers_leaders(protocol) { first } else { 0 },
                epoch: 1,
                // The first members of a consensus group must have begun before other members are named.
                in_sync: if protocol == Protocol::Consensus { Vec::new() } else { members.clone() },
                members,
                revision: 0,
                given_up: BTreeMap::new(),
                taken_over: 0,
                settled: protocol != Protocol::Consensus,
            };
            let id = self.next_group as GroupId;
            self.next_group += 1;
            self.groups.insert(id, group);
            groups.push(id);
        }
        let prefix = keyspace.prefix.clone();
        if self.has(Feature::Floors) {
            let version = self.version + 1;
            for (other, entry) in &mut self.keyspaces {
                if loses_keys(other, &prefix) && entry.keyspace.replication.has_registers() {
                    entry.floor = version;
                }
            }
        }
        self.keyspaces.insert(prefix, KeyspaceEntry { keyspace, groups, floor: 0, saved: None });
        Ok(())
    }

    /// The keyspaces of which a keyspace with this prefix has keys that would be theirs without it, or without those between.
    pub fn losing_keys(&self, prefix: &str) -> impl Iterator<Item = &KeyspaceEntry> {
        self.keyspaces.iter().filter(move |(other, _)| loses_keys(other, prefix)).map(|(_, entry)| entry)
    }

    /// Gives the map its version: that of several changes which are proposed as one is not known when they are made.
    pub(super) fn set_version(&mut self, version: u64) {
        self.version = version;
        self.keyspaces.values_mut().for_each(|entry| entry.floor = entry.floor.min(version));
    }

    /// Chooses the node for a new shard's leader or, without one, its first replica: the nodes from the configured
    /// one on, in turn, else the node with the fewest such shards. Only the configured one itself may be a node that is
    /// not alive while others are.
    fn first_node(&self, keyspace: &Keyspace, shard: u16, is_alive: &dyn Fn(NodeId) -> bool) -> NodeId {
        let nodes = self.staying();
        if let Some(place) = nodes.iter().position(|node| *node == keyspace.leader) {
            let node = nodes[(place + usize::from(shard)) % nodes.len()];
            if node == keyspace.leader || is_alive(node) {
                return node;
            }
        }
        let counts = |group: &&Group, node: NodeId| match keyspace.has_leader() {
            true => group.leader == node,
            false => group.members.contains(&node),
        };
        let groups = || self.groups.iter().filter(|(id, _)| **id != CONTROL_GROUP).map(|(_, group)| group);
        let load = |node: &NodeId| groups().filter(|group| counts(group, *node)).count();
        let rank = |node: &NodeId| (!is_alive(*node), self.is_drained(*node), load(node));
        nodes.iter().copied().min_by_key(rank).unwrap_or(0)
    }

    pub(super) fn drop_keyspace(&mut self, prefix: &str) -> Result<(), Refusal> {
        if prefix.is_empty() {
            refuse!("the default keyspace cannot be dropped: keys without another keyspace belong to it");
        }
        let entry = self.keyspaces.remove(prefix).ok_or_else(|| Refusal::NoKeyspace(prefix.to_string()))?;
        for group in entry.groups {
            self.groups.remove(&group);
            self.nodes.values_mut().for_each(|node| {
                node.rejoins.remove(&group);
            });
        }
        Ok(())
    }

    /// Checks that the cluster's level has the policy by which a keyspace is to evict.
    pub(super) fn require_eviction(&self, keyspace: &Keyspace) -> Result<(), Refusal> {
        match keyspace.eviction.goes_by_writes() {
            true => self.require(Feature::EvictionByWrites),
            false => Ok(()),
        }
    }

    pub(super) fn set_keyspace(
        &mut self,
        prefix: &str,
        settings: &BTreeMap<String, String>,
    ) -> Result<(), Refusal> {
        let nodes = self.staying().len();
        let entry = self.keyspaces.get(prefix).ok_or_else(|| Refusal::NoKeyspace(prefix.to_string()))?;
        // After a node was removed by force, the keyspace may have fewer replicas than its setting says.
        let nodes = nodes.max(usize::from(entry.keyspace.replicas));
        let changed = with_settings(&entry.keyspace, settings)?.resolved(nodes)?;
        let (before, after) = (entry.keyspace.acks, changed.acks);
        if entry.keyspace.eviction != changed.eviction {
            self.require_eviction(&changed)?;
        }
        // How many members a new leader must ask follows from `acks`, too.
        if before != after
            && let Some(id) = entry.groups.clone().into_iter().find(|id| self.awaits_takeover(*id))
        {
            refuse!("{}", self.not_taken_over_yet(id));
        }
        if settings.contains_key("leader") {
            self.prefer_leader_of(prefix, changed.leader)?;
        }
        let entry = self.keyspaces.get_mut(prefix).ok_or_else(|| Refusal::NoKeyspace(prefix.to_string()))?;
        entry.keyspace = changed;
        // Under `all` the in-sync set is a promise, under other `acks` a preference, so an in-sync set from before
        // the change is not enough. A new epoch begins with the leader alone, and is settled when enough others hold
        // everything.
        for id in entry.groups.iter().filter(|_| before != after) {
            if let Some(group) = self.groups.get_mut(id) {
                group.epoch += 1;
                if before != Acks::All {
                    group.in_sync = vec![group.leader];
                }
                group.settled = group.in_sync.len() >= settles_with(after, group.members.len());
            }
        }
        Ok(())
    }

    pub(super) fn recover_keyspace(
        &mut self,
        prefix: &str,
        lost: &BTreeMap<GroupId, BTreeMap<NodeId, u64>>,
    ) -> Result<(), Refusal> {
        let groups =
            &self.keyspaces.get(prefix).ok_or_else(|| Refusal::NoKeyspace(prefix.to_string()))?.groups;
        if let Some(other) = lost.keys().find(|id| !groups.contains(id)) {
            refuse!("group {other} is not of keyspace '{prefix}'");
        }
        for (id, members) in lost {
            if self.protocol(*id) == Protocol::LeaderFollower {
                refuse!("{} has a leader, and is recovered by its leader", self.name_of(*id));
            }
            for (node, life) in members {
                let known = self.nodes.get(node).map(|node| node.start.life);
                if known != Some(*life) {
                    refuse!("node {node} was started again since; look again at what is lost");
                }
            }
            if self.protocol(*id) == Protocol::Consensus {
                self.begin_again(*id, members)?;
                continue;
            }
            let Some(group) = self.groups.get_mut(id) else { continue };
            // A minority gets what it has forgotten back from the others: nothing need be given up.
            let known = members.keys().filter(|node| group.members.contains(node)).count();
            if known < members.len() || 2 * known <= group.members.len() {
                refuse!("nodes {:?} are no majority of group {id}", members.keys());
            }
            group.given_up.clone_from(members);
        }
        Ok(())
    }

    /// Puts a new, empty group in the place of a consensus group whose only replica has lost its storage.
    ///
    /// The new group has another number, so nothing of the old one can reach it: no record on a disk that is found later,
    /// no message under way, no vote. It is what `KEYSPACE DROP` and `CREATE` would make, for one shard. That the replica
    /// holds nothing is reported by its own node, in the incarnation that `lost` names; and no other node can hold
    /// anything, since there is no other member and the map has known none to take part since the replacement.
    fn begin_again(&mut self, id: GroupId, lost: &BTreeMap<NodeId, u64>) -> Result<(), Refusal> {
        let name = self.name_of(id);
        let Some(before) = self.groups.get(&id).cloned() else { return Err(Refusal::NoGroup(id)) };
        let is_it = |node: NodeId| lost.keys().eq([&node]);
        if !self.waits_alone(id).is_some_and(is_it) {
            refuse!("{name}: it is not known that its only replica is lost; look again at what is lost");
        }
        if self.next_group + 1 > u32::from(MAP_GROUP) {
            refuse!("{name}: all group numbers are used up; none is ever used twice");
        }
        let next = self.next_group as GroupId;
        self.next_group += 1;
        let groups = self.keyspaces.get_mut(&before.keyspace).map(|entry| entry.groups.iter_mut());
        groups.into_iter().flatten().filter(|group| **group == id).for_each(|group| *group = next);
        self.groups.remove(&id);
        self.nodes.values_mut().for_each(|node| {
            node.rejoins.remove(&id);
        });
        self.groups.insert(next, Group { epoch: 1, revision: 0, taken_over: 0, ..before });
        Ok(())
    }
}

/// Whether a keyspace with the first prefix loses keys to one with the second. No keyspace has the keys of a database.
fn loses_keys(other: &str, prefix: &str) -> bool {
    other.len() < prefix.len() && prefix.starts_with(other) && !prefix.starts_with('@')
}

/// Returns `count` nodes from `first` on, in a ring, in ascending order. Beside `first`, nodes that are not alive come last.
fn ring(nodes: &[NodeId], first: NodeId, count: usize, is_alive: &dyn Fn(NodeId) -> bool) -> Vec<NodeId> {
    let place = nodes.iter().position(|node| *node == first).unwrap_or(0);
    let mut members: Vec<NodeId> = nodes.iter().cycle().skip(place).take(nodes.len()).copied().collect();
    members.sort_by_key(|node| *node != first && !is_alive(*node));
    members.truncate(count);
    members.sort_unstable();
    members
}

/// Returns a keyspace with some settings changed.
fn with_settings(keyspace: &Keyspace, settings: &BTreeMap<String, String>) -> Result<Keyspace, String> {
    let name = keyspace.name();
    let mut fields = serde_json::to_value(keyspace).map_err(|error| error.to_string())?;
    for (setting, text) in settings {
        let Some(value) = fields.get_mut(setting) else {
            return Err(format!("keyspace '{name}': there is no setting '{setting}'"));
        };
        if !CHANGEABLE.contains(&setting.as_str()) {
            let why = why_fixed(setting);
            return Err(format!(
                "keyspace '{name}': {setting} cannot be changed: {why}; create another keyspace"
            ));
        }
        *value = match text.parse::<u64>() {
            Ok(number) if value.is_number() => number.into(),
            // The number may have a unit.
            Err(_) if value.is_number() && !["memory_max", "changes_bytes"].contains(&setting.as_str()) => {
                return Err(format!("keyspace '{name}': {setting} = \"{text}\" is no number"));
            }
            _ => text.clone().into(),
        };
    }
    serde_json::from_value(fields).map_err(|error| format!("keyspace '{name}': {error}"))
}

fn why_fixed(setting: &str) -> &'static str {
    match setting {
        "prefix" => "it says which keys there are",
        "replication" => "another protocol could not read what this one's replicas hold",
        "shards" => "keys would have to move from group to group",
        "replicas" => "replicas come and go with the nodes only",
        "durability" => "what was not written cannot be found again",
        "storage" => "what is there would have to move",
        _ => "replicas use it from the beginning",
    }
}
