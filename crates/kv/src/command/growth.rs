//! Commands that may enlarge the data, and by how much beyond their own size.

use super::{BytesCommand, Command, LockCommand, QueueCommand, SortCommand, WhenFull};

impl Command<'_> {
    /// Whether the command may enlarge the data: those that Redis marks with `denyoom`, and those that request locks. A
    /// node without free memory refuses these and carries out the others.
    pub fn may_grow(&self) -> bool {
        use Command::*;
        match self {
            Set { .. } | SetIf { .. } | MultiSet { .. } | Append { .. } | SetRange { .. } => true,
            IncrementBy { .. }
            | IncrementByFloat { .. }
            | Copy { .. }
            | Replicate { .. }
            | Restore { .. } => true,
            SetCoded { .. } | LongPart { .. } | Fenced(_) => true,
            Lock(command) => {
                matches!(command, LockCommand::Acquire { .. } | LockCommand::OpenSession { .. })
            }
            Queue(QueueCommand::Ask { wish, .. }) => wish.command().may_grow(),
            Script(script) => script.is_write(),
            Hash(command) => command.may_grow(),
            OnList(command) => command.may_grow(),
            OnSet(command) => command.may_grow(),
            OnSorted(command) => command.may_grow(),
            OnStream(command) => command.may_grow(),
            OnBytes(command) => command.is_write(),
            Sort(command) => command.is_write(),
            Transaction(transaction) => transaction.commands().any(|command| command.may_grow()),
            // Its parts are here already.
            LongEnd { .. } => false,
            // A command that was admitted before its values were fetched, and values that replace references.
            Supplied(_) | Inline { .. } => false,
            Routed(routed) => routed.command().may_grow(),
            _ => false,
        }
    }

    /// Whether every part of the command that may enlarge the data is allowed to do so in a full keyspace: scripts with
    /// [`WhenFull::Runs`].
    pub fn may_overfill(&self) -> bool {
        match self {
            Command::Script(script) => script.options().when_full == WhenFull::Runs,
            Command::Transaction(transaction) => {
                transaction.commands().all(|command| !command.may_grow() || command.may_overfill())
            }
            Command::Routed(routed) => routed.command().may_overfill(),
            _ => false,
        }
    }

    /// Whether the command only deletes.
    pub fn only_deletes(&self) -> bool {
        use Command::*;
        match self {
            Delete { .. } | GetDelete { .. } | DeleteIf { .. } | Clear | Abandon { .. } => true,
            Purge { .. } | Evict { .. } => true,
            Hash(command) => command.only_deletes(),
            // A waiting request takes something away.
            Queue(QueueCommand::Ask { wish, .. }) => wish.command().only_deletes(),
            Queue(_) => true,
            OnList(command) => command.only_deletes(),
            OnSet(command) => command.only_deletes(),
            OnSorted(command) => command.only_deletes(),
            OnStream(command) => command.only_deletes(),
            Transaction(transaction) => {
                transaction.commands().all(|command| !command.is_write() || command.only_deletes())
            }
            Routed(routed) => routed.command().only_deletes(),
            _ => false,
        }
    }

    /// The number of bytes by which the data may grow beyond the command's own size: a `SETRANGE` far beyond the end, a
    /// `COPY`. `bytes_of` returns the current size of a key in bytes.
    #[inline]
    pub fn growth_bytes(&self, bytes_of: &dyn Fn(&[u8]) -> usize) -> u64 {
        match self {
            Command::SetRange { .. } | Command::Copy { .. } | Command::Transaction(_) => {
                self.growth_bytes_of_any(bytes_of)
            }
            Command::OnBytes(_) | Command::Sort(_) | Command::Routed(_) => self.growth_bytes_of_any(bytes_of),
            _ => 0,
        }
    }

    #[cold]
    fn growth_bytes_of_any(&self, bytes_of: &dyn Fn(&[u8]) -> usize) -> u64 {
        match self {
            Command::SetRange { value: [], .. } => 0,
            Command::SetRange { key, offset, .. } => offset.saturating_sub(bytes_of(key) as u64),
            Command::Copy { from, .. } => bytes_of(from) as u64,
            Command::Sort(SortCommand::Store { key, .. }) => bytes_of(key) as u64,
            Command::OnBytes(BytesCommand::Combine { keys, .. }) => {
                keys.iter().map(|key| bytes_of(key) as u64).max().unwrap_or(0)
            }
            Command::OnBytes(command) if command.reaches_bytes() > 0 => {
                let mut key = &b""[..];
                command.for_each_key(|it| key = it);
                command.reaches_bytes().saturating_sub(bytes_of(key) as u64)
            }
            Command::Transaction(transaction) => {
                let growths = transaction.commands().map(|command| command.growth_bytes(bytes_of));
                growths.fold(0, u64::saturating_add)
            }
            Command::Routed(routed) => routed.command().growth_bytes(bytes_of),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Draft, HashCommand};

    #[test]
    fn growth_is_counted_beyond_the_size_of_the_command() {
        let bytes_of = |key: &[u8]| if key == b"large" { 1000 } else { 0 };
        let pad = Command::SetRange { key: b"k", offset: 5000, value: b"v" };
        let inside = Command::SetRange { key: b"large", offset: 900, value: b"v" };
        let copy = Command::Copy { from: b"large", to: b"k", replace: false };
        let growth = |command: &Command<'_>| command.growth_bytes(&bytes_of);
        assert_eq!([growth(&pad), growth(&inside), growth(&copy)], [5000, 0, 1000]);
        assert_eq!(growth(&Command::Append { key: b"k", value: b"v", bytes_max: 9 }), 0);
        let mut draft = Draft::default();
        (0..3).for_each(|_| assert!(draft.push(&pad)));
        let transaction = Command::Transaction(draft.transaction());
        assert_eq!((growth(&transaction), transaction.may_grow()), (15_000, true));
    }

    #[test]
    fn commands_that_free_memory_do_not_count_as_growing() {
        let mut scratch = Vec::new();
        let keys = crate::command::List::build(&mut scratch, [&b"k"[..]]);
        let frees = [
            Command::Delete { keys },
            Command::Clear,
            Command::GetDelete { key: b"k" },
            Command::Hash(HashCommand::Delete { key: b"k", fields: keys }),
            Command::Lock(LockCommand::Release { name: b"l", token: 1 }),
            Command::Lock(LockCommand::Renew { name: b"l", token: 1, lease_ms: 1 }),
        ];
        assert!(frees.iter().all(|command| !command.may_grow()));
        let mut draft = Draft::default();
        assert!(draft.push(&frees[0]) && !Command::Transaction(draft.transaction()).may_grow());
    }
}
