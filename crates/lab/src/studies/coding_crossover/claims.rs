//! The study's claims, and how they are judged.

use super::derived::{crossing, crossing_words, samples, size_words, surface};
use super::points::{
    DELAYS_MS, FAR_MBIT, FAR_SIZES, GONE_MBIT, GONE_SIZE, HITS_MBIT, HITS_SIZE, MBIT_FAST, MBIT_SLOW, MBITS,
    SIZE_SMALL, SIZES,
};
use super::regression::{Sample, Terms};
use super::{ADAPTIVE, NODES, PARTS, arm_name, at, part};
use crate::harness::{Claim, Judgement, Results, Spread, Verdict};
use crate::report::short;

/// The limits in Quorate's own targets.
const OVER_SENDING_MAX: f64 = 1.1;
const OF_REPLICATION_MAX: f64 = 0.5;
const OVER_SHARE_MAX: f64 = 1.05;
const OF_REPLICATION_SMALL_MAX: f64 = 1.03;

/// Ratios that differ by less are reported as equal.
const TIE: f64 = 0.05;

/// How far a mean may deviate from the paper's equation.
const EQUATION_ERROR_MAX: f64 = 0.15;

/// How far a time may deviate from a surface that counts as precise.
const SURFACE_ERROR_MAX: f64 = 0.1;

const COPIES: &str = "Replication";
const TWO: &str = "Coding, k=2";
const THREE: &str = "Coding, k=3";
const CHOSEN: &str = "Coding, adaptive";

/// The suspected cause, in the study's measurement, of what it calls the cost of encoding.
const TICK: &str = "in the study's code what a coded write sends leaves with the next tick of 50 ms (src/config/_constants.rs, line 6; \
     src/ec/classes/node/_node.rs, lines 224 to 273 and 557 to 566), and it is answered when it is decided (lines 526 to 547), while a \
     replicated one is answered after the leader's own append (src/standard/classes/node/_node.rs, lines 245 to 250 and 319). In its \
     results (benchmark/results_store/_final) coded writes of 1 KB take 49.4 to 49.5 ms from 10 Mbit/s to 10 Gbit/s.";

fn missing() -> Judgement {
    Judgement::not_measured("a part of what it needs was not measured")
}

