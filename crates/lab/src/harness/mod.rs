//! Studies, and how they are run.
//!
//! A [`Study`] defines what it compares ([`Arm`]s: systems with their settings) at which [`Point`]s, how one point
//! is measured, which claims of a paper it judges, and what is drawn. The sweep does the rest: it starts each
//! system, measures each point, repeats everything, stores every row as soon as it is measured, continues an
//! interrupted run, and leaves a folder:
//!
//! | file | content |
//! |---|---|
//! | `raw.csv` | a row for each point and repeat |
//! | `summary.csv` | median, minimum and maximum of the repeats |
//! | `nodes.csv` | what each node used at each point |
//! | `machine.json` | the machine |
//! | `run.json` | settings, systems with versions and commands, what was skipped |
//! | `*.svg`, `*.png` | the figures |
//! | `report.html` | all of it, the claims first |
//!
//! Reading order: `study`, `results`, `arena` (what a study measures with), `sweep`.

mod arena;
mod claim;
mod derived;
pub(crate) mod folder;
mod machine;
pub(crate) mod progress;
pub(crate) mod results;
pub(crate) mod steal;
mod stop;
mod study;
pub(crate) mod verify;

pub use arena::{Arena, Driven, Fault};
pub use claim::{Claim, Judged, Judgement, Verdict};
pub use derived::{Curve, Curves, Derived, Drawing, HeatMap, Listing, Stacks};
pub use folder::{ArmNote, Folder, NodeRow, Note, RunFile, Settings};
pub use machine::Machine;
pub use results::{Checked, Results, Row, Selection, Spread};
pub use steal::{STEAL_PERCENT, Steal};
pub use stop::stop_on_signals;
pub use study::{Arm, Figure, Figures, Measure, Paper, Parameter, Plan, Point, Scale, Shape, Study, Table};

pub use study::load_measures;
