//! Requests of this node's clients that other nodes carry out, and those that wait because no node can take them now.
//!
//! `answers` has their outcomes, `waiting` the requests that wait.

mod answers;
mod parts;
mod waiting;

use crate::collections::slab::{Handle, Slab};
use crate::context::Context;
use crate::groups::Group;
use crate::groups::replica::Replica;
use crate::messages::envelope::{DecodedRequest, Envelope, ForwardedRequest, NO_DEADLINE_MS};
use crate::session::origin::Origin;
use kv::codec::Reader;
use kv::{Reference, Version};
use protocol::{NodeId, Request, Result as Outcome, Ticket};
use std::ops::Range;
use wire::release::Release;

use crate::session::origin::{Asked, HOPS_MAX};
pub(crate) use answers::note_refusal;
use waiting::Waiting;

/// A client's request that was forwarded to another node.
#[derive(Debug)]
pub(crate) struct Forwarded {
    ticket: Ticket,
    group: u16,
    to: NodeId,
    is_write: bool,
    deadline_us: u64,
    follows: bool,
    seen: Version,
    /// The request's number among all requests ever forwarded; it keeps the number when it is sent again.
    number: u64,
    /// The only leadership that may order the request, and the position of this node's replica in it; 0: any.
    leadership: u64,
    position: u64,
    /// Why no answer is expected any more, and since when: whether the request took effect is not known yet.
    doubt: Option<(&'static str, u64)>,
    /// The request: its place in [`ForwardedBytes`]. Empty if it is too long to be kept.
    request: Range<usize>,
    /// The part of the reply that has arrived, if the reply comes in parts.
    arrived: Vec<u8>,
}

impl Forwarded {
    /// The node that it was forwarded to.
    pub(crate) fn to(&self) -> NodeId {
        self.to
    }
}

/// Forwarded requests that have no outcome yet, one after the other.
#[derive(Debug, Default)]
pub(crate) struct ForwardedBytes {
    bytes: Vec<u8>,
    /// At this length, the requests that have been answered are removed.
    collect_at: usize,
    /// How many requests were forwarded so far.
    count: u64,
}

/// The release that has [`Envelope::Traced`].
const TRACES_SINCE: Release = 2;

/// Longer requests are not sent again.
const FORWARDED_BYTES_MAX: usize = 64 << 10;

impl ForwardedBytes {
    /// Removes the bytes that belong to no request any more.
    #[cold]
    fn collect(&mut self, forwards: &mut Slab<Forwarded>) {
        const COLLECT_BYTES_MIN: usize = 64 << 10;
        let all = std::mem::take(&mut self.bytes);
        for entry in forwards.iter_mut() {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(&all[entry.request.clone()]);
            entry.request = start..self.bytes.len();
        }
        self.collect_at = (2 * self.bytes.len()).max(COLLECT_BYTES_MIN);
    }
}

/// The requests of this node's clients that other nodes carry out, or that wait.
#[derive(Debug, Default)]
pub(crate) struct Forwarding {
    entries: Slab<Forwarded>,
    /// The requests of `entries` that may be sent again.
    bytes: ForwardedBytes,
    /// Requests that no node can take now.
    waiting: Waiting,
}

impl Forwarding {
    /// When, on the monotonic clock, the waiting requests are checked.
    pub(crate) fn next_due_us(&self) -> u64 {
        self.waiting.next_due_us()
    }

    /// How many requests wait until a node can take them.
    pub(crate) fn waiting_count(&self) -> usize {
        self.waiting.count()
    }

    /// The memory of long replies that have not wholly arrived, in bytes.
    pub(crate) fn arrived_bytes(&self) -> usize {
        self.entries.iter().map(|(_, entry)| entry.arrived.capacity()).sum()
    }

