//! The values that are written, such that a value that is read can be checked without remembering any.
//!
//! A value is the key's number and the write's sequence, 16 hexadecimal digits each, then filler. Where in
//! the filler it starts depends on both numbers: pieces of two values put together are recognised too.
//! A value shorter than the two numbers carries their last digits, the key's first, and only the key is checked.

use super::random::Random;

const NUMBER_BYTES: usize = 16;
const HEADER_BYTES: usize = 2 * NUMBER_BYTES;

/// How many different starts in the filler there are.
const FILLER_STARTS: usize = 256;

/// The filler is the same in every run, so that a run can read what an earlier one wrote.
const FILLER_SEED: u64 = 0x0051_554f_5241_5445;

pub(crate) struct Values {
    bytes: usize,
    filler: Vec<u8>,
}

impl Values {
    pub(crate) fn new(bytes: usize) -> Self {
        let letters = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_-abcdefghijklmnopqrstuvwxyz";
        let mut random = Random::new(FILLER_SEED);
        let length = bytes.saturating_sub(HEADER_BYTES) + FILLER_STARTS;
        let filler = (0..length).map(|_| letters[(random.next() >> 58) as usize]).collect();
        Self { bytes, filler }
    }

    /// Appends the value of the write number `sequence` to key number `key`.
    pub(crate) fn write(&self, key: u64, sequence: u64, out: &mut Vec<u8>) {
        let (key_digits, sequence_digits) = self.header_digits();
        out.extend_from_slice(&hexadecimal(key)[NUMBER_BYTES - key_digits..]);
        out.extend_from_slice(&hexadecimal(sequence)[NUMBER_BYTES - sequence_digits..]);
        out.extend_from_slice(self.filler_of(key, sequence));
    }

    /// Whether `value` could have been written to key number `key` by a generator with these values.
    pub(crate) fn is_possible(&self, key: u64, value: &[u8]) -> bool {
        if value.len() != self.bytes {
            return false;
        }
        let (key_digits, sequence_digits) = self.header_digits();
        let (header, filler) = value.split_at(key_digits + sequence_digits);
        let (key_part, sequence_part) = header.split_at(key_digits);
        if key_part != &hexadecimal(key)[NUMBER_BYTES - key_digits..] {
            return false;
        }
        parse_hexadecimal(sequence_part).is_some_and(|sequence| filler == self.filler_of(key, sequence))
    }

    /// How many digits of the key and of the sequence fit into a value.
    fn header_digits(&self) -> (usize, usize) {
        let key_digits = self.bytes.min(NUMBER_BYTES);
        (key_digits, (self.bytes - key_digits).min(NUMBER_BYTES))
    }

    fn filler_of(&self, key: u64, sequence: u64) -> &[u8] {
        let mixed = (key.rotate_left(32) ^ sequence).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The top bits depend on every digit of both numbers.
        let start = (mixed >> 56) as usize % FILLER_STARTS;
        &self.filler[start..start + self.bytes.saturating_sub(HEADER_BYTES)]
    }
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
    fn a_written_value_is_possible_for_its_key_only() {
        for bytes in [1, 3, 15, 16, 17, 31, 32, 33, 64, 1000] {
            let values = Values::new(bytes);
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
        let values = Values::new(64);
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
    fn pieces_of_two_writes_put_together_are_recognised() {
        let values = Values::new(1000);
        let (first, second) = (value(&values, 5, 1), value(&values, 5, 2));
        let mixed = [&first[..500], &second[500..]].concat();
        assert!(!values.is_possible(5, &mixed));
    }

    #[test]
    fn an_empty_value_can_be_written() {
        let values = Values::new(0);
        assert_eq!(value(&values, 5, 9), b"");
        assert!(values.is_possible(5, b""));
        assert!(!values.is_possible(5, b"x"));
    }
}
