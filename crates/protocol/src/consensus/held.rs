//! Held requests: they wait for a leader. They were not proposed, so they can still be refused.

use super::routing::Asked;
use crate::contract::{Effects, NOBODY, Request};
use crate::parked::{self, ParkedRequests};
use crate::watching;
use std::collections::VecDeque;

const NO_LEADER: &str = "CLUSTERDOWN NOLEADER no leader of this group is known; nothing was done, try again";

/// Only the leadership that a request names may order it: it may not wait for another one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fenced(pub(super) bool);

pub(super) type ParkedRequest = parked::ParkedRequest<Fenced>;

/// All held requests, in order.
#[derive(Debug, Default)]
pub(super) struct HeldRequests {
    requests: ParkedRequests<Fenced>,
    /// Some of them are fenced.
    are_fenced: bool,
    /// Some of them, or of those that wait in a leadership, came before keys moved to other groups: they were not checked by the
    /// map of today.
    are_unchecked: bool,
}

impl HeldRequests {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Holds a request, after the others.
    pub(super) fn hold(&mut self, asked: Asked, request: &Request<'_>, effects: &mut Effects) {
        const HELD_MAX: usize = 100_000;
        if self.requests.len() >= HELD_MAX {
            return effects.refuse(asked.ticket, NO_LEADER);
        }
        self.are_fenced |= asked.fenced;
        // Only a leader knows the keys of a long command.
        self.are_unchecked |= matches!(request, Request::Command(command) if watching::ends_long(command));
        let Asked { ticket, deadline_us, fenced, .. } = asked;
        self.requests.push(ParkedRequest::new(ticket, deadline_us, Fenced(fenced), request));
    }

    /// Holds requests, before those that are held already.
    pub(super) fn put_first(&mut self, first: VecDeque<ParkedRequest>) {
        if !first.is_empty() {
            self.are_fenced |= first.iter().any(|held| held.terms.0);
            self.requests.put_first(first);
        }
    }

    /// Keys have moved to other groups. `others`: requests wait in a leadership, which may have to wait here later.
    pub(super) fn note_moved(&mut self, others: bool) {
        self.are_unchecked |= others || !self.requests.is_empty();
    }

    /// Whether those that are taken now may have been checked only before keys moved. `others` as above: they may still come here.
    pub(super) fn takes_unchecked(&mut self, others: bool) -> bool {
        let are_unchecked = self.are_unchecked;
        self.are_unchecked &= others;
        are_unchecked
    }

    /// Takes all, to be handled again.
    pub(super) fn take(&mut self) -> VecDeque<ParkedRequest> {
        self.requests.take()
    }

    /// A leadership or a configuration has ended: its reads, and writes that were not proposed, wait for the next leader, before
    /// the requests that are held already.
    pub(super) fn keep(&mut self, of_ended: Option<VecDeque<ParkedRequest>>, effects: &mut Effects) {
        if let Some(first) = of_ended {
            self.put_first(first);
        }
        self.turn_fenced_away(effects);
    }

    /// The leadership that the fenced requests name has ended, and they may not wait for another one. They are redirected to
    /// no node, from which their sender learns this.
    fn turn_fenced_away(&mut self, effects: &mut Effects) {
        if std::mem::take(&mut self.are_fenced) {
            let fenced = self.requests.take_if(|held| held.terms.0);
            fenced.into_iter().for_each(|held| effects.redirect(held.ticket, NOBODY));
        }
    }

    /// Ends the requests that have waited too long.
    #[inline]
    pub(super) fn end_overdue(&mut self, now_us: u64, effects: &mut Effects) {
        if self.requests.is_empty() {
            return; // As in nearly every turn.
        }
        let overdue = self.requests.take_if(|held| held.deadline_us <= now_us);
        overdue.into_iter().for_each(|held| effects.refuse(held.ticket, NO_LEADER));
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

    fn held<const N: usize>(requests: [(u64, bool); N]) -> VecDeque<ParkedRequest> {
        let wait = Request::Wait { offset: 0, count: 1 };
        let held =
            |(sequence, fenced)| ParkedRequest::new(ticket(sequence), sequence * 10, Fenced(fenced), &wait);
        requests.map(held).into()
    }

    fn order(requests: &mut HeldRequests) -> Vec<u64> {
        requests.take().iter().map(|held| held.ticket.sequence).collect()
    }

    #[test]
    fn requests_of_an_ended_leadership_come_first_and_fenced_ones_do_not_wait() {
        let (mut requests, mut effects) = (HeldRequests::default(), Effects::default());
        requests.hold(asked(5, true), &Request::Command(&write("a")), &mut effects);
        requests.hold(asked(6, false), &Request::Wait { offset: 0, count: 1 }, &mut effects);
        requests.put_first(held([(1, false), (2, true)]));
        requests.turn_fenced_away(&mut effects);
        let away = Result::Redirect { to: NOBODY };
        let ends = effects.outcomes.iter().map(|outcome| (outcome.ticket.sequence, outcome.result));
        assert_eq!(ends.collect::<Vec<_>>(), [(2, away), (5, away)]);
        assert_eq!(order(&mut requests), [1, 6]);
    }

    #[test]
    fn overdue_requests_are_refused() {
        let (mut requests, mut effects) = (HeldRequests::default(), Effects::default());
        requests.put_first(held([(3, false), (1, false)]));
        requests.end_overdue(29, &mut effects);
        assert_eq!(effects.outcomes.len(), 1);
        assert_eq!((effects.outcomes[0].ticket, effects.outcomes[0].result), (ticket(1), Result::Refused));
        assert_eq!(order(&mut requests), [3]);
    }
}
