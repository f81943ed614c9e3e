//! Commands on the bytes of strings: bits, fields of bits, sketches that count distinct elements, common subsequences.

use super::List;
use super::declaration::{Needs, Part, family};
use crate::codec::{Malformed, Reader, Writer};

/// Implements [`Part`] for an enum that is encoded as one byte.
macro_rules! tagged {
    ($name:ident, $($variant:ident),+) => {
        impl<'a> Part<'a> for $name {
            fn put(self, out: &mut Vec<u8>) {
                out.put_u8(self as u8);
            }

            fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
                let tag = reader.u8()? as usize;
                [$($name::$variant),+].get(tag).copied().ok_or(Malformed("an unknown option of a command"))
            }
        }
    };
}

pub(super) use tagged;

/// How several strings are combined, bit by bit. Shorter strings are padded with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Each is the operation of that name.
pub enum BitOperation {
    And,
    Or,
    Xor,
    /// Negates a single string.
    Not,
    /// Bits of the first string that no other one has. From level 2 on, as those below.
    Diff,
    /// Bits that other strings have and the first one has not (`DIFF1`).
    OthersOnly,
    /// Bits of the first string that another one has, too (`ANDOR`).
    AndOr,
    /// Bits that exactly one string has.
    One,
}

tagged!(BitOperation, And, Or, Xor, Not, Diff, OthersOnly, AndOr, One);

/// What `LCS` returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommonAnswer {
    /// The longest common subsequence.
    Text,
    /// Its length.
    Length,
    /// The ranges that form it.
    Ranges,
    /// The same, each with its length.
    RangesWithLengths,
}

tagged!(CommonAnswer, Text, Length, Ranges, RangesWithLengths);

/// The result when a field of bits is set or incremented beyond what it can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The lowest bits of the result are stored.
    Wrap,
    /// The nearest number that fits is stored.
    Saturate,
    /// Nothing is stored, and the reply is null.
    Fail,
}

/// The action on a field of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Each is the subcommand of that name.
pub enum FieldAction {
    Get,
    Set,
    Increment,
}

/// One operation of `BITFIELD`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldOperation {
    /// The action.
    pub action: FieldAction,
    /// Whether the field holds a signed number.
    pub is_signed: bool,
    /// The number of bits: 1 to 64, for unsigned fields up to 63.
    pub bits: u8,
    /// What happens on overflow.
    pub overflow: Overflow,
    /// The first bit of the field.
    pub offset: u64,
    /// The number that is set or added; 0 for `GET`.
    pub operand: i64,
}

/// Bytes of an encoded [`FieldOperation`].
pub const FIELD_OPERATION_BYTES: usize = 20;

impl FieldOperation {
    /// The operation as an item of a list.
    pub fn encoded(&self) -> [u8; FIELD_OPERATION_BYTES] {
        let mut bytes = [0; FIELD_OPERATION_BYTES];
        bytes[..4].copy_from_slice(&[
            self.action as u8,
            self.is_signed.into(),
            self.bits,
            self.overflow as u8,
        ]);
        bytes[4..12].copy_from_slice(&self.offset.to_le_bytes());
        bytes[12..].copy_from_slice(&self.operand.to_le_bytes());
        bytes
    }

    /// Reads an item; `None` if it is no operation.
    pub fn decode(item: &[u8]) -> Option<FieldOperation> {
        use FieldAction::*;
        use Overflow::*;
        let bytes: &[u8; FIELD_OPERATION_BYTES] = item.try_into().ok()?;
        let mut reader = Reader::new(&bytes[4..]);
        let operation = FieldOperation {
            action: *[Get, Set, Increment].get(usize::from(bytes[0]))?,
            is_signed: bytes[1] != 0,
            bits: bytes[2],
            overflow: *[Wrap, Saturate, Fail].get(usize::from(bytes[3]))?,
            offset: reader.u64().ok()?,
            operand: reader.i64().ok()?,
        };
        let most = if operation.is_signed { 64 } else { 63 };
        let is_sound = (1..=most).contains(&operation.bits) && operation.offset <= 1 << 42;
        is_sound.then_some(operation)
    }

    /// The length that a string needs to hold the field, in bytes.
    pub fn bytes_needed(&self) -> u64 {
        (self.offset + u64::from(self.bits)).div_ceil(8)
    }
}

