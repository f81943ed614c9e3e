//! How long a unit of cost takes: what a script's limit comes to in time, and which scripts take the longest for it.
//!
//! `cargo run --release -p quorate-scripts --example script_costs` measures scripts that do one thing over and over, each until
//! it has spent a budget, and typical scripts of lock libraries; with a number of seconds it then looks for programs that are
//! worse, by changing those that were the worst so far.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    dead_code,
    missing_docs
)]

#[path = "../tests/scripts/bodies.rs"]
mod bodies;

use kv::limits::SCRIPT_COST_DEFAULT;
use kv::table::Access;
use kv::{Interpreter, ReplyBuffer, Script};
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time that this thread has had a processor.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Notes what the last run has cost.
#[derive(Debug)]
struct Measuring {
    cost: AtomicU64,
}

static MEASURING: Measuring = Measuring { cost: AtomicU64::new(0) };

impl Interpreter for Measuring {
    fn run(&self, script: &Script<'_>, access: &mut Access<'_>, out: &mut ReplyBuffer) {
        let before = access.cost_left();
        scripts::LUA.run(script, access, out);
        self.cost.store(before - access.cost_left(), Ordering::Relaxed);
    }
}

/// Time and cost of one run.
fn measure(text: &str) -> (Duration, u64) {
    let begun = processor_time();
    let outcome = bodies::run(text.as_bytes(), SCRIPT_COST_DEFAULT, &MEASURING);
    let took = processor_time() - begun;
    assert!(!outcome.reply.is_empty());
    (took, MEASURING.cost.load(Ordering::Relaxed).max(1))
}

fn nanoseconds_per_unit((took, cost): (Duration, u64)) -> f64 {
    took.as_nanos() as f64 / cost as f64
}

/// The least of three, since others use this machine too.
fn best(text: &str) -> (Duration, u64) {
    (0..3).map(|_| measure(text)).min_by_key(|(took, _)| *took).unwrap()
}

