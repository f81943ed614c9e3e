//! The command table: every command, described once.
//!
//! A command's name, its number of arguments, the positions of its keys, what it may do and what executes
//! it are defined here and nowhere else. Routing, `COMMAND`, `HELP`, statistics and the documentation
//! read them. The descriptions match Redis's, so that its clients understand them.

mod bytes;
mod channels;
mod geo;
mod hashes;
mod lists;
mod row;
mod sets;
mod sorted;
mod streams;
mod subcommands;

use super::spec::Category::{
    Admin, Connection, Dangerous, Keyspace, List, Set, SortedSet, String as StringCategory,
    Transaction as TransactionCategory,
};
use super::spec::CommandCommand::All;
use super::spec::Flag::{
    AllowBusy, Blocking, Fast, Loading, NoMulti, NoScript, ReadOnly, SkipSlowlog, Stale, Write,
};
use super::spec::KeyFlag::{Access, Delete, Insert, NotKey, ReadWrite, Update, Variable};
use super::spec::NamedBy::{Digest, Function, Text};
use super::spec::NodeCommand::{
    self, Auth, Command, Echo, Hello, Info, Lock, Ping, Quit, Reset, Select, Server, Time, Transaction, Wait,
};
use super::spec::TransactionCommand::{Discard, Exec, Multi, Unwatch, Watch};
use super::spec::{
    Begin, CommandSpec, Flag, Flags, Group, KeyFlags, KeySpec, KeySpecs, LockVerb, RunScript, ServerCommand,
};
use super::{expiry, keyspace, sort, strings};
use bytes::BYTES;
use channels::CHANNELS;
use geo::GEO;
use hashes::HASHES;
use lists::LISTS;
use row::{
    ANY_TIME, BEFORE_AUTH, GUARDS, INSERTS, LOCKS, LOOKS_AT, OPERATORS, READ, STORE, after, container,
    counted_keys_with_values, data, key, keys, keys_with_values, node, range, script, two_keys,
};
pub(super) use row::{CHANGES, READS, REMOVES, REPLACES, TAKES, UPDATES};
use sets::SETS;
use sorted::SORTED;
use streams::STREAMS;
use subcommands::{
    ACL, CLIENT, CLUSTER, COMMAND, COMMANDLOG, CONFIG, DEBUG, FUNCTION, HOTKEYS, KEYSPACE, LATENCY,
    LOCK_SESSION, MEMORY, MODULE, OBJECT, SCRIPT, SLOWLOG,
};

const COMMAND_ROWS: usize = ROWS.len()
    + HASHES.len()
    + LISTS.len()
    + SETS.len()
    + SORTED.len()
    + BYTES.len()
    + GEO.len()
    + STREAMS.len()
    + CHANNELS.len();

/// All commands, in the order of the listing. Subcommands are inside their containers.
pub static COMMANDS: [CommandSpec; COMMAND_ROWS] = {
    let families: [&[CommandSpec]; 9] =
        [&ROWS, &HASHES, &LISTS, &SETS, &SORTED, &STREAMS, &BYTES, &GEO, &CHANNELS];
    let mut all = [ROWS[0]; COMMAND_ROWS];
    let (mut family, mut row, mut place) = (0, 0, 0);
    while place < COMMAND_ROWS {
        if row == families[family].len() {
            (family, row) = (family + 1, 0);
        }
        all[place] = families[family][row];
        (row, place) = (row + 1, place + 1);
    }
    all
};

/// Commands on a copy of all data, or on where it comes from.
const COPIES_ALL: Flags = Flags::of(&[Flag::Admin, NoScript, Flag::NoAsyncLoading]);

/// What `SORT` sorts, and the keys that `BY` and `GET` make of the items.
const SORTED_KEY: KeySpec = range(1, 0, READS);
const SORTED_BY: KeySpec = after(Begin::Unknown, READS);

