//! One connection: its socket, its buffers and its batch in flight.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::{Interest, Registry, Token};

use super::language::Dialogue;
use super::outcome::Expected;
use super::outcome::Outcome;
use super::recorder::Observed;
use super::tls::{Socket, Tls};

/// A new receive buffer holds the replies to a whole batch, so that one read takes them all, within these limits.
/// It grows when a single reply is larger.
const INPUT_BYTES_MIN: usize = 4 << 10;
const INPUT_BYTES_MAX: usize = 256 << 10;

/// A generous estimate of the bytes of a reply besides its value.
const REPLY_FRAME_BYTES: usize = 16;

/// The first wait before reconnecting; it doubles up to the maximum.
const BACKOFF_MIN: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// There is no socket; reconnect at `retry_at`.
    Down { retry_at: Instant },
    /// The socket is connecting.
    Connecting { since: Instant },
    /// The greeting was sent; `replies_left` replies are outstanding.
    Greeting { since: Instant, replies_left: usize },
    /// Requests can be sent.
    Ready,
}

/// The result of a request, from its reply.
pub(crate) struct Answered {
    /// Its position in the batch.
    pub(crate) position: usize,
    pub(crate) outcome: Outcome,
    pub(crate) observed: Observed,
}

/// The requests that were written together, and the progress of their replies.
pub(crate) struct Batch {
    pub(crate) expected: Vec<Expected>,
    pub(crate) answered: usize,
    /// Writes whose reply has arrived but whose WAIT has not been answered.
    pub(crate) unconfirmed: Vec<Answered>,
    pub(crate) sent_at: Instant,
    /// In the open loop, when each request was due.
    pub(crate) due_times: Vec<Instant>,
    pub(crate) is_measured: bool,
}

impl Batch {
    /// When the latency of this request starts: in the open loop when it was due, in the closed loop when it was
    /// sent.
    pub(crate) fn start_of(&self, position: usize) -> Instant {
        self.due_times.get(position).copied().unwrap_or(self.sent_at)
    }

    /// Moves the request at this place among the unanswered ones to the front: it is answered first.
    pub(crate) fn bring_forward(&mut self, place: usize) {
        if place > 0 {
            let (first, answered) = (self.answered, self.answered + place);
            self.expected.swap(first, answered);
            if !self.due_times.is_empty() {
                self.due_times.swap(first, answered);
            }
        }
    }

    pub(crate) fn is_in_flight(&self) -> bool {
        self.answered < self.expected.len() || !self.unconfirmed.is_empty()
    }
}

/// The result of one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// The buffer was filled: there may be more.
    Full,
    /// Less than the buffer's room, so that was everything. Later bytes raise another edge, which saves a read
    /// that would find nothing.
    Drained,
    /// Nothing was read.
    Nothing,
}

/// The receive buffer: unprocessed replies are in `unread..filled`.
pub(crate) struct Input {
    bytes: Vec<u8>,
    unread: usize,
    filled: usize,
}

impl Input {
    pub(crate) fn unread(&self) -> &[u8] {
        &self.bytes[self.unread..self.filled]
    }

    pub(crate) fn consume(&mut self, bytes: usize) {
        self.unread += bytes;
    }

    /// The space to read into, never empty. The scanner refuses replies above its limits, so the buffer cannot
    /// grow without bound.
    fn room(&mut self) -> &mut [u8] {
        if self.unread > 0 {
            self.bytes.copy_within(self.unread..self.filled, 0);
            self.filled -= self.unread;
            self.unread = 0;
        }
        if self.filled == self.bytes.len() {
            self.bytes.resize(2 * self.bytes.len(), 0);
        }
        &mut self.bytes[self.filled..]
    }
}

pub(crate) struct Connection {
    /// Its number among all connections of the run.
    pub(crate) number: usize,
    pub(crate) address: SocketAddr,
    /// The protocol's state of this connection.
    pub(crate) dialogue: Dialogue,
    pub(crate) state: State,
    pub(crate) batch: Batch,
    /// The batch's bytes; the first `written` have been sent.
    pub(crate) output: Vec<u8>,
    written: usize,
    pub(crate) input: Input,
    socket: Option<Socket>,
    failures_in_a_row: u32,
}

