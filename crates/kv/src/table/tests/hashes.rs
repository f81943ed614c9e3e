//! Hashes: their commands, how commands on keys of any type treat them, and that replicas hold the same bytes.

use super::lists::list_record;
use super::model::{record, replay};
use super::script::play;
use super::sets::set_record;
use super::sorted::sorted_record;
use super::*;
use crate::command::{Deadline, ExpireCondition, ExpiryUnit, FieldsCondition};
use crate::command::{HashCommand, HashPart};
use crate::table::collections::Collection;
use proptest::collection::vec;
use proptest::prelude::*;

const WRONGTYPE: &str = "!WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn fields_are_set_read_and_removed() {
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
fn a_plain_set_replaces_a_hash_of_the_same_size() {
    // The same size, so that the fast path of updates in place must notice the hash.
    let mut store = Store::new();
    store.play("HSET h a 1 -> 1");
    let bytes = store.table.register(b"h").value.len();
    store.set("h", &"v".repeat(bytes));
    assert_eq!(store.read(&Command::Get { key: b"h" }), format!("\"{}\"", "v".repeat(bytes)));
}

#[test]
fn commands_on_keys_work_on_hashes() {
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

/// All fields and values. Also checks the collection's invariants.
fn answer_of(store: &mut Store, key: &str) -> String {
    if let Some((_, entry)) = store.table.find(store.table.index.hash(key.as_bytes()), key.as_bytes()) {
        entry.collection().into_iter().for_each(Collection::check_invariants);
    }
    store.read(&Command::Hash(HashCommand::All { key: key.as_bytes(), part: HashPart::Both }))
}

#[test]
fn setting_many_fields_at_once_equals_setting_them_one_by_one() {
    let names: Vec<String> = (0..300).map(|number| format!("f{}", number % 250)).collect();
    let pairs = |from: usize, until: usize| -> Vec<&[u8]> {
        (from..until).flat_map(|at| [names[at].as_bytes(), names[299 - at].as_bytes()]).collect()
    };
    let key = &b"h"[..];
    let [mut at_once, mut one_by_one] = [Store::new(), Store::new()];
    let mut scratch = Vec::new();
    for (from, until) in [(0, 100), (50, 300)] {
        let all = List::build(&mut scratch, pairs(from, until));
        at_once.apply(&Command::Hash(HashCommand::Set { key, pairs: all, counts: true }));
        for at in from..until {
            let pairs = List::build(&mut scratch, pairs(at, at + 1));
            one_by_one.apply(&Command::Hash(HashCommand::Set { key, pairs, counts: true }));
        }
    }
    assert_eq!(answer_of(&mut at_once, "h"), answer_of(&mut one_by_one, "h"));
    let gone: Vec<&[u8]> = names[..120].iter().map(String::as_bytes).collect();
    let fields = List::build(&mut scratch, gone.iter().copied());
    assert_eq!(at_once.apply(&Command::Hash(HashCommand::Delete { key, fields })), "120");
    for field in gone {
        let fields = List::build(&mut scratch, [field]);
        one_by_one.apply(&Command::Hash(HashCommand::Delete { key, fields }));
    }
    assert_eq!(answer_of(&mut at_once, "h"), answer_of(&mut one_by_one, "h"));
    assert_eq!(at_once.read(&Command::Hash(HashCommand::Length { key })), "130");
}

#[test]
fn fields_are_drawn_at_random() {
    play(
        r#"
        HRANDFIELD h            -> nil
        HRANDFIELD h 3          -> []
        HSET h a 1 b 2          -> 2
        HRANDFIELD h 3          -> ["a" "b"]
        HRANDFIELD h 2 VALUES   -> <"a":"1" "b":"2">
        HRANDFIELD h 0          -> []
        HDEL h b                -> 1
        HRANDFIELD h            -> "a"
        HRANDFIELD h -3         -> ["a" "a" "a"]
        HRANDFIELD h -2 VALUES  -> <"a":"1" "a":"1">
    "#,
    );
}

#[test]
fn fields_expire_by_themselves() {
    play(
        r#"
        HSET h a 1 b 2 c 3 d 4  -> 4
        HEXPIRE h PX 1500 FIELDS a b x -> [1 1 -2]
        HEXPIRE h EX 9 FIELDS c -> [1]
        HTTL h FIELDS a c d x   -> [2 9 -1 -2]
        HPTTL h FIELDS a d      -> [1500 -1]
        HPEXPIRETIME h FIELDS a -> [1001500]
        HEXPIRETIME h FIELDS a  -> [1002]
        HPERSIST h FIELDS b d x -> [1 -1 -2]
        ENCODING h              -> "listpackex"
        wait 1499
        HGET h a                -> "1"
        wait 1
        HGET h a                -> nil
        HGETALL h               -> {"b"="2" "c"="3" "d"="4"}
        HLEN h                  -> 3
        HEXISTS h a             -> 0
        HSTRLEN h a             -> 0
        HSCAN h 0 MATCH *       -> ["0" ["b" "2" "c" "3" "d" "4"]]
        HRANDFIELD h 9          -> ["b" "c" "d"]
        HDEL h a                -> 0
        HINCRBY h c 1           -> 4
        HTTL h FIELDS c         -> [8]
        HSET h c 5 a 7          -> 1
        HTTL h FIELDS c a       -> [-1 -1]
        HKEYS h                 -> ["b" "c" "d" "a"]
        HEXPIRE h PXAT 1000 FIELDS b -> [2]
        HEXPIRE h PX 0 FIELDS c d a  -> [2 2 2]
        EXISTS h                -> 0
        HTTL h FIELDS a         -> [-2]
        HPERSIST h FIELDS a     -> [-2]
        HEXPIRE h EX 1 FIELDS a -> [-2]
    "#,
    );
}

#[test]
fn deadlines_of_fields_are_set_on_conditions() {
    play(
        r#"
        HSET h a 1 b 2          -> 2
        HEXPIRE h EX 10 XX FIELDS a -> [0]
        HEXPIRE h EX 10 GT FIELDS a -> [0]
        HEXPIRE h EX 10 NX FIELDS a -> [1]
        HEXPIRE h EX 20 NX FIELDS a b -> [0 1]
        HEXPIRE h EX 20 LT FIELDS a b -> [0 0]
        HEXPIRE h EX 20 GT FIELDS a b -> [1 0]
        HEXPIRE h EX 5 XX FIELDS a  -> [1]
        HTTL h FIELDS a b       -> [5 20]
    "#,
    );
}

#[test]
fn fields_are_read_or_set_together_with_their_expiry() {
    play(
        r#"
        HSETEX h FXX FIELDS a 1 -> 0
        HSETEX h FNX EX 10 FIELDS a 1 b 2 -> 1
        HSETEX h FNX FIELDS b 3 c 3 -> 0
        HSETEX h FXX KEEPTTL FIELDS a 4 b 5 -> 1
        HTTL h FIELDS a b       -> [10 10]
        HSETEX h FIELDS b 6     -> 1
        HTTL h FIELDS a b       -> [10 -1]
        HGETEX h PERSIST FIELDS a x -> ["4" nil]
        HGETEX h PX 500 FIELDS a b x -> ["4" "6" nil]
        HPTTL h FIELDS a b      -> [500 500]
        HGETEX h PXAT 1 FIELDS a -> ["4"]
        HGETALL h               -> {"b"="6"}
        HGETDEL h FIELDS x b    -> [nil "6"]
        EXISTS h                -> 0
        HGETDEL h FIELDS a      -> [nil]
        HGETEX h EX 1 FIELDS a  -> [nil]
        HSETEX h PXAT 1 FIELDS a 1 -> 1
        EXISTS h                -> 0
    "#,
    );
}

#[test]
fn deadlines_of_fields_move_with_their_hash() {
    play(
        r#"
        HSET h a 1 b 2          -> 2
        HEXPIRE h PX 100 FIELDS a -> [1]
        COPY h copy             -> 1
        RENAME h renamed        -> OK
        HPTTL copy FIELDS a     -> [100]
        HPTTL renamed FIELDS a b -> [100 -1]
        HSET copy a 9           -> 0
        wait 100
        HGETALL renamed         -> {"b"="2"}
        HGETALL copy            -> {"a"="9" "b"="2"}
    "#,
    );
}

#[test]
fn a_purge_removes_expired_fields_and_a_hash_that_becomes_empty() {
    let mut store = Store::new();
    store.play(
        r#"
        HSET h a 1 b 2          -> 2
        HSET g a 1              -> 1
        HSET other a 1          -> 1
        HEXPIRE h PX 100 FIELDS a -> [1]
        HEXPIRE g PX 200 FIELDS a -> [1]
    "#,
    );
    assert_eq!(store.table.purge_until(store.time + 99, 10), None);
    store.play("wait 100");
    assert_eq!(store.table.purge_until(store.time, 10), Some(store.time));
    let before = store.version("h");
    store.play("PURGE 1000100 -> 0\nDBSIZE -> 3");
    assert_eq!(store.table.purge_until(store.time, 10), None);
    assert_ne!(store.version("h"), before, "a transaction that watches the hash must abort");
    store.play("wait 100\nEXISTS g -> 1\nHLEN g -> 0\nPURGE 1000200 -> 0\nEXISTS g h -> 1");
    assert!(store.table.fields_due.is_empty());
}

#[test]
fn a_purge_removes_a_thousand_fields_of_a_large_hash_at_a_time() {
    let mut store = Store::new();
    let (names, mut scratch) = (names(2500), Vec::new());
    let key = &b"h"[..];
    let pairs = List::build(&mut scratch, names.iter().flat_map(|name| [&name[..], b"v"]));
    store.apply(&Command::Hash(HashCommand::Set { key, pairs, counts: true }));
    let fields = List::build(&mut scratch, names.iter().skip(1).map(|name| &name[..]));
    let (deadline, condition) = (Deadline::In(10), ExpireCondition::Always);
    store.apply(&Command::Hash(HashCommand::Expire { key, fields, deadline, condition }));
    store.play("wait 10");
    let mut purges = 0;
    while let Some(until) = store.table.purge_until(store.time, 100) {
        assert_eq!(store.read(&Command::Hash(HashCommand::Length { key })), "1");
        store.apply(&Command::Purge { until });
        purges += 1;
    }
    assert_eq!((purges, answer_of(&mut store, "h").as_str()), (3, "{\"n0\"=\"v\"}"));
    assert!(store.table.index.likely(store.table.index.hash(key)).unwrap().collection().is_none());
}

fn names(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| format!("n{number}").into_bytes()).collect()
}

