//! The reserve: files kept for the time when the disk is full.

use storage::{Disk as _, Log, Options, Outcome, Work, open};

use crate::support::disk::{Folder as _, SimulatedDisk, Survivors};
use crate::support::{SEGMENT_BYTES, options};

fn start(disk: &mut SimulatedDisk) -> (Log, u64) {
    let options = Options { has_reserve: true, ..options() };
    let (log, replayed) = open(disk, options).unwrap().replay(disk, |_| {}).unwrap();
    (log, replayed.entries)
}

fn run(log: &mut Log, disk: &mut SimulatedDisk, work: Work) -> Outcome {
    let result = work.run(disk);
    log.finished(work, result).unwrap()
}

fn upkeep(log: &mut Log, disk: &mut SimulatedDisk) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    while let Some(work) = log.begin_upkeep().unwrap() {
        outcomes.push(run(log, disk, work));
    }
    outcomes
}

/// Appends one more entry, and syncs it.
fn append(log: &mut Log, disk: &mut SimulatedDisk) {
    log.append(1, 1, &[7; 1000]);
    log.write(disk).unwrap();
    let work = log.begin_sync().unwrap().unwrap();
    assert_eq!(run(log, disk, work), Outcome::Durable);
    upkeep(log, disk);
}

/// A log with this many entries, on a disk that then has no room for another byte.
fn full(entries: u64) -> (SimulatedDisk, Log) {
    let mut disk = SimulatedDisk::new(1);
    let (mut log, _) = start(&mut disk);
    upkeep(&mut log, &mut disk);
    (0..entries).for_each(|_| append(&mut log, &mut disk));
    assert!(!log.is_full());
    let used: usize = disk.contents().iter().map(|(_, bytes)| bytes.len()).sum();
    disk.capacity = Some(used as u64);
    (disk, log)
}

#[test]
fn a_full_log_continues_in_the_reserve_can_be_restarted_and_is_shortened() {
    let (mut disk, mut log) = full(20);
    let mut entries = 20;
    while !log.is_full() {
        append(&mut log, &mut disk);
        entries += 1;
    }
    // The next segment is ready, though the disk had no room for it.
    let ready = log.ready_bytes();
    assert!(ready >= SEGMENT_BYTES / 2, "{ready}");
    append(&mut log, &mut disk);
    append(&mut log, &mut disk);
    assert!(log.is_full() && log.ready_bytes() < ready);
    for power in [false, true] {
        if power {
            disk.lose_power(Survivors::Random);
        }
        let (again, found) = start(&mut disk);
        assert_eq!(found, entries + 2);
        log = again;
    }
    // A snapshot frees segments, and these become the reserve.
    let (end, held) = (log.end(), log.held_bytes());
    log.retry();
    upkeep(&mut log, &mut disk);
    assert!(log.is_full() && log.can_be_shortened());
    let mut snapshot = log.begin_snapshot(1, end).unwrap();
    log.append_snapshot(&mut snapshot, &[1; 2000]).unwrap();
    log.commit_snapshot(snapshot).unwrap();
    let outcomes = upkeep(&mut log, &mut disk);
    assert!(outcomes.contains(&Outcome::SnapshotTaken(1, end)), "{outcomes:?}");
    assert!(log.held_bytes() < held);
    log.retry();
    upkeep(&mut log, &mut disk);
    assert!(!log.is_full(), "there is room for as much again");
    let names = disk.list().unwrap();
    assert!((0..3).all(|number| names.contains(&format!("reserve-{number}"))), "{names:?}");
    append(&mut log, &mut disk);
    assert!(start(&mut disk).1 >= 1);
}

#[test]
fn nothing_is_lost_when_the_reserve_is_used_up_and_writing_resumes_with_room() {
    let (mut disk, mut log) = full(5);
    let mut written = 5;
    loop {
        log.append(1, 1, &[7; 1000]);
        if log.write(&mut disk).is_err() {
            break;
        }
        written += 1;
        upkeep(&mut log, &mut disk);
    }
    assert!(log.is_full() && written > 8, "{written}");
    disk.capacity = None;
    log.retry();
    upkeep(&mut log, &mut disk);
    append(&mut log, &mut disk);
    upkeep(&mut log, &mut disk);
    assert!(!log.is_full());
    assert_eq!(start(&mut disk).1, written + 2);
}

#[test]
fn an_incomplete_file_of_the_reserve_is_made_again() {
    let (mut disk, _) = full(3);
    disk.capacity = None;
    disk.cut("reserve-1", 100).unwrap();
    disk.remove("reserve-0").unwrap();
    let (mut log, _) = start(&mut disk);
    upkeep(&mut log, &mut disk);
    for (file, bytes) in [("reserve-0", SEGMENT_BYTES), ("reserve-1", SEGMENT_BYTES)] {
        assert!(disk.length(file).unwrap() >= bytes, "{file}");
    }
}
