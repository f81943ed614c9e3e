//! Restoring a replica from its records. Checkpoints consist of records too.
//!
//! See [`crate::Replica`] for what a node does with them.

use super::State;
use crate::contract::{Effects, Now, Progress};
use crate::leader_follower::backlog::Batch;
use crate::leader_follower::position::Moment;
use crate::leader_follower::record::{Change, RecordedBatch};
use crate::leader_follower::snapshot::Snapshot;
use crate::transfer;
use kv::Version;
use kv::codec::{Malformed, Reader};

/// A checkpoint being written: the replica's state when it began.
#[derive(Debug)]
pub(in crate::leader_follower) struct Checkpoint {
    table: transfer::Checkpoint,
    /// The batches that were not applied at that time: shared, not copied.
    rest: Vec<Batch>,
    applied: Version,
}

/// A snapshot being replayed, and the batches that belong to it.
#[derive(Debug)]
pub(in crate::leader_follower) struct Replayed {
    pub(in crate::leader_follower) snapshot: Snapshot,
    rest: Vec<Batch>,
}

impl State {
    /// Takes a record that an earlier incarnation made.
    pub(in crate::leader_follower) fn take_record(
        &mut self,
        now: Now,
        record: &[u8],
    ) -> Result<(), Malformed> {
        let mut reader = Reader::new(record);
        while !reader.is_empty() {
            self.take_change(now, Change::take(&mut reader)?)?;
        }
        Ok(())
    }

    fn take_change(&mut self, now: Now, change: Change<'_>) -> Result<(), Malformed> {
        match change {
            Change::Epoch { epoch, leads } => {
                self.epoch = self.epoch.max(epoch);
                if leads {
                    self.led = Some(epoch);
                }
            }
            Change::Intact(intact) => self.intact = intact,
            Change::Batch { batch, commit } => {
                self.replay_batch(batch.to_batch(now))?;
                self.replay_commit(commit);
            }
            Change::Truncate { after } => {
                if after < self.applied || self.backlog.position_at(after).is_none() {
                    return Err(Malformed("a history that is cut where it cannot be"));
                }
                self.backlog.truncate_after(after);
            }
            Change::Commit { offset } => self.replay_commit(offset),
            Change::SnapshotBegin(moment) => {
                self.give_up_replayed();
                self.replayed = Some(Replayed { snapshot: self.begin_snapshot(moment), rest: Vec::new() });
            }
            Change::SnapshotChunk(chunk) => {
                if let Some(replayed) = &mut self.replayed {
                    replayed.snapshot.table.install(chunk)?;
                }
            }
            Change::SnapshotBatch(batch) => {
                if let Some(replayed) = &mut self.replayed {
                    replayed.rest.push(batch.to_batch(now));
                }
            }
            Change::SnapshotEnd => {
                let replayed = self.replayed.take();
                let Replayed { snapshot, rest } =
                    replayed.ok_or(Malformed("a snapshot ends that never began"))?;
                self.install(snapshot);
                rest.into_iter().try_for_each(|batch| self.replay_batch(batch))?;
            }
        }
        Ok(())
    }

    fn replay_batch(&mut self, batch: Batch) -> Result<(), Malformed> {
        let last = self.last();
        if batch.first != last.offset + 1 || batch.epoch < last.epoch {
            return Err(Malformed("a batch that does not follow the one before it"));
        }
        self.backlog.push(batch);
        Ok(())
    }

    fn replay_commit(&mut self, offset: Version) {
        self.apply_until(offset, &mut Effects::default());
        self.backlog.trim(self.backlog_bytes_max(), self.applied);
    }

    fn give_up_replayed(&mut self) {
        if let Some(mut replayed) = self.replayed.take() {
            self.table.take_spilled_of(&mut replayed.snapshot.table);
        }
    }

    /// Begins a new incarnation with the contents of the records, after all of them were replayed.
    pub(in crate::leader_follower) fn begin_life(&mut self, effects: &mut Effects) {
        self.give_up_replayed(); // The rest of it was lost.
        self.journal.begin_life(self.last().offset, self.epoch);
        if std::mem::take(&mut self.is_new) {
            self.set_intact(effects);
        }
        if !self.intact {
            self.journal.record(&Change::Intact(false), effects); // No later incarnation may trust the records, either.
        }
    }

    /// Begins a checkpoint of what is applied, and of what is held after it.
    pub(in crate::leader_follower) fn begin_checkpoint(&mut self) -> bool {
        self.abandon_checkpoint();
        let Some(position) = self.backlog.position_at(self.applied) else { return false };
        let mut begin = Vec::new();
        let leads = self.led == Some(self.epoch);
        // The last epoch that it led, and the newest that it knows.
        if let Some(epoch) = self.led.filter(|_| !leads) {
            Change::Epoch { epoch, leads: true }.encode(&mut begin);
        }
        Change::Epoch { epoch: self.epoch, leads }.encode(&mut begin);
        if self.intact {
            Change::Intact(true).encode(&mut begin);
        }
        let (floor, time) = (self.table.version_floor(), self.time);
        Change::SnapshotBegin(Moment { position, floor, time }).encode(&mut begin);
        let mut rest = Vec::new();
        let mut end = position.offset;
        while let Some(batch) = self.backlog.following(end) {
            end = batch.end().offset;
            rest.push(batch.clone());
        }
        assert_eq!(end, self.last().offset, "a checkpoint stands for all that is held");
        let table = transfer::Checkpoint::new(self.table.begin_snapshot(), begin);
        self.checkpoint = Some(Checkpoint { table, rest, applied: self.applied });
        true
    }

    pub(in crate::leader_follower) fn checkpoint_record(
        &mut self,
        bytes_max: usize,
        record: &mut Vec<u8>,
    ) -> Progress {
        let Some(checkpoint) = &mut self.checkpoint else { return Progress::Abandoned };
        let encode = |chunk: &[u8], out: &mut Vec<u8>| Change::SnapshotChunk(chunk).encode(out);
        if checkpoint.table.next(&mut self.table, bytes_max, record, encode) {
            return Progress::More;
        }
        Change::SnapshotEnd.encode(record);
        for batch in &checkpoint.rest {
            Change::Batch { batch: RecordedBatch::of(batch), commit: checkpoint.applied }.encode(record);
        }
        self.abandon_checkpoint();
        Progress::Whole
    }

    pub(in crate::leader_follower) fn abandon_checkpoint(&mut self) {
        if let Some(checkpoint) = self.checkpoint.take() {
            checkpoint.table.end(&mut self.table);
        }
    }
}
