//! Counters of commands: calls, time, refusals and errors, by command and by error code.
//!
//! A command's time goes from its request to its outcome, replication included, in whole turns of the event
//! loop: a command that is answered within its turn took 0 microseconds.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::COMMAND_COUNT;

/// The most error codes that are counted separately. Only a safeguard, since clients do not choose the codes.
const ERROR_CODES_MAX: usize = 128;

/// The counters of one command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// How often it was executed, with success or not.
    pub calls: u64,
    /// How often it was refused before anything was done.
    pub rejected: u64,
    /// How often it was executed and answered with an error.
    pub failed: u64,
    /// How long the calls took, from request to outcome.
    pub latency: Latencies,
}

/// The counters of all commands, by number (see [`super::Found::number`]), and of all errors, by code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandStatistics {
    commands: Box<[Counters; COMMAND_COUNT]>,
    errors: BTreeMap<Box<str>, u64>,
}

impl Default for CommandStatistics {
    fn default() -> Self {
        CommandStatistics {
            commands: Box::new(std::array::from_fn(|_| Counters::default())),
            errors: BTreeMap::new(),
        }
    }
}

impl CommandStatistics {
    /// Makes counters at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a command that is being executed.
    #[inline]
    pub fn called(&mut self, number: usize) {
        self.commands[number].calls += 1;
    }

    /// Adds the time that a command took.
    #[inline]
    pub fn took(&mut self, number: usize, microseconds: u64) {
        self.commands[number].latency.record(microseconds);
    }

    /// Counts an executed command that is answered with an error.
    pub fn failed(&mut self, number: usize) {
        self.commands[number].failed += 1;
    }

    /// Counts a command that was refused before anything was done: for its arguments, or for the client
    /// that sent it.
    pub fn rejected(&mut self, number: usize) {
        self.commands[number].rejected += 1;
    }

    /// Counts an error reply. Its first word is its code.
    pub fn error(&mut self, text: &[u8]) {
        let code = text.split(|byte| *byte == b' ').next().unwrap_or_default();
        let code = String::from_utf8_lossy(code);
        if let Some(count) = self.errors.get_mut(&*code) {
            *count += 1;
        } else if self.errors.len() < ERROR_CODES_MAX {
            self.errors.insert(code.into(), 1);
        }
    }

    /// Sets everything to zero (`CONFIG RESETSTAT`).
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// The counters of each command that was called or refused, with its number.
    pub fn used(&self) -> impl Iterator<Item = (usize, &Counters)> {
        self.commands.iter().enumerate().filter(|(_, counters)| counters.calls + counters.rejected > 0)
    }

    /// The times of each command that has ended since the counters were reset, with its number.
    pub fn measured(&self) -> impl Iterator<Item = (usize, &Latencies)> {
        let all = self.commands.iter().map(|counters| &counters.latency).enumerate();
        all.filter(|(_, latency)| latency.count() > 0)
    }

    /// Error codes with their counts, in alphabetical order.
    pub fn errors(&self) -> impl Iterator<Item = (&str, u64)> {
        self.errors.iter().map(|(code, count)| (&**code, *count))
    }

    /// The number of commands that were executed.
    pub fn calls(&self) -> u64 {
        self.commands.iter().map(|counters| counters.calls).sum()
    }

    /// The microseconds that all commands took together.
    pub fn microseconds(&self) -> u64 {
        self.commands.iter().map(|counters| counters.latency.sum_us()).sum()
    }

    /// The number of error replies.
    pub fn error_replies(&self) -> u64 {
        self.errors.values().sum()
    }
}

/// How many powers of two latencies cover: up to half an hour in microseconds.
const OCTAVES: usize = 32;

/// Steps within a power of two, so that a percentile is off by an eighth at most.
const STEPS: usize = 8;

/// How often each time in microseconds was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// Commands that were answered in their turn, so in 0 microseconds. They are the most frequent, and counting them is
    /// fastest.
    at_once: u64,
    /// All other commands, by bucket. Empty until there is one, since most commands of the table are never called.
    counts: Vec<u64>,
    sum_us: u64,
}

