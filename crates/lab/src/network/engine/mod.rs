//! The relay's thread: sockets, time, and the order in which connections are served.
//!
//! Nothing is done before its time, and what is due is done in the order in which it became due, so a late thread
//! delays all connections alike. A pipe can proceed when its source is readable, its destination writable, its first
//! chunk has arrived, or it is its turn at an interface: in each case [`Engine::serve`] does everything that can be
//! done.

mod carry;
mod changes;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use mio::event::Event as SocketEvent;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};

use super::Nanos;
use super::connection::{Connection, Content, DIALER, End, Pipe, TARGET};
use super::fabric::{Fabric, LinkId, PaceId, QUANTUM_BYTES_MAX};
use super::nanos;
use super::request::{Request, Route};
use super::settings::Gate;
use super::timer::Timer;

const TIMER: Token = Token(0);
const WAKER: Token = Token(1);
/// Listeners have the tokens from here on; connections' ends have those from [`ENDS`] on, two for each place.
const LISTENERS: usize = 2;
const ENDS: usize = 1 << 20;

const EVENTS_MAX: usize = 256;

/// The most that one system call reads or writes.
const BUFFER_BYTES: usize = QUANTUM_BYTES_MAX;

/// What the kernel may buffer of a connection on the relay's side, in each direction: enough for a fast link, and
/// little enough that a slow link holds its senders back.
const SOCKET_BYTES: usize = 256 << 10;

/// How long no connection is accepted after the system has run out of file descriptors.
const PAUSE: Nanos = 20_000_000;

/// One direction of a connection. `birth` distinguishes it from earlier connections in the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PipeId {
    place: usize,
    birth: u64,
    from: usize,
}

impl PipeId {
    fn back(self) -> PipeId {
        PipeId { from: 1 - self.from, ..self }
    }
}

/// An event that is due at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// The first waiting pipe's turn at a pace.
    Turn(PaceId),
    /// The first chunk arrives, or the pipe opens.
    Pipe(PipeId),
    /// The request for a connection reaches its target.
    Dial(PipeId),
    /// Accepting is tried again: the system may have room for another connection.
    Accept(usize),
}

struct Door {
    route: Route,
    address: SocketAddr,
    /// `None` while connections are refused.
    listener: Option<TcpListener>,
    /// The link to the target, and the link back.
    links: [LinkId; 2],
}

pub(super) struct Engine {
    poll: Poll,
    timer: Timer,
    requests: Receiver<Request>,
    fabric: Fabric<PipeId>,
    doors: Vec<Door>,
    connections: Vec<Option<Connection>>,
    births: u64,
    agenda: BinaryHeap<Reverse<(Nanos, u64, Due)>>,
    /// Counts the entries of the agenda: events due at the same time happen in this order.
    appointments: u64,
    /// Pipes that stopped to let others proceed.
    unfinished: Vec<PipeId>,
    buffer: Vec<u8>,
    /// Buffers as large as `buffer`, for bytes in flight.
    spares: Vec<Vec<u8>>,
}

