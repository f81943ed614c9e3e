//! Commands are declared once, each with all facts that do not depend on data: [`commands`] makes the type, the encoding and
//! the questions about a command from them. What depends on data, such as how long a command takes, is a function of the
//! declared commands elsewhere (`growth`, `work`); the compiler asks there for a new one.

use super::List;
use crate::codec::{Malformed, Reader, Writer};

/// What a command does to the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing.
    Reads,
    /// It may enlarge them: a node without free memory refuses it.
    Grows,
    /// It only removes some of them.
    Frees,
    /// Something else: it changes them, and adds no more than a deadline or a name.
    Changes,
}

/// How much memory a command may add beyond its own bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Adds {
    /// At most 1 KiB, whatever the table holds.
    Little,
    /// What the table tells before the command is ordered.
    More,
    /// What depends on the table when it is carried out. Such a command is ordered with a bound: see [`super::Bounded`].
    Unforeseen,
}

/// What a command needs that registers do not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// One order of all writes.
    Order,
    /// One order of all writes to compare with.
    Compares,
    /// Read-modify-write.
    Modifies,
    /// Several keys changed at one moment.
    SeveralKeys,
    /// All keys removed at one moment.
    AllKeys,
    /// Several reads at one moment.
    SeveralReads,
    /// A value of any type.
    AnyType,
    /// The bytes of a value.
    Bytes,
    /// Versions of its own choice.
    OwnVersions,
    /// A list.
    List,
    /// A set.
    Set,
    /// A sorted set.
    SortedSet,
    /// A hash.
    Hash,
    /// A stream.
    Stream,
}

/// What contains an encoded command. Each kind can contain what the kinds before it can, and those themselves. So untrusted
/// bytes cannot nest without end: the first tag decides, before anything is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wrapper {
    /// A transaction. It contains what a client can put into one.
    Transaction,
    /// A group's share of a transaction over several.
    Share,
    /// [`super::Supplied`], which contains whatever a client sends.
    Supplied,
    /// The parts of a long command.
    Parts,
    /// [`super::Bounded`].
    Bounded,
    /// Nothing contains it.
    Nothing,
}

impl Wrapper {
    /// Whether it can contain an encoded command.
    #[inline]
    pub(crate) fn can_contain(self, encoded: &[u8]) -> bool {
        const FIRST: [Wrapper; 256] = {
            let (mut first, mut tag) = ([Wrapper::Transaction; 256], 0);
            while tag < 256 {
                first[tag] = super::Command::declared_wrapper(tag as u8);
                tag += 1;
            }
            first
        };
        encoded.first().is_some_and(|tag| FIRST[usize::from(*tag)] <= self)
    }
}

/// A part of a command that names keys.
pub(super) trait Names<'a> {
    fn visit(self, visit: &mut impl FnMut(&'a [u8]));
}

impl<'a> Names<'a> for &'a [u8] {
    fn visit(self, visit: &mut impl FnMut(&'a [u8])) {
        visit(self);
    }
}

impl<'a> Names<'a> for List<'a> {
    fn visit(self, visit: &mut impl FnMut(&'a [u8])) {
        self.iter().for_each(visit);
    }
}

/// The first, and then every so many of a list's items, as in a list of keys with their values.
pub(super) struct Every<'a>(pub(super) List<'a>, pub(super) usize);

impl<'a> Names<'a> for Every<'a> {
    fn visit(self, visit: &mut impl FnMut(&'a [u8])) {
        self.0.iter().step_by(self.1).for_each(visit);
    }
}

/// Commands within [`super::Command`]: a family of them, or one that consists of others.
pub(super) trait Inner<'a>: Copy {
    /// Its tag in the root command's encoding, of those that are declared: reads have the first, writes the last.
    fn tag(&self, declared: &[u8]) -> u8 {
        let declared = if self.is_write() { declared.last() } else { declared.first() };
        *declared.expect("every command has a tag")
    }

    fn put(&self, out: &mut Vec<u8>);

    fn take(tag: u8, reader: &mut Reader<'a>) -> Result<Self, Malformed>;

    fn is_write(&self) -> bool;

    fn visit_keys(&self, visit: &mut impl FnMut(&'a [u8]));

    /// The approximate size in bytes of the parts that may be long.
    fn bytes(&self) -> usize;

    /// The number of items of its lists, and one for itself.
    fn items(&self) -> usize {
        1
    }

    fn name(&self) -> &'static str;

    fn effect(&self) -> Effect;

    fn adds(&self) -> Adds;

    fn first_name(&self) -> &'a [u8] {
        &[]
    }

    fn may_walk(&self) -> bool {
        false
    }

    fn lists_all(&self) -> bool {
        false
    }

    /// Why a register cannot do it.
    fn needs(&self) -> Needs {
        Needs::Order
    }

    fn event(&self) -> Option<&'static str> {
        None
    }
}

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
    #[inline]
    fn put(self, out: &mut Vec<u8>) {
        out.put_bytes(self);
    }

    #[inline]
    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        reader.bytes()
    }

    fn bytes(self) -> usize {
        self.len()
    }
}

