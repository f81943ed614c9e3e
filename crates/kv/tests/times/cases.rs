//! The commands that are measured.

use crate::stores::{element, kept, key, list_of, members, pairs, places, scored, spread};
use kv::command::SortOptions;
use kv::command::{BitOperation, CommonAnswer};
use kv::geo::{Centre, Order, Place, Query, Shape, Shown};
use kv::{
    AddOptions, Aggregate, By, BytesCommand, Command, Condition, Expiry, HashCommand, HashPart, List,
    ListCommand, RestoreOptions, SetAnswer, SetCommand, SetOperation, SortCommand, SortedCommand,
    StreamCommand,
};

/// A command on values of each size.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// The kind of value that is copied to [`TARGET`] before each run; empty if the command changes no value, or makes one.
    pub(crate) copied: &'static str,
    /// Whether it can be repeated, and does the same again.
    pub(crate) again: bool,
    /// Whether it has less to do than a like command on other content: its estimate is for the most.
    pub(crate) is_lucky: bool,
    /// The greatest size that is measured.
    pub(crate) most: usize,
    pub(crate) make: fn(usize) -> Command<'static>,
}

/// The key that writes change.
pub(crate) const TARGET: &[u8] = b"target";

fn read(name: &'static str, make: fn(usize) -> Command<'static>) -> Case {
    Case { name, copied: "", again: true, is_lucky: false, most: usize::MAX, make }
}

/// A write that does the same each time.
fn again(name: &'static str, copied: &'static str, make: fn(usize) -> Command<'static>) -> Case {
    Case { name, copied, again: true, is_lucky: false, most: usize::MAX, make }
}

/// A write that has less to do the next time.
fn once(name: &'static str, copied: &'static str, make: fn(usize) -> Command<'static>) -> Case {
    Case { name, copied, again: false, is_lucky: false, most: usize::MAX, make }
}

/// A write that finds less to do than it might.
fn lucky(name: &'static str, copied: &'static str, make: fn(usize) -> Command<'static>) -> Case {
    Case { is_lucky: true, ..once(name, copied, make) }
}

pub(crate) fn cases() -> Vec<Case> {
    [strings(), bits(), lists(), sets(), sorted(), geo(), hashes(), streams(), others()]
        .into_iter()
        .flatten()
        .collect()
}

fn strings() -> Vec<Case> {
    vec![
        read("GETRANGE", |n| Command::GetRange { key: key("text", n), start: 0, end: -1 }),
        read("MGET", |n| Command::MultiGet { keys: list_of((0..n).map(|_| key("short", 10))) }),
        read("EXISTS", |n| Command::Exists { keys: list_of((0..n).map(|_| key("short", 10))) }),
        again("MSET", "", |n| Command::MultiSet { pairs: pairs(n, 0), if_absent: false }),
        once("DEL", "keys", |n| Command::Delete { keys: list_of(spread(n).map(element)) }),
        again("SETRANGE", "text", |_| Command::SetRange { key: TARGET, offset: 5, value: b"y" }),
        once("SETRANGE behind the end", "", |n| Command::SetRange {
            key: TARGET,
            offset: n as u64 * 100,
            value: b"y",
        }),
        once("APPEND", "text", |_| Command::Append { key: TARGET, value: b"y", bytes_max: u64::MAX }),
        again("INCRBYFLOAT", "", |_| Command::IncrementByFloat { key: TARGET, delta: b"0.1" }),
        again("INCRBYFLOAT of a large number", "huge", |_| Command::IncrementByFloat {
            key: TARGET,
            delta: b"-1e-16",
        }),
        again("INCRBYFLOAT by a large number", "", |_| Command::IncrementByFloat {
            key: TARGET,
            delta: b"1e300",
        }),
        again("SET of a long value", "", |n| Command::Set {
            key: TARGET,
            value: kept(vec![b'z'; n * 100]),
            expiry: Expiry::Clear,
            condition: Condition::Always,
            answer: SetAnswer::Status,
        }),
        read("DIGEST", |n| Command::Digest { key: key("text", n) }),
        again("COPY", "", |n| Command::Copy { from: key("text", n), to: TARGET, replace: true }),
    ]
}

