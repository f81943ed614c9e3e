//! What nodes send each other: messages of their groups, and commands forwarded for their clients.
//!
//! A frame's payload is one envelope. Forwarded requests and their outcomes are gathered: all those of a turn for a
//! peer are in one envelope.

use crate::diagnostics::spans::SpanContext;
use cluster::control::GroupId;
use kv::codec::{Malformed, Reader, Writer};
use kv::locks::LockNotification;
use kv::{Command, Reference, Version};
use protocol::{NodeId, Request, Result as Outcome};
use wire::resp::reply::element_end;

const GROUP: u8 = 1;
const REQUESTS: u8 = 2;
const OUTCOMES: u8 = 3;
const LEADER: u8 = 4;
const LOCK_NOTIFIED: u8 = 5;
const LIFE: u8 = 6;
const SCRIPT: u8 = 7;
const FORGET_SCRIPTS: u8 = 8;
const FRAGMENTS: u8 = 9;
const PUBLISHED: u8 = 10;
const OUTCOME_PART: u8 = 11;
const PARTS_ARRIVED: u8 = 12;
const MEMORY: u8 = 13;
const CLOCK_ASKED: u8 = 14;
const CLOCK_ANSWER: u8 = 15;
const ALIVE: u8 = 16;
const ROOM: u8 = 17;
const LISTENERS_ASKED: u8 = 18;
const LISTENERS: u8 = 19;
const ASKED: u8 = 20;
const ANSWERED: u8 = 21;
const TRACED: u8 = 22;
const VALUE_ASKED: u8 = 23;
const MEMORY_LEFT: u8 = 24;
const LEAVING: u8 = 25;

/// No deadline.
pub(crate) const NO_DEADLINE_MS: u32 = u32::MAX;