impl Latencies {
    /// Counts a time.
    #[inline]
    pub fn record(&mut self, microseconds: u64) {
        match microseconds {
            0 => self.at_once += 1,
            _ => self.record_longer(microseconds),
        }
    }

    fn record_longer(&mut self, microseconds: u64) {
        if self.counts.is_empty() {
            self.counts = vec![0; OCTAVES * STEPS];
        }
        self.counts[bucket(microseconds)] += 1;
        self.sum_us = self.sum_us.saturating_add(microseconds);
    }

    /// Adds the times that others have counted.
    pub fn add(&mut self, other: &Latencies) {
        self.at_once += other.at_once;
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
        if self.counts.is_empty() {
            self.counts.clone_from(&other.counts);
        } else {
            self.counts.iter_mut().zip(&other.counts).for_each(|(count, other)| *count += other);
        }
    }

    /// The times that were counted since an earlier state. None where the counts have been reset in between.
    pub fn since(&self, before: &Latencies) -> Latencies {
        let earlier = before.counts.iter().copied().chain(std::iter::repeat(0));
        Latencies {
            at_once: self.at_once.saturating_sub(before.at_once),
            counts: self.counts.iter().zip(earlier).map(|(now, before)| now.saturating_sub(before)).collect(),
            sum_us: self.sum_us.saturating_sub(before.sum_us),
        }
    }

    /// The number of measured times.
    pub fn count(&self) -> u64 {
        self.at_once + self.counts.iter().sum::<u64>()
    }

    /// The non-empty buckets, with their counts.
    fn filled(&self) -> impl Iterator<Item = (usize, u64)> {
        let longer = self.counts.iter().copied().enumerate();
        std::iter::once((0, self.at_once)).chain(longer).filter(|(_, count)| *count > 0)
    }

    /// The sum of all measured times, in microseconds.
    pub fn sum_us(&self) -> u64 {
        self.sum_us
    }

    /// The longest time of each non-empty bucket, in microseconds, with the bucket's count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.filled().map(|(bucket, count)| (highest(bucket), count))
    }

    /// Powers of two microseconds, each with the number of times below it. Powers that add nothing are left out.
    pub fn below_powers(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut before = 0;
        (0..OCTAVES as u32 + STEPS as u32).map(|power| (1 << power, self.below(1 << power))).filter(
            move |(_, count)| {
                let is_new = *count > before;
                before = *count;
                is_new
            },
        )
    }

    /// How many times were shorter than a power of two of at least [`STEPS`] microseconds.
    fn below(&self, power_us: u64) -> u64 {
        let shorter = self.filled().filter(|(bucket, _)| highest(*bucket) < power_us);
        shorter.map(|(_, count)| count).sum()
    }

    /// Appends the samples of a histogram in Prometheus's text format: `name` ends in `_seconds`.
    /// All histograms have the same buckets, so that they can be added up: each power of two from 64 us to 17 s.
    pub fn render(&self, name: &str, labels: &str, out: &mut String) {
        let (comma, all) = match labels {
            "" => ("", String::new()),
            _ => (",", format!("{{{labels}}}")),
        };
        for power in 6..=24 {
            let (end_us, count) = (1_u64 << power, self.below(1 << power));
            let _ = writeln!(out, "{name}_bucket{{{labels}{comma}le=\"{}\"}} {count}", end_us as f64 / 1e6);
        }
        let (count, sum) = (self.count(), self.sum_us as f64 / 1e6);
        let _ = write!(
            out,
            "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}\n{name}_sum{all} {sum}\n{name}_count{all} {count}\n"
        );
    }

    /// The time in microseconds that `percent` of all times do not exceed, to within an eighth. 0 if there are
    /// none.
    pub fn percentile(&self, percent: f64) -> u64 {
        let wanted = (self.count() as f64 * percent / 100.0).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.filled() {
            seen += count;
            if seen >= wanted {
                return highest(bucket);
            }
        }
        0
    }
}

