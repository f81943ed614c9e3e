//! The receiver's side of a snapshot transfer.

use crate::effects::Now;
use kv::Table;

/// The progress of a transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming {
    next: u32,
    progress_us: u64,
}

/// What happened to a chunk that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It was the next one, and is now in the table.
    Next,
    /// It was in the table already.
    Again,
    /// A chunk before it is missing.
    Early,
    /// It cannot be read, and the table is unusable.
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

    /// Notes other evidence that the sender continues.
    pub(crate) fn got_on(&mut self, now: Now) {
        self.progress_us = now.monotonic_us;
    }

    /// The first chunk that is missing.
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    /// The milliseconds without progress.
    pub(crate) fn stuck_ms(&self, now: Now) -> u64 {
        now.ms_since(self.progress_us)
    }
}
