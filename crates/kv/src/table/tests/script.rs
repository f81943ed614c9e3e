//! Plays a script: each line is a command, an arrow and the expected reply.
//!
//! `wait 100` on a line of its own lets 100 ms pass. Words are separated by spaces; `""` is the empty word and `\0` a
//! zero byte. This parses only the part of Redis's syntax that the tests need; the real parser is elsewhere.

use super::Store;
use crate::command::{
    AddOptions, Aggregate, By, Command, Comparison, Condition, Deadline, EncodingLimits, ExpireCondition,
    Expiry, ExpiryUnit, FieldsCondition, HashCommand, HashPart, List, ListCommand, ONE_DELIVERY_LESS,
    References, SAME_DELIVERIES, SetAnswer, SetCommand, SetOperation, SortedCommand, Step, StreamCommand,
    Trim, at_most_added,
};
use crate::number;

impl Store {
    #[track_caller]
    pub(super) fn play(&mut self, script: &str) {
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            if let Some(milliseconds) = line.strip_prefix("wait ") {
                self.time += milliseconds.parse::<u64>().unwrap();
                continue;
            }
            let (words, expected) = line.split_once("->").unwrap();
            let words: Vec<Vec<u8>> = words.split_whitespace().map(word).collect();
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let mut scratch = Vec::new();
            let command = parse(&words, &mut scratch);
            let reply = if command.is_write() { self.apply(&command) } else { self.read(&command) };
            assert_eq!(reply, expected.trim(), "in the line: {line}");
        }
    }
}

/// Plays a script on an empty table at the time 1,000,000 ms.
#[track_caller]
pub(super) fn play(script: &str) {
    Store::new().play(script);
}

pub(super) fn word(text: &str) -> Vec<u8> {
    if text == "\"\"" { Vec::new() } else { text.replace("\\0", "\0").into_bytes() }
}

fn number(word: &[u8]) -> i64 {
    std::str::from_utf8(word).unwrap().parse().unwrap()
}

fn deadline(unit: &[u8], amount: &[u8]) -> Deadline {
    match unit {
        b"EX" => Deadline::In(number(amount) * 1000),
        b"PX" => Deadline::In(number(amount)),
        b"EXAT" => Deadline::At(number(amount) * 1000),
        b"PXAT" => Deadline::At(number(amount)),
        _ => panic!("no unit of expiry: {}", unit.escape_ascii()),
    }
}

fn expiry(options: &[&[u8]], otherwise: Expiry) -> Expiry {
    match options {
        [b"KEEPTTL", ..] => Expiry::Keep,
        [b"PERSIST", ..] => Expiry::Clear,
        [unit @ (b"EX" | b"PX" | b"EXAT" | b"PXAT"), amount, ..] => Expiry::Set(deadline(unit, amount)),
        [_, rest @ ..] => expiry(rest, otherwise),
        [] => otherwise,
    }
}

fn comparison<'a>(words: &[&'a [u8]]) -> Option<Comparison<'a>> {
    let digest = |hex| Comparison::digest_from_hex(hex).unwrap();
    match *words {
        [b"IFEQ", value, ..] => Some(Comparison::Equal(value)),
        [b"IFNE", value, ..] => Some(Comparison::NotEqual(value)),
        [b"IFDEQ", hex, ..] => Some(Comparison::DigestEqual(digest(hex))),
        [b"IFDNE", b"?", ..] => Some(Comparison::NoDigest),
        [b"IFDNE", hex, ..] => Some(Comparison::DigestNotEqual(digest(hex))),
        [_, ref rest @ ..] => comparison(rest),
        [] => None,
    }
}

fn count_of(text: &[u8]) -> usize {
    number::parse_integer(text).unwrap() as usize
}

fn increment_within<'a>(key: &'a [u8], options: &[&'a [u8]]) -> Command<'a> {
    let has = |option: &[u8]| options.contains(&option);
    let after = |option: &[u8]| options.iter().position(|it| *it == option).map(|at| options[at + 1]);
    let whole = |option, none| after(option).map_or(none, |text| number::parse_integer(text).unwrap());
    let decimal = |option, none| after(option).map_or(none, |text| number::parse_float(text).unwrap());
    let step = match after(b"BYFLOAT") {
        Some(by) => {
            Step::Decimal { by, least: decimal(b"LBOUND", -f64::MAX), most: decimal(b"UBOUND", f64::MAX) }
        }
        None => Step::Whole {
            by: whole(b"BYINT", 1),
            least: whole(b"LBOUND", i64::MIN),
            most: whole(b"UBOUND", i64::MAX),
        },
    };
    let expiry = expiry(options, Expiry::Keep);
    Command::IncrementWithin { key, step, saturates: has(b"SATURATE"), expiry, if_without: has(b"ENX") }
}

fn set<'a>(key: &'a [u8], value: &'a [u8], options: &[&'a [u8]]) -> Command<'a> {
    let has = |option: &[u8]| options.contains(&option);
    if let Some(comparison) = comparison(options) {
        let answer = if has(b"GET") { SetAnswer::Before } else { SetAnswer::Status };
        return Command::SetIf { key, value, expiry: expiry(options, Expiry::Clear), comparison, answer };
    }
    let condition = match (has(b"NX"), has(b"XX")) {
        (true, _) => Condition::IfAbsent,
        (_, true) => Condition::IfPresent,
        _ => Condition::Always,
    };
    let answer = if has(b"GET") { SetAnswer::Before } else { SetAnswer::Status };
    Command::Set { key, value, expiry: expiry(options, Expiry::Clear), condition, answer }
}

