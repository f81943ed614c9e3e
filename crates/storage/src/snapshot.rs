//! Snapshots: a group's state in a file of its own, that stands for all of the group's entries below a
//! position.
//!
//! [`Log::begin_snapshot`], [`Log::append_snapshot`] for each chunk, [`Log::commit_snapshot`]: chunks are
//! written as the group hands them out, beside everything else, and synced now and then, so that the disk never
//! has much of them to do at once. The rest is upkeep: the file is synced, the manifest names it, and [`Outcome::SnapshotTaken`](crate::Outcome::SnapshotTaken) tells it. A crash before
//! leaves the snapshot before, or none.
//!
//! A snapshot need not be of this node's own making: one that came from a peer is written with the position
//! [`Log::end`], and stands for everything that the group has appended here.

use crate::disk::{Disk, DiskError};
use crate::error::{Damage, StorageError};
use crate::format::manifest::{Floor, SnapshotPlace};
use crate::format::snapshot::{CHUNK_HEADER_BYTES, ChunkHeader, SNAPSHOT_HEADER_BYTES, SnapshotHeader};
use crate::format::{Identity, checksum, snapshot_file};
use crate::log::Log;
use crate::upkeep::NewFloor;
use crate::{Group, Position};

/// So much of a snapshot is written and not synced, at most. Whatever waits for the disk waits behind what the system has
/// gathered for it: the syncs of commands behind hundreds of megabytes, if a snapshot were synced at its end only.
const UNSYNCED_BYTES_MAX: u64 = 1 << 20;

/// A snapshot that is being written.
#[derive(Debug)]
#[must_use = "commit it or abandon it"]
pub struct SnapshotWriter {
    header: SnapshotHeader,
    file: String,
    chunks: u64,
    bytes: u64,
    /// Of these, those that upkeep was asked to bring to the disk.
    paced: u64,
}

/// A snapshot that is being read.
#[derive(Debug)]
pub struct SnapshotReader {
    identity: Identity,
    header: SnapshotHeader,
    place: SnapshotPlace,
    file: String,
    next: u64,
    offset: u64,
}

impl Log {
    /// Begins a snapshot of a group. It will stand for all of the group's entries below `position`.
    ///
    /// # Errors
    /// [`StorageError::Disk`] when the disk is full; else [`StorageError::Stopped`].
    ///
    /// # Panics
    /// When the log has not come as far as `position`.
    pub fn begin_snapshot<D: Disk>(
        &mut self,
        disk: &mut D,
        group: Group,
        position: Position,
    ) -> Result<SnapshotWriter, StorageError> {
        self.running()?;
        assert!(position <= self.end(), "a snapshot of what has not been appended");
        let header = SnapshotHeader { number: self.next_snapshot, position, group };
        self.next_snapshot += 1;
        let file = snapshot_file(group, header.number);
        let created = disk.create(&file, 0);
        let mut writer = SnapshotWriter { header, file, chunks: 0, bytes: 0, paced: 0 };
        let bytes = header.encode(&self.identity());
        let begun = self.unless_full(created).and_then(|()| self.write_snapshot(disk, &mut writer, &bytes));
        match begun {
            Ok(()) => Ok(writer),
            Err(error) => {
                self.abandon_snapshot(writer);
                Err(error)
            }
        }
    }

    /// Writes the next chunk. While [`Log::is_pacing_snapshot`], the one after it should wait.
    ///
    /// # Errors
    /// [`StorageError::Disk`] when the disk is full: abandon the snapshot then. Else
    /// [`StorageError::Stopped`].
    ///
    /// # Panics
    /// When it is longer than [`CHUNK_BYTES_MAX`](crate::format::snapshot::CHUNK_BYTES_MAX), 1 GiB.
    pub fn append_snapshot<D: Disk>(
        &mut self,
        disk: &mut D,
        writer: &mut SnapshotWriter,
        bytes: &[u8],
    ) -> Result<(), StorageError> {
        self.running()?;
        let salt = self.identity().log;
        let header = ChunkHeader::of(salt, writer.chunks, bytes).encode(salt, writer.header.number);
        self.write_snapshot(disk, writer, &header)?;
        self.write_snapshot(disk, writer, bytes)?;
        writer.chunks += 1;
        if writer.bytes - writer.paced >= UNSYNCED_BYTES_MAX {
            writer.paced = writer.bytes;
            self.upkeep.paced = Some(writer.file.clone());
        }
        Ok(())
    }

    /// All chunks are written: the snapshot may take effect, once the log is durable up to its position
    /// ([`Log::wants_sync`]). It has when [`Outcome::SnapshotTaken`](crate::Outcome::SnapshotTaken) says so.
    /// One below the group's present snapshot, or of a group that was forgotten meanwhile, is dropped.
    ///
    /// # Errors
    /// [`StorageError::Disk`] when the disk is full: the snapshot is gone. Else [`StorageError::Stopped`].
    pub fn commit_snapshot<D: Disk>(
        &mut self,
        disk: &mut D,
        mut writer: SnapshotWriter,
    ) -> Result<(), StorageError> {
        self.running()?;
        let salt = self.identity().log;
        let end = ChunkHeader::end(salt, writer.chunks).encode(salt, writer.header.number);
        if let Err(error) = self.write_snapshot(disk, &mut writer, &end) {
            self.abandon_snapshot(writer);
            return Err(error);
        }
        let SnapshotWriter { header, chunks, bytes, file, .. } = writer;
        // It is synced as a whole before it takes effect.
        self.upkeep.paced.take_if(|paced| *paced == file);
        let snapshot = Some(SnapshotPlace { number: header.number, chunks, bytes });
        let floor = Floor { position: header.position, snapshot };
        self.upkeep.floors.push_back(NewFloor { group: header.group, floor });
        Ok(())
    }

