//! A node's turn: what has arrived goes in, and the node's output is sent.

use super::World;
use super::machine::Machine;
use super::operator::OPERATOR;
use crate::across::Across;
use crate::clients::Downstream;
use crate::conversation::{Conversation, Current, Next as NextStep, Talk};
use crate::events::{Event, Place};
use crate::faults::{Class, MS, Mask, SECOND, Within, has};
use crate::host::{Doom, Host, Process, Session};
use crate::job::{Job, mark};
use crate::message;
use crate::network::Outgoing;
use crate::operation::{Kind, Operation, Reply};
use crate::reading::News;
use crate::report::Broken;
use crate::trace::id;
use driver::{Change, Stopped};
use node::{BoundedMemory, Node};
use std::io::ErrorKind;
use wire::frame::{self, Next};
use wire::resp::ArgumentsBuffer;
use wire::resp::client::Reply as AnyReply;

/// A run heals after this many frames: under some faults of the network, nodes repeat the same messages endlessly, and
/// shorter runs find the same failures.
const FRAMES_MAX: u64 = 1_000_000;

/// In one of this many turns all invariants of a node's replicas are checked: that takes as long as some turns.
const TURNS_PER_CHECK: u64 = 256;

impl World {
    /// Executes a turn of a node: the driver's steps, with what may happen between them.
    pub(super) fn turn(&mut self, place: Place) {
        let host = &mut self.hosts[usize::from(place)];
        host.turn_at = u64::MAX;
        let Some(mut process) = host.process.take() else { return };
        self.turns += 1;
        host.ahead_us = 0;
        if !std::mem::take(&mut host.has_begun) {
            process.begin(&self.machine(place, 0, Mask::MAX));
        }
        let host = &mut self.hosts[usize::from(place)];
        if let Some(us) = host.stall_first_us.take() {
            (host.process, host.has_begun) = (Some(process), true);
            (host.free_at, host.turn_at) = (self.now + us, self.now + us);
            return;
        }
        // A long command is carried out before anything else is read, and before anything leaves.
        let long_us = host.take_long_turn();
        host.ahead_us = long_us;
        process.take_in(&mut self.machine(place, 0, Mask::MAX));
        let host = &mut self.hosts[usize::from(place)];
        let busy_us = 5 + host.random.below(20) + host.slow_us;
        let busy_us = busy_us + long_us;
        let ahead_at = self.now + long_us + (busy_us - long_us) / 2;
        if long_us > 0 {
            self.begin_long_turn(place, long_us);
        }
        let host = &mut self.hosts[usize::from(place)];
        // Where the write takes a moment, messages leave first; the process may die between the two.
        let mut doom = None;
        if process.node.is_about_to_write()
            && host.doom.is_some_and(|doom| !doom.within.writes)
            && sends(place, &mut process.node, self.scenario.nodes)
        {
            (process, doom) = self.still_doomed(place, process);
        }
        let peers = doom.map_or(Mask::MAX, |doom| doom.within.peers);
        process.send_ahead(&mut self.machine(place, ahead_at, peers));
        if let Some(Doom { down_us, noticed, power, .. }) = doom {
            self.counts.add(Class::CrashBeforeWrite);
            self.host(place).process = Some(process);
            return self.die(place, down_us, noticed, power);
        }
        let written = process.write(&mut self.machine(place, 0, Mask::MAX));
        self.learn_map(&process.node);
        self.check_disk_that_was_put_back(place, &process.node);
        if let Err(Stopped { why }) = written {
            return self.stop(place, process, &why);
        }
        let host = &mut self.hosts[usize::from(place)];
        let mut doom = None;
        if is_doomed(host, &mut process.node, self.scenario.nodes) {
            (process, doom) = self.still_doomed(place, process);
        }
        let host = &mut self.hosts[usize::from(place)];
        let leaves_at = ahead_at.max(self.now + host.stall_us.take().unwrap_or(busy_us));
        let (peers, clients) =
            doom.map_or((Mask::MAX, true), |doom| (doom.within.peers, doom.within.clients));
        process.give(&mut self.machine(place, leaves_at, peers));
        self.check_leaderships(place, &process.node);
        self.note_held(&mut process.node);
        if self.turns.is_multiple_of(TURNS_PER_CHECK) {
            process.check_invariants();
            self.check_memory(place, &process.node.bounded_memory());
        }
        let next_us = process.next_turn_us(&self.machine(place, leaves_at, peers));
        let host = &mut self.hosts[usize::from(place)];
        host.free_at = leaves_at;
        // In a pipeline of long commands, one turn follows another.
        host.turn_at = match next_us == 0 || !host.happened.is_empty() || host.long_turns.1 > 0 {
            true => leaves_at,
            false => host.clock.when(next_us, self.now).max(leaves_at),
        };
        let is_held_back =
            process.node.is_log_behind() && host.ways.iter().any(|way| !way.lanes[0].items.is_empty());
        host.process = Some(process);
        if self.turns.is_multiple_of(TURNS_PER_CHECK) {
            self.hosts.iter().for_each(Host::check_invariants);
        }
        if is_held_back {
            self.counts.add(Class::HeldBack);
        }
        self.send_replies(place, leaves_at, clients);
        if let Some(Doom { down_us, noticed, power, .. }) = doom {
            self.die(place, down_us, noticed, power);
        }
    }

