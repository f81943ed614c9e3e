//! What a keyspace asks for, and how long things may take.

use crate::planted::Planted;
use crate::registers;

/// What becomes of an operation whose key is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It fails: refused as `LOCKED`. So did the study's, and so its throughput is measured.
    None,
    /// It releases what it was granted, waits a random time that grows with each try, and tries again until its
    /// deadline.
    Backoff,
}

/// What the keyspace asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// What becomes of an operation whose key is locked.
    pub retry: Retry,
    /// What is acknowledged outlives crashes: replicas keep records. The node decides when a record is durable. Fixed for
    /// a replica's life.
    pub keeps_records: bool,
    /// A fault to be found, in tests.
    pub planted: Planted,
}

/// How long things may take. Times in milliseconds, sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A replica keeps a lock for its holder so long, by its own clock, then gives it to whoever asks. A replica
    /// that was started again grants nothing for so long.
    pub lease_ms: u64,
    /// A question without an answer is asked again after so long.
    pub retry_ms: u64,
    /// The first wait for a locked key is drawn from up to so long; the bound doubles with each try.
    pub backoff_min_ms: u64,
    /// The bound grows no further than this.
    pub backoff_max_ms: u64,
    /// A write that is not acknowledged so shortly before its deadline is called back.
    pub withdraw_ms: u64,
    /// While links to a majority are down for so long, operations are refused at once.
    pub hold_ms: u64,
    /// A message is closed when it has grown to this, even within a turn.
    pub batch_bytes: usize,
    /// Bytes of keys and values of operations under way: beyond it new ones are refused.
    pub open_bytes_max: usize,
    /// How long refilling, repair and the collection of tombstones may take.
    pub upkeep: registers::Timing,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            lease_ms: 5000, // The study's.
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
