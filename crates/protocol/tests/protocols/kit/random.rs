//! A small seeded generator: a seed gives the same schedule on every machine.

/// SplitMix64 (Steele, Lea and Flood 2014).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True `parts` times out of a hundred.
    pub(crate) fn percent(&mut self, parts: u64) -> bool {
        self.below(100) < parts
    }

    /// Returns a number up to `most` with a probability of `chance` percent, otherwise 0.
    pub(crate) fn some(&mut self, chance: u64, most: u64) -> u64 {
        if self.percent(chance) { 1 + self.below(most) } else { 0 }
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.below(from.len() as u64) as usize])
    }
}
