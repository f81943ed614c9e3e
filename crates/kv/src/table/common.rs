//! The longest common subsequence of two strings: `LCS`.

use super::Table;
use crate::UnixMs;
use crate::command::CommonAnswer;
use crate::reply::ReplyBuffer;
use std::ops::Range;

/// For each pair of prefixes of two strings: which of the two to shorten to continue with their longest common subsequence.
///
/// A row of lengths is kept as one bit for each column: whether the length grows there. 64 columns are computed at once
/// (Hyyrö, "Bit-parallel LCS-length computation revisited", 2004, section 3, after Crochemore et al., 2001).
struct Ways {
    /// Whether the length grows, row by row.
    grows: Vec<u64>,
    width: usize,
}

impl Ways {
    /// Also computes the length of the longest common subsequence. Takes an eighth of a byte for each pair of bytes, and the
    /// time of an addition for each 64.
    fn of(first: &[u8], second: &[u8]) -> (Ways, u32) {
        let (width, words) = (second.len(), second.len().div_ceil(64));
        let mut ways = Ways { grows: vec![0; (first.len() * width).div_ceil(64) + 1], width };
        let places = places(first, second);
        // A bit is 0 where the length grows.
        let mut flat = vec![u64::MAX; words];
        for (row, byte) in first.iter().enumerate() {
            let mut carry = false;
            for (word, (flat, equal)) in flat.iter_mut().zip(&places[usize::from(*byte)]).enumerate() {
                let here = *flat & equal;
                let (sum, first_carry) = flat.overflowing_add(here);
                let (sum, second_carry) = sum.overflowing_add(u64::from(carry));
                carry = first_carry | second_carry;
                *flat = sum | (*flat & !equal);
                ways.note(row * width + word * 64, !*flat & mask(width - word * 64));
            }
        }
        let grown = |(word, flat): (usize, &u64)| (!flat & mask(width - word * 64)).count_ones();
        (ways, flat.iter().enumerate().map(grown).sum())
    }

    fn note(&mut self, place: usize, bits: u64) {
        let (word, shift) = (place / 64, place % 64);
        self.grows[word] |= bits << shift;
        if shift > 0 {
            self.grows[word + 1] |= bits >> (64 - shift);
        }
    }

    /// Whether to shorten the first string rather than the second one. Their last bytes differ, so if the second one's last
    /// byte makes the length grow, the first one's last byte does not.
    fn shortens_first(&self, row: usize, column: usize) -> bool {
        let place = (row - 1) * self.width + column - 1;
        self.grows[place / 64] >> (place % 64) & 1 == 1
    }
}

/// The lowest bits of a word, at most all 64.
fn mask(bits: usize) -> u64 {
    if bits < 64 { (1 << bits) - 1 } else { u64::MAX }
}

/// For each byte of the first string, a bit for each of its places in the second one.
fn places(first: &[u8], second: &[u8]) -> Vec<Vec<u64>> {
    let mut places = vec![Vec::new(); 256];
    for byte in first {
        let of_byte = &mut places[usize::from(*byte)];
        if of_byte.is_empty() {
            of_byte.resize(second.len().div_ceil(64), 0);
        }
    }
    for (place, byte) in second.iter().enumerate() {
        if let Some(word) = places[usize::from(*byte)].get_mut(place / 64) {
            *word |= 1 << (place % 64);
        }
    }
    places
}

/// A range of the first string and the equal one of the second.
type Equal = (Range<usize>, Range<usize>);

/// The ranges that form the longest common subsequence in both strings, the last one first, and its length.
fn common(first: &[u8], second: &[u8]) -> (Vec<Equal>, u32) {
    let (ways, length) = Ways::of(first, second);
    let mut ranges: Vec<Equal> = Vec::new();
    let (mut row, mut column) = (first.len(), second.len());
    while row > 0 && column > 0 {
        if first[row - 1] != second[column - 1] {
            if ways.shortens_first(row, column) {
                row -= 1
            } else {
                column -= 1
            }
            continue;
        }
        match ranges.last_mut() {
            Some((ours, theirs)) if ours.start == row && theirs.start == column => {
                (ours.start, theirs.start) = (row - 1, column - 1);
            }
            _ => ranges.push((row - 1..row, column - 1..column)),
        }
        (row, column) = (row - 1, column - 1);
    }
    (ranges, length)
}