pub(super) fn all() -> Vec<Claim> {
    const BOTH: [&str; 3] = [COPIES, TWO, THREE];
    const CODED: [&str; 2] = [TWO, THREE];
    vec![
        Claim::new(
            "At 10 Gbit/s with values of 1 KB replication writes faster than erasure coding",
            "scenario 1; in its results 1.56 against 49.4 ms (medians)",
            small_and_fast,
        )
        .about(&BOTH),
        Claim::new(
            "It does so because of the computation that encoding takes",
            "scenario 1 and the equations: T_EC = T_encoding + T_network + T_consensus",
            encoding_is_the_cost,
        )
        .about(&BOTH),
        Claim::new(
            "At 1 Mbit/s with values of 200 to 1000 KB erasure coding writes faster",
            "scenario 2; in its results 0.61 to 0.86 of replication's time (medians)",
            large_and_slow,
        )
        .about(&BOTH),
        Claim::new(
            "Erasure coding writes faster at up to 10 Mbit/s for values of 500 KB and more",
            "performance boundary; in its results at 13 of 15 conditions of 600 KB and more, up to 70 Mbit/s (means)",
            up_to_ten_megabits,
        )
        .about(&BOTH),
        Claim::new(
            "Erasure coding suits objects of more than 500 KB, over which the cost of encoding is spread",
            "discussion; in its results it is faster from 200 KB on at 10 and 25 Mbit/s",
            only_large_objects,
        )
        .about(&BOTH),
        Claim::new(
            "Erasure coding suits geographically distributed systems with high latency between nodes",
            "discussion; not measured there",
            far_from_each_other,
        )
        .about(&BOTH),
        Claim::new(
            "Coded writes are faster when bandwidth and size are sufficiently large",
            "conclusion; in its results of 1 MB 0.48 of replication's time at 10 Mbit/s, 0.97 at 70 (means)",
            larger_bandwidth,
        )
        .about(&BOTH),
        Claim::new(
            "Ridge regression over bandwidth and size determines precisely where the two cross",
            "three-dimensional model; in its notebook R² 0.780 coded and 0.729 replicated (benchmark_regression.ipynb, line 404)",
            regression_is_precise,
        )
        .about(&BOTH),
        Claim::new(
            "Replication reads faster at all bandwidths and sizes",
            "heat map of reads: no condition in favour of coding",
            reads_favour_copies,
        )
        .about(&BOTH),
        Claim::new(
            "With a cache, reading takes T_data + (T_reconstruction + T_shard) x (1 - hit rate)",
            "equation; no measurement given, and the cache is switched off in its code (src/ec/classes/node/_node.rs, line 283)",
            cached_reads,
        )
        .about(&CODED),
        Claim::new(
            "A high hit rate narrows the gap, though replication keeps its advantage",
            "caching strategy",
            cached_reads_and_copies,
        )
        .about(&BOTH),
        Claim::new(
            "Erasure coding stores less: by (k + kt) / (k + t)",
            "introduction: 1.5 times less for k = 2 and 1.8 times for k = 3, at t = 2",
            storage,
        )
        .about(&BOTH),
        Claim::new(
            "Coding keeps the consistency guarantees of replication",
            "consensus and consistency: identical guarantees",
            same_guarantees,
        )
        .about(&BOTH)
        .decided_by_one(Verdict::DoesNotHold),
        Claim::new(
            "Coding tolerates faults as replication does",
            "erasure coding implementation: fault tolerance equivalent to replication; not measured there",
            same_tolerance,
        )
        .about(&BOTH)
        .decided_by_one(Verdict::DoesNotHold),
        Claim::new(
            "Quorate: a coded write takes at most 1.1 times as long as sending its bytes and two round trips",
            "own target, 200..1000 KB at 10..70 Mbit/s",
            target_sending,
        )
        .about(&CODED),
        Claim::new(
            "Quorate: at k = 3 a write takes at most half as long as a replicated one",
            "own target, 200..1000 KB at 10..70 Mbit/s",
            target_of_replication,
        )
        .about(&[COPIES, THREE]),
        Claim::new(
            "Quorate: bytes on disk and on the wire are at most 1.05 times N / k of the value",
            "own target; of N fragments N - 1 travel",
            target_bytes,
        )
        .about(&CODED),
        Claim::new(
            "Quorate: who lets the nodes choose writes as fast as with the best fixed choice, within a tenth",
            "own target, at the leader",
            target_adaptive,
        )
        .about(&[COPIES, TWO, THREE, CHOSEN]),
        Claim::new(
            "Quorate: 1 KB costs with adaptive coding what it costs without coding, within 3 %",
            "own target",
            target_adaptive_small,
        )
        .about(&[COPIES, CHOSEN]),
        Claim::new(
            "Quorate: a lost node is rebuilt at 80 % of its link, and writes beside that take at most twice as long (p99)",
            "own target",
            target_rebuild,
        )
        .about(&CODED),
    ]
}

/// The median time of an operation at a point.
fn time(results: &Results, parts: usize, part: &str, at: &str, (mbit, bytes): (u64, u64)) -> Option<f64> {
    let selection = results.arm(&arm_name(parts)).with("part", part).with("at", at);
    let selection = if part == part::READ { selection.with("hits", 0) } else { selection };
    selection.with("mbit", mbit).with("bytes", bytes).median("p50_ms")
}

/// The ratio of coding's time to replication's, at every point where both were measured.
fn ratios(
    results: &Results,
    parts: usize,
    part: &str,
    at: &str,
    is_asked: impl Fn(&Sample) -> bool,
) -> Vec<(Sample, f64)> {
    let copies = samples(results, 1, part, at);
    let coded = samples(results, parts, part, at).into_iter().filter(|sample| is_asked(sample));
    coded
        .filter_map(|sample| {
            let same = copies.iter().find(|copy| copy.mbit == sample.mbit && copy.bytes == sample.bytes)?;
            Some((sample, sample.ms / same.ms))
        })
        .collect()
}

/// The ratios of writes at the leader with both k; `None` where one was not measured.
fn write_ratios(results: &Results, is_asked: impl Fn(&Sample) -> bool) -> Option<[Vec<(Sample, f64)>; 2]> {
    let both = [2, 3].map(|parts| ratios(results, parts, part::WRITE, at::LEADER, &is_asked));
    both.iter().all(|ratios| !ratios.is_empty()).then_some(both)
}

fn is_realistic(sample: &Sample) -> bool {
    sample.bytes >= SIZES[0] as f64 && MBITS.iter().any(|mbit| *mbit as f64 == sample.mbit)
}

/// The minimum and maximum ratio, in words.
fn range_words(ratios: &[(Sample, f64)]) -> String {
    let least = ratios.iter().map(|(_, ratio)| *ratio).fold(f64::INFINITY, f64::min);
    let most = ratios.iter().map(|(_, ratio)| *ratio).fold(0.0, f64::max);
    format!("{} to {} of replication's time", short(least), short(most))
}

/// The same for both k.
fn both_words([two, three]: &[Vec<(Sample, f64)>; 2]) -> String {
    format!("k=2: {}; k=3: {}", range_words(two), range_words(three))
}