fn bits() -> Vec<Case> {
    use BytesCommand::*;
    let on = |name, make| read(name, make);
    vec![
        on("BITCOUNT", |n| {
            Command::OnBytes(CountBits { key: key("text", n), start: 0, end: -1, in_bits: false })
        }),
        on("BITPOS", |n| {
            let key = key("zeros", n);
            Command::OnBytes(FindBit { key, bit: true, start: 0, end: None, in_bits: false })
        }),
        on("PFCOUNT", |n| {
            Command::OnBytes(Estimate { keys: list_of([key("sketch", n), key("sketch2", n)]) })
        }),
        Case {
            most: 10_000,
            ..on("LCS", |n| {
                let (first, second, answer) = (key("short", n), key("short2", n), CommonAnswer::Length);
                Command::OnBytes(Common { first, second, answer, least: 0 })
            })
        },
        Case {
            most: 10_000,
            ..on("LCS IDX", |n| {
                let (first, second, answer) =
                    (key("short", n), key("short", n), CommonAnswer::RangesWithLengths);
                Command::OnBytes(Common { first, second, answer, least: 0 })
            })
        },
        again("SETBIT", "text", |_| Command::OnBytes(SetBit { key: TARGET, offset: 7, bit: true })),
        again("BITOP AND", "", |n| {
            let (operation, keys) = (BitOperation::And, list_of([key("text", n), key("text2", n)]));
            Command::OnBytes(Combine { operation, to: TARGET, keys })
        }),
        again("BITOP NOT", "", |n| {
            let (operation, keys) = (BitOperation::Not, list_of([key("text", n)]));
            Command::OnBytes(Combine { operation, to: TARGET, keys })
        }),
        again("PFADD", "sketch", |n| Command::OnBytes(Count { key: TARGET, elements: members(n, 0) })),
        again("PFADD of new ones", "", |n| Command::OnBytes(Count { key: TARGET, elements: members(n, 0) })),
        again("PFMERGE", "", |n| {
            Command::OnBytes(Merge { to: TARGET, keys: list_of([key("sketch", n), key("sketch2", n)]) })
        }),
    ]
}

fn lists() -> Vec<Case> {
    use ListCommand::*;
    vec![
        read("LRANGE", |n| Command::OnList(Range { key: key("list", n), start: 0, end: -1 })),
        read("LRANGE of 10", |n| Command::OnList(Range { key: key("list", n), start: 3, end: 12 })),
        read("LINDEX", |n| Command::OnList(Index { key: key("list", n), rank: n as i64 / 2 })),
        read("LPOS", |n| {
            let (key, element) = (key("list", n), kept(element(n - 1)));
            Command::OnList(Position { key, element, skip: 1, count: None, compared_max: 0 })
        }),
        read("LPOS from the end", |n| {
            let (key, element) = (key("list", n), kept(element(0)));
            Command::OnList(Position { key, element, skip: -1, count: None, compared_max: 0 })
        }),
        read("LPOS of all", |n| {
            let (key, element) = (key("same", n), kept(element(0)));
            Command::OnList(Position { key, element, skip: 1, count: Some(0), compared_max: 0 })
        }),
        again("LSET", "list", |n| {
            Command::OnList(Set { key: TARGET, rank: n as i64 / 2, element: kept(element(n + 1)) })
        }),
        once("LINSERT", "list", |n| {
            Command::OnList(Insert {
                key: TARGET,
                is_before: true,
                pivot: kept(element(n - 1)),
                element: b"e",
            })
        }),
        once("LREM", "list", |n| {
            Command::OnList(Remove { key: TARGET, count: 1, element: kept(element(n - 1)) })
        }),
        once("LREM from the end", "list", |_| {
            Command::OnList(Remove { key: TARGET, count: -1, element: kept(element(0)) })
        }),
        once("LREM of all", "same", |_| {
            Command::OnList(Remove { key: TARGET, count: 0, element: kept(element(0)) })
        }),
        lucky("LREM of every tenth", "digits", |_| {
            Command::OnList(Remove { key: TARGET, count: 0, element: b"3" })
        }),
        once("RPUSH", "", |n| {
            let elements = list_of((0..n).map(element));
            Command::OnList(Push { key: TARGET, elements, at_front: false, if_present: false })
        }),
        once("LPUSH", "", |n| {
            let elements = list_of((0..n).map(element));
            Command::OnList(Push { key: TARGET, elements, at_front: true, if_present: false })
        }),
        once("LPOP", "list", |n| {
            Command::OnList(Pop { key: TARGET, at_front: true, count: Some(n as u64 / 2) })
        }),
        once("RPOP", "list", |n| {
            Command::OnList(Pop { key: TARGET, at_front: false, count: Some(n as u64 / 2) })
        }),
        once("LTRIM", "list", |n| {
            Command::OnList(Trim { key: TARGET, start: n as i64 / 4, end: n as i64 / 2 })
        }),
        once("LMPOP", "list", |n| {
            Command::OnList(MultiPop { keys: list_of([TARGET]), at_front: true, count: n as u64 / 2 })
        }),
    ]
}

