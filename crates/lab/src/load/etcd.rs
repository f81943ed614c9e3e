//! etcd's own interface: `Put` and `Range` of `etcdserverpb.KV`, by gRPC over HTTP/2.
//!
//! Implements as much of HTTP/2 (RFC 9113) and gRPC as a batch of short requests on a connection needs, for the same
//! loop as every other protocol, so that the generator's own cost is comparable. Each request of a batch is a stream,
//! and replies arrive in any order. Header fields are sent as literals, and the server is asked to keep no table of its
//! own (RFC 7541, section 4.2), so none is kept here. Of a response only its message is read: a response without a
//! message is an error, whatever the status in its trailer.

use std::collections::VecDeque;
use std::net::SocketAddr;

use super::options::Options;
use super::outcome::{Expected, Operation};
use super::reply::{Malformed, Reply, Scanned};
use super::template::Template;
use super::value::Values;

/// A longer message could arrive in several frames.
pub(crate) const VALUE_BYTES_MAX: usize = 8 << 10;

/// The most bytes of one batch's requests, so that the server's window need not be tracked: it accepts
/// [`WINDOW_BYTES_FIRST`], and reopens the window when a quarter of that is used up.
pub(crate) const BATCH_BYTES_MAX: usize = 48 << 10;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEAD_BYTES: usize = 9;
const MESSAGE_HEAD_BYTES: usize = 5;
/// The longest frame that a peer may send by default.
const FRAME_BYTES_MAX: usize = 16 << 10;

// Frame types.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

// Frame flags.
const END_STREAM: u8 = 1;
const ACKNOWLEDGED: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

/// How much a server may send before it has to wait; initially it is [`WINDOW_BYTES_FIRST`].
const WINDOW_BYTES: u32 = i32::MAX as u32;
const WINDOW_BYTES_FIRST: u32 = 65_535;
/// After this many bytes a window update acknowledges that they were read.
const WINDOW_UPDATE_BYTES: u32 = 1 << 20;

/// The first stream of a client; later ones are odd too.
const FIRST_STREAM: u32 = 1;

/// The maximum size of a request that counts towards the window: without its header fields.
pub(crate) fn request_bytes_max(options: &Options) -> usize {
    [options.key_size(), options.value_bytes.max]
        .into_iter()
        .fold(MESSAGE_HEAD_BYTES, |bytes, length| bytes.saturating_add(field_bytes(length)))
}

/// The templates of requests.
pub(crate) struct Requests {
    key: Template,
    put: Vec<u8>,
    range: Vec<u8>,
}

/// The HTTP/2 state of one connection.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// The stream of the last request.
    asked: u32,
    /// The unanswered requests. The caller has its requests in the same order: see [`Scanned::place`].
    open: VecDeque<Stream>,
    /// The message of the last response, if it arrived before other responses that were read first.
    message: Vec<u8>,
    /// Frames that must be sent to the server before the next request.
    owed: Vec<u8>,
    /// Bytes of responses not yet acknowledged by a window update.
    received: u32,
}

/// An unanswered request.
#[derive(Debug)]
struct Stream {
    number: u32,
    /// The message of the response, if it has already arrived.
    message: Option<Vec<u8>>,
}

struct Frame<'a> {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: &'a [u8],
}

impl Requests {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            key: Template::new(&options.key_prefix, options.key_digits(), ""),
            put: path_fields("/etcdserverpb.KV/Put"),
            range: path_fields("/etcdserverpb.KV/Range"),
        }
    }

    /// Appends a request. `fields` are those of [`fields`].
    pub(crate) fn append(
        &self,
        asked: Expected,
        values: &Values,
        (fields, streams): (&[u8], &mut Streams),
        out: &mut Vec<u8>,
    ) {
        let Expected { operation, key, sequence } = asked;
        let key_bytes = field_bytes(self.key.len());
        match operation {
            Operation::Set => {
                let value_bytes = values.size_of(key, sequence);
                let message_bytes = key_bytes + field_bytes(value_bytes);
                streams.begin(&[&self.put, fields], message_bytes, out);
                append_field_head(1, self.key.len(), out);
                self.key.append(key, out);
                append_field_head(2, value_bytes, out);
                values.write(key, sequence, out);
            }
            // `Options::validate` refuses INCR and PING.
            Operation::Get | Operation::Incr | Operation::Ping | Operation::Custom => {
                streams.begin(&[&self.range, fields], key_bytes, out);
                append_field_head(1, self.key.len(), out);
                self.key.append(key, out);
            }
        }
    }
}

