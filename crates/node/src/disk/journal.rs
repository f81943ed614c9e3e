//! The node's log: everything that its replicas must find again after a crash.
//!
//! Replicas produce records. A record counts as durable for its replica when it is as durable as the keyspace promises:
//! with `os` once it is written, with `fsync` once a sync has covered it. At the end of a turn one write takes all of
//! its records, if any of them waits for no more than a write; otherwise the next sync writes them. A message waits
//! here until the record that it depends on is durable. Syncs, and anything else that takes long, are handed out as
//! [`Work`] to be run beside the loop: a client that only reads never waits for them.
//!
//! Checkpoints bound the log: when it has grown enough, the group that needs its oldest part writes its state as a
//! snapshot, one chunk per turn, also beside the loop, and the log before it is released.

use crate::diagnostics::log::{Level, Line};
use cluster::configuration::StorageSettings;
use cluster::keyspace::Keyspace;
use protocol::leader_follower::Durability;
use protocol::{NodeId, Now, Progress, Recipient};
use std::collections::VecDeque;
use storage::{Disk, Log, Outcome, Position, SnapshotWriter, StorageError, Work};

/// How often a full disk is tried again: while nothing can be written, and while the reserve lasts.
const RETRY_MS: u64 = 100;
const RETRY_SHORT_MS: u64 = 1000;

/// How often a checkpoint that found no room on a full disk is tried again.
const CHECKPOINT_RETRY_MS: u64 = 2000;

/// The minimum time between two log lines about lack of room.
const LINE_MS: u64 = 10_000;

/// The size of one chunk of a checkpoint, which is made within one turn.
const CHUNK_BYTES: usize = 256 << 10;

/// After this long without a write, the log notes up to where it is durable.
const QUIET_MS: u64 = 1000;

/// The kinds of entries.
pub(crate) mod kind {
    /// A record of a replica.
    pub(crate) const RECORD: u16 = 0;
    /// The keyspace of a group whose replica begins here. It comes before the replica's first record, and a snapshot
    /// begins with it, so that a log can be read without other information.
    pub(crate) const KEYSPACE: u16 = 1;
}

/// A message that waits for a record.
#[derive(Debug)]
struct Held {
    after_record: u64,
    to: NodeId,
    bytes: Vec<u8>,
    recipient: Recipient,
}

/// A message whose record is durable.
#[derive(Debug)]
pub(crate) struct Released {
    pub(crate) to: NodeId,
    pub(crate) bytes: Vec<u8>,
    pub(crate) recipient: Recipient,
}

/// The state of a group's records in the log.
#[derive(Debug)]
pub(crate) struct Tail {
    durability: Durability,
    /// The number of the last record of this incarnation.
    recorded: u64,
    /// The last record up to which all are as durable as the keyspace promises.
    durable: u64,
    /// The records that are not yet as durable: the last one of each turn, with its position in the log.
    undurable: VecDeque<(u64, Position)>,
    held: VecDeque<Held>,
}

impl Tail {
    pub(crate) fn new(durability: Durability) -> Tail {
        Tail { durability, recorded: 0, durable: 0, undurable: VecDeque::new(), held: VecDeque::new() }
    }

    /// The number of the last record.
    pub(crate) fn recorded(&self) -> u64 {
        self.recorded
    }

    /// Whether no record or message of the group waits for the disk.
    pub(crate) fn is_settled(&self) -> bool {
        self.undurable.is_empty() && self.held.is_empty()
    }

    /// Whether a message that waits for this record may be sent now.
    #[inline]
    pub(crate) fn may_leave(&self, after_record: u64) -> bool {
        after_record <= self.durable
    }

    /// Keeps a message until a record is durable.
    pub(crate) fn hold(&mut self, after_record: u64, to: NodeId, recipient: Recipient, message: [&[u8]; 2]) {
        self.held.push_back(Held { after_record, to, recipient, bytes: message.concat() });
    }

    /// Takes out the next message whose record is durable by now, in the order in which they were sent.
    pub(crate) fn release(&mut self) -> Option<Released> {
        let durable = self.durable;
        let place = self.held.iter().position(|held| held.after_record <= durable)?;
        let Held { to, recipient, bytes, .. } = self.held.remove(place)?;
        Some(Released { to, recipient, bytes })
    }

