//! Tests every judge with figures that produce each of its verdicts, and by the rules that hold for all.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::*;
use crate::harness::{Results, Row, STEAL_PERCENT, Verdict};
use crate::load::steal::DISTURBED_PERCENT;

/// A machine, given by its figures at a point.
type World = fn(&str, &Point, &str) -> f64;

/// The study is right in everything.
fn as_claimed(arm: &str, point: &Point, measure: &str) -> f64 {
    let is_redis = arm.starts_with("Redis");
    let replicas = match point.get("replicas") {
        "" | "0" => 0,
        "1" => 1,
        _ => 2,
    };
    match measure {
        "ns_per_op" if point.get("part") == "log" => [56.0, 230.0, 260.0][replicas],
        "ns_per_op" => 50.0,
        "gib_per_s" => 12.0,
        "per_s" if is_redis => [90e3, 50e3, 40e3][replicas],
        "per_s" if point.get("workload") == READS_EVERYWHERE => [17.8e6, 33e6, 70e6][replicas],
        "per_s" => [18e6, 13e6, 12e6][replicas],
        "cpu_us_per_op" if is_redis => [1.0, 5.0, 9.0][replicas],
        "cpu_us_per_op" => [1.0, 4.1, 8.0][replicas],
        "resync_ms" | "lag_p99_ms" if is_redis => 1_500.0,
        "resync_ms" => 600.0,
        "lag_p50_ms" if is_redis => 20.0,
        "lag_p50_ms" => 4.0,
        "lag_p99_ms" => 9.0,
        _ => 1.0,
    }
}

/// The study is wrong in everything, and its loops do not reproduce its figures either.
fn otherwise(arm: &str, point: &Point, measure: &str) -> f64 {
    let is_redis = arm.starts_with("Redis");
    let replicas = usize::from(!["", "0"].contains(&point.get("replicas")));
    match measure {
        "ns_per_op" if point.get("part") == "log" && point.get("batch") == "100" => 400.0,
        "ns_per_op" if point.get("part") == "log" => [100.0, 110.0][replicas],
        "ns_per_op" if point.get("part") == "table" && point.get("op") == "GET" => 1_200.0,
        "ns_per_op" => 1_000_000.0,
        "gib_per_s" => 0.1,
        "per_s" if is_redis => 100e3,
        "per_s" => 50e3,
        "cpu_us_per_op" if is_redis => [1.0, 2.0][replicas],
        "cpu_us_per_op" => [1.0, 6.0][replicas],
        "get_p50_ms" => [1.0, 2.0][replicas],
        "resync_ms" if is_redis => 27.0,
        "resync_ms" => 1_330.0,
        "lag_p50_ms" if is_redis => 0.05,
        "lag_p50_ms" => 0.53,
        "lag_p99_ms" if is_redis => 1.0,
        "lag_p99_ms" => 12.0,
        _ => 1.0,
    }
}

/// The same, except that the study's loops reproduce its figures.
fn by_its_loops(arm: &str, point: &Point, measure: &str) -> f64 {
    match (measure, point.get("part")) {
        ("ns_per_op", "table") => 50.0,
        ("ns_per_op", "append") => 200.0,
        _ => otherwise(arm, point, measure),
    }
}

/// The measures that claims are judged by.
const MEASURES: [&str; 8] = [
    "ns_per_op",
    "gib_per_s",
    "per_s",
    "get_p50_ms",
    "cpu_us_per_op",
    "resync_ms",
    "lag_p50_ms",
    "lag_p99_ms",
];

/// Rounds on several machines, each with the share that its host took away, without some arms.
fn run(rounds: &[(World, f64)], without: &[&str]) -> Results {
    let study = ReplicationCost;
    let parameters = study.parameters();
    let names: Vec<&str> = parameters.iter().map(|parameter| parameter.name).collect();
    let mut results = Results::new(&names, &[&MEASURES[..], &[STEAL_PERCENT]].concat());
    let plan = Plan { scale: Scale::Quick, verify: false, quorate: PathBuf::from("quorate") };
    for arm in study.arms(&plan).iter().filter(|arm| !without.contains(&arm.name.as_str())) {
        for point in &arm.points {
            for (repeat, (world, steal)) in (1..).zip(rounds) {
                let figures =
                    MEASURES.iter().map(|measure| ((*measure).to_owned(), world(&arm.name, point, measure)));
                let steal = [(STEAL_PERCENT.to_owned(), *steal)];
                let figures: BTreeMap<String, f64> = figures.chain(steal).collect();
                let key = point.key(&parameters);
                results.push(Row { arm: arm.name.clone(), point: key, repeat, figures, checked: None });
            }
        }
    }
    results
}

fn quiet(worlds: &[World]) -> Results {
    run(&worlds.iter().map(|world| (*world, 0.0)).collect::<Vec<_>>(), &[])
}

