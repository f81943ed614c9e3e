//! What a node reports in Prometheus's text format.

mod coding;
mod groups;

pub use coding::coding_metrics;
pub use groups::{GroupMetrics, group_metrics, time_metrics};

/// Milliseconds as seconds, the unit that Prometheus wants.
pub fn seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}
