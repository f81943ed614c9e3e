//! The longest common subsequence of two strings: `LCS`.

use super::Table;
use crate::UnixMs;
use crate::command::CommonAnswer;
use crate::reply::ReplyBuffer;
use std::ops::Range;

/// For each pair of prefixes of two strings: which of the two to shorten to continue with their longest common subsequence.
struct Ways {
    bits: Vec<u64>,
    width: usize,
}

impl Ways {
    /// Also computes the length of the longest common subsequence.
    fn of(first: &[u8], second: &[u8]) -> (Ways, u32) {
        let width = second.len() + 1;
        let mut ways = Ways { bits: vec![0; ((first.len() + 1) * width).div_ceil(64)], width };
        // The lengths for the present prefix of the first string, and for the one shorter by a byte.
        let (mut before, mut lengths) = (vec![0_u32; width], vec![0_u32; width]);
        for (row, byte) in (1..).zip(first) {
            for (column, other) in (1..).zip(second) {
                lengths[column] = if byte == other {
                    before[column - 1] + 1
                } else {
                    let is_shorter_first = before[column] > lengths[column - 1];
                    if is_shorter_first {
                        let place = row * width + column;
                        ways.bits[place / 64] |= 1 << (place % 64);
                    }
                    before[column].max(lengths[column - 1])
                };
            }
            std::mem::swap(&mut before, &mut lengths);
        }
        (ways, before[width - 1])
    }

    /// Whether to shorten the first string rather than the second one.
    fn shortens_first(&self, row: usize, column: usize) -> bool {
        let place = row * self.width + column;
        self.bits[place / 64] >> (place % 64) & 1 == 1
    }
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

    /// The textbook definition.
    fn length(first: &[u8], second: &[u8]) -> u32 {
        match (first.split_last(), second.split_last()) {
            (Some((one, first)), Some((other, second))) if one == other => length(first, second) + 1,
            (Some((_, shorter)), Some((_, shorter_second))) => {
                length(shorter, second).max(length(first, shorter_second))
            }
            _ => 0,
        }
    }

    proptest! {
        #[test]
        fn the_result_is_a_common_subsequence_and_no_other_is_longer(
            first in vec(0..3_u8, 0..9),
            second in vec(0..3_u8, 0..9),
        ) {
            let (ranges, total) = common(&first, &second);
            prop_assert_eq!(total, length(&first, &second));
            prop_assert_eq!(ranges.iter().map(|(ours, _)| ours.len()).sum::<usize>(), total as usize);
            for (ours, theirs) in &ranges {
                prop_assert_eq!(&first[ours.clone()], &second[theirs.clone()]);
            }
            let is_descending = |one: &Range<usize>, other: &Range<usize>| other.end <= one.start;
            let is_sorted = ranges.is_sorted_by(|one, other| {
                is_descending(&one.0, &other.0) && is_descending(&one.1, &other.1)
            });
            prop_assert!(is_sorted);
        }
    }
}
