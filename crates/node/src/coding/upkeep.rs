//! Upkeep of fragments: what a replica of this node lacks is rebuilt, and values are given up that nobody has stored.
//!
//! A replica that was away, or is new, refers to values of which it has no fragment. The node fetches such a value as if it
//! were to be read, and makes the replica's own fragment of it: a few at a time, so that others do not wait.
//!
//! A fragment to which nothing refers belongs to a value that is about to be stored, or to one that never will be. After a
//! while that is certain enough to have a record say so; should its coordinator come late, the record wins.

use super::{Operation, ticket};
use crate::node::Node;
use crate::routing::Asked;
use crate::shared::SharedBytes;
use crate::slab::Handle;
use coding::Layout;
use kv::{Command, Reference, ValueId};
use protocol::coded::number_of;
use protocol::{NodeId, Request};

/// How often it is looked what there is to do.
const UPKEEP_US: u64 = 100_000;

/// A fragment that has not come so long after its value was stored is rebuilt.
const REBUILD_AFTER_MS: u64 = 1000;

/// Fragments of a group that are rebuilt at a time.
const REBUILDS_MAX: usize = 4;

/// While so much waits to be written, nothing is rebuilt: what clients write would wait behind it.
const UNWRITTEN_BYTES_MAX: u64 = 1 << 20;

/// A value whose fragments came so long ago and that was not stored since is given up: so many times longer than a client
/// waits for an outcome.
const ABANDON_TIMEOUTS: u64 = 6;

/// A fragment that is being rebuilt.
#[derive(Debug)]
pub(super) struct Rebuilding {
    group: u16,
    reference: Reference,
    value: Option<SharedBytes>,
    next_stripe: usize,
}

impl Node {
    /// Whether a member of a group has, as far as is known here, the fragment of every value that its membership began
    /// with. True where none are kept.
    pub(crate) fn has_its_fragments(&self, group: u16, member: NodeId, membership: u64) -> bool {
        let Some(group) = self.groups.get(group) else { return false };
        let replica = group.replica.as_ref().and_then(|replica| replica.consensus());
        if group.coding.is_none() && !replica.is_some_and(|replica| replica.has_fragments()) {
            return true;
        }
        if member == self.configuration.node {
            return replica.is_some_and(|replica| replica.fragments_lacking() == 0);
        }
        group.lacking.get(&member).is_some_and(|(of, has_all)| u64::from(*of) == membership && *has_all)
    }

