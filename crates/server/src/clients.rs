//! The sockets of clients, and accepting them. The driver serves them ([`driver::clients`]).
//!
//! Sockets are edge-triggered and registered once, for reading and writing; the system reports each change once.

use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use driver::Clients;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use node::ClientKind;

use crate::descriptors::SocketBound;
use crate::socket;
use crate::turn::{CLIENT_TOKENS, Turn};

/// Most clients accepted per turn.
const TURN_ACCEPTS_MAX: usize = 64;

const TOO_MANY_CLIENTS: &[u8] = b"-ERR max number of clients reached\r\n";

/// The node's end of a client's connection.
#[derive(Debug)]
pub(crate) struct ClientSocket(TcpStream);

impl Read for ClientSocket {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for ClientSocket {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    #[inline]
    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl driver::Socket for ClientSocket {
    fn address(&self) -> String {
        self.0.peer_addr().map_or(String::from("?"), |address| address.to_string())
    }
}

/// Accepts waiting clients. Returns true when more may wait.
///
/// # Errors
/// The system refuses, for example because it has no more file descriptors: try again later.
pub(crate) fn accept(
    clients: &mut Clients<ClientSocket>,
    sockets: SocketBound,
    listener: &TcpListener,
    registry: &Registry,
    turn: &mut Turn<'_>,
) -> io::Result<bool> {
    for _ in 0..TURN_ACCEPTS_MAX {
        match socket::accept(listener)? {
            Some((socket, address)) => let_in(clients, sockets, (socket, address), registry, turn),
            None => return Ok(false),
        }
    }
    Ok(true)
}

fn let_in(
    clients: &mut Clients<ClientSocket>,
    sockets: SocketBound,
    (mut socket, address): (TcpStream, SocketAddr),
    registry: &Registry,
    turn: &mut Turn<'_>,
) {
    if sockets.is_passed(&socket) {
        // The next client may get its descriptor.
        turn.node.close_unauthenticated();
        let _ = socket.write(TOO_MANY_CLIENTS);
        return;
    }
    // If the client is gone already, the first read shows it.
    let _ = socket.set_nodelay(true);
    let _ = socket::keep_alive(&socket);
    let local_address = socket.local_addr().map_or(String::new(), |local| local.to_string());
    let kind = ClientKind::Resp { address: address.to_string(), local_address, fd: socket.as_raw_fd() };
    let Some(id) = turn.node.connect(kind) else {
        let _ = socket.write(TOO_MANY_CLIENTS);
        return;
    };
    let token = Token(CLIENT_TOKENS + id.index());
    if let Err(error) = registry.register(&mut socket, token, Interest::READABLE | Interest::WRITABLE) {
        tracing::warn!("a client was turned away: its socket cannot be watched: {error}");
        turn.node.disconnect(id);
        return;
    }
    clients.add(id, ClientSocket(socket), turn);
}
