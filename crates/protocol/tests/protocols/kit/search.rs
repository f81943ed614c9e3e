//! The search over random schedules: a seed determines all that happens in one of them. A failure is returned as text, and
//! the seed replays it.

use std::panic::AssertUnwindSafe;

/// Returns an environment variable that controls the tests.
pub(crate) fn variable(name: &str) -> Option<String> {
    #[allow(clippy::disallowed_methods, reason = "the environment controls which tests run")]
    std::env::var(name).ok()
}

pub(crate) fn number(name: &str) -> Option<u64> {
    variable(name)?.parse().ok()
}

/// Runs a schedule. A failure, including a panic of a replica, is returned as text.
pub(crate) fn run<T>(schedule: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    match std::panic::catch_unwind(AssertUnwindSafe(schedule)) {
        Ok(checked) => checked,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
            Err(format!("panic: {}", text.unwrap_or_default()))
        }
    }
}

/// The seeds to search: `QUORATE_SEEDS` of them from `FIRST_SEED` on, or `count` from 0 on.
pub(crate) fn seeds(count: u64) -> std::ops::Range<u64> {
    let first = number("FIRST_SEED").unwrap_or(0);
    first..first + number("QUORATE_SEEDS").unwrap_or(count)
}

/// Runs a schedule of each seed, none of which may fail. `replay` is the test that replays one, and the variable that names
/// its seed. Returns the total of what was checked.
pub(crate) fn search(
    seeds: impl Iterator<Item = u64>,
    (test, variable): (&str, &str),
    schedule: impl Fn(u64) -> Result<u64, String>,
) -> u64 {
    const FAILURES_MAX: u64 = 10;
    let (mut failures, mut searched, mut checked) = (0, 0, 0);
    for seed in seeds {
        searched += 1;
        match run(|| schedule(seed)) {
            Ok(operations) => checked += operations,
            Err(why) => {
                failures += 1;
                println!("seed {seed}: {why}");
                println!(
                    "replay: {variable}={seed} cargo test -p quorate-protocol --test protocols {test} -- --exact --nocapture"
                );
                assert!(failures < FAILURES_MAX, "many seeds fail");
            }
        }
    }
    assert_eq!(failures, 0, "of {searched} seeds");
    println!("{searched} schedules, {checked} operations checked");
    checked
}

/// A search that cannot fail proves nothing: some seed has to find a planted fault. Prints the first such seed, and what it
/// found.
pub(crate) fn finds<T>(
    what: impl std::fmt::Debug,
    seeds: impl Iterator<Item = u64>,
    schedule: impl Fn(u64) -> Result<T, String>,
) -> String {
    let mut searched = 0;
    for seed in seeds {
        searched += 1;
        if let Err(why) = run(|| schedule(seed)) {
            let first_line = why.lines().next().unwrap_or_default();
            println!("{what:?}: found by seed {seed}, run {searched}: {first_line}");
            return why;
        }
    }
    panic!("{what:?} is not found in {searched} schedules");
}

/// Invariants can fail: one whose message has these words finds a planted fault, before any client gets a wrong answer.
pub(crate) fn finds_by_invariant<T>(
    what: impl std::fmt::Debug + Copy,
    words: &str,
    seeds: impl Iterator<Item = u64>,
    schedule: impl Fn(u64) -> Result<T, String>,
) {
    let why = finds(what, seeds, schedule);
    let by_invariant = why.starts_with("panic: ") && why.contains(words);
    assert!(by_invariant, "{what:?}: not by an invariant, but: {why}");
}