/// The payload of one frame.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Envelope<'a> {
    /// A message between replicas of a group.
    Group { group: u16, message: &'a [u8] },
    /// Requests of the sender's clients.
    Requests(&'a [u8]),
    /// The following request, which has this number, belongs to a trace. Since release 2.
    Traced { id: u64, context: SpanContext },
    /// Outcomes of the receiver's requests.
    Outcomes(&'a [u8]),
    /// Requests a value from the receiver's disk, which the sender cannot read from its own. The outcome is that of a
    /// forwarded request of this number. Since release 2.
    ValueAsked { id: u64, group: u16, reference: Reference },
    /// A message about fragments of a group's values: see [`protocol::coded`].
    Fragments { group: u16, message: &'a [u8] },
    /// The receiver sent a request for a group to the wrong node: `leader` leads the group, as far as the sender
    /// knows.
    Leader { group: u16, leader: NodeId },
    /// A record's notification to a request that waits for a lock or for elements on behalf of the receiver's client.
    LockNotified { group: u16, notified: LockNotified<'a> },
    /// The sender's incarnation: no client waits any more for requests of other incarnations of the sender.
    Life(u64),
    /// The sender is alive, and takes part in its groups. This replaces the heartbeats of quiescent groups.
    Alive,
    /// The text of a script that a client has loaded.
    Script(&'a [u8]),
    /// Makes all nodes forget the scripts, for a client.
    ForgetScripts,
    /// A message for those of the receiver's clients that subscribe to a channel.
    Published { is_sharded: bool, channel: &'a [u8], message: &'a [u8] },
    /// Asks how many of the receiver's clients subscribe to each of these channels. The names have their lengths.
    ListenersAsked { id: u64, is_sharded: bool, names: &'a [u8] },
    /// The numbers of subscribers, in the order of the question: eight bytes each.
    Listeners { id: u64, counts: &'a [u8] },
    /// Requests what the receiver knows about itself: a command's arguments, with their lengths. See `asking`.
    Asked { id: u64, words: &'a [u8] },
    /// The reply to [`Envelope::Asked`].
    Answered { id: u64, reply: &'a [u8] },
    /// A part of an outcome whose reply is long.
    OutcomePart(OutcomePart<'a>),
    /// Whether the sender has no memory left for data that grows.
    Memory { is_full: bool },
    /// How many bytes of memory the sender has left for data that the receiver's clients, or those of one other leader, write.
    MemoryLeft { bytes: u64 },
    /// The sender is about to stop: the receiver no longer counts on it, forwards nothing to it, and says so. That answer
    /// comes after all that the receiver has forwarded. Since release 2.
    Leaving { is_noted: bool },
    /// Whether the sender's disk has no room but the reserve, and whether the sender stands aside because of that.
    Room { is_short: bool, is_aside: bool },
    /// How much of an outcome's reply has arrived. `None`: the rest of it is not wanted.
    PartsArrived { id: u64, so_far: Option<u32> },
    /// Asks for the receiver's wall clock. Has the time of asking on the sender's monotonic clock.
    ClockAsked { asked_us: u64 },
    /// The sender's wall clock, and the time that it has agreed on with others (0: none), in milliseconds.
    ClockAnswer { asked_us: u64, own_ms: u64, agreed_ms: u64 },
}

/// See [`protocol::Notice::LockNotified`]. The receiver is the waiter's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockNotified<'a> {
    pub(crate) life: u64,
    pub(crate) number: u64,
    pub(crate) name: &'a [u8],
    pub(crate) notification: LockNotification,
    pub(crate) offset: Version,
}

impl<'a> Envelope<'a> {
    #[inline]
    pub(crate) fn decode(payload: &'a [u8]) -> Result<Envelope<'a>, Malformed> {
        let mut reader = Reader::new(payload);
        Ok(match reader.u8()? {
            GROUP => Envelope::Group { group: reader.u16()?, message: reader.rest() },
            FRAGMENTS => Envelope::Fragments { group: reader.u16()?, message: reader.rest() },
            REQUESTS => Envelope::Requests(reader.rest()),
            OUTCOMES => Envelope::Outcomes(reader.rest()),
            VALUE_ASKED => Envelope::ValueAsked {
                id: reader.u64()?,
                group: reader.u16()?,
                reference: Reference::decode(reader.rest())?,
            },
            TRACED => {
                let (id, high, low) = (reader.u64()?, reader.u64()?, reader.u64()?);
                let trace = u128::from(high) << 64 | u128::from(low);
                Envelope::Traced { id, context: SpanContext { trace, span: reader.u64()? } }
            }
            LEADER => Envelope::Leader { group: reader.u16()?, leader: reader.u16()? },
            LIFE => Envelope::Life(reader.u64()?),
            ALIVE => Envelope::Alive,
            LOCK_NOTIFIED => {
                Envelope::LockNotified { group: reader.u16()?, notified: LockNotified::decode(&mut reader)? }
            }
            SCRIPT => Envelope::Script(reader.rest()),
            FORGET_SCRIPTS => Envelope::ForgetScripts,
            MEMORY => Envelope::Memory { is_full: reader.bool()? },
            MEMORY_LEFT => Envelope::MemoryLeft { bytes: reader.u64()? },
            LEAVING => Envelope::Leaving { is_noted: reader.bool()? },
            ROOM => Envelope::Room { is_short: reader.bool()?, is_aside: reader.bool()? },
            PUBLISHED => {
                let (is_sharded, channel) = (reader.bool()?, reader.bytes()?);
                Envelope::Published { is_sharded, channel, message: reader.rest() }
            }
            LISTENERS_ASKED => {
                let (id, is_sharded) = (reader.u64()?, reader.bool()?);
                Envelope::ListenersAsked { id, is_sharded, names: reader.rest() }
            }
            LISTENERS => Envelope::Listeners { id: reader.u64()?, counts: reader.rest() },
            ASKED => Envelope::Asked { id: reader.u64()?, words: reader.rest() },
            ANSWERED => Envelope::Answered { id: reader.u64()?, reply: reader.rest() },
            OUTCOME_PART => Envelope::OutcomePart(OutcomePart::decode(&mut reader)?),
            PARTS_ARRIVED => {
                let (id, is_wanted, so_far) = (reader.u64()?, reader.bool()?, reader.u32()?);
                Envelope::PartsArrived { id, so_far: is_wanted.then_some(so_far) }
            }
            CLOCK_ASKED => Envelope::ClockAsked { asked_us: reader.u64()? },
            CLOCK_ANSWER => Envelope::ClockAnswer {
                asked_us: reader.u64()?,
                own_ms: reader.u64()?,
                agreed_ms: reader.u64()?,
            },
            _ => return Err(Malformed("unknown kind of envelope")),
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Envelope::Group { group, message } => {
                out.put_u8(GROUP);
                out.put_u16(*group);
                out.extend_from_slice(message);
            }
            Envelope::Fragments { group, message } => {
                out.reserve(3 + message.len());
                out.put_u8(FRAGMENTS);
                out.put_u16(*group);
                out.extend_from_slice(message);
            }
            Envelope::Requests(items) => {
                out.put_u8(REQUESTS);
                out.extend_from_slice(items);
            }
            Envelope::Outcomes(items) => {
                out.put_u8(OUTCOMES);
                out.extend_from_slice(items);
            }
            Envelope::ValueAsked { id, group, reference } => {
                out.put_u8(VALUE_ASKED);
                out.put_u64(*id);
                out.put_u16(*group);
                out.extend_from_slice(&reference.encoded());
            }
            Envelope::Traced { id, context: SpanContext { trace, span } } => {
                out.put_u8(TRACED);
                out.put_u64(*id);
                out.put_u64((trace >> 64) as u64);
                out.put_u64(*trace as u64);
                out.put_u64(*span);
            }
            Envelope::Leader { group, leader } => {
                out.put_u8(LEADER);
                out.put_u16(*group);
                out.put_u16(*leader);
            }
            Envelope::Life(life) => {
                out.put_u8(LIFE);
                out.put_u64(*life);
            }
            Envelope::Alive => out.put_u8(ALIVE),
            Envelope::LockNotified { group, notified } => {
                out.put_u8(LOCK_NOTIFIED);
                out.put_u16(*group);
                notified.encode(out);
            }
            Envelope::Script(text) => {
                out.put_u8(SCRIPT);
                out.extend_from_slice(text);
            }
            Envelope::ForgetScripts => out.put_u8(FORGET_SCRIPTS),
            Envelope::Memory { is_full } => {
                out.put_u8(MEMORY);
                out.put_bool(*is_full);
            }
            Envelope::MemoryLeft { bytes } => {
                out.put_u8(MEMORY_LEFT);
                out.put_u64(*bytes);
            }
            Envelope::Leaving { is_noted } => {
                out.put_u8(LEAVING);
                out.put_bool(*is_noted);
            }
            Envelope::Room { is_short, is_aside } => {
                out.put_u8(ROOM);
                out.put_bool(*is_short);
                out.put_bool(*is_aside);
            }
            Envelope::Published { is_sharded, channel, message } => {
                out.reserve(6 + channel.len() + message.len());
                out.put_u8(PUBLISHED);
                out.put_bool(*is_sharded);
                out.put_bytes(channel);
                out.extend_from_slice(message);
            }
            Envelope::ListenersAsked { id, is_sharded, names } => {
                out.put_u8(LISTENERS_ASKED);
                out.put_u64(*id);
                out.put_bool(*is_sharded);
                out.extend_from_slice(names);
            }
            Envelope::Listeners { id, counts } => {
                out.put_u8(LISTENERS);
                out.put_u64(*id);
                out.extend_from_slice(counts);
            }
            Envelope::Asked { id, words } => {
                out.put_u8(ASKED);
                out.put_u64(*id);
                out.extend_from_slice(words);
            }
            Envelope::Answered { id, reply } => {
                out.reserve(9 + reply.len());
                out.put_u8(ANSWERED);
                out.put_u64(*id);
                out.extend_from_slice(reply);
            }
            Envelope::OutcomePart(part) => {
                out.put_u8(OUTCOME_PART);
                part.encode(out);
            }
            Envelope::PartsArrived { id, so_far } => {
                out.put_u8(PARTS_ARRIVED);
                out.put_u64(*id);
                out.put_bool(so_far.is_some());
                out.put_u32(so_far.unwrap_or_default());
            }
            Envelope::ClockAsked { asked_us } => {
                out.put_u8(CLOCK_ASKED);
                out.put_u64(*asked_us);
            }
            Envelope::ClockAnswer { asked_us, own_ms, agreed_ms } => {
                out.put_u8(CLOCK_ANSWER);
                out.put_u64(*asked_us);
                out.put_u64(*own_ms);
                out.put_u64(*agreed_ms);
            }
        }
    }
}

impl<'a> LockNotified<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.life);
        out.put_u64(self.number);
        out.put_bytes(self.name);
        out.put_u64(self.offset);
        match self.notification {
            LockNotification::Granted(token) => {
                out.put_u8(1);
                out.put_u64(token);
            }
            LockNotification::SessionOver => out.put_u8(2),
            LockNotification::Superseded => out.put_u8(3),
            LockNotification::Dropped => out.put_u8(4),
            LockNotification::Served => out.put_u8(5),
        }
    }

    fn decode(reader: &mut Reader<'a>) -> Result<LockNotified<'a>, Malformed> {
        let (life, number) = (reader.u64()?, reader.u64()?);
        let (name, offset) = (reader.bytes()?, reader.u64()?);
        let notification = match reader.u8()? {
            1 => LockNotification::Granted(reader.u64()?),
            2 => LockNotification::SessionOver,
            3 => LockNotification::Superseded,
            4 => LockNotification::Dropped,
            5 => LockNotification::Served,
            _ => return Err(Malformed("an unknown notification to a request that waits")),
        };
        Ok(LockNotified { life, number, name, notification, offset })
    }
}

/// A request that a node forwards for its client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ForwardedRequest {
    /// The sender's number for the request.
    pub(crate) id: u64,
    pub(crate) group: u16,
    pub(crate) follows: bool,
    pub(crate) seen: Version,
    /// How long the client still waits.
    pub(crate) remaining_ms: u32,
    /// How many nodes forwarded the request before the sender.
    pub(crate) hops: u8,
    /// The only leadership of the receiver that may order the request; 0: any.
    pub(crate) leadership: u64,
}

impl ForwardedRequest {
    /// Encodes it with the request behind it, and returns where the request begins.
    pub(crate) fn encode(&self, request: &Request<'_>, out: &mut Vec<u8>) -> usize {
        out.put_u64(self.id);
        out.put_u16(self.group);
        out.put_bool(self.follows);
        out.put_u64(self.seen);
        out.put_u32(self.remaining_ms);
        out.put_u8(self.hops);
        out.put_u64(self.leadership);
        let start = out.len();
        put_request(request, out);
        start
    }

    /// Decodes the part before the request.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<ForwardedRequest, Malformed> {
        Ok(ForwardedRequest {
            id: reader.u64()?,
            group: reader.u16()?,
            follows: reader.bool()?,
            seen: reader.u64()?,
            remaining_ms: reader.u32()?,
            hops: reader.u8()?,
            leadership: reader.u64()?,
        })
    }
}

#[inline]
pub(crate) fn put_request(request: &Request<'_>, out: &mut Vec<u8>) {
    match request {
        Request::Command(command) => {
            out.put_bool(true);
            command.encode(out);
        }
        Request::Wait { offset, count } => {
            out.put_bool(false);
            out.put_u64(*offset);
            out.put_u32(*count);
        }
    }
}

/// A request that was decoded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum DecodedRequest<'a> {
    Command(Command<'a>),
    Wait { offset: Version, count: u32 },
}

impl<'a> DecodedRequest<'a> {
    #[inline]
    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<DecodedRequest<'a>, Malformed> {
        Ok(match reader.bool()? {
            true => DecodedRequest::Command(Command::decode(reader)?),
            false => DecodedRequest::Wait { offset: reader.u64()?, count: reader.u32()? },
        })
    }

    /// The request.
    #[inline]
    pub(crate) fn request(&self) -> Request<'_> {
        match self {
            DecodedRequest::Command(command) => Request::Command(command),
            DecodedRequest::Wait { offset, count } => Request::Wait { offset: *offset, count: *count },
        }
    }
}

/// The outcome of a forwarded request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ForwardedOutcome<'a> {
    pub(crate) id: u64,
    pub(crate) result: Outcome,
    /// The reply: whole and well-formed.
    pub(crate) reply: &'a [u8],
}

impl<'a> ForwardedOutcome<'a> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.id);
        encode_result(self.result, out);
        out.put_bytes(self.reply);
    }

    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<ForwardedOutcome<'a>, Malformed> {
        let (id, result, reply) = (reader.u64()?, decode_result(reader)?, reader.bytes()?);
        if !matches!(result, Outcome::Redirect { .. }) && element_end(reply)? != reply.len() {
            return Err(Malformed("bytes behind a reply"));
        }
        Ok(ForwardedOutcome { id, result, reply })
    }
}

#[inline]
fn encode_result(result: Outcome, out: &mut Vec<u8>) {
    match result {
        Outcome::Done { version, offset } => {
            out.put_u8(0);
            out.put_u64(version);
            out.put_u64(offset);
        }
        Outcome::Refused => out.put_u8(1),
        Outcome::Redirect { to } => {
            out.put_u8(2);
            out.put_u16(to);
        }
        Outcome::Unknown => out.put_u8(3),
    }
}

#[inline]
fn decode_result(reader: &mut Reader<'_>) -> Result<Outcome, Malformed> {
    Ok(match reader.u8()? {
        0 => Outcome::Done { version: reader.u64()?, offset: reader.u64()? },
        1 => Outcome::Refused,
        2 => Outcome::Redirect { to: reader.u16()? as NodeId },
        3 => Outcome::Unknown,
        _ => return Err(Malformed("unknown kind of outcome")),
    })
}

/// A part of the outcome of a forwarded request whose reply is long. See `long_replies`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OutcomePart<'a> {
    pub(crate) id: u64,
    pub(crate) result: Outcome,
    /// The length of the whole reply, in bytes.
    pub(crate) length: u32,
    /// Where this part begins in the reply.
    pub(crate) offset: u32,
    /// The bytes of this part. Never empty.
    pub(crate) bytes: &'a [u8],
}