/// At how many points coding is faster, and the number of points.
fn faster(ratios: &[(Sample, f64)]) -> (usize, usize) {
    (ratios.iter().filter(|(_, ratio)| *ratio < 1.0).count(), ratios.len())
}

fn small_and_fast(results: &Results) -> Judgement {
    let point = (MBIT_FAST, SIZE_SMALL);
    let times = PARTS.map(|parts| time(results, parts, part::WRITE, at::LEADER, point));
    let [Some(copies), Some(two), Some(three)] = times else { return missing() };
    let holds = copies < two.min(three);
    let ours = format!("replication {} ms, k=2 {} ms, k=3 {} ms", short(copies), short(two), short(three));
    let step = |measure: &str| {
        let selection = results.arm(TWO).with("part", part::WRITE).with("at", at::LEADER);
        selection.with("mbit", MBIT_FAST).with("bytes", SIZE_SMALL).median(measure)
    };
    let why = match (step("disperse_ms"), step("order_ms")) {
        (Some(disperse), Some(order)) => format!(
            "A coded write is two steps, each with a sync: at k=2 dispersing takes {} ms and ordering {} ms.",
            short(disperse),
            short(order)
        ),
        _ => String::new(),
    };
    Judgement::reproduced(Some(holds), ours, why, TICK)
}

fn encoding_is_the_cost(results: &Results) -> Judgement {
    let point = (MBIT_FAST, SIZE_SMALL);
    let Some(copies) = time(results, 1, part::WRITE, at::LEADER, point) else { return missing() };
    let (mut words, mut explains, mut is_slower) = (Vec::new(), true, false);
    for parts in [2, 3] {
        let selection = results.arm(&arm_name(parts)).with("part", part::WRITE).with("at", at::LEADER);
        let selection = selection.with("mbit", MBIT_FAST).with("bytes", SIZE_SMALL);
        let (Some(encode), Some(write)) = (selection.median("encode_ms"), selection.median("p50_ms")) else {
            return missing();
        };
        let more = write - copies;
        is_slower |= more > 0.0;
        explains &= more > 0.0 && encode >= more / 2.0;
        words.push(format!(
            "k={parts}: {} ms more than replication, encoding takes {} ms",
            short(more),
            short(encode)
        ));
    }
    let ours = format!("1 KB: {}", words.join("; "));
    if explains {
        return Judgement::new(
            Verdict::Holds,
            ours,
            "Encoding is at least half of what a coded write takes longer.",
        );
    }
    let why = match is_slower {
        true => "Encoding is less than half of what a coded write takes longer.",
        false => "A coded write takes no longer here, so there is nothing to explain.",
    };
    Judgement::reproduced(Some(false), ours, why, TICK)
}

fn large_and_slow(results: &Results) -> Judgement {
    let is_asked = |sample: &Sample| sample.mbit == MBIT_SLOW as f64 && sample.bytes >= SIZES[0] as f64;
    let Some(both) = write_ratios(results, is_asked) else { return missing() };
    let mut sizes: Vec<f64> = both[0].iter().map(|(sample, _)| sample.bytes).collect();
    sizes.sort_by(f64::total_cmp);
    let sizes: Vec<String> = sizes.into_iter().map(size_words).collect();
    let holds = both.iter().flatten().all(|(_, ratio)| *ratio < 1.0);
    Judgement::holds_if(holds, both_words(&both), format!("Measured with {}.", sizes.join(", ")))
}

fn up_to_ten_megabits(results: &Results) -> Judgement {
    let is_large = |sample: &Sample| sample.bytes >= 500e3;
    let below = write_ratios(results, |sample| is_large(sample) && sample.mbit <= 10.0);
    let beyond =
        write_ratios(results, |sample| is_large(sample) && is_realistic(sample) && sample.mbit > 10.0);
    let (Some(below), Some(beyond)) = (below, beyond) else { return missing() };
    let (is_below, count_below) = faster(&below.concat());
    let (is_beyond, count_beyond) = faster(&beyond.concat());
    let crossings = [2, 3].map(|parts| crossing(results, parts, 500e3).map(crossing_words));
    let crossings: Vec<String> =
        (2..).zip(crossings).filter_map(|(parts, words)| Some(format!("k={parts} {}", words?))).collect();
    let ours = format!(
        "up to 10 Mbit/s faster at {is_below} of {count_below}, from 25 to 70 at {is_beyond} of {count_beyond}; by the fitted laws \
         500 KB cross at: {}",
        crossings.join(", ")
    );
    let why = match (is_below == count_below, is_beyond == count_beyond) {
        (true, true) => {
            "It is faster up to 10 Mbit/s, and beyond wherever it was measured, so that this is no boundary."
        }
        (true, false) => "Up to 10 Mbit/s it is faster everywhere, and beyond not everywhere.",
        (false, _) => "Up to 10 Mbit/s it is not faster everywhere.",
    };
    Judgement::holds_if(is_below == count_below && is_beyond < count_beyond, ours, why)
}

