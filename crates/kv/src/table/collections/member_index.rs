//! The index of a large sorted set: a second tree, in which its members are found.

use crate::table::name_hash::{HASH_BYTES, hash_of};
use crate::table::order::{self, KEY_BYTES, Key};
use crate::table::tree::{Items, Tree};

/// An item of the index: a member's hash and name, by which it is found, then the key of its item. Without `key`, the
/// beginning by which to search.
pub(in crate::table) fn index_item(name: &[u8], key: Option<Key>) -> Vec<u8> {
    let mut item = Vec::with_capacity(HASH_BYTES + name.len() + KEY_BYTES);
    item.extend_from_slice(&hash_of(name));
    item.extend_from_slice(name);
    item.extend_from_slice(key.as_ref().map_or(&[], |key| &key[..]));
    item
}

/// The key and the name in an item of the index.
pub(super) fn indexed_parts(held: &[u8]) -> (Key, &[u8]) {
    let parts = held.get(HASH_BYTES..).and_then(|behind| behind.split_last_chunk());
    parts.map_or((Key::default(), held), |(name, key)| (*key, name))
}

/// The score of a member of a sorted set. Without an index there are few items, and all are searched.
pub(in crate::table) fn find_key(items: Items<'_>, names: Option<&Tree>, name: &[u8]) -> Option<Key> {
    let Some(index) = names else {
        let mut all = items.iter_from(0).map(order::scored_parts);
        return all.find(|(_, held)| *held == name).map(|(key, _)| key);
    };
    find_name(index, name).map(|(_, key)| key)
}

/// The rank of a name in the index, and the key of its item.
pub(super) fn find_name(index: &Tree, name: &[u8]) -> Option<(usize, Key)> {
    let wanted = index_item(name, None);
    let (from, items) = index.items().iter_from_key(&wanted);
    // Only names with the same hash that begin with this name can come in between.
    let mut candidates = (from..).zip(items).take_while(|(_, item)| item.starts_with(&wanted));
    let (rank, item) = candidates.find(|(_, item)| item.len() == wanted.len() + KEY_BYTES)?;
    Some((rank, *item.last_chunk()?))
}

/// Adds an item to the index of a sorted set; returns false if its member is already present.
pub(super) fn index_new(index: &mut Tree, item: &[u8]) -> bool {
    let (key, name) = order::scored_parts(item);
    if find_name(index, name).is_some() {
        return false;
    }
    let held = index_item(name, Some(key));
    index.insert(index.items().seek(&held), &held);
    true
}
