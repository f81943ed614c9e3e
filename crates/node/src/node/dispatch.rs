//! Requests on their way to groups, here or on another node, outcomes on their way back, and the calls of components.

use super::Node;
use crate::coding;
use crate::completing::{self, Lacking, Next};
use crate::connections;
use crate::context::long_replies::{reply_in_parts, takes_shared};
use crate::context::memory::{self, OUT_OF_MEMORY, SCRIPT_OUT_OF_MEMORY};
use crate::context::room::{self, Verdict};
use crate::context::routing::Sent;
use crate::context::{Call, CommandPart, Submitted, peers, status};
use crate::control::{self, CONTROL_GROUP, ClusterMap};
use crate::envelope::{DecodedRequest, ForwardedOutcome, ForwardedRequest, NO_DEADLINE_MS};
use crate::eviction::{self, Need};
use crate::gather::Combine;
use crate::groups::Group;
use crate::mapping::{self, Part};
use crate::origin::Asked;
use crate::origin::Origin;
use crate::session::{ClientId, Pending, Session, SessionReply};
use crate::slab::Handle;
use crate::transactions::{self, Ended};
use kv::SharedBytes;
use kv::codec::{Malformed, Reader};
use kv::{Command, Reply, ReplyBuffer, ScriptOptions, Version, WhenFull};
use protocol::coded::{KeptPiece, Message, Refusal};
use protocol::contract::Outgoing;
use protocol::planted::Fault;
use protocol::{Effects, HandedOn, Input, NOBODY, NodeId, Recipient, Request, Result as Outcome, Ticket};
use std::rc::Rc;
use std::sync::Arc;

impl Node {
    /// Carries out the calls of components, and those that come of them. Every input of the node ends with this.
    #[inline]
    pub(super) fn carry_out_calls(&mut self) {
        if !self.cx.has_no_calls() {
            self.carry_out_each_call();
        }
    }

    #[inline(never)]
    fn carry_out_each_call(&mut self) {
        while let Some(call) = self.cx.next_call() {
            match call {
                // The keyspace may have been dropped since.
                Call::Submit { group, asked, .. } if self.cx.groups.get(group).is_none() => {
                    let error = "CLUSTERDOWN NOLEADER the keyspace was dropped; nothing was done";
                    self.complete_with_error(asked.ticket, group, Outcome::Refused, error);
                }
                Call::Submit { group, asked, request } => {
                    let decoded = match &request {
                        Submitted::Encoded(request) => decoded(request),
                        Submitted::Part(CommandPart { id, offset, length, bytes }) => {
                            let (id, offset, length) = (*id, *offset, *length);
                            DecodedRequest::Command(Command::LongPart { id, offset, length, bytes })
                        }
                    };
                    self.submit(group, asked, &decoded.request());
                }
                Call::Complete { ticket, group, result, reply } => {
                    self.complete_with(ticket, group, result, reply);
                }
                Call::CompleteLong { ticket, group, result, reply } => {
                    self.complete_long(ticket, group, result, reply);
                }
                Call::Change { client: Some((client, answer)), change } => {
                    self.cluster.change_for(&mut self.cx, client, answer, &change);
                }
                Call::Change { client: None, change } => self.cluster.change(&mut self.cx, &change),
                Call::NoteDeniedScript { client, error } => {
                    connections::note_denied_script(&mut self.cx, client, &error);
                }
                Call::FollowMap(map) => self.follow_map(&map),
                Call::RetireAll => self.for_each_group(Node::retire),
                Call::ExtendLease { until_us } => {
                    self.cx.groups.extend_leases(until_us);
                    self.for_each_awake(|node, id| node.step(id, Input::Lease { until_us }));
                }
                Call::GiveValue { group, reference, value } => {
                    let replica = self.cx.groups.get_mut(group).and_then(|group| group.replica.as_mut());
                    if let Some(values) = replica.and_then(|replica| replica.spilled_values_mut()) {
                        values.take_value(self.cx.now, reference, value.as_deref(), self.unsettled.effects());
                        self.settle(group);
                    }
                }
                Call::TakeValue { group, reference, value } => {
                    let Node { cx, completing, coding, .. } = self;
                    completing.take_value(cx, coding, group, reference, value.as_ref());
                }
                Call::Supply(handle) => self.supply(handle),
                Call::KeepPiece { group, piece } => {
                    self.keep_piece(group, self.cx.configuration.node, piece);
                }
                Call::Settle { group } if self.cx.groups.get(group).is_none() => {}
                Call::Settle { group } => self.settle(group),
                Call::ReadPiece { group, to, piece } => {
                    let Node { cx, completing, values, coding, .. } = self;
                    completing.read_piece(cx, (values, coding), group, to, piece);
                }
                Call::Fragments { group, message } => {
                    let own = self.cx.configuration.node;
                    let read = self.fragment_message(group, own, &message);
                    assert_eq!(read, Ok(()), "this node writes what can be read");
                }
                Call::EndSession { client, wait, subscriptions, tracks } => {
                    if tracks {
                        self.following.end_all(&mut self.cx, client);
                    }
                    if let Some(subscriptions) = subscriptions {
                        self.channels.forget(client, &subscriptions);
                    }
                    if let Some(number) = wait {
                        self.waits.leave(&mut self.cx, number);
                    }
                }
            }
        }
    }

