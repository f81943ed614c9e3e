//! Startup: [`open`] finds the files, the node loads its snapshots, [`Opening::replay`] replays the entries
//! above them and returns the [`Log`], ready for more.

use std::collections::BTreeSet;

use crate::disk::{Cause, Disk, DiskError};
use crate::error::{Damage, StorageError};
use crate::format::manifest::{MANIFEST_BYTES_MAX, Manifest};
use crate::format::sector::{BLOCK_PAYLOAD_BYTES, Sectors, place};
use crate::format::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::format::{
    Entry, Identity, MANIFEST_FILE, MANIFEST_NEW_FILE, is_ours, is_zero, segment_file, snapshot_file,
};
use crate::log::snapshot::SnapshotReader;
use crate::log::upkeep::{replace_manifest, run, write_manifest};
use crate::log::{Log, Options};
use crate::planted::Fault;
use crate::replay::{READ_BYTES, Window, scan};
use crate::reserve::{Kept, Reserve};
use crate::tail::{Torn, settle};
use crate::work::Step;
use crate::{Group, Position};

/// A log whose files are all present, before its entries are read.
#[derive(Debug)]
pub struct Opening {
    options: Options,
    manifest: Manifest,
    is_new: bool,
}

/// The result of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// The number of entries replayed.
    pub entries: u64,
    /// The length of the log in bytes.
    pub bytes: u64,
    /// The tail that was cut off, if there was one. It had not been reported durable.
    pub torn: Option<Torn>,
}

/// Opens the log in a folder, or creates one in a folder that has none.
///
/// Other files in the folder are left alone. No other process may use the folder.
///
/// # Errors
/// [`StorageError`]: the disk failed, or the files cannot be used.
pub fn open<D: Disk>(disk: &mut D, options: Options) -> Result<Opening, StorageError> {
    let files: BTreeSet<String> = disk.list()?.into_iter().filter(|file| is_ours(file)).collect();
    let missing = |file: &str| StorageError::damaged(file, 0, Damage::Missing);
    let is_new = !files.contains(MANIFEST_FILE);
    if is_new {
        if !was_never_used(disk, &files)? {
            return Err(missing(MANIFEST_FILE));
        }
        create(disk, &options)?;
    }
    let manifest = read_manifest(disk)?;
    let ours = Identity { log: manifest.identity.log, ..options.identity };
    if manifest.identity != ours {
        let (file, found) = (MANIFEST_FILE.to_owned(), manifest.identity);
        return Err(StorageError::Foreign { file, found, expected: ours });
    }
    let opening = Opening { options, manifest, is_new };
    for number in opening.manifest.first_segment..opening.manifest.next_segment {
        let file = segment_file(number);
        if !is_new && !files.contains(&file) {
            return Err(missing(&file));
        }
    }
    for mut snapshot in opening.snapshots() {
        snapshot.check_header(disk)?;
    }
    Ok(opening)
}

/// Whether creating the log was never begun here, or not finished: then nothing can have been written to it.
fn was_never_used<D: Disk>(disk: &mut D, files: &BTreeSet<String>) -> Result<bool, StorageError> {
    let first = segment_file(0);
    if files.iter().any(|file| *file != first && file != MANIFEST_NEW_FILE) {
        return Ok(false);
    }
    if !files.contains(&first) {
        return Ok(true);
    }
    // The identity of such a log is not known: nothing in it counts as old.
    let mut window = Window::open(disk, 0, 0)?;
    let mut offset = SEGMENT_HEADER_BYTES;
    while offset < window.length {
        let bytes = window.get(disk, offset, READ_BYTES)?;
        if bytes.is_empty() || !is_zero(bytes) {
            return Ok(bytes.is_empty());
        }
        offset += bytes.len() as u64;
    }
    Ok(true)
}

/// Creates the files of a log. The manifest comes last: until it exists, there is no log.
fn create<D: Disk>(disk: &mut D, options: &Options) -> Result<(), DiskError> {
    let file = segment_file(0);
    let mut header = Vec::new();
    let sectors = Sectors { salt: options.identity.log, number: 0 };
    sectors.write(&SegmentHeader { number: 0, first: 0, durable: 0 }.encode(&options.identity), &mut header);
    let mut steps = vec![
        Step::Create { file: file.clone(), bytes: options.segment_bytes },
        Step::Write { file: file.clone(), offset: 0, bytes: header },
        Step::Sync { file },
        Step::SyncFolder,
    ];
    let manifest = Manifest { identity: options.identity, next_segment: 1, ..Manifest::default() };
    steps.extend(replace_manifest(&manifest, None));
    run(disk, options.planted, steps)
}

fn read_manifest<D: Disk>(disk: &mut D) -> Result<Manifest, StorageError> {
    let length = disk.length(MANIFEST_FILE)?;
    if length > MANIFEST_BYTES_MAX {
        let damage = Damage::Length { found: length, expected: MANIFEST_BYTES_MAX };
        return Err(StorageError::damaged(MANIFEST_FILE, 0, damage));
    }
    let mut bytes = vec![0; length as usize];
    let read = disk.read(MANIFEST_FILE, 0, &mut bytes)?;
    Manifest::decode(&bytes[..read])
}

