//! What the study claims, and what was measured here.
//!
//! The study's own store answers before it replicates, so its claims about synchronous replication are judged on an arm
//! that does what the study says: Quorate with all followers awaited. What it says of its store's figures is judged on its
//! store where that was measured.

use super::tester::Mode;
use super::{CLIENTS, CLIENTS_QUICK, FOLLOWER_READS, PAPER_STORE, TESTER_CLIENTS, WORKLOADS};
use crate::harness::{Claim, Judgement, Results, Spread, Verdict};
use crate::report::short;

/// The arm that does what the study says its store does: a write waits for both followers.
const SYNCHRONOUS: &str = "Quorate acks=all";
pub(super) const SYNCHRONOUS_HTTP: &str = "Quorate acks=all, HTTP";

/// The same with nobody awaited: what the study's store does.
const ASYNCHRONOUS: &str = "Quorate acks=none";

/// The paper's smallest and largest number of clients.
const FEW: u32 = CLIENTS[0];
const MANY: u32 = CLIENTS_QUICK[CLIENTS_QUICK.len() - 1];

/// Medians closer than this to each other are the same: repeats differ by as much.
const SAME: f64 = 1.1;

pub(super) fn all() -> Vec<Claim> {
    vec![
        Claim::new(
            "The mixed workload has twice the throughput of the read-heavy and the write-heavy one",
            "410 against 205 and 215 req/s (table 6.1)",
            mixed_is_twice_as_fast,
        ),
        Claim::new(
            "Latency grows with the number of clients",
            "mean 12 ms to 75 ms from 5 to 50 clients, mixed (6.2)",
            latency_grows,
        ),
        Claim::new(
            "The 95th percentile grows faster than the mean",
            "28 ms to 420 ms (15 times) while the mean grows 6 times, mixed (6.2, 7.2)",
            tail_grows_faster,
        ),
        Claim::new(
            "Read-heavy workloads perform better than write-heavy ones, because followers serve reads",
            "mean 160 ms read-heavy, 85 ms write-heavy; p95 319 and 312 ms (6.3, 6.4)",
            reads_are_faster,
        ),
        Claim::new(
            "Write-heavy workloads have the worst latency, due to synchronous replication",
            "mean 85 ms, p95 312 ms, against 75 and 420 ms mixed at 50 clients (6.4)",
            writes_are_worst,
        ),
        Claim::new(
            "A write waits until both followers have acknowledged it, which costs a predictable latency",
            "\u{201c}strong consistency at the cost of write latency\u{201d} (3.2, 7.1)",
            waiting_costs,
        ),
        Claim::new("There are no stale reads on the leader", "a guarantee (2.2)", leader_is_fresh),
        Claim::new(
            "A write is on both followers when it is acknowledged; their reads are a few milliseconds behind",
            "\u{201c}strong consistency for writes\u{201d}, \u{201c}very short delay\u{201d} (2.2, 3.3)",
            followers_are_fresh,
        ),
        Claim::new(
            "Throughput is mixed > read-heavy > write-heavy",
            "410, 205 and 215 req/s (7.3)",
            order_of_workloads,
        ),
    ]
}

/// A median at a workload and a number of clients.
fn at(results: &Results, arm: &str, workload: &str, clients: u32, measure: &str) -> Option<f64> {
    results.arm(arm).with("workload", workload).with("clients", clients).median(measure)
}

/// The same for mixed, read-heavy and write-heavy.
fn by_workload(results: &Results, arm: &str, clients: u32, measure: &str) -> Option<[f64; 3]> {
    let [mixed, read_heavy, write_heavy] =
        WORKLOADS.map(|(name, ..)| at(results, arm, name, clients, measure));
    Some([mixed?, read_heavy?, write_heavy?])
}

/// The spread of a measure over the repeats.
fn spread(results: &Results, arm: &str, workload: &str, clients: u32, measure: &str) -> Option<Spread> {
    results.arm(arm).with("workload", workload).with("clients", clients).spread(measure)
}

