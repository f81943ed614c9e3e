//! One key with its value: a single allocation.
//!
//! ```text
//! version u64 | deadline u64 | key length and kind u32 | value length u32 | key | value | slack
//! ```
//!
//! One allocation means one cache miss to compare the key, read the deadline and copy the value, and it costs less
//! memory than separate strings. Slack appears when a value shrinks, or grows by appending; [`Entry::fits`] and
//! [`Entry::room_for`] bound it.
//!
//! A large value in a reply is **lent** instead of copied: the reply shares the allocation with the table. A change to
//! a lent entry is made to a copy, or to the next value, which has an allocation of its own anyway.
//!
//! A small collection is the value of its entry. A large one is stored beside the entry's header and key: see
//! [`super::collections`].

use super::NO_DEADLINE;
use super::collections::Collection;
use super::kind::Kind;
use crate::coded::Reference;
use crate::{SharedBytes, UnixMs, Version};
use std::sync::Arc;

pub(super) const HEADER_BYTES: usize = 24;

/// Size in bytes from which a value is large, and snapshots send it in pieces. Smaller in tests, so that more values
/// are large.
const LARGE_BYTES: usize = if cfg!(test) { 40 } else { 1 << 20 };
/// The top two bits of the key's length say how the value is stored.
const KIND_SHIFT: u32 = 30;
/// The next bit is set if the entry holds something other than the bytes of a string: a reference or a collection, as the
/// two bits above say. So an update in place, which compares key lengths, skips such an entry without looking at its kind,
/// and a `GET` of a string tests one bit.
const SPECIAL_BIT: u32 = 1 << (KIND_SHIFT - 1);
/// The position of the next three bits, which say what a special entry holds.
const SPECIAL_SHIFT: u32 = KIND_SHIFT - 4;
const KEY_LENGTH_MASK: u32 = (1 << SPECIAL_SHIFT) - 1;
/// What a special entry holds, by those three bits.
const SPECIAL: [Kind; 8] = {
    use super::kind::Kind::*;
    [Hash, List, Set, Sorted, Coded, Stream, Coded, Coded]
};

/// The metadata of an entry, beside its key and value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    pub(super) version: Version,
    /// [`super::NO_DEADLINE`] when the key does not expire.
    pub(super) deadline: UnixMs,
    pub(super) kind: Kind,
}

/// A key with its value, version and deadline. The default is no entry: it marks an empty place.
#[derive(Clone, Debug)]
pub(super) struct Entry(Allocation);

#[derive(Clone, Debug)]
enum Allocation {
    Own(Box<[u8]>),
    Apart(Box<Apart>),
}

/// Rare forms of an entry, behind one pointer: two variants with pointers would make every entry larger.
#[derive(Clone, Debug)]
enum Apart {
    /// Currently or formerly lent.
    Lent(Arc<Vec<u8>>),
    /// A large collection, and the header and key in front of an empty value.
    Collection(Box<[u8]>, Collection),
}

// The index has an `Entry` for each of its places.
const _: () = assert!(size_of::<Entry>() == 16);

impl Default for Entry {
    fn default() -> Entry {
        Entry::from(Vec::new())
    }
}

impl From<Vec<u8>> for Entry {
    /// Takes the whole entry, header included.
    fn from(bytes: Vec<u8>) -> Entry {
        Entry(Allocation::Own(bytes.into_boxed_slice()))
    }
}

impl Entry {
    /// Whether this is an entry, and not the mark of a free place.
    #[inline]
    pub(super) fn is_some(&self) -> bool {
        !matches!(&self.0, Allocation::Own(bytes) if bytes.is_empty())
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        match &self.0 {
            Allocation::Own(bytes) => bytes,
            Allocation::Apart(apart) => match &**apart {
                Apart::Lent(bytes) => bytes,
                Apart::Collection(head, _) => head,
            },
        }
    }

