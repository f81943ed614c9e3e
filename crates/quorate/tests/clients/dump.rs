//! Values in Redis's serialization format, from a real Redis to a cluster and back, and files of keys both ways.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use redis::{Connection, Value};

use crate::scripts::Redis;
use crate::support::{Cluster, PATIENCE, as_text, until};

/// Pseudo-random numbers, the same in each run.
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % count
    }

    fn integer(&mut self) -> i64 {
        let width = [7, 12, 13, 15, 23, 31, 63][self.below(7) as usize];
        let edge = (1_i64 << width).wrapping_sub(self.below(2) as i64);
        match self.below(3) {
            0 => edge,
            1 => edge.wrapping_neg(),
            _ => self.below(14) as i64,
        }
    }

    fn word(&mut self) -> Vec<u8> {
        match self.below(6) {
            0 | 1 => self.integer().to_string().into_bytes(),
            2 => (0..self.below(80)).map(|_| self.below(256) as u8).collect(),
            // Redis compresses it.
            3 => b"ab".repeat(10 + self.below(3000) as usize),
            4 => format!("0{}", self.below(100)).into_bytes(),
            _ => format!("w{}", self.below(100_000)).into_bytes(),
        }
    }
}

/// Runs a command; again, as client libraries do, if a busy machine makes another node the leader.
pub(crate) fn run(client: &mut Connection, words: &[&[u8]]) -> Value {
    let mut command = redis::Cmd::new();
    command.arg(words);
    let by = Instant::now() + PATIENCE;
    loop {
        match command.query(client) {
            Ok(reply) => return reply,
            Err(error) if error.code() == Some("TRYAGAIN") && Instant::now() < by => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => panic!("{}: {error}", words[0].escape_ascii()),
        }
    }
}

/// Makes a value of a type.
fn make(client: &mut Connection, key: &[u8], kind: u64, draw: &mut Draw) {
    let count = [1, 3, 130, 700][draw.below(4) as usize];
    let is_of_integers = draw.below(2) == 0;
    for at in 0..count {
        let (word, other) = (draw.word(), draw.word());
        let (number, score) = (draw.integer().to_string(), draw.integer() as f64 / 8.0);
        let score = [score.to_string(), "inf".into(), "-inf".into()]
            [draw.below(5).saturating_sub(2) as usize]
            .clone();
        match kind {
            0 => drop(run(client, &[b"SET", key, &word])),
            1 => drop(run(client, &[b"RPUSH", key, &word])),
            2 if is_of_integers => drop(run(client, &[b"SADD", key, number.as_bytes()])),
            2 => drop(run(client, &[b"SADD", key, &word])),
            3 => drop(run(client, &[b"ZADD", key, score.as_bytes(), &word])),
            4 => drop(run(client, &[b"HSET", key, &word, &other])),
            _ => {
                let id = format!("{}-{}", 1_700_000_000_000_u64 + at / 3 * draw.below(500), at + 1);
                let name: &[u8] = if draw.below(4) == 0 { &word } else { b"field" };
                let id = if at == 0 { id } else { format!("{}-*", 1_700_000_000_000_u64 + at * 700) };
                run(client, &[b"XADD", key, id.as_bytes(), name, &other]);
            }
        }
    }
    if kind == 5 {
        for group in [&b"g"[..], b"another group"] {
            run(client, &[b"XGROUP", b"CREATE", key, group, b"0"]);
            run(client, &[b"XGROUP", b"CREATECONSUMER", key, group, b"idle"]);
            for consumer in [&b"c"[..], b"d"] {
                let count = (1 + draw.below(20)).to_string();
                let words = [
                    &b"XREADGROUP"[..],
                    b"GROUP",
                    group,
                    consumer,
                    b"COUNT",
                    count.as_bytes(),
                    b"STREAMS",
                    key,
                    b">",
                ];
                run(client, &words);
            }
        }
        // An entry is pending that was removed from the stream.
        run(client, &[b"XTRIM", key, b"MAXLEN", count.saturating_sub(2).to_string().as_bytes()]);
    }
}

fn texts(value: Value) -> Vec<Vec<u8>> {
    let Value::Array(items) = value else { panic!("{value:?} is no array") };
    let text = |item| match item {
        Value::BulkString(text) => text,
        other => panic!("{other:?} is no string"),
    };
    items.into_iter().map(text).collect()
}

fn sorted(mut pairs: Vec<Vec<u8>>, width: usize) -> String {
    let mut rows: Vec<_> = pairs
        .chunks_mut(width)
        .map(|row| row.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>())
        .collect();
    rows.sort();
    format!("{rows:?}")
}