impl Table {
    pub(super) fn common(
        &mut self,
        first: &[u8],
        second: &[u8],
        answer: CommonAnswer,
        least: u64,
        now: UnixMs,
        out: &mut ReplyBuffer,
    ) {
        let Some((first, second)) = self.string_of(first, now).zip(self.string_of(second, now)) else {
            return out.error("ERR The specified keys must contain string values");
        };
        let (ranges, length) = common(first, second);
        match answer {
            CommonAnswer::Length => out.integer(length.into()),
            CommonAnswer::Text => {
                let parts: Vec<&[u8]> = ranges.iter().rev().map(|(ours, _)| &first[ours.clone()]).collect();
                out.bulk(&parts.concat());
            }
            CommonAnswer::Ranges | CommonAnswer::RangesWithLengths => {
                let shown: Vec<_> = ranges.iter().filter(|(ours, _)| ours.len() as u64 >= least).collect();
                out.map(2);
                out.bulk(b"matches");
                out.array(shown.len());
                for (ours, theirs) in shown {
                    let with_length = answer == CommonAnswer::RangesWithLengths;
                    out.array(if with_length { 3 } else { 2 });
                    for range in [ours, theirs] {
                        out.array(2);
                        out.integer(range.start as i64);
                        out.integer(range.end as i64 - 1);
                    }
                    if with_length {
                        out.integer(ours.len() as i64);
                    }
                }
                out.bulk(b"len");
                out.integer(length.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// The lengths for all pairs of prefixes: the textbook's table.
    fn lengths(first: &[u8], second: &[u8]) -> Vec<Vec<u32>> {
        let mut lengths = vec![vec![0; second.len() + 1]; first.len() + 1];
        for (row, byte) in (1..).zip(first) {
            for (column, other) in (1..).zip(second) {
                lengths[row][column] = match byte == other {
                    true => lengths[row - 1][column - 1] + 1,
                    false => lengths[row - 1][column].max(lengths[row][column - 1]),
                };
            }
        }
        lengths
    }

    /// The ranges that Redis finds: of two equal lengths it prefers to shorten the second string.
    fn ranges(first: &[u8], second: &[u8]) -> (Vec<Equal>, u32) {
        let lengths = lengths(first, second);
        let (mut row, mut column) = (first.len(), second.len());
        let mut pairs = Vec::new();
        while row > 0 && column > 0 {
            if first[row - 1] == second[column - 1] {
                (row, column) = (row - 1, column - 1);
                pairs.push((row, column));
            } else if lengths[row - 1][column] > lengths[row][column - 1] {
                row -= 1;
            } else {
                column -= 1;
            }
        }
        let ranges = pairs.chunk_by(|one, next| (one.0, one.1) == (next.0 + 1, next.1 + 1)).map(|run| {
            let (last, first) = (run[0], run[run.len() - 1]);
            (first.0..last.0 + 1, first.1..last.1 + 1)
        });
        (ranges.collect(), lengths[first.len()][second.len()])
    }

    proptest! {
        #[test]
        fn the_result_is_that_of_the_textbook_and_redis(
            first in vec(0..3_u8, 0..200),
            second in vec(0..4_u8, 0..200),
        ) {
            prop_assert_eq!(common(&first, &second), ranges(&first, &second));
        }

        #[test]
        fn a_few_common_bytes_of_many_are_found(first in vec(any::<u8>(), 0..300), second in vec(any::<u8>(), 0..70)) {
            prop_assert_eq!(common(&first, &second), ranges(&first, &second));
        }
    }
}
