//! Lists, sets, sorted sets and hashes in memory, small and large.
//!
//! Each is a sequence of items, which are byte strings:
//!
//! ```text
//! list:       element
//! set:        hash of the member u32 | member                 in ascending order
//! sorted set: score, so that its bytes are in order u64 | member    in ascending order
//! stream:     a head, groups and their consumers, and entries, in ascending order: see `streams::items`
//! hash:       number u64 | field and value (see [`super::fields`])  in ascending order
//! ```
//!
//! A **small** collection is one piece of memory, the value of its entry: the number of items (u16), then a piece (see
//! [`super::tree::piece`]). A change copies it, which takes no longer than a search in it. A **large** one is a
//! [`Tree`]; that of a sorted set or a hash has an index beside it, a second tree in which its names are found, which are
//! members or fields: hash u32 | name | score or number. Fields with deadlines stand in a third one: deadline | number.
//!
//! Which of the two a collection is depends on what was done to it, and is not a part of its content: nothing that a
//! client or a digest sees depends on it. `docs/design/collections.md` has the reasons.

use super::entry::{Entry, Kind};
use super::fields::Field;
use super::index::{KeyHash, Place};
use super::strings::WrongKind;
use super::tree::piece::{Piece, put_item, take_item};
use super::tree::{Descent, Discarded, Items, LEAF_BYTES, LEAF_ITEMS, Shape, Tree};
use super::{NO_DEADLINE, Record, Table, sorted, streams};
use crate::UnixMs;
use crate::codec::{Malformed, Reader};
use crate::limits::VALUE_BYTES_MAX_CEILING;
use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};
use std::collections::BTreeSet;
use std::ops::Range;

const COUNT_BYTES: usize = 2;

/// The most bytes of an item in front of its name.
const ITEM_HEAD_BYTES_MAX: usize = 32;

const TWICE: Malformed = Malformed("a member or a field that is there twice");

/// What the items of a sorted set or a hash begin with, so that the order of bytes is theirs: a score, or a number.
pub(super) type Key = [u8; KEY_BYTES];

pub(super) const KEY_BYTES: usize = 8;
pub(super) const HASH_BYTES: usize = 4;

/// The bit of a small collection's count that is set if some of its items have deadlines.
const HAS_DEADLINES: u16 = 1 << 15;

/// What an item of a sorted set or a hash begins with, and the name that it is looked up by.
fn key_and_name(kind: Kind, item: &[u8]) -> (Key, &[u8]) {
    if kind == Kind::Sorted {
        return sorted::parts(item);
    }
    let Field { number, name, .. } = Field::of(item);
    (number, name)
}

fn has_names(kind: Kind) -> bool {
    matches!(kind, Kind::Sorted | Kind::Hash)
}

/// What a name is found by: its hash and its bytes; the key of its item follows.
pub(super) fn index_item(name: &[u8], key: Option<Key>) -> Vec<u8> {
    let mut item = Vec::with_capacity(HASH_BYTES + name.len() + KEY_BYTES);
    item.extend_from_slice(&hash_of(name));
    item.extend_from_slice(name);
    item.extend_from_slice(key.as_ref().map_or(&[], |key| &key[..]));
    item
}

/// The key of the item with a name. Without an index the items are few, and are looked through.
pub(super) fn find_key(kind: Kind, items: Items<'_>, names: Option<&Tree>, name: &[u8]) -> Option<Key> {
    let Some(index) = names else {
        let mut all = items.iter_from(0).map(|item| key_and_name(kind, item));
        return all.find(|(_, held)| *held == name).map(|(key, _)| key);
    };
    find_name(index, name).map(|(_, key)| key)
}

/// The rank of a name in the index, and the key of its item.
fn find_name(index: &Tree, name: &[u8]) -> Option<(usize, Key)> {
    let wanted = index_item(name, None);
    let (from, items) = index.items().iter_from_key(&wanted);
    // Another name can come in between only if it has the same hash and begins with this one.
    let mut candidates = (from..).zip(items).take_while(|(_, item)| item.starts_with(&wanted));
    let (rank, item) = candidates.find(|(_, item)| item.len() == wanted.len() + KEY_BYTES)?;
    Some((rank, *item.last_chunk()?))
}

