//! One key with its value: a single allocation.
//!
//! ```text
//! version u64 | deadline u64 | key length and kind u32 | value length u32 | key | value | slack
//! ```
//!
//! One allocation means one cache miss to compare the key, read the deadline and copy the value, and it
//! costs less memory than separate strings. Slack appears when a value shrinks or grows by appending; it is
//! bounded by [`Entry::fits`] and [`Entry::room_for`].
//!
//! A large value that is told is **lent** instead of copied: whoever tells it holds the allocation with the table. What
//! changes such an entry meanwhile is done to a copy, or to the next value, which has an allocation of its own anyway.

use super::NO_DEADLINE;
use crate::coded::Reference;
use crate::{SharedBytes, UnixMs, Version};
use std::sync::Arc;

pub(super) const HEADER_BYTES: usize = 24;

/// A value of so many bytes is large: it is told in pieces by snapshots. Tests have more of them.
const LARGE_BYTES: usize = if cfg!(test) { 40 } else { 1 << 20 };
/// The top two bits of the key's length say how the value is kept.
const KIND_SHIFT: u32 = 30;
/// The next one is set where what stands in the place of the value is not the bytes of a string: a reference or a hash, as
/// the two bits above say. So an update in place, which compares lengths of keys, passes such an entry by without looking
/// at its kind, and a `GET` of a string looks at one bit.
const SPECIAL_BIT: u32 = 1 << (KIND_SHIFT - 1);
const KEY_LENGTH_MASK: u32 = SPECIAL_BIT - 1;
/// What the top two bits are where a special entry holds a reference; where it holds a hash they are 0.
const CODED: u8 = 3;

/// What the value is, and how Redis would keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// As it came: an integer if it reads as one.
    Plain = 0,
    /// A string, even if it reads as an integer: a sum of `INCRBYFLOAT`.
    Text = 1,
    /// A string that was changed in place.
    Raw = 2,
    /// Kept as fragments: a [`Reference`] stands in the place of the value.
    Coded = 3,
    /// A hash: see [`super::fields`].
    Hash = 4,
}

impl Kind {
    pub(super) fn from_tag(tag: u8) -> Option<Kind> {
        [Kind::Plain, Kind::Text, Kind::Raw, Kind::Coded, Kind::Hash].get(tag as usize).copied()
    }
}

/// What an entry says beside its key and its value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    pub(super) version: Version,
    /// [`super::NO_DEADLINE`] when the key does not expire.
    pub(super) deadline: UnixMs,
    pub(super) kind: Kind,
}

/// A key with its value, version and deadline. The default one is none: it marks a free place.
#[derive(Clone, Debug)]
pub(super) struct Entry(Allocation);

#[derive(Clone, Debug)]
enum Allocation {
    Own(Box<[u8]>),
    /// It is lent, or was.
    Lent(Arc<Vec<u8>>),
}

// A table has one for each place.
const _: () = assert!(size_of::<Entry>() == 16);

impl Default for Entry {
    fn default() -> Entry {
        Entry::from(Vec::new())
    }
}

impl From<Vec<u8>> for Entry {
    /// All of its bytes, header and all.
    fn from(bytes: Vec<u8>) -> Entry {
        Entry(Allocation::Own(bytes.into_boxed_slice()))
    }
}

impl Entry {
    /// False for what marks a free place.
    #[inline]
    pub(super) fn is_some(&self) -> bool {
        !matches!(&self.0, Allocation::Own(bytes) if bytes.is_empty())
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        match &self.0 {
            Allocation::Own(bytes) => bytes,
            Allocation::Lent(bytes) => bytes,
        }
    }

