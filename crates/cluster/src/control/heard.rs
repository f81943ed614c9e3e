//! What the control leader remembers of a node's renewals: the newest one, and whether two processes send them in the
//! name of one node.

use super::change::Change;
use super::map::Start;
use protocol::NodeId;
use wire::release::Releases;

/// The newest renewal that a node sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    pub(super) at_us: u64,
    pub(super) start: Start,
    pub(super) sequence: u64,
    pub(super) map_version: u64,
    pub(super) releases: Releases,
    /// The renewal has no answer yet.
    pub(super) is_open: bool,
    /// The start that this one took the place of, if that was heard not long before.
    displaced: Option<Start>,
    /// When this node's number was last heard from two processes in turns; 0: never.
    contested_us: u64,
}

/// How long two processes are remembered that have the same number. They disturb each other's links, so each is heard rarely.
const CONTESTED_US: u64 = 10_000_000;

impl Heard {
    /// A renewal that was heard at a time, after another one of the same node.
    pub(super) fn after(
        before: Option<&Heard>,
        at_us: u64,
        (start, releases): (Start, Releases),
        (sequence, map_version): (u64, u64),
    ) -> Heard {
        let (displaced, contested_us) = before.map_or((None, 0), |before| before.displaced_by(start, at_us));
        Heard { at_us, start, sequence, map_version, releases, is_open: true, displaced, contested_us }
    }

    /// What a renewal that takes the place of this one has to remember.
    fn displaced_by(&self, start: Start, now_us: u64) -> (Option<Start>, u64) {
        if self.start == start {
            (self.displaced, self.contested_us)
        } else if now_us >= self.at_us + CONTESTED_US {
            (None, 0)
        } else if self.displaced == Some(start) {
            (Some(self.start), now_us)
        } else {
            (Some(self.start), self.contested_us)
        }
    }

    /// Whether another process has this node's number.
    pub(super) fn is_contested(&self, now_us: u64) -> bool {
        self.contested_us > 0 && now_us < self.contested_us + CONTESTED_US
    }

    /// The change that registers this start.
    pub(super) fn as_change(&self, id: NodeId) -> Change {
        Change::NodeStarted { id, start: self.start, releases: self.releases }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    /// Takes the renewals of one node's number: from which storage, and when. Returns whether two processes are known to have
    /// that number.
    fn is_contested_after(renewals: &[(u64, u64)]) -> bool {
        let mut heard: Option<Heard> = None;
        for (sequence, (identity, at_us)) in (1..).zip(renewals) {
            let start = Start { identity: *identity, life: 1, run: *identity, found: 0 };
            heard = Some(Heard::after(heard.as_ref(), *at_us, (start, Releases::default()), (sequence, 0)));
        }
        heard.is_some_and(|heard| heard.is_contested(heard.at_us))
    }

    #[test]
    fn two_processes_with_one_number_are_told_from_one_that_came_back() {
        assert!(!is_contested_after(&[(7, SECOND), (7, 2 * SECOND)]));
        assert!(
            !is_contested_after(&[(7, SECOND), (8, 2 * SECOND), (8, 3 * SECOND)]),
            "with an empty folder"
        );
        assert!(is_contested_after(&[(7, SECOND), (8, 2 * SECOND), (7, 3 * SECOND)]));
        assert!(is_contested_after(&[(7, SECOND), (8, 2 * SECOND), (7, 3 * SECOND), (8, 4 * SECOND)]));
        let later = [(7, SECOND), (8, 20 * SECOND), (7, 40 * SECOND)];
        assert!(!is_contested_after(&later), "one folder was tried after the other");
    }
}
