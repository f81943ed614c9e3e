//! Full resync: a snapshot of the whole table at one position, sent in chunks while writes continue, and swapped in
//! whole by the receiver.

use super::backlog::Batch;
use super::message::{Message, Position};
use super::record::{Change, RecordedBatch};
use super::state::State;
use crate::contract::{Effects, NodeId, Now, Trace};
use crate::loading::Loading;
use kv::table::SnapshotId;
use kv::{Reference, Table, UnixMs, Version};

/// The sending side. The table keeps a copy-on-write view open for it, so chunks taken at different times belong to
/// one offset.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) to: NodeId,
    transfer: u64,
    snapshot: SnapshotId,
    /// The position of the snapshot: the records sent next follow it.
    pub(super) position: Position,
    pub(super) next_index: u32,
    pub(super) received: u32,
    /// When the receiver last made progress, or a value arrived for which the sender waits.
    progress_us: u64,
    /// A chunk that waits for values on the disk.
    loading: Option<Loading>,
    /// For the next chunk.
    buffer: Vec<u8>,
    /// When something was last sent to the receiver.
    told_us: u64,
}

impl Sender {
    /// Opens a snapshot at the last applied offset and announces it. That offset must be the end of a batch, so that
    /// the records after it can follow.
    pub(super) fn begin(
        state: &mut State,
        now: Now,
        to: NodeId,
        (join, transfer): (u64, u64),
        last: Position,
        effects: &mut Effects,
    ) -> Sender {
        let position = state.backlog.position_at(state.applied).expect("the applied offset is a batch's end");
        let snapshot = state.table.begin_snapshot();
        let message = Message::SnapshotBegin {
            epoch: state.epoch,
            join,
            transfer,
            position,
            head: state.last().offset,
            floor: state.table.version_floor(),
            time: state.time,
            kept: state.backlog.agrees_until(last),
        };
        effects.send([to], |out| message.encode(out));
        state.counters.full_resyncs += 1;
        Sender {
            to,
            transfer,
            snapshot,
            position,
            next_index: 0,
            received: 0,
            progress_us: now.monotonic_us,
            loading: None,
            buffer: Vec::new(),
            told_us: now.monotonic_us,
        }
    }

    /// Sends as many chunks as the receiver can take. True when the whole snapshot is sent.
    pub(super) fn advance(&mut self, state: &mut State, now: Now, effects: &mut Effects) -> bool {
        while self.next_index - self.received < state.timing.chunk_window {
            let bytes_max = state.timing.chunk_bytes;
            let loading = self.loading.take().unwrap_or_else(|| {
                let buffer = std::mem::take(&mut self.buffer);
                Loading::next(&mut state.table, self.snapshot, bytes_max, buffer)
            });
            if !loading.is_whole() {
                // The delay is not the receiver's.
                self.progress_us = self.progress_us.max(loading.progress_us);
                self.loading = Some(loading);
                if now.ms_since(self.told_us) >= state.timing.heartbeat_ms {
                    self.send_chunk(state, now, &[], effects);
                }
                return false;
            }
            let more = loading.more;
            let mut chunk = loading.into_chunk();
            if !chunk.is_empty() {
                self.send_chunk(state, now, &chunk, effects);
                self.next_index += 1;
            }
            chunk.clear();
            self.buffer = chunk;
            if !more {
                let end = Message::SnapshotEnd {
                    epoch: state.epoch,
                    transfer: self.transfer,
                    chunks: self.next_index,
                };
                effects.send([self.to], |out| end.encode(out));
                state.table.end_snapshot(self.snapshot);
                return true;
            }
        }
        false
    }

    /// Sends the next chunk. An empty one says only that more will follow: the receiver must not give up on a sender
    /// that waits for its disk.
    fn send_chunk(&mut self, state: &State, now: Now, entries: &[u8], effects: &mut Effects) {
        let (epoch, transfer, index) = (state.epoch, self.transfer, self.next_index);
        let message = Message::SnapshotChunk { epoch, transfer, index, entries };
        effects.send([self.to], |out| message.encode(out));
        self.told_us = now.monotonic_us;
    }

    /// Appends the values on the disk that it waits for, unless they were asked for already.
    pub(super) fn take_wanted(&mut self, wanted: &mut Vec<Reference>) {
        if let Some(loading) = &mut self.loading {
            loading.take_wanted(wanted);
        }
    }

