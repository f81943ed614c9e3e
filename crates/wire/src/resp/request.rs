//! Requests of clients: an array of bulk strings, or a line of words.
//!
//! ```text
//! *2\r\n$3\r\nGET\r\n$3\r\nkey\r\n      an array of 2 bulk strings of 3 bytes each
//! GET key\r\n                           the same as an inline request
//! ```
//!
//! The parser is resumable. Input arrives in pieces that end anywhere, so the parser remembers its position: a request
//! takes time in proportion to its length, not to its length times the number of pieces. It stores eight bytes for each
//! argument that has arrived and copies no argument (except for inline requests, which may contain escapes). What a
//! client merely announces costs nothing.
//!
//! It accepts what Redis accepts and uses Redis's error texts, with two exceptions. Redis skips the bytes where a line
//! end belongs without looking at them; here they must be a line end, because otherwise the values of a client that
//! miscounts would be read as commands. And the limits here do not depend on how the network splits the request: a
//! whole request and the same one in pieces give the same result.

use kv::number::parse_integer;

use super::arguments::{ArgumentRange, Arguments, ArgumentsBuffer};
use super::inline;

/// Most arguments that a client may announce before it has authenticated itself.
pub const UNAUTHENTICATED_ARGUMENTS_MAX: usize = 10;

/// Longest argument that a client may send before it has authenticated itself, in bytes.
pub const UNAUTHENTICATED_BULK_BYTES_MAX: usize = 16 * 1024;

/// Most arguments for which a parser retains capacity between requests. Few requests have more.
const RETAINED_ARGUMENTS_MAX: usize = 1024;

/// Most bytes of words of inline requests for which a parser retains capacity between requests.
const RETAINED_INLINE_BYTES_MAX: usize = 4 * 1024;

/// The limits for a client's requests. They may differ between calls: authentication lifts some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest argument, in bytes.
    pub bulk_bytes_max: usize,
    /// Most arguments.
    pub arguments_max: usize,
    /// Longest line without its end, in bytes: a whole inline request, or the head of an array or a string.
    pub inline_bytes_max: usize,
    /// Longest request in total, in bytes. Above 4 GiB it counts as 4 GiB.
    pub request_bytes_max: usize,
    /// When false, requests must be small: at most [`UNAUTHENTICATED_ARGUMENTS_MAX`] arguments of at most
    /// [`UNAUTHENTICATED_BULK_BYTES_MAX`] each. True also for servers that need no authentication.
    pub authenticated: bool,
}

impl Default for Limits {
    /// Values up to the default limit, in requests of at most twice that; not authenticated.
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

/// The client does not speak the protocol, or exceeds a limit. Nothing it sends afterwards can be interpreted safely:
/// reply with the error, whose text is Redis's, and close the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The number of arguments is not a number, or exceeds the limit.
    #[error("ERR Protocol error: invalid multibulk length")]
    ArgumentCount,
    /// An argument's length is not a number, is negative, or exceeds the limit.
    #[error("ERR Protocol error: invalid bulk length")]
    BulkLength,
    /// More arguments than are allowed before authentication.
    #[error("ERR Protocol error: unauthenticated multibulk length")]
    UnauthenticatedArgumentCount,
    /// A longer argument than is allowed before authentication.
    #[error("ERR Protocol error: unauthenticated bulk length")]
    UnauthenticatedBulkLength,
    /// This byte is where the head of an argument should begin.
    #[error("ERR Protocol error: expected '$', got '{}'", printable(*.0))]
    ExpectedBulk(u8),
    /// An argument is longer or shorter than its announced length.
    #[error("ERR Protocol error: expected a line end after a bulk string")]
    ExpectedLineEnd,
    /// An inline request exceeds its limit without ending.
    #[error("ERR Protocol error: too big inline request")]
    InlineTooBig,
    /// The number of arguments exceeds the line limit without ending.
    #[error("ERR Protocol error: too big mbulk count string")]
    ArgumentCountTooBig,
    /// An argument's length exceeds the line limit without ending.
    #[error("ERR Protocol error: too big bulk count string")]
    BulkLengthTooBig,
    /// An inline request has an open quote.
    #[error("ERR Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// The request as a whole exceeds the limit.
    #[error("ERR Protocol error: request of more than {bytes_max} bytes")]
    RequestTooBig {
        /// The limit in bytes.
        bytes_max: usize,
    },
}

