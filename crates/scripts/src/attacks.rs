//! Known faults of Lua 5.1 and of other sandboxes for it: these tests show that none of them exists here.
//! `vendor/lua-src/README.md` has the list, with these tests' names.

use super::tests::{Store, eval};

#[test]
fn cve_2025_46817_a_range_of_unpack_does_not_overflow() {
    for range in
        ["-2147483646,2", "-2147483648,2147483647", "-2147483648,-1", "0,2147483647", "1,1e9", "1,8001"]
    {
        let error = eval(&format!("return {{unpack({{1,2,3}},{range})}}"));
        assert!(error.contains("too many results to unpack"), "{range}: {error}");
    }
    assert_eq!(eval("return {unpack({1,2,3})}"), "[1 2 3]");
    assert_eq!(eval("return {unpack({1,2,3}, 2147483647, -2147483648)}"), "[]");
    assert_eq!(eval("return #{unpack({7}, 2147483646, 2147483647)}"), "0");
    assert_eq!(eval("local t = {} for i = 1, 7000 do t[i] = i end return select('#', unpack(t))"), "7000");
}

#[test]
fn cve_2025_46818_metatables_of_basic_types_cannot_be_changed() {
    const REFUSED: &str = "Attempt to modify a readonly table";
    for change in [
        "getmetatable('').__index = function() return 'mine' end",
        "getmetatable('').__add = function() return 'mine' end",
        "rawset(getmetatable(''), '__index', {})",
        "table.insert(getmetatable(''), 1)",
    ] {
        let error = eval(change);
        assert!(error.contains(REFUSED), "{change}: {error}");
    }
    assert!(eval("setmetatable(getmetatable(''), {})").contains("Attempt to modify a readonly table"));
    for change in [
        "getmetatable(_G).__index = {}",
        "setmetatable(getmetatable(_G), {})",
        "rawset(getmetatable(_G), 1, 1)",
    ] {
        assert!(eval(change).contains("Attempt to modify a readonly table"), "{change}");
    }
    // No other basic type has a metatable.
    assert_eq!(
        eval(
            "return {type(getmetatable(1)), type(getmetatable(nil)), type(getmetatable(true)), type(getmetatable(type))}"
        ),
        "['nil' 'nil' 'nil' 'nil']"
    );
}

#[test]
fn cve_2022_24735_nothing_that_a_script_finds_can_be_changed() {
    for name in ["_G", "string", "redis", "server", "table", "math", "bit", "cjson", "cmsgpack", "struct"] {
        for change in [
            format!("{name}.mine = 1"),
            format!("rawset({name}, 'mine', 1)"),
            format!("table.insert({name}, 1)"),
            format!("table.sort({name})"),
            format!("table.remove({name})"),
        ] {
            let error = eval(&change);
            assert!(error.contains("Attempt to modify a readonly table"), "{change}: {error}");
        }
        let error = eval(&format!("setmetatable({name}, {{}})"));
        assert!(error.contains("Attempt to modify a readonly table"), "{name}: {error}");
        // That of `_G` is a table of its own, in which nothing can be changed either.
        let shown = if name == "_G" { "'table'" } else { "'boolean'" };
        assert_eq!(eval(&format!("return type(getmetatable({name}))")), shown);
    }
    // The same for names that exist already.
    for change in [
        "redis.call = 1",
        "redis.sha1hex('x') redis.sha1hex = 1",
        "('x'):find('x') string.find = 1",
        "table.concat = 1",
        "math.random = 1",
        "cjson.encode = 1",
        "cmsgpack.pack = 1",
        "struct.pack = 1",
        "redis.log = 1 redis.log = 2",
        "bit.band = 1",
        "_G.redis = 1",
        "redis = 1",
        "pcall = 1",
        "KEYS = 1",
        "rawset(string, 'find', 1)",
        "function tostring() end",
    ] {
        let error = eval(change);
        assert!(error.contains("Attempt to modify a readonly table"), "{change}: {error}");
    }
}

#[test]
fn cve_2025_46819_long_brackets_with_any_number_of_signs_are_read() {
    for signs in [0, 1, 1000, 500_000] {
        let signs = "=".repeat(signs);
        assert_eq!(eval(&format!("return [{signs}[text]{signs}]")), "'text'");
        assert_eq!(eval(&format!("--[{signs}[ no text\n ]{signs}] return 1")), "1");
        for unfinished in [
            format!("return [{signs}[text"),
            format!("--[{signs}[ text"),
            format!("return [{signs}[]={signs}"),
        ] {
            let error = eval(&unfinished);
            assert!(error.starts_with("-ERR Error compiling script"), "{}", &error[..200.min(error.len())]);
        }
    }
    assert!(eval(&format!("return [{}x", "=".repeat(1000))).contains("invalid long string delimiter"));
}

