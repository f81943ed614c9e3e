//! The log: one line per event, to standard error. A quiet server logs its start and its stop.

use node::{Level, Line};
use tracing_subscriber::EnvFilter;

/// Names the environment variable that says what is logged, as `info` or `debug`.
const FILTER_VARIABLE: &str = "QUORATE_LOG";

/// Sends the log to standard error. Does nothing if the program has set up a log of its own.
pub(crate) fn start() {
    let filter = EnvFilter::try_from_env(FILTER_VARIABLE).unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_target(false).with_ansi(false);
    let _ = log.with_writer(std::io::stderr).try_init();
}

/// Logs what the node has to tell.
pub(crate) fn line(line: &Line) {
    match line.level {
        Level::Info => tracing::info!("{}", line.text),
        Level::Warning => tracing::warn!("{}", line.text),
        Level::Error => tracing::error!("{}", line.text),
    }
}

/// Keeps what strangers can cause from filling the log: so many lines in a while, then a count of the rest.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    window_start_us: u64,
    lines: u32,
    left_out: u64,
}

impl Limiter {
    const WINDOW_US: u64 = 60_000_000;
    const LINES_PER_WINDOW: u32 = 5;

    /// Logs a warning unless there have been too many.
    pub(crate) fn warn(&mut self, now_us: u64, text: impl FnOnce() -> String) {
        if now_us.saturating_sub(self.window_start_us) >= Self::WINDOW_US {
            if self.left_out > 0 {
                tracing::warn!("{} more lines of this kind were left out", self.left_out);
            }
            *self = Limiter { window_start_us: now_us, lines: 0, left_out: 0 };
        }
        if self.lines < Self::LINES_PER_WINDOW {
            self.lines += 1;
            let text = text();
            tracing::warn!("{text}");
        } else {
            self.left_out += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_lines_is_cut_and_goes_on_in_the_next_window() {
        let mut limiter = Limiter::default();
        let mut written = 0;
        for _ in 0..100 {
            limiter.warn(1, || {
                written += 1;
                String::new()
            });
        }
        assert_eq!((written, limiter.left_out), (Limiter::LINES_PER_WINDOW, 95));
        limiter.warn(1 + Limiter::WINDOW_US, || {
            written += 1;
            String::new()
        });
        assert_eq!(written, Limiter::LINES_PER_WINDOW + 1);
    }
}
