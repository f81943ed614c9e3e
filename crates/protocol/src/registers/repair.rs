//! Repair: replicas compare what they hold, slowly and always, and give each other what is newer.
//!
//! An operation ends when a majority holds its value. The others get it too, if nothing is lost; what is lost comes
//! with the next sweep, so that replicas become equal after faults, also for keys that nobody reads. To store a newer
//! value is always safe: it is what a read would write back.

use super::members::MemberSet;
use super::message::{Body, Entries, Tags};
use super::tag::Tag;
use super::{Registers, Timing};
use crate::contract::Effects;
use kv::{Register, UnixMs};

/// Values in one message of repair, in bytes: the rest waits for the next sweep.
const ENTRIES_BYTES_MAX: usize = 1 << 20;

/// Expired keys that are buried at once.
const BURIED_MAX: usize = 1000;

/// Where the walk through the table stands.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    cursor: u64,
    tags: Vec<u8>,
}

impl Sweep {
    /// Compares the next few keys with all others. Tells each tombstone that it meets.
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
        let tags = &mut self.tags;
        self.cursor = registers.table.walk_registers(self.cursor, timing.sweep_keys, |key, register| {
            let tag = Tag::of_version(register.version);
            Tags::append(tags, key, tag);
            if register.is_deleted() {
                tombstone(key, tag);
            }
        });
        // Sent also when there is nothing to compare: it tells the others that this one is there.
        let compare = Body::Compare { tags: Tags::built(&self.tags) };
        registers.send(registers.group.others().and(registers.links), compare, effects);
    }
}

/// A member tells some of its tags: it gets what is newer here, and is asked for what is newer there.
pub(super) fn compare(registers: &Registers, from: usize, tags: Tags<'_>, effects: &mut Effects) {
    let (mut wanted, mut entries) = (Vec::new(), Vec::new());
    for (key, tag) in tags.iter() {
        let register = registers.table.register(key);
        if register.version < tag.version() {
            Tags::append(&mut wanted, key, tag);
        } else if register.version > tag.version() && entries.len() < ENTRIES_BYTES_MAX {
            Entries::append(&mut entries, key, register);
        }
    }
    if !wanted.is_empty() || !entries.is_empty() {
        let (wanted, entries) = (Tags::built(&wanted), Entries::built(&entries));
        let differ = Body::Differ { generation: registers.generations.current(), wanted, entries };
        registers.send(MemberSet::only(from), differ, effects);
    }
}

/// A member wants what this one holds.
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

/// A member gives what it holds.
pub(super) fn take(registers: &mut Registers, generation: u64, entries: Entries<'_>) {
    if registers.generations.admits(generation) && registers.journal.has_room() {
        for (key, register) in entries.iter() {
            registers.counters.repaired_keys += u64::from(registers.put(key, register));
        }
    }
}
