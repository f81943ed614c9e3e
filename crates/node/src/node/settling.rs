//! Carries out what a replica's step leaves: records, messages, and outcomes for clients and nodes.

use super::Node;
use super::gates::AFTER_STEPS;
use crate::coding;
use crate::context::grants;
use crate::context::long_replies::{reply_in_parts, takes_shared};
use crate::context::peers;
use crate::context::routing::MOVED;
use crate::diagnostics::log::{Level, Line};
use crate::groups::Group;
use crate::messages::envelope::ForwardedOutcome;
use crate::requests::long_reads;
use crate::requests::transactions::{self, Ended};
use crate::session::gates::{Gate, Gates};
use crate::session::origin::{Asked, Origin};
use crate::session::{ClientId, Pending, SessionReply};
use kv::codec::{Malformed, Reader};
use kv::{Command, Lent, Reply, ReplyBuffer, SharedBytes, TransactionId, Version};
use protocol::contract::Outgoing;
use protocol::{Effects, HandedOn, NodeId, Recipient, Request, Result as Outcome, Ticket, Trace};
use std::sync::Arc;

/// The gates that concern outcomes.
const AT_OUTCOMES: Gates = Gates::of(&[Gate::Tracking, Gate::Spans]);

impl Node {
    /// Carries out the effects that a replica's step has left.
    #[inline]
    pub(super) fn settle(&mut self, group: u16) {
        self.cx.groups.touch(group);
        let gates = self.cx.gates & AFTER_STEPS;
        match gates.are_open() {
            true => self.settle_effects(group, false),
            false => self.settle_unusual(group, gates),
        }
    }

    /// The same where values go to the disk, or clients follow changes.
    #[cold]
    fn settle_unusual(&mut self, group: u16, gates: Gates) {
        let spills = gates.has(Gate::Values) && self.values.keep_spilled(&mut self.cx, group);
        self.settle_effects(group, spills);
        if spills {
            self.values.look_up_for_copies(&mut self.cx, group);
        }
        if gates.has(Gate::Changes) {
            self.hand_on_changes(group);
        }
    }

    /// Hands on the changes that a replica noted in the step that was settled. They come after the step's replies.
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

    /// Gives clients the replies that were held until this node's replicas had applied the writes.
    fn release_held(&mut self) {
        for held in self.following.tracking.take_held(&self.cx) {
            self.complete_now(held.ticket, held.group, held.result, &held.reply);
        }
    }

    /// Ends overdue waits: of held replies for this node's replicas, and of invalidations for replies.
    #[cold]
    pub(super) fn tend_held(&mut self) {
        self.release_held();
        self.following.tracking.send_overdue(&mut self.cx);
    }