    /// Gives up a snapshot. Its file will be removed.
    pub fn abandon_snapshot(&mut self, writer: SnapshotWriter) {
        self.upkeep.paced.take_if(|paced| *paced == writer.file);
        self.upkeep.garbage.push(writer.file);
    }

    /// The group's newest snapshot that has been taken, to be read. It stays until it is
    /// [closed](Log::close_snapshot), though a newer one takes its place.
    pub fn open_snapshot(&mut self, group: Group) -> Option<SnapshotReader> {
        let floor = self.manifest.floors.get(&group)?;
        let reader = SnapshotReader::new(self.identity(), group, floor)?;
        *self.pinned.entry(reader.place.number).or_default() += 1;
        Some(reader)
    }

    /// The reader is done with.
    pub fn close_snapshot(&mut self, reader: SnapshotReader) {
        let number = reader.place.number;
        let Some(readers) = self.pinned.get_mut(&number) else { return };
        *readers -= 1;
        if *readers == 0 {
            self.pinned.remove(&number);
            let present = self.manifest.floors.get(&reader.header.group).and_then(|floor| floor.snapshot);
            if present != Some(reader.place) {
                self.upkeep.garbage.push(reader.file);
            }
        }
    }

    fn write_snapshot<D: Disk>(
        &mut self,
        disk: &mut D,
        writer: &mut SnapshotWriter,
        bytes: &[u8],
    ) -> Result<(), StorageError> {
        let written = disk.write(&writer.file, writer.bytes, bytes);
        self.unless_full(written)?;
        writer.bytes += bytes.len() as u64;
        Ok(())
    }

    /// A full disk keeps a snapshot from being written and harms nothing; any other failure stops the log.
    fn unless_full(&mut self, result: Result<(), DiskError>) -> Result<(), StorageError> {
        match result {
            Err(error) if error.is_only_full() => Err(StorageError::Disk(error)),
            result => self.stop_on(result),
        }
    }
}

impl SnapshotReader {
    pub(crate) fn new(identity: Identity, group: Group, floor: &Floor) -> Option<SnapshotReader> {
        let place = floor.snapshot?;
        let header = SnapshotHeader { number: place.number, position: floor.position, group };
        let file = snapshot_file(group, place.number);
        Some(SnapshotReader { identity, header, place, file, next: 0, offset: 0 })
    }

    /// Whose state it is.
    pub fn group(&self) -> Group {
        self.header.group
    }

    /// It stands for all of the group's entries below.
    pub fn position(&self) -> Position {
        self.header.position
    }

    /// How many chunks it has.
    pub fn chunks(&self) -> u64 {
        self.place.chunks
    }

    /// Length of its file.
    pub fn bytes(&self) -> u64 {
        self.place.bytes
    }

    /// Reads the next chunk into `chunk`, in place of what is there. False when there are no more, and then
    /// the whole snapshot is known to be good.
    ///
    /// # Errors
    /// [`StorageError`]: the snapshot is damaged, or cannot be read.
    pub fn read<D: Disk>(&mut self, disk: &mut D, chunk: &mut Vec<u8>) -> Result<bool, StorageError> {
        chunk.clear();
        if self.offset == 0 {
            self.check_header(disk)?;
        }
        if self.next > self.place.chunks {
            return Ok(false);
        }
        let mut bytes = [0; CHUNK_HEADER_BYTES];
        self.fill(disk, &mut bytes)?;
        let header = ChunkHeader::decode(self.identity.log, self.header.number, &bytes)
            .ok_or_else(|| self.damaged(Damage::Checksum("chunk's header")))?;
        if header.index != self.next {
            return Err(self.damaged(Damage::Misplaced { found: header.index, expected: self.next }));
        }
        let body = self.offset + CHUNK_HEADER_BYTES as u64;
        let end = body + u64::from(header.length);
        let is_last = self.next == self.place.chunks;
        // No memory is asked for that the file cannot fill.
        if header.last != is_last || end > self.place.bytes || (is_last && end != self.place.bytes) {
            return Err(self.damaged(Damage::Malformed("chunks")));
        }
        self.offset = body;
        chunk.resize(header.length as usize, 0);
        self.fill(disk, chunk)?;
        if checksum(self.identity.log, &[chunk]) != header.checksum {
            return Err(self.damaged(Damage::Checksum("chunk")));
        }
        (self.offset, self.next) = (end, self.next + 1);
        Ok(!is_last)
    }

    /// Checks the file's length and its beginning, and goes to the first chunk.
    pub(crate) fn check_header<D: Disk>(&mut self, disk: &mut D) -> Result<(), StorageError> {
        let found = match disk.length(&self.file) {
            Err(DiskError { cause: crate::Cause::Missing, .. }) => return Err(self.damaged(Damage::Missing)),
            length => length?,
        };
        if found != self.place.bytes {
            return Err(self.damaged(Damage::Length { found, expected: self.place.bytes }));
        }
        let mut bytes = [0; SNAPSHOT_HEADER_BYTES];
        self.offset = 0;
        self.fill(disk, &mut bytes)?;
        self.header.check(&self.identity, &bytes)?;
        self.offset = SNAPSHOT_HEADER_BYTES as u64;
        Ok(())
    }

    fn fill<D: Disk>(&self, disk: &mut D, buffer: &mut [u8]) -> Result<(), StorageError> {
        let read = disk.read(&self.file, self.offset, buffer)?;
        if read < buffer.len() {
            let found = self.offset + read as u64;
            return Err(self.damaged(Damage::Length { found, expected: self.place.bytes }));
        }
        Ok(())
    }

    fn damaged(&self, damage: Damage) -> StorageError {
        StorageError::damaged(&self.file, self.offset, damage)
    }
}