fn only_large_objects(results: &Results) -> Judgement {
    let faster_from = |parts: usize, mbit: f64| {
        let ratios = ratios(results, parts, part::WRITE, at::LEADER, |sample| sample.mbit == mbit);
        let faster = ratios.iter().filter(|(_, ratio)| *ratio < 1.0).map(|(sample, _)| sample.bytes);
        (!ratios.is_empty()).then(|| faster.fold(f64::INFINITY, f64::min))
    };
    let words = |bytes: f64| if bytes.is_finite() { size_words(bytes) } else { "none".to_owned() };
    let (mut ours, mut least) = (Vec::new(), f64::INFINITY);
    for parts in [2, 3] {
        let [Some(slow), Some(fast)] = [10.0, 70.0].map(|mbit| faster_from(parts, mbit)) else {
            return missing();
        };
        ours.push(format!("k={parts} {} at 10 Mbit/s, {} at 70", words(slow), words(fast)));
        if parts == 2 {
            least = slow.min(fast);
        }
    }
    let why = match least {
        least if least <= 500e3 => {
            "With k=2, as in the study (etc/config.json, lines 3 and 4), smaller ones are written faster, too."
        }
        least if least.is_finite() => "With k=2, as in the study, only larger ones are written faster.",
        _ => "With k=2, as in the study, no size is written faster.",
    };
    Judgement::holds_if(
        least > 500e3 && least.is_finite(),
        format!("smallest size measured that is written faster: {}", ours.join("; ")),
        why,
    )
}

/// The effect of a delay between nodes on the gain of coding.
fn far_from_each_other(results: &Results) -> Judgement {
    let (mut ours, mut added) = (Vec::new(), Vec::new());
    let (mut is_better, mut is_faster, mut count) = (true, true, 0);
    for bytes in FAR_SIZES {
        for delay_ms in DELAYS_MS {
            let far = PARTS.map(|parts| {
                let selection = results.arm(&arm_name(parts)).with("part", part::FAR).with("mbit", FAR_MBIT);
                selection.with("bytes", bytes).with("delay_ms", delay_ms).median("p50_ms")
            });
            let near = PARTS.map(|parts| time(results, parts, part::WRITE, at::LEADER, (FAR_MBIT, bytes)));
            let (
                [Some(copies), Some(two), Some(three)],
                [Some(copies_near), Some(two_near), Some(three_near)],
            ) = (far, near)
            else {
                continue;
            };
            count += 1;
            let mut words = Vec::new();
            for (parts, coded, coded_near) in [(2, two, two_near), (3, three, three_near)] {
                let (ratio, ratio_near) = (coded / copies, coded_near / copies_near);
                is_better &= ratio <= ratio_near * (1.0 + TIE);
                is_faster &= ratio < 1.0;
                words.push(format!("k={parts} {} instead of {}", short(ratio), short(ratio_near)));
            }
            ours.push(format!(
                "{} with {delay_ms} ms each way: {} of replication's time",
                size_words(bytes as f64),
                words.join(", ")
            ));
            let more = [copies - copies_near, two - two_near, three - three_near].map(short);
            added.push(format!("{} ms to replication, {} to k=2, {} to k=3", more[0], more[1], more[2]));
        }
    }
    if count == 0 {
        return missing();
    }
    let why = match (is_faster, is_better) {
        (true, true) => "With the delay it stays faster, and gains no less.",
        (true, false) => "It stays faster, but the delay takes from what it gains.",
        (false, _) => "With the delay it is not faster everywhere.",
    };
    let holds = is_faster && is_better;
    Judgement::holds_if(holds, ours.join("; "), format!("{why} It adds {}.", added.join("; ")))
}

fn larger_bandwidth(results: &Results) -> Judgement {
    let bytes = SIZES[4] as f64;
    let ratio = |mbit: f64| {
        let both = write_ratios(results, |sample| sample.bytes == bytes && sample.mbit == mbit)?;
        Some(both.map(|ratios| ratios[0].1))
    };
    let (Some(slow), Some(fast), Some(fastest)) = (ratio(10.0), ratio(70.0), ratio(MBIT_FAST as f64)) else {
        return missing();
    };
    let words = |index: usize| {
        format!(
            "k={} {} of replication's time at 10 Mbit/s, {} at 70, {} at 10 Gbit/s",
            index + 2,
            short(slow[index]),
            short(fast[index]),
            short(fastest[index])
        )
    };
    let gains = (0..2).all(|index| fast[index] < slow[index] * (1.0 - TIE));
    let why = match gains {
        true => "With more bandwidth, up to 70 Mbit/s, there is more to gain.",
        false => "With more bandwidth, up to 70 Mbit/s, there is no more to gain.",
    };
    Judgement::holds_if(gains, format!("1 MB: {}; {}", words(0), words(1)), why)
}

