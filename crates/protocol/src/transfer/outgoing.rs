//! The sender's side of a snapshot transfer.

use super::loading::Loading;
use crate::effects::Now;
use kv::table::SnapshotId;
use kv::{Reference, Table};
use std::collections::VecDeque;

/// How much is under way at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// Bytes of one chunk, about.
    pub(crate) chunk_bytes: usize,
    /// Chunks sent and not acknowledged.
    pub(crate) chunks: usize,
}

/// The chunks of a snapshot on their way to one receiver.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// `None` when all chunks are taken.
    snapshot: Option<SnapshotId>,
    /// The next chunk, if it waits for values on the disk.
    loading: Option<Loading>,
    /// The chunks sent and not acknowledged, kept because links lose messages.
    unacknowledged: VecDeque<Vec<u8>>,
    acknowledged: u32,
    /// An acknowledged chunk's memory, for the next one.
    spare: Vec<u8>,
    /// When the receiver last made progress, or a value arrived for which it had to wait.
    progress_us: u64,
    /// The last chunk is sent even if it is empty, since it is marked as the last one.
    says_last: bool,
}

impl Outgoing {
    pub(crate) fn new(snapshot: SnapshotId, now: Now) -> Outgoing {
        Outgoing {
            snapshot: Some(snapshot),
            loading: None,
            unacknowledged: VecDeque::new(),
            acknowledged: 0,
            spare: Vec::new(),
            progress_us: now.monotonic_us,
            says_last: false,
        }
    }

    /// The same for a transfer that ends with its last chunk, and has at least one.
    pub(crate) fn with_last_chunk(snapshot: SnapshotId, now: Now) -> Outgoing {
        Outgoing { says_last: true, ..Outgoing::new(snapshot, now) }
    }

    /// Takes the next chunk to be sent, and returns it with its number. `None` while the window is full or values on the
    /// disk are missing, and when all chunks are taken.
    pub(crate) fn next(&mut self, table: &mut Table, window: Window) -> Option<(u32, &[u8])> {
        if self.unacknowledged.len() >= window.chunks {
            return None;
        }
        let snapshot = self.snapshot?;
        let next = || Loading::next(table, snapshot, window.chunk_bytes, std::mem::take(&mut self.spare));
        let loading = self.loading.take().unwrap_or_else(next);
        if !loading.is_whole() {
            // The transfer waits for values, not for the receiver.
            self.progress_us = self.progress_us.max(loading.progress_us);
            self.loading = Some(loading);
            return None;
        }
        let is_last = !loading.more;
        if is_last {
            self.end(table);
        }
        let chunk = loading.into_chunk();
        if chunk.is_empty() {
            assert!(is_last, "a chunk in the middle of a table is empty");
            if !self.says_last {
                return None;
            }
        }
        let index = self.sent();
        self.unacknowledged.push_back(chunk);
        self.unacknowledged.back().map(|chunk| (index, chunk.as_slice()))
    }

    /// Takes the receiver's report that it has all chunks before `next`. True when that is news.
    pub(crate) fn acknowledge(&mut self, now: Now, next: u32) -> bool {
        let is_news = self.acknowledged < next && next <= self.sent();
        if is_news {
            let received = (next - self.acknowledged) as usize;
            self.spare = self.unacknowledged.drain(..received).next_back().unwrap_or_default();
            self.spare.clear();
            self.acknowledged = next;
            self.progress_us = now.monotonic_us;
        }
        is_news
    }

    /// How many chunks the receiver has.
    pub(crate) fn acknowledged(&self) -> u32 {
        self.acknowledged
    }

    /// How many chunks were sent.
    pub(crate) fn sent(&self) -> u32 {
        self.acknowledged + self.unacknowledged.len() as u32
    }

    /// The chunks that were sent and are not acknowledged, with their numbers.
    pub(crate) fn unacknowledged(&self) -> impl Iterator<Item = (u32, &[u8])> {
        (self.acknowledged..).zip(self.unacknowledged.iter().map(Vec::as_slice))
    }

    /// Whether all chunks were sent.
    pub(crate) fn is_all_sent(&self) -> bool {
        self.snapshot.is_none()
    }

    /// Whether the receiver has all chunks.
    pub(crate) fn is_received(&self) -> bool {
        self.is_all_sent() && self.unacknowledged.is_empty()
    }

    /// The milliseconds without progress.
    pub(crate) fn stuck_ms(&self, now: Now) -> u64 {
        now.ms_since(self.progress_us)
    }

    /// Closes the snapshot; no more chunks are taken.
    pub(crate) fn end(&mut self, table: &mut Table) {
        self.loading = None;
        if let Some(snapshot) = self.snapshot.take() {
            table.end_snapshot(snapshot);
        }
    }

    // Values on the disk.

    /// Whether the next chunk waits for values on the disk.
    pub(crate) fn waits_for_values(&self) -> bool {
        self.loading.is_some()
    }

    /// Appends the values that the next chunk waits for, unless they were requested already.
    pub(crate) fn take_wanted(&mut self, wanted: &mut Vec<Reference>) {
        if let Some(loading) = &mut self.loading {
            loading.take_wanted(wanted);
        }
    }

