//! The command table: every command that there is, described once.
//!
//! What a command is called, how many arguments it takes, where its keys are, what it may do and who
//! carries it out is written here and nowhere else. Routing, `COMMAND`, `HELP`, statistics and the
//! documentation read it. The descriptions match Redis's, so that its clients understand them.

use super::spec::Category::{
    Connection, Dangerous, Keyspace, Scripting as ScriptingCategory, String as StringCategory,
    Transaction as TransactionCategory,
};
use super::spec::ClientCommand::{GetName, Id, Kill, List as ClientList, NoEvict, NoTouch, SetInfo, SetName};
use super::spec::CommandCommand::{All, Count, Docs, GetKeys, GetKeysAndFlags, Info as CommandInfo, List};
use super::spec::ConfigCommand::{Get, ResetStat, Set};
use super::spec::Flag::{
    Admin, AllowBusy, Blocking, DenyOom, Fast, Loading, MovableKeys, NoAuth, NoMulti, NoScript, ReadOnly,
    SkipSlowlog, Stale, Write,
};
use super::spec::KeyFlag::{Access, Delete, Insert, Overwrite, ReadWrite, Remove, Update, Variable};
use super::spec::NodeCommand::{self, Auth, Client, Command, Config, DebugSleep, Echo, Hello, Help};
use super::spec::NodeCommand::{Info, Lock, Ping, Quit, Reset, Select, Time, Transaction, Wait};
use super::spec::TransactionCommand::{Discard, Exec, Multi, Unwatch, Watch};
use super::spec::{
    Categories, Category, ClientCommand, ClusterCommand, CommandSpec, Flags, Group, Handler, KeyFlag,
    KeyFlags, KeyPositions, KeyspaceCommand, LockVerb, ParseFn, RunScript, ScriptCommand,
};
use super::{expiry, keyspace, strings};

