//! Invariants: the conditions on which the proof in the parent module rests, as far as a single replica can check them.
//!
//! [`check_step`] compares a few numbers, and a replica calls it in every step except for requests. [`check_all`] checks
//! everything that the replica holds; tests and simulations call it
//! ([`check_invariants`](crate::Replica::check_invariants)). Nothing here depends on messages of peers, which are checked
//! on arrival. Each function is named after the statement that it checks; the numbers are those of "Why it is safe" in
//! docs/design/protocols/leader-follower.md.

use super::backlog::{Backlog, Batch};
use super::follower::{Follower, Mode};
use super::leader::Leader;
use super::leader::serving::{self, Service};
use super::options::Acks;
use super::queue::Waiting;
use super::recovery::Recovery;
use super::state::State;
use super::transfer::{Receiver, Sender};
use super::{Replica, Role};
use crate::planted::Fault;
use kv::{SKIPPED_VERSIONS, Version};

/// Checks whether the replica may continue. O(1).
///
/// # Panics
/// When an invariant is broken: continuing would spread the damage.
#[inline]
pub(super) fn check_step(replica: &Replica) {
    let state = &replica.state;
    if !state.options.planted.has_invariants() {
        return;
    }
    only_what_is_applied_is_dropped(state);
    epochs_only_grow(state);
    match &replica.role {
        Role::Idle => {}
        Role::Leader(leader) => {
            offsets_are_given_once(leader, state);
            every_unanswered_request_stands_behind_a_write(leader);
            all_that_is_held_is_recorded(state);
            a_leader_that_hands_over_orders_nothing(leader, state);
        }
        Role::Follower(follower) => {
            what_is_applied_is_held(state);
            nothing_acknowledged_is_cut(follower, state);
            all_that_is_held_is_recorded(state);
        }
        Role::Recovery(_) => {
            what_is_applied_is_held(state);
            all_that_is_held_is_recorded(state);
        }
    }
}

/// Checks the same, and everything that takes time proportional to the history kept and the requests under way.
///
/// # Panics
/// Like [`check_step`].
pub(super) fn check_all(replica: &Replica) {
    let Replica { state, role } = replica;
    if !state.options.planted.has_invariants() {
        return;
    }
    check_step(replica);
    history_has_no_gaps(&state.backlog);
    records_become_durable_in_order(state);
    versions_are_offsets_of_what_is_applied(state);
    match role {
        Role::Idle => assert!(!state.rest.is_resting(), "a replica rests that has no group"),
        Role::Leader(leader) => {
            a_leader_leads_its_own_epoch(leader, state);
            every_uncommitted_record_has_its_entry(leader, state);
            the_set_is_waited_for(leader, state);
            leader.followers.iter().for_each(|follower| is_served_from_this_history(follower, leader, state));
            a_quiescent_leader_is_calm(leader, state);
        }
        Role::Follower(follower) => {
            assert_ne!(state.configuration.leader, state.id, "a replica follows itself");
            assert!(!state.rest.is_resting(), "a follower rests only at its leader's request");
            a_follower_that_has_caught_up_vouches_again(follower, state);
            follower.sender().into_iter().for_each(|sender| a_snapshot_is_of_one_moment(sender, state));
            follower.receiver().into_iter().for_each(a_transfer_comes_in_order);
        }
        Role::Recovery(recovery) => {
            assert!(!state.rest.is_resting(), "a replica rests that recovers");
            a_copy_is_of_more_than_is_held(recovery, state);
            recovery.receiver().into_iter().for_each(a_transfer_comes_in_order);
        }
    }
    if !matches!(role, Role::Leader(_)) {
        let is_end = state.backlog.position_at(state.applied).is_some();
        assert!(is_end, "{} is applied, which is within a batch", state.applied);
    }
}

// (1) One history.

