//! Known faults that a test can plant in the log, to show that tests and simulator find them: see [`kv::planted`].

/// A fault seen in published systems: each is the absence of one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A batch at the end whose checksum does not match is taken as valid.
    TornTailAccepted,
    /// The checksum of a batch is computed but not compared.
    ChecksumNotCompared,
    /// A sync that failed counts as done.
    SyncErrorIgnored,
    /// A sync counts for what was written while it ran.
    SyncCoversLaterWrites,
    /// The folder is not synced after files were created or renamed.
    FolderNotSynced,
    /// A snapshot is committed before the log is durable up to its position.
    SnapshotBeforeLog,
    /// What was read at a start counts as durable, though a failed sync may have left it only in memory.
    ReadCountsAsDurable,
    /// The log ends at the first invalid batch, whatever follows it.
    LossNotNoticed,
    /// What followed the cut of a torn tail is left there.
    TailNotCleared,
}

/// The planted fault, if any.
pub type Planted = kv::planted::Planted<Fault>;
