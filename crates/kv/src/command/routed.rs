//! A command with the number of exchanges of its keyspace at the time when it was routed.
//!
//! `SWAPDB` has two keyspaces exchange the databases that they hold. A command may be on its way meanwhile: in a queue, on a
//! link, in a log. If it took effect in its group behind the exchange, it would change the database of other clients. So a
//! keyspace counts its exchanges, each table of its groups does ([`Command::Exchange`]), and each command of a client carries
//! the count by which its node chose the group. A table carries it out only if its own count is the same.
//!
//! Without the wrapper the count is 0: keyspaces that were never exchanged pay nothing.

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
    /// A command, which is encoded in `scratch`, with its keyspace's count.
    ///
    /// # Panics
    /// If the command is no client's ([`Command::is_of_a_client`]).
    pub fn build(exchanges: u64, command: &Command<'_>, scratch: &'a mut Vec<u8>) -> Routed<'a> {
        assert!(command.is_of_a_client(), "only a client's command is for a database");
        scratch.clear();
        command.encode(scratch);
        Routed { exchanges, command: scratch }
    }

    /// How often the keyspace had been exchanged when the command was routed, each exchange counted twice: see
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

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.exchanges);
        out.put_bytes(self.command);
    }

    pub(super) fn decode(reader: &mut Reader<'a>) -> Result<Routed<'a>, Malformed> {
        let (exchanges, command) = (reader.u64()?, reader.bytes()?);
        // By the tag first, so that bytes from elsewhere cannot nest commands without end.
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
    /// The command itself, if it is one with a count of exchanges; else the same command.
    #[inline]
    pub fn unrouted(&self) -> Command<'a> {
        match self {
            Command::Routed(routed) => routed.command(),
            command => *command,
        }
    }

    /// Whether it is a client's, and so for the database that the client has selected. The others are the group's own: whoever
    /// sends them means the group, whichever database it holds.
    pub fn is_of_a_client(&self) -> bool {
        use Command::*;
        match self {
            Purge { .. } | Evict { .. } | SkipVersions { .. } | Exchange { .. } | Recent { .. } => false,
            SetCoded { .. } | Inline { .. } | Abandon { .. } | LongPart { .. } | LongEnd { .. } => false,
            Supplied(_) | Routed(_) => false,
            // Without a key it asks how new the group is.
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
