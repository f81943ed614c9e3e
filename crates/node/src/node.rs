//! One node: its clients' sessions, its groups, and the links between them.

use crate::command::statistics::CommandStatistics;
use crate::configuration::Configuration;
use crate::envelope::{Envelope, ForwardedOutcome, ForwardedRequest, NO_DEADLINE_MS};
use crate::gather::{Combine, Gather};
use crate::keyspace::{Keyspace, Router, arrange};
use crate::log::{Level, Line};
use crate::parameters::Parameters;
use crate::session::{ClientId, ClientKind, Output, Session};
use crate::slab::{Handle, Slab};
use crate::usage::{Rate, Usage};
use kv::codec::{Malformed, Reader};
use kv::{Command, Reply, ReplyBuffer, Version};
use protocol::leader_follower::{self, Message, Timing};
use protocol::{Effects, Input, NodeId, Now, Replica, Request, Result as Outcome, Ticket, Trace};
use std::time::Duration;
use wire::frame;
use wire::resp::Arguments;
use wire::resp::request::{Limits, ProtocolError};

/// Whose request a ticket names: told by the two highest bits of its client.
enum Origin {
    /// A client of this node.
    Session(ClientId),
    /// A client of that node.
    Peer(NodeId),
    /// A part of a request to several groups.
    Part(Handle),
}

const ORIGIN_PEER: u64 = 1 << 62;
const ORIGIN_PART: u64 = 2 << 62;

impl Origin {
    #[inline]
    fn of(ticket: Ticket) -> Origin {
        match ticket.client & (3 << 62) {
            ORIGIN_PEER => Origin::Peer(ticket.client as NodeId),
            ORIGIN_PART => Origin::Part(Handle::from_bits(ticket.client & !(3 << 62))),
            _ => Origin::Session(Handle::from_bits(ticket.client)),
        }
    }
}

/// A request on its way to a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) ticket: Ticket,
    /// Earlier requests of the same client have no outcome yet.
    pub(crate) follows: bool,
    /// The newest write of the client in this group that was acknowledged.
    pub(crate) seen: Version,
    pub(crate) deadline_us: u64,
}

/// One keyspace's replicas.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) keyspace: Keyspace,
    pub(crate) members: Vec<NodeId>,
    /// This node's replica, if it has one.
    pub(crate) replica: Option<leader_follower::Replica>,
    next_tick_us: u64,
}

/// Another node, as this one sees it.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) up: bool,
    /// Frames to be written.
    output: Vec<u8>,
    /// This turn's forwarded requests, and outcomes of its requests.
    requests: Vec<u8>,
    outcomes: Vec<u8>,
    /// Its requests that are put off: too many replies to earlier ones have not left yet.
    deferred: Vec<u8>,
}

/// A client's request that was passed on to another node.
#[derive(Debug)]
struct Forwarded {
    ticket: Ticket,
    group: usize,
    to: NodeId,
    is_write: bool,
    deadline_us: u64,
}

/// What the node has counted since its start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections: u64,
    pub(crate) rejected_connections: u64,
    pub(crate) commands: u64,
    pub(crate) forwarded: u64,
    pub(crate) errors: u64,
    pub(crate) output_overflows: u64,
}

/// One node, without its sockets: requests and peers' frames go in, replies and frames come out.
pub struct Node {
    pub(crate) configuration: Configuration,
    pub(crate) parameters: Parameters,
    pub(crate) statistics: CommandStatistics,
    pub(crate) counters: Counters,
    pub(crate) usage: Usage,
    pub(crate) rate: Rate,
    pub(crate) now: Now,
    pub(crate) started: Now,
    pub(crate) groups: Vec<Group>,
    router: Router,
    pub(crate) sessions: Slab<Session>,
    ready: Vec<ClientId>,
    peers: Vec<Peer>,
    forwards: Slab<Forwarded>,
    forwards_checked_us: u64,
    gathers: Slab<Gather>,
    effects: Effects,
    /// Bytes of key lists while a command is carried out.
    pub(crate) scratch: Vec<u8>,
    /// The reply of a command that the node answers itself.
    pub(crate) replies: ReplyBuffer,
    random: u64,
    pub(crate) sleep: Option<Duration>,
    log: Vec<Line>,
    epoch_wanted: Option<u64>,
}