/// All commands, in the order in which they are listed. Subcommands are inside their containers.
pub static COMMANDS: [CommandSpec; 83] = [
    // Strings.
    data("get", 2, strings::get)
        .flags(READ.with(&[Fast]))
        .keys(key(&[READS]))
        .in_categories(&[StringCategory])
        .docs(Group::String, "1.0.0", "O(1)")
        .help("key", "Returns the value of a key"),
    data("set", -3, strings::set)
        .flags(STORE)
        .keys(key(&[KeyFlags::of(&[ReadWrite, Access, Update, Variable])]))
        .in_categories(&[StringCategory])
        .docs(Group::String, "1.0.0", "O(1)")
        .help(
            "key value [NX|XX|IFEQ value|IFNE value|IFDEQ digest|IFDNE digest] [GET] [EX seconds|PX milliseconds|EXAT unix-time-seconds|\
             PXAT unix-time-milliseconds|KEEPTTL] [FENCE lock token]",
            "Sets the value of a key, and its expiry if one is given",
        ),
    data("setnx", 3, strings::setnx)
        .flags(STORE.with(&[Fast]))
        .keys(key(&[INSERTS]))
        .in_categories(&[StringCategory])
        .docs(Group::String, "1.0.0", "O(1)")
        .help("key value", "Sets the value of a key that does not exist"),
    data("setex", 4, expiry::setex)
        .flags(STORE)
        .keys(key(&[REPLACES]))
        .in_categories(&[StringCategory])
        .docs(Group::String, "2.0.0", "O(1)")
        .help("key seconds value", "Sets the value of a key and its time to live in seconds"),
    data("psetex", 4, expiry::psetex)
        .flags(STORE)
        .keys(key(&[REPLACES]))
        .in_categories(&[StringCategory])
        .docs(Group::String, "2.6.0", "O(1)")
        .help("key milliseconds value", "Sets the value of a key and its time to live in milliseconds"),
    data("getset", 3, strings::getset)
        .flags(STORE.with(&[Fast]))
        .keys(key(&[CHANGES]))
        .in_categories(&[StringCategory])
        .docs(Group::String, "1.0.0", "O(1)")
        .help("key value", "Sets the value of a key and returns the one before"),
    data("getdel", 2, strings::getdel)
        .flags(Flags::of(&[Write, Fast]))
        .keys(key(&[TAKES]))
        .in_categories(&[StringCategory])
        .docs(Group::String, "6.2.0", "O(1)")
        .help("key", "Returns the value of a key and removes the key"),
    data("getex", -2, expiry::getex)
        .flags(Flags::of(&[Write, Fast]))
        .keys(key(&[CHANGES]))
        .in_categories(&[StringCategory])
        .docs(Group::String, "6.2.0", "O(1)")
        .help(
            "key [EX seconds|PX milliseconds|EXAT unix-time-seconds|PXAT unix-time-milliseconds|PERSIST]",
            "Returns the value of a key and changes its expiry",
        ),
    data("mget", -2, strings::mget)
        .flags(READ.with(&[Fast]))
        .keys(keys(&[READS]))
        .in_categories(&[StringCategory])
        .tips(&["request_policy:multi_shard"])
        .docs(Group::String, "1.0.0", "O(N) for N keys")
        .help("key [key ...]", "Returns the values of several keys"),
    data("mset", -3, strings::mset)
        .flags(STORE)
        .keys(keys_with_values(&[REPLACES]))
        .in_categories(&[StringCategory])
        .tips(&["request_policy:multi_shard", "response_policy:all_succeeded"])
        .docs(Group::String, "1.0.1", "O(N) for N keys")
        .help("key value [key value ...]", "Sets the values of several keys"),
    data("msetnx", -3, strings::msetnx)
        .flags(STORE)
        .keys(keys_with_values(&[INSERTS]))
        .in_categories(&[StringCategory])
        .tips(&["request_policy:multi_shard", "response_policy:agg_min"])
        .docs(Group::String, "1.0.1", "O(N) for N keys")
        .help("key value [key value ...]", "Sets the values of several keys, if none of them exists"),
    data("delifeq", 3, strings::delifeq)
        .flags(Flags::of(&[Write, Fast]))
        .keys(key(&[REMOVES]))
        .in_categories(&[StringCategory])
        .docs(Group::String, "9.0.0", "O(1)")
        .help("key value", "Removes a key if it has this value; Valkey's name for DELEX with IFEQ"),
    data("delex", -2, strings::delex)
        .flags(Flags::of(&[Write, Fast]))
        .keys(key(&[KeyFlags::of(&[ReadWrite, Delete, Variable])]))
        .in_categories(&[StringCategory])
        .docs(Group::String, "8.4.0", "O(1), O(N) for IFDEQ and IFDNE and a value of N bytes")
        .help(
            "key [IFEQ value|IFNE value|IFDEQ digest|IFDNE digest]",
            "Removes a key, if its value meets a condition",
        ),
    data("digest", 2, strings::digest)
        .flags(READ.with(&[Fast]))
        .keys(key(&[READS]))
        .in_categories(&[StringCategory])
        .docs(Group::String, "8.4.0", "O(N) for a value of N bytes")
        .help("key", "Returns the digest of a key's value: XXH3 in 16 hexadecimal digits"),
    data("append", 3, strings::append)
        .flags(STORE.with(&[Fast]))
        .keys(key(&[KeyFlags::of(&[ReadWrite, Insert])]))
        .in_categories(&[StringCategory])
        .docs(Group::String, "2.0.0", "O(1) amortized")
        .help("key value", "Appends to the value of a key and returns its length"),
    data("strlen", 2, strings::strlen)
        .flags(READ.with(&[Fast]))
        .keys(key(&[LOOKS_AT]))
        .in_categories(&[StringCategory])
        .docs(Group::String, "2.2.0", "O(1)")
        .help("key", "Returns the length of a key's value in bytes"),
    data("getrange", 4, strings::getrange)
        .flags(READ)
        .keys(key(&[READS]))
        .in_categories(&[StringCategory])
        .docs(Group::String, "2.4.0", "O(N) for N bytes returned")
        .help("key start end", "Returns a part of a key's value"),
    data("substr", 4, strings::getrange)
        .flags(READ)
        .keys(key(&[READS]))
        .in_categories(&[StringCategory])
        .docs(Group::String, "1.0.0", "O(N) for N bytes returned")
        .help("key start end", "Returns a part of a key's value; the old name of GETRANGE"),
    data("setrange", 4, strings::setrange)
        .flags(STORE)
        .keys(key(&[KeyFlags::of(&[ReadWrite, Update])]))
        .in_categories(&[StringCategory])
        .docs(Group::String, "2.2.0", "O(N) for N bytes written")
        .help("key offset value", "Overwrites a part of a key's value from an offset on"),
    data("incr", 2, strings::incr)
        .flags(STORE.with(&[Fast]))
        .keys(key(&[CHANGES]))
        .in_categories(&[StringCategory])
        .docs(Group::String, "1.0.0", "O(1)")
        .help("key", "Adds one to the integer at a key"),
    data("decr", 2, strings::decr)
        .flags(STORE.with(&[Fast]))
        .keys(key(&[CHANGES]))
        .in_categories(&[StringCategory])
        .docs(Group::String, "1.0.0", "O(1)")
        .help("key", "Subtracts one from the integer at a key"),
    data("incrby", 3, strings::incrby)
        .flags(STORE.with(&[Fast]))
        .keys(key(&[CHANGES]))
        .in_categories(&[StringCategory])
        .docs(Group::String, "1.0.0", "O(1)")
        .help("key increment", "Adds to the integer at a key"),
    data("decrby", 3, strings::decrby)
        .flags(STORE.with(&[Fast]))
        .keys(key(&[CHANGES]))
        .in_categories(&[StringCategory])
        .docs(Group::String, "1.0.0", "O(1)")
        .help("key decrement", "Subtracts from the integer at a key"),
    data("incrbyfloat", 3, strings::incrbyfloat)
        .flags(STORE.with(&[Fast]))
        .keys(key(&[CHANGES]))
        .in_categories(&[StringCategory])
        .docs(Group::String, "2.6.0", "O(1)")
        .help("key increment", "Adds to the decimal number at a key"),
    // Expiry.
    data("expire", -3, expiry::expire)
        .flags(Flags::of(&[Write, Fast]))
        .keys(key(&[UPDATES]))
        .in_categories(&[Keyspace])
        .docs(Group::Generic, "1.0.0", "O(1)")
        .help("key seconds [NX|XX|GT|LT]", "Lets a key expire after so many seconds"),
    data("pexpire", -3, expiry::pexpire)
        .flags(Flags::of(&[Write, Fast]))
        .keys(key(&[UPDATES]))
        .in_categories(&[Keyspace])
        .docs(Group::Generic, "2.6.0", "O(1)")
        .help("key milliseconds [NX|XX|GT|LT]", "Lets a key expire after so many milliseconds"),
    data("expireat", -3, expiry::expireat)
        .flags(Flags::of(&[Write, Fast]))
        .keys(key(&[UPDATES]))
        .in_categories(&[Keyspace])
        .docs(Group::Generic, "1.2.0", "O(1)")
        .help("key unix-time-seconds [NX|XX|GT|LT]", "Lets a key expire at a Unix time in seconds"),
    data("pexpireat", -3, expiry::pexpireat)
        .flags(Flags::of(&[Write, Fast]))
        .keys(key(&[UPDATES]))
        .in_categories(&[Keyspace])
        .docs(Group::Generic, "2.6.0", "O(1)")
        .help("key unix-time-milliseconds [NX|XX|GT|LT]", "Lets a key expire at a Unix time in milliseconds"),
    data("ttl", 2, expiry::ttl)
        .flags(READ.with(&[Fast]))
        .keys(key(&[READS]))
        .in_categories(&[Keyspace])
        .tips(&["nondeterministic_output"])
        .docs(Group::Generic, "1.0.0", "O(1)")
        .help("key", "Returns how many seconds a key has left"),
    data("pttl", 2, expiry::pttl)
        .flags(READ.with(&[Fast]))
        .keys(key(&[READS]))
        .in_categories(&[Keyspace])
        .tips(&["nondeterministic_output"])
        .docs(Group::Generic, "2.6.0", "O(1)")
        .help("key", "Returns how many milliseconds a key has left"),
    data("expiretime", 2, expiry::expiretime)
        .flags(READ.with(&[Fast]))
        .keys(key(&[READS]))
        .in_categories(&[Keyspace])
        .docs(Group::Generic, "7.0.0", "O(1)")
        .help("key", "Returns when a key expires, as a Unix time in seconds"),
    data("pexpiretime", 2, expiry::pexpiretime)
        .flags(READ.with(&[Fast]))
        .keys(key(&[READS]))
        .in_categories(&[Keyspace])
        .docs(Group::Generic, "7.0.0", "O(1)")
        .help("key", "Returns when a key expires, as a Unix time in milliseconds"),
    data("persist", 2, expiry::persist)
        .flags(Flags::of(&[Write, Fast]))
        .keys(key(&[UPDATES]))
        .in_categories(&[Keyspace])
        .docs(Group::Generic, "2.2.0", "O(1)")
        .help("key", "Removes the expiry of a key"),
    // Keys of any kind, and the keyspace as a whole.
    data("del", -2, keyspace::delete)
        .flags(Flags::of(&[Write]))
        .keys(keys(&[REMOVES]))
        .in_categories(&[Keyspace])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .docs(Group::Generic, "1.0.0", "O(N) for N keys")
        .help("key [key ...]", "Removes keys and returns how many there were"),
    data("unlink", -2, keyspace::delete)
        .flags(Flags::of(&[Write, Fast]))
        .keys(keys(&[REMOVES]))
        .in_categories(&[Keyspace])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .docs(Group::Generic, "4.0.0", "O(N) for N keys")
        .help("key [key ...]", "Removes keys and returns how many there were; the same as DEL"),
    data("exists", -2, keyspace::exists)
        .flags(READ.with(&[Fast]))
        .keys(keys(&[LOOKS_AT]))
        .in_categories(&[Keyspace])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .docs(Group::Generic, "1.0.0", "O(N) for N keys")
        .help("key [key ...]", "Returns how many of the keys exist"),
    data("touch", -2, keyspace::exists)
        .flags(READ.with(&[Fast]))
        .keys(keys(&[LOOKS_AT]))
        .in_categories(&[Keyspace])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .docs(Group::Generic, "3.2.1", "O(N) for N keys")
        .help("key [key ...]", "Returns how many of the keys exist; no time of access is kept"),
    data("type", 2, keyspace::kind)
        .flags(READ.with(&[Fast]))
        .keys(key(&[LOOKS_AT]))
        .in_categories(&[Keyspace])
        .docs(Group::Generic, "1.0.0", "O(1)")
        .help("key", "Returns the kind of value at a key"),
    data("rename", 3, keyspace::rename)
        .flags(Flags::of(&[Write]))
        .keys(two_keys(&[TAKES, REPLACES]))
        .in_categories(&[Keyspace])
        .docs(Group::Generic, "1.0.0", "O(1)")
        .help("key newkey", "Renames a key, whatever the new name held"),
    data("renamenx", 3, keyspace::renamenx)
        .flags(Flags::of(&[Write, Fast]))
        .keys(two_keys(&[TAKES, INSERTS]))
        .in_categories(&[Keyspace])
        .docs(Group::Generic, "1.0.0", "O(1)")
        .help("key newkey", "Renames a key, if the new name is free"),
    data("copy", -3, keyspace::copy)
        .flags(STORE)
        .keys(two_keys(&[READS, REPLACES]))
        .in_categories(&[Keyspace])
        .docs(Group::Generic, "6.2.0", "O(N) for N bytes")
        .help("source destination [DB destination-db] [REPLACE]", "Copies a key with its expiry"),
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
        .keys(keys(&[LOOKS_AT]))
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
        .help("index", "Chooses the database; there is one, number 0"),
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
    container("debug", &DEBUG)
        .flags(OPERATORS)
        .docs(Group::Server, "1.0.0", "Depends on the subcommand")
        .help("", "Holds commands for tests"),
    // Locks.
    node("lock", -5, Lock(LockVerb::Lock))
        .flags(LOCKS.with(&[Write, Blocking]))
        .keys(key(&[CHANGES]))
        .docs(Group::Locks, "3.0.0", "O(log N) for N locks and waiters")
        .help(
            "name owner PX milliseconds|SESSION id [WAIT milliseconds]",
            "Grants a lock: returns its fencing token, or null if another owner has it",
        ),
    node("unlock", 3, Lock(LockVerb::Unlock))
        .flags(LOCKS.with(&[Write, Fast]))
        .keys(key(&[REMOVES]))
        .docs(Group::Locks, "3.0.0", "O(log N) for N locks and waiters")
        .help("name token", "Gives a lock back: it goes to who has waited longest"),
    node("lock.renew", 5, Lock(LockVerb::Renew))
        .flags(LOCKS.with(&[Write, Fast]))
        .keys(key(&[UPDATES]))
        .docs(Group::Locks, "3.0.0", "O(log N) for N locks")
        .help("name token PX milliseconds", "Lets the lease of a lock begin anew"),
    node("lock.info", 2, Lock(LockVerb::Info))
        .flags(LOCKS.with(&[ReadOnly, Fast]))
        .keys(key(&[READS]))
        .docs(Group::Locks, "3.0.0", "O(log N) for N locks")
        .help("name", "Describes who holds a lock, for how long, and how many wait"),
    container("lock.session", &LOCK_SESSION)
        .docs(Group::Locks, "3.0.0", "Depends on the subcommand")
        .help("", "Holds commands about sessions: one lease for many locks"),
    // Scripts.
    script("eval", RunScript { by_digest: false, only_reads: false })
        .docs(Group::Scripting, "2.6.0", "Depends on the script")
        .help("script numkeys [key [key ...]] [arg [arg ...]]", "Runs a Lua script in one step"),
    script("evalsha", RunScript { by_digest: true, only_reads: false })
        .docs(Group::Scripting, "2.6.0", "Depends on the script")
        .help("sha1 numkeys [key [key ...]] [arg [arg ...]]", "Runs a Lua script that was sent before"),
    script("eval_ro", RunScript { by_digest: false, only_reads: true })
        .docs(Group::Scripting, "7.0.0", "Depends on the script")
        .help("script numkeys [key [key ...]] [arg [arg ...]]", "Runs a Lua script that only reads"),
    script("evalsha_ro", RunScript { by_digest: true, only_reads: true })
        .docs(Group::Scripting, "7.0.0", "Depends on the script")
        .help(
            "sha1 numkeys [key [key ...]] [arg [arg ...]]",
            "Runs a Lua script that was sent before and only reads",
        ),
    container("script", &SCRIPT)
        .docs(Group::Scripting, "2.6.0", "Depends on the subcommand")
        .help("", "Holds commands about the scripts that are known by their digests"),
    container("function", &FUNCTION)
        .docs(Group::Scripting, "7.0.0", "Depends on the subcommand")
        .help("", "Holds commands about functions, of which there are none"),
];

