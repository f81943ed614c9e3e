//! Requests on their way to their groups, here or on another node.
//!
//! This is the common path. A request that meets a closed gate goes through `gates`.

use super::Node;
use super::gates;
use crate::context::memory;
use crate::context::room;
use crate::context::routing::{MOVED, Sent};
use crate::context::{Context, grants};
use crate::messages::envelope::DecodedRequest;
use crate::requests::completing;
use crate::requests::gather::Combine;
use crate::session::gates::{Gate, Gates};
use crate::session::origin::{Asked, Origin};
use crate::session::{ClientId, Session};
use kv::codec::Reader;
use kv::{Bounded, Command, Version};
use protocol::planted::Fault;
use protocol::{Input, Request, Result as Outcome, Submission, Ticket};

/// A larger buffer, grown for one long command, is not kept.
const BOUNDED_BYTES_KEPT: usize = 64 << 10;

/// The gates that components close for requests that have no ticket yet.
const BEFORE_TICKETS: Gates = Gates::of(&[Gate::Coding, Gate::Values, Gate::Spans, Gate::Tracking]);

/// What a client's request to one group needs besides the command.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wanted {
    /// The answer must carry the version that it reflects.
    pub(super) version: bool,
    /// Only a replica whose answer cannot be stale may answer.
    pub(super) fresh: bool,
    /// When its outcome is due, if not after the usual time.
    pub(super) deadline_us: Option<u64>,
}

impl Node {
    /// Sends a client's command to its group, if it was not answered already.
    pub(super) fn ask(&mut self, client: ClientId, sent: Option<&Sent<'_>>) {
        let Some(Sent { group, command, wants_version, is_fresh }) = sent else { return };
        let wanted = Wanted { version: *wants_version, fresh: *is_fresh, deadline_us: None };
        self.send_to_group(client, *group, &Request::Command(command), wanted);
    }

    /// The deadline of a client's command that sets none itself.
    #[inline]
    pub(super) fn usual_deadline_us(&self) -> u64 {
        self.cx.now.monotonic_us + self.cx.configuration.command_timeout_ms * 1000
    }

    /// Sends a client's request to one group.
    #[inline]
    pub(super) fn send_to_group(
        &mut self,
        client: ClientId,
        group: u16,
        request: &Request<'_>,
        wanted: Wanted,
    ) {
        let deadline_us = wanted.deadline_us.unwrap_or(self.usual_deadline_us());
        let Some(session) = self.cx.clients.sessions.get_mut(client) else { return };
        // A client that watches keys must not read anything older than the watched versions.
        let is_fresh = wanted.fresh || session.transaction.is_some();
        let seen = if is_fresh { Version::MAX } else { session.seen(group) };
        let follows = session.is_waiting();
        if request.write().is_some() {
            session.wrote(group);
        }
        let gates = gates::before(&self.cx, group, (follows, 0), request);
        let is_unusual = !gates.are_open() || !(self.cx.gates & BEFORE_TICKETS).are_open();
        if is_unusual && self.is_dispersed(client, group, request, wanted.version, deadline_us) {
            return;
        }
        let work_ns = gates.has(Gate::Work).then(|| self.cx.work_ns(group, request));
        let Some(session) = self.cx.clients.sessions.get_mut(client) else { return };
        session.expect_work(work_ns.unwrap_or(0));
        let ticket = session.begin(wanted.version);
        let asked = Asked { ticket, follows, seen, deadline_us, hops: 0, leadership: 0 };
        match is_unusual {
            false => self.order(group, &asked, request, None),
            true => {
                self.note_begun(client, group, ticket, request);
                self.pass(gates, group, asked, (*request, work_ns));
            }
        }
    }

    /// Has a large value dispersed as fragments, and returns whether it is. Other writes wait behind such values.
    #[inline(never)]
    fn is_dispersed(
        &mut self,
        client: ClientId,
        group: u16,
        request: &Request<'_>,
        wants_version: bool,
        deadline_us: u64,
    ) -> bool {
        let (gates, Some(command)) = (self.cx.gates, request.write()) else { return false };
        if gates.has(Gate::Coding)
            && !memory::refuses_growth(&self.cx, group, command)
            && !room::refuses(&self.cx, group, command)
            && self.coding.disperse(&mut self.cx, client, group, wants_version, command, deadline_us)
        {
            return true;
        }
        if gates.has(Gate::Coding) || gates.has(Gate::Values) {
            completing::hold_back_behind(&mut self.cx, client, group, command);
        }
        false
    }

    /// Notes that a client's request has begun, for those who trace commands or cache what they read.
    #[inline(never)]
    fn note_begun(&mut self, client: ClientId, group: u16, ticket: Ticket, request: &Request<'_>) {
        self.begin_span(client, ticket);
        if self.cx.gates.has(Gate::Tracking)
            && let Request::Command(command) = request
        {
            self.following.tracking.note_read(&mut self.cx, client, ticket.sequence, group, command);
        }
    }

    fn begin_span(&mut self, client: ClientId, ticket: Ticket) {
        if self.cx.gates.has(Gate::Spans)
            && let Some(session) = self.cx.clients.sessions.get(client)
        {
            self.cx.spans.begin(self.cx.now, ticket, session.command_name());
        }
    }

