//! The effects and replies of scripts, on a table of their own. The program's tests compare the same with a real Redis.

use super::LUA;
use kv::codec::Reader;
use kv::limits::SCRIPT_COST_DEFAULT;
use kv::{Bounded, Command, Reply, ReplyBuffer, Script, ScriptLimits, ScriptOptions, Table};

pub(super) struct Store {
    table: Table,
    offset: u64,
    by_second_rules: bool,
}

impl Store {
    pub(super) fn new() -> Store {
        let mut table = Table::new(1);
        table.set_interpreter(&LUA);
        Store { table, offset: 0, by_second_rules: true }
    }

    /// Runs a script with keys and arguments as the next record, and returns the reply as text.
    pub(super) fn eval(&mut self, text: &str, keys: &[&str], arguments: &[&str]) -> String {
        let encoded = self.eval_encoded(text, keys, arguments);
        let mut reader = Reader::new(&encoded);
        let text = element(&mut reader);
        assert!(reader.is_empty(), "a script has one reply");
        text
    }

    /// The same, but returns the reply in the encoding of [`Reply`].
    pub(super) fn eval_encoded(&mut self, text: &str, keys: &[&str], arguments: &[&str]) -> Vec<u8> {
        self.eval_within(None, text, keys, arguments)
    }

    /// The same, if there is a bound on what the record may add.
    fn eval_within(&mut self, bound: Option<u64>, text: &str, keys: &[&str], arguments: &[&str]) -> Vec<u8> {
        self.offset += 1;
        let (mut scratch, mut out) = (Vec::new(), ReplyBuffer::new());
        let inputs = keys.iter().chain(arguments).map(|input| input.as_bytes());
        let limits = ScriptLimits { value_bytes_max: 1 << 20, cost_max: SCRIPT_COST_DEFAULT };
        let script = Script::build(&mut scratch, text.as_bytes(), inputs, keys.len(), limits, true);
        let options = ScriptOptions { by_second_rules: self.by_second_rules, ..ScriptOptions::default() };
        let script = script.expect("the keys are among the inputs").with_options(options);
        let command = Command::Script(script);
        let mut bytes = Vec::new();
        let bounded =
            bound.and_then(|bound| Bounded::build(bound, &command, &mut bytes)).map(Command::Bounded);
        self.table.apply(bounded.as_ref().unwrap_or(&command), self.offset, 1_700_000_000_123, &mut out);
        out.take()
    }
}

fn element(reader: &mut Reader<'_>) -> String {
    match Reply::decode(reader).expect("a reply is well-formed") {
        Reply::Null => "nil".into(),
        Reply::Integer(number) => number.to_string(),
        Reply::Double(number) | Reply::Decimal(number) => format!("{number}d"),
        Reply::Bulk(bytes) => format!("'{}'", bytes.escape_ascii()),
        Reply::Status(text) => format!("+{}", text.escape_ascii()),
        Reply::Error(text) => format!("-{}", String::from_utf8_lossy(text)),
        Reply::Array(count) => {
            let elements: Vec<_> = (0..count).map(|_| element(reader)).collect();
            format!("[{}]", elements.join(" "))
        }
        other => panic!("a script does not answer with {other:?}"),
    }
}

pub(super) fn eval(text: &str) -> String {
    Store::new().eval(text, &[], &[])
}

