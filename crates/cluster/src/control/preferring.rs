//! Which node is to lead which group: the preferred leader, and nodes that are drained. The nodes that lead see to it themselves
//! (`handovers` of a node).

use super::level::Feature;
use super::map::{CONTROL_GROUP, ClusterMap, GroupId};
use super::refusal::{Refusal, refuse};
use crate::setting::Protocol;
use protocol::NodeId;

impl ClusterMap {
    /// The node that is to lead a group when it can. 0: any may, or none leads.
    pub fn preferred_leader(&self, id: GroupId) -> NodeId {
        let group = self.groups.get(&id).filter(|_| id != CONTROL_GROUP);
        group.map_or(0, |group| match self.protocol(id) {
            Protocol::Consensus => group.leader,
            _ => group.preferred,
        })
    }

    /// Whether a node is to lead nothing.
    pub fn is_drained(&self, id: NodeId) -> bool {
        self.nodes.get(&id).is_some_and(|node| node.is_drained)
    }

    /// Whether new groups of a protocol get a preferred leader that is not the leader itself.
    pub(super) fn prefers_leaders(&self, protocol: Protocol) -> bool {
        protocol == Protocol::LeaderFollower && self.has(Feature::Handovers)
    }

    /// The groups from before there were preferred leaders get one: in each, the member that is preferred by the fewest so far, by
    /// default the present leader.
    pub(super) fn prefer_leaders(&mut self) {
        for id in self.groups.keys().copied().collect::<Vec<_>>() {
            let group = &self.groups[&id];
            if self.protocol(id) != Protocol::LeaderFollower || group.preferred != 0 {
                continue;
            }
            let (leader, members) = (group.leader, group.members.clone());
            let count =
                |node: NodeId| self.groups.keys().filter(|it| self.preferred_leader(**it) == node).count();
            let chosen = members.into_iter().min_by_key(|node| (count(*node), *node != leader));
            if let Some(group) = self.groups.get_mut(&id) {
                group.preferred = chosen.unwrap_or(leader);
            }
        }
    }

    /// The node is to lead these groups.
    pub(super) fn prefer_leader(&mut self, groups: &[GroupId], node: NodeId) -> Result<(), Refusal> {
        self.require(Feature::Handovers)?;
        if !self.nodes.contains_key(&node) {
            return Err(Refusal::NoNode(node));
        }
        if self.is_drained(node) {
            refuse!("node {node} is drained, and leads nothing; end that first: CLUSTER DRAIN {node} END");
        }
        for id in groups {
            let (protocol, name) = (self.protocol(*id), self.name_of(*id));
            let group = self.groups.get_mut(id).ok_or(Refusal::NoGroup(*id))?;
            if *id == CONTROL_GROUP || protocol.has_registers() {
                refuse!(
                    "{name}: its leader cannot be chosen: registers have none, and the control group elects its own"
                );
            }
            if !group.members.contains(&node) {
                let members = &group.members;
                refuse!("{name}: node {node} holds no replica of it; one of nodes {members:?} can lead it");
            }
            match protocol {
                Protocol::Consensus => group.leader = node,
                _ => group.preferred = node,
            }
        }
        Ok(())
    }

    /// A keyspace's setting `leader` has changed: its first shard is to be led by this node, the following ones by the nodes after
    /// it. 0: the preferred leaders stay.
    pub(super) fn prefer_leader_of(&mut self, prefix: &str, leader: NodeId) -> Result<(), Refusal> {
        let nodes = self.staying();
        let Some(place) = nodes.iter().position(|node| *node == leader) else {
            return match leader {
                0 => Ok(()),
                _ => Err(Refusal::NoNode(leader)),
            };
        };
        let groups = self.keyspaces.get(prefix).map(|entry| entry.groups.clone()).unwrap_or_default();
        let ring = nodes.iter().cycle().skip(place);
        groups.iter().zip(ring).try_for_each(|(group, node)| self.prefer_leader(&[*group], *node))
    }

    /// A node is to lead nothing, or may lead again.
    pub(super) fn drain_node(&mut self, id: NodeId, is_drained: bool) -> Result<(), Refusal> {
        self.require(Feature::Handovers)?;
        let others = self.staying().into_iter().filter(|node| *node != id && !self.is_drained(*node)).count();
        let node = self.nodes.get_mut(&id).ok_or(Refusal::NoNode(id))?;
        if is_drained && others == 0 {
            refuse!("node {id} cannot be drained: no other node is left that may lead");
        }
        node.is_drained = is_drained;
        Ok(())
    }

    /// An epoch whose leader has resigned ends in any case: its leader could not go on in it.
    pub(super) fn resign(&mut self, id: GroupId, epoch: u64, to: NodeId) -> Result<(), Refusal> {
        let group = self.groups.get(&id).ok_or(Refusal::NoGroup(id))?;
        if self.protocol(id) != Protocol::LeaderFollower {
            refuse!("{}: only the leader of a leader-follower group resigns", self.name_of(id));
        }
        if group.epoch != epoch {
            return Ok(()); // It is over.
        }
        let before = group.leader;
        if self.appoint(id, to).is_err() {
            let group = self.groups.get_mut(&id).ok_or(Refusal::NoGroup(id))?;
            (group.epoch, group.leader) = (group.epoch + 1, before);
        }
        Ok(())
    }
}
