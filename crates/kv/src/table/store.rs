//! The few ways in which the table changes. Every command consists of these.
//!
//! This module keeps the index, the expiry order, the byte count, the version floor and open snapshots in step; nothing
//! else touches them.

use super::DELETED;
use super::blocks::allocated_bytes;
use super::changes::ChangeClass;
use super::collections::Collection;
use super::entry::{Entry, Stamp};
use super::index::{Index, KeyHash, Place};
use super::kind::Kind;
use super::tree::Nodes;
use super::{NO_DEADLINE, Record, Table};
use crate::coded::Reference;
use crate::{SharedBytes, UnixMs};
use std::collections::{BTreeMap, BTreeSet};

/// Whether a deadline is a real one: neither that of a key without expiry nor of a tombstone.
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
    /// Returns the place of a key and its entry, expired or not.
    #[inline(never)]
    pub(super) fn find(&self, hash: KeyHash, key: &[u8]) -> Option<(Place, &Entry)> {
        self.index.find(hash, |entry| entry.has_key(key))
    }

    /// Returns the entry of a key that has not expired.
    #[inline]
    pub(super) fn peek(&self, key: &[u8], now: UnixMs) -> Option<&Entry> {
        let hash = self.index.hash(key);
        let entry = match self.index.likely(hash) {
            Some(entry) if entry.has_key(key) => entry,
            _ => self.find(hash, key)?.1,
        };
        (!entry.expired(now)).then_some(entry)
    }

    /// Returns the place of a key for a write: an expired key is removed here and counts as missing.
    #[inline]
    pub(super) fn find_live(&mut self, hash: KeyHash, key: &[u8], record: Record) -> Option<Place> {
        let (place, entry) = self.find(hash, key)?;
        if entry.expired(record.time) {
            self.remove_expired(place, record);
            return None;
        }
        Some(place)
    }

    /// Does the most common write: an update in place of a key that does not expire, while no snapshot is open. This
    /// changes only the entry and the version floor. Returns false, and changes nothing, for any other write. The caller
    /// has checked that changes have no followers.
    ///
    /// A processor looks ahead a fixed number of instructions, so the shorter a command is, the more commands wait for
    /// memory at once. In a large table this determines the number of commands per second.
    #[inline(always)]
    pub(super) fn update(&mut self, key: &[u8], value: &[u8], record: Record) -> bool {
        let is_done = self.snapshots.is_empty()
            && value.len() < self.spilled.bytes_min
            && self
                .index
                .likely_mut(self.index.hash(key))
                .is_some_and(|entry| entry.update(key, value, record.version));
        if is_done {
            self.raise_floor(record);
        }
        is_done
    }

    /// Stores a value under a key, whether or not the key exists.
    pub(super) fn put(&mut self, key: &[u8], value: &[u8], deadline: UnixMs, kind: Kind, record: Record) {
        let hash = self.index.hash(key);
        match self.find(hash, key) {
            Some((place, _)) => {
                self.note_if_expired(place, record);
                self.note_overwritten(place, kind, record);
                let deadline_before = self.overwrite(place, value, deadline, kind, record);
                self.statistics.expired += u64::from(deadline_before <= record.time);
            }
            None => self.insert(hash, Entry::new(key, value, record.stamp(deadline, kind)), record),
        }
    }

    /// Stores an entry in place of its key's current one, if any.
    pub(super) fn put_entry(&mut self, mut entry: Entry, record: Record) {
        self.count_shared(&mut entry);
        let hash = self.index.hash(entry.key());
        match self.find(hash, entry.key()) {
            Some((place, _)) => {
                let deadline = entry.deadline();
                self.note_overwritten(place, entry.kind(), record);
                let mut replaced = None;
                self.change(place, deadline, record, |before| {
                    replaced = std::mem::replace(before, entry).into_collection();
                });
                self.bury(replaced);
            }
            None => self.insert(hash, entry, record),
        }
    }

    /// From now on counts what the entry shares with others.
    fn count_shared(&mut self, entry: &mut Entry) {
        if let Some(collection) = entry.collection_mut() {
            self.discarded_nodes.count_shared(collection.take_shared());
        }
    }

    /// Bytes of large collections that copies share: so much memory may their changes still take, even those that only
    /// remove.
    pub fn shared_bytes(&self) -> usize {
        self.discarded_nodes.shared_bytes()
    }

    /// Frees a large collection little by little.
    #[inline]
    pub(super) fn bury(&mut self, collection: Option<Collection>) {
        if let Some(collection) = collection {
            let before = self.discarded_nodes.len();
            collection.discard(&mut self.discarded_nodes);
            self.statistics.freed_later += u64::from(self.discarded_nodes.len() > before);
        }
    }

    /// Lends the value of a key that exists.
    #[cold]
    pub(super) fn lend_value(&mut self, key: &[u8]) -> Option<SharedBytes> {
        let (place, _) = self.find(self.index.hash(key), key)?;
        Some(self.index.entry_mut(place).lend_value())
    }

    /// Adds an entry whose key does not exist.
    pub(super) fn insert(&mut self, hash: KeyHash, entry: Entry, record: Record) {
        if !self.snapshots.is_empty() {
            self.save_for_snapshots(hash);
        }
        if self.changes.is_followed() {
            self.changes.note_as(entry.key(), ChangeClass::New, "new");
            self.changes.note(entry.key());
        }
        let deadline = entry.deadline();
        match entry.reference() {
            Some(reference) => self.gain_reference(reference),
            None if entry.is_bytes() => self.spilled.note(entry.key(), entry.value().len()),
            None => {} // Collections stay in memory.
        }
        self.entry_bytes += entry.memory_bytes();
        let first_due = entry.first_due();
        self.index.insert(hash, entry);
        self.add_deadline(hash, deadline);
        self.change_first_due(hash, NO_DEADLINE, first_due);
        self.raise_floor(record);
    }

    /// Replaces value, deadline and kind of the key at a place. Returns the previous deadline.
    #[inline]
    pub(super) fn overwrite(
        &mut self,
        place: Place,
        value: &[u8],
        deadline: UnixMs,
        kind: Kind,
        record: Record,
    ) -> UnixMs {
        let mut replaced = None;
        let deadline_before = self.change(place, deadline, record, |entry| {
            replaced = entry.overwrite(value, record.stamp(deadline, kind));
        });
        self.bury(replaced);
        deadline_before
    }

    /// Changes the form of the value at a place: the value itself, or a reference to it. To readers nothing has changed:
    /// the key keeps its version, and no change is noted.
    pub(super) fn put_in_form(&mut self, place: Place, form: &[u8], kind: Kind, record: Record) {
        let entry = self.index.entry(place);
        let (version, deadline) = (entry.version(), entry.deadline());
        self.changes.pause();
        self.overwrite(place, form, deadline, kind, Record { version, ..record });
        self.changes.resume();
    }

    /// Overwrites a part of the value at a place, from `offset` on. The deadline stays.
    pub(super) fn write_at(&mut self, place: Place, offset: usize, part: &[u8], record: Record) {
        let deadline = self.index.entry(place).deadline();
        let stamp = record.stamp(deadline, Kind::Raw);
        self.change(place, deadline, record, |entry| entry.write_at(offset, part, stamp));
    }

    /// Sets the deadline of the key at a place.
    pub(super) fn set_deadline(&mut self, place: Place, deadline: UnixMs, record: Record) {
        self.change(place, deadline, record, |entry| entry.restamp(record.stamp(deadline, entry.kind())));
    }

    /// Changes an entry that stays in its place. Every such change goes through here, except changes of large collections.
    /// Returns the previous deadline.
    #[inline]
    pub(super) fn change(
        &mut self,
        place: Place,
        deadline: UnixMs,
        record: Record,
        change: impl FnOnce(&mut Entry),
    ) -> UnixMs {
        if !self.snapshots.is_empty() {
            self.save_for_snapshots(place.hash);
        }
        let entry = self.index.entry_mut(place);
        let (deadline_before, bytes_before) = (entry.deadline(), entry.capacity());
        let (coded_before, due_before) = (entry.reference(), entry.first_due());
        change(entry);
        let (bytes_after, coded_after, due_after) = (entry.capacity(), entry.reference(), entry.first_due());
        self.changes.note(entry.key());
        if entry.is_bytes() {
            self.spilled.note(entry.key(), entry.value().len());
        }
        // Count the new reference first: it may be the same as the old one.
        if let Some(reference) = coded_after {
            self.gain_reference(reference);
        }
        if let Some(reference) = coded_before {
            self.lose_reference(reference);
        }
        self.count_bytes(bytes_before, bytes_after);
        if deadline_before != deadline {
            self.remove_deadline(place.hash, deadline_before);
            self.add_deadline(place.hash, deadline);
        }
        self.change_first_due(place.hash, due_before, due_after);
        self.raise_floor(record);
        deadline_before
    }

    /// Updates the byte count after an entry's capacity has changed.
    #[inline]
    pub(super) fn count_bytes(&mut self, before: usize, after: usize) {
        if before != after {
            self.entry_bytes = self.entry_bytes - allocated_bytes(before) + allocated_bytes(after);
        }
    }

    /// Updates the first deadline of the fields of a key with this hash.
    #[inline]
    pub(super) fn change_first_due(&mut self, hash: KeyHash, before: UnixMs, after: UnixMs) {
        if before == after {
            return;
        }
        if before != NO_DEADLINE && !self.index.all_with(hash).any(|other| other.first_due() == before) {
            self.fields_due.remove(&(before, hash));
        }
        if after != NO_DEADLINE {
            self.fields_due.insert((after, hash));
        }
    }

    /// Returns the place and entry of the hash whose field expires first, if that is at or before `until`.
    pub(super) fn first_field_to_expire(&self, until: UnixMs) -> Option<(Place, &Entry)> {
        let due = self.fields_due.iter().take_while(|(deadline, _)| *deadline <= until);
        self.first_unlocked(due, Entry::first_due)
    }

    /// Returns the first of these entries whose key no transaction has locked: what a transaction has found must not expire
    /// before it is over.
    fn first_unlocked<'d>(
        &self,
        mut due: impl Iterator<Item = &'d (UnixMs, KeyHash)>,
        deadline_of: impl Fn(&Entry) -> UnixMs,
    ) -> Option<(Place, &Entry)> {
        if self.two_phase.all_locked_by().is_some() {
            return None;
        }
        due.find_map(|(deadline, hash)| {
            let is_due =
                |entry: &Entry| deadline_of(entry) == *deadline && !self.two_phase.locks(entry.key());
            self.index.find(*hash, is_due)
        })
    }

    fn add_deadline(&mut self, hash: KeyHash, deadline: UnixMs) {
        if expires(deadline) {
            self.expiries.insert((deadline, hash));
            self.expiring += 1;
        }
        self.tombstones += usize::from(deadline == DELETED);
    }

    /// Removes a deadline that an entry with this hash no longer has.
    fn remove_deadline(&mut self, hash: KeyHash, deadline: UnixMs) {
        if expires(deadline) {
            self.expiring -= 1;
            if !self.index.all_with(hash).any(|other| other.deadline() == deadline) {
                self.expiries.remove(&(deadline, hash));
            }
        }
        self.tombstones -= usize::from(deadline == DELETED);
    }

    /// Saves the entries with this hash, which are about to change, for the snapshots that need them. Large ones are lent
    /// instead, and not copied if the new value has an allocation of its own.
    #[cold]
    pub(super) fn save_for_snapshots(&mut self, hash: KeyHash) {
        if !self.snapshots.iter().any(|snapshot| snapshot.wants(hash)) {
            return;
        }
        for entry in self.index.all_with_mut(hash).filter(|entry| entry.is_large()) {
            entry.lend();
        }
        for snapshot in &mut self.snapshots {
            snapshot.save(hash, &self.index);
        }
    }

    /// Returns the place and entry of the key that expires first, if its deadline is at or before `until`.
    pub(super) fn first_to_expire(&self, until: UnixMs) -> Option<(Place, &Entry)> {
        let due = self.expiries.iter().take_while(|(deadline, _)| *deadline <= until);
        self.first_unlocked(due, Entry::deadline)
    }

    /// Removes the key at a place, whose deadline has passed.
    pub(super) fn remove_expired(&mut self, place: Place, record: Record) {
        self.changes.note_as(self.index.entry(place).key(), ChangeClass::Expired, "expired");
        self.statistics.expired += 1;
        let entry = self.take(place, record);
        self.bury(entry.into_collection());
    }

    /// Removes the key at a place to make room.
    pub(super) fn remove_evicted(&mut self, place: Place, record: Record) {
        self.changes.note_as(self.index.entry(place).key(), ChangeClass::Evicted, "evicted");
        self.statistics.evicted += 1;
        let entry = self.take(place, record);
        self.bury(entry.into_collection());
    }

    /// Removes the key at a place.
    pub(super) fn remove(&mut self, place: Place, record: Record) {
        self.changes.note_as(self.index.entry(place).key(), ChangeClass::Generic, "del");
        let entry = self.take(place, record);
        self.bury(entry.into_collection());
    }

    /// Removes the key at a place and returns its entry. The caller notes the change.
    pub(super) fn take(&mut self, place: Place, record: Record) -> Entry {
        let entry = self.take_out(place, record);
        if entry.deadline() != DELETED {
            self.removed_versions.note(entry.key(), entry.version());
        }
        entry
    }

    /// Removes the entry at a place, without remembering its key as removed.
    fn take_out(&mut self, place: Place, record: Record) -> Entry {
        if !self.snapshots.is_empty() {
            self.save_for_snapshots(place.hash);
        }
        let entry = self.index.remove(place);
        if let Some(reference) = entry.reference() {
            self.lose_reference(reference);
        }
        self.remove_deadline(place.hash, entry.deadline());
        self.change_first_due(place.hash, entry.first_due(), NO_DEADLINE);
        self.entry_bytes -= entry.memory_bytes();
        self.raise_floor(record);
        entry
    }

    /// Restores a key to its state before the record wrote it, including the version. `before`: its entry, if it had one.
    pub(super) fn put_back(&mut self, key: &[u8], before: Option<Entry>, record: Record) {
        let hash = self.index.hash(key);
        if let Some((place, _)) = self.find(hash, key) {
            let entry = self.take_out(place, record);
            self.bury(entry.into_collection());
        }
        if let Some(mut entry) = before {
            self.count_shared(&mut entry);
            self.insert(hash, entry, record);
        }
    }

    /// Removes all keys. Open snapshots that have not walked all keys keep the old index.
    pub(super) fn remove_all(&mut self, record: Record) {
        let index = self.index.take();
        // What they share does not count any more.
        self.cleared.append(&mut self.discarded_nodes);
        self.long_reads.outlive_contents();
        self.removed_versions.note_all(self.floor);
        self.changes.clear_all();
        if self.snapshots.is_empty() {
            self.discard(index);
        } else {
            let index = std::sync::Arc::new(index);
            self.snapshots.iter_mut().for_each(|snapshot| snapshot.keep(&index));
        }
        self.coded.lose_all();
        self.spilled.lose_all();
        self.expiries.clear();
        self.fields_due.clear();
        self.expiring = 0;
        self.tombstones = 0;
        self.entry_bytes = 0;
        self.raise_floor(record);
    }

    /// Drops the index of former contents: a small one at once, a large one through [`Table::tidy`]. If small ones were
    /// deferred too, any number could accumulate before the next call of `tidy`.
    pub(super) fn discard(&mut self, mut index: Index) {
        const AT_ONCE: usize = 1000;
        if index.len() > AT_ONCE {
            self.statistics.freed_later += index.len() as u64;
            self.discarded.push(index);
        } else {
            index.drain().filter_map(Entry::into_collection).for_each(|it| it.discard(&mut self.cleared));
        }
    }

    #[inline]
    pub(super) fn raise_floor(&mut self, record: Record) {
        self.floor = self.floor.max(record.version);
    }

    /// Checks that what this module keeps in step with the entries is what they say. For tests and simulations, between two
    /// records. O(keys).
    ///
    /// # Panics
    /// When an invariant is broken.
    pub fn check_invariants(&self) {
        let (mut len, mut bytes, mut expiring, mut tombstones) = (0, 0, 0, 0);
        let (mut expiries, mut fields_due) = (BTreeSet::new(), BTreeSet::new());
        let mut references = BTreeMap::<Reference, u32>::new();
        let (mut nodes, mut in_trees) = (Nodes::default(), 0);
        for (hash, entry) in self.index.walk_from(KeyHash::default()) {
            let deadline = entry.deadline();
            assert_eq!(hash, self.index.hash(entry.key()), "an entry is not where its key is looked for");
            assert!(entry.version() <= self.floor, "a key's version is above the floor");
            len += 1;
            bytes += entry.memory_bytes();
            if let Some(collection) = entry.collection() {
                in_trees += collection.memory_bytes();
                collection.visit_nodes(&mut nodes);
            }
            tombstones += usize::from(deadline == DELETED);
            if expires(deadline) {
                expiring += 1;
                expiries.insert((deadline, hash));
            }
            if entry.first_due() != NO_DEADLINE {
                fields_due.insert((entry.first_due(), hash));
            }
            if let Some(reference) = entry.reference() {
                *references.entry(reference).or_default() += 1;
            }
        }
        assert_eq!((len, bytes), (self.index.len(), self.entry_bytes), "the entries, and their bytes");
        assert_eq!(
            (expiring, tombstones),
            (self.expiring, self.tombstones),
            "keys that expire, and tombstones"
        );
        // Nodes in other places are those of copies for snapshots and long reads, and of trees that are set aside.
        if self.snapshots.is_empty() && self.long_reads.are_none() && self.discarded_nodes.is_empty() {
            assert_eq!(self.shared_bytes(), in_trees - nodes.bytes(), "bytes that collections share");
        }
        assert_eq!(expiries, self.expiries, "the deadlines of keys");
        assert_eq!(fields_due, self.fields_due, "the first deadlines of hashes' fields");
        self.references_are_counted(references);
        self.two_phase.check_invariants();
    }
}

impl Record {
    /// The metadata of an entry that this record writes.
    #[inline]
    pub(super) fn stamp(self, deadline: UnixMs, kind: Kind) -> Stamp {
        Stamp { version: self.version, deadline, kind }
    }
}
