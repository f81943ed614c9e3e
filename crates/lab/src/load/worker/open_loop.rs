//! Open loop: requests are sent when they are due, by the connection that has been free for longest.

use std::io;
use std::time::{Duration, Instant};

use super::super::schedule::Schedule;
use super::{Worker, micros_between};

/// How long requests due just before the end are still sent, since the wake-up for them may come after the end.
const GRACE: Duration = Duration::from_millis(1);

impl Worker<'_> {
    pub(super) fn is_open_loop(&self) -> bool {
        self.work.schedule.as_ref().is_some_and(Schedule::is_open_loop)
    }

    /// Queues every idle connection for requests that become due.
    pub(super) fn queue_free(&mut self) {
        self.free.clear();
        self.free.extend((0..self.connections.len()).filter(|index| self.connections[*index].is_free()));
    }

    /// Sends due requests, as far as connections are free.
    pub(super) fn send_due(&mut self) {
        let Some(schedule) = self.work.schedule.as_mut().filter(|schedule| schedule.is_open_loop()) else {
            return;
        };
        // Requests that find no free connection before the end stay unsent.
        if schedule.is_over(self.now.checked_sub(GRACE).unwrap_or(self.now)) {
            return;
        }
        while let Some(&index) = self.free.front() {
            let connection = &mut self.connections[index];
            if !connection.is_free() {
                self.free.pop_front();
                continue;
            }
            connection.clear_batch();
            let Some(schedule) = &mut self.work.schedule else { return };
            let due_times = &mut connection.batch.due_times;
            let Some(admitted) = schedule.admit_due(self.now, self.free.len(), due_times) else { return };
            self.free.pop_front();
            if self.busy == 0 {
                // No request was in flight, so this was no standstill.
                self.work.last_progress = self.now;
            }
            if let Err((cause, error)) = self.send_batch(index, &admitted) {
                self.lose(index, cause, error);
                continue;
            }
            let batch = &self.connections[index].batch;
            if batch.is_measured {
                for due in &batch.due_times {
                    self.work.tally.record_delay(micros_between(*due, batch.sent_at));
                }
            }
        }
    }

    /// How long to wait for events: until the next sweep, but no longer than until a request is due.
    pub(super) fn poll_timeout(&mut self) -> io::Result<Duration> {
        let until_sweep = self.next_sweep.saturating_duration_since(self.now);
        let next_due = self.work.schedule.as_ref().and_then(Schedule::next_due);
        let can_send = !self.free.is_empty() && !self.is_over();
        let Some(next_due) = next_due.filter(|_| can_send) else { return Ok(until_sweep) };
        self.now = Instant::now();
        let until_due = next_due.saturating_duration_since(self.now);
        if until_due.is_zero() || until_due >= until_sweep {
            return Ok(until_due.min(until_sweep));
        }
        self.timer.set(until_due)?;
        Ok(self.timer.poll_timeout(until_due).unwrap_or(until_sweep))
    }
}
