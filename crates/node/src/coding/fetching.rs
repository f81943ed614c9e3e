//! Fetching: a value is put together from fragments of its group's members.
//!
//! ```text
//!  coordinator 2         member 1       member 3
//!    | own fragment         |              |
//!    |-- Fetch ------------>|              |     k - 1 others; the parts themselves rather than what is computed of them
//!    |                      |              |
//!    |   ... no answer for a moment: all others are asked, too
//!    |-- Fetch --------------------------->|
//!    |<- Fetched -------------------------|
//!    | joined, stripe by stripe; the digest of the whole is compared
//! ```
//!
//! The digest of the whole value shows whether it is right, so the pieces' own checksums are compared only if the
//! digest differs. Then all is fetched once more, and the checksums show which node's piece is damaged.

use super::Coding;
use super::dispersal::PATIENCE_US_PER_BYTE;
use crate::context::{Call, Context};
use crate::diagnostics::log::{Level, Line};
use coding::Layout;
use kv::SharedBytes;
use kv::digest::Digest;
use kv::{Reference, ValueId};
use protocol::NodeId;
use protocol::coded::{HeldPiece, KeptPiece, Message, Piece, StoredPiece, number_of};
use protocol::planted::Fault;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// When no piece has arrived for this long, plus the time that the awaited pieces take on a slow link, all other
/// members are asked, too. Not sooner: their pieces would share the link with those in transit, and all would take
/// several times as long.
const HEDGE_US: u64 = 20_000;

/// A fetch without progress for this long has failed.
const PATIENCE_US: u64 = 1_000_000;

/// How many stripes are requested at a time.
const WINDOW: usize = 8;

/// A value that is being fetched.
#[derive(Debug)]
pub(super) struct Fetch {
    group: u16,
    reference: Reference,
    layout: Layout,
    /// The part that is joined already.
    value: Vec<u8>,
    /// The digest of that part.
    digest: Digest,
    /// Whether each piece's checksum is compared, since the fetch has failed once.
    checks_pieces: bool,
    /// Whether the next stripes are requested in the next turn.
    goes_on: bool,
    /// The stripe that is joined next.
    stripe: usize,
    /// All stripes before this one were requested.
    asked_until: usize,
    /// Pieces of stripes that are not joined yet.
    pieces: BTreeMap<(usize, u8), KeptPiece>,
    asked: BTreeSet<NodeId>,
    /// Members that have no fragment of the value, or a damaged one.
    missing: BTreeSet<NodeId>,
    hedge_us: u64,
    until_us: u64,
    /// Whether a reply or a write waits for the value, so that it is cached, and not only used to rebuild a fragment.
    has_readers: bool,
}

impl Fetch {
    /// Whether no reader waits for the value: it only serves to rebuild a fragment.
    pub(super) fn is_background(&self) -> bool {
        !self.has_readers
    }

    /// The bytes that were requested from a node and have not arrived.
    pub(super) fn awaited_from(&self, node: NodeId) -> usize {
        let Some(number) = number_of(node).filter(|_| self.asked.contains(&node)) else { return 0 };
        let stripes = self.stripe..self.asked_until.min(self.layout.stripes());
        let missing = stripes.filter(|stripe| !self.pieces.contains_key(&(*stripe, number)));
        missing.map(|stripe| self.layout.piece_bytes(stripe)).sum()
    }

    /// The bytes that were requested from all nodes and have not arrived.
    pub(super) fn awaited_bytes(&self) -> usize {
        self.asked.iter().map(|node| self.awaited_from(*node)).sum()
    }

    fn of_stripe(stripe: usize) -> RangeInclusive<(usize, u8)> {
        (stripe, 0)..=(stripe, u8::MAX)
    }

    /// How many pieces of a stripe wait to be joined.
    fn pieces_of(&self, stripe: usize) -> usize {
        self.pieces.range(Fetch::of_stripe(stripe)).count()
    }

    /// Starts again from the first stripe, since the joined value is wrong.
    fn begin_again(&mut self) {
        (self.checks_pieces, self.stripe, self.asked_until) = (true, 0, 0);
        (self.digest, self.pieces) = (Digest::default(), BTreeMap::new());
        self.value.clear();
    }

