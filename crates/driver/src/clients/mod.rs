//! The connections of clients: accepting, reading, writing, and limits on what a client may do.
//!
//! Sockets are edge-triggered and registered once, for reading and writing; the system reports each change once. So a
//! connection remembers what it knows: `has_unread` (a read may find something) and `is_blocked` (a write would find no
//! room). A read that does not fill the buffer has emptied the socket and saves a second read that would find nothing; the
//! end of the input, which such a read can hide, has an event of its own.
//!
//! All connections read into the same buffers, and requests are parsed there. Only a request that is still
//! incomplete at the end of what was read is copied to the connection. A large request is thus copied once more than if it
//! were read in place; that costs as much as clearing the place for it would have cost.
//!
//! Several clients are read before the first one's requests are carried out: see the module `round`.

mod connection;
mod round;

use std::io::{Read, Write};

use node::{ClientId, Node};

use self::connection::{Connection, Standing};
use self::round::Round;
use crate::limiter::Limiter;
use crate::turn::{Clock, Turn};

/// Larger buffers are shrunk when they are not needed.
const RETAINED_BYTES_MAX: usize = 16 << 10;

/// The node's end of a client's connection. Reads and writes do not block: when there is no data, or no room, they fail with
/// [`WouldBlock`](std::io::ErrorKind::WouldBlock), and the world reports when that changes.
pub trait Socket: Read + Write {
    /// The client's address, for the log.
    fn address(&self) -> String;
}

/// What has changed on a connection since the last event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// There may be something to read.
    pub is_readable: bool,
    /// There may be room for output again.
    pub is_writable: bool,
    /// The other end has closed its side, or the connection is broken.
    pub is_over: bool,
}

/// All clients' connections.
pub struct Clients<S> {
    /// Indexed by the node's number for the client.
    connections: Vec<Option<Connection<S>>>,
    /// `client_bytes_in` at the start of the turn.
    bytes_in_before: u64,
    /// Served in the next turn without a new event: a turn's share was used up, or input was put off.
    unfinished: Vec<ClientId>,
    /// Served before those in the next turn: the turn's share of input was used up before they were reached.
    postponed: Vec<ClientId>,
    /// Served again when the node is no longer crowded, or less is under way.
    held: Vec<ClientId>,
    /// Served last in this turn: they have used much lately.
    late: Vec<ClientId>,
    /// Whether it matters in this turn which client has used most.
    shares_by_use: bool,
    /// How many clients waited when the turn began: they share it.
    sharing: usize,
    /// Lists of clients, kept for reuse.
    ready: Vec<ClientId>,
    waiting: Vec<ClientId>,
    /// Clients that have been read and are not served yet.
    round: Round,
    /// Whether the event being handled is the turn's last one, and no other client has been read: reading ahead would gain
    /// nothing.
    is_alone: bool,
    /// Bytes that have arrived and are not consumed yet, over all connections.
    input_bytes: usize,
    input_bytes_max: usize,
    request_timeout_ms: u64,
    limiter: Limiter,
}

impl<S: Socket> Clients<S> {
    /// Creates an empty set of clients. Incomplete requests may take `input_bytes_max` bytes of memory together, and a small
    /// one may take `request_timeout_ms` to arrive.
    pub fn new(input_bytes_max: usize, request_timeout_ms: u64) -> Clients<S> {
        Clients {
            connections: Vec::new(),
            bytes_in_before: 0,
            unfinished: Vec::new(),
            postponed: Vec::new(),
            held: Vec::new(),
            late: Vec::new(),
            shares_by_use: false,
            sharing: 0,
            ready: Vec::new(),
            waiting: Vec::new(),
            round: Round::default(),
            is_alone: false,
            input_bytes: 0,
            input_bytes_max,
            request_timeout_ms,
            limiter: Limiter::default(),
        }
    }

    /// Bytes that have arrived and are not consumed yet, over all connections.
    pub fn input_bytes(&self) -> usize {
        self.input_bytes
    }

