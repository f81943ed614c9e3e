//! A disk in memory that loses, tears, flips and refuses, for tests of the log and the simulator.
//!
//! It simulates these faults:
//! - power loss: each sector of 512 bytes that was not synced is independently the old one or any that was written
//!   since; a file has its old length or one that it has had since; each change of the folder that was not synced has
//!   happened or not, in order or not;
//! - a failed sync: what it should have saved is lost, though it can be read until the power fails, and no later sync
//!   saves it (like Linux's page cache);
//! - a sync saves nothing that was written after it began;
//! - no room beyond a capacity; any verb refused, at a given operation or the next time; bytes changed silently.
//!
//! What is safe is stored once. For a sector written since, the disk keeps its old contents, and the new ones once they
//! are overwritten, so that a write, a sync and a power loss cost no more than the bytes that are not safe.

use std::collections::{BTreeMap, BTreeSet};

use crate::disk::{Cause, Disk, DiskError, Verb};
use crate::format::SECTOR_BYTES;

type Image = [u8; SECTOR_BYTES];

const NONE: std::ops::Range<u64> = 0..0;

/// A small seeded generator (SplitMix64; Steele, Lea and Flood 2014): a seed gives the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates the generator of a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns the next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }

    /// Returns true with a probability of `parts` percent.
    pub fn percent(&mut self, parts: u64) -> bool {
        self.below(100) < parts
    }
}

/// A sector whose safe contents differ from what a reader sees, or from what will be safe.
#[derive(Clone, Debug)]
struct Sector {
    safe: Image,
    /// The sector's contents after each write since, with the write's number; those that a failed sync lost are removed.
    /// `None` stands for what a reader sees; only the newest contents can be that. Most sectors are written once between
    /// two syncs, so most contents are never copied.
    written: Vec<(u64, Option<Box<Image>>)>,
}

#[derive(Clone, Debug, Default)]
struct File {
    /// The bytes that a reader sees.
    seen: Vec<u8>,
    safe_length: usize,
    /// Its lengths since, with the writes' numbers.
    lengths: Vec<(u64, usize)>,
    /// Sectors that are not listed are safe with the contents that a reader sees.
    sectors: BTreeMap<usize, Box<Sector>>,
}

/// Returns a sector's contents in a file of these bytes. Those beyond its end are zeros.
fn image(seen: &[u8], sector: usize) -> Image {
    let mut image = [0; SECTOR_BYTES];
    let rest = seen.get(sector * SECTOR_BYTES..).unwrap_or_default();
    let present = &rest[..rest.len().min(SECTOR_BYTES)];
    image[..present.len()].copy_from_slice(present);
    image
}

impl Sector {
    /// Copies the newest contents before a reader sees others.
    fn keep_seen(&mut self, seen: &[u8], sector: usize) {
        if let Some((_, contents @ None)) = self.written.last_mut() {
            *contents = Some(Box::new(image(seen, sector)));
        }
    }
}

impl File {
    fn grow(&mut self, sequence: u64, length: usize) {
        if self.seen.len() < length {
            self.seen.resize(length, 0);
            self.lengths.push((sequence, length));
        }
    }

    /// What was beyond the new end is gone, whatever happens to the length.
    fn cut(&mut self, sequence: u64, length: usize) {
        if self.seen.len() > length {
            let last = length / SECTOR_BYTES;
            if let Some(sector) = self.sectors.get_mut(&last) {
                sector.keep_seen(&self.seen, last);
            }
            self.seen.truncate(length);
            self.lengths.push((sequence, length));
            self.sectors.retain(|number, _| number * SECTOR_BYTES < length);
        }
    }

