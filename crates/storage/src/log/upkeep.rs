//! What keeps a log going, beside the path of commands: making the next segment before it is needed, committing snapshots,
//! and removing what is no longer needed.
//!
//! All of it goes through the manifest, in an order that a crash may interrupt anywhere: first everything that the new
//! manifest names is made safe, then the manifest replaces the old one, then what it no longer names is removed.
//!
//! Upkeep never syncs a segment that is in use. A kernel reports a failed sync once: if the same file were synced from two
//! sides, one of them could report success though the other failed.

use std::collections::{BTreeMap, VecDeque};

use crate::disk::{Disk, DiskError, Verb};
use crate::error::StorageError;
use crate::format::manifest::{Floor, Manifest, SnapshotPlace};
use crate::format::{MANIFEST_FILE, MANIFEST_NEW_FILE, segment_file, snapshot_file};
use crate::log::snapshot::{NewFloor, Piece};
use crate::log::{Log, Segment};
use crate::planted::{Fault, Planted};
use crate::reserve::Kept;
use crate::work::{Lane, Step, Work};
use crate::{Group, Position};

/// Files of this length, or of a segment's length if that is less, are reused once they are not needed. Removing a large
/// file makes the file system free its blocks and inform the device, and every sync at that moment waits for it; and the
/// next file would need new blocks.
const REUSED_BYTES_MIN: u64 = 8 << 20;

/// A reused file is at most this many times as long as it needs to be. Cutting it frees blocks, too.
const LEFT_OVER_MAX: u64 = 2;

/// The most segments kept for reuse: a checkpoint frees many at once, and the log that follows needs them again.
fn reused_max(segment_bytes: u64) -> usize {
    const TOGETHER_BYTES: u64 = 384 << 20;
    (TOGETHER_BYTES / segment_bytes).clamp(6, 24) as usize
}

/// The result of a piece of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// [`Log::durable`] may have moved.
    Durable,
    /// There was no room for what the sync had to write. Nothing is lost; [`Log::retry`] tries again.
    SyncRefused(DiskError),
    /// The next segment is ready.
    SegmentReady,
    /// There is no room for another segment. The present one can still be filled; then [`Log::write`] returns this error and
    /// has lost nothing. Snapshots may free room; [`Log::retry`] tries again.
    SegmentRefused(DiskError),
    /// The group's snapshot is committed: a start begins with it, and the group does not need the log below its position.
    SnapshotTaken(Group, Position),
    /// There is no room. The snapshot is dropped, and everything is as before it.
    SnapshotRefused(Group, DiskError),
    /// The disk records that the group was dropped: a start finds nothing of it.
    Forgotten(Group),
    /// Files were removed, or a fact was recorded; nothing waits for this.
    Tidied,
    /// There was no room to record something; [`Log::retry`] tries again.
    Postponed(DiskError),
}

#[derive(Debug)]
enum Task {
    /// Commits a snapshot, or the end of a group.
    Raise(NewFloor),
    /// Makes the next segment, from a file that is no longer needed if there is one, or from the reserve's.
    Spare(u64, Option<String>),
    /// Writes a part of a snapshot; the first part into a file that is no longer needed if there is one, or the reserve's.
    Write(Piece, Option<String>),
    /// Makes a file of the reserve, from a segment that is no longer needed if there is one.
    Reserve(Kept, Option<String>),
    /// Writes a manifest that needs fewer segments, or records a higher durable position.
    Note,
    /// Removes a file that no manifest names.
    Remove,
}

#[derive(Debug)]
struct Running {
    task: Task,
    /// The manifest that applies when the task is done.
    manifest: Manifest,
}

/// Pending and running upkeep.
#[derive(Debug, Default)]
pub(crate) struct Upkeep {
    pub(crate) floors: VecDeque<NewFloor>,
    pub(crate) garbage: VecDeque<String>,
    /// Segments that no manifest names, to be reused as the next ones.
    used: Vec<String>,
    /// For groups with large snapshots, the file of the previous one: the next is written over it.
    used_snapshots: BTreeMap<Group, String>,
    note: bool,
    /// There was no room to record something: that waits for [`Log::retry`].
    pub(crate) is_postponed: bool,
    /// Parts of snapshots that are still to be written.
    pub(crate) pieces: VecDeque<Piece>,
    /// Snapshots that are not committed yet, for a part of which the disk had no room.
    pub(crate) without_room: BTreeMap<String, DiskError>,
    running: Option<Running>,
}

