//! Messages about fragments. They do not depend on each other: any of them may be lost, late or duplicated.

use kv::codec::{Malformed, Reader, Writer};
use kv::coded::REFERENCE_BYTES;
use kv::{Reference, ValueId};

/// A piece of a fragment, as it is sent and recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The value.
    pub reference: Reference,
    /// The number of the fragment.
    pub number: u8,
    /// The stripe.
    pub stripe: u32,
    /// A checksum of the bytes and their place.
    pub checksum: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// Returns a digest of a piece's place (value, fragment and stripe), on which its checksum depends besides the bytes.
fn place(id: ValueId, number: u8, stripe: u32) -> u64 {
    let mut name = Vec::with_capacity(32);
    id.put(&mut name);
    name.put_u8(number);
    name.put_u32(stripe);
    coding::checksum(&name, 0)
}

impl<'a> Piece<'a> {
    /// Returns a piece with its checksum.
    pub fn new(reference: Reference, number: u8, stripe: u32, bytes: &'a [u8]) -> Piece<'a> {
        let checksum = coding::checksum(bytes, place(reference.id, number, stripe));
        Piece { reference, number, stripe, checksum, bytes }
    }

    /// Whether the bytes are those that were coded for this place of this value.
    pub fn is_intact(&self) -> bool {
        self.checksum == coding::checksum(self.bytes, place(self.reference.id, self.number, self.stripe))
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.reserve(self.encoded_bytes());
        self.put_head(out);
        out.extend_from_slice(self.bytes);
    }

    /// Appends the encoding without the piece's bytes, which follow at the end.
    pub(crate) fn put_head(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.reference.encoded());
        out.put_u8(self.number);
        out.put_u32(self.stripe);
        out.put_u64(self.checksum);
        out.put_u32(self.bytes.len() as u32);
    }

    /// The length of the encoding, in bytes.
    pub(crate) fn encoded_bytes(&self) -> usize {
        REFERENCE_BYTES + 17 + self.bytes.len()
    }

    pub(crate) fn take(reader: &mut Reader<'a>) -> Result<Piece<'a>, Malformed> {
        Ok(Piece {
            reference: Reference::decode(reader.take(REFERENCE_BYTES)?)?,
            number: reader.u8()?,
            stripe: reader.u32()?,
            checksum: reader.u64()?,
            bytes: reader.bytes()?,
        })
    }
}

/// Why a replica does not keep a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The replica is not a member of its group.
    NoMember,
    /// The value was abandoned.
    Abandoned,
    /// The fragment is inconsistent, or does not match what is already kept for that value.
    Unfit,
    /// The replica's disk is full.
    NoRoom,
}

