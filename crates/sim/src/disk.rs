//! A machine's disk, and the work done on it outside the process that runs there.
//!
//! What a node writes within a turn is written at once; its other work ([`Work`]) is done here, step by step, in
//! virtual time. Between any two steps the process may die or the machine may lose power; the remaining steps are
//! then never done. Each lane does one piece of work after the other, and the lanes run in parallel.

use crate::faults::{MS, SECOND};
use crate::random::Random;
use std::collections::VecDeque;
use std::sync::Arc;
use storage::simulated::{SimulatedDisk, Survivors};
use storage::simulated_values::SimulatedValues;
use storage::work::Lane;
use storage::{DiskError, Step, ValueName, ValueResult, ValueWork, Work};

/// Lanes of a log.
const LANES: usize = 2;

/// Lanes for large values, numbered after those of the log: one for changes, one for reads.
const VALUE_LANES: usize = 2;

/// What follows when a step has ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The step is no longer awaited.
    Nothing,
    /// The lane's next step ends at this time.
    Next(u64),
    /// A whole piece of work has ended. If the lane has more work, its first step ends at this time.
    Work(Work, Result<(), DiskError>, Option<u64>),
    /// The same for work on large values.
    ValueWork(ValueWork, ValueResult, Option<u64>),
}

/// The work queued in a lane; the first piece is in progress.
#[derive(Debug, Default)]
struct Queue {
    work: VecDeque<Work>,
    /// The index of its current step.
    step: usize,
    /// When the current step began, in the disk's own order of writes.
    moment: u64,
    /// When the current step ends.
    due: u64,
}

/// One machine's disk.
#[derive(Debug)]
pub(crate) struct MachineDisk {
    pub(crate) files: SimulatedDisk,
    /// Large values.
    pub(crate) values: SimulatedValues,
    /// Values that were changed silently, with their bytes after the change.
    rotten: Vec<(ValueName, Arc<Vec<u8>>)>,
    /// A copy of the disk at an earlier time.
    pub(crate) copy: Option<(SimulatedDisk, SimulatedValues)>,
    random: Random,
    lanes: [Queue; LANES],
    /// The work queued in the lanes for large values, and when the first piece ends.
    value_lanes: [(VecDeque<ValueWork>, u64); VALUE_LANES],
    /// Every operation takes this many times as long.
    pub(crate) slowness: u64,
    /// No operation ends before this time.
    pub(crate) stuck_until: u64,
    /// Whether the disk is no longer slower than usual.
    pub(crate) is_healthy: bool,
}

impl MachineDisk {
    pub(crate) fn new(mut random: Random) -> MachineDisk {
        MachineDisk {
            files: SimulatedDisk::new(random.draw()),
            values: SimulatedValues::default(),
            rotten: Vec::new(),
            copy: None,
            random,
            lanes: Default::default(),
            value_lanes: Default::default(),
            slowness: 1,
            stuck_until: 0,
            is_healthy: false,
        }
    }

    /// Replaces the disk with an empty one.
    pub(crate) fn replace(&mut self) {
        self.files = SimulatedDisk::new(self.random.draw());
        self.values = SimulatedValues::default();
        self.rotten.clear();
    }

    /// Cuts the machine's power.
    pub(crate) fn lose_power(&mut self, survivors: Survivors) {
        self.files.lose_power(survivors);
        if !self.values.is_empty() {
            self.values.lose_power(&mut storage::simulated::Random::new(self.random.draw()));
        }
    }

    /// Restores the disk to an earlier copy.
    pub(crate) fn roll_back(&mut self, (files, values): (SimulatedDisk, SimulatedValues)) {
        (self.files, self.values) = (files, values);
        self.rotten.clear();
    }

    /// Changes a value silently.
    pub(crate) fn rot_value(&mut self, name: ValueName, place: usize) {
        if self.values.rot_value(&name, place)
            && let Some(now) = self.values.value(&name)
        {
            self.rotten.retain(|(other, _)| *other != name);
            self.rotten.push((name, Arc::clone(now)));
        }
    }

    /// How many values were changed silently, and how many of these are whole again.
    pub(crate) fn rotten_and_repaired(&self) -> (usize, usize) {
        let is_rotten = |name: &ValueName, then| self.values.value(name) == Some(then);
        let rotten = self.rotten.iter().filter(|(name, then)| is_rotten(name, then)).count();
        let here = self.rotten.iter().filter(|(name, _)| self.values.value(name).is_some()).count();
        (rotten, here - rotten)
    }

    /// Leaves room for `room` more bytes.
    pub(crate) fn fill_up(&mut self, room: u64) {
        self.files.capacity = Some(self.files.used_bytes() + room);
        self.values.capacity = Some(self.values.used_bytes() + room);
    }

