//! What is computed from the measured times: surfaces, their crossings, heat maps, and the input of the cost model.

use std::path::Path;

use anyhow::{Context, Result};
use coding::cost::Work;

use super::points::{MBIT_FAST, MBITS, SIZES};
use super::regression::{Crossing, Fit, Sample, Terms, boundary};
use super::{ADAPTIVE, NODES, PARTS, arm_name, at, colour, part};
use crate::harness::{Curve, Curves, Derived, Drawing, Folder, HeatMap, Listing, Results, Stacks, Study};
use crate::report::{Colour, short};

/// The range of bandwidths over which surfaces are compared, in Mbit/s.
const RANGE: (f64, f64) = (1.0, 10_000.0);

/// The range of sizes over which the boundary is drawn, in bytes.
const BOUNDARY_BYTES: (f64, f64) = (1e3, 1e6);
const BOUNDARY_POINTS: u32 = 60;

/// The time of an operation of an arm at each bandwidth and size.
pub(super) fn samples(results: &Results, parts: usize, part: &str, at: &str) -> Vec<Sample> {
    let selection = results.arm(&arm_name(parts)).with("part", part).with("at", at);
    let selection = if part == part::READ { selection.with("hits", 0) } else { selection };
    let mut samples = Vec::new();
    for mbit in selection.values("mbit") {
        for (bytes, spread) in selection.clone().with("mbit", mbit).series("bytes", "p50_ms") {
            let Ok(mbit) = mbit.parse() else { continue };
            samples.push(Sample { mbit, bytes, ms: spread.median });
        }
    }
    samples
}

/// Whether a sample belongs to the study's third scenario: the 25 conditions to which it fits its surfaces.
fn is_realistic(sample: &Sample) -> bool {
    let is_mbit = MBITS.iter().any(|mbit| *mbit as f64 == sample.mbit);
    is_mbit && SIZES.iter().any(|bytes| *bytes as f64 == sample.bytes)
}

/// The surface of an arm, fitted to its part of the 25 conditions.
pub(super) fn surface(results: &Results, parts: usize, part: &str, at: &str, terms: Terms) -> Option<Fit> {
    let samples = samples(results, parts, part, at);
    let samples: Vec<Sample> = match terms {
        Terms::Plane => samples.into_iter().filter(is_realistic).collect(),
        Terms::Physical => samples.into_iter().filter(|sample| sample.mbit < MBIT_FAST as f64).collect(),
    };
    Fit::of(terms, &samples)
}

pub(super) fn all(results: &Results) -> Derived {
    let mut drawings = Vec::new();
    for (part, paper) in [(part::WRITE, "heat map of writes"), (part::READ, "heat map of reads")] {
        for at in [at::LEADER, at::FOLLOWER] {
            for parts in PARTS.into_iter().filter(|parts| *parts > 1) {
                drawings.extend(heat_map(results, parts, part, at, paper).map(Drawing::HeatMap));
            }
        }
    }
    drawings.extend(boundaries(results).map(Drawing::Curves));
    drawings.extend(surfaces(results).map(Drawing::Curves));
    for parts in PARTS {
        drawings.extend(plane(results, parts).into_iter().flatten().map(Drawing::Curves));
    }
    drawings.extend(hits(results).map(Drawing::Curves));
    for mbit in [MBIT_FAST, MBITS[4], MBITS[0]] {
        drawings.extend(steps(results, mbit).map(Drawing::Stacks));
    }
    Derived {
        drawings,
        listings: [surface_list(results), crossing_list(results)].into_iter().flatten().collect(),
    }
}

