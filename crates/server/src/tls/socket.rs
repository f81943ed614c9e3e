//! A connection's socket, plain or with TLS.

use std::io::{self, IoSlice, Read, Write};

use mio::net::TcpStream;

use super::stream::TlsStream;

/// The node's end of a connection.
pub(crate) enum AnySocket {
    /// Bytes are sent as they are written.
    Plain(TcpStream),
    /// Bytes are encrypted.
    Tls(Box<TlsStream>),
}

impl AnySocket {
    /// The system's socket.
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            AnySocket::Plain(socket) => socket,
            AnySocket::Tls(stream) => &stream.secured.socket,
        }
    }

    /// The system's socket, to be registered.
    pub(crate) fn socket_mut(&mut self) -> &mut TcpStream {
        match self {
            AnySocket::Plain(socket) => socket,
            AnySocket::Tls(stream) => &mut stream.secured.socket,
        }
    }
}

impl Read for AnySocket {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            AnySocket::Plain(socket) => socket.read(buffer),
            AnySocket::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for AnySocket {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            AnySocket::Plain(socket) => socket.write(bytes),
            AnySocket::Tls(stream) => stream.write(bytes),
        }
    }

    #[inline]
    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            AnySocket::Plain(socket) => socket.write_vectored(parts),
            AnySocket::Tls(stream) => stream.write_vectored(parts),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket_mut().flush()
    }
}

impl driver::Socket for AnySocket {
    fn address(&self) -> String {
        self.socket().peer_addr().map_or(String::from("?"), |address| address.to_string())
    }
}
