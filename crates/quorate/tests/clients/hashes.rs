//! Hashes: compared with a real Redis, and on keyspaces of each protocol while nodes come and go.

use std::io::BufReader;

use crate::scripts::{Bare, Redis};
use crate::support::{Cluster, ask, connect, until};

/// Pseudo-random numbers, the same in each run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % count
    }

    fn one_of<'w>(&mut self, words: &[&'w str]) -> &'w str {
        words[self.below(words.len())]
    }
}

const LONG: &str =
    "a value that is longer than what redis keeps in a listpack, which has sixty-four bytes at most";

/// Draws a request on a few keys, so that different kinds of values meet.
fn request(draw: &mut Draw) -> Vec<&'static str> {
    const KEYS: &[&str] = &["{k}1", "{k}2", "{k}3"];
    const FIELDS: &[&str] = &["a", "b", "c", "d", "n", "f", ""];
    const VALUES: &[&str] = &["1", "-7", "9223372036854775807", "1.5", "text", "", "01", " 1", LONG];
    const NUMBERS: &[&str] = &["1", "-3", "9223372036854775807", "x", "1.5", "", "-9223372036854775808"];
    const FLOATS: &[&str] = &["0.25", "-3", "x", "", "inf", "-inf", "nan", "1.5e2"];
    let (key, other, field) = (draw.one_of(KEYS), draw.one_of(KEYS), draw.one_of(FIELDS));
    let value = draw.one_of(VALUES);
    let pair = [draw.one_of(FIELDS), draw.one_of(VALUES)];
    match draw.below(40) {
        0..4 => vec!["HSET", key, field, value],
        4 => vec!["HSET", key, field, value, pair[0], pair[1]],
        5 => vec!["HMSET", key, field, value, pair[0], pair[1]],
        6 => vec!["HSETNX", key, field, value],
        7 => vec!["HGET", key, field],
        8 => vec!["HMGET", key, field, pair[0], "nothing"],
        9 => vec!["HGETALL", key],
        10 => vec!["HKEYS", key],
        11 => vec!["HVALS", key],
        12 => vec!["HLEN", key],
        13 => vec!["HEXISTS", key, field],
        14 => vec!["HSTRLEN", key, field],
        15 => vec!["HDEL", key, field, pair[0]],
        16 => vec!["HINCRBY", key, draw.one_of(&["n", field]), draw.one_of(NUMBERS)],
        17 => vec!["HINCRBYFLOAT", key, draw.one_of(&["f", "n", field]), draw.one_of(FLOATS)],
        18 => vec!["HSCAN", key, "0", "MATCH", draw.one_of(&["*", "[ab]", "x"]), "COUNT", "100"],
        19 => vec!["HSCAN", key, "x", "MATCH", "*"],
        20 => vec!["HSET", key, field],
        21 => vec!["HSET", key, field, value, pair[0]],
        22 => vec!["SET", key, value],
        23 => vec!["GET", key],
        24 => vec!["APPEND", key, "1"],
        25 => vec!["INCR", key],
        26 => vec!["STRLEN", key],
        27 => vec!["GETRANGE", key, "0", "2"],
        28 => vec!["SETRANGE", key, "1", "x"],
        29 => vec!["MGET", key, other],
        30 => vec!["GETDEL", key],
        31 => vec!["GETSET", key, value],
        32 => vec!["DEL", key],
        33 => vec!["TYPE", key],
        34 => vec!["RENAME", key, other],
        35 => vec!["COPY", key, other, "REPLACE"],
        36 => vec!["EXPIRE", key, "100"],
        37 => vec!["TTL", key],
        38 => vec!["EXISTS", key, other],
        _ => vec!["SET", key, value, draw.one_of(&["NX", "XX"]), "GET"],
    }
}

/// Redis returns the fields of a large hash in no particular order.
fn in_order(words: &[&str], reply: String) -> String {
    if !["HGETALL", "HKEYS", "HVALS", "HSCAN"].contains(&words[0]) {
        return reply;
    }
    let mut parts: Vec<&str> = reply.trim_end_matches(']').split(['[', ' ']).collect();
    parts.sort_unstable();
    parts.join(" ")
}

