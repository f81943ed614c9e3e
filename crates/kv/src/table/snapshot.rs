//! Snapshots: all entries as they were at one record, read in chunks while writes continue.
//!
//! A snapshot walks the index in the order of hashes. The first write to a key whose hash the walk has not reached yet
//! saves the entries with that hash, and notes the hash; entries that the walk finds there later do not belong to the
//! snapshot. Nothing is copied when a snapshot begins, and while none is open a write costs one extra branch.
//!
//! A chunk is a run of entries: version `u64`, deadline `u64`, kind `u8`, key, value (each with its length). A large value
//! is sent in pieces, in order, so that no chunk is much longer than requested; so are the items of a large collection. The
//! order of entries has no meaning. What the table remembers of removed keys is encoded among them as entries of a special
//! kind, whose keys are the names of marks (see `transactions`). So are the locks and the queues,
//! which are encoded when the snapshot begins: compared with the keys they are few, and small. The gathered parts of long
//! commands only ever grow: a snapshot notes how far they reached.

use super::DELETED;
use super::collections::{self, Collection};
use super::dump::{self, ExpiringField};
use super::entry::{Entry, HEADER_BYTES, Stamp};
use super::entry_items;
use super::floor::Floor;
use super::index::{Index, KeyHash};
use super::kind::Kind;
use super::long::{LongCommands, SnapshotPart};
use super::transactions::RemovedVersions;
use super::tree::Discarded;
use super::{NO_DEADLINE, Record, Table};
use crate::Version;
use crate::codec::{Malformed, Reader, Writer};
use crate::coded::{Reference, ValueId};
use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX_CEILING};
use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Special kind: a mark of removed keys, not an entry.
const MARK: u8 = 255;
/// Special kind: the counter up to which a coordinator's values are given up, not an entry.
const ABANDONED: u8 = 253;

/// Special kind: a value on the disk, not an entry. Only snapshot transfers to other replicas contain it.
const VALUE: u8 = 252;

/// Special kind: an item of the locks, not an entry.
const LOCKS: u8 = 254;

/// Special kind: a part of a long command, not an entry.
const LONG: u8 = 251;

/// Special kind: a piece of a large entry. Its value begins with the entry's kind, the length of the whole value, and
/// the offset of the piece in it.
const PIECE: u8 = 250;

/// Special kind: an item of the queues, not an entry.
const QUEUES: u8 = 248;

/// Special kind: an item of the transactions over several groups, not an entry.
const TWO_PHASE: u8 = 247;

/// Special kind: the floor, not an entry.
const FLOOR: u8 = 246;

/// Special kind: some items of a large collection. The value begins with the entry's kind, the number of all items, and the
/// rank of the first item in it.
const ITEMS: u8 = 249;

/// Bytes of a large value in one piece.
const PIECE_BYTES: usize = if cfg!(test) { 15 } else { 256 << 10 };
/// Bytes in front of a piece.
const PIECE_HEAD_BYTES: usize = 9;

/// Identifies an open snapshot of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotId(u64);

/// An open snapshot.
#[derive(Debug)]
pub(super) struct Snapshot {
    id: SnapshotId,
    /// Where the walk continues: it has passed all smaller hashes.
    next: KeyHash,
    /// Hashes that the walk will skip, because their entries were saved.
    done: BTreeSet<KeyHash>,
    /// Entries as they were before a write. The last one is sent first.
    saved: Vec<Entry>,
    /// The large entry that is being sent.
    in_pieces: Option<InPieces>,
    /// Marks of removed keys that have not been sent yet.
    marks: Vec<(u16, Version)>,
    /// Items of the locks and the queues that have not been sent yet, each with its kind.
    items: Vec<(u8, Box<[u8]>)>,
    /// Values that were given up and have not been sent yet.
    abandoned: Vec<ValueId>,
    /// Parts of long commands that have not been sent yet.
    pub(super) long: Vec<SnapshotPart>,
    /// The index as it was when the table was cleared: walked from then on instead of the table's.
    kept: Option<Arc<Index>>,
}

