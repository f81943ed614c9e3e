//! Restoring a replica from its records. Checkpoints consist of records too.
//!
//! A replica whose records show that it vouched for what it held continues at once, in a new incarnation: it has
//! forgotten nothing that it reported to others. A replica that had not vouched yet, or whose records no longer count, is
//! as empty as one that keeps everything in memory only, and refills itself from the others. See [`crate::Replica`] for
//! what a node does with records.

use super::Registers;
use super::lives::{KnownLives, Life, Lives};
use super::record::Change;
use super::tag::Incarnation;
use crate::effects::Progress;
use crate::planted::Fault;
use crate::transfer::Checkpoint;
use kv::Table;
use kv::codec::{Malformed, Reader};

/// What the records of earlier incarnations contain.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// How often the node had been started when the memory began; 0: there is none.
    born: u64,
    /// Whether no earlier memory of this member has ever vouched for anything.
    first: bool,
    /// Whether it vouches for everything that it ever acknowledged.
    pub(super) vouches: bool,
    /// Whether it did so when this incarnation began.
    is_resumed: bool,
    /// Records were lost, or do not count: a memory that begins now is not this member's first.
    is_lost: bool,
    /// The known incarnations; `lives_of` is how often the node had been started when they were recorded.
    lives: Vec<Life>,
    lives_of: u64,
    /// See [`Replacement::lives_before`].
    lives_before: u64,
}

/// The fact that a node was replaced: its storage was lost, or an older copy was put in its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replacement {
    /// What was recorded before the node's start of this number does not count.
    pub since: u64,
    /// No earlier incarnation of the member had a greater number. Its later incarnations are numbered from here, since
    /// with other storage the count of starts begins again, and a tag must never be used twice.
    pub lives_before: u64,
    /// Whether no member may wait for what this one held: this member then counts as one that has never held anything.
    pub accepts_loss: bool,
}

impl Registers {
    /// Takes a record that an earlier incarnation made.
    ///
    /// # Errors
    /// [`Malformed`] when it is not a record.
    pub fn replay(&mut self, record: &[u8]) -> Result<(), Malformed> {
        if !self.journal.is_kept() {
            return Err(Malformed("a replica that keeps no records is given one"));
        }
        let mut reader = Reader::new(record);
        while !reader.is_empty() {
            self.take_change(Change::take(&mut reader)?)?;
        }
        Ok(())
    }

    fn take_change(&mut self, change: Change<'_>) -> Result<(), Malformed> {
        let memory = &mut self.memory;
        match change {
            Change::Born { starts, first } => {
                (memory.born, memory.first, memory.vouches) = (starts, first, false);
                self.table = Table::new(self.table_seed);
            }
            Change::Lives { starts, lives } => {
                memory.lives_of = starts;
                memory.lives = lives.iter().collect();
            }
            Change::Register { key, register } => drop(self.table.put_register(key, register)),
            Change::SnapshotChunk(entries) => drop(self.table.install(entries)?),
            Change::Cleared => self.table = Table::new(self.table_seed),
            Change::Bounds(bounds) => self.take_bounds(bounds),
            Change::Vouches => memory.vouches = true,
        }
        Ok(())
    }

    /// The node was replaced. Call this at each start from then on, after [`Registers::replay`] and before the group
    /// becomes known.
    pub fn replaced(&mut self, replacement: &Replacement) {
        self.memory.lives_before = replacement.lives_before;
        let has_begun_anew = replacement.since > 0 && self.memory.born >= replacement.since;
        if has_begun_anew || self.planted.has(Fault::RolledBackRegistersAnswer) {
            return;
        }
        // What was known about incarnations stays true.
        self.memory.born = 0;
        self.memory.vouches = false;
        self.memory.is_lost = !replacement.accepts_loss;
        self.table = Table::new(self.table_seed);
    }

    /// True when the records can be of this group.
    pub(super) fn records_fit(&self, members: usize) -> bool {
        self.memory.lives.is_empty() || self.memory.lives.len() == members
    }

