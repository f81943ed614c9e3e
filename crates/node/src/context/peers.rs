//! The links to the other nodes: frames that arrive over them, and frames gathered for them.

use crate::context::Context;
use crate::context::long_replies::LongReplies;
use crate::control::CONTROL_GROUP;
use crate::envelope::Envelope;
use crate::parameters::request_bytes_max;
use protocol::{NodeId, Now};
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

impl Context {
    /// Notes whether a peer is alive.
    pub(crate) fn reaches(&mut self, id: NodeId, is_reached: bool) {
        let peer = &mut self.peers[usize::from(id) - 1];
        if peer.is_reached != is_reached {
            peer.is_reached = is_reached;
            let mut place = 0;
            while let Some(group) = self.groups.id_at(place) {
                place += 1;
                self.set_reached(group, id);
            }
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

    /// Sends a message to a group's replica at another node.
    #[inline]
    pub(crate) fn send(&mut self, group: u16, to: NodeId, [message, behind]: [&[u8]; 2]) {
        if self.stands_aside(group) {
            return;
        }
        // A group may name a node that this node's map does not know yet.
        let peer = self.peers.get_mut(usize::from(to).wrapping_sub(1));
        if let Some(peer) = peer.filter(|peer| peer.up) {
            let envelope = Envelope::Group { group, message };
            let replica = self.groups.get(group).and_then(|group| group.replica.as_ref());
            let is_urgent = peer.has_urgent_link
                && (group == CONTROL_GROUP || replica.is_some_and(|replica| replica.is_urgent(message)));
            let output = if is_urgent { &mut peer.urgent_output } else { &mut peer.output };
            frame::append(output, |out| {
                envelope.encode(out);
                out.extend_from_slice(behind);
            });
        }
    }

    /// Whether the link to a peer is up.
    pub(crate) fn peer_is_up(&self, id: NodeId) -> bool {
        self.peers.get(id.wrapping_sub(1) as usize).is_some_and(|peer| peer.up)
    }
}

/// The longest payload of a frame between nodes, in bytes.
pub(crate) fn peer_payload_bytes_max() -> usize {
    request_bytes_max(kv::limits::VALUE_BYTES_MAX_CEILING).max(kv::limits::REPLY_BYTES_MAX) + (4 << 20)
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
