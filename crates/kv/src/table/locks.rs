//! Locks, a namespace separate from the keys, which commands on keys do not see; and writes guarded by a lock.

use super::{Record, Table};
use crate::Version;
use crate::command::{Fenced, LockCommand};
use crate::locks::{LockEvent, Locks};
use crate::planted::Planted;
use crate::reply::ReplyBuffer;

impl Table {
    /// The locks.
    pub fn locks(&self) -> &Locks {
        &self.locks
    }

    /// On a table of copies: from now on writes fenced by this lock are carried out with this token, and with no other one.
    ///
    /// # Panics
    /// When the token is 0, or was given before.
    pub fn assume_token(&mut self, name: &[u8], token: Version) {
        self.locks.assume(name, token);
    }

    /// Plants a fault, in tests.
    pub fn plant(&mut self, planted: Planted) {
        self.locks.plant(planted);
        self.queues.plant(planted);
    }

    /// Returns the events that resulted from records about locks since the last call, in order: which locks were granted,
    /// and which leases began and ended.
    #[inline]
    pub fn take_lock_events(&mut self) -> Option<Vec<LockEvent>> {
        if self.lock_events.is_empty() { None } else { Some(std::mem::take(&mut self.lock_events)) }
    }

    pub(super) fn apply_to_locks(
        &mut self,
        command: &LockCommand<'_>,
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        self.locks.apply(command, record.version, &mut self.lock_events).write(out);
        self.follow_in_queues(command, record);
        // Tokens and sessions are versions. Use up the record's version, whether or not it became a token or a session.
        self.raise_floor(record);
    }

    pub(super) fn read_locks(&mut self, command: &LockCommand<'_>, out: &mut ReplyBuffer) {
        match *command {
            // Only the leader measures the lease, so only it knows how much is left.
            LockCommand::Describe { name } => self.locks.describe(name, None, out),
            LockCommand::Check { name, waiter } => self.locks.check(name, waiter).write(out),
            _ => out.error("ERR a write has to be ordered before it is applied"),
        }
    }

    /// Carries out a write guarded by a lock, if its token is the newest.
    pub(super) fn apply_behind_fence(&mut self, fenced: &Fenced<'_>, record: Record, out: &mut ReplyBuffer) {
        match fenced.command().filter(|_| self.locks.allows(fenced.name, fenced.token)) {
            Some(command) => {
                self.carry_out(&command, record, out);
            }
            None => {
                let (name, token) = (fenced.name.escape_ascii(), fenced.token);
                let error =
                    format!("FENCED token {token} is not the newest of lock '{name}'; nothing was done");
                out.error(&error);
            }
        }
    }
}
