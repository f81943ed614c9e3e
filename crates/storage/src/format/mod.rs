//! The layout of the files. All numbers are little-endian. The modules draw their parts; `docs/design/storage.md` argues.
//!
//! Every file begins with the same 40 bytes, the preamble: the kind of file, the version of the format, a checksum,
//! and the log's identity.

pub mod batch;
pub mod manifest;
pub mod sector;
pub mod segment;
pub mod snapshot;

pub use crate::identity::Identity;
pub use batch::Entry;

use crate::Group;
use crate::error::{Damage, StorageError};

/// The format's version. A program refuses every other one. It covers the contents of records, too: in version 1 the
/// computed fragments of coded values were different. Before version 3, sectors did not name their segment.
pub const VERSION: u32 = 3;

/// The unit that a disk writes as a whole: after a crash a sector holds either its old contents or the new, never a
/// part.
pub const SECTOR_BYTES: usize = 512;

/// The unit of writes: each write has a whole number of these, at a multiple of this length. The disk then never has
/// to read in order to change part of a block, and a write can bypass the operating system's page cache.
pub const BLOCK_BYTES: usize = 4096;

/// Length of the preamble in bytes.
pub(crate) const PREAMBLE_BYTES: usize = 40;
const CHECKSUM_AT: std::ops::Range<usize> = 12..16;

/// The kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    magic: [u8; 8],
    name: &'static str,
}

pub(crate) const MANIFEST: Kind = Kind { magic: *b"qrt-mani", name: "manifest" };
pub(crate) const SEGMENT: Kind = Kind { magic: *b"qrt-segm", name: "segment" };
pub(crate) const SNAPSHOT: Kind = Kind { magic: *b"qrt-snap", name: "snapshot" };

/// The name of the manifest, the one file that names the others that belong to the log.
pub const MANIFEST_FILE: &str = "manifest";
/// The name of a manifest that is being written. It counts once it has been renamed.
pub const MANIFEST_NEW_FILE: &str = "manifest.new";

/// The name of a segment: `segment-` and its number, with ten digits at least. Each write and each sync names one.
pub fn segment_file(number: u64) -> String {
    const HEAD: &str = "segment-";
    const DIGITS_MAX: usize = u64::MAX.ilog10() as usize + 1;
    let mut digits = [b'0'; DIGITS_MAX];
    let (mut rest, mut from) = (number, DIGITS_MAX);
    while rest > 0 {
        from -= 1;
        digits[from] += (rest % 10) as u8;
        rest /= 10;
    }
    let mut name = String::with_capacity(HEAD.len() + DIGITS_MAX);
    name.push_str(HEAD);
    name.extend(digits[from.min(DIGITS_MAX - 10)..].iter().map(|digit| char::from(*digit)));
    name
}

/// The name of a snapshot.
pub fn snapshot_file(group: Group, number: u64) -> String {
    format!("snapshot-{group:05}-{number:010}")
}

/// Whether this crate gives such names. Other files in the folder are not touched.
pub(crate) fn is_ours(file: &str) -> bool {
    let numbers = |rest: &str| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    file == MANIFEST_FILE
        || file == MANIFEST_NEW_FILE
        || file.strip_prefix("segment-").is_some_and(numbers)
        || file.strip_prefix("reserve-").is_some_and(numbers)
        || file.strip_prefix("snapshot-").is_some_and(numbers)
}

/// The CRC-32 of bytes of the log with this salt.
pub(crate) fn checksum(salt: u64, parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_le_bytes());
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize()
}

/// Appends the preamble, with a placeholder for the checksum.
pub(crate) fn begin(kind: Kind, identity: &Identity, out: &mut Vec<u8>) {
    out.extend_from_slice(&kind.magic);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&identity.cluster.to_le_bytes());
    out.extend_from_slice(&identity.log.to_le_bytes());
    out.extend_from_slice(&identity.node.to_le_bytes());
    out.extend_from_slice(&identity.worker.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
}

/// Puts the checksum of everything else into the preamble.
pub(crate) fn seal(bytes: &mut [u8]) {
    let sum = preamble_checksum(bytes);
    bytes[CHECKSUM_AT].copy_from_slice(&sum.to_le_bytes());
}

fn preamble_checksum(bytes: &[u8]) -> u32 {
    checksum(0, &[&bytes[..CHECKSUM_AT.start], &bytes[CHECKSUM_AT.end..]])
}

/// Checks what [`seal`] sealed, and returns the identity and what follows the preamble.
pub(crate) fn check<'a>(
    kind: Kind,
    file: &str,
    bytes: &'a [u8],
) -> Result<(Identity, Fields<'a>), StorageError> {
    let damaged = |damage| StorageError::damaged(file, 0, damage);
    let mut fields = Fields(bytes);
    if fields.take() != Some(kind.magic) || bytes.len() < PREAMBLE_BYTES {
        return Err(damaged(Damage::Magic(kind.name)));
    }
    let malformed = || damaged(Damage::Malformed("fields"));
    let version = fields.u32().ok_or_else(malformed)?;
    if fields.u32().ok_or_else(malformed)? != preamble_checksum(bytes) {
        return Err(damaged(Damage::Checksum("header")));
    }
    if version != VERSION {
        return Err(StorageError::Version { file: file.to_owned(), found: version, expected: VERSION });
    }
    let mut identity = || {
        let (cluster, log) = (fields.u64()?, fields.u64()?);
        let (node, worker, _) = (fields.u16()?, fields.u16()?, fields.u32()?);
        Some(Identity { cluster, node, worker, log })
    };
    let identity = identity().ok_or_else(malformed)?;
    Ok((identity, fields))
}

/// Reads consecutive numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (first, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(first)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    // Sixteen at a time: a start checks all the unused space of a segment this way.
    let (chunks, rest) = bytes.as_chunks::<16>();
    chunks.iter().all(|chunk| u128::from_ne_bytes(*chunk) == 0) && rest.iter().all(|byte| *byte == 0)
}
