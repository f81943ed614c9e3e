//! The second connection to a peer, for short messages that must not wait: heartbeats and leases.
//!
//! Behind a value of a megabyte on a slow network they would wait for seconds, and a leader that is busy sending would be
//! considered dead. The connection is dialled once the other side has sent a frame on the link, and ends with the link.
//! While it is missing, the link carries everything.

use mio::Registry;
use mio::net::TcpStream;
use node::NodeId;
use wire::handshake::Lane;

use super::Peers;
use super::connection::{Connection, Fault, Stage};
use crate::turn::Turn;

/// The pause before the urgent connection is dialled again.
const URGENT_PAUSE_US: u64 = 250_000;

impl Peers {
    /// Dials the link's address a second time, for urgent messages.
    pub(super) fn dial_urgent(&mut self, position: usize, registry: &Registry, turn: &Turn<'_>) {
        let peer = &mut self.peers[position];
        if peer.urgent_at_us.is_none_or(|at| at > turn.now.monotonic_us) {
            return;
        }
        peer.urgent_at_us = None;
        let Some(link) = peer.link.and_then(|index| self.connections[index].as_ref()) else { return };
        let (address, whose) = (link.address, (Some(peer.id), Lane::Urgent, link.is_tls()));
        let dialled = TcpStream::connect(address)
            .and_then(|socket| self.watch(socket, address, whose, Stage::Connecting, registry, turn));
        if dialled.is_err() {
            self.peers[position].urgent_at_us = Some(turn.now.monotonic_us + URGENT_PAUSE_US);
        }
    }

    /// Establishes a second connection beside the link. It is refused if there is no link: then the dialer has not
    /// noticed yet that its own link is broken, and will dial again.
    pub(super) fn establish_urgent(
        &mut self,
        index: usize,
        id: NodeId,
        turn: &mut Turn<'_>,
    ) -> Result<(), Fault> {
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.id == id && peer.link.is_some()) else {
            return Err(Fault::Refused(format!(
                "there is no link to node {id} that it could be the second connection of"
            )));
        };
        if let Some(older) = peer.urgent.replace(index) {
            self.connections[older] = None;
        }
        if let Some(connection) = &mut self.connections[index] {
            connection.establish(id, (turn.now.monotonic_us, self.silence_ms_max));
        }
        turn.node.peer_urgent_link(id, true);
        self.check_invariants();
        Ok(())
    }

    /// Drops a peer's second connection, because its link has ended.
    pub(super) fn drop_urgent(&mut self, position: usize) {
        let peer = &mut self.peers[position];
        peer.urgent_at_us = None;
        if let Some(index) = peer.urgent.take() {
            self.connections[index] = None;
        }
        // A dial in progress belongs to the old link too.
        let id = peer.id;
        for slot in &mut self.connections {
            slot.take_if(|connection| connection.lane == Lane::Urgent && connection.dialled == Some(id));
        }
    }

    /// Writes urgent messages.
    pub(super) fn write_urgent(&mut self, turn: &mut Turn<'_>) {
        for position in 0..self.peers.len() {
            let (id, Some(index)) = (self.peers[position].id, self.peers[position].urgent) else { continue };
            let Some(connection) = self.connections[index].as_mut() else { continue };
            match connection.write(turn.node.peer_urgent_output(id)) {
                Ok(count) => turn.counters.peer_bytes_out += count as u64,
                Err(error) => self.close(index, error.into(), turn),
            }
        }
    }

    /// Handles the loss of a second connection, or a failed dial: the link carries everything until there is another one.
    pub(super) fn urgent_is_down(&mut self, index: usize, connection: &Connection, turn: &mut Turn<'_>) {
        let id = connection.link().map(|link| link.peer).or(connection.dialled);
        let Some(peer) = self.peers.iter_mut().find(|peer| Some(peer.id) == id) else { return };
        if peer.urgent == Some(index) {
            peer.urgent = None;
            turn.node.peer_urgent_link(peer.id, false);
        }
        if peer.is_dialled && peer.link.is_some() {
            peer.urgent_at_us = Some(turn.now.monotonic_us + URGENT_PAUSE_US);
        }
    }
}
