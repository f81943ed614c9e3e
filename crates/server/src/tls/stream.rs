//! A connection over TLS, of a client or of another node, behind the interface of a plain one.
//!
//! The driver reads and writes it like a socket, and it keeps a socket's rules: a read that does not fill the buffer has
//! read all that was available, and a write that is not complete has found the socket full.

use std::cell::RefCell;
use std::io::{self, IoSlice, Read, Write};
use std::rc::Rc;

use mio::net::TcpStream;
use rustls::Connection;
use rustls::pki_types::CertificateDer;

/// The maximum number of parts of one write.
const PARTS: usize = 4;

/// The minimum number of bytes requested from the socket in one read: a whole record, even if there is room for less.
const READ_BYTES_MIN: usize = 16 << 10;

/// A buffer for bytes that have been read and not decrypted yet. All connections of a worker share it.
pub(crate) type Scratch = Rc<RefCell<Box<[u8]>>>;

/// Makes a [`Scratch`].
pub(crate) fn scratch() -> Scratch {
    Rc::new(RefCell::new(vec![0; 64 << 10].into()))
}

/// A socket and what encrypts its bytes.
pub(crate) struct Secured {
    pub(crate) socket: TcpStream,
    session: Box<Connection>,
}

/// A connection whose handshake is done.
pub(crate) struct TlsStream {
    pub(crate) secured: Secured,
    scratch: Scratch,
    /// Bytes that are decrypted and not consumed yet.
    decrypted: usize,
    /// Bytes that have been read and not decrypted yet, for lack of room. Nearly always empty.
    undecrypted: Vec<u8>,
    /// The other side sends no more.
    has_ended: bool,
    /// Bytes that are encrypted and not sent yet. They have not been reported as written, so the caller passes them again
    /// with its next write.
    owed: usize,
}

impl TlsStream {
    pub(crate) fn new(socket: TcpStream, session: Box<Connection>, scratch: Scratch) -> TlsStream {
        TlsStream::of(Secured { socket, session }, scratch)
    }

    /// Goes on with a connection that was taken out of another stream, perhaps in another thread.
    pub(crate) fn of(secured: Secured, scratch: Scratch) -> TlsStream {
        let mut stream =
            TlsStream { secured, scratch, decrypted: 0, undecrypted: Vec::new(), has_ended: false, owed: 0 };
        // Bytes that arrived with the end of the handshake. An error is returned again by the first read.
        let _ = stream.decrypt();
        stream
    }

    /// The socket and the session, to be used in another thread. `None` while there are bytes that the session has not taken.
    pub(crate) fn into_secured(self) -> Option<Secured> {
        (self.undecrypted.is_empty() && self.owed == 0).then_some(self.secured)
    }

    /// The certificate that the other side presented, with its intermediate certificates.
    pub(crate) fn shown(&self) -> &[CertificateDer<'static>] {
        self.secured.session.peer_certificates().unwrap_or_default()
    }

    /// Announces that nothing more follows. What the other side still sends is read.
    pub(crate) fn end_writing(&mut self) {
        self.secured.session.send_close_notify();
        // It is sent now, or else when this is dropped.
        let _ = self.send();
    }

    /// Decrypts the whole records that the session has.
    fn decrypt(&mut self) -> io::Result<()> {
        match self.secured.session.process_new_packets() {
            Ok(state) => {
                self.decrypted = state.plaintext_bytes_to_read();
                self.has_ended |= state.peer_has_closed();
                Ok(())
            }
            Err(error) => {
                // The alert tells the other side why.
                let _ = self.send();
                Err(io::Error::new(io::ErrorKind::InvalidData, error))
            }
        }
    }

    /// Moves decrypted bytes into `buffer`. Returns how many.
    fn take(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.decrypted == 0 {
            return Ok(0);
        }
        let wanted = self.decrypted.min(buffer.len());
        self.secured.session.reader().read_exact(&mut buffer[..wanted])?;
        self.decrypted -= wanted;
        Ok(wanted)
    }

