//! ZooKeeper's own protocol: `setData` and `getData` of the nodes `/KEY`, and its ping.
//!
//! A packet is a length followed by big-endian fields. A server answers a session's requests in order. A read returns
//! the contacted server's state, which may be behind. Loading creates the keys: a node must exist before it is written.

use super::options::Options;
use super::outcome::{Expected, Operation};
use super::reply::{Malformed, Reply, Scanned};
use super::template::Template;
use super::value::Values;

/// The limit of a server in its default configuration (`jute.maxbuffer`), disregarding a packet's other fields.
pub(crate) const VALUE_BYTES_MAX: usize = 1_000_000;

// Request types.
const CREATE: i32 = 1;
const GET_DATA: i32 = 4;
const SET_DATA: i32 = 5;
const PING: i32 = 11;

// A reply has its request's number. These numbers identify the kind of reply; the first packet of a server,
// which belongs to no request, has a zero there.
const CONNECTED_NUMBER: i32 = 0;
const NUMBER: i32 = 1;
/// Its reply is ignored: only the reply to the request after it counts.
const PASSED_OVER_NUMBER: i32 = 2;
const PING_NUMBER: i32 = -2;

const NO_NODE: i32 = -101;
const SESSION_TIMEOUT_MS: i32 = 30_000;
const ANY_VERSION: i32 = -1;
const PERMISSIONS_ALL: i32 = 31;

/// The templates of requests.
pub(crate) struct Requests {
    path: Template,
}

impl Requests {
    pub(crate) fn new(options: &Options) -> Self {
        Self { path: Template::new(&format!("/{}", options.key_prefix), options.key_digits(), "") }
    }

    /// Appends a request. While keys are loaded each is created first; it is no failure if it existed.
    pub(crate) fn append(&self, asked: Expected, values: &Values, is_loading: bool, out: &mut Vec<u8>) {
        let Expected { operation, key, sequence } = asked;
        match operation {
            Operation::Get => packet(out, |out| {
                self.append_head(NUMBER, GET_DATA, key, out);
                out.push(0); // No watch.
            }),
            Operation::Set => {
                if is_loading {
                    packet(out, |out| {
                        self.append_head(PASSED_OVER_NUMBER, CREATE, key, out);
                        append_bytes(b"", out);
                        append_integer(1, out); // One entry in the access control list.
                        append_integer(PERMISSIONS_ALL, out);
                        append_bytes(b"world", out);
                        append_bytes(b"anyone", out);
                        append_integer(0, out); // A persistent node with exactly this name.
                    });
                }
                packet(out, |out| {
                    self.append_head(NUMBER, SET_DATA, key, out);
                    append_integer(values.size_of(key, sequence) as i32, out);
                    values.write(key, sequence, out);
                    append_integer(ANY_VERSION, out);
                });
            }
            // `Options::validate` refuses INCR.
            Operation::Incr | Operation::Ping | Operation::Custom => packet(out, |out| {
                append_integer(PING_NUMBER, out);
                append_integer(PING, out);
            }),
        }
    }

    fn append_head(&self, number: i32, kind: i32, key: u64, out: &mut Vec<u8>) {
        append_integer(number, out);
        append_integer(kind, out);
        append_integer(self.path.len() as i32, out);
        self.path.append(key, out);
    }
}

/// The start of a new connection: it requests a new session.
pub(crate) fn greeting() -> Vec<u8> {
    let mut out = Vec::new();
    packet(&mut out, |out| {
        append_integer(0, out); // The protocol version.
        out.extend_from_slice(&0_i64.to_be_bytes()); // No transaction seen so far.
        append_integer(SESSION_TIMEOUT_MS, out);
        out.extend_from_slice(&0_i64.to_be_bytes()); // A new session,
        append_bytes(&[0; 16], out); // which has no password yet,
        out.push(0); // at a server that takes writes.
    });
    out
}