    /// Replicas here may keep fragments though no keyspace wants its values coded any more.
    pub(crate) fn look_for_fragments(&mut self) {
        let consensus = |group: &'_ crate::groups::Group| {
            group.replica.as_ref()?.consensus().map(|replica| replica.has_fragments())
        };
        if !self.coding.is_on && self.groups.iter().any(|(_, group)| consensus(group) == Some(true)) {
            self.coding.begin(self.now.monotonic_us);
        }
    }

    /// Tells the other members how a replica here stands.
    fn tell_lacks(&mut self, id: u16) {
        let Some(group) = self.groups.get(id) else { return };
        let Some(replica) = group.replica.as_ref().and_then(|replica| replica.consensus()) else { return };
        if group.coding.is_none() && !replica.has_fragments() {
            return;
        }
        let (lacks, own) = (replica.lacking_report(), self.configuration.node);
        let others: Vec<NodeId> = group.members.iter().copied().filter(|member| *member != own).collect();
        for member in others {
            self.send_fragment_message(id, member, &lacks);
        }
    }

    pub(super) fn coding_upkeep(&mut self) {
        let now_us = self.now.monotonic_us;
        if now_us < self.coding.upkeep_us {
            let at_us = self.coding.upkeep_us;
            return self.coding.wake_at(at_us);
        }
        self.coding.silent.retain(|_, until_us| *until_us > now_us);
        self.coding.upkeep_us = now_us + UPKEEP_US;
        self.coding.wake_at(now_us + UPKEEP_US);
        self.for_each_group(|node, id| {
            node.tell_lacks(id);
            let replica = node.groups.get(id).and_then(|group| group.replica.as_ref());
            let Some(replica) = replica.and_then(|replica| replica.consensus()) else { return };
            let lacking = replica.to_be_rebuilt(node.now, REBUILD_AFTER_MS, REBUILDS_MAX);
            let abandon_after_ms = ABANDON_TIMEOUTS * node.configuration.command_timeout_ms;
            let abandoned = replica.to_be_abandoned(node.now, abandon_after_ms);
            for reference in lacking {
                node.rebuild(id, reference);
            }
            for ValueId { coordinator, counter } in abandoned {
                let deadline_us = node.now.monotonic_us + node.configuration.command_timeout_ms * 1000;
                let nobody = ticket(Handle::from_bits(u64::from(u32::MAX)), 0);
                let asked = Asked { ticket: nobody, follows: false, seen: u64::MAX, deadline_us, hops: 0 };
                node.submit(id, asked, Request::Command(Command::Abandon { coordinator, counter }));
            }
        });
    }

    fn rebuild(&mut self, group: u16, reference: Reference) {
        let is_it = |operation: &Operation| {
            matches!(operation, Operation::Rebuild(rebuilding)
                if rebuilding.group == group && rebuilding.reference.id == reference.id)
        };
        if self.coding.operations.iter().any(|(_, operation)| is_it(operation)) {
            return;
        }
        let rebuilding = Rebuilding { group, reference, value: None, next_stripe: 0 };
        let handle = self.coding.operations.insert(|_| Operation::Rebuild(rebuilding));
        match self.coding.cache.get(reference.id) {
            Some(value) => self.rebuilding_has(handle, Some(value)),
            None => self.fetch(group, reference, handle, false),
        }
    }

    /// The value is here, or cannot be had now: then it is tried again later.
    pub(super) fn rebuilding_has(&mut self, handle: Handle, value: Option<SharedBytes>) {
        if value.is_none() {
            self.coding.operations.remove(handle);
        } else if let Some(Operation::Rebuild(rebuilding)) = self.coding.operations.get_mut(handle) {
            rebuilding.value = value;
            self.coding.wake_at(self.now.monotonic_us);
        }
    }

    /// Makes pieces of fragments that are being rebuilt.
    pub(super) fn pump_rebuilding(&mut self, budget: &mut usize) {
        let ready = self.coding.operations.iter().filter_map(|(handle, operation)| match operation {
            Operation::Rebuild(Rebuilding { value: Some(_), .. }) => Some(handle),
            _ => None,
        });
        for handle in ready.collect::<Vec<_>>() {
            while *budget > 0 && self.journal.unwritten_bytes() < UNWRITTEN_BYTES_MAX {
                if !self.rebuild_piece(handle, budget) {
                    break;
                }
            }
        }
        if *budget == 0 {
            self.coding.wake_at(self.now.monotonic_us);
        }
    }

    /// Makes the next piece. False when that was the last one.
    fn rebuild_piece(&mut self, handle: Handle, budget: &mut usize) -> bool {
        let Node { coding, groups, configuration, now, .. } = self;
        let Some(Operation::Rebuild(rebuilding)) = coding.operations.get_mut(handle) else { return false };
        let Rebuilding { group, reference, value: Some(value), next_stripe } = rebuilding else {
            return false;
        };
        let layout = Layout::new(reference.length as usize, reference.parts);
        let replica = groups.get_mut(*group).and_then(|group| group.replica.as_mut());
        let replica = replica.and_then(|replica| replica.consensus_mut());
        if let (Some(layout), Some(replica), Some(number)) = (layout, replica, number_of(configuration.node))
            && *next_stripe < layout.stripes()
        {
            let mut bytes = Vec::new();
            layout.encode(value, number, *next_stripe, &mut bytes);
            replica.take_rebuilt(*now, *reference, *next_stripe as u32, &bytes);
            *next_stripe += 1;
            *budget = budget.saturating_sub(bytes.len().max(1));
            coding.counters.rebuilt_bytes += bytes.len() as u64;
            if *next_stripe < layout.stripes() {
                return true;
            }
            coding.counters.rebuilt += 1;
        }
        coding.operations.remove(handle);
        false
    }
}
