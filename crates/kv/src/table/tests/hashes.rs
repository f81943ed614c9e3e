//! Hashes: their commands, how commands on keys of any kind treat them, and that replicas have the same bytes.

use super::lists::list_record;
use super::model::{record, replay};
use super::script::play;
use super::sets::set_record;
use super::sorted::sorted_record;
use super::*;
use crate::command::{HashCommand, HashPart};
use proptest::collection::vec;
use proptest::prelude::*;

const WRONGTYPE: &str = "!WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn fields_are_set_told_and_removed() {
    play(
        r#"
        HSET h a 1 b 2          -> 2
        HSET h b 3 c 4          -> 1
        HGET h b                -> "3"
        HGET h nothing          -> nil
        HMGET h a nothing c     -> ["1" nil "4"]
        HGETALL h               -> {"a"="1" "b"="3" "c"="4"}
        HKEYS h                 -> ["a" "b" "c"]
        HVALS h                 -> ["1" "3" "4"]
        HLEN h                  -> 3
        HEXISTS h a             -> 1
        HEXISTS h nothing       -> 0
        HSET h a a-longer-value -> 0
        HSTRLEN h a             -> 14
        HGETALL h               -> {"a"="a-longer-value" "b"="3" "c"="4"}
        HSETNX h a 9            -> 0
        HSETNX h d 9            -> 1
        HMSET h d "" "" empty   -> OK
        HGET h d                -> ""
        HGET h ""               -> "empty"
        HSET h x 1 x 2 x 3      -> 1
        HGET h x                -> "3"
        HDEL h x a nothing x    -> 2
        HKEYS h                 -> ["b" "c" "d" ""]
        HSCAN h 0 MATCH [bc]    -> ["0" ["b" "3" "c" "4"]]
        HDEL h b c d            -> 3
        EXISTS h                -> 1
        HDEL h ""               -> 1
        EXISTS h                -> 0
    "#,
    );
}

#[test]
fn numbers_in_fields_are_added_to() {
    play(
        r#"
        HINCRBY h n 5           -> 5
        HINCRBY h n -7          -> -2
        HINCRBYFLOAT h n 0.5    -> "-1.5"
        HINCRBY h n 1           -> !ERR hash value is not an integer
        HSET h t text           -> 1
        HINCRBYFLOAT h t 1      -> !ERR hash value is not a float
        HSET h n 9223372036854775807 -> 0
        HINCRBY h n 1           -> !ERR increment or decrement would overflow
        HINCRBYFLOAT h f inf    -> !ERR increment would produce NaN or Infinity
        HKEYS h                 -> ["n" "t"]
    "#,
    );
}

#[test]
fn a_key_that_does_not_exist_is_a_hash_without_fields() {
    play(
        r#"
        HGET h a                -> nil
        HMGET h a b             -> [nil nil]
        HGETALL h               -> {}
        HKEYS h                 -> []
        HLEN h                  -> 0
        HEXISTS h a             -> 0
        HSTRLEN h a             -> 0
        HSCAN h 0 MATCH *       -> ["0" []]
        HDEL h a                -> 0
        EXISTS h                -> 0
    "#,
    );
}

#[test]
fn commands_on_strings_refuse_a_hash_and_the_reverse() {
    let mut store = Store::new();
    store.play("HSET h a 1 -> 1\nSET s v -> OK");
    for line in [
        "GET h",
        "FETCH h",
        "STRLEN h",
        "GETRANGE h 0 1",
        "DIGEST h",
        "GETSET h x",
        "SET h x NX GET",
        "SET h x IFEQ y",
        "SET h x IFNE y",
        "GETDEL h",
        "GETEX h PX 100",
        "DELEX h IFNE x",
        "APPEND h x",
        "SETRANGE h 1 x",
        "INCRBY h 1",
        "INCRBYFLOAT h 1",
        "HGET s a",
        "HGETALL s",
        "HLEN s",
        "HSET s a 1",
        "HSETNX s a 1",
        "HDEL s a",
        "HINCRBY s a 1",
        "HINCRBYFLOAT s a 1",
    ] {
        store.play(&format!("{line} -> {WRONGTYPE}"));
    }
    store.play(
        r#"
        MGET s h                -> ["v" nil]
        TYPE h                  -> hash
        SET h x XX              -> OK
        TYPE h                  -> string
        DEL s                   -> 1
        HSET s a 1              -> 1
        MSET s v                -> OK
        GET s                   -> "v"
    "#,
    );
}

