//! Snapshots bound the length of the log.

use storage::{Disk as _, Group, Log, MemoryDisk, Options, Outcome, Step, open};

use crate::support::disk::{Folder as _, SimulatedDisk, Survivors};
use crate::support::{SEGMENT_BYTES, options};

fn start(disk: &mut SimulatedDisk) -> Log {
    open(disk, options()).unwrap().replay(disk, |_| {}).unwrap().0
}

fn upkeep(log: &mut Log, disk: &mut SimulatedDisk) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    if log.wants_sync() {
        let work = log.begin_sync().unwrap().unwrap();
        let result = work.run(disk);
        log.finished(work, result).unwrap();
    }
    while let Some(work) = log.begin_upkeep().unwrap() {
        let result = work.run(disk);
        outcomes.push(log.finished(work, result).unwrap());
    }
    outcomes
}

fn fill(log: &mut Log, disk: &mut SimulatedDisk, group: Group) {
    for _ in 0..8 {
        log.append(group, 1, &[7; 1000]);
        log.write(disk).unwrap();
        let work = log.begin_sync().unwrap().unwrap();
        let result = work.run(disk);
        log.finished(work, result).unwrap();
        upkeep(log, disk);
    }
}

fn snapshot(log: &mut Log, disk: &mut SimulatedDisk, group: Group, chunks: &[&[u8]]) -> Vec<Outcome> {
    let end = log.end();
    let mut writer = log.begin_snapshot(group, end).unwrap();
    for chunk in chunks {
        log.append_snapshot(&mut writer, chunk).unwrap();
    }
    log.commit_snapshot(writer).unwrap();
    upkeep(log, disk)
}

fn files(disk: &SimulatedDisk) -> Vec<String> {
    disk.contents().into_iter().map(|(name, _)| name).collect()
}

#[test]
fn segments_are_removed_when_every_group_has_a_snapshot_above_them() {
    let mut disk = SimulatedDisk::new(1);
    let mut log = start(&mut disk);
    log.append(2, 1, b"early");
    fill(&mut log, &mut disk, 1);
    assert_eq!(log.segment_numbers(), 0..4);
    snapshot(&mut log, &mut disk, 1, &[b"state of 1"]);
    // Group 2 has one entry, at the very beginning.
    assert_eq!(log.segment_numbers(), 0..4);
    assert_eq!(log.oldest(), Some((2, 32)));
    snapshot(&mut log, &mut disk, 2, &[b"state of 2"]);
    assert_eq!(log.segment_numbers(), 2..4);
    assert_eq!(log.oldest(), None);
    // Group 2 appends nothing more, and keeps no segment from being removed.
    fill(&mut log, &mut disk, 1);
    snapshot(&mut log, &mut disk, 1, &[b"later state of 1"]);
    assert_eq!(log.oldest(), None);
    let numbers = log.segment_numbers();
    assert_eq!(numbers.end - numbers.start, 2, "one in use, one made in advance");
    // The removed segments wait for reuse, until the next start.
    assert_eq!(files(&disk).len(), 8);
    start(&mut disk);
    assert_eq!(
        files(&disk),
        [
            "manifest",
            &format!("segment-{:010}", numbers.start),
            &format!("segment-{:010}", numbers.start + 1),
            "snapshot-00001-0000000002",
            "snapshot-00002-0000000001",
        ]
    );
}

#[test]
fn large_segments_are_made_from_old_ones() {
    const LARGE: u64 = 8 << 20;
    let mut disk = MemoryDisk::new();
    let options = Options { segment_bytes: LARGE, ..options() };
    let (mut log, _) = open(&mut disk, options).unwrap().replay(&mut disk, |_| {}).unwrap();
    let work_of = |log: &mut Log, disk: &mut MemoryDisk| {
        let mut steps = Vec::new();
        while let Some(work) = log.begin_sync().unwrap().or_else(|| log.begin_upkeep().unwrap()) {
            steps.extend_from_slice(work.steps());
            let result = work.run(disk);
            log.finished(work, result).unwrap();
        }
        steps
    };
    let mut is_reused = false;
    for round in 0..20 {
        log.append(1, round, &[7; 3 << 20]);
        let steps = work_of(&mut log, &mut disk);
        is_reused |= steps.iter().any(
            |step| matches!(step, Step::Rename { from, to } if from.starts_with("segment") && to.starts_with("segment")),
        );
        let end = log.end();
        let mut writer = log.begin_snapshot(1, end).unwrap();
        log.append_snapshot(&mut writer, b"state").unwrap();
        log.commit_snapshot(writer).unwrap();
        work_of(&mut log, &mut disk);
    }
    assert!(is_reused);
    // Their old contents are not overwritten with zeros, and no entry is found in them.
    let last = log.segment_numbers().end - 1;
    let mut bytes = vec![0; LARGE as usize];
    disk.read(&format!("segment-{last:010}"), 0, &mut bytes).unwrap();
    assert!(bytes.contains(&7), "segment {last}");
    let end = log.end();
    let (log, replayed) = open(&mut disk, options).unwrap().replay(&mut disk, |_| {}).unwrap();
    assert_eq!((log.end(), replayed.torn), (end, None));
    // No manifest named the files that waited for reuse.
    let segments = disk.list().unwrap().iter().filter(|file| file.starts_with("segment")).count();
    assert_eq!(segments as u64, log.segment_numbers().end - log.segment_numbers().start);
}