/// Adds an item to the index of a collection; returns false if its name is there.
fn index_new(kind: Kind, index: &mut Tree, item: &[u8]) -> bool {
    let (key, name) = key_and_name(kind, item);
    if find_name(index, name).is_some() {
        return false;
    }
    let held = index_item(name, Some(key));
    index.insert(index.items().seek(&held), &held);
    true
}

/// The item of a field's deadline.
fn due_item(deadline: UnixMs, number: Key) -> [u8; 16] {
    let mut item = [0; 16];
    item[..8].copy_from_slice(&deadline.to_be_bytes());
    item[8..].copy_from_slice(&number);
    item
}

/// The items of a collection.
#[derive(Clone, Debug)]
pub(super) struct Collection {
    kind: Kind,
    items: Tree,
    /// In which the names of a sorted set or a hash that is large are found.
    names: Option<Tree>,
    /// The deadlines of fields, each with the field's number.
    due: Tree,
    is_changed: bool,
}

impl Collection {
    pub(super) fn new(kind: Kind) -> Collection {
        let (items, due) = (Tree::shaped(shape_of(kind)), Tree::new(true));
        Collection { kind, items, names: None, due, is_changed: false }
    }

    /// Takes the contents of a small collection's entry, or of none.
    fn load(&mut self, kind: Kind, value: &[u8]) {
        self.kind = kind;
        self.items.load(piece_of(value), shape_of(kind));
        self.names = None;
        self.is_changed = false;
        self.due = Tree::new(true);
        if has_deadlines(value) {
            for item in piece_of(value).iter() {
                self.note_due(item);
            }
        }
    }

