//! Parsed replies, of either version of the protocol.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// One reply.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    /// A line with its first byte: a status, an error, a number and the like.
    Line(Vec<u8>),
    Bulk(Vec<u8>),
    /// An array, a set, a map or a push, by its first byte. A map has two elements for each pair.
    Elements(u8, Vec<Reply>),
}

impl Reply {
    /// The text of a reply that is not an aggregate.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Reply::Line(line) => &line[1..],
            Reply::Bulk(bytes) => bytes,
            Reply::Elements(..) => b"",
        }
    }
}

/// Formats bytes as redis-cli reads them.
pub(super) fn printable(bytes: &[u8]) -> String {
    let is_plain = !bytes.is_empty() && bytes.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'"');
    match is_plain {
        true => String::from_utf8_lossy(bytes).into_owned(),
        false => format!("\"{}\"", bytes.escape_ascii()),
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Line(line) => write!(formatter, "{}", line.escape_ascii()),
            Reply::Bulk(bytes) => write!(formatter, "'{}'", bytes.escape_ascii()),
            Reply::Elements(kind, elements) => {
                write!(formatter, "{}[", char::from(*kind))?;
                for (place, element) in elements.iter().enumerate() {
                    write!(formatter, "{}{element}", if place > 0 { " " } else { "" })?;
                }
                formatter.write_str("]")
            }
        }
    }
}

/// A connection that sends many requests at once.
pub(super) struct Connection(BufReader<TcpStream>);

impl Connection {
    pub(super) fn new(stream: TcpStream) -> Connection {
        Connection(BufReader::new(stream))
    }

    pub(super) fn send(&mut self, requests: &[Vec<Vec<u8>>]) {
        let mut bytes = Vec::new();
        for words in requests {
            bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
            for word in words {
                bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
                bytes.extend_from_slice(word);
                bytes.extend_from_slice(b"\r\n");
            }
        }
        self.0.get_mut().write_all(&bytes).unwrap();
    }

    pub(super) fn replies(&mut self, count: usize) -> Vec<Reply> {
        (0..count).map(|_| self.reply()).collect()
    }

    fn reply(&mut self) -> Reply {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line).unwrap();
        assert!(line.ends_with(b"\r\n"), "the connection ended: {}", line.escape_ascii());
        line.truncate(line.len() - 2);
        let count = std::str::from_utf8(&line[1..]).ok().and_then(|text| text.parse::<usize>().ok());
        match (line[0], count) {
            (b'$' | b'=', Some(length)) => {
                let mut bytes = vec![0; length + 2];
                self.0.read_exact(&mut bytes).unwrap();
                bytes.truncate(length);
                Reply::Bulk(bytes)
            }
            (kind @ (b'*' | b'~' | b'>'), Some(count)) => Reply::Elements(kind, self.replies(count)),
            (b'%', Some(count)) => Reply::Elements(b'%', self.replies(2 * count)),
            _ => Reply::Line(line),
        }
    }
}
