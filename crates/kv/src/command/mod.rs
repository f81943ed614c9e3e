//! The commands that a group executes, with their options resolved and checked.
//!
//! A command borrows its keys and values, from a client's input buffer or from a record of the log. Its encoding is the
//! record that replicas exchange: a tag, then the fields in order. Relative expiry times stay relative. The record
//! carries a time, set by the group's leader, which makes them absolute when the record is applied, so every replica
//! computes the same deadline.

mod bounded;
mod bytes;
mod comparison;
mod encoding;
mod family;
mod foreseen;
mod growth;
mod hash;
mod list;
mod lists;
mod lock;
mod queue;
mod script;
mod sets;
mod sort;
mod sorted;
mod streams;
mod supplied;
mod transaction;
mod work;

use crate::coded::{Coordinator, REFERENCE_BYTES, ValueId};
use crate::{UnixMs, Version};

pub(crate) use encoding::{PLAIN_SET_BYTES, may_come_in_parts};

pub use bounded::Bounded;
pub use bytes::{
    BitOperation, BytesCommand, CommonAnswer, FIELD_OPERATION_BYTES, FieldAction, FieldOperation, Overflow,
};
pub use comparison::{Comparison, DIGEST_HEX_BYTES};
pub use foreseen::{Answer, Foreseen, Kinds, Looked};
pub(crate) use growth::restored_bytes;
pub use growth::{RangePart, Sizes};
pub use hash::{HashCommand, HashPart};
pub use list::List;
pub use lists::ListCommand;
pub use lock::{Fenced, Hold, LockCommand, WaiterId};
pub(crate) use queue::Keys;
pub use queue::{Awaited, QueueCommand, WISH_BYTES_MAX, Wish};
pub(crate) use script::UNIT_NS;
pub use script::{Script, ScriptLimits, ScriptOptions, WhenFull};
pub use sets::{SetCommand, SetOperation};
pub use sort::{SortCommand, SortOptions, pattern_parts};
pub use sorted::{
    AddOptions, Aggregate, By, MemberBound, SortedCommand, parse_member_bound, parse_score, parse_score_bound,
};
pub use streams::{
    DELIVERED_BYTES_MAX, DELIVERED_MAX, ID_TEXT_BYTES, NOT_AN_ID, NewId, StreamCommand, StreamId, Trim,
    parse_id_bound,
};
pub use supplied::Supplied;
pub use transaction::{Draft, Transaction, Watched};
pub use work::{COMMAND_NS, Known, Size};

/// When a key expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// This many milliseconds after the command takes effect. May be zero or negative.
    In(i64),
    /// At this time in milliseconds since the Unix epoch. May lie in the past.
    At(i64),
}

/// What a write does to the key's expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// The key no longer expires.
    Clear,
    /// The key's expiry stays as it is.
    Keep,
    /// The key expires at this deadline.
    Set(Deadline),
}

/// The condition under which a write is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Unconditionally.
    Always,
    /// Only if the key does not exist (`NX`).
    IfAbsent,
    /// Only if the key exists (`XX`).
    IfPresent,
}

/// The condition under which `EXPIRE` and similar commands set a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpireCondition {
    /// Unconditionally.
    Always,
    /// Only if the key has no expiry (`NX`).
    IfNone,
    /// Only if the key has an expiry (`XX`).
    IfSome,
    /// Only if later than the current one; no expiry counts as infinitely late (`GT`).
    IfLater,
    /// Only if earlier than the current one (`LT`).
    IfEarlier,
    /// Only if the key has an expiry and the new one is later (`XX GT`).
    IfSomeAndLater,
    /// Only if the key has an expiry and the new one is earlier (`XX LT`).
    IfSomeAndEarlier,
}

/// What a `SET` replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetAnswer {
    /// `OK`, or null when its condition was not met (`SET`).
    Status,
    /// 1, or 0 when its condition was not met (`SETNX`).
    Integer,
    /// The previous value, or null (`SET … GET`, `GETSET`).
    Before,
}

/// The unit and origin in which a key's expiry is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiryUnit {
    /// Seconds from now (`TTL`).
    SecondsLeft,
    /// Milliseconds from now (`PTTL`).
    MillisecondsLeft,
    /// Seconds since the Unix epoch (`EXPIRETIME`).
    UnixSeconds,
    /// Milliseconds since the Unix epoch (`PEXPIRETIME`).
    UnixMilliseconds,
}

