//! Reduces a failing run to a smaller one that still fails.
//!
//! Faults are left out in ever smaller groups (delta debugging, Zeller and Hildebrandt 2002), then the run is
//! shortened and clients are removed, and all of this repeats until nothing changes. Whatever is left out, the rest
//! is drawn as before, so the seed and the list of omissions replay the smaller run.

use crate::report::{Broken, Report};
use crate::run::run;
use crate::scenario::{Part, Settings};

/// A smaller run that fails in the same way.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The settings to run it with.
    pub settings: Settings,
    /// The report of the smaller run.
    pub report: Report,
    /// The number of runs it took to find it.
    pub runs: u64,
}

struct Shrinking<F> {
    seed: u64,
    broken: Broken,
    smallest: Shrunk,
    runs_max: u64,
    progress: F,
}

/// Shrinks a failing run, in at most `runs_max` runs. Returns `None` if the run does not fail. After each run,
/// `progress` gets the number of runs so far and of remaining parts.
pub fn shrink(
    seed: u64,
    settings: &Settings,
    runs_max: u64,
    progress: impl FnMut(u64, usize),
) -> Option<Shrunk> {
    let report = run(seed, settings, false);
    let broken = report.failure.as_ref()?.broken;
    let smallest = Shrunk { settings: settings.clone(), report, runs: 1 };
    let mut shrinking = Shrinking { seed, broken, smallest, runs_max, progress };
    loop {
        let before = shrinking.smallest.settings.clone();
        shrinking.leave_out_parts();
        shrinking.make_shorter();
        shrinking.take_clients_away();
        let after = &shrinking.smallest.settings;
        let same = (&before.without, before.clients_max, before.length_ms_max)
            == (&after.without, after.clients_max, after.length_ms_max);
        if same || shrinking.smallest.runs >= runs_max {
            return Some(shrinking.smallest);
        }
    }
}

impl<F: FnMut(u64, usize)> Shrinking<F> {
    /// Keeps these settings if a run with them fails as the first one did.
    fn try_with(&mut self, change: impl FnOnce(&mut Settings)) -> bool {
        if self.smallest.runs >= self.runs_max {
            return false;
        }
        let mut settings = self.smallest.settings.clone();
        change(&mut settings);
        let report = run(self.seed, &settings, false);
        self.smallest.runs += 1;
        let fails = report.failure.as_ref().is_some_and(|failure| failure.broken == self.broken);
        if fails {
            (self.smallest.settings, self.smallest.report) = (settings, report);
        }
        let left = self.parts().len();
        (self.progress)(self.smallest.runs, left);
        fails
    }

    fn parts(&self) -> Vec<Part> {
        let without = &self.smallest.settings.without;
        self.smallest.report.parts.iter().copied().filter(|part| !without.contains(part)).collect()
    }

    fn leave_out_parts(&mut self) {
        let mut group = self.parts().len();
        while group > 0 {
            let mut at = 0;
            loop {
                let parts = self.parts();
                let Some(some) = parts.get(at..parts.len().min(at + group)).filter(|some| !some.is_empty())
                else {
                    break;
                };
                if !self.try_with(|settings| settings.without.extend(some)) {
                    at += group;
                }
            }
            group /= 2;
        }
    }

    fn make_shorter(&mut self) {
        let length_ms = self.smallest.report.length_ms;
        for parts in [1, 2, 4, 6, 7] {
            if self.try_with(|settings| settings.length_ms_max = Some(length_ms * parts / 8)) {
                return;
            }
        }
    }

    fn take_clients_away(&mut self) {
        for clients in 1..self.smallest.report.clients {
            if self.try_with(|settings| settings.clients_max = Some(clients)) {
                return;
            }
        }
    }
}
