//! The third connection to a peer, over which the two nodes' threads vouch for their workers ([`crate::vouching`]).
//!
//! The worker dials it beside the link, as the second one, makes the handshake, and hands it over. It ends with the link.
//! Nodes of releases before it have none, and are not vouched for.

use mio::Registry;
use mio::net::TcpStream;
use node::NodeId;
use wire::handshake::Lane;
use wire::release::Release;

use super::Peers;
use super::connection::{Connection, Fault, Stage};
use crate::tls::AnySocket;
use crate::turn::Turn;
use crate::vouching::Handed;

/// The pause before the connection is dialled again.
const PAUSE_US: u64 = 250_000;

/// The release that has this connection.
pub(super) const SINCE: Release = 2;

impl Peers {
    /// Dials the link's address once more, for vouches.
    pub(super) fn dial_vouching(&mut self, position: usize, registry: &Registry, turn: &Turn<'_>) {
        let peer = &mut self.peers[position];
        if peer.vouching_at_us.is_none_or(|at| at > turn.now.monotonic_us) {
            return;
        }
        peer.vouching_at_us = None;
        let Some(link) = peer.link.and_then(|index| self.connections[index].as_ref()) else { return };
        if link.session.as_ref().is_none_or(|session| session.release < SINCE) {
            return;
        }
        let (address, whose) = (link.address, (Some(peer.id), Lane::Vouching, link.is_tls()));
        let dialled = TcpStream::connect(address)
            .and_then(|socket| self.watch(socket, address, whose, Stage::Connecting, registry, turn));
        if dialled.is_err() {
            self.peers[position].vouching_at_us = Some(turn.now.monotonic_us + PAUSE_US);
        }
    }

    /// Takes a proved connection for vouches out of the worker's hands. It is refused if there is no link, as the second one.
    pub(super) fn establish_vouching(
        &mut self,
        index: usize,
        id: NodeId,
        turn: &mut Turn<'_>,
    ) -> Result<(), Fault> {
        if !self.peers.iter().any(|peer| peer.id == id && peer.link.is_some()) {
            return Err(Fault::Refused(format!(
                "there is no link to node {id} that it could be the third connection of"
            )));
        }
        if let Some(connection) = &mut self.connections[index] {
            connection.establish(id, (turn.now.monotonic_us, self.silence_ms_max));
            connection.is_held = true;
        }
        self.to_hand_over = Some(index);
        Ok(())
    }

    /// Hands over the connection that was proved just now.
    pub(super) fn hand_over(&mut self, registry: &Registry) {
        let Some(index) = self.to_hand_over.take() else { return };
        let Some(connection) = self.connections[index].take() else { return };
        let Some(link) = connection.link() else { return };
        let (Some(session), Some(mut socket)) = (connection.session, connection.socket) else { return };
        // A socket that cannot be taken back is broken, and its use shows it.
        let _ = registry.deregister(socket.socket_mut());
        let handed = match socket {
            AnySocket::Plain(socket) => Some(Handed::Plain(socket)),
            AnySocket::Tls(stream) => stream.into_secured().map(Handed::Tls),
        };
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.id == link.peer) else { return };
        match handed {
            Some(handed) => {
                let number = self.vouching.hand_over(link.peer, handed, session, connection.input);
                peer.vouching = Some(number);
            }
            None => peer.vouching_at_us = peer.is_dialled.then_some(link.since_us + PAUSE_US),
        }
    }

    /// A turn begins, or ends.
    #[inline]
    pub(crate) fn note_turn(&self) {
        self.vouching.note_turn();
    }

    /// The worker waits now, until this moment of the monotonic clock at the latest.
    #[inline]
    pub(crate) fn note_wait(&self, until_us: u64) {
        self.vouching.note_wait(until_us);
    }

    /// Tells the node which peers are busy, and dials again where the connection for that is broken.
    pub(crate) fn take_vouches(&mut self, turn: &mut Turn<'_>) {
        let Some(found) = self.vouching.take_found() else { return };
        found.vouched.into_iter().for_each(|id| turn.node.peer_vouched(id));
        for (id, number) in found.lost {
            if let Some(peer) =
                self.peers.iter_mut().find(|peer| peer.vouching == Some(number) && peer.id == id)
            {
                peer.vouching = None;
                peer.dial_vouching_later(turn.now.monotonic_us);
            }
        }
    }

    /// Drops a peer's connection for vouches, because its link has ended.
    pub(super) fn drop_vouching(&mut self, position: usize) {
        let peer = &mut self.peers[position];
        peer.vouching_at_us = None;
        let id = peer.id;
        if peer.vouching.take().is_some() {
            self.vouching.drop_lane(id);
        }
        // A dial in progress belongs to the old link too.
        for slot in &mut self.connections {
            slot.take_if(|connection| connection.lane == Lane::Vouching && connection.dialled == Some(id));
        }
    }

    /// Handles a failed dial: there are no vouches until the next one.
    pub(super) fn vouching_is_down(&mut self, connection: &Connection, turn: &mut Turn<'_>) {
        let id = connection.link().map(|link| link.peer).or(connection.dialled);
        if let Some(peer) = self.peers.iter_mut().find(|peer| Some(peer.id) == id) {
            peer.dial_vouching_later(turn.now.monotonic_us);
        }
    }
}

impl super::Peer {
    fn dial_vouching_later(&mut self, now_us: u64) {
        if self.is_dialled && self.link.is_some() {
            self.vouching_at_us = Some(now_us + PAUSE_US);
        }
    }
}
