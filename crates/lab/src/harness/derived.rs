//! What a study computes from all that it has measured: pictures and tables that are not of single measures.

use crate::report::Colour;

/// What is shown beside the measured figures.
#[derive(Clone, Debug, Default)]
pub struct Derived {
    /// Pictures, in their order.
    pub drawings: Vec<Drawing>,
    /// Tables, in their order.
    pub listings: Vec<Listing>,
}

/// A picture of something computed.
#[derive(Clone, Debug)]
pub enum Drawing {
    /// Fields of colours.
    HeatMap(HeatMap),
    /// Lines.
    Curves(Curves),
    /// Stacked bars.
    Stacks(Stacks),
}

impl Drawing {
    /// Its file's name without an ending, its title, and the paper's figure of which it is the counterpart.
    pub fn heading(&self) -> (&str, &str, &'static str) {
        match self {
            Drawing::HeatMap(map) => (&map.file, &map.title, map.paper),
            Drawing::Curves(curves) => (&curves.file, &curves.title, curves.paper),
            Drawing::Stacks(stacks) => (&stacks.file, &stacks.title, stacks.paper),
        }
    }
}

/// Which of two is faster, and how much, over two parameters: a field for each pair of values.
#[derive(Clone, Debug)]
pub struct HeatMap {
    /// Its file's name, without an ending.
    pub file: String,
    /// What it shows, in a sentence.
    pub title: String,
    /// Which of the paper's figures it is the counterpart of; empty if of none.
    pub paper: &'static str,
    /// What the horizontal axis says.
    pub x_title: &'static str,
    /// What the vertical axis says.
    pub y_title: &'static str,
    /// The columns, from left to right.
    pub columns: Vec<String>,
    /// The rows, from the bottom up.
    pub rows: Vec<String>,
    /// Row by row: how many times as long the first of the two takes. `None`: not measured.
    pub ratios: Vec<Vec<Option<f64>>>,
    /// The first of the two, which is faster where a ratio is below 1, and its colour.
    pub first: (String, Colour),
    /// The second.
    pub second: (String, Colour),
}

/// Lines through points that were computed.
#[derive(Clone, Debug)]
pub struct Curves {
    /// Its file's name, without an ending.
    pub file: String,
    /// What it shows, in a sentence.
    pub title: String,
    /// Which of the paper's figures it is the counterpart of; empty if of none.
    pub paper: &'static str,
    /// What the horizontal axis says.
    pub x_title: &'static str,
    /// What the vertical axis says.
    pub y_title: &'static str,
    /// Whether each tenfold takes the same length, horizontally and vertically.
    pub logarithmic: (bool, bool),
    /// The lines.
    pub curves: Vec<Curve>,
}

/// A line.
#[derive(Clone, Debug)]
pub struct Curve {
    /// What the legend calls it; empty when it is not to stand there.
    pub name: String,
    /// How it is drawn.
    pub colour: Colour,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
    /// Whether a line joins them: where something was computed, or measured at all that lies between.
    pub is_joined: bool,
    /// Whether they are marked: where something was measured.
    pub is_marked: bool,
}

/// Bars that are made up of steps.
#[derive(Clone, Debug)]
pub struct Stacks {
    /// Its file's name, without an ending.
    pub file: String,
    /// What it shows, in a sentence.
    pub title: String,
    /// Which of the paper's figures it is the counterpart of; empty if of none.
    pub paper: &'static str,
    /// What the lengths are.
    pub x_title: &'static str,
    /// The steps, from left to right.
    pub steps: Vec<(String, Colour)>,
    /// The bars, from the top down, each with as many lengths as there are steps.
    pub bars: Vec<(String, Vec<f64>)>,
}

/// A table of texts.
#[derive(Clone, Debug)]
pub struct Listing {
    /// What it shows.
    pub title: String,
    /// Which of the paper's tables or sections it is the counterpart of; empty if of none.
    pub paper: &'static str,
    /// The columns.
    pub head: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<String>>,
}
