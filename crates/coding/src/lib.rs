//! Erasure coding of values: split, join, rebuild, checksums.
//!
//! A value is encoded as fragments, any k of which are enough to reconstruct it: systematic Reed-Solomon over
//! GF(2^8). The fragments numbered 0 to k - 1 are the value itself, cut into k parts; all others are computed. The
//! content of a fragment depends only on the value, k and the fragment's number, not on the number of fragments, so a
//! group can grow without re-encoding anything.
//!
//! A long value is coded stripe by stripe, so that no node has to hold or send all of it at once: see [`Layout`].
//!
//! Reading order: `layout` (how a value is cut), `matrix` (which combination of the parts each fragment is), [`cost`]
//! (when coding pays off).

pub mod cost;
mod layout;
mod matrix;

pub use layout::{Layout, PIECE_BYTES_MAX};
pub use matrix::NUMBERS_MAX;

/// Why fragments cannot be combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodingError {
    /// There are fewer pieces of different fragments than parts of the value.
    #[error("{have} pieces of {need} are there")]
    TooFew {
        /// The number of pieces given.
        have: usize,
        /// The number of pieces needed.
        need: usize,
    },
    /// A piece does not have the length that its stripe requires.
    #[error("a piece of {have} bytes stands where {need} belong")]
    Length {
        /// Its length in bytes.
        have: usize,
        /// The required length in bytes.
        need: usize,
    },
    /// The value has no stripe of this number.
    #[error("the value has no stripe {0}")]
    Stripe(usize),
}

/// The number of members that may fail in a group of `members` while a majority is left.
pub fn failures_tolerated(members: usize) -> usize {
    members.saturating_sub(1) / 2
}

/// The most parts into which a value can be cut in a group of `members` such that the members left after a minority has
/// failed can reconstruct it. 0 if there are no members.
pub fn data_fragments_max(members: usize) -> usize {
    members - failures_tolerated(members)
}

/// The checksum of a piece. `place` encodes the value, the fragment, and the number of the piece: a piece in the wrong
/// place has a wrong checksum.
pub fn checksum(piece: &[u8], place: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(piece, place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_group_can_always_reconstruct_a_value() {
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
