//! The state of exchanges of databases (`SWAPDB`).

/// The exchanges of databases in which this node takes part.
#[derive(Debug)]
pub(crate) struct Exchanges {
    /// The databases that are being exchanged, a bit each.
    pub(crate) databases: u16,
    /// When this node's groups may stop.
    pub(crate) stops_at_us: u64,
    /// When this node checks the exchanges next, in microseconds of the monotonic clock.
    pub(crate) due_us: u64,
}

impl Default for Exchanges {
    fn default() -> Exchanges {
        Exchanges { databases: 0, stops_at_us: 0, due_us: u64::MAX }
    }
}

impl Exchanges {
    /// Whether databases are being exchanged.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.databases != 0
    }

    /// Whether this database is being exchanged.
    #[inline]
    pub(crate) fn concerns(&self, database: u8) -> bool {
        self.databases >> database & 1 == 1
    }
}
