//! Reading the log from its start to its end, wherever that is.

use std::collections::{BTreeMap, VecDeque};

use crate::disk::{Disk, DiskError};
use crate::error::{Damage, StorageError};
use crate::floors::Extents;
use crate::format::batch::{BATCH_HEADER_BYTES, BatchHeader, each_entry};
use crate::format::manifest::{Floor, Manifest};
use crate::format::sector::{PAYLOAD_BYTES, Sectors, payload_of, place};
use crate::format::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::format::{Entry, SECTOR_BYTES, checksum, is_zero, segment_file};
use crate::log::Segment;
use crate::planted::{Fault, Planted};
use crate::{Group, Position};

/// The number of bytes of the log read at once: whole sectors.
pub(crate) const READ_BYTES: usize = (1 << 20) / SECTOR_BYTES * PAYLOAD_BYTES;

/// The result of a scan.
#[derive(Debug)]
pub(crate) struct Scan {
    /// The segments in use, oldest first.
    pub(crate) segments: VecDeque<Segment>,
    /// The offset in the last of them at which the log ends ...
    pub(crate) offset: u64,
    /// ... and its position.
    pub(crate) end: Position,
    /// The durable position that the batches record.
    pub(crate) durable: Position,
    pub(crate) extents: Extents,
    /// The number of entries replayed.
    pub(crate) entries: u64,
}

/// Whether a segment was read to its end.
enum SegmentEnd {
    /// Nothing has been written here after the last batch.
    Whole,
    /// Part of the batch here is missing.
    Torn,
}

/// Reads all batches in order and passes the entries that no snapshot covers to `each`.
///
/// Ends at the first batch that is not complete, in a way that a crash can explain. Whether a crash *is* the
/// explanation is settled afterwards ([`tail`](crate::tail)). What no crash explains is refused at once.
pub(crate) fn scan<D: Disk>(
    disk: &mut D,
    manifest: &Manifest,
    planted: Planted,
    each: impl FnMut(Entry<'_>),
) -> Result<Scan, StorageError> {
    let mut scanner = Scanner {
        salt: manifest.identity.log,
        planted,
        floors: &manifest.floors,
        found: Scan {
            segments: VecDeque::new(),
            offset: 0,
            end: manifest.start,
            durable: manifest.durable,
            extents: Extents::default(),
            entries: 0,
        },
        each,
    };
    for number in manifest.first_segment..manifest.next_segment {
        let mut window = Window::open(disk, manifest.identity.log, number)?;
        let misplaced = |damage| StorageError::damaged(segment_file(number), 0, damage);
        let is_first = number == manifest.first_segment;
        let header = window.get(disk, 0, PAYLOAD_BYTES)?;
        let Some(header) = SegmentHeader::decode(&manifest.identity, number, header)? else {
            if is_first {
                return Err(misplaced(Damage::Checksum("header")));
            }
            break;
        };
        let expected = scanner.found.end;
        if header.first != expected {
            if is_first || header.first < expected {
                return Err(misplaced(Damage::Misplaced { found: header.first, expected }));
            }
            // The log should continue in the previous segment up to here: its end is missing.
            break;
        }
        scanner.found.segments.push_back(Segment { number, first: header.first });
        if let SegmentEnd::Torn = scanner.segment(disk, &mut window)? {
            break;
        }
    }
    let found = scanner.found;
    assert!(!found.segments.is_empty() && found.offset >= SEGMENT_HEADER_BYTES, "a log has a segment");
    assert!(found.end >= manifest.start, "the log ends before it starts");
    Ok(found)
}

struct Scanner<'a, F> {
    salt: u64,
    planted: Planted,
    floors: &'a BTreeMap<Group, Floor>,
    found: Scan,
    each: F,
}

