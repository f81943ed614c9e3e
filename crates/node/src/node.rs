//! One node: its clients' sessions, its groups, and the links between them.

use crate::channels::Channels;
use crate::clock::Clock;
use crate::coding::Coding;
use crate::command::statistics::CommandStatistics;
use crate::configuration::Configuration;
use crate::control::{self, CONTROL_GROUP, ClusterMap, Control};
use crate::delays::Delays;
use crate::gather::Gather;
use crate::groups::{Group, Groups};
use crate::guard::AuthGuard;
use crate::journal::{Journal, Released, Tail};
use crate::keyspace::Router;
use crate::locks::Waits;
use crate::log::Line;
use crate::long::LongCommands;
use crate::mapping::{MAP_GROUP, Wanted};
use crate::memory::Memory;
use crate::output::Output;
use crate::parameters::Parameters;
use crate::peers::Peer;
use crate::quarantine::Quarantine;
use crate::room::Room;
use crate::routing::{Forwarded, ForwardedBytes};
use crate::scripts;
use crate::session::{ClientId, ClientKind, Session};
use crate::slab::Slab;
use crate::usage::{Rate, Usage};
use crate::values::Values;
use crate::waiting::Waiting;
use kv::ReplyBuffer;
use protocol::{Effects, Input, NodeId, Now, Progress, Recipient, Result as Outcome, Trace};
use std::rc::Rc;
use std::sync::Arc;
use storage::{Disk, DiskError, Work};
use wire::resp::request::{Limits, ProtocolError};

/// Counters since the node's start, or since the last `CONFIG RESETSTAT`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections: u64,
    pub(crate) rejected_connections: u64,
    /// Unauthenticated clients that were closed to make room for others.
    pub(crate) unauthenticated_closed: u64,
    /// Connections to the port for Redis clients that sent HTTP.
    pub(crate) http_requests_refused: u64,
    pub(crate) commands: u64,
    pub(crate) forwarded: u64,
    pub(crate) errors: u64,
    pub(crate) output_overflows: u64,
    /// Channel messages that were dropped because too much was already on its way to the peer.
    pub(crate) messages_dropped: u64,
    /// Clients that were closed for the memory that they held, and commands that were refused for lack of memory.
    pub(crate) memory_closed: u64,
    pub(crate) memory_refused: u64,
    /// Writes that this node sent to their groups in parts, and replies that it sent to other nodes in parts.
    pub(crate) long_writes: u64,
    pub(crate) long_replies: u64,
}

