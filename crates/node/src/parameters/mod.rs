//! The parameters of `CONFIG GET` and `CONFIG SET`.
//!
//! Redis's clients and tools read some of its parameters and set others. One table defines for each whether it is
//! live, merely kept, or a fact that cannot be changed here. Quorate's own settings are not in the table: they are in the
//! node's configuration file.

mod events;

/// The longest whole request, in bytes: a few values of the greatest length.
pub(crate) fn request_bytes_max(value_bytes_max: usize) -> usize {
    const SMALLEST: usize = 64 << 20;
    (2 * value_bytes_max).max(SMALLEST) + (1 << 20)
}

#[cfg(test)]
mod tests;

use crate::diagnostics::slow::{ENTRIES_MAX, Reason, Thresholds};
use cluster::configuration::{Configuration, TlsFacts};
use cluster::keyspace::Keyspace;
use cluster::setting::{POLICIES, Setting, parse_bytes, policy_name};
use commands::users::ACL_LOG_ENTRIES_MAX;
use commands::{CommandError, printable};
use events::EventFlags;
use kv::ReplyBuffer;
use kv::command::EncodingLimits;
use kv::glob::{PATTERN_BYTES_MAX, Pattern};
use kv::limits::VALUE_BYTES_MAX_CEILING;
use kv::number::parse_integer;
use kv::table::Eviction;
use std::collections::BTreeMap;
use wire::resp::Arguments;

/// The possible values of a parameter.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Any text.
    Text,
    /// `yes` or `no`.
    YesNo,
    /// An integer from the first to the second.
    Integer(i64, i64),
    /// Bytes, as a number with or without a unit such as `mb`, from the first to the second.
    Bytes(i64, i64),
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Letters for classes of key events.
    Events,
}

/// What setting a parameter does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// It takes effect at once.
    Live,
    /// It is kept and reported, without further effect.
    Kept,
    /// It is refused, unless it is the present value.
    Fixed,
}

/// A row of the table.
#[derive(Debug)]
struct Parameter {
    name: &'static str,
    kind: Kind,
    default: &'static str,
    effect: Effect,
    /// What it means here. For readers of this table; no command reports it.
    #[allow(dead_code)]
    doc: &'static str,
}

const fn row(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    effect: Effect,
    doc: &'static str,
) -> Parameter {
    Parameter { name, kind, default, effect, doc }
}

use Effect::{Fixed, Kept, Live};
use Kind::{Bytes, Events, Integer, OneOf, Text, YesNo};

const ANY_INTEGER: Kind = Integer(i64::MIN, i64::MAX);
const NOT_NEGATIVE: Kind = Integer(0, i64::MAX);
const ANY_BYTES: Kind = Bytes(0, i64::MAX);
const NO_EFFECT: &str = "Remembered, without effect.";
const OF_A_STREAM: &str = "XCFGSET sets that of a stream.";
const NO_MASTER: &str = "A cluster follows no server.";
const NO_LISTPACK: &str = "Without effect: OBJECT ENCODING calls no set a listpack.";
const TLS_FIXED: &str = "Set in the node's configuration; changed files are read by themselves.";

