//! When requests are sent. Closed loop: a connection's next batch follows the replies to its last. Open loop: a
//! request is sent when it is due, by the next free connection.

use std::time::{Duration, Instant};

use super::options::{Arrivals, Stop};
use super::random::Random;

/// Decides for every batch whether it may be sent and whether it counts.
///
/// An operation belongs to the time at which it was sent, in the open loop to the time at which it was due. Operations
/// before measuring starts are left out; those in flight when it ends are awaited and counted. As many are added at
/// the end as were left out at the start, so the rate is that of the window.
pub(crate) struct Schedule {
    measure_from: Instant,
    until: Until,
    pipeline: usize,
    due: Option<DueTimes>,
}

/// The times at which one thread's requests are due.
pub(crate) struct DueTimes {
    start: Instant,
    /// The next request's time after the start, in nanoseconds. Not an `Instant`, because gaps are fractional, and
    /// their rounding errors would add up.
    next_ns: f64,
    gap_ns: f64,
    /// Draws random gaps.
    random: Option<Random>,
}

impl DueTimes {
    /// The share of thread number `thread` of `per_second` requests per second. The threads take turns.
    pub(crate) fn new(
        start: Instant,
        per_second: f64,
        arrivals: Arrivals,
        seed: u64,
        thread: usize,
        threads: usize,
    ) -> Self {
        let random = match arrivals {
            Arrivals::Even => None,
            Arrivals::Poisson => Some(Random::for_thread(!seed, thread)),
        };
        Self {
            start,
            next_ns: 1e9 / per_second * thread as f64,
            gap_ns: 1e9 / per_second * threads as f64,
            random,
        }
    }

    fn next(&self) -> Instant {
        self.start + Duration::from_nanos(self.next_ns as u64)
    }

    fn advance(&mut self) {
        self.next_ns += match &mut self.random {
            None => self.gap_ns,
            Some(random) => -self.gap_ns * (1.0 - random.unit()).ln(),
        };
    }

    /// Roughly how many requests are due by then: it uses the mean gap only.
    fn count_until(&self, now: Instant) -> usize {
        let due_ns = now.saturating_duration_since(self.next()).as_nanos() as f64;
        1 + (due_ns / self.gap_ns) as usize
    }
}

enum Until {
    Time(Instant),
    Operations(u64),
    /// The remaining operations of each connection.
    OfEach(Vec<u64>),
}

/// A batch that may be sent now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    pub(crate) operations: usize,
    pub(crate) is_measured: bool,
}

impl Schedule {
    /// The schedule of a thread that has `connections` connections.
    pub(crate) fn new(
        start: Instant,
        warmup: Duration,
        stop: Stop,
        pipeline: usize,
        connections: usize,
    ) -> Self {
        let measure_from = start + warmup;
        let until = match stop {
            Stop::Duration(duration) => Until::Time(measure_from + duration),
            Stop::Count(operations) => Until::Operations(operations),
            Stop::CountEach(operations) => Until::OfEach(vec![operations; connections]),
        };
        Self { measure_from, until, pipeline, due: None }
    }

    /// Turns it into an open loop.
    pub(crate) fn with_due_times(self, due: DueTimes) -> Self {
        Self { due: Some(due), ..self }
    }

    pub(crate) fn is_open_loop(&self) -> bool {
        self.due.is_some()
    }

    /// Closed loop: the batch that a free connection, numbered from 0 within its thread, may send now.
    pub(crate) fn admit(&mut self, now: Instant, connection: usize) -> Option<Admitted> {
        if now < self.measure_from {
            return Some(Admitted { operations: self.pipeline, is_measured: false });
        }
        let take = |left: &mut u64| {
            let operations = (*left).min(self.pipeline as u64);
            *left -= operations;
            operations as usize
        };
        let operations = match &mut self.until {
            Until::Time(end) if now < *end => self.pipeline,
            Until::Time(_) => 0,
            Until::Operations(left) => take(left),
            Until::OfEach(left) => take(&mut left[connection]),
        };
        (operations > 0).then_some(Admitted { operations, is_measured: true })
    }

