//! Wakes up at a given time. Polling alone waits in whole milliseconds, too coarse for requests that are due
//! every few microseconds; the system's timer is precise, and is another source of events for the same poll.

use std::io;
use std::time::Duration;

use mio::{Registry, Token};

#[cfg(target_os = "linux")]
mod system {
    use std::os::fd::{AsRawFd, OwnedFd};

    use mio::Interest;
    use mio::unix::SourceFd;
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };

    use super::{Duration, Registry, Token, io};

    pub(crate) struct Timer {
        timer: OwnedFd,
    }

    impl Timer {
        pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            registry.register(&mut SourceFd(&timer.as_raw_fd()), token, Interest::READABLE)?;
            Ok(Self { timer })
        }

        /// Wakes the poll up once, after this time. Replaces an earlier setting.
        ///
        /// The timer is never read: its next expiry is a new edge all the same.
        pub(crate) fn set(&self, after: Duration) -> io::Result<()> {
            // All zeros would switch it off.
            let after = after.max(Duration::from_nanos(1));
            let value = Timespec { tv_sec: after.as_secs() as i64, tv_nsec: i64::from(after.subsec_nanos()) };
            let once = Itimerspec { it_interval: Timespec::default(), it_value: value };
            timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
            Ok(())
        }

        /// How long the poll itself may wait: without limit, since the timer ends it.
        pub(crate) fn poll_timeout(&self, _after: Duration) -> Option<Duration> {
            None
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::{Duration, Registry, Token, io};

    /// Without such a timer the poll itself waits, as precisely as it can.
    pub(crate) struct Timer;

    impl Timer {
        pub(crate) fn new(_registry: &Registry, _token: Token) -> io::Result<Self> {
            Ok(Self)
        }

        pub(crate) fn set(&self, _after: Duration) -> io::Result<()> {
            Ok(())
        }

        /// How long the poll itself may wait.
        pub(crate) fn poll_timeout(&self, after: Duration) -> Option<Duration> {
            Some(after)
        }
    }
}

pub(crate) use system::Timer;

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use mio::{Events, Poll};

    use super::*;

    #[test]
    fn it_wakes_the_poll_up_every_time_and_never_too_early() {
        let mut poll = Poll::new().unwrap();
        let timer = Timer::new(poll.registry(), Token(9)).unwrap();
        let mut events = Events::with_capacity(4);
        for after_us in [0, 300, 1, 2_000] {
            let after = Duration::from_micros(after_us);
            let start = Instant::now();
            timer.set(after).unwrap();
            poll.poll(&mut events, timer.poll_timeout(after)).unwrap();
            assert!(start.elapsed() >= after, "{after:?}");
        }
    }
}
