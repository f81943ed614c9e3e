//! The commands that a group executes, with their options resolved and checked.
//!
//! A command borrows its keys and values, from a client's input buffer or from a record of the log. Its encoding is the
//! record that replicas exchange: a tag, then the fields in order. Relative expiry times stay relative. The record
//! carries a time, set by the group's leader, which makes them absolute when the record is applied, so every replica
//! computes the same deadline.

mod bounded;
mod bytes;
mod comparison;
mod counting;
mod declaration;
mod encoding;
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
mod two_phase;
mod work;

use crate::coded::{Coordinator, REFERENCE_BYTES, ValueId};
use crate::{UnixMs, Version};
use declaration::{Every, commands};
use encoding::{LIST, SET, SET_IF, SORTED_WRITE, STREAM_READ, STREAM_WRITE};
use script::{READING_SCRIPT, READING_SCRIPT_WITH_EXTENT, READING_SCRIPT_WITH_OPTIONS};
use script::{SCRIPT, SCRIPT_WITH_EXTENT, SCRIPT_WITH_OPTIONS};
use work::{FEW, FEW_BYTES};

pub(crate) use declaration::Wrapper;
pub(crate) use encoding::PLAIN_SET_BYTES;

pub use bounded::Bounded;
pub use bytes::{
    BitOperation, BytesCommand, CommonAnswer, FIELD_OPERATION_BYTES, FieldAction, FieldOperation, Overflow,
};
pub use comparison::{Comparison, DIGEST_HEX_BYTES};
pub use counting::Step;
pub use declaration::{Needs, Padded};
pub use foreseen::{Answer, Foreseen, Kinds, Looked};
pub(crate) use growth::restored_bytes;
pub use growth::{RangePart, Sizes};
pub use hash::{HashCommand, HashPart};
pub use list::List;
pub use lists::ListCommand;
pub(crate) use lists::{popped, pushed};
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
pub(crate) use streams::entries_read;
pub use streams::{
    DELIVERED_BYTES_MAX, DELIVERED_MAX, ID_TEXT_BYTES, NOT_AN_ID, NewId, ONE_DELIVERY_LESS, References,
    SAME_DELIVERIES, StreamCommand, StreamId, Trim, at_most_added, parse_id_bound,
};
pub use supplied::Supplied;
pub use transaction::{Draft, Transaction, Watched};
pub use two_phase::{Age, GROUPS_MAX, Header, Share, TransactionId, TwoPhaseCommand, UNSETTLED_MAX};
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

/// The conditions under which `HSETEX` sets fields: of its key, and of these fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldsCondition {
    /// Of the key (`NX`, `XX`).
    pub key: Condition,
    /// Of all the fields (`FNX`, `FXX`).
    pub fields: Condition,
}

