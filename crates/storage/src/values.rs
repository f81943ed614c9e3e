//! Values that are too large for memory: the interface of the store that keeps them.
//!
//! The log remains the truth: the values that it holds are put again at the next start. So the store need not be synced
//! before a client is answered, only before the log is shortened ([`ValueStore::persist`]). A value never changes under its
//! name, and is not read before it was put, so reads may run beside writes.

use std::sync::Arc;

use crate::Group;
use crate::disk::DiskError;

/// Length of a value's name in bytes.
pub const NAME_BYTES: usize = 30;

/// The name of a value in a node's store: its group's number, and the group's name for it. Names of one group are adjacent
/// in the order of their bytes, and later names follow earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ValueName(pub [u8; NAME_BYTES]);

impl ValueName {
    /// No name comes before it.
    pub const FIRST: ValueName = ValueName([0; NAME_BYTES]);

    /// The number of the value's group.
    pub fn group(&self) -> Group {
        Group::from_be_bytes([self.0[0], self.0[1]])
    }
}

/// A node's store of large values.
///
/// Values that were put outlive the process; they outlive a crash of the machine once [`persist`](ValueStore::persist) has
/// returned. Of values put since, a crash leaves a part. If a store is merely full, its errors say so
/// ([`DiskError::is_only_full`]), and nothing that was put is in doubt.
pub trait ValueStore: Send {
    /// Puts values, replacing those of the same names.
    ///
    /// # Errors
    /// [`DiskError`]. Some of the values may have been put.
    fn put(&mut self, values: &[(ValueName, Arc<Vec<u8>>)]) -> Result<(), DiskError>;

    /// Returns the value of that name, if there is one.
    ///
    /// # Errors
    /// [`DiskError`].
    fn get(&mut self, name: &ValueName) -> Result<Option<Vec<u8>>, DiskError>;

    /// Removes values. They need not exist.
    ///
    /// # Errors
    /// As with [`put`](ValueStore::put).
    fn remove(&mut self, names: &[ValueName]) -> Result<(), DiskError>;

    /// Returns when everything done before is safe.
    ///
    /// # Errors
    /// [`DiskError`]: then it is unknown what is safe, as with [`Disk::sync`](crate::Disk::sync).
    fn persist(&mut self) -> Result<(), DiskError>;

    /// Calls `each` with every name from `from` on, in ascending order, until it returns false.
    ///
    /// # Errors
    /// [`DiskError`].
    fn names(&mut self, from: &ValueName, each: &mut dyn FnMut(ValueName) -> bool) -> Result<(), DiskError>;
}

/// The result of a piece of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueOutcome {
    /// It is done.
    Done,
    /// The value, if one has that name.
    Value(Option<Vec<u8>>),
    /// Names, in ascending order.
    Names(Vec<ValueName>),
}

/// The outcome of a piece of work, or why it failed.
pub type ValueResult = Result<ValueOutcome, DiskError>;

/// Work with values, to be done beside the worker's loop. Its result is passed back to the node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the node waits for its result"]
pub enum ValueWork {
    /// [`ValueStore::put`]
    Put(Vec<(ValueName, Arc<Vec<u8>>)>),
    /// [`ValueStore::get`]
    Get(ValueName),
    /// [`ValueStore::names`]: at most `count` of them.
    Names {
        /// Names before this one are left out.
        from: ValueName,
        /// The most names.
        count: usize,
    },
    /// [`ValueStore::remove`]
    Remove(Vec<ValueName>),
    /// [`ValueStore::persist`]
    Persist,
}

impl ValueWork {
    /// Whether it changes nothing: then it may run beside others. All other work must be done one piece at a time, in the
    /// order in which it was handed out.
    pub fn is_read(&self) -> bool {
        matches!(self, ValueWork::Get(_) | ValueWork::Names { .. })
    }

    /// Runs the work immediately.
    ///
    /// # Errors
    /// Any error of the store.
    pub fn run(&self, store: &mut dyn ValueStore) -> ValueResult {
        match self {
            ValueWork::Put(values) => store.put(values)?,
            ValueWork::Get(name) => return store.get(name).map(ValueOutcome::Value),
            ValueWork::Names { from, count } => {
                let mut names = Vec::new();
                let mut add = |name| {
                    names.push(name);
                    names.len() < *count
                };
                store.names(from, &mut add)?;
                return Ok(ValueOutcome::Names(names));
            }
            ValueWork::Remove(names) => store.remove(names)?,
            ValueWork::Persist => store.persist()?,
        }
        Ok(ValueOutcome::Done)
    }
}