static LOCK_SESSION: [CommandSpec; 4] = [
    node("lock.session|open", 5, Lock(LockVerb::OpenSession))
        .flags(LOCKS.with(&[Write, Fast]))
        .keys(second_key(&[CHANGES]))
        .docs(Group::Locks, "3.0.0", "O(log N) for N sessions")
        .help("key PX milliseconds", "Begins a session for the locks in a key's group, and returns its id"),
    node("lock.session|renew", 4, Lock(LockVerb::RenewSession))
        .flags(LOCKS.with(&[Write, Fast]))
        .keys(second_key(&[UPDATES]))
        .docs(Group::Locks, "3.0.0", "O(log N) for N sessions")
        .help("key id", "Lets the lease of a session begin anew"),
    node("lock.session|close", 4, Lock(LockVerb::CloseSession))
        .flags(LOCKS.with(&[Write]))
        .keys(second_key(&[REMOVES]))
        .docs(Group::Locks, "3.0.0", "O(N) for N locks of the session")
        .help("key id", "Ends a session, and frees all locks that are held under it"),
    help_of("lock.session|help").docs(Group::Locks, "3.0.0", "O(1)"),
];

static SCRIPT: [CommandSpec; 5] = [
    node("script|load", 3, NodeCommand::Script(ScriptCommand::Load))
        .flags(Flags::of(&[NoScript, Stale]))
        .in_categories(&[ScriptingCategory])
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .docs(Group::Scripting, "2.6.0", "O(N) for N bytes")
        .help("script", "Keeps a script on every node and returns its digest"),
    node("script|exists", -3, NodeCommand::Script(ScriptCommand::Exists))
        .flags(Flags::of(&[NoScript]))
        .in_categories(&[ScriptingCategory])
        .tips(&["request_policy:all_shards", "response_policy:agg_logical_and"])
        .docs(Group::Scripting, "2.6.0", "O(N) for N digests")
        .help("sha1 [sha1 ...]", "Tells which scripts this node knows"),
    node("script|flush", -2, NodeCommand::Script(ScriptCommand::Flush))
        .flags(Flags::of(&[NoScript]))
        .in_categories(&[ScriptingCategory])
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .docs(Group::Scripting, "2.6.0", "O(N) for N scripts")
        .help("[ASYNC|SYNC]", "Lets every node forget all scripts"),
    node("script|kill", 2, NodeCommand::Script(ScriptCommand::Kill))
        .flags(Flags::of(&[NoScript, AllowBusy]))
        .in_categories(&[ScriptingCategory])
        .tips(&["request_policy:all_shards", "response_policy:one_succeeded"])
        .docs(Group::Scripting, "2.6.0", "O(1)")
        .help("", "Answers that no script is running: all of them end by themselves"),
    help_of("script|help").in_categories(&[ScriptingCategory]).docs(Group::Scripting, "5.0.0", "O(1)"),
];