    /// Whether a piece may be used, as far as the piece itself shows.
    fn admits(&self, piece: &Piece<'_>) -> bool {
        piece.reference == self.reference && (!self.checks_pieces || piece.is_intact())
    }

    /// How long without a piece until all others are asked: `times` as long on a network that is configured as slow.
    fn hedge_after_us(&self, times: u64) -> u64 {
        let awaited = (self.layout.piece_bytes(self.stripe) * self.layout.parts().saturating_sub(1)) as u64;
        times * (HEDGE_US + awaited * PATIENCE_US_PER_BYTE)
    }
}

impl Coding {
    /// Fetches a value, for readers or to rebuild a fragment, unless that is under way. Both get the result when it
    /// is known, which may be at once.
    pub(super) fn fetch(&mut self, cx: &mut Context, group: u16, reference: Reference, has_readers: bool) {
        let now_us = cx.now.monotonic_us;
        if has_readers {
            self.window.others_wait(now_us);
        }
        if let Some(fetch) = self.fetches.get_mut(&reference.id) {
            fetch.has_readers |= has_readers;
            if has_readers {
                self.ask_enough(cx, reference.id);
            }
            return;
        }
        let Some(layout) = Layout::new(reference.length as usize, reference.parts) else {
            return self.value_fetched(cx, (group, reference), has_readers, None);
        };
        let fetch = Fetch {
            group,
            reference,
            layout,
            value: Vec::new(),
            digest: Digest::default(),
            checks_pieces: false,
            goes_on: false,
            stripe: 0,
            asked_until: 0,
            pieces: BTreeMap::new(),
            asked: BTreeSet::new(),
            missing: BTreeSet::new(),
            hedge_us: u64::MAX,
            until_us: now_us + cx.configuration.patience * PATIENCE_US,
            has_readers,
        };
        self.fetches.insert(reference.id, fetch);
        self.ask_for_window(cx, reference.id);
    }

    /// Requests the next stripes from the members that were asked before, and from as many more as are needed.
    fn ask_for_window(&mut self, cx: &mut Context, id: ValueId) {
        let now_us = cx.now.monotonic_us;
        let is_background = self.fetches.get(&id).is_some_and(Fetch::is_background);
        let window = if is_background { self.rebuild_window(cx) } else { 0 };
        let Some(fetch) = self.fetches.get_mut(&id) else { return };
        fetch.goes_on = false;
        let stripe_bytes = fetch.layout.piece_bytes(fetch.stripe) * fetch.layout.parts();
        let stripes = if is_background { window / stripe_bytes.max(1) } else { WINDOW };
        fetch.asked_until = fetch.stripe + stripes.clamp(1, WINDOW);
        fetch.hedge_us = now_us + fetch.hedge_after_us(cx.configuration.patience);
        let hedge_us = fetch.hedge_us;
        self.wake_at(hedge_us);
        self.take_own_pieces(cx, id);
        let Some(fetch) = self.fetches.get(&id) else { return };
        let own = cx.configuration.node;
        let again: Vec<NodeId> = fetch.asked.iter().copied().filter(|node| *node != own).collect();
        again.into_iter().for_each(|node| self.ask_for_pieces(cx, id, node));
        self.ask_enough(cx, id);
        self.join_fetched(cx, id, None);
    }

    /// Takes the pieces that a replica of this node has in memory, and has those read that it has on the disk.
    fn take_own_pieces(&mut self, cx: &mut Context, id: ValueId) {
        let own = cx.configuration.node;
        let Some(fetch) = self.fetches.get_mut(&id) else { return };
        let replica = cx.groups.get(fetch.group).and_then(|group| group.replica.as_ref());
        let fragment =
            replica.and_then(|replica| replica.fragments()).and_then(|fragments| fragments.fragment(id));
        let Some(fragment) = fragment.filter(|_| !fetch.missing.contains(&own)) else { return };
        let mut stored = Vec::new();
        for stripe in fetch.stripe..fetch.asked_until.min(fetch.layout.stripes()) {
            match fragment.piece(stripe as u32) {
                Some(HeldPiece::Kept(kept)) if fetch.admits(&kept.piece()) => {
                    fetch.pieces.insert((stripe, kept.piece().number), kept);
                }
                Some(HeldPiece::Stored(piece)) => stored.push(piece),
                _ => {}
            }
        }
        if !stored.is_empty() {
            fetch.asked.insert(own);
        }
        let group = fetch.group;
        stored.into_iter().for_each(|piece| cx.call(Call::ReadPiece { group, to: own, piece }));
    }