impl Log {
    /// Returns the next piece of upkeep, to run beside the loop; None when there is none, or while one is running. Call it
    /// every turn: it costs next to nothing.
    ///
    /// # Errors
    /// [`StorageError::Stopped`] after an earlier failure.
    pub fn begin_upkeep(&mut self) -> Result<Option<Work>, StorageError> {
        self.running()?;
        if self.upkeep.running.is_some() {
            return Ok(None);
        }
        let Some(mut task) = self.next_task() else { return Ok(None) };
        let (steps, manifest) = self.steps(&mut task);
        self.upkeep.running = Some(Running { task, manifest });
        Ok(Some(Work { lane: Lane::Upkeep, steps: planned(self.options.planted, steps) }))
    }

    /// Whether to begin a sync though no client waits for one: upkeep waits for a higher durable position, or so much is not
    /// durable that the next start would be slow.
    pub fn wants_sync(&self) -> bool {
        let floor = self.upkeep.floors.front().is_some_and(|new| new.floor.position > self.durable);
        floor || self.written.saturating_sub(self.durable) > self.options.segment_bytes
    }

    /// Records on the disk, by a piece of upkeep, up to which position the log is durable. Each batch records it for those
    /// before it, so this matters only for the last batches before an idle time: if they are lost or damaged later, a start
    /// can tell this from a write that a crash cut short. Call it when everything is durable and nothing was written for a
    /// while, and before an orderly exit.
    pub fn note_durable(&mut self) {
        self.upkeep.note = true;
    }

    /// Whether the disk records the present durable position.
    pub fn is_noted(&self) -> bool {
        self.noted >= self.durable
    }

    /// Whether a part of a snapshot is being written; the caller should hand over more only when that part is written.
    pub fn is_pacing_snapshot(&self) -> bool {
        let is_running = |running: &Running| matches!(running.task, Task::Write(..));
        !self.upkeep.pieces.is_empty() || self.upkeep.running.as_ref().is_some_and(is_running)
    }

    /// Drops the group: its entries up to now and its snapshot are no longer needed and will not be replayed.
    pub fn forget(&mut self, group: Group) {
        let floor = Floor { position: self.end(), snapshot: None };
        self.upkeep.floors.push_back(NewFloor { group, floor });
    }

    /// Handles the end of a piece of work, and returns its outcome.
    ///
    /// # Errors
    /// [`StorageError::Stopped`] when the work failed for any reason but lack of room, or the log had stopped before.
    pub fn finished(
        &mut self,
        work: Work,
        mut result: Result<(), DiskError>,
    ) -> Result<Outcome, StorageError> {
        if self.options.planted.has(Fault::SyncErrorIgnored) && work.lane == Lane::Sync {
            result = Ok(());
        }
        self.running()?;
        match work.lane {
            Lane::Sync => self.sync_finished(work, result),
            Lane::Upkeep => self.upkeep_finished(result),
        }
    }

    fn next_task(&mut self) -> Option<Task> {
        let is_full = self.full.is_some();
        let has_reserve = self.options.has_reserve;
        if is_full && !has_reserve {
            self.upkeep.garbage.append(&mut self.upkeep.used.drain(..).collect());
        }
        if is_full && (!has_reserve || self.refused.is_some() || self.is_used_up) {
            // Nothing can continue without some room: give up what is kept for later.
            let Upkeep { garbage, used_snapshots, .. } = &mut self.upkeep;
            garbage.extend(std::mem::take(used_snapshots).into_values());
            garbage.extend(self.reserve.take(Kept::Snapshot));
        }
        // Work that frees room comes first; and the refused batch is written before another file takes its name.
        if is_full && !self.upkeep.garbage.is_empty() {
            return Some(Task::Remove);
        }
        if self.spares.is_empty() {
            let used = self.upkeep.used.pop();
            let used = used.or_else(|| is_full.then(|| self.reserve.take(Kept::Segment)).flatten());
            // If the next segment is late, the present one grows.
            if used.is_some() || !is_full {
                return Some(Task::Spare(self.manifest.next_segment, used));
            }
        }
        if !self.upkeep.garbage.is_empty() {
            return Some(Task::Remove);
        }
        let waits = is_full && !self.may_retry;
        if waits && (!has_reserve || self.upkeep.is_postponed) {
            return None;
        }
        // All of a snapshot is written before it is committed.
        if let Some(piece) = self.upkeep.pieces.pop_front() {
            let is_first = piece.offset == 0;
            let used = is_first.then(|| self.upkeep.used_snapshots.remove(&piece.group)).flatten();
            let reserve = || (is_first && is_full).then(|| self.reserve.take(Kept::Snapshot)).flatten();
            let used = used.or_else(reserve);
            return Some(Task::Write(piece, used));
        }
        // A floor above the end that a crash leaves would hide what is appended there later: the log comes first.
        let up_to =
            if self.options.planted.has(Fault::SnapshotBeforeLog) { self.written } else { self.durable };
        while let Some(new) = self.upkeep.floors.front().copied()
            && new.floor.position <= up_to
        {
            self.upkeep.floors.pop_front();
            let present = self.manifest.floors.get(&new.group);
            if present.is_none_or(|present| present.position <= new.floor.position) {
                return Some(Task::Raise(new));
            }
            // The group was dropped while its snapshot was being written.
            self.discard(&new);
        }
        let note = std::mem::take(&mut self.upkeep.note) && self.durable > self.noted;
        // The segment in use is always needed.
        if note || (self.segments.len() > 1 && self.first_needed(self.extents.oldest()) > 0) {
            return Some(Task::Note);
        }
        if self.spares.is_empty() {
            return (!waits).then_some(Task::Spare(self.manifest.next_segment, None));
        }
        let missing = self.reserve.missing().filter(|_| has_reserve)?;
        let used = if missing == Kept::Manifest { None } else { self.upkeep.used.pop() };
        (used.is_some() || !waits).then_some(Task::Reserve(missing, used))
    }

