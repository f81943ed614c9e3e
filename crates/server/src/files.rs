//! The node's folder: who may use it, which start this is, and under which process id it runs.
//!
//! - `quorate.lock` is locked while a server uses the folder. The lock goes with the process, however it ends.
//! - `epoch` holds a number that only grows: each start is a new epoch, so that nothing said in an earlier life
//!   of this node can be mistaken for something said in this one. It is on the disk before it is used.
//! - `storage` is the folder of the node's log.
//! - `quorate.pid` holds the process id while the server runs; after a crash it is stale until the next start.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// A folder that this process alone uses.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    /// Never read: it is open for its lock.
    _lock: File,
    epoch: u64,
}

impl DataFolder {
    /// Makes the folder if needed, takes it for this process, and begins a new epoch.
    ///
    /// # Errors
    /// Another process uses it, or it cannot be written.
    pub fn open(path: &Path) -> Result<DataFolder> {
        fs::create_dir_all(path)
            .with_context(|| format!("cannot make the data folder {}", path.display()))?;
        let lock = lock_folder(path)?;
        let before = read_epoch(path)?;
        let mut folder = DataFolder { path: path.to_owned(), _lock: lock, epoch: before };
        folder.raise_epoch(before.checked_add(1).context("the epoch has no successor")?)?;
        folder.write("quorate.pid", &format!("{}\n", std::process::id()))?;
        Ok(folder)
    }

    /// The folder of the node's log.
    pub fn storage(&self) -> PathBuf {
        self.path.join("storage")
    }

    /// The present epoch. On the disk.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Makes the epoch at least `epoch`, on the disk before this returns.
    ///
    /// # Errors
    /// It cannot be written. The epoch that is told remains what is known to be on the disk.
    pub fn raise_epoch(&mut self, epoch: u64) -> Result<()> {
        if epoch > self.epoch {
            self.write("epoch", &format!("{epoch}\n"))?;
            self.epoch = epoch;
        }
        Ok(())
    }

    /// Removes the process id: the server ends in an orderly way.
    pub fn close(self) {
        let _ = fs::remove_file(self.path.join("quorate.pid"));
    }

    /// Replaces a file as a whole: a crash leaves the old contents or the new, never a part.
    fn write(&self, name: &str, contents: &str) -> Result<()> {
        let (file, temporary) = (self.path.join(name), self.path.join(format!("{name}.new")));
        let replace = || {
            let mut target = File::create(&temporary)?;
            target.write_all(contents.as_bytes())?;
            target.sync_all()?;
            fs::rename(&temporary, &file)?;
            File::open(&self.path)?.sync_all()
        };
        replace().with_context(|| format!("cannot write {}", file.display()))
    }
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

/// The process that uses a node's folder now, if one does.
///
/// A stale `quorate.pid` names nobody: only a process that holds the folder's lock counts.
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

fn read_epoch(path: &Path) -> Result<u64> {
    let file = path.join("epoch");
    match fs::read_to_string(&file) {
        Ok(text) => text.trim().parse().ok().with_context(|| {
            format!(
                "{} does not hold a number: it was damaged. Write into it a number above every epoch that this \
                 cluster's logs tell of, or give the node a new, empty folder",
                file.display()
            )
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
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
    fn every_start_is_a_new_epoch() {
        let path = empty_folder("epoch");
        for expected in 1..=3 {
            assert_eq!(DataFolder::open(&path).unwrap().epoch(), expected);
        }
        let mut folder = DataFolder::open(&path).unwrap();
        folder.raise_epoch(40).unwrap();
        folder.raise_epoch(7).unwrap();
        assert_eq!(folder.epoch(), 40);
        drop(folder);
        assert_eq!(DataFolder::open(&path).unwrap().epoch(), 41);
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_damaged_epoch_is_refused_and_a_half_written_one_is_not_looked_at() {
        let path = empty_folder("damaged");
        drop(DataFolder::open(&path).unwrap());
        fs::write(path.join("epoch.new"), "9").unwrap();
        assert_eq!(DataFolder::open(&path).unwrap().epoch(), 2);
        fs::write(path.join("epoch"), "seven").unwrap();
        let told = format!("{:#}", DataFolder::open(&path).unwrap_err());
        assert!(told.contains("epoch does not hold a number"), "{told}");
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_folder_has_one_user_at_a_time_and_the_second_is_told_who() {
        let path = empty_folder("lock");
        let folder = DataFolder::open(&path).unwrap();
        let told = format!("{:#}", DataFolder::open(&path).unwrap_err());
        assert!(told.contains(&format!("in use by process {}", std::process::id())), "{told}");
        assert_eq!(running_process(&path), Some(std::process::id()));
        folder.close();
        assert!(!path.join("quorate.pid").exists());
        assert_eq!(running_process(&path), None);
        fs::remove_dir_all(&path).unwrap();
    }
}
