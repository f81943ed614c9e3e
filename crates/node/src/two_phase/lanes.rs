//! Makes one transaction of the requests of several connections. Those that come in one turn and ask the same groups are merged; and
//! while a transaction of this node holds a key, those that need that key wait here, and are merged. So the transactions of one node
//! are not in each other's way, and the fewer keys its clients use, the more of their requests each transaction takes.
//!
//! Nobody waits for ever: what waits longest goes first, and what came later takes none of its keys.

use super::merging::{Merged, Work};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};

/// The most bytes, and keys, of requests of several connections that are merged: none of them waits for much of others.
pub(crate) const LANE_BYTES_MAX: usize = 64 << 10;
pub(crate) const LANE_KEYS_MAX: usize = 1000;

/// Requests of several connections are merged if the last of them came so long after the first, at most: all are answered, or given
/// up, together.
const LANE_US: u64 = 100_000;

/// The most transactions of one lane that are under way. More would not be faster, and what waits is merged.
const UNDER_WAY_MAX: usize = 4;

/// The transactions that may have requests of several connections.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    /// By their groups, so that nobody waits for a group that its request does not need.
    lanes: BTreeMap<Vec<u16>, Lane>,
    /// The hashes of the keys of all that are under way.
    held: BTreeSet<u64>,
    arrived: u64,
}

#[derive(Debug, Default)]
struct Lane {
    under_way: usize,
    /// Each with its number in the order of arrival.
    waiting: VecDeque<(u64, Merged)>,
}

impl Lanes {
    /// Takes a transaction that is to begin, unless it must not be merged with those of other connections: then it is returned.
    pub(crate) fn add(&mut self, mut merged: Merged) -> Option<Merged> {
        if !is_shared(&merged) {
            return Some(merged);
        }
        merged.held = hashes(&merged.work);
        let lane = self.lanes.entry(merged.work.groups().collect()).or_default();
        match lane.waiting.back_mut().filter(|(_, last)| may_join(last, &merged)) {
            Some((_, last)) => {
                let held = last.held.union(&merged.held).copied().collect();
                last.merge(merged);
                last.held = held;
            }
            None => {
                self.arrived += 1;
                lane.waiting.push_back((self.arrived, merged));
            }
        }
        None
    }

    /// Takes the transactions that begin now.
    pub(crate) fn take_free(&mut self) -> Vec<Merged> {
        let Lanes { lanes, held, .. } = self;
        let mut first: Vec<&mut Lane> = lanes.values_mut().collect();
        first.sort_by_key(|lane| lane.waiting.front().map(|(arrived, _)| *arrived));
        let (mut free, mut awaited) = (Vec::new(), BTreeSet::new());
        for lane in first {
            while let Some((_, next)) = lane.waiting.front() {
                if lane.under_way == UNDER_WAY_MAX
                    || !next.held.is_disjoint(held)
                    || !next.held.is_disjoint(&awaited)
                {
                    awaited.extend(next.held.iter().copied());
                    break;
                }
                held.extend(next.held.iter().copied());
                lane.under_way += 1;
                free.extend(lane.waiting.pop_front().map(|(_, next)| next));
            }
        }
        free
    }

    /// A transaction has ended that was under way, in a lane or not.
    pub(crate) fn end(&mut self, merged: &Merged) {
        if merged.held.is_empty() {
            return;
        }
        let groups: Vec<u16> = merged.work.groups().collect();
        let lane = self.lanes.get_mut(&groups).filter(|lane| lane.under_way > 0).expect("it is under way");
        lane.under_way -= 1;
        if lane.under_way == 0 && lane.waiting.is_empty() {
            self.lanes.remove(&groups);
        }
        for hash in &merged.held {
            assert!(self.held.remove(hash), "what is under way holds its keys");
        }
    }
}

/// Whether a transaction may have requests of other connections: they must not wait for what costs much, as a script may. Reads hold
/// no keys.
fn is_shared(merged: &Merged) -> bool {
    match &merged.work {
        Work::Divided(divided) => {
            !merged.is_alone
                && merged.wait.is_none()
                && !merged.work.shows_versions()
                && divided.is_plain()
                && divided.keys() <= LANE_KEYS_MAX
                && divided.bytes() <= LANE_BYTES_MAX
        }
        Work::Evaluation(_) => false,
    }
}

