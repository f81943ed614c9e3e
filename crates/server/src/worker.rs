//! The event loop: one thread that drives the node, one turn after the other.
//!
//! A turn is: wait for events; accept; read and parse everything that is ready and give it to the node; end the
//! node's turn, which makes one batch of all that; write the batches to the peers, then the replies to the
//! clients. Nothing in it blocks, takes a lock or starts a thread, and a request costs one read and one write.
//! Batches come from load, not from waiting: what arrives during a turn is the next turn's batch.
//!
//! A node has one worker. Replicas are not shared between threads, so a group lives on exactly one worker; as
//! long as a keyspace is one group, a second worker would only add a hop between threads to most requests.

use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use mio::net::{TcpListener, UnixStream};
use mio::{Events, Interest, Poll, Token, Waker};
use node::{ClientId, Line, Node};
use protocol::Now;
use rustix::time::{ClockId, clock_gettime};
use storage::{ValueWork, Work};

use crate::bridge::{Bridge, Question};
use crate::clients::Clients;
use crate::disk::{FolderDisk, WorkThreads};
use crate::files::DataFolder;
use crate::log;
use crate::look_ahead::LookAhead;
use crate::memory;
use crate::metrics::Counters;
use crate::peers::Peers;
use crate::turn::{CLIENT_TOKENS, PEER_TOKENS, Turn};
use crate::usage;
use crate::values::ValueThreads;

const CLIENT_LISTENER: Token = Token(0);
const PEER_LISTENER: Token = Token(1);
const WAKER: Token = Token(2);
const SIGNALS: Token = Token(3);

/// Most events taken per turn; the rest come in the next.
const TURN_EVENTS_MAX: usize = 1024;

/// The buffer that everything is read into. Large enough for a deep pipeline, small enough to stay in the cache.
const READ_BUFFER_BYTES: usize = 64 << 10;

/// Free memory is given back to the system at most this often.
const RELEASE_US: u64 = 1_000_000;

/// How often idle connections are looked through.
const SWEEP_US: u64 = 1_000_000;

/// When the system has let nobody in (it may be out of file descriptors), how long to wait before the next try.
const ACCEPT_PAUSE_US: u64 = 100_000;

/// How long the last replies may take when the server stops.
const STOP_US_MAX: u64 = 1_000_000;

/// And so much longer for its log: a segment that is being filled comes first.
const SETTLE_US_MAX: u64 = 3_000_000;

/// How long the withdrawals of those who wait for locks may take when the server stops.
const WITHDRAW_US_MAX: u64 = 300_000;

/// How often it is looked whether the last sync is over, in case nobody tells.
const STOP_PAUSE: Duration = Duration::from_millis(10);

/// The clock that goes on while the machine sleeps, where there is one.
#[cfg(target_os = "linux")]
const MONOTONIC: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const MONOTONIC: ClockId = ClockId::Monotonic;

/// Everything that the worker's thread owns.
pub(crate) struct Worker {
    poll: Poll,
    client_door: Door,
    peer_door: Door,
    signals: UnixStream,
    node: Node,
    clients: Clients,
    peers: Peers,
    bridge: Bridge,
    folder: DataFolder,
    disk: FolderDisk,
    threads: WorkThreads,
    work: Vec<Work>,
    value_threads: ValueThreads,
    value_work: Vec<ValueWork>,
    clock: Clock,
    release: fn(),
    /// When that was last done.
    released_us: u64,
    counters: Counters,
    buffer: Vec<u8>,
    ahead: LookAhead,
    /// When the last turn ended.
    ended_us: u64,
    sweep_at_us: u64,
    lines: Vec<Line>,
    others: Vec<ClientId>,
    is_stopping: bool,
}

/// A port where connections come in.
struct Door {
    listener: TcpListener,
    /// When to look; none if nobody waits.
    look_at_us: Option<u64>,
    limiter: log::Limiter,
}

/// The clock of this process. Its monotonic time goes on while the machine sleeps: a lease must not.
#[derive(Clone, Copy)]
pub(crate) struct Clock;

