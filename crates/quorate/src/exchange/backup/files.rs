//! Files of a backup: written with checksums, and checked against them when read.
//!
//! The checksums are SHA-256, one for each block of [`BLOCK_BYTES`], so that the error for a damaged file names the
//! place.

use std::io::{self, Read, Write};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::store::NewFile;

/// The bytes of one checksummed block.
pub(super) const BLOCK_BYTES: u64 = 16 << 20;

/// The expected contents of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sums {
    /// Its length, in bytes.
    pub(super) bytes: u64,
    /// The SHA-256 of each block, in hexadecimal digits.
    pub(super) blocks: Vec<String>,
}

/// The SHA-256 of some bytes, in hexadecimal digits.
pub(super) fn sum_of(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Takes bytes, and computes the checksum of each block.
#[derive(Default)]
struct Summing {
    block: Sha256,
    sums: Sums,
}

impl Summing {
    /// Takes bytes; calls `ended` with the number and the checksum of each block that they complete.
    fn take<E>(
        &mut self,
        mut bytes: &[u8],
        mut ended: impl FnMut(usize, &str) -> Result<(), E>,
    ) -> Result<(), E> {
        while !bytes.is_empty() {
            let left = BLOCK_BYTES - self.sums.bytes % BLOCK_BYTES;
            let (now, rest) = bytes.split_at(bytes.len().min(left as usize));
            self.block.update(now);
            self.sums.bytes += now.len() as u64;
            bytes = rest;
            if now.len() as u64 == left {
                self.end_block(&mut ended)?;
            }
        }
        Ok(())
    }

    fn end_block<E>(&mut self, ended: &mut impl FnMut(usize, &str) -> Result<(), E>) -> Result<(), E> {
        let sum = hex(&std::mem::take(&mut self.block).finalize());
        let number = self.sums.blocks.len();
        ended(number, &sum)?;
        self.sums.blocks.push(sum);
        Ok(())
    }

    /// Ends the last block, if it is incomplete.
    fn end<E>(&mut self, mut ended: impl FnMut(usize, &str) -> Result<(), E>) -> Result<(), E> {
        match self.sums.bytes.is_multiple_of(BLOCK_BYTES) {
            true => Ok(()),
            false => self.end_block(&mut ended),
        }
    }
}

/// A new file that is being written.
pub(super) struct Writer {
    /// Its name in errors.
    name: String,
    file: Box<dyn NewFile>,
    summing: Summing,
}

impl Writer {
    pub(super) fn new(name: String, file: Box<dyn NewFile>) -> Writer {
        Writer { name, file, summing: Summing::default() }
    }

    /// Makes the whole file durable.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn end(mut self) -> Result<Sums> {
        self.summing.end(|_, _| Ok::<(), io::Error>(()))?;
        self.file.end().with_context(|| format!("cannot write {}", self.name))?;
        Ok(self.summing.sums)
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write_all(bytes);
        written
            .map_err(|error| io::Error::new(error.kind(), format!("cannot write {}: {error}", self.name)))?;
        self.summing.take(bytes, |_, _| Ok::<(), io::Error>(()))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Reads bytes and refuses them where they differ from what was written: an error of the kind `InvalidData`, which
/// names the place.
pub(super) struct Reader<R> {
    from: R,
    expected: Sums,
    summing: Summing,
    /// The last block was compared.
    is_ended: bool,
}

impl<R: Read> Reader<R> {
    pub(super) fn new(from: R, expected: Sums) -> Reader<R> {
        Reader { from, expected, summing: Summing::default(), is_ended: false }
    }

    /// Reads all that is left.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub(super) fn read_out(mut self) -> io::Result<()> {
        let mut buffer = vec![0; 1 << 20];
        while self.read(&mut buffer)? > 0 {}
        Ok(())
    }
}

impl<R: Read> Read for Reader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(into)?;
        let expected = &self.expected;
        let check = |number: usize, sum: &str| {
            if expected.blocks.get(number).is_some_and(|expected| expected == sum) {
                return Ok(());
            }
            let from = number as u64 * BLOCK_BYTES;
            let until = expected.bytes.min(from + BLOCK_BYTES);
            Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("damaged between byte {from} and byte {until}: the checksum differs"),
            ))
        };
        self.summing.take(&into[..count], check)?;
        if count == 0 && !into.is_empty() && !std::mem::replace(&mut self.is_ended, true) {
            if self.summing.sums.bytes != expected.bytes {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("{} bytes are there, and {} should be", self.summing.sums.bytes, expected.bytes),
                ));
            }
            self.summing.end(check)?;
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(bytes: &[u8]) -> Sums {
        let mut summing = Summing::default();
        summing.take(bytes, |_, _| Ok::<(), ()>(())).unwrap();
        summing.end(|_, _| Ok::<(), ()>(())).unwrap();
        summing.sums
    }

    fn read(bytes: &[u8], expected: &Sums) -> Result<(), String> {
        Reader::new(bytes, expected.clone()).read_out().map_err(|error| error.to_string())
    }

    #[test]
    fn the_end_may_be_read_more_than_once() {
        let mut reader = Reader::new(&b"abc"[..], sums(b"abc"));
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        assert_eq!((read.as_slice(), reader.read(&mut [0; 8]).unwrap()), (&b"abc"[..], 0));
    }

    #[test]
    fn a_change_of_any_byte_is_found_with_its_place() {
        let block = BLOCK_BYTES as usize;
        for length in [0, 1, block, block + 1, 2 * block] {
            let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + at / 251) as u8).collect();
            let expected = sums(&bytes);
            assert_eq!(expected.blocks.len(), length.div_ceil(block));
            assert_eq!(read(&bytes, &expected), Ok(()));
            for at in [0, length / 2, length.saturating_sub(1)] {
                let mut bytes = bytes.clone();
                let Some(byte) = bytes.get_mut(at) else { continue };
                *byte ^= 1;
                let from = at / block * block;
                let why = read(&bytes, &expected).unwrap_err();
                assert!(why.contains(&format!("between byte {from} and byte ")), "{why}");
                assert!(read(&bytes[..at], &expected).is_err());
            }
            assert!(read(&[&bytes[..], b"x"].concat(), &expected).is_err());
        }
    }
}
