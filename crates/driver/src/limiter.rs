//! Rate limits for warnings that strangers can cause.

use node::{Level, Line};

/// Keeps strangers from filling the log: a few lines per window, then a count of the rest.
#[derive(Debug, Default)]
pub struct Limiter {
    window_start_us: u64,
    lines: u32,
    left_out: u64,
}

impl Limiter {
    const WINDOW_US: u64 = 60_000_000;
    const LINES_PER_WINDOW: u32 = 5;

    /// Adds a warning to `lines`, unless the window already has too many. The next window begins with the
    /// number of lines left out.
    pub fn warn(&mut self, now_us: u64, lines: &mut Vec<Line>, text: impl FnOnce() -> String) {
        let mut log = |text| lines.push(Line { level: Level::Warning, text });
        if now_us.saturating_sub(self.window_start_us) >= Self::WINDOW_US {
            if self.left_out > 0 {
                log(format!("{} more lines of this kind were left out", self.left_out));
            }
            *self = Limiter { window_start_us: now_us, lines: 0, left_out: 0 };
        }
        if self.lines < Self::LINES_PER_WINDOW {
            self.lines += 1;
            log(text());
        } else {
            self.left_out += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_lines_is_cut_off_and_continues_in_the_next_window() {
        let (mut limiter, mut lines) = (Limiter::default(), Vec::new());
        for _ in 0..100 {
            limiter.warn(1, &mut lines, || "again".into());
        }
        assert_eq!((lines.len(), limiter.left_out), (Limiter::LINES_PER_WINDOW as usize, 95));
        lines.clear();
        limiter.warn(1 + Limiter::WINDOW_US, &mut lines, || "later".into());
        let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(texts, ["95 more lines of this kind were left out", "later"]);
    }
}