/// A large entry of which some pieces have been sent.
#[derive(Debug)]
struct InPieces {
    hash: KeyHash,
    key: Box<[u8]>,
    /// Offset of the next piece.
    next: usize,
    /// A copy of the entry, if it was saved or has changed since its first piece.
    saved: Option<Entry>,
}

impl Snapshot {
    /// Whether the entries with this hash must be saved before one of them changes.
    pub(super) fn wants(&self, hash: KeyHash) -> bool {
        let is_ahead = hash >= self.next && !self.done.contains(&hash);
        let is_in_pieces = self.in_pieces.as_ref().is_some_and(|it| it.hash == hash && it.saved.is_none());
        self.kept.is_none() && (is_ahead || is_in_pieces)
    }

    /// Saves the entries with this hash, because one of them is about to change or an entry is about to be added.
    pub(super) fn save(&mut self, hash: KeyHash, index: &Index) {
        if !self.wants(hash) {
            return;
        }
        if hash >= self.next {
            self.done.insert(hash);
            self.saved.extend(index.all_with(hash).cloned());
        } else if let Some(in_pieces) = &mut self.in_pieces {
            in_pieces.saved = index.all_with(hash).find(|entry| entry.has_key(&in_pieces.key)).cloned();
        }
    }

    /// Where its copies end: what they share does not count any more once the table was cleared.
    fn discarded<'d>(&self, (live, cleared): (&'d mut Discarded, &'d mut Discarded)) -> &'d mut Discarded {
        if self.kept.is_some() { cleared } else { live }
    }

    /// Ends the snapshot: large collections are freed little by little. Returns the index that it kept.
    pub(super) fn discard(self, discarded: &mut Discarded) -> Option<Arc<Index>> {
        let saved = self.saved.into_iter().chain(self.in_pieces.and_then(|in_pieces| in_pieces.saved));
        saved.filter_map(Entry::into_collection).for_each(|it| it.discard(discarded));
        self.kept
    }

    /// Appends pieces of the large entry that is being sent. Returns whether `out` has reached `enough` bytes.
    fn write_pieces(
        &mut self,
        table: &Index,
        enough: usize,
        out: &mut Vec<u8>,
        discarded: &mut Discarded,
    ) -> bool {
        let index = self.kept.as_deref().unwrap_or(table);
        while let Some(InPieces { hash, key, next, saved }) = &mut self.in_pieces {
            let live = || index.find(*hash, |entry| entry.has_key(key)).map(|(_, entry)| entry);
            let Some(entry) = saved.as_ref().or_else(live) else {
                unreachable!("whatever changes an entry leaves it to the snapshot that sends it")
            };
            let is_over = match entry.collection() {
                Some(collection) => {
                    *next = encode_items(entry, *next, out);
                    *next == collection.len()
                }
                None => {
                    let end = entry.value().len().min(*next + PIECE_BYTES);
                    encode_piece(entry, *next, end, out);
                    *next = end;
                    end == entry.value().len()
                }
            };
            if is_over && let Some(saved) = self.in_pieces.take().and_then(|in_pieces| in_pieces.saved) {
                saved.into_collection().into_iter().for_each(|it| it.discard(discarded));
            }
            if out.len() >= enough {
                return true;
            }
        }
        false
    }

    /// Keeps the table's previous index when the table is cleared.
    pub(super) fn keep(&mut self, index: &Arc<Index>) {
        if self.kept.is_none() {
            self.kept = Some(Arc::clone(index));
        }
    }

