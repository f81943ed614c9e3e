//! The commands inside containers, such as `CLIENT LIST`.

use super::row::{
    ANY_TIME, CHANGES, CLUSTER_WIDE, LOCKS, LOOKS_AT, OPERATORS, READ, REMOVES, UPDATES, client, data,
    help_of, node, second_key,
};
use crate::keyspace;
use crate::spec::Category::{
    Cluster as ClusterCategory, Connection, Keyspace, Scripting as ScriptingCategory,
};
use crate::spec::ClientCommand::{GetName, Id, Kill, List as ClientList, NoEvict, NoTouch, SetInfo, SetName};
use crate::spec::CommandCommand::{Count, Docs, GetKeys, GetKeysAndFlags, Info as CommandInfo, List};
use crate::spec::ConfigCommand::{Get, ResetStat, Set};
use crate::spec::Flag::{
    Admin, AllowBusy, DenyOom, Fast, Loading, NoMulti, NoScript, ReadOnly, Stale, Write,
};
use crate::spec::NodeCommand::{
    self, Acl, Command, Config, DebugExpire, DebugNothing, DebugProtocol, DebugSleep, Lock,
};
use crate::spec::{
    AclCommand, ClientCommand, ClusterCommand, CommandSpec, ConfigCommand, Flags, FunctionCommand, Group,
    HotKeysCommand, KeyspaceCommand, LatencyCommand, LockVerb, MemoryCommand, ScriptCommand, ServerCommand,
    SlowlogCommand,
};

pub(super) static LOCK_SESSION: [CommandSpec; 4] = [
    node("lock.session|open", 5, Lock(LockVerb::OpenSession))
        .flags(LOCKS.with(&[Write, Fast]))
        .keys(second_key(CHANGES))
        .docs(Group::Locks, "3.0.0", "O(log N) for N sessions")
        .help("key PX milliseconds", "Begins a session for the locks in a key's group, and returns its id"),
    node("lock.session|renew", 4, Lock(LockVerb::RenewSession))
        .flags(LOCKS.with(&[Write, Fast]))
        .keys(second_key(UPDATES))
        .docs(Group::Locks, "3.0.0", "O(log N) for N sessions")
        .help("key id", "Renews the lease of a session"),
    node("lock.session|close", 4, Lock(LockVerb::CloseSession))
        .flags(LOCKS.with(&[Write]))
        .keys(second_key(REMOVES))
        .docs(Group::Locks, "3.0.0", "O(N) for N locks of the session")
        .help("key id", "Ends a session, and frees all locks that are held under it"),
    help_of("lock.session|help").docs(Group::Locks, "3.0.0", "O(1)"),
];

pub(super) static SCRIPT: [CommandSpec; 7] = [
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
        .help("sha1 [sha1 ...]", "Returns which scripts this node knows"),
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
    node("script|show", 3, NodeCommand::Script(ScriptCommand::Show))
        .flags(Flags::of(&[NoScript, Stale]))
        .in_categories(&[ScriptingCategory])
        .docs(Group::Scripting, "8.0.0", "O(1)")
        .help("sha1", "Returns the text of a script that this node knows"),
    node("script|debug", 3, NodeCommand::Script(ScriptCommand::Debug))
        .flags(Flags::of(&[NoScript]))
        .in_categories(&[ScriptingCategory])
        .docs(Group::Scripting, "3.2.0", "O(1)")
        .help("YES|SYNC|NO", "Refuses: there is no debugger"),
    help_of("script|help").in_categories(&[ScriptingCategory]).docs(Group::Scripting, "5.0.0", "O(1)"),
];

/// Changes of the libraries, to which the whole cluster has to agree.
const CHANGES_LIBRARIES: Flags = Flags::of(&[NoScript, Write, NoMulti]);

