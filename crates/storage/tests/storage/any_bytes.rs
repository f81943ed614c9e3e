//! Files with arbitrary bytes: they are read or refused, never cause a panic, and never take more
//! memory than the files are long.

use proptest::prelude::*;
use storage::open;

use crate::support::disk::{Folder as _, SimulatedDisk, Survivors};
use crate::support::options;

/// A log with entries and a snapshot.
fn folder() -> SimulatedDisk {
    let mut disk = SimulatedDisk::new(1);
    let (mut log, _) = open(&mut disk, options()).unwrap().replay(&mut disk, |_| {}).unwrap();
    for kind in 0..4 {
        log.append(1, kind, &[kind as u8; 400]);
        log.write(&mut disk).unwrap();
    }
    let mut writer = log.begin_snapshot(2, 0).unwrap();
    log.append_snapshot(&mut writer, b"state").unwrap();
    log.commit_snapshot(writer).unwrap();
    while let Some(work) = log.begin_upkeep().unwrap() {
        let result = work.run(&mut disk);
        log.finished(work, result).unwrap();
    }
    disk.lose_power(Survivors::Everything);
    disk
}

fn read(mut disk: SimulatedDisk) {
    let Ok(opening) = open(&mut disk, options()) else { return };
    let mut chunk = Vec::new();
    for mut snapshot in opening.snapshots() {
        while snapshot.read(&mut disk, &mut chunk).unwrap_or(false) {}
    }
    let _ = opening.replay(&mut disk, |_| {});
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_instead_of_a_file(file in 0..4usize, bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        let mut disk = folder();
        let name = disk.contents()[file].0.clone();
        disk.tamper(&name, |contents| *contents = bytes);
        read(disk);
    }

    #[test]
    fn arbitrary_bytes_within_a_file(
        file in 0..4usize,
        at in 0..2200usize,
        bytes in prop::collection::vec(any::<u8>(), 1..80),
    ) {
        let mut disk = folder();
        let name = disk.contents()[file].0.clone();
        disk.tamper(&name, |contents| {
            let at = at.min(contents.len());
            let end = (at + bytes.len()).min(contents.len());
            contents[at..end].copy_from_slice(&bytes[..end - at]);
        });
        read(disk);
    }
}