impl Clock {
    /// The time.
    pub(crate) fn now(&self) -> Now {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Now { monotonic_us: self.monotonic_us(), unix_ms: unix.as_millis() as u64 }
    }

    /// Microseconds of the monotonic clock.
    pub(crate) fn monotonic_us(&self) -> u64 {
        let time = clock_gettime(MONOTONIC);
        time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
    }
}

/// What a worker is made of.
pub(crate) struct Parts {
    pub(crate) poll: Poll,
    pub(crate) client_listener: TcpListener,
    pub(crate) peer_listener: TcpListener,
    /// Becomes readable when the process is asked to stop.
    pub(crate) signals: UnixStream,
    pub(crate) node: Node,
    pub(crate) clients: Clients,
    pub(crate) peers: Peers,
    pub(crate) bridge: Bridge,
    pub(crate) folder: DataFolder,
    pub(crate) disk: FolderDisk,
    pub(crate) threads: WorkThreads,
    pub(crate) value_threads: ValueThreads,
    pub(crate) clock: Clock,
    /// Gives free memory back to the system.
    pub(crate) release: fn(),
}

/// The waker of a worker's poll.
///
/// # Errors
/// The system refuses.
pub(crate) fn waker(poll: &Poll) -> Result<Arc<Waker>> {
    Ok(Arc::new(Waker::new(poll.registry(), WAKER).context("cannot make a waker")?))
}

impl Worker {
    /// Puts a worker together.
    ///
    /// # Errors
    /// The system refuses to watch a socket.
    pub(crate) fn new(mut parts: Parts) -> Result<Worker> {
        let watch = |source: &mut dyn mio::event::Source, token| {
            parts.poll.registry().register(source, token, Interest::READABLE)
        };
        watch(&mut parts.client_listener, CLIENT_LISTENER).context("cannot watch the client port")?;
        watch(&mut parts.peer_listener, PEER_LISTENER).context("cannot watch the peer port")?;
        watch(&mut parts.signals, SIGNALS).context("cannot watch for signals")?;
        Ok(Worker {
            poll: parts.poll,
            client_door: Door::new(parts.client_listener),
            peer_door: Door::new(parts.peer_listener),
            signals: parts.signals,
            node: parts.node,
            clients: parts.clients,
            peers: parts.peers,
            bridge: parts.bridge,
            folder: parts.folder,
            disk: parts.disk,
            threads: parts.threads,
            work: Vec::new(),
            value_threads: parts.value_threads,
            value_work: Vec::new(),
            clock: parts.clock,
            release: parts.release,
            released_us: 0,
            counters: Counters::default(),
            buffer: vec![0; READ_BUFFER_BYTES],
            ahead: LookAhead::new(),
            ended_us: 0,
            sweep_at_us: 0,
            lines: Vec::new(),
            others: Vec::new(),
            is_stopping: false,
        })
    }

    /// Takes turns until the process is asked to stop. Gives back the folder, to be closed.
    ///
    /// # Errors
    /// The system no longer tells of events, or the disk has failed.
    pub(crate) fn run(mut self) -> Result<DataFolder> {
        let mut events = Events::with_capacity(TURN_EVENTS_MAX);
        while !self.is_stopping {
            self.turn(&mut events)?;
        }
        let stop_by_us = self.clock.monotonic_us() + STOP_US_MAX;
        self.node.note_stop();
        self.node.stop_lock_waits();
        let withdraw_by_us = self.clock.monotonic_us() + WITHDRAW_US_MAX;
        while self.node.has_lock_waits() && self.clock.monotonic_us() < withdraw_by_us {
            self.turn(&mut events)?;
        }
        while self.clients.has_unwritten() && self.clock.monotonic_us() < stop_by_us {
            self.turn(&mut events)?;
        }
        self.settle_log(&mut events)?;
        Ok(self.folder)
    }

