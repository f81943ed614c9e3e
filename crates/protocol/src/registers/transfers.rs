//! The source's side of a refill: snapshot transfers of this replica's table to members that have lost theirs.
//!
//! A snapshot is taken after the newcomer's incarnation was noted. The newcomer requests its chunks; each request
//! acknowledges the chunks before it.

use super::members::MemberSet;
use super::message::{Body, Bounds};
use super::{Registers, Timing};
use crate::effects::{Effects, Now, Trace};
use crate::transfer::Outgoing;

/// A transfer under way.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) to: usize,
    nonce: u64,
    transfer: u64,
    bounds: Bounds,
    pub(super) chunks: Outgoing,
}

/// All transfers under way, one for each newcomer.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    pub(super) open: Vec<Transfer>,
    /// For each member its incarnation and the last transfer that ended: a late request for that transfer does not begin
    /// it again.
    ended: Vec<(u64, u64)>,
}

impl Transfers {
    pub(super) fn new(members: usize) -> Transfers {
        Transfers { open: Vec::new(), ended: vec![(0, 0); members] }
    }

    /// True while none is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// An admitted newcomer requests a snapshot, or more chunks of it.
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
                let chunks = Outgoing::with_last_chunk(registers.table.begin_snapshot(), now);
                self.open.push(Transfer { to: from, nonce, transfer, bounds, chunks });
                let (to, why) = (registers.group.node(from), "it has lost its memory");
                effects.trace.push(Trace::TransferBegun { to, offset: 0, why });
                self.open.len() - 1
            }
        };
        let Transfer { bounds, chunks, .. } = &mut self.open[index];
        // A request without progress is a repeated one, because something was lost: send all chunks under way again.
        let is_news = chunks.acknowledge(now, next);
        if chunks.is_received() {
            return self.end(index, registers);
        }
        let from_index = if is_news { chunks.sent() } else { chunks.acknowledged() };
        while chunks.next(&mut registers.table, timing.window()).is_some() {}
        for (index, entries) in chunks.unacknowledged().filter(|(index, _)| *index >= from_index) {
            let last = chunks.is_all_sent() && index + 1 == chunks.sent();
            let bounds = *bounds;
            let chunk = Body::SnapshotChunk { nonce, transfer, index, last, bounds, entries };
            registers.send(MemberSet::only(from), chunk, effects);
        }
    }

    /// A member begins another incarnation: the transfer to the earlier one is abandoned.
    pub(super) fn forget(&mut self, registers: &mut Registers, member: usize, nonce: u64) {
        if let Some(index) = self.open.iter().position(|open| open.to == member && open.nonce != nonce) {
            self.end(index, registers);
        }
    }

    /// Abandons transfers that their newcomers no longer fetch.
    pub(super) fn tick(&mut self, registers: &mut Registers, timing: &Timing, now: Now) {
        let is_stuck = |open: &Transfer| open.chunks.stuck_ms(now) >= 4 * timing.stall_ms;
        while let Some(index) = self.open.iter().position(is_stuck) {
            self.end(index, registers);
        }
    }

    fn end(&mut self, index: usize, registers: &mut Registers) {
        let mut open = self.open.swap_remove(index);
        open.chunks.end(&mut registers.table);
        self.ended[open.to] = (open.nonce, open.transfer);
    }
}