/// What is done before, and what is done without end.
const BLOCKS: [(&str, &str); 84] = [
    ("", ""),
    ("local a = 1", "a = a + 1"),
    ("local t = {}", "t.x = 1"),
    (
        "local t, i = {}, 0 for j = 1, 400000 do t[j] = j end",
        "i = (i * 16807) % 2147483647 local x = t[i % 400000]",
    ),
    (
        "local t, i = {}, 0 for j = 1, 60000 do t['k' .. j] = j end",
        "i = (i * 16807) % 60000 local x = t['k' .. i]",
    ),
    ("local t, i = {}, 0.5", "i = i + 1 t[i] = i"),
    ("local t, i = {}, 0", "i = i + 1 t[i] = i"),
    ("local t, i = {}, 0", "i = i + 1 t['x' .. i] = true"),
    ("", "tostring(0.1)"),
    ("local i = 0", "i = i + 1 tostring(i)"),
    ("local i = 0", "i = i + 0.1 tostring(i)"),
    ("local i = 0", "i = i + 1 local s = 'a' .. i"),
    ("", "local t = {}"),
    ("", "local t = {1, 2, 3, 4, 5, 6, 7, 8}"),
    ("", "local t = {a = 1, b = 2, c = 3}"),
    ("", "local f = function() end"),
    ("local x, y, z = 1, 2, 3", "local f = function() return x + y + z end"),
    ("local f = function() end", "f()"),
    ("local f = function(...) return ... end", "f(1, 2, 3, 4, 5)"),
    ("local t = {} for i = 1, 7000 do t[i] = i end local f = function(...) end", "f(unpack(t))"),
    ("local t = {} for i = 1, 7000 do t[i] = i end", "local u = {unpack(t)}"),
    ("local t = {} for i = 1, 7000 do t[i] = i end", "select(-1, unpack(t))"),
    ("local t = {} for i = 1, 7000 do t[i] = i % 100 end", "string.char(unpack(t))"),
    ("local t = {} for i = 1, 250 do t[i] = i end", "math.max(unpack(t))"),
    ("local s = ('x'):rep(8000000)", "local a = s < s"),
    ("local s = ('x'):rep(4000000) local r = s .. 'a'", "local a = s < r"),
    ("local s = ('x'):rep(2000000)", "local a = s .. s"),
    ("local s = ('x'):rep(3000000)", "s:upper()"),
    ("local s = ('x'):rep(3000000)", "s:reverse()"),
    ("local s = ('x'):rep(3000000)", "s:sub(2, -2)"),
    ("local s = ('x'):rep(3000000)", "s:find('y', 1, true)"),
    ("local s = ('x'):rep(30000)", "s:find('y')"),
    ("local s = ('x'):rep(30000)", "s:find('[a-w]y')"),
    ("local s = ('xy'):rep(15000)", "s:find('(x)(y)$z')"),
    ("local s = ('x'):rep(3000)", "s:find('.-y')"),
    ("local s = ('x'):rep(300)", "s:find('x*x*x*y')"),
    ("local s = ('('):rep(3000)", "s:find('%b()')"),
    ("local s = ('abc '):rep(100)", "s:gsub('%w+', 'y')"),
    ("local s = ('abc '):rep(100)", "s:gsub('%w+', string.upper)"),
    ("local s = ('a'):rep(1000)", "s:gsub('a', '%0%0')"),
    ("local s = ('a,'):rep(100)", "for w in s:gmatch('a') do end"),
    ("", "string.find('abc', 'b')"),
    ("", "string.match('key=value', '(%w+)=(%w+)')"),
    ("", "('x'):byte()"),
    ("", "('%d'):format(7)"),
    ("", "('%99.99f'):format(1e300)"),
    ("", "('%.99e'):format(5e-324)"),
    ("", "('%.14g'):format(5e-324)"),
    ("", "('%s %s'):format('a', 'b')"),
    ("local s = ('\"'):rep(100000)", "('%q'):format(s)"),
    ("", "tonumber('123456789')"),
    ("local s = ('1'):rep(800) .. 'e-300'", "tonumber(s)"),
    ("local s = ('0'):rep(1000000) .. '1'", "local x = s + 1"),
    ("local s = '0.' .. ('123456789'):rep(90)", "local x = s + 1"),
    ("", "local x = 2.5 ^ 0.37"),
    ("", "local x = 1e300 % 1e-300"),
    ("", "math.fmod(1e308, 3e-308)"),
    ("", "math.floor(2.5)"),
    ("", "math.random(100)"),
    ("", "bit.bxor(1, 2)"),
    ("", "bit.tohex(1)"),
    ("", "redis.sha1hex('x')"),
    ("local s = ('x'):rep(1000000)", "redis.sha1hex(s)"),
    ("", "pcall(type, 1)"),
    ("", "pcall(error, 'x')"),
    ("", "pcall(error)"),
    ("", "pcall(string.rep)"),
    ("", "pcall(redis.call, 'nosuch')"),
    ("local function f(n) if n == 0 then error('x') end f(n - 1) end", "pcall(f, 150)"),
    ("", "redis.call('get', KEYS[1])"),
    ("", "redis.call('set', KEYS[1], 'v')"),
    ("", "redis.call('incr', KEYS[1])"),
    ("redis.call('set', KEYS[1], ('x'):rep(1000000))", "redis.call('setrange', KEYS[1], 5, 'y')"),
    ("redis.call('set', KEYS[1], ('x'):rep(1000000))", "redis.call('append', KEYS[1], '')"),
    (
        "for i = 1, 3000 do redis.call('hset', KEYS[1], 'field' .. i, 'v') end",
        "redis.call('hset', KEYS[1], 'field7', 'vv')",
    ),
    (
        "for i = 1, 300 do redis.call('hset', KEYS[1], 'field' .. i, 'v') end",
        "redis.call('hgetall', KEYS[1])",
    ),
    ("", "redis.call('publish', 'c', 'm')"),
    ("", "cjson.encode({1, 2, {a = 'b'}})"),
    ("", "cjson.decode('[1, 2, {\"a\": \"b\"}]')"),
    ("local t = {} for i = 1, 1000 do t[i] = 0.1 * i end", "table.sort(t)"),
    ("local t = {} for i = 1, 1000 do t[i] = 'x' .. i end", "table.sort(t, function(a, b) return a < b end)"),
    ("local t = {} for i = 1, 1000 do t[i] = i end", "table.concat(t, ',')"),
    ("local t = {} for i = 1, 10000 do t[i] = i end", "table.insert(t, 1, 1) table.remove(t, 1)"),
    ("local t = {} for i = 1, 1000 do t['x' .. i] = i end", "for k, v in pairs(t) do end"),
];

