//! The messages between replicas of this protocol.
//!
//! One message carries everything that a turn has for a peer: requests of this node's coordinator to the peer's replica,
//! and answers of this node's replica to the peer's coordinator. No message depends on an earlier one: any of them may be
//! lost, duplicated, late or reordered.

use super::item::{Answer, Ask, Item};
use crate::registers::{Lives, LivesView, message as upkeep};
use kv::codec::{Malformed, Reader, Writer};
use std::marker::PhantomData;

/// A sequence of checked items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Items<'a, T> {
    bytes: &'a [u8],
    items: PhantomData<T>,
}

impl<'a, T: Item<'a>> Items<'a, T> {
    fn take(reader: &mut Reader<'a>) -> Result<Items<'a, T>, Malformed> {
        let bytes = reader.bytes()?;
        let mut items = Reader::new(bytes);
        while !items.is_empty() {
            T::decode(&mut items)?;
        }
        Ok(Items { bytes, items: PhantomData })
    }

    /// Returns the items in the order in which they were written.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'a, T> {
        let mut reader = Reader::new(self.bytes);
        std::iter::from_fn(move || T::decode(&mut reader).ok())
    }
}

/// A message, whose values are still in the bytes that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Everything that one turn has for a peer.
    Turn {
        /// The newest incarnation that the sender knows of each member.
        lives: LivesView<'a>,
        /// The requests of the sender's coordinator.
        asks: Items<'a, Ask<'a>>,
        /// The answers of the sender's replica.
        answers: Items<'a, Answer<'a>>,
    },
    /// A message that all register protocols have: about incarnations, refills, repair and tombstones.
    Upkeep(upkeep::Message<'a>),
}

const TURN: u8 = 1;

impl<'a> Message<'a> {
    /// Appends the encoding of a [`Message::Turn`] whose items are encoded already.
    pub(super) fn encode_turn(lives: &Lives, asks: &[u8], answers: &[u8], out: &mut Vec<u8>) {
        out.put_u8(TURN);
        lives.encode(out);
        out.put_bytes(asks);
        out.put_bytes(answers);
    }

    /// Decodes a message and checks every item of it, so that a replica never gets an item that cannot be decoded.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not exactly one message.
    pub fn decode(bytes: &'a [u8]) -> Result<Message<'a>, Malformed> {
        if bytes.first().is_some_and(|kind| *kind >= upkeep::FIRST_KIND) {
            return Ok(Message::Upkeep(upkeep::Message::decode(bytes)?));
        }
        let mut reader = Reader::new(bytes);
        let message = match reader.u8()? {
            TURN => Message::Turn {
                lives: LivesView::decode(&mut reader)?,
                asks: Items::take(&mut reader)?,
                answers: Items::take(&mut reader)?,
            },
            _ => return Err(Malformed("unknown kind of message")),
        };
        if !reader.is_empty() {
            return Err(Malformed("bytes behind a message"));
        }
        Ok(message)
    }
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
        Message::encode_turn(&Lives::default(), &asked, &answered, &mut bytes);
        let Ok(Message::Turn { asks: read_asks, answers: read_answers, .. }) = Message::decode(&bytes) else {
            panic!("what was written cannot be read");
        };
        assert!(read_asks.iter().eq(asks));
        assert!(read_answers.iter().eq(answers));
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
                if let Ok(Message::Turn { asks, answers, .. }) = Message::decode(&damaged) {
                    assert!(asks.iter().count() + answers.iter().count() <= bytes.len());
                }
            }
        }
    }
}
