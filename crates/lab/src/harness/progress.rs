//! The progress of a sweep: one line that is overwritten on a terminal; elsewhere a line for each arm.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::load::{Progress, Stage};

/// How often the line is redrawn without news, since the remaining time changes.
const TICK: std::time::Duration = std::time::Duration::from_millis(500);

pub(crate) struct Line {
    bar: ProgressBar,
    is_terminal: bool,
}

impl Line {
    /// Starts with `measurements` in total, of which an earlier run has done `done`.
    pub(crate) fn new(measurements: usize, done: usize) -> Line {
        let is_terminal = std::io::stderr().is_terminal();
        let target = if is_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(measurements as u64), target);
        let template = "{bar:20} {pos}/{len}, {eta} left  {prefix}{msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_position(done as u64);
        bar.reset_eta();
        bar.enable_steady_tick(TICK);
        let line = Line { bar, is_terminal };
        if done > 0 {
            line.say(&format!("{done} of {measurements} measurements are already done"));
        }
        line
    }

    /// Prints a line that stays.
    pub(crate) fn say(&self, text: &str) {
        if self.is_terminal {
            self.bar.println(text);
        } else {
            eprintln!("{text}");
        }
    }

    pub(crate) fn round(&self, repeat: u32, repeats: u32) {
        if !self.is_terminal {
            eprintln!("round {repeat} of {repeats}");
        }
    }

    pub(crate) fn arm(&self, name: &str, points: usize) {
        self.bar.set_prefix(name.to_owned());
        self.bar.set_message(": starting");
        if !self.is_terminal {
            eprintln!("  {name}: {points} points");
        }
    }

    pub(crate) fn point(&self, arm: &str, point: &str) {
        self.bar.set_prefix(format!("{arm}, {point}"));
        self.bar.set_message("");
    }

    pub(crate) fn show(&self, progress: &Progress) {
        let stage = match progress.stage {
            Stage::Load => "loading ",
            Stage::Measure => "",
        };
        let (rate, p99_ms) = (progress.operations_per_second, progress.p99_us as f64 / 1000.0);
        self.bar.set_message(format!("  {stage}{rate:.0} op/s, p99 {p99_ms:.2} ms"));
    }

    pub(crate) fn done(&self) {
        self.bar.inc(1);
    }

    /// Notes that `measurements` will not be done.
    pub(crate) fn leave_out(&self, measurements: usize) {
        let length = self.bar.length().unwrap_or(0).saturating_sub(measurements as u64);
        self.bar.set_length(length);
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
