//! The study's claims, and how they are judged.
//!
//! The study's own store answers before it replicates, so its claims about synchronous replication are judged on an arm
//! that does what the study describes: Quorate with all followers awaited. Claims about its store's figures are judged
//! on its store if that was measured.

use super::faults::AFTER;
use super::tester::Mode;
use super::{
    CLIENTS, CLIENTS_QUICK, FOLLOWER_READS, LEADER_LOST, PAPER_STORE, SLOW_FOLLOWER, SLOW_FOLLOWER_CLIENTS,
    TESTER_CLIENTS, WORKLOADS,
};
use crate::harness::{Claim, Judgement, Results, Verdict};
use crate::report::short;

/// The arm that does what the study says its store does: a write waits for both followers.
const SYNCHRONOUS: &str = "Quorate acks=all";
pub(super) const SYNCHRONOUS_HTTP: &str = "Quorate acks=all, HTTP";

/// The arm that awaits no follower, which is what the study's store actually does.
const ASYNCHRONOUS: &str = "Quorate acks=none";

/// The paper's smallest and largest number of clients.
const FEW: u32 = CLIENTS[0];
const MANY: u32 = CLIENTS_QUICK[CLIENTS_QUICK.len() - 1];

/// From this factor on, "nearly twice" counts as twice.
const TWICE: f64 = 1.5;

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
        )
        .about(&[SYNCHRONOUS]),
        Claim::new(
            "The 95th percentile grows faster than the mean",
            "28 ms to 420 ms (15 times) while the mean grows 6 times, mixed (6.2, 7.2)",
            tail_grows_faster,
        )
        .about(&[SYNCHRONOUS]),
        Claim::new(
            "Read-heavy workloads perform better than write-heavy ones, because followers serve reads",
            "mean 160 ms read-heavy, 85 ms write-heavy; p95 319 and 312 ms (6.3, 6.4)",
            reads_are_faster,
        )
        .about(&[SYNCHRONOUS]),
        Claim::new(
            "Write-heavy workloads have the worst latency, due to synchronous replication",
            "mean 85 ms, p95 312 ms (6.4)",
            writes_are_worst,
        )
        .about(&[SYNCHRONOUS]),
        Claim::new(
            "A write waits until both followers have acknowledged it, which costs a predictable latency",
            "\u{201c}strong consistency at the cost of write latency\u{201d} (3.2, 7.1)",
            waiting_costs,
        )
        .about(&[SYNCHRONOUS, ASYNCHRONOUS]),
        Claim::new("There are no stale reads on the leader", "a guarantee (2.2)", leader_is_fresh)
            .decided_by_one(Verdict::DoesNotHold),
        Claim::new(
            "A write is on both followers when it is acknowledged; their reads are a few milliseconds behind",
            "\u{201c}strong consistency for writes\u{201d}, \u{201c}very short delay\u{201d} (2.2, 3.3)",
            followers_are_fresh,
        )
        .decided_by_one(Verdict::DoesNotHold),
        Claim::new(
            "A follower that responds slowly makes the 95th percentile explode",
            "one of its causes in 7.2; no follower was slowed down",
            slow_follower_widens_the_tail,
        )
        .about(&[SYNCHRONOUS]),
        Claim::new(
            "Throughput is mixed > read-heavy > write-heavy",
            "410, 205 and 215 req/s (7.3)",
            order_of_workloads,
        )
        .about(&[SYNCHRONOUS]),
        Claim::new(
            "There is no leader election: the failure of the leader halts the cluster",
            "a limitation (8); not tried",
            loss_of_the_leader_halts,
        )
        .about(&[PAPER_STORE]),
    ]
}

/// The median of a measure at a workload and a number of clients.
fn at(results: &Results, arm: &str, workload: &str, clients: u32, measure: &str) -> Option<f64> {
    results.arm(arm).with("workload", workload).with("clients", clients).median(measure)
}

/// The medians with most clients for mixed, read-heavy and write-heavy.
fn by_workload(results: &Results, arm: &str, measure: &str) -> Option<[f64; 3]> {
    let [mixed, read_heavy, write_heavy] = WORKLOADS.map(|(name, ..)| at(results, arm, name, MANY, measure));
    Some([mixed?, read_heavy?, write_heavy?])
}