/// Whether a measure of an arm at 50 clients falls along these workloads, each clearly below the one before. `None` when
/// neighbours cannot be told apart.
fn falls(results: &Results, arm: &str, workloads: &[&str], measure: &str) -> Option<bool> {
    let steps: Vec<Option<bool>> = workloads
        .windows(2)
        .map(|pair| {
            let [more, less] =
                [pair[0], pair[1]].map(|workload| spread(results, arm, workload, MANY, measure));
            more?.is_above(&less?)
        })
        .collect();
    all_hold(&steps)
}

/// Whether all hold: one that does not decides, one that is not known leaves it open.
fn all_hold(parts: &[Option<bool>]) -> Option<bool> {
    if parts.contains(&Some(false)) { Some(false) } else { parts.iter().all(Option::is_some).then_some(true) }
}

/// The study's store if it was measured, else what does over HTTP what the study says.
fn stand_in(results: &Results) -> &'static str {
    [PAPER_STORE, SYNCHRONOUS_HTTP]
        .into_iter()
        .find(|arm| !results.arm(arm).is_empty())
        .unwrap_or(SYNCHRONOUS)
}

/// The arms that a claim is looked at on: the stand-in, and what is fast.
fn both(results: &Results) -> Vec<&'static str> {
    let mut arms = vec![stand_in(results), SYNCHRONOUS];
    arms.dedup();
    arms
}

fn missing(arm: &str) -> Judgement {
    Judgement::not_measured(format!("there are no rows of \u{201c}{arm}\u{201d}"))
}

/// What the study's own tester finds, counted in one way: mixed, read-heavy and write-heavy.
fn tested(results: &Results, arm: &str, measure: &str) -> Option<[Spread; 3]> {
    let [mixed, read_heavy, write_heavy] =
        Mode::ALL.map(|(name, _)| spread(results, arm, name, TESTER_CLIENTS, measure));
    Some([mixed?, read_heavy?, write_heavy?])
}

/// Whether one is clearly more than so many times another, in all repeats. `None` when repeats reach to both sides.
fn is_times(more: &Spread, less: &Spread, times: f64) -> Option<bool> {
    let scaled =
        Spread { median: less.median * times, min: less.min * times, max: less.max * times, ..*less };
    more.is_above(&scaled)
}

fn mixed_is_twice_as_fast(results: &Results) -> Judgement {
    /// Less than twice, so that what is nearly twice counts.
    const TWICE: f64 = 1.5;
    let arm = [PAPER_STORE, SYNCHRONOUS_HTTP].into_iter().find(|arm| !results.arm(arm).is_empty());
    let Some(arm) = arm else { return missing(SYNCHRONOUS_HTTP) };
    let (Some(counted), Some(each)) =
        (tested(results, arm, "requests_per_s"), tested(results, arm, "operations_per_s"))
    else {
        return missing(arm);
    };
    let puts = tested(results, arm, "puts_per_s");
    let words = |[mixed, reads, writes]: &[Spread; 3]| {
        let [mixed, reads, writes] = [mixed, reads, writes].map(|spread| short(spread.median));
        format!("{mixed} mixed, {reads} read-heavy, {writes} write-heavy")
    };
    let puts = puts.map_or(String::new(), |puts| format!("; PUTs among them: {}", words(&puts)));
    let ours = format!(
        "the study's tester on {arm}: {} requests/s as it counts; {} operations/s{puts}",
        words(&counted),
        words(&each)
    );
    let is_twice = |[mixed, reads, writes]: &[Spread; 3]| {
        all_hold(&[is_times(mixed, reads, TWICE), is_times(mixed, writes, TWICE)])
    };
    match is_twice(&each) {
        Some(true) => Judgement::new(
            Verdict::Holds,
            ours,
            "Each operation counts as one, and mixed is still far ahead.",
        ),
        None => Judgement::decided(None, ours, ""),
        Some(false) => {
            let [mixed, reads, _] = &counted;
            let moved = match is_times(mixed, reads, TWICE) {
                // As it counts, mixed is ahead of read-heavy; counted evenly, it is not.
                Some(true) => is_times(&each[0], &each[1], TWICE).map(|is_ahead| !is_ahead),
                other => other,
            };
            Judgement::of_fault(
                moved,
                ours,
                "one request of the read-heavy workload is a PUT and a GET (experiments/load_test.py, lines 48 to 50), one of the \
                 others is one operation (46, 53 to 56). The study's three figures are of 205 to 215 PUTs per second each: \
                 what differs is how many GETs came with them, and whether these were counted.",
            )
        }
    }
}