impl<'a> Part<'a> for List<'a> {
    #[inline]
    fn put(self, out: &mut Vec<u8>) {
        self.encode(out);
    }

    #[inline]
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
    #[inline]
    fn put(self, out: &mut Vec<u8>) {
        out.put_u64(self);
    }

    #[inline]
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
    #[inline]
    fn put(self, out: &mut Vec<u8>) {
        out.put_i64(self);
    }

    #[inline]
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

/// A number that may be missing, in the same number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Padded(pub Option<u64>);

impl<'a> Part<'a> for Padded {
    fn put(self, out: &mut Vec<u8>) {
        out.put_bool(self.0.is_some());
        out.put_u64(self.0.unwrap_or_default());
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let (is_there, number) = (reader.bool()?, reader.u64()?);
        Ok(Padded(is_there.then_some(number)))
    }
}

impl<'a> Part<'a> for bool {
    #[inline]
    fn put(self, out: &mut Vec<u8>) {
        out.put_bool(self);
    }

    #[inline]
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

/// Declares commands. Each has a tag, which is never reused for another command; writes are from 64 on. Then come its name as
/// clients know it, its [`Effect`], and its fields in the order of their encoding. The facts behind the fields:
///
/// * `keys(…)`: the fields that name keys ([`Names`]), in order. Without it, the first field.
/// * `first(…)`: the first member or field that it looks for in a collection.
/// * `walks(…)`: whether it may take much longer than most commands: then `work` estimates how long.
/// * `lists(…)`: whether it returns or removes what is there, however much that is, or takes many steps if it is long. It is
///   not refused as too long.
/// * `adds(…)`: how much memory, if not [`Adds::Little`].
/// * `event(…)`: Redis's event if it changes something; of several, the first one.
/// * `bytes(…)`: of a write, those of the parts that may be long.
/// * `needs(…)`: why a register cannot do it, if not for [`Needs::Order`].
/// * `within(…)`: the first [`Wrapper`] that can contain it, if not [`Wrapper::Transaction`].
///
/// Names and facts are expressions of the fields. `inner` are the commands that are declared elsewhere ([`Inner`]).
macro_rules! commands {
    (
        $(#[$doc:meta])*
        $name:ident {
            $(
                $(#[$about:meta])*
                $variant:ident = $tag:tt $called:tt $effect:tt { $($field:ident: $type:ty),* $(,)? }
                $(keys($($keys:expr),*))?
                $(first($first:expr))?
                $(walks($walks:expr))?
                $(lists($lists:expr))?
                $(adds($adds:ident))?
                $(event($event:expr))?
                $(bytes($bytes:expr))?
                $(needs($needs:ident))?
                $(within($within:ident))?
                ;
            )*
        }
        $(inner {
            $(
                $(#[$inner_about:meta])*
                $inner:ident($inner_type:ty) = $($inner_tag:tt)|+
                $(within($inner_within:ident))?
                ;
            )*
        })?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[allow(missing_docs)] // The fields are named after the terms in the variants' docs.
        pub enum $name<'a> {
            $($(#[$about])* $variant { $($field: $type),* },)*
            $($($(#[$inner_about])* $inner($inner_type),)*)?
        }

        #[allow(unused_variables, unused_parens)] // Most facts need few of the fields.
        impl<'a> $name<'a> {
            /// Whether it may change the table, and so must be ordered.
            pub(in crate::command) fn declared_is_write(&self) -> bool {
                match self {
                    $(Self::$variant { .. } => $tag >= 64,)*
                    $($(Self::$inner(command) => $crate::command::declaration::Inner::is_write(command),)*)?
                }
            }

            pub(in crate::command) fn declared_name(&self) -> &'static str {
                match *self {
                    $(Self::$variant { $($field),* } => $called,)*
                    $($(Self::$inner(command) => $crate::command::declaration::Inner::name(&command),)*)?
                }
            }

            pub(in crate::command) fn declared_effect(&self) -> $crate::command::declaration::Effect {
                match *self {
                    $(Self::$variant { $($field),* } => $crate::command::declaration::effect!($effect),)*
                    $($(Self::$inner(command) => $crate::command::declaration::Inner::effect(&command),)*)?
                }
            }

            pub(in crate::command) fn declared_adds(&self) -> $crate::command::declaration::Adds {
                match self {
                    $(Self::$variant { .. } => $crate::command::declaration::adds!($($adds)?),)*
                    $($(Self::$inner(command) => $crate::command::declaration::Inner::adds(command),)*)?
                }
            }

            #[inline]
            pub(in crate::command) fn visit_declared_keys(&self, visit: &mut impl FnMut(&'a [u8])) {
                match *self {
                    $(Self::$variant { $($field),* } => {
                        $crate::command::declaration::visit!(visit; [$($field)*] $(keys($($keys),*))?)
                    })*
                    $($(Self::$inner(command) => {
                        $crate::command::declaration::Inner::visit_keys(&command, visit)
                    })*)?
                }
            }

            pub(in crate::command) fn declared_first_name(&self) -> &'a [u8] {
                match *self {
                    $(Self::$variant { $($field),* } => $crate::command::declaration::or!(&[]; $($first)?),)*
                    $($(Self::$inner(command) => $crate::command::declaration::Inner::first_name(&command),)*)?
                }
            }

            pub(in crate::command) fn declared_walks(&self) -> bool {
                match *self {
                    $(Self::$variant { $($field),* } => $crate::command::declaration::or!(false; $($walks)?),)*
                    $($(Self::$inner(command) => $crate::command::declaration::Inner::may_walk(&command),)*)?
                }
            }

            pub(in crate::command) fn declared_lists(&self) -> bool {
                match *self {
                    $(Self::$variant { $($field),* } => $crate::command::declaration::or!(false; $($lists)?),)*
                    $($(Self::$inner(command) => $crate::command::declaration::Inner::lists_all(&command),)*)?
                }
            }

            pub(in crate::command) fn declared_event(&self) -> Option<&'static str> {
                match *self {
                    $(Self::$variant { $($field),* } => $crate::command::declaration::or!(None; $(Some($event))?),)*
                    $($(Self::$inner(command) => $crate::command::declaration::Inner::event(&command),)*)?
                }
            }

            /// Of a write, the bytes of the parts that may be long.
            #[allow(dead_code)] // A family counts all of its parts.
            pub(in crate::command) fn declared_bytes(&self) -> usize {
                match *self {
                    $(Self::$variant { $($field),* } => $crate::command::declaration::or!(0; $($bytes)?),)*
                    $($(Self::$inner(command) => {
                        use $crate::command::declaration::Inner;
                        if command.is_write() { Inner::bytes(&command) } else { 0 }
                    })*)?
                }
            }

            /// Why a register cannot do it.
            #[allow(dead_code)] // A family needs the same for all of its commands.
            pub(in crate::command) fn declared_needs(&self) -> $crate::command::declaration::Needs {
                match *self {
                    $(Self::$variant { .. } => $crate::command::declaration::needs!($($needs)?),)*
                    $($(Self::$inner(command) => $crate::command::declaration::Inner::needs(&command),)*)?
                }
            }

            /// The first wrapper that can contain a command with this tag.
            #[allow(dead_code)] // Only the root's commands are wrapped.
            pub(in crate::command) const fn declared_wrapper(tag: u8) -> $crate::command::declaration::Wrapper {
                match tag {
                    $($tag => $crate::command::declaration::within!($($within)?),)*
                    $($($($inner_tag)|+ => $crate::command::declaration::within!($($inner_within)?),)*)?
                    _ => $crate::command::declaration::Wrapper::Transaction,
                }
            }

            /// Appends the tag and the fields.
            pub(in crate::command) fn put_declared(&self, out: &mut Vec<u8>) {
                use $crate::codec::Writer;
                match *self {
                    $(Self::$variant { $($field),* } => {
                        out.put_u8($tag);
                        $($crate::command::declaration::Part::put($field, out);)*
                    })*
                    $($(Self::$inner(command) => {
                        out.put_u8($crate::command::declaration::Inner::tag(&command, &[$($inner_tag),+]));
                        $crate::command::declaration::Inner::put(&command, out);
                    })*)?
                }
            }

            /// Reads the fields that follow a tag.
            pub(in crate::command) fn take_declared(
                tag: u8,
                reader: &mut $crate::codec::Reader<'a>,
            ) -> Result<Self, $crate::codec::Malformed> {
                Ok(match tag {
                    $($tag => Self::$variant { $($field: $crate::command::declaration::Part::take(reader)?),* },)*
                    $($($($inner_tag => {
                        Self::$inner($crate::command::declaration::Inner::take($inner_tag, reader)?)
                    })+)*)?
                    _ => return Err($crate::codec::Malformed("unknown tag of a command")),
                })
            }
        }

        $($crate::command::declaration::check_tag!($tag $effect);)*
    };
}

/// Declares a family of commands, with the syntax of [`commands`]. A register can do none of them, for one reason.
macro_rules! family {
    (
        $(#[$doc:meta])*
        $name:ident needs($family_needs:expr) {
            $(
                $(#[$about:meta])*
                $variant:ident = $tag:tt $called:tt $effect:tt { $($field:ident: $type:ty),* $(,)? }
                $($facet:ident($($fact:tt)*))*
                ;
            )*
        }
    ) => {
        $crate::command::declaration::commands! {
            $(#[$doc])*
            $name {
                $($(#[$about])* $variant = $tag $called $effect { $($field: $type),* } $($facet($($fact)*))*;)*
            }
        }

        impl<'a> $name<'a> {
            /// Whether it may change the table.
            pub fn is_write(&self) -> bool {
                self.declared_is_write()
            }

            /// Its name as clients know it.
            pub fn name(&self) -> &'static str {
                self.declared_name()
            }

            /// Calls `visit` with each key that it names, in order.
            pub fn for_each_key(&self, mut visit: impl FnMut(&'a [u8])) {
                self.visit_declared_keys(&mut visit);
            }
        }

        impl<'a> $crate::command::declaration::Inner<'a> for $name<'a> {
            fn put(&self, out: &mut Vec<u8>) {
                self.put_declared(out);
            }

            fn take(
                tag: u8,
                reader: &mut $crate::codec::Reader<'a>,
            ) -> Result<Self, $crate::codec::Malformed> {
                let command = Self::take_declared(reader.u8()?, reader)?;
                match command.declared_is_write() == (tag >= 64) {
                    true => Ok(command),
                    false => Err($crate::codec::Malformed("a command of a family is not what it says")),
                }
            }

            fn is_write(&self) -> bool {
                self.declared_is_write()
            }

            fn visit_keys(&self, visit: &mut impl FnMut(&'a [u8])) {
                self.visit_declared_keys(visit);
            }

            fn bytes(&self) -> usize {
                match *self {
                    $(Self::$variant { $($field),* } => 0 $(+ $crate::command::declaration::Part::bytes($field))*,)*
                }
            }

            fn items(&self) -> usize {
                match *self {
                    $(Self::$variant { $($field),* } => 1 $(+ $crate::command::declaration::Part::items($field))*,)*
                }
            }

            fn name(&self) -> &'static str {
                self.declared_name()
            }

            fn effect(&self) -> $crate::command::declaration::Effect {
                self.declared_effect()
            }

            fn adds(&self) -> $crate::command::declaration::Adds {
                self.declared_adds()
            }

            fn first_name(&self) -> &'a [u8] {
                self.declared_first_name()
            }

            // The arguments of a command on a collection are items of its own.
            fn may_walk(&self) -> bool {
                self.declared_walks() || $crate::command::declaration::Inner::items(self) > 1 + $crate::command::work::FEW
            }

            fn lists_all(&self) -> bool {
                self.declared_lists()
            }

            fn needs(&self) -> $crate::command::declaration::Needs {
                $family_needs
            }

            fn event(&self) -> Option<&'static str> {
                self.declared_event()
            }
        }
    };
}

/// A fact, or what holds if it is not declared.
macro_rules! or {
    ($missing:expr;) => {
        $missing
    };
    ($missing:expr; $fact:expr) => {
        $fact
    };
}

macro_rules! effect {
    (($effect:expr)) => {
        $effect
    };
    ($effect:ident) => {
        $crate::command::declaration::Effect::$effect
    };
}

/// A read has a tag below 64, and no other command has.
macro_rules! check_tag {
    ($tag:tt ($effect:expr)) => {};
    ($tag:tt Reads) => {
        const _: () = assert!($tag < 64);
    };
    ($tag:tt $effect:ident) => {
        const _: () = assert!($tag >= 64);
    };
}

macro_rules! adds {
    () => {
        $crate::command::declaration::Adds::Little
    };
    ($adds:ident) => {
        $crate::command::declaration::Adds::$adds
    };
}

macro_rules! needs {
    () => {
        $crate::command::declaration::Needs::Order
    };
    ($needs:ident) => {
        $crate::command::declaration::Needs::$needs
    };
}

macro_rules! within {
    () => {
        $crate::command::declaration::Wrapper::Transaction
    };
    ($wrapper:ident) => {
        $crate::command::declaration::Wrapper::$wrapper
    };
}

macro_rules! visit {
    ($visit:ident; [$first:ident $($field:ident)*]) => {
        $crate::command::declaration::Names::visit($first, $visit)
    };
    ($visit:ident; [$($field:ident)*] keys($($keys:expr),*)) => {
        { $($crate::command::declaration::Names::visit($keys, $visit);)* }
    };
}

pub(super) use {adds, check_tag, commands, effect, family, needs, or, visit, within};