impl Engine {
    pub(super) fn new(seed: u64, requests: Receiver<Request>) -> io::Result<(Engine, Arc<Waker>)> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let timer = Timer::new(&poll, TIMER)?;
        let engine = Engine {
            poll,
            timer,
            requests,
            fabric: Fabric::new(seed),
            doors: Vec::new(),
            connections: Vec::new(),
            births: 0,
            agenda: BinaryHeap::new(),
            appointments: 0,
            unfinished: Vec::new(),
            buffer: vec![0; BUFFER_BYTES],
            spares: Vec::new(),
        };
        Ok((engine, waker))
    }

    /// Runs until a request to stop.
    pub(super) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        loop {
            for pipe in std::mem::take(&mut self.unfinished) {
                self.serve(pipe);
            }
            let now = self.timer.now();
            while let Some(Reverse((at, _, due))) = self.agenda.peek().copied()
                && at <= now
            {
                self.agenda.pop();
                self.on_due(due, at);
            }
            let until = match self.unfinished.is_empty() {
                true => self.agenda.peek().map(|Reverse((at, ..))| *at),
                false => Some(0),
            };
            self.timer.wait(&mut self.poll, &mut events, until)?;
            for event in &events {
                match event.token() {
                    TIMER => {}
                    WAKER => {
                        if !self.take_requests() {
                            return Ok(());
                        }
                    }
                    Token(token) if token < ENDS => self.accept(token - LISTENERS),
                    Token(token) => self.take(token - ENDS, event),
                }
            }
        }
    }

    fn on_due(&mut self, due: Due, at: Nanos) {
        match due {
            Due::Turn(pace) => self.call(pace),
            Due::Pipe(pipe) => {
                if let Some(pipe) = self.pipe(pipe)
                    && pipe.wakes_at == Some(at)
                {
                    pipe.wakes_at = None;
                }
                self.serve(pipe);
            }
            Due::Dial(pipe) => self.dial(pipe),
            Due::Accept(door) => self.accept(door),
        }
    }

    fn appoint(&mut self, at: Nanos, due: Due) {
        self.appointments += 1;
        self.agenda.push(Reverse((at, self.appointments, due)));
    }

    /// Handles an event of an end's socket.
    fn take(&mut self, token: usize, event: &SocketEvent) {
        let (place, side) = (token / 2, token % 2);
        let Some(Some(connection)) = self.connections.get_mut(place) else { return };
        let pipe = PipeId { place, birth: connection.birth, from: side };
        let end = &mut connection.ends[side];
        let is_over = event.is_read_closed() || event.is_error();
        end.is_readable |= event.is_readable() || is_over;
        end.is_hung_up |= is_over;
        end.is_writable |= event.is_writable();
        if !end.is_connected {
            match connected(end.socket.as_ref()) {
                Ok(true) => end.is_connected = true,
                Ok(false) => return,
                Err(_) => return self.break_off(pipe),
            }
        } else if event.is_error() && connection.pipes[side].is_over {
            // It has already sent its end, so no read would detect this.
            return self.break_off(pipe);
        }
        self.serve(pipe);
        self.serve(pipe.back());
    }

    fn accept(&mut self, door: usize) {
        loop {
            let Some(Door { listener: Some(listener), .. }) = self.doors.get(door) else { return };
            match listener.accept() {
                Ok((socket, _)) => {
                    // If it cannot be watched, it is closed, and its dialler sees that.
                    let _ = self.let_in(door, socket);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    let later = self.timer.now() + PAUSE;
                    return self.appoint(later, Due::Accept(door));
                }
            }
        }
    }

    /// Begins a connection. The kernel has already completed the dialler's handshake, which takes a round trip on a
    /// real link; so the dialler's bytes wait for that long.
    fn let_in(&mut self, door: usize, mut socket: TcpStream) -> io::Result<()> {
        let now = self.timer.now();
        let Door { links: [there, back], .. } = self.doors[door];
        let there_takes = nanos(self.fabric.way(there).link.delay);
        let round_trip = self.fabric.round_trip(there);
        let free = self.connections.iter().position(Option::is_none);
        let place = free.unwrap_or(self.connections.len());
        watch(&self.poll, &mut socket, place, DIALER)?;
        self.births += 1;
        let connection = Connection {
            birth: self.births,
            route: door,
            ends: [End::connected(socket), End::default()],
            pipes: [
                Pipe::new(there, now + round_trip),
                // The target accepts the connection at the third message of the handshake.
                Pipe::new(back, now + round_trip + there_takes),
            ],
        };
        match free {
            Some(place) => self.connections[place] = Some(connection),
            None => self.connections.push(Some(connection)),
        }
        let pipe = PipeId { place, birth: self.births, from: DIALER };
        if self.is_open_both_ways(pipe) {
            self.appoint(now + there_takes, Due::Dial(pipe));
        }
        Ok(())
    }

    /// Connects to the target. If the link has been cut, the connection waits until it is open again.
    fn dial(&mut self, pipe: PipeId) {
        if !self.is_open_both_ways(pipe) {
            return;
        }
        let Some(connection) = self.connection(pipe) else { return };
        if connection.ends[TARGET].socket.is_some() {
            return;
        }
        let (opens_at, target) = (connection.pipes.each_ref().map(|pipe| pipe.opens_at), connection.route);
        let target = self.doors[target].route.target;
        let dialled = TcpStream::connect(target)
            .and_then(|mut socket| watch(&self.poll, &mut socket, pipe.place, TARGET).map(|()| socket));
        let Some(connection) = self.connection(pipe) else { return };
        match dialled {
            Ok(socket) => {
                connection.ends[TARGET] =
                    End { is_connected: false, is_writable: false, ..End::connected(socket) };
                for (from, at) in opens_at.into_iter().enumerate() {
                    self.appoint(at, Due::Pipe(PipeId { from, ..pipe }));
                }
            }
            Err(_) => self.break_off(pipe.back()),
        }
    }

    /// Handles the loss of an end: everything in flight to it is lost, and the other end learns of it after the link's
    /// delay.
    fn break_off(&mut self, gone: PipeId) {
        let now = self.timer.now();
        let Some(connection) = self.connection(gone) else { return };
        connection.ends[gone.from].socket = None;
        connection.pipes[1 - gone.from].clear();
        let link = connection.pipes[gone.from].link;
        let arrives = now + nanos(self.fabric.way(link).link.delay);
        if let Some(pipe) = self.pipe(gone) {
            pipe.push_last(Content::Reset, arrives);
        }
        self.serve(gone);
    }

    /// Ends a connection; its ends see a reset.
    fn kill(&mut self, pipe: PipeId) {
        if let Some(connection) = self.connection(pipe) {
            connection.ends.iter_mut().for_each(End::reset);
            self.connections[pipe.place] = None;
        }
    }

    fn connection(&mut self, pipe: PipeId) -> Option<&mut Connection> {
        self.connections.get_mut(pipe.place)?.as_mut().filter(|connection| connection.birth == pipe.birth)
    }

    fn pipe(&mut self, pipe: PipeId) -> Option<&mut Pipe> {
        self.connection(pipe).map(|connection| &mut connection.pipes[pipe.from])
    }

    fn is_open_both_ways(&mut self, pipe: PipeId) -> bool {
        let Some(connection) = self.connection(pipe) else { return false };
        let links = connection.pipes.each_ref().map(|pipe| pipe.link);
        links.iter().all(|link| self.fabric.way(*link).gate == Gate::Open)
    }
}

/// Watches a socket, and keeps the kernel's buffers for it small.
fn watch(poll: &Poll, socket: &mut TcpStream, place: usize, side: usize) -> io::Result<()> {
    socket.set_nodelay(true)?;
    limit_buffers(socket.as_fd())?;
    let token = Token(ENDS + 2 * place + side);
    poll.registry().register(socket, token, Interest::READABLE | Interest::WRITABLE)
}

fn limit_buffers(socket: impl AsFd) -> io::Result<()> {
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BYTES)?;
    rustix::net::sockopt::set_socket_send_buffer_size(&socket, SOCKET_BYTES)?;
    Ok(())
}

/// Whether a dialled socket is connected.
fn connected(socket: Option<&TcpStream>) -> io::Result<bool> {
    let Some(socket) = socket else { return Ok(false) };
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    match socket.peer_addr() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
        Err(error) => Err(error),
    }
}
