//! Real clients with real processes: what Redis's own clients and tools, HTTP clients and strangers get from a
//! cluster, also while its nodes are killed, paused and restarted.
//!
//! Every test has its own cluster, waits for conditions and never for a length of time, and leaves no process behind.
//! Clients that are not installed are skipped with a line that says so; with `QUORATE_REQUIRE_CLIENTS` in the
//! environment, that is a failure ([`required`]). `QUORATE_PYTHON` names a Python that has the `redis` package, if that is not
//! `python3`.

#![allow(clippy::unwrap_used, missing_docs)]

mod backup;
mod bad_input;
mod blocking;
mod changes;
mod channels;
mod commands;
mod contents;
mod copies;
mod databases;
mod differential;
mod dump;
mod examples;
mod failover;
mod faults;
mod hashes;
mod http;
mod jobs;
mod live;
mod locks;
mod moments;
mod page;
mod queues;
mod redisson;
#[path = "../required/mod.rs"]
#[allow(dead_code)] // Other tests use the rest.
mod required;
mod s3;
mod scripts;
mod sealed;
mod streams;
mod support;
mod tools;
mod users;
mod volume;
