//! The types with which the command table describes a command.
//!
//! The names of flags, key flags and categories are Redis's: clients read them from `COMMAND`.

use kv::Command;
use kv::command::EncodingLimits;
use wire::resp::Arguments;

use super::CommandError;
use crate::listening::Listening;

/// The input of parse functions besides the command itself.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// Milliseconds since the Unix epoch. Used only to refuse expiry times that would overflow.
    pub now_ms: u64,
    /// The longest value that a client may store, in bytes.
    pub value_bytes_max: usize,
    /// How many entries of a stream are trimmed together where that is allowed; 0: the default.
    pub stream_node_entries: u32,
    /// The database that the client has selected; 0 in a script.
    pub database: u8,
    /// The limits by which `OBJECT ENCODING` answers. In a script these are the defaults, since nodes may be set differently.
    pub encodings: EncodingLimits,
}

/// Parses a request into a command on the data. `scratch` holds the lists that commands of several keys
/// need.
///
/// It is called after the number of arguments was checked against [`CommandSpec::arity`].
pub type ParseFn = for<'a> fn(Arguments<'a>, &'a mut Vec<u8>, &Context) -> Result<Command<'a>, CommandError>;

/// How long a request waits until its command can be served, in microseconds; `None` if it does not wait. It is called
/// after the request was parsed.
pub type WaitFn = fn(Arguments<'_>) -> Option<u64>;

/// What executes a command.
#[derive(Clone, Copy, Debug)]
pub enum Handler {
    /// The groups that hold the keys. The function parses the command for them.
    Data(ParseFn),
    /// The node that the client is connected to.
    Node(NodeCommand),
    /// Nothing: it only holds subcommands.
    Container,
}

/// The commands that the node answers by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Each is the command of that name.
pub enum NodeCommand {
    Ping,
    Echo,
    Quit,
    Reset,
    Hello,
    Select,
    SwapDatabases,
    Move,
    /// `READONLY` and `READWRITE`, without effect: the keyspace's `reads` decides which replica may answer.
    ReadOnly,
    Auth,
    Acl(AclCommand),
    Client(ClientCommand),
    Command(CommandCommand),
    Config(ConfigCommand),
    Keyspace(KeyspaceCommand),
    Cluster(ClusterCommand),
    /// `CLUSTER REPORT`, about this node only.
    Report,
    /// `CLUSTER EVENTS`, about this node only.
    Events,
    /// `CLUSTER ASK`.
    Ask,
    /// `LOCK.LIST`, from this node's replicas.
    LockList,
    Info,
    Time,
    Wait,
    Transaction(TransactionCommand),
    Script(ScriptCommand),
    Function(FunctionCommand),
    DebugSleep,
    DebugExpire,
    DebugPauseCron,
    /// `MONITOR`.
    Monitor,
    Memory(MemoryCommand),
    /// `MEMORY STATS`.
    MemoryStats,
    /// `REPLCONF`.
    ReplicaConfiguration,
    /// `PSYNC`.
    ReplicaSync,
    ObjectRefCount,
    Role,
    Server(ServerCommand),
    Slowlog(SlowlogCommand),
    Latency(LatencyCommand),
    DebugProtocol,
    Lock(LockVerb),
    Channel(ChannelCommand),
    /// `HELP` of a container: the answer is [`super::introspection::help`].
    Help,
}

/// The commands that begin, end and guard a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Each is the command of that name.
pub enum TransactionCommand {
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
}

/// The commands on locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Each is the command of that name.
pub enum LockVerb {
    Lock,
    Unlock,
    Renew,
    Info,
    OpenSession,
    RenewSession,
    CloseSession,
}

/// The commands on channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelCommand {
    /// `SUBSCRIBE`, `PSUBSCRIBE` and `SSUBSCRIBE`.
    Subscribe(Listening),
    /// `UNSUBSCRIBE`, `PUNSUBSCRIBE` and `SUNSUBSCRIBE`.
    Unsubscribe(Listening),
    /// `PUBLISH` and `SPUBLISH`.
    Publish {
        /// Whether it is a channel of `SSUBSCRIBE`.
        is_sharded: bool,
    },
    /// `PUBSUB CHANNELS` and `PUBSUB SHARDCHANNELS`.
    Names(Listening),
    /// `PUBSUB NUMSUB` and `PUBSUB SHARDNUMSUB`.
    Counts(Listening),
    /// `PUBSUB NUMPAT`.
    PatternCount,
}