    /// Removes the limit on the disk's room.
    pub(crate) fn make_room(&mut self) {
        (self.files.capacity, self.values.capacity) = (None, None);
    }

    /// Ends all faults of the disk. Returns, for each lane whose current step may now end earlier, its number and the
    /// new time.
    pub(crate) fn heal(&mut self, now: u64) -> [Option<(u8, u64)>; LANES + VALUE_LANES] {
        (self.files.refusal, self.copy) = (None, None);
        self.make_room();
        self.files.trouble.clear();
        (self.slowness, self.stuck_until, self.is_healthy) = (1, 0, true);
        [0, 1, 2, 3].map(|lane| {
            let (due, is_empty) = match self.lanes.get_mut(lane) {
                Some(queue) => (&mut queue.due, queue.work.is_empty()),
                None => {
                    let (work, due) = &mut self.value_lanes[lane - LANES];
                    (due, work.is_empty())
                }
            };
            *due = (*due).min(now + MS);
            (!is_empty).then_some((lane as u8, *due))
        })
    }

    /// Begins a piece of work. Returns its lane, and when its first step ends if no other work is ahead of it.
    pub(crate) fn begin(&mut self, work: Work, now: u64) -> (u8, Option<u64>) {
        let lane = match work.lane() {
            Lane::Sync => 0,
            Lane::Upkeep => 1,
        };
        self.lanes[lane].work.push_back(work);
        let first = self.lanes[lane].work.len() == 1;
        (lane as u8, first.then(|| self.begin_step(lane, now)))
    }

    /// Ends the step in progress in a lane.
    pub(crate) fn end_step(&mut self, lane: u8, now: u64) -> Ended {
        if let Some(lane) = usize::from(lane).checked_sub(LANES) {
            return self.end_value_work(lane, now);
        }
        let queue = &mut self.lanes[usize::from(lane)];
        let Some(work) = queue.work.front() else { return Ended::Nothing };
        if now < queue.due {
            return Ended::Nothing; // An earlier step, which has ended ahead of time.
        }
        if now < self.stuck_until {
            queue.due = self.stuck_until;
            return Ended::Next(self.stuck_until);
        }
        let result = match work.steps().get(queue.step) {
            Some(step) => self.files.since(queue.moment, |files| step.run(files)),
            None => Ok(()),
        };
        queue.step += 1;
        if result.is_ok() && queue.step < work.steps().len() {
            return Ended::Next(self.begin_step(usize::from(lane), now));
        }
        queue.step = 0;
        let Some(work) = queue.work.pop_front() else { return Ended::Nothing };
        let more = !queue.work.is_empty();
        Ended::Work(work, result, more.then(|| self.begin_step(usize::from(lane), now)))
    }

    /// Drops all work: the process that requested it is dead.
    pub(crate) fn stop(&mut self) {
        self.lanes = Default::default();
        self.value_lanes = Default::default();
    }

    /// Begins a piece of work on large values, as [`MachineDisk::begin`] does.
    pub(crate) fn begin_value_work(&mut self, work: ValueWork, now: u64) -> (u8, Option<u64>) {
        let lane = usize::from(work.is_read());
        self.value_lanes[lane].0.push_back(work);
        let first = self.value_lanes[lane].0.len() == 1;
        ((LANES + lane) as u8, first.then(|| self.begin_value_step(lane, now)))
    }

    fn end_value_work(&mut self, lane: usize, now: u64) -> Ended {
        let (queue, due) = &mut self.value_lanes[lane];
        if queue.is_empty() || now < *due {
            return Ended::Nothing;
        }
        if now < self.stuck_until {
            *due = self.stuck_until;
            return Ended::Next(self.stuck_until);
        }
        let Some(work) = queue.pop_front() else { return Ended::Nothing };
        let result = work.run(&mut self.values);
        let more = !self.value_lanes[lane].0.is_empty();
        Ended::ValueWork(work, result, more.then(|| self.begin_value_step(lane, now)))
    }

    fn begin_value_step(&mut self, lane: usize, now: u64) -> u64 {
        let us = match self.value_lanes[lane].0.front() {
            Some(ValueWork::Persist) => self.sync_us(),
            // Occasionally the store is busy with its own work.
            Some(ValueWork::Put(_) | ValueWork::Remove(_)) if self.random.below(20) == 0 => 20 * MS,
            _ => 20 + self.random.below(500),
        };
        let due = now.max(self.stuck_until) + us * self.slowness;
        self.value_lanes[lane].1 = due;
        due
    }

