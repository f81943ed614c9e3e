//! The items that a turn gathers for the other members.
//!
//! Queries and updates go to all members and are encoded once; answers, write-backs and repetitions are for one member.
//! When a turn has none of the latter, all members get the same bytes.

use super::message::Item;
use super::options::Timing;
use crate::contract::{Effects, Outgoing, Recipient};
use crate::leaderless::begin_turn;
use crate::registers::{MemberSet, Registers};
use std::ops::Range;

/// Bytes that an empty buffer may keep allocated.
const KEPT_BYTES: usize = 256 << 10;

/// The items gathered, and the members that can take more.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Items for all [`peers`](Outbox::peers).
    common: Vec<u8>,
    /// For each member the items for it alone.
    own: Vec<Vec<u8>>,
    /// For each member the items that must not leave before a record is durable, and that record.
    waiting: Vec<(u64, Vec<u8>)>,
    /// Bytes sent to each member since the last message from it.
    unheard: Vec<usize>,
    /// The members that get queries and updates: all others.
    pub(super) peers: MemberSet,
}

impl Outbox {
    pub(super) fn new(members: usize, peers: MemberSet) -> Outbox {
        Outbox {
            common: Vec::new(),
            own: vec![Vec::new(); members],
            waiting: vec![(0, Vec::new()); members],
            unheard: vec![0; members],
            peers,
        }
    }

    /// Adds an item for all peers.
    #[inline]
    pub(super) fn add_for_all(
        &mut self,
        item: Item<'_>,
        registers: &Registers,
        timing: &Timing,
        effects: &mut Effects,
    ) {
        self.make_room(&item, self.common.len(), registers, timing, effects);
        item.encode(&mut self.common);
    }

    /// Adds an item for one member.
    #[inline]
    pub(super) fn add(
        &mut self,
        member: usize,
        item: Item<'_>,
        registers: &Registers,
        timing: &Timing,
        effects: &mut Effects,
    ) {
        self.make_room(&item, self.own[member].len(), registers, timing, effects);
        item.encode(&mut self.own[member]);
    }

    /// Adds an item for one member that vouches for what this replica holds of a key.
    #[inline]
    pub(super) fn vouch(
        &mut self,
        member: usize,
        key: &[u8],
        item: Item<'_>,
        registers: &Registers,
        timing: &Timing,
        effects: &mut Effects,
    ) {
        let record = registers.held_after(key);
        if record == 0 {
            return self.add(member, item, registers, timing, effects);
        }
        self.make_room(&item, self.waiting[member].1.len(), registers, timing, effects);
        let (after, items) = &mut self.waiting[member];
        *after = (*after).max(record);
        item.encode(items);
    }

    /// Flushes if the item would make the message too large. A turn's size is unbounded, but a message holds at most one
    /// large value.
    #[inline]
    fn make_room(
        &mut self,
        item: &Item<'_>,
        gathered: usize,
        registers: &Registers,
        timing: &Timing,
        effects: &mut Effects,
    ) {
        let value = match item {
            Item::Update { register, .. } | Item::Value { register, .. } => register.value.len(),
            _ => 0,
        };
        if gathered > 0 && gathered + value >= timing.batch_bytes {
            self.flush(registers, timing, effects);
        }
    }

    /// True when nothing is gathered.
    pub(super) fn is_empty(&self) -> bool {
        self.common.is_empty()
            && self.own.iter().all(Vec::is_empty)
            && self.waiting.iter().all(|(_, items)| items.is_empty())
    }

    /// Notes that a message from a member arrived, so more can be sent to it.
    #[inline]
    pub(super) fn heard(&mut self, member: usize) {
        self.unheard[member] = 0;
    }

    /// Lets one more message pass to each silent member, which may have nothing to send before it gets a message.
    pub(super) fn probe(&mut self, timing: &Timing) {
        self.unheard.iter_mut().for_each(|bytes| *bytes = (*bytes).min(timing.window_bytes));
    }

    /// A member has begun another incarnation: drops what was gathered for it, which answers the earlier one.
    pub(super) fn forget(&mut self, member: usize) {
        self.own[member].clear();
        self.waiting[member] = (0, Vec::new());
    }

    /// Sends what was gathered: one message to each member, and one more if something has to wait.
    pub(super) fn flush(&mut self, registers: &Registers, timing: &Timing, effects: &mut Effects) {
        let mut shared: Option<Range<usize>> = None;
        for member in registers.group.others().iter() {
            let own = &mut self.own[member];
            let (after_waiting, waiting) = &mut self.waiting[member];
            let takes_common = !self.common.is_empty() && self.peers.contains(member);
            if own.is_empty() && !takes_common && waiting.is_empty() {
                continue;
            }
            if self.unheard[member] > timing.window_bytes {
                own.clear(); // These items are repeated, or the member is repaired, when it sends something again.
                waiting.clear();
                *after_waiting = 0;
                continue;
            }
            let (to, after_record) = (registers.group.node(member), registers.journal.life());
            if !waiting.is_empty() {
                let start = effects.bytes.len();
                begin_turn(registers.floor.own(), &registers.lives, &mut effects.bytes);
                effects.bytes.append(waiting);
                let (bytes, after_record) = (start..effects.bytes.len(), after_record.max(*after_waiting));
                self.unheard[member] += bytes.len();
                let (bytes, recipient) = (bytes.into(), Recipient::Replica);
                effects.messages.push(Outgoing { to, bytes, after_record, recipient });
                *after_waiting = 0;
                waiting.shrink_to(KEPT_BYTES);
                if own.is_empty() && !takes_common {
                    continue;
                }
            }
            let bytes = match &shared {
                Some(bytes) if own.is_empty() => bytes.clone(),
                _ => {
                    let start = effects.bytes.len();
                    begin_turn(registers.floor.own(), &registers.lives, &mut effects.bytes);
                    if takes_common {
                        effects.bytes.extend_from_slice(&self.common);
                    }
                    effects.bytes.extend_from_slice(own);
                    let bytes = start..effects.bytes.len();
                    if own.is_empty() {
                        shared = Some(bytes.clone());
                    }
                    bytes
                }
            };
            own.clear();
            own.shrink_to(KEPT_BYTES);
            self.unheard[member] += bytes.len();
            let (bytes, recipient) = (bytes.into(), Recipient::Replica);
            effects.messages.push(Outgoing { to, bytes, after_record, recipient });
        }
        self.common.clear();
        self.common.shrink_to(KEPT_BYTES);
    }
}