fn regression_is_precise(results: &Results) -> Judgement {
    let mut words = Vec::new();
    let (mut worst, mut worst_physical) = (0.0_f64, 0.0_f64);
    let mut conditions = 0;
    for parts in PARTS {
        let fit = |terms| surface(results, parts, part::WRITE, at::LEADER, terms);
        let (Some(plane), Some(physical)) = (fit(Terms::Plane), fit(Terms::Physical)) else {
            return Judgement::not_measured("a surface needs at least five of the 25 conditions in each arm");
        };
        conditions = samples(results, parts, part::WRITE, at::LEADER)
            .iter()
            .filter(|sample| is_realistic(sample))
            .count();
        worst = worst.max(plane.error_max);
        worst_physical = worst_physical.max(physical.error_max);
        let percent = |share: f64| format!("{} %", short(100.0 * share));
        words.push(format!(
            "{}: R² {:.3}, off by up to {}; with size / bandwidth {:.4}, {}",
            arm_name(parts),
            plane.r_squared,
            percent(plane.error_max),
            physical.r_squared,
            percent(physical.error_max)
        ));
    }
    let is_better = worst_physical < worst;
    Judgement::holds_if(
        worst < SURFACE_ERROR_MAX,
        words.join("; "),
        format!(
            "Fitted as in the study's notebook (lines 440 to 456), of bandwidth, size and their product, over {conditions} of its 25 \
             conditions.{}",
            if is_better {
                " A term of size over bandwidth, which its equations imply, leaves less over."
            } else {
                ""
            }
        ),
    )
}

fn reads_favour_copies(results: &Results) -> Judgement {
    let (mut words, mut parts) = (Vec::new(), Vec::new());
    let mut by_place = Vec::new();
    for at in [at::LEADER, at::FOLLOWER] {
        let mut all = Vec::new();
        for parts in [2, 3] {
            let ratios = ratios(results, parts, part::READ, at, |sample| sample.bytes >= SIZES[0] as f64);
            if ratios.is_empty() {
                return missing();
            }
            words.push(format!("k={parts} at the {at}: {}", range_words(&ratios)));
            all.extend(ratios);
        }
        let (faster, count) = faster(&all);
        parts.push(format!("at the {at} coding is faster at {faster} of {count}"));
        by_place.push(faster);
    }
    let sent = |parts| {
        let selection = results.arm(&arm_name(parts)).with("part", part::READ).with("at", at::FOLLOWER);
        selection.with("hits", 0).with("bytes", SIZES[0]).median("sent_per_value").map(short)
    };
    let why = match (&by_place[..], sent(1), sent(3)) {
        ([0, 0], ..) => "Nowhere is coding faster.".to_owned(),
        ([0, _], Some(copies), Some(coded)) => format!(
            "The study reads at the leader (etc/bench.json, line 16), which has a copy. For a read at a follower the busiest node \
             sends {copies} bytes per byte of a value with copies, and {coded} with k=3."
        ),
        _ => "The study reads at the leader (etc/bench.json, line 16).".to_owned(),
    };
    Judgement::holds_if(
        by_place.iter().all(|faster| *faster == 0),
        format!("{}; {}", words.join("; "), parts.join(", ")),
        why,
    )
}

/// Mean read time at a follower by the requested hit rate.
fn by_hits(results: &Results, parts: usize) -> Vec<(f64, f64)> {
    let selection = results.arm(&arm_name(parts)).with("part", part::READ).with("at", at::FOLLOWER);
    let series = selection.with("mbit", HITS_MBIT).with("bytes", HITS_SIZE).series("hits", "mean_ms");
    series.into_iter().map(|(hits, spread)| (hits, spread.median)).collect()
}

/// The measured hit rate, which may differ from the requested one: half of nine reads cannot be hits.
fn found_hits(results: &Results, parts: usize, hits: f64) -> Option<f64> {
    let selection = results.arm(&arm_name(parts)).with("part", part::READ).with("at", at::FOLLOWER);
    let selection = selection.with("mbit", HITS_MBIT).with("bytes", HITS_SIZE).with("hits", hits);
    selection.median("hit_percent")
}