/// The commands whose rows have no file of their own.
static ROWS: [CommandSpec; 116] = [
    // Strings.
    data("get", 2, strings::get)
        .flags(READ.with(&[Fast]))
        .keys(key(READS))
        .in_categories(&[StringCategory])
        .docs(Group::String, "1.0.0", "O(1)")
        .help("key", "Returns the value of a key"),
    data("set", -3, strings::set)
        .flags(STORE)
        .keys(key(KeyFlags::of(&[ReadWrite, Access, Update, Variable])))
        .in_categories(&[StringCategory])
        .docs(Group::String, "1.0.0", "O(1)")
        .help(
            "key value [NX|XX|IFEQ value|IFNE value|IFDEQ digest|IFDNE digest] [GET] [EX seconds|PX milliseconds|EXAT unix-time-seconds|\
             PXAT unix-time-milliseconds|KEEPTTL] [FENCE lock token]",
            "Sets the value of a key, and its expiry if one is given",
        ),
    data("setnx", 3, strings::setnx)
        .flags(STORE.with(&[Fast]))
        .keys(key(INSERTS))
        .in_categories(&[StringCategory])
        .docs(Group::String, "1.0.0", "O(1)")
        .help("key value", "Sets the value of a key that does not exist"),
    data("setex", 4, expiry::setex)
        .flags(STORE)
        .keys(key(REPLACES))
        .in_categories(&[StringCategory])
        .docs(Group::String, "2.0.0", "O(1)")
        .help("key seconds value", "Sets the value of a key and its time to live in seconds"),
    data("psetex", 4, expiry::psetex)
        .flags(STORE)
        .keys(key(REPLACES))
        .in_categories(&[StringCategory])
        .docs(Group::String, "2.6.0", "O(1)")
        .help("key milliseconds value", "Sets the value of a key and its time to live in milliseconds"),
    data("getset", 3, strings::getset)
        .flags(STORE.with(&[Fast]))
        .keys(key(CHANGES))
        .in_categories(&[StringCategory])
        .docs(Group::String, "1.0.0", "O(1)")
        .help("key value", "Sets the value of a key and returns the one before"),
    data("getdel", 2, strings::getdel)
        .flags(Flags::of(&[Write, Fast]))
        .keys(key(TAKES))
        .in_categories(&[StringCategory])
        .docs(Group::String, "6.2.0", "O(1)")
        .help("key", "Returns the value of a key and removes the key"),
    data("getex", -2, expiry::getex)
        .flags(Flags::of(&[Write, Fast]))
        .keys(key(CHANGES))
        .in_categories(&[StringCategory])
        .docs(Group::String, "6.2.0", "O(1)")
        .help(
            "key [EX seconds|PX milliseconds|EXAT unix-time-seconds|PXAT unix-time-milliseconds|PERSIST]",
            "Returns the value of a key and changes its expiry",
        ),
    data("mget", -2, strings::mget)
        .flags(READ.with(&[Fast]))
        .keys(keys(READS))
        .in_categories(&[StringCategory])
        .tips(&["request_policy:multi_shard"])
        .docs(Group::String, "1.0.0", "O(N) for N keys")
        .help("key [key ...]", "Returns the values of several keys"),
    data("mset", -3, strings::mset)
        .flags(STORE)
        .keys(keys_with_values(REPLACES))
        .in_categories(&[StringCategory])
        .tips(&["request_policy:multi_shard", "response_policy:all_succeeded"])
        .docs(Group::String, "1.0.1", "O(N) for N keys")
        .help("key value [key value ...]", "Sets the values of several keys"),
    data("msetnx", -3, strings::msetnx)
        .flags(STORE)
        .keys(keys_with_values(INSERTS))
        .in_categories(&[StringCategory])
        .tips(&["request_policy:multi_shard", "response_policy:agg_min"])
        .docs(Group::String, "1.0.1", "O(N) for N keys")
        .help("key value [key value ...]", "Sets the values of several keys, if none of them exists"),
    data("msetex", -4, strings::msetex)
        .flags(STORE)
        .keys(counted_keys_with_values(REPLACES))
        .in_categories(&[StringCategory])
        .tips(&["request_policy:multi_shard", "response_policy:all_succeeded"])
        .docs(Group::String, "8.4.0", "O(N) for N keys")
        .help(
            "numkeys key value [key value ...] [NX|XX] [EX seconds|PX milliseconds|EXAT seconds|PXAT milliseconds|KEEPTTL]",
            "Sets the values of several keys with one expiry, if all or none of them exist",
        ),
    data("delifeq", 3, strings::delifeq)
        .flags(Flags::of(&[Write, Fast]))
        // Whether it removes the key tells what the value is.
        .keys(key(TAKES))
        .in_categories(&[StringCategory])
        .docs(Group::String, "9.0.0", "O(1)")
        .help("key value", "Removes a key if it has this value; Valkey's name for DELEX with IFEQ"),
    data("delex", -2, strings::delex)
        .flags(Flags::of(&[Write, Fast]))
        .keys(key(KeyFlags::of(&[ReadWrite, Access, Delete, Variable])))
        .in_categories(&[StringCategory])
        .docs(Group::String, "8.4.0", "O(1), O(N) for IFDEQ and IFDNE and a value of N bytes")
        .help(
            "key [IFEQ value|IFNE value|IFDEQ digest|IFDNE digest]",
            "Removes a key, if its value meets a condition",
        ),
    data("digest", 2, strings::digest)
        .flags(READ.with(&[Fast]))
        .keys(key(READS))
        .in_categories(&[StringCategory])
        .docs(Group::String, "8.4.0", "O(N) for a value of N bytes")
        .help("key", "Returns the digest of a key's value: XXH3 in 16 hexadecimal digits"),
    data("append", 3, strings::append)
        .flags(STORE.with(&[Fast]))
        .keys(key(KeyFlags::of(&[ReadWrite, Insert])))
        .in_categories(&[StringCategory])
        .docs(Group::String, "2.0.0", "O(1) amortized")
        .help("key value", "Appends to the value of a key and returns its length"),
    data("strlen", 2, strings::strlen)
        .flags(READ.with(&[Fast]))
        .keys(key(LOOKS_AT))
        .in_categories(&[StringCategory])
        .docs(Group::String, "2.2.0", "O(1)")
        .help("key", "Returns the length of a key's value in bytes"),
    data("getrange", 4, strings::getrange)
        .flags(READ)
        .keys(key(READS))
        .in_categories(&[StringCategory])
        .docs(Group::String, "2.4.0", "O(N) for N bytes returned")
        .help("key start end", "Returns a part of a key's value"),
    data("substr", 4, strings::getrange)
        .flags(READ)
        .keys(key(READS))
        .in_categories(&[StringCategory])
        .docs(Group::String, "1.0.0", "O(N) for N bytes returned")
        .help("key start end", "Returns a part of a key's value; the old name of GETRANGE"),
    data("setrange", 4, strings::setrange)
        .flags(STORE)
        .keys(key(KeyFlags::of(&[ReadWrite, Update])))
        .in_categories(&[StringCategory])
        .docs(Group::String, "2.2.0", "O(N) for N bytes written")
        .help("key offset value", "Overwrites a part of a key's value from an offset on"),
    data("incr", 2, strings::incr)
        .flags(STORE.with(&[Fast]))
        .keys(key(CHANGES))
        .in_categories(&[StringCategory])
        .docs(Group::String, "1.0.0", "O(1)")
        .help("key", "Adds one to the integer at a key"),
    data("decr", 2, strings::decr)
        .flags(STORE.with(&[Fast]))
        .keys(key(CHANGES))
        .in_categories(&[StringCategory])
        .docs(Group::String, "1.0.0", "O(1)")
        .help("key", "Subtracts one from the integer at a key"),
    data("incrby", 3, strings::incrby)
        .flags(STORE.with(&[Fast]))
        .keys(key(CHANGES))
        .in_categories(&[StringCategory])
        .docs(Group::String, "1.0.0", "O(1)")
        .help("key increment", "Adds to the integer at a key"),
    data("decrby", 3, strings::decrby)
        .flags(STORE.with(&[Fast]))
        .keys(key(CHANGES))
        .in_categories(&[StringCategory])
        .docs(Group::String, "1.0.0", "O(1)")
        .help("key decrement", "Subtracts from the integer at a key"),
    data("incrbyfloat", 3, strings::incrbyfloat)
        .flags(STORE.with(&[Fast]))
        .keys(key(CHANGES))
        .in_categories(&[StringCategory])
        .docs(Group::String, "2.6.0", "O(1)")
        .help("key increment", "Adds to the decimal number at a key"),
    data("increx", -2, strings::increx)
        .flags(STORE.with(&[Fast]))
        .keys(key(CHANGES))
        .in_categories(&[StringCategory])
        .docs(Group::String, "8.8.0", "O(1)")
        .help(
            "key [BYFLOAT increment|BYINT increment] [LBOUND bound] [UBOUND bound] [SATURATE] [EX seconds|PX milliseconds|EXAT seconds|PXAT milliseconds|PERSIST] [ENX]",
            "Adds to the number at a key within bounds, and sets its expiry",
        ),
    // Expiry.
    data("expire", -3, expiry::expire)
        .flags(Flags::of(&[Write, Fast]))
        .keys(key(UPDATES))
        .in_categories(&[Keyspace])
        .docs(Group::Generic, "1.0.0", "O(1)")
        .help("key seconds [NX|XX|GT|LT]", "Lets a key expire after so many seconds"),
    data("pexpire", -3, expiry::pexpire)
        .flags(Flags::of(&[Write, Fast]))
        .keys(key(UPDATES))
        .in_categories(&[Keyspace])
        .docs(Group::Generic, "2.6.0", "O(1)")
        .help("key milliseconds [NX|XX|GT|LT]", "Lets a key expire after so many milliseconds"),
    data("expireat", -3, expiry::expireat)
        .flags(Flags::of(&[Write, Fast]))
        .keys(key(UPDATES))
        .in_categories(&[Keyspace])
        .docs(Group::Generic, "1.2.0", "O(1)")
        .help("key unix-time-seconds [NX|XX|GT|LT]", "Lets a key expire at a Unix time in seconds"),
    data("pexpireat", -3, expiry::pexpireat)
        .flags(Flags::of(&[Write, Fast]))
        .keys(key(UPDATES))
        .in_categories(&[Keyspace])
        .docs(Group::Generic, "2.6.0", "O(1)")
        .help("key unix-time-milliseconds [NX|XX|GT|LT]", "Lets a key expire at a Unix time in milliseconds"),
    data("ttl", 2, expiry::ttl)
        .flags(READ.with(&[Fast]))
        .keys(key(READS))
        .in_categories(&[Keyspace])
        .tips(&["nondeterministic_output"])
        .docs(Group::Generic, "1.0.0", "O(1)")
        .help("key", "Returns how many seconds a key has left"),
    data("pttl", 2, expiry::pttl)
        .flags(READ.with(&[Fast]))
        .keys(key(READS))
        .in_categories(&[Keyspace])
        .tips(&["nondeterministic_output"])
        .docs(Group::Generic, "2.6.0", "O(1)")
        .help("key", "Returns how many milliseconds a key has left"),
    data("expiretime", 2, expiry::expiretime)
        .flags(READ.with(&[Fast]))
        .keys(key(READS))
        .in_categories(&[Keyspace])
        .docs(Group::Generic, "7.0.0", "O(1)")
        .help("key", "Returns when a key expires, as a Unix time in seconds"),
    data("pexpiretime", 2, expiry::pexpiretime)
        .flags(READ.with(&[Fast]))
        .keys(key(READS))
        .in_categories(&[Keyspace])
        .docs(Group::Generic, "7.0.0", "O(1)")
        .help("key", "Returns when a key expires, as a Unix time in milliseconds"),
    data("persist", 2, expiry::persist)
        .flags(Flags::of(&[Write, Fast]))
        .keys(key(UPDATES))
        .in_categories(&[Keyspace])
        .docs(Group::Generic, "2.2.0", "O(1)")
        .help("key", "Removes the expiry of a key"),
    // Keys of any kind, and the keyspace as a whole.
    data("del", -2, keyspace::delete)
        .flags(Flags::of(&[Write]))
        .keys(keys(REMOVES))
        .in_categories(&[Keyspace])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .docs(Group::Generic, "1.0.0", "O(N) for N keys")
        .help("key [key ...]", "Removes keys and returns how many there were"),
    data("unlink", -2, keyspace::delete)
        .flags(Flags::of(&[Write, Fast]))
        .keys(keys(REMOVES))
        .in_categories(&[Keyspace])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .docs(Group::Generic, "4.0.0", "O(N) for N keys")
        .help("key [key ...]", "Removes keys and returns how many there were; the same as DEL"),
    data("exists", -2, keyspace::exists)
        .flags(READ.with(&[Fast]))
        .keys(keys(LOOKS_AT))
        .in_categories(&[Keyspace])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .docs(Group::Generic, "1.0.0", "O(N) for N keys")
        .help("key [key ...]", "Returns how many of the keys exist"),
    data("touch", -2, keyspace::exists)
        .flags(READ.with(&[Fast]))
        .keys(keys(LOOKS_AT))
        .in_categories(&[Keyspace])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .docs(Group::Generic, "3.2.1", "O(N) for N keys")
        .help("key [key ...]", "Returns how many of the keys exist; no time of access is kept"),
    data("type", 2, keyspace::kind)
        .flags(READ.with(&[Fast]))
        .keys(key(LOOKS_AT))
        .in_categories(&[Keyspace])
        .docs(Group::Generic, "1.0.0", "O(1)")
        .help("key", "Returns the kind of value at a key"),
    data("rename", 3, keyspace::rename)
        .flags(Flags::of(&[Write]))
        .keys(two_keys(TAKES, REPLACES))
        .in_categories(&[Keyspace])
        .docs(Group::Generic, "1.0.0", "O(1)")
        .help("key newkey", "Renames a key, whatever the new name held"),
    data("renamenx", 3, keyspace::renamenx)
        .flags(Flags::of(&[Write, Fast]))
        .keys(two_keys(TAKES, INSERTS))
        .in_categories(&[Keyspace])
        .docs(Group::Generic, "1.0.0", "O(1)")
        .help("key newkey", "Renames a key, if the new name is free"),
    data("copy", -3, keyspace::copy)
        .flags(STORE)
        .keys(two_keys(READS, REPLACES))
        .in_categories(&[Keyspace])
        .docs(Group::Generic, "6.2.0", "O(N) for N bytes")
        .help("source destination [DB destination-db] [REPLACE]", "Copies a key with its expiry"),
    node("move", 3, NodeCommand::Move)
        .flags(Flags::of(&[Write, Fast, NoScript, NoMulti]))
        .keys(key(CHANGES))
        .in_categories(&[Keyspace])
        .docs(Group::Generic, "1.0.0", "O(N) for N bytes")
        .help("key db", "Moves a key with its expiry to another database, unless that has one"),
    data("dump", 2, keyspace::dump)
        .flags(READ)
        .keys(key(READS))
        .in_categories(&[Keyspace])
        .tips(&["nondeterministic_output"])
        .docs(Group::Generic, "2.6.0", "O(N) for N bytes")
        .help("key", "Returns a value in Redis's serialization format"),
    data("restore", -4, keyspace::restore)
        .flags(STORE)
        .keys(key(REPLACES))
        .in_categories(&[Keyspace, Dangerous])
        .docs(Group::Generic, "2.6.0", "O(N log N) for N items")
        .help(
            "key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]",
            "Stores a value that DUMP has returned, here or in Redis",
        ),
    data("sort", -2, sort::sort)
        .flags(STORE)
        .keys(KeySpecs::of(&[SORTED_KEY, SORTED_BY, after(Begin::AfterUnsure("STORE", 2), REPLACES)]))
        .in_categories(&[Set, SortedSet, List, Dangerous])
        .docs(Group::Generic, "1.0.0", "O(N log N) for N items")
        .help(
            "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC|DESC] [ALPHA] [STORE destination]",
            "Returns the items of a list, a set or a sorted set in another order, or stores them",
        ),
    data("sort_ro", -2, sort::sort_ro)
        .flags(READ)
        .keys(KeySpecs::of(&[SORTED_KEY, SORTED_BY]))
        .in_categories(&[Set, SortedSet, List, Dangerous])
        .docs(Group::Generic, "7.0.0", "O(N log N) for N items")
        .help(
            "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC|DESC] [ALPHA]",
            "Returns the items of a list, a set or a sorted set in another order",
        ),
    data("keys", 2, keyspace::keys)
        .flags(READ)
        .in_categories(&[Keyspace, Dangerous])
        .tips(&["request_policy:all_shards", "nondeterministic_output_order"])
        .docs(Group::Generic, "1.0.0", "O(N) for N keys in the keyspace")
        .help("pattern", "Returns all keys that match a pattern"),
    data("scan", -2, keyspace::scan)
        .flags(READ)
        .in_categories(&[Keyspace])
        .tips(&["nondeterministic_output", "request_policy:special"])
        .docs(Group::Generic, "2.8.0", "O(1) for every call, O(N) for a whole scan of N keys")
        .help(
            "cursor [MATCH pattern] [COUNT count] [TYPE type]",
            "Returns some keys, and the cursor to go on from",
        ),
    node("clusterscan", -2, NodeCommand::ClusterScan)
        .flags(READ.with(&[NoMulti, NoScript]))
        .in_categories(&[Keyspace])
        .keys(key(KeyFlags::of(&[NotKey])))
        .tips(&["nondeterministic_output", "request_policy:special", "response_policy:special"])
        .docs(Group::Cluster, "9.1.0", "O(1) for every call, O(N) for a whole scan of N keys")
        .help(
            "cursor [MATCH pattern] [COUNT count] [TYPE type]",
            "Returns some keys, and the cursor to go on from, at any node",
        ),
    data("randomkey", 1, keyspace::randomkey)
        .flags(READ)
        .in_categories(&[Keyspace])
        .tips(&["request_policy:all_shards", "nondeterministic_output"])
        .docs(Group::Generic, "1.0.0", "O(1)")
        .help("", "Returns a key drawn at random"),
    data("dbsize", 1, keyspace::dbsize)
        .flags(READ.with(&[Fast]))
        .in_categories(&[Keyspace])
        .tips(&["request_policy:all_shards", "response_policy:agg_sum"])
        .docs(Group::Server, "1.0.0", "O(1)")
        .help("", "Returns the number of keys"),
    data("flushall", -1, keyspace::flush)
        .flags(Flags::of(&[Write]))
        .in_categories(&[Keyspace, Dangerous])
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .docs(Group::Server, "1.0.0", "O(N) for N keys in the keyspace")
        .help("[ASYNC|SYNC]", "Removes all keys"),
    data("flushdb", -1, keyspace::flush)
        .flags(Flags::of(&[Write]))
        .in_categories(&[Keyspace, Dangerous])
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .docs(Group::Server, "1.0.0", "O(N) for N keys in the keyspace")
        .help("[ASYNC|SYNC]", "Removes all keys"),
    container("object", &OBJECT)
        .docs(Group::Generic, "2.2.3", "Depends on the subcommand")
        .help("", "Holds commands about how values are kept"),
    container("memory", &MEMORY)
        .docs(Group::Server, "4.0.0", "Depends on the subcommand")
        .help("", "Holds commands about memory"),
    node("wait", 3, Wait)
        .flags(Flags::of(&[NoScript, NoMulti]))
        .in_categories(&[Connection])
        .tips(&["request_policy:all_shards", "response_policy:agg_min"])
        .docs(Group::Generic, "3.0.0", "O(1)")
        .help("numreplicas timeout", "Waits until this connection's writes have reached so many replicas"),
    node("waitaof", 4, NodeCommand::WaitDurable)
        .flags(Flags::of(&[NoScript, NoMulti]))
        .in_categories(&[Connection])
        .tips(&["request_policy:all_shards", "response_policy:agg_min"])
        .docs(Group::Generic, "7.2.0", "O(1)")
        .help(
            "numlocal numreplicas timeout",
            "Waits until this connection's writes are on the disks of their leader and of so many replicas",
        ),
    // Transactions.
    node("multi", 1, Transaction(Multi))
        .flags(GUARDS)
        .in_categories(&[TransactionCategory])
        .docs(Group::Transactions, "1.2.0", "O(1)")
        .help("", "Begins a transaction: what follows is queued"),
    node("exec", 1, Transaction(Exec))
        .flags(Flags::of(&[NoScript, Loading, Stale, SkipSlowlog]))
        .in_categories(&[TransactionCategory])
        .docs(Group::Transactions, "1.2.0", "Depends on the commands in the transaction")
        .help("", "Carries out what was queued in one step, if the watched keys were left alone"),
    node("discard", 1, Transaction(Discard))
        .flags(GUARDS)
        .in_categories(&[TransactionCategory])
        .docs(Group::Transactions, "2.0.0", "O(N) for N queued commands")
        .help("", "Forgets what was queued, and the watched keys"),
    node("watch", -2, Transaction(Watch))
        .flags(GUARDS.with(&[NoMulti]))
        .keys(keys(LOOKS_AT))
        .in_categories(&[TransactionCategory])
        .docs(Group::Transactions, "2.2.0", "O(N) for N keys")
        .help("key [key ...]", "Lets the next EXEC do nothing if one of the keys has changed until then"),
    node("unwatch", 1, Transaction(Unwatch))
        .flags(GUARDS)
        .in_categories(&[TransactionCategory])
        .docs(Group::Transactions, "2.2.0", "O(1)")
        .help("", "Forgets the watched keys"),
    // The connection.
    node("ping", -1, Ping)
        .flags(Flags::of(&[Fast]))
        .in_categories(&[Connection])
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .docs(Group::Connection, "1.0.0", "O(1)")
        .help("[message]", "Answers PONG, or the message"),
    node("echo", 2, Echo)
        .flags(Flags::of(&[Loading, Stale, Fast]))
        .in_categories(&[Connection])
        .docs(Group::Connection, "1.0.0", "O(1)")
        .help("message", "Returns the message"),
    node("quit", -1, Quit)
        .flags(BEFORE_AUTH)
        .in_categories(&[Connection])
        .docs(Group::Connection, "1.0.0", "O(1)")
        .help("", "Closes the connection"),
    node("reset", 1, Reset)
        .flags(BEFORE_AUTH)
        .in_categories(&[Connection])
        .docs(Group::Connection, "6.2.0", "O(1)")
        .help("", "Puts the connection back into the state of a new one"),
    node("hello", -1, Hello)
        .flags(BEFORE_AUTH)
        .in_categories(&[Connection])
        .docs(Group::Connection, "6.0.0", "O(1)")
        .help(
            "[protover [AUTH username password] [SETNAME clientname]]",
            "Chooses the protocol's version and describes the server",
        ),
    node("auth", -2, Auth)
        .flags(BEFORE_AUTH)
        .in_categories(&[Connection])
        .docs(Group::Connection, "1.0.0", "O(1)")
        .help("[username] password", "Authenticates the connection"),
    node("select", 2, Select)
        .flags(Flags::of(&[Loading, Stale, Fast]))
        .in_categories(&[Connection])
        .docs(Group::Connection, "1.0.0", "O(1)")
        .help("index", "Chooses a database, 0 to 15; an operator makes those from 1 on"),
    node("readonly", 1, NodeCommand::ReadOnly)
        .flags(Flags::of(&[Loading, Stale, Fast]))
        .in_categories(&[Connection])
        .docs(Group::Cluster, "3.0.0", "O(1)")
        .help("", "Allows reads at replicas, as far as the keyspace does"),
    node("readwrite", 1, NodeCommand::ReadOnly)
        .flags(Flags::of(&[Loading, Stale, Fast]))
        .in_categories(&[Connection])
        .docs(Group::Cluster, "3.0.0", "O(1)")
        .help("", "Ends what READONLY began"),
    node("asking", 1, NodeCommand::ReadOnly)
        .flags(Flags::of(&[Fast]))
        .in_categories(&[Connection])
        .docs(Group::Cluster, "3.0.0", "O(1)")
        .help("", "Does nothing: every node takes every key"),
    container("client", &CLIENT)
        .docs(Group::Connection, "2.4.0", "Depends on the subcommand")
        .help("", "Holds commands about client connections"),
    // The server.
    CommandSpec { arity: -1, subcommands: &COMMAND, ..node("command", -1, Command(All)) }
        .flags(ANY_TIME)
        .in_categories(&[Connection])
        .tips(&["nondeterministic_output_order"])
        .docs(Group::Server, "2.8.13", "O(N) for N commands")
        .help("", "Describes all commands"),
    container("acl", &ACL)
        .docs(Group::Server, "6.0.0", "Depends on the subcommand")
        .help("", "Holds commands about users, and what each may do"),
    container("module", &MODULE)
        .docs(Group::Server, "4.0.0", "Depends on the subcommand")
        .help("", "Holds commands about modules"),
    container("config", &CONFIG)
        .docs(Group::Server, "2.0.0", "Depends on the subcommand")
        .help("", "Holds commands about the configuration"),
    node("info", -1, Info)
        .flags(ANY_TIME)
        .in_categories(&[Dangerous])
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
        .docs(Group::Server, "1.0.0", "O(1)")
        .help("[section [section ...]]", "Returns facts and figures about the server"),
    node("time", 1, Time)
        .flags(ANY_TIME.with(&[Fast]))
        .tips(&["nondeterministic_output"])
        .docs(Group::Server, "2.6.0", "O(1)")
        .help("", "Returns the server's time"),
    container("keyspace", &KEYSPACE)
        .docs(Group::Cluster, "3.0.0", "Depends on the subcommand")
        .help("", "Holds commands about keyspaces: prefixes of keys, and what is promised for them"),
    container("cluster", &CLUSTER)
        .docs(Group::Cluster, "3.0.0", "Depends on the subcommand")
        .help("", "Holds commands about the nodes of the cluster, and who serves which keys"),
    node("monitor", 1, NodeCommand::Monitor)
        .flags(OPERATORS)
        .docs(Group::Server, "1.0.0", "O(N) for N bytes of all requests")
        .help("", "Shows the requests of this node's clients as they come"),
    node("psync", 3, NodeCommand::ReplicaSync)
        .flags(COPIES_ALL.with(&[NoMulti]))
        .docs(Group::Server, "2.8.0", "O(N) for N keys and changes")
        .help("id offset", "Sends a Redis replica the keyspaces that keep their changes, and all their changes"),
    node("sync", 1, NodeCommand::ReplicaSync)
        .flags(COPIES_ALL.with(&[NoMulti]))
        .docs(Group::Server, "1.0.0", "O(N) for N keys and changes")
        .help("", "Does what PSYNC does, for programs that know no offsets"),
    node("replconf", -1, NodeCommand::ReplicaConfiguration)
        .flags(OPERATORS.with(&[NoMulti, AllowBusy]))
        .docs(Group::Server, "3.0.0", "O(1)")
        .help("[name value ...]", "Tells what a Redis replica can do, and how far it is"),
    node("role", 1, NodeCommand::Role)
        .flags(Flags::of(&[NoScript, Loading, Stale, Fast]))
        .in_categories(&[Admin, Dangerous])
        .docs(Group::Server, "2.8.12", "O(N) for N replicas")
        .help("", "Returns this node's role in the default keyspace"),
    node("save", 1, Server(ServerCommand::Save))
        .flags(COPIES_ALL.with(&[NoMulti]))
        .docs(Group::Server, "1.0.0", "O(1)")
        .help("", "Refuses: there are no RDB files; the error names what makes a copy"),
    node("bgsave", -1, Server(ServerCommand::Save))
        .flags(COPIES_ALL)
        .docs(Group::Server, "1.0.0", "O(1)")
        .help("[SCHEDULE]", "Refuses: there are no RDB files; the error names what makes a copy"),
    node("bgrewriteaof", 1, Server(ServerCommand::Save))
        .flags(COPIES_ALL)
        .docs(Group::Server, "1.0.0", "O(1)")
        .help("", "Refuses: there is no AOF"),
    node("lastsave", 1, Server(ServerCommand::LastSave))
        .flags(ANY_TIME.with(&[Fast]))
        .in_categories(&[Admin, Dangerous])
        .tips(&["nondeterministic_output"])
        .docs(Group::Server, "1.0.0", "O(1)")
        .help("", "Returns when this node last ended a checkpoint or sent a copy, or started"),
    node("replicaof", 3, Server(ServerCommand::Follow))
        .flags(COPIES_ALL.with(&[Stale]))
        .docs(Group::Server, "5.0.0", "O(1)")
        .help("host port|NO ONE", "Refuses: quorate import follows another server"),
    node("slaveof", 3, Server(ServerCommand::Follow))
        .flags(COPIES_ALL.with(&[Stale]))
        .docs(Group::Server, "1.0.0", "O(1)")
        .help("host port|NO ONE", "Refuses: quorate import follows another server"),
    node("shutdown", -1, Server(ServerCommand::Shutdown))
        .flags(OPERATORS.with(&[NoMulti, AllowBusy]))
        .docs(Group::Server, "1.0.0", "O(1)")
        .help("[NOSAVE|SAVE] [NOW] [FORCE] [ABORT]", "Refuses: a node is stopped by a signal"),
    node("lolwut", -1, Server(ServerCommand::Lolwut))
        .flags(READ.with(&[Fast]))
        .docs(Group::Server, "5.0.0", "O(1)")
        .help("[VERSION version]", "Draws something, and tells the version"),
    node("swapdb", 3, Server(ServerCommand::SwapDatabases))
        .flags(Flags::of(&[Write, Fast, NoScript, NoMulti]))
        .in_categories(&[Keyspace, Dangerous])
        .docs(Group::Server, "4.0.0", "O(1)")
        .help("index1 index2", "Refuses: a client selects the other database"),
    container("hotkeys", &HOTKEYS)
        .docs(Group::Server, "8.6.0", "Depends on the subcommand")
        .help("", "Holds commands about the keys that take most time and traffic"),
    container("slowlog", &SLOWLOG)
        .docs(Group::Server, "2.2.12", "Depends on the subcommand")
        .help("", "Holds commands about the log of slow commands"),
    container("commandlog", &COMMANDLOG)
        .docs(Group::Server, "8.1.0", "Depends on the subcommand")
        .help("", "Holds commands about the logs of slow commands, large requests and large replies"),
    container("latency", &LATENCY)
        .docs(Group::Server, "2.8.13", "Depends on the subcommand")
        .help("", "Holds commands about how long commands take"),
    container("debug", &DEBUG)
        .flags(OPERATORS)
        .docs(Group::Server, "1.0.0", "Depends on the subcommand")
        .help("", "Holds commands for tests"),
    // Locks.
    node("lock", -5, Lock(LockVerb::Lock))
        .flags(LOCKS.with(&[Write, Blocking]))
        .keys(key(CHANGES))
        .docs(Group::Locks, "3.0.0", "O(log N) for N locks and waiters")
        .help(
            "name owner PX milliseconds|SESSION id [WAIT milliseconds]",
            "Grants a lock: returns its fencing token, or null if another owner has it",
        ),
    node("unlock", 3, Lock(LockVerb::Unlock))
        .flags(LOCKS.with(&[Write, Fast]))
        .keys(key(REMOVES))
        .docs(Group::Locks, "3.0.0", "O(log N) for N locks and waiters")
        .help("name token", "Gives a lock back: it goes to who has waited longest"),
    node("lock.renew", 5, Lock(LockVerb::Renew))
        .flags(LOCKS.with(&[Write, Fast]))
        .keys(key(UPDATES))
        .docs(Group::Locks, "3.0.0", "O(log N) for N locks")
        .help("name token PX milliseconds", "Renews the lease of a lock"),
    node("lock.info", 2, Lock(LockVerb::Info))
        .flags(LOCKS.with(&[ReadOnly, Fast]))
        .keys(key(READS))
        .docs(Group::Locks, "3.0.0", "O(log N) for N locks")
        .help("name", "Describes who holds a lock, for how long, and how many wait"),
    node("lock.list", -1, NodeCommand::LockList)
        .flags(OPERATORS)
        .tips(&["nondeterministic_output"])
        .docs(Group::Locks, "3.0.0", "O(N) for N locks that are listed")
        .help("[COUNT count]", "Lists the locks that this node's replicas hold, with owners and who waits"),
    container("lock.session", &LOCK_SESSION)
        .docs(Group::Locks, "3.0.0", "Depends on the subcommand")
        .help("", "Holds commands about sessions: one lease for many locks"),
    // Scripts.
    script("eval", RunScript { named_by: Text, only_reads: false })
        .docs(Group::Scripting, "2.6.0", "Depends on the script")
        .help("script numkeys [key [key ...]] [arg [arg ...]]", "Runs a Lua script in one step"),
    script("evalsha", RunScript { named_by: Digest, only_reads: false })
        .docs(Group::Scripting, "2.6.0", "Depends on the script")
        .help("sha1 numkeys [key [key ...]] [arg [arg ...]]", "Runs a Lua script that was sent before"),
    script("eval_ro", RunScript { named_by: Text, only_reads: true })
        .docs(Group::Scripting, "7.0.0", "Depends on the script")
        .help("script numkeys [key [key ...]] [arg [arg ...]]", "Runs a Lua script that only reads"),
    script("evalsha_ro", RunScript { named_by: Digest, only_reads: true })
        .docs(Group::Scripting, "7.0.0", "Depends on the script")
        .help(
            "sha1 numkeys [key [key ...]] [arg [arg ...]]",
            "Runs a Lua script that was sent before and only reads",
        ),
    script("fcall", RunScript { named_by: Function, only_reads: false })
        .docs(Group::Scripting, "7.0.0", "Depends on the function")
        .help("function numkeys [key [key ...]] [arg [arg ...]]", "Runs a function in one step"),
    script("fcall_ro", RunScript { named_by: Function, only_reads: true })
        .docs(Group::Scripting, "7.0.0", "Depends on the function")
        .help("function numkeys [key [key ...]] [arg [arg ...]]", "Runs a function that only reads"),
    container("script", &SCRIPT)
        .docs(Group::Scripting, "2.6.0", "Depends on the subcommand")
        .help("", "Holds commands about the scripts that are known by their digests"),
    container("function", &FUNCTION)
        .docs(Group::Scripting, "7.0.0", "Depends on the subcommand")
        .help("", "Holds commands about libraries of functions"),
];
