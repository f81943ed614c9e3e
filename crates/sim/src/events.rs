//! The queue of future events, ordered by time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A node's index among the nodes, from 0. Its id is one higher.
pub(crate) type Place = u8;

/// An event at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A frame arrives over the connection with this generation.
    Frame { from: Place, to: Place, is_urgent: bool, generation: u32, buffer: u32 },
    /// Two nodes try to connect.
    Connect { one: Place, other: Place, attempt: u32 },
    /// One end of a connection finds it up or broken.
    End { at: Place, peer: Place, generation: u32, up: bool },
    /// One end finds the second connection up or broken.
    Urgent { at: Place, peer: Place, generation: u32, up: bool },
    /// A node in a long turn vouches for itself.
    Vouch { node: Place, incarnation: u32 },
    /// A vouch arrives, beside the connection with this generation.
    Vouched { from: Place, to: Place, generation: u32 },
    /// The link from a node to a peer may have room for more.
    PeerRoom { node: Place },
    /// A client has read `bytes` that a node wrote.
    Room { node: Place, client: u8, connection: u32, bytes: u32 },
    /// The next item that a client sent arrives.
    Upstream { client: u8 },
    /// The next item that a node sent to a client arrives.
    Downstream { client: u8 },
    /// A client finds its connection broken.
    Closed { client: u8, connection: u32 },
    /// A client continues, unless a newer alarm has replaced this one.
    Client { client: u8, alarm: u32 },
    /// A fault begins, changes or ends.
    Fault { index: u16, step: u16 },
    /// The operator gives a command, or checks its result.
    Order { index: u16 },
    /// A crashed node starts again.
    Restart { node: Place, incarnation: u32 },
    /// A disk step ends; it was for one incarnation of the disk's node.
    DiskStep { node: Place, lane: u8, incarnation: u32 },
    /// Clients check whether they have waited too long.
    Sweep,
    /// The world checks its progress since everything healed.
    Progress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    time: u64,
    /// Events of one moment happen in the order in which they were scheduled.
    sequence: u64,
    event: Event,
}

impl Ord for Entry {
    /// The earliest is the greatest, because a binary heap pops its greatest element first.
    fn cmp(&self, other: &Entry) -> Ordering {
        (other.time, other.sequence).cmp(&(self.time, self.sequence))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The scheduled events.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Entry>,
    planned: u64,
}

impl Queue {
    #[inline]
    pub(crate) fn push(&mut self, time: u64, event: Event) {
        self.planned += 1;
        self.heap.push(Entry { time, sequence: self.planned, event });
    }

    /// Returns the time of the next event; `u64::MAX` if there is none.
    #[inline]
    pub(crate) fn next_time(&self) -> u64 {
        self.heap.peek().map_or(u64::MAX, |entry| entry.time)
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Event> {
        self.heap.pop().map(|entry| entry.event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_ordered_by_time_then_by_scheduling() {
        let mut queue = Queue::default();
        queue.push(7, Event::Sweep);
        queue.push(3, Event::Fault { index: 1, step: 0 });
        queue.push(3, Event::Fault { index: 0, step: 0 });
        assert_eq!(queue.next_time(), 3);
        assert_eq!(queue.pop(), Some(Event::Fault { index: 1, step: 0 }));
        assert_eq!(queue.pop(), Some(Event::Fault { index: 0, step: 0 }));
        assert_eq!((queue.pop(), queue.pop()), (Some(Event::Sweep), None));
    }
}
