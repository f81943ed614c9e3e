//! Counts and latencies per operation and outcome. Successes and failures never share a histogram.

use hdrhistogram::Histogram;

use super::outcome::{ErrorWord, Operation, Outcome};

/// The longest latency that is distinguished; longer ones count as this.
const LATENCY_US_MAX: u64 = 3_600_000_000;

/// Latencies have three significant digits: an error below 0.1 %.
const LATENCY_DIGITS: u8 = 3;

/// A server that makes up error words must not fill our memory: further words count as `OTHER`.
const FAILURE_KINDS_MAX: usize = 64;

pub(crate) fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_US_MAX, LATENCY_DIGITS).expect("the bounds are constants and valid")
}

/// Counts and latencies of a set of operations.
pub(crate) struct Tally {
    successes: [Histogram<u64>; Operation::ALL.len()],
    failures: Vec<(Operation, Outcome, Histogram<u64>)>,
    pub(crate) connections_lost: u64,
    /// Open loop: the delay between due and sent of each request, in microseconds; `None` in the closed loop.
    delays: Option<Histogram<u64>>,
    /// Open loop: how many requests were due and never sent.
    pub(crate) unsent: u64,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            successes: std::array::from_fn(|_| new_histogram()),
            failures: Vec::new(),
            connections_lost: 0,
            delays: None,
            unsent: 0,
        }
    }

    pub(crate) fn record(&mut self, operation: Operation, outcome: Outcome, latency_us: u64) {
        match outcome {
            Outcome::Ok => self.successes[operation as usize].saturating_record(latency_us),
            _ => self.failure(operation, outcome).saturating_record(latency_us),
        }
    }

    #[cold]
    fn failure(&mut self, operation: Operation, outcome: Outcome) -> &mut Histogram<u64> {
        let find = |failures: &[(Operation, Outcome, _)], outcome| {
            failures.iter().position(|entry| entry.0 == operation && entry.1 == outcome)
        };
        let mut outcome = outcome;
        let mut position = find(&self.failures, outcome);
        let is_full = self.failures.len() >= FAILURE_KINDS_MAX;
        if position.is_none() && is_full && matches!(outcome, Outcome::Error(_)) {
            outcome = Outcome::Error(ErrorWord::of(b"OTHER"));
            position = find(&self.failures, outcome);
        }
        let position = position.unwrap_or_else(|| {
            self.failures.push((operation, outcome, new_histogram()));
            self.failures.len() - 1
        });
        &mut self.failures[position].2
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        let bounds = "all histograms have the same bounds";
        for (mine, theirs) in self.successes.iter_mut().zip(&other.successes) {
            mine.add(theirs).expect(bounds);
        }
        for (operation, outcome, theirs) in &other.failures {
            self.failure(*operation, *outcome).add(theirs).expect(bounds);
        }
        if let Some(theirs) = &other.delays {
            self.delays.get_or_insert_with(new_histogram).add(theirs).expect(bounds);
        }
        self.connections_lost += other.connections_lost;
        self.unsent += other.unsent;
    }

    /// Records that a request was sent this long after it was due.
    pub(crate) fn record_delay(&mut self, delay_us: u64) {
        self.delays.get_or_insert_with(new_histogram).saturating_record(delay_us);
    }

    pub(crate) fn delays(&self) -> Option<&Histogram<u64>> {
        self.delays.as_ref()
    }

    /// The latencies of one operation's successes.
    pub(crate) fn successes_of(&self, operation: Operation) -> &Histogram<u64> {
        &self.successes[operation as usize]
    }

    /// The latencies of all successes together.
    pub(crate) fn all_successes(&self) -> Histogram<u64> {
        self.successes.iter().fold(new_histogram(), |mut all, one| {
            all.add(one).expect("all histograms have the same bounds");
            all
        })
    }

    pub(crate) fn failures(&self) -> impl Iterator<Item = &(Operation, Outcome, Histogram<u64>)> {
        self.failures.iter()
    }

    pub(crate) fn success_count(&self) -> u64 {
        self.successes.iter().map(Histogram::len).sum()
    }

    /// The number of operations that certainly failed.
    pub(crate) fn failed_count(&self) -> u64 {
        self.failures.iter().filter(|entry| !entry.1.is_unknown()).map(|entry| entry.2.len()).sum()
    }

    /// The number of operations that may or may not have happened.
    pub(crate) fn unknown_count(&self) -> u64 {
        self.failures.iter().filter(|entry| entry.1.is_unknown()).map(|entry| entry.2.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_never_touch_the_latencies_of_successes() {
        let mut tally = Tally::new();
        tally.record(Operation::Get, Outcome::Ok, 100);
        tally.record(Operation::Get, Outcome::Miss, 1_000_000);
        tally.record(Operation::Get, Outcome::Lost, 1_000_000);
        assert_eq!(tally.all_successes().max(), 100);
        assert_eq!((tally.success_count(), tally.failed_count(), tally.unknown_count()), (1, 1, 1));
    }

    #[test]
    fn merging_adds_up_equal_outcomes() {
        let (mut left, mut right) = (Tally::new(), Tally::new());
        left.record(Operation::Set, Outcome::TooFewReplicas, 5);
        right.record(Operation::Set, Outcome::TooFewReplicas, 7);
        right.record(Operation::Set, Outcome::Timeout, 7);
        right.connections_lost = 1;
        left.merge(&right);
        let counts: Vec<_> = left.failures().map(|entry| (entry.1, entry.2.len())).collect();
        assert_eq!(counts, [(Outcome::TooFewReplicas, 2), (Outcome::Timeout, 1)]);
        assert_eq!(left.connections_lost, 1);
    }

    #[test]
    fn made_up_error_words_do_not_fill_the_memory() {
        let mut tally = Tally::new();
        for number in 0..10_000 {
            let word = ErrorWord::of(format!("E{number}").as_bytes());
            tally.record(Operation::Get, Outcome::Error(word), 1);
        }
        assert_eq!(tally.failed_count(), 10_000);
        assert!(tally.failures().count() <= FAILURE_KINDS_MAX + 1);
    }

    #[test]
    fn a_latency_beyond_the_range_is_kept_at_its_end() {
        let mut tally = Tally::new();
        tally.record(Operation::Get, Outcome::Ok, u64::MAX);
        assert!(tally.all_successes().max() >= LATENCY_US_MAX);
    }
}