    /// Takes a piece that was read for a node, which may be this one. `None`: it cannot be read.
    pub(crate) fn piece_read(
        &mut self,
        cx: &mut Context,
        group: u16,
        to: NodeId,
        piece: &StoredPiece,
        bytes: Option<&[u8]>,
    ) {
        let message = match bytes {
            Some(bytes) => Message::Fetched(piece.piece(bytes)),
            None => Message::Missing { id: piece.id() },
        };
        if to == cx.configuration.node {
            return self.take(cx, group, to, message);
        }
        self.send(cx, group, to, &message);
    }

    /// The members that can be asked and were not. Those with a part of the value itself come first.
    fn not_asked(&self, cx: &Context, fetch: &Fetch) -> Vec<NodeId> {
        let own = cx.configuration.node;
        let members = cx.groups.get(fetch.group).map(|group| group.members.as_slice()).unwrap_or_default();
        let is_free = |node: &NodeId| {
            *node != own
                && !fetch.asked.contains(node)
                && !fetch.missing.contains(node)
                && cx.peers.is_up(*node)
        };
        let mut free: Vec<NodeId> = members.iter().copied().filter(is_free).collect();
        let is_silent = |node: &NodeId| self.silent.contains_key(node);
        let parts = fetch.layout.parts();
        // Members in a ring from this node on, so that not all nodes ask the same ones.
        let distance = |node: &NodeId| node.wrapping_sub(own);
        let is_computed = |node: &NodeId| number_of(*node).is_none_or(|it| usize::from(it) >= parts);
        let now_us = cx.now.monotonic_us;
        let is_busy = |node: &NodeId| self.window.is_coordinating(*node, now_us);
        let load = |node: &NodeId| match fetch.is_background() {
            true => (is_busy(node), self.background_bytes_from(*node)),
            false => (false, 0),
        };
        free.sort_by_cached_key(|node| {
            (is_silent(node), load(node), parts > 1 && is_computed(node), distance(node))
        });
        free
    }

    /// Asks as many more members as are needed, as far as there are any.
    pub(super) fn ask_enough(&mut self, cx: &mut Context, id: ValueId) {
        let Some(fetch) = self.fetches.get(&id) else { return };
        let own = fetch.pieces_of(fetch.stripe);
        let asked = fetch.asked.iter().filter(|node| !self.has_answered(fetch, **node)).count();
        let lacks = fetch.layout.parts().saturating_sub(own + asked);
        if lacks == 0 {
            return;
        }
        let is_background = fetch.is_background();
        if is_background && !self.has_room_in_background(cx) {
            return;
        }
        let nodes: Vec<NodeId> = self.not_asked(cx, fetch).into_iter().take(lacks).collect();
        for node in nodes {
            if !is_background || self.has_room_in_background(cx) {
                self.ask_for_pieces(cx, id, node);
            }
        }
    }

    fn has_answered(&self, fetch: &Fetch, node: NodeId) -> bool {
        number_of(node).is_some_and(|number| fetch.pieces.contains_key(&(fetch.stripe, number)))
    }

    fn ask_for_pieces(&mut self, cx: &mut Context, id: ValueId, node: NodeId) {
        let Some(fetch) = self.fetches.get_mut(&id) else { return };
        fetch.asked.insert(node);
        fetch.until_us = cx.now.monotonic_us + cx.configuration.patience * PATIENCE_US;
        let (group, stripe) = (fetch.group, fetch.stripe as u32);
        let count = (fetch.asked_until - fetch.stripe) as u32;
        if !self.send(cx, group, node, &Message::Fetch { id, stripe, count })
            && let Some(fetch) = self.fetches.get_mut(&id)
        {
            fetch.asked.remove(&node);
        }
    }

