//! The guarantee of a scan: every key that is present throughout is returned exactly once, or, if the scan continues at
//! another replica, at least once.

use super::*;
use crate::table::scan_group;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// The next cursor and the keys of one step.
fn step(table: &mut Table, cursor: u64, count: u64, group: u16, next: u16) -> (u64, Vec<String>) {
    let mut out = ReplyBuffer::new();
    let scan = Command::Scan { position: cursor, count, pattern: None, kind: None, group, next };
    table.read(&scan, 0, &mut out);
    let mut reader = Reader::new(out.as_bytes());
    let mut bulk = |array: bool| match Reply::decode(&mut reader).unwrap() {
        Reply::Bulk(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        Reply::Array(count) if array => count.to_string(),
        other => panic!("{other:?} in the reply of a scan"),
    };
    assert_eq!(bulk(true), "2");
    let next = bulk(false).parse().unwrap();
    let keys = bulk(true).parse().unwrap();
    (next, (0..keys).map(|_| bulk(false)).collect())
}

#[test]
fn a_scan_returns_the_table_in_steps() {
    let mut store = Store::new();
    assert_eq!(step(&mut store.table, 0, 10, 1, 0), (0, vec![]));
    for number in 0..25 {
        store.set(&format!("k{number}"), "v");
    }
    let (mut cursor, mut returned, mut steps) = (0, Vec::new(), 0);
    loop {
        let (next, keys) = step(&mut store.table, cursor, 10, 1, 0);
        assert!(keys.len() <= 10);
        returned.extend(keys);
        steps += 1;
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    assert_eq!((returned.len(), steps), (25, 3));
    assert_eq!(step(&mut store.table, 0, 0, 1, 0).1.len(), 1, "a count of zero still makes progress");
    let (_, keys) = step(&mut store.table, u64::MAX, 100, 1, 0);
    assert_eq!(keys.len(), 25, "an invalid cursor starts over");
}

/// A leader fails in the middle of a scan: the next leader holds the same keys, with another seed.
#[test]
fn a_scan_that_continues_at_another_replica_omits_nothing() {
    for seed in 0..20 {
        let mut replicas = [Table::new(seed), Table::new(seed + 100)];
        for table in &mut replicas {
            for number in 0..1000 {
                table.apply(&plain_set(format!("k{number}").as_bytes(), b""), 1, 0, &mut ReplyBuffer::new());
            }
        }
        let (mut cursor, mut returned, mut steps) = (0, BTreeMap::<String, u32>::new(), 0);
        loop {
            let leader = &mut replicas[usize::from(steps >= 40)];
            let (next, keys) = step(leader, cursor, 10, 1, 0);
            keys.into_iter().for_each(|key| *returned.entry(key).or_default() += 1);
            (cursor, steps) = (next, steps + 1);
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(returned.len(), 1000, "seeds {seed} and {}", seed + 100);
        assert_eq!(
            returned.values().filter(|times| **times == 2).count(),
            400,
            "the keys of the first leader"
        );
        assert_eq!(steps, 140);
    }
}

#[test]
fn a_scan_passes_from_group_to_group() {
    let mut tables: Vec<_> = (0..3).map(Table::new).collect();
    for (part, table) in tables.iter_mut().enumerate().filter(|(part, _)| *part != 1) {
        for number in 0..10 {
            table.apply(
                &plain_set(format!("{part}:{number}").as_bytes(), b""),
                1,
                0,
                &mut ReplyBuffer::new(),
            );
        }
    }
    let (mut cursor, mut returned) = (0, Vec::new());
    loop {
        let group = scan_group(cursor).max(1);
        let (next, keys) = step(&mut tables[usize::from(group) - 1], cursor, 4, group, (group + 1) % 4);
        returned.extend(keys);
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    returned.sort();
    let expected: Vec<_> = [0, 2].iter().flat_map(|p| (0..10).map(move |n| format!("{p}:{n}"))).collect();
    assert_eq!(returned, expected);
}

#[test]
fn a_scan_omits_keys_that_do_not_match_or_have_expired() {
    let mut store = Store::new();
    store.play("MSET user:1 a user:2 b order:1 c -> OK\nSET user:3 d PX 5 -> OK\nwait 5");
    let mut scan = |pattern, kind| {
        store.read(&Command::Scan { position: 0, count: 10, pattern, kind, group: 1, next: 0 })
    };
    let either = [r#"["0" ["user:1" "user:2"]]"#, r#"["0" ["user:2" "user:1"]]"#];
    assert!(either.contains(&&*scan(Some(b"user:*"), None)));
    assert_eq!(scan(Some(b"order:*"), Some(b"STRING")), r#"["0" ["order:1"]]"#);
    assert_eq!(scan(None, Some(b"list")), r#"["0" []]"#);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_key_that_is_present_throughout_is_returned_exactly_once(
        first in vec(0..200u32, 0..200),
        writes in vec((0..4u8, 0..200u32, 0..200u32), 0..400),
        count in 1..30u64,
        writes_per_step in 0..20usize,
        colliding in any::<bool>(),
    ) {
        let mut store = if colliding { Store::colliding() } else { Store::new() };
        first.iter().for_each(|number| store.set(&format!("k{number}"), "v"));
        let present = |store: &mut Store, number: u32| store.version(&format!("k{number}")) > 0;
        let mut stayed: Vec<bool> = (0..200).map(|number| present(&mut store, number)).collect();
        let mut returned: BTreeMap<String, u32> = BTreeMap::new();
        let mut writes = writes.into_iter();
        let mut cursor = 0;
        loop {
            let (next, keys) = step(&mut store.table, cursor, count, 1, 0);
            keys.into_iter().for_each(|key| *returned.entry(key).or_default() += 1);
            cursor = next;
            if cursor == 0 {
                break;
            }
            for (kind, one, other) in writes.by_ref().take(writes_per_step) {
                let (key, to) = (format!("k{one}"), format!("k{other}"));
                match kind {
                    0 => store.set(&key, &"v".repeat(other as usize)),
                    1 => drop(store.delete(&key)),
                    2 => drop(store.apply(&Command::Rename {
                        from: key.as_bytes(),
                        to: to.as_bytes(),
                        if_absent: false,
                    })),
                    _ => drop(store.apply(&Command::Append {
                        key: key.as_bytes(),
                        value: b"more",
                        bytes_max: 1000,
                    })),
                }
                for gone in [one, other] {
                    stayed[gone as usize] &= present(&mut store, gone);
                }
            }
        }
        for (number, stayed) in stayed.iter().enumerate().filter(|(_, stayed)| **stayed) {
            prop_assert_eq!(returned.get(&format!("k{number}")), Some(&1), "k{} stayed: {}", number, stayed);
        }
    }
}

/// The table grows from a hundred keys to ten thousand and shrinks again between the steps of a scan.
#[test]
fn a_scan_survives_any_number_of_resizes() {
    let mut store = Store::new();
    (0..100).for_each(|number| store.set(&format!("stays{number}"), "v"));
    let (mut cursor, mut returned, mut steps) = (0, Vec::new(), 0);
    loop {
        let (next, keys) = step(&mut store.table, cursor, 7, 1, 0);
        returned.extend(keys.into_iter().filter(|key| key.starts_with("stays")));
        for number in 0..10_000 {
            let key = format!("passes{number}");
            if steps % 2 == 0 { store.set(&key, "v") } else { drop(store.delete(&key)) }
        }
        (cursor, steps) = (next, steps + 1);
        if cursor == 0 || steps == 40 {
            break;
        }
    }
    while cursor != 0 {
        let (next, keys) = step(&mut store.table, cursor, 1000, 1, 0);
        returned.extend(keys.into_iter().filter(|key| key.starts_with("stays")));
        cursor = next;
    }
    returned.sort();
    let mut expected: Vec<_> = (0..100).map(|number| format!("stays{number}")).collect();
    expected.sort();
    assert_eq!(returned, expected);
}

#[test]
fn a_random_key_is_never_expired_while_a_live_one_exists() {
    let mut store = Store::new();
    for number in 0..500 {
        store.play(&format!("SET k{number} v PX 5 -> OK"));
    }
    store.set("lives", "v");
    store.time += 5;
    for draw in 0..1000 {
        assert_eq!(store.read(&Command::RandomKey { draw }), "\"lives\"");
    }
    assert_eq!(store.delete("lives"), "1");
    assert_eq!(store.read(&Command::RandomKey { draw: 1 }), "nil");
}

#[test]
fn random_keys_are_drawn_fairly() {
    let mut store = Store::new();
    for number in 0..100 {
        store.set(&format!("k{number}"), "v");
    }
    let mut drawn: BTreeMap<String, u32> = BTreeMap::new();
    for draw in 0..10_000 {
        *drawn.entry(store.read(&Command::RandomKey { draw })).or_default() += 1;
    }
    assert!(drawn.len() > 90, "{} of 100 keys were drawn", drawn.len());
}
