//! Writes of whole keys: `DEL`, `RENAME`, `COPY`, `FLUSHALL`, and values versioned elsewhere.

use super::changes::ChangeClass;
use super::entry::Entry;
use super::kind::Kind;
use super::{NO_DEADLINE, REPLICATED_VERSION_MAX, Record, Table};
use crate::Version;
use crate::command::List;
use crate::reply::ReplyBuffer;

impl Table {
    pub(super) fn delete(&mut self, keys: List<'_>, record: Record, out: &mut ReplyBuffer) {
        let mut count = 0;
        for key in keys.iter() {
            let hash = self.index.hash(key);
            if let Some(place) = self.find_live(hash, key, record) {
                self.remove(place, record);
                count += 1;
            }
        }
        out.integer(count);
    }

    pub(super) fn rename(
        &mut self,
        from: &[u8],
        to: &[u8],
        if_absent: bool,
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        let to_exists = self.find_live(self.index.hash(to), to, record).is_some();
        let Some(place) = self.find_live(self.index.hash(from), from, record) else {
            return out.error("ERR no such key");
        };
        if if_absent && to_exists {
            return out.integer(0);
        }
        if from != to {
            self.changes.note_as(from, ChangeClass::Generic, "rename_from");
            let entry = self.take(place, record);
            let stamp = record.stamp(entry.deadline(), entry.kind());
            self.put_entry(entry.moved_under(to, stamp), record);
        }
        if if_absent { out.integer(1) } else { out.ok() }
    }

    pub(super) fn copy(
        &mut self,
        from: &[u8],
        to: &[u8],
        replace: bool,
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        let to_exists = self.find_live(self.index.hash(to), to, record).is_some();
        let Some(place) = self.find_live(self.index.hash(from), from, record) else {
            return out.integer(0);
        };
        if !replace && to_exists {
            return out.integer(0);
        }
        let entry = self.index.entry(place);
        let copy = entry.under(to, record.stamp(entry.deadline(), entry.kind()));
        self.put_entry(copy, record);
        out.integer(1);
    }

    pub(super) fn clear(&mut self, record: Record, out: &mut ReplyBuffer) {
        self.changes.miss_some();
        if !self.is_empty() {
            self.note_all_written();
            self.remove_all(record);
        }
        out.ok();
    }

    /// Stores the value if its version is newer than the key's; the table's versions continue from there. Returns the key's
    /// version afterwards.
    pub(super) fn replicate(
        &mut self,
        key: &[u8],
        value: &[u8],
        version: Version,
        record: Record,
        out: &mut ReplyBuffer,
    ) -> Version {
        if version > REPLICATED_VERSION_MAX {
            out.error("ERR version is out of range");
            return record.version;
        }
        let hash = self.index.hash(key);
        let found = self.find_live(hash, key, record);
        let present = found.map_or(0, |place| self.index.entry(place).version());
        let newer = version > present;
        let given = Record { version, ..record };
        match found {
            Some(place) if newer => {
                self.overwrite(place, value, NO_DEADLINE, Kind::Plain, given);
            }
            None if newer => {
                if version < record.version {
                    // The version is not the highest, so a key that was watched here may have had the same one before.
                    self.removed_versions.note_unordered(record.version);
                    self.raise_floor(record);
                }
                self.insert(hash, Entry::new(key, value, given.stamp(NO_DEADLINE, Kind::Plain)), given);
            }
            _ => {}
        }
        out.array(2);
        out.integer(i64::from(newer));
        out.integer(version.max(present) as i64);
        version.max(present)
    }
}
