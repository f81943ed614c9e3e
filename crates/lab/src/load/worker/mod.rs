//! One thread that drives many connections.
//!
//! In the steady state a batch costs one write and one read, and the wait for events is shared by all
//! connections that are ready together. Time is read twice per batch, before its write and after its read.

mod open_loop;
mod upkeep;
mod work;

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use mio::event::Event;
use mio::{Events, Poll, Token};

use super::Error;
use super::connection::{Answered, Connection, Filled, Input, State};
use super::language::{Dialogue, Language};
use super::options::Options;
use super::outcome::{Expected, Operation, Outcome};
use super::random::Random;
use super::recorder::{Observed, Recorder};
use super::reply::{Reply, Scanned};
use super::schedule::{Admitted, Schedule};
use super::tally::Tally;
use super::timer::Timer;
use super::workload::Workload;
use work::Work;

/// How often timeouts and idle connections are checked.
const SWEEP_EVERY: Duration = Duration::from_millis(100);

/// The interval while a connection is down, so that backoff times are kept.
const SWEEP_EVERY_WHILE_DOWN: Duration = Duration::from_millis(5);

/// How often counts are sent to the collector.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// How long a connection may take to become ready.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum number of events that one poll returns.
const EVENTS_MAX: usize = 1024;

/// The timer's events; connections use their index.
const TIMER: Token = Token(usize::MAX - 1);

pub(crate) struct Worker<'options> {
    options: &'options Options,
    poll: Poll,
    connections: Vec<Connection>,
    work: Work,
    random: Random,
    /// The time of the last read, write or poll: precise enough for everything but latencies.
    now: Instant,
    next_sweep: Instant,
    /// The number of connections with a batch in flight.
    busy: usize,
    /// The number of connections that cannot be used.
    down: usize,
    connect_failure: Option<Error>,
    /// Open loop: the connections that wait for a request to be due, the longest-waiting first. Connections that
    /// were lost since are skipped.
    free: VecDeque<usize>,
    timer: Timer,
}

/// A worker's result when its work has ended.
pub(crate) struct Finish {
    /// When the last operation ended.
    pub(crate) last_end: Instant,
    /// This thread's processor time for the measured part, if the system can report it.
    pub(crate) cpu: Option<Duration>,
}

impl<'options> Worker<'options> {
    /// Worker number `thread` has every `threads`-th connection.
    pub(crate) fn new(
        options: &'options Options,
        thread: usize,
        pipeline_max: usize,
        epoch: Instant,
    ) -> Result<Self, Error> {
        let now = Instant::now();
        let language = Language::new(options);
        let connections: Vec<Connection> = (thread..options.connections)
            .step_by(options.threads)
            .map(|number| {
                let address = options.addresses[number % options.addresses.len()];
                let dialogue = language.dialogue(address, options.login.as_ref());
                Connection::new(number, address, dialogue, pipeline_max, options.value_bytes.max, now)
            })
            .collect();
        let poll = Poll::new().map_err(Error::Poll)?;
        Ok(Self {
            options,
            timer: Timer::new(poll.registry(), TIMER).map_err(Error::Poll)?,
            poll,
            down: connections.len(),
            connections,
            work: Work {
                workload: Workload::new(options, thread),
                language,
                recorder: options.record.then(|| Recorder::new(epoch, options.threads)),
                schedule: None,
                is_loading: false,
                tally: Tally::new(),
                last_end: now,
                last_progress: now,
                last_failure: None,
            },
            random: Random::new(options.seed ^ thread as u64),
            now,
            next_sweep: now,
            busy: 0,
            connect_failure: None,
            free: VecDeque::new(),
        })
    }

    /// Pins the calling thread, which is number `thread`, to its core, if there is a list of them.
    pub(crate) fn pin(&self, thread: usize) -> Result<(), Error> {
        let cores = &self.options.cores;
        let Some(&core) = cores.get(thread % cores.len().max(1)) else { return Ok(()) };
        pin_to(core).map_err(|source| Error::Core { core, source })
    }

