//! Rebuilding: a replica of this node gets the fragments that it lacks, made from those of others.
//!
//! A replica that was down, or is new, refers to values of which it has no fragment. The node fetches such a value as
//! if to read it, and makes the replica's own fragment. It may have to do so for all existing values, and the network
//! is meant for other traffic. So the bytes that are requested and have not arrived are bounded by a **window**: what
//! arrives in a round trip and a short time more, at the rate at which bytes arrived lately. That keeps the link
//! busy, with a queue of that short time in front of it. While others' fragments arrive, or a reader waits here, that
//! time is much shorter, and less than a value is requested at a time: piece by piece, one source after the other.
//!
//! The member with the fewest pieces to send is asked first. A member that has sent fragments of new values lately is
//! asked last: it coordinates writes, and needs its uplink for them.

use super::fetching::Fetch;
use super::{Coding, Operation};
use crate::collections::slab::Handle;
use crate::context::{Call, Context};
use coding::Layout;
use kv::SharedBytes;
use kv::{Reference, ValueId};
use protocol::NodeId;
use protocol::coded::{Piece, number_of};
use std::collections::BTreeMap;

/// A fragment is rebuilt if it has not arrived this long after its value was stored.
const REBUILD_AFTER_MS: u64 = 1000;

/// How many values are rebuilt at a time, in all groups: each is held whole in memory.
const REBUILDS_MAX: usize = 32;

/// How long to wait before another try to fetch a value that could not be fetched.
const TRY_AGAIN_US: u64 = 500_000;

/// How far requests are ahead of arrivals: the queue in front of the link.
const AHEAD_US: u64 = 25_000;
/// The same while others use the link.
const AHEAD_OF_OTHERS_US: u64 = 10_000;

/// Others count as using the link for this long after they last did.
const OTHERS_US: u64 = 300_000;

/// The window before anything has arrived.
const WINDOW_BYTES_FIRST: usize = 256 << 10;
/// The greatest and the smallest window: the first bounds memory, and the second is a piece of a small value.
const WINDOW_BYTES_MAX: usize = 4 << 20;
const WINDOW_BYTES_MIN: usize = 16 << 10;

/// While more bytes than this wait to be written, nothing is rebuilt: clients' writes would wait behind it.
const UNWRITTEN_BYTES_MAX: u64 = 1 << 20;

/// How long each rate is measured. The greatest of the last `RATES` counts.
const RATE_OVER_US: u64 = 50_000;
const RATES: usize = 8;

/// A fragment that is being rebuilt.
#[derive(Debug)]
pub(super) struct Rebuilding {
    group: u16,
    reference: Reference,
    value: Option<SharedBytes>,
    next_stripe: usize,
}

/// How much is requested at a time.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Bytes per second of the last measurements.
    rates: Vec<f64>,
    since_us: u64,
    arrived_bytes: usize,
    /// When others last used the link: fragments of new values arrived, or a reader waited.
    others_us: Option<u64>,
    /// The nodes that have sent fragments of new values, and when.
    coordinators: BTreeMap<NodeId, u64>,
    /// Values that could not be fetched, and when they are tried again.
    failed: BTreeMap<ValueId, u64>,
    /// Values that are being rebuilt.
    under_way: BTreeMap<(u16, ValueId), Handle>,
}

impl Window {
    /// Notes that a piece of a new value has arrived from its coordinator.
    pub(super) fn others_sent(&mut self, from: NodeId, now_us: u64) {
        self.others_us = Some(now_us);
        self.coordinators.insert(from, now_us);
    }

    /// Notes that a reader waits for a value.
    pub(super) fn others_wait(&mut self, now_us: u64) {
        self.others_us = Some(now_us);
    }

    /// Whether a node coordinates others' writes.
    pub(super) fn is_coordinating(&self, node: NodeId, now_us: u64) -> bool {
        self.coordinators.get(&node).is_some_and(|at_us| now_us.saturating_sub(*at_us) < OTHERS_US)
    }

    /// Starts a measurement, when a request is made while nothing was under way.
    fn begins(&mut self, now_us: u64) {
        (self.since_us, self.arrived_bytes) = (now_us, 0);
    }

    /// Notes that a requested piece has arrived.
    fn arrived(&mut self, bytes: usize, now_us: u64) {
        self.arrived_bytes += bytes;
        let took_us = now_us.saturating_sub(self.since_us);
        if took_us >= RATE_OVER_US {
            if self.rates.len() == RATES {
                self.rates.remove(0);
            }
            self.rates.push(self.arrived_bytes as f64 / took_us as f64 * 1e6);
            self.begins(now_us);
        }
    }