/// Formats a byte from the client, escaped if it is not printable: it must not break the line that it is in.
fn printable(byte: u8) -> String {
    match byte {
        // As in all of Redis's errors, line ends become spaces.
        b'\r' | b'\n' | b' ' => " ".to_owned(),
        _ if byte.is_ascii_graphic() => char::from(byte).to_string(),
        _ => byte.escape_ascii().to_string(),
    }
}

/// The progress of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The request is complete; [`RequestParser::arguments`] returns its arguments.
    Complete {
        /// Its length in bytes: the next request begins there.
        consumed: usize,
    },
    /// The request has not arrived completely.
    Incomplete {
        /// At least this many more bytes belong to it: a hint for how much to read, within the given limits. Never
        /// reserve memory for it blindly: the client has announced these bytes but need not send them.
        needed: usize,
    },
}

/// What the parser expects next.
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
        /// Its length in bytes.
        length: usize,
    },
}

/// Parses requests, one after the other, over any number of calls.
#[derive(Debug, Default)]
pub struct RequestParser {
    stage: Stage,
    /// Everything before this offset has been parsed.
    position: usize,
    /// No unparsed line end lies before this offset. Avoids searching long lines twice.
    searched: usize,
    /// Number of arguments that have not arrived yet.
    remaining: usize,
    /// The arguments that have arrived.
    ranges: Vec<ArgumentRange>,
    /// The words of an inline request, unquoted.
    words: ArgumentsBuffer,
    /// Whether `words`, and not `ranges`, holds the arguments.
    is_inline: bool,
}

/// A line that should be a number.
enum Number {
    /// A valid number; its line, line end included, ends at `end`.
    Is { value: i64, end: usize },
    /// A complete line that is not a number.
    Invalid,
    /// A line that exceeds the limit without ending.
    TooBig,
    /// A line that has not ended yet.
    Unfinished,
}

impl RequestParser {
    /// Returns a parser at the start of a request.
    pub fn new() -> Self {
        Self::default()
    }

