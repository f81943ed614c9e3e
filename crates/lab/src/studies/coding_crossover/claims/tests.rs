//! Figures that must produce each verdict.

use super::super::points;
use super::*;
use crate::harness::{Checked, Point, Row, STEAL_PERCENT, Scale, Study};

/// The measured value of an arm at a point. `checked`: 0 is linearizable, 1 is not, 2 is unknown.
type World = fn(usize, &Point, &str) -> Option<f64>;

fn number(point: &Point, name: &str) -> f64 {
    point.get(name).parse().unwrap_or(0.0)
}

/// Links carry exactly their bandwidth: a coded write takes 5 ms more than a replicated one, and sends 1/k.
fn ordinary(parts: usize, point: &Point, measure: &str) -> Option<f64> {
    let (part, mbit, bytes) = (point.get("part"), number(point, "mbit"), number(point, "bytes"));
    let value_ms = bytes * 8.0 / mbit / 1e3;
    let k = parts as f64;
    if parts == ADAPTIVE {
        let all = PARTS.map(|parts| ordinary(parts, point, measure));
        return all.into_iter().flatten().min_by(f64::total_cmp);
    }
    let is_coded = parts > 1;
    Some(match (part, measure) {
        (part::WRITE | part::FAR, "p50_ms") => {
            let trips = if is_coded { 2.0 } else { 1.0 };
            let fixed = if is_coded { 9.0 } else { 4.0 };
            fixed + 4.0 * value_ms / k + trips * 2.0 * number(point, "delay_ms")
        }
        (part::READ | part::DEGRADED, "p50_ms" | "mean_ms") => {
            let whole = match (is_coded, point.get("at")) {
                (true, _) => 1.0 + value_ms * (k - 1.0) / k,
                (false, at::FOLLOWER) => 1.0 + value_ms,
                (false, _) => 0.4,
            };
            let hits = number(point, "hits") / 100.0;
            whole * (1.0 - hits) + 0.5 * hits
        }
        (part::READ, "hit_percent") => number(point, "hits"),
        (part::READ, "sent_per_value") => 1.0 / k,
        (part::WRITE, "encode_ms") if is_coded => 0.05,
        (part::WRITE, "disperse_ms" | "order_ms") if is_coded => 4.0,
        (part::WRITE, "log_per_value") => 5.0 / k,
        (part::WRITE, "wire_per_value") => 4.0 / k,
        (part::WRITE, "over_sending") => 1.03,
        (part::REBUILD, "rebuild_of_link") => 90.0,
        (part::REBUILD, "beside_over_alone") => 1.2,
        (part::REBUILD, "beside_writes") => 400.0,
        (part::DEGRADED, "success") => 10.0,
        (part::DEGRADED, "failure" | "unknown") | (_, "checked") => 0.0,
        _ => return None,
    })
}

/// The same, with coded writes taking `times` times as long.
fn writes(parts: usize, point: &Point, measure: &str, times: f64) -> Option<f64> {
    let is_it = parts != 1 && point.get("part") == part::WRITE && measure == "p50_ms";
    ordinary(parts, point, measure).map(|value| if is_it { value * times } else { value })
}

/// The same with another value of one measure of coded arms.
fn with(parts: usize, point: &Point, measure: &str, other: &str, value: f64) -> Option<f64> {
    let usual = ordinary(parts, point, measure)?;
    Some(if parts != 1 && measure == other { value } else { usual })
}

/// All rows of a quick run, with a round in each world.
fn measured(rounds: &[World]) -> Results {
    let study = super::super::CodingCrossover;
    let parameters = study.parameters();
    let names: Vec<&str> = parameters.iter().map(|parameter| parameter.name).collect();
    let measures: Vec<&str> = study.measures().iter().map(|measure| measure.name).collect();
    let mut results = Results::new(&names, &measures);
    for (repeat, world) in (1..).zip(rounds) {
        for parts in PARTS.into_iter().chain([ADAPTIVE]) {
            for point in points::all(Scale::Quick, parts) {
                let figure = |name: &&str| Some(((*name).to_owned(), world(parts, &point, name)?));
                let verdict = world(parts, &point, "checked").map(|number| {
                    let verdict = ["ok", "violation", "unknown"][number as usize].to_owned();
                    Checked { operations: 10, verdict, history: String::new() }
                });
                results.push(Row {
                    arm: arm_name(parts),
                    point: point.key(&parameters),
                    repeat,
                    figures: measures.iter().filter_map(figure).collect(),
                    checked: verdict,
                });
            }
        }
    }
    results
}

/// The same rows, each changed; leaves out those for which `change` returns false.
fn changed(results: &Results, mut change: impl FnMut(&mut Row) -> bool) -> Results {
    fn strs(names: &[String]) -> Vec<&str> {
        names.iter().map(String::as_str).collect()
    }
    let mut other = Results::new(&strs(results.parameters()), &strs(results.measures()));
    for row in results.rows() {
        let mut row = row.clone();
        if change(&mut row) {
            other.push(row);
        }
    }
    other
}

