//! Changes of the map: pure functions from one map to the next. Each change may be refused.
//!
//! Some conditions are not in the map, above all which nodes are alive and whose lease is over. The control leader
//! checks them before it makes a change: see `leading`.

use super::level::Feature;
use super::map::{
    ClusterMap, Group, GroupId, Node, NodeState, Rejoin, Saved, Start, control_members, settles_with,
};
use super::quarantine::Step as QuarantineStep;
use super::refusal::{Refusal, refuse};
use crate::configuration::NodeAddress;
use crate::keyspace::Keyspace;
use crate::libraries::{self, Step as LibrariesStep};
use crate::setting::{Parts, Protocol};
use crate::words::check_host;
use coding::data_fragments_max;
use commands::users::{self, Step as UsersStep};
use protocol::NodeId;
use protocol::leader_follower::Acks;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use wire::release::{Release, Releases};

/// The most groups of a cluster, all shards of all keyspaces together. The map, which is kept and sent whole, has some
/// 200 bytes for each.
pub const GROUPS_MAX: usize = 4096;

/// The most nodes of a cluster, and the greatest number that a node may have.
pub const NODES_MAX: usize = 256;

/// A change of the map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
// Changes are few, and none is kept for long.
#[allow(clippy::large_enum_variant)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Adds a keyspace.
    CreateKeyspace(Keyspace),
    /// Removes a keyspace and all its keys. Not the default one.
    DropKeyspace(String),
    /// Gives new values to settings of a keyspace that can change at run time.
    SetKeyspace {
        /// The keyspace's prefix.
        prefix: String,
        /// The settings' names and new values.
        settings: BTreeMap<String, String>,
    },
    /// Gives up what a keyspace had acknowledged, by an operator's decision, since a majority of its replicas has
    /// lost its memory.
    RecoverKeyspace {
        /// The keyspace's prefix; it must be one of registers.
        prefix: String,
        /// For each blocked group, the members without their memory, each with the incarnation for which that holds.
        lost: BTreeMap<GroupId, BTreeMap<NodeId, u64>>,
    },
    /// Adds a node. When it has started, it gets replicas of the keyspaces that have one on each node.
    AddNode(NodeAddress),
    /// Removes a node after its replicas were moved.
    RemoveNode {
        /// The node's number.
        id: NodeId,
        /// Remove it even if keyspaces, or the control group, then have fewer replicas than they had.
        force: bool,
    },
    /// Prepares for a dead node to return with new storage: in each of its groups it will be a new member.
    ReplaceNode {
        /// The node's number.
        id: NodeId,
        /// Replace it even if it alone held everything that was acknowledged in a group.
        accept_loss: bool,
    },
    /// Registers a node's start. The first one is always accepted, others only if they are later starts of the same
    /// storage.
    NodeStarted {
        /// The node's number.
        id: NodeId,
        /// The start: storage, incarnation and process.
        start: Start,
        /// What its program understands.
        releases: Releases,
    },
    /// Raises the cluster's level.
    RaiseLevel(Release),
    /// Holds the cluster's level where it is, or allows it to rise again.
    HoldLevel(bool),
    /// Reports which of a group's replicas hold everything (leader-follower), or take part in this membership with all
    /// that they need (other protocols).
    InSync {
        /// The group's number.
        group: GroupId,
        /// The epoch in which this holds.
        epoch: u64,
        /// The group's revision, as its leader knew it.
        revision: u64,
        /// The nodes of these replicas, in ascending order.
        in_sync: Vec<NodeId>,
    },
    /// Gives leader-follower groups these leaders, each in a new epoch.
    AppointLeaders(Vec<(GroupId, NodeId)>),
    /// A leader-follower group's leader answers nothing more in its epoch: the next one begins, also while the leader's lease
    /// lasts.
    Resign {
        /// The group's number.
        group: GroupId,
        /// The epoch.
        epoch: u64,
        /// The node that leads next, if it may.
        to: NodeId,
    },
    /// Has a node lead groups whenever it can: it does so soon, and again some time after it has returned.
    PreferLeader {
        /// The groups' numbers.
        groups: Vec<GroupId>,
        /// The node's number.
        node: NodeId,
    },
    /// Has a node lead nothing, as long as others can, or allows it to lead again.
    DrainNode {
        /// The node's number.
        id: NodeId,
        /// Whether it is to lead nothing.
        is_drained: bool,
    },
    /// Records what is known, or was decided, about a record that crashes the process that executes it.
    Quarantine {
        /// The record's group.
        group: GroupId,
        /// What is reported or decided.
        step: QuarantineStep,
    },
    /// Notes what backups hold, by prefix; nothing: forgets all backups.
    Saved(BTreeMap<String, Saved>),
    /// Adds libraries of functions, or removes some.
    Libraries(LibrariesStep),
    /// Creates or changes a user, or removes some.
    Users(UsersStep),
    /// Adds a member to a group, or removes one.
    MoveMember {
        /// The group's number.
        group: GroupId,
        /// Whether a member is added or removed, and which.
        step: Step,
    },
}