#[test]
fn cve_2025_49844_a_program_with_much_to_allocate_keeps_its_name() {
    let text: String = (0..2000)
        .map(|number| format!("local function f{}() return 'text {number}' end ", number % 100))
        .collect();
    let text = format!("do {} end error('said')", text.replace("end local", "end end do local"));
    let error = eval(&text);
    assert!(error.starts_with("-ERR user_script:1: said"), "{}", &error[..200.min(error.len())]);
    let broken = eval(&format!("{text} ="));
    assert!(
        broken.contains("user_script:1: unexpected symbol near '='"),
        "{}",
        &broken[..200.min(broken.len())]
    );
}

#[test]
fn cve_2024_31449_the_least_integer_has_digits_too() {
    for (digits, text) in [
        ("-2147483648", "'00000000'"),
        ("2147483648", "'00000000'"),
        ("-8", "'00000000'"),
        ("8", "'00000000'"),
        ("0", "''"),
        ("1e300", "'0000000"),
    ] {
        let answer = eval(&format!("return bit.tohex(0, {digits})"));
        assert!(answer.starts_with(text) || digits == "1e300", "{digits}: {answer}");
    }
    assert_eq!(eval("return bit.tohex(-2147483648, -2147483648)"), "'80000000'");
    assert_eq!(eval("return bit.tohex(65535, -2147483648)"), "'0000FFFF'");
}

#[test]
fn cve_2015_4335_compiled_programs_are_not_loaded() {
    for text in [&b"\x1bLua"[..], b"\x1bLuaQ\0\x01\x04\x08\x04\x08\0", b"#!lua\n\x1bLuaQ"] {
        assert!(super::check(text).is_err());
    }
    // The interpreter itself does not load them either.
    let lua = mlua::Lua::new();
    let error =
        lua.load(&b"\x1bLuaQ\0"[..]).set_mode(mlua::chunk::ChunkMode::Binary).into_function().unwrap_err();
    assert!(error.to_string().contains("compiled programs are not allowed"), "{error}");
    assert_eq!(eval("return type(rawget(_G, 'load')) .. type(string.dump)"), "'nilnil'");
}

#[test]
fn cve_2025_67733_a_reply_is_one_reply_whatever_its_error_holds() {
    let mut store = Store::new();
    // `eval` checks that there is exactly one reply.
    for text in [
        "return redis.error_reply('ERR a\\r\\n+b\\0\\r\\n:1')",
        "return {err = 'ERR a\\r\\n\\0\\n$1\\r\\nx'}",
        "return {ok = 'a\\r\\n\\0-ERR b'}",
        "return redis.status_reply('a\\r\\n\\0-ERR b')",
        "error('a\\r\\n-b\\0')",
        "error({err = 'a\\r\\n-b\\0'})",
        "return redis.pcall('a\\r\\n\\0b')",
        "redis.call('a\\r\\n\\0b')",
    ] {
        let reply = store.eval(text, &[], &[]);
        assert!(!reply.contains(['\r', '\n']), "{text}: {reply:?}");
    }
}

#[test]
fn cve_2014_5461_a_function_of_many_parameters_called_with_few_arguments() {
    let parameters: Vec<String> = (0..190).map(|number| format!("p{number}")).collect();
    let parameters = parameters.join(",");
    let text = format!(
        "local function f({parameters}, ...) return p189 == nil, select('#', ...) end
         local function deep(n, ...) if n == 0 then return f(...) end return (f()) and deep(n - 1, n, ...) end
         local ok, more = f() local t = {{}} for i = 1, 300 do t[i] = i end
         local late, rest = f(unpack(t)) return {{tostring(ok), more, tostring(late), rest, tostring(deep(150))}}"
    );
    assert_eq!(eval(&text), "['true' 0 'false' 110 'true']");
}