    /// Whether anything of the group is recorded.
    pub(crate) fn is_durable(&self) -> bool {
        self.durability != Durability::None
    }

    /// Drops the messages for a node whose link broke: they would have been lost with it.
    pub(crate) fn drop_held(&mut self, to: NodeId) {
        self.held.retain(|held| held.to != to);
    }

    /// Notes that everything up to a position is as durable as promised. Returns the last record that has become
    /// durable by this.
    fn advance(&mut self, durable: Position) -> Option<u64> {
        let before = self.durable;
        while let Some((record, _)) = self.undurable.pop_front_if(|(_, position)| *position < durable) {
            self.durable = record;
        }
        (self.durable > before).then_some(self.durable)
    }
}

/// What a start of the node would now find of a group's checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// The newest checkpoint, which has replaced the previous one.
    Checkpoint(u16),
    /// The previous checkpoint: there was no room for the newest one.
    NoCheckpoint(u16),
    /// Nothing: the log has forgotten the group.
    Forgotten(u16),
}

#[derive(Debug)]
struct Checkpoint {
    group: u16,
    writer: SnapshotWriter,
}

/// The log of one node, and the work under way on it.
#[derive(Debug)]
pub(crate) struct Journal {
    log: Log,
    work: Vec<Work>,
    checkpoint: Option<Checkpoint>,
    /// The newest chunk. Its buffer is reused for the next one.
    chunk: Vec<u8>,
    /// A checkpoint is written, and does not count yet: another one now would gain nothing.
    is_settling: bool,
    /// A checkpoint is due when a start would have to read more bytes than this.
    checkpoint_bytes: u64,
    /// The most bytes that should wait to be written.
    behind_bytes: u64,
    /// Since when the disk is full, which was logged then.
    full_since_us: Option<u64>,
    retry_at_us: u64,
    line_after_us: u64,
    /// Whether there was no room for a checkpoint; and when the next one may be tried on a full disk.
    is_checkpoint_refused: bool,
    checkpoint_after_us: u64,
    /// When the last checkpoint ended, or a whole copy of keys was sent, or the node started, in milliseconds since the Unix
    /// epoch.
    saved_ms: u64,
    /// Since when nothing was written; `None` once the log has noted that.
    quiet_since_us: Option<u64>,
    /// Something was appended that waits for a write, and not for a sync.
    wants_write: bool,
    wants_sync: bool,
    /// Up to where the log was written at the end of the previous turn.
    written: Position,
    stopped: Option<String>,
}

impl Journal {
    pub(crate) fn new(
        log: Log,
        StorageSettings { checkpoint_bytes, behind_bytes, .. }: StorageSettings,
        saved_ms: u64,
    ) -> Journal {
        Journal {
            written: log.written(),
            log,
            work: Vec::new(),
            checkpoint: None,
            chunk: Vec::new(),
            is_settling: false,
            checkpoint_bytes,
            behind_bytes,
            full_since_us: None,
            retry_at_us: 0,
            line_after_us: 0,
            is_checkpoint_refused: false,
            saved_ms,
            checkpoint_after_us: 0,
            quiet_since_us: None,
            wants_write: false,
            wants_sync: false,
            stopped: None,
        }
    }

    /// What `LASTSAVE` returns, in milliseconds since the Unix epoch.
    pub(crate) fn saved_ms(&self) -> u64 {
        self.saved_ms
    }

    /// Notes that a checkpoint has ended, or that a whole copy of keys was sent.
    pub(crate) fn note_saved(&mut self, unix_ms: u64) {
        self.saved_ms = unix_ms;
    }

    /// Why the node must stop, if it must.
    pub(crate) fn stopped(&self) -> Option<&str> {
        self.stopped.as_deref()
    }

    /// Whether nothing can be written.
    pub(crate) fn is_full(&self) -> bool {
        self.full_since_us.is_some()
    }