static FUNCTION: [CommandSpec; 2] = [
    node("function|flush", -2, NodeCommand::Script(ScriptCommand::FlushFunctions))
        .flags(Flags::of(&[NoScript, Write]))
        .in_categories(&[ScriptingCategory])
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .docs(Group::Scripting, "7.0.0", "O(1)")
        .help("[ASYNC|SYNC]", "Does nothing: there are no functions"),
    help_of("function|help").in_categories(&[ScriptingCategory]).docs(Group::Scripting, "7.0.0", "O(1)"),
];

static OBJECT: [CommandSpec; 2] = [
    data("object|encoding", 3, keyspace::encoding)
        .flags(READ)
        .keys(second_key(&[LOOKS_AT]))
        .in_categories(&[Keyspace])
        .tips(&["nondeterministic_output"])
        .docs(Group::Generic, "2.2.3", "O(1)")
        .help("key", "Returns how a value is kept"),
    help_of("object|help").in_categories(&[Keyspace]).docs(Group::Generic, "6.2.0", "O(1)"),
];

static MEMORY: [CommandSpec; 2] = [
    data("memory|usage", -3, keyspace::memory_usage)
        .flags(READ)
        .keys(second_key(&[LOOKS_AT]))
        .docs(Group::Server, "4.0.0", "O(1)")
        .help("key [SAMPLES count]", "Returns how many bytes a key and its value take"),
    help_of("memory|help").docs(Group::Server, "4.0.0", "O(1)"),
];

