//! The items of collections in entries.

use super::NO_DEADLINE;
use super::collections::{COUNT_BYTES, Collection, Field, Order, has_deadlines, piece_of};
use super::entry::Entry;
use super::kind::Kind;
use super::tree::Items;
use crate::UnixMs;
use crate::command::Size;

impl Entry {
    /// The items of the collection that the entry holds.
    pub(super) fn items(&self) -> Items<'_> {
        match self.collection() {
            Some(collection) => collection.items(),
            None => Items::Piece(piece_of(self.value())),
        }
    }

    /// The order of the fields of the hash that the entry holds.
    pub(super) fn order(&self) -> Order {
        self.collection().map_or(Order::Added, Collection::order)
    }

    /// The fields of the hash that the entry holds, expired or not.
    pub(super) fn fields(&self) -> impl Iterator<Item = Field<'_>> {
        let order = self.order();
        self.items().iter_from(0).map(move |item| order.field(item))
    }

    /// The first deadline of a field, if the entry holds a hash.
    #[inline]
    pub(super) fn first_due(&self) -> UnixMs {
        if self.is_bytes() || self.kind() != Kind::Hash { NO_DEADLINE } else { self.first_due_of_hash() }
    }

    fn first_due_of_hash(&self) -> UnixMs {
        match self.collection() {
            Some(collection) => collection.first_due(),
            None if has_deadlines(self.value()) => {
                let deadlines = self.fields().map(|field| field.deadline);
                deadlines.min().unwrap_or(NO_DEADLINE)
            }
            None => NO_DEADLINE,
        }
    }

    /// Whether fields of the hash that the entry holds have deadlines.
    pub(super) fn has_deadlines(&self) -> bool {
        match self.collection() {
            Some(collection) => collection.due().len() > 0,
            None => has_deadlines(self.value()),
        }
    }

    /// Bytes of the value, or of the reference to it, the same on every replica.
    pub(super) fn content_bytes(&self) -> usize {
        match self.collection() {
            Some(collection) => COUNT_BYTES + collection.content_bytes(),
            None if self.is_collection() => COUNT_BYTES + piece_of(self.value()).bytes_with_lengths(),
            None => self.held_bytes(),
        }
    }

    /// So many of its items, with their share of the bytes.
    pub(super) fn share(&self, items: usize) -> Size {
        let (items, all) = (items as u64, self.items().len().max(1) as u64);
        Size { items, bytes: (self.content_bytes() as u64).saturating_mul(items) / all }
    }
}

/// A number that depends only on a collection's content, whatever its form.
pub(super) fn digest(entry: &Entry, hash: impl Fn(&[u8]) -> u64) -> u64 {
    entry.items().iter_from(0).fold(hash(entry.key()), |sum, item| {
        let mut pair = [0; 16];
        pair[..8].copy_from_slice(&sum.to_le_bytes());
        pair[8..].copy_from_slice(&hash(item).to_le_bytes());
        hash(&pair)
    })
}
