//! Entries of the log: each is a batch, everything that one turn of a leader ordered.
//!
//! An entry is encoded once, by its proposer, and shared from then on: a copy of it is a reference count. Its head names
//! the proposer and the time; the commands follow. An entry without commands changes nothing: a leader orders one to renew
//! its lease. One kind of entry holds a [`StopSign`] instead of commands: it ends a configuration.

use super::group::StopSign;
use kv::codec::{Malformed, Reader, Writer};
use kv::{Command, UnixMs};
use omnipaxos::storage;
use std::sync::Arc;

use crate::contract::NodeId;

/// Who proposed an entry: identifies it among all that were ever proposed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Proposer {
    /// The node.
    pub node: NodeId,
    /// The node's incarnation: each counts its proposals from 1.
    pub life: u64,
    /// The proposal's number in this incarnation.
    pub batch: u64,
}

/// The beginning of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Who proposed it.
    pub proposer: Proposer,
    /// The proposer's time, by which the expiry of the entry's commands is judged.
    pub time: UnixMs,
    /// How many commands it holds.
    pub count: u32,
}

const HEAD_BYTES: usize = 1 + 2 + 8 + 8 + 8 + 4;

const BATCH: u8 = 0;
const STOP_SIGN: u8 = 1;

/// One entry of the log, shared by all its holders.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry(Arc<Vec<u8>>);

/// Up to this length an entry is a copy of the builder's bytes.
const COPIED_BYTES_MAX: usize = 1 << 20;

/// Commands that become an entry, after the room for its head.
#[derive(Debug)]
pub(super) struct EntryBuilder(Vec<u8>);

impl EntryBuilder {
    /// Without commands.
    pub(super) fn new() -> EntryBuilder {
        EntryBuilder::with_room_for(0)
    }

    fn with_room_for(commands: usize) -> EntryBuilder {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + commands);
        bytes.resize(HEAD_BYTES, 0);
        EntryBuilder(bytes)
    }

    /// The encoded commands, one after the other.
    pub(super) fn commands(&self) -> &[u8] {
        &self.0[HEAD_BYTES..]
    }

    /// A reader of the commands.
    pub(super) fn commands_reader(&self) -> Reader<'_> {
        Reader::of_checked(self.commands())
    }

    /// Where the next command goes.
    pub(super) fn end(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    /// Forgets the commands.
    pub(super) fn clear(&mut self) {
        self.0.truncate(HEAD_BYTES);
    }

    /// Makes the entry of these commands. It is a copy, unless it is large: an entry keeps its memory for a while, so fresh
    /// memory is in no cache, and writing command after command into it would mean a wait each time.
    pub(super) fn take(&mut self, head: Head) -> Entry {
        let start = &mut Vec::with_capacity(HEAD_BYTES);
        put_head(BATCH, head, start);
        self.0[..HEAD_BYTES].copy_from_slice(start);
        let bytes = if self.0.len() <= COPIED_BYTES_MAX {
            let bytes = self.0.clone();
            self.clear();
            bytes
        } else {
            let mut bytes = std::mem::replace(self, EntryBuilder::new()).0;
            bytes.shrink_to_fit();
            bytes
        };
        Entry(Arc::new(bytes))
    }
}

impl Entry {
    /// An entry of commands that are encoded one after the other.
    pub fn new(head: Head, commands: &[u8]) -> Entry {
        let mut builder = EntryBuilder::with_room_for(commands.len());
        builder.end().extend_from_slice(commands);
        builder.take(head)
    }

    /// The entry that ends a configuration.
    pub fn stop(head: Head, stop_sign: &StopSign) -> Entry {
        let mut bytes = Vec::new();
        put_head(STOP_SIGN, Head { count: 0, ..head }, &mut bytes);
        stop_sign.put(&mut bytes);
        Entry(Arc::new(bytes))
    }

    /// The entry with these bytes. Every command in it is decoded once here, so that a replica never meets a malformed one.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are no entry.
    pub fn decode(bytes: &[u8]) -> Result<Entry, Malformed> {
        let mut reader = Reader::new(bytes);
        let kind = reader.u8()?;
        let head = take_head(&mut reader)?;
        match kind {
            BATCH => {
                for _ in 0..head.count {
                    if !Command::decode(&mut reader)?.is_write() {
                        return Err(Malformed("an entry orders what is not a write"));
                    }
                }
            }
            STOP_SIGN if head.count == 0 => drop(StopSign::take(&mut reader)?),
            _ => return Err(Malformed("unknown kind of entry")),
        }
        if !reader.is_empty() {
            return Err(Malformed("bytes behind an entry's last command"));
        }
        Ok(Entry(Arc::new(bytes.to_vec())))
    }

    /// The encoded entry.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The encoded entry, shared.
    pub(super) fn shared(&self) -> Arc<Vec<u8>> {
        Arc::clone(&self.0)
    }

    /// The entry's head.
    pub fn head(&self) -> Head {
        take_head(&mut Reader::new(&self.0[1..])).expect("an entry is made whole")
    }

    /// The stop-sign, if it is one.
    #[inline]
    pub fn stop_sign(&self) -> Option<StopSign> {
        match self.0.first() {
            Some(&STOP_SIGN) => StopSign::take(&mut Reader::new(&self.0[HEAD_BYTES..])).ok(),
            _ => None,
        }
    }

    /// A reader of the entry's commands, one after the other. A stop-sign has none.
    pub fn commands(&self) -> Reader<'_> {
        match self.0.first() {
            Some(&BATCH) => Reader::of_checked(&self.0[HEAD_BYTES..]),
            _ => Reader::of_checked(&[]),
        }
    }
}

fn put_head(kind: u8, head: Head, out: &mut Vec<u8>) {
    out.put_u8(kind);
    out.put_u16(head.proposer.node);
    out.put_u64(head.proposer.life);
    out.put_u64(head.proposer.batch);
    out.put_u64(head.time);
    out.put_u32(head.count);
}

fn take_head(reader: &mut Reader<'_>) -> Result<Head, Malformed> {
    let proposer = Proposer { node: reader.u16()?, life: reader.u64()?, batch: reader.u64()? };
    Ok(Head { proposer, time: reader.u64()?, count: reader.u32()? })
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:?}", self.head())
    }
}

impl storage::Entry for Entry {
    type Snapshot = Nothing;
}

/// The crate's own snapshots hold nothing and are never sent: our own messages transfer the state (see `transfers`). The
/// crate's snapshots are used only to cut off the beginning of a single replica's log.
#[derive(Clone, Copy, Debug)]
pub struct Nothing;

impl storage::Snapshot<Entry> for Nothing {
    fn create(_: &[Entry]) -> Nothing {
        Nothing
    }

    fn merge(&mut self, _: Nothing) {}

    fn use_snapshots() -> bool {
        false
    }
}