    /// The number of its connections.
    pub(crate) fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// Its records, if recording was requested.
    pub(crate) fn take_recorder(&mut self) -> Option<Recorder> {
        self.work.recorder.take()
    }

    /// Opens all connections; the first that fails fails the run.
    pub(crate) fn connect(&mut self) -> Result<(), Error> {
        let mut events = self.new_events();
        while self.down > 0 {
            self.turn(&mut events)?;
            if let Some(failure) = self.connect_failure.take() {
                return Err(failure);
            }
        }
        Ok(())
    }

    /// Writes the keys from `first` on, as many as the schedule counts.
    pub(crate) fn load(
        &mut self,
        first: u64,
        schedule: Schedule,
        tallies: &Sender<Tally>,
    ) -> Result<Finish, Error> {
        self.work.workload.start_loading(first);
        self.work.is_loading = true;
        let finish = self.run(schedule, tallies);
        self.work.is_loading = false;
        self.work.workload.stop_loading();
        finish
    }

    /// Drives the connections until the schedule is over and every batch has ended.
    pub(crate) fn run(&mut self, schedule: Schedule, tallies: &Sender<Tally>) -> Result<Finish, Error> {
        self.now = Instant::now();
        self.work.last_progress = self.now;
        self.work.last_end = self.now;
        let measure_from = schedule.measure_from();
        let mut next_report = measure_from + REPORT_EVERY;
        let mut cpu_before = None;
        self.work.schedule = Some(schedule);
        if self.is_open_loop() {
            self.queue_free();
        } else {
            self.send_idle();
        }

        let mut events = self.new_events();
        loop {
            self.send_due();
            if self.busy == 0 && self.is_over() {
                break;
            }
            self.turn(&mut events)?;
            if cpu_before.is_none() && self.now >= measure_from {
                cpu_before = Some(thread_cpu());
            }
            if self.now >= next_report {
                next_report += REPORT_EVERY;
                // The receiver outlives the workers; if it does not, the counts are not needed.
                let _ = tallies.send(std::mem::replace(&mut self.work.tally, Tally::new()));
            }
        }
        let cpu = cpu_before.flatten().zip(thread_cpu()).map(|(before, after)| after.saturating_sub(before));
        if let Some(mut schedule) = self.work.schedule.take() {
            self.work.tally.unsent += schedule.count_unsent();
        }
        let _ = tallies.send(std::mem::replace(&mut self.work.tally, Tally::new()));
        Ok(Finish { last_end: self.work.last_end, cpu })
    }

    fn new_events(&self) -> Events {
        Events::with_capacity(self.connections.len().min(EVENTS_MAX))
    }

    fn is_over(&self) -> bool {
        self.work.schedule.as_ref().is_none_or(|schedule| schedule.is_over(self.now))
    }

    /// Waits for events and handles them.
    fn turn(&mut self, events: &mut Events) -> Result<(), Error> {
        let timeout = self.poll_timeout().map_err(Error::Poll)?;
        match self.poll.poll(events, Some(timeout)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(Error::Poll(error)),
            _ => {}
        }
        if events.is_empty() {
            self.now = Instant::now();
        }
        for event in events.iter() {
            if event.token() == TIMER {
                self.now = Instant::now();
            } else {
                self.handle(event);
            }
        }
        if self.now >= self.next_sweep {
            self.sweep()?;
        }
        Ok(())
    }

    fn handle(&mut self, event: &Event) {
        let index = event.token().0;
        let result = match self.connections[index].state {
            // The event belongs to a socket that was closed while this batch of events was handled.
            State::Down { .. } => Ok(()),
            State::Connecting { .. } => self.finish_connect(index),
            State::Greeting { .. } | State::Ready => self.transfer(index, event),
        };
        if let Err((cause, error)) = result {
            self.lose(index, cause, error);
        }
    }