/// A field for each bandwidth and size: coding's time divided by replication's.
fn heat_map(results: &Results, parts: usize, part: &str, at: &str, paper: &'static str) -> Option<HeatMap> {
    let (coded, copies) = (samples(results, parts, part, at), samples(results, 1, part, at));
    let sorted = |of: fn(&Sample) -> f64| {
        let mut values: Vec<f64> = coded.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        values
    };
    let (mbits, sizes) = (sorted(|sample| sample.mbit), sorted(|sample| sample.bytes));
    let find = |samples: &[Sample], mbit: f64, bytes: f64| {
        samples.iter().find(|sample| sample.mbit == mbit && sample.bytes == bytes).map(|sample| sample.ms)
    };
    let ratio = |mbit: f64, bytes: f64| Some(find(&coded, mbit, bytes)? / find(&copies, mbit, bytes)?);
    let ratios: Vec<Vec<Option<f64>>> =
        sizes.iter().map(|bytes| mbits.iter().map(|mbit| ratio(*mbit, *bytes)).collect()).collect();
    if !ratios.iter().flatten().any(Option::is_some) {
        return None;
    }
    let whose = if at == at::LEADER { "the leader" } else { "a follower" };
    let operations = if part == part::WRITE { "Writes" } else { "Reads, none from a cache," };
    Some(HeatMap {
        file: format!("heat-{part}-k{parts}-{at}"),
        title: format!("{operations} at {whose}: time with k={parts} over that of replication"),
        paper: if at == at::LEADER { paper } else { "" },
        x_title: "Bandwidth per node, each way (Mbit/s)",
        y_title: "Value size",
        columns: mbits.iter().map(|mbit| short(*mbit)).collect(),
        rows: sizes.iter().map(|bytes| size_words(*bytes)).collect(),
        ratios,
        first: (format!("k={parts}"), colour(3)),
        second: ("replication".to_owned(), colour(1)),
    })
}

pub(super) fn size_words(bytes: f64) -> String {
    if bytes >= 1e6 { format!("{} MB", short(bytes / 1e6)) } else { format!("{} KB", short(bytes / 1e3)) }
}

/// The bandwidth up to which coding is faster, by size.
fn boundaries(results: &Results) -> Option<Curves> {
    let copies = surface(results, 1, part::WRITE, at::LEADER, Terms::Physical)?;
    let mut curves = Vec::new();
    for parts in PARTS.into_iter().filter(|parts| *parts > 1) {
        let Some(coded) = surface(results, parts, part::WRITE, at::LEADER, Terms::Physical) else { continue };
        let (from, to) = BOUNDARY_BYTES;
        let sizes = (0..=BOUNDARY_POINTS)
            .map(|step| from * (to / from).powf(f64::from(step) / f64::from(BOUNDARY_POINTS)));
        let points: Vec<(f64, f64)> = sizes
            .filter_map(|bytes| match boundary(&coded, &copies, bytes, RANGE) {
                Crossing::At(mbit) => Some((bytes / 1e3, mbit)),
                Crossing::Always => Some((bytes / 1e3, RANGE.1)),
                Crossing::Never => None,
            })
            .collect();
        if !points.is_empty() {
            curves.push(Curve {
                name: format!("below: k={parts} is faster"),
                colour: colour(parts),
                points,
                is_joined: true,
                is_marked: false,
            });
        }
    }
    (!curves.is_empty()).then(|| Curves {
        file: "boundary-write".to_owned(),
        title: "Below which bandwidth coding writes faster, by the surfaces fitted up to 70 Mbit/s"
            .to_owned(),
        paper: "performance boundary",
        x_title: "Value size (KB)",
        y_title: "Bandwidth per node (Mbit/s)",
        logarithmic: (true, true),
        curves,
    })
}

/// Surfaces as lines of equal bandwidth, with the measured points.
fn surfaces(results: &Results) -> Option<Curves> {
    let mut curves = Vec::new();
    for parts in PARTS {
        let measured = samples(results, parts, part::WRITE, at::LEADER);
        let Some(fit) = surface(results, parts, part::WRITE, at::LEADER, Terms::Physical) else { continue };
        for (mbit, shade) in [(10.0, 0), (70.0, 45)] {
            let points: Vec<(f64, f64)> = measured
                .iter()
                .filter(|sample| sample.mbit == mbit)
                .map(|sample| (sample.bytes / 1e3, sample.ms))
                .collect();
            let Some((last, _)) = points.last().copied() else { continue };
            let line = (1..=50).map(|step| {
                let kilobytes = last * f64::from(step) / 50.0;
                (kilobytes, fit.ms(mbit, kilobytes * 1e3))
            });
            let colour = colour(parts).lighter(shade);
            let name = format!("{}, {mbit} Mbit/s", arm_name(parts));
            curves.push(Curve { name, colour, points: line.collect(), is_joined: true, is_marked: false });
            curves.push(Curve { name: String::new(), colour, points, is_joined: false, is_marked: true });
        }
    }
    (!curves.is_empty()).then(|| Curves {
        file: "surface-write".to_owned(),
        title: "Writes: measured (marks), and the fitted surfaces (lines) at two bandwidths".to_owned(),
        paper: "three-dimensional performance model",
        x_title: "Value size (KB)",
        y_title: "Median latency (ms)",
        logarithmic: (false, false),
        curves,
    })
}