/// One node, without its sockets: client requests and peers' frames go in, replies and frames come out.
pub struct Node {
    pub(crate) quarantine: Quarantine,
    pub(crate) configuration: Configuration,
    pub(crate) parameters: Parameters,
    pub(crate) statistics: CommandStatistics,
    pub(crate) counters: Counters,
    pub(crate) usage: Usage,
    pub(crate) memory: Memory,
    /// The work done for clients in this turn, in nanoseconds; see [`Node::spend`].
    pub(crate) spent_ns: u64,
    pub(crate) room: Room,
    pub(crate) rate: Rate,
    /// The time of this turn, which `clock` derives from the machine's clocks.
    pub(crate) now: Now,
    pub(crate) clock: Clock,
    pub(crate) started: Now,
    pub(crate) groups: Groups,
    pub(crate) journal: Journal,
    pub(crate) control: Control,
    pub(crate) control_effects: control::Effects,
    pub(crate) control_tail: Tail,
    /// Whether the control component was given any input in this turn.
    pub(crate) control_is_due: bool,
    pub(crate) control_wakeup_us: u64,
    /// The newest map that was agreed on.
    pub(crate) map: Rc<ClusterMap>,
    pub(crate) map_record: Vec<u8>,
    /// The control component's newest record of positions.
    pub(crate) positions_record: Vec<u8>,
    /// The state of both records in the log.
    pub(crate) map_tail: Tail,
    /// The number of the record that says that this start was admitted.
    pub(crate) admission_record: u64,
    /// Whether the control group has admitted this node.
    pub(crate) is_admitted: bool,
    /// Whether this node was removed from the cluster.
    pub(crate) is_removed: bool,
    /// Clients that wait for changes of the map, and how many changes this node has ever requested.
    pub(crate) wanted: Vec<Wanted>,
    pub(crate) requests: u64,
    pub(crate) router: Router,
    pub(crate) sessions: Slab<Session>,
    /// How many sessions were ever opened.
    pub(crate) arrivals: u64,
    pub(crate) ready: Vec<ClientId>,
    pub(crate) peers: Vec<Peer>,
    /// When this node next sends the others a sign of life.
    pub(crate) alive_due_us: u64,
    pub(crate) forwards: Slab<Forwarded>,
    pub(crate) forwards_checked_us: u64,
    /// The requests of `forwards`, as far as they may be sent again.
    pub(crate) forwarded: ForwardedBytes,
    /// Requests that no node can take now.
    pub(crate) waiting: Waiting,
    pub(crate) gathers: Slab<Gather>,
    pub(crate) lock_waits: Waits,
    /// Answers that are delayed.
    pub(crate) delays: Delays,
    /// Slows down the guessing of passwords.
    pub(crate) auth_guard: AuthGuard,
    /// When HTTP at the port for Redis clients may be logged again.
    pub(crate) http_warning_due_us: u64,
    /// The channel subscriptions of this node's clients.
    pub(crate) channels: Channels,
    pub(crate) coding: Coding,
    pub(crate) long: LongCommands,
    /// The buffer that holds the requests that are being taken, if it may be kept.
    pub(crate) lent: Option<Arc<Vec<u8>>>,
    pub(crate) values: Values,
    /// The effects of replicas' steps that are not settled yet.
    pub(crate) effects: Box<Effects>,
    /// Takes the place of `effects` while they are settled; see [`Node::settle`].
    pub(crate) spare_effects: Option<Box<Effects>>,
    /// Bytes of key lists while a command is carried out.
    pub(crate) scratch: Vec<u8>,
    /// The scripts that clients can name by their digests.
    pub(crate) scripts: scripts::Cache,
    /// The reply of a command that the node answers itself.
    pub(crate) replies: ReplyBuffer,
    /// Collects the answers while the commands of a transaction are carried out.
    pub(crate) captured: Option<ReplyBuffer>,
    pub(crate) random: u64,
    pub(crate) log: Vec<Line>,
}

impl Node {
    /// Calls `each` for every group.
    pub(crate) fn for_each_group(&mut self, mut each: impl FnMut(&mut Node, u16)) {
        let mut place = 0;
        while let Some(id) = self.groups.id_at(place) {
            place += 1;
            each(self, id);
        }
    }

    /// Calls `each` for every group that is not quiescent.
    pub(crate) fn for_each_awake(&mut self, mut each: impl FnMut(&mut Node, u16)) {
        let mut place = 0;
        while let Some(id) = self.groups.awake_at(place) {
            place += 1;
            each(self, id);
        }
    }

    /// Gives an input that is not a message to this node's replica of a group, and carries out the effects.
    #[inline]
    pub(crate) fn step(&mut self, group: u16, input: Input<'_, &[u8]>) {
        if let Some(replica) = &mut self.groups[group].replica {
            let stepped = replica.step(self.now, input, &mut self.effects);
            debug_assert_eq!(stepped, Ok(()), "only a message can be malformed");
            self.settle(group);
        }
    }

    /// The configuration that the node was started with, except that the nodes and keyspaces are those of the newest
    /// map, with keyspaces in the order of their prefixes.
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// The version of the cluster map that [`Node::configuration`] follows; it grows with each map. 0: no map was
    /// agreed on yet.
    pub fn map_version(&self) -> u64 {
        self.map.version
    }

    /// The parameters that `CONFIG GET` returns.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    // Turns.