/// Whole scripts that do not fit into a loop.
fn others() -> Vec<(&'static str, String)> {
    let many = |piece: &str, count: usize| piece.repeat(count);
    let nested = |depth: usize| {
        let locals: String = (0..190).map(|number| format!("local v{number} ")).collect();
        format!(
            "{}{}{}",
            format!("return function() {locals}").repeat(depth),
            many("a=a ", 40_000),
            "end ".repeat(depth)
        )
    };
    vec![
        ("a long program", many("local a = 1 do local b = a + 1 end ", 180).repeat(5).replace("local a", "a = 1 a")),
        ("many names behind many variables", nested(60)),
        ("many breaks", format!("while a do {} end", many("if a then break end ", 30_000))),
        ("many elseifs", format!("if a then {} end", many("elseif b then a() ", 20_000))),
        ("many ands", format!("return {} 1", many("a and ", 50_000))),
        ("many constants", (0..40_000).map(|n| format!("a={n}.5 ")).collect()),
        ("many texts", (0..40_000).map(|n| format!("a='{n}' ")).collect()),
        ("many functions", many("a=function() end ", 20_000)),
        ("errors in a long function", format!("local x while true do pcall(function() if false then {} end x() end) end", many("a() ", 15_000))),
        ("errors of many variables", format!("local x while true do pcall(function() {} x() end) end", many("do local a end ", 8_000))),
        ("texts of one hash", "local p = ('x'):rep(8000) local t = {} for i = 1, 900 do t[i] = p:sub(1, 4000) .. i + 1000 .. p:sub(1, 4000) end local a, b = p:sub(1, 4000), p:sub(1, 4000) while true do local s = a .. 1001 .. b end".into()),
        ("numbers of one place", "local t = {} for i = 1, 3000 do t[i * 2 ^ 32 + 2 ^ 52] = i end while true do local x = t[2 ^ 32 + 2 ^ 52] end".into()),
        ("a full table whose keys change", "local t = {} for i = 1, 1024 do t['k' .. i] = i end local i = 0 while true do i = i + 1 t['k' .. i] = nil t['k' .. i + 1024] = 1 end".into()),
        ("next of a table that was full", "local t = {} for i = 1, 100000 do t['k' .. i] = i end for i = 1, 99999 do t['k' .. i] = nil end while true do next(t) end".into()),
        ("the length of a table with holes", "local t = {} for i = 1, 200000 do t[i] = i end local j = 262144 while j < 2 ^ 31 do t[j] = 1 j = j * 2 end while true do local n = #t end".into()),
        ("metatables in a row", "local t = {} for i = 1, 90 do t = setmetatable({}, {__index = t}) end while true do local x = t.x end".into()),
        ("the command that stopped nodes", "for i=1,480000 do tostring(i) end".into()),
        ("an answer of many parts", "local t = {'x'} for i = 1, 40 do t = {t, t} end return t".into()),
        ("all memory in small texts", "local i = 0 while true do i = i + 1 local s = i .. '' end".into()),
        ("all memory in small tables", "local t while true do t = {t} end".into()),
    ]
}

