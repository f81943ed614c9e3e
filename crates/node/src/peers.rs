//! The links to the other nodes: frames that arrive over them, and frames gathered for them.

use crate::control::CONTROL_GROUP;
use crate::envelope::{Envelope, ForwardedOutcome, ForwardedRequest, NO_DEADLINE_MS};
use crate::long_replies::LongReplies;
use crate::node::{Node, request_bytes_max};
use crate::origin::Origin;
use crate::routing::{Asked, Forwarded};
use crate::slab::Handle;
use kv::Reply;
use kv::codec::{Malformed, Reader};
use protocol::planted::Fault;
use protocol::{Input, NodeId, Now, Request, Result as Outcome};
use wire::frame;

/// Another node, as this one sees it.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    pub(crate) up: bool,
    /// The number of the newest link.
    pub(crate) link: u32,
    /// Frames to be written.
    pub(crate) output: Vec<u8>,
    /// Whether there is a second link, for what must not wait behind long frames.
    pub(crate) has_urgent_link: bool,
    /// Frames to be written to the second link.
    pub(crate) urgent_output: Vec<u8>,
    /// This turn's forwarded requests, and outcomes of its requests.
    pub(crate) requests: Vec<u8>,
    pub(crate) outcomes: Vec<u8>,
    /// Outcomes of its requests whose replies are long.
    pub(crate) long_replies: LongReplies,
    /// Its requests that are deferred: too many replies to earlier ones have not left yet.
    pub(crate) deferred: Vec<u8>,
    /// Whether this node hears it: it has sent a sign of life lately.
    pub(crate) is_reached: bool,
    /// When anything last came from it.
    pub(crate) heard_us: u64,
    /// Its incarnation, as it reported over this link.
    pub(crate) life: Option<u64>,
    /// Whether it has no memory left for data that grows, as it reported over this link.
    pub(crate) is_full: bool,
    /// Whether its disk has no room but the reserve, and whether it stands aside for that, as it reported over this
    /// link.
    pub(crate) is_short: bool,
    pub(crate) is_aside: bool,
    /// When it last left a forwarded request unanswered.
    pub(crate) silent_since_us: Option<u64>,
    /// When it was last asked for a sign of life.
    pub(crate) probed_us: u64,
}

impl Node {
    /// Handles a link to a peer that came up or broke. What was on its way over a broken link is lost, and forgotten.
    pub fn peer_link(&mut self, id: NodeId, up: bool) {
        let Some(peer) = self.peers.get_mut(id.wrapping_sub(1) as usize) else { return };
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
        (peer.heard_us, peer.probed_us) = (self.now.monotonic_us, 0);
        peer.life = None;
        peer.is_full = false;
        peer.is_reached = up;
        peer.heard_us = self.now.monotonic_us;
        (peer.is_short, peer.is_aside) = (false, false);
        if up {
            let life = self.lock_waits.life();
            frame::append(&mut peer.output, |out| Envelope::Life(life).encode(out));
            if self.memory.is_full() {
                frame::append(&mut peer.output, |out| Envelope::Memory { is_full: true }.encode(out));
            }
            self.announce_room(id);
            self.ask_clock(id);
        }
        self.note_full_peers();
        self.note_short_peers();
        self.coding.link_changed(id);
        if !up {
            self.check_lock_waits(|_| true);
        }
        if was_up {
            self.end_forwards(|entry| entry.to == id, "was lost before it answered");
        }
        let mut place = 0;
        while let Some(group) = self.groups.id_at(place) {
            place += 1;
            self.groups[group].tail.drop_held(id);
            if was_up && up {
                // A new link replaces an old one whose end was never noticed.
                self.step(group, Input::Link { peer: id, up: false });
            }
            self.step(group, Input::Link { peer: id, up });
            self.set_reached(group, id);
        }
        self.control_tail.drop_held(id);
        self.control(|control, now, effects| control.link(now, id, up, effects));
    }

