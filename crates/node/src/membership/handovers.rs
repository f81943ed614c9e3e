//! Which of the groups that this node leads it hands over to others: all of them before it stops, or when it is drained; and those
//! that another node is preferred to lead, once that node has been well for a while.
//!
//! A handover costs some milliseconds without an answer, and no outcome: see [`protocol::Replica::hand_over`]. The control group is
//! handed over last, since it appoints the next leaders of leader-follower groups.

use crate::context::status::leader_of;
use crate::context::{Context, room};
use crate::membership::Cluster;
use crate::messages::envelope::Envelope;
use cluster::control::{CONTROL_GROUP, Change, Feature, Group, NodeState, Refusal, refuse};
use cluster::setting::Protocol;
use protocol::NodeId;
use protocol::leader_follower::Acks;
use std::collections::{BTreeMap, BTreeSet};

/// For how long a preferred leader must have been well before it leads again, and the least time between two attempts.
const WELL_US: u64 = 10_000_000;

/// What this node hands over, and has handed over.
#[derive(Debug, Default)]
pub(crate) struct Handovers {
    /// The process is about to stop.
    is_leaving: bool,
    /// How many groups this node led when it last looked although it is to lead none and others could.
    left: usize,
    /// The peers that were told that this node leaves, and have not noted it yet.
    told: BTreeSet<NodeId>,
    /// For each group that this node leads: the preferred leader, and when that is to lead, if it is another node.
    returns: BTreeMap<u16, (NodeId, u64)>,
    /// The map's version when this node last looked whom to give groups back, and when it looks again.
    looked: (u64, u64),
}

impl Handovers {
    /// The process is about to stop: from now on everything is handed over.
    pub(crate) fn leave(&mut self, cx: &mut Context) {
        if !std::mem::replace(&mut self.is_leaving, true) {
            self.left = usize::MAX; // It has not looked yet.
            cx.peers.ids().for_each(|id| self.announce_to(cx, id));
        }
    }

    /// Tells a peer that this node is about to stop, if it is.
    pub(crate) fn announce_to(&mut self, cx: &mut Context, id: NodeId) {
        let knows = cx.peers.get(id).is_some_and(|peer| peer.release() >= Feature::Handovers.since());
        if self.is_leaving && knows && cx.peers.send(id, &Envelope::Leaving { is_noted: false }) {
            self.told.insert(id);
        }
    }

