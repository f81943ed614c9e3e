//! A worker's current work and its counts.

use std::time::Instant;

use super::super::connection::{Answered, Batch};
use super::super::language::Language;
use super::super::outcome::{Operation, Outcome};
use super::super::recorder::Recorder;
use super::super::schedule::Schedule;
use super::super::tally::Tally;
use super::super::workload::Workload;
use super::micros_between;

/// The work, and its results so far.
pub(super) struct Work {
    pub(super) workload: Workload,
    pub(super) language: Language,
    /// Records every operation, if requested.
    pub(super) recorder: Option<Recorder>,
    /// `None` while nothing is to be sent.
    pub(super) schedule: Option<Schedule>,
    pub(super) is_loading: bool,
    pub(super) tally: Tally,
    pub(super) last_end: Instant,
    pub(super) last_progress: Instant,
    pub(super) last_failure: Option<(Operation, Outcome)>,
}

impl Work {
    /// Counts and records a request of a connection's batch that has ended.
    pub(super) fn conclude(&mut self, connection: usize, batch: &Batch, ended: Answered, now: Instant) {
        let Answered { position, outcome, observed } = ended;
        let expected = batch.expected[position];
        if batch.is_measured {
            let latency_us = micros_between(batch.start_of(position), now);
            self.tally.record(expected.operation, outcome, latency_us);
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.write(connection, expected, observed, batch.sent_at, now);
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