    /// Sends the other nodes a sign of life, and checks which of them are alive: once for all groups.
    pub(crate) fn watch_peers(&mut self) {
        const ALIVE_MS: u64 = 200;
        // A process that has died breaks its links, and a request wakes the group that it is for: so this is for
        // machines that vanish while no client asks, and must not mistake busy machines for those.
        const SILENCE_MS: u64 = 1000;
        let now_us = self.now.monotonic_us;
        if now_us < self.alive_due_us {
            return;
        }
        let patience = self.configuration.patience;
        self.alive_due_us = now_us + ALIVE_MS * patience * 1000;
        // No group may rely on a node that cannot keep what it must, or that may not take part.
        let is_of_use = self.is_admitted && !self.stands_aside(CONTROL_GROUP);
        let mut silent = Vec::new();
        for (id, peer) in (1..).zip(&mut self.peers).filter(|(_, peer)| peer.up) {
            if is_of_use {
                let output = if peer.has_urgent_link { &mut peer.urgent_output } else { &mut peer.output };
                frame::append(output, |out| Envelope::Alive.encode(out));
            }
            if peer.is_reached && now_us >= peer.heard_us + SILENCE_MS * patience * 1000 {
                silent.push(id);
            }
        }
        silent.into_iter().for_each(|id| self.reaches(id, false));
    }

    /// Notes whether a peer is alive.
    fn reaches(&mut self, id: NodeId, is_reached: bool) {
        let peer = &mut self.peers[usize::from(id) - 1];
        if peer.is_reached != is_reached {
            peer.is_reached = is_reached;
            self.for_each_group(|node, group| node.set_reached(group, id));
        }
    }

    /// Informs a group's replica whether a peer is alive.
    pub(crate) fn set_reached(&mut self, group: u16, id: NodeId) {
        let is_reached = self.peers[usize::from(id) - 1].is_reached;
        if let Some(replica) = &mut self.groups[group].replica {
            replica.set_reached(self.now, id, is_reached);
            self.groups.touch(group);
        }
    }

    /// Handles a second link to a peer, beside the one that is up, that came up for urgent messages, or broke. What was
    /// on its way over it may be lost, as any message of a replica may.
    pub fn peer_urgent_link(&mut self, id: NodeId, up: bool) {
        let Some(peer) = self.peers.get_mut(usize::from(id).wrapping_sub(1)) else { return };
        peer.has_urgent_link = up && peer.up;
        peer.urgent_output.clear();
    }

    /// Whether the link to a peer is up.
    pub(crate) fn peer_is_up(&self, id: NodeId) -> bool {
        self.peers.get(id.wrapping_sub(1) as usize).is_some_and(|peer| peer.up)
    }

    /// Takes a frame from a peer.
    ///
    /// # Errors
    /// [`Malformed`] when the peer does not speak this node's language: close the link. What came before the malformed
    /// part has taken effect.
    pub fn peer_frame(&mut self, from: NodeId, payload: &[u8]) -> Result<(), Malformed> {
        let Some(peer) = self.peers.get_mut(usize::from(from).wrapping_sub(1)) else {
            return Ok(()); // A node that the map does not know cannot be answered.
        };
        peer.heard_us = self.now.monotonic_us;
        match Envelope::decode(payload)? {
            Envelope::Group { group, message } => {
                if group == CONTROL_GROUP {
                    let mut read = Ok(());
                    self.control(|control, now, effects| read = control.message(now, from, message, effects));
                    return read;
                }
                if self.stands_aside(group) {
                    return Ok(()); // As if it had been lost on its way, which may happen to any message.
                }
                let takes_registers = self.takes_registers(group);
                // One of the two may know of a group before the other, or still know of it.
                let known = self.groups.get_mut(group).filter(|group| group.holds.is_none());
                if let Some(replica) = known.and_then(|group| group.replica.as_mut()) {
                    replica.set_room(takes_registers);
                    replica.step(self.now, Input::Message { from, message }, &mut self.effects)?;
                    self.settle(group);
                }
            }
            Envelope::Fragments { group, message } => self.fragment_message(group, from, message)?,
            Envelope::Leader { group, leader } => {
                if let Some(group) = self.groups.get_mut(group).filter(|it| it.members.contains(&leader)) {
                    group.reported_leader = leader;
                }
            }
            Envelope::Life(life) => self.peers[usize::from(from) - 1].life = Some(life),
            Envelope::Alive => {
                self.peers[usize::from(from) - 1].heard_us = self.now.monotonic_us;
                self.reaches(from, true);
            }
            Envelope::Told { group, told } => self.lock_notified(group, told),
            Envelope::Script(text) => self.learn_script(text),
            Envelope::ForgetScripts => self.scripts.clear(),
            Envelope::Memory { is_full } => {
                self.peers[usize::from(from) - 1].is_full = is_full;
                self.note_full_peers();
            }
            Envelope::Room { is_short, is_aside } => {
                let peer = &mut self.peers[usize::from(from) - 1];
                (peer.is_short, peer.is_aside) = (is_short, is_aside);
                if is_aside {
                    self.reaches(from, false); // No group may rely on it until it sends a sign of life again.
                }
                self.note_short_peers();
                self.tend_room();
            }
            Envelope::Published { is_sharded, channel, message } => self.hear(is_sharded, channel, message),
            Envelope::Requests(items) => self.forwarded_requests(from, items)?,
            Envelope::Outcomes(items) => {
                let mut reader = Reader::new(items);
                while !reader.is_empty() {
                    let outcome = ForwardedOutcome::decode(&mut reader)?;
                    let handle = Handle::from_bits(outcome.id);
                    if self.forwards.get(handle).is_none_or(|entry| entry.to != from) {
                        continue; // It has ended here already.
                    }
                    let Some(entry) = self.take_forward(handle) else { continue };
                    self.forward_answered(&entry, outcome.result, outcome.reply);
                }
            }
            Envelope::OutcomePart(part) => self.outcome_part(from, &part)?,
            Envelope::PartsArrived { id, so_far } => {
                self.peers[usize::from(from) - 1].long_replies.arrived(id, so_far)?;
            }
            Envelope::ClockAsked { asked_us } => self.clock_asked(from, asked_us),
            Envelope::ClockTold { asked_us, own_ms, agreed_ms } => {
                self.clock_summary(from, asked_us, (own_ms, agreed_ms));
            }
        }
        Ok(())
    }

