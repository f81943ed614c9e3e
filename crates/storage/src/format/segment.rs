//! Segments: the files that hold the log's batches, one after the other.
//!
//! ```text
//! the first sector's bytes: preamble, 40 bytes | number: u64 | first position: u64 | durable: u64 | zeros
//! batches
//! zeros up to the end
//! ```
//!
//! A segment is made of zeros, or of an older segment, which counts as zeros ([`sector`](super::sector)). So what has not
//! been written is zero. This is the rule that distinguishes a torn tail from damage.

use super::sector::PAYLOAD_BYTES;
use super::{Fields, Identity, SEGMENT, begin, check, is_zero, seal, segment_file};
use crate::Position;
use crate::error::{Damage, StorageError};

/// The offset of the first batch.
pub const SEGMENT_HEADER_BYTES: u64 = PAYLOAD_BYTES as u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) number: u64,
    /// The position of its first batch.
    pub(crate) first: Position,
    /// The position up to which the log was known to be durable when this segment was begun.
    pub(crate) durable: Position,
}

impl SegmentHeader {
    pub(crate) fn encode(&self, identity: &Identity) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(PAYLOAD_BYTES);
        begin(SEGMENT, identity, &mut bytes);
        for field in [self.number, self.first, self.durable] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes.resize(PAYLOAD_BYTES, 0);
        seal(&mut bytes);
        bytes
    }

    /// Decodes the header of segment `number`; None when the segment has not been used. `bytes` are those of the file's
    /// first sector, or as many as exist.
    pub(crate) fn decode(
        identity: &Identity,
        number: u64,
        bytes: &[u8],
    ) -> Result<Option<SegmentHeader>, StorageError> {
        if is_zero(bytes) {
            return Ok(None);
        }
        let file = segment_file(number);
        let (found, mut fields) = check(SEGMENT, &file, bytes)?;
        if found != *identity {
            return Err(StorageError::Foreign { file, found, expected: *identity });
        }
        let header = Self::fields(&mut fields)
            .ok_or_else(|| StorageError::damaged(&file, 0, Damage::Malformed("fields")))?;
        if header.number != number {
            return Err(StorageError::damaged(
                file,
                0,
                Damage::Misnamed { found: header.number, expected: number },
            ));
        }
        Ok(Some(header))
    }

    fn fields(fields: &mut Fields<'_>) -> Option<SegmentHeader> {
        Some(SegmentHeader { number: fields.u64()?, first: fields.u64()?, durable: fields.u64()? })
    }
}
