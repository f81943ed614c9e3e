//! Collections of the table: how commands find, read and change them.

use super::collections::Collection;
use super::entry::Entry;
use super::index::{KeyHash, Place};
use super::kind::Kind;
use super::refusals::WrongKind;
use super::tree::{Discarded, Items};
use super::{NO_DEADLINE, Record, Table};
use crate::UnixMs;

/// The key of a command on a collection, and its place if it exists.
#[derive(Clone, Copy)]
pub(super) struct Found<'k> {
    pub(super) key: &'k [u8],
    pub(super) hash: KeyHash,
    pub(super) place: Option<Place>,
}

impl Table {
    /// Finds a key for a write that expects this kind of collection.
    #[inline]
    pub(super) fn find_kind<'k>(
        &mut self,
        key: &'k [u8],
        kind: Kind,
        record: Record,
    ) -> Result<Found<'k>, WrongKind> {
        let hash = self.index.hash(key);
        match self.index.find(hash, |entry| entry.has_key(key)) {
            Some((_, entry)) if entry.expired(record.time) => {
                let place = self.find_live(hash, key, record);
                Ok(Found { key, hash, place })
            }
            Some((_, entry)) if entry.kind() != kind => Err(WrongKind),
            Some((place, _)) => Ok(Found { key, hash, place: Some(place) }),
            None => Ok(Found { key, hash, place: None }),
        }
    }

    /// The items of a key that was found; none if it does not exist.
    pub(super) fn items_at(&self, found: Found<'_>) -> Items<'_> {
        found.place.map_or(Items::EMPTY, |place| self.index.entry(place).items())
    }

    /// The items of a key for a read, none if it does not exist, and its version.
    pub(super) fn items_of(
        &mut self,
        key: &[u8],
        kind: Kind,
        now: UnixMs,
    ) -> Result<(Items<'_>, crate::Version), WrongKind> {
        let is_hit = self.peek(key, now).is_some();
        self.count_lookup(is_hit);
        match self.peek(key, now) {
            None => Ok((Items::EMPTY, 0)),
            Some(entry) if entry.kind() == kind => Ok((entry.items(), entry.version())),
            Some(_) => Err(WrongKind),
        }
    }

    /// Changes a collection, or creates it. A collection that becomes empty is removed; one that `edit` does not change
    /// keeps its version. The deadline stays.
    pub(super) fn edit_collection<R>(
        &mut self,
        found: Found<'_>,
        kind: Kind,
        record: Record,
        edit: impl FnOnce(&mut Collection, &mut Discarded) -> R,
    ) -> R {
        if let Some(place) = found.place
            && self.index.entry(place).collection().is_some()
        {
            return self.edit_large(place, record, edit);
        }
        let mut spare = self.spare.take().unwrap_or_else(|| Collection::new(kind));
        spare.load(kind, found.place.map_or(&[], |place| self.index.entry(place).value()));
        let answer = edit(&mut spare, &mut self.discarded_nodes);
        let deadline = found.place.map_or(NO_DEADLINE, |place| self.index.entry(place).deadline());
        let stamp = record.stamp(deadline, kind);
        match (spare.is_changed, spare.small(1), found.place) {
            (false, ..) => {}
            (true, _, Some(place)) if spare.len() == 0 => {
                self.changes.note(found.key);
                self.remove(place, record);
            }
            (true, _, None) if spare.len() == 0 => {}
            (true, Some(piece), Some(place)) => {
                let (length, write) = spare.value(piece);
                self.change(place, deadline, record, |entry| entry.edit(length, stamp, write));
            }
            (true, Some(piece), None) => {
                let value = spare.written(piece);
                self.insert(found.hash, Entry::new(found.key, &value, stamp), record);
            }
            (true, None, place) => {
                spare.take_usual_shape();
                let entry = Entry::of_collection(found.key, spare, stamp);
                match place {
                    Some(place) => {
                        self.change(place, deadline, record, |before| *before = entry);
                    }
                    None => self.insert(found.hash, entry, record),
                }
                return answer;
            }
        }
        self.spare = Some(spare);
        answer
    }

    /// Stores a collection under a key, whatever the key held, without a deadline. An empty collection is not stored, and
    /// the key is removed.
    pub(super) fn put_collection(&mut self, key: &[u8], collection: Collection, record: Record) {
        let kind = collection.kind();
        if collection.len() == 0 {
            if let Some(place) = self.find_live(self.index.hash(key), key, record) {
                self.remove(place, record);
            }
        } else if let Some(piece) = collection.small(1) {
            let value = collection.written(piece);
            self.put(key, &value, NO_DEADLINE, kind, record);
        } else {
            let entry = Entry::of_collection(key, collection, record.stamp(NO_DEADLINE, kind));
            self.put_entry(entry, record);
        }
    }

    fn edit_large<R>(
        &mut self,
        place: Place,
        record: Record,
        edit: impl FnOnce(&mut Collection, &mut Discarded) -> R,
    ) -> R {
        let (answer, is_changed) = self.change_collection(place, record, edit);
        if !is_changed {
            return answer;
        }
        let entry = self.index.entry(place);
        let Some(collection) = entry.collection() else { return answer };
        let (deadline, kind) = (entry.deadline(), entry.kind());
        if collection.len() == 0 {
            self.remove(place, record);
        } else if let Some(piece) = collection.small(2) {
            // Only when it fills at most half of a small one, so that a collection whose size fluctuates keeps its form.
            let value = collection.written(piece);
            self.overwrite(place, &value, deadline, kind, record);
        }
        answer
    }

    /// Changes the large collection at a place, and returns whether there was a change. The collection may be left empty.
    fn change_collection<R>(
        &mut self,
        place: Place,
        record: Record,
        edit: impl FnOnce(&mut Collection, &mut Discarded) -> R,
    ) -> (R, bool) {
        if !self.snapshots.is_empty() {
            // Save before anything changes. If nothing does, this has cost a copy of the entry, whose items are shared.
            self.save_for_snapshots(place.hash);
        }
        let entry = self.index.entry_mut(place);
        let (bytes_before, due_before) = (entry.capacity(), entry.first_due());
        let Some(collection) = entry.collection_mut() else {
            unreachable!("the caller has seen a large collection here")
        };
        collection.is_changed = false;
        let answer = edit(collection, &mut self.discarded_nodes);
        if !collection.is_changed {
            return (answer, false);
        }
        collection.order_if_small(&mut self.discarded_nodes);
        self.discarded_nodes.count_shared(collection.take_shared());
        if collection.len() > 0 {
            // An empty collection is removed with its previous version: the mark of its removal must have the version that
            // a small collection's mark would have, because whether a collection is large differs between replicas.
            entry.restamp(record.stamp(entry.deadline(), entry.kind()));
        }
        self.changes.note(entry.key());
        let (bytes_after, due_after) = (entry.capacity(), entry.first_due());
        self.count_bytes(bytes_before, bytes_after);
        self.change_first_due(place.hash, due_before, due_after);
        self.raise_floor(record);
        (answer, true)
    }
}
