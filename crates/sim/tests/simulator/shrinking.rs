//! A failing run is shrunk, and one command replays the result.

use protocol::planted::{Fault, Planted};
use sim::{Protocol, Settings};

#[test]
fn a_shrunk_run_fails_as_the_whole_one_did_with_far_fewer_faults() {
    let planted = Planted::one(Fault::UnknownReportedAsRefused);
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
}

#[test]
fn a_sound_run_cannot_be_shrunk() {
    assert!(sim::shrink(0, &Settings::default(), 10, |_, _| {}).is_none());
}

#[test]
fn a_failure_is_reported_with_the_steps_around_it() {
    let planted = Planted::one(Fault::UnknownReportedAsRefused);
    let settings = Settings { protocol: Some(Protocol::LeaderFollower), planted, ..Settings::default() };
    // Some failures show in a single client's reply: those have no picture.
    let fails = |seed: &u64| {
        let failure = sim::run(*seed, &settings, false).failure;
        failure.is_some_and(|failure| failure.words.contains("is not linearizable"))
    };
    let seed = (0..1000).find(fails).expect("the fault is found");
    let report = sim::run(seed, &settings, true);
    let failure = report.failure.as_ref().expect("it fails again");
    assert!(failure.picture.as_ref().is_some_and(|picture| picture.starts_with("<svg")));
    let lines = report.lines_around_failure(60);
    assert!((1..=60).contains(&lines.len()), "{} lines", lines.len());
    // Nodes exchange many messages between two replies, if only in the control group.
    let more = report.lines_around_failure(1000);
    assert!(more.iter().any(|line| line.text.contains(" gets #")), "clients' answers are among them");
    let (from, to) = failure.window_us;
    assert!(lines.iter().all(|line| line.at_us + 20_000 >= from && line.at_us <= to + 20_000));
}