static PARAMETERS: [Parameter; 67] = [
    // Live.
    row(MAXCLIENTS, Integer(1, u32::MAX as i64), "10000", Live, "Most clients at a time."),
    row(
        TIMEOUT,
        Integer(0, i32::MAX as i64),
        "0",
        Live,
        "Seconds after which an idle client is closed; 0: never.",
    ),
    row(
        PROTO_MAX_BULK_LEN,
        Bytes(1 << 20, VALUE_BYTES_MAX_CEILING as i64),
        "67108864",
        Live,
        "Longest value and longest argument.",
    ),
    row(
        STREAM_NODE_MAX_ENTRIES,
        Integer(0, u32::MAX as i64),
        "100",
        Live,
        "Entries of a stream that are trimmed together where `~` allows it.",
    ),
    row(
        "hash-max-listpack-entries",
        NOT_NEGATIVE,
        "512",
        Live,
        "Most fields of what OBJECT ENCODING calls a listpack.",
    ),
    row(
        "hash-max-listpack-value",
        NOT_NEGATIVE,
        "64",
        Live,
        "Longest field or value of what OBJECT ENCODING calls a listpack.",
    ),
    row(
        "set-max-intset-entries",
        NOT_NEGATIVE,
        "512",
        Live,
        "Most members of what OBJECT ENCODING calls an intset.",
    ),
    row(
        "zset-max-listpack-entries",
        NOT_NEGATIVE,
        "128",
        Live,
        "Most members of a sorted set that OBJECT ENCODING calls a listpack.",
    ),
    row(
        "zset-max-listpack-value",
        NOT_NEGATIVE,
        "64",
        Live,
        "Longest member of a sorted set that OBJECT ENCODING calls a listpack.",
    ),
    row(
        LATENCY_MONITOR_THRESHOLD,
        NOT_NEGATIVE,
        "0",
        Live,
        "Milliseconds from which on a command is an event of LATENCY; 0: none is.",
    ),
    row(
        SLOWLOG_LOG_SLOWER_THAN,
        Integer(-1, i64::MAX),
        "10000",
        Live,
        "Microseconds from which on a command is in SLOWLOG; -1: none is.",
    ),
    row(
        REQUEST_LARGER_THAN,
        Integer(-1, i64::MAX),
        "-1",
        Live,
        "Bytes from which on a request is in COMMANDLOG; -1: none is.",
    ),
    row(
        REPLY_LARGER_THAN,
        Integer(-1, i64::MAX),
        "-1",
        Live,
        "Bytes from which on a reply is in COMMANDLOG; -1: none is.",
    ),
    row(
        TRACKING_TABLE_MAX_KEYS,
        NOT_NEGATIVE,
        "1000000",
        Live,
        "Most keys that clients keep by CLIENT TRACKING; 0: not bounded.",
    ),
    row(
        NOTIFY_KEYSPACE_EVENTS,
        Events,
        "",
        Live,
        "The events of keys that this node's clients are notified of.",
    ),
    row(
        MAXMEMORY,
        ANY_BYTES,
        "0",
        Live,
        "`memory_max` of the default keyspace, changed for the whole cluster.",
    ),
    row(
        MAXMEMORY_POLICY,
        OneOf(&POLICIES),
        "noeviction",
        Live,
        "`eviction` of the default keyspace, changed for the whole cluster.",
    ),
    row(ACLLOG_MAX_LEN, Integer(0, ACL_LOG_ENTRIES_MAX as i64), "128", Live, "Most entries of ACL LOG."),
    row(SLOWLOG_MAX_LEN, Integer(0, ENTRIES_MAX as i64), "128", Live, "Most entries of SLOWLOG."),
    row(LARGE_REQUESTS, Integer(0, ENTRIES_MAX as i64), "128", Live, "Most large requests of COMMANDLOG."),
    row(LARGE_REPLIES, Integer(0, ENTRIES_MAX as i64), "128", Live, "Most large replies of COMMANDLOG."),
    row(
        KEY_MEMORY_HISTOGRAMS,
        YesNo,
        "no",
        Live,
        "Whether INFO keysizes shows what collections take of memory, too.",
    ),
    // Facts.
    row("appendfsync", OneOf(&["everysec", "always", "no"]), "no", Fixed, "Durability is set per keyspace."),
    row("appendonly", YesNo, "no", Fixed, "Durability is set per keyspace."),
    row(
        "cluster-enabled",
        YesNo,
        "yes",
        Fixed,
        "CLUSTER SLOTS and its kin answer; any node takes any command.",
    ),
    row("daemonize", YesNo, "no", Fixed, "A service manager, or the shell, puts a node into the background."),
    row("databases", Integer(16, 16), "16", Fixed, "Each comes into being with its first use."),
    row("io-threads", Integer(1, 1), "1", Fixed, "One thread serves clients."),
    row("hll-sparse-max-bytes", ANY_BYTES, "3000", Fixed, "Longer runs of a sketch are made dense."),
    row("maxmemory-clients", Text, "0", Fixed, "Clients are bounded by the node's configuration."),
    row("min-replicas-to-write", NOT_NEGATIVE, "0", Fixed, "Acknowledgements are set per keyspace."),
    row("port", Integer(0, 65535), "0", Fixed, "Set in the node's configuration."),
    row("replicaof", Text, "", Fixed, NO_MASTER),
    row("slaveof", Text, "", Fixed, NO_MASTER),
    row("save", Text, "", Fixed, "No snapshots at intervals: durability is set per keyspace."),
    row("stream-idmp-duration", Integer(1, 86_400), "100", Fixed, OF_A_STREAM),
    row("stream-idmp-maxsize", Integer(1, 10_000), "100", Fixed, OF_A_STREAM),
    row("tls-auth-clients", OneOf(&["no", "optional", "yes"]), "no", Fixed, TLS_FIXED),
    row("tls-ca-cert-file", Text, "", Fixed, TLS_FIXED),
    row("tls-cert-file", Text, "", Fixed, TLS_FIXED),
    row("tls-key-file", Text, "", Fixed, TLS_FIXED),
    row("tls-port", Integer(0, 65535), "0", Fixed, TLS_FIXED),
    // Kept: clients, tools and Redis's own tests set them, and cannot see that there is no effect.
    row("active-expire-effort", Integer(1, 10), "1", Kept, NO_EFFECT),
    row("activedefrag", YesNo, "no", Kept, NO_EFFECT),
    row(
        "busy-reply-threshold",
        ANY_INTEGER,
        "5000",
        Kept,
        "Without effect: scripts have limits of their own.",
    ),
    row(
        "client-query-buffer-limit",
        Bytes(1 << 20, i64::MAX),
        "1073741824",
        Kept,
        "Input has limits of its own.",
    ),
    row("dynamic-hz", YesNo, "yes", Kept, NO_EFFECT),
    row("hz", Integer(0, i32::MAX as i64), "10", Kept, NO_EFFECT),
    row("latency-tracking", YesNo, "yes", Kept, "Without effect: latencies are always tracked."),
    row("lazyfree-lazy-eviction", YesNo, "no", Kept, NO_EFFECT),
    row("lazyfree-lazy-expire", YesNo, "no", Kept, NO_EFFECT),
    row("lazyfree-lazy-server-del", YesNo, "no", Kept, NO_EFFECT),
    row("lazyfree-lazy-user-del", YesNo, "no", Kept, NO_EFFECT),
    row("lazyfree-lazy-user-flush", YesNo, "no", Kept, NO_EFFECT),
    row("list-compress-depth", NOT_NEGATIVE, "0", Kept, "Without effect: no element is compressed."),
    row("list-max-listpack-size", ANY_INTEGER, "-2", Kept, "Without effect: all lists are kept alike."),
    row("lua-time-limit", ANY_INTEGER, "5000", Kept, "Without effect: scripts have limits of their own."),
    row("maxmemory-eviction-tenacity", Integer(0, 100), "10", Kept, NO_EFFECT),
    row("maxmemory-samples", Integer(1, i32::MAX as i64), "5", Kept, "Without effect: 32 keys are compared."),
    row("min-io-threads-avoid-copy-reply", NOT_NEGATIVE, "7", Kept, NO_EFFECT),
    row("min-string-size-avoid-copy-reply-threaded", NOT_NEGATIVE, "65536", Kept, NO_EFFECT),
    row("min-string-size-avoid-copy-reply", NOT_NEGATIVE, "16384", Kept, NO_EFFECT),
    row("rdb-key-save-delay", ANY_INTEGER, "0", Kept, NO_EFFECT),
    row(
        "repl-ping-replica-period",
        NOT_NEGATIVE,
        "10",
        Kept,
        "Without effect: copies are pinged as it suits the node.",
    ),
    row("set-max-listpack-entries", NOT_NEGATIVE, "128", Kept, NO_LISTPACK),
    row("set-max-listpack-value", NOT_NEGATIVE, "64", Kept, NO_LISTPACK),
    row("stream-node-max-bytes", ANY_BYTES, "4096", Kept, "Without effect: streams are kept otherwise."),
];

