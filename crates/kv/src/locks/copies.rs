//! Locks as bytes: the items of a snapshot. Each is self-contained, and their order has no meaning.

use super::queue::{Queue, Waiter};
use super::{BUCKETS, Lock, Locks, Session};
use crate::codec::{Malformed, Reader, Writer};
use crate::command::{Hold, WaiterId};

const FORGOTTEN: u8 = 1;
const LOCK: u8 = 2;
const SESSION: u8 = 3;

impl Locks {
    /// Calls `take` with every item of a snapshot.
    pub(crate) fn for_each_item(&self, mut take: impl FnMut(&[u8])) {
        let mut item = Vec::new();
        let mut put = |write: &dyn Fn(&mut Vec<u8>)| {
            item.clear();
            write(&mut item);
            take(&item);
        };
        for (bucket, token) in (0u16..).zip(&self.forgotten).filter(|(_, token)| **token > 0) {
            put(&|out| {
                out.put_u8(FORGOTTEN);
                out.put_u16(bucket);
                out.put_u64(*token);
            });
        }
        for (id, session) in &self.sessions {
            put(&|out| {
                out.put_u8(SESSION);
                out.put_u64(*id);
                out.put_u16(session.group);
                out.put_u64(session.lease_ms);
                out.put_u64(session.number);
            });
        }
        for (name, lock) in &self.held {
            put(&|out| {
                out.put_u8(LOCK);
                out.put_bytes(name);
                lock.encode(out);
            });
        }
    }

    /// Adds one item of a snapshot.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not an item.
    pub(crate) fn take_item(&mut self, item: &[u8]) -> Result<(), Malformed> {
        let mut reader = Reader::new(item);
        match reader.u8()? {
            FORGOTTEN => {
                let (bucket, token) = (usize::from(reader.u16()?), reader.u64()?);
                if bucket >= BUCKETS {
                    return Err(Malformed("a part of all names that there is not"));
                }
                self.forget(bucket, token);
            }
            SESSION => {
                let id = reader.u64()?;
                let (group, lease_ms, number) = (reader.u16()?, reader.u64()?, reader.u64()?);
                self.sessions.insert(id, Session { group, lease_ms, number });
            }
            LOCK => {
                let name = reader.bytes()?;
                let lock = Lock::decode(&mut reader)?;
                self.index(name, &lock);
                self.held.insert(name.into(), lock);
            }
            _ => return Err(Malformed("an unknown item of a copy of locks")),
        }
        if reader.is_empty() { Ok(()) } else { Err(Malformed("bytes behind an item of a copy of locks")) }
    }

    /// Rebuilds the indexes for a lock from a snapshot.
    fn index(&mut self, name: &[u8], lock: &Lock) {
        if let Hold::Session(session) = lock.hold {
            self.under.insert((session, name.into(), None));
        }
        for waiter in lock.queue.iter() {
            self.waiting.insert(waiter.id, name.into());
            if let Hold::Session(session) = waiter.hold {
                self.under.insert((session, name.into(), Some(waiter.id)));
            }
        }
    }
}

impl Lock {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_bytes(&self.owner);
        out.put_u64(self.token);
        self.hold.put(out);
        out.put_u64(self.number);
        WaiterId::put_optional(self.waiter, out);
        out.put_u32(self.queue.len() as u32);
        for Waiter { id, owner, hold } in self.queue.iter() {
            id.put(out);
            out.put_bytes(owner);
            hold.put(out);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Lock, Malformed> {
        let (owner, token) = (reader.bytes()?.into(), reader.u64()?);
        let (hold, number) = (Hold::take(reader)?, reader.u64()?);
        let (waiter, mut queue) = (WaiterId::take_optional(reader)?, Queue::default());
        for _ in 0..reader.u32()? {
            let id = WaiterId::take(reader)?;
            queue.push(Waiter { id, owner: reader.bytes()?.into(), hold: Hold::take(reader)? });
        }
        Ok(Lock { owner, token, hold, number, waiter, queue })
    }
}