pub(super) static FUNCTION: [CommandSpec; 9] = [
    function("function|load", -3, FunctionCommand::Load)
        .flags(CHANGES_LIBRARIES.with(&[DenyOom]))
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .docs(Group::Scripting, "7.0.0", "O(N) for N bytes, beside what the library does")
        .help("[REPLACE] library-code", "Has every node know a library, and returns its name"),
    function("function|delete", 3, FunctionCommand::Delete)
        .flags(CHANGES_LIBRARIES)
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .docs(Group::Scripting, "7.0.0", "O(N) for N bytes of all libraries")
        .help("library-name", "Removes a library"),
    function("function|flush", -2, FunctionCommand::Flush)
        .flags(CHANGES_LIBRARIES)
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .docs(Group::Scripting, "7.0.0", "O(N) for N libraries")
        .help("[ASYNC|SYNC]", "Removes all libraries"),
    function("function|dump", 2, FunctionCommand::Dump)
        .flags(Flags::of(&[NoScript]))
        .docs(Group::Scripting, "7.0.0", "O(N) for N bytes of all libraries")
        .help("", "Returns all libraries, in Redis's format"),
    function("function|restore", -3, FunctionCommand::Restore)
        .flags(CHANGES_LIBRARIES.with(&[DenyOom]))
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .docs(Group::Scripting, "7.0.0", "O(N) for N bytes, beside what the libraries do")
        .help(
            "serialized-value [FLUSH|APPEND|REPLACE]",
            "Has every node know the libraries of FUNCTION DUMP",
        ),
    function("function|list", -2, FunctionCommand::List)
        .flags(Flags::of(&[NoScript]))
        .tips(&["nondeterministic_output_order"])
        .docs(Group::Scripting, "7.0.0", "O(N) for N functions")
        .help("[LIBRARYNAME library-name-pattern] [WITHCODE]", "Describes libraries and their functions"),
    function("function|stats", 2, FunctionCommand::Stats)
        .flags(Flags::of(&[NoScript, AllowBusy]))
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
        .docs(Group::Scripting, "7.0.0", "O(N) for N libraries")
        .help("", "Counts libraries and functions"),
    function("function|kill", 2, FunctionCommand::Kill)
        .flags(Flags::of(&[NoScript, AllowBusy]))
        .tips(&["request_policy:all_shards", "response_policy:one_succeeded"])
        .docs(Group::Scripting, "7.0.0", "O(1)")
        .help("", "Answers that no function is running: all of them end by themselves"),
    help_of("function|help").in_categories(&[ScriptingCategory]).docs(Group::Scripting, "7.0.0", "O(1)"),
];

const fn function(name: &'static str, arity: i16, command: FunctionCommand) -> CommandSpec {
    node(name, arity, NodeCommand::Function(command)).in_categories(&[ScriptingCategory])
}

pub(super) static OBJECT: [CommandSpec; 5] = [
    data("object|encoding", 3, keyspace::encoding)
        .flags(READ)
        .keys(second_key(LOOKS_AT))
        .in_categories(&[Keyspace])
        .tips(&["nondeterministic_output"])
        .docs(Group::Generic, "2.2.3", "O(1)")
        .help("key", "Returns how a value is kept"),
    data("object|freq", 3, keyspace::frequency)
        .flags(READ)
        .keys(second_key(LOOKS_AT))
        .in_categories(&[Keyspace])
        .tips(&["nondeterministic_output"])
        .docs(Group::Generic, "4.0.0", "O(1)")
        .help("key", "Returns a logarithmic count of a key's accesses, where eviction goes by it"),
    data("object|idletime", 3, keyspace::idle_time)
        .flags(READ)
        .keys(second_key(LOOKS_AT))
        .in_categories(&[Keyspace])
        .tips(&["nondeterministic_output"])
        .docs(Group::Generic, "2.2.3", "O(1)")
        .help("key", "Returns for how many seconds a key was not used, where eviction goes by it"),
    node("object|refcount", 3, NodeCommand::ObjectRefCount)
        .flags(READ)
        .keys(second_key(LOOKS_AT))
        .in_categories(&[Keyspace])
        .tips(&["nondeterministic_output"])
        .docs(Group::Generic, "2.2.3", "O(1)")
        .help("key", "Returns 1: each value belongs to one key"),
    help_of("object|help").in_categories(&[Keyspace]).docs(Group::Generic, "6.2.0", "O(1)"),
];

pub(super) static MEMORY: [CommandSpec; 6] = [
    data("memory|usage", -3, keyspace::memory_usage)
        .flags(READ)
        .keys(second_key(LOOKS_AT))
        .docs(Group::Server, "4.0.0", "O(1)")
        .help("key [SAMPLES count]", "Returns how many bytes a key and its value take"),
    node("memory|doctor", 2, NodeCommand::Memory(MemoryCommand::Doctor))
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
        .docs(Group::Server, "4.0.0", "O(1)")
        .help("", "Tells whether memory is short on this node, for people"),
    node("memory|malloc-stats", 2, NodeCommand::Memory(MemoryCommand::MallocStats))
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
        .docs(Group::Server, "4.0.0", "O(1)")
        .help("", "Tells that the allocator's statistics are not shown"),
    node("memory|purge", 2, NodeCommand::Memory(MemoryCommand::Purge))
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .docs(Group::Server, "4.0.0", "O(1)")
        .help("", "Does nothing: free memory is given back to the system when it is needed"),
    node("memory|stats", 2, NodeCommand::MemoryStats)
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
        .docs(Group::Server, "4.0.0", "O(1)")
        .help("", "Returns how the memory of this node is used"),
    help_of("memory|help").docs(Group::Server, "4.0.0", "O(1)"),
];