fn expire_condition(options: &[&[u8]]) -> ExpireCondition {
    match options {
        [] => ExpireCondition::Always,
        [b"NX"] => ExpireCondition::IfNone,
        [b"XX"] => ExpireCondition::IfSome,
        [b"GT"] => ExpireCondition::IfLater,
        [b"LT"] => ExpireCondition::IfEarlier,
        [b"XX", b"GT"] => ExpireCondition::IfSomeAndLater,
        [b"XX", b"LT"] => ExpireCondition::IfSomeAndEarlier,
        _ => panic!("no condition for EXPIRE"),
    }
}

fn hash<'a>(words: &[&'a [u8]], scratch: &'a mut Vec<u8>) -> Command<'a> {
    // The options in front of the fields, for commands that introduce the fields by `FIELDS`.
    let fields_at = words.iter().position(|word| *word == b"FIELDS");
    let skipped = fields_at.map_or(2, |at| at + 1);
    let list = List::build(scratch, words.iter().skip(skipped).copied());
    let options = words.get(2..fields_at.unwrap_or(2)).unwrap_or_default();
    let expiry = expiry(options, Expiry::Clear);
    Command::Hash(match *words {
        [b"HEXPIRE", key, unit, amount, ..] => {
            let (deadline, condition) = (deadline(unit, amount), expire_condition(&options[2..]));
            HashCommand::Expire { key, fields: list, deadline, condition }
        }
        [b"HTTL", key, ..] => HashCommand::TimeToLive { key, fields: list, unit: ExpiryUnit::SecondsLeft },
        [b"HPTTL", key, ..] => {
            HashCommand::TimeToLive { key, fields: list, unit: ExpiryUnit::MillisecondsLeft }
        }
        [b"HEXPIRETIME", key, ..] => {
            HashCommand::TimeToLive { key, fields: list, unit: ExpiryUnit::UnixSeconds }
        }
        [b"HPEXPIRETIME", key, ..] => {
            HashCommand::TimeToLive { key, fields: list, unit: ExpiryUnit::UnixMilliseconds }
        }
        [b"HPERSIST", key, ..] => HashCommand::Persist { key, fields: list },
        [b"HGETEX", key, ..] => HashCommand::GetExpire { key, fields: list, expiry },
        [b"HGETDEL", key, ..] => HashCommand::GetDelete { key, fields: list },
        [b"HSETEX", key, ..] => {
            let has = |option: &[u8]| options.contains(&option);
            let one_of = |absent: &[u8], present: &[u8]| match (has(absent), has(present)) {
                (true, _) => Condition::IfAbsent,
                (_, true) => Condition::IfPresent,
                _ => Condition::Always,
            };
            let condition = FieldsCondition { key: one_of(b"NX", b"XX"), fields: one_of(b"FNX", b"FXX") };
            HashCommand::SetExpire { key, pairs: list, expiry, condition }
        }
        [b"HRANDFIELD", key, ref rest @ ..] => {
            let (count, with_values) = (rest.first().map(|count| number(count)), rest.len() > 1);
            HashCommand::Random { key, count, with_values }
        }
        [b"HGET", key, field] => HashCommand::Get { key, field },
        [b"HMGET", key, ..] => HashCommand::MultiGet { key, fields: list },
        [b"HGETALL", key] => HashCommand::All { key, part: HashPart::Both },
        [b"HKEYS", key] => HashCommand::All { key, part: HashPart::Fields },
        [b"HVALS", key] => HashCommand::All { key, part: HashPart::Values },
        [b"HLEN", key] => HashCommand::Length { key },
        [b"HEXISTS", key, field] => HashCommand::Exists { key, field },
        [b"HSTRLEN", key, field] => HashCommand::ValueLength { key, field },
        [b"HSCAN", key, b"0", b"MATCH", pattern] => {
            HashCommand::Scan { key, position: 0, count: 10, pattern: Some(pattern), with_values: true }
        }
        [b"HSET", key, ..] => HashCommand::Set { key, pairs: list, counts: true },
        [b"HMSET", key, ..] => HashCommand::Set { key, pairs: list, counts: false },
        [b"HSETNX", key, field, value] => HashCommand::SetIfAbsent { key, field, value },
        [b"HDEL", key, ..] => HashCommand::Delete { key, fields: list },
        [b"HINCRBY", key, field, delta] => HashCommand::IncrementBy { key, field, delta: number(delta) },
        [b"HINCRBYFLOAT", key, field, delta] => HashCommand::IncrementByFloat { key, field, delta },
        _ => panic!("not in this script's language: {}", words.join(&b' ').escape_ascii()),
    })
}

