//! The state of `CLIENT PAUSE`.

/// Which requests are held back, and until when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pause {
    /// In microseconds of the monotonic clock; 0: there is no pause.
    pub(crate) until_us: u64,
    /// Not only writes.
    pub(crate) holds_all: bool,
}

impl Pause {
    /// Whether there is one.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.until_us != 0
    }

    /// When it ends, in microseconds of the monotonic clock.
    #[inline]
    pub(crate) fn due_us(&self) -> u64 {
        if self.is_on() { self.until_us } else { u64::MAX }
    }
}
