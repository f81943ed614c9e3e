//! The requests that wait for one lock, in order of arrival. An owner is in a queue at most once.

use crate::command::{Hold, WaiterId};
use std::collections::BTreeMap;

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) id: WaiterId,
    pub(super) owner: Box<[u8]>,
    pub(super) hold: Hold,
}

/// The requests that wait for one lock. Place numbers only grow, so that a request in the middle can be removed cheaply.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    by_place: BTreeMap<u64, Waiter>,
    by_owner: BTreeMap<Box<[u8]>, u64>,
    by_id: BTreeMap<WaiterId, u64>,
}

/// Only the order matters: a snapshot transfer may renumber the places.
impl PartialEq for Queue {
    fn eq(&self, other: &Queue) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Queue {}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.by_place.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Waiter> {
        self.by_place.values()
    }

    pub(super) fn has_owner(&self, owner: &[u8]) -> bool {
        self.by_owner.contains_key(owner)
    }

    /// Adds a request at the end, or in the place of an earlier request by the same owner, which is returned.
    pub(super) fn push(&mut self, waiter: Waiter) -> Option<Waiter> {
        let behind = self.by_place.last_key_value().map_or(0, |(place, _)| place + 1);
        let place = *self.by_owner.entry(waiter.owner.clone()).or_insert(behind);
        let before = self.by_place.insert(place, waiter.clone());
        if let Some(before) = &before {
            self.by_id.remove(&before.id);
        }
        self.by_id.insert(waiter.id, place);
        before
    }

    pub(super) fn pop(&mut self) -> Option<Waiter> {
        let first = self.by_place.first_key_value().map(|(_, waiter)| waiter.id)?;
        self.remove(first)
    }

    pub(super) fn remove(&mut self, id: WaiterId) -> Option<Waiter> {
        let place = self.by_id.remove(&id)?;
        let waiter = self.by_place.remove(&place)?;
        self.by_owner.remove(&waiter.owner);
        Some(waiter)
    }
}
