//! Sets: which requests are refused, in the words of Redis 7.0.

use super::*;
use kv::{List, SetCommand, SetOperation};

#[test]
fn options_of_sets_are_read() {
    let set = |line: &str, expected: SetCommand<'_>| assert_parses(line, OnSet(expected));
    let mut scratch = Vec::new();
    let list = List::build(&mut scratch, [&b"a"[..], b"b"]);
    set("SADD k a b", SetCommand::Add { key: KEY, members: list });
    set("SPOP k", SetCommand::Pop { key: KEY, count: None });
    set("SPOP k 0", SetCommand::Pop { key: KEY, count: Some(0) });
    set("SRANDMEMBER k -3", SetCommand::Random { key: KEY, count: Some(-3) });
    set("SMOVE k v a", SetCommand::Move { from: KEY, to: VALUE, member: b"a" });
    set("SINTERCARD 2 a b", SetCommand::CountCommon { keys: list, limit: 0 });
    set("SINTERCARD 2 a b LIMIT 1 limit 7", SetCommand::CountCommon { keys: list, limit: 7 });
    set("SDIFFSTORE k a b", SetCommand::Store { operation: SetOperation::Difference, to: KEY, keys: list });
    set("SUNION a b", SetCommand::Combine { operation: SetOperation::Union, keys: list });
    let scan = SetCommand::Scan { key: KEY, position: 7, count: 100, pattern: Some(b"a*") };
    set("SSCAN k 7 count 100 MATCH a*", scan);
}

#[test]
fn errors_of_commands_on_sets_are_those_of_redis() {
    let (syntax, integer) = ("ERR syntax error", "ERR value is not an integer or out of range");
    for (line, expected) in [
        ("SADD s", "ERR wrong number of arguments for 'sadd' command"),
        ("SPOP s x", "ERR value is out of range, must be positive"),
        ("SPOP s -1", "ERR value is out of range, must be positive"),
        ("SPOP s 1 2", syntax),
        ("SRANDMEMBER s x", integer),
        ("SRANDMEMBER s 1 2", syntax),
        (
            "SRANDMEMBER s -9223372036854775808",
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        ),
        ("SINTERCARD 0 s", "ERR numkeys should be greater than 0"),
        ("SINTERCARD x s", "ERR numkeys should be greater than 0"),
        ("SINTERCARD 2 s", "ERR Number of keys can't be greater than number of args"),
        ("SINTERCARD 1 s LIMIT -1", "ERR LIMIT can't be negative"),
        ("SINTERCARD 1 s LIMIT x", "ERR LIMIT can't be negative"),
        ("SINTERCARD 1 s LIMIT", syntax),
        ("SINTERCARD 1 s foo 1", syntax),
        ("SSCAN s x", "ERR invalid cursor"),
        ("SSCAN s 0 COUNT 0", syntax),
        ("SSCAN s 0 COUNT x", integer),
        ("SSCAN s 0 foo 1", syntax),
        ("SSCAN s 0 MATCH", syntax),
    ] {
        assert_refused(line, expected);
    }
}
