//! The status of a replica in the terms that all protocols share.

use super::Status;
use crate::registers::counters::upkeep;
use crate::status::{self, counter};

impl From<Status> for status::Status {
    fn from(status: Status) -> status::Status {
        let Status { role, incarnation, ready, catches_up, explanation, counters: counted, .. } = status;
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
        status::Status {
            role,
            epoch,
            ready,
            catches_up,
            writable: ready,
            explanation,
            counters,
            ..Default::default()
        }
    }
}