    /// Begins a turn: everything until [`Node::end_turn`] happens at `now`, read from the machine's clocks.
    pub fn begin_turn(&mut self, now: Now) {
        let now = self.clock.read(now);
        self.lock_waits.note_pause(now.monotonic_us, self.now.monotonic_us);
        self.now = now;
        self.watch_peers();
        self.for_each_awake(|node, id| {
            if node.groups[id].next_tick_us <= now.monotonic_us {
                node.step(id, Input::Tick);
                let group = &mut node.groups[id];
                group.next_tick_us =
                    group.replica.as_ref().map_or(u64::MAX, |replica| replica.wakeup_us(now));
            }
        });
        self.coding_tick();
        if self.control_wakeup_us <= now.monotonic_us {
            self.control(|control, now, effects| control.tick(now, effects));
        }
        for index in 0..self.peers.len() {
            if self.peers[index].has_due_requests() {
                // Each peer has its own share, and this node's clients have theirs.
                self.spent_ns = 0;
                let deferred = std::mem::take(&mut self.peers[index].deferred);
                let outcome = self.forwarded_requests(index as NodeId + 1, &deferred);
                debug_assert_eq!(outcome, Ok(()), "they were read whole when they were put off");
            }
        }
        self.spent_ns = 0;
        self.deliver_put_off();
        self.give_delayed_answers();
        self.tend_waiting();
        if self.lock_waits.next_due_us() <= now.monotonic_us {
            self.tend_lock_waits();
        }
        const FORWARDS_CHECK_MS: u64 = 100;
        if now.ms_since(self.forwards_checked_us) >= FORWARDS_CHECK_MS {
            self.forwards_checked_us = now.monotonic_us;
            self.rate.update(now, self.counters.commands);
            self.end_overdue_forwards();
            self.watch_silent_peers();
            self.end_overdue_lookups();
            self.forget_dismissed();
            self.drop_waiters_of_old_incarnations();
            self.look_for_fragments();
            self.report_members();
            self.tend_clock();
            self.tend_quarantine();
            self.tend_room();
        }
    }

    /// Advances the monotonic clock within the turn: the inputs that follow had arrived by `now`.
    #[inline]
    pub fn advance(&mut self, now: Now) {
        self.now = self.clock.advance(now);
    }

    /// Marks the end of this turn's input: replicas make their batches and the messages with them. What is in the
    /// buffers for peers after this call depends on nothing that is still to be written, so it may leave before
    /// [`Node::end_turn`] writes: the peers work on it during that write.
    pub fn flush(&mut self) {
        self.coding_pump();
        self.pump_long();
        self.for_each_awake(|node, id| node.step(id, Input::Flush));
        self.flush_control();
    }

    /// Whether [`Node::end_turn`] will write to the disk at once, which takes a moment.
    pub fn is_about_to_write(&self) -> bool {
        self.journal.has_unwritten()
    }

    /// Ends a turn, after [`Node::flush`]: writes its records, and releases what waited for that or was gathered for
    /// each peer.
    pub fn end_turn<D: Disk>(&mut self, disk: &mut D) {
        self.close_marked();
        self.checkpoint();
        self.pump_values();
        // Where a write is as good as durable, the replica continues at once, and may record more.
        const ROUNDS_MAX: u32 = 4;
        for _ in 0..ROUNDS_MAX {
            self.journal.write(disk, self.now, &mut self.log);
            self.notify_durable(true);
            if !self.journal.has_unwritten() {
                break;
            }
        }
        self.groups.end_turn(self.now);
        if self.room.is_short() != (self.journal.is_short() || self.values.is_full()) {
            self.tend_room();
        }
        if !self.wanted.is_empty() {
            self.end_wanted();
        }
        self.peers.iter_mut().for_each(Peer::end_turn);
    }