    /// The bytes, to be changed: a copy of them, if somebody else holds these.
    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Allocation::Own(bytes) => bytes,
            Allocation::Lent(bytes) => Arc::<Vec<u8>>::make_mut(bytes),
        }
    }

    /// Takes the bytes out: a copy of them, if somebody else holds these.
    fn take_bytes(&mut self) -> Vec<u8> {
        match std::mem::take(self).0 {
            Allocation::Own(bytes) => bytes.into_vec(),
            Allocation::Lent(bytes) => Arc::unwrap_or_clone(bytes),
        }
    }

    /// It is lent, or was. Reads one word of the entry itself and nothing of its allocation.
    #[inline(always)]
    pub(super) fn is_lent(&self) -> bool {
        matches!(self.0, Allocation::Lent(_))
    }

    fn is_held_elsewhere(&self) -> bool {
        matches!(&self.0, Allocation::Lent(bytes) if Arc::strong_count(bytes) > 1)
    }

    /// Lends the allocation, which stays where it is: copies of this entry hold it too.
    pub(super) fn lend(&mut self) -> &Arc<Vec<u8>> {
        if let Allocation::Own(bytes) = &mut self.0 {
            self.0 = Allocation::Lent(Arc::new(std::mem::take(bytes).into_vec()));
        }
        match &self.0 {
            Allocation::Lent(bytes) => bytes,
            Allocation::Own(_) => unreachable!("it was lent just now"),
        }
    }

    /// Lends the value.
    pub(super) fn lend_value(&mut self) -> SharedBytes {
        let start = HEADER_BYTES + self.key_length();
        let end = start + self.value_length();
        SharedBytes::of(self.lend(), start..end)
    }

    #[inline]
    pub(super) fn new(key: &[u8], value: &[u8], stamp: Stamp) -> Entry {
        Self::with_capacity(HEADER_BYTES + key.len() + value.len(), key, &[value], stamp)
    }

    /// An entry whose value is `parts`, one behind the other, in an allocation of `capacity` bytes.
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

    /// The entry whose key and value end these bytes, behind room for its header: nothing is copied. None if there is no
    /// such room.
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

    pub(super) fn kind(&self) -> Kind {
        let field = u32::from_le_bytes(self.field(16));
        match (field & SPECIAL_BIT != 0, (field >> KIND_SHIFT) as u8) {
            (true, CODED) => Kind::Coded,
            (true, _) => Kind::Hash,
            (false, tag) => Kind::from_tag(tag).unwrap_or(Kind::Plain),
        }
    }

    /// True when the value is a string and its bytes are here.
    #[inline]
    pub(super) fn is_bytes(&self) -> bool {
        u32::from_le_bytes(self.field(16)) & SPECIAL_BIT == 0
    }

    /// True when a reference stands in the place of the value.
    #[inline]
    pub(super) fn is_coded(&self) -> bool {
        !self.is_bytes() && self.kind() == Kind::Coded
    }

    #[inline]
    pub(super) fn is_hash(&self) -> bool {
        !self.is_bytes() && self.kind() == Kind::Hash
    }

    /// What stands in the place of the value, if it is kept as fragments.
    #[inline]
    pub(super) fn reference(&self) -> Option<Reference> {
        if !self.is_coded() {
            return None;
        }
        Reference::decode(self.value()).ok()
    }

    /// True when a snapshot tells it in pieces.
    #[inline]
    pub(super) fn is_large(&self) -> bool {
        self.value_length() >= LARGE_BYTES && !self.is_coded()
    }

    /// Bytes that stand in the place of the value.
    pub(super) fn held_bytes(&self) -> usize {
        self.value_length()
    }

    /// Bytes of the value, wherever it is kept.
    pub(super) fn told_length(&self) -> usize {
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

    /// Value and version, if this is the entry of `key`, has not expired, and holds the bytes of a string.
    ///
    /// It looks at the allocation once and at the header as a whole, which is half of what asking for each field takes.
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

    /// Key and value, one behind the other.
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
        self.bytes().len()
    }

    /// True when an entry of `needed` bytes belongs into `capacity` bytes: it has room and wastes at most a third.
    #[inline]
    fn fits(needed: usize, capacity: usize) -> bool {
        needed <= capacity && !is_wasteful(capacity - needed, capacity)
    }

    /// The allocation for a value that is growing: half as much again, so that appending is cheap on average.
    fn room_for(needed: usize) -> usize {
        needed + needed / 2
    }

    /// Replaces value and version if this is the entry of `key`, does not expire, and has the right size; else
    /// changes nothing and returns false.
    ///
    /// Where things are follows from the length of the key that is given, so that writing them does not wait for
    /// the length that is held.
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

    /// Replaces everything but the key; in place when the size allows.
    #[inline]
    pub(super) fn overwrite(&mut self, value: &[u8], stamp: Stamp) {
        let start = HEADER_BYTES + self.key_length();
        let needed = start + value.len();
        if Self::fits(needed, self.capacity()) && !self.is_held_elsewhere() {
            let bytes = self.bytes_mut();
            write_header(bytes, start - HEADER_BYTES, value.len(), stamp);
            bytes[start..needed].copy_from_slice(value);
        } else {
            *self = Self::new(self.key(), value, stamp);
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
            // What lies behind the value is left over from an earlier, longer one.
            bytes[start + length..start + offset].fill(0);
        }
        bytes[start + offset..start + offset + part.len()].copy_from_slice(part);
    }

    /// Changes the value where it stands. `edit` gets its bytes, with room behind them if it is to be longer, and leaves
    /// the `length` bytes that it is to have.
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

    /// Makes the allocation larger, if it has less than so many bytes.
    fn make_room(&mut self, needed: usize) {
        if needed > self.capacity() {
            let mut bytes = self.take_bytes();
            let room = Self::room_for(needed);
            bytes.reserve_exact(room - bytes.len());
            bytes.resize(room, 0);
            *self = Entry::from(bytes);
        }
    }
}

