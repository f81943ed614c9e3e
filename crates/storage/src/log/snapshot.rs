//! Snapshots: a group's state in a file of its own, which covers all of the group's entries below a position.
//!
//! [`Log::begin_snapshot`], [`Log::append_snapshot`] for each chunk, [`Log::commit_snapshot`]: chunks are gathered as the
//! group hands them out, and written piece by piece, as upkeep: no turn waits for it, and the disk never gets much of it at
//! once. A large snapshot is written over the group's last snapshot but one, whose file would otherwise have to be removed.
//! Finally the file is synced, the manifest names it, and [`Outcome::SnapshotTaken`](crate::Outcome::SnapshotTaken) reports
//! it. A crash before that leaves the previous snapshot, or none.
//!
//! A snapshot need not be made by this node: one received from a peer is written with the position [`Log::end`], and covers
//! everything that the group has appended here.

use crate::disk::{Disk, DiskError};
use crate::error::{Damage, StorageError};
use crate::format::manifest::{Floor, SnapshotPlace};
use crate::format::snapshot::{CHUNK_HEADER_BYTES, ChunkHeader, SNAPSHOT_HEADER_BYTES, SnapshotHeader};
use crate::format::{Identity, SECTOR_BYTES, checksum, snapshot_file};
use crate::log::Log;
use crate::{Group, Position};

/// A snapshot is written in pieces of this many bytes, or a small multiple. The disk works in order: if a snapshot were
/// written at once, the syncs of commands would wait behind hundreds of megabytes.
const PIECE_BYTES: usize = 512 << 10;

/// A snapshot that is being written.
#[derive(Debug)]
#[must_use = "commit it or abandon it"]
pub struct SnapshotWriter {
    header: SnapshotHeader,
    file: String,
    chunks: u64,
    /// The number of bytes handed out to be written ...
    written: u64,
    /// ... and the bytes after them.
    gathered: Vec<u8>,
}

/// A floor that is not in the manifest yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewFloor {
    pub(crate) group: Group,
    pub(crate) floor: Floor,
}

/// A part of a snapshot, to be written.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) group: Group,
    pub(crate) file: String,
    /// If 0, the file must be created, or is the file of a snapshot that is no longer needed.
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
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
    /// Begins a snapshot of a group, which will cover all of the group's entries below `position`.
    ///
    /// # Errors
    /// [`StorageError::Stopped`] after an earlier failure.
    ///
    /// # Panics
    /// When `position` is beyond the end of the log.
    pub fn begin_snapshot(
        &mut self,
        group: Group,
        position: Position,
    ) -> Result<SnapshotWriter, StorageError> {
        self.running()?;
        assert!(position <= self.end(), "a snapshot of what has not been appended");
        let header = SnapshotHeader { number: self.next_snapshot, position, group };
        self.next_snapshot += 1;
        let (file, gathered) = (snapshot_file(group, header.number), header.encode(&self.identity()));
        Ok(SnapshotWriter { header, file, chunks: 0, written: 0, gathered })
    }

    /// Adds the next chunk. While [`Log::is_pacing_snapshot`], hold back the next one: it would be kept in memory.
    ///
    /// # Errors
    /// [`StorageError::Disk`] when the disk had no room for an earlier chunk: then abandon the snapshot. Otherwise
    /// [`StorageError::Stopped`] after an earlier failure.
    ///
    /// # Panics
    /// When the chunk is longer than [`CHUNK_BYTES_MAX`](crate::format::snapshot::CHUNK_BYTES_MAX), 1 GiB.
    pub fn append_snapshot(&mut self, writer: &mut SnapshotWriter, bytes: &[u8]) -> Result<(), StorageError> {
        self.running()?;
        if let Some(error) = self.upkeep.without_room.get(&writer.file) {
            return Err(StorageError::Disk(error.clone()));
        }
        let salt = self.identity().log;
        let header = ChunkHeader::of(salt, writer.chunks, bytes).encode(salt, writer.header.number);
        writer.gathered.extend_from_slice(&header);
        writer.gathered.extend_from_slice(bytes);
        writer.chunks += 1;
        // With small segments the pieces are small, too.
        let piece = PIECE_BYTES.min(self.options.segment_bytes as usize / 4).max(SECTOR_BYTES);
        if writer.gathered.len() >= piece && self.upkeep.pieces.is_empty() {
            let whole = writer.gathered.len() / piece * piece;
            let mut rest = Vec::with_capacity(writer.gathered.len());
            rest.extend_from_slice(&writer.gathered[whole..]);
            writer.gathered.truncate(whole);
            self.upkeep.pieces.push_back(writer.next_piece(rest));
        }
        Ok(())
    }

    /// Ends the chunks: the snapshot is committed once it is written and the log is durable up to its position
    /// ([`Log::wants_sync`]). [`Outcome::SnapshotTaken`](crate::Outcome::SnapshotTaken) reports that. A snapshot is dropped
    /// if it is below the group's present one, or if the group has been forgotten since.
    ///
    /// # Errors
    /// [`StorageError::Disk`] when the disk had no room for a part of it: the snapshot is dropped. Otherwise
    /// [`StorageError::Stopped`] after an earlier failure.
    pub fn commit_snapshot(&mut self, mut writer: SnapshotWriter) -> Result<(), StorageError> {
        self.running()?;
        if let Some(error) = self.upkeep.without_room.get(&writer.file).cloned() {
            self.abandon_snapshot(writer);
            return Err(StorageError::Disk(error));
        }
        let salt = self.identity().log;
        let end = ChunkHeader::end(salt, writer.chunks).encode(salt, writer.header.number);
        writer.gathered.extend_from_slice(&end);
        let piece = writer.next_piece(Vec::new());
        self.upkeep.pieces.push_back(piece);
        let SnapshotWriter { header, chunks, written, .. } = writer;
        assert!(header.position <= self.end(), "a snapshot of what has not been appended");
        assert!(header.number < self.next_snapshot, "a snapshot whose number will be given again");
        let snapshot = Some(SnapshotPlace { number: header.number, chunks, bytes: written });
        let floor = Floor { position: header.position, snapshot };
        self.upkeep.floors.push_back(NewFloor { group: header.group, floor });
        Ok(())
    }

    /// Gives up a snapshot. Its file will be removed.
    pub fn abandon_snapshot(&mut self, writer: SnapshotWriter) {
        self.upkeep.pieces.retain(|piece| piece.file != writer.file);
        self.upkeep.without_room.remove(&writer.file);
        self.upkeep.garbage.push_back(writer.file);
    }

    /// Opens the group's newest committed snapshot for reading. It stays until it is [closed](Log::close_snapshot), even if
    /// a newer one replaces it.
    pub fn open_snapshot(&mut self, group: Group) -> Option<SnapshotReader> {
        let floor = self.manifest.floors.get(&group)?;
        let reader = SnapshotReader::new(self.identity(), group, floor)?;
        *self.pinned.entry(reader.place.number).or_default() += 1;
        Some(reader)
    }

    /// Closes a reader.
    pub fn close_snapshot(&mut self, reader: SnapshotReader) {
        let number = reader.place.number;
        let Some(readers) = self.pinned.get_mut(&number) else { return };
        *readers = readers.checked_sub(1).expect("a snapshot is pinned by its readers");
        if *readers == 0 {
            self.pinned.remove(&number);
            let present = self.manifest.floors.get(&reader.header.group).and_then(|floor| floor.snapshot);
            if present != Some(reader.place) {
                self.let_go(reader.header.group, reader.place);
            }
        }
    }
}