/// A change of a group's members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// The node becomes a member. It holds nothing yet.
    Add(NodeId),
    /// The node stops being a member.
    Remove(NodeId),
}

impl ClusterMap {
    /// Returns the map after a change: the same map if it already has what the change requests, else one with the
    /// next version.
    ///
    /// # Errors
    /// Why the change is not possible.
    pub fn apply(&self, change: &Change) -> Result<ClusterMap, Refusal> {
        self.apply_knowing(change, &|_| true)
    }

    /// Returns the map after a change, as [`ClusterMap::apply`] does, given which nodes are alive. New groups are placed on
    /// these first.
    pub(super) fn apply_knowing(
        &self,
        change: &Change,
        is_alive: &dyn Fn(NodeId) -> bool,
    ) -> Result<ClusterMap, Refusal> {
        let mut map = self.clone();
        match change {
            Change::CreateKeyspace(keyspace) => map.create_keyspace(keyspace.clone(), is_alive),
            Change::DropKeyspace(prefix) => map.drop_keyspace(prefix),
            Change::SetKeyspace { prefix, settings } => map.set_keyspace(prefix, settings),
            Change::RecoverKeyspace { prefix, lost } => map.recover_keyspace(prefix, lost),
            Change::AddNode(address) => map.add_node(address),
            Change::RemoveNode { id, force } => map.remove_node(*id, *force),
            Change::ReplaceNode { id, accept_loss } => map.replace_node(*id, *accept_loss),
            Change::NodeStarted { id, start, releases } => map.node_started(*id, *start, *releases),
            Change::RaiseLevel(level) => map.raise_level(*level),
            Change::HoldLevel(is_held) => {
                map.hold_level(*is_held);
                Ok(())
            }
            Change::Saved(saved) => {
                map.note_backups(saved);
                Ok(())
            }
            Change::InSync { group, epoch, revision, in_sync } => {
                map.set_in_sync(*group, (*epoch, *revision), in_sync)
            }
            Change::AppointLeaders(leaders) => {
                leaders.iter().try_for_each(|(group, leader)| map.appoint(*group, *leader))
            }
            Change::Resign { group, epoch, to } => map.resign(*group, *epoch, *to),
            Change::PreferLeader { groups, node } => map.prefer_leader(groups, *node),
            Change::DrainNode { id, is_drained } => map.drain_node(*id, *is_drained),
            Change::Quarantine { group, step } => map.change_quarantine(*group, *step),
            Change::Libraries(step) => libraries::apply(&mut map.libraries, step).map_err(Refusal::Other),
            Change::Users(step) => users::apply(&mut map.users, step).map_err(Refusal::Other),
            Change::MoveMember { group, step: Step::Add(node) } => map.add_member(*group, *node),
            Change::MoveMember { group, step: Step::Remove(node) } => map.remove_member(*group, *node),
        }?;
        if let Change::ReplaceNode { id, .. } = change {
            map.quarantine.forget_node(*id);
        }
        if !map.quarantine.is_empty() {
            map.tidy_quarantine();
        }
        if map != *self {
            map.version += 1;
            for (id, group) in &mut map.groups {
                let is_changed = self.groups.get(id).is_some_and(|before| before != group);
                group.revision += u64::from(is_changed);
            }
        }
        Ok(map)
    }

    // Nodes.

