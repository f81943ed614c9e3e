//! Reads one response from the front of a buffer that may end anywhere.

use std::borrow::Cow;

use serde::Deserialize;

use super::super::outcome::Operation;
use super::super::reply::{Malformed, Reply, Scanned};

/// The longest head (status line and header fields) that is accepted.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// The longest line before a chunk.
const CHUNK_LINE_BYTES_MAX: usize = 1024;

/// Represents a value that needs escapes in JSON: none of ours does, so it is wrong whatever its content.
const VALUE_WITH_ESCAPES: &[u8] = b"\\";

/// Reads responses. It holds the body of a chunked response.
#[derive(Default)]
pub(crate) struct Responses {
    joined: Vec<u8>,
}

/// The body of a successful response.
#[derive(Deserialize)]
struct Found<'a> {
    #[serde(borrow)]
    value: Option<Text<'a>>,
}

/// A string, borrowed unless it has escapes. A separate type, because serde does not borrow within an option.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The body of a refusal.
#[derive(Deserialize)]
struct Refused<'a> {
    code: &'a str,
}

/// The parsed head of a response.
struct Head<'a> {
    /// The status code: three digits.
    status: &'a [u8],
    length: Option<usize>,
    is_chunked: bool,
    closes: bool,
    bytes: usize,
}

impl Responses {
    /// Reads the response to `operation` at the front of `input`; `None` when it is incomplete.
    pub(crate) fn scan<'a>(
        &'a mut self,
        operation: Operation,
        input: &'a [u8],
        body_bytes_max: usize,
    ) -> Result<Option<Scanned<'a>>, Malformed> {
        let mut start = 0;
        let head = loop {
            let Some(head) = read_head(&input[start..])? else { return Ok(None) };
            start += head.bytes;
            // "100 Continue" and other 1xx responses precede the actual response.
            if head.status[0] != b'1' {
                break head;
            }
        };
        let rest = &input[start..];
        let (body, end) = if matches!(head.status, b"204" | b"304") {
            (&rest[..0], start)
        } else if head.is_chunked {
            self.joined.clear();
            match join_chunks(rest, body_bytes_max, &mut self.joined)? {
                Some(bytes) => (&self.joined[..], start + bytes),
                None => return Ok(None),
            }
        } else {
            // A body without a length continues until the server closes: nothing could follow on this
            // connection.
            let length = head.length.filter(|length| *length <= body_bytes_max).ok_or(Malformed)?;
            match rest.get(..length) {
                Some(body) => (body, start + length),
                None => return Ok(None),
            }
        };
        let reply = understand(operation, head.status, body)?;
        Ok(Some(Scanned { reply, place: 0, bytes: end, closes: head.closes }))
    }
}

/// Interprets a response.
fn understand<'a>(operation: Operation, status: &'a [u8], body: &'a [u8]) -> Result<Reply<'a>, Malformed> {
    match (operation, status) {
        (Operation::Get, b"200") => {
            let found: Found<'a> = serde_json::from_slice(body).map_err(|_| Malformed)?;
            Ok(match found.value {
                Some(Text(Cow::Borrowed(value))) => Reply::Bulk(value.as_bytes()),
                Some(Text(Cow::Owned(_))) => Reply::Bulk(VALUE_WITH_ESCAPES),
                None => Reply::Null,
            })
        }
        (Operation::Get, b"404") => Ok(Reply::Null),
        (Operation::Set, [b'2', ..]) => Ok(Reply::Status(b"OK")),
        (Operation::Ping, [b'2', ..]) => Ok(Reply::Status(b"PONG")),
        (_, [b'4' | b'5', ..]) => {
            // Quorate sends an error word; other servers only give a status.
            let refused: Result<Refused<'a>, _> = serde_json::from_slice(body);
            Ok(Reply::Error(refused.map_or(status, |refused| refused.code.as_bytes())))
        }
        _ => Err(Malformed),
    }
}

