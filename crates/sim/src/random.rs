//! A small seeded generator: a seed gives the same numbers on every machine.

/// SplitMix64 (Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(state: u64) -> u64 {
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Random {
    /// Creates one of the many streams of a seed. Each link, client and node draws from its own stream, so that
    /// removing one fault from a run disturbs the rest as little as possible.
    pub(crate) fn new(seed: u64, stream: u64) -> Random {
        Random(mix(seed) ^ mix(stream.wrapping_mul(INCREMENT).wrapping_add(1)))
    }

    #[inline]
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(INCREMENT);
        mix(self.0)
    }

    /// Returns a number below `bound`; 0 when `bound` is 0.
    #[inline]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a number from `least` to `most`, both included.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// Returns a number from `least` to `most`, with each order of magnitude equally likely.
    pub(crate) fn scaled(&mut self, least: u64, most: u64) -> u64 {
        let halvings = (most / least.max(1)).max(1).ilog2();
        let most = most >> self.below(u64::from(halvings) + 1);
        self.between(least, most.max(least))
    }

    /// Returns true with a probability of `parts` percent.
    pub(crate) fn percent(&mut self, parts: u64) -> bool {
        self.below(100) < parts
    }

    /// Returns true with a probability of `parts` in a million. Draws nothing when `parts` is 0.
    #[inline]
    pub(crate) fn per_million(&mut self, parts: u32) -> bool {
        parts > 0 && self.below(1_000_000) < u64::from(parts)
    }

    /// Returns one of the elements of `from`, which must not be empty.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_one_seed_differ_and_repeat() {
        let draw = |seed, stream| Random::new(seed, stream).draw();
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }

    #[test]
    fn numbers_stay_within_their_bounds() {
        let mut random = Random::new(7, 0);
        for _ in 0..10_000 {
            assert!((3..=5).contains(&random.between(3, 5)));
            assert!((10..=10_000).contains(&random.scaled(10, 10_000)));
        }
        assert_eq!(random.below(0), 0);
    }
}