    /// Notifies replicas of records that have become durable, and sends the messages that waited for them.
    fn notify_durable(&mut self, flushes: bool) {
        self.for_each_awake(|node, id| {
            let Some(record) = node.journal.news(&mut node.groups[id].tail) else { return };
            while let Some(Released { to, recipient, bytes }) = node.groups[id].tail.release() {
                node.send(id, to, recipient, [&bytes, &[]]);
            }
            node.step(id, Input::Durable { record });
            if flushes {
                node.step(id, Input::Flush);
            }
        });
        if let Some(record) = self.journal.news(&mut self.control_tail) {
            while let Some(Released { to, bytes, .. }) = self.control_tail.release() {
                self.send(CONTROL_GROUP, to, Recipient::Replica, [&bytes, &[]]);
            }
            self.control(|control, now, effects| control.durable(now, record, effects));
        }
        self.journal.news(&mut self.map_tail);
    }

    /// Begins a checkpoint when one is due, or continues the one under way.
    fn checkpoint(&mut self) {
        if let Some(id) = self.journal.checkpointing() {
            if !self.values.holds_checkpoint(id) && !self.journal.is_pacing() {
                self.advance_checkpoint(id);
            }
            return;
        }
        let replicas = self.groups.iter().filter_map(|(_, group)| group.replica.as_ref());
        let state_bytes = || replicas.map(|replica| replica.memory_bytes() as u64).sum();
        let Some(id) = self.journal.checkpoint_due(self.now, state_bytes) else { return };
        let spills = self.keep_spilled(id);
        let group = self.groups.get_mut(id);
        let (begins, description) = match (id, group) {
            (CONTROL_GROUP, _) => (self.control.begin_checkpoint(), Vec::new()),
            (MAP_GROUP, _) => (true, self.positions_record.clone()),
            (_, Some(Group { keyspace, replica: Some(replica), .. })) => {
                (replica.begin_checkpoint(), keyspace.encode())
            }
            _ => (false, Vec::new()),
        };
        if begins && spills {
            self.values.begin_checkpoint(id);
        }
        if begins && !self.journal.begin_checkpoint(id, &description) {
            self.abandon_checkpoint(id);
        }
    }

    fn advance_checkpoint(&mut self, id: u16) {
        let Node { journal, control, groups, map_record, .. } = self;
        let goes_on = match (id, groups.get_mut(id).and_then(|group| group.replica.as_mut())) {
            (CONTROL_GROUP, _) => {
                journal.advance_checkpoint(|bytes, out| control.checkpoint_record(bytes, out))
            }
            (MAP_GROUP, _) => journal.advance_checkpoint(|_, out| {
                out.extend_from_slice(map_record);
                Progress::Whole
            }),
            (_, Some(replica)) => {
                journal.advance_checkpoint(|bytes, out| replica.checkpoint_record(bytes, out))
            }
            (_, None) => journal.advance_checkpoint(|_, _| Progress::Abandoned),
        };
        if !goes_on {
            self.abandon_checkpoint(id);
        }
    }

    fn abandon_checkpoint(&mut self, id: u16) {
        self.values.abandon_checkpoint(id);
        if id == CONTROL_GROUP {
            self.control.abandon_checkpoint();
        } else if let Some(replica) = self.groups.get_mut(id).and_then(|group| group.replica.as_mut()) {
            replica.abandon_checkpoint();
        }
    }

    /// Moves work that runs beside the event loop into `work`: syncs, and the upkeep of the log.
    pub fn take_work(&mut self, work: &mut Vec<Work>) {
        self.journal.take_work(work);
    }

    /// Takes the result of a piece of that work. Call it within a turn.
    pub fn work_finished(&mut self, work: Work, result: Result<(), DiskError>) {
        if let Some(news) = self.journal.work_finished(work, result, self.now, &mut self.log) {
            self.values.log_says(news);
        }
        self.notify_durable(false);
    }

    /// Settles the log before an orderly end of the process, after the last turn: writes what is left, makes it durable
    /// and notes that it is. Returns true when nothing is left to wait for; until then, call it again, along with
    /// [`Node::take_work`] and [`Node::work_finished`] as in turns.
    pub fn settle_log<D: Disk>(&mut self, disk: &mut D) -> bool {
        self.journal.write(disk, self.now, &mut self.log);
        self.journal.settle(self.now, &mut self.log)
    }

