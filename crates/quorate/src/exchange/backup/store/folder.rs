//! Files in a folder.

use std::cell::OnceCell;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::{Advice, fadvise};

use super::{NewFile, Store};

/// Bytes that are read and written together.
const BUFFER_BYTES: usize = 1 << 20;

/// A folder that holds folders of files.
pub(super) struct Folder {
    path: PathBuf,
    /// Held while something is written.
    lock: OnceCell<File>,
}

impl Folder {
    pub(super) fn new(path: &Path) -> Folder {
        Folder { path: path.into(), lock: OnceCell::new() }
    }
}

impl Store for Folder {
    fn name_of(&self, path: &str) -> String {
        match path {
            "" => self.path.display().to_string(),
            path => self.path.join(path).display().to_string(),
        }
    }

    /// The system ends the lock only with the process, so a held lock cannot be lost.
    fn lock(&self) -> Result<()> {
        if self.lock.get().is_some() {
            return Ok(());
        }
        let place = self.path.display();
        fs::create_dir_all(&self.path).with_context(|| format!("cannot make the folder {place}"))?;
        let cannot = || format!("cannot write to {place}");
        let file = self.path.join("lock");
        let file =
            File::options().create(true).truncate(false).write(true).open(file).with_context(cannot)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                bail!("another backup into {place} is under way, or waits for its time")
            }
            Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
        }
        let _ = self.lock.set(file);
        Ok(())
    }

    fn rest(&self) {}

    fn list(&self) -> Result<Vec<String>> {
        ensure!(self.path.is_dir(), "{} is not a folder", self.path.display());
        let mut paths = Vec::new();
        for folder in names(&self.path)? {
            let path = self.path.join(&folder);
            if !path.is_dir() {
                continue;
            }
            let files = names(&path)?;
            if files.is_empty() {
                paths.push(format!("{folder}/"));
            }
            paths.extend(files.into_iter().map(|file| format!("{folder}/{file}")));
        }
        paths.sort();
        Ok(paths)
    }

    fn read(&self, path: &str) -> Result<(u64, Box<dyn Read>)> {
        let path = self.path.join(path);
        let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        let bytes = file.metadata().with_context(|| format!("cannot read {}", path.display()))?.len();
        Ok((bytes, Box::new(BufReader::with_capacity(BUFFER_BYTES, file))))
    }

    fn create(&self, path: &str) -> Result<Box<dyn NewFile>> {
        let path = self.path.join(path);
        let cannot = || format!("cannot create {}", path.display());
        let folder = path.parent().with_context(cannot)?;
        match fs::create_dir(folder) {
            Ok(()) => sync(&self.path).with_context(cannot)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(cannot),
        }
        ensure!(!path.exists(), "{} is there already", path.display());
        let mut unfinished = path.clone().into_os_string();
        unfinished.push(".part");
        let unfinished = PathBuf::from(unfinished);
        let file = File::create_new(&unfinished).with_context(cannot)?;
        let file = Some(BufWriter::with_capacity(BUFFER_BYTES, file));
        Ok(Box::new(Growing { file, unfinished, path }))
    }

    fn remove(&self, path: &str) -> Result<()> {
        let file = self.path.join(path);
        let cannot = || format!("cannot remove {}", file.display());
        let (folder, _) = path.split_once('/').with_context(cannot)?;
        let folder = self.path.join(folder);
        if !path.ends_with('/') {
            fs::remove_file(&file).with_context(cannot)?;
            sync(&folder).with_context(cannot)?;
        }
        // The folder stays while it has another file.
        match fs::remove_dir(&folder) {
            Err(error) if error.kind() != io::ErrorKind::DirectoryNotEmpty => Err(error).with_context(cannot),
            _ => Ok(()),
        }
    }
}

/// The names in a folder.
fn names(folder: &Path) -> Result<Vec<String>> {
    let cannot = || format!("cannot read {}", folder.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(cannot)? {
        names.extend(entry.with_context(cannot)?.file_name().into_string().ok());
    }
    Ok(names)
}

/// Makes the names in a folder durable.
fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// A file that has a temporary name until it is whole.
struct Growing {
    /// `None` at the end.
    file: Option<BufWriter<File>>,
    unfinished: PathBuf,
    path: PathBuf,
}

impl Growing {
    fn open(&mut self) -> io::Result<&mut BufWriter<File>> {
        self.file.as_mut().ok_or_else(|| io::Error::other("it has ended"))
    }
}

impl Write for Growing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.open()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.open()?.flush()
    }
}

impl NewFile for Growing {
    /// The page cache is asked to drop the file, so that reading it back reads the disk.
    fn end(mut self: Box<Self>) -> Result<()> {
        let open = self.open()?;
        open.flush()?;
        open.get_ref().sync_all()?;
        // Only advice; the system may ignore it.
        let _ = fadvise(open.get_ref(), 0, None, Advice::DontNeed);
        fs::rename(&self.unfinished, &self.path)?;
        self.file = None;
        sync(self.path.parent().unwrap_or(&self.path))?;
        Ok(())
    }
}

impl Drop for Growing {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // If it cannot be removed now, the next backup removes it.
            let _ = fs::remove_file(&self.unfinished);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_visible_only_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let store = Folder::new(&folder.path().join("new"));
        assert!(store.list().unwrap_err().to_string().contains("is not a folder"));
        store.lock().unwrap();
        store.lock().unwrap();
        let why = Folder::new(&folder.path().join("new")).lock().unwrap_err().to_string();
        assert!(why.contains("another backup into"), "{why}");

        let mut file = store.create("a/1").unwrap();
        file.write_all(b"abc").unwrap();
        assert_eq!(store.list().unwrap(), ["a/1.part"], "what a process that dies leaves can be removed");
        assert!(store.read("a/1").is_err());
        drop(file);
        assert_eq!(store.list().unwrap(), ["a/"], "nothing is left otherwise");
        let mut file = store.create("a/1").unwrap();
        file.write_all(b"abc").unwrap();
        file.end().unwrap();
        assert_eq!(store.list().unwrap(), ["a/1"]);
        assert!(store.create("a/1").is_err());
        let (bytes, mut file) = store.read("a/1").unwrap();
        let mut read = Vec::new();
        file.read_to_end(&mut read).unwrap();
        assert_eq!((bytes, read.as_slice()), (3, &b"abc"[..]));

        store.create("a/2").unwrap().end().unwrap();
        fs::create_dir(folder.path().join("new/b")).unwrap();
        assert_eq!(store.list().unwrap(), ["a/1", "a/2", "b/"]);
        for path in store.list().unwrap() {
            store.remove(&path).unwrap();
        }
        assert_eq!(store.list().unwrap(), [""; 0]);
        assert!(!folder.path().join("new/a").exists(), "a folder goes with its last file");
    }
}
