//! A seed determines a run, byte for byte.

use sim::{Part, Protocol, Settings};

fn of(protocol: Protocol) -> Settings {
    Settings { protocol: Some(protocol), ..Settings::default() }
}

#[test]
fn two_runs_of_a_seed_are_equal() {
    for seed in 0..20 {
        let once = sim::run(seed, &Settings::default(), false);
        let again = sim::run(seed, &Settings::default(), false);
        assert_eq!(once, again, "seed {seed}");
    }
}

#[test]
fn a_run_with_a_trace_equals_the_run_without() {
    for protocol in Protocol::ALL {
        let silent = sim::run(3, &of(protocol), false);
        let mut traced = sim::run(3, &of(protocol), true);
        let again = sim::run(3, &of(protocol), true);
        assert_eq!(traced.lines, again.lines, "the story is the same too");
        assert!(silent.lines.is_empty() && traced.lines.len() > 1000);
        traced.lines.clear();
        assert_eq!(silent, traced);
    }
}

#[test]
fn different_seeds_give_different_runs() {
    let digest = |seed| sim::run(seed, &Settings::default(), false).digest;
    assert_ne!(digest(1), digest(2));
}

#[test]
fn a_run_omits_the_faults_that_it_should() {
    let whole = sim::run(5, &Settings::default(), false);
    let faults: Vec<Part> = whole.parts.clone();
    let settings = Settings { without: faults.into_iter().collect(), ..Settings::default() };
    let bare = sim::run(5, &settings, false);
    let happened = sim::Class::ALL.into_iter().filter(|class| bare.counts.of(*class) > 0);
    assert_eq!(happened.collect::<Vec<_>>(), [], "nothing goes wrong any more");
    assert_eq!(bare.failure, None);
    assert_eq!(settings.command(5).split("--without ").count(), 2);
}
