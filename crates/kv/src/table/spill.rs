//! Values on the disk: values too large for memory, to which the table keeps only references.
//!
//! A record is carried out as usual, with the bytes in the table. Afterwards, every value that it has stored and that is
//! long enough is *spilled*: a [`Reference`] takes its place, and the bytes are handed to the code that stores them for
//! this replica ([`Table::take_spilled`]). When a command needs them later, they are fetched, by the rules of
//! [`crate::coded`]; a write is supplied with them ([`crate::Command::Supplied`]).
//!
//! All replicas of a group spill the same values under the same names: how a record is carried out must not depend on which
//! replica holds what. A name consists of the version of the record, the value's number within it, its length and its
//! digest. Where a failover gives a version twice, names with that version denote different bytes, or the same bytes, when
//! it does not matter which is meant.

use super::kind::Kind;
use super::{Record, Table};
use crate::Version;
use crate::coded::Reference;
use crate::command::Supplied;
use crate::digest::digest_of;
use crate::reply::ReplyBuffer;
use crate::two_phase::ValueOf;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Estimated memory of a reference beside its entry.
const REFERENCE_MEMORY_BYTES: usize = 96;

/// A table's state of values that it has spilled.
#[derive(Debug)]
pub(super) struct SpilledValues {
    /// The shortest value that is spilled, in bytes.
    pub(super) bytes_min: usize,
    /// Every spilled value that keys refer to, and the number of those keys.
    references: BTreeMap<Reference, u32>,
    /// Keys to which the current record has given a value that is long enough.
    large: Vec<Box<[u8]>>,
    /// Values supplied to the current record: for each key, the version it had then and the reference.
    supplied: BTreeMap<Box<[u8]>, (Version, Reference)>,
    changes: Spilled,
}

/// Changes to spilled values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spilled {
    /// Values to store, in the order in which they were spilled.
    pub kept: Vec<(Reference, Arc<Vec<u8>>)>,
    /// Values that no key refers to any more.
    pub released: BTreeSet<Reference>,
}

impl Spilled {
    /// Adds the changes of another table, such as one received by snapshot transfer.
    pub fn append(&mut self, other: Spilled) {
        self.kept.extend(other.kept);
        self.released.extend(other.released);
    }
}

impl Default for SpilledValues {
    fn default() -> SpilledValues {
        SpilledValues {
            bytes_min: usize::MAX,
            references: BTreeMap::new(),
            large: Vec::new(),
            supplied: BTreeMap::new(),
            changes: Spilled::default(),
        }
    }
}

impl SpilledValues {
    pub(super) fn gain(&mut self, reference: Reference) {
        *self.references.entry(reference).or_default() += 1;
    }

    pub(super) fn lose(&mut self, reference: Reference) {
        let Some(count) = self.references.get_mut(&reference) else { return };
        *count -= 1;
        if *count == 0 {
            self.references.remove(&reference);
            self.changes.released.insert(reference);
        }
    }

    pub(super) fn lose_all(&mut self) {
        self.changes.released.extend(std::mem::take(&mut self.references).into_keys());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.references.is_empty()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.references.len() * REFERENCE_MEMORY_BYTES
    }

    /// Checks that these are all references to spilled values.
    pub(super) fn are_counted(&self, held: &BTreeMap<Reference, u32>) {
        assert_eq!(*held, self.references, "the references to spilled values");
    }

    /// Notes that a key now has a value of this length.
    #[inline]
    pub(super) fn note(&mut self, key: &[u8], length: usize) {
        if length >= self.bytes_min {
            self.large.push(key.into());
        }
    }

    /// Notes a value that arrived with a snapshot transfer.
    pub(super) fn arrived(&mut self, reference: Reference, value: &[u8]) {
        self.changes.kept.push((reference, Arc::new(value.to_vec())));
    }
}

impl Table {
    // For the code that stores the values.

    /// Spills values of at least `bytes_min` bytes from now on. Call this before the first record is applied: all
    /// replicas of a group must spill the same values.
    pub fn spill_from(&mut self, bytes_min: usize) {
        self.spilled.bytes_min = bytes_min;
    }

    /// Returns the changes to spilled values since the last call.
    #[inline]
    pub fn take_spilled(&mut self) -> Option<Spilled> {
        let changes = &self.spilled.changes;
        if changes.kept.is_empty() && changes.released.is_empty() {
            return None;
        }
        let mut changes = std::mem::take(&mut self.spilled.changes);
        changes.released.retain(|reference| !self.refers_to(reference));
        Some(changes)
    }

