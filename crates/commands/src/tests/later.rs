//! Arguments that are read after the keys were looked at.

use super::*;
use crate::later::reference_count;
use kv::{Answer, Foreseen, Kinds, Looked};

/// The command that answers in the place of a request with wrong arguments, if the keys decide.
fn foreseen(line: &str, check: impl FnOnce(Option<Command<'_>>)) {
    let request = request(line);
    let mut scratch = Vec::new();
    let mut error = None;
    parse(&request, |parsed| error = Some(parsed.expect_err(line)));
    check(error.and_then(|error| error.foreseen(request.as_arguments(), &mut scratch)));
}

fn looked(kinds: Kinds, missing: Option<Answer<'static>>) -> Looked<'static> {
    Looked { kinds, other: None, missing, group: None }
}

const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
const SYNTAX: &str = "ERR syntax error";

#[test]
fn keys_come_before_the_arguments_that_redis_reads_later() {
    let gone = Some(Answer::Error(b"ERR no such key"));
    let (empty, null) = (Some(Answer::EmptyScan), Some(Answer::Null));
    let no_fields = "ERR Mandatory argument FIELDS is missing or not at the right position";
    let no_digest = "ERR must be exactly 16 hexadecimal characters";
    let no_string = Some("ERR Key should be of string type if conditions are specified");
    let either = Kinds::SET.or(Kinds::SORTED);
    let cases: [(&str, &[&str], &str, Looked<'_>); 23] = [
        ("LINDEX k x", &["k"], NOT_AN_INTEGER, looked(Kinds::LIST, null)),
        ("LSET k x v", &["k"], NOT_AN_INTEGER, looked(Kinds::LIST, gone)),
        ("GETEX k EX 0", &["k"], "ERR invalid expire time in 'getex' command", looked(Kinds::STRING, null)),
        ("HEXPIRE k x FIELDS 1 f", &["k"], NOT_AN_INTEGER, looked(Kinds::HASH, None)),
        ("HGETEX k FIELDS 1 f FOO", &["k"], "ERR unknown argument: FOO", looked(Kinds::HASH, None)),
        ("HTTL k FOO 1 f", &["k"], no_fields, looked(Kinds::HASH, None)),
        ("HPERSIST k FOO 1 f", &["k"], no_fields, looked(Kinds::HASH, None)),
        ("HGETDEL k FOO 1 f", &["k"], no_fields, looked(Kinds::HASH, None)),
        ("HSCAN k 0 FOO", &["k"], SYNTAX, looked(Kinds::HASH, empty)),
        ("SSCAN k 0 COUNT 0", &["k"], SYNTAX, looked(Kinds::SET, empty)),
        ("ZSCAN k 0 COUNT x", &["k"], NOT_AN_INTEGER, looked(Kinds::SORTED, empty)),
        ("SET k v IFDEQ 5", &["k"], no_digest, looked(Kinds::STRING, null)),
        (
            "DELEX k IFDNE 5",
            &["k"],
            no_digest,
            Looked { other: no_string, ..looked(Kinds::STRING, Some(Answer::Integer(0))) },
        ),
        (
            "DELEX k FOO 5",
            &["k"],
            "ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE",
            Looked { other: no_string, ..looked(Kinds::STRING, Some(Answer::Integer(0))) },
        ),
        ("INCRBYFLOAT k x", &["k"], "ERR value is not a valid float", looked(Kinds::STRING, None)),
        ("ZUNION 2 k l FOO", &["k", "l"], SYNTAX, looked(either, None)),
        ("ZINTERSTORE d 1 k AGGREGATE x", &["k"], SYNTAX, looked(either, None)),
        ("ZINTERCARD 1 k LIMIT -1", &["k"], "ERR LIMIT can't be negative", looked(either, None)),
        ("GEOSEARCH k FOO BAR BAZ X Y", &["k"], SYNTAX, looked(Kinds::SORTED, None)),
        ("GEORADIUS k 1 1 x m", &["k"], "ERR need numeric radius", looked(Kinds::SORTED, None)),
        (
            "XCLAIM k g c x 1-1",
            &["k"],
            "ERR Invalid min-idle-time argument for XCLAIM",
            Looked { group: Some(b"g"), ..looked(Kinds::STREAM, None) },
        ),
        (
            "LCS k l FOO",
            &["k", "l"],
            SYNTAX,
            Looked {
                other: Some("ERR The specified keys must contain string values"),
                ..looked(Kinds::STRING, None)
            },
        ),
        (
            "RESTORE k x v",
            &["k"],
            NOT_AN_INTEGER,
            Looked { other: Some("BUSYKEY Target key name already exists."), ..looked(Kinds::NONE, None) },
        ),
    ];
    for (line, keys, error, looked) in cases {
        let mut scratch = Vec::new();
        let keys = keys.iter().map(|key| key.as_bytes());
        let expected = Foreseen::build(&mut scratch, Answer::Error(error.as_bytes()), looked, keys);
        foreseen(line, |command| assert_eq!(command, Some(Command::Foreseen(expected)), "{line}"));
    }
}

#[test]
fn other_arguments_are_read_before_the_keys() {
    for line in [
        "LRANGE k x 0",
        "LPOP k x",
        "GETEX k FOO",
        "HSCAN k x",
        "BITPOS k x",
        "BITPOS k 1 x",
        "BITCOUNT k 0",
        "BITCOUNT k 0 x",
        "SET k v IFDEQ 5 FOO",
        "SET k v IFDEQ 5 EX 0",
        "SETRANGE k x v",
        "EXPIRE k x",
        "ZADD k x m",
        "HSETEX k FIELDS x f v",
        "ZUNION 0 k",
        "GEODIST k a b FOO",
        "RESTORE k 0 v FOO",
    ] {
        foreseen(line, |command| assert_eq!(command, None, "{line}"));
    }
    let long = format!("LINDEX {} x", "k".repeat(KEY_BYTES_MAX + 1));
    foreseen(&long, |command| assert_eq!(command, None, "such a key is refused as it is"));
}

#[test]
fn a_key_has_one_reference_or_none() {
    let (request, mut scratch, mut other) = (request("OBJECT REFCOUNT k"), Vec::new(), Vec::new());
    let looked = looked(Kinds::ANY, Some(Answer::Null));
    let expected = Foreseen::build(&mut other, Answer::Integer(1), looked, [KEY].into_iter());
    let command = reference_count(request.as_arguments(), &mut scratch);
    assert_eq!(command, Ok(Command::Foreseen(expected)));
}
