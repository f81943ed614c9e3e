//! The format, byte for byte. When one of these bytes changes, the version must change, too, so that old
//! files are refused because of it.

use storage::{Log, open};

use crate::support::disk::{Folder as _, SimulatedDisk};
use crate::support::options;

/// Sixteen bytes per row, without the rows of zeros at the end.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    for (row, at) in bytes[..used].chunks(16).zip((0..).step_by(16)) {
        if row.iter().any(|byte| *byte != 0) {
            let row: Vec<String> = row.iter().map(|byte| format!("{byte:02x}")).collect();
            text += &format!("{at:04x}: {}\n", row.join(" "));
        }
    }
    text
}

fn upkeep(log: &mut Log, disk: &mut SimulatedDisk) {
    while let Some(work) = log.begin_upkeep().unwrap() {
        let result = work.run(disk);
        log.finished(work, result).unwrap();
    }
}

#[test]
fn the_format_is_fixed() {
    let mut disk = SimulatedDisk::new(1);
    let (mut log, _) = open(&mut disk, options()).unwrap().replay(&mut disk, |_| {}).unwrap();
    log.append(7, 1, b"quorate");
    log.append(8, 2, b"log");
    log.write(&mut disk).unwrap();
    let work = log.begin_sync().unwrap().unwrap();
    let result = work.run(&mut disk);
    log.finished(work, result).unwrap();
    log.append(7, 3, b"");
    log.write(&mut disk).unwrap();
    // The log is durable up to here.
    let mut writer = log.begin_snapshot(8, 60).unwrap();
    log.append_snapshot(&mut writer, b"state").unwrap();
    log.commit_snapshot(writer).unwrap();
    upkeep(&mut log, &mut disk);

    let mut found = String::new();
    for (name, bytes) in disk.contents() {
        found += &format!("{name}, {} bytes\n{}", bytes.len(), hex(&bytes));
    }
    assert_eq!(found, include_str!("format.txt"), "found:\n{found}");
}

#[test]
fn a_log_of_another_version_is_refused_with_the_reason_and_left_unchanged() {
    let mut disk = SimulatedDisk::new(1);
    drop(open(&mut disk, options()).unwrap().replay(&mut disk, |_| {}).unwrap());
    // As that version would have written it: with a correct checksum.
    disk.tamper("manifest", |bytes| {
        bytes[8..12].copy_from_slice(&1u32.to_le_bytes());
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&0u64.to_le_bytes());
        hasher.update(&bytes[..12]);
        hasher.update(&bytes[16..]);
        bytes[12..16].copy_from_slice(&hasher.finalize().to_le_bytes());
    });
    let before = disk.contents();
    let refused = open(&mut disk, options()).map(|_| ()).unwrap_err().to_string();
    assert!(
        refused.starts_with("manifest has format version 1, and this program reads version 3"),
        "{refused}"
    );
    assert_eq!(disk.contents(), before);
}
