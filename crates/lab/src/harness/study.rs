//! The interface that a study implements.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;

use anyhow::Result;

use super::{Arena, Claim, Derived, Results};
use crate::colour::Colour;
use crate::systems::System;

/// A study: what is compared, at which points, and what is claimed about it.
pub trait Study: Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// One line on the study's topic.
    fn title(&self) -> &'static str;

    /// The paper that it reproduces; `None` where the claims are this project's own.
    fn paper(&self) -> Option<Paper>;

    /// One line on what is varied.
    fn varies(&self) -> &'static str;

    /// The parameters that distinguish points: the columns of `raw.csv` after the arm.
    fn parameters(&self) -> Vec<Parameter>;

    /// The measures of a point: the remaining columns of `raw.csv`.
    fn measures(&self) -> Vec<Measure>;

    /// How many times each point is measured.
    fn repeats(&self, plan: &Plan) -> u32 {
        match plan.scale {
            Scale::Quick => 2,
            Scale::Full => 3,
        }
    }

    /// The arms that are compared, each with its points. An arm's points are measured one after another on one start of
    /// its system, in this order.
    fn arms(&self, plan: &Plan) -> Vec<Arm>;

    /// Measures one point.
    ///
    /// # Errors
    /// The point cannot be measured: it counts as failed, and the report says so.
    fn measure(&self, arm: &Arm, point: &Point, arena: &mut Arena<'_>) -> Result<Figures>;

    /// The paper's claims, in the order of the paper; for a study without a paper, this project's own.
    fn claims(&self) -> Vec<Claim>;

    /// The figures to draw.
    fn figures(&self) -> Vec<Figure>;

    /// The tables to show.
    fn tables(&self) -> Vec<Table>;

    /// Figures and tables computed from all measurements.
    fn derived(&self, _results: &Results) -> Derived {
        Derived::default()
    }

    /// Remarks for readers of the figures: how the runs differ from the paper's, each in a sentence.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }
}

/// How much of a study is run, and with what.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many points are measured.
    pub scale: Scale,
    /// Whether histories are recorded and checked.
    pub verify: bool,
    /// The program that Quorate's nodes run.
    pub quorate: PathBuf,
}

/// How many points of a study are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// A few points: the whole study within two minutes.
    Quick,
    /// The paper's matrix.
    Full,
}

impl Scale {
    /// Returns one of the two values, by scale.
    pub fn pick<T>(self, quick: T, full: T) -> T {
        match self {
            Scale::Quick => quick,
            Scale::Full => full,
        }
    }
}

/// A paper, or another publication.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// The paper's title.
    pub title: &'static str,
    /// The paper's authors.
    pub authors: &'static str,
    /// The hardware and software it was measured on, as far as it says.
    pub setting: &'static str,
    /// Its public code, if any: the repository, and the commit to which all cited files and lines refer.
    pub code: Option<&'static str>,
}

/// A parameter that distinguishes points.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// The name, a column of `raw.csv`.
    pub name: &'static str,
    /// The axis label.
    pub title: &'static str,
}

/// A measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    /// The name, a column of `raw.csv`.
    pub name: &'static str,
    /// The axis label, without the unit.
    pub title: &'static str,
    /// The unit, empty for a count.
    pub unit: &'static str,
    /// Whether the measure is the time of an event, so that a row without it means the event never happened; figures
    /// draw that.
    pub is_event: bool,
}

impl Measure {
    /// Creates a measure.
    pub const fn new(name: &'static str, title: &'static str, unit: &'static str) -> Measure {
        Measure { name, title, unit, is_event: false }
    }

    /// Returns the measure as the time of an event that may never happen.
    pub const fn or_never(mut self) -> Measure {
        self.is_event = true;
        self
    }

    /// Title and unit, as on an axis.
    pub fn label(&self) -> String {
        if self.unit.is_empty() { self.title.to_owned() } else { format!("{} ({})", self.title, self.unit) }
    }
}

