//! The state of `CLIENT PAUSE`.

/// Which requests are held, and until when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pause {
    /// In microseconds of the monotonic clock; 0: there is no pause.
    until_us: u64,
    /// Whether all requests are held, not only writes.
    holds_all: bool,
}

impl Pause {
    /// Whether clients are paused.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.until_us != 0
    }

    /// Whether all requests are held, not only writes.
    pub(crate) fn holds_all(&self) -> bool {
        self.holds_all
    }

    /// Begins a pause. If there is one already it becomes longer or stricter, never the reverse.
    pub(crate) fn begin(&mut self, until_us: u64, holds_all: bool) {
        self.until_us = self.until_us.max(until_us);
        self.holds_all |= holds_all;
    }

    /// Has the pause end at a moment, if there is one.
    pub(crate) fn end_at(&mut self, until_us: u64) {
        if self.is_on() {
            self.until_us = until_us;
        }
    }

    /// When the pause ends, in microseconds of the monotonic clock.
    #[inline]
    pub(crate) fn due_us(&self) -> u64 {
        if self.is_on() { self.until_us } else { u64::MAX }
    }
}