    /// Whether it waits for this value.
    pub(crate) fn lacks(&self, reference: &Reference) -> bool {
        self.loading.as_ref().is_some_and(|loading| loading.lacks(reference))
    }

    /// Takes a value if the next chunk waits for it. True when that chunk is then whole.
    pub(crate) fn take_value(&mut self, now: Now, reference: Reference, value: &[u8]) -> bool {
        let Some(loading) = self.loading.as_mut().filter(|loading| loading.lacks(&reference)) else {
            return false;
        };
        loading.take(now.monotonic_us, reference, value);
        loading.is_whole()
    }

    /// Checks that no more is under way than allowed.
    pub(crate) fn check(&self, window: Window) {
        assert!(self.unacknowledged.len() <= window.chunks, "too many chunks are under way");
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Arrival, Incoming};
    use super::*;
    use crate::effects::Now;
    use kv::{Command, Condition, Expiry, ReplyBuffer, SetAnswer};

    const WINDOW: Window = Window { chunk_bytes: 1, chunks: 3 };

    fn at_ms(ms: u64) -> Now {
        Now { monotonic_us: 1000 * ms, unix_ms: ms }
    }

    /// A table of `keys` keys, each of which is a chunk.
    fn table(keys: u8) -> Table {
        let mut table = Table::new(1);
        for key in 0..keys {
            let (expiry, condition, answer) = (Expiry::Clear, Condition::Always, SetAnswer::Status);
            let set = Command::Set { key: &[key], value: b"v", expiry, condition, answer };
            table.apply(&set, u64::from(key) + 1, 0, &mut ReplyBuffer::new());
        }
        table
    }

    fn numbers(outgoing: &mut Outgoing, table: &mut Table) -> Vec<u32> {
        std::iter::from_fn(|| outgoing.next(table, WINDOW).map(|(index, _)| index)).collect()
    }

    #[test]
    fn no_more_chunks_than_the_window_are_under_way() {
        let mut table = table(5);
        let mut outgoing = Outgoing::new(table.begin_snapshot(), at_ms(0));
        assert_eq!(numbers(&mut outgoing, &mut table), [0, 1, 2]);
        assert!(
            !outgoing.acknowledge(at_ms(1), 0) && !outgoing.acknowledge(at_ms(1), 4),
            "no news, and no truth"
        );
        assert!(outgoing.acknowledge(at_ms(2), 2) && !outgoing.acknowledge(at_ms(3), 2));
        assert_eq!(outgoing.stuck_ms(at_ms(3)), 1);
        assert_eq!(numbers(&mut outgoing, &mut table), [3, 4]);
        assert_eq!(outgoing.unacknowledged().map(|(index, _)| index).collect::<Vec<_>>(), [2, 3, 4]);
        outgoing.acknowledge(at_ms(4), 5);
        assert_eq!(numbers(&mut outgoing, &mut table), Vec::<u32>::new());
        assert!(outgoing.is_received() && outgoing.sent() == 5);
    }

    #[test]
    fn a_marked_last_chunk_may_be_empty() {
        let mut table = table(0);
        let mut outgoing = Outgoing::with_last_chunk(table.begin_snapshot(), at_ms(0));
        assert_eq!(outgoing.next(&mut table, WINDOW), Some((0, &[][..])));
        assert!(outgoing.is_all_sent() && !outgoing.is_received());
        assert!(outgoing.acknowledge(at_ms(0), 1) && outgoing.is_received());
    }

    /// Chunks arrive late, twice and in the wrong order.
    #[test]
    fn the_receiver_gets_the_table_of_the_moment_when_it_began() {
        let mut table = table(20);
        let (mut outgoing, digest) = (Outgoing::new(table.begin_snapshot(), at_ms(0)), table.digest());
        let (mut incoming, mut received) = (Incoming::new(at_ms(0)), Table::new(1));
        let mut scratch = Vec::new();
        let keys = kv::List::build(&mut scratch, [&[7][..]]);
        table.apply(&Command::Delete { keys }, 21, 0, &mut ReplyBuffer::new());
        assert_ne!(table.digest(), digest);
        while !outgoing.is_received() {
            while outgoing.next(&mut table, WINDOW).is_some() {}
            let chunks: Vec<_> =
                outgoing.unacknowledged().map(|(index, chunk)| (index, chunk.to_vec())).collect();
            for (index, chunk) in chunks.iter().rev().chain(&chunks[..1]) {
                let arrival = incoming.take(at_ms(1), (*index, chunk), &mut received);
                let expected = match index.cmp(&chunks[0].0) {
                    std::cmp::Ordering::Greater => Arrival::Early,
                    _ if incoming.next() == index + 1 && arrival == Arrival::Next => Arrival::Next,
                    _ => Arrival::Again,
                };
                assert_eq!(arrival, expected, "chunk {index}");
            }
            outgoing.acknowledge(at_ms(1), incoming.next());
        }
        received.set_version_floor(20);
        assert_eq!(received.digest(), digest);
    }
}
