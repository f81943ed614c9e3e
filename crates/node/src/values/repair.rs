//! Repair: a value that is damaged on this node's disk is fetched from another replica.
//!
//! ```text
//!  node 1                 node 2            node 3
//!    | Get: damaged         |                 |
//!    |-- ValueAsked ------->| damaged, too    |
//!    |<- an error ----------|                 |
//!    |-- ValueAsked ------------------------->| Get
//!    |<- the value ---------------------------|
//!    | its digest is compared; readers get it, and it is put again
//! ```
//!
//! All replicas have a value under the same name, which contains its digest. So any of them may supply it, whatever
//! that replica's position is.
//!
//! A node that is asked only reads its disk; it does not fetch. Otherwise two nodes with damaged copies could wait
//! for each other, and where all copies are damaged they would ask each other forever.

use super::{Values, name_of, reference_of};
use crate::context::{Call, Context};
use crate::diagnostics::log::{Level, Line};
use kv::{Reference, Reply, SharedBytes};
use protocol::NodeId;
use protocol::planted::Fault;
use std::collections::BTreeSet;
use std::sync::Arc;
use storage::{ValueName, ValueWork};
use wire::release::Release;

/// The release that has [`crate::messages::envelope::Envelope::ValueAsked`].
const FETCHES_SINCE: Release = 2;

/// A value that is being looked up.
#[derive(Debug, Default)]
pub(super) struct Lookup {
    /// Whether the value is repaired if it is damaged: a request at this node waits for it, or it is scrubbed. Other
    /// nodes that ask for it ask the next node instead.
    is_own: bool,
    /// Whether the value is only scrubbed.
    is_scrub: bool,
    /// The nodes that were asked for the value, since it is damaged here. Empty: it is being read.
    asked: BTreeSet<NodeId>,
}

/// The state here of a value that another node has asked for.
pub(crate) enum Found {
    Here(SharedBytes),
    /// The value is being read.
    Awaited,
    /// Nothing here refers to the value, or it is damaged here, too.
    Missing,
}

impl Values {
    /// Returns a value that is in memory. Otherwise reads it, and has the node take the result ([`Call::TakeValue`]).
    /// A damaged value is fetched from another replica first.
    pub(crate) fn look_up(&mut self, group: u16, reference: &Reference) -> Option<SharedBytes> {
        let name = name_of(group, reference);
        let value = self.in_memory(name);
        if value.is_none() {
            let lookup = self.read(name);
            (lookup.is_own, lookup.is_scrub) = (true, false);
        }
        value
    }

    /// Reads a value to check it. Returns false if the store may not have it yet, or if it is being read.
    pub(super) fn scrub_value(&mut self, name: ValueName) -> bool {
        let is_possible = !self.pending.contains_key(&name) && !self.lookups.contains_key(&name);
        if is_possible {
            let lookup = self.read(name);
            (lookup.is_own, lookup.is_scrub) = (true, true);
            self.counters.scrubbed += 1;
        }
        is_possible
    }

    /// Whether a value is read for more than scrubbing.
    pub(super) fn is_asked_for(&self, name: &ValueName) -> bool {
        self.lookups.get(name).is_none_or(|lookup| !lookup.is_scrub)
    }

    /// Whether a value is only scrubbed.
    pub(super) fn is_scrubbing(&self, name: &ValueName) -> bool {
        self.lookups.get(name).is_some_and(|lookup| lookup.is_scrub)
    }

    /// Like [`Values::look_up`], for another node, whose copy is damaged. Nothing is fetched for it: if the value is
    /// damaged here, too, the result is [`Call::RefuseValue`].
    pub(crate) fn look_up_for_peer(&mut self, cx: &Context, group: u16, reference: &Reference) -> Found {
        let name = name_of(group, reference);
        let is_fetched = self.lookups.get(&name).is_some_and(|lookup| !lookup.asked.is_empty());
        if is_fetched || !self.is_needed(cx, group, reference) {
            return Found::Missing;
        }
        if let Some(value) = self.in_memory(name) {
            return Found::Here(value);
        }
        self.read(name).is_scrub = false;
        Found::Awaited
    }

    fn in_memory(&mut self, name: ValueName) -> Option<SharedBytes> {
        let value = self.pending.get(&name).cloned().or_else(|| self.cache.get(name));
        match value {
            Some(_) => self.counters.hits += 1,
            None => self.counters.misses += 1,
        }
        value.map(SharedBytes::from)
    }

    fn read(&mut self, name: ValueName) -> &mut Lookup {
        self.lookups.entry(name).or_insert_with(|| {
            self.work.push(ValueWork::Get(name));
            Lookup::default()
        })
    }

