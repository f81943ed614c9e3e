//! One node: its clients' sessions, its groups, and the links between them.

use crate::command::statistics::CommandStatistics;
use crate::configuration::Configuration;
use crate::gather::Gather;
use crate::keyspace::{Keyspace, Router, arrange};
use crate::log::Line;
use crate::parameters::Parameters;
use crate::peers::Peer;
use crate::replica::Replica;
use crate::routing::Forwarded;
use crate::session::{ClientId, ClientKind, Output, Session};
use crate::slab::Slab;
use crate::usage::{Rate, Usage};
use kv::ReplyBuffer;
use protocol::{Effects, Input, NodeId, Now, Result as Outcome, Trace};
use std::time::Duration;
use wire::resp::request::{Limits, ProtocolError};

/// One keyspace's replicas.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) keyspace: Keyspace,
    pub(crate) members: Vec<NodeId>,
    /// This node's replica, if it has one.
    pub(crate) replica: Option<Replica>,
    next_tick_us: u64,
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
    pub(crate) router: Router,
    pub(crate) sessions: Slab<Session>,
    pub(crate) ready: Vec<ClientId>,
    pub(crate) peers: Vec<Peer>,
    pub(crate) forwards: Slab<Forwarded>,
    forwards_checked_us: u64,
    pub(crate) gathers: Slab<Gather>,
    pub(crate) effects: Effects,
    /// Bytes of key lists while a command is carried out.
    pub(crate) scratch: Vec<u8>,
    /// The reply of a command that the node answers itself.
    pub(crate) replies: ReplyBuffer,
    pub(crate) random: u64,
    pub(crate) sleep: Option<Duration>,
    pub(crate) log: Vec<Line>,
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
                    link: 0,
                    output: Vec::new(),
                    requests: Vec::new(),
                    outcomes: Vec::new(),
                    deferred: Vec::new(),
                    silent_since_us: None,
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
            let is_member = members.contains(&node.configuration.node);
            let replica = is_member.then(|| Replica::new(&keyspace, index, &node.configuration));
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
            self.step(index, Input::Configure(&configuration));
        }
    }

    /// Gives a group's replica here an input that is no message, and carries out what follows from it.
    #[inline]
    pub(crate) fn step(&mut self, group: usize, input: Input<'_, &[u8]>) {
        if let Some(replica) = &mut self.groups[group].replica {
            let stepped = replica.step(self.now, input, &mut self.effects);
            debug_assert_eq!(stepped, Ok(()), "only a message can be malformed");
            self.settle(group);
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
            if self.groups[index].next_tick_us <= now.monotonic_us {
                self.step(index, Input::Tick);
                let group = &mut self.groups[index];
                group.next_tick_us =
                    group.replica.as_ref().map_or(u64::MAX, |replica| replica.wakeup_us(now));
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
            self.step(index, Input::Flush);
            let group = &mut self.groups[index];
            if let Some(replica) = &group.replica {
                group.next_tick_us = group.next_tick_us.min(replica.wakeup_us(self.now));
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

    pub(crate) fn list(&mut self, client: ClientId) {
        if let Some(session) = self.sessions.get_mut(client)
            && !std::mem::replace(&mut session.listed, true)
        {
            self.ready.push(client);
        }
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

    pub(crate) fn tell(&mut self, group: usize, event: Trace) {
        if let Trace::EpochPassed { epoch } = event {
            self.epoch_wanted = self.epoch_wanted.max(Some(epoch.saturating_add(1)));
        }
        if let Some(line) = crate::log::describe(self.groups[group].keyspace.name(), &event) {
            self.log.push(line);
        }
    }
}

/// The longest whole request: a few values of the greatest length.
pub(crate) fn request_bytes_max(value_bytes_max: usize) -> usize {
    const SMALLEST: usize = 64 << 20;
    (2 * value_bytes_max).max(SMALLEST) + (1 << 20)
}