    /// Whether the next turn has work that no event will announce.
    pub(crate) fn is_unfinished(&self, node: &Node) -> bool {
        !self.unfinished.is_empty()
            || !self.postponed.is_empty()
            || (!self.held.is_empty() && node.may_go_on())
    }

    /// Adds a client's connection, under the node's number for it.
    pub fn add(&mut self, id: ClientId, socket: S, turn: &Turn<'_, impl Clock>) {
        if self.connections.len() <= id.index() {
            self.connections.resize_with(id.index() + 1, || None);
        }
        let connection = Connection::new(id, socket, turn.now.monotonic_us);
        // A connection that the node has ended in this turn may still be in the slot.
        if let Some(ended) = self.connections[id.index()].replace(connection) {
            self.input_bytes -= ended.input.len();
        }
    }

    /// Handles an event on a client's socket. The event may be older than the connection that is in the slot now; then
    /// reading and writing find nothing to do, which is harmless.
    pub(crate) fn on_change(
        &mut self,
        index: usize,
        change: Change,
        is_last: bool,
        turn: &mut Turn<'_, impl Clock>,
    ) {
        let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else { return };
        let id = connection.id;
        if connection.note(change) {
            self.write(id, turn);
        }
        if self.shares_by_use && self.is_put_last(id, turn) {
            return;
        }
        self.is_alone = is_last && self.round.members.is_empty();
        self.read_or_postpone(id, turn);
        self.is_alone = false;
    }

    /// Begins a turn with the clients whose input waits: first those that were not served in the last turn, in the order of
    /// their arrival, then those that were served and have more. So a client that always has more does not keep the others
    /// waiting. If any has used much of the node's time lately, those that have used least come first, and those that have used
    /// much behind all others: see [`Clients::serve_last`].
    pub(crate) fn serve_waiting(&mut self, turn: &mut Turn<'_, impl Clock>) {
        assert!(self.round.members.is_empty(), "a turn serves all that it has read");
        self.bytes_in_before = turn.counters.client_bytes_in;
        self.round.make_room(turn.buffer.len());
        self.shares_by_use = turn.node.shares_by_use();
        self.sharing = 0;
        if self.is_unfinished(turn.node) {
            self.serve_unfinished(turn);
        }
    }

    fn serve_unfinished(&mut self, turn: &mut Turn<'_, impl Clock>) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.append(&mut self.postponed);
        waiting.append(&mut self.unfinished);
        if turn.node.may_go_on() {
            waiting.append(&mut self.held);
        }
        self.sharing = waiting.len();
        self.serve_all(&mut waiting, turn);
        self.waiting = waiting;
    }

    /// Serves the clients that have used much of the node's time lately, when all others have been served and have what they
    /// asked for: else each of those would wait for some long requests. They have a share of the turn in any case.
    #[inline]
    pub(crate) fn serve_last(&mut self, others: &mut Vec<ClientId>, turn: &mut Turn<'_, impl Clock>) {
        if !self.late.is_empty() {
            self.serve_late(others, turn);
        }
    }

    #[cold]
    fn serve_late(&mut self, others: &mut Vec<ClientId>, turn: &mut Turn<'_, impl Clock>) {
        self.write_replies(others, turn);
        if turn.node.is_spent() {
            turn.node.begin_requests();
        }
        self.bytes_in_before = turn.counters.client_bytes_in;
        let mut late = std::mem::take(&mut self.late);
        self.shares_by_use = false;
        late.sort_by_cached_key(|id| turn.node.used_ns(*id));
        self.serve_all(&mut late, turn);
        self.serve_round(turn);
        self.late = late;
    }

    /// Serves clients, and empties the list.
    fn serve_all(&mut self, clients: &mut Vec<ClientId>, turn: &mut Turn<'_, impl Clock>) {
        if clients.len() > 1 && self.shares_by_use {
            clients.sort_by_cached_key(|id| turn.node.used_ns(*id));
        }
        for id in clients.drain(..) {
            if let Some(connection) = connection_of(&mut self.connections, id) {
                connection.is_listed = false;
                if std::mem::take(&mut connection.has_unwritten) {
                    self.write(id, turn);
                }
                if !(self.shares_by_use && self.is_put_last(id, turn)) {
                    self.read_or_postpone(id, turn);
                }
            }
        }
    }

