//! Lists, sets, sorted sets and hashes in memory, small and large.
//!
//! Each is a sequence of items, which are byte strings:
//!
//! ```text
//! list:       element
//! set:        a member, in ascending order: see [`super::members`]
//! sorted set: score, in its short form | member    in ascending order
//! stream:     a head, groups and their consumers, and entries, in ascending order: see [`super::stream_items`]
//! hash:       its fields, by when they were added or by their hashes: see [`fields`]
//! ```
//!
//! A **small** collection is one piece of memory, the value of its entry: the number of items (u16, with two flags in its
//! upper bits), then a piece (see [`super::tree::piece`]), without the lengths if all items have the same length. A change
//! copies the piece, which takes no longer than a search in it. A **large** collection is a [`Tree`]. A large sorted set
//! also has an index, a second tree in which its members are found: hash u32 | member | score. A hash has a second tree for
//! the deadlines of its fields: deadline | name.
//!
//! Whether a collection is small or large depends on its history, and is not a part of its content: nothing that a client
//! or a digest sees depends on it. A hash is the exception: in a small one fields are in the order in which they were
//! added, in a large one in that of their hashes. So the form of a hash is replicated: it follows only from its previous
//! form and content and from the command, never from where nodes begin, and snapshots keep it. `docs/design/collections.md`
//! has the reasons.

mod fields;
mod member_index;
mod names;
mod ordering;

use super::members;
use super::members::Head;
use super::order;
use super::order::{KEY_BYTES, Key, short};
use super::stream_items::checking;
use super::tree::piece::{Piece, put_item, take_item};
use super::tree::{Descent, Discarded, Items, LEAF_BYTES, LEAF_ITEMS, Nodes, Shape, Tree};
use crate::codec::{Malformed, Reader};
use crate::command::List;
use crate::limits::{VALUE_BYTES_MAX_CEILING, is_worth_a_walk};
use crate::table::WARMED_KEYS_MAX;
use crate::table::kind::Kind;
use crate::table::name_hash::{HASH_BYTES, hash_of};
use arrayvec::ArrayVec;
pub(super) use fields::find_field;
pub(super) use fields::{Field, Order};
use fields::{HASH_LEAF_FACTOR, HASH_SMALL_BYTES, HASH_SMALL_FIELDS};
use member_index::index_new;
pub(super) use member_index::{find_key, index_item};
use std::collections::BTreeSet;

pub(super) const COUNT_BYTES: usize = 2;

/// The most bytes of an item in front of its name.
const ITEM_HEAD_BYTES_MAX: usize = 32;

const NO_ITEMS: Malformed = Malformed("a collection that is none");
const TWICE: Malformed = Malformed("a member or a field that is there twice");

/// The bit of a small collection's count that is set if some of its items have deadlines.
const HAS_DEADLINES: u16 = 1 << 15;

/// The bit of a small collection's count that is set if its items have no lengths in front, since all have the same length.
const IS_BARE: u16 = 1 << 14;

const MARKS: u16 = HAS_DEADLINES | IS_BARE;

/// How many times the length of a leaf a small collection of another kind may have.
const SMALL_LEAF_FACTOR: u32 = 2;

/// The items of a collection.
#[derive(Clone, Debug)]
pub(super) struct Collection {
    kind: Kind,
    items: Tree,
    /// The order of a hash's items.
    order: Order,
    /// The index of a large sorted set, in which its members are found.
    names: Option<Tree>,
    /// The deadlines of fields, each with the field's name.
    due: Tree,
    /// Whether it was changed since it was loaded.
    pub(super) is_changed: bool,
}

impl Collection {
    pub(super) fn new(kind: Kind) -> Collection {
        let (items, due) = (Tree::shaped(shape_of(kind)), Tree::new(true));
        Collection { kind, items, order: Order::Added, names: None, due, is_changed: false }
    }

