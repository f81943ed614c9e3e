//! What clients' and peers' sockets have in common.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl};

/// The next connection that waits at the door; none if nobody does.
///
/// # Errors
/// The system lets nobody in, as when it is out of file descriptors. Who has left while waiting is no error.
pub(crate) fn accept(listener: &TcpListener) -> io::Result<Option<(TcpStream, SocketAddr)>> {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, WouldBlock};
    loop {
        match listener.accept() {
            Ok(accepted) => return Ok(Some(accepted)),
            Err(error) if error.kind() == WouldBlock => return Ok(None),
            Err(error) if matches!(error.kind(), Interrupted | ConnectionAborted | ConnectionReset) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Has the system ask, from time to time, whether a silent client still exists. As Redis does by default.
///
/// # Errors
/// The socket is broken, or the system cannot.
pub(crate) fn keep_alive(socket: &TcpStream) -> io::Result<()> {
    const IDLE: Duration = Duration::from_secs(300);
    const INTERVAL: Duration = Duration::from_secs(100);
    const PROBES: u32 = 3;
    set_socket_keepalive(socket, true)?;
    set_tcp_keepidle(socket, IDLE)?;
    set_tcp_keepintvl(socket, INTERVAL)?;
    Ok(set_tcp_keepcnt(socket, PROBES)?)
}