    /// A value is damaged here: asks the first of the other replicas for it, if a request here waits for it.
    pub(super) fn fetch(&mut self, cx: &mut Context, name: ValueName) {
        let (group, reference) = (name.group(), reference_of(&name));
        if self.is_piece(cx, group, &reference) {
            self.lose_piece(cx, name);
            return self.end_lookup(cx, name, None);
        }
        let is_own = self.lookups.get(&name).is_some_and(|lookup| lookup.is_own);
        if !is_own || self.planted.has(Fault::DamagedValueNotFetched) {
            return self.end_lookup(cx, name, None);
        }
        cx.call(Call::RefuseValue { group, reference });
        self.ask_next(cx, name);
    }

    /// A piece of a fragment is damaged here: the replica lacks the fragment from now on, and so it is rebuilt from others
    /// (`coding/rebuilding`).
    fn lose_piece(&mut self, cx: &mut Context, name: ValueName) {
        let replica = cx.groups.get_mut(name.group()).and_then(|group| group.replica.as_mut());
        if let Some(fragments) = replica.and_then(|replica| replica.fragments_mut()) {
            fragments.lose_piece(cx.now, &reference_of(&name));
            self.lost_pieces.insert(name);
        }
    }

    /// The store gets a piece. If that piece was damaged, it has been rebuilt.
    pub(super) fn note_rebuilt(&mut self, cx: &mut Context, group: u16, reference: &Reference) {
        if self.lost_pieces.remove(&name_of(group, reference)) {
            self.counters.repaired += 1;
            let text = format!("{} is whole again: it was rebuilt", self.describe(cx, group, reference));
            cx.log.push(Line { level: Level::Info, text });
        }
    }

    /// Asks the next replica, in a ring from this node on. Those that answer at present come first.
    fn ask_next(&mut self, cx: &mut Context, name: ValueName) {
        let (group, reference, own) = (name.group(), reference_of(&name), cx.configuration.node);
        let Some(lookup) = self.lookups.get_mut(&name) else { return };
        let members = cx.groups.get(group).map(|group| group.members.as_slice()).unwrap_or_default();
        let can_be_asked = |member: &NodeId| {
            *member != own
                && !lookup.asked.contains(member)
                && cx.peers.is_up(*member)
                && cx.peers[*member].release() >= FETCHES_SINCE
        };
        let (now, patience) = (cx.now, cx.configuration.patience);
        let next = members.iter().copied().filter(can_be_asked);
        let next =
            next.min_by_key(|member| (cx.peers[*member].is_silent(now, patience), member.wrapping_sub(own)));
        let Some(to) = next else { return self.end_lookup(cx, name, None) };
        assert!(lookup.asked.insert(to), "no node is asked twice for a value");
        self.fetch_count += 1;
        let number = self.fetch_count;
        self.fetches.insert(number, (name, to));
        cx.call(Call::FetchValue { number, to, group, reference });
    }

    /// Takes the reply of the node that was asked: the value, or an error.
    pub(crate) fn fetched(&mut self, cx: &mut Context, number: u64, reply: &[u8]) {
        let Some((name, from)) = self.fetches.remove(&number) else { return };
        let (group, reference) = (name.group(), reference_of(&name));
        let value = match Reply::first(reply) {
            Reply::Bulk(value) if self.is_whole(&reference, value) => Arc::new(value.to_vec()),
            _ => return self.ask_next(cx, name),
        };
        self.counters.repaired += 1;
        let text = format!("{} is whole again: node {from} had it", self.describe(cx, group, &reference));
        cx.log.push(Line { level: Level::Info, text });
        // The value may have been overwritten while it was fetched.
        if self.is_needed(cx, group, &reference) {
            self.keep(group, &reference, Arc::clone(&value));
            self.flush(cx);
        }
        self.end_lookup(cx, name, Some(value));
    }

    /// Whether bytes match a reference.
    pub(super) fn is_whole(&self, reference: &Reference, value: &[u8]) -> bool {
        reference.is_of(value) || self.planted.has(Fault::DamagedValueBelieved)
    }

    /// Hands a value to all that wait for it; `None`: no replica has it.
    pub(super) fn end_lookup(&mut self, cx: &mut Context, name: ValueName, value: Option<Arc<Vec<u8>>>) {
        self.lookups.remove(&name);
        let (group, reference) = (name.group(), reference_of(&name));
        let value = value.map(SharedBytes::from);
        if self.for_copies.remove(&name) {
            cx.call(Call::GiveValue { group, reference, value: value.clone() });
        }
        cx.call(Call::TakeValue { group, reference, value });
    }
}
