//! The fields of a hash among the items of its collection: their order and their deadlines.

use super::fields::{Field, FieldShape, HASH_SMALL_BYTES, HASH_SMALL_FIELDS, Order, find_field};
use super::{Collection, shape_of};
use crate::UnixMs;
use crate::table::NO_DEADLINE;
use crate::table::kind::Kind;
use crate::table::name_hash::{HASH_BYTES, hash_of};
use crate::table::tree::{Discarded, Items, Tree};
#[cfg(test)]
use std::collections::BTreeSet;

/// The most bytes of a field's item beside its name and its value.
const FIELD_HEAD_BYTES: usize = 24;

/// The item of a field's deadline.
fn due_item(field: &Field<'_>) -> Vec<u8> {
    [&field.deadline.to_be_bytes(), field.name].concat()
}

impl Collection {
    pub(in crate::table) fn order(&self) -> Order {
        self.order
    }

    /// The deadlines of fields, the earliest first, each with the field's name.
    pub(in crate::table) fn due(&self) -> Items<'_> {
        self.due.items()
    }

    /// The earliest deadline of a field.
    pub(in crate::table) fn first_due(&self) -> UnixMs {
        let first = self.due().get(0).and_then(|item| item.first_chunk());
        first.map_or(NO_DEADLINE, |deadline| u64::from_be_bytes(*deadline))
    }

    pub(super) fn note_due(&mut self, field: &Field<'_>) {
        if field.has_deadline() {
            let due = due_item(field);
            self.due.insert(self.due.items().seek(&due), &due);
        }
    }

    /// Removes the deadline of the field of this rank from `due`, if it has one.
    pub(super) fn forget_due(&mut self, rank: usize, shape: FieldShape, discarded: &mut Discarded) {
        if shape.has_deadline
            && let Some(item) = self.items.items().get(rank)
        {
            let (rank, is_there) = self.due.items().find(&due_item(&self.order.field(item)));
            assert!(is_there, "each deadline is among those that come");
            self.due.remove(rank, rank + 1, discarded);
        }
    }

    /// The rank of a field, whether or not it has expired, and the field.
    #[inline]
    pub(in crate::table) fn find_field(&self, name: &[u8]) -> Option<(usize, Field<'_>)> {
        find_field(self.items(), self.order, name)
    }

    /// Adds a field with a new name: at the end, or at the place of its hash.
    pub(in crate::table) fn add_field(&mut self, field: &Field<'_>) {
        let mut item = Vec::with_capacity(FIELD_HEAD_BYTES + field.name.len() + field.value.len());
        self.order.put(field, &mut item);
        match self.order {
            Order::Added => self.insert(self.len(), &item),
            Order::Hashed => assert!(self.insert_in_order(&item), "a field is there once"),
        }
        self.note_due(field);
        self.order_if_large();
    }

    /// Gives the field of this rank another value or deadline. `before` is its present shape.
    pub(in crate::table) fn replace_field(
        &mut self,
        rank: usize,
        before: FieldShape,
        field: &Field<'_>,
        discarded: &mut Discarded,
    ) {
        self.forget_due(rank, before, discarded);
        let mut item = Vec::with_capacity(FIELD_HEAD_BYTES + field.name.len() + field.value.len());
        self.order.put(field, &mut item);
        if before == field.shape() {
            self.items.overwrite(rank, &item);
            self.is_changed = true;
        } else if self.order == Order::Added || before.has_deadline == field.has_deadline() {
            self.replace(rank, &item, discarded);
        } else {
            self.remove(rank, rank + 1, discarded);
            self.insert_in_order(&item);
        }
        self.note_due(field);
        // The field may have become longer.
        self.order_if_large();
    }

    /// Overwrites the value of a field of a large hash with one of the same length, if the field has no deadline. Goes down
    /// the tree once. Returns false, with nothing done, in all other cases.
    #[inline]
    pub(in crate::table) fn overwrite_value(&mut self, name: &[u8], value: &[u8]) -> bool {
        if self.order == Order::Added {
            return false;
        }
        let after = Field { name, value, deadline: NO_DEADLINE }.shape();
        let is_like_it = |item: &[u8]| {
            let field = Order::Hashed.field(item);
            field.name == name && field.shape() == after
        };
        let Some(found) = self.items.find_in_leaf(&hash_of(name), is_like_it) else { return false };
        self.items.overwrite_end(&found, value);
        self.is_changed = true;
        true
    }

    /// Removes the field of this rank. `shape` is its present shape.
    pub(in crate::table) fn remove_field(
        &mut self,
        rank: usize,
        shape: FieldShape,
        discarded: &mut Discarded,
    ) {
        self.forget_due(rank, shape, discarded);
        self.remove(rank, rank + 1, discarded);
    }

    /// Orders the fields of a hash by their hashes from now on, if it is too large for a linear search.
    pub(super) fn order_if_large(&mut self) {
        let is_small = self.len() <= HASH_SMALL_FIELDS && self.content_bytes() <= HASH_SMALL_BYTES;
        if self.order == Order::Hashed || is_small {
            return;
        }
        let items = self.items().iter_from(0).map(|item| {
            let mut hashed = Vec::with_capacity(item.len() + HASH_BYTES);
            Order::Hashed.put(&Order::Added.field(item), &mut hashed);
            hashed
        });
        let mut items: Vec<Vec<u8>> = items.collect();
        items.sort_unstable();
        let mut tree = Tree::new(true);
        items.iter().for_each(|item| tree.insert(tree.len(), item));
        (self.items, self.order) = (tree, Order::Hashed);
        #[cfg(test)]
        self.check_fields();
    }

    /// Makes a large hash small again, if it fits into half of a small one's limits: so a hash whose size fluctuates keeps
    /// its form. The fields of the small hash are then in the order of their hashes.
    #[inline]
    pub(in crate::table) fn order_if_small(&mut self, discarded: &mut Discarded) {
        let is_small = || self.len() <= HASH_SMALL_FIELDS / 2 && self.content_bytes() <= HASH_SMALL_BYTES / 2;
        if self.order == Order::Hashed && is_small() {
            self.order_as_added(discarded);
        }
    }

    #[cold]
    fn order_as_added(&mut self, discarded: &mut Discarded) {
        let mut tree = Tree::shaped(shape_of(Kind::Hash));
        let mut item = Vec::new();
        for (rank, field) in self.items().iter_from(0).map(|item| Order::Hashed.field(item)).enumerate() {
            item.clear();
            Order::Added.put(&field, &mut item);
            tree.insert(rank, &item);
        }
        discarded.take_tree(std::mem::replace(&mut self.items, tree));
        self.order = Order::Added;
    }

    #[cfg(test)]
    pub(super) fn check_fields(&self) {
        let (mut names, mut rebuilt) = (BTreeSet::new(), Collection::new(self.kind));
        for item in self.items().iter_from(0) {
            let field = self.order.check(item).expect("an item of a hash is a field");
            assert!(names.insert(field.name), "a field is there once");
            rebuilt.note_due(&field);
        }
        assert!(rebuilt.due().iter_from(0).eq(self.due().iter_from(0)), "each deadline is noted");
    }
}
