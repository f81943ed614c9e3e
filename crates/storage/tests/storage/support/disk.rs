//! A disk in memory that loses, tears, flips and refuses.
//!
//! Faults that it knows:
//! - power loss: of what was not synced, each sector of 512 bytes is the old one or any that was written
//!   since, each by itself; each change of the folder that was not synced has happened or not, in order or
//!   not;
//! - a failed sync: what it should have saved is lost, though it can still be read until the power goes, and
//!   no later sync saves it (as Linux's page cache does it);
//! - a sync saves nothing that was written after it was begun;
//! - no room beyond a capacity; any verb refused at a given operation; flipped bits and zeroed sectors.

use std::collections::BTreeMap;

use storage::{Cause, Disk, DiskError, Verb};

use super::random::Random;

const SECTOR: usize = 512;
const NONE: std::ops::Range<u64> = 0..0;

/// A sector as it became by one write.
#[derive(Clone, Debug)]
struct Unsafe {
    sequence: u64,
    sector: usize,
    image: [u8; SECTOR],
}

#[derive(Clone, Debug, Default)]
struct File {
    /// What a reader sees.
    seen: Vec<u8>,
    /// What is on the platter.
    safe: Vec<u8>,
    unsafe_sectors: Vec<Unsafe>,
}

impl File {
    fn write(&mut self, sequence: u64, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if self.seen.len() < end {
            self.seen.resize(end, 0);
        }
        self.seen[offset..end].copy_from_slice(bytes);
        for sector in offset / SECTOR..end.div_ceil(SECTOR) {
            let mut image = [0; SECTOR];
            let there = &self.seen[sector * SECTOR..self.seen.len().min((sector + 1) * SECTOR)];
            image[..there.len()].copy_from_slice(there);
            self.unsafe_sectors.push(Unsafe { sequence, sector, image });
        }
    }

    fn save(&mut self, sector: usize, image: &[u8; SECTOR]) {
        let start = sector * SECTOR;
        let end = (start + SECTOR).min(self.seen.len());
        if self.safe.len() < end {
            self.safe.resize(end, 0);
        }
        self.safe[start..end].copy_from_slice(&image[..end - start]);
    }

    fn lose_power(&mut self, survivors: Survivors, random: &mut Random) {
        let mut versions: BTreeMap<usize, Vec<[u8; SECTOR]>> = BTreeMap::new();
        for Unsafe { sector, image, .. } in std::mem::take(&mut self.unsafe_sectors) {
            versions.entry(sector).or_default().push(image);
        }
        for (sector, images) in versions {
            let chosen = match survivors {
                Survivors::Nothing => 0,
                Survivors::Everything => images.len(),
                Survivors::Random => random.below(images.len() as u64 + 1) as usize,
            };
            if chosen > 0 {
                self.save(sector, &images[chosen - 1]);
            }
        }
        self.seen.clone_from(&self.safe);
    }
}

#[derive(Clone, Debug)]
enum Change {
    Create(String, u64),
    /// Of this very file, whatever has the old name after a crash.
    Rename(String, String, u64),
    Remove(String),
}

/// What of the unsynced survives a power loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Survivors {
    Nothing,
    Everything,
    Random,
}

/// What happens at one operation, counted from 1.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// The power goes.
    Crash,
    /// The verb fails for this reason.
    Fail(Cause),
}

#[derive(Clone, Debug)]
pub(crate) struct FaultyDisk {
    files: BTreeMap<u64, File>,
    names: BTreeMap<String, u64>,
    safe_names: BTreeMap<String, u64>,
    changes: Vec<Change>,
    next_file: u64,
    sequence: u64,
    /// Writes with these numbers were made while the present sync ran.
    too_late: std::ops::Range<u64>,
    pub(crate) operations: u64,
    pub(crate) trouble: BTreeMap<u64, Trouble>,
    pub(crate) capacity: Option<u64>,
    is_off: bool,
    random: Random,
}

impl FaultyDisk {
    pub(crate) fn new(seed: u64) -> FaultyDisk {
        FaultyDisk {
            files: BTreeMap::new(),
            names: BTreeMap::new(),
            safe_names: BTreeMap::new(),
            changes: Vec::new(),
            next_file: 0,
            sequence: 0,
            too_late: NONE,
            operations: 0,
            trouble: BTreeMap::new(),
            capacity: None,
            is_off: false,
            random: Random::new(seed ^ 0xd15c),
        }
    }

