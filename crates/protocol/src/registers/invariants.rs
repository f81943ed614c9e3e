//! Invariants that the register protocols share: the conditions on which "Why acknowledgements survive restarts" in the
//! parent module and "Why it is safe" in docs/design/protocols/abd.md rest, as far as a single replica can check them.
//!
//! All of them are for tests and simulations, between two steps ([`check_invariants`](crate::Replica::check_invariants)).
//! Conditions that cost almost nothing to check are asserted where they could be broken. Each function is named after the
//! statement that it checks.

use super::collection::Collector;
use super::generations::Generations;
use super::journal::Journal;
use super::members::MemberSet;
use super::message::Step;
use super::rejoin::Rejoin;
use super::repair::Sweep;
use super::requests::{RequestId, Requests, Slot};
use super::tag::Tag;
use super::transfers::Transfers;
use super::{Registers, Timing, Upkeep};
use crate::effects::Now;
use std::collections::BTreeMap;

/// True when it is time for the checks that take as long as many steps.
fn is_time_for_all(now: Now) -> bool {
    const EVERY_MS: u64 = 16;
    (now.monotonic_us / 1000).is_multiple_of(EVERY_MS)
}

impl Registers {
    /// Checks the registers, with `operations` under way, and periodically every key.
    ///
    /// # Panics
    /// When an invariant is broken.
    pub(crate) fn check_invariants(&self, now: Now, operations: usize) {
        generations_only_grow(&self.generations, operations);
        what_leaves_is_recorded(&self.journal);
        if self.group.is_empty() {
            return;
        }
        self.members_are_known_by_their_place();
        // A wrong tag stays in the table, so a later check finds it too.
        if is_time_for_all(now) {
            self.a_tag_is_its_writers_own();
        }
    }

    /// A member's place identifies it in tags, so the list of members never changes.
    fn members_are_known_by_their_place(&self) {
        let (all, own) = (self.group.all(), self.group.own());
        assert_eq!(self.lives.known().len(), self.group.len(), "the incarnations are of other members");
        assert_eq!(self.heard_us.len(), self.group.len(), "the times of messages are of other members");
        assert!(self.lives.own() > 0, "an incarnation without a number");
        assert!(self.links.contains(own), "a replica does not reach itself");
        let sets = [self.links, self.heard, self.without_memory, self.lost];
        assert!(sets.iter().all(|set| set.without(all).is_empty()), "a node that is not a member is known");
        assert!(
            !self.without_memory.contains(own),
            "a replica counts itself among the others that are without memory"
        );
        assert!(
            self.lost.without(self.without_memory).is_empty(),
            "what a member has forgotten that has its memory"
        );
    }

    /// No two writes share a tag: members differ, the incarnations of a member differ, and no replica holds a write of an
    /// incarnation that it does not know. O(keys).
    fn a_tag_is_its_writers_own(&self) {
        self.table.walk_registers(0, usize::MAX, |key, register| {
            let tag = Tag::of_version(register.version);
            let known = self.lives.known().get(tag.member()).copied().unwrap_or_default();
            let is_own = tag.incarnation() > 0 && tag.incarnation() <= known;
            assert!(
                is_own,
                "{:?} has the tag {tag}, and its writer's newest incarnation is {known}",
                String::from_utf8_lossy(key)
            );
        });
    }
}

/// Only values older than operations that begin now are refused, and no open operation is of a generation later than the
/// present one.
fn generations_only_grow(generations: &Generations, operations: usize) {
    let (current, minimum) = (generations.current(), generations.minimum());
    assert!(minimum <= current, "generation {minimum} is refused, and {current} is the present one");
    let open = &generations.open;
    let is_ascending = open.is_sorted_by(|one, other| one.0 < other.0);
    assert!(
        is_ascending && open.last().is_none_or(|last| last.0 <= current),
        "generations out of order: {open:?}"
    );
    let counted: u64 = open.iter().map(|(_, count)| count).sum();
    assert_eq!(counted, operations as u64, "operations of all generations");
}

/// Everything that a coordinator counts is recorded before it is sent. O(registers that are not durable).
fn what_leaves_is_recorded(journal: &Journal) {
    let last = journal.last();
    assert!(
        journal.durable_to() <= journal.emitted && journal.emitted <= last,
        "a record is durable that has not left"
    );
    assert!(
        journal.all <= last && journal.life() <= last,
        "a message waits for a record that was never made"
    );
    let mut before = journal.durable_to();
    for (record, _) in &journal.undurable {
        assert!(before <= *record && *record <= last, "registers are recorded out of order");
        before = *record;
    }
    let awaited: BTreeMap<u64, u64> =
        journal.undurable.iter().map(|(record, digest)| (*digest, *record)).collect();
    assert_eq!(
        awaited, journal.registers,
        "each register that is not durable waits for the record of its last write"
    );
}