    /// A sorted set of these members, which are in order.
    pub(super) fn of_sorted<'m>(members: impl Iterator<Item = (Key, &'m [u8])>) -> Collection {
        let mut sorted = Collection::new(Kind::Sorted);
        let mut item = Vec::new();
        for (key, member) in members {
            item.clear();
            item.extend_from_slice(&key);
            item.extend_from_slice(member);
            sorted.insert(sorted.len(), &item);
        }
        sorted.index_if_large();
        sorted
    }

    pub(super) fn names(&self) -> Option<&Tree> {
        self.names.as_ref()
    }

    /// The deadlines of fields, the first one first, each with the field's number.
    pub(super) fn due(&self) -> Items<'_> {
        self.due.items()
    }

    /// A search for the item of a member or a field, or in the index of these. `None` for a list or a stream, or without a
    /// name.
    pub(super) fn descent(&self, name: &[u8]) -> Option<Descent<'_>> {
        if name.is_empty() {
            return None;
        }
        let tree = match self.kind {
            Kind::Set => &self.items,
            _ => self.names.as_ref()?,
        };
        let mut start = [0; 8];
        let more = name.len().min(8 - HASH_BYTES);
        start[..HASH_BYTES].copy_from_slice(&hash_of(name));
        start[HASH_BYTES..HASH_BYTES + more].copy_from_slice(&name[..more]);
        Some(Descent::new(tree, &start))
    }

    /// A search for the item that another one found in the index.
    pub(super) fn descent_behind(&self, index: Descent<'_>) -> Option<Descent<'_>> {
        self.names.as_ref()?;
        Some(Descent::new(&self.items, index.item()?.last_chunk::<KEY_BYTES>()?))
    }

    /// The first deadline of a field.
    fn first_due(&self) -> UnixMs {
        let first = self.due().get(0).and_then(|item| item.first_chunk());
        first.map_or(NO_DEADLINE, |deadline| u64::from_be_bytes(*deadline))
    }

    fn note_due(&mut self, item: &[u8]) {
        if self.kind == Kind::Hash
            && let Field { number, deadline, .. } = Field::of(item)
            && deadline != NO_DEADLINE
        {
            let due = due_item(deadline, number);
            self.due.insert(self.due.items().seek(&due), &due);
        }
    }

    fn forget_due(&mut self, item: &[u8], discarded: &mut Discarded) {
        if self.kind == Kind::Hash
            && let Field { number, deadline, .. } = Field::of(item)
            && deadline != NO_DEADLINE
        {
            let (rank, is_there) = self.due.items().find(&due_item(deadline, number));
            assert!(is_there, "each deadline is among those that come");
            self.due.remove(rank, rank + 1, discarded);
        }
    }

    /// The key of the item with a name.
    pub(super) fn key_of_name(&self, name: &[u8]) -> Option<Key> {
        find_key(self.kind, self.items(), self.names(), name)
    }

    /// Adds an item with a new name where the order demands, to the indexes too.
    pub(super) fn add_named(&mut self, item: &[u8]) {
        let added = self.insert_in_order(item);
        assert!(added, "a name is there once");
        if let Some(index) = &mut self.names {
            let (key, name) = key_and_name(self.kind, item);
            let held = index_item(name, Some(key));
            index.insert(index.items().seek(&held), &held);
        }
        self.note_due(item);
        self.index_if_large();
    }

    /// Gives the item of this rank another key, and its place.
    pub(super) fn change_key(&mut self, rank: usize, item: &[u8], discarded: &mut Discarded) {
        self.remove(rank, rank + 1, discarded);
        self.insert_in_order(item);
        let Some(index) = &mut self.names else { return };
        let (key, name) = key_and_name(self.kind, item);
        let Some((rank, _)) = find_name(index, name) else { unreachable!("each name is in the index") };
        let held = index_item(name, Some(key));
        // Where a name stands in the index, its key hardly ever decides: only beside another name with the same hash that
        // begins as this one does.
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

    /// Replaces the item of this rank by another one with the same key and name.
    pub(super) fn replace_named(&mut self, rank: usize, item: &[u8], discarded: &mut Discarded) {
        if self.due.len() > 0
            && let Some(before) = self.items().get(rank).map(<[u8]>::to_vec)
        {
            self.forget_due(&before, discarded);
        }
        self.replace(rank, item, discarded);
        self.note_due(item);
        // It may be longer.
        self.index_if_large();
    }

    /// Removes the items of these ranks, from the indexes too.
    pub(super) fn remove_named(&mut self, ranks: Range<usize>, discarded: &mut Discarded) {
        let has_indexes = self.names.is_some() || self.due.len() > 0;
        if ranks.len() < self.len() && has_indexes {
            let gone: Vec<Vec<u8>> =
                self.items().iter_from(ranks.start).take(ranks.len()).map(<[u8]>::to_vec).collect();
            for item in &gone {
                self.forget_due(item, discarded);
                if let Some(index) = &mut self.names {
                    let (key, name) = key_and_name(self.kind, item);
                    let rank = index.items().seek(&index_item(name, Some(key)));
                    index.remove(rank, rank + 1, discarded);
                }
            }
        }
        self.remove(ranks.start, ranks.end, discarded);
    }

    /// Begins the index of names, if there are any and the collection is too large to do without.
    fn index_if_large(&mut self) {
        if !has_names(self.kind) || self.names.is_some() || self.small(1).is_some() {
            return;
        }
        // In order, which takes a third of the time.
        let pairs = self.items().iter_from(0).map(|item| key_and_name(self.kind, item));
        let mut held: Vec<Vec<u8>> = pairs.map(|(key, name)| index_item(name, Some(key))).collect();
        held.sort_unstable();
        let name_of = |item: &[u8]| item.len() - KEY_BYTES;
        let is_twice = |one: &[u8], other: &[u8]| one[..name_of(one)] == other[..name_of(other)];
        assert!(held.windows(2).all(|pair| !is_twice(&pair[0], &pair[1])), "a name is there once");
        let mut index = Tree::new(true);
        held.iter().for_each(|item| index.insert(index.len(), item));
        self.names = Some(index);
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

    /// Adds an item where the order demands; returns false, with nothing done, if it is there.
    pub(super) fn insert_in_order(&mut self, item: &[u8]) -> bool {
        let (rank, is_there) = self.items().find(item);
        if !is_there {
            self.insert(rank, item);
        }
        !is_there
    }

    /// Removes an item; returns false if it is not there.
    pub(super) fn remove_in_order(&mut self, item: &[u8], discarded: &mut Discarded) -> bool {
        let (rank, is_there) = self.items().find(item);
        if is_there {
            self.remove(rank, rank + 1, discarded);
        }
        is_there
    }

    /// Removes items by their ranks, from the items alone unless nothing is left: see [`Collection::remove_named`].
    pub(super) fn remove(&mut self, from: usize, to: usize, discarded: &mut Discarded) {
        self.items.remove(from, to, discarded);
        self.is_changed |= from < to;
        if self.items.len() == 0 {
            self.names.take().into_iter().for_each(|index| discarded.take_tree(index));
            discarded.take_tree(std::mem::replace(&mut self.due, Tree::new(true)));
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let names = self.names.as_ref().map_or(0, Tree::memory_bytes);
        self.items.memory_bytes() + names + self.due.memory_bytes()
    }

    /// Bytes of the items, which do not depend on what the collection went through.
    fn content_bytes(&self) -> usize {
        self.items.content_bytes()
    }

    pub(super) fn discard(self, discarded: &mut Discarded) {
        discarded.take_tree(self.items);
        discarded.take_tree(self.due);
        self.names.into_iter().for_each(|index| discarded.take_tree(index));
    }

    /// The items, if they fit into a small collection, or fill at most a part of one.
    fn small(&self, part: usize) -> Option<Piece<'_>> {
        let fits =
            |piece: &Piece<'_>| piece.bytes().len() <= LEAF_BYTES / part && piece.len() <= LEAF_ITEMS / part;
        self.items.only_piece().filter(fits)
    }

    /// The value of a small collection's entry.
    fn write(&self, piece: Piece<'_>, out: &mut [u8]) {
        let has_deadlines = if self.due.len() > 0 { HAS_DEADLINES } else { 0 };
        out[..COUNT_BYTES].copy_from_slice(&(piece.len() as u16 | has_deadlines).to_le_bytes());
        out[COUNT_BYTES..].copy_from_slice(piece.bytes());
    }

    fn written(&self, piece: Piece<'_>) -> Vec<u8> {
        let mut value = vec![0; COUNT_BYTES + piece.bytes().len()];
        self.write(piece, &mut value);
        value
    }

    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        self.items.check_invariants();
        self.due.check_invariants();
        let (mut names, mut anew) = (Tree::new(true), Collection::new(self.kind));
        for item in self.items().iter_from(0).filter(|_| has_names(self.kind)) {
            assert!(index_new(self.kind, &mut names, item));
            anew.note_due(item);
        }
        assert!(anew.due().iter_from(0).eq(self.due().iter_from(0)), "each deadline is noted");
        let Some(index) = &self.names else { return };
        index.check_invariants();
        assert!(names.items().iter_from(0).eq(index.items().iter_from(0)), "each name is in the index");
    }
}

fn is_ordered(kind: Kind) -> bool {
    kind != Kind::List
}

fn shape_of(kind: Kind) -> Shape {
    // Lists and streams grow at an end, where leaves are full, and their items may be short: nodes count there.
    let leaf_factor = match kind {
        Kind::Stream => 4,
        Kind::List => 2,
        _ => 1,
    };
    Shape { is_ordered: is_ordered(kind), leaf_factor }
}

/// The hash of a member or a field. It must not change: replicas would differ.
pub(super) fn hash_of(member: &[u8]) -> [u8; 4] {
    const SECRETS: RapidSecrets = RapidSecrets::seed(0x006d_656d_6265_7273);
    ((rapidhash_v3_seeded(member, &SECRETS) >> 32) as u32).to_be_bytes()
}

/// The items of a small collection: the value of its entry, which is trusted.
fn piece_of(value: &[u8]) -> Piece<'_> {
    let Some((count, bytes)) = value.split_first_chunk::<COUNT_BYTES>() else { return Piece::EMPTY };
    Piece::new(bytes, (u16::from_le_bytes(*count) & !HAS_DEADLINES).into())
}

