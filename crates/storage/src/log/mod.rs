//! Append, write, sync: the path of every durable command.
//!
//! In one turn a worker calls [`Log::append`] for each record, and [`Log::begin_sync`] if something waits for durability:
//! everything gathered is written and synced beside the loop. When [`Log::finished`] reports that the sync is done,
//! [`Log::durable`] has moved. While it runs, turns go on and gather; the next sync covers them all. If records only have to
//! outlive the process, the turn calls [`Log::write`] first.
//!
//! Every write covers whole blocks: it begins with what its first block already holds and ends with zeros, which is what
//! follows the log's end anyway.

pub mod snapshot;
pub mod upkeep;

use std::collections::{BTreeMap, VecDeque};

use crate::disk::{Disk, DiskError};
use crate::error::StorageError;
use crate::floors::Extents;
use crate::format::batch::{Gathered, SPARE_BYTES_MAX};
use crate::format::manifest::Manifest;
use crate::format::sector::{BLOCK_PAYLOAD_BYTES, Sectors, payload_of, place};
use crate::format::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::format::{Identity, segment_file};
use crate::log::upkeep::{Outcome, Upkeep};
use crate::planted::{Fault, Planted};
use crate::reserve::{Kept, Reserve};
use crate::work::{Lane, Step, Work};
use crate::{Group, Position};

/// Settings of a log.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The log's identity. `identity.log` is used when the folder is new; otherwise the folder's own applies.
    pub identity: Identity,
    /// Length of a segment's file in bytes, a multiple of the sector size.
    pub segment_bytes: u64,
    /// Whether room is reserved for the operations that free room when the disk is full: twice as much as a segment takes,
    /// and a little.
    pub has_reserve: bool,
    /// A fault planted by tests.
    pub planted: Planted,
}

impl Options {
    /// Returns the default settings: segments of 16 MiB, and no reserve.
    pub fn new(identity: Identity) -> Options {
        Options { identity, segment_bytes: 16 << 20, has_reserve: false, planted: Planted::default() }
    }
}

/// A segment that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) number: u64,
    pub(crate) first: Position,
}

#[derive(Clone, Copy, Debug)]
struct Syncing {
    /// The position up to which it makes the log durable.
    up_to: Position,
    /// Whether it writes first.
    writes: bool,
}

/// Bytes handed out to be written.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    file: String,
    offset: u64,
    bytes: Vec<u8>,
}

/// The write-ahead log of one worker, open for writing. Made by [`open`](crate::open).
#[derive(Debug)]
pub struct Log {
    pub(crate) options: Options,
    /// The manifest as it is on the disk.
    pub(crate) manifest: Manifest,
    /// Segments in use, oldest first; never empty.
    pub(crate) segments: VecDeque<Segment>,
    /// Segments that are ready to be used next.
    pub(crate) spares: VecDeque<u64>,
    /// The error from the last time the disk had no room, until a segment is ready again.
    pub(crate) full: Option<DiskError>,
    /// A full disk may be tried again: [`Log::retry`].
    pub(crate) may_retry: bool,
    /// Nothing can be written: the last segment is used up.
    pub(crate) is_used_up: bool,
    pub(crate) reserve: Reserve,
    pub(crate) gathered: Gathered,
    /// Memory for the next batch.
    spare_bytes: Vec<u8>,
    /// A batch for which there was no room: it is written again, unchanged, before anything else.
    pub(crate) refused: Option<Batch>,
    pub(crate) written: Position,
    pub(crate) durable: Position,
    /// The durable position that is recorded on the disk: see [`Log::note_durable`].
    pub(crate) noted: Position,
    pub(crate) extents: Extents,
    pub(crate) next_snapshot: u64,
    syncing: Option<Syncing>,
    pub(crate) upkeep: Upkeep,
    /// The number of readers of each snapshot that must not be removed yet.
    pub(crate) pinned: BTreeMap<u64, u32>,
    pub(crate) stopped: Option<DiskError>,
}

