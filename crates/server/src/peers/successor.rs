//! A connection that takes the place of a link without loss: when TLS is switched on or off between nodes, or
//! certificates have changed.
//!
//! ```text
//! dialer                                                        acceptor
//!    | another connection, with its own handshake, to the Proof     |
//!    |------------------------------------------------------------->|
//!    |          what was begun, and the end, on the link            |
//!    |<-------------------------------------------------------------|
//!    |          what was begun, and the end, on the link            |
//!    |------------------------------------------------------------->|
//! ```
//!
//! Each side sends on the successor after its own end mark on the link, and reads the successor after the other side's. So
//! frames stay in order, and the node does not notice the change. The dialer ends second: before the acceptor's end it
//! does not know whether the acceptor has seen the Proof.

use std::io;

use mio::Registry;
use mio::net::TcpStream;
use node::NodeId;
use wire::handshake::Lane;

use super::Peers;
use super::connection::{Connection, Fault, Stage};
use crate::turn::Turn;

/// The pause before another attempt to replace a link.
pub(super) const PAUSE_US: u64 = 10_000_000;

/// Links are not all replaced at the same moment, but spread over this time.
const SPREAD_US: u64 = 500_000;

/// How long both sides may take to finish sending on a link.
const PATIENCE_US: u64 = 10_000_000;

impl Peers {
    /// Schedules the replacement of all links that this node has dialled.
    pub(super) fn renew_links(&mut self, now_us: u64) {
        for peer in self.peers.iter_mut().filter(|peer| peer.is_dialled && peer.link.is_some()) {
            let spread = getrandom::u64().unwrap_or(0) % SPREAD_US;
            peer.successor_at_us.get_or_insert(now_us + spread);
        }
    }

    /// Dials a successor of the link when it is due, and gives up one that takes too long.
    pub(super) fn attend_successor(&mut self, position: usize, registry: &Registry, turn: &mut Turn<'_>) {
        let peer = &mut self.peers[position];
        if peer.successor_at_us.is_none_or(|at| at > turn.now.monotonic_us) {
            return;
        }
        peer.successor_at_us = None;
        let (id, Some(index)) = (peer.id, peer.link) else { return };
        if peer.successor.is_some() {
            let late = io::Error::new(io::ErrorKind::TimedOut, "it was not ended in time for its successor");
            return self.close(index, late.into(), turn);
        }
        let Some(address) = self.connections[index].as_ref().map(|link| link.address) else { return };
        let whose = (Some(id), Lane::Successor, self.security.speaks_tls());
        let dialled = TcpStream::connect(address)
            .and_then(|socket| self.watch(socket, address, whose, Stage::Connecting, registry, turn));
        if dialled.is_err() {
            self.peers[position].successor_at_us = Some(turn.now.monotonic_us + PAUSE_US);
        }
    }