    /// What nobody waits for is made durable, too, and the log notes that it is: so the next start can tell damage from a
    /// write that was cut short. Nothing comes in and goes out any more, else there would be ever more to write.
    fn settle_log(&mut self, events: &mut Events) -> Result<()> {
        self.disk.hurry();
        let stop_by_us = self.clock.monotonic_us() + SETTLE_US_MAX;
        while !self.node.settle_log(&mut self.disk) && self.clock.monotonic_us() < stop_by_us {
            self.node.take_work(&mut self.work);
            self.work.drain(..).for_each(|work| self.threads.begin(work));
            // What runs beside the loop wakes it.
            let _ = self.poll.poll(events, Some(STOP_PAUSE));
            while let Some((work, result)) = self.threads.take_finished() {
                self.node.work_finished(work, result);
            }
        }
        self.log_lines();
        match self.node.stopped() {
            Some(why) => bail!("the end of the log may not be on the disk: {why}"),
            None => Ok(()),
        }
    }

    fn turn(&mut self, events: &mut Events) -> Result<()> {
        let pause = self.pause();
        match self.poll.poll(events, Some(pause)) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("the system no longer tells of events"),
        }
        let now = self.clock.now();
        self.node.begin_turn(now);
        self.take_input(events, now);
        while let Some((work, result)) = self.threads.take_finished() {
            self.node.work_finished(work, result);
        }
        while let Some((work, result)) = self.value_threads.take_finished() {
            self.node.value_work_finished(work, result);
        }
        if self.node.has_values_to_code() {
            let begun_us = self.clock.monotonic_us();
            self.node.code_values();
            self.node.coding_took(self.clock.monotonic_us().saturating_sub(begun_us));
        }
        self.node.flush();
        if self.node.is_about_to_write() {
            self.write_to_peers(now);
        }
        self.node.end_turn(&mut self.disk);
        if let Some(why) = self.node.stopped() {
            // What is on the disk is not known: nothing that rests on it may be said.
            let why = why.to_string();
            self.log_lines();
            bail!("the node stops, as its disk has failed: {why}");
        }
        self.is_stopping |= self.node.is_removed();
        self.node.take_work(&mut self.work);
        self.work.drain(..).for_each(|work| self.threads.begin(work));
        self.node.take_value_work(&mut self.value_work);
        self.value_work.drain(..).for_each(|work| self.value_threads.begin(work));
        self.give_output(now);
        self.measure_memory(now);
        self.keep_house(now);
        self.ended_us = self.clock.monotonic_us();
        self.counters.turn(self.ended_us.saturating_sub(now.monotonic_us));
        Ok(())
    }

    /// How long to wait for events at most.
    fn pause(&self) -> Duration {
        if self.clients.is_unfinished() || self.peers.is_unfinished(&self.node) || self.bridge.is_unfinished()
        {
            return Duration::ZERO;
        }
        let doors = [self.client_door.look_at_us, self.peer_door.look_at_us];
        let own = doors.into_iter().flatten().fold(self.sweep_at_us, u64::min);
        let wakeup_us = own.min(self.peers.wakeup_us()).min(self.node.next_wakeup_us());
        Duration::from_micros(wakeup_us.saturating_sub(self.ended_us))
    }

    fn take_input(&mut self, events: &Events, now: Now) {
        let Worker { node, counters, buffer, ahead, clients, peers, bridge, clock, .. } = self;
        let turn = &mut Turn { node, counters, ahead, buffer, now, clock: *clock };
        let mut is_called = bridge.is_unfinished();
        // Who was interrupted in the last turn goes first.
        clients.serve_waiting(turn);
        peers.serve_unfinished(turn);
        for event in events {
            match event.token() {
                CLIENT_LISTENER => self.client_door.look_at_us = Some(0),
                PEER_LISTENER => self.peer_door.look_at_us = Some(0),
                WAKER => is_called = true,
                SIGNALS => {
                    let _ = self.signals.read(turn.buffer);
                    self.is_stopping = true;
                }
                Token(token) if token >= CLIENT_TOKENS => {
                    clients.on_event(token - CLIENT_TOKENS, event, turn)
                }
                Token(token) if token >= PEER_TOKENS => peers.on_event(token - PEER_TOKENS, event, turn),
                Token(_) => {}
            }
        }
        if is_called {
            bridge.take_calls(turn, |question, turn| answer(question, clients, peers, turn));
        }
        let registry = self.poll.registry();
        if is_called || peers.wakeup_us() <= now.monotonic_us {
            peers.on_time(registry, turn);
        }
        if !self.is_stopping {
            let look = |listener: &TcpListener| clients.accept(listener, registry, turn);
            self.client_door.look("client", now, look);
            let look = |listener: &TcpListener| peers.accept(listener, registry, turn);
            self.peer_door.look("peer", now, look);
        }
    }

    fn write_to_peers(&mut self, now: Now) {
        let Worker { node, counters, buffer, ahead, peers, clock, .. } = self;
        peers.write(&mut Turn { node, counters, ahead, buffer, now, clock: *clock });
    }

    fn give_output(&mut self, now: Now) {
        self.write_to_peers(now);
        let Worker { node, counters, buffer, ahead, clients, bridge, others, clock, .. } = self;
        let turn = &mut Turn { node, counters, ahead, buffer, now, clock: *clock };
        clients.write_replies(others, turn);
        for id in others.drain(..) {
            bridge.on_ready(id, turn);
        }
    }

    fn log_lines(&mut self) {
        self.node.take_log(&mut self.lines);
        for line in self.lines.drain(..) {
            log::line(&line);
        }
    }

    /// Tells the node how much memory the process takes, when it wants to know.
    fn measure_memory(&mut self, now: Now) {
        let Counters { client_bytes_in, client_bytes_out, peer_bytes_in, .. } = self.counters;
        let traffic = client_bytes_in + client_bytes_out + peer_bytes_in;
        if !self.node.wants_measurement(traffic) {
            return;
        }
        let inputs = self.clients.input_bytes() as u64;
        self.node.measured(memory::resident_bytes(), inputs, traffic);
        if self.node.is_memory_tight() && now.monotonic_us >= self.released_us + RELEASE_US {
            (self.release)();
            self.released_us = self.clock.monotonic_us();
            self.node.measured(memory::resident_bytes(), inputs, traffic);
        }
    }

    /// What has to be done now and then.
    fn keep_house(&mut self, now: Now) {
        self.log_lines();
        self.peers.follow(&self.node, now.monotonic_us);
        if now.monotonic_us >= self.sweep_at_us {
            self.sweep_at_us = now.monotonic_us + SWEEP_US;
            self.node.set_usage(usage::measure(&self.counters));
            let idle_timeout_seconds = self.node.parameters().idle_timeout_seconds();
            let Worker { node, counters, buffer, ahead, clients, clock, .. } = self;
            let turn = &mut Turn { node, counters, ahead, buffer, now, clock: *clock };
            clients.sweep(idle_timeout_seconds, turn);
        }
    }
}