    fn begin_step(&mut self, lane: usize, now: u64) -> u64 {
        self.lanes[lane].moment = self.files.moment();
        let queue = &self.lanes[lane];
        let us = match queue.work.front().and_then(|work| work.steps().get(queue.step)) {
            // 500 MB per second, and the zeros are synced.
            Some(&Step::Create { bytes, .. }) => bytes / 500 + self.sync_us(),
            Some(Step::Sync { .. } | Step::SyncFolder) => self.sync_us(),
            Some(
                Step::Write { .. }
                | Step::WriteThrough { .. }
                | Step::Reserve { .. }
                | Step::Cut { .. }
                | Step::Rename { .. }
                | Step::Remove { .. },
            ) => 2 + self.random.below(50),
            None => 0,
        };
        let due = now.max(self.stuck_until) + us * self.slowness;
        self.lanes[lane].due = due;
        due
    }

    /// Usually 100 to 500 microseconds, sometimes 20 milliseconds, seldom a second.
    fn sync_us(&mut self) -> u64 {
        match self.random.below(2000) {
            0 if !self.is_healthy => SECOND,
            0..20 => 20 * MS,
            _ => 100 + self.random.below(400),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use storage::simulated::Survivors;
    use storage::{Disk as _, Identity, Options, open};

    /// A log on a disk, with one batch written and not synced.
    fn log(disk: &mut MachineDisk) -> storage::Log {
        let identity = Identity { cluster: 1, node: 1, worker: 0, log: 7 };
        let options = Options { segment_bytes: 4096, ..Options::new(identity) };
        let opening = open(&mut disk.files, options).unwrap();
        let (mut log, _) = opening.replay(&mut disk.files, |_| {}).unwrap();
        log.append(1, 1, b"value");
        log.write(&mut disk.files).unwrap();
        log
    }

    #[test]
    fn work_is_done_step_by_step_and_lanes_run_side_by_side() {
        let mut disk = MachineDisk::new(Random::new(1, 1));
        let mut log = log(&mut disk);
        let (sync, upkeep) = (log.begin_sync().unwrap().unwrap(), log.begin_upkeep().unwrap().unwrap());
        let steps = upkeep.steps().len();
        assert!(steps > 3, "a segment is made, and a manifest written");
        let (upkeep_lane, upkeep_at) = disk.begin(upkeep, 0);
        let (sync_lane, sync_at) = disk.begin(sync, 0);
        let Ended::Work(work, result, None) = disk.end_step(sync_lane, sync_at.unwrap()) else { panic!() };
        log.finished(work, result).unwrap();
        assert_eq!(log.durable(), log.written(), "no sync waits for upkeep");
        let mut at = upkeep_at.unwrap();
        for _ in 1..steps {
            let Ended::Next(next) = disk.end_step(upkeep_lane, at) else { panic!() };
            assert!(next > at);
            at = next;
        }
        let Ended::Work(work, Ok(()), None) = disk.end_step(upkeep_lane, at) else { panic!() };
        log.finished(work, Ok(())).unwrap();
        assert_eq!(log.segment_numbers(), 0..2);
    }

    #[test]
    fn work_in_progress_when_the_process_dies_is_never_done() {
        let mut disk = MachineDisk::new(Random::new(1, 1));
        let mut log = log(&mut disk);
        let (lane, at) = disk.begin(log.begin_sync().unwrap().unwrap(), 0);
        disk.stop();
        assert!(matches!(disk.end_step(lane, at.unwrap()), Ended::Nothing));
        disk.files.lose_power(Survivors::Nothing);
        let mut bytes = [0; 8];
        disk.files.read("segment-0000000000", 512, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 8], "nothing was synced");
    }

    #[test]
    fn a_stuck_disk_resumes_where_it_was() {
        let mut disk = MachineDisk::new(Random::new(1, 1));
        let mut log = log(&mut disk);
        let (lane, at) = disk.begin(log.begin_sync().unwrap().unwrap(), 0);
        disk.stuck_until = 5 * SECOND;
        let Ended::Next(later) = disk.end_step(lane, at.unwrap()) else { panic!() };
        assert_eq!(later, 5 * SECOND);
        assert!(matches!(disk.end_step(lane, later), Ended::Work(_, Ok(()), None)));
    }

    #[test]
    fn work_begun_by_a_slow_disk_ends_soon_after_it_heals() {
        let mut disk = MachineDisk::new(Random::new(1, 1));
        let mut log = log(&mut disk);
        disk.slowness = 500;
        let (lane, at) = disk.begin(log.begin_sync().unwrap().unwrap(), 0);
        assert!(at.unwrap() > 10 * MS);
        let [Some((healed, due)), None, None, None] = disk.heal(0) else { panic!() };
        assert_eq!((healed, due), (lane, MS));
        assert!(matches!(disk.end_step(lane, due), Ended::Work(_, Ok(()), None)));
        assert!(matches!(disk.end_step(lane, at.unwrap()), Ended::Nothing));
    }
}
