//! How a replica stands, in words that all protocols share.

use crate::contract::NodeId;
use crate::leader_follower::FollowerStatus;
use crate::{abd, blocking, consensus, leader_follower, registers};

/// Something that a replica counts.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    /// As in the metrics, without `_total`.
    pub name: &'static str,
    /// What it counts, for people.
    pub help: &'static str,
    /// Since the replica was made.
    pub value: u64,
}

/// How a group stands here. What a protocol does not have is zero or empty.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// `leader`, `follower`, `replica`, `recovering`, `refilling`, `idle`; `none` without a replica here.
    pub role: &'static str,
    /// The highest epoch seen; without a leader, which of its lives the replica is in.
    pub epoch: u64,
    /// 0: the protocol has none.
    pub leader: NodeId,
    /// The last record, or the end of the log, that it holds.
    pub offset: u64,
    /// Up to where its table is.
    pub applied: u64,
    /// It does its part now; else `explanation` says why not.
    pub ready: bool,
    /// It takes writes now.
    pub writable: bool,
    /// By how many records a follower is behind its leader, or what is applied behind what is held.
    pub lag: u64,
    /// By how many milliseconds a follower is behind, as far as is measured.
    pub lag_ms: u64,
    /// Behind which offset history is in memory.
    pub backlog_start: u64,
    /// How much history that is.
    pub backlog_bytes: usize,
    /// A snapshot is on its way to it.
    pub resyncing: bool,
    /// For how long a follower has not heard its leader.
    pub leader_silent_ms: u64,
    /// At a leader: how each follower stands.
    pub followers: Vec<FollowerStatus>,
    /// What the protocol counts.
    pub counters: Vec<Counter>,
    /// Why it is not ready, for people; else empty.
    pub explanation: String,
}

fn counter(name: &'static str, help: &'static str, value: u64) -> Counter {
    Counter { name, help, value }
}

/// What all protocols without a leader count.
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
    /// What was counted under a name; 0 when the protocol does not count it.
    pub fn counted(&self, name: &str) -> u64 {
        self.counters.iter().find(|counter| counter.name == name).map_or(0, |counter| counter.value)
    }
}