impl Node {
    /// A node that has just started, with nothing in memory.
    ///
    /// # Errors
    /// A sentence that says which setting cannot be kept.
    pub fn new(mut configuration: Configuration, now: Now) -> Result<Node, String> {
        configuration.nodes.sort_by_key(|node| node.id);
        let count = configuration.nodes.len();
        let numbered = configuration.nodes.iter().zip(1..).all(|(node, id)| node.id == id);
        if !numbered || configuration.node == 0 || configuration.node as usize > count {
            let own = configuration.node;
            return Err(format!("nodes must be numbered 1 to {count}, and this one ({own}) be among them"));
        }
        configuration.keyspaces = arrange(std::mem::take(&mut configuration.keyspaces), count)?;
        let router = Router::new(&configuration.keyspaces);
        let mut node = Node {
            parameters: Parameters::new(&configuration),
            statistics: CommandStatistics::new(),
            counters: Counters::default(),
            usage: Usage::default(),
            rate: Rate::default(),
            now,
            started: now,
            groups: Vec::new(),
            router,
            sessions: Slab::default(),
            ready: Vec::new(),
            peers: (0..count)
                .map(|_| Peer {
                    up: false,
                    output: Vec::new(),
                    requests: Vec::new(),
                    outcomes: Vec::new(),
                    deferred: Vec::new(),
                })
                .collect(),
            forwards: Slab::default(),
            forwards_checked_us: 0,
            gathers: Slab::default(),
            effects: Effects::default(),
            scratch: Vec::new(),
            replies: ReplyBuffer::new(),
            random: configuration.seed,
            sleep: None,
            log: Vec::new(),
            epoch_wanted: None,
            configuration,
        };
        for (index, keyspace) in node.configuration.keyspaces.clone().into_iter().enumerate() {
            let members = keyspace.members(count);
            let replica = members.contains(&node.configuration.node).then_some(()).map(|()| {
                keyspace.options().map(|options| {
                    let seed = node.configuration.seed.wrapping_add(index as u64);
                    leader_follower::Replica::new(node.configuration.node, options, Timing::default(), seed)
                })
            });
            node.groups.push(Group { keyspace, members, replica: replica.transpose()?, next_tick_us: 0 });
        }
        node.configure_groups(|_| true);
        Ok(node)
    }

    /// Tells groups who leads them. Until a control group does, the keyspace's configured node leads; what
    /// epoch a leader of another node is in, this node learns from it.
    fn configure_groups(&mut self, concerns: impl Fn(&Keyspace) -> bool) {
        for index in 0..self.groups.len() {
            let group = &mut self.groups[index];
            if !concerns(&group.keyspace) {
                continue;
            }
            let leads = group.keyspace.leader == self.configuration.node;
            let configuration = protocol::Configuration {
                epoch: if leads { self.configuration.epoch } else { 0 },
                leader: group.keyspace.leader,
                members: group.members.clone(),
                in_sync: group.members.clone(),
            };
            if let Some(replica) = &mut group.replica {
                replica.step(self.now, Input::Configure(&configuration), &mut self.effects);
                self.settle(index);
            }
        }
    }

    /// What it was told at its start, with keyspaces in the order of their groups.
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// The values of `CONFIG GET`.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    // Turns.

