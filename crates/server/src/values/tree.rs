//! A log-structured merge tree of large values: `fjall`.
//!
//! When one of its own threads meets an error, a full disk above all, fjall refuses everything until it is reopened, and
//! does not say why; and it blocks a writer that is too far ahead of these threads, forever if they have ended. So every
//! write here first waits until they have caught up, checking that they still work.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fjall::{Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode};
use storage::ValueName;
use storage::values::NAME_BYTES;

/// How many bytes of recent writes the tree keeps in memory before it sorts them into a file. A few times as many at most.
const MEMTABLE_BYTES: u64 = 8 << 20;

/// How many bytes of its files' indexes, which locate values, it keeps in memory. Values themselves are cached
/// elsewhere.
const CACHE_BYTES: u64 = 8 << 20;

/// Values longer than this are not sorted with their names but kept in separate files, so that they are seldom written
/// again.
const SEPARATED_BYTES: u32 = 1024;

/// Writes wait while this many sealed tables in memory, or this many of the newest files, wait for the tree's threads.
const WAITING_TABLES: usize = 2;
const WAITING_FILES: usize = 16;

/// How long to wait before checking the tree's threads again.
const PAUSE: Duration = Duration::from_millis(5);

/// The tree's threads are considered stuck when they make no progress for this long.
const PATIENCE: Duration = Duration::from_secs(120);

/// An open tree. Several threads read from it, and one changes it.
///
/// What was put or removed survives a crash of the process when the call returns, and a crash of the machine once it was
/// persisted. A writer is never blocked forever: when the tree's own threads make no progress, the write fails.
pub(super) struct Tree {
    database: Database,
    values: Keyspace,
}

impl Tree {
    /// Opens the tree in this folder, and creates it if there is none.
    pub(super) fn open(folder: &Path) -> Result<Tree, TreeError> {
        remove_half_made(folder).map_err(|error| TreeError::from(fjall::Error::Io(error)))?;
        let database = Database::builder(folder).cache_size(CACHE_BYTES).worker_threads(2).open()?;
        let separation = KvSeparationOptions::default().separation_threshold(SEPARATED_BYTES);
        let options = || {
            let options = KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES);
            options.with_kv_separation(Some(separation.clone()))
        };
        let values = database.keyspace("values", options)?;
        Ok(Tree { database, values })
    }

    /// Puts all of these values, or none.
    pub(super) fn put(&self, values: &[(ValueName, Arc<Vec<u8>>)]) -> Result<(), TreeError> {
        self.catch_up()?;
        let mut batch = self.database.batch().durability(Some(PersistMode::Buffer));
        for (name, value) in values {
            batch.insert(&self.values, name.0, value.as_slice());
        }
        Ok(batch.commit()?)
    }

    /// Returns the value of that name, if there is one.
    pub(super) fn get(&self, name: &ValueName) -> Result<Option<Vec<u8>>, TreeError> {
        Ok(self.values.get(name.0)?.map(|value| value.to_vec()))
    }

    /// Removes all of these values, or none.
    pub(super) fn remove(&self, names: &[ValueName]) -> Result<(), TreeError> {
        self.catch_up()?;
        let mut batch = self.database.batch().durability(Some(PersistMode::Buffer));
        names.iter().for_each(|name| batch.remove(&self.values, name.0));
        Ok(batch.commit()?)
    }

    /// Returns when everything done before is durable.
    pub(super) fn persist(&self) -> Result<(), TreeError> {
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }

    /// Calls `each` with every name from `from` on, in ascending order and without reading the values, until it returns
    /// false.
    pub(super) fn names(
        &self,
        from: &ValueName,
        each: &mut dyn FnMut(ValueName) -> bool,
    ) -> Result<(), TreeError> {
        for item in self.values.range(from.0..) {
            if let Ok(name) = <[u8; NAME_BYTES]>::try_from(&*item.key()?)
                && !each(ValueName(name))
            {
                break;
            }
        }
        Ok(())
    }

    /// Waits in short steps until the tree's threads have caught up. Fails once [`PATIENCE`] has passed.
    fn catch_up(&self) -> Result<(), TreeError> {
        let since = Instant::now();
        while self.values.sealed_memtable_count() >= WAITING_TABLES
            || self.values.l0_table_count() >= WAITING_FILES
        {
            // This fails if they no longer work.
            self.database.persist(PersistMode::Buffer)?;
            if since.elapsed() > PATIENCE {
                let seconds = PATIENCE.as_secs();
                return Err(TreeError::Failed(format!("its threads have made no progress for {seconds} s")));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

/// Removes what a process left behind that crashed while creating the tree; otherwise the tree could not be created
/// again. The file `version` is written last, before any value is put; a folder that contains trees is left alone.
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

/// Why the tree failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TreeError {
    /// There is no room on the disk.
    Full,
    /// One of its own threads has met an error before, which the tree does not report.
    Stopped(String),
    /// Any other error, in its own words.
    Failed(String),
}

/// Returns the system's error behind one of the tree's, if there is one.
fn io_error(error: &fjall::Error) -> Option<&io::Error> {
    match error {
        fjall::Error::Io(error) => Some(error),
        fjall::Error::Storage(error) => std::error::Error::source(error)?.downcast_ref(),
        _ => None,
    }
}

impl From<fjall::Error> for TreeError {
    fn from(error: fjall::Error) -> TreeError {
        match io_error(&error) {
            Some(io) if matches!(io.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
                TreeError::Full
            }
            _ if matches!(error, fjall::Error::Poisoned) => TreeError::Stopped(error.to_string()),
            _ => TreeError::Failed(error.to_string()),
        }
    }
}