    /// Whether the disk has no room beyond what is ready: the rest of the current segment, and the reserve.
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        self.log.is_full()
    }

    /// Bytes that can be written without more room on the disk.
    pub(crate) fn ready_bytes(&self) -> u64 {
        self.log.ready_bytes()
    }

    /// Whether the ready bytes, less than half a segment, should be left to records that keep the groups alive.
    pub(crate) fn reserve_is_low(&self) -> bool {
        self.log.ready_bytes() < self.log.segment_bytes() / 2
    }

    /// Changes the durability that a group's keyspace promises. The group's earlier records may now wait for a sync
    /// that no record has requested.
    pub(crate) fn set_durability(&mut self, tail: &mut Tail, durability: Durability) {
        tail.durability = durability;
        self.wants_sync |= durability == Durability::Fsync && !tail.undurable.is_empty();
    }

    /// Whether more waits to be written than should wait in memory.
    pub(crate) fn is_behind(&self) -> bool {
        self.stopped.is_none() && self.unwritten_bytes() > self.behind_bytes
    }

    /// The position below which everything survives any crash, whatever durability its group has.
    pub(crate) fn durable(&self) -> Position {
        self.log.durable()
    }

    /// Bytes that were appended and are not known to be written.
    pub(crate) fn unwritten_bytes(&self) -> u64 {
        self.log.end().saturating_sub(self.log.written())
    }

    /// Adds a record of a group, in two parts, to this turn's write.
    #[inline]
    pub(crate) fn append(&mut self, group: u16, tail: &mut Tail, record: [&[u8]; 2]) {
        tail.recorded += 1;
        self.append_as(kind::RECORD, group, tail, record);
    }

    /// Records the keyspace of a new replica. Returns false if the group is not recorded.
    pub(crate) fn describe(&mut self, group: u16, tail: &mut Tail, keyspace: &Keyspace) -> bool {
        let is_recorded = tail.is_durable();
        if is_recorded {
            self.append_as(kind::KEYSPACE, group, tail, [&keyspace.encode(), &[]]);
        }
        is_recorded
    }

    fn append_as(&mut self, kind: u16, group: u16, tail: &mut Tail, parts: [&[u8]; 2]) {
        let position = self.log.append_parts(group, kind, parts);
        match tail.durability {
            Durability::Fsync => self.wants_sync = true,
            Durability::Os | Durability::None => self.wants_write = true,
        }
        match tail.undurable.back_mut() {
            // Nothing in between is written or being written: they become durable together.
            Some(last) if last.1 >= self.log.gathered_from() => *last = (tail.recorded, position),
            _ => tail.undurable.push_back((tail.recorded, position)),
        }
    }

    /// Writes what was appended if any of it waits for no more than that, and begins a sync if any of it waits for one.
    pub(crate) fn write<D: Disk>(&mut self, disk: &mut D, now: Now, lines: &mut Vec<Line>) {
        if self.log.is_full() && now.monotonic_us >= self.retry_at_us {
            self.retry_later(now);
            self.log.retry();
        }
        let before = self.log.written();
        if self.wants_write || self.is_full() {
            match self.log.write(disk) {
                Ok(()) => {
                    self.wants_write &= self.log.written() < self.log.end();
                    if self.full_since_us.take_if(|_| self.log.written() > before).is_some() {
                        lines.push(Line { level: Level::Info, text: "the log is written again".into() });
                    }
                }
                Err(StorageError::Disk(error)) => self.note_full(&error.to_string(), now, lines),
                Err(error) => self.stop(&error),
            }
        }
        self.begin_work(now, lines);
        if self.log.written() > std::mem::replace(&mut self.written, self.log.written()) {
            self.quiet_since_us = Some(now.monotonic_us);
        } else if self.log.durable() == self.log.written()
            && self.quiet_since_us.take_if(|since_us| now.ms_since(*since_us) >= QUIET_MS).is_some()
        {
            self.log.note_durable();
        }
    }

    /// Makes everything that was written durable, and has the log note it. Returns true when that is done, or
    /// impossible.
    pub(crate) fn settle(&mut self, now: Now, lines: &mut Vec<Line>) -> bool {
        if self.stopped.is_some() || self.is_full() {
            return true;
        }
        if self.log.durable() < self.log.end() {
            self.wants_sync = true;
        } else if self.log.is_noted() {
            return true;
        } else {
            self.log.note_durable();
        }
        self.begin_work(now, lines);
        false
    }

    /// Bytes of log that the next start would have to read.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.log.held_bytes()
    }

    fn note_full(&mut self, error: &str, now: Now, lines: &mut Vec<Line>) {
        if self.full_since_us.is_none() {
            let text = format!("{error}: nothing can be written until there is room again");
            lines.push(Line { level: Level::Error, text });
            self.full_since_us = Some(now.monotonic_us);
            self.retry_later(now);
        }
    }

    /// Schedules the next attempt on a disk without room.
    fn retry_later(&mut self, now: Now) {
        let ms = if self.is_full() { RETRY_MS } else { RETRY_SHORT_MS };
        self.retry_at_us = now.monotonic_us + ms * 1000;
    }

    fn warn(&mut self, text: String, now: Now, lines: &mut Vec<Line>) {
        if now.monotonic_us >= self.line_after_us {
            self.line_after_us = now.monotonic_us + LINE_MS * 1000;
            lines.push(Line { level: Level::Warning, text });
        }
    }

    fn begin_work(&mut self, now: Now, lines: &mut Vec<Line>) {
        if self.stopped.is_some() {
            return;
        }
        if self.wants_sync || self.log.wants_sync() {
            match self.log.begin_sync() {
                Ok(Some(work)) => {
                    self.wants_sync = self.log.gathered_from() < self.log.end();
                    self.work.push(work);
                }
                Ok(None) => self.wants_sync &= self.log.durable() < self.log.end(),
                Err(StorageError::Disk(error)) => self.note_full(&error.to_string(), now, lines),
                Err(error) => self.stop(&error),
            }
        }
        match self.log.begin_upkeep() {
            Ok(None) => {}
            Ok(Some(work)) => self.work.push(work),
            Err(error) => self.stop(&error),
        }
    }

    /// Whether there is work to run beside the loop.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.work.is_empty()
    }

    /// Moves work that runs beside the loop into `work`.
    pub(crate) fn take_work(&mut self, work: &mut Vec<Work>) {
        work.append(&mut self.work);
    }

    /// Takes the result of a piece of work. Returns what follows from it for data that is kept outside the log.
    pub(crate) fn work_finished(
        &mut self,
        work: Work,
        result: Result<(), storage::DiskError>,
        now: Now,
        lines: &mut Vec<Line>,
    ) -> Option<News> {
        let outcome = self.log.finished(work, result);
        if let Ok(Outcome::SnapshotTaken(..) | Outcome::SnapshotRefused(..)) = outcome {
            self.is_settling = false;
        }
        match outcome {
            Ok(Outcome::SnapshotTaken(group, _)) => return Some(News::Checkpoint(group)),
            Ok(Outcome::Forgotten(group)) => return Some(News::Forgotten(group)),
            Ok(Outcome::Durable | Outcome::SegmentReady | Outcome::Tidied) => {}
            // The current segment can still be filled; a write reports when it is full.
            Ok(Outcome::SegmentRefused(error) | Outcome::Postponed(error)) => {
                self.warn(format!("{error}: there is little room for the log"), now, lines);
                self.retry_later(now);
            }
            Ok(Outcome::SnapshotRefused(group, error)) => {
                self.is_checkpoint_refused = true;
                self.warn(format!("{error}: the log cannot be shortened"), now, lines);
                return Some(News::NoCheckpoint(group));
            }
            Ok(Outcome::SyncRefused(error)) => {
                self.wants_sync = true;
                self.note_full(&error.to_string(), now, lines);
            }
            Err(error) => self.stop(&error),
        }
        None
    }

    /// Returns the record up to which a group's records have become as durable as its keyspace promises, if the group
    /// does not know that yet.
    pub(crate) fn news(&self, tail: &mut Tail) -> Option<u64> {
        if tail.undurable.is_empty() {
            return None;
        }
        tail.advance(match tail.durability {
            Durability::Fsync => self.log.durable(),
            Durability::Os | Durability::None => self.log.written(),
        })
    }

    /// Whether bytes wait to be written that can be: records of `Os` groups after the turn's write.
    pub(crate) fn has_unwritten(&self) -> bool {
        self.wants_write && self.stopped.is_none() && !self.is_full() && !self.log.is_writing()
    }

    // Checkpoints.

    /// The group whose checkpoint would release the most log, if one is due and none is under way. The state to be
    /// checkpointed has `state_bytes`: writing it more often than as much log would cost more than it saves.
    ///
    /// On a full disk, a checkpoint is due as soon as it makes room: it replaces some of the log, and the previous
    /// checkpoint.
    #[inline]
    pub(crate) fn checkpoint_due(&mut self, now: Now, state_bytes: impl FnOnce() -> u64) -> Option<u16> {
        if std::mem::take(&mut self.is_checkpoint_refused) {
            self.checkpoint_after_us = now.monotonic_us + CHECKPOINT_RETRY_MS * 1000;
        }
        let held_bytes = self.log.held_bytes();
        let (is_worth_while, most) = match self.is_short() {
            true => {
                let is_time = now.monotonic_us >= self.checkpoint_after_us;
                (is_time && self.log.can_be_shortened(), held_bytes + self.log.snapshot_bytes())
            }
            false => (held_bytes > self.checkpoint_bytes, held_bytes),
        };
        let is_due = is_worth_while
            && self.checkpoint.is_none()
            && !self.is_settling
            && self.stopped.is_none()
            && !self.is_full()
            && most > state_bytes();
        is_due.then(|| self.log.oldest()).flatten().map(|(group, _)| group)
    }

    /// The group whose checkpoint is under way.
    pub(crate) fn checkpointing(&self) -> Option<u16> {
        self.checkpoint.as_ref().map(|checkpoint| checkpoint.group)
    }

    /// Whether the part of the checkpoint under way that was made is not on the disk yet: the next chunk waits for
    /// that.
    pub(crate) fn is_pacing(&self) -> bool {
        self.log.is_pacing_snapshot()
    }

    /// Begins a checkpoint that a replica has begun, right after a flush. The first chunk is `description`, unless
    /// that is empty. Returns false if it cannot be written.
    pub(crate) fn begin_checkpoint(&mut self, group: u16, description: &[u8]) -> bool {
        let begun = self.log.begin_snapshot(group, self.log.end());
        let begun = begun.and_then(|mut writer| {
            if description.is_empty() {
                return Ok(writer);
            }
            match self.log.append_snapshot(&mut writer, description) {
                Ok(()) => Ok(writer),
                Err(error) => {
                    self.log.abandon_snapshot(writer);
                    Err(error)
                }
            }
        });
        match begun {
            Ok(writer) => {
                self.checkpoint = Some(Checkpoint { group, writer });
                true
            }
            Err(StorageError::Disk(_)) => false,
            Err(error) => {
                self.stop(&error);
                false
            }
        }
    }

    /// Takes the next chunk of the checkpoint under way: a record of about as many bytes as `next` is given. Returns
    /// false when the replica should give up.
    pub(crate) fn advance_checkpoint(&mut self, next: impl FnOnce(usize, &mut Vec<u8>) -> Progress) -> bool {
        let Some(Checkpoint { group, mut writer }) = self.checkpoint.take() else { return false };
        self.chunk.clear();
        let progress = next(CHUNK_BYTES, &mut self.chunk);
        if progress == Progress::Abandoned {
            self.log.abandon_snapshot(writer);
            return false;
        }
        let written = self.log.append_snapshot(&mut writer, &self.chunk);
        let result = match (written, progress) {
            (Ok(()), Progress::More) => {
                self.checkpoint = Some(Checkpoint { group, writer });
                return true;
            }
            (Ok(()), _) => self.log.commit_snapshot(writer),
            (Err(error), _) => {
                self.log.abandon_snapshot(writer);
                Err(error)
            }
        };
        match result {
            Ok(()) => {
                self.is_settling = true;
                self.chunk = Vec::new();
            }
            // There is no room now: the checkpoint will be due again.
            Err(StorageError::Disk(_)) => {
                self.is_checkpoint_refused = true;
                return false;
            }
            Err(error) => self.stop(&error),
        }
        true
    }

    /// Forgets a group that was removed, with all its records.
    pub(crate) fn forget(&mut self, group: u16) {
        if self.checkpointing() == Some(group)
            && let Some(Checkpoint { writer, .. }) = self.checkpoint.take()
        {
            self.log.abandon_snapshot(writer);
        }
        // If the checkpoint that is settling is of this group, nothing will report that it counts.
        self.is_settling = false;
        self.log.forget(group);
    }

    fn stop(&mut self, error: &StorageError) {
        self.stopped.get_or_insert_with(|| error.to_string());
    }
}
