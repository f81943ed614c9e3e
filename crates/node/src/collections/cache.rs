//! Recently used values, by name. The value of a name never changes, so nothing here can be out of date.

use std::collections::BTreeMap;
use std::ops::Deref;

/// Values of at most `bytes_max` bytes in all; the least recently used one is removed first.
#[derive(Debug)]
pub(crate) struct Cache<Name, Value> {
    values: BTreeMap<Name, (u64, Value)>,
    /// The names of the values, by when they were last used.
    order: BTreeMap<u64, Name>,
    uses: u64,
    bytes: usize,
    bytes_max: usize,
}

impl<Name: Copy + Ord, Value: Clone + Deref<Target: AsRef<[u8]>>> Cache<Name, Value> {
    pub(crate) fn new(bytes_max: usize) -> Cache<Name, Value> {
        Cache { values: BTreeMap::new(), order: BTreeMap::new(), uses: 0, bytes: 0, bytes_max }
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn get(&mut self, name: Name) -> Option<Value> {
        let (used, value) = self.values.get_mut(&name)?;
        self.order.remove(used);
        self.uses += 1;
        *used = self.uses;
        self.order.insert(self.uses, name);
        Some(value.clone())
    }

    pub(crate) fn insert(&mut self, name: Name, value: &Value) {
        let length = (**value).as_ref().len();
        // A value that would push out nearly all others is not worth its room.
        if length > self.bytes_max / 2 || self.get(name).is_some() {
            return;
        }
        self.uses += 1;
        self.bytes += length;
        self.values.insert(name, (self.uses, value.clone()));
        self.order.insert(self.uses, name);
        while self.bytes > self.bytes_max
            && let Some((_, name)) = self.order.pop_first()
        {
            self.bytes -= self.values.remove(&name).map_or(0, |(_, value)| (*value).as_ref().len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_least_recently_used_value_makes_room() {
        let value = |byte: u8| -> Arc<Vec<u8>> { Arc::new(vec![byte; 40]) };
        let mut cache = Cache::new(100);
        cache.insert(1, &value(1));
        cache.insert(2, &value(2));
        assert_eq!(cache.get(1), Some(value(1)));
        cache.insert(3, &value(3));
        assert_eq!(cache.get(2), None);
        assert_eq!((cache.get(1), cache.get(3)), (Some(value(1)), Some(value(3))));
        assert_eq!((cache.len(), cache.bytes()), (2, 80));
        cache.insert(4, &Arc::new(vec![0; 51]));
        assert_eq!(cache.get(4), None, "a value of more than half the room is not kept");
    }
}
