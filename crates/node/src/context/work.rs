//! How much is done for clients in one turn.
//!
//! Nearly all commands take a microsecond. A few walk through a whole table, or match a name with every pattern that
//! any client subscribes to: milliseconds each, and a pipeline holds thousands of them. Only between turns does a
//! node receive messages from other nodes, and send them signs of life. So when a turn has used up its time for
//! requests, further requests of clients wait for the next one, and the clients that were not served in this turn
//! come first.
//!
//! No time is measured here: the time of a command is estimated from what it has to look at.

use crate::context::Context;
use kv::Command;
use protocol::Request;

/// The work that a turn does for clients besides what their bytes cost, in nanoseconds. One command may take longer.
pub(crate) const TURN_NS: u64 = 5_000_000;

/// The most work that a transaction may do in its one step, in nanoseconds.
const TRANSACTION_NS_MAX: u64 = 200_000_000;

impl Context {
    /// Counts work that is done for a client.
    #[inline]
    pub(crate) fn spend(&mut self, nanoseconds: u64) {
        self.spent_ns = self.spent_ns.saturating_add(nanoseconds);
    }

    /// How many nanoseconds a request takes, if it takes long and this node can estimate it; otherwise 0.
    #[inline]
    pub(crate) fn work_ns(&self, group: u16, request: &Request<'_>) -> u64 {
        match request {
            Request::Command(command) if command.may_walk() => self.walk_ns(group, command),
            _ => 0,
        }
    }

    #[cold]
    fn walk_ns(&self, group: u16, command: &Command<'_>) -> u64 {
        let replica = self.groups.get(group).and_then(|group| group.replica.as_ref());
        replica.map_or(0, |replica| command.walk_ns(replica.table()))
    }

    /// Counts the work of a request that is about to be carried out. Returns why it is refused, if it would take too
    /// long.
    #[inline]
    pub(crate) fn spend_on(&mut self, group: u16, request: &Request<'_>) -> Option<String> {
        let nanoseconds = self.work_ns(group, request);
        let is_transaction = |request: &Request<'_>| match request {
            Request::Command(command) => matches!(command.unrouted(&mut None), Command::Transaction(_)),
            Request::Wait { .. } => false,
        };
        if nanoseconds > TRANSACTION_NS_MAX && is_transaction(request) {
            return Some(format!(
                "ERR the transaction would look at so many keys or fields that it took about {} ms, and {} ms is all that it may \
                 take in one step; nothing was done",
                nanoseconds / 1_000_000,
                TRANSACTION_NS_MAX / 1_000_000
            ));
        }
        self.spend(nanoseconds);
        None
    }
}
