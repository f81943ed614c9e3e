//! Bits of strings: `SETBIT`, `BITCOUNT`, `BITOP`, `BITFIELD` and similar commands. Bit 0 is the highest bit of the first
//! byte.

use super::entry::Entry;
use super::kind::Kind;
use super::refusals::WRONG_KIND;
use super::strings::TOO_LONG;
use super::{NO_DEADLINE, Record, Table};
use crate::command::{BitOperation, BytesCommand, FieldAction, FieldOperation, List, Overflow};
use crate::limits::VALUE_BYTES_MAX_CEILING;
use crate::reply::ReplyBuffer;
use crate::{UnixMs, Version};
use std::ops::Range;

fn bit_at(value: &[u8], offset: u64) -> bool {
    let byte = usize::try_from(offset / 8).ok().and_then(|at| value.get(at));
    byte.is_some_and(|byte| byte >> (7 - offset % 8) & 1 == 1)
}

/// The range of bits from `start` to `end` inclusive, which count bytes or bits. Negative positions count from the end of
/// the value; a position before the beginning counts as the beginning.
fn range_of(value: &[u8], start: i64, end: i64, in_bits: bool) -> Range<u64> {
    let length = value.len() as i64 * if in_bits { 8 } else { 1 };
    let position = |at: i64| if at < 0 { at.saturating_add(length).max(0) } else { at };
    let (start, end) = (position(start), position(end).min(length - 1));
    if start > end {
        return 0..0;
    }
    let width = if in_bits { 1 } else { 8 };
    start as u64 * width..(end as u64 + 1) * width
}

/// Divides a range of bits into the whole bytes within it, the bits before them and the bits behind them.
fn parts_of(range: Range<u64>) -> (Range<u64>, Range<usize>, Range<u64>) {
    let first = range.start.next_multiple_of(8).min(range.end);
    let last = (range.end / 8 * 8).max(first);
    (range.start..first, (first / 8) as usize..(last / 8) as usize, last..range.end)
}

fn count(value: &[u8], range: Range<u64>) -> u64 {
    let (before, bytes, behind) = parts_of(range);
    let single = |bits: Range<u64>| bits.filter(|bit| bit_at(value, *bit)).count() as u64;
    let (words, rest) = value[bytes].as_chunks::<8>();
    let words: u64 = words.iter().map(|word| u64::from(u64::from_le_bytes(*word).count_ones())).sum();
    let rest: u64 = rest.iter().map(|byte| u64::from(byte.count_ones())).sum();
    single(before) + words + rest + single(behind)
}

/// The first bit of a range that has the wanted value.
fn find(value: &[u8], wanted: bool, range: Range<u64>) -> Option<u64> {
    let (before, bytes, behind) = parts_of(range);
    let single = |mut bits: Range<u64>| bits.find(|bit| bit_at(value, *bit) == wanted);
    let passed = if wanted { 0 } else { 0xff };
    let within = || {
        let byte = bytes.start + value[bytes.clone()].iter().position(|byte| *byte != passed)?;
        Some(byte as u64 * 8 + u64::from((value[byte] ^ passed).leading_zeros()))
    };
    single(before).or_else(within).or_else(|| single(behind))
}

/// The number in a field of bits. Bits behind the end of the string are zero.
fn field(value: &[u8], operation: &FieldOperation) -> i64 {
    let bits = operation.offset..operation.offset + u64::from(operation.bits);
    let number = bits.fold(0_u64, |number, bit| number << 1 | u64::from(bit_at(value, bit)));
    if operation.is_signed { extended(number, operation.bits) } else { number as i64 }
}

/// Sign-extends the lowest `bits` bits of a number.
fn extended(number: u64, bits: u8) -> i64 {
    let unused = 64 - u32::from(bits);
    (number as i64) << unused >> unused
}

fn set_field(value: &mut [u8], operation: &FieldOperation, number: i64) {
    for bit in 0..u64::from(operation.bits) {
        let (at, shift) = (operation.offset + bit, u64::from(operation.bits) - 1 - bit);
        let mask = 0x80_u8 >> (at % 8);
        let byte = &mut value[(at / 8) as usize];
        if number >> shift & 1 == 1 { *byte |= mask } else { *byte &= !mask }
    }
}

