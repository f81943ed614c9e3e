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
    /// The level of the cluster: nodes of earlier releases do not know what came with later levels.
    pub level: u32,
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
    Move,
    /// `READONLY`, `READWRITE` and `ASKING`, without effect: the keyspace's `reads` decides which replica may answer, and
    /// every node takes every key.
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
    /// `CLUSTER HISTORY`, about this node only.
    History,
    /// `CLUSTER ASK`.
    Ask,
    /// `LOCK.LIST`, from this node's replicas.
    LockList,
    Info,
    Time,
    Wait,
    /// `WAITAOF`.
    WaitDurable,
    Transaction(TransactionCommand),
    Script(ScriptCommand),
    Function(FunctionCommand),
    DebugSleep,
    /// `DEBUG ERROR`.
    DebugError,
    /// `DEBUG OBJECT`.
    DebugObject,
    DebugExpire,
    /// `DEBUG RELOAD`.
    DebugReload,
    /// `DEBUG PAUSE-CRON` and others without anything to do.
    DebugNothing,
    /// `MONITOR`.
    Monitor,
    Memory(MemoryCommand),
    /// `MEMORY STATS`.
    MemoryStats,
    /// `REPLCONF`.
    ReplicaConfiguration,
    /// `PSYNC` and `SYNC`.
    ReplicaSync,
    ObjectRefCount,
    /// `CLUSTERSCAN`.
    ClusterScan,
    Role,
    Server(ServerCommand),
    Slowlog(SlowlogCommand),
    HotKeys(HotKeysCommand),
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
    /// `SCRIPT SHOW`.
    Show,
    /// `SCRIPT FLUSH`.
    Flush,
    /// `SCRIPT KILL`.
    Kill,
    /// `SCRIPT DEBUG`.
    Debug,
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
    /// `CLIENT CAPA`.
    Capabilities,
    ImportSource,
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
    Rewrite,
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
    /// `REPLICAOF` and `SLAVEOF`.
    Follow,
    /// `SHUTDOWN`.
    Shutdown,
    /// `SWAPDB`.
    SwapDatabases,
    /// `CLUSTER RESET`.
    ClusterReset,
    /// `LOLWUT`.
    Lolwut,
    /// `MODULE LIST`.
    Modules,
}

/// The subcommands of `HOTKEYS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Each is the subcommand of that name.
pub enum HotKeysCommand {
    Start,
    Stop,
    Get,
    Reset,
}

/// The subcommands of `SLOWLOG` and `COMMANDLOG`.
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
    Backup,
    CountKeysInSlot,
    /// `CLUSTER SLOT-STATS`.
    SlotStats,
    Drain,
    Failover,
    GetKeysInSlot,
    Info,
    KeySlot,
    Lead,
    Level,
    Links,
    Map,
    MyId,
    MyShardId,
    Nodes,
    Quarantine,
    Remove,
    Replace,
    Replicas,
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
    /// Not all of its keys are at fixed positions. This follows from the positions: see [`CommandSpec::shown_flags`].
    MovableKeys = "movablekeys",
    /// It is served while a script is running too long.
    AllowBusy = "allow_busy",
    /// It cannot be a part of a transaction.
    NoMulti = "no_multi",
    /// It is about channels.
    PubSub = "pubsub",
    /// Redis does not serve it while it loads data beside those that it serves.
    NoAsyncLoading = "no_async_loading",
    /// Redis's `MONITOR` shows it in another way than most commands: before what it does.
    SkipMonitor = "skip_monitor",
    /// It can have keys, and be without any.
    NoMandatoryKeys = "no_mandatory_keys",
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
    /// It is no key, but is routed like one: a channel of `SPUBLISH`.
    NotKey = "not_key",
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

