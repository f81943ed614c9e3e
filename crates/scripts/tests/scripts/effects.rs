//! The effects of changes: a copy that applies them is equal to the table.
//!
//! Random programs run on a table that keeps its history: single commands, transactions and scripts, requests that wait for
//! elements, keys that expire and are evicted. The effects are applied to another table, with another seed and a clock by
//! which nothing ever expires. Then both must hold the same keys, values and deadlines.

use commands::{Context, Handler, find};
use kv::codec::Reader;
use kv::limits::SCRIPT_COST_DEFAULT;
use kv::{
    Command, Draft, List, ListCommand, QueueCommand, Reply, ReplyBuffer, Script, ScriptLimits, ScriptOptions,
    SortedCommand, Table, WaiterId, Wish,
};
use std::num::NonZeroU64;
use wire::resp::ArgumentsBuffer;

type Words = Vec<Vec<u8>>;

/// The keys. For some of them, most commands are those of one type.
const KEYS: [&str; 12] = ["t1", "t2", "l1", "l2", "h1", "h2", "s1", "s2", "z1", "z2", "q1", "q2"];

/// Templates of commands: see [`Random::word`].
const TEMPLATES: &[&str] = &[
    "SET t value",
    "SET t value PX millis",
    "SET t value KEEPTTL",
    "SET t value EXAT 1",
    "SET any value NX",
    "SET t value GET",
    "SET t value IFEQ value",
    "SET t number",
    "GETDEL t",
    "GETEX t PX millis",
    "GETEX t PERSIST",
    "MSET t value t value",
    "MSETNX any value any value",
    "APPEND t value",
    "SETRANGE t number value",
    "INCRBY t number",
    "INCRBYFLOAT t 1.25",
    "SETBIT t number 1",
    "BITFIELD t SET u8 number 200 OVERFLOW SAT INCRBY i7 3 100 GET u4 0 OVERFLOW FAIL INCRBY u2 1 9",
    "BITOP OR t t t",
    "BITOP XOR any t any",
    "PFADD t member member",
    "PFMERGE t t t",
    "DELEX t IFEQ value",
    "PEXPIRE any millis",
    "PEXPIRE any millis",
    "PEXPIRE any millis NX",
    "PEXPIRE any -1",
    "PERSIST any",
    "DEL any any",
    "RENAME any any",
    "RENAMENX any any",
    "COPY any any REPLACE",
    "COPY any any",
    "SORT l ALPHA STORE any",
    "HSET h member value member value",
    "HSETNX h member value",
    "HDEL h member member",
    "HINCRBY h member number",
    "HINCRBYFLOAT h member 0.5",
    "HPEXPIRE h millis FIELDS 2 member member",
    "HPEXPIRE h millis NX FIELDS 1 member",
    "HPEXPIRE h 0 FIELDS 1 member",
    "HPERSIST h FIELDS 1 member",
    "HGETEX h PX millis FIELDS 2 member member",
    "HSETEX h PX millis FIELDS 1 member value",
    "HSETEX h FNX KEEPTTL FIELDS 1 member value",
    "HGETDEL h FIELDS 2 member member",
    "LPUSH l member member member",
    "RPUSH l value member",
    "RPUSHX l member",
    "LPOP l",
    "RPOP l count",
    "LMPOP 2 l l LEFT COUNT count",
    "BLPOP l l 1",
    "LSET l number value",
    "LINSERT l BEFORE member value",
    "LREM l 1 member",
    "LREM l -2 member",
    "LTRIM l 0 count",
    "LMOVE l l LEFT RIGHT",
    "LMOVE l l RIGHT LEFT",
    "SADD s member member member",
    "SREM s member member",
    "SMOVE s s member",
    "SPOP s",
    "SPOP s count",
    "SUNIONSTORE s s s",
    "SINTERSTORE any s s",
    "SDIFFSTORE s s s",
    "ZADD z score member score member",
    "ZADD z XX GT score member score member",
    "ZADD z NX CH score member",
    "ZINCRBY z score member",
    "ZADD z INCR score member",
    "ZREM z member",
    "ZREMRANGEBYRANK z 0 1",
    "ZREMRANGEBYSCORE z (1 2",
    "ZPOPMIN z",
    "ZPOPMAX z count",
    "ZMPOP 2 z z MIN COUNT count",
    "BZPOPMAX z z 1",
    "ZUNIONSTORE z 2 z z WEIGHTS 2 score",
    "ZRANGESTORE z z 0 2",
    "GEOADD z 13.4 52.5 member",
    "XADD q * member value",
    "XADD q MAXLEN ~ 3 * member value",
    "XADD q MAXLEN 2 * member value member value",
    "XDEL q id",
    "XTRIM q MAXLEN 3",
    "XTRIM q MINID id",
    "XSETID q 9999999999999-5",
    "XDELEX q KEEPREF IDS 2 id id",
    "XDELEX q DELREF IDS 2 id id",
    "XDELEX q ACKED IDS 2 id id",
    "XTRIM q MAXLEN 3 ACKED",
    "XADD q MAXLEN 3 DELREF * member value",
    "XADD q IDMP consumer member * member value",
    "XADD q IDMPAUTO consumer MINID id ACKED * member value",
    "XCFGSET q IDMP-MAXSIZE 2",
    "XIDMPRECORD q consumer member id",
];

