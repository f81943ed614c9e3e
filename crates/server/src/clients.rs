//! The connections of clients: accepting, reading, writing, and what a client may not do.
//!
//! Sockets are edge-triggered and registered once, for reading and writing; the system tells of each change
//! one time. So a connection remembers what it knows: `has_unread` (a read may find something) and
//! `is_blocked` (a write would find no room). A read that does not fill the buffer has emptied the socket and
//! spares the one that would only say so; the end of the input, which such a read can hide, is announced by
//! its own event.
//!
//! All connections read into one buffer of the worker and requests are parsed in it. Only what does not end in
//! it, the beginning of a request, is copied to the connection. A large request is thus copied once more than
//! if it were read in place; that costs what clearing the place for it would have cost.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;

use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use node::{ClientId, ClientKind, Node, Output};
use wire::resp::{Progress, RequestParser};

use crate::worker::{CLIENT_TOKENS, Turn};

/// Most bytes that one client's input may take of a turn, so that nobody waits long for his own.
const TURN_BYTES_MAX: usize = 256 << 10;

/// Most clients that are let in per turn.
const TURN_ACCEPTS_MAX: usize = 64;

/// How long a client that has ended its input may wait for its last replies.
const LAST_REPLIES_US_MAX: u64 = 10_000_000;

/// Buffers that have grown larger than this are given back when they are not needed.
const RETAINED_BYTES_MAX: usize = 16 << 10;

/// How fast a large request must arrive: each millisecond beyond the timeout must have brought this much.
const REQUEST_BYTES_PER_MS: usize = 100;

/// All clients' connections.
pub(crate) struct Clients {
    /// By the index that the node has given the client.
    connections: Vec<Option<Connection>>,
    /// Who goes on in the next turn without a new event: a turn's share was used up, or input was put off.
    unfinished: Vec<ClientId>,
    /// Buffers for lists of clients, kept for reuse.
    ready: Vec<ClientId>,
    serving: Vec<ClientId>,
    /// Bytes that have arrived and are not taken yet, over all connections.
    input_bytes: usize,
    input_bytes_max: usize,
    request_timeout_ms: u64,
}

struct Connection {
    id: ClientId,
    socket: TcpStream,
    parser: RequestParser,
    /// What has arrived and is not taken yet: the beginning of a request, or requests put off.
    input: Vec<u8>,
    /// How much of the node's output is written.
    written: usize,
    /// When the request whose beginning is in `input` began, if one is.
    partial_since_us: Option<u64>,
    heard_us: u64,
    /// When its input ended, if it has.
    ended_us: Option<u64>,
    /// The socket may hold more.
    has_unread: bool,
    /// The client has closed its side: read on until the end is seen.
    is_hung_up: bool,
    /// The socket had no room for output.
    is_blocked: bool,
    /// Whole requests may be in `input`: the node did not want them.
    is_put_off: bool,
    /// In the list of unfinished ones.
    is_listed: bool,
}

/// How a connection stands after its input was taken.
enum Standing {
    /// Nothing to do until something happens.
    Waits,
    /// There is more to read.
    Unfinished,
    /// The connection broke.
    Broken,
}

impl Clients {
    /// No clients yet.
    pub(crate) fn new(input_bytes_max: usize, request_timeout_ms: u64) -> Clients {
        Clients {
            connections: Vec::new(),
            unfinished: Vec::new(),
            ready: Vec::new(),
            serving: Vec::new(),
            input_bytes: 0,
            input_bytes_max,
            request_timeout_ms,
        }
    }

    /// Bytes that have arrived and are not taken yet.
    pub(crate) fn input_bytes(&self) -> usize {
        self.input_bytes
    }

    /// True when the next turn has work that no event will announce.
    pub(crate) fn is_unfinished(&self) -> bool {
        !self.unfinished.is_empty()
    }

