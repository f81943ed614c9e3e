//! Commands, replies, versions, expiry and the in-memory table: the deterministic state machine.
//!
//! Everything here is a pure function of its inputs. The table is told the time and the version of each
//! write; it reads no clock and draws no random number. Two tables that were given the same records hold
//! the same keys, values, versions and deadlines.
//!
//! Reading order: [`Command`] (what can be asked), [`Reply`] (what is answered), [`Table`] (what is kept), [`locks`].

pub mod codec;
pub mod coded;
pub mod command;
pub mod glob;
mod interpreter;
pub mod limits;
pub mod locks;
pub mod number;
pub mod reply;
mod shared;
pub mod table;
mod watch;

pub use coded::{Coordinator, Reference, ValueId, ValueRef, View};
pub use command::{
    Command, Comparison, Condition, Deadline, Draft, Expiry, Fenced, HashCommand, HashPart, Hold, Known,
    List, LockCommand, Script, ScriptLimits, SetAnswer, Supplied, Transaction, WaiterId, Watched,
};
pub use interpreter::{Interpreter, NoInterpreter};
pub use reply::{Announcement, Reply, ReplyBuffer};
pub use shared::SharedBytes;
pub use table::{Register, SnapshotId, Statistics, Table};
pub use watch::{RecordName, Watch};

/// Orders the writes of a key: a replication offset, a log index, or an ABD tag's counter.
pub type Version = u64;

/// Milliseconds since the Unix epoch, as the group's leader saw them.
pub type UnixMs = u64;