    /// Replaces the contents by those of a small collection's entry, or by none.
    pub(super) fn load(&mut self, kind: Kind, value: &[u8]) {
        self.kind = kind;
        self.items.load(piece_of(value), shape_of(kind));
        self.order = Order::Added;
        self.names = None;
        self.is_changed = false;
        self.due = Tree::new(true);
        if has_deadlines(value) {
            piece_of(value).iter().for_each(|item| self.note_due(&Order::Added.field(item)));
        }
    }

    /// A sorted set of these members, which must be in order.
    pub(super) fn of_sorted(members: impl Iterator<Item = (Key, impl AsRef<[u8]>)>) -> Collection {
        let mut sorted = Collection::new(Kind::Sorted);
        let mut item = Vec::new();
        for (key, member) in members {
            item.clear();
            item.extend_from_slice(&short(key));
            item.extend_from_slice(member.as_ref());
            sorted.insert(sorted.len(), &item);
        }
        sorted.index_if_large();
        sorted
    }

    /// Whether items can be found by the names of members or fields, with [`Collection::descent`].
    pub(super) fn has_names(&self) -> bool {
        self.kind == Kind::Set
            || self.kind == Kind::Hash && self.order == Order::Hashed
            || self.names.is_some()
    }

    /// A search for the item of a member or a field, or for its entry in the index of members. `None` for a list or a
    /// stream, or without a name.
    pub(super) fn descent(&self, name: &[u8]) -> Option<Descent<'_>> {
        if name.is_empty() {
            return None;
        }
        let (tree, head) = match self.kind {
            // Search for where the hash begins: what follows the hash is not the name.
            Kind::Hash if self.order == Order::Hashed => (&self.items, Head::Whole(hash_of(name))),
            Kind::Set => (&self.items, Head::of(name)),
            _ => (self.names.as_ref()?, Head::Hash(hash_of(name))),
        };
        let mut start = [0; 8];
        start[..head.bytes().len()].copy_from_slice(head.bytes());
        if let Head::Hash(_) = head {
            let more = name.len().min(8 - HASH_BYTES);
            start[HASH_BYTES..HASH_BYTES + more].copy_from_slice(&name[..more]);
        }
        Some(Descent::new(tree, &start))
    }

    /// A search for the item whose index entry another search has found.
    pub(super) fn descent_behind(&self, index: Descent<'_>) -> Option<Descent<'_>> {
        self.names.as_ref()?;
        Some(Descent::new(&self.items, &short(*index.item()?.last_chunk::<KEY_BYTES>()?)))
    }

    /// Goes over the names that a command searches for. Of a long list it touches what sixteen searches need before the first
    /// of them: each search waits for memory several times, and so the waits overlap.
    pub(super) fn touching<'k>(
        collection: Option<&Collection>,
        names: List<'k>,
    ) -> impl Iterator<Item = &'k [u8]> {
        let collection = collection.filter(|_| names.len() >= WARMED_KEYS_MAX);
        let (mut names, mut left) = (names.iter(), 0);
        std::iter::from_fn(move || {
            if left == 0
                && let Some(collection) = collection
            {
                let next = names.clone().take(WARMED_KEYS_MAX);
                let mut descents: ArrayVec<_, WARMED_KEYS_MAX> =
                    next.filter_map(|name| collection.descent(name)).collect();
                Descent::all(&mut descents);
                left = WARMED_KEYS_MAX;
            }
            left = left.saturating_sub(1);
            names.next()
        })
    }

    /// Gives a set or a sorted set that has just become large the short leaves of large ones.
    pub(super) fn take_usual_shape(&mut self) {
        if !matches!(self.kind, Kind::Set | Kind::Sorted) {
            return;
        }
        let mut tree = Tree::new(true);
        self.items().iter_from(0).for_each(|item| tree.insert(tree.len(), item));
        self.items = tree;
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn items(&self) -> Items<'_> {
        self.items.items()
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn insert(&mut self, rank: usize, item: &[u8]) {
        self.items.insert(rank, item);
        self.is_changed = true;
    }

    /// Replaces the item of a rank.
    pub(super) fn replace(&mut self, rank: usize, item: &[u8], discarded: &mut Discarded) {
        self.items.replace(rank, item, discarded);
        self.is_changed = true;
    }

    /// Adds an item at its place in the order. Returns false, and does nothing, if the item is present.
    pub(super) fn insert_in_order(&mut self, item: &[u8]) -> bool {
        let is_added = self.items.insert_in_order(item);
        self.is_changed |= is_added;
        is_added
    }

    /// Removes an item; returns false if it is not present.
    pub(super) fn remove_in_order(&mut self, item: &[u8], discarded: &mut Discarded) -> bool {
        let (rank, is_there) = self.items().find(item);
        if is_there {
            self.remove(rank, rank + 1, discarded);
        }
        is_there
    }

    /// Removes items by their ranks. Indexes are not updated unless no item is left: see [`Collection::remove_named`] and
    /// [`Collection::remove_field`].
    pub(super) fn remove(&mut self, from: usize, to: usize, discarded: &mut Discarded) {
        self.items.remove(from, to, discarded);
        self.is_changed |= from < to;
        if self.items.len() == 0 {
            self.names.take().into_iter().for_each(|index| discarded.take_tree(index));
            discarded.take_tree(std::mem::replace(&mut self.due, Tree::new(true)));
        }
    }

    /// Removes the items of these ranks, which ascend, from a collection without indexes.
    pub(super) fn remove_each(&mut self, ranks: &[usize], discarded: &mut Discarded) {
        assert_eq!(self.kind, Kind::Set, "a set has no index");
        if is_worth_a_walk(ranks.len(), self.len()) {
            let (mut rank, mut removed) = (0.., ranks.iter().peekable());
            self.items.retain(|_| {
                let rank = rank.next();
                removed.next_if(|removed| Some(**removed) == rank).is_none()
            });
            self.is_changed |= !ranks.is_empty();
        } else {
            ranks.iter().rev().for_each(|rank| self.remove(*rank, rank + 1, discarded));
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let names = self.names.as_ref().map_or(0, Tree::memory_bytes);
        self.items.memory_bytes() + names + self.due.memory_bytes()
    }

    /// See [`Tree::take_shared`].
    #[inline]
    pub(super) fn take_shared(&mut self) -> isize {
        let names = self.names.as_mut().map_or(0, Tree::take_shared);
        self.items.take_shared() + names + self.due.take_shared()
    }

    /// Adds all nodes of its trees.
    pub(super) fn visit_nodes(&self, nodes: &mut Nodes) {
        [Some(&self.items), self.names.as_ref(), Some(&self.due)]
            .into_iter()
            .flatten()
            .for_each(|it| nodes.add(it));
    }

    /// Bytes of the items, independent of the collection's history.
    pub(super) fn content_bytes(&self) -> usize {
        self.items.content_bytes()
    }

    pub(super) fn discard(self, discarded: &mut Discarded) {
        discarded.take_tree(self.items);
        discarded.take_tree(self.due);
        self.names.into_iter().for_each(|index| discarded.take_tree(index));
    }

    /// The items as one piece, if they fit into a small collection, or into 1/`part` of one. A hash is small by its order
    /// instead.
    pub(super) fn small(&self, part: usize) -> Option<Piece<'_>> {
        if self.kind == Kind::Hash {
            let piece = self.items.only_piece();
            assert!(self.order == Order::Hashed || piece.is_some(), "a small hash is one piece");
            return piece.filter(|_| self.order == Order::Added);
        }
        let (bytes, items) =
            (LEAF_BYTES * SMALL_LEAF_FACTOR as usize / part, LEAF_ITEMS * SMALL_LEAF_FACTOR as usize / part);
        let fits = |piece: &Piece<'_>| piece.bytes().len() <= bytes && piece.len() <= items;
        self.items.only_piece().filter(fits)
    }

    /// The length that all items of a piece have, if they are stored without it.
    fn bare_length(&self, piece: Piece<'_>) -> Option<usize> {
        let may_be_bare = matches!(self.kind, Kind::List | Kind::Set | Kind::Sorted);
        piece.length_of_all().filter(|length| may_be_bare && *length > 0)
    }

    /// The value of a small collection's entry: its length, and a function that writes it.
    pub(super) fn value<'p>(&self, piece: Piece<'p>) -> (usize, impl FnOnce(&mut [u8]) + use<'p>) {
        let bare_length = self.bare_length(piece);
        let mut head = piece.len() as u16;
        assert_eq!(head & MARKS, 0, "a small collection has few items");
        head |= if self.due.len() > 0 { HAS_DEADLINES } else { 0 };
        head |= if bare_length.is_some() { IS_BARE } else { 0 };
        let length = COUNT_BYTES + bare_length.map_or(piece.bytes().len(), |each| each * piece.len());
        let write = move |out: &mut [u8]| {
            out[..COUNT_BYTES].copy_from_slice(&head.to_le_bytes());
            let out = &mut out[COUNT_BYTES..length];
            match bare_length {
                None => out.copy_from_slice(piece.bytes()),
                Some(each) => {
                    let rooms = out.chunks_exact_mut(each);
                    rooms.zip(piece.iter()).for_each(|(room, item)| room.copy_from_slice(item));
                }
            }
        };
        (length, write)
    }

    pub(super) fn written(&self, piece: Piece<'_>) -> Vec<u8> {
        let (length, write) = self.value(piece);
        let mut value = vec![0; length];
        write(&mut value);
        value
    }

    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        self.items.check_invariants();
        self.due.check_invariants();
        if self.kind == Kind::Hash {
            self.check_fields();
        }
        self.check_names();
    }
}

