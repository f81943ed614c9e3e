//! What the store of large values asks of a log-structured merge tree, whichever it is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use storage::ValueName;

/// What a tree keeps in memory of what was put last, before it sorts it into files. A few times as much at most.
pub(super) const MEMTABLE_BYTES: usize = 8 << 20;

/// What it keeps in memory of its files: where values are. Values themselves are cached elsewhere.
pub(super) const CACHE_BYTES: usize = 8 << 20;

/// Longer values are not sorted with their names, but stand in files of their own, so that they are seldom written again.
pub(super) const SEPARATED_BYTES: u32 = 1024;

/// A tree that is open. Several threads read from it, and one changes it.
///
/// What was put or removed outlives the process when the call returns, and the machine once it was persisted. A writer is
/// never held up for ever: when the tree's own threads do not get on, it is told ([`Wait`]).
pub(super) trait Tree: Send + Sync {
    /// Puts all of these values, or none.
    fn put(&self, values: &[(ValueName, Arc<Vec<u8>>)]) -> Result<(), TreeError>;

    /// A value, if there is one of that name.
    fn get(&self, name: &ValueName) -> Result<Option<Vec<u8>>, TreeError>;

    /// Removes all of these values, or none.
    fn remove(&self, names: &[ValueName]) -> Result<(), TreeError>;

    /// Returns when everything before is safe.
    fn persist(&self) -> Result<(), TreeError>;

    /// Tells all names, in ascending order, without reading the values.
    fn names(&self, each: &mut dyn FnMut(ValueName)) -> Result<(), TreeError>;
}

/// What a tree could not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TreeError {
    /// There is no room on the disk.
    Full,
    /// One of its own threads has met an error before, and it is not told which.
    Stopped(String),
    /// Anything else, in its own words.
    Failed(String),
}

/// How long to wait before looking again.
const PAUSE: Duration = Duration::from_millis(5);

/// A tree's threads are taken to be stuck when they have not got on for so long.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits for a tree's threads, a moment at a time, and not for ever.
pub(super) struct Wait {
    since: Instant,
}

impl Wait {
    pub(super) fn begin() -> Wait {
        Wait { since: Instant::now() }
    }

    /// Waits for a moment, unless it was long enough.
    pub(super) fn a_moment(&self) -> Result<(), TreeError> {
        if self.since.elapsed() > PATIENCE {
            let seconds = PATIENCE.as_secs();
            return Err(TreeError::Failed(format!("its threads have not got on for {seconds} s")));
        }
        std::thread::sleep(PAUSE);
        Ok(())
    }
}