family! {
    /// A command on the bytes of strings. A key that does not exist is an empty string.
    BytesCommand needs(Needs::Bytes) {
        // Reads.
        /// A bit: 1 or 0 (`GETBIT`).
        GetBit = 1 "GETBIT" Reads { key: &'a [u8], offset: u64 };
        /// The number of bits set in a range of bytes or of bits, by the rules of `GETRANGE` (`BITCOUNT`).
        CountBits = 2 "BITCOUNT" Reads { key: &'a [u8], start: i64, end: i64, in_bits: bool } walks(true);
        /// The first bit with this value in a range, or -1 (`BITPOS`). Without an end, the string is followed by zeros.
        FindBit = 3 "BITPOS" Reads { key: &'a [u8], bit: bool, start: i64, end: Option<i64>, in_bits: bool }
            walks(true);
        /// Fields of bits ([`FieldOperation`]), as an array of integers (`BITFIELD_RO`).
        ReadFields = 4 "BITFIELD_RO" Reads { key: &'a [u8], operations: List<'a> };
        /// Estimates how many distinct elements several sketches have counted together (`PFCOUNT`).
        Estimate = 5 "PFCOUNT" Reads { keys: List<'a> } walks(true);
        /// The longest common subsequence of two strings (`LCS`). Ranges shorter than `least` are left out.
        Common = 6 "LCS" Reads { first: &'a [u8], second: &'a [u8], answer: CommonAnswer, least: u64 }
            keys(first, second) walks(true);

        // Writes.
        /// Sets a bit and returns its previous value (`SETBIT`).
        SetBit = 64 "SETBIT" Grows { key: &'a [u8], offset: u64, bit: bool } adds(Unforeseen) event("setbit");
        /// Stores the combination of several strings and returns its length (`BITOP`).
        Combine = 65 "BITOP" Grows { operation: BitOperation, to: &'a [u8], keys: List<'a> }
            keys(to, keys) walks(true) adds(Unforeseen) event("set");
        /// Changes fields of bits ([`FieldOperation`]), and returns their previous or new values, as an array (`BITFIELD`).
        ChangeFields = 66 "BITFIELD" Grows { key: &'a [u8], operations: List<'a> }
            adds(Unforeseen) event("setbit");
        /// Counts elements in a sketch; returns 1 if the sketch has changed (`PFADD`).
        Count = 67 "PFADD" Grows { key: &'a [u8], elements: List<'a> } adds(Unforeseen) event("pfadd");
        /// Stores a sketch of everything that several sketches, including the present one, have counted (`PFMERGE`).
        Merge = 68 "PFMERGE" Grows { to: &'a [u8], keys: List<'a> }
            keys(to, keys) walks(true) adds(Unforeseen) event("pfadd");
    }
}

impl<'a> BytesCommand<'a> {
    /// Calls `visit` with each key whose value it reads, in order.
    pub(crate) fn for_each_source(&self, visit: &mut dyn FnMut(&'a [u8])) {
        use BytesCommand::*;
        match *self {
            GetBit { key, .. } | CountBits { key, .. } | FindBit { key, .. } | ReadFields { key, .. } => {
                visit(key);
            }
            SetBit { key, .. } | ChangeFields { key, .. } | Count { key, .. } => visit(key),
            Estimate { keys } | Combine { keys, .. } => keys.iter().for_each(visit),
            Common { first, second, .. } => {
                visit(first);
                visit(second);
            }
            Merge { to, keys } => {
                visit(to);
                keys.iter().for_each(visit);
            }
        }
    }

    /// The most work that it does, as a number of bytes read. `bytes_of` returns the size of a key.
    pub(super) fn walked_bytes(&self, bytes_of: impl Fn(&[u8]) -> u64) -> u64 {
        use BytesCommand::*;
        /// The cost of adding one more sketch to the sum.
        const SKETCH_BYTES: u64 = 64 << 10;
        match *self {
            CountBits { key, .. } | FindBit { key, .. } => bytes_of(key) / 2,
            Combine { keys, .. } => keys.iter().map(&bytes_of).fold(0, u64::saturating_add),
            Estimate { keys } | Merge { keys, .. } => SKETCH_BYTES * (keys.len() as u64 + 1),
            // Each byte of one string is compared with each byte of the other.
            Common { first, second, .. } => {
                bytes_of(first).saturating_mul(bytes_of(second)).saturating_mul(4)
            }
            _ => 0,
        }
    }

    /// The length in bytes that the command requires of its value: a shorter value is extended.
    pub(super) fn reaches_bytes(&self) -> u64 {
        match *self {
            BytesCommand::SetBit { offset, .. } => offset / 8 + 1,
            BytesCommand::ChangeFields { operations, .. } => {
                let writes = operations.iter().filter_map(FieldOperation::decode);
                let writes = writes.filter(|operation| operation.action != FieldAction::Get);
                writes.map(|operation| operation.bytes_needed()).max().unwrap_or(0)
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_operations_survive_encoding() {
        let operation = FieldOperation {
            action: FieldAction::Increment,
            is_signed: true,
            bits: 64,
            overflow: Overflow::Fail,
            offset: 12_345,
            operand: -7,
        };
        assert_eq!(FieldOperation::decode(&operation.encoded()), Some(operation));
        let unsigned = FieldOperation { is_signed: false, ..operation };
        assert_eq!(FieldOperation::decode(&unsigned.encoded()), None, "there is no u64");
        assert_eq!(FieldOperation::decode(&operation.encoded()[1..]), None);
        assert_eq!(operation.bytes_needed(), (12_345 + 64) / 8 + 1);
    }
}
