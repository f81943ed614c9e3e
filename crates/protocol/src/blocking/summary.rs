//! The status of a replica in the terms that all protocols share.

use super::Status;
use crate::registers::counters::upkeep;
use crate::status::{self, counter};

impl From<Status> for status::Status {
    fn from(status: Status) -> status::Status {
        let Status { role, incarnation, ready, catches_up, explanation, counters: counted, .. } = status;
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
