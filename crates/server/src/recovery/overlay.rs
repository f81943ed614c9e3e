//! A folder that is read as if it could be written: changes stay in memory.

use std::collections::BTreeMap;

use storage::{Cause, Disk, DiskError, Verb};

/// A disk above another one, which is only read.
#[derive(Debug)]
pub(super) struct Overlay<D> {
    below: D,
    /// The files that were written, as they are now; `None` for those that were removed.
    changed: BTreeMap<String, Option<Vec<u8>>>,
}

impl<D: Disk> Overlay<D> {
    pub(super) fn new(below: D) -> Overlay<D> {
        Overlay { below, changed: BTreeMap::new() }
    }

    /// A file that is about to be changed.
    fn file(&mut self, verb: Verb, name: &str) -> Result<&mut Vec<u8>, DiskError> {
        if !self.changed.contains_key(name) {
            let mut bytes = vec![0; place(self.below.length(name)?)];
            let read = self.below.read(name, 0, &mut bytes)?;
            bytes.truncate(read);
            self.changed.insert(name.to_owned(), Some(bytes));
        }
        self.changed.get_mut(name).and_then(Option::as_mut).ok_or_else(|| missing(verb, name))
    }
}

fn missing(verb: Verb, file: &str) -> DiskError {
    DiskError { verb, file: file.to_owned(), cause: Cause::Missing }
}

fn place(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

impl<D: Disk> Disk for Overlay<D> {
    fn list(&mut self) -> Result<Vec<String>, DiskError> {
        let mut names = self.below.list()?;
        names.retain(|name| !self.changed.contains_key(name));
        let there = self.changed.iter().filter(|(_, bytes)| bytes.is_some());
        names.extend(there.map(|(name, _)| name.clone()));
        Ok(names)
    }

    fn create(&mut self, file: &str, bytes: u64) -> Result<(), DiskError> {
        self.changed.insert(file.to_owned(), Some(vec![0; place(bytes)]));
        Ok(())
    }

    fn write(&mut self, file: &str, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let (contents, start) = (self.file(Verb::Write, file)?, place(offset));
        let end = start + bytes.len();
        if contents.len() < end {
            contents.resize(end, 0);
        }
        contents[start..end].copy_from_slice(bytes);
        Ok(())
    }

    fn cut(&mut self, file: &str, bytes: u64) -> Result<(), DiskError> {
        self.file(Verb::Cut, file)?.truncate(place(bytes));
        Ok(())
    }

    fn read(&mut self, file: &str, offset: u64, buffer: &mut [u8]) -> Result<usize, DiskError> {
        match self.changed.get(file) {
            None => self.below.read(file, offset, buffer),
            Some(None) => Err(missing(Verb::Read, file)),
            Some(Some(bytes)) => {
                let there = bytes.get(place(offset)..).unwrap_or_default();
                let count = there.len().min(buffer.len());
                buffer[..count].copy_from_slice(&there[..count]);
                Ok(count)
            }
        }
    }

    fn length(&mut self, file: &str) -> Result<u64, DiskError> {
        match self.changed.get(file) {
            None => self.below.length(file),
            Some(None) => Err(missing(Verb::Measure, file)),
            Some(Some(bytes)) => Ok(bytes.len() as u64),
        }
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        let bytes = std::mem::take(self.file(Verb::Rename, from)?);
        self.changed.insert(from.to_owned(), None);
        self.changed.insert(to.to_owned(), Some(bytes));
        Ok(())
    }

    fn remove(&mut self, file: &str) -> Result<(), DiskError> {
        self.changed.insert(file.to_owned(), None);
        Ok(())
    }

    fn sync(&mut self, _: &str) -> Result<(), DiskError> {
        Ok(())
    }

    fn sync_folder(&mut self) -> Result<(), DiskError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use storage::MemoryDisk;

    #[test]
    fn writes_are_read_back_and_the_disk_below_stays_unchanged() {
        let mut below = MemoryDisk::new();
        for name in ["a", "b", "c"] {
            below.create(name, 2).unwrap();
            below.write(name, 0, name.as_bytes()).unwrap();
        }
        let mut disk = Overlay::new(below.clone());
        disk.write("a", 1, b"xyz").unwrap();
        disk.rename("b", "d").unwrap();
        disk.remove("c").unwrap();
        disk.create("e", 1).unwrap();
        disk.cut("d", 1).unwrap();
        let mut names = disk.list().unwrap();
        names.sort();
        assert_eq!(names, ["a", "d", "e"]);
        let mut bytes = [0; 4];
        assert_eq!((disk.read("a", 0, &mut bytes).unwrap(), &bytes), (4, b"axyz"));
        assert_eq!((disk.length("d").unwrap(), disk.length("e").unwrap()), (1, 1));
        assert_eq!(disk.length("b").unwrap_err().cause, Cause::Missing);
        assert_eq!(disk.read("c", 0, &mut bytes).unwrap_err().cause, Cause::Missing);
        let mut untouched = disk.below;
        assert_eq!(untouched.list().unwrap().len(), 3);
        assert_eq!((untouched.read("a", 0, &mut bytes).unwrap(), &bytes[..2]), (2, &b"a\0"[..]));
    }
}
