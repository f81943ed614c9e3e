//! The real disk: a folder of files, and the threads on which syncs run beside the worker's loop.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::Deref;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate};
use storage::format::BLOCK_BYTES;
use storage::work::Lane;
use storage::{Cause, Disk, DiskError, Verb, Work};

use crate::reading::Reading;
use crate::thread;

/// A new file is filled with zeros in pieces of this many bytes, each synced before the next, so that the syncs that
/// commands wait for never queue behind 64 MiB of zeros.
const FILL_BYTES: usize = 512 << 10;

/// If the page cache must hold the zeros, they are written in pieces of this many bytes. A cache may keep each piece as one
/// large page, and the larger a page, the more every later write into it costs.
const CACHED_FILL_BYTES: usize = 16 << 10;

/// Direct writes are split into pieces of this many bytes, because each may be copied to aligned memory.
const DIRECT_PIECE_BYTES: usize = 2 << 20;

/// A large file is removed in steps of this many bytes, with a pause after each, to leave the disk to others in between: a
/// file system may inform the device of all freed blocks at once, and every sync waits until the device is done.
const REMOVED_BYTES: u64 = 1 << 20;

/// A pause is this many times as long as the step before it.
const REMOVAL_PAUSES: u32 = 4;

/// The longest pause after a step of a slow operation.
const PAUSE: Duration = Duration::from_millis(5);

/// Pause between two pieces when filling a file. It ends early when the log has grown by a quarter of a piece: then the next
/// segment will be needed soon, and if it is late the current one has to grow, which is expensive for a file system.
const FILL_PAUSE: Duration = Duration::from_millis(8);
const FILL_LOOK: Duration = Duration::from_millis(1);

/// How often all files are looked at, whether somebody has removed or shortened them. The file that is synced is looked at
/// each time.
const LOOK_FOR_FILES: Duration = Duration::from_secs(1);

/// The files of one folder. Clones share their open files, so that each thread may have one.
///
/// What is synced at once is written past the page cache where the file system supports it ([`Disk::write_through`]): the
/// log is not read before the next start, and the cache would use memory for everything ever written.
#[derive(Debug)]
pub struct FolderDisk {
    folder: Arc<Folder>,
    /// Bytes written past the page cache must be aligned to a block in memory too; unaligned ones are copied here.
    aligned: Vec<u8>,
    /// Slow operations are done in steps, with pauses in which others use the disk; nothing waits for them.
    is_patient: bool,
    /// When all files were looked at last.
    looked: Instant,
    /// While the node reads its log, how far it is.
    reading: Option<Reading>,
}

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// The open folder, to sync it.
    folder: File,
    open: Mutex<BTreeMap<String, Arc<Opened>>>,
    /// Bytes written through clones that are not patient.
    written: AtomicU64,
    /// The node is ending, and waits for operations that would otherwise be patient.
    is_ending: AtomicBool,
    /// The same files, opened to be written past the page cache. None for a file that the file system does not open so.
    direct: Mutex<BTreeMap<String, Option<Arc<File>>>>,
}

/// An open file.
#[derive(Debug)]
struct Opened {
    file: File,
    /// What its length must be at least: it is created, written and cut by this process alone.
    least_bytes: AtomicU64,
}

impl Deref for Opened {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Opened {
    fn new(file: File) -> io::Result<Opened> {
        let least_bytes = AtomicU64::new(file.metadata()?.len());
        Ok(Opened { file, least_bytes })
    }

    /// Notes that bytes were written.
    fn note_written(&self, offset: u64, bytes: &[u8]) {
        self.least_bytes.fetch_max(offset + bytes.len() as u64, Ordering::SeqCst);
    }

