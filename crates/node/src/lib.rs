//! One node, sans-I/O: keyspaces, groups, routing and forwarding, and clients' sessions.
//!
//! A [`Node`] takes client requests, frames from peers and the time, and leaves replies and frames in buffers. Its
//! caller owns the sockets, the clock and the files: the server in production, a simulator in tests.
//!
//! Reading order: `node` (turns and clients), `requests` (which command a request is, and which node runs it),
//! `routing` (requests to groups, and outcomes back), `peers` (what nodes send each other), `keyspace` (prefixes and
//! promises), `session` (replies in order), `transactions` (what is queued after `MULTI`), `scripts` (`EVAL`), `locks`
//! (clients that wait for one), `channels` (subscribers).

mod cache;
mod channels;
mod clients;
mod clock;
mod cluster;
mod coding;
pub mod command;
mod configuration;
mod context;
pub mod control;
mod delays;
mod describe;
mod envelope;
mod forwarding;
mod gather;
mod groups;
mod guard;
mod info;
mod journal;
mod keyspace;
mod locks;
mod log;
mod long;
mod long_replies;
mod memory;
mod node;
mod notes;
mod operators;
mod origin;
mod output;
mod parameters;
mod peers;
mod quarantine;
mod replica;
mod report;
mod room;
mod routing;
mod scripts;
mod session;
mod setting;
mod slab;
pub mod slots;
mod transactions;
mod unfinished;
mod usage;
mod values;
mod words;
mod work;

pub use coding::Parts;
pub use configuration::{Configuration, DebugCommand, NodeAddress, ProcessFacts, StorageSettings};
pub use describe::{GroupDescription, KeyspaceDescription};
pub use envelope::{fragment_message, payload_words, replica_message};
pub use guard::AuthGuard;
pub use keyspace::Keyspace;
pub use log::{Level, Line};
pub use long::LONG_COMMAND_BYTES;
pub use node::{Node, StartError};
pub use output::Output;
pub use parameters::Parameters;
pub use protocol::NodeId;
pub use quarantine::{Notebook, Past};
pub use report::{Health, KeyspaceHealth};
pub use session::{ClientId, ClientKind};
pub use setting::{Protocol, Reads, Setting, Storage};
pub use usage::Usage;
pub use words::{HOST_BYTES_MAX, check_host, one_line};

/// The version of Redis whose commands, texts and formats this node follows.
pub const REDIS_VERSION: &str = "7.0.15";

/// The version of Quorate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns the interpreter that runs the scripts of every replica, for callers that run one without a node: fuzzing,
/// measurements.
pub fn interpreter() -> &'static dyn kv::Interpreter {
    &scripts::LUA
}