#[test]
fn a_grown_segment_keeps_its_length_when_it_is_reused() {
    let mut disk = SimulatedDisk::new(1);
    let mut log = start(&mut disk);
    let late = log.begin_upkeep().unwrap().unwrap();
    for _ in 0..6 {
        log.append(1, 1, &[7; 1000]);
        log.write(&mut disk).unwrap();
    }
    let result = late.run(&mut disk);
    log.finished(late, result).unwrap();
    let grown = disk.contents()[1].1.len();
    assert!(grown > SEGMENT_BYTES as usize && grown <= 2 * SEGMENT_BYTES as usize, "{grown}");
    upkeep(&mut log, &mut disk);
    snapshot(&mut log, &mut disk, 1, &[b"state"]);
    let is_written = |(name, bytes): &(String, Vec<u8>)| {
        name.starts_with("segment") && bytes.len() == grown && bytes.iter().any(|byte| *byte != 0)
    };
    let mut is_used_again = false;
    for _ in 0..12 {
        log.append(1, 1, &[7; 1000]);
        log.write(&mut disk).unwrap();
        upkeep(&mut log, &mut disk);
        // With the log's files as they are, and as a crash leaves them.
        let mut copy = disk.clone();
        let (copied, replayed) = open(&mut copy, options()).unwrap().replay(&mut copy, |_| {}).unwrap();
        assert_eq!((copied.end(), replayed.torn), (log.end(), None));
        is_used_again |=
            disk.contents().iter().any(|file| !file.0.ends_with("-0000000000") && is_written(file));
    }
    assert!(is_used_again);
}

#[test]
fn a_large_snapshot_is_written_over_its_groups_last_but_one() {
    let mut disk = SimulatedDisk::new(1);
    let mut log = start(&mut disk);
    let large = SEGMENT_BYTES as usize;
    let of_both = |disk: &SimulatedDisk| {
        let files = files(disk).into_iter().filter(|file| file.starts_with("snapshot"));
        files.collect::<Vec<_>>()
    };
    // As long as the ones before, longer, shorter.
    for (round, length) in [large, large, large, 3 * large, large + 77].into_iter().enumerate() {
        let state = vec![round as u8; length];
        for group in [1, 2] {
            log.append(group, 1, b"value");
            let outcomes = snapshot(&mut log, &mut disk, group, &[&state, b"end"]);
            assert!(outcomes.iter().any(|outcome| matches!(outcome, Outcome::SnapshotTaken(..))));
        }
        let rounds = round.saturating_sub(1)..=round;
        let of_group = |group: usize| {
            rounds.clone().map(move |at| format!("snapshot-{group:05}-{:010}", 2 * at + group - 1))
        };
        let present = 2 * round;
        let expected: Vec<_> = of_group(1).chain(of_group(2)).collect();
        assert_eq!(of_both(&disk), expected, "round {round}");
        for group in [1, 2] {
            let mut reader = log.open_snapshot(group).unwrap();
            let mut chunk = Vec::new();
            assert!(reader.read(&mut disk, &mut chunk).unwrap() && chunk == state);
            assert!(reader.read(&mut disk, &mut chunk).unwrap() && chunk == b"end");
            assert!(!reader.read(&mut disk, &mut chunk).unwrap());
            log.close_snapshot(reader);
        }
        for (file, bytes) in
            disk.contents().iter().filter(|(file, _)| file.ends_with(&format!("{present:010}")))
        {
            assert!(
                bytes.len() < 2 * (length + 500),
                "{file}: {} bytes of a longer one are left",
                bytes.len()
            );
        }
    }
    disk.lose_power(Survivors::Nothing);
    let opening = open(&mut disk, options()).unwrap();
    assert_eq!(opening.snapshots().len(), 2);
    opening.replay(&mut disk, |_| {}).unwrap();
    assert_eq!(of_both(&disk).len(), 2, "those that waited are gone");
    // The files of small snapshots are not kept.
    let mut log = start(&mut disk);
    for _ in 0..3 {
        snapshot(&mut log, &mut disk, 1, &[b"small"]);
    }
    assert_eq!(of_both(&disk).iter().filter(|file| file.starts_with("snapshot-00001")).count(), 1);
    // A dropped group leaves nothing.
    log.forget(2);
    upkeep(&mut log, &mut disk);
    assert!(of_both(&disk).iter().all(|file| file.starts_with("snapshot-00001")));
}

