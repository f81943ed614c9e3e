//! Notes which record may end the process, before it is carried out: afterwards is too late.

use crate::command::{Command, Script};
use crate::{UnixMs, Version};
use std::fmt::Debug;

/// Identifies a record of one group by its place in the group's history and its time. The time distinguishes it from a
/// record that another leader has put in the same place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordName {
    /// Its number in the history.
    pub offset: Version,
    /// Its time, by its leader's clock.
    pub time: UnixMs,
}

/// Notes the record being carried out, in a place that outlives this process: see [`crate::Table::set_watch`].
pub trait Watch: Debug + Sync {
    /// A record of this group begins that may end the process without warning, or that is ending it now.
    fn begun(&self, group: u16, record: RecordName);

    /// The record was carried out.
    fn over(&self);
}

/// A table's view of records that have ended, or may end, the process.
#[derive(Debug, Default)]
pub(crate) struct Watching {
    watch: Option<&'static dyn Watch>,
    group: u16,
    /// Records that are skipped on every replica.
    skipped: Vec<RecordName>,
    under_way: RecordName,
    is_under_way: bool,
}

impl Watching {
    pub(crate) fn set(&mut self, group: u16, watch: &'static dyn Watch) {
        (self.group, self.watch) = (group, Some(watch));
    }

    pub(crate) fn skip(&mut self, records: &[RecordName]) {
        self.skipped = records.to_vec();
    }

    /// Begins a record. Returns false if it must be skipped.
    #[inline(always)]
    pub(crate) fn begin(&mut self, command: &Command<'_>, offset: Version, time: UnixMs) -> bool {
        let name = RecordName { offset, time };
        if !self.skipped.is_empty() && self.skipped.contains(&name) {
            return false;
        }
        (self.under_way, self.is_under_way) = (name, true);
        if cfg!(debug_assertions) {
            planted(command);
        }
        true
    }

    #[inline(always)]
    pub(crate) fn end(&mut self) {
        self.is_under_way = false;
    }

    /// Notes that the current record runs a script: the interpreter is not safe code.
    pub(crate) fn begin_script(&self, script: &Script<'_>) {
        self.note_begun();
        if cfg!(debug_assertions) && script.text().starts_with(PLANTED_ABORT) {
            std::process::abort();
        }
    }

    fn note_begun(&self) {
        if let Some(watch) = self.watch {
            watch.begun(self.group, self.under_way);
        }
    }

    pub(crate) fn end_script(&self) {
        if let Some(watch) = self.watch {
            watch.over();
        }
    }
}

/// A table is dropped in the middle of a record only when that record has panicked.
impl Drop for Watching {
    fn drop(&mut self) {
        if self.is_under_way {
            self.note_begun();
        }
    }
}

/// A `SET` of a key with this suffix panics on every replica, in builds with debug assertions: it gives tests a record
/// that ends the process. Release builds do not have it.
const PLANTED_PANIC: &[u8] = b"planted:panic";

/// A script with this prefix aborts the process, in the same builds.
const PLANTED_ABORT: &[u8] = b"--planted:abort";

fn planted(command: &Command<'_>) {
    if let Command::Set { key, .. } = command
        && key.ends_with(PLANTED_PANIC)
    {
        panic!("a planted fault");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ReplyBuffer, Table};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicU64, Ordering};

    #[derive(Debug, Default)]
    struct Seen {
        begun: AtomicU64,
        over: AtomicU64,
    }

    impl Watch for Seen {
        fn begun(&self, group: u16, record: RecordName) {
            assert_eq!((group, record.time), (7, 1000));
            self.begun.store(record.offset, Ordering::Relaxed);
        }

        fn over(&self) {
            self.over.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn set(key: &[u8]) -> Command<'_> {
        let (expiry, condition) = (crate::Expiry::Clear, crate::Condition::Always);
        Command::Set { key, value: b"v", expiry, condition, answer: crate::SetAnswer::Status }
    }

    #[test]
    fn only_a_record_that_panics_is_noted_when_its_table_is_dropped() {
        static SEEN: Seen = Seen { begun: AtomicU64::new(0), over: AtomicU64::new(0) };
        let mut table = Table::new(1);
        table.set_watch(7, &SEEN);
        table.apply(&set(b"k"), 1, 1000, &mut ReplyBuffer::new());
        drop(table);
        assert_eq!(SEEN.begun.load(Ordering::Relaxed), 0);

        let mut table = Table::new(1);
        table.set_watch(7, &SEEN);
        let died = catch_unwind(AssertUnwindSafe(move || {
            table.apply_unasked(&set(b"k"), 1, 1000);
            table.apply_unasked(&set(b"planted:panic"), 2, 1000);
        }));
        assert!(died.is_err());
        assert_eq!(SEEN.begun.load(Ordering::Relaxed), 2);
        assert_eq!(SEEN.over.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_skipped_record_changes_nothing_and_its_reply_is_an_error() {
        let mut table = Table::new(1);
        table.skip(&[RecordName { offset: 2, time: 1000 }]);
        let mut out = ReplyBuffer::new();
        for (offset, time) in [(1, 1000), (2, 999), (3, 1000)] {
            table.apply(&set(b"k"), offset, time, &mut out);
        }
        let digest = table.digest();
        out.clear();
        table.apply(&set(b"planted:panic"), 2, 1000, &mut out);
        table.apply_unasked(&set(b"planted:panic"), 2, 1000);
        assert!(out.as_bytes().windows(7).any(|word| word == b"SKIPPED"), "{:?}", out.as_bytes());
        assert_eq!(table.digest(), digest);
    }
}
