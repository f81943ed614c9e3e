//! The write-ahead log of one worker, shared by its groups, and the snapshots that bound it.
//!
//! Sans-I/O: everything here works on a [`Disk`] passed in by the caller, the real one or a simulated one that loses, tears,
//! flips and refuses. Slow operations, syncs above all, are handed out as [`Work`] to run beside the worker's loop, so that
//! clients that only read never wait for them.
//!
//! # The promise
//!
//! * An entry below [`Log::durable`] survives every crash, at its position.
//! * After a crash the log is a prefix of what was appended. It contains nothing that was not written.
//! * Anything that a crash cannot have caused is damage. The log refuses it, naming file and byte, and never cuts it off or
//!   guesses.
//! * After the first write or sync that failed, every call of the log returns that error.
//!
//! [`tail`](mod@crate::tail) describes how a torn tail is distinguished from damage. The layouts are in `format`; what they rest
//! `docs/design/storage.md`.
//!
//! # Positions
//!
//! A position is the number of bytes of log before it: batches and their headers count, the headers of segments and unused space
//! do not. So an entry's position says where the entry is (segment and byte, by one subtraction, without an index), how far apart
//! two entries are on the disk, and, compared with [`Log::durable`], whether the entry is safe. Positions only grow, across
//! restarts too.
//!
//! Reading order: [`disk`] (what a disk does), [`work`] (what runs beside the loop), [`format`](mod@format) (the layout of
//! the files), [`log`] (append, write, sync), [`upkeep`](mod@crate::log::upkeep) (new segments, committing snapshots, removing
//! old segments), [`snapshot`](mod@crate::log::snapshot), [`opening`] and `replay` (startup), `tail` (what a crash left). Disks for tests and
//! simulations are [`memory`] and [`simulated`]. Large values are not in the log's files: [`values`](mod@values).

pub mod disk;
pub mod error;
pub mod format;
pub mod identity;
pub mod log;
pub mod memory;
pub mod opening;
pub mod planted;
pub mod simulated;
pub mod simulated_values;
pub mod tail;
pub mod values;
pub mod work;

mod floors;
mod replay;
mod reserve;

pub use disk::{Cause, Disk, DiskError, Verb};
pub use error::{Damage, StorageError};
pub use format::{Entry, Identity};
pub use log::snapshot::{SnapshotReader, SnapshotWriter};
pub use log::upkeep::Outcome;
pub use log::{Log, Options};
pub use memory::MemoryDisk;
pub use opening::{Opening, Replayed, open};
pub use tail::Torn;
pub use values::{ValueName, ValueOutcome, ValueResult, ValueStore, ValueWork};
pub use work::{Step, Work};

/// A place in the log: the number of bytes of log before it. See the [crate]'s page.
pub type Position = u64;

/// The number of one of the groups that share the log.
pub type Group = u16;
