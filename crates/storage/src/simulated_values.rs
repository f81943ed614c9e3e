//! A store of values in memory that loses, refuses and rots, for tests and the simulator.
//!
//! A power loss keeps a prefix of what was done since the last [`persist`](ValueStore::persist), like a store with a log
//! of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::disk::{Cause, DiskError, Verb};
use crate::simulated::Random;
use crate::values::{ValueName, ValueStore};

/// A change that is not safe: a name, and its value from then on.
type Change = (ValueName, Option<Arc<Vec<u8>>>);

/// Values in memory.
#[derive(Clone, Debug, Default)]
pub struct SimulatedValues {
    seen: BTreeMap<ValueName, Arc<Vec<u8>>>,
    /// What undoes each change that is not safe, in the order of the changes.
    undo: Vec<Change>,
    /// The most bytes that all values together may have; None means no limit.
    pub capacity: Option<u64>,
    /// The cause with which the next change or persist fails.
    pub refusal: Option<Cause>,
}

impl SimulatedValues {
    /// The number of bytes of all values.
    pub fn used_bytes(&self) -> u64 {
        self.seen.values().map(|value| value.len() as u64).sum()
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.seen.len()
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// Simulates a power loss of the machine: a random part of what was not safe is lost.
    pub fn lose_power(&mut self, random: &mut Random) {
        let kept = random.below(self.undo.len() as u64 + 1) as usize;
        while self.undo.len() > kept
            && let Some((name, before)) = self.undo.pop()
        {
            match before {
                Some(value) => self.seen.insert(name, value),
                None => self.seen.remove(&name),
            };
        }
        self.undo.clear();
        (self.capacity, self.refusal) = (None, None);
    }

    /// Returns the value of that name, if there is one.
    pub fn value(&self, name: &ValueName) -> Option<&Arc<Vec<u8>>> {
        self.seen.get(name)
    }

    /// Corrupts a byte of a value without reporting it. Returns false if there is none.
    pub fn rot(&mut self, place: u64) -> bool {
        let count = self.seen.len().max(1) as u64;
        let name = self.seen.keys().nth((place % count) as usize).copied();
        name.is_some_and(|name| self.rot_value(&name, (place >> 16) as usize))
    }

    /// Corrupts the byte of a value at `place`, counted in a ring. Returns false if there is none.
    pub fn rot_value(&mut self, name: &ValueName, place: usize) -> bool {
        let Some(value) = self.seen.get_mut(name) else { return false };
        let mut bytes = value.to_vec();
        let at = place % bytes.len().max(1);
        let Some(byte) = bytes.get_mut(at) else { return false };
        *byte ^= 1;
        *value = Arc::new(bytes);
        true
    }

    fn change(&mut self, name: ValueName, value: Option<Arc<Vec<u8>>>) {
        let before = match value {
            Some(value) => self.seen.insert(name, value),
            None => self.seen.remove(&name),
        };
        self.undo.push((name, before));
    }

    fn refuse(&mut self, verb: Verb) -> Result<(), DiskError> {
        match self.refusal.take() {
            Some(cause) => Err(DiskError { verb, file: "values".into(), cause }),
            None => Ok(()),
        }
    }
}

impl ValueStore for SimulatedValues {
    fn put(&mut self, values: &[(ValueName, Arc<Vec<u8>>)]) -> Result<(), DiskError> {
        self.refuse(Verb::Write)?;
        let bytes: u64 = values.iter().map(|(_, value)| value.len() as u64).sum();
        if self.capacity.is_some_and(|capacity| self.used_bytes() + bytes > capacity) {
            return Err(DiskError { verb: Verb::Write, file: "values".into(), cause: Cause::Full });
        }
        for (name, value) in values {
            self.change(*name, Some(Arc::clone(value)));
        }
        Ok(())
    }

    fn get(&mut self, name: &ValueName) -> Result<Option<Vec<u8>>, DiskError> {
        Ok(self.seen.get(name).map(|value| value.to_vec()))
    }

    fn remove(&mut self, names: &[ValueName]) -> Result<(), DiskError> {
        self.refuse(Verb::Write)?;
        for name in names {
            self.change(*name, None);
        }
        Ok(())
    }

    fn persist(&mut self) -> Result<(), DiskError> {
        self.refuse(Verb::Sync)?;
        self.undo.clear();
        Ok(())
    }

    fn names(&mut self, from: &ValueName, each: &mut dyn FnMut(ValueName) -> bool) -> Result<(), DiskError> {
        let _ = self.seen.range(from..).all(|(name, _)| each(*name));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: u8) -> ValueName {
        ValueName([number; crate::values::NAME_BYTES])
    }

    fn values(store: &mut SimulatedValues) -> Vec<ValueName> {
        let mut names = Vec::new();
        let mut add = |name| {
            names.push(name);
            true
        };
        store.names(&ValueName::FIRST, &mut add).expect("a list is never refused");
        names
    }

    #[test]
    fn a_power_loss_keeps_safe_values_and_a_prefix_of_the_rest() {
        let value = |byte| Arc::new(vec![byte; 10]);
        for seed in 0..50 {
            let mut store = SimulatedValues::default();
            store.put(&[(name(1), value(1))]).expect("there is room");
            store.persist().expect("nothing is refused");
            store.put(&[(name(2), value(2))]).expect("there is room");
            store.remove(&[name(1)]).expect("nothing is refused");
            store.lose_power(&mut Random::new(seed));
            let left = values(&mut store);
            let possible = [vec![name(1)], vec![name(1), name(2)], vec![name(2)]];
            assert!(possible.contains(&left), "{left:?}");
        }
    }

    #[test]
    fn values_beyond_the_capacity_are_refused() {
        let mut store = SimulatedValues { capacity: Some(15), ..SimulatedValues::default() };
        let value = Arc::new(vec![0; 10]);
        store.put(&[(name(1), Arc::clone(&value))]).expect("there is room");
        let error = store.put(&[(name(2), Arc::clone(&value))]).expect_err("there is none");
        assert!(error.is_only_full());
        store.remove(&[name(1)]).expect("nothing is refused");
        store.put(&[(name(2), value)]).expect("there is room again");
        assert_eq!((store.len(), store.used_bytes()), (1, 10));
    }
}
