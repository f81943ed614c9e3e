//! One client's connection: its socket, its input that is not consumed yet, and how much of its replies is written.

use std::io;
use std::sync::Arc;

use node::{ClientId, Node, Output};
use protocol::planted::Fault;
use wire::resp::{Arguments, Progress, RequestParser};

use super::round::Parsed;
use super::{Change, Socket};
use crate::look_ahead::LookAhead;
use crate::outlet::Outlet;
use crate::turn::{Clock, Turn};

/// Room for a large request is made in advance up to this many times what has arrived of it.
const LARGE_PROPORTION: usize = 64;

/// How long a client that has ended its input may wait for its last replies.
const LAST_REPLIES_US_MAX: u64 = 10_000_000;

/// How fast a large request must arrive: each millisecond beyond the timeout must have brought this many bytes.
const REQUEST_BYTES_PER_MS: usize = 100;

pub(super) struct Connection<S> {
    pub(super) id: ClientId,
    pub(super) socket: S,
    parser: RequestParser,
    /// Input that is not consumed yet: the beginning of a request, or requests put off.
    pub(super) input: Vec<u8>,
    /// How much of its replies is written.
    outlet: Outlet,
    /// When the incomplete request in `input` began, if there is one.
    partial_since_us: Option<u64>,
    /// When the client last sent something or took a reply.
    heard_us: u64,
    /// Bytes that have arrived.
    received_bytes: u64,
    /// When its input ended, if it has.
    ended_us: Option<u64>,
    /// The socket may hold more input.
    has_unread: bool,
    /// The client has closed its side: reading continues until the end of the input.
    is_hung_up: bool,
    /// There is input that the node did not want yet: requests in `input`, or bytes that are unread.
    is_put_off: bool,
    /// When what is put off in `input` had arrived.
    put_off_us: u64,
    /// When the unread bytes had arrived, if the node did not want them.
    unread_us: Option<u64>,
    /// It has been read in the present round, and its bytes have not been given to the node yet.
    pub(super) is_read_ahead: bool,
    /// There is output that has not been offered to the socket yet.
    pub(super) has_unwritten: bool,
    /// It is in one of the lists of connections to serve in a later turn.
    pub(super) is_listed: bool,
}

/// The state of a connection after its input was taken.
pub(super) enum Standing {
    /// Nothing to do until something happens.
    Waits,
    /// There is more to read.
    Unfinished,
    Broken,
}

impl<S: Socket> Connection<S> {
    /// Creates a connection that has just been accepted.
    pub(super) fn new(id: ClientId, socket: S, now_us: u64) -> Connection<S> {
        Connection {
            id,
            socket,
            parser: RequestParser::new(),
            input: Vec::new(),
            outlet: Outlet::default(),
            partial_since_us: None,
            heard_us: now_us,
            received_bytes: 0,
            ended_us: None,
            has_unread: false,
            is_hung_up: false,
            is_put_off: false,
            put_off_us: 0,
            unread_us: None,
            is_read_ahead: false,
            has_unwritten: false,
            is_listed: false,
        }
    }

    /// Records what has changed. Returns true when output can continue.
    pub(super) fn note(&mut self, change: Change) -> bool {
        self.has_unread |= change.is_readable || change.is_over;
        self.is_hung_up |= change.is_over;
        change.is_writable && std::mem::take(&mut self.outlet.is_blocked)
    }

    /// Checks that what is known of the input and the output belongs together, between two turns.
    pub(super) fn check_invariants(&self) {
        assert!(!self.is_read_ahead, "what was read is given to the node in the same turn");
        let is_there = !self.input.is_empty() || self.has_unread;
        assert!(!self.is_put_off || is_there, "requests are put off that are not there");
        assert!(
            self.unread_us.is_none() || self.is_put_off && self.has_unread,
            "what is unread has a time only while the node does not want it"
        );
        assert!(
            self.partial_since_us.is_none() || !self.input.is_empty(),
            "the beginning of no request has a time"
        );
        assert!(!self.has_unwritten || self.is_listed, "no event continues with the output");
    }

    /// Whether replies wait for the client to make room.
    pub(super) fn is_blocked(&self) -> bool {
        self.outlet.is_blocked
    }

    /// Whether there is input to take as soon as the node wants it.
    pub(super) fn has_more_input(&self) -> bool {
        self.is_put_off || self.has_unread
    }

