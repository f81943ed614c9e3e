//! A keyspace: all keys with a prefix, and the promises for them.

use crate::setting::{self, Protocol, Reads, Setting, Storage};
use crate::setting::{CodingSettings, Parts};
use crate::slots::SHARDS_MAX;
use crate::slots::{SLOTS, slot_of};
use crate::words::{is_word, of_toml, one_line};
use coding::data_fragments_max;
use commands::DATABASES;
use kv::limits::{SCRIPT_COST_DEFAULT, SCRIPT_COST_LEAST, SCRIPT_COST_MOST};
use kv::table::Eviction;
use protocol::NodeId;
use protocol::blocking::{self, Retry};
use protocol::consensus::{self, Lease};
use protocol::leader_follower::{self, Acks, Durability};
use protocol::planted::Planted;
use serde::{Deserialize, Serialize};

/// The maximum number of keyspaces in a cluster.
pub const KEYSPACES_MAX: usize = 64;

/// The longest prefix of a keyspace, in bytes.
const PREFIX_BYTES_MAX: usize = 256;

/// Bytes of applied history kept for returning followers, unless configured otherwise.
pub(crate) const BACKLOG_BYTES_DEFAULT: usize = 64 << 20;

/// The shortest value that can be kept as fragments, in bytes: for a shorter one, what is kept besides the fragments
/// would be more.
const CODING_THRESHOLD_MIN: usize = 64;

/// The shortest value that can be kept on the disk, in bytes: for a shorter one, what stays in memory would take as
/// much.
const STORAGE_THRESHOLD_MIN: usize = 64;

/// The maximum number of replicas of a keyspace without a leader: their numbers are part of each version.
const MEMBERS_MAX: usize = 15;

/// One `[[keyspace]]` of the configuration.
///
/// All settings of the design are known here, so that a configuration for a later version is refused by name, not as
/// an unknown field; [`Keyspace::check`] refuses what this version does not support.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Keyspace {
    /// The prefix of the keys that it holds; the longest matching prefix wins. Empty: the default keyspace. `@1` to
    /// `@15`: it holds the database of that number, all keys of the clients that have selected it.
    pub prefix: String,
    /// The protocol: `consensus`, `leader-follower`, `abd` or `blocking`.
    #[serde(serialize_with = "setting::serialize", deserialize_with = "setting::deserialize")]
    pub replication: Protocol,
    /// leader-follower: how many followers hold a write before it is acknowledged: `none`, a number, `majority`
    /// or `all`.
    #[serde(serialize_with = "setting::serialize", deserialize_with = "setting::deserialize")]
    pub acks: Acks,
    /// The number of replicas, including the leader. 0: one on each node.
    pub replicas: u16,
    /// The number of shards that the keys are split into, by Redis's hash slots.
    pub shards: u16,
    /// What a write survives: `none` (memory only), `os` (the death of all processes) or `fsync` (of all machines).
    /// Empty: `fsync` for consensus, else `none`.
    #[serde(serialize_with = "setting::serialize", deserialize_with = "setting::deserialize")]
    pub durability: Option<Durability>,
    /// `linearizable`, or `any` (any replica, may be stale).
    #[serde(serialize_with = "setting::serialize", deserialize_with = "setting::deserialize")]
    pub reads: Reads,
    /// consensus and leader-follower: where values are kept, `memory` or `disk` (those of `storage_threshold` bytes or
    /// more, with a cache in front of them).
    #[serde(serialize_with = "setting::serialize", deserialize_with = "setting::deserialize")]
    pub storage: Storage,
    /// The shortest value that `storage = "disk"` keeps on the disk, in bytes. The default is four times what a key
    /// takes in memory besides its value.
    pub storage_threshold: usize,
    /// blocking: what an operation does when its key is locked, `none` (it fails) or `backoff` (it tries again).
    #[serde(serialize_with = "setting::serialize", deserialize_with = "setting::deserialize")]
    pub retry: Retry,
    /// consensus: how a leader ensures that it still leads before it answers a read: `log` (by an entry that it
    /// committed a moment ago) or `off` (it asks a majority each time).
    #[serde(serialize_with = "setting::serialize", deserialize_with = "setting::deserialize")]
    pub lease: Lease,
    /// consensus: whether large values are kept as fragments instead of copies: `none`, or the number of parts that a
    /// value is cut into; each replica keeps a fragment of the size of one part. Fewer parts are used where too few
    /// nodes answer. `adaptive`: for each value, the choice that is predicted to be fastest.
    #[serde(serialize_with = "setting::serialize", deserialize_with = "setting::deserialize")]
    pub coding: Option<Parts>,
    /// The shortest value that is kept as fragments, in bytes. At the default, on a gigabit link within a data centre,
    /// the bytes saved begin to outweigh the additional round trip.
    pub coding_threshold: usize,
    /// The node that leads first, or that is preferred as leader; the following shards have the nodes after it.
    /// Replicas are placed on it and the nodes after it. 0: the node that leads the fewest groups.
    pub leader: NodeId,
    /// Bytes of history kept for returning followers.
    pub backlog_bytes: usize,
    /// The most that a run of a script may cost, in units: a simple instruction costs one. The scripts of one
    /// transaction share it.
    pub script_cost_max: u32,
    /// The most memory that its keys may take at a replica, in bytes, in all shards together. 0: as much as the node
    /// has.
    #[serde(deserialize_with = "setting::deserialize_bytes")]
    pub memory_max: u64,
    /// Which keys are removed when it is full. With `none`, writes are refused.
    #[serde(serialize_with = "setting::serialize", deserialize_with = "setting::deserialize")]
    pub eviction: Eviction,
    /// consensus and leader-follower: how many bytes of its latest changes each replica keeps for readers of changes,
    /// in all shards together. 0: none.
    #[serde(deserialize_with = "setting::deserialize_bytes")]
    pub changes_bytes: u64,
}