/// The study's store if it was measured, else the arm that does over HTTP what the study describes.
fn stand_in(results: &Results) -> &'static str {
    [PAPER_STORE, SYNCHRONOUS_HTTP]
        .into_iter()
        .find(|arm| !results.arm(arm).is_empty())
        .unwrap_or(SYNCHRONOUS)
}

/// Applies `look` to each arm that a claim is judged on: the stand-in, and the fast arm. `None` if anything is missing.
fn on_both<Found>(
    results: &Results,
    look: impl Fn(&'static str) -> Option<Found>,
) -> Option<Vec<(&'static str, Found)>> {
    let mut arms = vec![stand_in(results), SYNCHRONOUS];
    arms.dedup();
    arms.into_iter().map(|arm| Some((arm, look(arm)?))).collect()
}

fn missing(arm: &str) -> Judgement {
    Judgement::not_measured(format!("a part of what it needs of \u{201c}{arm}\u{201d} was not measured"))
}

/// A figure for each workload, in the order of [`WORKLOADS`].
fn words([mixed, reads, writes]: &[f64; 3]) -> String {
    format!("{} mixed, {} read-heavy, {} write-heavy", short(*mixed), short(*reads), short(*writes))
}

fn mixed_is_twice_as_fast(results: &Results) -> Judgement {
    let arm = stand_in(results);
    let tested = |measure| {
        let [mixed, read_heavy, write_heavy] =
            Mode::ALL.map(|(name, _)| at(results, arm, name, TESTER_CLIENTS, measure));
        Some([mixed?, read_heavy?, write_heavy?])
    };
    let (Some(counted), Some(each)) = (tested("requests_per_s"), tested("operations_per_s")) else {
        return missing(arm);
    };
    let puts =
        tested("puts_per_s").map_or(String::new(), |puts| format!("; PUTs among them: {}", words(&puts)));
    let ours = format!(
        "the study's tester on {arm}: {} requests/s as it counts; {} operations/s{puts}",
        words(&counted),
        words(&each)
    );
    let ratios = |[mixed, reads, writes]: &[f64; 3]| (mixed / reads, mixed / writes);
    let is_twice = |rates| {
        let (to_reads, to_writes) = ratios(rates);
        to_reads >= TWICE && to_writes >= TWICE
    };
    let ((counted_reads, counted_writes), (each_reads, each_writes)) = (ratios(&counted), ratios(&each));
    if is_twice(&each) {
        return Judgement::new(
            Verdict::Holds,
            ours,
            format!(
                "Each PUT and each GET counts as one, and mixed is {} times read-heavy and {} times write-heavy.",
                short(each_reads),
                short(each_writes)
            ),
        );
    }
    let expected = format!(
        "mixed is {} times read-heavy as the tester counts, where one request is a PUT and a GET (experiments/load_test.py, \
         lines 48 to 50), and {} times when each counts as one; it is {} and {} times write-heavy. The study's three figures \
         are of 205 to 215 PUTs per second each: what differs is how many GETs came with them, and whether these were counted.",
        short(counted_reads),
        short(each_reads),
        short(counted_writes),
        short(each_writes)
    );
    if is_twice(&counted) {
        return Judgement::of_fault(Some(true), ours, &expected);
    }
    let half = if counted_reads >= TWICE && each_reads < TWICE {
        "Counting explains the half of it that is about read-heavy, and the other half was not found"
    } else {
        "It was not found, however requests are counted"
    };
    Judgement::new(Verdict::NotReproduced, ours, format!("{half}: {expected}"))
}

fn latency_grows(results: &Results) -> Judgement {
    let ends = |arm: &str, measure| {
        let [few, many] = [FEW, MANY].map(|clients| at(results, arm, "mixed", clients, measure));
        Some((few?, many?))
    };
    let found = on_both(results, |arm| Some((ends(arm, "mean_ms")?, ends(arm, "per_s")?)));
    let Some(found) = found else { return missing(stand_in(results)) };
    let ours: Vec<String> = found
        .iter()
        .map(|(arm, ((few, many), _))| {
            format!("{arm}: {} to {} ms ({} times)", short(*few), short(*many), short(many / few))
        })
        .collect();
    let grows = found.iter().all(|(_, ((few, many), _))| many > few);
    let rates: Vec<String> =
        found.iter().map(|(arm, (_, (few, many)))| format!("{} times ({arm})", short(many / few))).collect();
    let why = if grows {
        format!(
            "{} times the clients have {} the throughput, and so each waits for longer: in a closed loop that follows, however \
             writes are replicated.",
            MANY / FEW,
            rates.join(" and ")
        )
    } else {
        String::new()
    };
    Judgement::holds_if(grows, ours.join("; "), why)
}

fn tail_grows_faster(results: &Results) -> Judgement {
    let found = on_both(results, |arm| {
        let growth = |measure| {
            Some(at(results, arm, "mixed", MANY, measure)? / at(results, arm, "mixed", FEW, measure)?)
        };
        Some((growth("mean_ms")?, growth("p95_ms")?))
    });
    let Some(found) = found else { return missing(stand_in(results)) };
    let ours: Vec<String> = found
        .iter()
        .map(|(arm, (mean, tail))| format!("{arm}: p95 {} times, mean {} times", short(*tail), short(*mean)))
        .collect();
    Judgement::holds_if(
        found.iter().all(|(_, (mean, tail))| tail > mean),
        ours.join("; "),
        "From 5 to 50 clients. Here latencies are those of successes. The study's are those of failures, too \
         (experiments/load_test.py, line 60): 208 and 125 of 500 requests at either end (results/load_results.csv, lines 3 and 5).",
    )
}

fn reads_are_faster(results: &Results) -> Judgement {
    let Some(found) = on_both(results, |arm| by_workload(results, arm, "mean_ms")) else {
        return missing(stand_in(results));
    };
    let ours: Vec<String> = found
        .iter()
        .map(|(arm, [_, reads, writes])| format!("{arm} {} and {} ms", short(*reads), short(*writes)))
        .collect();
    let holds = found.iter().all(|(_, [_, reads, writes])| reads < writes);
    let mechanism = if holds {
        "It is not the followers that make the difference here: all clients ask the leader. "
    } else {
        ""
    };
    Judgement::holds_if(
        holds,
        format!("mean read-heavy and write-heavy at {MANY} clients: {}", ours.join("; ")),
        format!(
            "{mechanism}The study's own figures say the opposite, of different things: 160 ms is of 40 clients whose requests are a \
             PUT and a GET, 85 ms of 20 clients whose requests are PUTs (results/load_results.csv, lines 6 and 7; \
             experiments/load_test.py, lines 46 to 50)."
        ),
    )
}

fn writes_are_worst(results: &Results) -> Judgement {
    let Some(means) = by_workload(results, SYNCHRONOUS, "mean_ms") else { return missing(SYNCHRONOUS) };
    let [mixed, reads, writes] = means;
    Judgement::holds_if(
        writes > mixed && writes > reads,
        format!("{SYNCHRONOUS}, mean at {MANY} clients in ms: {}", words(&means)),
        "Judged where replication is synchronous: the study's store answers before it replicates (kvnode/main.py, lines 70 to 74). In \
         the study, too, write-heavy is slower than mixed with as many clients: 86.58 against 40.46 ms at 20 \
         (results/load_results.csv, lines 7 and 4). Read-heavy was run with 40 clients alone (line 6).",
    )
}

fn waiting_costs(results: &Results) -> Judgement {
    let put = |arm| at(results, arm, "write-heavy", FEW, "put_p50_ms");
    let (Some(waits), Some(does_not)) = (put(SYNCHRONOUS), put(ASYNCHRONOUS)) else {
        return missing(SYNCHRONOUS);
    };
    Judgement::holds_if(
        waits > does_not,
        format!(
            "median PUT at {FEW} clients, write-heavy: {} ms with both followers awaited, {} ms with none ({} times)",
            short(waits),
            short(does_not),
            short(waits / does_not)
        ),
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
    let of_followers = "Reads from the study's followers have no such promise: what a follower was not sent is not sent again \
                        (kvnode/replication.py, lines 15 to 22).";
    if wrong > 0 {
        return Judgement::new(Verdict::DoesNotHold, ours, of_followers);
    }
    if ok < checked.len() {
        let why = "The check of a history took too long to come to an end, so nothing is known of it.";
        return Judgement::new(Verdict::Undecided, format!("{ours}, {} not known", checked.len() - ok), why);
    }
    let why = "All clients ask the leader, which is one process with one table, and nothing failed during the runs.";
    Judgement::new(Verdict::Holds, ours, format!("{why} {of_followers}"))
}

fn followers_are_fresh(results: &Results) -> Judgement {
    let arm = stand_in(results);
    let spread = |workload, measure| results.arm(arm).with("workload", workload).spread(measure);
    let (Some(stale), Some(seen)) =
        (spread(FOLLOWER_READS, "stale_pct"), spread(FOLLOWER_READS, "seen_p95_ms"))
    else {
        return missing(arm);
    };
    let lost = spread(LEADER_LOST, "writes_lost").zip(spread(LEADER_LOST, "writes_at_risk"));
    let of_lost = lost.map_or(String::new(), |(lost, at_risk)| {
        format!(
            "; of {} writes that the leader acknowledged in the half second before it was killed, up to {} are on no follower",
            short(at_risk.median),
            short(lost.max)
        )
    });
    let ours = format!(
        "{arm}: up to {} % of the first reads at a follower miss the write; 95 % of writes are seen within {} ms{of_lost}",
        short(stale.max),
        short(seen.median)
    );
    let holds = stale.max == 0.0 && lost.is_none_or(|(lost, _)| lost.max == 0.0);
    let why = match (arm == PAPER_STORE, holds) {
        (true, false) => {
            "The answer does not wait for replication (kvnode/main.py, lines 70 to 74), and what a follower was not sent is not \
             sent again (kvnode/replication.py, lines 15 to 22)."
        }
        (true, true) => {
            "No read was early enough to see it, and yet the answer does not wait for replication (kvnode/main.py, lines 70 to 74)."
        }
        (false, _) => "Judged on Quorate: the study's store was not measured (--with-paper-store).",
    };
    Judgement::holds_if(holds, ours, why)
}

fn slow_follower_widens_the_tail(results: &Results) -> Judgement {
    let tails = |arm: &str| {
        let [usual, slow] = ["write-heavy", SLOW_FOLLOWER]
            .map(|workload| at(results, arm, workload, SLOW_FOLLOWER_CLIENTS, "put_p95_ms"));
        Some((usual?, slow?))
    };
    let Some((usual, slow)) = tails(SYNCHRONOUS) else { return missing(SYNCHRONOUS) };
    let others: Vec<String> = results
        .arms()
        .into_iter()
        .filter(|arm| *arm != SYNCHRONOUS && !arm.ends_with(", HTTP") || *arm == PAPER_STORE)
        .filter_map(|arm| {
            let (usual, slow) = tails(arm)?;
            Some(format!("{arm} {} times", short(slow / usual)))
        })
        .collect();
    let others = if others.is_empty() { String::new() } else { format!("; {}", others.join(", ")) };
    Judgement::holds_if(
        slow >= 2.0 * usual,
        format!(
            "p95 of PUT at {SLOW_FOLLOWER_CLIENTS} clients, write-heavy, while a follower stands still for 18 of every 20 ms: \
             {SYNCHRONOUS} {} ms instead of {} ({} times){others}",
            short(slow),
            short(usual),
            short(slow / usual)
        ),
        "Judged where a write waits for all followers, at twice the percentile or more. The study's store waits for none \
         (kvnode/main.py, lines 70 to 74).",
    )
}

fn order_of_workloads(results: &Results) -> Judgement {
    let Some(found) = on_both(results, |arm| by_workload(results, arm, "per_s")) else {
        return missing(stand_in(results));
    };
    let ours: Vec<String> = found.iter().map(|(arm, rates)| format!("{arm}: {}", words(rates))).collect();
    Judgement::holds_if(
        found.iter().all(|(_, [mixed, reads, writes])| mixed > reads && reads > writes),
        format!("at {MANY} clients in op/s: {}", ours.join("; ")),
        "The study's own figures have write-heavy above read-heavy (214 and 206 requests/s, results/load_results.csv, lines 7 and 6), \
         and count a PUT and a GET as one request in read-heavy (experiments/load_test.py, lines 48 to 50).",
    )
}

fn loss_of_the_leader_halts(results: &Results) -> Judgement {
    let of = |arm, measure| results.arm(arm).with("workload", LEADER_LOST).spread(measure);
    let Some(resumed) = of(PAPER_STORE, "writes_resumed") else { return missing(PAPER_STORE) };
    let gap = |arm| of(arm, "writes_gap_ms").map(|gap| format!("{} ms ({arm})", short(gap.median)));
    let ours = if resumed.max == 0.0 {
        format!("{PAPER_STORE}: no write succeeds in the {} s after the leader's death", AFTER.as_secs_f64())
    } else {
        format!(
            "{PAPER_STORE}: writes succeed again after {}",
            gap(PAPER_STORE).unwrap_or_else(|| "a time that is not known".to_owned())
        )
    };
    let others: Vec<String> =
        results.arms().into_iter().filter(|arm| *arm != PAPER_STORE).filter_map(gap).collect();
    let others =
        if others.is_empty() { String::new() } else { format!("; elsewhere after {}", others.join(", ")) };
    Judgement::holds_if(
        resumed.max == 0.0,
        format!("{ours}{others}"),
        "A follower refuses writes, and nothing makes it a leader (kvnode/main.py, lines 64 and 65).",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::studies::measured::Measured;

    const BOTH: [&str; 2] = [PAPER_STORE, SYNCHRONOUS];

    /// Figures with which every claim holds: in two rounds, the second a little higher.
    fn holding() -> Measured {
        let mut measured = Measured::new(&["workload", "clients"]);
        for arm in BOTH {
            for ((workload, ..), (per_s, mean)) in
                WORKLOADS.into_iter().zip([(900.0, 20.0), (400.0, 10.0), (300.0, 50.0)])
            {
                set(&mut measured, arm, workload, MANY, "per_s", per_s);
                set(&mut measured, arm, workload, MANY, "mean_ms", mean);
                set(&mut measured, arm, workload, MANY, "p95_ms", mean * 3.0);
                set(&mut measured, arm, workload, FEW, "per_s", per_s);
                set(&mut measured, arm, workload, FEW, "mean_ms", 5.0);
                set(&mut measured, arm, workload, FEW, "p95_ms", 6.0);
            }
            set(&mut measured, arm, "write-heavy", SLOW_FOLLOWER_CLIENTS, "put_p95_ms", 4.0);
            set(&mut measured, arm, SLOW_FOLLOWER, SLOW_FOLLOWER_CLIENTS, "put_p95_ms", 20.0);
        }
        for (arm, put) in [(SYNCHRONOUS, 4.0), (ASYNCHRONOUS, 2.0)] {
            set(&mut measured, arm, "write-heavy", FEW, "put_p50_ms", put);
        }
        test(&mut measured, [900.0, 200.0, 300.0], [900.0, 400.0, 300.0]);
        for (workload, measure, value) in [
            (FOLLOWER_READS, "stale_pct", 0.0),
            (FOLLOWER_READS, "seen_p95_ms", 1.0),
            (LEADER_LOST, "writes_resumed", 0.0),
            (LEADER_LOST, "writes_at_risk", 100.0),
            (LEADER_LOST, "writes_lost", 0.0),
        ] {
            set(&mut measured, PAPER_STORE, workload, 1, measure, value);
        }
        measured.checked(&["ok", "ok"])
    }

    fn set(measured: &mut Measured, arm: &str, workload: &str, clients: u32, measure: &str, value: f64) {
        measured.set(arm, &[workload, &clients.to_string()], measure, &[value, value * 1.01]);
    }

    /// Figures of the study's tester on its store: requests as the tester counts them, and operations.
    fn test(measured: &mut Measured, counted: [f64; 3], each: [f64; 3]) {
        for (((mode, _), counted), each) in Mode::ALL.into_iter().zip(counted).zip(each) {
            set(measured, PAPER_STORE, mode, TESTER_CLIENTS, "requests_per_s", counted);
            set(measured, PAPER_STORE, mode, TESTER_CLIENTS, "operations_per_s", each);
        }
    }

    /// The verdict on a claim after one measure of an arm is changed in both rounds.
    fn changed(
        begins: &str,
        arm: &str,
        (workload, clients): (&str, u32),
        measure: &str,
        rounds: [f64; 2],
    ) -> Verdict {
        let mut measured = holding();
        measured.set(arm, &[workload, &clients.to_string()], measure, &rounds);
        measured.judged(&all(), begins).verdict
    }

    #[test]
    fn every_claim_follows_its_figures_and_needs_repeats_and_its_arms() {
        for claim in all() {
            let judged = holding().judged(&all(), claim.claim);
            assert_eq!(judged.verdict, Verdict::Holds, "{}: {judged:?}", claim.claim);
        }
        for (begins, arms) in [
            ("The mixed", &[][..]),
            ("Latency", &[SYNCHRONOUS]),
            ("The 95th", &[SYNCHRONOUS]),
            ("Read-heavy", &[SYNCHRONOUS]),
            ("Write-heavy", &[SYNCHRONOUS]),
            ("A write waits", &[SYNCHRONOUS, ASYNCHRONOUS]),
            ("A follower that", &[SYNCHRONOUS]),
            ("Throughput", &[SYNCHRONOUS]),
            ("There is no leader election", &[PAPER_STORE]),
        ] {
            holding().needs_repeats_and_arms(&all(), begins, arms);
        }
    }

    /// The study's own figures: 410, 205 and 215 requests per second.
    #[test]
    fn the_factor_of_two_is_attributed_to_counting_only_if_counting_causes_it() {
        let judged = |counted, each| {
            let mut measured = holding();
            test(&mut measured, counted, each);
            measured.judged(&all(), "The mixed")
        };
        assert_eq!(judged([410.0, 205.0, 215.0], [410.0, 410.0, 215.0]).verdict, Verdict::RestsOnFault);
        let half = judged([410.0, 205.0, 400.0], [410.0, 410.0, 400.0]);
        assert_eq!(half.verdict, Verdict::NotReproduced);
        assert!(half.why.starts_with("Counting explains the half"), "{}", half.why);
        let neither = judged([410.0, 400.0, 400.0], [410.0, 800.0, 400.0]);
        assert_eq!(neither.verdict, Verdict::NotReproduced);
        assert!(neither.why.starts_with("It was not found, however"), "{}", neither.why);
        let mode = (Mode::ALL[0].0, TESTER_CLIENTS);
        assert_eq!(
            changed("The mixed", PAPER_STORE, mode, "operations_per_s", [900.0, 410.0]),
            Verdict::Undecided
        );
    }

    #[test]
    fn latencies_at_both_ends_show_what_grows_and_by_how_much() {
        for arm in BOTH {
            let mean = |rounds| changed("Latency", arm, ("mixed", MANY), "mean_ms", rounds);
            assert_eq!(mean([4.0, 4.0]), Verdict::DoesNotHold);
            assert_eq!(mean([4.0, 9.0]), Verdict::Undecided);
            // The mean grows by a factor of four.
            let tail = |rounds| changed("The 95th", arm, ("mixed", MANY), "p95_ms", rounds);
            assert_eq!(tail([12.0, 12.0]), Verdict::DoesNotHold);
            assert_eq!(tail([12.0, 60.0]), Verdict::Undecided);
        }
        let mut shrinks = holding();
        set(&mut shrinks, SYNCHRONOUS, "mixed", MANY, "mean_ms", 4.0);
        assert_eq!(shrinks.judged(&all(), "Latency").why, "", "what explains growth explains nothing else");
    }

    #[test]
    fn workloads_are_compared_on_both_arms() {
        for arm in BOTH {
            let reads = |rounds| changed("Read-heavy", arm, ("read-heavy", MANY), "mean_ms", rounds);
            assert_eq!(reads([60.0, 60.0]), Verdict::DoesNotHold);
            assert_eq!(reads([40.0, 60.0]), Verdict::Undecided);
            let order = |rounds| changed("Throughput", arm, ("read-heavy", MANY), "per_s", rounds);
            assert_eq!(order([1000.0, 1000.0]), Verdict::DoesNotHold);
            assert_eq!(order([1000.0, 400.0]), Verdict::Undecided);
        }
        let writes = |rounds| changed("Write-heavy", SYNCHRONOUS, ("write-heavy", MANY), "mean_ms", rounds);
        assert_eq!(writes([15.0, 15.0]), Verdict::DoesNotHold);
        assert_eq!(writes([15.0, 50.0]), Verdict::Undecided);
    }

    #[test]
    fn waiting_is_judged_by_the_median_put() {
        let waits =
            |rounds| changed("A write waits", SYNCHRONOUS, ("write-heavy", FEW), "put_p50_ms", rounds);
        assert_eq!(waits([1.0, 1.0]), Verdict::DoesNotHold);
        assert_eq!(waits([1.0, 9.0]), Verdict::Undecided);
    }

    #[test]
    fn a_slow_follower_has_to_double_the_tail() {
        let slow = |rounds| {
            changed(
                "A follower that",
                SYNCHRONOUS,
                (SLOW_FOLLOWER, SLOW_FOLLOWER_CLIENTS),
                "put_p95_ms",
                rounds,
            )
        };
        assert_eq!(slow([7.0, 7.0]), Verdict::DoesNotHold);
        assert_eq!(slow([7.0, 20.0]), Verdict::Undecided);
    }

    #[test]
    fn only_a_violation_shows_that_a_leader_is_not_fresh_and_one_is_enough() {
        let verdict = |verdicts: &[&'static str]| {
            holding().checked(verdicts).judged(&all(), "There are no stale").verdict
        };
        assert_eq!(verdict(&["ok", "unknown"]), Verdict::Undecided);
        assert_eq!(verdict(&["unknown", "violation"]), Verdict::DoesNotHold);
        assert_eq!(verdict(&["violation"]), Verdict::DoesNotHold);
        assert_eq!(verdict(&["ok"]), Verdict::Undecided, "one round");
        assert_eq!(verdict(&[]), Verdict::NotMeasured);
    }

    #[test]
    fn one_read_that_misses_a_write_or_one_lost_write_is_enough() {
        let follower =
            |workload, measure, rounds| changed("A write is on", PAPER_STORE, (workload, 1), measure, rounds);
        assert_eq!(follower(FOLLOWER_READS, "stale_pct", [0.0, 1.0]), Verdict::DoesNotHold);
        assert_eq!(follower(LEADER_LOST, "writes_lost", [0.0, 1.0]), Verdict::DoesNotHold);
        assert_eq!(holding().once().judged(&all(), "A write is on").verdict, Verdict::Undecided);
        let unmeasured = holding().without(PAPER_STORE).judged(&all(), "A write is on");
        assert_eq!(unmeasured.verdict, Verdict::NotMeasured);
    }

    #[test]
    fn a_leader_is_needed_until_writes_succeed_without_it() {
        let resumed = |rounds| {
            changed("There is no leader election", PAPER_STORE, (LEADER_LOST, 1), "writes_resumed", rounds)
        };
        assert_eq!(resumed([1.0, 1.0]), Verdict::DoesNotHold);
        assert_eq!(resumed([0.0, 1.0]), Verdict::Undecided);
    }

    /// The study's store takes part only if it was installed; otherwise the same claims are judged on another arm.
    #[test]
    fn the_stand_in_is_the_studys_own_store_where_it_was_measured() {
        let mut measured = holding().without(PAPER_STORE);
        assert_eq!(stand_in(&measured.results()), SYNCHRONOUS);
        set(&mut measured, SYNCHRONOUS_HTTP, "mixed", MANY, "per_s", 1.0);
        assert_eq!(stand_in(&measured.results()), SYNCHRONOUS_HTTP);
        assert_eq!(stand_in(&holding().results()), PAPER_STORE);
    }
}