/// Commands of consumers of groups. A copy can follow them only if its clock advances.
const GROUP_TEMPLATES: &[&str] = &[
    "XGROUP CREATE q g $ MKSTREAM",
    "XGROUP CREATE q g 0 ENTRIESREAD 0",
    "XGROUP SETID q g id",
    "XGROUP DESTROY q g",
    "XGROUP CREATECONSUMER q g consumer",
    "XGROUP DELCONSUMER q g consumer",
    "XREADGROUP GROUP g consumer COUNT 3 STREAMS q >",
    "XREADGROUP GROUP g consumer STREAMS q q > >",
    "XREADGROUP GROUP g consumer NOACK COUNT 1 STREAMS q >",
    "XREADGROUP GROUP g consumer STREAMS q 0",
    "XACK q g id id",
    "XCLAIM q g consumer 0 id id",
    "XCLAIM q g consumer 0 id RETRYCOUNT 5 FORCE JUSTID",
    "XAUTOCLAIM q g consumer 0 0",
    "XREADGROUP GROUP g consumer CLAIM 500 COUNT 2 STREAMS q >",
    "XACKDEL q g DELREF IDS 2 id id",
    "XACKDEL q g ACKED IDS 2 id id",
];

/// Runs the commands in its arguments, each preceded by its number of words, and then fails if asked to.
const SCRIPT: &str = "local at = 2
while at <= #ARGV do
  local words = {}
  for i = 1, ARGV[at] do words[i] = ARGV[at + i] end
  redis.pcall(unpack(words))
  at = at + #words + 1
end
if ARGV[1] == 'ends' then while true do end end";

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len() as u64) as usize]
    }

    fn word(&mut self, kind: &str, ids: &[String]) -> String {
        match kind {
            "t" | "l" | "h" | "s" | "z" | "q" if self.below(12) == 0 => self.of(&KEYS).to_string(),
            "t" | "l" | "h" | "s" | "z" | "q" => format!("{kind}{}", 1 + self.below(2)),
            "any" => self.of(&KEYS).to_string(),
            "g" => self.of(&["g", "g", "other"]).to_string(),
            "consumer" => self.of(&["ann", "bob"]).to_string(),
            "member" => {
                let most = if self.below(4) == 0 { 400 } else { 6 };
                self.below(most).to_string()
            }
            "value" => match self.below(5) {
                0 => "x".repeat(self.below(200) as usize),
                1 => self.below(1000).to_string(),
                _ => self.of(&["", "a", "b", "a\0\r\n"]).to_string(),
            },
            "number" => (self.below(24) as i64 - 4).to_string(),
            "count" => self.below(4).to_string(),
            "millis" => (1 + self.below(4000)).to_string(),
            "score" => self.of(&["1", "-2.5", "1e300", "0.1", "inf", "3", "0"]).to_string(),
            "id" if ids.is_empty() => "5-1".to_string(),
            "id" => ids[ids.len() - 1 - self.below(ids.len().min(8) as u64) as usize].clone(),
            other => other.to_string(),
        }
    }

    fn command(&mut self, templates: &[&str], ids: &[String]) -> Words {
        self.of(templates).split(' ').map(|kind| self.word(kind, ids).into_bytes()).collect()
    }
}

