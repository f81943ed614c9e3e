//! Properties that hold for arbitrary bytes. Property tests draw the bytes at random; the fuzz targets, which include
//! this very file, search for counterexamples.

use kv::Command;
use kv::codec::Reader;
use wire::handshake::{Acceptor, Dialer, Identity};
use wire::resp::{Limits, Progress, ProtocolError, RequestParser};
use wire::{frame, greeting};

/// Limits that short inputs can reach.
pub(crate) fn small_limits(authenticated: bool) -> Limits {
    Limits {
        bulk_bytes_max: 40,
        arguments_max: 12,
        inline_bytes_max: 30,
        request_bytes_max: 160,
        authenticated,
    }
}

/// Parses requests, up to an error. The first bytes determine the limits and the pieces.
pub(crate) fn resp(data: &[u8]) {
    let Some(([kind, pieces @ ..], stream)) = data.split_first_chunk::<5>() else { return };
    let limits = match kind % 4 {
        0 => small_limits(true),
        1 => small_limits(false),
        2 => Limits { authenticated: true, ..Limits::default() },
        _ => Limits::default(),
    };
    let whole = requests(stream, &limits, |rest| rest);
    let byte_by_byte = requests(stream, &limits, |_| 1);
    assert_eq!(byte_by_byte, whole);
    let mut turn = 0;
    let piecewise = requests(stream, &limits, |_| {
        turn += 1;
        1 + pieces[turn % pieces.len()] as usize
    });
    assert_eq!(piecewise, whole);
}

type Requests = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>);

/// Parses `stream` as it arrives in pieces. `piece` gets the number of bytes that have not arrived yet and returns the
/// length of the next piece.
fn requests(stream: &[u8], limits: &Limits, mut piece: impl FnMut(usize) -> usize) -> Requests {
    let mut requests = Vec::new();
    let mut parser = RequestParser::new();
    let (mut start, mut end) = (0, 0);
    let mut end_expected = 0;
    loop {
        let buffer = &stream[start..end];
        match parser.parse(buffer, limits) {
            Ok(Progress::Complete { consumed }) => {
                assert!(
                    0 < consumed && consumed <= buffer.len() && consumed <= limits.request_bytes_max.max(32)
                );
                assert!(end >= end_expected, "complete before all bytes arrived that were said to be needed");
                let arguments = parser.arguments(buffer);
                assert!(arguments.len() <= limits.arguments_max.max(limits.inline_bytes_max));
                assert!(arguments.iter().all(|argument| argument.len() <= consumed));
                requests.push(arguments.iter().map(<[u8]>::to_vec).collect());
                start += consumed;
            }
            Ok(Progress::Incomplete { needed }) => {
                assert!(0 < needed && needed <= limits.bulk_bytes_max + 2);
                end_expected = end + needed;
                if end == stream.len() {
                    return (requests, None);
                }
                end = stream.len().min(end + piece(stream.len() - end));
            }
            Err(error) => {
                assert!(!error.to_string().contains(['\r', '\n']));
                assert_eq!(parser.parse(buffer, limits), Err(error), "asked again");
                return (requests, Some(error));
            }
        }
    }
}

/// Parses frames from arbitrary bytes, and runs handshakes with arbitrary messages.
pub(crate) fn frame(data: &[u8]) {
    const PAYLOAD_BYTES_MAX: usize = 64;
    let mut rest = data;
    while let Ok(next) = greeting::next(rest, PAYLOAD_BYTES_MAX) {
        match next {
            greeting::Next::Frame { payload, consumed } => {
                assert!(payload.len() <= PAYLOAD_BYTES_MAX);
                let mut again = Vec::new();
                greeting::append(&mut again, |out| out.extend_from_slice(payload));
                assert_eq!(again, rest[..consumed]);
                rest = &rest[consumed..];
            }
            greeting::Next::Incomplete { needed } => {
                assert!(0 < needed && needed <= PAYLOAD_BYTES_MAX + greeting::HEADER_BYTES);
                break;
            }
        }
    }

    let mut framed = Vec::new();
    greeting::append(&mut framed, |out| out.extend_from_slice(data));
    let expected = greeting::Next::Frame { payload: data, consumed: framed.len() };
    assert_eq!(greeting::next(&framed, data.len()), Ok(expected));

    framed.clear();
    frame::append(&mut framed, |out| out.extend_from_slice(data));
    let expected = frame::Next::Frame { payload: data, consumed: framed.len() };
    assert_eq!(frame::next(&framed, data.len()), Ok(expected));

    let Ok(here) = Identity::new("cluster", 1, b"secret") else { unreachable!("a usable identity") };
    let Ok(there) = Identity::new("cluster", 2, b"secret") else { unreachable!("a usable identity") };
    let (dialer, hello) = Dialer::new(here, [0; 16]);
    let mut acceptor = Acceptor::new(there, [0; 16]);
    assert!(dialer.on_challenge(data, |_| true).is_err(), "no attacker guesses a mac");
    assert!(acceptor.on_hello(data, |_| true).is_err(), "no attacker guesses a mac");
    assert!(acceptor.on_hello(&hello, |_| true).is_ok());
    assert!(acceptor.on_proof(data).is_err(), "no attacker guesses a mac");
}

/// Decodes records of the log, which are commands, from arbitrary bytes.
pub(crate) fn record(data: &[u8]) {
    let Ok(command) = Command::decode(&mut Reader::new(data)) else { return };
    let mut encoded = Vec::new();
    command.encode(&mut encoded);
    let mut reader = Reader::new(&encoded);
    assert_eq!(Command::decode(&mut reader), Ok(command));
    assert!(reader.is_empty(), "{command:?} left bytes behind");
    command.for_each_key(|key| assert!(key.len() <= data.len()));
}
