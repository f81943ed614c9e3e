//! The messages between leader and followers.

use super::position::{Moment, Position, check_records, put_position, take_position};
use kv::codec::{Malformed, Reader, Writer};
use kv::{UnixMs, Version};

/// A message. The `epoch` of each is the sender's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Leader to follower: one batch of records, or none (a heartbeat).
    Append {
        /// The leader's epoch.
        epoch: u64,
        /// The position that the batch follows.
        previous: Position,
        /// The epoch in which the batch was first written.
        batch_epoch: u64,
        /// The number of records.
        count: u32,
        /// The leader's time when it wrote them, by which their expiry is measured.
        time: UnixMs,
        /// Everything up to this offset is committed.
        commit: Version,
        /// The leader's last offset, from which a follower knows how far behind it is.
        leader_offset: Version,
        /// The leader waits for the acknowledgement: send it at the end of this turn.
        acknowledge: bool,
        /// The group is quiescent: no heartbeat follows once the follower has acknowledged that.
        rest: bool,
        /// The records.
        records: &'a [u8],
    },
    /// Follower to leader: I hold everything up to `offset`.
    Acknowledge {
        /// The epoch it acknowledges.
        epoch: u64,
        /// The join question whose answer began its stream. What the follower held before that question no longer counts.
        join: u64,
        /// The last offset held.
        offset: Version,
        /// The follower is quiescent, and expects no heartbeats.
        rests: bool,
    },
    /// Follower to leader: this is what I hold; send me the rest.
    Join {
        /// The highest epoch it has seen.
        epoch: u64,
        /// The last position it holds.
        last: Position,
        /// The last offset it has applied: its history can be cut off only after that.
        applied: Version,
        /// Identifies this question, so that a late answer to an earlier question is not taken for its answer. A repeated
        /// question keeps the number until an answer arrives: its content is still true then.
        join: u64,
    },
    /// Leader to follower: your history agrees with mine up to `after`; cut off the rest, records follow.
    Resume {
        /// The leader's epoch.
        epoch: u64,
        /// The question that this answers.
        join: u64,
        /// The last position in common.
        after: Position,
        /// The leader's last offset. A follower that has reached it again holds everything that it ever acknowledged.
        head: Version,
    },
    /// Start of a snapshot of the whole table at one position.
    SnapshotBegin {
        /// The sender's epoch.
        epoch: u64,
        /// The question that this answers.
        join: u64,
        /// Identifies this transfer; a later answer to the same question has a higher number.
        transfer: u64,
        /// The moment that it shows.
        moment: Moment,
        /// The sender's last offset, as in [`Message::Resume`]; batches follow from the moment's position up to this
        /// offset.
        head: Version,
        /// The offset up to which the receiver's history is part of the sender's, if that is known.
        kept: Option<Version>,
    },
    /// A part of a snapshot.
    SnapshotChunk {
        /// The sender's epoch.
        epoch: u64,
        /// The transfer that it belongs to.
        transfer: u64,
        /// Its number, from 0.
        index: u32,
        /// Entries of the table.
        entries: &'a [u8],
    },
    /// The snapshot is complete.
    SnapshotEnd {
        /// The sender's epoch.
        epoch: u64,
        /// The transfer that it belongs to.
        transfer: u64,
        /// The number of its chunks.
        chunks: u32,
    },
    /// Receiver of a snapshot to its sender: I have all chunks before `next`. Allows the sender to continue.
    SnapshotProgress {
        /// The sender's epoch, echoed.
        epoch: u64,
        /// The transfer.
        transfer: u64,
        /// The first chunk that is missing.
        next: u32,
    },
    /// From an appointed leader, to all: what do you hold? A replica that answers no longer follows an older epoch.
    Probe {
        /// The epoch in which it will lead.
        epoch: u64,
    },
    /// The answer to a probe.
    Holding {
        /// The probe's epoch.
        epoch: u64,
        /// The last position held.
        last: Position,
        /// False when this replica may have lost something that it once acknowledged.
        intact: bool,
    },
    /// From an appointed leader, to the replica that holds the most: send me what I lack. The answer is like the one to a
    /// [`Message::Join`], and the batches that follow reach up to the last one held there.
    Fetch {
        /// The epoch in which it will lead.
        epoch: u64,
        /// The last position it holds.
        last: Position,
        /// The last offset it has applied: its history can be cut off only after that.
        applied: Version,
        /// Identifies this question.
        join: u64,
    },
    /// Your epoch is over.
    Stale {
        /// The highest epoch that the sender has seen.
        epoch: u64,
    },
}