fn read_head(input: &[u8]) -> Result<Option<Head<'_>>, Malformed> {
    let window = &input[..input.len().min(HEAD_BYTES_MAX)];
    let Some(end) = find(window, b"\r\n\r\n") else {
        let is_too_long = window.len() == HEAD_BYTES_MAX;
        return if is_too_long || !could_begin(window) { Err(Malformed) } else { Ok(None) };
    };
    let mut lines = Lines { rest: &window[..end + 2] };
    let status_line = lines.next().ok_or(Malformed)?;
    let version = status_line.strip_prefix(b"HTTP/1.").ok_or(Malformed)?;
    let (minor, status) = match version {
        [minor @ (b'0' | b'1'), b' ', a, b, c, rest @ ..]
            if [a, b, c].iter().all(|digit| digit.is_ascii_digit()) && matches!(rest, [] | [b' ', ..]) =>
        {
            (*minor, &version[2..5])
        }
        _ => return Err(Malformed),
    };
    let mut head = Head {
        status,
        length: None,
        is_chunked: false,
        closes: minor == b'0',
        bytes: end + b"\r\n\r\n".len(),
    };
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':').ok_or(Malformed)?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = parse_number(value, 10).ok_or(Malformed)?;
            if head.length.is_some_and(|earlier| earlier != length) {
                return Err(Malformed);
            }
            head.length = Some(length);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Malformed);
            }
            head.is_chunked = true;
        } else if name.eq_ignore_ascii_case(b"connection") {
            let has = |word: &[u8]| {
                value.split(|byte| *byte == b',').any(|option| option.trim_ascii().eq_ignore_ascii_case(word))
            };
            head.closes = has(b"close") || head.closes && !has(b"keep-alive");
        }
    }
    Ok(Some(head))
}

/// Whether a response can begin like this, so that the run does not wait in vain for a server of another kind.
fn could_begin(input: &[u8]) -> bool {
    b"HTTP/1.".iter().zip(input).all(|(expected, byte)| expected == byte)
}

/// Appends the contents of all chunks and returns their length in `input`; `None` when they are incomplete.
fn join_chunks(input: &[u8], bytes_max: usize, joined: &mut Vec<u8>) -> Result<Option<usize>, Malformed> {
    let mut at = 0;
    loop {
        let Some(line) = chunk_line(&input[at..])? else { return Ok(None) };
        let size = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let size = parse_number(size, 16).ok_or(Malformed)?;
        at += line.len() + 2;
        if size == 0 {
            break;
        }
        if size > bytes_max || joined.len() + size > bytes_max {
            return Err(Malformed);
        }
        match input.get(at + size..at + size + 2) {
            None => return Ok(None),
            Some(b"\r\n") => joined.extend_from_slice(&input[at..at + size]),
            Some(_) => return Err(Malformed),
        }
        at += size + 2;
    }
    // Trailing fields, up to an empty line.
    loop {
        let Some(line) = chunk_line(&input[at..])? else { return Ok(None) };
        at += line.len() + 2;
        if line.is_empty() {
            return Ok(Some(at));
        }
    }
}

/// The first line without its end; `None` when it is incomplete.
fn chunk_line(input: &[u8]) -> Result<Option<&[u8]>, Malformed> {
    let window = &input[..input.len().min(CHUNK_LINE_BYTES_MAX)];
    match find(window, b"\r\n") {
        Some(end) => Ok(Some(&window[..end])),
        None if window.len() == CHUNK_LINE_BYTES_MAX => Err(Malformed),
        None => Ok(None),
    }
}

fn parse_number(digits: &[u8], radix: usize) -> Option<usize> {
    let (first, rest) = digits.split_first()?;
    let digit = |byte: &u8| char::from(*byte).to_digit(radix as u32).map(|digit| digit as usize);
    rest.iter().try_fold(digit(first)?, |number, byte| number.checked_mul(radix)?.checked_add(digit(byte)?))
}

fn find(input: &[u8], pattern: &[u8]) -> Option<usize> {
    input.windows(pattern.len()).position(|window| window == pattern)
}