    /// How many bytes may be under way.
    fn bytes(&self, round_trip_us: u64, now_us: u64) -> usize {
        let is_shared = self.others_us.is_some_and(|at_us| now_us.saturating_sub(at_us) < OTHERS_US);
        let ahead_us = if is_shared { AHEAD_OF_OTHERS_US } else { AHEAD_US };
        let Some(rate) = self.rates.iter().copied().max_by(f64::total_cmp) else { return WINDOW_BYTES_FIRST };
        let bytes = rate * (round_trip_us + ahead_us) as f64 / 1e6;
        (bytes as usize).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX)
    }
}

impl Coding {
    /// The bytes that may be under way to this node for its own fragments.
    pub(super) fn rebuild_window(&self, cx: &Context) -> usize {
        let members = cx.groups.iter().filter(|(_, group)| group.coding.is_some());
        let others: Vec<NodeId> = members.flat_map(|(_, group)| group.members.iter().copied()).collect();
        let round_trip_us = self.choice.estimates.round_trip(&others) * 1e6;
        self.window.bytes(round_trip_us as u64, cx.now.monotonic_us)
    }

    /// The bytes under way for this node's own fragments.
    fn rebuild_bytes(&self) -> usize {
        self.fetches.values().filter(|fetch| fetch.is_background()).map(Fetch::awaited_bytes).sum()
    }

    /// Whether one more piece may be requested. It may be longer than the rest of the window: a piece cannot be
    /// requested in parts, so the link would otherwise be idle.
    pub(super) fn has_room_in_background(&self, cx: &Context) -> bool {
        self.rebuild_bytes() < self.rebuild_window(cx)
    }

    /// A piece of a value that is fetched to rebuild a fragment has arrived.
    pub(super) fn background_piece_came(&mut self, cx: &mut Context, bytes: usize) {
        self.window.arrived(bytes, cx.now.monotonic_us);
    }

    /// The bytes that a node still has to send for rebuilding.
    pub(super) fn background_bytes_from(&self, node: NodeId) -> usize {
        let fetches = self.fetches.values().filter(|fetch| fetch.is_background());
        fetches.map(|fetch| fetch.awaited_from(node)).sum()
    }

    /// Requests as much as there is room for, and makes pieces of fragments from what has arrived.
    pub(super) fn pump_rebuilding(&mut self, cx: &mut Context, budget: &mut usize) {
        let ready = self.window.under_way.values().copied().filter(|handle| {
            let operation = self.operations.get(*handle);
            matches!(operation, Some(Operation::Rebuild(Rebuilding { value: Some(_), .. })))
        });
        for handle in ready.collect::<Vec<_>>() {
            while *budget > 0 && cx.journal.unwritten_bytes() < UNWRITTEN_BYTES_MAX {
                if !self.rebuild_piece(cx, handle, budget) {
                    break;
                }
            }
        }
        if *budget == 0 {
            self.wake_at(cx.now.monotonic_us);
        }
        // Fetches that have begun are completed first.
        let begun = self.fetches.iter().filter(|(_, fetch)| fetch.is_background());
        for id in begun.map(|(id, _)| *id).collect::<Vec<_>>() {
            if !self.has_room_in_background(cx) {
                return;
            }
            self.ask_enough(cx, id);
        }
        let mut place = 0;
        while let Some(id) = cx.groups.id_at(place) {
            place += 1;
            self.rebuild_more(cx, id);
        }
    }

    /// Begins to rebuild fragments of a group, while there is room.
    fn rebuild_more(&mut self, cx: &mut Context, id: u16) {
        let replica = cx.groups.get(id).and_then(|group| group.replica.as_ref());
        let Some(fragments) = replica.and_then(|replica| replica.fragments()) else { return };
        if fragments.fragments_lacking() == 0 || self.window.under_way.len() >= REBUILDS_MAX {
            return;
        }
        let Window { failed, under_way, .. } = &self.window;
        let is_free = |value| !failed.contains_key(&value) && !under_way.contains_key(&(id, value));
        let lacking = fragments.to_be_rebuilt(cx.now, REBUILD_AFTER_MS, REBUILDS_MAX, &is_free);
        for reference in lacking {
            if self.window.under_way.len() >= REBUILDS_MAX || !self.has_room_in_background(cx) {
                return;
            }
            self.rebuild(cx, id, reference);
        }
    }