fn list<'a>(words: &[&'a [u8]], scratch: &'a mut Vec<u8>) -> Command<'a> {
    let is_front = |word: &[u8]| word == b"LEFT";
    let option = |name: &[u8]| words.iter().position(|word| *word == name).map(|at| number(words[at + 1]));
    Command::OnList(match *words {
        [b"LLEN", key] => ListCommand::Length { key },
        [b"LINDEX", key, rank] => ListCommand::Index { key, rank: number(rank) },
        [b"LRANGE", key, start, end] => ListCommand::Range { key, start: number(start), end: number(end) },
        [b"LPOS", key, element, ..] => ListCommand::Position {
            key,
            element,
            skip: option(b"RANK").unwrap_or(1),
            count: option(b"COUNT").map(|count| count as u64),
            compared_max: option(b"MAXLEN").unwrap_or(0) as u64,
        },
        [name @ (b"LPUSH" | b"RPUSH" | b"LPUSHX" | b"RPUSHX"), key, ref elements @ ..] => {
            let elements = List::build(scratch, elements.iter().copied());
            let (at_front, if_present) = (name[0] == b'L', name.len() == 6);
            ListCommand::Push { key, elements, at_front, if_present }
        }
        [name @ (b"LPOP" | b"RPOP"), key, ref count @ ..] => {
            let count = count.first().map(|count| number(count) as u64);
            ListCommand::Pop { key, at_front: name[0] == b'L', count }
        }
        [b"LSET", key, rank, element] => ListCommand::Set { key, rank: number(rank), element },
        [b"LINSERT", key, side, pivot, element] => {
            ListCommand::Insert { key, is_before: side == b"BEFORE", pivot, element }
        }
        [b"LREM", key, count, element] => ListCommand::Remove { key, count: number(count), element },
        [b"LTRIM", key, start, end] => ListCommand::Trim { key, start: number(start), end: number(end) },
        [b"LMOVE", from, to, from_end, to_end] => {
            ListCommand::Move { from, to, from_front: is_front(from_end), to_front: is_front(to_end) }
        }
        [b"LMPOP", ref keys @ .., end, count] => {
            let keys = List::build(scratch, keys.iter().copied());
            ListCommand::MultiPop { keys, at_front: is_front(end), count: number(count) as u64 }
        }
        [name @ (b"BLPOP" | b"BRPOP"), ref keys @ .., b"0"] => {
            let keys = List::build(scratch, keys.iter().copied());
            ListCommand::PopAny { keys, at_front: name == b"BLPOP" }
        }
        _ => panic!("not in this script's language: {}", words.join(&b' ').escape_ascii()),
    })
}

fn set_command<'a>(words: &[&'a [u8]], scratch: &'a mut Vec<u8>) -> Command<'a> {
    let list = |from: usize, scratch: &'a mut Vec<u8>| List::build(scratch, words[from..].iter().copied());
    let operation = match words[0].get(1) {
        Some(b'I') => SetOperation::Intersection,
        Some(b'U') => SetOperation::Union,
        _ => SetOperation::Difference,
    };
    Command::OnSet(match *words {
        [b"SCARD", key] => SetCommand::Length { key },
        [b"SISMEMBER", key, member] => SetCommand::Contains { key, member },
        [b"SMISMEMBER", key, ..] => SetCommand::ContainsEach { key, members: list(2, scratch) },
        [b"SMEMBERS", key] => SetCommand::All { key },
        [b"SRANDMEMBER", key, ref count @ ..] => {
            SetCommand::Random { key, count: count.first().map(|count| number(count)) }
        }
        [b"SSCAN", key, position, count] => {
            let (position, count) = (number(position) as u64, number(count) as u64);
            SetCommand::Scan { key, position, count, pattern: None }
        }
        [b"SSCAN", key, b"0", b"MATCH", pattern] => {
            SetCommand::Scan { key, position: 0, count: 100, pattern: Some(pattern) }
        }
        [b"SINTERCARD", limit, ..] => {
            SetCommand::CountCommon { keys: list(2, scratch), limit: number(limit) as u64 }
        }
        [b"SINTER" | b"SUNION" | b"SDIFF", ..] => SetCommand::Combine { operation, keys: list(1, scratch) },
        [b"SADD", key, ..] => SetCommand::Add { key, members: list(2, scratch) },
        [b"SREM", key, ..] => SetCommand::Remove { key, members: list(2, scratch) },
        [b"SMOVE", from, to, member] => SetCommand::Move { from, to, member },
        [b"SPOP", key, ref count @ ..] => {
            SetCommand::Pop { key, count: count.first().map(|count| number(count) as u64) }
        }
        [b"SINTERSTORE" | b"SUNIONSTORE" | b"SDIFFSTORE", to, ..] => {
            SetCommand::Store { operation, to, keys: list(2, scratch) }
        }
        _ => panic!("not in this script's language: {}", words.join(&b' ').escape_ascii()),
    })
}