/// Reads the reply to `operation` at the front of `input`; `None` when it is incomplete.
pub(crate) fn scan(
    operation: Operation,
    input: &[u8],
    reply_bytes_max: usize,
) -> Result<Option<Scanned<'_>>, Malformed> {
    let mut bytes = 0;
    loop {
        let Some(body) = packet_at(&input[bytes..], reply_bytes_max)? else { return Ok(None) };
        bytes += 4 + body.len();
        let mut rest = body;
        let number = take_integer(&mut rest)?;
        if number == PASSED_OVER_NUMBER {
            continue;
        }
        let reply = if number == CONNECTED_NUMBER && operation == Operation::Ping {
            // A refused session has a timeout of zero.
            match take_integer(&mut rest)? {
                1.. => Reply::Status(b"PONG"),
                _ => Reply::Error(b"SESSION refused"),
            }
        } else {
            read_reply(operation, number, rest)?
        };
        return Ok(Some(Scanned { reply, place: 0, bytes, closes: false }));
    }
}

/// Reads what follows a reply's number.
fn read_reply(operation: Operation, number: i32, mut rest: &[u8]) -> Result<Reply<'_>, Malformed> {
    let wanted = if operation == Operation::Ping { PING_NUMBER } else { NUMBER };
    let (_history, mut after) = rest.split_at_checked(size_of::<i64>()).ok_or(Malformed)?;
    let error = take_integer(&mut after)?;
    rest = after;
    if number != wanted {
        return Err(Malformed);
    }
    Ok(match (operation, error) {
        (Operation::Get, NO_NODE) => Reply::Null,
        (_, NO_NODE) => Reply::Error(b"NO_NODE"),
        (Operation::Get, 0) => {
            let length = usize::try_from(take_integer(&mut rest)?).map_err(|_| Malformed)?;
            Reply::Bulk(rest.get(..length).ok_or(Malformed)?)
        }
        (Operation::Set, 0) => Reply::Status(b"OK"),
        (Operation::Incr | Operation::Ping | Operation::Custom, 0) => Reply::Status(b"PONG"),
        _ => Reply::Error(b"ZOOKEEPER an error"),
    })
}

/// The packet at the front of `input`, without its length.
fn packet_at(input: &[u8], bytes_max: usize) -> Result<Option<&[u8]>, Malformed> {
    let Some((length, rest)) = input.split_first_chunk() else { return Ok(None) };
    let length = usize::try_from(i32::from_be_bytes(*length)).map_err(|_| Malformed)?;
    if length > bytes_max {
        return Err(Malformed);
    }
    Ok(rest.get(..length))
}

fn take_integer(body: &mut &[u8]) -> Result<i32, Malformed> {
    let (integer, rest) = body.split_first_chunk().ok_or(Malformed)?;
    *body = rest;
    Ok(i32::from_be_bytes(*integer))
}

fn append_integer(integer: i32, out: &mut Vec<u8>) {
    out.extend_from_slice(&integer.to_be_bytes());
}

fn append_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    append_integer(bytes.len() as i32, out);
    out.extend_from_slice(bytes);
}

