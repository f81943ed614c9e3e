//! What a keyspace promises, and how long things may take.

use crate::contract::Configuration;
use crate::planted::Planted;

/// How many followers must hold a write before it is acknowledged, and so before anybody sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// None: a write is acknowledged at once. What a crashed leader had not sent is lost.
    None,
    /// This many.
    Count(u16),
    /// As many as make a majority of the group together with the leader.
    Majority,
    /// Every replica of the in-sync set.
    All,
}

impl Acks {
    /// How many followers that is in a group.
    pub fn needed(&self, configuration: &Configuration) -> usize {
        match self {
            Acks::None => 0,
            Acks::Count(count) => *count as usize,
            Acks::Majority => configuration.members.len() / 2,
            Acks::All => configuration.in_sync.len().saturating_sub(1),
        }
    }
}

/// What a replica finds again after its process, or its machine, has crashed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Nothing: everything is in memory.
    #[default]
    None,
    /// What was handed to the operating system: it outlives the process, but not the machine's power.
    Os,
    /// What was synced: it outlives both.
    Fsync,
}

/// What the keyspace promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// When a write is acknowledged.
    pub acks: Acks,
    /// True when followers may answer reads, which may then be stale (`reads = any`).
    pub reads_any: bool,
    /// How many bytes of applied history a replica keeps for followers that come back.
    pub backlog_bytes: usize,
    /// Values of at least so many bytes are spilled. It must never change, and be the same for all replicas.
    pub spill_bytes_min: usize,
    /// Whether the replica tells records, and counts as held only what is recorded. What a record's being durable means
    /// is the node's matter, so [`Durability::Os`] and [`Durability::Fsync`] are the same here.
    pub durability: Durability,
    /// A fault to be found, in tests.
    pub planted: Planted,
}

/// How long things may take, and how much may be under way. Times in milliseconds, sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A follower hears from its leader at least this often.
    pub heartbeat_ms: u64,
    /// Whoever was not heard for so long is silent.
    pub silence_ms: u64,
    /// Followers that nobody waits for acknowledge this often under load.
    pub lazy_acknowledge_ms: u64,
    /// With `acks = none` nobody waits for the followers: under load a follower gets a message at most this often,
    /// with all that was written since. When there was none for so long, the next one leaves at once.
    pub lazy_send_ms: u64,
    /// A commit that no batch carries to the followers goes alone after so long.
    pub commit_notice_ms: u64,
    /// A request of a leader without a lease, or a write that too few live followers could acknowledge, waits so long
    /// for a lease or for them, then it is refused.
    pub hold_ms: u64,
    /// A question without an answer is asked again after so long.
    pub retry_ms: u64,
    /// With `acks = none`, a new leader gives the others so long to answer: they may hold more.
    pub recovery_grace_ms: u64,
    /// A follower that has not acknowledged anything, a heartbeat neither, for so long leaves the in-sync set.
    pub in_sync_silence_ms: u64,
    /// A wish that the control group has not granted is repeated after so long.
    pub wish_ms: u64,
    /// A batch is closed when it has grown to this, even within a turn.
    pub batch_bytes: usize,
    /// Bytes sent to one follower and not acknowledged: beyond it the leader waits for the follower.
    pub window_bytes: usize,
    /// Bytes of writes that are not committed: beyond it new writes are refused.
    pub uncommitted_bytes_max: usize,
    /// One chunk of a snapshot.
    pub chunk_bytes: usize,
    /// Chunks sent and not acknowledged.
    pub chunk_window: u32,
    /// History kept beyond `backlog_bytes` so that a snapshot under way can be joined to it.
    pub resync_backlog_bytes_max: usize,
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
            wish_ms: 100,
            batch_bytes: 1 << 20,
            window_bytes: 64 << 20,
            uncommitted_bytes_max: 256 << 20,
            chunk_bytes: 256 << 10,
            chunk_window: 8,
            resync_backlog_bytes_max: 1 << 30,
        }
    }
}
