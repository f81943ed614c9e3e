//! Large values that are lent to replies: they never change afterwards, and the table behaves as if they had been copied.

use super::*;
use crate::command::{Deadline, ExpireCondition};
use crate::{Draft, Lent, SharedBytes};

const BYTES_MIN: usize = 100;

fn value(byte: u8) -> Vec<u8> {
    vec![byte; BYTES_MIN]
}

/// The value that a `GET` is lent, if any.
fn lent(store: &mut Store, key: &str) -> Option<SharedBytes> {
    let mut out = ReplyBuffer::new();
    out.lend_from(BYTES_MIN);
    store.table.read(&Command::Get { key: key.as_bytes() }, store.time, &mut out);
    let number = ReplyBuffer::lent(out.as_bytes())?;
    match out.take_lent().swap_remove(number) {
        Lent::Value(value) => Some(value),
        Lent::Read(_) => None,
    }
}

fn append(store: &mut Store, value: &[u8]) {
    store.apply(&Command::Append { key: b"k", value, bytes_max: 1000 });
}

#[test]
fn a_large_value_that_is_a_whole_reply_is_lent_without_a_copy() {
    let mut store = Store::new();
    store.apply(&plain_set(b"large", &value(b'v')));
    store.apply(&plain_set(b"small", &value(b'v')[1..]));
    let (first, second) = (lent(&mut store, "large").unwrap(), lent(&mut store, "large").unwrap());
    assert_eq!((&*first, first.as_ptr()), (&*value(b'v'), second.as_ptr()), "nothing is copied");
    assert_eq!((lent(&mut store, "small"), lent(&mut store, "missing")), (None, None));
    let mut out = ReplyBuffer::new();
    out.lend_from(BYTES_MIN);
    let mut scratch = Vec::new();
    let keys = List::build(&mut scratch, [&b"large"[..]]);
    for command in [
        Command::MultiGet { keys },
        Command::GetRange { key: b"large", start: 0, end: -1 },
        Command::Fetch { key: b"large" },
    ] {
        store.table.read(&command, store.time, &mut out);
    }
    let get = Command::Get { key: b"large" };
    for is_write in [false, true] {
        let mut draft = Draft::default();
        let last = if is_write { plain_set(b"other", b"") } else { Command::Size {} };
        assert!(draft.push(&get) && draft.push(&last));
        store.offset += 1;
        store.table.apply(&Command::Transaction(draft.transaction()), store.offset, store.time, &mut out);
    }
    assert!(!out.has_lent() && out.len() > 5 * BYTES_MIN, "other replies copy the value");
    // A read that is ordered between two writes is answered like any other.
    store.table.apply(&get, store.offset, store.time, &mut out);
    assert!(out.has_lent());
    // If the caller does not check for lent replies, there are none.
    assert_eq!(store.read(&Command::Get { key: b"large" }), format!("\"{}\"", "v".repeat(BYTES_MIN)));
}

#[test]
fn a_lent_value_stays_unchanged_whatever_happens_to_its_key() {
    type Change = fn(&mut Store);
    let changes: [(&str, Change); 9] = [
        ("nothing", |_| {}),
        ("a value of the same length", |store| drop(store.apply(&plain_set(b"k", &value(b'w'))))),
        ("a shorter value", |store| store.set("k", "short")),
        ("a longer value", |store| drop(store.apply(&plain_set(b"k", &[b'w'; 3 * BYTES_MIN])))),
        ("more at its end", |store| append(store, b"more")),
        ("others in its midst", |store| store.play("SETRANGE k 7 others -> 100")),
        ("a deadline", |store| {
            let (deadline, condition) = (Deadline::At(2_000_000), ExpireCondition::Always);
            store.apply(&Command::Expire { key: b"k", deadline, condition });
        }),
        ("removed", |store| drop(store.delete("k"))),
        ("all removed", |store| drop(store.apply(&Command::Clear {}))),
    ];
    for (what, change) in changes {
        // Lent and released, still held, and each with an open snapshot.
        for (is_held, has_snapshot) in [(false, false), (true, false), (true, true), (false, true)] {
            let [mut lending, mut plain] = [Store::new(), Store::new()];
            for store in [&mut lending, &mut plain] {
                store.apply(&plain_set(b"k", &value(b'v')));
                store.set("other", "value");
            }
            let value_lent = lent(&mut lending, "k").unwrap();
            let held = is_held.then(|| value_lent.clone());
            drop(value_lent);
            let snapshot = has_snapshot.then(|| lending.table.begin_snapshot());
            let before = lending.table.digest();
            for store in [&mut lending, &mut plain] {
                change(store);
            }
            let case = format!("{what}, held: {is_held}, snapshot: {has_snapshot}");
            assert_eq!(lending.table.digest(), plain.table.digest(), "{case}");
            assert!(held.is_none_or(|held| *held == *value(b'v')), "{case}");
            if let Some(id) = snapshot {
                let (mut chunk, mut copy) = (Vec::new(), Table::new(9));
                assert!(!lending.table.snapshot_chunk(id, 10_000, &mut chunk));
                copy.install(&chunk).unwrap();
                assert_eq!(copy.digest(), before, "{case}");
            }
            // The value can be changed and lent again.
            for store in [&mut lending, &mut plain] {
                append(store, &value(b'x'));
            }
            assert_eq!(lending.table.digest(), plain.table.digest(), "{case}, then more");
            assert!(lent(&mut lending, "k").unwrap().ends_with(&value(b'x')), "{case}");
            assert_eq!(lending.table.memory_bytes(), plain.table.memory_bytes(), "{case}");
        }
    }
}
