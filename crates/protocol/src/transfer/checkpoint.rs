//! A checkpoint under way: the chunks of a snapshot are written as records.

use kv::Table;
use kv::table::SnapshotId;

/// The table at the moment when the checkpoint began, and the record that precedes it.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    snapshot: SnapshotId,
    /// The first record, until it is written.
    begin: Option<Vec<u8>>,
}

impl Checkpoint {
    /// Begins a checkpoint from a snapshot; `begin` is the encoded record before its chunks.
    pub(crate) fn new(snapshot: SnapshotId, begin: Vec<u8>) -> Checkpoint {
        Checkpoint { snapshot, begin: Some(begin) }
    }

    /// Appends the next record: a chunk of about `bytes_max` bytes, as `encode` writes it. False when that was the
    /// table's last chunk: what follows the table may be appended to the same record.
    pub(crate) fn next(
        &mut self,
        table: &mut Table,
        bytes_max: usize,
        record: &mut Vec<u8>,
        encode: impl FnOnce(&[u8], &mut Vec<u8>),
    ) -> bool {
        if let Some(begin) = self.begin.take() {
            record.extend_from_slice(&begin);
            return true;
        }
        let mut chunk = Vec::new();
        let more = table.snapshot_chunk(self.snapshot, bytes_max, &mut chunk);
        encode(&chunk, record);
        more
    }

    /// Ends the checkpoint, which is written or abandoned.
    pub(crate) fn end(self, table: &mut Table) {
        table.end_snapshot(self.snapshot);
    }
}
