//! No client or stranger that can connect can stop a cluster. Real processes with bounded memory are
//! attacked; afterwards every node is still the process that was started, has stayed within its bound, and
//! serves.
//!
//! Each file is a family of attacks. Each test has its own cluster, ports and folder, and ends within seconds.
//! `cargo test -p quorate --test abuse` runs the short form; the long form repeats each attack with more clients and
//! rounds:
//!
//! ```sh
//! QUORATE_ABUSE=long cargo test --release -p quorate --test abuse
//! ```
//!
//! If the machine lets a test make control groups (as root, with version 1 or 2), each node runs in one of its
//! own, and the kernel kills a node that uses more memory. Otherwise the peak of a process's resident memory is
//! compared with the bound.

#![allow(clippy::unwrap_used, missing_docs)]

#[allow(dead_code)] // Not every family of attacks uses everything.
mod bounded;
mod commands;
mod descriptors;
mod disks;
mod faults;
mod garbage;
mod growth;
mod hashes;
mod kept;
mod memory;
mod quarantine;
mod random;
#[path = "../histories/recorder.rs"]
#[allow(dead_code)]
mod recorder;
mod requests;
mod scripts;
#[path = "../processes/support.rs"]
#[allow(dead_code)] // Other tests use the rest.
mod support;
mod values;
mod walks;
