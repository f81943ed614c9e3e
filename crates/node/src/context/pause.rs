//! The state of `CLIENT PAUSE`.

/// Which requests are held, and until when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pause {
    /// In microseconds of the monotonic clock; 0: there is no pause.
    pub(crate) until_us: u64,
    /// Whether all requests are held, not only writes.
    pub(crate) holds_all: bool,
}

impl Pause {
    /// Whether clients are paused.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.until_us != 0
    }

    /// When the pause ends, in microseconds of the monotonic clock.
    #[inline]
    pub(crate) fn due_us(&self) -> u64 {
        if self.is_on() { self.until_us } else { u64::MAX }
    }
}