/// Whether items ascend by their bytes.
fn is_ordered(kind: Kind, order: Order) -> bool {
    !(kind == Kind::List || kind == Kind::Hash && order == Order::Added)
}

fn shape_of(kind: Kind) -> Shape {
    // Lists and streams grow at an end, where leaves are full, and their items may be short, so the overhead of nodes
    // matters.
    let leaf_factor = match kind {
        Kind::Stream => 8,
        Kind::List => 4,
        // For small hashes; large ones are trees of the usual shape.
        Kind::Hash => HASH_LEAF_FACTOR,
        _ => SMALL_LEAF_FACTOR,
    };
    Shape { is_ordered: is_ordered(kind, Order::Added), leaf_factor }
}

/// The items of a small collection: the value of its entry, which is trusted.
pub(super) fn piece_of(value: &[u8]) -> Piece<'_> {
    let Some((head, bytes)) = value.split_first_chunk::<COUNT_BYTES>() else { return Piece::EMPTY };
    let head = u16::from_le_bytes(*head);
    let count = usize::from(head & !MARKS);
    if head & IS_BARE == 0 { Piece::new(bytes, count) } else { Piece::bare(bytes, count) }
}

pub(super) fn has_deadlines(value: &[u8]) -> bool {
    let count = value.first_chunk::<COUNT_BYTES>();
    count.is_some_and(|count| u16::from_le_bytes(*count) & HAS_DEADLINES != 0)
}