/// The number to store in place of `wanted`, which may be too large or too small for the field. `None` if nothing is to be
/// stored.
fn fitted(operation: &FieldOperation, wanted: i128) -> Option<i64> {
    let bits = u32::from(operation.bits);
    let (least, most) = match operation.is_signed {
        true => (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1),
        false => (0, (1_i128 << bits) - 1),
    };
    match operation.overflow {
        _ if (least..=most).contains(&wanted) => Some(wanted as i64),
        Overflow::Wrap if operation.is_signed => Some(extended(wanted as u64, operation.bits)),
        Overflow::Wrap => Some((wanted as u64 & ((1 << bits) - 1)) as i64),
        Overflow::Saturate => Some(wanted.clamp(least, most) as i64),
        Overflow::Fail => None,
    }
}

impl Table {
    /// The string of a key, empty if it does not exist; `None` if it holds something else.
    pub(super) fn string_of(&self, key: &[u8], now: UnixMs) -> Option<&[u8]> {
        match self.peek(key, now) {
            None => Some(b""),
            Some(entry) if entry.is_bytes() => Some(entry.value()),
            Some(_) => None,
        }
    }

    /// The strings of several keys; `None` if one holds something else.
    pub(super) fn strings_of(&self, keys: List<'_>, now: UnixMs) -> Option<Vec<&[u8]>> {
        keys.iter().map(|key| self.string_of(key, now)).collect()
    }

    pub(super) fn read_bytes(
        &mut self,
        command: &BytesCommand<'_>,
        now: UnixMs,
        out: &mut ReplyBuffer,
    ) -> Version {
        use BytesCommand::*;
        let key = match *command {
            Estimate { keys } => {
                self.estimate(keys, now, out);
                return 0;
            }
            Common { first, second, answer, least } => {
                self.common(first, second, answer, least, now, out);
                return 0;
            }
            GetBit { key, .. } | CountBits { key, .. } | FindBit { key, .. } | ReadFields { key, .. } => key,
            _ => return 0, // A write: see `change_bytes`.
        };
        let (hit, version) = self.peek(key, now).map_or((false, 0), |entry| (true, entry.version()));
        self.count_lookup(hit);
        let Some(value) = self.string_of(key, now) else {
            out.error(WRONG_KIND);
            return 0;
        };
        match *command {
            GetBit { offset, .. } => out.integer(bit_at(value, offset).into()),
            // Unlike `BITPOS`, `BITCOUNT` compares two negative positions before they are resolved.
            CountBits { start, end, .. } if start < 0 && end < 0 && start > end => out.integer(0),
            CountBits { start, end, in_bits, .. } => {
                out.integer(count(value, range_of(value, start, end, in_bits)) as i64);
            }
            FindBit { bit, start, end, in_bits, .. } => {
                let range = range_of(value, start, end.unwrap_or(-1), in_bits);
                let is_empty = range.is_empty();
                out.integer(match find(value, bit, range) {
                    Some(place) => place as i64,
                    // Without an end, the string is followed by zeros.
                    None if !bit && !hit => 0,
                    None if !bit && end.is_none() && !is_empty => value.len() as i64 * 8,
                    None => -1,
                });
            }
            ReadFields { operations, .. } => {
                out.array(operations.len());
                for operation in operations.iter() {
                    match FieldOperation::decode(operation) {
                        Some(operation) => out.integer(field(value, &operation)),
                        None => out.null(),
                    }
                }
            }
            _ => {}
        }
        version
    }

    pub(super) fn change_bytes(&mut self, command: &BytesCommand<'_>, record: Record, out: &mut ReplyBuffer) {
        use BytesCommand::*;
        match *command {
            SetBit { key, offset, bit } => self.set_bit(key, offset, bit, record, out),
            Combine { operation, to, keys } => self.combine_bits(operation, to, keys, record, out),
            ChangeFields { key, operations } => self.change_fields(key, operations, record, out),
            Count { key, elements } => self.count_elements(key, elements, record, out),
            Merge { to, keys } => self.merge_sketches(to, keys, record, out),
            // Answered by `read_bytes`.
            GetBit { .. } | CountBits { .. } | FindBit { .. } => {}
            ReadFields { .. } | Estimate { .. } | Common { .. } => {}
        }
    }

    /// Stores a changed string in place of the previous one, if any. The deadline stays.
    pub(super) fn put_changed(&mut self, key: &[u8], value: &[u8], record: Record) {
        let hash = self.index.hash(key);
        match self.find_live(hash, key, record) {
            Some(place) => self.replace_value(place, value, Kind::Raw, record),
            None => self.insert(hash, Entry::new(key, value, record.stamp(NO_DEADLINE, Kind::Raw)), record),
        }
    }

