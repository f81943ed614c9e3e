//! Whole values that were dispersed or fetched lately, by their names. A value never changes under its name, so nothing
//! here can be out of date.

use crate::shared::SharedBytes;
use kv::ValueId;
use std::collections::BTreeMap;

/// Values, up to so many bytes; whichever was not asked for the longest goes first.
#[derive(Debug)]
pub(super) struct Cache {
    values: BTreeMap<ValueId, (u64, SharedBytes)>,
    /// The values by when they were last asked for.
    order: BTreeMap<u64, ValueId>,
    uses: u64,
    bytes: usize,
    bytes_max: usize,
}

impl Cache {
    pub(super) fn new(bytes_max: usize) -> Cache {
        Cache { values: BTreeMap::new(), order: BTreeMap::new(), uses: 0, bytes: 0, bytes_max }
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&mut self, id: ValueId) -> Option<SharedBytes> {
        let (used, value) = self.values.get_mut(&id)?;
        self.order.remove(used);
        self.uses += 1;
        *used = self.uses;
        self.order.insert(self.uses, id);
        Some(value.clone())
    }

    pub(super) fn insert(&mut self, id: ValueId, value: &SharedBytes) {
        // One that would push out nearly all others is of more use elsewhere.
        if value.len() > self.bytes_max / 2 || self.get(id).is_some() {
            return;
        }
        self.uses += 1;
        self.bytes += value.len();
        self.values.insert(id, (self.uses, value.clone()));
        self.order.insert(self.uses, id);
        while self.bytes > self.bytes_max
            && let Some((_, id)) = self.order.pop_first()
        {
            self.bytes -= self.values.remove(&id).map_or(0, |(_, value)| value.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::Coordinator;

    #[test]
    fn what_was_not_asked_for_the_longest_makes_room() {
        let id = |counter| ValueId { coordinator: Coordinator::default(), counter };
        let value = |byte: u8| -> SharedBytes { vec![byte; 40].into() };
        let mut cache = Cache::new(100);
        cache.insert(id(1), &value(1));
        cache.insert(id(2), &value(2));
        assert_eq!(cache.get(id(1)), Some(value(1)));
        cache.insert(id(3), &value(3));
        assert_eq!(cache.get(id(2)), None);
        assert_eq!((cache.get(id(1)), cache.get(id(3))), (Some(value(1)), Some(value(3))));
        assert_eq!((cache.len(), cache.bytes()), (2, 80));
        cache.insert(id(4), &vec![0; 51].into());
        assert_eq!(cache.get(id(4)), None, "a value of more than half the room is not kept");
    }
}