    /// Appends entries until `out` has grown by `bytes_max`, counting values on the disk, or no entries are left.
    /// Returns whether there may be more.
    fn chunk(
        &mut self,
        (table, long): (&Index, &LongCommands),
        bytes_max: usize,
        out: &mut Vec<u8>,
        spilled: &mut Counted,
        discarded: &mut Discarded,
    ) -> bool {
        let enough = out.len() + bytes_max.max(1);
        while let Some(mark) = self.marks.pop() {
            encode_mark(mark, out);
            if out.len() >= enough {
                return true;
            }
        }
        while let Some((kind, item)) = self.items.pop() {
            encode_item(kind, &item, out);
            if out.len() >= enough {
                return true;
            }
        }
        while let Some(id) = self.abandoned.pop() {
            encode_abandoned(id, out);
            if out.len() >= enough {
                return true;
            }
        }
        while let Some(part) = self.long.last_mut() {
            if !encode_part(part, long, out) {
                self.long.pop();
            }
            if out.len() >= enough {
                return true;
            }
        }
        if self.write_pieces(table, enough, out, discarded) {
            return true;
        }
        while let Some(entry) = self.saved.pop() {
            if entry.is_large() || entry.collection().is_some() {
                let (hash, key) = (KeyHash::default(), entry.key().into());
                self.in_pieces = Some(InPieces { hash, key, next: 0, saved: Some(entry) });
                if self.write_pieces(table, enough, out, discarded) {
                    return true;
                }
                continue;
            }
            encode(&entry, out);
            spilled.count(&entry);
            if out.len() + spilled.bytes >= enough {
                return true;
            }
        }
        let kept = self.kept.clone();
        let index = kept.as_deref().unwrap_or(table);
        let mut is_done = false;
        for (hash, entry) in index.walk_from(self.next) {
            if hash >= self.next {
                if out.len() + spilled.bytes >= enough {
                    return true;
                }
                self.next = hash.next();
                is_done = self.is_done(hash);
            }
            if is_done {
                continue;
            }
            if out.len() + spilled.bytes >= enough {
                // The walk passes all entries of a hash at once; those without room wait for the next chunk.
                self.saved.push(entry.clone());
            } else if entry.is_large() || entry.collection().is_some() {
                // A copy of a large collection costs nothing.
                let saved = entry.collection().map(|_| entry.clone());
                self.in_pieces = Some(InPieces { hash, key: entry.key().into(), next: 0, saved });
                self.write_pieces(table, enough, out, discarded);
            } else {
                encode(entry, out);
                spilled.count(entry);
            }
        }
        self.next = KeyHash::END;
        !self.saved.is_empty() || self.in_pieces.is_some()
    }

    /// Appends keys with their values in the format of Redis's files, until `out` has grown by `bytes_max`. Returns whether
    /// there is more.
    fn dump_chunk(
        &mut self,
        table: &Index,
        bytes_max: usize,
        out: &mut Vec<u8>,
        mut expiring: Option<&mut Vec<ExpiringField>>,
        discarded: &mut Discarded,
    ) -> bool {
        let enough = out.len() + bytes_max.max(1);
        loop {
            // The entry being sent is a copy, which costs nothing for a collection.
            while let Some(InPieces { next, saved: Some(entry), .. }) = &mut self.in_pieces {
                *next = dump::put_part(entry, *next, enough, out, expiring.as_deref_mut());
                let is_over = !entry.is_collection() || *next >= entry.items().len();
                if is_over && let Some(saved) = self.in_pieces.take().and_then(|in_pieces| in_pieces.saved) {
                    saved.into_collection().into_iter().for_each(|it| it.discard(discarded));
                }
                if out.len() >= enough {
                    return true;
                }
            }
            let Some(entry) = self.saved.pop() else { break };
            let (hash, key) = (KeyHash::default(), entry.key().into());
            self.in_pieces = Some(InPieces { hash, key, next: 0, saved: Some(entry) });
        }
        let kept = self.kept.clone();
        let index = kept.as_deref().unwrap_or(table);
        let mut is_done = false;
        for (hash, entry) in index.walk_from(self.next) {
            if hash >= self.next {
                if out.len() >= enough || !self.saved.is_empty() {
                    return true;
                }
                self.next = hash.next();
                is_done = self.is_done(hash);
            }
            if is_done || entry.deadline() == DELETED {
                continue;
            }
            if entry.collection().is_some() || out.len() >= enough {
                // This entry waits for the next chunk, as do others with its hash.
                self.saved.push(entry.clone());
            } else {
                dump::put_part(entry, 0, usize::MAX, out, expiring.as_deref_mut());
            }
        }
        self.next = KeyHash::END;
        !self.saved.is_empty()
    }

