//! A search that cannot fail proves nothing: each fault that is planted in replicas is found.
//!
//! Each test prints how many runs it took: `cargo test -p quorate-sim planted -- --nocapture`.

use protocol::planted::{Fault, Planted};
use sim::{Broken, Protocol, Settings};

/// Looks for a planted fault in at most so many runs, and says what gave it away.
fn find(fault: Fault, protocol: Protocol, runs_max: u64) -> Broken {
    let settings =
        Settings { protocol: Some(protocol), planted: Planted::one(fault), ..Settings::default() };
    for seed in 0..runs_max {
        if let Some(failure) = sim::run(seed, &settings, false).failure {
            let (broken, why) = (failure.broken, failure.words.lines().next().unwrap_or_default().to_owned());
            println!("{protocol} {fault:?}: run {}, {}: {why}", seed + 1, broken.name());
            return broken;
        }
    }
    panic!("{fault:?} is not found in {runs_max} runs");
}

#[test]
fn leader_follower_shows_before_it_commits() {
    find(Fault::VisibleBeforeCommitted, Protocol::LeaderFollower, 2000);
}

#[test]
fn leader_follower_waits_for_one_too_few() {
    find(Fault::OneAcknowledgementTooFew, Protocol::LeaderFollower, 2000);
}

#[test]
fn leader_follower_overlooks_gaps() {
    find(Fault::GapNotNoticed, Protocol::LeaderFollower, 2000);
}

#[test]
fn leader_follower_begins_anew_without_asking() {
    find(Fault::NoRecovery, Protocol::LeaderFollower, 2000);
}

#[test]
fn leader_follower_calls_unknown_refused() {
    find(Fault::UnknownToldAsRefused, Protocol::LeaderFollower, 2000);
}

#[test]
fn abd_gives_a_tag_twice() {
    find(Fault::TagWithoutWriter, Protocol::Abd, 2000);
}

#[test]
fn abd_reads_without_writing_back() {
    find(Fault::ReadWithoutWriteBack, Protocol::Abd, 2000);
}

#[test]
fn abd_asks_the_first_majority_only() {
    find(Fault::FixedQuorum, Protocol::Abd, 2000);
}

#[test]
fn abd_answers_without_memory() {
    find(Fault::AnswerWithoutRefill, Protocol::Abd, 2000);
}

#[test]
fn abd_counts_acknowledgements_of_an_earlier_life() {
    find(Fault::StaleAcknowledgement, Protocol::Abd, 2000);
}

#[test]
fn abd_forgets_tombstones_early() {
    find(Fault::TombstoneForgottenEarly, Protocol::Abd, 2000);
}

#[test]
fn abd_calls_unknown_refused() {
    find(Fault::UnknownToldAsRefused, Protocol::Abd, 2000);
}

#[test]
fn blocking_writes_without_a_lock() {
    find(Fault::WriteWithoutLockCheck, Protocol::Blocking, 2000);
}

#[test]
fn blocking_reads_without_repair() {
    find(Fault::ReadWithoutRepair, Protocol::Blocking, 2000);
}

#[test]
fn blocking_lets_anybody_unlock() {
    find(Fault::UnlockByNonOwner, Protocol::Blocking, 2000);
}

#[test]
fn blocking_keeps_surplus_locks() {
    find(Fault::SurplusLockKept, Protocol::Blocking, 2000);
}

#[test]
fn blocking_grants_locks_that_it_forgot() {
    find(Fault::LockGrantedAfterRestart, Protocol::Blocking, 2000);
}

#[test]
fn blocking_calls_unknown_refused() {
    find(Fault::UnknownToldAsRefused, Protocol::Blocking, 2000);
}