static CLIENT: [CommandSpec; 10] = [
    client("client|id", 2, Id)
        .docs(Group::Connection, "5.0.0", "O(1)")
        .help("", "Returns the number of this connection"),
    client("client|info", 2, ClientCommand::Info)
        .tips(&["nondeterministic_output"])
        .docs(Group::Connection, "6.2.0", "O(1)")
        .help("", "Describes this connection"),
    client("client|list", -2, ClientList)
        .flags(OPERATORS)
        .tips(&["nondeterministic_output"])
        .docs(Group::Connection, "2.4.0", "O(N) for N connections")
        .help("[TYPE normal|master|replica|pubsub] [ID client-id [client-id ...]]", "Describes connections"),
    client("client|kill", -3, Kill)
        .flags(OPERATORS)
        .docs(Group::Connection, "2.4.0", "O(N) for N connections")
        .help(
            "[ip:port] [ID client-id] [TYPE normal|master|replica|pubsub] [USER username] [ADDR ip:port] \
             [LADDR ip:port] [SKIPME yes|no]",
            "Closes connections",
        ),
    client("client|setname", 3, SetName)
        .docs(Group::Connection, "2.6.9", "O(1)")
        .help("connection-name", "Names this connection"),
    client("client|getname", 2, GetName)
        .docs(Group::Connection, "2.6.9", "O(1)")
        .help("", "Returns the name of this connection"),
    client("client|setinfo", 4, SetInfo)
        .docs(Group::Connection, "7.2.0", "O(1)")
        .help("LIB-NAME|LIB-VER value", "Tells which client library this connection uses"),
    client("client|no-evict", 3, NoEvict)
        .flags(OPERATORS)
        .docs(Group::Connection, "7.0.0", "O(1)")
        .help("ON|OFF", "Accepted for compatibility: connections are never evicted"),
    client("client|no-touch", 3, NoTouch)
        .docs(Group::Connection, "7.2.0", "O(1)")
        .help("ON|OFF", "Accepted for compatibility: no time of access is kept"),
    help_of("client|help").in_categories(&[Connection]).docs(Group::Connection, "5.0.0", "O(1)"),
];