    /// Why the process must end at once, if it must: its disk has failed, and what is on it is unknown. Nothing that
    /// this node has produced since the previous turn may leave the machine.
    pub fn stopped(&self) -> Option<&str> {
        self.journal.stopped().or(self.values.stopped())
    }

    /// Looks whether every replica here is what its protocol's proof says, as [`protocol::Replica::check_invariants`] does.
    /// To be asked between two turns, by simulations.
    ///
    /// # Panics
    /// When an invariant is broken.
    pub fn check_invariants(&self) {
        let replicas = self.groups.iter().filter_map(|(_, group)| group.replica.as_ref());
        replicas.for_each(|replica| replica.check_invariants(self.now));
        self.control.check_invariants(self.now);
    }

    /// Whether this node was removed from the cluster while this process ran. It no longer takes part in anything, and
    /// should end as if it had been asked to.
    pub fn is_removed(&self) -> bool {
        self.is_removed
    }

    /// Whether so much waits to be written that nothing more should be taken from peers. The end of a sync, or a retry
    /// on a full disk, ends that.
    pub fn is_log_behind(&self) -> bool {
        self.journal.is_behind() || self.values.is_behind()
    }

    /// When the next turn must begin even if nothing happens, in microseconds of the monotonic clock.
    pub fn next_wakeup_us(&self) -> u64 {
        let writes_checkpoint = |group| !self.values.holds_checkpoint(group) && !self.journal.is_pacing();
        let is_busy =
            self.journal.has_unwritten() || self.journal.checkpointing().is_some_and(writes_checkpoint);
        if is_busy || self.channels.has_put_off() || self.peers.iter().any(Peer::has_due_requests) {
            return self.now.monotonic_us;
        }
        const IDLE_US: u64 = 100_000;
        let idle = self.now.monotonic_us + IDLE_US;
        let own = idle
            .min(self.control_wakeup_us)
            .min(self.lock_waits.next_due_us())
            .min(self.delays.next_due_us())
            .min(self.waiting.next_due_us());
        let own = own.min(self.alive_due_us);
        let own = own.min(self.coding.wakeup_us()).min(self.values.wakeup_us()).min(self.long.wakeup_us());
        self.groups.awake().map(|group| group.next_tick_us).fold(own, u64::min)
    }

    // Clients.

    /// Connects a client. Returns `None` if there are too many already.
    pub fn connect(&mut self, kind: ClientKind) -> Option<ClientId> {
        if self.sessions.len() >= self.parameters.connections_max() && !self.close_unauthenticated() {
            self.counters.rejected_connections += 1;
            return None;
        }
        self.counters.connections += u64::from(kind != ClientKind::Internal);
        let authenticated = kind == ClientKind::Internal || self.configuration.password.is_none();
        let now_us = self.now.monotonic_us;
        self.arrivals += 1;
        Some(self.sessions.insert(|id| {
            let mut session = Session::new(id, kind, authenticated, now_us);
            session.arrival = self.arrivals;
            session
        }))
    }

    /// Closes the client that has been connected longest without authenticating, so that strangers do not keep clients
    /// out. Returns false if all clients have authenticated, or there is no password.
    #[cold]
    pub fn close_unauthenticated(&mut self) -> bool {
        let strangers = self.sessions.iter().filter(|(_, session)| !session.authenticated);
        let Some((oldest, _)) = strangers.min_by_key(|(_, session)| session.arrival) else { return false };
        self.counters.unauthenticated_closed += 1;
        self.kill(oldest);
        true
    }

    /// Removes a client that has disconnected. Its requests may still take effect; their outcomes go nowhere.
    pub fn disconnect(&mut self, client: ClientId) {
        self.end_subscriptions(client);
        let Some(session) = self.sessions.remove(client) else { return };
        self.memory.end(&session);
        if let Some(number) = session.lock_wait {
            self.leave_lock_wait(number);
        }
    }