#[test]
fn cve_2024_46981_no_script_makes_the_collector_run() {
    let lua = mlua::Lua::new();
    let before = lua.used_memory();
    lua.load("for i = 1, 100000 do local t = {i} end").exec().unwrap();
    assert!(lua.used_memory() - before > 100_000 * 64, "nothing is given back before the state is gone");
    for name in ["collectgarbage", "newproxy", "gcinfo"] {
        assert!(eval(&format!("{name}()")).contains("nonexistent global variable"), "{name}");
    }
    // In Lua 5.1 a table's `__gc` is not a finalizer.
    assert_eq!(eval("local t = setmetatable({}, {__gc = function() error('x') end}) t = nil return 1"), "1");
}

#[test]
fn cve_2018_11218_packed_messages_nested_without_end_do_not_overflow_a_stack() {
    for (tag, kind) in [("\\145", "array"), ("\\129\\1", "hash")] {
        for depth in [1001, 100_000] {
            let error = eval(&format!("return cmsgpack.unpack(('{tag}'):rep({depth}) .. '\\1')"));
            assert!(
                error.contains(&format!("stack overflow (in function mp_decode_to_lua_{kind})")),
                "{error}"
            );
        }
        let below_calls = format!(
            "local function at(n) if n > 0 then local ok, r = pcall(at, n - 1) return r end
             return type(cmsgpack.unpack(('{tag}'):rep(1000) .. '\\1')) end return at(150)"
        );
        let reply = eval(&below_calls);
        assert!(reply == "'table'" || reply.contains("stack overflow"), "{reply}");
    }
    assert_eq!(
        eval("local t = {} t[1] = t return #cmsgpack.pack(t)"),
        "17",
        "a table in itself is cut off, as in Redis"
    );
    for text in ["\\221\\255\\255\\255\\255", "\\223\\255\\255\\255\\255\\1\\1", "\\219\\255\\255\\255\\255x"]
    {
        let error = eval(&format!("return cmsgpack.unpack('{text}')"));
        assert!(error.contains("Missing bytes in input."), "{text}: {error}");
    }
}

#[test]
fn cve_2018_11219_cve_2020_14147_cve_2015_8080_numbers_in_formats_do_not_overflow() {
    for number in ["2147483648", "4294967296", "99999999999999999999999999"] {
        for letter in ["i", "I", "c", "!"] {
            for call in ["struct.pack('$', 1)", "struct.unpack('$', 'abc')", "struct.size('$')"] {
                let error = eval(&format!("return {}", call.replace('$', &format!("{letter}{number}"))));
                assert!(error.contains("integral size overflow"), "{letter}{number}: {error}");
            }
        }
    }
    assert!(eval("return struct.pack('i2147483647', 1)").contains("larger than limit of 32"));
    assert!(eval("return struct.unpack('!1073741824c2147483647', 'abc')").contains("data string too short"));
    // CVE-2022-35977 and the like: places before or after the text.
    for place in
        ["0", "-1", "5", "2147483647", "-2147483648", "9007199254740992", "1e300", "-1e300", "0/0", "1/0"]
    {
        let error = eval(&format!("return struct.unpack('c1', 'abc', {place})"));
        assert!(
            error.contains("data string too short") || error.contains("offset must be 1 or greater"),
            "{place}: {error}"
        );
    }
}

#[test]
fn cve_2021_32626_replies_and_json_nested_to_the_limit_do_not_overflow_a_stack() {
    let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
    let below_calls = format!(
        "local function at(n) if n > 0 then local ok, r = pcall(at, n - 1) return r end
         return #cjson.encode(cjson.decode('{deep}')) end return at(150)"
    );
    let reply = eval(&below_calls);
    assert!(reply == "2000" || reply.contains("stack overflow"), "{reply}");
    assert!(eval(&format!("return cjson.decode('[{deep}]')")).contains("too many nested data structures"));
    let mut many = Store::new();
    for number in [100, 1000, 7900] {
        for call in [
            "redis.pcall('mget', unpack(t))",
            "pcall(redis.call, unpack(t))",
            "pcall(select, '#', unpack(t))",
            "bit.bor(unpack(t))",
            "string.char(unpack(t))",
            "pcall(pcall, pcall, pcall, select, '#', unpack(t))",
            "math.max(unpack(t))",
            "select(-1, unpack(t))",
            "string.format(('%d'):rep(200), unpack(t))",
            "redis.sha1hex(unpack(t))",
            "cjson.encode({unpack(t)})",
            "tostring(unpack(t))",
        ] {
            let text = format!("local t = {{}} for i = 1, {number} do t[i] = i % 100 end return {call}");
            let reply = many.eval(&text, &["k"], &[]);
            assert!(!reply.is_empty(), "{call}");
        }
    }
    let nested = "local t = {} for i = 1, 7000 do t[i] = i end
        local function f(n, ...) if n > 0 then return select('#', pcall(f, n - 1, ...)) end return select('#', ...) end
        return f(190, unpack(t))";
    assert!(!many.eval(nested, &[], &[]).is_empty());
}