impl<F: FnMut(Entry<'_>)> Scanner<'_, F> {
    fn segment<D: Disk>(&mut self, disk: &mut D, window: &mut Window) -> Result<SegmentEnd, StorageError> {
        let mut offset = SEGMENT_HEADER_BYTES;
        loop {
            self.found.offset = offset;
            let bytes = window.get(disk, offset, BATCH_HEADER_BYTES)?;
            if is_zero(bytes) {
                return Ok(SegmentEnd::Whole);
            }
            if bytes.len() < BATCH_HEADER_BYTES {
                return Ok(SegmentEnd::Torn);
            }
            // A header lies within one sector, so it is never torn: it is whole, or damaged.
            let Some(header) = BatchHeader::decode(self.salt, bytes) else {
                return Err(window.damaged(offset, Damage::Checksum("batch's header")));
            };
            let (found, expected) = (header.position, self.found.end);
            if found != expected {
                return Err(window.damaged(offset, Damage::Misplaced { found, expected }));
            }
            let body_offset = offset + BATCH_HEADER_BYTES as u64;
            let body = window.get(disk, body_offset, header.length as usize)?;
            let whole = body.len() == header.length as usize;
            let good = whole
                && (checksum(self.salt, &[body]) == header.checksum
                    || self.planted.has(Fault::ChecksumNotCompared));
            if !good {
                let torn = !whole || has_empty_sector(body_offset, body);
                if !torn {
                    return Err(window.damaged(offset, Damage::Checksum("batch")));
                }
                if !self.planted.has(Fault::TornTailAccepted) {
                    return Ok(SegmentEnd::Torn);
                }
            }
            self.batch(&header, body).map_err(|damage| window.damaged(offset, damage))?;
            offset += header.whole_bytes();
            self.found.end += header.whole_bytes();
            self.found.durable = self.found.durable.max(header.durable);
        }
    }

    fn batch(&mut self, header: &BatchHeader, body: &[u8]) -> Result<(), Damage> {
        let Scanner { floors, found, each, .. } = self;
        let makes_sense = each_entry(header, body, |entry| {
            if floors.get(&entry.group).is_none_or(|floor| floor.position <= entry.position) {
                found.extents.entry(entry.group, entry.position);
                found.entries += 1;
                each(entry);
            }
        });
        let makes_sense = makes_sense && header.durable <= header.position;
        // Accepting a torn batch means taking what can be read of it.
        (makes_sense || self.planted.has(Fault::TornTailAccepted))
            .then_some(())
            .ok_or(Damage::Malformed("entries"))
    }
}

/// Whether one of the sectors that hold the bytes at `offset` contains nothing of them: it was not written.
///
/// The first one, if the bytes start inside it, holds the batch's header and is therefore present.
fn has_empty_sector(offset: u64, bytes: &[u8]) -> bool {
    let begun = (offset.next_multiple_of(PAYLOAD_BYTES as u64) - offset) as usize;
    let rest = bytes.get(begun..).unwrap_or_default();
    rest.chunks(PAYLOAD_BYTES).any(is_zero)
}

/// A segment of which a part is in memory. Offsets and lengths count bytes of the log in the segment.
#[derive(Debug)]
pub(crate) struct Window {
    file: String,
    sectors: Sectors,
    pub(crate) length: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// Opens segment `number` of the log with this salt.
    pub(crate) fn open<D: Disk>(disk: &mut D, salt: u64, number: u64) -> Result<Window, DiskError> {
        let file = segment_file(number);
        let length = payload_of(disk.length(&file)?);
        Ok(Window { file, sectors: Sectors { salt, number }, length, start: 0, bytes: Vec::new() })
    }

    /// Returns `length` bytes from `offset` on, or as many as there are.
    pub(crate) fn get<D: Disk>(
        &mut self,
        disk: &mut D,
        offset: u64,
        length: usize,
    ) -> Result<&[u8], DiskError> {
        let left = self.length.saturating_sub(offset);
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(length);
        let end = offset + length as u64;
        if offset < self.start || end > self.start + self.bytes.len() as u64 {
            let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(length.max(READ_BYTES));
            self.start = offset - offset % PAYLOAD_BYTES as u64;
            let sectors = (offset + wanted as u64 - self.start).div_ceil(PAYLOAD_BYTES as u64);
            self.bytes.resize(sectors as usize * SECTOR_BYTES, 0);
            let read = disk.read(&self.file, place(self.start), &mut self.bytes)?;
            self.bytes.truncate(read);
            self.sectors.read(&mut self.bytes);
        }
        let from = (offset - self.start) as usize;
        Ok(self.bytes.get(from..).map_or(&[][..], |rest| &rest[..rest.len().min(length)]))
    }

    fn damaged(&self, offset: u64, damage: Damage) -> StorageError {
        StorageError::damaged(&self.file, place(offset), damage)
    }
}
