//! Long turns: the process vouches for its node meanwhile, and nobody may take the node for dead.

use super::World;
use super::healing::Phase;
use crate::events::{Event, Place};
use crate::faults::{Class, MS};
use crate::report::Broken;
use crate::trace::id;
use node::Node;
use wire::release::Release;

/// How often a process looks whether its node is in a long turn, and what others say of theirs, as in the server. A turn is long
/// when it was under way at two looks.
const LOOK_US: u64 = 20 * MS;

/// The release whose links carry vouches.
const VOUCHES_SINCE: Release = 2;

impl World {
    /// A turn begins that takes long.
    pub(super) fn begin_long_turn(&mut self, place: Place, us: u64) {
        let (now, after_us) = (self.now, LOOK_US + self.random.below(LOOK_US));
        let host = self.host(place);
        host.busy_until = now + us;
        let incarnation = host.incarnation;
        self.queue.push(now + after_us, Event::Vouch { node: place, incarnation });
    }

    /// A process looks whether its node is in a long turn. If so, it tells the others, and looks again.
    pub(super) fn vouch(&mut self, place: Place, incarnation: u32) {
        let now = self.now;
        let host = self.host(place);
        if !host.is_alive() || host.incarnation != incarnation || now >= host.busy_until {
            return;
        }
        self.queue.push(now + LOOK_US, Event::Vouch { node: place, incarnation });
        for to in self.places().filter(|to| *to != place) {
            let Some(generation) = *self.network.end(place, to) else { continue };
            if self.network.link(place, to).is_blocked() || self.spoken(place, to) < VOUCHES_SINCE {
                continue;
            }
            let until_look_us = self.random.below(LOOK_US);
            let at = now + self.network.latency(now, place, to) + until_look_us;
            self.queue.push(at, Event::Vouched { from: place, to, generation });
        }
    }

    pub(super) fn vouch_arrives(&mut self, from: Place, to: Place, generation: u32) {
        let (now, stands) = (self.now, *self.network.end(to, from) == Some(generation));
        let host = self.host(to);
        if stands && host.is_alive() {
            host.vouched |= 1 << from;
            host.wake(now);
        }
    }

    /// In a run in which nothing goes wrong but that nodes are busy, checks that no leader changes, except that the preferred one
    /// takes over.
    pub(super) fn check_leaderships(&mut self, place: Place, node: &Node) {
        // Groups that have just begun may still settle on a leader.
        let has_begun = self.counts.of(Class::LongTurn) > 0;
        if !self.scenario.is_only_busy || self.phase != Phase::Faults || !has_begun {
            return;
        }
        for (group, number) in node.leaderships() {
            let known = *self.leaderships.entry(group).or_insert((place, number));
            // The preferred leader gets its group handed over once, and it stays there.
            let is_handed_over = known.0 != place && node.cluster_map().preferred_leader(group) == id(place);
            if is_handed_over {
                self.leaderships.insert(group, (place, number));
            } else if known != (place, number) {
                let words = format!(
                    "node {} leads group {group} in leadership {number}, and node {} led it in {}, though nodes were only busy",
                    id(place),
                    id(known.0),
                    known.1
                );
                return self.fail(Broken::Leadership, words);
            }
        }
    }
}
