//! What many runs have seen together.

use crate::faults::Counts;
use crate::promise::Protocol;
use crate::report::{Report, Seen};
use std::collections::BTreeMap;

/// Sums over runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Runs.
    pub runs: u64,
    /// Microseconds of the simulated world.
    pub simulated_us: u64,
    /// Turns of nodes.
    pub turns: u64,
    /// Messages between nodes.
    pub frames: u64,
    /// What went wrong on purpose.
    pub counts: Counts,
    /// What each protocol was asked.
    pub seen: BTreeMap<Protocol, Seen>,
}

impl Totals {
    /// Adds a run.
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

    /// Operations of all protocols.
    pub fn operations(&self) -> u64 {
        self.seen.values().map(|seen| seen.operations).sum()
    }

    /// Operations whose order was checked.
    pub fn checked(&self) -> u64 {
        self.seen.values().map(|seen| seen.checked).sum()
    }
}