fn sorted<'a>(words: &[&'a [u8]], scratch: &'a mut Vec<u8>) -> Command<'a> {
    let has = |option: &[u8]| words.contains(&option);
    let list = |from: usize, scratch: &'a mut Vec<u8>| List::build(scratch, words[from..].iter().copied());
    let with_scores = has(b"WITHSCORES");
    let operation = match words[0].get(1) {
        Some(b'I') => SetOperation::Intersection,
        Some(b'U') => SetOperation::Union,
        _ => SetOperation::Difference,
    };
    let options = AddOptions {
        only_new: has(b"NX"),
        only_old: has(b"XX"),
        only_greater: has(b"GT"),
        only_less: has(b"LT"),
    };
    let by = if has(b"BYSCORE") || words[0].ends_with(b"SCORE") || words[0] == b"ZCOUNT" {
        By::Score
    } else if has(b"BYLEX") || words[0].ends_with(b"LEX") || words[0] == b"ZLEXCOUNT" {
        By::Member
    } else {
        By::Rank
    };
    Command::OnSorted(match *words {
        [b"ZCARD", key] => SortedCommand::Length { key },
        [b"ZSCORE", key, member] => SortedCommand::Score { key, member },
        [b"ZMSCORE", key, ..] => SortedCommand::Scores { key, members: list(2, scratch) },
        [b"ZRANK", key, member] => SortedCommand::Rank { key, member, is_reverse: false },
        [b"ZREVRANK", key, member] => SortedCommand::Rank { key, member, is_reverse: true },
        [b"ZRANK", key, member, b"WITHSCORE"] => {
            SortedCommand::RankWithScore { key, member, is_reverse: false }
        }
        [b"ZREVRANK", key, member, b"WITHSCORE"] => {
            SortedCommand::RankWithScore { key, member, is_reverse: true }
        }
        [b"ZCOUNT" | b"ZLEXCOUNT", key, ..] => SortedCommand::Count { key, by, ends: list(2, scratch) },
        [b"ZRANGE", key, start, end, ..] => {
            let limit = words.iter().position(|word| word == b"LIMIT");
            let number_at = |at: usize| number(words[at]) as u32;
            let (skip, count) = limit.map_or((0, u32::MAX), |at| (number_at(at + 1), number_at(at + 2)));
            let ends = List::build(scratch, [start, end]);
            SortedCommand::Range { key, by, ends, is_reverse: has(b"REV"), skip, count, with_scores }
        }
        [b"ZRANGESTORE", to, from, ..] => {
            let (ends, is_reverse) = (list(3, scratch), false);
            SortedCommand::StoreRange { to, from, by, ends, is_reverse, skip: 0, count: u32::MAX }
        }
        [b"ZREMRANGEBYRANK" | b"ZREMRANGEBYSCORE" | b"ZREMRANGEBYLEX", key, ..] => {
            SortedCommand::RemoveRange { key, by, ends: list(2, scratch) }
        }
        [b"ZRANDMEMBER", key, ref count @ ..] => {
            SortedCommand::Random { key, count: count.first().map(|count| number(count)), with_scores }
        }
        [b"ZSCAN", key, b"0", b"MATCH", pattern] => {
            SortedCommand::Scan { key, position: 0, count: 100, pattern: Some(pattern) }
        }
        [b"ZSCAN", key, b"0", b"NOSCORES"] => {
            SortedCommand::ScanMembers { key, position: 0, count: 100, pattern: None }
        }
        [b"ZSCAN", key, position, count] => {
            let (position, count) = (number(position) as u64, number(count) as u64);
            SortedCommand::Scan { key, position, count, pattern: None }
        }
        [b"ZADD", key, .., delta, member] if has(b"INCR") => {
            SortedCommand::Increment { key, delta, member, options }
        }
        [b"ZINCRBY", key, delta, member] => SortedCommand::Increment { key, delta, member, options },
        [b"ZADD", key, ref pairs @ ..] => {
            let flags: [&[u8]; 5] = [b"NX", b"XX", b"GT", b"LT", b"CH"];
            let pairs = List::build(scratch, pairs.iter().copied().filter(|word| !flags.contains(word)));
            SortedCommand::Add { key, pairs, options, counts_changes: has(b"CH") }
        }
        [b"ZREM", key, ..] => SortedCommand::Remove { key, members: list(2, scratch) },
        [name @ (b"ZPOPMIN" | b"ZPOPMAX"), key, ref count @ ..] => {
            let count = count.first().map(|count| number(count) as u64);
            SortedCommand::Pop { key, is_highest: name == b"ZPOPMAX", count }
        }
        [b"ZMPOP", ref keys @ .., end, count] => {
            let keys = List::build(scratch, keys.iter().copied());
            SortedCommand::MultiPop { keys, is_highest: end == b"MAX", count: number(count) as u64 }
        }
        [name @ (b"BZPOPMIN" | b"BZPOPMAX"), ref keys @ .., b"0"] => {
            let keys = List::build(scratch, keys.iter().copied());
            SortedCommand::PopAny { keys, is_highest: name == b"BZPOPMAX" }
        }
        [b"ZINTERCARD", limit, ..] => {
            SortedCommand::CountCommon { keys: list(2, scratch), limit: number(limit) as u64 }
        }
        [name, ..] => {
            let is_stored = name.ends_with(b"STORE");
            let is_weighted = has(b"WEIGHTS");
            let flags: [&[u8]; 4] = [b"WEIGHTS", b"WITHSCORES", b"MAX", b"MIN"];
            let inputs = words.iter().copied().skip(if is_stored { 2 } else { 1 });
            let inputs = List::build(scratch, inputs.filter(|word| !flags.contains(word)));
            let aggregate = match (has(b"MAX"), has(b"MIN")) {
                (true, _) => Aggregate::Greatest,
                (_, true) => Aggregate::Least,
                _ => Aggregate::Sum,
            };
            match is_stored {
                true => SortedCommand::Store { to: words[1], operation, inputs, is_weighted, aggregate },
                false => SortedCommand::Combine { operation, inputs, is_weighted, aggregate, with_scores },
            }
        }
        [] => panic!("no words"),
    })
}

