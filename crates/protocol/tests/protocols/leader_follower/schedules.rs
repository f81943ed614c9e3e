//! A seeded search over random schedules: clients, loss, duplication, reordering, delay, broken links,
//! crashes that lose memory, disks or what was not synced, clocks that jump and drift, and a control group that
//! promises leases, appoints leaders and grants requests late or never; first safety under trouble, then everything
//! heals and the group must become whole: all replicas equal, every request answered.
//!
//! ```text
//! cargo test -p quorate-protocol --test protocols leader_follower::schedules
//! QUORATE_SEEDS=100000 cargo test -p quorate-protocol --test protocols leader_follower::schedules
//! SEED=17 cargo test -p quorate-protocol --test protocols leader_follower::schedules::one_seed -- --exact --nocapture
//! ```

use super::schedule::control::Breach;
use super::schedule::plant::Plant;
use super::schedule::schedule;
use crate::kit::search::{finds, finds_by_invariant, number, run, search, seeds};
use protocol::planted::Fault;

/// Seeds that each show what a rule is good for: without it they failed when they were found. They run on every change. Search
/// for new ones (take the rule out, run many seeds) when the schedules themselves change.
const TELLING: [(u64, &str); 10] = [
    (
        1,
        "a follower keeps what it holds until a snapshot and the records after it have reached the same position",
    ),
    (168, "a replica without memory vouches for nothing before it has caught up"),
    (233, "only replicas that have their memory are counted"),
    (296, "a follower's request alone is no evidence of what it holds"),
    (25, "a follower that has applied records outside this history gets everything again"),
    (40, "a new leader answers reads only when its own first record is committed"),
    (4038, "writes that took effect at once and writes that have to wait are never in one batch"),
    (
        0,
        "a follower for which a place in the in-sync set was requested is waited for until the map decides otherwise, even if silent",
    ),
    (4329, "an answer to an earlier question is ignored"),
    (297, "records that a leader wrote before it learned of a higher epoch belong to its own epoch"),
];

/// The same with values outside the tables.
const TELLING_SPILLED: [(u64, &str); 2] = [
    (3353, "a value released again, while its removal waits, stays for a checkpoint that began in between"),
    (23412, "a node that lost its memory matters again only when its disk holds what it caught up with"),
];

fn check(seed: u64, plant: Option<Plant>, spills: bool) -> Result<u64, String> {
    schedule(seed, plant, spills, false).run()
}

#[test]
fn random_schedules_keep_every_promise() {
    let telling = TELLING.into_iter().map(|(seed, _)| seed);
    let replay = ("leader_follower::schedules::one_seed", "SEED");
    search(telling.chain(seeds(1_700)), replay, |seed| check(seed, None, false));
}

/// The same schedules, with references in the tables, snapshots that wait for stores, and crashes that lose what was put into a
/// store since its node's last checkpoint.
#[test]
fn random_schedules_lose_no_spilled_value() {
    let telling = TELLING_SPILLED.into_iter().map(|(seed, _)| seed);
    let replay = ("leader_follower::schedules::one_seed", "SPILLED_SEED");
    search(telling.chain(seeds(850)), replay, |seed| check(seed, None, true));
}

/// Replays the schedule of `SEED`, or with spilled values that of `SPILLED_SEED`, and prints all that happens.
#[test]
fn one_seed() {
    for (variable, spilled) in [("SEED", false), ("SPILLED_SEED", true)] {
        if let Some(seed) = number(variable) {
            run(|| schedule(seed, None, spilled, true).run()).unwrap();
        }
    }
}

/// A search that cannot fail proves nothing: each planted fault is found within a few hundred schedules.
#[test]
fn planted_faults_are_found() {
    let plants = Plant::ALL.map(|plant| (plant, false));
    let of_spilled = Plant::OF_SPILLED.map(|plant| (plant, true));
    for (plant, spilled) in plants.into_iter().chain(of_spilled) {
        // One schedule in some 3,000 finds the rarest, so its search begins shortly before one of those.
        let first = if matches!(plant, Plant::InControl(Breach::LeasesOnAnOldMap)) { 6000 } else { 0 };
        finds(plant, first..first + 3000, |seed| check(seed, Some(plant), spilled));
    }
}

/// Invariants can fail: each of these faults is found by an invariant, before any client gets a wrong answer.
#[test]
fn invariants_find_planted_faults() {
    let faults = [
        (Fault::VisibleBeforeCommitted, "too few followers hold it"),
        (Fault::OneAcknowledgementTooFew, "too few followers hold it"),
        (Fault::LeaderCountsUnrecorded, "not durable here"),
        (Fault::InSyncShrunkEarly, "is not waited for"),
        (Fault::InSyncGrownEarly, "is not waited for"),
        (Fault::NoRecovery, "in an epoch that it may forget"),
    ];
    for (fault, words) in faults {
        let plant = Some(Plant::WithInvariants(fault));
        finds_by_invariant(fault, words, 0..3000, |seed| check(seed, plant, false));
    }
}