/// Returns the bucket of a time: one for each below [`STEPS`], above it [`STEPS`] for each power of two.
#[inline]
fn bucket(microseconds: u64) -> usize {
    let microseconds = microseconds.min(highest(OCTAVES * STEPS - 1));
    if microseconds < STEPS as u64 {
        return microseconds as usize;
    }
    let octave = microseconds.ilog2() - STEPS.ilog2();
    ((octave as usize) * STEPS) + (microseconds >> octave) as usize
}

/// The longest time in a bucket.
fn highest(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let octave = bucket / STEPS - 1;
    let first = ((STEPS + bucket % STEPS) as u64) << octave;
    first + (1 << octave) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_the_bucket_that_ends_with_it_or_above() {
        for bucket in 0..OCTAVES * STEPS {
            let lowest = if bucket == 0 { 0 } else { highest(bucket - 1) + 1 };
            assert_eq!((super::bucket(lowest), super::bucket(highest(bucket))), (bucket, bucket));
        }
        assert_eq!(bucket(u64::MAX), OCTAVES * STEPS - 1);
    }

    #[test]
    fn percentiles_are_at_most_an_eighth_too_high() {
        let mut latencies = Latencies::default();
        assert_eq!((latencies.percentile(50.0), latencies.below_powers().count()), (0, 0));
        (1..=1000).for_each(|microseconds| latencies.record(microseconds));
        for (percent, exact) in [(50.0, 500), (99.0, 990), (99.9, 999), (100.0, 1000)] {
            let estimate = latencies.percentile(percent);
            assert!((exact..=exact + exact / 8).contains(&estimate), "p{percent}: {estimate}");
        }
    }

    #[test]
    fn times_are_counted_below_powers_of_two() {
        let mut latencies = Latencies::default();
        [0, 1, 3, 3, 300, u64::MAX].into_iter().for_each(|microseconds| latencies.record(microseconds));
        let longest = highest(OCTAVES * STEPS - 1) + 1;
        assert_eq!(
            latencies.below_powers().collect::<Vec<_>>(),
            [(1, 1), (2, 2), (4, 4), (512, 5), (longest, 6)]
        );
    }

    #[test]
    fn a_histogram_for_prometheus_adds_up() {
        let mut latencies = Latencies::default();
        [0, 63, 64, 1_000_000, 40_000_000]
            .into_iter()
            .for_each(|microseconds| latencies.record(microseconds));
        let mut text = String::new();
        latencies.render("quorate_x_seconds", "command=\"get\"", &mut text);
        for line in [
            "quorate_x_seconds_bucket{command=\"get\",le=\"0.000064\"} 2",
            "quorate_x_seconds_bucket{command=\"get\",le=\"0.000128\"} 3",
            "quorate_x_seconds_bucket{command=\"get\",le=\"1.048576\"} 4",
            "quorate_x_seconds_bucket{command=\"get\",le=\"16.777216\"} 4",
            "quorate_x_seconds_bucket{command=\"get\",le=\"+Inf\"} 5",
            "quorate_x_seconds_sum{command=\"get\"} 41.000127",
            "quorate_x_seconds_count{command=\"get\"} 5",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn calls_refusals_and_errors_are_counted_separately() {
        let mut first = CommandStatistics::new();
        first.called(0);
        first.took(0, 10);
        first.called(0);
        first.took(0, 30);
        first.failed(0);
        first.rejected(1);
        first.error(b"ERR syntax error");
        first.error(b"ERR no such key");
        first.error(b"NOAUTH Authentication required.");
        let used: Vec<_> = first.used().collect();
        let [(0, get), (1, set)] = used[..] else { panic!("{used:?}") };
        assert_eq!((get.calls, get.latency.sum_us(), get.failed, get.rejected), (2, 40, 1, 0));
        assert_eq!((set.calls, set.rejected), (0, 1));
        assert_eq!(first.errors().collect::<Vec<_>>(), [("ERR", 2), ("NOAUTH", 1)]);
        assert_eq!((first.calls(), first.error_replies()), (2, 3));
        first.reset();
        assert_eq!(first, CommandStatistics::new());
    }
}
