//! Work that runs beside the worker's loop.
//!
//! A sync takes as long as some hundred commands. So the log does not sync: it returns the steps to be
//! done, in order, and later receives their result. A real server runs them on a thread, a simulator at
//! some later time. Until then the log takes batches; the next sync covers them all (group commit).

use crate::disk::{Disk, DiskError};

/// One operation of a disk, with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// [`Disk::create`]
    Create {
        /// The new file.
        file: String,
        /// Its length in bytes.
        bytes: u64,
    },
    /// [`Disk::reserve`]
    Reserve {
        /// The new file.
        file: String,
        /// Its length in bytes.
        bytes: u64,
    },
    /// [`Disk::write`]
    Write {
        /// The file.
        file: String,
        /// The offset in the file.
        offset: u64,
        /// The bytes to write.
        bytes: Vec<u8>,
    },
    /// [`Disk::write_through`]
    WriteThrough {
        /// The file.
        file: String,
        /// The offset in the file.
        offset: u64,
        /// The bytes to write.
        bytes: Vec<u8>,
    },
    /// [`Disk::cut`]
    Cut {
        /// The file.
        file: String,
        /// The most bytes that it keeps.
        bytes: u64,
    },
    /// [`Disk::rename`]
    Rename {
        /// The old name.
        from: String,
        /// The new name.
        to: String,
    },
    /// [`Disk::remove`]
    Remove {
        /// The file.
        file: String,
    },
    /// [`Disk::sync`]
    Sync {
        /// The file.
        file: String,
    },
    /// [`Disk::sync_folder`]
    SyncFolder,
}

impl Step {
    /// Runs the step.
    ///
    /// # Errors
    /// Any error of the disk.
    pub fn run<D: Disk>(&self, disk: &mut D) -> Result<(), DiskError> {
        match self {
            Step::Create { file, bytes } => disk.create(file, *bytes),
            Step::Reserve { file, bytes } => disk.reserve(file, *bytes),
            Step::Write { file, offset, bytes } => disk.write(file, *offset, bytes),
            Step::WriteThrough { file, offset, bytes } => disk.write_through(file, *offset, bytes),
            Step::Cut { file, bytes } => disk.cut(file, *bytes),
            Step::Rename { from, to } => disk.rename(from, to),
            Step::Remove { file } => disk.remove(file),
            Step::Sync { file } => disk.sync(file),
            Step::SyncFolder => disk.sync_folder(),
        }
    }
}

/// The log's two kinds of work. At most one piece of each is running; the two kinds may run at the same
/// time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Replies wait for it: it must not queue behind upkeep.
    Sync,
    /// New segments, snapshots, removals. May take long.
    Upkeep,
}

/// Steps to be done in order, up to the first that fails. Their result must be passed to the log
/// ([`Log::finished`](crate::Log::finished)).
#[derive(Clone, Debug)]
#[must_use = "the log waits for its result"]
pub struct Work {
    pub(crate) lane: Lane,
    pub(crate) steps: Vec<Step>,
}

impl Work {
    /// Which kind of work it is.
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// The steps, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Runs all steps immediately.
    ///
    /// # Errors
    /// The error of the first step that failed. The later steps were not tried.
    pub fn run<D: Disk>(&self, disk: &mut D) -> Result<(), DiskError> {
        self.steps.iter().try_for_each(|step| step.run(disk))
    }
}
