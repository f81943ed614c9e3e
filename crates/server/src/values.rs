//! Large values on the disk: a store that is a log-structured merge tree, and the threads on which it is used.
//!
//! The tree is `fjall`. What it promises is enough, since the node's log is the truth: what was put outlives the process,
//! and the machine once it was persisted. Two things of it need care. When a thread of its own meets an error, a full disk
//! above all, it refuses everything until it is opened anew; and a writer that is too far ahead of these threads is held
//! up, for ever if they have ended. So whoever puts waits here until they have caught up, and looks whether they still
//! work; after any error the tree is opened anew before it is used again. And there is always room left for what the tree
//! does by itself: values are refused before the disk is full.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fjall::{Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode};
use storage::values::NAME_BYTES;
use storage::{Cause, DiskError, ValueName, ValueStore, ValueWork, Verb};

/// What the tree keeps in memory of what was put last, before it sorts it into files. A few times as much at most.
const MEMTABLE_BYTES: u64 = 8 << 20;

/// What it keeps in memory of its files: where values are. Values themselves are cached elsewhere.
const CACHE_BYTES: u64 = 8 << 20;

/// Longer values are not sorted with their names, but stand in files of their own, so that they are seldom written again.
const SEPARATED_BYTES: u32 = 1024;

/// The least room that is left on the disk for what the tree does by itself, or a part of the disk if that is less.
const RESERVE_BYTES: u64 = 128 << 20;
const RESERVE_PART: u64 = 10;

/// While so many tables of the tree's memory, or of its newest files, wait for its threads, nothing more is put.
const WAITING_TABLES: usize = 2;
const WAITING_FILES: usize = 16;

/// How long to wait before looking again.
const PAUSE: Duration = Duration::from_millis(5);

/// The tree's threads are taken to be stuck when they have not got on for so long.
const PATIENCE: Duration = Duration::from_secs(120);

/// Threads that read.
const READERS: usize = 2;

/// The store of one node. Clones share it.
#[derive(Clone)]
pub struct TreeValues {
    path: PathBuf,
    /// None while it is not open: it is opened when it is first needed, and again after an error.
    open: Arc<RwLock<Option<Open>>>,
}

struct Open {
    database: Database,
    values: Keyspace,
}

impl TreeValues {
    /// The store in this folder. It is not opened, or made, before it is used.
    pub fn new(path: &Path) -> TreeValues {
        TreeValues { path: path.to_owned(), open: Arc::default() }
    }

    fn try_open(&self) -> fjall::Result<Open> {
        let is_new = !self.path.exists();
        remove_half_made(&self.path)?;
        let database = Database::builder(&self.path).cache_size(CACHE_BYTES).worker_threads(2).open()?;
        let separation = KvSeparationOptions::default().separation_threshold(SEPARATED_BYTES);
        let options = || {
            let options = KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES);
            options.with_kv_separation(Some(separation.clone()))
        };
        let values = database.keyspace("values", options)?;
        // The folder's own name must outlive a crash too.
        if let Some(parent) = self.path.parent().filter(|_| is_new) {
            File::open(parent)?.sync_all()?;
        }
        Ok(Open { database, values })
    }

    fn error(&self, verb: Verb, error: &fjall::Error) -> DiskError {
        let cause = match io_error(error) {
            Some(io) if matches!(io.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => Cause::Full,
            // What has gone wrong in one of its threads is not told: a lack of room is the usual reason.
            _ if matches!(error, fjall::Error::Poisoned) && !self.has_room(0) => Cause::Full,
            _ => Cause::Failed(error.to_string()),
        };
        DiskError { verb, file: self.path.display().to_string(), cause }
    }

    fn full(&self, verb: Verb) -> DiskError {
        DiskError { verb, file: self.path.display().to_string(), cause: Cause::Full }
    }

    /// Whether there is room for so many bytes, and for what the tree does by itself.
    fn has_room(&self, bytes: u64) -> bool {
        let exists = self.path.ancestors().find(|path| path.exists());
        let Some(Ok(disk)) = exists.map(rustix::fs::statvfs) else { return true };
        let reserve = RESERVE_BYTES.min(disk.f_blocks * disk.f_frsize / RESERVE_PART);
        disk.f_bavail * disk.f_frsize >= reserve + bytes
    }

    /// Uses the tree, which is opened if it is not open. After an error it is closed.
    fn with<T>(&self, verb: Verb, run: impl Fn(&Open) -> fjall::Result<T>) -> Result<T, DiskError> {
        if let Some(open) = self.open.read().unwrap_or_else(PoisonError::into_inner).as_ref() {
            match run(open) {
                Ok(done) => return Ok(done),
                // A read that fails says nothing of the rest.
                Err(error) if verb == Verb::Read => return Err(self.error(verb, &error)),
                Err(_) => {}
            }
        }
        let mut place = self.open.write().unwrap_or_else(PoisonError::into_inner);
        *place = None;
        let open = self.try_open().map_err(|error| self.error(Verb::Create, &error))?;
        let done = run(&open);
        if done.is_ok() {
            *place = Some(open);
        }
        done.map_err(|error| self.error(verb, &error))
    }

    fn is_there(&self) -> bool {
        self.path.exists()
    }
}

