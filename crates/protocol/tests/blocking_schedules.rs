//! A seeded search over random schedules of `blocking`: clients, loss, duplication, delay, broken links, pauses,
//! crashes that lose memory and clocks that differ; then everything heals, every request must have an outcome, the
//! replicas must become equal and all locks be free, and what clients were told must be linearizable.
//!
//! ```text
//! cargo test -p quorate-protocol --test blocking_schedules
//! QUORATE_SEEDS=100000 cargo test -p quorate-protocol --test blocking_schedules
//! SEED=17 cargo test -p quorate-protocol --test blocking_schedules one_seed -- --nocapture
//! ```

mod blocking_schedule;
#[path = "schedules/random.rs"]
mod random;
mod registers_world;
#[path = "registers_world/show_blocking.rs"]
mod show;

use blocking_schedule::Schedule;
use protocol::blocking as subject;
use protocol::planted::{Fault, Planted};

fn number(variable: &str) -> Option<u64> {
    #[allow(clippy::disallowed_methods, reason = "tests are told by the environment what to run")]
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs a schedule. What it finds wrong, a panic of a replica included, comes back as text.
fn run(seed: u64, keeps_records: bool, planted: Planted, looks: (bool, bool)) -> Result<(), String> {
    let schedule = std::panic::AssertUnwindSafe(|| Schedule::new(seed, keeps_records, planted, looks).run());
    match std::panic::catch_unwind(schedule) {
        Ok(checked) => checked,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
            Err(format!("panic: {}", text.unwrap_or_default()))
        }
    }
}

fn search(keeps_records: bool) {
    const SEEDS: u64 = 300;
    let seeds = number("QUORATE_SEEDS").unwrap_or(SEEDS);
    let first = number("FIRST_SEED").unwrap_or(0);
    let mut failures = 0;
    for seed in first..first + seeds {
        if let Err(why) = run(seed, keeps_records, Planted::default(), (true, false)) {
            failures += 1;
            let variable = if keeps_records { "RECORDS_SEED" } else { "SEED" };
            println!("seed {seed}: {why}");
            println!(
                "replay: {variable}={seed} cargo test -p quorate-protocol --test blocking_schedules one_seed -- --nocapture"
            );
            assert!(failures < 10, "many seeds fail");
        }
    }
    assert_eq!(failures, 0, "of {seeds} seeds");
}

#[test]
fn random_schedules_keep_every_promise() {
    search(false);
}

/// Replicas keep records: crashes lose what was not synced, any number of nodes at one time, and disks are lost.
#[test]
fn random_schedules_with_records_keep_every_promise() {
    search(true);
}

/// Replays the schedule of `SEED`, or with records that of `RECORDS_SEED`, and tells all that happens.
#[test]
fn one_seed() {
    for (variable, keeps_records) in [("SEED", false), ("RECORDS_SEED", true)] {
        if let Some(seed) = number(variable) {
            run(seed, keeps_records, Planted::default(), (true, true)).unwrap();
        }
    }
}

/// Invariants can fail: this fault is found by one, before anybody is told what is wrong.
#[test]
fn an_invariant_finds_a_planted_fault() {
    const SEEDS_MAX: u64 = 2000;
    let planted = Planted::one_with_invariants(Fault::ReadWithoutRepair);
    let found = |seed| Some((seed, run(seed, false, planted, (false, false)).err()?));
    let Some((seed, why)) = (0..SEEDS_MAX).find_map(found) else {
        panic!("it is not found in {SEEDS_MAX} schedules")
    };
    println!("found by seed {seed}: {why}");
    assert!(
        why.starts_with("panic: ") && why.contains("that no majority holds"),
        "not by an invariant, but: {why}"
    );
}

/// A search that cannot fail proves nothing: each planted fault is found, by what clients are told where it is a fault
/// that clients can see, else by a look at the locks.
#[test]
fn planted_faults_are_found() {
    const SEEDS_MAX: u64 = 5000;
    let faults = [
        (Fault::WriteWithoutLockCheck, false, false),
        (Fault::ReadWithoutRepair, false, false),
        (Fault::UnknownToldAsRefused, false, false),
        (Fault::UnlockByNonOwner, false, true),
        (Fault::SurplusLockKept, false, true),
        (Fault::RegisterToldBeforeDurable, true, false),
        (Fault::TagReusedAfterRestart, true, true),
        (Fault::UnknownToldAsRefused, true, false),
    ];
    for (fault, keeps_records, looks_inside) in faults {
        let found =
            |seed| Some((seed, run(seed, keeps_records, Planted::one(fault), (looks_inside, false)).err()?));
        let Some((seed, why)) = (0..SEEDS_MAX).find_map(found) else {
            panic!("{fault:?} is not found in {SEEDS_MAX} schedules")
        };
        println!("{fault:?}: found by seed {seed}: {}", why.lines().next().unwrap_or_default());
    }
}
