//! Sorted sets: which requests are refused, in the words of Redis 7.0.

use super::*;
use kv::{AddOptions, Aggregate, By, HashCommand, List, SetOperation, SortedCommand};

#[test]
fn options_of_sorted_sets_are_read() {
    let sorted = |line: &str, expected: SortedCommand<'_>| assert_parses(line, OnSorted(expected));
    let (mut first, mut second, mut third) = (Vec::new(), Vec::new(), Vec::new());
    let pairs = List::build(&mut first, [&b"1"[..], b"a", b"(2", b"b"]);
    let ends = List::build(&mut second, [&b"(1"[..], b"2"]);
    let keys = List::build(&mut third, [&b"a"[..], b"b"]);
    let options = AddOptions { only_old: true, only_greater: true, ..AddOptions::default() };
    let mut fourth = Vec::new();
    let one = List::build(&mut fourth, [&b"1"[..], b"a"]);
    sorted("ZADD k xx GT ch 1 a", SortedCommand::Add { key: KEY, pairs: one, options, counts_changes: true });
    assert_eq!(pairs.len(), 4);
    let options = AddOptions { only_new: true, ..AddOptions::default() };
    sorted(
        "ZADD k nx incr 1.5 v",
        SortedCommand::Increment { key: KEY, delta: b"1.5", member: VALUE, options },
    );
    let options = AddOptions::default();
    sorted("ZINCRBY k -inf v", SortedCommand::Increment { key: KEY, delta: b"-inf", member: VALUE, options });
    sorted("ZCOUNT k (1 2", SortedCommand::Count { key: KEY, by: By::Score, ends });
    let range = |is_reverse, (skip, count), with_scores| {
        let (key, by) = (KEY, By::Score);
        SortedCommand::Range { key, by, ends, is_reverse, skip, count, with_scores }
    };
    sorted("ZRANGE k (1 2 BYSCORE WITHSCORES", range(false, (0, u32::MAX), true));
    sorted("ZRANGE k 2 (1 rev LIMIT -1 7 byscore", range(true, (u32::MAX, 7), false));
    sorted("ZRANGEBYSCORE k (1 2 limit 1 2", range(false, (1, 2), false));
    sorted("ZREVRANGEBYSCORE k 2 (1", range(true, (0, u32::MAX), false));
    let range = SortedCommand::StoreRange {
        to: KEY,
        from: VALUE,
        by: By::Score,
        ends,
        is_reverse: true,
        skip: 0,
        count: 1,
    };
    sorted("ZRANGESTORE k v 2 (1 BYSCORE REV LIMIT 0 1", range);
    sorted("ZPOPMAX k 3", SortedCommand::Pop { key: KEY, is_highest: true, count: Some(3) });
    sorted("ZMPOP 2 a b MIN", SortedCommand::MultiPop { keys, is_highest: false, count: 1 });
    sorted(
        "ZRANDMEMBER k -2 withscores",
        SortedCommand::Random { key: KEY, count: Some(-2), with_scores: true },
    );
    sorted("ZINTERCARD 2 a b LIMIT 7", SortedCommand::CountCommon { keys, limit: 7 });
    let (operation, aggregate) = (SetOperation::Union, Aggregate::Greatest);
    let combine =
        SortedCommand::Combine { operation, inputs: keys, is_weighted: false, aggregate, with_scores: true };
    sorted("ZUNION 2 a b WITHSCORES AGGREGATE max", combine);
    let mut scratch = Vec::new();
    let inputs = List::build(&mut scratch, [&b"a"[..], b"1", b"b", b"-2"]);
    let (operation, aggregate) = (SetOperation::Intersection, Aggregate::Sum);
    let store = SortedCommand::Store { to: KEY, operation, inputs, is_weighted: true, aggregate };
    sorted("ZINTERSTORE k 2 a b WEIGHTS 1 -2", store);
}

