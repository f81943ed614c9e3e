//! A leader lets another member lead, as its node is about to stop or an operator wants it to.
//!
//! ```text
//!  leader                          another member             control group
//!    | takes no more requests            |                          |
//!    | ... until all that it ordered is  |                          |
//!    |     committed and held there      |                          |
//!    | answers nothing more              |                          |
//!    | Resign [epoch, member] -------------------------------------->|
//!    |                                   |<------- the next epoch --|
//! ```
//!
//! Requests wait at the leader meanwhile, and are handed on to the next one. No outcome is unknown: when the leader resigns, all
//! that it ordered is committed. So is, with `acks = none`, all that would be lost with the leader's crash.
//!
//! # Why the control group need not wait for the lease to end
//!
//! A lease promises a leader that no other one is appointed while it may be answering. A leader that has resigned answers nothing
//! more in its epoch, whatever leases it gets, and an epoch belongs to one incarnation of one leader. So once the control group has
//! the request, nobody answers in that epoch, and the next one may begin. A request that arrives late names an epoch that has
//! passed, and changes nothing.
//!
//! # When no other member takes over
//!
//! A leader whose writes are not committed in time takes requests again. One that has resigned repeats its request until there is
//! another epoch. If no other member can lead, the control group gives that epoch to the same leader.

use super::Leader;
use super::serving::Follower;
use crate::contract::{ControlRequest, Effects, NodeId, Now};
use crate::leader_follower::handover::Handover;
use crate::leader_follower::options::Acks;
use crate::leader_follower::state::State;

impl Leader {
    /// Begins to let another member lead. Returns whether a handover is under way.
    pub(in crate::leader_follower) fn hand_over(
        &mut self,
        state: &mut State,
        now: Now,
        to: Option<NodeId>,
    ) -> bool {
        if state.handover().is_some() {
            return true;
        }
        if !state.is_leased(now) || !self.serves(state) || !self.has_taken_over(state) {
            return false;
        }
        let Some(to) = self.successor(state, now, to) else { return false };
        let due_us = now.monotonic_us + state.timing.in_sync_silence_ms * 1000;
        state.set_handover(Some(Handover { to, head: self.head, due_us, has_resigned: false }));
        true
    }

    /// The member that is to lead next: a live one that holds what its leader held a moment ago, by default the one that holds most.
    fn successor(&self, state: &State, now: Now, wanted: Option<NodeId>) -> Option<NodeId> {
        let may_lead = |it: &&Follower| {
            let is_bound = state.options.acks == Acks::All;
            let is_in_step = it.is_at_rest || it.is_in_step(now, state.timing.in_sync_silence_ms);
            it.is_live(state, now)
                && !state.leaving.contains(&it.id)
                && is_in_step
                && (!is_bound || state.configuration.in_sync.contains(&it.id))
        };
        let mut candidates = self.followers.iter().filter(may_lead);
        let chosen = match wanted {
            Some(wanted) => candidates.find(|follower| follower.id == wanted),
            None => candidates.max_by_key(|follower| follower.acked),
        };
        chosen.map(|follower| follower.id)
    }

    /// Resigns once another member holds everything. Call it at the end of a turn.
    pub(in crate::leader_follower) fn advance_handover(
        &mut self,
        state: &mut State,
        now: Now,
        effects: &mut Effects,
    ) {
        let Some(mut handover) = state.handover() else { return };
        let to = handover.to;
        let is_due = now.monotonic_us >= handover.due_us;
        if !handover.has_resigned {
            if is_due {
                state.set_handover(None);
                return self.reconsider(state, now, effects);
            }
            let is_settled = self.queue.is_empty() && state.applied == self.head && state.is_leased(now);
            let holds_all = |it: &Follower| it.id == to && it.is_streaming() && it.acked == self.head;
            if !is_settled || !self.followers.iter().any(holds_all) {
                return;
            }
        } else if !is_due {
            return;
        }
        handover.has_resigned = true;
        handover.due_us = now.monotonic_us + state.timing.in_sync_request_ms * 1000;
        state.set_handover(Some(handover));
        effects.control_requests.push(ControlRequest::Resign { epoch: state.epoch, to });
    }
}
