//! Histories: what clients requested, when, and the answers they got.
//!
//! A [`History`] keeps operations small, so that a million of them cost little: keys and values are numbers ([`Key`],
//! [`Value`]) for byte strings that are stored once. A recorder notes each operation twice: when it is sent
//! ([`History::begin`]) and when its answer arrives ([`History::end`]). An operation that never ends stays open. Like
//! one with an unknown outcome, it may take effect at any time after its start, or never.
//!
//! Times are nanoseconds on one clock that all clients share, with any origin. An operation is before another one if
//! its end is smaller than the other's start; operations that touch at one instant are concurrent.
//!
//! Locks exist beside the keys: a lock has a name, which [`History::key`] also numbers, and has nothing to do with a
//! key of the same name. Operations on locks, and on the sessions that they are held under, are [`Action::Lock`]s.
//!
//! Keys that expire do not belong here: whether a read near a deadline is right depends on clocks, which this model
//! does not know. Leave every operation on such a key out of the history.

mod lock_action;

pub use lock_action::{Fence, Hold, LockAction};
use std::collections::BTreeMap;
use std::num::NonZeroU32;

use crate::interner::Interner;

/// A key of a history, from [`History::key`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(u32);

impl Key {
    /// Returns the key's number, which is below [`History::keys`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A value of a history, from [`History::value`]. An absent value is a `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Value(NonZeroU32);

/// An operation on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Reads the value (`GET`); answered by [`Answer::Value`].
    Get,
    /// Stores a value unconditionally (`SET`); answered by [`Answer::Done`].
    Set(Value),
    /// Removes the key (`DEL`); answered by [`Answer::Done`], or by [`Answer::Applied`] where the number of removed
    /// keys is part of the promise and must be checked.
    Delete,
    /// Adds to an integer; an absent key counts as 0 (`INCRBY`); answered by [`Answer::Sum`].
    Increment(i64),
    /// Stores a value if the key is absent (`SET NX`); answered by [`Answer::Applied`].
    SetIfAbsent(Value),
    /// Stores a value and returns the previous one (`GETSET`); answered by [`Answer::Value`].
    GetAndSet(Value),
    /// Stores `value` if the key holds `expected` (`SET IFEQ`); answered by [`Answer::Applied`].
    CompareAndSet {
        /// What the key must hold; `None` means that it must be absent.
        expected: Option<Value>,
        /// What the key holds afterwards.
        value: Value,
    },
    /// An operation on the lock or the session that the operation's key names.
    Lock(LockAction),
}

impl Action {
    /// Returns the action's name in JSON Lines and in texts.
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

    /// Whether it concerns a lock or a session rather than a key.
    pub fn is_of_locks(&self) -> bool {
        matches!(self, Action::Lock(_))
    }

    /// Returns the value that it stores, if that is known beforehand.
    pub fn stores(&self) -> Option<Value> {
        match *self {
            Action::Get | Action::Delete | Action::Increment(_) | Action::Lock(_) => None,
            Action::Set(value) | Action::SetIfAbsent(value) | Action::GetAndSet(value) => Some(value),
            Action::CompareAndSet { value, .. } => Some(value),
        }
    }
}

/// The answer that a client got. An answer of a kind that its action does not have counts as a violation: no
/// behaviour of a correct store explains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The operation is done.
    Done,
    /// The value, or `None` if there is none.
    Value(Option<Value>),
    /// Whether the condition held and the write was executed.
    Applied(bool),
    /// The sum after an increment.
    Sum(i64),
    /// The fencing token of a granted lock; `None` if another owner holds the lock.
    Token(Option<u64>),
    /// The newly opened session.
    Session(Key),
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done, with this answer.
    Ok(Answer),
    /// It was refused: nothing happened.
    Failed,
    /// It may have happened, may happen at any later time, or never.
    Unknown,
}

/// One operation of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The client's number.
    pub client: u64,
    /// The node that the client asked, if known. Only the checks of weaker promises use it.
    pub node: Option<u32>,
    /// The key, or the name of the lock or session.
    pub key: Key,
    /// What the client requested.
    pub action: Action,
    /// When the request was sent, in nanoseconds.
    pub start: u64,
    /// When the answer arrived, in nanoseconds; `None` while there is none.
    pub end: Option<u64>,
    /// The outcome; unknown while there is no answer.
    pub outcome: Outcome,
    /// The version that was read or written, if known. Only the checks of weaker promises use it.
    pub version: Option<u64>,
}

/// An operation's number in its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OperationId(u32);

/// Operations, in the order in which they were recorded.
#[derive(Clone, Debug, Default)]
pub struct History {
    keys: Interner,
    values: Interner,
    operations: Vec<Operation>,
    // Properties that few operations have.
    fences: BTreeMap<OperationId, Fence>,
    queued: BTreeMap<OperationId, u64>,
}

