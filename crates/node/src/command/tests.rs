//! What requests mean, told by the command that they parse to or by the error that they get.

use kv::Command::{self, *};
use kv::Deadline::{At, In};
use kv::command::{ExpireCondition, ExpiryUnit};
use kv::limits::KEY_BYTES_MAX;
use kv::{Condition, Expiry, SetAnswer};
use wire::resp::ArgumentsBuffer;

use super::*;

const NOW_MS: u64 = 1_700_000_000_000;
const CONTEXT: Context = Context { now_ms: NOW_MS, value_bytes_max: 1000 };
const KEY: &[u8] = b"k";
const VALUE: &[u8] = b"v";

/// A request as written in these tests: words divided by single spaces, `''` for an empty one.
fn request(line: &str) -> ArgumentsBuffer {
    line.split(' ').map(|word| if word == "''" { b"" } else { word.as_bytes() }).collect()
}

/// Runs `check` with what the request parses to.
fn parse(request: &ArgumentsBuffer, check: impl FnOnce(Result<Command<'_>, CommandError>)) {
    let arguments = request.as_arguments();
    let mut scratch = Vec::new();
    check(find(arguments).and_then(|found| match found.spec.handler {
        Handler::Data(parse) => parse(arguments, &mut scratch, &CONTEXT),
        handler => panic!("{arguments:?} is not on data but {handler:?}"),
    }));
}

fn assert_parses(line: &str, expected: Command<'_>) {
    parse(&request(line), |parsed| assert_eq!(parsed, Ok(expected), "{line}"));
}

fn assert_refused(line: &str, expected: &str) {
    assert_request_refused(&request(line), expected);
}

fn assert_request_refused(request: &ArgumentsBuffer, expected: &str) {
    match find(request.as_arguments()) {
        Ok(Found { spec: CommandSpec { handler: Handler::Data(_), .. }, .. }) => parse(request, |parsed| {
            let error = parsed.expect_err(&format!("{:?} was parsed", request.as_arguments()));
            assert_eq!(error.to_string(), expected, "{:?}", request.as_arguments());
        }),
        Ok(found) => panic!("{:?} is {}", request.as_arguments(), found.spec.name),
        Err(error) => assert_eq!(error.to_string(), expected, "{:?}", request.as_arguments()),
    }
}

/// A plain `SET k v` with these changes.
fn set(expiry: Expiry, condition: Condition, answer: SetAnswer) -> Command<'static> {
    Set { key: KEY, value: VALUE, expiry, condition, answer }
}

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
fn options_of_set_that_are_at_odds_or_incomplete_are_syntax_errors() {
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
fn getex_changes_the_expiry_and_without_options_only_reads() {
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
        ("TTL k", TimeToLive { key: KEY, unit: ExpiryUnit::SecondsLeft }),
        ("PTTL k", TimeToLive { key: KEY, unit: ExpiryUnit::MillisecondsLeft }),
        ("EXPIRETIME k", TimeToLive { key: KEY, unit: ExpiryUnit::UnixSeconds }),
        ("PEXPIRETIME k", TimeToLive { key: KEY, unit: ExpiryUnit::UnixMilliseconds }),
        ("PERSIST k", Persist { key: KEY }),
        ("TYPE k", Type { key: KEY }),
        ("OBJECT ENCODING k", Encoding { key: KEY }),
        ("object Encoding k", Encoding { key: KEY }),
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
        ("MEMORY USAGE k SAMPLES", "ERR syntax error"),
        ("MEMORY USAGE k SAMPLES -1", "ERR syntax error"),
        ("MEMORY USAGE k SAMPLES x", "ERR value is not an integer or out of range"),
        ("MEMORY USAGE k BAD 1", "ERR syntax error"),
    ];
    for (line, expected) in refusals {
        assert_refused(line, expected);
    }
}

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
        ("COPY k k DB 1", "ERR DB index is out of range"),
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
fn commands_on_the_whole_keyspace() {
    let scan = |position, count, pattern, kind| Scan { position, count, pattern, kind, part: 0, parts: 1 };
    let cases = [
        ("KEYS a*", Keys { pattern: b"a*" }),
        ("RANDOMKEY", RandomKey { draw: 0 }),
        ("DBSIZE", Size),
        ("FLUSHALL", Clear),
        ("FLUSHALL async", Clear),
        ("FLUSHDB SYNC", Clear),
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

#[test]
fn what_is_not_a_command_is_refused_in_the_words_of_redis() {
    let many = format!("nosuch {}", ["0123456789abcdef"; 20].join(" "));
    let shown = format!("{}'0123456789abcd' ", "'0123456789abcdef' ".repeat(6));
    let cases = [
        ("nosuch", "ERR unknown command 'nosuch', with args beginning with: ".to_string()),
        ("nosuch a b", "ERR unknown command 'nosuch', with args beginning with: 'a' 'b' ".to_string()),
        ("no\nsuch a\r\nb", "ERR unknown command 'no such', with args beginning with: 'a  b' ".to_string()),
        (&many, format!("ERR unknown command 'nosuch', with args beginning with: {shown}")),
        ("CLIENT foo", "ERR unknown subcommand 'foo'. Try CLIENT HELP.".to_string()),
        ("CLIENT", "ERR wrong number of arguments for 'client' command".to_string()),
        ("CONFIG GET", "ERR wrong number of arguments for 'config|get' command".to_string()),
        ("COMMAND COUNT x", "ERR wrong number of arguments for 'command|count' command".to_string()),
        ("GET", "ERR wrong number of arguments for 'get' command".to_string()),
        ("GET a b", "ERR wrong number of arguments for 'get' command".to_string()),
    ];
    for (line, expected) in cases {
        assert_refused(line, &expected);
    }
}

#[test]
fn keys_and_values_have_a_longest_length() {
    let (longest, too_long) = (vec![b'k'; KEY_BYTES_MAX], vec![b'k'; KEY_BYTES_MAX + 1]);
    let value = vec![b'v'; CONTEXT.value_bytes_max + 1];
    let key_refused = "ERR key is 65537 bytes long; at most 65536 are allowed";
    let value_refused = "ERR value is 1001 bytes long; at most 1000 are allowed";
    let request = |words: &[&[u8]]| words.iter().copied().collect::<ArgumentsBuffer>();

    parse(&request(&[b"GET", &longest]), |parsed| assert_eq!(parsed, Ok(Get { key: &longest })));
    let refused_for_their_key: [&[&[u8]]; 6] = [
        &[b"GET", &too_long],
        &[b"SET", &too_long, b"v"],
        &[b"DEL", b"a", &too_long],
        &[b"MSET", b"a", b"1", &too_long, b"2"],
        &[b"RENAME", b"a", &too_long],
        &[b"OBJECT", b"ENCODING", &too_long],
    ];
    for words in refused_for_their_key {
        assert_request_refused(&request(words), key_refused);
    }
    let refused_for_their_value: [&[&[u8]]; 5] = [
        &[b"SET", b"k", &value],
        &[b"SETEX", b"k", b"1", &value],
        &[b"APPEND", b"k", &value],
        &[b"MSET", b"k", &value],
        &[b"GETSET", b"k", &value],
    ];
    for words in refused_for_their_value {
        assert_request_refused(&request(words), value_refused);
    }
}

#[test]
fn commands_have_numbers_without_gaps() {
    let numbered: Vec<_> = (0..COMMAND_COUNT).map(|number| by_number(number).unwrap().name).collect();
    assert_eq!(numbered, all().map(|spec| spec.name).collect::<Vec<_>>());
    assert!(by_number(COMMAND_COUNT).is_none());
    for (number, spec) in all().enumerate() {
        let words: ArgumentsBuffer = spec.name.split('|').map(str::as_bytes).collect();
        let found = named(words.as_arguments()).unwrap();
        assert_eq!((found.number, found.spec.name), (number, spec.name));
        assert_eq!(by_full_name(spec.name.to_ascii_uppercase().as_bytes()).unwrap().name, spec.name);
    }
}

#[test]
fn the_table_agrees_with_itself() {
    for spec in all() {
        let name = spec.name;
        assert!(spec.arity != 0 && !spec.since.is_empty() && !spec.complexity.is_empty(), "{name}");
        assert!(!spec.summary.is_empty() && !spec.summary.ends_with('.'), "{name}");
        assert!(!(spec.flags.has(Flag::Write) && spec.flags.has(Flag::ReadOnly)), "{name}");
        for subcommand in spec.subcommands {
            assert_eq!(subcommand.name.split_once('|').map(|(container, _)| container), Some(name));
        }
    }
}

/// Where the table says that keys are, parsing finds them; what the flags say, the parsed command does.
#[test]
fn key_positions_and_flags_agree_with_what_is_parsed() {
    for spec in all() {
        let Handler::Data(parse) = spec.handler else {
            continue;
        };
        let least = spec.arity.unsigned_abs() as usize;
        // "1" is good for a key, a number and a cursor; two keys must not be the same one.
        let words = spec.name.split('|').chain(["1", "2", "3", "4"]).take(least);
        let request: ArgumentsBuffer = words.map(str::as_bytes).collect();
        let arguments = request.as_arguments();
        let mut scratch = Vec::new();
        let command =
            parse(arguments, &mut scratch, &CONTEXT).unwrap_or_else(|error| panic!("{}: {error}", spec.name));
        let mut parsed = Vec::new();
        command.for_each_key(|key| parsed.push(key));
        let described: Vec<_> = spec.keys.positions(arguments.len()).map(|at| &arguments[at]).collect();
        assert_eq!(parsed, described, "{}", spec.name);
        // GETEX is the exception: it may write, but not with these arguments.
        assert_eq!(command.is_write() || spec.name == "getex", spec.flags.has(Flag::Write), "{}", spec.name);
    }
}