/// The study's surface of an arm in slices, a line for each bandwidth, with the measured points; and its residuals.
fn plane(results: &Results, parts: usize) -> Option<[Curves; 2]> {
    let fit = surface(results, parts, part::WRITE, at::LEADER, Terms::Plane)?;
    let measured = samples(results, parts, part::WRITE, at::LEADER);
    let (mut slices, mut left) = (Vec::new(), Vec::new());
    for (mbit, shade) in MBITS.into_iter().zip([0, 15, 30, 45, 60]) {
        let colour = colour(parts).lighter(shade);
        let here = || measured.iter().filter(|sample| is_realistic(sample) && sample.mbit == mbit as f64);
        if here().next().is_none() {
            continue;
        }
        let curve = |name: String, points: Vec<(f64, f64)>, is_joined: bool| Curve {
            name,
            colour,
            points,
            is_joined,
            is_marked: !is_joined,
        };
        let ends = [SIZES[0], SIZES[4]].map(|bytes| (bytes as f64 / 1e3, fit.ms(mbit as f64, bytes as f64)));
        slices.push(curve(format!("{mbit} Mbit/s"), ends.to_vec(), true));
        let points = here().map(|sample| (sample.bytes / 1e3, sample.ms)).collect();
        slices.push(curve(String::new(), points, false));
        let residual = |sample: &Sample| (sample.bytes / 1e3, sample.ms - fit.ms(sample.mbit, sample.bytes));
        left.push(Curve {
            is_marked: true,
            ..curve(format!("{mbit} Mbit/s"), here().map(residual).collect(), true)
        });
    }
    let name = arm_name(parts);
    let curves = |file: &str, title: String, y_title: &'static str, curves: Vec<Curve>| Curves {
        file: format!("{file}-{parts}"),
        title,
        paper: "three-dimensional performance model",
        x_title: "Value size (KB)",
        y_title,
        logarithmic: (false, false),
        curves,
    };
    let title =
        format!("Writes, {name}: measured (marks), the study's plane (lines), R² {:.3}", fit.r_squared);
    let rest = format!("Writes, {name}: measured time less that of the study's plane");
    Some([
        curves("plane", title, "Median latency (ms)", slices),
        curves("plane-residuals", rest, "Residual (ms)", left),
    ])
}

/// Read time by the share of reads answered from a cache.
fn hits(results: &Results) -> Option<Curves> {
    let mut curves = Vec::new();
    for parts in PARTS.into_iter().filter(|parts| *parts > 1) {
        let selection = results.arm(&arm_name(parts)).with("part", part::READ).with("at", at::FOLLOWER);
        let selection =
            selection.with("mbit", super::points::HITS_MBIT).with("bytes", super::points::HITS_SIZE);
        let points: Vec<(f64, f64)> =
            selection.series("hits", "mean_ms").into_iter().map(|(x, spread)| (x, spread.median)).collect();
        if points.len() > 1 {
            curves.push(Curve {
                name: arm_name(parts),
                colour: colour(parts),
                points,
                is_joined: true,
                is_marked: true,
            });
        }
    }
    if curves.is_empty() {
        return None;
    }
    let copies = results.arm(&arm_name(1)).with("part", part::READ).with("at", at::FOLLOWER);
    let copies = copies.with("mbit", super::points::HITS_MBIT).with("bytes", super::points::HITS_SIZE);
    if let Some(ms) = copies.median("mean_ms") {
        let points = vec![(0.0, ms), (100.0, ms)];
        curves.push(Curve {
            name: arm_name(1),
            colour: colour(1),
            points,
            is_joined: true,
            is_marked: false,
        });
    }
    Some(Curves {
        file: "read-by-hits".to_owned(),
        title: "Reads of 600 KB at a follower by cache hits, 40 Mbit/s".to_owned(),
        paper: "equation of cached reads",
        x_title: "Reads found in the cache (%)",
        y_title: "Mean latency (ms)",
        logarithmic: (false, false),
        curves,
    })
}

