//! The real disk: a folder of files, and the threads on which syncs run beside the worker's loop.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::fs::{FallocateFlags, fallocate};
use storage::work::Lane;
use storage::{Cause, Disk, DiskError, Verb, Work};

/// A new file is filled with zeros in pieces of this length, each synced before the next: so that the syncs
/// that commands wait for never queue behind 64 MiB of zeros.
const FILL_BYTES: usize = 1 << 20;

/// The files of one folder. Clones share their open files, so that each thread may have one.
#[derive(Clone, Debug)]
pub struct FolderDisk(Arc<Folder>);

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// Open to be synced.
    folder: File,
    open: Mutex<BTreeMap<String, Arc<File>>>,
}

impl FolderDisk {
    /// Takes the folder, and makes it if it is not there.
    ///
    /// # Errors
    /// It cannot be made or opened.
    pub fn open(path: &Path) -> io::Result<FolderDisk> {
        fs::create_dir_all(path)?;
        let folder = File::open(path)?;
        // The folder's own name must outlive a crash too.
        if let Some(parent) = path.canonicalize()?.parent() {
            File::open(parent)?.sync_all()?;
        }
        Ok(FolderDisk(Arc::new(Folder { path: path.to_owned(), folder, open: Mutex::default() })))
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path.join(file)
    }

    /// The open files. Held to look one up, never while a file is used.
    fn open_files(&self) -> MutexGuard<'_, BTreeMap<String, Arc<File>>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, name: &str) -> io::Result<Arc<File>> {
        if let Some(file) = self.open_files().get(name) {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(OpenOptions::new().read(true).write(true).open(self.path(name))?);
        self.open_files().insert(name.to_owned(), Arc::clone(&file));
        Ok(file)
    }

    fn make(&self, name: &str, bytes: u64) -> io::Result<()> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(self.path(name))?;
        if bytes > 0 {
            match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
                // Not every file system can; then the zeros take the space, one after the other.
                Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
                Err(error) => return Err(error.into()),
            }
            let zeros = vec![0; FILL_BYTES];
            let mut offset = 0;
            while offset < bytes {
                let length = usize::try_from(bytes - offset).unwrap_or(FILL_BYTES).min(FILL_BYTES);
                file.write_all_at(&zeros[..length], offset)?;
                file.sync_data()?;
                offset += length as u64;
            }
        }
        self.open_files().insert(name.to_owned(), Arc::new(file));
        Ok(())
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.0.path)? {
            // A name that is no text is not one of ours.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }
}

fn error(verb: Verb, file: &str) -> impl FnOnce(io::Error) -> DiskError {
    move |error| {
        let cause = match error.kind() {
            ErrorKind::NotFound => Cause::Missing,
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Cause::Full,
            _ => Cause::Failed(error.to_string()),
        };
        DiskError { verb, file: file.to_owned(), cause }
    }
}

impl Disk for FolderDisk {
    fn list(&mut self) -> Result<Vec<String>, DiskError> {
        self.names().map_err(error(Verb::List, &self.0.path.to_string_lossy()))
    }

    fn create(&mut self, file: &str, bytes: u64) -> Result<(), DiskError> {
        self.make(file, bytes).map_err(error(Verb::Create, file))
    }

    fn write(&mut self, file: &str, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.file(file).and_then(|open| open.write_all_at(bytes, offset)).map_err(error(Verb::Write, file))
    }

