//! The other nodes, and the links to them: what this node knows of each, and the frames gathered for it.

use crate::context::long_replies::LongReplies;
use crate::context::{Context, room};
use crate::messages::envelope::{Envelope, ForwardedOutcome, ForwardedRequest};
use crate::parameters::request_bytes_max;
use cluster::control::CONTROL_GROUP;
use kv::codec::Malformed;
use protocol::vouch::Vouch;
use protocol::{NodeId, Now, Request};
use std::ops::{Index, IndexMut};
use wire::frame;
use wire::release::Release;

/// How long a peer that was asked for a sign of life may give none before it counts as mute, in milliseconds.
pub(crate) const MUTE_MS: u64 = 300;

/// All nodes that any map so far has named, by their numbers. This node is among them, and no link to it is ever up.
///
/// Indexing panics for a node that no map has named; see [`Peers::get`].
#[derive(Debug, Default)]
pub(crate) struct Peers {
    peers: Vec<Peer>,
    /// When this node next sends the others a sign of life.
    alive_due_us: u64,
}

/// Another node, as this one sees it.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    is_up: bool,
    /// The number of the newest link.
    link: u32,
    /// The release that both sides speak on the link; 0 while it is not up.
    release: Release,
    /// When the newest link came up, in milliseconds since the Unix epoch.
    since_ms: u64,
    /// Frames to be written.
    output: Vec<u8>,
    /// Whether there is a second link, for frames that must not wait behind long ones.
    has_urgent_link: bool,
    /// Frames to be written to the second link.
    urgent_output: Vec<u8>,
    /// This turn's forwarded requests, and outcomes of the peer's requests.
    requests: Vec<u8>,
    outcomes: Vec<u8>,
    /// Outcomes of the peer's requests whose replies are long.
    pub(super) long_replies: LongReplies,
    /// The peer's requests that are deferred: too many replies to earlier ones are still to be sent.
    deferred: Vec<u8>,
    /// Whether the peer counts as alive: it has sent a sign of life lately.
    is_reached: bool,
    /// When anything was last received from the peer.
    heard_us: u64,
    /// The peer's newest vouch for itself.
    vouch: Vouch,
    /// When the peer was last asked for a sign of life.
    probed_us: u64,
    /// When the peer last left a forwarded request unanswered.
    unanswered_us: Option<u64>,
    /// What the peer has reported over this link.
    reported: Reported,
}

/// What a peer has reported over a link; empty when the link comes up.
#[derive(Clone, Copy, Debug, Default)]
struct Reported {
    /// The peer's incarnation.
    life: Option<u64>,
    /// Whether the peer has no memory left for data that grows.
    is_full: bool,
    /// What it has left for data that this node has written, and what this node's writes had added in all by then.
    memory_left: Option<(u64, u64)>,
    /// Whether the peer's disk has no room but the reserve, and whether the peer stands aside because of that.
    is_short: bool,
    is_aside: bool,
    /// Whether it is about to stop.
    is_leaving: bool,
}

impl Index<NodeId> for Peers {
    type Output = Peer;

    #[inline]
    fn index(&self, id: NodeId) -> &Peer {
        &self.peers[usize::from(id) - 1]
    }
}

impl IndexMut<NodeId> for Peers {
    #[inline]
    fn index_mut(&mut self, id: NodeId) -> &mut Peer {
        &mut self.peers[usize::from(id) - 1]
    }
}

impl Peers {
    /// The node with this number; `None` if no map that this node has followed names it.
    #[inline]
    pub(crate) fn get(&self, id: NodeId) -> Option<&Peer> {
        self.peers.get(usize::from(id).wrapping_sub(1))
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: NodeId) -> Option<&mut Peer> {
        self.peers.get_mut(usize::from(id).wrapping_sub(1))
    }

