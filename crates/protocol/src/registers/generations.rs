//! Generations: how the group knows that messages of an earlier time no longer matter.
//!
//! Every operation belongs to the generation that its coordinator was in when the operation began, and every value sent
//! for it carries that number. When no member has an operation of an earlier generation open, any message of such an
//! operation that is still under way is useless, and the members may agree to refuse it. See
//! [`collection`](super::collection) for the purpose.

/// A member's generation, and the operations that it has open in each.
#[derive(Clone, Debug, Default)]
pub struct Generations {
    current: u64,
    pub(super) minimum: u64,
    pub(super) floor: u64,
    /// Operations under way, by generation; ascending and rarely more than two.
    pub(super) open: Vec<(u64, u64)>,
}

impl Generations {
    /// The generation of operations that begin now.
    #[inline]
    pub fn current(&self) -> u64 {
        self.current
    }

    /// Values stamped with less than this are refused.
    #[inline]
    pub fn minimum(&self) -> u64 {
        self.minimum
    }

    /// True for a value that may be stored.
    #[inline]
    pub fn admits(&self, stamp: u64) -> bool {
        stamp >= self.minimum
    }

    /// Every counter of a new tag is greater than this: no new tag may be less than that of a forgotten tombstone,
    /// because another member may still hold the tombstone.
    #[inline]
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// Notes that a tombstone with this counter may be forgotten.
    pub fn raise_floor(&mut self, counter: u64) {
        self.floor = self.floor.max(counter);
    }

    /// Makes operations that begin from now on at least of this generation.
    pub fn advance(&mut self, generation: u64) {
        self.current = self.current.max(generation);
    }

    /// Refuses values of an earlier generation from now on.
    pub fn refuse_before(&mut self, generation: u64) {
        self.minimum = self.minimum.max(generation);
        self.advance(generation);
    }

    /// Begins an operation, and returns its generation.
    #[inline]
    pub fn operation_begins(&mut self) -> u64 {
        match self.open.last_mut() {
            Some((generation, count)) if *generation == self.current => *count += 1,
            _ => self.open.push((self.current, 1)),
        }
        self.current
    }

    /// Ends an operation of a generation.
    #[inline]
    pub fn operation_ends(&mut self, generation: u64) {
        let index = self.open.iter().position(|(open, count)| *open == generation && *count > 0);
        let index = index.expect("an operation ends once, in the generation in which it began");
        self.open[index].1 -= 1;
        if self.open[index].1 == 0 && generation != self.current {
            self.open.remove(index);
        }
    }

    /// True when no operation of an earlier generation is under way here.
    pub fn none_open_before(&self, generation: u64) -> bool {
        self.open.iter().all(|(open, count)| *open >= generation || *count == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_generation_is_open_until_its_last_operation_ends() {
        let mut generations = Generations::default();
        let (first, second) = (generations.operation_begins(), generations.operation_begins());
        generations.advance(1);
        let third = generations.operation_begins();
        assert_eq!((first, second, third), (0, 0, 1));
        generations.operation_ends(first);
        assert!(!generations.none_open_before(1));
        generations.operation_ends(second);
        assert!(generations.none_open_before(1));
        assert!(!generations.none_open_before(2));
        generations.operation_ends(third);
        assert!(generations.none_open_before(2));
        assert!(generations.admits(0));
        generations.refuse_before(2);
        assert!(!generations.admits(1) && generations.admits(2));
        assert_eq!(generations.operation_begins(), 2);
    }
}
