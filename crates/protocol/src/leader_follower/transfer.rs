//! Snapshot transfer: the table at one position, in chunks, and the batches that follow it. The receiver installs all of
//! it at once.
//!
//! Here chunks are not sent again: a receiver that misses one requests the whole transfer again.

use super::backlog::Batch;
use super::message::Message;
use super::position::Moment;
use super::position::Position;
use super::record::{Change, RecordedBatch};
use super::snapshot::Snapshot;
use super::state::State;
use crate::contract::{Effects, NodeId, Notice, Now, Trace};
use crate::transfer::{Arrival, Incoming, Outgoing};
use kv::{Table, Version};

/// The sending side.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) to: NodeId,
    transfer: u64,
    /// The position of the snapshot: the records sent next follow it.
    pub(super) position: Position,
    pub(super) chunks: Outgoing,
    /// When something was last sent to the receiver.
    sent_us: u64,
}

impl Sender {
    /// Opens a snapshot at the last applied offset and announces it. That offset must be the end of a batch, so that
    /// the records after it can follow.
    pub(super) fn begin(
        state: &mut State,
        now: Now,
        (to, why): (NodeId, &'static str),
        (join, transfer): (u64, u64),
        last: Position,
        effects: &mut Effects,
    ) -> Sender {
        let position = state.backlog.position_at(state.applied).expect("the applied offset is a batch's end");
        let chunks = Outgoing::new(state.table.begin_snapshot(), now);
        effects.trace.push(Trace::TransferBegun { to, offset: state.applied, why });
        let message = Message::SnapshotBegin {
            epoch: state.epoch,
            join,
            transfer,
            moment: Moment { position, floor: state.table.version_floor(), time: state.time },
            head: state.last().offset,
            kept: state.backlog.agrees_until(last),
        };
        effects.send([to], |out| message.encode(out));
        state.counters.transfers += 1;
        Sender { to, transfer, position, chunks, sent_us: now.monotonic_us }
    }

    /// Sends as many chunks as the receiver can take and the turn allows. True when the whole snapshot is sent.
    pub(super) fn advance(&mut self, state: &mut State, now: Now, effects: &mut Effects) -> bool {
        let (epoch, transfer) = (state.epoch, self.transfer);
        while effects.history_bytes < state.timing.turn_bytes
            && let Some((index, entries)) = self.chunks.next(&mut state.table, state.timing.window())
        {
            effects.history_bytes += entries.len();
            let chunk = Message::SnapshotChunk { epoch, transfer, index, entries };
            effects.send([self.to], |out| chunk.encode(out));
            self.sent_us = now.monotonic_us;
        }
        if self.chunks.waits_for_values() && now.ms_since(self.sent_us) >= state.timing.heartbeat_ms {
            // An empty chunk only shows that more will follow: the receiver must not give up on a sender that waits for
            // its disk.
            let chunk = Message::SnapshotChunk { epoch, transfer, index: self.chunks.sent(), entries: &[] };
            effects.send([self.to], |out| chunk.encode(out));
            self.sent_us = now.monotonic_us;
        }
        if self.chunks.is_all_sent() {
            let end = Message::SnapshotEnd { epoch, transfer, chunks: self.chunks.sent() };
            effects.send([self.to], |out| end.encode(out));
        }
        self.chunks.is_all_sent()
    }

    /// Notes that the receiver has every chunk before `next`.
    pub(super) fn progress(&mut self, now: Now, transfer: u64, next: u32) {
        if transfer == self.transfer {
            self.chunks.acknowledge(now, next);
        }
    }

    /// True when the receiver has made no progress for so long that it counts as dead.
    pub(super) fn is_stuck(&self, state: &State, now: Now) -> bool {
        self.chunks.stuck_ms(now) > 10 * state.timing.silence_ms
    }

    /// Abandons the snapshot.
    pub(super) fn abandon(mut self, state: &mut State, why: &'static str, effects: &mut Effects) {
        self.chunks.end(&mut state.table);
        effects.trace.push(Trace::TransferAbandoned { to: self.to, why });
    }
}

/// The receiving side: a second table, filled beside the one in use, and the batches that follow it.
///
/// A snapshot may be older than what the receiver holds and has acknowledged: its sender takes it from what is applied
/// there, and what is held beyond that arrives as batches. So the receiver keeps what it has until the transfer has
/// reached the offset that its sender had when it began.
#[derive(Debug)]
pub(super) struct Receiver {
    from: NodeId,
    transfer: u64,
    /// The position of the snapshot, or the last position in common.
    pub(super) position: Position,
    /// `None` when the history held here is correct up to `position`: only batches follow.
    snapshot: Option<Snapshot>,
    /// The offset up to which the history held here is part of the sender's, if that is known.
    kept: Option<Version>,
    /// The offset at which the transfer is complete.
    pub(super) until: Version,
    chunks: Incoming,
    /// Whether the snapshot, if one is sent, has arrived.
    pub(super) has_snapshot: bool,
    /// The batches after the position.
    pub(super) rest: Vec<Batch>,
    /// The commit offset that the sender knew.
    commit: Version,
}

/// The state of a receiver after a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// More will follow.
    Part,
    /// The transfer is complete.
    Whole,
    /// Something is missing or unreadable: the transfer must be requested again.
    Broken(&'static str),
}

impl Receiver {
    /// Begins to receive the snapshot that [`Message::SnapshotBegin`] announces. The transfer is complete at offset
    /// `until`.
    pub(super) fn begin(
        state: &mut State,
        now: Now,
        from: NodeId,
        until: Version,
        message: &Message<'_>,
        effects: &mut Effects,
    ) -> Option<Receiver> {
        let Message::SnapshotBegin { transfer, moment, kept, .. } = *message else { return None };
        state.journal.record(&Change::SnapshotBegin(moment), effects);
        let snapshot = Some(state.begin_snapshot(moment));
        let after = Receiver::resume(now, from, moment.position, until);
        Some(Receiver { transfer, snapshot, kept, has_snapshot: false, ..after })
    }

