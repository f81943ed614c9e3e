//! Progress while a node reads its log: a start may take minutes, in which it must not look as if it hung.

use std::time::{Duration, Instant};

/// How often progress is logged.
const EVERY: Duration = Duration::from_secs(2);

/// How much of the log has been read.
#[derive(Debug)]
pub(crate) struct Reading {
    began: Instant,
    said: Instant,
    read: u64,
    /// The bytes of all files. Room that is reserved in them is not read.
    all: u64,
}

impl Reading {
    /// Nothing of files of `all` bytes has been read.
    pub(crate) fn begin(all: u64, now: Instant) -> Reading {
        Reading { began: now, said: now, read: 0, all }
    }

    /// Notes what was read. Returns a line for the log when it is time for one.
    pub(crate) fn note(&mut self, bytes: usize, now: Instant) -> Option<String> {
        self.read += bytes as u64;
        if now.duration_since(self.said) < EVERY {
            return None;
        }
        self.said = now;
        let (read, all) = (self.read >> 20, self.all.max(self.read) >> 20);
        let seconds = now.duration_since(self.began).as_secs();
        Some(format!("reading the log: {read} of at most {all} MiB after {seconds} s"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_read_is_told_every_two_seconds() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let mut reading = Reading::begin(400 << 20, began);
        assert_eq!(reading.note(1 << 20, at(1999)), None);
        let line = reading.note(99 << 20, at(2000));
        assert_eq!(line.as_deref(), Some("reading the log: 100 of at most 400 MiB after 2 s"));
        assert_eq!(reading.note(1 << 20, at(3999)), None);
        let line = reading.note(499 << 20, at(4100));
        assert_eq!(line.as_deref(), Some("reading the log: 600 of at most 600 MiB after 4 s"));
    }
}