fn may_join(last: &Merged, next: &Merged) -> bool {
    let (Work::Divided(one), Work::Divided(other)) = (&last.work, &next.work) else { return false };
    last.can_take(next)
        && next.deadline_us.abs_diff(last.deadline_us) <= LANE_US
        && one.keys() + other.keys() <= LANE_KEYS_MAX
        && one.bytes() + other.bytes() <= LANE_BYTES_MAX
}

/// The hashes of its keys. Two keys with one hash count as one: a transaction waits without need.
fn hashes(work: &Work) -> BTreeSet<u64> {
    let mut hashes = BTreeSet::new();
    for command in work.drafts().values().flat_map(|draft| draft.transaction().commands()) {
        command.for_each_key(|key| {
            let mut hasher = DefaultHasher::new();
            key.hash(&mut hasher);
            hashes.insert(hasher.finish());
        });
    }
    hashes
}

#[cfg(test)]
mod tests {
    use super::super::merging::tests::{clients, setting};
    use super::*;

    fn begun(lanes: &mut Lanes) -> Vec<Merged> {
        lanes.take_free()
    }

    #[test]
    fn requests_of_one_turn_and_the_same_groups_are_one_transaction() {
        let mut lanes = Lanes::default();
        for (client, keys) in [(1, ["a1", "b1"]), (2, ["a2", "b2"]), (3, ["a1", "b2"]), (4, ["a3", "c3"])] {
            assert!(lanes.add(setting(client, keys)).is_none());
        }
        let free = begun(&mut lanes);
        assert_eq!(free.iter().map(clients).collect::<Vec<_>>(), [vec![1, 2, 3], vec![4]]);
        free.iter().for_each(|merged| lanes.end(merged));
        assert!(lanes.lanes.is_empty() && lanes.held.is_empty());
    }

    #[test]
    fn what_needs_a_key_that_is_held_waits_and_is_merged() {
        let mut lanes = Lanes::default();
        lanes.add(setting(1, ["a1", "b1"]));
        let first = begun(&mut lanes).pop().unwrap();
        [2, 3].into_iter().for_each(|client| drop(lanes.add(setting(client, ["a1", "b2"]))));
        assert!(begun(&mut lanes).is_empty());
        // It is free, but the older ones of its lane are not.
        lanes.add(setting(4, ["a4", "b4"]));
        assert!(begun(&mut lanes).is_empty());
        // What came later takes no key of theirs, in another lane either.
        lanes.add(setting(5, ["b2", "c5"]));
        lanes.add(setting(6, ["b6", "d6"]));
        assert_eq!(begun(&mut lanes).iter().map(clients).collect::<Vec<_>>(), [vec![6]]);
        lanes.end(&first);
        assert_eq!(begun(&mut lanes).iter().map(clients).collect::<Vec<_>>(), [vec![2, 3, 4]]);
    }

    #[test]
    fn what_is_long_or_is_tried_again_alone_is_not_merged_with_others() {
        let mut lanes = Lanes::default();
        let alone = Merged { is_alone: true, ..setting(1, ["a1", "b1"]) };
        assert!(lanes.add(alone).is_some_and(|it| it.held.is_empty()));
        let long = "v".repeat(LANE_BYTES_MAX);
        assert!(lanes.add(setting(1, [&format!("a{long}"), "b1"])).is_some());
        let late = Merged { deadline_us: LANE_US + 2, ..setting(3, ["a3", "b3"]) };
        assert!(lanes.add(setting(2, ["a2", "b2"])).is_none() && lanes.add(late).is_none());
        assert_eq!(begun(&mut lanes).iter().map(clients).collect::<Vec<_>>(), [[2], [3]]);
        for client in 4..8 {
            lanes.add(setting(client, [&format!("a{client}"), "b"]));
            assert_eq!(begun(&mut lanes).len(), usize::from(client == 4));
        }
        lanes.add(setting(9, ["a9", "b9"]));
        assert!(begun(&mut lanes).is_empty(), "what waits before it has not begun");
    }
}
