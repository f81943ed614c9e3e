//! What the log does when disk operations fail.

use storage::{Cause, DiskError, Log, Outcome, StorageError, Verb, Work, open};

use crate::support::disk::{Folder as _, SimulatedDisk, Survivors, Trouble};
use crate::support::{SEGMENT_BYTES, options};

fn start(disk: &mut SimulatedDisk) -> Log {
    open(disk, options()).unwrap().replay(disk, |_| {}).unwrap().0
}

fn run(log: &mut Log, disk: &mut SimulatedDisk, work: Work) -> Result<Outcome, StorageError> {
    let result = work.run(disk);
    log.finished(work, result)
}

/// Runs all pending upkeep, and returns the outcomes.
fn upkeep(log: &mut Log, disk: &mut SimulatedDisk) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    while let Some(work) = log.begin_upkeep().unwrap() {
        outcomes.push(run(log, disk, work).unwrap());
    }
    outcomes
}

fn input_output_error() -> Trouble {
    Trouble::Fail(Cause::Failed("input/output error".to_owned()))
}

fn count_entries(disk: &mut SimulatedDisk) -> u64 {
    open(disk, options()).unwrap().replay(disk, |_| {}).unwrap().1.entries
}

#[test]
fn a_failed_sync_stops_the_log_for_good() {
    let mut disk = SimulatedDisk::new(1);
    let mut log = start(&mut disk);
    log.append(1, 1, b"value");
    log.write(&mut disk).unwrap();
    disk.trouble_in(1, input_output_error());
    let work = log.begin_sync().unwrap().unwrap();
    let error = run(&mut log, &mut disk, work).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the log has stopped, since an earlier call failed: cannot sync segment-0000000000: input/output error"
    );
    assert_eq!(log.durable(), 0);
    // The disk works again, but the log does not use it.
    let operations = disk.operations;
    assert_eq!(log.append(1, 1, b"value"), u64::MAX);
    assert_eq!(log.write(&mut disk), Err(error.clone()));
    assert_eq!(log.begin_sync().unwrap_err(), error);
    assert_eq!(log.begin_upkeep().unwrap_err(), error);
    assert_eq!(log.begin_snapshot(1, 0).unwrap_err(), error);
    assert_eq!(disk.operations, operations);
}

#[test]
fn entries_that_a_failed_sync_left_in_memory_are_written_again_at_the_next_start() {
    let mut disk = SimulatedDisk::new(1);
    let mut log = start(&mut disk);
    log.append(1, 1, b"value");
    log.write(&mut disk).unwrap();
    disk.trouble_in(1, input_output_error());
    let work = log.begin_sync().unwrap().unwrap();
    assert!(run(&mut log, &mut disk, work).is_err());
    // The process restarts on the same machine, finds the entry, and may report it durable.
    let log = start(&mut disk);
    assert_eq!(log.durable(), 64);
    disk.lose_power(Survivors::Nothing);
    assert_eq!(count_entries(&mut disk), 1);
}

#[test]
fn a_failed_write_stops_the_log_and_its_remains_are_cut() {
    let mut cut = 0;
    for seed in 0..20 {
        let mut disk = SimulatedDisk::new(seed);
        let mut log = start(&mut disk);
        log.append(1, 1, &[7; 2000]);
        disk.trouble_in(1, input_output_error());
        assert!(matches!(log.write(&mut disk), Err(StorageError::Stopped(_))));
        assert!(matches!(log.write(&mut disk), Err(StorageError::Stopped(_))));
        // The write failed somewhere: perhaps in the zeros after the batch.
        cut += usize::from(count_entries(&mut disk) == 0);
    }
    assert!((10..20).contains(&cut), "cut {cut} times");
}

#[test]
fn a_sync_that_cannot_write_stops_the_log() {
    let mut disk = SimulatedDisk::new(1);
    let mut log = start(&mut disk);
    log.append(1, 1, b"value");
    disk.trouble_in(1, input_output_error());
    let work = log.begin_sync().unwrap().unwrap();
    assert!(matches!(run(&mut log, &mut disk, work), Err(StorageError::Stopped(_))));
    assert_eq!((log.written(), log.durable()), (0, 0));
}

#[test]
fn entries_appended_while_a_sync_writes_wait_for_its_end() {
    let mut disk = SimulatedDisk::new(1);
    let mut log = start(&mut disk);
    log.append(1, 1, b"one");
    let work = log.begin_sync().unwrap().unwrap();
    assert!(log.is_writing());
    log.append(1, 2, b"two");
    let operations = disk.operations;
    // Both entries lie in the same block: two writes at the same time could each undo the other.
    log.write(&mut disk).unwrap();
    assert!(log.begin_sync().unwrap().is_none());
    assert_eq!((disk.operations, log.written()), (operations, 0));
    run(&mut log, &mut disk, work).unwrap();
    assert_eq!((log.written(), log.durable(), log.end()), (64, 64, 64 + 32 + 16));
    log.write(&mut disk).unwrap();
    disk.lose_power(Survivors::Everything);
    assert_eq!(count_entries(&mut disk), 2);
}