#[test]
fn a_plain_set_takes_the_place_of_a_hash_of_the_same_size() {
    // The same size, so that the short path of updates in place has to notice the hash.
    let mut store = Store::new();
    store.play("HSET h a 1 -> 1");
    let bytes = store.table.register(b"h").value.len();
    store.set("h", &"v".repeat(bytes));
    assert_eq!(store.read(&Command::Get { key: b"h" }), format!("\"{}\"", "v".repeat(bytes)));
}

#[test]
fn commands_on_keys_take_hashes_as_they_are() {
    play(
        r#"
        HSET h a 1 b 2          -> 2
        EXPIRE h PX 1000        -> 1
        HSET h a 3              -> 0
        PTTL h                  -> 1000
        COPY h copy             -> 1
        RENAME h renamed        -> OK
        HGETALL renamed         -> {"a"="3" "b"="2"}
        HSET copy c 4           -> 1
        HLEN renamed            -> 2
        HGETALL copy            -> {"a"="3" "b"="2" "c"="4"}
        PERSIST copy            -> 1
        wait 1000
        HLEN renamed            -> 0
        HSET renamed new 1      -> 1
        HGETALL renamed         -> {"new"="1"}
        DEL copy renamed        -> 2
        DBSIZE                  -> 0
    "#,
    );
}

#[test]
fn a_hash_that_would_be_too_large_is_refused_and_stays_as_it_was() {
    let long = "v".repeat(170);
    play(&format!(
        r#"
        HSET h a 1 b 2          -> 2
        HSET h a {long} b 3     -> !ERR the hash would take more than 200 bytes; nothing was done
        HSETNX h c {long}       -> !ERR the hash would take more than 200 bytes; nothing was done
        HSET new a {long} b {long} -> !ERR the hash would take more than 200 bytes; nothing was done
        HGETALL h               -> {{"a"="1" "b"="2"}}
        EXISTS new              -> 0
        HDEL h b                -> 1
        HSET h a {long}         -> 0
        HSET h a {long} a 1     -> 0
        HINCRBY h a 1           -> 2
    "#
    ));
}

#[test]
fn many_fields_at_once_come_to_the_same_as_one_by_one() {
    let names: Vec<String> = (0..300).map(|number| format!("f{}", number % 250)).collect();
    let pairs = |from: usize, until: usize| -> Vec<&[u8]> {
        (from..until).flat_map(|at| [names[at].as_bytes(), names[299 - at].as_bytes()]).collect()
    };
    let (key, bytes_max) = (&b"h"[..], u64::MAX);
    let [mut at_once, mut one_by_one] = [Store::new(), Store::new()];
    let mut scratch = Vec::new();
    for (from, until) in [(0, 100), (50, 300)] {
        let all = List::build(&mut scratch, pairs(from, until));
        at_once.apply(&Command::Hash(HashCommand::Set { key, pairs: all, bytes_max, counts: true }));
        for at in from..until {
            let pairs = List::build(&mut scratch, pairs(at, at + 1));
            one_by_one.apply(&Command::Hash(HashCommand::Set { key, pairs, bytes_max, counts: true }));
        }
    }
    assert_eq!(at_once.table.register(key).value, one_by_one.table.register(key).value);
    let gone: Vec<&[u8]> = names[..120].iter().map(String::as_bytes).collect();
    let fields = List::build(&mut scratch, gone.iter().copied());
    assert_eq!(at_once.apply(&Command::Hash(HashCommand::Delete { key, fields })), "120");
    for field in gone {
        let fields = List::build(&mut scratch, [field]);
        one_by_one.apply(&Command::Hash(HashCommand::Delete { key, fields }));
    }
    assert_eq!(at_once.table.register(key).value, one_by_one.table.register(key).value);
    assert_eq!(at_once.read(&Command::Hash(HashCommand::Length { key })), "130");
}

#[test]
fn encodings_are_those_of_redis() {
    let mut store = Store::new();
    store.play("HSET h a 1 -> 1\nENCODING h -> \"listpack\"");
    let long = "v".repeat(65);
    store.play(&format!("HSET h a {long} -> 0\nENCODING h -> \"hashtable\""));
}

#[test]
fn memory_follows_what_a_hash_takes() {
    let mut store = Store::new();
    let empty = store.table.memory_bytes();
    store.play("HSET h a 1 -> 1");
    let (small, key, bytes_max) = (store.table.memory_bytes(), &b"h"[..], u64::MAX);
    let value = vec![b'v'; 100_000];
    let mut scratch = Vec::new();
    let pairs = List::build(&mut scratch, [&b"b"[..], &value]);
    store.apply(&Command::Hash(HashCommand::Set { key, pairs, bytes_max, counts: true }));
    assert!(store.table.memory_bytes() > small + 100_000);
    store.play("HDEL h b -> 1");
    assert!(store.table.memory_bytes() < small + 1000, "what a field took is given back");
    store.play("HDEL h a -> 1");
    assert_eq!(store.table.entry_bytes, 0);
    assert!(store.table.memory_bytes() >= empty);
}

