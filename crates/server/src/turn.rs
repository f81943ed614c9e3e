//! What the parts of the worker share during a turn.

use protocol::Now;
use rustix::time::{ClockId, clock_gettime};
use std::time::SystemTime;

/// Tokens below this are the worker's own; from here on they are connections of peers.
pub(crate) const PEER_TOKENS: usize = 16;

/// Tokens from here on are connections of clients.
pub(crate) const CLIENT_TOKENS: usize = 1 << 16;

/// What one turn works with.
pub(crate) type Turn<'a> = driver::Turn<'a, Clock>;

/// A clock that continues while the machine sleeps, if the system has one.
#[cfg(target_os = "linux")]
const MONOTONIC: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const MONOTONIC: ClockId = ClockId::Monotonic;

/// The clock of this process. Its monotonic time continues while the machine sleeps, as leases require.
#[derive(Clone, Copy)]
pub(crate) struct Clock;

impl driver::Clock for Clock {
    fn now(&self) -> Now {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Now { monotonic_us: self.monotonic_us(), unix_ms: unix.as_millis() as u64 }
    }

    fn monotonic_us(&self) -> u64 {
        let time = clock_gettime(MONOTONIC);
        time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
    }
}
