//! What the log asks of a disk: ten verbs, two of them in two ways, on the files of one folder.

/// The files of one folder.
///
/// A write is not safe before [`sync`](Disk::sync) of its file, a file's creation, renaming or removal not
/// before [`sync_folder`](Disk::sync_folder). At a crash of the machine, of what is not safe each sector of
/// 512 bytes may be the old one or the new one, and each change of the folder may have happened or not, in
/// any order.
pub trait Disk {
    /// The names of all files, in any order.
    ///
    /// # Errors
    /// [`DiskError`] says what failed, as with every verb.
    fn list(&mut self) -> Result<Vec<String>, DiskError>;

    /// Makes a file of `bytes` zero bytes, in place of one of that name if there is one.
    ///
    /// The space is allocated and the zeros are written: a full disk is met here, and a later sync of bytes
    /// within has no more to write than these (on ext4 a sync into space that is only reserved costs half as
    /// much again).
    ///
    /// # Errors
    /// [`Cause::Full`] when there is no room.
    fn create(&mut self, file: &str, bytes: u64) -> Result<(), DiskError>;

    /// As [`create`](Disk::create), of a file that may never be written: the space is allocated, and the zeros need not be
    /// written.
    ///
    /// # Errors
    /// As with [`create`](Disk::create).
    fn reserve(&mut self, file: &str, bytes: u64) -> Result<(), DiskError> {
        self.create(file, bytes)
    }

    /// Writes all of `bytes` at `offset`. The file grows where it must, over a gap of zeros if there is one.
    ///
    /// # Errors
    /// [`DiskError`]. Part of the bytes may have been written.
    fn write(&mut self, file: &str, offset: u64, bytes: &[u8]) -> Result<(), DiskError>;

    /// As [`write`](Disk::write), of what is to come to the disk at once: of whole blocks, unless they end with the file. It
    /// need not go through memory that the operating system keeps for the file.
    ///
    /// # Errors
    /// As with [`write`](Disk::write).
    fn write_through(&mut self, file: &str, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.write(file, offset, bytes)
    }

    /// Makes a file no longer than `bytes`.
    ///
    /// # Errors
    /// [`DiskError`].
    fn cut(&mut self, file: &str, bytes: u64) -> Result<(), DiskError>;

    /// Fills `buffer` from `offset` on, as far as the file goes, and says how many bytes that were.
    ///
    /// # Errors
    /// [`DiskError`].
    fn read(&mut self, file: &str, offset: u64, buffer: &mut [u8]) -> Result<usize, DiskError>;

    /// The file's length.
    ///
    /// # Errors
    /// [`Cause::Missing`] when there is no such file.
    fn length(&mut self, file: &str) -> Result<u64, DiskError>;

    /// Gives a file another name, in place of one that had it.
    ///
    /// # Errors
    /// [`DiskError`].
    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError>;

    /// Removes a file. There may be none of that name.
    ///
    /// # Errors
    /// [`DiskError`].
    fn remove(&mut self, file: &str) -> Result<(), DiskError>;

    /// Returns when every byte that was written to the file before is safe.
    ///
    /// # Errors
    /// [`DiskError`]: then nobody knows what is safe, and trying again proves nothing, since a
    /// kernel may count the lost pages as written.
    fn sync(&mut self, file: &str) -> Result<(), DiskError>;

    /// Returns when every creation, renaming and removal before is safe.
    ///
    /// # Errors
    /// As with [`sync`](Disk::sync).
    fn sync_folder(&mut self) -> Result<(), DiskError>;
}

/// What a disk was asked to do.
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

/// Why a disk could not.
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

/// What a disk could not do, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {verb} {file}: {cause}")]
pub struct DiskError {
    /// What was asked.
    pub verb: Verb,
    /// Of which file; the folder's own name where the folder was meant.
    pub file: String,
    /// Why not.
    pub cause: Cause,
}

impl DiskError {
    /// True when nothing but a lack of room kept this from happening, and nothing that was safe is in doubt.
    /// A full disk that shows only in a sync is not told so: what that sync left behind is as unknown as
    /// after any other.
    pub fn is_only_full(&self) -> bool {
        self.cause == Cause::Full && matches!(self.verb, Verb::Create | Verb::Write | Verb::Rename)
    }
}
