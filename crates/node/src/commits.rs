//! How long writes take from their replica's order to their outcome: of one write at a time, which costs the others nothing
//! but a comparison.

use crate::command::statistics::Latencies;
use kv::Command;
use protocol::{Now, Outcome, Request, Result, Ticket};

/// A write that has no outcome after so long is given up: its request has gone another way.
const GIVEN_UP_AFTER_US: u64 = 60_000_000;

/// The times of a group's writes, as its replica here has ordered them.
#[derive(Debug, Default)]
pub(crate) struct CommitTimes {
    /// The write that is being measured, and when it came.
    open: Option<(Ticket, u64)>,
    pub(crate) times: Latencies,
}

impl CommitTimes {
    /// Measures this request, if it is a write that ends when it is committed, and no other is being measured.
    #[inline]
    pub(crate) fn begin(&mut self, ticket: Ticket, request: &Request<'_>, now: Now) {
        let is_given_up = |since: u64| now.monotonic_us.saturating_sub(since) > GIVEN_UP_AFTER_US;
        if self.open.is_none_or(|(_, since)| is_given_up(since))
            && let Some(command) = request.write()
            // Some of these wait for others.
            && !matches!(command.unrouted(&mut None), Command::Queue(_) | Command::Lock(_))
        {
            self.open = Some((ticket, now.monotonic_us));
        }
    }

    /// Ends the measurement if these outcomes have that of its write.
    #[inline]
    pub(crate) fn end(&mut self, outcomes: &[Outcome], now: Now) {
        if let Some((ticket, since)) = self.open
            && let Some(outcome) = outcomes.iter().find(|outcome| outcome.ticket == ticket)
        {
            self.open = None;
            if matches!(outcome.result, Result::Done { .. }) {
                self.times.record(now.monotonic_us.saturating_sub(since));
            }
        }
    }

    /// Gives the measurement up if it is that of this request, which goes to another node.
    pub(crate) fn abandon(&mut self, ticket: Ticket) {
        self.open.take_if(|(open, _)| *open == ticket);
    }
}
