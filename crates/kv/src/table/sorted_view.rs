//! Read-only views of sorted sets, and of sets, for commands on sorted sets.

use super::collections::{Collection, find_key};
use super::entry::Entry;
use super::kind::Kind;
use super::members::{self, Member};
use super::order::{Key, key_of, scored_parts};
use super::tree::{Items, Tree};

/// A read-only view of a sorted set, or of a set as one in which all scores are 1.
#[derive(Clone, Copy)]
pub(super) struct Sorted<'a> {
    pub(super) items: Items<'a>,
    /// The index of a large sorted set: hash, member and score of each.
    pub(super) members: Option<&'a Tree>,
    pub(super) is_set: bool,
    pub(super) collection: Option<&'a Collection>,
}

impl<'a> Sorted<'a> {
    pub(super) const EMPTY: Sorted<'static> =
        Sorted { items: Items::EMPTY, members: None, is_set: false, collection: None };

    pub(super) fn of(entry: &'a Entry) -> Sorted<'a> {
        let collection = entry.collection();
        let members = collection.and_then(Collection::names);
        Sorted { items: entry.items(), members, is_set: entry.kind() == Kind::Set, collection }
    }

    /// The sorted set, or set, that a collection is.
    pub(super) fn of_collection(collection: &'a Collection) -> Sorted<'a> {
        let (items, members) = (collection.items(), collection.names());
        Sorted { items, members, is_set: collection.kind() == Kind::Set, collection: Some(collection) }
    }

    pub(super) fn len(self) -> usize {
        self.items.len()
    }

    pub(super) fn key(self, member: &[u8]) -> Option<Key> {
        if self.is_set {
            let is_there = self.items.contains(members::item_of(member, &mut Vec::new()));
            return is_there.then(|| key_of(1.0));
        }
        find_key(self.items, self.members, member)
    }

    /// All members with their scores, in order; members of a set are in the order of their hashes.
    pub(super) fn iter(self) -> impl Iterator<Item = (Key, Member<'a>)> {
        self.iter_from(0)
    }

    /// The same, from a rank on.
    pub(super) fn iter_from(self, rank: usize) -> impl Iterator<Item = (Key, Member<'a>)> {
        let of_sorted = |item: &'a [u8]| {
            let (key, member) = scored_parts(item);
            (key, Member::Text(member))
        };
        let is_set = self.is_set;
        let all = self.items.iter_from(rank);
        all.map(move |item| if is_set { (key_of(1.0), members::member_of(item)) } else { of_sorted(item) })
    }
}
