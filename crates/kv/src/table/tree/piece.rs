//! A piece: some items in one run of bytes, each with its length in front.
//!
//! ```text
//! item: length u8, or 254 and u16, or 255 and u32 | bytes
//! ```
//!
//! Pieces are short, so an item is found by walking, or, where all items have the same length, by multiplying. Such a piece
//! may be *bare*: without the lengths. Where lengths differ, the leaves of large trees have *marks*: some places from which
//! a walk may begin.

use std::hint::select_unpredictable;

use super::lead_of;
use crate::codec::{Malformed, Reader};

const LONG: u8 = 254;
const LONGEST: u8 = 255;

/// Bytes that an item of this length takes in a piece.
pub(in crate::table) fn item_bytes(length: usize) -> usize {
    match length {
        0..=253 => 1 + length,
        254..=0xffff => 3 + length,
        _ => 5 + length,
    }
}

pub(in crate::table) fn put_item(item: &[u8], out: &mut Vec<u8>) {
    out.reserve(item_bytes(item.len()));
    match item.len() {
        length @ 0..=253 => out.push(length as u8),
        length @ 254..=0xffff => {
            out.push(LONG);
            out.extend_from_slice(&(length as u16).to_le_bytes());
        }
        length => {
            out.push(LONGEST);
            out.extend_from_slice(&(length as u32).to_le_bytes());
        }
    }
    out.extend_from_slice(item);
}

/// Writes an item into `out`, which has exactly [`item_bytes`] bytes.
fn write_item(item: &[u8], out: &mut [u8]) {
    let head = out.len() - item.len();
    match item.len() {
        length @ 0..=253 => out[0] = length as u8,
        length @ 254..=0xffff => {
            out[0] = LONG;
            out[1..head].copy_from_slice(&(length as u16).to_le_bytes());
        }
        length => {
            out[0] = LONGEST;
            out[1..head].copy_from_slice(&(length as u32).to_le_bytes());
        }
    }
    out[head..].copy_from_slice(item);
}

/// Takes an item off the front of untrusted bytes.
///
/// # Errors
/// [`Malformed`] unless the bytes begin with an item, written as [`put_item`] writes it.
pub(in crate::table) fn take_item<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let (least, length) = match reader.u8()? {
        LONG => (254, reader.u16()? as usize),
        LONGEST => (0x10000, reader.u32()? as usize),
        length => (0, length as usize),
    };
    if length < least {
        return Err(Malformed("a length that is written too long"));
    }
    reader.take(length)
}

/// The range of the item that begins at `at`. The bytes are trusted: written here, or checked.
#[inline(always)]
fn item_at(bytes: &[u8], at: usize) -> std::ops::Range<usize> {
    let first = bytes[at];
    if first < LONG {
        return at + 1..at + 1 + first as usize;
    }
    long_item_at(bytes, at)
}

#[cold]
fn long_item_at(bytes: &[u8], at: usize) -> std::ops::Range<usize> {
    let (start, length) = match bytes[at] {
        LONG => (at + 3, u16::from_le_bytes([bytes[at + 1], bytes[at + 2]]) as usize),
        LONGEST => {
            let length = [bytes[at + 1], bytes[at + 2], bytes[at + 3], bytes[at + 4]];
            (at + 5, u32::from_le_bytes(length) as usize)
        }
        length => (at + 1, length as usize),
    };
    start..start + length
}

/// [`lead_of`] for an item in a piece, without a branch on its length where eight bytes can be read.
#[inline]
fn lead_in(bytes: &[u8], item: std::ops::Range<usize>) -> u64 {
    match bytes[item.start..].first_chunk::<8>() {
        Some(chunk) if !item.is_empty() => {
            let others = 8_usize.saturating_sub(item.len()) * 8;
            u64::from_be_bytes(*chunk) >> others << others
        }
        _ => lead_of(&bytes[item]),
    }
}

/// The place of an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    rank: u16,
    /// The offset at which it begins.
    at: u16,
}

/// Marks at about a quarter, half and three quarters of the items; all zero if there are none.
type Marks = [Mark; 3];

/// The fewest items for which marks pay off.
const MARKED_ITEMS: usize = if cfg!(test) { 3 } else { 16 };

/// A read-only view of a piece.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::table) struct Piece<'a> {
    bytes: &'a [u8],
    count: usize,
    /// Bytes that each item takes; 0 if they are not known to be the same for all.
    stride: usize,
    /// Whether items have no lengths in front.
    is_bare: bool,
    marks: Marks,
}

impl<'a> Piece<'a> {
    pub(in crate::table) const EMPTY: Piece<'static> =
        Piece { bytes: &[], count: 0, stride: 0, is_bare: false, marks: [Mark { rank: 0, at: 0 }; 3] };

