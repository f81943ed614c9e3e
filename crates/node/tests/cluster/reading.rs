//! Replies as a client reads them from its connection.

use std::fmt;

/// One reply with its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Status(String),
    Error(String),
    Integer(i64),
    /// A bulk string; unprintable bytes are escaped.
    Bulk(String),
    Nil,
    Array(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    /// A verbatim text (RESP3).
    Verbatim(String),
}

impl Reply {
    /// Takes the first reply off `bytes` if it is complete.
    pub(crate) fn take(bytes: &mut Vec<u8>) -> Option<Reply> {
        let mut rest = bytes.as_slice();
        let reply = Reply::read(&mut rest)?;
        let taken = bytes.len() - rest.len();
        bytes.drain(..taken);
        Some(reply)
    }

    fn read(rest: &mut &[u8]) -> Option<Reply> {
        let line = read_line(rest)?;
        let (kind, text) = line.split_at(1);
        let number = || text.parse::<i64>().expect("a number");
        Some(match kind {
            "+" => Reply::Status(text.into()),
            "-" => Reply::Error(text.into()),
            ":" => Reply::Integer(number()),
            "_" => Reply::Nil,
            "$" | "*" if text == "-1" => Reply::Nil,
            "$" => Reply::Bulk(read_bytes(rest, number() as usize)?),
            "=" => Reply::Verbatim(read_bytes(rest, number() as usize)?),
            "*" | "~" | ">" => Reply::Array((0..number()).map(|_| Reply::read(rest)).collect::<Option<_>>()?),
            "%" => Reply::Map(
                (0..number())
                    .map(|_| Some((Reply::read(rest)?, Reply::read(rest)?)))
                    .collect::<Option<_>>()?,
            ),
            _ => panic!("no reply begins with {line:?}"),
        })
    }

    /// Returns the elements of an array.
    pub(crate) fn elements(self) -> Vec<Reply> {
        match self {
            Reply::Array(elements) => elements,
            other => panic!("{other} is not an array"),
        }
    }

    /// Returns the text of a bulk string, a status or a verbatim text.
    pub(crate) fn text(self) -> String {
        match self {
            Reply::Bulk(text) | Reply::Status(text) | Reply::Verbatim(text) => text,
            other => panic!("{other} is not a text"),
        }
    }
}

fn read_line(rest: &mut &[u8]) -> Option<String> {
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    let line = std::str::from_utf8(&rest[..end]).expect("a line is text").to_owned();
    *rest = &rest[end + 2..];
    Some(line)
}

fn read_bytes(rest: &mut &[u8], count: usize) -> Option<String> {
    let bytes = rest.get(..count)?;
    assert_eq!(rest.get(count..count + 2)?, b"\r\n", "a string ends where it says");
    let text = String::from_utf8(bytes.to_vec()).unwrap_or_else(|_| bytes.escape_ascii().to_string());
    *rest = &rest[count + 2..];
    Some(text)
}

impl fmt::Display for Reply {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |texts: Vec<String>| texts.join(", ");
        match self {
            Reply::Status(text) => formatter.write_str(text),
            Reply::Error(text) => write!(formatter, "-{text}"),
            Reply::Integer(number) => write!(formatter, "{number}"),
            Reply::Bulk(text) | Reply::Verbatim(text) => write!(formatter, "\"{text}\""),
            Reply::Nil => formatter.write_str("nil"),
            Reply::Array(elements) => {
                write!(formatter, "[{}]", joined(elements.iter().map(Reply::to_string).collect()))
            }
            Reply::Map(pairs) => {
                let pairs = pairs.iter().map(|(key, value)| format!("{key}: {value}"));
                write!(formatter, "{{{}}}", joined(pairs.collect()))
            }
        }
    }
}