    /// The limits of this client's requests.
    pub fn request_limits(&self, client: ClientId) -> Limits {
        let value_bytes_max = self.parameters.value_bytes_max();
        Limits {
            bulk_bytes_max: value_bytes_max,
            request_bytes_max: request_bytes_max(value_bytes_max),
            authenticated: self.sessions.get(client).is_some_and(|session| session.authenticated),
            ..Limits::default()
        }
    }

    /// Lends the buffer that holds the requests that follow: a large value in them may be kept in place instead of
    /// being copied. `None` ends the loan.
    pub fn lend(&mut self, buffer: Option<Arc<Vec<u8>>>) {
        self.lent = buffer;
    }

    /// Whether to read more of a client's input. False while the client has too many requests without an outcome, or
    /// too many unread replies: leave its input alone until it is among the ready clients again, or has taken its
    /// output.
    pub fn wants_input(&self, client: ClientId) -> bool {
        !self.memory.is_overcrowded() && self.sessions.get(client).is_some_and(Session::wants_input)
    }

    /// Whether requests under way take so much memory that no client's large requests are wanted. With twice as much,
    /// no input is wanted at all; reading resumes when this is false.
    pub fn is_crowded(&self) -> bool {
        self.memory.is_crowded()
    }

    /// Whether a request of `request_bytes` may be taken now. If not, it has to wait until there is more room.
    #[inline]
    pub fn has_room_for(&self, request_bytes: usize) -> bool {
        const LARGE_BYTES: usize = 64 << 10;
        request_bytes < LARGE_BYTES || !self.memory.is_crowded()
    }

    /// Answers input that is not a request with an error, behind the client's earlier replies, and closes the
    /// connection.
    pub fn protocol_error(&mut self, client: ClientId, error: &ProtocolError) {
        let text = error.to_string();
        self.answer(client, |replies| replies.error(&text));
        self.close_after_replies(client);
    }

    /// Moves the clients with new output, or whose session has ended, into `clients`.
    pub fn ready_clients(&mut self, clients: &mut Vec<ClientId>) {
        for client in &self.ready {
            if let Some(session) = self.sessions.get_mut(*client) {
                session.listed = false;
            }
        }
        clients.append(&mut self.ready);
    }

    /// The output of a client. `None` if its session has ended and the connection should be closed.
    pub fn output(&mut self, client: ClientId) -> Option<&mut Output> {
        self.sessions.get_mut(client).map(|session| session.output.filled())
    }

    /// Like [`Node::output`], for callers that write large values from where they are.
    pub fn output_in_parts(&mut self, client: ClientId) -> Option<&mut Output> {
        self.sessions.get_mut(client).map(|session| &mut session.output)
    }

    /// Answers a client's request at once, in its order.
    #[inline]
    pub(crate) fn answer(&mut self, client: ClientId, write: impl FnOnce(&mut ReplyBuffer)) {
        if let Some(captured) = &mut self.captured {
            return write(captured);
        }
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
        self.disconnect(client);
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

    /// Sets what the process uses, for `INFO`.
    pub fn set_usage(&mut self, usage: Usage) {
        self.usage = usage;
    }

    /// Moves the lines to be logged into `lines`.
    pub fn take_log(&mut self, lines: &mut Vec<Line>) {
        lines.append(&mut self.log);
    }

    pub(crate) fn log_trace(&mut self, group: u16, event: Trace) {
        let name = self.groups.get(group).map_or_else(String::new, Group::name);
        if let Some(line) = crate::log::describe(&name, &event) {
            self.log.push(line);
        }
    }
}

/// The longest whole request, in bytes: a few values of the greatest length.
pub(crate) fn request_bytes_max(value_bytes_max: usize) -> usize {
    const SMALLEST: usize = 64 << 20;
    (2 * value_bytes_max).max(SMALLEST) + (1 << 20)
}