    fn finish_connect(&mut self, index: usize) -> Result<(), Loss> {
        let connection = &mut self.connections[index];
        if connection.is_connected().map_err(lost)? {
            let (greeting, replies) =
                self.work.language.greeting(&mut connection.dialogue, self.options.login.as_ref());
            connection.greet(&greeting, replies, self.now).map_err(lost)?;
        }
        Ok(())
    }

    /// Moves bytes in both directions and handles the replies that have arrived.
    fn transfer(&mut self, index: usize, event: &Event) -> Result<(), Loss> {
        if event.is_writable() {
            self.connections[index].flush().map_err(lost)?;
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            // A closed socket is read to its end: no further edge will follow.
            let is_closed = event.is_read_closed() || event.is_error();
            loop {
                let filled = self.connections[index].fill().map_err(lost)?;
                self.now = Instant::now();
                self.receive(index)?;
                if filled == Filled::Nothing || filled == Filled::Drained && !is_closed {
                    break;
                }
            }
        }
        Ok(())
    }

    fn receive(&mut self, index: usize) -> Result<(), Loss> {
        match self.connections[index].state {
            State::Greeting { since, replies_left } => self.receive_greeting(index, since, replies_left),
            _ => self.receive_replies(index),
        }
    }

    fn receive_greeting(
        &mut self,
        index: usize,
        since: Instant,
        mut replies_left: usize,
    ) -> Result<(), Loss> {
        let connection = &mut self.connections[index];
        let language = &mut self.work.language;
        let asked = [Expected { operation: Operation::Ping, key: 0, sequence: 0 }];
        while replies_left > 0 {
            let scanned = language.scan(&mut connection.dialogue, &asked, connection.input.unread());
            let Some(Scanned { reply, bytes, .. }) = scanned.map_err(|_| out_of_step())? else { break };
            match reply {
                Reply::Status(_) => {}
                Reply::Error(text) => {
                    let text = String::from_utf8_lossy(text).into_owned();
                    return Err((Outcome::Lost, io::Error::other(text)));
                }
                _ => return Err(out_of_step()),
            }
            connection.input.consume(bytes);
            replies_left -= 1;
        }
        connection.state = State::Greeting { since, replies_left };
        if replies_left == 0 {
            settle(language, &mut connection.dialogue, &mut connection.input)?;
            connection.ready();
            self.down -= 1;
            self.send_next(index)?;
        }
        Ok(())
    }

    /// The hot path: judges every reply that has arrived and sends the next batch when this one is complete.
    fn receive_replies(&mut self, index: usize) -> Result<(), Loss> {
        let Connection { number, input, batch, dialogue, .. } = &mut self.connections[index];
        let was_in_flight = batch.is_in_flight();
        while batch.is_in_flight() {
            // A WAIT answers for the write before it, or for all writes of the batch.
            let is_to_wait = !batch.unconfirmed.is_empty()
                && (batch.answered == batch.expected.len() || !self.options.wait_once);
            let position = if is_to_wait { batch.unconfirmed[0].position } else { batch.answered };
            let asked = &batch.expected[position..];
            let Work { workload, language, recorder, .. } = &mut self.work;
            let scanned = language.scan(dialogue, asked, input.unread());
            let Some(Scanned { reply, place, bytes, closes }) = scanned.map_err(|_| out_of_step())? else {
                return Ok(());
            };
            let mut answered = None;
            if is_to_wait {
                for write in &mut batch.unconfirmed {
                    let outcome = workload.judge_wait(write.outcome, &reply);
                    if outcome != write.outcome {
                        // It was executed, but it is unknown on which replicas.
                        write.observed = Observed::Unknown;
                    }
                    write.outcome = outcome;
                }
            } else {
                batch.bring_forward(place);
                let expected = batch.expected[position];
                let outcome = workload.judge(expected, &reply);
                let observed = match recorder {
                    Some(recorder) => recorder.read(expected, outcome, &reply),
                    None => Observed::Unknown,
                };
                answered = Some(Answered { position, outcome, observed });
            }
            input.consume(bytes);
            let answers = answered.iter().chain(&batch.unconfirmed);
            if answers.clone().any(|answer| answer.outcome == Outcome::Protocol) {
                return Err(out_of_step());
            }
            let waits = answered.is_some() && workload.has_wait(batch.expected[position].operation);
            let is_last = match &answered {
                Some(_) => position + 1 == batch.expected.len() && !waits && batch.unconfirmed.is_empty(),
                None => batch.answered == batch.expected.len(),
            };
            if is_last {
                settle(language, dialogue, input)?;
            }
            match answered {
                Some(answered) => {
                    batch.answered += 1;
                    if waits {
                        batch.unconfirmed.push(answered);
                    } else {
                        self.work.conclude(*number, batch, answered, self.now);
                    }
                }
                None => {
                    let mut writes = std::mem::take(&mut batch.unconfirmed);
                    for write in writes.drain(..) {
                        self.work.conclude(*number, batch, write, self.now);
                    }
                    batch.unconfirmed = writes;
                }
            }
            if closes {
                // If this is the batch's last reply, nothing is lost.
                self.busy -= usize::from(is_last);
                return Err(lost(io::ErrorKind::ConnectionAborted.into()));
            }
        }
        if !was_in_flight {
            settle(&self.work.language, dialogue, input)?;
        } else {
            self.busy -= 1;
            self.send_next(index)?;
        }
        Ok(())
    }