    /// Lets in who waits at the door. True when more may wait.
    ///
    /// # Errors
    /// The system refuses, as when it has no more file descriptors: try again later.
    pub(crate) fn accept(
        &mut self,
        listener: &TcpListener,
        registry: &Registry,
        turn: &mut Turn<'_>,
    ) -> io::Result<bool> {
        for _ in 0..TURN_ACCEPTS_MAX {
            match listener.accept() {
                Ok((socket, address)) => self.let_in(socket, address.to_string(), registry, turn),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn let_in(&mut self, mut socket: TcpStream, address: String, registry: &Registry, turn: &mut Turn<'_>) {
        // A client that is gone already shows when it is read.
        let _ = socket.set_nodelay(true);
        let local_address = socket.local_addr().map_or(String::new(), |local| local.to_string());
        let kind = ClientKind::Resp { address, local_address, fd: socket.as_raw_fd() };
        let Some(id) = turn.node.connect(kind) else {
            let _ = socket.write(b"-ERR max number of clients reached\r\n");
            return;
        };
        let token = Token(CLIENT_TOKENS + id.index());
        if let Err(error) = registry.register(&mut socket, token, Interest::READABLE | Interest::WRITABLE) {
            tracing::warn!("a client was turned away: its socket cannot be watched: {error}");
            turn.node.disconnect(id);
            return;
        }
        if self.connections.len() <= id.index() {
            self.connections.resize_with(id.index() + 1, || None);
        }
        self.connections[id.index()] = Some(Connection {
            id,
            socket,
            parser: RequestParser::new(),
            input: Vec::new(),
            written: 0,
            partial_since_us: None,
            heard_us: turn.now.monotonic_us,
            ended_us: None,
            has_unread: false,
            is_hung_up: false,
            is_blocked: false,
            is_put_off: false,
            is_listed: false,
        });
    }

    /// Something happened at a client's socket. An event may be older than the connection that has its place
    /// now; then this one looks in vain, which does no harm.
    pub(crate) fn on_event(&mut self, index: usize, event: &mio::event::Event, turn: &mut Turn<'_>) {
        let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else { return };
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            connection.has_unread = true;
        }
        connection.is_hung_up |= event.is_read_closed() || event.is_error();
        let id = connection.id;
        if event.is_writable() && connection.is_blocked {
            connection.is_blocked = false;
            self.write(id, turn);
        }
        self.serve(id, turn);
    }

    /// Goes on with those whose input was not finished in the last turn.
    pub(crate) fn serve_unfinished(&mut self, turn: &mut Turn<'_>) {
        std::mem::swap(&mut self.unfinished, &mut self.serving);
        for position in 0..self.serving.len() {
            let id = self.serving[position];
            if let Some(connection) = connection_of(&mut self.connections, id) {
                connection.is_listed = false;
                self.serve(id, turn);
            }
        }
        self.serving.clear();
    }

    fn serve(&mut self, id: ClientId, turn: &mut Turn<'_>) {
        let Some(connection) = connection_of(&mut self.connections, id) else { return };
        let before = connection.input.len();
        let standing = connection.take_input(turn);
        self.input_bytes = self.input_bytes + connection.input.len() - before;
        match standing {
            Standing::Waits => {}
            Standing::Unfinished => self.list(id),
            Standing::Broken => self.close(id, turn),
        }
        if self.input_bytes > self.input_bytes_max {
            self.close_largest(turn);
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

    /// Writes a turn's replies. Clients of other kinds than these are left in `others`.
    pub(crate) fn write_replies(&mut self, others: &mut Vec<ClientId>, turn: &mut Turn<'_>) {
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

    /// Writes what the node has for a client, as far as the socket takes it, and does what comes after.
    fn write(&mut self, id: ClientId, turn: &mut Turn<'_>) {
        let Some(connection) = connection_of(&mut self.connections, id) else { return };
        let Some(output) = turn.node.output(id) else {
            return self.close(id, turn);
        };
        match connection.write(output) {
            Ok(count) => turn.counters.client_bytes_out += count as u64,
            Err(_) => return self.close(id, turn),
        }
        if output.bytes.is_empty() && output.close {
            return self.close(id, turn);
        }
        let is_waiting = connection.is_put_off || connection.has_unread;
        if is_waiting && turn.node.wants_input(id) {
            self.list(id);
        }
    }

    /// Forgets a connection, here and in the node.
    fn close(&mut self, id: ClientId, turn: &mut Turn<'_>) {
        let Some(slot) = self.connections.get_mut(id.index()) else { return };
        if let Some(mut connection) = slot.take_if(|connection| connection.id == id) {
            // Closing a socket with unread input resets it, and a reset overtakes the last reply.
            let _ = connection.socket.read(turn.buffer);
            self.input_bytes -= connection.input.len();
            turn.node.disconnect(id);
        }
    }

    /// Tells a client why, and closes its connection. The text stands behind what it has been answered.
    fn refuse(&mut self, id: ClientId, error: &[u8], turn: &mut Turn<'_>) {
        if let Some(output) = turn.node.output(id) {
            output.bytes.extend_from_slice(error);
            if let Some(connection) = connection_of(&mut self.connections, id) {
                let _ = connection.write(output);
            }
        }
        self.close(id, turn);
    }

    fn close_largest(&mut self, turn: &mut Turn<'_>) {
        let connections = self.connections.iter().flatten();
        let Some(largest) = connections.max_by_key(|connection| connection.input.len()) else { return };
        turn.counters.clients_too_large += 1;
        tracing::warn!(
            "client {} was closed: unfinished requests took more than input_bytes_max = {}, and its {} bytes most",
            largest.socket.peer_addr().map_or(String::from("?"), |address| address.to_string()),
            self.input_bytes_max,
            largest.input.len()
        );
        let error = b"-ERR unfinished requests take too much memory on this node, and yours takes most\r\n";
        self.refuse(largest.id, error, turn);
    }

    /// Once a second: closes who is too slow or idle, gives back buffers that have grown.
    pub(crate) fn sweep(&mut self, idle_timeout_seconds: u64, turn: &mut Turn<'_>) {
        let now_us = turn.now.monotonic_us;
        for index in 0..self.connections.len() {
            let Some(connection) = &mut self.connections[index] else { continue };
            let id = connection.id;
            shrink(&mut connection.input);
            if let Some(output) = turn.node.output(id) {
                shrink(&mut output.bytes);
            }
            let silent_us = now_us.saturating_sub(connection.heard_us);
            if connection.is_too_slow(now_us, self.request_timeout_ms) {
                turn.counters.clients_too_slow += 1;
                self.refuse(id, b"-ERR the request took too long to arrive\r\n", turn);
            } else if idle_timeout_seconds > 0 && silent_us > idle_timeout_seconds.saturating_mul(1_000_000) {
                turn.counters.clients_idle += 1;
                self.close(id, turn);
            } else if connection.ended_us.is_some_and(|since| now_us.saturating_sub(since) > LAST_REPLIES_US_MAX) {
                self.close(id, turn);
            }
        }
    }

    /// True while replies wait for their clients to make room.
    pub(crate) fn has_unwritten(&self) -> bool {
        self.connections.iter().flatten().any(|connection| connection.is_blocked)
    }
}

fn connection_of(connections: &mut [Option<Connection>], id: ClientId) -> Option<&mut Connection> {
    connections.get_mut(id.index())?.as_mut().filter(|connection| connection.id == id)
}

/// True for errors of one connection, or of the moment.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), Interrupted | ConnectionAborted | ConnectionReset)
}

fn shrink(buffer: &mut Vec<u8>) {
    if buffer.capacity() > RETAINED_BYTES_MAX && buffer.len() < buffer.capacity() / 4 {
        buffer.shrink_to(RETAINED_BYTES_MAX);
    }
}

impl Connection {
    /// Gives the node what has arrived, up to a turn's share and as far as the node wants it.
    fn take_input(&mut self, turn: &mut Turn<'_>) -> Standing {
        if self.is_put_off {
            self.parse_kept(turn);
        }
        let mut share = TURN_BYTES_MAX;
        while self.has_unread {
            if self.is_put_off || !turn.node.wants_input(self.id) {
                return Standing::Waits;
            }
            if share == 0 {
                return Standing::Unfinished;
            }
            match self.socket.read(turn.buffer) {
                Ok(0) => {
                    // It may only have closed its half, and still reads what it asked for.
                    self.has_unread = false;
                    self.ended_us = Some(turn.now.monotonic_us);
                    turn.node.close_after_replies(self.id);
                }
                Ok(count) => {
                    self.has_unread = count == turn.buffer.len() || self.is_hung_up;
                    self.heard_us = turn.now.monotonic_us;
                    share = share.saturating_sub(count);
                    turn.counters.client_bytes_in += count as u64;
                    self.parse_arrived(count, turn);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.has_unread = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Standing::Broken,
            }
        }
        Standing::Waits
    }

    /// Parses what has just been read into the worker's buffer.
    fn parse_arrived(&mut self, count: usize, turn: &mut Turn<'_>) {
        let arrived = &turn.buffer[..count];
        if !self.input.is_empty() {
            self.input.extend_from_slice(arrived);
            return self.parse_kept(turn);
        }
        let (taken, _) = self.parse(arrived, turn.node);
        if taken < count {
            self.input.extend_from_slice(&arrived[taken..]);
            self.note_partial(taken, turn);
        } else {
            self.partial_since_us = None;
        }
    }

    /// Parses what the connection keeps.
    fn parse_kept(&mut self, turn: &mut Turn<'_>) {
        let mut input = std::mem::take(&mut self.input);
        let (taken, needed) = self.parse(&input, turn.node);
        input.drain(..taken);
        // Room for what is announced only in proportion to what has arrived; and the last step of a large
        // request's growth need not double it.
        if needed <= input.len() {
            input.reserve_exact(needed);
        }
        self.input = input;
        self.note_partial(taken, turn);
    }

    /// A request's time begins when its first bytes are left over, and stops while the node puts it off.
    fn note_partial(&mut self, taken: usize, turn: &Turn<'_>) {
        if self.input.is_empty() || self.is_put_off {
            self.partial_since_us = None;
        } else if taken > 0 || self.partial_since_us.is_none() {
            self.partial_since_us = Some(turn.now.monotonic_us);
        }
    }

    /// Gives the node every whole request in `bytes` that it wants. Tells how many bytes they took, and how many
    /// more the one that has begun needs at least.
    fn parse(&mut self, bytes: &[u8], node: &mut Node) -> (usize, usize) {
        let mut limits = node.request_limits(self.id);
        let mut taken = 0;
        self.is_put_off = false;
        while taken < bytes.len() {
            if !node.wants_input(self.id) {
                self.is_put_off = true;
                break;
            }
            let rest = &bytes[taken..];
            match self.parser.parse(rest, &limits) {
                Ok(Progress::Complete { consumed }) => {
                    let arguments = self.parser.arguments(rest);
                    if !arguments.is_empty() {
                        node.request(self.id, arguments);
                    }
                    taken += consumed;
                    // The request may have been the one that lifts the limits.
                    if !limits.authenticated {
                        limits = node.request_limits(self.id);
                    }
                }
                Ok(Progress::Incomplete { needed }) => return (taken, needed),
                Err(error) => {
                    node.protocol_error(self.id, &error);
                    return (bytes.len(), 0);
                }
            }
        }
        (taken, 0)
    }

    /// Writes as much of the output as the socket takes, and tells how much.
    fn write(&mut self, output: &mut Output) -> io::Result<usize> {
        let start = self.written;
        while self.written < output.bytes.len() && !self.is_blocked {
            let rest = &output.bytes[self.written..];
            match self.socket.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.written += count;
                    self.is_blocked = count < rest.len();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_blocked = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let count = self.written - start;
        if self.written == output.bytes.len() {
            output.bytes.clear();
            self.written = 0;
        } else if self.written > output.bytes.len() / 2 {
            output.bytes.drain(..self.written);
            self.written = 0;
        }
        Ok(count)
    }

    fn is_too_slow(&self, now_us: u64, request_timeout_ms: u64) -> bool {
        let allowed_ms = request_timeout_ms + (self.input.len() / REQUEST_BYTES_PER_MS) as u64;
        self.partial_since_us.is_some_and(|since| now_us.saturating_sub(since) / 1000 > allowed_ms)
    }
}
