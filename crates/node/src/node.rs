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

/// What the node has counted since its start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections: u64,
    pub(crate) rejected_connections: u64,
    /// Clients that had not authenticated and made room for others.
    pub(crate) strangers_closed: u64,
    /// Connections for Redis clients that spoke HTTP.
    pub(crate) http_requests_refused: u64,
    pub(crate) commands: u64,
    pub(crate) forwarded: u64,
    pub(crate) errors: u64,
    pub(crate) output_overflows: u64,
    /// Messages of channels that were not sent to a peer with too much on its way to it.
    pub(crate) messages_dropped: u64,
    /// Clients that were closed for the memory that they took, and commands that were refused for lack of memory.
    pub(crate) memory_closed: u64,
    pub(crate) memory_refused: u64,
    /// Writes that this node has sent to their groups in parts, and replies that it has sent so to other nodes.
    pub(crate) long_writes: u64,
    pub(crate) long_replies: u64,
}

/// One node, without its sockets: requests and peers' frames go in, replies and frames come out.
pub struct Node {
    pub(crate) quarantine: Quarantine,
    pub(crate) configuration: Configuration,
    pub(crate) parameters: Parameters,
    pub(crate) statistics: CommandStatistics,
    pub(crate) counters: Counters,
    pub(crate) usage: Usage,
    pub(crate) memory: Memory,
    /// What was done for clients in this turn; see [`Node::spend`].
    pub(crate) spent_ns: u64,
    pub(crate) room: Room,
    pub(crate) rate: Rate,
    /// The time of this turn: what `clock` makes of the machine's clocks.
    pub(crate) now: Now,
    pub(crate) clock: Clock,
    pub(crate) started: Now,
    pub(crate) groups: Groups,
    pub(crate) journal: Journal,
    pub(crate) control: Control,
    pub(crate) control_effects: control::Effects,
    pub(crate) control_tail: Tail,
    /// The control component has been given something in this turn.
    pub(crate) control_is_due: bool,
    pub(crate) control_wakeup_us: u64,
    /// The newest map that was agreed on.
    pub(crate) map: Rc<ClusterMap>,
    pub(crate) map_record: Vec<u8>,
    /// What the control component keeps beside it.
    pub(crate) positions_record: Vec<u8>,
    /// The records of both.
    pub(crate) map_tail: Tail,
    /// The one that says that this start was let in.
    pub(crate) admission_record: u64,
    /// The control group has let this node take part.
    pub(crate) is_admitted: bool,
    /// It was removed from the cluster.
    pub(crate) is_removed: bool,
    /// Clients that wait for changes of the map, and how many changes were ever asked for here.
    pub(crate) wanted: Vec<Wanted>,
    pub(crate) requests: u64,
    pub(crate) router: Router,
    pub(crate) sessions: Slab<Session>,
    /// How many sessions there have ever been.
    pub(crate) arrivals: u64,
    pub(crate) ready: Vec<ClientId>,
    pub(crate) peers: Vec<Peer>,
    /// When the other nodes are told next that this one is there.
    pub(crate) alive_due_us: u64,
    pub(crate) forwards: Slab<Forwarded>,
    pub(crate) forwards_checked_us: u64,
    /// What these asked, as far as it may be asked again.
    pub(crate) forwarded: ForwardedBytes,
    /// Requests that nobody can be asked now.
    pub(crate) waiting: Waiting,
    pub(crate) gathers: Slab<Gather>,
    pub(crate) lock_waits: Waits,
    /// Answers that are held back for a while.
    pub(crate) delays: Delays,
    /// Keeps passwords from being guessed.
    pub(crate) auth_guard: AuthGuard,
    /// When the next HTTP at the port for Redis clients is logged.
    pub(crate) http_warning_due_us: u64,
    /// Who listens to channels, of the clients of this node.
    pub(crate) channels: Channels,
    pub(crate) coding: Coding,
    pub(crate) long: LongCommands,
    /// The buffer in which the requests stand that are being taken, if it may be kept.
    pub(crate) lent: Option<Arc<Vec<u8>>>,
    pub(crate) values: Values,
    /// What replicas' steps leave, to be settled.
    pub(crate) effects: Box<Effects>,
    /// Stands in for them meanwhile; see [`Node::settle`].
    pub(crate) spare_effects: Option<Box<Effects>>,
    /// Bytes of key lists while a command is carried out.
    pub(crate) scratch: Vec<u8>,
    /// The scripts that clients can name by their digests.
    pub(crate) scripts: scripts::Cache,
    /// The reply of a command that the node answers itself.
    pub(crate) replies: ReplyBuffer,
    /// Answers go here, while the commands of a transaction are carried out.
    pub(crate) captured: Option<ReplyBuffer>,
    pub(crate) random: u64,
    pub(crate) log: Vec<Line>,
}

