//! What replicas of this protocol say to each other.
//!
//! One message carries all that a turn has for a peer: what its coordinator asks of the peer's replica, and what its
//! replica answers the peer's coordinator. Nothing in it depends on an earlier message: any of them may be lost, come
//! twice, late or in another order.

use super::item::{Answer, Ask, Item};
use crate::registers::{Lives, LivesView, message as upkeep};
use kv::codec::{Malformed, Reader, Writer};
use std::marker::PhantomData;

/// A run of items that were checked.
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

    /// The items in the order in which they were written.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'a, T> {
        let mut reader = Reader::new(self.bytes);
        std::iter::from_fn(move || T::decode(&mut reader).ok())
    }
}

/// A message, its values still in the bytes that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// All that one turn has for a peer.
    Turn {
        /// The newest life that the sender knows of each member.
        lives: LivesView<'a>,
        /// What the sender's coordinator asks.
        asks: Items<'a, Ask<'a>>,
        /// What the sender's replica answers.
        answers: Items<'a, Answer<'a>>,
    },
    /// What replicas of any registers say to each other: about lives, copies, repair and tombstones.
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

    /// Reads a message, every item of it, so that a replica never meets one that cannot be read.
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
