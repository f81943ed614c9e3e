//! A client's connection at its node: bytes that have arrived and are unread, and bytes that the node has written.

use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::rc::Rc;
use wire::resp::Arguments;

/// Both directions of a connection.
#[derive(Debug)]
pub(crate) struct Pipe {
    arrived: Vec<u8>,
    /// How many bytes at the front have been read.
    read: usize,
    /// Whether the client has hung up.
    pub(crate) is_closed: bool,
    /// What the node has written and has not been sent to the client yet.
    pub(crate) written: Vec<u8>,
    /// How many bytes at the front an earlier turn left there: the beginning of a reply.
    pub(crate) left: usize,
    /// Room for this many more bytes.
    room: usize,
    /// Whether the node had more to write than there was room for.
    is_starved: bool,
}

/// The node's end; the world has the other one.
#[derive(Debug)]
pub(crate) struct ClientSocket(Rc<RefCell<Pipe>>);

impl Pipe {
    pub(crate) fn new(room: usize) -> Rc<RefCell<Pipe>> {
        Rc::new(RefCell::new(Pipe {
            arrived: Vec::new(),
            read: 0,
            is_closed: false,
            written: Vec::new(),
            left: 0,
            room,
            is_starved: false,
        }))
    }

    /// Delivers a request.
    pub(crate) fn push(&mut self, request: Arguments<'_>) {
        let length = |out: &mut Vec<u8>, mark: u8, length: usize| {
            out.push(mark);
            let _ = write!(out, "{length}\r\n");
        };
        length(&mut self.arrived, b'*', request.len());
        for argument in request.iter() {
            length(&mut self.arrived, b'$', argument.len());
            self.arrived.extend_from_slice(argument);
            self.arrived.extend_from_slice(b"\r\n");
        }
    }

    /// Delivers requests that are encoded already.
    pub(crate) fn push_encoded(&mut self, requests: &[u8]) {
        self.arrived.extend_from_slice(requests);
    }

    /// Whether there is something for the node to read.
    pub(crate) fn is_readable(&self) -> bool {
        self.is_closed || self.read < self.arrived.len()
    }

    /// Counts `bytes` that the client has read. Returns true if the node waits for room.
    pub(crate) fn make_room(&mut self, bytes: usize) -> bool {
        self.room = self.room.saturating_add(bytes);
        std::mem::take(&mut self.is_starved)
    }
}

impl ClientSocket {
    pub(crate) fn new(pipe: &Rc<RefCell<Pipe>>) -> ClientSocket {
        ClientSocket(Rc::clone(pipe))
    }
}

impl Read for ClientSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let pipe = &mut *self.0.borrow_mut();
        let rest = &pipe.arrived[pipe.read..];
        if rest.is_empty() {
            return if pipe.is_closed { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
        }
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        pipe.read += count;
        if pipe.read == pipe.arrived.len() {
            pipe.arrived.clear();
            pipe.read = 0;
        }
        Ok(count)
    }
}

impl Write for ClientSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let pipe = &mut *self.0.borrow_mut();
        if pipe.is_closed {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let mut count = 0;
        for part in parts {
            let taken = part.len().min(pipe.room);
            pipe.written.extend_from_slice(&part[..taken]);
            pipe.room -= taken;
            count += taken;
            pipe.is_starved |= taken < part.len();
        }
        if count == 0 && pipe.is_starved { Err(ErrorKind::WouldBlock.into()) } else { Ok(count) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl driver::Socket for ClientSocket {
    fn address(&self) -> String {
        "a simulated client".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::resp::ArgumentsBuffer;

    #[test]
    fn arrived_bytes_are_read_in_pieces_until_none_are_left() {
        let pipe = Pipe::new(usize::MAX);
        let mut socket = ClientSocket::new(&pipe);
        let request: ArgumentsBuffer = [&b"GET"[..], b"k"].into_iter().collect();
        pipe.borrow_mut().push(request.as_arguments());
        let (mut read, mut buffer) = (Vec::new(), [0; 7]);
        while let Ok(count) = socket.read(&mut buffer) {
            read.extend_from_slice(&buffer[..count]);
        }
        assert_eq!(read, b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
        assert_eq!(socket.read(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        pipe.borrow_mut().is_closed = true;
        assert_eq!(socket.read(&mut buffer).unwrap(), 0);
        assert_eq!(socket.write(b"late").unwrap_err().kind(), ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_full_pipe_takes_more_when_the_client_has_read() {
        let pipe = Pipe::new(5);
        let mut socket = ClientSocket::new(&pipe);
        assert_eq!(socket.write_vectored(&[IoSlice::new(b"abc"), IoSlice::new(b"defg")]).unwrap(), 5);
        assert_eq!(socket.write(b"fg").unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(pipe.borrow_mut().make_room(1), "the node waits");
        assert!(!pipe.borrow_mut().make_room(3), "it no longer waits");
        assert_eq!(socket.write(b"fg").unwrap(), 2);
        assert_eq!(pipe.borrow().written, b"abcdefg");
    }
}
