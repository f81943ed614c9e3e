//! Lists: replies of their commands, large ones compared with small ones, and a comparison with a model.

use super::script::play;
use super::*;
use crate::command::{Draft, ListCommand, Script, ScriptLimits};
use crate::table::kind::Kind;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

const WRONGTYPE: &str = "!WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn elements_are_pushed_and_popped_at_both_ends() {
    play(
        r#"
        RPUSH l a b c           -> 3
        LPUSH l x y             -> 5
        LRANGE l 0 -1           -> ["y" "x" "a" "b" "c"]
        LPOP l                  -> "y"
        RPOP l                  -> "c"
        LPOP l 2                -> ["x" "a"]
        RPUSH l d e             -> 3
        RPOP l 2                -> ["e" "d"]
        LPOP l 0                -> []
        LLEN l                  -> 1
        RPOP l 9                -> ["b"]
        EXISTS l                -> 0
        LPOP l                  -> nil
        LPOP l 1                -> aborted
        LPUSHX l a              -> 0
        RPUSHX l a              -> 0
        RPUSH l a               -> 1
        RPUSHX l b c            -> 3
        LPUSHX l z              -> 4
        LRANGE l 0 -1           -> ["z" "a" "b" "c"]
    "#,
    );
}

#[test]
fn an_expired_target_of_a_move_is_replaced() {
    play(
        r#"
        RPUSH from a b          -> 2
        RPUSH to x              -> 1
        EXPIRE to PX 100        -> 1
        wait 100
        LMOVE from to LEFT RIGHT -> "a"
        LRANGE from 0 -1        -> ["b"]
        LRANGE to 0 -1          -> ["a"]
        PTTL to                 -> -1
    "#,
    );
}

#[test]
fn ranks_count_from_both_ends() {
    play(
        r#"
        RPUSH l a b c d         -> 4
        LINDEX l 0              -> "a"
        LINDEX l -1             -> "d"
        LINDEX l -4             -> "a"
        LINDEX l 4              -> nil
        LINDEX l -5             -> nil
        LRANGE l 1 2            -> ["b" "c"]
        LRANGE l -2 -1          -> ["c" "d"]
        LRANGE l -9 1           -> ["a" "b"]
        LRANGE l 2 99           -> ["c" "d"]
        LRANGE l 3 2            -> []
        LRANGE l 4 9            -> []
        LRANGE l 0 -5           -> []
        LRANGE l -9223372036854775808 9223372036854775807 -> ["a" "b" "c" "d"]
        LSET l 1 B              -> OK
        LSET l -1 D             -> OK
        LSET l 4 x              -> !ERR index out of range
        LSET l -5 x             -> !ERR index out of range
        LSET no 0 x             -> !ERR no such key
        LRANGE l 0 -1           -> ["a" "B" "c" "D"]
        LTRIM l 1 -2            -> OK
        LRANGE l 0 -1           -> ["B" "c"]
        LTRIM l 5 9             -> OK
        EXISTS l                -> 0
        LTRIM l 0 1             -> OK
        LINDEX l 0              -> nil
        LRANGE l 0 -1           -> []
        LLEN l                  -> 0
    "#,
    );
}

#[test]
fn elements_are_found_by_value() {
    play(
        r#"
        RPUSH l a b c a b c a   -> 7
        LPOS l a                -> 0
        LPOS l a RANK 2         -> 3
        LPOS l a RANK -1        -> 6
        LPOS l a RANK -9223372036854775808 -> nil
        LPOS l a COUNT 0        -> [0 3 6]
        LPOS l a COUNT 2        -> [0 3]
        LPOS l a RANK -2 COUNT 9 -> [3 0]
        LPOS l c MAXLEN 2       -> nil
        LPOS l c MAXLEN 3 COUNT 0 -> [2]
        LPOS l z                -> nil
        LPOS l z COUNT 1        -> []
        LPOS no a               -> nil
        LPOS no a COUNT 1       -> []
        LINSERT l BEFORE b x    -> 8
        LINSERT l AFTER b y     -> 9
        LINSERT l AFTER z y     -> -1
        LINSERT no AFTER z y    -> 0
        LRANGE l 0 4            -> ["a" "x" "b" "y" "c"]
        LREM l 1 a              -> 1
        LREM l -1 a             -> 1
        LREM l 0 b              -> 2
        LREM l 0 b              -> 0
        LREM no 0 b             -> 0
        LRANGE l 0 -1           -> ["x" "y" "c" "a" "c"]
        LREM l -9223372036854775808 c -> 2
        LREM l 9 a              -> 1
    "#,
    );
}

