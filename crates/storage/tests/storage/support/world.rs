//! A log on a faulty disk, beside a model of what it must hold.

use std::collections::BTreeMap;

use storage::disk::Cause;
use storage::{Group, Log, Options, Outcome, Position, SnapshotWriter, StorageError, Torn, Work, open};

use super::disk::{SimulatedDisk, Survivors};

/// An entry in the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelEntry {
    pub(crate) position: Position,
    pub(crate) kind: u16,
    pub(crate) bytes: Vec<u8>,
}

/// What one step of a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Append { group: Group, bytes: usize },
    Write,
    BeginSync,
    FinishSync,
    BeginUpkeep,
    FinishUpkeep,
    BeginSnapshot { group: Group },
    AppendSnapshot,
    CommitSnapshot,
    AbandonSnapshot,
    Forget { group: Group },
    NoteDurable,
    Retry,
}

struct Snapshot {
    writer: SnapshotWriter,
    /// What is still to be written.
    rest: Vec<u8>,
}

pub(crate) struct World {
    pub(crate) disk: SimulatedDisk,
    options: Options,
    log: Option<Log>,
    history: BTreeMap<Group, Vec<ModelEntry>>,
    /// The positions from which each group's entries may count: more than one where a crash leaves that
    /// open.
    floors: BTreeMap<Group, Vec<Position>>,
    /// Everything below was reported durable.
    acknowledged: Position,
    /// Everything below was written, and outlives the process.
    written: Position,
    sync: Option<(Work, u64)>,
    upkeep: Option<(Work, u64)>,
    snapshot: Option<Snapshot>,
    counter: u64,
    /// How often each situation occurred that a run should meet.
    pub(crate) seen: BTreeMap<&'static str, u64>,
}

/// What a log must never do, in words.
pub(crate) type Violation = String;

impl World {
    pub(crate) fn new(options: Options, seed: u64) -> World {
        World {
            disk: SimulatedDisk::new(seed),
            options,
            log: None,
            history: BTreeMap::new(),
            floors: BTreeMap::new(),
            acknowledged: 0,
            written: 0,
            sync: None,
            upkeep: None,
            snapshot: None,
            counter: 0,
            seen: BTreeMap::new(),
        }
    }

    /// True when the log stopped, or was never opened.
    pub(crate) fn is_down(&self) -> bool {
        self.log.as_ref().is_none_or(|log| log.running().is_err())
    }

    /// Runs one step. Failures of the disk are no violation; what the log does about them may be.
    pub(crate) fn act(&mut self, action: Action) -> Result<(), Violation> {
        let Some(mut log) = self.log.take() else { return Ok(()) };
        let was_stopped = log.running().is_err();
        let result = self.step(&mut log, action);
        log.check_invariants();
        self.acknowledged = self.acknowledged.max(log.durable());
        self.written = self.written.max(log.written());
        self.log = Some(log);
        match result {
            Err(StorageError::Disk(error)) if error.cause == Cause::Full => {
                self.count(if action == Action::Write { "write refused" } else { "snapshot refused" });
                Ok(())
            }
            Err(StorageError::Stopped(_)) => Ok(()),
            Err(error) => Err(format!("{action:?} returned {error:?}")),
            Ok(true) if was_stopped => Err(format!("{action:?} worked on a log that had stopped")),
            Ok(_) => Ok(()),
        }
    }

