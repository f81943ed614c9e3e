//! The event loop: one thread that drives the node, one turn after the other.
//!
//! It waits for events and has the driver take a turn ([`driver::Driver`]), with sockets, files and threads. A node has one
//! worker. Replicas are not shared between threads, so a group belongs to exactly one worker; as long as a keyspace is one
//! group, a second worker would only add a hop between threads to most requests.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use driver::{Change, Clients, Counters, Driver, Event, Limiter, Sizes, Stopped, World};
use mio::net::{TcpListener, UnixStream};
use mio::{Events, Interest, Poll, Token, Waker};
use node::{ClientId, Line, Node, Usage};
use storage::work::Lane;
use storage::{DiskError, ValueResult, ValueWork, Work};

use crate::bridge::{Bridge, Question};
use crate::clients;
use crate::descriptors::SocketBound;
use crate::disk::{FinishedWork, FolderDisk, WorkThreads};
use crate::files::DataFolder;
use crate::log;
use crate::memory;
use crate::metrics::{self, Durations};
use crate::peers::Peers;
use crate::tls::{self, AnySocket, Arrivals, Scratch};
use crate::traces::{self, Exporter};
use crate::turn::{CLIENT_TOKENS, Clock, PEER_TOKENS, Turn};
use crate::usage::{self, Filling};
use crate::values::ValueThreads;

const CLIENT_LISTENER: Token = Token(0);
const PEER_LISTENER: Token = Token(1);
const WAKER: Token = Token(2);
const SIGNALS: Token = Token(3);

/// The maximum number of events handled per turn; the rest are left to the next.
const TURN_EVENTS_MAX: usize = 1024;

/// How long to wait after a failed accept (no file descriptor may be left) before the next one.
const ACCEPT_PAUSE_US: u64 = 100_000;

/// How long sending the last replies may take when the server stops.
const STOP_US_MAX: u64 = 1_000_000;

/// How much longer the log may take: a segment that is being filled is finished first.
const SETTLE_US_MAX: u64 = 3_000_000;

/// How long it may take to hand over what the node leads when the server stops.
const LEAVE_US_MAX: u64 = 2_000_000;

/// For how long a server that stops goes on answering. Clients learn with a reply that they must go elsewhere, and other nodes get
/// the outcomes of what they had forwarded before they knew: requests to registers take some round trips.
const LINGER_US: u64 = 50_000;

/// How long it may take to withdraw the clients that wait for locks when the server stops.
const WITHDRAW_US_MAX: u64 = 300_000;

/// How often to check whether the last sync is done, in case no event reports it.
const STOP_PAUSE: Duration = Duration::from_millis(10);

/// Everything that the worker's thread owns.
pub(crate) struct Worker {
    driver: Driver<AnySocket>,
    outside: Outside,
    folder: DataFolder,
    events: Events,
    /// When the last turn ended.
    ended_us: u64,
}

/// The world around the node.
struct Outside {
    poll: Poll,
    /// Events that are not handled yet, latest first.
    happened: Vec<Event>,
    /// The waker was called.
    is_called: bool,
    /// `None` if the port for clients speaks TLS only.
    client_door: Option<Door>,
    peer_door: Door,
    arrivals: Option<Arrivals>,
    /// More clients with TLS may have arrived.
    has_arrivals: bool,
    scratch: Scratch,
    tls_counters: Arc<tls::Counters>,
    exporter: Option<Exporter>,
    sockets: SocketBound,
    signals: UnixStream,
    peers: Peers,
    bridge: Bridge,
    disk: FolderDisk,
    threads: WorkThreads,
    value_threads: ValueThreads,
    clock: Clock,
    release: fn(),
    turns: Durations,
    /// Writes and syncs of the log.
    syncs: Durations,
    filling: Filling,
    is_stopping: bool,
}

/// A listening port.
struct Door {
    listener: TcpListener,
    /// When to accept next; None if no connection waits.
    look_at_us: Option<u64>,
    limiter: Limiter,
}

pub(crate) struct Parts {
    pub(crate) poll: Poll,
    /// `None` if the port for clients speaks TLS only.
    pub(crate) client_listener: Option<TcpListener>,
    pub(crate) peer_listener: TcpListener,
    /// Clients with TLS, if there is a port for them.
    pub(crate) arrivals: Option<Arrivals>,
    pub(crate) tls_counters: Arc<tls::Counters>,
    /// What sends spans, if there are any.
    pub(crate) exporter: Option<Exporter>,
    /// The buffer in which TLS connections decrypt.
    pub(crate) scratch: Scratch,
    /// Becomes readable when the process is asked to stop.
    pub(crate) signals: UnixStream,
    pub(crate) node: Node,
    pub(crate) clients: Clients<AnySocket>,
    pub(crate) sockets: SocketBound,
    pub(crate) peers: Peers,
    pub(crate) bridge: Bridge,
    pub(crate) folder: DataFolder,
    pub(crate) disk: FolderDisk,
    pub(crate) threads: WorkThreads,
    pub(crate) value_threads: ValueThreads,
    pub(crate) clock: Clock,
    /// Releases free memory to the system.
    pub(crate) release: fn(),
}

