//! Places in a group's history.

use kv::codec::{Malformed, Reader, Writer};
use kv::{Command, UnixMs, Version};

/// A place in a group's history: an offset, and the epoch whose leader wrote the record there.
///
/// Two replicas that hold the same position hold the same records up to it: an epoch has one leader, and a
/// leader writes an offset once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The epoch in which the record was written.
    pub epoch: u64,
    /// The record's number, counted from 1 since the group began. 0: before the first record.
    pub offset: Version,
}

impl std::fmt::Display for Position {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}@{}", self.offset, self.epoch)
    }
}

/// The moment in the group's history that a snapshot shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// The position.
    pub position: Position,
    /// The highest version ever assigned in the table.
    pub floor: Version,
    /// The time of the newest record in it.
    pub time: UnixMs,
}

pub(super) fn put_position(out: &mut Vec<u8>, position: Position) {
    out.put_u64(position.epoch);
    out.put_u64(position.offset);
}

pub(super) fn take_position(reader: &mut Reader<'_>) -> Result<Position, Malformed> {
    Ok(Position { epoch: reader.u64()?, offset: reader.u64()? })
}

/// Checks that received bytes are `count` records.
pub(super) fn check_records(records: &[u8], count: u32) -> Result<(), Malformed> {
    let mut reader = Reader::new(records);
    for _ in 0..count {
        if !Command::decode(&mut reader)?.is_write() {
            return Err(Malformed("a record that is not a write"));
        }
    }
    if reader.is_empty() { Ok(()) } else { Err(Malformed("bytes behind the last record")) }
}