    /// Begins to move to a successor. If there is no link, the successor becomes the link at once.
    pub(super) fn establish_successor(&mut self, index: usize, id: NodeId, turn: &mut Turn<'_>) {
        let release =
            |index: usize| self.connections[index].as_ref().and_then(|it| Some(it.session.as_ref()?.release));
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.id == id) else { return };
        // Frames on a link are in the release that both sides of it speak.
        let is_alike = peer.link.is_some_and(|link| release(link) == release(index));
        if !is_alike || peer.successor.is_some() {
            return self.establish(index, id, turn);
        }
        peer.successor = Some(index);
        peer.successor_at_us = Some(turn.now.monotonic_us + PATIENCE_US);
        if let Some(connection) = &mut self.connections[index] {
            connection.is_held = true;
            connection.establish(id, (turn.now.monotonic_us, self.silence_ms_max));
        }
        self.check_invariants();
    }

    /// The connection on which a peer's frames are sent.
    #[inline]
    pub(super) fn writes_to(&self, position: usize) -> Option<usize> {
        let peer = &self.peers[position];
        match (peer.link, peer.successor) {
            (Some(link), Some(next)) if self.has_ended_writing(link) => Some(next),
            (link, _) => link,
        }
    }

    fn has_ended_writing(&self, index: usize) -> bool {
        self.connections[index].as_ref().is_some_and(|connection| connection.has_ended_writing)
    }

    /// Ends a link on which everything is sent, if this side may: what follows is sent on the successor.
    pub(super) fn write_on_successor(&mut self, position: usize) {
        let peer = &self.peers[position];
        let Some(link) = peer.link.and_then(|index| self.connections[index].as_mut()) else { return };
        if !link.has_ended_writing && (link.has_ended_reading || !peer.is_dialled) {
            link.end_writing();
            self.finish(position);
        }
    }

    /// Notes that the other side has ended a connection. Returns false if it has no successor.
    pub(super) fn reads_on_successor(&mut self, index: usize) -> bool {
        let position = self.peers.iter().position(|peer| peer.link == Some(index));
        let Some(position) = position else { return false };
        let Some(next) = self.peers[position].successor else { return false };
        let link = self.connections[index].as_mut();
        let Some(link) = link.filter(|link| link.input.is_empty()) else { return false };
        (link.has_ended_reading, link.has_unread) = (true, false);
        if let Some(successor) = &mut self.connections[next] {
            (successor.is_held, successor.has_unread) = (false, true);
            self.ready.push(next);
        }
        self.finish(position);
        true
    }

    /// Drops a link that both sides have ended.
    fn finish(&mut self, position: usize) {
        let peer = &mut self.peers[position];
        let Some((index, next)) = peer.link.zip(peer.successor) else { return };
        let link = self.connections[index].as_ref();
        if !link.is_some_and(|link| link.has_ended_writing && link.has_ended_reading) {
            return;
        }
        self.connections[index] = None;
        (peer.link, peer.successor, peer.successor_at_us) = (Some(next), None, None);
        peer.logged = None;
        if peer.is_dialled {
            // The connections beside it are replaced too.
            (peer.urgent_at_us, peer.vouching_at_us) = (Some(0), Some(0));
        }
        if let Some(link) = &mut self.connections[next] {
            link.lane = Lane::Main;
            let how = if link.is_tls() { ", in TLS" } else { ", not in TLS" };
            tracing::info!("link to node {} goes on over a new connection ({}{how})", peer.id, link.address);
        }
        self.check_invariants();
    }

    /// Drops a successor, because there is another link.
    pub(super) fn drop_successor(&mut self, position: usize) {
        let peer = &mut self.peers[position];
        peer.successor_at_us = None;
        if let Some(index) = peer.successor.take() {
            self.connections[index] = None;
        }
        let id = peer.id;
        let link = peer.link;
        for (index, slot) in self.connections.iter_mut().enumerate() {
            slot.take_if(|connection| {
                connection.lane == Lane::Successor && connection.dialled == Some(id) && link != Some(index)
            });
        }
    }

    /// Handles the loss of a successor, or a failed dial. The link stays, unless one side has ended it.
    pub(super) fn successor_is_down(
        &mut self,
        index: usize,
        connection: &Connection,
        fault: Fault,
        turn: &mut Turn<'_>,
    ) {
        let id = connection.link().map(|link| link.peer).or(connection.dialled);
        let Some(peer) = self.peers.iter_mut().find(|peer| Some(peer.id) == id) else { return };
        let Some(link) = peer.link else { return };
        if peer.successor == Some(index) {
            (peer.successor, peer.successor_at_us) = (None, None);
            let was_used = |link: &Connection| link.has_ended_writing || link.has_ended_reading;
            if self.connections[link].as_ref().is_some_and(was_used) {
                return self.close(link, fault, turn);
            }
        }
        if peer.is_dialled {
            peer.successor_at_us = Some(turn.now.monotonic_us + PAUSE_US);
            let text = fault.to_string();
            if peer.logged.as_ref() != Some(&text) {
                tracing::warn!(
                    "the link to node {} stays as it is, since no new connection takes its place: {text}; still trying",
                    peer.id
                );
                peer.logged = Some(text);
            }
        }
    }
}
