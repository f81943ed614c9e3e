//! What the parts of a turn share.

use crate::counters::Counters;
use crate::look_ahead::LookAhead;
use crate::sizes::Sizes;
use node::{Line, Node};
use protocol::Now;
use protocol::planted::Planted;

/// A source of time.
pub trait Clock: Copy {
    /// The current time, monotonic and wall clock.
    fn now(&self) -> Now;

    /// The monotonic clock alone, in microseconds.
    fn monotonic_us(&self) -> u64 {
        self.now().monotonic_us
    }
}

/// What one turn works with.
pub struct Turn<'a, C> {
    /// The node.
    pub node: &'a mut Node,
    /// What the driver counts.
    pub counters: &'a mut Counters,
    /// Lines to be logged, besides the node's own.
    pub lines: &'a mut Vec<Line>,
    /// The buffer that sockets are read into. Its contents mean nothing between two reads.
    pub buffer: &'a mut [u8],
    /// How much is done at a time.
    pub sizes: &'a Sizes,
    /// When the turn began.
    pub now: Now,
    /// The source of time.
    pub clock: C,
    /// Requests parsed ahead.
    pub(crate) ahead: &'a mut LookAhead,
    /// Faults planted by tests.
    pub(crate) planted: Planted,
}

impl<C: Clock> Turn<'_, C> {
    /// Gives the node the current time after a read. A leader answers reads under its lease, and this process may
    /// have paused since the turn began, while the request just read had not even been sent.
    pub fn has_read(&mut self) {
        self.node.advance(Now { monotonic_us: self.clock.monotonic_us(), unix_ms: self.now.unix_ms });
    }
}
