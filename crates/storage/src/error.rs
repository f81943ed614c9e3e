//! Errors in the files of a log.

use crate::Position;
use crate::disk::DiskError;
use crate::identity::Identity;

/// Why the log, or a snapshot, cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// An operation of the disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A file's contents are not what was written.
    #[error("{file} is damaged at byte {offset}: {damage}")]
    Damaged {
        /// The file.
        file: String,
        /// The offset in the file.
        offset: u64,
        /// What is wrong there.
        damage: Damage,
    },
    /// A file of another cluster, node or worker, or of an earlier log of this one.
    #[error("{file} belongs to {found}, and this is {expected}")]
    Foreign {
        /// The file.
        file: String,
        /// The identity in the file.
        found: Identity,
        /// The identity of this log.
        expected: Identity,
    },
    /// A file of another version of the format.
    #[error(
        "{file} has format version {found}, and this program reads version {expected}: {}",
        advice(*found, *expected)
    )]
    Version {
        /// The file.
        file: String,
        /// The file's version.
        found: u32,
        /// The version that this program reads.
        expected: u32,
    },
    /// A write or sync failed earlier. The contents of the disk are unknown; the node must stop.
    #[error("the log has stopped, since an earlier call failed: {0}")]
    Stopped(DiskError),
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The file does not exist, though the manifest names it or every log has one.
    #[error("the file is missing")]
    Missing,
    /// Not even the first bytes are right. Holds the kind of file expected.
    #[error("this is no {0} of a log")]
    Magic(&'static str),
    /// The bytes differ from those that were written. Holds the part of the file.
    #[error("the checksum of its {0} does not match")]
    Checksum(&'static str),
    /// The file ends too early or too late.
    #[error("the file has {found} bytes, and {expected} were written")]
    Length {
        /// Its length in bytes.
        found: u64,
        /// The expected length in bytes.
        expected: u64,
    },
    /// The file has the name of another one.
    #[error("it says that it is number {found}, and its name says {expected}")]
    Misnamed {
        /// The number in the file.
        found: u64,
        /// The number in the name.
        expected: u64,
    },
    /// Something other than expected is at this place.
    #[error("position {found} stands where position {expected} belongs")]
    Misplaced {
        /// The position found.
        found: Position,
        /// The position expected.
        expected: Position,
    },
    /// The log ends here, though it is known to have continued, durably.
    #[error("the log ends here, at position {end}, and {told_by} says that it was durable up to {durable}")]
    Lost {
        /// The position at which the log ends.
        end: Position,
        /// The position up to which it was durable.
        durable: Position,
        /// What records this: the manifest, a segment or a batch.
        told_by: String,
    },
    /// The checksum matches but the contents make no sense: the program that wrote this had a bug.
    /// Holds the part that is malformed.
    #[error("its {0} make no sense")]
    Malformed(&'static str),
}

impl StorageError {
    pub(crate) fn damaged(file: impl Into<String>, offset: u64, damage: Damage) -> StorageError {
        StorageError::Damaged { file: file.into(), offset, damage }
    }
}

/// What to do about a file of another version of the format.
fn advice(found: u32, expected: u32) -> &'static str {
    match found > expected {
        true => {
            "a later release has written it, so start one that is at least as new as the one that did, or this program with \
             an empty folder"
        }
        false => "start the program that wrote it, or this one with an empty folder",
    }
}
