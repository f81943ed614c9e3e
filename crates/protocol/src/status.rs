//! A replica's status, in terms that all protocols share.

use crate::contract::NodeId;
use crate::leader_follower::FollowerStatus;
use crate::{abd, blocking, consensus, leader_follower, registers};

/// Something that a replica counts.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    /// Its name in the metrics, without `_total`.
    pub name: &'static str,
    /// The explanation in the metrics.
    pub help: &'static str,
    /// The count since the replica was made.
    pub value: u64,
}

/// The status of a group on this node. What a protocol does not have is zero or empty.
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
    /// Whether it does its part now; if not, `explanation` says why.
    pub ready: bool,
    /// Whether it takes writes now.
    pub writable: bool,
    /// The number of records by which a follower is behind its leader, or its table behind its log.
    pub lag: u64,
    /// The milliseconds by which a follower is behind, as far as measured.
    pub lag_ms: u64,
    /// The offset after which history is in memory.
    pub backlog_start: u64,
    /// The bytes of that history.
    pub backlog_bytes: usize,
    /// Whether it is receiving a snapshot.
    pub resyncing: bool,
    /// How long a follower has not heard from its leader.
    pub leader_silent_ms: u64,
    /// At a leader, the status of each follower.
    pub followers: Vec<FollowerStatus>,
    /// What the protocol counts.
    pub counters: Vec<Counter>,
    /// Why it is not ready, for people; empty when it is.
    pub explanation: String,
}

fn counter(name: &'static str, help: &'static str, value: u64) -> Counter {
    Counter { name, help, value }
}

/// The counters of all protocols without a leader.
fn upkeep(counted: registers::Counters) -> [Counter; 3] {
    [
        counter("refills", "Times that this replica got its memory back.", counted.refills),
        counter("repaired_keys", "Keys that it got by repair.", counted.repaired_keys),
        counter("tombstones_collected", "Tombstones forgotten under its lead.", counted.collected_tombstones),
    ]
}

impl From<leader_follower::Status> for Status {
    fn from(status: leader_follower::Status) -> Status {
        let counted = status.counters;
        Status {
            role: status.role,
            epoch: status.epoch,
            leader: status.leader,
            offset: status.offset,
            applied: status.applied,
            ready: status.ready,
            writable: status.writable,
            lag: status.lag,
            lag_ms: status.lag_ms,
            backlog_start: status.backlog_start,
            backlog_bytes: status.backlog_bytes,
            resyncing: status.resyncing,
            leader_silent_ms: status.leader_silent_ms,
            followers: status.followers,
            counters: vec![
                counter("partial_resyncs", "Partial resyncs.", counted.partial_resyncs),
                counter("full_resyncs", "Full resyncs.", counted.full_resyncs),
                counter("truncated_records", "Uncommitted records cut off.", counted.truncated_records),
                counter(
                    "lost_writes",
                    "Acknowledged writes that a later leader gave up.",
                    counted.lost_writes,
                ),
                counter("refused_writes", "Writes refused.", counted.refused_writes),
                counter("unknown_writes", "Writes with unknown outcome.", counted.unknown_writes),
            ],
            explanation: status.explanation,
        }
    }
}

impl From<abd::Status> for Status {
    fn from(status: abd::Status) -> Status {
        let abd::Status { role, incarnation, ready, explanation, counters: counted, .. } = status;
        let mut counters = vec![
            counter("one_round_reads", "Reads done in one round.", counted.one_round_reads),
            counter("two_round_reads", "Reads that wrote back first.", counted.two_round_reads),
            counter("write_backs", "Members that a value was written back to.", counted.write_backs),
            counter("retries", "Times that an operation asked again.", counted.retries),
            counter("refused", "Requests refused, nothing changed.", counted.refused),
            counter("unknown_writes", "Writes with unknown outcome.", counted.unknown),
        ];
        counters.extend(upkeep(status.upkeep));
        let epoch = incarnation.into();
        Status { role, epoch, ready, writable: ready, explanation, counters, ..Status::default() }
    }
}

impl From<blocking::Status> for Status {
    fn from(status: blocking::Status) -> Status {
        let blocking::Status { role, incarnation, ready, explanation, counters: counted, .. } = status;
        let mut counters = vec![
            counter("locks_granted", "Locks that this replica granted.", counted.granted),
            counter("locks_denied", "Locks that it denied.", counted.denied),
            counter("locks_expired", "Locks whose lease ran out.", counted.expired),
            counter("writes_denied", "Writes without the lock.", counted.writes_denied),
            counter("backoffs", "Operations that met a lock and tried again.", counted.backoffs),
            counter("one_round_reads", "Reads done in one round.", counted.one_round_reads),
            counter("repairs", "Reads that wrote back first.", counted.repairs),
            counter("surplus_released", "Locks released that were not needed.", counted.surplus_released),
            counter("retries", "Times that an operation asked again.", counted.retries),
            counter("withdrawn", "Writes called back before their deadline.", counted.withdrawn),
            counter("refused", "Requests refused, nothing changed.", counted.refused),
            counter("unknown_writes", "Writes with unknown outcome.", counted.unknown),
        ];
        counters.extend(upkeep(status.upkeep));
        let epoch = incarnation.into();
        Status { role, epoch, ready, writable: ready, explanation, counters, ..Status::default() }
    }
}

impl From<consensus::Status> for Status {
    fn from(status: consensus::Status) -> Status {
        let counted = status.counters;
        let follower = |follower: consensus::FollowerStatus| FollowerStatus {
            id: follower.id,
            state: if follower.live { "streaming" } else { "silent" },
            acked: follower.accepted,
            lag: status.end_entries.saturating_sub(follower.accepted),
            lag_ms: 0,
        };
        Status {
            role: status.role,
            epoch: status.epoch,
            leader: status.leader,
            offset: status.offset,
            applied: status.applied,
            ready: status.ready,
            writable: status.writable,
            lag: status.offset.saturating_sub(status.applied),
            backlog_start: status.log_start,
            backlog_bytes: status.log_bytes,
            resyncing: status.resyncing,
            followers: status.followers.iter().copied().map(follower).collect(),
            counters: vec![
                counter(
                    "partial_resyncs",
                    "Times that it had lost a message and started over.",
                    counted.resyncs,
                ),
                counter("full_resyncs", "Copies of its state sent to others.", counted.copies_sent),
                counter("copies_installed", "Copies of another's state installed.", counted.copies_installed),
                counter("log_cuts", "Times that the log in memory was cut.", counted.log_cuts),
                counter("dropped_messages", "Messages that came late or twice.", counted.dropped_messages),
                counter("refused_writes", "Writes refused.", counted.refused_writes),
                counter("unknown_writes", "Writes with unknown outcome.", counted.unknown_writes),
            ],
            explanation: status.explanation,
            ..Status::default()
        }
    }
}

impl Status {
    /// Returns the counter of a name; 0 when the protocol does not have it.
    pub fn counted(&self, name: &str) -> u64 {
        self.counters.iter().find(|counter| counter.name == name).map_or(0, |counter| counter.value)
    }
}
