//! Messages between control components.

use super::map::{MAP_BYTES_MAX, Start};
use super::refusal::{Refusal, put_sentence, take_sentence};
use kv::codec::{Malformed, Reader, Writer};
use wire::release::Releases;

/// The most bytes of one requested change.
pub(super) const CHANGE_BYTES_MAX: usize = 1 << 20;

/// A message between the control components of two nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A node's request to renew its lease, with its incarnation and the version of its map (every node, to all
    /// control nodes).
    Renew {
        /// How the sender started.
        start: Start,
        /// The renewal's number; it grows with each one of this start.
        sequence: u64,
        /// The version of the sender's newest map.
        map_version: u64,
        /// The newest of the sender's renewals that was answered. 0: none was.
        answered: u64,
        /// The log position up to which the sender's log survives every crash.
        durable: u64,
        /// What the sender's program understands.
        releases: Releases,
    },
    /// The receiver's lease, counted from its request; valid if the receiver acts on this map or a newer one (control
    /// leader).
    Renewed {
        /// The number of the renewal that this answers.
        sequence: u64,
        /// The newest map's version.
        map_version: u64,
        /// How long the lease lasts, in microseconds.
        lasts_us: u64,
    },
    /// The newest map (control leader).
    Map {
        /// The encoded map.
        bytes: &'a [u8],
    },
    /// A request for a change (any node, to all control nodes: the control leader makes it).
    Ask {
        /// The process that asks: [`Start::run`].
        run: u64,
        /// The number of the change within that process.
        id: u64,
        /// The encoded change.
        change: &'a [u8],
    },
    /// The outcome of a change (control leader).
    Answered {
        /// The process that asked: [`Start::run`].
        run: u64,
        /// The number of the change within that process.
        id: u64,
        /// The version of the map that contains the change, or why it cannot be made.
        result: Result<u64, Refusal>,
    },
    /// The receiver is not admitted (control leader).
    Refused {
        /// The refused start.
        start: Start,
        /// The version of the map that does not have this start.
        map_version: u64,
        /// The reason, as a sentence.
        why: String,
    },
    /// A control node that has never taken part asks the others whether any has (`is_question`), and they answer.
    Hello {
        /// The sender's storage.
        identity: u64,
        /// Whether the sender takes part.
        has_begun: bool,
        /// The storage that the receiver had when the sender began to take part; 0 before.
        knows: u64,
        /// Whether the sender wants an answer.
        is_question: bool,
    },
    /// A message of the control group's replicas.
    Replica {
        /// The encoded message.
        bytes: &'a [u8],
    },
    /// Up to where nodes' logs were durable, as far as was reported to the sender (control nodes, to each other).
    Heard {
        /// Encoded as in `positions`.
        bytes: &'a [u8],
    },
}

const RENEW: u8 = 1;
const RENEWED: u8 = 2;
const MAP: u8 = 3;
const ASK: u8 = 4;
const ANSWERED: u8 = 5;
const REFUSED: u8 = 6;
const HELLO: u8 = 7;
const REPLICA: u8 = 8;
const HEARD: u8 = 9;