impl Streams {
    /// The start of a new connection, including a first request, since a server that speaks HTTP/2 need not be etcd.
    pub(crate) fn greeting(&mut self, fields: &[u8]) -> Vec<u8> {
        *self = Streams::default();
        let mut out = PREFACE.to_vec();
        let settings: [(u16, u32); 3] = [(1, 0), (2, 0), (4, WINDOW_BYTES)]; // Header table, push, window of each stream.
        append_frame_head(6 * settings.len(), SETTINGS, 0, 0, &mut out);
        for (setting, value) in settings {
            out.extend_from_slice(&setting.to_be_bytes());
            out.extend_from_slice(&value.to_be_bytes());
        }
        append_window_update(WINDOW_BYTES - WINDOW_BYTES_FIRST, &mut out);
        let any_key = b"\0";
        self.begin(&[&path_fields("/etcdserverpb.KV/Range"), fields], field_bytes(any_key.len()), &mut out);
        append_field_head(1, any_key.len(), &mut out);
        out.extend_from_slice(any_key);
        out
    }

    /// Appends a request up to its message.
    fn begin(&mut self, fields: &[&[u8]], message_bytes: usize, out: &mut Vec<u8>) {
        out.append(&mut self.owed);
        if self.received >= WINDOW_UPDATE_BYTES {
            append_window_update(std::mem::take(&mut self.received), out);
        }
        self.asked = if self.asked == 0 { FIRST_STREAM } else { self.asked + 2 };
        self.open.push_back(Stream { number: self.asked, message: None });
        let fields_bytes = fields.iter().map(|field| field.len()).sum();
        append_frame_head(fields_bytes, HEADERS, END_HEADERS, self.asked, out);
        fields.iter().for_each(|field| out.extend_from_slice(field));
        append_frame_head(MESSAGE_HEAD_BYTES + message_bytes, DATA, END_STREAM, self.asked, out);
        out.push(0); // Not compressed.
        out.extend_from_slice(&(message_bytes as u32).to_be_bytes());
    }

    /// Reads up to the end of the first complete response to one of the unanswered requests, `asked`; `None` when none
    /// is complete.
    pub(crate) fn scan<'a>(
        &'a mut self,
        asked: &[Expected],
        input: &'a [u8],
    ) -> Result<Option<Scanned<'a>>, Malformed> {
        let mut bytes = 0;
        let (place, is_reset) = loop {
            let Some(frame) = Frame::read(&input[bytes..])? else { return Ok(None) };
            bytes += FRAME_HEAD_BYTES + frame.payload.len();
            if frame.is_of_a_stream() {
                let place =
                    self.open.iter().position(|stream| stream.number == frame.stream).ok_or(Malformed)?;
                frame.message()?;
                if frame.kind == RST_STREAM || frame.flags & END_STREAM != 0 {
                    break (place, frame.kind == RST_STREAM);
                }
            }
        };
        let operation = asked.get(place).ok_or(Malformed)?.operation;
        let ended = self.open[place].number;
        let (mut rest, mut message) = (&input[..bytes], None);
        while let Some(frame) = Frame::read(rest)? {
            rest = &rest[FRAME_HEAD_BYTES + frame.payload.len()..];
            if !frame.is_of_a_stream() {
                frame.settle(&mut self.owed);
            } else if let Some(found) = frame.message()? {
                self.received += frame.payload.len() as u32;
                if frame.stream == ended {
                    message = Some(found);
                } else if let Some(stream) = self.open.iter_mut().find(|stream| stream.number == frame.stream)
                {
                    stream.message = Some(found.to_vec());
                }
            }
        }
        if let Some(earlier) = self.open.swap_remove_front(place).and_then(|stream| stream.message) {
            self.message = earlier;
            message = Some(&self.message);
        }
        let reply = match message.filter(|_| !is_reset) {
            Some(message) => read_reply(operation, message)?,
            None => Reply::Error(b"GRPC a response without a message"),
        };
        Ok(Some(Scanned { reply, place, bytes, closes: false }))
    }

    /// Consumes frames that do not belong to a request from the front of `input`; returns their length in bytes.
    pub(crate) fn settle(&mut self, input: &[u8]) -> Result<usize, Malformed> {
        let mut bytes = 0;
        while let Some(frame) = Frame::read(&input[bytes..])? {
            if frame.is_of_a_stream() {
                return Err(Malformed);
            }
            frame.settle(&mut self.owed);
            bytes += FRAME_HEAD_BYTES + frame.payload.len();
        }
        Ok(bytes)
    }
}

