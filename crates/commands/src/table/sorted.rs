//! The rows of the commands on sorted sets.

use super::row::{
    CHANGES, READ, READS, REPLACES, STORE, TAKES, counted, counted_keys, data, key, keys_before_last, range,
    two_keys,
};
use crate::arguments::{wait_in_first, wait_in_last};
use crate::sorted;
use crate::spec::Category::SortedSet;
use crate::spec::Flag::{Blocking, Fast, NoScript, Write};
use crate::spec::KeyFlag::{Access, Delete, ReadWrite, Update, Variable};
use crate::spec::{CommandSpec, Flags, Group, KeyFlags, KeySpecs, ParseFn};

const SHORTENS: KeyFlags = KeyFlags::of(&[ReadWrite, Delete]);
const COUNTED: KeySpecs = counted_keys(1, READS);
/// A key to store under, and counted keys.
const STORED: KeySpecs = KeySpecs::of(&[range(1, 0, REPLACES), counted(2, READS)]);

const fn reads(name: &'static str, arity: i16, parse: ParseFn) -> CommandSpec {
    data(name, arity, parse).flags(READ).keys(key(READS)).in_categories(&[SortedSet])
}

const fn looks_up(name: &'static str, arity: i16, parse: ParseFn) -> CommandSpec {
    reads(name, arity, parse).flags(READ.with(&[Fast]))
}

const fn changes(name: &'static str, arity: i16, parse: ParseFn) -> CommandSpec {
    data(name, arity, parse).flags(Flags::of(&[Write])).keys(key(SHORTENS)).in_categories(&[SortedSet])
}

const fn combines(name: &'static str, parse: ParseFn) -> CommandSpec {
    reads(name, -3, parse).flags(READ).keys(COUNTED)
}

const fn stores(name: &'static str, parse: ParseFn) -> CommandSpec {
    changes(name, -4, parse).flags(STORE).keys(STORED)
}