/// Checks that an untrusted item may follow another one.
fn check_item((kind, order): (Kind, Order), before: Option<&[u8]>, item: &[u8]) -> Result<(), Malformed> {
    const NOT_AN_ITEM: Malformed = Malformed("an item of a collection is not what it says");
    let is_valid = match kind {
        Kind::Sorted => order::is_scored_member(item),
        Kind::Hash => order.check(item).is_ok(),
        Kind::Set => members::is_item(item),
        _ => true,
    };
    // An entry of a stream has several values, and an item of a hash has a name and a value.
    let values = match kind {
        Kind::Stream => 8,
        Kind::Hash => 2,
        _ => 1,
    };
    let bytes_max = VALUE_BYTES_MAX_CEILING * values + ITEM_HEAD_BYTES_MAX;
    let follows = !is_ordered(kind, order) || before.is_none_or(|before| before < item);
    if is_valid && follows && item.len() <= bytes_max { Ok(()) } else { Err(NOT_AN_ITEM) }
}

/// Checks an untrusted value of a small collection's entry.
///
/// # Errors
/// [`Malformed`] unless it holds a collection of this kind with at least one item.
pub(super) fn check_small(kind: Kind, value: &[u8]) -> Result<(), Malformed> {
    let mut reader = Reader::new(value);
    let head = reader.u16()?;
    let count = head & !MARKS;
    let bare_length = match usize::from(count) {
        _ if head & IS_BARE == 0 => None,
        0 => return Err(NO_ITEMS),
        count => Some((value.len() - COUNT_BYTES) / count),
    };
    if bare_length == Some(0) || bare_length.is_some() && matches!(kind, Kind::Hash | Kind::Stream) {
        return Err(Malformed("items without lengths where each must have one"));
    }
    if kind == Kind::Stream {
        let mut stream = Collection::new(kind);
        take_items(&mut stream, &mut reader)?;
        let is_whole = stream.len() == usize::from(count);
        return if is_whole { check_whole(&stream) } else { Err(Malformed("a stream that is none")) };
    }
    let (mut before, mut names, mut expires) = (None, BTreeSet::new(), false);
    for _ in 0..count {
        let item = match bare_length {
            None => take_item(&mut reader)?,
            Some(length) => reader.take(length)?,
        };
        check_item((kind, Order::Added), before, item)?;
        let name = match kind {
            Kind::Sorted => Some(order::scored_parts(item).1),
            Kind::Hash => {
                let field = Order::Added.field(item);
                expires |= field.has_deadline();
                Some(field.name)
            }
            _ => None,
        };
        if name.is_some_and(|name| !names.insert(name)) {
            return Err(TWICE);
        }
        before = Some(item);
    }
    if kind == Kind::Hash
        && (usize::from(count) > HASH_SMALL_FIELDS || value.len() > COUNT_BYTES + HASH_SMALL_BYTES)
    {
        return Err(Malformed("a small hash that is large"));
    }
    if count > 0 && reader.is_empty() && expires == has_deadlines(value) { Ok(()) } else { Err(NO_ITEMS) }
}

