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
mod blocking_world;
#[path = "schedules/random.rs"]
mod random;

use blocking_schedule::Schedule;
use protocol::planted::{Fault, Planted};

fn number(variable: &str) -> Option<u64> {
    #[allow(clippy::disallowed_methods, reason = "tests are told by the environment what to run")]
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs a schedule. What it finds wrong, a panic of a replica included, comes back as text.
fn run(seed: u64, planted: Planted, looks_inside: bool, told: bool) -> Result<(), String> {
    let schedule = std::panic::AssertUnwindSafe(|| Schedule::new(seed, planted, looks_inside, told).run());
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
    const SEEDS: u64 = 300;
    let seeds = number("QUORATE_SEEDS").unwrap_or(SEEDS);
    let first = number("FIRST_SEED").unwrap_or(0);
    let mut failures = 0;
    for seed in first..first + seeds {
        if let Err(why) = run(seed, Planted::default(), true, false) {
            failures += 1;
            println!("seed {seed}: {why}");
            println!(
                "replay: SEED={seed} cargo test -p quorate-protocol --test blocking_schedules one_seed -- --nocapture"
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
        run(seed, Planted::default(), true, true).unwrap();
    }
}

/// A search that cannot fail proves nothing: each planted fault is found, by what clients are told where it is a fault
/// that clients can see, else by a look at the locks.
#[test]
fn planted_faults_are_found() {
    const SEEDS_MAX: u64 = 5000;
    let faults = [
        (Fault::WriteWithoutLockCheck, false),
        (Fault::ReadWithoutRepair, false),
        (Fault::UnknownToldAsRefused, false),
        (Fault::UnlockByNonOwner, true),
        (Fault::SurplusLockKept, true),
        (Fault::LockGrantedAfterRestart, true),
    ];
    for (fault, looks_inside) in faults {
        let found = |seed| Some((seed, run(seed, Planted::one(fault), looks_inside, false).err()?));
        let Some((seed, why)) = (0..SEEDS_MAX).find_map(found) else {
            panic!("{fault:?} is not found in {SEEDS_MAX} schedules")
        };
        println!("{fault:?}: found by seed {seed}: {}", why.lines().next().unwrap_or_default());
    }
}
