//! The door of a node: what its caller reports to it and asks of it, besides turns. A test or a simulator inspects it here,
//! too.

use super::Node;
use super::describe::{self, KeyspaceDescription};
use super::report::{self, Health, KeyspaceHealth};
use crate::context::memory;
use crate::context::work::TURN_NS;
use crate::control::{ClusterMap, GroupId};
use crate::log::Line;
use crate::notes;
use crate::output::Output;
use crate::parameters::request_bytes_max;
use crate::session::{ClientId, ClientKind, Session};
use crate::usage::Usage;
use kv::{Version, WaiterId};
use std::rc::Rc;
use std::sync::Arc;
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

impl Node {
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
        self.cluster.control.map()
    }

    /// Whether the control group has admitted this node.
    pub fn is_admitted(&self) -> bool {
        self.cluster.control.is_admitted()
    }

    /// Why the control group does not admit this node, if it said so.
    pub fn refusal(&self) -> Option<&str> {
        self.cluster.control.refusal()
    }

    /// Where the log ended when it was found: by this the control group judges whether the disk is an older one.
    pub fn log_found(&self) -> u64 {
        self.cluster.control.found()
    }

    /// Up to where a node's log was durable, as far as this node knows, if this is a control node.
    pub fn known_durable(&self, node: protocol::NodeId) -> Option<u64> {
        self.cluster.control.known_durable(node)
    }

    /// Whether this node leads the control group, as far as it knows.
    pub fn leads_control(&self) -> bool {
        self.cluster.control.status(self.cx.now).is_some_and(|status| status.role == "leader")
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
        (sent, self.forwarding.entries.iter().map(|(_, entry)| entry.arrived.capacity()).sum())
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
        let authenticated = kind == ClientKind::Internal || self.cx.configuration.password.is_none();
        let now_us = self.cx.now.monotonic_us;
        Some(self.cx.clients.open(kind, authenticated, now_us))
    }

    /// Closes the client that has been connected longest without authenticating, so that strangers do not keep clients
    /// out. Returns false if all clients have authenticated, or there is no password.
    #[cold]
    pub fn close_unauthenticated(&mut self) -> bool {
        let strangers = self.cx.clients.sessions.iter().filter(|(_, session)| !session.authenticated);
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
            authenticated: self.cx.clients.sessions.get(client).is_some_and(|session| session.authenticated),
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
        lines.append(&mut self.cx.log);
    }
}
