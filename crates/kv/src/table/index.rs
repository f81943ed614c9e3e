//! From a key's hash to its slot.
//!
//! The index is many small hash tables, chosen by the hash's upper bits, so that a table that outgrows its
//! memory is moved a part at a time: nobody waits for ten million keys to move. A table is a row of buckets of
//! one cache line. A search compares a byte of the hash with all places of a bucket at once, so it hardly ever
//! branches on what the memory has yet to deliver, and the processor can run ahead into the next command. A
//! place carries 32 bits of the hash, so that moving does not touch the entries, and a key is compared only when
//! those bits agree.

use super::slab::SlotNumber;
use rapidhash::v3::{RapidSecrets, rapidhash_v3_inline};

/// Number of small tables. At ten million keys each holds ten thousand.
const PARTITIONS: usize = 1024;
/// Places in a bucket: as many as fit a cache line.
const PLACES: usize = 7;

/// A row of places. Those in use come first.
#[derive(Clone, Debug, Default)]
#[repr(align(64))]
struct Bucket {
    /// For each place the hash's upper byte, the first place in the lowest; in the highest byte the number of
    /// places in use.
    tags: u64,
    hashes: [u32; PLACES],
    slots: [SlotNumber; PLACES],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Item {
    hash: u32,
    slot: SlotNumber,
}

impl Bucket {
    const COUNT_SHIFT: u32 = 8 * PLACES as u32;

    #[inline]
    fn count(&self) -> usize {
        (self.tags >> Self::COUNT_SHIFT) as usize
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.count() == PLACES
    }

    fn item(&self, place: usize) -> Item {
        Item { hash: self.hashes[place], slot: self.slots[place] }
    }

    fn items(&self) -> impl Iterator<Item = Item> {
        (0..self.count()).map(|place| self.item(place))
    }

    /// What `check` makes of the first slot that it accepts, among those with this hash.
    #[inline]
    fn find<T>(&self, hash: u32, mut check: impl FnMut(SlotNumber) -> Option<T>) -> Option<T> {
        const LOWEST_BITS: u64 = 0x0001_0101_0101_0101;
        const HIGHEST_BITS: u64 = LOWEST_BITS << 7;
        // A byte of `differences` is zero where the tag agrees; the next line finds zero bytes (and now and
        // then one above a zero byte that is none, which the comparison of hashes sorts out).
        let differences = self.tags ^ (LOWEST_BITS * u64::from(hash >> 24));
        let mut matches = differences.wrapping_sub(LOWEST_BITS) & !differences & HIGHEST_BITS;
        while matches != 0 {
            let place = matches.trailing_zeros() as usize / 8;
            if self.hashes[place] == hash
                && place < self.count()
                && let Some(found) = check(self.slots[place])
            {
                return Some(found);
            }
            matches &= matches - 1;
        }
        None
    }

    fn put(&mut self, place: usize, item: Item) {
        let shift = 8 * place as u32;
        self.tags = self.tags & !(0xff << shift) | u64::from(item.hash >> 24) << shift;
        self.hashes[place] = item.hash;
        self.slots[place] = item.slot;
    }

    /// False when there is no room.
    fn push(&mut self, item: Item) -> bool {
        if self.is_full() {
            return false;
        }
        self.put(self.count(), item);
        self.tags += 1 << Self::COUNT_SHIFT;
        true
    }

    /// Takes the item at a place out; the last one moves there.
    fn take(&mut self, place: usize) {
        let last = self.item(self.count() - 1);
        self.put(place, last);
        self.tags -= 1 << Self::COUNT_SHIFT;
    }
}

/// The hash of a key, made once per command.
#[derive(Clone, Copy, Debug)]
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

/// A hash table whose items stand in the bucket that their hash names, or in the next one with room. The number
/// of buckets is a power of two or zero.
#[derive(Clone, Debug, Default)]
struct Partition {
    buckets: Box<[Bucket]>,
    count: usize,
}

impl Partition {
    #[inline]
    fn mask(&self) -> usize {
        self.buckets.len() - 1
    }

    #[inline]
    fn find<T>(&self, hash: u32, mut check: impl FnMut(SlotNumber) -> Option<T>) -> Option<T> {
        if self.buckets.is_empty() {
            return None;
        }
        let mut at = hash as usize & self.mask();
        loop {
            let bucket = &self.buckets[at];
            let found = bucket.find(hash, &mut check);
            if found.is_some() {
                return found;
            }
            if !bucket.is_full() {
                return None;
            }
            at = (at + 1) & self.mask();
        }
    }