/// Appends items from a rank on, at least one, until `out` has `enough` bytes. Returns the rank of the next item.
pub(super) fn put_items(items: Items<'_>, rank: usize, enough: usize, out: &mut Vec<u8>) -> usize {
    let mut next = rank;
    for item in items.iter_from(rank) {
        put_item(item, out);
        next += 1;
        if out.len() >= enough {
            break;
        }
    }
    next
}

/// Adds items that were written by [`put_items`] to the end of a collection.
///
/// # Errors
/// [`Malformed`] unless the bytes are items that may follow the present ones.
pub(super) fn take_items(collection: &mut Collection, reader: &mut Reader<'_>) -> Result<(), Malformed> {
    while !reader.is_empty() {
        let (item, count) = (take_item(reader)?, collection.len());
        if collection.kind == Kind::Hash && count == 0 {
            (collection.items, collection.order) = (Tree::new(true), Order::Hashed);
        }
        check_item(
            (collection.kind, collection.order),
            count.checked_sub(1).and_then(|last| collection.items().get(last)),
            item,
        )?;
        if collection.kind == Kind::Stream {
            checking::check_item(collection.items(), item)?;
        }
        collection.insert(count, item);
        match collection.kind {
            Kind::Sorted => {
                let index = collection.names.get_or_insert_with(|| Tree::new(true));
                if !index_new(index, item) {
                    return Err(TWICE);
                }
            }
            Kind::Hash => {
                let field = collection.order.field(item);
                let same_hash = |before: &&[u8]| before[..HASH_BYTES] == item[..HASH_BYTES];
                let is_same = |before| collection.order.field(before).name == field.name;
                if collection.items().iter_back(count).take_while(same_hash).any(is_same) {
                    return Err(TWICE);
                }
                collection.note_due(&field);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks a collection of which all items have been taken.
///
/// # Errors
/// [`Malformed`] unless it is a collection that can exist.
pub(super) fn check_whole(collection: &Collection) -> Result<(), Malformed> {
    match collection.kind {
        Kind::Stream => checking::check_whole(collection.items()),
        _ if collection.len() == 0 => Err(Malformed("a collection without items")),
        _ => Ok(()),
    }
}