impl Door {
    fn new(listener: TcpListener) -> Door {
        Door { listener, look_at_us: Some(0), limiter: log::Limiter::default() }
    }

    /// Lets in who waits, if it is time to look.
    fn look(&mut self, name: &str, now: Now, accept: impl FnOnce(&TcpListener) -> std::io::Result<bool>) {
        if self.look_at_us.is_none_or(|at| at > now.monotonic_us) {
            return;
        }
        self.look_at_us = match accept(&self.listener) {
            Ok(true) => Some(now.monotonic_us),
            Ok(false) => None,
            Err(error) => {
                let told = || format!("nobody can be let in at the {name} port for now: {error}");
                self.limiter.warn(now.monotonic_us, told);
                Some(now.monotonic_us + ACCEPT_PAUSE_US)
            }
        };
    }
}

/// Answers what HTTP asks about the node. Whoever asked may have given up.
fn answer(question: Question, clients: &Clients, peers: &Peers, turn: &mut Turn<'_>) {
    match question {
        Question::Health(sender) => {
            let _ = sender.send(serde_json::to_value(turn.node.health()).unwrap_or_default());
        }
        Question::Keyspaces(sender) => {
            let _ = sender.send(serde_json::to_value(turn.node.keyspaces()).unwrap_or_default());
        }
        Question::Metrics(sender) => {
            let mut text = String::new();
            turn.node.metrics(&mut text);
            turn.counters.render(clients.input_bytes(), peers.links(), &mut text);
            let _ = sender.send(text);
        }
    }
}
