//! Histories: what clients asked, when, and what they were told.
//!
//! A [`History`] keeps operations small, so that a million of them cost little: keys and values are numbers
//! ([`Key`], [`Value`]) that stand for byte strings kept once. A recorder writes down each operation twice: when
//! it is sent ([`History::begin`]) and when its answer is there ([`History::end`]). What never ends stays open,
//! as does what ends with an unknown outcome: it may take effect at any time after its start, or never.
//!
//! Times are nanoseconds of one clock that all clients share, from any beginning. An operation is before another
//! one if its end is smaller than the other's start; operations that touch at one instant are concurrent.
//!
//! Locks stand beside the keys: a lock has a name, given by [`History::key`] too, and a key of that name is another
//! thing. What is asked of them, and of the sessions that they are held under, is an [`Action::Lock`].
//!
//! Keys that expire do not belong here: whether a read in the vicinity of a deadline is right depends on clocks,
//! of which this model knows nothing. Leave every operation on such a key out of the history.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use crate::interner::Interner;
use crate::locks::{Fence, LockAction};

/// A key of a history, given by [`History::key`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(u32);

impl Key {
    /// A number below [`History::keys`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A value of a history, given by [`History::value`]. No value is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Value(NonZeroU32);

/// What was asked of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Reads the value (`GET`); answered by [`Answer::Value`].
    Get,
    /// Stores a value in any case (`SET`); answered by [`Answer::Done`].
    Set(Value),
    /// Removes the key (`DEL`); answered by [`Answer::Done`], or by [`Answer::Applied`] where the count of removed
    /// keys is part of the promise and is to be checked.
    Delete,
    /// Adds to an integer, where an absent key counts as 0 (`INCRBY`); answered by [`Answer::Sum`].
    Increment(i64),
    /// Stores a value if the key is absent (`SET NX`); answered by [`Answer::Applied`].
    SetIfAbsent(Value),
    /// Stores a value and answers the one before (`GETSET`); answered by [`Answer::Value`].
    GetAndSet(Value),
    /// Stores `value` if the key holds `expected` (`SET IFEQ`); answered by [`Answer::Applied`].
    CompareAndSet {
        /// What the key must hold; `None` is no value.
        expected: Option<Value>,
        /// What it holds afterwards.
        value: Value,
    },
    /// Asks something of the lock, or the session, that the operation's key names.
    Lock(LockAction),
}

impl Action {
    /// The action's name in JSON Lines and in words.
    pub fn name(&self) -> &'static str {
        match self {
            Action::Get => "get",
            Action::Set(_) => "set",
            Action::Delete => "delete",
            Action::Increment(_) => "increment",
            Action::SetIfAbsent(_) => "set-if-absent",
            Action::GetAndSet(_) => "get-and-set",
            Action::CompareAndSet { .. } => "compare-and-set",
            Action::Lock(action) => action.name(),
        }
    }

    /// True if it concerns a lock or a session, and no key.
    pub fn is_of_locks(&self) -> bool {
        matches!(self, Action::Lock(_))
    }

    /// The value that it stores, if it stores one that is known beforehand.
    pub fn stores(&self) -> Option<Value> {
        match *self {
            Action::Get | Action::Delete | Action::Increment(_) | Action::Lock(_) => None,
            Action::Set(value) | Action::SetIfAbsent(value) | Action::GetAndSet(value) => Some(value),
            Action::CompareAndSet { value, .. } => Some(value),
        }
    }
}

/// What the client was told. An answer of a kind that its action does not have is taken for a violation: nothing
/// that a correct store does explains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was done.
    Done,
    /// The value, or that there is none.
    Value(Option<Value>),
    /// Whether the condition held and the write was carried out.
    Applied(bool),
    /// The sum after an increment.
    Sum(i64),
    /// The fencing token of a lock that is granted, or that another one holds it.
    Token(Option<u64>),
    /// The session that was opened.
    Session(Key),
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done, and answered so.
    Ok(Answer),
    /// Refused: nothing happened.
    Failed,
    /// Not known: it may have happened, may happen at any later time, or never.
    Unknown,
}