    /// Begins a new incarnation with the contents of the records, after all of them were replayed. `starts` counts the
    /// node's starts, this one included. Returns false when no incarnation number is left.
    pub(super) fn begin_life(&mut self, starts: u64) -> bool {
        let own = self.group.own();
        let before = self.memory.lives.get(own).map_or(0, |life| u64::from(life.incarnation));
        // One more for each start since then, including starts whose records were lost: messages of those incarnations
        // carry their numbers.
        let counted = starts.saturating_add(self.memory.lives_before);
        let mut number = counted.max(before + starts.saturating_sub(self.memory.lives_of).max(1));
        assert!(number > before, "no incarnation has the number of an earlier one");
        if self.planted.has(Fault::TagReusedAfterRestart) && self.memory.vouches {
            number = before;
        }
        let incarnation = Incarnation::try_from(number);
        self.lives = Lives::new(&self.group, incarnation.unwrap_or(Incarnation::MAX), self.nonce);
        self.lives.restore(&self.memory.lives);
        self.memory.is_resumed = self.memory.vouches;
        if self.journal.is_kept() && !self.memory.vouches {
            if self.memory.born == 0 {
                self.memory.first = !self.memory.is_lost;
            }
            self.memory.born = starts;
            self.clear();
            self.journal.record(&Change::Born { starts, first: self.memory.first });
        }
        self.starts = starts;
        self.note_lives();
        incarnation.is_ok()
    }

    /// Begins a later incarnation: another one of this member had the same number, or a later one, so its storage was
    /// lost.
    pub(super) fn begin_later_life(&mut self, incarnation: Incarnation) {
        assert!(incarnation > self.lives.own(), "no incarnation has the number of an earlier one");
        self.lives.begin(incarnation, self.nonce);
        self.memory.first = false;
        self.journal.record(&Change::Born { starts: self.starts, first: false });
        self.note_lives();
    }

    /// True when this incarnation continues from its records, and vouches for them.
    pub fn has_resumed(&self) -> bool {
        self.memory.is_resumed
    }

    /// True when the replica keeps records, and its memory is the first in which this member vouches for anything.
    pub fn vouches_for_the_first_time(&self) -> bool {
        self.journal.is_kept() && self.memory.first && !self.memory.is_resumed
    }

    /// True when this member has never vouched for anything, as far as it knows. Without records: true when its node was
    /// never started before.
    pub(super) fn is_first(&self, starts: u64) -> bool {
        if self.journal.is_kept() { self.memory.first } else { starts <= 1 }
    }

    /// Drops what snapshots have brought so far.
    pub(super) fn forget_snapshots(&mut self) {
        self.clear();
        self.journal.record(&Change::Cleared);
    }

    /// Begins to vouch for what it holds.
    pub(super) fn vouch(&mut self) {
        self.memory.vouches = true;
        self.journal.record_bounds(self.bounds());
        self.journal.record_vouches();
    }

    /// See [`crate::Replica::begin_checkpoint`]. Returns false until the replica vouches for what it holds.
    pub fn begin_checkpoint(&mut self) -> bool {
        self.abandon_checkpoint();
        if !self.journal.is_kept() || !self.memory.vouches {
            return false;
        }
        let mut begin = Vec::new();
        let (starts, first) = (self.memory.born, self.memory.first);
        Change::Born { starts, first }.encode(&mut begin);
        let lives = self.lives.known_bytes();
        Change::Lives { starts: self.starts, lives: KnownLives::of(&lives) }.encode(&mut begin);
        Change::Bounds(self.bounds()).encode(&mut begin);
        self.checkpoint = Some(Checkpoint::new(self.table.begin_snapshot(), begin));
        true
    }

    /// See [`crate::Replica::checkpoint_record`].
    pub fn checkpoint_record(&mut self, bytes_max: usize, record: &mut Vec<u8>) -> Progress {
        let Some(checkpoint) = &mut self.checkpoint else { return Progress::Abandoned };
        let encode = |chunk: &[u8], out: &mut Vec<u8>| Change::SnapshotChunk(chunk).encode(out);
        if checkpoint.next(&mut self.table, bytes_max, record, encode) {
            return Progress::More;
        }
        Change::Vouches.encode(record);
        self.abandon_checkpoint();
        Progress::Whole
    }

    /// See [`crate::Replica::abandon_checkpoint`].
    pub fn abandon_checkpoint(&mut self) {
        if let Some(checkpoint) = self.checkpoint.take() {
            checkpoint.end(&mut self.table);
        }
    }
}