/// Removes what a process left behind that died while it made the tree, which could not be made again over that. The file
/// `version` comes last, and nothing is put before; what has trees in it is left as it is.
fn remove_half_made(folder: &Path) -> io::Result<()> {
    let is_whole = fs::metadata(folder.join("version")).is_ok_and(|file| file.len() > 0);
    let has_trees = fs::read_dir(folder.join("keyspaces")).is_ok_and(|mut trees| trees.next().is_some());
    if is_whole || has_trees {
        return Ok(());
    }
    for name in ["version", "0.jnl", "lock"] {
        match fs::remove_file(folder.join(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The error of the system behind one of the tree's, if there is one.
fn io_error(error: &fjall::Error) -> Option<&io::Error> {
    match error {
        fjall::Error::Io(error) => Some(error),
        fjall::Error::Storage(error) => std::error::Error::source(error)?.downcast_ref(),
        _ => None,
    }
}

/// Waits until the tree's threads have caught up.
fn catch_up(open: &Open) -> fjall::Result<()> {
    let since = Instant::now();
    while open.values.sealed_memtable_count() >= WAITING_TABLES
        || open.values.l0_table_count() >= WAITING_FILES
    {
        // It tells whether they still work.
        open.database.persist(PersistMode::Buffer)?;
        if since.elapsed() > PATIENCE {
            return Err(io::Error::from(ErrorKind::TimedOut).into());
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

impl ValueStore for TreeValues {
    fn put(&mut self, values: &[(ValueName, Arc<Vec<u8>>)]) -> Result<(), DiskError> {
        if values.is_empty() {
            return Ok(());
        }
        let bytes: u64 = values.iter().map(|(_, value)| value.len() as u64).sum();
        if !self.has_room(bytes) {
            return Err(self.full(Verb::Write));
        }
        self.with(Verb::Write, |open| {
            catch_up(open)?;
            let mut batch = open.database.batch().durability(Some(PersistMode::Buffer));
            for (name, value) in values {
                batch.insert(&open.values, name.0, value.as_slice());
            }
            batch.commit()
        })
    }

    fn get(&mut self, name: &ValueName) -> Result<Option<Vec<u8>>, DiskError> {
        if !self.is_there() {
            return Ok(None);
        }
        self.with(Verb::Read, |open| Ok(open.values.get(name.0)?.map(|value| value.to_vec())))
    }

    fn remove(&mut self, names: &[ValueName]) -> Result<(), DiskError> {
        if names.is_empty() || !self.is_there() {
            return Ok(());
        }
        self.with(Verb::Write, |open| {
            catch_up(open)?;
            let mut batch = open.database.batch().durability(Some(PersistMode::Buffer));
            names.iter().for_each(|name| batch.remove(&open.values, name.0));
            batch.commit()
        })
    }

    fn persist(&mut self) -> Result<(), DiskError> {
        if !self.is_there() {
            return Ok(());
        }
        // Not tried again: after a sync that failed, one that succeeds proves nothing.
        let place = self.open.read().unwrap_or_else(PoisonError::into_inner);
        match place.as_ref() {
            Some(open) => {
                open.database.persist(PersistMode::SyncAll).map_err(|error| self.error(Verb::Sync, &error))
            }
            None => {
                drop(place);
                self.with(Verb::Sync, |open| open.database.persist(PersistMode::SyncAll))
            }
        }
    }

    fn names(&mut self, each: &mut dyn FnMut(ValueName)) -> Result<(), DiskError> {
        if !self.is_there() {
            return Ok(());
        }
        self.with(Verb::List, |open| Ok(open.values.iter()))?.try_for_each(|item| {
            let key = item.key().map_err(|error| self.error(Verb::List, &error))?;
            if let Ok(name) = <[u8; NAME_BYTES]>::try_from(&*key) {
                each(ValueName(name));
            }
            Ok(())
        })
    }
}

/// What came of a piece of work.
type Finished = (ValueWork, Result<Option<Vec<u8>>, DiskError>);

/// Uses the store beside the loop: a thread for what changes it, in order, and some that read.
pub struct ValueThreads {
    lanes: Option<[Sender<ValueWork>; 2]>,
    finished: Receiver<Finished>,
    threads: Vec<JoinHandle<()>>,
}

impl ValueThreads {
    /// Starts the threads. `wake` is called whenever work is finished; it should end the loop's poll.
    ///
    /// # Errors
    /// The system has no threads left.
    pub fn start(store: &TreeValues, wake: impl Fn() + Clone + Send + 'static) -> io::Result<ValueThreads> {
        let (told, finished) = channel();
        let mut threads = Vec::new();
        let mut lane = |name: &str, count: usize| -> io::Result<Sender<ValueWork>> {
            let (begin, begun) = channel::<ValueWork>();
            let begun = Arc::new(Mutex::new(begun));
            for _ in 0..count {
                let (mut store, told, wake, begun) =
                    (store.clone(), told.clone(), wake.clone(), Arc::clone(&begun));
                threads.push(std::thread::Builder::new().name(name.to_owned()).spawn(move || {
                    loop {
                        // Whoever waits holds the lock; it is free as soon as there is work.
                        let work = begun.lock().unwrap_or_else(PoisonError::into_inner).recv();
                        let Ok(work) = work else { return };
                        let result = work.run(&mut store);
                        // Nobody listens any more when the server ends.
                        let _ = told.send((work, result));
                        wake();
                    }
                })?);
            }
            Ok(begin)
        };
        let lanes = [lane("values-write", 1)?, lane("values-read", READERS)?];
        Ok(ValueThreads { lanes: Some(lanes), finished, threads })
    }

    /// Hands work over. It returns at once.
    pub fn begin(&self, work: ValueWork) {
        if let Some([write, read]) = &self.lanes {
            // A lane ends only with this value.
            let _ = if work.is_read() { read.send(work) } else { write.send(work) };
        }
    }

    /// Work that is done, and what came of it.
    pub fn take_finished(&self) -> Option<Finished> {
        self.finished.try_recv().ok()
    }
}

impl Drop for ValueThreads {
    /// Waits for what was begun: no write may follow the release of the folder's lock.
    fn drop(&mut self) {
        self.lanes = None;
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("quorate-values-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        path
    }

    fn name(number: u32) -> ValueName {
        let mut name = [0; NAME_BYTES];
        name[..4].copy_from_slice(&number.to_be_bytes());
        ValueName(name)
    }

    fn value(number: u32) -> Arc<Vec<u8>> {
        Arc::new(number.to_le_bytes().repeat(300 * (1 + number as usize % 2)))
    }

    fn names(store: &mut TreeValues) -> Vec<ValueName> {
        let mut names = Vec::new();
        store.names(&mut |name| names.push(name)).unwrap();
        names
    }

    #[test]
    fn a_store_is_made_over_one_that_was_not_made_to_its_end() {
        let path = folder("half-made");
        // In this order the tree makes them.
        for steps in 0..=4 {
            fs::create_dir_all(&path).unwrap();
            for step in ["lock", "keyspaces", "0.jnl", "version"].iter().take(steps) {
                match *step {
                    "keyspaces" => fs::create_dir(path.join(step)).unwrap(),
                    file => fs::write(path.join(file), "").unwrap(),
                }
            }
            let mut store = TreeValues::new(&path);
            store.put(&[(name(1), value(1))]).unwrap();
            assert_eq!(store.get(&name(1)).unwrap(), Some(value(1).to_vec()), "after {steps} steps");
            drop(store);
            fs::remove_dir_all(&path).unwrap();
        }
    }

    #[test]
    fn values_outlive_the_store_that_put_them() {
        let path = folder("outlive");
        let mut store = TreeValues::new(&path);
        assert_eq!((store.get(&name(1)).unwrap(), names(&mut store)), (None, vec![]));
        assert!(!path.exists(), "nothing is made before there is something to keep");
        let values: Vec<_> = (0..100).map(|number| (name(number), value(number))).collect();
        store.put(&values).unwrap();
        store.persist().unwrap();
        store.remove(&[name(3), name(4)]).unwrap();
        drop(store);
        let mut store = TreeValues::new(&path);
        assert_eq!(store.get(&name(7)).unwrap(), Some(value(7).to_vec()));
        assert_eq!(store.get(&name(4)).unwrap(), None);
        assert_eq!(names(&mut store).len(), 98);
        assert!(names(&mut store).is_sorted());
        drop(store);
        std::fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn more_than_the_tree_keeps_in_memory_is_put_and_removed() {
        let path = folder("more");
        let mut store = TreeValues::new(&path);
        let large = Arc::new(vec![7; 64 << 10]);
        for round in 0..8 {
            let values: Vec<_> =
                (0..64).map(|number| (name(round * 64 + number), Arc::clone(&large))).collect();
            store.put(&values).unwrap();
        }
        let removed: Vec<_> = (0..500).map(name).collect();
        store.remove(&removed).unwrap();
        assert_eq!(names(&mut store), (500..512).map(name).collect::<Vec<_>>());
        assert_eq!(store.get(&name(511)).unwrap(), Some(large.to_vec()));
        drop(store);
        std::fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn work_is_done_beside_the_loop() {
        let path = folder("threads");
        let (wake, woken) = channel();
        let threads = ValueThreads::start(&TreeValues::new(&path), move || {
            let _ = wake.send(());
        })
        .unwrap();
        threads.begin(ValueWork::Put(vec![(name(1), value(1))]));
        woken.recv().unwrap();
        assert!(matches!(threads.take_finished(), Some((ValueWork::Put(_), Ok(None)))));
        threads.begin(ValueWork::Get(name(1)));
        woken.recv().unwrap();
        let (_, result) = threads.take_finished().unwrap();
        assert_eq!(result.unwrap(), Some(value(1).to_vec()));
        drop(threads);
        std::fs::remove_dir_all(&path).unwrap();
    }
}
