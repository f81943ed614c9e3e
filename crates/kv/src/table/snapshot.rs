//! Snapshots: all entries as they were at one record, taken in chunks while writes go on.
//!
//! A snapshot walks the slots that existed when it began. A write to a slot that it has not passed yet saves
//! the entry as it was first; a key that moves into a slot later does not belong to it. One bit per slot
//! remembers which of both has happened. Nothing is copied when a snapshot begins, and while none is open a
//! write pays one branch.
//!
//! A chunk is a run of entries: version `u64`, deadline `u64`, kind `u8`, key, value (each with its length).
//! The order of entries means nothing.

use super::entry::{Entry, Kind, Stamp};
use super::slab::{Slab, SlotNumber};
use super::{NO_DEADLINE, Record, Table};
use crate::codec::{Malformed, Reader, Writer};
use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX_CEILING};
use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};
use std::sync::Arc;

/// Names an open snapshot of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotId(u64);

/// A snapshot that is being taken.
#[derive(Debug)]
pub(super) struct Snapshot {
    id: SnapshotId,
    /// The next slot to visit.
    next: usize,
    /// The first slot that did not exist at the start.
    end: usize,
    /// Slots that are not to be visited: their entry was saved, or they were empty at the start.
    done: Vec<u64>,
    /// Entries as they were before a write. The last is told first.
    saved: Vec<Entry>,
    /// The slab as it was when the table was cleared: walked from then on instead of the table's.
    kept: Option<Arc<Slab>>,
}

impl Snapshot {
    /// True when the walk is still to come to the slot.
    fn awaits(&self, slot: SlotNumber) -> bool {
        let slot = slot as usize;
        slot >= self.next && slot < self.end && self.done[slot / 64] >> (slot % 64) & 1 == 0
    }

    fn mark(&mut self, slot: SlotNumber) {
        self.done[slot as usize / 64] |= 1 << (slot % 64);
    }

    /// A write is about to change or remove the entry in this slot.
    pub(super) fn save(&mut self, slot: SlotNumber, entry: &Entry) {
        if self.kept.is_none() && self.awaits(slot) {
            self.mark(slot);
            self.saved.push(entry.clone());
        }
    }

    /// A key has moved into this slot.
    pub(super) fn leave_out(&mut self, slot: SlotNumber) {
        if self.kept.is_none() && self.awaits(slot) {
            self.mark(slot);
        }
    }

    /// The table is being cleared; this was its slab.
    pub(super) fn keep(&mut self, slab: &Arc<Slab>) {
        if self.kept.is_none() {
            self.kept = Some(Arc::clone(slab));
        }
    }

    /// Appends entries until `out` has grown by `bytes_max` or none are left; true when there may be more.
    fn chunk(&mut self, table: &Slab, bytes_max: usize, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        while let Some(entry) = self.saved.pop() {
            encode(&entry, out);
            if out.len() - start >= bytes_max {
                return true;
            }
        }
        let kept = self.kept.clone();
        let slab = kept.as_deref().unwrap_or(table);
        while let Some(slot) = slab.next_slot(self.next).filter(|slot| (*slot as usize) < self.end) {
            let entry = if self.awaits_at(slot) { slab.get(slot) } else { None };
            self.next = slot as usize + 1;
            if let Some(entry) = entry {
                encode(entry, out);
                if out.len() - start >= bytes_max {
                    return true;
                }
            }
        }
        self.next = self.end;
        false
    }

    fn awaits_at(&self, slot: SlotNumber) -> bool {
        self.done[slot as usize / 64] >> (slot % 64) & 1 == 0
    }
}

fn encode(entry: &Entry, out: &mut Vec<u8>) {
    out.put_u64(entry.version());
    out.put_u64(entry.deadline());
    out.put_u8(entry.kind() as u8);
    out.put_bytes(entry.key());
    out.put_bytes(entry.value());
}

impl Table {
    /// Begins a snapshot of the table as it is now. It has to be ended with [`Table::end_snapshot`].
    pub fn begin_snapshot(&mut self) -> SnapshotId {
        self.snapshots_begun += 1;
        let id = SnapshotId(self.snapshots_begun);
        let end = self.slab.end();
        let done = vec![0; end.div_ceil(64)];
        self.snapshots.push(Snapshot { id, next: 0, end, done, saved: Vec::new(), kept: None });
        id
    }

    /// Appends the next chunk of a snapshot to `out`; true when there is more to come.
    ///
    /// A chunk ends with the first entry that brings it to `bytes_max`, so it may be longer by one entry and
    /// holds at least one; only the last one may be empty. An id that is not open has nothing more to come.
    pub fn snapshot_chunk(&mut self, id: SnapshotId, bytes_max: usize, out: &mut Vec<u8>) -> bool {
        let Some(snapshot) = self.snapshots.iter_mut().find(|snapshot| snapshot.id == id) else {
            return false;
        };
        snapshot.chunk(&self.slab, bytes_max, out)
    }

    /// Ends a snapshot, whether or not all of it was taken.
    pub fn end_snapshot(&mut self, id: SnapshotId) {
        self.snapshots.retain(|snapshot| snapshot.id != id);
    }

    /// Adds the entries of a snapshot's chunk and returns how many there were. Chunks may come in any order, and
    /// from several tables: of two entries with one key, the one with the higher version stays.
    ///
    /// What a chunk does not hold is the version floor: see [`Table::set_version_floor`].
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are no chunk. Entries before the fault were added: throw the table away.
    pub fn install(&mut self, chunk: &[u8]) -> Result<usize, Malformed> {
        let mut reader = Reader::new(chunk);
        let mut count = 0;
        while !reader.is_empty() {
            let (version, deadline) = (reader.u64()?, reader.u64()?);
            let kind = Kind::from_tag(reader.u8()?).ok_or(Malformed("unknown kind of value"))?;
            let (key, value) = (reader.bytes()?, reader.bytes()?);
            if key.len() > KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX_CEILING {
                return Err(Malformed("a key or a value is too long"));
            }
            if self.register(key).version < version {
                // No record was applied: its time, which decides what has expired, is the beginning of time.
                self.put(key, value, deadline, kind, Record { version, time: 0 });
            }
            count += 1;
        }
        Ok(count)
    }

    /// A fingerprint of all keys, values, versions and deadlines and of the version floor: replicas that hold
    /// the same have the same, whatever their seeds and however they came to it.
    pub fn digest(&self) -> u64 {
        const SECRETS: RapidSecrets = RapidSecrets::seed(0x71756f72617465);
        let hash = |bytes: &[u8]| rapidhash_v3_seeded(bytes, &SECRETS);
        let mut sum = hash(&self.floor.to_le_bytes());
        for entry in self.slab.iter() {
            let Stamp { version, deadline, .. } = entry.stamp();
            let text = hash(entry.key_and_value());
            let mut fields = [0; 32];
            let parts = [text, version, deadline, entry.key().len() as u64];
            fields
                .chunks_exact_mut(8)
                .zip(parts)
                .for_each(|(field, part)| field.copy_from_slice(&part.to_le_bytes()));
            sum = sum.wrapping_add(hash(&fields));
        }
        sum
    }
}

const _: () = assert!(NO_DEADLINE == u64::MAX, "a deadline of a snapshot's entry is written as it is");