    fn write(&mut self, sequence: u64, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        let sectors = offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES);
        for sector in sectors.clone() {
            let listed = self
                .sectors
                .entry(sector)
                .or_insert_with(|| Box::new(Sector { safe: image(&self.seen, sector), written: Vec::new() }));
            listed.keep_seen(&self.seen, sector);
        }
        self.grow(sequence, end);
        self.seen[offset..end].copy_from_slice(bytes);
        for sector in sectors {
            let listed = self.sectors.get_mut(&sector).expect("each sector that is written is listed");
            listed.written.push((sequence, None));
        }
    }

    /// Saves everything except what was written too late. If the sync fails, that is lost instead.
    fn sync(&mut self, too_late: &std::ops::Range<u64>, succeeds: bool) {
        let File { seen, safe_length, lengths, sectors } = self;
        let is_late = |sequence: u64| too_late.contains(&sequence);
        if succeeds {
            let given = lengths.iter().rev().find(|(sequence, _)| !is_late(*sequence));
            *safe_length = given.map_or(*safe_length, |(_, length)| *length);
        }
        lengths.retain(|(sequence, _)| is_late(*sequence));
        sectors.retain(|number, sector| {
            let saved = sector.written.iter_mut().rev().find(|(sequence, _)| !is_late(*sequence));
            let saved = saved.map(|(_, contents)| contents.take());
            sector.written.retain(|(sequence, _)| is_late(*sequence));
            let Some(saved) = saved.filter(|_| succeeds) else { return true };
            match saved {
                Some(contents) => sector.safe = *contents,
                None => assert!(
                    sector.written.is_empty(),
                    "only the newest contents are those that a reader sees"
                ),
            }
            // It may lie beyond a length that an earlier sync has lost.
            *safe_length = (*safe_length).max(((number + 1) * SECTOR_BYTES).min(seen.len()));
            !sector.written.is_empty()
        });
    }

    fn lose_power(&mut self, survivors: Survivors, random: &mut Random) {
        let lengths = std::mem::take(&mut self.lengths);
        let known = survivors.choose(lengths.len(), random);
        let mut length = lengths[..known].last().map_or(self.safe_length, |(_, length)| *length);
        if let Some((_, next)) = lengths.get(known).filter(|_| survivors == Survivors::Random)
            && *next > length
        {
            // A long write, or filling with zeros, was interrupted.
            let sectors = random.below((next - length).div_ceil(SECTOR_BYTES) as u64) as usize;
            length = ((length / SECTOR_BYTES + sectors) * SECTOR_BYTES).clamp(length, *next);
        }
        for (number, sector) in std::mem::take(&mut self.sectors) {
            let Sector { safe, written } = *sector;
            let image = match survivors.choose(written.len(), random) {
                0 => safe,
                chosen => match &written[chosen - 1].1 {
                    Some(contents) => **contents,
                    None => continue,
                },
            };
            let start = number * SECTOR_BYTES;
            let end = (start + SECTOR_BYTES).min(self.seen.len());
            if start < end {
                self.seen[start..end].copy_from_slice(&image[..end - start]);
            }
        }
        self.seen.resize(length, 0);
        self.safe_length = length;
    }
}

#[derive(Clone, Debug)]
enum Change {
    Create(String, u64),
    /// Applies to the file with this number, whatever file has the old name after a crash.
    Rename(String, String, u64),
    Remove(String),
}

impl Change {
    fn apply(self, names: &mut BTreeMap<String, u64>) {
        match self {
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
}

/// How much of what was not synced survives a power loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survivors {
    /// Nothing of it.
    Nothing,
    /// All of it.
    Everything,
    /// Each sector, length and change by itself.
    Random,
}

impl Survivors {
    /// Returns how many of `versions` versions have reached the disk; they reach it in order.
    fn choose(self, versions: usize, random: &mut Random) -> usize {
        match self {
            Survivors::Nothing => 0,
            Survivors::Everything => versions,
            Survivors::Random if versions == 0 => 0,
            Survivors::Random => random.below(versions as u64 + 1) as usize,
        }
    }
}

/// What happens at an operation.
#[derive(Clone, Debug)]
pub enum Trouble {
    /// The power fails: nothing works before [`SimulatedDisk::lose_power`].
    Crash,
    /// The verb fails for this reason.
    Fail(Cause),
}

/// The files of one folder, on a disk that fails on demand.
#[derive(Clone, Debug)]
pub struct SimulatedDisk {
    files: BTreeMap<u64, File>,
    names: BTreeMap<String, u64>,
    safe_names: BTreeMap<String, u64>,
    changes: Vec<Change>,
    next_file: u64,
    sequence: u64,
    /// The numbers of the writes that were made while the present sync ran.
    too_late: std::ops::Range<u64>,
    /// The number of operations so far.
    pub operations: u64,
    /// The trouble for each operation, counted from 1.
    pub trouble: BTreeMap<u64, Trouble>,
    /// The cause with which the next operation of a kind is refused.
    pub refusal: Option<(Verb, Cause)>,
    /// The most bytes that all files together may have; None means no limit.
    pub capacity: Option<u64>,
    is_off: bool,
    random: Random,
}

impl SimulatedDisk {
    /// Creates a disk without files. The seed decides what survives a power loss, and how much of a failed write is
    /// done.
    pub fn new(seed: u64) -> SimulatedDisk {
        SimulatedDisk {
            files: BTreeMap::new(),
            names: BTreeMap::new(),
            safe_names: BTreeMap::new(),
            changes: Vec::new(),
            next_file: 0,
            sequence: 0,
            too_late: NONE,
            operations: 0,
            trouble: BTreeMap::new(),
            refusal: None,
            capacity: None,
            is_off: false,
            random: Random::new(seed ^ 0xd15c),
        }
    }

    /// Plants trouble at the n-th operation from now.
    pub fn trouble_in(&mut self, operations: u64, trouble: Trouble) {
        self.trouble.insert(self.operations + operations, trouble);
    }

    /// Whether the power failed at an operation, and has not returned yet.
    pub fn is_off(&self) -> bool {
        self.is_off
    }

    /// The present moment, for [`since`](Self::since).
    pub fn moment(&self) -> u64 {
        self.sequence
    }

    /// Runs something that was begun at `moment`: its syncs save nothing that was written by others since then.
    pub fn since<T>(&mut self, moment: u64, act: impl FnOnce(&mut SimulatedDisk) -> T) -> T {
        self.too_late = moment + 1..self.sequence + 1;
        let result = act(self);
        self.too_late = NONE;
        result
    }

