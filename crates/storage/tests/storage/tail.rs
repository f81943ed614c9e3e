//! What a crash leaves at the end of the log, and how it is distinguished from damage.

use storage::{Cause, Log, Position, StorageError, Torn, Verb, open};

use crate::support::disk::{Folder as _, SimulatedDisk, Survivors, Trouble};
use crate::support::{flip_bit, options, zero_sector};

const SEGMENT: &str = "segment-0000000000";

/// What a start finds: the kinds of the entries, the end, and the tail that was cut.
fn start(disk: &mut SimulatedDisk) -> Result<(Log, Vec<u16>, Option<Torn>), StorageError> {
    let mut kinds = Vec::new();
    let (log, replayed) = open(disk, options())?.replay(disk, |entry| kinds.push(entry.kind))?;
    Ok((log, kinds, replayed.torn))
}

fn write(log: &mut Log, disk: &mut SimulatedDisk, kind: u16, bytes: usize) -> Position {
    let position = log.append(1, kind, &vec![kind as u8; bytes]);
    log.write(disk).unwrap();
    position
}

fn sync(log: &mut Log, disk: &mut SimulatedDisk) {
    let work = log.begin_sync().unwrap().unwrap();
    let result = work.run(disk);
    log.finished(work, result).unwrap();
}

fn upkeep(log: &mut Log, disk: &mut SimulatedDisk) {
    while let Some(work) = log.begin_upkeep().unwrap() {
        let result = work.run(disk);
        log.finished(work, result).unwrap();
    }
}

/// A log with a durable batch 1, and after it batches 2 (so long that batch 3 begins a sector) and 3 (of 10
/// bytes), which were written and survive the crash.
fn crashed(sync_second: bool) -> SimulatedDisk {
    let mut disk = SimulatedDisk::new(1);
    let (mut log, ..) = start(&mut disk).unwrap();
    write(&mut log, &mut disk, 1, 10);
    sync(&mut log, &mut disk);
    write(&mut log, &mut disk, 2, LONG as usize);
    if sync_second {
        sync(&mut log, &mut disk);
    }
    write(&mut log, &mut disk, 3, 10);
    disk.lose_power(Survivors::Everything);
    disk
}

/// The offsets in the file at which batches 2 and 3 begin; 480 bytes of each sector belong to the log.
const SECOND: u64 = 512 + 64;
const THIRD: u64 = 4 * 512;
const LONG: u64 = 480 - 64 + 2 * 480 - 32 - 8;
/// Their positions in the log.
const SECOND_POSITION: u64 = 64;
const THIRD_POSITION: u64 = 3 * 480;

#[test]
fn written_batches_are_kept_even_if_they_were_not_reported_durable() {
    let (log, kinds, torn) = start(&mut crashed(false)).unwrap();
    assert_eq!((kinds, torn), (vec![1, 2, 3], None));
    assert_eq!(log.durable(), log.end());
}

#[test]
fn a_batch_that_lacks_a_sector_is_cut_with_all_after_it() {
    let mut disk = crashed(false);
    disk.tamper(SEGMENT, |bytes| zero_sector(bytes, 1024));
    let (mut log, kinds, torn) = start(&mut disk).unwrap();
    assert_eq!(kinds, [1]);
    let torn = torn.unwrap();
    assert_eq!((torn.file.as_str(), torn.offset, torn.position), (SEGMENT, SECOND, SECOND_POSITION));

    // The new batch is as long as the cut one: the batch after that must not be found again.
    write(&mut log, &mut disk, 4, LONG as usize);
    disk.lose_power(Survivors::Everything);
    assert_eq!(start(&mut disk).unwrap().1, [1, 4]);
}

#[test]
fn a_tail_that_an_earlier_start_cleared_only_in_memory_is_cleared_on_the_disk() {
    let mut disk = crashed(false);
    disk.tamper(SEGMENT, |bytes| zero_sector(bytes, 1024));
    // The first start clears the tail, and its sync fails. The second start reads zeros there.
    let failed = Trouble::Fail(Cause::Failed("input/output error".to_owned()));
    let failing = (1..100).find_map(|operation| {
        let mut again = disk.clone();
        again.trouble_in(operation, failed.clone());
        match start(&mut again) {
            Err(StorageError::Disk(error)) if error.verb == Verb::Sync && error.file == SEGMENT => {
                Some((again, error))
            }
            _ => None,
        }
    });
    let (mut disk, error) = failing.unwrap();
    assert_eq!(error.to_string(), format!("cannot sync {SEGMENT}: input/output error"));
    let (mut log, kinds, _) = start(&mut disk).unwrap();
    assert_eq!(kinds, [1]);
    write(&mut log, &mut disk, 4, LONG as usize);
    sync(&mut log, &mut disk);
    disk.lose_power(Survivors::Nothing);
    assert_eq!(start(&mut disk).unwrap().1, [1, 4]);
}

