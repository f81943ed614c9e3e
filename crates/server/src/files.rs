//! The node's folder: which process uses it, and its process id.
//!
//! - `quorate.lock` is locked while a server uses the folder. The lock ends with the process, however it ends.
//! - `quorate.home` distinguishes the folder from a copy of it (`home`).
//! - `storage` is the folder of the node's log.
//! - `values` is the folder of large values, if there are any.
//! - `quorate.record` and `quorate.quarantine` record what has crashed the process (`notebook`).
//! - `quorate.pid` holds the process id while the server runs; after a crash it is stale until the next start.
//!
//! All of it is accessible to the owner alone: files 0600, folders 0700.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::Mode;

/// The permission bits of everyone but the owner.
const OTHERS: u32 = 0o077;

/// Makes all files that this process creates from now on accessible to their owner alone, including those of the
/// store of values.
pub fn make_for_owner_alone() {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
}

/// A folder that this process alone uses.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    /// Never read: it is open for its lock.
    _lock: File,
}

impl DataFolder {
    /// Creates the folder if needed, and locks it for this process.
    ///
    /// # Errors
    /// Another process uses the folder, or it cannot be written.
    pub fn open(path: &Path) -> Result<DataFolder> {
        fs::create_dir_all(path)
            .with_context(|| format!("cannot make the data folder {}", path.display()))?;
        let lock = lock_folder(path)?;
        let folder = DataFolder { path: path.to_owned(), _lock: lock };
        folder.close_to_others();
        folder.write_process()?;
        Ok(folder)
    }

    /// Removes other users' permissions that an older version, or a copy, left on the node's files.
    fn close_to_others(&self) {
        let closed = || {
            for entry in fs::read_dir(&self.path)? {
                let entry = entry?;
                let name = entry.file_name();
                // Anything else here is not the node's.
                if ["storage", "values"].iter().any(|own| name == *own)
                    || name.to_string_lossy().starts_with("quorate.")
                {
                    close_all_to_others(&entry.path())?;
                }
            }
            close(&self.path)
        };
        if let Err(error) = closed() {
            let path = self.path.display();
            tracing::warn!(
                "others may read the node's files in {path}: chmod -R go= {path} was refused: {error}"
            );
        }
    }

    /// The folder of the node's log.
    pub fn storage(&self) -> PathBuf {
        self.path.join("storage")
    }

    /// The folder of large values that are not in memory. It exists only if there have been any.
    pub fn values(&self) -> PathBuf {
        self.path.join("values")
    }

    /// Removes the process id, when the server ends in an orderly way.
    pub fn close(self) {
        let _ = fs::remove_file(self.path.join("quorate.pid"));
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the process id. On a full disk the old file is overwritten, or the id is left out: only the lock counts.
    fn write_process(&self) -> Result<()> {
        let contents = format!("{}\n", std::process::id());
        let error = match replace_file(&self.path, "quorate.pid", &contents) {
            Err(error) if is_full(&error) => error,
            result => return result,
        };
        let _ = fs::remove_file(self.path.join("quorate.pid.new"));
        let mut target = OpenOptions::new().write(true).open(self.path.join("quorate.pid"));
        let written = target.as_mut().map(|file| {
            file.write_all(contents.as_bytes())?;
            file.set_len(contents.len() as u64)
        });
        if !matches!(written, Ok(Ok(()))) {
            tracing::warn!("{error:#}: the folder does not say which process uses it");
        }
        Ok(())
    }
}

/// Replaces a file in a folder as a whole: a crash leaves the old contents or the new, never a part.
pub(crate) fn replace_file(folder: &Path, name: &str, contents: &str) -> Result<()> {
    let (file, temporary) = (folder.join(name), folder.join(format!("{name}.new")));
    let replace = || {
        let mut target = File::create(&temporary)?;
        target.write_all(contents.as_bytes())?;
        target.sync_all()?;
        fs::rename(&temporary, &file)?;
        File::open(folder)?.sync_all()
    };
    replace().with_context(|| format!("cannot write {}", file.display()))
}

/// Removes other users' permissions on a file, or on a folder with everything in it. The path may be a link to
/// another disk.
fn close_all_to_others(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            if !entry.file_type()?.is_symlink() {
                close_all_to_others(&entry.path())?;
            }
        }
    }
    close(path)
}

fn close(path: &Path) -> io::Result<()> {
    let mut permissions = fs::metadata(path)?.permissions();
    if permissions.mode() & OTHERS != 0 {
        permissions.set_mode(permissions.mode() & !OTHERS);
        fs::set_permissions(path, permissions)?;
    }
    Ok(())
}

fn is_full(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    matches!(kind, Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
}

fn lock_folder(path: &Path) -> Result<File> {
    let file = path.join("quorate.lock");
    let lock = OpenOptions::new().write(true).create(true).truncate(false).open(&file);
    let lock = lock.with_context(|| format!("cannot open {}", file.display()))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => {
            let holder =
                read_process_id(path).map_or(String::from("another process"), |id| format!("process {id}"));
            bail!(
                "the data folder {} is in use by {holder}: stop it first, or use another folder",
                path.display()
            )
        }
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", file.display()))
        }
    }
}

/// Returns the id of the process that uses a node's folder now, if there is one.
///
/// A stale `quorate.pid` names no process: only a process that holds the folder's lock counts.
pub fn running_process(path: &Path) -> Option<u32> {
    let lock = File::open(path.join("quorate.lock")).ok()?;
    match lock.try_lock_shared() {
        Err(TryLockError::WouldBlock) => read_process_id(path),
        _ => None,
    }
}

fn read_process_id(path: &Path) -> Option<u32> {
    fs::read_to_string(path.join("quorate.pid")).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty_folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("quorate-files-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn a_second_process_is_refused_a_folder_and_the_error_names_the_first() {
        let path = empty_folder("lock");
        let folder = DataFolder::open(&path).unwrap();
        let error = format!("{:#}", DataFolder::open(&path).unwrap_err());
        assert!(error.contains(&format!("in use by process {}", std::process::id())), "{error}");
        assert_eq!(running_process(&path), Some(std::process::id()));
        folder.close();
        assert!(!path.join("quorate.pid").exists());
        assert_eq!(running_process(&path), None);
        fs::remove_dir_all(&path).unwrap();
    }
}
