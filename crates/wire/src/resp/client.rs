//! A client's side: encoding requests and reading replies.

use std::io::{self, BufRead, ErrorKind, Read as _, Write as _};

/// Longest line of a reply, in bytes.
const LINE_BYTES: u64 = 1 << 16;

/// Deepest nesting of a reply's arrays.
const DEPTH: usize = 8;

/// A reply in RESP2.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// A short text, such as `OK`.
    Status(String),
    /// A refusal: its code, and why.
    Error(String),
    /// A number.
    Integer(i64),
    /// A string.
    Bulk(Vec<u8>),
    /// Nothing, in place of a string or an array.
    Null,
    /// A list of replies.
    Array(Vec<Reply>),
}

impl Reply {
    /// The bytes of a string.
    pub fn bytes(self) -> Option<Vec<u8>> {
        match self {
            Reply::Bulk(bytes) => Some(bytes),
            Reply::Status(text) => Some(text.into_bytes()),
            _ => None,
        }
    }

    /// Reads the next reply.
    ///
    /// # Errors
    /// Those of the source; `UnexpectedEof` if it ends too early, `InvalidData` if these bytes are not a
    /// reply.
    pub fn read(source: &mut impl BufRead) -> io::Result<Reply> {
        Reply::read_nested(source, 0)
    }

    fn read_nested(source: &mut impl BufRead, depth: usize) -> io::Result<Reply> {
        let mut line = Vec::new();
        source.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line)?;
        if line.first().is_some_and(|kind| !b"+-:$*".contains(kind)) {
            return Err(io::Error::new(ErrorKind::InvalidData, "this is no reply"));
        }
        let Some((kind, rest)) = line.strip_suffix(b"\r\n").and_then(<[u8]>::split_first) else {
            return Err(ErrorKind::UnexpectedEof.into());
        };
        let text = String::from_utf8_lossy(rest).into_owned();
        let number = || text.parse::<i64>().map_err(|error| io::Error::new(ErrorKind::InvalidData, error));
        Ok(match kind {
            b'+' => Reply::Status(text),
            b'-' => Reply::Error(text),
            b':' => Reply::Integer(number()?),
            b'$' | b'*' if number()? < 0 => Reply::Null,
            b'$' => {
                let (length, mut bytes) = (number()? as u64, Vec::new());
                source.by_ref().take(length + 2).read_to_end(&mut bytes)?;
                if bytes.len() as u64 != length + 2 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                bytes.truncate(length as usize);
                Reply::Bulk(bytes)
            }
            b'*' if depth < DEPTH => {
                let one = |_| Reply::read_nested(source, depth + 1);
                Reply::Array((0..number()?).map(one).collect::<io::Result<_>>()?)
            }
            _ => return Err(io::Error::new(ErrorKind::InvalidData, "this is no reply")),
        })
    }
}

/// Appends a request.
pub fn put_request(words: &[&[u8]], out: &mut Vec<u8>) {
    let _ = write!(out, "*{}\r\n", words.len());
    for word in words {
        let _ = write!(out, "${}\r\n", word.len());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_read_with_its_nested_replies() {
        let mut bytes = &b"*5\r\n+OK\r\n-ERR no\r\n:-7\r\n$2\r\n\r\n\r\n*-1\r\n$-1\r\n"[..];
        let parts = vec![
            Reply::Status("OK".into()),
            Reply::Error("ERR no".into()),
            Reply::Integer(-7),
            Reply::Bulk(b"\r\n".to_vec()),
            Reply::Null,
        ];
        assert_eq!(Reply::read(&mut bytes).unwrap(), Reply::Array(parts));
        assert_eq!(Reply::read(&mut bytes).unwrap(), Reply::Null);
        assert_eq!(Reply::read(&mut bytes).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn bytes_that_are_not_a_reply_are_refused() {
        let deep = b"*1\r\n".repeat(DEPTH + 1);
        let wrong: [(&[u8], ErrorKind); 5] = [
            (b"+OK", ErrorKind::UnexpectedEof),
            (b"$5\r\nab\r\n", ErrorKind::UnexpectedEof),
            (b":seven\r\n", ErrorKind::InvalidData),
            (b"HTTP/1.1 400\r\n", ErrorKind::InvalidData),
            (&deep, ErrorKind::InvalidData),
        ];
        for (mut bytes, kind) in wrong {
            assert_eq!(Reply::read(&mut bytes).unwrap_err().kind(), kind);
        }
    }
}