    /// Whether a client is served last in this turn: it is listed for that.
    #[cold]
    fn is_put_last(&mut self, id: ClientId, turn: &Turn<'_, impl Clock>) -> bool {
        let Some(connection) = connection_of(&mut self.connections, id) else { return false };
        let is_late = turn.node.has_used_much(id);
        if is_late && !std::mem::replace(&mut connection.is_listed, true) {
            self.late.push(id);
        }
        is_late
    }

    /// Serves the clients that have been read. Called when there are no more events.
    pub(crate) fn serve_round(&mut self, turn: &mut Turn<'_, impl Clock>) {
        if self.round.members.is_empty() {
            return;
        }
        turn.has_read();
        if self.round.members.len() > 1 {
            self.look_ahead(turn);
        }
        let mut round = std::mem::take(&mut self.round);
        for member in round.members.drain(..) {
            let arrived = &round.buffer[member.bytes];
            self.serve_with(member.id, turn, |connection, turn| {
                connection.take_arrived(arrived, member.first, turn)
            });
        }
        self.round = round;
    }

    /// Loads what the first requests of the clients in the round need from memory.
    fn look_ahead(&self, turn: &Turn<'_, impl Clock>) {
        let Round { buffer, members } = &self.round;
        let requests = members.iter().filter_map(|member| {
            let connection = self.connections.get(member.id.index())?.as_ref()?;
            connection.first_arguments(&member.first, &buffer[member.bytes.clone()])
        });
        turn.node.warm(requests);
    }

    fn read_or_postpone(&mut self, id: ClientId, turn: &mut Turn<'_, impl Clock>) {
        let Some(connection) = connection_of(&mut self.connections, id) else { return };
        let is_over = turn.counters.client_bytes_in - self.bytes_in_before >= turn.sizes.input_bytes_max;
        if is_over || turn.node.is_spent() {
            if !std::mem::replace(&mut connection.is_listed, true) {
                self.postponed.push(id);
            }
        } else if connection.is_read_ahead {
            // What has been read comes first.
            self.serve_round(turn);
            self.serve(id, turn);
        } else if self.is_alone || !connection.may_be_read_ahead(turn) {
            self.serve(id, turn);
        } else {
            let filled = self.round.filled();
            match connection.read_ahead(&mut self.round.buffer[filled..], turn) {
                Ok(None) => self.serve(id, turn),
                Ok(Some((count, first))) => {
                    self.round.add(id, filled..filled + count, first);
                    if self.round.is_full() {
                        self.serve_round(turn);
                    }
                }
                Err(_) => self.close(id, turn),
            }
        }
    }

    fn serve(&mut self, id: ClientId, turn: &mut Turn<'_, impl Clock>) {
        self.serve_with(id, turn, |connection, turn| connection.take_input(turn));
    }

