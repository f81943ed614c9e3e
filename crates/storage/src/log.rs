//! Append, write, sync: the path of every durable command.
//!
//! One turn of a worker: [`Log::append`] for each record, and [`Log::begin_sync`] if somebody waits for durability:
//! whatever is gathered is written and synced beside the loop. [`Log::finished`] says that it is done, and
//! [`Log::durable`] has moved. While it runs, turns go on and gather; the next sync covers them all. Where somebody
//! waits for less, that it outlives the process, the turn calls [`Log::write`] first.
//!
//! Every write is of whole blocks: it begins with what its first block holds already and ends with zeros, which is
//! what stands behind the log's end anyway.

use std::collections::{BTreeMap, VecDeque};

use crate::disk::{Disk, DiskError};
use crate::error::StorageError;
use crate::floors::Extents;
use crate::format::batch::{Gathered, SPARE_BYTES_MAX};
use crate::format::manifest::Manifest;
use crate::format::sector::{BLOCK_PAYLOAD_BYTES, Sectors, payload_of, place};
use crate::format::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::format::{Identity, segment_file};
use crate::planted::{Fault, Planted};
use crate::reserve::{Kept, Reserve};
use crate::upkeep::{Outcome, Upkeep};
use crate::work::{Lane, Step, Work};
use crate::{Group, Position};

/// How a log is to be.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whose it is. `identity.log` is used when the folder is new; otherwise the folder's own holds.
    pub identity: Identity,
    /// Length of a segment's file. A multiple of the sector's.
    pub segment_bytes: u64,
    /// Whether room is kept for what gives room back when the disk is full: twice as much as a segment takes, and a little.
    pub has_reserve: bool,
    /// A fault to test the tests with.
    pub planted: Planted,
}

impl Options {
    /// Segments of 64 MiB, and no reserve.
    pub fn new(identity: Identity) -> Options {
        Options { identity, segment_bytes: 64 << 20, has_reserve: false, planted: Planted::default() }
    }
}

/// A segment that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) number: u64,
    pub(crate) first: Position,
}

/// A sync that is under way.
#[derive(Clone, Copy, Debug)]
struct Syncing {
    /// Up to where it counts.
    up_to: Position,
    /// It writes first.
    writes: bool,
}

/// What was handed out to be written.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    file: String,
    offset: u64,
    bytes: Vec<u8>,
}