    pub(in crate::table) fn new(bytes: &'a [u8], count: usize) -> Piece<'a> {
        Piece { bytes, count, ..Piece::EMPTY }
    }

    /// A piece without lengths.
    ///
    /// # Panics
    /// Unless there are items, all of which have the same length, not 0.
    pub(in crate::table) fn bare(bytes: &'a [u8], count: usize) -> Piece<'a> {
        let stride = bytes.len() / count;
        assert!(stride > 0 && stride * count == bytes.len(), "items without lengths have the same one");
        Piece { bytes, count, stride, is_bare: true, ..Piece::EMPTY }
    }

    /// The range of the item that begins at an offset.
    #[inline(always)]
    fn item_at(self, at: usize) -> std::ops::Range<usize> {
        if self.is_bare { at..at + self.stride } else { item_at(self.bytes, at) }
    }

    /// The length of all items, if it is the same. O(items) at worst.
    pub(in crate::table) fn length_of_all(self) -> Option<usize> {
        let length = self.iter().next()?.len();
        let is_same = self.stride > 0 || self.iter().all(|item| item.len() == length);
        is_same.then_some(length)
    }

    /// The bytes that the items take with their lengths.
    pub(in crate::table) fn bytes_with_lengths(self) -> usize {
        if self.is_bare { self.count * item_bytes(self.stride) } else { self.bytes.len() }
    }

    pub(in crate::table) fn len(self) -> usize {
        self.count
    }

    /// The encoded items, without their count.
    pub(in crate::table) fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The offset of an item, or of the end.
    pub(super) fn offset(self, rank: usize) -> usize {
        if rank == self.count {
            return self.bytes.len();
        }
        if self.stride > 0 {
            return rank * self.stride;
        }
        (0..rank).fold(0, |at, _| self.item_at(at).end)
    }

    pub(in crate::table) fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        self.iter_from(0)
    }

    pub(super) fn iter_from(self, rank: usize) -> PieceIter<'a> {
        self.iter_at(self.offset(rank))
    }

    /// The items from an offset on; an item must begin there.
    pub(super) fn iter_at(self, at: usize) -> PieceIter<'a> {
        PieceIter { bytes: self.bytes, at, bare_length: if self.is_bare { self.stride } else { 0 } }
    }

    /// The number of items that are less than `key`, the offset of the next item, and whether that item is equal to `key`.
    /// The items must be in order.
    pub(super) fn find(self, key: &[u8]) -> (usize, usize, bool) {
        let lead = lead_of(key);
        let (from, mut at) = match self.stride {
            0 => self.last_mark_with_less(lead),
            stride => {
                let from = self.last_with_less(lead);
                (from, from * stride)
            }
        };
        for rank in from..self.count {
            let range = self.item_at(at);
            let end = range.end;
            // The first bytes are decisive for most items.
            let item_lead = lead_in(self.bytes, range.clone());
            if item_lead > lead {
                return (rank, at, false);
            }
            if item_lead == lead {
                match self.bytes[range].cmp(key) {
                    std::cmp::Ordering::Less => {}
                    order => return (rank, at, order.is_eq()),
                }
            }
            at = end;
        }
        (self.count, self.bytes.len(), false)
    }

    /// The rank and the offset of the last marked item whose first bytes are less than `lead`, or of the first item.
    #[inline]
    fn last_mark_with_less(self, lead: u64) -> (usize, usize) {
        let mut last = Mark::default();
        for mark in self.marks {
            // Without marks, this looks at the first item.
            let at = usize::from(mark.at);
            let is_less = at < self.bytes.len() && lead_in(self.bytes, self.item_at(at)) < lead;
            // No branches, for the same reason as below.
            let (rank, at) = (
                select_unpredictable(is_less, mark.rank, last.rank),
                select_unpredictable(is_less, mark.at, last.at),
            );
            last = Mark { rank, at };
        }
        (last.rank.into(), last.at.into())
    }

    /// Where all items have the same length, the last item whose first bytes are less than `lead`, or the first item.
    #[inline]
    fn last_with_less(self, lead: u64) -> usize {
        let head = if self.is_bare { 0 } else { item_at(self.bytes, 0).start };
        let others = 8_usize.saturating_sub(self.stride - head) as u32 * 8;
        let mask = u64::MAX.checked_shl(others).unwrap_or(0);
        let (mut from, mut to) = (0, self.count);
        while to - from > 1 {
            let middle = (from + to) / 2;
            let start = middle * self.stride + head;
            let middle_lead = match self.bytes[start..].first_chunk::<8>() {
                Some(chunk) => u64::from_be_bytes(*chunk) & mask,
                None => lead_of(&self.bytes[start..(middle + 1) * self.stride]),
            };
            // No branch: it would be mispredicted every other time.
            let is_less = middle_lead < lead;
            from = select_unpredictable(is_less, middle, from);
            to = select_unpredictable(is_less, to, middle);
        }
        from
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct PieceIter<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The length of each item, if the lengths are not stored; otherwise 0.
    bare_length: usize,
}