    fn add_node(&mut self, address: &NodeAddress) -> Result<(), Refusal> {
        let id = address.id;
        check_host(&address.host).map_err(|why| format!("node {id}: {why}"))?;
        match self.nodes.get(&id) {
            _ if id == 0 || usize::from(id) > NODES_MAX => {
                refuse!("a node's number is from 1 to {NODES_MAX}")
            }
            _ if [address.client_port, address.http_port, address.peer_port].contains(&0) => {
                refuse!("node {id} needs three ports")
            }
            Some(known) if known.address == *address && known.state == NodeState::Member => Ok(()),
            Some(known) if known.state == NodeState::Leaving => refuse!(
                "node {id} is about to leave: add it when CLUSTER NODES does not name it any more, with its process \
                 stopped, or give the new node another number"
            ),
            Some(_) => refuse!(
                "there is a node {id} already, with another address: give the new node another number, or remove that \
                 one first"
            ),
            None if self.nodes.len() >= NODES_MAX => refuse!("a cluster has {NODES_MAX} nodes at most"),
            None => {
                self.nodes.insert(id, Node::new(address.clone()));
                Ok(())
            }
        }
    }

    fn remove_node(&mut self, id: NodeId, force: bool) -> Result<(), Refusal> {
        let before = self.staying().len();
        let holders_before = self.holders();
        let node = self.nodes.get_mut(&id).ok_or(Refusal::NoNode(id))?;
        node.state = NodeState::Leaving;
        let after = self.staying().len();
        if after == 0 {
            refuse!("node {id} is the last one of the cluster");
        }
        if !self.groups.values().any(|group| group.members.contains(&id)) {
            if self.groups.values().all(|group| group.settled) {
                self.nodes.remove(&id);
            }
            return Ok(());
        }
        if before == after {
            return Ok(()); // The node is leaving already.
        }
        for (group_id, group) in &self.groups {
            if self.protocol(*group_id).has_registers() && group.members.contains(&id) {
                let name = self.name_of(*group_id);
                refuse!(
                    "node {id} cannot be removed: it holds a replica of {name}, whose members cannot be changed yet; \
                     drop the keyspace first"
                );
            }
        }
        for entry in self.keyspaces.values() {
            let [before, after] = [before, after].map(|nodes| entry.keyspace.replicas_on(nodes));
            check_coding(&entry.keyspace, before, after)
                .map_err(|why| format!("node {id} cannot be removed: {why}"))?;
            check_acks(&entry.keyspace, after)
                .map_err(|why| format!("node {id} cannot be removed: {why}"))?;
        }
        match self.losses(holders_before, self.holders()) {
            losses if losses.is_empty() || force => Ok(()),
            losses => refuse!(
                "node {id} cannot be removed without FORCE: {} would be left. Add a node first (quorate join), or \
                 insist: quorate node remove {id} --force (CLUSTER REMOVE {id} FORCE)",
                losses.join("; ")
            ),
        }
    }

    /// How many nodes hold replicas or could hold them: nodes that stay and have ever started.
    fn holders(&self) -> usize {
        let holds = |id: &NodeId| self.groups.values().any(|group| group.members.contains(id));
        let has_started = |id: &NodeId| self.nodes.get(id).is_some_and(|node| node.start.identity != 0);
        self.staying().iter().filter(|id| has_started(id) || holds(id)).count()
    }

    /// Lists what would have fewer replicas than its setting says, or fewer than three, on fewer nodes, with the
    /// consequences.
    fn losses(&self, before: usize, after: usize) -> Vec<String> {
        const FEW: usize = 3;
        const NAMED_MAX: usize = 8;
        let is_loss = |wanted: usize, had: usize, left: usize| left < had && (left < wanted || left < FEW);
        let mut losses = Vec::new();
        let [had, left] = [before, after].map(control_members);
        if is_loss(0, had, left) {
            losses.push(loss("the control group", had, left, left.saturating_sub(1) / 2));
        }
        let mut keyspaces = self.keyspaces.values().filter_map(|entry| {
            let keyspace = &entry.keyspace;
            let [had, left] = [before, after].map(|nodes| keyspace.replicas_on(nodes));
            let others = left.saturating_sub(1);
            let survives = match keyspace.acks {
                Acks::None | Acks::All => others,
                Acks::Count(count) => others.min(usize::from(count)),
                Acks::Majority => others / 2,
            };
            let name = format!("keyspace '{}'", keyspace.name());
            is_loss(usize::from(keyspace.replicas), had, left).then(|| loss(&name, had, left, survives))
        });
        losses.extend(keyspaces.by_ref().take(NAMED_MAX));
        match keyspaces.count() {
            0 => {}
            more => losses.push(format!("and so on with {more} more keyspaces")),
        }
        losses
    }

