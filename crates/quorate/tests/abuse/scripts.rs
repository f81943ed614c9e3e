//! Scripts designed to crash a node or keep it busy.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::bounded::{Cluster, rounds};
use crate::support::{Client, request, until};

/// Each of these crashed a node, stopped it for seconds or longer, or did so in another system.
fn attacks() -> Vec<String> {
    let locals: String = (0..190).map(|number| format!("local v{number} ")).collect();
    let behind = format!("return function() {locals}").repeat(60);
    let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
    let mut texts: Vec<String> = [
        "return {unpack({1,2,3},-2147483646,2)}",
        "return {unpack({1,2,3},-2147483648,2147483647)}",
        "for i=1,480000 do tostring(i) end",
        "local t = {1, 2} table.insert(t, -2147483648, 3)",
        "getmetatable('').__index = function() end",
        "return bit.tohex(-2147483648, -2147483648)",
        "local s = ('x'):rep(8000000) while true do local a = s < s end",
        "local s = ('0'):rep(8000000) .. '1' while true do local x = s + 1 end",
        "local s = ('x'):rep(4000000) while true do local a = s .. s end",
        "local p = ('x'):rep(4000) local t = {} for i = 1, 900 do t[i] = p .. i + 1000 .. p end
         while true do local s = p .. 1001 .. p end",
        "local t = {} for i = 1, 3000 do t[i * 2 ^ 32 + 2 ^ 52] = i end while true do local x = t[2 ^ 32 + 2 ^ 52] end",
        "local t = {} for i = 1, 100000 do t['k' .. i] = i end for i = 1, 99999 do t['k' .. i] = nil end
         while true do next(t) end",
        "while true do pcall(string.rep) end",
        "while true do pcall(pcall, error, {}) end",
        "local function f() return (pcall(f)) end return f()",
        "local function f() return (string.gsub('x', 'x', f)) end return f()",
        "return string.find(string.rep('a', 3000), string.rep('a*', 30) .. 'b')",
        "local t = {'x'} for i = 1, 40 do t = {t, t} end return t",
        "local t while true do t = {t} end",
        "while true do redis.call('setrange', KEYS[1], 1000000, 'x') end",
        "while true do redis.call('get', KEYS[1]) end",
        "\u{1b}LuaQ\0\u{1}\u{4}\u{8}\u{4}\u{8}\0",
    ]
    .map(str::to_string)
    .to_vec();
    texts.push(format!("{behind}{}{}", "a=a ".repeat(150_000), "end ".repeat(60)));
    texts.push(format!("while a do {} end", "if a then break end ".repeat(40_000)));
    texts.push(format!("return [{}[", "=".repeat(1_000_000)));
    texts.push(format!("return cjson.encode(cjson.decode('{deep}'))"));
    texts
}

fn eval(client: &mut Client, text: &str) -> String {
    loop {
        client.send(request(&[b"EVAL", text.as_bytes(), b"1", b"abuse:scripts"]));
        let answer = client.line();
        // On a busy machine the leader may change during the test.
        if !["-NOLEADER", "-UNKNOWN", "-LOST", "-NOQUORUM", "-TRYAGAIN", "-CLUSTERDOWN"]
            .iter()
            .any(|code| answer.starts_with(code))
        {
            return answer;
        }
    }
}

/// Other clients are served while such scripts arrive from every node, one after the other; after a restart the nodes
/// execute all of them again.
#[test]
fn hostile_scripts_neither_crash_nor_stall_a_node() {
    let mut cluster = Cluster::start(3, "");
    let is_over = AtomicBool::new(false);
    let worst = std::thread::scope(|scope| {
        let cluster = &cluster;
        let is_over = &is_over;
        let beside = scope.spawn(move || {
            let mut client = cluster.client(2);
            let mut worst = Duration::ZERO;
            while !is_over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                // On a busy machine the leader may change during the test.
                until("another client is served", || client.ask("SET abuse:beside value") == "+OK");
                worst = worst.max(begun.elapsed());
                std::thread::sleep(Duration::from_millis(5));
            }
            worst
        });
        for round in 0..rounds(1, 20) {
            for (index, text) in attacks().iter().enumerate() {
                let mut client = cluster.client((index + round) as u16 % 3 + 1);
                let begun = Instant::now();
                let answer = eval(&mut client, text);
                let shown: String = text.chars().take(60).collect();
                println!("{:?} {shown}: {}", begun.elapsed(), &answer[..100.min(answer.len())]);
                assert!(!answer.is_empty() && begun.elapsed() < Duration::from_secs(20), "{shown}: {answer}");
            }
        }
        is_over.store(true, Ordering::Relaxed);
        beside.join().unwrap()
    });
    println!("the slowest SET beside took {worst:?}");
    // It takes 0.1 s on an idle machine; one script alone used to take 100 s.
    assert!(worst < Duration::from_secs(10), "{worst:?}");
    cluster.assert_serves();
    for id in 1..=3 {
        cluster.kill(id);
    }
    let begun = Instant::now();
    (1..=3).for_each(|id| cluster.restart(id));
    (1..=3).for_each(|id| cluster.wait_until_ready(id));
    println!("ready again after {:?}", begun.elapsed());
    cluster.assert_takes_writes();
}

/// A keyspace sets what its scripts may cost, and can change that at any time; all replicas use the same limits.
#[test]
fn the_cost_limit_of_scripts_is_a_setting_of_the_keyspace() {
    let mut cluster = Cluster::start(3, "");
    let mut client = cluster.client(1);
    let text = "for i = 1, 300000 do end redis.call('incr', KEYS[1]) return 'done'";
    assert_eq!(eval(&mut client, text), "$4");
    assert_eq!(client.line(), "done");
    let mut set = |setting: &[u8]| {
        client.send(request(&[b"KEYSPACE", b"SET", b"", setting]));
        client.line()
    };
    let refusal = set(b"script_cost_max=1000");
    assert!(refusal.contains("is not between 50000 and 10000000"), "{refusal}");
    assert_eq!(set(b"script_cost_max=60000"), "+OK");
    until("the setting holds", || {
        eval(&mut client, text).contains("it cost more than 60000 units") || {
            client.line();
            false
        }
    });
    for id in 1..=3 {
        cluster.kill(id);
    }
    (1..=3).for_each(|id| cluster.restart(id));
    (1..=3).for_each(|id| cluster.wait_until_ready(id));
    // As many on every node as were executed in time.
    let counts: Vec<String> = (1..=3)
        .map(|id| {
            let mut client = cluster.client(id);
            client.send(request(&[b"GET", b"abuse:scripts"]));
            client.line();
            client.line()
        })
        .collect();
    assert!(counts.iter().all(|count| *count == counts[0] && *count != "0"), "{counts:?}");
    cluster.assert_serves();
}
