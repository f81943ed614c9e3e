//! Moves: which members groups must gain and lose. A group changes by one member at a time, and makes the next change
//! only when it is settled (or it would wait forever for a member that has lost its storage). So a cluster reaches
//! its target in steps, each of which keeps all data available.

use super::change::{Change, Step};
use super::map::{CONTROL_GROUP, ClusterMap, Group, GroupId, NodeState, Rejoin};
use crate::setting::Protocol;
use protocol::NodeId;

impl ClusterMap {
    /// Returns what can be done now, at most one step for each group. Empty when every replica is where it should be,
    /// or something else has to happen first. Only live nodes are added to a group: with a dead new member the group
    /// would have too few live ones, and could not change any more.
    pub fn next_moves(&self, moves_control_group: bool, is_alive: impl Fn(NodeId) -> bool) -> Vec<Change> {
        let staying = self.staying();
        let step = |id, group| self.next_step(id, group, &staying, &is_alive);
        let mut changes: Vec<Change> = self
            .groups
            .iter()
            .filter(|(id, _)| moves_control_group || **id != CONTROL_GROUP)
            .filter_map(|(id, group)| Some(Change::MoveMember { group: *id, step: step(*id, group)? }))
            .collect();
        // An operator turns a node off once it is reported as removed; a group that it has just left may still need
        // its vote for the membership without it.
        let all_settled = self.groups.values().all(|group| group.settled);
        let is_gone =
            |id: &NodeId| all_settled && !self.groups.values().any(|group| group.members.contains(id));
        let leaving = self.nodes.iter().filter(|(_, node)| node.state == NodeState::Leaving);
        let gone = leaving.map(|(id, _)| *id).filter(is_gone);
        changes.extend(gone.map(|id| Change::RemoveNode { id, force: false }));
        changes
    }

    fn next_step(
        &self,
        id: GroupId,
        group: &Group,
        staying: &[NodeId],
        is_alive: impl Fn(NodeId) -> bool,
    ) -> Option<Step> {
        if self.protocol(id).has_registers() {
            return None; // Registers keep their first members.
        }
        if self.awaits_takeover(id) {
            return None;
        }
        let wanted = self.replicas_of(id, staying.len());
        let has_rejoin = |node: &NodeId, rejoin| {
            self.nodes.get(node).is_some_and(|node| node.rejoins.get(&id) == Some(&rejoin))
        };
        // A member that lost its storage holds nothing: the group is better off without it.
        if let Some(lost) = group.members.iter().find(|node| has_rejoin(node, Rejoin::Leave)) {
            let is_free = group.settled || self.may_withdraw(id, *lost);
            return (is_free && self.may_leave(id, group, *lost, false)).then_some(Step::Remove(*lost));
        }
        if !group.settled {
            let leaves = group.members.iter().find(|member| !staying.contains(member));
            let leaves = leaves.filter(|node| self.may_withdraw(id, **node))?;
            return self.may_leave(id, group, *leaves, true).then_some(Step::Remove(*leaves));
        }
        let stay: Vec<NodeId> =
            group.members.iter().copied().filter(|member| staying.contains(member)).collect();
        if stay.len() < wanted {
            // Only a node that has started can hold a replica.
            let has_started = |node: &&NodeId| self.nodes.get(node).is_some_and(|it| it.start.identity != 0);
            let may_come = |node: &&NodeId| !group.members.contains(node) && is_alive(**node);
            let free = staying.iter().filter(may_come).filter(has_started);
            let rank = |node: &&NodeId| (!has_rejoin(node, Rejoin::Join), self.load(id, **node), **node);
            if let Some(node) = free.min_by_key(rank) {
                return Some(Step::Add(*node));
            }
        }
        let leaves = group.members.iter().rev().find(|member| !stay.contains(member));
        // The control group shrinks with the cluster.
        let surplus = stay.last().filter(|_| stay.len() > wanted);
        let leaves = leaves.or(surplus)?;
        self.may_leave(id, group, *leaves, true).then_some(Step::Remove(*leaves))
    }

    /// Whether a group can lose a member now. A member that holds something may leave only when all others hold it,
    /// too.
    fn may_leave(&self, id: GroupId, group: &Group, leaves: NodeId, holds_something: bool) -> bool {
        let leads = self.protocol(id) == Protocol::LeaderFollower && group.leader == leaves;
        let others_hold_all =
            group.members.iter().all(|member| *member == leaves || group.in_sync.contains(member));
        group.members.len() > 1 && !leads && (!holds_something || others_hold_all)
    }

    /// How many replicas a node has. For the control group 0, since it is on the first nodes in any case.
    fn load(&self, id: GroupId, node: NodeId) -> usize {
        match id {
            CONTROL_GROUP => 0,
            _ => self.groups.values().filter(|group| group.members.contains(&node)).count(),
        }
    }
}
