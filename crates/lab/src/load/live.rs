//! The progress of a run, for people: one changing line on a terminal, elsewhere a line each second.

use std::io::{self, IsTerminal};

use super::report::grouped;
use super::{Progress, Stage};

/// Displays progress.
pub struct Live {
    kind: Kind,
    is_shown: bool,
}

#[derive(Clone, Copy)]
enum Kind {
    OneLine,
    Lines,
    Silent,
}

impl Live {
    /// Displays progress on the standard error stream.
    pub fn new() -> Self {
        Self { kind: if io::stderr().is_terminal() { Kind::OneLine } else { Kind::Lines }, is_shown: false }
    }

    /// Displays nothing.
    pub fn silent() -> Self {
        Self { kind: Kind::Silent, is_shown: false }
    }

    /// Displays the progress, under a label.
    pub fn show(&mut self, label: &str, progress: &Progress) {
        let line = line(label, progress);
        match self.kind {
            Kind::Silent => {}
            Kind::Lines => eprintln!("{line}"),
            // Returns to the start of the line, and erases the rest of an older, longer line.
            Kind::OneLine => {
                eprint!("\r\x1b[K{line}");
                self.is_shown = true;
            }
        }
    }

    /// Erases the changing line.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            eprint!("\r\x1b[K");
        }
    }
}

impl Default for Live {
    fn default() -> Self {
        Self::new()
    }
}

fn line(label: &str, progress: &Progress) -> String {
    let stage = match progress.stage {
        Stage::Load => "loading",
        Stage::Measure => "running",
    };
    format!(
        "{label}{}{stage} {:.0} s  {} op/s  p99 {} us  {} failures",
        if label.is_empty() { "" } else { "  " },
        progress.elapsed.as_secs_f64(),
        grouped(progress.operations_per_second.round() as u64),
        grouped(progress.p99_us),
        grouped(progress.failures),
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_line_has_the_rate_and_the_p99() {
        let progress = Progress {
            stage: Stage::Measure,
            elapsed: Duration::from_millis(3100),
            operations_per_second: 12_345.6,
            p99_us: 1_500,
            operations: 40_000,
            failures: 2,
        };
        assert_eq!(line("", &progress), "running 3 s  12,346 op/s  p99 1,500 us  2 failures");
        assert_eq!(line("A", &progress), "A  running 3 s  12,346 op/s  p99 1,500 us  2 failures");
    }
}
