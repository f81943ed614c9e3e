//! Transactions: several commands that take effect in one step, if the watched keys are unchanged.
//!
//! A transaction is one command: one record of the log, one request to another node, one reply. The versions that the
//! keys are compared with were read from the group beforehand ([`Command::Watch`]); they travel in the record, and
//! every replica compares them when it applies the record. So nothing can come between the comparison and the commands,
//! whichever node leads.

use super::Command;
use super::declaration::{Adds, Effect, Inner, Needs, Wrapper};
use crate::Version;
use crate::codec::{Malformed, Reader, Writer};

/// A key as a client has seen it: see [`Command::Watch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched<'a> {
    /// The watched key.
    pub key: &'a [u8],
    /// Its version at that time, or 0 if it did not exist.
    pub version: Version,
    /// The highest version in use in the whole table at that time.
    pub floor: Version,
}

impl<'a> Watched<'a> {
    fn take(reader: &mut Reader<'a>) -> Result<Watched<'a>, Malformed> {
        Ok(Watched { key: reader.bytes()?, version: reader.u64()?, floor: reader.u64()? })
    }
}

/// Commands that take effect together, or not at all.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Transaction<'a> {
    epoch: u64,
    watched: &'a [u8],
    watched_count: u32,
    command_count: u32,
    commands: &'a [u8],
    writes: bool,
}

impl std::fmt::Debug for Transaction<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let watched: Vec<_> = self.watched().collect();
        let commands: Vec<_> = self.commands().collect();
        write!(formatter, "Transaction {{ epoch: {}, {watched:?}, {commands:?} }}", self.epoch)
    }
}

impl<'a> Transaction<'a> {
    /// The leadership under which the keys were watched; meaningless if no keys are watched. See [`Command::Watch`].
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The keys that must be unchanged.
    pub fn watched(&self) -> impl Iterator<Item = Watched<'a>> + use<'a> {
        let mut reader = Reader::new(self.watched);
        std::iter::from_fn(move || Watched::take(&mut reader).ok())
    }

    /// Whether any keys are watched.
    pub fn is_watching(&self) -> bool {
        self.watched_count > 0
    }

    /// The same commands without a condition.
    #[must_use]
    pub fn unconditional(self) -> Transaction<'a> {
        Transaction { watched: &[], watched_count: 0, ..self }
    }

    /// The commands, in order.
    pub fn commands(&self) -> impl Iterator<Item = Command<'a>> + use<'a> {
        let mut reader = Reader::of_checked(self.commands);
        std::iter::from_fn(move || Command::decode(&mut reader).ok())
    }

    /// The number of commands.
    pub fn len(&self) -> usize {
        self.command_count as usize
    }

    /// Whether there are no commands.
    pub fn is_empty(&self) -> bool {
        self.command_count == 0
    }

    /// Whether one of the commands may change the table.
    pub fn is_write(&self) -> bool {
        self.writes
    }
}