#[test]
fn elements_move_between_lists_and_within_one() {
    play(
        r#"
        RPUSH l a b c           -> 3
        LMOVE l m RIGHT LEFT    -> "c"
        LMOVE l m LEFT RIGHT    -> "a"
        LRANGE m 0 -1           -> ["c" "a"]
        LMOVE m m LEFT RIGHT    -> "c"
        LMOVE m m RIGHT RIGHT   -> "c"
        LRANGE m 0 -1           -> ["a" "c"]
        LMOVE l m LEFT LEFT     -> "b"
        EXISTS l                -> 0
        LMOVE l m LEFT LEFT     -> nil
        LMPOP l m LEFT 2        -> ["m" ["b" "a"]]
        LMPOP l m RIGHT 2       -> ["m" ["c"]]
        LMPOP l m LEFT 2        -> aborted
        SET s v                 -> OK
        RPUSH l a               -> 1
    "#,
    );
}

#[test]
fn commands_on_lists_refuse_other_types_and_the_reverse() {
    let mut store = Store::new();
    store.play("RPUSH l a -> 1\nSET s v -> OK\nHSET h f v -> 1");
    for line in [
        "LPUSH s a",
        "LPUSHX h a",
        "LPOP s",
        "LPOP s 1",
        "LLEN s",
        "LINDEX h 0",
        "LRANGE s 0 -1",
        "LPOS s a",
        "LSET s 0 a",
        "LINSERT s BEFORE a b",
        "LREM s 0 a",
        "LTRIM s 0 1",
        "LMOVE s l LEFT LEFT",
        "LMOVE l s LEFT LEFT",
        "LMPOP no s l LEFT 1",
        "GET l",
        "STRLEN l",
        "APPEND l x",
        "INCRBY l 1",
        "HSET l f v",
        "HGETALL l",
        "GETDEL l",
        "SET l x IFEQ y",
    ] {
        store.play(&format!("{line} -> {WRONGTYPE}"));
    }
    store.play(
        r#"
        MGET s l                -> ["v" nil]
        TYPE l                  -> list
        ENCODING l              -> "quicklist"
        LRANGE l 0 -1           -> ["a"]
        SET l x                 -> OK
        TYPE l                  -> string
    "#,
    );
}

/// A store with a large list of numbers under `l`.
fn with_large_list(length: usize) -> Store {
    let mut store = Store::new();
    let texts: Vec<String> = (0..length).map(|number| number.to_string()).collect();
    let mut scratch = Vec::new();
    let elements = List::build(&mut scratch, texts.iter().map(String::as_bytes));
    let push = ListCommand::Push { key: b"l", elements, at_front: false, if_present: false };
    assert_eq!(store.apply(&Command::OnList(push)), length.to_string());
    store
}

/// Whether the key's collection is a large one.
fn is_large(table: &Table, key: &[u8]) -> bool {
    table.find(table.index.hash(key), key).unwrap().1.collection().is_some()
}