impl Upkeep {
    /// Checks the replica's upkeep. O(members, and what is under way).
    ///
    /// # Panics
    /// When an invariant is broken.
    pub(crate) fn check_invariants(&self, registers: &Registers, timing: &Timing) {
        snapshots_are_of_one_moment(&self.transfers, registers, timing);
        collections_are_led_by_the_first(&self.collector, registers);
        walks_are_counted(&self.sweep, registers);
        match &self.rejoin {
            Some(rejoin) => self.a_refilling_replica_gives_no_snapshots(rejoin, registers),
            None => {
                let is_lost =
                    registers.standstill().is_none() || registers.lost.len() >= registers.group.majority();
                assert!(is_lost, "the group stands still though no majority has lost its memory");
            }
        }
    }

    /// A refilling replica gives no snapshots, and takes them only from others.
    fn a_refilling_replica_gives_no_snapshots(&self, rejoin: &Rejoin, registers: &Registers) {
        assert!(self.transfers.is_empty(), "a snapshot is given by a replica that is without its memory");
        assert!(
            self.collector.is_empty(),
            "tombstones are collected by a replica that is without its memory"
        );
        rejoin.check_invariants(registers);
    }
}

/// Each newcomer gets one snapshot, and no more of it is under way than allowed.
fn snapshots_are_of_one_moment(transfers: &Transfers, registers: &Registers, timing: &Timing) {
    let mut served = MemberSet::EMPTY;
    for transfer in &transfers.open {
        assert!(!served.contains(transfer.to), "two snapshots for one member");
        assert_ne!(transfer.to, registers.group.own(), "a snapshot for itself");
        served.insert(transfer.to);
        transfer.chunks.check(timing.window());
        assert!(!transfer.chunks.is_received(), "a snapshot that has arrived is under way");
    }
}

/// All members take part in a collection, the first one leads it, and the others confirm each of its steps.
fn collections_are_led_by_the_first(collector: &Collector, registers: &Registers) {
    assert!(collector.is_empty() || registers.group.own() == 0, "another member leads a collection");
    let Some(round) = &collector.round else {
        let bytes: usize = collector.candidates.keys().map(Vec::len).sum();
        return assert_eq!(bytes, collector.candidate_bytes, "bytes of tombstones");
    };
    assert!(collector.candidates.is_empty(), "tombstones are gathered while others are collected");
    let others = registers.group.others();
    assert!(round.confirmed.without(others).is_empty(), "a step is confirmed by a node that is not a member");
    // Its own operations may be the last of an earlier generation.
    assert!(round.confirmed != others || round.step == Step::Advance, "a step is confirmed and not taken");
}

/// An answer counts if it belongs to a walk since the last change.
fn walks_are_counted(sweep: &Sweep, registers: &Registers) {
    assert!(sweep.unchanged_since <= sweep.walk, "a walk that has not begun");
    assert!(sweep.changes <= registers.changes, "a change that has not come");
    assert!(
        sweep.same.without(registers.group.others()).is_empty(),
        "a node that is not a member holds the same"
    );
}

impl Requests {
    /// Checks all requests, given the request of each operation under way. O(requests and operations).
    ///
    /// # Panics
    /// When an invariant is broken.
    pub(crate) fn check_invariants(&self, now: Now, of_operations: impl Iterator<Item = RequestId>) {
        let mut operations: BTreeMap<RequestId, u32> = BTreeMap::new();
        of_operations.for_each(|request| *operations.entry(request).or_default() += 1);
        let mut marked = 0;
        for (id, slot) in self.slots.iter().enumerate() {
            let under_way = operations.remove(&(id as RequestId)).unwrap_or(0);
            assert_eq!(slot.open, under_way, "keys of request {id} that are not done, and operations");
            marked += slot.marks.len();
            self.a_place_is_free_or_taken(id as RequestId, slot);
            assert!(
                slot.ticket.is_none() || slot.deadline_us >= self.earliest_us,
                "a deadline passes unseen"
            );
        }
        assert!(operations.is_empty(), "operations of requests that are not there: {operations:?}");
        if is_time_for_all(now) {
            let counted: usize = self.marks.iter().map(|count| *count as usize).sum();
            assert_eq!(counted, marked, "a key of a request that has ended holds others up");
        }
        let is_watched = self.deferred.iter().all(|deferred| deferred.deadline_us >= self.earliest_us);
        assert!(is_watched, "a deadline passes unseen");
    }

    /// Each request ends once: then its place is free, and nothing of it is left.
    fn a_place_is_free_or_taken(&self, id: RequestId, slot: &Slot) {
        let is_free = self.free.contains(&id);
        assert_eq!(is_free, slot.ticket.is_none(), "request {id} has ended, and has not");
        assert!(!slot.dropped, "request {id} is to be dropped and is still there");
        let is_empty = slot.marks.is_empty() && slot.open == 0 && slot.parts.is_empty() && !slot.changed;
        assert!(!is_free || is_empty, "something is left of request {id}");
    }
}