fn claim(begin: &str) -> Claim {
    let found: Vec<Claim> = all().into_iter().filter(|claim| claim.claim.starts_with(begin)).collect();
    assert_eq!(found.len(), 1, "{begin}");
    found.into_iter().next().unwrap()
}

/// For each claim, in order: its first words, a world in which it holds, one in which it does not, and the verdict
/// then.
const CASES: [(&str, World, World, Verdict); 20] = [
    ("At 10 Gbit/s", ordinary, |k, at, what| writes(k, at, what, 0.2), Verdict::NotReproduced),
    ("It does so", |k, at, what| with(k, at, what, "encode_ms", 4.0), ordinary, Verdict::NotReproduced),
    ("At 1 Mbit/s", ordinary, |k, at, what| writes(k, at, what, 10.0), Verdict::DoesNotHold),
    (
        "Erasure coding writes faster at up to",
        |k, at, what| writes(k, at, what, if number(at, "mbit") > 10.0 { 5.0 } else { 1.0 }),
        ordinary,
        Verdict::DoesNotHold,
    ),
    (
        "Erasure coding suits objects",
        |k, at, what| writes(k, at, what, if number(at, "bytes") < 500e3 { 20.0 } else { 1.0 }),
        ordinary,
        Verdict::DoesNotHold,
    ),
    (
        "Erasure coding suits geographically",
        |k, at, what| {
            let trips = if k == 1 { 1.0 } else { 2.0 };
            let delay_ms = if what == "p50_ms" { trips * 2.0 * number(at, "delay_ms") } else { 0.0 };
            ordinary(k, at, what).map(|value| value - delay_ms)
        },
        ordinary,
        Verdict::DoesNotHold,
    ),
    (
        "Coded writes are faster when",
        |k, at, what| writes(k, at, what, if number(at, "mbit") < 70.0 { 1.8 } else { 1.0 }),
        ordinary,
        Verdict::DoesNotHold,
    ),
    (
        "Ridge regression",
        |k, at, what| match what {
            "p50_ms" => Some(1000.0 + number(at, "bytes") / 1e5),
            _ => ordinary(k, at, what),
        },
        ordinary,
        Verdict::DoesNotHold,
    ),
    (
        "Replication reads faster",
        |k, at, what| {
            let ms = ordinary(k, at, what)?;
            Some(if k > 1 && at.get("part") == part::READ { 10.0 * ms } else { ms })
        },
        ordinary,
        Verdict::DoesNotHold,
    ),
    (
        "With a cache",
        ordinary,
        |k, at, what| match (at.get("hits"), what) {
            ("50", "mean_ms") => Some(3.0 * ordinary(k, at, what)?),
            _ => ordinary(k, at, what),
        },
        Verdict::DoesNotHold,
    ),
    (
        "A high hit rate",
        |k, at, what| match (k, what) {
            (1, "mean_ms") => Some(0.2),
            _ => ordinary(k, at, what),
        },
        ordinary,
        Verdict::DoesNotHold,
    ),
    (
        "Erasure coding stores less",
        ordinary,
        |k, at, what| with(k, at, what, "log_per_value", 4.5),
        Verdict::DoesNotHold,
    ),
    (
        "Coding keeps the consistency",
        ordinary,
        |k, at, what| with(k, at, what, "checked", 1.0),
        Verdict::DoesNotHold,
    ),
    (
        "Coding tolerates faults",
        ordinary,
        |k, at, what| with(k, at, what, "failure", 1.0),
        Verdict::DoesNotHold,
    ),
    (
        "Quorate: a coded write takes at most 1.1",
        ordinary,
        |k, at, what| with(k, at, what, "over_sending", 1.3),
        Verdict::DoesNotHold,
    ),
    ("Quorate: at k = 3", ordinary, |k, at, what| writes(k, at, what, 2.0), Verdict::DoesNotHold),
    (
        "Quorate: bytes on disk",
        ordinary,
        |k, at, what| with(k, at, what, "wire_per_value", 2.5),
        Verdict::DoesNotHold,
    ),
    (
        "Quorate: who lets the nodes choose",
        ordinary,
        |k, at, what| writes(k, at, what, if k == ADAPTIVE { 1.5 } else { 1.0 }),
        Verdict::DoesNotHold,
    ),
    (
        "Quorate: 1 KB costs",
        ordinary,
        |k, at, what| writes(k, at, what, if k == ADAPTIVE { 1.1 } else { 1.0 }),
        Verdict::DoesNotHold,
    ),
    (
        "Quorate: a lost node",
        ordinary,
        |k, at, what| with(k, at, what, "rebuild_of_link", 50.0),
        Verdict::DoesNotHold,
    ),
];

#[test]
fn each_claim_is_decided_either_way_by_figures_alone() {
    for ((begin, holds, fails, otherwise), in_order) in CASES.into_iter().zip(all()) {
        let claim = claim(begin);
        assert_eq!(claim.claim, in_order.claim, "in the order of the claims");
        let (good, bad) = ((claim.judge)(&measured(&[holds])), (claim.judge)(&measured(&[fails])));
        assert_eq!(good.verdict, Verdict::Holds, "{begin}: {good:?}");
        assert_eq!(bad.verdict, otherwise, "{begin}: {bad:?}");
        assert!(!good.ours.is_empty() && good.ours != bad.ours, "{begin}: figures are told");
    }
    assert_eq!(CASES.len(), all().len());
}

