//! The locks that one replica has granted: who holds which key, and until when.
//!
//! Each grant has a number that this replica never gives again, in no life of it. A write names the grant under
//! which it comes and is taken only while that very grant lasts. So once a grant has ended, by release or because
//! its lease has run out and somebody else was granted the key, no write that was sent under it can be taken any
//! more, however late it arrives and whatever became of its sender: that is what lets a coordinator call a write
//! back.

use crate::contract::NodeId;
use crate::registers::Incarnation;
use std::collections::BTreeMap;

/// Who holds a lock: one attempt of one coordinator. Its number tells the coordinator's life, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// The coordinator.
    pub node: NodeId,
    /// The attempt, counted by the coordinator through all its lives.
    pub attempt: u64,
}

/// A lock that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// To whom.
    pub holder: Holder,
    /// The grant's number.
    pub grant: u64,
    /// When the lease runs out, on this replica's monotonic clock.
    pub expires_us: u64,
}

/// The locks that one replica has granted.
#[derive(Debug)]
pub(super) struct Locks {
    pub(super) held: BTreeMap<Box<[u8]>, Lock>,
    pub(super) lease_us: u64,
    pub(super) grants: u64,
    next_sweep_us: u64,
    /// Locks whose lease ran out before they were released.
    pub(super) expired: u64,
}

/// Bits of a grant's and of an attempt's number that count; those above are the life of who gave it.
pub(super) const COUNT_BITS: u32 = 40;

impl Locks {
    /// No locks.
    pub(super) fn new(lease_ms: u64) -> Locks {
        Locks {
            held: BTreeMap::new(),
            lease_us: lease_ms.saturating_mul(1000),
            grants: 0,
            next_sweep_us: 0,
            expired: 0,
        }
    }

    /// The replica's life has this number: grants are told from those of earlier lives by it.
    pub(super) fn begin_life(&mut self, incarnation: Incarnation) {
        self.grants = self.grants.max(u64::from(incarnation) << COUNT_BITS);
    }

    /// A coordinator's node has begun this life: whoever held locks in an earlier one is gone, and what it had sent is refused
    /// from now on, as behind any grant that has ended. True when there were such locks.
    pub(super) fn end_earlier_lives(&mut self, node: NodeId, incarnation: Incarnation) -> bool {
        let before = self.held.len();
        let is_over =
            |holder: Holder| holder.node == node && holder.attempt >> COUNT_BITS < u64::from(incarnation);
        self.held.retain(|_, lock| !is_over(lock.holder));
        self.held.len() < before
    }

    /// Grants a key to whoever asks first. The holder that asks again is told its grant again, with the lease that
    /// it has. `None`: somebody else holds it.
    pub(super) fn acquire(&mut self, now_us: u64, key: &[u8], holder: Holder) -> Option<u64> {
        let lock = Lock { holder, grant: self.grants + 1, expires_us: now_us.saturating_add(self.lease_us) };
        match self.held.get_mut(key) {
            Some(held) if held.expires_us > now_us => {
                return (held.holder == holder).then_some(held.grant);
            }
            Some(held) => {
                self.expired += 1;
                *held = lock;
            }
            None => drop(self.held.insert(key.into(), lock)),
        }
        self.grants += 1;
        Some(lock.grant)
    }

    /// True while this grant of the key lasts.
    pub(super) fn is_held(&self, now_us: u64, key: &[u8], holder: Holder, grant: u64) -> bool {
        self.held
            .get(key)
            .is_some_and(|lock| lock.holder == holder && lock.grant == grant && lock.expires_us > now_us)
    }

    /// Frees a key if this attempt holds it. True when it did.
    pub(super) fn release(&mut self, key: &[u8], holder: Holder) -> bool {
        let is_holder = self.held.get(key).is_some_and(|lock| lock.holder == holder);
        if is_holder {
            self.held.remove(key);
        }
        is_holder
    }

    /// Frees a key, whoever holds it. Only a planted fault does so.
    pub(super) fn release_any(&mut self, key: &[u8]) -> bool {
        self.held.remove(key).is_some()
    }

