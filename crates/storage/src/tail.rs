//! What a crash left after the end of the log, and how it is distinguished from damage.
//!
//! When the machine crashes, every sector that was written and not synced holds either the old bytes or the new ones. The
//! old ones are zeros, or count as zeros because they belong to an older segment. This determines what a crash can leave;
//! everything else is damage:
//!
//! 1. **A batch's header is whole or zero**, since it lies within one sector. If it is neither, that is damage.
//! 2. **A torn batch lacks a sector**: after its whole header there is a sector with nothing but zeros in it. A batch whose
//!    checksum does not match though no sector is missing was written as a whole once, and changed later: damage.
//! 3. **What was durable cannot be torn.** Each batch, each segment's header and the manifest record up to where the log
//!    was durable when they were written. If any of them, wherever it is after the end, names a position above the end,
//!    then the end is not where a crash cut the log: damage.
//!
//! What remains is a torn tail, which was never reported durable. It is **cleared to zeros**, and that is synced, before
//! the log is used. Otherwise a batch after the cut could be found again at its place after the next crash, once new
//! batches of just that length precede it; and the first rule would no longer hold.
//!
//! One case is left. The last batches before an idle time may be durable with nothing after them that records this. If one
//! of their sectors turns to zeros as a whole, or sectors that were all zero from the beginning hide that no sector is
//! missing, damage looks like a torn write. [`Log::note_durable`](crate::Log::note_durable) closes this gap, and the cut is
//! reported in any case ([`Replayed::torn`](crate::Replayed)).
//!
//! **Reading is no proof of being on the disk.** After a failed sync a kernel may hold pages in memory, count them as
//! written, and return them to a restarted process; another sync would find nothing to do. So what is above the last
//! position known to be durable is written again, byte for byte, before it is synced and counts as durable. Nor does a zero
//! that is read prove that a tail was cleared: the manifest records that a tail is being cleared before clearing begins,
//! and a start that finds this record clears all unused space, whatever it reads there.

use crate::Position;
use crate::disk::Disk;
use crate::error::{Damage, StorageError};
use crate::format::batch::{BATCH_HEADER_BYTES, BatchHeader};
use crate::format::manifest::Manifest;
use crate::format::sector::{PAYLOAD_BYTES, place};
use crate::format::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::format::{MANIFEST_FILE, SECTOR_BYTES, is_zero, segment_file};
use crate::log::upkeep;
use crate::planted::{Fault, Planted};
use crate::replay::{READ_BYTES, Scan, Window};
use crate::work::Step;

/// The number of bytes cleared or written again at once: whole sectors of a file.
const WRITE_BYTES: usize = 2048 * SECTOR_BYTES;

/// A tail that a crash cut short, and that was cleared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// The segment in which the log ends.
    pub file: String,
    /// The offset in that file at which the log ends.
    pub offset: u64,
    /// The position at which the log ends.
    pub position: Position,
    /// The number of bytes cleared after that, counting whole sectors that were not empty; all unused space, if an earlier
    /// start did not finish clearing.
    pub bytes: u64,
}

/// Bytes of a segment that are not zero and not part of the log.
#[derive(Debug)]
struct Remains {
    number: u64,
    start: u64,
    end: u64,
}

/// Settles where the log ends: refuses damage, clears a torn tail, and makes the rest durable.
pub(crate) fn settle<D: Disk>(
    disk: &mut D,
    manifest: &mut Manifest,
    scan: &Scan,
    planted: Planted,
) -> Result<Option<Torn>, StorageError> {
    let found = Survey { disk, manifest, scan, remains: Vec::new() }.survey();
    let remains = match found {
        Err(_) if planted.has(Fault::LossNotNoticed) => Vec::new(),
        found => found?,
    };
    let mut syncs = Vec::new();
    if !remains.is_empty() && !planted.has(Fault::TailNotCleared) {
        if !manifest.clearing {
            manifest.clearing = true;
            upkeep::write_manifest(disk, planted, manifest)?;
        }
        clear(disk, scan, &remains, &mut syncs)?;
    }
    if planted.has(Fault::ReadCountsAsDurable) {
        syncs.extend(scan.segments.iter().map(|segment| segment_file(segment.number)));
    } else {
        write_again(disk, scan, &mut syncs)?;
    }
    syncs.sort();
    syncs.dedup();
    upkeep::run(disk, planted, syncs.into_iter().map(|file| Step::Sync { file }).collect())?;
    if remains.is_empty() {
        return Ok(None);
    }
    let file = scan.segments.back().map(|segment| segment_file(segment.number)).unwrap_or_default();
    let bytes = remains.iter().map(|remains| remains.end - remains.start).sum();
    Ok(Some(Torn { file, offset: place(scan.offset), position: scan.end, bytes }))
}

struct Survey<'a, D> {
    disk: &'a mut D,
    manifest: &'a Manifest,
    scan: &'a Scan,
    remains: Vec<Remains>,
}