    /// Returns the bytes for changing them. Copies them first if they are shared.
    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Allocation::Own(bytes) => bytes,
            Allocation::Apart(apart) => match &mut **apart {
                Apart::Lent(bytes) => Arc::<Vec<u8>>::make_mut(bytes),
                Apart::Collection(head, _) => head,
            },
        }
    }

    /// Takes the bytes out. Copies them if they are shared.
    fn take_bytes(&mut self) -> Vec<u8> {
        match std::mem::take(self).0 {
            Allocation::Own(bytes) => bytes.into_vec(),
            Allocation::Apart(apart) => match *apart {
                Apart::Lent(bytes) => Arc::unwrap_or_clone(bytes),
                Apart::Collection(head, _) => head.into_vec(),
            },
        }
    }

    /// Whether it is or was lent, or holds a large collection. Reads one word of the entry itself and nothing of its
    /// allocation.
    #[inline(always)]
    pub(super) fn is_apart(&self) -> bool {
        matches!(self.0, Allocation::Apart(_))
    }

    fn is_held_elsewhere(&self) -> bool {
        let Allocation::Apart(apart) = &self.0 else { return false };
        matches!(&**apart, Apart::Lent(bytes) if Arc::strong_count(bytes) > 1)
    }

    /// The collection that the entry holds, if it is a large one.
    #[inline]
    pub(super) fn collection(&self) -> Option<&Collection> {
        let Allocation::Apart(apart) = &self.0 else { return None };
        match &**apart {
            Apart::Collection(_, collection) => Some(collection),
            Apart::Lent(_) => None,
        }
    }

    /// Like [`Entry::collection`], but mutable.
    pub(super) fn collection_mut(&mut self) -> Option<&mut Collection> {
        let Allocation::Apart(apart) = &mut self.0 else { return None };
        match &mut **apart {
            Apart::Collection(_, collection) => Some(collection),
            Apart::Lent(_) => None,
        }
    }

    /// Takes the large collection out, if there is one. The rest must not be used as an entry.
    pub(super) fn into_collection(self) -> Option<Collection> {
        let Allocation::Apart(apart) = self.0 else { return None };
        match *apart {
            Apart::Collection(_, collection) => Some(collection),
            Apart::Lent(_) => None,
        }
    }

    /// An entry that holds a large collection.
    pub(super) fn of_collection(key: &[u8], collection: Collection, stamp: Stamp) -> Entry {
        let head = Entry::new(key, b"", stamp).take_bytes().into_boxed_slice();
        Entry(Allocation::Apart(Box::new(Apart::Collection(head, collection))))
    }

    /// The same value under another key. A large collection is shared, not copied.
    pub(super) fn under(&self, key: &[u8], stamp: Stamp) -> Entry {
        match self.collection() {
            Some(collection) => Entry::of_collection(key, collection.clone(), stamp),
            None => Entry::new(key, self.value(), stamp),
        }
    }

    /// Moves the value to another key.
    pub(super) fn moved_under(self, key: &[u8], stamp: Stamp) -> Entry {
        if self.collection().is_none() {
            return Entry::new(key, self.value(), stamp);
        }
        let Some(collection) = self.into_collection() else { unreachable!("it has just been seen") };
        Entry::of_collection(key, collection, stamp)
    }

    /// Lends the allocation, which does not move: clones of this entry share it too.
    pub(super) fn lend(&mut self) -> &Arc<Vec<u8>> {
        if let Allocation::Own(bytes) = &mut self.0 {
            let lent = Apart::Lent(Arc::new(std::mem::take(bytes).into_vec()));
            self.0 = Allocation::Apart(Box::new(lent));
        }
        if let Allocation::Apart(apart) = &self.0
            && let Apart::Lent(bytes) = &**apart
        {
            return bytes;
        }
        unreachable!("only a value in one piece is lent, and it was lent just now")
    }

    pub(super) fn lend_value(&mut self) -> SharedBytes {
        let start = HEADER_BYTES + self.key_length();
        let end = start + self.value_length();
        SharedBytes::of(self.lend(), start..end)
    }

    #[inline]
    pub(super) fn new(key: &[u8], value: &[u8], stamp: Stamp) -> Entry {
        Self::with_capacity(HEADER_BYTES + key.len() + value.len(), key, &[value], stamp)
    }

    /// Returns an entry whose value is the concatenation of `parts`, in an allocation of `capacity` bytes.
    fn with_capacity(capacity: usize, key: &[u8], parts: &[&[u8]], stamp: Stamp) -> Entry {
        let value_length = parts.iter().map(|part| part.len()).sum();
        let mut bytes = Vec::with_capacity(capacity);
        bytes.resize(HEADER_BYTES, 0);
        write_header(&mut bytes, key.len(), value_length, stamp);
        bytes.extend_from_slice(key);
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        bytes.resize(capacity, 0);
        Entry::from(bytes)
    }

    /// Makes an entry from `bytes`, which end with its key and value and have room for its header in front: nothing is
    /// copied. Returns `None` if there is no such room.
    pub(super) fn taking_over(mut bytes: Vec<u8>, key_length: usize, stamp: Stamp) -> Option<Entry> {
        let value_length = bytes.len().checked_sub(HEADER_BYTES + key_length)?;
        write_header(&mut bytes, key_length, value_length, stamp);
        Some(Entry::from(bytes))
    }

    #[inline]
    fn field<const N: usize>(&self, at: usize) -> [u8; N] {
        field_of(self.bytes(), at)
    }

    #[inline]
    pub(super) fn version(&self) -> Version {
        u64::from_le_bytes(self.field(0))
    }

    #[inline]
    pub(super) fn deadline(&self) -> UnixMs {
        u64::from_le_bytes(self.field(8))
    }

    #[inline]
    pub(super) fn expired(&self, now: UnixMs) -> bool {
        self.deadline() <= now
    }

    #[inline]
    fn key_length(&self) -> usize {
        (u32::from_le_bytes(self.field(16)) & KEY_LENGTH_MASK) as usize
    }

    #[inline]
    fn value_length(&self) -> usize {
        u32::from_le_bytes(self.field(20)) as usize
    }

    #[inline]
    pub(super) fn kind(&self) -> Kind {
        let field = u32::from_le_bytes(self.field(16));
        if field & SPECIAL_BIT == 0 {
            return Kind::from_tag((field >> KIND_SHIFT) as u8).unwrap_or(Kind::Plain);
        }
        SPECIAL[(field >> SPECIAL_SHIFT & 7) as usize]
    }

    /// Whether the value is a string whose bytes are here.
    #[inline]
    pub(super) fn is_bytes(&self) -> bool {
        u32::from_le_bytes(self.field(16)) & SPECIAL_BIT == 0
    }

    /// Whether the entry holds a reference instead of the value.
    #[inline]
    pub(super) fn is_coded(&self) -> bool {
        !self.is_bytes() && self.kind() == Kind::Coded
    }

    /// Whether the value is neither a string nor a reference to one.
    #[inline]
    pub(super) fn is_collection(&self) -> bool {
        !self.is_bytes() && self.kind().is_collection()
    }

    /// The reference that the entry holds instead of the value, if any.
    #[inline]
    pub(super) fn reference(&self) -> Option<Reference> {
        if !self.is_coded() {
            return None;
        }
        Reference::decode(self.value()).ok()
    }

    /// Whether the value is a long run of bytes, which a snapshot sends in pieces.
    #[inline]
    pub(super) fn is_large(&self) -> bool {
        self.value_length() >= LARGE_BYTES && !self.is_coded()
    }

    /// Bytes that the entry holds: of the value, or of the reference.
    pub(super) fn held_bytes(&self) -> usize {
        self.value_length()
    }

    /// Bytes of the value, wherever it is stored.
    pub(super) fn full_length(&self) -> usize {
        self.reference().map_or(self.value_length(), |reference| reference.length as usize)
    }

    pub(super) fn stamp(&self) -> Stamp {
        Stamp { version: self.version(), deadline: self.deadline(), kind: self.kind() }
    }

    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        &self.bytes()[HEADER_BYTES..HEADER_BYTES + self.key_length()]
    }

    #[inline]
    pub(super) fn has_key(&self, key: &[u8]) -> bool {
        let Some((header, rest)) = self.bytes().split_first_chunk::<HEADER_BYTES>() else { return false };
        key_length_in(header) == key.len() && rest.get(..key.len()).is_some_and(|held| is_same(held, key))
    }

    #[inline]
    pub(super) fn value(&self) -> &[u8] {
        let start = HEADER_BYTES + self.key_length();
        &self.bytes()[start..start + self.value_length()]
    }

    /// Returns value and version, if this is the entry of `key`, has not expired, and holds the bytes of a string.
    ///
    /// It reads the allocation once and the header as a whole, which takes half the time of reading field by field.
    #[inline(always)]
    pub(super) fn string_of(&self, key: &[u8], now: UnixMs) -> Option<(&[u8], Version)> {
        let (header, rest) = self.bytes().split_first_chunk::<HEADER_BYTES>()?;
        let (held_key, room) = rest.split_at_checked(key.len())?;
        let is_it = key_length_and_special_in(header) == key.len()
            && u64::from_le_bytes(field_of(header, 8)) > now
            && is_same(held_key, key);
        let value = room.get(..u32::from_le_bytes(field_of(header, 20)) as usize)?;
        is_it.then(|| (value, u64::from_le_bytes(field_of(header, 0))))
    }

    /// The key followed by the value.
    pub(super) fn key_and_value(&self) -> &[u8] {
        &self.bytes()[HEADER_BYTES..HEADER_BYTES + self.key_length() + self.value_length()]
    }

    /// Reads a byte of each cache line of a small entry, and of the first lines of a large one.
    #[inline]
    pub(super) fn touch(&self) -> u64 {
        const LINE_BYTES: usize = 64;
        const LINES_MAX: usize = 4;
        self.bytes().iter().step_by(LINE_BYTES).take(LINES_MAX).fold(0, |seen, byte| seen ^ u64::from(*byte))
    }

    /// Bytes allocated, slack included.
    #[inline]
    pub(super) fn capacity(&self) -> usize {
        self.bytes().len() + self.collection().map_or(0, |it| size_of::<Apart>() + it.memory_bytes())
    }

    /// Whether an entry of `needed` bytes fits into `capacity` bytes: it has room and wastes at most a third.
    #[inline]
    fn fits(needed: usize, capacity: usize) -> bool {
        needed <= capacity && !is_wasteful(capacity - needed, capacity)
    }

    /// The capacity for a growing value: half as much again, so that appending has amortised constant cost.
    fn room_for(needed: usize) -> usize {
        needed + needed / 2
    }

    /// Replaces value and version if this is the entry of `key`, does not expire, and has the right size. Else changes
    /// nothing and returns false.
    ///
    /// Offsets follow from the length of the given key, so that writes do not wait until the stored length has been
    /// read.
    #[inline(always)]
    pub(super) fn update(&mut self, key: &[u8], value: &[u8], version: Version) -> bool {
        let Allocation::Own(bytes) = &mut self.0 else { return false };
        let capacity = bytes.len();
        let Some((header, rest)) = bytes.split_first_chunk_mut::<HEADER_BYTES>() else { return false };
        let Some((held_key, room)) = rest.split_at_mut_checked(key.len()) else { return false };
        let Some((held_value, slack)) = room.split_at_mut_checked(value.len()) else { return false };
        let is_it = key_length_and_special_in(header) == key.len()
            && header[8..16] == NO_DEADLINE.to_le_bytes()
            && !is_wasteful(slack.len(), capacity)
            && is_same(held_key, key);
        if is_it {
            write_header(
                header,
                key.len(),
                value.len(),
                Stamp { version, deadline: NO_DEADLINE, kind: Kind::Plain },
            );
            held_value.copy_from_slice(value);
        }
        is_it
    }

    /// Replaces everything but the key, in place if the size allows. Returns the large collection that the entry held, if any.
    #[inline]
    pub(super) fn overwrite(&mut self, value: &[u8], stamp: Stamp) -> Option<Collection> {
        let start = HEADER_BYTES + self.key_length();
        let needed = start + value.len();
        if Self::fits(needed, self.bytes().len()) && !self.is_held_elsewhere() && self.collection().is_none()
        {
            let bytes = self.bytes_mut();
            write_header(bytes, start - HEADER_BYTES, value.len(), stamp);
            bytes[start..needed].copy_from_slice(value);
            None
        } else {
            let after = Self::new(self.key(), value, stamp);
            std::mem::replace(self, after).into_collection()
        }
    }

    /// Replaces version, deadline and kind.
    pub(super) fn restamp(&mut self, stamp: Stamp) {
        let (key_length, value_length) = (self.key_length(), self.value_length());
        write_header(self.bytes_mut(), key_length, value_length, stamp);
    }

    /// Overwrites the value from `offset` on; a gap is filled with zero bytes.
    pub(super) fn write_at(&mut self, offset: usize, part: &[u8], stamp: Stamp) {
        let start = HEADER_BYTES + self.key_length();
        let length = self.value_length();
        let grown = length.max(offset + part.len());
        self.make_room(start + grown);
        let bytes = self.bytes_mut();
        write_header(bytes, start - HEADER_BYTES, grown, stamp);
        if offset > length {
            // The bytes behind the value are left over from an earlier, longer one.
            bytes[start + length..start + offset].fill(0);
        }
        bytes[start + offset..start + offset + part.len()].copy_from_slice(part);
    }

    /// Changes the value in place. `edit` gets its bytes, followed by room if the value grows, and leaves the new value
    /// in the first `length` bytes.
    pub(super) fn edit(&mut self, length: usize, stamp: Stamp, edit: impl FnOnce(&mut [u8])) {
        let start = HEADER_BYTES + self.key_length();
        let room = self.value_length().max(length);
        self.make_room(start + room);
        let bytes = self.bytes_mut();
        edit(&mut bytes[start..start + room]);
        write_header(bytes, start - HEADER_BYTES, length, stamp);
        if is_wasteful(bytes.len() - start - length, bytes.len()) {
            let mut bytes = self.take_bytes();
            bytes.truncate(start + length);
            *self = Entry::from(bytes);
        }
    }

    /// Enlarges the allocation if it has fewer than `needed` bytes.
    fn make_room(&mut self, needed: usize) {
        if needed > self.bytes().len() {
            let mut bytes = self.take_bytes();
            let room = Self::room_for(needed);
            bytes.reserve_exact(room - bytes.len());
            bytes.resize(room, 0);
            *self = Entry::from(bytes);
        }
    }
}

