//! Locks: who holds which, who waits for it, and which fencing tokens were given.
//!
//! A lock is a lease with a fencing token. This is the state machine of one group's locks: a pure function of the records
//! that are applied to it, so that all replicas agree on who holds what. It knows no clock. A lease ends by a record that
//! says so ([`Locks::expire`]), and it is the leader that measures when: on its own monotonic clock, from when the grant
//! took effect, or from when it began to lead if that is later. So a failover can make a lease longer and never shorter,
//! and no wall clock matters.
//!
//! * **A grant is a part of the record that frees the lock.** Whoever waits stands in a queue that all replicas know; when
//!   the lock is released, or its lease ends, the first of the queue holds it in that same step. A hand-off is one record.
//! * **A token is the version of the record that granted the lock.** Versions only grow, in every life and under every
//!   leader, so tokens do.
//! * **What is free is forgotten**, but for the highest token that a lock of its part of all names ever had: so a stale
//!   token is refused ([`Locks::allows`]) even when nothing is left of its lock, and memory does not grow with the names
//!   that were ever used. A token whose lock is free may be refused although it is the newest. It guards nothing any more.

use crate::Version;
use crate::codec::{Malformed, Reader, Writer};
use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};
use std::collections::{BTreeMap, VecDeque};

/// Longest name of an owner, in bytes.
pub const OWNER_BYTES_MAX: usize = 256;

/// Longest lease, in milliseconds: a day.
pub const LEASE_MS_MAX: u64 = 24 * 60 * 60 * 1000;

/// Most that may wait for one lock.
pub const WAITERS_MAX: usize = 10_000;

/// Parts of all names. It must not change: replicas would differ.
const BUCKETS: usize = 1024;

/// Names one request to wait, among all of a group. Whoever asks chooses it.
pub type WaiterId = u64;

/// Somebody who is granted a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Who, in the words of who asked.
    pub owner: Box<[u8]>,
    /// The request that waited for it, if it had to wait.
    pub waiter: Option<WaiterId>,
    /// Larger than all tokens that were given before.
    pub token: Version,
    /// How long it may be held, in milliseconds from now.
    pub lease_ms: u64,
}

/// What comes of a request for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// It is held from now on, or was by the same owner already: then with the same token.
    Granted(Grant),
    /// It will be granted when those before have had it: so many, the holder included.
    Queued {
        /// How many come before.
        behind: usize,
    },
    /// Another one holds it.
    Held {
        /// With this token.
        token: Version,
    },
    /// Too many wait for it already.
    Full,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Waiter {
    id: WaiterId,
    owner: Box<[u8]>,
    lease_ms: u64,
}

/// A lock that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lock {
    owner: Box<[u8]>,
    token: Version,
    lease_ms: u64,
    /// The request that waited for it, if it had to wait.
    waiter: Option<WaiterId>,
    /// Counts the times that the lease was given or renewed: whoever measures it must not end a newer one.
    leases: u64,
    /// Those who wait, the first to come first.
    waiters: VecDeque<Waiter>,
}

/// A lease, for whoever measures how long it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The grant.
    pub token: Version,
    /// Which of the leases of that grant: it is renewed.
    pub number: u64,
    /// How long it lasts, in milliseconds.
    pub lease_ms: u64,
}

/// How a lock stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing<'l> {
    /// Who holds it.
    pub owner: &'l [u8],
    /// Its lease.
    pub lease: Lease,
    /// How many wait.
    pub waiters: usize,
}

/// The locks of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locks {
    held: BTreeMap<Box<[u8]>, Lock>,
    /// Of each part of all names the highest token of a lock that is forgotten. Empty until one is.
    forgotten: Vec<Version>,
}

fn bucket_of(name: &[u8]) -> usize {
    const SECRETS: RapidSecrets = RapidSecrets::seed(0x6c6f_636b);
    (rapidhash_v3_seeded(name, &SECRETS) % BUCKETS as u64) as usize
}

impl Locks {
    /// Asks for a lock. Who says a waiter's id is put into the queue if the lock is held, in the order of the records.
    ///
    /// An owner that holds the lock, or waits for it, does not get it twice: a request that is repeated because its
    /// outcome was not known does no harm. A repeated one renews the lease, and in the queue takes the place of the
    /// one before.
    pub fn acquire(
        &mut self,
        name: &[u8],
        owner: &[u8],
        lease_ms: u64,
        waiter: Option<WaiterId>,
        version: Version,
    ) -> Acquired {
        let Some(lock) = self.held.get_mut(name) else {
            let (token, waiters) = (version, VecDeque::new());
            let lock = Lock { owner: owner.into(), token, lease_ms, waiter: None, leases: 0, waiters };
            self.held.insert(name.into(), lock);
            return Acquired::Granted(Grant { owner: owner.into(), waiter: None, token, lease_ms });
        };
        if *lock.owner == *owner {
            lock.lease_ms = lease_ms;
            lock.leases += 1;
            return Acquired::Granted(Grant {
                owner: owner.into(),
                waiter: None,
                token: lock.token,
                lease_ms,
            });
        }
        let Some(id) = waiter else { return Acquired::Held { token: lock.token } };
        let new = Waiter { id, owner: owner.into(), lease_ms };
        match lock.waiters.iter().position(|waiter| *waiter.owner == *owner) {
            Some(place) => {
                lock.waiters[place] = new;
                Acquired::Queued { behind: place + 1 }
            }
            None if lock.waiters.len() >= WAITERS_MAX => Acquired::Full,
            None => {
                lock.waiters.push_back(new);
                Acquired::Queued { behind: lock.waiters.len() }
            }
        }
    }

