//! A command with a bound on the memory that it may add.
//!
//! What some commands add is known only when they are carried out: scripts, transactions, copies of what an earlier command
//! has just stored. Many of them are ordered before the first is carried out, so the node that orders gives each a part of
//! the room that is left. The bound is a part of the record, so that every replica ends the command at the same place, also
//! when the record is replayed. See `table/charges.rs`.

use super::Command;
use super::encoding::may_be_bounded;
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
        Command::decode(&mut Reader::new(self.command))
            .expect("a bounded command is checked before it is one")
    }

    pub(super) fn bytes(&self) -> usize {
        self.command.len()
    }

    // Dynamic, because commands visit the keys of bounded ones, too.
    pub(super) fn for_each_key(&self, visit: &mut dyn FnMut(&'a [u8])) {
        self.command().for_each_key(visit);
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.bytes_max);
        out.put_bytes(self.command);
    }

    pub(super) fn decode(reader: &mut Reader<'a>) -> Result<Bounded<'a>, Malformed> {
        let (bytes_max, command) = (reader.u64()?, reader.bytes()?);
        // Check the tag first, so that untrusted bytes cannot nest commands without end.
        if !may_be_bounded(command) {
            return Err(Malformed("a command that cannot have a bound"));
        }
        let mut rest = Reader::new(command);
        let decoded = Command::decode(&mut rest)?;
        match rest.is_empty() && decoded.is_write() {
            true => Ok(Bounded { bytes_max, command }),
            false => Err(Malformed("a command that cannot have a bound")),
        }
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
