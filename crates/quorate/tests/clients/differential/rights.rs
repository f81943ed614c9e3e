//! Random rules of a user, and random commands: `ACL DRYRUN` must answer as redis-server does, so that nobody may do here what
//! Redis forbids, or the other way round.
//!
//! The differences that are meant are those of [`is_meant`].

use super::*;

/// Users, and commands that are tried as each.
const USERS: usize = 150;
const TRIED: usize = 60;

const CATEGORIES: [&str; 22] = [
    "all",
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

fn word(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

/// A pattern that matches some of the keys of templates.
fn pattern(random: &mut Random) -> String {
    let keys: Vec<Vec<u8>> = templates::all_keys().into_iter().filter(|key| !key.is_empty()).collect();
    let key = String::from_utf8_lossy(&keys[random.below(keys.len())]).into_owned();
    match random.below(5) {
        0 => "*".into(),
        1 => format!("{}*", &key[..1]),
        2 => format!("*{}", &key[key.len() - 1..]),
        3 => format!("?{}", &key[1..]),
        _ => key,
    }
}

/// A rule inside or outside of brackets.
fn rule(random: &mut Random, commands: &[String]) -> String {
    let sign = if random.percent(60) { "+" } else { "-" };
    let command = &commands[random.below(commands.len())];
    match random.below(12) {
        0..=3 => format!("{sign}@{}", random.of(&CATEGORIES)),
        4 | 5 => format!("{sign}{command}"),
        6 => format!("~{}", pattern(random)),
        7 | 8 => format!("%R~{}", pattern(random)),
        9 | 10 => format!("%W~{}", pattern(random)),
        _ => format!("&{}", random.of(&["*", "c*", "ch1", "k:t"])),
    }
}

fn user(random: &mut Random, commands: &[String]) -> Words {
    let mut words = vec![word("ACL"), word("SETUSER"), word("u"), word("reset")];
    if random.percent(60) {
        words.push(word("+@all"));
    }
    for _ in 0..1 + random.below(6) {
        let inside: Vec<String> = (0..1 + random.below(4)).map(|_| rule(random, commands)).collect();
        match random.percent(15) {
            true => words.push(word(&format!("({})", inside.join(" ")))),
            false => words.push(word(&inside[0])),
        }
    }
    words
}

/// A command of a template, or one that has none, with as many arguments as it needs or a few more.
fn command(random: &mut Random, known: &[&Template], commands: &[String]) -> Words {
    if random.percent(70) {
        let template = known[random.below(known.len())];
        return template.make(random).pop().expect("a template has a command");
    }
    let name = &commands[random.below(commands.len())];
    let mut words: Words = name.split('|').map(word).collect();
    let keys = templates::all_keys();
    words.extend((0..random.below(6)).map(|_| keys[random.below(keys.len())].clone()));
    words
}

/// Commands whose forms differ: `DEBUG` has subcommands here, and `PSYNC` takes no more arguments than it needs.
const OTHER_FORMS: [&str; 2] = ["debug", "psync"];

/// Whether two answers differ for a reason that is meant.
fn is_meant(tried: &[Vec<u8>], theirs: &Reply, ours: &Reply) -> bool {
    let name = String::from_utf8_lossy(&tried[0]).to_lowercase();
    let ours = String::from_utf8_lossy(ours.bytes()).to_lowercase();
    // In Redis 7.0 no star matches an empty name.
    if theirs.bytes().ends_with(b" access the '' key") {
        return true;
    }
    if theirs.bytes() != b"OK" {
        return false;
    }
    // The rest is allowed by Redis, and refused here.
    match name.as_str() {
        // They return entries, scores, or what compares them.
        "xclaim" | "xautoclaim" | "zadd" => ours.contains("' key"),
        // Redis checks what BY and GET read when it sorts.
        "sort" | "sort_ro" if ours.contains("by option") || ours.contains("get option") => true,
        // The last of several options counts, and each is checked.
        "sort" | "georadius" | "georadiusbymember" => {
            tried.iter().filter(|it| it.to_ascii_uppercase().starts_with(b"STORE")).count() > 1
        }
        // Without a valid number of keys, Redis does not look at the key before it either.
        "zunionstore" | "zinterstore" | "zdiffstore" => {
            let count = std::str::from_utf8(&tried[2]).ok().and_then(|text| text.parse::<usize>().ok());
            count.is_none_or(|count| count == 0 || count > tried.len() - 3)
        }
        // Where its sources are missing, Redis does not look at its target.
        "pfmerge" => tried.len() == 2,
        // It is not known which arguments are keys: the command will be refused anyway.
        _ => ours.contains(&format!("access the '{name}' key")),
    }
}

#[test]
fn users_may_do_what_redis_lets_them_do() {
    let Some(server) = Redis::start_of("7.0.") else { return };
    let cluster = Cluster::start(1, &["prefix= replication=consensus durability=os"]);
    let mut pair =
        Pair { redis: Connection::new(connect(server.1)), quorate: Connection::new(cluster.raw(1)) };
    let (theirs, ours) = (full_names(&mut pair.redis), full_names(&mut pair.quorate));
    let commands: Vec<String> = (theirs.into_iter())
        .filter(|name| ours.contains(name) && !OTHER_FORMS.contains(&name.as_str()))
        .collect();
    let known: Vec<&Template> = (templates::TEMPLATES.iter())
        .filter(|it| it.names().all(|name| commands.contains(&name.to_lowercase())))
        .collect();
    let (seed, time) = seed_and_time();
    println!("seed {seed}");
    let begin = Instant::now();
    let mut found = Vec::new();
    let (mut allowed, mut denied) = (0, 0);
    for number in 0..time.map_or(USERS, |_| usize::MAX) {
        if time.is_some_and(|time| begin.elapsed() > time) || found.len() > 20 {
            break;
        }
        let mut random = Random(seed.wrapping_mul(1 << 32).wrapping_add(number as u64));
        let rules = user(&mut random, &commands);
        let [theirs, ours] = pair.ask(vec![rules.clone()]);
        if theirs != ours {
            found.push(format!("{}\n  redis: {}\n  quorate: {}", line(&rules), theirs[0], ours[0]));
            continue;
        }
        let tried: Vec<Words> = (0..TRIED).map(|_| command(&mut random, &known, &commands)).collect();
        let dry = |words: &Words| [vec![word("ACL"), word("DRYRUN"), word("u")], words.clone()].concat();
        let [theirs, ours] = pair.ask(tried.iter().map(dry).collect());
        for ((tried, theirs), ours) in tried.iter().zip(&theirs).zip(&ours) {
            (allowed, denied) = match theirs.bytes() == b"OK" {
                true => (allowed + 1, denied),
                false => (allowed, denied + 1),
            };
            // The errors of commands that do not exist in this form are compared elsewhere.
            let are_errors =
                [theirs, ours].iter().all(|it| matches!(it, Reply::Line(text) if text[0] == b'-'));
            // Redis 7.0 names no user here; 8.6 does.
            let is_same = theirs.to_string().replace("This user has", "User u has") == ours.to_string();
            if !is_same && !are_errors && !is_of_later_redis(tried) && !is_meant(tried, theirs, ours) {
                let (rules, tried) = (line(&rules), line(tried));
                found.push(format!("{rules}\n  {tried}\n  redis: {theirs}\n  quorate: {ours}"));
            }
        }
    }
    println!("{allowed} allowed and {denied} denied in {} s", begin.elapsed().as_secs());
    assert!(found.is_empty(), "seed {seed}: {} differences\n{}", found.len(), found.join("\n"));
    assert!(allowed > 500 && denied > 500, "{allowed} allowed and {denied} denied");
}

fn line(words: &[Vec<u8>]) -> String {
    words.iter().map(|word| printable(word)).collect::<Vec<_>>().join(" ")
}