/// An epoch has one leader, which assigns each offset once. Records that are not in a batch yet are in the builder.
#[inline]
fn offsets_are_given_once(leader: &Leader, state: &State) {
    assert!(state.applied <= leader.head, "applied {} beyond {}", state.applied, leader.head);
    assert!(
        leader.serves_from <= leader.head && leader.purge <= leader.head,
        "a record that was not written"
    );
    // A leader without followers and records keeps no history.
    if !leader.followers.is_empty() || state.journal.is_kept() {
        let sealed = state.last().offset;
        let built = Version::from(leader.builder_count);
        assert_eq!(sealed + built, leader.head, "an offset is given to no record, or to two");
    }
}

/// Otherwise the member that is to lead might lack something when its leader resigns.
#[inline]
fn a_leader_that_hands_over_orders_nothing(leader: &Leader, state: &State) {
    let Some(handover) = state.handover() else { return };
    let is_planted = handover.has_resigned && state.options.planted.has(Fault::ResignedLeaderAnswers);
    assert!(
        is_planted || handover.head == leader.head,
        "a leader that hands over has ordered {}",
        leader.head
    );
}

/// A follower takes a batch only at exactly the position that the leader names, so equal positions mean equal histories.
/// O(batches).
fn history_has_no_gaps(backlog: &Backlog) {
    let (mut end, mut stream_end) = (backlog.base, None);
    let mut bytes = 0;
    for batch in &backlog.batches {
        assert!(batch.count > 0, "a batch without records");
        assert_eq!(batch.first, end.offset + 1, "a hole in the history behind {end}");
        assert!(batch.epoch >= end.epoch, "a batch of an older epoch behind {end}");
        let length = batch.records.len() as u64;
        assert!(
            stream_end.is_none_or(|before| batch.stream_end == before + length),
            "bytes are counted wrongly"
        );
        (end, stream_end) = (batch.end(), Some(batch.stream_end));
        bytes += batch.bytes();
    }
    assert_eq!(bytes, backlog.bytes, "the bytes that are held");
    assert!(stream_end.is_none_or(|end| end == backlog.stream_end), "bytes are counted wrongly");
    let begins = backlog.epochs.iter();
    let ascends = begins
        .clone()
        .zip(begins.clone().skip(1))
        .all(|(one, other)| one.epoch < other.epoch && one.offset < other.offset);
    assert!(ascends, "an epoch begins before an older one: {:?}", backlog.epochs);
    assert!(begins.clone().all(|begin| begin.offset <= end.offset), "an epoch begins behind the history");
}

/// No older epoch is followed any more, and no record is of a later epoch.
#[inline]
fn epochs_only_grow(state: &State) {
    let (epoch, configured) = (state.epoch, state.configuration.epoch);
    assert!(epoch >= configured, "epoch {epoch} is older than the configuration's, {configured}");
}

/// A version is the offset of the record that wrote it or, after recoveries, that offset plus a multiple of
/// `SKIPPED_VERSIONS`.
fn versions_are_offsets_of_what_is_applied(state: &State) {
    let floor = state.table.version_floor() % SKIPPED_VERSIONS;
    assert!(floor <= state.applied, "a key has version {floor}, and {} is applied", state.applied);
}

// (2) An acknowledgement covers a prefix, which is safe.

/// Everything acknowledged is recorded before: when all emitted records are durable, so is the whole history.
#[inline]
fn all_that_is_held_is_recorded(state: &State) {
    if state.journal.is_kept() {
        let (recorded, last) = (state.journal.recorded(), state.last().offset);
        assert_eq!(recorded, last, "{last} is held, and {recorded} is recorded");
    }
}

/// O(batches that are not durable).
fn records_become_durable_in_order(state: &State) {
    let journal = &state.journal;
    assert!(journal.durable <= journal.emitted, "a record is durable that was never emitted");
    assert!(journal.epoch_record <= journal.emitted, "an epoch's record was never emitted");
    let mut before = (journal.durable, None);
    for (record, offset) in &journal.marks {
        assert!(*record > before.0 && before.1 < Some(*offset), "records out of order: {:?}", journal.marks);
        before = (*record, Some(*offset));
    }
    assert!(before.0 <= journal.emitted, "a record is waited for that was never emitted");
}