    /// Checks that the file still exists, and has not been shortened by another program.
    fn check(&self) -> io::Result<()> {
        let found = self.file.metadata()?;
        if found.nlink() == 0 {
            return Err(io::Error::other(
                "somebody has removed this file while the node runs: what is written to it would be lost with the process, \
                 so the node ends, and acknowledges nothing more",
            ));
        }
        let least = self.least_bytes.load(Ordering::SeqCst);
        // Measured again, since another thread may have written to it in between.
        if found.len() < least && self.file.metadata()?.len() < least {
            return Err(io::Error::other(
                "somebody has shortened this file while the node runs: a part of it is lost, so the node ends, and acknowledges \
                 nothing more. Its next start says what is damaged",
            ));
        }
        Ok(())
    }
}

impl Clone for FolderDisk {
    fn clone(&self) -> FolderDisk {
        let (folder, is_patient) = (Arc::clone(&self.folder), self.is_patient);
        FolderDisk { folder, aligned: Vec::new(), is_patient, looked: self.looked, reading: None }
    }
}

impl FolderDisk {
    /// Opens the folder, and creates it if it does not exist.
    ///
    /// # Errors
    /// The folder cannot be created or opened.
    pub fn open(path: &Path) -> io::Result<FolderDisk> {
        fs::create_dir_all(path)?;
        let folder = File::open(path)?;
        // The folder's own name must survive a crash too.
        if let Some(parent) = path.canonicalize()?.parent() {
            File::open(parent)?.sync_all()?;
        }
        let path = path.to_owned();
        let (open, direct) = (Mutex::default(), Mutex::default());
        let (written, is_ending) = (AtomicU64::new(0), AtomicBool::new(false));
        let folder = Folder { path, folder, open, direct, written, is_ending };
        let folder = Arc::new(folder);
        Ok(FolderDisk {
            folder,
            aligned: Vec::new(),
            is_patient: false,
            looked: Instant::now(),
            reading: None,
        })
    }

    /// Logs from now on, every two seconds, how much of the files has been read.
    pub(crate) fn begin_reading(&mut self) {
        let lengths = self
            .names()
            .unwrap_or_default()
            .into_iter()
            .filter_map(|name| fs::metadata(self.path(&name)).ok());
        self.reading = Some(Reading::begin(lengths.map(|file| file.len()).sum(), Instant::now()));
    }

    /// The node has read its log.
    pub(crate) fn end_reading(&mut self) {
        self.reading = None;
    }

    /// How many bytes the node may still write to the disk; `None` if the file system does not say.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        let disk = rustix::fs::statvfs(&self.folder.path).ok().filter(|disk| disk.f_blocks > 0)?;
        Some(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path.join(file)
    }