/// Appends a packet: its length, and the bytes that `fill` appends.
fn packet(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    append_integer(0, out);
    fill(out);
    let length = (out.len() - start - 4) as i32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::random::Random;
    use crate::load::value::Sizes;

    const REPLY_BYTES_MAX: usize = 4096;

    fn reply(number: i32, error: i32, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        packet(&mut out, |out| {
            append_integer(number, out);
            out.extend_from_slice(&7_i64.to_be_bytes());
            append_integer(error, out);
            out.extend_from_slice(body);
        });
        out
    }

    fn whole(operation: Operation, input: &[u8]) -> Result<Option<(Reply<'_>, usize)>, Malformed> {
        Ok(scan(operation, input, REPLY_BYTES_MAX)?.map(|scanned| (scanned.reply, scanned.bytes)))
    }

    fn request(operation: Operation, is_loading: bool) -> Vec<u8> {
        let options = Options { value_bytes: Sizes::fixed(32), ..Options::default() };
        let asked = Expected { operation, key: 42, sequence: 7 };
        let mut out = Vec::new();
        Requests::new(&options).append(asked, &Values::new(options.value_bytes), is_loading, &mut out);
        out
    }

    #[test]
    fn requests_are_packets() {
        let get = request(Operation::Get, false);
        let path = b"/key:000000000042";
        let head = [1_i32, 4, 17].map(i32::to_be_bytes).concat();
        assert_eq!(get.len() - 4, 30);
        assert_eq!(get[4..], [&head[..], path, &[0]].concat());
        let set = request(Operation::Set, false);
        assert!(set.ends_with(&[&b"000000000000002a0000000000000007"[..], &(-1_i32).to_be_bytes()].concat()));
        assert_eq!(request(Operation::Ping, false), [0, 0, 0, 8, 255, 255, 255, 254, 0, 0, 0, 11]);
    }

    #[test]
    fn a_key_is_created_before_it_is_loaded_and_only_the_write_counts() {
        let (plain, loading) = (request(Operation::Set, false), request(Operation::Set, true));
        assert!(loading.len() > plain.len() && loading.ends_with(&plain));
        let was_there = reply(PASSED_OVER_NUMBER, -110, b"");
        let both = [&was_there[..], &reply(NUMBER, 0, &[0; 68])].concat();
        assert_eq!(whole(Operation::Set, &was_there), Ok(None), "the second is to come");
        assert_eq!(whole(Operation::Set, &both), Ok(Some((Reply::Status(b"OK"), both.len()))));
    }

    #[test]
    fn every_kind_of_reply_is_read_and_an_incomplete_one_is_awaited() {
        let found = reply(NUMBER, 0, &[&5_i32.to_be_bytes()[..], b"value", &[0; 68]].concat());
        assert_eq!(whole(Operation::Get, &found), Ok(Some((Reply::Bulk(b"value"), found.len()))));
        for cut in 0..found.len() {
            assert_eq!(whole(Operation::Get, &found[..cut]), Ok(None), "{cut}");
        }
        let missing = reply(NUMBER, NO_NODE, b"");
        assert_eq!(whole(Operation::Get, &missing), Ok(Some((Reply::Null, missing.len()))));
        assert_eq!(whole(Operation::Set, &missing), Ok(Some((Reply::Error(b"NO_NODE"), missing.len()))));
        let pong = reply(PING_NUMBER, 0, b"");
        assert_eq!(whole(Operation::Ping, &pong), Ok(Some((Reply::Status(b"PONG"), pong.len()))));
    }

    #[test]
    fn a_session_is_given_or_refused() {
        let session = |timeout_ms| {
            let mut out = Vec::new();
            packet(&mut out, |out| {
                append_integer(0, out);
                append_integer(timeout_ms, out);
                out.extend_from_slice(&[1; 28]);
            });
            out
        };
        assert!(matches!(whole(Operation::Ping, &session(30_000)), Ok(Some((Reply::Status(_), 40)))));
        assert!(matches!(whole(Operation::Ping, &session(0)), Ok(Some((Reply::Error(_), 40)))));
        assert_eq!(greeting().len(), 4 + 45);
    }

    #[test]
    fn replies_out_of_step_are_refused() {
        assert_eq!(
            whole(Operation::Get, &reply(9, 0, b"")),
            Err(Malformed),
            "of a request that was not sent"
        );
        assert_eq!(
            whole(Operation::Get, &reply(NUMBER, 0, &9_i32.to_be_bytes())),
            Err(Malformed),
            "too short"
        );
        assert_eq!(whole(Operation::Get, b"+PONG\r\n"), Err(Malformed));
        assert_eq!(whole(Operation::Get, &(-1_i32).to_be_bytes()), Err(Malformed));
    }

    #[test]
    fn random_bytes_never_panic_and_never_read_past_the_end() {
        let mut random = Random::new(7);
        for _ in 0..100_000 {
            let mut input = vec![0, 0, 0];
            input.extend((0..random.below(40)).map(|_| random.below(24) as u8));
            if let Ok(Some((_, consumed))) = whole(Operation::Get, &input) {
                assert!(consumed > 0 && consumed <= input.len());
            }
        }
    }
}