    /// A peer has noted that this node leaves, and forwards nothing to it any more.
    pub(crate) fn is_noted_by(&mut self, id: NodeId) {
        self.told.remove(&id);
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// Whether this node leads nothing any more that another node could lead, no write waits for it, and no peer forwards anything
    /// to it.
    pub(crate) fn has_left(&self, cx: &Context) -> bool {
        self.is_leaving && self.left == 0 && !self.told.iter().any(|id| cx.peers.is_up(*id))
    }

    /// Hands over what is to be handed over now. Call it several times a second. O(groups).
    pub(crate) fn tick(&mut self, cx: &mut Context, cluster: &mut Cluster) {
        self.left = if self.is_leaving { waited_for(cx) } else { 0 };
        // Nodes of release 1 do not know these messages.
        if !cx.admission.is_admitted() || !cx.map.has(Feature::Handovers) {
            return self.returns.clear();
        }
        let own = cx.configuration.node;
        let is_going = cx.map.nodes.get(&own).is_none_or(|node| node.state == NodeState::Leaving);
        if self.is_leaving || is_going || cx.map.is_drained(own) {
            self.returns.clear();
            self.hand_over_all(cx, cluster);
        } else {
            self.give_back(cx);
        }
    }

    fn hand_over_all(&mut self, cx: &mut Context, cluster: &mut Cluster) {
        let mut led = None;
        for id in led_here(cx) {
            let led = led.get_or_insert_with(|| count_led(cx));
            let mut others: Vec<NodeId> =
                cx.groups[id].members.iter().copied().filter(|it| is_well(cx, *it)).collect();
            others.sort_by_key(|node| led.get(node).copied().unwrap_or(0));
            self.left += usize::from(!others.is_empty());
            if let Some(to) = others.into_iter().find(|to| hand_over(cx, id, *to)) {
                *led.entry(to).or_default() += 1;
            }
        }
        let status = cluster.control().status(cx.now);
        if self.left == 0 && status.is_some_and(|status| status.role == "leader") {
            let members = cx.map.groups.get(&CONTROL_GROUP).map(|group| group.members.clone());
            let others: Vec<NodeId> =
                members.unwrap_or_default().into_iter().filter(|it| is_well(cx, *it)).collect();
            self.left += usize::from(!others.is_empty());
            let _ = others.into_iter().any(|to| cluster.hand_over(cx, to));
        }
    }

    fn give_back(&mut self, cx: &mut Context) {
        const LOOKS_US: u64 = 500_000;
        let now_us = cx.now.monotonic_us;
        let (version, due_us) = self.looked;
        if version == cx.map.version && now_us < due_us {
            return;
        }
        self.looked = (cx.map.version, now_us + LOOKS_US);
        let mut returns = std::mem::take(&mut self.returns);
        for id in led_here(cx) {
            let preferred = cx.map.preferred_leader(id);
            let mut due_us = match returns.remove(&id) {
                None => now_us + WELL_US,
                // An operator has chosen another node since.
                Some((before, _)) if before != preferred => now_us,
                Some((_, due_us)) => due_us,
            };
            let can_lead = cx.groups[id].members.contains(&preferred) && is_well(cx, preferred);
            let has_begun = can_lead && due_us <= now_us && hand_over(cx, id, preferred);
            if has_begun || !can_lead {
                due_us = now_us + WELL_US;
            }
            self.returns.insert(id, (preferred, due_us));
        }
    }
}

/// How many groups' writes wait for this node although others could go on without it.
fn waited_for(cx: &Context) -> usize {
    let own = cx.configuration.node;
    let waits = |id: u16, group: &Group| {
        let is_waited_for = cx.map.acks(id) == Acks::All && group.in_sync.contains(&own);
        cx.map.protocol(id) == Protocol::LeaderFollower
            && is_waited_for
            && group.leader != own
            && cx.peers.get(group.leader).is_some_and(|peer| peer.is_reached() && !peer.is_leaving())
    };
    cx.map.groups.iter().filter(|(id, group)| waits(**id, group)).count()
}

/// The groups that this node leads.
fn led_here(cx: &Context) -> Vec<u16> {
    let leads = |id: &u16| cx.groups[*id].replica.as_ref().is_some_and(|replica| replica.is_leader());
    cx.groups.ids().iter().copied().filter(leads).collect()
}

/// How many groups each node leads, as far as this node knows.
fn count_led(cx: &Context) -> BTreeMap<NodeId, usize> {
    let mut led = BTreeMap::new();
    for (id, _) in cx.groups.iter().filter(|(_, group)| group.keyspace.has_leader()) {
        *led.entry(leader_of(cx, id)).or_default() += 1;
    }
    led
}

/// Whether another node can lead, as far as this node knows.
fn is_well(cx: &Context, id: NodeId) -> bool {
    let stays = cx.map.nodes.get(&id).is_some_and(|node| node.state == NodeState::Member && !node.is_drained);
    stays && cx.peers.get(id).is_some_and(|peer| peer.is_reached() && !peer.is_leaving() && !peer.is_short())
}

// Operators' wishes.

/// The change that has a node lead a group, named by its number, or all groups of a keyspace, named by its prefix. Without a node: of
/// each group the member that leads fewest.
pub(crate) fn wanted(
    cx: &Context,
    named: &[u8],
    node: Option<Result<NodeId, Refusal>>,
) -> Result<Change, Refusal> {
    let node = node.transpose()?;
    let text = String::from_utf8_lossy(named);
    let prefix = if text == "default" { "" } else { &*text };
    let groups = match (text.parse::<u16>(), cx.map.keyspaces.get(prefix)) {
        (_, Some(entry)) => entry.groups.clone(),
        (Ok(group), None) => vec![group],
        (Err(_), None) => return Err(Refusal::NoKeyspace(prefix.to_owned())),
    };
    if let Some(node) = node {
        return Ok(Change::PreferLeader { groups, node });
    }
    let [group] = groups[..] else {
        refuse!(
            "a keyspace of several shards: name the node that is to lead them, or one group (CLUSTER MAP has their numbers)"
        );
    };
    let entry = cx.map.groups.get(&group).ok_or(Refusal::NoGroup(group))?;
    let (led, leader) = (count_led(cx), leader_of(cx, group));
    let (own, load) = (cx.configuration.node, |node: &NodeId| led.get(node).copied().unwrap_or(0));
    let others = entry.members.iter().copied().filter(|it| *it != leader && (*it == own || is_well(cx, *it)));
    match others.min_by_key(load) {
        Some(node) => Ok(Change::PreferLeader { groups, node }),
        None => refuse!("no other node that could lead group {group} is there"),
    }
}

/// The change that has this node lead all groups of which it has a replica, as `CLUSTER FAILOVER` asks for.
pub(crate) fn everything_here(cx: &Context) -> Result<Change, Refusal> {
    let node = cx.configuration.node;
    let follows = |id: &u16| {
        let group = &cx.groups[*id];
        group.keyspace.has_leader() && group.members.contains(&node) && leader_of(cx, *id) != node
    };
    let groups: Vec<u16> = cx.groups.ids().iter().copied().filter(follows).collect();
    if groups.is_empty() {
        refuse!("You should send CLUSTER FAILOVER to a replica");
    }
    Ok(Change::PreferLeader { groups, node })
}

fn hand_over(cx: &mut Context, id: u16, to: NodeId) -> bool {
    if room::stands_aside(cx, id) {
        return false;
    }
    let now = cx.now;
    let Some(replica) = cx.groups.get_mut(id).and_then(|group| group.replica.as_mut()) else { return false };
    let is_under_way = replica.hand_over(now, Some(to));
    if is_under_way {
        cx.groups.touch(id);
    }
    is_under_way
}
