//! The items of a hash: its fields with their values.
//!
//! ```text
//! in a small hash: field                          in the order in which they were added
//! in a large hash: hash of the name u32 | field   in ascending order
//! field: head | name | deadline u64, if there is one | value
//! head: twice the length of the name, and 1 if there is a deadline, seven bits in a byte, the lowest first
//! ```
//!
//! In a small hash a new field is added at the end, and stays where it is when its value changes. In a large one no two
//! items have the same hash and the same name, so what follows a name does not affect the order, with one exception: a
//! field with a deadline comes behind those without one whose name has the same hash and length.

use crate::UnixMs;
use crate::codec::Malformed;
use crate::table::NO_DEADLINE;
use crate::table::name_hash::{HASH_BYTES, hash_of};
use crate::table::tree::{Items, LEAF_BYTES, LEAF_ITEMS};

/// How many times the length of a large hash's leaf a small hash may have.
pub(super) const HASH_LEAF_FACTOR: u32 = 8;

/// The most bytes and fields of a small hash. Redis, too, keeps the order of fields only in hashes with few of them.
pub(super) const HASH_SMALL_BYTES: usize = LEAF_BYTES * HASH_LEAF_FACTOR as usize;
pub(super) const HASH_SMALL_FIELDS: usize = 2 * LEAF_ITEMS;

/// The order of the items of a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::table) enum Order {
    /// The order in which the fields were added.
    Added,
    /// The order of the hashes of their names. Items begin with the hash.
    Hashed,
}

impl Order {
    /// Reads an item, which is trusted: written here, or checked on arrival.
    #[inline]
    pub(in crate::table) fn field(self, item: &[u8]) -> Field<'_> {
        match self.read(item) {
            Some(field) => field,
            None => unreachable!("an item of a hash is a field"),
        }
    }

    #[inline]
    fn read(self, item: &[u8]) -> Option<Field<'_>> {
        match self {
            Order::Added => Field::read(item),
            Order::Hashed => Field::read(item.get(HASH_BYTES..)?),
        }
    }

    /// Reads an untrusted item.
    ///
    /// # Errors
    /// [`Malformed`] unless it is a field in exactly the encoding of [`Order::put`].
    pub(in crate::table) fn check(self, item: &[u8]) -> Result<Field<'_>, Malformed> {
        const NOT_A_FIELD: Malformed = Malformed("an item of a hash that is no field");
        let field = self.read(item).ok_or(NOT_A_FIELD)?;
        let mut again = Vec::with_capacity(item.len());
        self.put(&field, &mut again);
        if again == item { Ok(field) } else { Err(NOT_A_FIELD) }
    }

    /// Appends the item of a field.
    #[inline]
    pub(in crate::table) fn put(self, field: &Field<'_>, out: &mut Vec<u8>) {
        if self == Order::Hashed {
            out.extend_from_slice(&hash_of(field.name));
        }
        field.put(out);
    }
}

/// A field of a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::table) struct Field<'i> {
    /// [`NO_DEADLINE`] if it does not expire.
    pub(in crate::table) deadline: UnixMs,
    pub(in crate::table) name: &'i [u8],
    pub(in crate::table) value: &'i [u8],
}

/// The properties that determine the length of a field with a given name, and its place in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::table) struct FieldShape {
    pub(in crate::table) has_deadline: bool,
    value_bytes: usize,
}

impl<'i> Field<'i> {
    #[inline]
    fn read(mut rest: &'i [u8]) -> Option<Field<'i>> {
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
        let (name, mut value) = rest.split_at_checked((head >> 1) as usize)?;
        let mut deadline = NO_DEADLINE;
        if head & 1 == 1 {
            let (bytes, behind) = value.split_first_chunk::<8>()?;
            (deadline, value) = (u64::from_be_bytes(*bytes), behind);
        }
        Some(Field { deadline, name, value })
    }

    fn put(&self, out: &mut Vec<u8>) {
        let mut head = (self.name.len() as u64) << 1 | u64::from(self.has_deadline());
        while head > 0x7f {
            out.push(head as u8 | 0x80);
            head >>= 7;
        }
        out.push(head as u8);
        out.extend_from_slice(self.name);
        if self.has_deadline() {
            out.extend_from_slice(&self.deadline.to_be_bytes());
        }
        out.extend_from_slice(self.value);
    }

    pub(in crate::table) fn has_deadline(&self) -> bool {
        self.deadline != NO_DEADLINE
    }

    pub(in crate::table) fn shape(&self) -> FieldShape {
        FieldShape { has_deadline: self.has_deadline(), value_bytes: self.value.len() }
    }

    pub(in crate::table) fn is_live(&self, now: UnixMs) -> bool {
        self.deadline > now
    }
}

/// The rank of a field, whether or not it has expired, and the field.
#[inline]
pub(in crate::table) fn find_field<'i>(
    items: Items<'i>,
    order: Order,
    name: &[u8],
) -> Option<(usize, Field<'i>)> {
    match order {
        Order::Added => find_among((0, items.iter_from(0)), order, name),
        Order::Hashed => {
            let hash = hash_of(name);
            let (rank, all) = items.iter_from_key(&hash);
            find_among((rank, all.take_while(|item| item.starts_with(&hash))), order, name)
        }
    }
}

#[inline]
fn find_among<'i>(
    (from, items): (usize, impl Iterator<Item = &'i [u8]>),
    order: Order,
    name: &[u8],
) -> Option<(usize, Field<'i>)> {
    (from..).zip(items.map(|item| order.field(item))).find(|(_, field)| field.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn written(order: Order, field: &Field<'_>) -> Vec<u8> {
        let mut item = Vec::new();
        order.put(field, &mut item);
        item
    }

    proptest! {
        #[test]
        fn fields_survive_encoding(
            order in prop_oneof![Just(Order::Added), Just(Order::Hashed)],
            deadline in prop_oneof![Just(NO_DEADLINE), 0..NO_DEADLINE],
            name in vec(any::<u8>(), 0..200),
            value in vec(any::<u8>(), 0..50),
        ) {
            let field = Field { deadline, name: &name, value: &value };
            let item = written(order, &field);
            prop_assert_eq!(order.check(&item), Ok(field));
            prop_assert_eq!(order.field(&item), field);
        }

        #[test]
        fn bytes_that_are_no_field_are_detected(item in vec(any::<u8>(), 0..30)) {
            for order in [Order::Added, Order::Hashed] {
                if let Ok(field) = order.check(&item) {
                    prop_assert_eq!(written(order, &field), &item[..]);
                }
            }
        }
    }

    #[test]
    fn an_item_has_no_other_form() {
        let field = Field { deadline: NO_DEADLINE, name: b"f", value: b"v" };
        for order in [Order::Added, Order::Hashed] {
            let item = written(order, &field);
            let (front, behind) = item.split_at(item.len() - 3);
            assert_eq!(*behind, *b"\x02fv");
            assert!(order.check(&item).is_ok());
            let longer = [front, b"\x82\x00fv"].concat();
            assert!(order.check(&longer).is_err(), "a head that is longer than it must be");
            let never = [front, b"\x03f\xff\xff\xff\xff\xff\xff\xff\xff"].concat();
            assert!(order.check(&never).is_err(), "a deadline that is none");
            assert!(order.check(front).is_err());
        }
        let mut item = written(Order::Hashed, &field);
        item[0] ^= 1;
        assert!(Order::Hashed.check(&item).is_err(), "the hash of another name");
    }
}
