//! Room in memory for what is under way.
//!
//! What scripts, transactions and some commands add is known only when they are carried out, and many are ordered before
//! that. So the leader gives each of these writes a part of the room that is left, as a bound in its record
//! ([`kv::Bounded`]), and takes it back when the write has been applied; from then on what was charged to the bound counts,
//! until a measurement includes it. All bounds under way together fit into the room of this node, and into what each other
//! member has announced. A node announces what it has left divided by the number of nodes that lead groups of which it has
//! replicas.
//!
//! A first write gets a quarter of what its group may give, the next one a quarter of the rest; but each gets at least
//! [`Memory::bound_least`], which is enough for most scripts. While that much is not left, the writes of a group wait for the
//! outcomes of those of it that are under way. One group has at most half of the room. A write that is alone in its group
//! always runs, until the node is full.

use super::memory::Memory;
use crate::context::Context;
use crate::messages::envelope::Envelope;
use cluster::control::Feature;
use kv::Command;
use kv::limits::RUN_ADDED_BYTES_MAX;
use protocol::{NodeId, Outcome, Result, Ticket};
use std::collections::BTreeSet;
use wire::release::Release;

/// Nodes of this release and later announce what they have left.
const ANNOUNCES_SINCE: Release = 2;

/// A write that adds more than this beyond its own bytes gets a bound, whatever it is.
const LARGE_GROWTH_BYTES: u64 = 64 << 10;

/// How long after its deadline a bound is taken back from a write that has left without an outcome.
const FORGOTTEN_US: u64 = 5_000_000;

/// The error for a write for which there is no room before others have their outcomes.
const CROWDED: &str =
    "TRYAGAIN OVERLOADED the writes under way may take all memory that is left; nothing was done, try again";

/// What a write needs before it can be ordered.
#[derive(Debug)]
pub(crate) enum Grant {
    /// Nothing: its own bytes bound what it adds.
    Unneeded,
    /// This bound.
    Bound(u64),
    /// That others have their outcomes. What its client is told if that takes too long.
    Waits(&'static str),
}

/// Decides whether a write that this node's replica is about to order needs a bound, and which. One that grows little needs none.
pub(crate) fn grant(cx: &Context, id: u16, command: &Command<'_>) -> Grant {
    let group = &cx.groups[id];
    let Some(replica) = group.replica.as_ref().filter(|it| it.is_leader()) else { return Grant::Unneeded };
    if !group.keyspace.has_leader() || !cx.map.has(Feature::BoundedWrites) {
        return Grant::Unneeded;
    }
    let sizes = replica.table().sizes(cx.now.unix_ms);
    if !command.grows_with_the_table() && command.growth_bytes(&sizes) < LARGE_GROWTH_BYTES {
        return Grant::Unneeded;
    }
    let known = command.charge_bytes(&sizes);
    if !cx.memory.is_bounded() {
        return Grant::Bound(known.saturating_add(RUN_ADDED_BYTES_MAX));
    }
    let (all, own) = (left_among(cx, &group.members), group.granted.bytes());
    // A group whose writes are stuck leaves half of it to the others.
    let left = all.min(((all + cx.memory.granted) / 2).saturating_sub(own));
    let least = cx.memory.bound_least();
    let lacks = |room: u64| known.saturating_add(least) > room;
    if lacks(left) && own > 0 || lacks(all) && cx.memory.granted > 0 {
        return Grant::Waits(CROWDED);
    }
    let most = RUN_ADDED_BYTES_MAX.min(cx.memory.bytes_max() / 8).max(least);
    Grant::Bound(known.saturating_add((left.saturating_sub(known) / 4).clamp(least, most)))
}

/// Reserves the bound of a write that the group's replica here orders.
pub(crate) fn reserve(cx: &mut Context, group: u16, ticket: Ticket, bytes: u64, deadline_us: u64) {
    cx.groups[group].granted.begin(ticket, bytes, deadline_us.saturating_add(FORGOTTEN_US));
    cx.memory.granted += bytes;
}

/// Takes the bound of a write back that its group's replica here hands on without having ordered it.
#[cold]
pub(crate) fn release(cx: &mut Context, group: u16, ticket: Ticket) {
    let bytes = cx.groups.get_mut(group).and_then(|group| group.granted.end(ticket));
    cx.memory.granted = cx.memory.granted.saturating_sub(bytes.unwrap_or(0));
}

/// Takes the bounds of writes back that have their outcomes, and counts what the writes have added. Returns whether it
/// took any.
#[cold]
pub(crate) fn settle(cx: &mut Context, id: u16, outcomes: &[Outcome]) -> bool {
    let Some(group) = cx.groups.get_mut(id) else { return false };
    let mut is_any = false;
    for outcome in outcomes {
        let Some(bytes) = group.granted.end(outcome.ticket) else { continue };
        is_any = true;
        cx.memory.granted = cx.memory.granted.saturating_sub(bytes);
        // It may be applied later.
        let unknown = if outcome.result == Result::Unknown { bytes } else { 0 };
        cx.memory.count_added(unknown);
    }
    if is_any && let Some(replica) = &group.replica {
        cx.memory.count_added(group.granted.look(replica.table().charged_bytes()));
    }
    is_any
}

/// After a measurement, which includes what was added before: forgets the bounds of writes that have left without an
/// outcome, and announces what is left.
pub(crate) fn after_measurement(cx: &mut Context) {
    let now_us = cx.now.monotonic_us;
    let (mut granted, mut leaders) = (0, BTreeSet::new());
    let mut place = 0;
    while let Some(id) = cx.groups.id_at(place) {
        place += 1;
        let leader = cx.coordinator_of(id);
        let group = &mut cx.groups[id];
        let Some(replica) = &group.replica else { continue };
        group.granted.forget(now_us);
        group.granted.look(replica.table().charged_bytes());
        granted += group.granted.bytes();
        if group.keyspace.has_leader() {
            leaders.insert(leader);
        }
    }
    cx.memory.granted = granted;
    cx.memory.leaders = leaders.len().max(1) as u64;
    let left = cx.memory.share_left();
    if left.abs_diff(cx.memory.announced) > cx.memory.bytes_max() / 64 {
        cx.memory.announced = left;
        for id in cx.peers.ids() {
            announce_to(cx, id);
        }
    }
}

/// Announces to a peer what is left.
pub(crate) fn announce_to(cx: &mut Context, id: NodeId) {
    let bytes = cx.memory.announced;
    if cx.memory.is_bounded() && cx.memory.is_measured() && cx.peers[id].release() >= ANNOUNCES_SINCE {
        cx.peers.send(id, &Envelope::MemoryLeft { bytes });
    }
}

/// Takes what a peer has left.
pub(crate) fn peer_has_left(cx: &mut Context, from: NodeId, bytes: u64) {
    let given = cx.memory.added_in_all;
    cx.peers[from].report_memory_left(bytes, given);
}

/// What all members of a group have left for writes that this node orders.
fn left_among(cx: &Context, members: &[NodeId]) -> u64 {
    let Memory { granted, added_in_all, .. } = cx.memory;
    let others = members.iter().filter_map(|id| cx.peers.get(*id)?.memory_left());
    let others = others.map(|(left, given)| left.saturating_sub(added_in_all.saturating_sub(given)));
    let left = others.fold(cx.memory.share_left(), u64::min);
    left.saturating_sub(granted)
}