/// The steps that make up the time of a write of the largest value, for each k.
fn steps(results: &Results, mbit: u64) -> Option<Stacks> {
    let bytes = SIZES[4];
    let bar = |parts: usize| {
        let selection = results.arm(&arm_name(parts)).with("part", part::WRITE).with("at", at::LEADER);
        let selection = selection.with("mbit", mbit).with("bytes", bytes);
        let step = |measure| selection.median(measure).unwrap_or(0.0);
        let (all, order) = (selection.median("p50_ms")?, selection.median("order_ms")?);
        let known = [step("cut_ms"), step("disperse_ms"), order, step("apply_ms")];
        let rest = (all - known.iter().sum::<f64>()).max(0.0);
        Some((arm_name(parts), [&known[..], &[rest]].concat()))
    };
    let bars: Vec<(String, Vec<f64>)> = PARTS.into_iter().chain([ADAPTIVE]).filter_map(bar).collect();
    let step = |name: &str, colour| (name.to_owned(), colour);
    let bandwidth = if mbit == MBIT_FAST { "10 Gbit/s asked".to_owned() } else { format!("{mbit} Mbit/s") };
    (!bars.is_empty()).then(|| Stacks {
        file: format!("steps-{mbit}"),
        title: format!(
            "Where the time of a write of {} at the leader goes, {bandwidth}",
            size_words(bytes as f64)
        ),
        paper: "operation-level tracing",
        x_title: "Median time (ms)",
        steps: vec![
            step("encode", Colour::PAPER),
            step("disperse", Colour::ACKS_NONE),
            step("order", Colour::ACKS_ALL),
            step("apply", Colour::REDIS_ONE),
            step("client and the rest", Colour::OTHER.lighter(50)),
        ],
        bars,
    })
}

fn surface_list(results: &Results) -> Option<Listing> {
    let mut rows = Vec::new();
    for (part, at) in [(part::WRITE, at::LEADER), (part::WRITE, at::FOLLOWER), (part::READ, at::FOLLOWER)] {
        for parts in PARTS {
            for (terms, words) in [
                (Terms::Plane, "the study's: ridge of bandwidth, size and their product"),
                (Terms::Physical, "fixed + size + size / bandwidth"),
            ] {
                let Some(fit) = surface(results, parts, part, at, terms) else { continue };
                let law = fit.physical().map_or(String::new(), |(fixed, megabyte, times)| {
                    format!(
                        "{} ms + {} ms/MB + {} x size / bandwidth",
                        short(fixed),
                        short(megabyte),
                        short(times)
                    )
                });
                let percent = |share: f64| format!("{} %", short(100.0 * share));
                rows.push(vec![
                    format!("{}, {part} at the {at}", arm_name(parts)),
                    words.to_owned(),
                    format!("{:.4}", fit.r_squared),
                    percent(fit.error_median),
                    percent(fit.error_max),
                    law,
                ]);
            }
        }
    }
    (!rows.is_empty()).then(|| Listing {
        title: "Fitted surfaces: response time over bandwidth and size".to_owned(),
        paper: "mathematical performance modelling",
        head: ["Surface", "Terms", "R²", "Residual, median", "Residual, greatest", "Law"]
            .map(str::to_owned)
            .to_vec(),
        rows,
    })
}