    /// Begins to receive the batches after a position that is held here too.
    pub(super) fn resume(now: Now, from: NodeId, after: Position, until: Version) -> Receiver {
        Receiver {
            from,
            transfer: 0,
            position: after,
            snapshot: None,
            kept: Some(after.offset),
            until,
            chunks: Incoming::new(now),
            has_snapshot: true,
            rest: Vec::new(),
            commit: 0,
        }
    }

    /// The last position that has arrived.
    pub(super) fn last(&self) -> Position {
        self.rest.last().map_or(self.position, Batch::end)
    }

    /// Returns the last offset that the sender knew to be committed.
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
                if chunks != self.chunks.next() {
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
                            state.journal.record(&Change::SnapshotBatch(RecordedBatch::of(&batch)), effects);
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
        self.chunks.got_on(now);
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
        if entries.is_empty() && index == self.chunks.next() {
            self.chunks.got_on(now); // The sender waits for its disk.
            return Received::Part;
        }
        let Some(snapshot) = &mut self.snapshot else { return Received::Part };
        match self.chunks.take(now, (index, entries), &mut snapshot.table) {
            Arrival::Next => {}
            Arrival::Again => return Received::Part,
            Arrival::Early => return Received::Broken("a chunk is missing"),
            Arrival::Unreadable => return Received::Broken("a chunk cannot be read"),
        }
        state.journal.record(&Change::SnapshotChunk(entries), effects);
        let (epoch, transfer, next) = (state.epoch, self.transfer, self.chunks.next());
        let message = Message::SnapshotProgress { epoch, transfer, next };
        effects.send([self.from], |out| message.encode(out));
        Received::Part
    }

    /// Replaces table and history by what was received: no earlier key survives, and nothing held before is missing. Without
    /// a snapshot the history only ends where the two agree, and the batches that follow are returned.
    #[must_use]
    pub(super) fn install(self, state: &mut State, effects: &mut Effects) -> Vec<Batch> {
        assert!(
            self.has_snapshot && self.last().offset >= self.until,
            "a transfer ends that is not complete"
        );
        state.note_lost(self.kept, effects);
        let (Position { offset, .. }, last) = (self.position, self.last());
        match self.snapshot {
            Some(snapshot) => {
                let keys = snapshot.table.len() as u64;
                state.install(snapshot);
                self.rest.into_iter().for_each(|batch| state.backlog.push(batch));
                state.journal.record_installed(last.offset, effects);
                state.counters.transfers += 1;
                effects.trace.push(Trace::Installed { offset, keys });
                effects.notices.push(Notice::Skipped);
                assert_eq!(state.last(), last, "records of the transfer are missing");
                Vec::new()
            }
            None => {
                state.truncate_after(offset, effects);
                state.counters.partial_resyncs += 1;
                self.rest
            }
        }
    }

    /// The table being filled, if any.
    pub(super) fn table(&self) -> Option<&Table> {
        self.snapshot.as_ref().map(|snapshot| &snapshot.table)
    }

    /// As [`Receiver::table`], to change it.
    pub(super) fn table_mut(&mut self) -> Option<&mut Table> {
        self.snapshot.as_mut().map(|snapshot| &mut snapshot.table)
    }

    /// Drops what has arrived, with its values on the disk.
    pub(super) fn give_up(mut self, state: &mut State) {
        if let Some(table) = self.table_mut() {
            state.table.take_spilled_of(table);
        }
    }

    /// True when the sender, which is not just busy, has sent nothing for so long that the transfer must be requested again.
    pub(super) fn is_stuck(&self, state: &State, now: Now) -> bool {
        let stuck_ms = self.chunks.stuck_ms(now);
        let since_us = now.monotonic_us.saturating_sub(stuck_ms * 1000);
        stuck_ms > state.timing.silence_ms && !state.vouches.excuse(self.from, now, since_us)
    }
}
