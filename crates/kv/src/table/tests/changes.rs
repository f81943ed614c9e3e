//! The notes of changes that followers get.

use super::script::{parse, word};
use super::{Store, plain_set};
use crate::command::Command;
use crate::table::{Follows, Table};
use crate::{ReplyBuffer, UnixMs};

impl Store {
    fn following() -> Store {
        let mut store = Store::new();
        store.table.follow_changes(Follows { changes: true, misses: true, overwrites: false });
        store
    }

    /// What was noted since the last call: class, event and key of each.
    fn changes(&mut self) -> Vec<String> {
        let Some(changes) = self.table.take_changes() else { return Vec::new() };
        let mut noted: Vec<String> = changes
            .iter()
            .map(|change| {
                let key = String::from_utf8_lossy(change.key);
                format!("{:?} {} {key}", change.class, change.event)
            })
            .collect();
        if changes.is_incomplete() {
            noted.push("and more".to_owned());
        }
        noted
    }

    /// Carries out a command, and compares what it has noted, separated by commas.
    #[track_caller]
    fn notes(&mut self, line: &str, expected: &str) {
        let words: Vec<Vec<u8>> = line.split_whitespace().map(word).collect();
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let mut scratch = Vec::new();
        let command = parse(&words, &mut scratch);
        let _ = if command.is_write() { self.apply(&command) } else { self.read(&command) };
        assert_eq!(self.changes().join(", "), expected, "of {line}");
    }
}

#[test]
fn events_have_the_names_that_redis_gives_them() {
    let mut store = Store::following();
    for (line, expected) in [
        ("SET k v", "New new k, String set k"),
        ("SET k w", "String set k"),
        ("SET k w EX 10", "String set k, Generic expire k"),
        ("GET k", ""),
        ("GET none", "Missed keymiss none"),
        ("APPEND k x", "String append k"),
        ("PERSIST k", "Generic persist k"),
        ("PERSIST k", ""),
        ("RENAME k other", "Generic rename_from k, New new other, Generic rename_to other"),
        ("DEL other none", "Generic del other"),
        ("RPUSH l a b", "New new l, List rpush l"),
        ("LMOVE l m LEFT RIGHT", "New new m, List rpush m, List lpop l"),
        ("LMOVE l m LEFT RIGHT", "List rpush m, List lpop l, Generic del l"),
        ("LMOVE m m LEFT RIGHT", "List rpush m, List lpop m"),
        ("LREM m 0 nothing", ""),
        ("SADD s a b", "New new s, Set sadd s"),
        ("SADD s a", ""),
        ("SMOVE s t a", "Set srem s, New new t, Set sadd t"),
        ("SMOVE s t b", "Set srem s, Generic del s, Set sadd t"),
        ("HSET h f v", "New new h, Hash hset h"),
        ("HDEL h f", "Hash hdel h, Generic del h"),
        ("HSETEX h EX 10 FIELDS f v", "New new h, Hash hset h, Hash hexpire h"),
        ("HSETEX h FIELDS g v i v j v", "Hash hset h"),
        ("HGETEX h EX 20 FIELDS f g", "Hash hexpire h"),
        ("HGETEX h EXAT 1 FIELDS i none", "Hash hdel h"),
        ("HEXPIRE h EXAT 1 FIELDS f none", "Hash hdel h"),
        ("HSETEX h EXAT 1 FIELDS j v", "Hash hset h, Hash hdel h"),
        ("HSETEX h EXAT 1 FIELDS none v", ""),
        ("HSETEX h EXAT 1 FIELDS g v", "Hash hset h, Hash hdel h, Generic del h"),
        ("INCRBY n 2", "New new n, String incrby n"),
        ("INCREX n BYFLOAT 0.5 EX 10", "String incrbyfloat n, Generic expire n"),
        ("INCREX n BYFLOAT 0.5 EX 99 ENX", "String incrbyfloat n"),
        ("INCREX n BYFLOAT 0.5 PERSIST", "String incrbyfloat n, Generic persist n"),
        ("INCREX n BYFLOAT 0.5 UBOUND 0", ""),
        ("INCREX c EX 10", "New new c, String incrby c, Generic expire c"),
        ("INCREX c EXAT 1", "Generic del c"),
        ("MSETEX 2 n 1 m 2 EX 10", "String set n, Generic expire n, String set m, Generic expire m"),
        ("GETEX n EX 10", "Generic expire n"),
        ("GETDEL n", "Generic del n"),
    ] {
        store.notes(line, expected);
    }
}