    /// Begins a turn: everything until [`Node::end_turn`] happens at `now`.
    pub fn begin_turn(&mut self, now: Now) {
        self.now = now;
        for index in 0..self.groups.len() {
            let group = &mut self.groups[index];
            if group.next_tick_us <= now.monotonic_us
                && let Some(replica) = &mut group.replica
            {
                replica.step(now, Input::Tick, &mut self.effects);
                group.next_tick_us = replica.wakeup_us(now);
                self.settle(index);
            }
        }
        for index in 0..self.peers.len() {
            if self.peers[index].has_due_requests() {
                let deferred = std::mem::take(&mut self.peers[index].deferred);
                let outcome = self.forwarded_requests(index as NodeId + 1, &deferred);
                debug_assert_eq!(outcome, Ok(()), "they were read whole when they were put off");
            }
        }
        const FORWARDS_CHECK_MS: u64 = 100;
        if now.ms_since(self.forwards_checked_us) >= FORWARDS_CHECK_MS {
            self.forwards_checked_us = now.monotonic_us;
            self.rate.update(now, self.counters.commands);
            self.end_overdue_forwards();
        }
    }

    /// Ends a turn: what was gathered for each peer leaves as one batch.
    pub fn end_turn(&mut self) {
        for index in 0..self.groups.len() {
            let group = &mut self.groups[index];
            if let Some(replica) = &mut group.replica {
                replica.step(self.now, Input::Flush, &mut self.effects);
                group.next_tick_us = group.next_tick_us.min(replica.wakeup_us(self.now));
                self.settle(index);
            }
        }
        self.peers.iter_mut().for_each(Peer::flush);
    }

    /// When, on the monotonic clock, the next turn must begin even if nothing happens.
    pub fn next_wakeup_us(&self) -> u64 {
        if self.peers.iter().any(Peer::has_due_requests) {
            return self.now.monotonic_us;
        }
        const IDLE_US: u64 = 100_000;
        let idle = self.now.monotonic_us + IDLE_US;
        self.groups.iter().map(|group| group.next_tick_us).fold(idle, u64::min)
    }

    // Clients.

    /// A client has connected. `None`: there are too many already.
    pub fn connect(&mut self, kind: ClientKind) -> Option<ClientId> {
        if self.sessions.len() >= self.parameters.connections_max() {
            self.counters.rejected_connections += 1;
            return None;
        }
        self.counters.connections += u64::from(kind != ClientKind::Internal);
        let authenticated = kind == ClientKind::Internal || self.configuration.password.is_none();
        let now_us = self.now.monotonic_us;
        Some(self.sessions.insert(|id| Session::new(id, kind, authenticated, now_us)))
    }

    /// A client is gone. What it asked may still happen; nobody is told.
    pub fn disconnect(&mut self, client: ClientId) {
        self.sessions.remove(client);
    }

    /// What this client may send.
    pub fn request_limits(&self, client: ClientId) -> Limits {
        let value_bytes_max = self.parameters.value_bytes_max();
        Limits {
            bulk_bytes_max: value_bytes_max,
            request_bytes_max: request_bytes_max(value_bytes_max),
            authenticated: self.sessions.get(client).is_some_and(|session| session.authenticated),
            ..Limits::default()
        }
    }

    /// False when the client has too many requests without an outcome, or too many replies unread: its input
    /// is to be left alone until it is among the ready clients again, or has taken its output.
    pub fn wants_input(&self, client: ClientId) -> bool {
        self.sessions.get(client).is_some_and(Session::wants_input)
    }

    /// The client sent what is not a request: it is told so behind its earlier replies, and closed.
    pub fn protocol_error(&mut self, client: ClientId, error: &ProtocolError) {
        let text = error.to_string();
        self.answer(client, |replies| replies.error(&text));
        self.close_after_replies(client);
    }

    /// Moves the clients that have new output, or whose session has ended, into `clients`.
    pub fn ready_clients(&mut self, clients: &mut Vec<ClientId>) {
        for client in &self.ready {
            if let Some(session) = self.sessions.get_mut(*client) {
                session.listed = false;
            }
        }
        clients.append(&mut self.ready);
    }

