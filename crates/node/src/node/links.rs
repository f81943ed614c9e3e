//! The links of a node to its peers: what arrives over them, and what they are to carry.

use super::Node;
use crate::collections::slab::Handle;
use crate::context::peers::{self, peer_payload_bytes_max};
use crate::context::routing::MOVED;
use crate::context::{grants, memory, room};
use crate::membership::clock;
use crate::messages::envelope::{
    DecodedRequest, Envelope, ForwardedOutcome, ForwardedRequest, NO_DEADLINE_MS,
};
use crate::session::origin::{Asked, Origin};
use cluster::control::CONTROL_GROUP;
use kv::codec::{Malformed, Reader};
use protocol::planted::Fault;
use protocol::vouch::Vouch;
use protocol::{Input, NodeId, Result as Outcome};
use wire::release::Release;

impl Node {
    /// Another node has proved, in a handshake, that the cluster was recovered without this one. This node serves
    /// nothing from now on.
    pub fn left_behind(&mut self, why: &str) {
        let Node { cx, cluster, .. } = self;
        cluster.left_behind(cx, why);
        self.carry_out_calls();
    }

    /// Handles a link to a peer that came up, with the release that both sides speak on it, or broke. What was under
    /// way over a broken link is lost, and forgotten.
    pub fn peer_link(&mut self, id: NodeId, release: Option<Release>) {
        let up = release.is_some();
        let Some(peer) = self.cx.peers.get_mut(id) else { return };
        let was_up = peer.set_link(release, self.cx.now);
        if up {
            peer.send(&Envelope::Life(self.waits.life()));
            memory::announce_to(&mut self.cx, id);
            grants::announce_to(&mut self.cx, id);
            room::announce_to(&mut self.cx, id);
            self.handovers.announce_to(&mut self.cx, id);
            clock::ask(&mut self.cx, id);
        }
        memory::note_full_peers(&mut self.cx);
        room::note_short_peers(&mut self.cx);
        self.coding.link_changed(id);
        if !up {
            self.waits.check(&mut self.cx, |_| true);
        }
        if was_up {
            self.forwarding.end_forwards(
                &mut self.cx,
                |entry| entry.to() == id,
                "was lost before it answered",
            );
        }
        let mut place = 0;
        while let Some(group) = self.cx.groups.id_at(place) {
            place += 1;
            self.cx.groups[group].tail.drop_held(id);
            if was_up && up {
                // A new link replaces an old one whose end was not noticed.
                self.step(group, Input::Link { peer: id, up: false });
            }
            self.step(group, Input::Link { peer: id, up });
            peers::set_reached(&mut self.cx, group, id);
        }
        self.cluster.link(&mut self.cx, id, up);
        self.carry_out_calls();
    }

    /// Handles a second link to a peer, for urgent messages, beside the one that is up: it came up or broke. What was
    /// under way over it may be lost, as any message of a replica may.
    pub fn peer_urgent_link(&mut self, id: NodeId, up: bool) {
        if let Some(peer) = self.cx.peers.get_mut(id) {
            peer.set_urgent_link(up);
        }
    }

    /// A peer's process vouches for its node, which is in a long turn: it is alive and busy, and no node may conclude from
    /// its silence that it is dead. Call this once per turn at most, with what was received since the last one.
    pub fn peer_vouched(&mut self, id: NodeId) {
        if !self.cx.peers.is_up(id) || self.cx.configuration.planted.has(Fault::VouchIgnored) {
            return;
        }
        let vouch = Vouch::new(self.cx.now, self.cx.configuration.patience);
        peers::vouched(&mut self.cx, id, vouch);
        self.cluster.vouched(id, vouch);
    }

    /// Takes a frame from a peer.
    ///
    /// # Errors
    /// [`Malformed`] when the peer violates the protocol of links: close the link. What came before the malformed
    /// part has taken effect.
    pub fn peer_frame(&mut self, from: NodeId, payload: &[u8]) -> Result<(), Malformed> {
        let taken = self.take_frame(from, payload);
        self.carry_out_calls();
        taken
    }

