//! Random programs of commands, sent to a node and to redis-server: both must give the same replies.
//!
//! A program is a sequence of steps, which starts without keys. Its commands are made from the templates in `templates.rs`,
//! with many edge cases, alone, in transactions and in scripts. The allowed differences are those that `compare.rs` names: the
//! variants of [`Alike`], the digits of numbers, keys that a script has not declared. A program with another difference is
//! shortened before it is shown.
//!
//! Seeds: a run of the tests takes some seconds and uses the same programs each time. To search for longer, with a seed
//! from the clock: `QUORATE_DIFFERENTIAL_MINUTES=60 cargo test -p quorate --test clients differential -- --nocapture`.
//! `QUORATE_DIFFERENTIAL_SEED` chooses another seed, and `QUORATE_DIFFERENTIAL_PROGRAM` one program of it.

mod compare;
mod reply;
mod rights;
mod templates;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::scripts::Redis;
use crate::support::{Cluster, connect};
use compare::{Alike, difference, parts_ways};
use reply::{Connection, Reply, printable};
use templates::{NOT_COMPARED, Template};

type Words = Vec<Vec<u8>>;

/// Some commands that stay together.
#[derive(Clone, Debug)]
struct Step {
    commands: Vec<Words>,
    /// How their replies are compared.
    alike: Alike,
    shape: Shape,
}

/// How the only command of a step is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Alone,
    /// In a script that returns its reply.
    InScript,
    /// Between `MULTI` and `EXEC`, twice.
    InTransaction,
}

/// A pseudo-random sequence (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// True in `times` of a hundred cases.
    fn percent(&mut self, times: usize) -> bool {
        self.below(100) < times
    }

    fn of<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len())]
    }
}

/// The two servers.
struct Pair {
    redis: Connection,
    quorate: Connection,
}

/// The first difference between two servers.
struct Difference {
    step: usize,
    command: Words,
    redis: Reply,
    quorate: Reply,
}

const STEPS: usize = 40;

impl Pair {
    /// Sends requests to both, and returns the replies of each.
    fn ask(&mut self, requests: Vec<Words>) -> [Vec<Reply>; 2] {
        [&mut self.redis, &mut self.quorate].map(|connection| {
            connection.send(&requests);
            connection.replies(requests.len())
        })
    }

    /// Runs a program, starting without keys. Returns the first difference.
    fn run(&mut self, steps: &[Step], resp: &[u8]) -> Option<Difference> {
        // A shortened program may have left a transaction open.
        let mut requests: Vec<Words> = vec![
            vec![b"DISCARD".to_vec()],
            vec![b"HELLO".to_vec(), resp.to_vec()],
            vec![b"FLUSHALL".to_vec()],
        ];
        let sent: Vec<Vec<Words>> = steps.iter().map(Step::requests).collect();
        requests.extend(sent.iter().flatten().cloned());
        self.redis.send(&requests);
        self.quorate.send(&requests);
        let theirs = self.redis.replies(requests.len());
        let ours = self.quorate.replies(requests.len());
        for replies in [&theirs, &ours] {
            assert_eq!(replies[2], Reply::Line(b"+OK".to_vec()), "a program starts without keys");
        }
        // The reply to HELLO names the server, so it is not compared.
        let mut at = 3;
        for (number, (step, sent)) in steps.iter().zip(&sent).enumerate() {
            let end = at + sent.len();
            let (theirs, ours) = (&theirs[at..end], ours[at..end].iter().map(without_later));
            let ours = &ours.collect::<Vec<_>>()[..];
            // After a transaction that Redis 7.0 has refused for it, the data differ.
            if ours.iter().any(parts_ways) || sent.iter().any(|words| is_of_later_redis(words)) {
                return None;
            }
            // Since 7.2 a consumer that gets nothing is created, too.
            let reads = sent.iter().flatten().any(|word| word.eq_ignore_ascii_case(b"XREADGROUP"));
            if reads && ours.iter().any(has_nothing) {
                return None;
            }
            if let Some(place) = difference(step.alike, theirs, ours) {
                return Some(Difference {
                    step: number,
                    command: sent[place].clone(),
                    redis: theirs[place].clone(),
                    quorate: ours[place].clone(),
                });
            }
            at = end;
        }
        None
    }

