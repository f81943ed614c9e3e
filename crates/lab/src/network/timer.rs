//! The relay's time: nanoseconds since it started, and a wake-up that is accurate to microseconds.
//!
//! A poll's own timeout counts whole milliseconds, which is longer than many of a relay's delays.

use std::io;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};

use super::{Nanos, nanos};

pub(super) struct Timer {
    start: Instant,
    #[cfg(target_os = "linux")]
    alarm: alarm::Alarm,
}

impl Timer {
    /// Creates a timer that wakes this poll with this token.
    pub(super) fn new(poll: &Poll, token: Token) -> io::Result<Timer> {
        #[cfg(not(target_os = "linux"))]
        let _ = (poll, token);
        Ok(Timer {
            start: Instant::now(),
            #[cfg(target_os = "linux")]
            alarm: alarm::Alarm::new(poll, token)?,
        })
    }

    pub(super) fn now(&self) -> Nanos {
        nanos(self.start.elapsed())
    }

    /// Waits for events, at most until `until`; `None` waits without limit.
    pub(super) fn wait(
        &mut self,
        poll: &mut Poll,
        events: &mut Events,
        until: Option<Nanos>,
    ) -> io::Result<()> {
        let left = until.map(|until| Duration::from_nanos(until.saturating_sub(self.now())));
        let timeout = match left {
            Some(left) if left.is_zero() => Some(Duration::ZERO),
            #[cfg(target_os = "linux")]
            Some(left) => {
                self.alarm.set(left)?;
                None
            }
            #[cfg(not(target_os = "linux"))]
            Some(left) => Some(left),
            None => None,
        };
        match poll.poll(events, timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(target_os = "linux")]
mod alarm {
    use std::io;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::time::Duration;

    use mio::unix::SourceFd;
    use mio::{Interest, Poll, Token};
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };

    /// A file that becomes readable at a set time. It is never read: setting it again makes it unreadable.
    pub(super) struct Alarm {
        file: OwnedFd,
    }

    impl Alarm {
        pub(super) fn new(poll: &Poll, token: Token) -> io::Result<Alarm> {
            let file =
                timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
            poll.registry().register(&mut SourceFd(&file.as_raw_fd()), token, Interest::READABLE)?;
            Ok(Alarm { file })
        }

        pub(super) fn set(&self, left: Duration) -> io::Result<()> {
            let never = Timespec { tv_sec: 0, tv_nsec: 0 };
            // A delay is below an hour, so that both fit.
            let value = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            let once = Itimerspec { it_interval: never, it_value: value };
            timerfd_settime(&self.file, TimerfdTimerFlags::empty(), &once)?;
            Ok(())
        }
    }
}