fn sets() -> Vec<Case> {
    use SetCommand::*;
    use SetOperation::*;
    fn both(n: usize) -> List<'static> {
        list_of([key("set", n), key("other", n)])
    }
    vec![
        read("SMEMBERS", |n| Command::OnSet(All { key: key("set", n) })),
        read("SMISMEMBER", |n| Command::OnSet(ContainsEach { key: key("set", n), members: members(n, 0) })),
        read("SRANDMEMBER", |n| Command::OnSet(Random { key: key("set", n), count: Some(n as i64 / 2) })),
        read("SRANDMEMBER with repeats", |n| {
            Command::OnSet(Random { key: key("set", n), count: Some(-(n as i64)) })
        }),
        read("SSCAN", |n| {
            Command::OnSet(Scan { key: key("set", n), position: 0, count: n as u64, pattern: Some(b"*7*") })
        }),
        read("SINTER", |n| Command::OnSet(Combine { operation: Intersection, keys: both(n) })),
        read("SUNION", |n| Command::OnSet(Combine { operation: Union, keys: both(n) })),
        read("SDIFF", |n| Command::OnSet(Combine { operation: Difference, keys: both(n) })),
        read("SINTERCARD", |n| Command::OnSet(CountCommon { keys: both(n), limit: 0 })),
        again("SINTERSTORE", "", |n| {
            Command::OnSet(Store { operation: Intersection, to: TARGET, keys: both(n) })
        }),
        again("SUNIONSTORE", "", |n| Command::OnSet(Store { operation: Union, to: TARGET, keys: both(n) })),
        again("SDIFFSTORE", "", |n| {
            Command::OnSet(Store { operation: Difference, to: TARGET, keys: both(n) })
        }),
        once("SADD", "", |n| Command::OnSet(Add { key: TARGET, members: members(n, 0) })),
        once("SADD to others", "set", |n| Command::OnSet(Add { key: TARGET, members: members(n, n) })),
        lucky("SADD of present ones", "set", |n| Command::OnSet(Add { key: TARGET, members: members(n, 0) })),
        once("SREM", "set", |n| Command::OnSet(Remove { key: TARGET, members: members(n, 0) })),
        once("SPOP", "set", |n| Command::OnSet(Pop { key: TARGET, count: Some(n as u64 / 2) })),
    ]
}