/// All that a client can read of a value, as text.
fn readings(client: &mut Connection, key: &[u8]) -> String {
    let kind = as_text(&run(client, &[b"TYPE", key]));
    let mut ask = |words: &[&[u8]]| run(client, words);
    let content = match kind.as_str() {
        "string" => as_text(&ask(&[b"GET", key])),
        "list" => as_text(&ask(&[b"LRANGE", key, b"0", b"-1"])),
        "set" => sorted(texts(ask(&[b"SMEMBERS", key])), 1),
        "hash" => sorted(texts(ask(&[b"HGETALL", key])), 2),
        "zset" => {
            let members = texts(ask(&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"]));
            let score = |text: &[u8]| std::str::from_utf8(text).unwrap().parse::<f64>().unwrap();
            let rows =
                members.chunks(2).map(|pair| format!("{} {:?}", pair[0].escape_ascii(), score(&pair[1])));
            rows.collect::<Vec<_>>().join(" ")
        }
        "stream" => {
            let mut parts = vec![as_text(&ask(&[b"XRANGE", key, b"-", b"+"]))];
            let Value::Array(info) = ask(&[b"XINFO", b"STREAM", key]) else { panic!("no information") };
            // What producers have sent is not part of a dump.
            let left_out = ["radix-tree", "idmp-", "pids-", "iids-"];
            let is_left_out = |fact: &str| left_out.iter().any(|part| fact.contains(part));
            for pair in info.chunks(2).filter(|pair| !is_left_out(&as_text(&pair[0]))) {
                parts.push(format!("{} {}", as_text(&pair[0]), as_text(&pair[1])));
            }
            parts.push(as_text(&ask(&[b"XINFO", b"GROUPS", key])));
            let Value::Array(groups) = ask(&[b"XINFO", b"GROUPS", key]) else { panic!("no groups") };
            for group in groups {
                let Value::Array(group) = group else { panic!("no group") };
                let Value::BulkString(name) = &group[1] else { panic!("no name") };
                let Value::Array(pending) = ask(&[b"XPENDING", key, name, b"-", b"+", b"100000"]) else {
                    panic!()
                };
                for entry in pending {
                    let Value::Array(entry) = entry else { panic!("no entry") };
                    // Without the time for which it has been pending.
                    parts.push(format!(
                        "{} {} {}",
                        as_text(&entry[0]),
                        as_text(&entry[1]),
                        as_text(&entry[3])
                    ));
                }
            }
            parts.join("\n")
        }
        _ => String::new(),
    };
    format!("{kind} {content}")
}

fn dump(client: &mut Connection, key: &[u8]) -> Vec<u8> {
    match run(client, &[b"DUMP", key]) {
        Value::BulkString(payload) => payload,
        other => panic!("DUMP answers with {other:?}"),
    }
}

pub(crate) fn client_of(port: u16) -> Connection {
    redis::Client::open(("127.0.0.1", port)).unwrap().get_connection().unwrap()
}

#[test]
fn values_go_to_redis_and_back() {
    let Some(redis) = Redis::start() else { return };
    let cluster = Cluster::start(1, &[]);
    let (mut theirs, mut ours, mut draw) = (client_of(redis.1), cluster.client(1), Draw(1));
    let mut lengths = BTreeMap::new();
    for round in 0..60_u64 {
        let key = b"k".as_slice();
        let (from, to) = match round / 6 % 2 {
            0 => (&mut theirs, &mut ours),
            _ => (&mut ours, &mut theirs),
        };
        make(from, key, round % 6, &mut draw);
        let (payload, expected) = (dump(from, key), readings(from, key));
        lengths.entry(round % 6).or_insert(payload.len());
        run(to, &[b"RESTORE", key, b"0", &payload]);
        assert_eq!(readings(to, key), expected, "round {round}");
        let payload = dump(to, key);
        run(from, &[b"RESTORE", key, b"0", &payload, b"REPLACE"]);
        assert_eq!(readings(from, key), expected, "round {round}, back");
        run(from, &[b"DEL", key]);
        run(to, &[b"DEL", key]);
    }
    assert_eq!(lengths.len(), 6, "all types were there");
}

/// Runs `quorate` with these arguments. Returns its exit code and what it printed.
pub(crate) fn quorate(arguments: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_quorate")).args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.code().unwrap(), text.concat())
}

pub(crate) fn keys_of(client: &mut Connection) -> Vec<Vec<u8>> {
    let mut keys = texts(run(client, &[b"KEYS", b"*"]));
    keys.sort();
    keys
}

/// Keys of all types, small and large, some of which expire.
pub(crate) fn fill(client: &mut Connection, draw: &mut Draw) {
    for at in 0..30 {
        let key = format!("k{at}").into_bytes();
        make(client, &key, at % 6, draw);
        if at % 4 == 0 {
            run(client, &[b"PEXPIREAT", &key, b"4102444800123"]);
        }
    }
    for large in 0..12_000 {
        let word = [&b"w"[..], large.to_string().as_bytes(), &[b'.'; 100]].concat();
        run(client, &[b"RPUSH", b"large list", &word]);
        run(client, &[b"ZADD", b"large zset", large.to_string().as_bytes(), &word]);
    }
    run(client, &[b"SET", b"gone", b"v", b"PX", b"1"]);
    until("a key has expired", || as_text(&run(client, &[b"EXISTS", b"gone"])) == "0");
}

pub(crate) fn compare(one: &mut Connection, other: &mut Connection, keys: &[Vec<u8>]) {
    assert_eq!(keys_of(other), keys);
    for key in keys {
        let name = key.escape_ascii();
        assert_eq!(readings(one, key), readings(other, key), "{name}");
        let deadline = |client: &mut Connection| as_text(&run(client, &[b"PEXPIRETIME", key]));
        assert_eq!(deadline(one), deadline(other), "{name}");
    }
}

pub(crate) fn in_folder(folder: &Path, more: &[&str]) -> Option<Redis> {
    let own = ["--save", "", "--dir", folder.to_str().unwrap()];
    Redis::start_with(&[&own[..], more].concat())
}

#[test]
fn files_of_keys_go_from_redis_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let Some(redis) = in_folder(folder.path(), &[]) else { return };
    let (mut theirs, mut draw) = (client_of(redis.1), Draw(7));
    fill(&mut theirs, &mut draw);
    let keys = keys_of(&mut theirs);
    run(&mut theirs, &[b"SELECT", b"3"]);
    run(&mut theirs, &[b"SET", b"session", b"v"]);
    run(
        &mut theirs,
        &[b"FUNCTION", b"LOAD", b"#!lua name=mine\nredis.register_function('f', function() return 1 end)"],
    );
    run(&mut theirs, &[b"SAVE"]);
    run(&mut theirs, &[b"SELECT", b"0"]);
    let cluster = Cluster::start(1, &[]);
    let address = format!("127.0.0.1:{}", cluster.client_port(1));
    let (mut ours, file) = (cluster.client(1), folder.path().join("dump.rdb"));
    let file = file.to_str().unwrap();

    let (code, output) = quorate(&["import", file, "--dry-run"]);
    assert_eq!(code, 1);
    for part in ["there are", "give --database 3=PREFIX (\"session\")", ", 1 libraries of functions"] {
        assert!(output.contains(part), "{part}: {output}");
    }
    assert_eq!(keys_of(&mut ours), Vec::<Vec<u8>>::new());
    let (_, output) = quorate(&["import", file, "--addr", &address]);
    assert!(output.contains(&format!("taken: {} keys", keys.len())), "{output}");
    compare(&mut theirs, &mut ours, &keys);
    assert_eq!(as_text(&run(&mut ours, &[b"FCALL", b"f", b"0"])), "1");

    // Once more: existing keys stay, unless they are to be replaced.
    run(&mut ours, &[b"SET", b"k0", b"changed"]);
    let (code, output) = quorate(&["import", file, "--addr", &address]);
    assert!(code == 1 && output.contains(&format!("not taken: {}, it exists", keys.len() + 1)), "{output}");
    assert_eq!(as_text(&run(&mut ours, &[b"GET", b"k0"])), "\"changed\"");
    let (_, output) = quorate(&["import", file, "--addr", &address, "--replace", "--database", "3=old:"]);
    assert!(output.contains(&format!("taken: {} keys", keys.len() + 1)), "{output}");
    assert_eq!(as_text(&run(&mut ours, &[b"GETDEL", b"old:session"])), "\"v\"");
    compare(&mut theirs, &mut ours, &keys);

    let back = tempfile::tempdir().unwrap();
    let exported = back.path().join("dump.rdb");
    let arguments = ["export", exported.to_str().unwrap(), "--addr", &address];
    assert_eq!(quorate(&arguments).0, 0);
    assert_eq!(quorate(&arguments).0, 1, "the file exists");
    let again = in_folder(back.path(), &[]).unwrap();
    let mut again = client_of(again.1);
    until("the file is read", || has_loaded(&mut again));
    compare(&mut theirs, &mut again, &keys);

    // Changes a byte in the middle.
    let mut bytes = std::fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    let damaged = back.path().join("damaged.rdb");
    std::fs::write(&damaged, bytes).unwrap();
    let (code, output) = quorate(&["import", damaged.to_str().unwrap(), "--dry-run"]);
    assert!(code == 1 && output.contains("at byte "), "{output}");
}

/// A value of each kind of damage between two sound keys: a stream that says another number of entries than it has, and a
/// compressed string that is damaged.
#[test]
fn values_that_are_damaged_within_do_not_end_an_import() {
    use rdb::write::{FileWriter, StreamHead, put_length, put_node, tag};
    let mut words = rdb::Words::default();
    [&b"f"[..], b"v"].iter().for_each(|word| words.push(word));
    let entry = |ms| (rdb::Id { ms, seq: 0 }, words.clone());
    let mut stream = Vec::new();
    put_length(1, &mut stream);
    put_node(&[entry(1), entry(2)], &mut stream);
    StreamHead { length: 5, last: rdb::Id { ms: 7, seq: 0 }, added: 9, ..StreamHead::default() }
        .put(&mut stream);
    let mut writer = FileWriter::begin(Vec::new()).unwrap();
    writer.key(b"first", None, tag::STRING, b"\x01v").unwrap();
    writer.key(b"counts", None, tag::STREAM, &stream).unwrap();
    writer.key(b"broken", None, tag::STRING, b"\xc3\x02\x28\x00z").unwrap();
    writer.key(b"last", None, tag::STRING, b"\x01v").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dump.rdb");
    std::fs::write(&file, writer.end().unwrap().0).unwrap();
    let cluster = Cluster::start(1, &[]);
    let (mut ours, address) = (cluster.client(1), format!("127.0.0.1:{}", cluster.client_port(1)));
    let file = file.to_str().unwrap();

    let (code, output) = quorate(&["import", file, "--addr", &address, "--strict"]);
    assert!(code == 1 && output.contains("the key \"counts\"") && output.contains("at byte "), "{output}");
    assert_eq!(keys_of(&mut ours), [b"first"]);

    for arguments in [&["--dry-run"][..], &["--addr", &address, "--replace"]] {
        let (code, output) = quorate(&[&["import", file][..], arguments].concat());
        assert_eq!(code, 1, "one key is left out: {output}");
        for part in [
            " 3 keys (2 string, 1 stream)",
            "mended: 1, a stream with another number of entries than it says (\"counts\")",
            "not taken: 1, damaged: a compressed string that is damaged (\"broken\")",
        ] {
            assert!(output.contains(part), "{part}: {output}");
        }
    }
    assert_eq!(keys_of(&mut ours), [&b"counts"[..], b"first", b"last"]);
    assert_eq!(as_text(&run(&mut ours, &[b"XLEN", b"counts"])), "2");
    let info = as_text(&run(&mut ours, &[b"XINFO", b"STREAM", b"counts"]));
    assert!(info.contains("7-0") && info.contains('9'), "{info}");
}

pub(crate) fn has_loaded(client: &mut Connection) -> bool {
    !as_text(&run(client, &[b"INFO", b"persistence"])).contains("loading_start_time")
}

#[test]
fn append_only_files_of_redis_are_imported() {
    let folder = tempfile::tempdir().unwrap();
    // It is killed, and without syncs it may postpone its writes while the disk is busy.
    let synced = ["--appendonly", "yes", "--appendfsync", "always"];
    let Some(redis) = in_folder(folder.path(), &synced) else { return };
    let (mut theirs, mut draw) = (client_of(redis.1), Draw(9));
    fill(&mut theirs, &mut draw);
    run(&mut theirs, &[b"BGREWRITEAOF"]);
    until("the file is rewritten", || {
        as_text(&run(&mut theirs, &[b"INFO", b"persistence"])).contains("aof_rewrite_in_progress:0")
            && !as_text(&run(&mut theirs, &[b"INFO", b"persistence"])).contains("aof_rewrite_scheduled:1")
    });
    for at in 0..12 {
        make(&mut theirs, format!("later{at}").as_bytes(), at % 6, &mut draw);
    }
    run(&mut theirs, &[b"DEL", b"k1"]);
    let keys = keys_of(&mut theirs);
    // Redis reads its own files for the comparison: they lack how many entries a group has read.
    drop(redis);
    let Some(redis) = in_folder(folder.path(), &["--appendonly", "yes"]) else { return };
    let mut theirs = client_of(redis.1);
    until("the files are read", || has_loaded(&mut theirs));
    let cluster = Cluster::start(1, &[]);
    let address = format!("127.0.0.1:{}", cluster.client_port(1));
    let files = folder.path().join("appendonlydir");
    let (code, output) = quorate(&["import", files.to_str().unwrap(), "--addr", &address]);
    assert_eq!(code, 0, "{output}");
    compare(&mut theirs, &mut cluster.client(1), &keys);
}
