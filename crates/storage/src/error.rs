//! What can be wrong with the files of a log.

use crate::Position;
use crate::disk::DiskError;
use crate::format::Identity;

/// Why the log, or a snapshot, cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// The disk could not do something.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A file is not what was written.
    #[error("{file} is damaged at byte {offset}: {damage}")]
    Damaged {
        /// The file.
        file: String,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        damage: Damage,
    },
    /// A file of another cluster, node or worker, or of an earlier life of this one.
    #[error("{file} belongs to {found}, and this is {expected}")]
    Foreign {
        /// The file.
        file: String,
        /// Whose it is.
        found: Identity,
        /// Who we are.
        expected: Identity,
    },
    /// A file of another version of this program.
    #[error(
        "{file} has format version {found}, and this program reads version {expected}: start the program that wrote it, or \
         this one with an empty folder"
    )]
    Version {
        /// The file.
        file: String,
        /// Its version.
        found: u32,
        /// The one we read.
        expected: u32,
    },
    /// A write or sync failed earlier. What is on the disk is not known; the node must stop.
    #[error("the log has stopped, since an earlier call failed: {0}")]
    Stopped(DiskError),
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The file is named by the manifest, or every log has one, and it is not there.
    #[error("the file is missing")]
    Missing,
    /// Not even the first bytes are right.
    #[error("this is no {0} of a log")]
    Magic(&'static str),
    /// The bytes differ from those that were written.
    #[error("the checksum of its {0} does not match")]
    Checksum(&'static str),
    /// The file ends too early, or too late.
    #[error("the file has {found} bytes, and {expected} were written")]
    Length {
        /// Its length.
        found: u64,
        /// What it should be.
        expected: u64,
    },
    /// The file stands under the name of another one.
    #[error("it says that it is number {found}, and its name says {expected}")]
    Misnamed {
        /// In the file.
        found: u64,
        /// In the name.
        expected: u64,
    },
    /// It stands where something else belongs.
    #[error("position {found} stands where position {expected} belongs")]
    Misplaced {
        /// What is there.
        found: Position,
        /// What belongs there.
        expected: Position,
    },
    /// The log ends here, and yet it is known that it once went on, durably.
    #[error("the log ends here, at position {end}, and {told_by} says that it was durable up to {durable}")]
    Lost {
        /// Where the log ends.
        end: Position,
        /// Up to where it was durable.
        durable: Position,
        /// What knows.
        told_by: String,
    },
    /// The checksum matches and the contents make no sense: whoever wrote this had a bug.
    #[error("its {0} make no sense")]
    Malformed(&'static str),
}

impl StorageError {
    pub(crate) fn damaged(file: impl Into<String>, offset: u64, damage: Damage) -> StorageError {
        StorageError::Damaged { file: file.into(), offset, damage }
    }
}