    /// Shortens a program that shows a difference: removes steps as long as a difference remains.
    fn shorten(&mut self, mut steps: Vec<Step>, resp: &[u8], first: Difference) -> (Vec<Step>, Difference) {
        let mut found = first;
        steps.truncate(found.step + 1);
        let mut length = steps.len().div_ceil(2);
        while length > 0 {
            let mut start = 0;
            while start < steps.len() {
                let mut fewer = steps.clone();
                fewer.drain(start..(start + length).min(steps.len()));
                match self.run(&fewer, resp) {
                    Some(difference) => {
                        fewer.truncate(difference.step + 1);
                        (steps, found) = (fewer, difference);
                    }
                    None => start += length,
                }
            }
            length /= 2;
        }
        (steps, found)
    }
}

impl Step {
    fn requests(&self) -> Vec<Words> {
        let (last, before) = self.commands.split_last().expect("a step has a command");
        let mut requests = before.to_vec();
        let word = |text: &str| text.as_bytes().to_vec();
        match self.shape {
            Shape::Alone => requests.push(last.clone()),
            Shape::InScript => {
                let keys = templates::all_keys();
                let mut words = vec![
                    word("EVAL"),
                    word("return redis.pcall(unpack(ARGV))"),
                    word(&keys.len().to_string()),
                ];
                words.extend(keys);
                words.extend(last.iter().cloned());
                requests.push(words);
            }
            Shape::InTransaction => {
                requests.extend([vec![word("MULTI")], last.clone(), last.clone(), vec![word("EXEC")]]);
            }
        }
        requests
    }
}

fn program(random: &mut Random, known: &[&Template]) -> Vec<Step> {
    (0..STEPS)
        .map(|_| {
            let template = known[random.below(known.len())];
            let commands = template.make(random);
            let shape = match random.below(10) {
                0 if commands.len() == 1 => Shape::InScript,
                1 if commands.len() == 1 => Shape::InTransaction,
                _ => Shape::Alone,
            };
            Step { commands, alike: template.alike, shape }
        })
        .collect()
}

/// The names of all commands and subcommands of a server.
fn full_names(connection: &mut Connection) -> Vec<String> {
    connection.send(&[vec![b"COMMAND".to_vec(), b"LIST".to_vec()]]);
    let Some(Reply::Elements(_, names)) = connection.replies(1).pop() else { panic!("COMMAND LIST") };
    names.iter().map(|name| String::from_utf8_lossy(name.bytes()).to_lowercase()).collect()
}

/// The names of all commands of a server.
fn commands_of(connection: &mut Connection) -> Vec<String> {
    // Subcommands follow their command's name.
    full_names(connection).into_iter().filter(|name| !name.contains('|')).collect()
}

/// A number in the environment.
fn number_of(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"))
}

/// The seed, and for how long to search; without such a time, the tests use the same seed each time.
fn seed_and_time() -> (u64, Option<Duration>) {
    let minutes = number_of("QUORATE_DIFFERENTIAL_MINUTES");
    let seed = number_of("QUORATE_DIFFERENTIAL_SEED").unwrap_or_else(|| match minutes {
        None => 1,
        Some(_) => std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |time| time.as_secs()),
    });
    (seed, minutes.map(|minutes| Duration::from_secs(minutes * 60)))
}

fn show(steps: &[Step], found: &Difference) -> String {
    let mut text = String::new();
    for words in steps.iter().flat_map(Step::requests) {
        text += &format!("    {}\n", words.iter().map(|word| printable(word)).collect::<Vec<_>>().join(" "));
    }
    let last = found.command.iter().map(|word| printable(word)).collect::<Vec<_>>().join(" ");
    // Long replies differ at the beginning, or in their lengths.
    let start = |reply: &Reply| reply.to_string().chars().take(1000).collect::<String>();
    format!("{text}  {last}\n  redis:   {}\n  quorate: {}\n", start(&found.redis), start(&found.quorate))
}

#[test]
fn random_programs_get_the_replies_of_redis() {
    compare_programs("prefix= replication=consensus durability=os", 600, &[]);
}

/// What is refused where its keys are in several shards, or has another order of keys there: commands that wait, patterns, and
/// commands on all keys, which no transaction has.
const NOT_OVER_SHARDS: [&str; 17] = [
    "BLPOP",
    "BRPOP",
    "BLMOVE",
    "BRPOPLPUSH",
    "BLMPOP",
    "BZPOPMIN",
    "BZPOPMAX",
    "BZMPOP",
    "SORT",
    "SORT_RO",
    "SCAN",
    "KEYS",
    "RANDOMKEY",
    "DBSIZE",
    "FLUSHALL",
    "FLUSHDB",
    "OBJECT",
];

