//! The keyspace's options, and the protocol's timing.

use crate::planted::Planted;
use crate::registers;

/// What the keyspace promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Acknowledged writes survive crashes: replicas keep records. The node decides when a record is durable.
    pub keeps_records: bool,
    /// A planted fault, in tests.
    pub planted: Planted,
}

/// Intervals, time limits, and limits of what is under way. Times in milliseconds, sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Time limits of refilling, repair and the collection of tombstones.
    pub upkeep: registers::Timing,
    /// Messages to a member that has not answered for this long are repeated; each further repetition waits twice as
    /// long.
    pub retry_ms: u64,
    /// When too many links for a majority have been down for this long, requests are refused at once.
    pub hold_ms: u64,
    /// The size at which a message is closed, even within a turn.
    pub batch_bytes: usize,
    /// The limit on bytes sent to a member since the last message from it: beyond it, the member is sent only one message
    /// with each retry.
    pub window_bytes: usize,
    /// The limit on bytes of keys and values of requests under way: beyond it, new requests are refused.
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