    /// The open files. The lock is held only while a file is looked up, never while one is used.
    fn open_files(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Opened>>> {
        self.folder.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn direct_files(&self) -> MutexGuard<'_, BTreeMap<String, Option<Arc<File>>>> {
        self.folder.direct.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, name: &str) -> io::Result<Arc<Opened>> {
        if let Some(file) = self.open_files().get(name) {
            return Ok(Arc::clone(file));
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let file = Arc::new(Opened::new(open_patiently(&options, &self.path(name))?)?);
        self.open_files().insert(name.to_owned(), Arc::clone(&file));
        Ok(file)
    }

    /// The file, opened to be written past the page cache, if the file system supports that.
    fn direct_file(&self, name: &str) -> Option<Arc<File>> {
        if let Some(file) = self.direct_files().get(name) {
            return file.clone();
        }
        let file = match open_direct(&self.path(name)) {
            Ok(file) => Some(Arc::new(file)),
            Err(error) if is_not_direct(&error) => None,
            // Any other error, such as too many open files, may be temporary.
            Err(_) => return None,
        };
        self.direct_files().insert(name.to_owned(), file.clone());
        file
    }

    /// Writes whole blocks past the page cache. Returns false when that is not possible; some of the bytes may have
    /// been written then.
    fn write_direct(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<bool> {
        let is_whole = offset.is_multiple_of(BLOCK_BYTES as u64) && bytes.len().is_multiple_of(BLOCK_BYTES);
        let Some(file) = is_whole.then(|| self.direct_file(name)).flatten() else { return Ok(false) };
        for (piece, offset) in bytes.chunks(DIRECT_PIECE_BYTES).zip((offset..).step_by(DIRECT_PIECE_BYTES)) {
            match file.write_all_at(in_blocks(&mut self.aligned, piece), offset) {
                Ok(()) => {}
                // A file system may open a file in this way and still require another alignment in memory.
                Err(error) if is_not_direct(&error) => {
                    self.direct_files().insert(name.to_owned(), None);
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(open) = self.open_files().get(name) {
            open.note_written(offset, bytes);
        }
        Ok(true)
    }

    /// The bytes that this process may still write to the disk, and the disk's size. Both are 0 if the disk has no
    /// size.
    pub fn room(&self) -> (u64, u64) {
        let Ok(disk) = rustix::fs::statvfs(&self.folder.path) else { return (0, 0) };
        (disk.f_bavail.saturating_mul(disk.f_frsize), disk.f_blocks.saturating_mul(disk.f_frsize))
    }

    /// Checks that the disk has room for `bytes` bytes before they are allocated. Otherwise a failing allocation would
    /// take all the room that is left, and until it failed other writers would have none.
    fn check_room(&self, bytes: u64) -> io::Result<()> {
        // Some file systems have no size at all, such as those in memory.
        match self.free_bytes().is_some_and(|free| free < bytes) {
            true => Err(ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }

    /// Creates a file of zeros. They are written only if `is_filled`.
    fn make(&mut self, name: &str, bytes: u64, is_filled: bool) -> io::Result<()> {
        self.check_room(bytes)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        // First: a file that is replaced is empty now, which must not look as if somebody else had shortened it.
        self.open_files().remove(name);
        let file = open_patiently(&options, &self.path(name))?;
        self.direct_files().remove(name);
        if bytes > 0 {
            let is_allocated = match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
                Ok(()) => true,
                // Not every file system supports this; then the zeros allocate the space as they are written.
                Err(rustix::io::Errno::OPNOTSUPP) => false,
                Err(error) => return Err(error.into()),
            };
            // Aligned, so that the zeros can be written directly.
            let zeros = vec![0; FILL_BYTES + BLOCK_BYTES];
            let start = zeros.as_ptr().align_offset(BLOCK_BYTES).min(BLOCK_BYTES);
            let zeros = &zeros[start..start + FILL_BYTES];
            let mut offset = 0;
            while offset < bytes && (is_filled || !is_allocated) {
                let written = self.folder.written.load(Ordering::Relaxed);
                let length = usize::try_from(bytes - offset).unwrap_or(FILL_BYTES).min(FILL_BYTES);
                if !self.write_direct(name, offset, &zeros[..length])? {
                    for (piece, offset) in
                        zeros[..length].chunks(CACHED_FILL_BYTES).zip((offset..).step_by(CACHED_FILL_BYTES))
                    {
                        file.write_all_at(piece, offset)?;
                    }
                }
                file.sync_data()?;
                offset += length as u64;
                if self.is_patient() {
                    self.wait_for_growth(written + length as u64 / 4);
                }
            }
        }
        self.open_files().insert(name.to_owned(), Arc::new(Opened::new(file)?));
        Ok(())
    }

    /// Ends all pauses: the node is ending.
    pub fn hurry(&self) {
        self.folder.is_ending.store(true, Ordering::Relaxed);
    }

    /// Whether to leave disk time to others.
    fn is_patient(&self) -> bool {
        self.is_patient && !self.folder.is_ending.load(Ordering::Relaxed)
    }

    /// Counts bytes written to the log.
    fn note_growth(&self, bytes: &[u8]) {
        if !self.is_patient {
            self.folder.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
    }

    /// Waits until `written` bytes were written, for at most [`FILL_PAUSE`].
    fn wait_for_growth(&self, written: u64) {
        let begun = Instant::now();
        while begun.elapsed() < FILL_PAUSE && self.folder.written.load(Ordering::Relaxed) < written {
            std::thread::sleep(FILL_LOOK);
        }
    }

    /// Shortens a file, step by step if others are using the disk.
    fn shrink(&self, name: &str, bytes: u64) -> io::Result<()> {
        let file = self.file(name)?;
        let mut length = file.metadata()?.len();
        while length > bytes {
            let step = if self.is_patient() { REMOVED_BYTES } else { u64::MAX };
            length = length.saturating_sub(step).max(bytes);
            let begun = Instant::now();
            file.least_bytes.store(length, Ordering::SeqCst);
            file.set_len(length)?;
            if length > bytes {
                std::thread::sleep(begun.elapsed() * REMOVAL_PAUSES);
            }
        }
        Ok(())
    }

    /// Checks that no file was removed or shortened by somebody else. A file that has no name any more can still be written
    /// and synced, but is gone with the process.
    fn check_files(&mut self) -> Result<(), DiskError> {
        self.looked = Instant::now();
        let files = self.open_files();
        files.iter().try_for_each(|(name, file)| file.check().map_err(error(Verb::Measure, name)))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.folder.path)? {
            // A name that is not text is not one of ours.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }
}

/// Opens a file. If the system has no descriptor left, which can change at any moment, tries several times.
fn open_patiently(options: &OpenOptions, path: &Path) -> io::Result<File> {
    const TRIES: u32 = 50;
    let mut tried = 0;
    loop {
        match options.open(path) {
            Err(error) if is_out_of_descriptors(&error) && tried < TRIES => {
                if tried == 0 {
                    tracing::warn!(
                        "no file descriptor is left for {}: {error}; trying again",
                        path.display()
                    );
                }
                tried += 1;
                std::thread::sleep(PAUSE);
            }
            result => return result,
        }
    }
}

/// Whether the process, or the machine, has as many files open as it may have.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    matches!(code, Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE))
}

#[cfg(target_os = "linux")]
fn open_direct(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
    OpenOptions::new().write(true).custom_flags(flags).open(path)
}

#[cfg(not(target_os = "linux"))]
fn open_direct(_: &Path) -> io::Result<File> {
    Err(ErrorKind::Unsupported.into())
}

/// Whether the file system cannot write past the page cache.
fn is_not_direct(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported)
}

/// Returns the bytes at an address that is a multiple of a block; without copying, if they are aligned already.
fn in_blocks<'a>(buffer: &'a mut Vec<u8>, bytes: &'a [u8]) -> &'a [u8] {
    if bytes.as_ptr().align_offset(BLOCK_BYTES) == 0 {
        return bytes;
    }
    if buffer.len() < bytes.len() + BLOCK_BYTES {
        buffer.resize(bytes.len() + BLOCK_BYTES, 0);
    }
    let start = buffer.as_ptr().align_offset(BLOCK_BYTES).min(BLOCK_BYTES);
    let place = &mut buffer[start..start + bytes.len()];
    place.copy_from_slice(bytes);
    place
}

fn error(verb: Verb, file: &str) -> impl FnOnce(io::Error) -> DiskError {
    move |error| {
        let cause = match error.kind() {
            ErrorKind::NotFound => Cause::Missing,
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Cause::Full,
            // As for a full disk: nothing is known to be lost, and it may succeed later.
            _ if is_out_of_descriptors(&error) => Cause::Full,
            _ => Cause::Failed(error.to_string()),
        };
        DiskError { verb, file: file.to_owned(), cause }
    }
}

impl Disk for FolderDisk {
    fn list(&mut self) -> Result<Vec<String>, DiskError> {
        self.names().map_err(error(Verb::List, &self.folder.path.to_string_lossy()))
    }

    fn create(&mut self, file: &str, bytes: u64) -> Result<(), DiskError> {
        self.make(file, bytes, true).map_err(error(Verb::Create, file))
    }

    fn reserve(&mut self, file: &str, bytes: u64) -> Result<(), DiskError> {
        self.make(file, bytes, false).map_err(error(Verb::Create, file))
    }

    fn write(&mut self, file: &str, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let written = self.file(file).and_then(|open| {
            open.write_all_at(bytes, offset)?;
            open.note_written(offset, bytes);
            Ok(())
        });
        self.note_growth(bytes);
        written.map_err(error(Verb::Write, file))?;
        if !self.is_patient && self.looked.elapsed() >= LOOK_FOR_FILES {
            self.check_files()?;
        }
        Ok(())
    }

    fn write_through(&mut self, file: &str, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let begun = Instant::now();
        if self.write_direct(file, offset, bytes).map_err(error(Verb::Write, file))? {
            self.note_growth(bytes);
            if !self.is_patient && begun.duration_since(self.looked) >= LOOK_FOR_FILES {
                self.check_files()?;
            }
        } else {
            self.write(file, offset, bytes)?;
            // Writes that nothing waits for must not accumulate in the cache: the next sync of another file would have to
            // write them all.
            if self.is_patient {
                self.sync(file)?;
            }
        }
        // Half of the time is left to others.
        if self.is_patient() {
            std::thread::sleep(begun.elapsed().min(PAUSE));
        }
        Ok(())
    }

    fn cut(&mut self, file: &str, bytes: u64) -> Result<(), DiskError> {
        self.shrink(file, bytes).map_err(error(Verb::Cut, file))
    }

    fn read(&mut self, file: &str, offset: u64, buffer: &mut [u8]) -> Result<usize, DiskError> {
        let read_all = |open: Arc<Opened>| {
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
        let read = self.file(file).and_then(read_all).map_err(error(Verb::Read, file))?;
        if let Some(line) = self.reading.as_mut().and_then(|reading| reading.note(read, Instant::now())) {
            tracing::info!("{line}");
        }
        Ok(read)
    }

    fn length(&mut self, file: &str) -> Result<u64, DiskError> {
        let length = self.file(file).and_then(|open| open.metadata());
        length.map(|metadata| metadata.len()).map_err(error(Verb::Measure, file))
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        // First: a file that is replaced has no name any more, which must not look as if somebody else had removed it.
        self.open_files().remove(to);
        fs::rename(self.path(from), self.path(to)).map_err(error(Verb::Rename, from))?;
        let mut open = self.open_files();
        if let Some(file) = open.remove(from) {
            open.insert(to.to_owned(), file);
        }
        drop(open);
        let mut direct = self.direct_files();
        direct.remove(from);
        direct.remove(to);
        Ok(())
    }

    fn remove(&mut self, file: &str) -> Result<(), DiskError> {
        if self.is_patient() {
            // A file that cannot be shortened can still be removed, or removing it reports why not.
            let _ = self.shrink(file, 0);
        }
        self.open_files().remove(file);
        self.direct_files().remove(file);
        match fs::remove_file(self.path(file)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            result => result.map_err(error(Verb::Remove, file)),
        }
    }

    fn sync(&mut self, file: &str) -> Result<(), DiskError> {
        let synced = self.file(file).and_then(|open| open.sync_data().and_then(|()| open.check()));
        synced.map_err(error(Verb::Sync, file))
    }

    fn sync_folder(&mut self) -> Result<(), DiskError> {
        let result = self.folder.folder.sync_all();
        result.map_err(error(Verb::SyncFolder, &self.folder.path.to_string_lossy()))
    }
}

/// Work that is finished.
#[derive(Debug)]
pub struct FinishedWork {
    /// The work, and its result, for [`storage::Log::finished`].
    pub work: Work,
    /// See `work`.
    pub result: Result<(), DiskError>,
    /// How long it ran, not counting the time that it waited for its thread.
    pub took: Duration,
}

/// Runs the log's work beside the loop: one thread for syncs and one for upkeep, so that no sync waits for upkeep.
#[derive(Debug)]
pub struct WorkThreads {
    lanes: Option<[Sender<Work>; 2]>,
    finished: Receiver<FinishedWork>,
    /// How much work has begun whose end was not taken.
    under_way: usize,
    threads: Vec<JoinHandle<()>>,
}

impl WorkThreads {
    /// Starts both threads. `wake` is called whenever work is finished; it should end the loop's poll.
    ///
    /// # Errors
    /// The system has no threads left.
    pub fn start(disk: &FolderDisk, wake: impl Fn() + Clone + Send + 'static) -> io::Result<WorkThreads> {
        let (sender, finished) = channel();
        let mut threads = Vec::new();
        let mut lane = |name: &str, is_patient: bool| -> io::Result<Sender<Work>> {
            let (begin, begun) = channel::<Work>();
            let (mut disk, sender, wake) = (disk.clone(), sender.clone(), wake.clone());
            disk.is_patient = is_patient;
            threads.push(thread::start(name, move || {
                for work in begun {
                    let begun = Instant::now();
                    let result = work.run(&mut disk);
                    // There is no receiver any more when the server ends.
                    let _ = sender.send(FinishedWork { work, result, took: begun.elapsed() });
                    wake();
                }
            })?);
            Ok(begin)
        };
        let lanes = [lane("log-sync", false)?, lane("log-upkeep", true)?];
        Ok(WorkThreads { lanes: Some(lanes), finished, under_way: 0, threads })
    }

    /// Hands work over. Returns at once.
    pub fn begin(&mut self, work: Work) {
        self.under_way += 1;
        if let Some([sync, upkeep]) = &self.lanes {
            let lane = if work.lane() == Lane::Sync { sync } else { upkeep };
            // A lane ends only when this value is dropped.
            let _ = lane.send(work);
        }
    }

    /// Returns work that is finished, once.
    #[inline]
    pub fn take_finished(&mut self) -> Option<FinishedWork> {
        if self.under_way == 0 {
            return None;
        }
        let finished = self.finished.try_recv().ok()?;
        self.under_way -= 1;
        Some(finished)
    }
}

impl Drop for WorkThreads {
    /// Waits for work that has begun: no write may follow the release of the folder's lock.
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

    /// Opens the log and returns it with the entries that it replays.
    fn start(disk: &mut FolderDisk) -> (Log, Vec<(u16, Vec<u8>)>) {
        let mut entries = Vec::new();
        let opening = open(disk, options()).unwrap();
        let (log, _) = opening.replay(disk, |e| entries.push((e.kind, e.bytes.to_vec()))).unwrap();
        (log, entries)
    }

    #[test]
    fn a_file_that_somebody_else_removes_is_missed() {
        let path = empty_folder("removed");
        let mut disk = FolderDisk::open(&path).unwrap();
        disk.create("a", 4096).unwrap();
        disk.create("b", 4096).unwrap();
        disk.rename("b", "a").unwrap();
        disk.create("b", 4096).unwrap();
        assert_eq!(disk.check_files(), Ok(()));
        fs::remove_file(path.join("a")).unwrap();
        let missed = disk.check_files().unwrap_err();
        assert!(missed.file == "a" && missed.to_string().contains("somebody has removed"), "{missed}");
        assert_eq!(disk.sync("b"), Ok(()));
        disk.write("a", 0, b"x").unwrap();
        assert!(disk.sync("a").unwrap_err().to_string().contains("somebody has removed"));
        // Where nothing is synced, writes look from time to time, at all files.
        disk.looked -= LOOK_FOR_FILES;
        assert!(disk.write("b", 0, b"x").unwrap_err().to_string().contains("somebody has removed"));
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_file_that_somebody_else_shortens_is_missed() {
        let path = empty_folder("shortened");
        let mut disk = FolderDisk::open(&path).unwrap();
        disk.create("a", 8192).unwrap();
        disk.write("a", 8192, b"longer").unwrap();
        disk.cut("a", 4096).unwrap();
        assert_eq!(disk.sync("a"), Ok(()), "cut by the node");
        disk.create("a", 8192).unwrap();
        assert_eq!(disk.check_files(), Ok(()), "made again");
        OpenOptions::new().write(true).open(path.join("a")).unwrap().set_len(4096).unwrap();
        let missed = disk.check_files().unwrap_err();
        assert!(missed.file == "a" && missed.to_string().contains("somebody has shortened"), "{missed}");
        disk.write("a", 0, b"x").unwrap();
        assert!(disk.sync("a").unwrap_err().to_string().contains("somebody has shortened"));
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_log_works_with_real_files_and_threads() {
        let path = empty_folder("log");
        let mut disk = FolderDisk::open(&path).unwrap();
        let (mut log, entries) = start(&mut disk);
        assert_eq!(entries, []);
        let mut threads = WorkThreads::start(&disk, || {}).unwrap();
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
                let mut writer = log.begin_snapshot(2, end).unwrap();
                log.append_snapshot(&mut writer, b"state").unwrap();
                log.commit_snapshot(writer).unwrap();
            }
            log.write(&mut disk).unwrap();
            log.begin_sync().unwrap().into_iter().for_each(|work| threads.begin(work));
            log.begin_upkeep().unwrap().into_iter().for_each(|work| threads.begin(work));
            while let Some(FinishedWork { work, result, .. }) = threads.take_finished() {
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
    fn errors_name_the_file_and_the_cause() {
        let path = empty_folder("errors");
        let mut disk = FolderDisk::open(&path).unwrap();
        let missing = disk.length("nothing").unwrap_err();
        assert_eq!(missing.cause, Cause::Missing);
        assert_eq!(missing.to_string(), "cannot find the length of nothing: there is no such file");
        assert_eq!(disk.remove("nothing"), Ok(()));
        // No disk has an exbibyte.
        let error = disk.create("file", 1 << 60).unwrap_err();
        assert_eq!(error.to_string(), "cannot create file: the disk is full");
        assert!(disk.list().unwrap().is_empty(), "it takes no room");
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_reported_as_full() {
        let path = empty_folder("full");
        let mut disk = FolderDisk::open(&path).unwrap();
        // A system file that is always full.
        std::os::unix::fs::symlink("/dev/full", path.join("segment")).unwrap();
        let error = disk.write("segment", 0, b"bytes").unwrap_err();
        assert_eq!(error.to_string(), "cannot write segment: the disk is full");
        assert!(error.is_only_full());
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn direct_writes_read_back_whole_blocks_or_not() {
        let path = empty_folder("through");
        let mut disk = FolderDisk::open(&path).unwrap();
        disk.create("file", 64 << 10).unwrap();
        let mut expected = vec![0; 64 << 10];
        let blocks = BLOCK_BYTES as u64;
        // Whole blocks, one of them twice; parts of blocks, as at the end of a file that has grown.
        for (offset, length, byte) in [
            (0, 3 * BLOCK_BYTES, 1),
            (blocks, BLOCK_BYTES, 2),
            (5 * blocks, 100, 3),
            (5 * blocks + 100, 8192, 4),
        ] {
            disk.write_through("file", offset, &vec![byte; length]).unwrap();
            disk.sync("file").unwrap();
            expected[offset as usize..offset as usize + length].fill(byte);
            let mut found = vec![9; 64 << 10];
            assert_eq!(disk.read("file", 0, &mut found), Ok(64 << 10));
            assert!(found == expected, "after {length} bytes at {offset}");
        }
        // Measurements of direct writes are valid only where the file system supports them.
        if open_direct(&path.join("file")).is_ok() {
            assert!(disk.write_direct("file", blocks, &[2; BLOCK_BYTES]).unwrap());
        } else {
            println!("this folder's file system has no way past the page cache");
        }
        // Alternately past the page cache and through it.
        disk.write("file", 2 * blocks + 7, b"cached").unwrap();
        disk.write_through("file", 3 * blocks, &[5; BLOCK_BYTES]).unwrap();
        let mut found = [0; 6];
        assert_eq!(disk.read("file", 2 * blocks + 7, &mut found), Ok(6));
        assert_eq!(&found, b"cached");
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_file_created_again_holds_only_zeros() {
        const BYTES: usize = 3 << 20;
        let path = empty_folder("again");
        let mut disk = FolderDisk::open(&path).unwrap();
        for bytes in [BYTES, BYTES / 2, 2 * BYTES, 0] {
            disk.create("file", bytes as u64).unwrap();
            assert!(fs::read(path.join("file")).unwrap() == vec![0; bytes], "{bytes} zeros");
            disk.write_through("file", 0, &[7; BYTES]).unwrap();
        }
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_large_file_is_cut_and_removed_as_a_small_one_is() {
        let path = empty_folder("large");
        let mut disk = FolderDisk { is_patient: true, ..FolderDisk::open(&path).unwrap() };
        for bytes in [10, 3 * REMOVED_BYTES + 5] {
            disk.create("file", 0).unwrap();
            disk.write("file", bytes - 1, &[7]).unwrap();
            disk.cut("file", bytes + 1).unwrap();
            assert_eq!(disk.length("file"), Ok(bytes));
            disk.cut("file", bytes - 3).unwrap();
            assert_eq!(disk.length("file"), Ok(bytes - 3));
            disk.remove("file").unwrap();
            assert_eq!(disk.list().unwrap(), Vec::<String>::new());
        }
        disk.remove("file").unwrap();
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_renamed_file_replaces_another_with_its_contents() {
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
