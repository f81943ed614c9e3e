//! Expiry.

use super::*;

#[test]
fn expiry_times_must_be_positive_and_fit_64_bits_of_milliseconds() {
    const LAST_SECOND: i64 = i64::MAX / 1000;
    const LAST_MS_FROM_NOW: i64 = i64::MAX - NOW_MS as i64;
    let invalid = |command: &str| format!("ERR invalid expire time in '{command}' command");
    for amount in ["0", "-1", "9223372036854775807", &LAST_SECOND.to_string()] {
        assert_refused(&format!("SET k v EX {amount}"), &invalid("set"));
        assert_refused(&format!("SETEX k {amount} v"), &invalid("setex"));
        assert_refused(&format!("GETEX k EX {amount}"), &invalid("getex"));
    }
    for amount in ["0", "-1", "9223372036854775807", &(LAST_MS_FROM_NOW + 1).to_string()] {
        assert_refused(&format!("SET k v PX {amount}"), &invalid("set"));
        assert_refused(&format!("PSETEX k {amount} v"), &invalid("psetex"));
        assert_refused(&format!("GETEX k PX {amount}"), &invalid("getex"));
    }
    for amount in ["abc", "1.5", "01", "+1", "''", "9223372036854775808"] {
        assert_refused(&format!("SET k v EX {amount}"), "ERR value is not an integer or out of range");
    }
    let latest = |deadline| set(Expiry::Set(deadline), Condition::Always, SetAnswer::Status);
    assert_parses(&format!("SET k v PX {LAST_MS_FROM_NOW}"), latest(In(LAST_MS_FROM_NOW)));
    assert_parses(&format!("SET k v EXAT {LAST_SECOND}"), latest(At(LAST_SECOND * 1000)));
    assert_parses(&format!("SET k v PXAT {}", i64::MAX), latest(At(i64::MAX)));
    assert_refused(&format!("SET k v EXAT {}", LAST_SECOND + 1), &invalid("set"));
}

#[test]
fn getex_changes_the_expiry_or_only_reads_without_options() {
    let getex = |expiry| GetExpire { key: KEY, expiry };
    let cases = [
        ("GETEX k", Get { key: KEY }),
        ("GETEX k PERSIST", getex(Expiry::Clear)),
        ("GETEX k persist PERSIST", getex(Expiry::Clear)),
        ("GETEX k EX 10", getex(Expiry::Set(In(10_000)))),
        ("GETEX k PX 10 PX 20", getex(Expiry::Set(In(20)))),
        ("GETEX k EXAT 10", getex(Expiry::Set(At(10_000)))),
        ("GETEX k PXAT 10", getex(Expiry::Set(At(10)))),
    ];
    for (line, expected) in cases {
        assert_parses(line, expected);
    }
    for options in ["PERSIST EX 10", "EX 10 PERSIST", "EX 10 PX 10", "KEEPTTL", "NX", "GET", "EX"] {
        assert_refused(&format!("GETEX k {options}"), "ERR syntax error");
    }
}

#[test]
fn expire_takes_past_times_and_conditions() {
    use ExpireCondition::*;
    let expire = |deadline, condition| Expire { key: KEY, deadline, condition };
    let cases = [
        ("EXPIRE k 10", expire(In(10_000), Always)),
        ("EXPIRE k -10", expire(In(-10_000), Always)),
        ("PEXPIRE k 0", expire(In(0), Always)),
        ("EXPIREAT k 10", expire(At(10_000), Always)),
        ("PEXPIREAT k -10", expire(At(-10), Always)),
        ("PEXPIREAT k 9223372036854775807", expire(At(i64::MAX), Always)),
        ("EXPIRE k 1 NX", expire(In(1000), IfNone)),
        ("EXPIRE k 1 xx", expire(In(1000), IfSome)),
        ("EXPIRE k 1 GT", expire(In(1000), IfLater)),
        ("EXPIRE k 1 LT LT", expire(In(1000), IfEarlier)),
        ("EXPIRE k 1 XX GT", expire(In(1000), IfSomeAndLater)),
        ("EXPIRE k 1 LT XX", expire(In(1000), IfSomeAndEarlier)),
    ];
    for (line, expected) in cases {
        assert_parses(line, expected);
    }
    let with_nx = "ERR NX and XX, GT or LT options at the same time are not compatible";
    let refusals = [
        ("EXPIRE k 1 NX XX", with_nx),
        ("EXPIRE k 1 GT NX", with_nx),
        ("EXPIRE k 1 NX LT", with_nx),
        ("EXPIRE k 1 NX GT LT", with_nx),
        ("EXPIRE k 1 GT LT", "ERR GT and LT options at the same time are not compatible"),
        ("EXPIRE k abc GT LT", "ERR GT and LT options at the same time are not compatible"),
        ("EXPIRE k 1 foo", "ERR Unsupported option foo"),
        ("EXPIRE k 1 NX foo", "ERR Unsupported option foo"),
        ("EXPIRE k abc", "ERR value is not an integer or out of range"),
        ("EXPIRE k 9223372036854775807", "ERR invalid expire time in 'expire' command"),
        ("EXPIRE k -9223372036854775808", "ERR invalid expire time in 'expire' command"),
        ("EXPIRE k 9223372036854775", "ERR invalid expire time in 'expire' command"),
        ("PEXPIRE k 9223372036854775807", "ERR invalid expire time in 'pexpire' command"),
        ("EXPIREAT k 9223372036854776", "ERR invalid expire time in 'expireat' command"),
    ];
    for (line, expected) in refusals {
        assert_refused(line, expected);
    }
}