#[test]
fn a_segment_becomes_the_first_one_only_when_its_header_is_durable() {
    let mut disk = SimulatedDisk::new(1);
    let mut log = start(&mut disk);
    log.append(1, 1, &[7; 3500]);
    log.write(&mut disk).unwrap();
    snapshot(&mut log, &mut disk, 1, &[b"state"]);
    assert_eq!(log.durable(), log.end());
    // The next segment begins where the snapshot ends: the segment before it is not needed any more. But a
    // crash may still destroy the new segment's header.
    log.append(1, 2, &[7; 3500]);
    log.write(&mut disk).unwrap();
    while let Some(work) = log.begin_upkeep().unwrap() {
        let result = work.run(&mut disk);
        log.finished(work, result).unwrap();
    }
    assert_eq!(log.segment_numbers().start, 0);
    disk.lose_power(Survivors::Nothing);
    assert_eq!(start(&mut disk).durable(), log.durable());
}

#[test]
fn a_snapshot_is_read_back_in_its_chunks_at_a_start_and_while_the_log_runs() {
    let mut disk = SimulatedDisk::new(1);
    let mut log = start(&mut disk);
    log.append(1, 1, b"value");
    // The entries that the snapshot covers have not been synced; it waits for that.
    log.write(&mut disk).unwrap();
    let position = log.end();
    let outcomes = snapshot(&mut log, &mut disk, 1, &[b"first", b"", b"third"]);
    assert!(outcomes.contains(&Outcome::SnapshotTaken(1, position)), "{outcomes:?}");
    assert!(log.durable() >= position);

    disk.lose_power(Survivors::Nothing);
    let opening = open(&mut disk, options()).unwrap();
    let mut reader = opening.snapshot(1).unwrap();
    assert_eq!((reader.group(), reader.position(), reader.chunks()), (1, position, 3));
    let (mut chunks, mut chunk) = (Vec::new(), Vec::new());
    while reader.read(&mut disk, &mut chunk).unwrap() {
        chunks.push(chunk.clone());
    }
    assert_eq!(chunks, [&b"first"[..], b"", b"third"]);
    assert!(!reader.read(&mut disk, &mut chunk).unwrap());
    assert!(opening.snapshot(2).is_none());
    let (_, replayed) = opening.replay(&mut disk, |entry| panic!("{entry:?}")).unwrap();
    assert_eq!(replayed.entries, 0);
}

#[test]
fn a_large_snapshot_is_written_piece_by_piece_beside_the_loop() {
    let mut disk = SimulatedDisk::new(1);
    let mut log = start(&mut disk);
    upkeep(&mut log, &mut disk);
    log.append(1, 1, b"value");
    log.write(&mut disk).unwrap();
    let end = log.end();
    let mut writer = log.begin_snapshot(1, end).unwrap();
    let mut written = 0;
    for chunk in 0..64 {
        log.append_snapshot(&mut writer, &[chunk; 10_000]).unwrap();
        if log.is_pacing_snapshot() {
            let work = log.begin_upkeep().unwrap().expect("what is gathered is to be written");
            assert!(log.is_pacing_snapshot(), "until that is over");
            let Some(Step::WriteThrough { file, offset, bytes }) = work.steps().last() else {
                panic!("{work:?}")
            };
            assert!(file.starts_with("snapshot") && *offset == written);
            assert!(bytes.len().is_multiple_of(SEGMENT_BYTES as usize / 4));
            written += bytes.len() as u64;
            let result = work.run(&mut disk);
            assert_eq!(log.finished(work, result), Ok(Outcome::Tidied));
            assert!(!log.is_pacing_snapshot());
        }
    }
    assert!(written > 600_000, "{written} of 640 000 bytes");
    log.commit_snapshot(writer).unwrap();
    let work = log.begin_sync().unwrap().unwrap();
    let result = work.run(&mut disk);
    log.finished(work, result).unwrap();
    upkeep(&mut log, &mut disk);
    let mut reader = log.open_snapshot(1).expect("it was taken");
    let mut chunk = Vec::new();
    for number in 0..64 {
        assert!(reader.read(&mut disk, &mut chunk).unwrap());
        assert!(chunk == [number; 10_000], "chunk {number}");
    }
    assert!(!reader.read(&mut disk, &mut chunk).unwrap());
    log.close_snapshot(reader);
}