impl PieceIter<'_> {
    /// The offset of the next item, or of the end.
    pub(super) fn offset(&self) -> usize {
        self.at
    }
}

impl<'a> Iterator for PieceIter<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.at == self.bytes.len() {
            return None;
        }
        let range = match self.bare_length {
            0 => item_at(self.bytes, self.at),
            length => self.at..self.at + length,
        };
        self.at = range.end;
        Some(&self.bytes[range])
    }
}

/// A piece that can be changed. There may be spare room in front of the items, so that lists change as fast at the front as
/// at the back.
#[derive(Clone, Debug, Default)]
pub(super) struct Leaf {
    bytes: Vec<u8>,
    /// Where the items begin.
    start: usize,
    count: u32,
    /// Bytes that each item takes; 0 if they are not known to be the same for all.
    stride: u32,
    marks: Marks,
}

/// The fields that a search reads first share a cache line.
const _: () =
    assert!(size_of::<Leaf>() + size_of::<usize>() <= 64, "a leaf and its count of owners fill one line");

impl Leaf {
    pub(super) fn of(item: &[u8]) -> Leaf {
        Leaf::with_room(item, 0, false)
    }

    /// A leaf with room for `bytes` bytes, in front of the item or behind it: adding items there moves nothing.
    pub(super) fn with_room(item: &[u8], bytes: usize, is_in_front: bool) -> Leaf {
        let needed = item_bytes(item.len());
        let mut leaf = Leaf { bytes: Vec::with_capacity(bytes.max(needed)), ..Leaf::default() };
        if is_in_front {
            leaf.start = bytes.saturating_sub(needed);
            leaf.bytes.resize(leaf.start, 0);
        }
        leaf.insert(0, item);
        leaf
    }

