//! The messages between replicas.
//!
//! Everything that one turn has for a peer is sent as one message: queries and updates of operations that this replica
//! coordinates, and answers to those of the peer. Each item names its operation by a number that the coordinator chose,
//! and the answer repeats the number. Messages do not depend on each other otherwise, so any of them may be lost,
//! duplicated, late or reordered.

use crate::leaderless;
use crate::registers::Tag;
use crate::registers::message::{take_key, take_register};
use kv::codec::{Malformed, Reader, Writer};
use kv::{Register, UnixMs};

/// A message.
pub type Message<'a> = leaderless::Message<'a, Items<'a>>;

/// A coordinator's operation on one key, as the coordinator numbers it.
pub type OperationId = u64;

/// One item of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// Which tag does the key have at your replica?
    Query {
        /// The operation.
        operation: OperationId,
        /// Whether to send the value too, if the receiver's tag is newer.
        wants_value: bool,
        /// The sender's tag.
        tag: Tag,
        /// The key.
        key: &'a [u8],
    },
    /// Hold this, unless you hold something newer.
    Update {
        /// The operation.
        operation: OperationId,
        /// The generation of the operation.
        generation: u64,
        /// The key.
        key: &'a [u8],
        /// What the key should hold.
        register: Register<'a>,
    },
    /// Answer to a query: I hold exactly that tag.
    Same {
        /// The operation.
        operation: OperationId,
    },
    /// Answer to a query: I hold an older tag.
    Older {
        /// The operation.
        operation: OperationId,
        /// The sender's tag.
        tag: Tag,
    },
    /// Answer to a query that wants no value: I hold a newer tag.
    Newer {
        /// The operation.
        operation: OperationId,
        /// The sender's tag.
        tag: Tag,
        /// The key's deadline at the sender.
        deadline: UnixMs,
    },
    /// Answer to a query that wants no value: I have seen this tag, but might lose it in a crash.
    Seen {
        /// The operation.
        operation: OperationId,
        /// The tag.
        tag: Tag,
        /// The key's deadline at the sender.
        deadline: UnixMs,
    },
    /// Answer to a query that wants the value: I hold a newer tag.
    Value {
        /// The operation.
        operation: OperationId,
        /// The sender's register.
        register: Register<'a>,
    },
    /// Answer to an update: I hold it, or something newer.
    Held {
        /// The operation.
        operation: OperationId,
    },
}

const QUERY_TAG: u8 = 1;
const QUERY_VALUE: u8 = 2;
const UPDATE: u8 = 3;
const SAME: u8 = 4;
const OLDER: u8 = 5;
const NEWER: u8 = 6;
const VALUE: u8 = 7;
const HELD: u8 = 8;
const SEEN: u8 = 9;

/// Items that were checked, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Items<'a>(&'a [u8]);

impl<'a> leaderless::Items<'a> for Items<'a> {
    fn take(reader: &mut Reader<'a>) -> Result<Items<'a>, Malformed> {
        let items = Items(reader.rest());
        while !reader.is_empty() {
            Item::decode(reader)?;
        }
        Ok(items)
    }
}

impl<'a> Items<'a> {
    /// The items in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Item<'a>> + use<'a> {
        let mut reader = Reader::new(self.0);
        std::iter::from_fn(move || Item::decode(&mut reader).ok())
    }
}

impl<'a> Item<'a> {
    /// Appends the item's encoding.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        let head = |out: &mut Vec<u8>, kind: u8, operation: OperationId| {
            out.put_u8(kind);
            out.put_u64(operation);
        };
        match *self {
            Item::Query { operation, wants_value, tag, key } => {
                head(out, if wants_value { QUERY_VALUE } else { QUERY_TAG }, operation);
                out.put_u64(tag.version());
                out.put_bytes(key);
            }
            Item::Update { operation, generation, key, register } => {
                out.reserve(48 + key.len() + register.value.len());
                head(out, UPDATE, operation);
                out.put_u64(generation);
                out.put_u64(register.version);
                out.put_bytes(key);
                put_content(out, register);
            }
            Item::Same { operation } => head(out, SAME, operation),
            Item::Older { operation, tag } => {
                head(out, OLDER, operation);
                out.put_u64(tag.version());
            }
            Item::Newer { operation, tag, deadline } | Item::Seen { operation, tag, deadline } => {
                head(out, if matches!(self, Item::Seen { .. }) { SEEN } else { NEWER }, operation);
                out.put_u64(tag.version());
                out.put_u64(deadline);
            }
            Item::Value { operation, register } => {
                out.reserve(32 + register.value.len());
                head(out, VALUE, operation);
                out.put_u64(register.version);
                put_content(out, register);
            }
            Item::Held { operation } => head(out, HELD, operation),
        }
    }

    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Item<'a>, Malformed> {
        let kind = reader.u8()?;
        let operation = reader.u64()?;
        Ok(match kind {
            QUERY_TAG | QUERY_VALUE => {
                let wants_value = kind == QUERY_VALUE;
                Item::Query { operation, wants_value, tag: Tag::decode(reader)?, key: take_key(reader)? }
            }
            UPDATE => {
                let generation = reader.u64()?;
                let tag = Tag::decode(reader)?;
                let key = take_key(reader)?;
                Item::Update { operation, generation, key, register: take_register(tag.version(), reader)? }
            }
            SAME => Item::Same { operation },
            OLDER => Item::Older { operation, tag: Tag::decode(reader)? },
            NEWER => Item::Newer { operation, tag: Tag::decode(reader)?, deadline: reader.u64()? },
            VALUE => {
                let tag = Tag::decode(reader)?;
                Item::Value { operation, register: take_register(tag.version(), reader)? }
            }
            HELD => Item::Held { operation },
            SEEN => Item::Seen { operation, tag: Tag::decode(reader)?, deadline: reader.u64()? },
            _ => return Err(Malformed("unknown kind of item")),
        })
    }
}

#[inline]
fn put_content(out: &mut Vec<u8>, register: Register<'_>) {
    out.put_u64(register.deadline);
    out.put_bytes(register.value);
}