    fn read(&mut self, file: &str, offset: u64, buffer: &mut [u8]) -> Result<usize, DiskError> {
        let read_all = |open: Arc<File>| {
            let mut read = 0;
            while read < buffer.len() {
                match open.read_at(&mut buffer[read..], offset + read as u64) {
                    Ok(0) => break,
                    Ok(bytes) => read += bytes,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(read)
        };
        self.file(file).and_then(read_all).map_err(error(Verb::Read, file))
    }

    fn length(&mut self, file: &str) -> Result<u64, DiskError> {
        let length = self.file(file).and_then(|open| open.metadata());
        length.map(|metadata| metadata.len()).map_err(error(Verb::Measure, file))
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        fs::rename(self.path(from), self.path(to)).map_err(error(Verb::Rename, from))?;
        let mut open = self.open_files();
        match open.remove(from) {
            Some(file) => open.insert(to.to_owned(), file),
            None => open.remove(to),
        };
        Ok(())
    }

    fn remove(&mut self, file: &str) -> Result<(), DiskError> {
        self.open_files().remove(file);
        match fs::remove_file(self.path(file)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            result => result.map_err(error(Verb::Remove, file)),
        }
    }

    fn sync(&mut self, file: &str) -> Result<(), DiskError> {
        self.file(file).and_then(|open| open.sync_data()).map_err(error(Verb::Sync, file))
    }

    fn sync_folder(&mut self) -> Result<(), DiskError> {
        let result = self.0.folder.sync_all();
        result.map_err(error(Verb::SyncFolder, &self.0.path.to_string_lossy()))
    }
}

/// Runs the log's work beside the loop: a thread for syncs, and one for upkeep, so that no sync waits for
/// upkeep.
#[derive(Debug)]
pub struct WorkThreads {
    lanes: Option<[Sender<Work>; 2]>,
    finished: Receiver<(Work, Result<(), DiskError>)>,
    threads: Vec<JoinHandle<()>>,
}

impl WorkThreads {
    /// Starts both threads. `wake` is called whenever work is finished; it should end the loop's poll.
    ///
    /// # Errors
    /// The system has no threads left.
    pub fn start(disk: &FolderDisk, wake: impl Fn() + Clone + Send + 'static) -> io::Result<WorkThreads> {
        let (told, finished) = channel();
        let mut threads = Vec::new();
        let mut lane = |name: &str| -> io::Result<Sender<Work>> {
            let (begin, begun) = channel::<Work>();
            let (mut disk, told, wake) = (disk.clone(), told.clone(), wake.clone());
            threads.push(std::thread::Builder::new().name(name.to_owned()).spawn(move || {
                for work in begun {
                    let result = work.run(&mut disk);
                    // Nobody listens any more when the server ends.
                    let _ = told.send((work, result));
                    wake();
                }
            })?);
            Ok(begin)
        };
        let lanes = [lane("log-sync")?, lane("log-upkeep")?];
        Ok(WorkThreads { lanes: Some(lanes), finished, threads })
    }

    /// Hands work over. It returns at once.
    pub fn begin(&self, work: Work) {
        if let Some([sync, upkeep]) = &self.lanes {
            let lane = if work.lane() == Lane::Sync { sync } else { upkeep };
            // A lane ends only with this value.
            let _ = lane.send(work);
        }
    }

    /// Work that is done, and what came of it; for [`storage::Log::finished`].
    pub fn take_finished(&self) -> Option<(Work, Result<(), DiskError>)> {
        self.finished.try_recv().ok()
    }
}

impl Drop for WorkThreads {
    /// Waits for what was begun: no write may follow the release of the folder's lock.
    fn drop(&mut self) {
        self.lanes = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};
    use storage::{Identity, Log, Options, Outcome, open};

    fn empty_folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("quorate-disk-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    fn options() -> Options {
        Options {
            segment_bytes: 64 << 10,
            ..Options::new(Identity { cluster: 1, node: 1, worker: 0, log: 7 })
        }
    }

    /// Opens the log and gives what it tells.
    fn start(disk: &mut FolderDisk) -> (Log, Vec<(u16, Vec<u8>)>) {
        let mut entries = Vec::new();
        let opening = open(disk, options()).unwrap();
        let (log, _) = opening.replay(disk, |e| entries.push((e.kind, e.bytes.to_vec()))).unwrap();
        (log, entries)
    }

    #[test]
    fn a_log_is_kept_by_real_files_and_threads() {
        let path = empty_folder("log");
        let mut disk = FolderDisk::open(&path).unwrap();
        let (mut log, entries) = start(&mut disk);
        assert_eq!(entries, []);
        let threads = WorkThreads::start(&disk, || {}).unwrap();
        let started = Instant::now();
        let mut expected = Vec::new();
        let mut taken = false;
        // Enough for several segments, with a snapshot of group 2 in between.
        for kind in 0.. {
            if kind < 400 {
                log.append(1, kind, &[kind as u8; 500]);
                expected.push((kind, vec![kind as u8; 500]));
            }
            if kind == 100 {
                let end = log.end();
                let mut writer = log.begin_snapshot(&mut disk, 2, end).unwrap();
                log.append_snapshot(&mut disk, &mut writer, b"state").unwrap();
                log.commit_snapshot(&mut disk, writer).unwrap();
            }
            log.write(&mut disk).unwrap();
            log.begin_sync().unwrap().into_iter().for_each(|work| threads.begin(work));
            log.begin_upkeep().unwrap().into_iter().for_each(|work| threads.begin(work));
            while let Some((work, result)) = threads.take_finished() {
                taken |= matches!(log.finished(work, result).unwrap(), Outcome::SnapshotTaken(2, _));
            }
            if kind >= 400 && taken && log.durable() == log.end() {
                break;
            }
            assert!(started.elapsed() < Duration::from_secs(60), "durable up to {} only", log.durable());
            if kind >= 400 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        drop(threads);
        let mut disk = FolderDisk::open(&path).unwrap();
        assert_eq!(start(&mut disk).1, expected);
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn errors_are_told_by_name() {
        let path = empty_folder("errors");
        let mut disk = FolderDisk::open(&path).unwrap();
        let missing = disk.length("nothing").unwrap_err();
        assert_eq!(missing.cause, Cause::Missing);
        assert_eq!(missing.to_string(), "cannot find the length of nothing: there is no such file");
        assert_eq!(disk.remove("nothing"), Ok(()));
        // No disk has an exbibyte.
        let error = disk.create("file", 1 << 60).unwrap_err();
        assert_eq!(error.verb, Verb::Create);
        assert!(disk.list().unwrap().contains(&"file".to_owned()));
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_told_as_such() {
        let path = empty_folder("full");
        let mut disk = FolderDisk::open(&path).unwrap();
        // The system's own file that is always full.
        std::os::unix::fs::symlink("/dev/full", path.join("segment")).unwrap();
        let error = disk.write("segment", 0, b"bytes").unwrap_err();
        assert_eq!(error.to_string(), "cannot write segment: the disk is full");
        assert!(error.is_only_full());
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_file_takes_the_place_of_another_with_all_that_is_in_it() {
        let path = empty_folder("rename");
        let mut disk = FolderDisk::open(&path).unwrap();
        for (file, bytes) in [("old", &b"old"[..]), ("new", b"new!")] {
            disk.create(file, 0).unwrap();
            disk.write(file, 0, bytes).unwrap();
            disk.sync(file).unwrap();
        }
        disk.rename("new", "old").unwrap();
        disk.sync_folder().unwrap();
        let mut buffer = [0; 8];
        assert_eq!(disk.read("old", 0, &mut buffer), Ok(4));
        assert_eq!(&buffer[..4], b"new!");
        assert_eq!(disk.read("old", 4, &mut buffer), Ok(0));
        assert_eq!(disk.list().unwrap(), ["old"]);
        disk.create("zeros", 3 << 20).unwrap();
        assert_eq!(disk.length("zeros"), Ok(3 << 20));
        fs::remove_dir_all(&path).unwrap();
    }
}