    /// Makes room for nodes up to this number.
    pub(crate) fn grow(&mut self, last: NodeId) {
        if self.peers.len() < usize::from(last) {
            self.peers.resize_with(usize::from(last), Peer::default);
        }
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        1..=self.peers.len() as NodeId
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeId, &Peer)> {
        (1..).zip(&self.peers)
    }

    /// The peers to which a link is up.
    pub(crate) fn up_mut(&mut self) -> impl Iterator<Item = (NodeId, &mut Peer)> {
        (1..).zip(&mut self.peers).filter(|(_, peer)| peer.is_up)
    }

    /// Whether the link to a peer is up.
    #[inline]
    pub(crate) fn is_up(&self, id: NodeId) -> bool {
        self.get(id).is_some_and(|peer| peer.is_up)
    }

    /// Writes a frame to a peer. Returns false if there is no link to it.
    pub(crate) fn send(&mut self, to: NodeId, envelope: &Envelope<'_>) -> bool {
        let Some(peer) = self.get_mut(to).filter(|peer| peer.is_up) else { return false };
        peer.send(envelope);
        true
    }

    /// Writes a frame to all peers to which there is a link.
    pub(crate) fn send_to_all(&mut self, envelope: &Envelope<'_>) {
        self.up_mut().for_each(|(_, peer)| peer.send(envelope));
    }

    /// Whether any peer has no memory left for data that grows.
    pub(crate) fn any_is_full(&self) -> bool {
        self.peers.iter().any(Peer::is_full)
    }

    /// Whether the disk of any peer has no room but the reserve.
    pub(crate) fn any_is_short(&self) -> bool {
        self.peers.iter().any(Peer::is_short)
    }

    /// Whether any peer has deferred requests that can continue now.
    pub(crate) fn any_has_due_requests(&self) -> bool {
        self.peers.iter().any(Peer::has_due_requests)
    }

    /// The bytes of long replies that have not wholly arrived at the peers.
    pub(crate) fn long_reply_bytes(&self) -> usize {
        self.peers.iter().map(|peer| peer.long_replies.bytes()).sum()
    }

    /// When, on the monotonic clock, the peers get the next sign of life.
    pub(crate) fn wakeup_us(&self) -> u64 {
        self.alive_due_us
    }

    /// Sends the peers a sign of life, if groups may rely on this node. Returns the peers that have given none for
    /// too long.
    fn give_sign_of_life(&mut self, now: Now, patience: u64, is_of_use: bool) -> Vec<NodeId> {
        // Signs of life leave in the turn of every second renewal of the node's lease.
        const ALIVE_MS: u64 = 160;
        // A process that has died breaks its links, and a request makes the group that it is for active. So this is
        // for machines that fail without that while no client sends anything, and must not mistake busy machines for
        // failed ones.
        const SILENCE_MS: u64 = 1000;
        let mut silent = Vec::new();
        self.alive_due_us = now.next_beat_us(ALIVE_MS * patience * 1000);
        for (id, peer) in self.up_mut() {
            if is_of_use {
                peer.send_urgently(&Envelope::Alive);
            }
            if peer.is_reached && peer.silent_ms(now) >= SILENCE_MS * patience {
                silent.push(id);
            }
        }
        silent
    }

    /// Ends the turn: short frames go before parts of long replies.
    pub(crate) fn end_turn(&mut self) {
        for peer in &mut self.peers {
            peer.flush();
            peer.long_replies.pump(&mut peer.output);
        }
    }
}

impl Peer {
    #[inline]
    pub(crate) fn is_up(&self) -> bool {
        self.is_up
    }

    /// The number of the newest link.
    #[inline]
    pub(crate) fn link(&self) -> u32 {
        self.link
    }

    /// The release that both sides speak on the link: no message to the peer is of a later one. 0: there is no link.
    pub(crate) fn release(&self) -> Release {
        self.release
    }

    /// When the link that is up came up, in milliseconds since the Unix epoch.
    pub(crate) fn since_ms(&self) -> u64 {
        self.since_ms
    }

