//! The receiver's side of a snapshot transfer.

use crate::effects::Now;
use kv::Table;

/// How far a transfer has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming {
    next: u32,
    progress_us: u64,
}

/// What has become of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It was the next one, and is in the table.
    Next,
    /// It was there already.
    Again,
    /// One before it is missing.
    Early,
    /// It cannot be read, and the table is spoilt.
    Unreadable,
}

impl Incoming {
    pub(crate) fn new(now: Now) -> Incoming {
        Incoming { next: 0, progress_us: now.monotonic_us }
    }

    /// Takes a chunk into the table, if it is the next one.
    pub(crate) fn take(&mut self, now: Now, (index, chunk): (u32, &[u8]), table: &mut Table) -> Arrival {
        if index != self.next {
            return if index < self.next { Arrival::Again } else { Arrival::Early };
        }
        if table.install(chunk).is_err() {
            return Arrival::Unreadable;
        }
        self.next += 1;
        self.got_on(now);
        Arrival::Next
    }

    /// Something else has come that shows that the sender goes on.
    pub(crate) fn got_on(&mut self, now: Now) {
        self.progress_us = now.monotonic_us;
    }

    /// The first chunk that is missing.
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    /// For how long there was no progress.
    pub(crate) fn stuck_ms(&self, now: Now) -> u64 {
        now.ms_since(self.progress_us)
    }
}
