//! Two servers in one run, alternating: machines are noisy, so only a ratio of measurements from the same
//! minutes counts.

use std::fmt;

use serde_json::{Map, Value, json};

use super::options::Options;
use super::outcome::Outcome;
use super::report::{Report, Row, describe, grouped, rounded};
use super::steal::DISTURBED_PERCENT;
use super::{Error, Progress, reach, run};

/// The reports of A and B in each round.
pub struct Comparison {
    rounds: Vec<[Report; 2]>,
}

/// The names of the two sides, in the order in which they run.
const SIDES: [&str; 2] = ["A", "B"];

/// A compared figure.
struct Figure {
    name: &'static str,
    of: fn(&Row) -> f64,
}

const FIGURES: [Figure; 5] = [
    Figure { name: "per_s", of: |row| row.per_second },
    Figure { name: "p50_us", of: |row| row.p50_us as f64 },
    Figure { name: "p95_us", of: |row| row.p95_us as f64 },
    Figure { name: "p99_us", of: |row| row.p99_us as f64 },
    Figure { name: "p99_9_us", of: |row| row.p99_9_us as f64 },
];

/// One figure of one operation on both sides.
struct Line {
    operation: &'static str,
    figure: &'static str,
    medians: [f64; 2],
    /// A divided by B: of the medians, and the minimum and maximum over the rounds.
    ratio: f64,
    ratio_min: f64,
    ratio_max: f64,
}

/// Runs A and B alternately, `rounds` times. Keys are loaded in the first round only.
pub fn compare(
    sides: [&Options; 2],
    rounds: usize,
    mut progress: impl FnMut(&str, &Progress),
) -> Result<Comparison, Error> {
    if rounds == 0 {
        return Err(Error::Usage("rounds must be at least 1".to_owned()));
    }
    // Before the first round, which may take minutes and would be in vain.
    sides.into_iter().try_for_each(reach)?;
    let mut done = Vec::with_capacity(rounds);
    for round in 0..rounds {
        let mut measure = |side: usize| {
            let mut options = sides[side].clone();
            options.load &= round == 0;
            let label = format!("{} round {} of {rounds}", SIDES[side], round + 1);
            run(&options, |shown| progress(&label, shown))
        };
        done.push([measure(0)?, measure(1)?]);
    }
    Ok(Comparison { rounds: done })
}

impl Comparison {
    /// The reports of each round, A's first.
    pub fn rounds(&self) -> &[[Report; 2]] {
        &self.rounds
    }

    /// A's rate divided by B's, from the medians of all rounds.
    pub fn rate_ratio(&self) -> f64 {
        self.lines().first().map_or(f64::NAN, |line| line.ratio)
    }

    /// All operations together first, then each that succeeded on both sides in every round.
    fn lines(&self) -> Vec<Line> {
        let Some([first, _]) = self.rounds.first() else {
            return Vec::new();
        };
        let mut names: Vec<&str> =
            first.rows().iter().filter(|row| row.outcome == Outcome::Ok).map(Row::operation_name).collect();
        names.rotate_right(1);
        // With a single operation its figures equal those of all.
        if names.len() == 2 {
            names.pop();
        }
        let mut lines = Vec::new();
        for operation in names {
            let pairs: Option<Vec<[Row; 2]>> = self
                .rounds
                .iter()
                .map(|[a, b]| Some([successes(a, operation)?, successes(b, operation)?]))
                .collect();
            if let Some(pairs) = pairs {
                lines.extend(FIGURES.iter().map(|figure| Line::new(operation, figure, &pairs)));
            }
        }
        lines
    }

    /// One object: the medians and ratios, and every round's report.
    pub fn to_json(&self) -> Value {
        let mut figures = Map::new();
        for line in self.lines() {
            figures.entry(line.operation).or_insert_with(|| json!({}))[line.figure] = json!({
                "a": rounded(line.medians[0]),
                "b": rounded(line.medians[1]),
                "ratio": rounded(line.ratio),
                "ratio_min": rounded(line.ratio_min),
                "ratio_max": rounded(line.ratio_max),
            });
        }
        let rounds: Vec<Value> =
            self.rounds.iter().map(|[a, b]| json!({ "a": a.to_json(), "b": b.to_json() })).collect();
        json!({ "medians": figures, "rounds": rounds })
    }

    /// The column names of [`Comparison::to_csv`], without a line end.
    pub fn csv_header() -> String {
        format!("side,round,{}", Report::CSV_HEADER)
    }