impl Default for Keyspace {
    fn default() -> Self {
        Keyspace {
            prefix: String::new(),
            replication: Protocol::Consensus,
            acks: Acks::Majority,
            replicas: 0,
            shards: 1,
            durability: None,
            reads: Reads::Linearizable,
            storage: Storage::Memory,
            storage_threshold: 256,
            retry: Retry::Backoff,
            lease: Lease::Log,
            coding: None,
            coding_threshold: 16 << 10,
            leader: 0,
            backlog_bytes: BACKLOG_BYTES_DEFAULT,
            script_cost_max: SCRIPT_COST_DEFAULT,
            memory_max: 0,
            eviction: Eviction::None,
            changes_bytes: 0,
        }
    }
}

impl Keyspace {
    /// Its name in messages: the prefix, or `default`.
    pub fn name(&self) -> &str {
        if self.prefix.is_empty() { "default" } else { &self.prefix }
    }

    /// The number of the database that it holds. 0 for a keyspace with a prefix of keys: all of these belong to
    /// database 0.
    #[inline]
    pub fn database(&self) -> u8 {
        database_named(self.prefix.as_bytes())
    }

    /// Parses settings as given on a command line: `prefix=cache: replication=leader-follower acks=none`. A setting
    /// that is left out has its default.
    ///
    /// # Errors
    /// A sentence that names the setting and its possible values.
    pub fn parse(text: &str) -> Result<Keyspace, String> {
        let word = |word: &'_ str| match word.split_once('=') {
            Some((name, value)) => Ok((name.to_string(), value.to_string())),
            None => Err(format!("keyspace '{text}': '{word}' is not of the form setting=value")),
        };
        let words: Vec<(String, String)> = text.split_whitespace().map(word).collect::<Result<_, _>>()?;
        if !words.iter().any(|(name, _)| name == "prefix") {
            return Err(format!("keyspace '{text}': it has no prefix (prefix= is the default keyspace)"));
        }
        Keyspace::of_settings(words.iter().map(|(name, value)| (name.as_str(), value.as_str())))
            .map_err(|why| format!("keyspace '{text}': {why}"))
    }

    /// Makes a keyspace with these settings. A setting that is left out has its default. Without `replication`, a setting
    /// that means nothing with the default protocol is refused even with its default value: a user who gives `acks` expects
    /// leader-follower. Configuration files are not read by this function, so what they start is the same as before.
    ///
    /// # Errors
    /// A sentence that names the setting and its possible values.
    pub fn of_settings<'a>(settings: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Keyspace, String> {
        let mut table = toml::Table::new();
        for (name, value) in settings {
            let is_number = matches!(
                name,
                "replicas"
                    | "shards"
                    | "leader"
                    | "backlog_bytes"
                    | "coding_threshold"
                    | "storage_threshold"
                    | "script_cost_max"
                    | "memory_max"
                    | "changes_bytes"
            );
            let value = match value.parse::<i64>() {
                Ok(integer) if is_number => toml::Value::Integer(integer),
                _ => toml::Value::String(value.to_string()),
            };
            if table.insert(name.to_string(), value).is_some() {
                return Err(format!("'{name}' is given twice"));
            }
        }
        if !table.contains_key(Protocol::NAME) {
            let usual = Keyspace::default().replication;
            if let Some((name, owner)) = table.keys().find_map(|name| idle_with(usual, name)) {
                let (usual, owner) = (usual.text(), owner.text());
                return Err(format!(
                    "{name} is for {owner}, and without a replication a keyspace uses {usual}: add replication={owner}, or \
                     leave {name} out"
                ));
            }
        }
        table.try_into().map_err(|error: toml::de::Error| of_toml(error.message()))
    }

    /// Its settings and their values, as [`Keyspace::parse`] reads them.
    pub fn settings(&self) -> Vec<(String, String)> {
        let fields = serde_json::to_value(self).unwrap_or_default();
        let text = |value: &serde_json::Value| value.as_str().map_or(value.to_string(), str::to_string);
        let fields = fields.as_object().into_iter().flatten();
        fields.map(|(name, value)| (name.clone(), text(value))).collect()
    }

    /// Checks that this version can keep what the keyspace promises on `nodes` nodes.
    ///
    /// # Errors
    /// A sentence that names the keyspace, the setting and its possible values.
    pub fn check(&self, nodes: usize) -> Result<(), String> {
        self.check_prefix()?;
        let refuse = |why: String| Err(format!("keyspace '{}': {why}", self.name()));
        let protocol = self.replication;
        let name = protocol.text();
        if (protocol, self.durability()) == (Protocol::Consensus, Durability::None) {
            return refuse(
                "durability = \"none\" is not for consensus: a voter that forgets its promises breaks it; use \"os\" or \
                 \"fsync\", or another protocol"
                    .into(),
            );
        }
        if self.spills() {
            let threshold = self.storage_threshold;
            if protocol.has_registers() {
                return refuse(format!(
                    "storage = \"disk\" is for consensus and leader-follower; {name} keeps its values in memory"
                ));
            }
            if threshold < STORAGE_THRESHOLD_MIN {
                return refuse(format!(
                    "storage_threshold = {threshold} is less than {STORAGE_THRESHOLD_MIN} bytes"
                ));
            }
        }
        if self.shards == 0 || self.shards > SHARDS_MAX {
            return refuse(format!("shards = {} is not between 1 and {SHARDS_MAX}", self.shards));
        }
        if self.replicas as usize > nodes {
            return refuse(format!(
                "replicas = {} needs more than the {nodes} nodes there are",
                self.replicas
            ));
        }
        if !(SCRIPT_COST_LEAST..=SCRIPT_COST_MOST).contains(&self.script_cost_max) {
            return refuse(format!(
                "script_cost_max = {} is not between {SCRIPT_COST_LEAST} and {SCRIPT_COST_MOST} units",
                self.script_cost_max
            ));
        }
        if protocol.has_registers() && self.eviction != Eviction::None {
            let eviction = self.eviction.text();
            return refuse(format!(
                "eviction = \"{eviction}\" is for consensus and leader-follower; {name} has no leader that could choose a key: \
                 a full keyspace refuses writes"
            ));
        }
        if self.changes_bytes > 0 {
            let why = match (protocol.has_registers(), self.acks, self.coding) {
                (true, ..) => Some(format!("{name} has registers, whose changes have no order")),
                (_, Acks::None, _) => Some(
                    "with acks = \"none\" what was applied may be lost, and be followed by something else"
                        .into(),
                ),
                (_, _, Some(_)) => Some("values that are kept as fragments are in no change".into()),
                _ => None,
            };
            if let Some(why) = why {
                return refuse(format!(
                    "changes_bytes is for keyspaces whose changes are committed in one order: {why}"
                ));
            }
        }
        if protocol != Protocol::LeaderFollower && self.acks != Acks::Majority {
            let acks = self.acks.text();
            return refuse(format!(
                "acks = \"{acks}\" is for leader-follower; {name} always waits for a majority"
            ));
        }
        if protocol.has_registers() {
            if self.reads != Reads::Linearizable {
                return refuse(format!(
                    "reads = \"any\" is for consensus and leader-follower; {name} has no stale reads"
                ));
            }
            if self.replicas_on(nodes) > MEMBERS_MAX {
                return refuse(format!("{name} can have {MEMBERS_MAX} replicas at most: set replicas"));
            }
        }
        if let (Protocol::LeaderFollower, Acks::Count(count)) = (protocol, self.acks) {
            let followers = self.replicas_on(nodes).saturating_sub(1);
            if count as usize > followers {
                return refuse(format!("acks = {count} can never be: there are {followers} followers"));
            }
        }
        if self.retry == Retry::None && protocol != Protocol::Blocking {
            return refuse(format!("retry = \"none\" is for blocking; {name} takes no locks"));
        }
        if self.lease == Lease::Off && protocol != Protocol::Consensus {
            return refuse(format!("lease = \"off\" is for consensus; {name} has no lease of that kind"));
        }
        if let Some(CodingSettings { parts, threshold }) = self.coding() {
            if protocol != Protocol::Consensus {
                let coding = self.coding.text();
                return refuse(format!("coding = \"{coding}\" is for consensus; {name} keeps whole values"));
            }
            let (replicas, parts_max) =
                (self.replicas_on(nodes), data_fragments_max(self.replicas_on(nodes)));
            if let Parts::Fixed(parts) = parts
                && usize::from(parts) > parts_max
            {
                return refuse(format!(
                    "coding = \"{parts}\" needs more than {replicas} replicas: when as many have failed as may, the others \
                     must hold a whole value between them; use {parts_max} or less"
                ));
            }
            if threshold < CODING_THRESHOLD_MIN {
                return refuse(format!(
                    "coding_threshold = {threshold} is less than {CODING_THRESHOLD_MIN} bytes"
                ));
            }
        }
        Ok(())
    }

    /// Checks the prefix, which appears in lines of text, and once for each shard in the cluster map.
    fn check_prefix(&self) -> Result<(), String> {
        let prefix = &self.prefix;
        if prefix.len() > PREFIX_BYTES_MAX {
            let length = prefix.len();
            return Err(format!(
                "the prefix of a keyspace has {PREFIX_BYTES_MAX} bytes at most, not {length}"
            ));
        }
        match is_word(prefix) {
            true => Ok(()),
            false => Err(format!(
                "the prefix of a keyspace cannot contain spaces, newlines or special characters: '{}'",
                one_line(prefix)
            )),
        }
    }

    /// Returns the keyspace with every default of its protocol filled in.
    ///
    /// # Errors
    /// As [`Keyspace::check`].
    pub fn resolved(mut self, nodes: usize) -> Result<Keyspace, String> {
        self.check(nodes)?;
        self.durability = Some(self.durability());
        Ok(self)
    }

    /// Encodes it for the log.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a keyspace is made of strings and numbers")
    }

    /// Decodes a keyspace from the log.
    ///
    /// # Errors
    /// A sentence when the bytes are not a keyspace.
    pub fn decode(bytes: &[u8]) -> Result<Keyspace, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }

    /// What a write survives, as configured or by the protocol's default.
    pub fn durability(&self) -> Durability {
        let usual =
            if self.replication == Protocol::Consensus { Durability::Fsync } else { Durability::None };
        self.durability.unwrap_or(usual)
    }

    /// Whether one replica leads. Otherwise any replica coordinates.
    pub fn has_leader(&self) -> bool {
        self.replication.has_leader()
    }

    /// Why not all keys can be deleted at once, if they cannot.
    pub fn refuses_clear(&self) -> Option<String> {
        let (name, protocol) = (self.name(), self.replication.text());
        self.replication.has_registers().then(|| {
            format!(
                "ERR keyspace '{name}' uses {protocol} registers, which cannot all be deleted at once; nothing was \
                 done: DEL its keys"
            )
        })
    }

    /// The options for leader-follower.
    pub fn leader_follower(&self, planted: Planted) -> leader_follower::Options {
        leader_follower::Options {
            acks: self.acks,
            reads_any: self.reads == Reads::Any,
            backlog_bytes: self.backlog_bytes,
            spill_bytes_min: self.spill_bytes_min(),
            durability: self.durability(),
            planted,
        }
    }

    /// The options for consensus.
    pub fn consensus(&self, planted: Planted) -> consensus::Options {
        consensus::Options {
            lease: self.lease,
            reads_any: self.reads == Reads::Any,
            log_bytes: self.backlog_bytes,
            spill_bytes_min: self.spill_bytes_min(),
            is_bounded: true,
            planted,
        }
    }

    /// The options for blocking.
    pub fn blocking(&self, planted: Planted) -> blocking::Options {
        blocking::Options { retry: self.retry, keeps_records: self.keeps_records(), planted }
    }

    /// Whether replicas recover what they held after a crash.
    pub fn keeps_records(&self) -> bool {
        self.durability() != Durability::None
    }

    /// Whether it keeps its latest changes for followers of changes.
    pub fn keeps_changes(&self) -> bool {
        self.changes_bytes > 0
    }

    /// Whether it can take part in transactions over several groups.
    ///
    /// # Errors
    /// Why it cannot, in words that follow "it".
    pub fn takes_part(&self) -> Result<(), &'static str> {
        if !self.has_leader() {
            Err("has registers, which have no order")
        } else if self.acks == Acks::None {
            Err("has acks = \"none\", and may forget what it has promised")
        } else {
            Ok(())
        }
    }

    /// Whether its longer values are kept on the disk instead of in memory.
    #[inline]
    pub fn spills(&self) -> bool {
        self.storage == Storage::Disk
    }

    /// The shortest value that is not kept in memory.
    fn spill_bytes_min(&self) -> usize {
        if self.spills() { self.storage_threshold } else { usize::MAX }
    }

    /// How large values are kept as fragments; `None` if they are not.
    pub fn coding(&self) -> Option<CodingSettings> {
        self.coding.map(|parts| CodingSettings { parts, threshold: self.coding_threshold })
    }

    /// How many bytes of changes a replica of one of its shards keeps.
    pub fn shard_changes_bytes(&self) -> usize {
        usize::try_from(self.changes_bytes.div_ceil(u64::from(self.shards.max(1)))).unwrap_or(usize::MAX)
    }

    /// The most memory that the keys of one of its shards may take, in bytes; 0: not bounded. Hash slots hold about
    /// as many keys each, so shards get equal parts.
    pub fn shard_memory_max(&self) -> u64 {
        self.memory_max.div_ceil(u64::from(self.shards.max(1)))
    }

    /// The number of its replicas on `nodes` nodes.
    pub(crate) fn replicas_on(&self, nodes: usize) -> usize {
        if self.replicas == 0 { nodes } else { usize::from(self.replicas).min(nodes) }
    }
}