    /// Trouble at the n-th operation from now.
    pub(crate) fn trouble_in(&mut self, operations: u64, trouble: Trouble) {
        self.trouble.insert(self.operations + operations, trouble);
    }

    pub(crate) fn is_off(&self) -> bool {
        self.is_off
    }

    /// The present moment, for [`since`](Self::since).
    pub(crate) fn moment(&self) -> u64 {
        self.sequence
    }

    /// Does something that was begun at `moment`: its syncs save nothing that was written since then by
    /// others.
    pub(crate) fn since<T>(&mut self, moment: u64, act: impl FnOnce(&mut FaultyDisk) -> T) -> T {
        self.too_late = moment + 1..self.sequence + 1;
        let result = act(self);
        self.too_late = NONE;
        result
    }

    /// The power goes and comes back.
    pub(crate) fn lose_power(&mut self, survivors: Survivors) {
        let mut names = std::mem::take(&mut self.safe_names);
        let count = self.changes.len() as u64;
        let ordered = self.random.percent(50);
        let prefix = self.random.below(count + 1);
        for (change, index) in std::mem::take(&mut self.changes).into_iter().zip(0..) {
            let survives = match survivors {
                Survivors::Nothing => false,
                Survivors::Everything => true,
                Survivors::Random if ordered => index < prefix,
                Survivors::Random => self.random.percent(50),
            };
            if survives {
                apply(&mut names, change);
            }
        }
        for file in self.files.values_mut() {
            file.lose_power(survivors, &mut self.random);
        }
        self.files.retain(|number, _| names.values().any(|named| named == number));
        self.safe_names.clone_from(&names);
        self.names = names;
        self.trouble.clear();
        self.is_off = false;
    }

    /// The names and bytes of all files.
    pub(crate) fn contents(&self) -> Vec<(String, Vec<u8>)> {
        self.names.iter().map(|(name, number)| (name.clone(), self.files[number].seen.clone())).collect()
    }

    /// Changes a file behind everybody's back.
    pub(crate) fn tamper(&mut self, file: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let file = self.files.get_mut(&self.names[file]).unwrap();
        assert!(file.unsafe_sectors.is_empty(), "tampering with what is not safe yet means nothing");
        change(&mut file.seen);
        file.safe.clone_from(&file.seen);
    }

    /// Puts a file there, safely.
    pub(crate) fn put(&mut self, name: &str, bytes: &[u8]) {
        self.create(name, 0).unwrap();
        self.write(name, 0, bytes).unwrap();
        self.sync(name).unwrap();
        self.sync_folder().unwrap();
    }

    /// Removes a file, safely.
    pub(crate) fn take(&mut self, name: &str) {
        self.remove(name).unwrap();
        self.sync_folder().unwrap();
    }

    /// Counts the operation. The error is given after it was begun, if it is one that leaves something
    /// behind.
    fn begin(&mut self, verb: Verb, file: &str) -> Result<(), DiskError> {
        let error = |cause| Err(DiskError { verb, file: file.to_owned(), cause });
        if self.is_off {
            return error(Cause::Failed("the power is off".to_owned()));
        }
        self.operations += 1;
        match self.trouble.remove(&self.operations) {
            Some(Trouble::Crash) => {
                self.is_off = true;
                error(Cause::Failed("the power went".to_owned()))
            }
            Some(Trouble::Fail(cause)) => error(cause),
            None => Ok(()),
        }
    }

    fn file(&mut self, verb: Verb, name: &str) -> Result<&mut File, DiskError> {
        let missing = || DiskError { verb, file: name.to_owned(), cause: Cause::Missing };
        let number = self.names.get(name).ok_or_else(missing)?;
        self.files.get_mut(number).ok_or_else(missing)
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.names.values().map(|number| self.files[number].seen.len() as u64).sum()
    }

