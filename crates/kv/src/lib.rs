//! Commands, replies, versions, expiry and the in-memory table: the deterministic state machine.
//!
//! Everything here is a pure function of its inputs. The caller passes in the time and the version of each write; the
//! table reads no clock and draws no random number. Two tables that have applied the same records hold the same keys,
//! values, versions and deadlines.
//!
//! Reading order: [`Command`] (requests), [`Reply`] (answers), [`Table`] (the data), [`locks`].

pub mod codec;
pub mod coded;
pub mod command;
pub mod digest;
pub mod geo;
pub mod glob;
pub mod limits;
pub mod locks;
pub mod number;
pub mod planted;
pub mod queues;
mod range;
pub mod reply;
mod shared;
mod sketch;
pub mod table;
pub mod two_phase;
mod watch;

pub use coded::{Coordinator, Reference, ValueId, ValueRef, View};
pub use command::{
    AddOptions, Age, Aggregate, Answer, Bounded, By, BytesCommand, Command, Comparison, Condition, Deadline,
    Draft, Expiry, Fenced, Foreseen, HashCommand, HashPart, Header, Hold, Kinds, Known, List, ListCommand,
    LockCommand, Looked, NewId, Padded, QueueCommand, RestoreOptions, Script, ScriptLimits, ScriptOptions,
    SetAnswer, SetCommand, SetOperation, Share, Sizes, SortCommand, SortedCommand, StreamCommand, StreamId,
    Supplied, Transaction, TransactionId, Trim, TwoPhaseCommand, WaiterId, Watched, WhenFull, Wish,
};
pub use reply::{Announcement, Lent, LongReadId, Reads, Reply, ReplyBuffer};
pub use shared::SharedBytes;
pub use table::{BLOCKED, Interpreter, NoInterpreter, Register, SnapshotId, Statistics, Table};
pub use watch::{RecordName, Watch};

/// Orders the writes of a key: a replication offset, a log index, or the counter of an ABD tag.
pub type Version = u64;

/// How many versions are skipped when acknowledged records were lost for good ([`Command::SkipVersions`]): more than could
/// ever be lost, as many as a million writes a second make in twelve days. A double can still count exactly thousands of
/// times as many.
pub const SKIPPED_VERSIONS: Version = 1 << 40;

/// Milliseconds since the Unix epoch, by the clock of the group's leader.
pub type UnixMs = u64;
