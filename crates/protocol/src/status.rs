//! A replica's status, in terms that all protocols share.

use crate::effects::NodeId;
use kv::Version;

/// A counter of a replica.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    /// The name in the metrics, without `_total`.
    pub name: &'static str,
    /// The explanation in the metrics.
    pub help: &'static str,
    /// The count since the replica was made.
    pub value: u64,
}

/// The status of one follower, for `INFO`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowerStatus {
    /// Its node.
    pub id: NodeId,
    /// `streaming`, `snapshot`, `silent` or `absent`.
    pub state: &'static str,
    /// The last offset that it acknowledged, in the unit of [`Status::offset`]; 0 if that is not known.
    pub acked: Version,
    /// By how much that is behind the leader's [`Status::offset`].
    pub lag: u64,
    /// The milliseconds for which the oldest of what it has not acknowledged has been waiting, as far as measured.
    pub lag_ms: u64,
}

/// The status of a group on this node. Fields that a protocol does not have are zero or empty.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// `leader`, `follower`, `replica`, `recovering`, `refilling`, `idle`; `none` without a replica here.
    pub role: &'static str,
    /// The highest epoch seen; for protocols without a leader, the replica's incarnation.
    pub epoch: u64,
    /// The leader; 0 when the protocol has none.
    pub leader: NodeId,
    /// The last record, or the end of the log, that it holds.
    pub offset: u64,
    /// The last record that its table shows.
    pub applied: u64,
    /// Whether it can serve in its role now; if not, `explanation` gives the reason.
    pub ready: bool,
    /// Whether it is not ready because it lacks what other members hold, and gets it from them.
    pub catches_up: bool,
    /// Whether it accepts writes now.
    pub writable: bool,
    /// The number of records by which a follower is behind its leader, or its table is behind its log.
    pub lag: u64,
    /// The milliseconds by which a follower is behind, as far as measured.
    pub lag_ms: u64,
    /// The offset after which history is in memory.
    pub backlog_start: u64,
    /// The bytes of that history.
    pub backlog_bytes: usize,
    /// Whether it is receiving a snapshot.
    pub receives_snapshot: bool,
    /// The milliseconds since a follower last received a message from its leader.
    pub leader_silent_ms: u64,
    /// At a leader, the status of each follower.
    pub followers: Vec<FollowerStatus>,
    /// The protocol's counters.
    pub counters: Vec<Counter>,
    /// Why it is not ready, for people; empty when it is.
    pub explanation: String,
}

/// A counter with this name and explanation.
pub(crate) fn counter(name: &'static str, help: &'static str, value: u64) -> Counter {
    Counter { name, help, value }
}

impl Status {
    /// Returns the counter of a name; 0 when the protocol does not have it.
    pub fn counted(&self, name: &str) -> u64 {
        self.counters.iter().find(|counter| counter.name == name).map_or(0, |counter| counter.value)
    }
}
