//! Dispersal: how a large value gets into its group.
//!
//! ```text
//!  client     coordinator 2       member 1      member 3      leader
//!    | SET        |                  |             |             |
//!    |----------->| k = 2 of 3       |             |             |
//!    |            |-- Keep 0 ------->|             |             |
//!    |            |-- Keep 2 --------------------->|             |
//!    |            | its own, fragment 1, recorded  |             |
//!    |            |                  | recorded, durable         |
//!    |            |<- Kept ----------|             |             |
//!    |            |<- Kept ------------------------|             |
//!    |            | k + F = 3 keep it durably      |             |
//!    |            |-- SET key -> (id, k, length, digest) ------->|  an ordinary command
//!    |<-- OK -----|<---------------------------------- Done -----|
//! ```
//!
//! If too few members keep their fragments in time, the value is dispersed again, under another name, in fewer parts;
//! in the end whole, to a majority. Silent members are not relied on for a while.

use super::choice::Way;
use super::{Coding, IN_TRANSIT_BYTES_MAX, Operation, PEER_OUTPUT_BYTES, UNDER_WAY_BYTES};
use crate::collections::slab::Handle;
use crate::context::Context;
use crate::session::origin::Asked;
use crate::session::origin::Origin;
use cluster::setting::Parts;
use coding::{Layout, data_fragments_max, failures_tolerated};
use info::facts::StoringTimes;
use kv::SharedBytes;
use kv::digest::Digest;
use kv::{Command, Condition, Coordinator, Expiry, Reference, Reply, SetAnswer, ValueId};
use protocol::coded::{Message, Piece, Refusal, number_of};
use protocol::planted::Fault;
use protocol::{NodeId, Request, Result as Outcome, Ticket};
use std::collections::BTreeMap;

/// A value that too few members keep after this time is dispersed in fewer parts...
const PATIENCE_US: u64 = 400_000;
/// ... and this much longer for each byte that is sent: a link of half a megabyte per second is slow, not dead.
pub(super) const PATIENCE_US_PER_BYTE: u64 = 2;

/// For how long a node that did not keep a fragment in time is not relied on.
const SILENCE_US: u64 = 5_000_000;

/// The most bytes of values that are being dispersed: more are refused.
const DISPERSING_BYTES_MAX: usize = 512 << 20;

/// Bytes digested at a time, and how many digested bytes cost as much as one sent byte.
const DIGESTED_BYTES: usize = 2 << 20;
const DIGESTS_PER_PIECE: usize = 8;

/// A value that is being stored.
#[derive(Debug)]
pub(super) struct Dispersal {
    client: Ticket,
    group: u16,
    key: Vec<u8>,
    value: SharedBytes,
    /// The digest so far, and how many bytes of the value it covers.
    digest: (Box<Digest>, usize),
    expiry: Expiry,
    condition: Condition,
    answer: SetAnswer,
    deadline_us: u64,
    begun_us: u64,
    /// When enough members kept their fragments.
    ordered_us: u64,
    attempt: Attempt,
}

/// One attempt to disperse the value, under a name of its own.
#[derive(Debug)]
struct Attempt {
    reference: Reference,
    layout: Layout,
    targets: Vec<Target>,
    until_us: u64,
    is_ordered: bool,
    /// The newest membership of the group that was known when the attempt began.
    since_membership: u32,
}

/// A member, and its progress.
#[derive(Debug)]
struct Target {
    node: NodeId,
    number: u8,
    next_stripe: usize,
    /// The pieces of all stripes before this one are on the member's disk, according to its reports.
    taken: usize,
    /// The membership in which the member keeps its fragment, and the number of members in that.
    kept: Option<(u32, u16)>,
    refused: bool,
}

/// How long an attempt may go without progress: `times` as long on a network that is configured as slow. Whole copies,
/// the last resort, get four times as long.
fn patience_us(length: usize, parts: usize, members: usize, times: u64) -> u64 {
    // All fragments but one leave through one interface.
    let sent = (length * members.saturating_sub(1) / parts.max(1)) as u64;
    let patience_us = times * (PATIENCE_US + sent * PATIENCE_US_PER_BYTE);
    if parts == 1 { 4 * patience_us } else { patience_us }
}

