//! Requests that a leader accepted but cannot process yet: all requests while it has no lease or hands over, writes while too
//! few followers are live. Nothing of them was written anywhere, so they can still be refused, or handed on to the next
//! leader.

use super::{Asked, DEPOSED, Leader};
use crate::contract::{Effects, NOBODY, Now, Request, Trace};
use crate::leader_follower::options::Acks;
use crate::leader_follower::state::State;
use kv::codec::Reader;
use kv::{Command, Version};
use std::collections::VecDeque;

/// Requests in the order in which they will take effect.
#[derive(Debug, Default)]
pub(in crate::leader_follower) struct Held {
    requests: VecDeque<HeldRequest>,
    /// Bytes of their commands.
    bytes: usize,
    /// Whether some of them only wait for a lease, or for the end of a handover.
    for_lease: bool,
}

#[derive(Debug)]
struct HeldRequest {
    asked: Asked,
    what: What,
}

#[derive(Debug)]
enum What {
    Command(Vec<u8>),
    Wait { offset: Version, count: u32 },
}

impl HeldRequest {
    fn bytes(&self) -> usize {
        match &self.what {
            What::Command(bytes) => bytes.len(),
            What::Wait { .. } => 0,
        }
    }

    fn is_write(&self) -> bool {
        match &self.what {
            What::Command(bytes) => {
                Command::decode(&mut Reader::new(bytes)).is_ok_and(|command| command.is_write())
            }
            What::Wait { .. } => false,
        }
    }
}

impl Held {
    pub(in crate::leader_follower) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// The number of held requests, and the bytes of their commands.
    pub(in crate::leader_follower) fn size(&self) -> (usize, usize) {
        (self.requests.len(), self.bytes)
    }

    fn push(&mut self, request: HeldRequest) {
        self.bytes += request.bytes();
        self.requests.push_back(request);
    }

    /// Hands on the held requests, of which nothing was done.
    pub(in crate::leader_follower) fn hand_on(&mut self, effects: &mut Effects) {
        for HeldRequest { asked: Asked { ticket, deadline_us, .. }, what } in std::mem::take(self).requests {
            match what {
                What::Command(bytes) => effects.hand_on(ticket, NOBODY, deadline_us, &bytes),
                What::Wait { .. } => effects.refuse(ticket, DEPOSED),
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
        let what = match *request {
            Request::Command(command) => {
                let mut bytes = Vec::new();
                command.encode(&mut bytes);
                What::Command(bytes)
            }
            Request::Wait { offset, count } => What::Wait { offset, count },
        };
        self.held.push(HeldRequest { asked, what });
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
        let mut requests = std::mem::take(&mut self.held).requests;
        let mut walked_ns = 0;
        while effects.replies.len() - replies_before < PORTION_BYTES
            && walked_ns < WALKED_NS_MAX
            && let Some(held) = requests.pop_front()
        {
            walked_ns += self.take_up(state, now, held, effects); // A write that waits for followers is held again.
        }
        self.held.for_lease |= !requests.is_empty();
        requests.into_iter().for_each(|held| self.held.push(held));
    }

    /// Processes a held request. Returns the estimated nanoseconds of a command that walks over all keys or runs a
    /// script; 0 for others.
    fn take_up(&mut self, state: &mut State, now: Now, held: HeldRequest, effects: &mut Effects) -> u64 {
        match held.what {
            What::Command(bytes) => {
                let command = Command::decode(&mut Reader::new(&bytes)).expect("we encoded it");
                let walked_ns = if command.may_walk() { command.walk_ns(&state.table) } else { 0 };
                self.take(state, now, held.asked, &Request::Command(&command), effects);
                walked_ns
            }
            What::Wait { offset, count } => {
                self.take(state, now, held.asked, &Request::Wait { offset, count }, effects);
                0
            }
        }
    }

    /// Ends the requests that were held for the longest allowed time.
    pub(in crate::leader_follower) fn end_held(
        &mut self,
        state: &mut State,
        now: Now,
        effects: &mut Effects,
    ) {
        let takes_requests = state.takes_requests(now);
        let is_over = |held: &HeldRequest| {
            let Asked { deadline_us, hold_until_us, .. } = held.asked;
            let until_us = if takes_requests { hold_until_us } else { deadline_us };
            until_us <= now.monotonic_us
        };
        if !self.held.requests.iter().any(is_over) {
            return;
        }
        let (over, left) = std::mem::take(&mut self.held.requests).into_iter().partition(is_over);
        let over: VecDeque<HeldRequest> = over;
        self.held.bytes -= over.iter().map(HeldRequest::bytes).sum::<usize>();
        for held in over {
            let is_write = held.is_write();
            state.counters.refused_writes += u64::from(is_write);
            if !takes_requests {
                effects.refuse(held.asked.ticket, NO_LEASE);
            } else if is_write {
                let (needed, acks) = (self.needed, acks_word(state.options.acks));
                let live = self.live(state, now);
                let error = format!(
                    "NOREPLICAS Not enough good replicas to write. acks={acks} needs {needed} live followers \
                     and {live} are; nothing was written"
                );
                effects.refuse(held.asked.ticket, &error);
            } else {
                self.take_up(state, now, held, effects);
            }
        }
        self.held.requests = left;
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