    /// Makes the lease last so long from now on; false if this token does not hold the lock.
    pub fn renew(&mut self, name: &[u8], token: Version, lease_ms: u64) -> bool {
        match self.held.get_mut(name).filter(|lock| lock.token == token) {
            Some(lock) => {
                lock.lease_ms = lease_ms;
                lock.leases += 1;
                true
            }
            None => false,
        }
    }

    /// The holder gives the lock back: `None` if this token does not hold it, else who holds it now, if anybody.
    pub fn release(&mut self, name: &[u8], token: Version, version: Version) -> Option<Option<Grant>> {
        self.held.get(name).filter(|lock| lock.token == token)?;
        Some(self.pass_on(name, version))
    }

    /// A lease has lasted as long as it was given for: `None` if it was renewed, or the lock released, before.
    pub fn expire(&mut self, name: &[u8], lease: Lease, version: Version) -> Option<Option<Grant>> {
        let is_this = |lock: &&Lock| (lock.token, lock.leases) == (lease.token, lease.number);
        self.held.get(name).filter(is_this)?;
        Some(self.pass_on(name, version))
    }

    /// A request waits no longer: its client has left, or its time is over. If it was granted the lock before this record,
    /// of which nobody has told it then, the lock is passed on: this is who holds it now, if that makes a difference.
    pub fn withdraw(&mut self, name: &[u8], id: WaiterId, version: Version) -> Option<Grant> {
        let lock = self.held.get_mut(name)?;
        lock.waiters.retain(|waiter| waiter.id != id);
        if lock.waiter == Some(id) { self.pass_on(name, version) } else { None }
    }

    /// Whether what is done with this token may be done: not if a newer one was granted since, nor if it is not the holder's.
    pub fn allows(&self, name: &[u8], token: Version) -> bool {
        match self.held.get(name) {
            Some(lock) => token == lock.token,
            None => token >= self.forgotten.get(bucket_of(name)).copied().unwrap_or(0) && token > 0,
        }
    }

    /// How a lock stands; `None` if it is free.
    pub fn standing(&self, name: &[u8]) -> Option<Standing<'_>> {
        let lock = self.held.get(name)?;
        let lease = Lease { token: lock.token, number: lock.leases, lease_ms: lock.lease_ms };
        Some(Standing { owner: &lock.owner, lease, waiters: lock.waiters.len() })
    }

    /// All that is held, by name: what a new leader begins to measure.
    pub fn leases(&self) -> impl Iterator<Item = (&[u8], Lease)> {
        self.held.iter().map(|(name, lock)| {
            (&**name, Lease { token: lock.token, number: lock.leases, lease_ms: lock.lease_ms })
        })
    }

    /// Number of locks that are held.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// True when none is held.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The lock goes to who has waited longest. The token is this record's: no other grant of the lock has it.
    fn pass_on(&mut self, name: &[u8], version: Version) -> Option<Grant> {
        let lock = self.held.get_mut(name)?;
        let Some(Waiter { id, owner, lease_ms }) = lock.waiters.pop_front() else {
            let token = lock.token;
            self.held.remove(name);
            self.forgotten.resize(BUCKETS, 0);
            let forgotten = &mut self.forgotten[bucket_of(name)];
            *forgotten = token.max(*forgotten);
            return None;
        };
        (lock.owner, lock.token, lock.lease_ms, lock.leases) = (owner.clone(), version, lease_ms, 0);
        lock.waiter = Some(id);
        Some(Grant { owner, waiter: Some(id), token: version, lease_ms })
    }

    /// Appends everything, for a copy of the group's state.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let forgotten = (0u32..).zip(&self.forgotten).filter(|(_, token)| **token > 0);
        out.put_u32(forgotten.clone().count() as u32);
        for (bucket, token) in forgotten {
            out.put_u32(bucket);
            out.put_u64(*token);
        }
        out.put_u32(self.held.len() as u32);
        for (name, lock) in &self.held {
            out.put_bytes(name);
            out.put_bytes(&lock.owner);
            out.put_u64(lock.token);
            out.put_u64(lock.lease_ms);
            out.put_u64(lock.leases);
            out.put_bool(lock.waiter.is_some());
            out.put_u64(lock.waiter.unwrap_or_default());
            out.put_u32(lock.waiters.len() as u32);
            for waiter in &lock.waiters {
                out.put_u64(waiter.id);
                out.put_bytes(&waiter.owner);
                out.put_u64(waiter.lease_ms);
            }
        }
    }

    /// Takes a copy off the front of `reader`.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are no copy.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Locks, Malformed> {
        let mut locks = Locks::default();
        for _ in 0..reader.u32()? {
            let (bucket, token) = (reader.u32()? as usize, reader.u64()?);
            locks.forgotten.resize(BUCKETS, 0);
            *locks.forgotten.get_mut(bucket).ok_or(Malformed("a part of all names that there is not"))? =
                token;
        }
        for _ in 0..reader.u32()? {
            let (name, owner) = (reader.bytes()?, reader.bytes()?.into());
            let (token, lease_ms, leases) = (reader.u64()?, reader.u64()?, reader.u64()?);
            let waiter = (reader.bool()?, reader.u64()?);
            let waiter = waiter.0.then_some(waiter.1);
            let mut waiters = VecDeque::new();
            for _ in 0..reader.u32()? {
                let (id, owner) = (reader.u64()?, reader.bytes()?.into());
                waiters.push_back(Waiter { id, owner, lease_ms: reader.u64()? });
            }
            if waiters.len() > WAITERS_MAX {
                return Err(Malformed("more wait for a lock than may"));
            }
            locks.held.insert(name.into(), Lock { owner, token, lease_ms, waiter, leases, waiters });
        }
        Ok(locks)
    }
}

#[cfg(test)]
mod tests;