#[test]
fn an_expired_key_is_noted_once_however_it_is_removed() {
    let mut store = Store::following();
    for key in ["a", "b", "c"] {
        store.notes(
            &format!("SET {key} v PX 100"),
            &format!("New new {key}, String set {key}, Generic expire {key}"),
        );
    }
    store.time += 200;
    store.notes("GET a", "Missed keymiss a");
    store.notes("SET b w", "Expired expired b, New new b, String set b");
    let until: UnixMs = store.time;
    store.apply(&Command::Purge { until });
    let mut noted = store.changes();
    noted.sort_unstable();
    assert_eq!(noted, ["Expired expired a", "Expired expired c"]);
}

#[test]
fn changes_are_noted_exactly_while_they_are_followed() {
    let mut store = Store::new();
    store.apply(&plain_set(b"k", b"v"));
    assert!(store.table.take_changes().is_none());
    store.table.follow_changes(Follows { changes: true, ..Follows::default() });
    // An update in place, which takes a different path.
    store.table.apply_unasked(&plain_set(b"k", b"w"), 10, store.time);
    assert_eq!(store.changes(), ["String set k"]);
    store.notes("GET none", "");
    store.table.follow_changes(Follows { changes: false, ..Follows::default() });
    store.apply(&plain_set(b"k", b"x"));
    assert!(store.table.take_changes().is_none());
}

#[test]
fn followers_learn_that_all_keys_were_removed_or_replaced() {
    let mut store = Store::following();
    store.notes("SET k v", "New new k, String set k");
    store.apply(&Command::Clear {});
    assert_eq!(store.changes(), ["and more"]);
    store.table.replace(Table::new(1));
    assert_eq!(store.changes(), ["and more"]);
    store.notes("SET k v", "New new k, String set k");
    let mut newer = Table::new(1);
    newer.take_followers_of(&mut store.table);
    newer.apply(&plain_set(b"k", b"v"), 1, store.time, &mut ReplyBuffer::new());
    store.table = newer;
    assert_eq!(store.changes(), ["New new k", "String set k", "and more"]);
}

#[test]
fn notes_that_are_not_taken_are_bounded() {
    let mut store = Store::following();
    let key = vec![b'k'; 1 << 20];
    for number in 0..6_u8 {
        let key = [&[number], &key[..]].concat();
        store.apply(&plain_set(&key, b"v"));
    }
    let changes = store.table.take_changes().unwrap();
    assert!(changes.is_incomplete() && changes.iter().count() < 12);
}

#[test]
fn replaced_values_are_noted_where_that_is_followed() {
    let mut store = Store::following();
    store.table.follow_changes(Follows { changes: true, misses: false, overwrites: true });
    for (line, expected) in [
        ("SET k v", "New new k, String set k"),
        ("SET k w", "Overwritten overwritten k, String set k"),
        ("APPEND k x", "String append k"),
        ("INCRBY n 1", "New new n, String incrby n"),
        ("INCRBY n 1", "String incrby n"),
        ("MSET n 1", "Overwritten overwritten n, String set n"),
        ("HSET h f v", "New new h, Hash hset h"),
        ("SET h v", "Overwritten overwritten h, TypeChanged type_changed h, String set h"),
        ("RPUSH l a", "New new l, List rpush l"),
        (
            "RENAME l h",
            "Generic rename_from l, Overwritten overwritten h, TypeChanged type_changed h, Generic rename_to h",
        ),
        ("SET k v PX 100", "Overwritten overwritten k, String set k, Generic expire k"),
    ] {
        store.notes(line, expected);
    }
    let mut dumped = crate::ReplyBuffer::new();
    store.table.read(&Command::Dump { key: b"n" }, store.time, &mut dumped);
    let crate::Reply::Bulk(payload) = crate::Reply::first(dumped.as_bytes()) else { panic!("a payload") };
    let options = crate::RestoreOptions { replaces: true, used: None };
    store.apply(&Command::Restore { key: b"h", payload, deadline: None, options });
    let expected = "Generic restore h, Overwritten overwritten h, TypeChanged type_changed h";
    assert_eq!(store.changes().join(", "), expected, "as in Redis, in another order than of other commands");
    store.notes("SET h w", "Overwritten overwritten h, String set h");
    store.time += 200;
    store.notes("SET k w", "Expired expired k, New new k, String set k");
    store.notes("SET k w EXAT 1", "Generic del k");
}