/// Creates the waker of a worker's poll.
///
/// # Errors
/// The system refuses.
pub(crate) fn waker(poll: &Poll) -> Result<Arc<Waker>> {
    Ok(Arc::new(Waker::new(poll.registry(), WAKER).context("cannot make a waker")?))
}

const _: () = assert!(SIGNALS.0 < PEER_TOKENS && PEER_TOKENS < CLIENT_TOKENS, "a token means one thing");

impl Worker {
    /// Builds a worker from its parts.
    ///
    /// # Errors
    /// The system refuses to watch a socket.
    pub(crate) fn new(mut parts: Parts) -> Result<Worker> {
        let watch = |source: &mut dyn mio::event::Source, token| {
            parts.poll.registry().register(source, token, Interest::READABLE)
        };
        if let Some(listener) = &mut parts.client_listener {
            watch(listener, CLIENT_LISTENER).context("cannot watch the client port")?;
        }
        watch(&mut parts.peer_listener, PEER_LISTENER).context("cannot watch the peer port")?;
        watch(&mut parts.signals, SIGNALS).context("cannot watch for signals")?;
        Ok(Worker {
            driver: Driver::new(parts.node, parts.clients, Sizes::default()),
            outside: Outside {
                poll: parts.poll,
                happened: Vec::with_capacity(TURN_EVENTS_MAX),
                is_called: false,
                client_door: parts.client_listener.map(Door::new),
                peer_door: Door::new(parts.peer_listener),
                arrivals: parts.arrivals,
                has_arrivals: false,
                scratch: parts.scratch,
                tls_counters: parts.tls_counters,
                exporter: parts.exporter,
                sockets: parts.sockets,
                signals: parts.signals,
                peers: parts.peers,
                bridge: parts.bridge,
                disk: parts.disk,
                threads: parts.threads,
                value_threads: parts.value_threads,
                clock: parts.clock,
                release: parts.release,
                turns: Durations::default(),
                syncs: Durations::default(),
                filling: Filling::default(),
                is_stopping: false,
            },
            folder: parts.folder,
            events: Events::with_capacity(TURN_EVENTS_MAX),
            ended_us: 0,
        })
    }

    /// Takes turns until the process is asked to stop. Returns the folder and what sends spans; the caller closes
    /// and stops them.
    ///
    /// # Errors
    /// The system no longer reports events, or the disk has failed.
    pub(crate) fn run(mut self) -> Result<(DataFolder, Option<Exporter>)> {
        while !self.outside.is_stopping {
            self.turn()?;
        }
        self.driver.node.leave();
        let leave_by_us = self.now_us() + LEAVE_US_MAX;
        while !self.driver.node.has_left() && self.now_us() < leave_by_us {
            self.turn()?;
        }
        let stop_by_us = self.now_us() + STOP_US_MAX;
        self.driver.node.note_stop();
        self.driver.node.stop_waits();
        let since_us = self.now_us();
        let (withdraw_by_us, linger_until_us) = (since_us + WITHDRAW_US_MAX, since_us + LINGER_US);
        let is_done = |worker: &Worker| {
            let now_us = worker.now_us();
            let has_waits = worker.driver.node.has_waits() && now_us < withdraw_by_us;
            !has_waits && now_us >= linger_until_us && !worker.driver.node.has_unanswered()
        };
        while !is_done(&self) && self.now_us() < stop_by_us {
            self.turn()?;
            self.driver.node.close_active_since(since_us);
        }
        while self.driver.clients().has_unwritten() && self.now_us() < stop_by_us {
            self.turn()?;
        }
        self.settle_log()?;
        Ok((self.folder, self.outside.exporter))
    }

    fn settle_log(&mut self) -> Result<()> {
        self.outside.disk.hurry();
        let stop_by_us = self.now_us() + SETTLE_US_MAX;
        while !self.driver.settle_log(&mut self.outside) && self.now_us() < stop_by_us {
            // Work that runs beside the loop ends this wait.
            let _ = self.outside.poll.poll(&mut self.events, Some(STOP_PAUSE));
        }
        match self.driver.node.stopped() {
            Some(why) => bail!("the end of the log may not be on the disk: {why}"),
            None => Ok(()),
        }
    }

