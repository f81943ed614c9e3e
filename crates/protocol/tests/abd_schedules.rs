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
#[path = "schedules/random.rs"]
mod random;
mod registers_world;
#[path = "registers_world/show_abd.rs"]
mod show;

use abd_schedule::Schedule;
use protocol::abd as subject;
use protocol::planted::{Fault, Planted};

fn number(variable: &str) -> Option<u64> {
    #[allow(clippy::disallowed_methods, reason = "tests are told by the environment what to run")]
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs a schedule. What it finds wrong, a panic of a replica included, comes back as text.
fn run(seed: u64, keeps_records: bool, planted: Planted, told: bool) -> Result<u64, String> {
    let schedule = std::panic::AssertUnwindSafe(|| Schedule::new(seed, keeps_records, planted, told).run());
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
    const SEEDS: u64 = 3_000;
    let (first, seeds) = (number("QUORATE_FIRST").unwrap_or(0), number("QUORATE_SEEDS").unwrap_or(SEEDS));
    let (mut failures, mut operations) = (0, 0);
    for seed in first..first + seeds {
        match run(seed, keeps_records, Planted::default(), false) {
            Ok(checked) => operations += checked,
            Err(why) => {
                failures += 1;
                let variable = if keeps_records { "RECORDS_SEED" } else { "SEED" };
                println!("seed {seed}: {why}");
                println!(
                    "replay: {variable}={seed} cargo test -p quorate-protocol --test abd_schedules one_seed -- --nocapture"
                );
                assert!(failures < 10, "many seeds fail");
            }
        }
    }
    println!("{seeds} schedules, {operations} operations checked");
    assert_eq!(failures, 0, "of {seeds} seeds");
}

#[test]
fn random_schedules_keep_every_promise() {
    search(false);
}

/// Replicas keep records: crashes lose what was not synced, any number of nodes at one time, and disks are lost or rolled
/// back.
#[test]
fn random_schedules_with_records_keep_every_promise() {
    search(true);
}

/// A majority loses its memory, and that is given up.
#[test]
fn what_was_given_up_is_all_that_is_lost() {
    const SEEDS: u64 = 400;
    let seeds = number("QUORATE_SEEDS").unwrap_or(SEEDS);
    let first = number("QUORATE_FIRST").unwrap_or(0);
    let mut checked = 0;
    for seed in first..first + seeds {
        let schedule = Schedule::new(seed, false, Planted::default(), number("LOSS_SEED").is_some());
        match schedule.run_with_a_loss() {
            Ok(operations) => checked += operations,
            Err(why) => panic!(
                "seed {seed}: {why}\nreplay: LOSS_SEED=1 QUORATE_FIRST={seed} QUORATE_SEEDS=1 cargo test -p quorate-protocol \
                 --test abd_schedules given_up -- --nocapture"
            ),
        }
    }
    println!("{seeds} schedules, {checked} operations checked");
    assert!(checked > 10 * seeds, "only {checked} operations were checked");
}

/// Replays the schedule of `SEED`, or with records that of `RECORDS_SEED`, and tells all that happens.
#[test]
fn one_seed() {
    for (variable, keeps_records) in [("SEED", false), ("RECORDS_SEED", true)] {
        if let Some(seed) = number(variable) {
            run(seed, keeps_records, Planted::default(), true).unwrap();
        }
    }
}

/// Each planted fault, whether replicas keep records, and a schedule that finds it. They are to be searched anew (`search_for_a_fault`) when the
/// schedules are changed.
const TELLING: [(Fault, bool, u64); 10] = [
    (Fault::TagWithoutWriter, false, 5),
    (Fault::ReadWithoutWriteBack, false, 50),
    (Fault::FixedQuorum, false, 2),
    (Fault::AnswerWithoutRefill, false, 5),
    (Fault::StaleAcknowledgement, false, 231),
    (Fault::TombstoneForgottenEarly, false, 2887),
    (Fault::UnknownToldAsRefused, false, 0),
    (Fault::RegisterToldBeforeDurable, true, 5),
    (Fault::TagReusedAfterRestart, true, 1539),
    (Fault::RolledBackRegistersAnswer, true, 801),
];

/// Invariants can fail: each of these faults is found by one, before anybody is told what is wrong.
#[test]
fn invariants_find_planted_faults() {
    const SEEDS_MAX: u64 = 2000;
    let faults = [
        (Fault::TagWithoutWriter, "tag"),
        (Fault::ReadWithoutWriteBack, "that no majority holds"),
        (Fault::TombstoneForgottenEarly, "a tombstone is forgotten while older writes may come"),
    ];
    for (fault, words) in faults {
        let planted = Planted::one_with_invariants(fault);
        let found = (0..SEEDS_MAX).find_map(|seed| Some((seed, run(seed, false, planted, false).err()?)));
        let Some((seed, why)) = found else { panic!("{fault:?} is not found in {SEEDS_MAX} schedules") };
        println!("{fault:?}: found by seed {seed}: {why}");
        assert!(
            why.starts_with("panic: ") && why.contains(words),
            "{fault:?}: not by an invariant, but: {why}"
        );
    }
}

/// A search that cannot fail proves nothing: each planted fault is found, by a schedule that finds nothing without it.
#[test]
fn planted_faults_are_found() {
    for (fault, keeps_records, seed) in TELLING {
        let found = run(seed, keeps_records, Planted::one(fault), false);
        assert!(found.is_err(), "{fault:?} is not found by schedule {seed}");
        let without = run(seed, keeps_records, Planted::default(), false);
        assert_eq!(without.err(), None, "schedule {seed} without {fault:?}");
    }
}

/// Searches for the fault that `QUORATE_FAULT` names, in `QUORATE_SEEDS` schedules from `QUORATE_FIRST` on, and tells how
/// many it took.
#[test]
fn search_for_a_fault() {
    #[allow(clippy::disallowed_methods, reason = "tests are told by the environment what to run")]
    let Ok(name) = std::env::var("QUORATE_FAULT") else { return };
    let faults = TELLING.into_iter().filter(|(fault, ..)| name == "all" || format!("{fault:?}") == name);
    let first = number("QUORATE_FIRST").unwrap_or(0);
    for (fault, keeps_records, _) in faults {
        let mut seeds = first..first + number("QUORATE_SEEDS").unwrap_or(10_000);
        let found =
            seeds.find_map(|seed| Some((seed, run(seed, keeps_records, Planted::one(fault), false).err()?)));
        let Some((seed, why)) = found else { panic!("{fault:?} is not found") };
        let why = why.lines().next().unwrap_or_default();
        println!("{fault:?}: found by schedule {seed}, run {}: {why}", seed - first + 1);
    }
}
