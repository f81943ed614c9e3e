//! The locks that one replica has granted: the holder of each key's lock, and when its lease ends.
//!
//! Each grant has a number that this replica never reuses, in any incarnation. A write names its grant and is accepted
//! only while exactly that grant lasts. So once a grant has ended, by release or because its lease has run out and the
//! key was granted to another holder, no write sent under it can be accepted any more, no matter how late it arrives or
//! what happened to its sender. This lets a coordinator withdraw a write.

use crate::contract::NodeId;
use crate::registers::Incarnation;
use std::collections::BTreeMap;

/// The holder of a lock: one attempt of one coordinator. The attempt's number contains the coordinator's incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// The coordinator.
    pub node: NodeId,
    /// The attempt's number, unique over all incarnations of the coordinator.
    pub attempt: u64,
}

/// A granted lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Its holder.
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

/// The low bits of a grant's or an attempt's number, which are a count; the bits above are the incarnation of the node
/// that assigned it.
pub(super) const COUNT_BITS: u32 = 40;

impl Locks {
    pub(super) fn new(lease_ms: u64) -> Locks {
        Locks {
            held: BTreeMap::new(),
            lease_us: lease_ms.saturating_mul(1000),
            grants: 0,
            next_sweep_us: 0,
            expired: 0,
        }
    }

    /// Begins an incarnation. Its grants contain its number, so they differ from those of earlier ones.
    pub(super) fn begin_life(&mut self, incarnation: Incarnation) {
        self.grants = self.grants.max(u64::from(incarnation) << COUNT_BITS);
    }

    /// A coordinator's node has begun this incarnation: ends its locks of earlier ones. Writes sent under them are
    /// refused from now on, as after any grant that has ended. True when there were such locks.
    pub(super) fn end_earlier_lives(&mut self, node: NodeId, incarnation: Incarnation) -> bool {
        let before = self.held.len();
        let is_over =
            |holder: Holder| holder.node == node && holder.attempt >> COUNT_BITS < u64::from(incarnation);
        self.held.retain(|_, lock| !is_over(lock.holder));
        self.held.len() < before
    }

    /// Grants a key to the first holder that requests it. A holder that requests it again gets the same grant again, with
    /// its remaining lease. `None` if another holder has the key.
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

    /// Frees a key, whichever attempt holds it. Only for a planted fault.
    pub(super) fn release_any(&mut self, key: &[u8]) -> bool {
        self.held.remove(key).is_some()
    }

    /// True when there are no locks, not even ones whose lease has run out.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Forgets locks whose lease has run out, once per lease time.
    pub(super) fn sweep(&mut self, now_us: u64) {
        if now_us < self.next_sweep_us {
            return;
        }
        self.next_sweep_us = now_us.saturating_add(self.lease_us);
        let before = self.held.len();
        self.held.retain(|_, lock| lock.expires_us > now_us);
        self.expired += (before - self.held.len()) as u64;
    }

    /// Returns the locks whose lease has not run out, in the order of their keys.
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
    fn a_key_is_granted_to_the_first_request_until_it_is_released_or_its_lease_runs_out() {
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
    fn a_repeated_request_gets_the_same_grant_and_no_longer_lease() {
        let mut locks = Locks::new(5);
        let grant = locks.acquire(0, b"k", holder(1));
        assert_eq!(locks.acquire(4000, b"k", holder(1)), grant);
        assert_eq!(locks.live(5000).count(), 0);
    }

    #[test]
    fn a_released_grant_is_never_reused() {
        let mut locks = Locks::new(5);
        let first = locks.acquire(0, b"k", holder(1)).unwrap();
        locks.release(b"k", holder(1));
        let again = locks.acquire(1, b"k", holder(1)).unwrap();
        assert!(!locks.is_held(1, b"k", holder(1), first), "a write that was sent under it is refused");
        assert!(locks.is_held(1, b"k", holder(1), again));
        let mut next_incarnation = Locks::new(5);
        next_incarnation.begin_life(2);
        assert!(next_incarnation.acquire(0, b"k", holder(1)).unwrap() > again);
    }

    #[test]
    fn locks_of_a_coordinator_that_has_begun_another_incarnation_are_free() {
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
    fn expired_locks_do_not_stay_in_memory() {
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