impl History {
    /// Creates a history without operations.
    pub fn new() -> History {
        History::default()
    }

    /// Returns the key with these bytes, and adds it if it is new.
    pub fn key(&mut self, bytes: &[u8]) -> Key {
        Key(self.keys.intern(bytes))
    }

    /// Returns the value with these bytes, and adds it if it is new.
    pub fn value(&mut self, bytes: &[u8]) -> Value {
        Value(NonZeroU32::MIN.saturating_add(self.values.intern(bytes)))
    }

    /// Returns the bytes of a key of this history.
    pub fn key_bytes(&self, key: Key) -> &[u8] {
        self.keys.get(key.0)
    }

    /// Returns the bytes of a value of this history.
    pub fn value_bytes(&self, value: Value) -> &[u8] {
        self.values.get(value.0.get() - 1)
    }

    /// Returns the number of different keys.
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// Records that a client sends an operation. It is open until [`History::end`] ends it.
    pub fn begin(&mut self, client: u64, key: Key, action: Action, start: u64) -> OperationId {
        let outcome = Outcome::Unknown;
        self.push(Operation { client, node: None, key, action, start, end: None, outcome, version: None })
    }

    /// Records an operation's outcome, and when it ended.
    pub fn end(&mut self, id: OperationId, end: u64, outcome: Outcome) {
        let operation = &mut self.operations[id.0 as usize];
        operation.end = Some(end.max(operation.start));
        operation.outcome = outcome;
    }

    /// Records a whole operation, whose key and values must be of this history.
    pub fn push(&mut self, operation: Operation) -> OperationId {
        let id = OperationId(self.operations.len() as u32);
        self.operations.push(operation);
        id
    }

    /// Sets the node that was asked: see [`Operation::node`].
    pub fn set_node(&mut self, id: OperationId, node: u32) {
        self.operations[id.0 as usize].node = Some(node);
    }

    /// Sets the version that was read or written: see [`Operation::version`].
    pub fn set_version(&mut self, id: OperationId, version: u64) {
        self.operations[id.0 as usize].version = Some(version);
    }

    /// Marks a write that takes effect only with the newest token of a lock: see [`Fence`].
    pub fn set_fence(&mut self, id: OperationId, fence: Fence) {
        self.fences.insert(id, fence);
    }

    /// Records that a request is known to be in the lock's queue from this instant until the lock is granted to it.
    pub fn set_queued(&mut self, id: OperationId, at: u64) {
        self.queued.insert(id, at);
    }

    /// Returns the fence of a write, if it has one.
    pub fn fence(&self, id: OperationId) -> Option<&Fence> {
        self.fences.get(&id)
    }

    /// Returns since when a request is known to wait: see [`History::set_queued`].
    pub fn queued(&self, id: OperationId) -> Option<u64> {
        self.queued.get(&id).copied()
    }

    /// Returns all writes with fences.
    pub(crate) fn fences(&self) -> impl Iterator<Item = (OperationId, &Fence)> {
        self.fences.iter().map(|(id, fence)| (*id, fence))
    }

    /// Appends another history of the same clock. Its clients are different ones: their numbers follow this
    /// history's.
    ///
    /// # Panics
    /// If the other history contains locks or writes with fences: a single recorder must record those.
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
                Outcome::Ok(Answer::Value(Some(read))) => Outcome::Ok(Answer::Value(Some(value(read)))),
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

    /// Returns the operation with this number.
    pub fn operation(&self, id: OperationId) -> &Operation {
        &self.operations[id.0 as usize]
    }

    /// Returns all operations, in the order in which they were recorded.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Returns the number of operations whose answer can be right or wrong. A history with none says nothing about a
    /// store: refused operations did not happen, and unknown ones may not have.
    pub fn answered(&self) -> usize {
        let is_ok = |operation: &&Operation| matches!(operation.outcome, Outcome::Ok(_));
        let is_fenced = |fence: &&Fence| fence.is_refused;
        self.operations.iter().filter(is_ok).count() + self.fences.values().filter(is_fenced).count()
    }

    /// Returns the numbers of all operations, in the same order.
    pub fn ids(&self) -> impl Iterator<Item = OperationId> + use<> {
        (0..self.operations.len() as u32).map(OperationId)
    }

    /// Returns the number of clients that took part.
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
    fn histories_of_one_clock_can_be_joined() {
        let mut writing = History::new();
        let (key, value) = (writing.key(b"k"), writing.value(b"v"));
        let write = writing.begin(3, key, Action::Set(value), 10);
        writing.end(write, 20, Outcome::Ok(Answer::Done));
        let mut reading = History::new();
        // The same bytes have different numbers here.
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