/// Lines that end in CR LF, without their ends.
struct Lines<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let end = find(self.rest, b"\r\n")?;
        let line = &self.rest[..end];
        self.rest = &self.rest[end + 2..];
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::random::Random;

    const BODY_BYTES_MAX: usize = 1024;

    /// A response's content and its length, in words.
    fn scan(operation: Operation, input: &str) -> String {
        let mut responses = Responses::default();
        match responses.scan(operation, input.as_bytes(), BODY_BYTES_MAX) {
            Ok(Some(Scanned { reply, bytes, closes, .. })) => {
                let all = if bytes == input.len() { "all" } else { "part" };
                let closes = if closes { ", closes" } else { "" };
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                match reply {
                    Reply::Bulk(value) => format!("value {} of {all}{closes}", text(value)),
                    Reply::Error(word) => format!("error {} of {all}{closes}", text(word)),
                    Reply::Status(status) => format!("{} of {all}{closes}", text(status)),
                    reply => format!("{reply:?} of {all}{closes}"),
                }
            }
            Ok(None) => "incomplete".to_owned(),
            Err(Malformed) => "malformed".to_owned(),
        }
    }

    const FOUND: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nContent-LENGTH:  29\r\n\r\n\
                         {\"key\":\"k\",\"value\":\"v\",\"x\":1}";
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                           8;name=x\r\n{\"value\"\r\n6\r\n:\"abc\"\r\n1\r\n}\r\n0\r\nTrailer: x\r\n\r\n";

    #[test]
    fn responses_are_understood() {
        assert_eq!(scan(Operation::Get, FOUND), "value v of all");
        assert_eq!(scan(Operation::Get, &format!("{FOUND}HTTP/1.1 2")), "value v of part");
        assert_eq!(scan(Operation::Set, FOUND), "OK of all");
        assert_eq!(scan(Operation::Ping, FOUND), "PONG of all");
        assert_eq!(scan(Operation::Get, CHUNKED), "value abc of all");
        assert_eq!(scan(Operation::Set, &format!("HTTP/1.1 100 Continue\r\n\r\n{FOUND}")), "OK of all");
        assert_eq!(scan(Operation::Set, "HTTP/1.1 204 No Content\r\n\r\n"), "OK of all");
        let response = |status: &str, fields: &str, body: &str| {
            format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
        };
        let get = |status, fields, body| scan(Operation::Get, &response(status, fields, body));
        assert_eq!(get("404 Not Found", "", "{\"detail\":\"?\"}"), "Null of all");
        assert_eq!(get("200 OK", "", "{\"value\":null}"), "Null of all");
        assert_eq!(get("200 OK", "Connection: close\r\n", "{\"value\":\"v\"}"), "value v of all, closes");
        assert_eq!(get("200 OK", "", "{\"value\":\"a\\u0062\"}"), "value \\ of all");
        assert_eq!(
            get("503 Unavailable", "", "{\"error\":\"x\",\"code\":\"CLUSTERDOWN\"}"),
            "error CLUSTERDOWN of all"
        );
        assert_eq!(get("500", "", "Internal Server Error"), "error 500 of all");
        assert_eq!(get("200 OK", "", "{}"), "Null of all");
    }

    #[test]
    fn the_rest_of_a_response_cut_anywhere_is_awaited() {
        for cut in 0..CHUNKED.len() {
            assert_eq!(scan(Operation::Get, &CHUNKED[..cut]), "incomplete", "{cut}");
        }
    }

    #[test]
    fn garbage_is_refused() {
        for input in [
            "+PONG\r\n",
            "HTTP/2 200 OK\r\n\r\n",
            "HTTP/1.1 20 OK\r\n\r\n",
            "HTTP/1.1 2000 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1025\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            "HTTP/1.1 301 Moved\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
        ] {
            assert_eq!(scan(Operation::Get, input), "malformed", "{input:?}");
        }
        let long = format!("HTTP/1.1 200 OK\r\n{}", "a: b\r\n".repeat(HEAD_BYTES_MAX / 6));
        assert_eq!(scan(Operation::Get, &long), "malformed");
    }

    #[test]
    fn damaged_responses_never_panic() {
        let mut random = Random::new(7);
        for _ in 0..50_000 {
            let mut input = CHUNKED.as_bytes().to_vec();
            for _ in 0..=random.below(3) {
                let at = random.below(input.len() as u64) as usize;
                input[at] = random.next() as u8;
            }
            let mut responses = Responses::default();
            if let Ok(Some(scanned)) = responses.scan(Operation::Get, &input, BODY_BYTES_MAX) {
                assert!(scanned.bytes <= input.len());
            }
        }
    }
}