/// The commands that run scripts and keep their texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptCommand {
    /// `EVAL`, `FCALL` and related commands.
    Run(RunScript),
    /// `SCRIPT LOAD`.
    Load,
    /// `SCRIPT EXISTS`.
    Exists,
    /// `SCRIPT FLUSH`.
    Flush,
    /// `SCRIPT KILL`.
    Kill,
}

/// How a request names a script, and what the script may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunScript {
    /// What the first argument is.
    pub named_by: NamedBy,
    /// Whether it may not write (`EVAL_RO`).
    pub only_reads: bool,
}

/// How a request names a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedBy {
    /// Its text: `EVAL`.
    Text,
    /// The digest of its text: `EVALSHA`.
    Digest,
    /// The name of a function: `FCALL`.
    Function,
}

/// The commands on libraries of functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Each is the subcommand of that name.
pub enum FunctionCommand {
    Load,
    Delete,
    Flush,
    Dump,
    Restore,
    List,
    Stats,
    Kill,
}

/// The subcommands of `ACL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Each is the subcommand of that name.
pub enum AclCommand {
    Cat,
    DelUser,
    DryRun,
    GenPass,
    GetUser,
    List,
    Load,
    Log,
    Save,
    SetUser,
    Users,
    WhoAmI,
}

/// The subcommands of `CLIENT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Each is the subcommand of that name.
pub enum ClientCommand {
    Id,
    Info,
    List,
    SetName,
    GetName,
    SetInfo,
    Kill,
    Unblock,
    Reply,
    NoEvict,
    NoTouch,
    Pause,
    Unpause,
    GetRedir,
    Tracking,
    TrackingInfo,
    Caching,
}

/// `COMMAND` and its subcommands: [`super::introspection::answer`] answers all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Each is the subcommand of that name.
pub enum CommandCommand {
    /// `COMMAND` alone.
    All,
    Count,
    List,
    Info,
    Docs,
    GetKeys,
    GetKeysAndFlags,
}

/// The subcommands of `CONFIG`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Each is the subcommand of that name.
pub enum ConfigCommand {
    Get,
    Set,
    ResetStat,
}

/// The subcommands of `MEMORY` that the node answers without looking at keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Each is the subcommand of that name.
pub enum MemoryCommand {
    Doctor,
    MallocStats,
    Purge,
}

/// Redis's commands about the whole server, which work differently here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerCommand {
    /// `SAVE`, `BGSAVE`, `BGREWRITEAOF`.
    Save,
    /// `LASTSAVE`.
    LastSave,
    /// `SHUTDOWN`.
    Shutdown,
    /// `LOLWUT`.
    Lolwut,
}

/// The subcommands of `SLOWLOG`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Each is the subcommand of that name.
pub enum SlowlogCommand {
    Get,
    Len,
    Reset,
}

/// The subcommands of `LATENCY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Each is the subcommand of that name.
pub enum LatencyCommand {
    Doctor,
    Graph,
    Histogram,
    History,
    Latest,
    Reset,
}

/// The subcommands of `KEYSPACE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Each is the subcommand of that name.
pub enum KeyspaceCommand {
    Changes,
    Copy,
    Create,
    Drop,
    Get,
    List,
    Recover,
    Set,
    Unwatch,
    Watch,
}

/// The subcommands of `CLUSTER`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Each is the subcommand of that name.
pub enum ClusterCommand {
    Add,
    Info,
    KeySlot,
    Level,
    Map,
    MyId,
    Nodes,
    Quarantine,
    Remove,
    Replace,
    Shards,
    Slots,
}