    /// What is to be written to a client. `None`: its session has ended, the connection is to be closed.
    pub fn output(&mut self, client: ClientId) -> Option<&mut Output> {
        self.sessions.get_mut(client).map(|session| &mut session.output)
    }

    /// Answers a request of a client at once, in its order.
    #[inline]
    pub(crate) fn answer(&mut self, client: ClientId, write: impl FnOnce(&mut ReplyBuffer)) {
        self.replies.clear();
        write(&mut self.replies);
        let Some(session) = self.sessions.get_mut(client) else { return };
        let ticket = session.begin(false);
        let replies = std::mem::take(&mut self.replies);
        self.complete(ticket, 0, Outcome::Done { version: 0, offset: 0 }, replies.as_bytes());
        self.replies = replies;
    }

    /// Closes a client's connection once its replies are written.
    pub fn close_after_replies(&mut self, client: ClientId) {
        if let Some(session) = self.sessions.get_mut(client) {
            session.close_after_replies();
            self.list(client);
        }
    }

    /// Ends a client's session at once.
    pub(crate) fn kill(&mut self, client: ClientId) {
        self.sessions.remove(client);
        self.ready.push(client);
    }

    fn list(&mut self, client: ClientId) {
        if let Some(session) = self.sessions.get_mut(client)
            && !std::mem::replace(&mut session.listed, true)
        {
            self.ready.push(client);
        }
    }

    // Requests on their way to groups.

