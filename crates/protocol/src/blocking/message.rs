//! The messages between replicas of this protocol.
//!
//! One message carries everything that a turn has for a peer: requests of this node's coordinator to the peer's replica,
//! and answers of this node's replica to the peer's coordinator. No message depends on an earlier one: any of them may be
//! lost, duplicated, late or reordered.

use super::item::{Answer, Ask, Item};
use crate::leaderless;
use crate::registers::Lives;
use kv::codec::{Malformed, Reader, Writer};
use std::marker::PhantomData;

/// A message, whose values are still in the bytes that arrived.
pub type Message<'a> = leaderless::Message<'a, Items<'a>>;

/// What one turn has for a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Items<'a> {
    /// The requests of the sender's coordinator.
    pub asks: Sequence<'a, Ask<'a>>,
    /// The answers of the sender's replica.
    pub answers: Sequence<'a, Answer<'a>>,
}

/// A sequence of checked items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence<'a, T> {
    bytes: &'a [u8],
    items: PhantomData<T>,
}

impl<'a, T: Item<'a>> Sequence<'a, T> {
    fn take(reader: &mut Reader<'a>) -> Result<Sequence<'a, T>, Malformed> {
        let bytes = reader.bytes()?;
        let mut items = Reader::new(bytes);
        while !items.is_empty() {
            T::decode(&mut items)?;
        }
        Ok(Sequence { bytes, items: PhantomData })
    }

    /// Returns the items in the order in which they were written.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'a, T> {
        let mut reader = Reader::new(self.bytes);
        std::iter::from_fn(move || T::decode(&mut reader).ok())
    }
}

impl<'a> leaderless::Items<'a> for Items<'a> {
    fn take(reader: &mut Reader<'a>) -> Result<Items<'a>, Malformed> {
        Ok(Items { asks: Sequence::take(reader)?, answers: Sequence::take(reader)? })
    }
}

/// Appends the encoding of a turn whose items are encoded already.
pub(super) fn encode_turn(floor: u64, lives: &Lives, asks: &[u8], answers: &[u8], out: &mut Vec<u8>) {
    leaderless::begin_turn(floor, lives, out);
    out.put_bytes(asks);
    out.put_bytes(answers);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registers::Tag;
    use kv::Register;

    fn whole_message() -> Vec<u8> {
        let tag = Tag::of_version(7 << 20 | 1 << 4);
        let register = Register { version: tag.version(), deadline: Register::NEVER, value: b"value" };
        let asks = [
            Ask::Lock { attempt: 1, key: b"k", newer_than: None },
            Ask::Lock { attempt: 2, key: b"", newer_than: Some(tag) },
            Ask::Write { attempt: 3, grant: 9, key: b"k", generation: 4, register },
            Ask::Unlock { attempt: 4, key: b"k", tag },
        ];
        let answers = [
            Answer::Granted { attempt: 1, key: b"k", grant: 9, tag, deadline: 5, value: Some(b"value") },
            Answer::Granted { attempt: 2, key: b"k", grant: 10, tag, deadline: 5, value: None },
            Answer::Denied { attempt: 3 },
            Answer::Stored { attempt: 5 },
            Answer::Lost { attempt: 6, grant: 9 },
            Answer::Unlocked { attempt: 7, freed: true, holds: false },
        ];
        let (mut asked, mut answered, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        asks.iter().for_each(|ask| ask.encode(&mut asked));
        answers.iter().for_each(|answer| answer.encode(&mut answered));
        encode_turn(8, &Lives::default(), &asked, &answered, &mut bytes);
        let Ok(Message::Turn { floor: 8, items, .. }) = Message::decode(&bytes) else {
            panic!("what was written cannot be read");
        };
        assert!(items.asks.iter().eq(asks));
        assert!(items.answers.iter().eq(answers));
        bytes
    }

    #[test]
    fn a_message_reads_back_as_it_was_written_and_no_shorter() {
        let bytes = whole_message();
        for end in 0..bytes.len() {
            assert!(Message::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        assert!(Message::decode(&[&bytes[..], &[0]].concat()).is_err());
    }

    #[test]
    fn no_bytes_make_decoding_panic_and_what_is_read_can_be_walked() {
        let bytes = whole_message();
        for place in 0..bytes.len() {
            for byte in 0..=u8::MAX {
                let mut damaged = bytes.clone();
                damaged[place] = byte;
                if let Ok(Message::Turn { items: Items { asks, answers }, .. }) = Message::decode(&damaged) {
                    assert!(asks.iter().count() + answers.iter().count() <= bytes.len());
                }
            }
        }
    }
}
