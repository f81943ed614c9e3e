//! The lab: measures Quorate and other servers, and reproduces published studies.
//!
//! Read [`harness`] for what a study is and how one is run, `studies/leader_follower` for a complete one, [`systems`]
//! for how systems under test are started and observed, [`load`] for how they are driven, [`network`] for the network
//! between their nodes, and [`report`] for the output.

mod colour;
pub mod harness;
pub mod load;
pub mod network;
pub mod report;
pub mod studies;
mod sweep;
pub mod systems;

pub use sweep::{Outcome, Sweep};
