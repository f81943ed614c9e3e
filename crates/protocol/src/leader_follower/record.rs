//! Records: what must survive a crash of the replica.
//!
//! Replayed in order, the records of a replica's incarnations rebuild its state. A checkpoint consists of records too, so
//! there is only one way of restoring a replica: the checkpoint's records, then those made after it.

use super::backlog::Batch;
use super::position::{Moment, check_records, put_position, take_position};
use crate::contract::Now;
use kv::codec::{Malformed, Reader, Writer};
use kv::{UnixMs, Version};

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// No older epoch is followed any more.
    Epoch {
        /// The epoch.
        epoch: u64,
        /// Whether this replica is its leader.
        leads: bool,
    },
    /// Whether the replica holds everything that it ever acknowledged.
    Intact(bool),
    /// A batch after the last one.
    Batch {
        /// The batch.
        batch: RecordedBatch<'a>,
        /// The offset up to which everything was applied when the batch was recorded.
        commit: Version,
    },
    /// Everything after an offset is cut off.
    Truncate {
        /// The last offset kept.
        after: Version,
    },
    /// Everything up to an offset is committed.
    Commit {
        /// The offset.
        offset: Version,
    },
    /// A snapshot of the table, another replica's or a checkpoint's, begins.
    SnapshotBegin(Moment),
    /// A chunk of the snapshot.
    SnapshotChunk(&'a [u8]),
    /// A batch that follows the snapshot and belongs to it: without the batch, the snapshot may be older than the state
    /// that it replaces.
    SnapshotBatch(RecordedBatch<'a>),
    /// The snapshot is complete, and replaces the table and the history.
    SnapshotEnd,
}

/// One batch of a leader's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedBatch<'a> {
    /// The epoch in which it was written.
    pub epoch: u64,
    /// The offset of its first record.
    pub first: Version,
    /// How many records it holds.
    pub count: u32,
    /// The leader's time when it was written.
    pub time: UnixMs,
    /// The records.
    pub records: &'a [u8],
}

impl<'a> RecordedBatch<'a> {
    pub(super) fn of(batch: &'a Batch) -> RecordedBatch<'a> {
        let Batch { epoch, first, count, time, .. } = *batch;
        RecordedBatch { epoch, first, count, time, records: &batch.records }
    }

    /// Returns the batch, as if it had just been received.
    pub(super) fn to_batch(self, now: Now) -> Batch {
        let RecordedBatch { epoch, first, count, time, records } = self;
        let (received_us, records) = (now.monotonic_us, records.into());
        Batch { epoch, first, count, time, received_us, records, stream_end: 0 }
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.reserve(48 + self.records.len());
        out.put_u64(self.epoch);
        out.put_u64(self.first);
        out.put_u32(self.count);
        out.put_u64(self.time);
        out.put_bytes(self.records);
    }

    fn take(reader: &mut Reader<'a>) -> Result<RecordedBatch<'a>, Malformed> {
        let (epoch, first, count, time) = (reader.u64()?, reader.u64()?, reader.u32()?, reader.u64()?);
        let records = reader.bytes()?;
        check_records(records, count)?;
        if count == 0 || first.checked_add(count as u64).is_none() {
            return Err(Malformed("a batch that no leader writes"));
        }
        Ok(RecordedBatch { epoch, first, count, time, records })
    }
}

const EPOCH: u8 = 1;
const INTACT: u8 = 2;
const BATCH: u8 = 3;
const TRUNCATE: u8 = 4;
const COMMIT: u8 = 5;
const SNAPSHOT_BEGIN: u8 = 6;
const SNAPSHOT_CHUNK: u8 = 7;
const SNAPSHOT_BATCH: u8 = 8;
const SNAPSHOT_END: u8 = 9;

impl<'a> Change<'a> {
    /// Appends the change's encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Change::Epoch { epoch, leads } => {
                out.put_u8(EPOCH);
                out.put_u64(epoch);
                out.put_bool(leads);
            }
            Change::Intact(intact) => {
                out.put_u8(INTACT);
                out.put_bool(intact);
            }
            Change::Batch { batch, commit } => {
                out.put_u8(BATCH);
                out.put_u64(commit);
                batch.put(out);
            }
            Change::Truncate { after } => {
                out.put_u8(TRUNCATE);
                out.put_u64(after);
            }
            Change::Commit { offset } => {
                out.put_u8(COMMIT);
                out.put_u64(offset);
            }
            Change::SnapshotBegin(Moment { position, floor, time }) => {
                out.put_u8(SNAPSHOT_BEGIN);
                put_position(out, position);
                out.put_u64(floor);
                out.put_u64(time);
            }
            Change::SnapshotChunk(chunk) => {
                out.put_u8(SNAPSHOT_CHUNK);
                out.put_bytes(chunk);
            }
            Change::SnapshotBatch(batch) => {
                out.put_u8(SNAPSHOT_BATCH);
                batch.put(out);
            }
            Change::SnapshotEnd => out.put_u8(SNAPSHOT_END),
        }
    }

    /// Decodes the next change of a record, which may hold several.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not a change.
    pub fn take(reader: &mut Reader<'a>) -> Result<Change<'a>, Malformed> {
        Ok(match reader.u8()? {
            EPOCH => Change::Epoch { epoch: reader.u64()?, leads: reader.bool()? },
            INTACT => Change::Intact(reader.bool()?),
            BATCH => Change::Batch { commit: reader.u64()?, batch: RecordedBatch::take(reader)? },
            TRUNCATE => Change::Truncate { after: reader.u64()? },
            COMMIT => Change::Commit { offset: reader.u64()? },
            SNAPSHOT_BEGIN => {
                let position = take_position(reader)?;
                Change::SnapshotBegin(Moment { position, floor: reader.u64()?, time: reader.u64()? })
            }
            SNAPSHOT_CHUNK => Change::SnapshotChunk(reader.bytes()?),
            SNAPSHOT_BATCH => Change::SnapshotBatch(RecordedBatch::take(reader)?),
            SNAPSHOT_END => Change::SnapshotEnd,
            _ => return Err(Malformed("unknown kind of record")),
        })
    }
}
