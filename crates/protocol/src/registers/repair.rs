//! Repair: in the background, replicas continuously compare what they hold, and send each other what is newer.
//!
//! An operation ends when a majority holds its value. The other members get it too, unless a message is lost; the next
//! sweep brings what was lost, so that replicas converge after faults, even for keys that no client reads. Storing a
//! newer value is always safe: a read would write it back.
//!
//! A replica that has walked through all of its keys, while nothing changed here and all others reported that they hold
//! the same, has nothing to repair, and stops until something changes. Keys that only others hold are found by their own
//! walks.

use super::members::MEMBERS_MAX;
use super::members::MemberSet;
use super::message::{Body, Entries, Tags};
use super::tag::Tag;
use super::{Registers, Timing};
use crate::effects::Effects;
use kv::{Register, UnixMs};

/// Bytes of values in one message of repair: the rest waits for the next sweep.
const ENTRIES_BYTES_MAX: usize = 1 << 20;

/// The most expired keys buried at once.
const BURIED_MAX: usize = 1000;

/// The state of the walk through the table.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    cursor: u64,
    tags: Vec<u8>,
    /// The number of the present walk.
    pub(super) walk: u64,
    part: u32,
    /// The first walk since this replica last changed; `changes` is its count of changes at that time.
    pub(super) unchanged_since: u64,
    pub(super) changes: u64,
    /// The members that have reported a whole walk without differences since then.
    pub(super) same: MemberSet,
    /// For each member the number of its walk under way, and how many parts of it have arrived, if all were the same
    /// here.
    walks: [(u64, Option<u32>); MEMBERS_MAX],
}

impl Sweep {
    /// Walks get numbers different from those of earlier incarnations, whose walks may still be answered.
    pub(super) fn new(nonce: u64) -> Sweep {
        Sweep { walk: nonce >> 1, ..Sweep::default() }
    }

    /// Whether all others hold the same as this replica for each key that it has.
    pub(super) fn is_done(&self, registers: &Registers) -> bool {
        self.changes == registers.changes && self.same == registers.group.others() && self.unchanged_since > 0
    }

    /// Notes that a member has found no difference in a whole walk of this replica.
    pub(super) fn same(&mut self, registers: &Registers, from: usize, walk: u64) {
        if self.changes == registers.changes && (self.unchanged_since..=self.walk).contains(&walk) {
            self.same.insert(from);
        }
    }

    /// Notes a part of a member's walk, and whether it was the same here. True when the member must be sent
    /// [`Body::Same`]: no part of the walk differed.
    pub(super) fn walked(
        &mut self,
        from: usize,
        (walk, part, asks): (u64, u32, bool),
        is_same: bool,
    ) -> bool {
        let known = &mut self.walks[from];
        let parts = match part {
            0 => Some(0),
            _ if known.0 == walk => known.1.filter(|parts| *parts == part),
            _ => None,
        };
        *known = (walk, parts.filter(|_| is_same).and_then(|parts| parts.checked_add(1)));
        asks && known.1.is_some()
    }

    /// Compares the next few keys with all others. Calls `tombstone` for each tombstone among them.
    pub(super) fn step(
        &mut self,
        registers: &mut Registers,
        timing: &Timing,
        now: UnixMs,
        mut tombstone: impl FnMut(&[u8], Tag),
        effects: &mut Effects,
    ) {
        let long_ago = now.saturating_sub(timing.clock_error_ms);
        registers.table.bury_expired(long_ago, BURIED_MAX, |_, _| {});
        self.tags.clear();
        if self.cursor == 0 {
            (self.walk, self.part) = (self.walk + 1, 0);
            if self.changes != registers.changes || self.unchanged_since == 0 {
                (self.changes, self.unchanged_since) = (registers.changes, self.walk);
                self.same = MemberSet::EMPTY;
            }
        }
        let tags = &mut self.tags;
        self.cursor = registers.table.walk_registers(self.cursor, timing.sweep_keys, |key, register| {
            let tag = Tag::of_version(register.version);
            Tags::append(tags, key, tag);
            if register.is_deleted() {
                tombstone(key, tag);
            }
        });
        // Sent even when there is nothing to compare: it shows the others that this member is running.
        let (walk, part, asks) = (self.walk, self.part, self.cursor == 0 && registers.rest.is_told());
        let compare = Body::Compare { walk, part, asks, tags: Tags::built(&self.tags) };
        registers.send(registers.group.others().and(registers.links), compare, effects);
        self.part += 1;
    }
}

