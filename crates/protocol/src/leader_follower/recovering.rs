//! Recovery: what was acknowledged is lost with its replicas, and an operator decides that one of those that are left goes on
//! alone. Offline: no replica of the group runs.
//!
//! The cluster map says who that is, and begins an epoch. Records are needed only for writes that stand before all others
//! of the new history. They are of an epoch of their own, which no leader has had: it is above all that any survivor knows,
//! and below the one that the map begins.

use super::Replica;
use super::position::Position;
use super::record::{Change, RecordedBatch};
use kv::Command;

impl Replica {
    /// What its records say that it holds: the last position, the greatest epoch that it has seen, and whether it holds
    /// everything that it ever acknowledged. Ask before it is configured.
    pub fn recorded(&self) -> (Position, u64, bool) {
        (self.state.last(), self.state.epoch.max(self.state.journal.earlier_epoch), self.state.intact)
    }

    /// The record behind which these writes stand in its history, in an epoch of their own. Its next configuration must be of
    /// a later epoch, and of this replica alone.
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
