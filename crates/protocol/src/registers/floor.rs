//! The floor: no operation that was routed by an old map ends in a group that has lost its key.
//!
//! A map that moves keys of the group to another one counts as made when a majority of the members has it. Such a member names, in
//! every turn that it sends, the version of that map: the group's floor. The rule: **a coordinator takes up nothing while it knows of
//! a floor above the version of its map, and when it gets to know of a floor, from its own map or from a member, it ends the
//! operations whose first round is under way.**
//!
//! Let M be the moment at which the change counts as made, and let an operation be taken up later than M, routed by an older map.
//!
//! 1. To leave its first round it needs the answers of a majority of the members, which shares a member P with the majority that
//!    had the new map at M. P answers the operation after it was taken up, so after M, and so with the new map: a node that has
//!    reported a map never takes part by an older one, also with an empty disk, since it takes part only by a map that knows its
//!    start.
//! 2. So P's answer comes in a turn that names the floor, or a higher one. The coordinator looks at that first, and ends the
//!    operation. If it knows of the floor already, since its node has the new map or another member named it, it has ended the
//!    operation then.
//! 3. What is in its second round when the floor becomes known has answers of a majority, so it was taken up before M: it is concurrent
//!    with the change, and comes first. It may end.
//!
//! Nothing of this is recorded, and newcomers need not be told: the map itself holds the floor, and is at least as durable.

use super::Group;
use crate::effects::NodeId;

/// The error for a request that was ended since it may be for another group.
pub(crate) const MOVED: &str = "TRYAGAIN MOVED the keyspaces have changed, and another one may have this key now; nothing was done, try again";

/// What a replica knows of the maps that have taken keys from its group.
#[derive(Clone, Copy, Debug, Default)]
pub struct Floor {
    /// The version of this node's map.
    pub(crate) map_version: u64,
    /// The floor by this node's map.
    own: u64,
    /// The greatest floor that is known, and the member that named it.
    known: u64,
    named_by: usize,
}

impl Floor {
    /// The floor to be named to other members.
    #[inline]
    pub(crate) fn own(&self) -> u64 {
        self.own
    }

    /// A member has named a floor. Returns whether this node's map is older, and that was not known.
    pub(crate) fn is_news(&mut self, floor: u64, from: usize) -> bool {
        let is_news = floor > self.known;
        if is_news {
            (self.known, self.named_by) = (floor, from);
        }
        is_news && floor > self.map_version
    }

    /// This node's map has a floor. Returns whether that is news.
    pub(crate) fn rises(&mut self, floor: u64) -> bool {
        let is_news = floor > self.known;
        (self.own, self.known) = (self.own.max(floor), self.known.max(floor));
        is_news
    }

    /// The node that has a newer map, if this node's is older than a floor.
    #[inline]
    pub(crate) fn informed(&self, group: &Group) -> Option<NodeId> {
        (self.map_version < self.known).then(|| group.node(self.named_by))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effects::Configuration;

    #[test]
    fn a_coordinator_waits_for_the_map_of_the_greatest_floor_that_it_knows() {
        let configuration = Configuration { members: vec![3, 5, 7], ..Configuration::default() };
        let group = Group::new(5, &configuration).unwrap();
        let mut floor = Floor { map_version: 4, ..Floor::default() };
        assert!(floor.rises(4) && !floor.rises(4) && floor.own() == 4);
        assert_eq!(floor.informed(&group), None, "its own map has that floor");
        assert!(!floor.is_news(4, 0) && !floor.is_news(3, 0), "so have the others");
        assert!(floor.is_news(6, 2) && !floor.is_news(6, 0) && !floor.is_news(5, 0));
        assert_eq!((floor.informed(&group), floor.own()), (Some(7), 4));
        floor.map_version = 5;
        assert!(!floor.rises(4) && floor.informed(&group) == Some(7), "a map between them");
        floor.map_version = 6;
        assert!(!floor.rises(6), "what had to end has ended");
        assert_eq!((floor.informed(&group), floor.own()), (None, 6));
    }
}
