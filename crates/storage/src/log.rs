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
use crate::format::batch::Gathered;
use crate::format::manifest::Manifest;
use crate::format::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::format::{BLOCK_BYTES, Identity, segment_file};
use crate::planted::{Fault, Planted};
use crate::upkeep::Upkeep;
use crate::work::{Lane, Step, Work};
use crate::{Group, Position};

/// How a log is to be.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whose it is. `identity.log` is used when the folder is new; otherwise the folder's own holds.
    pub identity: Identity,
    /// Length of a segment. A multiple of the sector's.
    pub segment_bytes: u64,
    /// A fault to test the tests with.
    pub planted: Planted,
}

impl Options {
    /// Segments of 64 MiB.
    pub fn new(identity: Identity) -> Options {
        Options { identity, segment_bytes: 64 << 20, planted: Planted::default() }
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
    /// The disk was full when it was last asked for room, and is not asked again before [`Log::retry`].
    pub(crate) full: Option<DiskError>,
    /// It is asked again. Until it has given room, nothing may grow: a write that finds none stops the log.
    pub(crate) retries: bool,
    pub(crate) gathered: Gathered,
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
        (end, lead): (Position, Vec<u8>),
    ) -> Log {
        Log {
            gathered: Gathered::new(manifest.identity.log, end, lead),
            noted: manifest.durable,
            next_snapshot: manifest.next_snapshot,
            options,
            manifest,
            segments,
            spares,
            full: None,
            retries: false,
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
        if self.stopped.is_some() {
            // Nothing will be written any more: gather nothing, so that memory does not grow until the node
            // stops.
            return Position::MAX;
        }
        let position = self.gathered.append(self.durable, group, kind, bytes);
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
    /// [`StorageError::Disk`] when a new segment is needed and the disk is full: nothing is lost,
    /// the entries wait, and a later call writes them. [`StorageError::Stopped`] after anything else.
    pub fn write<D: Disk>(&mut self, disk: &mut D) -> Result<(), StorageError> {
        self.running()?;
        if self.gathered.is_empty() || self.is_writing() {
            return Ok(());
        }
        let (file, offset, bytes) = self.take_gathered()?;
        let result = disk.write(&file, offset, &bytes);
        self.stop_on(result)?;
        self.written = self.gathered.start();
        self.noted = self.noted.max(self.durable);
        Ok(())
    }

    /// Everything that is gathered, as it is to be written: to which file, and where.
    fn take_gathered(&mut self) -> Result<(String, u64, Vec<u8>), StorageError> {
        let length = self.gathered.whole_bytes();
        let offset = self.offset();
        if offset > SEGMENT_HEADER_BYTES && offset + length > self.options.segment_bytes {
            self.next_segment()?;
        }
        let (file, offset) = (segment_file(self.segment().number), self.offset());
        let end = offset + length;
        // Up to the block's end; behind the segment's there is nothing yet that must not be read.
        let blocks_end = end.next_multiple_of(BLOCK_BYTES as u64).min(self.options.segment_bytes.max(end));
        let start = offset - self.gathered.lead() as u64;
        let lead = (end % BLOCK_BYTES as u64) as usize;
        Ok((file, start, self.gathered.take(self.durable, (blocks_end - end) as usize, lead)))
    }

    /// Goes on in a new segment, if one is ready. Its header is written with the first batch.
    ///
    /// When it is still being made, the present one grows beyond its length instead: that costs some
    /// speed, and nobody waits. When it could not be made, that is told.
    fn next_segment(&mut self) -> Result<(), StorageError> {
        let Some(number) = self.spares.pop_front() else {
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
        self.retries = self.full.is_some();
    }

    /// The disk has room.
    pub(crate) fn has_room(&mut self) {
        self.full = None;
        self.retries = false;
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
        if !self.gathered.is_empty() {
            match self.take_gathered() {
                Ok((file, offset, bytes)) => steps.push(Step::WriteThrough { file, offset, bytes }),
                // What is written already is made durable all the same: snapshots, which give room, wait for it.
                Err(StorageError::Disk(_)) if self.durable < self.written => {}
                Err(error) => return Err(error),
            }
        }
        let writes = !steps.is_empty();
        let up_to = self.gathered.start();
        self.syncing = Some(Syncing { up_to, writes });
        // All segments that hold something that is not known to be durable. Nearly always that is one.
        let ends = self.segments.iter().skip(1).map(|next| next.first).chain([up_to]);
        let undurable = self.segments.iter().zip(ends).filter(|(_, end)| *end > self.durable);
        steps.extend(undurable.map(|(segment, _)| Step::Sync { file: segment_file(segment.number) }));
        Ok(Some(Work { lane: Lane::Sync, steps }))
    }

    /// A sync is over.
    pub(crate) fn sync_finished(&mut self, result: Result<(), DiskError>) -> Result<(), StorageError> {
        let Some(Syncing { up_to, writes }) = self.syncing.take() else {
            panic!("a sync ended that was not begun")
        };
        self.stop_on(result)?;
        if writes {
            self.written = up_to;
            self.noted = self.noted.max(self.durable);
        }
        let later = self.options.planted.has(Fault::SyncCoversLaterWrites);
        self.durable = self.durable.max(if later { self.end() } else { up_to });
        Ok(())
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