const STREAM_NODE_MAX_ENTRIES: &str = "stream-node-max-entries";
const LATENCY_MONITOR_THRESHOLD: &str = "latency-monitor-threshold";
const SLOWLOG_LOG_SLOWER_THAN: &str = "slowlog-log-slower-than";
const ACLLOG_MAX_LEN: &str = "acllog-max-len";
const SLOWLOG_MAX_LEN: &str = "slowlog-max-len";
const KEY_MEMORY_HISTOGRAMS: &str = "key-memory-histograms";
const REQUEST_LARGER_THAN: &str = "commandlog-request-larger-than";
const REPLY_LARGER_THAN: &str = "commandlog-reply-larger-than";
const LARGE_REQUESTS: &str = "commandlog-large-request-max-len";
const LARGE_REPLIES: &str = "commandlog-large-reply-max-len";
const TRACKING_TABLE_MAX_KEYS: &str = "tracking-table-max-keys";
const NOTIFY_KEYSPACE_EVENTS: &str = "notify-keyspace-events";
const MAXCLIENTS: &str = "maxclients";
const MAXMEMORY: &str = "maxmemory";
const MAXMEMORY_POLICY: &str = "maxmemory-policy";
const TIMEOUT: &str = "timeout";
const PROTO_MAX_BULK_LEN: &str = "proto-max-bulk-len";