    /// Checks that no replica here exceeds its bound on memory by more than two amounts: what commands need beyond their
    /// own bytes, and what all clients request at a time. A removal frees nothing if a write in progress has changed its
    /// key, and no coordinator of registers knows what others admit at the same moment.
    pub(super) fn check_memory(&mut self, place: Place, memory: &[BoundedMemory]) {
        // The first lock of a group takes 8 KiB.
        const SMALL_BYTES: u64 = 4_000 + 8_192;
        let asked = self.scenario.think_us.len() as u64 * self.scenario.pipeline;
        let asked_bytes = asked * (u64::from(self.scenario.value_bytes) + 300);
        for BoundedMemory { group, bytes, bytes_max, .. } in memory {
            let slack = SMALL_BYTES + asked_bytes;
            if *bytes > bytes_max + slack {
                let (node, name) = (id(place), self.map.name_of(*group));
                let words = format!(
                    "node {node} holds {bytes} bytes of {name}, which may have {bytes_max} and {slack}"
                );
                return self.fail(Broken::Safety, words);
            }
        }
    }

    #[inline]
    fn machine(&mut self, place: Place, leaves_at: u64, peers: Mask) -> Machine<'_> {
        Machine { world: self, place, leaves_at, peers }
    }

    /// Decides whether a process that was to die within a turn still may. Too much may have happened since: others
    /// have lost their memory, or have left the in-sync set.
    fn still_doomed(&mut self, place: Place, process: Box<Process>) -> (Box<Process>, Option<Doom>) {
        // The check counts the process as alive.
        let host = self.host(place);
        host.process = Some(process);
        let mut doom = host.doom.take();
        if doom.is_some_and(|doom| !self.may_crash(place, doom.power.is_some())) {
            self.counts.add(Class::CrashSpared);
            doom = None;
        }
        let process = self.host(place).process.take().expect("it was put there");
        (process, doom)
    }

    /// Ends a process at once after a disk failure.
    fn stop(&mut self, place: Place, process: Box<Process>, why: &str) {
        self.host(place).process = Some(process);
        if !self.stop_by_disk(place, why) {
            let words = format!("node {} stops: {why}", id(place));
            return self.fail(Broken::Storage, words);
        }
        let down_us = 10 * MS + self.random.below(SECOND);
        self.crash(place, down_us, true);
    }

    // Clients.

    /// A client connects to a node.
    pub(super) fn hello(&mut self, place: Place, client: u8, connection: u32) {
        let (now, room) = (self.now, self.scenario.client_room);
        let mut session = Session::new(client, connection, room);
        if let Some(caching) =
            self.clients.get(usize::from(client)).and_then(|client| client.caching.as_ref())
        {
            let track: &[&[u8]] = match caching.is_broadcast {
                true => &[b"CLIENT", b"TRACKING", b"ON", b"BCAST"],
                false => &[b"CLIENT", b"TRACKING", b"ON"],
            };
            for greeting in [&[&b"HELLO"[..], b"3"], track] {
                let greeting: ArgumentsBuffer = greeting.iter().copied().collect();
                session.pipe.borrow_mut().push(greeting.as_arguments());
                session.greetings += 1;
            }
        }
        if let Some(reading) =
            self.clients.get(usize::from(client)).and_then(|client| client.reading.as_ref())
        {
            let prefix = &self.scenario.spaces[usize::from(reading.space)].keyspace.prefix;
            let watch = [&b"KEYSPACE"[..], b"WATCH", prefix.as_bytes(), b"FROM", reading.version.as_bytes()];
            for greeting in [&[&b"HELLO"[..], b"3"], &watch[..]] {
                let greeting: ArgumentsBuffer = greeting.iter().copied().collect();
                session.pipe.borrow_mut().push(greeting.as_arguments());
                session.greetings += 1;
            }
        }
        if let Some(job) = self.clients.get_mut(usize::from(client)).and_then(|it| it.job.as_mut()) {
            let space = if let Job::Backup(backup) = job { usize::from(backup.space) } else { 0 };
            session.is_job = true;
            session
                .pipe
                .borrow_mut()
                .push_encoded(&job.requests(&self.scenario.spaces[space].keyspace.prefix));
        }
        let host = &mut self.hosts[usize::from(place)];
        host.sessions.push(session);
        host.has_visitors = true;
        host.wake(now);
    }

    /// Handles a client that hangs up.
    pub(super) fn goodbye(&mut self, place: Place, client: u8, connection: u32) {
        let now = self.now;
        let host = self.host(place);
        if let Some(index) = host.session(client, connection) {
            host.sessions[index].pipe.borrow_mut().is_closed = true;
            host.note_client(now, index, Change { is_over: true, ..Change::default() });
        }
    }

    /// Handles a request. It is passed on at once, unless it begins a transaction or the client is in one.
    pub(super) fn request(&mut self, place: Place, client: u8, connection: u32, operation: Operation) {
        let host = self.host(place);
        if let Some(doom) = &mut host.doom {
            doom.has_request = true;
        }
        let Some(index) = host.session(client, connection) else {
            // It was sent to an earlier process.
            return self.report_closed(client, connection, self.now);
        };
        match &mut host.sessions[index].talk {
            Some(talk) => talk.later.push_back(operation),
            talk @ None if operation.kind.is_conversation() => {
                *talk = Some(Talk { later: [operation].into(), ..Talk::default() });
            }
            None => return self.put_single(place, index, &operation),
        }
        self.continue_talk(place, index);
    }

    fn put_single(&mut self, place: Place, index: usize, operation: &Operation) {
        self.hosts[usize::from(place)].sessions[index].owed += 1;
        self.send_single(place, index, operation);
    }

    fn send_single(&mut self, place: Place, index: usize, operation: &Operation) {
        let prefix = &self.scenario.spaces[usize::from(operation.key.space)].keyspace.prefix;
        operation.request(prefix, &mut self.arguments);
        let host = &mut self.hosts[usize::from(place)];
        host.put_request(self.now, index, self.arguments.as_arguments());
    }

    /// Sends the next requests. A transaction begins when no earlier request is without a reply.
    fn continue_talk(&mut self, place: Place, index: usize) {
        let Some(mut talk) = self.host(place).sessions[index].talk.take() else { return };
        while talk.current.is_none()
            && let Some(operation) = talk.later.front().copied()
        {
            if !operation.kind.is_conversation() {
                self.put_single(place, index, &operation);
            } else if self.host(place).sessions[index].owed > 0 {
                break;
            } else {
                talk.current = Some(match operation.kind {
                    Kind::Transact => Current::Watching(Conversation::new(operation)),
                    _ => Current::Across(Across::new(operation, &self.scenario.spaces)),
                });
            }
            talk.later.pop_front();
        }
        self.send_current(place, index, &mut talk);
        // What comes behind a transaction over several groups is sent at once: its node has to keep the order.
        while !matches!(talk.current, None | Some(Current::Watching(_)))
            && let Some(operation) = talk.later.pop_front_if(|it| it.kind != Kind::Transact)
        {
            let mut next = Talk::default();
            match operation.kind.is_conversation() {
                true => {
                    next.current = Some(Current::Across(Across::new(operation, &self.scenario.spaces)));
                    self.send_current(place, index, &mut next);
                }
                false => {
                    next.current = Some(Current::Single);
                    self.send_single(place, index, &operation);
                }
            }
            talk.behind.extend(next.current);
        }
        if talk.current.is_some() || !talk.later.is_empty() {
            self.host(place).sessions[index].talk = Some(talk);
        }
    }

    /// Sends what the current transaction has to send now.
    fn send_current(&mut self, place: Place, index: usize, talk: &mut Talk) {
        let now = self.now;
        let spaces = &self.scenario.spaces;
        let requests = match &mut talk.current {
            Some(Current::Watching(conversation)) => {
                let space = &spaces[usize::from(conversation.operation().key.space)];
                conversation.take_requests(&space.keyspace.prefix)
            }
            Some(Current::Across(across)) => across.take_requests(spaces),
            Some(Current::Single) | None => Vec::new(),
        };
        for request in requests {
            self.hosts[usize::from(place)].put_request(now, index, request.as_arguments());
        }
    }

    /// Takes a reply off `rest`. Returns what the client gets now, if anything; `None` if this is not a valid reply.
    fn take_answer(&mut self, place: Place, index: usize, rest: &mut &[u8]) -> Option<Option<Reply>> {
        let client = usize::from(self.hosts[usize::from(place)].sessions[index].client);
        let reads = self.clients.get(client).is_some_and(|client| client.reading.is_some());
        let session = &mut self.host(place).sessions[index];
        if session.greetings > 0 {
            session.greetings -= 1;
            let (answer, others) = rest.split_at(Reply::length(rest)?);
            *rest = others;
            // A node that does not know the keyspace yet refuses to send its changes.
            return (reads || !answer.starts_with(b"-")).then_some(None);
        }
        if session.owed > 0 {
            session.owed -= 1;
            let goes_on = session.owed == 0 && session.talk.is_some();
            if goes_on {
                self.continue_talk(place, index);
            }
            return Reply::take(rest).map(Some);
        }
        let Some(Talk { current: current @ Some(_), behind, .. }) = &mut session.talk else {
            return Reply::take(rest).map(Some);
        };
        let mut read = None;
        let next = match current.as_mut()? {
            Current::Single => NextStep::End(Reply::take(rest)?),
            Current::Watching(conversation) => conversation.take(rest)?,
            Current::Across(across) => match across.take(rest)? {
                None => NextStep::Wait,
                Some(reply) => {
                    read = Some((across.operation().number, std::mem::take(&mut across.reads)));
                    NextStep::End(reply)
                }
            },
        };
        let taken = match next {
            NextStep::Wait => return Some(None),
            NextStep::Ask => None,
            NextStep::End(reply) => {
                *current = behind.pop_front();
                Some(reply)
            }
        };
        self.record.reads.extend(read);
        self.continue_talk(place, index);
        Some(taken)
    }

    // Output.

    /// Sends a turn's output to its peers, as far as there is room on the way. If the node dies within the turn, only
    /// some peers receive theirs.
    #[inline]
    pub(super) fn send_frames(&mut self, node: &mut Node, place: Place, leaves_at: u64, peers: Mask) {
        for to in 0..self.scenario.nodes {
            if to == place || !knows(node, to) {
                continue;
            }
            // The node's view may be older than the connection.
            let generation = self.hosts[usize::from(place)].ways[usize::from(to)].link;
            let stands = generation.is_some() && *self.network.end(place, to) == generation;
            let generation = generation.filter(|_| stands && has(peers, to));
            for is_urgent in [false, true] {
                let output = output_of(node, to, is_urgent);
                if output.is_empty() {
                    continue;
                }
                let mut bytes = std::mem::take(output);
                let sent = generation.map_or(Some(bytes.len()), |generation| {
                    self.send_bytes(node, leaves_at, (place, to, is_urgent), generation, &bytes)
                });
                let Some(sent) = sent else {
                    let words = format!("node {} sends an incomplete frame", id(place));
                    return self.fail(Broken::Language, words);
                };
                bytes.drain(..sent);
                *output_of(node, to, is_urgent) = bytes;
            }
        }
    }

    /// Sends as many frames as there is room for, and returns their length in bytes. `None`: these are not frames.
    fn send_bytes(
        &mut self,
        node: &Node,
        leaves_at: u64,
        (from, to, is_urgent): (Place, Place, bool),
        generation: u32,
        bytes: &[u8],
    ) -> Option<usize> {
        let mut sent = 0;
        while sent < bytes.len() {
            if !is_urgent && !self.network.has_room(from, to) {
                self.counts.add(Class::FullOutput);
                break;
            }
            let Ok(Next::Frame { payload, consumed }) =
                frame::next(&bytes[sent..], node.peer_payload_bytes_max())
            else {
                return None;
            };
            self.send_frame(leaves_at, (from, to, is_urgent), generation, payload);
            sent += consumed;
        }
        Some(sent)
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
        self.trace.note(kv::digest::digest_of(payload));
        let keeps_order = !message::stands_for_itself(payload);
        let buffer = self.buffers.put(payload);
        let frame = Outgoing { from, to, generation, buffer, keeps_order, is_urgent };
        let sent = self.network.send(leaves_at, frame, &mut self.buffers, &mut self.queue, &mut self.counts);
        if self.trace.is_on() {
            let what = message::describe(payload, &self.scenario.spaces, &self.map);
            let lost = if sent { "" } else { "  LOST" };
            self.trace.tell(self.now, format_args!("  {}->{} {what}{lost}", id(from), id(to)));
        }
    }

    /// Sends a turn's output to clients, unless the process dies before that.
    fn send_replies(&mut self, place: Place, leaves_at: u64, clients: bool) {
        let mut index = 0;
        while index < self.hosts[usize::from(place)].sessions.len() {
            let session = &self.hosts[usize::from(place)].sessions[index];
            let (client, connection, is_over) = (session.client, session.connection, session.is_over());
            let mut pipe = session.pipe.borrow_mut();
            if pipe.written.len() > pipe.left {
                let mut written = std::mem::take(&mut pipe.written);
                let fresh = written.len() - pipe.left;
                drop(pipe);
                if clients {
                    self.take_rooms(place, index, leaves_at, fresh);
                    self.deliver_replies(place, index, leaves_at, &mut written);
                } else {
                    written.clear();
                }
                let mut pipe = self.hosts[usize::from(place)].sessions[index].pipe.borrow_mut();
                (pipe.left, pipe.written) = (written.len(), written);
            } else {
                drop(pipe);
            }
            if is_over {
                self.host(place).sessions.remove(index);
                self.report_closed(client, connection, leaves_at);
            } else {
                index += 1;
            }
        }
    }

    /// Counts `bytes` as in flight to a client; they take room until it has read them.
    fn take_rooms(&mut self, place: Place, index: usize, leaves_at: u64, bytes: usize) {
        let Session { client, connection, .. } = self.hosts[usize::from(place)].sessions[index];
        if self.scenario.client_room == usize::MAX || client == OPERATOR {
            return;
        }
        let slow_us = self.scenario.reading_us;
        let latency_us = self.client_latency(client);
        let reads_us = self.clients[usize::from(client)].random.below(slow_us + 1);
        let at = leaves_at + latency_us + reads_us;
        self.queue.push(at, Event::Room { node: place, client, connection, bytes: bytes as u32 });
    }

    /// Handles a client's read.
    pub(super) fn client_has_read(&mut self, place: Place, client: u8, connection: u32, bytes: u32) {
        let now = self.now;
        let host = self.host(place);
        if let Some(index) = host.session(client, connection) {
            let is_starved = host.sessions[index].pipe.borrow_mut().make_room(bytes as usize);
            if is_starved {
                host.note_client(now, index, Change { is_writable: true, ..Change::default() });
                self.counts.add(Class::SlowReader);
            }
        }
    }

    /// Sends a client the complete replies, and removes them from `written`.
    fn deliver_replies(&mut self, place: Place, index: usize, leaves_at: u64, written: &mut Vec<u8>) {
        let Session { client, connection, is_job, .. } = self.hosts[usize::from(place)].sessions[index];
        if is_job {
            return self.deliver_to_job(place, index, leaves_at, written);
        }
        let mut rest = written.as_slice();
        while Reply::length(rest).is_some() {
            if self.trace.is_on() && rest[0] == b'-' {
                let line = rest.split(|byte| *byte == b'\r').next().unwrap_or_default();
                let text = String::from_utf8_lossy(line);
                self.trace.tell(self.now, format_args!("node {} to client {client}: {text}", id(place)));
            }
            if rest[0] == b'>'
                && let Some(news) = News::take(&mut rest)
            {
                self.send_downstream((client, connection), leaves_at, Downstream::News(news));
                continue;
            }
            if rest[0] == b'>'
                && let Some(keys) = Reply::take_invalidation(&mut rest)
            {
                for key in keys.iter().map(|key| Some((*key).into())).chain(keys.is_empty().then_some(None)) {
                    self.send_downstream((client, connection), leaves_at, Downstream::Invalid(key));
                }
                continue;
            }
            let Some(taken) = self.take_answer(place, index, &mut rest) else {
                let words = format!("node {} answers something that is not a reply", id(place));
                return self.fail(Broken::Language, words);
            };
            let Some(reply) = taken else { continue };
            if client == OPERATOR {
                // The operator uses each connection for one command.
                self.goodbye(place, client, connection);
                self.order_answered(connection, reply);
            } else {
                self.send_downstream((client, connection), leaves_at, Downstream::Reply(reply));
            }
        }
        let taken = written.len() - rest.len();
        written.drain(..taken);
    }

    /// The same for a client that makes or restores a backup.
    fn deliver_to_job(&mut self, place: Place, index: usize, leaves_at: u64, written: &mut Vec<u8>) {
        let session = &mut self.hosts[usize::from(place)].sessions[index];
        let to = (session.client, session.connection);
        let mut rest = written.as_slice();
        let mut replies = Vec::new();
        loop {
            if let Some(mark) = &session.mark {
                // Nothing follows the mark.
                let Some(file) = rest.strip_suffix(mark.as_slice()) else { break };
                replies.push(AnyReply::Bulk(file.to_vec()));
                (rest, session.mark) = (&[], None);
            }
            let mut behind = rest;
            match AnyReply::read(&mut behind) {
                Ok(reply) => {
                    session.mark = if let AnyReply::Status(text) = &reply { mark(text) } else { None };
                    replies.push(reply);
                    rest = behind;
                }
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
                Err(error) => {
                    let words = format!("node {} sends a client with a backup: {error}", id(place));
                    return self.fail(Broken::Language, words);
                }
            }
        }
        let taken = written.len() - rest.len();
        written.drain(..taken);
        for reply in replies {
            self.send_downstream(to, leaves_at, Downstream::OfJob(reply));
        }
    }

    fn send_downstream(&mut self, (client, connection): (u8, u32), leaves_at: u64, what: Downstream) {
        let latency_us = self.client_latency(client);
        let to = &mut self.clients[usize::from(client)];
        to.downstream_until = to.downstream_until.max(leaves_at + latency_us);
        to.downstream.push_back((connection, what));
        self.queue.push(to.downstream_until, Event::Downstream { client });
    }
}

/// Whether a node knows of another one.
pub(super) fn knows(node: &Node, other: Place) -> bool {
    node.configuration().nodes.iter().any(|address| address.id == id(other))
}

/// Whether a process dies within this turn, which is complete except for its output.
fn is_doomed(host: &mut Host, node: &mut Node, nodes: Place) -> bool {
    let Some(doom) = host.doom.filter(|doom| doom.within.writes) else { return false };
    if doom.within.after_request.is_some() && !(doom.has_request && sends(host.place, node, nodes)) {
        return false;
    }
    let Some(Doom { within: Within { after_request: Some(turns), .. }, .. }) = &mut host.doom else {
        return true;
    };
    let is_it = *turns == 0;
    *turns = turns.saturating_sub(1);
    is_it
}

/// Whether a node has messages for its peers.
fn sends(place: Place, node: &mut Node, nodes: Place) -> bool {
    (0..nodes).any(|to| to != place && knows(node, to) && !node.peer_output(id(to)).is_empty())
}

/// Returns a node's output buffer for another one.
fn output_of(node: &mut Node, to: Place, is_urgent: bool) -> &mut Vec<u8> {
    match is_urgent {
        true => node.peer_urgent_output(id(to)),
        false => node.peer_output(id(to)),
    }
}