#[test]
fn a_program_that_would_take_minutes_to_compile_is_stopped() {
    let locals: String = (0..190).map(|number| format!("local v{number} ")).collect();
    let behind = format!("return function() {locals}").repeat(60);
    for text in [
        format!("{behind}{}{}", "a=a ".repeat(150_000), "end ".repeat(60)),
        format!("while a do {} end", "if a then break end ".repeat(50_000)),
        format!("if a then {}end", "elseif b then a() ".repeat(50_000)),
        format!("return {}1", "a and ".repeat(150_000)),
    ] {
        let error = super::check(text.as_bytes()).unwrap_err();
        let error = String::from_utf8_lossy(&error).into_owned();
        // Some have more jumps than Lua allows.
        assert!(
            error.contains("it cost more than") || error.contains("too long"),
            "{}",
            &error[..200.min(error.len())]
        );
        assert!(eval(&text).starts_with("-ERR"));
    }
    // A long, simple text is accepted.
    assert_eq!(super::check("a = 1 + 2 ".repeat(20_000).as_bytes()), Ok(()));
}

#[test]
fn the_scripts_of_a_transaction_share_what_one_may_cost() {
    use kv::limits::SCRIPT_COST_DEFAULT;
    use kv::{Command, Script, ScriptLimits};
    let limits = ScriptLimits { value_bytes_max: 100, cost_max: SCRIPT_COST_DEFAULT };
    let text = b"for i = 1, 200000 do end return 'done'";
    let mut scratches = vec![Vec::new(); 12];
    let scripts: Vec<Command<'_>> = (scratches.iter_mut())
        .map(|scratch| Command::Script(Script::build(scratch, text, [], 0, limits, true).unwrap()))
        .collect();
    let replies = super::tests::transact(&scripts);
    assert!(replies.starts_with("['done' 'done' "), "{replies}");
    assert!(replies.contains("it cost more than"), "{replies}");
}

#[test]
fn scripts_for_which_a_transaction_has_nothing_left_are_not_begun() {
    use kv::limits::SCRIPT_COST_DEFAULT;
    use kv::{Command, Script, ScriptLimits};
    let limits = ScriptLimits { value_bytes_max: 100, cost_max: SCRIPT_COST_DEFAULT };
    let mut scratch = Vec::new();
    let script = Command::Script(Script::build(&mut scratch, b"return 1", [], 0, limits, true).unwrap());
    let took_us = |count: usize| {
        let begun_us = processor_us();
        let replies = super::tests::transact(&vec![script; count]);
        assert!(replies.contains("it cost more than"), "{count}");
        processor_us() - begun_us
    };
    // Each start costs 2000 of 2,000,000 units, so about a thousand are begun in each case.
    let (few, many) = (took_us(1_200), took_us(12_000));
    assert!(many < 4 * few + 20_000, "{few} us, and {many} us for ten times as many");
}

