//! The requests that a leader has accepted and not answered yet, in the order in which they will take effect.

use crate::contract::Ticket;
use kv::Version;
use std::collections::VecDeque;

/// What waits in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// An uncommitted record. There is one entry for each, in the order of their offsets.
    Write,
    /// A read that takes effect after the writes before it; its command is in the queue's bytes.
    Read {
        /// Position in the queue's bytes.
        start: u64,
        /// Length of the encoded command.
        length: u32,
    },
    /// A `WAIT` that begins when the writes before it are committed.
    Wait { offset: Version, count: u32 },
}

/// One entry of the queue. An entry without a ticket has no client waiting for it, now or ever.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) ticket: Option<Ticket>,
    pub(super) deadline_us: u64,
    pub(super) waiting: Waiting,
}

/// Entries in order, and the bytes of the reads among them in one buffer.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) entries: VecDeque<Entry>,
    bytes: Vec<u8>,
    /// The position of the first byte of `bytes`, counted since the queue began.
    bytes_start: u64,
    /// No entry with a ticket has an earlier deadline.
    pub(super) earliest_us: u64,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[inline]
    pub(super) fn push_write(&mut self, ticket: Option<Ticket>, deadline_us: u64) {
        self.push(Entry { ticket, deadline_us, waiting: Waiting::Write });
    }

    #[inline]
    fn push(&mut self, entry: Entry) {
        self.earliest_us = self.earliest_us.min(entry.deadline_us);
        self.entries.push_back(entry);
    }

    pub(super) fn push_read(&mut self, ticket: Ticket, deadline_us: u64, encode: impl FnOnce(&mut Vec<u8>)) {
        let before = self.bytes.len();
        encode(&mut self.bytes);
        let waiting = Waiting::Read {
            start: self.bytes_start + before as u64,
            length: (self.bytes.len() - before) as u32,
        };
        self.push(Entry { ticket: Some(ticket), deadline_us, waiting });
    }

    pub(super) fn push_wait(&mut self, ticket: Ticket, deadline_us: u64, offset: Version, count: u32) {
        let waiting = Waiting::Wait { offset, count };
        self.push(Entry { ticket: Some(ticket), deadline_us, waiting });
    }

    /// Takes the first entry if it is a write.
    #[inline]
    pub(super) fn pop_write(&mut self) -> Option<Entry> {
        self.pop_if(|waiting| matches!(waiting, Waiting::Write))
    }

    /// Takes the first entry if it is not a write: then everything before it has taken effect.
    #[inline]
    pub(super) fn pop_due(&mut self) -> Option<Entry> {
        self.pop_if(|waiting| !matches!(waiting, Waiting::Write))
    }

    fn pop_if(&mut self, fits: impl Fn(&Waiting) -> bool) -> Option<Entry> {
        self.entries.pop_front_if(|entry| fits(&entry.waiting))
    }

    /// The encoded command of a read.
    pub(super) fn read_bytes(&self, start: u64, length: u32) -> &[u8] {
        assert!(start >= self.bytes_start, "a read's command was forgotten");
        let from = (start - self.bytes_start) as usize;
        &self.bytes[from..from + length as usize]
    }

    /// Drops the bytes of reads that were taken off the queue, up to the read that began at `start`.
    pub(super) fn release_bytes(&mut self, start: u64, length: u32) {
        const KEPT_BYTES: usize = 64 << 10;
        assert!(start >= self.bytes_start, "a read's command is forgotten twice");
        let end = (start - self.bytes_start) as usize + length as usize;
        if end == self.bytes.len() {
            self.bytes.clear();
            self.bytes.shrink_to(KEPT_BYTES);
            self.bytes_start += end as u64;
        } else if end > KEPT_BYTES && end > self.bytes.len() / 2 {
            self.bytes.drain(..end);
            self.bytes_start += end as u64;
        }
    }

    /// Takes the tickets of the entries whose deadline has passed, in order. O(entries), but only when a deadline may
    /// have passed since the last time.
    pub(super) fn take_overdue(&mut self, now_us: u64) -> Vec<(Ticket, Waiting)> {
        let mut overdue = Vec::new();
        if now_us < self.earliest_us {
            return overdue;
        }
        self.earliest_us = u64::MAX;
        for entry in &mut self.entries {
            match entry.ticket {
                Some(ticket) if entry.deadline_us <= now_us => {
                    entry.ticket = None;
                    overdue.push((ticket, entry.waiting));
                }
                Some(_) => self.earliest_us = self.earliest_us.min(entry.deadline_us),
                None => {}
            }
        }
        overdue
    }

    /// Takes every entry, in order. The bytes of reads stay.
    pub(super) fn drain(&mut self) -> VecDeque<Entry> {
        std::mem::take(&mut self.entries)
    }
}
