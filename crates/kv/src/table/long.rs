//! Long commands: a write that is too long for one record arrives in parts, each a record of its own, and one more
//! record makes it take effect.
//!
//! A record passes through a node in one piece, and is copied several times on its way: one of 64 MiB would block
//! everything else for so long that its group would presume the node dead. Each replica gathers the parts of a long command
//! here. They are invisible until the command is carried out. They are a part of the table: snapshots contain them.
//!
//! A coordinator that does not know the outcome of a part may send it again; the reply is the number of bytes gathered so
//! far. When no more parts arrive for [`ABANDONED_AFTER_MS`], the next [`Command::Purge`] drops them.

use super::entry::{Entry, HEADER_BYTES};
use super::kind::Kind;
use super::{NO_DEADLINE, Record, Table};
use crate::codec::{Malformed, Reader, Writer};
use crate::command::{Condition, Expiry, PLAIN_SET_BYTES, SetAnswer, Wrapper};
use crate::reply::ReplyBuffer;
use crate::{Command, UnixMs, ValueId, Version};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Parts are dropped when no more have arrived for this long, by the records' time.
const ABANDONED_AFTER_MS: u64 = 60_000;

/// Room in front of the parts. With this size, the value of an encoded plain `SET`, which has [`PLAIN_SET_BYTES`] beside
/// key and value, begins exactly where a table entry has it: behind the entry's header and the key.
const ROOM_BYTES: usize = HEADER_BYTES - PLAIN_SET_BYTES;

/// Bytes of parts in one item of a snapshot.
const ITEM_BYTES: usize = 256 << 10;

const MISSING: &str = "TRYAGAIN NOQUORUM parts of the command are missing; nothing was done, try again";

/// The long commands that are being gathered.
#[derive(Debug, Default)]
pub(super) struct LongCommands {
    gathered: BTreeMap<ValueId, Gathered>,
    /// Total bytes of the gathered parts.
    bytes: usize,
}

/// The parts of one command gathered so far.
#[derive(Debug)]
struct Gathered {
    /// Length of the whole command, in bytes.
    length: u32,
    /// The parts, preceded by [`ROOM_BYTES`].
    bytes: Vec<u8>,
    /// The time at which the parts are dropped.
    deadline: UnixMs,
}

impl Gathered {
    fn len(&self) -> usize {
        self.bytes.len() - ROOM_BYTES
    }
}

impl LongCommands {
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.gathered.is_empty()
    }

    /// The earliest deadline, if it is due.
    pub(super) fn due(&self, now: UnixMs) -> Option<UnixMs> {
        self.gathered.values().map(|it| it.deadline).min().filter(|deadline| *deadline <= now)
    }

    /// Takes one part, if it is the next one. Returns how many bytes are gathered.
    fn take(&mut self, id: ValueId, (offset, length): (u32, u32), part: &[u8], deadline: UnixMs) -> usize {
        let is_first = offset == 0 && !part.is_empty();
        let gathered = match self.gathered.entry(id) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) if is_first => {
                // Reserved memory that is not written yet is not occupied.
                let mut bytes = Vec::with_capacity((ROOM_BYTES + length as usize).min(part.len() << 12));
                bytes.resize(ROOM_BYTES, 0);
                place.insert(Gathered { length, bytes, deadline })
            }
            std::collections::btree_map::Entry::Vacant(_) => return 0,
        };
        let end = gathered.len();
        if offset as usize == end && length == gathered.length && part.len() <= length as usize - end {
            gathered.bytes.extend_from_slice(part);
            self.bytes += part.len();
        }
        gathered.deadline = gathered.deadline.max(deadline);
        gathered.len()
    }

    fn remove(&mut self, id: ValueId) -> Option<Gathered> {
        let gathered = self.gathered.remove(&id)?;
        self.bytes -= gathered.len();
        Some(gathered)
    }

    /// Calls `visit` with the gathered parts, piece by piece, as snapshots contain them.
    pub(super) fn for_each_item(&self, mut visit: impl FnMut(&[u8])) {
        let mut out = Vec::new();
        for mut part in self.parts() {
            while part.encode(Some(self), &mut out) {
                visit(&out);
                out.clear();
            }
        }
    }

    /// The parts gathered so far, for a snapshot.
    pub(super) fn parts(&self) -> Vec<SnapshotPart> {
        let part = |(id, gathered): (&ValueId, &Gathered)| SnapshotPart {
            id: *id,
            length: gathered.length,
            deadline: gathered.deadline,
            next: 0,
            end: gathered.len(),
            bytes: None,
        };
        self.gathered.iter().map(part).collect()
    }

    /// Takes an item of a snapshot. The items of one command must come in order.
    pub(super) fn take_item(&mut self, item: &[u8]) -> Result<(), Malformed> {
        let mut reader = Reader::new(item);
        let id = ValueId::take(&mut reader)?;
        let (offset, length, deadline) = (reader.u32()?, reader.u32()?, reader.u64()?);
        let part = reader.rest();
        match self.take(id, (offset, length), part, deadline) == offset as usize + part.len() {
            true => Ok(()),
            false => Err(Malformed("a part of a command that does not follow the one before")),
        }
    }
}

/// The parts of a long command that were gathered when a snapshot began and have not been sent yet. More parts may be
/// gathered behind them in the meantime; if the command is carried out or dropped, the snapshot keeps the bytes.
#[derive(Debug)]
pub(super) struct SnapshotPart {
    id: ValueId,
    length: u32,
    deadline: UnixMs,
    next: usize,
    end: usize,
    bytes: Option<Arc<Vec<u8>>>,
}

