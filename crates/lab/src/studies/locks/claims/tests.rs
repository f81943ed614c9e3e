//! The judges, on the paper's own figures and on figures with one change.

use std::collections::BTreeMap;

use super::*;
use crate::harness::{Row, STEAL_PERCENT};
use crate::studies::locks::paper::{MEASURES, PROCESSES};

/// The parameters of a row.
const PARAMETERS: [&str; 4] = ["part", "keys", "processes", "think_ms"];

/// The paper's tables in two rounds, and its properties as if they were measured and all as it says.
fn paper() -> Vec<Row> {
    let mut rows = Vec::new();
    let mut push = |arm: &str, point: [&str; 4], figures: Vec<(&str, f64)>| {
        for repeat in [1, 2] {
            let figures = figures.iter().map(|(name, value)| ((*name).to_owned(), *value));
            let mut figures: BTreeMap<String, f64> = figures.collect();
            figures.insert(STEAL_PERCENT.to_owned(), 0.0);
            let point = point.iter().map(|value| (*value).to_owned()).collect();
            rows.push(Row { arm: arm.to_owned(), point, repeat, figures, checked: None });
        }
    };
    for arm in [REDIS_PAPER_UNSYNCED, KAZOO, ETCD_PAPER, CONSUL_PAPER] {
        let column = sides::find(arm).unwrap().column.unwrap();
        for (keys, processes) in
            ["different", "same"].into_iter().flat_map(|keys| PROCESSES.map(|processes| (keys, processes)))
        {
            let times = column.at(keys == "same", processes).unwrap();
            let mut figures: Vec<(&str, f64)> = MEASURES.into_iter().zip(times).collect();
            figures.extend([("failures", 3.0), ("least_pct", 2.0), ("most_pct", 170.0), ("overlaps", 0.0)]);
            push(arm, ["acquire", keys, &processes.to_string(), "0"], figures);
        }
    }
    for arm in PAPER {
        let gone = vec![
            ("stale_paused", 1.0),
            ("never_granted", 0.0),
            ("takeover_killed_ms", 2_000.0),
            ("lease_ms", 2_000.0),
        ];
        push(arm, ["holder gone", "", "", ""], gone);
        push(arm, ["nodes restarted", "", "", ""], vec![("two_holders_restarted", 0.0)]);
        push(arm, ["node killed", "", "", ""], vec![("gap_ms", 900.0), ("stuck", 0.0)]);
    }
    push(REDIS_PAPER_UNSYNCED, ["nodes restarted", "", "", ""], vec![("two_holders_restarted", 1.0)]);
    rows
}

fn results(rows: impl IntoIterator<Item = Row>) -> Results {
    let mut results = Results::new(&PARAMETERS, &[STEAL_PERCENT]);
    rows.into_iter().for_each(|row| results.push(row));
    results
}

/// Multiplies a measure of an arm at all points of these keys (or of this part) with these processes.
fn times(row: &mut Row, arm: &str, place: &str, processes: &str, measure: &str, factor: f64) {
    let is_there = row.arm == arm && row.point[..2].iter().any(|value| value == place);
    if is_there && row.point[2] == processes {
        row.figures.entry(measure.to_owned()).and_modify(|figure| *figure *= factor);
    }
}

/// Sets a measure of an arm in a part.
fn set(row: &mut Row, arm: &str, part: &str, measure: &str, value: f64) {
    if row.arm == arm && row.point[0] == part {
        row.figures.insert(measure.to_owned(), value);
    }
}

/// One change to the paper's figures, and its effect on a claim.
struct Case {
    /// The beginning of the claim.
    claim: &'static str,
    change: fn(&mut Row),
    verdict: Verdict,
    /// What the reason or the figures must then mention.
    expected: &'static str,
}

const REDIS: &str = REDIS_PAPER_UNSYNCED;
const NO: Verdict = Verdict::DoesNotHold;

