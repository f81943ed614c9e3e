//! What the parts of the worker share during a turn.

use node::Node;
use protocol::Now;

use crate::look_ahead::LookAhead;
use crate::metrics::Counters;
use crate::worker::Clock;

/// Tokens below this are the worker's own; from here on they are connections of peers.
pub(crate) const PEER_TOKENS: usize = 16;

/// From here on tokens are connections of clients.
pub(crate) const CLIENT_TOKENS: usize = 1 << 16;

/// What one turn works with.
pub(crate) struct Turn<'a> {
    /// The node.
    pub(crate) node: &'a mut Node,
    /// What is counted.
    pub(crate) counters: &'a mut Counters,
    /// Requests parsed ahead.
    pub(crate) ahead: &'a mut LookAhead,
    /// What sockets are read into. Its contents mean nothing between two reads.
    pub(crate) buffer: &'a mut [u8],
    /// When the turn began.
    pub(crate) now: Now,
    /// Where the time comes from.
    pub(crate) clock: Clock,
}

impl Turn<'_> {
    /// Something has been read: the node is told what time it is by now. A leader answers reads by a lease, and this
    /// process may have stood still since the turn began, while what has just been read was not even asked.
    pub(crate) fn has_read(&mut self) {
        self.node.advance(Now { monotonic_us: self.clock.monotonic_us(), unix_ms: self.now.unix_ms });
    }
}
