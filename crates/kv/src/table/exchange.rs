//! Exchanges of databases: which commands of clients a table no longer accepts, or accepts already.
//!
//! The table counts each exchange of its keyspace twice: the count is odd from the record that stops the group for an
//! exchange to the record with which it goes on. A client's command carries the count by which it was routed
//! ([`crate::Routed`]), and is carried out only if the table has the same count. So a command that was routed before an
//! exchange takes effect before its group stops, or never, however long it was on its way and whichever leader orders it.

use super::{Record, Table};
use crate::Version;
use crate::command::{Command, LockCommand, QueueCommand};
use crate::planted::Fault;
use crate::reply::ReplyBuffer;

/// The reply to a command that was routed by a different count.
const EXCHANGED: &str = "TRYAGAIN EXCHANGED the databases were exchanged (SWAPDB) while the command was on its way; nothing was done, try again";

/// The error that a command was routed by a different count than the table's.
pub(super) struct Exchanged;

impl Exchanged {
    pub(super) fn write(self, out: &mut ReplyBuffer) {
        out.error(EXCHANGED);
    }
}

impl Table {
    /// How often the keyspace was exchanged, as far as its group has carried that out. Each exchange counts twice.
    #[inline]
    pub fn exchanges(&self) -> u64 {
        self.exchanges
    }

    /// Whether the table accepts a command, as far as exchanges are concerned.
    #[inline]
    pub fn takes(&self, command: &Command<'_>) -> bool {
        !self.checks_routes(command) || self.routed_here(command).is_ok()
    }

    /// Whether commands must be checked by [`Table::routed_here`].
    #[inline]
    pub(super) fn checks_routes(&self, command: &Command<'_>) -> bool {
        self.exchanges > 0 || matches!(command, Command::Routed(_))
    }

    /// Returns the command itself if it was routed by the table's count, or does not come from a client.
    #[cold]
    pub(super) fn routed_here<'c>(&self, command: &Command<'c>) -> Result<Command<'c>, Exchanged> {
        let (count, command) = match command {
            Command::Routed(routed) => (routed.exchanges(), routed.command()),
            Command::Supplied(supplied) => {
                let is_of_a_client = supplied.command().is_some_and(|it| it.is_of_a_client());
                return if is_of_a_client && self.exchanges > 0 { Err(Exchanged) } else { Ok(*command) };
            }
            command if command.is_of_a_client() => (0, *command),
            command => return Ok(*command),
        };
        // A request that was already served is claimed by asking once more.
        let is_served = || match command {
            Command::Queue(QueueCommand::Ask { waiter, .. }) => self.queues.served_to(waiter).is_some(),
            _ => false,
        };
        let is_planted = self.queues.has_planted(Fault::RoutesNotChecked);
        match count == self.exchanges && count.is_multiple_of(2) || is_served() || is_planted {
            true => Ok(command),
            false => Err(Exchanged),
        }
    }

    /// Carries out [`Command::Exchange`].
    pub(super) fn exchange(&mut self, exchanges: u64, floor: Version, record: Record, out: &mut ReplyBuffer) {
        out.ok();
        self.raise_floor(record);
        if exchanges <= self.exchanges {
            return;
        }
        self.exchanges = exchanges;
        // The clients that wait here have selected a database that another keyspace is about to hold. Elements that they
        // were already served remain theirs.
        self.queues.remove_all_waiting();
        for node in self.locks.coordinators() {
            let drop = LockCommand::DropWaiters { node, spared: None };
            self.locks.apply(&drop, record.version, &mut self.lock_events);
        }
        if exchanges.is_multiple_of(2) {
            self.set_version_floor(floor);
            self.changes.miss_some();
        }
        self.observe();
    }

    /// Sets the count from a snapshot.
    pub(super) fn set_exchanges(&mut self, exchanges: u64) {
        self.exchanges = exchanges;
        self.observe();
    }
}
