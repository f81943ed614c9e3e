//! A node's turn: what has arrived goes in, and what the node leaves goes on its way.

use super::World;
use super::operator::OPERATOR;
use crate::conversation::{Conversation, Next as NextStep, Talk};
use crate::events::{Event, Place};
use crate::faults::{Class, MS, Mask, SECOND, Within, has};
use crate::host::{Arrival, Doom, Host, Session};
use crate::message;
use crate::network::Outgoing;
use crate::operation::{Kind, Operation, Reply};
use crate::report::Broken;
use crate::trace::id;
use node::{ClientId, ClientKind, Node, NodeId};
use wire::frame::{self, Next};

/// A run heals when so many frames were sent: some weather makes nodes say the same again and again, and what is
/// found there is found in shorter runs too.
const FRAMES_MAX: u64 = 1_000_000;

/// Where a node has what is to be written to another one.
type Output = fn(&mut Node, NodeId) -> &mut Vec<u8>;

impl World {
    #[inline]
    pub(super) fn turn(&mut self, place: Place) {
        let host = &mut self.hosts[usize::from(place)];
        host.turn_at = u64::MAX;
        let Some(mut node) = host.node.take() else { return };
        self.turns += 1;
        // As the real loop does: time is read again before what has arrived is taken in.
        match std::mem::take(&mut host.has_begun) {
            true => node.advance(host.clock.read(self.now)),
            false => node.begin_turn(host.clock.read(self.now)),
        }
        if let Some(us) = host.stall_first_us.take() {
            (host.node, host.has_begun) = (Some(node), true);
            (host.free_at, host.turn_at) = (self.now + us, self.now + us);
            return;
        }
        for (work, result) in host.finished.drain(..) {
            node.work_finished(work, result);
        }
        for (work, result) in host.finished_values.drain(..) {
            node.value_work_finished(work, result);
        }
        let mut arrivals = std::mem::take(&mut self.arrivals);
        std::mem::swap(&mut arrivals, &mut host.inbox);
        for arrival in arrivals.drain(..) {
            self.take_in(&mut node, place, arrival);
        }
        self.arrivals = arrivals;
        let host = &mut self.hosts[usize::from(place)];
        node.flush();
        // As in the server, messages leave first where the write takes a moment; and the process may die between the two.
        let mut doom = None;
        if node.is_about_to_write()
            && host.doom.is_some_and(|doom| !doom.within.writes)
            && sends(host, &mut node, self.scenario.nodes)
        {
            (node, doom) = self.still_doomed(place, node);
        }
        if let Some(doom) = doom {
            return self.die_before_the_write(place, node, doom);
        }
        let host = &mut self.hosts[usize::from(place)];
        node.end_turn(&mut host.disk.files);
        let stopped = node.stopped().map(str::to_owned);
        self.learn_map(&node);
        self.check_disk_that_was_put_back(place, &node);
        let host = &mut self.hosts[usize::from(place)];
        let mut doom = None;
        if is_doomed(host, &mut node, self.scenario.nodes) {
            (node, doom) = self.still_doomed(place, node);
        }
        let host = &mut self.hosts[usize::from(place)];
        let busy_us = 5 + host.random.below(20) + host.slow_us;
        let leaves_at = self.now + host.stall_us.take().unwrap_or(busy_us);
        host.free_at = leaves_at;
        host.turn_at = host.clock.when(node.next_wakeup_us(), self.now).max(leaves_at);

        node.take_log(&mut self.log);
        for line in self.log.drain(..) {
            self.trace.tell(self.now, format_args!("node {}: {}", id(place), line.text));
        }
        if let Some(why) = stopped {
            // Nothing of this turn leaves: it may rest on what is not on the disk.
            return self.stop(place, node, &why);
        }
        self.begin_work(place, &mut node);
        let (peers, clients) =
            doom.map_or((Mask::MAX, true), |doom| (doom.within.peers, doom.within.clients));
        self.send_frames(&mut node, place, leaves_at, peers);
        self.send_replies(&mut node, place, leaves_at, clients);
        self.host(place).node = Some(node);
        if let Some(Doom { down_us, noticed, power, .. }) = doom {
            self.die(place, down_us, noticed, power);
        }
    }

