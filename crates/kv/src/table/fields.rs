//! The fields of a hash as bytes: the value of its entry.
//!
//! ```text
//! count u32 | items | places
//! item:  length of the field u32 | length of the value u32 | field | value
//! place: hash of the field u32 | offset of its item u32
//! ```
//!
//! Items are in the order in which the fields were added, places in the order of hashes and, where those are equal, of
//! fields. So a binary search finds a field; fields are returned in the order in which they were added, as Redis does
//! with small hashes; and a scan goes by hashes, which never change, so it returns a field that exists throughout
//! exactly once.
//!
//! One allocation for everything: a hash of a few fields, such as locks and sessions have, costs hardly more than a
//! string, and is copied, saved for a snapshot and restored by a script as a unit. The price is that a change moves
//! everything behind it: 2 to 3 ms in a hash of [`HASH_BYTES_MAX`](crate::limits::HASH_BYTES_MAX), 2 us in one of a
//! thousand fields.
//!
//! The bytes follow from the commands alone (the hash of a field is the same everywhere), so replicas have the same
//! bytes.

use crate::codec::{Malformed, Reader, Writer};
use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};
use std::collections::BTreeMap;

const COUNT_BYTES: usize = 4;
const PLACE_BYTES: usize = 8;
const ITEM_HEAD_BYTES: usize = 8;

/// The hash of a field. It must not change: replicas would differ, and old snapshots would be unreadable.
fn hash_of(field: &[u8]) -> u32 {
    const SECRETS: RapidSecrets = RapidSecrets::seed(0x0066_6965_6c64_7321);
    (rapidhash_v3_seeded(field, &SECRETS) >> 32) as u32
}

fn item_bytes(field: &[u8], value: &[u8]) -> usize {
    ITEM_HEAD_BYTES + field.len() + value.len()
}

fn number_at(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

fn put_number(bytes: &mut [u8], at: usize, number: usize) {
    bytes[at..at + 4].copy_from_slice(&(number as u32).to_le_bytes());
}

/// A read-only view of the fields of a hash.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'v> {
    bytes: &'v [u8],
}

