//! What a worker does without an event: reconnections, reply timeouts, operations to repeat.

use std::io;

use mio::Token;

use super::super::Error;
use super::super::connection::{Answered, Connection, State};
use super::super::outcome::Outcome;
use super::super::recorder::{Observed, Recorder};
use super::super::schedule::Schedule;
use super::{CONNECT_TIMEOUT, SWEEP_EVERY, SWEEP_EVERY_WHILE_DOWN, Worker, lost};

impl Worker<'_> {
    /// Closed loop: gives every free connection its next batch.
    pub(super) fn send_idle(&mut self) {
        for index in 0..self.connections.len() {
            if self.connections[index].is_free()
                && let Err((cause, error)) = self.send(index)
            {
                self.lose(index, cause, error);
            }
        }
    }

    /// Checks every connection; called a few times a second.
    pub(super) fn sweep(&mut self) -> Result<(), Error> {
        for index in 0..self.connections.len() {
            let connection = &mut self.connections[index];
            let result = match connection.state {
                State::Down { retry_at } if self.now >= retry_at => {
                    let options = self.options;
                    let server = (connection.number % options.addresses.len(), options.tls.as_ref());
                    connection.open(self.poll.registry(), Token(index), self.now, server).map_err(lost)
                }
                State::Connecting { since } | State::Greeting { since, .. }
                    if self.now.saturating_duration_since(since) > CONNECT_TIMEOUT =>
                {
                    Err((Outcome::Timeout, io::ErrorKind::TimedOut.into()))
                }
                State::Ready if connection.is_overdue(self.now, self.options.reply_timeout) => {
                    Err((Outcome::Timeout, io::ErrorKind::TimedOut.into()))
                }
                _ => Ok(()),
            };
            if let Err((cause, error)) = result {
                self.lose(index, cause, error);
            }
        }
        if !self.is_open_loop() {
            self.send_idle();
        }
        self.next_sweep = self.now + if self.down > 0 { SWEEP_EVERY_WHILE_DOWN } else { SWEEP_EVERY };
        if self.work.recorder.as_ref().is_some_and(Recorder::is_full) {
            return Err(Error::HistoryFull);
        }
        self.check_progress()
    }

    /// Fails a run that ends by count when no operation ends, since it would never end.
    fn check_progress(&self) -> Result<(), Error> {
        let ends_by_count = self.work.schedule.as_ref().is_some_and(Schedule::ends_by_count);
        let silence = self.now.saturating_duration_since(self.work.last_progress);
        let nothing_is_due = self.is_open_loop() && self.busy == 0 && self.down == 0;
        if !ends_by_count || nothing_is_due || silence <= self.options.reply_timeout {
            return Ok(());
        }
        let last_failure = match &self.work.last_failure {
            Some((operation, outcome)) => format!("; the last failure was {} {outcome}", operation.name()),
            None => String::new(),
        };
        Err(Error::Stalled { silence, is_loading: self.work.is_loading, last_failure })
    }

    /// Gives a connection up: its operations in flight may or may not have happened.
    #[cold]
    pub(super) fn lose(&mut self, index: usize, cause: Outcome, error: io::Error) {
        let Connection { number, address, state, batch, .. } = &mut self.connections[index];
        if batch.is_in_flight() {
            self.busy -= 1;
        }
        let mut outcome = cause;
        let unconfirmed = std::mem::take(&mut batch.unconfirmed);
        let unanswered = batch.answered..batch.expected.len();
        for position in unanswered.chain(unconfirmed.iter().map(|write| write.position)) {
            let lost = Answered { position, outcome, observed: Observed::Unknown };
            self.work.conclude(*number, batch, lost, self.now);
            // One reply was malformed; those behind it were never seen.
            if outcome == Outcome::Protocol {
                outcome = Outcome::Lost;
            }
        }
        if *state == State::Ready {
            self.down += 1;
            self.work.tally.connections_lost += 1;
        } else {
            self.connect_failure = Some(Error::Connect { address: *address, source: error });
        }
        let jitter = self.random.below(1000) as u32;
        self.connections[index].close(self.now, jitter);
        self.next_sweep = self.next_sweep.min(self.now + SWEEP_EVERY_WHILE_DOWN);
    }
}
