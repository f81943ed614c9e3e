//! The newest part of a group's history, kept in memory so that a returning follower can get what it lacks.

use super::message::Message;
use super::position::Position;
use crate::contract::Now;
use kv::codec::Reader;
use kv::table::WARMED_KEYS_MAX;
use kv::{Command, Table, UnixMs, Version};
use std::collections::VecDeque;
use std::sync::Arc;

/// The records that one turn of a leader wrote: the unit that is sent, kept, acknowledged and cut off.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) epoch: u64,
    pub(super) first: Version,
    pub(super) count: u32,
    /// The leader's time when it was written.
    pub(super) time: UnixMs,
    /// When this replica received it, on its own monotonic clock.
    pub(super) received_us: u64,
    /// The records, shared with the code that sends them.
    pub(super) records: Arc<[u8]>,
    /// Bytes of all batches up to and including this one, since the backlog began, without those cut off. Set by
    /// [`Backlog::push`].
    pub(super) stream_end: u64,
}

impl Batch {
    /// Returns the position of its last record.
    pub(super) fn end(&self) -> Position {
        Position { epoch: self.epoch, offset: self.first + self.count as u64 - 1 }
    }

    /// Returns the batch of an append; none if it is a heartbeat.
    pub(super) fn received(message: &Message<'_>, now: Now) -> Option<Batch> {
        match *message {
            Message::Append { previous, batch_epoch, count, time, records, .. } if count > 0 => Some(Batch {
                epoch: batch_epoch,
                first: previous.offset + 1,
                count,
                time,
                received_us: now.monotonic_us,
                records: records.into(),
                stream_end: 0,
            }),
            _ => None,
        }
    }

    /// Returns the records as commands, several at a time.
    pub(super) fn windows(&self) -> Windows<'_> {
        Windows {
            reader: Reader::of_checked(&self.records),
            next: self.first,
            commands: Vec::with_capacity(Windows::COMMANDS.min(self.count as usize)),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.records.len() + std::mem::size_of::<Batch>()
    }
}

/// Walks through a batch several commands at a time: the memory that they need is fetched all at once, before the first
/// of them is applied. In a large table a command spends most of its time waiting for memory.
pub(super) struct Windows<'a> {
    reader: Reader<'a>,
    next: Version,
    commands: Vec<(Version, Command<'a>)>,
}

impl<'a> Windows<'a> {
    const COMMANDS: usize = WARMED_KEYS_MAX;

    /// Moves to the next commands; false when none are left.
    pub(super) fn advance(&mut self, table: &Table) -> bool {
        self.commands.clear();
        while self.commands.len() < Self::COMMANDS && !self.reader.is_empty() {
            let command =
                Command::decode(&mut self.reader).expect("records are checked before they are kept");
            self.commands.push((self.next, command));
            self.next += 1;
        }
        if self.commands.len() > 1 {
            table.warm_for(self.commands.iter().map(|(_, command)| command));
        }
        !self.commands.is_empty()
    }

    /// Returns the commands of this window, each with its offset.
    pub(super) fn commands(&self) -> &[(Version, Command<'a>)] {
        &self.commands
    }
}

/// Batches without gaps, from just after `base` to the replica's last position.
///
/// Invariant: positions that replicas send each other lie on batch ends, and all replicas that hold a batch hold it with the
/// same bounds. So a follower never needs a part of one.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    pub(super) base: Position,
    pub(super) batches: VecDeque<Batch>,
    /// The first position of each of the newest epochs, as far as known since the last snapshot.
    pub(super) epochs: VecDeque<Position>,
    /// The epoch just before the first of these.
    epoch_before: u64,
    pub(super) bytes: usize,
    pub(super) stream_end: u64,
}

impl Backlog {
    /// Returns the position just before the oldest batch kept.
    pub(super) fn base(&self) -> Position {
        self.base
    }

    /// Returns the position of the newest record, kept or not.
    pub(super) fn last(&self) -> Position {
        self.batches.back().map_or(self.base, Batch::end)
    }