    /// Whether the link with this number is up. A newer link may be that of another incarnation of the node, which
    /// numbers its requests from the start again.
    #[inline]
    pub(crate) fn is_linked_by(&self, link: u32) -> bool {
        self.is_up && self.link == link
    }

    /// A link came up or broke. What was under way over the link before is lost, and what was reported over it may no
    /// longer hold. Returns whether a link was up.
    pub(crate) fn set_link(&mut self, release: Option<Release>, now: Now) -> bool {
        let is_up = release.is_some();
        self.release = release.unwrap_or_default();
        let was_up = std::mem::replace(&mut self.is_up, is_up);
        self.link = self.link.wrapping_add(u32::from(is_up));
        self.since_ms = now.unix_ms;
        self.output.clear();
        self.set_urgent_link(false);
        self.requests.clear();
        self.outcomes.clear();
        self.long_replies.clear();
        self.deferred.clear();
        self.is_reached = is_up;
        (self.heard_us, self.probed_us) = (now.monotonic_us, 0);
        self.vouch = Vouch::default();
        self.unanswered_us = None;
        self.reported = Reported::default();
        was_up
    }

    /// The second link came up beside the one that is up, or broke.
    pub(crate) fn set_urgent_link(&mut self, is_up: bool) {
        self.has_urgent_link = is_up && self.is_up;
        self.urgent_output.clear();
    }

    // Frames.

    /// Writes a frame.
    #[inline]
    pub(crate) fn send(&mut self, envelope: &Envelope<'_>) {
        frame::append(&mut self.output, |out| envelope.encode(out));
    }

    /// Writes a frame that must not wait behind long ones.
    #[inline]
    pub(crate) fn send_urgently(&mut self, envelope: &Envelope<'_>) {
        frame::append(self.output_for(true), |out| envelope.encode(out));
    }

    #[inline]
    fn output_for(&mut self, is_urgent: bool) -> &mut Vec<u8> {
        if is_urgent && self.has_urgent_link { &mut self.urgent_output } else { &mut self.output }
    }

    /// The frames that wait to be written. The caller removes those that it writes.
    pub(crate) fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// The frames that wait to be written to the second link.
    pub(crate) fn urgent_output(&mut self) -> &mut Vec<u8> {
        &mut self.urgent_output
    }

    /// The bytes of frames that wait to be written.
    #[inline]
    pub(crate) fn output_bytes(&self) -> usize {
        self.output.len()
    }

    /// Adds a request to those of this turn; returns the part of it that can be sent again. Call
    /// [`Peer::flush_if_large`] afterwards.
    #[inline]
    pub(crate) fn add_request(&mut self, forwarded: &ForwardedRequest, request: &Request<'_>) -> &[u8] {
        let start = forwarded.encode(request, &mut self.requests);
        &self.requests[start..]
    }