/// At least one for each claim that can be judged.
const CASES: &[Case] = &[
    Case {
        claim: "With different keys the time to acquire grows",
        change: |row| times(row, KAZOO, "different", "5", "avg_ms", 0.5),
        verdict: NO,
        expected: "Not in ZooKeeper, kazoo.",
    },
    Case {
        claim: "With different keys Redis hardly changes",
        change: |row| times(row, REDIS, "different", "5", "avg_ms", 1.3),
        verdict: NO,
        expected: "Suspected",
    },
    Case {
        claim: "With different keys Redis is fastest",
        change: |row| times(row, CONSUL_PAPER, "different", "5", "avg_ms", 0.4),
        verdict: NO,
        expected: "The order here: Redis, redlock-py, not synced, ZooKeeper, kazoo, Consul, consul-lock, etcd, python-etcd3.",
    },
    Case {
        claim: "The 90th percentile is about 20 %",
        change: |row| times(row, ETCD_PAPER, "different", "5", "p90_ms", 1.5),
        verdict: NO,
        expected: "Not in etcd, python-etcd3.",
    },
    Case {
        claim: "The 99th percentile is about twice",
        change: |row| times(row, CONSUL_PAPER, "different", "5", "p99_ms", 3.0),
        verdict: NO,
        expected: "Another ratio in Consul, consul-lock.",
    },
    Case {
        claim: "The 99th percentile is about twice",
        change: |row| {
            times(row, KAZOO, "different", "5", "avg_ms", 0.5);
            times(row, KAZOO, "different", "5", "p99_ms", 0.5);
        },
        verdict: NO,
        expected: "Redis's is not below the others'.",
    },
    Case {
        claim: "In etcd, Consul and ZooKeeper it makes little difference",
        change: |row| times(row, ETCD_PAPER, "same", "5", "avg_ms", 4.0),
        verdict: Verdict::NotReproduced,
        expected: "etcd, python-etcd3: 3.96 times",
    },
    Case {
        claim: "With the same key Redis takes 3 times as long",
        change: |row| times(row, REDIS, "same", "5", "avg_ms", 0.5),
        verdict: NO,
        expected: "Held from 2.5 times on",
    },
    Case {
        claim: "With the same key Redis still has the lowest average",
        change: |row| times(row, REDIS, "same", "5", "avg_ms", 1.1),
        verdict: NO,
        expected: "leaves out 3 tries per run",
    },
    Case {
        claim: "With the same key Redis is mostly fast",
        change: |row| times(row, CONSUL_PAPER, "same", "5", "max_ms", 8.0),
        verdict: NO,
        expected: "lock_impl.py",
    },
    Case {
        claim: "With the same key Redis is mostly fast",
        change: |row| times(row, REDIS, "same", "5", "max_ms", 0.05),
        verdict: NO,
        expected: "",
    },
    Case {
        claim: "ZooKeeper is the most suitable",
        change: |row| times(row, ETCD_PAPER, "same", "5", "p99_ms", 0.5),
        verdict: NO,
        expected: "Lower than ZooKeeper's: etcd, python-etcd3.",
    },
    Case {
        claim: "Where it does not count, Redis is the best",
        change: |row| times(row, KAZOO, "same", "5", "p90_ms", 0.1),
        verdict: NO,
        expected: "Lower than Redis's: ZooKeeper, kazoo.",
    },
    Case {
        claim: "Redis's worst case is 10 to 20 times",
        change: |row| times(row, ETCD_PAPER, "same", "5", "max_ms", 3.0),
        verdict: NO,
        expected: "2.91 times the worst",
    },
    Case {
        claim: "etcd, Consul and ZooKeeper ensure",
        change: |row| set(row, ETCD_PAPER, "acquire", "overlaps", 1.0),
        verdict: NO,
        expected: "etcd, python-etcd3: 1",
    },
    Case {
        claim: "etcd, Consul and ZooKeeper ensure",
        change: |row| set(row, KAZOO, "nodes restarted", "two_holders_restarted", 1.0),
        verdict: NO,
        expected: "ZooKeeper, kazoo: 1",
    },
    Case {
        claim: "Redlock may lose safety",
        change: |row| set(row, REDIS, "nodes restarted", "two_holders_restarted", 0.0),
        verdict: NO,
        expected: "Not tried in this run: that the clocks",
    },
    Case {
        claim: "All four are free from deadlock",
        change: |row| set(row, CONSUL_PAPER, "holder gone", "never_granted", 1.0),
        verdict: NO,
        expected: "Consul, consul-lock: 1 never",
    },
    Case {
        claim: "All four tolerate the failure of a node",
        change: |row| set(row, REDIS_PAPER, "node killed", "stuck", 3.0),
        verdict: NO,
        expected: "lines 110 to 112",
    },
];

/// What cannot be measured has no judge.
fn judged_claims() -> Vec<Claim> {
    let mut claims = all();
    claims.retain(|claim| !claim.claim.contains("easiest to set up"));
    claims
}

fn verdict(claim: &Claim, results: &Results) -> Verdict {
    claim.judged(results).judgement.verdict
}

#[test]
fn the_papers_own_figures_support_its_claims() {
    let results = results(paper());
    for claim in judged_claims() {
        let judged = claim.judged(&results);
        assert_eq!(judged.judgement.verdict, Verdict::Holds, "{judged:?}");
    }
}

#[test]
fn each_claim_is_refuted_by_changing_one_figure() {
    let claims = judged_claims();
    for case in CASES {
        let claim = claims.iter().find(|claim| claim.claim.starts_with(case.claim)).unwrap();
        let mut rows = paper();
        rows.iter_mut().for_each(case.change);
        let judged = claim.judged(&results(rows)).judgement;
        assert_eq!(judged.verdict, case.verdict, "{}: {judged:?}", case.claim);
        let judgement = format!("{} {}", judged.ours, judged.why);
        assert!(judgement.contains(case.expected), "{}: {judgement}", case.claim);
    }
    for claim in claims {
        assert!(CASES.iter().any(|case| claim.claim.starts_with(case.claim)), "{}", claim.claim);
    }
}

