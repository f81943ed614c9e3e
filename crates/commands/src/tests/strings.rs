//! Strings.

use super::*;
use kv::Deadline;
use kv::command::Step;

#[test]
fn set_with_every_option() {
    use Condition::{Always, IfAbsent, IfPresent};
    use Expiry::{Clear, Keep};
    use SetAnswer::{Before, Integer, Status};
    let cases = [
        ("SET k v", set(Clear, Always, Status)),
        ("set k v", set(Clear, Always, Status)),
        ("SET k v NX", set(Clear, IfAbsent, Status)),
        ("SET k v xx", set(Clear, IfPresent, Status)),
        ("SET k v NX NX", set(Clear, IfAbsent, Status)),
        ("SET k v GET", set(Clear, Always, Before)),
        ("SET k v NX GET", set(Clear, IfAbsent, Before)),
        ("SET k v KEEPTTL", set(Keep, Always, Status)),
        ("SET k v KEEPTTL KEEPTTL XX", set(Keep, IfPresent, Status)),
        ("SET k v EX 10", set(Expiry::Set(In(10_000)), Always, Status)),
        ("SET k v PX 10", set(Expiry::Set(In(10)), Always, Status)),
        ("SET k v EXAT 10", set(Expiry::Set(At(10_000)), Always, Status)),
        ("SET k v PXAT 10", set(Expiry::Set(At(10)), Always, Status)),
        ("SET k v EX 10 EX 20", set(Expiry::Set(In(20_000)), Always, Status)),
        ("SET k v GET PX 5 NX", set(Expiry::Set(In(5)), IfAbsent, Before)),
        ("SETNX k v", set(Clear, IfAbsent, Integer)),
        ("SETEX k 10 v", set(Expiry::Set(In(10_000)), Always, Status)),
        ("PSETEX k 10 v", set(Expiry::Set(In(10)), Always, Status)),
        ("GETSET k v", set(Clear, Always, Before)),
    ];
    for (line, expected) in cases {
        assert_parses(line, expected);
    }
}

#[test]
fn set_and_delete_with_a_condition_on_the_value() {
    use Comparison::*;
    let set_if = |comparison, expiry, answer| SetIf { key: KEY, value: VALUE, expiry, comparison, answer };
    let (clear, status) = (Expiry::Clear, SetAnswer::Status);
    let cases = [
        ("SET k v IFEQ old", set_if(Equal(b"old"), clear, status)),
        ("SET k v IFEQ other ifeq old", set_if(Equal(b"old"), clear, status)),
        ("SET k v ifne NX", set_if(NotEqual(b"NX"), clear, status)),
        ("SET k v EX 1 IFDEQ 00000000000000ff", set_if(DigestEqual(255), Expiry::Set(In(1000)), status)),
        ("SET k v GET IFDNE 00000000000000FF KEEPTTL", {
            set_if(DigestNotEqual(255), Expiry::Keep, SetAnswer::Before)
        }),
        ("SET k v IFDNE 5", set_if(NoDigest, clear, status)),
        ("DELIFEQ k v", DeleteIf { key: KEY, comparison: Equal(VALUE) }),
        ("DELEX k IFEQ v", DeleteIf { key: KEY, comparison: Equal(VALUE) }),
        ("DELEX k ifdne 00000000000000ff", DeleteIf { key: KEY, comparison: DigestNotEqual(255) }),
        ("DIGEST k", Digest { key: KEY }),
    ];
    for (line, expected) in cases {
        assert_parses(line, expected);
    }
    for options in ["IFEQ", "IFEQ v NX", "XX IFEQ v", "IFEQ v IFNE w", "IFDEQ"] {
        assert_refused(&format!("SET k v {options}"), "ERR syntax error");
    }
    for digest in ["", "ff", "00000000000000f", "0000000000000000f", "000000000000000x"] {
        let digest = if digest.is_empty() { "''" } else { digest };
        let expected = "ERR must be exactly 16 hexadecimal characters";
        assert_refused(&format!("SET k v IFDEQ {digest}"), expected);
        assert_refused(&format!("DELEX k IFDNE {digest}"), expected);
    }
    assert!(at_level_1("SET k v IFEQ v").is_ok());
    assert_eq!(at_level_1("SET k v IFEQ v IFEQ v"), Err("ERR syntax error".to_string()));
    assert_refused("DELEX k IFEQ", "ERR wrong number of arguments for 'delex' command");
    assert_refused("DELEX k NX v", "ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE");
}

#[test]
fn contradictory_or_incomplete_options_of_set_are_syntax_errors() {
    for options in [
        "NX XX",
        "XX NX",
        "KEEPTTL EX 10",
        "EX 10 KEEPTTL",
        "EX 10 PX 10",
        "PXAT 10 EXAT 10",
        "PERSIST",
        "EX",
        "NX EX",
        "EX 0 BAD",
        "''",
    ] {
        assert_refused(&format!("SET k v {options}"), "ERR syntax error");
    }
}