    /// Whether a key refers to a spilled value.
    pub fn refers_to(&self, reference: &Reference) -> bool {
        self.spilled.references.contains_key(reference)
    }

    /// Every spilled value that keys refer to.
    pub fn spilled(&self) -> impl Iterator<Item = Reference> {
        self.spilled.references.keys().copied()
    }

    /// The number of spilled values.
    pub fn spilled_len(&self) -> usize {
        self.spilled.references.len()
    }

    /// Takes over the changes of another table that is replaced by this one or discarded: values that were to be stored
    /// are still to be stored, and values that only the other table referred to are not needed.
    pub fn take_spilled_of(&mut self, other: &mut Table) {
        other.spilled.lose_all();
        let Spilled { mut kept, released } = std::mem::take(&mut other.spilled.changes);
        kept.append(&mut self.spilled.changes.kept);
        self.spilled.changes.kept = kept;
        self.spilled.changes.released.extend(released);
    }

    // Records.

    /// After the record has been carried out, spills the long values that it has stored.
    #[inline]
    pub(super) fn spill(&mut self, record: Record) {
        if !self.spilled.large.is_empty() || !self.spilled.supplied.is_empty() {
            self.spill_large(record);
        }
    }

    fn spill_large(&mut self, record: Record) {
        let supplied = std::mem::take(&mut self.spilled.supplied);
        let mut index = 0;
        for key in std::mem::take(&mut self.spilled.large) {
            let hash = self.index.hash(&key);
            let Some((place, entry)) = self.find(hash, &key) else { continue };
            if !entry.is_bytes() || entry.value().len() < self.spilled.bytes_min {
                continue;
            }
            let version = entry.version();
            let unchanged = supplied.get(&key).filter(|(supplied, _)| *supplied == version);
            let reference = match unchanged {
                Some((_, reference)) => *reference,
                None => {
                    index += 1;
                    let value = entry.value().to_vec();
                    let (length, digest) = (value.len() as u32, digest_of(&value));
                    let reference = Reference::spilled(record.version, index, length, digest);
                    self.spilled.changes.kept.push((reference, Arc::new(value)));
                    reference
                }
            };
            self.put_in_form(place, &reference.encoded(), Kind::Coded, record);
        }
    }

    /// Carries out a command after putting the values that it needs under their keys, if the keys still refer to them.
    pub(super) fn supply(&mut self, supplied: &Supplied<'_>, record: Record, out: &mut ReplyBuffer) {
        let Some(command) = supplied.command() else {
            return out.error("ERR a command that cannot be supplied with values");
        };
        let is_current = |(key, reference, value): (&[u8], Reference, &[u8])| {
            let entry = self.peek(key, record.time);
            entry.is_some_and(|entry| entry.reference() == Some(reference)) && reference.is_of(value)
        };
        // If only some values were put in place, the reply would request the others, over and over.
        if supplied.values().all(is_current) {
            self.put_supplied(supplied.values(), record);
        }
        if !(self.holds_coded() && self.write_needs(&command, record.time, out)) {
            self.carry_out(&command, record, out);
        }
    }

    /// Puts values under the keys that refer to them, until the end of the record.
    pub(super) fn put_supplied<'v>(
        &mut self,
        values: impl Iterator<Item = (&'v [u8], Reference, &'v [u8])>,
        record: Record,
    ) {
        for (key, reference, value) in values {
            let Some((place, entry)) = self.find(self.index.hash(key), key) else { continue };
            let version = entry.version();
            self.put_in_form(place, value, Kind::Plain, record);
            self.spilled.supplied.insert(key.into(), (version, reference));
        }
    }

    /// The values on the disk that the current record was supplied with, which it must not have changed yet. One that was kept as
    /// fragments stays in the table from now on.
    pub(super) fn supplied_values(&self) -> Vec<ValueOf> {
        let mut values = Vec::new();
        for (key, (version, reference)) in self.spilled.supplied.iter().filter(|(_, (_, it))| it.is_spilled())
        {
            let Some((_, entry)) = self.find(self.index.hash(key), key) else { continue };
            assert_eq!(entry.version(), *version, "a value is taken before it is changed");
            values.push(ValueOf { key: key.clone(), reference: *reference, value: entry.value().into() });
        }
        values
    }
}