impl Node {
    /// Does something for each group.
    pub(crate) fn for_each_group(&mut self, mut each: impl FnMut(&mut Node, u16)) {
        let mut place = 0;
        while let Some(id) = self.groups.id_at(place) {
            place += 1;
            each(self, id);
        }
    }

    /// Does something for each group that does not rest.
    pub(crate) fn for_each_awake(&mut self, mut each: impl FnMut(&mut Node, u16)) {
        let mut place = 0;
        while let Some(id) = self.groups.awake_at(place) {
            place += 1;
            each(self, id);
        }
    }

    /// Gives a group's replica here an input that is no message, and carries out what follows from it.
    #[inline]
    pub(crate) fn step(&mut self, group: u16, input: Input<'_, &[u8]>) {
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

    /// The version of the cluster map that [`Node::configuration`] follows; it grows with each. 0: none was agreed on yet.
    pub fn map_version(&self) -> u64 {
        self.map.version
    }

    /// The values of `CONFIG GET`.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    // Turns.

    /// Begins a turn: everything until [`Node::end_turn`] happens at `now`, which the machine's clocks show.
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
                // Each peer has its share, and this node's clients theirs.
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
            self.forsake_former_lives();
            self.look_for_fragments();
            self.report_members();
            self.tend_clock();
            self.tend_quarantine();
            self.tend_room();
        }
    }

    /// The monotonic clock was read again, within the turn: what is put in from now on had arrived by then.
    #[inline]
    pub fn advance(&mut self, now: Now) {
        self.now = self.clock.advance(now);
    }

    /// All of this turn has come in: replicas make their batches, and messages of them. What is there for peers after this
    /// rests on nothing that is still to be written, so it may leave before [`Node::end_turn`] writes: they work on it
    /// meanwhile.
    pub fn flush(&mut self) {
        self.coding_pump();
        self.pump_long();
        self.for_each_awake(|node, id| node.step(id, Input::Flush));
        self.flush_control();
    }

    /// True when [`Node::end_turn`] will write to the disk at once, which takes a moment.
    pub fn is_about_to_write(&self) -> bool {
        self.journal.has_unwritten()
    }

    /// Ends a turn, behind [`Node::flush`]: its records are written, and what rests on that, or was gathered for each peer,
    /// leaves.
    pub fn end_turn<D: Disk>(&mut self, disk: &mut D) {
        self.close_doomed();
        self.checkpoint();
        self.pump_values();
        // Where what is written is as good as durable, its replica goes on at once, and may record more.
        const ROUNDS_MAX: u32 = 4;
        for _ in 0..ROUNDS_MAX {
            self.journal.write(disk, self.now, &mut self.log);
            self.tell_durable(true);
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

    /// Tells replicas which of their records have become durable, and lets go what waited for them.
    fn tell_durable(&mut self, flushes: bool) {
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

    /// Begins a checkpoint when one is due, or goes on with the one that is under way.
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

    /// Moves what is to be run beside the loop into `work`: syncs, and the upkeep of the log.
    pub fn take_work(&mut self, work: &mut Vec<Work>) {
        self.journal.take_work(work);
    }

    /// A piece of that work is over. Within a turn.
    pub fn work_finished(&mut self, work: Work, result: Result<(), DiskError>) {
        if let Some(news) = self.journal.work_finished(work, result, self.now, &mut self.log) {
            self.values.log_says(news);
        }
        self.tell_durable(false);
    }

    /// The process is about to end in an orderly way, and there are no more turns: what is left is written, and is to be
    /// durable and noted as such. True when there is nothing left to wait for; until then this is to be called again, and
    /// [`Node::take_work`] and [`Node::work_finished`] as in turns.
    pub fn settle_log<D: Disk>(&mut self, disk: &mut D) -> bool {
        self.journal.write(disk, self.now, &mut self.log);
        self.journal.settle(self.now, &mut self.log)
    }

    /// Why the process must end at once, if it must: its disk has failed, and nobody knows what is on it. Nothing that
    /// this node has left since the turn before may leave the machine.
    pub fn stopped(&self) -> Option<&str> {
        self.journal.stopped().or(self.values.stopped())
    }

    /// True when this node was removed from the cluster while this process ran: it takes part in nothing any more, and is to
    /// end as if it had been asked to.
    pub fn is_removed(&self) -> bool {
        self.is_removed
    }

    /// True while so much waits to be written that nothing more should be taken from peers. The end of a sync, or a try
    /// on a full disk, ends that.
    pub fn is_log_behind(&self) -> bool {
        self.journal.is_behind() || self.values.is_behind()
    }

    /// When, on the monotonic clock, the next turn must begin even if nothing happens.
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

    /// A client has connected. `None`: there are too many already.
    pub fn connect(&mut self, kind: ClientKind) -> Option<ClientId> {
        if self.sessions.len() >= self.parameters.connections_max() && !self.close_a_stranger() {
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

    /// Closes the client that has been connected longest of those that have not authenticated, so that strangers do not
    /// keep clients out. False if all have, or there is no password.
    #[cold]
    pub fn close_a_stranger(&mut self) -> bool {
        let strangers = self.sessions.iter().filter(|(_, session)| !session.authenticated);
        let Some((oldest, _)) = strangers.min_by_key(|(_, session)| session.arrival) else { return false };
        self.counters.strangers_closed += 1;
        self.kill(oldest);
        true
    }

    /// A client is gone. What it asked may still happen; nobody is told.
    pub fn disconnect(&mut self, client: ClientId) {
        self.end_subscriptions(client);
        let Some(session) = self.sessions.remove(client) else { return };
        self.memory.end(&session);
        if let Some(number) = session.lock_wait {
            self.leave_lock_wait(number);
        }
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

    /// The requests that follow stand in this buffer: a large value of theirs may be kept where it is instead of being copied.
    /// Taken back with `None`.
    pub fn lend(&mut self, buffer: Option<Arc<Vec<u8>>>) {
        self.lent = buffer;
    }

    /// False when the client has too many requests without an outcome, or too many replies unread: its input
    /// is to be left alone until it is among the ready clients again, or has taken its output.
    pub fn wants_input(&self, client: ClientId) -> bool {
        !self.memory.is_overcrowded() && self.sessions.get(client).is_some_and(Session::wants_input)
    }

    /// True while requests under way take so much memory that no client's large requests are wanted. With twice as much no
    /// input is wanted at all; it goes on when this is false.
    pub fn is_crowded(&self) -> bool {
        self.memory.is_crowded()
    }

    /// False for a request of so many bytes that has to wait until there is more room.
    #[inline]
    pub fn has_room_for(&self, request_bytes: usize) -> bool {
        const LARGE_BYTES: usize = 64 << 10;
        request_bytes < LARGE_BYTES || !self.memory.is_crowded()
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
        self.sessions.get_mut(client).map(|session| session.output.filled())
    }

    /// The same, for those who write large values from where they are.
    pub fn output_in_parts(&mut self, client: ClientId) -> Option<&mut Output> {
        self.sessions.get_mut(client).map(|session| &mut session.output)
    }

    /// Answers a request of a client at once, in its order.
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

    /// Tells the node what its process uses, for `INFO`.
    pub fn set_usage(&mut self, usage: Usage) {
        self.usage = usage;
    }

    /// Moves what is to be logged into `lines`.
    pub fn take_log(&mut self, lines: &mut Vec<Line>) {
        lines.append(&mut self.log);
    }

    pub(crate) fn tell(&mut self, group: u16, event: Trace) {
        let name = self.groups.get(group).map_or_else(String::new, Group::name);
        if let Some(line) = crate::log::describe(&name, &event) {
            self.log.push(line);
        }
    }
}

/// The longest whole request: a few values of the greatest length.
pub(crate) fn request_bytes_max(value_bytes_max: usize) -> usize {
    const SMALLEST: usize = 64 << 20;
    (2 * value_bytes_max).max(SMALLEST) + (1 << 20)
}