    /// Whether the walk, now at this hash, must skip it.
    fn is_done(&mut self, hash: KeyHash) -> bool {
        while let Some(first) = self.done.first()
            && *first < hash
        {
            self.done.pop_first();
        }
        self.done.first() == Some(&hash)
    }
}

/// Counts the values on the disk that a chunk's entries refer to, if they are sent with it.
#[derive(Default)]
struct Counted {
    is_on: bool,
    bytes: usize,
    references: BTreeSet<Reference>,
}

impl Counted {
    fn count(&mut self, entry: &Entry) {
        let reference = entry.reference().filter(|reference| self.is_on && reference.is_spilled());
        if let Some(reference) = reference
            && self.references.insert(reference)
        {
            self.bytes += reference.length as usize;
        }
    }
}

/// Appends a value on the disk to a chunk.
pub fn encode_value(reference: Reference, value: &[u8], out: &mut Vec<u8>) {
    out.put_u64(0);
    out.put_u64(0);
    out.put_u8(VALUE);
    out.put_bytes(&reference.encoded());
    out.put_bytes(value);
}

fn encode(entry: &Entry, out: &mut Vec<u8>) {
    out.put_u64(entry.version());
    out.put_u64(entry.deadline());
    out.put_u8(entry.kind() as u8);
    out.put_bytes(entry.key());
    out.put_bytes(entry.value());
}

fn encode_piece(entry: &Entry, begin: usize, end: usize, out: &mut Vec<u8>) {
    let piece = &entry.value()[begin..end];
    out.put_u64(entry.version());
    out.put_u64(entry.deadline());
    out.put_u8(PIECE);
    out.put_bytes(entry.key());
    out.put_u32((PIECE_HEAD_BYTES + piece.len()) as u32);
    out.put_u8(entry.kind() as u8);
    out.put_u32(entry.value().len() as u32);
    out.put_u32(begin as u32);
    out.extend_from_slice(piece);
}