/// Declares an enum of at most 32 variants with their names in Redis, and a set of them.
macro_rules! named_set {
    ($(#[$one_doc:meta])* $one:ident, $(#[$set_doc:meta])* $set:ident, $($(#[$doc:meta])* $variant:ident = $name:literal),+ $(,)?) => {
        $(#[$one_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $one { $($(#[$doc])* $variant),+ }

        impl $one {
            /// All of them, in Redis's order.
            pub const ALL: &'static [$one] = &[$($one::$variant),+];

            /// Its name in Redis.
            pub const fn name(self) -> &'static str {
                match self { $($one::$variant => $name),+ }
            }
        }

        $(#[$set_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $set(u32);

        impl $set {
            /// The empty set.
            pub const NONE: $set = $set(0);

            /// The set of `members`.
            pub const fn of(members: &[$one]) -> $set {
                $set::NONE.with(members)
            }

            /// This set with `members` added.
            pub const fn with(self, members: &[$one]) -> $set {
                let (mut bits, mut at) = (self.0, 0);
                while at < members.len() {
                    bits |= 1 << members[at] as u32;
                    at += 1;
                }
                $set(bits)
            }

            /// Whether `member` is in the set.
            #[inline]
            pub const fn has(self, member: $one) -> bool {
                self.0 & (1 << member as u32) != 0
            }

            /// The members, in Redis's order.
            pub fn iter(self) -> impl Iterator<Item = $one> {
                $one::ALL.iter().copied().filter(move |member| self.has(*member))
            }

            /// The number of members.
            pub const fn len(self) -> usize {
                self.0.count_ones() as usize
            }

            /// Whether the set is empty.
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }
        }
    };
}

named_set! {
    /// A property of a command.
    Flag,
    /// A set of [`Flag`]s.
    Flags,
    /// It may change data.
    Write = "write",
    /// It reads keys.
    ReadOnly = "readonly",
    /// It may increase the size of the data.
    DenyOom = "denyoom",
    /// It is for operators.
    Admin = "admin",
    /// Scripts may not call it.
    NoScript = "noscript",
    /// It may wait.
    Blocking = "blocking",
    /// It is served while data is being loaded.
    Loading = "loading",
    /// It is served by a replica that has lost contact with its leader.
    Stale = "stale",
    /// Its time does not grow with the data.
    Fast = "fast",
    /// It is served before a client has authenticated.
    NoAuth = "no_auth",
    /// It is left out of the list of slow commands.
    SkipSlowlog = "skip_slowlog",
    /// Its keys are not at fixed positions.
    MovableKeys = "movablekeys",
    /// It is served while a script is running too long.
    AllowBusy = "allow_busy",
    /// It cannot be a part of a transaction.
    NoMulti = "no_multi",
    /// It is about channels.
    PubSub = "pubsub",
}

named_set! {
    /// What a command does to one of its keys.
    KeyFlag,
    /// A set of [`KeyFlag`]s.
    KeyFlags,
    /// Reads the value.
    ReadOnly = "RO",
    /// Reads and changes the value.
    ReadWrite = "RW",
    /// Replaces the value whatever it was.
    Overwrite = "OW",
    /// Removes the key.
    Remove = "RM",
    /// Reports, copies or uses what the value holds.
    Access = "access",
    /// Changes data that may exist.
    Update = "update",
    /// Adds data without changing any.
    Insert = "insert",
    /// Deletes what the value holds.
    Delete = "delete",
    /// Its options decide which of the others apply.
    Variable = "variable_flags",
}

named_set! {
    /// A category of commands, for access rules.
    Category,
    /// A set of [`Category`]s.
    Categories,
    /// Handles keys whatever their kind.
    Keyspace = "keyspace",
    /// Reads data.
    Read = "read",
    /// Writes data.
    Write = "write",
    /// Handles strings.
    String = "string",
    /// Handles sets.
    Set = "set",
    /// Handles sorted sets.
    SortedSet = "sortedset",
    /// Handles lists.
    List = "list",
    /// Handles hashes.
    Hash = "hash",
    /// For operators.
    Admin = "admin",
    /// Its time does not grow with the data.
    Fast = "fast",
    /// Every command that is not [`Category::Fast`].
    Slow = "slow",
    /// Can disturb a busy server.
    Dangerous = "dangerous",
    /// Concerns the connection.
    Connection = "connection",
    /// Begins, ends or guards a transaction.
    Transaction = "transaction",
    /// Runs scripts.
    Scripting = "scripting",
    /// Is about channels.
    PubSub = "pubsub",
    /// Handles streams.
    Stream = "stream",
    /// May wait.
    Blocking = "blocking",
    /// Handles bits of strings.
    Bitmap = "bitmap",
    /// Handles sketches that count.
    HyperLogLog = "hyperloglog",
    /// Handles places.
    Geo = "geo",
    /// Changes the cluster: its keyspaces, members and users. Redis has no such category.
    Cluster = "cluster",
}

/// Where a command's keys are among its arguments, counted from 0, the command's own name.
#[derive(Clone, Copy, Debug)]
pub struct KeyPositions {
    /// The position of the first key, or 0 when there are no keys.
    pub first: usize,
    /// The position of the last key; negative ones count from the end, -1 is the last argument.
    pub last: isize,
    /// The distance from one key to the next.
    pub step: u16,
    /// The position of the number of keys that follow it, or 0 when no keys are counted. Such keys come after those
    /// above.
    pub counted_at: usize,
    /// The position from which on the word `STREAMS` is searched for, or 0 when there is no such word. Keys follow it, and
    /// then as many ids.
    pub streams_from: u8,
    /// The access to the keys, one entry for each; the last one is for all that follow, and for counted keys.
    pub access: &'static [KeyFlags],
}

impl KeyPositions {
    /// No keys.
    pub const NONE: KeyPositions =
        KeyPositions { first: 0, last: 0, step: 0, counted_at: 0, streams_from: 0, access: &[] };

    /// The positions of the keys that are not counted in a request of `argument_count` arguments, the command's name
    /// included.
    pub fn positions(&self, argument_count: usize) -> impl Iterator<Item = usize> + Clone + use<> {
        let last = if self.last < 0 { argument_count as isize + self.last } else { self.last };
        let last = last.min(argument_count as isize - 1);
        // An empty range when there are no keys.
        let end = if self.first == 0 { 0 } else { (last + 1).max(0) as usize };
        (self.first..end).step_by(self.step.max(1).into())
    }

    /// The access to key number `which`, counted from 0 among the keys.
    pub fn access_of(&self, which: usize) -> KeyFlags {
        self.access.get(which).or(self.access.last()).copied().unwrap_or(KeyFlags::NONE)
    }
}

/// The heading under which a command is documented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the headings.
pub enum Group {
    Generic,
    String,
    Connection,
    Server,
    Cluster,
    Transactions,
    Locks,
    Scripting,
    Hash,
    List,
    Set,
    SortedSet,
    PubSub,
    Stream,
    Bitmap,
    HyperLogLog,
    Geo,
}

impl Group {
    /// Its name in Redis.
    pub const fn name(self) -> &'static str {
        match self {
            Group::Generic => "generic",
            Group::String => "string",
            Group::Connection => "connection",
            Group::Server => "server",
            Group::Cluster => "cluster",
            Group::Transactions => "transactions",
            Group::Locks => "locks",
            Group::Scripting => "scripting",
            Group::Hash => "hash",
            Group::List => "list",
            Group::Set => "set",
            Group::SortedSet => "sorted-set",
            Group::PubSub => "pubsub",
            Group::Stream => "stream",
            Group::Bitmap => "bitmap",
            Group::HyperLogLog => "hyperloglog",
            Group::Geo => "geo",
        }
    }
}