/// The time at a hit rate.
fn at_hits(series: &[(f64, f64)], rate: f64) -> Option<f64> {
    series.iter().find(|(hits, _)| *hits == rate).map(|(_, ms)| *ms)
}

fn cached_reads(results: &Results) -> Judgement {
    let mut words = Vec::new();
    let mut worst: f64 = 0.0;
    for parts in [2, 3] {
        let series = by_hits(results, parts);
        let (Some(none), Some(every)) = (at_hits(&series, 0.0), at_hits(&series, 100.0)) else {
            return missing();
        };
        let between: Vec<_> = series.iter().filter(|(hits, _)| *hits > 0.0 && *hits < 100.0).collect();
        if between.is_empty() {
            return missing();
        }
        for (asked, ms) in between {
            let Some(hits) = found_hits(results, parts, *asked) else { return missing() };
            let expected = every + (none - every) * (1.0 - hits / 100.0);
            worst = worst.max((ms / expected - 1.0).abs());
            words.push(format!(
                "k={parts}, {} % hits: {} ms, by the equation {} ms",
                short(hits),
                short(*ms),
                short(expected)
            ));
        }
    }
    Judgement::holds_if(
        worst <= EQUATION_ERROR_MAX,
        words.join("; "),
        format!(
            "Off by at most {} %; {} % are allowed.",
            short(100.0 * worst),
            short(100.0 * EQUATION_ERROR_MAX)
        ),
    )
}

fn cached_reads_and_copies(results: &Results) -> Judgement {
    let Some(copies) = at_hits(&by_hits(results, 1), 0.0) else { return missing() };
    let mut words = vec![format!("replication {} ms", short(copies))];
    let (mut keeps, mut narrows) = (true, true);
    for parts in [2, 3] {
        let series = by_hits(results, parts);
        let (Some(none), Some(every)) = (at_hits(&series, 0.0), at_hits(&series, 100.0)) else {
            return missing();
        };
        words.push(format!("k={parts} {} ms with none in the cache, {} with all", short(none), short(every)));
        keeps &= every > copies;
        narrows &= every < none;
    }
    let why = match (keeps, narrows) {
        (true, true) => "The cache makes reads of fragments faster, and copies stay faster still.",
        (false, _) => {
            "A hit is faster than a copy, which a follower reads from the leader. The study reads at the leader."
        }
        (true, false) => "The cache makes them no faster.",
    };
    Judgement::holds_if(
        keeps && narrows,
        format!("600 KB at a follower, 40 Mbit/s: {}", words.join(", ")),
        why,
    )
}

fn storage(results: &Results) -> Judgement {
    let size = SIZES[4];
    let stored = |parts| {
        let selection = results.arm(&arm_name(parts)).with("part", part::WRITE).with("bytes", size);
        selection.median("log_per_value")
    };
    let Some(copies) = stored(1) else { return missing() };
    let mut words = vec![format!("replication {} bytes per byte", short(copies))];
    let (mut holds, mut is_by_k) = (true, true);
    for parts in [2, 3] {
        let Some(coded) = stored(parts) else { return missing() };
        let claimed = (parts + parts * 2) as f64 / (parts + 2) as f64;
        let saved = copies / coded;
        holds &= saved >= claimed * (1.0 - TIE);
        is_by_k &= (saved / parts as f64 - 1.0).abs() <= TIE;
        words.push(format!("k={parts} {} ({} times less)", short(coded), short(saved)));
    }
    let why = match (holds, is_by_k) {
        (true, true) => {
            "It saves k times: the formula sets k + t fragments beside t + 1 copies, while five nodes keep five of either, here and \
             in the study (etc/config.json, lines 3 and 4)."
        }
        (true, false) => "It saves at least as much.",
        (false, _) => "It saves less.",
    };
    Judgement::holds_if(holds, words.join(", "), why)
}

fn same_guarantees(results: &Results) -> Judgement {
    let of = |arm: &str, verdict: Option<&str>| {
        let selection = results.arm(arm);
        let checked = selection.rows().iter().filter_map(|row| row.checked.as_ref());
        checked.filter(|checked| verdict.is_none_or(|verdict| checked.verdict == verdict)).count()
    };
    let arms = [COPIES, TWO, THREE];
    let count = |verdict| arms.map(|arm| of(arm, verdict));
    let (all, wrong, unknown) = (count(None), count(Some("violation")), count(Some("unknown")));
    let ours: Vec<String> = (0..arms.len())
        .map(|index| {
            format!(
                "{}: {} histories, {} not linearizable, {} unknown",
                arms[index], all[index], wrong[index], unknown[index]
            )
        })
        .collect();
    let verdict = match (wrong.iter().any(|wrong| *wrong > 0), all.contains(&0)) {
        (true, _) => Verdict::DoesNotHold,
        (false, true) => return Judgement::not_measured("histories are checked with --verify"),
        (false, false) if unknown.iter().any(|unknown| *unknown > 0) => Verdict::Undecided,
        (false, false) => Verdict::Holds,
    };
    let why = match verdict {
        Verdict::DoesNotHold => "An answer was wrong.",
        Verdict::Undecided => "Not every history could be checked.",
        _ => {
            "Every history of this run is linearizable, reads while nodes are gone among them. That is of this project's coding; the \
             study's own was not run."
        }
    };
    Judgement::new(verdict, ours.join("; "), why)
}