impl<'v> Fields<'v> {
    /// A view of the value of an entry that holds a hash. The bytes are trusted: written here, or checked.
    pub(super) fn of(value: &'v [u8]) -> Fields<'v> {
        Fields { bytes: value }
    }

    /// A view of bytes from elsewhere, after checking them.
    ///
    /// # Errors
    /// [`Malformed`] unless they are a valid hash with at least one field.
    pub(super) fn check(value: &'v [u8]) -> Result<Fields<'v>, Malformed> {
        const NOT_A_HASH: Malformed = Malformed("the value of a hash is not what it says");
        let mut reader = Reader::new(value);
        let count = reader.u32()? as usize;
        let mut items = BTreeMap::new();
        for _ in 0..count {
            let offset = value.len() - reader.rest().len();
            let (field_bytes, value_bytes) = (reader.u32()? as usize, reader.u32()? as usize);
            let field = reader.take(field_bytes)?;
            reader.take(value_bytes)?;
            items.insert((hash_of(field), field), offset);
        }
        let is_whole = items.len() == count && reader.rest().len() == count * PLACE_BYTES && count > 0;
        let is_sorted = is_whole
            && items
                .iter()
                .all(|((hash, _), offset)| reader.u32() == Ok(*hash) && reader.u32() == Ok(*offset as u32));
        if is_sorted { Ok(Fields { bytes: value }) } else { Err(NOT_A_HASH) }
    }

    /// The number of fields.
    pub(super) fn len(&self) -> usize {
        number_at(self.bytes, 0) as usize
    }

    /// Bytes of the whole hash.
    pub(super) fn byte_count(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes that a new field adds to a hash.
    pub(super) fn bytes_of(field: &[u8], value: &[u8]) -> usize {
        item_bytes(field, value) + PLACE_BYTES
    }

    /// The offset at which the places begin.
    fn places(&self) -> usize {
        self.bytes.len() - self.len() * PLACE_BYTES
    }

    fn place(&self, rank: usize) -> usize {
        self.places() + rank * PLACE_BYTES
    }

    fn hash_at(&self, rank: usize) -> u32 {
        number_at(self.bytes, self.place(rank))
    }

    fn offset_at(&self, rank: usize) -> usize {
        number_at(self.bytes, self.place(rank) + 4) as usize
    }

    fn item(&self, offset: usize) -> (&'v [u8], &'v [u8]) {
        let field_bytes = number_at(self.bytes, offset) as usize;
        let value_bytes = number_at(self.bytes, offset + 4) as usize;
        let start = offset + ITEM_HEAD_BYTES;
        self.bytes[start..start + field_bytes + value_bytes].split_at(field_bytes)
    }

    /// The rank of a field among the places; `Err` with the rank at which to insert it if it does not exist.
    fn rank(&self, field: &[u8]) -> Result<usize, usize> {
        let wanted = (hash_of(field), field);
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            let held = self.hash_at(middle);
            let order = held.cmp(&wanted.0).then_with(|| self.item(self.offset_at(middle)).0.cmp(wanted.1));
            match order {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// The value of a field.
    pub(super) fn get(&self, field: &[u8]) -> Option<&'v [u8]> {
        self.rank(field).ok().map(|rank| self.item(self.offset_at(rank)).1)
    }

    /// Iterates over fields with their values, in the order in which they were added.
    pub(super) fn iter(self) -> impl Iterator<Item = (&'v [u8], &'v [u8])> {
        let mut offset = COUNT_BYTES;
        let end = self.places();
        std::iter::from_fn(move || {
            let (field, value) = (offset < end).then(|| self.item(offset))?;
            offset += item_bytes(field, value);
            Some((field, value))
        })
    }

    /// Passes about `count` fields from a cursor on to `tell`, and returns the cursor for the rest; 0 means both start
    /// and end. Fields with equal hashes are passed together.
    pub(super) fn scan(self, cursor: u64, count: u64, mut tell: impl FnMut(&'v [u8], &'v [u8])) -> u64 {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            if u64::from(self.hash_at(middle)) < cursor { low = middle + 1 } else { high = middle }
        }
        for rank in low..self.len() {
            let hash = self.hash_at(rank);
            let is_enough = (rank - low) as u64 >= count.max(1);
            if is_enough && hash != self.hash_at(rank - 1) {
                return hash.into();
            }
            let (field, value) = self.item(self.offset_at(rank));
            tell(field, value);
        }
        0
    }

    /// Returns the edit that sets a field, new or not: see [`Edit::apply`].
    pub(super) fn set<'e>(&self, field: &'e [u8], value: &'e [u8]) -> Edit<'e> {
        let before = self.bytes.len();
        match self.rank(field) {
            Ok(rank) => {
                let held = self.item(self.offset_at(rank)).1.len();
                Edit { before, after: before - held + value.len(), what: What::Replace { rank, value } }
            }
            Err(rank) => {
                let after = before + item_bytes(field, value) + PLACE_BYTES;
                Edit { before, after, what: What::Add { rank, field, value } }
            }
        }
    }

    /// Returns the edit that removes a field, if it exists. Not for the last field: then the key itself is removed.
    pub(super) fn remove(&self, field: &[u8]) -> Option<Edit<'static>> {
        let rank = self.rank(field).ok()?;
        let (field, value) = self.item(self.offset_at(rank));
        let before = self.bytes.len();
        let after = before - item_bytes(field, value) - PLACE_BYTES;
        Some(Edit { before, after, what: What::Remove { rank } })
    }
}

/// A change of one field, computed before room is made for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edit<'e> {
    before: usize,
    after: usize,
    what: What<'e>,
}

#[derive(Clone, Copy, Debug)]
enum What<'e> {
    Add { rank: usize, field: &'e [u8], value: &'e [u8] },
    Replace { rank: usize, value: &'e [u8] },
    Remove { rank: usize },
}

impl Edit<'_> {
    /// Bytes of the hash after the change.
    pub(super) fn length_after(&self) -> usize {
        self.after
    }