    fn insert(&mut self, item: Item) {
        // At most four fifths full: beyond that many items do not stand in the bucket that they belong to.
        if (self.count + 1) * 5 > self.buckets.len() * PLACES * 4 {
            self.resize((self.buckets.len() * 2).max(1));
        }
        self.place(item);
        self.count += 1;
    }

    fn place(&mut self, item: Item) {
        let mut at = item.hash as usize & self.mask();
        while !self.buckets[at].push(item) {
            at = (at + 1) & self.mask();
        }
    }

    fn resize(&mut self, buckets: usize) {
        let before =
            std::mem::replace(&mut self.buckets, vec![Bucket::default(); buckets].into_boxed_slice());
        before.iter().flat_map(Bucket::items).for_each(|item| self.place(item));
    }

    /// Takes an item out. The gap is filled from the buckets behind, so that no search ends too early there.
    fn remove(&mut self, item: Item) {
        let mut gap = item.hash as usize & self.mask();
        loop {
            let bucket = &mut self.buckets[gap];
            let was_full = bucket.is_full();
            let place = bucket.items().position(|candidate| candidate == item);
            if let Some(place) = place {
                bucket.take(place);
                if was_full {
                    self.fill(gap);
                }
                break;
            }
            assert!(was_full, "every entry is indexed");
            gap = (gap + 1) & self.mask();
        }
        self.count -= 1;
        if self.count == 0 {
            self.buckets = Box::default();
        }
        // At an eighth of the places, so that a table whose size swings does not resize to and fro.
        if self.count * 8 < self.buckets.len() * PLACES && self.buckets.len() > 1 {
            self.resize(self.buckets.len() / 2);
        }
    }

    /// A bucket that was full has lost an item: one that was sent on from here, or from before, comes back.
    fn fill(&mut self, mut gap: usize) {
        let mut at = gap;
        loop {
            at = (at + 1) & self.mask();
            if at == gap {
                return;
            }
            let mask = self.mask();
            let distance = |from: usize| at.wrapping_sub(from) & mask;
            let sent_on = |item: Item| distance(item.hash as usize & mask) >= distance(gap);
            let bucket = &mut self.buckets[at];
            let was_full = bucket.is_full();
            let found = bucket.items().enumerate().find(|(_, item)| sent_on(*item));
            if let Some((place, item)) = found {
                bucket.take(place);
                self.buckets[gap].push(item);
                gap = at;
            }
            if !was_full {
                return;
            }
        }
    }
}

/// Slot numbers by key.
#[derive(Debug)]
pub(super) struct Index {
    secrets: RapidSecrets,
    partitions: Box<[Partition]>,
    /// Buckets of all partitions.
    buckets: usize,
}

impl Index {
    pub(super) fn new(seed: u64) -> Index {
        let partitions = vec![Partition::default(); PARTITIONS].into_boxed_slice();
        Index { secrets: RapidSecrets::seed(seed), partitions, buckets: 0 }
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

    /// What `look` sees in the slot that is probably the key's: the first with the same upper byte of the hash.
    #[inline]
    pub(super) fn peek(&self, hash: KeyHash, look: impl Fn(SlotNumber) -> u64) -> u64 {
        let partition = &self.partitions[hash.partition()];
        if partition.buckets.is_empty() {
            return 0;
        }
        let bucket = &partition.buckets[hash.item_hash() as usize & partition.mask()];
        bucket.find(hash.item_hash(), |slot| Some(look(slot))).unwrap_or(0)
    }

    /// Adds a key that is not there.
    pub(super) fn insert(&mut self, hash: KeyHash, slot: SlotNumber) {
        self.change(hash, |partition| partition.insert(Item { hash: hash.item_hash(), slot }));
    }

    /// Takes the key in this slot out.
    pub(super) fn remove(&mut self, hash: KeyHash, slot: SlotNumber) {
        self.change(hash, |partition| partition.remove(Item { hash: hash.item_hash(), slot }));
    }

    fn change(&mut self, hash: KeyHash, change: impl FnOnce(&mut Partition)) {
        let partition = &mut self.partitions[hash.partition()];
        let before = partition.buckets.len();
        change(partition);
        self.buckets = self.buckets - before + partition.buckets.len();
    }

    pub(super) fn clear(&mut self) {
        self.partitions.fill(Partition::default());
        self.buckets = 0;
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        self.buckets * size_of::<Bucket>() + PARTITIONS * size_of::<Partition>()
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
        assert_eq!(index.bytes(), Index::new(3).bytes(), "an empty index holds no buckets");
    }
}
