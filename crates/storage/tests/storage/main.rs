//! The log against a disk that fails in every way that a disk may.
//!
//! `tail` and `damage` show how a torn tail is distinguished from damage, `failures` and `snapshots`
//! what happens in each situation, and `crashes` searches. `disks` shows what the disks themselves do.
//! `format` pins the bytes.

// A test should stop at the first result that it did not expect.
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