impl Attempt {
    /// Returns the membership in which enough members keep a fragment that those left after failures can rebuild the
    /// value.
    fn quorum(&self, bare_majority: bool) -> Option<u32> {
        let mut kept: BTreeMap<(u32, u16), usize> = BTreeMap::new();
        for membership in self.targets.iter().filter_map(|target| target.kept) {
            *kept.entry(membership).or_default() += 1;
        }
        let parts = if bare_majority { 1 } else { self.layout.parts() };
        let is_enough = |members: u16, count: usize| count >= parts + failures_tolerated(members.into());
        kept.into_iter().rev().find(|((_, members), count)| is_enough(*members, *count)).map(|(it, _)| it.0)
    }

    /// Returns the newest membership in which a member keeps its fragment, with the number of its members, and how many
    /// members keep theirs in it. The others no longer count: a command that names their membership would do nothing.
    fn newest(&self) -> ((u32, u16), usize) {
        let kept = self.targets.iter().filter_map(|target| target.kept);
        let newest = kept.clone().max().unwrap_or((0, self.targets.len() as u16));
        (newest, kept.filter(|membership| *membership == newest).count())
    }

    /// Whether the group's members have changed since the attempt began, and either some members keep their fragments in
    /// a former membership, or the attempt was made for other members.
    fn is_overtaken(&self) -> bool {
        let (newest, kept) = self.newest();
        let is_for_others = usize::from(newest.1) != self.targets.len();
        newest.0 > self.since_membership
            && (is_for_others || self.targets.iter().filter(|target| target.kept.is_some()).count() > kept)
    }
}

impl Dispersal {
    fn is_digested(&self) -> bool {
        self.digest.1 == self.value.len()
    }

    /// Continues the digest by an amount that takes little of a turn.
    fn digest_more(&mut self, budget: &mut usize) {
        let Dispersal { digest: (digest, done), value, attempt, .. } = self;
        let end = value.len().min(*done + DIGESTED_BYTES);
        digest.update(&value[*done..end]);
        *budget = budget.saturating_sub((end - *done) / DIGESTS_PER_PIECE);
        *done = end;
        attempt.reference.digest = digest.finish();
    }
}

impl Coding {
    /// Takes a client's `SET` if its value is large. Returns false if the command must go the usual way.
    pub(crate) fn disperse(
        &mut self,
        cx: &mut Context,
        client: crate::session::ClientId,
        group: u16,
        wants_version: bool,
        command: &Command<'_>,
        deadline_us: u64,
    ) -> bool {
        let Command::Set { key, value, expiry, condition, answer } = *command else { return false };
        let Some(settings) = cx.groups[group].coding else { return false };
        let members = &cx.groups[group].members;
        if value.len() < settings.threshold
            || answer == SetAnswer::Before
            || !members.iter().all(|member| number_of(*member).is_some())
        {
            return false;
        }
        if cx.clients.sessions.get(client).is_none() {
            return false;
        }
        let parts = match settings.parts {
            Parts::Fixed(parts) => self.parts_for(cx, group, parts.into()),
            Parts::Adaptive => match self.way_for(cx, group, value.len()) {
                (Way::Log, predicted_us) => {
                    self.log_value(cx, client, group, wants_version, command, (deadline_us, predicted_us));
                    return true;
                }
                (Way::Parts(parts), _) => parts.into(),
            },
        };
        let Some(session) = cx.clients.sessions.get_mut(client) else { return false };
        // Later commands must not overtake the write.
        session.close_gate();
        let client = session.begin(wants_version);
        if self.dispersing_bytes + value.len() > DISPERSING_BYTES_MAX {
            let error = "TRYAGAIN OVERLOADED too many bytes of values are being dispersed; nothing was done, try again";
            cx.complete_with_error(client, group, Outcome::Refused, error);
            return true;
        }
        self.dispersing_bytes += value.len();
        let within = cx.clients.lent().and_then(|buffer| SharedBytes::within(buffer, value));
        let value = within.unwrap_or_else(|| value.to_vec().into());
        // The digest is not known before the first piece is made.
        let attempt = self.attempt(cx, group, value.len(), 0, parts, deadline_us);
        let id = attempt.reference.id;
        let dispersal = Dispersal {
            client,
            group,
            key: key.to_vec(),
            value,
            digest: (Box::default(), 0),
            expiry,
            condition,
            answer,
            deadline_us,
            begun_us: cx.now.monotonic_us,
            ordered_us: 0,
            attempt,
        };
        let handle = self.operations.insert(|_| Operation::Disperse(dispersal));
        self.dispersals.insert(id, handle);
        true
    }