/// Runs `with` with the command to which the words parse, if they do.
fn parsed<R>(words: &[Vec<u8>], now_ms: u64, with: impl FnOnce(&Command<'_>) -> R) -> Option<R> {
    let buffer: ArgumentsBuffer = words.iter().map(Vec::as_slice).collect();
    let context = Context {
        database: 0,
        level: 2,
        now_ms,
        value_bytes_max: 1 << 20,
        stream_node_entries: 2,
        encodings: kv::command::EncodingLimits::default(),
    };
    let found = find(buffer.as_arguments()).ok()?;
    let mut scratch = Vec::new();
    let Handler::Data(parse) = found.spec.handler else { return None };
    parse(buffer.as_arguments(), &mut scratch, &context).ok().map(|command| with(&command))
}

/// A table, and a copy that applies its effects.
struct Pair {
    table: Table,
    offset: u64,
    now: u64,
    copy: Table,
    copy_offset: u64,
    /// Whether the copy's clock stands still, so that nothing expires by it.
    is_frozen: bool,
    read_up_to: u64,
    /// The effects so far, to be shown if a test fails.
    shown: Vec<String>,
    counts: std::collections::BTreeMap<String, usize>,
    ids: Vec<String>,
    waiting: Vec<WaiterId>,
}

fn show(words: &[Vec<u8>]) -> String {
    words.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
}

impl Pair {
    fn new(is_frozen: bool) -> Pair {
        let mut table = Table::new(1);
        table.set_interpreter(&scripts::LUA);
        table.keep_history(64 << 20);
        Pair {
            table,
            offset: 0,
            now: 1_700_000_000_000,
            copy: Table::new(2),
            copy_offset: 0,
            is_frozen,
            read_up_to: 0,
            shown: Vec::new(),
            counts: Default::default(),
            ids: Vec::new(),
            waiting: Vec::new(),
        }
    }

    /// Applies the next record and returns the reply. `is_quiet`: no client waits for the record.
    fn apply(&mut self, command: &Command<'_>, is_quiet: bool) -> Vec<u8> {
        self.offset += 1;
        let mut out = ReplyBuffer::new();
        if is_quiet {
            self.table.apply_unasked(command, self.offset, self.now);
        } else {
            self.table.apply(command, self.offset, self.now, &mut out);
        }
        out.take()
    }

    fn run(&mut self, words: &[Vec<u8>], is_quiet: bool) {
        self.shown.push(format!("> {}", show(words)));
        let now = self.now;
        let reply = parsed(words, now, |command| self.apply(command, is_quiet)).unwrap_or_default();
        if words[0] == b"XADD"
            && let [_, _, _, _, _, id @ ..] = &reply[..]
            && id.contains(&b'-')
        {
            self.ids.push(String::from_utf8_lossy(id).into_owned());
        }
    }

    fn run_together(&mut self, commands: &[Words], is_quiet: bool) {
        let mut draft = Draft::default();
        for words in commands {
            self.shown.push(format!("> in a transaction: {}", show(words)));
            parsed(words, self.now, |command| draft.push(command));
        }
        let transaction = draft.transaction();
        self.apply(&Command::Transaction(transaction), is_quiet);
    }

    fn run_in_script(&mut self, commands: &[Words], ends: bool, is_quiet: bool) {
        let mut inputs: Words = KEYS.iter().map(|key| key.as_bytes().to_vec()).collect();
        inputs.push(if ends { b"ends".to_vec() } else { Vec::new() });
        for words in commands {
            self.shown.push(format!(
                "> in a script{}: {}",
                if ends { " that is undone" } else { "" },
                show(words)
            ));
            inputs.push(words.len().to_string().into_bytes());
            inputs.extend(words.iter().cloned());
        }
        let cost_max = if ends { 100_000 } else { SCRIPT_COST_DEFAULT };
        let limits = ScriptLimits { value_bytes_max: 1 << 20, cost_max };
        let mut scratch = Vec::new();
        let inputs = inputs.iter().map(Vec::as_slice);
        let script = Script::build(&mut scratch, SCRIPT.as_bytes(), inputs, KEYS.len(), limits, true);
        // As the commands outside of scripts: a node of release 1 lets a group have read more than a stream has had.
        let options = ScriptOptions { by_second_rules: true, ..ScriptOptions::default() };
        self.apply(&Command::Script(script.unwrap().with_options(options)), is_quiet);
    }

    /// Has a client wait for an element of two lists or sorted sets, or disconnect.
    fn wait(&mut self, random: &mut Random) {
        if !self.waiting.is_empty() && random.below(2) == 0 {
            let waiter = self.waiting.swap_remove(random.below(self.waiting.len() as u64) as usize);
            self.shown.push(format!("> withdraw {waiter:?}"));
            self.apply(&Command::Queue(QueueCommand::Withdraw { waiter, only_unclaimed: false }), false);
            return;
        }
        let waiter = WaiterId { node: 1, life: 1, number: NonZeroU64::new(self.offset + 1).unwrap() };
        let (mut list, mut scratch) = (Vec::new(), Vec::new());
        let of_lists = random.below(2) == 0;
        let keys = List::build(&mut list, if of_lists { [&b"l1"[..], b"l2"] } else { [&b"z1"[..], b"z2"] });
        let (at_front, count) = (random.below(2) == 0, 1 + random.below(3));
        let command = match (of_lists, random.below(3)) {
            (true, 0) => Command::OnList(ListCommand::MultiPop { keys, at_front, count }),
            (true, 1) => Command::OnList(ListCommand::PopAny { keys, at_front }),
            (true, _) => Command::OnList(ListCommand::Move {
                from: b"l1",
                to: b"l2",
                from_front: at_front,
                to_front: true,
            }),
            (false, 0) => Command::OnSorted(SortedCommand::PopAny { keys, is_highest: at_front }),
            (false, _) => Command::OnSorted(SortedCommand::MultiPop { keys, is_highest: at_front, count }),
        };
        self.shown.push(format!("> {waiter:?} waits: {command:?}"));
        let wish = Wish::build(&command, &mut scratch).unwrap();
        self.apply(&Command::Queue(QueueCommand::Ask { waiter, wish }), false);
        self.waiting.push(waiter);
    }

    /// Has the copy apply the effects that it has not applied yet.
    fn follow(&mut self) {
        let mut out = ReplyBuffer::new();
        let asked = Command::Recent { from: self.read_up_to, bytes_max: 10_000 };
        self.table.read(&asked, self.now, &mut out);
        let mut reader = Reader::new(out.as_bytes());
        let mut next = || Reply::decode(&mut reader).unwrap();
        let Reply::Array(parts) = next() else { panic!("{:?}", Reply::first(out.as_bytes())) };
        assert_eq!(next(), Reply::Integer(0), "all changes are kept");
        let Reply::Integer(until) = next() else { panic!("a version") };
        for _ in 2..parts {
            assert_eq!(next(), Reply::Array(4));
            let (Reply::Integer(version), Reply::Integer(_)) = (next(), next()) else {
                panic!("a version, a time")
            };
            assert!(version as u64 > self.read_up_to, "versions grow");
            self.read_up_to = version as u64;
            let Reply::Array(events) = next() else { panic!("events") };
            for _ in 0..events {
                assert_eq!(next(), Reply::Array(2));
                assert!(matches!((next(), next()), (Reply::Bulk(_), Reply::Bulk(_))));
            }
            let Reply::Array(effects) = next() else { panic!("effects") };
            assert!(events > 0 && effects > 0, "what has changed has an effect: {}", self.shown.join("\n"));
            for _ in 0..effects {
                let Reply::Array(count) = next() else { panic!("an effect") };
                let words: Words = (0..count)
                    .map(|_| match next() {
                        Reply::Bulk(word) => word.to_vec(),
                        other => panic!("{other:?} is no word"),
                    })
                    .collect();
                self.shown.push(format!("    {}", show(&words)));
                *self.counts.entry(String::from_utf8_lossy(&words[0]).into_owned()).or_default() += 1;
                self.copy_offset += 1;
                let (offset, now) = (self.copy_offset, if self.is_frozen { 0 } else { self.now });
                let mut out = ReplyBuffer::new();
                let is_known = match words[0].as_slice() {
                    b"FLUSHDB" => Some(self.copy.apply(&Command::Clear {}, offset, now, &mut out)),
                    _ => parsed(&words, now, |command| self.copy.apply(command, offset, now, &mut out)),
                };
                assert!(is_known.is_some(), "{}", self.shown.join("\n"));
                assert!(
                    !ReplyBuffer::is_error(out.as_bytes()),
                    "{:?} to the last of\n{}",
                    Reply::first(out.as_bytes()),
                    self.shown.join("\n")
                );
            }
        }
        self.read_up_to = until as u64;
        if until as u64 != self.table.version_floor() {
            self.follow();
        }
    }

    /// The content of a table: each key's deadline and value.
    fn contents(table: &mut Table, now: u64) -> String {
        let mut contents = String::new();
        for key in KEYS {
            let mut ask = |words: &[&str]| {
                let words: Words = words.iter().map(|word| word.as_bytes().to_vec()).collect();
                let mut out = ReplyBuffer::new();
                parsed(&words, now, |command| table.read(command, now, &mut out)).unwrap();
                out.take()
            };
            contents += &format!("{key}: {} {}\n", text(&ask(&["PEXPIRETIME", key])), {
                let kind = ask(&["TYPE", key]);
                match Reply::first(&kind) {
                    // The payload of a stream contains the times at which consumers were seen.
                    Reply::Status(b"stream") => text(&ask(&["XINFO", "STREAM", key, "FULL", "COUNT", "0"])),
                    // An expired field keeps its place until it is removed, which a copy does not notice.
                    Reply::Status(b"hash") => {
                        let (mut fields, pairs) = (Vec::new(), ask(&["HGETALL", key]));
                        let mut reader = Reader::new(&pairs);
                        let _ = Reply::decode(&mut reader);
                        while let (Ok(Reply::Bulk(name)), Ok(Reply::Bulk(value))) =
                            (Reply::decode(&mut reader), Reply::decode(&mut reader))
                        {
                            let name = std::str::from_utf8(name).unwrap();
                            let until = text(&ask(&["HPEXPIRETIME", key, "FIELDS", "1", name]));
                            fields.push(format!("{name}: {} {until}", value.escape_ascii()));
                        }
                        fields.sort();
                        fields.join(" ")
                    }
                    _ => text(&ask(&["DUMP", key])),
                }
            });
        }
        contents
    }

    /// Asserts that both tables are equal once everything that is due has been removed.
    fn compare(&mut self) {
        while let Some(until) = self.table.purge_until(self.now, 3) {
            self.apply(&Command::Purge { until }, true);
        }
        self.follow();
        let (own, copied) =
            (Pair::contents(&mut self.table, self.now), Pair::contents(&mut self.copy, self.now));
        assert!(own == copied, "{own}\n{copied}\n{}", self.shown.join("\n"));
    }
}

/// A reply as text, without times.
fn text(reply: &[u8]) -> String {
    let mut reader = Reader::new(reply);
    let (mut text, mut skips) = (String::new(), false);
    while !reader.is_empty() {
        let reply = Reply::decode(&mut reader).unwrap();
        if !std::mem::take(&mut skips) {
            text += &match reply {
                Reply::Bulk(bytes) => format!("'{}' ", bytes.escape_ascii()),
                other => format!("{other:?} "),
            };
        }
        let Reply::Bulk(name) = reply else { continue };
        // What producers have sent is only in the table itself.
        let is_own = [&b"idmp-"[..], b"pids-", b"iids-"].iter().any(|own| name.starts_with(own));
        skips = is_own || matches!(name, b"seen-time" | b"active-time");
    }
    text
}

fn run(seed: u64, is_frozen: bool) -> Pair {
    let (mut random, mut pair) = (Random(seed), Pair::new(is_frozen));
    let groups = if is_frozen { &[] } else { GROUP_TEMPLATES };
    let templates = [TEMPLATES, groups, groups].concat();
    for step in 0..150 {
        pair.now += random.below(3) * random.below(600);
        let commands: Vec<Words> =
            (0..1 + random.below(4)).map(|_| random.command(&templates, &pair.ids)).collect();
        let is_quiet = random.below(2) == 0;
        match random.below(40) {
            0 if random.below(8) == 0 => pair.run(&[b"FLUSHALL".to_vec()], is_quiet),
            1 => {
                let key = random.of(&KEYS).as_bytes();
                let (mut scratch, mut out) = (Vec::new(), ReplyBuffer::new());
                let keys = List::build(&mut scratch, [key]);
                pair.table.read(&Command::Watch { keys }, pair.now, &mut out);
                let version = u64::from_le_bytes(*out.as_bytes().last_chunk().unwrap());
                pair.shown.push(format!("> evict {}", key.escape_ascii()));
                pair.apply(&Command::Evict { key, version }, is_quiet);
            }
            2..6 => pair.wait(&mut random),
            6..10 => pair.run_together(&commands, is_quiet),
            10..15 => pair.run_in_script(&commands, random.below(4) == 0, is_quiet),
            _ => pair.run(&commands[0], is_quiet),
        }
        match random.below(4) {
            // An advancing clock must not remove keys from the copy that existed when the effect was written.
            _ if !is_frozen => pair.follow(),
            0 => pair.follow(),
            _ => {}
        }
        if step % 10 == 0 {
            pair.compare();
        }
    }
    pair.compare();
    pair
}

#[test]
fn a_copy_that_applies_the_effects_is_equal() {
    let mut counts = std::collections::BTreeMap::new();
    for seed in 0..120 {
        for is_frozen in [false, true] {
            for (name, count) in run(seed, is_frozen).counts {
                *counts.entry(name).or_insert(0) += count;
            }
        }
    }
    println!("{counts:?}");
    let names = [
        "DEL",
        "SREM",
        "XCLAIM",
        "XACK",
        "HPEXPIREAT",
        "RESTORE",
        "PEXPIREAT",
        "FLUSHDB",
        "LMOVE",
        "BITFIELD",
    ];
    for name in names.iter().chain(&["ZADD", "XTRIM", "RENAME", "COPY", "HDEL", "LPOP", "ZPOPMAX", "PERSIST"])
    {
        assert!(counts.contains_key(*name), "no effect was {name}: {counts:?}");
    }
}