    /// Answers another node's request for pieces of this node's fragment.
    pub(super) fn send_pieces(
        &mut self,
        cx: &mut Context,
        group: u16,
        to: NodeId,
        id: ValueId,
        (stripe, count): (u32, u32),
    ) {
        let replica = cx.groups.get(group).and_then(|group| group.replica.as_ref());
        let fragments = replica.and_then(|replica| replica.fragments());
        let pieces = fragments.map(|fragments| fragments.pieces(id, stripe, count)).unwrap_or_default();
        if pieces.is_empty() {
            self.send(cx, group, to, &Message::Missing { id });
        }
        for held in pieces {
            match held {
                HeldPiece::Kept(kept) => {
                    self.send(cx, group, to, &Message::Fetched(kept.piece()));
                }
                HeldPiece::Stored(piece) => cx.call(Call::ReadPiece { group, to, piece }),
            }
        }
    }

    /// A piece has arrived.
    pub(super) fn piece_fetched(&mut self, cx: &mut Context, from: NodeId, piece: &Piece<'_>) {
        let mixed = cx.configuration.planted.has(Fault::FragmentsMixed);
        let id = piece.reference.id;
        let Some(fetch) = self.fetches.get_mut(&id) else { return };
        let stripe = piece.stripe as usize;
        let is_its_own = number_of(from) == Some(piece.number) && fetch.admits(piece);
        if piece.bytes.len() != fetch.layout.piece_bytes(stripe) || !(is_its_own || mixed) {
            self.counters.damaged_pieces += 1;
            let text = format!("node {from} has sent a damaged piece of a value: it is not used");
            cx.log.push(Line { level: Level::Warning, text });
            return self.fragment_missing(cx, from, id);
        }
        if stripe < fetch.stripe || stripe >= fetch.layout.stripes() {
            return;
        }
        if fetch.is_background() {
            self.background_piece_came(cx, piece.bytes.len());
        }
        let Some(fetch) = self.fetches.get_mut(&id) else { return };
        let (parts, here) = (fetch.layout.parts(), fetch.pieces_of(fetch.stripe));
        // If the piece is the last one that its stripe lacks, it goes from the frame directly into the value.
        let is_last = stripe == fetch.stripe
            && here + 1 == parts
            && !fetch.pieces.contains_key(&(stripe, piece.number));
        if !is_last {
            fetch.pieces.insert((stripe, piece.number), KeptPiece::from(*piece));
        }
        let patience = cx.configuration.patience;
        fetch.until_us = cx.now.monotonic_us + patience * PATIENCE_US;
        if fetch.hedge_us != u64::MAX {
            fetch.hedge_us = cx.now.monotonic_us + fetch.hedge_after_us(patience);
        }
        self.join_fetched(cx, id, is_last.then_some(piece));
    }

    /// A member has no fragment of a value.
    pub(super) fn fragment_missing(&mut self, cx: &mut Context, from: NodeId, id: ValueId) {
        let Some(fetch) = self.fetches.get_mut(&id) else { return };
        fetch.asked.remove(&from);
        fetch.missing.insert(from);
        self.ask_enough(cx, id);
        let Some(fetch) = self.fetches.get(&id) else { return };
        let here = fetch.pieces_of(fetch.stripe);
        let awaited = fetch.asked.iter().filter(|node| !self.has_answered(fetch, **node)).count();
        // In the background some members may not have been asked yet.
        if here + awaited + self.not_asked(cx, fetch).len() < fetch.layout.parts() {
            self.end_fetch(cx, id, None);
        }
    }