impl<'a> Message<'a> {
    /// Appends the message's encoding to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Message::Renew { start, sequence, map_version, answered, durable, releases } => {
                out.put_u8(RENEW);
                put_start(out, *start);
                out.put_u64(*sequence);
                out.put_u64(*map_version);
                out.put_u64(*answered);
                out.put_u64(*durable);
                out.put_u16(releases.oldest);
                out.put_u16(releases.newest);
            }
            Message::Renewed { sequence, map_version, lasts_us } => {
                out.put_u8(RENEWED);
                out.put_u64(*sequence);
                out.put_u64(*map_version);
                out.put_u64(*lasts_us);
            }
            Message::Map { bytes } => {
                out.put_u8(MAP);
                out.put_bytes(bytes);
            }
            Message::Ask { run, id, change } => {
                out.put_u8(ASK);
                out.put_u64(*run);
                out.put_u64(*id);
                out.put_bytes(change);
            }
            Message::Answered { run, id, result } => {
                out.put_u8(ANSWERED);
                out.put_u64(*run);
                out.put_u64(*id);
                out.put_bool(result.is_ok());
                match result {
                    Ok(version) => out.put_u64(*version),
                    Err(why) => why.encode(out),
                }
            }
            Message::Refused { start, map_version, why } => {
                out.put_u8(REFUSED);
                put_start(out, *start);
                out.put_u64(*map_version);
                put_sentence(out, why);
            }
            Message::Hello { identity, has_begun, knows, is_question } => {
                out.put_u8(HELLO);
                out.put_u64(*identity);
                out.put_bool(*has_begun);
                out.put_u64(*knows);
                out.put_bool(*is_question);
            }
            Message::Replica { bytes } => {
                out.put_u8(REPLICA);
                out.extend_from_slice(bytes);
            }
            Message::Heard { bytes } => {
                out.put_u8(HEARD);
                out.extend_from_slice(bytes);
            }
        }
    }

    /// Reads a message, which must be all of `bytes`.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not a message.
    pub fn decode(bytes: &'a [u8]) -> Result<Message<'a>, Malformed> {
        let mut reader = Reader::new(bytes);
        let message = match reader.u8()? {
            RENEW => Message::Renew {
                start: take_start(&mut reader)?,
                sequence: reader.u64()?,
                map_version: reader.u64()?,
                answered: reader.u64()?,
                durable: reader.u64()?,
                releases: Releases { oldest: reader.u16()?, newest: reader.u16()? },
            },
            RENEWED => Message::Renewed {
                sequence: reader.u64()?,
                map_version: reader.u64()?,
                lasts_us: reader.u64()?,
            },
            MAP => Message::Map { bytes: take_bounded(&mut reader, MAP_BYTES_MAX)? },
            ASK => Message::Ask {
                run: reader.u64()?,
                id: reader.u64()?,
                change: take_bounded(&mut reader, CHANGE_BYTES_MAX)?,
            },
            ANSWERED => {
                let (run, id) = (reader.u64()?, reader.u64()?);
                let result = match reader.bool()? {
                    true => Ok(reader.u64()?),
                    false => Err(Refusal::decode(&mut reader)?),
                };
                Message::Answered { run, id, result }
            }
            REFUSED => Message::Refused {
                start: take_start(&mut reader)?,
                map_version: reader.u64()?,
                why: take_sentence(&mut reader)?,
            },
            HELLO => Message::Hello {
                identity: reader.u64()?,
                has_begun: reader.bool()?,
                knows: reader.u64()?,
                is_question: reader.bool()?,
            },
            REPLICA => return Ok(Message::Replica { bytes: reader.rest() }),
            HEARD => return Ok(Message::Heard { bytes: reader.rest() }),
            _ => return Err(Malformed("unknown kind of control message")),
        };
        if !reader.is_empty() {
            return Err(Malformed("bytes behind a control message"));
        }
        Ok(message)
    }
}

pub(super) fn put_start(out: &mut Vec<u8>, start: Start) {
    let Start { identity, life, run, found } = start;
    [identity, life, run, found].into_iter().for_each(|number| out.put_u64(number));
}

pub(super) fn take_start(reader: &mut Reader<'_>) -> Result<Start, Malformed> {
    let [identity, life, run, found] = [reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?];
    let start = Start { identity, life, run, found };
    if start.identity == 0 || start.life == 0 {
        return Err(Malformed("a start without an identity or an incarnation"));
    }
    Ok(start)
}

fn take_bounded<'a>(reader: &mut Reader<'a>, bytes_max: usize) -> Result<&'a [u8], Malformed> {
    let bytes = reader.bytes()?;
    if bytes.len() > bytes_max {
        return Err(Malformed("a control message is too long"));
    }
    Ok(bytes)
}
