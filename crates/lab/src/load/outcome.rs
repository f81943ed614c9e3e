//! The kinds of requests and their outcomes.

use std::fmt;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads a value and checks it.
    Get,
    /// Writes a value; with WAIT, until enough replicas have it.
    Set,
    /// Adds one to a counter. Counters have separate keys.
    Incr,
    /// An empty request: the cost of a round trip.
    Ping,
    /// A command of the user's own, whatever it does.
    Custom,
}

impl Operation {
    /// Every kind, in the order of reports.
    pub const ALL: [Self; 5] = [Self::Get, Self::Set, Self::Incr, Self::Ping, Self::Custom];

    /// The command's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Set => "SET",
            Self::Incr => "INCR",
            Self::Ping => "PING",
            Self::Custom => "CUSTOM",
        }
    }
}

/// A request, to be compared with its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) operation: Operation,
    pub(crate) key: u64,
    /// The sequence number of the write or custom command, if it is one.
    pub(crate) sequence: u64,
}

/// How one operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Success.
    Ok,
    /// Nothing was found: the reply was null.
    Miss,
    /// The value could not have been written to that key by this generator.
    WrongValue,
    /// The server replied with an error that has this first word.
    Error(ErrorWord),
    /// WAIT counted fewer replicas than requested.
    TooFewReplicas,
    /// The reply was malformed, or of a kind that is never a reply to this request.
    Protocol,
    /// The connection was lost before the reply arrived: the operation may have happened.
    Lost,
    /// No reply arrived in time: the operation may have happened.
    Timeout,
}

impl Outcome {
    /// Whether it is unknown if the operation happened.
    pub fn is_unknown(self) -> bool {
        match self {
            Self::Lost | Self::Timeout | Self::Protocol => true,
            Self::Error(word) => word.is_unknown(),
            _ => false,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok => formatter.pad("ok"),
            Self::Miss => formatter.pad("miss"),
            Self::WrongValue => formatter.pad("wrong_value"),
            Self::Error(word) => formatter.pad(&format!("error:{}", word.as_str())),
            Self::TooFewReplicas => formatter.pad("too_few_replicas"),
            Self::Protocol => formatter.pad("protocol"),
            Self::Lost => formatter.pad("lost"),
            Self::Timeout => formatter.pad("timeout"),
        }
    }
}

/// Errors of Redis and Quorate that mean nothing was done.
const REFUSALS: [&str; 21] = [
    "ASK",
    "BUSY",
    "CLUSTERDOWN",
    "CROSSSLOT",
    "ERR",
    "FENCED",
    "LOADING",
    "LOCKED",
    "MASTERDOWN",
    "MISCONF",
    "MOVED",
    "NOAUTH",
    "NOPERM",
    "NOREPLICAS",
    "NOSPACE",
    "NOTLEADER",
    "OOM",
    "READONLY",
    "TRYAGAIN",
    "WRONGPASS",
    "WRONGTYPE",
];

const WORD_BYTES_MAX: usize = 16;

/// The first word of an error reply (`MOVED`, `CLUSTERDOWN`), truncated to 16 bytes; cheap to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorWord {
    length: u8,
    bytes: [u8; WORD_BYTES_MAX],
}

impl ErrorWord {
    /// The first word of an error reply's text. Characters that are not plain become `?`.
    pub fn of(reply: &[u8]) -> Self {
        let word = reply.split(|byte| *byte == b' ').next().unwrap_or_default();
        let length = word.len().min(WORD_BYTES_MAX);
        let mut bytes = [0; WORD_BYTES_MAX];
        for (to, from) in bytes.iter_mut().zip(&word[..length]) {
            // A comma or a quote would break a row of the CSV report.
            let is_plain = from.is_ascii_alphanumeric() || matches!(from, b'_' | b'-' | b'.');
            *to = if is_plain { *from } else { b'?' };
        }
        Self { length: length as u8, bytes }
    }

    /// Whether an error of this kind leaves open if the operation happened: Quorate's says so, and the bare
    /// status of a failed HTTP server promises nothing.
    fn is_unknown(&self) -> bool {
        matches!(self.as_str().as_bytes(), b"UNKNOWN" | [b'5', _, _])
    }

    /// Whether an error of this kind promises that nothing happened. An error that promises neither counts as
    /// unknown where histories are checked.
    pub(crate) fn is_refusal(&self) -> bool {
        REFUSALS.contains(&self.as_str()) || matches!(self.as_str().as_bytes(), [b'4', _, _])
    }

    /// The word as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or("?")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_named_by_its_first_word() {
        assert_eq!(ErrorWord::of(b"CLUSTERDOWN try later").as_str(), "CLUSTERDOWN");
        assert_eq!(ErrorWord::of(b"").as_str(), "");
        assert_eq!(ErrorWord::of(b"A,\"\xff b").as_str(), "A???");
        assert_eq!(ErrorWord::of(b"ABCDEFGHIJKLMNOPQRST").as_str(), "ABCDEFGHIJKLMNOP");
    }

    #[test]
    fn an_error_that_says_unknown_is_unknown() {
        assert!(Outcome::Error(ErrorWord::of(b"UNKNOWN leader lost")).is_unknown());
        assert!(!Outcome::Error(ErrorWord::of(b"ERR no")).is_unknown());
        assert!(Outcome::Lost.is_unknown());
        assert!(Outcome::Error(ErrorWord::of(b"500")).is_unknown());
    }

    #[test]
    fn no_error_is_both_refused_and_unknown() {
        for word in REFUSALS.iter().copied().chain(["UNKNOWN", "500", "404", "MADEUP"]) {
            let word = ErrorWord::of(word.as_bytes());
            assert!(!(word.is_refusal() && word.is_unknown()), "{word:?}");
        }
        assert!(ErrorWord::of(b"404").is_refusal() && !ErrorWord::of(b"MADEUP").is_refusal());
    }
}