    /// Adds the outcome of one of the peer's requests to those of this turn.
    #[inline]
    pub(crate) fn add_outcome(&mut self, outcome: &ForwardedOutcome<'_>) {
        outcome.encode(&mut self.outcomes);
        self.flush_if_large();
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

    /// Moves this turn's requests and outcomes into the output, as envelopes.
    fn flush(&mut self) {
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

    /// Notes how much of a long reply has arrived at the peer; see [`LongReplies::arrived`].
    ///
    /// # Errors
    /// [`Malformed`] when less has arrived than before, or more than was sent.
    pub(crate) fn long_reply_arrived(&mut self, id: u64, so_far: Option<u32>) -> Result<(), Malformed> {
        self.long_replies.arrived(id, so_far)
    }

    // The peer's requests.

    /// Whether so many bytes wait to be written to the peer that its further requests must not add to them.
    fn owes_too_much(&self) -> bool {
        const OWED_BYTES_MAX: usize = 16 << 20;
        self.output.len() + self.outcomes.len() > OWED_BYTES_MAX || self.long_replies.are_too_many()
    }

    /// Whether further requests of the peer must be deferred.
    #[inline]
    pub(crate) fn must_wait(&self) -> bool {
        !self.deferred.is_empty() || self.owes_too_much()
    }

    /// Keeps requests of the peer, encoded, until they can continue.
    pub(crate) fn defer(&mut self, requests: &[u8]) {
        self.deferred.extend_from_slice(requests);
    }

    /// Whether deferred requests can continue now.
    #[inline]
    pub(crate) fn has_due_requests(&self) -> bool {
        !self.deferred.is_empty() && !self.owes_too_much()
    }

    pub(crate) fn take_deferred(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.deferred)
    }

    // Signs of life.

    /// Something was received from the peer.
    #[inline]
    pub(crate) fn heard(&mut self, now: Now) {
        self.heard_us = now.monotonic_us;
    }

    /// Whether the peer counts as alive: it has sent a sign of life lately.
    pub(crate) fn is_reached(&self) -> bool {
        self.is_up && self.is_reached
    }

    /// The peer vouches for itself: it is alive and busy.
    pub(crate) fn vouched(&mut self, vouch: Vouch) {
        self.vouch = vouch;
    }

    /// For how long nothing has been received from the peer, in milliseconds: 0 while it is alive and busy.
    pub(crate) fn silent_ms(&self, now: Now) -> u64 {
        if self.vouch.excuses(now, self.heard_us) { 0 } else { now.ms_since(self.heard_us) }
    }

    /// Notes that the peer is asked for a sign of life now.
    pub(crate) fn probe(&mut self, now: Now) {
        self.probed_us = now.monotonic_us;
    }

    /// Whether the peer was asked for a sign of life and has sent nothing since.
    #[inline]
    pub(crate) fn is_probed(&self) -> bool {
        self.probed_us > self.heard_us
    }

    /// Whether the peer was asked for a sign of life and has not given any for a while.
    pub(crate) fn is_mute(&self, now: Now, patience: u64) -> bool {
        self.is_up
            && self.is_probed()
            && self.silent_ms(now) >= MUTE_MS * patience
            && now.ms_since(self.probed_us) >= MUTE_MS * patience / 2
    }

    /// Notes that the peer has left a forwarded request unanswered.
    pub(crate) fn left_unanswered(&mut self, now: Now) {
        self.unanswered_us = Some(now.monotonic_us);
    }

    /// Whether the peer is mute, or has recently left a forwarded request unanswered: other nodes are asked first.
    pub(crate) fn is_silent(&self, now: Now, patience: u64) -> bool {
        const SILENCE_MS: u64 = 5000;
        self.unanswered_us.is_some_and(|since_us| now.ms_since(since_us) < SILENCE_MS)
            || self.is_mute(now, patience)
    }

    // What the peer has reported.

    pub(crate) fn report_life(&mut self, life: u64) {
        self.reported.life = Some(life);
    }

    pub(crate) fn report_memory(&mut self, is_full: bool) {
        self.reported.is_full = is_full;
    }

    pub(crate) fn report_memory_left(&mut self, bytes: u64, given: u64) {
        self.reported.memory_left = Some((bytes, given));
    }

    pub(crate) fn report_room(&mut self, is_short: bool, is_aside: bool) {
        (self.reported.is_short, self.reported.is_aside) = (is_short, is_aside);
    }

    /// The peer is about to stop. What was forwarded to it goes before the answer.
    pub(crate) fn leaves(&mut self) {
        self.reported.is_leaving = true;
        self.flush();
        self.send(&Envelope::Leaving { is_noted: true });
    }

    /// Whether the peer is about to stop.
    pub(crate) fn is_leaving(&self) -> bool {
        self.reported.is_leaving
    }

    /// The peer's incarnation.
    pub(crate) fn life(&self) -> Option<u64> {
        self.reported.life
    }

    /// Whether the peer has no memory left for data that grows.
    pub(crate) fn is_full(&self) -> bool {
        self.reported.is_full
    }

    /// What the peer has left for data that this node has written, and what this node's writes had added in all by then.
    pub(crate) fn memory_left(&self) -> Option<(u64, u64)> {
        self.reported.memory_left
    }

    /// Whether the peer's disk has no room but the reserve.
    pub(crate) fn is_short(&self) -> bool {
        self.reported.is_short
    }

    /// Whether the peer stands aside because its disk has no room.
    pub(crate) fn is_aside(&self) -> bool {
        self.reported.is_aside
    }
}

/// When it is time, sends the other nodes a sign of life, and checks which of them are alive: once for all groups.
pub(crate) fn tick(cx: &mut Context) {
    if cx.now.monotonic_us < cx.peers.alive_due_us {
        return;
    }
    // No group may rely on a node that cannot keep what it must keep, or that may not take part.
    let is_of_use = cx.admission.is_admitted() && !room::stands_aside(cx, CONTROL_GROUP);
    let silent = cx.peers.give_sign_of_life(cx.now, cx.configuration.patience, is_of_use);
    silent.into_iter().for_each(|id| reaches(cx, id, false));
}

/// Notes whether a peer is alive.
pub(crate) fn reaches(cx: &mut Context, id: NodeId, is_reached: bool) {
    let peer = &mut cx.peers[id];
    if peer.is_reached != is_reached {
        peer.is_reached = is_reached;
        let mut place = 0;
        while let Some(group) = cx.groups.id_at(place) {
            place += 1;
            set_reached(cx, group, id);
        }
    }
}

/// A peer vouches for itself: it is alive and busy.
pub(crate) fn vouched(cx: &mut Context, id: NodeId, vouch: Vouch) {
    cx.peers[id].vouched(vouch);
    let mut place = 0;
    while let Some(group) = cx.groups.id_at(place) {
        place += 1;
        if let Some(replica) = &mut cx.groups[group].replica {
            replica.vouched(id, vouch);
        }
    }
}

/// A peer is about to stop.
pub(crate) fn leaves(cx: &mut Context, id: NodeId) {
    let mut place = 0;
    while let Some(group) = cx.groups.id_at(place) {
        place += 1;
        if let Some(replica) = &mut cx.groups[group].replica {
            replica.peer_leaves(cx.now, id);
            cx.groups.touch(group);
        }
    }
}

/// Informs a group's replica whether a peer is alive.
pub(crate) fn set_reached(cx: &mut Context, group: u16, id: NodeId) {
    let is_reached = cx.peers[id].is_reached;
    if let Some(replica) = &mut cx.groups[group].replica {
        replica.set_reached(cx.now, id, is_reached);
        cx.groups.touch(group);
    }
}

/// Sends a message to a group's replica at another node.
#[inline]
pub(crate) fn send(cx: &mut Context, group: u16, to: NodeId, [message, behind]: [&[u8]; 2]) {
    if room::stands_aside(cx, group) {
        return;
    }
    // A group may name a node that this node's map does not know yet.
    if let Some(peer) = cx.peers.get_mut(to).filter(|peer| peer.is_up) {
        let replica = cx.groups.get(group).and_then(|group| group.replica.as_ref());
        let is_urgent = peer.has_urgent_link
            && (group == CONTROL_GROUP || replica.is_some_and(|replica| replica.is_urgent(message)));
        frame::append(peer.output_for(is_urgent), |out| {
            Envelope::Group { group, message }.encode(out);
            out.extend_from_slice(behind);
        });
    }
}

/// The longest payload of a frame between nodes, in bytes.
pub(crate) fn peer_payload_bytes_max() -> usize {
    request_bytes_max(kv::limits::VALUE_BYTES_MAX_CEILING).max(kv::limits::REPLY_BYTES_MAX) + (4 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Now {
        Now { monotonic_us: ms * 1000, unix_ms: 0 }
    }

    /// The frames to be written to a peer's two links.
    fn written(peer: &mut Peer) -> [usize; 2] {
        let count = |bytes: &mut Vec<u8>| {
            let (mut rest, mut frames) = (bytes.as_slice(), 0);
            while let Ok(frame::Next::Frame { consumed, .. }) = frame::next(rest, 1 << 20) {
                (rest, frames) = (&rest[consumed..], frames + 1);
            }
            bytes.clear();
            frames
        };
        [count(&mut peer.output), count(&mut peer.urgent_output)]
    }

    #[test]
    fn a_new_link_keeps_nothing_of_the_one_before() {
        let mut peers = Peers::default();
        peers.grow(2);
        assert!(!peers.is_up(2) && !peers.is_up(3) && !peers.is_up(0));
        assert!(!peers.send(2, &Envelope::Alive) && !peers.send(3, &Envelope::Alive));
        assert!(!peers[2].set_link(Some(1), at(1)));
        let first = peers[2].link();
        assert!(peers.send(2, &Envelope::Alive) && peers[2].is_linked_by(first));
        peers[2].report_life(7);
        peers[2].report_memory(true);
        peers[2].report_room(true, true);
        peers[2].defer(b"requests");
        assert!(peers.any_is_full() && peers.any_is_short() && peers.any_has_due_requests());
        assert!(peers[2].set_link(Some(1), at(2)), "it replaces a link whose end was not noticed");
        assert!(!peers[2].is_linked_by(first));
        assert!(!peers.any_is_full() && !peers.any_is_short() && !peers[2].is_aside());
        assert!(peers[2].life().is_none() && !peers[2].must_wait());
        assert_eq!(written(&mut peers[2]), [0, 0]);
        assert!(peers[2].set_link(None, at(3)));
        assert!(!peers.is_up(2) && !peers.send(2, &Envelope::Alive));
    }

    #[test]
    fn signs_of_life_take_the_urgent_link_if_there_is_one_and_silence_is_noticed() {
        let mut peers = Peers::default();
        peers.grow(2);
        peers[1].set_urgent_link(true);
        assert!(!peers[1].has_urgent_link, "it is only ever a second one");
        for id in [1, 2] {
            peers[id].set_link(Some(1), at(0));
        }
        peers[1].set_urgent_link(true);
        assert!(peers.give_sign_of_life(at(0), 1, true).is_empty());
        assert_eq!((written(&mut peers[1]), written(&mut peers[2])), ([0, 1], [1, 0]));
        assert_eq!(peers.wakeup_us(), 160_000);
        peers[1].heard(at(500));
        assert_eq!(peers.give_sign_of_life(at(1000), 1, false), [2]);
        assert_eq!((written(&mut peers[1]), written(&mut peers[2])), ([0, 0], [0, 0]));
    }

    #[test]
    fn a_peer_is_mute_when_it_was_asked_and_gives_no_sign() {
        let mut peer = Peer::default();
        peer.set_link(Some(1), at(1000));
        assert!(!peer.is_probed() && !peer.is_mute(at(9000), 1), "it was not asked");
        peer.probe(at(1100));
        assert!(peer.is_probed() && !peer.is_mute(at(1299), 1) && peer.is_mute(at(1300), 1));
        assert!(peer.is_silent(at(1300), 1) && !peer.is_silent(at(1300), 2));
        peer.vouched(Vouch::new(at(1300), 1));
        assert!(!peer.is_mute(at(1399), 1), "it is alive and busy");
        assert!(peer.is_mute(at(1400), 1));
        peer.heard(at(1400));
        assert!(!peer.is_silent(at(1400), 1));
        peer.left_unanswered(at(1400));
        assert!(peer.is_silent(at(6399), 1) && !peer.is_silent(at(6400), 1));
    }
}
