//! The keyspace's options, and the protocol's timing.

use crate::planted::Planted;
use crate::registers;

/// What happens to an operation whose key is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It fails: refused as `LOCKED`. The study did this, and its throughput was measured this way.
    None,
    /// It releases its locks, waits a random time that grows with each try, and tries again until its deadline.
    Backoff,
}

/// The keyspace's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// What happens to an operation whose key is locked.
    pub retry: Retry,
    /// Acknowledged writes survive crashes: replicas keep records. The node decides when a record is durable. Fixed as
    /// long as the replica exists.
    pub keeps_records: bool,
    /// A planted fault, in tests.
    pub planted: Planted,
}

/// Intervals, time limits, and limits of what is under way. Times in milliseconds, sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long a replica keeps a lock for its holder, by the replica's own clock, before another holder may get it.
    pub lease_ms: u64,
    /// A request without an answer is repeated after this time.
    pub retry_ms: u64,
    /// The first wait for a locked key is random up to this bound; the bound doubles with each try.
    pub backoff_min_ms: u64,
    /// The greatest bound.
    pub backoff_max_ms: u64,
    /// A write that is not acknowledged this long before its deadline is withdrawn.
    pub withdraw_ms: u64,
    /// When links to a majority have been down for this long, operations are refused at once.
    pub hold_ms: u64,
    /// The size at which a message is closed, even within a turn.
    pub batch_bytes: usize,
    /// The limit on bytes of keys and values of operations under way: beyond it, new operations are refused.
    pub open_bytes_max: usize,
    /// Time limits of refilling, repair and the collection of tombstones.
    pub upkeep: registers::Timing,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            lease_ms: 5000, // As in the study.
            retry_ms: 200,
            backoff_min_ms: 1,
            backoff_max_ms: 64,
            withdraw_ms: 200,
            hold_ms: 1000,
            batch_bytes: 1 << 20,
            open_bytes_max: 256 << 20,
            upkeep: registers::Timing::default(),
        }
    }
}
