//! How long writes take from their replica's order to their outcome, and records from their arrival at a replica
//! until it has applied them. Only one is measured at a time, so the others cost no more than a comparison.

use commands::statistics::Latencies;
use kv::{Command, Version};
use protocol::{Now, Outcome, Request, Result, Ticket};

/// The measurement of a write without an outcome ends after this long: its request has taken another way.
const GIVEN_UP_AFTER_US: u64 = 60_000_000;

/// The times of a group's writes, as its replica here has ordered them.
#[derive(Debug, Default)]
pub(crate) struct CommitTimes {
    /// The write that is being measured, and when it came.
    open: Option<(Ticket, u64)>,
    times: Latencies,
}

impl CommitTimes {
    /// How long commits took.
    pub(crate) fn times(&self) -> &Latencies {
        &self.times
    }

    /// Measures this request, if it is a write that ends when it is committed, and no other is being measured.
    #[inline]
    pub(crate) fn begin(&mut self, ticket: Ticket, request: &Request<'_>, now: Now) {
        let is_given_up = |since: u64| now.monotonic_us.saturating_sub(since) > GIVEN_UP_AFTER_US;
        if self.open.is_none_or(|(_, since)| is_given_up(since))
            && let Some(command) = request.write()
            // Some of these commands wait for others.
            && !matches!(command.unbounded(&mut None), Command::Queue(_) | Command::Lock(_))
        {
            self.open = Some((ticket, now.monotonic_us));
        }
    }

    /// Ends the measurement if the outcome of its write is among these.
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

    /// Gives up the measurement if it is of this request, which goes to another node.
    pub(crate) fn abandon(&mut self, ticket: Ticket) {
        self.open.take_if(|(open, _)| *open == ticket);
    }
}

/// How long this node's replica of a group takes to apply the records that it holds, as seen at the ends of turns.
#[derive(Debug, Default)]
pub(crate) struct ApplyTimes {
    /// The record that is being measured, and when it was held first.
    open: Option<(Version, u64)>,
    /// The last record that was applied at the end of the previous turn.
    applied: Version,
    times: Latencies,
}

impl ApplyTimes {
    /// How long it took to apply records.
    pub(crate) fn times(&self) -> &Latencies {
        &self.times
    }

    /// Takes the last record that is held and the last one that is applied, at the end of a turn.
    #[inline]
    pub(crate) fn look(&mut self, (held, applied): (Version, Version), now: Now) {
        let before = std::mem::replace(&mut self.applied, applied);
        match self.open {
            Some((record, since)) if applied >= record => {
                self.times.record(now.monotonic_us.saturating_sub(since));
                self.open = None;
            }
            // A record that was not committed may be given up.
            Some((record, _)) if held < record => self.open = None,
            Some(_) => return,
            // The record was held and applied within one turn.
            None if applied > before && held == applied => self.times.record(0),
            None => {}
        }
        if held > applied {
            self.open = Some((held, now.monotonic_us));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(looks: &[(Version, Version)]) -> Vec<(u64, u64)> {
        let mut times = ApplyTimes::default();
        for (turn, look) in (1..).zip(looks) {
            times.look(*look, Now { monotonic_us: turn * 1000, unix_ms: 0 });
        }
        times.times.buckets().collect()
    }

    #[test]
    fn a_record_is_measured_until_it_is_applied() {
        let [(us, 1)] = times(&[(5, 4), (9, 4), (9, 5)])[..] else { panic!("one time") };
        assert!((2000..2300).contains(&us), "{us}");
        assert_eq!(times(&[(5, 4), (9, 4)]), [], "it is not applied yet");
    }

    #[test]
    fn a_record_that_is_applied_in_the_turn_of_its_arrival_takes_no_time() {
        assert_eq!(times(&[(5, 5), (5, 5), (7, 7)]), [(0, 2)]);
    }

    #[test]
    fn a_record_that_is_given_up_is_not_measured() {
        let [(us, 1)] = times(&[(9, 4), (5, 4), (5, 5)])[..] else { panic!("one time") };
        assert!((1000..1200).contains(&us), "that of record 5: {us}");
    }
}
