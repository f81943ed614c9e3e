//! The index: maps a key to its entry.
//!
//! The index consists of many small hash tables, chosen by the hash's upper bits, so that when the table grows it moves
//! a small part at a time: no command waits for ten million keys to move. It owns the entries, so finding a key takes
//! two waits for memory: one for the place, which says where the entry is, and one for the entry.
//!
//! Entries are in the order of their hashes, and a key's hash never changes. So a hash is a position in the whole index
//! that survives every move of entries: `SCAN` and snapshots proceed by hashes.

use super::entry::Entry;
use super::partition::Partition;
use super::tree::Discarded;
use rapidhash::v3::{RapidSecrets, rapidhash_v3_inline};

/// Number of small tables. At ten million keys each holds ten thousand.
const PARTITIONS: usize = 1 << PARTITION_BITS;
const PARTITION_BITS: u32 = 10;
/// Bits of a hash within its partition.
const ITEM_BITS: u32 = 32;

/// The hash of a key, computed once per command: 10 bits select the partition, the lower 32 order its entries. A few
/// keys share a hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KeyHash(u64);

impl KeyHash {
    /// Number of bits of a hash.
    pub(super) const BITS: u32 = PARTITION_BITS + ITEM_BITS;

    /// Greater than every key's hash.
    pub(super) const END: KeyHash = KeyHash((PARTITIONS as u64) << ITEM_BITS);

    /// Converts a number back, one from [`KeyHash::number`] or any other: one that is too large becomes
    /// [`KeyHash::END`].
    pub(super) fn from_number(number: u64) -> KeyHash {
        KeyHash(number).min(Self::END)
    }

    /// The hash as a number, in the same order.
    pub(super) fn number(self) -> u64 {
        self.0
    }

    /// The next greater hash.
    pub(super) fn next(self) -> KeyHash {
        KeyHash(self.0 + 1)
    }

    fn join(partition: usize, item: u32) -> KeyHash {
        KeyHash((partition as u64) << ITEM_BITS | u64::from(item))
    }

    #[inline]
    fn partition(self) -> usize {
        (self.0 >> ITEM_BITS) as usize
    }

    #[inline]
    fn item(self) -> u32 {
        self.0 as u32
    }
}

/// The place of an entry, valid until an entry is added or removed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) hash: KeyHash,
    at: usize,
    /// The index's count of changes when the place was found.
    #[cfg(debug_assertions)]
    moves: u64,
}

/// The entries of all keys.
#[derive(Debug)]
pub(super) struct Index {
    secrets: RapidSecrets,
    /// The bits of a hash that are used. Tests clear some, so that keys collide.
    #[cfg(test)]
    mask: u64,
    partitions: Box<[Partition; PARTITIONS]>,
    count: usize,
    /// Bytes allocated by all partitions.
    bytes: usize,
    /// The mark for new entries; `None` while no marks are kept.
    fresh: Option<u32>,
    /// The number of entries added and removed. Each of these changes invalidates all places. A place that is used too late
    /// holds another entry, or none, only if both are in one partition: with the handful of keys of a test, hardly ever.
    #[cfg(debug_assertions)]
    moves: u64,
}

fn empty_partitions() -> Box<[Partition; PARTITIONS]> {
    Box::new(std::array::from_fn(|_| Partition::default()))
}

impl Index {
    pub(super) fn new(seed: u64) -> Index {
        Index {
            secrets: RapidSecrets::seed(seed),
            #[cfg(test)]
            mask: u64::MAX,
            partitions: empty_partitions(),
            count: 0,
            bytes: 0,
            fresh: None,
            #[cfg(debug_assertions)]
            moves: 0,
        }
    }

    /// Keeps only these bits of a hash, so that keys collide.
    #[cfg(test)]
    pub(super) fn keep_hash_bits(&mut self, mask: u64) {
        self.mask = mask;
    }

    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> KeyHash {
        let hash = rapidhash_v3_inline::<true, false, false>(key, &self.secrets);
        #[cfg(test)]
        let hash = hash & self.mask;
        // The lowest bit is cleared, so that no key's hash equals that of a free place.
        KeyHash(hash >> (u64::BITS - KeyHash::BITS) & !1)
    }