/// The measures of a load: what [`super::Driven::figures`] fills in.
pub fn load_measures() -> Vec<Measure> {
    vec![
        Measure::new("total", "Operations", ""),
        Measure::new("success", "Successes", ""),
        Measure::new("failure", "Failures", ""),
        Measure::new("unknown", "Outcomes unknown", ""),
        Measure::new("per_s", "Successful throughput", "op/s"),
        Measure::new("mean_ms", "Mean latency", "ms"),
        Measure::new("p50_ms", "Median latency", "ms"),
        Measure::new("p95_ms", "95th percentile of latency", "ms"),
        Measure::new("p99_ms", "99th percentile of latency", "ms"),
        Measure::new("get_p50_ms", "Median latency of GET", "ms"),
        Measure::new("get_p95_ms", "95th percentile of GET latency", "ms"),
        Measure::new("put_p50_ms", "Median latency of PUT", "ms"),
        Measure::new("put_p95_ms", "95th percentile of PUT latency", "ms"),
        Measure::new("cpu_us_per_op", "Processor time of all nodes per operation", "us"),
        Measure::new("loader_cpu_us_per_op", "Processor time of the load generator per operation", "us"),
        Measure::new("peer_bytes_per_op", "Bytes between nodes per operation", "B"),
        Measure::new("disk_bytes_per_op", "Bytes to disks per operation", "B"),
    ]
}

/// The figures of a point, by the names of measures. Missing ones are left empty.
pub type Figures = BTreeMap<&'static str, f64>;

/// One side of a comparison: a system with its settings, under the same name and colour everywhere.
pub struct Arm {
    /// The name in tables and legends.
    pub name: String,
    /// The colour and style of its lines.
    pub colour: Colour,
    /// The system to start; `None` where the study measures in this process.
    pub system: Option<Box<dyn System>>,
    /// How it differs from the other arms: acknowledgement, durability, transport. Empty if it does not.
    pub differs: String,
    /// The points at which it is measured.
    pub points: Vec<Point>,
}

/// The values of the parameters at one point. A parameter that is not set is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Point {
    values: Vec<(&'static str, String)>,
}

impl Point {
    /// A point without values.
    pub fn new() -> Point {
        Point::default()
    }

    /// Returns the point with one more value.
    pub fn with(mut self, parameter: &'static str, value: impl Display) -> Point {
        self.values.push((parameter, value.to_string()));
        self
    }

    /// The value of a parameter, empty if it is not set.
    pub fn get(&self, parameter: &str) -> &str {
        self.values.iter().find(|(name, _)| *name == parameter).map_or("", |(_, value)| value)
    }

    /// The value of a numeric parameter.
    ///
    /// # Errors
    /// It is not a number.
    pub fn number<T: std::str::FromStr>(&self, parameter: &str) -> Result<T> {
        let text = self.get(parameter);
        text.parse().map_err(|_| anyhow::anyhow!("{parameter} is '{text}', which is not such a number"))
    }

    /// The values in the order of a study's parameters.
    pub fn key(&self, parameters: &[Parameter]) -> Vec<String> {
        parameters.iter().map(|parameter| self.get(parameter.name).to_owned()).collect()
    }

    /// All values, for people.
    pub fn words(&self) -> String {
        let words: Vec<String> = self.values.iter().map(|(name, value)| format!("{name} {value}")).collect();
        words.join(", ")
    }
}

/// How a figure is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A line for each arm over a numeric parameter; its spread over the repeats is shaded.
    Lines,
    /// A bar for each arm, grouped by a parameter; a line at its end shows the spread. On a logarithmic axis, a dot
    /// instead.
    Bars,
    /// A line for each arm over several measures of the same unit, each with a short name: a distribution by its
    /// quantiles.
    Quantiles(&'static [(&'static str, &'static str)]),
}

/// A figure: a measure over a parameter.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The file's name, without extension.
    pub file: String,
    /// The title: one sentence that says what it shows.
    pub title: String,
    /// The corresponding figure of the paper; empty if there is none.
    pub paper: &'static str,
    /// How it is drawn.
    pub shape: Shape,
    /// The parameter along the horizontal axis, or by which bars are grouped. Quantiles need none.
    pub x: &'static str,
    /// The measure; for quantiles, one of them.
    pub y: &'static str,
    /// The points to include: parameters and their values.
    pub only: Vec<(&'static str, String)>,
    /// The arms to include, by name; empty for all.
    pub arms: Vec<String>,
    /// Whether the horizontal and the vertical axis are logarithmic.
    pub logarithmic: (bool, bool),
}

/// A table of medians: a row for each arm and combination of values.
#[derive(Clone, Debug)]
pub struct Table {
    /// The title: what it shows.
    pub title: String,
    /// The corresponding table of the paper; empty if there is none.
    pub paper: &'static str,
    /// The points to include: parameters and their values.
    pub only: Vec<(&'static str, String)>,
    /// The arms to include, by name; empty for all.
    pub arms: Vec<String>,
    /// The columns, by the measures' names.
    pub measures: Vec<&'static str>,
}
