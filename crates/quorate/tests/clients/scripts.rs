//! Scripts: compared with a real Redis, and on keyspaces of each protocol while nodes come and go.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use crate::required::{is_installed, is_redis_of};
use crate::support::{Cluster, as_text, ask, connect, error_text, free_ports, until};

const LIBRARY: &str = "#!lua name=lib
redis.register_function{function_name = 'read', description = 'd', flags = {'no-writes', 'allow-oom'},
    callback = function(keys, arguments) return redis.call('get', keys[1]) end}";

const OTHER_LIBRARY: &str = "#!lua name=other
redis.register_function('put', function(keys, arguments)
    redis.call('set', keys[1], arguments[1])
    return {#keys, #arguments, arguments[2].x}
end)";

/// Requests to which Redis and Quorate give the same reply. Errors name the script and the line.
const ALIKE: &[&[&str]] = &[
    &["EVAL", "return 1.9", "0"],
    &["EVAL", "return -1.9", "0"],
    &["EVAL", "return 1e300", "0"],
    &["EVAL", "return 'text'", "0"],
    &["EVAL", "return {1, 2, nil, 4}", "0"],
    &["EVAL", "return {1, {2, {3, 'x'}}, true, false}", "0"],
    &["EVAL", "return {ok = 'fine'}", "0"],
    &["EVAL", "return {err = 'MY own error'}", "0"],
    &["EVAL", "return {double = 3.5}", "0"],
    &["EVAL", "return true", "0"],
    &["EVAL", "return false", "0"],
    &["EVAL", "return type", "0"],
    &["EVAL", "", "0"],
    &["EVAL", "return redis.error_reply('no way')", "0"],
    &["EVAL", "return redis.error_reply('-MINE no way')", "0"],
    &["EVAL", "return redis.error_reply(1)", "0"],
    &["EVAL", "return redis.status_reply('fine')", "0"],
    &["EVAL", "return redis.status_reply()", "0"],
    &["EVAL", "return foo", "0"],
    &["EVAL", "return print", "0"],
    &["EVAL", "return io.time()", "0"],
    &["EVAL", "return type(io)", "0"],
    &["EVAL", "foo = 1", "0"],
    &["EVAL", "_G.foo = 1", "0"],
    &["EVAL", "string.foo = 1", "0"],
    &["EVAL", "redis.foo = 1", "0"],
    &["EVAL", "KEYS.foo = 1 return KEYS.foo", "0"],
    &["EVAL", "error('boom')", "0"],
    &["EVAL", "error('boom', 0)", "0"],
    &["EVAL", "error({err = 'BOOM x'})", "0"],
    &["EVAL", "error()", "0"],
    &["EVAL", "local x = nil; return x.y", "0"],
    &["EVAL", "return {} .. 'x'", "0"],
    &["EVAL", "return 1 < 'x'", "0"],
    &["EVAL", "return ('x'):nosuch()", "0"],
    &["EVAL", "return string.upper()", "0"],
    &["EVAL", "return table.concat({{}})", "0"],
    &["EVAL", "return\n1 +", "0"],
    &["EVAL", "return redis.call('nosuch')", "0"],
    &["EVAL", "return redis.call('get')", "0"],
    &["EVAL", "return redis.pcall('get')", "0"],
    &["EVAL", "return redis.call()", "0"],
    &["EVAL", "return redis.call('get', {})", "0"],
    &["EVAL", "return redis.call('multi')", "0"],
    &["EVAL", "return redis.call('eval', 'return 1', 0)", "0"],
    &["EVAL", "return redis.call('client', 'nosuch')", "0"],
    &["EVAL", "return redis.call('ping')", "0"],
    &["EVAL", "return redis.call('echo', 'hi')", "0"],
    &["EVAL", "return redis.call('select', 0)", "0"],
    &["EVAL", "return type(redis.call('time')[1])", "0"],
    &["EVAL", "return redis.call('set', KEYS[1], 'x')", "1", "k"],
    &["EVAL", "return redis.call('incr', KEYS[1])", "1", "k"],
    &["EVAL", "return redis.pcall('incr', KEYS[1])", "1", "k"],
    &["EVAL", "local ok, e = pcall(redis.call, 'incr', KEYS[1]) return {type(e), e}", "1", "k"],
    &["EVAL", "return pcall(redis.call, 'incr', KEYS[1])", "1", "k"],
    &["EVAL", "local function f() return redis.call('incr', KEYS[1]) end\nlocal x = f()\nreturn x", "1", "k"],
    &["EVAL", "local ok, e = pcall(function() return nosuch end) return {type(e), e}", "0"],
    &["EVAL", "local ok, e = pcall(error, {a = 1}) return {type(e), e.a}", "0"],
    &[
        "EVAL",
        "local ok, e = xpcall(function() error('x') end, function(m) return 'H:' .. m end) return e",
        "0",
    ],
    &["EVAL", "redis.call('set', KEYS[1], 0.1) return redis.call('get', KEYS[1])", "1", "k"],
    &["EVAL", "redis.call('set', KEYS[1], 3) return redis.call('get', KEYS[1])", "1", "k"],
    &["EVAL", "redis.call('set', KEYS[1], 1e20) return redis.call('get', KEYS[1])", "1", "k"],
    &["EVAL", "return redis.call('mget', KEYS[1], KEYS[2])", "2", "k", "nothing"],
    &["EVAL", "return redis.call('set', KEYS[1], 'x', 'EX', '0')", "1", "k"],
    &["EVAL", "return redis.call('set', KEYS[1], 'x', 'bad')", "1", "k"],
    &["EVAL", "return {KEYS[1], KEYS[2], ARGV[1], ARGV[2], #KEYS, #ARGV}", "2", "a", "b", "c", "d"],
    &["EVAL", "return 1", "3", "a"],
    &["EVAL", "return 1", "-1", "a"],
    &["EVAL", "return 1", "x", "a"],
    &["EVAL", "return 1"],
    &["EVAL", "math.randomseed(7) return tostring(math.random())", "0"],
    &["EVAL", "math.randomseed(7) return {math.random(10), math.random(5, 9)}", "0"],
    &["EVAL", "return math.random(0)", "0"],
    &["EVAL", "return redis.sha1hex('')", "0"],
    &["EVAL", "return redis.sha1hex()", "0"],
    &["EVAL", "return redis.log(redis.LOG_WARNING, 'x')", "0"],
    &["EVAL", "return redis.log(9, 'x')", "0"],
    &["EVAL", "return redis.setresp(4)", "0"],
    &["EVAL", "return redis.replicate_commands()", "0"],
    &["EVAL", "return {_VERSION, getmetatable('').__index == string}", "0"],
    &["EVAL", "return string.format('%5.2f|%d|%s|%q', 1.234, 7, 'a', 'b')", "0"],
    &["EVAL", "return ('a,b,c'):gsub(',', ';')", "0"],
    &["EVAL", "return {tonumber('0x10'), tostring(1e15), tostring(0.1), 7 % 3, 2 ^ 10}", "0"],
    &["EVAL", "local t = {3, 1, 2} table.sort(t) return table.concat(t, ',')", "0"],
    &["EVAL", "#!lua\nreturn 1", "0"],
    &["EVAL", "#!lua flags=no-writes\nreturn redis.call('set', KEYS[1], 1)", "1", "k"],
    &["EVAL", "#!lua flags=nosuch\nreturn 1", "0"],
    &["EVAL", "#!js\nreturn 1", "0"],
    &["EVAL_RO", "return redis.call('get', KEYS[1])", "1", "k"],
    &["EVAL_RO", "return redis.call('set', KEYS[1], 1)", "1", "k"],
    &["EVAL_RO", "return redis.pcall('set', KEYS[1], 1)", "1", "k"],
    &["EVAL", "return {bit.band(0xff, 0x0f), bit.bor(1, 2, 4), bit.bxor(5, 1), bit.bnot(0)}", "0"],
    &["EVAL", "return {bit.lshift(1, 31), bit.rshift(-1, 28), bit.arshift(-16, 2), bit.lshift(1, 33)}", "0"],
    &["EVAL", "return {bit.rol(0x12345678, 12), bit.ror(0x12345678, 12), bit.bswap(0x12345678)}", "0"],
    &["EVAL", "return {bit.tobit(0xffffffff), bit.tobit(2^40 + 5), bit.tobit(1.5), bit.tobit('7')}", "0"],
    &["EVAL", "return {bit.tohex(1), bit.tohex(-1, 4), bit.tohex(0xabcdef, -6), bit.tohex(7, 100)}", "0"],
    &["EVAL", "return bit.band()", "0"],
    &["EVAL", "return bit.band(1, {})", "0"],
    &["EVAL", "return cjson.encode({1, 2, 'x', true, false})", "0"],
    &["EVAL", "return cjson.encode({a = {b = {c = 1.5}}})", "0"],
    &["EVAL", "return cjson.encode({one = 1, two = 2, three = 3, [7] = 'seven'})", "0"],
    &["EVAL", "return {cjson.encode({}), cjson.encode('x'), cjson.encode(0.1), cjson.encode(1e20)}", "0"],
    &["EVAL", "return {cjson.encode(nil), cjson.encode(cjson.null), cjson.encode({1, nil, 3})}", "0"],
    &["EVAL", "return cjson.encode('\\8\\9\\10\\12\\13\\1\\127/\"\\\\ä')", "0"],
    &["EVAL", "return cjson.encode({[1] = 1, [100] = 2})", "0"],
    &["EVAL", "return cjson.encode({[3] = 1})", "0"],
    &["EVAL", "return cjson.encode(0/0)", "0"],
    &["EVAL", "return cjson.encode(print)", "0"],
    &["EVAL", "return cjson.encode(function() end)", "0"],
    &["EVAL", "return cjson.encode()", "0"],
    &["EVAL", "local t = {} for i = 1, 999 do t = {t} end return #cjson.encode(t)", "0"],
    &["EVAL", "local t = {} for i = 1, 1000 do t = {t} end return #cjson.encode(t)", "0"],
    &["EVAL", "return cjson.decode('[1, \"two\", [3, 4.5e3], true, null, -0.25]')", "0"],
    &[
        "EVAL",
        "local t = cjson.decode(ARGV[1]) return {t.a, t.b.c, t.d[2]}",
        "0",
        r#"{"a": 1, "b": {"c": "x"}, "d": [5, 6]}"#,
    ],
    &["EVAL", "return cjson.decode(ARGV[1])", "0", r#""\u00e4\ud83d\ude00\n\/\\""#],
    &["EVAL", "return cjson.decode(ARGV[1]) == cjson.null", "0", "null"],
    &["EVAL", "return cjson.encode(cjson.decode(ARGV[1]))", "0", r#"[[], {}, [null], 12345678901234567890]"#],
    &["EVAL", "return cjson.decode(ARGV[1])", "0", "[1, 2"],
    &["EVAL", "return cjson.decode(ARGV[1])", "0", "{\"a\" 1}"],
    &["EVAL", "return cjson.decode(ARGV[1])", "0", "{\"a\": 1,}"],
    &["EVAL", "return cjson.decode(ARGV[1])", "0", "{a: 1}"],
    &["EVAL", "return cjson.decode(ARGV[1])", "0", "[1 2]"],
    &["EVAL", "return cjson.decode(ARGV[1])", "0", "\"open"],
    &["EVAL", "return cjson.decode(ARGV[1])", "0", r#""\x""#],
    &["EVAL", "return cjson.decode(ARGV[1])", "0", r#""\ud83dx""#],
    &["EVAL", "return cjson.decode(ARGV[1])", "0", "1 2"],
    &["EVAL", "return cjson.decode(ARGV[1])", "0", "nope"],
    &["EVAL", "return cjson.decode(ARGV[1])", "0", "-"],
    &["EVAL", "return cjson.decode(ARGV[1])", "0", ""],
    &["EVAL", "return cjson.decode()", "0"],
    &["EVAL", "return cjson.decode({})", "0"],
    &["EVAL", "return redis.call('publish', 'nobody', 'hears it')", "0"],
    &["EVAL", "return redis.call('publish', 'nobody')", "0"],
    &["EVAL", "return redis.call('subscribe', 'x')", "0"],
    &["EVAL_RO", "return redis.call('publish', 'nobody', 'hears it')", "0"],
    &["EVAL", "return redis.call('hset', KEYS[1], 'a', 1, 'b', 2)", "1", "h"],
    &["EVAL", "return redis.call('hgetall', KEYS[1])", "1", "h"],
    &["EVAL", "return redis.call('hget', KEYS[1], 'nothing')", "1", "h"],
    &["EVAL", "return redis.call('hscan', KEYS[1], 0, 'match', 'a')", "1", "h"],
    &["EVAL", "return redis.call('get', KEYS[1])", "1", "h"],
    &["EVALSHA", "ffff", "0"],
    &["EVALSHA", "ffffffffffffffffffffffffffffffffffffffff", "0"],
    &["SCRIPT", "LOAD", "return ARGV[1]"],
    &["SCRIPT", "EXISTS", "098e0f0d1448c0a81dafe820f66d460eb09263da", "ffff"],
    &["EVALSHA", "098e0f0d1448c0a81dafe820f66d460eb09263da", "0", "argument"],
    &["EVALSHA_RO", "098E0F0D1448C0A81DAFE820F66D460EB09263DA", "0", "argument"],
    &["SCRIPT", "LOAD", "return +"],
    &["SCRIPT", "KILL"],
    &["SCRIPT", "NOSUCH"],
    &["SCRIPT"],
    &["SCRIPT", "FLUSH", "x"],
    &["SCRIPT", "FLUSH", "ASYNC"],
    &["EVALSHA", "098e0f0d1448c0a81dafe820f66d460eb09263da", "0", "argument"],
    &["FUNCTION", "FLUSH"],
    &["FUNCTION", "FLUSH", "x"],
    &["MULTI"],
    &["EVAL", "return redis.call('set', KEYS[1], 'in a transaction')", "1", "k"],
    &["EVALSHA", "ffff", "0"],
    &["EVAL_RO", "return redis.call('get', KEYS[1])", "1", "k"],
    &["EXEC"],
    &["FUNCTION", "FLUSH"],
    &["FUNCTION", "LOAD", LIBRARY],
    &["FUNCTION", "LOAD", LIBRARY],
    &["FUNCTION", "LOAD", "REPLACE", LIBRARY],
    &["FUNCTION", "LOAD", "NEW", LIBRARY],
    &["FUNCTION", "LOAD", "REPLACE", "NEW", LIBRARY],
    &["FUNCTION", "LOAD", OTHER_LIBRARY],
    &["FUNCTION", "LOAD", "#!lua name=third\nredis.register_function('PUT', function() end)"],
    &["FUNCTION", "LOAD", "#!lua name=third\nredis.register_function('a', function() end, 1)"],
    &["FUNCTION", "LOAD", "#!lua name=third\nredis.call('ping')"],
    &["FUNCTION", "LOAD", "#!lua name=third\nx x"],
    &["FUNCTION", "LOAD", "#!lua\n"],
    &["FUNCTION", "LOAD", "return 1"],
    &["FUNCTION", "LIST", "LIBRARYNAME", "l?b"],
    &["FUNCTION", "LIST", "WITHCODE", "LIBRARYNAME", "l*"],
    &["FUNCTION", "LIST", "LIBRARYNAME"],
    &["FUNCTION", "LIST", "ALL"],
    &["FUNCTION", "STATS"],
    &["FUNCTION", "KILL"],
    &["FCALL", "read", "1", "k"],
    &["FCALL", "Put", "1", "k", "v", "w"],
    &["FCALL_RO", "READ", "1", "k"],
    &["FCALL_RO", "put", "1", "k", "v"],
    &["FCALL", "nosuch", "x"],
    &["FCALL", "read", "x"],
    &["FCALL", "read", "-1"],
    &["FCALL", "read", "2", "k"],
    &["COMMAND", "GETKEYS", "FCALL", "read", "2", "k", "l", "v"],
    &["EVAL", "return redis.call('fcall', 'read', 1, 'k')", "0"],
    &["EVAL", "#!lua flags=no-writes\nreturn redis.call('set', KEYS[1], 'v')", "1", "k"],
    &["EVAL", "#!lua flags=no-write\nreturn 1", "0"],
    &["EVAL", "#!LUA\nreturn 1", "0"],
    &["EVAL_RO", "#!lua\nreturn 1", "0"],
    &["FUNCTION", "DELETE", "nosuch"],
    &["FUNCTION", "DELETE", "lib"],
    &["FCALL", "read", "1", "k"],
    &["FUNCTION", "FLUSH", "LATER"],
    &["FUNCTION", "FLUSH", "SYNC", "SYNC"],
    &["FUNCTION", "FLUSH", "SYNC"],
    &["FUNCTION", "LIST"],
];

/// A connection that returns replies unchanged.
pub(crate) struct Bare(pub(crate) BufReader<TcpStream>);

impl Bare {
    pub(crate) fn ask(&mut self, words: &[&str]) -> String {
        let mut request = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| request += &format!("${}\r\n{word}\r\n", word.len()));
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
        self.reply()
    }

    pub(crate) fn reply(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let line = line.trim_end_matches(['\r', '\n']);
        let count = || line[1..].parse::<i64>().unwrap();
        match line.as_bytes().first() {
            Some(b'$') if count() >= 0 => {
                let mut text = vec![0; count() as usize + 2];
                self.0.read_exact(&mut text).unwrap();
                format!("'{}'", text[..text.len() - 2].escape_ascii())
            }
            Some(b'=') => {
                let mut text = vec![0; count() as usize + 2];
                self.0.read_exact(&mut text).unwrap();
                format!("text '{}'", text[4..text.len() - 2].escape_ascii())
            }
            Some(kind @ (b'*' | b'>' | b'~' | b'%')) if count() >= 0 => {
                let (each, name) = match kind {
                    b'>' => (1, "push "),
                    b'~' => (1, "set "),
                    b'%' => (2, "map "),
                    _ => (1, ""),
                };
                let elements: Vec<_> = (0..each * count()).map(|_| self.reply()).collect();
                format!("{name}[{}]", elements.join(" "))
            }
            Some(_) => line.to_owned(),
            None => "the connection was closed".into(),
        }
    }
}

/// A `redis-server` that ends with the test.
pub(crate) struct Redis(pub(crate) Child, pub(crate) u16);

impl Redis {
    pub(crate) fn start() -> Option<Redis> {
        Redis::start_with(&["--save", "", "--appendonly", "no"])
    }

    /// Starts a server of a version, with whose replies Quorate's are compared.
    pub(crate) fn start_of(version: &str) -> Option<Redis> {
        is_redis_of(version).then(Redis::start).flatten()
    }

    pub(crate) fn start_with(arguments: &[&str]) -> Option<Redis> {
        Redis::start_at(free_ports(1), arguments)
    }

    pub(crate) fn start_at(port: u16, arguments: &[&str]) -> Option<Redis> {
        Redis::start_program("redis-server", port, arguments)
    }

    /// Starts a server of Redis or Valkey.
    pub(crate) fn start_program(program: &str, port: u16, arguments: &[&str]) -> Option<Redis> {
        if !is_installed(program, Command::new(program).arg("--version")) {
            return None;
        }
        let mut command = Command::new(program);
        command.args(["--port", &port.to_string()]).args(arguments);
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let redis = Redis(process, port);
        until("redis-server answers", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some(redis)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Queues and brokers compute the names of keys in their scripts.
#[test]
fn a_script_may_use_undeclared_keys_of_its_keyspace() {
    let cluster = Cluster::start(3, &["prefix=c:", "prefix=s: shards=2"]);
    let script = |body: &str, keys: &str| {
        let mut command = redis::cmd("EVAL");
        command.arg(body).arg(usize::from(!keys.is_empty()));
        if !keys.is_empty() {
            command.arg(keys);
        }
        command
    };
    let answer = |id, body: &str, keys: &str| match script(body, keys).query(&mut cluster.client(id)) {
        Ok(value) => as_text(&value),
        Err(error) => error.to_string(),
    };
    assert_eq!(answer(1, "return redis.call('rpush', KEYS[1] .. '-list', 'a')", "k"), "1");
    assert_eq!(answer(2, "return redis.call('lrange', 'k-list', 0, -1)", ""), "[\"a\"]");
    assert_eq!(answer(3, "return redis.call('set', 'c:' .. KEYS[1]:sub(3), 'v')", "c:x"), "OK");
    assert_eq!(ask(&mut cluster.client(1), "GET c:x"), "\"v\"");
    assert_eq!(answer(2, "return redis.call('keys', '*')", ""), "[\"k-list\"]");
    assert_eq!(answer(2, "return redis.call('keys', '*')", "c:any"), "[\"c:x\"]");
    for (body, keys) in [
        ("return redis.call('get', 'c:x')", "k"),
        ("return redis.call('get', 'k')", "c:k"),
        ("return redis.call('get', 's:k')", "s:l"),
        ("return redis.call('get', 's:k')", ""),
    ] {
        let error = answer(1, body, keys);
        assert!(error.contains("which is not among its KEYS"), "{body}: {error}");
    }
    // The transaction goes to the other keyspace: a key that the script wrote there could not be read again.
    let mut client = cluster.client(1);
    assert_eq!(ask(&mut client, "MULTI"), "OK");
    assert_eq!(ask(&mut client, "SET c:x w"), "QUEUED");
    assert_eq!(
        as_text(&script("return redis.call('set', 'k', 'v')", "").query(&mut client).unwrap()),
        "QUEUED"
    );
    assert!(ask(&mut client, "EXEC").contains("which is not among its KEYS"));
}

#[test]
fn scripts_answer_as_in_redis() {
    let Some(redis) = Redis::start_of("7.0.") else { return };
    let cluster = Cluster::start(1, &[]);
    let mut reference = Bare(BufReader::new(connect(redis.1)));
    let mut own = Bare(BufReader::new(cluster.raw(1)));
    let differ: Vec<String> = (ALIKE.iter())
        .map(|words| (words, reference.ask(words), own.ask(words)))
        .filter(|(_, theirs, ours)| theirs != ours)
        .map(|(words, theirs, ours)| format!("{words:?}\n  redis:   {theirs}\n  quorate: {ours}"))
        .collect();
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

/// In Redis, what a script sets in `cjson` stays set for all later scripts.
const USUAL_SETTINGS: &str = "cjson.encode_sparse_array(false, 2, 10) cjson.encode_max_depth(1000) \
                              cjson.decode_max_depth(1000) cjson.encode_number_precision(14) \
                              cjson.encode_keep_buffer(true) cjson.encode_invalid_numbers(false) \
                              cjson.decode_invalid_numbers(true)";

/// The node's own tests compare with the recorded replies; here they are compared with a real Redis.
#[test]
fn recorded_replies_are_those_of_redis() {
    let Some(redis) = Redis::start_of("7.0.15") else { return };
    let mut reference = Bare(BufReader::new(connect(redis.1)));
    reference.ask(&["HELLO", "3"]);
    let recorded = include_str!("../../../scripts/src/replies.txt");
    let (header, cases) = recorded.split_once("\n\n").unwrap();
    let mut lines = header.lines().rev();
    let (arguments, keys) = (lines.next().unwrap(), lines.next().unwrap());
    let count = keys.split(' ').count().to_string();
    let inputs: Vec<&str> = keys.split(' ').chain(arguments.split(' ')).collect();
    let mut preparing = None;
    for case in cases.trim_end().split("\n\n") {
        let (script, reply) = case.rsplit_once("\n=> ").unwrap();
        reference.ask(&["FLUSHALL"]);
        reference.ask(&["EVAL", USUAL_SETTINGS, "0"]);
        let mut eval = |script| reference.ask(&[&["EVAL", script, &count], &inputs[..]].concat());
        eval(preparing.get_or_insert(script));
        assert_eq!(eval(script), reply, "{script}");
    }
}

const COMPARE_AND_DELETE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
                                  return redis.call('del', KEYS[1]) else return 0 end";

fn eval(connection: &mut redis::Connection, text: &str, keys: &[&str], arguments: &[&str]) -> String {
    let mut command = redis::cmd("EVAL");
    command.arg(text).arg(keys.len()).arg(keys).arg(arguments);
    match command.query::<redis::Value>(connection) {
        Ok(value) => as_text(&value),
        Err(error) => crate::support::error_text(&error),
    }
}

const KEYSPACES: &[&str] = &[
    "prefix=f: replication=leader-follower acks=majority",
    "prefix=a: replication=abd",
    "prefix=b: replication=blocking",
];

#[test]
fn scripts_run_in_ordered_keyspaces_and_are_refused_elsewhere() {
    let cluster = Cluster::start(3, KEYSPACES);
    let mut nodes = [1, 2, 3].map(|id| cluster.client(id));
    for prefix in ["", "f:"] {
        for node in &mut nodes {
            let key = &format!("{prefix}lock");
            assert_eq!(ask(node, &format!("SET {key} mine NX PX 60000")), "OK");
            assert_eq!(eval(node, COMPARE_AND_DELETE, &[key], &["other"]), "0");
            assert_eq!(eval(node, COMPARE_AND_DELETE, &[key], &["mine"]), "1");
        }
    }
    for (prefix, protocol) in [("a:", "abd"), ("b:", "blocking")] {
        let error = eval(&mut nodes[0], COMPARE_AND_DELETE, &[&format!("{prefix}k")], &["x"]);
        assert!(
            error.starts_with(&format!("-ERR EVAL needs read-modify-write, which {protocol}")),
            "{error}"
        );
        assert!(error.contains("use a keyspace with replication="), "{error}");
    }
    let error = eval(&mut nodes[0], "return 1", &["k", "a:k"], &[]);
    assert!(error.starts_with("-CROSSSLOT"), "{error}");
    let count = "return redis.call('INCR', KEYS[1]) + redis.call('INCRBY', KEYS[2], 2)";
    for (node, counted) in nodes.iter_mut().zip(["3", "6"]) {
        assert_eq!(eval(node, count, &["counted", "f:counted"], &[]), counted, "in two keyspaces");
    }
    assert_eq!(eval(&mut nodes[1], "return ARGV[1]", &[], &["no keys"]), "\"no keys\"");
}

#[test]
fn a_loaded_script_is_known_to_every_node_and_forgotten_by_all() {
    let cluster = Cluster::start(3, &[]);
    let mut nodes = [1, 2, 3].map(|id| cluster.client(id));
    let digest: String = redis::cmd("SCRIPT").arg("LOAD").arg("return ARGV[1]").query(&mut nodes[1]).unwrap();
    for node in &mut nodes {
        until("the script has come", || ask(node, &format!("SCRIPT EXISTS {digest}")) == "[1]");
        assert_eq!(ask(node, &format!("EVALSHA {digest} 0 x")), "\"x\"");
        assert_eq!(ask(node, &format!("SCRIPT SHOW {digest}")), "\"return ARGV[1]\"");
    }
    assert_eq!(ask(&mut nodes[2], "SCRIPT FLUSH"), "OK");
    for node in &mut nodes {
        until("it is forgotten", || ask(node, &format!("SCRIPT EXISTS {digest}")) == "[0]");
        for request in
            [format!("EVALSHA {digest} 0 x"), format!("SCRIPT SHOW {digest}"), "SCRIPT SHOW x".into()]
        {
            assert_eq!(ask(node, &request), "-NOSCRIPT No matching script. Please use EVAL.");
        }
    }
}

#[test]
fn writes_of_scripts_survive_a_kill_of_every_node() {
    let mut cluster = Cluster::start(3, &["prefix= replication=consensus durability=os"]);
    let mut node = cluster.client(1);
    // The value contains everything that could differ between runs.
    let text = "local parts = {redis.call('incr', KEYS[2]), redis.call('time')[1], math.random(1000000)}
        for key, value in pairs({a = 1, b = 2, c = 3}) do parts[#parts + 1] = key .. tostring({}) end
        redis.call('append', KEYS[1], table.concat(parts, ',') .. ';')
        if #ARGV > 0 then local s = 'x' while true do s = s .. s end end
        return redis.call('get', KEYS[1])";
    let keys = ["{k}text", "{k}number"];
    // On a machine that is busy with other tests, the leader may change during the test.
    let is_refused = |answer: &str| ["-CLUSTERDOWN", "-UNKNOWN"].iter().any(|code| answer.starts_with(code));
    for _ in 0..20 {
        eval(&mut node, text, &keys, &[]);
        let error = eval(&mut node, text, &keys, &["too much"]);
        assert!(is_refused(&error) || error.contains("nothing of it was kept"), "{error}");
    }
    let mut before = String::new();
    until("both keys are read", || {
        before = ask(&mut node, "MGET {k}text {k}number");
        !is_refused(&before)
    });
    cluster.wait_until_equal();
    for id in [1, 2, 3] {
        cluster.kill(id);
    }
    for id in [1, 2, 3] {
        cluster.restart(id);
    }
    for id in [1, 2, 3] {
        cluster.wait_until_ready(id);
    }
    let mut after = String::new();
    let mut other = cluster.client(2);
    until("both keys are read again", || {
        after = ask(&mut other, "MGET {k}text {k}number");
        !is_refused(&after)
    });
    assert_eq!(after, before);
    cluster.wait_until_equal();
}

/// A function acknowledged at one node can be called at every other one at once.
#[test]
fn functions_are_the_same_on_all_nodes_and_survive_restarts() {
    let mut cluster = Cluster::start(4, &["prefix=s: shards=2"]);
    let reply = |cluster: &Cluster, id, words: &[&str]| {
        let mut command = redis::cmd(words[0]);
        words[1..].iter().for_each(|word| {
            command.arg(*word);
        });
        match command.query(&mut cluster.client(id)) {
            Ok(value) => as_text(&value),
            Err(error) => error_text(&error),
        }
    };
    let library = |answer: usize| {
        format!(
            "#!lua name=lib\nredis.register_function('f', function(keys) return redis.call('incrby', keys[1], {answer}) end)
            redis.register_function{{function_name = 'alone', callback = function() return 1 end, flags = {{'no-cluster'}}}}"
        )
    };
    let mut sum = 0;
    for round in 0..6 {
        let at = u16::try_from(round % 4 + 1).unwrap();
        assert_eq!(reply(&cluster, at, &["FUNCTION", "LOAD", "REPLACE", &library(round)]), "\"lib\"");
        for id in 1..=4 {
            sum += round;
            assert_eq!(
                reply(&cluster, id, &["FCALL", "f", "1", "k"]),
                sum.to_string(),
                "round {round}, node {id}"
            );
        }
    }
    assert_eq!(reply(&cluster, 2, &["FCALL", "alone", "1", "k"]), "1");
    let refused = reply(&cluster, 2, &["FCALL", "alone", "1", "s:k"]);
    assert!(refused.contains("'no-cluster' flag is set"), "{refused}");
    (1..=4).for_each(|id| cluster.kill(id));
    (1..=4).for_each(|id| cluster.restart(id));
    (1..=4).for_each(|id| cluster.wait_until_ready(id));
    for id in 1..=4 {
        sum += 5;
        // It waits until its node has the control group's lease.
        assert_eq!(reply(&cluster, id, &["FCALL", "f", "1", "k"]), sum.to_string(), "node {id}");
    }
    let dump: Vec<u8> = redis::cmd("FUNCTION").arg("DUMP").query(&mut cluster.client(1)).unwrap();
    let restored = |payload: &[u8], policy: &str| {
        let mut command = redis::cmd("FUNCTION");
        match command.arg("RESTORE").arg(payload).arg(policy).query(&mut cluster.client(2)) {
            Ok(value) => as_text(&value),
            Err(error) => error_text(&error),
        }
    };
    assert!(restored(&dump, "APPEND").contains("Library lib already exists"));
    assert!(restored(&dump, "AGAIN").contains("Wrong restore policy"));
    assert!(restored(&dump[1..], "FLUSH").contains("payload version or checksum are wrong"));
    // Libraries that would be too large are refused as those of `FUNCTION LOAD`, and before they are expanded.
    let mut large = Vec::new();
    rdb::payload::put_library(&[b'-'; 600_000], &mut large);
    rdb::payload::close(rdb::payload::VERSION, 0, &mut large);
    let refused = restored(&large, "APPEND");
    assert!(refused.contains("all libraries together would take 600000 bytes"), "{refused}");
    for policy in ["REPLACE", "FLUSH"] {
        assert_eq!(restored(&dump, policy), "OK");
    }
    assert_eq!(reply(&cluster, 2, &["FUNCTION", "DELETE", "lib"]), "OK");
    assert_eq!(restored(&dump, "APPEND"), "OK");
    sum += 5;
    assert_eq!(reply(&cluster, 4, &["FCALL", "f", "1", "k"]), sum.to_string());
    assert_eq!(reply(&cluster, 3, &["FUNCTION", "DELETE", "lib"]), "OK");
    for id in 1..=4 {
        assert_eq!(reply(&cluster, id, &["FCALL", "f", "1", "k"]), "-ERR Function not found");
    }
}
