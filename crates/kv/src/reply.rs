//! Replies to commands, in an encoding of our own.
//!
//! The table writes each reply once, in this protocol-neutral form. A RESP2 or RESP3 session, an HTTP handler and a
//! node that forwarded the command for its client all read the same bytes. Aggregates are flat: an [`Reply::Array`] of
//! n is followed by its n elements.

use crate::SharedBytes;
use crate::codec::{Malformed, Reader, Writer};
use crate::coded::{VALUE_REF_BYTES, ValueRef};
use std::collections::BTreeSet;
use std::num::NonZero;

/// One element of a reply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reply<'a> {
    /// The status `OK`.
    Ok,
    /// No value.
    Null,
    /// No array (RESP2 distinguishes this from [`Reply::Null`]).
    NullArray,
    /// An integer.
    Integer(i64),
    /// A byte string.
    Bulk(&'a [u8]),
    /// A short status without line breaks.
    Status(&'a [u8]),
    /// An error: its first word is the code that clients match on.
    Error(&'a [u8]),
    /// Text for humans, such as `INFO`: a verbatim string in RESP3.
    Text(&'a [u8]),
    /// A floating-point number.
    Double(f64),
    /// A number formatted as a decimal: see [`crate::number::format_decimal`].
    Decimal(f64),
    /// An integer of any length, in decimal digits: a byte string in RESP2.
    BigNumber(&'a [u8]),
    /// A truth value: an integer in RESP2.
    Boolean(bool),
    /// An array: the next n elements.
    Array(u32),
    /// A set: the next n elements, unordered and distinct.
    Set(u32),
    /// A map: the next n pairs of elements.
    Map(u32),
    /// Members with their scores: the next n times a [`Reply::Pair`] and two elements. An array of arrays in RESP3, and one
    /// flat array in RESP2.
    Pairs(u32),
    /// The next two elements are a pair of [`Reply::Pairs`].
    Pair,
    /// Streams with their entries: the next n times a [`Reply::Entry`] and two elements. A map in RESP3, and an array of
    /// arrays in RESP2.
    Entries(u32),
    /// The next two elements are an entry of [`Reply::Entries`].
    Entry,
    /// A push: the next n elements, which come from a subscription and answer no request. An array in RESP2.
    Push(u32),
    /// The next element contains references instead of values. The caller of this command, which has changed nothing,
    /// inserts the values. Never nested in another element.
    Unresolved(&'a [u8]),
    /// Nothing was done: this command needs values stored outside the table. The next element is an array of keys, each
    /// with the reference that it holds. Never nested in another element.
    Needs(&'a [u8]),
    /// The next element is the reply to scripts that had to report which keys they read: an encoded [`Reads`]. Never nested
    /// in another element.
    Reads(&'a [u8]),
    /// A reference to a value, or to a part of one: an encoded [`ValueRef`].
    Reference(&'a [u8]),
    /// The whole reply is stored beside the buffer, or still to be written: see [`ReplyBuffer::lent`]. Never nested in
    /// another element.
    Lent(u32),
}

/// A whole reply that is not in its buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lent {
    /// A byte string.
    Value(SharedBytes),
    /// The reply of a read that has begun: see [`Table::go_on_reading`](crate::Table::go_on_reading).
    Read(LongReadId),
}

/// A read of a table that has begun and has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LongReadId(pub(crate) u64);

/// Consecutive replies in one growing buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplyBuffer {
    bytes: Vec<u8>,
    /// The number of references ever written.
    references: u64,
    /// Messages to publish with these replies.
    announcements: Vec<Announcement>,
    /// The shortest value, in bytes, that is lent to this buffer instead of copied. `None`: all are copied.
    lent_bytes_min: Option<NonZero<usize>>,
    /// What a read may take in one step, in nanoseconds, as estimated. `None`: each is carried out in one.
    read_ns_max: Option<NonZero<u64>>,
    lent: Vec<Lent>,
    /// See [`ReplyBuffer::is_over_full`].
    bytes_max: Option<NonZero<usize>>,
    /// See [`ReplyBuffer::reply_bytes_max`].
    reply_bytes_max: Option<NonZero<usize>>,
}

/// A message to a channel that a script has published. The node that sends the reply also sends the message; without a
/// reply, no node sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Whether it was published by `SPUBLISH`.
    pub is_sharded: bool,
    /// The channel's name.
    pub channel: Box<[u8]>,
    /// The bytes of the message.
    pub message: Box<[u8]>,
}

/// The keys that scripts have read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// The keys, each once.
    pub keys: BTreeSet<Box<[u8]>>,
    /// Whether more keys were read than are listed.
    pub are_more: bool,
}

impl Reads {
    /// The most keys that are listed.
    const NAMED: usize = 1000;

    pub(crate) fn add(&mut self, key: &[u8]) {
        if self.keys.contains(key) {
            return;
        }
        match self.keys.len() < Self::NAMED {
            true => _ = self.keys.insert(key.into()),
            false => self.are_more = true,
        }
    }

    pub(crate) fn join(&mut self, other: Reads) {
        other.keys.iter().for_each(|key| self.add(key));
        self.are_more |= other.are_more;
    }

    fn encoded(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.put_bool(self.are_more);
        self.keys.iter().for_each(|key| bytes.put_bytes(key));
        bytes
    }

    fn decode(encoded: &[u8]) -> Result<Reads, Malformed> {
        let mut reader = Reader::new(encoded);
        let mut reads = Reads { are_more: reader.bool()?, ..Reads::default() };
        while !reader.is_empty() {
            reads.keys.insert(reader.bytes()?.into());
        }
        Ok(reads)
    }
}

/// Most bytes that a buffer retains for its next replies.
const RETAINED_BYTES_MAX: usize = 1 << 20;

const OK: u8 = 0;
const NULL: u8 = 1;
const NULL_ARRAY: u8 = 2;
const INTEGER: u8 = 3;
const BULK: u8 = 4;
const STATUS: u8 = 5;
const ERROR: u8 = 6;
const TEXT: u8 = 7;
const DOUBLE: u8 = 8;
const BOOLEAN: u8 = 9;
const ARRAY: u8 = 10;
const SET: u8 = 11;
const MAP: u8 = 12;
const PUSH: u8 = 13;
const PAIRS: u8 = 14;
const PAIR: u8 = 15;
const ENTRIES: u8 = 16;
const ENTRY: u8 = 17;
const DECIMAL: u8 = 18;
const BIG_NUMBER: u8 = 19;
const UNRESOLVED: u8 = 100;
const NEEDS: u8 = 101;
const REFERENCE: u8 = 102;
const LENT: u8 = 103;
const READS: u8 = 104;

impl ReplyBuffer {
    /// Returns an empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// The encoded replies.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Encoded length in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Removes everything; keeps a moderate capacity for reuse.
    #[inline]
    pub fn clear(&mut self) {
        self.bytes.clear();
        let is_usual = self.bytes.capacity() <= RETAINED_BYTES_MAX
            && self.announcements.is_empty()
            && self.lent.is_empty();
        if !is_usual {
            self.clear_unusual();
        }
    }

    #[cold]
    fn clear_unusual(&mut self) {
        self.bytes.shrink_to(RETAINED_BYTES_MAX);
        self.announcements.clear();
        self.lent.clear();
    }

    /// The number of references to values ever written to this buffer.
    pub(crate) fn references(&self) -> u64 {
        self.references
    }

    /// Marks the element that begins at `start` as containing references, and adds the command that it answers.
    pub fn mark_unresolved(&mut self, start: usize, command: &[u8]) {
        let element = self.bytes.split_off(start);
        self.push(Reply::Unresolved(command));
        self.bytes.extend_from_slice(&element);
    }

    /// Whether an encoded reply is not complete: it begins with [`Reply::Unresolved`] or [`Reply::Needs`].
    #[inline]
    pub fn is_unfinished(encoded: &[u8]) -> bool {
        matches!(encoded.first(), Some(&(UNRESOLVED | NEEDS)))
    }

    /// Puts the keys that scripts have read in front of their reply, which begins at `start`. A reply that is not complete
    /// stays unchanged.
    pub(crate) fn put_reads(&mut self, start: usize, reads: &Reads) {
        if ReplyBuffer::is_unfinished(&self.bytes[start..]) {
            return;
        }
        let reply = self.bytes.split_off(start);
        self.push(Reply::Reads(&reads.encoded()));
        self.bytes.extend_from_slice(&reply);
    }

    /// Whether an encoded reply goes to its client unchanged: it is no error, is complete, and begins with no keys that were
    /// read.
    #[inline]
    pub fn is_plain(encoded: &[u8]) -> bool {
        encoded.first().is_some_and(|first| *first <= BIG_NUMBER && *first != ERROR)
    }

    /// Whether an encoded reply begins with the keys that scripts have read.
    #[inline]
    pub fn has_reads(encoded: &[u8]) -> bool {
        encoded.first() == Some(&READS)
    }

    /// Splits the keys that scripts have read off the front of an encoded reply, if it has them.
    #[inline]
    pub fn split_reads(encoded: &[u8]) -> Option<(Reads, &[u8])> {
        if !ReplyBuffer::has_reads(encoded) {
            return None;
        }
        let mut reader = Reader::new(encoded);
        match Reply::decode(&mut reader) {
            Ok(Reply::Reads(reads)) => Some((Reads::decode(reads).ok()?, reader.rest())),
            _ => None,
        }
    }

    /// Whether an encoded reply begins with an error.
    #[inline]
    pub fn is_error(encoded: &[u8]) -> bool {
        encoded.first() == Some(&ERROR)
    }

    /// Whether an encoded reply consists of just `OK`: most replies to writes do.
    #[inline]
    pub fn is_only_ok(encoded: &[u8]) -> bool {
        encoded == [OK]
    }

    /// Returns the byte string if an encoded reply consists of just one: most replies to reads do.
    #[inline]
    pub fn only_bulk(encoded: &[u8]) -> Option<&[u8]> {
        match encoded {
            [BULK, a, b, c, d, bytes @ ..]
                if u32::from_le_bytes([*a, *b, *c, *d]) as usize == bytes.len() =>
            {
                Some(bytes)
            }
            _ => None,
        }
    }

    /// Returns the number if an encoded reply consists of just one: most replies to writes do.
    #[inline]
    pub fn only_integer(encoded: &[u8]) -> Option<i64> {
        match encoded {
            [INTEGER, bytes @ ..] => Some(i64::from_le_bytes(bytes.try_into().ok()?)),
            _ => None,
        }
    }

    /// From now on, lends a value of at least `bytes_min` bytes instead of copying it, if it is a whole reply. The
    /// caller must check for such replies with [`ReplyBuffer::lent`]; without this call there are none.
    pub fn lend_from(&mut self, bytes_min: usize) {
        self.lent_bytes_min = NonZero::new(bytes_min);
    }

    /// From now on, a read of a collection that would take longer than `read_ns_max` nanoseconds only begins, if it is no
    /// part of another command. The caller must check for such replies with [`ReplyBuffer::lent`], and have the table go on.
    pub fn read_in_parts(&mut self, read_ns_max: u64) {
        self.read_ns_max = NonZero::new(read_ns_max);
    }

    /// What a read may take in one step, in nanoseconds.
    pub(crate) fn read_ns_max(&self) -> Option<u64> {
        self.read_ns_max.map(NonZero::get)
    }

    /// Has reads that are carried out from now on take one step, as parts of another command do. Returns what
    /// [`ReplyBuffer::read_in_parts`] has set.
    pub(crate) fn read_at_once(&mut self) -> Option<NonZero<u64>> {
        self.read_ns_max.take()
    }

    /// Undoes [`ReplyBuffer::read_at_once`].
    pub(crate) fn read_as_before(&mut self, read_ns_max: Option<NonZero<u64>>) {
        self.read_ns_max = read_ns_max;
    }

    /// Sets the size in bytes beyond which [`ReplyBuffer::is_over_full`].
    pub fn bound(&mut self, bytes_max: usize) {
        self.bytes_max = NonZero::new(bytes_max);
    }

    /// Limits each reply to `bytes_max` bytes from now on: a request of a few bytes may request one value many times.
    pub fn bound_each(&mut self, bytes_max: usize) {
        self.reply_bytes_max = NonZero::new(bytes_max);
    }

    /// Most bytes in one reply.
    #[inline]
    pub fn reply_bytes_max(&self) -> usize {
        self.reply_bytes_max.map_or(crate::limits::REPLY_BYTES_MAX, NonZero::get)
    }

    /// Whether the buffer is so large that further replies must wait or be refused: requests of a few bytes may request
    /// megabytes.
    #[inline]
    pub fn is_over_full(&self) -> bool {
        self.bytes.len() > self.bytes_max.map_or(crate::limits::REPLIES_BYTES_MAX, NonZero::get)
    }

    /// The shortest value that is lent, in bytes, if values are lent.
    #[inline]
    pub(crate) fn lent_bytes_min(&self) -> Option<NonZero<usize>> {
        self.lent_bytes_min
    }

    /// Appends a reply that is elsewhere.
    pub(crate) fn push_lent(&mut self, lent: Lent) {
        self.push(Reply::Lent(self.lent.len() as u32));
        self.lent.push(lent);
    }

    /// Whether some of these replies are lent values, or of reads that have only begun.
    #[inline]
    pub fn has_lent(&self) -> bool {
        !self.lent.is_empty()
    }

    /// Takes out what is lent, in the order of its replies.
    pub fn take_lent(&mut self) -> Vec<Lent> {
        std::mem::take(&mut self.lent)
    }

    /// The index of an encoded reply among what is lent, if it is one.
    pub fn lent(encoded: &[u8]) -> Option<usize> {
        match encoded.first() {
            Some(&LENT) => match Reply::first(encoded) {
                Reply::Lent(number) => Some(number as usize),
                _ => None,
            },
            _ => None,
        }
    }

    /// Adds messages to publish with these replies.
    pub(crate) fn announce(&mut self, announcements: &mut Vec<Announcement>) {
        self.announcements.append(announcements);
    }

    /// Leaves only these messages to be published with the replies.
    pub fn set_announcements(&mut self, announcements: Vec<Announcement>) {
        self.announcements = announcements;
    }

    /// Takes the messages to publish with these replies, in order.
    pub fn take_announcements(&mut self) -> Vec<Announcement> {
        std::mem::take(&mut self.announcements)
    }

    /// Whether there are messages to publish with these replies.
    #[inline]
    pub fn has_announcements(&self) -> bool {
        !self.announcements.is_empty()
    }

    /// Truncates to `length` bytes, in order to replace an unfinished reply.
    pub fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
    }

    /// Gives the array or the set whose head begins at `start` another number of elements.
    pub(crate) fn set_count(&mut self, start: usize, count: usize) {
        let held = self.bytes.get_mut(start + 1..).and_then(|behind| behind.first_chunk_mut());
        let Some(held) = held else { unreachable!("behind a head's tag there is a number") };
        *held = (count as u32).to_le_bytes();
    }

    /// Takes the encoded replies out, without copying them.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Reserves room for `bytes` more bytes.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    /// Appends replies that are already encoded.
    pub fn extend_encoded(&mut self, encoded: &[u8]) {
        self.bytes.extend_from_slice(encoded);
    }

    /// Appends one element.
    pub fn push(&mut self, reply: Reply<'_>) {
        let out = &mut self.bytes;
        match reply {
            Reply::Ok => out.put_u8(OK),
            Reply::Null => out.put_u8(NULL),
            Reply::NullArray => out.put_u8(NULL_ARRAY),
            Reply::Integer(value) => {
                out.put_u8(INTEGER);
                out.put_i64(value);
            }
            Reply::Bulk(bytes) => {
                out.put_u8(BULK);
                out.put_bytes(bytes);
            }
            Reply::Status(bytes) => {
                out.put_u8(STATUS);
                out.put_bytes(bytes);
            }
            Reply::Error(bytes) => {
                out.put_u8(ERROR);
                out.put_bytes(bytes);
            }
            Reply::Text(bytes) => {
                out.put_u8(TEXT);
                out.put_bytes(bytes);
            }
            Reply::Double(value) => {
                out.put_u8(DOUBLE);
                out.put_u64(value.to_bits());
            }
            Reply::Decimal(value) => {
                out.put_u8(DECIMAL);
                out.put_u64(value.to_bits());
            }
            Reply::BigNumber(digits) => {
                out.put_u8(BIG_NUMBER);
                out.put_bytes(digits);
            }
            Reply::Boolean(value) => {
                out.put_u8(BOOLEAN);
                out.put_bool(value);
            }
            Reply::Array(count) => {
                out.put_u8(ARRAY);
                out.put_u32(count);
            }
            Reply::Set(count) => {
                out.put_u8(SET);
                out.put_u32(count);
            }
            Reply::Map(count) => {
                out.put_u8(MAP);
                out.put_u32(count);
            }
            Reply::Push(count) => {
                out.put_u8(PUSH);
                out.put_u32(count);
            }
            Reply::Pairs(count) => {
                out.put_u8(PAIRS);
                out.put_u32(count);
            }
            Reply::Pair => out.put_u8(PAIR),
            Reply::Entries(count) => {
                out.put_u8(ENTRIES);
                out.put_u32(count);
            }
            Reply::Entry => out.put_u8(ENTRY),
            Reply::Unresolved(command) => {
                out.put_u8(UNRESOLVED);
                out.put_bytes(command);
            }
            Reply::Needs(command) => {
                out.put_u8(NEEDS);
                out.put_bytes(command);
            }
            Reply::Reads(reads) => {
                out.put_u8(READS);
                out.put_bytes(reads);
            }
            Reply::Reference(value) => {
                self.references += 1;
                out.put_u8(REFERENCE);
                out.extend_from_slice(value);
            }
            Reply::Lent(number) => {
                out.put_u8(LENT);
                out.put_u32(number);
            }
        }
    }

    // The four most frequent ones are written directly: `push` is too large to be inlined everywhere.

    /// Appends the status `OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.bytes.put_u8(OK);
    }

    /// Appends "no value".
    #[inline]
    pub fn null(&mut self) {
        self.bytes.put_u8(NULL);
    }

    /// Appends an integer.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        self.bytes.put_u8(INTEGER);
        self.bytes.put_i64(value);
    }

    /// Appends a byte string.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.bytes.reserve(5 + bytes.len());
        let [a, b, c, d] = (bytes.len() as u32).to_le_bytes();
        self.bytes.extend_from_slice(&[BULK, a, b, c, d]);
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends the head of a byte string of this length. The caller appends its bytes.
    pub fn bulk_head(&mut self, length: usize) {
        self.bytes.put_u8(BULK);
        self.bytes.put_u32(length as u32);
    }

    /// Appends an error. `text` begins with its code, such as `ERR syntax error`.
    pub fn error(&mut self, text: &str) {
        self.push(Reply::Error(text.as_bytes()));
    }

    /// Appends the head of an array of `count` elements.
    pub fn array(&mut self, count: usize) {
        self.push(Reply::Array(count as u32));
    }

    /// Appends the head of a map of `count` pairs.
    pub fn map(&mut self, count: usize) {
        self.push(Reply::Map(count as u32));
    }
}

impl<'a> Reply<'a> {
    /// Takes the next element off an encoded reply.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes end early or hold an unknown tag.
    #[inline]
    pub fn decode(reader: &mut Reader<'a>) -> Result<Reply<'a>, Malformed> {
        Ok(match reader.u8()? {
            OK => Reply::Ok,
            NULL => Reply::Null,
            NULL_ARRAY => Reply::NullArray,
            INTEGER => Reply::Integer(reader.i64()?),
            BULK => Reply::Bulk(reader.bytes()?),
            STATUS => Reply::Status(reader.bytes()?),
            ERROR => Reply::Error(reader.bytes()?),
            TEXT => Reply::Text(reader.bytes()?),
            DOUBLE => Reply::Double(f64::from_bits(reader.u64()?)),
            DECIMAL => Reply::Decimal(f64::from_bits(reader.u64()?)),
            BIG_NUMBER => Reply::BigNumber(reader.bytes()?),
            BOOLEAN => Reply::Boolean(reader.bool()?),
            ARRAY => Reply::Array(reader.u32()?),
            SET => Reply::Set(reader.u32()?),
            MAP => Reply::Map(reader.u32()?),
            PUSH => Reply::Push(reader.u32()?),
            PAIRS => Reply::Pairs(reader.u32()?),
            PAIR => Reply::Pair,
            ENTRIES => Reply::Entries(reader.u32()?),
            ENTRY => Reply::Entry,
            UNRESOLVED => Reply::Unresolved(reader.bytes()?),
            NEEDS => Reply::Needs(reader.bytes()?),
            READS => Reply::Reads(reader.bytes()?),
            REFERENCE => {
                let encoded = reader.take(VALUE_REF_BYTES)?;
                ValueRef::decode(encoded)?;
                Reply::Reference(encoded)
            }
            LENT => Reply::Lent(reader.u32()?),
            _ => return Err(Malformed("unknown kind of reply")),
        })
    }

    /// The first element of an encoded reply; an error if that is empty or malformed.
    pub fn first(encoded: &'a [u8]) -> Reply<'a> {
        Reply::decode(&mut Reader::new(encoded)).unwrap_or(Reply::Error(b"ERR malformed reply"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_reply_survives_encoding() {
        let replies = [
            Reply::Ok,
            Reply::Null,
            Reply::NullArray,
            Reply::Integer(i64::MIN),
            Reply::Bulk(b"\0\r\n"),
            Reply::Status(b"PONG"),
            Reply::Error(b"ERR no"),
            Reply::Text(b"# Server"),
            Reply::Double(-0.5),
            Reply::Decimal(2.5),
            Reply::BigNumber(b"12345678901234567890"),
            Reply::Boolean(true),
            Reply::Array(3),
            Reply::Set(0),
            Reply::Map(7),
            Reply::Push(3),
            Reply::Pairs(2),
            Reply::Pair,
            Reply::Entries(2),
            Reply::Entry,
            Reply::Unresolved(b"command"),
            Reply::Needs(b""),
            Reply::Reads(b"\0"),
        ];
        let mut buffer = ReplyBuffer::new();
        replies.iter().for_each(|reply| buffer.push(*reply));
        let mut reader = Reader::new(buffer.as_bytes());
        for reply in replies {
            assert_eq!(Reply::decode(&mut reader), Ok(reply));
        }
        assert!(reader.is_empty());
    }

    #[test]
    fn only_a_single_byte_string_is_an_only_bulk() {
        let mut buffer = ReplyBuffer::new();
        buffer.bulk(b"value");
        assert_eq!(ReplyBuffer::only_bulk(buffer.as_bytes()), Some(&b"value"[..]));
        assert_eq!(ReplyBuffer::only_bulk(&buffer.as_bytes()[..9]), None, "it ends early");
        buffer.bulk(b"");
        assert_eq!(ReplyBuffer::only_bulk(buffer.as_bytes()), None, "there are two");
        buffer.clear();
        buffer.error("ERR no");
        assert!(ReplyBuffer::is_error(buffer.as_bytes()));
        assert_eq!(ReplyBuffer::only_bulk(buffer.as_bytes()), None);
        assert!(!ReplyBuffer::is_error(b"") && ReplyBuffer::only_bulk(b"").is_none());
    }

    #[test]
    fn keys_read_by_scripts_are_put_in_front_of_the_reply() {
        let mut reads = Reads::default();
        [&b"b"[..], b"", b"b"].iter().for_each(|key| reads.add(key));
        let mut buffer = ReplyBuffer::new();
        buffer.ok();
        buffer.integer(7);
        buffer.put_reads(1, &reads);
        let (found, rest) = ReplyBuffer::split_reads(&buffer.as_bytes()[1..]).unwrap();
        assert_eq!((found.keys.len(), found.are_more), (2, false));
        assert_eq!((found, Reply::first(rest)), (reads, Reply::Integer(7)));
        assert_eq!(ReplyBuffer::split_reads(buffer.as_bytes()), None);
        let mut many = Reads::default();
        (0..=Reads::NAMED).for_each(|number| many.add(number.to_string().as_bytes()));
        assert_eq!((many.keys.len(), many.are_more), (Reads::NAMED, true));
        buffer.clear();
        buffer.push(Reply::Needs(b"command"));
        buffer.put_reads(0, &many);
        assert!(ReplyBuffer::is_unfinished(buffer.as_bytes()));
    }

    #[test]
    fn a_reply_that_ends_early_or_has_an_unknown_tag_is_malformed() {
        let mut buffer = ReplyBuffer::new();
        buffer.bulk(b"value");
        let bytes = buffer.as_bytes();
        for end in 0..bytes.len() {
            assert!(Reply::decode(&mut Reader::new(&bytes[..end])).is_err());
        }
        assert!(Reply::decode(&mut Reader::new(&[250])).is_err());
    }

    #[test]
    fn room_for_a_long_value_is_reserved_once_and_taken_with_it() {
        const LENGTH: usize = 3 << 20;
        for before in [0, 1, 1000] {
            let mut buffer = ReplyBuffer::new();
            (0..before).for_each(|_| buffer.ok());
            buffer.bulk(&vec![b'v'; LENGTH]);
            assert_eq!(buffer.bytes.capacity(), before + 5 + LENGTH, "neither too little at first nor twice");
            let taken = buffer.take();
            assert_eq!(taken.len(), before + 5 + LENGTH);
            assert_eq!((buffer.len(), buffer.bytes.capacity()), (0, 0));
        }
    }
}