fn latency_grows(results: &Results) -> Judgement {
    let growth = |arm: &'static str| {
        let ends = [FEW, MANY].map(|clients| at(results, arm, "mixed", clients, "mean_ms"));
        Some((arm, ends[0]?, ends[1]?))
    };
    let found: Vec<_> = both(results).into_iter().filter_map(growth).collect();
    if found.is_empty() {
        return missing(SYNCHRONOUS);
    }
    let ours: Vec<String> = found
        .iter()
        .map(|(arm, few, many)| {
            format!("{arm}: {} to {} ms ({} times)", short(*few), short(*many), short(many / few))
        })
        .collect();
    let grows = |arm: &str| {
        let [few, many] = [FEW, MANY].map(|clients| spread(results, arm, "mixed", clients, "mean_ms"));
        many?.is_above(&few?)
    };
    Judgement::decided(
        all_hold(&found.iter().map(|(arm, ..)| grows(arm)).collect::<Vec<_>>()),
        ours.join("; "),
        "A closed loop queues: once the processors are busy, ten times the clients wait up to ten times as long. That \
         is so with any replication, and with none.",
    )
}

fn tail_grows_faster(results: &Results) -> Judgement {
    let growth = |arm: &'static str| {
        let of = |measure| {
            Some(at(results, arm, "mixed", MANY, measure)? / at(results, arm, "mixed", FEW, measure)?)
        };
        Some((arm, of("mean_ms")?, of("p95_ms")?))
    };
    let found: Vec<_> = both(results).into_iter().filter_map(growth).collect();
    if found.is_empty() {
        return missing(SYNCHRONOUS);
    }
    let ours: Vec<String> = found
        .iter()
        .map(|(arm, mean, tail)| format!("{arm}: p95 {} times, mean {} times", short(*tail), short(*mean)))
        .collect();
    Judgement::holds_if(
        found.iter().all(|(_, mean, tail)| *tail > mean * SAME),
        ours.join("; "),
        "From 5 to 50 clients. A queue that everybody shares delays the slow and the fast alike, so that the tail would grow \
         much as the mean does; the study's latencies are also those of requests that failed (experiments/load_test.py, \
         line 60).",
    )
}

fn reads_are_faster(results: &Results) -> Judgement {
    let arm = stand_in(results);
    let means = |arm| by_workload(results, arm, MANY, "mean_ms");
    let (Some([_, reads, writes]), Some([_, synchronous_reads, synchronous_writes])) =
        (means(arm), means(SYNCHRONOUS))
    else {
        return missing(SYNCHRONOUS);
    };
    let ours = format!(
        "mean read-heavy and write-heavy at {MANY} clients: {arm} {} and {} ms; {SYNCHRONOUS} {} and {} ms",
        short(reads),
        short(writes),
        short(synchronous_reads),
        short(synchronous_writes)
    );
    let workloads = ["write-heavy", "read-heavy"];
    Judgement::decided(
        all_hold(
            &both(results)
                .into_iter()
                .map(|arm| falls(results, arm, &workloads, "mean_ms"))
                .collect::<Vec<_>>(),
        ),
        ours,
        "A read costs the leader no message. Here all clients ask the leader; the study's GETs go to any node \
         (experiments/load_test.py, line 29). Its own figures say the opposite (160 against 85 ms), of requests that are a PUT and \
         a GET (48 to 50).",
    )
}