/// The setting's name and its protocol, if it is a setting of one protocol, and that is another one.
pub fn idle_with(protocol: Protocol, setting: &str) -> Option<(&'static str, Protocol)> {
    let of_one = [
        (Acks::NAME, Protocol::LeaderFollower),
        (Retry::NAME, Protocol::Blocking),
        (Lease::NAME, Protocol::Consensus),
        (Option::<Parts>::NAME, Protocol::Consensus),
    ];
    of_one.into_iter().find(|(name, owner)| *name == setting && *owner != protocol)
}

/// The number of the database that a keyspace with this prefix holds, from 1 on; 0 if it is a prefix of keys.
#[inline]
pub fn database_named(prefix: &[u8]) -> u8 {
    match *prefix {
        [b'@', digit @ b'1'..=b'9'] => digit - b'0',
        [b'@', b'1', digit @ b'0'..=b'5'] => 10 + digit - b'0',
        _ => 0,
    }
}

/// The prefix of the keyspace that holds a database.
pub fn prefix_of_database(number: u8) -> String {
    if number == 0 { String::new() } else { format!("@{number}") }
}

/// Maps the keys of each database to groups.
#[derive(Debug, Default)]
pub struct Router {
    databases: [Database; DATABASES as usize],
}

/// Maps the keys of a database to groups.
#[derive(Debug, Default)]
pub struct Database {
    /// Prefixes, the longest first, with the groups of their shards; the empty one is last. Empty: the database does
    /// not exist.
    prefixes: Vec<(Vec<u8>, Vec<u16>)>,
}