    /// Into how many parts a value can be cut now, `wanted` at most: no more than the members that are relied on
    /// could keep.
    pub(super) fn parts_for(&self, cx: &Context, group: u16, wanted: usize) -> usize {
        let members = &cx.groups[group].members;
        let counted_on = members.iter().filter(|member| self.is_counted_on(cx, **member)).count();
        let bearable = counted_on.saturating_sub(failures_tolerated(members.len()));
        wanted.min(data_fragments_max(members.len())).min(bearable).max(1)
    }

    /// Whether a node can be reached, and has not been silent.
    pub(super) fn is_counted_on(&self, cx: &Context, node: NodeId) -> bool {
        let now_us = cx.now.monotonic_us;
        let is_silent = self.silent.get(&node).is_some_and(|until| *until > now_us);
        node == cx.configuration.node || cx.peers.is_up(node) && !is_silent
    }

    /// Begins an attempt, of which nothing is sent yet.
    fn attempt(
        &mut self,
        cx: &mut Context,
        group: u16,
        length: usize,
        digest: u64,
        parts: usize,
        deadline_us: u64,
    ) -> Attempt {
        self.counter += 1;
        let coordinator = Coordinator { node: cx.configuration.node, life: self.life };
        let id = ValueId { coordinator, counter: self.counter };
        let reference = Reference { id, parts: parts as u8, length: length as u32, digest };
        let Some(layout) = Layout::new(length, parts as u8) else {
            unreachable!("a value is cut into at least one part")
        };
        let members = cx.groups.get(group).map(|group| group.members.as_slice()).unwrap_or_default();
        let target = |node: &NodeId| {
            let number = number_of(*node)?;
            Some(Target { node: *node, number, next_stripe: 0, taken: 0, kept: None, refused: false })
        };
        let targets: Vec<Target> = members.iter().filter_map(target).collect();
        let nodes = targets.iter().map(|target| target.node);
        let reached = nodes.filter(|node| *node == coordinator.node || cx.peers.is_up(*node)).collect();
        let patience_us = patience_us(length, parts, members.len(), cx.configuration.patience);
        let until_us = deadline_us.min(cx.now.monotonic_us + patience_us);
        self.wake_at(until_us);
        self.fragments_begun(cx, id, layout, reached);
        Attempt { reference, layout, targets, until_us, is_ordered: false, since_membership: 0 }
    }

    /// Makes pieces and sends them, as far as there is room.
    pub(super) fn pump_dispersals(&mut self, cx: &mut Context, budget: &mut usize) {
        let mut values: Vec<(ValueId, Handle)> =
            self.dispersals.iter().map(|(id, handle)| (*id, *handle)).collect();
        let behind = self.pumped.map_or(0, |last| values.partition_point(|(id, _)| *id <= last));
        values.rotate_left(behind);
        let mut under_way = self.pieces_under_way();
        // A stripe of each value in turn, so that a small value does not wait for a large one.
        while *budget > 0 && !values.is_empty() {
            values.retain(|(id, handle)| {
                if *budget > 0 {
                    self.pumped = Some(*id);
                }
                *budget > 0 && self.pump_stripe(cx, *handle, budget, &mut under_way)
            });
        }
        if *budget == 0 {
            self.wake_at(cx.now.monotonic_us);
        }
    }

    /// The bytes of pieces that were sent to each node, and are not known to be on its disk.
    fn pieces_under_way(&self) -> BTreeMap<NodeId, usize> {
        let mut under_way = BTreeMap::new();
        for handle in self.dispersals.values() {
            let Some(Operation::Disperse(dispersal)) = self.operations.get(*handle) else { continue };
            let Attempt { targets, layout, .. } = &dispersal.attempt;
            for target in targets.iter().filter(|target| target.kept.is_none() && !target.refused) {
                let sent: usize = (target.taken..target.next_stripe).map(|it| layout.piece_bytes(it)).sum();
                *under_way.entry(target.node).or_default() += sent;
            }
        }
        under_way
    }