/// A follower holds what it has acknowledged to its leader since it was joined. (Before that, its history may be cut
/// off.)
#[inline]
fn nothing_acknowledged_is_cut(follower: &Follower, state: &State) {
    let (acked, last) = (follower.acked, state.last().offset);
    let holds = !matches!(follower.mode, Mode::Streaming) || acked <= last;
    assert!(holds, "{acked} is acknowledged, and {last} is held");
}

// (3) Nothing acknowledged is cut.

/// Once a follower has reached its leader's position at the time it joined, it again holds everything that it ever
/// acknowledged.
fn a_follower_that_has_caught_up_vouches_again(follower: &Follower, state: &State) {
    let has_caught_up = matches!(follower.mode, Mode::Streaming) && state.last().offset >= follower.whole_at;
    assert!(state.intact || !has_caught_up, "it has caught up and does not vouch for what it holds");
}

/// A new epoch begins with the longest history: an appointed leader fetches only a history that is longer than its own.
fn a_copy_is_of_more_than_is_held(recovery: &Recovery, state: &State) {
    let Some(fetching) = &recovery.fetching else { return };
    assert!(!recovery.passed, "a history is fetched for an epoch that has passed");
    assert!(fetching.until > state.last(), "{} is fetched, and {} is held", fetching.until, state.last());
}

/// Only a replica that holds everything acknowledged leads, and only in the epoch assigned to it.
fn a_leader_leads_its_own_epoch(leader: &Leader, state: &State) {
    let configuration = &state.configuration;
    assert_eq!(configuration.leader, state.id, "another node is to lead");
    assert_eq!(configuration.epoch, state.epoch, "another epoch has begun");
    assert_eq!(state.led, Some(state.epoch), "it does not know that it leads");
    assert!(state.intact, "a replica that has lost its memory leads");
    let followers = leader.followers.iter().map(|follower| follower.id);
    assert!(followers.eq(state.peers()), "its followers are not the other members");
}

/// A leader does not lead before its epoch is durable: after a restart it would consider the epoch's records unwritten. A
/// replica without peers need not wait.
pub(super) fn may_lead(state: &State) {
    let State { configuration, journal, options, .. } = state;
    if options.planted.has_invariants() {
        assert_eq!(configuration.epoch, state.epoch, "it is to lead in another epoch than the newest");
        let is_known = journal.is_epoch_durable() || configuration.members.len() == 1;
        assert!(is_known, "it is to lead in an epoch that it may forget");
    }
}

/// With `acks = all` the previous leader always waited for every member of the set.
fn the_set_is_waited_for(leader: &Leader, state: &State) {
    for follower in &leader.followers {
        let is_in_set = state.configuration.in_sync.contains(&follower.id);
        let is_requested =
            leader.in_sync_request.as_ref().is_some_and(|request| request.in_sync.contains(&follower.id));
        let is_awaited = follower.is_awaited || !(is_in_set || is_requested);
        assert!(is_awaited, "follower {} may be in the in-sync set and is not waited for", follower.id);
    }
    if let Some(request) = &leader.in_sync_request {
        assert!(request.in_sync.contains(&state.id), "a leader asks for itself to be out of the in-sync set");
        assert!(request.in_sync.is_sorted_by(|one, other| one < other), "a request names a replica twice");
    }
    if state.options.acks != Acks::All {
        assert_eq!(leader.needed, state.acks_needed(), "it waits for another number of followers");
    }
}

// (4) Nothing is visible too early.

/// Leader and followers apply only what is committed, and so only what they hold.
#[inline]
fn what_is_applied_is_held(state: &State) {
    assert!(state.applied <= state.last().offset, "applied {} beyond {}", state.applied, state.last());
}

impl Leader {
    /// What has just been committed is held durably by the leader and by as many followers as `acks` requires. Later this
    /// may no longer be visible here: a follower that starts over reports its position again.
    pub(super) fn what_is_committed_is_held_by_enough(&self, state: &State) {
        if !state.options.planted.has_invariants() {
            return;
        }
        let holds = |follower: &&serving::Follower| follower.acked >= state.applied;
        let is_held = match state.options.acks {
            Acks::All => self.followers.iter().filter(|follower| follower.is_awaited).all(|it| holds(&it)),
            _ => self.followers.iter().filter(holds).count() >= self.needed,
        };
        assert!(is_held, "{} is committed, and too few followers hold it", state.applied);
        assert!(
            state.journal.held() >= state.applied,
            "{} is committed, and not durable here",
            state.applied
        );
    }
}