/// The rows, in the order of the listing.
pub(super) const SORTED: [CommandSpec; 35] = [
    changes("zadd", -4, sorted::zadd)
        .flags(STORE.with(&[Fast]))
        .keys(key(KeyFlags::of(&[ReadWrite, Access, Update, Variable])))
        .docs(Group::SortedSet, "1.2.0", "O(N log S) for N members and a sorted set of S")
        .help(
            "key [NX|XX] [GT|LT] [CH] [INCR] score member [score member ...]",
            "Sets the scores of members of a sorted set and returns how many are new",
        ),
    changes("zincrby", 4, sorted::zincrby)
        .flags(STORE.with(&[Fast]))
        .keys(key(CHANGES))
        .docs(Group::SortedSet, "1.2.0", "O(log S) for a sorted set of S members")
        .help("key increment member", "Adds to the score of a member of a sorted set"),
    changes("zrem", -3, sorted::zrem)
        .flags(Flags::of(&[Write, Fast]))
        .docs(Group::SortedSet, "1.2.0", "O(N log S) for N members and a sorted set of S")
        .help("key member [member ...]", "Removes members of a sorted set and returns how many there were"),
    looks_up("zcard", 2, sorted::zcard)
        .keys(key(super::row::LOOKS_AT))
        .docs(Group::SortedSet, "1.2.0", "O(1)")
        .help("key", "Returns how many members a sorted set has"),
    looks_up("zscore", 3, sorted::zscore)
        .docs(Group::SortedSet, "1.2.0", "O(log S) for a sorted set of S members")
        .help("key member", "Returns the score of a member of a sorted set"),
    looks_up("zmscore", -3, sorted::zmscore)
        .docs(Group::SortedSet, "6.2.0", "O(N log S) for N members and a sorted set of S")
        .help("key member [member ...]", "Returns the scores of members of a sorted set"),
    looks_up("zcount", 4, sorted::zcount)
        .docs(Group::SortedSet, "2.0.0", "O(log S) for a sorted set of S members")
        .help("key min max", "Returns how many members have scores in a range"),
    looks_up("zlexcount", 4, sorted::zlexcount)
        .docs(Group::SortedSet, "2.8.9", "O(log S) for a sorted set of S members")
        .help("key min max", "Returns how many members are in a range, if all scores are the same"),
    looks_up("zrank", -3, sorted::zrank)
        .docs(Group::SortedSet, "2.0.0", "O(log S) for a sorted set of S members")
        .help("key member [WITHSCORE]", "Returns the rank of a member, the lowest score first"),
    looks_up("zrevrank", -3, sorted::zrevrank)
        .docs(Group::SortedSet, "2.0.0", "O(log S) for a sorted set of S members")
        .help("key member [WITHSCORE]", "Returns the rank of a member, the highest score first"),
    reads("zrange", -4, sorted::zrange)
        .docs(Group::SortedSet, "1.2.0", "O(N + log S) for N members and a sorted set of S")
        .help(
            "key start stop [BYSCORE|BYLEX] [REV] [LIMIT offset count] [WITHSCORES]",
            "Returns the members in a range of ranks, scores or members",
        ),
    changes("zrangestore", -5, sorted::zrangestore)
        .flags(STORE)
        .keys(two_keys(REPLACES, READS))
        .docs(Group::SortedSet, "6.2.0", "O(N + log S) for N members and a sorted set of S")
        .help(
            "destination source start stop [BYSCORE|BYLEX] [REV] [LIMIT offset count]",
            "Stores the members in a range of ranks, scores or members",
        ),
    reads("zrevrange", -4, sorted::zrevrange)
        .docs(Group::SortedSet, "1.2.0", "O(N + log S) for N members and a sorted set of S")
        .help("key start stop [WITHSCORES]", "Returns the members in a range of ranks from the end"),
    reads("zrangebyscore", -4, sorted::zrangebyscore)
        .docs(Group::SortedSet, "1.0.5", "O(N + log S) for N members and a sorted set of S")
        .help("key min max [WITHSCORES] [LIMIT offset count]", "Returns the members with scores in a range"),
    reads("zrevrangebyscore", -4, sorted::zrevrangebyscore)
        .docs(Group::SortedSet, "2.2.0", "O(N + log S) for N members and a sorted set of S")
        .help(
            "key max min [WITHSCORES] [LIMIT offset count]",
            "Returns the members with scores in a range, the highest score first",
        ),
    reads("zrangebylex", -4, sorted::zrangebylex)
        .docs(Group::SortedSet, "2.8.9", "O(N + log S) for N members and a sorted set of S")
        .help("key min max [LIMIT offset count]", "Returns the members in a range, if all scores are the same"),
    reads("zrevrangebylex", -4, sorted::zrevrangebylex)
        .docs(Group::SortedSet, "2.8.9", "O(N + log S) for N members and a sorted set of S")
        .help(
            "key max min [LIMIT offset count]",
            "Returns the members in a range from its end, if all scores are the same",
        ),
    changes("zpopmin", -2, sorted::zpopmin)
        .flags(Flags::of(&[Write, Fast]))
        .keys(key(TAKES))
        .docs(Group::SortedSet, "5.0.0", "O(N log S) for N members and a sorted set of S")
        .help("key [count]", "Removes the members with the lowest scores and returns them"),
    changes("zpopmax", -2, sorted::zpopmax)
        .flags(Flags::of(&[Write, Fast]))
        .keys(key(TAKES))
        .docs(Group::SortedSet, "5.0.0", "O(N log S) for N members and a sorted set of S")
        .help("key [count]", "Removes the members with the highest scores and returns them"),
    changes("zmpop", -4, sorted::zmpop)
        .flags(Flags::of(&[Write]))
        .keys(counted_keys(1, TAKES))
        .docs(Group::SortedSet, "7.0.0", "O(K + N log S) for K keys, N members and a sorted set of S")
        .help(
            "numkeys key [key ...] MIN|MAX [COUNT count]",
            "Removes members of the first sorted set that has any, and returns its key and them",
        ),
    changes("zremrangebyrank", 4, sorted::zremrangebyrank)
        .docs(Group::SortedSet, "2.0.0", "O(N log S) for N members and a sorted set of S")
        .help("key start stop", "Removes the members in a range of ranks"),
    changes("zremrangebyscore", 4, sorted::zremrangebyscore)
        .docs(Group::SortedSet, "1.2.0", "O(N log S) for N members and a sorted set of S")
        .help("key min max", "Removes the members with scores in a range"),
    changes("zremrangebylex", 4, sorted::zremrangebylex)
        .docs(Group::SortedSet, "2.8.9", "O(N log S) for N members and a sorted set of S")
        .help("key min max", "Removes the members in a range, if all scores are the same"),
    reads("zrandmember", -2, sorted::zrandmember)
        .tips(&["nondeterministic_output"])
        .docs(Group::SortedSet, "6.2.0", "O(N log S) for N members and a sorted set of S")
        .help("key [count [WITHSCORES]]", "Returns members of a sorted set, drawn at random"),
    reads("zscan", -3, sorted::zscan)
        .tips(&["nondeterministic_output"])
        .docs(Group::SortedSet, "2.8.0", "O(1) for every call, O(N) for a whole scan of N members")
        .help(
            "key cursor [MATCH pattern] [COUNT count] [NOSCORES]",
            "Returns some members of a sorted set with their scores, and the cursor to go on from",
        ),
    combines("zunion", sorted::zunion)
        .docs(Group::SortedSet, "6.2.0", "O(N log N) for N members in all sorted sets")
        .help(
            "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE SUM|MIN|MAX] [WITHSCORES]",
            "Returns what any of the sorted sets holds",
        ),
    stores("zunionstore", sorted::zunionstore)
        .docs(Group::SortedSet, "2.0.0", "O(N log N) for N members in all sorted sets")
        .help(
            "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE SUM|MIN|MAX]",
            "Stores what any of the sorted sets holds, and returns how many members that are",
        ),
    combines("zinter", sorted::zinter)
        .docs(Group::SortedSet, "6.2.0", "O(N*M log S) for N members in the smallest of M sorted sets of S")
        .help(
            "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE SUM|MIN|MAX] [WITHSCORES]",
            "Returns what all sorted sets hold",
        ),
    combines("zintercard", sorted::zintercard)
        .docs(Group::SortedSet, "7.0.0", "O(N*M log S) for N members in the smallest of M sorted sets of S")
        .help("numkeys key [key ...] [LIMIT limit]", "Returns how many members all sorted sets have in common"),
    stores("zinterstore", sorted::zinterstore)
        .docs(Group::SortedSet, "2.0.0", "O(N*M log S) for N members in the smallest of M sorted sets of S")
        .help(
            "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE SUM|MIN|MAX]",
            "Stores what all sorted sets hold, and returns how many members that are",
        ),
    combines("zdiff", sorted::zdiff)
        .docs(Group::SortedSet, "6.2.0", "O(N*M log S) for N members in the first of M sorted sets of S")
        .help("numkeys key [key ...] [WITHSCORES]", "Returns what the first sorted set holds and the others do not"),
    stores("zdiffstore", sorted::zdiffstore)
        .docs(Group::SortedSet, "6.2.0", "O(N*M log S) for N members in the first of M sorted sets of S")
        .help(
            "destination numkeys key [key ...]",
            "Stores what the first sorted set holds and the others do not, and returns how many members that are",
        ),
    changes("bzpopmin", -3, sorted::bzpopmin)
        .waits(wait_in_last)
        .flags(Flags::of(&[Write, NoScript, Blocking, Fast]))
        .keys(keys_before_last(TAKES))
        .docs(Group::SortedSet, "5.0.0", "O(K + log S) for K keys and a sorted set of S")
        .help(
            "key [key ...] timeout",
            "Removes the member with the lowest score of the first sorted set that has any, and waits for one if none has",
        ),
    changes("bzpopmax", -3, sorted::bzpopmax)
        .waits(wait_in_last)
        .flags(Flags::of(&[Write, NoScript, Blocking, Fast]))
        .keys(keys_before_last(TAKES))
        .docs(Group::SortedSet, "5.0.0", "O(K + log S) for K keys and a sorted set of S")
        .help(
            "key [key ...] timeout",
            "Removes the member with the highest score of the first sorted set that has any, and waits for one if none has",
        ),
    changes("bzmpop", -5, sorted::bzmpop)
        .waits(wait_in_first)
        .flags(Flags::of(&[Write, Blocking]))
        .keys(counted_keys(2, TAKES))
        .docs(Group::SortedSet, "7.0.0", "O(K + N log S) for K keys, N members and a sorted set of S")
        .help(
            "timeout numkeys key [key ...] MIN|MAX [COUNT count]",
            "Removes members of the first sorted set that has any, and waits for some if none has",
        ),
];
