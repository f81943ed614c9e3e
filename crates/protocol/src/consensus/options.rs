//! The options of a keyspace, and its timing.

use crate::contract::{NodeId, Now};
use crate::planted::{Fault, Planted};
use crate::transfer::Window;

/// How a leader makes sure, before it answers a read, that no other replica leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// The newest entry that it committed is its lease.
    Log,
    /// It requests a confirmation from a majority, once for all reads of a turn.
    Off,
}

/// The options of the keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How reads are made linearizable.
    pub lease: Lease,
    /// True when any replica may answer reads, which may then be stale (`reads = any`).
    pub reads_any: bool,
    /// How many bytes of log a replica keeps in memory before it cuts off the oldest part.
    pub log_bytes: usize,
    /// The shortest value that is not kept in memory, in bytes: see [`kv::table::Spilled`]. Must be the same on all nodes,
    /// and never change.
    pub spill_bytes_min: usize,
    /// True when the leader's node decides whether there is room for each write, right before it is ordered. Then requests that
    /// were held until there was a leader go back to its node, which would otherwise have all of them ordered at once.
    pub is_bounded: bool,
    /// A fault to be found, in tests.
    pub planted: Planted,
}

/// How long things may take, and how much may be under way. Times in milliseconds, sizes in bytes.
///
/// The defaults are chosen so that writes continue within half a second after a leader's death. All members notice its
/// silence within two rounds of heartbeats, and know that all have noticed it within another two: 320 ms. The leader's
/// lease, which began with the newest entry that the others hold, has nearly ended by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// One round of heartbeats, by which a leader is elected. Must be the same on all nodes.
    pub heartbeat_ms: u64,
    /// Whether rounds end at multiples of `heartbeat_ms` on the node's clock, so that the rounds of all its groups share turns
    /// and writes. A round that does not begin at such a moment lasts between 0.75 and 1.75 times as long: see
    /// [`Now::next_beat_us`]. A node sets it; scripted scenarios, whose messages depend on when a round began, do not.
    pub rounds_in_step: bool,
    /// Rounds after which an unanswered message of the crate is sent again.
    pub resend_rounds: u64,
    /// How long a committed entry lets its proposer answer reads alone, counted from its proposal. Must be the same on all
    /// nodes.
    pub lease_ms: u64,
    /// How much longer a new leader waits for the old one's lease: more than two nodes' monotonic clocks drift apart
    /// within a lease. A tenth of the lease allows each clock an error of 4 %, a hundred times that of a bad crystal.
    pub lease_margin_ms: u64,
    /// A peer is silent when no message of its has come for this long.
    pub silence_ms: u64,
    /// A batch is closed when it has grown to this, even within a turn.
    pub batch_bytes: usize,
    /// How long the scripts that are applied in one turn may take, in nanoseconds: less than a round of heartbeats, whose
    /// answers wait for them. A batch is closed when its scripts take this long.
    pub applying_ns: u64,
    /// How long the scripts that are not applied yet may take, in nanoseconds: beyond it new ones are refused.
    pub unapplied_ns_max: u64,
    /// Bytes of writes that are not committed yet: beyond it new writes are refused.
    pub uncommitted_bytes_max: usize,
    /// A replica that lacks more of the log than this gets the state instead.
    pub sync_bytes_max: usize,
    /// One chunk of a transfer, or one slice of the log for a follower that returns.
    pub chunk_bytes: usize,
    /// Chunks, or slices, sent to one replica and not acknowledged.
    pub chunk_window: usize,
    /// Bytes of snapshots and slices that a node sends in one turn. A little more may leave.
    pub turn_bytes: usize,
    /// How long a fragment of an overwritten value is kept, for reads that began before.
    pub fragment_grace_ms: u64,
    /// How many bytes of such fragments are kept at most.
    pub fragment_grace_bytes: usize,
}

/// The settings of a replica, shared by all its components.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// The node that the replica is on.
    pub(super) id: NodeId,
    pub(super) options: Options,
    pub(super) timing: Timing,
    /// Seeds the hash of every table made here.
    pub(super) seed: u64,
    /// The version of the cluster map by which this node checks commands from now on.
    pub(super) map_version: u64,
}

impl Settings {
    /// The clock that leases are measured by.
    pub(super) fn lease_clock_us(&self, now: Now) -> u64 {
        match self.options.planted.has(Fault::LeaseOnWallClock) {
            true => now.unix_ms * 1000,
            false => now.monotonic_us,
        }
    }
}

impl Timing {
    /// How long a transfer may make no progress before it is given up.
    pub(super) fn patience_ms(&self) -> u64 {
        10 * self.silence_ms
    }

    /// How much of a snapshot is under way.
    pub(super) fn window(&self) -> Window {
        Window { chunk_bytes: self.chunk_bytes, chunks: self.chunk_window }
    }

    /// The same, with all times except those of scripts and fragments multiplied by `times`. Sizes stay.
    pub fn slower(self, times: u64) -> Timing {
        Timing {
            heartbeat_ms: self.heartbeat_ms * times,
            lease_ms: self.lease_ms * times,
            lease_margin_ms: self.lease_margin_ms * times,
            silence_ms: self.silence_ms * times,
            ..self
        }
    }
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            heartbeat_ms: 80,
            rounds_in_step: false,
            resend_rounds: 3,
            lease_ms: 300,
            lease_margin_ms: 30,
            silence_ms: 240,
            batch_bytes: 1 << 20,
            applying_ns: 4_000_000,
            unapplied_ns_max: 1_000_000_000,
            uncommitted_bytes_max: 16 << 20,
            sync_bytes_max: 16 << 20,
            chunk_bytes: 256 << 10,
            chunk_window: 8,
            turn_bytes: 1 << 20,
            fragment_grace_ms: 5000,
            fragment_grace_bytes: 64 << 20,
        }
    }
}