/// What a script may cost is counted, and the counts follow the time of what it calls.
#[test]
fn a_run_ends_after_about_the_same_time_whatever_it_calls() {
    const VALUES: &str = "
        for i = 1, 7000 do redis.call('rpush', 'list', i) end
        for i = 1, 500 do
            redis.call('sadd', 'set', i) redis.call('sadd', 'other', i + 250)
            redis.call('zadd', 'sorted', i, i) redis.call('zadd', 'ranked', i, i + 250)
            redis.call('geoadd', 'places', i / 10, i / 10, i)
            redis.call('pfadd', 'sketch', i)
        end
        redis.call('set', 'short', string.rep('x', 500)) redis.call('set', 'short2', string.rep('y', 500))
        redis.call('set', 'long', string.rep('x', 1000000)) redis.call('set', 'float', '1e300')";
    let keys = [
        "list", "set", "other", "sorted", "ranked", "places", "sketch", "short", "short2", "long", "float",
        "to",
    ];
    let took_us = |call: &str| {
        let mut store = super::tests::Store::new();
        for part in VALUES.split_inclusive("end\n") {
            let filled = store.eval(part, &keys, &[]);
            assert_eq!(filled, "nil", "{part}");
        }
        let begun_us = processor_us();
        let answer = store.eval(&format!("while true do redis.call({call}) end"), &keys, &[]);
        assert!(answer.contains("it cost more than"), "{call}: {answer}");
        processor_us() - begun_us
    };
    for call in [
        "'lpos', 'list', 'none'",
        "'linsert', 'list', 'before', '7000', 'x'",
        "'incrbyfloat', 'float', '-1e-16'",
        "'setrange', 'long', 5, 'y'",
        "'zunionstore', 'to', 2, 'sorted', 'ranked'",
        "'geosearchstore', 'to', 'places', 'fromlonlat', 20, 20, 'byradius', 20000, 'km'",
        "'sdiff', 'set', 'other'",
        "'pfmerge', 'to', 'sketch'",
        "'zrangestore', 'to', 'sorted', 0, -1",
        "'lcs', 'short', 'short2'",
        "'sort', 'set'",
        "'zadd', 'sorted', 1, 7",
        "'hset', 'to', 'f', 'v'",
        "'xadd', 'to', '*', 'f', 'v'",
        "'restore', 'to', 0, redis.call('dump', 'sorted'), 'replace'",
    ] {
        // One after the other, so that what disturbs one run is likely to disturb both.
        let runs = (0..3).map(|_| (took_us(call), took_us("'get', 'short'")));
        let times: Vec<(i64, i64)> = runs.collect();
        let is_usual = times.iter().any(|(long_us, usual_us)| *long_us < 5 * usual_us);
        assert!(is_usual, "{call}, in microseconds, beside GET: {times:?}");
    }
}

/// Time that this thread has had a processor, in microseconds.
fn processor_us() -> i64 {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000 + time.tv_nsec / 1_000
}

#[test]
fn numbers_at_the_ends_of_their_ranges_do_no_harm() {
    const NUMBERS: [&str; 12] = [
        "0",
        "-1",
        "1",
        "2147483647",
        "-2147483648",
        "2147483648",
        "-2147483649",
        "4294967296",
        "1e300",
        "-1e300",
        "0/0",
        "1/0",
    ];
    for call in [
        "string.sub('abc', $, $)",
        "string.byte('abc', $, $)",
        "string.rep('', $)",
        "pcall(string.rep, 'ab', $)",
        "string.format('%d%5.3f%x', $, $, 3)",
        "string.format('%c', $)",
        "string.char($)",
        "select($, 1, 2, 3)",
        "table.concat({1, 2, 3}, ',', $, $)",
        "table.insert({1, 2}, $, 7)",
        "table.remove({1, 2}, $)",
        "unpack({1, 2}, $, $)",
        "tonumber('11', $)",
        "('abc'):find('b', $)",
        "('abc'):gsub('b', 'x', $)",
        "math.random($, $)",
        "math.ldexp($, $)",
        "math.fmod($, $)",
        "bit.lshift($, $)",
        "error('x', $)",
        "next({1, 2}, $)",
        "rawget({1, 2}, $)",
        "rawset({1, 2}, $, $)",
        "rawset({}, $ * 2, $)",
        "('x'):rep($)",
        "math.randomseed($)",
        "bit.tohex($, $)",
        "tostring($)",
        "cjson.encode({$})",
        "redis.call('ping', $)",
        "redis.call('setrange', KEYS[1], $, 'x')",
        "redis.log($, 'x')",
        "redis.setresp($)",
        "redis.set_repl($)",
        "struct.pack('bBhHlLTfdiIi16', $, $, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)",
        "struct.unpack('dc0', struct.pack('d', $) .. 'abc', 1)",
        "struct.unpack('i3', 'abcdef', $)",
        "cmsgpack.unpack_limit('\\1\\2\\3', $, $)",
        "cmsgpack.unpack(cmsgpack.pack($, $))",
        "cjson.encode_sparse_array(nil, $, $)",
        "cjson.encode_max_depth($)",
        "cjson.encode_number_precision($)",
        "redis.call('getrange', KEYS[1], $, $)",
    ] {
        for first in NUMBERS {
            for second in NUMBERS {
                let text = format!(
                    "return {{pcall(function() return {} end)}}",
                    call.replacen('$', first, 1).replace('$', second)
                );
                assert!(!Store::new().eval(&text, &["k"], &[]).is_empty(), "{text}");
                if !call[call.find('$').unwrap() + 1..].contains('$') {
                    break;
                }
            }
        }
    }
}
