//! The source's side of a refill: copies of this replica's table for members that have lost theirs.
//!
//! A copy is a snapshot of one moment, taken after the newcomer's incarnation was noted, and sent in chunks.
//! Unacknowledged chunks are kept, so that they can be sent again unchanged.

use super::members::MemberSet;
use super::message::{Body, Bounds};
use super::{Registers, Timing};
use crate::effects::{Effects, Now, Trace};
use kv::table::SnapshotId;
use std::collections::VecDeque;

/// A copy under way.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) to: usize,
    nonce: u64,
    transfer: u64,
    snapshot: SnapshotId,
    bounds: Bounds,
    /// Chunks that the newcomer has not acknowledged; the first of them has number `first`.
    pub(super) chunks: VecDeque<Vec<u8>>,
    first: u32,
    /// No more chunks will be added.
    pub(super) ended: bool,
    progress_us: u64,
}

/// All copies under way, one for each newcomer.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    pub(super) open: Vec<Transfer>,
    /// For each member its incarnation and the last copy that was ended: a late request for that one does not begin a
    /// copy.
    ended: Vec<(u64, u64)>,
}

impl Transfers {
    pub(super) fn new(members: usize) -> Transfers {
        Transfers { open: Vec::new(), ended: vec![(0, 0); members] }
    }

    /// True while no copy is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// An admitted newcomer asks for a copy, or for more of it.
    pub(super) fn fetch(
        &mut self,
        registers: &mut Registers,
        timing: &Timing,
        now: Now,
        from: usize,
        (nonce, transfer, next): (u64, u64, u32),
        effects: &mut Effects,
    ) {
        let index = match self.open.iter().position(|open| open.to == from) {
            Some(index) if (self.open[index].nonce, self.open[index].transfer) == (nonce, transfer) => index,
            Some(index) if self.open[index].nonce == nonce && self.open[index].transfer > transfer => return,
            other => {
                if self.ended[from].0 == nonce && self.ended[from].1 >= transfer || next > 0 {
                    return;
                }
                if let Some(index) = other {
                    self.end(index, registers);
                }
                let bounds = registers.bounds();
                self.open.push(Transfer {
                    to: from,
                    nonce,
                    transfer,
                    snapshot: registers.table.begin_snapshot(),
                    bounds,
                    chunks: VecDeque::new(),
                    first: 0,
                    ended: false,
                    progress_us: now.monotonic_us,
                });
                effects.trace.push(Trace::RefillServed { to: registers.group.node(from) });
                self.open.len() - 1
            }
        };
        let open = &mut self.open[index];
        let acknowledged = next.saturating_sub(open.first).min(open.chunks.len() as u32);
        open.chunks.drain(..acknowledged as usize);
        open.first += acknowledged;
        if open.ended && open.chunks.is_empty() {
            return self.end(index, registers);
        }
        // Without progress, the newcomer repeats its request because something was lost: it gets everything again.
        let mut resend = if acknowledged > 0 { open.chunks.len() } else { 0 };
        if acknowledged > 0 {
            open.progress_us = now.monotonic_us;
        }
        while !open.ended && open.chunks.len() < timing.chunk_window {
            let mut chunk = Vec::new();
            open.ended = !registers.table.snapshot_chunk(open.snapshot, timing.chunk_bytes, &mut chunk);
            open.chunks.push_back(chunk);
        }
        resend = resend.min(open.chunks.len());
        for (offset, entries) in open.chunks.iter().enumerate().skip(resend) {
            let chunk = Body::Chunk {
                nonce,
                transfer,
                index: open.first + offset as u32,
                last: open.ended && offset + 1 == open.chunks.len(),
                bounds: open.bounds,
                entries,
            };
            registers.send(MemberSet::only(from), chunk, effects);
        }
    }

    /// A member begins another incarnation: the copy for the earlier one is dropped.
    pub(super) fn forget(&mut self, registers: &mut Registers, member: usize, nonce: u64) {
        if let Some(index) = self.open.iter().position(|open| open.to == member && open.nonce != nonce) {
            self.end(index, registers);
        }
    }

    /// Drops copies that their newcomer no longer fetches.
    pub(super) fn tick(&mut self, registers: &mut Registers, timing: &Timing, now: Now) {
        let is_stuck = |open: &Transfer| now.ms_since(open.progress_us) >= 4 * timing.stall_ms;
        while let Some(index) = self.open.iter().position(is_stuck) {
            self.end(index, registers);
        }
    }

    fn end(&mut self, index: usize, registers: &mut Registers) {
        let open = self.open.swap_remove(index);
        registers.table.end_snapshot(open.snapshot);
        self.ended[open.to] = (open.nonce, open.transfer);
    }
}
