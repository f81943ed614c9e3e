//! Totals over many runs.

use crate::faults::Counts;
use crate::promise::Protocol;
use crate::report::{Report, Seen};
use std::collections::BTreeMap;

/// Sums over runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The number of runs.
    pub runs: u64,
    /// Simulated time, in microseconds.
    pub simulated_us: u64,
    /// The number of turns of all nodes.
    pub turns: u64,
    /// The number of messages between nodes.
    pub frames: u64,
    /// How often each class of fault happened.
    pub counts: Counts,
    /// What the runs covered of each protocol.
    pub seen: BTreeMap<Protocol, Seen>,
}

impl Totals {
    /// Adds the numbers of a run.
    pub fn add(&mut self, report: &Report) {
        self.runs += 1;
        self.simulated_us += report.simulated_us;
        self.turns += report.turns;
        self.frames += report.frames;
        self.counts.merge(&report.counts);
        for (protocol, seen) in &report.seen {
            self.seen.entry(*protocol).or_default().merge(seen);
        }
    }

    /// The number of operations, over all protocols.
    pub fn operations(&self) -> u64 {
        self.seen.values().map(|seen| seen.operations).sum()
    }

    /// The number of operations whose order was checked.
    pub fn checked(&self) -> u64 {
        self.seen.values().map(|seen| seen.checked).sum()
    }
}