    /// True when there are none, with or without a lease that lasts.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Forgets locks whose lease has run out, once in a lease.
    pub(super) fn sweep(&mut self, now_us: u64) {
        if now_us < self.next_sweep_us {
            return;
        }
        self.next_sweep_us = now_us.saturating_add(self.lease_us);
        let before = self.held.len();
        self.held.retain(|_, lock| lock.expires_us > now_us);
        self.expired += (before - self.held.len()) as u64;
    }

    /// The locks whose lease has not run out, in the order of their keys.
    pub(super) fn live(&self, now_us: u64) -> impl Iterator<Item = (&[u8], &Lock)> {
        self.held.iter().filter(move |(_, lock)| lock.expires_us > now_us).map(|(key, lock)| (&**key, lock))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(attempt: u64) -> Holder {
        Holder { node: 1, attempt }
    }

    #[test]
    fn a_key_is_granted_to_the_first_who_asks_until_it_is_released_or_its_lease_runs_out() {
        let mut locks = Locks::new(5);
        let first = locks.acquire(0, b"k", holder(1)).unwrap();
        assert_eq!(locks.acquire(1, b"k", holder(2)), None);
        assert!(locks.is_held(4999, b"k", holder(1), first));
        assert!(!locks.is_held(5000, b"k", holder(1), first), "the lease has run out");
        let second = locks.acquire(5000, b"k", holder(2)).unwrap();
        assert_ne!(first, second);
        assert!(!locks.release(b"k", holder(1)), "it is not the holder any more");
        assert!(locks.release(b"k", holder(2)));
        assert_eq!((locks.live(5000).count(), locks.expired), (0, 1));
    }

    #[test]
    fn whoever_asks_again_has_the_same_grant_and_no_longer_a_lease() {
        let mut locks = Locks::new(5);
        let grant = locks.acquire(0, b"k", holder(1));
        assert_eq!(locks.acquire(4000, b"k", holder(1)), grant);
        assert_eq!(locks.live(5000).count(), 0);
    }

    #[test]
    fn a_grant_that_was_released_is_never_given_again() {
        let mut locks = Locks::new(5);
        let first = locks.acquire(0, b"k", holder(1)).unwrap();
        locks.release(b"k", holder(1));
        let again = locks.acquire(1, b"k", holder(1)).unwrap();
        assert!(!locks.is_held(1, b"k", holder(1), first), "a write that was sent under it is refused");
        assert!(locks.is_held(1, b"k", holder(1), again));
        let mut next_life = Locks::new(5);
        next_life.begin_life(2);
        assert!(next_life.acquire(0, b"k", holder(1)).unwrap() > again);
    }

    #[test]
    fn locks_of_a_coordinator_that_has_begun_another_life_are_free() {
        let mut locks = Locks::new(5);
        let (earlier, later) = (holder(1 << COUNT_BITS | 7), holder(2 << COUNT_BITS | 1));
        let other = Holder { node: 2, ..earlier };
        let grant = locks.acquire(0, b"a", earlier).unwrap();
        locks.acquire(0, b"b", later);
        locks.acquire(0, b"c", other);
        assert!(locks.end_earlier_lives(1, 2));
        assert!(!locks.is_held(1, b"a", earlier, grant), "what it had sent is refused");
        assert!(locks.acquire(1, b"a", later).is_some());
        assert!(locks.acquire(1, b"b", other).is_none() && locks.acquire(1, b"c", later).is_none());
        assert!(!locks.end_earlier_lives(1, 2));
    }

    #[test]
    fn locks_that_nobody_released_do_not_stay_in_memory() {
        let mut locks = Locks::new(5);
        locks.acquire(0, b"a", holder(1));
        locks.acquire(4000, b"b", holder(2));
        locks.sweep(5000);
        assert_eq!((locks.held.len(), locks.expired), (1, 1));
        locks.sweep(9500);
        assert_eq!(locks.held.len(), 1, "not looked at again within a lease");
        locks.sweep(10_000);
        assert_eq!((locks.held.len(), locks.expired), (0, 2));
    }
}