    /// Sends each member its next piece. Returns false when there is nothing to send, or no room.
    fn pump_stripe(
        &mut self,
        cx: &mut Context,
        handle: Handle,
        budget: &mut usize,
        under_way: &mut BTreeMap<NodeId, usize>,
    ) -> bool {
        let own = cx.configuration.node;
        let (mut is_busy, mut is_held_up) = (false, false);
        let mut place = 0;
        loop {
            // A report from this node's own replica may have ended the attempt.
            let Some(Operation::Disperse(dispersal)) = self.operations.get_mut(handle) else {
                return false;
            };
            if !dispersal.is_digested() {
                dispersal.digest_more(budget);
                return true;
            }
            let Dispersal { group, attempt, value, .. } = dispersal;
            let Attempt { reference, layout, targets, .. } = attempt;
            let members = targets.len();
            // The other members get their pieces in the next turn.
            let Some(target) = targets.get_mut(place).filter(|_| *budget > 0) else { break };
            place += 1;
            if target.refused || target.next_stripe >= layout.stripes() {
                continue;
            }
            let (group, node, stripe) = (*group, target.node, target.next_stripe);
            let (estimates, now_us) = (&self.choice.estimates, cx.now.monotonic_us);
            let in_transit = (estimates.in_round_trip(node, now_us) as usize).min(IN_TRANSIT_BYTES_MAX);
            let window = estimates.in_turnaround(node, now_us) as usize;
            let window = window.clamp(UNDER_WAY_BYTES, UNDER_WAY_BYTES + in_transit);
            let has_room = match cx.peers.get(node) {
                _ if node == own => true,
                Some(peer) if peer.is_up() => {
                    is_held_up |= peer.output_bytes() >= PEER_OUTPUT_BYTES;
                    peer.output_bytes() < PEER_OUTPUT_BYTES
                }
                _ => false,
            };
            // A piece frees its room when its member reports that it is on the disk.
            let under_way = under_way.entry(node).or_default();
            if !has_room || *under_way >= window {
                continue;
            }
            *under_way += layout.piece_bytes(stripe);
            target.next_stripe += 1;
            let patience_us = patience_us(value.len(), layout.parts(), members, cx.configuration.patience);
            attempt.until_us = dispersal.deadline_us.min(cx.now.monotonic_us + patience_us);
            let (value, mut memory) = (value.clone(), std::mem::take(&mut self.piece));
            let bytes = layout.piece(&value, target.number, stripe, &mut memory);
            let share = layout.bytes_in(stripe) / members.max(1);
            let (id, parts) = (reference.id, layout.parts());
            let piece = Piece::new(*reference, target.number, stripe as u32, bytes);
            *budget = budget.saturating_sub(bytes.len().max(1));
            is_busy = true;
            if parts > 1 {
                self.choice.cut(share);
                self.traces.cut(id, share);
            }
            if stripe == 0 {
                self.choice.estimates.leaves(node, id, own, now_us);
            }
            self.send(cx, group, node, &Message::Keep(piece));
            self.piece = memory;
        }
        if is_held_up {
            self.wake_at(cx.now.monotonic_us + 1000);
        }
        is_busy
    }

    /// A member keeps its fragment.
    pub(super) fn fragment_kept(
        &mut self,
        cx: &mut Context,
        from: NodeId,
        id: ValueId,
        membership: (u32, u16),
    ) {
        self.silent.remove(&from);
        let (own, now_us) = (cx.configuration.node, cx.now.monotonic_us);
        self.choice.estimates.kept(from, id, own, now_us);
        let Some(handle) = self.dispersals.get(&id).copied() else { return };
        let Some(Operation::Disperse(dispersal)) = self.operations.get_mut(handle) else { return };
        let target = dispersal.attempt.targets.iter_mut().find(|target| target.node == from);
        if let Some(target) = target {
            target.kept = Some(membership);
        }
        let bare_majority = cx.configuration.planted.has(Fault::CodedOnBareMajority);
        if !dispersal.attempt.is_ordered
            && let Some(membership) = dispersal.attempt.quorum(bare_majority)
        {
            self.order_value(cx, handle, membership);
        } else if dispersal.attempt.is_overtaken() {
            self.wake_at(now_us);
        }
    }

    /// A member has a piece of its fragment on its disk.
    pub(super) fn piece_taken(&mut self, from: NodeId, id: ValueId, stripe: u32) {
        let Some(handle) = self.dispersals.get(&id).copied() else { return };
        let Some(Operation::Disperse(dispersal)) = self.operations.get_mut(handle) else { return };
        if let Some(target) = dispersal.attempt.targets.iter_mut().find(|target| target.node == from) {
            target.taken = target.taken.max(stripe as usize + 1).min(target.next_stripe);
        }
    }

    /// A member does not keep its fragment.
    pub(super) fn fragment_refused(&mut self, cx: &mut Context, from: NodeId, id: ValueId, _: Refusal) {
        self.choice.estimates.given_up(from, id, 0, cx.now.monotonic_us);
        let Some(handle) = self.dispersals.get(&id).copied() else { return };
        let Some(Operation::Disperse(dispersal)) = self.operations.get_mut(handle) else { return };
        if let Some(target) = dispersal.attempt.targets.iter_mut().find(|target| target.node == from) {
            target.refused = true;
        }
        self.wake_at(cx.now.monotonic_us);
    }

