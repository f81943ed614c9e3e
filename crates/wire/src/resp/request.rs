//! Requests of clients: an array of bulk strings, or a line of words.
//!
//! ```text
//! *2\r\n$3\r\nGET\r\n$3\r\nkey\r\n      an array of 2 bulk strings of 3 bytes each
//! GET key\r\n                           the same as an inline request
//! ```
//!
//! The parser is resumable. Input arrives in pieces that end anywhere, so it remembers how far it has come:
//! a request costs time in proportion to its length, not to its length times the number of pieces. It keeps
//! eight bytes for each argument that has arrived and copies no argument (inline requests, which may hold
//! escapes, aside). What a client merely announces costs nothing.
//!
//! It accepts what Redis accepts and answers errors with Redis's texts, but for two things. Redis skips the
//! bytes where a line end belongs without looking at them; here they must be a line end, because a client
//! that miscounts would otherwise have its values read as commands. And the limits here do not depend on how
//! the network cut the request: a whole request and the same one in pieces give the same result.

use kv::number::parse_integer;

use super::arguments::{ArgumentRange, Arguments, ArgumentsBuffer};
use super::inline;

/// Most arguments that a client may announce before it has authenticated itself.
pub const UNAUTHENTICATED_ARGUMENTS_MAX: usize = 10;

/// Longest argument that a client may send before it has authenticated itself, in bytes.
pub const UNAUTHENTICATED_BULK_BYTES_MAX: usize = 16 * 1024;

/// Room for arguments that a parser keeps for the next request. Few requests have more.
const RETAINED_ARGUMENTS_MAX: usize = 1024;

/// Room for the words of inline requests that a parser keeps for the next request, in bytes.
const RETAINED_INLINE_BYTES_MAX: usize = 4 * 1024;

/// What a client may send. They may differ from call to call: authentication lifts some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest argument, in bytes.
    pub bulk_bytes_max: usize,
    /// Most arguments.
    pub arguments_max: usize,
    /// Longest line without its end, in bytes: a whole inline request, or the head of an array or a string.
    pub inline_bytes_max: usize,
    /// Longest request with all that belongs to it, in bytes. Above 4 GiB it counts as 4 GiB.
    pub request_bytes_max: usize,
    /// When false, requests must be small: [`UNAUTHENTICATED_ARGUMENTS_MAX`] arguments of
    /// [`UNAUTHENTICATED_BULK_BYTES_MAX`] at most. True also for servers that need no authentication.
    pub authenticated: bool,
}

impl Default for Limits {
    /// Values as long as the store takes by default, in requests of at most twice that; not authenticated.
    fn default() -> Self {
        Limits {
            bulk_bytes_max: kv::limits::VALUE_BYTES_MAX_DEFAULT,
            arguments_max: 1024 * 1024,
            inline_bytes_max: 64 * 1024,
            request_bytes_max: 2 * kv::limits::VALUE_BYTES_MAX_DEFAULT,
            authenticated: false,
        }
    }
}

/// The client does not speak the protocol, or asks too much. Nothing that it sends from here on can be
/// trusted to be where it seems: answer the error, which reads as Redis's own, and close the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The number of arguments is no number, or larger than allowed.
    #[error("ERR Protocol error: invalid multibulk length")]
    ArgumentCount,
    /// An argument's length is no number, negative, or larger than allowed.
    #[error("ERR Protocol error: invalid bulk length")]
    BulkLength,
    /// More arguments than are allowed before authentication.
    #[error("ERR Protocol error: unauthenticated multibulk length")]
    UnauthenticatedArgumentCount,
    /// A longer argument than is allowed before authentication.
    #[error("ERR Protocol error: unauthenticated bulk length")]
    UnauthenticatedBulkLength,
    /// This byte stands where an argument's length should begin.
    #[error("ERR Protocol error: expected '$', got '{}'", printable(*.0))]
    ExpectedBulk(u8),
    /// An argument is longer or shorter than its length said.
    #[error("ERR Protocol error: expected a line end after a bulk string")]
    ExpectedLineEnd,
    /// An inline request that does not end.
    #[error("ERR Protocol error: too big inline request")]
    InlineTooBig,
    /// A number of arguments that does not end.
    #[error("ERR Protocol error: too big mbulk count string")]
    ArgumentCountTooBig,
    /// An argument's length that does not end.
    #[error("ERR Protocol error: too big bulk count string")]
    BulkLengthTooBig,
    /// An inline request with an open quote.
    #[error("ERR Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// The request as a whole is larger than allowed.
    #[error("ERR Protocol error: request of more than {bytes_max} bytes")]
    RequestTooBig {
        /// The limit that was passed.
        bytes_max: usize,
    },
}

/// Shows a byte of the client's, escaped if it is not printable: it must not break the line that it is in.
fn printable(byte: u8) -> String {
    match byte {
        // As in every error of Redis, line ends become spaces.
        b'\r' | b'\n' | b' ' => " ".to_owned(),
        _ if byte.is_ascii_graphic() => char::from(byte).to_string(),
        _ => byte.escape_ascii().to_string(),
    }
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The request is whole; [`RequestParser::arguments`] has it.
    Complete {
        /// Its length: the next request begins here.
        consumed: usize,
    },
    /// The request goes on.
    Incomplete {
        /// At least so many more bytes belong to it. A hint for how much to read, up to the limits given.
        /// Never reserve it blindly: the client has announced these bytes, it need not send them.
        needed: usize,
    },
}