impl<'a> Frame<'a> {
    /// The frame at the front of `input`; `None` when it is incomplete.
    fn read(input: &'a [u8]) -> Result<Option<Frame<'a>>, Malformed> {
        let Some((head, rest)) = input.split_first_chunk::<FRAME_HEAD_BYTES>() else { return Ok(None) };
        let [high, middle, low, kind, flags, a, b, c, d] = *head;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        if length > FRAME_BYTES_MAX || kind == GOAWAY {
            return Err(Malformed);
        }
        let stream = u32::from_be_bytes([a, b, c, d]) & WINDOW_BYTES; // The top bit is reserved.
        Ok(rest.get(..length).map(|payload| Frame { kind, flags, stream, payload }))
    }

    /// Whether it belongs to a request.
    fn is_of_a_stream(&self) -> bool {
        matches!(self.kind, DATA | HEADERS | RST_STREAM)
    }

    /// Handles a frame that belongs to no request.
    fn settle(&self, owed: &mut Vec<u8>) {
        match self.kind {
            SETTINGS if self.flags & ACKNOWLEDGED == 0 => {
                append_frame_head(0, SETTINGS, ACKNOWLEDGED, 0, owed);
            }
            PING if self.flags & ACKNOWLEDGED == 0 => {
                append_frame_head(self.payload.len(), PING, ACKNOWLEDGED, 0, owed);
                owed.extend_from_slice(self.payload);
            }
            _ => {} // Windows, which a batch does not exceed, and types that may be ignored.
        }
    }

    /// The message that it holds, which must be complete.
    fn message(&self) -> Result<Option<&'a [u8]>, Malformed> {
        if self.kind != DATA || self.payload.is_empty() {
            return Ok(None);
        }
        let (head, message) = self.payload.split_first_chunk::<MESSAGE_HEAD_BYTES>().ok_or(Malformed)?;
        let [compressed, length @ ..] = *head;
        let is_whole = compressed == 0 && u32::from_be_bytes(length) as usize == message.len();
        if is_whole && self.flags & PADDED == 0 { Ok(Some(message)) } else { Err(Malformed) }
    }
}

/// Decodes the message of a response.
fn read_reply(operation: Operation, message: &[u8]) -> Result<Reply<'_>, Malformed> {
    Ok(match operation {
        Operation::Set => Reply::Status(b"OK"),
        Operation::Get => match field(message, 2)? {
            // An empty value is left out.
            Some(found) => Reply::Bulk(field(found, 5)?.unwrap_or_default()),
            None => Reply::Null,
        },
        Operation::Incr | Operation::Ping | Operation::Custom => Reply::Status(b"PONG"),
    })
}

/// The first length-delimited field of a protobuf message with this number.
fn field(mut message: &[u8], number: u64) -> Result<Option<&[u8]>, Malformed> {
    while !message.is_empty() {
        let tag = take_number(&mut message)?;
        match tag & 7 {
            0 => drop(take_number(&mut message)?),
            2 => {
                let length = usize::try_from(take_number(&mut message)?).map_err(|_| Malformed)?;
                let (value, rest) = message.split_at_checked(length).ok_or(Malformed)?;
                if tag >> 3 == number {
                    return Ok(Some(value));
                }
                message = rest;
            }
            _ => return Err(Malformed),
        }
    }
    Ok(None)
}

