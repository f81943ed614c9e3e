//! Held requests: they wait for a leader. They were not proposed, so they can still be refused.

use super::routing::Asked;
use crate::contract::{Effects, NOBODY, Request, Ticket};
use crate::effects::KeptRequest;
use std::collections::VecDeque;

const NO_LEADER: &str = "CLUSTERDOWN NOLEADER no leader of this group is known; nothing was done, try again";

/// A request that waits for a leader.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) ticket: Ticket,
    pub(super) deadline_us: u64,
    pub(super) fenced: bool,
    pub(super) request: KeptRequest,
}

/// All held requests, in order.
#[derive(Debug, Default)]
pub(super) struct HeldRequests {
    requests: VecDeque<Held>,
    /// Some of them are fenced.
    are_fenced: bool,
}

impl HeldRequests {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Holds a request, after the others.
    pub(super) fn hold(&mut self, asked: Asked, request: Request<'_>, effects: &mut Effects) {
        const HELD_MAX: usize = 100_000;
        if self.requests.len() >= HELD_MAX {
            return effects.refuse(asked.ticket, NO_LEADER);
        }
        let request = KeptRequest::of(&request);
        let Asked { ticket, deadline_us, fenced, .. } = asked;
        self.are_fenced |= fenced;
        self.requests.push_back(Held { ticket, deadline_us, fenced, request });
    }

    /// Holds requests, before those that are held already.
    pub(super) fn put_first(&mut self, mut first: VecDeque<Held>) {
        if first.is_empty() {
            return;
        }
        self.are_fenced |= first.iter().any(|held| held.fenced);
        first.append(&mut self.requests);
        self.requests = first;
    }

    /// Takes all, to be handled again.
    pub(super) fn take(&mut self) -> VecDeque<Held> {
        std::mem::take(&mut self.requests)
    }

    /// A leadership or a configuration has ended: its reads, and writes that were not proposed, wait for the next leader, before
    /// the requests that are held already.
    pub(super) fn keep(&mut self, of_ended: Option<VecDeque<Held>>, effects: &mut Effects) {
        if let Some(first) = of_ended {
            self.put_first(first);
        }
        self.turn_fenced_away(effects);
    }

    /// The leadership that the fenced requests name has ended, and they may not wait for another one. They are redirected to
    /// no node, from which their sender learns this.
    pub(super) fn turn_fenced_away(&mut self, effects: &mut Effects) {
        if !std::mem::take(&mut self.are_fenced) {
            return;
        }
        self.requests.retain(|held| {
            if held.fenced {
                effects.redirect(held.ticket, NOBODY);
            }
            !held.fenced
        });
    }

    /// Ends the requests that have waited too long.
    pub(super) fn end_overdue(&mut self, now_us: u64, effects: &mut Effects) {
        self.requests.retain(|held| {
            let is_kept = held.deadline_us > now_us;
            if !is_kept {
                effects.refuse(held.ticket, NO_LEADER);
            }
            is_kept
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::kit::{ticket, write};
    use super::*;
    use crate::contract::Result;

    fn asked(sequence: u64, fenced: bool) -> Asked {
        let deadline_us = sequence * 10;
        Asked { ticket: ticket(sequence), follows: false, seen: 0, deadline_us, fenced }
    }

    fn held(sequence: u64, fenced: bool) -> Held {
        let request = KeptRequest::Wait { offset: 0, count: 1 };
        Held { ticket: ticket(sequence), deadline_us: sequence * 10, fenced, request }
    }

    fn order(requests: &mut HeldRequests) -> Vec<u64> {
        requests.take().iter().map(|held| held.ticket.sequence).collect()
    }

    #[test]
    fn requests_of_an_ended_leadership_come_first_and_fenced_ones_do_not_wait() {
        let (mut requests, mut effects) = (HeldRequests::default(), Effects::default());
        requests.hold(asked(5, true), Request::Command(&write("a")), &mut effects);
        requests.hold(asked(6, false), Request::Wait { offset: 0, count: 1 }, &mut effects);
        requests.put_first([held(1, false), held(2, true)].into());
        requests.turn_fenced_away(&mut effects);
        let away = Result::Redirect { to: NOBODY };
        let ends = effects.outcomes.iter().map(|outcome| (outcome.ticket.sequence, outcome.result));
        assert_eq!(ends.collect::<Vec<_>>(), [(2, away), (5, away)]);
        assert_eq!(order(&mut requests), [1, 6]);
    }

    #[test]
    fn overdue_requests_are_refused() {
        let (mut requests, mut effects) = (HeldRequests::default(), Effects::default());
        requests.put_first([held(3, false), held(1, false)].into());
        requests.end_overdue(29, &mut effects);
        assert_eq!(effects.outcomes.len(), 1);
        assert_eq!((effects.outcomes[0].ticket, effects.outcomes[0].result), (ticket(1), Result::Refused));
        assert_eq!(order(&mut requests), [3]);
    }
}