    #[inline]
    fn settle_effects(&mut self, group: u16, spills: bool) {
        let mut effects = self.unsettled.take();
        if let Some(group) = self.cx.groups.get_mut(group) {
            group.commits.end(&effects.outcomes, self.cx.now);
        }
        if self.cx.groups.get(group).is_some_and(|group| !group.granted.is_empty()) {
            let have_room = grants::settle(&mut self.cx, group, &effects.outcomes);
            if self.two_phase.settle(group, &effects.outcomes) || have_room {
                self.forwarding.look_soon(&self.cx);
            }
        }
        if self.cx.gates.has(Gate::Spans) {
            for outcome in &effects.outcomes {
                self.cx.spans.end_inner(self.cx.now, outcome.ticket);
            }
        }
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
            // Otherwise the message would wait for a record that may never be written: registers repeat their
            // requests as often as needed.
        }
        for event in &effects.trace {
            let name = self.cx.groups.get(group).map_or_else(String::new, Group::name);
            self.cx.log.extend(crate::diagnostics::log::describe(&name, event));
            let is_begun = matches!(event, Trace::Begun { .. });
            // A new group begins empty, too.
            if is_begun && let Some(begun) = self.cx.groups.get_mut(group).filter(|group| group.is_older) {
                begun.began_empty_ms = self.cx.now.unix_ms;
                let text = format!(
                    "keyspace '{name}' has begun again, empty: all nodes that held it were restarted, and durability = \"none\" \
                     keeps it in memory only. What was acknowledged before is lost"
                );
                self.cx.log.push(Line { level: Level::Warning, text });
            }
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
                    // The next leader gives it another bound, which may be this node.
                    grants::release(&mut self.cx, group, ticket);
                    self.two_phase.withdraw(group, ticket);
                    let command = match command {
                        Command::Bounded(bounded) => bounded.command(),
                        command => command,
                    };
                    let (seen, leadership) = (Version::MAX, 0);
                    let asked = Asked { ticket, follows: true, seen, deadline_us, hops: 0, leadership };
                    if to == self.cx.configuration.node {
                        // Keys may have moved while it was held.
                        if !self.cx.belongs(group, &command) {
                            self.complete_with_error(ticket, group, Outcome::Refused, MOVED);
                            continue;
                        }
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

    /// Ends the requests of a replica's step, some of which have long replies: a reply that is most of the buffer is
    /// not copied, nor is a value that is lent.
    #[cold]
    fn settle_long(&mut self, group: u16, effects: &mut Effects, spills: bool) {
        let mut lent = effects.replies.take_lent();
        let buffer = Arc::new(effects.replies.take());
        for outcome in &effects.outcomes {
            let reply = &buffer[outcome.reply.clone()];
            match ReplyBuffer::lent(reply).and_then(|number| lent.get_mut(number)) {
                Some(Lent::Value(value)) => {
                    let value = std::mem::take(value);
                    self.complete_with_value(outcome.ticket, group, outcome.result, value);
                    continue;
                }
                Some(Lent::Read(id)) => {
                    self.long_reads.begin(&mut self.cx, group, (outcome.ticket, outcome.result), *id);
                    continue;
                }
                None => {}
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

    /// Goes on with a read that takes several turns, and answers it when its reply is complete.
    #[cold]
    pub(super) fn go_on_reading(&mut self) {
        let Some(long_reads::Ended { group, ticket, result, reply }) = self.long_reads.go_on(&mut self.cx)
        else {
            return;
        };
        // What the read's copy held alone is freed little by little.
        self.cx.groups.touch(group);
        match reply {
            Some(reply) => self.complete_with(ticket, group, result, reply),
            None => self.complete_with_error(ticket, group, Outcome::Refused, MOVED),
        }
    }

    /// Handles the outcome of a request that a replica has ended.
    #[inline(always)]
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

    /// Ends a request: its reply goes where the request came from.
    #[inline]
    pub(super) fn complete(&mut self, ticket: Ticket, group: u16, result: Outcome, reply: &[u8]) {
        if (self.cx.gates & AT_OUTCOMES).are_open()
            && let Origin::Session(client) = Origin::of(ticket)
            && ReplyBuffer::is_plain(reply)
            && let Some(session) = self.cx.clients.sessions.get(client)
            && !session.has_any_pending()
        {
            let reply = SessionReply::Encoded(reply);
            return self.cx.complete_session(client, ticket.sequence, group, result, reply);
        }
        self.complete_unusual(ticket, group, result, reply);
    }

    /// The same where the reply may be held, noted, completed or made from others first, or goes elsewhere than to a client.
    fn complete_unusual(&mut self, ticket: Ticket, group: u16, result: Outcome, reply: &[u8]) {
        if self.cx.gates.has(Gate::Tracking)
            && self.following.tracking.holds_back(&self.cx, ticket, group, result, reply)
        {
            return;
        }
        self.complete_now(ticket, group, result, reply);
    }

    /// Completes a reply at the node that has asked, which fetches all that it lacks.
    #[cold]
    fn complete_here(&mut self, ticket: Ticket, group: u16, result: Outcome, reply: &[u8]) {
        let Node { cx, completing, values, coding, .. } = self;
        let is_taken = completing.complete(cx, (values, coding), ticket, group, result, reply);
        assert!(is_taken, "the node that has asked completes what the reply lacks");
    }

    fn complete_now(&mut self, ticket: Ticket, group: u16, result: Outcome, reply: &[u8]) {
        if self.cx.gates.has(Gate::Spans) && !ReplyBuffer::is_unfinished(reply) {
            self.cx.spans.end(self.cx.now, ticket, reply);
        }
        match Origin::of(ticket) {
            Origin::Session(client) => {
                if self.cx.gates.has(Gate::Tracking) {
                    self.following.tracking.note_reply(&self.cx, client, group, result);
                }
                if ReplyBuffer::is_unfinished(reply) {
                    return self.complete_here(ticket, group, result, reply);
                }
                let Node { cx, following, .. } = self;
                let reply = following.tracking.take_reads(cx, (client, ticket.sequence), result, reply);
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
            Origin::Value => self.values.fetched(&mut self.cx, ticket.sequence, reply),
            Origin::TwoPhase if ReplyBuffer::is_unfinished(reply) => {
                self.complete_here(ticket, group, result, reply);
            }
            Origin::TwoPhase => {
                self.two_phase.answered(&mut self.cx, ticket.sequence, result, reply);
                for announcement in self.two_phase.take_announced() {
                    self.channels.publish_announcement(&mut self.cx, &announcement);
                }
            }
            Origin::Floor => self.cluster.floor_answered(&self.cx, ticket.sequence, result, reply),
            Origin::Wait => self.waits.answered(&mut self.cx, group, ticket.sequence, result, reply),
            Origin::LongPart => self.long.part_answered(&mut self.cx, ticket.sequence, result, reply),
            Origin::Eviction => {
                if let Some(group) = self.cx.groups.get_mut(group) {
                    group.chooser.end(ticket.sequence);
                }
            }
            Origin::Unawaited => {}
            Origin::Part(handle) => {
                let Some(whole) = self.gathers.ticket(handle) else { return };
                if let (Outcome::Done { offset, .. }, Origin::Session(client)) = (result, Origin::of(whole))
                    && offset > 0
                    && let Some(session) = self.cx.clients.sessions.get_mut(client)
                {
                    session.saw(group, offset);
                    if self.cx.gates.has(Gate::Tracking) {
                        self.following.tracking.note_reply(&self.cx, client, group, result);
                    }
                }
                let groups = &self.cx.groups;
                let name = |id| groups.get(id).map_or("that was dropped", |group| group.keyspace.name());
                if let Some(replies) = self.gathers.take(handle, ticket.sequence as usize, reply, name) {
                    self.complete_with(whole, 0, Outcome::Done { version: 0, offset: 0 }, replies);
                }
            }
        }
    }

    /// Handles the outcome of a request whose reply needs more work.
    fn complete_pending(
        &mut self,
        client: ClientId,
        pending: Pending,
        ticket: Ticket,
        group: u16,
        (result, reply): (Outcome, &[u8]),
    ) {
        if let Pending::Copy(name, locked_by) = &pending {
            return self.copy(client, ticket, (group, name, *locked_by), (result, reply));
        }
        match transactions::end(&mut self.cx, client, pending, group, (result, reply)) {
            Ended::Same => self.complete(ticket, group, result, reply),
            Ended::Error(error) => self.complete_with_error(ticket, group, result, &error),
            Ended::Reply(replies) => self.complete_with(ticket, group, result, replies),
            Ended::Exec(items, elements) => {
                let replies = self.exec_replies(client, &items, elements);
                self.complete_with(ticket, group, result, replies);
            }
            Ended::Watch(group, pending) => self.watch_further(client, ticket, group, pending),
        }
    }

    /// Asks another group for the versions of keys that a client watches.
    fn watch_further(&mut self, client: ClientId, ticket: Ticket, group: u16, pending: Pending) {
        let Pending::Watch { keys, .. } = &pending else {
            unreachable!("only keys to watch are in several groups")
        };
        let mut scratch = Vec::new();
        let command = Command::Watch { keys: transactions::watched_keys(keys, &mut scratch) };
        let deadline_us = self.usual_deadline_us();
        let asked = Asked { ticket, follows: true, seen: Version::MAX, deadline_us, hops: 0, leadership: 0 };
        if let Some(session) = self.cx.clients.sessions.get_mut(client) {
            session.expect_again(ticket.sequence, pending);
            self.cx.submit(group, asked, &Request::Command(&command));
        }
    }

    /// Answers `KEYSPACE COPY` when the group has answered at which version it is.
    fn copy(
        &mut self,
        client: ClientId,
        ticket: Ticket,
        (group, name, locked_by): (u16, &str, Option<TransactionId>),
        answer: (Outcome, &[u8]),
    ) {
        let Node { cx, following, .. } = self;
        let copied = (group, name, locked_by);
        match following.replicas.begin_copy(cx, (client, ticket.sequence), copied, answer) {
            Ok(begun) => {
                let mut replies = ReplyBuffer::new();
                replies.push(Reply::Status(begun.status.as_bytes()));
                let done = Outcome::Done { version: 0, offset: 0 };
                self.complete_now(ticket, group, done, replies.as_bytes());
                self.following.replicas.send_copy(&mut self.cx, client, name, begun);
            }
            Err(error) => self.complete_with_error(ticket, group, Outcome::Refused, &error),
        }
    }

    pub(super) fn complete_with_error(&mut self, ticket: Ticket, group: u16, result: Outcome, error: &str) {
        let mut replies = ReplyBuffer::new();
        replies.error(error);
        self.complete(ticket, group, result, replies.as_bytes());
    }

    /// Answers a request with a reply that was made for it, long or not.
    pub(super) fn complete_with(
        &mut self,
        ticket: Ticket,
        group: u16,
        result: Outcome,
        mut replies: ReplyBuffer,
    ) {
        match replies.len() > self.cx.configuration.long_command_bytes {
            true => self.complete_long(ticket, group, result, SharedBytes::from(replies.take())),
            false => self.complete(ticket, group, result, replies.as_bytes()),
        }
    }

    /// Answers a request with a long reply, whose large values are not copied on their way to a peer or a client.
    pub(super) fn complete_long(&mut self, ticket: Ticket, group: u16, result: Outcome, reply: SharedBytes) {
        if let Origin::Peer(from, link) = Origin::of(ticket) {
            return reply_in_parts(&mut self.cx, (from, link), ticket.sequence, result, (Vec::new(), reply));
        }
        // The list of keys that a script has read must be taken off.
        let is_answer =
            !ReplyBuffer::is_unfinished(&reply) && !matches!(Reply::first(&reply), Reply::Reads(_));
        match takes_shared(&self.cx, ticket).filter(|_| is_answer) {
            Some(client) => {
                self.cx.complete_session(client, ticket.sequence, group, result, SessionReply::Long(reply))
            }
            None => self.complete(ticket, group, result, &reply),
        }
    }

    /// Answers a request with a large value, which is written from its place without a copy where possible.
    pub(super) fn complete_with_value(
        &mut self,
        ticket: Ticket,
        group: u16,
        result: Outcome,
        value: SharedBytes,
    ) {
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