    /// Sends the requests that `request` makes to several groups for a client, and answers with one reply.
    pub(super) fn ask_all<'r>(
        &mut self,
        client: ClientId,
        groups: &[u16],
        combine: Combine,
        deadline_us: u64,
        request: impl Fn(&Session, u16) -> Request<'r>,
    ) {
        let Some(session) = self.cx.clients.sessions.get_mut(client) else { return };
        let follows = session.is_waiting();
        if groups.len() > 1 {
            // One of them may have to wait for locked keys, and no group knows that a part is its client's earlier request.
            session.close_gate();
        }
        let asked: Vec<(u16, Request<'r>, Version)> =
            groups.iter().map(|group| (*group, request(session, *group), session.seen(*group))).collect();
        for (group, request, _) in &asked {
            if request.write().is_some() {
                session.wrote(*group);
            }
        }
        let ticket = session.begin(false);
        self.begin_span(client, ticket);
        let whole = ticket;
        let bytes_max = self.cx.memory.reply_max();
        let gather = self.gathers.begin(whole, combine, groups, bytes_max);
        for (part, (group, request, seen)) in asked.into_iter().enumerate() {
            let ticket = Origin::Part(gather).ticket(part as u64);
            if self.cx.gates.has(Gate::Spans) {
                self.cx.spans.begin_part(self.cx.now, ticket, whole);
            }
            let asked = Asked { ticket, follows, seen, deadline_us, hops: 0, leadership: 0 };
            self.submit(group, asked, &request);
        }
    }

    /// Hands a request to this node's replica of the group, or to a node that can carry it out.
    #[inline]
    pub(super) fn submit(&mut self, group: u16, asked: Asked, request: &Request<'_>) {
        let gates = gates::before(&self.cx, group, (asked.follows, asked.leadership), request);
        match gates.are_open() {
            true => self.order(group, &asked, request, None),
            false => self.pass(gates, group, asked, (*request, None)),
        }
    }

    #[cold]
    fn begin_inner_span(&mut self, group: u16, ticket: Ticket, request: &Request<'_>) {
        let name = if request.write().is_some() { "replicate" } else { "read" };
        let Context { spans, groups, now, .. } = &mut self.cx;
        spans.begin_inner(*now, ticket, (name, None), || groups[group].name());
    }

    /// Has this node's replica of the group order a request, a write with the bound that it got.
    #[inline]
    pub(super) fn order(&mut self, group: u16, asked: &Asked, request: &Request<'_>, bound: Option<u64>) {
        if self.cx.gates.has(Gate::Spans) {
            self.begin_inner_span(group, asked.ticket, request);
        }
        let target = &mut self.cx.groups[group];
        let replica = target.replica.as_mut().expect("a group without a replica here is a closed gate");
        let Asked { ticket, follows, seen, deadline_us, leadership, .. } = *asked;
        let fenced = leadership != 0 && !self.cx.configuration.planted.has(Fault::LeadershipNotCompared);
        target.commits.begin(ticket, request, self.cx.now);
        let mut bytes = if bound.is_some() { std::mem::take(&mut self.bounded_bytes) } else { Vec::new() };
        let bounded = match (bound, request) {
            (Some(bound), Request::Command(command)) => Bounded::build(bound, command, &mut bytes),
            _ => None,
        };
        let bounded = bounded.map(Command::Bounded);
        let ordered = bounded.as_ref().map(Request::Command);
        let ordered = ordered.as_ref().unwrap_or(request);
        let input =
            Input::Request(&Submission { ticket, request: ordered, follows, seen, deadline_us, fenced });
        let effects = self.unsettled.effects();
        let stepped = replica.step(self.cx.now, input, effects);
        debug_assert_eq!(stepped, Ok(()), "only a message can be malformed");
        // If another node may lead, forward the command to it at once: the command is still available.
        let redirect = match effects.outcomes.last() {
            Some(outcome) => match outcome.result {
                Outcome::Redirect { to } if outcome.ticket == ticket => Some(to),
                _ => None,
            },
            None => None,
        };
        if let Some(to) = redirect {
            effects.outcomes.pop();
            target.commits.abandon(ticket);
            self.two_phase.withdraw(group, ticket);
            if self.cx.gates.has(Gate::Spans) {
                self.cx.spans.abandon_inner(ticket);
            }
            match fenced {
                true => self.complete(ticket, group, Outcome::Redirect { to }, &[]),
                false => self.forwarding.forward(&mut self.cx, group, to, *asked, *request),
            }
        } else if let Some(bound) = bound {
            grants::reserve(&mut self.cx, group, ticket, bound, deadline_us);
        }
        if bound.is_some() && bytes.capacity() <= BOUNDED_BYTES_KEPT {
            self.bounded_bytes = bytes;
        }
        self.settle(group);
    }

    /// Submits waiting requests as far as some node can take them by now, and ends overdue ones.
    pub(super) fn retry_waiting(&mut self) {
        if !self.forwarding.looks_now(&mut self.cx) {
            return;
        }
        self.for_each_group(|node, group| {
            node.forwarding.end_overdue_waiting(&mut node.cx, group);
            if node.cx.groups[group].waiting.is_empty() {
                return;
            }
            node.two_phase.begin_pass(group);
            while let Some(kept) = node.forwarding.begin_retry(&mut node.cx, group) {
                let request = decoded(&kept.request);
                match &request {
                    DecodedRequest::Command(command) if !node.cx.belongs(group, command) => {
                        node.complete_with_error(kept.asked.ticket, group, Outcome::Refused, MOVED);
                    }
                    request => node.submit(group, kept.asked, &request.request()),
                }
                if node.forwarding.end_retry(&mut node.cx, group) {
                    break;
                }
            }
            node.forwarding.end_pass(&mut node.cx, group);
        });
    }
}

/// The request in a call.
pub(super) fn decoded(request: &[u8]) -> DecodedRequest<'_> {
    DecodedRequest::decode(&mut Reader::new(request)).expect("this node has encoded it")
}
