//! What is said about fragments. Every message stands for itself: it may be lost, come late or twice.

use kv::codec::{Malformed, Reader, Writer};
use kv::coded::REFERENCE_BYTES;
use kv::{Reference, ValueId};

/// One piece of a fragment, as it is sent and recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Of which value.
    pub reference: Reference,
    /// Of which of its fragments.
    pub number: u8,
    /// Of which stripe.
    pub stripe: u32,
    /// Of the bytes in this place.
    pub checksum: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// What a checksum depends on beside the bytes: of which value, fragment and stripe a piece is.
fn place(id: ValueId, number: u8, stripe: u32) -> u64 {
    let mut name = Vec::with_capacity(32);
    id.put(&mut name);
    name.put_u8(number);
    name.put_u32(stripe);
    coding::checksum(&name, 0)
}

impl<'a> Piece<'a> {
    /// A piece with its checksum.
    pub fn new(reference: Reference, number: u8, stripe: u32, bytes: &'a [u8]) -> Piece<'a> {
        let checksum = coding::checksum(bytes, place(reference.id, number, stripe));
        Piece { reference, number, stripe, checksum, bytes }
    }

    /// Whether the bytes are those that were put in this place of this value.
    pub fn is_intact(&self) -> bool {
        self.checksum == coding::checksum(self.bytes, place(self.reference.id, self.number, self.stripe))
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.reserve(REFERENCE_BYTES + 17 + self.bytes.len());
        out.extend_from_slice(&self.reference.encoded());
        out.put_u8(self.number);
        out.put_u32(self.stripe);
        out.put_u64(self.checksum);
        out.put_bytes(self.bytes);
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
    /// It is no member of its group.
    NoMember,
    /// The value was given up.
    Abandoned,
    /// It is not what it says, or not what is kept under that name already.
    Unfit,
    /// Its disk is full.
    NoRoom,
}

/// A message about fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Keep this piece of your fragment (a coordinator to a member).
    Keep(Piece<'a>),
    /// All of that fragment is here, durably (a member to the coordinator).
    Kept {
        /// Of which value.
        id: ValueId,
        /// In which membership the sender is a member.
        membership: u32,
        /// How many members there are in that.
        members: u16,
    },
    /// It is not kept.
    Refused {
        /// Of which value.
        id: ValueId,
        /// Why.
        why: Refusal,
    },
    /// The value will never be stored: its coordinator never asked for that, or was refused (a coordinator to a member).
    Forget {
        /// Which value.
        id: ValueId,
    },
    /// Tell me some pieces of your fragment (whoever wants the value to a member).
    Fetch {
        /// Of which value.
        id: ValueId,
        /// From which stripe on.
        stripe: u32,
        /// Of how many stripes.
        count: u32,
    },
    /// One of them.
    Fetched(Piece<'a>),
    /// How many values I have no fragment of, when so many entries are applied (a member to all others, now and then). Until
    /// that are none it counts as one that has failed.
    Lacks {
        /// The sender's membership.
        membership: u32,
        /// It holds all that was decided before that began.
        holds_beginning: bool,
        /// How many values.
        values: u32,
    },
    /// One piece of that fragment, and not the last one, is here, durably: more may come (a member to the coordinator).
    Taken {
        /// Of which value.
        id: ValueId,
        /// Of which stripe.
        stripe: u32,
    },
    /// That fragment is not here.
    Missing {
        /// Of which value.
        id: ValueId,
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
            Message::Lacks { membership, holds_beginning, values } => {
                out.put_u8(LACKS);
                out.put_u32(*membership);
                out.put_bool(*holds_beginning);
                out.put_u32(*values);
            }
        }
    }

    /// Reads a whole message.
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
            tag in 0..11u8,
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
