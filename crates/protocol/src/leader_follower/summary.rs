//! The status of a replica in the terms that all protocols share.

use super::Status;
use crate::status::{self, counter};

impl From<Status> for status::Status {
    fn from(status: Status) -> status::Status {
        let counted = status.counters;
        status::Status {
            role: status.role,
            epoch: status.epoch,
            leader: status.leader,
            offset: status.offset,
            applied: status.applied,
            ready: status.ready,
            catches_up: status.catches_up,
            writable: status.writable,
            lag: status.lag,
            lag_ms: status.lag_ms,
            backlog_start: status.backlog_start,
            backlog_bytes: status.backlog_bytes,
            receives_snapshot: status.receives_snapshot,
            leader_silent_ms: status.leader_silent_ms,
            followers: status.followers,
            counters: vec![
                counter("partial_resyncs", "Partial resyncs.", counted.partial_resyncs),
                counter("full_resyncs", "Snapshot transfers.", counted.transfers),
                counter("truncated_records", "Uncommitted records cut off.", counted.truncated_records),
                counter(
                    "lost_writes",
                    "Acknowledged writes that a later leader gave up, at most.",
                    counted.lost_writes,
                ),
                counter("refused_writes", "Writes refused.", counted.refused_writes),
                counter("unknown_writes", "Writes with unknown outcome.", counted.unknown_writes),
            ],
            explanation: status.explanation,
        }
    }
}
