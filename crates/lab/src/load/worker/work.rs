//! A worker's books.

use std::time::Instant;

use super::super::outcome::{Operation, Outcome};
use super::super::schedule::Schedule;
use super::super::tally::Tally;
use super::super::workload::{Expected, Workload};

/// What is being done and what came of it.
pub(super) struct Work {
    pub(super) workload: Workload,
    /// `None` while nothing is to be sent.
    pub(super) schedule: Option<Schedule>,
    pub(super) is_loading: bool,
    pub(super) tally: Tally,
    pub(super) last_end: Instant,
    pub(super) last_progress: Instant,
    pub(super) last_failure: Option<(Operation, Outcome)>,
}

impl Work {
    /// An operation has ended.
    pub(super) fn conclude(
        &mut self,
        expected: Expected,
        outcome: Outcome,
        latency_us: u64,
        is_measured: bool,
        now: Instant,
    ) {
        if is_measured {
            self.tally.record(expected.operation, outcome, latency_us);
        }
        self.last_end = now;
        if outcome == Outcome::Ok || !self.is_loading {
            self.last_progress = now;
        }
        if outcome != Outcome::Ok {
            self.last_failure = Some((expected.operation, outcome));
            if self.is_loading {
                self.workload.load_again(expected.key);
                if let Some(schedule) = &mut self.schedule {
                    schedule.give_back();
                }
            }
        }
    }
}