/// Keys of several shards are used in one step, in commands, transactions and scripts.
#[test]
fn random_programs_over_several_shards_get_the_replies_of_redis() {
    compare_programs("prefix= replication=consensus durability=os shards=3", 200, &NOT_OVER_SHARDS);
}

fn compare_programs(keyspace: &str, count: usize, without: &[&str]) {
    let Some(server) = Redis::start_of("7.0.") else { return };
    let cluster = Cluster::start(1, &[keyspace]);
    let mut pair =
        Pair { redis: Connection::new(connect(server.1)), quorate: Connection::new(cluster.raw(1)) };
    let (theirs, ours) = (commands_of(&mut pair.redis), commands_of(&mut pair.quorate));
    let both = |name: &str| ours.iter().any(|own| own == name) && theirs.iter().any(|their| their == name);
    let known: Vec<&Template> = (templates::TEMPLATES.iter())
        .filter(|template| template.names().all(|name| !without.contains(&name)))
        .filter(|template| template.names().all(|name| name == "NOSUCH" || both(&name.to_lowercase())))
        .collect();
    let missing: Vec<&String> = (ours.iter())
        .filter(|name| both(name) && !NOT_COMPARED.contains(&name.as_str()))
        .filter(|name| !without.contains(&name.to_uppercase().as_str()))
        .filter(|name| {
            !known.iter().flat_map(|known| known.names()).any(|known| known.eq_ignore_ascii_case(name))
        })
        .collect();
    assert!(missing.is_empty(), "templates.rs has no template for {missing:?}");

    let (seed, time) = seed_and_time();
    let only = number_of("QUORATE_DIFFERENTIAL_PROGRAM").map(|only| only as usize);
    let programs = match (only, time) {
        (Some(only), _) => only + 1,
        (None, Some(_)) => usize::MAX,
        (None, None) => count,
    };
    let time = time.unwrap_or(Duration::from_secs(300));
    println!("seed {seed}");

    const SHOWN_MAX: usize = 30;
    let begin = Instant::now();
    // By the name of the command whose replies differ.
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    let mut count = only.unwrap_or(0);
    while count < programs && begin.elapsed() < time && found.len() < SHOWN_MAX {
        let mut random = Random(seed.wrapping_mul(1 << 32).wrapping_add(count as u64));
        let resp: &[u8] = if random.percent(50) { b"2" } else { b"3" };
        let steps = program(&mut random, &known);
        if let Some(first) = pair.run(&steps, resp) {
            let (steps, difference) = pair.shorten(steps, resp, first);
            let last = steps.last().and_then(|step| step.commands.last()).and_then(|words| words.first());
            let name = String::from_utf8_lossy(last.map_or(b"", |name| name)).to_uppercase();
            let text = show(&steps, &difference);
            let resp = String::from_utf8_lossy(resp).into_owned();
            found.entry(name).or_insert_with(|| format!("program {count}, RESP{resp}:\n{text}"));
        }
        count += 1;
    }
    println!("{count} programs of {STEPS} steps in {} s", begin.elapsed().as_secs());
    let texts: Vec<String> = found.into_values().collect();
    assert!(texts.is_empty(), "seed {seed}: {} differences\n{}", texts.len(), texts.join("\n"));
}

/// Whether a reply has a null in it.
fn has_nothing(reply: &Reply) -> bool {
    match reply {
        Reply::Line(line) => matches!(&line[..], b"*-1" | b"$-1" | b"_"),
        Reply::Bulk(_) => false,
        Reply::Elements(_, elements) => elements.iter().any(has_nothing),
    }
}

/// A reply without the facts that Redis 7.0 does not give: for how long a consumer has got nothing, since 7.2.
fn without_later(reply: &Reply) -> Reply {
    let Reply::Elements(kind, elements) = reply else { return reply.clone() };
    let (mut left, mut elements) = (Vec::new(), elements.iter());
    while let Some(element) = elements.next() {
        match element {
            Reply::Bulk(name) if name == b"inactive" => drop(elements.next()),
            element => left.push(without_later(element)),
        }
    }
    Reply::Elements(*kind, left)
}

/// Whether a request has a form that Redis 7.0 does not know, or another answer to it: the rank with the score, since 7.2; half a
/// range of bits, which is an error also where there is no key since then.
fn is_of_later_redis(words: &[Vec<u8>]) -> bool {
    let is = |name: &[u8]| words[0].eq_ignore_ascii_case(name);
    (is(b"ZRANK") || is(b"ZREVRANK")) && words.len() > 3 || is(b"BITCOUNT") && words.len() == 3
}