    fn room(&self, verb: Verb, file: &str, bytes: u64) -> Result<(), DiskError> {
        match self.capacity {
            Some(capacity) if bytes > 0 && self.used_bytes() + bytes > capacity => {
                Err(DiskError { verb, file: file.to_owned(), cause: Cause::Full })
            }
            _ => Ok(()),
        }
    }

    fn change(&mut self, change: Change) {
        apply(&mut self.names, change.clone());
        self.changes.push(change);
    }
}

fn apply(names: &mut BTreeMap<String, u64>, change: Change) {
    match change {
        Change::Create(name, number) => {
            names.insert(name, number);
        }
        Change::Rename(from, to, number) => {
            names.remove(&from);
            names.insert(to, number);
        }
        Change::Remove(name) => {
            names.remove(&name);
        }
    }
}

impl Disk for FaultyDisk {
    fn list(&mut self) -> Result<Vec<String>, DiskError> {
        self.begin(Verb::List, ".")?;
        Ok(self.names.keys().cloned().collect())
    }

    fn create(&mut self, file: &str, bytes: u64) -> Result<(), DiskError> {
        let begun = self.begin(Verb::Create, file);
        if begun.is_err() && !self.is_off {
            return begun;
        }
        self.room(Verb::Create, file, bytes)?;
        let number = self.next_file;
        self.next_file += 1;
        self.sequence += 1;
        let mut made = File::default();
        made.write(self.sequence, 0, &vec![0; bytes as usize]);
        self.files.insert(number, made);
        self.change(Change::Create(file.to_owned(), number));
        begun
    }

    fn write(&mut self, file: &str, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let begun = self.begin(Verb::Write, file);
        let (offset, mut length) = (offset as usize, bytes.len());
        if begun.is_err() {
            // As far as it came: at pages' ends, as a kernel does it.
            length = self.random.below(length as u64 + 1) as usize;
            length = ((offset + length) / SECTOR * SECTOR).saturating_sub(offset).min(length);
        }
        let present = self.file(Verb::Write, file)?.seen.len();
        self.room(Verb::Write, file, (offset + length).saturating_sub(present) as u64)?;
        self.sequence += 1;
        let sequence = self.sequence;
        self.file(Verb::Write, file)?.write(sequence, offset, &bytes[..length]);
        begun
    }

    fn read(&mut self, file: &str, offset: u64, buffer: &mut [u8]) -> Result<usize, DiskError> {
        self.begin(Verb::Read, file)?;
        let bytes = self.file(Verb::Read, file)?.seen.get(offset as usize..).unwrap_or_default();
        let length = bytes.len().min(buffer.len());
        buffer[..length].copy_from_slice(&bytes[..length]);
        Ok(length)
    }

    fn length(&mut self, file: &str) -> Result<u64, DiskError> {
        self.begin(Verb::Measure, file)?;
        Ok(self.file(Verb::Measure, file)?.seen.len() as u64)
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        let begun = self.begin(Verb::Rename, from);
        if begun.is_ok() || self.is_off {
            self.file(Verb::Rename, from)?;
            self.change(Change::Rename(from.to_owned(), to.to_owned(), self.names[from]));
        }
        begun
    }

    fn remove(&mut self, file: &str) -> Result<(), DiskError> {
        let begun = self.begin(Verb::Remove, file);
        if begun.is_ok() || self.is_off {
            self.change(Change::Remove(file.to_owned()));
        }
        begun
    }

    fn sync(&mut self, file: &str) -> Result<(), DiskError> {
        let begun = self.begin(Verb::Sync, file);
        if self.is_off {
            return begun;
        }
        let too_late = self.too_late.clone();
        let file = self.file(Verb::Sync, file)?;
        let (later, covered) = std::mem::take(&mut file.unsafe_sectors)
            .into_iter()
            .partition(|s| too_late.contains(&s.sequence));
        file.unsafe_sectors = later;
        let covered: Vec<Unsafe> = covered;
        if begun.is_ok() {
            for Unsafe { sector, image, .. } in covered {
                file.save(sector, &image);
            }
        }
        begun
    }

    fn sync_folder(&mut self) -> Result<(), DiskError> {
        self.begin(Verb::SyncFolder, ".")?;
        self.changes.clear();
        self.safe_names.clone_from(&self.names);
        Ok(())
    }
}