    /// Whether the change adds a field.
    pub(super) fn adds(&self) -> bool {
        matches!(self.what, What::Add { .. })
    }

    /// Applies the change to the bytes for which it was computed. If it makes the hash longer, there must be room
    /// behind them.
    pub(super) fn apply(&self, bytes: &mut [u8]) {
        let Edit { before, after, what } = *self;
        let held = Fields::of(&bytes[..before]);
        let (count, places) = (held.len(), held.places());
        match what {
            What::Add { rank, field, value } => {
                let (place, item) = (held.place(rank), item_bytes(field, value));
                // From the back to the front, since everything moves backward.
                bytes.copy_within(place..before, place + item + PLACE_BYTES);
                bytes.copy_within(places..place, places + item);
                put_number(bytes, place + item, hash_of(field) as usize);
                put_number(bytes, place + item + 4, places);
                put_number(bytes, places, field.len());
                put_number(bytes, places + 4, value.len());
                let start = places + ITEM_HEAD_BYTES;
                bytes[start..start + field.len()].copy_from_slice(field);
                bytes[start + field.len()..places + item].copy_from_slice(value);
                put_number(bytes, 0, count + 1);
            }
            What::Replace { rank, value } => {
                let offset = held.offset_at(rank);
                let (field, old) = held.item(offset);
                let start = offset + ITEM_HEAD_BYTES + field.len();
                let end = start + old.len();
                if after != before {
                    bytes.copy_within(end..before, start + value.len());
                    put_number(bytes, offset + 4, value.len());
                    move_offsets(&mut bytes[..after], count, offset, after as i64 - before as i64);
                }
                bytes[start..start + value.len()].copy_from_slice(value);
            }
            What::Remove { rank } => {
                let (offset, place) = (held.offset_at(rank), held.place(rank));
                let (field, value) = held.item(offset);
                let end = offset + item_bytes(field, value);
                bytes.copy_within(end..place, offset);
                bytes.copy_within(place + PLACE_BYTES..before, place - (end - offset));
                put_number(bytes, 0, count - 1);
                move_offsets(&mut bytes[..after], count - 1, offset, -((end - offset) as i64));
            }
        }
    }
}

/// Adjusts the places for items behind `offset` that have moved by `by` bytes.
fn move_offsets(bytes: &mut [u8], count: usize, offset: usize, by: i64) {
    let places = bytes.len() - count * PLACE_BYTES;
    // All of them, without a branch: a hash may have hundreds of thousands.
    for place in bytes[places..].as_chunks_mut::<PLACE_BYTES>().0 {
        let held = u64::from_le_bytes(*place);
        let (hash, item) = (held as u32, (held >> 32) as u32);
        let moved = item.wrapping_add(if item as usize > offset { by as u32 } else { 0 });
        *place = (u64::from(moved) << 32 | u64::from(hash)).to_le_bytes();
    }
}

