//! Where backups are. All that makes and reads backups knows [`Store`], and not what is behind it.
//!
//! A file has the path `FOLDER/FILE`: there is one level of folders. It is written once, seen when it is whole, and never
//! changed afterwards. [`mod@folder`] keeps files in a folder of this machine, [`s3`] in a bucket of an object store.

mod folder;
mod s3;

use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Result, bail};

/// A place for files.
///
/// Errors name the place or the file, and what to do; those of a file that is being read or written are without its name.
pub(super) trait Store {
    /// What people call a file; the place itself, for an empty path.
    fn name_of(&self, path: &str) -> String;

    /// Keeps other backups from writing here until this is dropped. If it does so already, makes sure that it still does.
    ///
    /// # Errors
    /// Another one writes here; or did meanwhile, and may have removed what is not named by a manifest.
    fn lock(&self) -> Result<()>;

    /// Nothing will be written until the next [`Store::lock`]: a lock that costs something may be given back.
    fn rest(&self);

    /// The paths of all files in folders, sorted. A folder without files is `FOLDER/`.
    ///
    /// # Errors
    /// They cannot be listed.
    fn list(&self) -> Result<Vec<String>>;

    /// Begins to read a file. Returns its length, too.
    ///
    /// # Errors
    /// It is not there, or cannot be read.
    fn read(&self, path: &str) -> Result<(u64, Box<dyn Read>)>;

    /// Begins a new file. Nobody sees it before [`NewFile::end`].
    ///
    /// # Errors
    /// It cannot be written, or is there.
    fn create(&self, path: &str) -> Result<Box<dyn NewFile>>;

    /// Removes a file, and its folder with the last one.
    ///
    /// # Errors
    /// It cannot be removed.
    fn remove(&self, path: &str) -> Result<()>;
}

/// A file that is being written.
pub(super) trait NewFile: Write {
    /// Has all of it stored for good. Who reads it from now on reads what is stored, as far as that can be asked for.
    ///
    /// # Errors
    /// It is not stored, and nobody will see it.
    fn end(self: Box<Self>) -> Result<()>;
}

/// Opens a place: `s3://BUCKET/PREFIX`, or a folder.
///
/// # Errors
/// It is neither, or the environment says too little about an object store.
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