impl SnapshotWriter {
    /// Hands out what is gathered, and starts again with `rest`.
    fn next_piece(&mut self, rest: Vec<u8>) -> Piece {
        let bytes = std::mem::replace(&mut self.gathered, rest);
        assert!(!bytes.is_empty(), "an empty part of a snapshot");
        let (group, file, offset) = (self.header.group, self.file.clone(), self.written);
        self.written += bytes.len() as u64;
        Piece { group, file, offset, bytes }
    }
}

impl SnapshotReader {
    pub(crate) fn new(identity: Identity, group: Group, floor: &Floor) -> Option<SnapshotReader> {
        let place = floor.snapshot?;
        let header = SnapshotHeader { number: place.number, position: floor.position, group };
        let file = snapshot_file(group, place.number);
        Some(SnapshotReader { identity, header, place, file, next: 0, offset: 0 })
    }

    /// The group whose state it holds.
    pub fn group(&self) -> Group {
        self.header.group
    }

    /// The position below which it covers all of the group's entries.
    pub fn position(&self) -> Position {
        self.header.position
    }

    /// The number of chunks.
    pub fn chunks(&self) -> u64 {
        self.place.chunks
    }

    /// The length of its file, in bytes.
    pub fn bytes(&self) -> u64 {
        self.place.bytes
    }

    /// Reads the next chunk into `chunk`, replacing its contents. Returns false when there are no more chunks; the whole
    /// snapshot is then known to be intact.
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
        // Never allocates memory that the file cannot fill.
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
        assert!(
            self.offset <= self.place.bytes && self.next <= self.place.chunks + 1,
            "it reads beyond its end"
        );
        Ok(!is_last)
    }

    /// Checks the file's length and its beginning, and moves to the first chunk.
    pub(crate) fn check_header<D: Disk>(&mut self, disk: &mut D) -> Result<(), StorageError> {
        let found = match disk.length(&self.file) {
            Err(DiskError { cause: crate::Cause::Missing, .. }) => return Err(self.damaged(Damage::Missing)),
            length => length?,
        };
        // If it was written over a longer snapshot, the rest of that one may follow it.
        if found < self.place.bytes {
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