    /// Returns the steps of a task, and the manifest that applies after them.
    fn steps(&mut self, task: &mut Task) -> (Vec<Step>, Manifest) {
        let mut steps = Vec::new();
        let mut manifest = self.manifest.clone();
        manifest.durable = self.durable;
        manifest.next_snapshot = self.next_snapshot;
        let mut oldest = self.extents.oldest();
        match task {
            Task::Raise(NewFloor { group, floor }) => {
                if let Some(place) = floor.snapshot {
                    let file = snapshot_file(*group, place.number);
                    // If it was written over a longer one, the rest is room for the next.
                    steps.push(Step::Cut { file: file.clone(), bytes: place.bytes * LEFT_OVER_MAX });
                    steps.push(Step::Sync { file });
                }
                let mut extents = self.extents.clone();
                extents.raise(*group, floor.position);
                oldest = extents.oldest();
                manifest.floors.insert(*group, *floor);
                steps.push(Step::SyncFolder);
            }
            Task::Spare(number, used) => {
                let file = segment_file(*number);
                let bytes = self.options.segment_bytes;
                match used {
                    // What an older segment left in its sectors counts as zeros.
                    Some(used) => steps.extend([
                        Step::Rename { from: used.clone(), to: file.clone() },
                        Step::Cut { file: file.clone(), bytes: bytes * LEFT_OVER_MAX },
                    ]),
                    None => steps.push(Step::Create { file: file.clone(), bytes }),
                }
                steps.extend([Step::Sync { file }, Step::SyncFolder]);
                manifest.next_segment = *number + 1;
            }
            Task::Note => {}
            Task::Reserve(kept, used) => {
                let (file, bytes) = (kept.file(), kept.bytes(self.options.segment_bytes));
                match used {
                    Some(used) => steps.push(Step::Rename { from: used.clone(), to: file.clone() }),
                    None => steps.push(Step::Reserve { file: file.clone(), bytes }),
                }
                steps.extend([Step::Sync { file }, Step::SyncFolder]);
                return (steps, manifest);
            }
            Task::Write(Piece { file, offset, bytes, .. }, used) => {
                if *offset == 0 {
                    steps.push(match used {
                        Some(used) => Step::Rename { from: used.clone(), to: file.clone() },
                        None => Step::Create { file: file.clone(), bytes: 0 },
                    });
                }
                let (file, bytes) = (file.clone(), std::mem::take(bytes));
                steps.push(Step::WriteThrough { file, offset: *offset, bytes });
                return (steps, manifest);
            }
            Task::Remove => {
                steps.extend(self.upkeep.garbage.front().map(|file| Step::Remove { file: file.clone() }));
                return (steps, manifest);
            }
        }
        let first = self.segments[self.first_needed(oldest)];
        assert!(first.first <= self.durable, "the log is to start where it is not durable yet");
        (manifest.first_segment, manifest.start) = (first.number, first.first);
        let start = manifest.start;
        manifest.floors.retain(|_, floor| floor.snapshot.is_some() || floor.position > start);
        let reserve = self.full.is_some().then(|| self.reserve.take(Kept::Manifest)).flatten();
        steps.extend(replace_manifest(&manifest, reserve));
        (steps, manifest)
    }

