//! Commands that arrive in parts: invisible until the last record, which makes everything take effect at once.

use super::*;
use crate::{Coordinator, Padded, ValueId};

const LONG: ValueId = ValueId { coordinator: Coordinator { node: 2, life: 7 }, counter: 1 };
const OTHER: ValueId = ValueId { counter: 2, ..LONG };
const END: Command<'_> = Command::LongEnd { id: LONG, watched_in: Padded(None) };
const MINUTE_MS: u64 = 60_000;

fn encoded(command: &Command<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    command.encode(&mut bytes);
    bytes
}

impl Store {
    /// The part of a command from `start` to `end`.
    fn part(&mut self, id: ValueId, whole: &[u8], start: usize, end: usize) -> String {
        let (offset, length) = (start as u32, whole.len() as u32);
        self.apply(&Command::LongPart { id, offset, length, bytes: &whole[start..end] })
    }
}

#[test]
fn a_long_command_takes_effect_at_its_end_with_its_usual_reply() {
    let mut store = Store::new();
    store.set("k", "before");
    let append = Command::Append { key: b"k", value: b" and after", bytes_max: 100 };
    let whole = encoded(&append);
    assert_eq!(store.part(LONG, &whole, 0, 10), "10");
    assert_eq!(store.part(LONG, &whole, 10, whole.len()), whole.len().to_string());
    store.play("GET k -> \"before\"\nDBSIZE -> 1");
    let version = store.version("k");
    assert_eq!(store.apply(&END), "16");
    store.play("GET k -> \"before and after\"");
    assert!(store.version("k") > version);
    assert!(
        store.apply(&END).starts_with("!TRYAGAIN NOQUORUM parts of the command are missing"),
        "once only"
    );
}

#[test]
fn a_set_in_parts_has_the_same_effect_as_one_in_one_piece() {
    for before in [
        "DBSIZE -> 0",
        "SET k short -> OK",
        "SET k v EX 10 -> OK",
        "SET k v PX 1 -> OK\nwait 5",
        "HSET k f v -> 1",
    ] {
        let set = plain_set(b"k", &[7; 500]);
        let whole = encoded(&set);
        let (mut parts, mut one) = (Store::new(), Store::new());
        [&mut parts, &mut one].into_iter().for_each(|store| store.play(before));
        parts.part(LONG, &whole, 0, 100);
        parts.part(LONG, &whole, 100, whole.len());
        one.offset = parts.offset;
        assert_eq!((parts.apply(&END), one.apply(&set)), ("OK".into(), "OK".into()));
        assert_eq!(parts.table.digest(), one.table.digest(), "after {before}");
        assert_eq!(parts.table.statistics(), one.table.statistics());
        assert_eq!(
            (parts.table.expires(), parts.table.memory_bytes()),
            (one.table.expires(), one.table.memory_bytes())
        );
    }
}

#[test]
fn the_reply_to_a_part_is_the_number_of_bytes_gathered() {
    let mut store = Store::new();
    let whole = encoded(&plain_set(b"k", b"0123456789"));
    assert_eq!(store.part(LONG, &whole, 5, 9), "0", "the first part has not arrived");
    assert_eq!(store.part(LONG, &whole, 0, 5), "5");
    assert_eq!(store.part(LONG, &whole, 9, 12), "5", "the part in between has not arrived");
    assert_eq!(store.part(LONG, &whole, 0, 5), "5", "sent again, since its outcome was not known");
    assert_eq!(store.part(LONG, &whole, 5, 9), "9");
    assert!(store.apply(&END).starts_with("!TRYAGAIN NOQUORUM parts of the command are missing"));
    store.play("GET k -> nil");
    assert_eq!(store.part(LONG, &whole, 9, whole.len()), "0", "the end has dropped the gathered parts");
}

