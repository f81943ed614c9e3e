//! What the log needs of a disk: ten verbs, two of them in two ways, on the files of one folder.

/// The files of one folder.
///
/// A write is not safe before [`sync`](Disk::sync) of its file; creating, renaming or removing a file is not safe before
/// [`sync_folder`](Disk::sync_folder). When the machine crashes, each sector of 512 bytes that is not safe may be the old
/// one or the new one, and each change of the folder that is not safe may have happened or not, in any order.
pub trait Disk {
    /// Returns the names of all files, in any order.
    ///
    /// # Errors
    /// [`DiskError`] with the verb, the file and the cause, as for every verb.
    fn list(&mut self) -> Result<Vec<String>, DiskError>;

    /// Creates a file of `bytes` zero bytes, replacing a file of that name if there is one.
    ///
    /// The space is allocated and the zeros are written: a full disk is noticed here, and a later sync of bytes within the
    /// file has no more to write than these (on ext4 a sync into space that is only reserved costs half as much again).
    ///
    /// # Errors
    /// [`Cause::Full`] when there is no room.
    fn create(&mut self, file: &str, bytes: u64) -> Result<(), DiskError>;

    /// Like [`create`](Disk::create), for a file that may never be written: the space is allocated, but the zeros need not
    /// be written.
    ///
    /// # Errors
    /// As with [`create`](Disk::create).
    fn reserve(&mut self, file: &str, bytes: u64) -> Result<(), DiskError> {
        self.create(file, bytes)
    }

    /// Writes all of `bytes` at `offset`. The file grows if necessary, over a gap of zeros if there is one.
    ///
    /// # Errors
    /// [`DiskError`]. Part of the bytes may have been written.
    fn write(&mut self, file: &str, offset: u64, bytes: &[u8]) -> Result<(), DiskError>;

    /// Like [`write`](Disk::write), for bytes that should reach the disk at once: whole blocks, unless they end with the
    /// file. They need not go through the operating system's page cache.
    ///
    /// # Errors
    /// As with [`write`](Disk::write).
    fn write_through(&mut self, file: &str, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.write(file, offset, bytes)
    }

    /// Shortens a file to at most `bytes`.
    ///
    /// # Errors
    /// [`DiskError`].
    fn cut(&mut self, file: &str, bytes: u64) -> Result<(), DiskError>;

    /// Fills `buffer` from `offset` on, as far as the file goes, and returns the number of bytes read.
    ///
    /// # Errors
    /// [`DiskError`].
    fn read(&mut self, file: &str, offset: u64, buffer: &mut [u8]) -> Result<usize, DiskError>;

    /// Returns the file's length in bytes.
    ///
    /// # Errors
    /// [`Cause::Missing`] when there is no such file.
    fn length(&mut self, file: &str) -> Result<u64, DiskError>;

    /// Renames a file, replacing one that had the new name.
    ///
    /// # Errors
    /// [`DiskError`].
    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError>;

    /// Removes a file. It need not exist.
    ///
    /// # Errors
    /// [`DiskError`].
    fn remove(&mut self, file: &str) -> Result<(), DiskError>;

    /// Returns when every byte written to the file before is safe.
    ///
    /// # Errors
    /// [`DiskError`]: then it is unknown what is safe, and trying again proves nothing, since a kernel may count the lost
    /// pages as written.
    fn sync(&mut self, file: &str) -> Result<(), DiskError>;

    /// Returns when every creation, renaming and removal before is safe.
    ///
    /// # Errors
    /// As with [`sync`](Disk::sync).
    fn sync_folder(&mut self) -> Result<(), DiskError>;
}

/// The operation asked of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// [`Disk::list`]
    List,
    /// [`Disk::create`]
    Create,
    /// [`Disk::write`]
    Write,
    /// [`Disk::cut`]
    Cut,
    /// [`Disk::read`]
    Read,
    /// [`Disk::length`]
    Measure,
    /// [`Disk::rename`]
    Rename,
    /// [`Disk::remove`]
    Remove,
    /// [`Disk::sync`]
    Sync,
    /// [`Disk::sync_folder`]
    SyncFolder,
}

impl std::fmt::Display for Verb {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Verb::List => "list the files of",
            Verb::Create => "create",
            Verb::Write => "write",
            Verb::Cut => "shorten",
            Verb::Read => "read",
            Verb::Measure => "find the length of",
            Verb::Rename => "rename",
            Verb::Remove => "remove",
            Verb::Sync => "sync",
            Verb::SyncFolder => "sync the folder",
        })
    }
}

/// Why a disk operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// There is no such file.
    #[error("there is no such file")]
    Missing,
    /// There is no room (ENOSPC), or none for this user (EDQUOT).
    #[error("the disk is full")]
    Full,
    /// Anything else, in the operating system's words.
    #[error("{0}")]
    Failed(String),
}

/// A disk operation that failed, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {verb} {file}: {cause}")]
pub struct DiskError {
    /// The operation.
    pub verb: Verb,
    /// The file; the folder's own name if the operation was on the folder.
    pub file: String,
    /// The cause.
    pub cause: Cause,
}

impl DiskError {
    /// Whether lack of room was the only failure, and nothing that was safe is in doubt. False for a full disk that shows
    /// only in a sync: what that sync left behind is as unknown as after any other failed sync.
    pub fn is_only_full(&self) -> bool {
        self.cause == Cause::Full && matches!(self.verb, Verb::Create | Verb::Write | Verb::Rename)
    }
}