    /// The rows of every round and side, without the header.
    pub fn to_csv(&self) -> String {
        let mut out = String::new();
        for (round, reports) in self.rounds.iter().enumerate() {
            for (side, report) in SIDES.iter().zip(reports) {
                out.push_str(&report.to_csv(&format!("{side},{},", round + 1)));
            }
        }
        out
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, side) in SIDES.iter().enumerate() {
            let sum = |count: fn(&Report) -> u64| self.rounds.iter().map(|round| count(&round[number])).sum();
            if let Some(round) = self.rounds.first() {
                writeln!(formatter, "{side}  {}", describe(round[number].options()))?;
                writeln!(
                    formatter,
                    "   {} ok, {} failed, {} unknown, {} connections lost",
                    grouped(sum(Report::operations)),
                    grouped(sum(Report::failures)),
                    grouped(sum(Report::unknown)),
                    grouped(sum(Report::connections_lost)),
                )?;
            }
        }
        let steals = self.rounds.iter().flatten().filter_map(Report::steal_percent);
        let disturbed = steals.clone().filter(|percent| *percent > DISTURBED_PERCENT).count();
        if disturbed > 0 {
            writeln!(
                formatter,
                "\nin {disturbed} of {} runs the machine's host took more than {DISTURBED_PERCENT} % of the \
                 processor time that was wanted, at most {:.0} %",
                2 * self.rounds.len(),
                steals.fold(0.0, f64::max)
            )?;
        }
        writeln!(formatter, "\nmedians of {} rounds, in turns\n", self.rounds.len())?;
        writeln!(
            formatter,
            "{:<9} {:<9} {:>12} {:>12} {:>7}   ratio in each round",
            "operation", "figure", "A", "B", "A/B"
        )?;
        for line in self.lines() {
            let [a, b] = line.medians.map(|median| grouped(median.round() as u64));
            writeln!(
                formatter,
                "{:<9} {:<9} {a:>12} {b:>12} {:>7.2}   {:.2} to {:.2}",
                line.operation, line.figure, line.ratio, line.ratio_min, line.ratio_max
            )?;
        }
        Ok(())
    }
}

impl Line {
    fn new(operation: &'static str, figure: &Figure, pairs: &[[Row; 2]]) -> Self {
        let side = |side: usize| median(pairs.iter().map(|pair| (figure.of)(&pair[side])).collect());
        let medians = [side(0), side(1)];
        let ratios = pairs.iter().map(|[a, b]| (figure.of)(a) / (figure.of)(b));
        Self {
            operation,
            figure: figure.name,
            medians,
            ratio: medians[0] / medians[1],
            ratio_min: ratios.clone().fold(f64::INFINITY, f64::min),
            ratio_max: ratios.fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

/// The row of an operation's successes; `None` when there are none.
fn successes(report: &Report, operation: &str) -> Option<Row> {
    let is_wanted =
        |row: &Row| row.outcome == Outcome::Ok && row.operation_name() == operation && row.count > 0;
    report.rows().into_iter().find(is_wanted)
}

/// The median: the middle figure, or the mean of the middle two.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => figures[middle],
        _ => (figures[middle - 1] + figures[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::report::tests::sample;

    fn comparison() -> Comparison {
        let rounds = [(300, 100), (100, 50), (200, 100)];
        Comparison { rounds: rounds.map(|(a, b)| [sample(a, 10), sample(b, 20)]).into() }
    }

    #[test]
    fn figures_are_medians_and_the_ratio_is_theirs() {
        let comparison = comparison();
        assert_eq!(comparison.rate_ratio(), 2.0);
        let json = comparison.to_json();
        let rate = json!({"a": 400.0, "b": 200.0, "ratio": 2.0, "ratio_min": 2.0, "ratio_max": 3.0});
        assert_eq!(json["medians"]["all"]["per_s"], rate);
        assert_eq!(json["medians"]["GET"]["p99_us"]["ratio"], 0.5);
        assert_eq!(json["rounds"].as_array().map(Vec::len), Some(3));
    }

    #[test]
    fn the_table_and_the_rows_show_both_sides() {
        let comparison = comparison();
        let text = comparison.to_string();
        assert!(text.contains("medians of 3 rounds"), "{text}");
        assert!(text.contains("in 6 of 6 runs the machine's host took more than 10 %"), "{text}");
        assert!(text.contains("2.00   2.00 to 3.00"), "{text}");
        let csv = comparison.to_csv();
        let columns = Comparison::csv_header().split(',').count();
        assert!(csv.lines().all(|line| line.split(',').count() == columns));
        assert!(csv.lines().any(|line| line.starts_with("B,3,all,ok,")));
    }

    #[test]
    fn a_median_does_not_need_sorted_input() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(Vec::new()).is_nan());
    }
}