    /// Open loop: the batch that one of `free` free connections may send now. The times at which its requests were due
    /// are appended to `due_times`. Due requests are spread over the free connections; batches have several requests
    /// only if there are more than free connections.
    pub(crate) fn admit_due(
        &mut self,
        now: Instant,
        free: usize,
        due_times: &mut Vec<Instant>,
    ) -> Option<Admitted> {
        let next = self.next_due()?;
        let due = self.due.as_mut()?;
        if next > now {
            return None;
        }
        let is_measured = next >= self.measure_from;
        let room = due.count_until(now).div_ceil(free.max(1)).clamp(1, self.pipeline);
        while due_times.len() < room {
            let next = due.next();
            let is_over = match self.until {
                Until::Time(end) => next >= end,
                Until::Operations(left) => is_measured && left == 0,
                Until::OfEach(_) => unreachable!("options with such a count are a closed loop's"),
            };
            if next > now || is_over || (next >= self.measure_from) != is_measured {
                break;
            }
            due_times.push(next);
            due.advance();
            if let (Until::Operations(left), true) = (&mut self.until, is_measured) {
                *left -= 1;
            }
        }
        Some(Admitted { operations: due_times.len(), is_measured })
    }

    /// Open loop: when the next request is due; `None` when no more are due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let next = self.due.as_ref()?.next();
        let is_over = match self.until {
            Until::Time(end) => next >= end,
            Until::Operations(left) => left == 0,
            Until::OfEach(_) => unreachable!("options with such a count are a closed loop's"),
        };
        (!is_over).then_some(next)
    }

    /// Open loop: how many requests were due before the end and have not been sent.
    pub(crate) fn count_unsent(&mut self) -> u64 {
        let (Until::Time(end), Some(due)) = (&self.until, &mut self.due) else { return 0 };
        let mut unsent = 0;
        while due.next() < *end {
            unsent += u64::from(due.next() >= self.measure_from);
            due.advance();
        }
        unsent
    }

    /// Returns an operation of a load that must be repeated.
    pub(crate) fn give_back(&mut self) {
        if let Until::Operations(left) = &mut self.until {
            *left += 1;
        }
    }

    pub(crate) fn is_over(&self, now: Instant) -> bool {
        match &self.until {
            Until::Time(end) => now >= *end,
            Until::Operations(left) => *left == 0,
            Until::OfEach(left) => left.iter().all(|left| *left == 0),
        }
    }

    pub(crate) fn measure_from(&self) -> Instant {
        self.measure_from
    }

    /// Whether the run ends by a number of operations, so that a server which answers nothing would keep it from
    /// ending.
    pub(crate) fn ends_by_count(&self) -> bool {
        matches!(self.until, Until::Operations(_) | Until::OfEach(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_count_is_met_exactly_and_warming_up_does_not_count() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start, SECOND, Stop::Count(20), 16, 1);
        let warming = Admitted { operations: 16, is_measured: false };
        assert_eq!(schedule.admit(start, 0), Some(warming));
        let now = start + SECOND;
        let sizes: Vec<_> =
            std::iter::from_fn(|| schedule.admit(now, 0)).map(|batch| batch.operations).collect();
        assert_eq!(sizes, [16, 4]);
        assert!(schedule.is_over(now));
        schedule.give_back();
        assert_eq!(schedule.admit(now, 0), Some(Admitted { operations: 1, is_measured: true }));
    }

    #[test]
    fn each_connection_has_a_count_of_its_own() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start, Duration::ZERO, Stop::CountEach(2), 1, 2);
        let sends = |schedule: &mut Schedule, connection| schedule.admit(start, connection).is_some();
        assert_eq!([0, 0, 0].map(|connection| sends(&mut schedule, connection)), [true, true, false]);
        assert!(!schedule.is_over(start));
        assert_eq!([1, 1, 1].map(|connection| sends(&mut schedule, connection)), [true, true, false]);
        assert!(schedule.is_over(start));
    }

    fn open_loop(
        start: Instant,
        warmup: Duration,
        stop: Stop,
        per_second: f64,
        arrivals: Arrivals,
    ) -> Schedule {
        Schedule::new(start, warmup, stop, 4, 1)
            .with_due_times(DueTimes::new(start, per_second, arrivals, 1, 0, 1))
    }

    /// The times at which the next batch's requests were due, relative to the start.
    fn due(schedule: &mut Schedule, start: Instant, now: Instant, free: usize) -> Option<(Vec<u128>, bool)> {
        let mut times = Vec::new();
        let admitted = schedule.admit_due(now, free, &mut times)?;
        assert_eq!(admitted.operations, times.len());
        let after_ms = |time: &Instant| time.duration_since(start).as_millis();
        Some((times.iter().map(after_ms).collect(), admitted.is_measured))
    }

    #[test]
    fn open_loop_requests_are_due_at_their_times_regardless_of_delays() {
        let start = Instant::now();
        let mut schedule = open_loop(start, Duration::ZERO, Stop::Duration(SECOND), 100.0, Arrivals::Even);
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(due(&mut schedule, start, at(0), 8), Some((vec![0], true)));
        assert_eq!(due(&mut schedule, start, at(9), 8), None);
        assert_eq!(schedule.next_due(), Some(at(10)));
        // No connection was free for a while: overdue requests keep their times, and few connections take them in
        // batches.
        assert_eq!(due(&mut schedule, start, at(75), 2), Some((vec![10, 20, 30, 40], true)));
        assert_eq!(due(&mut schedule, start, at(75), 8), Some((vec![50], true)));
        assert_eq!(schedule.count_unsent(), 94);
    }

    #[test]
    fn open_loop_requests_count_by_the_time_at_which_they_were_due() {
        let start = Instant::now();
        let mut schedule = open_loop(start, Duration::from_millis(20), Stop::Count(3), 100.0, Arrivals::Even);
        let late = start + SECOND;
        assert_eq!(due(&mut schedule, start, late, 1), Some((vec![0, 10], false)));
        assert_eq!(due(&mut schedule, start, late, 1), Some((vec![20, 30, 40], true)));
        assert_eq!(due(&mut schedule, start, late, 1), None);
        assert_eq!(schedule.next_due(), None);
        assert!(schedule.is_over(late));
    }

    #[test]
    fn drawn_gaps_have_the_mean_and_the_spread_of_a_poisson_process() {
        let mut due = DueTimes::new(Instant::now(), 1000.0, Arrivals::Poisson, 1, 0, 1);
        let gaps: Vec<f64> = (0..100_000)
            .map(|_| {
                let before = due.next_ns;
                due.advance();
                (due.next_ns - before) / 1e6
            })
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((0.98..1.02).contains(&mean) && (0.95..1.05).contains(&variance), "{mean} {variance}");
    }

    #[test]
    fn threads_take_turns() {
        let start = Instant::now();
        let times: Vec<f64> = (0..4)
            .map(|thread| DueTimes::new(start, 1000.0, Arrivals::Even, 1, thread, 4))
            .map(|due| due.next_ns)
            .collect();
        assert_eq!(times, [0.0, 1e6, 2e6, 3e6]);
    }

    #[test]
    fn a_duration_starts_after_the_warmup() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start, SECOND, Stop::Duration(SECOND), 1, 1);
        assert!(!schedule.admit(start, 0).unwrap().is_measured);
        assert!(schedule.admit(start + SECOND, 0).unwrap().is_measured);
        assert_eq!(schedule.admit(start + 2 * SECOND, 0), None);
        assert!(schedule.is_over(start + 2 * SECOND));
    }
}
