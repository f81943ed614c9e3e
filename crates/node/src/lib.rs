//! One node, sans-I/O: groups, routing and forwarding, and clients' sessions.
//!
//! A [`Node`] takes client requests, frames from peers and the time, and leaves replies and frames in buffers. Its
//! caller owns the sockets, the clock and the files: the server in production, a simulator in tests.
//!
//! What clients may send is in the crate `commands`, what a cluster agrees on in `cluster`, and Lua in `scripts`.
//!
//! Reading order: `node` (the turn, and how a request gets to a group and back), `requests` (what a client's request
//! needs of which groups; transactions, scripts, databases, long commands), `context` (what the components share, and
//! their calls to the node), `groups` (the groups and their replicas), `session` (a client: its gates, and its replies in
//! order), then the components: `forwarding` (requests that other nodes carry out, and those that wait), `waits` (clients
//! that wait for locks and elements), `channels` (subscribers), `membership` (this node's part in the control group, which is
//! in the crate `cluster`; clocks), `maintenance` (a new map, checkpoints, evictions, quarantine), `coding` and `values` (large
//! values), `following` (readers of changes), `two_phase` (transactions over
//! several groups), `connections` (what clients say of themselves), `operators` (commands about
//! the cluster and its nodes, and what only one node knows). Below all: `disk` (the journal), `messages` (between nodes),
//! `parameters`, `diagnostics` (log, slow log, spans), `collections`.

mod channels;
mod coding;
mod collections;
mod connections;
mod context;
mod diagnostics;
mod disk;
mod following;
mod forwarding;
mod groups;
mod maintenance;
mod membership;
mod messages;
mod node;
mod operators;
mod parameters;
mod requests;
mod session;
mod two_phase;
mod values;
mod waits;

pub use cluster::words::{HOST_BYTES_MAX, check_host, of_toml, one_line};
pub use cluster::{
    Configuration, DebugCommand, Keyspace, LONG_COMMAND_BYTES, Masters, NodeAddress, Parts, ProcessFacts,
    Protocol, Reads, Setting, Storage, StorageSettings, TlsFacts, database_named,
};
pub use connections::guard::AuthGuard;
pub use diagnostics::log::{Level, Line};
pub use diagnostics::spans::{Span, SpanContext, SpanKind, Tracing};
pub use disk::start_error::StartError;
pub use maintenance::quarantine::{Notebook, Past};
pub use messages::envelope::{fragment_message, payload_words, replica_message};
pub use node::{
    Asker, BoundedMemory, Credentials, Folder, GroupDescription, KeyspaceDescription, Node, NotKnown,
};
pub use parameters::Parameters;
pub use protocol::NodeId;
pub use session::output::Output;

pub use collections::slab::ClientId;
pub use info::{Health, KeyspaceHealth, Report, Usage, VERSION, metrics, report};
pub use session::{ClientKind, TlsClient};