/// One operation of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Who asked.
    pub client: u64,
    /// Of which node, where that is known. Only the checks of weaker promises look at it.
    pub node: Option<u32>,
    /// On which key.
    pub key: Key,
    /// What was asked.
    pub action: Action,
    /// When it was sent, in nanoseconds.
    pub start: u64,
    /// When the answer was there; `None` while there is none.
    pub end: Option<u64>,
    /// How it ended; unknown while there is no answer.
    pub outcome: Outcome,
    /// The version that was read or written, where it is told. Only the checks of weaker promises look at it.
    pub version: Option<u64>,
}

/// An operation's number in its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OperationId(u32);

/// Operations, in the order in which they were written down.
#[derive(Clone, Debug, Default)]
pub struct History {
    keys: Interner,
    values: Interner,
    operations: Vec<Operation>,
    // What few operations have.
    fences: BTreeMap<OperationId, Fence>,
    queued: BTreeMap<OperationId, u64>,
}

impl History {
    /// A history without operations.
    pub fn new() -> History {
        History::default()
    }

    /// The key with these bytes.
    pub fn key(&mut self, bytes: &[u8]) -> Key {
        Key(self.keys.intern(bytes))
    }

    /// The value with these bytes.
    pub fn value(&mut self, bytes: &[u8]) -> Value {
        Value(NonZeroU32::MIN.saturating_add(self.values.intern(bytes)))
    }

    /// The bytes of a key of this history.
    pub fn key_bytes(&self, key: Key) -> &[u8] {
        self.keys.get(key.0)
    }

    /// The bytes of a value of this history.
    pub fn value_bytes(&self, value: Value) -> &[u8] {
        self.values.get(value.0.get() - 1)
    }

    /// How many different keys there are.
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// Writes down that a client sends an operation. It is open until [`History::end`] says otherwise.
    pub fn begin(&mut self, client: u64, key: Key, action: Action, start: u64) -> OperationId {
        let outcome = Outcome::Unknown;
        self.push(Operation { client, node: None, key, action, start, end: None, outcome, version: None })
    }

    /// Writes down how an operation ended, and when.
    pub fn end(&mut self, id: OperationId, end: u64, outcome: Outcome) {
        let operation = &mut self.operations[id.0 as usize];
        operation.end = Some(end.max(operation.start));
        operation.outcome = outcome;
    }

    /// Writes down a whole operation; its key and values are of this history.
    pub fn push(&mut self, operation: Operation) -> OperationId {
        let id = OperationId(self.operations.len() as u32);
        self.operations.push(operation);
        id
    }

    /// Which node was asked: see [`Operation::node`].
    pub fn set_node(&mut self, id: OperationId, node: u32) {
        self.operations[id.0 as usize].node = Some(node);
    }

    /// Which version was read or written: see [`Operation::version`].
    pub fn set_version(&mut self, id: OperationId, version: u64) {
        self.operations[id.0 as usize].version = Some(version);
    }

    /// A write that takes effect only with the newest token of a lock: see [`Fence`].
    pub fn set_fence(&mut self, id: OperationId, fence: Fence) {
        self.fences.insert(id, fence);
    }

    /// From this instant on, until it is granted the lock, a request is known to have stood in the lock's queue.
    pub fn set_queued(&mut self, id: OperationId, at: u64) {
        self.queued.insert(id, at);
    }

    /// What a write stands behind, if it does.
    pub fn fence(&self, id: OperationId) -> Option<&Fence> {
        self.fences.get(&id)
    }

    /// Since when a request is known to wait: see [`History::set_queued`].
    pub fn queued(&self, id: OperationId) -> Option<u64> {
        self.queued.get(&id).copied()
    }

    /// All writes behind fences.
    pub(crate) fn fences(&self) -> impl Iterator<Item = (OperationId, &Fence)> {
        self.fences.iter().map(|(id, fence)| (*id, fence))
    }