/// Only committed records are dropped from the history.
#[inline]
fn only_what_is_applied_is_dropped(state: &State) {
    let base = state.backlog.base().offset;
    assert!(base <= state.applied, "{base} is dropped, and {} is applied", state.applied);
}

/// Requests are answered in order, so the first one waits for a record, or it would have been answered.
#[inline]
fn every_unanswered_request_stands_behind_a_write(leader: &Leader) {
    let front = leader.queue.entries.front();
    assert!(
        front.is_none_or(|entry| entry.waiting == Waiting::Write),
        "a request waits for nothing: {front:?}"
    );
}

/// Each uncommitted record has its place among the requests. O(requests under way).
fn every_uncommitted_record_has_its_entry(leader: &Leader, state: &State) {
    assert_eq!(leader.builder.is_empty(), leader.builder_count == 0, "records are counted wrongly");
    if leader.followers.is_empty() && !state.journal.is_kept() {
        return;
    }
    let writes = leader.queue.entries.iter().filter(|entry| entry.waiting == Waiting::Write).count();
    assert_eq!(
        writes as u64,
        leader.head - state.applied,
        "records that are not committed, and their entries"
    );
    let uncommitted = state.backlog.bytes_between(state.applied, state.last().offset);
    assert_eq!(leader.uncommitted_bytes as u64, uncommitted, "bytes that wait for followers");
    let deadlines = leader.queue.entries.iter().filter(|entry| entry.ticket.is_some());
    let is_watched = deadlines.map(|entry| entry.deadline_us).all(|us| us >= leader.queue.earliest_us);
    assert!(is_watched, "a deadline passes unnoticed");
}

// Joining.

/// The records sent to a follower continue its history, and the records that it needs are kept until it has them.
fn is_served_from_this_history(follower: &serving::Follower, leader: &Leader, state: &State) {
    let (id, head) = (follower.id, leader.head);
    assert!(follower.acked <= head, "follower {id} holds what was never written");
    assert!(follower.sent_commit <= state.applied, "follower {id} was sent more than is committed");
    assert!(follower.fills_until <= head, "follower {id} is filled beyond what there is");
    let base = state.backlog.base().offset;
    let is_kept = follower.needs_after().is_none_or(|after| base <= after);
    assert!(is_kept, "follower {id} is to go on behind {:?}, and {base} is dropped", follower.needs_after());
    match &follower.service {
        Service::Absent => {}
        Service::Snapshot(sender) => {
            assert_eq!(sender.to, id, "a snapshot goes to another follower");
            a_snapshot_is_of_one_moment(sender, state);
        }
        Service::Streaming { sent, .. } => assert!(sent.offset <= head, "follower {id} was sent too much"),
    }
}

/// A snapshot shows what was applied at one moment.
fn a_snapshot_is_of_one_moment(sender: &Sender, state: &State) {
    assert!(sender.position.offset <= state.applied, "a snapshot shows what is not committed");
    sender.chunks.check(state.timing.window());
}

/// The records that follow a snapshot continue it without a gap, and the old state stays until they have reached the
/// required offset.
fn a_transfer_comes_in_order(receiver: &Receiver) {
    assert!(receiver.has_snapshot || receiver.rest.is_empty(), "a record comes before the snapshot is whole");
    let mut end = receiver.position;
    for batch in &receiver.rest {
        assert_eq!(batch.first, end.offset + 1, "a hole in the transfer behind {end}");
        end = Batch::end(batch);
    }
    let is_whole = receiver.has_snapshot && end.offset >= receiver.until;
    assert!(!is_whole, "a transfer is complete and not in place");
}

// Quiescence.

/// A quiescent leader is calm: everything that should end the quiescence is noticed in the step that brings it.
fn a_quiescent_leader_is_calm(leader: &Leader, state: &State) {
    assert!(!state.rest.is_resting() || leader.is_calm(state), "a leader rests that has something to do");
}