    /// Joins the stripes of which enough pieces are here. `last` is one more piece of the first stripe.
    fn join_fetched(&mut self, cx: &mut Context, id: ValueId, mut last: Option<&Piece<'_>>) {
        let mixed = cx.configuration.planted.has(Fault::FragmentsMixed);
        let Some(fetch) = self.fetches.get_mut(&id) else { return };
        while fetch.stripe < fetch.layout.stripes() {
            let here = fetch.pieces.range(Fetch::of_stripe(fetch.stripe));
            let kept = here.map(|((_, number), kept)| (*number, kept.piece().bytes));
            let pieces: Vec<(u8, &[u8])> =
                kept.chain(last.take().map(|piece| (piece.number, piece.bytes))).collect();
            if pieces.len() < fetch.layout.parts() {
                return;
            }
            if fetch.value.is_empty() {
                fetch.value.reserve_exact(fetch.layout.length());
            }
            let before = fetch.value.len();
            if fetch.layout.join(fetch.stripe, &pieces, &mut fetch.value).is_err() {
                return self.end_fetch(cx, id, None);
            }
            fetch.digest.update(&fetch.value[before..]);
            fetch.stripe += 1;
            fetch.pieces = fetch.pieces.split_off(&(fetch.stripe, 0));
            if fetch.stripe == fetch.asked_until && fetch.stripe < fetch.layout.stripes() {
                // Not at once: if all pieces were here, the whole value would be joined within this turn.
                fetch.goes_on = true;
                let now_us = cx.now.monotonic_us;
                fetch.until_us = now_us + cx.configuration.patience * PATIENCE_US;
                return self.wake_at(now_us);
            }
        }
        if fetch.digest.finish() != fetch.reference.digest && !mixed {
            if !fetch.checks_pieces {
                fetch.begin_again();
                return self.ask_for_window(cx, id);
            }
            self.counters.damaged_pieces += 1;
            let text = "fragments were put together to another value than the one that was stored".into();
            cx.log.push(Line { level: Level::Error, text });
            return self.end_fetch(cx, id, None);
        }
        let value = SharedBytes::from(std::mem::take(&mut fetch.value));
        self.end_fetch(cx, id, Some(value));
    }

    fn end_fetch(&mut self, cx: &mut Context, id: ValueId, value: Option<SharedBytes>) {
        let Some(fetch) = self.fetches.remove(&id) else { return };
        if let Some(value) = value.as_ref().filter(|_| fetch.has_readers) {
            self.cache.insert(id, value);
        }
        self.value_fetched(cx, (fetch.group, fetch.reference), fetch.has_readers, value);
    }

    fn value_fetched(
        &mut self,
        cx: &mut Context,
        (group, reference): (u16, Reference),
        has_readers: bool,
        value: Option<SharedBytes>,
    ) {
        self.rebuilding_has(cx, group, reference.id, value.clone());
        if has_readers {
            cx.call(Call::TakeValue { group, reference, value });
        }
    }

    /// Ends or continues fetches that take long.
    pub(super) fn fetches_due(&mut self, cx: &mut Context) {
        let now_us = cx.now.monotonic_us;
        let ids: Vec<ValueId> = self.fetches.keys().copied().collect();
        for id in ids {
            let has_room = self.has_room_in_background(cx);
            let patience = cx.configuration.patience;
            let Some(fetch) = self.fetches.get_mut(&id) else { continue };
            // A fetch that waits for room has requested nothing.
            if !has_room && fetch.is_background() && fetch.awaited_bytes() == 0 {
                fetch.until_us = now_us + patience * PATIENCE_US;
                fetch.hedge_us = now_us + fetch.hedge_after_us(patience);
            }
            if fetch.until_us <= now_us {
                self.end_fetch(cx, id, None);
                continue;
            }
            if fetch.goes_on {
                self.ask_for_window(cx, id);
                continue;
            }
            let mut next_us = fetch.until_us;
            if fetch.hedge_us <= now_us {
                // Only once: from now on the fetch only waits.
                fetch.hedge_us = u64::MAX;
                let fetch = &self.fetches[&id];
                let nodes = self.not_asked(cx, fetch);
                nodes.into_iter().for_each(|node| self.ask_for_pieces(cx, id, node));
            } else {
                next_us = next_us.min(fetch.hedge_us);
            }
            self.wake_at(next_us);
        }
    }
}
