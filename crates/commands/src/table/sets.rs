//! The rows of the commands on sets.

use super::row::{
    LOOKS_AT, READ, READS, REPLACES, STORE, TAKES, UPDATES, counted_keys, data, key, key_and_others, keys,
    two_keys,
};
use crate::sets;
use crate::spec::Category::Set;
use crate::spec::Flag::{Fast, Write};
use crate::spec::KeyFlag::{Delete, Insert, ReadWrite};
use crate::spec::{CommandSpec, Flags, Group, KeyFlags, ParseFn};

const ADDS: KeyFlags = KeyFlags::of(&[ReadWrite, Insert]);
const TAKE: Flags = Flags::of(&[Write, Fast]);

const fn reads(name: &'static str, arity: i16, parse: ParseFn) -> CommandSpec {
    data(name, arity, parse).flags(READ).keys(key(READS)).in_categories(&[Set])
}

const fn looks_up(name: &'static str, arity: i16, parse: ParseFn) -> CommandSpec {
    reads(name, arity, parse).flags(READ.with(&[Fast])).keys(key(LOOKS_AT))
}

const fn changes(name: &'static str, arity: i16, parse: ParseFn) -> CommandSpec {
    data(name, arity, parse).flags(TAKE).keys(key(TAKES)).in_categories(&[Set])
}

const fn combines(name: &'static str, parse: ParseFn) -> CommandSpec {
    reads(name, -2, parse).keys(keys(READS)).tips(&["nondeterministic_output_order"])
}

/// The first key is written, and the others are read.
const fn stores(name: &'static str, target: KeyFlags, parse: ParseFn) -> CommandSpec {
    data(name, -3, parse).flags(STORE).keys(key_and_others(target, READS)).in_categories(&[Set])
}

/// The rows, in the order of the listing.
pub(super) const SETS: [CommandSpec; 17] = [
    changes("sadd", -3, sets::sadd)
        .flags(STORE.with(&[Fast]))
        .keys(key(ADDS))
        .docs(Group::Set, "1.0.0", "O(N log S) for N members and a set of S")
        .help("key member [member ...]", "Adds members to a set and returns how many are new"),
    changes("srem", -3, sets::srem)
        .keys(key(KeyFlags::of(&[ReadWrite, Delete])))
        .docs(Group::Set, "1.0.0", "O(N log S) for N members and a set of S")
        .help("key member [member ...]", "Removes members of a set and returns how many there were"),
    looks_up("scard", 2, sets::scard)
        .docs(Group::Set, "1.0.0", "O(1)")
        .help("key", "Returns how many members a set has"),
    looks_up("sismember", 3, sets::sismember)
        .docs(Group::Set, "1.0.0", "O(log S) for a set of S members")
        .help("key member", "Returns whether something is a member of a set"),
    looks_up("smismember", -3, sets::smismember)
        .keys(key(READS))
        .docs(Group::Set, "6.2.0", "O(N log S) for N members and a set of S")
        .help("key member [member ...]", "Returns for each whether it is a member of a set"),
    reads("smembers", 2, sets::smembers)
        .tips(&["nondeterministic_output_order"])
        .docs(Group::Set, "1.0.0", "O(N) for N members in the set")
        .help("key", "Returns all members of a set"),
    reads("srandmember", -2, sets::srandmember)
        .tips(&["nondeterministic_output"])
        .docs(Group::Set, "1.0.0", "O(N log S) for N members and a set of S")
        .help("key [count]", "Returns members of a set, drawn at random"),
    changes("spop", -2, sets::spop)
        .tips(&["nondeterministic_output"])
        .docs(Group::Set, "1.0.0", "O(N log S) for N members and a set of S")
        .help("key [count]", "Removes members of a set, drawn at random, and returns them"),
    changes("smove", 4, sets::smove)
        .keys(two_keys(TAKES, ADDS))
        .docs(Group::Set, "1.0.0", "O(log S) for sets of S members")
        .help("source destination member", "Moves a member from one set to another"),
    reads("sscan", -3, sets::sscan)
        .tips(&["nondeterministic_output"])
        .docs(Group::Set, "2.8.0", "O(1) for every call, O(N) for a whole scan of N members")
        .help(
            "key cursor [MATCH pattern] [COUNT count]",
            "Returns some members of a set, and the cursor to go on from",
        ),
    combines("sinter", sets::sinter)
        .docs(Group::Set, "1.0.0", "O(N*M log S) for N members in the smallest of M sets of S")
        .help("key [key ...]", "Returns what all sets hold"),
    reads("sintercard", -3, sets::sintercard)
        .flags(READ)
        .keys(counted_keys(1, READS))
        .docs(Group::Set, "7.0.0", "O(N*M log S) for N members in the smallest of M sets of S")
        .help("numkeys key [key ...] [LIMIT limit]", "Returns how many members all sets have in common"),
    stores("sinterstore", UPDATES, sets::sinterstore)
        .docs(Group::Set, "1.0.0", "O(N*M log S) for N members in the smallest of M sets of S")
        .help(
            "destination key [key ...]",
            "Stores what all sets hold, and returns how many members that are",
        ),
    combines("sunion", sets::sunion)
        .docs(Group::Set, "1.0.0", "O(N log M) for N members in M sets")
        .help("key [key ...]", "Returns what any of the sets holds"),
    stores("sunionstore", REPLACES, sets::sunionstore)
        .docs(Group::Set, "1.0.0", "O(N log M) for N members in M sets")
        .help(
            "destination key [key ...]",
            "Stores what any of the sets holds, and returns how many members that are",
        ),
    combines("sdiff", sets::sdiff)
        .docs(Group::Set, "1.0.0", "O(N*M log S) for N members in the first of M sets of S")
        .help("key [key ...]", "Returns what the first set holds and the others do not"),
    stores("sdiffstore", REPLACES, sets::sdiffstore)
        .docs(Group::Set, "1.0.0", "O(N*M log S) for N members in the first of M sets of S")
        .help(
            "destination key [key ...]",
            "Stores what the first set holds and the others do not, and returns how many members that are",
        ),
];
