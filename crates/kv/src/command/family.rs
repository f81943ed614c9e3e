//! Families of commands, such as those on lists, declared once: their variants, and from these their encoding.

use super::List;
use crate::codec::{Malformed, Reader, Writer};

/// A part of a command that can be encoded.
pub(super) trait Part<'a>: Copy {
    fn put(self, out: &mut Vec<u8>);

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed>;

    /// Bytes of the parts that may be long.
    fn bytes(self) -> usize {
        0
    }

    /// The number of items, if it is a list.
    fn items(self) -> usize {
        0
    }
}

impl<'a> Part<'a> for &'a [u8] {
    fn put(self, out: &mut Vec<u8>) {
        out.put_bytes(self);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        reader.bytes()
    }

    fn bytes(self) -> usize {
        self.len()
    }
}

impl<'a> Part<'a> for List<'a> {
    fn put(self, out: &mut Vec<u8>) {
        self.encode(out);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        List::decode(reader)
    }

    fn bytes(self) -> usize {
        List::bytes(&self)
    }

    fn items(self) -> usize {
        self.len()
    }
}

impl<'a> Part<'a> for u64 {
    fn put(self, out: &mut Vec<u8>) {
        out.put_u64(self);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        reader.u64()
    }
}

impl<'a> Part<'a> for u16 {
    fn put(self, out: &mut Vec<u8>) {
        out.put_u16(self);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        reader.u16()
    }
}

impl<'a> Part<'a> for u32 {
    fn put(self, out: &mut Vec<u8>) {
        out.put_u32(self);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        reader.u32()
    }
}

impl<'a> Part<'a> for i64 {
    fn put(self, out: &mut Vec<u8>) {
        out.put_i64(self);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        reader.i64()
    }
}

impl<'a> Part<'a> for f64 {
    fn put(self, out: &mut Vec<u8>) {
        out.put_f64(self);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        reader.f64()
    }
}

impl<'a> Part<'a> for bool {
    fn put(self, out: &mut Vec<u8>) {
        out.put_bool(self);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        reader.bool()
    }
}

impl<'a, P: Part<'a>> Part<'a> for Option<P> {
    fn put(self, out: &mut Vec<u8>) {
        out.put_bool(self.is_some());
        if let Some(part) = self {
            part.put(out);
        }
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(if reader.bool()? { Some(P::take(reader)?) } else { None })
    }

    fn bytes(self) -> usize {
        self.map_or(0, Part::bytes)
    }
}

/// Declares the commands of a family. Each has a tag, which is never reused for another command; writes are from 64 on.
macro_rules! family {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $variant:ident = $tag:literal { $($field:ident: $type:ty),+ $(,)? })+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[allow(missing_docs)] // The fields are named after the terms in the variants' docs.
        pub enum $name<'a> {
            $($(#[$about])* $variant { $($field: $type),+ },)+
        }

        impl<'a> $name<'a> {
            fn tag(&self) -> u8 {
                match self {
                    $(Self::$variant { .. } => $tag,)+
                }
            }

            /// Whether it may change the table.
            pub fn is_write(&self) -> bool {
                self.tag() >= 64
            }

            /// The approximate size in bytes of the parts that may be long.
            pub(super) fn bytes(&self) -> usize {
                match *self {
                    $(Self::$variant { $($field),+ } => 0 $(+ $crate::command::family::Part::bytes($field))+,)+
                }
            }

            /// The number of items of its lists, and one for itself.
            pub(super) fn items(&self) -> usize {
                match *self {
                    $(Self::$variant { $($field),+ } => 1 $(+ $crate::command::family::Part::items($field))+,)+
                }
            }

            pub(super) fn encode(&self, out: &mut Vec<u8>) {
                use $crate::codec::Writer;
                out.put_u8(self.tag());
                match *self {
                    $(Self::$variant { $($field),+ } => { $($crate::command::family::Part::put($field, out);)+ })+
                }
            }

            pub(super) fn decode(
                reader: &mut $crate::codec::Reader<'a>,
                writes: bool,
            ) -> Result<Self, $crate::codec::Malformed> {
                let command = match reader.u8()? {
                    $($tag => Self::$variant { $($field: $crate::command::family::Part::take(reader)?),+ },)+
                    _ => return Err($crate::codec::Malformed("unknown command of a family")),
                };
                match command.is_write() == writes {
                    true => Ok(command),
                    false => Err($crate::codec::Malformed("a command of a family is not what it says")),
                }
            }
        }
    };
}

pub(super) use family;