static COMMAND: [CommandSpec; 7] = [
    node("command|count", 2, Command(Count))
        .flags(ANY_TIME)
        .in_categories(&[Connection])
        .docs(Group::Server, "2.8.13", "O(1)")
        .help("", "Returns the number of commands"),
    node("command|list", -2, Command(List))
        .flags(ANY_TIME)
        .in_categories(&[Connection])
        .tips(&["nondeterministic_output_order"])
        .docs(Group::Server, "7.0.0", "O(N) for N commands")
        .help(
            "[FILTERBY MODULE module-name|ACLCAT category|PATTERN pattern]",
            "Returns the names of all commands, or of some",
        ),
    node("command|info", -2, Command(CommandInfo))
        .flags(ANY_TIME)
        .in_categories(&[Connection])
        .tips(&["nondeterministic_output_order"])
        .docs(Group::Server, "2.8.13", "O(N) for N commands")
        .help("[command-name [command-name ...]]", "Describes commands for programs"),
    node("command|docs", -2, Command(Docs))
        .flags(ANY_TIME)
        .in_categories(&[Connection])
        .tips(&["nondeterministic_output_order"])
        .docs(Group::Server, "7.0.0", "O(N) for N commands")
        .help("[command-name [command-name ...]]", "Describes commands for people"),
    node("command|getkeys", -4, Command(GetKeys))
        .flags(ANY_TIME)
        .in_categories(&[Connection])
        .docs(Group::Server, "2.8.13", "O(N) for N arguments")
        .help("command [arg ...]", "Returns the keys in a full command"),
    node("command|getkeysandflags", -4, Command(GetKeysAndFlags))
        .flags(ANY_TIME)
        .in_categories(&[Connection])
        .docs(Group::Server, "7.0.0", "O(N) for N arguments")
        .help("command [arg ...]", "Returns the keys in a full command, and what is done to them"),
    help_of("command|help").in_categories(&[Connection]).docs(Group::Server, "5.0.0", "O(1)"),
];

static CONFIG: [CommandSpec; 4] = [
    node("config|get", -3, Config(Get))
        .flags(OPERATORS)
        .docs(Group::Server, "2.0.0", "O(N) for N parameters")
        .help("pattern [pattern ...]", "Returns parameters that match a pattern, with their values"),
    node("config|set", -4, Config(Set))
        .flags(OPERATORS)
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .docs(Group::Server, "2.0.0", "O(N) for N parameters")
        .help("parameter value [parameter value ...]", "Sets parameters, all of them or none"),
    node("config|resetstat", 2, Config(ResetStat))
        .flags(OPERATORS)
        .docs(Group::Server, "2.0.0", "O(1)")
        .help("", "Sets the counters that INFO tells back to zero"),
    help_of("config|help").docs(Group::Server, "5.0.0", "O(1)"),
];