    /// Handles the outcome of a forwarded request.
    #[inline]
    fn forward_answered(&mut self, entry: &Forwarded, result: Outcome, reply: &[u8]) {
        if let Outcome::Redirect { .. } = result {
            // The leadership that it was meant for is over: it never happens there.
            let error = "CLUSTERDOWN NOLEADER the leader has changed; nothing was done, try again";
            if !self.ask_again(entry, error.into()) {
                self.complete_with_error(entry.ticket, entry.group, Outcome::Refused, error);
            }
            return;
        }
        if result == Outcome::Refused
            && let Some(why) = self.note_refusal(entry, reply)
            && self.is_newest(entry)
            && self.ask_again(entry, why)
        {
            return;
        }
        self.complete(entry.ticket, entry.group, result, reply);
    }

    /// Notes that a node could not serve a forwarded request, so that another one is asked next time. Returns its
    /// reason, if it refused for that.
    pub(crate) fn note_refusal(&mut self, entry: &Forwarded, reply: &[u8]) -> Option<String> {
        let Reply::Error(error) = Reply::first(reply) else { return None };
        if !error.starts_with(b"CLUSTERDOWN ") && !error.starts_with(b"LOADING ") {
            return None;
        }
        if let Some(group) = self.groups.get_mut(entry.group) {
            group.refused_by = entry.to;
            if group.reported_leader == entry.to {
                group.reported_leader = 0;
            }
        }
        Some(String::from_utf8_lossy(error).into_owned())
    }

    /// Whether a refused request may be sent again: no later one of its client is under way, which may have been
    /// accepted.
    fn is_newest(&self, entry: &Forwarded) -> bool {
        let is_later = |other: &Forwarded| {
            other.number > entry.number
                && (other.ticket.client, other.group) == (entry.ticket.client, entry.group)
        };
        !self.forwards.iter().any(|(_, other)| is_later(other))
    }

    /// Ends forwarded requests whose answer is overdue: the node that they went to would have answered in time.
    pub(crate) fn end_overdue_forwards(&mut self) {
        const GRACE_US: u64 = 500_000;
        let now_us = self.now.monotonic_us;
        let is_overdue = |entry: &Forwarded| entry.deadline_us.saturating_add(GRACE_US) <= now_us;
        let overdue = self.forwards.iter().map(|(_, entry)| entry).filter(|entry| is_overdue(entry));
        overdue.for_each(|entry| self.peers[entry.to as usize - 1].silent_since_us = Some(now_us));
        self.end_forwards_for_good(is_overdue, "did not answer in time");
    }

