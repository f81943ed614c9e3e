//! Requests on their way to their groups, here or on another node.

use super::Node;
use crate::completing;
use crate::context::Context;
use crate::context::grants::{self, Grant};
use crate::context::memory::{self, OUT_OF_MEMORY, SCRIPT_OUT_OF_MEMORY};
use crate::context::room::{self, Verdict};
use crate::context::routing::{MOVED, Sent};
use crate::context::status;
use crate::envelope::DecodedRequest;
use crate::eviction::{self, Need};
use crate::gather::Combine;
use crate::origin::{Asked, Origin};
use crate::session::{ClientId, Session};
use kv::codec::Reader;
use kv::{Bounded, Command, List, ScriptOptions, Version, WhenFull};
use protocol::planted::Fault;
use protocol::{Input, NOBODY, Request, Result as Outcome};

/// A larger buffer, grown for one long command, is not kept.
const BOUNDED_BYTES_KEPT: usize = 64 << 10;

impl Node {
    /// Sends a client's command to its group, if it was not answered already.
    pub(super) fn ask(&mut self, client: ClientId, sent: Option<&Sent<'_>>) {
        let Some(&Sent { group, ref command, wants_version, is_fresh }) = sent else { return };
        let (request, deadline_us) = (Request::Command(command), self.usual_deadline_us());
        match is_fresh {
            true => {
                self.ask_not_before(client, group, wants_version, &request, (Version::MAX, deadline_us));
            }
            false => self.ask_until(client, group, wants_version, &request, deadline_us),
        }
    }

    /// Sends a client's command to a group unchanged.
    #[inline]
    pub(super) fn ask_group(&mut self, client: ClientId, group: u16, command: &Command<'_>) {
        let deadline_us = self.usual_deadline_us();
        self.ask_until(client, group, false, &Request::Command(command), deadline_us);
    }

    /// The deadline of a client's command that sets none itself.
    #[inline]
    pub(super) fn usual_deadline_us(&self) -> u64 {
        self.cx.now.monotonic_us + self.cx.configuration.command_timeout_ms * 1000
    }

    /// Sends a client's request to one group; its outcome is due by `deadline_us`.
    #[inline]
    pub(super) fn ask_until(
        &mut self,
        client: ClientId,
        group: u16,
        wants_version: bool,
        request: &Request<'_>,
        deadline_us: u64,
    ) {
        let Some(session) = self.cx.clients.sessions.get_mut(client) else { return };
        // A client that watches keys must not read anything older than the watched versions.
        let seen = if session.transaction.is_none() { session.seen(group) } else { Version::MAX };
        self.ask_not_before(client, group, wants_version, request, (seen, deadline_us));
    }

    /// Asks a group for its version: that of everything that was acknowledged before.
    pub(super) fn ask_version(&mut self, client: ClientId, group: u16) {
        let mut scratch = Vec::new();
        let keys = List::build(&mut scratch, []);
        let (request, deadline_us) = (Command::Watch { keys }, self.usual_deadline_us());
        self.ask_not_before(client, group, false, &Request::Command(&request), (Version::MAX, deadline_us));
    }

