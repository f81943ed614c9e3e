//! Where the entries stand: numbered slots, in chunks.
//!
//! A key keeps its slot for as long as it exists. That is what `SCAN` and snapshots rest on: walking the slots
//! in order meets every key that is present throughout exactly once. Chunks mean that growing never copies
//! everything, and that a chunk without entries gives its memory back.

use super::entry::Entry;

/// Number of a slot.
pub(super) type SlotNumber = u32;

/// Slots per chunk: 64 KiB of them.
const CHUNK_SLOTS: usize = 4096;
/// A chunk that was emptied keeps room for this many slots, so that adding and removing one key is cheap.
const RETAINED_SLOTS: usize = 16;
const NO_HOLE: u32 = u32::MAX;

#[derive(Debug)]
enum Slot {
    Full(Entry),
    /// A hole knows the next hole of its chunk: the free list costs no memory.
    Hole {
        next: u32,
    },
}

#[derive(Debug)]
struct Chunk {
    slots: Vec<Slot>,
    /// First hole, or [`NO_HOLE`].
    hole: u32,
    /// Number of entries.
    live: usize,
    /// True while the chunk's number is in [`Slab::open`].
    open: bool,
}

/// Entries by slot number.
#[derive(Debug, Default)]
pub(super) struct Slab {
    chunks: Vec<Chunk>,
    /// Chunks with room, the one to fill next at the end.
    open: Vec<u32>,
    live: usize,
}

fn split(slot: SlotNumber) -> (usize, usize) {
    (slot as usize / CHUNK_SLOTS, slot as usize % CHUNK_SLOTS)
}

fn join(chunk: usize, index: usize) -> SlotNumber {
    // 2^32 entries would take some hundred gigabytes; memory ends long before the numbers do.
    SlotNumber::try_from(chunk * CHUNK_SLOTS + index).expect("a table holds fewer than 2^32 keys")
}

impl Slab {
    /// Number of entries.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.live
    }

    /// Every slot number ever given is below this.
    pub(super) fn end(&self) -> usize {
        self.chunks.len() * CHUNK_SLOTS
    }

    /// Bytes that the slots take.
    pub(super) fn slot_bytes() -> usize {
        size_of::<Slot>()
    }

    /// The entry in a slot, if there is one.
    #[inline]
    pub(super) fn get(&self, slot: SlotNumber) -> Option<&Entry> {
        let (chunk, index) = split(slot);
        match self.chunks.get(chunk)?.slots.get(index)? {
            Slot::Full(entry) => Some(entry),
            Slot::Hole { .. } => None,
        }
    }

    /// The entry in a slot that the index or the expiry order named.
    #[inline]
    pub(super) fn entry(&self, slot: SlotNumber) -> &Entry {
        let (chunk, index) = split(slot);
        match &self.chunks[chunk].slots[index] {
            Slot::Full(entry) => entry,
            Slot::Hole { .. } => unreachable!("an indexed slot holds an entry"),
        }
    }

    /// Like [`Slab::entry`], to change it.
    #[inline]
    pub(super) fn entry_mut(&mut self, slot: SlotNumber) -> &mut Entry {
        let (chunk, index) = split(slot);
        match &mut self.chunks[chunk].slots[index] {
            Slot::Full(entry) => entry,
            Slot::Hole { .. } => unreachable!("an indexed slot holds an entry"),
        }
    }

    /// The first slot at or after `from` that may hold an entry: chunks without any are passed over.
    pub(super) fn next_slot(&self, from: usize) -> Option<SlotNumber> {
        let (mut number, mut index) = (from / CHUNK_SLOTS, from % CHUNK_SLOTS);
        while let Some(chunk) = self.chunks.get(number) {
            if chunk.live > 0 && index < chunk.slots.len() {
                return Some(join(number, index));
            }
            number += 1;
            index = 0;
        }
        None
    }

    /// All entries in slot order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.chunks.iter().flat_map(|chunk| &chunk.slots).filter_map(|slot| match slot {
            Slot::Full(entry) => Some(entry),
            Slot::Hole { .. } => None,
        })
    }

    /// Puts an entry into a slot of the slab's choice: the last one emptied in the chunk last opened.
    pub(super) fn insert(&mut self, entry: Entry) -> SlotNumber {
        let number = match self.open.last() {
            Some(number) => *number as usize,
            None => {
                self.open.push(self.chunks.len() as u32);
                self.chunks.push(Chunk { slots: Vec::new(), hole: NO_HOLE, live: 0, open: true });
                self.chunks.len() - 1
            }
        };
        let chunk = &mut self.chunks[number];
        let index = if chunk.hole == NO_HOLE {
            chunk.slots.push(Slot::Full(entry));
            chunk.slots.len() - 1
        } else {
            let index = chunk.hole as usize;
            if let Slot::Hole { next } = std::mem::replace(&mut chunk.slots[index], Slot::Full(entry)) {
                chunk.hole = next;
            }
            index
        };
        chunk.live += 1;
        self.live += 1;
        if chunk.live == CHUNK_SLOTS {
            chunk.open = false;
            self.open.pop();
        }
        join(number, index)
    }

    /// Takes the entry out of a slot that holds one.
    pub(super) fn remove(&mut self, slot: SlotNumber) -> Entry {
        let (number, index) = split(slot);
        let chunk = &mut self.chunks[number];
        let hole = Slot::Hole { next: chunk.hole };
        let Slot::Full(entry) = std::mem::replace(&mut chunk.slots[index], hole) else {
            unreachable!("an indexed slot holds an entry")
        };
        chunk.hole = index as u32;
        chunk.live -= 1;
        self.live -= 1;
        if chunk.live == 0 {
            chunk.slots.clear();
            chunk.slots.shrink_to(RETAINED_SLOTS);
            chunk.hole = NO_HOLE;
        }
        if !chunk.open {
            chunk.open = true;
            self.open.push(number as u32);
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::super::NO_DEADLINE;
    use super::super::entry::{Kind, Stamp};
    use super::*;

    fn entry(number: u32) -> Entry {
        Entry::new(&number.to_le_bytes(), b"", Stamp { version: 1, deadline: NO_DEADLINE, kind: Kind::Plain })
    }

    #[test]
    fn a_slot_costs_no_more_than_its_pointer() {
        assert_eq!(Slab::slot_bytes(), 16);
    }

    #[test]
    fn holes_are_filled_before_the_slab_grows() {
        let mut slab = Slab::default();
        let slots: Vec<_> = (0..10_000).map(|number| slab.insert(entry(number))).collect();
        let end = slab.end();
        slots.iter().step_by(3).for_each(|slot| drop(slab.remove(*slot)));
        for number in 0..slots.len().div_ceil(3) as u32 {
            slab.insert(entry(number));
        }
        assert_eq!((slab.len(), slab.end()), (10_000, end));
    }

    #[test]
    fn walking_meets_every_entry_once_and_passes_over_empty_chunks() {
        let mut slab = Slab::default();
        let slots: Vec<_> = (0..20_000).map(|number| slab.insert(entry(number))).collect();
        slots[4000..16_000].iter().for_each(|slot| drop(slab.remove(*slot)));
        let (mut met, mut steps, mut from) = (0, 0, 0);
        while let Some(slot) = slab.next_slot(from) {
            met += usize::from(slab.get(slot).is_some());
            steps += 1;
            from = slot as usize + 1;
        }
        assert_eq!(met, 8000);
        assert_eq!(slab.iter().count(), 8000);
        assert!(steps < 13_000, "two chunks are empty: {steps} steps");
    }
}
