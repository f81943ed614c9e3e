//! Whole keys: `RENAME`, `COPY`, `FLUSHALL`, replicated values.

use super::script::play;
use super::*;

#[test]
fn a_key_is_renamed_with_its_expiry() {
    play(
        r#"
        RENAME missing k        -> !ERR no such key
        RENAMENX missing k      -> !ERR no such key
        SET a 1 EX 10           -> OK
        SET b 2                 -> OK
        RENAMENX a b            -> 0
        RENAME a b              -> OK
        GET b                   -> "1"
        TTL b                   -> 10
        EXISTS a                -> 0
        RENAMENX b a            -> 1
        RENAME a a              -> OK
        RENAMENX a a            -> 0
        SET b 2 EX 5            -> OK
        PERSIST a               -> 1
        RENAME a b              -> OK
        TTL b                   -> -1
        DBSIZE                  -> 1
    "#,
    );
}

#[test]
fn a_key_is_copied_with_its_expiry() {
    play(
        r#"
        COPY missing k          -> 0
        SET a 1 EX 10           -> OK
        COPY a b                -> 1
        TTL b                   -> 10
        SET a 2                 -> OK
        COPY a b                -> 0
        GET b                   -> "1"
        COPY a b REPLACE        -> 1
        GET b                   -> "2"
        TTL b                   -> -1
        DBSIZE                  -> 2
    "#,
    );
}

#[test]
fn all_keys_are_removed_at_once() {
    let mut store = Store::new();
    store.play(
        r#"
        FLUSHALL                -> OK
        SET a 1 EX 10           -> OK
        SET b 2                 -> OK
        FLUSHALL                -> OK
        DBSIZE                  -> 0
        SET a 3                 -> OK
        KEYS *                  -> ["a"]
    "#,
    );
    assert_eq!(store.table.expires(), 0);
}

#[test]
fn keys_are_found_by_pattern() {
    play(
        r#"
        MSET user:1 a user:2 b order:1 c    -> OK
        KEYS user:2*                        -> ["user:2"]
        KEYS ord*:1                         -> ["order:1"]
        KEYS nothing*                       -> []
    "#,
    );
}

#[test]
fn a_replicated_value_counts_only_if_it_is_newer() {
    let mut store = Store::new();
    store.play(
        r#"
        REPLICATE k v 100       -> [1 100]
        REPLICATE k w 100       -> [0 100]
        REPLICATE k w 99        -> [0 100]
        REPLICATE k x 101       -> [1 101]
        GET k                   -> "x"
        REPLICATE l y 50        -> [1 50]
        FETCH l                 -> ["y" 50 nil]
        SET l z EX 10           -> OK
        FETCH l                 -> ["z" 103 1010000]
        REPLICATE l z 200       -> [1 200]
        FETCH l                 -> ["z" 200 nil]
        REPLICATE k x 4611686018427387905   -> !ERR version is out of range
    "#,
    );
    assert_eq!(store.table.version_floor(), 200);
}