    /// Takes in another history of the same clock. Its clients are others than this one's: their numbers follow.
    ///
    /// # Panics
    /// The other history is of locks, or of writes behind fences: those are recorded by one recorder.
    pub fn append(&mut self, other: &History) {
        let clients = self.operations.iter().map(|operation| operation.client);
        let first_client = clients.max().map_or(0, |last| last + 1);
        assert!(other.fences.is_empty() && other.queued.is_empty(), "nothing in it is of locks");
        for operation in &other.operations {
            let key = self.key(other.key_bytes(operation.key));
            let mut value = |value: Value| self.value(other.value_bytes(value));
            let action = match operation.action {
                Action::Get | Action::Delete | Action::Increment(_) => operation.action,
                Action::Set(stored) => Action::Set(value(stored)),
                Action::SetIfAbsent(stored) => Action::SetIfAbsent(value(stored)),
                Action::GetAndSet(stored) => Action::GetAndSet(value(stored)),
                Action::CompareAndSet { expected, value: stored } => {
                    Action::CompareAndSet { expected: expected.map(&mut value), value: value(stored) }
                }
                Action::Lock(_) => unreachable!("nothing in it is of locks"),
            };
            let outcome = match operation.outcome {
                Outcome::Ok(Answer::Value(Some(told))) => Outcome::Ok(Answer::Value(Some(value(told)))),
                outcome => outcome,
            };
            self.push(Operation {
                client: first_client + operation.client,
                key,
                action,
                outcome,
                ..*operation
            });
        }
    }

    /// The operation with this number.
    pub fn operation(&self, id: OperationId) -> &Operation {
        &self.operations[id.0 as usize]
    }

    /// All operations, in the order in which they were written down.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// How many operations have an answer that can be right or wrong. A history with none says nothing of a store: what was
    /// refused did not happen, and what is unknown may not have.
    pub fn answered(&self) -> usize {
        let is_ok = |operation: &&Operation| matches!(operation.outcome, Outcome::Ok(_));
        let is_fenced = |fence: &&Fence| fence.is_refused;
        self.operations.iter().filter(is_ok).count() + self.fences.values().filter(is_fenced).count()
    }

    /// The numbers of all operations, in the same order.
    pub fn ids(&self) -> impl Iterator<Item = OperationId> + use<> {
        (0..self.operations.len() as u32).map(OperationId)
    }

    /// How many clients took part.
    pub fn clients(&self) -> usize {
        let mut clients: Vec<u64> = self.operations.iter().map(|operation| operation.client).collect();
        clients.sort_unstable();
        clients.dedup();
        clients.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histories_of_one_clock_become_one() {
        let mut writing = History::new();
        let (key, value) = (writing.key(b"k"), writing.value(b"v"));
        let write = writing.begin(3, key, Action::Set(value), 10);
        writing.end(write, 20, Outcome::Ok(Answer::Done));
        let mut reading = History::new();
        // The same bytes have other numbers here.
        let (_, other, key) = (reading.key(b"other"), reading.value(b"other"), reading.key(b"k"));
        let value = reading.value(b"v");
        let read = reading.begin(0, key, Action::Get, 30);
        reading.end(read, 40, Outcome::Ok(Answer::Value(Some(value))));
        let open = reading.begin(1, key, Action::CompareAndSet { expected: Some(value), value: other }, 35);
        writing.append(&reading);
        let clients: Vec<u64> = writing.operations().iter().map(|operation| operation.client).collect();
        assert_eq!(clients, [3, 4, 5]);
        assert_eq!(
            writing.operations()[1].outcome,
            Outcome::Ok(Answer::Value(writing.operations()[0].action.stores()))
        );
        assert_eq!(writing.operations()[1].key, writing.operations()[0].key);
        assert_eq!(writing.operations()[2].end, reading.operation(open).end);
        assert!(matches!(crate::linearizable(&writing), crate::Verdict::Ok { .. }));
    }
}
