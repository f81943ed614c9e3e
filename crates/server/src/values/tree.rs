//! The interface between the store of large values and a log-structured merge tree of any engine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use storage::ValueName;

/// How many bytes of recent writes a tree keeps in memory before it sorts them into a file. A few times as many at most.
pub(super) const MEMTABLE_BYTES: usize = 8 << 20;

/// How many bytes of its files' indexes, which locate values, it keeps in memory. Values themselves are cached
/// elsewhere.
pub(super) const CACHE_BYTES: usize = 8 << 20;

/// Values longer than this are not sorted with their names but kept in separate files, so that they are seldom written
/// again.
pub(super) const SEPARATED_BYTES: u32 = 1024;

/// An open tree. Several threads read from it, and one changes it.
///
/// What was put or removed survives a crash of the process when the call returns, and a crash of the machine once it was
/// persisted. A writer is never blocked forever: when the tree's own threads make no progress, the write fails
/// ([`Wait`]).
pub(super) trait Tree: Send + Sync {
    /// Puts all of these values, or none.
    fn put(&self, values: &[(ValueName, Arc<Vec<u8>>)]) -> Result<(), TreeError>;

    /// Returns the value of that name, if there is one.
    fn get(&self, name: &ValueName) -> Result<Option<Vec<u8>>, TreeError>;

    /// Removes all of these values, or none.
    fn remove(&self, names: &[ValueName]) -> Result<(), TreeError>;

    /// Returns when everything done before is durable.
    fn persist(&self) -> Result<(), TreeError>;

    /// Calls `each` with every name from `from` on, in ascending order and without reading the values, until it returns
    /// false.
    fn names(&self, from: &ValueName, each: &mut dyn FnMut(ValueName) -> bool) -> Result<(), TreeError>;
}

/// Why a tree failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TreeError {
    /// There is no room on the disk.
    Full,
    /// One of its own threads has met an error before, which the tree does not report.
    Stopped(String),
    /// Any other error, in its own words.
    Failed(String),
}

/// How long to wait before checking again.
const PAUSE: Duration = Duration::from_millis(5);

/// A tree's threads are considered stuck when they make no progress for this long.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits for a tree's threads in short steps, with a timeout.
pub(super) struct Wait {
    since: Instant,
}

impl Wait {
    pub(super) fn begin() -> Wait {
        Wait { since: Instant::now() }
    }

    /// Waits for one step. Fails once [`PATIENCE`] has passed.
    pub(super) fn a_moment(&self) -> Result<(), TreeError> {
        if self.since.elapsed() > PATIENCE {
            let seconds = PATIENCE.as_secs();
            return Err(TreeError::Failed(format!("its threads have made no progress for {seconds} s")));
        }
        std::thread::sleep(PAUSE);
        Ok(())
    }
}
