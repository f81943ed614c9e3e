//! Deadlines: set, reported, kept, passed, purged. The script's clock starts at 1,000,000 ms.

use super::script::play;
use super::*;
use crate::command::{Deadline, ExpireCondition};

#[test]
fn a_key_is_missing_from_its_deadline_on() {
    play(
        r#"
        SET k v PX 100          -> OK
        wait 99
        GET k                   -> "v"
        PTTL k                  -> 1
        wait 1
        GET k                   -> nil
        PTTL k                  -> -2
        EXISTS k                -> 0
        KEYS *                  -> []
        RANDOMKEY               -> nil
        SET k w XX              -> nil
        DBSIZE                  -> 0
    "#,
    );
}

#[test]
fn the_time_left_is_rounded_to_the_nearest_second() {
    play(
        r#"
        TTL k                   -> -2
        SET k v                 -> OK
        TTL k                   -> -1
        PEXPIRETIME k           -> -1
        EXPIRE k PX 1499        -> 1
        TTL k                   -> 1
        EXPIRE k PX 1500        -> 1
        TTL k                   -> 2
        PTTL k                  -> 1500
        PEXPIRETIME k           -> 1001500
        EXPIRETIME k            -> 1002
        FETCH k                 -> ["v" 3 1001500]
        PERSIST k               -> 1
        PERSIST k               -> 0
        FETCH k                 -> ["v" 4 nil]
        FETCH missing           -> nil
    "#,
    );
}

#[test]
fn set_clears_the_expiry_unless_it_is_to_be_kept() {
    play(
        r#"
        SET k v EX 10           -> OK
        SET k w KEEPTTL         -> OK
        TTL k                   -> 10
        SET k x                 -> OK
        TTL k                   -> -1
        SET k v EX 10           -> OK
        SET l v                 -> OK
        MSET k y                -> OK
        TTL k                   -> -1
        SET new v KEEPTTL       -> OK
        TTL new                 -> -1
    "#,
    );
}

#[test]
fn expire_obeys_its_condition() {
    play(
        r#"
        EXPIRE missing EX 10    -> 0
        SET k v                 -> OK
        EXPIRE k EX 10 XX       -> 0
        EXPIRE k EX 10 GT       -> 0
        EXPIRE k EX 10 XX LT    -> 0
        EXPIRE k EX 10 LT       -> 1
        EXPIRE k EX 5 NX        -> 0
        EXPIRE k EX 5 GT        -> 0
        EXPIRE k EX 10 GT       -> 0
        EXPIRE k EX 15 GT       -> 1
        EXPIRE k EX 20 LT       -> 0
        EXPIRE k EX 12 XX LT    -> 1
        EXPIRE k EX 13 XX GT    -> 1
        EXPIRE k EX 14 XX       -> 1
        TTL k                   -> 14
        PERSIST k               -> 1
        EXPIRE k EX 7 NX        -> 1
        TTL k                   -> 7
    "#,
    );
}

#[test]
fn a_deadline_that_has_passed_removes_the_key() {
    play(
        r#"
        SET k v                 -> OK
        EXPIRE k EX -1          -> 1
        DBSIZE                  -> 0
        SET k v                 -> OK
        SET k w PXAT 999999     -> OK
        DBSIZE                  -> 0
        SET k w PXAT 1000000    -> OK
        DBSIZE                  -> 0
        SET k w PXAT -5         -> OK
        DBSIZE                  -> 0
        SET k w PXAT 1000001    -> OK
        DBSIZE                  -> 1
        SET k x PXAT 5 GET      -> "w"
        DBSIZE                  -> 0
    "#,
    );
}

#[test]
fn every_write_treats_an_expired_key_as_missing() {
    let writes = [
        ("SETNX k w", "1", "\"w\""),
        ("SET k w GET", "nil", "\"w\""),
        ("APPEND k w", "1", "\"w\""),
        ("SETRANGE k 0 w", "1", "\"w\""),
        ("INCRBY k 1", "1", "\"1\""),
        ("INCRBYFLOAT k 1.5", "\"1.5\"", "\"1.5\""),
        ("MSETNX k w", "1", "\"w\""),
        ("GETDEL k", "nil", "nil"),
        ("GETEX k PERSIST", "nil", "nil"),
        ("DEL k", "0", "nil"),
        ("EXPIRE k EX 10", "0", "nil"),
        ("PERSIST k", "0", "nil"),
        ("RENAME k l", "!ERR no such key", "nil"),
        ("COPY k l", "0", "nil"),
        ("REPLICATE k w 1", "[1 1]", "\"w\""),
        ("RENAMENX l k", "1", "\"l\""),
        ("COPY l k", "1", "\"l\""),
    ];
    for (write, reply, value) in writes {
        let mut store = Store::new();
        store.play(&format!(
            "SET l l -> OK
            SET k 7 PX 5 -> OK
            wait 5
            {write} -> {reply}
            GET k -> {value}
            TTL k -> {}",
            if value == "nil" { -2 } else { -1 },
        ));
        assert_eq!((store.table.expires(), store.table.statistics().expired), (0, 1), "{write}");
    }
}