    fn replace_node(&mut self, id: NodeId, accept_loss: bool) -> Result<(), Refusal> {
        let node = self.nodes.get_mut(&id).ok_or(Refusal::NoNode(id))?;
        if node.state == NodeState::Leaving {
            refuse!("node {id} is leaving; there is nothing to replace it for");
        }
        let life = std::mem::take(&mut node.start).life;
        node.releases = Releases::default();
        let ids: Vec<GroupId> = self.groups.keys().copied().collect();
        for group_id in ids {
            let (protocol, acks) = (self.protocol(group_id), self.acks(group_id));
            let (name, keeps_records) = (self.name_of(group_id), self.keeps_records(group_id));
            let has_lost = |(node, known): (&NodeId, &Node)| {
                (known.rejoins.get(&group_id) == Some(&Rejoin::Leave)).then_some(*node)
            };
            let lost: BTreeSet<NodeId> = self.nodes.iter().filter_map(has_lost).chain([id]).collect();
            let knows_takeovers = self.has(Feature::TakingOver);
            let Some(group) = self.groups.get_mut(&group_id) else { continue };
            // Registers in memory are recovered from the others after every start.
            if !group.members.contains(&id) || protocol.has_registers() && !keeps_records {
                continue;
            }
            let is_followed = protocol == Protocol::LeaderFollower;
            let counts = is_followed && matches!(acks, Acks::Count(_) | Acks::Majority) && knows_takeovers;
            // The map does not show whether members that keep no records have lost their memory. The operator knows
            // it.
            let is_given_up = accept_loss && !keeps_records && !leader_holds_all(group, &lost);
            let is_sure = holds_all_without(group, acks, &lost) && !is_given_up;
            if counts && group.members != [id] && !is_sure {
                if !accept_loss {
                    refuse!(
                        "of the members of {name} nodes {lost:?} would be replaced, and the others may lack what was \
                         acknowledged: bring one back with its storage, or replace it accepting that writes are lost"
                    );
                }
                give_up(group, acks, &lost, id);
                let left = |node: &NodeId| !group.members.contains(node);
                for node in lost.iter().filter(|node| left(node)) {
                    let known = self.nodes.get_mut(node);
                    known.map(|known| known.rejoins.insert(group_id, Rejoin::Join));
                }
                continue;
            }
            let others: Vec<NodeId> = group.in_sync.iter().copied().filter(|node| *node != id).collect();
            // Under a count the in-sync set is a preference.
            let was_alone = group.members == [id] || is_followed && !counts && others.is_empty();
            if was_alone && !accept_loss {
                refuse!(
                    "node {id} alone held everything that was acknowledged in {name}: bring it back with its storage, \
                     or replace it accepting that writes are lost"
                );
            }
            if protocol.has_registers() {
                self.refill(id, group_id, life, accept_loss);
                continue;
            }
            if group.members == [id] {
                // A leader that is appointed begins again, empty. A consensus group waits: if the old storage comes
                // back after all, it goes on; else an operator has it begin again. See `begin_again`.
                match is_followed {
                    true => group.epoch += 1,
                    false => begin_membership(group, protocol, acks),
                }
                continue;
            }
            group.in_sync = others;
            if is_followed && group.leader == id {
                let fallback = group.members.iter().copied().find(|node| *node != id);
                group.leader = group.in_sync.first().copied().or(fallback).unwrap_or(id);
                if group.in_sync.is_empty() {
                    group.in_sync = vec![group.leader];
                }
                group.epoch += 1;
            }
            if let Some(node) = self.nodes.get_mut(&id) {
                node.rejoins.insert(group_id, Rejoin::Leave);
            }
        }
        Ok(())
    }