    /// Returns the index of the first segment that is needed. A segment may become the first one only when the log is
    /// durable above its first position, so that its header is on the disk.
    fn first_needed(&self, oldest: Option<(Position, Group)>) -> usize {
        let needed = oldest.map_or(self.written, |(position, _)| position);
        let unneeded = |next: &&Segment| next.first <= needed && next.first < self.durable;
        self.segments.iter().skip(1).take_while(unneeded).count()
    }

    fn upkeep_finished(&mut self, result: Result<(), DiskError>) -> Result<Outcome, StorageError> {
        let Some(Running { task, manifest }) = self.upkeep.running.take() else {
            panic!("a piece of upkeep ended that was not begun")
        };
        match result {
            Ok(()) => Ok(self.done(task, manifest)),
            Err(error) if error.is_only_full() => Ok(self.refused(task, error)),
            Err(error) => self.stop_on(Err(error)),
        }
    }

    fn done(&mut self, task: Task, manifest: Manifest) -> Outcome {
        match task {
            Task::Remove => {
                let removed = self.upkeep.garbage.pop_front();
                assert!(removed.is_some(), "a file was removed that was not to go");
                return Outcome::Tidied;
            }
            Task::Write(..) => return Outcome::Tidied,
            Task::Reserve(kept, _) => {
                self.reserve.add(kept);
                self.note_room();
                return Outcome::Tidied;
            }
            _ => {}
        }
        let before = &self.manifest;
        let goes_on = before.start <= manifest.start
            && before.first_segment <= manifest.first_segment
            && before.next_segment <= manifest.next_segment
            && before.durable <= manifest.durable
            && before.next_snapshot <= manifest.next_snapshot;
        assert!(goes_on, "a manifest goes back behind the one before");
        self.noted = self.noted.max(manifest.durable);
        while let Some(segment) =
            self.segments.pop_front_if(|segment| segment.number < manifest.first_segment)
        {
            let file = segment_file(segment.number);
            let kept_max = match self.full {
                None => reused_max(self.options.segment_bytes),
                // The next segment, and the reserve.
                Some(_) if self.options.has_reserve => 3,
                Some(_) => 0,
            };
            match self.upkeep.used.len() < kept_max {
                true => self.upkeep.used.push(file),
                false => self.upkeep.garbage.push_back(file),
            }
        }
        let before = std::mem::replace(&mut self.manifest, manifest);
        let outcome = match task {
            Task::Raise(NewFloor { group, floor }) => {
                self.extents.raise(group, floor.position);
                if let Some(old) = before.floors.get(&group).and_then(|floor| floor.snapshot)
                    && !self.pinned.contains_key(&old.number)
                {
                    self.let_go(group, old);
                }
                match floor.snapshot {
                    Some(_) => Outcome::SnapshotTaken(group, floor.position),
                    None => {
                        let Upkeep { garbage, used_snapshots, .. } = &mut self.upkeep;
                        garbage.extend(used_snapshots.remove(&group));
                        Outcome::Forgotten(group)
                    }
                }
            }
            Task::Spare(number, _) => {
                self.spares.push_back(number);
                Outcome::SegmentReady
            }
            Task::Note | Task::Remove | Task::Write(..) | Task::Reserve(..) => Outcome::Tidied,
        };
        self.note_room();
        outcome
    }

    /// Gives up a snapshot that no manifest names any more and that is not being read.
    pub(crate) fn let_go(&mut self, group: Group, snapshot: SnapshotPlace) {
        let file = snapshot_file(group, snapshot.number);
        let is_large = snapshot.bytes >= REUSED_BYTES_MIN.min(self.options.segment_bytes);
        let Upkeep { garbage, used_snapshots, .. } = &mut self.upkeep;
        match is_large && self.full.is_none() {
            true => garbage.extend(used_snapshots.insert(group, file)),
            false => garbage.push_back(file),
        }
    }

