//! What comes from other nodes: links, and the frames over them.

use super::Node;
use crate::clock;
use crate::context::peers::peer_payload_bytes_max;
use crate::control::CONTROL_GROUP;
use crate::envelope::{Envelope, ForwardedOutcome};
use crate::slab::Handle;
use kv::codec::{Malformed, Reader};
use protocol::{Input, NodeId};
use wire::frame;

impl Node {
    /// Handles a link to a peer that came up or broke. What was on its way over a broken link is lost, and forgotten.
    pub fn peer_link(&mut self, id: NodeId, up: bool) {
        let Some(peer) = self.cx.peers.get_mut(id.wrapping_sub(1) as usize) else { return };
        let was_up = std::mem::replace(&mut peer.up, up);
        peer.link = peer.link.wrapping_add(u32::from(up));
        peer.output.clear();
        peer.has_urgent_link = false;
        peer.urgent_output.clear();
        peer.requests.clear();
        peer.outcomes.clear();
        peer.long_replies.clear();
        peer.deferred.clear();
        peer.silent_since_us = None;
        (peer.heard_us, peer.probed_us) = (self.cx.now.monotonic_us, 0);
        peer.life = None;
        peer.is_full = false;
        peer.is_reached = up;
        peer.heard_us = self.cx.now.monotonic_us;
        (peer.is_short, peer.is_aside) = (false, false);
        if up {
            let life = self.waits.life();
            frame::append(&mut peer.output, |out| Envelope::Life(life).encode(out));
            if self.cx.memory.is_full() {
                frame::append(&mut peer.output, |out| Envelope::Memory { is_full: true }.encode(out));
            }
            self.cx.announce_room(id);
            clock::ask(&mut self.cx, id);
        }
        self.cx.note_full_peers();
        self.cx.note_short_peers();
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
            self.cx.set_reached(group, id);
        }
        self.cluster.link(&mut self.cx, id, up);
        self.carry_out_calls();
    }

    /// Sends the other nodes a sign of life, and checks which of them are alive: once for all groups.
    pub(crate) fn watch_peers(&mut self) {
        const ALIVE_MS: u64 = 200;
        // A process that has died breaks its links, and a request wakes the group that it is for: so this is for
        // machines that vanish while no client asks, and must not mistake busy machines for those.
        const SILENCE_MS: u64 = 1000;
        let now_us = self.cx.now.monotonic_us;
        if now_us < self.alive_due_us {
            return;
        }
        let patience = self.cx.configuration.patience;
        self.alive_due_us = now_us + ALIVE_MS * patience * 1000;
        // No group may rely on a node that cannot keep what it must, or that may not take part.
        let is_of_use = self.cx.is_admitted && !self.cx.stands_aside(CONTROL_GROUP);
        let mut silent = Vec::new();
        for (id, peer) in (1..).zip(&mut self.cx.peers).filter(|(_, peer)| peer.up) {
            if is_of_use {
                let output = if peer.has_urgent_link { &mut peer.urgent_output } else { &mut peer.output };
                frame::append(output, |out| Envelope::Alive.encode(out));
            }
            if peer.is_reached && now_us >= peer.heard_us + SILENCE_MS * patience * 1000 {
                silent.push(id);
            }
        }
        silent.into_iter().for_each(|id| self.cx.reaches(id, false));
    }

    /// Handles a second link to a peer, beside the one that is up, that came up for urgent messages, or broke. What was
    /// on its way over it may be lost, as any message of a replica may.
    pub fn peer_urgent_link(&mut self, id: NodeId, up: bool) {
        let Some(peer) = self.cx.peers.get_mut(usize::from(id).wrapping_sub(1)) else { return };
        peer.has_urgent_link = up && peer.up;
        peer.urgent_output.clear();
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
        let Some(peer) = self.cx.peers.get_mut(usize::from(from).wrapping_sub(1)) else {
            return Ok(()); // A node that the map does not know cannot be answered.
        };
        peer.heard_us = self.cx.now.monotonic_us;
        match Envelope::decode(payload)? {
            Envelope::Group { group, message } => {
                if group == CONTROL_GROUP {
                    return self.cluster.message(&mut self.cx, from, message);
                }
                if self.cx.stands_aside(group) {
                    return Ok(()); // As if it had been lost on its way, which may happen to any message.
                }
                let takes_registers = self.cx.takes_registers(group);
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
            Envelope::Life(life) => self.cx.peers[usize::from(from) - 1].life = Some(life),
            Envelope::Alive => {
                self.cx.peers[usize::from(from) - 1].heard_us = self.cx.now.monotonic_us;
                self.cx.reaches(from, true);
            }
            Envelope::LockNotified { group, notified } => self.waits.notified(&mut self.cx, group, notified),
            Envelope::Script(text) => self.scripts.learn_script(text),
            Envelope::ForgetScripts => self.scripts.clear(),
            Envelope::Memory { is_full } => {
                self.cx.peers[usize::from(from) - 1].is_full = is_full;
                self.cx.note_full_peers();
            }
            Envelope::Room { is_short, is_aside } => {
                let peer = &mut self.cx.peers[usize::from(from) - 1];
                (peer.is_short, peer.is_aside) = (is_short, is_aside);
                if is_aside {
                    self.cx.reaches(from, false); // No group may rely on it until it sends a sign of life again.
                }
                self.cx.note_short_peers();
                self.cx.tend_room(self.values.is_full());
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
            Envelope::PartsArrived { id, so_far } => {
                self.cx.peers[usize::from(from) - 1].long_replies.arrived(id, so_far)?;
            }
            Envelope::ClockAsked { asked_us } => self.clock.asked(&mut self.cx, from, asked_us),
            Envelope::ClockAnswer { asked_us, own_ms, agreed_ms } => {
                self.clock.take_answer(&mut self.cx, from, asked_us, (own_ms, agreed_ms));
            }
        }
        Ok(())
    }

    /// The frames to be written to a peer. The caller removes what it writes.
    pub fn peer_output(&mut self, id: NodeId) -> &mut Vec<u8> {
        &mut self.cx.peers[id as usize - 1].output
    }

    /// The frames to be written to a peer's urgent link.
    pub fn peer_urgent_output(&mut self, id: NodeId) -> &mut Vec<u8> {
        &mut self.cx.peers[id as usize - 1].urgent_output
    }

    /// The longest payload that a peer may send, in bytes: a request of the greatest length, a batch with one, or a
    /// reply. This node's limits for its own clients do not matter: the peer's may differ.
    pub fn peer_payload_bytes_max(&self) -> usize {
        peer_payload_bytes_max()
    }
}