    /// Has the value ordered, since enough members keep their fragments.
    fn order_value(&mut self, cx: &mut Context, handle: Handle, membership: u32) {
        let Some(Operation::Disperse(dispersal)) = self.operations.get_mut(handle) else { return };
        dispersal.attempt.is_ordered = true;
        dispersal.ordered_us = cx.now.monotonic_us;
        self.choice.estimates.ordered(dispersal.attempt.reference.id, cx.now.monotonic_us);
        let Dispersal { group, expiry, condition, answer, deadline_us, .. } = *dispersal;
        let (key, reference) = (dispersal.key.clone(), dispersal.attempt.reference.encoded());
        let command =
            Command::SetCoded { key: &key, reference: &reference, membership, expiry, condition, answer };
        let ticket = Origin::Coding(handle).ticket(0);
        if cx.groups.get(group).is_none() {
            return self.dispersal_answered(cx, handle, Outcome::Refused, &no_keyspace());
        }
        let asked = Asked { ticket, follows: true, seen: u64::MAX, deadline_us, hops: 0, leadership: 0 };
        cx.submit(group, asked, &Request::Command(&command));
    }

    /// The group has answered.
    pub(super) fn dispersal_answered(
        &mut self,
        cx: &mut Context,
        handle: Handle,
        result: Outcome,
        reply: &[u8],
    ) {
        let Some(Operation::Disperse(dispersal)) = self.operations.get(handle) else { return };
        let reference = dispersal.attempt.reference;
        let refusal = match Reply::first(reply) {
            Reply::Error(error) => error.split(|byte| *byte == b' ').next().unwrap_or_default(),
            _ => b"",
        };
        if matches!(result, Outcome::Done { .. }) && matches!(refusal, b"RECONFIGURED" | b"ABANDONED") {
            // Nothing was done, and nothing ever will be under this name.
            let parts = usize::from(reference.parts);
            let ((membership, _), _) = dispersal.attempt.newest();
            return self.try_again(cx, handle, parts, membership, "the group's members change");
        }
        if matches!(result, Outcome::Refused) {
            self.forget_value(cx, handle);
        }
        self.stop_sending(cx, handle);
        let Some(Operation::Disperse(dispersal)) = self.operations.remove(handle) else { return };
        self.dispersals.remove(&reference.id);
        self.dispersing_bytes -= dispersal.value.len();
        if matches!(result, Outcome::Done { .. }) {
            let order_us = cx.now.monotonic_us.saturating_sub(dispersal.ordered_us);
            self.choice.estimates.took_to_order(order_us, cx.now.monotonic_us);
            self.counters.values_coded += 1;
            self.counters.values_copied += u64::from(reference.parts == 1);
            self.traces.stored(StoringTimes {
                id: reference.id,
                bytes: dispersal.value.len(),
                parts: reference.parts,
                encode_us: 0,
                disperse_us: dispersal.ordered_us.saturating_sub(dispersal.begun_us),
                order_us,
            });
            self.cache.insert(reference.id, &dispersal.value);
        }
        cx.complete(dispersal.client, dispersal.group, result, reply);
    }

    /// Ends or retries attempts that take too long, or cannot succeed any more.
    pub(super) fn dispersals_due(&mut self, cx: &mut Context) {
        let handles: Vec<Handle> = self.dispersals.values().copied().collect();
        for handle in handles {
            let Some(Operation::Disperse(dispersal)) = self.operations.get(handle) else { continue };
            let Attempt { targets, until_us, layout, is_ordered, .. } = &dispersal.attempt;
            if *is_ordered {
                continue;
            }
            let own = cx.configuration.node;
            let may_keep = |target: &&Target| {
                let is_reached = target.node == own || cx.peers.is_up(target.node);
                target.kept.is_none() && !target.refused && is_reached
            };
            let ((membership, members), kept) = dispersal.attempt.newest();
            let possible = kept + targets.iter().filter(may_keep).count();
            let needed = layout.parts() + failures_tolerated(members.into());
            let (until_us, parts) = (*until_us, layout.parts());
            if possible < needed && dispersal.attempt.is_overtaken() {
                // Only once for each change of members. Later, a member that keeps its fragment in a former
                // membership is just slow.
                let group = dispersal.group;
                let is_there = cx.groups.get(group).is_some();
                let parts = if is_there { self.parts_for(cx, group, parts) } else { parts };
                self.try_again(cx, handle, parts, membership, "the group's members change");
                continue;
            }
            // With fewer than a majority the attempt can only wait.
            if until_us > cx.now.monotonic_us && (possible >= needed || parts == 1) {
                self.wake_at(until_us);
                continue;
            }
            let until = cx.now.monotonic_us + SILENCE_US;
            let late =
                targets.iter().filter(|target| target.kept.is_none()).map(|target| (target.node, until));
            self.silent.extend(late.collect::<Vec<_>>());
            let fewer = kept.saturating_sub(failures_tolerated(dispersal.attempt.targets.len()));
            let why = "too few nodes keep its fragments in time";
            self.try_again(cx, handle, fewer.min(parts - 1).max(1), membership, why);
        }
    }

