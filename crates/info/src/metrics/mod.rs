//! What a node reports in Prometheus's text format.

mod coding;
mod groups;
mod node;

use std::fmt::Write;

use coding::coding_metrics;
pub use groups::{GroupMetrics, group_metrics, time_metrics};
pub use node::node_metrics;

/// Milliseconds as seconds, the unit that Prometheus wants.
fn seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

/// Begins a metric. By Prometheus's rules the names of counters end in `_total`, and no others do.
pub fn head(name: &str, help: &str, out: &mut String) {
    let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
    // Writing to a string does not fail.
    let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

/// Appends metrics with one value each: their names without `quorate_`, explanations and values.
pub fn counters_and_gauges(metrics: &[(&str, &str, u64)], out: &mut String) {
    for (name, help, value) in metrics {
        let name = format!("quorate_{name}");
        head(&name, help, out);
        let _ = writeln!(out, "{name} {value}");
    }
}
