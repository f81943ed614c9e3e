//! The log against a disk that fails in every way that a disk may.
//!
//! `tail` and `damage` show what is told apart, `failures` and `snapshots` what happens when, `crashes`
//! searches. `disks` shows what the disks themselves do. `format` keeps the bytes as they are.

// A test that meets what it did not expect should stop there.
#![allow(clippy::unwrap_used, missing_docs)]

mod any_bytes;
mod crashes;
mod damage;
mod disks;
mod failures;
mod format;
mod reserve;
mod snapshots;
mod support;
mod tail;
