//! The items of a hash: its fields, in the order in which they were added.
//!
//! ```text
//! number u64, big-endian | head | deadline u64, if there is one | field | value
//! head: twice the length of the field, and 1 if there is a deadline, seven bits in a byte, the lowest first
//! ```
//!
//! A new field gets the number behind the last one, so it stands at the end, and stays where it is when its value
//! changes. The numbers follow from the commands alone, so replicas have the same.

use super::NO_DEADLINE;
use super::collections::{Collection, Key};
use super::entry::Kind;
use crate::UnixMs;
use crate::codec::{Malformed, Reader};
use std::collections::BTreeSet;

/// A field as an item of a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field<'i> {
    pub(super) number: Key,
    /// [`NO_DEADLINE`] if it does not expire.
    pub(super) deadline: UnixMs,
    pub(super) name: &'i [u8],
    pub(super) value: &'i [u8],
}

impl<'i> Field<'i> {
    /// Reads an item from elsewhere.
    ///
    /// # Errors
    /// [`Malformed`] unless it is a field as [`Field::put`] writes it.
    pub(super) fn check(item: &'i [u8]) -> Result<Field<'i>, Malformed> {
        const NOT_A_FIELD: Malformed = Malformed("an item of a hash that is no field");
        let field = Field::read(item).ok_or(NOT_A_FIELD)?;
        let mut again = Vec::with_capacity(item.len());
        field.put(&mut again);
        let is_sound = again == item && (field.deadline == NO_DEADLINE) != has_deadline(item);
        if is_sound { Ok(field) } else { Err(NOT_A_FIELD) }
    }

    /// Reads an item, which is trusted: written here, or checked.
    #[inline]
    pub(super) fn of(item: &'i [u8]) -> Field<'i> {
        match Field::read(item) {
            Some(field) => field,
            None => unreachable!("an item of a hash is a field"),
        }
    }

    #[inline]
    fn read(item: &'i [u8]) -> Option<Field<'i>> {
        let (number, mut rest) = item.split_first_chunk::<8>()?;
        let (mut head, mut shift) = (0_u64, 0);
        loop {
            let (byte, behind) = rest.split_first()?;
            head |= u64::from(byte & 0x7f) << shift;
            (rest, shift) = (behind, shift + 7);
            if byte & 0x80 == 0 {
                break;
            }
            if shift > 35 {
                return None;
            }
        }
        let mut deadline = NO_DEADLINE;
        if head & 1 == 1 {
            let (bytes, behind) = rest.split_first_chunk::<8>()?;
            (deadline, rest) = (u64::from_be_bytes(*bytes), behind);
        }
        let (name, value) = rest.split_at_checked((head >> 1) as usize)?;
        Some(Field { number: *number, deadline, name, value })
    }

    /// Appends the item.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.number);
        let has_deadline = self.deadline != NO_DEADLINE;
        let mut head = (self.name.len() as u64) << 1 | u64::from(has_deadline);
        while head > 0x7f {
            out.push(head as u8 | 0x80);
            head >>= 7;
        }
        out.push(head as u8);
        if has_deadline {
            out.extend_from_slice(&self.deadline.to_be_bytes());
        }
        out.extend_from_slice(self.name);
        out.extend_from_slice(self.value);
    }

    pub(super) fn is_live(&self, now: UnixMs) -> bool {
        self.deadline > now
    }
}

/// Whether an item has a deadline: its head says so.
fn has_deadline(item: &[u8]) -> bool {
    item.get(8).is_some_and(|head| head & 1 == 1)
}

/// Reads a hash as it was written when a hash was one piece of memory: a count, the fields in their order, and
/// their places in the order of their hashes, which are not needed any more.
///
/// # Errors
/// [`Malformed`] unless it is one, with at least one field.
pub(super) fn read_old(value: &[u8]) -> Result<Collection, Malformed> {
    const PLACE_BYTES: usize = 8;
    let mut reader = Reader::new(value);
    let count = reader.u32()? as usize;
    let (mut hash, mut names) = (Collection::new(Kind::Hash), BTreeSet::new());
    for _ in 0..count {
        let (name_bytes, value_bytes) = (reader.u32()? as usize, reader.u32()? as usize);
        let (name, value) = (reader.take(name_bytes)?, reader.take(value_bytes)?);
        if !names.insert(name) {
            return Err(Malformed("a field of a hash that is there twice"));
        }
        hash.add_field(name, value, NO_DEADLINE);
    }
    let is_whole = reader.rest().len() == count * PLACE_BYTES && count > 0;
    if is_whole { Ok(hash) } else { Err(Malformed("the value of a hash is not what it says")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_field_is_read_as_it_was_written(
            number in any::<[u8; 8]>(),
            deadline in prop_oneof![Just(NO_DEADLINE), 0..NO_DEADLINE],
            name in vec(any::<u8>(), 0..200),
            value in vec(any::<u8>(), 0..50),
        ) {
            let (field, mut item) = (Field { number, deadline, name: &name, value: &value }, Vec::new());
            field.put(&mut item);
            prop_assert_eq!(Field::check(&item), Ok(field));
            prop_assert_eq!(Field::of(&item), field);
        }

        #[test]
        fn bytes_that_are_no_field_are_found_out(item in vec(any::<u8>(), 0..30)) {
            if let Ok(field) = Field::check(&item) {
                let mut again = Vec::new();
                field.put(&mut again);
                prop_assert_eq!(again, item);
            }
        }
    }

    #[test]
    fn an_item_has_no_other_form() {
        let mut item = Vec::new();
        Field { number: [0; 8], deadline: NO_DEADLINE, name: b"f", value: b"v" }.put(&mut item);
        assert_eq!(item[8..], *b"\x02fv");
        let longer = [&item[..8], b"\x82\x00fv"].concat();
        assert!(Field::check(&longer).is_err(), "a head that is longer than it must be");
        let never = [&item[..8], b"\x03\xff\xff\xff\xff\xff\xff\xff\xfff"].concat();
        assert!(Field::check(&never).is_err(), "a deadline that is none");
        assert!(Field::check(&item[..8]).is_err());
    }

    #[test]
    fn hashes_of_earlier_versions_are_read() {
        let old = b"\x02\0\0\0\x01\0\0\0\x02\0\0\0bvw\x01\0\0\0\0\0\0\0a________________";
        let hash = read_old(old).unwrap();
        let told: Vec<Field<'_>> = hash.items().iter_from(0).map(Field::of).collect();
        assert_eq!(
            told.iter().map(|field| (field.name, field.value)).collect::<Vec<_>>(),
            [(&b"b"[..], &b"vw"[..]), (b"a", b"")]
        );
        assert!((0..old.len()).all(|end| read_old(&old[..end]).is_err()));
    }
}