    /// Goes on with a request that lacked values.
    fn supply(&mut self, handle: Handle) {
        let Some(lacking) = self.completing.take(handle) else { return };
        let Lacking { ticket, group, result, .. } = lacking;
        let mut scratch = Vec::new();
        match lacking.next(&self.cx, &mut scratch) {
            Next::Value(value) => self.complete_with_value(ticket, group, result, value),
            Next::Reply(replies) => self.complete_with(ticket, group, result, replies),
            Next::Submit(asked, command) => self.submit(group, asked, &Request::Command(&command)),
            Next::Refused(error) => self.complete_with_error(ticket, group, Outcome::Refused, error),
        }
    }

    /// Takes a message about fragments from a node, which may be this one: it is for this node's replica, or for the
    /// coordinator here.
    ///
    /// # Errors
    /// [`Malformed`] when it is not such a message.
    pub(super) fn fragment_message(
        &mut self,
        group: u16,
        from: NodeId,
        bytes: &[u8],
    ) -> Result<(), Malformed> {
        match Message::decode(bytes)? {
            Message::Keep(piece) => self.keep_piece(group, from, piece.into()),
            Message::Forget { id } => {
                let replica = self.cx.groups.get_mut(group).and_then(|group| group.replica.as_mut());
                if let Some(fragments) = replica.and_then(|replica| replica.fragments_mut()) {
                    fragments.forget_value(from, id);
                    self.settle(group);
                }
            }
            message => self.coding.take(&mut self.cx, group, from, message),
        }
        Ok(())
    }

    /// Gives this node's replica a piece of its fragment, or sends the coordinator the reason why it does not keep it.
    fn keep_piece(&mut self, group: u16, from: NodeId, piece: KeptPiece) {
        let id = piece.piece().reference.id;
        let replica = self.cx.groups.get_mut(group).and_then(|group| group.replica.as_mut());
        let why = match replica.and_then(|replica| replica.fragments_mut()) {
            // What cannot be written would wait in memory.
            _ if self.cx.room.is_short() => Refusal::NoRoom,
            // The coordinator need not wait for it.
            None => Refusal::NoMember,
            Some(fragments) => {
                fragments.keep_piece(self.cx.now, from, piece, self.unsettled.effects());
                self.coding.note_sent(&self.cx, from);
                return self.settle(group);
            }
        };
        self.coding.send(&mut self.cx, group, from, &Message::Refused { id, why });
    }

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

    /// Sends a client's command to a group, as it is.
    #[inline]
    pub(super) fn ask_group(&mut self, client: ClientId, group: u16, command: &Command<'_>) {
        let deadline_us = self.usual_deadline_us();
        self.ask_until(client, group, false, &Request::Command(command), deadline_us);
    }