/// Scripts as lock libraries send them.
const TYPICAL: [(&str, &str); 4] = [
    (
        "release",
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
    ),
    ("acquire", "if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', 10000) then return 1 else return 0 end"),
    (
        "extend",
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], 10000) else return 0 end",
    ),
    (
        "reentrant",
        "if (redis.call('exists', KEYS[1]) == 0) then redis.call('hset', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; if (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; return redis.call('pttl', KEYS[1]);",
    ),
];

fn main() {
    for (name, text) in TYPICAL {
        const RUNS: u32 = 5000;
        let begun = processor_time();
        for _ in 0..RUNS {
            bodies::run(text.as_bytes(), SCRIPT_COST_DEFAULT, &MEASURING);
        }
        let took = (processor_time() - begun).as_nanos() as f64 / f64::from(RUNS) / 1000.0;
        println!("{took:8.1} us  {:8} units  {name}", MEASURING.cost.load(Ordering::Relaxed));
    }
    let mut measured: Vec<(f64, Duration, u64, String)> = Vec::new();
    let blocks = BLOCKS.iter().map(|(before, block)| {
        (format!("{before} | {block}"), format!("{before} while true do {block} end"))
    });
    let others = others().into_iter().map(|(name, text)| (name.to_string(), text));
    for (name, text) in blocks.chain(others) {
        let run = best(&text);
        measured.push((nanoseconds_per_unit(run), run.0, run.1, name));
    }
    measured.sort_by(|one, other| other.0.total_cmp(&one.0));
    for (ratio, took, cost, name) in &measured {
        println!("{ratio:8.1} ns/unit  {:7.1} ms  {cost:8} units  {name}", took.as_secs_f64() * 1000.0);
    }
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    search(Duration::from_secs(seconds));
}

/// Changes the worst programs so far at random, for so long.
fn search(long: Duration) {
    const KEPT: usize = 20;
    /// Of less the time to begin a run would be the most.
    const COST_LEAST: u64 = 50_000;
    let mut state = 88_172_645_463_325_252_u64;
    let mut draw = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as usize % below
    };
    let mut worst: Vec<(f64, Vec<u8>)> = Vec::new();
    let (begun, mut tried) = (Instant::now(), 0);
    while begun.elapsed() < long {
        let mut bytes: Vec<u8> = match worst.len() {
            0 => Vec::new(),
            kept if draw(3) > 0 => worst[draw(kept)].1.clone(),
            _ => Vec::new(),
        };
        for _ in 0..1 + draw(8) {
            let place = draw(bytes.len() + 1);
            match draw(3) {
                0 if place < bytes.len() => bytes[place] = draw(256) as u8,
                1 if place < bytes.len() => drop(bytes.drain(place..(place + draw(6)).min(bytes.len()))),
                _ => drop(
                    bytes
                        .splice(place..place, (0..1 + draw(12)).map(|_| draw(256) as u8).collect::<Vec<_>>()),
                ),
            }
        }
        tried += 1;
        let text = format!(
            "for i = 1, 200 do {} end",
            bodies::program(&bytes).replace("return {a, b, n, s, t, u}", "")
        );
        let run = measure(&text);
        if run.1 < COST_LEAST
            || worst
                .last()
                .is_some_and(|(ratio, _)| worst.len() >= KEPT && *ratio > nanoseconds_per_unit(run))
        {
            continue;
        }
        let ratio = nanoseconds_per_unit((measure(&text).0.min(run.0), run.1));
        let place = worst.partition_point(|(other, _)| *other > ratio);
        worst.insert(place, (ratio, bytes));
        worst.truncate(KEPT);
    }
    if let Some((ratio, bytes)) = worst.first() {
        println!("{tried} programs tried; the worst takes {ratio:.1} ns/unit:\n{}", bodies::program(bytes));
    }
}