fn sorted() -> Vec<Case> {
    use SetOperation::*;
    use SortedCommand::*;
    const SUM: Aggregate = Aggregate::Sum;
    fn both(n: usize) -> List<'static> {
        list_of([key("sorted", n), key("ranked", n)])
    }
    fn all() -> List<'static> {
        list_of(["0", "-1"])
    }
    fn ranged(n: usize, ends: List<'static>, by: By, with_scores: bool) -> Command<'static> {
        let (key, is_reverse, skip, count) = (key("sorted", n), false, 0, u32::MAX);
        Command::OnSorted(Range { key, by, ends, is_reverse, skip, count, with_scores })
    }
    fn combined(n: usize, operation: SetOperation) -> Command<'static> {
        let (is_weighted, aggregate, with_scores) = (false, SUM, true);
        Command::OnSorted(Combine { operation, inputs: both(n), is_weighted, aggregate, with_scores })
    }
    fn stored(n: usize, operation: SetOperation) -> Command<'static> {
        let (to, is_weighted, aggregate) = (TARGET, false, SUM);
        Command::OnSorted(Store { to, operation, inputs: both(n), is_weighted, aggregate })
    }
    fn added(pairs: List<'static>) -> Command<'static> {
        let options = AddOptions::default();
        Command::OnSorted(Add { key: TARGET, pairs, options, counts_changes: false })
    }
    vec![
        read("ZRANGE", |n| ranged(n, all(), By::Rank, false)),
        read("ZRANGE WITHSCORES", |n| ranged(n, all(), By::Rank, true)),
        read("ZRANGE of 10", |n| ranged(n, list_of(["3", "12"]), By::Rank, false)),
        read("ZRANGE BYSCORE", |n| ranged(n, list_of(["-inf", "+inf"]), By::Score, false)),
        read("ZRANDMEMBER", |n| {
            Command::OnSorted(Random { key: key("sorted", n), count: Some(n as i64 / 2), with_scores: false })
        }),
        read("ZRANDMEMBER with repeats", |n| {
            Command::OnSorted(Random { key: key("sorted", n), count: Some(-(n as i64)), with_scores: true })
        }),
        read("ZSCAN", |n| {
            Command::OnSorted(Scan { key: key("sorted", n), position: 0, count: n as u64, pattern: None })
        }),
        read("ZMSCORE", |n| Command::OnSorted(Scores { key: key("sorted", n), members: members(n, 0) })),
        read("ZINTER", |n| combined(n, Intersection)),
        read("ZUNION", |n| combined(n, Union)),
        read("ZDIFF", |n| combined(n, Difference)),
        read("ZINTERCARD", |n| Command::OnSorted(CountCommon { keys: both(n), limit: 0 })),
        again("ZINTERSTORE", "", |n| stored(n, Intersection)),
        again("ZUNIONSTORE", "", |n| stored(n, Union)),
        again("ZDIFFSTORE", "", |n| stored(n, Difference)),
        again("ZRANGESTORE", "", |n| {
            let (to, from, by, is_reverse) = (TARGET, key("sorted", n), By::Rank, false);
            Command::OnSorted(StoreRange { to, from, by, ends: all(), is_reverse, skip: 0, count: u32::MAX })
        }),
        once("ZADD", "", |n| added(scored(n, 0))),
        once("ZADD to others", "sorted", |n| added(scored(n, n))),
        once("ZADD of other scores", "sorted", |n| added(places(n, 0))),
        once("ZREM", "sorted", |n| Command::OnSorted(Remove { key: TARGET, members: members(n, 0) })),
        once("ZREMRANGEBYRANK", "sorted", |n| {
            Command::OnSorted(RemoveRange {
                key: TARGET,
                by: By::Rank,
                ends: list_of(["0".into(), (n / 2).to_string()]),
            })
        }),
        once("ZPOPMIN", "sorted", |n| {
            Command::OnSorted(Pop { key: TARGET, is_highest: false, count: Some(n as u64 / 2) })
        }),
        once("ZMPOP", "sorted", |n| {
            Command::OnSorted(MultiPop { keys: list_of([TARGET]), is_highest: true, count: n as u64 / 2 })
        }),
    ]
}

fn query(radius_km: f64, shown: Shown) -> &'static [u8] {
    let query = Query {
        centre: Centre::Place(Place { longitude: 13.0, latitude: 38.0 }),
        shape: Shape::Circle(radius_km),
        unit_m: 1000.0,
        order: Order::Ascending,
        count: 0,
        takes_any: false,
        shown,
        stores_distance: false,
    };
    let mut encoded = Vec::new();
    query.encode(&mut encoded);
    kept(encoded)
}

fn geo() -> Vec<Case> {
    use SortedCommand::*;
    const ALL: Shown = Shown { distance: true, hash: true, place: true };
    vec![
        read("GEOSEARCH of all", |n| {
            Command::OnSorted(Find { key: key("geo", n), query: query(30_000.0, Shown::default()) })
        }),
        read("GEOSEARCH of all with all", |n| {
            Command::OnSorted(Find { key: key("geo", n), query: query(30_000.0, ALL) })
        }),
        read("GEOSEARCH nearby", |n| {
            Command::OnSorted(Find { key: key("geo", n), query: query(200.0, Shown::default()) })
        }),
        read("GEOPOS", |n| Command::OnSorted(Places { key: key("geo", n), members: members(n, 0) })),
        read("GEOHASH", |n| Command::OnSorted(Hashes { key: key("geo", n), members: members(n, 0) })),
        again("GEOSEARCHSTORE", "", |n| {
            let (from, query) = (key("geo", n), query(30_000.0, Shown::default()));
            Command::OnSorted(StoreFound { to: TARGET, from, query })
        }),
        once("GEOADD", "", |n| {
            let options = AddOptions::default();
            Command::OnSorted(Add { key: TARGET, pairs: places(n, 0), options, counts_changes: false })
        }),
    ]
}