/// The conditions that connections have to meet.
const CLIENT_FILTERS: &str = "[ID client-id [client-id ...]] [TYPE normal|master|replica|pubsub] [USER username] [ADDR ip:port] \
     [LADDR ip:port] [IP ip] [NAME name] [LIB-NAME name] [LIB-VER version] [FLAGS flags] [CAPA capabilities] [DB index] [MAXAGE \
     seconds] [IDLE seconds] [SKIPME yes|no]";

pub(super) static CLIENT: [CommandSpec; 20] = [
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
        .help(CLIENT_FILTERS, "Describes connections; NOT- before a condition but MAXAGE, IDLE and SKIPME negates it"),
    client("client|kill", -3, Kill)
        .flags(OPERATORS)
        .docs(Group::Connection, "2.4.0", "O(N) for N connections")
        .help(
            "[ip:port] [ID client-id [client-id ...]] [TYPE normal|master|replica|pubsub] [USER username] [ADDR ip:port] \
             [LADDR ip:port] [IP ip] [NAME name] [LIB-NAME name] [LIB-VER version] [FLAGS flags] [CAPA capabilities] [DB \
             index] [MAXAGE seconds] [IDLE seconds] [SKIPME yes|no]",
            "Closes connections; NOT- before a condition but MAXAGE, IDLE and SKIPME negates it",
        ),
    client("client|capa", -3, ClientCommand::Capabilities)
        .docs(Group::Connection, "8.0.0", "O(1)")
        .help("capability [capability ...]", "Tells what this client understands; kept for CLIENT INFO"),
    client("client|import-source", 3, ClientCommand::ImportSource)
        .docs(Group::Connection, "8.1.0", "O(1)")
        .help("ON|OFF", "Accepts OFF: there is no import mode"),
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
        .help("LIB-NAME|LIB-VER value", "Sets which client library this connection uses"),
    client("client|reply", 3, ClientCommand::Reply)
        .flags(Flags::of(&[NoScript, Loading, Stale, NoMulti]))
        .docs(Group::Connection, "3.2.0", "O(1)")
        .help("ON|OFF|SKIP", "Whether this connection gets replies; SKIP leaves out the next one"),
    client("client|pause", -3, ClientCommand::Pause)
        .flags(OPERATORS)
        .docs(Group::Connection, "3.0.0", "O(1)")
        .help(
            "timeout [WRITE|ALL]",
            "Holds back the requests of this node's clients for so many milliseconds",
        ),
    client("client|unpause", 2, ClientCommand::Unpause)
        .flags(OPERATORS)
        .docs(Group::Connection, "6.2.0", "O(N) for N connections")
        .help("", "Ends a pause"),
    client("client|getredir", 2, ClientCommand::GetRedir)
        .docs(Group::Connection, "6.0.0", "O(1)")
        .help("", "Returns the client that gets the messages of this one's tracking; 0: itself, -1: there is no tracking"),
    client("client|tracking", -3, ClientCommand::Tracking).docs(Group::Connection, "6.0.0", "O(1)").help(
        "ON|OFF [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]",
        "Sends messages of keys that are no longer valid",
    ),
    client("client|trackinginfo", 2, ClientCommand::TrackingInfo)
        .docs(Group::Connection, "6.2.0", "O(1)")
        .help("", "Returns how this client tracks keys"),
    client("client|caching", 3, ClientCommand::Caching)
        .docs(Group::Connection, "6.0.0", "O(1)")
        .help("YES|NO", "Chooses whether the client keeps what the next request reads"),
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

pub(super) static MODULE: [CommandSpec; 2] = [
    node("module|list", 2, NodeCommand::Server(ServerCommand::Modules))
        .flags(Flags::of(&[Admin, NoScript]))
        .tips(&["nondeterministic_output_order"])
        .docs(Group::Server, "4.0.0", "O(1)")
        .help("", "Returns nothing: there are no modules"),
    help_of("module|help").docs(Group::Server, "5.0.0", "O(1)"),
];

pub(super) static CONFIG: [CommandSpec; 5] = [
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
        .help("", "Sets the counters that INFO reports back to zero"),
    node("config|rewrite", 2, Config(ConfigCommand::Rewrite))
        .flags(OPERATORS)
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .docs(Group::Server, "2.8.0", "O(1)")
        .help("", "Refuses: a node does not change its configuration file"),
    help_of("config|help").docs(Group::Server, "5.0.0", "O(1)"),
];

/// Commands that read the changes of a keyspace.
const READS_CHANGES: Flags = Flags::of(&[ReadOnly, NoScript, NoMulti]);

pub(super) static KEYSPACE: [CommandSpec; 11] = [
    node("keyspace|changes", -3, NodeCommand::Keyspace(KeyspaceCommand::Changes))
        .flags(READS_CHANGES)
        .docs(Group::Cluster, "3.0.0", "O(N) for N changes")
        .help(
            "prefix [FROM version] [BYTES number] [TIMES]",
            "Returns the changes of a keyspace behind a version, and the version up to which these are all",
        ),
    node("keyspace|copy", -4, NodeCommand::Keyspace(KeyspaceCommand::Copy))
        .flags(CLUSTER_WIDE)
        .docs(Group::Cluster, "3.0.0", "O(N) for N keys")
        .help(
            "prefix shard [LOCKED id]",
            "Sends this client all keys of a shard as they are now, as a file of Redis; only while CLUSTER BACKUP LOCK holds them",
        ),
    node("keyspace|create", -3, NodeCommand::Keyspace(KeyspaceCommand::Create))
        .flags(CLUSTER_WIDE)
        .in_categories(&[ClusterCategory])
        .docs(Group::Cluster, "3.0.0", "O(1)")
        .help("prefix [setting=value ...]", "Makes a keyspace for the keys with a prefix"),
    node("keyspace|drop", 3, NodeCommand::Keyspace(KeyspaceCommand::Drop))
        .flags(CLUSTER_WIDE)
        .in_categories(&[ClusterCategory])
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
        .in_categories(&[ClusterCategory])
        .docs(Group::Cluster, "3.0.0", "O(N) for N shards")
        .help(
            "prefix [ACCEPTLOSS]",
            "Returns what a keyspace of abd or blocking has lost that stands still, and goes on without it",
        ),
    node("keyspace|set", -4, NodeCommand::Keyspace(KeyspaceCommand::Set))
        .flags(CLUSTER_WIDE)
        .in_categories(&[ClusterCategory])
        .docs(Group::Cluster, "3.0.0", "O(1)")
        .help(
            "prefix setting=value [setting=value ...]",
            "Changes settings of a keyspace while it is in use",
        ),
    node("keyspace|unwatch", 3, NodeCommand::Keyspace(KeyspaceCommand::Unwatch))
        .flags(READS_CHANGES)
        .docs(Group::Cluster, "3.0.0", "O(1)")
        .help("prefix", "Ends the streams of a keyspace's changes to this client"),
    node("keyspace|watch", -3, NodeCommand::Keyspace(KeyspaceCommand::Watch))
        .flags(READS_CHANGES)
        .docs(Group::Cluster, "3.0.0", "O(N) for N changes")
        .help("prefix [FROM version]", "Sends this client every change of a keyspace behind a version"),
    help_of("keyspace|help").docs(Group::Cluster, "3.0.0", "O(1)"),
];

pub(super) static CLUSTER: [CommandSpec; 29] = [
    node("cluster|add", 7, NodeCommand::Cluster(ClusterCommand::Add))
        .flags(CLUSTER_WIDE)
        .in_categories(&[ClusterCategory])
        .docs(Group::Cluster, "3.0.0", "O(1)")
        .help(
            "id host client-port http-port peer-port",
            "Adds a node, which gets its replicas when it has started",
        ),
    node("cluster|ask", -4, NodeCommand::Ask)
        .flags(ANY_TIME.with(&[NoScript, NoMulti]))
        .tips(&["nondeterministic_output"])
        .docs(Group::Cluster, "3.0.0", "Depends on the command")
        .help("id command [arg [arg ...]]", "Asks another node a command that tells how that node stands"),
    // Not in the category `cluster`: a user that may make backups may report them, too.
    node("cluster|backup", -3, NodeCommand::Cluster(ClusterCommand::Backup))
        .flags(CLUSTER_WIDE)
        .docs(Group::Cluster, "3.0.0", "O(N) for N keyspaces")
        .help(
            "due-ms prefix moment-ms [prefix moment-ms ...] | FORGET | LOCK group [group ...] | UNLOCK id",
            "Notes which moments a backup shows, and after how long the next one is due; forgets all backups; locks all keys of \
             groups, for half a second at most; unlocks them",
        ),
    node("cluster|countkeysinslot", 3, NodeCommand::Cluster(ClusterCommand::CountKeysInSlot))
        .flags(Flags::of(&[Stale]))
        .docs(Group::Cluster, "3.0.0", "O(N) for N keys of the slot's shard")
        .help("slot", "Counts the keys of a hash slot that this node's replica holds"),
    node("cluster|drain", -3, NodeCommand::Cluster(ClusterCommand::Drain))
        .flags(CLUSTER_WIDE)
        .in_categories(&[ClusterCategory])
        .docs(Group::Cluster, "3.0.0", "O(1)")
        .help("id [END]", "Has other nodes lead what a node leads, until the end of that"),
    node("cluster|events", 2, NodeCommand::Events)
        .flags(OPERATORS)
        .tips(&["nondeterministic_output"])
        .docs(Group::Cluster, "3.0.0", "O(1)")
        .help("", "Returns the latest lines of this node's log, and the leaderships that it has taken over, as JSON"),
    node("cluster|failover", -2, NodeCommand::Cluster(ClusterCommand::Failover))
        .flags(CLUSTER_WIDE)
        .in_categories(&[ClusterCategory])
        .docs(Group::Cluster, "3.0.0", "O(N) for N groups")
        .help("[FORCE | TAKEOVER]", "Has this node lead all groups of which it has a replica"),
    node("cluster|getkeysinslot", 4, NodeCommand::Cluster(ClusterCommand::GetKeysInSlot))
        .flags(Flags::of(&[Stale]))
        .tips(&["nondeterministic_output"])
        .docs(Group::Cluster, "3.0.0", "O(N) for N keys of the slot's shard")
        .help("slot count", "Returns keys of a hash slot that this node's replica holds"),
    node("cluster|history", 3, NodeCommand::History)
        .flags(OPERATORS)
        .tips(&["nondeterministic_output"])
        .docs(Group::Cluster, "3.0.0", "O(N) for N keyspaces")
        .help("seconds", "Returns what this node has served and held in the last seconds, up to a day and more, as JSON"),
    node("cluster|info", 2, NodeCommand::Cluster(ClusterCommand::Info))
        .flags(Flags::of(&[Stale]))
        .tips(&["nondeterministic_output"])
        .docs(Group::Cluster, "3.0.0", "O(1)")
        .help("", "Returns how the cluster stands"),
    node("cluster|keyslot", 3, NodeCommand::Cluster(ClusterCommand::KeySlot))
        .flags(Flags::of(&[Stale]))
        .docs(Group::Cluster, "3.0.0", "O(N) for N bytes")
        .help("key", "Returns the hash slot of a key"),
    node("cluster|lead", -3, NodeCommand::Cluster(ClusterCommand::Lead))
        .flags(CLUSTER_WIDE)
        .in_categories(&[ClusterCategory])
        .docs(Group::Cluster, "3.0.0", "O(N) for N groups")
        .help(
            "group | prefix [id]",
            "Has a node lead a group, or all groups of a keyspace; by default the one that leads fewest",
        ),
    node("cluster|level", -2, NodeCommand::Cluster(ClusterCommand::Level))
        .flags(CLUSTER_WIDE)
        .in_categories(&[ClusterCategory])
        .docs(Group::Cluster, "3.0.0", "O(N) for N nodes")
        .help(
            "[HOLD | RISE]",
            "Returns the cluster's level and what keeps it there; holds it; lets it rise by itself again",
        ),
    node("cluster|links", 2, NodeCommand::Cluster(ClusterCommand::Links))
        .flags(Flags::of(&[Stale]))
        .tips(&["nondeterministic_output"])
        .docs(Group::Cluster, "7.0.0", "O(N) for N nodes")
        .help("", "Describes this node's links to the others"),
    node("cluster|map", 2, NodeCommand::Cluster(ClusterCommand::Map))
        .flags(ANY_TIME)
        .docs(Group::Cluster, "3.0.0", "O(N) for N groups")
        .help("", "Returns the whole cluster map as JSON"),
    node("cluster|myid", 2, NodeCommand::Cluster(ClusterCommand::MyId))
        .flags(Flags::of(&[Stale]))
        .docs(Group::Cluster, "3.0.0", "O(1)")
        .help("", "Returns the name of this node"),
    node("cluster|myshardid", 2, NodeCommand::Cluster(ClusterCommand::MyShardId))
        .flags(Flags::of(&[Stale]))
        .docs(Group::Cluster, "7.2.0", "O(1)")
        .help("", "Returns the name of the default keyspace's shard of which this node has a replica"),
    node("cluster|nodes", 2, NodeCommand::Cluster(ClusterCommand::Nodes))
        .flags(Flags::of(&[Stale]))
        .tips(&["nondeterministic_output"])
        .docs(Group::Cluster, "3.0.0", "O(N) for N nodes")
        .help("", "Lists the nodes, and which slots of the default keyspace each serves"),
    node("cluster|quarantine", -3, NodeCommand::Cluster(ClusterCommand::Quarantine))
        .flags(CLUSTER_WIDE)
        .in_categories(&[ClusterCategory])
        .docs(Group::Cluster, "3.0.0", "O(N) for N records")
        .help(
            "LIST | SKIP group offset | RETRY group",
            "Lists records that have ended nodes; leaves one out on all replicas; tries again",
        ),
    node("cluster|remove", -3, NodeCommand::Cluster(ClusterCommand::Remove))
        .flags(CLUSTER_WIDE)
        .in_categories(&[ClusterCategory])
        .docs(Group::Cluster, "3.0.0", "O(1)")
        .help("id [FORCE]", "Moves a node's replicas to others and removes it"),
    node("cluster|replace", -3, NodeCommand::Cluster(ClusterCommand::Replace))
        .flags(CLUSTER_WIDE)
        .in_categories(&[ClusterCategory])
        .docs(Group::Cluster, "3.0.0", "O(1)")
        .help(
            "id [ACCEPTLOSS]",
            "Lets a node that has lost its storage in again, as a new member of its groups",
        ),
    node("cluster|replicas", 3, NodeCommand::Cluster(ClusterCommand::Replicas))
        .flags(Flags::of(&[Admin, Stale]))
        .tips(&["nondeterministic_output"])
        .docs(Group::Cluster, "5.0.0", "O(N) for N nodes")
        .help("node-id", "Lists the nodes that follow a node in the default keyspace"),
    node("cluster|report", 2, NodeCommand::Report)
        .flags(ANY_TIME)
        .tips(&["nondeterministic_output"])
        .docs(Group::Cluster, "3.0.0", "O(N) for N groups")
        .help("", "Returns what this node says of itself as JSON: its health, and figures"),
    node("cluster|reset", -2, NodeCommand::Server(ServerCommand::ClusterReset))
        .flags(OPERATORS)
        .in_categories(&[ClusterCategory])
        .docs(Group::Cluster, "3.0.0", "O(1)")
        .help("[HARD|SOFT]", "Is refused: CLUSTER REMOVE takes a node out of its cluster"),
    node("cluster|shards", 2, NodeCommand::Cluster(ClusterCommand::Shards))
        .flags(Flags::of(&[Stale]))
        .tips(&["nondeterministic_output"])
        .docs(Group::Cluster, "7.0.0", "O(N) for N shards")
        .help("", "Describes the default keyspace's shards"),
    node("cluster|slot-stats", -4, NodeCommand::Cluster(ClusterCommand::SlotStats))
        .flags(ANY_TIME)
        .tips(&["nondeterministic_output", "request_policy:all_shards"])
        .docs(Group::Cluster, "8.0.0", "O(N) for N keys of this node, and N log N for N slots")
        .help(
            "SLOTSRANGE start-slot end-slot | ORDERBY key-count [LIMIT limit] [ASC | DESC]",
            "Counts the keys that this node's replicas hold of each slot",
        ),
    node("cluster|slots", 2, NodeCommand::Cluster(ClusterCommand::Slots))
        .flags(Flags::of(&[Stale]))
        .tips(&["nondeterministic_output"])
        .docs(Group::Cluster, "3.0.0", "O(N) for N shards")
        .help("", "Returns which nodes serve which slots of the default keyspace"),
    node("cluster|slaves", 3, NodeCommand::Cluster(ClusterCommand::Replicas))
        .flags(Flags::of(&[Admin, Stale]))
        .tips(&["nondeterministic_output"])
        .docs(Group::Cluster, "3.0.0", "O(N) for N nodes")
        .help("node-id", "Lists the nodes that follow a node in the default keyspace"),
    help_of("cluster|help").docs(Group::Cluster, "5.0.0", "O(1)"),
];

/// Questions about users that any client may ask.
const ABOUT_USERS: Flags = Flags::of(&[NoScript, Loading, Stale]);

pub(super) static ACL: [CommandSpec; 13] = [
    node("acl|cat", -2, Acl(AclCommand::Cat))
        .flags(ABOUT_USERS)
        .docs(Group::Server, "6.0.0", "O(N) for N categories or commands")
        .help("[category]", "Lists the categories of commands, or the commands of one"),
    node("acl|deluser", -3, Acl(AclCommand::DelUser))
        .flags(CLUSTER_WIDE)
        .in_categories(&[ClusterCategory])
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .docs(Group::Server, "6.0.0", "O(N) for N connections")
        .help("username [username ...]", "Removes users, and closes their connections"),
    node("acl|dryrun", -4, Acl(AclCommand::DryRun))
        .flags(OPERATORS)
        .docs(Group::Server, "7.0.0", "O(N) for N keys")
        .help(
            "username command [arg [arg ...]]",
            "Tells whether a user may give a command, without doing it",
        ),
    node("acl|genpass", -2, Acl(AclCommand::GenPass))
        .flags(ABOUT_USERS)
        .docs(Group::Server, "6.0.0", "O(1)")
        .help("[bits]", "Draws a password"),
    node("acl|getuser", 3, Acl(AclCommand::GetUser))
        .flags(OPERATORS)
        .docs(Group::Server, "6.0.0", "O(N) for N rules")
        .help("username", "Describes a user"),
    node("acl|list", 2, Acl(AclCommand::List))
        .flags(OPERATORS)
        .docs(Group::Server, "6.0.0", "O(N) for N users")
        .help("", "Returns all users as lines of Redis's ACL files"),
    node("acl|load", 2, Acl(AclCommand::Load))
        .flags(OPERATORS)
        .docs(Group::Server, "6.0.0", "O(1)")
        .help("", "Refuses: users are in the cluster map, and in no file"),
    node("acl|log", -2, Acl(AclCommand::Log))
        .flags(OPERATORS)
        .docs(Group::Server, "6.0.0", "O(N) for N entries")
        .help("[count|RESET]", "Returns what this node has refused to whom, or forgets it"),
    node("acl|save", 2, Acl(AclCommand::Save))
        .flags(OPERATORS)
        .docs(Group::Server, "6.0.0", "O(1)")
        .help("", "Refuses: users are in the cluster map, and in no file"),
    node("acl|setuser", -3, Acl(AclCommand::SetUser))
        .flags(CLUSTER_WIDE)
        .in_categories(&[ClusterCategory])
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .docs(Group::Server, "6.0.0", "O(N) for N rules")
        .help("username [rule [rule ...]]", "Makes a user on all nodes, or changes its rules"),
    node("acl|users", 2, Acl(AclCommand::Users))
        .flags(OPERATORS)
        .docs(Group::Server, "6.0.0", "O(N) for N users")
        .help("", "Returns the names of all users"),
    node("acl|whoami", 2, Acl(AclCommand::WhoAmI))
        .flags(ABOUT_USERS)
        .docs(Group::Server, "6.0.0", "O(1)")
        .help("", "Returns the name of this connection's user"),
    help_of("acl|help").docs(Group::Server, "6.0.0", "O(1)"),
];

/// Operators' commands that look at a node.
const WATCHES: Flags = Flags::of(&[Admin, Loading, Stale]);

/// Operators' commands about what a node counts.
const COUNTS: Flags = Flags::of(&[Admin, NoScript]);

pub(super) static HOTKEYS: [CommandSpec; 5] = [
    node("hotkeys|get", 2, NodeCommand::HotKeys(HotKeysCommand::Get))
        .flags(COUNTS)
        .tips(&["nondeterministic_output", "request_policy:special", "response_policy:special"])
        .docs(Group::Server, "8.6.0", "O(K) for K keys")
        .help("", "Returns the keys that took most since START, and sums"),
    node("hotkeys|reset", 2, NodeCommand::HotKeys(HotKeysCommand::Reset))
        .flags(COUNTS)
        .tips(&["request_policy:special"])
        .docs(Group::Server, "8.6.0", "O(1)")
        .help("", "Forgets what was counted"),
    node("hotkeys|start", -2, NodeCommand::HotKeys(HotKeysCommand::Start))
        .flags(COUNTS)
        .tips(&["request_policy:special"])
        .docs(Group::Server, "8.6.0", "O(1)")
        .help(
            "METRICS count [CPU] [NET] [COUNT k] [DURATION seconds] [SAMPLE ratio] [SLOTS count slot [slot ...]]",
            "Counts the time or the traffic of keys from now on",
        ),
    node("hotkeys|stop", 2, NodeCommand::HotKeys(HotKeysCommand::Stop))
        .flags(COUNTS)
        .tips(&["request_policy:special"])
        .docs(Group::Server, "8.6.0", "O(1)")
        .help("", "Ends the counting; GET still answers"),
    help_of("hotkeys|help").docs(Group::Server, "8.6.1", "O(1)"),
];

pub(super) static SLOWLOG: [CommandSpec; 4] = [
    node("slowlog|get", -2, NodeCommand::Slowlog(SlowlogCommand::Get))
        .flags(WATCHES)
        .tips(&["request_policy:all_nodes", "nondeterministic_output"])
        .docs(Group::Server, "2.2.12", "O(N) for N entries")
        .help("[count]", "Returns the newest entries of the log of slow commands; ten, or all with -1"),
    node("slowlog|len", 2, NodeCommand::Slowlog(SlowlogCommand::Len))
        .flags(WATCHES)
        .tips(&["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"])
        .docs(Group::Server, "2.2.12", "O(1)")
        .help("", "Returns how many entries the log of slow commands has"),
    node("slowlog|reset", 2, NodeCommand::Slowlog(SlowlogCommand::Reset))
        .flags(WATCHES)
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .docs(Group::Server, "2.2.12", "O(N) for N entries")
        .help("", "Empties the log of slow commands"),
    help_of("slowlog|help").docs(Group::Server, "6.2.0", "O(1)"),
];

pub(super) static COMMANDLOG: [CommandSpec; 4] = [
    node("commandlog|get", 4, NodeCommand::Slowlog(SlowlogCommand::Get))
        .flags(WATCHES)
        .tips(&["request_policy:all_nodes", "nondeterministic_output"])
        .docs(Group::Server, "8.1.0", "O(N) for N entries")
        .help(
            "count slow|large-request|large-reply",
            "Returns the newest entries of a log of commands; all with -1",
        ),
    node("commandlog|len", 3, NodeCommand::Slowlog(SlowlogCommand::Len))
        .flags(WATCHES)
        .tips(&["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"])
        .docs(Group::Server, "8.1.0", "O(1)")
        .help("slow|large-request|large-reply", "Returns how many entries a log of commands has"),
    node("commandlog|reset", 3, NodeCommand::Slowlog(SlowlogCommand::Reset))
        .flags(WATCHES)
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .docs(Group::Server, "8.1.0", "O(N) for N entries")
        .help("slow|large-request|large-reply", "Empties a log of commands"),
    help_of("commandlog|help").docs(Group::Server, "8.1.0", "O(1)"),
];

pub(super) static LATENCY: [CommandSpec; 7] = [
    node("latency|doctor", 2, NodeCommand::Latency(LatencyCommand::Doctor))
        .flags(OPERATORS)
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"])
        .docs(Group::Server, "2.8.13", "O(1)")
        .help("", "Describes the events that were noted, for people"),
    node("latency|graph", 3, NodeCommand::Latency(LatencyCommand::Graph))
        .flags(OPERATORS)
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"])
        .docs(Group::Server, "2.8.13", "O(1)")
        .help("event", "Draws when an event was noted, and how long it took"),
    node("latency|histogram", -2, NodeCommand::Latency(LatencyCommand::Histogram))
        .flags(OPERATORS)
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"])
        .docs(Group::Server, "7.0.0", "O(N) for N commands")
        .help("[command [command ...]]", "Returns how often commands took how long"),
    node("latency|history", 3, NodeCommand::Latency(LatencyCommand::History))
        .flags(OPERATORS)
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"])
        .docs(Group::Server, "2.8.13", "O(1)")
        .help("event", "Returns when an event was noted, and how many milliseconds it took"),
    node("latency|latest", 2, NodeCommand::Latency(LatencyCommand::Latest))
        .flags(OPERATORS)
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"])
        .docs(Group::Server, "2.8.13", "O(1)")
        .help("", "Returns the latest of each event, and the longest"),
    node("latency|reset", -2, NodeCommand::Latency(LatencyCommand::Reset))
        .flags(OPERATORS)
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .docs(Group::Server, "2.8.13", "O(1)")
        .help("[event [event ...]]", "Forgets events, and returns how many"),
    help_of("latency|help").flags(ANY_TIME.with(&[NoScript])).docs(Group::Server, "2.8.13", "O(1)"),
];

pub(super) static DEBUG: [CommandSpec; 9] = [
    // Scripts may call it: its replies are the same everywhere.
    node("debug|protocol", 3, DebugProtocol).flags(WATCHES).docs(Group::Server, "6.0.0", "O(1)").help(
        "string|integer|double|bignum|null|array|set|map|verbatim|true|false",
        "Answers with a value of this type",
    ),
    node("debug|sleep", 3, DebugSleep)
        .flags(OPERATORS)
        .docs(Group::Server, "1.0.0", "O(1)")
        .help("seconds", "Lets the answer wait for so many seconds"),
    node("debug|set-active-expire", 3, DebugExpire)
        .flags(OPERATORS)
        .docs(Group::Server, "3.0.0", "O(1)")
        .help(
            "0|1",
            "With 0, groups that this node leads keep what has expired until a key is looked for, or 1",
        ),
    node("debug|reload", 2, NodeCommand::DebugReload)
        .flags(OPERATORS)
        .docs(Group::Server, "1.0.0", "O(N) for N keys")
        .help(
            "",
            "Writes the keys of this node as a checkpoint does, and reads them back, while all clients wait",
        ),
    node("debug|quicklist-packed-threshold", 3, DebugNothing)
        .flags(OPERATORS)
        .docs(Group::Server, "7.0.0", "O(1)")
        .help("bytes", "Does nothing: elements of all lengths are kept alike"),
    node("debug|pause-cron", 3, DebugNothing)
        .flags(OPERATORS)
        .docs(Group::Server, "7.0.0", "O(1)")
        .help("0|1", "Does nothing: what a client sees does not wait for anything that runs at intervals"),
    node("debug|error", 3, NodeCommand::DebugError)
        .flags(OPERATORS)
        .docs(Group::Server, "3.0.0", "O(1)")
        .help("text", "Answers with this error"),
    node("debug|object", 3, NodeCommand::DebugObject)
        .flags(OPERATORS.with(&[NoMulti]))
        .keys(second_key(LOOKS_AT))
        .docs(Group::Server, "1.0.0", "O(N) for a value of N bytes")
        .help("key", "Describes how a value is kept"),
    help_of("debug|help").flags(OPERATORS).docs(Group::Server, "1.0.0", "O(1)"),
];
