//! What runs beside the worker's loop.
//!
//! A sync takes as long as some hundred commands. So the log does not sync: it says which steps are to be
//! done, in order, and is told later what came of them. A real server runs them on a thread, a simulator at
//! some later time. The log takes batches meanwhile; the next sync covers them all (group commit).

use crate::disk::{Disk, DiskError};

/// One verb, with all that it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// [`Disk::create`]
    Create {
        /// The new file.
        file: String,
        /// Its length.
        bytes: u64,
    },
    /// [`Disk::reserve`]
    Reserve {
        /// The new file.
        file: String,
        /// Its length.
        bytes: u64,
    },
    /// [`Disk::write`]
    Write {
        /// The file.
        file: String,
        /// Where in it.
        offset: u64,
        /// What.
        bytes: Vec<u8>,
    },
    /// [`Disk::write_through`]
    WriteThrough {
        /// The file.
        file: String,
        /// Where in it.
        offset: u64,
        /// What.
        bytes: Vec<u8>,
    },
    /// [`Disk::cut`]
    Cut {
        /// The file.
        file: String,
        /// Its length at most.
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
    /// Does it.
    ///
    /// # Errors
    /// What the disk says.
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

/// Which of the log's two kinds of work. At most one of each is under way; they may run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Replies wait for it: it must not queue behind upkeep.
    Sync,
    /// New segments, snapshots, removals. It may take long.
    Upkeep,
}

/// Steps to be done in order, up to the first that fails. The log must be told what came of them
/// ([`Log::finished`](crate::Log::finished)).
#[derive(Clone, Debug)]
#[must_use = "the log waits to be told what came of it"]
pub struct Work {
    pub(crate) lane: Lane,
    pub(crate) steps: Vec<Step>,
}

impl Work {
    /// Which kind of work it is.
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// What is to be done.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Does all of it, here and now.
    ///
    /// # Errors
    /// What the disk said at the first step that failed. The later ones were not tried.
    pub fn run<D: Disk>(&self, disk: &mut D) -> Result<(), DiskError> {
        self.steps.iter().try_for_each(|step| step.run(disk))
    }
}
