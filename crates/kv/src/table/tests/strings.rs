//! `SET` in all its forms, `GET` and similar commands, `APPEND`, ranges.

use super::script::play;
use super::*;
use crate::Register;
use crate::limits::VALUE_BYTES_MAX_CEILING;

#[test]
fn a_value_is_stored_replaced_and_removed() {
    play(
        r#"
        GET k                   -> nil
        SET k one               -> OK
        GET k                   -> "one"
        SET k a-longer-value    -> OK
        GET k                   -> "a-longer-value"
        SET k ""                -> OK
        GET k                   -> ""
        STRLEN k                -> 0
        EXISTS k k missing      -> 2
        TYPE k                  -> string
        DBSIZE                  -> 1
        DEL k missing k         -> 1
        TYPE k                  -> none
        STRLEN k                -> 0
        DBSIZE                  -> 0
    "#,
    );
}

#[test]
fn keys_and_values_are_any_bytes() {
    play(
        r#"
        SET "" empty            -> OK
        SET \0 zero             -> OK
        SET \0\0 two\0zeros     -> OK
        GET ""                  -> "empty"
        GET \0                  -> "zero"
        GET \0\0                -> "two\x00zeros"
        DBSIZE                  -> 3
        KEYS ""                 -> [""]
        KEYS \0                 -> ["\x00"]
        KEYS \0\0               -> ["\x00\x00"]
    "#,
    );
}

#[test]
fn set_with_a_condition() {
    play(
        r#"
        SET k v XX              -> nil
        SET k v NX              -> OK
        SET k w NX              -> nil
        SET k w XX              -> OK
        GET k                   -> "w"
        SETNX k x               -> 0
        SETNX l x               -> 1
        MGET k l missing        -> ["w" "x" nil]
    "#,
    );
}

#[test]
fn set_that_returns_the_previous_value() {
    play(
        r#"
        SET k one GET           -> nil
        SET k two GET           -> "one"
        GETSET k three          -> "two"
        SET k four NX GET       -> "three"
        GET k                   -> "three"
        SET l one NX GET        -> nil
        GET l                   -> "one"
        SET m one XX GET        -> nil
        EXISTS m                -> 0
    "#,
    );
}

#[test]
fn several_values_at_once() {
    play(
        r#"
        MSET a 1 b 2 a 3        -> OK
        MGET a b                -> ["3" "2"]
        MSETNX c 1 b 9          -> 0
        EXISTS c                -> 0
        MSETNX c 1 d 2 c 3      -> 1
        MGET c d                -> ["3" "2"]
    "#,
    );
}

#[test]
fn several_values_are_stored_with_one_expiry_or_none_is() {
    play(
        r#"
        MSETEX 2 a 1 b 2 EX 10  -> 1
        TTL a                   -> 10
        TTL b                   -> 10
        MSETEX 2 b 3 c 3 NX     -> 0
        MSETEX 2 b 3 c 3 XX     -> 0
        MGET a b c              -> ["1" "2" nil]
        MSETEX 2 a 4 b 4 KEEPTTL XX -> 1
        TTL a                   -> 10
        MSETEX 2 a 5 a 6 XX     -> 1
        GET a                   -> "6"
        TTL a                   -> -1
        RPUSH l x               -> 1
        MSETEX 2 l 1 d 2 PX 500 -> 1
        TYPE l                  -> string
        MSETEX 2 l 1 new 2 EXAT 1 -> 1
        EXISTS l new            -> 0
    "#,
    );
}

#[test]
fn getdel_and_getex_return_the_value() {
    play(
        r#"
        GETDEL k                -> nil
        SET k v                 -> OK
        GETEX missing EX 10     -> nil
        GETEX k                 -> "v"
        TTL k                   -> -1
        GETEX k EX 10           -> "v"
        TTL k                   -> 10
        GETEX k                 -> "v"
        TTL k                   -> 10
        GETEX k PERSIST         -> "v"
        TTL k                   -> -1
        GETEX k PXAT 5          -> "v"
        EXISTS k                -> 0
        SET k v                 -> OK
        GETDEL k                -> "v"
        EXISTS k                -> 0
    "#,
    );
}