impl<'a> OutcomePart<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(40 + self.bytes.len());
        out.put_u64(self.id);
        encode_result(self.result, out);
        out.put_u32(self.length);
        out.put_u32(self.offset);
        out.extend_from_slice(self.bytes);
    }

    fn decode(reader: &mut Reader<'a>) -> Result<OutcomePart<'a>, Malformed> {
        let (id, result) = (reader.u64()?, decode_result(reader)?);
        let (length, offset, bytes) = (reader.u32()?, reader.u32()?, reader.rest());
        let left = length.checked_sub(offset).ok_or(Malformed("a part behind the end of its reply"))?;
        if bytes.is_empty() || bytes.len() > left as usize {
            return Err(Malformed("a part that is none of its reply"));
        }
        if matches!(result, Outcome::Redirect { .. }) {
            return Err(Malformed("a long reply to a request that another node is to be asked"));
        }
        Ok(OutcomePart { id, result, length, offset, bytes })
    }
}

// For simulations and tests, which look into frames.

/// Returns the group and the message of a frame's payload, if it is a message between replicas. Other payloads carry
/// requests and outcomes of clients, which rely on the order and on the end of their link. Messages between replicas
/// do not, nor do messages about fragments of values: see [`fragment_message`].
pub fn replica_message(payload: &[u8]) -> Option<(GroupId, &[u8])> {
    match Envelope::decode(payload) {
        Ok(Envelope::Group { group, message }) => Some((group, message)),
        _ => None,
    }
}

