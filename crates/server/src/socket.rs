//! What clients' and peers' sockets have in common.

use std::io::{self, IoSlice, Write};
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

/// How far a socket has come with output that another part of the program appends to.
#[derive(Debug, Default)]
pub(crate) struct Outlet {
    /// Bytes at the front that are written.
    written: usize,
    /// The socket had no room. An event tells when it has again.
    pub(crate) is_blocked: bool,
}

impl Outlet {
    /// Writes as much as the socket takes and removes it. Tells how much that was.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn write(&mut self, socket: &mut TcpStream, bytes: &mut Vec<u8>) -> io::Result<usize> {
        let start = self.written;
        while self.written < bytes.len() && !self.is_blocked {
            let rest = &bytes[self.written..];
            self.written += self.put(rest.len(), || socket.write(rest))?;
        }
        let count = self.written - start;
        self.remove_written(bytes);
        Ok(count)
    }

    /// The same with what stands behind these bytes, all in one. Tells how much it was of the bytes, and how much of the
    /// rest, which is not removed.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn write_with(
        &mut self,
        socket: &mut TcpStream,
        bytes: &mut Vec<u8>,
        behind: [&[u8]; 2],
    ) -> io::Result<(usize, usize)> {
        let before = bytes.len() - self.written;
        let mut parts = [&bytes[self.written..], behind[0], behind[1]].map(IoSlice::new);
        let mut parts = &mut parts[..];
        let mut gone = 0;
        let length: usize = parts.iter().map(|part| part.len()).sum();
        while gone < length && !self.is_blocked {
            let count = self.put(length - gone, || socket.write_vectored(parts))?;
            IoSlice::advance_slices(&mut parts, count);
            gone += count;
        }
        let of_bytes = gone.min(before);
        self.written += of_bytes;
        self.remove_written(bytes);
        Ok((of_bytes, gone - of_bytes))
    }

    /// Writes once what has this length. Tells how much of it the socket has taken.
    fn put(&mut self, length: usize, write: impl FnOnce() -> io::Result<usize>) -> io::Result<usize> {
        match write() {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                self.is_blocked = count < length;
                Ok(count)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.is_blocked = true;
                Ok(0)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(error),
        }
    }

    fn remove_written(&mut self, bytes: &mut Vec<u8>) {
        if self.written == bytes.len() {
            bytes.clear();
            self.written = 0;
        } else if self.written > bytes.len() / 2 {
            // Only now and then, so that a slow reader's long output is not moved for every little piece.
            bytes.drain(..self.written);
            self.written = 0;
        }
    }
}
