//! Random effects on the packets of a link.
//!
//! The draws of a packet are a function of the seed, the link and the packet's number on that link, and of nothing
//! else: not of when it is sent, of other links, or of the link's settings. So the same seed loses the same
//! packets of a link in every run, and changing a link's delay does not change which.

use super::settings::{Link, Node};
use super::{Nanos, nanos};

/// A packet gets through after this many losses.
const LOSSES_MAX: u32 = 6;

/// What happens to one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fate {
    /// The packet's delay beyond its link's minimum delay, if it is not lost.
    pub(super) later: Nanos,
    /// How many times in a row it is lost.
    pub(super) losses: u32,
    pub(super) is_reordered: bool,
}

/// The draws of one link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draws {
    seed: u64,
}

impl Draws {
    pub(super) fn new(seed: u64, from: Node, to: Node) -> Draws {
        let link = u64::from(from) << 16 | u64::from(to);
        Draws { seed: mixed(mixed(seed) ^ link) }
    }

    /// The fate of the packet with this number.
    pub(super) fn fate(self, link: &Link, packet: u64) -> Fate {
        let mut numbers = (0..).map(|draw: u64| mixed(self.seed ^ mixed(packet << 4 | draw)));
        let mut share =
            move || numbers.next().map_or(0.0, |number| (number >> 11) as f64 / (1u64 << 53) as f64);
        // Drawn in a fixed order, whether needed or not, so that one setting does not shift another's draws.
        let (jitter, reorder) = (share(), share());
        let mut losses = 0;
        while losses < LOSSES_MAX && share() < link.loss {
            losses += 1;
        }
        let is_reordered = reorder < link.reorder;
        let mut later = (2.0 * jitter * nanos(link.jitter) as f64) as Nanos;
        if is_reordered {
            later += nanos(link.reorder_delay);
        }
        Fate { later, losses, is_reordered }
    }
}

/// The finalizer of splitmix64: a bijection whose output bits all depend on all input bits.
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(words: &str) -> Link {
        Link::default().change(words).unwrap()
    }

    fn fates(seed: u64, from: Node, to: Node, link: &Link) -> Vec<Fate> {
        let draws = Draws::new(seed, from, to);
        (0..20_000).map(|packet| draws.fate(link, packet)).collect()
    }

    #[test]
    fn a_seed_gives_each_link_its_own_repeatable_draws() {
        let link = link("delay=10ms jitter=2ms loss=5% reorder=5%");
        assert_eq!(fates(7, 1, 2, &link), fates(7, 1, 2, &link));
        assert_ne!(fates(7, 1, 2, &link), fates(8, 1, 2, &link));
        assert_ne!(fates(7, 1, 2, &link), fates(7, 2, 1, &link));
    }

    #[test]
    fn one_setting_does_not_shift_the_draws_of_another() {
        let lossy = link("loss=5%");
        let all = link("delay=10ms jitter=2ms loss=5% reorder=5%");
        let losses = |link| fates(7, 1, 2, link).iter().map(|fate| fate.losses).collect::<Vec<_>>();
        assert_eq!(losses(&lossy), losses(&all));
    }

    #[test]
    fn the_draws_are_as_frequent_as_asked() {
        let link = link("delay=10ms jitter=2ms loss=5% reorder=10%");
        let fates = fates(1, 1, 2, &link);
        let count = |is: fn(&Fate) -> bool| fates.iter().filter(|fate| is(fate)).count();
        assert!((900..1_100).contains(&count(|fate| fate.losses > 0)));
        assert!((30..75).contains(&count(|fate| fate.losses > 1)));
        assert!((1_900..2_100).contains(&count(|fate| fate.is_reordered)));
        let in_order = || fates.iter().filter(|fate| !fate.is_reordered);
        let mean = in_order().map(|fate| fate.later).sum::<u64>() / in_order().count() as u64;
        assert!((1_950_000..2_050_000).contains(&mean), "{mean}");
        assert!(in_order().all(|fate| fate.later <= 4_000_000));
    }

    #[test]
    fn a_packet_that_is_always_lost_arrives_eventually() {
        let link = link("loss=100%");
        assert!(fates(1, 1, 2, &link).iter().all(|fate| fate.losses == LOSSES_MAX));
    }
}
