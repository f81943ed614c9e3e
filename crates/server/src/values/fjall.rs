//! Large values in `fjall`.
//!
//! When one of its own threads meets an error, a full disk above all, fjall refuses everything until it is reopened, and
//! does not say why; and it blocks a writer that is too far ahead of these threads, forever if they have ended. So every
//! write here first waits until they have caught up, checking that they still work.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode};
use storage::ValueName;
use storage::values::NAME_BYTES;

use super::tree::{CACHE_BYTES, MEMTABLE_BYTES, SEPARATED_BYTES, Tree, TreeError, Wait};

/// Writes wait while this many sealed tables in memory, or this many of the newest files, wait for the tree's threads.
const WAITING_TABLES: usize = 2;
const WAITING_FILES: usize = 16;

pub(super) struct Fjall {
    database: Database,
    values: Keyspace,
}

impl Fjall {
    pub(super) fn open(folder: &Path) -> Result<Fjall, TreeError> {
        remove_half_made(folder).map_err(|error| TreeError::from(fjall::Error::Io(error)))?;
        let database = Database::builder(folder).cache_size(CACHE_BYTES as u64).worker_threads(2).open()?;
        let separation = KvSeparationOptions::default().separation_threshold(SEPARATED_BYTES);
        let options = || {
            let options = KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES as u64);
            options.with_kv_separation(Some(separation.clone()))
        };
        let values = database.keyspace("values", options)?;
        Ok(Fjall { database, values })
    }

    /// Waits until the tree's threads have caught up.
    fn catch_up(&self) -> Result<(), TreeError> {
        let wait = Wait::begin();
        while self.values.sealed_memtable_count() >= WAITING_TABLES
            || self.values.l0_table_count() >= WAITING_FILES
        {
            // This fails if they no longer work.
            self.database.persist(PersistMode::Buffer)?;
            wait.a_moment()?;
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

impl Tree for Fjall {
    fn put(&self, values: &[(ValueName, Arc<Vec<u8>>)]) -> Result<(), TreeError> {
        self.catch_up()?;
        let mut batch = self.database.batch().durability(Some(PersistMode::Buffer));
        for (name, value) in values {
            batch.insert(&self.values, name.0, value.as_slice());
        }
        Ok(batch.commit()?)
    }

    fn get(&self, name: &ValueName) -> Result<Option<Vec<u8>>, TreeError> {
        Ok(self.values.get(name.0)?.map(|value| value.to_vec()))
    }

    fn remove(&self, names: &[ValueName]) -> Result<(), TreeError> {
        self.catch_up()?;
        let mut batch = self.database.batch().durability(Some(PersistMode::Buffer));
        names.iter().for_each(|name| batch.remove(&self.values, name.0));
        Ok(batch.commit()?)
    }

    fn persist(&self) -> Result<(), TreeError> {
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }

    fn names(&self, from: &ValueName, each: &mut dyn FnMut(ValueName) -> bool) -> Result<(), TreeError> {
        for item in self.values.range(from.0..) {
            if let Ok(name) = <[u8; NAME_BYTES]>::try_from(&*item.key()?)
                && !each(ValueName(name))
            {
                break;
            }
        }
        Ok(())
    }
}
