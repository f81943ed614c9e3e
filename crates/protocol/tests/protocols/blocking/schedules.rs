//! A seeded search over random schedules of `blocking`: clients, loss, duplication, delay, broken links, pauses,
//! crashes that lose memory and clocks that differ; then everything heals, every request must have an outcome, the
//! replicas must become equal and all locks be free, and the answers to clients must be linearizable.
//!
//! ```text
//! cargo test -p quorate-protocol --test protocols blocking::schedules
//! QUORATE_SEEDS=100000 cargo test -p quorate-protocol --test protocols blocking::schedules
//! SEED=17 cargo test -p quorate-protocol --test protocols blocking::schedules::one_seed -- --exact --nocapture
//! ```

use super::schedule::schedule;
use crate::kit::search::{finds, finds_by_invariant, number, run, search, seeds};
use protocol::planted::{Fault, Planted};

fn search_all(keeps_records: bool, variable: &str) {
    let replay = ("blocking::schedules::one_seed", variable);
    search(seeds(300), replay, |seed| schedule(seed, keeps_records, Planted::default(), (true, false)).run());
}

#[test]
fn random_schedules_keep_every_promise() {
    search_all(false, "SEED");
}

/// Replicas keep records: crashes lose what was not synced, any number of nodes crash at one time, and disks are lost.
#[test]
fn random_schedules_with_records_keep_every_promise() {
    search_all(true, "RECORDS_SEED");
}

/// Replays the schedule of `SEED`, or with records that of `RECORDS_SEED`, and prints all that happens.
#[test]
fn one_seed() {
    for (variable, keeps_records) in [("SEED", false), ("RECORDS_SEED", true)] {
        if let Some(seed) = number(variable) {
            run(|| schedule(seed, keeps_records, Planted::default(), (true, true)).run()).unwrap();
        }
    }
}

/// A search that cannot fail proves nothing: each planted fault is found, by the answers to clients if clients can see
/// the fault, otherwise by the checks of the locks.
#[test]
fn planted_faults_are_found() {
    let faults = [
        (Fault::WriteWithoutLockCheck, false, false),
        (Fault::ReadWithoutRepair, false, false),
        (Fault::UnknownReportedAsRefused, false, false),
        (Fault::UnlockByNonOwner, false, true),
        (Fault::SurplusLockKept, false, true),
        (Fault::RegisterAcknowledgedBeforeDurable, true, false),
        (Fault::TagReusedAfterRestart, true, true),
        (Fault::UnknownReportedAsRefused, true, false),
    ];
    for (fault, keeps_records, looks_inside) in faults {
        let looks = (looks_inside, false);
        finds(fault, 0..5000, |seed| schedule(seed, keeps_records, Planted::one(fault), looks).run());
    }
}

/// Invariants can fail: this fault is found by an invariant, before any client gets a wrong answer.
#[test]
fn an_invariant_finds_a_planted_fault() {
    let fault = Fault::ReadWithoutRepair;
    let planted = Planted::one_with_invariants(fault);
    let schedule = |seed| schedule(seed, false, planted, (false, false)).run();
    finds_by_invariant(fault, "that no majority holds", 0..2000, schedule);
}