impl Connection {
    pub(crate) fn new(
        number: usize,
        address: SocketAddr,
        dialogue: Dialogue,
        pipeline: usize,
        value_bytes: usize,
        now: Instant,
    ) -> Self {
        let replies_bytes = pipeline.saturating_mul(value_bytes + REPLY_FRAME_BYTES);
        Self {
            number,
            address,
            dialogue,
            state: State::Down { retry_at: now },
            batch: Batch {
                expected: Vec::with_capacity(pipeline),
                answered: 0,
                unconfirmed: Vec::new(),
                sent_at: now,
                due_times: Vec::new(),
                is_measured: false,
            },
            output: Vec::new(),
            written: 0,
            input: Input {
                bytes: vec![0; replies_bytes.clamp(INPUT_BYTES_MIN, INPUT_BYTES_MAX)],
                unread: 0,
                filled: 0,
            },
            socket: None,
            failures_in_a_row: 0,
        }
    }

    /// Starts connecting to its address, which has the number `place` among the servers'.
    pub(crate) fn open(
        &mut self,
        registry: &Registry,
        token: Token,
        now: Instant,
        (place, tls): (usize, Option<&Tls>),
    ) -> io::Result<()> {
        let mut socket = Socket::open(self.address, place, tls)?;
        // Registered for both interests permanently: edges cost nothing while nothing happens.
        registry.register(&mut socket.stream, token, Interest::READABLE | Interest::WRITABLE)?;
        self.socket = Some(socket);
        self.state = State::Connecting { since: now };
        Ok(())
    }

    /// Whether the socket is connected; an error if connecting has failed.
    pub(crate) fn is_connected(&self) -> io::Result<bool> {
        let Some(Socket { stream, .. }) = &self.socket else {
            return Ok(false);
        };
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        match stream.peer_addr() {
            Ok(_) => stream.set_nodelay(true).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sends the greeting, which gets `replies` replies.
    pub(crate) fn greet(&mut self, greeting: &[u8], replies: usize, now: Instant) -> io::Result<()> {
        self.output.clear();
        self.written = 0;
        self.output.extend_from_slice(greeting);
        self.state = State::Greeting { since: now, replies_left: replies };
        self.flush()
    }

    /// Notes that the greeting was answered and requests can be sent.
    pub(crate) fn ready(&mut self) {
        self.state = State::Ready;
        self.failures_in_a_row = 0;
    }

    /// Whether requests can be sent and none is in flight.
    pub(crate) fn is_free(&self) -> bool {
        self.state == State::Ready && !self.batch.is_in_flight()
    }

    /// Whether the replies to the batch have taken longer than `reply_timeout`.
    pub(crate) fn is_overdue(&self, now: Instant, reply_timeout: Duration) -> bool {
        self.batch.is_in_flight() && now.saturating_duration_since(self.batch.sent_at) > reply_timeout
    }

    /// Empties the batch for the next one.
    pub(crate) fn clear_batch(&mut self) {
        self.output.clear();
        self.written = 0;
        self.batch.expected.clear();
        self.batch.due_times.clear();
        self.batch.answered = 0;
        self.batch.unconfirmed.clear();
    }

    /// Writes as much as the socket takes; the rest follows when it becomes writable.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let Some(socket) = &mut self.socket else {
            return Ok(());
        };
        if !socket.push()? {
            return Ok(());
        }
        while self.written < self.output.len() {
            match socket.write(&self.output[self.written..]) {
                Ok(written) => self.written += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads once.
    pub(crate) fn fill(&mut self) -> io::Result<Filled> {
        let Some(socket) = &mut self.socket else { return Ok(Filled::Nothing) };
        let room = self.input.room();
        loop {
            match socket.read(room) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => {
                    let filled = if bytes < room.len() { Filled::Drained } else { Filled::Full };
                    self.input.filled += bytes;
                    return Ok(filled);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Filled::Nothing),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Drops the socket and everything in flight. `jitter` in `0..1000` spreads reconnections.
    pub(crate) fn close(&mut self, now: Instant, jitter: u32) {
        self.socket = None;
        self.clear_batch();
        self.input.unread = 0;
        self.input.filled = 0;
        let backoff = BACKOFF_MIN.saturating_mul(1 << self.failures_in_a_row.min(16)).min(BACKOFF_MAX);
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        self.state = State::Down { retry_at: now + backoff / 2 + backoff * jitter / 2000 };
    }
}