impl Log {
    pub(crate) fn new(
        options: Options,
        manifest: Manifest,
        segments: VecDeque<Segment>,
        spares: VecDeque<u64>,
        extents: Extents,
        reserve: Reserve,
        (end, lead): (Position, Vec<u8>),
    ) -> Log {
        let log = Log {
            gathered: Gathered::new(manifest.identity.log, end, lead),
            spare_bytes: Vec::new(),
            noted: manifest.durable,
            next_snapshot: manifest.next_snapshot,
            options,
            manifest,
            segments,
            spares,
            full: None,
            refused: None,
            may_retry: false,
            is_used_up: false,
            reserve,
            written: end,
            durable: end,
            extents,
            syncing: None,
            upkeep: Upkeep::default(),
            pinned: BTreeMap::new(),
            stopped: None,
        };
        log.check_invariants();
        log
    }

    /// The identity of the log.
    pub fn identity(&self) -> Identity {
        self.manifest.identity
    }

    /// Appends an entry to this turn's batch and returns its position. The entry is durable when [`Log::durable`] is above
    /// that. Nothing is written before [`Log::write`].
    ///
    /// # Panics
    /// When the entry is longer than [`ENTRY_BYTES_MAX`](crate::format::batch::ENTRY_BYTES_MAX), 1 GiB.
    pub fn append(&mut self, group: Group, kind: u16, bytes: &[u8]) -> Position {
        self.append_parts(group, kind, [bytes, &[]])
    }

    /// Like [`Log::append`], for an entry in two consecutive parts.
    ///
    /// # Panics
    /// As [`Log::append`].
    pub fn append_parts(&mut self, group: Group, kind: u16, parts: [&[u8]; 2]) -> Position {
        if self.stopped.is_some() {
            // Nothing will be written any more: gather nothing, so that memory does not grow until the node stops.
            return Position::MAX;
        }
        let position = self.gathered.append(self.durable, group, kind, parts);
        assert!(
            self.durable <= position || self.counts_too_much(),
            "an entry is durable before it is written"
        );
        self.extents.entry(group, position);
        position
    }

    /// Writes what was appended and not yet written, with one write. Call it at most once per turn.
    ///
    /// The bytes are then with the operating system and outlive this process; they outlive a crash of the machine once they
    /// are durable. Does nothing while a sync that writes is running ([`Log::is_writing`]): two writes must not meet in one
    /// block.
    ///
    /// # Errors
    /// [`StorageError::Disk`] when the disk is full: nothing is lost, the entries wait, and a later call writes them.
    /// [`StorageError::Stopped`] after any other failure.
    pub fn write<D: Disk>(&mut self, disk: &mut D) -> Result<(), StorageError> {
        self.running()?;
        if self.written == self.end() || self.is_writing() {
            return Ok(());
        }
        let batch = self.take_batch()?;
        match disk.write(&batch.file, batch.offset, &batch.bytes) {
            Err(error) if error.is_only_full() => {
                self.refuse_batch(batch, error.clone());
                return Err(StorageError::Disk(error));
            }
            result => self.stop_on(result)?,
        }
        self.batch_written();
        self.give_back(batch.bytes);
        Ok(())
    }

    /// Returns what is to be written next: a batch that was refused for lack of room, or else everything gathered.
    fn take_batch(&mut self) -> Result<Batch, StorageError> {
        match &self.full {
            Some(error) if self.refused.is_some() && !self.may_retry => {
                Err(StorageError::Disk(error.clone()))
            }
            _ => self.refused.take().map_or_else(|| self.take_gathered(), Ok),
        }
    }

    /// Keeps a batch for which there was no room. Whatever part of it is in the file counts as no more than a write that a
    /// crash cut short: nothing is known to be there until the same bytes have been written to the same place successfully.
    fn refuse_batch(&mut self, batch: Batch, error: DiskError) {
        assert!(self.refused.is_none(), "two batches wait for room, and only one is written again");
        self.refused = Some(batch);
        (self.full, self.may_retry) = (Some(error), false);
    }

    /// Takes back the memory of a batch that is written.
    fn give_back(&mut self, bytes: Vec<u8>) {
        if bytes.capacity() <= SPARE_BYTES_MAX {
            self.spare_bytes = bytes;
        }
    }