/// The sizes up to which `OBJECT ENCODING` reports Redis's forms for small collections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodingLimits {
    /// Most fields of a hash.
    pub hash_fields: u32,
    /// Longest field or value of a hash, in bytes.
    pub hash_item_bytes: u32,
    /// Most members of a set of integers.
    pub intset_members: u32,
    /// Most members of a sorted set.
    pub sorted_members: u32,
    /// Longest member of a sorted set, in bytes.
    pub sorted_member_bytes: u32,
}

impl Default for EncodingLimits {
    /// Redis's defaults.
    fn default() -> EncodingLimits {
        EncodingLimits {
            hash_fields: 512,
            hash_item_bytes: 64,
            intset_members: 512,
            sorted_members: 128,
            sorted_member_bytes: 64,
        }
    }
}

/// A command on one group's table.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)] // The fields are named after the terms in the variants' docs.
pub enum Command<'a> {
    // Reads.
    /// The value (`GET`).
    Get { key: &'a [u8] },
    /// Value, version and absolute deadline in ms (or null): an array of three, or null. For HTTP.
    Fetch { key: &'a [u8] },
    /// The values, null for a missing key (`MGET`).
    MultiGet { keys: List<'a> },
    /// How many of the keys exist, counting repeats (`EXISTS`, `TOUCH`).
    Exists { keys: List<'a> },
    /// The type of the value, or `none` (`TYPE`).
    Type { key: &'a [u8] },
    /// The value's length in bytes (`STRLEN`).
    Length { key: &'a [u8] },
    /// A part of the value, by Redis's rules for negative and out-of-range positions (`GETRANGE`).
    GetRange { key: &'a [u8], start: i64, end: i64 },
    /// The key's expiry: -2 without the key, -1 without an expiry (`TTL` etc.).
    TimeToLive { key: &'a [u8], unit: ExpiryUnit },
    /// All keys that match a glob pattern (`KEYS`).
    Keys { pattern: &'a [u8] },
    /// Some keys from a cursor on, and the next cursor (`SCAN`). A scan visits groups one by one: `group` is this
    /// group's number and `next` the one after it, 0 if this is the last. See [`crate::table::scan_group`].
    Scan {
        position: u64,
        count: u64,
        pattern: Option<&'a [u8]>,
        kind: Option<&'a [u8]>,
        group: u16,
        next: u16,
    },
    /// A key picked by `draw`, a random number from the caller (`RANDOMKEY`).
    RandomKey { draw: u64 },
    /// The number of keys (`DBSIZE`).
    Size,
    /// How Redis would store the value, in Redis's terms, or null (`OBJECT ENCODING`).
    Encoding { key: &'a [u8], limits: EncodingLimits },
    /// How long a key was not used, or how often it was used (`OBJECT IDLETIME`, `OBJECT FREQ`).
    Used { key: &'a [u8], usage: Usage },
    /// Bytes that the key and its value occupy, or null (`MEMORY USAGE`).
    MemoryUsage { key: &'a [u8] },
    /// The digest of the value, or null (`DIGEST`).
    Digest { key: &'a [u8] },
    /// The value in Redis's serialization format, or null (`DUMP`).
    Dump { key: &'a [u8] },
    /// The current state of the keys, for a later [`Transaction`] to compare (`WATCH`): an array of the table's highest
    /// version in use and each key's version, 0 for a missing key. Where a failover can lose writes, the version of this
    /// read's outcome is its leader's epoch, otherwise 0: versions of different epochs cannot be compared.
    Watch { keys: List<'a> },
    /// The latest changes behind a version, in at most about `bytes_max` bytes, if the table keeps them: see
    /// [`crate::table::History`] (`KEYSPACE WATCH`).
    Recent { from: Version, bytes_max: u32 },

    // Writes.
    /// Stores a value (`SET`, `SETNX`, `SETEX`, `PSETEX`, `GETSET`).
    Set { key: &'a [u8], value: &'a [u8], expiry: Expiry, condition: Condition, answer: SetAnswer },
    /// Returns the value and removes the key (`GETDEL`).
    GetDelete { key: &'a [u8] },
    /// Returns the value and changes its expiry (`GETEX`).
    GetExpire { key: &'a [u8], expiry: Expiry },
    /// Stores several values and replies `OK`; with `if_absent` stores all or none and replies 1 or 0 (`MSET`,
    /// `MSETNX`).
    MultiSet { pairs: List<'a>, if_absent: bool },
    /// Removes keys and returns how many existed (`DEL`, `UNLINK`).
    Delete { keys: List<'a> },
    /// Appends to the value and returns its length (`APPEND`). `bytes_max` limits the value's length.
    Append { key: &'a [u8], value: &'a [u8], bytes_max: u64 },
    /// Overwrites a part of the value, padding with zero bytes, and returns its length (`SETRANGE`).
    SetRange { key: &'a [u8], offset: u64, value: &'a [u8] },
    /// Adds to an integer and returns the sum (`INCR`, `DECR`, `INCRBY`, `DECRBY`).
    IncrementBy { key: &'a [u8], delta: i64 },
    /// Adds a decimal number, given as validated text, and returns the sum (`INCRBYFLOAT`).
    IncrementByFloat { key: &'a [u8], delta: &'a [u8] },
    /// Sets the key's deadline, or removes the key if the deadline is past; returns 1 or 0 (`EXPIRE` etc.).
    Expire { key: &'a [u8], deadline: Deadline, condition: ExpireCondition },
    /// Removes the key's expiry; returns 1 or 0 (`PERSIST`).
    Persist { key: &'a [u8] },
    /// Renames a key with its expiry and replies `OK`; with `if_absent` replies 1 or 0 (`RENAME`, `RENAMENX`).
    Rename { from: &'a [u8], to: &'a [u8], if_absent: bool },
    /// Copies a key with its expiry; returns 1 or 0 (`COPY`).
    Copy { from: &'a [u8], to: &'a [u8], replace: bool },
    /// Stores a value given in Redis's serialization format and replies `OK` (`RESTORE`). An existing key is an error
    /// unless `replaces`. `used` tells how the value was used before.
    Restore {
        key: &'a [u8],
        payload: &'a [u8],
        deadline: Option<Deadline>,
        replaces: bool,
        used: Option<FormerUse>,
    },
    /// Stores a value if the current one meets a condition (`SET … IFEQ` etc.).
    SetIf { key: &'a [u8], value: &'a [u8], expiry: Expiry, comparison: Comparison<'a>, answer: SetAnswer },
    /// Removes a key if its value meets a condition; returns 1 or 0 (`DELIFEQ`, `DELEX`).
    DeleteIf { key: &'a [u8], comparison: Comparison<'a> },
    /// Removes every key (`FLUSHDB`, `FLUSHALL`).
    Clear,
    /// Removes every key whose deadline is at or before `until`; returns how many. Proposed by the leader.
    Purge { until: UnixMs },
    /// Removes a key that still has this version, to free memory; returns 1 or 0. Proposed by the leader.
    Evict { key: &'a [u8], version: Version },
    /// Skips versions: no later record gets a version at or below the newest one plus `by`. Earlier changes are no longer
    /// kept. Written when acknowledged records were lost for good, so that whatever was given with their versions, such as
    /// locks' tokens, is never given again.
    SkipVersions { by: u64 },
    /// Stores a value that was versioned elsewhere, if its version is newer than the key's; returns an array of 1 or 0
    /// and the key's version afterwards (`POST /replicate`).
    Replicate { key: &'a [u8], value: &'a [u8], version: Version },

    // Values stored as fragments: see [`crate::coded`].
    /// Stores a value whose fragments are already durable (`SET` of a large value). Refused if the group's membership is
    /// no longer number `membership`, whose members hold the fragments, or if the value has been given up in the
    /// meantime.
    SetCoded {
        key: &'a [u8],
        reference: &'a [u8; REFERENCE_BYTES],
        membership: u32,
        expiry: Expiry,
        condition: Condition,
        answer: SetAnswer,
    },
    /// Gives up all values of this coordinator up to this counter that are not stored yet: none of them will ever be
    /// stored, so their fragments are useless.
    Abandon { coordinator: Coordinator, counter: u64 },

    // Writes too long for one record: see `table::long`.
    /// A part of a long command that has `length` bytes in all; returns how many bytes of it are gathered.
    LongPart { id: ValueId, offset: u32, length: u32, bytes: &'a [u8] },
    /// Carries out a long command whose parts are gathered, and returns that command's reply. For a transaction that
    /// watches keys, `watched_in` is the leadership under which they were watched.
    LongEnd { id: ValueId, watched_in: Option<u64> },

    // Both.
    /// Several commands in one step, answered by an array of their replies, or by a null array with nothing done if a
    /// watched key has changed (`EXEC`). A read unless one of its commands is a write.
    Transaction(Transaction<'a>),
    /// A command on locks (`LOCK` etc.).
    Lock(LockCommand<'a>),
    /// A command on requests that wait for elements (`BLPOP` etc.).
    Queue(QueueCommand<'a>),
    /// A write that takes effect only if it carries a lock's newest token; otherwise the reply is `FENCED` (`SET … FENCE`).
    Fenced(Fenced<'a>),
    /// A program that runs commands on the keys it declares, in one step (`EVAL`, `EVALSHA`). A read if it may only
    /// read (`EVAL_RO`).
    Script(Script<'a>),
    /// A command on a hash (`HSET` etc.).
    Hash(HashCommand<'a>),
    /// A command on lists (`LPUSH` etc.).
    OnList(ListCommand<'a>),
    /// A command on sets (`SADD` etc.).
    OnSet(SetCommand<'a>),
    /// A command on sorted sets (`ZADD` etc.).
    OnSorted(SortedCommand<'a>),
    /// A command on streams (`XADD` etc.).
    OnStream(StreamCommand<'a>),
    /// A command on the bytes of strings (`SETBIT` etc.).
    OnBytes(BytesCommand<'a>),
    /// Items in another order (`SORT`).
    Sort(SortCommand<'a>),
    /// A command with a wrong argument, which is found only after its keys were looked at. A read.
    Foreseen(Foreseen<'a>),

    /// A command with the bytes it needs from values stored outside the table. Ordered as a write.
    Supplied(Supplied<'a>),
    /// A write with a bound on the memory that it may add.
    Bounded(Bounded<'a>),
}

impl<'a> Command<'a> {
    /// Whether the command may change the table, and so must be ordered.
    #[inline]
    pub fn is_write(&self) -> bool {
        match self {
            Command::Get { .. } => false,
            Command::Set { .. } => true,
            Command::OnList(command) => command.is_write(),
            _ => self.is_any_write(),
        }
    }

    fn is_any_write(&self) -> bool {
        use Command::*;
        match self {
            Get { .. } | Fetch { .. } | MultiGet { .. } | Exists { .. } | Type { .. } | Length { .. } => {
                false
            }
            GetRange { .. } | TimeToLive { .. } | Keys { .. } | Scan { .. } | RandomKey { .. } | Size => {
                false
            }
            Encoding { .. }
            | MemoryUsage { .. }
            | Used { .. }
            | Digest { .. }
            | Dump { .. }
            | Recent { .. }
            | Foreseen(_)
            | Watch { .. } => false,
            Set { .. }
            | GetDelete { .. }
            | GetExpire { .. }
            | MultiSet { .. }
            | Delete { .. }
            | Append { .. } => true,
            SetRange { .. }
            | IncrementBy { .. }
            | IncrementByFloat { .. }
            | Expire { .. }
            | Persist { .. } => true,
            Rename { .. } | Copy { .. } | Clear | Purge { .. } | Evict { .. } | Replicate { .. } => true,
            SkipVersions { .. } => true,
            SetIf { .. } | DeleteIf { .. } | Restore { .. } => true,
            SetCoded { .. } | Abandon { .. } | LongPart { .. } | LongEnd { .. } => true,
            Transaction(transaction) => transaction.is_write(),
            Lock(command) => command.is_write(),
            Queue(command) => command.is_write(),
            Fenced(_) | Supplied(_) | Bounded(_) => true,
            Script(script) => script.is_write(),
            Hash(command) => command.is_write(),
            OnList(command) => command.is_write(),
            OnSet(command) => command.is_write(),
            OnSorted(command) => command.is_write(),
            OnStream(command) => command.is_write(),
            OnBytes(command) => command.is_write(),
            Sort(command) => command.is_write(),
        }
    }

    /// The approximate size of a write in bytes: its values and lists. 0 for one that cannot be long.
    #[inline]
    pub fn payload_bytes(&self) -> usize {
        use Command::*;
        match self {
            Set { value, .. } | Append { value, .. } | SetRange { value, .. } => value.len(),
            Replicate { value, .. } => value.len(),
            _ => self.payload_bytes_of_any(),
        }
    }

    fn payload_bytes_of_any(&self) -> usize {
        use Command::*;
        match self {
            Restore { payload, .. } => payload.len(),
            SetIf { value, comparison, .. } => value.len() + comparison.payload_bytes(),
            DeleteIf { comparison, .. } => comparison.payload_bytes(),
            MultiSet { pairs, .. } => pairs.bytes(),
            Delete { keys } => keys.bytes(),
            Transaction(transaction) if transaction.is_write() => transaction.bytes(),
            Fenced(fenced) => fenced.bytes(),
            Queue(command) if command.is_write() => command.bytes(),
            Script(script) if script.is_write() => script.bytes(),
            Hash(command) if command.is_write() => command.bytes(),
            OnList(command) if command.is_write() => command.bytes(),
            OnSet(command) if command.is_write() => command.bytes(),
            OnSorted(command) if command.is_write() => command.bytes(),
            OnStream(command) if command.is_write() => command.bytes(),
            OnBytes(command) if command.is_write() => command.bytes(),
            Sort(command) if command.is_write() => command.bytes(),
            Supplied(supplied) => supplied.bytes(),
            Bounded(bounded) => bounded.bytes(),
            _ => 0,
        }
    }

    /// The first member or field that the command looks for in a collection; empty for most commands.
    pub(crate) fn first_name(&self) -> &'a [u8] {
        match *self {
            Command::Hash(ref command) => command.first_name(),
            Command::OnSet(SetCommand::Contains { member, .. }) => member,
            Command::OnSet(SetCommand::Add { members, .. } | SetCommand::Remove { members, .. }) => {
                members.first()
            }
            Command::OnSorted(ref command) => command.first_name(),
            _ => &[],
        }
    }

    /// Calls `visit` with each key that the command names, in order. Visits none for commands on the whole table.
    pub fn for_each_key(&self, mut visit: impl FnMut(&'a [u8])) {
        use Command::*;
        match *self {
            Get { key } | Fetch { key } | Type { key } | Length { key } | GetRange { key, .. } => visit(key),
            TimeToLive { key, .. } | Encoding { key, .. } | MemoryUsage { key } | Set { key, .. } => {
                visit(key)
            }
            GetDelete { key } | GetExpire { key, .. } | Append { key, .. } | SetRange { key, .. } => {
                visit(key)
            }
            IncrementBy { key, .. } | IncrementByFloat { key, .. } | Expire { key, .. } => visit(key),
            Persist { key } | Replicate { key, .. } | Evict { key, .. } | Used { key, .. } => visit(key),
            Digest { key } | SetIf { key, .. } | DeleteIf { key, .. } => visit(key),
            Dump { key } | Restore { key, .. } => visit(key),
            SetCoded { key, .. } => visit(key),
            MultiGet { keys } | Exists { keys } | Delete { keys } | Watch { keys } => {
                keys.iter().for_each(visit);
            }
            MultiSet { pairs, .. } => pairs.pairs().for_each(|(key, _)| visit(key)),
            Rename { from, to, .. } | Copy { from, to, .. } => {
                visit(from);
                visit(to);
            }
            Transaction(transaction) => transaction.for_each_key(&mut visit),
            Lock(command) => command.key().into_iter().for_each(visit),
            Fenced(fenced) => fenced.for_each_key(&mut visit),
            Queue(command) => command.for_each_key(visit),
            Script(script) => script.keys().for_each(visit),
            Hash(command) => visit(command.key()),
            OnList(command) => command.for_each_key(visit),
            OnSet(command) => command.for_each_key(visit),
            OnSorted(command) => command.for_each_key(visit),
            OnStream(command) => command.for_each_key(visit),
            OnBytes(command) => command.for_each_key(visit),
            Sort(command) => command.for_each_key(visit),
            Foreseen(foreseen) => foreseen.keys().for_each(visit),
            Supplied(supplied) => supplied.for_each_key(&mut visit),
            Bounded(bounded) => bounded.for_each_key(&mut visit),
            Keys { .. } | Scan { .. } | RandomKey { .. } | Size | Clear | Purge { .. } | Abandon { .. } => {}
            Recent { .. } | SkipVersions { .. } => {}
            LongPart { .. } | LongEnd { .. } => {}
        }
    }
}

/// Which fact about the use of a key to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// The number of seconds for which it was not used.
    Idle,
    /// The logarithmic counter of its accesses.
    Frequency,
}

/// How a restored value was used before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormerUse {
    /// The number of seconds for which it was not used.
    Idle(u32),
    /// The logarithmic counter of its accesses.
    Frequency(u8),
}

// Commands are decoded into arrays and copied: one large variant makes all of them slower.
const _: () = assert!(size_of::<Command<'_>>() <= 80);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn for_each_key_visits_keys_in_order_and_no_values() {
        let mut scratch = Vec::new();
        let pairs = List::build(&mut scratch, [&b"k"[..], b"v", b"l", b"w"]);
        let mut keys = Vec::new();
        Command::MultiSet { pairs, if_absent: false }.for_each_key(|key| keys.push(key));
        assert_eq!(keys, [b"k", b"l"]);
    }
}