    /// Whether it waits for a value on the disk.
    pub(super) fn lacks(&self, reference: &Reference) -> bool {
        self.loading.as_ref().is_some_and(|loading| loading.lacks(reference))
    }

    /// Takes a value from the disk. True when the transfer can continue.
    pub(super) fn take_value(&mut self, now: Now, reference: Reference, value: &[u8]) -> bool {
        let Some(loading) = self.loading.as_mut().filter(|loading| loading.lacks(&reference)) else {
            return false;
        };
        loading.take(now.monotonic_us, reference, value);
        loading.is_whole()
    }

    /// Notes that the receiver has every chunk before `next`.
    pub(super) fn progress(&mut self, now: Now, transfer: u64, next: u32) {
        if transfer == self.transfer && next > self.received && next <= self.next_index {
            self.received = next;
            self.progress_us = now.monotonic_us;
        }
    }

    /// True when the receiver has made no progress for so long that it must be gone.
    pub(super) fn is_stuck(&self, state: &State, now: Now) -> bool {
        now.ms_since(self.progress_us) > 10 * state.timing.silence_ms
    }

    /// Abandons the snapshot.
    pub(super) fn abandon(self, state: &mut State, why: &'static str, effects: &mut Effects) {
        state.table.end_snapshot(self.snapshot);
        effects.trace.push(Trace::ResyncAbandoned { follower: self.to, why });
    }
}

/// The receiving side: a table of its own, filled beside the one in use, and the batches that follow it.
///
/// A snapshot may be older than what the receiver holds and has acknowledged: its sender takes it from what is
/// applied there, and what is held beyond that arrives as batches. So the receiver keeps what it has until the copy
/// has come as far as its sender had when it began.
#[derive(Debug)]
pub(super) struct Receiver {
    from: NodeId,
    transfer: u64,
    /// The position of the snapshot, or the last one in common.
    pub(super) position: Position,
    /// `None` when what is held here is good up to that position: only batches follow.
    snapshot: Option<Snapshot>,
    /// How much of what is held here is in the sender's history, if that is known.
    kept: Option<Version>,
    /// The offset at which the copy is complete.
    pub(super) until: Version,
    next_index: u32,
    /// Whether the snapshot, if one is sent, has arrived.
    pub(super) has_snapshot: bool,
    /// The batches after the position.
    pub(super) rest: Vec<Batch>,
    /// What their sender knew to be committed.
    commit: Version,
    progress_us: u64,
}

/// A snapshot being received.
#[derive(Debug)]
struct Snapshot {
    floor: Version,
    time: UnixMs,
    table: Table,
}

/// The state of a receiver after a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// More will follow.
    Part,
    /// The copy is complete.
    Whole,
    /// Something is missing or unreadable: ask again from the start.
    Broken(&'static str),
}

impl Receiver {
    /// Begins to take what [`Message::SnapshotBegin`] announces. The copy is complete at offset `until`.
    pub(super) fn begin(
        state: &mut State,
        now: Now,
        from: NodeId,
        until: Version,
        message: &Message<'_>,
        effects: &mut Effects,
    ) -> Option<Receiver> {
        let Message::SnapshotBegin { transfer, position, floor, time, kept, .. } = *message else {
            return None;
        };
        state.journal.tell(&Change::CopyBegin { position, floor, time }, effects);
        Some(Receiver {
            from,
            transfer,
            position,
            snapshot: Some(Snapshot { floor, time, table: state.new_table() }),
            kept,
            until,
            next_index: 0,
            has_snapshot: false,
            rest: Vec::new(),
            commit: 0,
            progress_us: now.monotonic_us,
        })
    }

    /// Begins to take the batches after a position that is held here too.
    pub(super) fn resume(now: Now, from: NodeId, after: Position, until: Version) -> Receiver {
        Receiver {
            from,
            transfer: 0,
            position: after,
            snapshot: None,
            kept: Some(after.offset),
            until,
            next_index: 0,
            has_snapshot: true,
            rest: Vec::new(),
            commit: 0,
            progress_us: now.monotonic_us,
        }
    }

    /// The last position copied.
    pub(super) fn last(&self) -> Position {
        self.rest.last().map_or(self.position, Batch::end)
    }

    /// Returns the offset up to which the sender knew the copy to be committed.
    pub(super) fn commit(&self) -> Version {
        self.commit
    }

