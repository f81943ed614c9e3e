//! The machine that a sweep ran on.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The facts about the machine that a reader of figures must know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's model.
    pub processor: String,
    /// How many processors this program may use.
    pub processors: usize,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The operating system and its version.
    pub system: String,
    /// The average number of runnable threads in the minute before the sweep.
    pub load_before: f64,
}

impl Machine {
    /// Inspects this machine, now.
    pub fn look() -> Machine {
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        let cpu_info = read("/proc/cpuinfo");
        let model = cpu_info.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
        let memory_info = read("/proc/meminfo");
        let memory_kib = memory_info
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        let uname = rustix::system::uname();
        let word = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        Machine {
            processor: model.map_or_else(|| word(uname.machine()), str::to_owned),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory_kib.unwrap_or(0) * 1024,
            system: format!("{} {}", word(uname.sysname()), word(uname.release())),
            load_before: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|text| text.parse().ok())
                .unwrap_or(0.0),
        }
    }

    /// Whether other work was running that affects the figures.
    pub fn is_busy(&self) -> bool {
        self.load_before > BUSY_SHARE * self.processors as f64
    }
}

/// Above this share of its processors a machine counts as busy.
const BUSY_SHARE: f64 = 0.25;

/// The current date and time in UTC, as in RFC 3339.
pub(crate) fn now_utc() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    utc(seconds)
}

fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March here, so that a leap day is the last day of a year.
    let day = days + 719_468;
    let (era, day_of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day_of_month:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_around_leap_days() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_735_689_599), "2024-12-31T23:59:59Z");
    }
}
