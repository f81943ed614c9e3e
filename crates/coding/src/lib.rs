//! Erasure coding of values: split, join, rebuild, checksums.
//!
//! A value becomes fragments, of which any k are enough to have it back: systematic Reed-Solomon over GF(2^8). The
//! fragments with the numbers 0 to k - 1 are the value itself, cut into k parts; all others are computed. What a fragment
//! holds follows from the value, k and the fragment's number, and from nothing else: how many others there are does not
//! matter, so a group can grow without coding anything again.
//!
//! A long value is coded stripe by stripe, so that nobody has to hold or send all of it at once: see [`Layout`].
//!
//! Reading order: `layout` (how a value is cut), `matrix` (which combination of which part a fragment is), [`cost`] (when it is
//! worth it).

pub mod cost;
mod layout;
mod matrix;

pub use layout::{Layout, PIECE_BYTES_MAX};
pub use matrix::NUMBERS_MAX;

/// Why fragments cannot be put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodingError {
    /// There are fewer pieces of different fragments than the value was cut into.
    #[error("{have} pieces of {need} are there")]
    TooFew {
        /// How many there are.
        have: usize,
        /// How many it takes.
        need: usize,
    },
    /// A piece has another length than its place says.
    #[error("a piece of {have} bytes stands where {need} belong")]
    Length {
        /// Its length.
        have: usize,
        /// What it should be.
        need: usize,
    },
    /// A place that the value does not have.
    #[error("the value has no stripe {0}")]
    Stripe(usize),
}

/// How many members of a group of `members` may fail while a majority of it is left.
pub fn failures_tolerated(members: usize) -> usize {
    members.saturating_sub(1) / 2
}

/// Into how many parts a value can be cut at most in a group of `members`, if whoever is left when a minority has failed
/// is to have it back. 0: there are no members.
pub fn data_fragments_max(members: usize) -> usize {
    members - failures_tolerated(members)
}

/// The checksum of a piece. `place` says of which value it is, of which fragment, and which piece: a piece that got into
/// the place of another one does not have that one's checksum.
pub fn checksum(piece: &[u8], place: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(piece, place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_group_can_always_have_a_value_back() {
        let most: Vec<usize> = (0..=9).map(data_fragments_max).collect();
        assert_eq!(most, [0, 1, 2, 2, 3, 3, 4, 4, 5, 5]);
        for members in 1..=9 {
            assert_eq!(data_fragments_max(members) + failures_tolerated(members), members);
        }
    }

    #[test]
    fn a_piece_in_the_place_of_another_one_has_a_wrong_checksum() {
        assert_eq!(checksum(b"piece", 1), checksum(b"piece", 1));
        assert_ne!(checksum(b"piece", 1), checksum(b"piece", 2));
        assert_ne!(checksum(b"piece", 1), checksum(b"niece", 1));
    }
}