static KEYSPACE: [CommandSpec; 6] = [
    node("keyspace|create", -3, NodeCommand::Keyspace(KeyspaceCommand::Create))
        .flags(CLUSTER_WIDE)
        .docs(Group::Cluster, "3.0.0", "O(1)")
        .help("prefix [setting=value ...]", "Makes a keyspace for the keys with a prefix"),
    node("keyspace|drop", 3, NodeCommand::Keyspace(KeyspaceCommand::Drop))
        .flags(CLUSTER_WIDE)
        .docs(Group::Cluster, "3.0.0", "O(N) for N keys")
        .help("prefix", "Removes a keyspace and all its keys"),
    node("keyspace|get", 3, NodeCommand::Keyspace(KeyspaceCommand::Get))
        .flags(ANY_TIME)
        .docs(Group::Cluster, "3.0.0", "O(1)")
        .help("prefix", "Returns the settings of a keyspace"),
    node("keyspace|list", 2, NodeCommand::Keyspace(KeyspaceCommand::List))
        .flags(ANY_TIME)
        .docs(Group::Cluster, "3.0.0", "O(N) for N keyspaces")
        .help("", "Returns the prefixes of all keyspaces"),
    node("keyspace|set", -4, NodeCommand::Keyspace(KeyspaceCommand::Set))
        .flags(CLUSTER_WIDE)
        .docs(Group::Cluster, "3.0.0", "O(1)")
        .help(
            "prefix setting=value [setting=value ...]",
            "Changes settings of a keyspace while it is in use",
        ),
    help_of("keyspace|help").docs(Group::Cluster, "3.0.0", "O(1)"),
];

static CLUSTER: [CommandSpec; 11] = [
    node("cluster|add", 7, NodeCommand::Cluster(ClusterCommand::Add))
        .flags(CLUSTER_WIDE)
        .docs(Group::Cluster, "3.0.0", "O(1)")
        .help(
            "id host client-port http-port peer-port",
            "Adds a node, which gets its replicas when it has started",
        ),
    node("cluster|info", 2, NodeCommand::Cluster(ClusterCommand::Info))
        .flags(ANY_TIME)
        .tips(&["nondeterministic_output"])
        .docs(Group::Cluster, "3.0.0", "O(1)")
        .help("", "Tells how the cluster stands"),
    node("cluster|keyslot", 3, NodeCommand::Cluster(ClusterCommand::KeySlot))
        .flags(ANY_TIME)
        .docs(Group::Cluster, "3.0.0", "O(N) for N bytes")
        .help("key", "Returns the hash slot of a key"),
    node("cluster|map", 2, NodeCommand::Cluster(ClusterCommand::Map))
        .flags(ANY_TIME)
        .docs(Group::Cluster, "3.0.0", "O(N) for N groups")
        .help("", "Returns the whole cluster map as JSON"),
    node("cluster|myid", 2, NodeCommand::Cluster(ClusterCommand::MyId))
        .flags(ANY_TIME)
        .docs(Group::Cluster, "3.0.0", "O(1)")
        .help("", "Returns the name of this node"),
    node("cluster|nodes", 2, NodeCommand::Cluster(ClusterCommand::Nodes))
        .flags(ANY_TIME)
        .tips(&["nondeterministic_output"])
        .docs(Group::Cluster, "3.0.0", "O(N) for N nodes")
        .help("", "Lists the nodes, and which slots of the default keyspace each serves"),
    node("cluster|remove", 3, NodeCommand::Cluster(ClusterCommand::Remove))
        .flags(CLUSTER_WIDE)
        .docs(Group::Cluster, "3.0.0", "O(1)")
        .help("id", "Moves a node's replicas to others and removes it"),
    node("cluster|replace", -3, NodeCommand::Cluster(ClusterCommand::Replace))
        .flags(CLUSTER_WIDE)
        .docs(Group::Cluster, "3.0.0", "O(1)")
        .help(
            "id [ACCEPTLOSS]",
            "Lets a node that has lost its storage in again, as a new member of its groups",
        ),
    node("cluster|shards", 2, NodeCommand::Cluster(ClusterCommand::Shards))
        .flags(ANY_TIME)
        .tips(&["nondeterministic_output"])
        .docs(Group::Cluster, "7.0.0", "O(N) for N shards")
        .help("", "Describes the default keyspace's shards"),
    node("cluster|slots", 2, NodeCommand::Cluster(ClusterCommand::Slots))
        .flags(ANY_TIME)
        .tips(&["nondeterministic_output"])
        .docs(Group::Cluster, "3.0.0", "O(N) for N shards")
        .help("", "Tells which nodes serve which slots of the default keyspace"),
    help_of("cluster|help").docs(Group::Cluster, "5.0.0", "O(1)"),
];

static DEBUG: [CommandSpec; 2] = [
    node("debug|sleep", 3, DebugSleep)
        .flags(OPERATORS)
        .docs(Group::Server, "1.0.0", "O(1)")
        .help("seconds", "Lets the answer wait for so many seconds"),
    help_of("debug|help").flags(OPERATORS).docs(Group::Server, "1.0.0", "O(1)"),
];