fn hashes() -> Vec<Case> {
    use HashCommand::*;
    vec![
        read("HGETALL", |n| Command::Hash(All { key: key("hash", n), part: HashPart::Both })),
        read("HKEYS", |n| Command::Hash(All { key: key("hash", n), part: HashPart::Fields })),
        read("HMGET", |n| Command::Hash(MultiGet { key: key("hash", n), fields: members(n, 0) })),
        read("HRANDFIELD", |n| {
            Command::Hash(Random { key: key("hash", n), count: Some(n as i64 / 2), with_values: false })
        }),
        read("HRANDFIELD with repeats", |n| {
            Command::Hash(Random { key: key("hash", n), count: Some(-(n as i64)), with_values: true })
        }),
        read("HSCAN", |n| {
            let (key, count) = (key("hash", n), n as u64);
            Command::Hash(Scan { key, position: 0, count, pattern: None, with_values: true })
        }),
        once("HSET", "", |n| Command::Hash(Set { key: TARGET, pairs: pairs(n, 0), counts: true })),
        once("HSET beside others", "hash", |n| {
            Command::Hash(Set { key: TARGET, pairs: pairs(n, n), counts: true })
        }),
        lucky("HSET of present ones", "hash", |n| {
            Command::Hash(Set { key: TARGET, pairs: pairs(n, 0), counts: true })
        }),
        once("HDEL", "hash", |n| Command::Hash(Delete { key: TARGET, fields: members(n, 0) })),
        once("HPERSIST", "hash", |n| Command::Hash(Persist { key: TARGET, fields: members(n, 0) })),
        once("HEXPIRE", "hash", |n| {
            let (deadline, condition) = (kv::Deadline::In(1_000_000), kv::command::ExpireCondition::Always);
            Command::Hash(Expire { key: TARGET, fields: members(n, 0), deadline, condition })
        }),
        once("HGETDEL", "hash", |n| Command::Hash(GetDelete { key: TARGET, fields: members(n, 0) })),
    ]
}