/// Why a `CONFIG SET` was refused. Its text is what the client sees, without the leading `-`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ParameterError {
    /// A name without a value.
    #[error("ERR syntax error")]
    Syntax,
    /// No parameter has this name.
    #[error("ERR Unknown option or number of arguments for CONFIG SET - '{0}'")]
    Unknown(String),
    /// The parameter cannot have this value.
    #[error("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}")]
    Failed {
        name: &'static str,
        /// What is wrong.
        why: String,
    },
}

/// The values of all parameters.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// All values as text, in the order of the table.
    values: Vec<String>,
    // The live parameters again, as numbers.
    connections_max: usize,
    idle_timeout_seconds: u64,
    value_bytes_max: usize,
    stream_node_entries: u32,
    encodings: EncodingLimits,
    thresholds: Thresholds,
    /// Whether every command is looked at, whatever the thresholds are.
    looks_at_all: bool,
    /// The most entries of each log of commands.
    log_entries_max: [usize; Reason::ALL.len()],
    acl_log_entries: usize,
    events: EventFlags,
    tracked_keys_max: usize,
}

impl Parameters {
    /// The values at a node's start.
    pub(crate) fn new(configuration: &Configuration) -> Parameters {
        let own = configuration.nodes.iter().find(|node| node.id == configuration.node);
        let mut parameters = Parameters::with(&[
            (MAXCLIENTS, configuration.connections_max as u64),
            (PROTO_MAX_BULK_LEN, configuration.value_bytes_max as u64),
            ("port", own.map_or(0, |node| node.client_port.into())),
        ]);
        if let Some(TlsFacts { client_port, is_only, files, client_certificates, .. }) =
            &configuration.process.tls
        {
            if *is_only {
                parameters.put("port", "0");
            }
            let [certificate, key, authority] = files;
            parameters.put("tls-port", &client_port.to_string());
            parameters.put("tls-cert-file", certificate);
            parameters.put("tls-key-file", key);
            parameters.put("tls-ca-cert-file", authority);
            parameters.put("tls-auth-clients", client_certificates);
        }
        parameters
    }

    fn put(&mut self, name: &str, value: &str) {
        if let Some(row) = position(name.as_bytes()) {
            self.values[row] = value.to_owned();
        }
    }

