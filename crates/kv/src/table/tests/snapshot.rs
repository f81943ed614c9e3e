//! Snapshots: the table as it was when the snapshot began, whatever is written in the meantime.

use super::super::NO_DEADLINE as NEVER;
use super::super::entry::Entry;
use super::model::{records, replay};
use super::*;
use crate::SnapshotId;
use crate::table::kind::Kind;
use proptest::collection::vec;
use proptest::prelude::*;

/// All remaining chunks of a snapshot.
fn rest(table: &mut Table, id: SnapshotId, bytes_max: usize) -> Vec<Vec<u8>> {
    let mut chunks = Vec::new();
    loop {
        let mut chunk = Vec::new();
        let more = table.snapshot_chunk(id, bytes_max, &mut chunk);
        chunks.push(chunk);
        if !more {
            return chunks;
        }
    }
}

fn installed(chunks: &[Vec<u8>], floor: Version) -> Table {
    let mut table = Table::new(99);
    for chunk in chunks {
        table.install(chunk).unwrap();
    }
    table.set_version_floor(floor);
    table
}

#[test]
fn a_snapshot_of_an_unchanged_table_equals_the_table() {
    let mut store = Store::new();
    for number in 0..10_000 {
        store.play(&format!("SET k{number} v{number} EX {} -> OK", 10 + number));
    }
    store.play("SET raw 1 -> OK\nAPPEND raw 2 -> 2\nDEL k5 k50 k500 -> 3");
    let id = store.table.begin_snapshot();
    let chunks = rest(&mut store.table, id, 4096);
    assert!(chunks.len() > 50);
    assert!(chunks.iter().all(|chunk| chunk.len() < 4096 + 50));
    let copy = installed(&chunks, store.table.version_floor());
    assert_eq!(copy.digest(), store.table.digest());
    assert_eq!((copy.len(), copy.expires()), (9998, 9997));
    let mut copy = Store { table: copy, ..store };
    copy.play("ENCODING raw -> \"raw\"\nGET k7 -> \"v7\"\nTTL k7 -> 17");
}

#[test]
fn a_table_goes_on_with_what_it_has_written_and_read_back() {
    let mut store = Store::new();
    for number in 0..3000 {
        store.play(&format!("SET k{number} v EX {} -> OK\nRPUSH l {number} -> {}", 10 + number, number + 1));
    }
    store
        .play("HSETEX h EX 5 FIELDS a 1 b 2 -> 1\nZADD z 1 m -> 1\nSADD s m -> 1\nXADD x 5-1 f v -> \"5-1\"");
    let before = (store.table.digest(), store.table.len(), store.table.expires());
    let id = store.table.begin_snapshot();
    assert!(store.table.reload().is_err(), "a snapshot is open");
    store.table.end_snapshot(id);
    store.table.reload().unwrap();
    store.table.check_invariants();
    assert_eq!((store.table.digest(), store.table.len(), store.table.expires()), before);
    store.play("GET k7 -> \"v\"\nLLEN l -> 3000\nHTTL h FIELDS a -> [5]\nRPOP l -> \"2999\"\nDEL k7 -> 1");
    store.table.check_invariants();
}

#[test]
fn a_chunk_holds_at_least_one_entry_and_an_ended_snapshot_has_none() {
    let mut store = Store::new();
    let id = store.table.begin_snapshot();
    assert_eq!(rest(&mut store.table, id, 100), [b""], "an empty table");
    store.play("MSET a 1 b 2 c 3 -> OK");
    let id = store.table.begin_snapshot();
    assert_eq!(rest(&mut store.table, id, 0).iter().filter(|chunk| !chunk.is_empty()).count(), 3);
    store.table.end_snapshot(id);
    assert!(!store.table.snapshot_chunk(id, 100, &mut Vec::new()));
}

#[test]
fn a_cleared_table_is_still_in_its_earlier_snapshots() {
    let mut store = Store::new();
    for number in 0..100 {
        store.set(&format!("k{number}"), "v");
    }
    let (digest, floor) = (store.table.digest(), store.table.version_floor());
    let first = store.table.begin_snapshot();
    let second = store.table.begin_snapshot();
    let mut begun = vec![Vec::new()];
    assert!(store.table.snapshot_chunk(first, 500, &mut begun[0]));
    store.play("SET k50 changed -> OK\nDEL k60 -> 1\nFLUSHALL -> OK");
    store.play("SET k70 new -> OK\nSET k71 new -> OK\nFLUSHALL -> OK\nSET k72 new -> OK");
    let third = store.table.begin_snapshot();
    begun.extend(rest(&mut store.table, first, 500));
    assert_eq!(installed(&begun, floor).digest(), digest);
    let chunks = rest(&mut store.table, second, 500);
    assert_eq!(installed(&chunks, floor).digest(), digest);
    let chunks = rest(&mut store.table, third, 500);
    assert_eq!(installed(&chunks, store.table.version_floor()).digest(), store.table.digest());
}

/// If the table did not grow early, filling it in the order of its hashes would put all entries far from their homes.
#[test]
fn a_snapshot_can_be_installed_in_a_table_with_the_same_seed() {
    let mut store = Store::new();
    (0..200_000).for_each(|number| store.set(&format!("k{number}"), "v"));
    let id = store.table.begin_snapshot();
    let mut copy = Table::new(1);
    for chunk in rest(&mut store.table, id, 4096) {
        copy.install(&chunk).unwrap();
    }
    copy.set_version_floor(store.table.version_floor());
    assert_eq!(copy.digest(), store.table.digest());
    assert!(copy.memory_bytes() < store.table.memory_bytes() * 3 / 2);
}

