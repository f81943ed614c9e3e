//! The gates on the way of requests. Nearly all of them are open nearly always, and then a request passes one test for all.
//!
//! A [`Gates`] names the gates that are closed. The node has one, whose gates the components close and open again, each when
//! its own state changes: a bit is that state, or [`crate::Node::check_invariants`] compares the two. To these come the gates
//! that a client's session, a group or the request itself closes. A request that meets a closed gate takes the slow path:
//! `requests` has the list of the gates before a command is taken, `node/gates` that of those before a group.

use std::ops::{BitAnd, BitOr, BitOrAssign};

/// What may stand in a request's way. The lists have the order in which a request meets the gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Gate {
    // Before a command is taken.
    /// The client's user may not do everything, or the client has not authenticated.
    Rights,
    /// The client is subscribed to channels.
    Listening,
    /// Transactions over several groups that clients have asked for are under way: their later requests wait.
    Divided,
    /// The client has selected another database than the first.
    Database,
    /// `CLIENT PAUSE` is on.
    Pause,
    /// The request calls a function or a script, and this node may not know the newest functions.
    Functions,
    /// Clients monitor.
    Monitors,

    // Before a request gets its ticket, and when it has its outcome.
    /// A keyspace wants its large values coded, or did.
    Coding,
    /// A keyspace keeps values on the disk, or did.
    Values,
    /// Spans of commands are traced.
    Spans,
    /// Clients cache what they read.
    Tracking,
    /// Replicas note changes for clients.
    Changes,

    // Before a group.
    /// A record is in doubt, here or elsewhere.
    Quarantine,
    /// This node's memory is full, or a peer's, or the request may add much beyond its own bytes.
    Memory,
    /// The keyspace has a bound on memory.
    Keyspace,
    /// The disk of this node or of a peer has no room.
    Room,
    /// The request may add so much that it needs a bound.
    Grant,
    /// The request may take long.
    Work,
    /// The request is long itself.
    Long,
    /// This node has no replica of the group.
    Replica,
    /// The request is meant for one leadership.
    Leadership,
    /// Earlier requests of the same client, to the same group, may be elsewhere.
    Order,
    /// Keys of a group here are locked by transactions, or the request takes part in one.
    Locked,
}

/// A set of closed gates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gates(u32);

impl Gates {
    /// These gates, closed.
    pub(crate) const fn of(gates: &[Gate]) -> Gates {
        let (mut bits, mut place) = (0, 0);
        while place < gates.len() {
            bits |= 1 << gates[place] as u8;
            place += 1;
        }
        Gates(bits)
    }

    /// Whether all gates are open.
    #[inline]
    pub(crate) fn are_open(self) -> bool {
        self.0 == 0
    }

    /// Whether a gate is closed.
    #[inline]
    pub(crate) fn has(self, gate: Gate) -> bool {
        self.0 & 1 << gate as u8 != 0
    }

    /// Closes a gate, or opens it.
    #[inline]
    pub(crate) fn set(&mut self, gate: Gate, is_closed: bool) {
        self.0 = self.0 & !(1 << gate as u8) | u32::from(is_closed) << gate as u8;
    }
}

impl BitOr for Gates {
    type Output = Gates;

    #[inline]
    fn bitor(self, other: Gates) -> Gates {
        Gates(self.0 | other.0)
    }
}

impl BitOrAssign for Gates {
    #[inline]
    fn bitor_assign(&mut self, other: Gates) {
        self.0 |= other.0;
    }
}

impl BitAnd for Gates {
    type Output = Gates;

    #[inline]
    fn bitand(self, other: Gates) -> Gates {
        Gates(self.0 & other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gate_closes_and_opens_by_itself() {
        let mut gates = Gates::default();
        assert!(gates.are_open());
        gates.set(Gate::Pause, true);
        gates.set(Gate::Order, true);
        assert_eq!(gates, Gates::of(&[Gate::Order, Gate::Pause]));
        gates.set(Gate::Pause, false);
        assert!(gates.has(Gate::Order) && !gates.has(Gate::Pause) && !gates.are_open());
        assert_eq!(gates & Gates::of(&[Gate::Pause]), Gates::default());
    }
}
