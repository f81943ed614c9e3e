//! Two results of one study side by side: each median, and their ratio.

use std::fmt;
use std::path::Path;

use anyhow::{Result, ensure};
use maud::{DOCTYPE, PreEscaped, html};
use serde_json::json;

use super::html::STYLE;
use super::short;
use crate::harness::{Folder, Results, RunFile, Spread, Study};

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
}

impl Line {
    fn ratio(&self) -> f64 {
        self.spreads[1].median / self.spreads[0].median
    }

    /// Whether the repeats of the two do not even touch.
    fn is_apart(&self) -> bool {
        let [a, b] = self.spreads;
        a.max < b.min || b.max < a.min
    }
}

/// Reads two folders of one study. `study` finds a study by its name; `measures` are those to be compared, all if there
/// are none.
///
/// # Errors
/// One is no result, or they are of different studies.
pub fn compare<'s>(
    folders: [&Path; 2],
    measures: &[String],
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
                lines.push(Line { arm, point: point.to_vec(), measure, spreads: [*left, *right] });
            }
        }
        let alone = a.len() + b.len() - 2 * lines.len();
        Comparison { names, runs, parameters: results[0].parameters().to_vec(), lines, alone }
    }

    /// Whether the two have nothing in common of what was asked for.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Everything as one object.
    pub fn to_json(&self) -> serde_json::Value {
        let line = |line: &Line| {
            let point: serde_json::Map<String, serde_json::Value> =
                self.parameters.iter().cloned().zip(line.point.iter().map(|value| json!(value))).collect();
            let spread =
                |spread: Spread| json!({"median": spread.median, "min": spread.min, "max": spread.max});
            let [a, b] = line.spreads.map(spread);
            json!({"arm": line.arm, "point": point, "measure": line.measure, "a": a, "b": b,
                   "ratio": line.ratio(), "apart": line.is_apart()})
        };
        let lines: Vec<serde_json::Value> = self.lines.iter().map(line).collect();
        json!({"a": self.names[0], "b": self.names[1], "study": self.runs[0].settings.study, "lines": lines})
    }

    /// Everything as a page.
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
                    p.hint { "Medians of the repeats. A ratio is bold when the two sides' repeats do not touch: only then it is more than what repeats differ by. " (self.alone) " medians are in one of the two only." }
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
                            td.number { @if line.is_apart() { strong { (ratio(line)) } } @else { (ratio(line)) } }
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
            let mark = if line.is_apart() { " *" } else { "" };
            let (name, measure) = (name(line), &line.measure);
            writeln!(
                formatter,
                "{name:width$}  {measure:measures$} {a:>12} {b:>12} {:>8}{mark}",
                ratio(line)
            )?;
        }
        writeln!(formatter, "\n* the repeats of the two do not touch; {} medians are in one only", self.alone)
    }
}
