//! One run, from its seed to its report.

use crate::judge::Evidence;
use crate::promise::Protocol;
use crate::report::{Broken, Failure, Report};
use crate::scenario::{Scenario, Settings};
use crate::world::World;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a seed. With `traced`, the report contains the run's trace, which takes far longer.
pub fn run(seed: u64, settings: &Settings, traced: bool) -> Report {
    let scenario = Scenario::draw(seed, settings);
    let mut report = Report {
        seed,
        digest: 0,
        simulated_us: 0,
        turns: 0,
        frames: 0,
        counts: Default::default(),
        seen: BTreeMap::new(),
        failure: None,
        scenario: scenario.describe(),
        parts: scenario.parts(),
        clients: scenario.think_us.len(),
        length_ms: scenario.length_us / 1000,
        lines: Vec::new(),
    };
    let mut world = World::new(scenario, traced);
    let panic = run_to_end(&mut world);
    (report.simulated_us, report.counts) = (world.now(), world.counts);
    (report.turns, report.frames) = (world.turns, world.frames);
    let stayed: Vec<bool> = (0..world.scenario.spaces.len()).map(|index| world.is_judged(index)).collect();
    let served: Vec<(usize, u64)> = match panic {
        None => (0..stayed.len()).map(|index| world.served_requests(index)).collect(),
        Some(_) => vec![(0, 0); stayed.len()],
    };
    let misread = if panic.is_none() { world.misread() } else { None };
    let evidence = Evidence {
        stayed: &stayed,
        returned: &world.returned,
        served: &served,
        record: &world.record,
        spaces: &world.scenario.spaces,
        forgot: &world.forgot,
        recovered: &world.recovered,
        recovered_at: world.recovered_at,
        clocks_apart_ms: world.clocks.apart_ms(),
    };
    let (seen, unsafe_answer) = evidence.judge();
    for (space, seen) in world.scenario.spaces.iter().zip(seen) {
        report.seen.entry(space.protocol).or_default().merge(&seen);
    }
    let is_whole = panic.is_none() && !world.has_failed();
    let restored = if is_whole { world.restored(traced) } else { None };
    let is_only_busy = world.scenario.is_only_busy;
    let (failure, digest, lines) = world.finish();
    let unanswered = unanswered(&report, is_only_busy);
    // A run that ends early leaves elements with nobody.
    let (leadership, failure) = match failure {
        Some(failure) if failure.broken == Broken::Leadership => (Some(failure), None),
        failure => (None, failure),
    };
    report.failure = panic.or(leadership).or(unsafe_answer).or(misread).or(failure).or(unanswered);
    (report.digest, report.lines) = (digest, lines);
    if let Some(world) = restored {
        run_restored(world, &mut report);
    }
    report
}

/// In a run in which nothing goes wrong but that nodes are busy, no request has an unknown outcome. Except under locks: an operation
/// that waits for busy nodes keeps its key locked, and the next ones may wait longer than a command has.
fn unanswered(report: &Report, is_only_busy: bool) -> Option<Failure> {
    let seen = report.seen.iter().filter(|(protocol, _)| **protocol != Protocol::Blocking);
    let unknown: u64 = seen.map(|(_, seen)| seen.unknown).sum();
    let words = format!("{unknown} requests have an unknown outcome, though nodes were only busy");
    let window_us = (0, report.simulated_us);
    let is_broken = is_only_busy && unknown > 0;
    is_broken.then_some(Failure { broken: Broken::Leadership, words, window_us, picture: None })
}

/// Runs the cluster into which backups were restored, and adds its results.
fn run_restored(mut world: World, report: &mut Report) {
    let panic = run_to_end(&mut world);
    report.simulated_us += world.now();
    report.turns += world.turns;
    report.frames += world.frames;
    report.counts.merge(&world.counts);
    let (failure, digest, lines) = world.finish();
    let failure = panic.or(failure);
    let of_restored = |failure: Failure| Failure {
        words: format!("in the cluster into which backups were restored: {}", failure.words),
        ..failure
    };
    report.failure = report.failure.take().or(failure.map(of_restored));
    report.digest ^= digest;
    report.lines.extend(lines);
}

/// Runs a world to its end. A node that finds an invariant broken panics; after that, only the world's counters may be used.
fn run_to_end(world: &mut World) -> Option<Failure> {
    let panic = catch_unwind(AssertUnwindSafe(|| world.run())).err()?;
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
    let words = format!("a node stops: {}", text.unwrap_or_default());
    let window_us = (world.now().saturating_sub(500_000), world.now());
    Some(Failure { broken: Broken::Panic, words, window_us, picture: None })
}