/// Executes commands as one transaction, and returns the reply.
pub(super) fn transact(commands: &[Command<'_>]) -> String {
    let mut draft = kv::Draft::default();
    assert!(commands.iter().all(|command| draft.push(command)), "all may stand in a transaction");
    let mut store = Store::new();
    let mut out = ReplyBuffer::new();
    store.table.apply(&Command::Transaction(draft.transaction()), 1, 1_700_000_000_123, &mut out);
    element(&mut Reader::new(out.as_bytes()))
}

/// Replicas of release 1 do not know these, so scripts that they may run, too, do not get them.
#[test]
fn what_release_2_brings_depends_on_the_record() {
    let older = |text| Store { by_second_rules: false, ..Store::new() }.eval(text, &["k"], &[]);
    let newer = |text| Store::new().eval(text, &["k"], &[]);
    for (text, before, reply) in [
        ("return redis.pcall('lindex', KEYS[1], 'x')", "-ERR value is not an integer or out of range", "nil"),
        ("return redis.pcall('object', 'refcount', KEYS[1])", "not allowed from script", "nil"),
        ("return redis.pcall('memory', 'usage', KEYS[1])", "not allowed from script", "nil"),
        ("return redis.REDIS_VERSION", "'7.0.15'", "'8.6.3'"),
        ("return string.format('%x', redis.REDIS_VERSION_NUM)", "'7000f'", "'80603'"),
        ("return type(string.gfind)", "'nil'", "'function'"),
        (
            "return server.call('get', KEYS[1]) or server.sha1hex('')",
            "global variable 'server'",
            "'da39a3ee5e6b4b0d3255bfef95601890afd80709'",
        ),
        ("return redis.pcall('bitop', 'one', KEYS[1], KEYS[1])", "-ERR this needs level 2", "0"),
        ("return redis.pcall('blpop', KEYS[1], 0)", "not allowed from script", "nil"),
        ("return redis.pcall('wait', 1, 0)", "not allowed from script", "0"),
        ("return redis.pcall('waitaof', 0, 1, 0)", "not allowed from script", "[0 0]"),
        (
            "return redis.pcall('wait', 'x', 0)",
            "not allowed from script",
            "-ERR 'x' is no number, or below 0",
        ),
        ("return type(getmetatable(_G))", "'boolean'", "'table'"),
        (
            "redis.call('rpush', KEYS[1], 'a', 'b') return redis.call('blmove', KEYS[1], KEYS[1], 'LEFT', 'RIGHT', 1)",
            "not allowed from script",
            "'a'",
        ),
        ("return redis.pcall('bzpopmin', KEYS[1], 0)", "not allowed from script", "nil"),
        (
            "redis.call('xadd', KEYS[1], '1-1', 'f', 'v') \
             return #redis.call('xread', 'BLOCK', 0, 'STREAMS', KEYS[1], '0')",
            "xread command is not allowed with BLOCK option from scripts",
            "1",
        ),
        (
            "return redis.call('xread', 'BLOCK', 0, 'STREAMS', KEYS[1], '$')",
            "BLOCK option from scripts",
            "nil",
        ),
        // As in Lua, an error has a place only if the function was called from Lua.
        (
            "local ok, e = pcall(string.find, 'a', '[') return e",
            "'user_script:1: malformed pattern",
            "'malformed pattern (missing \\']\\')'",
        ),
        (
            "local ok, e = pcall(bit.band) return e",
            "'user_script:1: bad argument #1 to",
            "'bad argument #1 to \\'?\\' (number expected, got no value)'",
        ),
        (
            "local ok, e = pcall(function() string.find('a', '[') end) return e",
            "'user_script:1: malformed pattern",
            "'user_script:1: malformed pattern (missing \\']\\')'",
        ),
        ("return tostring(math.mod and math.mod(7, 4))", "'nil'", "'3'"),
        (
            "local at = os.clock() for _ = 1, 100 do end return tostring(os.clock() > at)",
            "variable 'os'",
            "'true'",
        ),
        (
            "local names = '' for name in pairs(os) do names = names .. name end return names",
            "variable 'os'",
            "'clock'",
        ),
        ("return cjson.encode(cjson.decode('[]'))", "'{}'", "'{}'"),
        (
            "cjson.decode_array_with_array_mt(true) local t = cjson.decode('[{\"a\":[1]},[]]') t[1].a[1] = nil \
             return cjson.encode(t)",
            "field 'decode_array_with_array_mt'",
            "'[{\\\"a\\\":[]},[]]'",
        ),
        (
            "cjson.decode_array_with_array_mt(true) local t = cjson.decode('[]') getmetatable(t).x = 1",
            "field 'decode_array_with_array_mt'",
            "-ERR user_script:1: Attempt to modify a readonly table ...",
        ),
        (
            "cjson.decode_array_with_array_mt(true) local t = cjson.decode('[1]') t.a = 1 return cjson.encode(t)",
            "field 'decode_array_with_array_mt'",
            "'{\\\"1\\\":1,\\\"a\\\":1}'",
        ),
    ] {
        assert!(older(text).contains(before), "{text}: {}", older(text));
        match reply.strip_suffix(" ...") {
            Some(beginning) => assert!(newer(text).starts_with(beginning), "{text}: {}", newer(text)),
            None => assert_eq!(newer(text), reply, "{text}"),
        }
    }
    let raised = newer("error({})");
    assert!(raised.starts_with("-ERR unknown error script: "), "{raised}");
}

#[test]
fn a_pattern_is_iterated_over_by_its_older_name_too() {
    let text =
        "local t = {} for a, b in string.gfind('k=v, l=w', '(%a)=(%a)') do t[#t + 1] = a .. b end return t";
    assert_eq!(eval(text), "['kv' 'lw']");
    assert_eq!(eval("local t = {} for a in ('x y'):gfind('%a') do t[#t + 1] = a end return t"), "['x' 'y']");
}

#[test]
fn commands_that_replicas_may_answer_differently_are_for_scripts_that_do_not_write() {
    let mut store = Store::new();
    store.eval("redis.call('set', KEYS[1], 'v')", &["k"], &[]);
    let usage = "return redis.call('memory', 'usage', KEYS[1]) > 0 and redis.pcall('set', KEYS[1], 'w')";
    let error = store.eval(usage, &["k"], &[]);
    assert!(
        error.starts_with("-ERR This Redis command is not allowed from script: SET is a write"),
        "{error}"
    );
    let usage = "redis.call('set', KEYS[1], 'w') return redis.pcall('memory', 'usage', KEYS[1])";
    let error = store.eval(usage, &["k"], &[]);
    assert!(error.contains("replicas may answer MEMORY USAGE differently"), "{error}");
    assert_eq!(store.eval("return redis.call('get', KEYS[1])", &["k"], &[]), "'w'");
}

#[test]
fn a_script_beyond_the_bound_of_its_record_ends_and_is_undone() {
    let mut store = Store::new();
    store.eval("redis.call('set', KEYS[1], 'before')", &["k"], &[]);
    let within = |store: &mut Store, bound: u64, text: &str| {
        element(&mut Reader::new(&store.eval_within(Some(bound), text, &["k", "l"], &[])))
    };
    let grows = "redis.call('set', KEYS[1], 'after') for i = 1, 9 do redis.PCALL('setbit', KEYS[2] .. i, 800000, 1) end return 1";
    for call in ["call", "pcall"] {
        let text = grows.replace("PCALL", call).replace("KEYS[2] .. i", "KEYS[2]");
        let (text, before) = (text.replace("800000", "800000 * i"), store.table.charged_bytes());
        assert!(within(&mut store, 1 << 20, &text).starts_with("-OOM the script was stopped"), "{call}");
        assert_eq!(
            store.eval(
                "return {redis.call('get', KEYS[1]), redis.call('exists', KEYS[2])}",
                &["k", "l"],
                &[]
            ),
            "['before' 0]"
        );
        assert!(
            (1 << 19..1 << 20).contains(&(store.table.charged_bytes() - before)),
            "what was done was charged"
        );
        assert_eq!(within(&mut store, 1 << 30, &text), "1");
        store.eval("redis.call('del', KEYS[2]) redis.call('set', KEYS[1], 'before')", &["k", "l"], &[]);
    }
    // Writes in place are charged by what is kept of the former value: once, not for each of them.
    let text = "for i = 1, 100 do redis.call('setrange', KEYS[2], i, 'x') end return 1";
    store.eval("redis.call('setrange', KEYS[1], 400000, 'x')", &["l"], &[]);
    assert!(within(&mut store, 300_000, text).starts_with("-OOM"));
    assert_eq!(within(&mut store, 400_000 + 100 * 1024, text), "1");
    // Elements of sketches are charged by what the sketches grow by.
    let text = "for i = 1, 1000 do redis.call('pfadd', KEYS[1], i) end return 1";
    store.eval("redis.call('del', KEYS[1])", &["k"], &[]);
    assert_eq!(within(&mut store, 2 << 20, text), "1");
    // A script that adds little needs little.
    let text = "for i = 1, 500 do redis.call('incr', KEYS[2] .. 'x') end return 1"
        .replace("KEYS[2] .. 'x'", "KEYS[1]");
    store.eval("redis.call('set', KEYS[1], 1)", &["k"], &[]);
    assert_eq!(within(&mut store, 1 << 20, &text), "1");
}

#[test]
fn results_of_scripts_become_replies_as_in_redis() {
    for (text, reply) in [
        ("return 1.9", "1"),
        ("return -1.9", "-1"),
        ("return 0/0", "-9223372036854775808"),
        ("return 'a\\0b'", "'a\\x00b'"),
        ("return true", "1"),
        ("return false", "nil"),
        ("return", "nil"),
        ("return type", "nil"),
        ("return {1, 'two', {3}, nil, 5}", "[1 'two' [3]]"),
        ("return {ok = 'fine\\nday', 1}", "+fine day"),
        ("return {err = '-MINE is wrong'}", "--MINE is wrong"),
        ("return {double = 2.5}", "2.5d"),
        ("return redis.status_reply('fine')", "+fine"),
        ("return redis.error_reply('-WRONG way')", "-WRONG way"),
        ("return redis.error_reply(1)", "-ERR wrong number or type of arguments"),
    ] {
        assert_eq!(eval(text), reply, "{text}");
    }
}

#[test]
fn replies_of_commands_become_what_lua_scripts_expect() {
    let mut store = Store::new();
    let text = "local s = redis.call('SET', KEYS[1], 'v')
        local nothing = redis.call('get', KEYS[2])
        return {s.ok, redis.call('GeT', KEYS[1]), tostring(nothing), redis.call('STRLEN', KEYS[1]),
                redis.call('mget', KEYS[1], KEYS[2]), redis.call('type', KEYS[1]).ok}";
    assert_eq!(store.eval(text, &["a", "b"], &[]), "['OK' 'v' 'false' 1 ['v' nil] 'string']");
    let text = "redis.call('set', KEYS[1], 0.1) return redis.call('get', KEYS[1])";
    assert_eq!(store.eval(text, &["a"], &[]), "'0.10000000000000001'");
}

#[test]
fn scripts_use_lists_sets_and_sorted_sets_as_queues_do() {
    let mut store = Store::new();
    let mut eval = |text| store.eval(text, &["l", "z", "s"], &[]);
    assert_eq!(
        eval("redis.call('rpush', KEYS[1], 'a', 'b') return redis.call('lrange', KEYS[1], 0, -1)"),
        "['a' 'b']"
    );
    assert_eq!(eval("return redis.call('lmove', KEYS[1], KEYS[1], 'left', 'right')"), "'a'");
    assert_eq!(eval("return redis.call('lpop', KEYS[1], 5)"), "['b' 'a']");
    assert_eq!(eval("return redis.call('lpop', KEYS[1])"), "nil");
    assert_eq!(
        eval("redis.call('zadd', KEYS[2], 2.5, 'a', 1, 'b') return redis.call('zscore', KEYS[2], 'a')"),
        "'2.5'"
    );
    let text = "return redis.call('zrange', KEYS[2], 0, -1, 'withscores')";
    assert_eq!(eval(text), "['b' '1' 'a' '2.5']", "one flat array, as in RESP2");
    assert_eq!(eval("return redis.call('zpopmin', KEYS[2], 9)"), "['b' '1' 'a' '2.5']");
    assert_eq!(eval("redis.call('sadd', KEYS[3], 'a') return redis.call('smembers', KEYS[3])"), "['a']");
    let draw = "for i = 1, 500 do redis.call('sadd', KEYS[1], i) end
        return {redis.call('srandmember', KEYS[1]), redis.call('spop', KEYS[1])}";
    let [mut first, mut second] = [Store::new(), Store::new()];
    // Reads that only one replica executes in between do not affect what the script draws.
    second.table.read(
        &Command::OnSet(kv::SetCommand::Random { key: b"other", count: None }),
        1,
        &mut ReplyBuffer::new(),
    );
    assert_eq!(first.eval(draw, &["s"], &[]), second.eval(draw, &["s"], &[]));
}

#[test]
fn the_cost_of_a_script_on_a_large_list_is_that_of_the_elements_it_looks_at() {
    let mut store = Store::new();
    let fill = "for i = 1, 4000 do redis.call('rpush', KEYS[1], string.rep('x', 100)) end";
    for _ in 0..5 {
        assert_eq!(store.eval(fill, &["l"], &[]), "nil");
    }
    let many = "for i = 1, 4000 do redis.call('lpush', KEYS[1], redis.call('rpop', KEYS[1])) end return redis.call('llen', KEYS[1])";
    assert_eq!(store.eval(many, &["l"], &[]), "20000");
    let walk = "for i = 1, 4000 do redis.call('lrem', KEYS[1], 0, 'none') end";
    assert!(store.eval(walk, &["l"], &[]).starts_with("-ERR"), "each looks at two megabytes");
    assert_eq!(store.eval("return redis.call('llen', KEYS[1])", &["l"], &[]), "20000");
}

#[test]
fn the_error_of_a_command_is_raised_or_returned() {
    let mut store = Store::new();
    store.eval("redis.call('set', KEYS[1], 'word')", &["k"], &[]);
    let mut eval = |text| store.eval(text, &["k"], &[]);
    let error = "-ERR value is not an integer or out of range";
    let text = "return redis.call('incr', KEYS[1])";
    let digest = super::digest_of(text.as_bytes());
    assert_eq!(eval(text), format!("{error} script: {digest}, on @user_script:1."));
    assert_eq!(eval("return redis.pcall('incr', KEYS[1])"), error);
    assert_eq!(eval("return redis.pcall('incr', KEYS[1]).err"), format!("'{}'", &error[1..]));
    let caught = eval("local ok, text = pcall(redis.call, 'incr', KEYS[1]) return {tostring(ok), text}");
    assert_eq!(caught, format!("['false' '{}']", &error[1..]));
    let handled = eval(
        "local _, text = xpcall(function() redis.call('incr', KEYS[1]) end,
        function(e) return 'seen: ' .. e.err end) return text",
    );
    assert_eq!(handled, format!("'seen: {}'", &error[1..]));
}