/// A message about fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Keep this piece of your fragment (a coordinator to a member).
    Keep(Piece<'a>),
    /// I keep the whole fragment, durably (a member to the coordinator).
    Kept {
        /// The value.
        id: ValueId,
        /// The membership in which the sender is a member.
        membership: u32,
        /// The number of members in it.
        members: u16,
    },
    /// The fragment is not kept.
    Refused {
        /// The value.
        id: ValueId,
        /// The reason.
        why: Refusal,
    },
    /// The value will never be stored: its coordinator never proposed it, or was refused (a coordinator to a member).
    Forget {
        /// The value.
        id: ValueId,
    },
    /// Send me some pieces of your fragment (a node that needs the value to a member).
    Fetch {
        /// The value.
        id: ValueId,
        /// The first stripe.
        stripe: u32,
        /// The number of stripes.
        count: u32,
    },
    /// One of these pieces.
    Fetched(Piece<'a>),
    /// The number of values of which I have no fragment (a member to all others, periodically). Until it is 0 the sender
    /// counts as a failed member.
    Lacks {
        /// The sender's membership.
        membership: u32,
        /// Whether the sender holds everything that was decided before that membership began.
        holds_beginning: bool,
        /// The number of values.
        values: u32,
    },
    /// I keep one piece of that fragment, and not the last one, durably: more may be sent (a member to the coordinator).
    Taken {
        /// The value.
        id: ValueId,
        /// The stripe.
        stripe: u32,
    },
    /// I do not have that fragment.
    Missing {
        /// The value.
        id: ValueId,
    },
    /// What is the round trip to you (a coordinator to a member)?
    Probe {
        /// The time of the probe, by the sender's clock.
        at_us: u64,
    },
    /// The answer to a probe, sent at once.
    Echo {
        /// The probe's time.
        at_us: u64,
    },
}

const KEEP: u8 = 1;
const KEPT: u8 = 2;
const REFUSED: u8 = 3;
const FORGET: u8 = 4;
const FETCH: u8 = 5;
const FETCHED: u8 = 6;
const MISSING: u8 = 7;
const LACKS: u8 = 8;
const TAKEN: u8 = 9;
const PROBE: u8 = 10;
const ECHO: u8 = 11;

impl<'a> Message<'a> {
    /// Appends the message's encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let named = |out: &mut Vec<u8>, tag: u8, id: &ValueId| {
            out.put_u8(tag);
            id.put(out);
        };
        match self {
            Message::Keep(piece) => {
                out.put_u8(KEEP);
                piece.put(out);
            }
            Message::Kept { id, membership, members } => {
                named(out, KEPT, id);
                out.put_u32(*membership);
                out.put_u16(*members);
            }
            Message::Refused { id, why } => {
                named(out, REFUSED, id);
                out.put_u8(*why as u8);
            }
            Message::Forget { id } => named(out, FORGET, id),
            Message::Fetch { id, stripe, count } => {
                named(out, FETCH, id);
                out.put_u32(*stripe);
                out.put_u32(*count);
            }
            Message::Fetched(piece) => {
                out.put_u8(FETCHED);
                piece.put(out);
            }
            Message::Taken { id, stripe } => {
                named(out, TAKEN, id);
                out.put_u32(*stripe);
            }
            Message::Missing { id } => named(out, MISSING, id),
            Message::Probe { at_us } => {
                out.put_u8(PROBE);
                out.put_u64(*at_us);
            }
            Message::Echo { at_us } => {
                out.put_u8(ECHO);
                out.put_u64(*at_us);
            }
            Message::Lacks { membership, holds_beginning, values } => {
                out.put_u8(LACKS);
                out.put_u32(*membership);
                out.put_bool(*holds_beginning);
                out.put_u32(*values);
            }
        }
    }

    /// Decodes a whole message.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not exactly one message.
    pub fn decode(bytes: &'a [u8]) -> Result<Message<'a>, Malformed> {
        let mut reader = Reader::new(bytes);
        let message = match reader.u8()? {
            KEEP => Message::Keep(Piece::take(&mut reader)?),
            KEPT => {
                let id = ValueId::take(&mut reader)?;
                Message::Kept { id, membership: reader.u32()?, members: reader.u16()? }
            }
            REFUSED => {
                let id = ValueId::take(&mut reader)?;
                let refusals = [Refusal::NoMember, Refusal::Abandoned, Refusal::Unfit, Refusal::NoRoom];
                let why = refusals.get(usize::from(reader.u8()?)).copied();
                Message::Refused { id, why: why.ok_or(Malformed("unknown refusal"))? }
            }
            FORGET => Message::Forget { id: ValueId::take(&mut reader)? },
            FETCH => {
                let id = ValueId::take(&mut reader)?;
                Message::Fetch { id, stripe: reader.u32()?, count: reader.u32()? }
            }
            FETCHED => Message::Fetched(Piece::take(&mut reader)?),
            TAKEN => Message::Taken { id: ValueId::take(&mut reader)?, stripe: reader.u32()? },
            MISSING => Message::Missing { id: ValueId::take(&mut reader)? },
            PROBE => Message::Probe { at_us: reader.u64()? },
            ECHO => Message::Echo { at_us: reader.u64()? },
            LACKS => Message::Lacks {
                membership: reader.u32()?,
                holds_beginning: reader.bool()?,
                values: reader.u32()?,
            },
            _ => return Err(Malformed("unknown kind of message about fragments")),
        };
        match reader.is_empty() {
            true => Ok(message),
            false => Err(Malformed("bytes behind a message")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::Coordinator;

    const ID: ValueId = ValueId { coordinator: Coordinator { node: 2, life: 9 }, counter: 4 };
    const REFERENCE: Reference = Reference { id: ID, parts: 2, length: 9, digest: 5 };

    #[test]
    fn messages_read_back_as_they_were_written_and_their_parts_do_not() {
        let piece = Piece::new(REFERENCE, 1, 0, b"bytes");
        let messages = [
            Message::Keep(piece),
            Message::Kept { id: ID, membership: 3, members: 5 },
            Message::Refused { id: ID, why: Refusal::Unfit },
            Message::Forget { id: ID },
            Message::Fetch { id: ID, stripe: 1, count: 16 },
            Message::Fetched(piece),
            Message::Missing { id: ID },
            Message::Taken { id: ID, stripe: 7 },
            Message::Lacks { membership: 3, holds_beginning: true, values: 7 },
            Message::Probe { at_us: 11 },
            Message::Echo { at_us: 11 },
        ];
        for message in messages {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            assert_eq!(Message::decode(&bytes), Ok(message));
            (0..bytes.len()).for_each(|end| assert!(Message::decode(&bytes[..end]).is_err()));
            bytes.push(0);
            assert!(Message::decode(&bytes).is_err());
        }
    }

    #[test]
    fn a_piece_is_intact_in_its_own_place_only() {
        let piece = Piece::new(REFERENCE, 1, 0, b"bytes");
        assert!(piece.is_intact());
        let other = ValueId { counter: 5, ..ID };
        assert!(!Piece { reference: Reference { id: other, ..REFERENCE }, ..piece }.is_intact());
        assert!(!Piece { number: 2, ..piece }.is_intact());
        assert!(!Piece { stripe: 1, ..piece }.is_intact());
        assert!(!Piece { bytes: b"Bytes", ..piece }.is_intact());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            tag in 0..13u8,
            mut bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..120),
        ) {
            if let Some(first) = bytes.first_mut() {
                *first = tag;
            }
            if let Ok(message) = Message::decode(&bytes) {
                let mut again = Vec::new();
                message.encode(&mut again);
                proptest::prop_assert_eq!(again, bytes);
            }
        }
    }
}
