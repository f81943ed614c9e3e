//! A relay between node 1, which dials, and node 2, which is dialled.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lab::network::{Gate, Link, Node, Relay, Route};

/// Longer than anything here takes: a wait that lasts this long would never end.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long nothing may arrive where nothing is expected.
const SILENCE: Duration = Duration::from_millis(60);

pub(crate) struct World {
    pub(crate) relay: Relay,
    pub(crate) listener: TcpListener,
    pub(crate) address: SocketAddr,
}

impl World {
    pub(crate) fn new() -> World {
        World::seeded(1)
    }

    pub(crate) fn seeded(seed: u64) -> World {
        let relay = Relay::start(seed).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = route(&relay, 1, 2, &listener);
        World { relay, listener, address }
    }

    /// The same link both ways.
    pub(crate) fn both_ways(self, words: &str) -> World {
        self.link(1, 2, words);
        self.link(2, 1, words);
        self
    }

    pub(crate) fn link(&self, from: Node, to: Node, words: &str) {
        self.relay.set_link(from, to, Link::default().change(words).unwrap()).unwrap();
    }

    pub(crate) fn gate(&self, from: Node, to: Node, gate: Gate) {
        self.relay.set_gate(from, to, gate).unwrap();
    }

    /// A connection: node 1's end and node 2's.
    pub(crate) fn connect(&self) -> (TcpStream, TcpStream) {
        let one = dial(self.address);
        let (two, _) = self.listener.accept().unwrap();
        two.set_nodelay(true).unwrap();
        two.set_read_timeout(Some(PATIENCE)).unwrap();
        (one, two)
    }
}

pub(crate) fn route(relay: &Relay, from: Node, to: Node, listener: &TcpListener) -> SocketAddr {
    let listen = "127.0.0.1:0".parse().unwrap();
    relay.add_route(Route { from, to, listen, target: listener.local_addr().unwrap() }).unwrap()
}

pub(crate) fn dial(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_nodelay(true).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Bytes that tell their place.
pub(crate) fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|place| (place.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect()
}

pub(crate) fn send(socket: &TcpStream, data: Vec<u8>) -> JoinHandle<()> {
    let mut socket = socket.try_clone().unwrap();
    std::thread::spawn(move || socket.write_all(&data).unwrap())
}

pub(crate) fn receive(mut socket: &TcpStream, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    socket.read_exact(&mut data).unwrap();
    data
}

/// Nothing comes for a while.
pub(crate) fn is_silent(mut socket: &TcpStream) -> bool {
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    let read = socket.read(&mut [0]);
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    read.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

/// The kind of error that ends a connection; none if it ends in order.
pub(crate) fn end(mut socket: &TcpStream) -> Option<ErrorKind> {
    let mut rest = Vec::new();
    socket.read_to_end(&mut rest).err().map(|error| error.kind())
}

/// Answers every byte by itself until the other side ends.
pub(crate) fn echo(mut socket: TcpStream) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut byte = [0];
        while socket.read_exact(&mut byte).and_then(|()| socket.write_all(&byte)).is_ok() {}
    })
}

/// Sends a byte and waits for the answer.
pub(crate) fn round_trip(mut socket: &TcpStream) -> Duration {
    let start = Instant::now();
    socket.write_all(&[1]).unwrap();
    receive(socket, 1);
    start.elapsed()
}
