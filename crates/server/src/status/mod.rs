//! How a whole cluster stands, put together from what its nodes say of themselves: who serves what, how many more failures
//! each group survives, what is at risk and what to do. `quorate status` and `GET /status` ask the nodes, each in its way, and
//! show the same.
//!
//! Reading order: [`report`] (what a node says of itself), [`answers`] (what was heard of all of them), [`judge()`] (what that
//! amounts to) in terms of [`standing`] and [`words`].

pub mod answers;
mod judge;
pub mod report;
pub mod standing;
pub mod words;

use std::time::Duration;

pub use answers::{Answer, Answers, Said, text_of};
pub use judge::judge;
pub use standing::{Standing, State};

/// Nodes may disagree for a moment, since they are not asked in the same one. Then they are asked again, after so long.
pub const ASK_AGAIN_AFTER: Duration = Duration::from_millis(500);
