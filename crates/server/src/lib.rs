//! The real world around one node: sockets, clock, files, signals, HTTP.
//!
//! The node itself ([`node::Node`]) is a state machine without input or output, and [`driver`] defines its turn. Here one
//! thread, the worker, runs these turns with real sockets and files. HTTP runs in a thread of its own and sends its calls
//! to the worker.
//!
//! Reading order: [`config`] (a node's configuration), [`files`] (its folder), [`run`] (startup), `worker` (the event loop),
//! `clients` and `peers` (the two kinds of connections), `bridge`, `answers` and `http` (access over HTTP, and the page for people),
//! [`status`] (the state of a whole cluster), [`recovery`] (folders of stopped nodes), `metrics` (what is counted).

pub mod config;
mod descriptors;
pub mod disk;
pub mod files;
pub mod holder;

mod answers;
mod bridge;
mod clients;
mod home;
mod http;
mod listen;
mod log;
mod log_writer;
pub mod memory;
mod metrics;
mod notebook;
mod peers;
mod reading;
pub mod recovery;
mod resolver;
mod socket;
mod start;
pub mod status;
mod thread;
pub mod tls;
pub mod traces;
mod turn;
mod usage;
pub mod values;
mod vouching;
mod worker;

/// Handles `data` as the bytes of an HTTP client, for the fuzz target.
#[cfg(fuzzing)]
pub fn over_http(data: &[u8]) {
    http::anything::over_http(data);
}

pub use config::Config;
pub use start::run;
