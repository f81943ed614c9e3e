//! The kinds of values.

use crate::command::Kinds;

/// The kind of a value, and how Redis would store it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// As the client wrote it: an integer if it parses as one.
    Plain = 0,
    /// A string, even if it parses as an integer: a sum of `INCRBYFLOAT`.
    Text = 1,
    /// A string that was changed in place.
    Raw = 2,
    /// Kept as fragments or on the disk: the entry holds a [`Reference`](crate::Reference) instead of the value.
    Coded = 3,
    /// A list: see [`super::lists`].
    List = 5,
    /// A set: see [`super::sets`].
    Set = 15,
    /// A sorted set: see [`super::sorted`].
    Sorted = 10,
    /// A stream: see [`super::streams`].
    Stream = 8,
    /// A hash: see [`super::hashes`]. Earlier forms used the tags 4, 9, 11 and 12 for hashes, 6 and 13 for sets, and 7 for
    /// sorted sets.
    Hash = 14,
}

impl Kind {
    pub(super) fn from_tag(tag: u8) -> Option<Kind> {
        use Kind::*;
        Some(match tag {
            0 => Plain,
            1 => Text,
            2 => Raw,
            3 => Coded,
            5 => List,
            8 => Stream,
            10 => Sorted,
            14 => Hash,
            15 => Set,
            _ => return None,
        })
    }

    /// The kind as clients know it, as a set.
    pub(super) fn as_set(self) -> Kinds {
        match self {
            Kind::Plain | Kind::Text | Kind::Raw | Kind::Coded => Kinds::STRING,
            Kind::List => Kinds::LIST,
            Kind::Set => Kinds::SET,
            Kind::Sorted => Kinds::SORTED,
            Kind::Stream => Kinds::STREAM,
            Kind::Hash => Kinds::HASH,
        }
    }

    /// Whether the value is neither a string nor a reference to one.
    pub(super) fn is_collection(self) -> bool {
        self as u8 >= Kind::List as u8
    }
}
