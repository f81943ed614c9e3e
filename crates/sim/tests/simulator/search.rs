//! Sound clusters keep what they promise, and the search does what it says.

use sim::{Class, Protocol, Settings, Totals};

/// Runs some seeds of a protocol; each must keep every promise.
fn search(protocol: Protocol, seeds: u64) -> Totals {
    let settings = Settings { protocol: Some(protocol), ..Settings::default() };
    let mut totals = Totals::default();
    for seed in 0..seeds {
        let report = sim::run(seed, &settings, false);
        totals.add(&report);
        assert_eq!(report.failure, None, "replay it with: {}", settings.command(seed));
    }
    totals
}

#[test]
fn leader_follower_keeps_its_promises() {
    search(Protocol::LeaderFollower, 60);
}

#[test]
fn abd_keeps_its_promises() {
    search(Protocol::Abd, 60);
}

#[test]
fn blocking_keeps_its_promises() {
    search(Protocol::Blocking, 60);
}

/// Keyspaces of different protocols live in one cluster.
#[test]
fn protocols_keep_their_promises_side_by_side() {
    let mut totals = Totals::default();
    for seed in 0..40 {
        let report = sim::run(seed, &Settings::default(), false);
        assert_eq!(report.failure, None, "replay it with: {}", Settings::default().command(seed));
        totals.add(&report);
    }
    assert_eq!(totals.seen.len(), Protocol::ALL.len(), "every protocol was drawn");
    // A search in which nothing goes wrong, or nobody is served, shows nothing.
    for class in Class::ALL {
        assert!(totals.counts.of(class) > 0, "there is no {} in 40 runs", class.name());
    }
    for (protocol, seen) in &totals.seen {
        assert!(seen.done > seen.operations / 2, "{protocol} serves: {seen:?}");
        assert!(seen.checked > seen.operations / 3, "{protocol} is checked: {seen:?}");
        assert!(seen.refused > 0 && seen.unknown > 0, "{protocol} has trouble: {seen:?}");
    }
}