/// The write-ahead log of one worker, open for writing. [`open`](crate::open) makes it.
#[derive(Debug)]
pub struct Log {
    pub(crate) options: Options,
    /// As it is on the disk.
    pub(crate) manifest: Manifest,
    /// Those in use, oldest first; never empty.
    pub(crate) segments: VecDeque<Segment>,
    /// Those that are ready to be used next.
    pub(crate) spares: VecDeque<u64>,
    /// The disk was full when it was last asked for room, and no segment is ready since.
    pub(crate) full: Option<DiskError>,
    /// A full disk may be asked again: [`Log::retry`].
    pub(crate) may_retry: bool,
    /// Nothing can be written: the last segment is used up.
    pub(crate) is_used_up: bool,
    pub(crate) reserve: Reserve,
    pub(crate) gathered: Gathered,
    /// Memory for what is written next.
    spare_bytes: Vec<u8>,
    /// There was no room for it: it is written once more, as it is, before anything else.
    pub(crate) refused: Option<Batch>,
    pub(crate) written: Position,
    pub(crate) durable: Position,
    /// What the disk says about how far the log is durable: see [`Log::note_durable`].
    pub(crate) noted: Position,
    pub(crate) extents: Extents,
    pub(crate) next_snapshot: u64,
    /// The sync that is under way.
    syncing: Option<Syncing>,
    pub(crate) upkeep: Upkeep,
    /// How many readers each snapshot has that must not be removed yet.
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
        Log {
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
        }
    }

    /// Whose log it is.
    pub fn identity(&self) -> Identity {
        self.manifest.identity
    }

    /// Takes an entry into this turn's batch and says where it will stand. It is safe when [`Log::durable`]
    /// is above that. Nothing is written before [`Log::write`].
    ///
    /// # Panics
    /// When it is longer than [`ENTRY_BYTES_MAX`](crate::format::batch::ENTRY_BYTES_MAX), 1 GiB.
    pub fn append(&mut self, group: Group, kind: u16, bytes: &[u8]) -> Position {
        self.append_parts(group, kind, [bytes, &[]])
    }

    /// The same with an entry in two parts, one behind the other.
    ///
    /// # Panics
    /// As [`Log::append`].
    pub fn append_parts(&mut self, group: Group, kind: u16, parts: [&[u8]; 2]) -> Position {
        if self.stopped.is_some() {
            // Nothing will be written any more: gather nothing, so that memory does not grow until the node
            // stops.
            return Position::MAX;
        }
        let position = self.gathered.append(self.durable, group, kind, parts);
        self.extents.entry(group, position);
        position
    }

    /// Writes what was appended and not yet written, by one write. To be called at most once per turn.
    ///
    /// It is in the operating system's hands then, and outlives this process; a crash of the machine it
    /// outlives when it is durable. While a sync runs that writes ([`Log::is_writing`]) nothing happens: two writes
    /// must not meet in one block.
    ///
    /// # Errors
    /// [`StorageError::Disk`] when the disk is full: nothing is lost, the entries wait, and a later call writes them.
    /// [`StorageError::Stopped`] after anything else.
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

    /// What is to be written next: what there was no room for, or else everything that is gathered.
    fn take_batch(&mut self) -> Result<Batch, StorageError> {
        match &self.full {
            Some(error) if self.refused.is_some() && !self.may_retry => {
                Err(StorageError::Disk(error.clone()))
            }
            _ => self.refused.take().map_or_else(|| self.take_gathered(), Ok),
        }
    }

    /// There was no room for all of a batch. What of it is in the file is no more than a write that a crash cuts short:
    /// nothing is known to be there before the same bytes were written to the same place with success.
    fn refuse_batch(&mut self, batch: Batch, error: DiskError) {
        self.refused = Some(batch);
        (self.full, self.may_retry) = (Some(error), false);
    }

    /// What was written is: its memory is used again.
    fn give_back(&mut self, bytes: Vec<u8>) {
        if bytes.capacity() <= SPARE_BYTES_MAX {
            self.spare_bytes = bytes;
        }
    }

    /// Everything that was handed out is written.
    fn batch_written(&mut self) {
        self.written = self.gathered.start();
        self.is_used_up = false;
        self.noted = self.noted.max(self.durable);
    }

    /// Everything that is gathered, as it is to be written: to which file, and where.
    fn take_gathered(&mut self) -> Result<Batch, StorageError> {
        let length = self.gathered.whole_bytes();
        let offset = self.offset();
        let segment_bytes = payload_of(self.options.segment_bytes);
        if offset > SEGMENT_HEADER_BYTES && offset + length > segment_bytes {
            self.next_segment()?;
        }
        let (number, offset) = (self.segment().number, self.offset());
        let end = offset + length;
        // Up to the block's end; behind the segment's there is nothing yet that must not be read.
        let blocks_end = end.next_multiple_of(BLOCK_PAYLOAD_BYTES as u64).min(segment_bytes.max(end));
        let start = offset - self.gathered.lead() as u64;
        let lead = (end % BLOCK_PAYLOAD_BYTES as u64) as usize;
        let gathered = self.gathered.take(self.durable, (blocks_end - end) as usize, lead);
        let mut bytes = std::mem::take(&mut self.spare_bytes);
        bytes.clear();
        Sectors { salt: self.manifest.identity.log, number }.write(&gathered, &mut bytes);
        self.gathered.give_back(gathered);
        Ok(Batch { file: segment_file(number), offset: place(start), bytes })
    }

    /// Goes on in a new segment, if one is ready. Its header is written with the first batch.
    ///
    /// When it is still being made, the present one grows beyond its length instead: that costs some
    /// speed, and nobody waits. When it could not be made, that is told, until it is made.
    fn next_segment(&mut self) -> Result<(), StorageError> {
        let Some(number) = self.spares.pop_front() else {
            self.is_used_up = self.full.is_some();
            return self.full.clone().map_or(Ok(()), |error| Err(StorageError::Disk(error)));
        };
        let first = self.gathered.start();
        let header = SegmentHeader { number, first, durable: self.durable };
        self.gathered.begin_file(header.encode(&self.manifest.identity));
        self.segments.push_back(Segment { number, first });
        Ok(())
    }

    /// There may be room again: what was refused for lack of it is tried once more. To be called now and
    /// then, every 100 ms for example, after a full disk was told; not in every turn, since each try costs
    /// some writes.
    pub fn retry(&mut self) {
        self.may_retry = true;
        self.upkeep.is_postponed = false;
        self.note_room();
    }

    /// True when there was no room for something, and is not known to be again. With a reserve, what is written goes on: into
    /// the rest of the present segment, and the reserve.
    pub fn is_full(&self) -> bool {
        self.full.is_some()
    }

    /// There is room again when all is ready that is kept ready, whatever else there was no room for.
    pub(crate) fn note_room(&mut self) {
        let is_ready = !self.spares.is_empty() && self.refused.is_none();
        let is_whole = !self.options.has_reserve || self.reserve.missing().is_none();
        self.full.take_if(|_| is_ready && is_whole);
    }

    /// How many bytes of log a segment takes.
    pub fn segment_bytes(&self) -> u64 {
        payload_of(self.options.segment_bytes)
    }

    /// How many bytes can be written for which there is room already.
    pub fn ready_bytes(&self) -> u64 {
        let segment_bytes = self.segment_bytes();
        let files = self.spares.len() as u64 + u64::from(self.reserve.has(Kept::Segment));
        segment_bytes.saturating_sub(self.offset()) + files * (segment_bytes - SEGMENT_HEADER_BYTES)
    }

    /// True when the log takes more than one segment: a snapshot of what needs the oldest lets go of something.
    pub fn can_be_shortened(&self) -> bool {
        self.segments.len() > 1
    }

    /// Bytes of all snapshots that a start would read.
    pub fn snapshot_bytes(&self) -> u64 {
        let snapshots = self.manifest.floors.values().filter_map(|floor| floor.snapshot);
        snapshots.map(|snapshot| snapshot.bytes).sum()
    }

    /// True while a sync runs that writes what was gathered before it.
    pub fn is_writing(&self) -> bool {
        self.syncing.is_some_and(|syncing| syncing.writes)
    }

    /// Everything below was handed out to be written, everything from here on will be by one write.
    pub fn gathered_from(&self) -> Position {
        self.gathered.start()
    }

    /// Everything below was written.
    pub fn written(&self) -> Position {
        self.written
    }

    /// Every entry that was appended so far stands below, every later one not below. A snapshot of a group's
    /// state as it is now stands for this position.
    pub fn end(&self) -> Position {
        self.gathered.end()
    }

    /// Everything below is there after every crash.
    pub fn durable(&self) -> Position {
        self.durable
    }

    /// The group that needs the oldest part of the log, and from where: a snapshot of it lets segments go.
    pub fn oldest(&self) -> Option<(Group, Position)> {
        self.extents.oldest().map(|(position, group)| (group, position))
    }

    /// The numbers of the segments that belong to the log, those made in advance too.
    pub fn segment_numbers(&self) -> std::ops::Range<u64> {
        self.manifest.first_segment..self.manifest.next_segment
    }

    /// How many bytes a start would have to read.
    pub fn held_bytes(&self) -> u64 {
        self.written - self.manifest.start
    }

    /// Makes what was appended durable, and writes it if it is not written: the work to be done beside the loop. None
    /// when all is durable, or while an earlier sync runs.
    ///
    /// # Errors
    /// As with [`write`](Self::write), unless something is written that can be made durable.
    pub fn begin_sync(&mut self) -> Result<Option<Work>, StorageError> {
        self.running()?;
        if self.syncing.is_some() || self.durable == self.end() {
            return Ok(None);
        }
        let mut steps = Vec::new();
        if self.written < self.end() {
            match self.take_batch() {
                Ok(Batch { file, offset, bytes }) => steps.push(Step::WriteThrough { file, offset, bytes }),
                // What is written already is made durable all the same: snapshots, which give room, wait for it.
                Err(StorageError::Disk(_)) if self.durable < self.written => {}
                Err(error) => return Err(error),
            }
        }
        let writes = !steps.is_empty();
        let up_to = if writes { self.gathered.start() } else { self.written };
        self.syncing = Some(Syncing { up_to, writes });
        // All segments that hold something that is not known to be durable. Nearly always that is one.
        let ends = self.segments.iter().skip(1).map(|next| next.first).chain([up_to]);
        let undurable = self.segments.iter().zip(ends).filter(|(_, end)| *end > self.durable);
        steps.extend(undurable.map(|(segment, _)| Step::Sync { file: segment_file(segment.number) }));
        Ok(Some(Work { lane: Lane::Sync, steps }))
    }

    /// A sync is over.
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
        Ok(Outcome::Durable)
    }

    /// The error that stopped the log, if one did.
    ///
    /// # Errors
    /// [`StorageError::Stopped`].
    pub fn running(&self) -> Result<(), StorageError> {
        match &self.stopped {
            None => Ok(()),
            Some(error) => Err(StorageError::Stopped(error.clone())),
        }
    }

    /// Stops for good when something failed.
    pub(crate) fn stop_on<T>(&mut self, result: Result<T, DiskError>) -> Result<T, StorageError> {
        result.map_err(|error| {
            self.stopped = Some(error.clone());
            StorageError::Stopped(error)
        })
    }

    pub(crate) fn segment(&self) -> Segment {
        *self.segments.back().expect("a log has a segment")
    }

    /// Where in the present segment the next batch goes.
    fn offset(&self) -> u64 {
        SEGMENT_HEADER_BYTES + (self.gathered.start() - self.segment().first)
    }
}
