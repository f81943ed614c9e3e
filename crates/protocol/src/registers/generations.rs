//! Generations: how the group knows that no message of an earlier time is still on its way.
//!
//! Every operation belongs to the generation that its coordinator was in when it began, and every value that is sent
//! for it carries that number. When no member has an operation before a generation open, whatever is still under way
//! of earlier ones comes too late for anybody, and the members may agree to refuse it. See
//! [`collection`](super::collection) for what this is good for.

/// A member's place among the generations.
#[derive(Clone, Debug, Default)]
pub struct Generations {
    current: u64,
    pub(super) minimum: u64,
    pub(super) floor: u64,
    /// Operations under way, by generation; ascending and hardly ever more than two.
    pub(super) open: Vec<(u64, u64)>,
}

impl Generations {
    /// The generation of what begins now.
    #[inline]
    pub fn current(&self) -> u64 {
        self.current
    }

    /// What is stamped with less than this is refused.
    #[inline]
    pub fn minimum(&self) -> u64 {
        self.minimum
    }

    /// True for a value that may be stored.
    #[inline]
    pub fn admits(&self, stamp: u64) -> bool {
        stamp >= self.minimum
    }

    /// Every counter of a new tag is greater than this: no tag may be less than that of a tombstone which was
    /// forgotten, for some member may not have forgotten it yet.
    #[inline]
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// A tombstone with this counter may be forgotten.
    pub fn raise_floor(&mut self, counter: u64) {
        self.floor = self.floor.max(counter);
    }

    /// What begins from now on is at least of this generation.
    pub fn advance(&mut self, generation: u64) {
        self.current = self.current.max(generation);
    }

    /// What is of an earlier generation is refused from now on.
    pub fn refuse_before(&mut self, generation: u64) {
        self.minimum = self.minimum.max(generation);
        self.advance(generation);
    }

    /// An operation begins; it is of the generation that is returned.
    #[inline]
    pub fn operation_begins(&mut self) -> u64 {
        match self.open.last_mut() {
            Some((generation, count)) if *generation == self.current => *count += 1,
            _ => self.open.push((self.current, 1)),
        }
        self.current
    }

    /// An operation of a generation is over.
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