    /// How a process dies that was to die within a turn, unless too much has happened since: others have lost their memory,
    /// or are not in sync any more.
    fn still_doomed(&mut self, place: Place, node: Node) -> (Node, Option<Doom>) {
        // Whether it may die is asked of those that live.
        let host = self.host(place);
        host.node = Some(node);
        let mut doom = host.doom.take();
        if doom.is_some_and(|doom| !self.may_crash(place, doom.power.is_some())) {
            self.counts.add(Class::CrashSpared);
            doom = None;
        }
        let node = self.host(place).node.take().expect("it was put there");
        (node, doom)
    }

    fn die_before_the_write(&mut self, place: Place, mut node: Node, doom: Doom) {
        let Doom { within, down_us, noticed, power, .. } = doom;
        let leaves_at = self.now + 1 + self.host(place).random.below(20);
        self.counts.add(Class::CrashBeforeWrite);
        self.send_frames(&mut node, place, leaves_at, within.peers);
        self.host(place).node = Some(node);
        self.die(place, down_us, noticed, power);
    }

    /// The disk has failed in a way that ends the process at once.
    fn stop(&mut self, place: Place, node: Node, why: &str) {
        self.host(place).node = Some(node);
        if !self.stop_by_disk(place, why) {
            let words = format!("node {} stops: {why}", id(place));
            return self.fail(Broken::Storage, words);
        }
        let down_us = 10 * MS + self.random.below(SECOND);
        self.crash(place, down_us, true);
    }

    #[inline]
    fn take_in(&mut self, node: &mut Node, place: Place, arrival: Arrival) {
        match arrival {
            Arrival::Frame { from, buffer } => {
                let read = node.peer_frame(id(from), self.buffers.get(buffer));
                self.buffers.release(buffer);
                if let Err(malformed) = read {
                    let (from, to) = (id(from), id(place));
                    let words = format!("node {to} cannot read what node {from} said: {malformed:?}");
                    self.fail(Broken::Language, words);
                }
            }
            Arrival::Link { peer, generation } => {
                let known = &mut self.host(place).links[usize::from(peer)];
                // As the server does: a new link in the place of an old one ends the old one first.
                if std::mem::replace(known, generation).is_some() {
                    node.peer_link(id(peer), false);
                }
                if generation.is_some() {
                    node.peer_link(id(peer), true);
                }
                let state = if generation.is_some() { "up" } else { "down" };
                let (own, peer) = (id(place), id(peer));
                self.trace.tell(self.now, format_args!("node {own} finds the link to node {peer} {state}"));
            }
            Arrival::Urgent { peer, generation, up } => {
                if self.host(place).links[usize::from(peer)] == Some(generation) {
                    node.peer_urgent_link(id(peer), up);
                }
            }
            Arrival::Hello { client, connection } => {
                let kind = ClientKind::Resp {
                    address: format!("127.0.0.1:{}", 50_000 + u32::from(client)),
                    local_address: format!("127.0.0.1:{}", 7000 + id(place)),
                    fd: i32::from(client),
                };
                match node.connect(kind) {
                    Some(id) => self.host(place).sessions.push(Session { client, connection, id, owed: 0 }),
                    None => self.fail(Broken::Liveness, "a node has no room for a client".into()),
                }
            }
            Arrival::Request { client, connection, operation } => {
                if let Some(doom) = &mut self.host(place).doom {
                    doom.has_request = true;
                }
                match self.session(place, client, connection) {
                    Some(session) => self.take_request(node, place, session, operation),
                    // The process that it was sent to is another one.
                    None => self.tell_closed(client, connection, self.now),
                }
            }
            Arrival::Continue { client, connection } => {
                if let Some(session) = self.session(place, client, connection) {
                    self.go_on_talking(node, place, session);
                }
            }
            Arrival::Order { index } => self.put_order(node, place, index),
            Arrival::Goodbye { client, connection } => {
                if let Some(session) = self.session(place, client, connection) {
                    node.disconnect(session);
                    self.host(place).forget_session(session);
                }
            }
        }
    }

    fn session(&self, place: Place, client: u8, connection: u32) -> Option<ClientId> {
        let mut sessions = self.hosts[usize::from(place)].sessions.iter();
        let found = sessions.find(|session| (session.client, session.connection) == (client, connection));
        found.map(|session| session.id)
    }

    /// A request is passed on at once, unless the client is in the middle of a transaction, or begins one.
    fn take_request(&mut self, node: &mut Node, place: Place, id: ClientId, operation: Operation) {
        let host = self.host(place);
        match host.talks.iter_mut().find(|(session, _)| *session == id) {
            Some((_, talk)) => talk.later.push_back(operation),
            None if operation.kind == Kind::Transact => {
                host.talks.push((id, Talk { current: None, later: [operation].into() }));
            }
            None => return self.put_single(node, place, id, &operation),
        }
        self.go_on_talking(node, place, id);
    }

