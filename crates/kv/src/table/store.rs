//! The few ways in which the table changes. Every command is made of these.
//!
//! Here the slab, the index, the expiry order, the byte count, the version floor and open snapshots are kept
//! in step; nothing else touches them.

use super::entry::{Entry, Kind, Stamp};
use super::index::KeyHash;
use super::registers::DELETED;
use super::slab::SlotNumber;
use super::{NO_DEADLINE, Record, Table};
use crate::UnixMs;

/// What the allocator takes for `capacity` bytes: it rounds up and may keep a word for itself.
fn allocated_bytes(capacity: usize) -> usize {
    (capacity + 8).next_multiple_of(16)
}

/// True when a deadline is one that will come.
fn expires(deadline: UnixMs) -> bool {
    deadline != NO_DEADLINE && deadline != DELETED
}

impl Entry {
    /// Bytes that the allocation takes.
    pub(super) fn memory_bytes(&self) -> usize {
        allocated_bytes(self.capacity())
    }
}

impl Table {
    /// The slot of a key and its entry, expired or not.
    #[inline]
    pub(super) fn find(&self, hash: KeyHash, key: &[u8]) -> Option<(SlotNumber, &Entry)> {
        self.index.find(hash, |slot| {
            let entry = self.slab.entry(slot);
            (entry.key() == key).then_some((slot, entry))
        })
    }

    /// The entry of a key that has not expired.
    #[inline]
    pub(super) fn peek(&self, key: &[u8], now: UnixMs) -> Option<&Entry> {
        let (_, entry) = self.find(self.index.hash(key), key)?;
        (!entry.expired(now)).then_some(entry)
    }

    /// The slot of a key for a write: a key that has expired is removed here, and is missing.
    #[inline]
    pub(super) fn find_live(&mut self, hash: KeyHash, key: &[u8], record: Record) -> Option<SlotNumber> {
        let (slot, entry) = self.find(hash, key)?;
        if entry.expired(record.time) {
            self.remove(hash, slot, record);
            self.statistics.expired += 1;
            return None;
        }
        Some(slot)
    }

    /// Stores a value under a key, whether or not the key exists.
    #[inline]
    pub(super) fn put(&mut self, key: &[u8], value: &[u8], deadline: UnixMs, kind: Kind, record: Record) {
        let hash = self.index.hash(key);
        match self.find(hash, key) {
            Some((slot, _)) => {
                let deadline_before = self.overwrite(slot, value, deadline, kind, record);
                self.statistics.expired += u64::from(deadline_before <= record.time);
            }
            None => self.insert(hash, Entry::new(key, value, record.stamp(deadline, kind)), record),
        }
    }

    /// Adds an entry whose key is not there.
    pub(super) fn insert(&mut self, hash: KeyHash, entry: Entry, record: Record) {
        let deadline = entry.deadline();
        self.entry_bytes += entry.memory_bytes();
        let slot = self.slab.insert(entry);
        self.index.insert(hash, slot);
        if expires(deadline) {
            self.expiries.insert((deadline, slot));
        }
        self.tombstones += usize::from(deadline == DELETED);
        self.snapshots.iter_mut().for_each(|snapshot| snapshot.leave_out(slot));
        self.raise_floor(record);
    }

    /// Replaces value, deadline and kind of the key in a slot. Returns the deadline before.
    #[inline]
    pub(super) fn overwrite(
        &mut self,
        slot: SlotNumber,
        value: &[u8],
        deadline: UnixMs,
        kind: Kind,
        record: Record,
    ) -> UnixMs {
        self.change(slot, deadline, record, |entry| entry.overwrite(value, record.stamp(deadline, kind)))
    }

    /// Writes into the value in a slot from `offset` on. Deadline as before.
    pub(super) fn write_at(&mut self, slot: SlotNumber, offset: usize, part: &[u8], record: Record) {
        let deadline = self.slab.entry(slot).deadline();
        let stamp = record.stamp(deadline, Kind::Raw);
        self.change(slot, deadline, record, |entry| entry.write_at(offset, part, stamp));
    }

    /// Gives the key in a slot another deadline.
    pub(super) fn set_deadline(&mut self, slot: SlotNumber, deadline: UnixMs, record: Record) {
        self.change(slot, deadline, record, |entry| entry.restamp(record.stamp(deadline, entry.kind())));
    }

    /// Every change of an entry that stays in its slot goes through here. Returns the deadline before.
    #[inline]
    fn change(
        &mut self,
        slot: SlotNumber,
        deadline: UnixMs,
        record: Record,
        change: impl FnOnce(&mut Entry),
    ) -> UnixMs {
        if !self.snapshots.is_empty() {
            self.save_for_snapshots(slot);
        }
        let entry = self.slab.entry_mut(slot);
        let (deadline_before, bytes_before) = (entry.deadline(), entry.capacity());
        change(entry);
        let bytes_after = entry.capacity();
        if bytes_before != bytes_after {
            self.entry_bytes =
                self.entry_bytes - allocated_bytes(bytes_before) + allocated_bytes(bytes_after);
        }
        if deadline_before != deadline {
            self.move_deadline(slot, deadline_before, deadline);
        }
        self.raise_floor(record);
        deadline_before
    }

    #[cold]
    fn move_deadline(&mut self, slot: SlotNumber, before: UnixMs, after: UnixMs) {
        if expires(before) {
            self.expiries.remove(&(before, slot));
        }
        if expires(after) {
            self.expiries.insert((after, slot));
        }
        self.tombstones -= usize::from(before == DELETED);
        self.tombstones += usize::from(after == DELETED);
    }

    #[cold]
    fn save_for_snapshots(&mut self, slot: SlotNumber) {
        let entry = self.slab.entry(slot);
        self.snapshots.iter_mut().for_each(|snapshot| snapshot.save(slot, entry));
    }

    /// Removes the key in a slot and returns what it was.
    pub(super) fn remove(&mut self, hash: KeyHash, slot: SlotNumber, record: Record) -> Entry {
        if !self.snapshots.is_empty() {
            self.save_for_snapshots(slot);
        }
        let entry = self.slab.remove(slot);
        self.index.remove(hash, slot);
        if expires(entry.deadline()) {
            self.expiries.remove(&(entry.deadline(), slot));
        }
        self.tombstones -= usize::from(entry.deadline() == DELETED);
        self.entry_bytes -= entry.memory_bytes();
        self.raise_floor(record);
        entry
    }

    /// Removes all keys. An open snapshot that has not passed them all takes the slab over as it was.
    pub(super) fn remove_all(&mut self, record: Record) {
        let slab = std::mem::take(&mut self.slab);
        if !self.snapshots.is_empty() {
            let slab = std::sync::Arc::new(slab);
            self.snapshots.iter_mut().for_each(|snapshot| snapshot.keep(&slab));
        }
        self.index.clear();
        self.expiries.clear();
        self.tombstones = 0;
        self.entry_bytes = 0;
        self.raise_floor(record);
    }

    #[inline]
    fn raise_floor(&mut self, record: Record) {
        self.floor = self.floor.max(record.version);
    }
}

impl Record {
    /// What an entry says that this record writes.
    #[inline]
    pub(super) fn stamp(self, deadline: UnixMs, kind: Kind) -> Stamp {
        Stamp { version: self.version, deadline, kind }
    }
}