/// The bandwidth up to which coding is faster, in words.
pub(super) fn crossing_words(crossing: Crossing) -> String {
    match crossing {
        Crossing::Never => "never".to_owned(),
        Crossing::At(mbit) if mbit > MBITS[4] as f64 => {
            format!("about {} Mbit/s, beyond what was measured", short(mbit))
        }
        Crossing::At(mbit) => format!("{} Mbit/s", short(mbit)),
        Crossing::Always => "more than this machine carries (10 Gbit/s asked)".to_owned(),
    }
}

/// The bandwidth up to which k parts of a size are written faster than copies, by the fitted surfaces; and beyond the
/// range that these were fitted to, by measurements on links that are as fast as the machine.
pub(super) fn crossing(results: &Results, parts: usize, bytes: f64) -> Option<Crossing> {
    let copies = surface(results, 1, part::WRITE, at::LEADER, Terms::Physical)?;
    let coded = surface(results, parts, part::WRITE, at::LEADER, Terms::Physical)?;
    let crossing = boundary(&coded, &copies, bytes, RANGE);
    let is_within = matches!(crossing, Crossing::At(mbit) if mbit <= MBITS[4] as f64);
    match is_faster_unshaped(results, parts, bytes) {
        Some(true) if !is_within => Some(Crossing::Always),
        _ => Some(crossing),
    }
}

/// Whether coding was faster at 10 Gbit/s, for the nearest measured size.
fn is_faster_unshaped(results: &Results, parts: usize, bytes: f64) -> Option<bool> {
    let fast = |parts| {
        let samples = samples(results, parts, part::WRITE, at::LEADER).into_iter();
        samples.filter(|sample| sample.mbit == MBIT_FAST as f64).collect::<Vec<_>>()
    };
    let distance = |sample: &Sample| (sample.bytes / bytes).ln().abs();
    let coded = fast(parts).into_iter().min_by(|a, b| distance(a).total_cmp(&distance(b)))?;
    let copies = fast(1).into_iter().find(|sample| sample.bytes == coded.bytes)?;
    Some(coded.ms < copies.ms)
}

fn crossing_list(results: &Results) -> Option<Listing> {
    let sizes = [1e3, 8e3, 32e3, 100e3, 200e3, 400e3, 600e3, 800e3, 1000e3];
    let rows: Vec<Vec<String>> = sizes
        .iter()
        .filter_map(|bytes| {
            let words = |parts| crossing(results, parts, *bytes).map(crossing_words);
            let both: Vec<Option<String>> = PARTS.into_iter().filter(|parts| *parts > 1).map(words).collect();
            both.iter().any(Option::is_some).then(|| {
                let texts = both.into_iter().map(|words| words.unwrap_or_else(|| "–".to_owned()));
                [size_words(*bytes)].into_iter().chain(texts).collect()
            })
        })
        .collect();
    (!rows.is_empty()).then(|| Listing {
        title: "Up to which bandwidth coding writes faster than replication, at the leader".to_owned(),
        paper: "performance boundary",
        head: ["Size", "k=2", "k=3"].map(str::to_owned).to_vec(),
        rows,
    })
}

/// The input of the cost model, as fitted by a run of this study on its machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FittedWork {
    /// The fitted times of a node's work.
    pub work: Work,
    /// The number of nodes of the cluster.
    pub nodes: usize,
}

/// Returns what a run of this study in a folder has fitted.
///
/// # Errors
/// The folder holds no run of this study, or too little of it was measured.
pub fn fitted(folder: &Path) -> Result<FittedWork> {
    let study = super::CodingCrossover;
    let parameters = study.parameters().len();
    let (run, results) = Folder::read(folder, |name| (name == study.name()).then_some(parameters))?;
    work(&results)
        .map(|work| FittedWork { work, nodes: NODES })
        .with_context(|| format!("too little of {} was measured in {}", run.settings.study, folder.display()))
}

