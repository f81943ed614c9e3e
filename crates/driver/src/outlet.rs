//! How much of the output a socket has taken.

use std::io::{self, IoSlice, Write};

/// How much of a buffer a socket has taken, while another part of the program appends to it.
#[derive(Debug, Default)]
pub struct Outlet {
    /// Bytes at the front that are written.
    written: usize,
    /// The socket had no room. An event reports when it has room again.
    pub is_blocked: bool,
}

impl Outlet {
    /// Writes as much as the socket takes and removes it from `bytes`. Returns the number of bytes written.
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

    /// Writes `bytes` and, after them, `behind`, in one call of the system where possible. Returns how many bytes were
    /// written of `bytes`, which are removed, and how many of `behind`, which are not.
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

    /// Calls `write` once, for output of `length` bytes. Returns how many of them the socket has taken.
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
            // Only once half of it is written, so that a slow reader's long output is not moved for every small piece.
            bytes.drain(..self.written);
            self.written = 0;
        }
    }
}