impl Opening {
    /// Whether there was no log: this node has no memory of anything before.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// The identity of the log.
    pub fn identity(&self) -> Identity {
        self.manifest.identity
    }

    /// How often the log was opened before.
    pub fn openings(&self) -> u64 {
        self.manifest.openings
    }

    /// Readers of the snapshots, which cover the entries that [`replay`](Self::replay) leaves out.
    pub fn snapshots(&self) -> Vec<SnapshotReader> {
        let Manifest { identity, floors, .. } = &self.manifest;
        floors.iter().filter_map(|(group, floor)| SnapshotReader::new(*identity, *group, floor)).collect()
    }

    /// A reader of the group's snapshot, if there is one.
    pub fn snapshot(&self, group: Group) -> Option<SnapshotReader> {
        SnapshotReader::new(self.identity(), group, self.manifest.floors.get(&group)?)
    }

    /// Passes every entry that no snapshot covers to `each`, in the order in which they were appended, and
    /// returns the log, durable up to its end.
    ///
    /// # Errors
    /// [`StorageError`]: the disk failed, or damage. Then the entries passed on must be discarded.
    pub fn replay<D: Disk>(
        self,
        disk: &mut D,
        each: impl FnMut(Entry<'_>),
    ) -> Result<(Log, Replayed), StorageError> {
        let Opening { options, mut manifest, .. } = self;
        let found = scan(disk, &manifest, options.planted, each)?;
        let torn = settle(disk, &mut manifest, &found, options.planted)?;
        let is_whole = found.end >= manifest.durable || options.planted.has(Fault::LossNotNoticed);
        assert!(is_whole, "a log that ends at {} was durable up to {}", found.end, manifest.durable);
        manifest.openings += 1;
        manifest.durable = found.end;
        manifest.clearing = false;
        // Written again though little in it has changed: the folder's sync may have failed in an earlier
        // incarnation.
        write_manifest(disk, options.planted, &manifest)?;
        let reserve = find_reserve(disk, &options)?;
        remove_others(disk, &manifest, &reserve)?;
        let last = found.segments.back().map_or(manifest.first_segment, |segment| segment.number);
        let spares = (last + 1..manifest.next_segment).collect();
        let end: Position = found.end;
        let replayed = Replayed { entries: found.entries, bytes: end - manifest.start, torn };
        let lead = read_lead(disk, manifest.identity.log, last, found.offset)?;
        let reserve = Reserve::new(reserve);
        let log = Log::new(options, manifest, found.segments, spares, found.extents, reserve, (end, lead));
        Ok((log, replayed))
    }
}

/// Reads the part of the log that is in its last block.
fn read_lead<D: Disk>(disk: &mut D, salt: u64, number: u64, end: u64) -> Result<Vec<u8>, StorageError> {
    let length = (end % BLOCK_PAYLOAD_BYTES as u64) as usize;
    let start = end - length as u64;
    let lead = Window::open(disk, salt, number)?.get(disk, start, length)?.to_vec();
    if lead.len() < length {
        let damage = Damage::Length { found: place(start + lead.len() as u64), expected: place(end) };
        return Err(StorageError::damaged(segment_file(number), place(start), damage));
    }
    Ok(lead)
}

/// Finds the files of the reserve that are present in full length.
fn find_reserve<D: Disk>(disk: &mut D, options: &Options) -> Result<Vec<Kept>, DiskError> {
    let mut found = Vec::new();
    for kept in Kept::ALL.into_iter().filter(|_| options.has_reserve) {
        match disk.length(&kept.file()) {
            Ok(length) if length >= kept.bytes(options.segment_bytes) => found.push(kept),
            Ok(_) | Err(DiskError { cause: Cause::Missing, .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Removes what an interrupted piece of upkeep left: files that the manifest does not name, not yet or no
/// longer.
fn remove_others<D: Disk>(disk: &mut D, manifest: &Manifest, reserve: &[Kept]) -> Result<(), DiskError> {
    let segments = (manifest.first_segment..manifest.next_segment).map(segment_file);
    let snapshots = manifest.floors.iter().filter_map(|(group, floor)| Some((*group, floor.snapshot?)));
    let snapshots = snapshots.map(|(group, place)| snapshot_file(group, place.number));
    let named = segments.chain(snapshots).chain([MANIFEST_FILE.to_owned()]);
    let named: BTreeSet<String> = named.chain(reserve.iter().map(|kept| kept.file())).collect();
    for file in disk.list()?.iter().filter(|file| is_ours(file) && !named.contains(*file)) {
        match disk.remove(file) {
            Err(DiskError { cause: Cause::Missing, .. }) => {}
            result => result?,
        }
    }
    Ok(())
}