    fn set_bit(&mut self, key: &[u8], offset: u64, bit: bool, record: Record, out: &mut ReplyBuffer) {
        let hash = self.index.hash(key);
        let Ok(found) = self.find_string(hash, key, record, out) else { return };
        if offset / 8 >= VALUE_BYTES_MAX_CEILING as u64 {
            return out.error(TOO_LONG);
        }
        let (at, mask) = ((offset / 8) as usize, 0x80_u8 >> (offset % 8));
        let value = found.map_or(&b""[..], |place| self.index.entry(place).value());
        let before = value.get(at).copied().unwrap_or(0);
        let after = if bit { before | mask } else { before & !mask };
        match found {
            Some(place) => self.write_at(place, at, &[after], record),
            None => {
                let mut value = vec![0; at + 1];
                value[at] = after;
                self.insert(hash, Entry::new(key, &value, record.stamp(NO_DEADLINE, Kind::Raw)), record);
            }
        }
        out.integer((before & mask != 0).into());
    }

    fn combine_bits(
        &mut self,
        operation: BitOperation,
        to: &[u8],
        keys: List<'_>,
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        let Some(strings) = self.strings_of(keys, record.time) else { return out.error(WRONG_KIND) };
        let length = strings.iter().map(|string| string.len()).max().unwrap_or(0);
        let mut result = strings.first().map(|string| string.to_vec()).unwrap_or_default();
        result.resize(length, 0);
        // What the strings have in common with those before them, where that matters.
        let mut twice = vec![0; if operation == BitOperation::One { length } else { 0 }];
        let compares_first =
            matches!(operation, BitOperation::Diff | BitOperation::OthersOnly | BitOperation::AndOr);
        let first = if compares_first { std::mem::replace(&mut result, vec![0; length]) } else { Vec::new() };
        for string in strings.iter().skip(1) {
            let pairs = result.iter_mut().zip(*string);
            match operation {
                BitOperation::And => {
                    pairs.for_each(|(byte, other)| *byte &= other);
                    result[string.len()..].fill(0);
                }
                BitOperation::Xor => pairs.for_each(|(byte, other)| *byte ^= other),
                BitOperation::One => pairs.zip(&mut twice).for_each(|((byte, other), twice)| {
                    *twice |= *byte & other;
                    *byte |= other;
                }),
                BitOperation::Or => pairs.for_each(|(byte, other)| *byte |= other),
                BitOperation::Diff | BitOperation::OthersOnly | BitOperation::AndOr => {
                    pairs.for_each(|(byte, other)| *byte |= other);
                }
                BitOperation::Not => {}
            }
        }
        let with_first = result.iter_mut().zip(&first);
        match operation {
            BitOperation::Not => result.iter_mut().for_each(|byte| *byte = !*byte),
            BitOperation::Diff => with_first.for_each(|(others, first)| *others = first & !*others),
            BitOperation::OthersOnly => with_first.for_each(|(others, first)| *others &= !first),
            BitOperation::AndOr => with_first.for_each(|(others, first)| *others &= first),
            BitOperation::One => result.iter_mut().zip(&twice).for_each(|(byte, twice)| *byte &= !twice),
            BitOperation::And | BitOperation::Or | BitOperation::Xor => {}
        }
        if length > 0 {
            self.put(to, &result, NO_DEADLINE, Kind::Raw, record);
        } else if let Some(place) = self.find_live(self.index.hash(to), to, record) {
            self.remove(place, record);
        }
        out.integer(length as i64);
    }

