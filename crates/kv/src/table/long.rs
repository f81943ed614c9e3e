//! Long commands: a write that is too long for one record comes in parts, each a record of its own, and takes effect with
//! one more.
//!
//! A record goes through a node in one piece, and is copied several times on its way: one of 64 MiB would hold up
//! everything else for so long that its group takes the node for dead. The parts of a long command are gathered here, by
//! every replica alike, and nobody sees anything of them until the command is carried out. They are a part of the table:
//! snapshots hold them.
//!
//! Whoever sends parts may send one again whose outcome it does not know, and is told how far they are gathered. When no
//! more come for [`ABANDONED_AFTER_MS`], they are dropped with the next [`Command::Purge`].

use super::{Record, Table};
use crate::codec::{Malformed, Reader, Writer};
use crate::command::may_come_in_parts;
use crate::reply::ReplyBuffer;
use crate::{Command, UnixMs, ValueId, Version};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Parts are dropped when no more have come for so long, by the records' time.
const ABANDONED_AFTER_MS: u64 = 60_000;

/// Snapshots hold so many bytes of parts in one item.
const ITEM_BYTES: usize = 256 << 10;

const MISSING: &str = "NOQUORUM parts of the command are missing; nothing was done, try again";

/// The long commands that are being gathered.
#[derive(Debug, Default)]
pub(super) struct LongCommands {
    gathered: BTreeMap<ValueId, Gathered>,
    /// Bytes of these.
    bytes: usize,
}

/// The parts of one, as far as they have come.
#[derive(Debug)]
struct Gathered {
    /// Of the whole command.
    length: u32,
    bytes: Vec<u8>,
    /// When they are dropped.
    deadline: UnixMs,
}

impl LongCommands {
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// The first deadline, if that is due.
    pub(super) fn due(&self, now: UnixMs) -> Option<UnixMs> {
        self.gathered.values().map(|it| it.deadline).min().filter(|deadline| *deadline <= now)
    }

    /// Takes one part, if it is the next. Tells how many bytes are gathered.
    fn take(&mut self, id: ValueId, (offset, length): (u32, u32), part: &[u8], deadline: UnixMs) -> usize {
        let is_first = offset == 0 && !part.is_empty();
        let gathered = match self.gathered.entry(id) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) if is_first => {
                // What is not used yet takes no memory.
                let bytes = Vec::with_capacity((length as usize).min(part.len() << 12));
                place.insert(Gathered { length, bytes, deadline })
            }
            std::collections::btree_map::Entry::Vacant(_) => return 0,
        };
        let end = gathered.bytes.len();
        if offset as usize == end && length == gathered.length && part.len() <= length as usize - end {
            gathered.bytes.extend_from_slice(part);
            self.bytes += part.len();
        }
        gathered.deadline = gathered.deadline.max(deadline);
        gathered.bytes.len()
    }

    fn remove(&mut self, id: ValueId) -> Option<Gathered> {
        let gathered = self.gathered.remove(&id)?;
        self.bytes -= gathered.bytes.len();
        Some(gathered)
    }

    /// Calls `visit` with what is gathered, piece by piece, as snapshots hold it.
    pub(super) fn for_each_item(&self, mut visit: impl FnMut(&[u8])) {
        let mut out = Vec::new();
        for mut part in self.parts() {
            while part.encode(Some(self), &mut out) {
                visit(&out);
                out.clear();
            }
        }
    }

    /// What is gathered now, for a snapshot.
    pub(super) fn parts(&self) -> Vec<SnapshotPart> {
        let part = |(id, gathered): (&ValueId, &Gathered)| SnapshotPart {
            id: *id,
            length: gathered.length,
            deadline: gathered.deadline,
            next: 0,
            end: gathered.bytes.len(),
            bytes: None,
        };
        self.gathered.iter().map(part).collect()
    }

    /// Takes an item of a snapshot. Those of one command come in order.
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

/// What was gathered of a long command when a snapshot began, as far as it is not told yet. More may be gathered behind it
/// meanwhile; when it is carried out or dropped, the snapshot is left the bytes.
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
    /// Appends the next item. False when there is none left.
    pub(super) fn encode(&mut self, live: Option<&LongCommands>, out: &mut Vec<u8>) -> bool {
        let gathered = live.and_then(|live| live.gathered.get(&self.id)).map(|gathered| &gathered.bytes);
        let bytes = self.bytes.as_deref().or(gathered);
        let end = self.end.min(self.next + ITEM_BYTES);
        let Some(part) = bytes.and_then(|bytes| bytes.get(self.next..end)).filter(|part| !part.is_empty())
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
    /// Takes a part of a long command. Answers how many bytes of it are gathered.
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

    /// Carries out a long command whose parts are all here.
    pub(super) fn carry_out_long(&mut self, id: ValueId, record: Record, out: &mut ReplyBuffer) -> Version {
        let Some((bytes, length)) = self.remove_long(id) else {
            out.error(MISSING);
            return record.version;
        };
        let mut reader = Reader::new(&bytes);
        match Command::decode(&mut reader) {
            Ok(command) if reader.is_empty() && may_come_in_parts(&bytes) => {
                return self.apply_any(&command, record, out);
            }
            _ if bytes.len() < length as usize => out.error(MISSING),
            _ => out.error("ERR parts that make no command"),
        }
        record.version
    }

    /// Drops what is gathered and was to be dropped by then.
    pub(super) fn drop_long(&mut self, until: UnixMs) {
        let overdue = self.long.gathered.iter().filter(|(_, gathered)| gathered.deadline <= until);
        for id in overdue.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.remove_long(id);
        }
    }

    /// Takes out what is gathered, with the length of the whole command. Snapshots that have not told it yet keep it.
    fn remove_long(&mut self, id: ValueId) -> Option<(Arc<Vec<u8>>, u32)> {
        let Gathered { bytes, length, .. } = self.long.remove(id)?;
        let bytes = Arc::new(bytes);
        let parts = self.snapshots.iter_mut().flat_map(|snapshot| &mut snapshot.long);
        parts.filter(|part| part.id == id).for_each(|part| part.bytes = Some(Arc::clone(&bytes)));
        Some((bytes, length))
    }
}