impl Router {
    /// Takes keyspaces with the groups of their shards, in order. One of them has the empty prefix, and each has a
    /// group.
    pub fn new(keyspaces: impl Iterator<Item = (Vec<u8>, Vec<u16>)>) -> Router {
        let mut router = Router::default();
        for (prefix, groups) in keyspaces {
            let number = database_named(&prefix);
            let prefix = if number == 0 { prefix } else { Vec::new() };
            router.databases[usize::from(number)].prefixes.push((prefix, groups));
        }
        router.databases[0].prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        router
    }

    /// The database of a number below [`DATABASES`].
    #[inline]
    pub fn database(&self, number: u8) -> &Database {
        &self.databases[usize::from(number)]
    }
}

impl Database {
    /// Whether the database exists: a keyspace holds it.
    pub fn exists(&self) -> bool {
        !self.prefixes.is_empty()
    }

    /// Its groups, if there is only one.
    pub fn only_group(&self) -> Option<u16> {
        match self.prefixes.as_slice() {
            [(_, groups)] => groups.first().copied().filter(|_| groups.len() == 1),
            _ => None,
        }
    }

    /// The group of a key. O(keyspaces).
    #[inline]
    pub fn group_of(&self, key: &[u8]) -> u16 {
        // An empty prefix has no address, and comparing no bytes there may take longer than all other comparisons
        // together: with AVX-512 the load is masked, and the processor has to find out that the bytes that it must
        // not read do not matter.
        let begins_with = |prefix: &[u8]| prefix.is_empty() || key.starts_with(prefix);
        match self.prefixes.iter().find(|(prefix, _)| begins_with(prefix)) {
            Some((_, groups)) if let [only] = groups.as_slice() => *only,
            Some((_, groups)) => groups[shard_of(slot_of(key), groups.len())],
            None => self.default_group(),
        }
    }

