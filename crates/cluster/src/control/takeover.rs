//! Leaders that have not yet taken over what was acknowledged before them.

use super::level::Feature;
use super::map::{ClusterMap, GroupId};
use crate::setting::Protocol;
use protocol::leader_follower::Acks;

impl ClusterMap {
    /// Whether a group's leader has not yet reported that it holds all that was acknowledged before its epoch.
    ///
    /// A leader that is appointed asks so many members what they hold that at least one of them has each acknowledged
    /// write. How many are enough follows from the members that the group had when the write was acknowledged. If the
    /// members had changed since then, the leader might ask too few. So no member leaves or is added before the leader has
    /// taken over. Under `all` the in-sync set holds everything at any time, and under `none` nothing is promised.
    pub fn awaits_takeover(&self, id: GroupId) -> bool {
        self.has(Feature::TakingOver)
            && self.protocol(id) == Protocol::LeaderFollower
            && matches!(self.acks(id), Acks::Count(_) | Acks::Majority)
            && self.groups.get(&id).is_some_and(|group| !group.has_taken_over())
    }
}