    /// Handles a full disk. Nothing that the present manifest names was touched; what was made for the new one is dropped.
    fn refused(&mut self, task: Task, error: DiskError) -> Outcome {
        (self.full, self.may_retry) = (Some(error.clone()), false);
        match task {
            Task::Raise(new) if new.floor.snapshot.is_some() => {
                self.discard(&new);
                Outcome::SnapshotRefused(new.group, error)
            }
            Task::Raise(new) => {
                self.upkeep.is_postponed = true;
                self.upkeep.floors.push_front(new);
                Outcome::Postponed(error)
            }
            Task::Spare(number, Some(used)) if self.options.has_reserve => {
                self.upkeep.is_postponed = true;
                // It may already have its new name, and is not in the manifest.
                let is_renamed = error.verb != Verb::Rename || error.file != used;
                self.upkeep.used.push(if is_renamed { segment_file(number) } else { used });
                Outcome::SegmentRefused(error)
            }
            Task::Spare(number, used) => {
                self.upkeep.garbage.push_back(segment_file(number));
                self.upkeep.garbage.extend(used);
                Outcome::SegmentRefused(error)
            }
            Task::Reserve(kept, used) => {
                self.upkeep.garbage.push_back(kept.file());
                self.upkeep.garbage.extend(used);
                Outcome::Postponed(error)
            }
            Task::Write(piece, used) => {
                self.upkeep.garbage.extend(used);
                self.snapshot_without_room(piece, error)
            }
            Task::Note | Task::Remove => {
                self.upkeep.is_postponed = true;
                Outcome::Postponed(error)
            }
        }
    }

    /// Handles a part of a snapshot that cannot be written. If all of the snapshot was handed over, the snapshot is dropped;
    /// otherwise its writer gets the error with the next chunk.
    fn snapshot_without_room(&mut self, piece: Piece, error: DiskError) -> Outcome {
        let Upkeep { floors, garbage, pieces, without_room, .. } = &mut self.upkeep;
        pieces.retain(|other| other.file != piece.file);
        let is_its = |new: &NewFloor| {
            let number = new.floor.snapshot.map(|place| place.number);
            number.is_some_and(|number| snapshot_file(new.group, number) == piece.file)
        };
        if let Some(place) = floors.iter().position(is_its) {
            floors.remove(place);
            garbage.push_back(piece.file);
            return Outcome::SnapshotRefused(piece.group, error);
        }
        // Unless it was abandoned in the meantime.
        if !garbage.contains(&piece.file) {
            without_room.insert(piece.file, error.clone());
        }
        Outcome::Postponed(error)
    }

    fn discard(&mut self, new: &NewFloor) {
        if let Some(place) = new.floor.snapshot {
            self.upkeep.garbage.push_back(snapshot_file(new.group, place.number));
        }
    }
}

/// Returns the steps by which a manifest replaces the previous one. On a full disk it is written into a file of the reserve.
pub(crate) fn replace_manifest(manifest: &Manifest, reserve: Option<String>) -> Vec<Step> {
    let (file, bytes) = (MANIFEST_NEW_FILE.to_owned(), manifest.encode());
    let cut = Step::Cut { file: file.clone(), bytes: bytes.len() as u64 };
    let (first, cut) = match reserve {
        Some(reserve) => (Step::Rename { from: reserve, to: file.clone() }, Some(cut)),
        None => (Step::Create { file: file.clone(), bytes: 0 }, None),
    };
    let mut steps = vec![first, Step::Write { file: file.clone(), offset: 0, bytes }];
    steps.extend(cut);
    steps.extend([
        Step::Sync { file: file.clone() },
        Step::Rename { from: file, to: MANIFEST_FILE.to_owned() },
        Step::SyncFolder,
    ]);
    steps
}

/// Replaces the manifest immediately, as a start does, using the reserve if there is no room.
pub(crate) fn write_manifest<D: Disk>(
    disk: &mut D,
    planted: Planted,
    manifest: &Manifest,
) -> Result<(), DiskError> {
    match run(disk, planted, replace_manifest(manifest, None)) {
        Err(error) if error.is_only_full() && disk.length(&Kept::Manifest.file()).is_ok() => {
            run(disk, planted, replace_manifest(manifest, Some(Kept::Manifest.file())))
        }
        result => result,
    }
}

/// Runs steps immediately, as a start does. A failed sync is returned like any other error.
pub(crate) fn run<D: Disk>(disk: &mut D, planted: Planted, steps: Vec<Step>) -> Result<(), DiskError> {
    planned(planted, steps).iter().try_for_each(|step| match step.run(disk) {
        Err(DiskError { verb: Verb::Sync, .. }) if planted.has(Fault::SyncErrorIgnored) => Ok(()),
        result => result,
    })
}

/// Returns the steps, without those that the planted fault leaves out.
fn planned(planted: Planted, mut steps: Vec<Step>) -> Vec<Step> {
    if planted.has(Fault::FolderNotSynced) {
        steps.retain(|step| *step != Step::SyncFolder);
    }
    steps
}
