//! The table as a set of registers: each key on its own, ordered by the versions that its writers chose.
//!
//! The quorum protocols do not order records: they order the writes of one key, by tags. Here a tag is the entry's
//! version, and a write takes effect if its version is higher than the key's. A deleted key keeps its version: its
//! entry stays as a tombstone, whose deadline lies before all times, so that every read treats it as missing.

use super::DELETED;
use super::entry::Entry;
use super::index::KeyHash;
use super::kind::Kind;
use super::{NO_DEADLINE, Record, Table};
use crate::{UnixMs, Version};

/// The content of a key, and the write that stored it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register<'a> {
    /// The tag of the write; 0 if the key was never written.
    pub version: Version,
    /// The time from which the key is missing, in milliseconds since the Unix epoch: [`Register::NEVER`] for no expiry,
    /// 0 if it was deleted.
    pub deadline: UnixMs,
    /// The value; empty if the key was deleted.
    pub value: &'a [u8],
}

impl Register<'_> {
    /// The deadline of a key that does not expire.
    pub const NEVER: UnixMs = NO_DEADLINE;

    /// A key that was never written.
    pub const UNWRITTEN: Register<'static> = Register { version: 0, deadline: DELETED, value: b"" };

    /// Whether a read at this time finds a value.
    pub fn is_live(&self, now: UnixMs) -> bool {
        self.deadline > now
    }

    /// Whether the key was deleted, or never written.
    pub fn is_deleted(&self) -> bool {
        self.deadline == DELETED
    }
}

