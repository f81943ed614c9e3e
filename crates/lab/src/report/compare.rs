//! Two results of one study side by side: each median, and their ratio.

use std::fmt;
use std::path::Path;

use anyhow::{Result, ensure};
use maud::{DOCTYPE, PreEscaped, html};
use serde_json::json;

use super::html::STYLE;
use super::short;
use crate::harness::{Folder, Results, RunFile, Spread, Study};

/// The significance level of the test behind a mark: if the two were alike, this share of all lines would have a mark
/// by chance.
const MARKED_BY_CHANCE: f64 = 0.1;

/// With fewer repeats than this on either side, no test supports a mark.
const REPEATS_MIN: usize = 3;

/// Two results side by side.
pub struct Comparison {
    names: [String; 2],
    runs: [RunFile; 2],
    parameters: Vec<String>,
    lines: Vec<Line>,
    /// How many medians only one of the two has.
    alone: usize,
}

struct Line {
    arm: String,
    point: Vec<String>,
    measure: String,
    spreads: [Spread; 2],
    /// Whether the difference exceeds chance, as far as so few repeats show.
    is_apart: bool,
}

impl Line {
    fn ratio(&self) -> f64 {
        self.spreads[1].median / self.spreads[0].median
    }
}

/// The probability that two samples of one distribution are as far apart as these: the exact two-sided test of Mann and
/// Whitney (On a Test of Whether one of Two Random Variables is Stochastically Larger than the Other, 1947). Equal
/// values count as a half each, and the remainder is rounded in favour of chance.
///
/// It takes |a| |b|^2 steps.
fn by_chance(a: &[f64], b: &[f64]) -> f64 {
    let pairs = a.len() * b.len();
    // In halves, so that ties are whole numbers.
    let above = |a: &f64| -> usize { b.iter().map(|b| if a > b { 2 } else { usize::from(a == b) }).sum() };
    let above: usize = a.iter().map(above).sum();
    let extreme = above.min(2 * pairs - above).div_ceil(2);
    // The number of orders of the values, by how many of a's are below b's: adding a value of b's to an order of all of
    // a's and some of b's puts it above any number of a's.
    let mut orders = vec![0.0; pairs + 1];
    orders[0] = 1.0;
    for left in 1..=b.len() {
        // The Gaussian binomial coefficient, factor by factor: times (1 - q^(|a| + left)), divided by (1 - q^left).
        for sum in (a.len() + left..=pairs).rev() {
            orders[sum] -= orders[sum - a.len() - left];
        }
        for sum in left..=pairs {
            orders[sum] += orders[sum - left];
        }
    }
    let all: f64 = orders.iter().sum();
    let as_extreme: f64 = orders[..=extreme.min(pairs)].iter().sum();
    (2.0 * as_extreme / all).min(1.0)
}

/// Reads two folders of one study. `study` finds a study by its name; `measures` are those to compare, or all if empty.
/// `mixed` allows comparing a run that recorded histories with one that did not.
///
/// # Errors
/// A folder holds no result, the studies differ, or one recorded histories and the other did not.
pub fn compare<'s>(
    folders: [&Path; 2],
    measures: &[String],
    mixed: bool,
    study: impl Fn(&str) -> Option<&'s dyn Study>,
) -> Result<Comparison> {
    let read = |path: &Path| Folder::read(path, |name| study(name).map(|study| study.parameters().len()));
    let [(run_a, a), (run_b, b)] = [read(folders[0])?, read(folders[1])?];
    ensure!(
        run_a.settings.study == run_b.settings.study,
        "they are of different studies: {} and {}",
        run_a.settings.study,
        run_b.settings.study
    );
    let names = folders.map(|folder| folder.display().to_string());
    let how = |run: &RunFile| if run.settings.verify { "recorded and checked" } else { "did not record" };
    ensure!(
        mixed || run_a.settings.verify == run_b.settings.verify,
        "{} {} histories, {} {} them: recording costs the load generator time, so their figures are not \
         alike. Run one of them again, \
         or compare them as they are with --mixed",
        names[0],
        how(&run_a),
        names[1],
        how(&run_b)
    );
    Ok(Comparison::new(names, [run_a, run_b], [&a, &b], measures))
}

impl Comparison {
    fn new(
        names: [String; 2],
        runs: [RunFile; 2],
        results: [&Results; 2],
        measures: &[String],
    ) -> Comparison {
        let is_asked = |measure: &str| measures.is_empty() || measures.iter().any(|asked| asked == measure);
        let [mut a, mut b] = results.map(Results::summary);
        a.retain(|line| is_asked(line.2));
        b.retain(|line| is_asked(line.2));
        let mut lines = Vec::new();
        for (arm, point, measure, left) in &a {
            let same = b.iter().find(|line| line.0 == *arm && line.1 == *point && line.2 == *measure);
            if let Some((.., right)) = same {
                let (arm, measure) = ((*arm).to_owned(), (*measure).to_owned());
                let [left_values, right_values] =
                    results.map(|results| results.repeats_of(&arm, point, &measure));
                let is_apart = left_values.len().min(right_values.len()) >= REPEATS_MIN
                    && by_chance(&left_values, &right_values) <= MARKED_BY_CHANCE;
                lines.push(Line { arm, point: point.to_vec(), measure, spreads: [*left, *right], is_apart });
            }
        }
        let alone = a.len() + b.len() - 2 * lines.len();
        Comparison { names, runs, parameters: results[0].parameters().to_vec(), lines, alone }
    }

