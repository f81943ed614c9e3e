//! Values that are too large for memory: what is asked of the store that keeps them.
//!
//! The log remains the truth: what it holds is put again at the next start. So a store need not be synced before
//! anybody waits for it; it is when the log is to be shortened ([`ValueStore::persist`]). A value never changes under its
//! name, and is not read before it was put, so reads may run beside writes.

use std::sync::Arc;

use crate::Group;
use crate::disk::DiskError;

/// Bytes of a value's name.
pub const NAME_BYTES: usize = 30;

/// The name of a value in a node's store: its group's number, and what the group calls it. Names of a group are close to
/// each other in the order of their bytes, and later ones come behind earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ValueName(pub [u8; NAME_BYTES]);

impl ValueName {
    /// The number of its group.
    pub fn group(&self) -> Group {
        Group::from_be_bytes([self.0[0], self.0[1]])
    }
}

/// Where a node keeps its large values.
///
/// What was put outlives the process, and a crash of the machine once [`persist`](ValueStore::persist) has said so; of what
/// came later a crash leaves a part. The errors of one that is only full say so ([`DiskError::is_only_full`]), and nothing
/// that was put is in doubt then.
pub trait ValueStore: Send {
    /// Puts values, in place of those of the same names.
    ///
    /// # Errors
    /// [`DiskError`]. Some may have been put.
    fn put(&mut self, values: &[(ValueName, Arc<Vec<u8>>)]) -> Result<(), DiskError>;

    /// A value, if there is one of that name.
    ///
    /// # Errors
    /// [`DiskError`].
    fn get(&mut self, name: &ValueName) -> Result<Option<Vec<u8>>, DiskError>;

    /// Removes values. There may be none of these names.
    ///
    /// # Errors
    /// As with [`put`](ValueStore::put).
    fn remove(&mut self, names: &[ValueName]) -> Result<(), DiskError>;

    /// Returns when everything before is safe.
    ///
    /// # Errors
    /// [`DiskError`]: then nobody knows what is safe, as with [`Disk::sync`](crate::Disk::sync).
    fn persist(&mut self) -> Result<(), DiskError>;

    /// Tells all names, in ascending order.
    ///
    /// # Errors
    /// [`DiskError`].
    fn names(&mut self, each: &mut dyn FnMut(ValueName)) -> Result<(), DiskError>;
}

/// What is to be done with the values beside the worker's loop. Whoever has handed it out is told what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "whoever handed it out waits to be told what came of it"]
pub enum ValueWork {
    /// [`ValueStore::put`]
    Put(Vec<(ValueName, Arc<Vec<u8>>)>),
    /// [`ValueStore::get`]
    Get(ValueName),
    /// [`ValueStore::remove`]
    Remove(Vec<ValueName>),
    /// [`ValueStore::persist`]
    Persist,
}

impl ValueWork {
    /// True when it changes nothing: it may run beside others. All else is to be done in the order in which it was handed
    /// out, and there is one piece of it at a time.
    pub fn is_read(&self) -> bool {
        matches!(self, ValueWork::Get(_))
    }

    /// Does it, here and now. A read tells the value.
    ///
    /// # Errors
    /// What the store says.
    pub fn run(&self, store: &mut dyn ValueStore) -> Result<Option<Vec<u8>>, DiskError> {
        match self {
            ValueWork::Put(values) => store.put(values).map(|()| None),
            ValueWork::Get(name) => store.get(name),
            ValueWork::Remove(names) => store.remove(names).map(|()| None),
            ValueWork::Persist => store.persist().map(|()| None),
        }
    }
}