/// Compares two keys of the same length, without a call for common lengths.
#[inline(always)]
fn is_same(held: &[u8], key: &[u8]) -> bool {
    /// The first `N` and the last `N` bytes, which overlap in fewer than 2 `N` bytes.
    #[inline(always)]
    fn ends<const N: usize>(bytes: &[u8]) -> (Option<&[u8; N]>, Option<&[u8; N]>) {
        (bytes.first_chunk(), bytes.last_chunk())
    }
    match key.len() {
        8..=16 => ends::<8>(held) == ends::<8>(key),
        17..=32 => ends::<16>(held) == ends::<16>(key),
        _ => held == key,
    }
}

/// Whether more than a third of the capacity is unused.
#[inline]
fn is_wasteful(slack: usize, capacity: usize) -> bool {
    slack * 3 > capacity
}

#[inline]
fn key_length_in(header: &[u8; HEADER_BYTES]) -> usize {
    key_length_and_special_in(header) & KEY_LENGTH_MASK as usize
}

/// The key's length, or more than any key's length if the value is not a string whose bytes are here.
#[inline]
fn key_length_and_special_in(header: &[u8; HEADER_BYTES]) -> usize {
    (u32::from_le_bytes(field_of(header, 16)) & (KEY_LENGTH_MASK | SPECIAL_BIT)) as usize
}