    /// The groups that may hold keys which begin with these bytes. O(keyspaces and groups).
    pub fn groups_of_beginning(&self, start: &[u8]) -> impl Iterator<Item = u16> {
        // Keyspaces with shorter prefixes than the first one that all such keys begin with hold none of them.
        let holder = self.prefixes.iter().position(|(prefix, _)| start.starts_with(prefix));
        let last = holder.map_or(self.prefixes.len(), |place| place + 1);
        let holds =
            move |(prefix, _): &&(Vec<u8>, Vec<u16>)| prefix.starts_with(start) || start.starts_with(prefix);
        self.prefixes[..last].iter().filter(holds).flat_map(|(_, groups)| groups.iter().copied())
    }

    /// The group of all keys that a pattern with one `*` matches; `None` if they may be in several.
    pub fn group_of_pattern(&self, pattern: &[u8]) -> Option<u16> {
        let star = pattern.iter().position(|byte| *byte == b'*').unwrap_or(pattern.len());
        let start = &pattern[..star];
        let is_within = |prefix: &[u8]| prefix.len() > start.len() && prefix.starts_with(start);
        if self.prefixes.iter().any(|(prefix, _)| is_within(prefix)) {
            return None;
        }
        let (_, groups) = self.prefixes.iter().find(|(prefix, _)| start.starts_with(prefix))?;
        // With several shards, a hash tag has to decide.
        let has_tag = || slot_of(&[start, b"a"].concat()) == slot_of(&[start, b"b"].concat());
        (groups.len() == 1 || has_tag()).then(|| self.group_of(start))
    }