fn writes_are_worst(results: &Results) -> Judgement {
    let Some([mixed, reads, writes]) = by_workload(results, SYNCHRONOUS, MANY, "mean_ms") else {
        return missing(SYNCHRONOUS);
    };
    let ours = format!(
        "{SYNCHRONOUS}, mean at {MANY} clients: {} ms write-heavy, {} ms mixed, {} ms read-heavy",
        short(writes),
        short(mixed),
        short(reads)
    );
    // The study's figures contradict it, and its store does not replicate synchronously.
    let above = |other| falls(results, SYNCHRONOUS, &["write-heavy", other], "mean_ms");
    Judgement::decided(
        all_hold(&[above("mixed"), above("read-heavy")]),
        ours,
        "Judged where replication is synchronous. The study's store answers before replication ends (kvnode/main.py, lines 70 to \
         74), and its own figures have the worst mean for read-heavy and the worst 95th percentile for mixed.",
    )
}

fn waiting_costs(results: &Results) -> Judgement {
    let put = |arm| spread(results, arm, "write-heavy", FEW, "put_p50_ms");
    let (Some(waits), Some(does_not)) = (put(SYNCHRONOUS), put(ASYNCHRONOUS)) else {
        return missing(SYNCHRONOUS);
    };
    let ours = format!(
        "median PUT at {FEW} clients, write-heavy: {} ms with both followers awaited, {} ms with none ({} times)",
        short(waits.median),
        short(does_not.median),
        short(waits.median / does_not.median)
    );
    Judgement::decided(
        waits.is_above(&does_not),
        ours,
        "Judged where a write waits. The study's store does not: replication is a task that is begun and not awaited \
         (kvnode/main.py, lines 70 to 74), followers are asked one after the other, and what goes wrong is printed \
         (kvnode/replication.py, lines 15 to 22). What waiting costs it cannot have measured.",
    )
}

fn leader_is_fresh(results: &Results) -> Judgement {
    let arm = stand_in(results);
    let checked: Vec<_> = results.arm(arm).rows().iter().filter_map(|row| row.checked.as_ref()).collect();
    if checked.is_empty() {
        return Judgement::not_measured("histories are recorded with --verify only");
    }
    let operations: u64 = checked.iter().map(|checked| checked.operations).sum();
    let count = |verdict: &str| checked.iter().filter(|checked| checked.verdict == verdict).count();
    let (wrong, ok) = (count("violation"), count("ok"));
    let ours =
        format!("{arm}: {operations} operations in {} histories, {wrong} not linearizable", checked.len());
    if wrong == 0 && ok < checked.len() {
        let why = "The check of a history took too long to come to an end, so nothing is known of it.";
        return Judgement::new(Verdict::Undecided, format!("{ours}, {} not known", checked.len() - ok), why);
    }
    Judgement::holds_if(
        wrong == 0,
        ours,
        "All clients ask the leader, which is one process with one table, and nothing failed meanwhile. Reads from the study's \
         followers have no such promise: what a follower was not sent is not sent again (kvnode/replication.py, lines 15 \
         to 22).",
    )
}

fn followers_are_fresh(results: &Results) -> Judgement {
    let arm = stand_in(results);
    let at = |arm, measure| results.arm(arm).with("workload", FOLLOWER_READS).median(measure);
    let (Some(stale), Some(seen)) = (at(arm, "stale_pct"), at(arm, "seen_p95_ms")) else {
        return missing(arm);
    };
    let ours = format!(
        "{arm}: {} % of the first reads at a follower miss the write; 95 % of writes are seen within {} ms",
        short(stale),
        short(seen)
    );
    let why = if arm == PAPER_STORE {
        "The answer does not wait for replication (kvnode/main.py, lines 70 to 74). The delay is short while nothing fails and \
         one client writes: a message that is lost is never sent again (kvnode/replication.py, lines 15 to 22)."
    } else {
        "Judged on Quorate, whose followers ask the leader for a read that must be fresh; the study's store was not \
         measured (--with-paper-store)."
    };
    Judgement::holds_if(stale == 0.0, ours, why)
}