/// The description of one command or subcommand.
#[derive(Clone, Copy, Debug)]
pub struct CommandSpec {
    /// Its name in lower case; a subcommand's in full, such as `config|get`.
    pub name: &'static str,
    /// The number of arguments, its own name included; negative: at least that many.
    pub arity: i16,
    /// Its properties, by Redis's names.
    pub flags: Flags,
    /// Where its keys are.
    pub keys: KeyPositions,
    /// The categories that do not follow from its flags: see [`CommandSpec::categories`].
    pub own_categories: Categories,
    /// Hints for proxies and cluster clients.
    pub tips: &'static [&'static str],
    /// The heading under which it is documented.
    pub group: Group,
    /// The version of Redis that introduced it.
    pub since: &'static str,
    /// How its time grows with its input or the data.
    pub complexity: &'static str,
    /// What it does, in one sentence without the full stop.
    pub summary: &'static str,
    /// Its arguments, for people: separated by spaces, optional ones in brackets.
    pub syntax: &'static str,
    /// Its subcommands; empty unless it is a container.
    pub subcommands: &'static [CommandSpec],
    /// What executes it.
    pub handler: Handler,
    /// How long it waits until it can be served; `None` for a command that does not wait.
    pub wait: Option<WaitFn>,
}

impl CommandSpec {
    /// Whether the command takes this many arguments, its name included.
    #[inline]
    pub const fn takes(&self, argument_count: usize) -> bool {
        if self.arity >= 0 {
            argument_count == self.arity as usize
        } else {
            argument_count >= self.arity.unsigned_abs() as usize
        }
    }

    /// A subcommand's name without its container's: `get` of `config|get`.
    pub fn short_name(&self) -> &'static str {
        self.name.split_once('|').map_or(self.name, |(_, subcommand)| subcommand)
    }

    /// The categories it belongs to: its own, and those that its flags imply, as in Redis.
    pub fn categories(&self) -> Categories {
        let implied = |flag: Flag, categories: &'static [Category]| {
            if self.flags.has(flag) { categories } else { &[] }
        };
        self.own_categories
            .with(implied(Flag::Write, &[Category::Write]))
            .with(implied(Flag::ReadOnly, &[Category::Read]))
            .with(implied(Flag::Blocking, &[Category::Blocking]))
            .with(implied(Flag::Admin, &[Category::Admin, Category::Dangerous]))
            .with(if self.flags.has(Flag::Fast) { &[Category::Fast] } else { &[Category::Slow] })
    }
}
