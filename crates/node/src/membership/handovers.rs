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

/// The least time between two attempts to hand over to a node that an operator has chosen.
const CHOSEN_US: u64 = 1_000_000;

/// What this node hands over, and has handed over.
#[derive(Debug, Default)]
pub(crate) struct Handovers {
    /// The process is about to stop.
    is_leaving: bool,
    /// How many groups this node led when it last looked although it is to lead none and others could.
    left: usize,
    /// The peers that were told that this node leaves, and have not noted it yet.
    told: BTreeSet<NodeId>,
    /// The preferred leader of each group that has leaders and a replica here.
    preferred: BTreeMap<u16, Preferred>,
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
            return self.preferred.clear();
        }
        self.hand_over_floored(cx);
        let own = cx.configuration.node;
        let is_going = cx.map.nodes.get(&own).is_none_or(|node| node.state == NodeState::Leaving);
        if self.is_leaving || is_going || cx.map.is_drained(own) {
            self.preferred.clear();
            self.hand_over_all(cx, cluster);
        } else {
            self.give_back(cx);
        }
    }

    /// Lets others lead what this node may take nothing up for, since its map is too old. Theirs may be too old as well, so each is
    /// chosen in turn.
    fn hand_over_floored(&self, cx: &mut Context) {
        let own = cx.configuration.node;
        let is_old =
            |id: &u16| cx.groups[*id].replica.as_ref().is_some_and(|replica| replica.leads_by_old_map());
        let ids: Vec<u16> = cx.groups.ids().iter().copied().filter(is_old).collect();
        for id in ids {
            let members = cx.groups[id].members.clone();
            let ring =
                members.iter().filter(|node| **node > own).chain(members.iter().filter(|node| **node < own));
            let others: Vec<NodeId> = ring.copied().filter(|node| is_well(cx, *node)).collect();
            let _ = others.into_iter().any(|to| hand_over(cx, id, to));
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
        let groups =
            cx.groups.iter().filter(|(_, group)| group.keyspace.has_leader() && group.replica.is_some());
        let groups: Vec<u16> = groups.map(|(id, _)| id).collect();
        self.preferred.retain(|id, _| cx.groups.get(*id).is_some());
        for id in groups {
            let node = cx.map.preferred_leader(id);
            let can_lead = cx.groups[id].members.contains(&node) && is_well(cx, node);
            let preferred = self.preferred.entry(id).or_insert_with(|| Preferred::new(now_us, node));
            if preferred.is_due(now_us, node, leader_of(cx, id), can_lead)
                && leads(cx, id)
                && hand_over(cx, id, node)
            {
                preferred.note_attempt(now_us);
            }
        }
    }
}

/// The preferred leader of a group, and when this node hands the group over to it, if this node leads then.
#[derive(Debug, PartialEq, Eq)]
struct Preferred {
    node: NodeId,
    /// An operator has chosen it, and it has not led since: it need not have been well for a while. This node may come to lead
    /// only after it has heard of the choice.
    is_chosen: bool,
    due_us: u64,
}

impl Preferred {
    fn new(now_us: u64, node: NodeId) -> Preferred {
        Preferred { node, is_chosen: false, due_us: now_us + WELL_US }
    }

    /// Whether the preferred `node` is to lead now, and `leader` leads instead.
    fn is_due(&mut self, now_us: u64, node: NodeId, leader: NodeId, can_lead: bool) -> bool {
        if self.node != node {
            *self = Preferred { node, is_chosen: true, due_us: now_us };
        }
        if leader == node {
            *self = Preferred::new(now_us, node);
        } else if !can_lead {
            self.due_us = now_us + WELL_US;
        }
        self.due_us <= now_us
    }

    /// A handover has begun, and may fail.
    fn note_attempt(&mut self, now_us: u64) {
        self.due_us = now_us + if self.is_chosen { CHOSEN_US } else { WELL_US };
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
    cx.groups.ids().iter().copied().filter(|id| leads(cx, *id)).collect()
}

fn leads(cx: &Context, id: u16) -> bool {
    cx.groups[id].replica.as_ref().is_some_and(|replica| replica.is_leader())
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

#[cfg(test)]
mod tests {
    use super::*;

    const AT_US: u64 = 50_000_000;

    #[test]
    fn a_preferred_leader_leads_again_when_it_has_been_well_for_a_while() {
        let mut preferred = Preferred::new(AT_US, 2);
        assert!(!preferred.is_due(AT_US + WELL_US - 1, 2, 1, true));
        assert!(!preferred.is_due(AT_US + WELL_US, 2, 1, false), "it was not well");
        assert!(!preferred.is_due(AT_US + 2 * WELL_US - 1, 2, 1, true));
        assert!(preferred.is_due(AT_US + 2 * WELL_US, 2, 1, true));
        preferred.note_attempt(AT_US + 2 * WELL_US);
        assert!(!preferred.is_due(AT_US + 3 * WELL_US - 1, 2, 1, true), "attempts are rare");
    }

    #[test]
    fn a_leader_that_an_operator_chose_does_not_wait_even_if_this_node_leads_only_later() {
        let mut preferred = Preferred::new(AT_US, 3);
        assert!(preferred.is_due(AT_US, 2, 3, true), "it is due, whichever node leads");
        assert!(preferred.is_due(AT_US + CHOSEN_US, 2, 1, true), "this node has come to lead since");
        preferred.note_attempt(AT_US + CHOSEN_US);
        assert!(preferred.is_due(AT_US + 2 * CHOSEN_US, 2, 1, true), "the attempt has failed");
        assert!(!preferred.is_due(AT_US + 3 * CHOSEN_US, 2, 2, true), "it leads");
        assert!(!preferred.is_due(AT_US + 4 * CHOSEN_US, 2, 1, true), "from now on as any preferred leader");
    }
}