    /// Sends a client's request to one group, whose answer must not be older than `seen`.
    #[inline]
    fn ask_not_before(
        &mut self,
        client: ClientId,
        group: u16,
        wants_version: bool,
        request: &Request<'_>,
        (seen, deadline_us): (Version, u64),
    ) {
        let work_ns = self.cx.work_ns(group, request);
        let Some(session) = self.cx.clients.sessions.get_mut(client) else { return };
        let follows = session.is_waiting();
        if let Some(command) = request.write() {
            session.wrote(group);
            if self.coding.is_on()
                && !memory::refuses_growth(&self.cx, group, command)
                && !room::refuses(&self.cx, group, command)
                && self.coding.disperse(&mut self.cx, client, group, wants_version, command, deadline_us)
            {
                return;
            }
            if self.coding.is_on() || self.values.is_on() {
                completing::hold_back_behind(&mut self.cx, client, group, command);
            }
        }
        let Some(session) = self.cx.clients.sessions.get_mut(client) else { return };
        session.request_ns = work_ns;
        let ticket = session.begin(wants_version);
        if self.cx.spans.is_on() {
            let name = session.command_name();
            self.cx.spans.begin(self.cx.now, ticket, name);
        }
        if self.following.tracking.is_on()
            && let Request::Command(command) = request
        {
            self.following.tracking.note_read(&mut self.cx, client, ticket.sequence, group, command);
        }
        let asked = Asked { ticket, follows, seen, deadline_us, hops: 0, leadership: 0 };
        self.submit(group, asked, request);
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
        let asked: Vec<(u16, Request<'r>, Version)> =
            groups.iter().map(|group| (*group, request(session, *group), session.seen(*group))).collect();
        for (group, request, _) in &asked {
            if request.write().is_some() {
                session.wrote(*group);
            }
        }
        let ticket = session.begin(false);
        if self.cx.spans.is_on() {
            let name = session.command_name();
            self.cx.spans.begin(self.cx.now, ticket, name);
        }
        let whole = ticket;
        let bytes_max = self.cx.memory.reply_max();
        let gather = self.gathers.begin(whole, combine, groups, bytes_max);
        for (part, (group, request, seen)) in asked.into_iter().enumerate() {
            let ticket = Origin::Part(gather).ticket(part as u64);
            if self.cx.spans.is_on() {
                self.cx.spans.begin_part(self.cx.now, ticket, whole);
            }
            let asked = Asked { ticket, follows, seen, deadline_us, hops: 0, leadership: 0 };
            self.submit(group, asked, &request);
        }
    }

    /// Hands a request to this node's replica of the group, or to a node that can carry it out.
    #[inline]
    pub(super) fn submit(&mut self, group: u16, asked: Asked, request: &Request<'_>) {
        if self.quarantine.is_on() {
            if let Some(error) = status::quarantined(&self.cx, group) {
                return self.complete_with_error(asked.ticket, group, Outcome::Refused, &error);
            }
            if self.cx.groups[group].holds.is_some() {
                let to = self.cx.coordinator_of(group);
                return self.forwarding.forward(&mut self.cx, group, to, asked, *request);
            }
        }
        let written = request.write();
        let in_full = match written.map_or(Fit::Whole, |command| self.fit(group, command)) {
            Fit::Whole => None,
            Fit::InFull(script) => Some(script),
            Fit::Refused(error) => {
                self.cx.counters.memory_refused += 1;
                return self.complete_with_error(asked.ticket, group, Outcome::Refused, error);
            }
        };
        let request = &in_full.as_ref().map_or(*request, Request::Command);
        if self.is_settled_by_room(group, &asked, request) {
            return;
        }
        let bound = match written.map_or(Grant::Unneeded, |command| grants::grant(&self.cx, group, command)) {
            Grant::Unneeded => None,
            Grant::Bound(bytes) => Some(bytes),
            Grant::Waits(why) => {
                return self.forwarding.keep(&mut self.cx, group, asked, *request, why.into());
            }
        };
        if let Some(error) = self.cx.spend_on(group, request) {
            return self.complete_with_error(asked.ticket, group, Outcome::Refused, &error);
        }
        if let Request::Command(command) = request
            && command.payload_bytes() > self.cx.configuration.long_command_bytes
            && self.cx.groups[group].keyspace.has_leader()
            && asked.leadership == 0
            // A request that waits has at most `WISH_BYTES_MAX` bytes, and is not sent in parts.
            && !matches!(command.unbounded(&mut None), Command::Queue(_))
        {
            return self.long.begin(&mut self.cx, group, asked, command);
        }
        let target = &mut self.cx.groups[group];
        let Some(replica) = &mut target.replica else {
            let to = self.cx.coordinator_of(group);
            return self.forwarding.forward(&mut self.cx, group, to, asked, *request);
        };
        let Asked { ticket, follows, leadership, .. } = asked;
        let fenced = leadership != 0 && !self.cx.configuration.planted.has(Fault::LeadershipNotCompared);
        if fenced && replica.leads_in() != Some(leadership) {
            return self.complete(ticket, group, Outcome::Redirect { to: NOBODY }, &[]);
        }
        if follows
            && !(target.waiting.is_empty() && target.under_way.is_empty())
            && (replica.is_leader() || !target.keyspace.has_leader())
            && self.forwarding.stands_behind(&self.cx, group, &asked, self.cx.configuration.node)
        {
            let why = self.cx.no_leader_known(group);
            return self.forwarding.keep(&mut self.cx, group, asked, *request, why);
        }
        if self.cx.spans.is_on() {
            let name = if written.is_some() { "replicate" } else { "read" };
            let Context { spans, groups, now, .. } = &mut self.cx;
            spans.begin_inner(*now, ticket, (name, None), || groups[group].name());
        }
        if self.values.is_on()
            && self.values.is_overloaded()
            && self.cx.groups[group].keyspace.spills()
            && written.is_some()
        {
            let own = self.cx.configuration.node;
            let error = format!(
                "TRYAGAIN OVERLOADED the disk of node {own} is behind with values; nothing was done, try again"
            );
            return self.complete_with_error(ticket, group, Outcome::Refused, &error);
        }
        self.order(group, &asked, request, bound, fenced);
    }

    /// Has this node's replica of the group order a request, a write with the bound that it got.
    #[inline]
    fn order(&mut self, group: u16, asked: &Asked, request: &Request<'_>, bound: Option<u64>, fenced: bool) {
        let target = &mut self.cx.groups[group];
        let Some(replica) = &mut target.replica else { return };
        let Asked { ticket, follows, seen, deadline_us, .. } = *asked;
        target.commits.begin(ticket, request, self.cx.now);
        let mut bytes = if bound.is_some() { std::mem::take(&mut self.bounded_bytes) } else { Vec::new() };
        let bounded = match (bound, request) {
            (Some(bound), Request::Command(command)) => Bounded::build(bound, command, &mut bytes),
            _ => None,
        };
        let bounded = bounded.map(Command::Bounded);
        let ordered = bounded.as_ref().map(Request::Command);
        let ordered = ordered.as_ref().unwrap_or(request);
        let input = Input::Request { ticket, request: ordered, follows, seen, deadline_us, fenced };
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
            if self.cx.spans.is_on() {
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

    /// Decides what becomes of a write where memory is bounded.
    #[inline]
    fn fit<'c>(&mut self, group: u16, command: &Command<'c>) -> Fit<'c> {
        if self.cx.memory.is_bounded() && memory::refuses_growth(&self.cx, group, command) {
            return Fit::Refused(refusal_without_room(command, OUT_OF_MEMORY));
        }
        if self.cx.groups[group].keyspace.memory_max == 0 {
            return Fit::Whole;
        }
        let need = Need::of(&self.cx, group, command);
        match self.make_room(need) {
            None => Fit::Whole,
            Some(error) => match in_full(command).filter(|_| error == OUT_OF_MEMORY) {
                Some(script) => Fit::InFull(script),
                None => Fit::Refused(refusal_without_room(command, error)),
            },
        }
    }

    /// Has keys removed until the needed room is there. If none can be made, returns the error for the client.
    #[inline(never)]
    pub(super) fn make_room(&mut self, mut need: Need) -> Option<&'static str> {
        loop {
            match self.evictions.next(&mut self.cx, self.unsettled.effects(), &mut need) {
                eviction::Next::Settle => self.settle(need.group()),
                eviction::Next::Done => return None,
                eviction::Next::Refused(error) => return Some(error),
            }
        }
    }

