//! A seeded search over random schedules of abd groups: clients, loss, duplication, reordering, messages that arrive much later,
//! broken links, crashes that lose memory (and disks), clocks that jump and differ. Every key's history must be linearizable.
//! Then what is broken stays broken, but a majority is left alone, and it must do every request. At last everything heals: all
//! replicas become equal, every request is answered, and no tombstone is left.
//!
//! ```text
//! cargo test -p quorate-protocol --test protocols abd::schedules
//! QUORATE_SEEDS=100000 cargo test -p quorate-protocol --test protocols abd::schedules
//! SEED=17 cargo test -p quorate-protocol --test protocols abd::schedules::one_seed -- --exact --nocapture
//! ```

use super::schedule::schedule;
use crate::kit::search::{finds, finds_by_invariant, number, run, search, seeds, variable};
use protocol::planted::{Fault, Planted};

fn check(seed: u64, keeps_records: bool, planted: Planted) -> Result<u64, String> {
    schedule(seed, keeps_records, planted, false).run()
}

#[test]
fn random_schedules_keep_every_promise() {
    let replay = ("abd::schedules::one_seed", "SEED");
    search(seeds(330), replay, |seed| check(seed, false, Planted::default()));
}

/// Replicas keep records: crashes lose what was not synced, any number of nodes crash at one time, and disks are lost or rolled
/// back.
#[test]
fn random_schedules_with_records_keep_every_promise() {
    let replay = ("abd::schedules::one_seed", "RECORDS_SEED");
    search(seeds(330), replay, |seed| check(seed, true, Planted::default()));
}

/// A majority loses its memory, and an operator gives that up.
#[test]
fn nothing_is_lost_but_what_was_given_up() {
    let seeds = seeds(100);
    let replay = ("abd::schedules::one_seed", "LOSS_SEED");
    let checked = search(seeds.clone(), replay, |seed| {
        schedule(seed, false, Planted::default(), false).run_with_a_loss()
    });
    let least = 10 * seeds.count() as u64;
    assert!(checked > least, "only {checked} operations were checked");
}

/// Replays the schedule of `SEED`, or with records that of `RECORDS_SEED`, or that of `LOSS_SEED` in which a majority loses its
/// memory, and prints all that happens.
#[test]
fn one_seed() {
    for (variable, keeps_records) in [("SEED", false), ("RECORDS_SEED", true)] {
        if let Some(seed) = number(variable) {
            run(|| schedule(seed, keeps_records, Planted::default(), true).run()).unwrap();
        }
    }
    if let Some(seed) = number("LOSS_SEED") {
        run(|| schedule(seed, false, Planted::default(), true).run_with_a_loss()).unwrap();
    }
}

/// Each planted fault, whether replicas keep records, and the seed of a schedule that finds it. Search for new seeds
/// (`search_for_a_fault`) when the schedules change.
const TELLING: [(Fault, bool, u64); 10] = [
    (Fault::TagWithoutWriter, false, 2),
    (Fault::ReadWithoutWriteBack, false, 0),
    (Fault::FixedQuorum, false, 0),
    (Fault::AnswerWithoutRefill, false, 0),
    (Fault::StaleAcknowledgement, false, 4223),
    (Fault::TombstoneForgottenEarly, false, 184),
    (Fault::UnknownReportedAsRefused, false, 0),
    (Fault::RegisterAcknowledgedBeforeDurable, true, 5),
    (Fault::TagReusedAfterRestart, true, 239),
    (Fault::RolledBackRegistersAnswer, true, 715),
];

/// A search that cannot fail proves nothing: each planted fault is found, by a schedule that finds nothing without the fault.
#[test]
fn planted_faults_are_found() {
    for (fault, keeps_records, seed) in TELLING {
        finds(fault, seed..=seed, |seed| check(seed, keeps_records, Planted::one(fault)));
        let without = run(|| check(seed, keeps_records, Planted::default()));
        assert_eq!(without.err(), None, "schedule {seed} without {fault:?}");
    }
}

/// Searches for the fault that `QUORATE_FAULT` names, or for `all`, in `QUORATE_SEEDS` schedules from `FIRST_SEED` on, and prints
/// how many schedules it took.
#[test]
fn search_for_a_fault() {
    let Some(name) = variable("QUORATE_FAULT") else { return };
    let faults = TELLING.into_iter().filter(|(fault, ..)| name == "all" || format!("{fault:?}") == name);
    for (fault, keeps_records, _) in faults {
        finds(fault, seeds(10_000), |seed| check(seed, keeps_records, Planted::one(fault)));
    }
}

/// Invariants can fail: each of these faults is found by an invariant, before any client gets a wrong answer.
#[test]
fn invariants_find_planted_faults() {
    let faults = [
        (Fault::TagWithoutWriter, "tag"),
        (Fault::ReadWithoutWriteBack, "that no majority holds"),
        (Fault::TombstoneForgottenEarly, "a tombstone is forgotten while older writes may come"),
    ];
    for (fault, words) in faults {
        let planted = Planted::one_with_invariants(fault);
        finds_by_invariant(fault, words, 0..2000, |seed| check(seed, false, planted));
    }
}