#[test]
fn a_chunk_with_a_hash_that_is_none_is_refused() {
    let mut store = Store::new();
    store.play("HSET h field value -> 1");
    let id = store.table.begin_snapshot();
    let mut chunk = Vec::new();
    store.table.snapshot_chunk(id, usize::MAX, &mut chunk);
    assert_eq!(Table::new(2).install(&chunk), Ok(1));
    let at = chunk.windows(5).position(|window| window == b"field").unwrap();
    chunk[at] = b'F'; // Its place has another hash.
    assert!(Table::new(2).install(&chunk).is_err());
}

/// Records on the same keys as the other random records, so that kinds of values mix.
fn hash_record() -> impl Strategy<Value = super::model::Record> {
    let key = (0..6u8).prop_map(|number| format!("key{number}").into_bytes());
    let field = || (0..20u8).prop_map(|number| format!("f{number}").into_bytes());
    let value = || vec(any::<u8>(), 0..30);
    (key, vec((field(), value()), 1..5), 0..10u8, -9..9i64).prop_map(|(key, pairs, which, delta)| {
        let mut scratch = Vec::new();
        let (key, field, value) = (&key[..], &pairs[0].0[..], &pairs[0].1[..]);
        let bytes_max = 400;
        let all = || pairs.iter().flat_map(|(field, value)| [&field[..], &value[..]]);
        let command = match which {
            0..4 => {
                let pairs = List::build(&mut scratch, all());
                HashCommand::Set { key, pairs, bytes_max, counts: true }
            }
            4 => HashCommand::SetIfAbsent { key, field, value, bytes_max },
            5 | 6 => {
                let fields = pairs.iter().map(|(field, _)| &field[..]);
                HashCommand::Delete { key, fields: List::build(&mut scratch, fields) }
            }
            7 | 8 => HashCommand::IncrementBy { key, field, delta, bytes_max },
            _ => HashCommand::IncrementByFloat { key, field, delta: b"0.25", bytes_max },
        };
        super::model::Record::of(&Command::Hash(command))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// One replica replies, another sends no replies, a third joins midway by a snapshot.
    #[test]
    fn replicas_have_the_same_collections(
        before in vec(prop_oneof![2 => hash_record(), 2 => list_record(), 2 => set_record(), 2 => sorted_record(), 1 => record()], 0..80),
        after in vec(prop_oneof![2 => hash_record(), 2 => list_record(), 2 => set_record(), 2 => sorted_record(), 1 => record()], 0..80),
        bytes_max in 0..500usize,
    ) {
        let (mut first, mut second, mut third) = (Table::new(1), colliding(2), Table::new(3));
        let mut first_offset = 0;
        replay(&mut first, &before, &mut first_offset);
        let (floor, mut third_offset) = (first.version_floor(), first_offset);
        let id = first.begin_snapshot();
        for record in &after {
            let mut chunk = Vec::new();
            first.snapshot_chunk(id, bytes_max, &mut chunk);
            third.install(&chunk).unwrap();
            replay(&mut first, std::slice::from_ref(record), &mut first_offset);
        }
        let mut chunk = Vec::new();
        while first.snapshot_chunk(id, bytes_max, &mut chunk) {}
        third.install(&chunk).unwrap();
        third.set_version_floor(floor);
        replay(&mut third, &after, &mut third_offset);
        for (record, offset) in before.iter().chain(&after).zip(1..) {
            second.apply_unasked(&record.command(), offset, super::model::time_of(offset));
        }
        prop_assert_eq!(first.digest(), second.digest());
        prop_assert_eq!(first.digest(), third.digest());
    }
}

#[test]
fn the_digest_tells_a_hash_from_a_string_of_its_bytes() {
    let [mut hash, mut string] = [Store::new(), Store::new()];
    hash.play("HSET h a 1 -> 1");
    let bytes = hash.table.register(b"h").value.to_vec();
    string.apply(&plain_set(b"h", &bytes));
    assert_ne!(hash.table.digest(), string.table.digest());
    assert_eq!(hash.read(&Command::Hash(HashCommand::All { key: b"h", part: HashPart::Fields })), "[\"a\"]");
}