#[test]
fn hashes_answer_as_in_redis() {
    const REQUESTS: usize = 4000;
    let Some(redis) = Redis::start_of("7.0.") else { return };
    let mut reference = Bare(BufReader::new(connect(redis.1)));
    let cluster = Cluster::start(3, &[]);
    let mut nodes = [1, 2].map(|id| Bare(BufReader::new(cluster.raw(id))));
    let mut draw = Draw(1);
    let mut last = Vec::new();
    for number in 0..REQUESTS {
        let words = request(&mut draw);
        let theirs = in_order(&words, reference.ask(&words));
        let ours = in_order(&words, nodes[number % 2].ask(&words));
        last.push(format!("{words:?} -> {theirs}"));
        assert_eq!(ours, theirs, "request {number}, after {:#?}", &last[last.len().saturating_sub(20)..]);
    }
    cluster.wait_until_equal();
}

/// The script that Redisson sends to acquire a lock, and to release it.
const LOCK: &str = "if (redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then \
                    redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; \
                    return redis.call('pttl', KEYS[1]);";

#[test]
fn hashes_work_in_ordered_keyspaces_and_are_refused_elsewhere() {
    let cluster = Cluster::start(
        3,
        &[
            "prefix=f: replication=leader-follower acks=majority",
            "prefix=c: replication=consensus coding=2",
            "prefix=a: replication=abd",
            "prefix=b: replication=blocking",
        ],
    );
    let mut nodes = [1, 2, 3].map(|id| cluster.client(id));
    for prefix in ["", "f:", "c:"] {
        for (turn, node) in nodes.iter_mut().enumerate() {
            let mut lock = |owner: &str| {
                let mut command = redis::cmd("EVAL");
                command.arg(LOCK).arg(1).arg(format!("{prefix}lock{turn}")).arg(60_000).arg(owner);
                command.query::<Option<i64>>(node).unwrap()
            };
            assert_eq!([lock("me"), lock("me")], [None, None], "it is taken again by who has it");
            assert!(lock("other").is_some_and(|left| (1..=60_000).contains(&left)));
            assert_eq!(ask(node, &format!("HGETALL {prefix}lock{turn}")), "[\"me\", \"2\"]");
        }
    }
    // Longer than values that are stored as fragments: a hash is never split.
    let long = "x".repeat(200_000);
    assert_eq!(ask(&mut nodes[0], &format!("HSET c:large field {long}")), "1");
    assert_eq!(ask(&mut nodes[1], "HSTRLEN c:large field"), "200000");
    assert_eq!(ask(&mut nodes[1], &format!("SET c:value {long}")), "OK");
    assert!(ask(&mut nodes[2], "HGET c:value field").starts_with("-WRONGTYPE"));
    for (prefix, protocol) in [("a:", "abd"), ("b:", "blocking")] {
        let error = ask(&mut nodes[0], &format!("HSET {prefix}k f v"));
        assert!(error.starts_with("-ERR HSET needs a hash") && error.contains(protocol), "{error}");
    }
    let (status, answer) = cluster.http(1, "GET /get/lock0 HTTP/1.1", "");
    assert!(status == 400 && answer.to_string().contains("WRONGTYPE"), "{status} {answer}");
}

#[test]
fn hashes_survive_a_kill_of_every_node() {
    let mut cluster = Cluster::start(3, &["prefix= replication=consensus durability=os"]);
    let mut node = cluster.client(1);
    for number in 0..200 {
        assert!(!ask(&mut node, &format!("HSET h field{} {number}", number % 70)).starts_with('-'));
        assert!(!ask(&mut node, &format!("HINCRBY h sum {number}")).starts_with('-'));
    }
    assert_eq!(ask(&mut node, "HDEL h field3 field5"), "2");
    let before = ask(&mut node, "HGETALL h");
    for id in [1, 2, 3] {
        cluster.kill(id);
    }
    for id in [1, 2, 3] {
        cluster.restart(id);
    }
    for id in [1, 2, 3] {
        cluster.wait_until_ready(id);
    }
    let mut other = cluster.client(2);
    let mut after = String::new();
    until("the hash is read again", || {
        after = ask(&mut other, "HGETALL h");
        !after.starts_with('-')
    });
    assert_eq!(after, before);
    cluster.wait_until_equal();
}
