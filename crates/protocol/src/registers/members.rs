//! The members of the group, and sets of members.

use crate::effects::{Configuration, NodeId};

/// The maximum number of members in a group: a tag has no room for more.
pub const MEMBERS_MAX: usize = 15;

/// A set of members, by index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberSet(u16);

impl MemberSet {
    /// No member.
    pub const EMPTY: MemberSet = MemberSet(0);

    /// One member.
    #[inline]
    pub fn only(member: usize) -> MemberSet {
        MemberSet(1 << member)
    }

    /// The first `count` members.
    pub fn first(count: usize) -> MemberSet {
        MemberSet(((1_u32 << count) - 1) as u16)
    }

    /// Adds a member.
    #[inline]
    pub fn insert(&mut self, member: usize) {
        self.0 |= 1 << member;
    }

    /// Removes members.
    #[inline]
    pub fn remove(&mut self, members: MemberSet) {
        self.0 &= !members.0;
    }

    /// True when it holds the member.
    #[inline]
    pub fn contains(self, member: usize) -> bool {
        self.0 >> member & 1 == 1
    }

    /// The number of members in it.
    #[inline]
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// True when it is empty.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Its members that are not in the other set.
    #[inline]
    pub fn without(self, other: MemberSet) -> MemberSet {
        MemberSet(self.0 & !other.0)
    }

    /// The members that are in either set.
    #[inline]
    pub fn union(self, other: MemberSet) -> MemberSet {
        MemberSet(self.0 | other.0)
    }

    /// The members that are in both.
    #[inline]
    pub fn and(self, other: MemberSet) -> MemberSet {
        MemberSet(self.0 & other.0)
    }

    /// Its members in ascending order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..MEMBERS_MAX).filter(move |member| self.contains(*member))
    }
}

/// The members of a group as one of them sees it. A member is identified by its index in the list of all; tags contain
/// that index, so the list never changes while the group exists.
#[derive(Clone, Debug, Default)]
pub struct Group {
    members: Vec<NodeId>,
    own: usize,
}

impl Group {
    /// Returns the group of a configuration.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn new(id: NodeId, configuration: &Configuration) -> Result<Group, &'static str> {
        let members = configuration.members.clone();
        if members.len() > MEMBERS_MAX {
            return Err("a group of registers has at most 15 members");
        }
        if !members.is_sorted_by(|one, other| one < other) {
            return Err("the members are not in ascending order");
        }
        match members.binary_search(&id) {
            Ok(own) => Ok(Group { members, own }),
            Err(_) => Err("this node is not a member of the group"),
        }
    }

    /// The number of members: 0 before the group is known.
    #[inline]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// True before the group is known.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// This member's index.
    #[inline]
    pub fn own(&self) -> usize {
        self.own
    }

    /// A member's node.
    #[inline]
    pub fn node(&self, member: usize) -> NodeId {
        self.members[member]
    }

    /// The nodes of all members.
    pub fn nodes(&self) -> &[NodeId] {
        &self.members
    }

    /// The nodes of some members, for people.
    pub fn list(&self, members: MemberSet) -> String {
        let nodes: Vec<String> = members.iter().map(|member| self.node(member).to_string()).collect();
        if nodes.is_empty() { "none".into() } else { nodes.join(", ") }
    }

    /// Returns a node's index, if it is a member.
    #[inline]
    pub fn index_of(&self, node: NodeId) -> Option<usize> {
        self.members.binary_search(&node).ok()
    }

    /// The smallest size for which any two sets of members share one.
    #[inline]
    pub fn majority(&self) -> usize {
        self.members.len() / 2 + 1
    }

    /// The number of other members that is certain to include one of every majority: a member without memory refills from
    /// that many.
    pub fn refill_sources(&self) -> usize {
        self.members.len() + 1 - self.majority()
    }

    /// All members.
    #[inline]
    pub fn all(&self) -> MemberSet {
        MemberSet::first(self.members.len())
    }

    /// All members but this one.
    #[inline]
    pub fn others(&self) -> MemberSet {
        self.all().without(MemberSet::only(self.own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refill_sources_share_a_member_with_what_is_left_of_any_majority() {
        for count in 1..=MEMBERS_MAX {
            let members: Vec<NodeId> = (1..=count as NodeId).collect();
            let configuration = Configuration { members, ..Configuration::default() };
            let group = Group::new(1, &configuration).unwrap();
            assert!(2 * group.majority() > count);
            // The other members of a majority that counted the newcomer share one with the newcomer's sources:
            let others = count - 1;
            assert!(group.majority() - 1 + group.refill_sources() > others);
            // Two newcomers' sources share a member, counting the first newcomer among those that may inform the second:
            assert!(count == 1 || 2 * group.refill_sources() > others);
        }
    }

    #[test]
    fn a_group_that_is_too_large_or_without_this_node_is_refused() {
        let group =
            |members: Vec<NodeId>| Group::new(2, &Configuration { members, ..Configuration::default() });
        assert!(group((1..=16).collect()).is_err());
        assert!(group(vec![1, 3]).is_err());
        assert!(group(vec![3, 2]).is_err());
        assert_eq!(group(vec![1, 2, 3]).unwrap().own(), 1);
    }

    #[test]
    fn sets_hold_what_was_put_in() {
        let mut set = MemberSet::first(3);
        set.insert(14);
        set.remove(MemberSet::only(1));
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 2, 14]);
        assert_eq!((set.len(), set.contains(1), set.contains(14)), (3, false, true));
        assert_eq!(set.without(MemberSet::only(0)).len(), 2);
    }
}