    /// From now on, what a node has recorded in a group of registers does not count. `life` is its last incarnation
    /// with the storage that it had.
    fn refill(&mut self, id: NodeId, group: GroupId, life: u64, accepts_loss: bool) {
        if let Some(node) = self.nodes.get_mut(&id) {
            let before = match node.rejoins.get(&group) {
                Some(Rejoin::Refill { lives_before, .. }) => *lives_before,
                _ => 0,
            };
            let refill = Rejoin::Refill { since: 0, lives_before: before + life, accepts_loss };
            node.rejoins.insert(group, refill);
        }
    }

    fn node_started(&mut self, id: NodeId, start: Start, releases: Releases) -> Result<(), Refusal> {
        let known = self.nodes.get(&id).ok_or(Refusal::NoNode(id))?.start;
        if known == start {
            return Ok(());
        }
        self.check_start(id, start, known.found)?;
        if let Some(why) = releases.refusal(self.level) {
            refuse!("{why}");
        }
        let node = self.nodes.get_mut(&id).ok_or(Refusal::NoNode(id))?;
        (node.start, node.releases) = (start, releases);
        for rejoin in node.rejoins.values_mut() {
            if let Rejoin::Refill { since: since @ 0, .. } = rejoin {
                *since = start.life;
            }
        }
        if known.life == 0 {
            return Ok(()); // At most its storage was known, as a control node's is: it never held data.
        }
        for group_id in self.groups.keys().copied().collect::<Vec<_>>() {
            let keeps_records = self.keeps_records(group_id);
            let is_followed = self.protocol(group_id) == Protocol::LeaderFollower;
            let Some(group) = self.groups.get_mut(&group_id) else { continue };
            if !is_followed || !group.members.contains(&id) {
                continue;
            }
            if !keeps_records && group.in_sync != [id] {
                group.in_sync.retain(|node| *node != id);
            }
            if group.leader == id {
                // Even if the leader lost nothing, it may have sent records that were not durable, and would assign
                // their offsets again.
                group.epoch += 1;
                group.leader = match group.in_sync.contains(&id) {
                    true => id,
                    false => group.in_sync.first().copied().unwrap_or(id),
                };
            }
        }
        Ok(())
    }

    // Groups.

    fn set_in_sync(
        &mut self,
        id: GroupId,
        (epoch, revision): (u64, u64),
        in_sync: &[NodeId],
    ) -> Result<(), Refusal> {
        let (protocol, acks, name) = (self.protocol(id), self.acks(id), self.name_of(id));
        let knows_takeovers = self.has(Feature::TakingOver);
        let group = self.groups.get_mut(&id).ok_or(Refusal::NoGroup(id))?;
        if epoch != group.epoch {
            let now = group.epoch;
            refuse!("{name} is in epoch {now}: what was so in epoch {epoch} does not count");
        }
        if revision != group.revision && (in_sync != group.in_sync || !group.settled) {
            refuse!("{name} has changed since: what was so before does not count");
        }
        let fits = in_sync.windows(2).all(|pair| pair[0] < pair[1])
            && in_sync.iter().all(|node| group.members.contains(node))
            && (protocol != Protocol::LeaderFollower || in_sync.contains(&group.leader));
        if !fits {
            refuse!("{name}: {in_sync:?} are not members of it in order, its leader among them");
        }
        group.in_sync = in_sync.to_vec();
        // The first members of a consensus group begin it empty, each when it learns of the group. A node that
        // learned of the next membership first would be taken for one that has lost what it had.
        let needed = match (protocol, group.epoch) {
            (Protocol::Consensus, 1) => group.members.len(),
            _ => settles_with(acks, group.members.len()),
        };
        group.settled |= in_sync.len() >= needed;
        // A leader reports this only once it has taken over, and holds everything durably.
        if protocol == Protocol::LeaderFollower && knows_takeovers {
            group.taken_over = epoch;
        }
        Ok(())
    }

    pub(super) fn appoint(&mut self, id: GroupId, leader: NodeId) -> Result<(), Refusal> {
        let (protocol, acks, name) = (self.protocol(id), self.acks(id), self.name_of(id));
        let group = self.groups.get_mut(&id).ok_or(Refusal::NoGroup(id))?;
        if protocol != Protocol::LeaderFollower {
            refuse!("{name}: only the leader of a leader-follower group is appointed");
        }
        if !group.members.contains(&leader) {
            refuse!("{name}: node {leader} holds no replica of it");
        }
        if acks == Acks::All && !group.in_sync.contains(&leader) {
            refuse!("{name}: node {leader} may lack writes that were acknowledged");
        }
        if !group.settled {
            refuse!(
                "{name}: its members have changed and too few are known to hold everything, so nobody else can lead it \
                 yet"
            );
        }
        group.epoch += 1;
        if group.leader != leader {
            // The deposed leader is dead or leaves: writes must not wait for it. The others still hold what they
            // held.
            let before = group.leader;
            group.in_sync.retain(|node| *node != before);
            group.leader = leader;
        }
        if !group.in_sync.contains(&leader) {
            group.in_sync = vec![leader];
        }
        Ok(())
    }