impl FieldsCondition {
    /// Without a condition for the key.
    pub fn of_fields(fields: Condition) -> FieldsCondition {
        FieldsCondition { key: Condition::Always, fields }
    }
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

commands! {
    /// A command on one group's table.
    Command {
        // Reads.
        /// The value (`GET`).
        Get = 1 "GET" Reads { key: &'a [u8] };
        /// Value, version and absolute deadline in ms (or null): an array of three, or null. For HTTP.
        Fetch = 2 "GET" Reads { key: &'a [u8] } walks(true) within(Supplied);
        /// The values, null for a missing key (`MGET`).
        MultiGet = 3 "MGET" Reads { keys: List<'a> } walks(keys.len() > FEW) lists(true);
        /// How many of the keys exist, counting repeats (`EXISTS`, `TOUCH`).
        Exists = 4 "EXISTS" Reads { keys: List<'a> } walks(keys.len() > FEW) lists(true);
        /// The type of the value, or `none` (`TYPE`).
        Type = 5 "TYPE" Reads { key: &'a [u8] };
        /// The value's length in bytes (`STRLEN`).
        Length = 6 "STRLEN" Reads { key: &'a [u8] };
        /// A part of the value, by Redis's rules for negative and out-of-range positions (`GETRANGE`).
        GetRange = 7 "GETRANGE" Reads { key: &'a [u8], start: i64, end: i64 };
        /// The key's expiry: -2 without the key, -1 without an expiry (`TTL` etc.).
        TimeToLive = 8 "TTL" Reads { key: &'a [u8], unit: ExpiryUnit };
        /// All keys that match a glob pattern (`KEYS`).
        Keys = 9 "KEYS" Reads { pattern: &'a [u8] } keys() walks(true) lists(true);
        /// Some keys from a cursor on, and the next cursor (`SCAN`). A scan visits groups one by one: `group` is this
        /// group's number and `next` the one after it, 0 if this is the last. See [`crate::table::scan_group`].
        Scan = 10 "SCAN" Reads {
            position: u64, count: u64, pattern: Option<&'a [u8]>, kind: Option<&'a [u8]>, group: u16,
            next: u16,
        } keys() walks(true) lists(true);
        /// A key picked by `draw`, a random number from the caller (`RANDOMKEY`).
        RandomKey = 11 "RANDOMKEY" Reads { draw: u64 } keys() walks(true) lists(true);
        /// The number of keys (`DBSIZE`).
        Size = 12 "DBSIZE" Reads {} keys();
        /// How Redis would store the value, in Redis's terms, or null (`OBJECT ENCODING`).
        Encoding = 34 "OBJECT ENCODING" Reads { key: &'a [u8], limits: EncodingLimits };
        /// How long a key was not used, or how often it was used (`OBJECT IDLETIME`, `OBJECT FREQ`).
        Used = 38 "OBJECT" Reads { key: &'a [u8], usage: Usage };
        /// Bytes that the key and its value occupy, or null (`MEMORY USAGE`).
        MemoryUsage = 14 "MEMORY USAGE" Reads { key: &'a [u8] };
        /// The digest of the value, or null (`DIGEST`).
        Digest = 15 "DIGEST" Reads { key: &'a [u8] } walks(true) lists(true);
        /// The value in Redis's serialization format, or null (`DUMP`).
        Dump = 37 "DUMP" Reads { key: &'a [u8] } walks(true) lists(true) needs(AnyType);
        /// The current state of the keys, for a later [`Transaction`] to compare (`WATCH`): an array of the table's highest
        /// version in use and each key's version, 0 for a missing key. Where a failover can lose writes, the version of this
        /// read's outcome is its leader's epoch, otherwise 0: versions of different epochs cannot be compared.
        Watch = 16 "WATCH" Reads { keys: List<'a> }
            walks(keys.len() > FEW) lists(true) needs(Compares) within(Supplied);
        /// The latest changes behind a version, in at most about `bytes_max` bytes, if the table keeps them: see
        /// [`crate::table::History`] (`KEYSPACE WATCH`).
        Recent = 39 "KEYSPACE WATCH" Reads { from: Version, bytes_max: u32 } keys() within(Supplied);
        /// The newest token of the lock of this name, or 0 (`SET … FENCE` in a transaction over several groups). A share that is
        /// prepared while the newest is not the one `seen` is refused.
        NewestToken = 44 "this command" Reads { name: &'a [u8], seen: Version } needs(Order);

        // Writes.
        /// Stores a value (`SET`, `SETNX`, `SETEX`, `PSETEX`, `GETSET`).
        Set = SET (if answer == SetAnswer::Integer { "SETNX" } else { "SET" }) Grows {
            key: &'a [u8], value: &'a [u8], expiry: Expiry, condition: Condition, answer: SetAnswer,
        } event("set") bytes(value.len()) needs(Modifies);
        /// Returns the value and removes the key (`GETDEL`).
        GetDelete = 65 "GETDEL" Frees { key: &'a [u8] } needs(Modifies);
        /// Returns the value and changes its expiry (`GETEX`).
        GetExpire = 66 "GETEX" Changes { key: &'a [u8], expiry: Expiry }
            event(if expiry == Expiry::Clear { "persist" } else { "expire" }) needs(Modifies);
        /// Stores several values and replies `OK`; with `if_absent` stores all or none and replies 1 or 0 (`MSET`,
        /// `MSETNX`).
        MultiSet = 67 (if if_absent { "MSETNX" } else { "MSET" }) Grows { pairs: List<'a>, if_absent: bool }
            keys(Every(pairs, 2)) walks(pairs.len() > FEW) event("set") bytes(pairs.bytes())
            needs(SeveralKeys);
        /// Stores all of several values with one expiry, or none if the condition is not met for every key; replies 1 or 0
        /// (`MSETEX`).
        MultiSetExpire = 112 "MSETEX" Grows { pairs: List<'a>, expiry: Expiry, condition: Condition }
            keys(Every(pairs, 2)) walks(pairs.len() > FEW) event("set") bytes(pairs.bytes())
            needs(SeveralKeys);
        /// Removes keys and returns how many existed (`DEL`, `UNLINK`).
        Delete = 68 "DEL" Frees { keys: List<'a> } walks(keys.len() > FEW) lists(true) bytes(keys.bytes());
        /// Appends to the value and returns its length (`APPEND`). `bytes_max` limits the value's length.
        Append = 69 "APPEND" Grows { key: &'a [u8], value: &'a [u8], bytes_max: u64 }
            adds(More) event("append") bytes(value.len()) needs(Modifies);
        /// Overwrites a part of the value, padding with zero bytes, and returns its length (`SETRANGE`).
        SetRange = 70 "SETRANGE" Grows { key: &'a [u8], offset: u64, value: &'a [u8] }
            walks(offset > FEW_BYTES as u64) adds(Unforeseen) event("setrange") bytes(value.len())
            needs(Modifies);
        /// Adds to an integer and returns the sum (`INCR`, `DECR`, `INCRBY`, `DECRBY`).
        IncrementBy = 71 "INCR" Grows { key: &'a [u8], delta: i64 } event("incrby") needs(Modifies);
        /// Adds a decimal number, given as validated text, and returns the sum (`INCRBYFLOAT`).
        IncrementByFloat = 72 "INCRBYFLOAT" Grows { key: &'a [u8], delta: &'a [u8] }
            event("incrbyfloat") needs(Modifies);
        /// Adds to a number within bounds and changes its expiry, with `if_without` only if it has none; replies with the
        /// sum and what was added. Out of bounds it stores the bound if it `saturates`, else nothing (`INCREX`).
        IncrementWithin = 113 "INCREX" Grows {
            key: &'a [u8], step: Step<'a>, saturates: bool, expiry: Expiry, if_without: bool,
        } event(if matches!(step, Step::Whole { .. }) { "incrby" } else { "incrbyfloat" }) needs(Modifies);
        /// Sets the key's deadline, or removes the key if the deadline is past; returns 1 or 0 (`EXPIRE` etc.).
        Expire = 73 "EXPIRE" Changes { key: &'a [u8], deadline: Deadline, condition: ExpireCondition }
            event("expire") needs(Modifies);
        /// Removes the key's expiry; returns 1 or 0 (`PERSIST`).
        Persist = 74 "PERSIST" Changes { key: &'a [u8] } event("persist") needs(Modifies);
        /// Renames a key with its expiry and replies `OK`; with `if_absent` replies 1 or 0 (`RENAME`, `RENAMENX`).
        Rename = 75 "RENAME" Changes { from: &'a [u8], to: &'a [u8], if_absent: bool }
            keys(from, to) event("rename_to") needs(SeveralKeys);
        /// Copies a key with its expiry; returns 1 or 0 (`COPY`).
        Copy = 76 "COPY" Grows { from: &'a [u8], to: &'a [u8], replace: bool }
            keys(from, to) walks(true) lists(true) adds(Unforeseen) event("copy_to") needs(SeveralKeys);
        /// Stores a value given in Redis's serialization format and replies `OK` (`RESTORE`).
        Restore = 108 "RESTORE" Grows {
            key: &'a [u8], payload: &'a [u8], deadline: Option<Deadline>, options: RestoreOptions,
        } walks(payload.len() > FEW) adds(Unforeseen) event("restore") bytes(payload.len()) needs(AnyType);
        /// Stores a value if the current one meets a condition (`SET … IFEQ` etc.).
        SetIf = SET_IF "SET" Grows {
            key: &'a [u8], value: &'a [u8], expiry: Expiry, comparison: Comparison<'a>, answer: SetAnswer,
        } event("set") bytes(value.len() + comparison.payload_bytes()) needs(Modifies);
        /// Removes a key if its value meets a condition; returns 1 or 0 (`DELIFEQ`, `DELEX`).
        DeleteIf = 81 "DELEX" Frees { key: &'a [u8], comparison: Comparison<'a> }
            bytes(comparison.payload_bytes()) needs(Modifies);
        /// Removes every key (`FLUSHDB`, `FLUSHALL`).
        Clear = 77 "FLUSHALL" Frees {} keys() walks(true) lists(true) needs(AllKeys);
        /// Removes every key whose deadline is at or before `until`; returns how many. Proposed by the leader.
        Purge = 78 "this command" Frees { until: UnixMs } keys() within(Bounded);
        /// Removes a key that still has this version, to free memory; returns 1 or 0. Proposed by the leader.
        Evict = 109 "this command" Frees { key: &'a [u8], version: Version } within(Bounded);
        /// Skips versions: no later record gets a version at or below the newest one plus `by`. Earlier changes are no longer
        /// kept. Written when acknowledged records were lost for good, so that whatever was given with their versions, such as
        /// locks' tokens, is never given again.
        SkipVersions = 111 "this command" Changes { by: u64 } keys() within(Supplied);
        /// From this record on the group takes only what was checked by this version of the cluster map, or a later one: see
        /// [`crate::table::Floor`]. Returns how many transactions that were prepared before are not over here.
        RaiseFloor = 116 "this command" Frees { version: u64 } keys() within(Nothing);
        /// Stores a value that was versioned elsewhere, if its version is newer than the key's; returns an array of 1 or 0
        /// and the key's version afterwards (`POST /replicate`).
        Replicate = 79 "POST /replicate" Grows { key: &'a [u8], value: &'a [u8], version: Version }
            event("set") bytes(value.len()) needs(OwnVersions) within(Supplied);

        // Values stored as fragments: see [`crate::coded`].
        /// Stores a value whose fragments are already durable (`SET` of a large value). Refused if the group's membership is
        /// no longer number `membership`, whose members hold the fragments, or if the value has been given up in the
        /// meantime.
        SetCoded = 86 "SET" Grows {
            key: &'a [u8], reference: &'a [u8; REFERENCE_BYTES], membership: u32, expiry: Expiry,
            condition: Condition, answer: SetAnswer,
        } event("set") within(Parts);
        /// Gives up all values of this coordinator up to this counter that are not stored yet: none of them will ever be
        /// stored, so their fragments are useless.
        Abandon = 88 "this command" Frees { coordinator: Coordinator, counter: u64 } keys() within(Parts);

        // Writes too long for one record: see `table::long`.
        /// A part of a long command that has `length` bytes in all; returns how many bytes of it are gathered.
        LongPart = 91 "this command" Grows { id: ValueId, offset: u32, length: u32, bytes: &'a [u8] }
            keys() within(Bounded);
        /// Carries out a long command whose parts are gathered, and returns that command's reply. For a transaction that
        /// watches keys, `watched_in` is the leadership under which they were watched.
        LongEnd = 92 "this command" Changes { id: ValueId, watched_in: Padded }
            keys() walks(true) lists(true) adds(Unforeseen) event("set") within(Bounded);
    }
    inner {
        /// Several commands in one step, answered by an array of their replies, or by a null array with nothing done if a
        /// watched key has changed (`EXEC`). A read unless one of its commands is a write.
        Transaction(Transaction<'a>) = 17 | 82 within(Share);
        /// A command on locks (`LOCK` etc.).
        Lock(LockCommand<'a>) = 18 | 83 within(Bounded);
        /// A command on requests that wait for elements (`BLPOP` etc.).
        Queue(QueueCommand<'a>) = 35 | 106 within(Bounded);
        /// A command by which the group takes part in a transaction over several groups.
        TwoPhase(TwoPhaseCommand<'a>) = 43 | 115 within(Supplied);
        /// A write that takes effect only if it carries a lock's newest token; otherwise the reply is `FENCED` (`SET … FENCE`).
        Fenced(Fenced<'a>) = 84;
        /// A program that runs commands on the keys it declares, in one step (`EVAL`, `EVALSHA`). A read if it may only
        /// read (`EVAL_RO`).
        Script(Script<'a>) = READING_SCRIPT | READING_SCRIPT_WITH_EXTENT | READING_SCRIPT_WITH_OPTIONS
            | SCRIPT | SCRIPT_WITH_EXTENT | SCRIPT_WITH_OPTIONS;
        /// A command on a hash (`HSET` etc.).
        Hash(HashCommand<'a>) = 20 | 89;
        /// A command on lists (`LPUSH` etc.).
        OnList(ListCommand<'a>) = 22 | LIST;
        /// A command on sets (`SADD` etc.).
        OnSet(SetCommand<'a>) = 23 | 95;
        /// A command on sorted sets (`ZADD` etc.).
        OnSorted(SortedCommand<'a>) = 24 | SORTED_WRITE;
        /// A command on streams (`XADD` etc.).
        OnStream(StreamCommand<'a>) = STREAM_READ | STREAM_WRITE;
        /// A command on the bytes of strings (`SETBIT` etc.).
        OnBytes(BytesCommand<'a>) = 32 | 104;
        /// Items in another order (`SORT`).
        Sort(SortCommand<'a>) = 33 | 105;
        /// A command with a wrong argument, which is found only after its keys were looked at. A read.
        Foreseen(Foreseen<'a>) = 42;

        /// A command with the bytes it needs from values stored outside the table. Ordered as a write.
        Supplied(Supplied<'a>) = 90 within(Parts);
        /// A write with a bound on the memory that it may add.
        Bounded(Bounded<'a>) = 114 within(Nothing);
    }
}

impl<'a> Command<'a> {
    /// Whether it concerns all keys of a group, and names none.
    pub fn is_on_all_keys(&self) -> bool {
        use Command::*;
        matches!(self, Keys { .. } | Scan { .. } | RandomKey { .. } | Size {} | Clear {})
    }

    /// Whether the command may change the table, and so must be ordered.
    #[inline]
    pub fn is_write(&self) -> bool {
        match self {
            Command::Get { .. } => false,
            Command::Set { .. } => true,
            Command::OnList(command) => command.is_write(),
            _ => self.declared_is_write(),
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
        match self {
            // A lock has no payload.
            Command::Lock(_) => 0,
            command => command.declared_bytes(),
        }
    }

    /// Why a register cannot do it.
    pub fn needs(&self) -> Needs {
        self.declared_needs()
    }

    /// The first member or field that the command looks for in a collection; empty for most commands.
    pub(crate) fn first_name(&self) -> &'a [u8] {
        self.declared_first_name()
    }

    /// Its name as clients know it: of those that options distinguish, the usual one.
    pub fn name(&self) -> &'static str {
        self.declared_name()
    }

    /// Redis's event if it changes something; of several, the first one.
    pub(crate) fn event(&self) -> Option<&'static str> {
        self.declared_event()
    }

    /// Calls `visit` with each key that the command names, in order. Visits none for commands on the whole table.
    #[inline]
    pub fn for_each_key(&self, mut visit: impl FnMut(&'a [u8])) {
        match *self {
            Command::Get { key } | Command::Set { key, .. } => visit(key),
            _ => self.visit_declared_keys(&mut visit),
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

/// What becomes of an existing key, and how a restored value was used before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreOptions {
    /// Whether an existing key is replaced; otherwise it is an error.
    pub replaces: bool,
    /// How the value was used, if that is known.
    pub used: Option<FormerUse>,
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
