//! One node, sans-I/O: groups, routing and forwarding, and clients' sessions.
//!
//! A [`Node`] takes client requests, frames from peers and the time, and leaves replies and frames in buffers. Its
//! caller owns the sockets, the clock and the files: the server in production, a simulator in tests.
//!
//! What clients may send is in the crate `commands`, what a cluster agrees on in `cluster`, and Lua in `scripts`.
//!
//! Reading order: `node` (the turn, and how a request gets to a group and back), `requests` and `transactions` (what
//! a client's request needs of which groups), `mapping` (what a new map changes), `context` (what the components
//! share, and their calls to the node), `session` (replies in order), then the
//! components: `forwarding` (requests that other nodes carry out, and those that wait), `waits` (clients that wait
//! for locks and elements), `channels` (subscribers), `membership` (this node's part in the control group, which
//! is in the crate `cluster`), `coding` and `values` (large values), `long` (long commands), `following` (readers of changes),
//! `quarantine`, `clock`, `asking` (information that only one node has), `recent` (recent events), `history`
//! (figures of the last day).

mod asking;
mod cache;
mod channels;
mod checkpoints;
mod clock;
mod coding;
mod commits;
mod completing;
mod connections;
mod context;
mod databases;
mod envelope;
mod events;
mod eviction;
mod following;
mod forwarding;
mod gates;
mod gather;
mod granted;
mod groups;
mod guard;
mod handovers;
mod history;
mod journal;

mod lock_list;
mod log;
mod long;
mod mapping;
mod membership;
mod node;
mod notes;
mod operators;
mod origin;
mod output;
mod parameters;
mod quarantine;
mod recent;
mod replica;
mod requests;
mod scripting;
mod session;
mod slab;
mod slow;
mod spans;
mod start_error;
mod transactions;
mod transfer;
mod unfinished;
mod values;
mod waits;

pub use cluster::words::{HOST_BYTES_MAX, check_host, of_toml, one_line};
pub use cluster::{
    Configuration, DebugCommand, Keyspace, LONG_COMMAND_BYTES, Masters, NodeAddress, Parts, ProcessFacts,
    Protocol, Reads, Setting, Storage, StorageSettings, TlsFacts, database_named,
};
pub use envelope::{fragment_message, payload_words, replica_message};
pub use guard::AuthGuard;
pub use log::{Level, Line};
pub use node::{
    Asker, BoundedMemory, Credentials, Folder, GroupDescription, KeyspaceDescription, Node, NotKnown,
};
pub use output::Output;
pub use parameters::Parameters;
pub use protocol::NodeId;
pub use quarantine::{Notebook, Past};
pub use spans::{Span, SpanContext, SpanKind, Tracing};
pub use start_error::StartError;

pub use info::{Health, KeyspaceHealth, Usage, VERSION};
pub use session::{ClientKind, TlsClient};
pub use slab::ClientId;
