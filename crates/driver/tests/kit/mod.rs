//! A client's connection and a clock in memory, for the tests and counts of drivers.

use driver::Socket;
use protocol::Now;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::rc::Rc;

/// The two directions of a client's connection.
#[derive(Default)]
pub(crate) struct Wire {
    pub(crate) sent: VecDeque<u8>,
    pub(crate) received: Vec<u8>,
}

pub(crate) struct End(pub(crate) Rc<RefCell<Wire>>);

impl Read for End {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.borrow_mut().sent.read(buffer) {
            Ok(0) => Err(io::ErrorKind::WouldBlock.into()),
            read => read,
        }
    }
}

impl Write for End {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().received.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Socket for End {
    fn address(&self) -> String {
        "127.0.0.1:50000".into()
    }
}

/// A clock that stands still within a turn.
#[derive(Clone, Copy)]
pub(crate) struct Clock(pub(crate) Now);

impl driver::Clock for Clock {
    fn now(&self) -> Now {
        self.0
    }
}
