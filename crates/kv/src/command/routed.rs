//! A command with the count of exchanges of its keyspace when it was routed.
//!
//! `SWAPDB` makes two keyspaces exchange the databases that they hold. While that happens, a command may still be in a queue,
//! on a link, or in a log. If it took effect in its group after the exchange, it would change another database than its
//! client's. So every keyspace counts its exchanges, and so do the tables of its groups ([`Command::Exchange`]). A client's
//! command carries the count by which its node chose the group, and a table carries the command out only if its own count is
//! the same.
//!
//! A command without this wrapper has the count 0, so commands for a keyspace that was never exchanged need no wrapper.

use super::encoding::may_be_routed;
use super::{Command, LockCommand, QueueCommand};
use crate::codec::{Malformed, Reader, Writer};

/// A command of a client for a keyspace that was exchanged.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Routed<'a> {
    exchanges: u64,
    /// The encoded command. Checked: it can be decoded.
    command: &'a [u8],
}

impl std::fmt::Debug for Routed<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Routed {{ {}: {:?} }}", self.exchanges, self.command())
    }
}

impl<'a> Routed<'a> {
    /// Wraps a command with its keyspace's count. The command is encoded in `scratch`.
    ///
    /// # Panics
    /// If the command does not come from a client ([`Command::is_of_a_client`]).
    pub fn build(exchanges: u64, command: &Command<'_>, scratch: &'a mut Vec<u8>) -> Routed<'a> {
        assert!(command.is_of_a_client(), "only a client's command is for a database");
        scratch.clear();
        command.encode(scratch);
        Routed { exchanges, command: scratch }
    }

    /// How often the keyspace had been exchanged when the command was routed. Each exchange counts twice: see
    /// [`Command::Exchange`].
    pub fn exchanges(&self) -> u64 {
        self.exchanges
    }

    /// The command.
    pub fn command(&self) -> Command<'a> {
        Command::decode(&mut Reader::new(self.command)).expect("a routed command is checked before it is one")
    }

    pub(super) fn bytes(&self) -> usize {
        self.command.len()
    }

    // Dynamic, because commands visit the keys of routed ones, too.
    pub(super) fn for_each_key(&self, visit: &mut dyn FnMut(&'a [u8])) {
        self.command().for_each_key(visit);
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.exchanges);
        out.put_bytes(self.command);
    }

    pub(super) fn decode(reader: &mut Reader<'a>) -> Result<Routed<'a>, Malformed> {
        let (exchanges, command) = (reader.u64()?, reader.bytes()?);
        // Check the tag first, so that untrusted bytes cannot nest commands without end.
        if !may_be_routed(command) {
            return Err(Malformed("a command that is not for a database"));
        }
        let mut rest = Reader::new(command);
        let decoded = Command::decode(&mut rest)?;
        match rest.is_empty() && decoded.is_of_a_client() {
            true => Ok(Routed { exchanges, command }),
            false => Err(Malformed("a command that is not for a database")),
        }
    }
}

impl<'a> Command<'a> {
    /// The command without its count of exchanges and without its bound. If it has one, the command itself is decoded into
    /// `inner`; otherwise nothing is copied.
    #[inline]
    pub fn unrouted<'s>(&'s self, inner: &'s mut Option<Command<'a>>) -> &'s Command<'a> {
        match self {
            Command::Routed(routed) => inner.insert(routed.command()),
            Command::Bounded(bounded) => match bounded.command() {
                Command::Routed(routed) => inner.insert(routed.command()),
                command => inner.insert(command),
            },
            command => command,
        }
    }

    /// Whether a client has sent the command, so that it is meant for the database that the client has selected. All other
    /// commands are meant for their group, whichever database it holds.
    pub fn is_of_a_client(&self) -> bool {
        use Command::*;
        match self {
            Purge { .. } | Evict { .. } | SkipVersions { .. } | Exchange { .. } | Recent { .. } => false,
            SetCoded { .. } | Inline { .. } | Abandon { .. } | LongPart { .. } | LongEnd { .. } => false,
            Supplied(_) | Routed(_) | Bounded(_) => false,
            // Without a key it reads how recent the group's state is.
            Watch { keys } => !keys.is_empty(),
            Lock(command) => !matches!(
                command,
                LockCommand::Check { .. }
                    | LockCommand::Withdraw { .. }
                    | LockCommand::DropWaiters { .. }
                    | LockCommand::Expire { .. }
                    | LockCommand::ExpireSession { .. }
            ),
            Queue(command) => matches!(command, QueueCommand::Ask { .. }),
            _ => true,
        }
    }
}