/// What the parser is in the middle of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Nothing of the request has been seen.
    #[default]
    Start,
    /// A line of words.
    Inline,
    /// The number of arguments.
    ArgumentCount,
    /// The head of the next argument.
    BulkLength,
    /// The bytes of the next argument.
    Bulk {
        /// How many they are.
        length: usize,
    },
}

/// Takes requests apart, one after the other, over any number of calls.
#[derive(Debug, Default)]
pub struct RequestParser {
    stage: Stage,
    /// Everything before is dealt with.
    position: usize,
    /// Everything before has no line end that has not been dealt with. Spares long lines a second look.
    searched: usize,
    /// Arguments that have not arrived yet.
    remaining: usize,
    /// Arguments that have.
    ranges: Vec<ArgumentRange>,
    /// The words of an inline request, unquoted.
    words: ArgumentsBuffer,
    /// Which of the two holds the arguments.
    is_inline: bool,
}

/// A line that should be a number.
enum Number {
    /// It is one; the line ends, line end included, at `end`.
    Is { value: i64, end: usize },
    /// It has ended and is none.
    Invalid,
    /// It is longer than allowed and has not ended.
    TooBig,
    /// It has not ended yet.
    Unfinished,
}

impl RequestParser {
    /// A parser at the start of a request.
    pub fn new() -> Self {
        Self::default()
    }

    /// Goes on with the current request, or begins one if the last is complete.
    ///
    /// `buffer` starts at the request's first byte and holds all of it that has arrived. Between the calls
    /// for one request it may only grow (or move).
    ///
    /// # Errors
    /// [`ProtocolError`]: the connection is to be closed. Further calls give the same error.
    pub fn parse(&mut self, buffer: &[u8], limits: &Limits) -> Result<Progress, ProtocolError> {
        if self.stage == Stage::Start {
            self.begin();
            self.stage = match buffer.first() {
                Some(b'*') => Stage::ArgumentCount,
                Some(_) => Stage::Inline,
                None => return Ok(Progress::Incomplete { needed: 1 }),
            };
        }
        match self.stage {
            Stage::Inline => self.parse_inline(buffer, limits),
            Stage::ArgumentCount => self.parse_argument_count(buffer, limits),
            _ => self.parse_bulks(buffer, limits),
        }
    }

    /// The arguments of the request that was completed last, out of the buffer that it was completed in.
    #[inline]
    pub fn arguments<'b>(&'b self, buffer: &'b [u8]) -> Arguments<'b> {
        if self.is_inline { self.words.as_arguments() } else { Arguments::new(buffer, &self.ranges) }
    }

    fn begin(&mut self) {
        self.position = 0;
        self.searched = 0;
        self.remaining = 0;
        self.is_inline = false;
        self.ranges.clear();
        if self.ranges.capacity() > RETAINED_ARGUMENTS_MAX {
            self.ranges.shrink_to(RETAINED_ARGUMENTS_MAX);
        }
    }

    fn complete(&mut self, consumed: usize) -> Progress {
        self.stage = Stage::Start;
        Progress::Complete { consumed }
    }

    fn parse_inline(&mut self, buffer: &[u8], limits: &Limits) -> Result<Progress, ProtocolError> {
        let bytes_max = limits.inline_bytes_max.min(request_bytes_max(limits));
        let Some(newline) = self.find(b'\n', buffer, bytes_max) else {
            return if buffer.len() > bytes_max {
                Err(ProtocolError::InlineTooBig)
            } else {
                Ok(Progress::Incomplete { needed: 1 })
            };
        };
        self.is_inline = true;
        self.words.clear_to(RETAINED_INLINE_BYTES_MAX);
        let line = &buffer[..newline];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        inline::split(line, &mut self.words).map_err(|inline::Unbalanced| ProtocolError::UnbalancedQuotes)?;
        Ok(self.complete(newline + 1))
    }

    #[inline]
    fn parse_argument_count(&mut self, buffer: &[u8], limits: &Limits) -> Result<Progress, ProtocolError> {
        let (count, end) = match self.number(buffer, limits) {
            Number::Is { value, end } => (value, end),
            Number::Invalid => return Err(ProtocolError::ArgumentCount),
            Number::TooBig => return Err(ProtocolError::ArgumentCountTooBig),
            Number::Unfinished => return Ok(Progress::Incomplete { needed: 1 }),
        };
        // Nothing and less than nothing are no arguments at all.
        let count = usize::try_from(count).unwrap_or(0);
        if count > limits.arguments_max {
            return Err(ProtocolError::ArgumentCount);
        }
        if count > UNAUTHENTICATED_ARGUMENTS_MAX && !limits.authenticated {
            return Err(ProtocolError::UnauthenticatedArgumentCount);
        }
        self.position = end;
        self.remaining = count;
        self.stage = Stage::BulkLength;
        self.parse_bulks(buffer, limits)
    }

