//! The keyspace's promises, and the protocol's timing.

use crate::contract::Configuration;
use crate::planted::Planted;
use crate::transfer::Window;

/// How many followers must hold a write before it is acknowledged, and so before it becomes visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// None: a write is acknowledged at once. Writes that a crashed leader had not sent are lost.
    None,
    /// This many followers.
    Count(u16),
    /// As many as make a majority of the group together with the leader.
    Majority,
    /// Every follower in the in-sync set.
    All,
}

impl Acks {
    /// Returns the number of followers that this means in a group with this configuration.
    pub fn needed(&self, configuration: &Configuration) -> usize {
        match self {
            Acks::None => 0,
            Acks::Count(count) => *count as usize,
            Acks::Majority => configuration.members.len() / 2,
            Acks::All => configuration.in_sync.len().saturating_sub(1),
        }
    }
}

/// What a replica still has after its process, or its machine, has crashed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Nothing: everything is in memory.
    #[default]
    None,
    /// What was handed to the operating system: it survives a crash of the process, but not a power loss.
    Os,
    /// What was synced: it survives both.
    Fsync,
}

/// What the keyspace promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// When a write is acknowledged.
    pub acks: Acks,
    /// True when followers may answer reads, which may then be stale (`reads = any`).
    pub reads_any: bool,
    /// The bytes of applied history that a replica keeps for followers that return.
    pub backlog_bytes: usize,
    /// Values of at least this many bytes are kept on the disk. Must never change, and must be the same for all replicas.
    pub spill_bytes_min: usize,
    /// Whether the replica emits records, and counts as held only what is recorded. What makes a record durable is up
    /// to the node, so [`Durability::Os`] and [`Durability::Fsync`] are the same here.
    pub durability: Durability,
    /// A planted fault, in tests.
    pub planted: Planted,
}

/// Intervals, time limits, and limits of what is under way. Times in milliseconds, sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A leader sends each follower something at least this often.
    pub heartbeat_ms: u64,
    /// A replica from which nothing was received for this long is silent.
    pub silence_ms: u64,
    /// Followers that no write waits for acknowledge this often under load.
    pub lazy_acknowledge_ms: u64,
    /// With `acks = none` no write waits for the followers: under load a follower gets a message at most this often, with
    /// everything written since the last one. If no message was sent for this long, the next one leaves at once.
    pub lazy_send_ms: u64,
    /// A commit that no batch carries to the followers is sent alone after this time.
    pub commit_notice_ms: u64,
    /// A request at a leader without a lease, or a write that too few live followers could acknowledge, waits this long
    /// for a lease or for them; then it is refused.
    pub hold_ms: u64,
    /// A request without an answer is repeated after this time.
    pub retry_ms: u64,
    /// With `acks = none`, how long a new leader waits for answers of the others, which may hold more.
    pub recovery_grace_ms: u64,
    /// A follower that has not acknowledged anything, not even a heartbeat, for this long leaves the in-sync set.
    pub in_sync_silence_ms: u64,
    /// A request that the control group has not granted is repeated after this time.
    pub in_sync_request_ms: u64,
    /// The size at which a batch is closed, even within a turn.
    pub batch_bytes: usize,
    /// The limit on bytes sent to one follower and not acknowledged: beyond it, the leader waits for the follower.
    pub window_bytes: usize,
    /// The same for a follower that has joined and does not hold yet what the leader held then. Less, since followers
    /// of other groups may use the same link, and a follower that repeats its question is sent this much again.
    pub catch_up_bytes: usize,
    /// Bytes of history and snapshots that a node sends in one turn to peers that lack them. A little more may leave.
    pub turn_bytes: usize,
    /// The limit on bytes of uncommitted writes: beyond it, new writes are refused.
    pub uncommitted_bytes_max: usize,
    /// The size of one chunk of a snapshot.
    pub chunk_bytes: usize,
    /// Chunks sent and not acknowledged.
    pub chunk_window: usize,
    /// The bytes of history kept beyond `backlog_bytes` so that they can follow a snapshot under way.
    pub transfer_backlog_bytes_max: usize,
}

impl Timing {
    /// How much of a snapshot is under way.
    pub(super) fn window(&self) -> Window {
        Window { chunk_bytes: self.chunk_bytes, chunks: self.chunk_window }
    }
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            heartbeat_ms: 100,
            silence_ms: 1000,
            lazy_acknowledge_ms: 10,
            lazy_send_ms: 1,
            commit_notice_ms: 5,
            hold_ms: 1000,
            retry_ms: 200,
            recovery_grace_ms: 80,
            in_sync_silence_ms: 300,
            in_sync_request_ms: 100,
            batch_bytes: 1 << 20,
            window_bytes: 64 << 20,
            catch_up_bytes: 4 << 20,
            turn_bytes: 1 << 20,
            uncommitted_bytes_max: 256 << 20,
            chunk_bytes: 256 << 10,
            chunk_window: 8,
            transfer_backlog_bytes_max: 1 << 30,
        }
    }
}
