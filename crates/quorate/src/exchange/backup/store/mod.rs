//! Where backups are stored. The code that makes and reads backups knows only [`Store`].
//!
//! A file has the path `FOLDER/FILE`: there is one level of folders. It is written once, visible when it is whole, and
//! never changed afterwards. [`mod@folder`] keeps files in a folder of this machine, [`s3`] in a bucket of an object
//! store.

mod folder;
mod s3;

use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Result, bail};

/// A place for files.
///
/// Errors name the place or the file, and what to do; errors while reading or writing a file do not include its name.
pub(super) trait Store {
    /// The name of a file for people; of the place itself, for an empty path.
    fn name_of(&self, path: &str) -> String;

    /// Keeps other backups from writing here until this is dropped. If the lock is held already, checks that it still
    /// is.
    ///
    /// # Errors
    /// Another backup writes here; or one did since this one began, and may have removed files that no manifest names.
    fn lock(&self) -> Result<()>;

    /// Reports that nothing will be written until the next [`Store::lock`]: a lock that costs something may be
    /// released.
    fn rest(&self);

    /// The paths of all files in folders, sorted. A folder without files is `FOLDER/`.
    ///
    /// # Errors
    /// They cannot be listed.
    fn list(&self) -> Result<Vec<String>>;

    /// Opens a file for reading. Also returns its length.
    ///
    /// # Errors
    /// It does not exist, or cannot be read.
    fn read(&self, path: &str) -> Result<(u64, Box<dyn Read>)>;

    /// Creates a new file. It is not visible before [`NewFile::end`].
    ///
    /// # Errors
    /// It cannot be written, or exists already.
    fn create(&self, path: &str) -> Result<Box<dyn NewFile>>;

    /// Removes a file, and its folder if it was the last one.
    ///
    /// # Errors
    /// It cannot be removed.
    fn remove(&self, path: &str) -> Result<()>;
}

/// A file that is being written.
pub(super) trait NewFile: Write {
    /// Makes the whole file durable. Later reads get the stored bytes, as far as that can be requested.
    ///
    /// # Errors
    /// It is not stored, and will not be visible.
    fn end(self: Box<Self>) -> Result<()>;
}

/// Opens a place: `s3://BUCKET/PREFIX`, or a folder.
///
/// # Errors
/// It is neither, or the environment lacks settings for an object store.
pub(super) fn open(place: &Path) -> Result<Box<dyn Store>> {
    let text = place.to_string_lossy();
    match text.split_once("://") {
        None => Ok(Box::new(folder::Folder::new(place))),
        Some(("s3", rest)) => Ok(Box::new(s3::Bucket::open(rest)?)),
        Some((scheme, _)) => bail!(
            "{text}: backups go into a folder or into s3://BUCKET/PREFIX, and this version has no way to {scheme}://. Many object \
             stores have the interface of S3, too: set AWS_ENDPOINT_URL to its address"
        ),
    }
}