/// The model's constants from the surfaces. A constant that was not measured keeps its default.
pub(super) fn work(results: &Results) -> Option<Work> {
    let usual = Work::default();
    let copies = surface(results, 1, part::WRITE, at::LEADER, Terms::Physical)?;
    let (fixed_ms, per_megabyte_ms, _) = copies.physical()?;
    let order = (fixed_ms / 1e3).max(0.0);
    // A coordinator handles the value once for its client and N times for the nodes.
    let handle = (per_megabyte_ms / 1e9 / (1 + NODES) as f64).max(0.0);
    let coded = PARTS.into_iter().filter(|parts| *parts > 1).filter_map(|parts| {
        let (fixed_ms, ..) = surface(results, parts, part::WRITE, at::LEADER, Terms::Physical)?.physical()?;
        Some((fixed_ms / 1e3 - order).max(0.0))
    });
    let coded: Vec<f64> = coded.collect();
    let disperse = match coded.len() {
        0 => usual.disperse,
        count => coded.iter().sum::<f64>() / count as f64,
    };
    let reads = samples(results, 1, part::READ, at::LEADER);
    let read = reads.iter().map(|sample| sample.ms / 1e3).fold(f64::INFINITY, f64::min);
    let read = if read.is_finite() { read } else { usual.read };
    Some(Work { order, disperse, read, handle, ..usual })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Row;

    /// Rows that follow a law: a fixed time in milliseconds, and how many times a value is sent.
    fn rows(results: &mut Results, parts: usize, fixed: f64, times: f64) {
        for mbit in MBITS {
            for bytes in SIZES {
                let ms = fixed + times * bytes as f64 * 8.0 / mbit as f64 / 1e3;
                let point = ["write", "leader", &mbit.to_string(), &bytes.to_string(), ""];
                results.push(Row {
                    arm: arm_name(parts),
                    point: point.map(str::to_owned).to_vec(),
                    repeat: 1,
                    figures: [("p50_ms".to_owned(), ms)].into_iter().collect(),
                    checked: None,
                });
            }
        }
    }

    fn results() -> Results {
        let mut results = Results::new(&["part", "at", "mbit", "bytes", "hits"], &["p50_ms"]);
        rows(&mut results, 1, 4.0, 4.0);
        rows(&mut results, 2, 12.0, 2.0);
        results
    }

    #[test]
    fn the_boundary_is_found_in_the_rows() {
        // 8 ms more, but 2 values fewer to send: 100 KB are 0.8 Mbit, so that is 1.6 Mbit in 8 ms.
        match crossing(&results(), 2, 100e3) {
            Some(Crossing::At(mbit)) => assert!((mbit / 200.0 - 1.0).abs() < 0.02, "{mbit}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(crossing(&results(), 3, 100e3), None, "it was not measured");
    }

    #[test]
    fn only_measured_points_are_drawn() {
        let derived = all(&results());
        let files: Vec<&str> = derived.drawings.iter().map(|drawing| drawing.heading().0).collect();
        assert_eq!(
            files,
            [
                "heat-write-k2-leader",
                "boundary-write",
                "surface-write",
                "plane-1",
                "plane-residuals-1",
                "plane-2",
                "plane-residuals-2"
            ]
        );
        let Some(Drawing::Curves(left)) = derived.drawings.get(4) else {
            panic!("what the plane leaves over")
        };
        // Five bandwidths; at the slowest the times deviate most from a plane.
        assert_eq!(left.curves.len(), 5);
        assert!(left.curves[0].points[4].1 > 500.0, "{:?}", left.curves[0].points);
        let Some(Drawing::HeatMap(map)) = derived.drawings.first() else { panic!("a map comes first") };
        let least = map.ratios[4][0].unwrap();
        assert!((0.5..0.51).contains(&least), "1 MB at 10 Mbit/s: {least}");
        assert_eq!(derived.listings.len(), 2);
        assert!(
            all(&Results::new(&["part", "at", "mbit", "bytes", "hits"], &["p50_ms"])).drawings.is_empty()
        );
    }

    #[test]
    fn the_models_constants_come_from_the_rows() {
        let work = work(&results()).unwrap();
        assert!((work.order - 4e-3).abs() < 1e-5 && (work.disperse - 8e-3).abs() < 1e-4, "{work:?}");
        assert!(work.handle < 1e-11, "{work:?}");
        assert_eq!(work.read, Work::default().read, "no read was measured");
    }
}