fn has_deadlines(value: &[u8]) -> bool {
    let count = value.first_chunk::<COUNT_BYTES>();
    count.is_some_and(|count| u16::from_le_bytes(*count) & HAS_DEADLINES != 0)
}

/// Checks that an item from elsewhere may follow another one.
fn check_item(kind: Kind, before: Option<&[u8]>, item: &[u8]) -> Result<(), Malformed> {
    const NOT_AN_ITEM: Malformed = Malformed("an item of a collection is not what it says");
    let is_valid = match kind {
        Kind::Sorted => sorted::is_item(item),
        Kind::Hash => Field::check(item).is_ok(),
        Kind::Set => item.split_first_chunk::<4>().is_some_and(|(hash, member)| *hash == hash_of(member)),
        _ => true,
    };
    // An entry of a stream has several values, and that of a hash a field and a value.
    let values = match kind {
        Kind::Stream => 4,
        Kind::Hash => 2,
        _ => 1,
    };
    let bytes_max = VALUE_BYTES_MAX_CEILING * values + ITEM_HEAD_BYTES_MAX;
    let follows = !is_ordered(kind) || before.is_none_or(|before| before < item);
    if is_valid && follows && item.len() <= bytes_max { Ok(()) } else { Err(NOT_AN_ITEM) }
}

