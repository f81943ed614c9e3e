//! The door of a node: what its caller gives it, reports to it and asks of it, besides turns. A test or a simulator inspects
//! it here, too.

use super::Node;
use super::describe::{self, KeyspaceDescription};
use super::facts;
use super::figures;
use super::opening::{self, Opened};
use super::report::{self, Health, KeyspaceHealth};
use super::unsettled::{Bounds, Unsettled};
use crate::asking::{self, Asked};
use crate::channels::Channels;
use crate::clock::{self, Clock};
use crate::cluster::Cluster;
use crate::coding::Coding;
use crate::command::{
    self, ClientCommand, CommandError, Found, Handler, KeyspaceCommand, NodeCommand, ScriptCommand,
    TransactionCommand,
};
use crate::completing::Completing;
use crate::configuration::Configuration;
use crate::connections;
use crate::context::measuring::is_secret;
use crate::context::peers::peer_payload_bytes_max;
use crate::context::work::TURN_NS;
use crate::context::{memory, peers, room};
use crate::control::{CONTROL_GROUP, ClusterMap, GroupId};
use crate::envelope::{Envelope, ForwardedOutcome};
use crate::following::Following;
use crate::forwarding::Forwarding;
use crate::gather::Combine;
use crate::lock_list;
use crate::log::Line;
use crate::long::LongCommands;
use crate::notes;
use crate::operators;
use crate::output::Output;
use crate::parameters::request_bytes_max;
use crate::quarantine::Past;
use crate::requests::{self, Admitted, Route, WaitAsked};
use crate::session::{ClientId, ClientKind, Item, Session};
use crate::slab::Handle;
use crate::start_error::StartError;
use crate::transactions::{self, Answer, OfNode, Then};
use crate::usage::Usage;
use crate::values::Values;
use crate::waits::Waits;
use kv::codec::{Malformed, Reader};
use kv::{Command, Coordinator, ReplyBuffer, Version, WaiterId};
use protocol::{Input, NodeId, Now, Request};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use storage::{Disk, ValueStore};
use wire::resp::Arguments;
use wire::resp::request::{Limits, ProtocolError};

/// What the replica of a group takes in memory, where that is bounded.
#[derive(Clone, Copy, Debug)]
pub struct BoundedMemory {
    /// The group.
    pub group: GroupId,
    /// What is applied takes so much of the bound, in bytes.
    pub bytes: u64,
    /// The bound, in bytes.
    pub bytes_max: u64,
    /// Keys evicted.
    pub evicted: u64,
}

/// What somebody shows who does not come over a client's connection.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// Nothing: this is the default user, if that needs no password.
    Nothing,
    /// A name and a password.
    Password {
        /// The user's name.
        user: Vec<u8>,
        /// The password.
        password: Vec<u8>,
    },
    /// One of the passwords of the default user, or one that only one other user has.
    Token(Vec<u8>),
}

/// Why credentials do not identify a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotKnown {
    /// There were none, and the default user needs a password.
    Nothing,
    /// They are wrong, or the user is off.
    Wrong,
}

const USER_IS_GONE: &str = "NOAUTH the user was removed";

impl Node {
    /// Opens a node that has just started, with what its disk and its store of large values hold.
    ///
    /// # Errors
    /// [`StartError`]: a setting is refused, the log cannot be read, or the store lacks values.
    pub fn open_with<D: Disk>(
        configuration: Configuration,
        disk: &mut D,
        values: Option<&mut dyn ValueStore>,
        now: Now,
    ) -> Result<Node, StartError> {
        Node::open_again(configuration, disk, values, None, now)
    }

    /// Like [`Node::open_with`], with what earlier processes of the node noted about records that crashed them.
    ///
    /// # Errors
    /// As for [`Node::open_with`]; or the node cannot continue without a record that has crashed it.
    pub fn open_again<D: Disk>(
        configuration: Configuration,
        disk: &mut D,
        values: Option<&mut dyn ValueStore>,
        past: Option<Past>,
        now: Now,
    ) -> Result<Node, StartError> {
        let Opened { cx, quarantine, control, sweep, map_record, positions } =
            opening::read(configuration, disk, values, past, now)?;
        let configuration = &cx.configuration;
        let (own, planted) = (configuration.node, configuration.planted);
        let life = opening::life_of_values(configuration);
        let bounds = Bounds {
            copied_max: configuration.long_command_bytes,
            reply_max: cx.memory.reply_max(),
            replies_max: cx.memory.replies_max(),
        };
        let mut node = Node {
            usage: Usage::default(),
            rate: Default::default(),
            clock: Clock::new(now, cx.map.nodes.len().max(1), planted),
            started: now,
            cluster: Cluster::new(control, map_record, positions),
            forwarding: Forwarding::default(),
            checked_us: 0,
            gathers: Default::default(),
            asking: Default::default(),
            recent: Default::default(),
            channels: Channels::default(),
            following: Following::default(),
            auth_guard: Default::default(),
            http_guard: Default::default(),
            held_calls: Default::default(),
            waits: Waits::new(own, opening::life_of_waits(configuration)),
            coding: Coding::new(life),
            long: LongCommands::new(Coordinator { node: own, life }),
            values: Values::new(configuration.storage, planted, sweep),
            completing: Completing::default(),
            evictions: Default::default(),
            unsettled: Unsettled::new(bounds),
            scratch: Vec::new(),
            scripts: Default::default(),
            quarantine,
            cx,
        };
        // Until a map is agreed on, the initial one has the nodes, and the keyspaces that there will be.
        let map = Rc::clone(&node.cx.map);
        node.follow_map(&map);
        node.quarantine.announce(&mut node.cx);
        node.cluster.start(&mut node.cx);
        node.carry_out_calls();
        Ok(node)
    }

