//! A connection to a server, plain or over TLS.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use rustls::ClientConnection;
use server::status::Refused;

use super::refusal::Refusal;
use super::tls::Tls;

const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How long a server may be silent in the TLS handshake. A server that does not speak TLS may be waiting for more
/// input.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

/// A connection. One clone of it may be read while another one is written.
pub(crate) struct Stream {
    socket: TcpStream,
    session: Option<(Arc<Mutex<ClientConnection>>, Tls)>,
}

impl Stream {
    /// Connects to HOST:PORT. Reads and writes end with an error after `within`.
    ///
    /// # Errors
    /// It cannot be reached, or is not trusted.
    pub(crate) fn connect(address: &str, tls: Option<&Tls>, within: Duration) -> Result<Stream> {
        let cannot = || format!("cannot connect to {address}");
        let mut found = address.to_socket_addrs().map_err(|error| {
            let refusal = Refusal::new(Refused::Name, format!("{}: {error}", cannot()));
            // Sockets may be missing, too.
            if error.raw_os_error().is_some() { anyhow!("{refusal}") } else { refusal.into() }
        })?;
        let place = found.next().with_context(cannot)?;
        let mut socket = TcpStream::connect_timeout(&place, CONNECT_WITHIN).with_context(cannot)?;
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(within))?;
        let mut session = None;
        if let Some(tls) = tls {
            let mut new = tls.session(address)?;
            socket.set_read_timeout(Some(HANDSHAKE_WITHIN))?;
            while new.is_handshaking() {
                new.complete_io(&mut socket).map_err(|error| {
                    let text = format!("{address}: {}", tls.refusal(&error));
                    // Errors of the connection itself are those of a server that is down or overloaded, too.
                    if Tls::is_of_tls(&error) {
                        Refusal::new(Refused::Tls, text).into()
                    } else {
                        anyhow!(text)
                    }
                })?;
            }
            session = Some((Arc::new(Mutex::new(new)), tls.clone()));
        }
        socket.set_read_timeout(Some(within))?;
        Ok(Stream { socket, session })
    }

    /// Sets how long a read may last.
    pub(crate) fn set_read_timeout(&self, within: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(within))
    }

    /// Whether it is one over TLS.
    pub(crate) fn is_tls(&self) -> bool {
        self.session.is_some()
    }

    /// Another handle of the same connection.
    pub(crate) fn try_clone(&self) -> io::Result<Stream> {
        Ok(Stream { socket: self.socket.try_clone()?, session: self.session.clone() })
    }

    /// Closes the connection, also for its clones.
    pub(crate) fn shutdown(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// Sends the bytes that the session has to send.
fn flush(session: &mut ClientConnection, socket: &mut TcpStream) -> io::Result<()> {
    while session.wants_write() {
        match session.write_tls(socket) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            written => drop(written?),
        }
    }
    Ok(())
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some((session, tls)) = &self.session else { return self.socket.read(into) };
        let session = || session.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match session().reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Servers close connections without a close_notify. Truncated replies are found by their form.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            // This waits without locking the session, so a writer can use it.
            self.socket.peek(&mut [0])?;
            let mut session = session();
            session.read_tls(&mut self.socket)?;
            let outcome = session.process_new_packets();
            let flushed = flush(&mut session, &mut self.socket);
            outcome.map_err(|error| {
                let refusal = Refusal::new(Refused::Tls, tls.words(&error));
                io::Error::new(io::ErrorKind::InvalidData, refusal)
            })?;
            flushed?;
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some((session, _)) = &self.session else { return self.socket.write(bytes) };
        let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
        let count = session.writer().write(bytes)?;
        flush(&mut session, &mut self.socket)?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
