//! A command with a bound on the memory that it may add.
//!
//! What some commands add is known only when they are carried out: scripts, transactions, copies of what an earlier command
//! has just stored. Many of them are ordered before the first is carried out, so the node that orders gives each a part of
//! the room that is left. The bound is a part of the record, so that every replica ends the command at the same place, also
//! when the record is replayed. See `table/charges.rs`.

use super::Command;
use super::declaration::{Adds, Effect, Inner, Wrapper};
use crate::codec::{Malformed, Reader, Writer};

/// A write that may add at most so many bytes of memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Bounded<'a> {
    bytes_max: u64,
    /// The encoded command. Checked: it can be decoded.
    command: &'a [u8],
}

impl std::fmt::Debug for Bounded<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Bounded {{ {} bytes: {:?} }}", self.bytes_max, self.command())
    }
}

impl<'a> Bounded<'a> {
    /// Gives a command a bound. The command is encoded in `scratch`. `None` for a read, and for a command that has a bound.
    pub fn build(bytes_max: u64, command: &Command<'_>, scratch: &'a mut Vec<u8>) -> Option<Bounded<'a>> {
        if !command.is_write() || matches!(command, Command::Bounded(_)) {
            return None;
        }
        scratch.clear();
        command.encode(scratch);
        Some(Bounded { bytes_max, command: scratch })
    }

    /// At most how many bytes the command may add.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// The command.
    pub fn command(&self) -> Command<'a> {
        Command::decode(&mut Reader::of_checked(self.command))
            .expect("a bounded command is checked before it is one")
    }
}

impl<'a> Inner<'a> for Bounded<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.bytes_max);
        out.put_bytes(self.command);
    }

    fn take(_: u8, reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let (bytes_max, command) = (reader.u64()?, reader.bytes()?);
        if reader.is_checked() {
            return Ok(Bounded { bytes_max, command });
        }
        if !Wrapper::Bounded.can_contain(command) {
            return Err(Malformed("a command that cannot have a bound"));
        }
        let mut rest = Reader::new(command);
        let decoded = Command::decode(&mut rest)?;
        match rest.is_empty() && decoded.is_write() {
            true => Ok(Bounded { bytes_max, command }),
            false => Err(Malformed("a command that cannot have a bound")),
        }
    }

    fn is_write(&self) -> bool {
        true
    }

    fn visit_keys(&self, visit: &mut impl FnMut(&'a [u8])) {
        self.command().for_each_key(visit as &mut dyn FnMut(&'a [u8]));
    }

    fn bytes(&self) -> usize {
        self.command.len()
    }

    fn name(&self) -> &'static str {
        self.command().name()
    }

    fn effect(&self) -> Effect {
        self.command().declared_effect()
    }

    /// It has its bound already.
    fn adds(&self) -> Adds {
        Adds::More
    }

    fn may_walk(&self) -> bool {
        self.command().may_walk()
    }

    fn lists_all(&self) -> bool {
        !self.command().may_be_too_long()
    }
}

impl<'a> Command<'a> {
    /// The command without its bound. If it has one, the command itself is decoded into `inner`; otherwise nothing is copied.
    #[inline]
    pub fn unbounded<'s>(&'s self, inner: &'s mut Option<Command<'a>>) -> &'s Command<'a> {
        match self {
            Command::Bounded(bounded) => inner.insert(bounded.command()),
            command => command,
        }
    }
}
