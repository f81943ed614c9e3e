//! What can be chosen, and how long things may take.

use crate::planted::Planted;
use crate::registers;

/// What the keyspace promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// What is acknowledged outlives crashes: replicas keep records. The node decides when a record is durable.
    pub keeps_records: bool,
    /// A fault to be found, in tests.
    pub planted: Planted,
}

/// How long things may take, and how much may be under way. Times in milliseconds, sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Refilling, repair and the collection of tombstones.
    pub upkeep: registers::Timing,
    /// Who has not answered for so long is asked again; each further time takes twice as long.
    pub retry_ms: u64,
    /// With so many links down for so long that no majority can be reached, requests are refused at once.
    pub hold_ms: u64,
    /// A message is closed when it has grown to this, even within a turn.
    pub batch_bytes: usize,
    /// Bytes sent to a member since it was last heard: beyond it, it is sent no more than a message with each retry.
    pub window_bytes: usize,
    /// Bytes of keys and values of requests under way: beyond it new requests are refused.
    pub open_bytes_max: usize,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            upkeep: registers::Timing::default(),
            retry_ms: 200,
            hold_ms: 1000,
            batch_bytes: 1 << 20,
            window_bytes: 64 << 20,
            open_bytes_max: 256 << 20,
        }
    }
}