    /// Serves a client whose input `take` takes.
    fn serve_with<C: Clock>(
        &mut self,
        id: ClientId,
        turn: &mut Turn<'_, C>,
        take: impl FnOnce(&mut Connection<S>, &mut Turn<'_, C>) -> Standing,
    ) {
        let Some(connection) = connection_of(&mut self.connections, id) else { return };
        let before = connection.input.len();
        turn.node.begin_share(self.sharing);
        let standing = take(connection, turn);
        let is_cut = turn.node.is_share_spent();
        let clock = turn.clock;
        turn.node.end_share(id, || clock.monotonic_us());
        self.input_bytes = self.input_bytes + connection.input.len() - before;
        match standing {
            // No event will start the next turn.
            Standing::Waits if is_cut && connection.has_more_input() && !turn.node.is_held_back(id) => {
                self.list(id);
            }
            Standing::Waits => self.keep(id, turn),
            Standing::Unfinished => self.list(id),
            Standing::Broken => self.close(id, turn),
        }
        if self.input_bytes > self.input_bytes_max {
            self.close_largest(turn);
        }
    }

    /// Lists a client that has more input, unless it is among the ready ones again when its requests have their outcomes.
    fn keep(&mut self, id: ClientId, turn: &Turn<'_, impl Clock>) {
        let Some(connection) = connection_of(&mut self.connections, id) else { return };
        if !connection.has_more_input() {
            return;
        }
        if !turn.node.is_held_back(id) {
            if turn.node.wants_input(id) {
                self.list(id);
            }
        } else if !std::mem::replace(&mut connection.is_listed, true) {
            self.held.push(id);
        }
    }

    fn list(&mut self, id: ClientId) {
        if let Some(connection) = connection_of(&mut self.connections, id)
            && !connection.is_listed
        {
            connection.is_listed = true;
            self.unfinished.push(id);
        }
    }

    /// Writes a turn's replies. Clients without a socket are left in `others`.
    pub(crate) fn write_replies(&mut self, others: &mut Vec<ClientId>, turn: &mut Turn<'_, impl Clock>) {
        let mut ready = std::mem::take(&mut self.ready);
        turn.node.ready_clients(&mut ready);
        for id in ready.drain(..) {
            if connection_of(&mut self.connections, id).is_some() {
                self.write(id, turn);
            } else {
                others.push(id);
            }
        }
        self.ready = ready;
    }

    /// Writes the node's output for a client, as far as the socket takes it, and handles what follows.
    fn write(&mut self, id: ClientId, turn: &mut Turn<'_, impl Clock>) {
        let Some(connection) = connection_of(&mut self.connections, id) else { return };
        let mut share = turn.sizes.output_bytes_max;
        loop {
            let Some(output) = turn.node.output_in_parts(id) else {
                return self.close(id, turn);
            };
            let Ok(count) = connection.write(output, turn.now.monotonic_us) else {
                return self.close(id, turn);
            };
            turn.counters.client_bytes_out += count as u64;
            share = share.saturating_sub(count);
            if output.is_over() {
                return self.close(id, turn);
            }
            if output.is_written() || connection.is_blocked() {
                break;
            }
            if share == 0 {
                connection.has_unwritten = true;
                self.list(id);
                return;
            }
        }
        if connection.has_more_input() {
            self.keep(id, turn);
        }
    }

    /// Removes a connection, here and in the node.
    fn close(&mut self, id: ClientId, turn: &mut Turn<'_, impl Clock>) {
        let Some(slot) = self.connections.get_mut(id.index()) else { return };
        if let Some(mut connection) = slot.take_if(|connection| connection.id == id) {
            // Closing a socket with unread input resets it, and a reset overtakes the last reply.
            let _ = connection.socket.read(turn.buffer);
            self.input_bytes -= connection.input.len();
            turn.node.disconnect(id);
        }
    }

    /// Sends a client an error behind the replies it already has, and closes its connection.
    fn refuse(&mut self, id: ClientId, error: &[u8], turn: &mut Turn<'_, impl Clock>) {
        if let Some(output) = turn.node.output_in_parts(id) {
            output.end().extend_from_slice(error);
            if let Some(connection) = connection_of(&mut self.connections, id) {
                let _ = connection.write(output, turn.now.monotonic_us);
            }
        }
        self.close(id, turn);
    }

    fn close_largest(&mut self, turn: &mut Turn<'_, impl Clock>) {
        let connections = self.connections.iter().flatten();
        let Some(largest) = connections.max_by_key(|connection| connection.input.len()) else { return };
        turn.counters.clients_too_large += 1;
        let (id, bytes, bytes_max) = (largest.id, largest.input.len(), self.input_bytes_max);
        let address = largest.socket.address();
        self.limiter.warn(turn.now.monotonic_us, turn.lines, || {
            format!("client {address} was closed: unfinished requests took more than input_bytes_max = {bytes_max}, its {bytes} most")
        });
        let error = b"-ERR unfinished requests take too much memory on this node, and yours takes most\r\n";
        self.refuse(id, error, turn);
    }

    /// Closes clients that are too slow or idle, and shrinks buffers that have grown. Runs once a second.
    pub(crate) fn sweep(&mut self, idle_timeout_seconds: u64, turn: &mut Turn<'_, impl Clock>) {
        self.input_is_counted();
        let now_us = turn.now.monotonic_us;
        for index in 0..self.connections.len() {
            let Some(connection) = &mut self.connections[index] else { continue };
            let id = connection.id;
            // Shrinking the buffer of a large request and growing it again would copy its contents twice.
            if !connection.awaits_rest() {
                shrink(&mut connection.input);
            }
            let room = connection.input.capacity() - connection.input.len();
            turn.node.note_input(id, connection.input.len(), room);
            if let Some(output) = turn.node.output_in_parts(id) {
                shrink(&mut output.bytes);
            }
            if connection.is_too_slow(now_us, self.request_timeout_ms) {
                turn.counters.clients_too_slow += 1;
                self.refuse(id, b"-ERR the request took too long to arrive\r\n", turn);
            } else if connection.is_idle(now_us, idle_timeout_seconds) && !turn.node.awaits_notification(id) {
                turn.counters.clients_idle += 1;
                self.close(id, turn);
            } else if connection.is_forgotten(now_us) {
                self.close(id, turn);
            }
        }
    }

    /// Checks that bytes are counted, and that every connection that can be served is in one list. Simulations call it between
    /// two turns. O(connections).
    ///
    /// # Panics
    /// When an invariant is broken.
    pub(crate) fn check_invariants(&self, node: &Node) {
        self.input_is_counted();
        assert!(self.round.members.is_empty(), "a turn serves all that it has read");
        let lists = [&self.ready, &self.waiting, &self.late];
        assert!(lists.iter().all(|list| list.is_empty()), "a list is empty when it is not used");
        let mut listed: Vec<ClientId> = [&self.unfinished, &self.postponed, &self.held]
            .into_iter()
            .flatten()
            .filter(|id| {
                self.connections.get(id.index()).is_some_and(|it| it.as_ref().is_some_and(|it| it.id == **id))
            })
            .copied()
            .collect();
        listed.sort_unstable_by_key(|id| id.index());
        let own = self.connections.iter().flatten().filter(|connection| connection.is_listed);
        assert!(own.map(|connection| connection.id).eq(listed), "a connection is in one list if it says so");
        for (index, connection) in self.connections.iter().enumerate() {
            if let Some(connection) = connection {
                assert_eq!(connection.id.index(), index, "a connection is in its client's place");
                // With a request that has no outcome yet, it is among the ready ones later.
                let (id, is_listed) = (connection.id, connection.is_listed);
                let is_forgotten = connection.has_more_input()
                    && !is_listed
                    && node.wants_input(id)
                    && !node.has_requests(id);
                assert!(!is_forgotten, "a client whose input is wanted is read, though nothing else happens");
                connection.check_invariants();
            }
        }
    }

    /// Incomplete requests of all clients together have the bytes that are compared with their limit.
    fn input_is_counted(&self) {
        let held: usize = self.connections.iter().flatten().map(|connection| connection.input.len()).sum();
        assert_eq!(held, self.input_bytes, "input that is not consumed");
    }

    /// Whether any replies wait for their clients to make room.
    pub fn has_unwritten(&self) -> bool {
        self.connections.iter().flatten().any(Connection::is_blocked)
    }
}

fn connection_of<S>(connections: &mut [Option<Connection<S>>], id: ClientId) -> Option<&mut Connection<S>> {
    connections.get_mut(id.index())?.as_mut().filter(|connection| connection.id == id)
}

fn shrink(buffer: &mut Vec<u8>) {
    if buffer.capacity() > RETAINED_BYTES_MAX && buffer.len() < buffer.capacity() / 4 {
        buffer.shrink_to(RETAINED_BYTES_MAX);
    }
}