#[test]
fn an_error_names_its_line_and_does_not_undo_earlier_writes() {
    let mut store = Store::new();
    let error = store.eval("redis.call('set', KEYS[1], 'kept')\n\nlocal x = nil\nreturn x.y", &["k"], &[]);
    assert!(
        error.starts_with("-ERR user_script:4: attempt to index local 'x' (a nil value) script: "),
        "{error}"
    );
    assert!(error.ends_with(", on @user_script:4."), "{error}");
    assert_eq!(store.eval("return redis.call('get', KEYS[1])", &["k"], &[]), "'kept'");
}

#[test]
fn nothing_leaks_from_one_script_to_the_next() {
    let mut store = Store::new();
    assert!(store.eval("x = 1", &[], &[]).contains("Attempt to modify a readonly table"));
    assert!(store.eval("_G.x = 1", &[], &[]).contains("Attempt to modify a readonly table"));
    store.eval("KEYS.x = 1", &[], &[]);
    let missing = "Script attempted to access nonexistent global variable 'x'";
    assert!(store.eval("return x", &[], &[]).contains(missing));
    assert_eq!(
        store.eval("return {tostring(string.x), tostring(KEYS.x), ('').x}", &[], &[]),
        "['nil' 'nil']"
    );
}

#[test]
fn functions_that_reach_outside_or_differ_between_runs_do_not_exist() {
    for name in [
        "io",
        "debug",
        "require",
        "package",
        "module",
        "load",
        "loadstring",
        "loadfile",
        "dofile",
        "print",
        "collectgarbage",
        "gcinfo",
        "getfenv",
        "setfenv",
        "newproxy",
        "coroutine",
    ] {
        let error = eval(&format!("return {name}"));
        assert!(error.contains(&format!("nonexistent global variable '{name}'")), "{error}");
    }
    assert_eq!(
        eval(
            "return {tostring(string.dump), tostring(math.sin), tostring(table.foreach), tostring(os.time)}"
        ),
        "['nil' 'nil' 'nil' 'nil']"
    );
}