    fn put_single(&mut self, node: &mut Node, place: Place, id: ClientId, operation: &Operation) {
        if let Some(session) = self.host(place).sessions.iter_mut().find(|session| session.id == id) {
            session.owed += 1;
        }
        self.put_request(node, id, operation);
    }

    /// Asks what is to be asked next. A transaction begins when nothing that was asked before is without its answer.
    fn go_on_talking(&mut self, node: &mut Node, place: Place, id: ClientId) {
        let talks = &mut self.host(place).talks;
        let Some(index) = talks.iter().position(|(session, _)| *session == id) else { return };
        let (_, mut talk) = talks.swap_remove(index);
        while talk.current.is_none()
            && let Some(operation) = talk.later.front().copied()
        {
            if operation.kind != Kind::Transact {
                self.put_single(node, place, id, &operation);
            } else if self.owes(place, id) {
                break;
            } else {
                talk.current = Some(Conversation::new(operation));
            }
            talk.later.pop_front();
        }
        if let Some(conversation) = &mut talk.current {
            let space = &self.scenario.spaces[usize::from(conversation.operation().key.space)];
            for request in conversation.take_requests(&space.keyspace.prefix) {
                node.request(id, request.as_arguments());
            }
        }
        if talk.current.is_some() || !talk.later.is_empty() {
            self.host(place).talks.push((id, talk));
        }
    }

    /// Whether a single request of a client is without its answer.
    fn owes(&self, place: Place, id: ClientId) -> bool {
        self.hosts[usize::from(place)].sessions.iter().any(|session| session.id == id && session.owed > 0)
    }

    /// An answer to a client: what it is told, if it is told something now. `None`: it is no answer.
    fn take_answer(&mut self, place: Place, session: Session, rest: &mut &[u8]) -> Option<Option<Reply>> {
        let (now, Session { client, connection, id, .. }) = (self.now, session);
        let host = self.host(place);
        let owed = host.sessions.iter_mut().find(|other| other.id == id).map(|session| &mut session.owed);
        if let Some(owed) = owed.filter(|owed| **owed > 0) {
            *owed -= 1;
            if *owed == 0 && host.talks.iter().any(|(session, _)| *session == id) {
                host.arrive(now, Arrival::Continue { client, connection });
            }
            return Reply::take(rest).map(Some);
        }
        let talk = host.talks.iter_mut().find(|(session, _)| *session == id);
        let Some((_, Talk { current: current @ Some(_), .. })) = talk else {
            return Reply::take(rest).map(Some);
        };
        let told = match current.as_mut()?.take(rest)? {
            NextStep::Wait => return Some(None),
            NextStep::Ask => None,
            NextStep::End(reply) => {
                *current = None;
                Some(reply)
            }
        };
        host.arrive(now, Arrival::Continue { client, connection });
        Some(told)
    }

    fn put_request(&mut self, node: &mut Node, session: ClientId, operation: &Operation) {
        let prefix = &self.scenario.spaces[usize::from(operation.key.space)].keyspace.prefix;
        operation.request(prefix, &mut self.arguments);
        node.request(session, self.arguments.as_arguments());
    }

    /// Puts what a turn has for its peers on its way. Of a turn within which the node dies, only some get theirs.
    #[inline]
    fn send_frames(&mut self, node: &mut Node, place: Place, leaves_at: u64, peers: Mask) {
        for to in 0..self.scenario.nodes {
            if to == place || !knows(node, to) {
                continue;
            }
            let bytes = std::mem::take(node.peer_output(id(to)));
            let urgent = std::mem::take(node.peer_urgent_output(id(to)));
            // What the node knows may be older than the connection.
            let generation = self.hosts[usize::from(place)].links[usize::from(to)];
            let stands = generation.is_some() && *self.network.end(place, to) == generation;
            let generation = generation.filter(|_| stands && has(peers, to));
            for (bytes, is_urgent) in [(&bytes, false), (&urgent, true)] {
                let mut rest = if generation.is_some() { bytes.as_slice() } else { &[] };
                while !rest.is_empty() {
                    let Ok(Next::Frame { payload, consumed }) =
                        frame::next(rest, node.peer_payload_bytes_max())
                    else {
                        let words = format!("node {} sends no whole frame", id(place));
                        return self.fail(Broken::Language, words);
                    };
                    let way = (place, to, is_urgent);
                    self.send_frame(leaves_at, way, generation.unwrap_or_default(), payload);
                    rest = &rest[consumed..];
                }
            }
            for (mut bytes, output) in
                [(bytes, Node::peer_output as Output), (urgent, Node::peer_urgent_output)]
            {
                bytes.clear();
                *output(node, id(to)) = bytes;
            }
        }
    }