impl Table {
    /// Returns the register of a key, tombstones and expired keys included.
    pub fn register(&self, key: &[u8]) -> Register<'_> {
        match self.find(self.index.hash(key), key) {
            Some((_, entry)) => {
                Register { version: entry.version(), deadline: entry.deadline(), value: entry.value() }
            }
            None => Register::UNWRITTEN,
        }
    }

    /// Stores the result of a write to a key, unless the key already has that write or a later one. Returns whether it
    /// was stored.
    pub fn put_register(&mut self, key: &[u8], register: Register<'_>) -> bool {
        let Register { version, deadline, value } = register;
        let record = Record { version, time: 0 };
        let hash = self.index.hash(key);
        match self.find(hash, key).map(|(place, entry)| (place, entry.version())) {
            Some((_, held)) if held >= version => return false,
            Some((place, _)) => drop(self.overwrite(place, value, deadline, Kind::Plain, record)),
            None => self.insert(hash, Entry::new(key, value, record.stamp(deadline, Kind::Plain)), record),
        }
        true
    }

    /// Removes a key entirely if it is a tombstone of this version. Returns whether it was.
    pub fn remove_tombstone(&mut self, key: &[u8], version: Version) -> bool {
        let hash = self.index.hash(key);
        match self.find(hash, key) {
            Some((place, entry)) if entry.version() == version && entry.deadline() == DELETED => {
                self.remove(place, Record { version, time: 0 });
                true
            }
            _ => false,
        }
    }

    /// Turns up to `keys_max` keys whose deadline is at or before `until` into tombstones with their current versions,
    /// and passes each to `visit`. Returns how many there were. Among keys with the same deadline, the seed decides the
    /// order.
    pub fn bury_expired(
        &mut self,
        until: UnixMs,
        keys_max: usize,
        mut visit: impl FnMut(&[u8], Version),
    ) -> usize {
        let mut count = 0;
        while count < keys_max
            && let Some((place, entry)) = self.first_to_expire(until)
        {
            let version = entry.version();
            visit(entry.key(), version);
            self.overwrite(place, b"", DELETED, Kind::Plain, Record { version, time: 0 });
            self.statistics.expired += 1;
            count += 1;
        }
        count
    }

    /// Passes about `keys_max` keys from a cursor on, tombstones and expired ones included, to `visit`, and returns the
    /// cursor for the rest. 0 means both start and end. A key that exists throughout is passed exactly once.
    pub fn walk_registers(
        &self,
        cursor: u64,
        keys_max: usize,
        mut visit: impl FnMut(&[u8], Register<'_>),
    ) -> u64 {
        let mut next = KeyHash::from_number(cursor);
        for (count, (hash, entry)) in self.index.walk_from(next).enumerate() {
            if hash >= next && count >= keys_max.max(1) {
                return next.number();
            }
            let (version, deadline) = (entry.version(), entry.deadline());
            visit(entry.key(), Register { version, deadline, value: entry.value() });
            next = hash.next();
        }
        0
    }

    /// The number of tombstones.
    pub fn tombstones(&self) -> usize {
        self.tombstones
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Command, List, ReplyBuffer};

    fn live(version: Version, value: &[u8]) -> Register<'_> {
        Register { version, deadline: Register::NEVER, value }
    }

    fn deleted(version: Version) -> Register<'static> {
        Register { version, ..Register::UNWRITTEN }
    }

    #[test]
    fn a_register_keeps_the_write_with_the_highest_version() {
        let mut table = Table::new(1);
        assert_eq!(table.register(b"k"), Register::UNWRITTEN);
        assert!(table.put_register(b"k", live(5, b"five")));
        assert!(!table.put_register(b"k", live(5, b"again")), "a write that is there already");
        assert!(!table.put_register(b"k", live(4, b"four")));
        assert_eq!(table.register(b"k"), live(5, b"five"));
        assert!(table.put_register(b"k", live(6, b"six")));
        assert_eq!(table.register(b"k"), live(6, b"six"));
    }

    #[test]
    fn a_tombstone_reads_as_missing_and_keeps_older_writes_out() {
        let (mut table, mut out, mut scratch) = (Table::new(1), ReplyBuffer::new(), Vec::new());
        table.put_register(b"k", live(5, b"five"));
        assert!(table.put_register(b"k", deleted(6)));
        assert!(!table.put_register(b"k", live(5, b"five")), "a write that comes late");
        assert_eq!((table.len(), table.tombstones(), table.expires()), (0, 1, 0));
        table.read(&Command::Exists { keys: List::build(&mut scratch, [&b"k"[..]]) }, 0, &mut out);
        table.read(&Command::Keys { pattern: b"*" }, 0, &mut out);
        let mut expected = ReplyBuffer::new();
        expected.integer(0);
        expected.array(0);
        assert_eq!(out.as_bytes(), expected.as_bytes());

        assert!(!table.remove_tombstone(b"k", 5), "not that one");
        assert!(table.remove_tombstone(b"k", 6));
        assert_eq!((table.register(b"k"), table.tombstones()), (Register::UNWRITTEN, 0));
        assert!(table.put_register(b"k", live(5, b"five")), "nothing is left that would keep it out");
        assert!(!table.remove_tombstone(b"k", 5), "it is not deleted");
    }

    #[test]
    fn a_walk_returns_every_key_and_tombstone_once() {
        let mut table = Table::new(1);
        let keys: Vec<Vec<u8>> = (0..100).map(|number: u32| number.to_le_bytes().to_vec()).collect();
        for (key, version) in keys.iter().zip(1..) {
            table.put_register(key, if version % 2 == 0 { deleted(version) } else { live(version, b"v") });
        }
        let (mut visited, mut cursor, mut steps) = (Vec::new(), 0, 0);
        loop {
            cursor = table
                .walk_registers(cursor, 7, |key, register| visited.push((register.version, key.to_vec())));
            steps += 1;
            if cursor == 0 {
                break;
            }
        }
        visited.sort();
        let expected: Vec<_> = (1..).zip(keys).collect();
        assert_eq!((visited, steps), (expected, 15));
    }

    #[test]
    fn an_expired_key_becomes_a_tombstone_with_its_version() {
        let mut table = Table::new(1);
        for (key, deadline) in [(b"a", 10), (b"b", 20), (b"c", 30)] {
            table.put_register(key, Register { version: deadline, deadline, value: b"v" });
        }
        let mut buried = Vec::new();
        table.bury_expired(20, 1, |key, version| buried.push((key.to_vec(), version)));
        table.bury_expired(20, 9, |key, version| buried.push((key.to_vec(), version)));
        assert_eq!(buried, [(b"a".to_vec(), 10), (b"b".to_vec(), 20)]);
        assert_eq!(table.register(b"a"), deleted(10));
        assert_eq!((table.len(), table.tombstones(), table.expires()), (1, 2, 1));
        assert!(table.put_register(b"a", live(11, b"again")));
        assert_eq!((table.len(), table.tombstones()), (2, 1));
    }
}