/// A member sends some of its tags: sends it what is newer here, and requests what is newer there. True when nothing is
/// newer on either side.
pub(super) fn compare(registers: &Registers, from: usize, tags: Tags<'_>, effects: &mut Effects) -> bool {
    let (mut wanted, mut entries) = (Vec::new(), Vec::new());
    for (key, tag) in tags.iter() {
        let register = registers.table.register(key);
        if register.version < tag.version() {
            Tags::append(&mut wanted, key, tag);
        } else if register.version > tag.version() && entries.len() < ENTRIES_BYTES_MAX {
            Entries::append(&mut entries, key, register);
        }
    }
    let is_same = wanted.is_empty() && entries.is_empty();
    if !is_same {
        let (wanted, entries) = (Tags::built(&wanted), Entries::built(&entries));
        let differ = Body::Differ { generation: registers.generations.current(), wanted, entries };
        registers.send(MemberSet::only(from), differ, effects);
    }
    is_same
}

/// Sends a member the values that it has requested.
pub(super) fn supply(registers: &Registers, from: usize, wanted: Tags<'_>, effects: &mut Effects) {
    let mut entries = Vec::new();
    for (key, _) in wanted.iter() {
        let register = registers.table.register(key);
        if register != Register::UNWRITTEN && entries.len() < ENTRIES_BYTES_MAX {
            Entries::append(&mut entries, key, register);
        }
    }
    if !entries.is_empty() {
        let repair =
            Body::Repair { generation: registers.generations.current(), entries: Entries::built(&entries) };
        registers.send(MemberSet::only(from), repair, effects);
    }
}

/// Stores the values that a member sends.
pub(super) fn take(registers: &mut Registers, generation: u64, entries: Entries<'_>) {
    if registers.generations.admits(generation) && registers.journal.has_room() {
        for (key, register) in entries.iter() {
            registers.counters.repaired_keys += u64::from(registers.put(key, register));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_counts_when_every_part_has_arrived_without_a_difference() {
        let mut sweep = Sweep::default();
        let mut hear = |parts: &[(u64, u32, bool, bool)]| {
            let hear = |(walk, part, asks, is_same): (u64, u32, bool, bool)| {
                sweep.walked(1, (walk, part, asks), is_same)
            };
            parts.iter().copied().map(hear).collect::<Vec<bool>>()
        };
        assert_eq!(hear(&[(1, 0, true, true)]), [true], "of one part");
        assert_eq!(
            hear(&[(2, 0, false, true), (2, 1, false, true), (2, 2, true, true)]),
            [false, false, true]
        );
        assert_eq!(hear(&[(3, 0, false, true), (3, 2, true, true)]), [false, false], "one was lost");
        assert_eq!(hear(&[(4, 0, false, false), (4, 1, true, true)]), [false, false], "one was different");
        assert_eq!(hear(&[(5, 0, false, true), (6, 1, true, true)]), [false, false], "of two walks");
        assert_eq!(hear(&[(7, 1, true, true)]), [false], "the first was lost");
        assert_eq!(hear(&[(8, 0, false, true), (8, 1, true, true), (8, 1, true, true)])[1..], [true, false]);
    }

    #[test]
    fn only_answers_to_walks_since_the_last_change_count() {
        let mut registers = Registers::new(1, 2, false, crate::planted::Planted::default());
        let members = vec![1, 2, 3];
        let (leader, in_sync) = (0, Vec::new());
        let told = crate::effects::Configuration { epoch: 1, leader, members, in_sync, is_given_up: false };
        registers.join(1, &told).expect("a group");
        let (mut sweep, mut effects) = (Sweep::new(8), Effects::default());
        let mut walk = |sweep: &mut Sweep, registers: &mut Registers| {
            sweep.step(registers, &Timing::default(), 0, |_, _| {}, &mut effects);
            sweep.walk
        };
        let register =
            Register { version: Tag::new(1, 1, 0).expect("a tag").version(), ..Register::UNWRITTEN };
        let first = walk(&mut sweep, &mut registers);
        assert!(registers.put(b"k", register));
        [1, 2].into_iter().for_each(|from| sweep.same(&registers, from, first));
        assert!(!sweep.is_done(&registers), "that was before the change");
        let second = walk(&mut sweep, &mut registers);
        sweep.same(&registers, 1, first);
        sweep.same(&registers, 2, second);
        assert!(!sweep.is_done(&registers), "member 1 has not answered to this walk");
        walk(&mut sweep, &mut registers);
        sweep.same(&registers, 1, second);
        assert!(sweep.is_done(&registers), "an answer may come late");
        registers.set_link(1, false);
        assert!(!sweep.is_done(&registers), "something has changed");
    }
}