fn streams() -> Vec<Case> {
    use StreamCommand::*;
    fn ids(n: usize) -> Vec<String> {
        (1..=n).map(|number| format!("{number}-1")).collect()
    }
    fn words(before: &[&str], n: usize) -> List<'static> {
        list_of(before.iter().map(|it| it.to_string()).chain(ids(n)))
    }
    const CUT: kv::Trim = kv::Trim {
        by_id: false,
        is_approximate: false,
        limit: 0,
        node_entries: 0,
        references: kv::command::References::Keep,
    };
    vec![
        read("XRANGE", |n| {
            let (key, ends) = (key("stream", n), list_of(["-", "+"]));
            Command::OnStream(Range { key, ends, is_reverse: false, count: None })
        }),
        read("XREVRANGE", |n| {
            let (key, ends) = (key("stream", n), list_of(["-", "+"]));
            Command::OnStream(Range { key, ends, is_reverse: true, count: None })
        }),
        read("XRANGE of 10", |n| {
            let (key, ends) = (key("stream", n), list_of(["-", "+"]));
            Command::OnStream(Range { key, ends, is_reverse: false, count: Some(10) })
        }),
        read("XREAD", |n| Command::OnStream(Read { streams: list_of([key("stream", n), b"0"]), count: 0 })),
        read("XPENDING", |n| Command::OnStream(Pending { key: key("stream", n), group: b"read" })),
        read("XPENDING of a range", |n| {
            let (key, words, count) = (key("stream", n), list_of(["read", "-", "+"]), n as u64);
            Command::OnStream(PendingRange { key, words, min_idle_ms: 0, count })
        }),
        read("XPENDING of idle ones", |n| {
            let (key, words, count) = (key("stream", n), list_of(["read", "-", "+"]), n as u64);
            Command::OnStream(PendingRange { key, words, min_idle_ms: 1_000_000_000, count })
        }),
        read("XINFO STREAM FULL", |n| Command::OnStream(InfoFull { key: key("stream", n), count: 0 })),
        read("XINFO CONSUMERS", |n| {
            Command::OnStream(InfoConsumers { key: key("stream", n), group: b"read" })
        }),
        once("XADD", "stream", |n| {
            let fields = (0..n).flat_map(|it| [format!("field:{it}"), element(it)]);
            let words = list_of(["*".to_string(), String::new()].into_iter().chain(fields));
            Command::OnStream(Add { key: TARGET, words, trim: None, if_present: false })
        }),
        once("XDEL", "stream", |n| Command::OnStream(Delete { key: TARGET, ids: list_of(ids(n)) })),
        once("XTRIM", "stream", |_| Command::OnStream(Trim { key: TARGET, threshold: b"1", trim: CUT })),
        once("XGROUP DESTROY", "stream", |_| Command::OnStream(DestroyGroup { key: TARGET, group: b"read" })),
        once("XGROUP DELCONSUMER", "stream", |_| {
            Command::OnStream(DeleteConsumer { key: TARGET, group: b"read", consumer: b"consumer" })
        }),
        once("XREADGROUP", "stream", |n| {
            let (group, consumer, streams) = (&b"unread"[..], &b"consumer"[..], list_of([TARGET, b">"]));
            Command::OnStream(ReadGroup { group, consumer, streams, count: n as u64, acknowledges: false })
        }),
        once("XREADGROUP again", "stream", |n| {
            let (group, consumer, streams) = (&b"read"[..], &b"consumer"[..], list_of([TARGET, b"0"]));
            Command::OnStream(ReadGroup { group, consumer, streams, count: n as u64, acknowledges: false })
        }),
        once("XACK", "stream", |n| {
            Command::OnStream(Acknowledge { key: TARGET, group: b"read", ids: list_of(ids(n)) })
        }),
        once("XCLAIM", "stream", |n| {
            let (min_idle_ms, delivered_ms, deliveries) = (0, 5, -1);
            let words = words(&["read", "other", "0-0"], n);
            let (is_idle, is_forced, only_ids) = (false, false, true);
            Command::OnStream(Claim {
                key: TARGET,
                words,
                min_idle_ms,
                delivered_ms,
                deliveries,
                is_idle,
                is_forced,
                only_ids,
            })
        }),
        once("XAUTOCLAIM", "stream", |n| {
            let (words, count) = (list_of(["read", "other", "0-0"]), n as u64);
            Command::OnStream(ClaimRange { key: TARGET, words, min_idle_ms: 0, count, only_ids: false })
        }),
    ]
}

fn others() -> Vec<Case> {
    fn options(by_text: bool) -> &'static [u8] {
        let options =
            SortOptions { by: None, gets: list_of([""; 0]), limit: (-1, -1), is_reverse: false, by_text };
        let mut encoded = Vec::new();
        options.encode(&mut encoded);
        kept(encoded)
    }
    fn restored(kind: &str, n: usize) -> Command<'static> {
        Command::Restore {
            key: TARGET,
            payload: key(&format!("payload {kind}"), n),
            deadline: None,
            options: RestoreOptions { replaces: true, used: None },
        }
    }
    vec![
        read("SORT", |n| Command::Sort(SortCommand::Read { key: key("digits", n), options: options(false) })),
        read("SORT ALPHA", |n| {
            Command::Sort(SortCommand::Read { key: key("digits", n), options: options(true) })
        }),
        again("SORT STORE", "", |n| {
            Command::Sort(SortCommand::Store { key: key("digits", n), to: TARGET, options: options(false) })
        }),
        read("DUMP of a string", |n| Command::Dump { key: key("text", n) }),
        read("DUMP of a list", |n| Command::Dump { key: key("list", n) }),
        read("DUMP of a set", |n| Command::Dump { key: key("set", n) }),
        read("DUMP of a sorted set", |n| Command::Dump { key: key("sorted", n) }),
        read("DUMP of a hash", |n| Command::Dump { key: key("hash", n) }),
        read("DUMP of a stream", |n| Command::Dump { key: key("stream", n) }),
        again("RESTORE of a string", "", |n| restored("text", n)),
        again("RESTORE of a list", "", |n| restored("list", n)),
        again("RESTORE of a set", "", |n| restored("set", n)),
        again("RESTORE of a sorted set", "", |n| restored("sorted", n)),
        again("RESTORE of a hash", "", |n| restored("hash", n)),
        again("RESTORE of a stream", "", |n| restored("stream", n)),
        read("KEYS", |_| Command::Keys { pattern: b"*7*" }),
    ]
}
