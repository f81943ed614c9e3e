//! Real processes and real sockets: what the binary promises to operators who start it and to clients that connect.
//!
//! Every test has its own folder and ports, waits for conditions and never for a length of time, and leaves no
//! process behind.

#![allow(clippy::unwrap_used, missing_docs)]

mod busy;
mod clients;
mod cluster;
mod deploy;
mod http;
mod links;
mod logs;
mod manage;
mod owner;
mod peers;
mod recover;
#[path = "../required/mod.rs"]
#[allow(dead_code)] // Other tests use the rest.
mod required;
mod restart;
mod roles;
mod status;
mod strangers;
mod support;
mod tls;
mod tools;
mod traces;
mod usage;