    /// Simulates a power loss and the power's return.
    pub fn lose_power(&mut self, survivors: Survivors) {
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
                change.apply(&mut names);
            }
        }
        self.safe_names.clone_from(&names);
        self.names = names;
        self.forget_unnamed();
        for file in self.files.values_mut() {
            file.lose_power(survivors, &mut self.random);
        }
        self.trouble.clear();
        self.refusal = None;
        self.is_off = false;
    }

    /// The names and bytes of all files.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.names
            .iter()
            .filter_map(|(name, number)| Some((name.as_str(), self.files.get(number)?.seen.as_slice())))
    }

    /// Whether no power loss can revert this byte of a file.
    pub fn is_safe(&self, file: &str, offset: u64) -> bool {
        let number = self.names.get(file).filter(|number| self.safe_names.get(file) == Some(number));
        number.and_then(|number| self.files.get(number)).is_some_and(|file| {
            let offset = place(offset);
            offset < file.safe_length && !file.sectors.contains_key(&(offset / SECTOR_BYTES))
        })
    }

    /// Changes a file silently. Bytes that were safe are safe with their new contents.
    pub fn tamper(&mut self, file: &str, change: impl FnOnce(&mut Vec<u8>)) {
        if let Some(file) = self.names.get(file).and_then(|number| self.files.get_mut(number)) {
            for (number, sector) in &mut file.sectors {
                sector.keep_seen(&file.seen, *number);
            }
            change(&mut file.seen);
            file.safe_length = file.seen.len();
            file.lengths.clear();
        }
    }

    /// The number of bytes of all files.
    pub fn used_bytes(&self) -> u64 {
        self.files().map(|(_, bytes)| bytes.len() as u64).sum()
    }

    /// Counts the operation. Errors that leave something behind are returned only after the operation has begun.
    fn begin(&mut self, verb: Verb, file: &str) -> Result<(), DiskError> {
        let error = |cause| Err(DiskError { verb, file: file.to_owned(), cause });
        if self.is_off {
            return error(Cause::Failed("the power is off".to_owned()));
        }
        self.operations += 1;
        match self.trouble.remove(&self.operations) {
            Some(Trouble::Crash) => {
                self.is_off = true;
                return error(Cause::Failed("the power went".to_owned()));
            }
            Some(Trouble::Fail(cause)) => return error(cause),
            None => {}
        }
        match self.refusal.take_if(|(refused, _)| *refused == verb) {
            Some((_, cause)) => error(cause),
            None => Ok(()),
        }
    }

    fn file(&mut self, verb: Verb, name: &str) -> Result<&mut File, DiskError> {
        let file = self.names.get(name).and_then(|number| self.files.get_mut(number));
        file.ok_or_else(|| DiskError { verb, file: name.to_owned(), cause: Cause::Missing })
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
        change.clone().apply(&mut self.names);
        self.changes.push(change);
    }

    /// Drops files that have no name and cannot get one back.
    fn forget_unnamed(&mut self) {
        let named: BTreeSet<u64> = self.names.values().copied().collect();
        self.files.retain(|number, _| named.contains(number));
    }
}

fn place(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

impl Disk for SimulatedDisk {
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
        made.grow(self.sequence, place(bytes));
        self.files.insert(number, made);
        self.change(Change::Create(file.to_owned(), number));
        begun
    }

    fn write(&mut self, file: &str, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let begun = self.begin(Verb::Write, file);
        let (offset, mut length) = (place(offset), bytes.len());
        if begun.is_err() {
            // Only whole sectors of it were written.
            length = self.random.below(length as u64 + 1) as usize;
            length = ((offset + length) / SECTOR_BYTES * SECTOR_BYTES).saturating_sub(offset).min(length);
        }
        let present = self.file(Verb::Write, file)?.seen.len();
        self.room(Verb::Write, file, (offset + length).saturating_sub(present) as u64)?;
        self.sequence += 1;
        let sequence = self.sequence;
        self.file(Verb::Write, file)?.write(sequence, offset, &bytes[..length]);
        begun
    }

    fn cut(&mut self, file: &str, bytes: u64) -> Result<(), DiskError> {
        let begun = self.begin(Verb::Cut, file);
        if begun.is_ok() || self.is_off {
            self.sequence += 1;
            let sequence = self.sequence;
            self.file(Verb::Cut, file)?.cut(sequence, place(bytes));
        }
        begun
    }

    fn read(&mut self, file: &str, offset: u64, buffer: &mut [u8]) -> Result<usize, DiskError> {
        self.begin(Verb::Read, file)?;
        let bytes = self.file(Verb::Read, file)?.seen.get(place(offset)..).unwrap_or_default();
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
        if !self.is_off {
            let too_late = self.too_late.clone();
            self.file(Verb::Sync, file)?.sync(&too_late, begun.is_ok());
        }
        begun
    }

    fn sync_folder(&mut self) -> Result<(), DiskError> {
        self.begin(Verb::SyncFolder, ".")?;
        if !self.changes.is_empty() {
            self.changes.clear();
            self.safe_names.clone_from(&self.names);
            self.forget_unnamed();
        }
        Ok(())
    }
}