    /// Forwards a request to another node; if none can take it now, it waits until one can.
    pub(crate) fn forward(
        &mut self,
        cx: &mut Context,
        group: u16,
        to: NodeId,
        asked: Asked,
        request: Request<'_>,
    ) {
        let sender = match Origin::of(asked.ticket) {
            Origin::Peer(from, _) => Some(from),
            _ => None,
        };
        let goes_back = sender == Some(to);
        let why = self.cannot_forward(cx, group, to, &asked);
        if let Some(why) = why.or_else(|| goes_back.then(|| cx.no_leader_known(group))) {
            // Refuse: a sender without a replica can ask another member, and without a leader any other member is as
            // good. And a request must not be forwarded in a circle: it would wait here for requests under way at its
            // sender, which may wait there for this one.
            let goes_round = goes_back || asked.hops > 1;
            if sender.is_some()
                && (goes_round || !cx.admission.is_admitted() || !cx.groups[group].keyspace.has_leader())
            {
                return cx.complete_with_error(asked.ticket, group, Outcome::Refused, &why);
            }
            return self.keep(cx, group, asked, request, why);
        }
        cx.counters.forwarded += 1;
        if let Some(from) = sender {
            let envelope = Envelope::Leader { group, leader: to };
            cx.peers[from].send(&envelope);
        }
        let Asked { ticket, follows, seen, deadline_us, hops, .. } = asked;
        let (leadership, position) = self.leadership_of(cx, group, to, ticket);
        let is_write = request.write().is_some();
        if self.bytes.bytes.len() >= self.bytes.collect_at {
            self.bytes.collect(&mut self.entries);
        }
        let number = self.waiting.number_of(ticket).unwrap_or_else(|| {
            self.bytes.count += 1;
            self.bytes.count
        });
        let entry = self.entries.insert(|_| Forwarded {
            ticket,
            group,
            to,
            is_write,
            deadline_us,
            follows,
            seen,
            number,
            leadership,
            position,
            doubt: None,
            request: 0..0,
            arrived: Vec::new(),
        });
        cx.groups[group].forwarded(to, leadership);
        let remaining_ms = match deadline_us {
            u64::MAX => NO_DEADLINE_MS,
            _ => {
                (deadline_us.saturating_sub(cx.now.monotonic_us) / 1000).min(NO_DEADLINE_MS as u64 - 1) as u32
            }
        };
        let peer = &mut cx.peers[to];
        let forwarded = ForwardedRequest {
            id: entry.to_bits(),
            group,
            follows,
            seen,
            remaining_ms,
            hops: hops + 1,
            leadership,
        };
        if cx.spans.is_on()
            && let Some(context) =
                cx.spans.begin_inner(cx.now, ticket, ("forward", Some(to)), || cx.groups[group].name())
            && peer.release() >= TRACES_SINCE
        {
            peer.send(&Envelope::Traced { id: forwarded.id, context });
        }
        let request = peer.add_request(&forwarded, &request);
        if request.len() <= FORWARDED_BYTES_MAX
            && let Some(entry) = self.entries.get_mut(entry)
        {
            let start = self.bytes.bytes.len();
            self.bytes.bytes.extend_from_slice(request);
            entry.request = start..self.bytes.bytes.len();
        }
        peer.flush_if_large();
    }

    /// Requests a value from another node's disk, for the fetch with this number. It is requested once: a request
    /// that cannot be sent, or is not answered, ends with an error. No client's request has to wait behind it
    /// ([`Group::forwarded`]).
    pub(crate) fn ask_for_value(
        &mut self,
        cx: &mut Context,
        to: NodeId,
        number: u64,
        group: u16,
        reference: Reference,
    ) {
        let ticket = Origin::Value.ticket(number);
        if cx.groups.get(group).is_none() || !cx.peers.is_up(to) {
            let error = "CLUSTERDOWN no replica can be asked for a value; nothing was done";
            return cx.complete_with_error(ticket, group, Outcome::Refused, error);
        }
        // After that, the client that waits for the value has time left for another node.
        const PATIENCE_MS: u64 = 500;
        let patience_ms = (PATIENCE_MS * cx.configuration.patience).min(cx.configuration.command_timeout_ms);
        self.bytes.count += 1;
        let entry = self.entries.insert(|_| Forwarded {
            ticket,
            group,
            to,
            is_write: false,
            deadline_us: cx.now.monotonic_us + patience_ms * 1000,
            follows: false,
            seen: 0,
            number: self.bytes.count,
            leadership: 0,
            position: 0,
            doubt: None,
            request: 0..0,
            arrived: Vec::new(),
        });
        cx.peers[to].send(&Envelope::ValueAsked { id: entry.to_bits(), group, reference });
    }

