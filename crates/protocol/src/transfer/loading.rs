//! A chunk of a snapshot that waits for the values on the disk that its entries refer to.
//!
//! A replica's checkpoints hold references, because its store has the values. A snapshot for another replica holds the
//! values themselves, after the entries that refer to them, so each chunk waits until they are loaded. Only one chunk of a
//! snapshot waits at a time, so a snapshot of any size takes little memory.

use kv::table::{SnapshotId, encode_value};
use kv::{Reference, Table};
use std::collections::BTreeSet;

/// The chunk, and the values that it lacks.
#[derive(Debug)]
pub(super) struct Loading {
    chunk: Vec<u8>,
    missing: BTreeSet<Reference>,
    /// Whether the values were requested.
    is_asked: bool,
    /// Whether more chunks of the table follow this one.
    pub(super) more: bool,
    /// When the last value arrived.
    pub(super) progress_us: u64,
}

impl Loading {
    /// Takes the next chunk of a snapshot. `chunk` is an empty buffer.
    pub(super) fn next(
        table: &mut Table,
        snapshot: SnapshotId,
        bytes_max: usize,
        mut chunk: Vec<u8>,
    ) -> Loading {
        let mut missing = BTreeSet::new();
        let more = table.copy_chunk(snapshot, bytes_max, &mut chunk, &mut missing);
        Loading { chunk, missing, is_asked: false, more, progress_us: 0 }
    }

    /// Whether nothing is missing, so that it can be sent.
    pub(super) fn is_whole(&self) -> bool {
        self.missing.is_empty()
    }

    /// Returns the chunk, which must be whole.
    pub(super) fn into_chunk(self) -> Vec<u8> {
        self.chunk
    }

    /// Appends the values that the chunk lacks, unless they were requested already.
    pub(super) fn take_wanted(&mut self, wanted: &mut Vec<Reference>) {
        if !std::mem::replace(&mut self.is_asked, true) {
            wanted.extend(self.missing.iter().copied());
        }
    }

    pub(super) fn lacks(&self, reference: &Reference) -> bool {
        self.missing.contains(reference)
    }

    /// Takes a value that the chunk lacks.
    pub(super) fn take(&mut self, now_us: u64, reference: Reference, value: &[u8]) {
        if self.missing.remove(&reference) {
            self.progress_us = now_us;
            encode_value(reference, value, &mut self.chunk);
        }
    }
}