    pub(super) fn view(&self) -> Piece<'_> {
        let (count, stride) = (self.count(), self.stride as usize);
        Piece { bytes: &self.bytes[self.start..], count, stride, is_bare: false, marks: self.marks }
    }

    pub(super) fn count(&self) -> usize {
        self.count as usize
    }

    /// Whether a walk would be long because marks are missing or badly placed.
    #[inline]
    pub(super) fn needs_marks(&self) -> bool {
        let count = self.count();
        let [first, second, third] = self.marks.map(|mark| usize::from(mark.rank));
        let longest = first.max(second - first).max(third - second).max(count - third);
        self.stride == 0 && longest > count / 2 && (MARKED_ITEMS..=u16::MAX.into()).contains(&count)
    }

    /// Places the marks. Walks over all items.
    pub(super) fn mark(&mut self) {
        let (view, quarter) = (self.view(), self.count() / 4);
        let (mut rank, mut at) = (0, 0);
        let marks = [1, 2, 3].map(|quarters| {
            while rank < quarters * quarter {
                (rank, at) = (rank + 1, view.item_at(at).end);
            }
            Some(Mark { rank: rank.try_into().ok()?, at: at.try_into().ok()? })
        });
        // Unless an item is so long that an offset does not fit.
        self.marks = marks.map(|mark| mark.unwrap_or_default());
        if marks.contains(&None) {
            self.marks = Marks::default();
        }
    }

    /// Moves the marks behind an offset along with their items: this many items and bytes were inserted in front of them.
    fn shift_marks(&mut self, from: usize, items: u16, bytes: usize) {
        for mark in &mut self.marks {
            if mark.rank > 0 && usize::from(mark.at) >= from {
                match usize::from(mark.at).checked_add(bytes).and_then(|at| at.try_into().ok()) {
                    Some(at) => *mark = Mark { rank: mark.rank + items, at },
                    None => return self.marks = Marks::default(),
                }
            }
        }
    }

    pub(super) fn byte_count(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Replaces the contents; keeps the memory.
    pub(super) fn load(&mut self, piece: Piece<'_>) {
        self.bytes.clear();
        if piece.is_bare {
            self.bytes.reserve(piece.bytes_with_lengths());
            piece.bytes.chunks_exact(piece.stride).for_each(|item| put_item(item, &mut self.bytes));
        } else {
            self.bytes.extend_from_slice(piece.bytes);
        }
        let stride = if piece.is_bare { item_bytes(piece.stride) } else { piece.stride };
        (self.start, self.count, self.stride) = (0, piece.count as u32, stride as u32);
        self.marks = Marks::default();
    }

    pub(super) fn insert(&mut self, rank: usize, item: &[u8]) {
        self.insert_at(rank, self.view().offset(rank), item);
    }

    /// Adds an item, which gets this rank, and begins at this offset.
    pub(super) fn insert_at(&mut self, rank: usize, at: usize, item: &[u8]) {
        debug_assert_eq!(at, self.view().offset(rank));
        let needed = item_bytes(item.len());
        self.shift_marks(at, 1, needed);
        let at = if rank == 0 && self.count > 0 {
            self.make_room_in_front(needed);
            self.start -= needed;
            self.start
        } else {
            self.make_room_behind(needed);
            let (at, before) = (self.start + at, self.bytes.len());
            self.bytes.resize(before + needed, 0);
            self.bytes.copy_within(at..before, at + needed);
            at
        };
        write_item(item, &mut self.bytes[at..at + needed]);
        self.stride = if self.count == 0 || self.stride as usize == needed { needed as u32 } else { 0 };
        self.count += 1;
    }

    /// How much room to make at once: some for the next items, but less than twice what is needed.
    fn room(&self, needed: usize) -> usize {
        needed + self.byte_count() / 4
    }

    fn make_room_in_front(&mut self, needed: usize) {
        if self.start >= needed {
            return;
        }
        let (before, room) = (self.bytes.len(), self.room(needed));
        let spare = self.bytes.capacity() - before;
        if spare < needed {
            self.bytes.reserve_exact(room);
        }
        let more = if spare < needed { room } else { room.min(spare) };
        self.bytes.resize(before + more, 0);
        self.bytes.copy_within(self.start..before, self.start + more);
        self.start += more;
    }

    fn make_room_behind(&mut self, needed: usize) {
        if self.bytes.capacity() - self.bytes.len() < needed {
            self.close_front();
            if self.bytes.capacity() - self.bytes.len() < needed {
                self.bytes.reserve_exact(self.room(needed));
            }
        }
    }

    fn close_front(&mut self) {
        self.bytes.drain(..self.start);
        self.start = 0;
    }

    pub(super) fn remove(&mut self, from: usize, to: usize) {
        let (start, end) = (self.view().offset(from), self.view().offset(to));
        match from {
            0 => self.start += end,
            _ => drop(self.bytes.drain(self.start + start..self.start + end)),
        }
        self.count -= (to - from) as u32;
        self.marks = Marks::default();
        let held = self.byte_count();
        if self.bytes.capacity() > 2 * held + 64 {
            self.close_front();
            self.bytes.shrink_to(held + held / 4);
        }
    }

    /// The bytes of the item that begins at an offset.
    pub(super) fn item_mut(&mut self, at: usize) -> &mut [u8] {
        let range = item_at(&self.bytes, self.start + at);
        &mut self.bytes[range]
    }

    /// Frees the room for further items.
    pub(super) fn shrink(&mut self) {
        self.close_front();
        self.bytes.shrink_to_fit();
    }

    /// Takes out the items from `rank` on.
    pub(super) fn split_off(&mut self, rank: usize) -> Leaf {
        let bytes = self.bytes.split_off(self.start + self.view().offset(rank));
        let count = self.count - rank as u32;
        self.count = rank as u32;
        self.marks = Marks::default();
        self.shrink();
        Leaf { bytes, start: 0, count, stride: self.stride, marks: Marks::default() }
    }

    /// Asserts that items have the lengths that the leaf records.
    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        assert!(self.start <= self.bytes.len());
        assert_eq!(self.view().iter().count(), self.count());
        let is_uniform = self.view().iter().all(|item| item_bytes(item.len()) == self.stride as usize);
        assert!(self.stride == 0 || is_uniform);
        assert!(self.marks.is_sorted_by_key(|mark| mark.rank));
        for Mark { rank, at } in self.marks {
            assert_eq!(self.view().offset(rank.into()), at.into(), "a mark is where its item begins");
        }
    }

    /// The rank at which half of the bytes are in front; neither 0 nor the number of items.
    pub(super) fn middle(&self) -> usize {
        let (bytes, mut at) = (self.view().bytes(), 0);
        let rank = (0..self.count()).take_while(|_| {
            at = item_at(bytes, at).end;
            at * 2 <= bytes.len()
        });
        rank.count().clamp(1, self.count().max(2) - 1)
    }

    pub(super) fn append(&mut self, other: Piece<'_>) {
        assert!(!other.is_bare, "the items of leaves have lengths");
        self.bytes.extend_from_slice(other.bytes);
        self.count += other.count as u32;
        if self.stride as usize != other.stride {
            self.stride = 0;
        }
    }
}