    /// The defaults with these changes, which are accepted even where `CONFIG SET` would refuse them.
    fn with(changes: &[(&str, u64)]) -> Parameters {
        let mut values: Vec<_> = PARAMETERS.iter().map(|parameter| parameter.default.to_string()).collect();
        for (name, value) in changes {
            if let Some(row) = position(name.as_bytes()) {
                values[row] = value.to_string();
            }
        }
        let encodings = EncodingLimits::default();
        let (connections_max, idle_timeout_seconds, value_bytes_max, stream_node_entries) = (0, 0, 0, 0);
        let mut parameters = Parameters {
            values,
            connections_max,
            idle_timeout_seconds,
            value_bytes_max,
            stream_node_entries,
            encodings,
            thresholds: Thresholds::NONE,
            looks_at_all: false,
            log_entries_max: [0; Reason::ALL.len()],
            acl_log_entries: 0,
            events: EventFlags::default(),
            tracked_keys_max: 0,
        };
        parameters.refresh();
        parameters
    }

    /// The most clients at a time (`maxclients`).
    #[inline]
    pub fn connections_max(&self) -> usize {
        self.connections_max
    }

    /// After how many seconds an idle client is closed (`timeout`); 0: never.
    #[inline]
    pub fn idle_timeout_seconds(&self) -> u64 {
        self.idle_timeout_seconds
    }

    /// The longest value that a client may store, in bytes (`proto-max-bulk-len`).
    #[inline]
    pub fn value_bytes_max(&self) -> usize {
        self.value_bytes_max
    }

    /// How many entries of a stream are trimmed together where a request allows that (`stream-node-max-entries`).
    #[inline]
    pub fn stream_node_entries(&self) -> u32 {
        self.stream_node_entries
    }

    /// The limits by which `OBJECT ENCODING` answers (`hash-max-listpack-entries` and similar parameters).
    #[inline]
    pub fn encodings(&self) -> EncodingLimits {
        self.encodings
    }

    /// What a command has taken from which on it is logged or an event (`slowlog-log-slower-than`, `latency-monitor-threshold` and
    /// similar parameters).
    #[inline]
    pub(crate) fn thresholds(&self) -> &Thresholds {
        &self.thresholds
    }

    /// Has every command looked at, or only those beyond the thresholds.
    pub(crate) fn look_at_all(&mut self, looks_at_all: bool) {
        if self.looks_at_all != looks_at_all {
            self.looks_at_all = looks_at_all;
            self.refresh();
        }
    }

    /// The most entries of a log of commands (`slowlog-max-len` and similar parameters).
    pub(crate) fn log_entries_max(&self, reason: Reason) -> usize {
        self.log_entries_max[reason as usize]
    }

    /// Whether `INFO keysizes` shows what collections take of memory, too (`key-memory-histograms`).
    pub(crate) fn shows_memory_of_keys(&self) -> bool {
        position(KEY_MEMORY_HISTOGRAMS.as_bytes()).is_some_and(|row| self.values[row] == "yes")
    }

    /// The most entries of `ACL LOG`.
    pub(crate) fn acl_log_entries(&self) -> usize {
        self.acl_log_entries
    }

    /// The events of keys that clients are notified of (`notify-keyspace-events`).
    pub(crate) fn events(&self) -> EventFlags {
        self.events
    }

    /// The most keys that clients may cache (`tracking-table-max-keys`); 0: no limit.
    pub(crate) fn tracked_keys_max(&self) -> usize {
        self.tracked_keys_max
    }

    /// Takes over the settings of the default keyspace that are also parameters.
    pub(crate) fn follow(&mut self, default: &Keyspace) {
        let values = [
            (MAXMEMORY, default.memory_max.to_string()),
            (MAXMEMORY_POLICY, policy_name(default.eviction).into()),
        ];
        for (name, value) in values {
            if let Some(row) = position(name.as_bytes()) {
                self.values[row] = value;
            }
        }
    }

    /// The settings of the default keyspace that [`Parameters::set`] has changed here, on which the cluster has to agree.
    /// Until it has, the old values are shown.
    pub(crate) fn take_changed(&mut self, default: &Keyspace) -> BTreeMap<String, String> {
        let value = |name: &str| position(name.as_bytes()).map(|row| self.values[row].clone());
        let mut changed = BTreeMap::new();
        if let Some(bytes) = value(MAXMEMORY).filter(|bytes| *bytes != default.memory_max.to_string()) {
            changed.insert("memory_max".to_string(), bytes);
        }
        let policy = value(MAXMEMORY_POLICY).filter(|policy| policy != policy_name(default.eviction));
        if let Some(eviction) = policy.and_then(|policy| Eviction::parse(&policy)) {
            changed.insert("eviction".to_string(), eviction.text().to_string());
        }
        self.follow(default);
        changed
    }

