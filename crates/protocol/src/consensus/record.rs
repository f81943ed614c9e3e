//! Records: what a replica must find again after a crash. A record is one or more changes that happen together.
//!
//! Replayed in order, the records of a replica's incarnations rebuild its state. A checkpoint is written in records, too,
//! so that there is one way to restore a replica: the checkpoint's records, then those that were made after it.

use super::entry::Entry;
use super::group::{Group, Voter};
use crate::coded::{HeldPiece, KeptPiece, Piece, StoredPiece};
use crate::contract::NodeId;
use kv::codec::{Malformed, Reader, Writer};
use kv::coded::REFERENCE_BYTES;
use kv::{Reference, UnixMs, Version};
use omnipaxos::ballot_leader_election::Ballot;
use std::sync::Arc;

/// The moment in the group's history that a snapshot of the table shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// How many entries are applied in it.
    pub index: u64,
    /// The number of commands in these entries.
    pub offset: Version,
    /// The time of the newest of these entries.
    pub time: UnixMs,
    /// The highest version that the table ever gave.
    pub floor: Version,
    /// The configuration in force from there on.
    pub group: Group,
}

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The replica started: its storage's identity, and the number of its incarnations with it.
    Life {
        /// Drawn when the storage was first used.
        identity: u64,
        /// Counted from 1.
        life: u64,
    },
    /// A message came from a voter that is new or has restarted: its identity from now on.
    Peer(Voter),
    /// A configuration began: what was promised and accepted in the previous one no longer counts, and the log after its
    /// stop-sign is void.
    Group(Group),
    /// This replica's storage was lost, or is older than others know it, so it is no longer a voter as the member that it has
    /// been since this configuration.
    Excluded {
        /// The configuration.
        since: u32,
    },
    /// A promise: older ballots are no longer served.
    Promise(Ballot),
    /// The ballot in which the log was last accepted.
    Accepted(Ballot),
    /// How many entries are known to be decided.
    Decided(u64),
    /// Entries after the last one.
    Append(Vec<Entry>),
    /// Entries that replace all from this index on.
    Replace(u64, Vec<Entry>),
    /// A snapshot of the table, of another replica or in a checkpoint, begins.
    SnapshotBegin(Moment),
    /// A part of the snapshot.
    SnapshotChunk(Vec<u8>),
    /// The snapshot is complete, and replaces the table and the beginning of the log.
    SnapshotEnd,
    /// A piece of a fragment is kept here.
    Fragment(KeptPiece),
    /// A piece of a fragment is in the node's store. In checkpoints only.
    StoredFragment(StoredPiece),
}

const LIFE: u8 = 1;
const PEER: u8 = 2;
const PROMISE: u8 = 3;
const ACCEPTED: u8 = 4;
const DECIDED: u8 = 5;
const APPEND: u8 = 6;
const REPLACE: u8 = 7;
const SNAPSHOT_BEGIN: u8 = 8;
const SNAPSHOT_CHUNK: u8 = 9;
const SNAPSHOT_END: u8 = 10;
const GROUP: u8 = 11;
const EXCLUDED: u8 = 12;
const FRAGMENT: u8 = 20;
const STORED_FRAGMENT: u8 = 21;