    /// The bytes that the batches take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends a batch.
    ///
    /// # Panics
    /// If it does not follow the last one: that would be a hole in the history.
    pub(super) fn push(&mut self, mut batch: Batch) {
        assert!(batch.count > 0, "a batch without records");
        assert_eq!(batch.first, self.last().offset + 1, "a batch leaves a hole in the history");
        assert!(batch.epoch >= self.last().epoch, "a batch of an older epoch behind a newer one");
        if batch.epoch > self.last().epoch {
            const EPOCHS_MAX: usize = 64;
            self.epochs.push_back(Position { epoch: batch.epoch, offset: batch.first });
            if self.epochs.len() > EPOCHS_MAX {
                self.epoch_before = self.epochs.pop_front().map_or(0, |begin| begin.epoch);
            }
        }
        self.bytes += batch.bytes();
        self.stream_end += batch.records.len() as u64;
        batch.stream_end = self.stream_end;
        self.batches.push_back(batch);
    }

    /// Returns the bytes of all records up to `offset` since the backlog began, if that is the end of a batch kept or the
    /// base. Does not change when batches are dropped. O(log n).
    pub(super) fn stream_at(&self, offset: Version) -> Option<u64> {
        if offset == self.base.offset {
            let begins = |batch: &Batch| batch.stream_end - batch.records.len() as u64;
            return Some(self.batches.front().map_or(self.stream_end, begins));
        }
        let index = self.batches.partition_point(|batch| batch.end().offset < offset);
        self.batches.get(index).filter(|batch| batch.end().offset == offset).map(|batch| batch.stream_end)
    }

    /// Returns the bytes of the records after `after`, up to `until`, as far as they are kept. O(log n).
    pub(super) fn bytes_between(&self, after: Version, until: Version) -> u64 {
        let end_at = |offset: Version| {
            let index = self.batches.partition_point(|batch| batch.end().offset <= offset);
            match index.checked_sub(1).and_then(|before| self.batches.get(before)) {
                Some(batch) => batch.stream_end,
                None => self
                    .batches
                    .front()
                    .map_or(self.stream_end, |batch| batch.stream_end - batch.records.len() as u64),
            }
        };
        end_at(until).saturating_sub(end_at(after))
    }

    /// Returns the batch that begins just after `offset`, if it is kept. O(log n).
    pub(super) fn following(&self, offset: Version) -> Option<&Batch> {
        let index = self.batches.partition_point(|batch| batch.first <= offset);
        self.batches.get(index).filter(|batch| batch.first == offset + 1)
    }

    /// Returns the position at `offset`, if it is the end of a batch kept, or the base.
    pub(super) fn position_at(&self, offset: Version) -> Option<Position> {
        if offset == self.base.offset {
            return Some(self.base);
        }
        let index = self.batches.partition_point(|batch| batch.end().offset < offset);
        self.batches.get(index).map(Batch::end).filter(|end| end.offset == offset)
    }

    /// Returns the last position up to which a replica whose history ends at `other` certainly agrees with this one.
    ///
    /// One leader writes an epoch, so a replica that holds a record of epoch e at or after this replica's last record of
    /// epoch e holds that record too. About other epochs nothing is known from `other` alone, so the result is `None`.
    pub(super) fn common_with(&self, other: Position) -> Option<Position> {
        let fits = |end: &Position| end.epoch == other.epoch && end.offset <= other.offset;
        self.batches.iter().rev().map(Batch::end).chain([self.base]).find(fits)
    }

    /// Returns the offset up to which a history that ends at `other` is part of this one, if that is known: everything
    /// before the first later epoch of this history.
    pub(super) fn agrees_until(&self, other: Position) -> Option<Version> {
        if self.epoch_before > other.epoch {
            return None; // Epochs between `other`'s and the oldest known are forgotten.
        }
        let later = self.epochs.iter().find(|begin| begin.epoch > other.epoch);
        let end = later.map_or(self.last().offset, |begin| begin.offset - 1);
        Some(end.min(other.offset))
    }

    /// Cuts off everything after `offset`, which must be the end of a batch kept or the base. Returns how many records were
    /// cut.
    pub(super) fn truncate_after(&mut self, offset: Version) -> u64 {
        let before = self.last().offset;
        while let Some(batch) = self.batches.back().filter(|batch| batch.end().offset > offset) {
            self.bytes -= batch.bytes();
            self.stream_end -= batch.records.len() as u64;
            self.batches.pop_back();
        }
        assert_eq!(self.last().offset, offset, "a history can only be cut between batches");
        while self.epochs.pop_back_if(|begin| begin.offset > offset).is_some() {}
        before - offset
    }