#[test]
fn reads_and_writes_of_one_key() {
    let cases = [
        ("GET k", Get { key: KEY }),
        ("GETDEL k", GetDelete { key: KEY }),
        ("STRLEN k", Length { key: KEY }),
        ("GETRANGE k 0 -1", GetRange { key: KEY, start: 0, end: -1 }),
        ("SUBSTR k 0 -1", GetRange { key: KEY, start: 0, end: -1 }),
        ("APPEND k v", Append { key: KEY, value: VALUE, bytes_max: 1000 }),
        ("SETRANGE k 999 v", SetRange { key: KEY, offset: 999, value: VALUE }),
        ("SETRANGE k 9223372036854775807 ''", Length { key: KEY }),
        ("INCR k", IncrementBy { key: KEY, delta: 1 }),
        ("DECR k", IncrementBy { key: KEY, delta: -1 }),
        ("INCRBY k -5", IncrementBy { key: KEY, delta: -5 }),
        ("DECRBY k -9223372036854775807", IncrementBy { key: KEY, delta: i64::MAX }),
        ("INCRBYFLOAT k 1.50", IncrementByFloat { key: KEY, delta: b"1.50" }),
        (
            "INCREX k",
            IncrementWithin {
                key: KEY,
                step: Step::Whole { by: 1, least: i64::MIN, most: i64::MAX },
                saturates: false,
                expiry: Expiry::Keep,
                if_without: false,
            },
        ),
        (
            "increx k enx px 5 ubound 7.5 byfloat 1.5 saturate",
            IncrementWithin {
                key: KEY,
                step: Step::Decimal { by: b"1.5", least: -f64::MAX, most: 7.5 },
                saturates: true,
                expiry: Expiry::Set(Deadline::In(5)),
                if_without: true,
            },
        ),
        ("TTL k", TimeToLive { key: KEY, unit: ExpiryUnit::SecondsLeft }),
        ("PTTL k", TimeToLive { key: KEY, unit: ExpiryUnit::MillisecondsLeft }),
        ("EXPIRETIME k", TimeToLive { key: KEY, unit: ExpiryUnit::UnixSeconds }),
        ("PEXPIRETIME k", TimeToLive { key: KEY, unit: ExpiryUnit::UnixMilliseconds }),
        ("PERSIST k", Persist { key: KEY }),
        ("TYPE k", Type { key: KEY }),
        ("OBJECT ENCODING k", Encoding { key: KEY, limits: CONTEXT.encodings }),
        ("object Encoding k", Encoding { key: KEY, limits: CONTEXT.encodings }),
        ("MEMORY USAGE k", MemoryUsage { key: KEY }),
        ("MEMORY USAGE k SAMPLES 0 samples 5", MemoryUsage { key: KEY }),
    ];
    for (line, expected) in cases {
        assert_parses(line, expected);
    }
    let refusals = [
        ("GETRANGE k a 1", "ERR value is not an integer or out of range"),
        ("SETRANGE k -1 v", "ERR offset is out of range"),
        ("SETRANGE k a v", "ERR value is not an integer or out of range"),
        ("SETRANGE k 1000 v", "ERR string exceeds maximum allowed size (proto-max-bulk-len)"),
        ("SETRANGE k 9223372036854775807 v", "ERR string exceeds maximum allowed size (proto-max-bulk-len)"),
        ("INCRBY k 01", "ERR value is not an integer or out of range"),
        ("DECRBY k -9223372036854775808", "ERR decrement would overflow"),
        ("INCRBYFLOAT k abc", "ERR value is not a valid float"),
        ("INCRBYFLOAT k nan", "ERR value is not a valid float"),
        ("INCREX k FOO", "ERR syntax error"),
        ("INCREX k BYINT", "ERR syntax error"),
        ("INCREX k BYINT 1 BYFLOAT 1.5", "ERR syntax error"),
        ("INCREX k EX 10 EX 20", "ERR syntax error"),
        ("INCREX k PERSIST ENX", "ERR syntax error"),
        ("INCREX k EX 10 PERSIST", "ERR syntax error"),
        ("INCREX k SATURATE SATURATE", "ERR syntax error"),
        ("INCREX k LBOUND 1 LBOUND 2", "ERR syntax error"),
        ("INCREX k ENX", "ERR ENX flag requires an expiration (EX, PX, EXAT or PXAT)"),
        ("INCREX k BYINT 1.5", "ERR Increment is not an integer or out of range"),
        ("INCREX k UBOUND inf", "ERR UBOUND is not an integer or out of range"),
        ("INCREX k BYFLOAT x", "ERR Increment is not a valid float"),
        ("INCREX k BYFLOAT inf", "ERR BYFLOAT increment cannot be Infinity"),
        ("INCREX k LBOUND 10 UBOUND 5", "ERR LBOUND can't be greater than UBOUND"),
        ("INCREX k EX 0", "ERR invalid expire time in 'increx' command"),
        ("MSETEX x k v EX 10", "ERR invalid numkeys value"),
        ("MSETEX 0 k v", "ERR invalid numkeys value"),
        ("MSETEX 2147483648 k v", "ERR invalid numkeys value"),
        ("MSETEX 2147483647 k v", "ERR wrong number of key-value pairs"),
        ("MSETEX 2 a v b", "ERR wrong number of key-value pairs"),
        ("MSETEX 1 k v NX XX", "ERR syntax error"),
        ("MSETEX 1 k v GET", "ERR syntax error"),
        ("MSETEX 1 k v IFEQ w", "ERR syntax error"),
        ("MSETEX 1 k v FENCE l 1", "ERR syntax error"),
        ("MSETEX 1 k v EX 10 KEEPTTL", "ERR syntax error"),
        ("MSETEX 1 k v EX 0", "ERR invalid expire time in 'msetex' command"),
        ("MEMORY USAGE k SAMPLES", "ERR syntax error"),
        ("MEMORY USAGE k SAMPLES -1", "ERR syntax error"),
        ("MEMORY USAGE k SAMPLES x", "ERR value is not an integer or out of range"),
        ("MEMORY USAGE k BAD 1", "ERR syntax error"),
    ];
    for (line, expected) in refusals {
        assert_refused(line, expected);
    }
}
