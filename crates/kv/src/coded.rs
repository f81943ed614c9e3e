//! Values that are kept as fragments: what the table knows of them.
//!
//! Where a keyspace codes its large values, a key's entry holds a [`Reference`] in the place of the bytes. The table has
//! all that most commands need: length, digest, version, deadline. What needs the bytes themselves is left to whoever
//! asked:
//!
//! * A read is answered with references in the place of values ([`crate::Reply::Unresolved`]); whoever asked fetches the
//!   fragments and puts the values in.
//! * A write that needs bytes (`APPEND`, `GETDEL`, ...) does nothing and names the values that it needs
//!   ([`crate::Reply::Needs`]); whoever asked fetches them, puts them into the table ([`crate::Command::Inline`]), and asks
//!   again. All replicas do the same with it, whichever fragments they hold.

use crate::Version;
use crate::codec::{Malformed, Reader, Writer};
use crate::command::digest_of;
use crate::limits::VALUE_BYTES_MAX_CEILING;
use crate::table::part_of;

/// In the place of a coordinator's node: nobody's, each replica keeps the value for itself. See [`crate::table::Spilled`].
const SPILLED: u16 = 0;

/// Who cuts values into fragments: one life of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Coordinator {
    /// The node.
    pub node: u16,
    /// Which of its lives: no two have the same.
    pub life: u64,
}

/// Names a value that was cut into fragments. Never used twice: each attempt to store a value has one of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ValueId {
    /// Who has cut it.
    pub coordinator: Coordinator,
    /// Which of its values, from 1.
    pub counter: u64,
}

impl ValueId {
    /// Appends the name's encoding.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.put_u16(self.coordinator.node);
        out.put_u64(self.coordinator.life);
        out.put_u64(self.counter);
    }

    /// Takes a name off the front of `reader`.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes end early.
    pub fn take(reader: &mut Reader<'_>) -> Result<ValueId, Malformed> {
        let coordinator = Coordinator { node: reader.u16()?, life: reader.u64()? };
        Ok(ValueId { coordinator, counter: reader.u64()? })
    }
}

/// Bytes of an encoded [`Reference`].
pub const REFERENCE_BYTES: usize = 31;

/// Bytes of an encoded [`ValueRef`].
pub(crate) const VALUE_REF_BYTES: usize = REFERENCE_BYTES + 17;

/// What an entry holds of a value that is kept as fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// Which value.
    pub id: ValueId,
    /// How many fragments it takes to have it back.
    pub parts: u8,
    /// Its length in bytes.
    pub length: u32,
    /// Its digest: see [`crate::command::digest_of`].
    pub digest: u64,
}

impl Reference {
    /// A value that every replica keeps whole and for itself: the `index`th that the record spilled which gave its keys this
    /// version.
    pub fn spilled(version: Version, index: u64, length: u32, digest: u64) -> Reference {
        let id = ValueId { coordinator: Coordinator { node: SPILLED, life: version }, counter: index };
        Reference { id, parts: 1, length, digest }
    }

    /// True when every replica keeps the value whole and for itself, outside the table.
    pub fn is_spilled(&self) -> bool {
        self.id.coordinator.node == SPILLED
    }

    /// True when these bytes are the value.
    pub fn is_of(&self, value: &[u8]) -> bool {
        self.length as usize == value.len() && self.digest == digest_of(value)
    }

    /// As it stands in entries and records.
    pub fn encoded(&self) -> [u8; REFERENCE_BYTES] {
        let mut bytes = Vec::with_capacity(REFERENCE_BYTES);
        self.id.put(&mut bytes);
        bytes.put_u8(self.parts);
        bytes.put_u32(self.length);
        bytes.put_u64(self.digest);
        let mut encoded = [0; REFERENCE_BYTES];
        encoded.copy_from_slice(&bytes);
        encoded
    }

    /// Reads what [`Reference::encoded`] wrote.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are anything else.
    pub fn decode(bytes: &[u8]) -> Result<Reference, Malformed> {
        let mut reader = Reader::new(bytes);
        let id = ValueId::take(&mut reader)?;
        let reference = Reference { id, parts: reader.u8()?, length: reader.u32()?, digest: reader.u64()? };
        let is_possible = reference.parts > 0 && reference.length as usize <= VALUE_BYTES_MAX_CEILING;
        match reader.is_empty() && is_possible {
            true => Ok(reference),
            false => Err(Malformed("a reference to a value that cannot be")),
        }
    }
}

/// Which part of a value is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// All of it.
    Whole,
    /// From `start` to `end`, by the rules of `GETRANGE`.
    Range {
        /// The first byte.
        start: i64,
        /// The last byte.
        end: i64,
    },
}

impl View {
    /// What is told of a value.
    pub fn of<'v>(&self, value: &'v [u8]) -> &'v [u8] {
        match *self {
            View::Whole => value,
            View::Range { start, end } => part_of(value, start, end),
        }
    }
}

/// An element of a reply that stands for a value, or a part of one: see [`crate::Reply::Reference`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueRef {
    /// The value.
    pub reference: Reference,
    /// Which part of it.
    pub view: View,
}

impl ValueRef {
    /// As it stands in a reply.
    pub(crate) fn encoded(&self) -> [u8; VALUE_REF_BYTES] {
        let mut out = Vec::with_capacity(VALUE_REF_BYTES);
        out.extend_from_slice(&self.reference.encoded());
        let (is_range, start, end) = match self.view {
            View::Whole => (false, 0, 0),
            View::Range { start, end } => (true, start, end),
        };
        out.put_bool(is_range);
        out.put_i64(start);
        out.put_i64(end);
        let mut encoded = [0; VALUE_REF_BYTES];
        encoded.copy_from_slice(&out);
        encoded
    }

    /// Reads what a reply holds.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are anything else.
    pub fn decode(bytes: &[u8]) -> Result<ValueRef, Malformed> {
        let mut reader = Reader::new(bytes);
        let reference = Reference::decode(reader.take(REFERENCE_BYTES)?)?;
        let (is_range, start, end) = (reader.bool()?, reader.i64()?, reader.i64()?);
        let view = if is_range { View::Range { start, end } } else { View::Whole };
        if !reader.is_empty() {
            return Err(Malformed("bytes behind a reference"));
        }
        Ok(ValueRef { reference, view })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_reads_back_and_nothing_else_does() {
        let coordinator = Coordinator { node: 3, life: u64::MAX };
        let reference =
            Reference { id: ValueId { coordinator, counter: 7 }, parts: 2, length: 9, digest: 1 << 63 };
        let bytes = reference.encoded();
        assert_eq!(Reference::decode(&bytes), Ok(reference));
        assert!(Reference::decode(&bytes[1..]).is_err());
        assert!(Reference::decode(&Reference { parts: 0, ..reference }.encoded()).is_err());
        assert!(Reference::decode(&Reference { length: u32::MAX, ..reference }.encoded()).is_err());
        for view in [View::Whole, View::Range { start: -2, end: 9 }] {
            let told = ValueRef { reference, view };
            assert_eq!(ValueRef::decode(&told.encoded()), Ok(told));
        }
        assert_eq!(View::Range { start: -2, end: -1 }.of(b"value"), b"ue");
    }
}
