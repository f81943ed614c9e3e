//! Lists: which requests are refused, in the words of Redis 7.0.

use super::*;
use kv::{List, ListCommand};

#[test]
fn options_of_lists_are_read() {
    let list = |line: &str, expected: ListCommand<'_>| assert_parses(line, OnList(expected));
    list("LPOP k", ListCommand::Pop { key: KEY, at_front: true, count: None });
    list("RPOP k 0", ListCommand::Pop { key: KEY, at_front: false, count: Some(0) });
    let mut scratch = Vec::new();
    let elements = List::build(&mut scratch, [&b"a"[..], b"b"]);
    list("RPUSHX k a b", ListCommand::Push { key: KEY, elements, at_front: false, if_present: true });
    list("lmpop 2 a b right", ListCommand::MultiPop { keys: elements, at_front: false, count: 1 });
    list("LMPOP 2 a b LEFT COUNT 3", ListCommand::MultiPop { keys: elements, at_front: true, count: 3 });
    list(
        "LMOVE k v left RIGHT",
        ListCommand::Move { from: KEY, to: VALUE, from_front: true, to_front: false },
    );
    list("RPOPLPUSH k v", ListCommand::Move { from: KEY, to: VALUE, from_front: false, to_front: true });
    list(
        "LINSERT k after p v",
        ListCommand::Insert { key: KEY, is_before: false, pivot: b"p", element: VALUE },
    );
    let position =
        ListCommand::Position { key: KEY, element: VALUE, skip: -2, count: Some(0), compared_max: 9 };
    list("LPOS k v RANK -2 MAXLEN 9 COUNT 0", position);
    let position = ListCommand::Position { key: KEY, element: VALUE, skip: 1, count: None, compared_max: 0 };
    list("LPOS k v", position);
}

#[test]
fn errors_of_commands_on_lists_are_those_of_redis() {
    let (syntax, integer) = ("ERR syntax error", "ERR value is not an integer or out of range");
    for (line, expected) in [
        ("LPUSH l", "ERR wrong number of arguments for 'lpush' command"),
        ("LPOP l x", "ERR value is out of range, must be positive"),
        ("RPOP l -1", "ERR value is out of range, must be positive"),
        ("LPOP l 1 2", "ERR wrong number of arguments for 'lpop' command"),
        ("LINDEX l x", integer),
        ("LSET l x v", integer),
        ("LRANGE l 0 x", integer),
        ("LTRIM l x 0", integer),
        ("LREM l x v", integer),
        ("LINSERT l foo p v", syntax),
        (
            "LPOS l a RANK 0",
            "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative \
             to start from the end of the list",
        ),
        ("LPOS l a RANK x", integer),
        (
            "LPOS l a RANK -9223372036854775808",
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        ),
        ("LPOS l a COUNT -1", "ERR COUNT can't be negative"),
        ("LPOS l a MAXLEN x", "ERR MAXLEN can't be negative"),
        ("LPOS l a RANK", syntax),
        ("LPOS l a foo 1", syntax),
        ("LMOVE a b up left", syntax),
        ("LMOVE a b left up", syntax),
        ("LMPOP 0 a left", "ERR numkeys should be greater than 0"),
        ("LMPOP x a left", "ERR numkeys should be greater than 0"),
        ("LMPOP 2 a left", syntax),
        ("LMPOP 1 a up", syntax),
        ("LMPOP 1 a left COUNT 0", "ERR count should be greater than 0"),
        ("LMPOP 1 a left COUNT x", "ERR count should be greater than 0"),
        ("LMPOP 1 a left COUNT x COUNT 1", "ERR count should be greater than 0"),
        ("LMPOP 1 a left COUNT 1 COUNT 1", "ERR syntax error"),
        ("LMPOP 1 a left COUNT", syntax),
        ("LMPOP 1 a left foo 1", syntax),
        ("LMPOP 1 a left COUNT 1 COUNT 2", syntax),
        ("LMPOP 9223372036854775807 a left", syntax),
    ] {
        assert_refused(line, expected);
    }
}