    /// Gives the node what has arrived, up to a turn's share and as far as the node wants it.
    #[inline]
    pub(super) fn take_input(&mut self, turn: &mut Turn<'_, impl Clock>) -> Standing {
        match self.is_put_off {
            false => self.take_unread(turn),
            true => self.take_put_off(turn),
        }
    }

    /// Gives the node what it did not want yet. It learns when that had arrived: a request that waits in vain must not wait
    /// for its time once more because an earlier one did.
    #[cold]
    fn take_put_off(&mut self, turn: &mut Turn<'_, impl Clock>) -> Standing {
        let before = self.input.len();
        turn.node.resume_input(self.id, Some(self.put_off_us));
        self.parse_kept(turn);
        if self.is_put_off {
            if self.has_unread && self.input.len() == before {
                self.unread_us = Some(turn.now.monotonic_us);
            }
            turn.node.resume_input(self.id, None);
            return self.take_unread(turn);
        }
        turn.node.resume_input(self.id, self.unread_us.take());
        let standing = self.take_unread(turn);
        turn.node.resume_input(self.id, None);
        standing
    }

    /// Reads what has arrived, up to a turn's share, and gives it to the node as far as the node wants it.
    fn take_unread(&mut self, turn: &mut Turn<'_, impl Clock>) -> Standing {
        let mut share = turn.sizes.client_bytes_max;
        while self.has_unread {
            if self.is_put_off || !turn.node.wants_input(self.id) {
                if !self.is_put_off {
                    (self.is_put_off, self.unread_us) = (true, Some(turn.now.monotonic_us));
                }
                // Nothing is read from a client that waits for a lock; an event reports when the client is gone.
                if self.is_hung_up && turn.node.hang_up(self.id) {
                    self.ended_us = Some(turn.now.monotonic_us);
                }
                return Standing::Waits;
            }
            if share == 0 {
                return Standing::Unfinished;
            }
            let is_in_place = self.has_room_for(turn);
            let read = match is_in_place {
                true => self.read_in_place(turn.buffer.len()),
                false => self.socket.read(turn.buffer),
            };
            let count = match self.note_read(read, turn.buffer.len(), turn) {
                Ok(0) => continue,
                Ok(count) => count,
                Err(_) => return Standing::Broken,
            };
            share = share.saturating_sub(count);
            turn.has_read();
            match is_in_place {
                true => self.parse_kept(turn),
                false => {
                    let buffer = std::mem::take(&mut turn.buffer);
                    self.parse_arrived(&buffer[..count], None, turn);
                    turn.buffer = buffer;
                }
            }
        }
        Standing::Waits
    }

