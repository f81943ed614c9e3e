//! The manifest: the one file that names the others that belong to the log.
//!
//! ```text
//! preamble, 40 bytes | openings: u64 | first segment: u64 | next segment: u64 | start: u64 | durable: u64 |
//! next snapshot: u64 | clearing: u64, 0 or 1 | number of floors: u64
//! floors, each: group: u16 | has a snapshot: u16 | zeros: u32 | position: u64 | snapshot's number: u64 |
//!               its chunks: u64 | length of its file: u64
//! ```
//!
//! It is replaced as a whole: written under another name, synced, renamed, and the folder synced. A file
//! that it names is safe before the manifest is, and a file that it no longer names is removed afterwards.
//! So a crash at any step leaves a manifest whose files all exist, and perhaps some more, which a start
//! removes.

use std::collections::BTreeMap;

use super::{Fields, Identity, MANIFEST, MANIFEST_FILE, begin, check, seal};
use crate::error::{Damage, StorageError};
use crate::{Group, Position};

const FLOOR_BYTES: usize = 40;

/// The greatest length of the manifest: each of 65536 groups has at most one floor.
pub(crate) const MANIFEST_BYTES_MAX: u64 = 128 + (FLOOR_BYTES as u64) * (1 << 16);

/// The position from which a group's entries count, and the snapshot that covers those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Floor {
    pub(crate) position: Position,
    /// None if nothing covers them: the group was dropped.
    pub(crate) snapshot: Option<SnapshotPlace>,
}

/// The file of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotPlace {
    pub(crate) number: u64,
    pub(crate) chunks: u64,
    pub(crate) bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) identity: Identity,
    /// The number of times that the log was opened.
    pub(crate) openings: u64,
    /// Segments from this number on ...
    pub(crate) first_segment: u64,
    /// ... and below this one belong to the log, and all exist.
    pub(crate) next_segment: u64,
    /// The first position of the first segment.
    pub(crate) start: Position,
    /// The position up to which the log was durable when the manifest was written.
    pub(crate) durable: Position,
    /// No snapshot has had this number or a higher one.
    pub(crate) next_snapshot: u64,
    /// A start has begun to clear what followed the end of the log, and may not have finished.
    pub(crate) clearing: bool,
    pub(crate) floors: BTreeMap<Group, Floor>,
}

impl Manifest {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        begin(MANIFEST, &self.identity, &mut bytes);
        let Manifest {
            openings, first_segment, next_segment, start, durable, next_snapshot, clearing, ..
        } = *self;
        for field in
            [openings, first_segment, next_segment, start, durable, next_snapshot, u64::from(clearing)]
        {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes.extend_from_slice(&(self.floors.len() as u64).to_le_bytes());
        for (group, floor) in &self.floors {
            bytes.extend_from_slice(&group.to_le_bytes());
            bytes.extend_from_slice(&u16::from(floor.snapshot.is_some()).to_le_bytes());
            bytes.extend_from_slice(&[0; 4]);
            let place = floor.snapshot.unwrap_or(SnapshotPlace { number: 0, chunks: 0, bytes: 0 });
            for field in [floor.position, place.number, place.chunks, place.bytes] {
                bytes.extend_from_slice(&field.to_le_bytes());
            }
        }
        seal(&mut bytes);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Manifest, StorageError> {
        let (identity, mut fields) = check(MANIFEST, MANIFEST_FILE, bytes)?;
        Self::fields(identity, &mut fields)
            .filter(|manifest| fields.0.is_empty() && manifest.first_segment < manifest.next_segment)
            .ok_or_else(|| StorageError::damaged(MANIFEST_FILE, 0, Damage::Malformed("fields")))
    }

    fn fields(identity: Identity, fields: &mut Fields<'_>) -> Option<Manifest> {
        let mut manifest = Manifest {
            identity,
            openings: fields.u64()?,
            first_segment: fields.u64()?,
            next_segment: fields.u64()?,
            start: fields.u64()?,
            durable: fields.u64()?,
            next_snapshot: fields.u64()?,
            clearing: fields.u64()? != 0,
            floors: BTreeMap::new(),
        };
        for _ in 0..fields.u64()? {
            let (group, has_snapshot, _) = (fields.u16()?, fields.u16()?, fields.u32()?);
            let position = fields.u64()?;
            let place = SnapshotPlace { number: fields.u64()?, chunks: fields.u64()?, bytes: fields.u64()? };
            let snapshot = (has_snapshot == 1).then_some(place);
            manifest.floors.insert(group, Floor { position, snapshot });
        }
        Some(manifest)
    }
}
