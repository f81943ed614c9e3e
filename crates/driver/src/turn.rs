//! What the parts of a turn share.

use crate::counters::Counters;
use crate::look_ahead::LookAhead;
use crate::sizes::Sizes;
use node::{Line, Node};
use protocol::Now;
use protocol::planted::Planted;

/// Where the time comes from.
pub trait Clock: Copy {
    /// The time.
    fn now(&self) -> Now;

    /// Microseconds of the monotonic clock alone.
    fn monotonic_us(&self) -> u64 {
        self.now().monotonic_us
    }
}

/// What one turn works with.
pub struct Turn<'a, C> {
    /// The node.
    pub node: &'a mut Node,
    /// What is counted.
    pub counters: &'a mut Counters,
    /// What is to be logged, beside what the node has to tell.
    pub lines: &'a mut Vec<Line>,
    /// What sockets are read into. Its contents mean nothing between two reads.
    pub buffer: &'a mut [u8],
    /// How much is done at a time.
    pub sizes: &'a Sizes,
    /// When the turn began.
    pub now: Now,
    /// Where the time comes from.
    pub clock: C,
    /// Requests parsed ahead.
    pub(crate) ahead: &'a mut LookAhead,
    /// A fault to be found, in tests.
    pub(crate) planted: Planted,
}

impl<C: Clock> Turn<'_, C> {
    /// Something has been read: the node is told what time it is by now. A leader answers reads by a lease, and this
    /// process may have stood still since the turn began, while what has just been read was not even asked.
    pub fn has_read(&mut self) {
        self.node.advance(Now { monotonic_us: self.clock.monotonic_us(), unix_ms: self.now.unix_ms });
    }
}
