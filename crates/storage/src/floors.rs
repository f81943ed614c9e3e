//! The part of the log that each group still needs.

use std::collections::BTreeMap;

use crate::{Group, Position};

/// The positions of the entries that a group needs, from its floor on.
#[derive(Clone, Copy, Debug)]
struct Extent {
    needed: Position,
    last: Position,
}

/// Groups without an entry above their floor need nothing and are not listed, so an idle group does not
/// hold back the removal of segments.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extents(BTreeMap<Group, Extent>);

impl Extents {
    /// Notes that the group has an entry at `position`, which is above all earlier ones.
    pub(crate) fn entry(&mut self, group: Group, position: Position) {
        let extent = self.0.entry(group).or_insert(Extent { needed: position, last: position });
        assert!(extent.last <= position, "an entry at {position}, behind one at {}", extent.last);
        extent.last = position;
    }

    /// Notes that the group no longer needs anything below `floor`.
    pub(crate) fn raise(&mut self, group: Group, floor: Position) {
        if let Some(extent) = self.0.get_mut(&group) {
            extent.needed = extent.needed.max(floor);
            if extent.last < floor {
                self.0.remove(&group);
            }
        }
    }

    /// Every group that is listed needs an entry, and none beyond its last.
    pub(crate) fn check_invariants(&self) {
        for (group, Extent { needed, last }) in &self.0 {
            assert!(needed <= last, "group {group} needs {needed}, and its last entry is at {last}");
        }
    }

    /// The position of the last entry of any group.
    pub(crate) fn last(&self) -> Option<Position> {
        self.0.values().map(|extent| extent.last).max()
    }

    /// Returns the lowest position that is needed, and the group that needs it.
    pub(crate) fn oldest(&self) -> Option<(Position, Group)> {
        self.0.iter().map(|(group, extent)| (extent.needed, *group)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_entry_that_no_snapshot_covers_is_needed() {
        let mut extents = Extents::default();
        assert_eq!(extents.oldest(), None);
        for (group, position) in [(1, 32), (2, 64), (1, 96)] {
            extents.entry(group, position);
        }
        assert_eq!(extents.oldest(), Some((32, 1)));
        extents.raise(1, 80);
        assert_eq!(extents.oldest(), Some((64, 2)));
        extents.raise(2, 65);
        assert_eq!(extents.oldest(), Some((80, 1)), "group 2 has nothing left that is needed");
        extents.raise(1, 97);
        assert_eq!(extents.oldest(), None);
    }
}