#[test]
fn a_scan_returns_every_field_once_while_others_are_removed() {
    let mut store = Store::new();
    let (names, key, mut scratch) = (names(2000), &b"h"[..], Vec::new());
    let pairs = List::build(&mut scratch, names.iter().flat_map(|name| [&name[..], b"v"]));
    store.apply(&Command::Hash(HashCommand::Set { key, pairs, counts: true }));
    let (mut seen, mut position, mut steps) = (Vec::new(), 0, 0);
    loop {
        let scan = HashCommand::Scan { key, position, count: 7, pattern: None, with_values: false };
        let reply = store.read(&Command::Hash(scan));
        let words: Vec<&str> = reply.split(['[', ']', ' ', '"']).filter(|word| !word.is_empty()).collect();
        position = words[0].parse().unwrap();
        seen.extend(words[1..].iter().map(|word| word.as_bytes().to_vec()));
        if position == 0 {
            break;
        }
        // Remove one that was returned already, and add one that did not exist before.
        let fields = List::build(&mut scratch, [&seen[steps][..]]);
        store.apply(&Command::Hash(HashCommand::Delete { key, fields }));
        let late = format!("late{steps}");
        let pairs = List::build(&mut scratch, [late.as_bytes(), b"v"]);
        store.apply(&Command::Hash(HashCommand::Set { key, pairs, counts: true }));
        steps += 1;
    }
    assert!(steps > 100);
    seen.retain(|name| name.starts_with(b"n"));
    seen.sort();
    let mut expected = names;
    expected.sort();
    assert_eq!(seen, expected);
}

