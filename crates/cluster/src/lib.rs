//! What the nodes of a cluster agree on: the cluster map, and the group that holds and changes it.
//!
//! Sans-I/O, as a node is, and without knowledge of one: no client, no session and no data is here.
//!
//! Reading order: [`setting`] and [`keyspace`] (prefixes and promises, and which group a key belongs to), [`slots`],
//! [`configuration`] (what a node is started with), [`libraries`] (functions; the users' rules are in `commands`), then
//! [`control`] (the control group: admission, leases, leaders, changes of the map), and [`recovery`] (how an operator goes on
//! with what is left of a cluster). [`words`] is about text from outside that is written into a line.

pub mod configuration;
pub mod control;
pub mod keyspace;
pub mod libraries;
pub mod recovery;
pub mod setting;
pub mod slots;
pub mod words;

pub use configuration::{
    Configuration, DebugCommand, LONG_COMMAND_BYTES, Masters, NodeAddress, ProcessFacts, StorageSettings,
    TlsFacts,
};
pub use keyspace::{Keyspace, database_named};
pub use setting::{Parts, Protocol, Reads, Setting, Storage};