    fn add_member(&mut self, id: GroupId, node: NodeId) -> Result<(), Refusal> {
        let (protocol, acks, name) = (self.protocol(id), self.acks(id), self.name_of(id));
        if !self.staying().contains(&node) {
            refuse!("node {node} is no node that stays");
        }
        let group = self.moveable(id, &name)?;
        if group.members.contains(&node) {
            refuse!("{name}: node {node} holds a replica of it already");
        }
        group.members.push(node);
        group.members.sort_unstable();
        begin_membership(group, protocol, acks);
        if let Some(node) = self.nodes.get_mut(&node) {
            node.rejoins.remove(&id);
        }
        Ok(())
    }

    fn remove_member(&mut self, id: GroupId, node: NodeId) -> Result<(), Refusal> {
        let (protocol, acks, name) = (self.protocol(id), self.acks(id), self.name_of(id));
        if self.awaits_takeover(id) || !self.may_withdraw(id, node) {
            self.moveable(id, &name)?;
        }
        let group = self.groups.get_mut(&id).ok_or(Refusal::NoGroup(id))?;
        if !group.members.contains(&node) {
            refuse!("{name}: node {node} holds no replica of it");
        }
        if group.members == [node] {
            refuse!("{name}: node {node} holds the only replica of it");
        }
        if protocol == Protocol::LeaderFollower && group.leader == node {
            refuse!("{name}: node {node} leads it; another must be appointed first");
        }
        group.members.retain(|member| *member != node);
        group.in_sync.retain(|member| *member != node);
        if protocol == Protocol::Consensus && group.leader == node {
            group.leader = group.members[0];
        }
        if group.preferred == node {
            group.preferred = group.leader;
        }
        begin_membership(group, protocol, acks);
        if let Some(node) = self.nodes.get_mut(&node)
            && let Some(rejoin) = node.rejoins.get_mut(&id)
        {
            *rejoin = Rejoin::Join;
        }
        Ok(())
    }

    /// Whether a member may be removed although its group is not settled.
    ///
    /// In a leader-follower group that is a member that lost its storage: it holds nothing, and can never be one of
    /// those that are needed to settle the group. The leader stays, and holds everything once it has taken over.
    ///
    /// In a consensus group a member that lost its storage no longer takes part, and a membership that waits for it
    /// to enter as a new member would never begin. Removing it loses no write: a majority of each membership agrees
    /// on the next one, and the map only says which is wanted. The first membership is settled when all have begun
    /// it: a member that is to leave, and has never begun because it was dead, is not waited for.
    pub(super) fn may_withdraw(&self, id: GroupId, node: NodeId) -> bool {
        let (Some(group), Some(known)) = (self.groups.get(&id), self.nodes.get(&node)) else { return false };
        let have_others_begun = group.members.iter().all(|it| *it == node || group.in_sync.contains(it));
        let has_lost = known.rejoins.get(&id) == Some(&Rejoin::Leave);
        let never_began = group.epoch == 1 && known.state == NodeState::Leaving;
        match self.protocol(id) {
            Protocol::Consensus => {
                has_lost && (group.epoch > 1 || have_others_begun) || never_began && have_others_begun
            }
            Protocol::LeaderFollower => has_lost && self.has(Feature::TakingOver),
            Protocol::Abd | Protocol::Blocking => false,
        }
    }

    pub(super) fn not_taken_over_yet(&self, id: GroupId) -> String {
        let (name, leader) = (self.name_of(id), self.groups.get(&id).map_or(0, |group| group.leader));
        format!("{name}: node {leader} has not taken over yet what the others hold; try again")
    }