/// Parses options like `MAXLEN ~ 5 LIMIT 3` into a trim and its threshold. Nodes have ten entries.
fn trim<'a>(words: &[&'a [u8]]) -> Option<(Trim, &'a [u8])> {
    let at = words.iter().position(|word| [&b"MAXLEN"[..], b"MINID"].contains(word))?;
    let is_approximate = words[at + 1] == b"~";
    let limit = words.iter().position(|word| *word == b"LIMIT").map_or(0, |at| number(words[at + 1]) as u32);
    let by_id = words[at] == b"MINID";
    let trim = Trim { by_id, is_approximate, limit, node_entries: 10, references: references(words) };
    Some((trim, words[at + 1 + usize::from(is_approximate)]))
}

fn references(words: &[&[u8]]) -> References {
    match (words.contains(&&b"DELREF"[..]), words.contains(&&b"ACKED"[..])) {
        (true, _) => References::Remove,
        (_, true) => References::Respect,
        _ => References::Keep,
    }
}

fn stream<'a>(words: &[&'a [u8]], scratch: &'a mut Vec<u8>) -> Command<'a> {
    let has = |option: &[u8]| words.contains(&option);
    let option = |name: &[u8]| words.iter().position(|word| *word == name).map(|at| number(words[at + 1]));
    let list = |items: &[&'a [u8]], scratch: &'a mut Vec<u8>| List::build(scratch, items.iter().copied());
    let count = option(b"COUNT").map(|count| count as u64);
    let streams = |scratch: &'a mut Vec<u8>| {
        let at = words.iter().position(|word| *word == b"STREAMS").unwrap() + 1;
        let (keys, ids) = words[at..].split_at((words.len() - at) / 2);
        List::build(scratch, keys.iter().zip(ids).flat_map(|(key, id)| [*key, *id]))
    };
    Command::OnStream(match *words {
        [b"XLEN", key] => StreamCommand::Length { key },
        [b"XRANGE", key, ..] => {
            StreamCommand::Range { key, ends: list(&words[2..4], scratch), is_reverse: false, count }
        }
        [b"XREVRANGE", key, end, start, ..] => {
            StreamCommand::Range { key, ends: list(&[start, end], scratch), is_reverse: true, count }
        }
        [b"XREAD", ..] => StreamCommand::Read { streams: streams(scratch), count: count.unwrap_or(0) },
        [b"XADD", key, ..] => {
            let trim = trim(words);
            let options = [2 * usize::from(has(b"MAXLEN") || has(b"MINID")), 2 * usize::from(has(b"LIMIT"))];
            let flags: [&[u8]; 4] = [b"~", b"NOMKSTREAM", b"DELREF", b"ACKED"];
            let flags = flags.iter().filter(|flag| has(flag)).count();
            let once = words.iter().position(|word| *word == b"IDMP");
            let at = 2 + options[0] + options[1] + flags + 3 * usize::from(once.is_some());
            let threshold = trim.map_or(&b""[..], |(_, threshold)| threshold);
            let sent = once.map_or(&[][..], |at| &words[at + 1..at + 3]);
            let all = [&[words[at], threshold], sent, &words[at + 1..]].concat();
            let (words, trim) = (list(&all, scratch), trim.map(|(trim, _)| trim));
            match once {
                None => StreamCommand::Add { key, words, trim, if_present: has(b"NOMKSTREAM") },
                Some(_) => StreamCommand::AddOnce { key, words, trim, if_present: has(b"NOMKSTREAM") },
            }
        }
        [b"XDELEX", key, _, ref ids @ ..] => {
            StreamCommand::DeleteWith { key, ids: list(ids, scratch), references: references(words) }
        }
        [b"XACKDEL", key, group, _, ref ids @ ..] => {
            let (ids, references) = (list(ids, scratch), references(words));
            StreamCommand::AcknowledgeAndDelete { key, group, ids, references }
        }
        [b"XNACK", key, group, mode, ref ids @ ..] => {
            let end = ids.iter().position(|word| word[0].is_ascii_uppercase()).unwrap_or(ids.len());
            let deliveries = match mode {
                b"SILENT" => ONE_DELIVERY_LESS,
                b"FATAL" => i64::MAX,
                _ => SAME_DELIVERIES,
            };
            let deliveries = option(b"RETRYCOUNT").unwrap_or(deliveries);
            let (ids, is_forced) = (list(&ids[..end], scratch), has(b"FORCE"));
            StreamCommand::Release { key, group, ids, deliveries, is_forced }
        }
        [b"XCFGSET", key, ..] => {
            let duration_s = option(b"IDMP-DURATION").map(|number| number as u64);
            let most = option(b"IDMP-MAXSIZE").map(|number| number as u64);
            StreamCommand::Remember { key, duration_s, most }
        }
        [b"XIDMPRECORD", key, producer, name, id] => StreamCommand::Record { key, producer, name, id },
        [b"XINFO", b"STREAM", key, b"2"] => StreamCommand::Describe { key },
        [b"XINFO", b"FULL", key, count, b"2"] => {
            StreamCommand::DescribeFull { key, count: number(count) as u64 }
        }
        [b"XINFO", b"CONSUMERS", key, group, b"2"] => StreamCommand::DescribeConsumers { key, group },
        [b"XINFO", b"GROUPS", key, b"2"] => StreamCommand::DescribeGroups { key },
        [b"XREADGROUP", group, consumer, b"2", ..] => StreamCommand::Consume {
            group,
            consumer,
            streams: streams(scratch),
            count: count.unwrap_or(0) as u32,
            acknowledges: has(b"NOACK"),
            claim_ms: option(b"CLAIM").unwrap_or(-1),
        },
        [b"XDEL", key, ref ids @ ..] => StreamCommand::Delete { key, ids: list(ids, scratch) },
        [b"XTRIM", key, ..] => {
            let (trim, threshold) = trim(words).unwrap();
            StreamCommand::Trim { key, threshold, trim }
        }
        [b"XSETID", key, id] => StreamCommand::SetId { key, ids: list(&[id], scratch), added: None },
        [b"XSETID", key, id, added, removed] => {
            let added = Some(number(added) as u64);
            StreamCommand::SetId { key, ids: list(&[id, removed], scratch), added }
        }
        [b"XINFO", b"STREAM", key] => StreamCommand::Info { key },
        [b"XINFO", b"FULL", key, count] => StreamCommand::InfoFull { key, count: number(count) as u64 },
        [b"XINFO", b"GROUPS", key] => StreamCommand::InfoGroups { key },
        [b"XINFO", b"CONSUMERS", key, group] => StreamCommand::InfoConsumers { key, group },
        [b"XGROUP", b"CREATE", key, group, id, ..] => {
            let at_most = option(b"ATMOST").map(|number| at_most_added(number as u64));
            let entries_read = at_most.or(option(b"ENTRIESREAD")).unwrap_or(-1);
            let makes_stream = has(b"MKSTREAM");
            StreamCommand::CreateGroup { key, group, id, entries_read, makes_stream }
        }
        [b"XGROUP", b"SETID", key, group, id, ..] => {
            let at_most = option(b"ATMOST").map(|number| at_most_added(number as u64));
            let entries_read = at_most.or(option(b"ENTRIESREAD")).unwrap_or(-1);
            StreamCommand::SetGroup { key, group, id, entries_read }
        }
        [b"XGROUP", b"DESTROY", key, group] => StreamCommand::DestroyGroup { key, group },
        [b"XGROUP", b"CREATECONSUMER", key, group, consumer] => {
            StreamCommand::CreateConsumer { key, group, consumer }
        }
        [b"XGROUP", b"DELCONSUMER", key, group, consumer] => {
            StreamCommand::DeleteConsumer { key, group, consumer }
        }
        [b"XREADGROUP", group, consumer, ..] => StreamCommand::ReadGroup {
            group,
            consumer,
            streams: streams(scratch),
            count: count.unwrap_or(0),
            acknowledges: has(b"NOACK"),
        },
        [b"XACK", key, group, ref ids @ ..] => {
            StreamCommand::Acknowledge { key, group, ids: list(ids, scratch) }
        }
        [b"XPENDING", key, group] => StreamCommand::Pending { key, group },
        [b"XPENDING", key, group, min_idle, start, end, count, ref consumer @ ..] => {
            let words = list(&[&[group, start, end], consumer].concat(), scratch);
            let (min_idle_ms, count) = (number(min_idle) as u64, number(count) as u64);
            StreamCommand::PendingRange { key, words, min_idle_ms, count }
        }
        [b"XCLAIM", key, group, consumer, min_idle, ref ids @ ..] => {
            let end = ids.iter().position(|word| word[0].is_ascii_uppercase()).unwrap_or(ids.len());
            let last = ids.iter().position(|word| *word == b"LASTID").map_or(&b"0"[..], |at| ids[at + 1]);
            let words = list(&[&[group, consumer, last], &ids[..end]].concat(), scratch);
            StreamCommand::Claim {
                key,
                words,
                min_idle_ms: number(min_idle) as u64,
                delivered_ms: option(b"TIME").or(option(b"IDLE")).unwrap_or(0),
                deliveries: option(b"RETRYCOUNT").unwrap_or(-1),
                is_idle: !has(b"TIME"),
                is_forced: has(b"FORCE"),
                only_ids: has(b"JUSTID"),
            }
        }
        [b"XAUTOCLAIM", key, group, consumer, min_idle, start, ..] => StreamCommand::ClaimRange {
            key,
            words: list(&[group, consumer, start], scratch),
            min_idle_ms: number(min_idle) as u64,
            count: count.unwrap_or(100),
            only_ids: has(b"JUSTID"),
        },
        _ => panic!("not in this script's language: {}", words.join(&b' ').escape_ascii()),
    })
}