    /// The prefix of a key's keyspace, followed by the prefixes of other keyspaces that begin with it; nothing if the
    /// keyspace has several shards. So all keys that begin with the first prefix and with none of the others are in
    /// the key's group.
    pub fn extent_of(&self, key: &[u8]) -> impl Iterator<Item = &[u8]> {
        let found = self.prefixes.iter().position(|(prefix, _)| key.starts_with(prefix));
        let found = found.filter(|place| self.prefixes[*place].1.len() == 1);
        let within = found.map(|place| self.prefixes[place].0.as_slice());
        let longer = self.prefixes[..found.unwrap_or(0)].iter().map(|(prefix, _)| prefix.as_slice());
        let begin_with_it = move |other: &&[u8]| within.is_some_and(|within| other.starts_with(within));
        within.into_iter().chain(longer.filter(begin_with_it))
    }

    /// The first group of the default keyspace.
    pub fn default_group(&self) -> u16 {
        self.prefixes.last().and_then(|(_, groups)| groups.first()).copied().unwrap_or_default()
    }
}

/// The shard, of `shards`, that has a slot: shard s begins with slot s * 16384 / shards.
#[inline]
pub fn shard_of(slot: u16, shards: usize) -> usize {
    ((usize::from(slot) + 1) * shards - 1) / usize::from(SLOTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keyspace_is_read_from_a_command_line() {
        let keyspace = Keyspace::parse("prefix=cache: replication=leader-follower acks=none").unwrap();
        assert_eq!((keyspace.name(), keyspace.acks), ("cache:", Acks::None));
        assert_eq!(keyspace.reads, Reads::Linearizable, "what is left out has its default");
        let numbered = Keyspace::parse("prefix=c: replication=leader-follower acks=2").unwrap();
        assert_eq!(numbered.acks, Acks::Count(2));
        let bounded = Keyspace::parse("prefix=c: memory_max=2mb eviction=volatile-lru shards=4").unwrap();
        assert_eq!((bounded.memory_max, bounded.shard_memory_max()), (2 << 20, 512 << 10));
        assert_eq!(bounded.eviction, Eviction::VolatileLru);
        let safe = Keyspace::parse("prefix=").unwrap();
        assert_eq!((safe.replication, safe.durability()), (Protocol::Consensus, Durability::Fsync));
    }

    #[test]
    fn a_pattern_is_for_one_group_if_its_start_decides_the_group() {
        let groups = [(b"".to_vec(), vec![1, 2]), (b"c:".to_vec(), vec![3]), (b"c:x:".to_vec(), vec![4])];
        let router = Router::new(groups.into_iter());
        let router = router.database(0);
        let tagged = router.group_of(b"{tag}");
        assert_eq!(router.group_of_pattern(b"w_{tag}_*"), Some(tagged), "the hash tag decides");
        assert_eq!(router.group_of_pattern(b"w_*_{tag}"), None, "an item may hold another tag");
        assert_eq!(router.group_of_pattern(b"w_*"), None);
        assert_eq!(router.group_of_pattern(b"c:y*"), Some(3));
        assert_eq!(router.group_of_pattern(b"c:*"), None, "an item may begin with x:");
        assert_eq!(router.group_of_pattern(b"c:x:*"), Some(4));
        assert_eq!(router.group_of_pattern(b"*"), None);
    }

    #[test]
    fn keys_that_begin_alike_are_in_the_groups_of_few_keyspaces() {
        let groups = [(b"".to_vec(), vec![1]), (b"c:".to_vec(), vec![2]), (b"c:x:".to_vec(), vec![3, 4])];
        let router = Router::new(groups.into_iter());
        let of = |start: &[u8]| {
            let mut groups: Vec<u16> = router.database(0).groups_of_beginning(start).collect();
            groups.sort();
            groups
        };
        assert_eq!(of(b""), [1, 2, 3, 4]);
        assert_eq!(of(b"c"), [1, 2, 3, 4], "such a key may be in the default keyspace");
        assert_eq!(of(b"c:"), [2, 3, 4]);
        assert_eq!(of(b"c:y"), [2]);
        assert_eq!(of(b"c:x"), [2, 3, 4]);
        assert_eq!(of(b"c:x:y"), [3, 4]);
        assert_eq!(of(b"d"), [1]);
        for key in [&b"c:x:k"[..], b"c:k", b"c", b"k"] {
            let group = router.database(0).group_of(key);
            assert!((0..=key.len()).all(|end| of(&key[..end]).contains(&group)), "{}", key.escape_ascii());
        }
    }

    #[test]
    fn the_extent_of_a_key_is_certainly_in_its_group() {
        let groups = [(b"".to_vec(), vec![1]), (b"c:".to_vec(), vec![2]), (b"c:x:".to_vec(), vec![3, 4])];
        let router = Router::new(groups.into_iter());
        let router = router.database(0);
        let extent =
            |key: &[u8]| router.extent_of(key).map(|it| it.escape_ascii().to_string()).collect::<Vec<_>>();
        assert_eq!(extent(b"k"), ["", "c:x:", "c:"]);
        assert_eq!(extent(b"c:k"), ["c:", "c:x:"]);
        assert!(extent(b"c:x:k").is_empty(), "only its slot says where a key is");
    }

    #[test]
    fn a_database_has_a_keyspace_of_its_own() {
        let groups = [(b"".to_vec(), vec![1]), (b"@3".to_vec(), vec![2]), (b"@16".to_vec(), vec![3])];
        let router = Router::new(groups.into_iter());
        assert_eq!(router.database(0).group_of(b"@3"), 1, "no key of database 0 is in another one");
        assert_eq!(router.database(0).group_of(b"@16k"), 3, "there is no database 16: it is a prefix");
        assert_eq!((router.database(3).group_of(b"k"), router.database(3).only_group()), (2, Some(2)));
        assert!(router.database(3).exists() && !router.database(4).exists());
        for number in 0..DATABASES {
            assert_eq!(database_named(prefix_of_database(number).as_bytes()), number);
        }
        for prefix in ["@", "@0", "@01", "@16", "@1x", "3"] {
            assert_eq!(database_named(prefix.as_bytes()), 0, "{prefix}");
        }
    }

    #[test]
    fn a_number_in_a_configuration_file_needs_no_quotation_marks() {
        let read = |text: &str| toml::from_str::<Keyspace>(text);
        let keyspace = read("acks = 2\ncoding = 3").unwrap();
        assert_eq!((keyspace.acks, keyspace.coding), (Acks::Count(2), Some(Parts::Fixed(3))));
        assert_eq!(read("acks = \"2\"\ncoding = \"3\"").unwrap(), keyspace);
        let error = read("acks = true").unwrap_err().to_string();
        assert!(error.contains("a text or a number"), "{error}");
        let error = read("acks = -1").unwrap_err().to_string();
        assert!(error.contains("a text or a number"), "{error}");
    }

    #[test]
    fn a_keyspace_in_the_cluster_map_is_read_as_it_was_written() {
        let text = "prefix=c: replication=leader-follower acks=2 durability=os reads=any storage=disk";
        let keyspace = Keyspace::parse(text).unwrap();
        let encoded = String::from_utf8(keyspace.encode()).unwrap();
        // Maps of earlier versions have these words, so they must not change.
        for word in [
            r#""replication":"leader-follower""#,
            r#""acks":"2""#,
            r#""durability":"os""#,
            r#""reads":"any""#,
            r#""storage":"disk""#,
            r#""retry":"backoff""#,
            r#""lease":"log""#,
            r#""coding":"none""#,
        ] {
            assert!(encoded.contains(word), "{word} in {encoded}");
        }
        assert_eq!(Keyspace::decode(encoded.as_bytes()), Ok(keyspace));
    }

    #[test]
    fn unsupported_settings_are_refused_by_name() {
        let refusal = |text: &str, nodes| {
            Keyspace::parse(text).and_then(|keyspace| keyspace.check(nodes)).expect_err("refused")
        };
        let cases = [
            ("prefix=s: durability=none", "a voter that forgets its promises"),
            ("prefix=s: durability=disk", "unknown durability \"disk\""),
            (
                "prefix=s: acks=all",
                "acks is for leader-follower, and without a replication a keyspace uses consensus",
            ),
            ("prefix=s: acks=majority", "add replication=leader-follower, or leave acks out"),
            (
                "prefix=s: retry=backoff",
                "retry is for blocking, and without a replication a keyspace uses consensus",
            ),
            (
                "prefix=s: replication=consensus acks=all",
                "acks = \"all\" is for leader-follower; consensus always waits",
            ),
            ("prefix=s: lease=clock", "unknown lease \"clock\""),
            ("prefix=s: replication=abd lease=off", "lease = \"off\" is for consensus"),
            ("prefix=s: replication=abd acks=all", "acks = \"all\" is for leader-follower; abd always waits"),
            ("prefix=s: replication=abd reads=any", "reads = \"any\" is for consensus and leader-follower"),
            ("prefix=s: replication=abd retry=none", "retry = \"none\" is for blocking; abd takes no locks"),
            ("prefix=s: replication=blocking retry=often", "unknown retry \"often\""),
            ("prefix=s: replication=gossip", "unknown replication \"gossip\""),
            ("prefix=s: replication=abd durability=disk", "unknown durability \"disk\""),
            ("prefix=s: replication=leader-follower acks=3", "acks = 3 can never be: there are 2 followers"),
            ("prefix=s: replication=leader-follower acks=some", "unknown acks \"some\""),
            ("prefix=s: replicas=5", "replicas = 5 needs more than the 3 nodes"),
            ("prefix=s: reads=dirty", "unknown reads \"dirty\""),
            ("prefix=s: storage=tape", "unknown storage \"tape\"; use \"memory\" or \"disk\""),
            ("prefix=s: replication=abd storage=disk", "is for consensus and leader-follower; abd keeps"),
            (
                "prefix=s: replication=blocking storage=disk",
                "leader-follower; blocking keeps its values in memory",
            ),
            ("prefix=s: storage=disk storage_threshold=1", "storage_threshold = 1 is less than 64 bytes"),
            (
                "prefix=s: script_cost_max=49999",
                "script_cost_max = 49999 is not between 50000 and 10000000 units",
            ),
            ("prefix=s: script_cost_max=10000001", "script_cost_max = 10000001 is not between"),
            ("prefix=s: memory_max=1tb", "\"1tb\" is no number of bytes"),
            ("prefix=s: eviction=mru", "unknown eviction \"mru\"; use none, lru,"),
            (
                "prefix=s: replication=abd eviction=lru",
                "eviction = \"lru\" is for consensus and leader-follower",
            ),
            ("acks=all", "it has no prefix"),
            ("prefix=s: acks", "'acks' is not of the form setting=value"),
            ("prefix=s: colour=red", "there is no setting 'colour'; there are prefix, replication, acks,"),
            ("prefix=s: acks=1 acks=2", "'acks' is given twice"),
        ];
        for (text, expected) in cases {
            let error = refusal(text, 3);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    /// Configuration files of clusters that serve today start tomorrow, too, and what `KEYSPACE GET` answers makes the same
    /// keyspace again.
    #[test]
    fn a_setting_of_another_protocol_may_have_its_default() {
        let read: Keyspace =
            toml::from_str("prefix = \"s:\"\nacks = \"majority\"\nretry = \"backoff\"").unwrap();
        assert_eq!(read.check(3), Ok(()));
        let words: Vec<String> =
            read.settings().iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(Keyspace::parse(&words.join(" ")), Ok(read));
    }

    #[test]
    fn the_longest_prefix_wins_and_every_key_has_a_keyspace() {
        let spaces =
            ["user:", "user:admin:"].map(|prefix| Keyspace { prefix: prefix.into(), ..Keyspace::default() });
        let spaces = [vec![Keyspace::default()], spaces.to_vec()].concat();
        let places = spaces.iter().zip(1..).map(|(space, id)| (space.prefix.clone().into_bytes(), vec![id]));
        let router = Router::new(places);
        let router = router.database(0);
        let name = |key: &str| spaces[usize::from(router.group_of(key.as_bytes())) - 1].name();
        assert_eq!(name("user:admin:7"), "user:admin:");
        assert_eq!(name("user:7"), "user:");
        assert_eq!(name("use"), "default");
    }

    #[test]
    fn a_key_goes_to_the_shard_that_has_its_slot() {
        for shards in [1, 2, 3, 7, 256] {
            let first = |shard: usize| shard * 16384 / shards;
            for slot in 0..SLOTS {
                let shard = shard_of(slot, shards);
                assert!((first(shard)..first(shard + 1)).contains(&usize::from(slot)), "{slot} of {shards}");
            }
        }
        let router = Router::new([(Vec::new(), vec![5, 6])].into_iter());
        let router = router.database(0);
        // Slots 12182 and 5061.
        assert_eq!((router.group_of(b"foo"), router.group_of(b"bar")), (6, 5));
        assert_eq!(router.group_of(b"{foo}bar"), 6);
    }
}