    /// Disperses the value again, under another name, if there is time. `membership` is the newest that is known.
    fn try_again(&mut self, cx: &mut Context, handle: Handle, parts: usize, membership: u32, why: &str) {
        self.forget_value(cx, handle);
        let Some(Operation::Disperse(dispersal)) = self.operations.get(handle) else { return };
        let (group, deadline_us) = (dispersal.group, dispersal.deadline_us);
        let digest = if dispersal.is_digested() { dispersal.attempt.reference.digest } else { 0 };
        let (length, former) = (dispersal.value.len(), dispersal.attempt.reference.id);
        if deadline_us <= cx.now.monotonic_us || cx.groups.get(group).is_none() {
            let mut replies = kv::ReplyBuffer::new();
            replies.error(&format!("CLUSTERDOWN NOQUORUM {why}; nothing was done, try again"));
            return self.dispersal_answered(cx, handle, Outcome::Refused, replies.as_bytes());
        }
        self.counters.fallbacks += 1;
        self.stop_sending(cx, handle);
        let attempt = self.attempt(cx, group, length, digest, parts, deadline_us);
        self.dispersals.remove(&former);
        self.dispersals.insert(attempt.reference.id, handle);
        if let Some(Operation::Disperse(dispersal)) = self.operations.get_mut(handle) {
            dispersal.attempt = Attempt { since_membership: membership, ..attempt };
        }
    }

    /// Stops sending for an attempt. A member that was not sent all of its fragment will never report that it keeps
    /// it.
    fn stop_sending(&mut self, cx: &mut Context, handle: Handle) {
        let Some(Operation::Disperse(dispersal)) = self.operations.get(handle) else { return };
        let Attempt { targets, layout, reference, .. } = &dispersal.attempt;
        for target in targets.iter().filter(|target| target.next_stripe < layout.stripes()) {
            let sent: usize = (0..target.next_stripe).map(|stripe| layout.piece_bytes(stripe)).sum();
            let now_us = cx.now.monotonic_us;
            self.choice.estimates.given_up(target.node, reference.id, sent, now_us);
        }
    }

    /// Announces that the attempt's name was never ordered, and never will be.
    fn forget_value(&mut self, cx: &mut Context, handle: Handle) {
        let Some(Operation::Disperse(dispersal)) = self.operations.get(handle) else { return };
        let (group, id) = (dispersal.group, dispersal.attempt.reference.id);
        let begun = dispersal.attempt.targets.iter().filter(|target| target.next_stripe > 0);
        let nodes: Vec<NodeId> = begun.map(|target| target.node).collect();
        for node in nodes {
            self.send(cx, group, node, &Message::Forget { id });
        }
    }
}

fn no_keyspace() -> Vec<u8> {
    let mut replies = kv::ReplyBuffer::new();
    replies.error("CLUSTERDOWN NOLEADER the keyspace was dropped; nothing was done");
    replies.as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 Mbit/s carry a megabyte in 0.8 s, and two fragments that are as long as it in 1.6.
    #[test]
    fn a_slow_link_gets_the_time_that_its_bytes_take() {
        let slow_us = |length: usize, parts: usize| (length * 4 / parts) as u64 * 8 / 10;
        for parts in 1..=3 {
            assert!(patience_us(1_000_000, parts, 5, 1) > slow_us(1_000_000, parts), "k = {parts}");
            // A tenth of that bandwidth is for networks that are configured as slow.
            assert!(patience_us(1_000_000, parts, 5, 5) > 10 * slow_us(1_000_000, parts), "k = {parts}");
        }
        assert!(patience_us(1_000, 3, 5, 1) < 500_000, "a small value does not wait for a dead node");
    }
}
