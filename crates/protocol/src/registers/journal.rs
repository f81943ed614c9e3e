//! The replica's records: which ones it has emitted in this incarnation, and which of its state they make durable.
//!
//! Everything that a coordinator counts must survive a crash: that a replica holds a register (an acknowledgement states
//! this, or an answer with the tag), that it has taken a step of a collection, that it knows of another member's new
//! incarnation. So a message that states one of these waits for its record; all others leave at once. A replica that
//! keeps no records emits none, and no message waits.

use super::lives::{KnownLives, Lives};
use super::message::Bounds;
use super::record::Change;
use crate::effects::Effects;
use kv::Register;
use std::collections::{BTreeMap, VecDeque};

/// A turn's changes are split into records of about this size.
const RECORD_BYTES: usize = 1 << 20;

/// Counts this incarnation's records, and knows which of them are durable.
#[derive(Debug)]
pub struct Journal {
    is_kept: bool,
    /// This turn's changes, and where all but the last of their records end.
    gathered: Vec<u8>,
    ends: Vec<usize>,
    /// The number of records emitted in this incarnation.
    pub(super) emitted: u64,
    /// The last durable record.
    durable: u64,
    /// The record that makes durable all registers that were held when it was made: the end of a snapshot.
    pub(super) all: u64,
    /// The last record of each register that may not be durable yet, by the digest of its key. Two keys with the same
    /// digest wait for each other, which does no harm.
    pub(super) registers: BTreeMap<u64, u64>,
    /// The same in the order of the records.
    pub(super) undurable: VecDeque<(u64, u64)>,
    /// The record that must be durable before any message leaves.
    life: u64,
    bounds: Bounds,
    /// False while the disk takes only what it must.
    has_room: bool,
}

impl Journal {
    pub(super) fn new(is_kept: bool) -> Journal {
        Journal {
            is_kept,
            gathered: Vec::new(),
            ends: Vec::new(),
            emitted: 0,
            durable: 0,
            all: 0,
            registers: BTreeMap::new(),
            undurable: VecDeque::new(),
            life: 0,
            bounds: Bounds::default(),
            has_room: true,
        }
    }

    /// Sets whether there is room for records.
    pub(super) fn set_room(&mut self, has_room: bool) {
        self.has_room = has_room;
    }

    /// Whether there is room for records of what others send.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.has_room || !self.is_kept
    }

    /// Whether it emits records at all.
    #[inline]
    pub fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Adds a change to this turn's records and returns the number of its record; 0 when no records are kept.
    pub(super) fn record(&mut self, change: &Change<'_>) -> u64 {
        if !self.is_kept {
            return 0;
        }
        change.encode(&mut self.gathered);
        let record = self.emitted + self.ends.len() as u64 + 1;
        if self.gathered.len() - self.gathered_whole() >= RECORD_BYTES {
            self.ends.push(self.gathered.len());
        }
        record
    }

    fn gathered_whole(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Records a register that was taken.
    #[inline]
    pub(super) fn record_register(&mut self, key: &[u8], register: Register<'_>) {
        if self.is_kept {
            let record = self.record(&Change::Register { key, register });
            let digest = digest(key);
            self.registers.insert(digest, record);
            self.undurable.push_back((record, digest));
        }
    }

    /// Records newly learned incarnations.
    pub(super) fn record_lives(&mut self, starts: u64, lives: &Lives) {
        self.life = self.record(&Change::Lives { starts, lives: KnownLives::of(&lives.known_bytes()) });
    }

    /// Records the group's progress in the collection of tombstones.
    pub(super) fn record_bounds(&mut self, bounds: Bounds) {
        if self.is_kept && self.bounds != bounds {
            self.bounds = bounds;
            self.record(&Change::Bounds(bounds));
        }
    }

    /// Records that the replica vouches for everything that it holds. If it crashes before that is durable, it has not
    /// answered any request.
    pub(super) fn record_vouches(&mut self) {
        self.all = self.record(&Change::Vouches);
        self.life = self.all;
    }

    /// Returns the record that must be durable before a message may report the replica's present register of a key. 0: it
    /// is durable.
    #[inline]
    pub(super) fn register(&self, key: &[u8]) -> u64 {
        if self.registers.is_empty() && self.all <= self.durable {
            return 0;
        }
        let record = self.registers.get(&digest(key)).copied().unwrap_or(0).max(self.all);
        if record <= self.durable { 0 } else { record }
    }

    /// Returns the record that must be durable before any message leaves: every message carries the incarnations that its
    /// sender knows, its own among them.
    #[inline]
    pub fn life(&self) -> u64 {
        self.life
    }

    /// Returns the record that makes everything so far durable. 0: there is none.
    pub(super) fn last(&self) -> u64 {
        let begun = u64::from(self.gathered.len() > self.gathered_whole());
        self.emitted + self.ends.len() as u64 + begun
    }

    /// Ends the turn: emits its records.
    #[inline]
    pub fn flush(&mut self, effects: &mut Effects) {
        if self.gathered.is_empty() {
            return;
        }
        if self.gathered.len() > self.gathered_whole() {
            self.ends.push(self.gathered.len());
        }
        let mut start = 0;
        for end in self.ends.drain(..) {
            effects.record(|out| out.extend_from_slice(&self.gathered[start..end]));
            self.emitted += 1;
            start = end;
        }
        self.gathered.clear();
        self.gathered.shrink_to(RECORD_BYTES);
    }

    /// Notes that records are durable up to this one.
    pub(super) fn durable(&mut self, record: u64) {
        self.durable = self.durable.max(record.min(self.emitted));
        while let Some((record, digest)) = self.undurable.pop_front_if(|(record, _)| *record <= self.durable)
        {
            if self.registers.get(&digest) == Some(&record) {
                self.registers.remove(&digest);
            }
        }
    }

    /// Returns the last durable record.
    pub fn durable_to(&self) -> u64 {
        self.durable
    }
}