    fn turn(&mut self) -> Result<()> {
        let Worker { driver, outside, events, ended_us, .. } = self;
        let pause_us = driver.next_turn_us(outside).saturating_sub(*ended_us);
        outside.peers.note_wait(ended_us.saturating_add(pause_us));
        match outside.poll.poll(events, Some(Duration::from_micros(pause_us))) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("the system no longer reports events"),
        }
        events.iter().for_each(|event| outside.note(event));
        outside.happened.reverse();
        outside.peers.note_turn();
        let turned = driver.turn(outside);
        outside.peers.note_turn();
        if let Err(Stopped { why }) = turned {
            bail!("the node stops, because its disk has failed: {why}");
        }
        outside.is_stopping |= driver.node.is_removed();
        let begun_us = driver.began_us();
        self.ended_us = self.now_us();
        self.outside.turns.note(self.ended_us.saturating_sub(begun_us));
        Ok(())
    }

    fn now_us(&self) -> u64 {
        driver::Clock::monotonic_us(&self.outside.clock)
    }
}

impl Outside {
    /// Sorts an event of the system.
    fn note(&mut self, event: &mio::event::Event) {
        match event.token() {
            CLIENT_LISTENER => {
                if let Some(door) = &mut self.client_door {
                    door.look_at_us = Some(0);
                }
            }
            PEER_LISTENER => self.peer_door.look_at_us = Some(0),
            WAKER => self.is_called = true,
            SIGNALS => {
                // Several signals mean the same as one.
                let _ = self.signals.read(&mut [0; 64]);
                self.is_stopping = true;
            }
            Token(token) if token >= CLIENT_TOKENS => {
                let change = Change {
                    is_readable: event.is_readable(),
                    is_writable: event.is_writable(),
                    is_over: event.is_read_closed() || event.is_error(),
                };
                self.happened.push(Event::Client(token - CLIENT_TOKENS, change));
            }
            Token(token) if token >= PEER_TOKENS => {
                self.peers.note(token - PEER_TOKENS, event);
                self.happened.push(Event::Peer(token - PEER_TOKENS));
            }
            Token(_) => {}
        }
    }
}

impl Outside {
    /// Queues connections of peers with input that no event announces.
    fn note_ready(&mut self) {
        while let Some(connection) = self.peers.next_ready() {
            self.happened.push(Event::Peer(connection));
        }
    }
}

impl World for Outside {
    type Clock = Clock;
    type Disk = FolderDisk;
    type Socket = AnySocket;

    #[inline]
    fn clock(&self) -> Clock {
        self.clock
    }

    #[inline]
    fn next_event(&mut self) -> Option<Event> {
        self.happened.pop()
    }

    #[inline]
    fn has_more_events(&self) -> bool {
        !self.happened.is_empty()
    }

    fn brings_records(&self, connection: usize) -> bool {
        self.peers.brings_records(connection)
    }

    fn read_peer(&mut self, connection: usize, turn: &mut Turn<'_>) -> bool {
        let may_have_more = self.peers.serve(connection, self.poll.registry(), turn);
        self.note_ready();
        may_have_more
    }

    fn attend(&mut self, clients: &mut Clients<AnySocket>, turn: &mut Turn<'_>) {
        let Outside { peers, bridge, turns, syncs, tls_counters, exporter, .. } = self;
        let traces = exporter.as_ref().map(|exporter| &*exporter.counters);
        let is_called = std::mem::take(&mut self.is_called) || bridge.is_unfinished();
        if is_called {
            bridge.take_calls(turn, |question, calls, turn| {
                answer(question, (clients, peers, [turns, syncs], calls, tls_counters, traces), turn);
            });
        }
        peers.take_vouches(turn);
        let registry = self.poll.registry();
        if is_called || peers.wakeup_us() <= turn.now.monotonic_us {
            peers.on_time(registry, turn);
        }
        if !self.is_stopping {
            let sockets = self.sockets;
            if let Some(door) = &mut self.client_door {
                door.look("client", turn, |listener, turn| {
                    clients::accept(clients, sockets, listener, registry, turn)
                });
            }
            if let Some(arrivals) = self.arrivals.as_mut().filter(|_| is_called || self.has_arrivals) {
                let (happened, arrived) = (&mut self.happened, (arrivals, &self.scratch));
                let change = Change { is_readable: true, ..Change::default() };
                self.has_arrivals = clients::take_arrivals(clients, arrived, registry, turn, |id| {
                    happened.push(Event::Client(id.index(), change));
                });
            }
            self.peer_door.look("peer", turn, |listener, turn| peers.accept(listener, registry, turn));
        }
        self.note_ready();
    }

    #[inline]
    fn next_finished(&mut self) -> Option<(Work, Result<(), DiskError>)> {
        let FinishedWork { work, result, took } = self.threads.take_finished()?;
        if work.lane() == Lane::Sync {
            self.syncs.note(took.as_micros() as u64);
        }
        Some((work, result))
    }