    /// The leadership of a node that a client's request is meant for, and the position of this node's replica in it.
    #[inline]
    pub(crate) fn leadership_of(&self, cx: &Context, group: u16, to: NodeId, ticket: Ticket) -> (u64, u64) {
        if !matches!(Origin::of(ticket), Origin::Session(_) | Origin::Part(_)) {
            return (0, 0);
        }
        match cx.groups[group].replica.as_ref().and_then(Replica::follows_in) {
            Some((leader, leadership, position)) if leader == to => (leadership, position),
            _ => (0, 0),
        }
    }

    /// Why a request cannot be forwarded to this node now, if so. It is the error for the client unless that changes
    /// in time.
    #[inline]
    fn cannot_forward(&self, cx: &Context, group: u16, to: NodeId, asked: &Asked) -> Option<String> {
        let own = cx.configuration.node;
        let reaches = to != own && cx.peers.is_up(to);
        let has_hops = !matches!(Origin::of(asked.ticket), Origin::Peer(..))
            || asked.hops < HOPS_MAX && cx.groups[group].keyspace.has_leader();
        if cx.admission.is_admitted()
            && reaches
            && has_hops
            && !self.stands_behind(cx, group, asked, to)
            && !cx.peers[to].is_probed()
        {
            return None;
        }
        self.why_not_forward(cx, group, to, (reaches, has_hops), asked)
    }

    #[cold]
    fn why_not_forward(
        &self,
        cx: &Context,
        group: u16,
        to: NodeId,
        (reaches, has_hops): (bool, bool),
        asked: &Asked,
    ) -> Option<String> {
        let own = cx.configuration.node;
        let Group { keyspace, members, replica, .. } = &cx.groups[group];
        let (name, has_leader) = (keyspace.name(), keyspace.has_leader());
        if !cx.admission.is_admitted() && members.contains(&own) {
            return Some(format!(
                "LOADING the control group has not admitted node {own} yet; nothing was done"
            ));
        }
        let is_mute = reaches && cx.peers[to].is_mute(cx.now, cx.configuration.patience);
        if !has_hops && !has_leader {
            return Some(format!(
                "CLUSTERDOWN NOQUORUM node {own} cannot serve keyspace '{name}' yet; nothing was done, try again"
            ));
        }
        if !reaches || is_mute || !has_hops {
            let recovering = replica.as_ref().and_then(|replica| replica.recovers(cx.now));
            return Some(match (has_leader, recovering) {
                (true, Some(why)) => format!(
                    "LOADING the leader does not hold all that was written before it led: {why}; nothing was done"
                ),
                (true, _) if to == own || to == 0 || !has_hops => cx.no_leader_known(group),
                (true, _) => format!(
                    "CLUSTERDOWN NOLEADER node {to}, which leads keyspace '{name}', cannot be reached from node {own}; nothing was done"
                ),
                (false, _) => format!(
                    "CLUSTERDOWN NOQUORUM no replica of keyspace '{name}' can be reached from node {own}; nothing was done"
                ),
            });
        }
        self.stands_behind(cx, group, asked, to).then(|| cx.no_leader_known(group))
    }

    /// Removes a forwarded request that ends here.
    pub(super) fn take_forward(&mut self, cx: &mut Context, handle: Handle) -> Option<Forwarded> {
        let entry = self.entries.remove(handle)?;
        self.waiting.in_doubt -= usize::from(entry.doubt.is_some());
        if Origin::of(entry.ticket) == Origin::Value {
            return Some(entry); // It is not counted.
        }
        if let Some(group) = cx.groups.get_mut(entry.group)
            && group.answered(entry.to, entry.leadership)
            && !group.waiting.is_empty()
        {
            self.waiting.look_soon(cx.now);
        }
        Some(entry)
    }

    /// Sends a forwarded request again, to the current leader: it has had no effect, or is a read. Returns false if
    /// that is impossible.
    pub(crate) fn ask_again(&mut self, cx: &mut Context, entry: &Forwarded, why: String) -> bool {
        if entry.request.is_empty() || cx.groups.get(entry.group).is_none() {
            return false;
        }
        let bytes = self.bytes.bytes[entry.request.clone()].to_vec();
        let Ok(decoded) = DecodedRequest::decode(&mut Reader::new(&bytes)) else { return false };
        let Forwarded { ticket, follows, seen, deadline_us, .. } = *entry;
        let asked = Asked { ticket, follows, seen, deadline_us, hops: 0, leadership: 0 };
        self.keep_in_order(cx, entry.group, asked, decoded.request(), why, entry.number);
        true
    }
}