#[test]
fn a_batch_of_which_nothing_reached_the_disk_is_cut_too() {
    let mut disk = crashed(false);
    disk.tamper(SEGMENT, |bytes| bytes[SECOND as usize..THIRD as usize].fill(0));
    let (_, kinds, torn) = start(&mut disk).unwrap();
    assert_eq!((kinds, torn.unwrap().bytes > 0), (vec![1], true));
}

#[test]
fn the_same_is_damage_when_a_later_batch_records_that_it_was_durable() {
    for sector in [SECOND as usize, 1024] {
        let mut disk = crashed(true);
        disk.tamper(SEGMENT, |bytes| bytes[sector..sector / 512 * 512 + 512].fill(0));
        let error = start(&mut disk).unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "{SEGMENT} is damaged at byte {SECOND}: the log ends here, at position {SECOND_POSITION}, and the batch at \
                 byte {THIRD} of {SEGMENT} says that it was durable up to {THIRD_POSITION}"
            )
        );
    }
}

#[test]
fn the_same_is_damage_when_the_next_segments_header_records_that() {
    let mut disk = SimulatedDisk::new(1);
    let (mut log, ..) = start(&mut disk).unwrap();
    upkeep(&mut log, &mut disk);
    write(&mut log, &mut disk, 1, 3500);
    sync(&mut log, &mut disk);
    let durable = log.durable();
    write(&mut log, &mut disk, 2, 3500);
    disk.lose_power(Survivors::Everything);
    // Of the second batch, nothing reached the disk but the header of its segment. Then the first batch is
    // lost.
    disk.tamper("segment-0000000001", |bytes| bytes[512..].fill(0));
    assert_eq!(start(&mut disk.clone()).unwrap().1, [1]);
    disk.tamper(SEGMENT, |bytes| bytes[512..].fill(0));
    let error = start(&mut disk).unwrap_err().to_string();
    let expected = format!("segment-0000000001 says that it was durable up to {durable}");
    assert!(error.ends_with(&expected), "{error}");
}

#[test]
fn a_changed_bit_in_the_last_batch_is_damage_and_not_a_torn_tail() {
    for bit in THIRD * 8..(THIRD + 32 + 8 + 10) * 8 {
        let mut disk = crashed(false);
        disk.tamper(SEGMENT, |bytes| flip_bit(bytes, bit as usize));
        let StorageError::Damaged { file, offset, .. } = start(&mut disk).unwrap_err() else {
            panic!("{bit}")
        };
        assert_eq!((file.as_str(), offset), (SEGMENT, THIRD), "bit {bit}");
    }
}

#[test]
fn an_idle_log_is_distinguished_from_a_torn_one_once_its_end_is_noted() {
    for noted in [false, true] {
        let mut disk = SimulatedDisk::new(1);
        let (mut log, ..) = start(&mut disk).unwrap();
        upkeep(&mut log, &mut disk);
        write(&mut log, &mut disk, 1, 10);
        sync(&mut log, &mut disk);
        if noted {
            log.note_durable();
        }
        upkeep(&mut log, &mut disk);
        disk.lose_power(Survivors::Nothing);
        disk.tamper(SEGMENT, |bytes| zero_sector(bytes, 512));
        match start(&mut disk) {
            // Nothing on the disk records the batch any more. This is the one remaining case described on the
            // page of `tail`.
            Ok((_, kinds, _)) => assert!(!noted && kinds.is_empty()),
            Err(error) => {
                assert!(noted);
                assert!(error.to_string().contains("manifest says that it was durable up to 64"), "{error}");
            }
        }
    }
}

#[test]
fn a_value_that_looks_like_a_batch_is_a_value() {
    let mut disk = SimulatedDisk::new(1);
    let (mut log, ..) = start(&mut disk).unwrap();
    // A client could know exactly these bytes: those of a batch of another node's log.
    let mut other = SimulatedDisk::new(1);
    let mut identity = options().identity;
    identity.log += 1;
    let opening = open(&mut other, storage::Options { identity, ..options() }).unwrap();
    let (mut foreign, _) = opening.replay(&mut other, |_| {}).unwrap();
    foreign.append(1, 9, b"planted");
    foreign.write(&mut other).unwrap();
    let bytes = other.contents()[1].1[512..576].to_vec();

    log.append(1, 2, &bytes);
    log.write(&mut disk).unwrap();
    disk.lose_power(Survivors::Everything);
    disk.tamper(SEGMENT, |bytes| bytes[512..544].fill(0));
    // The batch's header is lost: what remains is cut, whatever it looks like.
    let (log, kinds, torn) = start(&mut disk).unwrap();
    assert_eq!((kinds, torn.is_some(), log.end()), (vec![], true, 0));
}
