//! Random numbers that follow from a seed.

use crate::limits::is_worth_a_walk;
use std::collections::BTreeSet;

/// Draws random numbers that follow from a seed.
pub(super) struct Draws(pub(super) u64);

impl Draws {
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(1);
        (mix(self.0) % end as u64) as usize
    }

    /// Draws distinct numbers below `end`, in ascending order (Floyd's algorithm).
    pub(super) fn distinct(&mut self, count: usize, end: usize) -> Vec<usize> {
        if is_worth_a_walk(count, end) {
            let mut is_drawn = vec![false; end];
            self.floyd(count, end, |number| !std::mem::replace(&mut is_drawn[number], true));
            return (0..end).filter(|number| is_drawn[*number]).collect();
        }
        let mut drawn = BTreeSet::new();
        self.floyd(count, end, |number| drawn.insert(number));
        drawn.into_iter().collect()
    }

    /// `insert` notes a number, and returns whether it is new.
    fn floyd(&mut self, count: usize, end: usize, mut insert: impl FnMut(usize) -> bool) {
        for last in end - count..end {
            let number = self.below(last + 1);
            if !insert(number) {
                insert(last);
            }
        }
    }
}

/// Spreads consecutive numbers evenly (the finaliser of splitmix64).
pub(super) fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