impl SnapshotPart {
    /// Appends the next item. Returns false if there is none left.
    pub(super) fn encode(&mut self, live: Option<&LongCommands>, out: &mut Vec<u8>) -> bool {
        let gathered = live.and_then(|live| live.gathered.get(&self.id)).map(|gathered| &gathered.bytes);
        let bytes = self.bytes.as_deref().or(gathered);
        let end = self.end.min(self.next + ITEM_BYTES);
        let Some(part) = bytes
            .and_then(|bytes| bytes.get(ROOM_BYTES + self.next..ROOM_BYTES + end))
            .filter(|part| !part.is_empty())
        else {
            return false;
        };
        self.id.put(out);
        out.put_u32(self.next as u32);
        out.put_u32(self.length);
        out.put_u64(self.deadline);
        out.extend_from_slice(part);
        self.next = end;
        true
    }
}

impl Table {
    /// Takes a part of a long command. Replies with the number of bytes gathered.
    pub(super) fn gather(
        &mut self,
        id: ValueId,
        place: (u32, u32),
        part: &[u8],
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        let gathered = self.long.take(id, place, part, record.time.saturating_add(ABANDONED_AFTER_MS));
        out.integer(gathered as i64);
    }

    /// A long command whose parts have all arrived, encoded.
    pub fn long_command(&self, id: ValueId) -> Option<&[u8]> {
        let gathered = self.long.gathered.get(&id)?;
        (gathered.len() == gathered.length as usize).then(|| &gathered.bytes[ROOM_BYTES..])
    }

    /// Carries out a long command if all its parts have arrived.
    pub(super) fn carry_out_long(&mut self, id: ValueId, record: Record, out: &mut ReplyBuffer) -> Version {
        let is_in_snapshot =
            self.snapshots.iter().any(|snapshot| snapshot.long.iter().any(|part| part.id == id));
        let Some(gathered) = self.long.remove(id) else {
            out.error(MISSING);
            return record.version;
        };
        if gathered.len() < gathered.length as usize {
            self.leave_to_snapshots(id, gathered.bytes);
            out.error(MISSING);
            return record.version;
        }
        let bytes = match is_in_snapshot {
            true => self.leave_to_snapshots(id, gathered.bytes),
            // Most commands are long because of their value. It is not copied.
            false => match Self::take_over(gathered.bytes, record) {
                Ok(entry) => {
                    let hash = self.index.hash(entry.key());
                    // Remove an expired key first, so that this is counted and noted as an expiry.
                    self.find_live(hash, entry.key(), record);
                    self.put_entry(entry, record);
                    out.ok();
                    return record.version;
                }
                Err(bytes) => Arc::new(bytes),
            },
        };
        let command = &bytes[ROOM_BYTES..];
        let mut reader = Reader::new(command);
        match Command::decode(&mut reader) {
            // A read that is not part of another command: if nobody waits for its reply, there is nothing to do.
            Ok(decoded)
                if reader.is_empty() && Wrapper::Parts.can_contain(command) && !decoded.is_write() =>
            {
                return if self.is_quiet { 0 } else { self.read(&decoded, record.time, out) };
            }
            Ok(decoded) if reader.is_empty() && Wrapper::Parts.can_contain(command) => {
                return self.apply_any(&decoded, record, out);
            }
            _ => out.error("ERR parts that make no command"),
        }
        record.version
    }

    /// Makes the entry that a plain `SET` stores out of its parts. Returns the parts if it is another command.
    fn take_over(mut bytes: Vec<u8>, record: Record) -> Result<Entry, Vec<u8>> {
        let mut reader = Reader::new(&bytes[ROOM_BYTES..]);
        let Ok(Command::Set {
            key,
            value,
            expiry: Expiry::Clear,
            condition: Condition::Always,
            answer: SetAnswer::Status,
        }) = Command::decode(&mut reader)
        else {
            return Err(bytes);
        };
        let key_length = key.len();
        // In another valid encoding of the same command, the value is elsewhere.
        if !reader.is_empty() || HEADER_BYTES + key_length + value.len() != bytes.len() {
            return Err(bytes);
        }
        let key_at = key.as_ptr() as usize - bytes.as_ptr() as usize;
        bytes.copy_within(key_at..key_at + key_length, HEADER_BYTES);
        let stamp = record.stamp(NO_DEADLINE, Kind::Plain);
        match Entry::taking_over(bytes, key_length, stamp) {
            Some(entry) => Ok(entry),
            None => unreachable!("it has room for its header"),
        }
    }

    /// Drops the parts whose deadline is at or before `until`.
    pub(super) fn drop_long(&mut self, until: UnixMs) {
        let overdue = self.long.gathered.iter().filter(|(_, gathered)| gathered.deadline <= until);
        for id in overdue.map(|(id, _)| *id).collect::<Vec<_>>() {
            if let Some(gathered) = self.long.remove(id) {
                self.leave_to_snapshots(id, gathered.bytes);
            }
        }
    }

    /// Hands the parts of a command to the snapshots that have not sent them yet.
    fn leave_to_snapshots(&mut self, id: ValueId, bytes: Vec<u8>) -> Arc<Vec<u8>> {
        let bytes = Arc::new(bytes);
        let parts = self.snapshots.iter_mut().flat_map(|snapshot| &mut snapshot.long);
        parts.filter(|part| part.id == id).for_each(|part| part.bytes = Some(Arc::clone(&bytes)));
        bytes
    }
}
