//! Watched keys and leaderships: what a leader does for `WATCH` and `EXEC` besides ordering them.
//!
//! Whether a watched key is unchanged is decided where the transaction takes effect, by comparing versions: see
//! [`kv::Transaction`]. Versions distinguish writes only within one history. A failover that loses writes
//! (leader-follower with few acknowledgements, or a loss that an operator has accepted) begins another history, which
//! reuses the versions of the lost writes. So the reply to `WATCH` also carries the epoch of the answering leader, and a
//! leader of another epoch aborts the transaction. An unnecessary abort does no harm: the client tries again.

use crate::planted::{Fault, Planted};
use kv::{BLOCKED, Command, Padded, Reply, ReplyBuffer, Table, Transaction, UnixMs, Version};

/// Answers a read as the leader of an epoch, and returns its version.
#[inline]
pub(crate) fn read(
    table: &mut Table,
    epoch: u64,
    command: &Command<'_>,
    now: UnixMs,
    replies: &mut ReplyBuffer,
) -> Version {
    let mut inner = None;
    let unbounded = command.unbounded(&mut inner);
    if let Command::Transaction(transaction) = unbounded
        && is_of_another_epoch(transaction, epoch)
    {
        replies.push(Reply::NullArray);
        return 0;
    }
    let version = table.read(command, now, replies);
    if matches!(unbounded, Command::Watch { .. }) && version != BLOCKED { epoch } else { version }
}

/// Checks a write before the leader of an epoch orders it: false for a transaction that will not take effect.
#[inline]
pub(crate) fn may_be_ordered(
    command: &Command<'_>,
    table: &Table,
    epoch: u64,
    now: UnixMs,
    planted: Planted,
) -> bool {
    match command.unbounded(&mut None) {
        Command::Transaction(transaction) if planted.has(Fault::WatchNotRechecked) => {
            table.is_as_it_was(transaction, now)
        }
        Command::Transaction(transaction) => !is_of_another_epoch(transaction, epoch),
        Command::TwoPhase(command) => match command.share().map(|share| share.command()) {
            Some(Command::Transaction(transaction)) => !is_of_another_epoch(&transaction, epoch),
            _ => true,
        },
        Command::Supplied(supplied) => match supplied.command() {
            Some(command) => may_be_ordered(&command, table, epoch, now, planted),
            None => true,
        },
        // Also a transaction; its commands were sent before.
        Command::LongEnd { watched_in: Padded(Some(watched_in)), .. } => *watched_in == epoch,
        _ => true,
    }
}

/// Whether a command is the end of a long one, whose keys are in its parts.
#[inline]
pub(crate) fn ends_long(command: &Command<'_>) -> bool {
    matches!(command.unbounded(&mut None), Command::LongEnd { .. })
}

/// For planted faults, returns the command without the check that it makes where it takes effect. `None`: the command is
/// ordered unchanged.
#[inline]
pub(crate) fn unchecked<'c>(command: &Command<'c>, table: &Table, planted: Planted) -> Option<Command<'c>> {
    match command {
        Command::Transaction(transaction) if planted.has(Fault::WatchNotRechecked) => {
            Some(Command::Transaction(transaction.unconditional()))
        }
        Command::Fenced(fenced)
            if planted.has(Fault::FenceNotRechecked) && table.locks().allows(fenced.name, fenced.token) =>
        {
            fenced.command()
        }
        _ => None,
    }
}

fn is_of_another_epoch(transaction: &Transaction<'_>, epoch: u64) -> bool {
    transaction.is_watching() && transaction.epoch() != epoch
}