    /// A number that nobody can guess without the seed; the same in every run with the same seed.
    pub(crate) fn draw(&mut self) -> u64 {
        // SplitMix64 (Steele, Lea and Flood 2014).
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The group of all keys of a command: `None` when they are of several.
    #[inline]
    pub(crate) fn group_of(&self, command: &Command<'_>) -> Option<usize> {
        if self.groups.len() == 1 {
            return Some(0);
        }
        let mut found: Option<usize> = None;
        let mut agree = true;
        command.for_each_key(|key| {
            let group = self.router.group_of(key);
            agree &= *found.get_or_insert(group) == group;
        });
        found.filter(|_| agree)
    }

    /// Fetches from memory what a request will need, if its first argument is a key here. Called for several
    /// requests before the first of them is carried out, it waits for all of them at once.
    #[inline]
    pub fn warm(&self, arguments: Arguments<'_>) {
        let Some(key) = arguments.get(1) else { return };
        if let Some(replica) = &self.groups[self.router.group_of(key)].replica {
            std::hint::black_box(replica.table().warm(&Command::Get { key }));
        }
    }

    /// Asks one group for a client.
    #[inline]
    pub(crate) fn ask(&mut self, client: ClientId, group: usize, wants_version: bool, request: Request<'_>) {
        let timeout_us = self.configuration.command_timeout_ms * 1000;
        self.ask_until(client, group, wants_version, request, self.now.monotonic_us + timeout_us);
    }

    /// Asks one group for a client, which must have the outcome by then.
    #[inline]
    pub(crate) fn ask_until(
        &mut self,
        client: ClientId,
        group: usize,
        wants_version: bool,
        request: Request<'_>,
        deadline_us: u64,
    ) {
        let Some(session) = self.sessions.get_mut(client) else { return };
        let follows = session.is_waiting();
        let seen = session.seen(group);
        if matches!(request, Request::Command(command) if command.is_write()) {
            session.written |= 1 << group;
        }
        let ticket = session.begin(wants_version);
        self.submit(group, Asked { ticket, follows, seen, deadline_us }, request);
    }

    /// Asks several groups for a client, each what `request` says, and answers with one reply.
    pub(crate) fn ask_all<'r>(
        &mut self,
        client: ClientId,
        groups: &[usize],
        combine: Combine,
        deadline_us: u64,
        request: impl Fn(&Session, usize) -> Request<'r>,
    ) {
        let Some(session) = self.sessions.get_mut(client) else { return };
        let follows = session.is_waiting();
        let asked: Vec<(usize, Request<'r>, Version)> =
            groups.iter().map(|group| (*group, request(session, *group), session.seen(*group))).collect();
        for (group, request, _) in &asked {
            if matches!(request, Request::Command(command) if command.is_write()) {
                session.written |= 1 << group;
            }
        }
        let ticket = session.begin(false);
        let gather = self.gathers.insert(|_| Gather::new(ticket, combine, groups.len()));
        for (part, (group, request, seen)) in asked.into_iter().enumerate() {
            let ticket = Ticket { client: ORIGIN_PART | gather.to_bits(), sequence: part as u64 };
            self.submit(group, Asked { ticket, follows, seen, deadline_us }, request);
        }
    }

    /// Hands a request to this node's replica of the group, or to the node that leads it.
    #[inline]
    fn submit(&mut self, group: usize, asked: Asked, request: Request<'_>) {
        let target = &mut self.groups[group];
        let Some(replica) = &mut target.replica else {
            let leader = target.keyspace.leader;
            return self.forward(group, leader, asked, request);
        };
        let Asked { ticket, follows, seen, deadline_us } = asked;
        let input = Input::Request { ticket, request, follows, seen, deadline_us };
        replica.step(self.now, input, &mut self.effects);
        // A redirect is always the outcome of what was just asked: what is accepted is never redirected later.
        let redirect = match self.effects.outcomes.last() {
            Some(outcome) => match outcome.result {
                Outcome::Redirect { to } if outcome.ticket == ticket => Some(to),
                _ => None,
            },
            None => None,
        };
        if let Some(to) = redirect {
            self.effects.outcomes.pop();
            self.forward(group, to, asked, request);
        }
        self.settle(group);
    }

    fn forward(&mut self, group: usize, to: NodeId, asked: Asked, request: Request<'_>) {
        let own = self.configuration.node;
        let name = self.groups[group].keyspace.name();
        if matches!(Origin::of(asked.ticket), Origin::Peer(_)) {
            // Passing on what was passed on could go round in circles.
            let error =
                format!("NOLEADER node {own} does not lead keyspace '{name}'; nothing was done, try again");
            return self.complete_with_error(asked.ticket, group, Outcome::Refused, &error);
        }
        if !self.peers.get(to.wrapping_sub(1) as usize).is_some_and(|peer| peer.up) || to == own {
            let error = format!(
                "NOLEADER node {to}, which leads keyspace '{name}', cannot be reached from node {own}; nothing was done"
            );
            return self.complete_with_error(asked.ticket, group, Outcome::Refused, &error);
        }
        self.counters.forwarded += 1;
        let Asked { ticket, follows, seen, deadline_us } = asked;
        let is_write = matches!(request, Request::Command(command) if command.is_write());
        let entry = self.forwards.insert(|_| Forwarded { ticket, group, to, is_write, deadline_us });
        let remaining_ms = match deadline_us {
            u64::MAX => NO_DEADLINE_MS,
            _ => (deadline_us.saturating_sub(self.now.monotonic_us) / 1000).min(NO_DEADLINE_MS as u64 - 1)
                as u32,
        };
        let peer = &mut self.peers[to as usize - 1];
        let forwarded = ForwardedRequest {
            id: entry.to_bits(),
            group: group as u16,
            follows,
            seen,
            remaining_ms,
            request,
        };
        forwarded.encode(&mut peer.requests);
        peer.flush_if_large();
    }

    /// Ends forwarded requests whose answer is overdue: the node they went to would have answered in time.
    fn end_overdue_forwards(&mut self) {
        const GRACE_US: u64 = 500_000;
        let now_us = self.now.monotonic_us;
        let is_overdue = |entry: &Forwarded| entry.deadline_us.saturating_add(GRACE_US) <= now_us;
        self.end_forwards(is_overdue, "did not answer in time");
    }

    fn end_forwards(&mut self, ends: impl Fn(&Forwarded) -> bool, what: &str) {
        let ended: Vec<Handle> =
            self.forwards.iter().filter(|(_, entry)| ends(entry)).map(|(handle, _)| handle).collect();
        for handle in ended {
            let Some(Forwarded { ticket, group, to, is_write, .. }) = self.forwards.remove(handle) else {
                continue;
            };
            if is_write {
                let error =
                    format!("UNKNOWN node {to} {what}; the write may have taken effect or may still do so");
                self.complete_with_error(ticket, group, Outcome::Unknown, &error);
            } else {
                let error = format!("NOLEADER node {to} {what}; nothing was changed");
                self.complete_with_error(ticket, group, Outcome::Refused, &error);
            }
        }
    }

    // Outcomes on their way back.

    /// Carries out what a replica's step has left in the effects.
    #[inline]
    fn settle(&mut self, group: usize) {
        let mut effects = std::mem::take(&mut self.effects);
        for outcome in &effects.outcomes {
            let reply = &effects.replies.as_bytes()[outcome.reply.clone()];
            self.complete(outcome.ticket, group, outcome.result, reply);
        }
        for message in &effects.messages {
            let peer = &mut self.peers[message.to as usize - 1];
            if peer.up {
                let envelope =
                    Envelope::Group { group: group as u16, message: &effects.bytes[message.bytes.clone()] };
                frame::append(&mut peer.output, |out| envelope.encode(out));
            }
        }
        for event in effects.trace.drain(..) {
            self.tell(group, event);
        }
        effects.clear();
        self.effects = effects;
    }

    #[inline]
    fn complete(&mut self, ticket: Ticket, group: usize, result: Outcome, reply: &[u8]) {
        match Origin::of(ticket) {
            Origin::Session(client) => {
                let Some(session) = self.sessions.get_mut(client) else { return };
                if let Reply::Error(error) = Reply::first(reply) {
                    self.counters.errors += 1;
                    self.statistics.error(error);
                }
                let mut known = None;
                if let Outcome::Done { version, offset } = result {
                    known = Some(version);
                    if offset > 0 {
                        session.saw(group, self.groups.len(), offset);
                    }
                }
                let (command, begun_us) = session.complete(ticket.sequence, known, reply);
                if let Some(number) = command {
                    self.statistics.took(number, self.now.monotonic_us.saturating_sub(begun_us));
                }
                if session.output_bytes() > self.configuration.output_bytes_max {
                    self.counters.output_overflows += 1;
                    let text = format!("client {} does not read its replies; it is closed", client.to_bits());
                    self.log.push(Line { level: Level::Warning, text });
                    return self.kill(client);
                }
                if !std::mem::replace(&mut session.listed, true) {
                    self.ready.push(client);
                }
            }
            Origin::Peer(from) => {
                let peer = &mut self.peers[from as usize - 1];
                if peer.up {
                    ForwardedOutcome { id: ticket.sequence, result, reply }.encode(&mut peer.outcomes);
                    peer.flush_if_large();
                }
            }
            Origin::Part(handle) => {
                let Some(gather) = self.gathers.get_mut(handle) else { return };
                if let (Outcome::Done { offset, .. }, Origin::Session(client)) =
                    (result, Origin::of(gather.ticket))
                    && offset > 0
                    && let Some(session) = self.sessions.get_mut(client)
                {
                    session.saw(group, self.groups.len(), offset);
                }
                if gather.take(ticket.sequence as usize, reply)
                    && let Some(gather) = self.gathers.remove(handle)
                {
                    let mut replies = ReplyBuffer::new();
                    gather.combine(&mut replies);
                    let done = Outcome::Done { version: 0, offset: 0 };
                    self.complete(gather.ticket, 0, done, replies.as_bytes());
                }
            }
        }
    }

    fn complete_with_error(&mut self, ticket: Ticket, group: usize, result: Outcome, error: &str) {
        let mut replies = ReplyBuffer::new();
        replies.error(error);
        self.complete(ticket, group, result, replies.as_bytes());
    }

    // Peers.

    /// The link to a peer came up or broke. What was on its way over a broken one is lost, and forgotten.
    pub fn peer_link(&mut self, id: NodeId, up: bool) {
        let Some(peer) = self.peers.get_mut(id.wrapping_sub(1) as usize) else { return };
        let was_up = std::mem::replace(&mut peer.up, up);
        peer.output.clear();
        peer.requests.clear();
        peer.outcomes.clear();
        peer.deferred.clear();
        if was_up {
            self.end_forwards(|entry| entry.to == id, "was lost before it answered");
        }
        for index in 0..self.groups.len() {
            if let Some(replica) = &mut self.groups[index].replica {
                if was_up && up {
                    // A new link in the place of an old one that nobody saw break.
                    replica.step(self.now, Input::Link { peer: id, up: false }, &mut self.effects);
                }
                replica.step(self.now, Input::Link { peer: id, up }, &mut self.effects);
                self.settle(index);
            }
        }
    }

    /// True when the link to a peer is up.
    pub(crate) fn peer_is_up(&self, id: NodeId) -> bool {
        self.peers.get(id.wrapping_sub(1) as usize).is_some_and(|peer| peer.up)
    }

    /// A frame came from a peer.
    ///
    /// # Errors
    /// [`Malformed`] when the peer does not speak this node's language: the link is to be closed. What came
    /// before the malformed part has happened.
    pub fn peer_frame(&mut self, from: NodeId, payload: &[u8]) -> Result<(), Malformed> {
        match Envelope::decode(payload)? {
            Envelope::Group { group, message } => {
                let index = group as usize;
                let group = self.groups.get_mut(index).ok_or(Malformed("a group that is not known here"))?;
                let message = Message::decode(message)?;
                if let Some(replica) = &mut group.replica {
                    replica.step(self.now, Input::Message { from, message }, &mut self.effects);
                    self.settle(index);
                }
            }
            Envelope::Requests(items) => self.forwarded_requests(from, items)?,
            Envelope::Outcomes(items) => {
                let mut reader = Reader::new(items);
                while !reader.is_empty() {
                    let outcome = ForwardedOutcome::decode(&mut reader)?;
                    let handle = Handle::from_bits(outcome.id);
                    if self.forwards.get(handle).is_none_or(|entry| entry.to != from) {
                        continue; // Ended here already.
                    }
                    let Some(entry) = self.forwards.remove(handle) else { continue };
                    match outcome.result {
                        Outcome::Redirect { to } => {
                            let error = format!("NOLEADER node {to} leads now; nothing was done, try again");
                            self.complete_with_error(entry.ticket, entry.group, Outcome::Refused, &error);
                        }
                        result => self.complete(entry.ticket, entry.group, result, outcome.reply),
                    }
                }
            }
        }
        Ok(())
    }

    /// Carries out what a peer's clients ask, in order. A few bytes can ask for a large reply: when too many
    /// replies wait to leave, the rest waits for them, so that nobody can make this node hold any number.
    fn forwarded_requests(&mut self, from: NodeId, items: &[u8]) -> Result<(), Malformed> {
        let mut reader = Reader::new(items);
        while !reader.is_empty() {
            let rest = reader.rest();
            let asked = self.forwarded_request(&mut reader)?;
            let peer = &mut self.peers[from as usize - 1];
            if !peer.deferred.is_empty() || peer.owes_too_much() {
                while !reader.is_empty() {
                    self.forwarded_request(&mut reader)?;
                }
                self.peers[from as usize - 1].deferred.extend_from_slice(rest);
                return Ok(());
            }
            let deadline_us = match asked.remaining_ms {
                NO_DEADLINE_MS => u64::MAX,
                remaining_ms => self.now.monotonic_us + remaining_ms as u64 * 1000,
            };
            let ticket = Ticket { client: ORIGIN_PEER | from as u64, sequence: asked.id };
            let (follows, seen) = (asked.follows, asked.seen);
            self.submit(asked.group as usize, Asked { ticket, follows, seen, deadline_us }, asked.request);
        }
        Ok(())
    }

    fn forwarded_request<'a>(&self, reader: &mut Reader<'a>) -> Result<ForwardedRequest<'a>, Malformed> {
        let asked = ForwardedRequest::decode(reader)?;
        match self.groups.get(asked.group as usize) {
            Some(_) => Ok(asked),
            None => Err(Malformed("a group that is not known here")),
        }
    }

    /// Frames to be written to a peer. Whoever writes them takes them away.
    pub fn peer_output(&mut self, id: NodeId) -> &mut Vec<u8> {
        &mut self.peers[id as usize - 1].output
    }

    /// The longest payload that a peer sends: a request of the greatest length, a batch with one, or a reply.
    /// What this node lets its own clients send does not matter: the peer may have been told otherwise.
    pub fn peer_payload_bytes_max(&self) -> usize {
        request_bytes_max(kv::limits::VALUE_BYTES_MAX_CEILING).max(kv::limits::REPLY_BYTES_MAX) + (4 << 20)
    }

    // The rest of the world.

    /// Tells the node what its process uses, for `INFO`.
    pub fn set_usage(&mut self, usage: Usage) {
        self.usage = usage;
    }

    /// The time for which the worker is to sleep (`DEBUG SLEEP`).
    pub fn take_sleep(&mut self) -> Option<Duration> {
        self.sleep.take()
    }

    /// Moves what is to be logged into `lines`.
    pub fn take_log(&mut self, lines: &mut Vec<Line>) {
        lines.append(&mut self.log);
    }

    /// The least epoch that this node needs before it may lead: one that it has heard of has passed its own.
    pub fn epoch_wanted(&self) -> Option<u64> {
        self.epoch_wanted
    }

    /// Gives the node a new epoch, which must never have been used and never be used again.
    pub fn raise_epoch(&mut self, epoch: u64) {
        self.epoch_wanted = None;
        self.configuration.epoch = epoch;
        let own = self.configuration.node;
        self.configure_groups(|keyspace| keyspace.leader == own);
    }

    fn tell(&mut self, group: usize, event: Trace) {
        if let Trace::EpochPassed { epoch } = event {
            self.epoch_wanted = self.epoch_wanted.max(Some(epoch.saturating_add(1)));
        }
        if let Some(line) = crate::log::describe(self.groups[group].keyspace.name(), &event) {
            self.log.push(line);
        }
    }
}

impl Peer {
    /// Closes the envelopes of this turn.
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

    /// True when more bytes wait to be written to it than its requests may add to.
    fn owes_too_much(&self) -> bool {
        const OWED_BYTES_MAX: usize = 16 << 20;
        self.output.len() + self.outcomes.len() > OWED_BYTES_MAX
    }

    /// True when requests were put off that can go on now.
    fn has_due_requests(&self) -> bool {
        !self.deferred.is_empty() && !self.owes_too_much()
    }

    /// A turn is not bounded; an envelope is.
    #[inline]
    fn flush_if_large(&mut self) {
        const ENVELOPE_BYTES: usize = 1 << 20;
        if self.requests.len() + self.outcomes.len() >= ENVELOPE_BYTES {
            self.flush();
            self.requests.shrink_to(ENVELOPE_BYTES);
            self.outcomes.shrink_to(ENVELOPE_BYTES);
        }
    }
}

/// The longest whole request: a few values of the greatest length.
fn request_bytes_max(value_bytes_max: usize) -> usize {
    const SMALLEST: usize = 64 << 20;
    (2 * value_bytes_max).max(SMALLEST) + (1 << 20)
}