/// Checks the value of a small collection's entry that comes from elsewhere.
///
/// # Errors
/// [`Malformed`] unless it holds a collection of this kind with at least one item.
pub(super) fn check_small(kind: Kind, value: &[u8]) -> Result<(), Malformed> {
    let mut reader = Reader::new(value);
    let count = reader.u16()? & !HAS_DEADLINES;
    if kind == Kind::Stream {
        let mut stream = Collection::new(kind);
        take_items(&mut stream, &mut reader)?;
        let is_whole = stream.len() == usize::from(count);
        return if is_whole { check_whole(&stream) } else { Err(Malformed("a stream that is none")) };
    }
    let (mut before, mut names, mut expires) = (None, BTreeSet::new(), false);
    for _ in 0..count {
        let item = take_item(&mut reader)?;
        check_item(kind, before, item)?;
        if has_names(kind) && !names.insert(key_and_name(kind, item).1) {
            return Err(TWICE);
        }
        expires |= kind == Kind::Hash && Field::of(item).deadline != NO_DEADLINE;
        before = Some(item);
    }
    if count > 0 && reader.is_empty() && expires == has_deadlines(value) {
        Ok(())
    } else {
        Err(Malformed("a collection that is none"))
    }
}

impl Entry {
    /// The items of the collection that the entry holds.
    pub(super) fn items(&self) -> Items<'_> {
        match self.collection() {
            Some(collection) => collection.items(),
            None => Items::Piece(piece_of(self.value())),
        }
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
                let deadlines = self.items().iter_from(0).map(|item| Field::of(item).deadline);
                deadlines.min().unwrap_or(NO_DEADLINE)
            }
            None => NO_DEADLINE,
        }
    }

    /// Whether fields of the hash that the entry holds have deadlines.
    pub(super) fn has_deadlines(&self) -> bool {
        match self.collection() {
            Some(collection) => collection.due.len() > 0,
            None => has_deadlines(self.value()),
        }
    }

    /// Bytes of the value, or of the reference to it, the same on every replica.
    pub(super) fn content_bytes(&self) -> usize {
        match self.collection() {
            Some(collection) => COUNT_BYTES + collection.content_bytes(),
            None => self.held_bytes(),
        }
    }
}