    /// Returns `bits` bits that depend on the seed only. They reveal no more of it than a key's hash does.
    pub(super) fn drawn_from_seed(&self, bits: u32) -> u64 {
        rapidhash_v3_inline::<true, false, false>(b"", &self.secrets) >> (u64::BITS - bits)
    }

    /// The number of entries.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Bytes allocated, not counting the entries themselves.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + PARTITIONS * size_of::<Partition>()
    }

    /// Returns the first entry with this hash that `check` accepts.
    #[inline]
    pub(super) fn find(&self, hash: KeyHash, check: impl Fn(&Entry) -> bool) -> Option<(Place, &Entry)> {
        let partition = &self.partitions[hash.partition()];
        let at = partition.find(hash.item(), check)?;
        let place = Place {
            hash,
            at,
            #[cfg(debug_assertions)]
            moves: self.moves,
        };
        Some((place, partition.get(at)?))
    }

    #[inline]
    fn check_place(&self, _place: Place) {
        #[cfg(debug_assertions)]
        assert_eq!(_place.moves, self.moves, "a place is used after an entry was added or removed");
    }

    /// Invalidates all places.
    #[inline]
    fn entries_move(&mut self) {
        #[cfg(debug_assertions)]
        {
            self.moves += 1;
        }
    }

    /// Returns the entry that most likely has the key with this hash. The caller compares keys, and falls back to
    /// [`Index::find`] if they differ or there is no entry.
    #[inline(always)]
    pub(super) fn likely(&self, hash: KeyHash) -> Option<&Entry> {
        self.partitions[hash.partition()].likely(hash.item())
    }

    /// Like [`Index::likely`], but mutable.
    #[inline(always)]
    pub(super) fn likely_mut(&mut self, hash: KeyHash) -> Option<&mut Entry> {
        self.partitions[hash.partition()].likely_mut(hash.item())
    }

    /// Returns the entry at a place, which must be valid.
    #[inline]
    pub(super) fn entry(&self, place: Place) -> &Entry {
        self.check_place(place);
        match self.partitions[place.hash.partition()].get(place.at) {
            Some(entry) => entry,
            None => unreachable!("a place that was found holds an entry"),
        }
    }

    /// Like [`Index::entry`], but mutable.
    #[inline]
    pub(super) fn entry_mut(&mut self, place: Place) -> &mut Entry {
        self.check_place(place);
        match self.partitions[place.hash.partition()].get_mut(place.at) {
            Some(entry) => entry,
            None => unreachable!("a place that was found holds an entry"),
        }
    }

    /// Adds the entry of a key that does not exist.
    pub(super) fn insert(&mut self, hash: KeyHash, entry: Entry) {
        self.entries_move();
        let partition = &mut self.partitions[hash.partition()];
        let before = partition.bytes();
        partition.insert(hash.item(), entry, self.fresh);
        self.bytes = self.bytes - before + partition.bytes();
        self.count += 1;
    }

    /// Sets the mark for entries that are added from now on.
    #[inline]
    pub(super) fn set_fresh_mark(&mut self, mark: u32) {
        self.fresh = Some(mark);
    }

    /// Drops all marks, and keeps none until [`Index::set_fresh_mark`] is called again.
    pub(super) fn drop_marks(&mut self) {
        self.fresh = None;
        for partition in self.partitions.iter_mut() {
            let before = partition.bytes();
            partition.drop_marks();
            self.bytes = self.bytes - before + partition.bytes();
        }
    }

    /// Changes the mark of a key's entry, if there is one and marks are kept.
    pub(super) fn change_mark(&mut self, hash: KeyHash, key: &[u8], change: impl FnOnce(u32) -> u32) {
        let Some(fresh) = self.fresh else { return };
        let partition = &mut self.partitions[hash.partition()];
        let Some(at) = partition.place_of(hash.item(), key) else { return };
        let before = partition.bytes();
        let mark = partition.mark_mut(at, fresh);
        *mark = change(*mark);
        self.bytes = self.bytes - before + partition.bytes();
    }

    /// The mark of a key's entry; `None` if there is no entry, or no mark was ever kept near it.
    pub(super) fn mark(&self, hash: KeyHash, key: &[u8]) -> Option<u32> {
        let partition = &self.partitions[hash.partition()];
        partition.mark(partition.place_of(hash.item(), key)?)
    }

    /// Like [`Index::walk_from`], with marks.
    pub(super) fn walk_marked_from(
        &self,
        start: KeyHash,
    ) -> impl Iterator<Item = (KeyHash, &Entry, Option<u32>)> {
        let partitions = self.partitions.iter().enumerate().skip(start.partition());
        // Skip empty partitions: a small table has entries in few of them.
        let held = partitions.filter(|(_, partition)| partition.len() > 0);
        held.flat_map(move |(number, partition)| {
            let first = if number == start.partition() { start.item() } else { 0 };
            let entries = partition.walk_marked_from(first);
            entries.map(move |(item, entry, mark)| (KeyHash::join(number, item), entry, mark))
        })
    }

    /// Removes the entry at a place, which must be valid.
    pub(super) fn remove(&mut self, place: Place) -> Entry {
        self.check_place(place);
        self.entries_move();
        let partition = &mut self.partitions[place.hash.partition()];
        let before = partition.bytes();
        let Some(entry) = partition.remove(place.at) else {
            unreachable!("a place that was found holds an entry")
        };
        self.bytes = self.bytes - before + partition.bytes();
        self.count -= 1;
        entry
    }

    /// Moves all entries into a new index, and leaves this one empty.
    pub(super) fn take(&mut self) -> Index {
        self.entries_move();
        let empty = self.empty();
        std::mem::replace(self, empty)
    }

    /// An index without entries that hashes keys in the same way.
    pub(super) fn empty(&self) -> Index {
        Index {
            secrets: self.secrets,
            #[cfg(test)]
            mask: self.mask,
            partitions: empty_partitions(),
            count: 0,
            bytes: 0,
            fresh: self.fresh,
            #[cfg(debug_assertions)]
            moves: self.moves,
        }
    }

    /// Takes all entries out.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Entry> {
        self.entries_move();
        self.count = 0;
        self.bytes = 0;
        self.partitions.iter_mut().flat_map(|partition| std::mem::take(partition).into_entries())
    }

    /// Drops the entries of one partition and returns their number: 0 when none are left. O(entries of a partition),
    /// because large collections are handed to `discarded`.
    pub(super) fn drop_some(&mut self, discarded: &mut Discarded) -> usize {
        let Some(partition) = self.partitions.iter_mut().find(|partition| partition.len() > 0) else {
            return 0;
        };
        let count = partition.len();
        self.count -= count;
        self.bytes -= partition.bytes();
        let entries = std::mem::take(partition).into_entries();
        entries.filter_map(Entry::into_collection).for_each(|it| it.discard(discarded));
        count
    }

    /// Iterates over the entries with this hash: one or none, except for very few hashes.
    pub(super) fn all_with(&self, hash: KeyHash) -> impl Iterator<Item = &Entry> {
        let entries = self.partitions[hash.partition()].walk_from(hash.item());
        entries.take_while(move |(item, _)| *item == hash.item()).map(|(_, entry)| entry)
    }

    /// Like [`Index::all_with`], but mutable.
    pub(super) fn all_with_mut(&mut self, hash: KeyHash) -> impl Iterator<Item = &mut Entry> {
        self.partitions[hash.partition()].all_with_mut(hash.item())
    }

    /// Iterates over all entries in the order of their hashes, from `start` on.
    pub(super) fn walk_from(&self, start: KeyHash) -> impl Iterator<Item = (KeyHash, &Entry)> {
        let partitions = self.partitions.iter().enumerate().skip(start.partition());
        // Skip empty partitions: a small table has entries in few of them.
        let held = partitions.filter(|(_, partition)| partition.len() > 0);
        held.flat_map(move |(number, partition)| {
            let first = if number == start.partition() { start.item() } else { 0 };
            partition.walk_from(first).map(move |(item, entry)| (KeyHash::join(number, item), entry))
        })
    }

    /// All entries.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.walk_from(KeyHash::default()).map(|(_, entry)| entry)
    }

    /// Returns the entry at index `number` in the order of hashes, and its hash.
    pub(super) fn nth(&self, mut number: usize) -> Option<(KeyHash, &Entry)> {
        for (partition, held) in self.partitions.iter().enumerate() {
            if number < held.len() {
                let (item, entry) = held.walk_from(0).nth(number)?;
                return Some((KeyHash::join(partition, item), entry));
            }
            number -= held.len();
        }
        None
    }
}