    /// Continues the current request, or begins one if the last is complete.
    ///
    /// `buffer` must start at the request's first byte and hold all of it that has arrived. Between the calls for one
    /// request it may only grow (or move).
    ///
    /// # Errors
    /// [`ProtocolError`]: close the connection. Further calls return the same error.
    pub fn parse(&mut self, buffer: &[u8], limits: &Limits) -> Result<Progress, ProtocolError> {
        if self.stage == Stage::Start {
            self.begin();
            if let [b'*', count @ b'1'..=b'9', b'\r', b'\n', ..] = *buffer
                && limits.arguments_max >= SHORT_COUNT_MAX
            {
                (self.position, self.remaining) = (4, usize::from(count - b'0'));
                self.stage = Stage::BulkLength;
                return self.parse_bulks(buffer, limits);
            }
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

    /// Returns the arguments of the last complete request, from the buffer in which it was completed.
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

    /// Completes the request, in a buffer of `arrived` bytes.
    fn complete(&mut self, consumed: usize, arrived: usize) -> Progress {
        assert_eq!(self.remaining, 0, "a request is complete without all of its arguments");
        assert!(
            (1..=arrived).contains(&consumed),
            "a request of {consumed} bytes, and {arrived} have arrived"
        );
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
        Ok(self.complete(newline + 1, buffer.len()))
    }

    #[inline]
    fn parse_argument_count(&mut self, buffer: &[u8], limits: &Limits) -> Result<Progress, ProtocolError> {
        let (count, end) = match self.number(buffer, limits) {
            Number::Is { value, end } => (value, end),
            Number::Invalid => return Err(ProtocolError::ArgumentCount),
            Number::TooBig => return Err(ProtocolError::ArgumentCountTooBig),
            Number::Unfinished => return Ok(Progress::Incomplete { needed: 1 }),
        };
        // Zero or less means no arguments.
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
        let may_be_short = limits.bulk_bytes_max >= SHORT_BULK_BYTES_MAX;
        let short_end_max = if may_be_short { request_bytes_max(limits) } else { 0 };
        while self.remaining > 0 {
            if self.stage == Stage::BulkLength
                && let Some((start, end)) = short_bulk(buffer, self.position)
                && end + 2 <= short_end_max
            {
                self.ranges.push((start as u32, end as u32));
                self.position = end + 2;
                self.remaining -= 1;
                continue;
            }
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
            // The whole request is shorter than 4 GiB, as `parse_bulk_length` has checked.
            assert!(start <= end && end <= u32::MAX as usize, "an argument from {start} to {end}");
            self.ranges.push((start as u32, end as u32));
            self.position = end + 2;
            self.remaining -= 1;
            self.stage = Stage::BulkLength;
        }
        Ok(self.complete(self.position, buffer.len()))
    }

    /// Parses the head of the next argument; `None` if it has not arrived yet.
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

    /// Parses the number behind the type byte at `position`.
    #[inline]
    fn number(&mut self, buffer: &[u8], limits: &Limits) -> Number {
        let digits = self.position + 1;
        match short_number(buffer.get(digits..).unwrap_or(&[])) {
            Some((value, length)) => Number::Is { value, end: digits + length },
            None => self.unusual_number(buffer, limits),
        }
    }

    /// Parses anything but a short number with its line end: unfinished, negative, huge, or invalid.
    #[cold]
    fn unusual_number(&mut self, buffer: &[u8], limits: &Limits) -> Number {
        let end_max = self.position.saturating_add(limits.inline_bytes_max);
        // An invalid number, too, is read up to its line end before the error is returned: the error texts differ.
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

    /// Finds the first `byte` from `position` to `last`, inclusive. Looks at no byte twice.
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

/// Ranges are pairs of 32-bit numbers, so no request may be longer than those can express.
#[inline]
fn request_bytes_max(limits: &Limits) -> usize {
    limits.request_bytes_max.min(u32::MAX as usize)
}

/// The most arguments whose number has one digit. Whoever has not authenticated may send as many.
const SHORT_COUNT_MAX: usize = 9;
const _: () = assert!(SHORT_COUNT_MAX <= UNAUTHENTICATED_ARGUMENTS_MAX);

/// The longest argument whose length has two digits. Whoever has not authenticated may send longer ones.
const SHORT_BULK_BYTES_MAX: usize = 99;
const _: () = assert!(SHORT_BULK_BYTES_MAX <= UNAUTHENTICATED_BULK_BYTES_MAX);

/// Where the bytes of an argument lie whose head is at `position`, if its length has one or two digits and all of it is there:
/// nearly every argument of nearly every request.
#[inline]
fn short_bulk(buffer: &[u8], position: usize) -> Option<(usize, usize)> {
    let head = buffer.get(position..)?.first_chunk::<5>()?;
    let digit = |byte: u8| Some(usize::from(byte.wrapping_sub(b'0'))).filter(|digit| *digit <= 9);
    let (length, start) = match *head {
        [b'$', ones, b'\r', b'\n', _] => (digit(ones)?, position + 4),
        [b'$', tens @ b'1'..=b'9', ones, b'\r', b'\n'] => (10 * digit(tens)? + digit(ones)?, position + 5),
        _ => return None,
    };
    let end = start + length;
    (*buffer.get(end..)?.first_chunk::<2>()? == *b"\r\n").then_some((start, end))
}

/// Parses a number of few digits with its line end, which nearly every line is; returns the number and the length of
/// both. Searching for the line end first and parsing afterwards would take twice as long.
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