pub(super) fn parse<'a>(words: &[&'a [u8]], scratch: &'a mut Vec<u8>) -> Command<'a> {
    let (expiry_clear, always) = (Expiry::Clear, Condition::Always);
    match *words {
        [b"GET", key] => Command::Get { key },
        [b"FETCH", key] => Command::Fetch { key },
        [b"MGET", ref keys @ ..] => Command::MultiGet { keys: List::build(scratch, keys.iter().copied()) },
        [b"EXISTS", ref keys @ ..] => Command::Exists { keys: List::build(scratch, keys.iter().copied()) },
        [b"TYPE", key] => Command::Type { key },
        [b"STRLEN", key] => Command::Length { key },
        [b"GETRANGE", key, start, end] => Command::GetRange { key, start: number(start), end: number(end) },
        [b"TTL", key] => Command::TimeToLive { key, unit: ExpiryUnit::SecondsLeft },
        [b"PTTL", key] => Command::TimeToLive { key, unit: ExpiryUnit::MillisecondsLeft },
        [b"EXPIRETIME", key] => Command::TimeToLive { key, unit: ExpiryUnit::UnixSeconds },
        [b"PEXPIRETIME", key] => Command::TimeToLive { key, unit: ExpiryUnit::UnixMilliseconds },
        [b"KEYS", pattern] => Command::Keys { pattern },
        [b"DIGEST", key] => Command::Digest { key },
        [b"RANDOMKEY"] => Command::RandomKey { draw: 1 },
        [b"DBSIZE"] => Command::Size {},
        [b"SCAN"] => Command::Scan { position: 0, count: 100, pattern: None, kind: None, group: 0, next: 0 },
        [b"MEMORY", key] => Command::MemoryUsage { key },
        [b"ENCODING", key] => Command::Encoding { key, limits: EncodingLimits::default() },
        [b"SET", key, value, ref options @ ..] => set(key, value, options),
        [b"SETNX", key, value] => {
            let (condition, answer) = (Condition::IfAbsent, SetAnswer::Integer);
            Command::Set { key, value, expiry: expiry_clear, condition, answer }
        }
        [b"GETSET", key, value] => {
            Command::Set { key, value, expiry: expiry_clear, condition: always, answer: SetAnswer::Before }
        }
        [b"GETDEL", key] => Command::GetDelete { key },
        [b"GETEX", key, ref options @ ..] => {
            Command::GetExpire { key, expiry: expiry(options, Expiry::Keep) }
        }
        [b"MSET", ref pairs @ ..] => {
            Command::MultiSet { pairs: List::build(scratch, pairs.iter().copied()), if_absent: false }
        }
        [b"MSETNX", ref pairs @ ..] => {
            Command::MultiSet { pairs: List::build(scratch, pairs.iter().copied()), if_absent: true }
        }
        [b"MSETEX", count, ref rest @ ..] => {
            let (pairs, options) = rest.split_at(2 * count_of(count));
            let condition = match options {
                [.., b"NX"] => Condition::IfAbsent,
                [.., b"XX"] => Condition::IfPresent,
                _ => always,
            };
            let pairs = List::build(scratch, pairs.iter().copied());
            Command::MultiSetExpire { pairs, expiry: expiry(options, Expiry::Clear), condition }
        }
        [b"INCREX", key, ref options @ ..] => increment_within(key, options),
        [b"DEL", ref keys @ ..] => Command::Delete { keys: List::build(scratch, keys.iter().copied()) },
        [b"DELEX", key, ref options @ ..] => {
            Command::DeleteIf { key, comparison: comparison(options).unwrap() }
        }
        [b"APPEND", key, value] => Command::Append { key, value, bytes_max: 100 },
        [b"SETRANGE", key, offset, value] => Command::SetRange { key, offset: number(offset) as u64, value },
        [b"INCRBY", key, delta] => Command::IncrementBy { key, delta: number(delta) },
        [b"INCRBYFLOAT", key, delta] => Command::IncrementByFloat { key, delta },
        [b"EXPIRE", key, unit, amount, ref options @ ..] => {
            let condition = expire_condition(options);
            Command::Expire { key, deadline: deadline(unit, amount), condition }
        }
        [b"PERSIST", key] => Command::Persist { key },
        [b"RENAME", from, to] => Command::Rename { from, to, if_absent: false },
        [b"RENAMENX", from, to] => Command::Rename { from, to, if_absent: true },
        [b"COPY", from, to] => Command::Copy { from, to, replace: false },
        [b"COPY", from, to, b"REPLACE"] => Command::Copy { from, to, replace: true },
        [
            b"HGETALL" | b"HKEYS" | b"HVALS" | b"HLEN" | b"HGET" | b"HMGET" | b"HEXISTS" | b"HSTRLEN"
            | b"HSCAN" | b"HTTL" | b"HPTTL" | b"HEXPIRETIME" | b"HPEXPIRETIME" | b"HRANDFIELD",
            ..,
        ]
        | [b"HEXPIRE" | b"HPERSIST" | b"HGETEX" | b"HSETEX" | b"HGETDEL", ..]
        | [b"HSET" | b"HMSET" | b"HSETNX" | b"HDEL" | b"HINCRBY" | b"HINCRBYFLOAT", ..] => {
            hash(words, scratch)
        }
        [
            b"LLEN" | b"LINDEX" | b"LRANGE" | b"LPOS" | b"LPUSH" | b"RPUSH" | b"LPUSHX" | b"RPUSHX" | b"LPOP"
            | b"RPOP" | b"LSET" | b"LINSERT" | b"LREM" | b"LTRIM" | b"LMOVE" | b"LMPOP" | b"BLPOP" | b"BRPOP",
            ..,
        ] => list(words, scratch),
        [
            b"SCARD" | b"SISMEMBER" | b"SMISMEMBER" | b"SMEMBERS" | b"SRANDMEMBER" | b"SSCAN" | b"SINTERCARD"
            | b"SINTER" | b"SUNION" | b"SDIFF" | b"SADD" | b"SREM" | b"SMOVE" | b"SPOP" | b"SINTERSTORE"
            | b"SUNIONSTORE" | b"SDIFFSTORE",
            ..,
        ] => set_command(words, scratch),
        [
            b"ZCARD" | b"ZSCORE" | b"ZMSCORE" | b"ZRANK" | b"ZREVRANK" | b"ZCOUNT" | b"ZLEXCOUNT" | b"ZRANGE"
            | b"ZRANGESTORE" | b"ZREMRANGEBYRANK" | b"ZREMRANGEBYSCORE" | b"ZREMRANGEBYLEX" | b"ZRANDMEMBER"
            | b"ZSCAN" | b"ZADD" | b"ZINCRBY" | b"ZREM" | b"ZPOPMIN" | b"ZPOPMAX" | b"ZMPOP" | b"ZINTERCARD"
            | b"BZPOPMIN" | b"BZPOPMAX" | b"ZUNION" | b"ZINTER" | b"ZDIFF" | b"ZUNIONSTORE" | b"ZINTERSTORE"
            | b"ZDIFFSTORE",
            ..,
        ] => sorted(words, scratch),
        [name, ..] if name[0] == b'X' => stream(words, scratch),
        [b"FLUSHALL"] => Command::Clear {},
        [b"PURGE", until] => Command::Purge { until: number(until) as u64 },
        [b"REPLICATE", key, value, version] => {
            Command::Replicate { key, value, version: number(version) as u64 }
        }
        _ => panic!("not in this script's language: {}", words.join(&b' ').escape_ascii()),
    }
}
