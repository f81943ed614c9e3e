//! What comes from other nodes: links, and the frames over them.

use super::Node;
use crate::clock;
use crate::context::peers::peer_payload_bytes_max;
use crate::context::{memory, peers, room};
use crate::control::CONTROL_GROUP;
use crate::envelope::{Envelope, ForwardedOutcome};
use crate::slab::Handle;
use kv::codec::{Malformed, Reader};
use protocol::{Input, NodeId};

impl Node {
    /// Handles a link to a peer that came up or broke. What was on its way over a broken link is lost, and forgotten.
    pub fn peer_link(&mut self, id: NodeId, up: bool) {
        let Some(peer) = self.cx.peers.get_mut(id) else { return };
        let was_up = peer.set_link(up, self.cx.now);
        if up {
            peer.send(&Envelope::Life(self.waits.life()));
            memory::announce_to(&mut self.cx, id);
            room::announce_to(&mut self.cx, id);
            clock::ask(&mut self.cx, id);
        }
        memory::note_full_peers(&mut self.cx);
        room::note_short_peers(&mut self.cx);
        self.coding.link_changed(id);
        if !up {
            self.waits.check(&mut self.cx, |_| true);
        }
        if was_up {
            self.forwarding.end_forwards(&mut self.cx, |entry| entry.to == id, "was lost before it answered");
        }
        let mut place = 0;
        while let Some(group) = self.cx.groups.id_at(place) {
            place += 1;
            self.cx.groups[group].tail.drop_held(id);
            if was_up && up {
                // A new link replaces an old one whose end was never noticed.
                self.step(group, Input::Link { peer: id, up: false });
            }
            self.step(group, Input::Link { peer: id, up });
            peers::set_reached(&mut self.cx, group, id);
        }
        self.cluster.link(&mut self.cx, id, up);
        self.carry_out_calls();
    }

    /// Handles a second link to a peer, beside the one that is up, that came up for urgent messages, or broke. What was
    /// on its way over it may be lost, as any message of a replica may.
    pub fn peer_urgent_link(&mut self, id: NodeId, up: bool) {
        if let Some(peer) = self.cx.peers.get_mut(id) {
            peer.set_urgent_link(up);
        }
    }

    /// Takes a frame from a peer.
    ///
    /// # Errors
    /// [`Malformed`] when the peer does not speak this node's language: close the link. What came before the malformed
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
                    return Ok(()); // As if it had been lost on its way, which may happen to any message.
                }
                let takes_registers = room::takes_registers(&self.cx, group);
                // One of the two may know of a group before the other, or still know of it.
                let known = self.cx.groups.get_mut(group).filter(|group| group.holds.is_none());
                if let Some(replica) = known.and_then(|group| group.replica.as_mut()) {
                    replica.set_room(takes_registers);
                    replica.step(self.cx.now, Input::Message { from, message }, &mut self.effects)?;
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
            Envelope::Room { is_short, is_aside } => {
                peer.report_room(is_short, is_aside);
                if is_aside {
                    peers::reaches(&mut self.cx, from, false); // No group may rely on it until it sends a sign of life again.
                }
                room::note_short_peers(&mut self.cx);
                room::tend(&mut self.cx, self.values.is_full());
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
            Envelope::Requests(items) => self.forwarded_requests(from, items)?,
            Envelope::Outcomes(items) => {
                let mut reader = Reader::new(items);
                while !reader.is_empty() {
                    let outcome = ForwardedOutcome::decode(&mut reader)?;
                    let handle = Handle::from_bits(outcome.id);
                    if self.forwarding.entries.get(handle).is_none_or(|entry| entry.to != from) {
                        continue; // It has ended here already.
                    }
                    let Some(entry) = self.forwarding.take_forward(&mut self.cx, handle) else { continue };
                    let ForwardedOutcome { result, reply, .. } = outcome;
                    if self.forwarding.answered(&mut self.cx, &entry, result, reply) {
                        self.complete(entry.ticket, entry.group, result, reply);
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