/// Returns a number that is almost always different for different keys.
fn digest(key: &[u8]) -> u64 {
    let mut sum = key.len() as u64;
    let mut mix = |part: u64| sum = (sum ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let (words, rest) = key.as_chunks::<8>();
    words.iter().for_each(|word| mix(u64::from_le_bytes(*word)));
    mix(rest.iter().fold(0, |part, byte| part << 8 | u64::from(*byte)));
    mix(0);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGISTER: Register<'static> =
        Register { version: 1 << 20, deadline: Register::NEVER, value: b"value" };

    #[test]
    fn a_register_may_be_reported_when_the_record_of_its_last_write_is_durable() {
        let (mut journal, mut effects) = (Journal::new(true), Effects::default());
        journal.record_register(b"a", REGISTER);
        journal.record_register(b"b", REGISTER);
        journal.flush(&mut effects);
        journal.record_register(b"a", REGISTER);
        journal.flush(&mut effects);
        assert_eq!(effects.records.len(), 2);
        assert_eq!([journal.register(b"a"), journal.register(b"b"), journal.register(b"c")], [2, 1, 0]);
        journal.durable(1);
        assert_eq!([journal.register(b"a"), journal.register(b"b")], [2, 0]);
        journal.durable(2);
        assert_eq!(journal.register(b"a"), 0);
        assert!(journal.registers.is_empty() && journal.undurable.is_empty());
    }

    #[test]
    fn records_are_numbered_before_they_leave_and_a_turn_may_need_several() {
        let (mut journal, mut effects) = (Journal::new(true), Effects::default());
        let value = vec![7; RECORD_BYTES];
        assert_eq!(journal.last(), 0);
        for key in [b"a", b"b"] {
            journal.record_register(key, Register { value: &value, ..REGISTER });
        }
        journal.record_register(b"c", REGISTER);
        assert_eq!([b"a", b"b", b"c"].map(|key| journal.register(key)), [1, 2, 3]);
        assert_eq!(journal.last(), 3);
        journal.flush(&mut effects);
        assert_eq!((effects.records.len(), journal.last()), (3, 3));
        journal.record_vouches();
        assert_eq!(
            (journal.last(), journal.register(b"never written")),
            (4, 4),
            "as everything that is held"
        );
        journal.flush(&mut effects);
        journal.durable(4);
        assert_eq!(journal.register(b"c"), 0);
    }

    #[test]
    fn without_a_durability_nothing_is_recorded_and_nothing_waits() {
        let (mut journal, mut effects) = (Journal::new(false), Effects::default());
        journal.record_register(b"a", REGISTER);
        journal.record_vouches();
        journal.flush(&mut effects);
        assert_eq!((journal.register(b"a"), journal.last(), effects.records.len()), (0, 0, 0));
    }
}