#[test]
fn huge_deadlines_do_not_overflow() {
    let mut store = Store::new();
    let deadlines = [Deadline::In(i64::MAX), Deadline::At(i64::MAX), Deadline::In(i64::MIN)];
    for (deadline, exists) in deadlines.into_iter().zip(["1", "1", "0"]) {
        store.time = u64::MAX - 10;
        store.set("k", "v");
        store.time = 1;
        store.apply(&Command::Expire { key: b"k", deadline, condition: ExpireCondition::Always });
        store.play(&format!("EXISTS k -> {exists}"));
    }
    store.time = u64::MAX;
    store.set("k", "v");
    assert_eq!(store.read(&Command::Get { key: b"k" }), "\"v\"", "a key without a deadline never expires");
}

#[test]
fn the_leader_purges_expired_keys_some_at_a_time() {
    let mut store = Store::new();
    for number in 0..100 {
        store.play(&format!("SET k{number} v PX {} -> OK", 10 + number));
    }
    store.play("SET stays v -> OK");
    assert_eq!(store.table.purge_until(store.time, 30), None, "nothing is due");
    store.time += 49;
    assert_eq!(store.table.purge_until(store.time, 30), Some(1_000_039), "thirty keys at most");
    store.play("PURGE 1000039 -> 30");
    assert_eq!(store.table.purge_until(store.time, 30), Some(1_000_049), "ten are left");
    store.play("PURGE 1000049 -> 10");
    assert_eq!(store.table.purge_until(store.time, 30), None);
    assert_eq!((store.table.len(), store.table.expires(), store.table.statistics().expired), (61, 60, 40));
}

#[test]
fn what_has_expired_can_be_kept_for_tests() {
    let mut store = Store::new();
    store.play(
        "SET k v PX 5 -> OK
        SET l v PX 5 -> OK
        HSETEX h PX 5 FIELDS a 1 b 2 -> 1
        wait 5",
    );
    store.table.keep_expired(true);
    assert_eq!(store.table.purge_until(store.time, 30), None);
    assert!(!store.table.has_no_deadlines(), "the group is not at rest");
    store.play("SET l w -> OK\nDBSIZE -> 3");
    assert_eq!(
        store.table.purge_until(store.time, 30),
        None,
        "a write removes the key that it finds, no more"
    );
    store.play("GET k -> nil\nEXISTS h -> 1\nHLEN h -> 0");
    assert_eq!((store.table.len(), store.table.hashes_with_deadlines()), (3, 1));
    let until = store.table.purge_until(store.time, 30).expect("a key is due, and a read has looked for one");
    store.play(&format!("PURGE {until} -> 1\nSET m v PX 5 -> OK\nwait 5"));
    assert_eq!(store.table.purge_until(store.time, 30), None);
    store.table.keep_expired(false);
    let until = store.table.purge_until(store.time, 30).expect("a key is due");
    store.play(&format!("PURGE {until} -> 1"));
    let counted = store.table.statistics();
    assert_eq!(
        (counted.expired, counted.purged, counted.purged_fields),
        (3, 2, 2),
        "SET has found the other key"
    );
    assert_eq!((store.table.len(), store.table.has_no_deadlines()), (1, true));
}

#[test]
fn keys_that_share_a_deadline_and_a_hash_expire_separately() {
    let mut store = Store::colliding();
    for number in 0..100 {
        store.play(&format!("SET k{number} v PX 10 -> OK"));
    }
    assert_eq!(store.table.expires(), 100);
    for number in 0..50 {
        store.play(&format!("PERSIST k{number} -> 1"));
    }
    store.play("DEL k98 k99 -> 2\nEXPIRE k97 PX 20 -> 1");
    assert_eq!(store.table.expires(), 48);
    store.time += 10;
    store.play("PURGE 1000010 -> 47");
    assert_eq!((store.table.len(), store.table.expires()), (51, 1));
    store.play("PURGE 1000020 -> 1\nPURGE 1000020 -> 0");
    assert_eq!((store.table.len(), store.table.expires()), (50, 0));
}
