//! Random numbers that follow from a seed.

use std::collections::BTreeSet;

/// Draws random numbers that follow from a seed.
pub(super) struct Draws(pub(super) u64);

impl Draws {
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(1);
        (mix(self.0) % end as u64) as usize
    }

    /// Draws distinct numbers below `end`, in ascending order (Floyd's algorithm).
    pub(super) fn distinct(&mut self, count: usize, end: usize) -> BTreeSet<usize> {
        let mut drawn = BTreeSet::new();
        for last in end - count..end {
            let number = self.below(last + 1);
            if !drawn.insert(number) {
                drawn.insert(last);
            }
        }
        drawn
    }
}

/// Spreads consecutive numbers evenly (the finaliser of splitmix64).
pub(super) fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