#[test]
fn commands_on_keys_work_on_large_lists() {
    let mut store = with_large_list(3000);
    assert!(is_large(&store.table, b"l"));
    store.play(
        r#"
        EXPIRE l PX 1000        -> 1
        COPY l copy             -> 1
        LSET copy 1500 x        -> OK
        RENAME l renamed        -> OK
        LINDEX renamed 1500     -> "1500"
        LINDEX copy 1500        -> "x"
        PERSIST copy            -> 1
        LTRIM renamed 10 12     -> OK
        LRANGE renamed 0 -1     -> ["10" "11" "12"]
        LLEN copy               -> 3000
        PTTL renamed            -> 1000
        wait 1000
        EXISTS renamed          -> 0
        SET copy v              -> OK
        GET copy                -> "v"
        DEL copy renamed        -> 1
    "#,
    );
    assert_eq!(store.table.entry_bytes, 0);
    assert!(!store.table.is_tidy());
    while store.table.tidy(100) {}
    assert!(store.table.is_tidy());
}

#[test]
fn a_list_becomes_large_and_small_again() {
    let mut store = with_large_list(3000);
    store.play("LTRIM l 0 2 -> OK");
    assert!(!is_large(&store.table, b"l"));
    let small = store.table.memory_bytes();
    let mut other = Store::new();
    other.play("RPUSH l 0 1 2 -> 3");
    assert!(small <= other.table.memory_bytes() + 64, "{small} {}", other.table.memory_bytes());
    store.play("RPUSH l a b c d e f -> 9");
    assert!(is_large(&store.table, b"l"));
    store.play(r#"LRANGE l 0 -1 -> ["0" "1" "2" "a" "b" "c" "d" "e" "f"]"#);
}

#[test]
fn a_command_that_changes_nothing_uses_no_version() {
    let mut store = with_large_list(100);
    let [large, digest] = [store.table.bytes_of(b"l") as u64, store.table.digest()];
    store.play("LREM l 0 none -> 0\nLINSERT l BEFORE none x -> -1\nLTRIM l 0 -1 -> OK\nLPOP l 0 -> []");
    assert_eq!((store.table.bytes_of(b"l") as u64, store.table.digest()), (large, digest));
}

#[test]
fn a_snapshot_has_a_large_list_as_it_was_when_the_snapshot_began() {
    for changes in ["LTRIM l 5 9 -> OK", "DEL l -> 1", "SET l v -> OK", "LSET l 7 x -> OK", "FLUSHALL -> OK"]
    {
        let mut store = with_large_list(2000);
        let (digest, floor) = (store.table.digest(), store.table.version_floor());
        let id = store.table.begin_snapshot();
        let mut copy = Table::new(7);
        let mut chunks = 0;
        loop {
            let mut chunk = Vec::new();
            let more = store.table.snapshot_chunk(id, 100, &mut chunk);
            assert!(chunk.len() < 200, "{}", chunk.len());
            copy.install(&chunk).unwrap();
            chunks += 1;
            if !more {
                break;
            }
            if chunks == 20 {
                store.play(changes);
            }
        }
        copy.set_version_floor(floor);
        assert_eq!(copy.digest(), digest, "{changes}");
        assert!(chunks > 50 && is_large(&copy, b"l"));
        store.table.end_snapshot(id);
    }
}

#[test]
fn a_chunk_with_an_invalid_list_is_refused() {
    let mut store = with_large_list(2000);
    let id = store.table.begin_snapshot();
    let (mut first, mut second) = (Vec::new(), Vec::new());
    store.table.snapshot_chunk(id, 1, &mut first);
    store.table.snapshot_chunk(id, 1, &mut second);
    assert!(Table::new(2).install(&second).is_err(), "the first piece is missing");
    let mut table = Table::new(2);
    assert_eq!(table.install(&first), Ok(0));
    assert_eq!(table.install(&first), Ok(0), "the piece came twice");
    assert_eq!(table.install(&second), Ok(0));
    for end in 1..first.len() {
        assert!(Table::new(2).install(&first[..end]).is_err(), "{end}");
    }
    // With lengths in front of the elements; and without, where all have the same length.
    for (elements, value_bytes, wrong_counts) in [("a bb", 7, [0, 1, 3]), ("a b", 4, [0, 3, 4])] {
        let mut small = Store::new();
        small.play(&format!("RPUSH l {elements} -> 2"));
        let id = small.table.begin_snapshot();
        let mut chunk = Vec::new();
        small.table.snapshot_chunk(id, 1000, &mut chunk);
        assert_eq!(Table::new(2).install(&chunk), Ok(1));
        let count_at = chunk.len() - value_bytes;
        for count in wrong_counts {
            chunk[count_at] = count;
            assert!(Table::new(2).install(&chunk).is_err(), "{elements}: {count}");
        }
    }
}

/// Runs a script of lines on the keys `l` and `m`.
fn eval(store: &mut Store, text: &str) {
    store.table.set_interpreter(&super::scripts::Lines);
    let limits = ScriptLimits { value_bytes_max: 100, cost_max: 1000 };
    let mut scratch = Vec::new();
    let script = Script::build(&mut scratch, text.as_bytes(), [&b"l"[..], b"m"], 2, limits, true).unwrap();
    store.apply(&Command::Script(script));
}

#[test]
fn a_script_that_is_undone_leaves_lists_as_they_were() {
    let mut store = with_large_list(2000);
    store.play("RPUSH m a b -> 2");
    let (digest, bytes) = (store.table.digest(), store.table.entry_bytes);
    eval(&mut store, "LPOP l 1500\nLSET l 3 x\nRPUSH m c\nLMOVE l m LEFT LEFT\nDEL l\nLPUSH l y\nundo");
    assert_eq!(store.table.entry_bytes, bytes);
    store.play("LLEN l -> 2000\nLINDEX l 3 -> \"3\"\nLRANGE m 0 -1 -> [\"a\" \"b\"]");
    // The only difference is the versions that were used up.
    let mut other = with_large_list(2000);
    other.play("RPUSH m a b -> 2");
    other.table.set_version_floor(store.table.version_floor());
    let removed = |table: &mut Table| {
        table.removed_versions = Default::default();
        table.digest()
    };
    assert_eq!(removed(&mut store.table), removed(&mut other.table));
    assert_ne!(digest, store.table.digest(), "the versions are used up");
}

#[test]
fn a_transaction_with_too_long_replies_still_removes_elements() {
    let mut store = with_large_list(1000);
    let mut draft = Draft::default();
    for _ in 0..3 {
        assert!(draft.push(&Command::OnList(ListCommand::Pop {
            key: b"l",
            at_front: true,
            count: Some(100)
        })));
    }
    let mut out = ReplyBuffer::new();
    out.bound_each(1000);
    store.table.apply(&Command::Transaction(draft.transaction()), 9, 9, &mut out);
    assert!(text_of(&out).contains("the command was carried out"), "{}", text_of(&out));
    store.play("LLEN l -> 700");
    let mut out = ReplyBuffer::new();
    out.bound_each(1000);
    store.table.read(&Command::OnList(ListCommand::Range { key: b"l", start: 0, end: -1 }), 9, &mut out);
    assert_eq!(text_of(&out), "!ERR the reply would hold more than 1000 bytes");
}

/// A command on one of a few lists, as an encoded record.
pub(super) fn list_record() -> impl Strategy<Value = super::model::Record> {
    let key = || (0..4u8).prop_map(|number| format!("key{number}").into_bytes());
    let element = || prop_oneof![9 => vec(0..3u8, 1..3), 1 => vec(any::<u8>(), 0..90)];
    let rank = || -12..12i64;
    (key(), key(), vec(element(), 1..8), rank(), rank(), any::<bool>(), any::<bool>(), 0..13u8).prop_map(
        |(key, other, elements, start, end, at_front, flag, which)| {
            let (key, element, mut scratch) = (&key[..], &elements[0][..], Vec::new());
            let elements = List::build(&mut scratch, elements.iter().map(Vec::as_slice));
            let command = match which {
                0..5 => ListCommand::Push { key, elements, at_front, if_present: flag && which == 0 },
                5 => ListCommand::Pop { key, at_front, count: flag.then_some(start.unsigned_abs()) },
                6 => ListCommand::Set { key, rank: start, element },
                7 => ListCommand::Insert { key, is_before: flag, pivot: b"\x01", element },
                8 => ListCommand::Remove { key, count: start / 4, element: &[1] },
                9 => ListCommand::Trim { key, start: start / 3, end: end * 3 },
                10 => ListCommand::Position {
                    key,
                    element: &[1],
                    skip: end.max(0) + 1,
                    count: None,
                    compared_max: 0,
                },
                11 => ListCommand::Range { key, start, end },
                _ => ListCommand::Move { from: key, to: &other, from_front: at_front, to_front: flag },
            };
            super::model::Record::of(&Command::OnList(command))
        },
    )
}

/// The effect of a list command, in the simplest code.
fn carry_out(lists: &mut BTreeMap<Vec<u8>, Vec<Vec<u8>>>, command: &ListCommand<'_>) {
    use ListCommand::*;
    let mut first = &b""[..];
    let mut keys = Vec::new();
    command.for_each_key(|key| keys.push(key));
    if let Some(key) = keys.first() {
        first = key;
    }
    let list = lists.entry(first.to_vec()).or_default();
    let length = list.len() as i64;
    let from_end = |rank: i64| if rank < 0 { rank + length } else { rank };
    match *command {
        Push { elements, at_front, if_present, .. } if !if_present || length > 0 => {
            for element in elements.iter() {
                list.insert(if at_front { 0 } else { list.len() }, element.to_vec());
            }
        }
        Pop { at_front, count, .. } => {
            for _ in 0..count.unwrap_or(1).min(length as u64) {
                list.remove(if at_front { 0 } else { list.len() - 1 });
            }
        }
        Set { rank, element, .. } => {
            if let Some(place) = usize::try_from(from_end(rank)).ok().and_then(|rank| list.get_mut(rank)) {
                *place = element.to_vec();
            }
        }
        Insert { is_before, pivot, element, .. } => {
            if let Some(rank) = list.iter().position(|it| it == pivot) {
                list.insert(rank + usize::from(!is_before), element.to_vec());
            }
        }
        Remove { count, element, .. } => {
            for _ in 0..if count == 0 { length } else { count.abs() } {
                let mut equal = list.iter();
                let rank = if count < 0 {
                    equal.rposition(|it| it == element)
                } else {
                    equal.position(|it| it == element)
                };
                rank.map(|rank| list.remove(rank));
            }
        }
        Trim { start, end, .. } => {
            let ranks = from_end(start)..=from_end(end);
            let kept = list.iter().zip(0..).filter(|(_, rank)| ranks.contains(rank));
            *list = kept.map(|(element, _)| element.clone()).collect();
        }
        Move { to, from_front, to_front, .. } if length > 0 => {
            let element = list.remove(if from_front { 0 } else { list.len() - 1 });
            let target = lists.entry(to.to_vec()).or_default();
            target.insert(if to_front { 0 } else { target.len() }, element);
        }
        _ => {}
    }
    lists.retain(|_, list| !list.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn lists_match_a_simple_model(records in vec(list_record(), 0..120)) {
        let (mut table, mut lists) = (Table::new(1), BTreeMap::new());
        for (record, offset) in records.iter().zip(1..) {
            let command = record.command();
            table.apply(&command, offset, 1, &mut ReplyBuffer::new());
            if let Command::OnList(command) = &command {
                carry_out(&mut lists, command);
            }
            prop_assert_eq!(table.len(), lists.len());
            for (key, list) in &lists {
                let (items, _) = table.items_of(key, Kind::List, 1).unwrap();
                prop_assert!(items.iter_from(0).eq(list.iter().map(Vec::as_slice)), "{:?}", command);
            }
            for entry in table.index.iter() {
                entry.collection().inspect(|collection| collection.check_invariants());
            }
            table.check_invariants();
        }
    }
}