    fn change_fields(&mut self, key: &[u8], operations: List<'_>, record: Record, out: &mut ReplyBuffer) {
        let hash = self.index.hash(key);
        let Ok(found) = self.find_string(hash, key, record, out) else { return };
        let writes = operations.iter().filter_map(FieldOperation::decode);
        let writes = writes.filter(|operation| operation.action != FieldAction::Get);
        let needed = writes.map(|operation| operation.bytes_needed()).max().unwrap_or(0);
        if needed > VALUE_BYTES_MAX_CEILING as u64 {
            return out.error(TOO_LONG);
        }
        // As in Redis, the string becomes as long as all fields need, even if none is stored.
        let length = found.map_or(0, |place| self.index.entry(place).value().len());
        match found {
            None if needed > 0 => {
                let zeros = vec![0; needed as usize];
                self.insert(hash, Entry::new(key, &zeros, record.stamp(NO_DEADLINE, Kind::Raw)), record);
            }
            Some(place) if needed as usize > length => {
                self.write_at(place, needed as usize - 1, &[0], record)
            }
            _ => {}
        }
        let place = self.find(hash, key).map(|(place, _)| place);
        out.array(operations.len());
        for operation in operations.iter() {
            let Some(operation) = FieldOperation::decode(operation) else {
                out.null();
                continue;
            };
            let value = place.map_or(&b""[..], |place| self.index.entry(place).value());
            let before = field(value, &operation);
            let wanted = match operation.action {
                FieldAction::Get => {
                    out.integer(before);
                    continue;
                }
                // For an unsigned field, all 64 bits of the number are used.
                FieldAction::Set if operation.is_signed => i128::from(operation.operand),
                FieldAction::Set => i128::from(operation.operand as u64),
                FieldAction::Increment => i128::from(before) + i128::from(operation.operand),
            };
            let Some((number, place)) = fitted(&operation, wanted).zip(place) else {
                out.null();
                continue;
            };
            // The bytes that the field covers, at most nine.
            let first = (operation.offset / 8) as usize;
            let mut part = value[first..operation.bytes_needed() as usize].to_vec();
            set_field(&mut part, &FieldOperation { offset: operation.offset % 8, ..operation }, number);
            self.write_at(place, first, &part, record);
            out.integer(if operation.action == FieldAction::Set { before } else { number });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn counting_and_finding_bits_equals_doing_it_bit_by_bit(
            value in vec(prop_oneof![Just(0), Just(0xff), any::<u8>()], 0..40),
            start in -350..350i64,
            end in -350..350i64,
            in_bits: bool,
            wanted: bool,
        ) {
            let range = range_of(&value, start, end, in_bits);
            prop_assert!(range.end <= value.len() as u64 * 8);
            let ones = range.clone().filter(|bit| bit_at(&value, *bit)).count() as u64;
            prop_assert_eq!(count(&value, range.clone()), ones);
            let first = range.clone().find(|bit| bit_at(&value, *bit) == wanted);
            prop_assert_eq!(find(&value, wanted, range), first);
        }

        #[test]
        fn a_field_holds_the_number_that_was_set(
            value in vec(any::<u8>(), 20),
            offset in 0..90u64,
            bits in 1..=64u8,
            is_signed: bool,
            number: i64,
        ) {
            let bits = if is_signed { bits } else { bits.min(63) };
            let (action, overflow, operand) = (FieldAction::Set, Overflow::Wrap, number);
            let operation = FieldOperation { action, is_signed, bits, overflow, offset, operand };
            let (mut after, wanted) = (value.clone(), fitted(&operation, number.into()).unwrap());
            set_field(&mut after, &operation, wanted);
            prop_assert_eq!(field(&after, &operation), wanted);
            for bit in (0..160).filter(|bit| !(offset..offset + u64::from(bits)).contains(bit)) {
                prop_assert_eq!(bit_at(&after, bit), bit_at(&value, bit), "no other bit changes");
            }
        }
    }

    #[test]
    fn numbers_that_do_not_fit_are_wrapped_saturated_or_refused() {
        let operation = |is_signed, bits, overflow| FieldOperation {
            action: FieldAction::Set,
            is_signed,
            bits,
            overflow,
            offset: 0,
            operand: 0,
        };
        let all = |is_signed, bits, wanted| {
            [Overflow::Wrap, Overflow::Saturate, Overflow::Fail]
                .map(|overflow| fitted(&operation(is_signed, bits, overflow), wanted))
        };
        assert_eq!(all(true, 8, 127), [Some(127); 3]);
        assert_eq!(all(true, 8, 128), [Some(-128), Some(127), None]);
        assert_eq!(all(true, 8, -129), [Some(127), Some(-128), None]);
        assert_eq!(all(false, 8, 256), [Some(0), Some(255), None]);
        assert_eq!(all(false, 8, -1), [Some(255), Some(0), None]);
        assert_eq!(all(true, 64, i128::from(i64::MAX) + 1), [Some(i64::MIN), Some(i64::MAX), None]);
    }
}