#[test]
fn on_a_full_disk_a_sync_still_covers_written_entries() {
    let mut disk = SimulatedDisk::new(1);
    let mut log = start(&mut disk);
    disk.capacity = Some(SEGMENT_BYTES + 500);
    upkeep(&mut log, &mut disk);
    for _ in 0..3 {
        log.append(1, 1, &[7; 1000]);
        log.write(&mut disk).unwrap();
    }
    log.append(1, 1, &[7; 1000]);
    let work = log.begin_sync().unwrap().unwrap();
    run(&mut log, &mut disk, work).unwrap();
    assert_eq!(log.durable(), log.written());
    assert!(log.durable() < log.end());
    assert!(matches!(log.begin_sync(), Err(StorageError::Disk(_))), "nothing is left to be made durable");
}

#[test]
fn a_full_disk_shows_when_a_segment_is_made_and_nothing_is_lost() {
    let mut disk = SimulatedDisk::new(1);
    let mut log = start(&mut disk);
    disk.capacity = Some(SEGMENT_BYTES + 500);
    let full = DiskError { verb: Verb::Create, file: "segment-0000000001".to_owned(), cause: Cause::Full };
    assert_eq!(upkeep(&mut log, &mut disk)[0], Outcome::SegmentRefused(full.clone()));
    // The present segment can be filled.
    for _ in 0..3 {
        log.append(1, 1, &[7; 1000]);
        log.write(&mut disk).unwrap();
    }
    log.append(1, 1, &[7; 1000]);
    assert_eq!(log.write(&mut disk), Err(StorageError::Disk(full.clone())));
    // A retry reports the same error, and does not write where there is no room.
    log.retry();
    assert_eq!(log.write(&mut disk), Err(StorageError::Disk(full.clone())));
    assert_eq!(upkeep(&mut log, &mut disk)[0], Outcome::SegmentRefused(full.clone()));
    assert_eq!(log.write(&mut disk), Err(StorageError::Disk(full.clone())));
    // The entry is not lost, and is written when there is room. The log leaves the disk alone until the
    // next retry.
    disk.capacity = None;
    assert_eq!(upkeep(&mut log, &mut disk), []);
    assert_eq!(log.write(&mut disk), Err(StorageError::Disk(full)));
    log.retry();
    assert_eq!(upkeep(&mut log, &mut disk), [Outcome::SegmentReady]);
    log.write(&mut disk).unwrap();
    let work = log.begin_sync().unwrap().unwrap();
    assert_eq!(run(&mut log, &mut disk, work), Ok(Outcome::Durable));
    disk.lose_power(Survivors::Nothing);
    assert_eq!(count_entries(&mut disk), 4);
}