impl Change {
    /// Appends the change's encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Change::Life { identity, life } => {
                out.put_u8(LIFE);
                out.put_u64(*identity);
                out.put_u64(*life);
            }
            Change::Peer(voter) => {
                out.put_u8(PEER);
                voter.put(out);
            }
            Change::Group(group) => {
                out.put_u8(GROUP);
                group.put(out);
            }
            Change::Excluded { since } => {
                out.put_u8(EXCLUDED);
                out.put_u32(*since);
            }
            Change::Promise(ballot) => {
                out.put_u8(PROMISE);
                put_ballot(out, *ballot);
            }
            Change::Accepted(ballot) => {
                out.put_u8(ACCEPTED);
                put_ballot(out, *ballot);
            }
            Change::Decided(index) => {
                out.put_u8(DECIDED);
                out.put_u64(*index);
            }
            Change::Append(entries) => {
                out.put_u8(APPEND);
                put_entries(out, entries);
            }
            Change::Replace(from, entries) => {
                out.put_u8(REPLACE);
                out.put_u64(*from);
                put_entries(out, entries);
            }
            Change::SnapshotBegin(moment) => {
                out.put_u8(SNAPSHOT_BEGIN);
                put_moment(out, moment);
            }
            Change::SnapshotChunk(chunk) => {
                out.put_u8(SNAPSHOT_CHUNK);
                out.put_bytes(chunk);
            }
            Change::SnapshotEnd => out.put_u8(SNAPSHOT_END),
            Change::Fragment(piece) => put_fragment(out, &piece.piece()),
            Change::StoredFragment(piece) => put_stored_fragment(out, piece),
        }
    }

    /// Reads a whole record.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are no record.
    pub fn decode_all(record: &[u8]) -> Result<Vec<Change>, Malformed> {
        let mut reader = Reader::new(record);
        let mut changes = Vec::new();
        while !reader.is_empty() {
            changes.push(match reader.u8()? {
                LIFE => Change::Life { identity: reader.u64()?, life: reader.u64()? },
                PEER => Change::Peer(Voter::take(&mut reader)?),
                GROUP => Change::Group(Group::take(&mut reader)?),
                EXCLUDED => Change::Excluded { since: reader.u32()? },
                PROMISE => Change::Promise(take_ballot(&mut reader)?),
                ACCEPTED => Change::Accepted(take_ballot(&mut reader)?),
                DECIDED => Change::Decided(reader.u64()?),
                APPEND => Change::Append(take_entries(&mut reader)?),
                REPLACE => Change::Replace(reader.u64()?, take_entries(&mut reader)?),
                SNAPSHOT_BEGIN => Change::SnapshotBegin(take_moment(&mut reader)?),
                SNAPSHOT_CHUNK => Change::SnapshotChunk(reader.bytes()?.to_vec()),
                SNAPSHOT_END => Change::SnapshotEnd,
                FRAGMENT => Change::Fragment(take_fragment(reader.bytes()?)?.into()),
                STORED_FRAGMENT => Change::StoredFragment(take_stored_fragment(&mut reader)?),
                _ => return Err(Malformed("unknown kind of record")),
            });
        }
        Ok(changes)
    }
}

/// Appends the encoding of a whole record, without the bytes of an entry or a piece at its end: these are returned.
pub(super) fn put_changes(out: &mut Vec<u8>, changes: &[Change]) -> Option<Arc<Vec<u8>>> {
    let (last, before) = changes.split_last()?;
    before.iter().for_each(|change| change.encode(out));
    match last {
        Change::Append(entries) => {
            out.put_u8(APPEND);
            put_entries_but_last(out, entries)
        }
        Change::Fragment(piece) => {
            put_fragment_head(out, &piece.piece());
            Some(piece.shared_bytes())
        }
        _ => {
            last.encode(out);
            None
        }
    }
}

/// Appends a piece of a fragment, as a checkpoint holds it.
pub(super) fn put_held(out: &mut Vec<u8>, piece: &HeldPiece) {
    match piece {
        HeldPiece::Kept(kept) => put_fragment(out, &kept.piece()),
        HeldPiece::Stored(stored) => put_stored_fragment(out, stored),
    }
}

fn put_stored_fragment(out: &mut Vec<u8>, piece: &StoredPiece) {
    out.put_u8(STORED_FRAGMENT);
    out.extend_from_slice(&piece.reference.encoded());
    out.put_u8(piece.number);
    out.put_u32(piece.stripe);
    out.put_u64(piece.checksum);
    out.put_u64(piece.digest);
}

