//! The replica's records: how many it has emitted in this incarnation, and how much of its history they make durable.

use super::backlog::Batch;
use super::record::{Change, RecordedBatch};
use crate::contract::{Effects, Now};
use kv::Version;
use std::collections::VecDeque;

/// Counts records. When nothing has to survive a crash, the replica emits none, and everything counts as durable.
#[derive(Debug)]
pub(super) struct Journal {
    is_kept: bool,
    /// The records emitted in this incarnation.
    pub(super) emitted: u64,
    /// The last durable record.
    pub(super) durable: u64,
    /// The record of the newest epoch.
    pub(super) epoch_record: u64,
    /// The newest epoch that an earlier incarnation knew.
    pub(super) earlier_epoch: u64,
    /// For each record that is not durable yet, the offset up to which it makes the history durable.
    pub(super) marks: VecDeque<(u64, Version)>,
    /// The offset up to which the history is durable.
    held: Version,
    /// The newest commit recorded.
    commit: Version,
    commit_us: u64,
}

impl Journal {
    pub(super) fn new(is_kept: bool) -> Journal {
        Journal {
            is_kept,
            emitted: 0,
            durable: 0,
            epoch_record: 0,
            earlier_epoch: 0,
            marks: VecDeque::new(),
            held: 0,
            commit: 0,
            commit_us: 0,
        }
    }

    /// Whether it emits records at all.
    #[inline]
    pub(super) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Returns the last record emitted: a message that vouches for everything held now must wait for it. 0 without
    /// records.
    pub(super) fn last(&self) -> u64 {
        self.emitted
    }

    /// Begins an incarnation that has found everything that it holds on the disk.
    pub(super) fn begin_life(&mut self, held: Version, epoch: u64) {
        assert!(self.marks.is_empty(), "a batch is recorded before this incarnation begins");
        self.held = held;
        self.earlier_epoch = epoch;
    }

    /// Returns the offset up to which the history is recorded, durably or not yet.
    #[inline]
    pub(super) fn recorded(&self) -> Version {
        self.marks.back().map_or(self.held, |(_, offset)| *offset)
    }

    pub(super) fn record(&mut self, change: &Change<'_>, effects: &mut Effects) {
        if !self.is_kept {
            return;
        }
        effects.record(|out| change.encode(out));
        self.emitted += 1;
        if let Change::Epoch { .. } = change {
            self.epoch_record = self.emitted;
        }
    }

    /// Records that a batch was added to the history.
    pub(super) fn record_batch(&mut self, batch: &Batch, commit: Version, effects: &mut Effects) {
        if !self.is_kept {
            return;
        }
        assert_eq!(batch.first, self.recorded() + 1, "a batch is recorded that leaves a hole");
        self.record(&Change::Batch { batch: RecordedBatch::of(batch), commit }, effects);
        self.commit = self.commit.max(commit);
        self.marks.push_back((self.emitted, batch.end().offset));
    }

    /// Records that the history's end was cut off.
    pub(super) fn record_truncated(&mut self, after: Version, effects: &mut Effects) {
        self.record(&Change::Truncate { after }, effects);
        self.held = self.held.min(after);
        // The part that is kept may not be durable yet: it becomes durable with its own record.
        while self.marks.back().is_some_and(|(_, offset)| *offset > after) {
            self.marks.pop_back();
        }
    }

    /// Records that the table and the history are now those of a snapshot, up to this offset.
    pub(super) fn record_installed(&mut self, offset: Version, effects: &mut Effects) {
        if !self.is_kept {
            return;
        }
        self.record(&Change::SnapshotEnd, effects);
        self.held = 0;
        self.marks.clear();
        self.marks.push_back((self.emitted, offset));
    }

    /// Periodically records the commit offset, if no batch does: then less must be fetched from others after a crash.
    pub(super) fn record_commit(&mut self, now: Now, commit: Version, effects: &mut Effects) {
        const INTERVAL_MS: u64 = 1000;
        if self.is_kept && commit > self.commit && now.ms_since(self.commit_us) >= INTERVAL_MS {
            self.record(&Change::Commit { offset: commit }, effects);
            self.commit = commit;
            self.commit_us = now.monotonic_us;
        }
    }

    /// Whether this commit offset has been recorded.
    pub(super) fn has_recorded_commit(&self, commit: Version) -> bool {
        !self.is_kept || commit <= self.commit
    }

    /// Notes that records are durable up to this one.
    pub(super) fn durable(&mut self, record: u64) {
        self.durable = self.durable.max(record.min(self.emitted));
        while let Some((_, offset)) = self.marks.pop_front_if(|(record, _)| *record <= self.durable) {
            self.held = offset;
        }
    }

    /// Returns the offset up to which the history is durable.
    #[inline]
    pub(super) fn held(&self) -> Version {
        if self.is_kept { self.held } else { Version::MAX }
    }

    /// Whether the newest epoch is durable. If it is, no later incarnation will mistake it for an epoch that has not
    /// begun.
    pub(super) fn is_epoch_durable(&self) -> bool {
        self.durable >= self.epoch_record
    }
}
