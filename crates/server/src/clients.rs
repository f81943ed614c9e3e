//! The sockets of clients, and accepting them. The driver serves them ([`driver::clients`]).
//!
//! Sockets are edge-triggered and registered once, for reading and writing; the system reports each change once.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use driver::Clients;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use node::{ClientId, ClientKind, TlsClient};

use crate::descriptors::SocketBound;
use crate::socket;
use crate::tls::{AnySocket, Arrival, Arrivals, Scratch, TlsStream, names};
use crate::turn::{CLIENT_TOKENS, Turn};

/// The maximum number of clients accepted per turn.
const TURN_ACCEPTS_MAX: usize = 64;

const TOO_MANY_CLIENTS: &[u8] = b"-ERR max number of clients reached\r\n";

/// Accepts waiting clients. Returns true when more may wait.
///
/// The system refuses, for example because no file descriptor is left: try again later.
pub(crate) fn accept(
    clients: &mut Clients<AnySocket>,
    sockets: SocketBound,
    listener: &TcpListener,
    registry: &Registry,
    turn: &mut Turn<'_>,
) -> io::Result<bool> {
    for _ in 0..TURN_ACCEPTS_MAX {
        match socket::accept(listener)? {
            Some((mut socket, _)) if sockets.is_passed(&socket) => {
                // The next client may get its descriptor.
                turn.node.close_unauthenticated();
                let _ = socket.write(TOO_MANY_CLIENTS);
            }
            Some((socket, address)) => {
                admit(clients, AnySocket::Plain(socket), (address, None), registry, turn);
            }
            None => return Ok(false),
        }
    }
    Ok(true)
}

/// Admits clients whose handshakes are done. Calls `ready` with the number of each: the end of the handshake may have
/// brought its first request, which no event reports. Returns true when more may wait.
pub(crate) fn take_arrivals(
    clients: &mut Clients<AnySocket>,
    (arrivals, scratch): (&mut Arrivals, &Scratch),
    registry: &Registry,
    turn: &mut Turn<'_>,
    mut ready: impl FnMut(ClientId),
) -> bool {
    for _ in 0..TURN_ACCEPTS_MAX {
        match arrivals.next() {
            Some(Arrival::Client { socket, address, session }) => {
                let shown = session.peer_certificates().and_then(|chain| chain.first());
                let certificate_name = shown.and_then(|certificate| names::common_name(certificate));
                let tls = Some(TlsClient { certificate_name });
                let stream = TlsStream::new(TcpStream::from_std(socket), session, Scratch::clone(scratch));
                let socket = AnySocket::Tls(Box::new(stream));
                admit(clients, socket, (address, tls), registry, turn).into_iter().for_each(&mut ready);
            }
            Some(Arrival::Crowded) => {
                turn.node.close_unauthenticated();
            }
            None => return false,
        }
    }
    true
}

fn admit(
    clients: &mut Clients<AnySocket>,
    mut client: AnySocket,
    (address, tls): (SocketAddr, Option<TlsClient>),
    registry: &Registry,
    turn: &mut Turn<'_>,
) -> Option<ClientId> {
    let socket = client.socket();
    // If the client has disconnected already, the first read shows it.
    let _ = socket.set_nodelay(true);
    let _ = socket::keep_alive(socket);
    let local_address = socket.local_addr().map_or(String::new(), |local| local.to_string());
    let (address, fd) = (address.to_string(), socket.as_raw_fd());
    let kind = ClientKind::Resp { address, local_address, fd, tls };
    let Some(id) = turn.node.connect(kind) else {
        let _ = client.write(TOO_MANY_CLIENTS);
        return None;
    };
    let token = Token(CLIENT_TOKENS + id.index());
    let interest = Interest::READABLE | Interest::WRITABLE;
    if let Err(error) = registry.register(client.socket_mut(), token, interest) {
        tracing::warn!("a client was turned away: its socket cannot be watched: {error}");
        turn.node.disconnect(id);
        return None;
    }
    clients.add(id, client, turn);
    Some(id)
}