/// Takes a varint: seven bits per byte, the lowest first.
fn take_number(message: &mut &[u8]) -> Result<u64, Malformed> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, rest) = message.split_first().ok_or(Malformed)?;
        *message = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(Malformed)
}

fn append_number(mut number: usize, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn append_field_head(number: u8, length: usize, out: &mut Vec<u8>) {
    out.push(number << 3 | 2);
    append_number(length, out);
}

/// The encoded size of a field with a value of `length` bytes.
fn field_bytes(length: usize) -> usize {
    let number_bytes = (usize::BITS - (length | 1).leading_zeros()).div_ceil(7) as usize;
    1 + number_bytes + length
}

fn append_frame_head(length: usize, kind: u8, flags: u8, stream: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&(length as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
}

fn append_window_update(bytes: u32, out: &mut Vec<u8>) {
    append_frame_head(4, WINDOW_UPDATE, 0, 0, out);
    out.extend_from_slice(&bytes.to_be_bytes());
}

/// The first header fields of every request for this path.
fn path_fields(path: &str) -> Vec<u8> {
    let mut out = vec![0x83, 0x86]; // `:method: POST` and `:scheme: http`, of the static table.
    out.push(4); // `:path`, of the static table, with this value.
    append_text(path, &mut out);
    out
}

/// The remaining header fields, the same for every request to a server. Those with a colon must come first.
pub(crate) fn fields(address: SocketAddr) -> Vec<u8> {
    let mut out = vec![1]; // `:authority`.
    append_text(&address.to_string(), &mut out);
    out.extend_from_slice(&[0x0f, 31 - 15]); // `content-type`.
    append_text("application/grpc", &mut out);
    out.push(0); // A field that is not in the table.
    append_text("te", &mut out);
    append_text("trailers", &mut out);
    out
}

/// Texts here are far below 127 bytes, so their length takes one byte.
fn append_text(text: &str, out: &mut Vec<u8>) {
    out.push(text.len() as u8);
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::random::Random;
    use crate::load::value::Sizes;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        append_frame_head(payload.len(), kind, flags, stream, &mut out);
        [out, payload.to_vec()].concat()
    }

    fn message(bytes: &[u8]) -> Vec<u8> {
        [&[0][..], &(bytes.len() as u32).to_be_bytes(), bytes].concat()
    }

    /// A response with this message, as etcd sends it: header, message, trailer.
    fn response(stream: u32, bytes: &[u8]) -> Vec<u8> {
        [
            frame(HEADERS, END_HEADERS, stream, b"head"),
            frame(DATA, 0, stream, &message(bytes)),
            frame(HEADERS, END_HEADERS | END_STREAM, stream, b"trailer"),
        ]
        .concat()
    }

    fn asked() -> Streams {
        let mut streams = Streams::default();
        streams.begin(&[], 0, &mut Vec::new());
        streams
    }

    fn expected(operation: Operation) -> Expected {
        Expected { operation, key: 0, sequence: 0 }
    }

    /// The reply to the only request.
    fn scan(operation: Operation, input: &[u8]) -> Result<Option<(String, usize)>, Malformed> {
        let mut streams = asked();
        let scanned = streams.scan(&[expected(operation)], input)?;
        Ok(scanned.map(|scanned| (format!("{:?}", scanned.reply), scanned.bytes)))
    }

    fn answered(reply: Reply<'_>, bytes: usize) -> Result<Option<(String, usize)>, Malformed> {
        Ok(Some((format!("{reply:?}"), bytes)))
    }

    #[test]
    fn requests_are_frames_with_messages_each_on_a_new_stream() {
        let options = Options { value_bytes: Sizes::fixed(200), ..Options::default() };
        let (requests, values) = (Requests::new(&options), Values::new(options.value_bytes));
        let fields = fields(SocketAddr::from(([127, 0, 0, 1], 2379)));
        let mut streams = Streams::default();
        assert!(streams.greeting(&fields).starts_with(PREFACE));
        for stream in [3, 5] {
            let mut out = Vec::new();
            let asked = Expected { operation: Operation::Set, key: 42, sequence: 7 };
            requests.append(asked, &values, (&fields, &mut streams), &mut out);
            let head = Frame::read(&out).unwrap().unwrap();
            assert_eq!((head.kind, head.flags, head.stream), (HEADERS, END_HEADERS, stream));
            assert!(head.payload.starts_with(b"\x83\x86\x04\x14/etcdserverpb.KV/Put\x01\x0e127.0.0.1:2379"));
            let data = Frame::read(&out[FRAME_HEAD_BYTES + head.payload.len()..]).unwrap().unwrap();
            assert_eq!((data.kind, data.flags, data.stream), (DATA, END_STREAM, stream));
            assert_eq!(data.payload[..5], message(&data.payload[5..])[..5]);
            let put = &data.payload[5..];
            assert_eq!(field(put, 1), Ok(Some(&b"key:000000000042"[..])));
            assert!(values.is_possible(42, field(put, 2).unwrap().unwrap()));
        }
    }

    #[test]
    fn a_response_is_read_after_other_frames_and_an_incomplete_one_is_awaited() {
        let entry = [&[0x0a, 1, b'k', 0x18, 7, 0x2a, 5][..], b"value"].concat();
        let range = [&[0x0a, 0, 0x12, entry.len() as u8][..], &entry, &[0x20, 1]].concat();
        let input =
            [frame(SETTINGS, 0, 0, &[0; 6]), frame(PING, 0, 0, b"12345678"), response(1, &range)].concat();
        assert_eq!(scan(Operation::Get, &input), answered(Reply::Bulk(b"value"), input.len()));
        for cut in 0..input.len() {
            assert_eq!(scan(Operation::Get, &input[..cut]), Ok(None), "{cut}");
        }
        let put = response(1, &[0x0a, 0]);
        assert_eq!(scan(Operation::Set, &put), answered(Reply::Status(b"OK"), put.len()));
        assert_eq!(scan(Operation::Get, &put), answered(Reply::Null, put.len()));
    }

    #[test]
    fn the_answers_of_a_batch_may_come_in_any_order_and_interleaved() {
        let value = |byte| {
            let entry = [0x2a, 1, byte];
            message(&[&[0x12, entry.len() as u8][..], &entry].concat())
        };
        let trailer = |stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, b"trailer");
        let frames = [
            frame(HEADERS, END_HEADERS, 3, b"head"),
            frame(HEADERS, END_HEADERS, 1, b"head"),
            frame(DATA, 0, 3, &value(b'3')),
            frame(DATA, 0, 1, &value(b'1')),
            frame(DATA, 0, 5, &value(b'5')),
            trailer(5),
            trailer(3),
            frame(PING, 0, 0, b"12345678"),
            trailer(1),
        ];
        let input = frames.concat();
        for cut in 0..input.len() {
            let mut streams = Streams::default();
            (0..3).for_each(|_| streams.begin(&[], 0, &mut Vec::new()));
            let (mut asked, mut read, mut answers) = (vec![1, 3, 5], 0, Vec::new());
            for end in [cut, input.len()] {
                while !asked.is_empty() {
                    let expected = vec![expected(Operation::Get); asked.len()];
                    let Some(scanned) = streams.scan(&expected, &input[read..end]).unwrap() else { break };
                    asked.swap(0, scanned.place);
                    answers.push((asked.remove(0), format!("{:?}", scanned.reply)));
                    read += scanned.bytes;
                }
            }
            let bulk = |value: &'static [u8]| format!("{:?}", Reply::Bulk(value));
            assert_eq!(answers, [(5, bulk(b"5")), (3, bulk(b"3")), (1, bulk(b"1"))], "cut at {cut}");
            assert_eq!(read, input.len());
        }
    }

    #[test]
    fn frames_owed_to_the_server_are_sent_once_before_the_next_request() {
        let mut streams = asked();
        let input = [frame(PING, 0, 0, b"12345678"), response(1, &[])].concat();
        assert!(streams.scan(&[expected(Operation::Set)], &input[..input.len() - 1]).unwrap().is_none());
        assert!(streams.scan(&[expected(Operation::Set)], &input).unwrap().is_some());
        let settings = frame(SETTINGS, 0, 0, &[]);
        let part_of_the_next = &frame(WINDOW_UPDATE, 0, 0, &[0; 4])[..7];
        assert_eq!(streams.settle(&[&settings, part_of_the_next].concat()), Ok(settings.len()));
        let mut out = Vec::new();
        streams.begin(&[], 0, &mut out);
        let owed =
            [frame(PING, ACKNOWLEDGED, 0, b"12345678"), frame(SETTINGS, ACKNOWLEDGED, 0, &[])].concat();
        assert!(out.starts_with(&owed));
        out.clear();
        streams.begin(&[], 0, &mut out);
        assert_eq!(Frame::read(&out).unwrap().unwrap().kind, HEADERS);
    }

    #[test]
    fn the_server_may_go_on_sending_after_any_number_of_responses() {
        let mut streams = asked();
        streams.received = WINDOW_UPDATE_BYTES - 1;
        assert!(streams.scan(&[expected(Operation::Get)], &response(1, &[])).unwrap().is_some());
        let mut out = Vec::new();
        streams.begin(&[], 0, &mut out);
        assert!(out.starts_with(&frame(WINDOW_UPDATE, 0, 0, &(WINDOW_UPDATE_BYTES + 4).to_be_bytes())));
        assert_eq!(streams.received, 0);
    }

    #[test]
    fn a_refusal_has_no_message_and_is_an_error() {
        let trailer = frame(HEADERS, END_HEADERS | END_STREAM, 1, b"trailer");
        let error = || Reply::Error(b"GRPC a response without a message");
        assert_eq!(scan(Operation::Set, &trailer), answered(error(), trailer.len()));
        let reset = frame(RST_STREAM, 0, 1, &[0; 4]);
        assert_eq!(scan(Operation::Set, &reset), answered(error(), reset.len()));
    }

    #[test]
    fn replies_out_of_step_are_refused() {
        assert_eq!(scan(Operation::Get, &response(3, &[])), Err(Malformed), "of another request");
        assert_eq!(scan(Operation::Get, &frame(GOAWAY, 0, 0, &[0; 8])), Err(Malformed));
        assert_eq!(
            scan(Operation::Get, &frame(DATA, 0, 1, &[0, 0, 0, 0, 9, 1])),
            Err(Malformed),
            "a part of a message"
        );
        assert_eq!(scan(Operation::Get, b"HTTP/1.1 400 Bad Request\r\n"), Err(Malformed));
        assert_eq!(asked().settle(&response(1, &[])), Err(Malformed), "nothing was asked");
        assert_eq!(field(&[0x12, 5, 1], 2), Err(Malformed));
        assert_eq!(field(&[0xff; 11], 2), Err(Malformed));
    }

    #[test]
    fn random_bytes_never_panic_and_never_read_past_the_end() {
        let mut random = Random::new(7);
        for _ in 0..100_000 {
            let mut input: Vec<u8> = (0..random.below(40)).map(|_| random.below(4) as u8).collect();
            if let Some(high) = input.first_mut() {
                *high = 0;
            }
            if let Ok(Some((_, consumed))) = scan(Operation::Get, &input) {
                assert!(consumed > 0 && consumed <= input.len());
            }
            let _ = field(&input, 2);
        }
    }

    #[test]
    fn the_length_of_a_field_includes_its_head() {
        for length in [0, 1, 127, 128, 16_383, 16_384, 70_000] {
            let mut out = Vec::new();
            append_field_head(1, length, &mut out);
            assert_eq!(field_bytes(length), out.len() + length);
        }
    }
}
