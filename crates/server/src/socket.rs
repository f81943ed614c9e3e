//! What the sockets of clients and peers have in common.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl};

/// Accepts the next waiting connection; None if none waits.
///
/// # Errors
/// The system refuses, for example because no file descriptor is left. A client that has left while
/// waiting is no error.
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

/// Makes the system probe periodically whether a silent client still exists, as Redis does by default.
///
/// # Errors
/// The socket is broken, or the system does not support this.
pub(crate) fn keep_alive(socket: &TcpStream) -> io::Result<()> {
    const IDLE: Duration = Duration::from_secs(300);
    const INTERVAL: Duration = Duration::from_secs(100);
    const PROBES: u32 = 3;
    set_socket_keepalive(socket, true)?;
    set_tcp_keepidle(socket, IDLE)?;
    set_tcp_keepintvl(socket, INTERVAL)?;
    Ok(set_tcp_keepcnt(socket, PROBES)?)
}
