//! Versions, and how a record assigns them to the keys that it writes.

use super::*;
use crate::{Hold, LockCommand, SKIPPED_VERSIONS};

#[test]
fn a_record_gives_its_number_as_the_version() {
    let mut table = Table::new(1);
    let mut out = ReplyBuffer::new();
    assert_eq!(table.apply(&plain_set(b"k", b"v"), 10, 0, &mut out), 10);
    assert_eq!(table.read(&Command::Get { key: b"k" }, 0, &mut out), 10);
    assert_eq!(table.read(&Command::Get { key: b"missing" }, 0, &mut out), 0);
    assert_eq!(table.version_floor(), 10);
}

#[test]
fn versions_grow_even_after_a_higher_one_came_from_elsewhere() {
    let mut table = Table::new(1);
    let mut out = ReplyBuffer::new();
    let replicate = Command::Replicate { key: b"k", value: b"v", version: 1000 };
    assert_eq!(table.apply(&replicate, 1, 0, &mut out), 1000);
    assert_eq!(table.apply(&plain_set(b"k", b"w"), 2, 0, &mut out), 1001);
    assert_eq!(table.apply(&plain_set(b"l", b"w"), 3, 0, &mut out), 1002);
    assert_eq!(table.apply(&plain_set(b"l", b"w"), 5000, 0, &mut out), 5000);
}

#[test]
fn skipped_versions_are_never_given() {
    let (mut table, mut out) = (Table::new(1), ReplyBuffer::new());
    table.apply(&plain_set(b"k", b"v"), 7, 0, &mut out);
    let skip = Command::SkipVersions { by: SKIPPED_VERSIONS };
    assert_eq!(table.apply(&skip, 8, 0, &mut out), 8 + SKIPPED_VERSIONS);
    assert_eq!(table.read(&Command::Get { key: b"k" }, 0, &mut out), 7, "existing keys keep their versions");
    // A lock's token is its record's version.
    out.clear();
    let acquire = LockCommand::Acquire { name: b"l", owner: b"o", hold: Hold::Lease(1000), waiter: None };
    table.apply(&Command::Lock(acquire), 9, 0, &mut out);
    assert_eq!(Reply::first(out.as_bytes()), Reply::Integer(9 + SKIPPED_VERSIONS as i64));
    assert_eq!(table.apply(&plain_set(b"k", b"w"), 10, 0, &mut out), 10 + SKIPPED_VERSIONS);
}

#[test]
fn a_record_that_changes_nothing_uses_up_no_version() {
    let mut store = Store::new();
    store.play("SET k v -> OK");
    let floor = store.table.version_floor();
    store.play(
        r#"
        SET k w NX              -> nil
        DEL missing             -> 0
        PERSIST k               -> 0
        GETEX k                 -> "v"
        INCRBY k 1              -> !ERR value is not an integer or out of range
        RENAMENX k k            -> 0
        PURGE 5                 -> 0
        SETRANGE k 0 ""         -> 1
    "#,
    );
    assert_eq!(store.table.version_floor(), floor);
}

#[test]
fn every_change_of_a_key_gives_it_a_new_version() {
    let mut store = Store::new();
    let mut before = 0;
    for line in [
        "SET k 1 -> OK",
        "INCRBY k 1 -> 2",
        "APPEND k 3 -> 2",
        "SETRANGE k 0 4 -> 2",
        "INCRBYFLOAT k 1 -> \"44\"",
        "EXPIRE k EX 10 -> 1",
        "PERSIST k -> 1",
        "GETEX k EX 10 -> \"44\"",
        "MSET k 5 l 6 -> OK",
        "RENAME l k -> OK",
        "MSET l 7 -> OK",
        "COPY l k REPLACE -> 1",
        "GETSET k 8 -> \"7\"",
    ] {
        store.play(line);
        let now = store.version("k");
        assert!(line.starts_with("MSET l") || now > before, "{line}: {before}, then {now}");
        assert!(now <= store.table.version_floor());
        before = now;
    }
}

#[test]
fn ordered_reads_are_answered_and_unordered_writes_are_refused() {
    let mut store = Store::new();
    store.set("k", "v");
    assert_eq!(store.apply(&Command::Get { key: b"k" }), "\"v\"");
    assert_eq!(store.apply(&Command::Size {}), "1");
    assert!(store.read(&plain_set(b"k", b"w")).starts_with("!ERR"));
    assert_eq!(store.read(&Command::Get { key: b"k" }), "\"v\"");
}

#[test]
fn lookups_are_counted() {
    let mut store = Store::new();
    store.play(
        r#"
        SET k v                 -> OK
        GET k                   -> "v"
        GET missing             -> nil
        MGET k missing          -> ["v" nil]
        EXISTS k missing        -> 1
        ENCODING k              -> "embstr"
        GETDEL k                -> "v"
        GETDEL k                -> nil
    "#,
    );
    let statistics = store.table.statistics();
    assert_eq!((statistics.hits, statistics.misses), (4, 4));
}

#[test]
fn warming_changes_nothing() {
    let mut store = Store::new();
    store.set("k", "v");
    let (digest, statistics) = (store.table.digest(), store.table.statistics());
    assert!(!store.table.warm([&b"k"[..], b"missing", b""].into_iter()));
    store.table.warm(std::iter::empty());
    store.table.warm(std::iter::repeat_n(&b"k"[..], 100));
    store.table.warm_names([(&b"k"[..], &b"name"[..]), (b"missing", b""), (b"", b"name")].into_iter());
    store.table.warm_names(std::iter::repeat_n((&b"k"[..], &b"name"[..]), 100));
    assert_eq!((store.table.digest(), store.table.statistics()), (digest, statistics));
}

/// Reads of many names touch what sixteen of them need at a time; each name finds what it finds alone, whether it is there or not.
#[test]
fn many_names_are_read_as_each_alone() {
    for count in [5, 3000] {
        let mut store = Store::new();
        let all = |form: &dyn Fn(usize) -> String| (0..count).map(form).collect::<Vec<_>>().join(" ");
        store.play(&format!("SADD s {} -> {count}", all(&|at| format!("n{at}"))));
        store.play(&format!("ZADD z {} -> {count}", all(&|at| format!("{at} n{at}"))));
        store.play(&format!("HSET h {} -> {count}", all(&|at| format!("n{at} v{at}"))));
        (0..count).for_each(|at| store.set(&format!("n{at}"), &format!("v{at}")));
        // Names that are there and are not, twice, and the empty one; neither fewer nor a multiple of sixteen.
        let asked: Vec<usize> = (0..53).map(|at| at * 7919 % (2 * count)).collect();
        let names: Vec<_> = asked.iter().map(|at| format!("n{at}")).collect();
        let names = format!("\"\" {}", names.join(" "));
        let found = |none: &str, form: &dyn Fn(usize) -> String| {
            let found = asked.iter().map(|at| if *at < count { form(*at) } else { none.to_owned() });
            format!("[{none} {}]", found.collect::<Vec<_>>().join(" "))
        };
        store.play(&format!("SMISMEMBER s {names} -> {}", found("0", &|_| "1".into())));
        store.play(&format!("ZMSCORE z {names} -> {}", found("nil", &|at| at.to_string())));
        store.play(&format!("HMGET h {names} -> {}", found("nil", &|at| format!("\"v{at}\""))));
        store.play(&format!("MGET {names} -> {}", found("nil", &|at| format!("\"v{at}\""))));
    }
}