// Flags that several commands share.
const READ: Flags = Flags::of(&[ReadOnly]);
const STORE: Flags = Flags::of(&[Write, DenyOom]);
const ANY_TIME: Flags = Flags::of(&[Loading, Stale]);
const OPERATORS: Flags = Flags::of(&[Admin, NoScript, Loading, Stale]);
/// Operators' commands that the whole cluster has to agree to.
const CLUSTER_WIDE: Flags = OPERATORS.with(&[NoMulti]);
const GUARDS: Flags = Flags::of(&[NoScript, Loading, Stale, Fast, AllowBusy]);
/// A wait cannot be a part of a transaction, nor what a script does be undone.
const LOCKS: Flags = Flags::of(&[NoScript, NoMulti]);
const BEFORE_AUTH: Flags = Flags::of(&[NoScript, Loading, Stale, Fast, NoAuth, AllowBusy]);

// What is done to keys.
const LOOKS_AT: KeyFlags = KeyFlags::of(&[KeyFlag::ReadOnly]);
const READS: KeyFlags = KeyFlags::of(&[KeyFlag::ReadOnly, Access]);
const CHANGES: KeyFlags = KeyFlags::of(&[ReadWrite, Access, Update]);
const UPDATES: KeyFlags = KeyFlags::of(&[ReadWrite, Update]);
const TAKES: KeyFlags = KeyFlags::of(&[ReadWrite, Access, Delete]);
const REPLACES: KeyFlags = KeyFlags::of(&[Overwrite, Update]);
const INSERTS: KeyFlags = KeyFlags::of(&[Overwrite, Insert]);
const REMOVES: KeyFlags = KeyFlags::of(&[Remove, Delete]);

// Where keys are.
const fn key(access: &'static [KeyFlags]) -> KeyPositions {
    KeyPositions { first: 1, last: 1, step: 1, access }
}

const fn second_key(access: &'static [KeyFlags]) -> KeyPositions {
    KeyPositions { first: 2, last: 2, step: 1, access }
}

const fn two_keys(access: &'static [KeyFlags]) -> KeyPositions {
    KeyPositions { first: 1, last: 2, step: 1, access }
}

const fn keys(access: &'static [KeyFlags]) -> KeyPositions {
    KeyPositions { first: 1, last: -1, step: 1, access }
}

const fn keys_with_values(access: &'static [KeyFlags]) -> KeyPositions {
    KeyPositions { first: 1, last: -1, step: 2, access }
}

// Rows begin with who carries the command out.
const fn row(name: &'static str, arity: i16, handler: Handler) -> CommandSpec {
    CommandSpec {
        name,
        arity,
        flags: Flags::NONE,
        keys: KeyPositions::NONE,
        own_categories: Categories::NONE,
        tips: &[],
        group: Group::Generic,
        since: "",
        complexity: "",
        summary: "",
        syntax: "",
        subcommands: &[],
        handler,
    }
}

const fn data(name: &'static str, arity: i16, parse: ParseFn) -> CommandSpec {
    row(name, arity, Handler::Data(parse))
}

const fn node(name: &'static str, arity: i16, command: NodeCommand) -> CommandSpec {
    row(name, arity, Handler::Node(command))
}

const fn container(name: &'static str, subcommands: &'static [CommandSpec]) -> CommandSpec {
    CommandSpec { subcommands, ..row(name, -2, Handler::Container) }
}

const fn client(name: &'static str, arity: i16, command: ClientCommand) -> CommandSpec {
    node(name, arity, Client(command))
        .flags(Flags::of(&[NoScript, Loading, Stale]))
        .in_categories(&[Connection])
}

const fn script(name: &'static str, how: RunScript) -> CommandSpec {
    let flags = Flags::of(&[NoScript, Stale, MovableKeys]);
    node(name, -3, NodeCommand::Script(ScriptCommand::Run(how)))
        .flags(if how.only_reads { flags.with(&[ReadOnly]) } else { flags })
        .in_categories(&[ScriptingCategory])
}

const fn help_of(name: &'static str) -> CommandSpec {
    node(name, 2, Help).flags(ANY_TIME).help("", "Prints this help")
}

impl CommandSpec {
    const fn flags(self, flags: Flags) -> Self {
        CommandSpec { flags, ..self }
    }

    const fn keys(self, keys: KeyPositions) -> Self {
        CommandSpec { keys, ..self }
    }

    const fn in_categories(self, categories: &[Category]) -> Self {
        CommandSpec { own_categories: Categories::of(categories), ..self }
    }

    const fn tips(self, tips: &'static [&'static str]) -> Self {
        CommandSpec { tips, ..self }
    }

    const fn docs(self, group: Group, since: &'static str, complexity: &'static str) -> Self {
        CommandSpec { group, since, complexity, ..self }
    }

    const fn help(self, syntax: &'static str, summary: &'static str) -> Self {
        CommandSpec { syntax, summary, ..self }
    }
}