fn order_of_workloads(results: &Results) -> Judgement {
    let arm = stand_in(results);
    let rates = |arm| by_workload(results, arm, MANY, "per_s");
    let (Some(stand_in), Some(synchronous)) = (rates(arm), rates(SYNCHRONOUS)) else {
        return missing(SYNCHRONOUS);
    };
    let words = |[mixed, reads, writes]: [f64; 3]| {
        format!("{} mixed, {} read-heavy, {} write-heavy", short(mixed), short(reads), short(writes))
    };
    let order = WORKLOADS.map(|(name, ..)| name);
    Judgement::decided(
        all_hold(
            &both(results).into_iter().map(|arm| falls(results, arm, &order, "per_s")).collect::<Vec<_>>(),
        ),
        format!("{arm}: {}; {SYNCHRONOUS}: {} (op/s)", words(stand_in), words(synchronous)),
        "A read costs the leader no message, so the more reads, the faster. The study counts a PUT and a GET as one request in \
         its read-heavy workload (experiments/load_test.py, lines 48 to 50), and its own figures have write-heavy above \
         read-heavy.",
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::harness::{Checked, Row};

    /// Rows of an arm at 5 and 50 clients: throughput and mean latency by workload.
    fn rows(results: &mut Results, arm: &str, per_s: [f64; 3], growth: f64) {
        let repeat = 1 + results.arm(arm).rows().iter().map(|row| row.repeat).max().unwrap_or(0);
        for ((workload, ..), per_s) in WORKLOADS.into_iter().zip(per_s) {
            for clients in [FEW, MANY] {
                let mean = if clients == FEW { 1.0 } else { growth * per_s.recip() * 1e3 };
                let figures = [
                    ("per_s", per_s),
                    ("mean_ms", mean),
                    ("p95_ms", mean * 2.0),
                    ("put_p50_ms", per_s.recip()),
                ];
                results.push(Row {
                    arm: arm.to_owned(),
                    point: vec![workload.to_owned(), clients.to_string()],
                    repeat,
                    figures: BTreeMap::from(figures.map(|(name, value)| (name.to_owned(), value))),
                    checked: None,
                });
            }
        }
    }

    /// What the study's tester finds on its store: requests as it counts them, and operations.
    fn tester_rows(results: &mut Results, counted: [f64; 3], each: [f64; 3]) {
        for (((workload, _), counted), each) in Mode::ALL.into_iter().zip(counted).zip(each) {
            let figures = [("requests_per_s", counted), ("operations_per_s", each)];
            results.push(Row {
                arm: PAPER_STORE.to_owned(),
                point: vec![workload.to_owned(), TESTER_CLIENTS.to_string()],
                repeat: 1,
                figures: BTreeMap::from(figures.map(|(name, value)| (name.to_owned(), value))),
                checked: None,
            });
        }
    }

    fn results() -> Results {
        let measures = ["per_s", "mean_ms", "p95_ms", "put_p50_ms", "requests_per_s", "operations_per_s"];
        Results::new(&["workload", "clients"], &measures)
    }

    /// What the judges say of medians; [`Claim::judged`] then asks whether repeats agree.
    fn verdicts(results: &Results) -> Vec<Verdict> {
        all().iter().map(|claim| (claim.judge)(results).verdict).collect()
    }

    #[test]
    fn without_rows_nothing_is_judged() {
        assert!(verdicts(&results()).iter().all(|verdict| *verdict == Verdict::NotMeasured));
    }

    #[test]
    fn equal_throughput_shows_that_the_factor_of_two_is_one_of_counting() {
        let mut results = results();
        rows(&mut results, PAPER_STORE, [400.0, 420.0, 380.0], 10.0);
        rows(&mut results, SYNCHRONOUS, [400.0, 420.0, 380.0], 10.0);
        rows(&mut results, ASYNCHRONOUS, [800.0, 840.0, 760.0], 10.0);
        // The study's own figures, and what they are when each operation counts.
        tester_rows(&mut results, [410.0, 205.0, 215.0], [410.0, 410.0, 215.0]);
        use Verdict::{DoesNotHold, Holds, NotMeasured, RestsOnFault};
        assert_eq!(
            verdicts(&results),
            [RestsOnFault, Holds, DoesNotHold, Holds, Holds, Holds, NotMeasured, NotMeasured, DoesNotHold]
        );
    }

    #[test]
    fn a_factor_that_counting_does_not_make_is_not_laid_to_it() {
        let judged = |counted, each| {
            let mut results = results();
            tester_rows(&mut results, counted, each);
            mixed_is_twice_as_fast(&results).verdict
        };
        assert_eq!(judged([410.0, 205.0, 215.0], [410.0, 410.0, 215.0]), Verdict::RestsOnFault);
        assert_eq!(judged([410.0, 400.0, 215.0], [410.0, 800.0, 215.0]), Verdict::NotReproduced);
        // Ahead of both, whatever is counted.
        assert_eq!(judged([900.0, 200.0, 215.0], [900.0, 400.0, 215.0]), Verdict::Holds);
        assert_eq!(mixed_is_twice_as_fast(&results()).verdict, Verdict::NotMeasured);
    }

    #[test]
    fn a_claim_that_were_right_would_be_found_right() {
        let mut results = results();
        rows(&mut results, PAPER_STORE, [410.0, 205.0, 200.0], 1.0);
        rows(&mut results, SYNCHRONOUS, [410.0, 205.0, 200.0], 1.0);
        tester_rows(&mut results, [410.0, 102.0, 200.0], [410.0, 205.0, 200.0]);
        let verdicts = verdicts(&results);
        assert_eq!((verdicts[0], verdicts[8]), (Verdict::Holds, Verdict::Holds));
    }

    #[test]
    fn what_repeats_differ_by_decides_nothing() {
        let mut results = results();
        rows(&mut results, SYNCHRONOUS, [400.0, 420.0, 380.0], 10.0);
        rows(&mut results, SYNCHRONOUS, [420.0, 380.0, 400.0], 10.0);
        let verdicts: Vec<Verdict> =
            all().iter().map(|claim| claim.judged(&results).judgement.verdict).collect();
        assert_eq!(verdicts[1], Verdict::Holds, "ten times is more than repeats differ by");
        assert_eq!(
            (verdicts[3], verdicts[4], verdicts[8]),
            (Verdict::Undecided, Verdict::Undecided, Verdict::Undecided)
        );
    }

    #[test]
    fn only_a_violation_shows_that_a_leader_is_not_fresh() {
        for (verdicts, expected) in [
            (["ok", "ok"], Verdict::Holds),
            (["ok", "unknown"], Verdict::Undecided),
            (["unknown", "violation"], Verdict::DoesNotHold),
        ] {
            let mut results = results();
            for (repeat, verdict) in (1..).zip(verdicts) {
                results.push(Row {
                    arm: SYNCHRONOUS.to_owned(),
                    point: vec!["mixed".to_owned(), FEW.to_string()],
                    repeat,
                    figures: BTreeMap::new(),
                    checked: Some(Checked { operations: 10, verdict: verdict.to_owned() }),
                });
            }
            assert_eq!(leader_is_fresh(&results).verdict, expected, "{verdicts:?}");
        }
    }

    #[test]
    fn one_part_that_does_not_hold_decides() {
        assert_eq!(all_hold(&[Some(true), None, Some(false)]), Some(false));
        assert_eq!(all_hold(&[Some(true), None]), None);
        assert_eq!(all_hold(&[Some(true), Some(true)]), Some(true));
    }

    /// The study's store takes part only where it was installed; the same claims are then looked at on another arm.
    #[test]
    fn the_stand_in_is_the_studys_own_store_where_it_was_measured() {
        let mut results = results();
        assert_eq!(stand_in(&results), SYNCHRONOUS);
        rows(&mut results, SYNCHRONOUS_HTTP, [1.0; 3], 1.0);
        assert_eq!(stand_in(&results), SYNCHRONOUS_HTTP);
        rows(&mut results, PAPER_STORE, [1.0; 3], 1.0);
        assert_eq!(stand_in(&results), PAPER_STORE);
    }
}