    /// Handles forwarded requests that will get no answer. A request that has changed nothing is sent again, in its
    /// order. A write that was meant for one leadership is sent again, too, once it turns out that it never happens
    /// there; the requests behind it wait for that. The outcome of any other write is unknown.
    pub(crate) fn end_forwards(&mut self, ends: impl Fn(&Forwarded) -> bool, why: &'static str) {
        let begun_us = self.now.monotonic_us;
        for entry in self.forwards.iter_mut() {
            if entry.doubt.is_none() && ends(entry) {
                entry.doubt = Some((why, begun_us));
                self.waiting.in_doubt += 1;
            }
        }
        self.end_doubts();
    }

    /// Ends requests in doubt, as far as their outcome can be known.
    pub(crate) fn end_doubts(&mut self) {
        if self.waiting.in_doubt == 0 {
            return;
        }
        let in_doubt = self.forwards.iter().filter(|(_, entry)| entry.doubt.is_some());
        let mut in_doubt: Vec<(u64, Handle)> =
            in_doubt.map(|(handle, entry)| (entry.number, handle)).collect();
        in_doubt.sort_unstable();
        let mut undecided: Vec<u16> = Vec::new();
        for (_, handle) in in_doubt {
            let Some(entry) = self.forwards.get(handle) else { continue };
            if undecided.contains(&entry.group) {
                continue; // It must not overtake an earlier request.
            }
            match self.is_void(entry) {
                Some(is_void) => self.end_forward(handle, is_void),
                None => undecided.push(entry.group),
            }
        }
    }

    /// Whether a request in doubt has changed nothing and never will; `None` while that is still to be found out.
    fn is_void(&self, entry: &Forwarded) -> Option<bool> {
        const DOUBT_MS: u64 = 2000;
        if !entry.is_write {
            return Some(true);
        }
        let (_, since_us) = entry.doubt?;
        if self.configuration.planted.has(Fault::DoubtTakenForVoid) {
            return Some(true);
        }
        let replica = self.groups.get(entry.group).and_then(|group| group.replica.as_ref());
        let Some(replica) = replica.filter(|_| entry.leadership != 0) else { return Some(false) };
        let is_over = self.now.ms_since(since_us) >= DOUBT_MS * self.configuration.patience;
        replica.is_void(entry.to, entry.position).or(is_over.then_some(false))
    }

    /// Ends forwarded requests, whether or not more could become known.
    pub(crate) fn end_forwards_for_good(&mut self, ends: impl Fn(&Forwarded) -> bool, why: &'static str) {
        let ended = self.forwards.iter().filter(|(_, entry)| ends(entry));
        let mut ended: Vec<(u64, Handle)> = ended.map(|(handle, entry)| (entry.number, handle)).collect();
        ended.sort_unstable();
        for (_, handle) in ended {
            let Some(entry) = self.forwards.get_mut(handle) else { continue };
            self.waiting.in_doubt += usize::from(entry.doubt.is_none());
            entry.doubt.get_or_insert((why, 0));
            let is_read = !entry.is_write;
            self.end_forward(handle, is_read);
        }
    }

    fn end_forward(&mut self, handle: Handle, is_void: bool) {
        let Some(entry) = self.take_forward(handle) else { return };
        let Forwarded { ticket, group, to, doubt, .. } = entry;
        let why = doubt.map_or("did not answer", |(why, _)| why);
        if !is_void {
            let error =
                format!("UNKNOWN node {to} {why}; the write may have taken effect or may still do so");
            return self.complete_with_error(ticket, group, Outcome::Unknown, &error);
        }
        let has_leader = self.groups.get(group).is_none_or(|group| group.keyspace.has_leader());
        let code = if has_leader { "NOLEADER" } else { "NOQUORUM" };
        let error = format!("CLUSTERDOWN {code} node {to} {why}; nothing was changed");
        if !self.ask_again(&entry, error.clone()) {
            self.complete_with_error(ticket, group, Outcome::Refused, &error);
        }
        self.waiting.look_soon(self.now);
    }

