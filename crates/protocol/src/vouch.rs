//! A node's word that it is alive and busy: it excuses the silence of the node's replicas.
//!
//! All of a node's replicas are stepped by one thread, and a long command keeps it from everything else. Another thread of
//! the process then vouches for it to the other nodes. A vouch says that the process runs, not that it is up to date, so
//! nothing but waiting may depend on it: whether a silent member counts as dead. Leases, votes and decisions do not.
//!
//! A vouch is short, and given again while the node is busy. And it excuses only silence up to a bound: a node that is busy
//! for ever must be replaced.

use crate::effects::{NodeId, Now};

/// For how long one vouch counts, in milliseconds: until the next one, also where one long turn follows another.
pub const VOUCH_MS: u64 = 100;

/// The longest silence that vouches excuse, in milliseconds.
pub const BUSY_MS_MAX: u64 = 5000;

/// The newest vouch that a node gave. The default: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vouch {
    until_us: u64,
    silence_us_max: u64,
}

impl Vouch {
    /// A vouch that arrived at `now`. All times are `patience` times as long as usual.
    pub fn new(now: Now, patience: u64) -> Vouch {
        Vouch {
            until_us: now.monotonic_us + VOUCH_MS * patience * 1000,
            silence_us_max: BUSY_MS_MAX * patience * 1000,
        }
    }

    /// Whether the node need not have sent anything since `since_us`: it is busy, and has not been so for too long.
    #[inline]
    pub fn excuses(&self, now: Now, since_us: u64) -> bool {
        now.monotonic_us < self.until_us && now.monotonic_us < since_us + self.silence_us_max
    }
}

/// The newest vouch of each node.
#[derive(Clone, Debug, Default)]
pub struct Vouches(Vec<(NodeId, Vouch)>);

impl Vouches {
    /// Notes a vouch.
    pub fn note(&mut self, node: NodeId, vouch: Vouch) {
        match self.0.iter_mut().find(|(known, _)| *known == node) {
            Some((_, newest)) => *newest = vouch,
            None => self.0.push((node, vouch)),
        }
    }

    /// See [`Vouch::excuses`].
    pub fn excuse(&self, node: NodeId, now: Now, since_us: u64) -> bool {
        self.0.iter().any(|(known, vouch)| *known == node && vouch.excuses(now, since_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Now {
        Now { monotonic_us: ms * 1000, unix_ms: 0 }
    }

    #[test]
    fn a_vouch_excuses_silence_for_a_moment_and_never_too_long_a_silence() {
        assert!(!Vouch::default().excuses(at_ms(0), 0));
        let vouch = Vouch::new(at_ms(6000), 1);
        assert!(vouch.excuses(at_ms(6099), 5_900_000) && !vouch.excuses(at_ms(6100), 5_900_000));
        assert!(vouch.excuses(at_ms(6050), 1_050_001) && !vouch.excuses(at_ms(6050), 1_050_000));
        assert!(Vouch::new(at_ms(6000), 2).excuses(at_ms(6199), 0), "all times are twice as long");
    }

    #[test]
    fn the_newest_vouch_of_each_node_counts() {
        let mut vouches = Vouches::default();
        vouches.note(2, Vouch::new(at_ms(100), 1));
        vouches.note(2, Vouch::new(at_ms(150), 1));
        assert!(vouches.excuse(2, at_ms(240), 0) && !vouches.excuse(2, at_ms(250), 0));
        assert!(!vouches.excuse(3, at_ms(150), 0));
    }
}
