//! Values stored as fragments, as far as the table knows them.
//!
//! Where a keyspace codes its large values, a key's entry holds a [`Reference`] instead of the bytes. That is enough for
//! most commands: it has length and digest, and the entry version and deadline. Commands that need the bytes themselves are
//! left to the caller:
//!
//! * A read replies with references instead of values ([`crate::Reply::Unresolved`]); the caller fetches the fragments
//!   and inserts the values.
//! * A write that needs bytes (`APPEND`, `GETDEL`, ...) does nothing and names the values that it needs
//!   ([`crate::Reply::Needs`]); the caller fetches them and has the write ordered again together with them
//!   ([`crate::Command::Supplied`]). All replicas do the same, whichever fragments they hold.

use crate::Version;
use crate::codec::{Malformed, Reader, Writer};
use crate::digest::digest_of;
use crate::limits::VALUE_BYTES_MAX_CEILING;
use crate::range::part_of;

/// The coordinator's node of a value on the disk, which each replica stores for itself. See [`crate::table::Spilled`].
const SPILLED: u16 = 0;

/// Cuts values into fragments: one incarnation of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Coordinator {
    /// The node's number; 0 for values on the disk.
    pub node: u16,
    /// The number of its incarnation, unique for the node. For values on the disk, the version of the record.
    pub life: u64,
}

/// The name of a value that was cut into fragments. Never reused: each attempt to store a value gets a new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ValueId {
    /// The coordinator that cut it.
    pub coordinator: Coordinator,
    /// The number of the value among those of its coordinator, from 1.
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

/// Length of an encoded [`Reference`], in bytes.
pub const REFERENCE_BYTES: usize = 31;

/// Length of an encoded [`ValueRef`], in bytes.
pub const VALUE_REF_BYTES: usize = REFERENCE_BYTES + 17;

/// The content of an entry whose value is stored outside the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// The value's name.
    pub id: ValueId,
    /// How many fragments are needed to reconstruct the value.
    pub parts: u8,
    /// The value's length in bytes.
    pub length: u32,
    /// The value's digest: see [`crate::digest::digest_of`].
    pub digest: u64,
}

impl Reference {
    /// Returns the reference to a value that every replica stores whole, for itself: the value number `index` of those
    /// spilled by the record of this version.
    pub fn spilled(version: Version, index: u64, length: u32, digest: u64) -> Reference {
        let id = ValueId { coordinator: Coordinator { node: SPILLED, life: version }, counter: index };
        Reference { id, parts: 1, length, digest }
    }

    /// The approximate number of bytes in a fragment of the value.
    pub fn fragment_bytes(&self) -> usize {
        (self.length as usize).div_ceil(usize::from(self.parts).max(1))
    }

    /// Whether every replica stores the value whole, for itself, outside the table.
    pub fn is_spilled(&self) -> bool {
        self.id.coordinator.node == SPILLED
    }

    /// Whether these bytes are the value.
    pub fn is_of(&self, value: &[u8]) -> bool {
        self.length as usize == value.len() && self.digest == digest_of(value)
    }

    /// The encoding used in entries and records.
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

    /// Decodes the result of [`Reference::encoded`].
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

/// The part of a value that a reply contains.
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
    /// Returns this part of a value.
    pub fn of<'v>(&self, value: &'v [u8]) -> &'v [u8] {
        match *self {
            View::Whole => value,
            View::Range { start, end } => part_of(value, start, end),
        }
    }
}

/// An element of a reply that represents a value, or a part of one: see [`crate::Reply::Reference`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueRef {
    /// The reference to the value.
    pub reference: Reference,
    /// The part of it that the reply contains.
    pub view: View,
}

impl ValueRef {
    /// The encoding used in a reply.
    pub fn encoded(&self) -> [u8; VALUE_REF_BYTES] {
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

    /// Decodes an element of a reply.
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
    fn a_reference_survives_encoding_and_other_bytes_are_malformed() {
        let coordinator = Coordinator { node: 3, life: u64::MAX };
        let reference =
            Reference { id: ValueId { coordinator, counter: 7 }, parts: 2, length: 9, digest: 1 << 63 };
        let bytes = reference.encoded();
        assert_eq!(Reference::decode(&bytes), Ok(reference));
        assert!(Reference::decode(&bytes[1..]).is_err());
        assert!(Reference::decode(&Reference { parts: 0, ..reference }.encoded()).is_err());
        assert!(Reference::decode(&Reference { length: u32::MAX, ..reference }.encoded()).is_err());
        for view in [View::Whole, View::Range { start: -2, end: 9 }] {
            let value = ValueRef { reference, view };
            assert_eq!(ValueRef::decode(&value.encoded()), Ok(value));
        }
        assert_eq!(View::Range { start: -2, end: -1 }.of(b"value"), b"ue");
    }
}