    /// Answers `CONFIG GET`: the parameters that match any of the patterns, each once. All patterns together may be no
    /// longer than a single pattern of other commands.
    pub(crate) fn get(&self, request: Arguments<'_>, out: &mut ReplyBuffer) {
        let pattern_bytes = request.iter().skip(2).map(<[u8]>::len).sum();
        if pattern_bytes > PATTERN_BYTES_MAX {
            return out.error(&CommandError::PatternTooLong(pattern_bytes).to_string());
        }
        let patterns: Vec<Pattern> =
            request.iter().skip(2).map(|pattern| Pattern::new(&pattern.to_ascii_lowercase())).collect();
        let matches = |name: &String| patterns.iter().any(|pattern| pattern.matches(name.as_bytes()));
        let all = PARAMETERS.iter().zip(&self.values);
        let named = all.flat_map(|(parameter, value)| parameter.names().map(move |name| (name, value)));
        let mut matching: Vec<_> = named.filter(|(name, _)| matches(name)).collect();
        matching.sort_unstable();
        out.map(matching.len());
        for (name, value) in matching {
            out.bulk(name.as_bytes());
            out.bulk(value.as_bytes());
        }
    }

    /// Executes `CONFIG SET`: sets all the parameters that the request names, or none.
    ///
    /// # Errors
    /// [`ParameterError`] when one of them is unknown, named twice, or cannot have its value.
    pub(crate) fn set(&mut self, request: Arguments<'_>) -> Result<(), ParameterError> {
        let pairs = request.skip(2);
        if !pairs.len().is_multiple_of(2) {
            return Err(ParameterError::Syntax);
        }
        let mut rows = Vec::new();
        for name in pairs.iter().step_by(2) {
            let row = position(name).ok_or_else(|| ParameterError::Unknown(printable(name)))?;
            if rows.contains(&row) {
                return Err(PARAMETERS[row].failed("duplicate parameter"));
            }
            rows.push(row);
        }
        let values = rows.iter().zip(pairs.iter().skip(1).step_by(2));
        let values = values
            .map(|(row, value)| PARAMETERS[*row].accept(value, &self.values[*row]))
            .collect::<Result<Vec<_>, _>>()?;
        for (row, value) in rows.into_iter().zip(values) {
            self.values[row] = value;
        }
        self.refresh();
        Ok(())
    }

    /// Reads the live parameters from their texts.
    fn refresh(&mut self) {
        let number = |name: &str| {
            let row = position(name.as_bytes());
            row.and_then(|row| self.values[row].parse::<u64>().ok()).unwrap_or(0)
        };
        let (connections, idle, value) = (number(MAXCLIENTS), number(TIMEOUT), number(PROTO_MAX_BULK_LEN));
        self.connections_max = connections as usize;
        self.idle_timeout_seconds = idle;
        self.value_bytes_max = value as usize;
        self.stream_node_entries = number(STREAM_NODE_MAX_ENTRIES) as u32;
        // -1 is no u64.
        let threshold = |name: &str| {
            let row = position(name.as_bytes());
            row.and_then(|row| self.values[row].parse().ok()).unwrap_or(u64::MAX)
        };
        let logged = [SLOWLOG_LOG_SLOWER_THAN, REQUEST_LARGER_THAN, REPLY_LARGER_THAN].map(threshold);
        let event_us = number(LATENCY_MONITOR_THRESHOLD).saturating_mul(1000);
        let entries = [SLOWLOG_MAX_LEN, LARGE_REQUESTS, LARGE_REPLIES].map(|name| number(name) as usize);
        let thresholds = Thresholds::new(logged, if event_us == 0 { u64::MAX } else { event_us });
        self.thresholds = if self.looks_at_all { thresholds.looking_at_all() } else { thresholds };
        self.log_entries_max = entries;
        self.acl_log_entries = number(ACLLOG_MAX_LEN) as usize;
        let tracked_keys_max = usize::try_from(number(TRACKING_TABLE_MAX_KEYS)).unwrap_or(usize::MAX);
        let events = position(NOTIFY_KEYSPACE_EVENTS.as_bytes()).map(|row| self.values[row].as_bytes());
        self.tracked_keys_max = tracked_keys_max;
        self.events = events.and_then(EventFlags::parse).unwrap_or_default();
        let limit = |name: &str| u32::try_from(number(name)).unwrap_or(u32::MAX);
        self.encodings = EncodingLimits {
            hash_fields: limit("hash-max-listpack-entries"),
            hash_item_bytes: limit("hash-max-listpack-value"),
            intset_members: limit("set-max-intset-entries"),
            sorted_members: limit("zset-max-listpack-entries"),
            sorted_member_bytes: limit("zset-max-listpack-value"),
        };
    }
}

