//! What can be asked of a group: commands with their options resolved and checked.
//!
//! A command borrows its keys and values, from a client's input buffer or from a record of the log. Its
//! encoding is the record that replicas exchange: a tag, then the fields in order. Relative expiry times
//! stay relative: the record's own time, given by the group's leader, makes them absolute when the record
//! is applied, so every replica computes the same deadline.

use crate::codec::{Malformed, Reader, Writer};
use crate::{UnixMs, Version};

/// When a key is to expire.
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
    /// The key expires then.
    Set(Deadline),
}

/// When a write is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// In any case.
    Always,
    /// Only if the key does not exist (`NX`).
    IfAbsent,
    /// Only if the key exists (`XX`).
    IfPresent,
}

/// When `EXPIRE` and its kin set a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpireCondition {
    /// In any case.
    Always,
    /// Only if the key has no expiry (`NX`).
    IfNone,
    /// Only if the key has an expiry (`XX`).
    IfSome,
    /// Only if later than the present one; no expiry counts as infinitely late (`GT`).
    IfLater,
    /// Only if earlier than the present one (`LT`).
    IfEarlier,
    /// Only if the key has an expiry and the new one is later (`XX GT`).
    IfSomeAndLater,
    /// Only if the key has an expiry and the new one is earlier (`XX LT`).
    IfSomeAndEarlier,
}

/// How a `SET` is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetAnswer {
    /// `OK`, or null when its condition was not met (`SET`).
    Status,
    /// 1, or 0 when its condition was not met (`SETNX`).
    Integer,
    /// The value before, or null (`SET … GET`, `GETSET`).
    Before,
}

/// In which unit, and from where, a key's expiry is told.
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

/// Byte strings, one behind the other, each with its length: the keys of an `MGET`, the pairs of an `MSET`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct List<'a> {
    encoded: &'a [u8],
    count: u32,
}

impl std::fmt::Debug for List<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.iter().map(|item| item.escape_ascii().to_string())).finish()
    }
}

impl<'a> List<'a> {
    /// Builds a list in `scratch`, which is cleared first.
    pub fn build<'i>(scratch: &'a mut Vec<u8>, items: impl IntoIterator<Item = &'i [u8]>) -> List<'a> {
        scratch.clear();
        let mut count = 0;
        for item in items {
            scratch.put_bytes(item);
            count += 1;
        }
        List { encoded: scratch, count }
    }

