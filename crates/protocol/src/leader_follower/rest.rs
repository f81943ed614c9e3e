//! Quiescence: a leader with nothing to do stops its heartbeats, and its followers do not miss them.
//!
//! ```text
//!  leader                          follower
//!    |-- Heartbeat --------------->|
//!    |<- Acknowledge --------------|        five rounds in which nothing happens
//!    |-- Heartbeat, rest --------->|
//!    |<- Acknowledge, rests -------|  it expects no heartbeats, as long as the leader's node is reached
//!    | rests, when all have confirmed: their nodes are reached
//! ```
//!
//! A leader's group is calm when nothing waits, nothing expires by itself, and all followers are in the in-sync set, hold
//! what the leader holds, and know that it is committed. Followers whose nodes cannot be reached, and which are neither
//! in the set nor served, do not matter. Once the group is quiescent, the nodes watch each other, not the replicas
//! ([`set_reached`](crate::Replica::set_reached)).
//!
//! **A quiescent leader is calm.** So after each input it checks whether it still is, and resumes heartbeats if not: for
//! a write, a joining follower, another in-sync set, a broken link, a node that became reachable or unreachable. Reads
//! that it answers at once do not end the quiescence. When it resumes, the silence of followers whose nodes can be
//! reached is measured from that moment. A follower whose node cannot be reached has been silent since before the group
//! became quiescent.
//!
//! **A follower becomes quiescent only when its leader requests it** in its last heartbeat; any other message ends that.
//! If the follower ends its quiescence by itself because the leader's node was out of reach, it expects heartbeats again,
//! and joins again when none arrive; then the leader resumes heartbeats. So any disagreement between the two, and any
//! lost message, is resolved after one silence timeout.
//!
//! Leases from the control group continue: the node extends them for quiescent replicas.

use super::leader::Leader;
use super::leader::serving::Service;
use super::state::State;
use super::{Replica, Role};
use crate::contract::{NodeId, Now};
use crate::rest;

impl Leader {
    /// Whether no request has changed anything since the last round, and none is waiting.
    fn has_nothing_under_way(&self, state: &State) -> bool {
        self.head == self.round_head
            && state.applied == self.head
            && self.builder_count == 0
            && self.queue.is_empty()
            && self.held.is_empty()
            && self.waits.is_empty()
            && state.handover().is_none()
    }

    /// Whether nothing happens in the group.
    pub(super) fn is_calm(&self, state: &State) -> bool {
        let is_settled = |follower: &super::leader::serving::Follower| {
            let is_in_set = state.configuration.in_sync.contains(&follower.id);
            let is_in_step = follower.link_up
                && follower.is_streaming()
                && follower.acked == self.head
                && follower.sent_commit == self.head;
            let is_gone = matches!(follower.service, Service::Absent);
            let is_to_go = is_in_set && state.leaving.contains(&follower.id);
            !follower.is_joining_set
                && !is_to_go
                && match state.rest.reaches(follower.id) {
                    true => is_in_set && is_in_step,
                    false => !is_in_set && is_gone,
                }
        };
        self.has_nothing_under_way(state)
            && self.in_sync_request.is_none()
            && (state.rest.is_told() || self.followers.is_empty())
            && self.followers.iter().all(is_settled)
            && state.last().offset == self.head
            && state.journal.held() >= self.head
            && state.journal.has_recorded_commit(self.head)
            && rest::is_still(&state.table)
    }

    /// Counts rounds of heartbeats in which nothing happens. Becomes quiescent when there were enough and all followers
    /// know of it.
    pub(super) fn watch_rest(&mut self, state: &mut State, now: Now) {
        if now.ms_since(self.round_us) < state.timing.heartbeat_ms {
            return;
        }
        let is_calm = self.is_calm(state) && state.is_leased(now);
        (self.round_us, self.round_head) = (now.monotonic_us, self.head);
        let all_know =
            |leader: &Leader| leader.followers.iter().all(|it| it.confirms_rest || !it.is_streaming());
        if state.rest.note_round(is_calm) && all_know(self) {
            state.rest.begin(now.monotonic_us);
            self.followers.iter_mut().for_each(|follower| follower.is_at_rest = true);
        }
    }

    /// Something happened: resumes heartbeats.
    #[cold]
    fn resume_heartbeats(&mut self, state: &mut State, now: Now) {
        state.rest.end();
        for follower in &mut self.followers {
            if state.rest.reaches(follower.id) {
                (follower.heard_us, follower.in_step_us) = (now.monotonic_us, now.monotonic_us);
            }
            (follower.is_at_rest, follower.confirms_rest) = (false, false);
        }
    }
}

impl Replica {
    /// A quiescent replica got input: ends the quiescence unless nothing changed.
    pub(super) fn look_up(&mut self, now: Now, is_request: bool) {
        let Role::Leader(leader) = &mut self.role else {
            self.state.rest.end(); // It no longer leads.
            return;
        };
        let goes_on = match is_request {
            true => leader.has_nothing_under_way(&self.state),
            false => leader.is_calm(&self.state),
        };
        if !goes_on {
            leader.resume_heartbeats(&mut self.state, now);
        }
    }

    /// Takes what [`set_reached`](crate::Replica::set_reached) reports.
    pub(super) fn note_reached(&mut self, now: Now, peer: NodeId, is_reached: bool) {
        if !self.state.rest.set_reached(peer, is_reached) {
            return;
        }
        if let Role::Follower(follower) = &mut self.role
            && peer == self.state.configuration.leader
            && !is_reached
        {
            follower.expect_heartbeats(now);
        }
        if self.state.rest.is_resting() {
            self.look_up(now, false);
        }
    }
}