const APPEND: u8 = 1;
const ACKNOWLEDGE: u8 = 2;
const JOIN: u8 = 3;
const RESUME: u8 = 4;
const SNAPSHOT_BEGIN: u8 = 5;
const SNAPSHOT_CHUNK: u8 = 6;
const SNAPSHOT_END: u8 = 7;
const SNAPSHOT_PROGRESS: u8 = 8;
const PROBE: u8 = 9;
const HOLDING: u8 = 10;
const FETCH: u8 = 11;
const STALE: u8 = 12;

impl<'a> Message<'a> {
    /// Appends the message's encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Message::Append {
                epoch,
                previous,
                batch_epoch,
                count,
                time,
                commit,
                leader_offset,
                acknowledge,
                rest,
                records,
            } => {
                out.reserve(80 + records.len());
                out.put_u8(APPEND);
                out.put_u64(epoch);
                put_position(out, previous);
                out.put_u64(batch_epoch);
                out.put_u32(count);
                out.put_u64(time);
                out.put_u64(commit);
                out.put_u64(leader_offset);
                out.put_bool(acknowledge);
                out.put_bool(rest);
                out.put_bytes(records);
            }
            Message::Acknowledge { epoch, join, offset, rests } => {
                put_head(out, ACKNOWLEDGE, epoch);
                out.put_u64(join);
                out.put_u64(offset);
                out.put_bool(rests);
            }
            Message::Join { epoch, last, applied, join } => {
                put_head(out, JOIN, epoch);
                put_position(out, last);
                out.put_u64(applied);
                out.put_u64(join);
            }
            Message::Resume { epoch, join, after, head } => {
                put_head(out, RESUME, epoch);
                out.put_u64(join);
                put_position(out, after);
                out.put_u64(head);
            }
            Message::SnapshotBegin { epoch, join, transfer, moment, head, kept } => {
                put_head(out, SNAPSHOT_BEGIN, epoch);
                out.put_u64(join);
                out.put_u64(transfer);
                put_position(out, moment.position);
                out.put_u64(head);
                out.put_u64(moment.floor);
                out.put_u64(moment.time);
                out.put_bool(kept.is_some());
                out.put_u64(kept.unwrap_or_default());
            }
            Message::SnapshotChunk { epoch, transfer, index, entries } => {
                put_head(out, SNAPSHOT_CHUNK, epoch);
                out.put_u64(transfer);
                out.put_u32(index);
                out.put_bytes(entries);
            }
            Message::SnapshotEnd { epoch, transfer, chunks } => {
                put_head(out, SNAPSHOT_END, epoch);
                out.put_u64(transfer);
                out.put_u32(chunks);
            }
            Message::SnapshotProgress { epoch, transfer, next } => {
                put_head(out, SNAPSHOT_PROGRESS, epoch);
                out.put_u64(transfer);
                out.put_u32(next);
            }
            Message::Probe { epoch } => put_head(out, PROBE, epoch),
            Message::Holding { epoch, last, intact } => {
                put_head(out, HOLDING, epoch);
                put_position(out, last);
                out.put_bool(intact);
            }
            Message::Fetch { epoch, last, applied, join } => {
                put_head(out, FETCH, epoch);
                put_position(out, last);
                out.put_u64(applied);
                out.put_u64(join);
            }
            Message::Stale { epoch } => put_head(out, STALE, epoch),
        }
    }

    /// Returns the sender's epoch.
    pub fn epoch(&self) -> u64 {
        match *self {
            Message::Append { epoch, .. }
            | Message::Acknowledge { epoch, .. }
            | Message::Join { epoch, .. }
            | Message::Resume { epoch, .. }
            | Message::SnapshotBegin { epoch, .. }
            | Message::SnapshotChunk { epoch, .. }
            | Message::SnapshotEnd { epoch, .. }
            | Message::SnapshotProgress { epoch, .. }
            | Message::Probe { epoch }
            | Message::Holding { epoch, .. }
            | Message::Fetch { epoch, .. }
            | Message::Stale { epoch } => epoch,
        }
    }

    /// True for messages that only the leader of an epoch sends, and for progress reports to a follower that sends the
    /// leader a snapshot.
    pub(super) fn is_from_leader(&self) -> bool {
        !matches!(self, Message::Acknowledge { .. } | Message::Join { .. } | Message::Holding { .. })
    }

    /// Decodes a whole message and checks that every record in it can be decoded, so that a replica never gets one that
    /// cannot.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not exactly one message.
    pub fn decode(bytes: &'a [u8]) -> Result<Message<'a>, Malformed> {
        let mut reader = Reader::new(bytes);
        let message = Self::take(&mut reader)?;
        if !reader.is_empty() {
            return Err(Malformed("bytes behind a message"));
        }
        Ok(message)
    }

    fn take(reader: &mut Reader<'a>) -> Result<Message<'a>, Malformed> {
        let tag = reader.u8()?;
        let epoch = reader.u64()?;
        Ok(match tag {
            APPEND => {
                let previous = take_position(reader)?;
                let batch_epoch = reader.u64()?;
                let count = reader.u32()?;
                let time = reader.u64()?;
                let commit = reader.u64()?;
                let leader_offset = reader.u64()?;
                let (acknowledge, rest) = (reader.bool()?, reader.bool()?);
                let records = reader.bytes()?;
                check_records(records, count)?;
                let ordered = previous.epoch <= batch_epoch && batch_epoch <= epoch;
                if !ordered || previous.offset.checked_add(count as u64).is_none() {
                    return Err(Malformed("an append that no leader sends"));
                }
                Message::Append {
                    epoch,
                    previous,
                    batch_epoch,
                    count,
                    time,
                    commit,
                    leader_offset,
                    acknowledge,
                    rest,
                    records,
                }
            }
            ACKNOWLEDGE => Message::Acknowledge {
                epoch,
                join: reader.u64()?,
                offset: reader.u64()?,
                rests: reader.bool()?,
            },
            JOIN => {
                let last = take_position(reader)?;
                Message::Join { epoch, last, applied: reader.u64()?, join: reader.u64()? }
            }
            RESUME => Message::Resume {
                epoch,
                join: reader.u64()?,
                after: take_position(reader)?,
                head: reader.u64()?,
            },
            SNAPSHOT_BEGIN => {
                let (join, transfer) = (reader.u64()?, reader.u64()?);
                let (position, head) = (take_position(reader)?, reader.u64()?);
                let moment = Moment { position, floor: reader.u64()?, time: reader.u64()? };
                let (is_known, kept) = (reader.bool()?, reader.u64()?);
                let kept = is_known.then_some(kept);
                Message::SnapshotBegin { epoch, join, transfer, moment, head, kept }
            }
            SNAPSHOT_CHUNK => Message::SnapshotChunk {
                epoch,
                transfer: reader.u64()?,
                index: reader.u32()?,
                entries: reader.bytes()?,
            },
            SNAPSHOT_END => Message::SnapshotEnd { epoch, transfer: reader.u64()?, chunks: reader.u32()? },
            SNAPSHOT_PROGRESS => {
                Message::SnapshotProgress { epoch, transfer: reader.u64()?, next: reader.u32()? }
            }
            PROBE => Message::Probe { epoch },
            HOLDING => Message::Holding { epoch, last: take_position(reader)?, intact: reader.bool()? },
            FETCH => Message::Fetch {
                epoch,
                last: take_position(reader)?,
                applied: reader.u64()?,
                join: reader.u64()?,
            },
            STALE => Message::Stale { epoch },
            _ => return Err(Malformed("unknown kind of message")),
        })
    }
}

fn put_head(out: &mut Vec<u8>, tag: u8, epoch: u64) {
    out.put_u8(tag);
    out.put_u64(epoch);
}