/// Where the search for keys among a command's arguments begins. Arguments are counted from 0, the command's own name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// At this position.
    At(u8),
    /// After this word, which is searched for from the position on.
    After(&'static str, u8),
    /// The same, but `COMMAND` says that it is unknown: the word may be the argument of an option before it.
    AfterUnsure(&'static str, u8),
    /// No argument is a key: other data decides which keys are used.
    Unknown,
}

/// Which arguments are keys, from where the search begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Find {
    /// The first argument, and every `step`th up to `last`, which is counted from the first, or if negative from the end: -1
    /// is the last argument.
    Range {
        /// The place of the last key.
        last: i8,
        /// The distance from one key to the next.
        step: u8,
    },
    /// The first half of all arguments: something else follows for each of them.
    Half,
    /// The first argument is the number of the keys that follow: every `step`th argument from the next one on.
    Counted {
        /// The distance from one key to the next.
        step: u8,
    },
}

/// Where some of a command's keys are, and what it does with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpec {
    /// What it does with them.
    pub access: KeyFlags,
    /// Where the search begins.
    pub begin: Begin,
    /// Which arguments are keys from there on.
    pub find: Find,
}

/// Where a command's keys are among its arguments.
#[derive(Clone, Copy, Debug)]
pub struct KeySpecs {
    specs: [KeySpec; KeySpecs::MAX],
    count: u8,
}

impl KeySpecs {
    const MAX: usize = 3;

    /// No keys.
    pub const NONE: KeySpecs = KeySpecs::of(&[]);

    /// These, at most three.
    ///
    /// # Panics
    /// If there are more; the table is evaluated when the program is compiled.
    pub const fn of(given: &[KeySpec]) -> KeySpecs {
        const NOTHING: KeySpec =
            KeySpec { access: KeyFlags::NONE, begin: Begin::Unknown, find: Find::Range { last: 0, step: 1 } };
        let mut specs = [NOTHING; KeySpecs::MAX];
        let mut at = 0;
        while at < given.len() {
            specs[at] = given[at];
            at += 1;
        }
        KeySpecs { specs, count: at as u8 }
    }

    /// All of them, in the order of the keys.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &KeySpec> {
        self.specs[..self.count.into()].iter()
    }

    /// The first key, the last key and the step of those keys that are at fixed places, as clients knew them before there were
    /// several specifications: zeros when there are none. Also whether there may be other keys.
    pub fn legacy(&self) -> ((usize, isize, u8), bool) {
        let mut all = self.iter();
        let range_of = |spec: &KeySpec| match (spec.begin, spec.find) {
            (Begin::At(first), Find::Range { last, step }) => {
                let last = if last < 0 { isize::from(last) } else { isize::from(first) + isize::from(last) };
                Some((usize::from(first), last, step))
            }
            _ => None,
        };
        let Some(first) = all.next() else { return ((0, 0, 0), false) };
        // The rest only counts where it continues what came before, one key after the other.
        let Some(mut range) = range_of(first) else { return ((0, 0, 0), true) };
        let mut has_others = false;
        for spec in all {
            match range_of(spec) {
                Some((first, last, 1)) if range.2 == 1 && range.1 + 1 == first as isize => range.1 = last,
                _ => has_others = true,
            }
        }
        (range, has_others)
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
    pub keys: KeySpecs,
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

    /// Its properties, with those that follow from the places of its keys.
    pub fn shown_flags(&self) -> Flags {
        let (_, is_movable) = self.keys.legacy();
        if is_movable { self.flags.with(&[Flag::MovableKeys]) } else { self.flags }
    }

    /// The categories it belongs to: its own, and those that its flags imply, as in Redis.
    pub fn categories(&self) -> Categories {
        let implied = |flag: Flag, categories: &'static [Category]| {
            if self.flags.has(flag) { categories } else { &[] }
        };
        // The right to read data is not the right to run programs, even if they only read.
        let is_script = self.own_categories.has(Category::Scripting);
        self.own_categories
            .with(implied(Flag::Write, &[Category::Write]))
            .with(if is_script { &[] } else { implied(Flag::ReadOnly, &[Category::Read]) })
            .with(implied(Flag::Blocking, &[Category::Blocking]))
            .with(implied(Flag::Admin, &[Category::Admin, Category::Dangerous]))
            .with(if self.flags.has(Flag::Fast) { &[Category::Fast] } else { &[Category::Slow] })
    }
}