#[test]
fn addresses_are_not_shown() {
    assert_eq!(
        eval("return {tostring({}), tostring(type), tostring(redis)}"),
        "['table' 'function' 'table']"
    );
    let named = "return tostring(setmetatable({}, {__tostring = function() return 'named' end}))";
    assert_eq!(eval(named), "'named'");
}

#[test]
fn tables_are_iterated_in_the_same_order_whatever_their_keys_are() {
    let sum = "local sum, count = 0, 0
        for key, value in pairs({a = 1, b = 2, [3] = 3, [true] = 4, 5}) do sum, count = sum + value, count + 1 end
        return {sum, count}";
    assert_eq!(eval(sum), "[15 5]");
    let removing = "local t, seen = {1, 2, 3}, 0
        for key in pairs(t) do seen = seen + 1 t[1] = nil t[2] = nil t[3] = nil end return seen";
    assert_eq!(eval(removing), "1");
    assert_eq!(eval("return {tostring(next({})), next({7})}"), "['nil' 1 7]");
    assert!(eval("pairs(nil)").contains("bad argument #1 to 'pairs' (table expected, got nil)"));
    // The order of tables and functions as keys does not depend on their addresses.
    let mixed = "local t, order = {1, a = 2}, {}
        for i = 1, 40 do t[{}] = i t[function() return i end] = -i if i % 3 == 0 then t['x' .. i] = 100 + i end end
        t[redis] = 1000 t[type] = 2000
        for key, value in pairs(t) do order[#order + 1] = value end return table.concat(order, ' ')";
    let first = eval(mixed);
    let held: Vec<Vec<u8>> = (0..50).map(|length| vec![0; length * 1000]).collect();
    assert_eq!(eval(mixed), first, "with other addresses");
    drop(held);
}

#[test]
fn random_numbers_are_the_same_in_each_run() {
    let draw = "return {math.random(1000), math.random(5, 9), tostring(math.random())}";
    let mut store = Store::new();
    let first = store.eval(draw, &[], &[]);
    store.eval("math.randomseed(7)", &[], &[]);
    assert_eq!(store.eval(draw, &[], &[]), first);
    // Redis's answer.
    assert_eq!(eval("math.randomseed(7) return tostring(math.random())"), "'0.26644419658298'");
}

#[test]
fn the_time_is_that_of_the_record() {
    assert_eq!(eval("return redis.call('TIME')"), "['1700000000' '123000']");
}

#[test]
fn only_declared_keys_and_commands_for_scripts_are_allowed() {
    let error = eval("return redis.call('get', 'other')");
    assert!(
        error.starts_with("-ERR Script attempted to access the key 'other', which is not among its KEYS"),
        "{error}"
    );
    for command in ["multi", "eval', 'return 1', '0", "auth', 'x", "flushall', 'x"] {
        assert!(eval(&format!("return redis.call('{command}')")).starts_with("-ERR"), "{command}");
    }
    for command in ["randomkey", "keys', '*", "dbsize", "scan', '0", "flushall", "info"] {
        let error = Store::new().eval(&format!("return redis.call('{command}')"), &["k"], &[]);
        assert!(error.starts_with("-ERR This Redis command is not allowed from script: "), "{error}");
    }
}

#[test]
fn a_script_that_never_ends_is_stopped_and_undone() {
    for endless in [
        "while true do end",
        "local function f() return f() end f()",
        "while true do pcall(function() while true do end end) end",
        "while true do xpcall(function() while true do end end, function() end) end",
        "while true do redis.pcall('incr', KEYS[1]) end",
        "while true do redis.sha1hex(KEYS[1]) end",
        "local t = {} for i = 1, 10000 do t[i] = i end while true do table.insert(t, 1, 0) table.remove(t, 1) end",
        "local t = {} for i = 1, 10000 do t[i] = i end while true do next(t) end",
        "local t = {} for i = 1, 10000 do t[i] = i % 7 end while true do table.sort(t) end",
        "local t = {'x'} for i = 1, 40 do t = {t, t} end return t",
        "while true do string.rep('', 2000000000) end",
        "local s = string.rep('x', 1000000) while true do s = s:upper():lower() end",
        "local s = string.rep('x', 1000000) while true do local t = s .. s end",
        "local s = string.rep('x', 10000) s = s .. s s = s .. s s = s .. s while true do local t = s < s .. 'x' end",
        "local t = {} while true do t[#t + 1] = function() return t end end",
        "while true do xpcall(error, type) end",
        "while true do pcall(redis.call, 'nosuch') end",
        "while true do pcall(string.rep) end",
        "local s = ('x'):rep(10000) while true do cmsgpack.pack(s) end",
        "local t = {} for i = 1, 1000 do t[i] = i end while true do cmsgpack.pack(t) end",
        "local s = cmsgpack.pack(('x'):rep(10000)) while true do cmsgpack.unpack(s) end",
        "while true do cmsgpack.unpack_one('\\1\\2') end",
        "local s = ('x'):rep(10000) while true do struct.pack('c0', s) end",
        "local s = ('x'):rep(10000) while true do struct.unpack('x', s) end",
        "local s = ('x'):rep(10000) while true do struct.size(s) end",
        "local s = '!' .. ('0'):rep(10000) .. '1' while true do struct.size(s) end",
        "while true do cjson.encode_max_depth(5) end",
        "while true do cjson.decode('0x10') end",
        "while true do redis.acl_check_cmd('get', KEYS[1]) end",
        "cjson.encode_sparse_array(false, 0) return cjson.encode({[1] = 1, [2147483647] = 2})",
    ] {
        let mut store = Store::new();
        let text = format!("redis.call('set', KEYS[1], '1') {endless}");
        let error = store.eval(&text, &["k"], &[]);
        assert_eq!(
            error, "-ERR the script was stopped and nothing of it was kept: it cost more than 2000000 units",
            "{endless}"
        );
        assert!(store.table.is_empty(), "{endless}");
    }
}

#[test]
fn a_script_that_allocates_without_end_is_stopped_and_undone() {
    for greedy in [
        "local s = 'x' while true do s = s .. s end",
        "local s = 'x' while true do pcall(function() s = s .. s end) end",
        "return string.rep('x', 1000000000)",
        "pcall(string.rep, 'x', 1000000000)",
        "local s = string.rep('x', 8000000) return redis.call('mset', KEYS[1], s, KEYS[1], s, KEYS[1], s)",
        "local t, s = {}, ('x'):rep(1000000) while true do t[#t + 1] = s .. #t end",
        "local s = ('x'):rep(1000000) return cmsgpack.pack(s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s)",
        "local s = ('x'):rep(1000000) return struct.pack(('c0'):rep(17), s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s)",
        "local t, s = {}, ('x'):rep(1000000) for i = 1, 17 do t[i] = s end return cjson.encode(t)",
        "local t, s = {}, ('x'):rep(1000000) while true do t[#t + 1] = table.concat({s, #t}, ',') end",
    ] {
        let mut store = Store::new();
        let text = format!("redis.call('set', KEYS[1], '1') {greedy}");
        let error = store.eval(&text, &["k"], &[]);
        assert_eq!(
            error,
            "-ERR the script was stopped and nothing of it was kept: it allocated more than 16777216 bytes",
            "{greedy}"
        );
        assert!(store.table.is_empty(), "{greedy}");
    }
}

#[test]
fn nested_calls_end_with_an_error_and_do_not_overflow_the_stack() {
    for deep in [
        "local function f() return 1 + f() end return f()",
        "local function f() return (pcall(f)) end return f()",
        "local function f() return (string.gsub('x', 'x', f)) end return f()",
        "local function f() return xpcall(f, f) end return f()",
        "local t = setmetatable({}, {}) getmetatable(t).__index = function(t, k) return t[k .. 'x'] end return t.x",
        "local t = {} t[1] = t return t",
        "return (string.rep('(', 300)):rep(1) .. redis.call('get', 'x')",
    ] {
        let reply = eval(deep);
        assert!(!reply.is_empty(), "{deep}");
    }
}

#[test]
fn the_first_line_may_declare_flags() {
    let mut store = Store::new();
    assert_eq!(store.eval("#!lua\nreturn 1", &[], &[]), "1");
    let error = store.eval("#!lua flags=no-writes\nreturn redis.call('set', KEYS[1], 1)", &["k"], &[]);
    assert!(error.starts_with("-ERR Write commands are not allowed from read-only scripts."), "{error}");
    assert!(error.ends_with("on @user_script:2."), "{error}");
    assert_eq!(store.eval("#!js\nreturn 1", &[], &[]), "-ERR Unexpected engine in script shebang: #!js");
    assert_eq!(store.eval("#!lua", &[], &[]), "-ERR Invalid script shebang");
}

#[test]
fn a_text_that_is_not_a_program_is_refused() {
    let error = "ERR Error compiling script (new function): user_script:2: unexpected symbol near '<eof>'";
    assert_eq!(super::check(b"return\n1 +"), Err(error.into()));
    assert_eq!(eval("return\n1 +"), format!("-{error}"));
    // Lua does not check compiled programs, so they could do anything to it.
    assert!(super::check(b"\x1bLua").is_err());
    assert_eq!(super::check(b"return 1"), Ok(()));
}

#[test]
fn patterns_match_as_in_lua() {
    let show = "local function show(...) local out = {} for i = 1, select('#', ...) do
        out[i] = tostring((select(i, ...))) end return table.concat(out, '|') end\n";
    for expression in [
        "show(('hello world'):find('o w'))",
        "show(('hello world'):find('(o)( )w'))",
        "show(('hello'):find('l', 1, true), ('a.b'):find('.', 1, true), ('a.b'):find('%.'))",
        "show(('hello'):find('xyz'), ('hello'):find('', 10), ('hello'):find('', 6), ('hello'):find('l', -2))",
        "show(('key = value'):match('^(%w+)%s*=%s*(%w+)$'))",
        "show(('x'):match('()x()'))",
        "show(('THE (quick) fox'):find('%((%a+)%)'))",
        "show(('f(a(b)c)d'):match('%b()'))",
        "show(('THE (quick) fox'):gsub('%f[%a]%a+', '<%0>'))",
        "show(('hello world'):gsub('o', '0', 1))",
        "show(('abc'):gsub('', '-'))",
        "show(('abc'):gsub('%w', '%0%0'), ('abc'):gsub('(a)(b)', '%2%1'), ('a'):gsub('a', '%%'))",
        "show(('$name is $age'):gsub('%$(%w+)', {name = 'Ann', age = 7}))",
        "show(('abc'):gsub('.', function(c) if c == 'b' then return 'B' end end))",
        "show(('aXb'):gsub('()X()', '%1%2'))",
        "show(('hello'):gsub('^h', 'j'), ('hh'):gsub('^h', 'j'))",
        "show(('a-b-c'):match('(.-)-(.*)'))",
        "show(('[[x]]'):match('%[(%b[])%]'), (']'):match('[]]'), ('-'):match('[a-]'), ('^'):match('[%^]'))",
        "show(('abab'):match('(ab)%1'), ('aa'):match('(a)%1'), ('ab'):match('[^a]'))",
        "show(('0x1F'):match('^0[xX](%x+)$'), ('\\9\\11 x'):match('^%s+'), ('a\\0b'):match('%z'))",
        "show(pcall(string.find, 'a', '[a'))",
        "show(pcall(string.find, 'a', '%'))",
        "show(pcall(string.find, 'a', '(a'))",
        "show(pcall(string.find, 'a', 'a)'))",
        "show(pcall(string.find, 'a', '%1'))",
        "show(pcall(string.find, 'a', '%f'))",
        "show(pcall(string.gsub, 'a', 'a', '%2'))",
        "show(tostring(1234):gsub(3, 'x'))",
        "(function() local out = {} for k, v in ('a=1, b=2'):gmatch('(%w+)=(%w+)') do out[#out + 1] = k .. v end return show(unpack(out)) end)()",
        "(function() local out = {} for w in ('one two'):gmatch('%a*') do out[#out + 1] = '<' .. w .. '>' end return show(unpack(out)) end)()",
    ] {
        let text = format!("{show}return {expression}");
        let lua = mlua::Lua::new();
        let expected: mlua::LuaString = lua.load(&text).eval().expect(expression);
        let expected = format!("'{}'", expected.as_bytes().escape_ascii());
        // Positions in errors are those of the script.
        let own = eval(&text).replace("user_script:2: ", "").replace("user_script:3: ", "");
        assert_eq!(own, expected, "{expression}");
    }
}

#[test]
fn random_patterns_match_as_in_lua() {
    // Small alphabets, so that much matches. Deep recursion and errors included.
    let pieces = [
        "a", "b", ".", "%a", "%d", "[ab]", "[^a]", "(", ")", "()", "*", "+", "-", "?", "$", "^", "%1",
        "%b()", "%f[a]",
    ];
    let mut random = 1_u64;
    let mut draw = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    let lua = mlua::Lua::new();
    let find: mlua::Function = lua.globals().get::<mlua::Table>("string").unwrap().get("find").unwrap();
    for _ in 0..20_000 {
        let pattern: String = (0..1 + draw(6)).map(|_| pieces[draw(pieces.len())]).collect();
        if !pattern.contains(|letter| "^$*+?.([%-".contains(letter)) {
            continue; // Without special characters it is searched for literally.
        }
        let text: String = (0..draw(8)).map(|_| ["a", "b", "(", ")", "1"][draw(5)]).collect();
        let theirs = find.call::<mlua::MultiValue>((text.as_str(), pattern.as_str(), 1));
        let charge = |_| true;
        let (is_anchored, body) = match pattern.strip_prefix('^') {
            Some(rest) => (true, rest),
            None => (false, pattern.as_str()),
        };
        let mut matcher = super::patterns::Matcher::new(text.as_bytes(), body.as_bytes(), &charge);
        let ours = matcher.from(0, is_anchored).and_then(|matched| match matched {
            Some(matched) => {
                let captures = (0..matcher.captures()).map(|number| matcher.capture(number, matched));
                captures.collect::<Result<Vec<_>, _>>().map(|captures| Some((matched, captures)))
            }
            None => Ok(None),
        });
        match (theirs, ours) {
            (Err(error), Err(super::patterns::Trouble::Malformed(why))) => {
                assert!(error.to_string().contains(why), "{text} {pattern}: {error}, {why}");
            }
            (Ok(values), Ok(found)) => {
                let start = values.front().and_then(mlua::Value::as_i64);
                assert_eq!(
                    start,
                    found.as_ref().map(|((start, _), _)| *start as i64 + 1),
                    "{text} {pattern}"
                );
                if let Some(((_, end), captures)) = found {
                    assert_eq!(values[1].as_i64(), Some(end as i64), "{text} {pattern}");
                    for (value, capture) in values.iter().skip(2).zip(captures) {
                        let own = match capture {
                            super::patterns::Capture::Text(start, end) => text[start..end].to_string(),
                            super::patterns::Capture::Position(position) => position.to_string(),
                        };
                        assert_eq!(value.to_string().unwrap(), own, "{text} {pattern}");
                    }
                }
            }
            (theirs, ours) => panic!("'{text}' '{pattern}': {theirs:?}, {ours:?}"),
        }
    }
}

#[test]
fn a_pattern_that_takes_too_long_or_too_much_stack_is_stopped() {
    for endless in [
        "return string.find(string.rep('a', 60), string.rep('a?', 60) .. string.rep('a', 60))",
        "return string.find(string.rep('a', 3000), string.rep('a*', 30) .. 'b')",
        "return string.gsub(string.rep('(', 30000), '%b()', '')",
    ] {
        let error = eval(endless);
        assert!(error.contains("it cost more than") || error.contains("too complex"), "{endless}: {error}");
    }
    let deep = eval("return string.find(string.rep('a', 100000), string.rep('a?', 100000))");
    assert!(deep.contains("pattern too complex"), "{deep}");
}

const LIBRARY: &str = "#!lua name=lib
local calls = 0
local function count()
    calls = calls + 1
    return calls
end
redis.register_function('Sum', function(keys, arguments)
    return {#keys, #arguments, keys[1], arguments[1], count()}
end)
redis.register_function{function_name = 'put', callback = function(keys, arguments)
    redis.call('set', keys[1], arguments[1])
    if arguments[2] == 'fail' then error('no') end
    while arguments[2] == 'loop' do end
    return redis.call('get', keys[1])
end}
local lib = redis
redis.register_function('late', function() lib.register_function('f', type) end)
redis.register_function('outside', function() return {KEYS == nil} end)
redis.register_function('change', function() lib.call = 1 end)";

#[test]
fn a_record_with_a_library_calls_the_function_named_by_its_first_argument() {
    let mut store = Store::new();
    let mut call = |arguments: &[&str]| store.eval(LIBRARY, &["k"], arguments);
    assert_eq!(call(&["Sum", "a", "b"]), "[1 2 'k' 'a' 1]");
    assert_eq!(call(&["sum", "a"]), "[1 1 'k' 'a' 1]", "nothing lasts from one call to the next");
    assert_eq!(call(&["put", "v"]), "'v'");
    assert_eq!(call(&["put", "w", "fail"]), "-ERR user_function:12: no script: put, on @user_function:12.");
    assert_eq!(call(&["put", "w"]), "'w'");
    let stopped = call(&["put", "x", "loop"]);
    assert!(stopped.starts_with("-ERR the script was stopped and nothing of it was kept"), "{stopped}");
    assert_eq!(store.eval("return redis.call('get', KEYS[1])", &["k"], &[]), "'w'");
    assert_eq!(store.eval(LIBRARY, &[], &["nosuch"]), "-ERR Function not found");
    assert_eq!(store.eval(LIBRARY, &[], &[]), "-ERR Function not found");
}

#[test]
fn functions_cannot_access_the_table_that_registered_them() {
    for (function, error) in [
        (
            "late",
            "-ERR redis.register_function can only be called on FUNCTION LOAD command script: late, on @user_function:17.",
        ),
        (
            "outside",
            "-ERR user_function:18: Script attempted to access nonexistent global variable 'KEYS' script: outside, on \
             @user_function:18.",
        ),
        (
            "change",
            "-ERR user_function:19: Attempt to modify a readonly table script: change, on @user_function:19.",
        ),
    ] {
        assert_eq!(Store::new().eval(LIBRARY, &[], &[function]), error);
    }
}

/// The errors are those of redis-server 7.0.15.
#[test]
fn a_library_that_fails_is_refused_as_in_redis() {
    let registering = |what: &str| format!("ERR Error registering functions: ERR {what}");
    let nonexistent = |name: &str| {
        registering(&format!(
            "user_function:2: Script attempted to access nonexistent global variable '{name}'"
        ))
    };
    let cases = [
        ("return math.random()", nonexistent("math")),
        ("return redis.call('ping')", nonexistent("call")),
        ("return redis.setresp(3)", nonexistent("setresp")),
        ("getmetatable(_G)", nonexistent("getmetatable")),
        ("error('x')", nonexistent("error")),
        ("a = 1", registering("user_function:2: Attempt to modify a readonly table")),
        ("bad script", "ERR Error compiling function: user_function:2: '=' expected near 'script'".into()),
        ("return 1", "ERR No functions registered".into()),
        ("redis.register_function()", registering("wrong number of arguments to redis.register_function")),
        ("server.register_function()", registering("wrong number of arguments to server.register_function")),
        (
            "redis.register_function('f')",
            registering(
                "calling redis.register_function with a single argument is only applicable to Lua table (representing named \
                 arguments).",
            ),
        ),
        (
            "redis.register_function(nil, redis.log)",
            registering("first argument to redis.register_function must be a string"),
        ),
        (
            "redis.register_function('f', 1)",
            registering("second argument to redis.register_function must be a function"),
        ),
        (
            "redis.register_function('f-g', redis.log)",
            registering(
                "Library names can only contain letters, numbers, or underscores(_) and must be at least one character long",
            )
            .replace("ERR ERR", "ERR"),
        ),
        (
            "redis.register_function('f', redis.log) redis.register_function('F', redis.log)",
            registering("Function already exists in the library"),
        ),
        (
            "redis.register_function{callback = redis.log}",
            registering("redis.register_function must get a function name argument"),
        ),
        (
            "redis.register_function{function_name = 'f'}",
            registering("redis.register_function must get a callback argument"),
        ),
        (
            "redis.register_function{function_name = 'f', callback = redis.log, flags = {'no-write'}}",
            registering("unknown flag given"),
        ),
        (
            "redis.register_function{function_name = 'f', callback = redis.log, foo = 1}",
            registering("unknown argument given to redis.register_function"),
        ),
    ];
    for (body, error) in cases {
        let refused = check_library(format!("#!lua name=l\n{body}").as_bytes()).unwrap_err();
        assert_eq!(String::from_utf8_lossy(&refused), error, "{body}");
    }
    let refused = check_library(b"#!lua name=l\nwhile true do end").unwrap_err();
    let timeout = registering("FUNCTION LOAD timeout");
    assert!(String::from_utf8_lossy(&refused).starts_with(&timeout), "it may be compared with a pattern");
    let refused = check_library(b"#!lua name=l\nlocal a = 'x' while true do a = a .. a end").unwrap_err();
    assert!(String::from_utf8_lossy(&refused).contains("allocated more than"));
}

#[test]
fn the_functions_that_a_library_registers_are_returned() {
    let text = "#!lua name=lib
        redis.register_function('one', redis.log)
        redis.register_function{function_name = 'two', callback = redis.log, description = 'd',
            flags = {'allow-oom', 'no-writes', 'no-writes'}}";
    let (name, library) = check_library(text.as_bytes()).unwrap();
    assert_eq!(name, "lib");
    assert_eq!(library.text.bytes(), text.as_bytes());
    let [one, two] = &*library.functions else { panic!("there are two functions") };
    assert_eq!((&*one.name, &one.description, &*one.flags), ("one", &None, &[][..]));
    let flags: Vec<&str> = two.flags.iter().map(|flag| flag.name()).collect();
    assert_eq!((&*two.name, flags), ("two", vec!["no-writes", "allow-oom"]));
    assert_eq!(two.description.as_ref().map(|text| text.bytes()), Some(b"d".to_vec()));
}

/// What a library registers is the same when it is loaded and when a record calls it.
#[test]
fn a_library_is_checked_by_the_rules_of_its_calls() {
    let text = "#!lua name=l
        redis.register_function(redis.REDIS_VERSION_NUM < 0x080000 and 'of_7' or 'of_8', function() return 1 end)";
    for (by_second_rules, name) in [(false, "of_7"), (true, "of_8")] {
        let (_, library) = super::check_library(text.as_bytes(), &mut 1_000_000, by_second_rules).unwrap();
        assert_eq!(library.functions[0].name, name);
        let called = Store { by_second_rules, ..Store::new() }.eval(text, &[], &[name]);
        assert_eq!(called, "1");
    }
}

fn check_library(text: &[u8]) -> Result<(String, cluster::libraries::Library), Vec<u8>> {
    super::check_library(text, &mut u64::from(kv::limits::SCRIPT_COST_DEFAULT), true)
}
