//! How far a socket has come with what is to be written.

use std::io::{self, IoSlice, Write};

/// How far a socket has come with output that another part of the program appends to.
#[derive(Debug, Default)]
pub struct Outlet {
    /// Bytes at the front that are written.
    written: usize,
    /// The socket had no room. An event tells when it has again.
    pub is_blocked: bool,
}

impl Outlet {
    /// Writes as much as the socket takes and removes it. Tells how much that was.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn write(&mut self, socket: &mut impl Write, bytes: &mut Vec<u8>) -> io::Result<usize> {
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
    pub fn write_with(
        &mut self,
        socket: &mut impl Write,
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