#[test]
fn malformed_chunks_are_an_error() {
    let mut store = Store::new();
    store.play("MSET key value other more -> OK");
    let id = store.table.begin_snapshot();
    let chunk = rest(&mut store.table, id, 1000).concat();
    assert_eq!(Table::new(1).install(&chunk), Ok(2));
    let length = chunk.len();
    for end in (1..length).filter(|end| *end != length - (8 + 8 + 1 + 4 + 5 + 4 + 4) && *end != length - 33) {
        let whole = Table::new(1).install(&chunk[..end]);
        assert!(whole.is_err(), "cut at {end} of {length}: {whole:?}");
    }
    let mut wrong_kind = chunk.clone();
    wrong_kind[16] = 3;
    assert!(Table::new(1).install(&wrong_kind).is_err());
}

/// A value that a snapshot sends in pieces.
fn large(byte: u8) -> Vec<u8> {
    (0..1000u32).map(|at| byte ^ at as u8).collect()
}

#[test]
fn a_large_value_is_sent_in_pieces_as_it_was_when_the_snapshot_began() {
    type Change = fn(&mut Store);
    let changes: [(&str, Change); 6] = [
        ("nothing", |_| {}),
        ("overwritten in place", |store| drop(store.apply(&plain_set(b"k", &large(7))))),
        ("a shorter value", |store| store.set("k", "v")),
        ("removed", |store| drop(store.delete("k"))),
        ("all removed", |store| drop(store.apply(&Command::Clear {}))),
        ("another entry in its place", |store| {
            let stamp = super::super::entry::Stamp { version: 50, deadline: NEVER, kind: Kind::Plain };
            let entry = Entry::new(b"k", &large(9), stamp);
            store.table.put_entry(entry, super::super::Record { version: 50, time: 0 });
        }),
    ];
    for (what, change) in changes {
        for chunks_before in 0..4 {
            let mut store = Store::new();
            store.play("SET a 1 -> OK");
            store.apply(&plain_set(b"k", &large(1)));
            store.play("SET b 2 -> OK");
            let (digest, floor) = (store.table.digest(), store.table.version_floor());
            let id = store.table.begin_snapshot();
            let mut chunks = Vec::new();
            for _ in 0..chunks_before {
                let mut chunk = Vec::new();
                assert!(store.table.snapshot_chunk(id, 100, &mut chunk), "there is more");
                assert!(chunk.len() < 200, "{} bytes at a time", chunk.len());
                chunks.push(chunk);
            }
            change(&mut store);
            chunks.extend(rest(&mut store.table, id, 100));
            assert_eq!(installed(&chunks, floor).digest(), digest, "{what} after {chunks_before} chunks");
        }
    }
}

#[test]
fn repeated_pieces_are_ignored_and_a_missing_piece_is_noticed() {
    let mut store = Store::new();
    store.apply(&plain_set(b"k", &large(1)));
    let id = store.table.begin_snapshot();
    let chunks = rest(&mut store.table, id, 1);
    let again: Vec<Vec<u8>> = chunks[..3].iter().chain(&chunks).cloned().collect();
    assert_eq!(installed(&again, store.table.version_floor()).digest(), store.table.digest());
    let mut other = Table::new(3);
    assert_eq!(other.install(&chunks[0]), Ok(0));
    assert!(other.install(&chunks[2]).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_bytes_can_be_installed_without_a_panic(chunk in vec(any::<u8>(), 0..200)) {
        let _ = Table::new(1).install(&chunk);
    }

    /// Random records continue while chunks of several snapshots, begun at different times, are read. Each snapshot,
    /// installed elsewhere, equals the table at the snapshot's beginning.
    #[test]
    fn a_snapshot_equals_the_table_at_its_beginning(
        before in records(0..150),
        meanwhile in vec((records(0..12), 0..200usize), 1..20),
        second_after in 0..10usize,
        is_colliding in any::<bool>(),
    ) {
        let mut table = if is_colliding { colliding(1) } else { Table::new(1) };
        let mut offset = 0;
        replay(&mut table, &before, &mut offset);
        let begin = |table: &mut Table| {
            (table.digest(), table.version_floor(), table.len(), table.begin_snapshot(), Vec::new())
        };
        let mut snapshots = vec![begin(&mut table)];
        for (step, (records, bytes_max)) in meanwhile.iter().enumerate() {
            replay(&mut table, records, &mut offset);
            if step == second_after {
                snapshots.push(begin(&mut table));
            }
            for (_, _, _, id, chunks) in &mut snapshots {
                let mut chunk = Vec::new();
                table.snapshot_chunk(*id, *bytes_max, &mut chunk);
                chunks.push(chunk);
            }
        }
        for (digest, floor, keys, id, mut chunks) in snapshots {
            chunks.extend(rest(&mut table, id, 100));
            table.end_snapshot(id);
            let mut copy = Table::new(1);
            let count: usize = chunks.iter().map(|chunk| copy.install(chunk).unwrap()).sum();
            prop_assert_eq!(count, keys, "no entry is sent twice");
            let copy = installed(&chunks, floor);
            prop_assert_eq!(copy.digest(), digest);
            copy.check_invariants();
            table.check_invariants();
        }
    }
}
