//! The test disks: how the simulated one treats what is written to it, and that a log works on the one in memory.

use std::collections::BTreeSet;

use storage::{Cause, Disk as _, MemoryDisk, Verb, open};

use crate::support::disk::{Folder as _, SimulatedDisk, Survivors};
use crate::support::options;

const OLD: [u8; 1024] = [1; 1024];
const NEW: [u8; 1024] = [2; 1024];

/// A disk with one file of two safe sectors.
fn with_file(seed: u64) -> SimulatedDisk {
    let mut disk = SimulatedDisk::new(seed);
    disk.put("file", &OLD);
    disk
}

fn bytes(disk: &SimulatedDisk) -> Vec<u8> {
    disk.files().find(|(name, _)| *name == "file").map(|(_, bytes)| bytes.to_vec()).unwrap()
}

#[test]
fn an_unsynced_sector_is_the_old_one_or_any_written_since() {
    let mut found = BTreeSet::new();
    for seed in 0..200 {
        let mut disk = with_file(seed);
        disk.write("file", 0, &NEW).unwrap();
        disk.write("file", 0, &[3; 512]).unwrap();
        assert!(!disk.is_safe("file", 0) && !disk.is_safe("file", 1023));
        disk.lose_power(Survivors::Random);
        let bytes = bytes(&disk);
        assert!(bytes.chunks(512).all(|sector| sector.iter().all(|byte| *byte == sector[0])), "none is torn");
        found.insert((bytes[0], bytes[512]));
    }
    assert_eq!(found, [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)].into());
}

#[test]
fn synced_bytes_survive_and_those_written_during_the_sync_may_not() {
    let mut disk = with_file(1);
    disk.write("file", 0, &[3; 512]).unwrap();
    let begun = disk.moment();
    disk.write("file", 0, &NEW).unwrap();
    disk.since(begun, |disk| disk.sync("file")).unwrap();
    disk.lose_power(Survivors::Nothing);
    assert_eq!(bytes(&disk), [[3; 512], [1; 512]].concat());
    assert!(disk.is_safe("file", 0));
}

#[test]
fn what_a_failed_sync_lost_is_readable_until_a_power_loss_and_no_later_sync_saves_it() {
    let mut disk = with_file(1);
    disk.write("file", 0, &NEW).unwrap();
    disk.refusal = Some((Verb::Sync, Cause::Failed("input/output error".to_owned())));
    disk.sync("file").unwrap_err();
    disk.sync("file").unwrap();
    assert_eq!(bytes(&disk), NEW);
    // A write of part of a sector makes all of that sector dirty again.
    disk.write("file", 600, &[4]).unwrap();
    disk.sync("file").unwrap();
    disk.lose_power(Survivors::Everything);
    let bytes = bytes(&disk);
    assert_eq!((&bytes[..512], bytes[600], bytes[601]), (&OLD[..512], 4, 2));
}

#[test]
fn an_unsynced_file_may_be_too_short_or_missing() {
    let mut lengths = BTreeSet::new();
    let mut gone = 0;
    for seed in 0..200 {
        let mut disk = SimulatedDisk::new(seed);
        disk.create("file", 4096).unwrap();
        disk.lose_power(Survivors::Random);
        match disk.length("file") {
            Ok(length) => drop(lengths.insert(length)),
            Err(_) => gone += 1,
        }
    }
    assert!(gone > 50 && lengths.contains(&0) && lengths.contains(&4096) && lengths.len() > 4, "{lengths:?}");
}

#[test]
fn a_full_disk_refuses_only_what_makes_files_longer() {
    let mut disk = with_file(1);
    disk.capacity = Some(disk.used_bytes());
    disk.write("file", 0, &NEW).unwrap();
    let refused = disk.write("file", 1024, b"more").unwrap_err();
    assert_eq!((refused.verb, refused.cause), (Verb::Write, Cause::Full));
    assert!(disk.create("other", 1).is_err());
    disk.capacity = None;
    disk.write("file", 1024, b"more").unwrap();
}

#[test]
fn a_log_works_on_the_disk_in_memory() {
    let mut disk = MemoryDisk::new();
    for openings in 0..3_u64 {
        let mut replayed = Vec::new();
        let opening = open(&mut disk, options()).unwrap();
        let (mut log, _) = opening.replay(&mut disk, |entry| replayed.push(entry.bytes[0])).unwrap();
        assert_eq!(replayed, (0..openings as u8).collect::<Vec<_>>());
        log.append(1, 1, &[openings as u8]);
        log.write(&mut disk).unwrap();
        while let Some(work) = log.begin_upkeep().unwrap() {
            let result = work.run(&mut disk);
            log.finished(work, result).unwrap();
        }
    }
    assert_eq!(disk.remove("nothing"), Ok(()));
    assert_eq!(disk.length("nothing").unwrap_err().cause, Cause::Missing);
}