#[test]
fn append_lengthens_the_value_up_to_the_limit() {
    play(
        r#"
        APPEND k abc            -> 3
        APPEND k def            -> 6
        GET k                   -> "abcdef"
        EXPIRE k EX 10          -> 1
        APPEND k ""             -> 6
        APPEND k g              -> 7
        TTL k                   -> 10
        SETRANGE k 98 xx        -> 100
        APPEND k x              -> !ERR string exceeds maximum allowed size (proto-max-bulk-len)
        STRLEN k                -> 100
    "#,
    );
}

#[test]
fn a_part_of_the_value_is_overwritten() {
    play(
        r#"
        SETRANGE k 3 ""         -> 0
        EXISTS k                -> 0
        SETRANGE k 3 abc        -> 6
        GET k                   -> "\x00\x00\x00abc"
        SETRANGE k 0 xy         -> 6
        GET k                   -> "xy\x00abc"
        SETRANGE k 5 1234       -> 9
        GET k                   -> "xy\x00ab1234"
        SETRANGE k 2 ""         -> 9
        GETRANGE k 3 4          -> "ab"
        GETRANGE k -4 -1        -> "1234"
        GETRANGE missing 0 -1   -> ""
    "#,
    );
}

#[test]
fn a_gap_is_filled_with_zeros_even_after_a_longer_value() {
    play(
        r#"
        SET k abcdefghijklmnopqrstuvwxyz    -> OK
        SET k abcdefghijklmnopqrst          -> OK
        SETRANGE k 23 X                     -> 24
        GETRANGE k 19 -1                    -> "t\x00\x00\x00X"
    "#,
    );
}

#[test]
fn an_impossible_position_is_refused() {
    let mut store = Store::new();
    let key = b"k";
    for offset in [u64::MAX, VALUE_BYTES_MAX_CEILING as u64] {
        let reply = store.apply(&Command::SetRange { key, offset, value: b"x" });
        assert_eq!(reply, "!ERR string exceeds maximum allowed size (proto-max-bulk-len)");
    }
    let reply = store.apply(&Command::Append { key, value: b"abc", bytes_max: 2 });
    assert_eq!(reply, "!ERR string exceeds maximum allowed size (proto-max-bulk-len)");
    assert!(store.table.is_empty());
}

#[test]
fn encodings_have_redis_names() {
    play(
        r#"
        ENCODING k              -> nil
        SET k 12345             -> OK
        ENCODING k              -> "int"
        SET k 9223372036854775807 -> OK
        ENCODING k              -> "int"
        SET k 9223372036854775808 -> OK
        ENCODING k              -> "embstr"
        SET k 012               -> OK
        ENCODING k              -> "embstr"
        SET k 12345678901234567890123456789012345678901234 -> OK
        ENCODING k              -> "embstr"
        SET k 123456789012345678901234567890123456789012345 -> OK
        ENCODING k              -> "raw"
        SET k 1                 -> OK
        APPEND k 2              -> 2
        ENCODING k              -> "raw"
        INCRBY k 1              -> 13
        ENCODING k              -> "int"
        INCRBYFLOAT k 1         -> "14"
        ENCODING k              -> "embstr"
        SETRANGE k 0 2          -> 2
        COPY k l                -> 1
        ENCODING l              -> "raw"
        SETRANGE m 0 1          -> 1
        ENCODING m              -> "raw"
        APPEND n 1              -> 1
        ENCODING n              -> "int"
    "#,
    );
}

#[test]
fn a_reply_that_would_be_too_large_is_an_error() {
    let mut store = Store::new();
    let value = "v".repeat(64 << 20);
    store.set("big", &value);
    let mut scratch = Vec::new();
    let keys = List::build(&mut scratch, [&b"big"[..]; 8]);
    let reply = store.read(&Command::MultiGet { keys });
    assert_eq!(reply, "!ERR the reply would hold more than 536870912 bytes");
}

fn filled(keys: usize) -> Table {
    let mut table = Table::new(1);
    for number in 0..keys {
        let key = format!("k{number}");
        table.put_register(key.as_bytes(), Register { version: 1, deadline: Register::NEVER, value: b"v" });
    }
    table
}