#[test]
fn nothing_more_is_written_of_an_abandoned_snapshot() {
    let mut disk = SimulatedDisk::new(1);
    let mut log = start(&mut disk);
    upkeep(&mut log, &mut disk);
    let mut writer = log.begin_snapshot(1, 0).unwrap();
    log.append_snapshot(&mut writer, &[7; 1 << 20]).unwrap();
    let work = log.begin_upkeep().unwrap().unwrap();
    log.append_snapshot(&mut writer, &[7; 1 << 20]).unwrap();
    // One part of it is being written, another part waits.
    log.abandon_snapshot(writer);
    let result = work.run(&mut disk);
    assert!(files(&disk).iter().any(|file| file.starts_with("snapshot")));
    assert_eq!(log.finished(work, result), Ok(Outcome::Tidied));
    assert!(!log.is_pacing_snapshot());
    upkeep(&mut log, &mut disk);
    assert!(!files(&disk).iter().any(|file| file.starts_with("snapshot")));
}

#[test]
fn a_snapshot_that_is_being_read_stays_when_a_newer_one_replaces_it() {
    let mut disk = SimulatedDisk::new(1);
    let mut log = start(&mut disk);
    snapshot(&mut log, &mut disk, 1, &[b"old"]);
    let mut reader = log.open_snapshot(1).unwrap();
    snapshot(&mut log, &mut disk, 1, &[b"new"]);
    let mut chunk = Vec::new();
    assert!(reader.read(&mut disk, &mut chunk).unwrap());
    assert_eq!(chunk, b"old");
    log.close_snapshot(reader);
    upkeep(&mut log, &mut disk);
    let snapshots: Vec<_> = files(&disk).into_iter().filter(|file| file.starts_with("snapshot")).collect();
    assert_eq!(snapshots, ["snapshot-00001-0000000001"]);
}

#[test]
fn an_unfinished_snapshot_is_removed_at_the_next_start() {
    let mut disk = SimulatedDisk::new(1);
    let mut log = start(&mut disk);
    let mut writer = log.begin_snapshot(1, 0).unwrap();
    log.append_snapshot(&mut writer, &[7; 10_000]).unwrap();
    upkeep(&mut log, &mut disk);
    assert!(files(&disk).contains(&"snapshot-00001-0000000000".to_owned()));
    let opening = open(&mut disk, options()).unwrap();
    assert!(opening.snapshots().is_empty());
    opening.replay(&mut disk, |_| {}).unwrap();
    assert!(!files(&disk).iter().any(|file| file.starts_with("snapshot")));
}

#[test]
fn other_files_in_the_folder_are_left_alone() {
    let mut disk = SimulatedDisk::new(1);
    disk.put("quorate.pid", b"7\n");
    disk.put("segment-of-somebody", b"else");
    start(&mut disk);
    assert_eq!(files(&disk), ["manifest", "quorate.pid", "segment-0000000000", "segment-of-somebody"]);
}

#[test]
fn a_forgotten_group_can_start_again_under_its_old_number() {
    let mut disk = SimulatedDisk::new(1);
    let mut log = start(&mut disk);
    log.append(1, 1, b"old");
    log.forget(1);
    log.append(1, 2, b"new");
    log.write(&mut disk).unwrap();
    upkeep(&mut log, &mut disk);
    disk.lose_power(Survivors::Nothing);
    let mut kinds = Vec::new();
    open(&mut disk, options()).unwrap().replay(&mut disk, |entry| kinds.push(entry.kind)).unwrap();
    assert_eq!(kinds, [2]);
}
