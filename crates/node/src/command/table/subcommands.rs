//! The commands inside containers, such as `CLIENT LIST`.

use super::row::{
    ANY_TIME, CHANGES, CLUSTER_WIDE, LOCKS, LOOKS_AT, OPERATORS, READ, REMOVES, UPDATES, client, data,
    help_of, node, second_key,
};
use crate::command::keyspace;
use crate::command::spec::Category::{Connection, Keyspace, Scripting as ScriptingCategory};
use crate::command::spec::ClientCommand::{
    GetName, Id, Kill, List as ClientList, NoEvict, NoTouch, SetInfo, SetName,
};
use crate::command::spec::CommandCommand::{
    Count, Docs, GetKeys, GetKeysAndFlags, Info as CommandInfo, List,
};
use crate::command::spec::ConfigCommand::{Get, ResetStat, Set};
use crate::command::spec::Flag::{AllowBusy, Fast, Loading, NoMulti, NoScript, Stale, Write};
use crate::command::spec::NodeCommand::{self, Command, Config, DebugSleep, Lock};
use crate::command::spec::{
    ClientCommand, ClusterCommand, CommandSpec, Flags, Group, KeyspaceCommand, LockVerb, ScriptCommand,
};

pub(super) static LOCK_SESSION: [CommandSpec; 4] = [
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

pub(super) static SCRIPT: [CommandSpec; 5] = [
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

pub(super) static FUNCTION: [CommandSpec; 2] = [
    node("function|flush", -2, NodeCommand::Script(ScriptCommand::FlushFunctions))
        .flags(Flags::of(&[NoScript, Write]))
        .in_categories(&[ScriptingCategory])
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .docs(Group::Scripting, "7.0.0", "O(1)")
        .help("[ASYNC|SYNC]", "Does nothing: there are no functions"),
    help_of("function|help").in_categories(&[ScriptingCategory]).docs(Group::Scripting, "7.0.0", "O(1)"),
];

pub(super) static OBJECT: [CommandSpec; 2] = [
    data("object|encoding", 3, keyspace::encoding)
        .flags(READ)
        .keys(second_key(&[LOOKS_AT]))
        .in_categories(&[Keyspace])
        .tips(&["nondeterministic_output"])
        .docs(Group::Generic, "2.2.3", "O(1)")
        .help("key", "Returns how a value is kept"),
    help_of("object|help").in_categories(&[Keyspace]).docs(Group::Generic, "6.2.0", "O(1)"),
];

pub(super) static MEMORY: [CommandSpec; 2] = [
    data("memory|usage", -3, keyspace::memory_usage)
        .flags(READ)
        .keys(second_key(&[LOOKS_AT]))
        .docs(Group::Server, "4.0.0", "O(1)")
        .help("key [SAMPLES count]", "Returns how many bytes a key and its value take"),
    help_of("memory|help").docs(Group::Server, "4.0.0", "O(1)"),
];

pub(super) static CLIENT: [CommandSpec; 12] = [
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
    client("client|unblock", -3, ClientCommand::Unblock)
        .flags(OPERATORS)
        .docs(Group::Connection, "5.0.0", "O(N) for N connections")
        .help(
            "client-id [TIMEOUT|ERROR]",
            "Ends the wait of a connection, as if its time was over or with an error",
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
    client("client|reply", 3, ClientCommand::Reply)
        .flags(Flags::of(&[NoScript, Loading, Stale, NoMulti]))
        .docs(Group::Connection, "3.2.0", "O(1)")
        .help("ON|OFF|SKIP", "Whether this connection gets replies; SKIP leaves out the next one"),
    client("client|no-evict", 3, NoEvict)
        .flags(OPERATORS)
        .docs(Group::Connection, "7.0.0", "O(1)")
        .help("ON|OFF", "Accepted for compatibility: connections are never evicted"),
    client("client|no-touch", 3, NoTouch)
        .docs(Group::Connection, "7.2.0", "O(1)")
        .help("ON|OFF", "Accepted for compatibility: no time of access is kept"),
    help_of("client|help").in_categories(&[Connection]).docs(Group::Connection, "5.0.0", "O(1)"),
];

pub(super) static COMMAND: [CommandSpec; 7] = [
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

pub(super) static CONFIG: [CommandSpec; 4] = [
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

pub(super) static KEYSPACE: [CommandSpec; 7] = [
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
    node("keyspace|recover", -3, NodeCommand::Keyspace(KeyspaceCommand::Recover))
        .flags(CLUSTER_WIDE)
        .docs(Group::Cluster, "3.0.0", "O(N) for N shards")
        .help(
            "prefix [ACCEPTLOSS]",
            "Tells what a keyspace of abd or blocking has lost that stands still, and goes on without it",
        ),
    node("keyspace|set", -4, NodeCommand::Keyspace(KeyspaceCommand::Set))
        .flags(CLUSTER_WIDE)
        .docs(Group::Cluster, "3.0.0", "O(1)")
        .help(
            "prefix setting=value [setting=value ...]",
            "Changes settings of a keyspace while it is in use",
        ),
    help_of("keyspace|help").docs(Group::Cluster, "3.0.0", "O(1)"),
];

pub(super) static CLUSTER: [CommandSpec; 12] = [
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
    node("cluster|quarantine", -3, NodeCommand::Cluster(ClusterCommand::Quarantine))
        .flags(CLUSTER_WIDE)
        .docs(Group::Cluster, "3.0.0", "O(N) for N records")
        .help(
            "LIST | SKIP group offset | RETRY group",
            "Lists records that have ended nodes; leaves one out on all replicas; tries again",
        ),
    node("cluster|remove", -3, NodeCommand::Cluster(ClusterCommand::Remove))
        .flags(CLUSTER_WIDE)
        .docs(Group::Cluster, "3.0.0", "O(1)")
        .help("id [FORCE]", "Moves a node's replicas to others and removes it"),
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

pub(super) static DEBUG: [CommandSpec; 2] = [
    node("debug|sleep", 3, DebugSleep)
        .flags(OPERATORS)
        .docs(Group::Server, "1.0.0", "O(1)")
        .help("seconds", "Lets the answer wait for so many seconds"),
    help_of("debug|help").flags(OPERATORS).docs(Group::Server, "1.0.0", "O(1)"),
];
