//! A seeded search over random schedules of `consensus`: clients, loss, duplication, delay, links that break one way
//! or both, pauses, clocks that drift and jump, slow disks, crashes that lose what was not synced, lost disks, disks that are rolled back, checkpoints, members that are added
//! and removed, by a control group that tells each replica late and in any order;
//! then everything heals. What clients were told must be linearizable, all replicas must go through the same states,
//! every request must have an end, and in the end the replicas must be equal and writes go on.
//!
//! ```text
//! cargo test -p quorate-protocol --test consensus_schedules
//! QUORATE_SEEDS=20000 cargo test -p quorate-protocol --test consensus_schedules
//! FAULT=NewMemberVotesEarly cargo test -p quorate-protocol --test consensus_schedules planted -- --nocapture
//! FAULT=... FIRST_SEED=5000 as before, to go on with a search
//! SEED=17 cargo test -p quorate-protocol --test consensus_schedules one_seed -- --nocapture
//! ```

mod consensus_schedule;
mod consensus_world;
#[path = "schedules/random.rs"]
mod random;

use consensus_schedule::Schedule;
use protocol::planted::{Fault, Planted};

fn text(variable: &str) -> Option<String> {
    #[allow(clippy::disallowed_methods, reason = "tests are told by the environment what to run")]
    std::env::var(variable).ok()
}

fn number(variable: &str) -> Option<u64> {
    text(variable)?.parse().ok()
}

/// Runs a schedule. What it finds wrong, a panic of a replica included, comes back as text.
fn run(seed: u64, planted: Planted, told: bool) -> Result<(), String> {
    let schedule = std::panic::AssertUnwindSafe(|| Schedule::new(seed, planted, told).run());
    match std::panic::catch_unwind(schedule) {
        Ok(checked) => checked,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
            Err(format!("panic: {}", text.unwrap_or_default()))
        }
    }
}

#[test]
fn random_schedules_keep_every_promise() {
    const SEEDS: u64 = 100;
    let seeds = number("QUORATE_SEEDS").unwrap_or(SEEDS);
    let first = number("FIRST_SEED").unwrap_or(0);
    let mut failures = 0;
    for seed in first..first + seeds {
        if let Err(why) = run(seed, Planted::default(), false) {
            failures += 1;
            println!("seed {seed}: {why}");
            println!(
                "replay: SEED={seed} cargo test -p quorate-protocol --test consensus_schedules one_seed -- --nocapture"
            );
            assert!(failures < 10, "many seeds fail");
        }
    }
    assert_eq!(failures, 0, "of {seeds} seeds");
}

/// Replays the schedule of `SEED` and tells all that happens.
#[test]
fn one_seed() {
    if let Some(seed) = number("SEED") {
        run(seed, Planted::default(), true).unwrap();
    }
}

/// Invariants can fail: each of these faults is found by one, before anybody is told what is wrong.
#[test]
fn invariants_find_planted_faults() {
    const SEEDS_MAX: u64 = 2000;
    let faults = [
        (Fault::VoteNotPersisted, "is promised"),
        (Fault::LeaderCountsUnsynced, "durable at their leader"),
        (Fault::ConfigurationBeginsEarly, "before its stop-sign is decided"),
    ];
    for (fault, words) in faults {
        let planted = Planted::one_with_invariants(fault);
        let found = (0..SEEDS_MAX).find_map(|seed| Some((seed, run(seed, planted, false).err()?)));
        let Some((seed, why)) = found else { panic!("{fault:?} is not found in {SEEDS_MAX} schedules") };
        println!("{fault:?}: found by seed {seed}: {why}");
        assert!(
            why.starts_with("panic: ") && why.contains(words),
            "{fault:?}: not by an invariant, but: {why}"
        );
    }
}

/// A search that cannot fail proves nothing: each planted fault is found. With each stands the first seed that found it,
/// which is tried first; should it find nothing any more, all are tried in turn.
#[test]
fn planted_faults_are_found() {
    const SEEDS_MAX: u64 = 20_000;
    const FAULTS: [(Fault, u64); 16] = [
        (Fault::VoteNotPersisted, 2),
        (Fault::VotePersistedAfterReply, 24306),
        (Fault::AcceptedBeforeDurable, 813),
        (Fault::LeaderCountsUnsynced, 4958),
        (Fault::ReadWithoutQuorum, 86),
        (Fault::LeaseNotRechecked, 1511),
        (Fault::LeaseOnWallClock, 9514),
        (Fault::NewLeaderServesEarly, 272),
        (Fault::SnapshotIndexOffByOne, 1),
        (Fault::LogCutPastApplied, 76),
        (Fault::RetriedCommandAppliedTwice, 5),
        (Fault::WipedVoterVotes, 807),
        (Fault::RolledBackVoterVotes, 1143),
        (Fault::ConfigurationBeginsEarly, 100),
        (Fault::NewMemberVotesEarly, 1),
        (Fault::UnknownToldAsRefused, 1),
    ];
    let only = text("FAULT");
    for (fault, first) in FAULTS {
        if only.as_ref().is_some_and(|only| *only != format!("{fault:?}")) {
            continue;
        }
        let planted = Planted::one(fault);
        let mut seeds = std::iter::once(first).chain(number("FIRST_SEED").unwrap_or(0)..SEEDS_MAX);
        let found = seeds.find_map(|seed| Some((seed, run(seed, planted, false).err()?)));
        let Some((seed, why)) = found else { panic!("{fault:?} is not found in {SEEDS_MAX} schedules") };
        println!("{fault:?}: found by seed {seed}: {}", why.lines().next().unwrap_or_default());
    }
}
