//! The in-sync set: the followers that hold every acknowledged write, so that any of them may lead next.
//!
//! The control group keeps the set; the leader requests changes to it. Two rules keep the set true, in any order of
//! requests, configurations and failures (`acks = all`):
//!
//! * The leader requests that a follower join the set only after it has begun to wait for that follower, and once the
//!   follower holds everything committed. From that request on the leader waits for the follower in any case: the control
//!   group may grant the request at any moment, and the leader may die before it learns of that. If a follower in a
//!   request loses its link, the leader waits for it until a configuration that includes it has arrived, and then another
//!   one that does not.
//! * When the leader requests that a follower leave the set, it waits for that follower until a configuration without it
//!   has arrived.
//!
//! So the leader always waits for every member of the set in the map, which may be smaller than the set that the leader
//! knows.
//!
//! Only one request is pending at a time. The leader repeats it, unchanged, until a configuration shows another set (or
//! another epoch): then the request is granted, or moot. For this to work, the control group must refuse a request made
//! before the newest change of the group: a late repetition must not restore a set that the leader has given up. With
//! each request the node sends which configuration the replica had when it made the request (Kafka's `AlterPartition` is
//! fenced in the same way).
//!
//! Under the other `acks` the leader does not wait for the set, which only shows which replicas failover prefers.

use super::Leader;
use crate::contract::{ControlRequest, Effects, NodeId, Now};
use crate::leader_follower::options::Acks;
use crate::leader_follower::state::State;
use crate::planted::Fault;

/// A request that is neither granted nor moot.
#[derive(Debug)]
pub(in crate::leader_follower) struct Pending {
    pub(in crate::leader_follower) in_sync: Vec<NodeId>,
    asked_us: u64,
}

impl Leader {
    /// A configuration has arrived. A request is granted or moot if the configuration changes the set.
    pub(in crate::leader_follower) fn in_sync_changed(&mut self, state: &State) {
        self.in_sync_request = None;
        self.followers.iter_mut().for_each(|follower| follower.is_joining_set = false);
        self.count_needed(state);
    }

    /// Notes which followers commits wait for.
    pub(in crate::leader_follower) fn count_needed(&mut self, state: &State) {
        let in_sync = &state.configuration.in_sync;
        let gone_early = |id| {
            state.options.planted.has(Fault::InSyncShrunkEarly)
                && self.in_sync_request.as_ref().is_some_and(|request| !request.in_sync.contains(&id))
        };
        for follower in &mut self.followers {
            let id = follower.id;
            follower.is_awaited = follower.is_joining_set || in_sync.contains(&id) && !gone_early(id);
        }
        self.needed = match state.options.acks {
            Acks::All => self.followers.iter().filter(|follower| follower.is_awaited).count(),
            _ => state.acks_needed(),
        };
    }

    /// Checks which followers hold what the leader holds, and which are silent, and requests the resulting set.
    pub(in crate::leader_follower) fn watch_in_sync(
        &mut self,
        state: &mut State,
        now: Now,
        effects: &mut Effects,
    ) {
        let silence_ms = state.timing.in_sync_silence_ms;
        let serves = self.serves(state);
        for follower in &mut self.followers {
            let got_a_snapshot = follower.fills_until > 0;
            if follower.watch_mark(now, self.head) && got_a_snapshot {
                self.allowance.note_caught_up();
            }
        }
        // A leader that was paused or cut off has received nothing from any follower, which is no evidence against them.
        // They get some time to send something again.
        let is_leased = state.is_leased(now);
        let was_away = now.ms_since(self.watched_us) > 2 * state.timing.heartbeat_ms;
        self.watched_us = now.monotonic_us;
        if was_away || !is_leased {
            let least_us = now.monotonic_us.saturating_sub(silence_ms * 1000 / 2);
            for follower in &mut self.followers {
                follower.in_step_us = follower.in_step_us.max(least_us);
            }
        }
        // The first request shows the control group that this leader has taken over, so that members may be changed.
        if !is_leased || !self.has_taken_over(state) {
            return;
        }
        if let Some(request) = &mut self.in_sync_request {
            if now.ms_since(request.asked_us) >= state.timing.in_sync_request_ms {
                request.asked_us = now.monotonic_us;
                let in_sync = request.in_sync.clone();
                effects.control_requests.push(ControlRequest::InSync { epoch: state.epoch, in_sync });
            }
            return;
        }
        let is_all = state.options.acks == Acks::All;
        let mut is_waited_for_less = false;
        let mut in_sync: Vec<NodeId> = vec![state.id];
        let mut changes = false;
        for follower in &mut self.followers {
            let is_in = state.configuration.in_sync.contains(&follower.id);
            if is_in {
                let stays = follower.stays_in_sync(state, now);
                changes |= !stays;
                in_sync.extend(stays.then_some(follower.id));
                continue;
            }
            // Where the set is only a preference, it contains every follower that holds what the leader holds, committed
            // or not: a group with too few members to acknowledge a write commits nothing, and yet gets new members only
            // when the group is settled.
            let is_leaving = state.leaving.contains(&follower.id);
            let is_in_step = (serves || !is_all) && !is_leaving && follower.is_in_step(now, silence_ms);
            // No request names the follower, so it may still be left out.
            is_waited_for_less |= follower.is_joining_set && !is_in_step;
            follower.is_joining_set = is_in_step;
            let is_early = state.options.planted.has(Fault::InSyncGrownEarly);
            if is_in_step && (!is_all || is_early || follower.acked >= state.applied) {
                changes = true;
                in_sync.push(follower.id);
            }
            follower.is_joining_set &= !is_early;
        }
        if changes {
            in_sync.sort_unstable();
            effects
                .control_requests
                .push(ControlRequest::InSync { epoch: state.epoch, in_sync: in_sync.clone() });
            self.in_sync_request = Some(Pending { in_sync, asked_us: now.monotonic_us });
        }
        let needed = self.needed;
        self.count_needed(state);
        if is_all && (is_waited_for_less || self.needed != needed) {
            // Writes that took effect at once and writes that now have to wait must not share a batch.
            self.reconsider(state, now, effects);
        }
    }
}
