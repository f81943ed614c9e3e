//! The rows of the commands on hashes.

use super::row::{CHANGES, LOOKS_AT, READ, READS, STORE, UPDATES, data, key};
use crate::hashes;
use crate::spec::Category::Hash;
use crate::spec::Flag::{Fast, Write};
use crate::spec::KeyFlag::{Access, Delete, Insert, ReadWrite};
use crate::spec::{CommandSpec, Flags, Group, KeyFlags, ParseFn};

const fn reads(name: &'static str, arity: i16, parse: ParseFn) -> CommandSpec {
    data(name, arity, parse).flags(READ).keys(key(READS)).in_categories(&[Hash])
}

const fn looks_up(name: &'static str, arity: i16, parse: ParseFn) -> CommandSpec {
    reads(name, arity, parse).flags(READ.with(&[Fast]))
}

const fn stores(name: &'static str, arity: i16, parse: ParseFn) -> CommandSpec {
    data(name, arity, parse).flags(STORE.with(&[Fast])).keys(key(UPDATES)).in_categories(&[Hash])
}

const fn expires(name: &'static str, parse: ParseFn) -> CommandSpec {
    stores(name, -6, parse).docs(Group::Hash, "7.4.0", "O(N log S) for N fields and a hash of S")
}

/// The rows, in the order of the listing.
pub(super) const HASHES: [CommandSpec; 28] = [
    stores("hset", -4, hashes::hset)
        .docs(Group::Hash, "2.0.0", "O(N) for N fields")
        .help("key field value [field value ...]", "Sets fields of a hash and returns how many are new"),
    stores("hsetnx", 4, hashes::hsetnx)
        .keys(key(KeyFlags::of(&[ReadWrite, Insert])))
        .docs(Group::Hash, "2.0.0", "O(1)")
        .help("key field value", "Sets a field of a hash that does not exist"),
    stores("hmset", -4, hashes::hmset)
        .docs(Group::Hash, "2.0.0", "O(N) for N fields")
        .help("key field value [field value ...]", "Sets fields of a hash; the old form of HSET"),
    looks_up("hget", 3, hashes::hget)
        .docs(Group::Hash, "2.0.0", "O(1)")
        .help("key field", "Returns the value of a field of a hash"),
    looks_up("hmget", -3, hashes::hmget)
        .docs(Group::Hash, "2.0.0", "O(N) for N fields")
        .help("key field [field ...]", "Returns the values of fields of a hash"),
    reads("hgetall", 2, hashes::hgetall)
        .tips(&["nondeterministic_output_order"])
        .docs(Group::Hash, "2.0.0", "O(N) for N fields in the hash")
        .help("key", "Returns all fields of a hash with their values"),
    reads("hkeys", 2, hashes::hkeys)
        .tips(&["nondeterministic_output_order"])
        .docs(Group::Hash, "2.0.0", "O(N) for N fields in the hash")
        .help("key", "Returns all fields of a hash"),
    reads("hvals", 2, hashes::hvals)
        .tips(&["nondeterministic_output_order"])
        .docs(Group::Hash, "2.0.0", "O(N) for N fields in the hash")
        .help("key", "Returns the values of all fields of a hash"),
    looks_up("hlen", 2, hashes::hlen)
        .keys(key(LOOKS_AT))
        .docs(Group::Hash, "2.0.0", "O(1)")
        .help("key", "Returns how many fields a hash has"),
    looks_up("hexists", 3, hashes::hexists)
        .keys(key(LOOKS_AT))
        .docs(Group::Hash, "2.0.0", "O(1)")
        .help("key field", "Returns whether a hash has a field"),
    looks_up("hstrlen", 3, hashes::hstrlen)
        .keys(key(LOOKS_AT))
        .docs(Group::Hash, "3.2.0", "O(1)")
        .help("key field", "Returns the length of the value of a field in bytes"),
    stores("hdel", -3, hashes::hdel)
        .flags(Flags::of(&[Write, Fast]))
        .keys(key(KeyFlags::of(&[ReadWrite, Delete])))
        .docs(Group::Hash, "2.0.0", "O(N) for N fields")
        .help("key field [field ...]", "Removes fields of a hash and returns how many there were"),
    stores("hincrby", 4, hashes::hincrby)
        .keys(key(CHANGES))
        .docs(Group::Hash, "2.0.0", "O(1)")
        .help("key field increment", "Adds to the integer in a field of a hash"),
    stores("hincrbyfloat", 4, hashes::hincrbyfloat)
        .keys(key(CHANGES))
        .docs(Group::Hash, "2.6.0", "O(1)")
        .help("key field increment", "Adds to the decimal number in a field of a hash"),
    reads("hscan", -3, hashes::hscan)
        .tips(&["nondeterministic_output"])
        .docs(Group::Hash, "2.8.0", "O(1) for every call, O(N) for a whole scan of N fields")
        .help(
            "key cursor [MATCH pattern] [COUNT count] [NOVALUES]",
            "Returns some fields of a hash with their values, and the cursor to go on from",
        ),
    reads("hrandfield", -2, hashes::hrandfield)
        .tips(&["nondeterministic_output"])
        .docs(Group::Hash, "6.2.0", "O(N log S) for N fields and a hash of S")
        .help("key [count [WITHVALUES]]", "Returns fields of a hash, drawn at random"),
    expires("hexpire", hashes::hexpire).help(
        "key seconds [NX|XX|GT|LT] FIELDS numfields field [field ...]",
        "Lets fields of a hash expire after so many seconds",
    ),
    expires("hpexpire", hashes::hpexpire).help(
        "key milliseconds [NX|XX|GT|LT] FIELDS numfields field [field ...]",
        "Lets fields of a hash expire after so many milliseconds",
    ),
    expires("hexpireat", hashes::hexpireat).help(
        "key unix-time-seconds [NX|XX|GT|LT] FIELDS numfields field [field ...]",
        "Lets fields of a hash expire at a Unix time in seconds",
    ),
    expires("hpexpireat", hashes::hpexpireat).help(
        "key unix-time-milliseconds [NX|XX|GT|LT] FIELDS numfields field [field ...]",
        "Lets fields of a hash expire at a Unix time in milliseconds",
    ),
    looks_up("httl", -5, hashes::httl)
        .tips(&["nondeterministic_output"])
        .docs(Group::Hash, "7.4.0", "O(N log S) for N fields and a hash of S")
        .help("key FIELDS numfields field [field ...]", "Returns how many seconds fields of a hash have left"),
    looks_up("hpttl", -5, hashes::hpttl)
        .tips(&["nondeterministic_output"])
        .docs(Group::Hash, "7.4.0", "O(N log S) for N fields and a hash of S")
        .help("key FIELDS numfields field [field ...]", "Returns how many milliseconds fields of a hash have left"),
    looks_up("hexpiretime", -5, hashes::hexpiretime)
        .docs(Group::Hash, "7.4.0", "O(N log S) for N fields and a hash of S")
        .help("key FIELDS numfields field [field ...]", "Returns when fields expire, as Unix times in seconds"),
    looks_up("hpexpiretime", -5, hashes::hpexpiretime)
        .docs(Group::Hash, "7.4.0", "O(N log S) for N fields and a hash of S")
        .help("key FIELDS numfields field [field ...]", "Returns when fields expire, as Unix times in milliseconds"),
    stores("hpersist", -5, hashes::hpersist)
        .flags(Flags::of(&[Write, Fast]))
        .docs(Group::Hash, "7.4.0", "O(N log S) for N fields and a hash of S")
        .help("key FIELDS numfields field [field ...]", "Removes the expiry of fields of a hash"),
    stores("hgetex", -5, hashes::hgetex)
        .flags(Flags::of(&[Write, Fast]))
        .keys(key(CHANGES))
        .docs(Group::Hash, "8.0.0", "O(N log S) for N fields and a hash of S")
        .help(
            "key [EX seconds|PX milliseconds|EXAT unix-time-seconds|PXAT unix-time-milliseconds|PERSIST] FIELDS numfields \
             field [field ...]",
            "Returns the values of fields of a hash and changes their expiry",
        ),
    stores("hsetex", -6, hashes::hsetex)
        .docs(Group::Hash, "8.0.0", "O(N log S) for N fields and a hash of S")
        .help(
            "key [FNX|FXX] [EX seconds|PX milliseconds|EXAT unix-time-seconds|PXAT unix-time-milliseconds|KEEPTTL] FIELDS \
             numfields field value [field value ...]",
            "Sets fields of a hash and their expiry",
        ),
    stores("hgetdel", -5, hashes::hgetdel)
        .flags(Flags::of(&[Write, Fast]))
        .keys(key(KeyFlags::of(&[ReadWrite, Access, Delete])))
        .docs(Group::Hash, "8.0.0", "O(N log S) for N fields and a hash of S")
        .help("key FIELDS numfields field [field ...]", "Returns the values of fields of a hash and removes them"),
];
