//! The basis of judgements: series of one arm, and comparisons of two.

use super::{KEYS, NODES, Protocol, WORKLOADS};
use crate::harness::Results;
use crate::report::short;

/// Selects the rows that a judgement uses.
#[derive(Clone, Copy)]
pub(super) struct Place<'r> {
    pub(super) results: &'r Results,
    pub(super) workload: &'static str,
    pub(super) keys: u64,
    pub(super) down: u32,
}

impl<'r> Place<'r> {
    /// The study's own setting.
    pub(super) fn of(results: &'r Results, workload: &'static str) -> Place<'r> {
        Place { results, workload, keys: KEYS, down: 0 }
    }

    /// The medians of a measure by the number of clients, in ascending order.
    pub(super) fn series(&self, arm: &str, measure: &str) -> Vec<(u32, f64)> {
        let rows = self.results.arm(arm).with("workload", self.workload).with("keys", self.keys);
        let series = rows.with("down", self.down).series("clients", measure);
        series.into_iter().map(|(clients, spread)| (clients as u32, spread.median)).collect()
    }

    pub(super) fn first(&self, arm: &str, measure: &str) -> Option<f64> {
        self.series(arm, measure).first().map(|(_, value)| *value)
    }

    pub(super) fn last(&self, arm: &str, measure: &str) -> Option<f64> {
        self.series(arm, measure).last().map(|(_, value)| *value)
    }
}

pub(super) fn both(results: &Results) -> [Place<'_>; 2] {
    WORKLOADS.map(|(workload, ..)| Place::of(results, workload))
}

/// At how many points ABD's rate is higher, and the ratio at each point.
pub(super) struct Tally {
    pub(super) higher: usize,
    ratios: Vec<f64>,
}

impl Tally {
    /// Compares ABD's and blocking's successful throughput with `nodes` replicas, for both workloads and all numbers of
    /// clients.
    pub(super) fn of(results: &Results, nodes: usize) -> Tally {
        let mut ratios = Vec::new();
        for place in both(results) {
            let blocking = place.series(&Protocol::Blocking.arm(nodes), "per_s");
            for (clients, abd) in place.series(&Protocol::Abd.arm(nodes), "per_s") {
                let other = blocking.iter().find(|(other, _)| *other == clients);
                ratios.extend(other.map(|(_, blocking)| abd / blocking));
            }
        }
        Tally { higher: ratios.iter().filter(|ratio| **ratio > 1.0).count(), ratios }
    }

    pub(super) fn count(&self) -> usize {
        self.ratios.len()
    }

    pub(super) fn words(&self) -> String {
        let least = self.ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        format!(
            "higher at {} of {} points, {least:.2} to {most:.2} times blocking's",
            self.higher,
            self.count()
        )
    }
}

/// The peak of a rate: where it is, its value, and the share of it that remains with most clients.
pub(super) struct Peak {
    pub(super) clients: u32,
    pub(super) most_clients: u32,
    pub(super) rate: f64,
    pub(super) left: f64,
}

impl Peak {
    fn of(series: &[(u32, f64)]) -> Option<Peak> {
        let (clients, rate) = *series.iter().max_by(|left, right| left.1.total_cmp(&right.1))?;
        let (most_clients, last) = *series.last()?;
        Some(Peak { clients, most_clients, rate, left: last / rate })
    }
}

/// Every peak of a protocol: workload, replicas, and the peak.
pub(super) fn peaks(results: &Results, protocol: Protocol) -> Vec<(&'static str, usize, Peak)> {
    let mut peaks = Vec::new();
    for place in both(results) {
        for nodes in NODES {
            let series = place.series(&protocol.arm(nodes), "per_s");
            peaks.extend(Peak::of(&series).map(|peak| (place.workload, nodes, peak)));
        }
    }
    peaks
}

pub(super) fn peak_words(peaks: &[(&str, usize, Peak)]) -> String {
    let word = |(workload, nodes, peak): &(&str, usize, Peak)| {
        let (rate, left) = (short(peak.rate), peak.left * 100.0);
        format!("N={nodes} {workload}: {rate} op/s at {}, {left:.0} % of it with most clients", peak.clients)
    };
    peaks.iter().map(word).collect::<Vec<_>>().join("; ")
}
