//! From a key's hash to its slot.
//!
//! The index is many small hash tables, chosen by the hash's upper bits, so that a table that outgrows its
//! memory is moved a part at a time: nobody waits for ten million keys to move. Each item carries 32 bits of
//! the hash, so that moving does not touch the entries, and a key is compared only when those bits agree.

use super::slab::SlotNumber;
use hashbrown::HashTable;
use rapidhash::v3::{RapidSecrets, rapidhash_v3_nano_inline};

/// Number of tables. At ten million keys each holds twenty thousand.
const PARTITIONS: usize = 512;
/// Below this capacity a table is not worth shrinking.
const SHRINK_CAPACITY_MIN: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Item {
    hash: u32,
    slot: SlotNumber,
}

impl Item {
    /// A hash for hashbrown, which takes the position from the lower bits and a tag from the upper ones.
    #[inline]
    fn spread(hash: u32) -> u64 {
        u64::from(hash) << 32 | u64::from(hash)
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

/// Slot numbers by key.
#[derive(Debug)]
pub(super) struct Index {
    secrets: RapidSecrets,
    partitions: Box<[HashTable<Item>]>,
    bytes: usize,
}

impl Index {
    pub(super) fn new(seed: u64) -> Index {
        Index {
            secrets: RapidSecrets::seed(seed),
            partitions: (0..PARTITIONS).map(|_| HashTable::new()).collect(),
            bytes: 0,
        }
    }

    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash(rapidhash_v3_nano_inline::<true, false>(key, &self.secrets))
    }

    /// The slot of the key with this hash for which `is_key` is true.
    #[inline]
    pub(super) fn find(
        &self,
        hash: KeyHash,
        mut is_key: impl FnMut(SlotNumber) -> bool,
    ) -> Option<SlotNumber> {
        let wanted = hash.item_hash();
        let found = self.partitions[hash.partition()].find(Item::spread(wanted), |item| {
            item.hash == wanted && is_key(item.slot)
        });
        found.map(|item| item.slot)
    }

    /// Adds a key that is not there.
    pub(super) fn insert(&mut self, hash: KeyHash, slot: SlotNumber) {
        let partition = &mut self.partitions[hash.partition()];
        let item = Item {
            hash: hash.item_hash(),
            slot,
        };
        let full = partition.len() == partition.capacity();
        let before = if full { partition.allocation_size() } else { 0 };
        partition.insert_unique(Item::spread(item.hash), item, |item| Item::spread(item.hash));
        if full {
            self.bytes = self.bytes + partition.allocation_size() - before;
        }
    }

    /// Takes the key in this slot out.
    pub(super) fn remove(&mut self, hash: KeyHash, slot: SlotNumber) {
        let partition = &mut self.partitions[hash.partition()];
        let Ok(found) = partition.find_entry(Item::spread(hash.item_hash()), |item| item.slot == slot) else {
            unreachable!("every entry is indexed")
        };
        found.remove();
        let capacity = partition.capacity();
        if capacity > SHRINK_CAPACITY_MIN && partition.len() < capacity / 8 {
            let before = partition.allocation_size();
            partition.shrink_to(capacity / 4, |item| Item::spread(item.hash));
            self.bytes = self.bytes + partition.allocation_size() - before;
        }
    }

    pub(super) fn clear(&mut self) {
        self.partitions
            .iter_mut()
            .for_each(|partition| *partition = HashTable::new());
        self.bytes = 0;
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + PARTITIONS * size_of::<HashTable<Item>>()
    }
}
