//! The latest changes of a table, for readers who come later: change streams, and Redis replicas.
//!
//! Each record that has changed something is kept with its version, the events of its keys and its effects: commands of
//! Redis that do the same ([`super::effects`]). Replicas agree on all of it, and versions only grow, so a reader that keeps
//! the version of what it read last goes on at any replica.
//!
//! The invariant: every record with a version above [`History::since`], up to the table's, that has changed something is
//! here, in order. Whatever else changes the table ends the history, and it begins anew at the version that the table has
//! then. So a reader may find that it has come too late, and never misses anything without finding that.

use crate::reply::{Reply, ReplyBuffer};
use crate::{UnixMs, Version};
use std::collections::VecDeque;

/// Bytes that a record takes beside its changes.
const OVERHEAD_BYTES: usize = 64;

/// The latest changes of a table.
#[derive(Debug)]
pub struct History {
    /// Version and encoded changes of each record, in order.
    records: VecDeque<(Version, Box<[u8]>)>,
    bytes: usize,
    bytes_max: usize,
    /// `None`: it begins with the next record.
    since: Option<Version>,
}

/// How a reader stands who has read all up to a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recent {
    /// The version behind which all changes are kept. If it is above the reader's, the reader has come too late.
    pub since: Version,
    /// The version up to which the reader has read all now.
    pub until: Version,
    /// How many records were written.
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

    /// A record is applied to a table that has this version.
    pub(super) fn begin(&mut self, floor: Version) {
        self.since.get_or_insert(floor);
    }

    /// Keeps a record's time, events and effects; the latter are given as their numbers and encoded elements.
    ///
    /// # Panics
    /// If the version is not above those before: readers would take one of the two for the other.
    pub(super) fn keep(
        &mut self,
        version: Version,
        time: UnixMs,
        events: (u32, &[u8]),
        effects: (u32, &[u8]),
    ) {
        let before = self.records.back().map(|(version, _)| *version).or(self.since);
        assert!(
            before.is_none_or(|before| before < version),
            "versions of changes grow: {before:?}, {version}"
        );
        let mut record = ReplyBuffer::new();
        record.push(Reply::Array(4));
        record.integer(version as i64);
        record.integer(time as i64);
        for (number, elements) in [events, effects] {
            record.push(Reply::Array(number));
            record.extend_encoded(elements);
        }
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

    /// A record with this version has changed more than could be noted.
    pub(super) fn lose(&mut self, version: Version) {
        self.records.clear();
        (self.bytes, self.since) = (0, Some(version));
    }

    /// The table has changed in another way than by records.
    pub(super) fn restart(&mut self) {
        self.records.clear();
        (self.bytes, self.since) = (0, None);
    }

    /// Bytes that the changes take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The version behind which all changes are kept, of a table that has the version `floor`.
    pub fn since(&self, floor: Version) -> Version {
        self.since.unwrap_or(floor)
    }

    /// The versions of the records, in order.
    pub fn versions(&self) -> impl Iterator<Item = Version> {
        self.records.iter().map(|(version, _)| *version)
    }

    /// Appends the records behind the version `from`, as many as fit into `bytes_max` bytes but at least one: an array each,
    /// of the version, the record's time, the events (a key and the event's name each) and the effects (words each). `floor`
    /// is the table's version. O(log n) beside what is appended.
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
    /// `Recent`: an array of the versions behind which all changes are kept and up to which these are all, and the records.
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