    /// Handles a request that cannot take its usual course in its group for lack of room on some node. Returns false
    /// if it can.
    #[inline]
    fn is_settled_by_room(&mut self, group: u16, asked: &Asked, request: &Request<'_>) -> bool {
        if !self.cx.room.is_any_short() {
            return false;
        }
        match room::judge(&self.cx, group, request) {
            Verdict::Goes => false,
            Verdict::Refused(error) => {
                self.cx.room.count_refused();
                self.complete_with_error(asked.ticket, group, Outcome::Refused, &error);
                true
            }
            Verdict::Waits(why) => {
                self.forwarding.keep(&mut self.cx, group, *asked, *request, why);
                true
            }
            Verdict::PassedOn if asked.leadership != 0 => {
                // The request was meant for one leadership: its sender sends it again.
                self.complete(asked.ticket, group, Outcome::Redirect { to: NOBODY }, &[]);
                true
            }
            Verdict::PassedOn => {
                let to = self.cx.coordinator_of(group);
                self.forwarding.forward(&mut self.cx, group, to, *asked, *request);
                true
            }
        }
    }

    /// Submits waiting requests as far as some node can take them by now, and ends overdue ones.
    pub(super) fn tend_waiting(&mut self) {
        if !self.forwarding.looks_now(&mut self.cx) {
            return;
        }
        self.for_each_group(|node, group| {
            node.forwarding.end_overdue_waiting(&mut node.cx, group);
            while let Some(kept) = node.forwarding.begin_retry(&mut node.cx, group) {
                let request = decoded(&kept.request);
                match &request {
                    DecodedRequest::Command(command) if !node.cx.belongs(group, command) => {
                        node.complete_with_error(kept.asked.ticket, group, Outcome::Refused, MOVED);
                    }
                    request => node.submit(group, kept.asked, &request.request()),
                }
                if node.forwarding.end_retry() {
                    break;
                }
            }
        });
    }
}

/// What becomes of a write where memory is bounded.
enum Fit<'c> {
    Whole,
    /// The keyspace is full. This script runs instead, whose commands are refused if they enlarge the data.
    InFull(Command<'c>),
    Refused(&'static str),
}

/// The script to run instead of this one in a full keyspace, if it may run there.
#[cold]
fn in_full<'c>(command: &Command<'c>) -> Option<Command<'c>> {
    let mut inner = None;
    let Command::Script(script) = command.unbounded(&mut inner) else { return None };
    let options = ScriptOptions { is_in_full: true, ..script.options() };
    let script = Command::Script(script.with_options(options));
    (options.when_full == WhenFull::ByCommand).then_some(script)
}

/// The error for a command for which there is no room.
fn refusal_without_room(command: &Command<'_>, error: &'static str) -> &'static str {
    match command.unbounded(&mut None) {
        Command::Script(script)
            if script.options().when_full == WhenFull::Refused && error == OUT_OF_MEMORY =>
        {
            SCRIPT_OUT_OF_MEMORY
        }
        _ => error,
    }
}

/// The request in a call.
pub(super) fn decoded(request: &[u8]) -> DecodedRequest<'_> {
    DecodedRequest::decode(&mut Reader::new(request)).expect("this node has encoded it")
}
