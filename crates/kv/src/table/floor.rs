//! The floor: the version of the cluster map below which a group takes nothing, since that map, or a later one, has moved keys of
//! the group to another one.
//!
//! It is a part of the replicated state, and snapshots contain it. The table itself refuses nothing: who orders a command compares
//! the floor with the map by which the command was checked. `docs/design/protocols/requests.md` says why that is enough.

use super::{Record, Table};
use crate::Version;
use crate::codec::{Malformed, Reader, Writer};
use crate::reply::ReplyBuffer;

/// The version of the cluster map by which a group's commands have to be checked, or a later one; and since when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Floor {
    /// The version of the map. 0: no map has moved keys away.
    pub map_version: u64,
    /// The record that raised the floor to it.
    pub since: Version,
}

impl Floor {
    /// Its encoding in snapshots; `None` without a floor.
    pub(super) fn item(self) -> Option<Box<[u8]>> {
        let mut item = Vec::new();
        item.put_u64(self.map_version);
        item.put_u64(self.since);
        (self.map_version > 0).then(|| item.into())
    }

    /// Decodes [`Floor::item`].
    pub(super) fn of_item(item: &[u8]) -> Result<Floor, Malformed> {
        let mut reader = Reader::new(item);
        let floor = Floor { map_version: reader.u64()?, since: reader.u64()? };
        if reader.is_empty() { Ok(floor) } else { Err(Malformed("bytes behind the floor of the map")) }
    }
}

impl Table {
    /// The floor.
    pub fn map_floor(&self) -> Floor {
        self.map_floor
    }

    /// Raises the floor, and returns how many transactions are not over that were prepared before: those were checked by older
    /// maps.
    pub(super) fn raise_map_floor(&mut self, map_version: u64, record: Record, out: &mut ReplyBuffer) {
        if map_version > self.map_floor.map_version {
            self.map_floor = Floor { map_version, since: record.version };
        }
        let since = self.map_floor.since;
        let is_older = |id| self.two_phase.held_since(id).is_some_and(|version| version < since);
        out.integer(self.two_phase.held().filter(|(id, _)| is_older(*id)).count() as i64);
        self.raise_floor(record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Command, Reply};

    fn raise(table: &mut Table, map_version: u64, version: Version) -> i64 {
        let mut out = ReplyBuffer::new();
        table.apply(&Command::RaiseFloor { version: map_version }, version, 0, &mut out);
        match Reply::first(out.as_bytes()) {
            Reply::Integer(prepared) => prepared,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_floor_only_rises_and_is_in_snapshots() {
        let (mut table, mut copy) = (Table::new(1), Table::new(2));
        assert_eq!(table.map_floor(), Floor::default());
        assert_eq!(raise(&mut table, 7, 1), 0);
        assert_eq!((raise(&mut table, 7, 2), raise(&mut table, 3, 3)), (0, 0));
        assert_eq!(table.map_floor(), Floor { map_version: 7, since: 1 }, "raised once");
        table.apply(&Command::Clear {}, 4, 0, &mut ReplyBuffer::new());
        let (snapshot, mut chunk) = (table.begin_snapshot(), Vec::new());
        while table.snapshot_chunk(snapshot, 1 << 20, &mut chunk) {}
        copy.install(&chunk).unwrap();
        copy.set_version_floor(table.version_floor());
        assert_eq!((copy.map_floor(), copy.digest()), (table.map_floor(), table.digest()));
        raise(&mut table, 8, 5);
        copy.set_version_floor(table.version_floor());
        assert_ne!(copy.digest(), table.digest(), "replicas that differ in it are found");
        assert!(Floor::of_item(&[0; 17]).is_err() && Floor::of_item(&[0; 15]).is_err());
    }
}