impl<D: Disk> Survey<'_, D> {
    /// Examines everything after the end of the log.
    fn survey(mut self) -> Result<Vec<Remains>, StorageError> {
        if self.manifest.durable > self.scan.end {
            return Err(self.lost(self.manifest.durable, MANIFEST_FILE.to_owned()));
        }
        let last = self.scan.segments.back().map_or(self.manifest.first_segment, |segment| segment.number);
        self.segment(last, self.scan.offset)?;
        for number in last + 1..self.manifest.next_segment {
            let mut window = self.window(number)?;
            let sector = window.get(self.disk, 0, PAYLOAD_BYTES)?;
            if let Ok(Some(header)) = SegmentHeader::decode(&self.manifest.identity, number, sector)
                && header.durable > self.scan.end
            {
                return Err(self.lost(header.durable, segment_file(number)));
            }
            self.segment(number, 0)?;
        }
        Ok(self.remains)
    }

    fn segment(&mut self, number: u64, from: u64) -> Result<(), StorageError> {
        let mut window = self.window(number)?;
        let mut offset = from;
        while offset < window.length {
            // Up to the end of a sector, so that the rest is read by whole ones.
            let sector_rest = PAYLOAD_BYTES - (offset % PAYLOAD_BYTES as u64) as usize;
            let length = if sector_rest < PAYLOAD_BYTES { sector_rest } else { READ_BYTES };
            let bytes = window.get(self.disk, offset, length)?;
            if bytes.is_empty() {
                break;
            }
            let length = bytes.len() as u64;
            if self.manifest.clearing || !is_zero(bytes) {
                let sectors = bytes.chunks(PAYLOAD_BYTES).zip((offset..).step_by(PAYLOAD_BYTES));
                for (sector, offset) in sectors {
                    if is_zero(sector) && !self.manifest.clearing {
                        continue;
                    }
                    look_for_a_later_batch(self.manifest, self.scan, number, offset, sector)?;
                    add(&mut self.remains, number, offset, offset + sector.len() as u64);
                }
            }
            offset += length;
        }
        Ok(())
    }

    fn window(&mut self, number: u64) -> Result<Window, StorageError> {
        Ok(Window::open(self.disk, self.manifest.identity.log, number)?)
    }

    fn lost(&self, durable: Position, told_by: String) -> StorageError {
        lost(self.scan, durable, told_by)
    }
}

fn add(all: &mut Vec<Remains>, number: u64, start: u64, end: u64) {
    assert!(start < end, "nothing remains from {start} to {end}");
    match all.last_mut() {
        Some(last) if last.number == number && last.end == start => last.end = end,
        _ => all.push(Remains { number, start, end }),
    }
}

/// Refuses the log when a batch's header in this sector records that the log was durable beyond its end.
fn look_for_a_later_batch(
    manifest: &Manifest,
    scan: &Scan,
    number: u64,
    offset: u64,
    sector: &[u8],
) -> Result<(), StorageError> {
    for (bytes, offset) in sector.chunks(BATCH_HEADER_BYTES).zip((offset..).step_by(BATCH_HEADER_BYTES)) {
        let Some(header) = BatchHeader::decode(manifest.identity.log, bytes) else { continue };
        let is_later = header.position >= scan.end && header.durable <= header.position;
        if is_later && header.durable > scan.end {
            let told_by = format!("the batch at byte {} of {}", place(offset), segment_file(number));
            return Err(lost(scan, header.durable, told_by));
        }
    }
    Ok(())
}

fn lost(scan: &Scan, durable: Position, told_by: String) -> StorageError {
    let file = scan.segments.back().map(|segment| segment_file(segment.number)).unwrap_or_default();
    StorageError::damaged(file, place(scan.offset), Damage::Lost { end: scan.end, durable, told_by })
}

/// Clears what remains to zeros. A sector that is partly in the log keeps this segment's number; all others get none.
fn clear<D: Disk>(
    disk: &mut D,
    scan: &Scan,
    remains: &[Remains],
    syncs: &mut Vec<String>,
) -> Result<(), StorageError> {
    let zeros = vec![0; if remains.is_empty() { 0 } else { WRITE_BYTES }];
    for Remains { number, start, end } in remains {
        let file = segment_file(*number);
        let whole_from = start.next_multiple_of(PAYLOAD_BYTES as u64);
        // What is before the log's end is never cleared.
        let is_after =
            scan.segments.back().is_none_or(|last| (last.number, scan.offset) <= (*number, *start));
        assert!(is_after, "byte {start} of segment {number} is of the log");
        if whole_from > *start {
            disk.write(&file, place(*start), &zeros[..(whole_from - start) as usize])?;
        }
        let mut offset = place(whole_from);
        let end = place(end.next_multiple_of(PAYLOAD_BYTES as u64));
        while offset < end {
            let length = usize::try_from(end - offset).unwrap_or(WRITE_BYTES).min(WRITE_BYTES);
            disk.write(&file, offset, &zeros[..length])?;
            offset += length as u64;
        }
        syncs.push(file);
    }
    Ok(())
}

/// Writes what is not known to be durable again, unchanged.
fn write_again<D: Disk>(disk: &mut D, scan: &Scan, syncs: &mut Vec<String>) -> Result<(), StorageError> {
    let ends = scan.segments.iter().skip(1).map(|next| next.first).chain([scan.end]);
    let undurable = scan.segments.iter().zip(ends).filter(|(_, end)| *end > scan.durable);
    let mut buffer = Vec::new();
    for (segment, end) in undurable {
        let file = segment_file(segment.number);
        let offset_of = |position: Position| SEGMENT_HEADER_BYTES + (position - segment.first);
        // By whole sectors: a page that is written in part is written as a whole, but not every disk need know that.
        let from = if scan.durable > segment.first { offset_of(scan.durable) } else { 0 };
        assert!(from <= offset_of(end), "the log is durable beyond its end");
        let mut offset = place(from - from % PAYLOAD_BYTES as u64);
        let end = place(offset_of(end).next_multiple_of(PAYLOAD_BYTES as u64));
        while offset < end {
            buffer.resize(usize::try_from(end - offset).unwrap_or(WRITE_BYTES).min(WRITE_BYTES), 0);
            let read = disk.read(&file, offset, &mut buffer)?;
            if read == 0 {
                break;
            }
            disk.write(&file, offset, &buffer[..read])?;
            offset += read as u64;
        }
        syncs.push(file);
    }
    Ok(())
}