    fn rebuild(&mut self, cx: &mut Context, group: u16, reference: Reference) {
        if self.rebuild_bytes() == 0 {
            self.window.begins(cx.now.monotonic_us);
        }
        let rebuilding = Rebuilding { group, reference, value: None, next_stripe: 0 };
        let handle = self.operations.insert(|_| Operation::Rebuild(rebuilding));
        self.window.under_way.insert((group, reference.id), handle);
        match self.cache.get(reference.id) {
            Some(value) => self.rebuilding_has(cx, group, reference.id, Some(value)),
            None => self.fetch(cx, group, reference, false),
        }
    }

    /// Takes the value, or (`None`) learns that it cannot be fetched now: then it is tried again later.
    pub(super) fn rebuilding_has(
        &mut self,
        cx: &mut Context,
        group: u16,
        id: ValueId,
        value: Option<SharedBytes>,
    ) {
        let now_us = cx.now.monotonic_us;
        let Some(handle) = self.window.under_way.get(&(group, id)).copied() else { return };
        let Some(Operation::Rebuild(rebuilding)) = self.operations.get_mut(handle) else { return };
        if value.is_none() {
            self.window.failed.insert(id, now_us + TRY_AGAIN_US);
            self.rebuilding_ends(handle);
        } else {
            rebuilding.value = value;
            self.wake_at(now_us);
        }
    }

    fn rebuilding_ends(&mut self, handle: Handle) {
        if let Some(Operation::Rebuild(rebuilding)) = self.operations.remove(handle) {
            self.window.under_way.remove(&(rebuilding.group, rebuilding.reference.id));
        }
    }

    /// Allows values that failed some time ago to be tried again.
    pub(super) fn rebuilding_tick(&mut self, cx: &mut Context) {
        let now_us = cx.now.monotonic_us;
        self.window.failed.retain(|_, until_us| *until_us > now_us);
    }

    /// Makes the next piece. Returns false when that was the last one.
    fn rebuild_piece(&mut self, cx: &mut Context, handle: Handle, budget: &mut usize) -> bool {
        let Some(Operation::Rebuild(rebuilding)) = self.operations.get_mut(handle) else { return false };
        let Rebuilding { group, reference, value: Some(value), next_stripe } = rebuilding else {
            return false;
        };
        let layout = Layout::new(reference.length as usize, reference.parts);
        let replica = cx.groups.get_mut(*group).and_then(|group| group.replica.as_mut());
        let fragments = replica.and_then(|replica| replica.fragments_mut());
        if let (Some(layout), Some(fragments), Some(number)) =
            (layout, fragments, number_of(cx.configuration.node))
            && *next_stripe < layout.stripes()
        {
            let bytes = layout.piece(value, number, *next_stripe, &mut self.piece);
            fragments.take_rebuilt(cx.now, Piece::new(*reference, number, *next_stripe as u32, bytes).into());
            cx.call(Call::Settle { group: *group });
            *next_stripe += 1;
            *budget = budget.saturating_sub(bytes.len().max(1));
            self.counters.rebuilt_bytes += bytes.len() as u64;
            if *next_stripe < layout.stripes() {
                return true;
            }
            self.counters.rebuilt += 1;
        }
        self.rebuilding_ends(handle);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1000;

    /// Feeds `window` as a link of a megabyte per second does while the window is kept full.
    fn fed(window: &mut Window, ms: u64) -> u64 {
        window.begins(0);
        (1..=ms).for_each(|at| window.arrived(1000, at * MS));
        ms * MS
    }

    #[test]
    fn the_window_is_what_arrives_in_a_round_trip_and_a_moment() {
        let mut window = Window::default();
        assert_eq!(window.bytes(0, 0), WINDOW_BYTES_FIRST);
        let now_us = fed(&mut window, 200);
        assert_eq!(window.bytes(40 * MS, now_us), 65_000);
        window.others_sent(3, now_us);
        assert_eq!(window.bytes(40 * MS, now_us), 50_000, "others go first");
        assert!(window.is_coordinating(3, now_us) && !window.is_coordinating(2, now_us));
        let later_us = now_us + OTHERS_US;
        assert_eq!(window.bytes(40 * MS, later_us), 65_000);
        assert!(!window.is_coordinating(3, later_us));
        assert_eq!(window.bytes(3_600_000 * MS, later_us), WINDOW_BYTES_MAX);
    }

    #[test]
    fn a_window_that_was_too_small_grows() {
        // A round trip of 1 ms and nothing else: a requested piece arrives a millisecond later.
        let mut window = Window::default();
        let mut now_us = 0;
        window.begins(now_us);
        while now_us < 500 * MS {
            now_us += MS;
            window.arrived(window.bytes(MS, now_us), now_us);
        }
        assert_eq!(window.bytes(MS, now_us), WINDOW_BYTES_MAX);
    }
}