    fn take_frame(&mut self, from: NodeId, payload: &[u8]) -> Result<(), Malformed> {
        let Some(peer) = self.cx.peers.get_mut(from) else {
            return Ok(()); // A node that the map does not know cannot be answered.
        };
        peer.heard(self.cx.now);
        match Envelope::decode(payload)? {
            Envelope::Group { group, message } => {
                if group == CONTROL_GROUP {
                    return self.cluster.message(&mut self.cx, from, message);
                }
                if room::stands_aside(&self.cx, group) {
                    return Ok(()); // As if it had been lost under way, which may happen to any message.
                }
                let takes_registers = room::takes_registers(&self.cx, group);
                // One of the two nodes may know of a group before the other, or still know of it.
                let known = self.cx.groups.get_mut(group).filter(|group| group.holds.is_none());
                if let Some(replica) = known.and_then(|group| group.replica.as_mut()) {
                    replica.set_room(takes_registers);
                    replica.step(self.cx.now, Input::Message { from, message }, self.unsettled.effects())?;
                    self.settle(group);
                }
            }
            Envelope::Fragments { group, message } => self.fragment_message(group, from, message)?,
            Envelope::Leader { group, leader } => {
                if let Some(group) = self.cx.groups.get_mut(group).filter(|it| it.members.contains(&leader)) {
                    group.reported_leader = leader;
                }
            }
            Envelope::Life(life) => peer.report_life(life),
            Envelope::Alive => peers::reaches(&mut self.cx, from, true),
            Envelope::LockNotified { group, notified } => self.waits.notified(&mut self.cx, group, notified),
            Envelope::Script(text) => self.scripts.learn_script(text),
            Envelope::ForgetScripts => self.scripts.clear(),
            Envelope::Memory { is_full } => {
                peer.report_memory(is_full);
                memory::note_full_peers(&mut self.cx);
            }
            Envelope::MemoryLeft { bytes } => grants::peer_has_left(&mut self.cx, from, bytes),
            Envelope::Leaving { is_noted: true } => self.handovers.is_noted_by(from),
            Envelope::Leaving { is_noted: false } => {
                peer.leaves();
                peers::leaves(&mut self.cx, from);
            }
            Envelope::Room { is_short, is_aside } => {
                peer.report_room(is_short, is_aside);
                if is_aside {
                    peers::reaches(&mut self.cx, from, false); // No group may rely on it until it sends a sign of life again.
                }
                room::note_short_peers(&mut self.cx);
                room::tick(&mut self.cx, self.values.is_full());
            }
            Envelope::Published { is_sharded, channel, message } => {
                self.channels.hear(&mut self.cx, is_sharded, channel, message)
            }
            Envelope::ListenersAsked { id, is_sharded, names } => {
                self.channels.listeners_asked(&mut self.cx, from, (id, is_sharded), names)?;
            }
            Envelope::Listeners { id, counts } => {
                self.channels.listeners_answered(&mut self.cx, from, id, counts)?;
            }
            Envelope::Asked { id, words } => self.answer_node(from, id, words)?,
            Envelope::Answered { id, reply } => self.asking.answered(&mut self.cx, from, id, reply)?,
            Envelope::Traced { id, context } => self.cx.spans.announced(self.cx.now, from, id, context),
            Envelope::ValueAsked { id, group, reference } => {
                let ticket = Origin::Peer(from, peer.link()).ticket(id);
                let Node { cx, completing, values, .. } = self;
                completing.read_for_peer(cx, values, ticket, group, reference);
            }
            Envelope::Requests(items) => self.forwarded_requests(from, items)?,
            Envelope::Outcomes(items) => {
                let mut reader = Reader::new(items);
                while !reader.is_empty() {
                    let outcome = ForwardedOutcome::decode(&mut reader)?;
                    let ForwardedOutcome { id, result, reply } = outcome;
                    let handle = Handle::from_bits(id);
                    let ended = self.forwarding.take_outcome(&mut self.cx, from, handle, result, reply);
                    if let Some((ticket, group)) = ended {
                        self.complete(ticket, group, result, reply);
                    }
                }
            }
            Envelope::OutcomePart(part) => self.forwarding.outcome_part(&mut self.cx, from, &part)?,
            Envelope::PartsArrived { id, so_far } => peer.long_reply_arrived(id, so_far)?,
            Envelope::ClockAsked { asked_us } => self.clock.asked(&mut self.cx, from, asked_us),
            Envelope::ClockAnswer { asked_us, own_ms, agreed_ms } => {
                self.clock.take_answer(&mut self.cx, from, asked_us, (own_ms, agreed_ms));
            }
        }
        Ok(())
    }

    /// Carries out the requests of a peer's clients, in order. A few bytes can request a large reply: when too many
    /// replies wait to be sent, the remaining requests wait for them, so that no peer can make this node hold an
    /// unlimited number. When this turn has used up its time, the remaining requests wait for the next turn.
    pub(super) fn forwarded_requests(&mut self, from: NodeId, items: &[u8]) -> Result<(), Malformed> {
        let mut reader = Reader::new(items);
        while !reader.is_empty() {
            let rest = reader.rest();
            let asked = ForwardedRequest::decode(&mut reader)?;
            let decoded = DecodedRequest::decode(&mut reader)?;
            let is_spent = self.is_spent();
            let peer = &mut self.cx.peers[from];
            if peer.must_wait() || is_spent {
                while !reader.is_empty() {
                    ForwardedRequest::decode(&mut reader)?;
                    DecodedRequest::decode(&mut reader)?;
                }
                peer.defer(rest);
                return Ok(());
            }
            let deadline_us = match asked.remaining_ms {
                NO_DEADLINE_MS => u64::MAX,
                remaining_ms => self.cx.now.monotonic_us + remaining_ms as u64 * 1000,
            };
            let link = peer.link();
            let ticket = Origin::Peer(from, link).ticket(asked.id);
            if self.cx.spans.is_on() {
                self.cx.spans.begin_forwarded(self.cx.now, ticket, (from, asked.id));
            }
            let ForwardedRequest { follows, seen, hops, leadership, .. } = asked;
            let belongs = match &decoded {
                DecodedRequest::Command(command) => self.cx.belongs(asked.group, command),
                DecodedRequest::Wait { .. } => true,
            };
            if belongs && self.cx.groups.get(asked.group).is_some() {
                self.submit(
                    asked.group,
                    Asked { ticket, follows, seen, deadline_us, hops, leadership },
                    &decoded.request(),
                );
            } else {
                self.complete_with_error(ticket, asked.group, Outcome::Refused, MOVED);
            }
        }
        Ok(())
    }

    /// The frames to be written to a peer. The caller removes what it writes.
    pub fn peer_output(&mut self, id: NodeId) -> &mut Vec<u8> {
        self.cx.peers[id].output()
    }

    /// The frames to be written to a peer's urgent link.
    pub fn peer_urgent_output(&mut self, id: NodeId) -> &mut Vec<u8> {
        self.cx.peers[id].urgent_output()
    }

    /// The longest payload that a peer may send, in bytes: a request of the greatest length, a batch with one, or a
    /// reply. This node's limits for its own clients do not matter: the peer's may differ.
    pub fn peer_payload_bytes_max(&self) -> usize {
        peer_payload_bytes_max()
    }
}
