//! The contenders' records, and what they show: times to acquire, hand-offs, fairness, and whether two ever held a lock
//! at once.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use check::{Action, Answer, History, Hold, LockAction, Outcome as Ended};

use crate::harness::Figures;

/// The number of numbers in a row of a file, and the bytes of each.
const NUMBERS: usize = 6;
const NUMBER_BYTES: usize = 8;

/// The outcome of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The lock was granted.
    Granted,
    /// The recipe gave up.
    GaveUp,
    /// The try failed with an error.
    Failed,
    /// The run ended before the lock was granted.
    Unfinished,
}

/// One try of one contender. Times are in nanoseconds of the machine's monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Try {
    pub(super) contender: u64,
    pub(super) asked_at: u64,
    pub(super) granted_at: u64,
    /// When the holder called release.
    pub(super) release_at: u64,
    /// When the release, or a failed try, was over.
    pub(super) over_at: u64,
    pub(super) outcome: Outcome,
}

/// Reads the records of one process.
pub(super) fn read(file: &Path) -> Result<Vec<Try>> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let row_bytes = NUMBERS * NUMBER_BYTES;
    ensure!(bytes.len().is_multiple_of(row_bytes), "{} ends within a row", file.display());
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let row = |bytes: &[u8]| {
        let numbers: Vec<u64> = bytes.chunks_exact(NUMBER_BYTES).map(number).collect();
        let outcome = match numbers[5] {
            0 => Outcome::Granted,
            1 => Outcome::GaveUp,
            2 => Outcome::Failed,
            _ => Outcome::Unfinished,
        };
        let [contender, asked_at, granted_at, release_at, over_at] = [0, 1, 2, 3, 4].map(|at| numbers[at]);
        Try { contender, asked_at, granted_at, release_at, over_at, outcome }
    };
    Ok(bytes.chunks_exact(row_bytes).map(row).collect())
}

/// The contenders' records as a history of locks, to be checked.
///
/// Few recipes return a fencing token, so grants of a lock are numbered in the order in which clients learned of them:
/// if no two contenders held it at once, that is the order in which they were made, because each client learned of its
/// grant before releasing the lock. For a release, only the time it was sent is known, not its outcome; nor is it known
/// whether a try that ended otherwise held the lock for a while. `name_of` maps a contender to its lock.
pub(super) fn history(tries: &[Try], name_of: impl Fn(u64) -> String, ttl_ms: u64) -> History {
    let mut history = History::new();
    let mut sorted: Vec<&Try> = tries.iter().collect();
    sorted.sort_by_key(|row| (row.granted_at, row.asked_at));
    let mut tokens = BTreeMap::new();
    let hold = Hold::Lease(u32::try_from(ttl_ms).unwrap_or(u32::MAX));
    for row in sorted {
        let key = history.key(name_of(row.contender).as_bytes());
        let owner = history.value(format!("{}", row.contender).as_bytes());
        let acquire = Action::Lock(LockAction::Acquire { owner, hold, waits: true });
        let acquire = history.begin(row.contender, key, acquire, row.asked_at);
        if row.outcome != Outcome::Granted {
            continue;
        }
        let token = tokens.entry(key.index()).or_insert(0);
        *token += 1;
        history.end(acquire, row.granted_at, Ended::Ok(Answer::Token(Some(*token))));
        if row.release_at > 0 {
            history.begin(
                row.contender,
                key,
                Action::Lock(LockAction::Release { token: *token }),
                row.release_at,
            );
        }
    }
    history
}

