//! Generates the written values such that a value that is read can be checked without remembering any.
//!
//! A value is the key's number and the write's sequence, 16 hexadecimal digits each, then filler. Where in the
//! filler it starts depends on both numbers, so that a mixture of two values is detected too. A value shorter
//! than the two numbers carries their last digits, the key's first, and only the key is checked. Where sizes
//! differ, both numbers determine a value's size, so that a truncated value is detected.

use super::random::Random;

const NUMBER_BYTES: usize = 16;
const HEADER_BYTES: usize = 2 * NUMBER_BYTES;

/// How many different starts in the filler there are.
const FILLER_STARTS: usize = 256;

/// The filler is the same in every run, so that a run can read what an earlier one wrote.
const FILLER_SEED: u64 = 0x0051_554f_5241_5445;

/// A size in bytes, or a range of sizes from which each is drawn uniformly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The smallest size in bytes.
    pub min: usize,
    /// The largest size in bytes.
    pub max: usize,
}

impl Sizes {
    /// A fixed size.
    pub const fn fixed(bytes: usize) -> Self {
        Self { min: bytes, max: bytes }
    }
}

pub(crate) struct Values {
    sizes: Sizes,
    filler: Vec<u8>,
}

impl Values {
    pub(crate) fn new(sizes: Sizes) -> Self {
        let letters = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_-abcdefghijklmnopqrstuvwxyz";
        let mut random = Random::new(FILLER_SEED);
        let length = sizes.max.saturating_sub(HEADER_BYTES) + FILLER_STARTS;
        let filler = (0..length).map(|_| letters[(random.next() >> 58) as usize]).collect();
        Self { sizes, filler }
    }

    /// Appends the value of the write number `sequence` to key number `key`.
    pub(crate) fn write(&self, key: u64, sequence: u64, out: &mut Vec<u8>) {
        let size = self.size_of(key, sequence);
        let (key_digits, sequence_digits) = header_digits(size);
        out.extend_from_slice(&hexadecimal(key)[NUMBER_BYTES - key_digits..]);
        out.extend_from_slice(&hexadecimal(sequence)[NUMBER_BYTES - sequence_digits..]);
        out.extend_from_slice(self.filler_of(key, sequence, size));
    }

    /// The size of that value in bytes.
    pub(crate) fn size_of(&self, key: u64, sequence: u64) -> usize {
        let Sizes { min, max } = self.sizes;
        if min == max {
            return min;
        }
        let draw = u128::from(Random::new(key.rotate_left(32) ^ sequence).next());
        min + ((draw * (max - min + 1) as u128) >> 64) as usize
    }

    /// The sequence of the write that a value comes from; `None` if it is too short, or not one of ours.
    pub(crate) fn sequence_of(value: &[u8]) -> Option<u64> {
        parse_hexadecimal(value.get(NUMBER_BYTES..HEADER_BYTES)?)
    }

    /// The beginning of the value of that write, if it is long enough.
    pub(crate) fn header(key: u64, sequence: u64) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..NUMBER_BYTES].copy_from_slice(&hexadecimal(key));
        header[NUMBER_BYTES..].copy_from_slice(&hexadecimal(sequence));
        header
    }

    /// Whether `value` could have been written to key number `key` by a generator with these values.
    pub(crate) fn is_possible(&self, key: u64, value: &[u8]) -> bool {
        if value.len() < self.sizes.min || value.len() > self.sizes.max {
            return false;
        }
        let (key_digits, sequence_digits) = header_digits(value.len());
        let (header, filler) = value.split_at(key_digits + sequence_digits);
        let (key_part, sequence_part) = header.split_at(key_digits);
        if key_part != &hexadecimal(key)[NUMBER_BYTES - key_digits..] {
            return false;
        }
        let Some(sequence) = parse_hexadecimal(sequence_part) else { return false };
        let is_whole = sequence_digits < NUMBER_BYTES || value.len() == self.size_of(key, sequence);
        is_whole && filler == self.filler_of(key, sequence, value.len())
    }

    fn filler_of(&self, key: u64, sequence: u64, size: usize) -> &[u8] {
        let mixed = (key.rotate_left(32) ^ sequence).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The top bits depend on every digit of both numbers.
        let start = (mixed >> 56) as usize % FILLER_STARTS;
        &self.filler[start..start + size.saturating_sub(HEADER_BYTES)]
    }
}

/// How many digits of the key and of the sequence fit into a value of that size.
fn header_digits(size: usize) -> (usize, usize) {
    let key_digits = size.min(NUMBER_BYTES);
    (key_digits, (size - key_digits).min(NUMBER_BYTES))
}

fn hexadecimal(number: u64) -> [u8; NUMBER_BYTES] {
    let mut digits = [0; NUMBER_BYTES];
    for (position, digit) in digits.iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (60 - 4 * position)) as usize & 15];
    }
    digits
}

fn parse_hexadecimal(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |number, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(values: &Values, key: u64, sequence: u64) -> Vec<u8> {
        let mut out = Vec::new();
        values.write(key, sequence, &mut out);
        out
    }

    #[test]
    fn a_written_value_is_possible_only_for_its_key() {
        for bytes in [1, 3, 15, 16, 17, 31, 32, 33, 64, 1000] {
            let values = Values::new(Sizes::fixed(bytes));
            for sequence in [0, 1, u64::MAX] {
                let written = value(&values, 5, sequence);
                assert_eq!(written.len(), bytes);
                assert!(values.is_possible(5, &written), "{bytes} bytes");
                assert!(!values.is_possible(6, &written), "{bytes} bytes");
            }
        }
    }

    #[test]
    fn a_damaged_or_cut_value_is_recognised() {
        let values = Values::new(Sizes::fixed(64));
        let written = value(&values, 5, 9);
        for position in 0..written.len() {
            let mut damaged = written.clone();
            damaged[position] ^= 1;
            assert!(!values.is_possible(5, &damaged), "position {position}");
        }
        assert!(!values.is_possible(5, &written[..63]));
        assert!(!values.is_possible(5, b""));
    }

    #[test]
    fn a_mix_of_two_writes_is_recognised() {
        let values = Values::new(Sizes::fixed(1000));
        let (first, second) = (value(&values, 5, 1), value(&values, 5, 2));
        let mixed = [&first[..500], &second[500..]].concat();
        assert!(!values.is_possible(5, &mixed));
    }

    #[test]
    fn an_empty_value_can_be_written() {
        let values = Values::new(Sizes::fixed(0));
        assert_eq!(value(&values, 5, 9), b"");
        assert!(values.is_possible(5, b""));
        assert!(!values.is_possible(5, b"x"));
    }

    #[test]
    fn sizes_are_spread_over_their_range_and_a_cut_value_is_recognised() {
        let values = Values::new(Sizes { min: 40, max: 60 });
        let sizes: Vec<usize> = (0..2000).map(|sequence| value(&values, 5, sequence).len()).collect();
        for size in 40..=60 {
            assert!(sizes.contains(&size), "{size}");
        }
        assert!(sizes.iter().all(|size| (40..=60).contains(size)));
        let longest = sizes.iter().position(|size| *size == 60).unwrap() as u64;
        let written = value(&values, 5, longest);
        assert!(values.is_possible(5, &written));
        assert!(!values.is_possible(5, &written[..50]));
    }

    #[test]
    fn a_value_names_its_write() {
        let values = Values::new(Sizes::fixed(32));
        assert_eq!(Values::sequence_of(&value(&values, 5, 77)), Some(77));
        assert_eq!(Values::sequence_of(b"short"), None);
    }
}