    pub(super) fn message(
        &mut self,
        state: &mut State,
        now: Now,
        message: Message<'_>,
        effects: &mut Effects,
    ) -> Received {
        match message {
            Message::SnapshotChunk { transfer, index, entries, .. } if transfer == self.transfer => {
                return self.chunk(state, now, index, entries, effects);
            }
            Message::SnapshotEnd { transfer, chunks, .. } if transfer == self.transfer => {
                if chunks != self.next_index {
                    return Received::Broken("a chunk is missing");
                }
                self.has_snapshot = true;
            }
            Message::Append { previous, count, commit, .. } if self.has_snapshot => {
                let last = self.last();
                self.commit = self.commit.max(commit);
                match Batch::received(&message, now) {
                    Some(batch) if previous == last => {
                        if self.snapshot.is_some() {
                            state.journal.tell(&Change::CopyBatch(RecordedBatch::of(&batch)), effects);
                        }
                        self.rest.push(batch);
                    }
                    _ if previous.offset + count as u64 > last.offset => {
                        return Received::Broken("a batch is missing");
                    }
                    _ => {}
                }
            }
            _ => return Received::Part,
        }
        self.progress_us = now.monotonic_us;
        match self.has_snapshot && self.last().offset >= self.until {
            true => Received::Whole,
            false => Received::Part,
        }
    }

    fn chunk(
        &mut self,
        state: &mut State,
        now: Now,
        index: u32,
        entries: &[u8],
        effects: &mut Effects,
    ) -> Received {
        if index < self.next_index {
            return Received::Part; // A duplicate.
        }
        if index > self.next_index {
            return Received::Broken("a chunk is missing");
        }
        if entries.is_empty() {
            self.progress_us = now.monotonic_us; // The sender waits for its disk.
            return Received::Part;
        }
        let Some(snapshot) = &mut self.snapshot else { return Received::Part };
        if snapshot.table.install(entries).is_err() {
            return Received::Broken("a chunk cannot be read");
        }
        state.journal.tell(&Change::CopyChunk(entries), effects);
        self.next_index += 1;
        self.progress_us = now.monotonic_us;
        let (epoch, transfer, next) = (state.epoch, self.transfer, self.next_index);
        let message = Message::SnapshotProgress { epoch, transfer, next };
        effects.send([self.from], |out| message.encode(out));
        Received::Part
    }

    /// Swaps in the whole copy: no earlier key survives, and nothing held before is missing.
    pub(super) fn install(self, state: &mut State, effects: &mut Effects) {
        assert!(
            self.has_snapshot && self.last().offset >= self.until,
            "a copy is put in place that is not whole"
        );
        state.note_lost(self.kept, effects);
        let (Position { offset, .. }, last) = (self.position, self.last());
        match self.snapshot {
            Some(Snapshot { floor, time, mut table }) => {
                table.set_version_floor(floor);
                let keys = table.len() as u64;
                state.install(table, self.position, time);
                self.rest.into_iter().for_each(|batch| state.backlog.push(batch));
                state.journal.tell_installed(last.offset, effects);
                state.counters.full_resyncs += 1;
                effects.trace.push(Trace::Installed { offset, keys });
            }
            None => {
                state.truncate_after(offset, effects);
                self.rest.into_iter().for_each(|batch| state.push(batch, effects));
                state.counters.partial_resyncs += 1;
            }
        }
        assert_eq!(state.last(), last, "records of the copy are missing");
    }

    /// The table being filled, if any.
    pub(super) fn table(&self) -> Option<&Table> {
        self.snapshot.as_ref().map(|snapshot| &snapshot.table)
    }

    /// As [`Receiver::table`], to change it.
    pub(super) fn table_mut(&mut self) -> Option<&mut Table> {
        self.snapshot.as_mut().map(|snapshot| &mut snapshot.table)
    }

    /// Drops the copy, with the values on the disk that came with it.
    pub(super) fn give_up(mut self, state: &mut State) {
        if let Some(table) = self.table_mut() {
            state.table.take_spilled_of(table);
        }
    }

    /// True when the sender has sent nothing for so long that it must be asked again.
    pub(super) fn is_stuck(&self, state: &State, now: Now) -> bool {
        now.ms_since(self.progress_us) > state.timing.silence_ms
    }
}
