//! The latest changes, as returned to a reader that remembers the version it has read up to.

use super::*;
use crate::table::Follows;

fn recent(table: &mut Table, from: Version, bytes_max: u32) -> (Version, Version, Vec<Version>) {
    let mut out = ReplyBuffer::new();
    table.read(&Command::Recent { from, bytes_max }, 0, &mut out);
    let mut reader = Reader::new(out.as_bytes());
    let mut next = || Reply::decode(&mut reader).unwrap();
    let Reply::Array(count) = next() else { panic!("{:?}", Reply::first(out.as_bytes())) };
    let (Reply::Integer(since), Reply::Integer(until)) = (next(), next()) else { panic!("two versions") };
    let mut versions = Vec::new();
    for _ in 2..count {
        let (Reply::Array(4), Reply::Integer(version)) = (next(), next()) else { panic!("a record") };
        assert_eq!(next(), Reply::Integer(1_000_000), "its time");
        versions.push(version as Version);
        for _ in 0..2 {
            let Reply::Array(items) = next() else { panic!("events or effects") };
            for _ in 0..items {
                let Reply::Array(words) = next() else { panic!("words") };
                (0..words).for_each(|_| assert!(matches!(next(), Reply::Bulk(_))));
            }
        }
    }
    (since as Version, until as Version, versions)
}

fn store(bytes_max: usize) -> Store {
    let mut store = Store::new();
    store.table.keep_history(bytes_max);
    store
}

#[test]
fn a_reader_gets_each_change_once_and_in_order() {
    let mut store = store(1 << 20);
    for number in 0..10 {
        store.set(&format!("k{number}"), "v");
    }
    // A command without effect is no change.
    store.apply(&Command::Persist { key: b"k0" });
    assert_eq!(recent(&mut store.table, 0, u32::MAX), (0, 10, (1..=10).collect()));
    assert_eq!(recent(&mut store.table, 7, u32::MAX), (0, 10, vec![8, 9, 10]));
    // At least one record, however little room there is.
    assert_eq!(recent(&mut store.table, 7, 1), (0, 8, vec![8]));
    assert_eq!(recent(&mut store.table, 10, u32::MAX), (0, 10, vec![]));
    // A reader that has read at a replica with a higher version must wait for this one.
    assert_eq!(recent(&mut store.table, 12, u32::MAX), (0, 10, vec![]));
}

#[test]
fn a_reader_that_is_too_late_notices() {
    let mut store = store(1000);
    for number in 0..100 {
        store.set(&format!("k{number}"), "value");
    }
    let (since, until, versions) = recent(&mut store.table, 0, u32::MAX);
    assert!(since > 80 && until == 100 && versions.is_empty(), "{since} {until}");
    assert_eq!(recent(&mut store.table, since, u32::MAX).2, (since + 1..=100).collect::<Vec<_>>());
    assert!(store.table.history().unwrap().bytes() <= 1000);
    // A record with more changes than are kept is not returned.
    store.set("k", &"v".repeat(2000));
    assert_eq!(recent(&mut store.table, 100, u32::MAX), (101, 101, vec![]));
    store.set("k", "v");
    assert_eq!(recent(&mut store.table, 101, u32::MAX), (101, 102, vec![102]));
}

#[test]
fn no_history_is_kept_unless_requested() {
    let mut store = Store::new();
    store.set("k", "v");
    assert!(store.table.history().is_none());
    let mut out = ReplyBuffer::new();
    store.table.read(&Command::Recent { from: 0, bytes_max: 1 }, 0, &mut out);
    assert!(ReplyBuffer::is_error(out.as_bytes()));
    // The history begins where it is switched on.
    store.table.keep_history(1 << 20);
    assert_eq!(recent(&mut store.table, 0, u32::MAX), (1, 1, vec![]));
    store.set("k", "w");
    assert_eq!(recent(&mut store.table, 0, u32::MAX), (1, 2, vec![]));
    assert_eq!(recent(&mut store.table, 1, u32::MAX), (1, 2, vec![2]));
}

#[test]
fn readers_notice_the_gap_of_an_installed_snapshot() {
    let mut source = store(1 << 20);
    let mut replica = store(1 << 20);
    for number in 0..5 {
        source.set(&format!("k{number}"), "v");
        replica.set(&format!("k{number}"), "v");
    }
    for number in 5..9 {
        source.set(&format!("k{number}"), "v");
    }
    let snapshot = source.table.begin_snapshot();
    let (mut copy, mut chunk) = (Table::new(7), Vec::new());
    while source.table.snapshot_chunk(snapshot, 10, &mut chunk) {
        copy.install(&chunk).unwrap();
        chunk.clear();
    }
    copy.install(&chunk).unwrap();
    copy.set_version_floor(source.table.version_floor());
    replica.table.replace(copy);
    replica.offset = 9;
    assert_eq!(recent(&mut replica.table, 5, u32::MAX), (9, 9, vec![]), "5 to 9 were never applied here");
    replica.set("k", "v");
    assert_eq!(recent(&mut replica.table, 5, u32::MAX), (9, 10, vec![]));
    assert_eq!(recent(&mut replica.table, 9, u32::MAX), (9, 10, vec![10]));
}

#[test]
fn a_reader_of_changes_that_were_then_lost_notices() {
    let mut store = store(1 << 20);
    for number in 0..5 {
        store.set(&format!("k{number}"), "v");
    }
    let skip = Command::SkipVersions { by: 100 };
    store.apply(&skip);
    // One has read 6 to 9 of the lost history, and one has read everything that is left: both start again.
    for from in [9, 5] {
        assert_eq!(recent(&mut store.table, from, u32::MAX), (106, 106, vec![]));
    }
    store.set("k", "v");
    assert_eq!(recent(&mut store.table, 106, u32::MAX), (106, 107, vec![107]));
}

#[test]
fn followers_and_later_readers_get_the_same_changes() {
    let mut store = store(1 << 20);
    store.table.follow_changes(Follows { changes: true, ..Follows::default() });
    store.set("k", "v");
    store.set("k", "w");
    assert_eq!(store.table.take_changes().map(|changes| changes.iter().count()), Some(3));
    store.set("k", "x");
    store.table.follow_changes(Follows { changes: false, ..Follows::default() });
    store.set("k", "y");
    assert!(store.table.take_changes().is_none());
    assert_eq!(recent(&mut store.table, 0, u32::MAX).2, [1, 2, 3, 4]);
}