#[inline]
fn field_of<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

/// Writes a header field by field, straight to its place: a header built elsewhere and then copied would have to wait
/// until the earlier writes have reached memory.
///
/// Keys and values are far shorter than the fields allow: what clients and peers send is limited on arrival.
#[inline]
fn write_header(bytes: &mut [u8], key_length: usize, value_length: usize, stamp: Stamp) {
    debug_assert!(key_length <= KEY_LENGTH_MASK as usize && value_length <= u32::MAX as usize);
    let kind_bits = match stamp.kind {
        Kind::Plain | Kind::Text | Kind::Raw => (stamp.kind as u32) << KIND_SHIFT,
        Kind::Hash => SPECIAL_BIT,
        Kind::List => 1 << SPECIAL_SHIFT | SPECIAL_BIT,
        Kind::Set => 2 << SPECIAL_SHIFT | SPECIAL_BIT,
        Kind::Sorted => 3 << SPECIAL_SHIFT | SPECIAL_BIT,
        Kind::Coded => 4 << SPECIAL_SHIFT | SPECIAL_BIT,
        Kind::Stream => 5 << SPECIAL_SHIFT | SPECIAL_BIT,
    };
    let key_field = key_length as u32 | kind_bits;
    let header = &mut bytes[..HEADER_BYTES];
    header[..8].copy_from_slice(&stamp.version.to_le_bytes());
    header[8..16].copy_from_slice(&stamp.deadline.to_le_bytes());
    header[16..20].copy_from_slice(&key_field.to_le_bytes());
    header[20..].copy_from_slice(&(value_length as u32).to_le_bytes());
}