    // Clients' requests.

    /// Loads from memory what requests need whose first argument is a key here. Called before the first of several
    /// requests is carried out, so that it waits for all of them at once.
    pub fn warm<'a>(&self, requests: impl Iterator<Item = Arguments<'a>> + Clone) {
        self.cx.warm(requests);
    }

    /// Takes a whole request of a client. The reply appears in the client's output, now or in a later turn.
    pub fn request(&mut self, client: ClientId, arguments: Arguments<'_>) {
        self.take_request(client, arguments);
        self.carry_out_calls();
        if self.following.tracking.is_on() {
            Following::end_request(&mut self.cx, client);
        }
        if self.cx.measuring.is_due() {
            self.cx.name_answered(arguments);
        }
        if let Some(session) = self.cx.clients.sessions.get_mut(client) {
            if self.cx.parameters.thresholds().is_logging() {
                session.keep_arguments(arguments, |place| is_secret(arguments, place));
            }
            self.cx.memory.follow(session);
        }
    }

    /// Whether [`Node::measure`] should be called with the time, since a command has ended that may have taken long.
    #[inline]
    pub fn is_measuring(&self) -> bool {
        self.cx.measuring.is_due()
    }

    /// Takes the time, in microseconds of the monotonic clock, for the commands that have just ended.
    pub fn measure(&mut self, now_us: u64) {
        self.cx.measure(now_us);
    }

    fn take_request(&mut self, client: ClientId, arguments: Arguments<'_>) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let Node { cx, http_guard, held_calls, scripts, .. } = self;
        match requests::admit(cx, (http_guard, held_calls), scripts, client, arguments) {
            Admitted::Not => {}
            Admitted::Command(found) => self.take_command(client, found, arguments, &mut scratch),
            Admitted::Queued(found) => {
                transactions::queue(cx, scripts, client, found, arguments, &mut scratch);
            }
            Admitted::Internal => {
                let sent = requests::internal(cx, client, arguments, &mut scratch);
                self.ask(client, sent.as_ref());
            }
        }
        self.scratch = scratch;
    }

    #[inline]
    fn take_command(
        &mut self,
        client: ClientId,
        found: Found,
        arguments: Arguments<'_>,
        scratch: &mut Vec<u8>,
    ) {
        let cx = &mut self.cx;
        match found.spec.handler {
            Handler::Data(parse) => match parse(arguments, scratch, &requests::parsed_with(cx)) {
                // By reference from here on: a copy would wait for what the parser has just written.
                Ok(ref command) => match found.spec.wait.and_then(|wait| wait(arguments)) {
                    Some(wait_us) if self.waits.wait_for_elements(cx, client, command, wait_us) => {}
                    _ => self.data_request(client, command),
                },
                Err(error) => {
                    let text = error.to_string();
                    cx.answer(client, |replies| replies.error(&text));
                }
            },
            Handler::Node(command) => self.node_request(client, command, found, arguments, scratch),
            Handler::Container => {
                let text = CommandError::WrongArity(found.spec.name).to_string();
                cx.answer(client, |replies| replies.error(&text));
            }
        }
    }

    /// Sends a command on keys to their group, and a command on all keys to every group.
    #[inline]
    fn data_request(&mut self, client: ClientId, command: &Command<'_>) {
        match requests::route(&mut self.cx, client, command) {
            Route::Group(group) => self.ask_group(client, group, command),
            Route::Completed(group, command) => self.ask_group(client, group, &command),
            Route::All(combine, completed) => {
                let request = Request::Command(completed.as_ref().unwrap_or(command));
                let all = self.cx.groups.ids().to_vec();
                let deadline_us = self.usual_deadline_us();
                self.ask_all(client, &all, combine, deadline_us, |_, _| request);
            }
            Route::Refused(text) => self.cx.answer(client, |replies| replies.error(&text)),
            Route::Scanned => self.cx.answer(client, |replies| {
                replies.array(2);
                replies.bulk(b"0");
                replies.array(0);
            }),
        }
    }

    /// Hands a command that the node answers to the component that it concerns.
    fn node_request(
        &mut self,
        client: ClientId,
        command: NodeCommand,
        found: Found,
        arguments: Arguments<'_>,
        scratch: &mut Vec<u8>,
    ) {
        let cx = &mut self.cx;
        match command {
            NodeCommand::Reset => {
                self.channels.end_subscriptions(cx, client);
                self.following.end_all(cx, client);
                connections::reset(cx, client);
            }
            NodeCommand::Acl(command) => connections::acl(cx, client, command, arguments),
            NodeCommand::Auth => self.auth_guard.auth(cx, client, arguments),
            NodeCommand::Hello => self.auth_guard.hello(cx, client, arguments),
            NodeCommand::Client(ClientCommand::Unblock) => {
                if let Some((wait, with_error)) = connections::unblock(cx, client, arguments) {
                    self.waits.unblock(cx, wait, with_error);
                }
            }
            NodeCommand::Client(
                command @ (ClientCommand::GetRedir
                | ClientCommand::Tracking
                | ClientCommand::TrackingInfo
                | ClientCommand::Caching),
            ) => self.following.command(cx, client, command, arguments),
            NodeCommand::Config(command) => {
                connections::config(cx, client, command, arguments);
                self.following.follow(cx);
            }
            NodeCommand::Keyspace(
                command @ (KeyspaceCommand::Watch | KeyspaceCommand::Unwatch | KeyspaceCommand::Changes),
            ) => self.following.readers.command(cx, client, command, arguments),
            NodeCommand::Keyspace(command) => operators::keyspace_command(cx, client, command, arguments),
            NodeCommand::Cluster(command) => operators::cluster_command(cx, client, command, arguments),
            NodeCommand::Info | NodeCommand::Report | NodeCommand::Role | NodeCommand::MemoryStats => {
                let replies = match command {
                    NodeCommand::Info => facts::info(self, arguments),
                    NodeCommand::Report => figures::report(self),
                    NodeCommand::Role => facts::role(self),
                    _ => facts::memory_stats(self),
                };
                self.cx.answer(client, |out| out.extend_encoded(replies.as_bytes()));
            }
            NodeCommand::Events => {
                let mut replies = ReplyBuffer::new();
                self.recent.write(&mut replies);
                cx.answer(client, |out| out.extend_encoded(replies.as_bytes()));
            }
            NodeCommand::Ask => {
                if let Some(Asked { command, found, arguments }) = self.asking.ask(cx, client, arguments) {
                    self.node_request(client, command, found, arguments, scratch);
                }
            }
            NodeCommand::LockList => lock_list::list(cx, client, arguments),
            NodeCommand::Transaction(command) => {
                self.transaction_command(client, command, arguments, scratch);
            }
            NodeCommand::Script(ScriptCommand::Run(how)) => {
                let sent = self.scripts.run(cx, client, how, arguments, scratch);
                self.ask(client, sent.as_ref());
            }
            NodeCommand::Script(command) => self.scripts.command(cx, client, command, arguments),
            NodeCommand::Function(command) => self.scripts.function_command(cx, client, command, arguments),
            NodeCommand::Wait => self.wait(client, arguments),
            NodeCommand::Lock(verb) => {
                let sent = self.waits.request(cx, client, verb, arguments);
                self.ask(client, sent.as_ref());
            }
            NodeCommand::Channel(command) => self.channels.command(cx, client, command, arguments),
            NodeCommand::ObjectRefCount => {
                if let Some(command) = requests::reference_count(cx, client, &arguments[2]) {
                    self.data_request(client, &command);
                }
            }
            NodeCommand::ReplicaConfiguration => self.following.replicas.configure(cx, client, arguments),
            NodeCommand::ReplicaSync => self.following.replicas.begin(cx, client, arguments),
            command => connections::carry_out(cx, client, command, found, arguments),
        }
    }

    /// `WAIT`.
    fn wait(&mut self, client: ClientId, arguments: Arguments<'_>) {
        let asked = requests::wait(&mut self.cx, client, &arguments[1], &arguments[2]);
        let Some(WaitAsked { groups, count, deadline_us, is_waiting }) = asked else { return };
        let request = move |session: &Session, group| {
            let offset = if is_waiting { Version::MAX } else { session.seen(group) };
            Request::Wait { offset, count }
        };
        if let [group] = groups[..]
            && let Some(session) = self.cx.clients.sessions.get(client)
        {
            let request = request(session, group);
            return self.ask_until(client, group, false, &request, deadline_us);
        }
        self.ask_all(client, &groups, Combine::Minimum, deadline_us, request);
    }

    fn transaction_command(
        &mut self,
        client: ClientId,
        command: TransactionCommand,
        arguments: Arguments<'_>,
        scratch: &mut Vec<u8>,
    ) {
        match transactions::command(&mut self.cx, client, command, arguments, scratch) {
            None => {}
            Some(Then::Watch(sent)) => self.ask(client, Some(&sent)),
            Some(Then::Send(execution)) => self.ask(client, Some(&execution.sent())),
            Some(Then::Answer(items)) => {
                let replies = self.exec_replies(client, &items, &[]);
                self.cx.answer(client, |out| out.extend_encoded(replies.as_bytes()));
            }
        }
    }

    /// Makes the answer to `EXEC`: `elements` are the group's replies, one after the other.
    pub(super) fn exec_replies(&mut self, client: ClientId, items: &[Item], elements: &[u8]) -> ReplyBuffer {
        let mut answer = Answer::new(items, elements);
        while let Some(OfNode { command, found, arguments }) = answer.next_of_node() {
            let before = self.cx.clients.capture(Some(ReplyBuffer::new()));
            self.node_request(client, command, found, arguments, &mut Vec::new());
            answer.take(&self.cx.clients.capture(before).unwrap_or_default());
        }
        answer.end()
    }

    /// Answers another node's question about this one.
    fn answer_node(&mut self, from: NodeId, id: u64, words: &[u8]) -> Result<(), Malformed> {
        let words = asking::words(words)?;
        let reply = match Asked::find(words.as_arguments()) {
            Ok(Asked { command, found, arguments }) => {
                let before = self.cx.clients.capture(Some(ReplyBuffer::new()));
                self.node_request(ClientId::NONE, command, found, arguments, &mut Vec::new());
                self.cx.clients.capture(before).unwrap_or_default()
            }
            Err(text) => {
                let mut error = ReplyBuffer::new();
                error.error(&text);
                error
            }
        };
        asking::answer(&mut self.cx, from, id, &reply);
        Ok(())
    }

    /// Takes what a pause has held back, when it is over.
    pub(super) fn end_pause(&mut self) {
        for client in connections::pause::end(&mut self.cx) {
            let Some(session) = self.cx.clients.sessions.get_mut(client) else { continue };
            let Some(request) = session.held_back.take() else { continue };
            self.request(client, request.as_arguments());
            // It may have more input, and nothing else would say so.
            self.cx.clients.list(client);
        }
    }

    /// Takes the calls of functions that have waited, or waited long enough.
    #[cold]
    pub(super) fn take_held_calls(&mut self) {
        while let Some((client, request)) = self.held_calls.next(&mut self.cx, &mut self.scripts) {
            self.request(client, request.as_arguments());
            self.held_calls.end();
            // It may have more input, and nothing else would say so.
            self.cx.clients.list(client);
        }
    }

    // Other nodes.

    /// Handles a link to a peer that came up or broke. What was on its way over a broken link is lost, and forgotten.
    pub fn peer_link(&mut self, id: NodeId, up: bool) {
        let Some(peer) = self.cx.peers.get_mut(id) else { return };
        let was_up = peer.set_link(up, self.cx.now);
        if up {
            peer.send(&Envelope::Life(self.waits.life()));
            memory::announce_to(&mut self.cx, id);
            room::announce_to(&mut self.cx, id);
            clock::ask(&mut self.cx, id);
        }
        memory::note_full_peers(&mut self.cx);
        room::note_short_peers(&mut self.cx);
        self.coding.link_changed(id);
        if !up {
            self.waits.check(&mut self.cx, |_| true);
        }
        if was_up {
            self.forwarding.end_forwards(&mut self.cx, |entry| entry.to == id, "was lost before it answered");
        }
        let mut place = 0;
        while let Some(group) = self.cx.groups.id_at(place) {
            place += 1;
            self.cx.groups[group].tail.drop_held(id);
            if was_up && up {
                // A new link replaces an old one whose end was never noticed.
                self.step(group, Input::Link { peer: id, up: false });
            }
            self.step(group, Input::Link { peer: id, up });
            peers::set_reached(&mut self.cx, group, id);
        }
        self.cluster.link(&mut self.cx, id, up);
        self.carry_out_calls();
    }

    /// Handles a second link to a peer, beside the one that is up, that came up for urgent messages, or broke. What was
    /// on its way over it may be lost, as any message of a replica may.
    pub fn peer_urgent_link(&mut self, id: NodeId, up: bool) {
        if let Some(peer) = self.cx.peers.get_mut(id) {
            peer.set_urgent_link(up);
        }
    }

    /// Takes a frame from a peer.
    ///
    /// # Errors
    /// [`Malformed`] when the peer does not speak this node's language: close the link. What came before the malformed
    /// part has taken effect.
    pub fn peer_frame(&mut self, from: NodeId, payload: &[u8]) -> Result<(), Malformed> {
        let taken = self.take_frame(from, payload);
        self.carry_out_calls();
        taken
    }

    fn take_frame(&mut self, from: NodeId, payload: &[u8]) -> Result<(), Malformed> {
        let Some(peer) = self.cx.peers.get_mut(from) else {
            return Ok(()); // A node that the map does not know cannot be answered.
        };
        peer.heard(self.cx.now);
        match Envelope::decode(payload)? {
            Envelope::Group { group, message } => {
                if group == CONTROL_GROUP {
                    return self.cluster.message(&mut self.cx, from, message);
                }
                if room::stands_aside(&self.cx, group) {
                    return Ok(()); // As if it had been lost on its way, which may happen to any message.
                }
                let takes_registers = room::takes_registers(&self.cx, group);
                // One of the two may know of a group before the other, or still know of it.
                let known = self.cx.groups.get_mut(group).filter(|group| group.holds.is_none());
                if let Some(replica) = known.and_then(|group| group.replica.as_mut()) {
                    replica.set_room(takes_registers);
                    replica.step(self.cx.now, Input::Message { from, message }, self.unsettled.effects())?;
                    self.settle(group);
                }
            }
            Envelope::Fragments { group, message } => self.fragment_message(group, from, message)?,
            Envelope::Leader { group, leader } => {
                if let Some(group) = self.cx.groups.get_mut(group).filter(|it| it.members.contains(&leader)) {
                    group.reported_leader = leader;
                }
            }
            Envelope::Life(life) => peer.report_life(life),
            Envelope::Alive => peers::reaches(&mut self.cx, from, true),
            Envelope::LockNotified { group, notified } => self.waits.notified(&mut self.cx, group, notified),
            Envelope::Script(text) => self.scripts.learn_script(text),
            Envelope::ForgetScripts => self.scripts.clear(),
            Envelope::Memory { is_full } => {
                peer.report_memory(is_full);
                memory::note_full_peers(&mut self.cx);
            }
            Envelope::Room { is_short, is_aside } => {
                peer.report_room(is_short, is_aside);
                if is_aside {
                    peers::reaches(&mut self.cx, from, false); // No group may rely on it until it sends a sign of life again.
                }
                room::note_short_peers(&mut self.cx);
                room::tend(&mut self.cx, self.values.is_full());
            }
            Envelope::Published { is_sharded, channel, message } => {
                self.channels.hear(&mut self.cx, is_sharded, channel, message)
            }
            Envelope::ListenersAsked { id, is_sharded, names } => {
                self.channels.listeners_asked(&mut self.cx, from, (id, is_sharded), names)?;
            }
            Envelope::Listeners { id, counts } => {
                self.channels.listeners_answered(&mut self.cx, from, id, counts)?;
            }
            Envelope::Asked { id, words } => self.answer_node(from, id, words)?,
            Envelope::Answered { id, reply } => self.asking.answered(&mut self.cx, from, id, reply)?,
            Envelope::Requests(items) => self.forwarded_requests(from, items)?,
            Envelope::Outcomes(items) => {
                let mut reader = Reader::new(items);
                while !reader.is_empty() {
                    let outcome = ForwardedOutcome::decode(&mut reader)?;
                    let ForwardedOutcome { id, result, reply } = outcome;
                    let handle = Handle::from_bits(id);
                    let ended = self.forwarding.take_outcome(&mut self.cx, from, handle, result, reply);
                    if let Some((ticket, group)) = ended {
                        self.complete(ticket, group, result, reply);
                    }
                }
            }
            Envelope::OutcomePart(part) => self.forwarding.outcome_part(&mut self.cx, from, &part)?,
            Envelope::PartsArrived { id, so_far } => peer.long_reply_arrived(id, so_far)?,
            Envelope::ClockAsked { asked_us } => self.clock.asked(&mut self.cx, from, asked_us),
            Envelope::ClockAnswer { asked_us, own_ms, agreed_ms } => {
                self.clock.take_answer(&mut self.cx, from, asked_us, (own_ms, agreed_ms));
            }
        }
        Ok(())
    }

    /// The frames to be written to a peer. The caller removes what it writes.
    pub fn peer_output(&mut self, id: NodeId) -> &mut Vec<u8> {
        self.cx.peers[id].output()
    }

    /// The frames to be written to a peer's urgent link.
    pub fn peer_urgent_output(&mut self, id: NodeId) -> &mut Vec<u8> {
        self.cx.peers[id].urgent_output()
    }

    /// The longest payload that a peer may send, in bytes: a request of the greatest length, a batch with one, or a
    /// reply. This node's limits for its own clients do not matter: the peer's may differ.
    pub fn peer_payload_bytes_max(&self) -> usize {
        peer_payload_bytes_max()
    }

    // How the node stands.

    /// What is wrong with the fragments of large values that a replica here keeps, if anything: how many it lacks, and
    /// whether it keeps any that nothing refers to.
    pub fn fragment_mismatch(&self, group: GroupId) -> Option<String> {
        let replica = self.cx.groups.get(group)?.replica.as_ref()?;
        let fragments = replica.fragments()?;
        let (lacking, (kept, _)) = (fragments.fragments_lacking(), fragments.fragments_kept());
        let wanted = replica.table().references().count();
        let what = format!("{lacking} of {wanted} fragments are missing and {kept} are kept");
        (lacking > 0 || kept != wanted).then_some(what)
    }

    /// The newest map that this node knows. Before one was agreed on, the initial one, with version 0.
    pub fn cluster_map(&self) -> &Rc<ClusterMap> {
        self.cluster.control().map()
    }

    /// Whether the control group has admitted this node.
    pub fn is_admitted(&self) -> bool {
        self.cluster.control().is_admitted()
    }

    /// Why the control group does not admit this node, if it said so.
    pub fn refusal(&self) -> Option<&str> {
        self.cluster.control().refusal()
    }

    /// Where the log ended when it was found: by this the control group judges whether the disk is an older one.
    pub fn log_found(&self) -> u64 {
        self.cluster.control().found()
    }

    /// Up to where a node's log was durable, as far as this node knows, if this is a control node.
    pub fn known_durable(&self, node: protocol::NodeId) -> Option<u64> {
        self.cluster.control().known_durable(node)
    }

    /// Whether this node leads the control group, as far as it knows.
    pub fn leads_control(&self) -> bool {
        self.cluster.control().status(self.cx.now).is_some_and(|status| status.role == "leader")
    }

    /// Bytes of log that a start would have to read, and bytes of the tables in memory: only a log with more is
    /// shortened.
    pub fn log_bytes(&self) -> (u64, u64) {
        let tables = self.cx.groups.iter().filter_map(|(_, group)| group.replica.as_ref());
        let state_bytes = tables.map(|replica| replica.table().memory_bytes() as u64).sum();
        (self.cx.journal.held_bytes(), state_bytes)
    }

    /// The state of a group here, if this node knows of it.
    pub fn group_health(&self, group: GroupId) -> Option<KeyspaceHealth> {
        self.cx.groups.ids().contains(&group).then(|| report::keyspace_health(self, group))
    }

    /// The value of a replica's counter, by its name in the metrics; 0 if there is none.
    pub fn counted(&self, group: GroupId, name: &str) -> u64 {
        let replica = self.cx.groups.get(group).and_then(|group| group.replica.as_ref());
        let counters = replica.map(|replica| replica.summary(self.cx.now).counters).unwrap_or_default();
        counters.iter().find(|counter| counter.name == name).map_or(0, |counter| counter.value)
    }

    /// For each group with a replica here, a digest of the replica's contents. O(keys).
    pub fn digests(&self) -> Vec<(GroupId, u64)> {
        let digest = |(id, group): (GroupId, &crate::groups::Group)| {
            group.replica.as_ref().map(|replica| (id, replica.table().digest()))
        };
        self.cx.groups.iter().filter_map(digest).collect()
    }

    /// Of a keyspace with one shard and a replica here: the versions of the changes that this replica keeps, and the version
    /// behind which these are all.
    pub fn kept_changes(&self, prefix: &str) -> Option<(Version, Vec<Version>)> {
        let [group] = self.cx.map.keyspaces.get(prefix)?.groups[..] else { return None };
        let table = self.cx.groups.get(group)?.replica.as_ref()?.table();
        let history = table.history()?;
        Some((history.since(table.version_floor()), history.versions().collect()))
    }

    /// The memory of each group with a replica here and a bound.
    pub fn bounded_memory(&self) -> Vec<BoundedMemory> {
        let bounded = self.cx.groups.iter().filter(|(_, group)| group.keyspace.memory_max > 0);
        let memory = |(id, group): (GroupId, &crate::groups::Group)| {
            Some(BoundedMemory {
                group: id,
                bytes: group.bounded_bytes()? as u64,
                bytes_max: group.keyspace.shard_memory_max(),
                evicted: group.replica.as_ref()?.table().statistics().evicted,
            })
        };
        bounded.filter_map(memory).collect()
    }

    /// Bytes of long replies on their way to other nodes, and of those that have not wholly arrived here.
    pub fn long_reply_bytes(&self) -> (usize, usize) {
        let sent = self.cx.peers.long_reply_bytes();
        (sent, self.forwarding.arrived_bytes())
    }

    /// The numbers of requests that wait for elements in a replica here, of those that were served and are not settled,
    /// and of these the ones that were claimed.
    pub fn queues_left(&self, group: GroupId) -> Option<(usize, usize, usize)> {
        let queues = self.cx.groups.get(group)?.replica.as_ref()?.table().queues();
        Some((queues.waiters(), queues.unsettled(), queues.unsettled() - queues.unclaimed().count()))
    }

    /// The requests that wait for elements in a replica here.
    pub fn waiting_requests(&self, group: GroupId) -> Vec<WaiterId> {
        let replica = self.cx.groups.get(group).and_then(|group| group.replica.as_ref());
        replica.map_or_else(Vec::new, |replica| replica.table().queues().requests().collect())
    }

    /// Whether a request of a client here is over, but may still be queued by a record that comes late. It is withdrawn
    /// once more.
    pub fn lingers(&self, waiter: WaiterId) -> bool {
        self.waits.lingers(waiter)
    }

    /// The number of requests for which a replica here keeps elements that are not claimed, and of those whose elements were
    /// claimed in the history of the group.
    pub fn requests_with_elements(&self, group: GroupId) -> Option<(usize, u64)> {
        let queues = self.cx.groups.get(group)?.replica.as_ref()?.table().queues();
        Some((queues.kept(), queues.statistics().claimed))
    }

    /// The numbers of locks that are held, of requests that wait for one, and of sessions, in a replica here.
    pub fn locks_left(&self, group: GroupId) -> Option<(usize, usize, usize)> {
        let locks = self.cx.groups.get(group)?.replica.as_ref()?.table().locks();
        Some((locks.len(), locks.waiters(), locks.sessions()))
    }

    /// Whether this turn has done its share: further requests of clients wait for the next one.
    #[inline]
    pub fn is_spent(&self) -> bool {
        self.cx.spent_ns >= TURN_NS
    }

    /// Whether memory should be measured again: a second has passed, or `traffic`, what the process has read and
    /// written in all, has grown so much that the last measurement says little.
    #[inline]
    pub fn wants_measurement(&self, traffic: u64) -> bool {
        self.cx.memory.wants_measurement(self.cx.now, traffic)
    }

    /// Takes a measurement, in bytes: what the process takes of memory now, how much of that the server holds for
    /// clients, and what the process has read and written in all. This decides whether commands that make data larger
    /// are refused, and whether clients are closed.
    pub fn measured(&mut self, resident: u64, inputs: u64, traffic: u64) {
        memory::take_measurement(&mut self.cx, resident, inputs, traffic);
        self.carry_out_calls();
    }

    /// Whether free memory that the process still holds should be returned to the system.
    pub fn is_memory_tight(&self) -> bool {
        self.cx.memory.is_tight()
    }

    /// Logs which keys go with this process, for a node that is about to stop.
    pub fn note_stop(&mut self) {
        notes::at_stop(&mut self.cx);
    }

    /// Returns the state of this node.
    pub fn health(&self) -> Health {
        report::health(self)
    }

    /// Appends the node's metrics in the text format of Prometheus.
    pub fn metrics(&self, out: &mut String) {
        report::metrics(self, out);
    }

    /// Every keyspace of the newest map, by prefix.
    pub fn keyspaces(&self) -> Vec<KeyspaceDescription> {
        describe::keyspaces(self)
    }

    /// Whether there are values to cut in this turn, so that it is worth while to measure how long
    /// [`Node::code_values`] takes.
    pub fn has_values_to_code(&self) -> bool {
        self.coding.has_values_to_code()
    }

    /// Cuts values and sends their fragments, as far as there is room; the end of the turn would do the same. A caller
    /// with a clock reports how long it took ([`Node::coding_took`]).
    pub fn code_values(&mut self) {
        self.coding.code_values(&mut self.cx);
        self.carry_out_calls();
    }

    /// Reports how long [`Node::code_values`] took, in microseconds.
    pub fn coding_took(&mut self, took_us: u64) {
        self.coding.coding_took(&self.cx, took_us);
    }

    // Clients.

    /// Connects a client. Returns `None` if there are too many already.
    pub fn connect(&mut self, kind: ClientKind) -> Option<ClientId> {
        if self.cx.clients.sessions.len() >= self.cx.parameters.connections_max()
            && !self.close_unauthenticated()
        {
            self.cx.counters.rejected_connections += 1;
            return None;
        }
        self.cx.counters.connections += u64::from(kind != ClientKind::Internal);
        let user = self.cx.first_user(&kind);
        let now_us = self.cx.now.monotonic_us;
        Some(self.cx.clients.open(kind, user, now_us))
    }

    // Users.

    /// The name of the user that somebody is who does not come over a client's connection.
    ///
    /// # Errors
    /// [`NotKnown`] when no user has these credentials.
    pub fn user_of(&self, credentials: &Credentials) -> Result<Vec<u8>, NotKnown> {
        let users = &self.cx.users;
        let found = match credentials {
            Credentials::Nothing => users.at_first().ok_or(NotKnown::Nothing)?,
            Credentials::Password { user, password } => {
                Rc::clone(users.log_in(user, password).ok_or(NotKnown::Wrong)?)
            }
            Credentials::Token(token) => Rc::clone(users.log_in_by_token(token).ok_or(NotKnown::Wrong)?),
        };
        Ok(found.name.clone())
    }

    /// Whether a user may give a command.
    ///
    /// # Errors
    /// The error that a client would get.
    pub fn may(&self, user: &[u8], arguments: Arguments<'_>) -> Result<(), String> {
        let user = self.cx.users.find(user).ok_or(USER_IS_GONE)?;
        let found = command::find(arguments).map_err(|error| error.to_string())?;
        user.check(found, arguments).map_err(|denial| denial.error(found.spec))
    }

    /// Takes a request that a part of the server, which has the session `client`, makes for a user at an address. Without
    /// one it is the server's own, and may do everything.
    pub fn request_for(&mut self, client: ClientId, whom: Option<(&[u8], IpAddr)>, arguments: Arguments<'_>) {
        let user = whom.map(|(name, _)| self.cx.users.find(name).cloned());
        let Some(session) = self.cx.clients.sessions.get_mut(client) else { return };
        session.asked_from = whom.map(|(_, from)| from);
        match user {
            None => session.become_nobody(),
            // The user was removed a moment ago: the request is a stranger's.
            Some(user) => session.become_user(user),
        }
        self.request(client, arguments);
    }

    /// Closes the client that has been connected longest without authenticating, so that strangers do not keep clients
    /// out. Returns false if all clients have authenticated, or there is no password.
    #[cold]
    pub fn close_unauthenticated(&mut self) -> bool {
        let strangers = self.cx.clients.sessions.iter().filter(|(_, session)| !session.is_authenticated());
        let Some((oldest, _)) = strangers.min_by_key(|(_, session)| session.arrival) else { return false };
        self.cx.counters.unauthenticated_closed += 1;
        self.cx.kill(oldest);
        self.carry_out_calls();
        true
    }

    /// Removes a client that has disconnected. Its requests may still take effect; their outcomes go nowhere.
    pub fn disconnect(&mut self, client: ClientId) {
        self.cx.end_session(client);
        self.carry_out_calls();
    }

    /// Whether a client waits for a lock, for elements or for the end of a pause, or listens to channels or monitors: then it is not idle.
    pub fn awaits_notification(&self, client: ClientId) -> bool {
        let session = self.cx.clients.sessions.get(client);
        self.cx.clients.monitors.contains(&client)
            || session.is_some_and(|session| {
                session.wait.is_some() || session.held_back.is_some() || session.subscriptions.is_some()
            })
    }

    /// A client has closed its connection. Returns true if it was waiting for a lock, for elements or for the end of a pause.
    pub fn hang_up(&mut self, client: ClientId) -> bool {
        let Some(session) = self.cx.clients.sessions.get(client) else { return false };
        if session.held_back.is_some() {
            self.disconnect(client);
            return true;
        }
        let Some(number) = session.wait else { return false };
        self.waits.give_up(&mut self.cx, number, &[]);
        // The commands that it sent after this one were meant for a client that has what it waited for.
        self.cx.clients.close_after_replies(client);
        self.carry_out_calls();
        true
    }

    /// Notes how many bytes of a client's input are not taken yet, and how much room there is for more, for `CLIENT LIST`.
    pub fn note_input(&mut self, client: ClientId, bytes: usize, room: usize) {
        if let Some(session) = self.cx.clients.sessions.get_mut(client) {
            session.input_bytes = (bytes, room);
        }
    }

    /// The node is about to stop: ends all its clients' waits.
    pub fn stop_waits(&mut self) {
        self.waits.stop(&mut self.cx);
        self.carry_out_calls();
    }

    /// Whether any request waits, or is being withdrawn or settled.
    pub fn has_waits(&self) -> bool {
        !self.waits.is_empty()
    }

    /// Closes a client's connection once its replies are written.
    pub fn close_after_replies(&mut self, client: ClientId) {
        self.cx.clients.close_after_replies(client);
    }

    /// The limits of this client's requests.
    pub fn request_limits(&self, client: ClientId) -> Limits {
        let value_bytes_max = self.cx.parameters.value_bytes_max();
        Limits {
            bulk_bytes_max: value_bytes_max,
            request_bytes_max: request_bytes_max(value_bytes_max),
            authenticated: self.cx.clients.sessions.get(client).is_some_and(Session::is_authenticated),
            ..Limits::default()
        }
    }

    /// Lends the buffer that holds the requests that follow: a large value in them may be kept in place instead of
    /// being copied. `None` ends the loan.
    pub fn lend(&mut self, buffer: Option<Arc<Vec<u8>>>) {
        self.cx.lent = buffer;
    }

    /// Whether to read more of a client's input. False while the client has too many requests without an outcome, or
    /// too many unread replies: leave its input alone until it is among the ready clients again, or has taken its
    /// output.
    pub fn wants_input(&self, client: ClientId) -> bool {
        !self.cx.memory.is_overcrowded()
            && self.cx.clients.sessions.get(client).is_some_and(Session::wants_input)
    }

    /// Whether requests under way take so much memory that no client's large requests are wanted. With twice as much,
    /// no input is wanted at all; reading resumes when this is false.
    pub fn is_crowded(&self) -> bool {
        self.cx.memory.is_crowded()
    }

    /// Whether a request of `request_bytes` may be taken now. If not, it has to wait until there is more room.
    #[inline]
    pub fn has_room_for(&self, request_bytes: usize) -> bool {
        const LARGE_BYTES: usize = 64 << 10;
        request_bytes < LARGE_BYTES || !self.cx.memory.is_crowded()
    }

    /// Answers input that is not a request with an error, behind the client's earlier replies, and closes the
    /// connection.
    pub fn protocol_error(&mut self, client: ClientId, error: &ProtocolError) {
        let text = error.to_string();
        self.cx.answer(client, |replies| replies.error(&text));
        self.close_after_replies(client);
    }

    /// Moves the clients with new output, or whose session has ended, into `clients`.
    pub fn ready_clients(&mut self, clients: &mut Vec<ClientId>) {
        self.cx.clients.take_ready(clients);
    }

    /// The output of a client. `None` if its session has ended and the connection should be closed.
    pub fn output(&mut self, client: ClientId) -> Option<&mut Output> {
        self.cx.clients.sessions.get_mut(client).map(|session| session.output.filled())
    }

    /// Like [`Node::output`], for callers that write large values from where they are.
    pub fn output_in_parts(&mut self, client: ClientId) -> Option<&mut Output> {
        self.cx.clients.sessions.get_mut(client).map(|session| &mut session.output)
    }

    // The rest of the world.

    /// Sets what the process uses, for `INFO`.
    pub fn set_usage(&mut self, usage: Usage) {
        self.usage = usage;
    }

    /// Moves the lines to be logged into `lines`.
    pub fn take_log(&mut self, lines: &mut Vec<Line>) {
        self.recent.keep(self.cx.now.unix_ms, &self.cx.log);
        lines.append(&mut self.cx.log);
    }
}