/// Appends items from a rank on until `out` has `enough` bytes; returns the rank at which it ended. At least one item.
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
/// [`Malformed`] when the bytes are not items that may follow those that are there.
pub(super) fn take_items(collection: &mut Collection, reader: &mut Reader<'_>) -> Result<(), Malformed> {
    while !reader.is_empty() {
        let (item, count) = (take_item(reader)?, collection.len());
        check_item(
            collection.kind,
            count.checked_sub(1).and_then(|last| collection.items().get(last)),
            item,
        )?;
        if collection.kind == Kind::Stream {
            streams::check_item(collection.items(), item)?;
        }
        collection.insert(count, item);
        if has_names(collection.kind) {
            let index = collection.names.get_or_insert_with(|| Tree::new(true));
            if !index_new(collection.kind, index, item) {
                return Err(TWICE);
            }
            collection.note_due(item);
        }
    }
    Ok(())
}

/// Checks a collection of which all items have been taken.
///
/// # Errors
/// [`Malformed`] unless it is one that can exist.
pub(super) fn check_whole(collection: &Collection) -> Result<(), Malformed> {
    match collection.kind {
        Kind::Stream => streams::check_whole(collection.items()),
        _ if collection.len() == 0 => Err(Malformed("a collection without items")),
        _ => Ok(()),
    }
}

/// A number that the content of a collection determines, whatever form it has.
pub(super) fn digest(entry: &Entry, hash: impl Fn(&[u8]) -> u64) -> u64 {
    entry.items().iter_from(0).fold(hash(entry.key()), |sum, item| {
        let mut pair = [0; 16];
        pair[..8].copy_from_slice(&sum.to_le_bytes());
        pair[8..].copy_from_slice(&hash(item).to_le_bytes());
        hash(&pair)
    })
}

/// The key of a command on a collection, and its place if it exists.
#[derive(Clone, Copy)]
pub(super) struct Found<'k> {
    pub(super) key: &'k [u8],
    pub(super) hash: KeyHash,
    pub(super) place: Option<Place>,
}