    #[inline]
    fn next_finished_value(&mut self) -> Option<(ValueWork, ValueResult)> {
        self.value_threads.take_finished()
    }

    fn write_to_peers(&mut self, turn: &mut Turn<'_>) {
        self.peers.write(turn);
        self.note_ready();
    }

    #[inline]
    fn disk(&mut self) -> &mut FolderDisk {
        &mut self.disk
    }

    fn begin_work(&mut self, work: Work) {
        self.threads.begin(work);
    }

    fn begin_value_work(&mut self, work: ValueWork) {
        self.value_threads.begin(work);
    }

    fn tell(&mut self, client: ClientId, turn: &mut Turn<'_>) {
        self.bridge.on_ready(client, turn);
    }

    fn resident_bytes(&mut self) -> u64 {
        memory::resident_bytes()
    }

    fn release(&mut self) {
        (self.release)();
    }

    fn usage(&mut self, counters: &Counters) -> Usage {
        usage::measure(counters, &self.disk, &mut self.filling, self.peers.certificate())
    }

    fn log(&mut self, line: &Line) {
        log::line(line);
    }

    #[inline]
    fn run_periodic_tasks(&mut self, turn: &mut Turn<'_>) {
        self.peers.follow(turn.node, turn.now.monotonic_us);
        if turn.node.has_spans()
            && let Some(exporter) = &self.exporter
        {
            exporter.send(turn.node.take_spans());
        }
    }

    fn wakeup_us(&self) -> u64 {
        if self.bridge.is_unfinished() || self.has_arrivals || !self.happened.is_empty() {
            return 0;
        }
        let client_door_us = self.client_door.as_ref().and_then(|door| door.look_at_us);
        let doors = [client_door_us, self.peer_door.look_at_us];
        doors.into_iter().flatten().fold(self.peers.wakeup_us(), u64::min)
    }
}

impl Door {
    fn new(listener: TcpListener) -> Door {
        Door { listener, look_at_us: Some(0), limiter: Limiter::default() }
    }

    /// Accepts waiting connections, if it is time to.
    fn look(
        &mut self,
        name: &str,
        turn: &mut Turn<'_>,
        accept: impl FnOnce(&TcpListener, &mut Turn<'_>) -> std::io::Result<bool>,
    ) {
        let now_us = turn.now.monotonic_us;
        if self.look_at_us.is_none_or(|at| at > now_us) {
            return;
        }
        self.look_at_us = match accept(&self.listener, turn) {
            Ok(true) => Some(now_us),
            Ok(false) => None,
            Err(error) => {
                let line = || format!("no connection can be accepted at the {name} port for now: {error}");
                self.limiter.warn(now_us, turn.lines, line);
                Some(now_us + ACCEPT_PAUSE_US)
            }
        };
    }
}

/// Answers a question that came over HTTP. The task that asked may have given up.
fn answer(
    question: Question,
    (clients, peers, [turns, syncs], http_calls, tls, traces): (
        &Clients<AnySocket>,
        &Peers,
        [&Durations; 2],
        u64,
        &tls::Counters,
        Option<&traces::Counters>,
    ),
    turn: &mut Turn<'_>,
) {
    match question {
        Question::Health(sender) => {
            let _ = sender.send(turn.node.health());
        }
        Question::Keyspaces(sender) => {
            let _ = sender.send(serde_json::to_value(turn.node.keyspaces()).unwrap_or_default());
        }
        Question::Metrics(sender) => {
            let mut text = String::new();
            turn.node.metrics(&mut text);
            let counted = metrics::Counted {
                driver: *turn.counters,
                strangers: peers.strangers,
                forged_frames: peers.forged_frames,
                http_calls,
                tls_handshakes: tls.done.load(Ordering::Relaxed),
                tls_refused: tls.refused.load(Ordering::Relaxed),
                spans_sent: traces.map_or(0, |traces| traces.sent.load(Ordering::Relaxed)),
                spans_dropped: traces.map_or(0, |traces| traces.dropped.load(Ordering::Relaxed))
                    + turn.node.spans_dropped(),
                input_bytes: clients.input_bytes(),
                peer_links: peers.links(),
                peer_links_tls: peers.links_with_tls(),
                certificate_expires_s: peers.certificate_expires_s(),
            };
            counted.render(&mut text);
            turns.render("quorate_turn_seconds", "Time that one turn of the worker took.", &mut text);
            syncs.render(
                "quorate_log_sync_seconds",
                "Time that a write of the log and its sync took.",
                &mut text,
            );
            usage::render(&mut text);
            let _ = sender.send(text);
        }
    }
}