    /// Returns how many of the records after `offset`, as far as they are kept, are not a client's write: they remove
    /// keys that have expired or are evicted, or are parts of a long write that another record ends.
    pub(super) fn others_behind(&self, offset: Version) -> u64 {
        let behind = self.batches.iter().filter(|batch| batch.first > offset);
        let others = |batch: &Batch| {
            let mut reader = Reader::new(&batch.records);
            let mut others = 0;
            while let Ok(command) = Command::decode(&mut reader) {
                use Command::{Evict, LongPart, Purge};
                others += u64::from(matches!(command, Purge { .. } | Evict { .. } | LongPart { .. }));
            }
            others
        };
        behind.map(others).sum()
    }

    /// Drops the oldest batches while more than `bytes_max` are held, but none after `keep_after`.
    pub(super) fn trim(&mut self, bytes_max: usize, keep_after: Version) {
        assert!(self.base.offset <= keep_after, "records are needed that were dropped");
        while self.bytes > bytes_max {
            let Some(batch) = self.batches.front().filter(|batch| batch.end().offset <= keep_after) else {
                return;
            };
            self.base = batch.end();
            self.bytes -= batch.bytes();
            self.batches.pop_front();
        }
    }

    /// Forgets every batch: the history is known to end at `base`.
    pub(super) fn reset(&mut self, base: Position) {
        self.batches.clear();
        self.epochs.clear();
        self.epoch_before = base.epoch;
        self.bytes = 0;
        self.base = base;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(epoch: u64, first: Version, count: u32) -> Batch {
        let mut records = Vec::new();
        (0..count).for_each(|_| Command::Clear {}.encode(&mut records));
        Batch { epoch, first, count, time: 0, received_us: 0, records: records.into(), stream_end: 0 }
    }

    /// Epoch 1 wrote 1..=5, epoch 3 wrote 6..=9.
    fn backlog() -> Backlog {
        let mut backlog = Backlog::default();
        [batch(1, 1, 2), batch(1, 3, 3), batch(3, 6, 4)].into_iter().for_each(|batch| backlog.push(batch));
        backlog
    }

    #[test]
    fn a_batch_is_found_by_the_offset_it_follows() {
        let backlog = backlog();
        assert_eq!(backlog.following(2).map(|batch| batch.first), Some(3));
        assert!(backlog.following(3).is_none(), "3 lies within a batch");
        assert!(backlog.following(9).is_none(), "nothing is behind the last");
    }

    #[test]
    fn histories_agree_up_to_the_last_batch_of_the_same_epoch() {
        let backlog = backlog();
        let common = |epoch, offset| backlog.common_with(Position { epoch, offset }).map(|end| end.offset);
        assert_eq!(common(1, 5), Some(5));
        assert_eq!(common(1, 8), Some(5), "a deposed leader's 6..=8 of epoch 1 are not ours");
        assert_eq!(common(3, 9), Some(9));
        assert_eq!(common(2, 7), None, "nothing is known of epoch 2");
        assert_eq!(common(0, 0), Some(0), "an empty history agrees with every other");
    }

    #[test]
    fn an_epoch_ends_where_a_later_one_begins() {
        let mut backlog = backlog();
        backlog.trim(0, 9); // The epochs of dropped batches are still known.
        let agrees = |epoch, offset| backlog.agrees_until(Position { epoch, offset });
        assert_eq!(agrees(1, 4), Some(4));
        assert_eq!(agrees(1, 8), Some(5), "6..=8 of epoch 1 are not here");
        assert_eq!(agrees(2, 8), Some(5), "nor is anything of epoch 2");
        assert_eq!(agrees(3, 12), Some(9));
        backlog.reset(Position { epoch: 3, offset: 9 });
        assert_eq!(
            backlog.agrees_until(Position { epoch: 1, offset: 8 }),
            None,
            "a snapshot does not show it"
        );
    }

    #[test]
    fn trimming_keeps_what_is_not_applied_and_moves_the_base() {
        let mut backlog = backlog();
        backlog.trim(0, 5);
        assert_eq!((backlog.base().offset, backlog.last().offset), (5, 9));
        assert_eq!(
            backlog.common_with(Position { epoch: 1, offset: 5 }),
            Some(Position { epoch: 1, offset: 5 })
        );
        assert_eq!(backlog.truncate_after(5), 4);
        assert_eq!(backlog.bytes(), 0);
    }

    /// A leader that counted them as uncommitted would refuse writes forever.
    #[test]
    fn records_that_were_cut_off_are_not_counted() {
        let mut backlog = backlog();
        let bytes = backlog.bytes_between(5, 9);
        backlog.truncate_after(5);
        backlog.push(batch(4, 6, 4));
        assert_eq!(backlog.bytes_between(5, 9), bytes);
    }
}