/// Describes any other payload in words, for a trace.
pub fn payload_words(payload: &[u8]) -> &'static str {
    match Envelope::decode(payload) {
        Ok(Envelope::Requests(_)) => "requests of clients",
        Ok(Envelope::Outcomes(_)) => "outcomes of clients",
        Ok(Envelope::Traced { .. }) => "the trace of a request",
        Ok(Envelope::OutcomePart(_)) => "a part of an outcome",
        Ok(Envelope::PartsArrived { .. }) => "so much of an outcome has arrived",
        _ => "what is of no group",
    }
}

/// Returns the group and the message of a payload about fragments of large values: each message is independent.
pub fn fragment_message(payload: &[u8]) -> Option<(GroupId, &[u8])> {
    match Envelope::decode(payload) {
        Ok(Envelope::Fragments { group, message }) => Some((group, message)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_outcomes_are_read_as_they_were_written() {
        let requests = [
            DecodedRequest::Command(Command::Get { key: b"k" }),
            DecodedRequest::Wait { offset: 9, count: 2 },
            DecodedRequest::Command(Command::IncrementBy { key: b"k", delta: -1 }),
        ];
        let forwarded = ForwardedRequest {
            id: 7,
            group: 1,
            follows: true,
            seen: 3,
            remaining_ms: 9,
            hops: 1,
            leadership: 5,
        };
        let mut bytes = Vec::new();
        for request in &requests {
            forwarded.encode(&request.request(), &mut bytes);
        }
        let mut reader = Reader::new(&bytes);
        for request in requests {
            assert_eq!(ForwardedRequest::decode(&mut reader), Ok(forwarded));
            assert_eq!(DecodedRequest::decode(&mut reader), Ok(request));
        }
        assert!(reader.is_empty());

        let mut replies = kv::ReplyBuffer::new();
        replies.array(2);
        replies.ok();
        replies.null();
        let outcome = ForwardedOutcome {
            id: 7,
            result: Outcome::Done { version: 4, offset: 5 },
            reply: replies.as_bytes(),
        };
        let mut bytes = Vec::new();
        outcome.encode(&mut bytes);
        assert_eq!(ForwardedOutcome::decode(&mut Reader::new(&bytes)), Ok(outcome));
    }

    #[test]
    fn messages_to_waiting_requests_are_read_as_they_were_written() {
        for notification in [
            LockNotification::Granted(7),
            LockNotification::SessionOver,
            LockNotification::Superseded,
            LockNotification::Dropped,
        ] {
            let notified = LockNotified { life: 1, number: 2, name: b"l", notification, offset: 3 };
            let mut bytes = Vec::new();
            Envelope::LockNotified { group: 4, notified }.encode(&mut bytes);
            assert!(matches!(
                Envelope::decode(&bytes),
                Ok(Envelope::LockNotified { group: 4, notified: read }) if read == notified
            ));
            assert!(Envelope::decode(&bytes[..bytes.len() - 1]).is_err());
        }
    }

    #[test]
    fn a_reply_with_a_missing_element_is_not_taken_from_a_peer() {
        let mut replies = kv::ReplyBuffer::new();
        replies.array(2);
        replies.ok();
        let outcome = ForwardedOutcome { id: 7, result: Outcome::Refused, reply: replies.as_bytes() };
        let mut bytes = Vec::new();
        outcome.encode(&mut bytes);
        assert!(ForwardedOutcome::decode(&mut Reader::new(&bytes)).is_err());
    }

    #[test]
    fn a_part_of_a_reply_is_read_as_it_was_written() {
        let results = [Outcome::Done { version: 4, offset: 5 }, Outcome::Refused, Outcome::Unknown];
        for (result, offset) in
            results.into_iter().flat_map(|result| [0, 7, 9].map(|offset| (result, offset)))
        {
            let part = OutcomePart { id: 3, result, length: 10, offset, bytes: b"r" };
            let mut bytes = Vec::new();
            Envelope::OutcomePart(part).encode(&mut bytes);
            assert!(matches!(Envelope::decode(&bytes), Ok(Envelope::OutcomePart(read)) if read == part));
            (0..bytes.len()).for_each(|end| assert!(Envelope::decode(&bytes[..end]).is_err(), "{end} bytes"));
        }
        for so_far in [None, Some(0), Some(u32::MAX)] {
            let mut bytes = Vec::new();
            Envelope::PartsArrived { id: 3, so_far }.encode(&mut bytes);
            assert!(matches!(
                Envelope::decode(&bytes),
                Ok(Envelope::PartsArrived { id: 3, so_far: read }) if read == so_far
            ));
            (0..bytes.len()).for_each(|end| assert!(Envelope::decode(&bytes[..end]).is_err(), "{end} bytes"));
        }
    }

    #[test]
    fn a_part_that_does_not_fit_into_its_reply_is_refused() {
        let done = Outcome::Done { version: 4, offset: 5 };
        for (result, length, offset, bytes) in [
            (done, 10, 0, &b""[..]),
            (done, 10, 10, b"r"),
            (done, 10, 8, b"two more"),
            (done, 10, u32::MAX, b"r"),
            (Outcome::Redirect { to: 2 }, 10, 0, b"r"),
        ] {
            let mut encoded = Vec::new();
            Envelope::OutcomePart(OutcomePart { id: 3, result, length, offset, bytes }).encode(&mut encoded);
            assert!(Envelope::decode(&encoded).is_err(), "{result:?} {length} {offset}");
        }
    }
}
