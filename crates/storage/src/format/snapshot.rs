//! Snapshots: one group's state, in chunks.
//!
//! ```text
//! preamble, 40 bytes | number: u64 | position: u64 | group: u16 | zeros: 6 bytes
//! chunks, each: length: u32 | checksum of its bytes: u32 | index from 0: u64 | last: u32 |
//!               checksum of the 20 bytes before and of the number: u32 | bytes
//! the last chunk has no bytes; its index is the number of chunks before it
//! ```

use super::{Fields, Identity, SNAPSHOT, begin, check, checksum, seal, snapshot_file};
use crate::error::{Damage, StorageError};
use crate::{Group, Position};

/// Length of a snapshot's header in bytes.
pub const SNAPSHOT_HEADER_BYTES: usize = 64;
/// Length of the header of a chunk, in bytes.
pub const CHUNK_HEADER_BYTES: usize = 24;
/// The longest chunk, in bytes. A reader needs no more memory than this, whatever a file claims.
pub const CHUNK_BYTES_MAX: usize = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotHeader {
    pub(crate) number: u64,
    pub(crate) position: Position,
    pub(crate) group: Group,
}

impl SnapshotHeader {
    pub(crate) fn encode(&self, identity: &Identity) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SNAPSHOT_HEADER_BYTES);
        begin(SNAPSHOT, identity, &mut bytes);
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(&self.position.to_le_bytes());
        bytes.extend_from_slice(&self.group.to_le_bytes());
        bytes.resize(SNAPSHOT_HEADER_BYTES, 0);
        seal(&mut bytes);
        bytes
    }

    /// Checks that `bytes`, the beginning of its file, are this header.
    pub(crate) fn check(&self, identity: &Identity, bytes: &[u8]) -> Result<(), StorageError> {
        let file = snapshot_file(self.group, self.number);
        let (found, mut fields) = check(SNAPSHOT, &file, bytes)?;
        if found != *identity {
            return Err(StorageError::Foreign { file, found, expected: *identity });
        }
        let header = Self::fields(&mut fields);
        match header {
            Some(header) if header == *self => Ok(()),
            Some(SnapshotHeader { number, .. }) if number != self.number => {
                Err(StorageError::damaged(file, 0, Damage::Misnamed { found: number, expected: self.number }))
            }
            Some(SnapshotHeader { position, .. }) => Err(StorageError::damaged(
                file,
                0,
                Damage::Misplaced { found: position, expected: self.position },
            )),
            None => Err(StorageError::damaged(file, 0, Damage::Malformed("fields"))),
        }
    }

    fn fields(fields: &mut Fields<'_>) -> Option<SnapshotHeader> {
        Some(SnapshotHeader { number: fields.u64()?, position: fields.u64()?, group: fields.u16()? })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkHeader {
    pub(crate) length: u32,
    pub(crate) checksum: u32,
    pub(crate) index: u64,
    pub(crate) last: bool,
}

impl ChunkHeader {
    pub(crate) fn of(salt: u64, index: u64, bytes: &[u8]) -> ChunkHeader {
        assert!(bytes.len() <= CHUNK_BYTES_MAX, "a chunk of {} bytes", bytes.len());
        ChunkHeader { length: bytes.len() as u32, checksum: checksum(salt, &[bytes]), index, last: false }
    }

    pub(crate) fn end(salt: u64, chunks: u64) -> ChunkHeader {
        ChunkHeader { last: true, ..ChunkHeader::of(salt, chunks, &[]) }
    }

    pub(crate) fn encode(&self, salt: u64, number: u64) -> [u8; CHUNK_HEADER_BYTES] {
        let mut bytes = [0; CHUNK_HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.checksum.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.index.to_le_bytes());
        bytes[16..20].copy_from_slice(&u32::from(self.last).to_le_bytes());
        let sum = checksum(salt, &[&bytes[..20], &number.to_le_bytes()]);
        bytes[20..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Returns None when these are not what [`encode`](Self::encode) made for this snapshot.
    pub(crate) fn decode(salt: u64, number: u64, bytes: &[u8]) -> Option<ChunkHeader> {
        let mut fields = Fields(bytes);
        let (length, sum, index) = (fields.u32()?, fields.u32()?, fields.u64()?);
        let header = ChunkHeader { length, checksum: sum, index, last: fields.u32()? == 1 };
        let whole = bytes.get(..CHUNK_HEADER_BYTES)? == header.encode(salt, number);
        (whole && header.length as usize <= CHUNK_BYTES_MAX).then_some(header)
    }
}
