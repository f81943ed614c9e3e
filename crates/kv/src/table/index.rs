//! From a key's hash to its slot.
//!
//! The index is many small hash tables, chosen by the hash's upper bits, so that a table that outgrows its
//! memory is moved a part at a time: nobody waits for ten million keys to move. Each is a row of 8-byte items,
//! searched from the place that the hash names to the first gap: mostly one cache line. An item carries 32 bits
//! of the hash, so that moving does not touch the entries, and a key is compared only when those bits agree.
//!
//! Measured against this and slower, with few keys and with a million: hashbrown's tables, and buckets of one cache
//! line that compare seven tags at once.

use super::slab::SlotNumber;
use rapidhash::v3::{RapidSecrets, rapidhash_v3_inline};

/// Number of small tables. At ten million keys each holds ten thousand.
const PARTITIONS: usize = 1024;
/// Places in the smallest table that is not empty.
const PLACES_MIN: usize = 4;

/// The upper half is the hash, the lower half the slot number plus one: zero means that the place is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Item(u64);

impl Item {
    const FREE: Item = Item(0);

    #[inline]
    fn new(hash: u32, slot: SlotNumber) -> Item {
        Item(u64::from(hash) << 32 | (u64::from(slot) + 1))
    }

    #[inline]
    fn hash(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline]
    fn slot(self) -> SlotNumber {
        (self.0 as u32).wrapping_sub(1)
    }
}

/// The hash of a key, made once per command.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeyHash(u64);

impl KeyHash {
    #[inline]
    fn partition(self) -> usize {
        (self.0 >> 32) as usize % PARTITIONS
    }

    #[inline]
    fn item_hash(self) -> u32 {
        self.0 as u32
    }
}

/// A hash table with linear probing. The number of places is a power of two or zero.
#[derive(Clone, Debug, Default)]
struct Partition {
    places: Box<[u64]>,
    count: usize,
}

impl Partition {
    #[inline]
    fn find<T>(&self, hash: u32, mut check: impl FnMut(SlotNumber) -> Option<T>) -> Option<T> {
        let places = &*self.places;
        if places.is_empty() {
            return None;
        }
        let mask = places.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let item = Item(places[at]);
            if item == Item::FREE {
                return None;
            }
            if item.hash() == hash
                && let Some(found) = check(item.slot())
            {
                return Some(found);
            }
            at = (at + 1) & mask;
        }
    }

    fn insert(&mut self, item: Item) {
        // At most three quarters full: beyond that the runs without a gap grow long.
        if (self.count + 1) * 4 > self.places.len() * 3 {
            self.resize((self.places.len() * 2).max(PLACES_MIN));
        }
        self.place(item);
        self.count += 1;
    }

    #[inline]
    fn touch(&self, hash: u32) -> u64 {
        self.places.get(hash as usize & self.places.len().wrapping_sub(1)).map_or(0, |place| *place)
    }

    fn place(&mut self, item: Item) {
        let mask = self.places.len() - 1;
        let mut at = item.hash() as usize & mask;
        while self.places[at] != Item::FREE.0 {
            at = (at + 1) & mask;
        }
        self.places[at] = item.0;
    }

    fn resize(&mut self, places: usize) {
        let before = std::mem::replace(&mut self.places, vec![Item::FREE.0; places].into_boxed_slice());
        before
            .iter()
            .map(|item| Item(*item))
            .filter(|item| *item != Item::FREE)
            .for_each(|item| self.place(item));
    }

    /// Takes an item out and moves those behind it up, so that no search meets a gap too early.
    fn remove(&mut self, item: Item) {
        let mask = self.places.len() - 1;
        let mut gap = item.hash() as usize & mask;
        while self.places[gap] != item.0 {
            assert!(self.places[gap] != Item::FREE.0, "every entry is indexed");
            gap = (gap + 1) & mask;
        }
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            let next = Item(self.places[at]);
            if next == Item::FREE {
                break;
            }
            let home = next.hash() as usize & mask;
            let (from_home, from_gap) = (at.wrapping_sub(home) & mask, at.wrapping_sub(gap) & mask);
            if from_home >= from_gap {
                self.places[gap] = next.0;
                gap = at;
            }
        }
        self.places[gap] = Item::FREE.0;
        self.count -= 1;
        if self.count == 0 {
            self.places = Box::default();
        }
        // At an eighth of the places, so that a table whose size swings does not resize to and fro.
        if self.count * 8 < self.places.len() && self.places.len() > PLACES_MIN {
            self.resize(self.places.len() / 2);
        }
    }
}

/// Slot numbers by key.
#[derive(Debug)]
pub(super) struct Index {
    secrets: RapidSecrets,
    partitions: Box<[Partition]>,
    /// Places of all partitions.
    places: usize,
}

impl Index {
    pub(super) fn new(seed: u64) -> Index {
        let partitions = vec![Partition::default(); PARTITIONS].into_boxed_slice();
        Index { secrets: RapidSecrets::seed(seed), partitions, places: 0 }
    }

    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash(rapidhash_v3_inline::<true, false, false>(key, &self.secrets))
    }

    /// What `check` makes of the slot of the key with this hash. It is given candidates until it accepts one.
    #[inline]
    pub(super) fn find<T>(&self, hash: KeyHash, check: impl FnMut(SlotNumber) -> Option<T>) -> Option<T> {
        self.partitions[hash.partition()].find(hash.item_hash(), check)
    }

    /// Reads where a search for this key begins, and nothing behind it.
    #[inline]
    pub(super) fn touch(&self, hash: KeyHash) -> u64 {
        self.partitions[hash.partition()].touch(hash.item_hash())
    }

    /// Adds a key that is not there.
    pub(super) fn insert(&mut self, hash: KeyHash, slot: SlotNumber) {
        self.change(hash, |partition| partition.insert(Item::new(hash.item_hash(), slot)));
    }

    /// Takes the key in this slot out.
    pub(super) fn remove(&mut self, hash: KeyHash, slot: SlotNumber) {
        self.change(hash, |partition| partition.remove(Item::new(hash.item_hash(), slot)));
    }

    fn change(&mut self, hash: KeyHash, change: impl FnOnce(&mut Partition)) {
        let partition = &mut self.partitions[hash.partition()];
        let before = partition.places.len();
        change(partition);
        self.places = self.places - before + partition.places.len();
    }

    pub(super) fn clear(&mut self) {
        self.partitions.fill(Partition::default());
        self.places = 0;
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        self.places * size_of::<Item>() + PARTITIONS * size_of::<Partition>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn the_index_finds_what_was_added_and_not_what_was_removed() {
        let mut index = Index::new(3);
        let mut model = BTreeMap::new();
        let mut state = 1u64;
        for step in 0..200_000u32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Few different hashes, and half of them with the same lower bits: long runs and many collisions.
            let number = state >> 50;
            let hash = KeyHash(if number.is_multiple_of(2) { number << 20 } else { number });
            match model.remove(&hash.0) {
                Some(slot) => index.remove(hash, slot),
                None => {
                    model.insert(hash.0, step);
                    index.insert(hash, step);
                }
            }
            if step % 4096 == 0 {
                for number in 0..(1 << 14) {
                    let hash = KeyHash(number);
                    let found = index.find(hash, Some);
                    assert_eq!(found, model.get(&number).copied(), "after {step} steps: {number}");
                }
            }
        }
        let last: Vec<_> = model.into_iter().collect();
        last.iter().for_each(|(hash, slot)| index.remove(KeyHash(*hash), *slot));
        assert_eq!(index.bytes(), Index::new(3).bytes(), "an empty index has no places");
    }
}
