//! The state of a whole cluster, assembled from the nodes' reports: which nodes serve what, how many more failures each group
//! survives, what is at risk and what to do. `quorate status` and `GET /status` ask the nodes, each in its own way, and show
//! the same.
//!
//! Reading order: [`answers`] (the nodes' [reports](node::Report), or why there are none), [`judge()`] (what follows from
//! them) in terms of [`standing`] and [`words`], with `advice` (the lines to copy).

mod advice;
pub mod answers;
mod judge;
pub mod standing;
#[cfg(test)]
mod tests;
pub mod words;

use std::time::Duration;

pub use answers::{Answer, Answers, NoAnswer, Refused, Reported, text_of};
pub use cluster::words::quoted;
pub use judge::judge;
pub use standing::{Standing, State};

/// Nodes may disagree for a moment, since they are not asked at the same instant. Then they are asked again after
/// this pause.
pub const ASK_AGAIN_AFTER: Duration = Duration::from_millis(500);
