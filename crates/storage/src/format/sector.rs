//! Sectors of segments: each names the segment for which it was written.
//!
//! ```text
//! 480 bytes of the log | number of the segment: u64 | checksum of that: u32 | zeros, 20 bytes
//! ```
//!
//! A file that was an older segment is reused as the next one without being cleared. Sectors that were written for the
//! older segment count as zeros, so the rest of this crate sees what it would in a new file: bytes that were written for
//! this segment, and zeros. Those zeros, which would be as many bytes as the log itself, need not be written.
//!
//! Everything else in this crate counts bytes of the log: 480 per sector. They are converted to offsets in a file only
//! here.

use super::{BLOCK_BYTES, SECTOR_BYTES, checksum};

/// Bytes of the log per sector. A multiple of 32, so that a batch's header lies within one sector.
pub(crate) const PAYLOAD_BYTES: usize = 480;

/// Bytes of the log per block.
pub(crate) const BLOCK_PAYLOAD_BYTES: usize = BLOCK_BYTES / SECTOR_BYTES * PAYLOAD_BYTES;

/// Returns the offset in a segment's file of the byte of the log with this offset in the segment.
pub(crate) fn place(offset: u64) -> u64 {
    let payload = PAYLOAD_BYTES as u64;
    offset / payload * SECTOR_BYTES as u64 + offset % payload
}

/// The number of bytes of the log in `bytes` bytes of a file.
pub(crate) fn payload_of(bytes: u64) -> u64 {
    let (sector, payload) = (SECTOR_BYTES as u64, PAYLOAD_BYTES as u64);
    bytes / sector * payload + (bytes % sector).min(payload)
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sectors {
    /// The log's number.
    pub(crate) salt: u64,
    /// The segment's number.
    pub(crate) number: u64,
}

impl Sectors {
    fn stamp(self) -> [u8; SECTOR_BYTES - PAYLOAD_BYTES] {
        let mut stamp = [0; SECTOR_BYTES - PAYLOAD_BYTES];
        let number = self.number.to_le_bytes();
        stamp[..8].copy_from_slice(&number);
        stamp[8..12].copy_from_slice(&checksum(self.salt, &[&number]).to_le_bytes());
        stamp
    }

    /// Whether a sector was written for an older segment of this log.
    fn is_old(self, sector: &[u8]) -> bool {
        let Some((_, stamp)) = sector.split_at_checked(PAYLOAD_BYTES) else { return false };
        let Some((number, _)) = stamp.split_first_chunk() else { return false };
        let number = u64::from_le_bytes(*number);
        number < self.number && stamp == Sectors { number, ..self }.stamp()
    }

    /// Appends bytes of the log to `out` in the file's form, from a sector's start on: whole sectors, the last one padded
    /// with zeros.
    pub(crate) fn write(self, bytes: &[u8], out: &mut Vec<u8>) {
        let stamp = self.stamp();
        let before = out.len();
        assert_eq!(before % SECTOR_BYTES, 0, "a sector begins within another one");
        out.reserve(bytes.len().div_ceil(PAYLOAD_BYTES) * SECTOR_BYTES);
        for payload in bytes.chunks(PAYLOAD_BYTES) {
            out.extend_from_slice(payload);
            out.resize(out.len().next_multiple_of(SECTOR_BYTES) - stamp.len(), 0);
            out.extend_from_slice(&stamp);
        }
        let sectors = bytes.len().div_ceil(PAYLOAD_BYTES);
        assert_eq!(out.len() - before, sectors * SECTOR_BYTES, "whole sectors are written");
    }

    /// Turns `bytes` as read from the file, from a sector's start on, into bytes of the log.
    pub(crate) fn read(self, bytes: &mut Vec<u8>) {
        let (read, mut length) = (bytes.len() as u64, 0);
        for start in (0..bytes.len()).step_by(SECTOR_BYTES) {
            let sector = start..bytes.len().min(start + SECTOR_BYTES);
            let payload = start..sector.end.min(start + PAYLOAD_BYTES);
            if self.is_old(&bytes[sector]) {
                bytes[length..length + payload.len()].fill(0);
            } else {
                bytes.copy_within(payload.clone(), length);
            }
            length += payload.len();
        }
        assert_eq!(
            length as u64,
            payload_of(read),
            "sectors hold more or less of the log than they have room for"
        );
        bytes.truncate(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::is_zero;

    const SECTORS: Sectors = Sectors { salt: 7, number: 3 };

    fn written(sectors: Sectors, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        sectors.write(bytes, &mut out);
        out
    }

    fn read(sectors: Sectors, mut bytes: Vec<u8>) -> Vec<u8> {
        sectors.read(&mut bytes);
        bytes
    }

    #[test]
    fn written_bytes_are_read_back_and_fill_whole_sectors() {
        for length in [1_usize, 479, 480, 481, 960, 5000] {
            let bytes: Vec<u8> = (0..length).map(|index| (index % 251) as u8 + 1).collect();
            let file = written(SECTORS, &bytes);
            assert_eq!(file.len(), length.div_ceil(480) * 512);
            let back = read(SECTORS, file);
            assert_eq!(&back[..length], &bytes[..]);
            assert!(is_zero(&back[length..]), "filled up with zeros");
        }
    }

    #[test]
    fn places_skip_the_stamps() {
        assert_eq!([0, 479, 480, 960 + 7].map(place), [0, 479, 512, 1024 + 7]);
        assert_eq!([0, 100, 480, 500, 512, 1024].map(payload_of), [0, 100, 480, 480, 480, 960]);
    }

    #[test]
    fn sectors_of_an_older_segment_count_as_zeros() {
        let old = written(Sectors { number: 2, ..SECTORS }, &[9; 960]);
        assert!(is_zero(&read(SECTORS, old.clone())));
        let mixed = [written(SECTORS, &[1; 480]), old].concat();
        assert_eq!(read(SECTORS, mixed)[..481], [&[1; 480][..], &[0]].concat());
    }

    /// Zeros mean that nothing was written here, so data that may belong to another log must never be read as zeros.
    #[test]
    fn only_an_older_segment_of_this_log_counts_as_zeros() {
        let of = |sectors: Sectors| read(SECTORS, written(sectors, &[9; 480]));
        assert_eq!(of(Sectors { number: 4, ..SECTORS }), [9; 480], "a later one");
        assert_eq!(of(Sectors { number: 2, salt: 8 }), [9; 480], "another log's");
        let mut changed = written(Sectors { number: 2, ..SECTORS }, &[9; 480]);
        for bit in 480 * 8..512 * 8 {
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(SECTORS, changed.clone()), [9; 480], "bit {bit} of the stamp is another");
            changed[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(read(SECTORS, vec![9; 500]), [9; 480], "a sector that the file's end cuts");
    }
}
