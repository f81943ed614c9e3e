//! Large values on the disk: a store that is a log-structured merge tree, and the threads on which it is used.
//!
//! The guarantees of the tree (`fjall`) suffice, since the node's log is the truth: what was put survives a crash of the
//! process, and survives a crash of the machine once it was persisted. A tree whose own threads have met an error, a full
//! disk above all, accepts nothing until it is reopened, so after any error it is reopened before it is used again. And some
//! room is always left for the tree's own work: values are refused before the disk is full.
//!
//! Reading order: `tree`, here (the store), `threads`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::{Result, ensure};
use storage::{Cause, DiskError, ValueName, ValueStore, Verb};

#[cfg(test)]
mod tests;
mod threads;
mod tree;

pub use threads::ValueThreads;
use tree::{Tree, TreeError};

/// The minimum room left on the disk for the tree's own work, in bytes, or a part of the disk if that is less.
const RESERVE_BYTES: u64 = 128 << 20;
const RESERVE_PART: u64 = 10;

/// Files that RocksDB creates before it keeps anything, and fjall never.
const ROCKSDB_FILES: [&str; 2] = ["CURRENT", "IDENTITY"];

/// The store of one node. Clones share it.
#[derive(Clone)]
pub struct TreeValues {
    path: PathBuf,
    /// None while it is not open: it is opened when it is first needed, and again after an error.
    tree: Arc<RwLock<Option<Tree>>>,
}

impl TreeValues {
    /// Creates the store of this folder. The tree is opened, or created, only when it is used.
    ///
    /// # Errors
    /// RocksDB has kept values in the folder, as it could in earlier versions; a sentence says what to do.
    pub fn new(path: &Path) -> Result<TreeValues> {
        ensure!(
            !ROCKSDB_FILES.iter().any(|file| path.join(file).exists()),
            "the values in {} were written by RocksDB, which this version cannot read: start this node with an empty data \
             folder and admit it again (quorate node replace ID), which copies everything from the others",
            path.display()
        );
        Ok(TreeValues { path: path.to_owned(), tree: Arc::default() })
    }

    fn open(&self) -> Result<Tree, TreeError> {
        let is_new = !self.path.exists();
        let tree = Tree::open(&self.path)?;
        // The folder's own name must survive a crash too.
        if let Some(parent) = self.path.parent().filter(|_| is_new) {
            let synced = File::open(parent).and_then(|folder| folder.sync_all());
            synced.map_err(|error| TreeError::Failed(error.to_string()))?;
        }
        Ok(tree)
    }

    fn error(&self, verb: Verb, error: TreeError) -> DiskError {
        let cause = match error {
            TreeError::Full => Cause::Full,
            // Lack of room is the usual reason.
            TreeError::Stopped(_) if !self.has_room(0) => Cause::Full,
            TreeError::Stopped(why) | TreeError::Failed(why) => Cause::Failed(why),
        };
        DiskError { verb, file: self.path.display().to_string(), cause }
    }

    /// Whether there is room for `bytes` bytes, and for the tree's own work.
    fn has_room(&self, bytes: u64) -> bool {
        let exists = self.path.ancestors().find(|path| path.exists());
        let Some(Ok(disk)) = exists.map(rustix::fs::statvfs) else { return true };
        let reserve = RESERVE_BYTES.min(disk.f_blocks * disk.f_frsize / RESERVE_PART);
        disk.f_bavail * disk.f_frsize >= reserve + bytes
    }

    /// Runs an operation on the tree, opening it if necessary. After an error the tree is closed, except after a failed
    /// read, which says nothing about the rest.
    fn with<T>(
        &self,
        verb: Verb,
        mut run: impl FnMut(&Tree) -> Result<T, TreeError>,
    ) -> Result<T, DiskError> {
        let only_reads = matches!(verb, Verb::Read | Verb::List);
        let mut has_failed = false;
        if let Some(tree) = self.tree.read().unwrap_or_else(PoisonError::into_inner).as_ref() {
            match run(tree) {
                Ok(done) => return Ok(done),
                Err(error) if only_reads => return Err(self.error(verb, error)),
                Err(_) => has_failed = true,
            }
        }
        let mut place = self.tree.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have opened it in the meantime. The old tree is closed before a new one is opened: there
        // is only ever one.
        let tree = match place.take().filter(|_| !has_failed) {
            Some(tree) => tree,
            None => self.open().map_err(|error| self.error(Verb::Create, error))?,
        };
        let done = run(&tree);
        if done.is_ok() || only_reads {
            *place = Some(tree);
        }
        done.map_err(|error| self.error(verb, error))
    }

    fn is_there(&self) -> bool {
        self.path.exists()
    }
}

impl ValueStore for TreeValues {
    fn put(&mut self, values: &[(ValueName, Arc<Vec<u8>>)]) -> Result<(), DiskError> {
        if values.is_empty() {
            return Ok(());
        }
        let bytes: u64 = values.iter().map(|(_, value)| value.len() as u64).sum();
        if !self.has_room(bytes) {
            return Err(self.error(Verb::Write, TreeError::Full));
        }
        self.with(Verb::Write, |tree| tree.put(values))
    }

    fn get(&mut self, name: &ValueName) -> Result<Option<Vec<u8>>, DiskError> {
        if !self.is_there() {
            return Ok(None);
        }
        self.with(Verb::Read, |tree| tree.get(name))
    }

    fn remove(&mut self, names: &[ValueName]) -> Result<(), DiskError> {
        if names.is_empty() || !self.is_there() {
            return Ok(());
        }
        self.with(Verb::Write, |tree| tree.remove(names))
    }

    fn persist(&mut self) -> Result<(), DiskError> {
        if !self.is_there() {
            return Ok(());
        }
        // Not tried again: after a failed sync, a sync that succeeds proves nothing.
        let place = self.tree.read().unwrap_or_else(PoisonError::into_inner);
        match place.as_ref() {
            Some(tree) => tree.persist().map_err(|error| self.error(Verb::Sync, error)),
            None => {
                drop(place);
                self.with(Verb::Sync, |tree| tree.persist())
            }
        }
    }

    fn names(&mut self, from: &ValueName, each: &mut dyn FnMut(ValueName) -> bool) -> Result<(), DiskError> {
        if !self.is_there() {
            return Ok(());
        }
        self.with(Verb::List, |tree| tree.names(from, each))
    }
}
