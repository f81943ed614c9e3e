//! What each command is charged for memory, compared with what the allocator gave and with what copies share, which their
//! changes may still take: never less, and not absurdly more. Over every write of the command table, and values of several
//! sizes. One test in its own process, since it counts all allocations.

#![allow(clippy::unwrap_used, missing_docs)]

use commands::{Context, Flag, Handler};
use kv::command::EncodingLimits;
use kv::{Command, ReplyBuffer, Table};
use peak_alloc::PeakAlloc;
use std::collections::BTreeSet;
use wire::resp::ArgumentsBuffer;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// What a command may take beyond its charge: the index of keys and the trees of deadlines grow in steps.
const SLACK_BYTES: u64 = 16 << 10;
/// How many times more than it takes a command may be charged, beside a fixed amount: the index of an empty table.
const TIMES: u64 = 32;
const FIXED_BYTES: u64 = 68 << 10;

const NOW_MS: u64 = 1_000_000;

/// Commands that fill the table, and all that are tried. `@` stands for a list of items, `@2` for pairs, `@z` for scores
/// and members, `@p` for a payload, `#` for the number of items. Each line is tried for each number.
const FILL: &str = "
SET s @v|SET s2 @v|RPUSH l @|SADD t @|SADD t2 @|HSET h @2|ZADD z @z|ZADD z2 @z|PFADD p @|PFADD p2 x|GEOADD g 13 38 a 14 39 b
SET n 17|SET f 1.5|SADD i 1 2 3|MSET gone1 @v gone2 @v gone3 @v gone4 @v gone5 @v|RPUSH gone6 @|SADD gone7 @|ZADD gone8 @z|HSET gone9 @2|XADD x 1-1 @2
XADD x 1-2 a b|XGROUP CREATE x c 0|XGROUP CREATE x d 0|XREADGROUP GROUP d me STREAMS x >|HEXPIRE h 1000 FIELDS 1 f1
";
const TRIED: &str = "
APPEND s x|APPEND new1 @v|APPEND s @v|SETRANGE s # yz|SETRANGE new2 # yz|SETRANGE s2 0 yz|SETBIT s # 1|SETBIT new3 1000000 1
BITFIELD new4 SET u8 1000000 7|BITFIELD s SET u8 1 7|BITOP OR new5 s s2|BITOP NOT new6 s|INCR n|DECR n|INCRBY new7 3|DECRBY n 3
INCRBYFLOAT f 1e300|INCREX n BYINT 4 EX 100|INCREX f BYFLOAT 1e300 UBOUND 1e308|MSETEX 2 new70 @v new71 @v EX 100|SET s @v|SET new8 @v|SETEX new9 10 @v|PSETEX new10 10000 @v|SETNX new11 @v|GETSET s @v|GETDEL gone1|GETEX s EX 100
MSET new12 @v new13 @v|MSETNX new14 @v new15 @v|DELIFEQ gone2 no|DELEX gone3 IFEQ no|DEL gone2|UNLINK gone3|EXPIRE s 100|PEXPIRE s 100000
EXPIREAT s 99999|PEXPIREAT s 99999999|PERSIST s|RENAME gone4 new16|RENAMENX gone5 new17|COPY s new18|COPY l new19|COPY h new20|COPY z new21
COPY x new22|RESTORE new23 0 @ps|RESTORE new24 0 @pl|RESTORE new25 0 @pz|RESTORE new26 0 @ph|RESTORE new27 0 @pt|RESTORE new28 0 @px
RESTORE new29 0 @packed|TOUCH s|MOVE s 1|SORT l ALPHA STORE new30|SORT l BY nosort GET # GET sort* STORE new31
LPUSH l x|RPUSH new32 @|LPUSHX l @|RPUSHX l @|LPOP l|RPOP l 2|LSET l 0 @v|LINSERT l BEFORE e5 @v|LREM l 0 e7|LTRIM l 1 -1
LMOVE l new33 LEFT RIGHT|RPOPLPUSH l new34|LMPOP 1 l LEFT|BLPOP l 0|BRPOP l 0|BLMOVE l new35 LEFT RIGHT 0|BRPOPLPUSH l new36 0|BLMPOP 0 1 l LEFT
SADD t new|SADD new37 @|SREM t e5|SMOVE t new38 e6|SPOP t|SPOP t 2|SUNIONSTORE new39 t t2|SINTERSTORE new40 t2 t2|SDIFFSTORE new41 t2 i
ZADD z 7 new|ZADD new42 @z|ZINCRBY z 1 m5|ZREM z m6|ZREMRANGEBYRANK z 0 0|ZREMRANGEBYSCORE z 2 2|ZREMRANGEBYLEX z [m3 [m3|ZPOPMIN z|ZPOPMAX z 2
BZPOPMIN z 0|BZPOPMAX z 0|ZMPOP 1 z MIN|BZMPOP 0 1 z MIN|ZUNIONSTORE new43 2 z z2|ZUNIONSTORE new44 1 t|ZUNIONSTORE new45 2 z z2 WEIGHTS 2 3
ZINTERSTORE new46 2 z2 z2|ZDIFFSTORE new47 2 z2 i|ZRANGESTORE new48 z2 0 -1|ZRANGESTORE new49 z2 0 1|ZRANGESTORE new50 z2 0 +inf BYSCORE LIMIT 1 2
GEOADD g 15 37 c|GEOSEARCHSTORE new51 g FROMLONLAT 13 38 BYRADIUS 9000 km|GEORADIUS g 13 38 9000 km STORE new52|GEORADIUSBYMEMBER g a 9000 km STORE new53
HSET h new v|HSET new54 @2|HMSET new55 @2|HSETNX h nx @v|HINCRBY h count 1|HINCRBYFLOAT h float 1e300|HDEL h f5|HEXPIRE h 100 FIELDS 2 f1 f2|HPEXPIRE h 100000 FIELDS 1 f3
HEXPIREAT h 99999 FIELDS 1 f3|HPEXPIREAT h 99999999 FIELDS 1 f3|HPERSIST h FIELDS 1 f3|HGETEX h EX 100 FIELDS 1 f4|HSETEX h EX 100 FIELDS 1 f6 @v|HGETDEL h FIELDS 1 f6
PFADD p new|PFADD p2 new newer newest|PFADD new56 a|PFADD new57 @|PFADD p2 @|PFMERGE new58 p p2|XADD x 2-1 @2|XADD new59 * a @v|XADD x 2-2 a b|XDEL x 1-2|XTRIM x MAXLEN 9999999|XSETID x 9-9
XGROUP CREATE x e 0|XGROUP CREATE new60 e 0 MKSTREAM|XGROUP SETID x e 0|XGROUP CREATECONSUMER x c who|XREADGROUP GROUP c me STREAMS x >|XACK x c 1-1
XCLAIM x d you 0 1-1 FORCE|XAUTOCLAIM x d you 0 0|XGROUP DELCONSUMER x c who|XNACK x d FAIL IDS 1 1-1|XNACK x d FAIL IDS 1 1-2 FORCE|XADD new62 IDMP p q * a @v|XADD x IDMP a-longer-name-of-a-producer a-longer-name-of-an-entry MAXLEN 1 DELREF * a b
COPY t new80|COPY z2 new81|COPY h new82|COPY l new83|COPY x new84|COPY t2 new85|COPY z new86|SADD new80 more|SREM new80 @s|SPOP new85 100|ZREM z2 @m|HDEL new82 @f|LREM new83 0 e7|LTRIM new83 2 -3
XDEL new84 1-2|XTRIM new84 MAXLEN 1|ZREMRANGEBYRANK new86 1 -2|ZADD new86 1 more|HSET new82 more more|RPUSH new83 more|COPY new83 l REPLACE|RENAME new80 new87|SET new87 v
XCFGSET x IDMP-DURATION 7|XIDMPRECORD x a-producer a-name 1-1|XDELEX x ACKED IDS 1 1-2|XACKDEL x d DELREF IDS 1 2-2|XREADGROUP GROUP c me CLAIM 0 STREAMS x >|XGROUP DESTROY x c|SET new61 @v FENCE l 1|FLUSHDB|FLUSHALL
";

/// Writes of the table without an example, and why.
const WITHOUT: [&str; 0] = [];

struct Inputs {
    items: usize,
    payloads: Vec<(&'static str, Vec<u8>)>,
}

impl Inputs {
    fn words(&self, line: &str) -> Vec<Vec<u8>> {
        let each = |of: &dyn Fn(usize) -> Vec<String>| {
            (0..self.items).flat_map(of).map(String::into_bytes).collect::<Vec<_>>()
        };
        // Up to a hundred, in different parts of a tree.
        let some = |start: &str| {
            let is_chosen = |item: usize| item.is_multiple_of(self.items / 100 + 1);
            each(&|item| is_chosen(item).then(|| format!("{start}{item}")).into_iter().collect())
        };
        let expand = |word: &str| match word {
            "@v" => vec![vec![b'v'; 16 * self.items]],
            "@" => each(&|item| vec![format!("e{item}")]),
            "@2" => each(&|item| vec![format!("f{item}"), item.to_string()]),
            "@s" => some("e"),
            "@m" => some("m"),
            "@f" => some("f"),
            "@z" => each(&|item| vec![item.to_string(), format!("m{item}")]),
            "#" => vec![(8 * self.items).to_string().into_bytes()],
            word => match self.payloads.iter().find(|(name, _)| *name == word) {
                Some((_, payload)) => vec![payload.clone()],
                None => vec![word.as_bytes().to_vec()],
            },
        };
        line.split_whitespace().flat_map(expand).collect()
    }
}

/// Parses the words of a command; `None` if the node answers it by itself.
fn parsed<'a>(words: &'a ArgumentsBuffer, scratch: &'a mut Vec<u8>) -> Option<(&'static str, Command<'a>)> {
    let spec = commands::find(words.as_arguments()).unwrap_or_else(|error| panic!("{error}")).spec;
    let Handler::Data(parse) = spec.handler else { return None };
    let context = Context {
        now_ms: NOW_MS,
        value_bytes_max: 64 << 20,
        stream_node_entries: 100,
        database: 0,
        level: 2,
        encodings: EncodingLimits::default(),
    };
    let command = parse(words.as_arguments(), scratch, &context).unwrap_or_else(|error| panic!("{error}"));
    Some((spec.name, command))
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split(['\n', '|']).filter(|line| !line.is_empty())
}

struct World {
    table: Table,
    offset: u64,
    inputs: Inputs,
}

/// A list of eight compressed elements that expand to many times their size, as Redis writes it.
fn packed(items: usize) -> Vec<u8> {
    let blocks = 1 + items / 20;
    let length = 1 + 264 * blocks;
    let text = [&[0, b'z'][..], &[0xe0, 0xff, 0].repeat(blocks)].concat();
    let mut payload = vec![18];
    rdb::write::put_length(8, &mut payload);
    for _ in 0..8 {
        rdb::write::put_length(1, &mut payload);
        payload.push(0xc3);
        rdb::write::put_length(text.len() as u64, &mut payload);
        rdb::write::put_length(length as u64, &mut payload);
        payload.extend_from_slice(&text);
    }
    rdb::payload::close(rdb::payload::VERSION, 0, &mut payload);
    payload
}

impl World {
    fn new(items: usize) -> World {
        let inputs = Inputs { items, payloads: Vec::new() };
        let mut world = World { table: Table::new(1), offset: 0, inputs };
        for line in lines(FILL) {
            world.with(line, |table, offset, command| {
                let mut out = ReplyBuffer::new();
                table.apply(command, offset, NOW_MS, &mut out);
                assert!(!out.as_bytes().starts_with(b"-"), "{line}");
            });
        }
        for (name, key) in
            [("@ps", "s"), ("@pl", "l"), ("@pz", "z"), ("@ph", "h"), ("@pt", "t"), ("@px", "x")]
        {
            let mut out = ReplyBuffer::new();
            world.table.read(&Command::Dump { key: key.as_bytes() }, NOW_MS, &mut out);
            let kv::Reply::Bulk(payload) = kv::Reply::first(out.as_bytes()) else { panic!("{key}") };
            world.inputs.payloads.push((name, payload.to_vec()));
        }
        world.inputs.payloads.push(("@packed", packed(items)));
        world
    }

    /// Parses a line and passes the command to `visit`. Returns the name of its row.
    fn with(
        &mut self,
        line: &str,
        visit: impl FnOnce(&mut Table, u64, &Command<'_>),
    ) -> Option<&'static str> {
        let (mut words, mut scratch) = (ArgumentsBuffer::default(), Vec::new());
        self.inputs.words(line).iter().for_each(|word| words.push(word));
        let (name, command) = parsed(&words, &mut scratch)?;
        self.offset += 1;
        visit(&mut self.table, self.offset, &command);
        Some(name)
    }
}

#[test]
fn every_write_is_charged_for_at_least_what_it_takes_and_not_absurdly_more() {
    let (mut tried, mut wrong) = (BTreeSet::new(), Vec::new());
    for items in [10, 300, 20_000] {
        let mut world = World::new(items);
        for line in lines(TRIED) {
            let name = world.with(line, |table, offset, command| {
                let charge = command.charge_bytes(&table.sizes(NOW_MS));
                while table.tidy(1 << 20) {}
                let before = ALLOCATOR.current_usage() as u64;
                ALLOCATOR.reset_peak_usage();
                let (counted, shared) = (table.memory_bytes(), table.shared_bytes() as u64);
                table.apply_unasked(command, offset, NOW_MS);
                let allocated = (ALLOCATOR.peak_usage() as u64).saturating_sub(before);
                // What a change takes from what is shared was charged with the copy.
                let peak = (allocated + table.shared_bytes() as u64).saturating_sub(shared);
                // A copy of a tree shares its nodes for now. Its own bytes are charged even if they fit in place.
                let added = peak.max(table.memory_bytes().saturating_sub(counted) as u64);
                let own = command.payload_bytes() as u64;
                if peak > charge + SLACK_BYTES {
                    wrong.push(format!("{items} items: {line}: took {peak}, charged {charge}"));
                }
                if charge > TIMES * added + 2 * own + FIXED_BYTES {
                    wrong.push(format!("{items} items: {line}: charged {charge}, took only {added}"));
                }
            });
            tried.extend(name);
        }
    }
    let writes = commands::all().filter(|spec| spec.flags.has(Flag::Write));
    let writes = writes.filter(|spec| matches!(spec.handler, Handler::Data(_))).map(|spec| spec.name);
    let missing: Vec<_> = writes.filter(|name| !tried.contains(name) && !WITHOUT.contains(name)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(missing.is_empty(), "no line tries {missing:?}");
}