    /// Whether the two have none of the requested measures in common.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The meaning of the marks, for people.
    fn legend(&self) -> String {
        let few = self.lines.iter().flat_map(|line| line.spreads).any(|spread| spread.count < REPEATS_MIN);
        let mut legend = format!(
            "a test of Mann and Whitney sets the repeats of the two apart: were all alike, {:.0} % of the lines would be marked",
            MARKED_BY_CHANCE * 100.0
        );
        if few {
            legend.push_str(&format!(", and none where a side has fewer than {REPEATS_MIN} repeats"));
        }
        if self.runs[0].settings.verify != self.runs[1].settings.verify {
            legend.push_str("; one side recorded histories, which costs it time");
        }
        format!("{legend}; {} medians are in one of the two only", self.alone)
    }

    /// Everything as one JSON object.
    pub fn to_json(&self) -> serde_json::Value {
        let line = |line: &Line| {
            let point: serde_json::Map<String, serde_json::Value> =
                self.parameters.iter().cloned().zip(line.point.iter().map(|value| json!(value))).collect();
            let spread =
                |spread: Spread| json!({"median": spread.median, "min": spread.min, "max": spread.max});
            let [a, b] = line.spreads.map(spread);
            json!({"arm": line.arm, "point": point, "measure": line.measure, "a": a, "b": b,
                   "ratio": line.ratio(), "apart": line.is_apart})
        };
        let lines: Vec<serde_json::Value> = self.lines.iter().map(line).collect();
        json!({"a": self.names[0], "b": self.names[1], "study": self.runs[0].settings.study, "lines": lines})
    }

    /// Everything as an HTML page.
    pub fn to_html(&self) -> String {
        let markup = html! {
            (DOCTYPE)
            html lang="en" {
                head { meta charset="utf-8"; title { "Comparison" } style { (PreEscaped(STYLE)) } }
                body {
                    h1 { (self.runs[0].settings.study) ": two results side by side" }
                    table { tbody {
                        @for (side, (name, run)) in ["A", "B"].iter().zip(self.names.iter().zip(&self.runs)) {
                            tr { th { (side) } td { (name) } td { (run.begun) } td { "Quorate " (run.settings.program) } }
                        }
                    } }
                    p.hint { "Medians of the repeats. Bold: " (self.legend()) "." }
                    table.figures {
                        thead { tr {
                            th { "System" }
                            @for parameter in &self.parameters { th { (parameter) } }
                            th { "Measure" } th.number { "A" } th.number { "B" } th.number { "B / A" }
                        } }
                        tbody { @for line in &self.lines { tr {
                            td { (line.arm) }
                            @for value in &line.point { td { (value) } }
                            td { (line.measure) }
                            @for spread in line.spreads { td.number { (short(spread.median)) } }
                            td.number { @if line.is_apart { strong { (ratio(line)) } } @else { (ratio(line)) } }
                        } } }
                    }
                }
            }
        };
        markup.into_string()
    }
}

fn ratio(line: &Line) -> String {
    let ratio = line.ratio();
    if ratio.is_finite() { format!("{ratio:.2}") } else { "–".to_owned() }
}

impl fmt::Display for Comparison {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "A: {}\nB: {}\n", self.names[0], self.names[1])?;
        let name = |line: &Line| {
            let values: Vec<&str> =
                line.point.iter().map(String::as_str).filter(|value| !value.is_empty()).collect();
            format!("{}, {}", line.arm, values.join(" "))
        };
        let width = self.lines.iter().map(|line| name(line).chars().count()).max().unwrap_or(0);
        let measures = self.lines.iter().map(|line| line.measure.len()).max().unwrap_or(0);
        writeln!(formatter, "{:width$}  {:measures$} {:>12} {:>12} {:>8}", "", "", "A", "B", "B / A")?;
        for line in &self.lines {
            let [a, b] = line.spreads.map(|spread| short(spread.median));
            let mark = if line.is_apart { " *" } else { "" };
            let (name, measure) = (name(line), &line.measure);
            writeln!(
                formatter,
                "{name:width$}  {measure:measures$} {a:>12} {b:>12} {:>8}{mark}",
                ratio(line)
            )?;
        }
        writeln!(formatter, "\n* {}", self.legend())
    }
}

#[cfg(test)]
mod tests {
    use super::by_chance;

    /// Figures from published tables of the exact test.
    #[test]
    fn the_test_is_exact() {
        let close = |a: &[f64], b: &[f64], expected: f64| {
            let found = by_chance(a, b);
            assert!((found - expected).abs() < 1e-9, "{found} for {expected}");
        };
        close(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0], 0.1);
        close(&[4.0, 5.0, 6.0], &[1.0, 2.0, 3.0], 0.1);
        close(&[1.0, 2.0], &[3.0, 4.0], 1.0 / 3.0);
        close(&[1.0, 2.0, 4.0], &[3.0, 5.0, 6.0], 0.2);
        close(&[1.0, 2.0, 3.0, 4.0, 5.0], &[6.0, 7.0, 8.0, 9.0, 10.0], 2.0 / 252.0);
        // Only ties, and a tie between the ends.
        close(&[1.0; 3], &[1.0; 3], 1.0);
        close(&[1.0, 2.0, 3.0], &[3.0, 4.0, 5.0], 0.2);
    }
}
