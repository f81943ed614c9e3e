//! A chunk of a copy that waits for the spilled values to which its entries refer.
//!
//! A replica's checkpoints hold references, because its store has the values. A copy for another replica holds the values
//! themselves, behind the entries that refer to them: so each of its chunks waits until they were looked up. One chunk of a
//! copy waits at a time, so a copy of any size takes little memory.

use kv::table::{SnapshotId, encode_value};
use kv::{Reference, Table};
use std::collections::BTreeSet;

/// The chunk, and what it lacks.
#[derive(Debug)]
pub(crate) struct Loading {
    chunk: Vec<u8>,
    missing: BTreeSet<Reference>,
    /// They were asked for.
    is_asked: bool,
    /// There is more of the table behind it.
    pub(crate) more: bool,
    /// When a value last came.
    pub(crate) progress_us: u64,
}

impl Loading {
    /// The next chunk of a copy, in an empty buffer.
    pub(crate) fn next(
        table: &mut Table,
        snapshot: SnapshotId,
        bytes_max: usize,
        mut chunk: Vec<u8>,
    ) -> Loading {
        let mut missing = BTreeSet::new();
        let more = table.copy_chunk(snapshot, bytes_max, &mut chunk, &mut missing);
        Loading { chunk, missing, is_asked: false, more, progress_us: 0 }
    }

    /// Nothing is missing: it can be sent.
    pub(crate) fn is_whole(&self) -> bool {
        self.missing.is_empty()
    }

    /// The chunk, which is whole.
    pub(crate) fn into_chunk(self) -> Vec<u8> {
        self.chunk
    }

    /// Adds the values that it lacks, if they were not asked for.
    pub(crate) fn take_wanted(&mut self, wanted: &mut Vec<Reference>) {
        if !std::mem::replace(&mut self.is_asked, true) {
            wanted.extend(self.missing.iter().copied());
        }
    }

    /// Whether it lacks a value.
    pub(crate) fn lacks(&self, reference: &Reference) -> bool {
        self.missing.contains(reference)
    }

    /// A value is here that it lacks.
    pub(crate) fn take(&mut self, now_us: u64, reference: Reference, value: &[u8]) {
        if self.missing.remove(&reference) {
            self.progress_us = now_us;
            encode_value(reference, value, &mut self.chunk);
        }
    }
}