/// Appends some items of a large collection, and returns the rank of the next one.
fn encode_items(entry: &Entry, begin: usize, out: &mut Vec<u8>) -> usize {
    out.put_u64(entry.version());
    out.put_u64(entry.deadline());
    out.put_u8(ITEMS);
    out.put_bytes(entry.key());
    let length_at = out.len();
    out.put_u32(0);
    out.put_u8(entry.kind() as u8);
    out.put_u64(entry.items().len() as u64);
    out.put_u64(begin as u64);
    let next = collections::put_items(entry.items(), begin, out.len() + PIECE_BYTES, out);
    let length = (out.len() - length_at - 4) as u32;
    out[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
    next
}

fn encode_mark((name, version): (u16, Version), out: &mut Vec<u8>) {
    out.put_u64(version);
    out.put_u64(0);
    out.put_u8(MARK);
    out.put_bytes(&name.to_le_bytes());
    out.put_bytes(b"");
}

fn encode_item(kind: u8, item: &[u8], out: &mut Vec<u8>) {
    out.put_u64(0);
    out.put_u64(0);
    out.put_u8(kind);
    out.put_bytes(b"");
    out.put_bytes(item);
}

fn encode_part(part: &mut SnapshotPart, long: &LongCommands, out: &mut Vec<u8>) -> bool {
    let mut item = Vec::new();
    let is_there = part.encode(Some(long), &mut item);
    if is_there {
        out.put_u64(0);
        out.put_u64(0);
        out.put_u8(LONG);
        out.put_bytes(b"");
        out.put_bytes(&item);
    }
    is_there
}

fn encode_abandoned(id: ValueId, out: &mut Vec<u8>) {
    let mut name = Vec::new();
    id.put(&mut name);
    out.put_u64(0);
    out.put_u64(0);
    out.put_u8(ABANDONED);
    out.put_bytes(&name);
    out.put_bytes(b"");
}

impl Table {
    /// Begins a snapshot of the table's current state. It must be ended with [`Table::end_snapshot`].
    pub fn begin_snapshot(&mut self) -> SnapshotId {
        self.snapshots_begun += 1;
        let id = SnapshotId(self.snapshots_begun);
        let (next, done) = (KeyHash::default(), BTreeSet::new());
        let marks = self.removed_versions.marks().collect();
        let mut items = Vec::new();
        self.locks.for_each_item(|item| items.push((LOCKS, item.into())));
        self.queues.for_each_item(|item| items.push((QUEUES, item.into())));
        self.two_phase.for_each_item(|item| items.push((TWO_PHASE, item.into())));
        items.extend(self.map_floor.item().map(|item| (FLOOR, item)));
        let abandoned = self.coded.abandoned().collect();
        let long = self.long.parts();
        self.snapshots.push(Snapshot {
            id,
            next,
            done,
            saved: Vec::new(),
            in_pieces: None,
            marks,
            items,
            abandoned,
            long,
            kept: None,
        });
        id
    }

    /// Leaves the parts of long commands out of a snapshot: a planted fault.
    #[cfg(feature = "planted-bugs")]
    pub fn leave_out_long(&mut self, id: SnapshotId) {
        self.snapshots
            .iter_mut()
            .filter(|snapshot| snapshot.id == id)
            .for_each(|snapshot| snapshot.long.clear());
    }

    /// Appends the next chunk of a snapshot to `out`; returns whether there is more.
    ///
    /// A chunk ends with the first entry that brings it to `bytes_max`, so it may exceed that by one entry. Each chunk
    /// holds at least one entry, except the last, which may be empty. An id that is not open yields an empty last chunk.
    pub fn snapshot_chunk(&mut self, id: SnapshotId, bytes_max: usize, out: &mut Vec<u8>) -> bool {
        let Some(snapshot) = self.snapshots.iter_mut().find(|snapshot| snapshot.id == id) else {
            return false;
        };
        let spilled = &mut Counted::default();
        let discarded = snapshot.discarded((&mut self.discarded_nodes, &mut self.cleared));
        snapshot.chunk((&self.index, &self.long), bytes_max, out, spilled, discarded)
    }

    /// Like [`Table::snapshot_chunk`], but in the format of Redis's files. A chunk exceeds `bytes_max` by at most a string,
    /// a stream, or an item of another collection. All values must be in the table. With `expiring`, fields of hashes that
    /// expire are written without their deadlines, for servers before Redis 7.4, and noted there. Returns `None` if there
    /// is no such snapshot.
    pub fn dump_chunk(
        &mut self,
        id: SnapshotId,
        bytes_max: usize,
        out: &mut Vec<u8>,
        expiring: Option<&mut Vec<ExpiringField>>,
    ) -> Option<bool> {
        let snapshot = self.snapshots.iter_mut().find(|snapshot| snapshot.id == id)?;
        let discarded = snapshot.discarded((&mut self.discarded_nodes, &mut self.cleared));
        Some(snapshot.dump_chunk(&self.index, bytes_max, out, expiring, discarded))
    }

    /// All keys, including expired ones that have not been removed yet, as a Redis file with only database 0. Without locks
    /// and queues. All values must be in the table. Takes time and memory in proportion to the table.
    pub fn dump_all(&mut self) -> Vec<u8> {
        const CHUNK_BYTES: usize = 64 << 10;
        // The header, with version 12 of the format, and the selection of database 0.
        let (snapshot, mut file) = (self.begin_snapshot(), b"REDIS0012\xfe\x00".to_vec());
        while self.dump_chunk(snapshot, CHUNK_BYTES, &mut file, None) == Some(true) {}
        self.end_snapshot(snapshot);
        // The end mark, and 0 for "no checksum".
        file.extend_from_slice(&[0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
        file
    }

    /// Writes everything as a checkpoint does, reads it back, and goes on with the keys that were read, which are the same: for
    /// tests. Takes time and memory in proportion to the table. Returns the reason if nothing was done.
    pub fn reload(&mut self) -> Result<(), &'static str> {
        const CHUNK_BYTES: usize = 64 << 10;
        if !self.snapshots.is_empty() {
            return Err("a checkpoint or a transfer is under way, try again");
        }
        let mut read = Table::new(0);
        read.index = self.index.empty();
        let (snapshot, mut more, mut chunk) = (self.begin_snapshot(), true, Vec::new());
        let mut is_read = true;
        while more {
            chunk.clear();
            more = self.snapshot_chunk(snapshot, CHUNK_BYTES, &mut chunk);
            is_read &= read.install(&chunk).is_ok();
        }
        self.end_snapshot(snapshot);
        read.set_version_floor(self.floor);
        if !is_read || read.digest() != self.digest() {
            return Err("what was read back is not what was written: this is a fault of Quorate");
        }
        self.entry_bytes = read.entry_bytes;
        let before = std::mem::replace(&mut self.index, read.index.take());
        // What was read shares nothing.
        self.cleared.append(&mut self.discarded_nodes);
        self.long_reads.outlive_contents();
        self.discard(before);
        Ok(())
    }

    /// Like [`Table::snapshot_chunk`], for a snapshot transfer to another replica: the values on the disk that the
    /// chunk's entries refer to are sent with it, and count towards `bytes_max`. Their references are returned in
    /// `references`; the caller appends them with [`encode_value`].
    pub fn copy_chunk(
        &mut self,
        id: SnapshotId,
        bytes_max: usize,
        out: &mut Vec<u8>,
        references: &mut BTreeSet<Reference>,
    ) -> bool {
        let mut spilled = Counted { is_on: true, ..Counted::default() };
        let snapshot = self.snapshots.iter_mut().find(|snapshot| snapshot.id == id);
        let (table, live, cleared) =
            ((&self.index, &self.long), &mut self.discarded_nodes, &mut self.cleared);
        let more = snapshot.is_some_and(|it| {
            let discarded = it.discarded((live, cleared));
            it.chunk(table, bytes_max, out, &mut spilled, discarded)
        });
        *references = spilled.references;
        more
    }

    /// Ends a snapshot, whether or not it was read completely.
    pub fn end_snapshot(&mut self, id: SnapshotId) {
        let Some(place) = self.snapshots.iter().position(|snapshot| snapshot.id == id) else { return };
        // The last snapshot that holds a kept index returns it.
        let snapshot = self.snapshots.remove(place);
        let discarded = snapshot.discarded((&mut self.discarded_nodes, &mut self.cleared));
        let kept = snapshot.discard(discarded);
        if let Some(index) = kept.and_then(Arc::into_inner) {
            self.discard(index);
        }
    }

    /// Adds the entries of a snapshot's chunk and returns how many there were. Chunks may come from several tables: of
    /// two entries with the same key, the one with the higher version stays. The chunks of one table must come in
    /// order.
    ///
    /// A chunk does not contain the version floor: see [`Table::set_version_floor`].
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not a chunk. The entries before the fault have been added: discard the table.
    pub fn install(&mut self, chunk: &[u8]) -> Result<usize, Malformed> {
        self.break_history();
        let mut reader = Reader::new(chunk);
        let mut count = 0;
        while !reader.is_empty() {
            let (version, deadline) = (reader.u64()?, reader.u64()?);
            let tag = reader.u8()?;
            let (key, value) = (reader.bytes()?, reader.bytes()?);
            if tag == MARK {
                let name = key.try_into().map(u16::from_le_bytes);
                if !name.is_ok_and(|name| self.removed_versions.take_mark(name, version)) {
                    return Err(Malformed("an unknown mark of keys that are gone"));
                }
                continue;
            }
            if tag == LOCKS {
                self.locks.take_item(value)?;
                continue;
            }
            if tag == QUEUES {
                self.queues.take_item(value)?;
                continue;
            }
            if tag == TWO_PHASE {
                self.two_phase.take_item(value)?;
                self.observe();
                continue;
            }
            if tag == FLOOR {
                self.map_floor = Floor::of_item(value)?;
                continue;
            }
            if tag == PIECE {
                count += usize::from(self.take_piece(key, (version, deadline), value)?);
                continue;
            }
            if tag == ITEMS {
                count += usize::from(self.take_items(key, (version, deadline), value)?);
                continue;
            }
            if tag == LONG {
                self.long.take_item(value)?;
                continue;
            }
            if tag == ABANDONED {
                self.coded.abandon(ValueId::take(&mut Reader::new(key))?);
                continue;
            }
            if tag == VALUE {
                let reference = Reference::decode(key)?;
                if !reference.is_spilled() || !reference.is_of(value) {
                    return Err(Malformed("a spilled value that is not what it should be"));
                }
                self.spilled.arrived(reference, value);
                continue;
            }
            if key.len() > KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX_CEILING {
                return Err(Malformed("a key or a value is too long"));
            }
            let kind = Kind::from_tag(tag).ok_or(Malformed("unknown kind of value"))?;
            if kind == Kind::Coded {
                Reference::decode(value)?;
            }
            check_value(kind, value)?;
            if self.register(key).version < version {
                // No record is being applied, so there is no time by which keys expire: use 0.
                self.put(key, value, deadline, kind, Record { version, time: 0 });
            }
            count += 1;
        }
        Ok(count)
    }

    /// Takes a piece of a large entry, and ignores one that was taken before. Returns whether it was the last one.
    fn take_piece(
        &mut self,
        key: &[u8],
        (version, deadline): (Version, u64),
        piece: &[u8],
    ) -> Result<bool, Malformed> {
        let mut reader = Reader::new(piece);
        let (tag, length, begin) = (reader.u8()?, reader.u32()? as usize, reader.u32()? as usize);
        let piece = reader.rest();
        let kind = Kind::from_tag(tag).filter(|kind| *kind != Kind::Coded);
        let kind = kind.ok_or(Malformed("unknown kind of value"))?;
        if key.len() > KEY_BYTES_MAX || length > VALUE_BYTES_MAX_CEILING {
            return Err(Malformed("a key or a value is too long"));
        }
        let name = (key.into(), version);
        let value_at = HEADER_BYTES + key.len();
        let entry = self.arriving.entry(name).or_insert_with(|| {
            // Leave room for the entry's header in front. Reserved memory that is not written yet is not occupied.
            let mut entry = Vec::with_capacity((value_at + length).min(piece.len() << 12));
            entry.resize(HEADER_BYTES, 0);
            entry.extend_from_slice(key);
            entry
        });
        let end = entry.len() - value_at;
        if begin + piece.len() <= end {
            return Ok(false);
        }
        if begin != end || begin + piece.len() > length {
            return Err(Malformed("a piece of a value that does not follow the one before"));
        }
        entry.extend_from_slice(piece);
        if entry.len() < value_at + length {
            return Ok(false);
        }
        let entry = std::mem::take(entry);
        self.arriving.remove(&(key.into(), version));
        check_value(kind, &entry[value_at..])?;
        if self.register(key).version < version
            && let Some(entry) = Entry::taking_over(entry, key.len(), Stamp { version, deadline, kind })
        {
            self.put_entry(entry, Record { version, time: 0 });
        }
        Ok(true)
    }

    /// Takes items of a large collection, and ignores those that were taken before. Returns whether they were the last
    /// ones.
    fn take_items(
        &mut self,
        key: &[u8],
        (version, deadline): (Version, u64),
        items: &[u8],
    ) -> Result<bool, Malformed> {
        const OUT_OF_ORDER: Malformed = Malformed("items of a collection that do not follow those before");
        let mut reader = Reader::new(items);
        let kind = Kind::from_tag(reader.u8()?).filter(|kind| kind.is_collection());
        let kind = kind.ok_or(Malformed("unknown kind of collection"))?;
        let (count, begin) = (reader.u64()?, reader.u64()?);
        if key.len() > KEY_BYTES_MAX {
            return Err(Malformed("a key is too long"));
        }
        let name = (key.into(), version);
        let arriving = self.arriving_items.entry(name).or_insert_with(|| Collection::new(kind));
        if begin < arriving.len() as u64 {
            return Ok(false);
        }
        if begin > arriving.len() as u64 || arriving.kind() != kind {
            return Err(OUT_OF_ORDER);
        }
        collections::take_items(arriving, &mut reader)?;
        match (arriving.len() as u64).cmp(&count) {
            std::cmp::Ordering::Less => return Ok(false),
            std::cmp::Ordering::Greater => return Err(OUT_OF_ORDER),
            std::cmp::Ordering::Equal => {}
        }
        let Some(collection) = self.arriving_items.remove(&(key.into(), version)) else {
            return Err(OUT_OF_ORDER);
        };
        collections::check_whole(&collection)?;
        if self.register(key).version < version {
            let entry = Entry::of_collection(key, collection, Stamp { version, deadline, kind });
            self.put_entry(entry, Record { version, time: 0 });
        }
        Ok(true)
    }

    /// Returns a fingerprint of the table's content: all keys, values, versions and deadlines, the version floor, the
    /// locks, the queues, the gathered parts of long commands, the given-up values, and the marks of removed keys. Replicas
    /// with the same content have the same fingerprint, whatever their seeds and their history.
    pub fn digest(&self) -> u64 {
        const SECRETS: RapidSecrets = RapidSecrets::seed(0x71756f72617465);
        let hash = |bytes: &[u8]| rapidhash_v3_seeded(bytes, &SECRETS);
        let mut sum = hash(&self.floor.to_le_bytes());
        for mark in self.removed_versions.marks() {
            sum = sum.wrapping_add(hash(&RemovedVersions::encoded(mark)));
        }
        self.locks.for_each_item(|item| sum = sum.wrapping_add(hash(item)));
        self.queues.for_each_item(|item| sum = sum.wrapping_add(hash(item)));
        self.two_phase.for_each_item(|item| sum = sum.wrapping_add(hash(item)));
        self.map_floor.item().iter().for_each(|item| sum = sum.wrapping_add(hash(item)));
        self.long.for_each_item(|item| sum = sum.wrapping_add(hash(item)));
        for id in self.coded.abandoned() {
            let mut name = Vec::new();
            id.put(&mut name);
            sum = sum.wrapping_add(hash(&name));
        }
        for entry in self.index.iter() {
            let Stamp { version, deadline, .. } = entry.stamp();
            let text = match entry.is_collection() {
                true => entry_items::digest(entry, hash),
                false => hash(entry.key_and_value()),
            };
            let mut fields = [0; 32];
            let key_length = entry.key().len() as u64;
            // Mix in the kind: a string may hold the same bytes.
            let shape = match entry.kind() {
                kind if kind.is_collection() => key_length | (kind as u64) << 32,
                _ => key_length,
            };
            let parts = [text, version, deadline, shape];
            fields
                .chunks_exact_mut(8)
                .zip(parts)
                .for_each(|(field, part)| field.copy_from_slice(&part.to_le_bytes()));
            sum = sum.wrapping_add(hash(&fields));
        }
        sum
    }
}

/// Checks an untrusted value that is not a string.
fn check_value(kind: Kind, value: &[u8]) -> Result<(), Malformed> {
    match kind {
        kind if kind.is_collection() => collections::check_small(kind, value),
        _ => Ok(()),
    }
}

const _: () = assert!(NO_DEADLINE == u64::MAX, "a deadline of a snapshot's entry is written as it is");
