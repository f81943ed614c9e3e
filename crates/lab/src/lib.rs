//! The lab: what measures Quorate and any other server, and reproduces published studies.
//!
//! Read [`harness`] for what a study is and how one is run, `studies/leader_follower` for a whole one, [`systems`]
//! for how systems under test are started and watched, [`load`] for how they are driven, [`network`] for what may lie
//! between their nodes, and [`report`] for what is written.

pub mod harness;
pub mod load;
pub mod network;
pub mod report;
pub mod studies;
pub mod systems;
