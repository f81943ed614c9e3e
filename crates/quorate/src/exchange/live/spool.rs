//! Bytes of a server that were read and not consumed yet: first in memory, then in a file of bounded length.
//!
//! A replicating server keeps what its replica does not read in memory, and disconnects a replica for which that grows too
//! large. So its bytes are read as fast as they arrive, however slow the cluster is. Beyond the bound, reading stops.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};

/// Bytes of a chunk, which takes this much of the file whatever its length.
const CHUNK_BYTES: usize = 1 << 20;

/// Bytes that are kept in memory before chunks go to the file.
const MEMORY_BYTES: usize = 64 << 20;

enum Chunk {
    Memory(Vec<u8>),
    /// It is in this part of the file.
    File {
        part: u64,
        bytes: usize,
    },
}

struct State {
    chunks: VecDeque<Chunk>,
    memory_bytes: usize,
    /// Parts of the file that are not in use, and how many parts exist.
    free: Vec<u64>,
    parts: u64,
    pushed: u64,
    /// Why no more bytes will come.
    ended: Option<String>,
}

/// The bytes between the thread that reads from a server and the one that consumes them.
pub(super) struct Spool {
    file: File,
    parts_max: u64,
    state: Mutex<State>,
    changed: Condvar,
}

impl Spool {
    /// Makes an empty spool, whose file is in `folder` and takes at most `bytes_max` bytes there. The file has no
    /// name.
    ///
    /// # Errors
    /// No file can be created in the folder.
    pub(super) fn new(folder: &Path, bytes_max: u64) -> Result<Spool> {
        let cannot = || format!("no file can be made in {}", folder.display());
        let path = folder.join(format!("quorate-import-{}-{:p}", std::process::id(), &bytes_max));
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).open(&path).with_context(cannot)?;
        std::fs::remove_file(&path).with_context(cannot)?;
        let state = State {
            chunks: VecDeque::new(),
            memory_bytes: 0,
            free: Vec::new(),
            parts: 0,
            pushed: 0,
            ended: None,
        };
        Ok(Spool {
            file,
            parts_max: bytes_max / CHUNK_BYTES as u64,
            state: Mutex::new(state),
            changed: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds bytes, at most a chunk. Waits while there is no room.
    ///
    /// # Errors
    /// The file cannot be written, or the spool has ended.
    pub(super) fn push(&self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.lock();
        loop {
            if state.ended.is_some() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            if let Some(Chunk::Memory(last)) = state.chunks.back_mut()
                && last.len() + bytes.len() <= CHUNK_BYTES
            {
                last.extend_from_slice(bytes);
                break;
            }
            if state.memory_bytes + bytes.len() <= MEMORY_BYTES {
                state.chunks.push_back(Chunk::Memory(bytes.to_vec()));
                break;
            }
            let part = state.free.pop().or_else(|| {
                (state.parts < self.parts_max).then(|| {
                    state.parts += 1;
                    state.parts - 1
                })
            });
            let Some(part) = part else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            match state.chunks.pop_back() {
                // The last chunk, which is full, makes room in memory.
                Some(Chunk::Memory(full)) => {
                    self.file.write_all_at(&full, part * CHUNK_BYTES as u64)?;
                    state.memory_bytes -= full.len();
                    state.chunks.push_back(Chunk::File { part, bytes: full.len() });
                }
                other => {
                    state.free.push(part);
                    state.chunks.extend(other);
                }
            }
            state.chunks.push_back(Chunk::Memory(bytes.to_vec()));
            break;
        }
        state.memory_bytes += bytes.len();
        state.pushed += bytes.len() as u64;
        self.changed.notify_all();
        Ok(())
    }

    /// Ends the spool, for this reason. The bytes in it can still be read.
    pub(super) fn end(&self, why: &str) {
        self.lock().ended.get_or_insert_with(|| why.to_owned());
        self.changed.notify_all();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.lock().ended.is_some()
    }

    /// How many bytes were ever added.
    pub(super) fn pushed(&self) -> u64 {
        self.lock().pushed
    }

    /// Waits until more than this many bytes were added, the spool has ended, or `most` has passed.
    pub(super) fn wait(&self, bytes: u64, most: Duration) {
        let is_waiting = |state: &mut State| state.pushed <= bytes && state.ended.is_none();
        drop(self.changed.wait_timeout_while(self.lock(), most, is_waiting));
    }

    /// Takes the next chunk. Waits for it.
    fn take(&self) -> io::Result<Vec<u8>> {
        let mut state = self.lock();
        loop {
            match (state.chunks.pop_front(), &state.ended) {
                (Some(Chunk::Memory(bytes)), _) => {
                    state.memory_bytes -= bytes.len();
                    self.changed.notify_all();
                    return Ok(bytes);
                }
                (Some(Chunk::File { part, bytes }), _) => {
                    let mut read = vec![0; bytes];
                    self.file.read_exact_at(&mut read, part * CHUNK_BYTES as u64)?;
                    state.free.push(part);
                    self.changed.notify_all();
                    return Ok(read);
                }
                (None, Some(why)) => return Err(io::Error::other(why.clone())),
                (None, None) => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

/// Reads a spool. It must be the only reader.
pub(super) struct SpoolReader<'s> {
    spool: &'s Spool,
    chunk: Vec<u8>,
    at: usize,
    /// How many bytes were read.
    pub(super) taken: u64,
}

impl<'s> SpoolReader<'s> {
    pub(super) fn new(spool: &'s Spool) -> SpoolReader<'s> {
        SpoolReader { spool, chunk: Vec::new(), at: 0, taken: 0 }
    }
}

impl Read for SpoolReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        if self.at == self.chunk.len() {
            (self.chunk, self.at) = (self.spool.take()?, 0);
        }
        let count = out.len().min(self.chunk.len() - self.at);
        out[..count].copy_from_slice(&self.chunk[self.at..self.at + count]);
        self.at += count;
        self.taken += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_memory_and_file_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        // Less room than bytes: pushing has to wait.
        let spool = Spool::new(folder.path(), 8 << 20).unwrap();
        let bytes = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
        const ALL: u64 = 200 << 20;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut at, mut step) = (0, 1);
                while at < ALL {
                    step = (step * 7 + 1) % 300_000 + 1;
                    let some: Vec<u8> = (at..(at + step).min(ALL)).map(bytes).collect();
                    spool.push(&some).unwrap();
                    at += some.len() as u64;
                }
                spool.end("over");
            });
            // It fills up to its bound first.
            spool.wait(70 << 20, Duration::from_secs(20));
            let (mut reader, mut at, mut out) = (SpoolReader::new(&spool), 0, vec![0; 70_001]);
            loop {
                let count = match reader.read(&mut out) {
                    Ok(count) => count,
                    Err(error) => break assert_eq!(error.to_string(), "over"),
                };
                assert!(out[..count].iter().zip(at..).all(|(byte, at)| *byte == bytes(at)), "behind {at}");
                at += count as u64;
            }
            assert_eq!(at, ALL);
        });
        assert!(spool.lock().parts <= 8 && spool.lock().parts > 0);
    }
}
