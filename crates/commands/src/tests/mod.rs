//! The meaning of requests: the command that each parses to, or the error that it gets.

mod bytes;
mod expiry;
mod keyspace;
mod later;
mod lists;
mod redis;
mod sets;
mod sorted;
mod streams;
mod strings;

use kv::Command::{self, *};
use kv::Deadline::{At, In};
use kv::command::{ExpireCondition, ExpiryUnit};
use kv::limits::KEY_BYTES_MAX;
use kv::{Comparison, Condition, Expiry, SetAnswer};
use wire::resp::ArgumentsBuffer;

use super::*;

const NOW_MS: u64 = 1_700_000_000_000;
const CONTEXT: Context = Context {
    now_ms: NOW_MS,
    value_bytes_max: 1000,
    stream_node_entries: 100,
    database: 0,
    level: 2,
    encodings: kv::command::EncodingLimits {
        hash_fields: 1,
        hash_item_bytes: 2,
        intset_members: 3,
        sorted_members: 4,
        sorted_member_bytes: 5,
    },
};
const KEY: &[u8] = b"k";
const VALUE: &[u8] = b"v";

/// A request as written in these tests: words separated by single spaces, `''` for an empty one.
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

/// What a request parses to while the cluster has nodes of release 1.
fn at_level_1(line: &str) -> Result<String, String> {
    let (request, mut scratch) = (request(line), Vec::new());
    let Ok(Found { spec: CommandSpec { handler: Handler::Data(parse), .. }, .. }) =
        find(request.as_arguments())
    else {
        panic!("{line} is not on data");
    };
    let context = Context { level: 1, ..CONTEXT };
    let parsed = parse(request.as_arguments(), &mut scratch, &context);
    parsed.map(|command| format!("{command:?}")).map_err(|error| error.to_string())
}

/// A plain `SET k v` with these changes.
fn set(expiry: Expiry, condition: Condition, answer: SetAnswer) -> Command<'static> {
    Set { key: KEY, value: VALUE, expiry, condition, answer }
}

#[test]
fn unknown_commands_are_refused_with_redis_errors() {
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
fn the_length_of_keys_and_values_is_limited() {
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

/// Parsing finds the keys where the table says they are, and the parsed command reads or writes as its flags
/// say.
#[test]
fn key_positions_and_flags_agree_with_what_is_parsed() {
    for spec in all() {
        let Handler::Data(parse) = spec.handler else {
            continue;
        };
        let least = spec.arity.unsigned_abs() as usize;
        // "1" can be a key, a number and a cursor; the keys must be different.
        let mut words: Vec<&str> =
            spec.name.split('|').chain(["1", "2", "3", "4", "5"]).take(least).collect();
        match spec.name {
            "linsert" => words[2] = "before",
            "lmove" | "blmove" => (words[3], words[4]) = ("left", "right"),
            "blmpop" => (words[2], words[4]) = ("1", "left"),
            "bzmpop" => (words[2], words[4]) = ("1", "min"),
            "lmpop" => words[3] = "left",
            "zmpop" => words[3] = "min",
            "xtrim" => words[2] = "maxlen",
            "xdelex" => (words[2], words[3]) = ("ids", "1"),
            "xackdel" => (words[3], words[4]) = ("ids", "1"),
            "xnack" => words = vec!["xnack", "1", "2", "fail", "ids", "1", "3"],
            "xcfgset" => words.extend(["idmp-maxsize", "1"]),
            "xread" => words = vec!["xread", "streams", "1", "2"],
            "xreadgroup" => words = vec!["xreadgroup", "group", "g", "c", "streams", "1", "2"],
            "zunionstore" | "zinterstore" | "zdiffstore" => words[2] = "1",
            "hexpire" | "hpexpire" | "hexpireat" | "hpexpireat" => (words[3], words[4]) = ("fields", "1"),
            "httl" | "hpttl" | "hexpiretime" | "hpexpiretime" | "hpersist" | "hgetex" | "hgetdel"
            | "hsetex" => {
                (words[2], words[3]) = ("fields", "1");
            }
            "bitop" => words[1] = "or",
            "setbit" => words[3] = "1",
            "bitpos" => words[2] = "1",
            "geosearch" => {
                words.truncate(2);
                words.extend(["frommember", "1", "byradius", "1", "m"]);
            }
            "geosearchstore" => {
                words.truncate(3);
                words.extend(["frommember", "1", "byradius", "1", "m"]);
            }
            "georadius" | "georadius_ro" => words[5] = "m",
            "georadiusbymember" | "georadiusbymember_ro" => words[4] = "m",
            "zlexcount" | "zrangebylex" | "zrevrangebylex" | "zremrangebylex" => {
                (words[2], words[3]) = ("-", "+")
            }
            _ => {}
        }
        let request: ArgumentsBuffer = words.into_iter().map(str::as_bytes).collect();
        let arguments = request.as_arguments();
        let mut scratch = Vec::new();
        let command =
            parse(arguments, &mut scratch, &CONTEXT).unwrap_or_else(|error| panic!("{}: {error}", spec.name));
        let mut parsed = Vec::new();
        command.for_each_key(|key| parsed.push(key));
        let mut described = Vec::new();
        introspection::for_each_key(spec, arguments, |at, _| described.push(&arguments[at])).unwrap();
        assert_eq!(parsed, described, "{}", spec.name);
        // These commands may write, but do not with these arguments.
        let may_read =
            ["getex", "hgetex", "bitfield", "sort", "georadius", "georadiusbymember"].contains(&spec.name);
        assert_eq!(command.is_write() || may_read, spec.flags.has(Flag::Write), "{}", spec.name);
    }
}