/// The simplest possible model of a hash: fields in order, with values and deadlines.
type Model = Vec<(Vec<u8>, Vec<u8>, u64)>;

fn live<'m>(model: &'m mut Model, name: &[u8], now: u64) -> Option<&'m mut (Vec<u8>, Vec<u8>, u64)> {
    model.iter_mut().find(|(held, _, deadline)| held == name && *deadline > now)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_hash_matches_its_model(
        changes in vec((0..6u8, 0..60u8, 0..40usize, 1..30i64), 1..300),
    ) {
        let (mut store, mut model, mut scratch, key) = (Store::new(), Model::new(), Vec::new(), &b"h"[..]);
        let mut was_large = false;
        for (which, name, length, time) in changes {
            store.time += 1;
            let (name, value) = (format!("f{name}").into_bytes(), vec![b'v'; length]);
            let now = store.time;
            let is_there = live(&mut model, &name, now).is_some();
            let fields = List::build(&mut scratch, [&name[..]]);
            let (command, expected) = match which {
                0..3 => {
                    if let Some(field) = live(&mut model, &name, now) {
                        (field.1, field.2) = (value.clone(), u64::MAX);
                    } else {
                        model.retain(|(held, ..)| *held != name);
                        model.push((name.clone(), value.clone(), u64::MAX));
                    }
                    let pairs = List::build(&mut scratch, [&name[..], &value]);
                    (HashCommand::Set { key, pairs, counts: true }, i64::from(!is_there).to_string())
                }
                3 => {
                    model.retain(|(held, ..)| *held != name);
                    (HashCommand::Delete { key, fields }, i64::from(is_there).to_string())
                }
                4 => {
                    if let Some(field) = live(&mut model, &name, now) {
                        field.2 = now + time as u64;
                    }
                    let (deadline, condition) = (Deadline::In(time), ExpireCondition::Always);
                    let expected = if is_there { "[1]" } else { "[-2]" };
                    (HashCommand::Expire { key, fields, deadline, condition }, expected.to_owned())
                }
                _ => {
                    if let Some(until) = store.table.purge_until(now, 10) {
                        store.apply(&Command::Purge { until });
                        model.retain(|(.., deadline)| *deadline > now);
                    }
                    let left = live(&mut model, &name, now).map(|(.., deadline)| *deadline);
                    let expected = match left {
                        None => "[-2]".to_owned(),
                        Some(u64::MAX) => "[-1]".to_owned(),
                        Some(deadline) => format!("[{}]", deadline - now),
                    };
                    (HashCommand::TimeToLive { key, fields, unit: ExpiryUnit::MillisecondsLeft }, expected)
                }
            };
            let command = Command::Hash(command);
            let reply = if command.is_write() { store.apply(&command) } else { store.read(&command) };
            prop_assert_eq!(reply, expected);
            let fields = model.iter().filter(|(.., deadline)| *deadline > now);
            let fields: Vec<String> = fields
                .map(|(name, value, _)| format!("\"{}\"=\"{}\"", name.escape_ascii(), value.escape_ascii()))
                .collect();
            let answer = answer_of(&mut store, "h");
            // Once a hash was large, its fields are in another order.
            was_large |= store.table.peek(key, store.time).is_some_and(|entry| entry.collection().is_some());
            if was_large {
                let (mut wanted, mut given) = (fields.clone(), answer[1..answer.len() - 1].split_terminator(' ').map(str::to_owned).collect::<Vec<_>>());
                wanted.sort();
                given.sort();
                prop_assert_eq!(given, wanted);
            } else {
                prop_assert_eq!(answer, format!("{{{}}}", fields.join(" ")));
            }
            prop_assert_eq!(store.read(&Command::Hash(HashCommand::Length { key })), fields.len().to_string());
        }
        store.delete("h");
        prop_assert!(store.table.fields_due.is_empty() && store.table.entry_bytes == 0);
    }
}