impl<'a> Inner<'a> for Transaction<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.epoch);
        out.put_u32(self.watched_count);
        out.put_bytes(self.watched);
        out.put_u32(self.command_count);
        out.put_bytes(self.commands);
    }

    /// Checks all of its commands, so that no invalid command is found while it is carried out.
    fn take(tag: u8, reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let writes = tag >= 64;
        let epoch = reader.u64()?;
        let (watched_count, watched) = (reader.u32()?, reader.bytes()?);
        if reader.is_checked() {
            let (command_count, commands) = (reader.u32()?, reader.bytes()?);
            return Ok(Transaction { epoch, watched, watched_count, command_count, commands, writes });
        }
        let mut rest = Reader::new(watched);
        for _ in 0..watched_count {
            Watched::take(&mut rest)?;
        }
        let (command_count, commands) = (reader.u32()?, reader.bytes()?);
        let mut more = Reader::new(commands);
        let mut has_write = false;
        for _ in 0..command_count {
            if !Wrapper::Transaction.can_contain(more.rest()) {
                return Err(Malformed("a command that cannot be a part of a transaction"));
            }
            has_write |= Command::decode(&mut more)?.is_write();
        }
        if !rest.is_empty() || !more.is_empty() || has_write != writes {
            return Err(Malformed("a transaction holds something else than it says"));
        }
        Ok(Transaction { epoch, watched, watched_count, command_count, commands, writes })
    }

    fn is_write(&self) -> bool {
        self.writes
    }

    fn visit_keys(&self, visit: &mut impl FnMut(&'a [u8])) {
        let visit: &mut dyn FnMut(&'a [u8]) = visit;
        self.watched().for_each(|watched| visit(watched.key));
        self.commands().for_each(|command| command.for_each_key(&mut *visit));
    }

    fn bytes(&self) -> usize {
        self.commands.len()
    }

    fn name(&self) -> &'static str {
        "MULTI"
    }

    fn effect(&self) -> Effect {
        let mut effect = if self.writes { Effect::Frees } else { Effect::Reads };
        for command in self.commands() {
            match command.declared_effect() {
                Effect::Grows => return Effect::Grows,
                Effect::Changes => effect = Effect::Changes,
                Effect::Reads | Effect::Frees => {}
            }
        }
        effect
    }

    fn adds(&self) -> Adds {
        match self.writes && self.commands().any(|command| command.grows_with_the_table()) {
            true => Adds::Unforeseen,
            false => Adds::More,
        }
    }

    fn needs(&self) -> Needs {
        Needs::SeveralKeys
    }

    fn may_walk(&self) -> bool {
        true
    }

    fn lists_all(&self) -> bool {
        true
    }
}

/// A transaction that is being built.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    epoch: u64,
    watched: Vec<u8>,
    watched_count: u32,
    commands: Vec<u8>,
    command_count: u32,
    writes: bool,
}

impl Draft {
    /// Adds a key that must be unchanged. All keys must have been watched under one leadership.
    pub fn watch(&mut self, epoch: u64, watched: Watched<'_>) {
        self.epoch = epoch;
        self.watched.put_bytes(watched.key);
        self.watched.put_u64(watched.version);
        self.watched.put_u64(watched.floor);
        self.watched_count += 1;
    }

    /// Adds a command. Returns false, and adds nothing, if it cannot be a part of a transaction.
    pub fn push(&mut self, command: &Command<'_>) -> bool {
        let start = self.commands.len();
        command.encode(&mut self.commands);
        if !Wrapper::Transaction.can_contain(&self.commands[start..]) {
            self.commands.truncate(start);
            return false;
        }
        self.command_count += 1;
        self.writes |= command.is_write();
        true
    }

    /// Adds the commands of another draft behind its own.
    ///
    /// # Panics
    /// When the other one watches keys.
    pub fn append(&mut self, other: &Draft) {
        assert_eq!(other.watched_count, 0, "what watches keys is a transaction of its own");
        self.commands.extend_from_slice(&other.commands);
        self.command_count += other.command_count;
        self.writes |= other.writes;
    }

    /// Bytes added so far.
    pub fn bytes(&self) -> usize {
        self.watched.len() + self.commands.len()
    }

    /// The number of watched keys.
    pub fn watched_len(&self) -> usize {
        self.watched_count as usize
    }

    /// The number of commands added.
    pub fn len(&self) -> usize {
        self.command_count as usize
    }

    /// Whether no command was added.
    pub fn is_empty(&self) -> bool {
        self.command_count == 0
    }

    /// The transaction of everything added so far.
    pub fn transaction(&self) -> Transaction<'_> {
        Transaction {
            epoch: self.epoch,
            watched: &self.watched,
            watched_count: self.watched_count,
            command_count: self.command_count,
            commands: &self.commands,
            writes: self.writes,
        }
    }
}