/// Only the second repeat has the other figure. For safety and for what must never happen, one occurrence decides.
#[test]
fn differing_repeats_decide_only_what_one_occurrence_decides() {
    let claims = judged_claims();
    for case in CASES {
        let claim = claims.iter().find(|claim| claim.claim.starts_with(case.claim)).unwrap();
        let mut rows = paper();
        rows.iter_mut().filter(|row| row.repeat == 2).for_each(case.change);
        let expected = match case.claim {
            "etcd, Consul and ZooKeeper ensure"
            | "All four are free from deadlock"
            | "All four tolerate the failure of a node" => NO,
            "Redlock may lose safety" => Verdict::Holds,
            _ => Verdict::Undecided,
        };
        assert_eq!(verdict(claim, &results(rows)), expected, "{}", case.claim);
    }
}

#[test]
fn one_repeat_decides_only_that_two_held_a_lock() {
    let results = results(paper().into_iter().filter(|row| row.repeat == 1));
    for claim in judged_claims() {
        let expected =
            if claim.claim.starts_with("Redlock may") { Verdict::Holds } else { Verdict::Undecided };
        assert_eq!(verdict(&claim, &results), expected, "{}", claim.claim);
    }
}

#[test]
fn without_a_system_that_a_claim_names_it_is_not_measured() {
    for absent in ["etcd", "ZooKeeper", "Consul", "Redis"] {
        let results = results(paper().into_iter().filter(|row| !row.arm.starts_with(absent)));
        for claim in judged_claims() {
            let is_named = claim.claim.contains(absent)
                || claim.claim.contains("others")
                || claim.claim.contains("All four")
                || ["lowest", "percentile", "most suitable", "Where it"]
                    .iter()
                    .any(|word| claim.claim.contains(word))
                || absent == "Redis" && claim.claim.starts_with("Redlock");
            let expected = if is_named { Verdict::NotMeasured } else { Verdict::Holds };
            assert_eq!(verdict(&claim, &results), expected, "{absent}: {}", claim.claim);
        }
    }
    assert!(all().iter().all(|claim| verdict(claim, &results([])) == Verdict::NotMeasured));
}

#[test]
fn a_disturbed_machine_decides_no_time() {
    let mut rows = paper();
    rows.iter_mut().filter(|row| row.repeat == 2).for_each(|row| {
        row.figures.insert(STEAL_PERCENT.to_owned(), 40.0);
    });
    let results = results(rows);
    for claim in judged_claims() {
        // That something never happened does not need quiet machines, nor does that it did.
        let is_of_faults =
            ["ensure", "Redlock may", "All four"].iter().any(|word| claim.claim.contains(word));
        let expected = if is_of_faults { Verdict::Holds } else { Verdict::Undecided };
        assert_eq!(verdict(&claim, &results), expected, "{}", claim.claim);
    }
}

#[test]
fn a_syncing_redis_is_judged_if_there_is_no_other_and_else_reported() {
    let order = || all().into_iter().find(|claim| claim.claim.contains("fastest")).unwrap();
    let synced = |factor: f64| {
        let synced = paper().into_iter().filter(|row| row.arm == REDIS && row.point[1] == "different");
        synced.map(move |mut row| {
            times(&mut row, REDIS, "different", "5", "avg_ms", factor);
            Row { arm: REDIS_PAPER.to_owned(), ..row }
        })
    };
    let both = order().judged(&results(paper().into_iter().chain(synced(5.0)))).judgement;
    assert_eq!(both.verdict, Verdict::Holds);
    assert!(both.why.contains("(6.50 ms), it is not the paper's."), "{}", both.why);
    let alone = paper().into_iter().filter(|row| row.arm != REDIS).chain(synced(5.0));
    assert_eq!(verdict(&order(), &results(alone)), NO);
}

#[test]
fn a_pause_is_reported_if_one_key_takes_longer_without_blaming_a_fault() {
    let claim = all().into_iter().find(|claim| claim.claim.contains("little difference")).unwrap();
    let mut rows = paper();
    rows.iter_mut().for_each(|row| times(row, ETCD_PAPER, "same", "5", "avg_ms", 4.0));
    let paused = rows.clone().into_iter().filter(|row| row.point[..3] == ["acquire", "same", "5"]);
    let paused = paused.map(|mut row| {
        row.point[3] = THINK_MS.to_string();
        row
    });
    let judged = claim.judged(&results(rows.clone().into_iter().chain(paused))).judgement;
    assert_eq!(judged.verdict, Verdict::NotReproduced);
    assert!(judged.why.contains("With a pause of 50 ms"), "{}", judged.why);
}

#[test]
fn a_missed_release_is_reported_and_is_not_a_dead_holder() {
    let claim = all().into_iter().find(|claim| claim.claim.contains("deadlock")).unwrap();
    let mut row = paper().remove(0);
    row.arm = ETCD_BEST.to_owned();
    row.point = ["waits after contention", "", "", ""].map(str::to_owned).to_vec();
    row.figures.insert("never_told".to_owned(), 2.0);
    let judged = claim.judged(&results(paper().into_iter().chain([row]))).judgement;
    assert_eq!(judged.verdict, Verdict::Holds);
    assert!(judged.why.contains("etcd, v3lock at 2 nodes"), "{}", judged.why);
}
