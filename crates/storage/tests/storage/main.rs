//! The log against a disk that fails in every way that a disk may.

mod any_bytes;
mod crashes;
mod damage;
mod failures;
mod format;
mod snapshots;
mod support;
mod tail;