    fn moveable(&mut self, id: GroupId, name: &str) -> Result<&mut Group, Refusal> {
        if self.awaits_takeover(id) {
            refuse!("{}", self.not_taken_over_yet(id));
        }
        let group = self.groups.get_mut(&id).ok_or(Refusal::NoGroup(id))?;
        match group.settled {
            true => Ok(group),
            false => refuse!("{name}: its members have changed and it is not settled yet; try again"),
        }
    }
}

/// Begins a new membership of a group. After one change of members the next leader still finds every write that was
/// acknowledged; after two in a row it may not, and under a count of acknowledgements not even after one. So the
/// members that hold everything are counted again, and until there are enough no leader is appointed and no member
/// changes. Under `all` the in-sync set holds everything at any time, and under `none` nothing is promised.
fn begin_membership(group: &mut Group, protocol: Protocol, acks: Acks) {
    group.epoch += 1;
    match (protocol, acks) {
        (Protocol::LeaderFollower, Acks::All | Acks::None) => {}
        (Protocol::LeaderFollower, _) => group.in_sync = vec![group.leader],
        _ => group.in_sync.clear(),
    }
    group.settled = group.in_sync.len() >= settles_with(acks, group.members.len());
}

/// Whether the leader of a leader-follower group holds all that was acknowledged, and is not lost.
fn leader_holds_all(group: &Group, lost: &BTreeSet<NodeId>) -> bool {
    group.has_taken_over() && !lost.contains(&group.leader)
}

/// Whether the members of a leader-follower group that are not lost hold, between them, all that was acknowledged:
/// its leader does, or each write is at one more member than `acks` says.
fn holds_all_without(group: &Group, acks: Acks, lost: &BTreeSet<NodeId>) -> bool {
    let lost_members = group.members.iter().filter(|member| lost.contains(member)).count();
    let others_do = group.settled && lost_members < settles_with(acks, group.members.len());
    leader_holds_all(group, lost) || others_do
}

/// Continues a group without its lost members, with what the others hold. Without others it begins again, empty, on
/// node `last`.
fn give_up(group: &mut Group, acks: Acks, lost: &BTreeSet<NodeId>, last: NodeId) {
    group.members.retain(|member| !lost.contains(member));
    if group.members.is_empty() {
        group.members = vec![last];
    }
    if !group.members.contains(&group.leader) {
        let preferred = group.in_sync.iter().find(|node| group.members.contains(node));
        group.leader = *preferred.unwrap_or(&group.members[0]);
    }
    begin_membership(group, Protocol::LeaderFollower, acks);
}

/// Describes the consequence of having fewer replicas for failures.
fn loss(name: &str, had: usize, left: usize, survives: usize) -> String {
    let survives = match survives {
        0 => "survives no failure".to_string(),
        1 => "survives one failure".to_string(),
        more => format!("survives {more} failures"),
    };
    format!("of {name} {left} of {had} replicas, which {survives}")
}

fn check_acks(keyspace: &Keyspace, replicas: usize) -> Result<(), String> {
    match keyspace.acks {
        Acks::Count(count) if usize::from(count) + 1 > replicas => {
            let (name, followers) = (keyspace.name(), replicas.saturating_sub(1));
            Err(format!("keyspace '{name}': acks = {count} can never be with {followers} followers"))
        }
        _ => Ok(()),
    }
}

/// Checks that values cut into as many parts as the keyspace wants survive the failures that `replicas` replicas
/// survive.
fn check_coding(keyspace: &Keyspace, before: usize, replicas: usize) -> Result<(), String> {
    let Some(coding) = keyspace.coding() else { return Ok(()) };
    let parts = match coding.parts {
        Parts::Fixed(parts) => parts.into(),
        // Any number that was possible before may have been chosen.
        Parts::Adaptive => data_fragments_max(before),
    };
    if parts <= data_fragments_max(replicas) {
        return Ok(());
    }
    let name = keyspace.name();
    Err(match coding.parts {
        Parts::Fixed(_) => format!(
            "keyspace '{name}' cuts values into {parts} parts, which needs more than {replicas} replicas"
        ),
        Parts::Adaptive => format!(
            "keyspace '{name}' may have values in {parts} parts, which needs more than {replicas} replicas; set its \
             coding to {} or less, and write its large values again, first",
            data_fragments_max(replicas)
        ),
    })
}
