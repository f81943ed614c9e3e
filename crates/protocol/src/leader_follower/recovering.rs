//! Recovery after acknowledged writes were lost with their replicas: an operator decides that one of the remaining
//! replicas continues alone. This happens offline: no replica of the group runs.
//!
//! The cluster map names that replica, and begins an epoch. Records are needed only for writes that come before all
//! others of the new history. They get a separate epoch, which no leader has had: above all epochs that any survivor
//! knows, and below the one that the map begins.

use super::Replica;
use super::position::Position;
use super::record::{Change, RecordedBatch};
use kv::Command;

impl Replica {
    /// Returns what the replica holds according to its records: the last position, the greatest epoch that it has seen,
    /// and whether it holds everything that it ever acknowledged. Call this before it is configured.
    pub fn recorded(&self) -> (Position, u64, bool) {
        (self.state.last(), self.state.epoch.max(self.state.journal.earlier_epoch), self.state.intact)
    }

    /// Returns a record that appends these writes to the replica's history, in a separate epoch. Its next configuration
    /// must be of a later epoch, and of this replica alone.
    ///
    /// # Panics
    /// When there are no writes, or the epoch is not above all that this replica has seen.
    pub fn alone(&self, epoch: u64, writes: &[Command<'_>]) -> Vec<u8> {
        let (last, seen, _) = self.recorded();
        assert!(epoch > seen.max(last.epoch), "epoch {epoch} would follow {}", seen.max(last.epoch));
        assert!(!writes.is_empty(), "a batch without records");
        let mut records = Vec::new();
        writes.iter().for_each(|command| command.encode(&mut records));
        let batch = RecordedBatch {
            epoch,
            first: last.offset + 1,
            count: writes.len() as u32,
            time: self.state.backlog.batches.back().map_or(0, |batch| batch.time).max(self.state.time),
            records: &records,
        };
        let mut record = Vec::new();
        Change::Epoch { epoch, leads: false }.encode(&mut record);
        Change::Batch { batch, commit: self.state.applied }.encode(&mut record);
        record
    }
}
