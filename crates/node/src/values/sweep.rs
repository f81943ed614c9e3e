//! Large values at a start: the values in the log are put again, every value to which a table refers must be in the
//! store, and values to which nothing refers are removed.

use super::{name_of, reference_of};
use crate::disk::start_error::StartError;
use crate::groups::Groups;
use crate::groups::replica::Replica;
use kv::Reference;
use kv::table::Spilled;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use storage::{ValueName, ValueStore};

/// The most bytes of values that are put at once.
const PUT_BYTES: usize = 4 << 20;

/// What a start has found about large values.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// Whether a replica keeps values on the disk, or did.
    pub(super) is_on: bool,
    /// Values released after the checkpoint that was read.
    pub(super) released: BTreeMap<u16, BTreeSet<Reference>>,
    /// Values to which nothing refers: the process crashed before they were removed.
    pub(super) leftovers: Vec<(u16, Reference)>,
    /// Values that were not put yet.
    values: Vec<(ValueName, Arc<Vec<u8>>)>,
    bytes: usize,
}

impl Sweep {
    /// Whether a keyspace keeps values on the disk, or did.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Takes what a replica of a group has spilled while it took a record.
    pub(crate) fn follow(
        &mut self,
        group: u16,
        spilled: Spilled,
        store: &mut dyn ValueStore,
    ) -> Result<(), StartError> {
        self.is_on = true;
        let Spilled { kept, released } = spilled;
        for (reference, value) in kept {
            self.bytes += value.len();
            self.values.push((name_of(group, &reference), value));
        }
        if !released.is_empty() {
            self.released.entry(group).or_default().extend(released);
        }
        if self.bytes > PUT_BYTES {
            self.put(store)?;
        }
        Ok(())
    }

    fn put(&mut self, store: &mut dyn ValueStore) -> Result<(), StartError> {
        self.bytes = 0;
        store.put(&std::mem::take(&mut self.values)).map_err(|error| StartError::Values(error.to_string()))
    }

    /// Ends the start, after all records.
    ///
    /// # Errors
    /// [`StartError::Values`] when the store lacks a value to which a table refers, or fails.
    pub(crate) fn end(&mut self, groups: &Groups, store: &mut dyn ValueStore) -> Result<(), StartError> {
        self.put(store)?;
        let mut found: BTreeMap<u16, usize> = BTreeMap::new();
        let (released, leftovers) = (&self.released, &mut self.leftovers);
        let mut look_at = |name: ValueName| {
            let (group, reference) = (name.group(), reference_of(&name));
            let replica = groups.get(group).and_then(|group| group.replica.as_ref());
            if replica.is_some_and(|replica| refers_to(replica, &reference)) {
                *found.entry(group).or_default() += 1;
            } else if !released.get(&group).is_some_and(|released| released.contains(&reference)) {
                leftovers.push((group, reference));
            }
            true
        };
        store
            .names(&ValueName::FIRST, &mut look_at)
            .map_err(|error| StartError::Values(error.to_string()))?;
        self.is_on |= !found.is_empty() || !self.leftovers.is_empty();
        for (id, group) in groups.iter() {
            let referred = group.replica.as_ref().map_or(0, |replica| {
                replica.table().spilled_len() + replica.fragments().map_or(0, |it| it.stored_len())
            });
            let lacking = referred - found.get(&id).copied().unwrap_or(0).min(referred);
            self.is_on |= group.keyspace.spills();
            if lacking > 0 {
                let name = group.name();
                return Err(StartError::Values(format!(
                    "the folder 'values' lacks {lacking} of {referred} values of keyspace '{name}'"
                )));
            }
        }
        Ok(())
    }
}

/// Whether the table, or a fragment, expects this value in the store.
fn refers_to(replica: &Replica, reference: &Reference) -> bool {
    replica.table().refers_to(reference) || replica.fragments().is_some_and(|it| it.stores(reference))
}