/// The quantile of `per_mille` thousandths: the smallest of the sorted values that is no less than that many of them.
pub(super) fn quantile(sorted: &[u64], per_mille: usize) -> Option<u64> {
    let rank = (sorted.len() * per_mille).div_ceil(1000).max(1);
    sorted.get(rank - 1).copied()
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn mean_ms(values: &[u64]) -> f64 {
    values.iter().map(|value| ms(*value)).sum::<f64>() / values.len() as f64
}

/// Evaluates the tries that began within a period, in which `contenders` contenders took part.
pub(super) fn figures(tries: &[Try], contenders: usize, is_same_key: bool, from: u64, to: u64) -> Figures {
    let within: Vec<&Try> = tries.iter().filter(|row| (from..to).contains(&row.asked_at)).collect();
    let granted = || within.iter().filter(|row| row.outcome == Outcome::Granted);
    let mut took: Vec<u64> = granted().map(|row| row.granted_at - row.asked_at).collect();
    took.sort_unstable();
    let mut released: Vec<u64> = granted().map(|row| row.over_at.saturating_sub(row.release_at)).collect();
    released.sort_unstable();
    let failed = within.iter().filter(|row| matches!(row.outcome, Outcome::GaveUp | Outcome::Failed));
    let failed: Vec<u64> = failed.map(|row| row.over_at.saturating_sub(row.asked_at)).collect();
    let unfinished = within.iter().filter(|row| row.outcome == Outcome::Unfinished).count();
    let seconds = (to - from) as f64 / 1e9;
    let mut figures = Figures::from([
        ("acquires", took.len() as f64),
        ("failures", failed.len() as f64),
        ("unfinished", unfinished as f64),
        ("per_s", took.len() as f64 / seconds),
    ]);
    if !failed.is_empty() {
        figures.insert("failure_avg_ms", mean_ms(&failed));
        figures.insert("failure_max_ms", failed.iter().max().map_or(0.0, |max| ms(*max)));
    }
    if took.is_empty() {
        return figures;
    }
    figures.insert("avg_ms", mean_ms(&took));
    for (name, per_mille) in
        [("min_ms", 0), ("p50_ms", 500), ("p90_ms", 900), ("p99_ms", 990), ("p999_ms", 999), ("max_ms", 1000)]
    {
        figures.insert(name, quantile(&took, per_mille).map_or(0.0, ms));
    }
    figures.insert("release_p50_ms", quantile(&released, 500).map_or(0.0, ms));
    figures.extend(fairness(granted().map(|row| row.contender), contenders));
    if is_same_key {
        figures.extend(hand_offs(granted().copied().copied().collect()));
    }
    figures
}

/// How evenly contenders were served: Jain's index, 1 when all got the same, and the minimum and maximum in percent of
/// the mean.
fn fairness(granted: impl Iterator<Item = u64>, contenders: usize) -> Figures {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for contender in granted {
        *counts.entry(contender).or_default() += 1;
    }
    let sum: u64 = counts.values().sum();
    if contenders == 0 || sum == 0 {
        return Figures::new();
    }
    let squares: f64 = counts.values().map(|count| (*count as f64).powi(2)).sum();
    let mean = sum as f64 / contenders as f64;
    let least = if counts.len() < contenders { 0 } else { counts.values().copied().min().unwrap_or(0) };
    let most = counts.values().copied().max().unwrap_or(0);
    Figures::from([
        ("jain", (sum as f64).powi(2) / (contenders as f64 * squares)),
        ("least_pct", 100.0 * least as f64 / mean),
        ("most_pct", 100.0 * most as f64 / mean),
    ])
}

/// How long the next client waited after the holder's release, and how many times two held the lock at once.
///
/// A hand-off is a grant to another contender that was already waiting. It begins when the holder calls release and
/// ends when the next one learns of its grant, so it may be over before the holder's call returns.
fn hand_offs(mut granted: Vec<Try>) -> Figures {
    granted.sort_unstable_by_key(|row| row.granted_at);
    let mut took = Vec::new();
    let mut overlaps = 0;
    // The latest release among those before: the holder that the next one must not overlap.
    let mut last: Option<Try> = None;
    for row in granted {
        if let Some(before) = last {
            if row.granted_at < before.release_at {
                overlaps += 1;
            } else if row.asked_at < before.release_at && row.contender != before.contender {
                took.push(row.granted_at - before.release_at);
            }
        }
        if last.is_none_or(|before| row.release_at > before.release_at) {
            last = Some(row);
        }
    }
    took.sort_unstable();
    let mut figures = Figures::from([("handoffs", took.len() as f64), ("overlaps", f64::from(overlaps))]);
    for (name, per_mille) in [("handoff_p50_ms", 500), ("handoff_p99_ms", 990), ("handoff_max_ms", 1000)] {
        if let Some(value) = quantile(&took, per_mille) {
            figures.insert(name, ms(value));
        }
    }
    figures
}

/// The longest time after a fault that any contender went without a grant, and how many had none in the last quarter of
/// the run. These do not count as gaps: theirs had not ended.
pub(super) fn gaps(tries: &[Try], contenders: &[u64], fault_at: u64, to: u64) -> (Option<f64>, usize) {
    let mut longest = None;
    let mut stuck = 0;
    let last_quarter = to - (to - fault_at) / 4;
    for contender in contenders {
        let own = tries.iter().filter(|row| row.contender == *contender && row.outcome == Outcome::Granted);
        let mut times: Vec<u64> = own.map(|row| row.granted_at).filter(|at| *at >= fault_at).collect();
        times.push(fault_at);
        times.sort_unstable();
        if times.last().is_some_and(|last| *last < last_quarter) {
            stuck += 1;
        } else {
            longest = longest.max(times.windows(2).map(|pair| pair[1] - pair[0]).max());
        }
    }
    (longest.map(ms), stuck)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A granted try, in milliseconds.
    fn granted(contender: u64, asked: u64, granted: u64, release: u64) -> Try {
        Try {
            contender,
            asked_at: asked * MS,
            granted_at: granted * MS,
            release_at: release * MS,
            over_at: (release + 1) * MS,
            outcome: Outcome::Granted,
        }
    }

    fn failed(contender: u64, asked: u64, over: u64, outcome: Outcome) -> Try {
        Try { granted_at: 0, release_at: 0, over_at: over * MS, outcome, ..granted(contender, asked, 0, 0) }
    }

    fn is_linearizable(tries: &[Try]) -> bool {
        let history = history(tries, |_| "lock".to_owned(), 10_000);
        assert_eq!(history.answered(), tries.iter().filter(|row| row.outcome == Outcome::Granted).count());
        matches!(check::linearizable(&history), check::Verdict::Ok { .. })
    }

    #[test]
    fn a_history_of_locks_is_right_while_no_two_hold_one() {
        let gave_up = failed(3, 0, 90, Outcome::GaveUp);
        assert!(is_linearizable(&[
            granted(1, 0, 5, 10),
            gave_up,
            granted(2, 1, 11, 20),
            granted(1, 12, 21, 30)
        ]));
        // The release was not answered yet when the next one was granted.
        assert!(is_linearizable(&[granted(1, 0, 5, 10), granted(2, 1, 10, 20)]));
        // Two hold it from 9 to 10.
        assert!(!is_linearizable(&[granted(1, 0, 5, 10), granted(2, 1, 9, 20)]));
        // A holder that never releases it has it for a lease.
        let kept = Try { release_at: 0, ..granted(1, 0, 5, 0) };
        assert!(!is_linearizable(&[kept, granted(2, 1, 9_000, 9_100)]));
        assert!(is_linearizable(&[kept, granted(2, 1, 10_100, 10_200)]));
        // Other locks do not conflict.
        let own =
            history(&[granted(1, 0, 5, 10), granted(2, 1, 9, 20)], |contender| contender.to_string(), 10_000);
        assert!(matches!(check::linearizable(&own), check::Verdict::Ok { .. }));
    }

    #[test]
    fn rows_are_six_numbers_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rows");
        let numbers = [7u64, 1, 2, 3, 4, 1, 8, 5, 6, 7, 9, 0];
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        std::fs::write(&file, &bytes).unwrap();
        let rows = read(&file).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].contender, rows[0].over_at, rows[0].outcome), (7, 4, Outcome::GaveUp));
        assert_eq!((rows[1].granted_at, rows[1].release_at, rows[1].outcome), (6, 7, Outcome::Granted));
        std::fs::write(&file, &bytes[..50]).unwrap();
        assert!(read(&file).unwrap_err().to_string().contains("within a row"));
    }

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let values: Vec<u64> = (1..=100).collect();
        let of = |per_mille| quantile(&values, per_mille);
        assert_eq!([of(0), of(500), of(990), of(1000)], [Some(1), Some(50), Some(99), Some(100)]);
        assert_eq!(quantile(&[], 500), None);
    }

    #[test]
    fn failures_are_no_acquires_and_have_separate_times() {
        let tries = [
            granted(0, 0, 2, 3),
            failed(0, 5, 605, Outcome::GaveUp),
            failed(0, 700, 710, Outcome::Unfinished),
            granted(0, 2_000, 9_000, 9_001),
        ];
        let figures = figures(&tries, 1, true, 0, 1_000 * MS);
        assert_eq!((figures["acquires"], figures["failures"], figures["unfinished"]), (1.0, 1.0, 1.0));
        assert_eq!((figures["avg_ms"], figures["max_ms"], figures["failure_avg_ms"]), (2.0, 2.0, 600.0));
    }

    #[test]
    fn a_hand_off_is_from_a_release_to_another_waiting_contender() {
        let tries = vec![
            granted(0, 0, 1, 10),
            // It waited 2 ms.
            granted(1, 5, 12, 20),
            // It asked later.
            granted(0, 30, 31, 40),
            // The same contender again.
            granted(0, 39, 41, 50),
        ];
        let figures = hand_offs(tries);
        assert_eq!((figures["handoffs"], figures["handoff_p50_ms"], figures["overlaps"]), (1.0, 2.0, 0.0));
    }

    #[test]
    fn two_holders_at_once_are_counted_also_within_a_long_hold() {
        let tries =
            vec![granted(0, 0, 1, 100), granted(1, 5, 6, 10), granted(2, 5, 50, 60), granted(3, 5, 101, 110)];
        let figures = hand_offs(tries);
        assert_eq!((figures["overlaps"], figures["handoffs"]), (2.0, 1.0));
    }

    #[test]
    fn fairness_counts_contenders_without_a_lock() {
        let even = fairness([0, 1, 2, 0, 1, 2].into_iter(), 3);
        assert_eq!((even["jain"], even["least_pct"], even["most_pct"]), (1.0, 100.0, 100.0));
        let uneven = fairness([0, 0, 0].into_iter(), 3);
        assert!((uneven["jain"] - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!((uneven["least_pct"], uneven["most_pct"]), (0.0, 300.0));
    }

    #[test]
    fn a_gap_begins_with_the_fault() {
        let tries =
            [granted(0, 0, 1, 2), granted(0, 3, 90, 91), granted(0, 92, 95, 96), granted(1, 0, 20, 21)];
        assert_eq!(gaps(&tries, &[0], 10 * MS, 100 * MS), (Some(80.0), 0));
        assert_eq!(
            gaps(&tries, &[0, 1], 30 * MS, 100 * MS),
            (Some(60.0), 1),
            "the second never had it again"
        );
        assert_eq!(gaps(&tries, &[1], 10 * MS, 100 * MS), (None, 1), "it had it once, and then no more");
    }
}
