//! A seeded search over random schedules of `consensus`: clients, loss, duplication, delay, links that break one way or both,
//! pauses, clocks that drift and jump, slow disks, crashes that lose what was not synced, lost disks, disks that are rolled back,
//! checkpoints, members that are added and removed, by a control group that notifies each replica late and in any order; then
//! everything heals. The answers to clients must be linearizable, all replicas must go through the same states, every request
//! must have an outcome, and at the end the replicas must be equal and writes must succeed.
//!
//! ```text
//! cargo test -p quorate-protocol --test protocols consensus::schedules
//! QUORATE_SEEDS=20000 cargo test -p quorate-protocol --test protocols consensus::schedules
//! FAULT=NewMemberVotesEarly cargo test -p quorate-protocol --test protocols consensus::schedules::planted -- --nocapture
//! FAULT=... FIRST_SEED=5000 as before, to go on with a search
//! SEED=17 cargo test -p quorate-protocol --test protocols consensus::schedules::one_seed -- --exact --nocapture
//! ```

use super::schedule::schedule;
use crate::kit::search::{finds, finds_by_invariant, number, run, search, seeds, variable};
use protocol::planted::{Fault, Planted};

#[test]
fn random_schedules_keep_every_promise() {
    let replay = ("consensus::schedules::one_seed", "SEED");
    search(seeds(100), replay, |seed| schedule(seed, Planted::default(), false).run());
}

/// Replays the schedule of `SEED` and prints all that happens.
#[test]
fn one_seed() {
    if let Some(seed) = number("SEED") {
        run(|| schedule(seed, Planted::default(), true).run()).unwrap();
    }
}

/// A search that cannot fail proves nothing: each planted fault is found. Beside each is the first seed that found it, which is
/// tried first; if it no longer does, all seeds are tried in turn.
#[test]
fn planted_faults_are_found() {
    const SEEDS_MAX: u64 = 20_000;
    const FAULTS: [(Fault, u64); 18] = [
        (Fault::VoteNotPersisted, 2),
        (Fault::VotePersistedAfterReply, 24306),
        (Fault::AcceptedBeforeDurable, 813),
        (Fault::LeaderCountsUnsynced, 4958),
        (Fault::ReadWithoutQuorum, 93),
        (Fault::LeaseNotRechecked, 156),
        (Fault::LeaseOnWallClock, 9514),
        (Fault::NewLeaderServesEarly, 272),
        (Fault::ResignedLeaderAnswers, 4519),
        (Fault::SnapshotIndexOffByOne, 1),
        (Fault::LogCutPastApplied, 405),
        (Fault::SliceEndsEarly, 3493),
        (Fault::RetriedCommandAppliedTwice, 5),
        (Fault::WipedVoterVotes, 1367),
        (Fault::RolledBackVoterVotes, 660),
        (Fault::ConfigurationBeginsEarly, 100),
        (Fault::NewMemberVotesEarly, 1),
        (Fault::UnknownReportedAsRefused, 1),
    ];
    let only = variable("FAULT");
    for (fault, first) in FAULTS {
        if only.as_ref().is_some_and(|only| *only != format!("{fault:?}")) {
            continue;
        }
        let seeds = std::iter::once(first).chain(number("FIRST_SEED").unwrap_or(0)..SEEDS_MAX);
        finds(fault, seeds, |seed| schedule(seed, Planted::one(fault), false).run());
    }
}

/// Invariants can fail: each of these faults is found by an invariant, before any client gets a wrong answer.
#[test]
fn invariants_find_planted_faults() {
    let faults = [
        (Fault::VoteNotPersisted, "is promised"),
        (Fault::LeaderCountsUnsynced, "durable at their leader"),
        (Fault::ConfigurationBeginsEarly, "before its stop-sign is decided"),
    ];
    for (fault, words) in faults {
        let planted = Planted::one_with_invariants(fault);
        finds_by_invariant(fault, words, 0..2000, |seed| schedule(seed, planted, false).run());
    }
}
