//! A seeded search over random schedules of `blocking`: clients, loss, duplication, delay, broken links, pauses,
//! crashes that lose memory and clocks that differ; then everything heals, every request must have an outcome, the
//! replicas must become equal and all locks be free, and what clients were told must be linearizable.
//!
//! ```text
//! cargo test -p quorate-protocol --test protocols blocking::schedules
//! QUORATE_SEEDS=100000 cargo test -p quorate-protocol --test protocols blocking::schedules
//! SEED=17 cargo test -p quorate-protocol --test protocols blocking::schedules::one_seed -- --exact --nocapture
//! ```

use super::schedule::Schedule;
use crate::kit::search::{finds, number, run, search, seeds};
use protocol::planted::{Fault, Planted};

fn schedule(seed: u64, keeps_records: bool) -> Result<u64, String> {
    Schedule::new(seed, keeps_records, Planted::default(), (true, false)).run()
}

#[test]
fn random_schedules_keep_every_promise() {
    search(seeds(300), ("blocking::schedules::one_seed", "SEED"), |seed| schedule(seed, false));
}

/// Replicas keep records: crashes lose what was not synced, any number of nodes at one time, and disks are lost.
#[test]
fn random_schedules_with_records_keep_every_promise() {
    search(seeds(300), ("blocking::schedules::one_seed", "RECORDS_SEED"), |seed| schedule(seed, true));
}

/// Replays the schedule of `SEED`, or with records that of `RECORDS_SEED`, and tells all that happens.
#[test]
fn one_seed() {
    for (variable, keeps_records) in [("SEED", false), ("RECORDS_SEED", true)] {
        if let Some(seed) = number(variable) {
            run(|| Schedule::new(seed, keeps_records, Planted::default(), (true, true)).run()).unwrap();
        }
    }
}

/// A search that cannot fail proves nothing: each planted fault is found, by what clients are told where it is a fault
/// that clients can see, else by a look at the locks.
#[test]
fn planted_faults_are_found() {
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
        let schedule =
            |seed| Schedule::new(seed, keeps_records, Planted::one(fault), (looks_inside, false)).run();
        finds(fault, 0..5000, schedule);
    }
}
