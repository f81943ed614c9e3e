//! Figures and tables that a study computes from all its measurements, rather than from single measures.

use crate::colour::Colour;

/// The computed figures and tables, shown beside the measured ones.
#[derive(Clone, Debug, Default)]
pub struct Derived {
    /// The drawings, in display order.
    pub drawings: Vec<Drawing>,
    /// The tables, in display order.
    pub listings: Vec<Listing>,
}

/// A drawing of computed data.
#[derive(Clone, Debug)]
pub enum Drawing {
    /// Coloured fields.
    HeatMap(HeatMap),
    /// Lines.
    Curves(Curves),
    /// Stacked bars.
    Stacks(Stacks),
}

impl Drawing {
    /// Its file's name without extension, its title, and the corresponding figure of the paper.
    pub fn heading(&self) -> (&str, &str, &'static str) {
        match self {
            Drawing::HeatMap(map) => (&map.file, &map.title, map.paper),
            Drawing::Curves(curves) => (&curves.file, &curves.title, curves.paper),
            Drawing::Stacks(stacks) => (&stacks.file, &stacks.title, stacks.paper),
        }
    }
}

/// Which of two is faster, and by how much, over two parameters: a field for each pair of values.
#[derive(Clone, Debug)]
pub struct HeatMap {
    /// The file's name, without extension.
    pub file: String,
    /// The title: one sentence that says what it shows.
    pub title: String,
    /// The corresponding figure of the paper; empty if there is none.
    pub paper: &'static str,
    /// The label of the horizontal axis.
    pub x_title: &'static str,
    /// The label of the vertical axis.
    pub y_title: &'static str,
    /// The columns, from left to right.
    pub columns: Vec<String>,
    /// The rows, from the bottom up.
    pub rows: Vec<String>,
    /// Row by row, the first's time divided by the second's. `None`: not measured.
    pub ratios: Vec<Vec<Option<f64>>>,
    /// The first of the two, faster where a ratio is below 1, and its colour.
    pub first: (String, Colour),
    /// The second of the two, and its colour.
    pub second: (String, Colour),
}

/// Lines through computed points.
#[derive(Clone, Debug)]
pub struct Curves {
    /// The file's name, without extension.
    pub file: String,
    /// The title: one sentence that says what it shows.
    pub title: String,
    /// The corresponding figure of the paper; empty if there is none.
    pub paper: &'static str,
    /// The label of the horizontal axis.
    pub x_title: &'static str,
    /// The label of the vertical axis.
    pub y_title: &'static str,
    /// Whether the horizontal and the vertical axis are logarithmic.
    pub logarithmic: (bool, bool),
    /// The lines, in drawing order.
    pub curves: Vec<Curve>,
}

/// One line of [`Curves`].
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its name in the legend; empty to leave it out of the legend.
    pub name: String,
    /// The line's colour and style.
    pub colour: Colour,
    /// The points, from left to right.
    pub points: Vec<(f64, f64)>,
    /// Whether a line joins the points: for computed values, or measurements between which others were
    /// possible.
    pub is_joined: bool,
    /// Whether the points are marked: for measured values.
    pub is_marked: bool,
}

/// Bars made up of steps.
#[derive(Clone, Debug)]
pub struct Stacks {
    /// The file's name, without extension.
    pub file: String,
    /// The title: one sentence that says what it shows.
    pub title: String,
    /// The corresponding figure of the paper; empty if there is none.
    pub paper: &'static str,
    /// The quantity that the lengths show, with its unit.
    pub x_title: &'static str,
    /// The steps' names and colours, from left to right.
    pub steps: Vec<(String, Colour)>,
    /// The bars, from top to bottom: a name, and one length for each step.
    pub bars: Vec<(String, Vec<f64>)>,
}

/// A table of text cells.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The title: what it shows.
    pub title: String,
    /// The corresponding table or section of the paper; empty if there is none.
    pub paper: &'static str,
    /// The column headings.
    pub head: Vec<String>,
    /// The rows, with one cell for each column.
    pub rows: Vec<Vec<String>>,
}
