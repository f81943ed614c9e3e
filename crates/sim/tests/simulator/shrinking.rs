//! A failing run is made smaller, and what is left is replayed by one command.

use protocol::planted::{Fault, Planted};
use sim::{Protocol, Settings};

#[test]
fn a_shrunk_run_fails_as_the_whole_one_did_with_far_fewer_faults() {
    let planted = Planted::one(Fault::OneAcknowledgementTooFew);
    let settings = Settings { protocol: Some(Protocol::LeaderFollower), planted, ..Settings::default() };
    let fails = |seed: &u64| sim::run(*seed, &settings, false).failure.is_some();
    let seed = (0..1000).find(fails).expect("the fault is found");
    let whole = sim::run(seed, &settings, false);
    let shrunk = sim::shrink(seed, &settings, 100, |_, _| {}).expect("it fails");
    let again = sim::run(seed, &shrunk.settings, false);
    assert_eq!(again, shrunk.report, "it is replayed by its settings");
    let broken = |report: &sim::Report| report.failure.as_ref().map(|failure| failure.broken);
    assert_eq!(broken(&again), broken(&whole));
    let left = again.parts.len() - shrunk.settings.without.iter().filter(|p| again.parts.contains(p)).count();
    assert!(left < whole.parts.len(), "{left} of {} parts are left", whole.parts.len());
    assert!(again.simulated_us <= whole.simulated_us);
    println!("{} runs: {}", shrunk.runs, shrunk.settings.command(seed));
}

#[test]
fn a_sound_run_cannot_be_shrunk() {
    assert!(sim::shrink(0, &Settings::default(), 10, |_, _| {}).is_none());
}
