//! Which peers' connections are read.
//!
//! A disk that stalls holds the peers back, as it would if every turn waited for it: their next messages wait at the
//! peers, and not here. Connections that bring no records, such as those for urgent messages and every handshake, are
//! always read.

use crate::turn::Turn;
use crate::world::World;
use node::Node;
use protocol::planted::Fault;

/// Connections of peers, by the world's numbers for them.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    /// Served in the next turn without a new event.
    unfinished: Vec<usize>,
    serving: Vec<usize>,
}

impl Peers {
    /// Whether the next turn has work that no event will announce.
    #[inline]
    pub(crate) fn is_unfinished(&self, node: &Node) -> bool {
        !self.unfinished.is_empty() && !node.is_log_behind()
    }

    /// Checks that a connection is served once in a turn. O(connections with more input).
    ///
    /// # Panics
    /// When an invariant is broken.
    pub(crate) fn check_invariants(&self) {
        assert!(self.serving.is_empty(), "a turn serves all connections that it has begun with");
        let is_first = |(place, connection)| !self.unfinished[..place].contains(connection);
        assert!(self.unfinished.iter().enumerate().all(is_first), "a connection would be served twice");
    }

    /// Continues with the connections whose input was not finished in the last turn.
    #[inline]
    pub(crate) fn serve_unfinished<W: World>(&mut self, world: &mut W, turn: &mut Turn<'_, W::Clock>) {
        std::mem::swap(&mut self.unfinished, &mut self.serving);
        for position in 0..self.serving.len() {
            self.serve(self.serving[position], world, turn);
        }
        self.serving.clear();
    }

    /// Reads a connection that may have input, unless the peer is held back.
    pub(crate) fn serve<W: World>(
        &mut self,
        connection: usize,
        world: &mut W,
        turn: &mut Turn<'_, W::Clock>,
    ) {
        let waits = turn.node.is_log_behind()
            && world.brings_records(connection)
            && !turn.planted.has(Fault::PeerReadWhileBehind);
        let may_have_more = waits || world.read_peer(connection, turn);
        if may_have_more && !self.unfinished.contains(&connection) {
            self.unfinished.push(connection);
        }
    }
}