    fn decode(reader: &mut Reader<'a>) -> Result<List<'a>, Malformed> {
        let count = reader.u32()?;
        let encoded = reader.bytes()?;
        let mut items = Reader::new(encoded);
        for _ in 0..count {
            items.bytes()?;
        }
        if !items.is_empty() {
            return Err(Malformed("a list holds more than it says"));
        }
        Ok(List { encoded, count })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.count);
        out.put_bytes(self.encoded);
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The items in order.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + Clone {
        let mut reader = Reader::new(self.encoded);
        std::iter::from_fn(move || reader.bytes().ok())
    }

    /// The items two by two: keys with their values. An odd item at the end is left out.
    pub fn pairs(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone {
        let mut reader = Reader::new(self.encoded);
        std::iter::from_fn(move || Some((reader.bytes().ok()?, reader.bytes().ok()?)))
    }
}

/// A command on one group's table.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)] // The fields are named after what the variants' texts say.
pub enum Command<'a> {
    // Reads.
    /// The value (`GET`).
    Get { key: &'a [u8] },
    /// Value, version and absolute deadline in ms (or null): an array of three, or null. For HTTP.
    Fetch { key: &'a [u8] },
    /// The values, null where there is none (`MGET`).
    MultiGet { keys: List<'a> },
    /// How many of the keys exist, repeats counted (`EXISTS`, `TOUCH`).
    Exists { keys: List<'a> },
    /// The kind of value: `string` or `none` (`TYPE`).
    Type { key: &'a [u8] },
    /// The value's length in bytes (`STRLEN`).
    Length { key: &'a [u8] },
    /// A part of the value, by Redis's rules for negative and too large positions (`GETRANGE`).
    GetRange { key: &'a [u8], start: i64, end: i64 },
    /// The key's expiry: -2 without the key, -1 without an expiry (`TTL` and its kin).
    TimeToLive { key: &'a [u8], unit: ExpiryUnit },
    /// All keys that match a glob pattern (`KEYS`).
    Keys { pattern: &'a [u8] },
    /// Some keys from a cursor on, and the next cursor (`SCAN`). A scan goes through groups one by one: this group has
    /// the number `group`, and `next` comes after it, 0 when it is the last. See [`crate::table::scan_group`].
    Scan {
        position: u64,
        count: u64,
        pattern: Option<&'a [u8]>,
        kind: Option<&'a [u8]>,
        group: u16,
        next: u16,
    },
    /// A key picked by `draw`, a number drawn by whoever asks (`RANDOMKEY`).
    RandomKey { draw: u64 },
    /// The number of keys (`DBSIZE`).
    Size,
    /// How the value is kept, in Redis's words, or null (`OBJECT ENCODING`).
    Encoding { key: &'a [u8] },
    /// Bytes that key and value take, or null (`MEMORY USAGE`).
    MemoryUsage { key: &'a [u8] },

    // Writes.
    /// Stores a value (`SET`, `SETNX`, `SETEX`, `PSETEX`, `GETSET`).
    Set { key: &'a [u8], value: &'a [u8], expiry: Expiry, condition: Condition, answer: SetAnswer },
    /// Answers the value and removes the key (`GETDEL`).
    GetDelete { key: &'a [u8] },
    /// Answers the value and changes its expiry (`GETEX`).
    GetExpire { key: &'a [u8], expiry: Expiry },
    /// Stores several values; with `if_absent` all or none, answered 1 or 0, else `OK` (`MSET`, `MSETNX`).
    MultiSet { pairs: List<'a>, if_absent: bool },
    /// Removes keys and answers how many there were (`DEL`, `UNLINK`).
    Delete { keys: List<'a> },
    /// Appends to the value and answers its length (`APPEND`). `bytes_max` limits the value's length.
    Append { key: &'a [u8], value: &'a [u8], bytes_max: u64 },
    /// Overwrites a part of the value, padded with zero bytes, and answers its length (`SETRANGE`).
    SetRange { key: &'a [u8], offset: u64, value: &'a [u8] },
    /// Adds to an integer and answers the sum (`INCR`, `DECR`, `INCRBY`, `DECRBY`).
    IncrementBy { key: &'a [u8], delta: i64 },
    /// Adds to a decimal number, given as text that was checked, and answers the sum (`INCRBYFLOAT`).
    IncrementByFloat { key: &'a [u8], delta: &'a [u8] },
    /// Sets the key's deadline, removes it if that is past; answers 1 or 0 (`EXPIRE` and its kin).
    Expire { key: &'a [u8], deadline: Deadline, condition: ExpireCondition },
    /// Removes the key's expiry; answers 1 or 0 (`PERSIST`).
    Persist { key: &'a [u8] },
    /// Renames a key, expiry and all; with `if_absent` answers 1 or 0, else `OK` (`RENAME`, `RENAMENX`).
    Rename { from: &'a [u8], to: &'a [u8], if_absent: bool },
    /// Copies a key, expiry and all; answers 1 or 0 (`COPY`).
    Copy { from: &'a [u8], to: &'a [u8], replace: bool },
    /// Removes every key (`FLUSHDB`, `FLUSHALL`).
    Clear,
    /// Removes every key whose deadline is at or before `until`; answers how many. Proposed by the leader.
    Purge { until: UnixMs },
    /// Stores a value that was versioned elsewhere, if its version is newer than the key's; answers an array
    /// of 1 or 0 and the key's version afterwards (`POST /replicate`).
    Replicate { key: &'a [u8], value: &'a [u8], version: Version },
}

// Tags of the encoding. Reads are below 64. A tag is never given to another command.
const GET: u8 = 1;
const FETCH: u8 = 2;
const MULTI_GET: u8 = 3;
const EXISTS: u8 = 4;
const TYPE: u8 = 5;
const LENGTH: u8 = 6;
const GET_RANGE: u8 = 7;
const TIME_TO_LIVE: u8 = 8;
const KEYS: u8 = 9;
const SCAN: u8 = 10;
const RANDOM_KEY: u8 = 11;
const SIZE: u8 = 12;
const ENCODING: u8 = 13;
const MEMORY_USAGE: u8 = 14;
const SET: u8 = 64;
const GET_DELETE: u8 = 65;
const GET_EXPIRE: u8 = 66;
const MULTI_SET: u8 = 67;
const DELETE: u8 = 68;
const APPEND: u8 = 69;
const SET_RANGE: u8 = 70;
const INCREMENT_BY: u8 = 71;
const INCREMENT_BY_FLOAT: u8 = 72;
const EXPIRE: u8 = 73;
const PERSIST: u8 = 74;
const RENAME: u8 = 75;
const COPY: u8 = 76;
const CLEAR: u8 = 77;
const PURGE: u8 = 78;
const REPLICATE: u8 = 79;
/// The plain `SET key value`: by far the most frequent record, so it has a short form.
const SET_PLAIN: u8 = 127;

impl<'a> Command<'a> {
    /// True when the command may change the table, and so must be ordered.
    pub fn is_write(&self) -> bool {
        use Command::*;
        match self {
            Get { .. } | Fetch { .. } | MultiGet { .. } | Exists { .. } | Type { .. } | Length { .. } => {
                false
            }
            GetRange { .. } | TimeToLive { .. } | Keys { .. } | Scan { .. } | RandomKey { .. } | Size => {
                false
            }
            Encoding { .. } | MemoryUsage { .. } => false,
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
            Rename { .. } | Copy { .. } | Clear | Purge { .. } | Replicate { .. } => true,
        }
    }

    /// Calls `visit` with each key that the command names, in order. None for commands on the whole table.
    pub fn for_each_key(&self, mut visit: impl FnMut(&'a [u8])) {
        use Command::*;
        match *self {
            Get { key } | Fetch { key } | Type { key } | Length { key } | GetRange { key, .. } => visit(key),
            TimeToLive { key, .. } | Encoding { key } | MemoryUsage { key } | Set { key, .. } => visit(key),
            GetDelete { key } | GetExpire { key, .. } | Append { key, .. } | SetRange { key, .. } => {
                visit(key)
            }
            IncrementBy { key, .. } | IncrementByFloat { key, .. } | Expire { key, .. } => visit(key),
            Persist { key } | Replicate { key, .. } => visit(key),
            MultiGet { keys } | Exists { keys } | Delete { keys } => keys.iter().for_each(visit),
            MultiSet { pairs, .. } => pairs.pairs().for_each(|(key, _)| visit(key)),
            Rename { from, to, .. } | Copy { from, to, .. } => {
                visit(from);
                visit(to);
            }
            Keys { .. } | Scan { .. } | RandomKey { .. } | Size | Clear | Purge { .. } => {}
        }
    }

    /// Appends the command's encoding.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Command::Set {
                key,
                value,
                expiry: Expiry::Clear,
                condition: Condition::Always,
                answer: SetAnswer::Status,
            } => {
                out.reserve(9 + key.len() + value.len());
                out.put_u8(SET_PLAIN);
                out.put_bytes(key);
                out.put_bytes(value);
            }
            _ => self.encode_any(out),
        }
    }

    fn encode_any(&self, out: &mut Vec<u8>) {
        use Command::*;
        let keyed = |out: &mut Vec<u8>, tag: u8, key: &[u8]| {
            out.put_u8(tag);
            out.put_bytes(key);
        };
        match *self {
            Get { key } => keyed(out, GET, key),
            Fetch { key } => keyed(out, FETCH, key),
            MultiGet { keys } => {
                out.put_u8(MULTI_GET);
                keys.encode(out);
            }
            Exists { keys } => {
                out.put_u8(EXISTS);
                keys.encode(out);
            }
            Type { key } => keyed(out, TYPE, key),
            Length { key } => keyed(out, LENGTH, key),
            GetRange { key, start, end } => {
                keyed(out, GET_RANGE, key);
                out.put_i64(start);
                out.put_i64(end);
            }
            TimeToLive { key, unit } => {
                keyed(out, TIME_TO_LIVE, key);
                out.put_u8(unit as u8);
            }
            Keys { pattern } => keyed(out, KEYS, pattern),
            Scan { position, count, pattern, kind, group, next } => {
                out.put_u8(SCAN);
                out.put_u64(position);
                out.put_u64(count);
                put_optional(out, pattern);
                put_optional(out, kind);
                out.put_u16(group);
                out.put_u16(next);
            }
            RandomKey { draw } => {
                out.put_u8(RANDOM_KEY);
                out.put_u64(draw);
            }
            Size => out.put_u8(SIZE),
            Encoding { key } => keyed(out, ENCODING, key),
            MemoryUsage { key } => keyed(out, MEMORY_USAGE, key),
            Set { key, value, expiry, condition, answer } => {
                keyed(out, SET, key);
                out.put_bytes(value);
                put_expiry(out, expiry);
                out.put_u8(condition as u8);
                out.put_u8(answer as u8);
            }
            GetDelete { key } => keyed(out, GET_DELETE, key),
            GetExpire { key, expiry } => {
                keyed(out, GET_EXPIRE, key);
                put_expiry(out, expiry);
            }
            MultiSet { pairs, if_absent } => {
                out.put_u8(MULTI_SET);
                pairs.encode(out);
                out.put_bool(if_absent);
            }
            Delete { keys } => {
                out.put_u8(DELETE);
                keys.encode(out);
            }
            Append { key, value, bytes_max } => {
                keyed(out, APPEND, key);
                out.put_bytes(value);
                out.put_u64(bytes_max);
            }
            SetRange { key, offset, value } => {
                keyed(out, SET_RANGE, key);
                out.put_u64(offset);
                out.put_bytes(value);
            }
            IncrementBy { key, delta } => {
                keyed(out, INCREMENT_BY, key);
                out.put_i64(delta);
            }
            IncrementByFloat { key, delta } => {
                keyed(out, INCREMENT_BY_FLOAT, key);
                out.put_bytes(delta);
            }
            Expire { key, deadline, condition } => {
                keyed(out, EXPIRE, key);
                put_expiry(out, Expiry::Set(deadline));
                out.put_u8(condition as u8);
            }
            Persist { key } => keyed(out, PERSIST, key),
            Rename { from, to, if_absent } => {
                keyed(out, RENAME, from);
                out.put_bytes(to);
                out.put_bool(if_absent);
            }
            Copy { from, to, replace } => {
                keyed(out, COPY, from);
                out.put_bytes(to);
                out.put_bool(replace);
            }
            Clear => out.put_u8(CLEAR),
            Purge { until } => {
                out.put_u8(PURGE);
                out.put_u64(until);
            }
            Replicate { key, value, version } => {
                keyed(out, REPLICATE, key);
                out.put_bytes(value);
                out.put_u64(version);
            }
        }
    }

    /// Takes one command off the front of `reader`.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes end early or hold what no encoder writes.
    #[inline]
    pub fn decode(reader: &mut Reader<'a>) -> Result<Command<'a>, Malformed> {
        match reader.u8()? {
            SET_PLAIN => Ok(Command::Set {
                key: reader.bytes()?,
                value: reader.bytes()?,
                expiry: Expiry::Clear,
                condition: Condition::Always,
                answer: SetAnswer::Status,
            }),
            tag => Self::decode_any(tag, reader),
        }
    }

    fn decode_any(tag: u8, reader: &mut Reader<'a>) -> Result<Command<'a>, Malformed> {
        use Command::*;
        Ok(match tag {
            GET => Get { key: reader.bytes()? },
            FETCH => Fetch { key: reader.bytes()? },
            MULTI_GET => MultiGet { keys: List::decode(reader)? },
            EXISTS => Exists { keys: List::decode(reader)? },
            TYPE => Type { key: reader.bytes()? },
            LENGTH => Length { key: reader.bytes()? },
            GET_RANGE => GetRange { key: reader.bytes()?, start: reader.i64()?, end: reader.i64()? },
            TIME_TO_LIVE => TimeToLive { key: reader.bytes()?, unit: expiry_unit(reader.u8()?)? },
            KEYS => Keys { pattern: reader.bytes()? },
            SCAN => Scan {
                position: reader.u64()?,
                count: reader.u64()?,
                pattern: take_optional(reader)?,
                kind: take_optional(reader)?,
                group: reader.u16()?,
                next: reader.u16()?,
            },
            RANDOM_KEY => RandomKey { draw: reader.u64()? },
            SIZE => Size,
            ENCODING => Encoding { key: reader.bytes()? },
            MEMORY_USAGE => MemoryUsage { key: reader.bytes()? },
            SET => Set {
                key: reader.bytes()?,
                value: reader.bytes()?,
                expiry: take_expiry(reader)?,
                condition: condition(reader.u8()?)?,
                answer: set_answer(reader.u8()?)?,
            },
            GET_DELETE => GetDelete { key: reader.bytes()? },
            GET_EXPIRE => GetExpire { key: reader.bytes()?, expiry: take_expiry(reader)? },
            MULTI_SET => MultiSet { pairs: List::decode(reader)?, if_absent: reader.bool()? },
            DELETE => Delete { keys: List::decode(reader)? },
            APPEND => Append { key: reader.bytes()?, value: reader.bytes()?, bytes_max: reader.u64()? },
            SET_RANGE => SetRange { key: reader.bytes()?, offset: reader.u64()?, value: reader.bytes()? },
            INCREMENT_BY => IncrementBy { key: reader.bytes()?, delta: reader.i64()? },
            INCREMENT_BY_FLOAT => IncrementByFloat { key: reader.bytes()?, delta: reader.bytes()? },
            EXPIRE => {
                let key = reader.bytes()?;
                let Expiry::Set(deadline) = take_expiry(reader)? else {
                    return Err(Malformed("an expire record without a deadline"));
                };
                Expire { key, deadline, condition: expire_condition(reader.u8()?)? }
            }
            PERSIST => Persist { key: reader.bytes()? },
            RENAME => Rename { from: reader.bytes()?, to: reader.bytes()?, if_absent: reader.bool()? },
            COPY => Copy { from: reader.bytes()?, to: reader.bytes()?, replace: reader.bool()? },
            CLEAR => Clear,
            PURGE => Purge { until: reader.u64()? },
            REPLICATE => Replicate { key: reader.bytes()?, value: reader.bytes()?, version: reader.u64()? },
            _ => return Err(Malformed("unknown command tag")),
        })
    }
}

fn put_optional(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    out.put_bool(bytes.is_some());
    if let Some(bytes) = bytes {
        out.put_bytes(bytes);
    }
}

fn take_optional<'a>(reader: &mut Reader<'a>) -> Result<Option<&'a [u8]>, Malformed> {
    Ok(if reader.bool()? { Some(reader.bytes()?) } else { None })
}

fn put_expiry(out: &mut Vec<u8>, expiry: Expiry) {
    match expiry {
        Expiry::Clear => out.put_u8(0),
        Expiry::Keep => out.put_u8(1),
        Expiry::Set(Deadline::In(ms)) => {
            out.put_u8(2);
            out.put_i64(ms);
        }
        Expiry::Set(Deadline::At(ms)) => {
            out.put_u8(3);
            out.put_i64(ms);
        }
    }
}

fn take_expiry(reader: &mut Reader<'_>) -> Result<Expiry, Malformed> {
    Ok(match reader.u8()? {
        0 => Expiry::Clear,
        1 => Expiry::Keep,
        2 => Expiry::Set(Deadline::In(reader.i64()?)),
        3 => Expiry::Set(Deadline::At(reader.i64()?)),
        _ => return Err(Malformed("unknown kind of expiry")),
    })
}

fn condition(tag: u8) -> Result<Condition, Malformed> {
    use Condition::*;
    [Always, IfAbsent, IfPresent].get(tag as usize).copied().ok_or(Malformed("unknown condition"))
}

fn set_answer(tag: u8) -> Result<SetAnswer, Malformed> {
    use SetAnswer::*;
    [Status, Integer, Before].get(tag as usize).copied().ok_or(Malformed("unknown kind of answer"))
}

fn expiry_unit(tag: u8) -> Result<ExpiryUnit, Malformed> {
    use ExpiryUnit::*;
    let units = [SecondsLeft, MillisecondsLeft, UnixSeconds, UnixMilliseconds];
    units.get(tag as usize).copied().ok_or(Malformed("unknown unit of expiry"))
}

fn expire_condition(tag: u8) -> Result<ExpireCondition, Malformed> {
    use ExpireCondition::*;
    let conditions = [Always, IfNone, IfSome, IfLater, IfEarlier, IfSomeAndLater, IfSomeAndEarlier];
    conditions.get(tag as usize).copied().ok_or(Malformed("unknown expire condition"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_command<'a>(list: List<'a>, pairs: List<'a>) -> Vec<Command<'a>> {
        use Command::*;
        let (key, value) = (&b"key"[..], &b"value\0\r\n"[..]);
        let set = |expiry, condition, answer| Set { key, value, expiry, condition, answer };
        vec![
            Get { key },
            Fetch { key },
            MultiGet { keys: list },
            Exists { keys: list },
            Type { key },
            Length { key },
            GetRange { key, start: -3, end: i64::MAX },
            TimeToLive { key, unit: ExpiryUnit::UnixSeconds },
            Keys { pattern: b"*" },
            Scan { position: 7, count: 10, pattern: Some(b"a*"), kind: None, group: 1, next: 3 },
            RandomKey { draw: 9 },
            Size,
            Encoding { key },
            MemoryUsage { key },
            set(Expiry::Clear, Condition::Always, SetAnswer::Status),
            set(Expiry::Keep, Condition::IfPresent, SetAnswer::Before),
            set(Expiry::Set(Deadline::In(5)), Condition::IfAbsent, SetAnswer::Integer),
            set(Expiry::Set(Deadline::At(-5)), Condition::Always, SetAnswer::Status),
            GetDelete { key },
            GetExpire { key, expiry: Expiry::Clear },
            MultiSet { pairs, if_absent: true },
            Delete { keys: list },
            Append { key, value, bytes_max: 10 },
            SetRange { key, offset: 4, value },
            IncrementBy { key, delta: i64::MIN },
            IncrementByFloat { key, delta: b"1.5" },
            Expire { key, deadline: Deadline::In(1), condition: ExpireCondition::IfSomeAndEarlier },
            Persist { key },
            Rename { from: key, to: value, if_absent: false },
            Copy { from: key, to: value, replace: true },
            Clear,
            Purge { until: 1 },
            Replicate { key, value, version: 8 },
        ]
    }

    #[test]
    fn every_command_reads_back_as_it_was_written_and_no_shorter() {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        let list = List::build(&mut first, [&b"a"[..], b"", b"ccc"]);
        let pairs = List::build(&mut second, [&b"k"[..], b"v", b"l", b"w"]);
        for command in every_command(list, pairs) {
            let mut bytes = Vec::new();
            command.encode(&mut bytes);
            let mut reader = Reader::new(&bytes);
            assert_eq!(Command::decode(&mut reader), Ok(command));
            assert!(reader.is_empty(), "{command:?} left bytes behind");
            for end in 0..bytes.len() {
                assert!(
                    Command::decode(&mut Reader::new(&bytes[..end])).is_err(),
                    "{command:?} cut at {end}"
                );
            }
        }
    }

    #[test]
    fn keys_are_visited_in_order_and_values_are_not() {
        let mut scratch = Vec::new();
        let pairs = List::build(&mut scratch, [&b"k"[..], b"v", b"l", b"w"]);
        let mut keys = Vec::new();
        Command::MultiSet { pairs, if_absent: false }.for_each_key(|key| keys.push(key));
        assert_eq!(keys, [b"k", b"l"]);
    }
}