/// Returns the bytes of a hash with these fields, in this order; no field may occur twice. For many at once: adding
/// them one by one would move the bytes each time.
pub(super) fn build<'f>(fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) -> Vec<u8> {
    let mut bytes = vec![0; COUNT_BYTES];
    let mut places = Vec::new();
    for (field, value) in fields {
        places.push((hash_of(field), field, bytes.len()));
        bytes.put_u32(field.len() as u32);
        bytes.put_u32(value.len() as u32);
        bytes.extend_from_slice(field);
        bytes.extend_from_slice(value);
    }
    places.sort_unstable();
    put_number(&mut bytes, 0, places.len());
    for (hash, _, offset) in places {
        bytes.put_u32(hash);
        bytes.put_u32(offset as u32);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(bytes: &mut Vec<u8>, edit: Edit<'_>) {
        bytes.resize(edit.before.max(edit.after), 0);
        edit.apply(bytes);
        bytes.truncate(edit.after);
    }

    fn told(bytes: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        Fields::of(bytes).iter().map(|(field, value)| (field.to_vec(), value.to_vec())).collect()
    }

    /// The simplest possible model of a hash.
    #[derive(Default)]
    struct Model(Vec<(Vec<u8>, Vec<u8>)>);

    impl Model {
        fn set(&mut self, field: &[u8], value: &[u8]) {
            match self.0.iter_mut().find(|(held, _)| held == field) {
                Some((_, held)) => *held = value.to_vec(),
                None => self.0.push((field.to_vec(), value.to_vec())),
            }
        }
    }

    #[test]
    fn fields_keep_their_order_through_all_changes() {
        let mut random = 1u64;
        let mut draw = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let (mut bytes, mut model) = (build([(&b"f0"[..], &b""[..])].into_iter()), Model::default());
        model.set(b"f0", b"");
        for _ in 0..3000 {
            let field = format!("f{}", draw(40)).into_bytes();
            let value = vec![b'v'; draw(20) as usize];
            let fields = Fields::of(&bytes);
            if draw(3) == 0 && model.0.len() > 1 {
                let edit = fields.remove(&field);
                assert_eq!(edit.is_some(), model.0.iter().any(|(held, _)| *held == field));
                model.0.retain(|(held, _)| *held != field);
                edit.into_iter().for_each(|edit| change(&mut bytes, edit));
            } else {
                let edit = fields.set(&field, &value);
                model.set(&field, &value);
                change(&mut bytes, edit);
            }
            assert_eq!(told(&bytes), model.0);
            for (field, value) in &model.0 {
                assert_eq!(Fields::of(&bytes).get(field), Some(&value[..]));
            }
            assert!(Fields::check(&bytes).is_ok());
            let built = build(model.0.iter().map(|(field, value)| (&field[..], &value[..])));
            assert_eq!(bytes, built, "the bytes follow from the fields and their order alone");
        }
    }

    #[test]
    fn a_scan_tells_every_field_once_however_it_is_cut_and_whatever_goes_meanwhile() {
        let names: Vec<Vec<u8>> = (0..500).map(|number| format!("field{number}").into_bytes()).collect();
        let mut bytes = build(names.iter().map(|name| (&name[..], &b"v"[..])));
        let (mut seen, mut cursor, mut gone) = (Vec::new(), 0, 0);
        loop {
            cursor = Fields::of(&bytes).scan(cursor, 7, |field, _| seen.push(field.to_vec()));
            if cursor == 0 {
                break;
            }
            // One that was returned already, and one that did not exist before.
            let edit = Fields::of(&bytes).remove(&seen[gone]).unwrap();
            gone += 1;
            change(&mut bytes, edit);
            let late = format!("late{gone}").into_bytes();
            let edit = Fields::of(&bytes).set(&late, b"v");
            change(&mut bytes, edit);
        }
        seen.retain(|field| field.starts_with(b"field"));
        seen.sort();
        let mut expected = names;
        expected.sort();
        assert_eq!(seen, expected);
    }

    #[test]
    fn bytes_that_are_no_hash_are_found_out() {
        let whole = build([(&b"a"[..], &b"1"[..]), (b"b", b"22")].into_iter());
        assert_eq!(Fields::check(&whole).unwrap().len(), 2);
        for end in 0..whole.len() {
            assert!(Fields::check(&whole[..end]).is_err(), "{end}");
        }
        for at in 0..whole.len() {
            let mut other = whole.clone();
            other[at] ^= 0x40;
            // Values may be any bytes; nothing else may.
            assert_eq!(Fields::check(&other).is_ok(), [13, 23, 24].contains(&at), "{at}");
        }
        assert!(Fields::check(&build(std::iter::empty())).is_err(), "a hash without fields");
        let twice = build([(&b"a"[..], &b"1"[..]), (b"a", b"2")].into_iter());
        assert!(Fields::check(&twice).is_err());
    }
}
