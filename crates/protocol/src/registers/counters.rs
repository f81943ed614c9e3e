//! What registers count, for the status of their protocols.

use super::Counters;
use crate::status::{Counter, counter};

/// The counters of all protocols without a leader.
pub(crate) fn upkeep(counted: Counters) -> [Counter; 3] {
    [
        counter("refills", "Times that this replica got its memory back.", counted.refills),
        counter("repaired_keys", "Keys that it got by repair.", counted.repaired_keys),
        counter("tombstones_collected", "Tombstones forgotten under its lead.", counted.collected_tombstones),
    ]
}