    /// Notes that everything handed out is written.
    fn batch_written(&mut self) {
        assert!(self.refused.is_none(), "a batch is written before the one that waits for room");
        self.written = self.gathered.start();
        self.is_used_up = false;
        self.noted = self.noted.max(self.durable);
        self.positions_are_in_order();
    }

    /// Returns everything gathered, ready to be written, with its file and offset.
    fn take_gathered(&mut self) -> Result<Batch, StorageError> {
        let length = self.gathered.whole_bytes();
        let offset = self.offset();
        let segment_bytes = payload_of(self.options.segment_bytes);
        if offset > SEGMENT_HEADER_BYTES && offset + length > segment_bytes {
            self.next_segment()?;
        }
        let (number, offset) = (self.segment().number, self.offset());
        let end = offset + length;
        // Up to the block's end; after the segment's own end there is nothing yet that must not be read.
        let blocks_end = end.next_multiple_of(BLOCK_PAYLOAD_BYTES as u64).min(segment_bytes.max(end));
        let start = offset - self.gathered.lead() as u64;
        assert_eq!(start % BLOCK_PAYLOAD_BYTES as u64, 0, "a write begins within a block");
        let lead = (end % BLOCK_PAYLOAD_BYTES as u64) as usize;
        let gathered = self.gathered.take(self.durable, (blocks_end - end) as usize, lead);
        let mut bytes = std::mem::take(&mut self.spare_bytes);
        bytes.clear();
        Sectors { salt: self.manifest.identity.log, number }.write(&gathered, &mut bytes);
        self.gathered.give_back(gathered);
        Ok(Batch { file: segment_file(number), offset: place(start), bytes })
    }

    /// Continues in a new segment, if one is ready. Its header is written with the first batch.
    ///
    /// While the next segment is still being made, the present one grows beyond its length instead: that costs some speed,
    /// and nothing waits. If it could not be made, returns that error until it is made.
    fn next_segment(&mut self) -> Result<(), StorageError> {
        let Some(number) = self.spares.pop_front() else {
            self.is_used_up = self.full.is_some();
            return self.full.clone().map_or(Ok(()), |error| Err(StorageError::Disk(error)));
        };
        let first = self.gathered.start();
        let before = self.segment();
        assert!(number == before.number + 1 && first > before.first, "segment {number} follows {before:?}");
        let header = SegmentHeader { number, first, durable: self.durable };
        self.gathered.begin_file(header.encode(&self.manifest.identity));
        self.segments.push_back(Segment { number, first });
        Ok(())
    }

    /// Tries again what was refused for lack of room. Call it periodically, for example every 100 ms, after the log has
    /// reported a full disk; not in every turn, since each try costs some writes.
    pub fn retry(&mut self) {
        self.may_retry = true;
        self.upkeep.is_postponed = false;
        self.note_room();
    }

    /// Whether something was refused for lack of room, and room is not yet known to have returned. With a reserve, writing
    /// goes on: into the rest of the present segment, and the reserve.
    pub fn is_full(&self) -> bool {
        self.full.is_some()
    }

    /// Notes that there is room again once everything kept ready is ready, whatever else was refused for lack of room.
    pub(crate) fn note_room(&mut self) {
        let is_ready = !self.spares.is_empty() && self.refused.is_none();
        let is_whole = !self.options.has_reserve || self.reserve.missing().is_none();
        self.full.take_if(|_| is_ready && is_whole);
    }

    /// The number of bytes of log that a segment holds.
    pub fn segment_bytes(&self) -> u64 {
        payload_of(self.options.segment_bytes)
    }

    /// The number of bytes that can be written into room that is already allocated.
    pub fn ready_bytes(&self) -> u64 {
        let segment_bytes = self.segment_bytes();
        let files = self.spares.len() as u64 + u64::from(self.reserve.has(Kept::Segment));
        segment_bytes.saturating_sub(self.offset()) + files * (segment_bytes - SEGMENT_HEADER_BYTES)
    }

    /// Whether the log takes more than one segment, so that a snapshot of the group that needs the oldest segment frees
    /// something.
    pub fn can_be_shortened(&self) -> bool {
        self.segments.len() > 1
    }

