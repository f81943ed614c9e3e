//! What came of a run.

use crate::faults::Counts;
use crate::promise::Protocol;
use crate::scenario::Part;
use crate::trace::Line;
use std::collections::BTreeMap;

/// How a run went against what was promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Broken {
    /// Clients were told what cannot be.
    Safety,
    /// Somebody waited in vain, though nothing was wrong any more.
    Liveness,
    /// Replicas did not become equal.
    Convergence,
    /// A node said what another one cannot read, or answered what is no answer.
    Language,
    /// A node did not start, or stopped, though its disk had done nothing wrong.
    Storage,
    /// A node took in what it had no room for.
    Backpressure,
    /// A node's own check of an invariant failed.
    Panic,
    /// The checker ran out of its budget: nothing is known.
    Undecided,
}

impl Broken {
    /// One word.
    pub fn name(self) -> &'static str {
        match self {
            Broken::Safety => "safety",
            Broken::Liveness => "liveness",
            Broken::Convergence => "convergence",
            Broken::Language => "language",
            Broken::Storage => "storage",
            Broken::Backpressure => "backpressure",
            Broken::Panic => "panic",
            Broken::Undecided => "undecided",
        }
    }
}

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which promise was broken.
    pub broken: Broken,
    /// How, in words.
    pub words: String,
    /// The time around which it happened, in microseconds since the run began.
    pub window_us: (u64, u64),
    /// A picture of the operations that cannot be, as SVG, if there is one.
    pub picture: Option<String>,
}

/// How much of each protocol a run has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Keyspaces of this protocol, over all runs.
    pub keyspaces: u64,
    /// Operations that were sent.
    pub operations: u64,
    /// Of these, those that were done.
    pub done: u64,
    /// Those that were refused: nothing happened.
    pub refused: u64,
    /// Those of which nobody knows.
    pub unknown: u64,
    /// Operations whose order was checked.
    pub checked: u64,
    /// Acknowledged writes that were lost where that is allowed (`acks = none`).
    pub lost_acknowledged: u64,
}

impl Seen {
    /// Adds what another run has seen.
    pub fn merge(&mut self, other: &Seen) {
        self.keyspaces += other.keyspaces;
        self.operations += other.operations;
        self.done += other.done;
        self.refused += other.refused;
        self.unknown += other.unknown;
        self.checked += other.checked;
        self.lost_acknowledged += other.lost_acknowledged;
    }
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The run's seed.
    pub seed: u64,
    /// A fingerprint of everything that happened: equal for every replay.
    pub digest: u64,
    /// How long it lasted, in microseconds of the simulated world.
    pub simulated_us: u64,
    /// Turns of nodes.
    pub turns: u64,
    /// Messages between nodes.
    pub frames: u64,
    /// What went wrong on purpose, how often.
    pub counts: Counts,
    /// What each protocol was asked.
    pub seen: BTreeMap<Protocol, Seen>,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
    /// The cluster, its surroundings and its faults, in words.
    pub scenario: Vec<String>,
    /// What could be left out of it.
    pub parts: Vec<Part>,
    /// How many clients it had.
    pub clients: usize,
    /// How long faults and load lasted, in milliseconds.
    pub length_ms: u64,
    /// Its story; empty unless it was asked for.
    pub lines: Vec<Line>,
}

impl Report {
    /// Operations of all protocols.
    pub fn operations(&self) -> u64 {
        self.seen.values().map(|seen| seen.operations).sum()
    }

    /// Operations whose order was checked.
    pub fn checked(&self) -> u64 {
        self.seen.values().map(|seen| seen.checked).sum()
    }

    /// The lines of the story around the failure: at most so many.
    pub fn lines_around_failure(&self, most: usize) -> &[Line] {
        let Some(failure) = &self.failure else { return &[] };
        const MARGIN_US: u64 = 20_000;
        let (from, to) = failure.window_us;
        let first = self.lines.partition_point(|line| line.at_us + MARGIN_US < from);
        let last = self.lines.partition_point(|line| line.at_us <= to.saturating_add(MARGIN_US));
        // The end of the window is where it shows.
        &self.lines[first.max(last.saturating_sub(most))..last]
    }
}