    /// Returns true when the log was called for something that a stopped log must refuse.
    fn step(&mut self, log: &mut Log, action: Action) -> Result<bool, StorageError> {
        match action {
            Action::Append { group, bytes } => {
                self.counter += 1;
                let mut value = vec![0; bytes];
                let stamp = self.counter.to_be_bytes();
                value.iter_mut().zip(stamp.iter().cycle()).for_each(|(byte, stamp)| *byte = *stamp);
                // The kind distinguishes entries without bytes.
                let kind = self.counter as u16;
                let position = log.append(group, kind, &value);
                if log.running().is_ok() {
                    let model = ModelEntry { position, kind, bytes: value };
                    self.history.entry(group).or_default().push(model);
                }
                return Ok(false);
            }
            Action::Write => log.write(&mut self.disk)?,
            Action::BeginSync => {
                if let Some(work) = log.begin_sync()? {
                    self.sync = Some((work, self.disk.moment()));
                }
            }
            Action::BeginUpkeep => {
                if let Some(work) = log.begin_upkeep()? {
                    self.upkeep = Some((work, self.disk.moment()));
                }
            }
            Action::FinishSync => {
                let Some((work, moment)) = self.sync.take() else { return Ok(false) };
                let result = self.disk.since(moment, |disk| work.run(disk));
                log.finished(work, result)?;
            }
            Action::FinishUpkeep => {
                let Some((work, moment)) = self.upkeep.take() else { return Ok(false) };
                let result = self.disk.since(moment, |disk| work.run(disk));
                let outcome = log.finished(work, result)?;
                self.count(match outcome {
                    Outcome::Durable | Outcome::SyncRefused(_) => "sync",
                    Outcome::SegmentReady => "segment made",
                    Outcome::SegmentRefused(_) => "segment refused",
                    Outcome::SnapshotTaken(..) => "snapshot taken",
                    Outcome::SnapshotRefused(..) => "snapshot refused",
                    Outcome::Tidied | Outcome::Forgotten(_) => "tidied",
                    Outcome::Postponed(_) => "postponed",
                });
            }
            Action::BeginSnapshot { group } => {
                if self.snapshot.is_some() {
                    return Ok(false);
                }
                let position = log.end();
                let rest = encode(self.alive(group));
                let writer = log.begin_snapshot(group, position)?;
                self.snapshot = Some(Snapshot { writer, rest });
            }
            Action::AppendSnapshot => {
                let Some(mut snapshot) = self.snapshot.take() else { return Ok(false) };
                let chunk = snapshot.rest.drain(..snapshot.rest.len().min(700)).collect::<Vec<_>>();
                match log.append_snapshot(&mut snapshot.writer, &chunk) {
                    Ok(()) => self.snapshot = Some(snapshot),
                    Err(error) => {
                        log.abandon_snapshot(snapshot.writer);
                        return Err(error);
                    }
                }
            }
            Action::CommitSnapshot => {
                let Some(mut snapshot) = self.snapshot.take() else { return Ok(false) };
                if !snapshot.rest.is_empty() {
                    let appended = log.append_snapshot(&mut snapshot.writer, &snapshot.rest);
                    if let Err(error) = appended {
                        log.abandon_snapshot(snapshot.writer);
                        return Err(error);
                    }
                }
                log.commit_snapshot(snapshot.writer)?;
            }
            Action::AbandonSnapshot => {
                if let Some(snapshot) = self.snapshot.take() {
                    log.abandon_snapshot(snapshot.writer);
                }
                return Ok(false);
            }
            Action::Forget { group } => {
                log.forget(group);
                self.floors.entry(group).or_insert_with(|| vec![0]).push(log.end());
                // A snapshot that is being written holds what is now forgotten.
                return self.step(log, Action::AbandonSnapshot);
            }
            Action::NoteDurable => {
                log.note_durable();
                return Ok(false);
            }
            Action::Retry => {
                log.retry();
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn count(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    /// The group's entries that count now: those above its last floor.
    fn alive(&self, group: Group) -> &[ModelEntry] {
        let floor = self.floors.get(&group).and_then(|floors| floors.last().copied()).unwrap_or(0);
        above(self.history.get(&group).map_or(&[], Vec::as_slice), floor)
    }

    /// Ends the process; the disk stays as it is.
    pub(crate) fn kill(&mut self) {
        self.log = None;
        self.sync = None;
        self.upkeep = None;
        self.snapshot = None;
    }

    /// Simulates a power failure and the power's return.
    pub(crate) fn lose_power(&mut self, survivors: Survivors) {
        self.kill();
        self.disk.lose_power(survivors);
        self.written = self.acknowledged;
    }

    /// Opens the log and compares it with the model. `Ok(false)`: the disk failed, which is no violation.
    pub(crate) fn reopen(&mut self) -> Result<bool, Violation> {
        let (log, torn, groups) = match read_all(&mut self.disk, self.options) {
            Ok(found) => found,
            Err(StorageError::Disk(_)) => return Ok(false),
            Err(error) => return Err(format!("does not open: {error}")),
        };
        if torn.is_some() {
            self.count("torn tail");
        }
        if log.segment_numbers().start > 0 {
            self.count("start without the first segments");
        }
        let end = log.end();
        if end < self.written {
            return Err(format!(
                "ends at {end}: {} was called durable, {} written",
                self.acknowledged, self.written
            ));
        }
        for history in self.history.values_mut() {
            history.retain(|model| model.position < end);
        }
        for (group, floors) in &mut self.floors {
            let history = self.history.get(group).map_or(&[][..], Vec::as_slice);
            let found = groups.get(group).map_or(&[][..], Vec::as_slice);
            floors.retain(|floor| *floor <= end && above(history, *floor) == found);
            if floors.is_empty() {
                return Err(format!("group {group}, which was forgotten at times, holds {found:?}"));
            }
        }
        for group in groups.keys().chain(self.history.keys()).filter(|group| !self.floors.contains_key(group))
        {
            let (found, expected) = (groups.get(group), self.history.get(group));
            let empty = Vec::new();
            if found.unwrap_or(&empty) != expected.unwrap_or(&empty) {
                return Err(format!("group {group} holds {found:?} instead of {expected:?}"));
            }
        }
        (self.acknowledged, self.written) = (log.durable(), log.written());
        self.log = Some(log);
        Ok(true)
    }

    /// Opens a copy of the disk after a change to it. The log must refuse it, or hold the same.
    pub(crate) fn after(
        &self,
        tamper: impl FnOnce(&mut SimulatedDisk),
    ) -> Result<Result<(), StorageError>, Violation> {
        let mut copy = World::new(self.options, 0);
        copy.disk.clone_from(&self.disk);
        tamper(&mut copy.disk);
        copy.history.clone_from(&self.history);
        copy.floors.clone_from(&self.floors);
        (copy.acknowledged, copy.written) = (self.acknowledged, self.acknowledged);
        match read_all(&mut copy.disk.clone(), copy.options) {
            Err(error) => Ok(Err(error)),
            Ok(_) => copy.reopen().map(|_| Ok(())),
        }
    }

    /// Runs all pending work immediately.
    pub(crate) fn settle(&mut self) -> Result<(), Violation> {
        for _ in 0..20 {
            for action in [
                Action::Retry,
                Action::FinishSync,
                Action::FinishUpkeep,
                Action::Write,
                Action::BeginSync,
                Action::FinishSync,
                Action::BeginUpkeep,
                Action::FinishUpkeep,
            ] {
                self.act(action)?;
            }
        }
        Ok(())
    }
}

fn above(history: &[ModelEntry], floor: Position) -> &[ModelEntry] {
    &history[history.partition_point(|model| model.position < floor)..]
}

fn encode(history: &[ModelEntry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for ModelEntry { position, kind, bytes: value } in history {
        bytes.extend_from_slice(&position.to_le_bytes());
        bytes.extend_from_slice(&kind.to_le_bytes());
        bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
        bytes.extend_from_slice(value);
    }
    bytes
}

fn decode(mut bytes: &[u8]) -> Vec<ModelEntry> {
    let mut history = Vec::new();
    while let Some((position, rest)) = bytes.split_first_chunk() {
        let (kind, rest) = rest.split_first_chunk().unwrap();
        let (length, rest) = rest.split_first_chunk().unwrap();
        let (value, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
        let (position, kind) = (u64::from_le_bytes(*position), u16::from_le_bytes(*kind));
        history.push(ModelEntry { position, kind, bytes: value.to_vec() });
        bytes = rest;
    }
    history
}

type Groups = BTreeMap<Group, Vec<ModelEntry>>;

/// Opens a log, and returns what each group finds: its snapshot, and the entries above it.
pub(crate) fn read_all(
    disk: &mut SimulatedDisk,
    options: Options,
) -> Result<(Log, Option<Torn>, Groups), StorageError> {
    let opening = open(disk, options)?;
    let mut groups = Groups::new();
    for mut snapshot in opening.snapshots() {
        let (mut all, mut chunk) = (Vec::new(), Vec::new());
        while snapshot.read(disk, &mut chunk)? {
            all.extend_from_slice(&chunk);
        }
        groups.insert(snapshot.group(), decode(&all));
    }
    let (log, replayed) = opening.replay(disk, |entry| {
        let model = ModelEntry { position: entry.position, kind: entry.kind, bytes: entry.bytes.to_vec() };
        groups.entry(entry.group).or_default().push(model);
    })?;
    Ok((log, replayed.torn, groups))
}