    /// The total length, in bytes, of the snapshots that a start would read.
    pub fn snapshot_bytes(&self) -> u64 {
        let snapshots = self.manifest.floors.values().filter_map(|floor| floor.snapshot);
        snapshots.map(|snapshot| snapshot.bytes).sum()
    }

    /// Whether a sync is running that first writes what was gathered before it.
    pub fn is_writing(&self) -> bool {
        self.syncing.is_some_and(|syncing| syncing.writes)
    }

    /// The end of what was handed out to be written. Everything from here on is written by one write.
    pub fn gathered_from(&self) -> Position {
        self.gathered.start()
    }

    /// The position below which everything is written.
    pub fn written(&self) -> Position {
        self.written
    }

    /// The end of the log: every entry appended so far is below it, every later one is not. A snapshot of a group's state as
    /// it is now has this position.
    pub fn end(&self) -> Position {
        self.gathered.end()
    }

    /// The position below which everything survives every crash.
    pub fn durable(&self) -> Position {
        self.durable
    }

    /// The group that needs the oldest part of the log, and from which position: a snapshot of that group frees segments.
    pub fn oldest(&self) -> Option<(Group, Position)> {
        self.extents.oldest().map(|(position, group)| (group, position))
    }

    /// The numbers of the segments that belong to the log, including those made in advance.
    pub fn segment_numbers(&self) -> std::ops::Range<u64> {
        self.manifest.first_segment..self.manifest.next_segment
    }

    /// The number of bytes of log that a start would have to read.
    pub fn held_bytes(&self) -> u64 {
        self.written - self.manifest.start
    }

    /// Begins to make what was appended durable, after writing it if necessary. Returns the work to run beside the loop, or
    /// None when everything is durable or an earlier sync is running.
    ///
    /// # Errors
    /// As with [`write`](Self::write), except that a full disk is no error while something already written can be made
    /// durable.
    pub fn begin_sync(&mut self) -> Result<Option<Work>, StorageError> {
        self.running()?;
        if self.syncing.is_some() || self.durable == self.end() {
            return Ok(None);
        }
        let mut steps = Vec::new();
        if self.written < self.end() {
            match self.take_batch() {
                Ok(Batch { file, offset, bytes }) => steps.push(Step::WriteThrough { file, offset, bytes }),
                // What is already written is made durable all the same: snapshots, which free room, wait for it.
                Err(StorageError::Disk(_)) if self.durable < self.written => {}
                Err(error) => return Err(error),
            }
        }
        let writes = !steps.is_empty();
        let up_to = if writes { self.gathered.start() } else { self.written };
        assert!(self.durable <= up_to || self.counts_too_much(), "a sync makes less durable than was");
        self.syncing = Some(Syncing { up_to, writes });
        // All segments that hold something not known to be durable: nearly always one.
        let ends = self.segments.iter().skip(1).map(|next| next.first).chain([up_to]);
        let undurable = self.segments.iter().zip(ends).filter(|(_, end)| *end > self.durable);
        steps.extend(undurable.map(|(segment, _)| Step::Sync { file: segment_file(segment.number) }));
        Ok(Some(Work { lane: Lane::Sync, steps }))
    }

    /// Handles the end of a sync.
    pub(crate) fn sync_finished(
        &mut self,
        work: Work,
        result: Result<(), DiskError>,
    ) -> Result<Outcome, StorageError> {
        let Some(Syncing { up_to, writes }) = self.syncing.take() else {
            panic!("a sync ended that was not begun")
        };
        let batch = work.steps.into_iter().find_map(|step| match step {
            Step::WriteThrough { file, offset, bytes } => Some(Batch { file, offset, bytes }),
            _ => None,
        });
        match result {
            // Nothing was synced: writing comes first.
            Err(error) if error.is_only_full() => {
                if let Some(batch) = batch {
                    self.refuse_batch(batch, error.clone());
                }
                return Ok(Outcome::SyncRefused(error));
            }
            result => self.stop_on(result)?,
        }
        if writes {
            self.batch_written();
        }
        if let Some(batch) = batch {
            self.give_back(batch.bytes);
        }
        let later = self.options.planted.has(Fault::SyncCoversLaterWrites);
        self.durable = self.durable.max(if later { self.end() } else { up_to });
        self.positions_are_in_order();
        Ok(Outcome::Durable)
    }