    /// Notes the outcome of a read that had room for `room` bytes. Returns how many bytes have arrived.
    fn note_read<C>(
        &mut self,
        read: io::Result<usize>,
        room: usize,
        turn: &mut Turn<'_, C>,
    ) -> io::Result<usize> {
        match read {
            Ok(0) => {
                // The client may have closed only its half, and may still read the replies to its requests.
                self.has_unread = false;
                self.ended_us = Some(turn.now.monotonic_us);
                turn.node.close_after_replies(self.id);
                Ok(0)
            }
            Ok(count) => {
                self.has_unread = count == room || self.is_hung_up;
                self.heard_us = turn.now.monotonic_us;
                turn.counters.client_bytes_in += count as u64;
                self.received_bytes += count as u64;
                Ok(count)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.has_unread = false;
                Ok(0)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Whether its input may be read before that of earlier clients is taken: it begins with a request, and the node wants it.
    pub(super) fn may_be_read_ahead<C>(&self, turn: &Turn<'_, C>) -> bool {
        let is_at_start = self.input.is_empty() && !self.is_put_off;
        self.has_unread && is_at_start && turn.node.wants_input(self.id)
    }

    /// Reads what has arrived, to be given to [`Connection::take_arrived`]. Returns the number of bytes, and the outcome of
    /// parsing the first request, or `None` if nothing has arrived.
    pub(super) fn read_ahead<C>(
        &mut self,
        buffer: &mut [u8],
        turn: &mut Turn<'_, C>,
    ) -> io::Result<Option<(usize, Parsed)>> {
        let read = self.socket.read(buffer);
        let count = self.note_read(read, buffer.len(), turn)?;
        if count == 0 {
            return Ok(None);
        }
        self.is_read_ahead = true;
        Ok(Some((count, self.parser.parse(&buffer[..count], &turn.node.request_limits(self.id)))))
    }

    /// The arguments of the first request, if it is complete.
    pub(super) fn first_arguments<'a>(&'a self, first: &Parsed, arrived: &'a [u8]) -> Option<Arguments<'a>> {
        matches!(first, Ok(Progress::Complete { .. })).then(|| self.parser.arguments(arrived))
    }

    /// Gives the node what has been read ahead, and continues like [`Connection::take_input`]. `first`: the outcome of parsing
    /// the first request.
    pub(super) fn take_arrived(
        &mut self,
        arrived: &[u8],
        first: Parsed,
        turn: &mut Turn<'_, impl Clock>,
    ) -> Standing {
        assert!(
            self.is_read_ahead && self.input.is_empty(),
            "what was read ahead is taken once, and in its order"
        );
        self.is_read_ahead = false;
        self.parse_arrived(arrived, Some(first), turn);
        // Input that the node did not want now is not parsed once more in this turn.
        if self.has_unread { self.take_input(turn) } else { Standing::Waits }
    }

    /// Whether a large request is arriving and has room for a full read.
    fn has_room_for(&self, turn: &Turn<'_, impl Clock>) -> bool {
        let room = self.input.capacity() - self.input.len();
        self.input.len() >= turn.sizes.lent_bytes_min && room >= turn.buffer.len()
    }

    /// Reads at most `bytes` bytes to where they will be parsed.
    fn read_in_place(&mut self, bytes: usize) -> io::Result<usize> {
        let end = self.input.len();
        self.input.resize(end + bytes, 0);
        let read = self.socket.read(&mut self.input[end..]);
        self.input.truncate(end + read.as_ref().map_or(0, |count| *count));
        read
    }

    /// Parses what has just been read into a buffer that other clients use too. `first`: the outcome of parsing its first
    /// request, if that has been done.
    fn parse_arrived(&mut self, arrived: &[u8], first: Option<Parsed>, turn: &mut Turn<'_, impl Clock>) {
        if !self.input.is_empty() {
            self.input.extend_from_slice(arrived);
            return self.parse_kept(turn);
        }
        let (taken, _) = self.parse(arrived, first, turn.node, turn.ahead, turn.clock);
        if taken < arrived.len() {
            self.input.extend_from_slice(&arrived[taken..]);
            self.note_partial(taken, turn);
        } else {
            self.partial_since_us = None;
        }
    }

    /// Parses the connection's own input.
    fn parse_kept(&mut self, turn: &mut Turn<'_, impl Clock>) {
        let mut input = std::mem::take(&mut self.input);
        let (taken, needed) = if input.len() >= turn.sizes.lent_bytes_min {
            let lent = Arc::new(input);
            turn.node.lend(Some(Arc::clone(&lent)));
            let (taken, needed) = self.parse(&lent, None, turn.node, turn.ahead, turn.clock);
            turn.node.lend(None);
            match Arc::try_unwrap(lent) {
                _ if turn.planted.has(Fault::BufferGivenBackEarly) => input = Vec::new(),
                Ok(whole) => {
                    input = whole;
                    input.drain(..taken);
                }
                Err(kept) => input = kept[taken..].to_vec(),
            }
            (taken, needed)
        } else {
            let (taken, needed) = self.parse(&input, None, turn.node, turn.ahead, turn.clock);
            input.drain(..taken);
            (taken, needed)
        };
        // Room for the announced length is made only in proportion to what has arrived. A large request gets all of it at once:
        // untouched room takes no memory, and moving what has arrived would keep other clients waiting too long.
        let proportion = if input.len() >= turn.sizes.lent_bytes_min { LARGE_PROPORTION } else { 1 };
        if needed / proportion <= input.len() {
            input.reserve_exact(needed);
        }
        self.input = input;
        self.note_partial(taken, turn);
    }

    /// The time of a request begins when its first bytes are left over, and stops while the node puts it off.
    fn note_partial(&mut self, taken: usize, turn: &Turn<'_, impl Clock>) {
        if self.input.is_empty() || self.is_put_off {
            self.partial_since_us = None;
        } else if taken > 0 || self.partial_since_us.is_none() {
            self.partial_since_us = Some(turn.now.monotonic_us);
        }
    }

    /// Gives the node every complete request in `bytes` that it wants. Returns how many bytes these took, and the least
    /// number of bytes that the incomplete request still needs. `parsed`: the outcome of parsing the first one, if that has
    /// been done.
    fn parse(
        &mut self,
        bytes: &[u8],
        mut parsed: Option<Parsed>,
        node: &mut Node,
        ahead: &mut LookAhead,
        clock: impl Clock,
    ) -> (usize, usize) {
        let mut limits = node.begin_input(self.id, self.received_bytes);
        if node.is_measuring() {
            node.measure(clock.monotonic_us());
        }
        let mut taken = 0;
        self.is_put_off = false;
        while taken < bytes.len() {
            let rest = &bytes[taken..];
            let first = match parsed.take().unwrap_or_else(|| self.parser.parse(rest, &limits)) {
                Ok(Progress::Complete { consumed }) => consumed,
                Ok(Progress::Incomplete { needed }) => return (taken, needed),
                Err(error) => {
                    node.protocol_error(self.id, &error);
                    return (bytes.len(), 0);
                }
            };
            // A client that has not authenticated yet may do so with the first request, and then has other limits.
            let has_more = first < rest.len();
            let window =
                if has_more && limits.authenticated { ahead.parse(&rest[first..], &limits) } else { 0 };
            if window > 0 {
                let others = (0..window).map(|index| ahead.arguments(index, &rest[first..]));
                node.warm(std::iter::once(self.parser.arguments(rest)).chain(others));
            }
            for index in 0..=window {
                let bytes = if index == 0 { first } else { ahead.length(index - 1) };
                if node.is_share_spent() || !node.wants_input(self.id) || !node.has_room_for(bytes) {
                    (self.is_put_off, self.put_off_us) = (true, node.arrived_us(self.id));
                    if index == 0 {
                        // It is parsed again when it is wanted.
                        self.parser = RequestParser::new();
                    }
                    return (taken, 0);
                }
                let (arguments, consumed) = match index.checked_sub(1) {
                    None => (self.parser.arguments(rest), first),
                    Some(index) => (ahead.arguments(index, &rest[first..]), ahead.length(index)),
                };
                if !arguments.is_empty() {
                    node.request(self.id, arguments);
                    if node.is_measuring() {
                        node.measure(clock.monotonic_us());
                    }
                }
                taken += consumed;
            }
            if !limits.authenticated {
                limits = node.request_limits(self.id);
            }
        }
        (taken, 0)
    }

    /// Writes as much of the output as the socket takes, and returns how much.
    pub(super) fn write(&mut self, output: &mut Output, now_us: u64) -> io::Result<usize> {
        let count = match output.parts() {
            (bytes, None) => self.outlet.write(&mut self.socket, bytes)?,
            (bytes, Some(behind)) => {
                let (of_bytes, of_behind) = self.outlet.write_with(&mut self.socket, bytes, behind)?;
                output.written_behind(of_behind);
                of_bytes + of_behind
            }
        };
        if count > 0 {
            output.note_written(count);
            self.heard_us = now_us;
        }
        Ok(count)
    }

    /// Whether nothing has been received or sent for `timeout_seconds`; 0 means no timeout.
    pub(super) fn is_idle(&self, now_us: u64, timeout_seconds: u64) -> bool {
        timeout_seconds > 0 && now_us.saturating_sub(self.heard_us) / 1_000_000 > timeout_seconds
    }

    /// Whether its input has ended and its last replies are not produced, though the client could take them.
    pub(super) fn is_forgotten(&self, now_us: u64) -> bool {
        let is_late = |since: u64| now_us.saturating_sub(since) > LAST_REPLIES_US_MAX;
        !self.outlet.is_blocked && self.ended_us.is_some_and(is_late)
    }

    /// Whether an incomplete request waits for its remaining bytes, for which there is room already.
    pub(super) fn awaits_rest(&self) -> bool {
        self.partial_since_us.is_some()
    }

    /// Whether the incomplete request takes too long to arrive.
    pub(super) fn is_too_slow(&self, now_us: u64, request_timeout_ms: u64) -> bool {
        let allowed_ms = request_timeout_ms + (self.input.len() / REQUEST_BYTES_PER_MS) as u64;
        self.partial_since_us.is_some_and(|since| now_us.saturating_sub(since) / 1000 > allowed_ms)
    }
}