/// A claim by its beginning, its verdict where the study is wrong in everything and where its loops reproduce its
/// figures, and an arm that it needs.
const CLAIMS: [(&str, Verdict, Verdict, &str); 18] = [
    ("A SET takes", Verdict::DoesNotHold, Verdict::Holds, IN_PROCESS),
    ("SETs write values", Verdict::DoesNotHold, Verdict::DoesNotHold, IN_PROCESS),
    ("Without replication", Verdict::DoesNotHold, Verdict::Holds, IN_PROCESS),
    ("Appending", Verdict::DoesNotHold, Verdict::DoesNotHold, IN_PROCESS),
    ("Replication adds", Verdict::NotReproduced, Verdict::RestsOnFault, IN_PROCESS),
    ("Write-heavy", Verdict::NotReproduced, Verdict::NotReproduced, ACKS_NONE),
    ("Read-heavy", Verdict::NotReproduced, Verdict::NotReproduced, ACKS_NONE),
    ("Reads are not", Verdict::DoesNotHold, Verdict::DoesNotHold, ACKS_NONE),
    ("Reads scale", Verdict::NotReproduced, Verdict::NotReproduced, ACKS_NONE),
    ("A full sync of", Verdict::DoesNotHold, Verdict::DoesNotHold, QUORATE_RESYNC),
    ("Redis takes", Verdict::NotReproduced, Verdict::NotReproduced, REDIS_RESYNC),
    ("A full sync is", Verdict::NotReproduced, Verdict::NotReproduced, REDIS_RESYNC),
    ("A replica lags by", Verdict::DoesNotHold, Verdict::DoesNotHold, ACKS_NONE),
    ("Redis's replica", Verdict::NotReproduced, Verdict::NotReproduced, REDIS),
    ("A replica lags less", Verdict::NotReproduced, Verdict::NotReproduced, REDIS),
    ("Replication throughput", Verdict::NotReproduced, Verdict::RestsOnFault, REDIS_WAIT),
    ("It is 180 times", Verdict::NotReproduced, Verdict::RestsOnFault, REDIS),
    ("Replication costs", Verdict::NotReproduced, Verdict::NotReproduced, REDIS),
];

/// The verdicts on all claims.
fn verdicts(results: &Results) -> Vec<Verdict> {
    claims::all().iter().map(|claim| claim.judged(results).judgement.verdict).collect()
}

#[test]
fn every_judge_gives_each_of_its_verdicts() {
    let [right, wrong, loops] = [as_claimed as World, otherwise, by_its_loops].map(|world| {
        let results = quiet(&[world, world]);
        claims::all().iter().map(|claim| (claim.judge)(&results).verdict).collect::<Vec<_>>()
    });
    let claims = claims::all();
    assert_eq!(claims.len(), CLAIMS.len());
    for (index, (claim, (name, if_wrong, if_loops, _))) in claims.iter().zip(CLAIMS).enumerate() {
        assert!(claim.claim.starts_with(name), "{}", claim.claim);
        let given = [right[index], wrong[index], loops[index]];
        assert_eq!(given, [Verdict::Holds, if_wrong, if_loops], "{name}");
    }
}

#[test]
fn repeats_that_disagree_and_a_single_one_decide_nothing() {
    let rounds: [&[World]; 2] = [&[as_claimed, otherwise, as_claimed], &[as_claimed]];
    for worlds in rounds {
        let all = verdicts(&quiet(worlds));
        assert!(all.iter().all(|verdict| *verdict == Verdict::Undecided), "{all:?}");
    }
}

#[test]
fn a_round_on_a_disturbed_machine_is_left_out() {
    let steal = DISTURBED_PERCENT + 1.0;
    let all = verdicts(&run(&[(as_claimed, 0.0), (as_claimed, 0.0), (otherwise, steal)], &[]));
    assert!(all.iter().all(|verdict| *verdict == Verdict::Holds), "{all:?}");
}

#[test]
fn a_claim_about_an_absent_system_is_not_measured() {
    for (index, (name, .., arm)) in CLAIMS.iter().enumerate() {
        let results = run(&[(as_claimed, 0.0), (as_claimed, 0.0)], &[arm]);
        let verdict = claims::all()[index].judged(&results).judgement.verdict;
        assert_eq!(verdict, Verdict::NotMeasured, "{name} without {arm}");
    }
}

#[test]
fn redis_is_listed_first_where_it_is_better() {
    let results = quiet(&[otherwise, otherwise]);
    let judged = |name: &str| {
        let claims = claims::all();
        let claim = claims.iter().find(|claim| claim.claim.starts_with(name)).unwrap();
        (claim.judge)(&results)
    };
    let sync = judged("A full sync is");
    assert!(sync.ours.starts_with("100 keys: Redis 27 ms, Quorate 1330 ms"), "{}", sync.ours);
    assert!(sync.why.starts_with("Redis is faster here."), "{}", sync.why);
    let lag = judged("A replica lags less");
    assert!(lag.ours.contains("Redis 0.0500 ms, Quorate 0.530 ms"), "{}", lag.ours);
    let throughput = judged("Replication throughput");
    assert!(
        throughput.ours.contains("Redis 100,000, Quorate 50,000 (Quorate 0.50 times Redis)"),
        "{}",
        throughput.ours
    );
    assert!(throughput.ours.contains("Redis with a WAIT for each SET 100,000"), "{}", throughput.ours);
}

/// A reason appears only beside the verdict that it explains.
#[test]
fn suspicions_are_reported_only_if_a_claim_does_not_hold() {
    let results = quiet(&[as_claimed, as_claimed]);
    for claim in claims::all() {
        let judged = (claim.judge)(&results);
        assert!(
            !judged.why.contains("uspected") && !judged.why.contains("Slower"),
            "{}: {}",
            claim.claim,
            judged.why
        );
    }
}