fn take_stored_fragment(reader: &mut Reader<'_>) -> Result<StoredPiece, Malformed> {
    Ok(StoredPiece {
        reference: Reference::decode(reader.take(REFERENCE_BYTES)?)?,
        number: reader.u8()?,
        stripe: reader.u32()?,
        checksum: reader.u64()?,
        digest: reader.u64()?,
    })
}

/// Appends the encoding of [`Change::Fragment`].
fn put_fragment(out: &mut Vec<u8>, piece: &Piece<'_>) {
    out.reserve(1 + size_of::<u32>() + piece.encoded_bytes());
    put_fragment_head(out, piece);
    out.extend_from_slice(piece.bytes);
}

/// The same without the piece's bytes, which come last.
fn put_fragment_head(out: &mut Vec<u8>, piece: &Piece<'_>) {
    out.put_u8(FRAGMENT);
    out.put_u32(piece.encoded_bytes() as u32);
    piece.put_head(out);
}

fn take_fragment(bytes: &[u8]) -> Result<Piece<'_>, Malformed> {
    let mut reader = Reader::new(bytes);
    let piece = Piece::take(&mut reader)?;
    if reader.is_empty() { Ok(piece) } else { Err(Malformed("bytes behind a piece")) }
}

/// A ballot's number must never come near the end of its range: the crate adds to it without a check.
const BALLOT_MAX: u32 = 1 << 31;

pub(super) fn put_ballot(out: &mut Vec<u8>, ballot: Ballot) {
    out.put_u32(ballot.config_id);
    out.put_u32(ballot.n);
    out.put_u32(ballot.priority);
    out.put_u64(ballot.pid);
}

#[inline]
pub(super) fn take_ballot(reader: &mut Reader<'_>) -> Result<Ballot, Malformed> {
    let (config_id, n, priority) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let pid = reader.u64()?;
    if n > BALLOT_MAX || pid > NodeId::MAX as u64 {
        return Err(Malformed("a ballot out of range"));
    }
    Ok(Ballot { config_id, n, priority, pid })
}

pub(super) fn put_entries(out: &mut Vec<u8>, entries: &[Entry]) {
    out.reserve(4 + entries.iter().map(|entry| 4 + entry.bytes().len()).sum::<usize>());
    let last = put_entries_but_last(out, entries);
    last.iter().for_each(|bytes| out.extend_from_slice(bytes));
}

/// The same without the bytes of the last entry, which are returned.
pub(super) fn put_entries_but_last(out: &mut Vec<u8>, entries: &[Entry]) -> Option<Arc<Vec<u8>>> {
    out.put_u32(entries.len() as u32);
    let (last, before) = entries.split_last()?;
    before.iter().for_each(|entry| out.put_bytes(entry.bytes()));
    out.put_u32(last.bytes().len() as u32);
    Some(last.shared())
}

pub(super) fn take_entries(reader: &mut Reader<'_>) -> Result<Vec<Entry>, Malformed> {
    let count = reader.u32()?;
    let mut entries = Vec::new(); // Not allocated by a number that a peer sends.
    for _ in 0..count {
        entries.push(Entry::decode(reader.bytes()?)?);
    }
    Ok(entries)
}

pub(super) fn put_moment(out: &mut Vec<u8>, moment: &Moment) {
    out.put_u64(moment.index);
    out.put_u64(moment.offset);
    out.put_u64(moment.time);
    out.put_u64(moment.floor);
    moment.group.put(out);
}

pub(super) fn take_moment(reader: &mut Reader<'_>) -> Result<Moment, Malformed> {
    let (index, offset) = (reader.u64()?, reader.u64()?);
    if index > INDEX_MAX || offset > INDEX_MAX {
        return Err(Malformed("a moment out of range"));
    }
    let (time, floor) = (reader.u64()?, reader.u64()?);
    Ok(Moment { index, offset, time, floor, group: Group::take(reader)? })
}

/// No log grows this long, so sums of indices cannot overflow.
pub(super) const INDEX_MAX: u64 = 1 << 60;