/// In tests a small hash has at most eight fields.
#[test]
fn a_small_hash_keeps_the_order_of_its_fields_and_a_large_one_does_not() {
    let mut store = Store::new();
    store.play(
        r#"
        HSET h a 1 b 2 c 3 d 4 e 5 f 6 g 7 -> 7
        HSET h h 8                         -> 1
        HKEYS h                            -> ["a" "b" "c" "d" "e" "f" "g" "h"]
        HDEL h b                           -> 1
        HSET h b 9                         -> 1
        HKEYS h                            -> ["a" "c" "d" "e" "f" "g" "h" "b"]
        HSET h i 10                        -> 1
    "#,
    );
    let by_hash = |names: &str| {
        let mut names: Vec<&str> = names.split(' ').collect();
        names.sort_by_key(|name| crate::table::name_hash::hash_of(name.as_bytes()));
        format!("{names:?}").replace(',', "")
    };
    store.play(&format!("HKEYS h -> {}", by_hash("a b c d e f g h i")));
    // It stays large until it fits into half of a small one, and then keeps its present order.
    store.play(&format!("HDEL h i -> 1\nHKEYS h -> {}", by_hash("a b c d e f g h")));
    store.play(&format!("HDEL h e f g h -> 4\nHKEYS h -> {}", by_hash("a b c d")));
    let names = by_hash("a b c d").replace(']', " \"0\"]");
    store.play(&format!("HSET h 0 1 -> 1\nHKEYS h -> {names}"));
    // A long value also makes it large.
    let long = "v".repeat(300);
    store.play(&format!("HSET h 0 {long} -> 0\nHKEYS h -> {}", by_hash("a b c d 0")));
}

#[test]
fn encodings_are_those_of_redis() {
    let mut store = Store::new();
    store.play("HSET h a 1 -> 1\nENCODING h -> \"listpack\"");
    let long = "v".repeat(65);
    store.play(&format!("HSET h a {long} -> 0\nENCODING h -> \"hashtable\""));
}

