//! One connection: its socket, its buffers and the batch that it has in flight.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use super::outcome::Outcome;
use super::workload::{Expected, command};

/// A new receive buffer holds the replies to a whole batch, so that one read takes them all, within these limits.
/// It grows when a single reply is larger.
const INPUT_BYTES_MIN: usize = 4 << 10;
const INPUT_BYTES_MAX: usize = 256 << 10;

/// How many bytes a reply has beside its value, generously.
const REPLY_FRAME_BYTES: usize = 16;

/// The first wait before a lost connection is tried again; it doubles up to the last.
const BACKOFF_MIN: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// There is no socket; try again at that time.
    Down { retry_at: Instant },
    /// The socket is connecting.
    Connecting { since: Instant },
    /// A password, if any, and a PING were sent; so many replies are to come.
    Greeting { since: Instant, replies_left: usize },
    /// Requests can be sent.
    Ready,
}

/// The requests that were written together, and how far their replies have come.
pub(crate) struct Batch {
    pub(crate) expected: Vec<Expected>,
    pub(crate) answered: usize,
    /// What became of a write whose WAIT is not answered yet.
    pub(crate) write: Option<Outcome>,
    pub(crate) sent_at: Instant,
    pub(crate) is_measured: bool,
}

impl Batch {
    pub(crate) fn is_in_flight(&self) -> bool {
        self.answered < self.expected.len()
    }
}

/// What one read has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// As much as there was room for: there may be more.
    Full,
    /// Less than there was room for, so that was all. What comes later raises another edge, and the read
    /// that would find nothing is spared.
    Drained,
    /// Nothing.
    Nothing,
}

/// The receive buffer: replies stand in `unread..filled`.
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
    /// grow without end.
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
    pub(crate) address: SocketAddr,
    pub(crate) state: State,
    pub(crate) batch: Batch,
    /// The batch's bytes; `written` of them are on their way.
    pub(crate) output: Vec<u8>,
    written: usize,
    pub(crate) input: Input,
    stream: Option<TcpStream>,
    failures_in_a_row: u32,
}

impl Connection {
    pub(crate) fn new(address: SocketAddr, pipeline: usize, value_bytes: usize, now: Instant) -> Self {
        let replies_bytes = pipeline.saturating_mul(value_bytes + REPLY_FRAME_BYTES);
        Self {
            address,
            state: State::Down { retry_at: now },
            batch: Batch {
                expected: Vec::with_capacity(pipeline),
                answered: 0,
                write: None,
                sent_at: now,
                is_measured: false,
            },
            output: Vec::new(),
            written: 0,
            input: Input {
                bytes: vec![0; replies_bytes.clamp(INPUT_BYTES_MIN, INPUT_BYTES_MAX)],
                unread: 0,
                filled: 0,
            },
            stream: None,
            failures_in_a_row: 0,
        }
    }

    /// Starts to connect.
    pub(crate) fn open(&mut self, registry: &Registry, token: Token, now: Instant) -> io::Result<()> {
        let mut stream = TcpStream::connect(self.address)?;
        // Both interests once and for all: edges cost nothing while there is nothing to tell.
        registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        self.stream = Some(stream);
        self.state = State::Connecting { since: now };
        Ok(())
    }

    /// Whether the socket has connected; an error if it never will.
    pub(crate) fn is_connected(&self) -> io::Result<bool> {
        let Some(stream) = &self.stream else {
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

    /// Sends the password, if any, and a PING: a server that will refuse every request is found out at once.
    pub(crate) fn greet(&mut self, password: Option<&str>, now: Instant) -> io::Result<()> {
        self.output.clear();
        self.written = 0;
        if let Some(password) = password {
            self.output.extend_from_slice(&command(&["AUTH", password]));
        }
        self.output.extend_from_slice(&command(&["PING"]));
        self.state = State::Greeting { since: now, replies_left: 1 + usize::from(password.is_some()) };
        self.flush()
    }

    /// The greeting was answered: requests can be sent.
    pub(crate) fn ready(&mut self) {
        self.state = State::Ready;
        self.failures_in_a_row = 0;
    }

    /// Whether the replies to the batch have been waited for long enough.
    pub(crate) fn is_overdue(&self, now: Instant, reply_timeout: Duration) -> bool {
        self.batch.is_in_flight() && now.saturating_duration_since(self.batch.sent_at) > reply_timeout
    }

    /// Empties the batch for the next one.
    pub(crate) fn begin_batch(&mut self, is_measured: bool) {
        self.output.clear();
        self.written = 0;
        self.batch.expected.clear();
        self.batch.answered = 0;
        self.batch.write = None;
        self.batch.is_measured = is_measured;
    }

    /// Writes as much as the socket takes; the rest follows when it becomes writable.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        while self.written < self.output.len() {
            match stream.write(&self.output[self.written..]) {
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
        let Some(stream) = &mut self.stream else { return Ok(Filled::Nothing) };
        let room = self.input.room();
        loop {
            match stream.read(room) {
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

    /// Drops the socket and whatever was in flight. `jitter` in `0..1000` spreads reconnections.
    pub(crate) fn close(&mut self, now: Instant, jitter: u32) {
        self.stream = None;
        self.begin_batch(false);
        self.input.unread = 0;
        self.input.filled = 0;
        let backoff = BACKOFF_MIN.saturating_mul(1 << self.failures_in_a_row.min(16)).min(BACKOFF_MAX);
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        self.state = State::Down { retry_at: now + backoff / 2 + backoff * jitter / 2000 };
    }
}
