//! How a node follows the cluster map: the groups that it takes part in, and its peers.

use crate::coding::Coding;
use crate::context::Context;
use crate::disk::journal::Tail;
use crate::groups::Group;
use crate::groups::replica::Replica;
use crate::maintenance::quarantine::Quarantine;
use crate::session::gates::Gate;
use crate::values::Values;
use cluster::control::{self, CONTROL_GROUP, ClusterMap, Rejoin};
use cluster::keyspace::Router;
use cluster::setting::Protocol;
use protocol::{Configuration, Effects, Input};

/// How much longer than the command timeout a group of a dropped keyspace is kept without its replica, so that clients whose
/// commands other nodes carry out get an answer.
const FAREWELL_MS: u64 = 1000;

/// What a map changes in this node's part in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The node has no replica, or keeps the one that it has until others can do without it.
    Stays,
    /// Its replica is dropped.
    Ends,
    /// It holds a replica.
    Holds,
}

/// Whether keys are in other groups by the second map than by the first.
pub(crate) fn moves_keys(before: &ClusterMap, map: &ClusterMap) -> bool {
    let groups = |map: &'_ ClusterMap| -> Vec<(String, Vec<u16>)> {
        map.keyspaces.iter().map(|(prefix, entry)| (prefix.clone(), entry.groups.clone())).collect()
    };
    groups(before) != groups(map)
}

/// Adopts a cluster map: its nodes, keyspaces and groups. Returns the groups that it drops, whose replicas have to be retired.
pub(crate) fn adopt(
    cx: &mut Context,
    coding: &mut Coding,
    values: &mut Values,
    map: &ClusterMap,
) -> Vec<u16> {
    cx.configuration.nodes = map.nodes.values().map(|node| node.address.clone()).collect();
    cx.configuration.keyspaces = map.keyspaces.values().map(|entry| entry.keyspace.clone()).collect();
    let last = map.nodes.keys().max().copied().unwrap_or_default();
    cx.peers.grow(last);
    let prefixes = map.keyspaces.iter();
    let groups_of = prefixes.map(|(prefix, entry)| (prefix.clone().into(), entry.groups.clone()));
    cx.groups.set_router(Router::new(groups_of));
    let gone: Vec<u16> = cx.groups.ids().iter().copied().filter(|id| !map.groups.contains_key(id)).collect();
    for id in &gone {
        let patience_ms = cx.configuration.command_timeout_ms + FAREWELL_MS;
        cx.groups.dismiss(*id, cx.now.monotonic_us + patience_ms * 1000);
    }
    let mut is_coding = coding.is_on();
    for (id, entry) in map.groups.iter().filter(|(id, _)| **id != CONTROL_GROUP) {
        let Some(held) = map.keyspaces.get(&entry.keyspace) else { continue };
        let keyspace = &held.keyspace;
        let group = cx.groups.entry(*id, || Group::new(keyspace.clone(), entry.shard));
        group.shard = entry.shard;
        group.members.clone_from(&entry.members);
        group.leader = entry.leader;
        group.coding = keyspace.coding();
        is_coding |= group.coding.is_some();
        if keyspace.spills() {
            values.begin();
            cx.gates.set(Gate::Values, true);
        }
        if group.keyspace != *keyspace {
            group.keyspace = keyspace.clone();
            cx.journal.set_durability(&mut group.tail, keyspace.durability());
            let planted = cx.configuration.planted;
            if let Some(replica) = &mut group.replica {
                replica.set_keyspace(keyspace, planted);
            }
            // The group may exceed its bound on memory now.
            cx.groups.touch(*id);
        }
    }
    if is_coding && !coding.is_on() {
        coding.begin(cx.now.monotonic_us);
        cx.gates.set(Gate::Coding, true);
    }
    if let Some(default) = map.keyspaces.get("") {
        cx.parameters.follow(&default.keyspace);
    }
    gone
}

/// This node's part in a group from now on.
pub(crate) fn part_in(cx: &Context, map: &ClusterMap, id: u16, entry: &control::Group) -> Part {
    let own = cx.configuration.node;
    let Some(group) = cx.groups.get(id) else { return Part::Stays };
    let is_member = entry.members.contains(&own);
    // A node that is to leave a consensus group may lead it, and its vote may be needed, until the others can do
    // without it: its replica has to know the wanted membership. This does not hold for a node that lost its storage.
    let has_lost = map.nodes.get(&own).is_some_and(|node| node.rejoins.contains_key(&id));
    let is_elected = group.replica.is_some() && group.keyspace.replication == Protocol::Consensus;
    let is_leaving = !entry.settled && !has_lost && is_elected;
    match map.takes_part(own, id, entry) || is_leaving {
        true => Part::Holds,
        // The data of a member that has to rejoin is useless. A node that is no longer a member may still have to
        // give the new members what they lack.
        false if is_member || entry.settled => Part::Ends,
        false => Part::Stays,
    }
}

/// Makes a replica of a group, which does not take part yet.
pub(crate) fn make_replica(
    cx: &Context,
    quarantine: &Quarantine,
    id: u16,
    entry: &control::Group,
) -> Replica {
    let mut replica = Replica::new(&cx.groups[id].keyspace, id, &cx.configuration);
    // A member that starts empty again changes its groups in the map first.
    if entry.revision == 0 {
        replica.begin_with_group();
    }
    quarantine.attach(id, &mut replica);
    replica
}

/// The configuration to be given to a group's replica, unless it has it.
pub(crate) fn configuration_for(
    cx: &mut Context,
    map: &ClusterMap,
    id: u16,
    entry: &control::Group,
) -> Option<Configuration> {
    let (own, life) = (cx.configuration.node, cx.configuration.life);
    // A stopped replica is configured when it goes on.
    let group = cx.groups.get_mut(id).filter(|group| group.holds.is_none())?;
    let rejoin = map.nodes.get(&own).and_then(|node| node.rejoins.get(&id));
    if let (Some(replacement), Some(replica), None) =
        (rejoin.and_then(Rejoin::replacement), &mut group.replica, &group.configured)
    {
        replica.replaced(&replacement);
    }
    let configuration = entry.configuration_of(own, life);
    if group.configured.as_ref() == Some(&configuration) {
        return None;
    }
    group.configured = Some(configuration.clone());
    Some(configuration)
}

/// Drops the replica of a group: all of its requests get outcomes with the effects of this. Returns false if there is
/// none.
pub(crate) fn retire(cx: &mut Context, values: &mut Values, effects: &mut Effects, id: u16) -> bool {
    let group = &mut cx.groups[id];
    group.configured = None;
    let Some(mut replica) = group.replica.take() else { return false };
    if let Some(spilled) = replica.spilled_values().filter(|_| group.keyspace.spills()) {
        values.replica_dropped(id, spilled.spilled(), group.tail.is_durable());
    }
    // A later replica of the group numbers its records from the beginning.
    group.tail = Tail::new(group.keyspace.durability());
    let stepped = replica.step(cx.now, Input::Retire, effects);
    assert_eq!(stepped, Ok(()), "only a message can be malformed");
    effects.keep_ends();
    true
}
