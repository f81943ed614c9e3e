//! A seeded search over random schedules of abd groups: clients, loss, duplication, reordering, letters that arrive
//! much later, broken links, crashes that lose memory (and disks), clocks that jump and differ. Every key's history
//! must be linearizable. Then trouble stays but any majority is left alone, and everything asked of it must be done.
//! At last everything heals: all replicas become equal, every request is answered, and no tombstone is left.
//!
//! ```text
//! cargo test -p quorate-protocol --test abd_schedules
//! QUORATE_SEEDS=100000 cargo test -p quorate-protocol --test abd_schedules
//! SEED=17 cargo test -p quorate-protocol --test abd_schedules one_seed -- --nocapture
//! ```

mod abd_schedule;
mod abd_world;
#[path = "schedules/random.rs"]
#[allow(unreachable_pub, reason = "a module of a test program")]
mod random;

use abd_schedule::Schedule;
use protocol::planted::{Fault, Planted};

fn number(variable: &str) -> Option<u64> {
    #[allow(clippy::disallowed_methods, reason = "tests are told by the environment what to run")]
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs a schedule. What it finds wrong, a panic of a replica included, comes back as text.
fn run(seed: u64, planted: Planted, told: bool) -> Result<u64, String> {
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
    const SEEDS: u64 = 3_000;
    let (first, seeds) = (number("QUORATE_FIRST").unwrap_or(0), number("QUORATE_SEEDS").unwrap_or(SEEDS));
    let (mut failures, mut operations) = (0, 0);
    for seed in first..first + seeds {
        match run(seed, Planted::default(), false) {
            Ok(checked) => operations += checked,
            Err(why) => {
                failures += 1;
                println!("seed {seed}: {why}");
                println!(
                    "replay: SEED={seed} cargo test -p quorate-protocol --test abd_schedules one_seed -- --nocapture"
                );
                assert!(failures < 10, "many seeds fail");
            }
        }
    }
    println!("{seeds} schedules, {operations} operations checked");
    assert_eq!(failures, 0, "of {seeds} seeds");
}

/// Replays the schedule of `SEED` and tells all that happens.
#[test]
fn one_seed() {
    if let Some(seed) = number("SEED") {
        run(seed, Planted::default(), true).unwrap();
    }
}

/// A search that cannot fail proves nothing: each planted fault is found.
#[test]
fn planted_faults_are_found() {
    const SEEDS_MAX: u64 = 20_000;
    for fault in [
        Fault::TagWithoutWriter,
        Fault::ReadWithoutWriteBack,
        Fault::FixedQuorum,
        Fault::AnswerWithoutRefill,
        Fault::StaleAcknowledgement,
        Fault::TombstoneForgottenEarly,
        Fault::UnknownToldAsRefused,
    ] {
        let found = (0..SEEDS_MAX).find_map(|seed| Some((seed, run(seed, Planted::one(fault), false).err()?)));
        let Some((seed, why)) = found else { panic!("{fault:?} is not found in {SEEDS_MAX} schedules") };
        println!("{fault:?}: found by run {}: {}", seed + 1, why.lines().next().unwrap_or_default());
    }
}
