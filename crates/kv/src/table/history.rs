//! The latest changes of a table, for readers that come later: change streams, and Redis replicas.
//!
//! Each record that has changed something is kept with its version, the events of its keys and its effects: commands of
//! Redis that do the same ([`super::effects`]). Replicas agree on all of it, and versions only grow, so a reader that
//! remembers the last version it has read can continue at any replica.
//!
//! The invariant: every record that has changed something, with a version above [`History::since`] and up to the table's,
//! is here, in order. Any other change of the table ends the history, and it begins again at the version that the table
//! then has. So a reader may find that it is too late, but never misses a change without noticing.

use crate::reply::{Reply, ReplyBuffer};
use crate::{UnixMs, Version};
use std::collections::VecDeque;

/// Bytes that a record takes in addition to its changes.
const OVERHEAD_BYTES: usize = 64;

/// The latest changes of a table.
#[derive(Debug)]
pub struct History {
    /// Version and encoded changes of each record, in order.
    records: VecDeque<(Version, Box<[u8]>)>,
    bytes: usize,
    bytes_max: usize,
    /// The version behind which all changes are kept. `None`: the history begins with the next record.
    since: Option<Version>,
}

/// The state of a reader that has read everything up to a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recent {
    /// The version behind which all changes are kept. If it is above the reader's, the reader is too late.
    pub since: Version,
    /// The version up to which the reader has now read everything.
    pub until: Version,
    /// How many records were returned to it.
    pub records: usize,
}

impl History {
    pub(super) fn new(bytes_max: usize) -> History {
        History { records: VecDeque::new(), bytes: 0, bytes_max, since: None }
    }

    pub(super) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    pub(super) fn bound(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
        self.make_room();
    }

    /// Begins a record, which is applied to a table that has this version.
    pub(super) fn begin(&mut self, floor: Version) {
        self.since.get_or_insert(floor);
    }

    /// Keeps a record's time, events and effects, each of these two given as a count and the encoded elements; and the transaction over
    /// several groups of which it is a part, encoded.
    ///
    /// # Panics
    /// If the version is not above all previous ones: readers would confuse the two records.
    pub(super) fn keep(
        &mut self,
        version: Version,
        time: UnixMs,
        events: (u32, &[u8]),
        effects: (u32, &[u8]),
        transaction: Option<&[u8]>,
    ) {
        let before = self.records.back().map(|(version, _)| *version).or(self.since);
        assert!(
            before.is_none_or(|before| before < version),
            "versions of changes grow: {before:?}, {version}"
        );
        let mut record = ReplyBuffer::new();
        record.push(Reply::Array(4 + u32::from(transaction.is_some())));
        record.integer(version as i64);
        record.integer(time as i64);
        for (number, elements) in [events, effects] {
            record.push(Reply::Array(number));
            record.extend_encoded(elements);
        }
        record.extend_encoded(transaction.unwrap_or_default());
        let record: Box<[u8]> = record.take().into();
        self.bytes += record.len() + OVERHEAD_BYTES;
        self.records.push_back((version, record));
        self.make_room();
    }

    fn make_room(&mut self) {
        while self.bytes > self.bytes_max
            && let Some((version, record)) = self.records.pop_front()
        {
            self.bytes -= record.len() + OVERHEAD_BYTES;
            self.since = Some(version);
        }
    }

    /// Drops the history up to this version, because its record has changed more than could be noted.
    pub(super) fn lose(&mut self, version: Version) {
        self.records.clear();
        (self.bytes, self.since) = (0, Some(version));
    }

    /// Ends the history, because the table was changed other than by records.
    pub(super) fn restart(&mut self) {
        self.records.clear();
        (self.bytes, self.since) = (0, None);
    }

    /// Bytes that the changes take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The version behind which all changes are kept. `floor` is the table's version.
    pub fn since(&self, floor: Version) -> Version {
        self.since.unwrap_or(floor)
    }

    /// The versions of the records, in order.
    pub fn versions(&self) -> impl Iterator<Item = Version> {
        self.records.iter().map(|(version, _)| *version)
    }

    /// Appends the records behind the version `from`: as many as fit into `bytes_max` bytes, but at least one. Each is an
    /// array of the version, the record's time, the events (a key and the event's name for each), the effects (the words of
    /// each), and of a part of a transaction over several groups its name and all of its groups. `floor` is the table's version. O(log n), not counting the output.
    pub fn write_behind(
        &self,
        from: Version,
        floor: Version,
        bytes_max: usize,
        out: &mut ReplyBuffer,
    ) -> Recent {
        let since = self.since(floor);
        if from < since || from >= floor {
            return Recent { since, until: floor, records: 0 };
        }
        let first = self.records.partition_point(|(version, _)| *version <= from);
        let (mut until, mut bytes, mut records) = (from, 0, 0);
        for (version, record) in self.records.range(first..) {
            if bytes > 0 && bytes + record.len() > bytes_max {
                return Recent { since, until, records };
            }
            bytes += record.len();
            out.extend_encoded(record);
            (until, records) = (*version, records + 1);
        }
        Recent { since, until: floor, records }
    }
}

impl super::Table {
    /// `Recent`: an array of the version behind which all changes are kept, the version up to which these are complete, and
    /// the records.
    pub fn recent(&self, from: Version, bytes_max: u32, out: &mut ReplyBuffer) {
        let Some(history) = self.history() else {
            return out.error("ERR this keyspace keeps no changes: it has the setting changes=0");
        };
        let mut records = ReplyBuffer::new();
        let bytes_max = out.reply_bytes_max().min(bytes_max as usize);
        let recent = history.write_behind(from, self.version_floor(), bytes_max, &mut records);
        out.array(2 + recent.records);
        out.integer(recent.since as i64);
        out.integer(recent.until as i64);
        out.extend_encoded(records.as_bytes());
    }
}