/// Compares two keys of the same length: those of usual lengths without a call.
#[inline(always)]
fn is_same(held: &[u8], key: &[u8]) -> bool {
    /// The first and the last bytes, which overlap when there are fewer than twice as many.
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

/// More than a third of the capacity is left unused.
#[inline]
fn is_wasteful(slack: usize, capacity: usize) -> bool {
    slack * 3 > capacity
}

#[inline]
fn key_length_in(header: &[u8; HEADER_BYTES]) -> usize {
    key_length_and_special_in(header) & KEY_LENGTH_MASK as usize
}

/// The key's length, or more than any key has where the value is no string whose bytes are here.
#[inline]
fn key_length_and_special_in(header: &[u8; HEADER_BYTES]) -> usize {
    (u32::from_le_bytes(field_of(header, 16)) & (KEY_LENGTH_MASK | SPECIAL_BIT)) as usize
}

/// The bytes of one field.
#[inline]
fn field_of<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

/// Writes a header field by field, straight to its place: built elsewhere and copied, it would have to wait until
/// earlier writes have reached memory.
///
/// Keys and values are far below what the fields can hold: what clients and peers send is limited on arrival.
#[inline]
fn write_header(bytes: &mut [u8], key_length: usize, value_length: usize, stamp: Stamp) {
    debug_assert!(key_length <= KEY_LENGTH_MASK as usize && value_length <= u32::MAX as usize);
    let kind_bits = match stamp.kind {
        Kind::Plain | Kind::Text | Kind::Raw => (stamp.kind as u32) << KIND_SHIFT,
        Kind::Coded => (CODED as u32) << KIND_SHIFT | SPECIAL_BIT,
        Kind::Hash => SPECIAL_BIT,
    };
    let key_field = key_length as u32 | kind_bits;
    let header = &mut bytes[..HEADER_BYTES];
    header[..8].copy_from_slice(&stamp.version.to_le_bytes());
    header[8..16].copy_from_slice(&stamp.deadline.to_le_bytes());
    header[16..20].copy_from_slice(&key_field.to_le_bytes());
    header[20..].copy_from_slice(&(value_length as u32).to_le_bytes());
}