#[test]
fn keys_removed_all_at_once_are_freed_little_by_little() {
    let (mut table, mut out) = (filled(5000), ReplyBuffer::new());
    table.apply(&Command::Clear {}, 2, 0, &mut out);
    assert_eq!(table.len(), 0);
    let mut steps = 1;
    while table.tidy(500) {
        steps += 1;
    }
    assert!((5..=11).contains(&steps), "{steps}");
    assert!(!table.tidy(500), "nothing is left");
}

#[test]
fn keys_kept_by_a_snapshot_are_freed_when_it_ends() {
    let (mut table, mut out) = (filled(5000), ReplyBuffer::new());
    let snapshots = [table.begin_snapshot(), table.begin_snapshot()];
    table.apply(&Command::Clear {}, 2, 0, &mut out);
    table.end_snapshot(snapshots[1]);
    assert!(!table.tidy(0), "the other snapshot still needs them");
    table.end_snapshot(snapshots[0]);
    assert!(table.tidy(0));
}

#[test]
fn small_tables_are_dropped_at_once_so_that_they_cannot_accumulate() {
    let (mut table, mut out) = (filled(100), ReplyBuffer::new());
    table.apply(&Command::Clear {}, 2, 0, &mut out);
    table.apply(&Command::Clear {}, 3, 0, &mut out);
    assert!(!table.tidy(0));
}

#[test]
fn a_value_is_stored_if_the_previous_one_is_as_expected() {
    play(
        r#"
        SET k new IFEQ old                  -> nil
        EXISTS k                            -> 0
        SET k one IFNE old                  -> OK
        SET k two IFEQ old                  -> nil
        SET k two IFEQ one                  -> OK
        SET k three IFNE two                -> nil
        SET k three IFEQ x GET              -> "two"
        GET k                               -> "two"
        SET k three IFEQ two GET EX 10      -> "two"
        SET k four IFNE "" KEEPTTL          -> OK
        TTL k                               -> 10
        DIGEST nothing                      -> nil
        wait 10000
        SET k five IFEQ four                -> nil
        EXISTS k                            -> 0
    "#,
    );
}

#[test]
fn a_value_is_compared_by_its_digest() {
    play(
        r#"
        SET k v IFDEQ 2d06800538d394c2      -> nil
        SET k "" IFDNE 2d06800538d394c2     -> OK
        DIGEST k                            -> "2d06800538d394c2"
        SET k v IFDNE 2D06800538D394C2      -> nil
        SET k v IFDEQ 2D06800538D394C2      -> OK
        GET k                               -> "v"
        SET k w IFDNE ?                     -> !ERR must be exactly 16 hexadecimal characters
        GET k                               -> "v"
        DEL k                               -> 1
        SET k w IFDNE ?                     -> OK
        GET k                               -> "w"
    "#,
    );
}

#[test]
fn a_key_is_removed_if_its_value_is_as_expected() {
    play(
        r#"
        DELEX k IFEQ v                      -> 0
        DELEX k IFNE v                      -> 0
        SET k "" -> OK
        DELEX k IFEQ v                      -> 0
        DELEX k IFDNE 2d06800538d394c2      -> 0
        DELEX k IFDEQ 2d06800538d394c2      -> 1
        EXISTS k                            -> 0
        SET k v -> OK
        DELEX k IFNE v                      -> 0
        DELEX k IFNE w                      -> 1
    "#,
    );
}

#[test]
fn room_for_all_large_values_of_one_read_is_reserved_once() {
    let mut store = Store::new();
    let large = "v".repeat(300_000);
    ["a", "b", "c"].into_iter().for_each(|key| store.set(key, &large));
    store.set("short", "v");
    let mut scratch = Vec::new();
    let keys = List::build(&mut scratch, [&b"short"[..], b"a", b"none", b"b", b"c", b"a"]);
    let mut out = ReplyBuffer::new();
    store.table.read(&Command::MultiGet { keys }, store.time, &mut out);
    let reply = out.take();
    assert_eq!(reply.len(), 5 + 6 + 1 + 4 * 300_005);
    assert!(reply.capacity() < reply.len() + 100, "{} bytes for {}", reply.capacity(), reply.len());
}