fn position(name: &[u8]) -> Option<usize> {
    let is_it =
        |parameter: &Parameter| parameter.names().any(|known| known.as_bytes().eq_ignore_ascii_case(name));
    PARAMETERS.iter().position(is_it)
}

impl Parameter {
    /// Its name, and the name that it had before Redis 7, or has in Valkey.
    fn names(&self) -> impl Iterator<Item = String> + use<> {
        let other = match self.name {
            SLOWLOG_LOG_SLOWER_THAN => Some("commandlog-execution-slower-than".to_owned()),
            SLOWLOG_MAX_LEN => Some("commandlog-slow-execution-max-len".to_owned()),
            name => name.contains("-listpack-").then(|| name.replace("-listpack-", "-ziplist-")),
        };
        std::iter::once(self.name.to_owned()).chain(other)
    }

    fn failed(&self, why: impl Into<String>) -> ParameterError {
        ParameterError::Failed { name: self.name, why: why.into() }
    }

    /// Returns the value to keep, given the parameter's present value.
    fn accept(&self, given: &[u8], present: &str) -> Result<String, ParameterError> {
        let value = self.kind.normalize(given);
        match self.effect {
            Live | Kept => value.map_err(|why| self.failed(why)),
            Fixed if value.is_ok_and(|value| value == present) => Ok(present.to_string()),
            Fixed => Err(self.failed(format!("can't set immutable config: it is '{present}' here"))),
        }
    }
}

impl Kind {
    /// Returns the value in its canonical form, or why it is invalid. The reasons are in Redis's words.
    fn normalize(&self, given: &[u8]) -> Result<String, String> {
        let between = |value: i64, least: i64, most: i64| {
            if (least..=most).contains(&value) {
                Ok(value.to_string())
            } else {
                Err(format!("argument must be between {least} and {most} inclusive"))
            }
        };
        let word = |words: &[&str]| {
            words.iter().find(|word| word.as_bytes().eq_ignore_ascii_case(given)).map(|word| word.to_string())
        };
        match *self {
            Kind::Text => Ok(String::from_utf8_lossy(given).into_owned()),
            Kind::Events => EventFlags::parse(given)
                .map(|flags| flags.to_string())
                .ok_or_else(|| "Invalid event class character. Use 'Ag$lshzxeKEtmdnoc'.".to_string()),
            Kind::YesNo => word(&["yes", "no"]).ok_or_else(|| "argument must be 'yes' or 'no'".to_string()),
            Kind::Integer(least, most) => {
                let value = parse_integer(given).ok_or("argument couldn't be parsed into an integer")?;
                between(value, least, most)
            }
            Kind::Bytes(least, most) => {
                let bytes = std::str::from_utf8(given).ok().and_then(parse_bytes);
                let bytes = bytes.and_then(|bytes| i64::try_from(bytes).ok());
                let value = bytes.ok_or("argument must be a memory value")?;
                between(value, least, most)
            }
            Kind::OneOf(words) => word(words)
                .ok_or_else(|| format!("argument(s) must be one of the following: {}", words.join(", "))),
        }
    }
}