/// Reads while the maximum number of nodes is down.
fn same_tolerance(results: &Results) -> Judgement {
    let mut words = Vec::new();
    let mut failed = Vec::new();
    for parts in PARTS {
        let selection = results.arm(&arm_name(parts)).with("part", part::DEGRADED).with("at", at::LEADER);
        let selection = selection.with("gone", 2);
        let sum =
            |measure: &str| selection.rows().iter().filter_map(|row| row.figures.get(measure)).sum::<f64>();
        let Some(gone_ms) = selection.median("p50_ms") else { return missing() };
        let failures = sum("failure") + sum("unknown");
        failed.push(failures > 0.0);
        let whole = time(results, parts, part::READ, at::LEADER, (GONE_MBIT, GONE_SIZE));
        let beside = whole.map_or(String::new(), |ms| format!(", with all there {}", short(ms)));
        words.push(format!(
            "{}: {} of {} reads failed, {} ms{beside}",
            arm_name(parts),
            short(failures),
            short(failures + sum("success")),
            short(gone_ms)
        ));
    }
    let verdict = match (failed[1] || failed[2], failed[0]) {
        (true, _) => Verdict::DoesNotHold,
        (false, true) => Verdict::Undecided,
        (false, false) => Verdict::Holds,
    };
    let why = match verdict {
        Verdict::DoesNotHold => "Coded reads failed.",
        Verdict::Undecided => "Reads of copies failed, so that there is nothing to compare with.",
        _ => {
            "With two nodes of five gone every read is answered. In the study k = 2 of five (etc/config.json, lines 3 and 4) with a \
             quorum that is left to its library (src/ec/classes/node/_node.rs, line 100): if that is a majority, as is suspected and \
             was not tried, two failures can leave one fragment of a value that was acknowledged."
        }
    };
    Judgement::new(verdict, format!("1 MB at the leader, 70 Mbit/s: {}", words.join("; ")), why)
}

fn target_sending(results: &Results) -> Judgement {
    let mut words = Vec::new();
    let (mut within, mut count) = (0, 0);
    for parts in [2, 3] {
        let selection = results.arm(&arm_name(parts)).with("part", part::WRITE).with("at", at::LEADER);
        let mut all = Vec::new();
        for mbit in MBITS {
            let series = selection.clone().with("mbit", mbit).series("bytes", "over_sending").into_iter();
            let large = series.filter(|(bytes, _)| *bytes >= SIZES[0] as f64);
            all.extend(large.map(|(_, spread)| spread.median));
        }
        let Some(spread) = Spread::of(all.clone()) else { return missing() };
        within += all.iter().filter(|ratio| **ratio <= OVER_SENDING_MAX).count();
        count += all.len();
        words.push(format!(
            "k={parts}: {} to {}, median {}",
            short(spread.min),
            short(spread.max),
            short(spread.median)
        ));
    }
    let ours = format!("{}; within 1.1 at {within} of {count}", words.join("; "));
    Judgement::holds_if(
        within == count,
        ours,
        "The median latency over the time that the bytes which the coordinator sent take on its interface. The links have no delay, \
         so the round trips count as nothing; syncs are part of the latency.",
    )
}

fn target_of_replication(results: &Results) -> Judgement {
    let ratios = ratios(results, 3, part::WRITE, at::LEADER, is_realistic);
    if ratios.is_empty() {
        return missing();
    }
    let within = ratios.iter().filter(|(_, ratio)| *ratio <= OF_REPLICATION_MAX).count();
    Judgement::holds_if(
        within == ratios.len(),
        format!("{}; within a half at {within} of {}", range_words(&ratios), ratios.len()),
        "By what is sent it would be a third.",
    )
}