#[test]
fn several_commands_are_gathered_at_the_same_time() {
    let mut store = Store::new();
    let (first, second) = (encoded(&plain_set(b"k", b"first")), encoded(&plain_set(b"l", b"second")));
    store.part(LONG, &first, 0, 4);
    store.part(OTHER, &second, 0, 4);
    store.part(LONG, &first, 4, first.len());
    store.part(OTHER, &second, 4, second.len());
    assert_eq!(store.apply(&Command::LongEnd { id: OTHER, watched_in: Padded(None) }), "OK");
    store.play("GET k -> nil\nGET l -> \"second\"");
    assert_eq!(store.apply(&END), "OK");
    store.play("GET k -> \"first\"");
}

#[test]
fn nested_and_malformed_long_commands_are_refused() {
    let mut store = Store::new();
    for inner in [encoded(&END), b"nonsense".to_vec()] {
        store.part(LONG, &inner, 0, inner.len());
        assert_eq!(store.apply(&END), "!ERR parts that make no command");
    }
    let whole = encoded(&plain_set(b"k", b"v"));
    let (length, bytes) = (whole.len() as u32 - 1, &whole[..]);
    assert_eq!(store.apply(&Command::LongPart { id: LONG, offset: 0, length, bytes }), "0", "too many bytes");
}

#[test]
fn an_unfinished_command_is_dropped_a_minute_after_its_last_part() {
    let mut store = Store::new();
    let whole = encoded(&plain_set(b"k", &[7; 5000]));
    let memory = store.table.memory_bytes();
    store.part(LONG, &whole, 0, 2000);
    store.time += MINUTE_MS - 1;
    store.part(LONG, &whole, 2000, 4000);
    assert_eq!(store.table.memory_bytes(), memory + 4000);
    store.time += MINUTE_MS - 1;
    assert_eq!(store.table.purge_until(store.time, 10), None);
    store.time += 1;
    let until = store.table.purge_until(store.time, 10).expect("it is due");
    assert_eq!(store.apply(&Command::Purge { until }), "0", "it is no key");
    assert_eq!((store.table.purge_until(store.time, 10), store.table.memory_bytes()), (None, memory));
    assert_eq!(store.part(LONG, &whole, 4000, whole.len()), "0");
}

/// Longer than one item of a snapshot.
fn long_value() -> Vec<u8> {
    (0..600_000u32).map(|byte| byte as u8).collect()
}

#[test]
fn a_snapshot_contains_gathered_parts() {
    let mut store = Store::new();
    let whole = encoded(&plain_set(b"k", &long_value()));
    store.part(LONG, &whole, 0, 550_000);
    let copy = copy_of(&mut store.table);
    assert_eq!(copy.digest(), store.table.digest());
    let mut copy = Store { table: copy, ..store };
    copy.part(LONG, &whole, 550_000, whole.len());
    assert_eq!(copy.apply(&END), "OK");
    assert_eq!(copy.table.value(b"k"), Some(long_value()));
}

#[test]
fn an_open_snapshot_keeps_parts_that_are_carried_out_or_dropped() {
    let whole = encoded(&plain_set(b"k", &long_value()));
    for is_dropped in [false, true] {
        let mut store = Store::new();
        store.part(LONG, &whole, 0, 550_000);
        let (id, digest) = (store.table.begin_snapshot(), store.table.digest());
        if is_dropped {
            store.time += MINUTE_MS;
            store.apply(&Command::Purge { until: store.time });
        } else {
            store.part(LONG, &whole, 550_000, whole.len());
            assert_eq!(store.apply(&END), "OK");
        }
        let mut snapshot = copy_from(&mut store.table, id);
        assert_eq!(snapshot.value(b"k"), None);
        snapshot.floor = 0;
        assert_eq!(snapshot.digest(), digest, "as it was when the snapshot began; dropped: {is_dropped}");
    }
}

impl Table {
    fn value(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let mut out = ReplyBuffer::new();
        self.read(&Command::Get { key }, 0, &mut out);
        match Reply::first(out.as_bytes()) {
            Reply::Bulk(value) => Some(value.to_vec()),
            _ => None,
        }
    }
}
