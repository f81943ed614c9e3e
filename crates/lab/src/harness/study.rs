//! What a study fills in.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;

use anyhow::Result;

use super::{Arena, Claim, Derived, Results};
use crate::report::Colour;
use crate::systems::System;

/// A study: what is compared, at which points, and what is said about it.
pub trait Study: Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// One line that says what it is about.
    fn title(&self) -> &'static str;

    /// The paper that it reproduces; `None` where the claims are this project's own.
    fn paper(&self) -> Option<Paper>;

    /// What is varied, in one line.
    fn varies(&self) -> &'static str;

    /// What tells points apart: the columns of `raw.csv` behind the arm.
    fn parameters(&self) -> Vec<Parameter>;

    /// What is measured at a point: the further columns of `raw.csv`.
    fn measures(&self) -> Vec<Measure>;

    /// How often each point is measured.
    fn repeats(&self, plan: &Plan) -> u32 {
        match plan.scale {
            Scale::Quick => 2,
            Scale::Full => 3,
        }
    }

    /// What is compared, each with its points. Points of an arm are measured one after the other on one start of its
    /// system, in this order.
    fn arms(&self, plan: &Plan) -> Vec<Arm>;

    /// Measures one point.
    ///
    /// # Errors
    /// It cannot be measured: the point has failed, and is told in the report.
    fn measure(&self, arm: &Arm, point: &Point, arena: &mut Arena<'_>) -> Result<Figures>;

    /// The paper's claims, in the order of the paper; of a study without one what this project asks of itself.
    fn claims(&self) -> Vec<Claim>;

    /// What is drawn.
    fn figures(&self) -> Vec<Figure>;

    /// What is set in tables.
    fn tables(&self) -> Vec<Table>;

    /// What is computed from all that was measured, drawn and listed beside it.
    fn derived(&self, _results: &Results) -> Derived {
        Derived::default()
    }

    /// What a reader must know beside the figures: how the runs differ from the paper's, each in a sentence.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }
}

/// How much of a study is run, and with what.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many points.
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
    /// A few: the whole study within two minutes.
    Quick,
    /// The paper's matrix.
    Full,
}

impl Scale {
    /// One of two, by the scale.
    pub fn pick<T>(self, quick: T, full: T) -> T {
        match self {
            Scale::Quick => quick,
            Scale::Full => full,
        }
    }
}

/// A paper, or whatever else was published.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// Its title.
    pub title: &'static str,
    /// Who wrote it.
    pub authors: &'static str,
    /// On what it measured, as far as it says.
    pub setting: &'static str,
    /// Its public code, if there is any: the repository and the commit to which all files and lines that are cited refer.
    pub code: Option<&'static str>,
}

/// What tells points apart.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name, a column of `raw.csv`.
    pub name: &'static str,
    /// What an axis says.
    pub title: &'static str,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    /// Its name, a column of `raw.csv`.
    pub name: &'static str,
    /// What an axis says, without the unit.
    pub title: &'static str,
    /// The unit, empty for a count.
    pub unit: &'static str,
    /// Whether a row without it says that what it times never happened, which figures draw.
    pub is_event: bool,
}

impl Measure {
    /// A measure.
    pub const fn new(name: &'static str, title: &'static str, unit: &'static str) -> Measure {
        Measure { name, title, unit, is_event: false }
    }

    /// The same for the time of something that may never happen.
    pub const fn or_never(mut self) -> Measure {
        self.is_event = true;
        self
    }

    /// Title and unit.
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

/// What was measured at a point, by the names of measures. What is not there is left empty.
pub type Figures = BTreeMap<&'static str, f64>;

/// One side of a comparison: a system with its settings, under one name and colour everywhere.
pub struct Arm {
    /// What tables and legends call it.
    pub name: String,
    /// How its lines are drawn.
    pub colour: Colour,
    /// What is started; `None` where the study measures in this process.
    pub system: Option<Box<dyn System>>,
    /// In what it is not the equal of the other arms: acknowledgement, durability, transport. Empty if in nothing.
    pub differs: String,
    /// Where it is measured.
    pub points: Vec<Point>,
}

/// The values of the parameters at one point. A parameter that is not given is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Point {
    values: Vec<(&'static str, String)>,
}

impl Point {
    /// A point without values.
    pub fn new() -> Point {
        Point::default()
    }

    /// The same with one value more.
    pub fn with(mut self, parameter: &'static str, value: impl Display) -> Point {
        self.values.push((parameter, value.to_string()));
        self
    }

    /// A value, empty if it is not given.
    pub fn get(&self, parameter: &str) -> &str {
        self.values.iter().find(|(name, _)| *name == parameter).map_or("", |(_, value)| value)
    }

    /// A value that is a number.
    ///
    /// # Errors
    /// It is none.
    pub fn number<T: std::str::FromStr>(&self, parameter: &str) -> Result<T> {
        let text = self.get(parameter);
        text.parse().map_err(|_| anyhow::anyhow!("{parameter} is '{text}', which is no such number"))
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
    /// A line for each arm over a parameter that is a number; its spread over the repeats is shaded.
    Lines,
    /// A bar for each arm, in groups by a parameter; its spread is a line at its end. On a logarithmic axis it is a dot.
    Bars,
    /// A line for each arm over several measures of the same unit, each with a short name: a distribution by its quantiles.
    Quantiles(&'static [(&'static str, &'static str)]),
}

/// A figure: a measure over a parameter.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Its file's name, without an ending.
    pub file: String,
    /// What it shows, in a sentence.
    pub title: String,
    /// Which of the paper's figures it is the counterpart of; empty if of none.
    pub paper: &'static str,
    /// How it is drawn.
    pub shape: Shape,
    /// The parameter along the horizontal axis, or that groups bars. Quantiles need none.
    pub x: &'static str,
    /// The measure; of quantiles one of them.
    pub y: &'static str,
    /// Which points: parameters and their values.
    pub only: Vec<(&'static str, String)>,
    /// Which arms, by name; empty for all.
    pub arms: Vec<String>,
    /// Whether each tenfold takes the same length, horizontally and vertically.
    pub logarithmic: (bool, bool),
}

/// A table of medians: a row for each arm and combination of values.
#[derive(Clone, Debug)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// Which of the paper's tables it is the counterpart of; empty if of none.
    pub paper: &'static str,
    /// Which points: parameters and their values.
    pub only: Vec<(&'static str, String)>,
    /// Which arms, by name; empty for all.
    pub arms: Vec<String>,
    /// The columns.
    pub measures: Vec<&'static str>,
}
