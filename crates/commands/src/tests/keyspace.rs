//! Keys of any kind, and the keyspace as a whole.

use super::*;
use kv::RestoreOptions;
use kv::command::FormerUse;

#[test]
fn commands_of_several_keys_list_them_in_order() {
    for (line, expected) in [
        ("MGET a b a", r#"MultiGet { keys: ["a", "b", "a"] }"#),
        ("DEL a b", r#"Delete { keys: ["a", "b"] }"#),
        ("UNLINK a", r#"Delete { keys: ["a"] }"#),
        ("EXISTS a a", r#"Exists { keys: ["a", "a"] }"#),
        ("TOUCH a b", r#"Exists { keys: ["a", "b"] }"#),
        ("MSET a 1 b ''", r#"MultiSet { pairs: ["a", "1", "b", ""], if_absent: false }"#),
        ("MSETNX a 1", r#"MultiSet { pairs: ["a", "1"], if_absent: true }"#),
        (
            "MSETEX 2 a 1 b 2 XX KEEPTTL",
            r#"MultiSetExpire { pairs: ["a", "1", "b", "2"], expiry: Keep, condition: IfPresent }"#,
        ),
    ] {
        parse(&request(line), |parsed| assert_eq!(format!("{:?}", parsed.unwrap()), expected));
    }
    assert_refused("MSET a 1 b", "ERR wrong number of arguments for 'mset' command");
    assert_refused("MSETNX a 1 b", "ERR wrong number of arguments for 'msetnx' command");
}

#[test]
fn renaming_and_copying() {
    let copy = |replace| Copy { from: KEY, to: b"j", replace };
    let cases = [
        ("RENAME k j", Rename { from: KEY, to: b"j", if_absent: false }),
        ("RENAMENX k k", Rename { from: KEY, to: KEY, if_absent: true }),
        ("COPY k j", copy(false)),
        ("COPY k j replace REPLACE", copy(true)),
        ("COPY k j DB 0 REPLACE", copy(true)),
    ];
    for (line, expected) in cases {
        assert_parses(line, expected);
    }
    let refusals = [
        ("COPY k k", "ERR source and destination objects are the same"),
        ("COPY k k DB 0 REPLACE", "ERR source and destination objects are the same"),
        ("COPY k k DB 1", "ERR COPY makes no copies in other databases here: each is a group of its own"),
        ("COPY k j DB 16", "ERR DB index is out of range"),
        ("COPY k j DB -1", "ERR DB index is out of range"),
        ("COPY k j DB x", "ERR value is not an integer or out of range"),
        (
            "COPY k j DB 9999999999",
            "ERR value is out of range, value must between -2147483648 and 2147483647",
        ),
        ("COPY k j DB", "ERR syntax error"),
        ("COPY k j BAD", "ERR syntax error"),
    ];
    for (line, expected) in refusals {
        assert_refused(line, expected);
    }
}

#[test]
fn values_in_the_format_of_redis() {
    let used_before = |deadline, replaces, used| Restore {
        key: KEY,
        payload: b"p",
        deadline,
        options: RestoreOptions { replaces, used },
    };
    let restore = |deadline, replaces| used_before(deadline, replaces, None);
    let cases = [
        ("DUMP k", Dump { key: KEY }),
        ("RESTORE k 0 p", restore(None, false)),
        ("RESTORE k 5 p replace", restore(Some(kv::Deadline::In(5)), true)),
        (
            "RESTORE k 5 p ABSTTL IDLETIME 1",
            used_before(Some(kv::Deadline::At(5)), false, Some(FormerUse::Idle(1))),
        ),
        ("RESTORE k 0 p FREQ 255", used_before(None, false, Some(FormerUse::Frequency(255)))),
        ("RESTORE k 0 p IDLETIME 99999999999", used_before(None, false, Some(FormerUse::Idle(u32::MAX)))),
    ];
    for (line, expected) in cases {
        assert_parses(line, expected);
    }
    let refusals = [
        ("RESTORE k -1 p", "ERR Invalid TTL value, must be >= 0"),
        ("RESTORE k x p", "ERR value is not an integer or out of range"),
        ("RESTORE k 0 p IDLETIME -1", "ERR Invalid IDLETIME value, must be >= 0"),
        ("RESTORE k 0 p FREQ 256", "ERR Invalid FREQ value, must be >= 0 and <= 255"),
        ("RESTORE k 0 p FREQ", "ERR syntax error"),
        ("RESTORE k 0 p IDLETIME 1 FREQ 255", "ERR syntax error"),
    ];
    for (line, expected) in refusals {
        assert_refused(line, expected);
    }
}

#[test]
fn commands_on_the_whole_keyspace() {
    let scan = |position, count, pattern, kind| Scan { position, count, pattern, kind, group: 0, next: 0 };
    let cases = [
        ("KEYS a*", Keys { pattern: b"a*" }),
        ("RANDOMKEY", RandomKey { draw: 0 }),
        ("DBSIZE", Size {}),
        ("FLUSHALL", Clear {}),
        ("FLUSHALL async", Clear {}),
        ("FLUSHDB SYNC", Clear {}),
        ("SCAN 0", scan(0, 10, None, None)),
        ("SCAN ''", scan(0, 10, None, None)),
        ("SCAN 18446744073709551615", scan(u64::MAX, 10, None, None)),
        ("SCAN 1 COUNT 5 COUNT 7", scan(1, 7, None, None)),
        ("SCAN 1 match a* TYPE string", scan(1, 10, Some(b"a*"), Some(b"string"))),
    ];
    for (line, expected) in cases {
        assert_parses(line, expected);
    }
    let refusals = [
        ("FLUSHALL NOW", "ERR syntax error"),
        ("FLUSHDB ASYNC SYNC", "ERR syntax error"),
        ("SCAN abc", "ERR invalid cursor"),
        ("SCAN 18446744073709551616", "ERR invalid cursor"),
        ("SCAN abc BAD", "ERR invalid cursor"),
        ("SCAN 0 COUNT", "ERR syntax error"),
        ("SCAN 0 COUNT 0", "ERR syntax error"),
        ("SCAN 0 COUNT -1", "ERR syntax error"),
        ("SCAN 0 COUNT x", "ERR value is not an integer or out of range"),
        ("SCAN 0 BAD x", "ERR syntax error"),
    ];
    for (line, expected) in refusals {
        assert_refused(line, expected);
    }
}