    /// Decrypts `bytes` into `buffer`, as far as there is room. Returns how many bytes of both were used.
    fn decrypt_into(&mut self, bytes: &[u8], buffer: &mut [u8]) -> io::Result<(usize, usize)> {
        let (mut used, mut filled) = (0, 0);
        while used < bytes.len() && filled < buffer.len() {
            match self.secured.session.read_tls(&mut &bytes[used..])? {
                // Bytes after the other side's close_notify do not count.
                0 => used = bytes.len(),
                count => used += count,
            }
            self.decrypt()?;
            filled += self.take(&mut buffer[filled..])?;
        }
        Ok((used, filled))
    }

    fn send(&mut self) -> io::Result<bool> {
        self.secured.send()
    }

    fn read_more(&mut self, buffer: &mut [u8], filled: &mut usize) -> io::Result<()> {
        if !self.undecrypted.is_empty() {
            let bytes = std::mem::take(&mut self.undecrypted);
            let (used, count) = self.decrypt_into(&bytes, &mut buffer[*filled..])?;
            *filled += count;
            self.undecrypted.extend_from_slice(&bytes[used..]);
        }
        let scratch = Rc::clone(&self.scratch);
        let mut scratch = scratch.borrow_mut();
        while *filled < buffer.len() && !self.has_ended {
            let wanted = (buffer.len() - *filled).max(READ_BYTES_MIN).min(scratch.len());
            let count = match self.secured.socket.read(&mut scratch[..wanted]) {
                Ok(0) => {
                    self.has_ended = true;
                    break;
                }
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let (used, taken) = self.decrypt_into(&scratch[..count], &mut buffer[*filled..])?;
            *filled += taken;
            self.undecrypted.extend_from_slice(&scratch[used..count]);
            if count < wanted {
                // The socket is empty. If it has also ended, that has an event of its own.
                break;
            }
        }
        Ok(())
    }
}

impl Read for TlsStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = self.take(buffer)?;
        let more = if filled < buffer.len() { self.read_more(buffer, &mut filled) } else { Ok(()) };
        if self.secured.session.wants_write() {
            // An answer to the other side's new keys, for example. What is not sent now is sent with the next reply.
            let _ = self.send();
        }
        match more {
            _ if filled > 0 => Ok(filled),
            Ok(()) if self.has_ended || buffer.is_empty() => Ok(0),
            Ok(()) => Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => Err(error),
        }
    }
}

impl Write for TlsStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    /// Encrypted bytes cannot be taken back. So bytes are reported as written only when they have been sent: after a
    /// write that finds the socket full, the next one must begin with the same bytes, which are not encrypted again.
    fn write_vectored(&mut self, given: &[IoSlice<'_>]) -> io::Result<usize> {
        assert!(given.len() <= PARTS, "a write has a few parts");
        if !self.send()? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut parts = [IoSlice::new(&[]); PARTS];
        parts[..given.len()].copy_from_slice(given);
        let mut parts = &mut parts[..given.len()];
        let length: usize = parts.iter().map(|part| part.len()).sum();
        assert!(self.owed <= length, "a write begins with the bytes of the one before that have not left");
        let mut written = std::mem::take(&mut self.owed);
        IoSlice::advance_slices(&mut parts, written);
        while written < length {
            let count = match &*parts {
                [part] => self.secured.session.writer().write(part)?,
                parts => self.secured.session.writer().write_vectored(parts)?,
            };
            if !self.send()? {
                self.owed = count;
                break;
            }
            IoSlice::advance_slices(&mut parts, count);
            written += count;
        }
        match written {
            0 if length > 0 => Err(io::ErrorKind::WouldBlock.into()),
            written => Ok(written),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Secured {
    /// Writes what is encrypted. Returns false if the socket is full.
    fn send(&mut self) -> io::Result<bool> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut self.socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

impl Drop for Secured {
    fn drop(&mut self) {
        // A courtesy: replies have lengths of their own, so a truncated one is noticed anyway.
        self.session.send_close_notify();
        let _ = self.send();
    }
}
