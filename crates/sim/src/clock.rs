//! A node's two clocks, neither of which shows the true time.

use crate::random::Random;
use protocol::Now;

/// What a correct wall clock shows at true time 0.
const UNIX_MS_AT_START: i64 = 1_700_000_000_000;

/// One machine's clocks. Times are microseconds of simulated time.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    /// When the node's process started. Its monotonic clock starts near zero at that moment, as a real process's
    /// does.
    started_at: u64,
    started_us: u64,
    /// How much faster the monotonic clock runs, in parts per million.
    drift_ppm: i64,
    /// How far the wall clock is ahead.
    unix_ahead_ms: i64,
    /// Earlier values of `unix_ahead_ms`, each with the time at which the clock was set to another.
    earlier_ahead_ms: Vec<(u64, i64)>,
}

/// The range of times, in milliseconds ahead of the true time, that a majority of wall clocks has agreed on so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Agreed(Option<(i64, i64)>);

impl Agreed {
    /// Records the ranges within which the clocks showed the time. `majority` clocks are a majority.
    pub(crate) fn note(&mut self, shown: Vec<(i64, i64)>, majority: usize) {
        let (mut least, mut most): (Vec<i64>, Vec<i64>) = shown.into_iter().unzip();
        least.sort_unstable();
        most.sort_unstable();
        let (at_least, at_most) = (majority - 1, most.len() - majority);
        let least = least[at_least.min(at_most)];
        let most = most[at_least.max(at_most)];
        let (low, high) = self.0.unwrap_or((least, most));
        self.0 = Some((low.min(least), high.max(most)));
    }

    /// The width of the range.
    pub(crate) fn apart_ms(&self) -> u64 {
        self.0.map_or(0, |(low, high)| low.abs_diff(high))
    }
}

impl Clock {
    pub(crate) fn new(drift_ppm: i64, unix_ahead_ms: i64) -> Clock {
        Clock { started_at: 0, started_us: 0, drift_ppm, unix_ahead_ms, earlier_ahead_ms: Vec::new() }
    }

    /// Starts the monotonic clock of a new process. Few different values are drawn, so that a rule which takes this
    /// clock's readings for unique across a node's incarnations is caught.
    pub(crate) fn restart(&mut self, now: u64, random: &mut Random) {
        self.started_at = now;
        self.started_us = 1000 + random.below(4);
    }

    /// Returns what the node reads at a true time.
    #[inline]
    pub(crate) fn read(&self, now: u64) -> Now {
        let unix_ms = UNIX_MS_AT_START + (now / 1000) as i64 + self.unix_ahead_ms;
        Now { monotonic_us: self.monotonic_us(now), unix_ms: unix_ms.max(0) as u64 }
    }

    #[inline]
    fn monotonic_us(&self, now: u64) -> u64 {
        let elapsed = now - self.started_at;
        match self.drift_ppm {
            0 => self.started_us + elapsed,
            ppm => self.started_us.wrapping_add_signed(elapsed as i64 + elapsed as i64 * ppm / 1_000_000),
        }
    }

    /// Returns the first true time, not before `now`, at which the monotonic clock shows at least `monotonic_us`.
    #[inline]
    pub(crate) fn when(&self, monotonic_us: u64, now: u64) -> u64 {
        let shown = monotonic_us.saturating_sub(self.started_us);
        let elapsed = match self.drift_ppm {
            0 => shown,
            ppm => shown.saturating_mul(1_000_000) / (1_000_000 + ppm) as u64,
        };
        let mut time = self.started_at.saturating_add(elapsed).max(now);
        while self.monotonic_us(time) < monotonic_us {
            time += 1 + (monotonic_us - self.monotonic_us(time)) / 2;
        }
        time
    }

    /// Sets the wall clock.
    pub(crate) fn jump(&mut self, now: u64, by_ms: i64) {
        self.earlier_ahead_ms.push((now, self.unix_ahead_ms));
        self.unix_ahead_ms += by_ms;
    }

    /// Returns the least and the most that the wall clock was ahead of the true time, over the time from which other
    /// nodes may still hold readings.
    pub(crate) fn ahead_ms_lately(&self, now: u64) -> (i64, i64) {
        const READINGS_US: u64 = 12_000_000;
        let lately = self.earlier_ahead_ms.iter().filter(|(until, _)| until + READINGS_US >= now);
        let shown = lately.map(|(_, ahead_ms)| *ahead_ms);
        shown.fold((self.unix_ahead_ms, self.unix_ahead_ms), |(least, most), ahead_ms| {
            (least.min(ahead_ms), most.max(ahead_ms))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_runs_fast_or_slow_is_read_and_awaited_alike() {
        for drift_ppm in [-10_000, -3, 0, 7, 10_000] {
            let mut clock = Clock::new(drift_ppm, -5);
            clock.restart(4_000, &mut Random::new(1, 1));
            for after in [0, 1, 999, 1_000_000, 123_456_789] {
                let shown = clock.read(4_000).monotonic_us + after;
                let time = clock.when(shown, 4_000);
                assert!(clock.read(time).monotonic_us >= shown, "it is time");
                // In one second, a clock that is off by 1 % is off by 10 ms.
                assert!(clock.read(time).monotonic_us <= shown + 2 + after / 50, "and not long past it");
            }
            assert_eq!(clock.when(0, 5_000), 5_000, "what is past is due now");
        }
    }

    #[test]
    fn the_wall_clock_jumps_and_the_monotonic_one_does_not() {
        let mut clock = Clock::new(0, 0);
        let before = clock.read(1_000_000);
        clock.jump(1_000_000, -60_000);
        let after = clock.read(1_000_000);
        assert_eq!(after.monotonic_us, before.monotonic_us);
        assert_eq!(after.unix_ms + 60_000, before.unix_ms);
    }
}