impl Table {
    /// Finds a key for a write that expects this kind of collection.
    pub(super) fn find_kind<'k>(
        &mut self,
        key: &'k [u8],
        kind: Kind,
        record: Record,
    ) -> Result<Found<'k>, WrongKind> {
        let hash = self.index.hash(key);
        let place = self.find_live(hash, key, record);
        match place {
            Some(place) if self.index.entry(place).kind() != kind => Err(WrongKind),
            place => Ok(Found { key, hash, place }),
        }
    }

    /// The items of a key that was found; none if it does not exist.
    pub(super) fn items_at(&self, found: Found<'_>) -> Items<'_> {
        found.place.map_or(Items::EMPTY, |place| self.index.entry(place).items())
    }

    /// The items of a key for a read, none if it does not exist, and its version.
    pub(super) fn items_of(
        &mut self,
        key: &[u8],
        kind: Kind,
        now: UnixMs,
    ) -> Result<(Items<'_>, crate::Version), WrongKind> {
        let is_hit = self.peek(key, now).is_some();
        self.count_lookup(is_hit);
        match self.peek(key, now) {
            None => Ok((Items::EMPTY, 0)),
            Some(entry) if entry.kind() == kind => Ok((entry.items(), entry.version())),
            Some(_) => Err(WrongKind),
        }
    }

    /// Changes a collection, or begins one. One that is left without items is removed; one that `edit` does not change
    /// keeps its version. The deadline stays.
    pub(super) fn edit_collection<R>(
        &mut self,
        found: Found<'_>,
        kind: Kind,
        record: Record,
        edit: impl FnOnce(&mut Collection, &mut Discarded) -> R,
    ) -> R {
        if let Some(place) = found.place
            && self.index.entry(place).collection().is_some()
        {
            return self.edit_large(place, record, edit);
        }
        let mut spare = self.spare.take().unwrap_or_else(|| Collection::new(kind));
        spare.load(kind, found.place.map_or(&[], |place| self.index.entry(place).value()));
        let answer = edit(&mut spare, &mut self.discarded_nodes);
        let deadline = found.place.map_or(NO_DEADLINE, |place| self.index.entry(place).deadline());
        let stamp = record.stamp(deadline, kind);
        match (spare.is_changed, spare.small(1), found.place) {
            (false, ..) => {}
            (true, _, Some(place)) if spare.len() == 0 => self.remove(place, record),
            (true, _, None) if spare.len() == 0 => {}
            (true, Some(piece), Some(place)) => {
                let length = COUNT_BYTES + piece.bytes().len();
                self.change(place, deadline, record, |entry| {
                    entry.edit(length, stamp, |room| spare.write(piece, &mut room[..length]));
                });
            }
            (true, Some(piece), None) => {
                let value = spare.written(piece);
                self.insert(found.hash, Entry::new(found.key, &value, stamp), record);
            }
            (true, None, place) => {
                let entry = Entry::of_collection(found.key, spare, stamp);
                match place {
                    Some(place) => {
                        self.change(place, deadline, record, |before| *before = entry);
                    }
                    None => self.insert(found.hash, entry, record),
                }
                return answer;
            }
        }
        self.spare = Some(spare);
        answer
    }

    /// Stores a collection under a key, whatever the key held, without a deadline. One without items is not stored, and
    /// what the key held is removed.
    pub(super) fn put_collection(&mut self, key: &[u8], collection: Collection, record: Record) {
        let kind = collection.kind;
        if collection.len() == 0 {
            if let Some(place) = self.find_live(self.index.hash(key), key, record) {
                self.remove(place, record);
            }
        } else if let Some(piece) = collection.small(1) {
            let value = collection.written(piece);
            self.put(key, &value, NO_DEADLINE, kind, record);
        } else {
            let entry = Entry::of_collection(key, collection, record.stamp(NO_DEADLINE, kind));
            self.put_entry(entry, record);
        }
    }

    fn edit_large<R>(
        &mut self,
        place: Place,
        record: Record,
        edit: impl FnOnce(&mut Collection, &mut Discarded) -> R,
    ) -> R {
        let (answer, is_changed) = self.change_collection(place, record, edit);
        if !is_changed {
            return answer;
        }
        let entry = self.index.entry(place);
        let Some(collection) = entry.collection() else { return answer };
        let (deadline, kind) = (entry.deadline(), entry.kind());
        if collection.len() == 0 {
            self.remove(place, record);
        } else if let Some(piece) = collection.small(2) {
            // Not before it is half as small as it must be, so that one whose size fluctuates stays as it is.
            let value = collection.written(piece);
            self.overwrite(place, &value, deadline, kind, record);
        }
        answer
    }

    /// Changes the large collection at a place, and returns whether there was a change. It may be left without items.
    fn change_collection<R>(
        &mut self,
        place: Place,
        record: Record,
        edit: impl FnOnce(&mut Collection, &mut Discarded) -> R,
    ) -> (R, bool) {
        // Before anything changes. If nothing does, it costs a copy of the entry, whose items are shared.
        self.save_for_snapshots(place.hash);
        let entry = self.index.entry_mut(place);
        let (bytes_before, due_before) = (entry.memory_bytes(), entry.first_due());
        let Some(collection) = entry.collection_mut() else {
            unreachable!("the caller has seen a large collection here")
        };
        collection.is_changed = false;
        let answer = edit(collection, &mut self.discarded_nodes);
        if !collection.is_changed {
            return (answer, false);
        }
        entry.restamp(record.stamp(entry.deadline(), entry.kind()));
        let (bytes_after, due_after) = (entry.memory_bytes(), entry.first_due());
        self.entry_bytes = self.entry_bytes - bytes_before + bytes_after;
        self.change_first_due(place.hash, due_before, due_after);
        self.raise_floor(record);
        (answer, true)
    }
}
