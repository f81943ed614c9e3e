//! When requests are sent: closed loop, a connection's next batch follows the replies to its last.

use std::time::{Duration, Instant};

use super::options::Stop;

/// Decides for every batch whether it may be sent and whether it counts.
///
/// An operation belongs to the time at which it was sent. Those sent before measuring starts are left
/// out, those that are in flight when it ends are waited for and counted: as many come in late as were
/// left out early, so the rate is that of the window.
pub(crate) struct Schedule {
    measure_from: Instant,
    until: Until,
    pipeline: usize,
}

enum Until {
    Time(Instant),
    Operations(u64),
}

/// A batch that may be sent now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    pub(crate) operations: usize,
    pub(crate) is_measured: bool,
}

impl Schedule {
    pub(crate) fn new(start: Instant, warmup: Duration, stop: Stop, pipeline: usize) -> Self {
        let measure_from = start + warmup;
        let until = match stop {
            Stop::Duration(duration) => Until::Time(measure_from + duration),
            Stop::Count(operations) => Until::Operations(operations),
        };
        Self { measure_from, until, pipeline }
    }

    pub(crate) fn admit(&mut self, now: Instant) -> Option<Admitted> {
        if now < self.measure_from {
            return Some(Admitted { operations: self.pipeline, is_measured: false });
        }
        let operations = match &mut self.until {
            Until::Time(end) if now < *end => self.pipeline,
            Until::Time(_) => 0,
            Until::Operations(left) => {
                let operations = (*left).min(self.pipeline as u64);
                *left -= operations;
                operations as usize
            }
        };
        (operations > 0).then_some(Admitted { operations, is_measured: true })
    }

    /// An operation has to be done once more.
    pub(crate) fn give_back(&mut self) {
        if let Until::Operations(left) = &mut self.until {
            *left += 1;
        }
    }

    pub(crate) fn is_over(&self, now: Instant) -> bool {
        match self.until {
            Until::Time(end) => now >= end,
            Until::Operations(left) => left == 0,
        }
    }

    pub(crate) fn measure_from(&self) -> Instant {
        self.measure_from
    }

    /// Whether only operations bring the end nearer, so that a server which answers nothing would hold
    /// the run up for ever.
    pub(crate) fn ends_by_count(&self) -> bool {
        matches!(self.until, Until::Operations(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_count_is_met_exactly_and_warming_up_does_not_count() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start, SECOND, Stop::Count(20), 16);
        let warming = Admitted { operations: 16, is_measured: false };
        assert_eq!(schedule.admit(start), Some(warming));
        let now = start + SECOND;
        let sizes: Vec<_> =
            std::iter::from_fn(|| schedule.admit(now)).map(|batch| batch.operations).collect();
        assert_eq!(sizes, [16, 4]);
        assert!(schedule.is_over(now));
        schedule.give_back();
        assert_eq!(schedule.admit(now), Some(Admitted { operations: 1, is_measured: true }));
    }

    #[test]
    fn a_duration_starts_after_the_warmup() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start, SECOND, Stop::Duration(SECOND), 1);
        assert!(!schedule.admit(start).unwrap().is_measured);
        assert!(schedule.admit(start + SECOND).unwrap().is_measured);
        assert_eq!(schedule.admit(start + 2 * SECOND), None);
        assert!(schedule.is_over(start + 2 * SECOND));
    }
}