    /// When a client's command is due that names no time itself.
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
        // A client that watches keys must not read anything older than what it watches.
        let seen = if session.transaction.is_none() { session.seen(group) } else { Version::MAX };
        self.ask_not_before(client, group, wants_version, request, (seen, deadline_us));
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
                && !memory::refuses_growth(&mut self.cx, group, command)
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
        if self.following.tracking.is_on()
            && let Request::Command(command) = request
        {
            self.following.tracking.note_read(&mut self.cx, client, ticket.sequence, group, command);
        }
        self.submit(group, Asked { ticket, follows, seen, deadline_us, hops: 0, leadership: 0 }, request);
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
        let bytes_max = self.cx.memory.reply_max();
        let gather = self.gathers.begin(ticket, combine, groups.len(), bytes_max);
        for (part, (group, request, seen)) in asked.into_iter().enumerate() {
            let ticket = Origin::Part(gather).ticket(part as u64);
            self.submit(
                group,
                Asked { ticket, follows, seen, deadline_us, hops: 0, leadership: 0 },
                &request,
            );
        }
    }

    /// Hands a request to this node's replica of the group, or to a node that can carry it out.
    #[inline]
    fn submit(&mut self, group: u16, asked: Asked, request: &Request<'_>) {
        if self.quarantine.is_on() {
            if let Some(error) = status::quarantined(&self.cx, group) {
                return self.complete_with_error(asked.ticket, group, Outcome::Refused, &error);
            }
            if self.cx.groups[group].holds.is_some() {
                let to = self.cx.coordinator_of(group);
                return self.forwarding.forward(&mut self.cx, group, to, asked, *request);
            }
        }
        let in_full;
        let mut request = *request;
        let written = request.write();
        if let Some(command) = written {
            let is_node_full =
                self.cx.memory.is_bounded() && memory::refuses_growth(&mut self.cx, group, command);
            let refusal = if is_node_full {
                Some(OUT_OF_MEMORY)
            } else if self.cx.groups[group].keyspace.memory_max > 0 {
                let need = Need::of(&self.cx, group, command);
                self.make_room(need)
            } else {
                None
            };
            if let Some(error) = refusal {
                let script = without_room(command).filter(|_| error == OUT_OF_MEMORY && !is_node_full);
                let Some(script) = script else {
                    self.cx.counters.memory_refused += 1;
                    let error = refusal_without_room(command, error);
                    return self.complete_with_error(asked.ticket, group, Outcome::Refused, error);
                };
                in_full = script;
                request = Request::Command(&in_full);
            }
        }
        let request = &request;
        if self.is_settled_by_room(group, &asked, request) {
            return;
        }
        if let Some(error) = self.cx.spend_on(group, request) {
            return self.complete_with_error(asked.ticket, group, Outcome::Refused, &error);
        }
        if let Request::Command(command) = request
            && command.payload_bytes() > self.cx.configuration.long_command_bytes
            && self.cx.groups[group].keyspace.has_leader()
            && asked.leadership == 0
            // A request that waits has at most `WISH_BYTES_MAX` bytes, and does not come in parts.
            && !matches!(command, Command::Queue(_))
        {
            return self.long.begin(&mut self.cx, group, asked, command);
        }
        let target = &mut self.cx.groups[group];
        let Some(replica) = &mut target.replica else {
            let to = self.cx.coordinator_of(group);
            return self.forwarding.forward(&mut self.cx, group, to, asked, *request);
        };
        let Asked { ticket, follows, seen, deadline_us, leadership, .. } = asked;
        let fenced = leadership != 0 && !self.cx.configuration.planted.has(Fault::LeadershipNotCompared);
        if fenced && replica.leads_in() != Some(leadership) {
            return self.complete(ticket, group, Outcome::Redirect { to: NOBODY }, &[]);
        }
        if follows
            && !(target.waiting.is_empty() && target.under_way.is_empty())
            && (replica.is_leader() || !target.keyspace.has_leader())
            && self.forwarding.stands_behind(&self.cx, group, &asked, self.cx.configuration.node)
        {
            let why = self.cx.nobody_leads(group);
            return self.forwarding.keep(&mut self.cx, group, asked, *request, why);
        }
        let target = &mut self.cx.groups[group];
        let Some(replica) = &mut target.replica else { return };
        if self.values.is_on() && self.values.is_overloaded() && target.keyspace.spills() && written.is_some()
        {
            let own = self.cx.configuration.node;
            let error = format!(
                "TRYAGAIN OVERLOADED the disk of node {own} is behind with values; nothing was done, try again"
            );
            return self.complete_with_error(ticket, group, Outcome::Refused, &error);
        }
        let input = Input::Request { ticket, request, follows, seen, deadline_us, fenced };
        let effects = self.unsettled.effects();
        let stepped = replica.step(self.cx.now, input, effects);
        debug_assert_eq!(stepped, Ok(()), "only a message can be malformed");
        // If another node can be asked, ask it at once: the command is still at hand.
        let redirect = match effects.outcomes.last() {
            Some(outcome) => match outcome.result {
                Outcome::Redirect { to } if outcome.ticket == ticket => Some(to),
                _ => None,
            },
            None => None,
        };
        if let Some(to) = redirect {
            effects.outcomes.pop();
            match fenced {
                true => self.complete(ticket, group, Outcome::Redirect { to }, &[]),
                false => self.forwarding.forward(&mut self.cx, group, to, asked, *request),
            }
        }
        self.settle(group);
    }

    /// Has keys removed until there is the room that is needed, or none can be had: returns the error for the client then.
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

    /// Carries out the effects that a replica's step has left.
    #[inline]
    pub(super) fn settle(&mut self, group: u16) {
        self.cx.groups.touch(group);
        let spills = self.values.is_on() && self.values.keep_spilled(&mut self.cx, group);
        self.settle_effects(group, spills);
        if spills {
            self.values.look_up_for_copies(&mut self.cx, group);
        }
        if self.following.is_on() {
            self.hand_on_changes(group);
        }
    }

    /// Hands on what a replica has noted in the step that was settled: behind its replies.
    #[cold]
    fn hand_on_changes(&mut self, group: u16) {
        let replica = self.cx.groups.get_mut(group).and_then(|group| group.replica.as_mut());
        if let Some(changes) = replica.and_then(|replica| replica.take_changes()) {
            self.following.take(&mut self.cx, &mut self.channels, group, &changes);
        }
        if self.following.tracking.has_waiting() {
            self.release_held();
        }
    }

    /// Gives clients the replies that have waited for this node's replicas.
    fn release_held(&mut self) {
        for held in self.following.tracking.take_held(&self.cx) {
            self.complete_now(held.ticket, held.group, held.result, &held.reply);
        }
    }

    /// Ends what has waited too long: replies for this node's replicas, and invalidations for replies.
    #[cold]
    pub(super) fn tend_held(&mut self) {
        self.release_held();
        self.following.tracking.send_overdue(&mut self.cx);
    }

    #[inline]
    fn settle_effects(&mut self, group: u16, spills: bool) {
        let mut effects = self.unsettled.take();
        if effects.replies.has_announcements() {
            self.channels.publish_announced(&mut self.cx, &mut effects.replies);
        }
        let long_bytes = self.cx.configuration.long_command_bytes;
        let are_some_long = effects.replies.len() > long_bytes
            && effects.outcomes.iter().any(|outcome| outcome.reply.len() > long_bytes);
        if are_some_long || effects.replies.has_lent() {
            self.settle_long(group, &mut effects, spills);
        } else {
            for outcome in &effects.outcomes {
                let reply = &effects.replies.as_bytes()[outcome.reply.clone()];
                self.settle_outcome(group, outcome, reply, spills);
            }
        }
        for record in &effects.records {
            let parts = record.parts(&effects.bytes);
            self.cx.journal.append(group, &mut self.cx.groups[group].tail, parts);
        }
        for Outgoing { to, bytes, after_record, recipient } in &effects.messages {
            let parts = bytes.parts(&effects.bytes);
            if self.cx.groups[group].tail.may_leave(*after_record) {
                self.send(group, *to, *recipient, parts);
            } else if !self.cx.journal.is_full() || self.cx.groups[group].keyspace.has_leader() {
                self.cx.groups[group].tail.hold(*after_record, *to, *recipient, parts);
            }
            // Otherwise it would wait for a record that may never be written: registers ask again, as often as it
            // takes.
        }
        for event in &effects.trace {
            let name = self.cx.groups.get(group).map_or_else(String::new, Group::name);
            self.cx.log.extend(crate::log::describe(&name, event));
        }
        if effects.handed_on.is_empty() && effects.control_requests.is_empty() && effects.notices.is_empty() {
            return self.unsettled.put_back(effects);
        }
        let requests = std::mem::take(&mut effects.control_requests);
        let handed_on = std::mem::take(&mut effects.handed_on);
        let notices = std::mem::take(&mut effects.notices);
        let bytes = std::mem::take(&mut effects.bytes);
        self.unsettled.put_back(effects);
        requests.into_iter().for_each(|request| self.cluster.request(&mut self.cx, group, request));
        notices.into_iter().for_each(|notice| self.waits.notice(&mut self.cx, group, notice));
        for HandedOn { ticket, to, deadline_us, command } in handed_on {
            match Command::decode(&mut Reader::new(&bytes[command])) {
                Ok(command) => {
                    let (seen, leadership) = (Version::MAX, 0);
                    let asked = Asked { ticket, follows: true, seen, deadline_us, hops: 0, leadership };
                    if to == self.cx.configuration.node {
                        self.submit(group, asked, &Request::Command(&command));
                        continue;
                    }
                    self.forwarding.forward(&mut self.cx, group, to, asked, Request::Command(&command));
                }
                Err(Malformed(why)) => {
                    debug_assert!(false, "a replica hands on what it was given: {why}");
                    let error = "CLUSTERDOWN NOLEADER the leader has changed; nothing was done, try again";
                    self.complete_with_error(ticket, group, Outcome::Refused, error);
                }
            }
        }
    }

    /// Handles the outcome of a request that a replica has ended.
    #[inline]
    fn settle_outcome(&mut self, group: u16, outcome: &protocol::Outcome, reply: &[u8], spills: bool) {
        if let Outcome::Redirect { to } = outcome.result {
            if matches!(Origin::of(outcome.ticket), Origin::Peer(..)) {
                return self.complete(outcome.ticket, group, outcome.result, &[]);
            }
            let error = format!("CLUSTERDOWN NOLEADER node {to} leads now; nothing was done, try again");
            return self.complete_with_error(outcome.ticket, group, Outcome::Refused, &error);
        }
        let is_taken = spills && ReplyBuffer::is_unfinished(reply) && {
            let Node { cx, completing, values, coding, .. } = self;
            completing.complete(cx, (values, coding), outcome.ticket, group, outcome.result, reply)
        };
        if !is_taken {
            self.complete(outcome.ticket, group, outcome.result, reply);
        }
    }

    /// Handles a request that cannot take its usual course in its group for lack of room somewhere. Returns false if it
    /// can.
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
                // It was meant for one leadership: its sender sends it again.
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

    /// Sends a replica's message.
    #[inline]
    pub(super) fn send(
        &mut self,
        group: u16,
        to: NodeId,
        recipient: Recipient,
        [message, behind]: [&[u8]; 2],
    ) {
        match recipient {
            Recipient::Replica => peers::send(&mut self.cx, group, to, [message, behind]),
            Recipient::Coordinator => {
                assert!(behind.is_empty(), "a piece of a fragment is no entry, whose bytes are shared");
                coding::send_encoded(&mut self.cx, group, to, message);
            }
        }
    }

    #[inline]
    pub(super) fn complete(&mut self, ticket: Ticket, group: u16, result: Outcome, reply: &[u8]) {
        if self.following.tracking.is_on()
            && self.following.tracking.holds_back(&self.cx, ticket, group, result, reply)
        {
            return;
        }
        self.complete_now(ticket, group, result, reply);
    }

    #[inline]
    fn complete_now(&mut self, ticket: Ticket, group: u16, result: Outcome, reply: &[u8]) {
        match Origin::of(ticket) {
            Origin::Session(client) => {
                if self.following.tracking.is_on() {
                    self.following.tracking.note_reply(&self.cx, client, group, result);
                }
                if ReplyBuffer::is_unfinished(reply) {
                    let Node { cx, completing, values, coding, .. } = self;
                    let is_taken = completing.complete(cx, (values, coding), ticket, group, result, reply);
                    return assert!(is_taken, "the node of the client completes what it lacks");
                }
                let reply = match self.following.tracking.has_scripts() {
                    true => self.following.tracking.take_reads(
                        &mut self.cx,
                        client,
                        ticket.sequence,
                        result,
                        reply,
                    ),
                    // Its client has ended its tracking.
                    false => ReplyBuffer::split_reads(reply).map_or(reply, |(_, rest)| rest),
                };
                let Some(session) = self.cx.clients.sessions.get_mut(client) else { return };
                if let Some(pending) = session.take_pending(ticket.sequence) {
                    return self.complete_pending(client, pending, ticket, group, (result, reply));
                }
                self.cx.count_error(reply);
                self.cx.complete_session(
                    client,
                    ticket.sequence,
                    group,
                    result,
                    SessionReply::Encoded(reply),
                );
            }
            Origin::Coding(operation) => {
                self.coding.operation_answered(&mut self.cx, operation, result, reply)
            }
            Origin::Peer(from, link) => {
                if reply.len() > self.cx.configuration.long_command_bytes {
                    let reply = SharedBytes::from(reply.to_vec());
                    return reply_in_parts(
                        &mut self.cx,
                        (from, link),
                        ticket.sequence,
                        result,
                        (Vec::new(), reply),
                    );
                }
                let peer = &mut self.cx.peers[from];
                if peer.is_linked_by(link) {
                    peer.add_outcome(&ForwardedOutcome { id: ticket.sequence, result, reply });
                }
            }
            Origin::Freshness => {
                self.following.tracking.answered(&self.cx, group, ticket.sequence, result, reply);
            }
            Origin::Changes => {
                self.following.readers.answered(&mut self.cx, ticket.sequence, result, reply);
            }
            Origin::Wait => self.waits.answered(&mut self.cx, ticket.sequence, result, reply),
            Origin::LongPart => self.long.part_answered(&mut self.cx, ticket.sequence, result, reply),
            Origin::Eviction => {
                if let Some(group) = self.cx.groups.get_mut(group) {
                    group.chooser.end(ticket.sequence);
                }
            }
            Origin::Nobody => {}
            Origin::Part(handle) => {
                let Some(whole) = self.gathers.ticket(handle) else { return };
                if let (Outcome::Done { offset, .. }, Origin::Session(client)) = (result, Origin::of(whole))
                    && offset > 0
                    && let Some(session) = self.cx.clients.sessions.get_mut(client)
                {
                    session.saw(group, offset);
                    if self.following.tracking.is_on() {
                        self.following.tracking.note_reply(&self.cx, client, group, result);
                    }
                }
                if let Some(replies) = self.gathers.take(handle, ticket.sequence as usize, reply) {
                    self.complete_with(whole, 0, Outcome::Done { version: 0, offset: 0 }, replies);
                }
            }
        }
    }

    /// Handles the outcome of a request that is not simply its reply.
    fn complete_pending(
        &mut self,
        client: ClientId,
        pending: Pending,
        ticket: Ticket,
        group: u16,
        (result, reply): (Outcome, &[u8]),
    ) {
        match transactions::end(&mut self.cx, client, pending, group, (result, reply)) {
            Ended::Same => self.complete(ticket, group, result, reply),
            Ended::Error(error) => self.complete_with_error(ticket, group, result, &error),
            Ended::Reply(replies) => self.complete_with(ticket, group, result, replies),
            Ended::Exec(items, elements) => {
                let replies = self.exec_replies(client, &items, elements);
                self.complete_with(ticket, group, result, replies);
            }
        }
    }

    fn complete_with_error(&mut self, ticket: Ticket, group: u16, result: Outcome, error: &str) {
        let mut replies = ReplyBuffer::new();
        replies.error(error);
        self.complete(ticket, group, result, replies.as_bytes());
    }

    /// Carries out the requests of a peer's clients, in order. A few bytes can ask for a large reply: when too many
    /// replies wait to leave, the remaining requests wait for them, so that no peer can make this node hold an
    /// unlimited number. And when this turn has done its share, the remaining requests wait for the next one.
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
            let ForwardedRequest { follows, seen, hops, leadership, .. } = asked;
            // A node with another map may send a key to another group, where it would not be found later.
            let belongs = match &decoded {
                DecodedRequest::Command(command) => {
                    self.cx.group_of(command).is_none_or(|group| group == asked.group)
                }
                DecodedRequest::Wait { .. } => true,
            };
            if belongs && self.cx.groups.get(asked.group).is_some() {
                self.submit(
                    asked.group,
                    Asked { ticket, follows, seen, deadline_us, hops, leadership },
                    &decoded.request(),
                );
            } else {
                let own = self.cx.configuration.node;
                let error = format!(
                    "CLUSTERDOWN NOLEADER node {own} does not know that keyspace; nothing was done, try again"
                );
                self.complete_with_error(ticket, asked.group, Outcome::Refused, &error);
            }
        }
        Ok(())
    }

    /// Submits waiting requests as far as a node can take them by now, and ends those that have waited too long.
    pub(super) fn tend_waiting(&mut self) {
        if !self.forwarding.looks_now(&mut self.cx) {
            return;
        }
        self.for_each_group(|node, group| {
            node.forwarding.end_overdue_waiting(&mut node.cx, group);
            while let Some(kept) = node.forwarding.begin_retry(&mut node.cx, group) {
                node.submit(group, kept.asked, &decoded(&kept.request).request());
                if node.forwarding.end_retry() {
                    break;
                }
            }
        });
    }

    // The map.

    /// Follows a map of the cluster.
    pub(super) fn follow_map(&mut self, map: &Rc<ClusterMap>) {
        let Node { cx, coding, values, quarantine, .. } = self;
        mapping::adopt(cx, coding, values, map);
        quarantine.follow(cx, map);
        if cx.is_admitted {
            for (id, entry) in map.groups.iter().filter(|(id, _)| **id != CONTROL_GROUP) {
                match mapping::part_in(&self.cx, map, *id, entry) {
                    Part::Stays => {}
                    Part::Holds => self.take_part(map, *id, entry),
                    Part::Ends => {
                        let was_recorded = std::mem::take(&mut self.cx.groups[*id].is_recorded);
                        self.retire(*id);
                        if was_recorded {
                            self.cx.journal.forget(*id);
                        }
                    }
                }
            }
        }
        self.cx.map = Rc::clone(map);
        connections::follow_users(&mut self.cx);
        self.clock.follow_map(&mut self.cx);
    }

    /// Holds a replica of a group, configured with the group's members.
    fn take_part(&mut self, map: &ClusterMap, id: u16, entry: &control::Group) {
        if self.cx.groups[id].replica.is_none() {
            let Node { cx, quarantine, following, .. } = self;
            let mut replica = mapping::make_replica(cx, quarantine, id, entry);
            following.attach(&mut replica);
            let group = &mut cx.groups[id];
            group.replica = Some(replica);
            group.is_recorded = cx.journal.describe(id, &mut group.tail, &group.keyspace);
            quarantine.resume(cx, id, map);
        }
        let Some(configuration) = mapping::configuration_for(&mut self.cx, map, id, entry) else { return };
        self.step(id, Input::Configure(&configuration));
        let until_us = self.cluster.control().lease_until_us();
        self.step(id, Input::Lease { until_us });
        for peer in self.cx.peers.ids() {
            if self.cx.peers.is_up(peer) {
                self.step(id, Input::Link { peer, up: true });
                peers::set_reached(&mut self.cx, id, peer);
            }
        }
    }

    /// Drops a replica: all of its requests get outcomes with that.
    fn retire(&mut self, id: u16) {
        let Node { cx, values, unsettled, .. } = self;
        if mapping::retire(cx, values, unsettled.effects(), id) {
            self.settle(id);
        }
    }

    /// Removes groups whose keyspace was dropped a while ago.
    pub(super) fn forget_dismissed(&mut self) {
        while let Some(id) = self.cx.groups.next_dismissed(self.cx.now.monotonic_us) {
            self.retire(id);
            self.forwarding.end_group(&mut self.cx, id);
            self.cx.groups.remove_dismissed(id);
            self.cx.journal.forget(id);
        }
    }

    // At the node that makes a reply.

    /// Ends the requests of a replica's step, some of which have long replies: a reply that is most of the buffer is
    /// not copied, nor is a value that is lent.
    #[cold]
    fn settle_long(&mut self, group: u16, effects: &mut Effects, spills: bool) {
        let mut lent = effects.replies.take_lent();
        let buffer = Arc::new(effects.replies.take());
        for outcome in &effects.outcomes {
            let reply = &buffer[outcome.reply.clone()];
            if let Some(value) = ReplyBuffer::lent(reply).and_then(|number| lent.get_mut(number)) {
                let value = std::mem::take(value);
                self.complete_with_value(outcome.ticket, group, outcome.result, value);
                continue;
            }
            let is_answer =
                !matches!(outcome.result, Outcome::Redirect { .. }) && !ReplyBuffer::is_unfinished(reply);
            if is_answer && reply.len() > self.cx.configuration.long_command_bytes {
                let shared = SharedBytes::within(&buffer, reply);
                let reply = shared.unwrap_or_else(|| SharedBytes::from(reply.to_vec()));
                self.complete_long(outcome.ticket, group, outcome.result, reply);
            } else {
                self.settle_outcome(group, outcome, reply, spills);
            }
        }
    }

    /// Answers a request with a reply that was made for it, long or not.
    fn complete_with(&mut self, ticket: Ticket, group: u16, result: Outcome, mut replies: ReplyBuffer) {
        match replies.len() > self.cx.configuration.long_command_bytes {
            true => self.complete_long(ticket, group, result, SharedBytes::from(replies.take())),
            false => self.complete(ticket, group, result, replies.as_bytes()),
        }
    }

    /// Answers a request with a long reply, whose large values are not copied on their way to a peer or a client.
    fn complete_long(&mut self, ticket: Ticket, group: u16, result: Outcome, reply: SharedBytes) {
        if let Origin::Peer(from, link) = Origin::of(ticket) {
            return reply_in_parts(&mut self.cx, (from, link), ticket.sequence, result, (Vec::new(), reply));
        }
        // What a script has read is to be taken off.
        let is_answer =
            !ReplyBuffer::is_unfinished(&reply) && !matches!(Reply::first(&reply), Reply::Reads(_));
        match takes_shared(&self.cx, ticket).filter(|_| is_answer) {
            Some(client) => {
                self.cx.complete_session(client, ticket.sequence, group, result, SessionReply::Long(reply))
            }
            None => self.complete(ticket, group, result, &reply),
        }
    }

    /// Answers a request with a large value, which is not copied if it can be written from where it is.
    fn complete_with_value(&mut self, ticket: Ticket, group: u16, result: Outcome, value: SharedBytes) {
        if let Some(client) = takes_shared(&self.cx, ticket) {
            let reply = SessionReply::Value(value);
            return self.cx.complete_session(client, ticket.sequence, group, result, reply);
        }
        let mut replies = ReplyBuffer::new();
        if let Origin::Peer(from, link) = Origin::of(ticket)
            && value.len() >= self.cx.configuration.long_command_bytes
        {
            replies.bulk_head(value.len());
            return reply_in_parts(
                &mut self.cx,
                (from, link),
                ticket.sequence,
                result,
                (replies.take(), value),
            );
        }
        replies.bulk(&value);
        self.complete_with(ticket, group, result, replies);
    }
}

/// The script that a full keyspace runs in the place of this one, if it does.
#[cold]
fn without_room<'c>(command: &Command<'c>) -> Option<Command<'c>> {
    let Command::Script(script) = command else { return None };
    let options = ScriptOptions { is_in_full: true, ..script.options() };
    (options.when_full == WhenFull::ByCommand).then(|| Command::Script(script.with_options(options)))
}

/// The error for a command for which there is no room.
fn refusal_without_room(command: &Command<'_>, error: &'static str) -> &'static str {
    match command {
        Command::Script(script)
            if script.options().when_full == WhenFull::Refused && error == OUT_OF_MEMORY =>
        {
            SCRIPT_OUT_OF_MEMORY
        }
        _ => error,
    }
}

/// The request of a call.
fn decoded(request: &[u8]) -> DecodedRequest<'_> {
    DecodedRequest::decode(&mut Reader::new(request)).expect("this node has encoded it")
}