    /// Returns the error that stopped the log, if one did.
    ///
    /// # Errors
    /// [`StorageError::Stopped`] after an earlier failure.
    pub fn running(&self) -> Result<(), StorageError> {
        match &self.stopped {
            None => Ok(()),
            Some(error) => Err(StorageError::Stopped(error.clone())),
        }
    }

    /// Stops the log for good if `result` is an error.
    pub(crate) fn stop_on<T>(&mut self, result: Result<T, DiskError>) -> Result<T, StorageError> {
        result.map_err(|error| {
            self.stopped = Some(error.clone());
            StorageError::Stopped(error)
        })
    }

    /// A planted fault that makes the durable position wrong.
    fn counts_too_much(&self) -> bool {
        self.options.planted.has(Fault::SyncCoversLaterWrites)
    }

    /// What is noted is durable, what is durable is written, and what is written was handed out. O(1).
    fn positions_are_in_order(&self) {
        let handed_out = self.gathered.start();
        let Log { noted, durable, written, .. } = *self;
        assert!(noted <= durable, "{noted} is noted as durable, and only {durable} is");
        assert!(durable <= written || self.counts_too_much(), "{durable} is durable, and {written} written");
        assert!(written <= handed_out, "{written} is written, and {handed_out} was handed out");
        assert!(handed_out <= self.end(), "more was handed out than was appended");
    }

    /// Checks what the log's promise rests on. O(segments + groups): for tests, after each operation.
    ///
    /// # Panics
    /// When an invariant is broken.
    pub fn check_invariants(&self) {
        self.positions_are_in_order();
        self.what_is_handed_out_is_written_or_waits();
        self.segments_follow_each_other();
        self.nothing_needed_is_missing();
    }

    /// All that was handed out is written, or is being written, or waits for room: nothing was left out.
    fn what_is_handed_out_is_written_or_waits(&self) {
        let waits = self.is_writing() || self.refused.is_some();
        let is_written = self.written == self.gathered.start();
        assert!(is_written || waits || self.stopped.is_some(), "a batch is gone that was not written");
        assert!(!(self.is_writing() && self.refused.is_some()), "a batch is written past one that waits");
        if let Some(Syncing { up_to, writes }) = self.syncing {
            let limit = if writes { self.gathered.start() } else { self.written };
            assert!(up_to <= limit, "a sync covers {up_to}, and {limit} is there");
        }
    }

    /// The segments of the manifest are those in use and those ready to be used, numbered without a gap.
    fn segments_follow_each_other(&self) {
        let used = self.segments.iter().map(|segment| segment.number);
        assert!(used.chain(self.spares.iter().copied()).eq(self.segment_numbers()), "a segment is missing");
        let firsts = || self.segments.iter().map(|segment| segment.first);
        assert_eq!(firsts().next(), Some(self.manifest.start), "the log starts with its first segment");
        assert!(firsts().is_sorted(), "a segment begins before the one before it");
        assert!(self.segment().first <= self.gathered.start(), "the last segment begins after the log's end");
    }

    /// Every entry that a group needs lies in a segment, and below the log's end; so does every floor.
    fn nothing_needed_is_missing(&self) {
        self.extents.check_invariants();
        if let Some((position, group)) = self.extents.oldest() {
            assert!(self.manifest.start <= position, "group {group} needs {position}, which was removed");
        }
        assert!(self.extents.last() < Some(self.end()), "an entry lies beyond the log's end");
        let floors = self.upkeep.floors.iter().map(|new| new.floor.position);
        assert!(floors.max() <= Some(self.end()), "a floor is above what was appended");
        assert!(self.pinned.values().all(|readers| *readers > 0), "a snapshot is kept without a reader");
        assert!(self.manifest.next_snapshot <= self.next_snapshot, "a snapshot's number is given again");
    }

    pub(crate) fn segment(&self) -> Segment {
        *self.segments.back().expect("a log has a segment")
    }

    /// The offset in the present segment at which the next batch begins.
    fn offset(&self) -> u64 {
        SEGMENT_HEADER_BYTES + (self.gathered.start() - self.segment().first)
    }
}