#[test]
fn writing_resumes_in_a_segment_that_had_no_room_to_grow() {
    let mut disk = SimulatedDisk::new(1);
    let mut log = start(&mut disk);
    let late = log.begin_upkeep().unwrap().unwrap();
    disk.capacity = Some(SEGMENT_BYTES + 1500);
    let is_full = |error: &StorageError| matches!(error, StorageError::Disk(error) if error.is_only_full());
    let mut written = 0;
    let error = loop {
        log.append(1, 1, &[7; 1000]);
        match log.write(&mut disk) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    assert!(is_full(&error), "{error:?}");
    log.append(1, 1, &[7; 1000]);
    assert!(is_full(&log.write(&mut disk).unwrap_err()));
    // What is written can be made durable; for the rest, the log reports why it cannot.
    let work = log.begin_sync().unwrap().unwrap();
    assert_eq!(run(&mut log, &mut disk, work), Ok(Outcome::Durable));
    assert!(is_full(&log.begin_sync().unwrap_err()));
    assert!(matches!(run(&mut log, &mut disk, late), Ok(Outcome::SegmentRefused(_))));
    // A sync that finds no room reports it, and loses nothing.
    log.retry();
    let work = log.begin_sync().unwrap().unwrap();
    assert!(matches!(run(&mut log, &mut disk, work), Ok(Outcome::SyncRefused(_))));
    // With room, everything is written, in order.
    disk.capacity = None;
    log.retry();
    upkeep(&mut log, &mut disk);
    while log.durable() < log.end() {
        let work = log.begin_sync().unwrap().unwrap();
        assert_eq!(run(&mut log, &mut disk, work), Ok(Outcome::Durable));
    }
    disk.lose_power(Survivors::Nothing);
    assert_eq!(count_entries(&mut disk), written + 2);
}

#[test]
fn a_late_segment_is_not_waited_for() {
    let mut disk = SimulatedDisk::new(1);
    let mut log = start(&mut disk);
    let late = log.begin_upkeep().unwrap().unwrap();
    for _ in 0..10 {
        log.append(1, 1, &[7; 1000]);
        log.write(&mut disk).unwrap();
    }
    assert!(disk.contents()[1].1.len() as u64 > 2 * SEGMENT_BYTES);
    assert_eq!(run(&mut log, &mut disk, late), Ok(Outcome::SegmentReady));
    log.append(1, 1, &[7; 1000]);
    log.write(&mut disk).unwrap();
    assert_eq!(count_entries(&mut disk), 11);
}

#[test]
fn a_snapshot_without_room_changes_nothing() {
    let mut disk = SimulatedDisk::new(1);
    let mut log = start(&mut disk);
    upkeep(&mut log, &mut disk);
    log.append(1, 1, b"value");
    log.write(&mut disk).unwrap();
    let work = log.begin_sync().unwrap().unwrap();
    assert_eq!(run(&mut log, &mut disk, work), Ok(Outcome::Durable));

    let used: usize = disk.contents().iter().map(|(_, bytes)| bytes.len()).sum();
    // The writer gets the error with the next chunk.
    disk.capacity = Some(used as u64 + 1000);
    let end = log.end();
    let mut snapshot = log.begin_snapshot(1, end).unwrap();
    log.append_snapshot(&mut snapshot, &[1; 1 << 20]).unwrap();
    assert!(matches!(upkeep(&mut log, &mut disk)[..], [Outcome::Postponed(_)]));
    assert!(!log.is_pacing_snapshot(), "nothing more of it is to be written");
    let error = log.append_snapshot(&mut snapshot, &[1; 2000]).unwrap_err();
    assert!(matches!(error, StorageError::Disk(DiskError { cause: Cause::Full, .. })), "{error:?}");
    assert_eq!(log.commit_snapshot(snapshot), Err(error));
    upkeep(&mut log, &mut disk);

    // There is no room for the snapshot's last part or, if it is small, for the manifest that names it.
    for (room, bytes) in [(1000, 2000), (150, 5)] {
        disk.capacity = Some(used as u64 + room);
        log.retry();
        let mut snapshot = log.begin_snapshot(1, end).unwrap();
        log.append_snapshot(&mut snapshot, &vec![1; bytes]).unwrap();
        log.commit_snapshot(snapshot).unwrap();
        let outcomes = upkeep(&mut log, &mut disk);
        assert!(
            outcomes.iter().any(|outcome| matches!(outcome, Outcome::SnapshotRefused(1, _))),
            "{outcomes:?}"
        );
        assert!(log.open_snapshot(1).is_none());
    }
    assert_eq!(disk.contents().len(), 4, "manifest, a new one begun, two segments: {:?}", disk.contents());
    assert_eq!(count_entries(&mut disk), 1);
}

#[test]
fn a_failed_write_of_a_snapshots_part_stops_the_log() {
    let mut disk = SimulatedDisk::new(1);
    let mut log = start(&mut disk);
    upkeep(&mut log, &mut disk);
    let mut snapshot = log.begin_snapshot(1, 0).unwrap();
    log.append_snapshot(&mut snapshot, &[1; 1 << 20]).unwrap();
    let work = log.begin_upkeep().unwrap().unwrap();
    disk.trouble_in(1, input_output_error());
    assert!(matches!(run(&mut log, &mut disk, work), Err(StorageError::Stopped(_))));
    // The operating system reports the error once: a sync of the whole snapshot would succeed.
    let committed = log.commit_snapshot(snapshot);
    assert!(matches!(committed, Err(StorageError::Stopped(_))), "{committed:?}");
}

#[test]
fn an_unreadable_sector_is_reported_with_its_file() {
    let mut disk = SimulatedDisk::new(1);
    start(&mut disk);
    let mut outcomes = Vec::new();
    for operation in 1..20 {
        disk.trouble.clear();
        disk.trouble_in(operation, input_output_error());
        if let Err(error) = open(&mut disk, options()).and_then(|opening| opening.replay(&mut disk, |_| {})) {
            outcomes.push(error.to_string());
        }
    }
    assert!(
        outcomes.contains(&"cannot read segment-0000000000: input/output error".to_owned()),
        "{outcomes:#?}"
    );
    assert!(outcomes.contains(&"cannot read manifest: input/output error".to_owned()), "{outcomes:#?}");
    assert!(outcomes.iter().all(|outcome| outcome.starts_with("cannot ")), "{outcomes:#?}");
}