#[test]
fn errors_of_commands_on_sorted_sets_are_those_of_redis() {
    let (syntax, integer) = ("ERR syntax error", "ERR value is not an integer or out of range");
    let (float, scores) = ("ERR value is not a valid float", "ERR min or max is not a float");
    let members = "ERR min or max not valid string range item";
    let exclusive = "ERR GT, LT, and/or NX options at the same time are not compatible";
    let count = "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807";
    for (line, expected) in [
        ("ZADD z 1", "ERR wrong number of arguments for 'zadd' command"),
        ("ZADD z x a", float),
        ("ZADD z nan a", float),
        ("ZADD z 1e400 a", float),
        ("ZADD z 1 a 2", syntax),
        ("ZADD z 1 a foo 1", float),
        ("ZADD z ch 1", syntax),
        ("ZADD z nx xx 1 a", "ERR XX and NX options at the same time are not compatible"),
        ("ZADD z nx gt 1 a", exclusive),
        ("ZADD z gt lt 1 a", exclusive),
        ("ZADD z incr 1 a 2 b", "ERR INCR option supports a single increment-element pair"),
        ("ZINCRBY z x a", float),
        ("ZRANGE z x 1", integer),
        ("ZRANGE z 0 1 foo", syntax),
        (
            "ZRANGE z 0 1 limit 0 1",
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
        ),
        (
            "ZRANGE z 0 1 limit 0 -2",
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
        ),
        ("ZRANGE z x 1 limit 5 -1", integer),
        (
            "ZRANGE z 0 1 bylex withscores",
            "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
        ),
        (
            "ZRANGEBYLEX z - + withscores",
            "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
        ),
        ("ZRANGE z 0 1 bylex", members),
        ("ZRANGE z a b byscore", scores),
        ("ZRANGE z 1 2 byscore limit x 1", integer),
        ("ZRANGE z 1 2 byscore limit 0", syntax),
        ("ZRANGE z 0 -1 rev rev", syntax),
        ("ZRANGEBYSCORE z a b", scores),
        ("ZRANGEBYSCORE z nan 1", scores),
        ("ZRANGEBYSCORE z (a 1", scores),
        ("ZRANGEBYSCORE z 1 2 limit 0", syntax),
        ("ZRANGEBYSCORE z 1 2 byscore", syntax),
        ("ZRANGEBYLEX z a b", members),
        ("ZREVRANGE z 0 0 foo", syntax),
        ("ZRANGESTORE d z 0 -1 withscores", syntax),
        ("ZCOUNT z a b", scores),
        ("ZLEXCOUNT z a b", members),
        ("ZREMRANGEBYRANK z x 1", integer),
        ("ZREMRANGEBYSCORE z a b", scores),
        ("ZREMRANGEBYLEX z a b", members),
        ("ZPOPMIN z x", "ERR value is out of range, must be positive"),
        ("ZPOPMAX z 1 2", syntax),
        ("ZMPOP 0 z min", "ERR numkeys should be greater than 0"),
        ("ZMPOP 1 z foo", syntax),
        ("ZMPOP 2 z min", syntax),
        ("ZMPOP 1 z min count 0", "ERR count should be greater than 0"),
        ("ZMPOP 1 z max count 1 count 1", syntax),
        ("ZRANDMEMBER z x", integer),
        ("ZRANDMEMBER z 1 foo", syntax),
        ("ZRANDMEMBER z 1 withscores x", syntax),
        ("ZRANDMEMBER z -9223372036854775808", count),
        ("ZRANDMEMBER z -9223372036854775808 withscores", count),
        ("ZRANDMEMBER z -4611686018427387905 withscores", "ERR value is out of range"),
        ("ZUNION 0 z", "ERR at least 1 input key is needed for 'zunion' command"),
        ("ZDIFFSTORE d 0 z", "ERR at least 1 input key is needed for 'zdiffstore' command"),
        ("ZUNION x z", integer),
        ("ZUNION 3 z y", syntax),
        ("ZUNION 1 z foo", syntax),
        ("ZUNION 2 z y weights 1", syntax),
        ("ZUNION 2 z y weights x 1", "ERR weight value is not a float"),
        ("ZUNION 2 z y aggregate foo", syntax),
        ("ZUNIONSTORE d 2 z y weights 1 2 3", syntax),
        ("ZUNIONSTORE d 2 z y withscores", syntax),
        ("ZUNIONSTORE d 1 z aggregate", syntax),
        ("ZDIFF 2 z y weights 1 1", syntax),
        ("ZINTERCARD 0 z", "ERR at least 1 input key is needed for 'zintercard' command"),
        ("ZINTERCARD 3 z y", syntax),
        ("ZINTERCARD 2 z y limit -1", "ERR LIMIT can't be negative"),
        ("ZINTERCARD 2 z y foo", syntax),
        ("ZSCAN z 0 count 0", syntax),
        ("ZSCAN z 0 NOSCORES count 1", syntax),
    ] {
        assert_refused(line, expected);
    }
}

#[test]
fn a_scan_may_leave_out_scores() {
    let scan = SortedCommand::ScanMembers { key: KEY, position: 7, count: 5, pattern: Some(b"NOSCORES") };
    assert_parses("ZSCAN k 7 COUNT 5 MATCH NOSCORES noscores", OnSorted(scan));
    let scan = SortedCommand::Scan { key: KEY, position: 7, count: 10, pattern: Some(b"NOSCORES") };
    assert_parses("ZSCAN k 7 MATCH NOSCORES COUNT 10", OnSorted(scan));
    assert!(at_level_1("ZSCAN k 7 NOSCORES").is_err());
}

#[test]
fn hexadecimal_numbers_become_decimal_ones() {
    let mut scratch = Vec::new();
    let pairs = List::build(&mut scratch, [&b"1"[..], b"0x1", b"16", b"m", b"-0.5", b"n"]);
    let (options, counts_changes) = (AddOptions::default(), false);
    let sorted = |line: &str, expected: SortedCommand<'_>| assert_parses(line, OnSorted(expected));
    let add = SortedCommand::Add { key: KEY, pairs, options, counts_changes };
    sorted("ZADD k 1 0x1 0x10 m -0x1p-1 n", add);
    let (delta, member) = (&b"10"[..], &b"0x2"[..]);
    let increment = SortedCommand::Increment { key: KEY, delta, member, options };
    sorted("ZINCRBY k 0xA 0x2", increment);
    sorted("ZADD k INCR 0xA 0x2", increment);
    assert_parses("INCRBYFLOAT k 0x1.8", IncrementByFloat { key: KEY, delta: b"1.5" });
    let (field, delta) = (&b"0x1"[..], &b"0.25"[..]);
    assert_parses(
        "HINCRBYFLOAT k 0x1 0x1p-2",
        Hash(HashCommand::IncrementByFloat { key: KEY, field, delta }),
    );
    let mut scratch = Vec::new();
    let keys = List::build(&mut scratch, [KEY]);
    assert_parses("BZPOPMIN k 0x1.8", OnSorted(SortedCommand::PopAny { keys, is_highest: false }));
    assert_refused("BLPOP k 0x7FFFFFFFFFFFFF", "ERR timeout is out of range");
    assert_refused("ZADD k 0x m", "ERR value is not a valid float");
    assert_refused("ZCOUNT k 0 0x1", "ERR min or max is not a float");
    for line in
        ["BLPOP k 0x1", "ZADD k 0x1 m", "ZINCRBY k 0x1 m", "INCRBYFLOAT k 0x1", "HINCRBYFLOAT k f 0x1"]
    {
        assert!(at_level_1(line).is_err(), "nodes of release 1 refuse {line}");
    }
}
