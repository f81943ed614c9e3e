//! Answers that are delayed: only the client to be slowed down waits.

use protocol::Ticket;
use std::collections::BTreeMap;

/// The delayed answers, by when they are due. A client has at most one: its further requests wait behind it.
#[derive(Debug, Default)]
pub(crate) struct Delays {
    held: BTreeMap<(u64, u64), (Ticket, Vec<u8>)>,
    /// Distinguishes answers that are due at the same time.
    next: u64,
}

impl Delays {
    /// When the next answer is due, in microseconds of the monotonic clock.
    pub(crate) fn next_due_us(&self) -> u64 {
        self.held.first_key_value().map_or(u64::MAX, |((due_us, _), _)| *due_us)
    }

    pub(crate) fn hold(&mut self, due_us: u64, ticket: Ticket, reply: Vec<u8>) {
        self.held.insert((due_us, self.next), (ticket, reply));
        self.next += 1;
    }

    #[inline]
    pub(crate) fn take_due(&mut self, now_us: u64) -> Option<(Ticket, Vec<u8>)> {
        let entry = self.held.first_entry().filter(|entry| entry.key().0 <= now_us)?;
        Some(entry.remove())
    }
}
