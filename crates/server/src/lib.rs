//! The real world around one node: sockets, clock, files, signals, HTTP.
//!
//! The node itself ([`node::Node`]) is a state machine without input or output. Here one thread, the
//! worker, drives it: it reads requests and peers' frames off sockets, steps the node, and writes what the
//! node has to say. HTTP runs in a thread of its own and hands its calls to the worker.
//!
//! Reading order: [`config`] (what a node is told), [`files`] (its folder), [`run`] (how it comes up),
//! `worker` (one turn of the event loop), `clients` and `peers` (the two kinds of connections), `bridge` and
//! `http` (the way in over HTTP), `metrics` (what is counted).

pub mod config;
mod descriptors;
pub mod disk;
pub mod files;
pub mod holder;

mod bridge;
mod clients;
mod home;
mod http;
mod listen;
mod log;
mod log_writer;
mod look_ahead;
pub mod memory;
mod metrics;
mod notebook;
mod peers;
mod resolver;
mod socket;
mod start;
mod turn;
mod usage;
pub mod values;
mod worker;

/// Bytes of a client of HTTP, for the fuzz target.
#[cfg(fuzzing)]
pub fn over_http(data: &[u8]) {
    http::anything::over_http(data);
}

pub use config::Config;
pub use start::run;