    /// Carries out the requests of a peer's clients, in order. A few bytes can ask for a large reply: when too many
    /// replies wait to leave, the remaining requests wait for them, so that no peer can make this node hold an
    /// unlimited number. And when this turn has done its share, the remaining requests wait for the next one.
    pub(crate) fn forwarded_requests(&mut self, from: NodeId, items: &[u8]) -> Result<(), Malformed> {
        let mut reader = Reader::new(items);
        while !reader.is_empty() {
            let rest = reader.rest();
            let asked = ForwardedRequest::decode(&mut reader)?;
            let is_spent = self.is_spent();
            let peer = &mut self.peers[from as usize - 1];
            if !peer.deferred.is_empty() || peer.owes_too_much() || is_spent {
                while !reader.is_empty() {
                    ForwardedRequest::decode(&mut reader)?;
                }
                self.peers[from as usize - 1].deferred.extend_from_slice(rest);
                return Ok(());
            }
            let deadline_us = match asked.remaining_ms {
                NO_DEADLINE_MS => u64::MAX,
                remaining_ms => self.now.monotonic_us + remaining_ms as u64 * 1000,
            };
            let link = self.peers[from as usize - 1].link;
            let ticket = Origin::Peer(from, link).ticket(asked.id);
            let ForwardedRequest { follows, seen, hops, leadership, .. } = asked;
            // A node with another map may send a key to another group, where it would not be found later.
            let belongs = match &asked.request {
                Request::Command(command) => self.group_of(command).is_none_or(|group| group == asked.group),
                Request::Wait { .. } => true,
            };
            if belongs && self.groups.get(asked.group).is_some() {
                self.submit(
                    asked.group,
                    Asked { ticket, follows, seen, deadline_us, hops, leadership },
                    asked.request,
                );
            } else {
                let own = self.configuration.node;
                let error = format!(
                    "CLUSTERDOWN NOLEADER node {own} does not know that keyspace; nothing was done, try again"
                );
                self.complete_with_error(ticket, asked.group, Outcome::Refused, &error);
            }
        }
        Ok(())
    }

    /// The frames to be written to a peer. The caller removes what it writes.
    pub fn peer_output(&mut self, id: NodeId) -> &mut Vec<u8> {
        &mut self.peers[id as usize - 1].output
    }

    /// The frames to be written to a peer's urgent link.
    pub fn peer_urgent_output(&mut self, id: NodeId) -> &mut Vec<u8> {
        &mut self.peers[id as usize - 1].urgent_output
    }

    /// The longest payload that a peer may send, in bytes: a request of the greatest length, a batch with one, or a
    /// reply. This node's limits for its own clients do not matter: the peer's may differ.
    pub fn peer_payload_bytes_max(&self) -> usize {
        request_bytes_max(kv::limits::VALUE_BYTES_MAX_CEILING).max(kv::limits::REPLY_BYTES_MAX) + (4 << 20)
    }
}

impl Peer {
    /// Moves this turn's requests and outcomes into the output, as envelopes.
    pub(crate) fn flush(&mut self) {
        if !self.requests.is_empty() {
            let envelope = Envelope::Requests(&self.requests);
            frame::append(&mut self.output, |out| envelope.encode(out));
            self.requests.clear();
        }
        if !self.outcomes.is_empty() {
            let envelope = Envelope::Outcomes(&self.outcomes);
            frame::append(&mut self.output, |out| envelope.encode(out));
            self.outcomes.clear();
        }
    }

    /// Ends the turn: short frames go before parts of long replies.
    pub(crate) fn end_turn(&mut self) {
        self.flush();
        self.long_replies.pump(&mut self.output);
    }

    /// Whether more bytes wait to be written to it than its requests may add to.
    pub(crate) fn owes_too_much(&self) -> bool {
        const OWED_BYTES_MAX: usize = 16 << 20;
        self.output.len() + self.outcomes.len() > OWED_BYTES_MAX || self.long_replies.are_too_many()
    }

    /// Whether it stands still, or has recently left a forwarded request unanswered: others are asked first.
    pub(crate) fn is_silent(&self, now: Now, patience: u64) -> bool {
        const SILENCE_MS: u64 = 5000;
        self.silent_since_us.is_some_and(|since_us| now.ms_since(since_us) < SILENCE_MS)
            || self.is_mute(now, patience)
    }

    /// Whether deferred requests can continue now.
    pub(crate) fn has_due_requests(&self) -> bool {
        !self.deferred.is_empty() && !self.owes_too_much()
    }

    /// Flushes once an envelope is large: a turn is not bounded, but an envelope is.
    #[inline]
    pub(crate) fn flush_if_large(&mut self) {
        const ENVELOPE_BYTES: usize = 1 << 20;
        if self.requests.len() + self.outcomes.len() >= ENVELOPE_BYTES {
            self.flush();
            self.requests.shrink_to(ENVELOPE_BYTES);
            self.outcomes.shrink_to(ENVELOPE_BYTES);
        }
    }
}
