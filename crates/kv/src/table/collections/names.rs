//! The members of a sorted set: among its items, and in the index of a large one.

use super::Collection;
#[cfg(test)]
use super::member_index::index_new;
use super::member_index::{find_key, find_name, index_item, indexed_parts};
use crate::limits::is_worth_a_walk;
use crate::table::name_hash::HASH_BYTES;
use crate::table::order::{self, KEY_BYTES, Key};
use crate::table::tree::{Discarded, Tree};
use std::ops::Range;

impl Collection {
    pub(in crate::table) fn names(&self) -> Option<&Tree> {
        self.names.as_ref()
    }

    /// The score of a member of a sorted set.
    pub(in crate::table) fn key_of_name(&self, name: &[u8]) -> Option<Key> {
        find_key(self.items(), self.names(), name)
    }

    /// Adds a new member of a sorted set at its place in the order, and to the index.
    pub(in crate::table) fn add_named(&mut self, item: &[u8]) {
        let added = self.insert_in_order(item);
        assert!(added, "a name is there once");
        if let Some(index) = &mut self.names {
            let (key, name) = order::scored_parts(item);
            let held = index_item(name, Some(key));
            index.insert(index.items().seek(&held), &held);
        }
        self.index_if_large();
    }

    /// Gives the item of this rank another key, and moves it to its new place.
    pub(in crate::table) fn change_key(&mut self, rank: usize, item: &[u8], discarded: &mut Discarded) {
        self.remove(rank, rank + 1, discarded);
        self.insert_in_order(item);
        let Some(index) = &mut self.names else { return };
        let (key, name) = order::scored_parts(item);
        let Some((rank, _)) = find_name(index, name) else { unreachable!("each name is in the index") };
        let held = index_item(name, Some(key));
        // In the index the key hardly ever affects a name's place: only beside another name with the same hash that begins
        // with this name.
        let hash = &held[..HASH_BYTES];
        let before = rank.checked_sub(1).and_then(|before| index.items().get(before));
        let is_alone = !before.is_some_and(|item| item.starts_with(hash))
            && !index.items().get(rank + 1).is_some_and(|item| item.starts_with(hash));
        if is_alone {
            index.replace(rank, &held, discarded);
        } else {
            index.remove(rank, rank + 1, discarded);
            index.insert(index.items().seek(&held), &held);
        }
    }

    /// Removes the items of these ranks from a sorted set and from the index.
    pub(in crate::table) fn remove_named(&mut self, ranks: Range<usize>, discarded: &mut Discarded) {
        let (items, length) = (self.items.items(), self.items.len());
        let place_of = |rank| items.get(rank).map(order::scored_parts);
        if ranks.len() < length
            && let Some(index) = &mut self.names
            && let (Some(first), Some(last)) = (place_of(ranks.start), place_of(ranks.end.saturating_sub(1)))
        {
            if is_worth_a_walk(ranks.len(), length) {
                index.retain(|held| !(first..=last).contains(&indexed_parts(held)));
            } else {
                for (key, name) in items.iter_from(ranks.start).take(ranks.len()).map(order::scored_parts) {
                    let rank = index.items().seek(&index_item(name, Some(key)));
                    index.remove(rank, rank + 1, discarded);
                }
            }
            assert_eq!(index.len(), length - ranks.len(), "each name is in the index");
        }
        self.remove(ranks.start, ranks.end, discarded);
    }

    /// Builds the index of members if the sorted set is too large to do without.
    pub(super) fn index_if_large(&mut self) {
        if self.names.is_some() || self.small(1).is_some() {
            return;
        }
        // In order: this takes a third of the time.
        let pairs = self.items().iter_from(0).map(order::scored_parts);
        let mut held: Vec<Vec<u8>> = pairs.map(|(key, name)| index_item(name, Some(key))).collect();
        held.sort_unstable();
        let name_of = |item: &[u8]| item.len() - KEY_BYTES;
        let is_twice = |one: &[u8], other: &[u8]| one[..name_of(one)] == other[..name_of(other)];
        assert!(held.windows(2).all(|pair| !is_twice(&pair[0], &pair[1])), "a name is there once");
        let mut index = Tree::new(true);
        held.iter().for_each(|item| index.insert(index.len(), item));
        self.names = Some(index);
    }

    #[cfg(test)]
    pub(super) fn check_names(&self) {
        let Some(index) = &self.names else { return };
        index.check_invariants();
        let mut names = Tree::new(true);
        self.items().iter_from(0).for_each(|item| assert!(index_new(&mut names, item)));
        assert!(names.items().iter_from(0).eq(index.items().iter_from(0)), "each name is in the index");
    }
}