fn target_bytes(results: &Results) -> Judgement {
    let mut words = Vec::new();
    let mut worst: f64 = 0.0;
    for parts in [2, 3] {
        let selection = results.arm(&arm_name(parts)).with("part", part::WRITE).with("at", at::LEADER);
        let of = |measure: &str, share: f64| {
            let mut all = Vec::new();
            for bytes in SIZES {
                all.extend(selection.clone().with("bytes", bytes).median(measure).map(|sum| sum / share));
            }
            Spread::of(all).map(|spread| spread.max)
        };
        let (disk, wire) = (
            of("log_per_value", NODES as f64 / parts as f64),
            of("wire_per_value", (NODES - 1) as f64 / parts as f64),
        );
        for (name, over) in [("disk", disk), ("wire", wire)] {
            let Some(over) = over else { return missing() };
            worst = worst.max(over);
            words.push(format!("k={parts} {name} {}", short(over)));
        }
    }
    Judgement::holds_if(
        worst <= OVER_SHARE_MAX,
        format!("at most, over 200..1000 KB: {}", words.join(", ")),
        "On the disk N fragments, on the wire N - 1: the coordinator keeps its own.",
    )
}

fn target_adaptive(results: &Results) -> Judgement {
    let fixed = PARTS.map(|parts| samples(results, parts, part::WRITE, at::LEADER));
    let (mut ratios, mut worst) = (Vec::new(), None);
    for chosen in samples(results, ADAPTIVE, part::WRITE, at::LEADER) {
        let same = |sample: &&Sample| sample.mbit == chosen.mbit && sample.bytes == chosen.bytes;
        let all = fixed.iter().filter_map(|samples| samples.iter().find(same)).map(|sample| sample.ms);
        let Some(best) = all.min_by(f64::total_cmp) else { continue };
        let ratio = chosen.ms / best;
        if worst.as_ref().is_none_or(|(other, _)| ratio > *other) {
            worst = Some((ratio, format!("{} at {} Mbit/s", size_words(chosen.bytes), short(chosen.mbit))));
        }
        ratios.push(ratio);
    }
    let (Some(spread), Some((_, place))) = (Spread::of(ratios.clone()), worst) else { return missing() };
    let within = ratios.iter().filter(|ratio| **ratio <= OVER_SENDING_MAX).count();
    Judgement::holds_if(
        within == ratios.len(),
        format!(
            "{} to {} of the best one's time ({place}), median {}; within 1.1 at {within} of {}",
            short(spread.min),
            short(spread.max),
            short(spread.median),
            ratios.len()
        ),
        "The best of replication, k = 2 and k = 3 in the same run, for each bandwidth and size. The first values at a new bandwidth \
         are chosen by what was measured before.",
    )
}

fn target_adaptive_small(results: &Results) -> Judgement {
    let point = (MBIT_FAST, SIZE_SMALL);
    let time = |parts| time(results, parts, part::WRITE, at::LEADER, point);
    let (Some(chosen), Some(copies)) = (time(ADAPTIVE), time(1)) else { return missing() };
    let ratio = chosen / copies;
    Judgement::holds_if(
        ratio <= OF_REPLICATION_SMALL_MAX,
        format!("{} of {} ms", short(ratio), short(copies)),
        "The length is compared with the threshold, and nothing else is done. The two are different starts of five nodes.",
    )
}

fn target_rebuild(results: &Results) -> Judgement {
    /// With fewer writes the 99th percentile is the maximum, or close to it: a single slow write decides.
    const WRITES_MIN: f64 = 300.0;
    let mut words = Vec::new();
    let (mut is_slow, mut holds_up, mut may_hold_up) = (false, false, false);
    for parts in [2, 3] {
        let selection = results.arm(&arm_name(parts)).with("part", part::REBUILD);
        let Some(share) = selection.median("rebuild_of_link") else { return missing() };
        is_slow |= share < 80.0;
        let mut text = format!("{} {} %", arm_name(parts), short(share));
        let writes = selection.median("beside_writes").unwrap_or(0.0);
        if let Some(times) = selection.median("beside_over_alone") {
            let is_long = times > 2.0;
            holds_up |= is_long && writes >= WRITES_MIN;
            may_hold_up |= is_long;
            text.push_str(&format!(", {} writes {} times as long", short(writes), short(times)));
        }
        words.push(text);
    }
    let verdict = match (is_slow || holds_up, may_hold_up) {
        (true, _) => Verdict::DoesNotHold,
        (false, true) => Verdict::Undecided,
        (false, false) => Verdict::Holds,
    };
    let why =
        "The link is measured while nobody writes, the writes while another node is rebuilt beside them.";
    let few = " So few writes have no 99th percentile: it is the longest of them; a full run has more.";
    Judgement::new(
        verdict,
        words.join("; "),
        format!("{why}{}", if verdict == Verdict::Undecided { few } else { "" }),
    )
}

#[cfg(test)]
mod tests;
