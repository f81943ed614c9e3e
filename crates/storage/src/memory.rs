//! The simplest correct disk: files in memory, for tests and examples that just need a disk.

use std::collections::BTreeMap;

use crate::disk::{Cause, Disk, DiskError, Verb};

/// Files in memory. Everything is safe at once. The only failures are operations on a file that does not exist, and a
/// lack of room after [`set_full`](MemoryDisk::set_full).
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk {
    files: BTreeMap<String, Vec<u8>>,
    /// The most bytes that all files together may have.
    capacity: Option<usize>,
}

impl MemoryDisk {
    /// Creates a disk without files.
    pub fn new() -> MemoryDisk {
        MemoryDisk::default()
    }

    /// Limits the disk to the bytes that its files have now, or removes the limit.
    pub fn set_full(&mut self, is_full: bool) {
        self.capacity = is_full.then(|| self.used_bytes());
    }

    fn used_bytes(&self) -> usize {
        self.files.values().map(Vec::len).sum()
    }

    fn check_room(&self, verb: Verb, file: &str, bytes: usize) -> Result<(), DiskError> {
        if bytes > 0 && self.capacity.is_some_and(|capacity| self.used_bytes() + bytes > capacity) {
            return Err(DiskError { verb, file: file.to_owned(), cause: Cause::Full });
        }
        Ok(())
    }

    fn file(&mut self, verb: Verb, name: &str) -> Result<&mut Vec<u8>, DiskError> {
        self.files.get_mut(name).ok_or_else(|| missing(verb, name))
    }
}

fn missing(verb: Verb, file: &str) -> DiskError {
    DiskError { verb, file: file.to_owned(), cause: Cause::Missing }
}

fn place(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

impl Disk for MemoryDisk {
    fn list(&mut self) -> Result<Vec<String>, DiskError> {
        Ok(self.files.keys().cloned().collect())
    }

    fn create(&mut self, file: &str, bytes: u64) -> Result<(), DiskError> {
        self.check_room(Verb::Create, file, place(bytes))?;
        self.files.insert(file.to_owned(), vec![0; place(bytes)]);
        Ok(())
    }

    fn write(&mut self, file: &str, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let end = place(offset) + bytes.len();
        let growth = end.saturating_sub(self.file(Verb::Write, file)?.len());
        self.check_room(Verb::Write, file, growth)?;
        let file = self.file(Verb::Write, file)?;
        if growth > 0 {
            file.resize(end, 0);
        }
        file[place(offset)..end].copy_from_slice(bytes);
        Ok(())
    }

    fn cut(&mut self, file: &str, bytes: u64) -> Result<(), DiskError> {
        self.file(Verb::Cut, file).map(|file| file.truncate(place(bytes)))
    }

    fn read(&mut self, file: &str, offset: u64, buffer: &mut [u8]) -> Result<usize, DiskError> {
        let bytes = self.file(Verb::Read, file)?.get(place(offset)..).unwrap_or_default();
        let length = bytes.len().min(buffer.len());
        buffer[..length].copy_from_slice(&bytes[..length]);
        Ok(length)
    }

    fn length(&mut self, file: &str) -> Result<u64, DiskError> {
        self.file(Verb::Measure, file).map(|bytes| bytes.len() as u64)
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        let bytes = self.files.remove(from).ok_or_else(|| missing(Verb::Rename, from))?;
        self.files.insert(to.to_owned(), bytes);
        Ok(())
    }

    fn remove(&mut self, file: &str) -> Result<(), DiskError> {
        self.files.remove(file);
        Ok(())
    }

    fn sync(&mut self, file: &str) -> Result<(), DiskError> {
        self.file(Verb::Sync, file).map(drop)
    }

    fn sync_folder(&mut self) -> Result<(), DiskError> {
        Ok(())
    }
}