#[test]
fn memory_follows_the_size_of_a_hash() {
    let mut store = Store::new();
    let empty = store.table.memory_bytes();
    store.play("HSET h a 1 -> 1");
    let (small, key) = (store.table.memory_bytes(), &b"h"[..]);
    let value = vec![b'v'; 100_000];
    let mut scratch = Vec::new();
    let pairs = List::build(&mut scratch, [&b"b"[..], &value]);
    store.apply(&Command::Hash(HashCommand::Set { key, pairs, counts: true }));
    assert!(store.table.memory_bytes() > small + 100_000);
    store.play("HDEL h b -> 1");
    assert!(store.table.memory_bytes() < small + 1000, "the memory of a field is given back");
    store.play("HDEL h a -> 1");
    assert_eq!(store.table.entry_bytes, 0);
    assert!(store.table.memory_bytes() >= empty);
}

#[test]
fn a_chunk_with_an_invalid_hash_is_refused() {
    let mut store = Store::new();
    store.play("HSET h field value -> 1");
    let id = store.table.begin_snapshot();
    let mut chunk = Vec::new();
    store.table.snapshot_chunk(id, usize::MAX, &mut chunk);
    assert_eq!(Table::new(2).install(&chunk), Ok(1));
    let at = chunk.windows(5).position(|window| window == b"field").unwrap();
    chunk[at - 1] = 100; // The name is not that long.
    assert!(Table::new(2).install(&chunk).is_err());
}

/// Records on the same keys as the other random records, so that types of values mix.
fn hash_record() -> impl Strategy<Value = super::model::Record> {
    let key = (0..6u8).prop_map(|number| format!("key{number}").into_bytes());
    let field = || (0..20u8).prop_map(|number| format!("f{number}").into_bytes());
    let value = || vec(any::<u8>(), 0..30);
    (key, vec((field(), value()), 1..5), 0..13u8, -9..9i64).prop_map(|(key, pairs, which, delta)| {
        let mut scratch = Vec::new();
        let (key, field, value) = (&key[..], &pairs[0].0[..], &pairs[0].1[..]);
        let all = || pairs.iter().flat_map(|(field, value)| [&field[..], &value[..]]);
        let command = match which {
            0..4 => {
                let pairs = List::build(&mut scratch, all());
                HashCommand::Set { key, pairs, counts: true }
            }
            4 => HashCommand::SetIfAbsent { key, field, value },
            5 | 6 => {
                let fields = pairs.iter().map(|(field, _)| &field[..]);
                HashCommand::Delete { key, fields: List::build(&mut scratch, fields) }
            }
            7 | 8 => HashCommand::IncrementBy { key, field, delta },
            9 => HashCommand::IncrementByFloat { key, field, delta: b"0.25" },
            10 | 11 => {
                let fields = pairs.iter().map(|(field, _)| &field[..]);
                let fields = List::build(&mut scratch, fields);
                let (deadline, condition) = (Deadline::In(delta * 5), ExpireCondition::Always);
                HashCommand::Expire { key, fields, deadline, condition }
            }
            _ => {
                let pairs = List::build(&mut scratch, all());
                let expiry = Expiry::Set(Deadline::In(delta * 5));
                let condition = FieldsCondition::of_fields(Condition::Always);
                HashCommand::SetExpire { key, pairs, expiry, condition }
            }
        };
        super::model::Record::of(&Command::Hash(command))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// One replica replies, another one does not, and a third joins midway by a snapshot.
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
fn the_digest_of_a_hash_differs_from_that_of_a_string_of_its_bytes() {
    let [mut hash, mut string] = [Store::new(), Store::new()];
    hash.play("HSET h a 1 -> 1");
    let bytes = hash.table.register(b"h").value.to_vec();
    string.apply(&plain_set(b"h", &bytes));
    assert_ne!(hash.table.digest(), string.table.digest());
    assert_eq!(hash.read(&Command::Hash(HashCommand::All { key: b"h", part: HashPart::Fields })), "[\"a\"]");
}

#[test]
fn fields_are_set_depending_on_their_key() {
    play(
        r#"
        HSETEX h XX FIELDS a 1  -> 0
        EXISTS h                -> 0
        HSETEX h NX FXX FIELDS a 1 -> 0
        HSETEX h NX FNX PX 5 FIELDS a 1 -> 1
        HSETEX h NX FIELDS b 1  -> 0
        HSETEX h XX FNX KEEPTTL FIELDS b 1 -> 1
        HSETEX h XX FNX FIELDS b 2 -> 0
        HDEL h b                -> 1
        wait 5
        HSETEX h XX FIELDS a 2  -> 0
        HSETEX h NX FIELDS a 3  -> 1
        HGETALL h               -> {"a"="3"}
    "#,
    );
}