    /// Uses a free connection: it sends its next batch, or in the open loop waits until one is due.
    fn send_next(&mut self, index: usize) -> Result<(), Loss> {
        if self.is_open_loop() {
            self.free.push_back(index);
            return Ok(());
        }
        self.send(index)
    }

    /// Closed loop: sends a connection's next batch, if the schedule has one.
    fn send(&mut self, index: usize) -> Result<(), Loss> {
        let admitted = self.work.schedule.as_mut().and_then(|schedule| schedule.admit(self.now, index));
        let Some(admitted) = admitted else { return Ok(()) };
        self.connections[index].clear_batch();
        self.send_batch(index, &admitted)
    }

    /// Fills a connection's empty batch, and writes it.
    fn send_batch(&mut self, index: usize, admitted: &Admitted) -> Result<(), Loss> {
        let connection = &mut self.connections[index];
        let Work { workload, language, is_loading, .. } = &mut self.work;
        for _ in 0..admitted.operations {
            let expected = workload.next();
            let values = (workload.values(), *is_loading);
            language.append(expected, values, &mut connection.dialogue, &mut connection.output);
            connection.batch.expected.push(expected);
        }
        if connection.batch.expected.iter().any(|expected| workload.has_wait(expected.operation)) {
            language.end_batch(&mut connection.output);
        }
        connection.batch.is_measured = admitted.is_measured;
        self.busy += 1;
        self.now = Instant::now();
        connection.batch.sent_at = self.now;
        connection.flush().map_err(lost)
    }
}

/// Why a connection cannot be used any further: the outcome of its operations, and the system's error.
type Loss = (Outcome, io::Error);

fn lost(error: io::Error) -> Loss {
    (Outcome::Lost, error)
}

/// Handles the bytes after the last reply. If they were another reply, replies could not be matched to requests any
/// more.
fn settle(language: &Language, dialogue: &mut Dialogue, input: &mut Input) -> Result<(), Loss> {
    let bytes = language.settle(dialogue, input.unread()).map_err(|_| out_of_step())?;
    input.consume(bytes);
    Ok(())
}

fn out_of_step() -> Loss {
    (Outcome::Protocol, io::Error::other("it does not answer in the protocol that was asked for"))
}

fn micros_between(earlier: Instant, later: Instant) -> u64 {
    later.saturating_duration_since(earlier).as_micros() as u64
}

#[cfg(target_os = "linux")]
fn pin_to(core: usize) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

#[cfg(not(target_os = "linux"))]
fn pin_to(_: usize) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The processor time that this thread has used; only Linux reports it without a dedicated system call.
fn thread_cpu() -> Option<Duration> {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    schedstat.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}
