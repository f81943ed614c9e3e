//! Invariants of abd, besides those that all register protocols share ([`crate::registers`]): the conditions on which
//! "Why it is safe" in the parent module rests, as far as a single replica can check them. Each function is named after
//! the statement that it checks.

use super::Abd;
use super::coordinator::Coordinator;
use super::operation::{Kind, Operation, Phase};
use crate::contract::Now;
use crate::registers::{Registers, Tag};

impl Abd {
    /// Checks the coordinator's whole state. O(operations).
    pub(super) fn check_all(&self, now: Now) {
        let Abd { registers, coordinator, .. } = self;
        let operations = &coordinator.operations;
        let requests = operations.open().map(|place| operations.get(place).request);
        coordinator.requests.check_invariants(now, requests);
        coordinator.operations_have_their_places();
        what_does_not_count_is_not_durable(coordinator, registers);
        for place in operations.open() {
            let operation = operations.get(place);
            members_are_counted_once(operation, registers);
            match operation.phase {
                Phase::Query => a_query_lasts_until_a_majority_has_answered(operation, registers),
                Phase::Update => an_update_lasts_until_a_majority_holds_it(operation, registers),
                Phase::Free => {}
            }
        }
    }
}

impl Coordinator {
    /// Each place is free or belongs to an operation.
    fn operations_have_their_places(&self) {
        let operations = &self.operations;
        let open: Vec<&Operation> = operations.open().map(|place| operations.get(place)).collect();
        assert_eq!(open.len(), operations.len(), "a place is free and taken");
        let bytes: usize = open.iter().map(|operation| operation.bytes()).sum();
        assert_eq!(bytes, operations.bytes, "bytes of keys and values under way");
    }
}

/// What this replica holds counts as soon as it is durable.
fn what_does_not_count_is_not_durable(coordinator: &Coordinator, registers: &Registers) {
    let durable = registers.journal.durable_to();
    let next = coordinator.undurable.first();
    assert!(
        next.is_none_or(|(record, ..)| *record > durable),
        "a holder is durable and not counted: {next:?}"
    );
}

fn members_are_counted_once(operation: &Operation, registers: &Registers) {
    let all = registers.group.all();
    let sets = [operation.answered, operation.holders, operation.sent];
    assert!(sets.iter().all(|set| set.without(all).is_empty()), "a node that is not a member is counted");
    assert!(operation.asked <= operation.tag, "an operation goes back to a tag before that of its query");
}

/// An operation queries a majority, and continues as soon as a majority has answered.
fn a_query_lasts_until_a_majority_has_answered(operation: &Operation, registers: &Registers) {
    assert!(
        operation.answered.len() < registers.group.majority(),
        "a majority has answered, and the query continues"
    );
}

/// When an operation ends, a majority holds its tag, and it ends as soon as a majority does. A write has its writer's own
/// tag, and is stored here before it is sent.
fn an_update_lasts_until_a_majority_holds_it(operation: &Operation, registers: &Registers) {
    assert!(
        operation.holders.len() < registers.group.majority(),
        "a majority holds the tag, and the operation continues"
    );
    if operation.kind == Kind::Read {
        return;
    }
    let writer = (operation.tag.member(), operation.tag.incarnation());
    assert_eq!(writer, (registers.group.own(), registers.lives.own()), "a write has another writer's tag");
    let stored = Tag::of_version(registers.table.register(operation.key()).version);
    assert!(stored >= operation.tag, "{} is written, and {stored} is stored here", operation.tag);
}

impl Operation {
    /// When an operation ends a majority holds its tag or a greater one.
    #[inline]
    pub(super) fn a_majority_holds_it(&self, registers: &Registers) {
        let is_held = self.holders.len() >= registers.group.majority();
        assert!(is_held || !registers.planted.has_invariants(), "an operation ends that no majority holds");
    }
}