    #[inline]
    fn send_frame(
        &mut self,
        leaves_at: u64,
        (from, to, is_urgent): (Place, Place, bool),
        generation: u32,
        payload: &[u8],
    ) {
        self.frames += 1;
        if self.frames == FRAMES_MAX {
            self.queue.push(self.now, Event::Progress);
        }
        self.trace.note(leaves_at << 8 | u64::from(from) << 4 | u64::from(to));
        self.trace.note(kv::command::digest_of(payload));
        let keeps_order = !message::stands_for_itself(payload);
        let buffer = self.buffers.put(payload);
        let frame = Outgoing { from, to, generation, buffer, keeps_order, is_urgent };
        let sent = self.network.send(leaves_at, frame, &mut self.buffers, &mut self.queue, &mut self.counts);
        if self.trace.is_told() {
            let what = message::describe(payload, &self.scenario.spaces, &self.map);
            let lost = if sent { "" } else { "  LOST" };
            self.trace.tell(self.now, format_args!("  {}->{} {what}{lost}", id(from), id(to)));
        }
    }

    /// Puts replies on their way to clients.
    fn send_replies(&mut self, node: &mut Node, place: Place, leaves_at: u64, clients: bool) {
        let mut ready = std::mem::take(&mut self.ready);
        node.ready_clients(&mut ready);
        for id in ready.drain(..) {
            let sessions = &self.hosts[usize::from(place)].sessions;
            let Some(session) = sessions.iter().find(|session| session.id == id).copied() else { continue };
            let Some(output) = node.output(id) else {
                self.host(place).forget_session(id);
                self.tell_closed(session.client, session.connection, leaves_at);
                continue;
            };
            let mut rest = output.bytes.as_slice();
            while clients && !rest.is_empty() {
                if self.trace.is_told() && rest[0] == b'-' {
                    let line = rest.split(|byte| *byte == b'\r').next().unwrap_or_default();
                    let (text, node) = (String::from_utf8_lossy(line), crate::trace::id(place));
                    self.trace
                        .tell(self.now, format_args!("node {node} to client {}: {text}", session.client));
                }
                let Some(told) = self.take_answer(place, session, &mut rest) else {
                    let words = format!("node {} answers what is no reply", crate::trace::id(place));
                    return self.fail(Broken::Language, words);
                };
                let Some(reply) = told else { continue };
                if session.client == OPERATOR {
                    self.order_answered(place, id, session.connection, reply);
                    continue;
                }
                self.send_reply(session, leaves_at, reply);
            }
            output.bytes.clear();
            if session.client == OPERATOR {
                node.disconnect(id);
            }
        }
        self.ready = ready;
    }

    fn send_reply(&mut self, Session { client, connection, .. }: Session, leaves_at: u64, reply: Reply) {
        let latency_us = self.client_latency(client);
        let to = &mut self.clients[usize::from(client)];
        to.downstream_until = to.downstream_until.max(leaves_at + latency_us);
        to.downstream.push_back((connection, reply));
        self.queue.push(to.downstream_until, Event::Downstream { client });
    }
}

/// Whether a node has heard of another one.
pub(super) fn knows(node: &Node, other: Place) -> bool {
    node.configuration().nodes.iter().any(|address| address.id == id(other))
}

/// Whether a process dies within this turn, which is over but for what it sends.
fn is_doomed(host: &mut Host, node: &mut Node, nodes: Place) -> bool {
    let Some(doom) = host.doom.filter(|doom| doom.within.writes) else { return false };
    if doom.within.after_request.is_some() && !(doom.has_request && sends(host, node, nodes)) {
        return false;
    }
    let Some(Doom { within: Within { after_request: Some(turns), .. }, .. }) = &mut host.doom else {
        return true;
    };
    let is_it = *turns == 0;
    *turns = turns.saturating_sub(1);
    is_it
}

/// Whether a node has something for its peers.
fn sends(host: &Host, node: &mut Node, nodes: Place) -> bool {
    (0..nodes).any(|to| to != host.place && knows(node, to) && !node.peer_output(id(to)).is_empty())
}