    #[inline]
    fn parse_bulks(&mut self, buffer: &[u8], limits: &Limits) -> Result<Progress, ProtocolError> {
        while self.remaining > 0 {
            let length = match self.stage {
                Stage::Bulk { length } => length,
                _ => match self.parse_bulk_length(buffer, limits)? {
                    Some(length) => length,
                    None => return Ok(Progress::Incomplete { needed: 1 }),
                },
            };
            let start = self.position;
            let end = start + length;
            let Some(line_end) = buffer.get(end..end + 2) else {
                self.stage = Stage::Bulk { length };
                return Ok(Progress::Incomplete { needed: end + 2 - buffer.len() });
            };
            if line_end != b"\r\n" {
                self.stage = Stage::Bulk { length };
                return Err(ProtocolError::ExpectedLineEnd);
            }
            // The whole request is shorter than 4 GiB: `parse_bulk_length` saw to it.
            self.ranges.push((start as u32, end as u32));
            self.position = end + 2;
            self.remaining -= 1;
            self.stage = Stage::BulkLength;
        }
        Ok(self.complete(self.position))
    }

    /// Takes the head of the next argument; none if it has not arrived yet.
    #[inline]
    fn parse_bulk_length(&mut self, buffer: &[u8], limits: &Limits) -> Result<Option<usize>, ProtocolError> {
        match buffer.get(self.position) {
            Some(b'$') => {}
            Some(other) => return Err(ProtocolError::ExpectedBulk(*other)),
            None => return Ok(None),
        }
        let (length, end) = match self.number(buffer, limits) {
            Number::Is { value, end } => (value, end),
            Number::Invalid => return Err(ProtocolError::BulkLength),
            Number::TooBig => return Err(ProtocolError::BulkLengthTooBig),
            Number::Unfinished => return Ok(None),
        };
        let length = usize::try_from(length).map_err(|_| ProtocolError::BulkLength)?;
        if length > limits.bulk_bytes_max {
            return Err(ProtocolError::BulkLength);
        }
        if length > UNAUTHENTICATED_BULK_BYTES_MAX && !limits.authenticated {
            return Err(ProtocolError::UnauthenticatedBulkLength);
        }
        let bytes_max = request_bytes_max(limits);
        if end.saturating_add(length).saturating_add(2) > bytes_max {
            return Err(ProtocolError::RequestTooBig { bytes_max });
        }
        self.position = end;
        Ok(Some(length))
    }

    /// The number behind the type byte at `position`.
    #[inline]
    fn number(&mut self, buffer: &[u8], limits: &Limits) -> Number {
        let digits = self.position + 1;
        match short_number(buffer.get(digits..).unwrap_or(&[])) {
            Some((value, length)) => Number::Is { value, end: digits + length },
            None => self.unusual_number(buffer, limits),
        }
    }

    /// What is not a short number with its line end: unfinished, negative, huge, or nonsense.
    #[cold]
    fn unusual_number(&mut self, buffer: &[u8], limits: &Limits) -> Number {
        let end_max = self.position.saturating_add(limits.inline_bytes_max);
        // Nonsense, too, is read up to its line end before it is answered: the texts tell the two apart.
        let Some(carriage_return) = self.find(b'\r', buffer, end_max) else {
            return if buffer.len() > end_max { Number::TooBig } else { Number::Unfinished };
        };
        match buffer.get(carriage_return + 1) {
            None => Number::Unfinished,
            Some(b'\n') => match parse_integer(&buffer[self.position + 1..carriage_return]) {
                Some(value) => Number::Is { value, end: carriage_return + 2 },
                None => Number::Invalid,
            },
            Some(_) => Number::Invalid,
        }
    }

    /// The first `byte` from `position` to `last`, both included. Looks at no byte twice.
    fn find(&mut self, byte: u8, buffer: &[u8], last: usize) -> Option<usize> {
        let from = self.searched.max(self.position);
        let to = buffer.len().min(last.saturating_add(1));
        match memchr::memchr(byte, buffer.get(from..to)?) {
            Some(offset) => {
                self.searched = from + offset;
                Some(from + offset)
            }
            None => {
                self.searched = to;
                None
            }
        }
    }
}

/// Ranges are pairs of 32-bit numbers, so no request may be longer than they can tell.
#[inline]
fn request_bytes_max(limits: &Limits) -> usize {
    limits.request_bytes_max.min(u32::MAX as usize)
}

/// A number of few digits with its line end, as nearly every line is, and the length of both. Searching for
/// the line end first and reading the number afterwards would take twice as long.
#[inline]
fn short_number(line: &[u8]) -> Option<(i64, usize)> {
    let mut value = 0;
    for (index, byte) in line.iter().take(10).enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit <= 9 {
            value = value * 10 + i64::from(digit);
            continue;
        }
        let is_canonical = index == 1 || (index > 1 && line[0] != b'0');
        let is_ended = *byte == b'\r' && line.get(index + 1) == Some(&b'\n');
        return (is_canonical && is_ended).then_some((value, index + 2));
    }
    None
}