#[test]
fn one_repeat_decides_nothing_and_neither_do_repeats_that_differ() {
    for (begin, holds, fails, otherwise) in CASES {
        let claim = claim(begin);
        let verdict = |rounds: &[World]| claim.judged(&measured(rounds)).judgement.verdict;
        assert_eq!(verdict(&[holds]), Verdict::Undecided, "{begin}");
        assert_eq!(verdict(&[holds, holds]), Verdict::Holds, "{begin}");
        let is_one_enough = ["Coding keeps", "Coding tolerates"].iter().any(|words| begin.starts_with(words));
        let expected = if is_one_enough { otherwise } else { Verdict::Undecided };
        assert_eq!(verdict(&[fails]), expected, "{begin}");
        assert_eq!(verdict(&[holds, fails]), expected, "{begin}");
    }
}

#[test]
fn without_a_system_or_on_a_disturbed_machine_nothing_is_decided() {
    for (begin, holds, ..) in CASES {
        let claim = claim(begin);
        let whole = measured(&[holds, holds]);
        let verdict = |results: &Results| claim.judged(results).judgement.verdict;
        assert_eq!(
            verdict(&changed(&whole, |row| row.arm != THREE && row.arm != CHOSEN)),
            Verdict::NotMeasured,
            "{begin}"
        );
        let disturbed = changed(&whole, |row| {
            row.figures.insert(STEAL_PERCENT.to_owned(), 40.0);
            true
        });
        let is_of_answers = begin.starts_with("Coding keeps") || begin.starts_with("Coding tolerates");
        let expected = if is_of_answers { Verdict::Holds } else { Verdict::Undecided };
        assert_eq!(verdict(&disturbed), expected, "{begin}");
    }
}

#[test]
fn nothing_is_claimed_about_unmeasured_points() {
    let none = changed(&measured(&[ordinary]), |row| {
        row.figures.clear();
        row.checked = None;
        true
    });
    for claim in all() {
        assert_eq!((claim.judge)(&none).verdict, Verdict::NotMeasured, "{}", claim.claim);
    }
}

#[test]
fn reasons_are_beside_the_figures_that_they_explain() {
    let why = |begin: &str, world: World| (claim(begin).judge)(&measured(&[world])).why;
    let boundary = "Erasure coding writes faster at up to";
    assert!(why(boundary, ordinary).contains("beyond wherever it was measured"));
    assert!(why(boundary, |k, at, what| writes(k, at, what, 9.0)).starts_with("Up to 10 Mbit/s it is not"));
    let cost = "It does so";
    assert!(why(cost, ordinary).starts_with("Encoding is less than half"));
    let faster = why(cost, |k, at, what| writes(k, at, what, 0.2));
    assert!(faster.starts_with("A coded write takes no longer here"), "{faster}");
    assert!(faster.contains("Suspected, and not reproduced here"), "{faster}");
    let far = why("Erasure coding suits geographically", ordinary);
    assert!(far.contains("It adds 50.0 ms to replication, 100 to k=2, 100 to k=3"), "{far}");
    let small = why("At 10 Gbit/s", ordinary);
    assert!(!small.contains("uspected"), "it holds: nothing is suspected: {small}");
}

#[test]
fn unchecked_or_incomparable_results_decide_nothing() {
    let judged = |begin: &str, world: World| (claim(begin).judge)(&measured(&[world, world])).verdict;
    let unknown: World = |k, at, what| with(k, at, what, "checked", 2.0);
    assert_eq!(judged("Coding keeps", unknown), Verdict::Undecided);
    let unchecked = changed(&measured(&[ordinary]), |row| {
        row.checked = row.checked.take().filter(|_| row.arm != TWO);
        true
    });
    assert_eq!((claim("Coding keeps").judge)(&unchecked).verdict, Verdict::NotMeasured);
    let copies_fail: World = |k, at, what| match (k, what) {
        (1, "failure") => Some(1.0),
        _ => ordinary(k, at, what),
    };
    assert_eq!(judged("Coding tolerates", copies_fail), Verdict::Undecided);
}

#[test]
fn a_few_writes_beside_a_rebuild_decide_nothing() {
    let judged = |share: f64, times: f64, writes: f64| {
        let results = changed(&measured(&[ordinary]), |row| {
            let figures =
                [("rebuild_of_link", share), ("beside_over_alone", times), ("beside_writes", writes)];
            for (name, value) in figures {
                row.figures.entry(name.to_owned()).and_modify(|old| *old = value);
            }
            true
        });
        target_rebuild(&results).verdict
    };
    assert_eq!(judged(85.0, 1.9, 40.0), Verdict::Holds);
    assert_eq!(judged(85.0, 4.0, 40.0), Verdict::Undecided);
    assert_eq!(judged(85.0, 4.0, 400.0), Verdict::DoesNotHold);
    assert_eq!(judged(70.0, 1.0, 400.0), Verdict::DoesNotHold);
}
