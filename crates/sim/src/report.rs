//! The result of a run.

use crate::faults::Counts;
use crate::promise::Protocol;
use crate::scenario::Part;
use crate::trace::Line;
use std::collections::BTreeMap;

/// The kind of promise that a run broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[must_use = "a test that accepts any failure proves little"]
pub enum Broken {
    /// Clients got replies that cannot be right.
    Safety,
    /// A client or node waited in vain although all faults were over.
    Liveness,
    /// A leader was replaced, or a request was not answered, although nodes were only busy.
    Leadership,
    /// Replicas did not become equal.
    Convergence,
    /// A node sent a message that another node cannot read, or an invalid reply.
    Language,
    /// A node did not start, or stopped, although its disk had no fault.
    Storage,
    /// A node accepted data that it had no room for.
    Backpressure,
    /// A node's own check of an invariant failed.
    Panic,
    /// The checker ran out of its budget: the verdict is unknown.
    Undecided,
}

impl Broken {
    /// The kind's name, one word.
    pub fn name(self) -> &'static str {
        match self {
            Broken::Safety => "safety",
            Broken::Liveness => "liveness",
            Broken::Leadership => "leadership",
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
    /// The time around the failure, in microseconds since the run began: start and end.
    pub window_us: (u64, u64),
    /// A picture of the impossible operations, as SVG. `None` if there is none.
    pub picture: Option<String>,
}

/// What runs have covered of one protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Keyspaces of this protocol, over all runs.
    pub keyspaces: u64,
    /// Operations that were sent.
    pub operations: u64,
    /// Of these, those with the outcome done.
    pub done: u64,
    /// Those that were refused: nothing happened.
    pub refused: u64,
    /// Those with an unknown outcome.
    pub unknown: u64,
    /// Operations whose order was checked.
    pub checked: u64,
    /// Acknowledged writes that were lost where that is allowed (`acks = none`).
    pub lost_acknowledged: u64,
}

impl Seen {
    /// Adds the numbers of another run.
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

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The run's seed.
    pub seed: u64,
    /// A fingerprint of everything that happened: equal for every replay.
    pub digest: u64,
    /// How long the run lasted, in microseconds of simulated time.
    pub simulated_us: u64,
    /// The number of turns of all nodes.
    pub turns: u64,
    /// The number of messages between nodes.
    pub frames: u64,
    /// How often each class of fault happened.
    pub counts: Counts,
    /// What the run covered of each protocol.
    pub seen: BTreeMap<Protocol, Seen>,
    /// Why the run failed; `None` if it did not.
    pub failure: Option<Failure>,
    /// A description of the cluster, its environment and its faults, in lines.
    pub scenario: Vec<String>,
    /// The parts that could be left out of the run.
    pub parts: Vec<Part>,
    /// The number of clients.
    pub clients: usize,
    /// How long faults and load lasted, in milliseconds.
    pub length_ms: u64,
    /// The run's trace; empty unless it was requested.
    pub lines: Vec<Line>,
}

impl Report {
    /// The number of operations, over all protocols.
    pub fn operations(&self) -> u64 {
        self.seen.values().map(|seen| seen.operations).sum()
    }

    /// The number of operations whose order was checked.
    pub fn checked(&self) -> u64 {
        self.seen.values().map(|seen| seen.checked).sum()
    }

    /// Returns the lines of the trace around the failure, at most `most`.
    pub fn lines_around_failure(&self, most: usize) -> &[Line] {
        let Some(failure) = &self.failure else { return &[] };
        const MARGIN_US: u64 = 20_000;
        let (from, to) = failure.window_us;
        let first = self.lines.partition_point(|line| line.at_us + MARGIN_US < from);
        let last = self.lines.partition_point(|line| line.at_us <= to.saturating_add(MARGIN_US));
        // The failure shows at the end of the window.
        &self.lines[first.max(last.saturating_sub(most))..last]
    }
}
