//! Requests that a leader accepted but cannot process yet: all requests while it has no lease or hands over, writes while too
//! few followers are live. Nothing of them was written anywhere, so they can still be refused, or handed on to the next
//! leader.

use super::{Asked, DEPOSED, Leader};
use crate::contract::{Effects, NOBODY, Now, Request, Trace};
use crate::leader_follower::options::Acks;
use crate::leader_follower::state::State;
use crate::parked::{self, ParkedRequests};
use crate::watching;

/// A request with what the leader knows of it.
type ParkedRequest = parked::ParkedRequest<Asked>;

/// Requests in the order in which they will take effect.
#[derive(Debug, Default)]
pub(in crate::leader_follower) struct Held {
    requests: ParkedRequests<Asked>,
    /// Whether some of them only wait for a lease, or for the end of a handover.
    for_lease: bool,
    /// Keys have moved to other groups since some of them came: they have to be checked again.
    are_unchecked: bool,
}

impl Held {
    pub(in crate::leader_follower) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// The number of held requests, and the bytes of their commands.
    pub(in crate::leader_follower) fn size(&self) -> (usize, usize) {
        (self.requests.len(), self.requests.bytes())
    }

    /// Keys have moved to other groups.
    pub(in crate::leader_follower) fn note_moved(&mut self) {
        self.are_unchecked |= !self.requests.is_empty();
    }

    /// Hands on the held requests, of which nothing was done.
    pub(in crate::leader_follower) fn hand_on(&mut self, effects: &mut Effects) {
        for held in std::mem::take(self).requests.take() {
            if !held.hand_on(NOBODY, effects) {
                effects.refuse(held.ticket, DEPOSED);
            }
        }
    }
}

impl Leader {
    pub(in crate::leader_follower) fn hold(
        &mut self,
        state: &State,
        now: Now,
        asked: Asked,
        request: &Request<'_>,
        effects: &mut Effects,
    ) {
        const HELD_MAX: usize = 10_000;
        let takes_requests = state.takes_requests(now);
        if self.held.requests.len() >= HELD_MAX {
            let error =
                if takes_requests { "NOREPLICAS Not enough good replicas to write." } else { NO_LEASE };
            return effects.refuse(asked.ticket, error);
        }
        self.held.for_lease |= !takes_requests;
        // Only a leader that has applied its parts knows the keys of a long command.
        self.held.are_unchecked |=
            matches!(request, Request::Command(command) if watching::ends_long(command));
        self.held.requests.push(ParkedRequest::new(asked.ticket, asked.deadline_us, asked, request));
    }

    /// Processes the held requests, in order, if they can be processed now.
    pub(in crate::leader_follower) fn release_held(
        &mut self,
        state: &mut State,
        now: Now,
        effects: &mut Effects,
    ) {
        if self.held.is_empty()
            || !state.takes_requests(now)
            || !(self.held.for_lease || self.can_commit(state, now))
        {
            return;
        }
        // A request of a few bytes can cause a large reply, or a scan of all keys. So requests are processed in portions;
        // the rest follows with the next tick.
        const PORTION_BYTES: usize = 4 << 20;
        const WALKED_NS_MAX: u64 = 10_000_000;
        let replies_before = effects.replies.len();
        let Held { mut requests, are_unchecked, .. } = std::mem::take(&mut self.held);
        let mut requests = requests.take();
        let mut walked_ns = 0;
        while effects.replies.len() - replies_before < PORTION_BYTES
            && walked_ns < WALKED_NS_MAX
            && let Some(held) = requests.pop_front()
        {
            // This node checks it by the map of today, and sends it again.
            if are_unchecked && held.hand_on(state.id, effects) {
                continue;
            }
            walked_ns += self.take_up(state, now, &held, effects); // A write that waits for followers is held again.
        }
        self.held.for_lease |= !requests.is_empty();
        self.held.are_unchecked |= are_unchecked && !requests.is_empty();
        requests.into_iter().for_each(|held| self.held.requests.push(held));
    }

    /// Processes a held request. Returns the estimated nanoseconds of a command that walks over all keys or runs a
    /// script; 0 for others.
    fn take_up(&mut self, state: &mut State, now: Now, held: &ParkedRequest, effects: &mut Effects) -> u64 {
        held.with(|request| {
            let walked_ns = match request {
                Request::Command(command) if command.may_walk() => command.walk_ns(&state.table),
                _ => 0,
            };
            self.take(state, now, held.terms, request, effects);
            walked_ns
        })
    }

    /// Ends the requests that were held for the longest allowed time.
    pub(in crate::leader_follower) fn end_held(
        &mut self,
        state: &mut State,
        now: Now,
        effects: &mut Effects,
    ) {
        let takes_requests = state.takes_requests(now);
        let over = self.held.requests.take_if(|held| {
            let until_us = if takes_requests { held.terms.hold_until_us } else { held.deadline_us };
            until_us <= now.monotonic_us
        });
        if over.is_empty() {
            return;
        }
        // Reads among them are answered now, before the requests that are left.
        let (left, are_unchecked) = (self.held.requests.take(), self.held.are_unchecked);
        for held in over {
            let is_write = held.with(|request| request.write().is_some());
            state.counters.refused_writes += u64::from(is_write);
            if !takes_requests {
                effects.refuse(held.ticket, NO_LEASE);
            } else if is_write {
                let (needed, acks) = (self.needed, acks_word(state.options.acks));
                let live = self.live(state, now);
                let error = format!(
                    "NOREPLICAS Not enough good replicas to write. acks={acks} needs {needed} live followers \
                     and {live} are; nothing was written"
                );
                effects.refuse(held.ticket, &error);
            } else if !(are_unchecked && held.hand_on(state.id, effects)) {
                self.take_up(state, now, &held, effects);
            }
        }
        self.held.requests.put_first(left);
    }

    /// Reports when the lease has run out, or the leader has one again. One that has resigned uses none.
    pub(in crate::leader_follower) fn watch_lease(&mut self, state: &State, now: Now, effects: &mut Effects) {
        let leased = state.is_leased(now);
        if leased != self.was_leased && !state.has_resigned() {
            self.was_leased = leased;
            effects.trace.push(Trace::Leased { leased });
        }
    }
}

/// The error of a leader that is not certain that it still leads.
pub(in crate::leader_follower) const NO_LEASE: &str = "CLUSTERDOWN NOLEADER the leader has not heard from the control group in time, and another one may have been appointed; nothing was done";

fn acks_word(acks: Acks) -> String {
    match acks {
        Acks::None => "none".into(),
        Acks::Count(count) => count.to_string(),
        Acks::Majority => "majority".into(),
        Acks::All => "all".into(),
    }
}
