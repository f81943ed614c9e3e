//! Counts of events at a replica.

/// Counts of events in this incarnation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that came late or twice, or for an earlier incarnation.
    pub dropped_messages: u64,
    /// Times that this follower had lost a message and started over with its leader.
    pub resyncs: u64,
    /// Snapshot transfers to others.
    pub transfers_sent: u64,
    /// Snapshots of others installed here.
    pub transfers_installed: u64,
    /// Times that the log in memory was cut.
    pub log_cuts: u64,
    /// Writes refused because too much was not committed yet.
    pub refused_writes: u64,
    /// Writes whose outcome was reported as unknown.
    pub unknown_writes: u64,
}
