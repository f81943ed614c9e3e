//! Programs of two releases: which one a node is started with, and what happens when one is refused.

use super::World;
use super::healing::Phase;
use crate::events::Place;
use crate::faults::Class;
use node::Node;
use wire::release::{RELEASES, Release, Releases};

/// What the last release's program understands.
const LAST: Releases = Releases { oldest: RELEASES.oldest, newest: RELEASES.newest - 1 };

/// Whether a program was refused because of the cluster's level.
pub(super) fn is_of_level(why: &str) -> bool {
    why.contains("the cluster is at level")
}

impl World {
    /// Chooses the program with which a node starts. Like an operator, it goes back only while the level allows it, as far as
    /// can be known: the level may be rising at that moment.
    pub(super) fn choose_program(&mut self, place: Place) -> Releases {
        if !self.scenario.has_old_programs {
            return RELEASES;
        }
        let most = match self.phase {
            Phase::Starting { .. } => 80,
            Phase::Faults => 40,
            _ => 0,
        };
        let is_drawn = self.programs.percent(most);
        let level = self.map.level;
        let host = self.host(place);
        let is_old = is_drawn && level <= LAST.newest && !host.needs_new_program;
        let releases = if is_old { LAST } else { RELEASES };
        let (before, is_first) = (std::mem::replace(&mut host.releases, releases), host.incarnation == 0);
        if before != releases && !is_first {
            self.counts.add(if is_old { Class::Downgraded } else { Class::Upgraded });
        }
        if is_old {
            self.tell_of(place, "gets the last release's program");
        }
        releases
    }

    /// The release that two nodes speak with each other.
    pub(super) fn spoken(&self, one: Place, other: Place) -> Release {
        let [one, other] = [one, other].map(|place| self.hosts[usize::from(place)].releases);
        one.common(other).unwrap_or(RELEASES.oldest)
    }

    /// An operator reads why nodes are not admitted, and replaces the programs that are too old.
    pub(super) fn exchange_refused_programs(&mut self) {
        for place in self.places() {
            let host = self.host(place);
            let refusal = host.node().and_then(Node::refusal);
            if host.releases == RELEASES || !refusal.is_some_and(is_of_level) {
                continue;
            }
            host.needs_new_program = true;
            self.counts.add(Class::OldProgramRefused);
            self.crash(place, 0, true);
        }
    }
}
