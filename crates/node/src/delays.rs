//! Answers that are held back until a time: only the client that should wait does.

use crate::node::Node;
use crate::session::ClientId;
use kv::ReplyBuffer;
use protocol::{Result as Outcome, Ticket};
use std::collections::BTreeMap;
use std::time::Duration;

/// The answers that are held back, by when they are due. A client has at most one: its further requests wait behind it.
#[derive(Debug, Default)]
pub(crate) struct Delays {
    held: BTreeMap<(u64, u64), (Ticket, Vec<u8>)>,
    /// Distinguishes answers that are due at the same time.
    next: u64,
}

impl Delays {
    /// When the next one is due, in microseconds of the monotonic clock.
    pub(crate) fn next_due_us(&self) -> u64 {
        self.held.first_key_value().map_or(u64::MAX, |((due_us, _), _)| *due_us)
    }

    fn hold(&mut self, due_us: u64, ticket: Ticket, reply: Vec<u8>) {
        self.held.insert((due_us, self.next), (ticket, reply));
        self.next += 1;
    }

    fn take_due(&mut self, now_us: u64) -> Option<(Ticket, Vec<u8>)> {
        let entry = self.held.first_entry().filter(|entry| entry.key().0 <= now_us)?;
        Some(entry.remove())
    }
}

impl Node {
    /// Answers a request after a delay. Nothing more is taken from this client before.
    ///
    /// In a transaction, the answer comes at once.
    pub(crate) fn answer_later(
        &mut self,
        client: ClientId,
        after: Duration,
        write: impl FnOnce(&mut ReplyBuffer),
    ) {
        if self.captured.is_some() {
            return self.answer(client, write);
        }
        let Some(session) = self.sessions.get_mut(client) else { return };
        session.close_gate();
        let ticket = session.begin(false);
        let mut reply = ReplyBuffer::new();
        write(&mut reply);
        let due_us = self.now.monotonic_us.saturating_add(after.as_micros() as u64);
        self.delays.hold(due_us, ticket, reply.as_bytes().to_vec());
    }

    /// Sends the answers that are due. The answer for a client that is gone goes nowhere.
    pub(crate) fn give_delayed_answers(&mut self) {
        while let Some((ticket, reply)) = self.delays.take_due(self.now.monotonic_us) {
            self.complete(ticket, 0, Outcome::Done { version: 0, offset: 0 }, &reply);
        }
    }
}
