//! What the study claims, and what was measured here.

use crate::harness::{Claim, Judgement, Results};
use crate::report::short;

/// The arm that does what the study says its store does: a write waits for both followers.
const SYNCHRONOUS: &str = "Quorate acks=all";

pub(super) fn all() -> Vec<Claim> {
    vec![Claim::new(
        "Latency grows with the number of clients",
        "mean 12 ms to 75 ms from 5 to 50 clients, mixed (6.2)",
        |results| {
            let at = |clients: u32| {
                results.arm(SYNCHRONOUS).with("workload", "mixed").with("clients", clients).median("mean_ms")
            };
            let (Some(few), Some(many)) = (at(5), at(50)) else { return missing(results) };
            Judgement::holds_if(
                many > few,
                format!("{} ms to {} ms", short(few), short(many)),
                "A closed loop queues: with ten times the clients each waits longer.",
            )
        },
    )]
}

fn missing(_results: &Results) -> Judgement {
    Judgement::not_measured(format!("{SYNCHRONOUS} was not measured"))
}
