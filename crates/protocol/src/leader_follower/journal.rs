//! The replica's records: what it has told of them in this life, and how much of its history they make durable.

use super::backlog::Batch;
use super::record::{Change, RecordedBatch};
use crate::contract::{Effects, Now};
use kv::Version;
use std::collections::VecDeque;

/// Keeps count. When nothing is to be found again after a crash it tells nothing, and everything counts as durable.
#[derive(Debug)]
pub(super) struct Journal {
    is_kept: bool,
    /// Records told in this life.
    pub(super) told: u64,
    /// Up to this record they are durable.
    pub(super) durable: u64,
    /// The record of the newest epoch.
    pub(super) epoch_record: u64,
    /// The newest epoch that an earlier life knew of.
    pub(super) earlier_epoch: u64,
    /// Which record makes the history durable up to which offset. Only those that are not durable yet.
    pub(super) marks: VecDeque<(u64, Version)>,
    /// Up to this offset the history is durable.
    held: Version,
    /// The newest commit told.
    commit: Version,
    commit_us: u64,
}

impl Journal {
    pub(super) fn new(is_kept: bool) -> Journal {
        Journal {
            is_kept,
            told: 0,
            durable: 0,
            epoch_record: 0,
            earlier_epoch: 0,
            marks: VecDeque::new(),
            held: 0,
            commit: 0,
            commit_us: 0,
        }
    }

    /// Whether records are told at all.
    #[inline]
    pub(super) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// The last record told: what a message that vouches for everything held now must wait for. 0 without records.
    pub(super) fn last(&self) -> u64 {
        self.told
    }

    /// All that is held was found on the disk.
    pub(super) fn begin_life(&mut self, held: Version, epoch: u64) {
        assert!(self.marks.is_empty(), "a batch is recorded before this life begins");
        self.held = held;
        self.earlier_epoch = epoch;
    }

    /// Up to which offset the history is recorded, durably or not yet.
    #[inline]
    pub(super) fn recorded(&self) -> Version {
        self.marks.back().map_or(self.held, |(_, offset)| *offset)
    }

    pub(super) fn tell(&mut self, change: &Change<'_>, effects: &mut Effects) {
        if !self.is_kept {
            return;
        }
        effects.record(|out| change.encode(out));
        self.told += 1;
        if let Change::Epoch { .. } = change {
            self.epoch_record = self.told;
        }
    }

    /// A batch is added to the history.
    pub(super) fn tell_batch(&mut self, batch: &Batch, commit: Version, effects: &mut Effects) {
        if !self.is_kept {
            return;
        }
        assert_eq!(batch.first, self.recorded() + 1, "a batch is recorded that leaves a hole");
        self.tell(&Change::Batch { batch: RecordedBatch::of(batch), commit }, effects);
        self.commit = self.commit.max(commit);
        self.marks.push_back((self.told, batch.end().offset));
    }

    /// The history's end is cut off.
    pub(super) fn tell_truncated(&mut self, after: Version, effects: &mut Effects) {
        self.tell(&Change::Truncate { after }, effects);
        self.held = self.held.min(after);
        // What is kept may not be durable yet: it is when its own record is.
        while self.marks.back().is_some_and(|(_, offset)| *offset > after) {
            self.marks.pop_back();
        }
    }

    /// The table and the history are a copy's from now on, up to this offset.
    pub(super) fn tell_installed(&mut self, offset: Version, effects: &mut Effects) {
        if !self.is_kept {
            return;
        }
        self.tell(&Change::CopyEnd, effects);
        self.held = 0;
        self.marks.clear();
        self.marks.push_back((self.told, offset));
    }

    /// Tells now and then what is committed, where no batch does: after a crash less is to be asked of others.
    pub(super) fn tell_commit(&mut self, now: Now, commit: Version, effects: &mut Effects) {
        const INTERVAL_MS: u64 = 1000;
        if self.is_kept && commit > self.commit && now.ms_since(self.commit_us) >= INTERVAL_MS {
            self.tell(&Change::Commit { offset: commit }, effects);
            self.commit = commit;
            self.commit_us = now.monotonic_us;
        }
    }

    /// Whether nothing is left to tell of what is committed.
    pub(super) fn has_told_commit(&self, commit: Version) -> bool {
        !self.is_kept || commit <= self.commit
    }

    /// Records are durable up to this one.
    pub(super) fn durable(&mut self, record: u64) {
        self.durable = self.durable.max(record.min(self.told));
        while let Some((_, offset)) = self.marks.pop_front_if(|(record, _)| *record <= self.durable) {
            self.held = offset;
        }
    }

    /// Up to which offset the history is durable.
    #[inline]
    pub(super) fn held(&self) -> Version {
        if self.is_kept { self.held } else { Version::MAX }
    }

    /// Whether the newest epoch is durable: no later life will mistake it for one that is still to begin.
    pub(super) fn is_epoch_durable(&self) -> bool {
        self.durable >= self.epoch_record
    }
}
