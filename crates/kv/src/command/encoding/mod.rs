//! Commands as bytes: the records of the log, and the requests that nodes forward to each other.

#[cfg(test)]
mod tests;

use super::family::Part;
use super::{
    Command, Comparison, Condition, Deadline, EncodingLimits, ExpireCondition, Expiry, ExpiryUnit, FormerUse,
    List, SetAnswer, Usage,
};
use crate::codec::{Malformed, Reader, Writer};
use crate::coded::{REFERENCE_BYTES, Reference, ValueId};

// Tags of the encoding. Reads are below 64. A tag is never reused for another command.
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
const MEMORY_USAGE: u8 = 14;
const DIGEST: u8 = 15;
const WATCH: u8 = 16;
const READING_TRANSACTION: u8 = 17;
const LOCK_READ: u8 = 18;
const HASH_READ: u8 = 20;
const READING_SCRIPT: u8 = 21;
const LIST_READ: u8 = 22;
const SET_READ: u8 = 23;
const SORTED_READ: u8 = 24;
const STREAM_READ: u8 = 28;
/// With the limits of the node that received the request.
const ENCODING: u8 = 34;
const BYTES_READ: u8 = 32;
const SORT_READ: u8 = 33;
const QUEUE_READ: u8 = 35;
const READING_SCRIPT_WITH_EXTENT: u8 = 36;
const DUMP: u8 = 37;
const USED: u8 = 38;
const RECENT: u8 = 39;
const READING_SCRIPT_WITH_OPTIONS: u8 = 40;
const FORESEEN: u8 = 42;
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
const SET_IF: u8 = 80;
const DELETE_IF: u8 = 81;
const TRANSACTION: u8 = 82;
const LOCK: u8 = 83;
const FENCED: u8 = 84;
const SET_CODED: u8 = 86;
const ABANDON: u8 = 88;
const HASH: u8 = 89;
const SUPPLIED: u8 = 90;
const LONG_PART: u8 = 91;
const LONG_END: u8 = 92;
const SCRIPT: u8 = 93;
const LIST: u8 = 94;
const SET_WRITE: u8 = 95;
const SORTED_WRITE: u8 = 96;
const STREAM_WRITE: u8 = 100;
const BYTES_WRITE: u8 = 104;
const SORT_WRITE: u8 = 105;
const QUEUE: u8 = 106;
const SCRIPT_WITH_EXTENT: u8 = 107;
const RESTORE: u8 = 108;
const EVICT: u8 = 109;
const SCRIPT_WITH_OPTIONS: u8 = 110;
const SKIP_VERSIONS: u8 = 111;
const BOUNDED: u8 = 114;
/// Flags in the byte that says whether a restored value replaces another one: which information about its use follows.
const RESTORED_IDLE: u8 = 2;
const RESTORED_FREQUENCY: u8 = 4;
/// The plain `SET key value`: by far the most frequent record, so it has a short form.
const SET_PLAIN: u8 = 127;
/// Bytes of its encoding beside key and value.
pub(crate) const PLAIN_SET_BYTES: usize = 9;

/// Whether a client can have put an encoded command into a transaction. Decided by its tag alone, so that untrusted bytes
/// cannot nest transactions without end.
pub(super) fn may_be_in_a_transaction(encoded: &[u8]) -> bool {
    !matches!(
        encoded.first(),
        None | Some(
            &(WATCH
                | READING_TRANSACTION
                | TRANSACTION
                | PURGE
                | EVICT
                | REPLICATE
                | FETCH
                | LOCK
                | LOCK_READ)
        ) | Some(&(SET_CODED | ABANDON | SUPPLIED | LONG_PART | LONG_END | QUEUE | QUEUE_READ))
            | Some(&(BOUNDED | SKIP_VERSIONS | RECENT))
    )
}

/// Whether an encoded command can be supplied with bytes: only one that a client can have sent.
pub(super) fn may_be_supplied(encoded: &[u8]) -> bool {
    !matches!(
        encoded.first(),
        None | Some(&(PURGE | EVICT | LOCK | LOCK_READ | SET_CODED | ABANDON | SUPPLIED))
            | Some(&(LONG_PART | LONG_END | QUEUE | QUEUE_READ | BOUNDED))
    )
}

/// Whether an encoded command may have a bound on the memory that it adds. Decided by its tag alone: see
/// [`may_be_in_a_transaction`].
pub(super) fn may_be_bounded(encoded: &[u8]) -> bool {
    !matches!(encoded.first(), None | Some(&BOUNDED))
}

/// Whether an encoded command can arrive in parts. Parts themselves cannot, because they could nest without end.
pub(crate) fn may_come_in_parts(encoded: &[u8]) -> bool {
    !matches!(
        encoded.first(),
        None | Some(
            &(PURGE | EVICT | LOCK | LOCK_READ | LONG_PART | LONG_END | QUEUE | QUEUE_READ | BOUNDED)
        )
    )
}

/// Whether a client can have put an encoded command behind a fence.
pub(super) fn may_be_fenced(encoded: &[u8]) -> bool {
    matches!(encoded.first(), Some(&(SET_PLAIN | SET | SET_IF)))
}

/// Whether an encoded command may be one that waits.
pub(super) fn may_wait(encoded: &[u8]) -> bool {
    matches!(encoded.first(), Some(&(LIST | SORTED_WRITE | STREAM_READ | STREAM_WRITE)))
}

impl<'a> Command<'a> {
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
                out.reserve(PLAIN_SET_BYTES + key.len() + value.len());
                out.put_u8(SET_PLAIN);
                out.put_bytes(key);
                out.put_bytes(value);
            }
            _ => self.encode_any(out),
        }
    }

    /// Appends the encoding of a plain `SET` without its value, which comes last and is returned. For another command,
    /// appends nothing.
    pub fn encode_before_value(&self, out: &mut Vec<u8>) -> Option<&'a [u8]> {
        let Command::Set {
            key,
            value,
            expiry: Expiry::Clear,
            condition: Condition::Always,
            answer: SetAnswer::Status,
        } = *self
        else {
            return None;
        };
        out.put_u8(SET_PLAIN);
        out.put_bytes(key);
        out.put_u32(value.len() as u32);
        Some(value)
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
            Used { key, usage } => {
                keyed(out, USED, key);
                out.put_bool(usage == Usage::Frequency);
            }
            Encoding { key, limits } => {
                keyed(out, ENCODING, key);
                let EncodingLimits { hash_fields, hash_item_bytes, intset_members, .. } = limits;
                let EncodingLimits { sorted_members, sorted_member_bytes, .. } = limits;
                let all = [hash_fields, hash_item_bytes, intset_members, sorted_members, sorted_member_bytes];
                all.into_iter().for_each(|limit| out.put_u32(limit));
            }
            MemoryUsage { key } => keyed(out, MEMORY_USAGE, key),
            Digest { key } => keyed(out, DIGEST, key),
            Dump { key } => keyed(out, DUMP, key),
            Recent { from, bytes_max } => {
                out.put_u8(RECENT);
                out.put_u64(from);
                out.put_u32(bytes_max);
            }
            Watch { keys } => {
                out.put_u8(WATCH);
                keys.encode(out);
            }
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
            Restore { key, payload, deadline, replaces, used } => {
                keyed(out, RESTORE, key);
                out.put_bytes(payload);
                out.put_bool(deadline.is_some());
                if let Some(deadline) = deadline {
                    deadline.put(out);
                }
                match used {
                    None => out.put_bool(replaces),
                    Some(FormerUse::Idle(seconds)) => {
                        out.put_u8(RESTORED_IDLE | u8::from(replaces));
                        out.put_u32(seconds);
                    }
                    Some(FormerUse::Frequency(counter)) => {
                        out.put_u8(RESTORED_FREQUENCY | u8::from(replaces));
                        out.put_u8(counter);
                    }
                }
            }
            Clear => out.put_u8(CLEAR),
            Purge { until } => {
                out.put_u8(PURGE);
                out.put_u64(until);
            }
            Evict { key, version } => {
                keyed(out, EVICT, key);
                out.put_u64(version);
            }
            Replicate { key, value, version } => {
                keyed(out, REPLICATE, key);
                out.put_bytes(value);
                out.put_u64(version);
            }
            SetIf { key, value, expiry, comparison, answer } => {
                keyed(out, SET_IF, key);
                out.put_bytes(value);
                put_expiry(out, expiry);
                comparison.encode(out);
                out.put_u8(answer as u8);
            }
            DeleteIf { key, comparison } => {
                keyed(out, DELETE_IF, key);
                comparison.encode(out);
            }
            SetCoded { key, reference, membership, expiry, condition, answer } => {
                keyed(out, SET_CODED, key);
                out.extend_from_slice(reference);
                out.put_u32(membership);
                put_expiry(out, expiry);
                out.put_u8(condition as u8);
                out.put_u8(answer as u8);
            }
            SkipVersions { by } => {
                out.put_u8(SKIP_VERSIONS);
                out.put_u64(by);
            }
            Abandon { coordinator, counter } => {
                out.put_u8(ABANDON);
                ValueId { coordinator, counter }.put(out);
            }
            LongPart { id, offset, length, bytes } => {
                out.put_u8(LONG_PART);
                id.put(out);
                out.put_u32(offset);
                out.put_u32(length);
                out.put_bytes(bytes);
            }
            LongEnd { id, watched_in } => {
                out.put_u8(LONG_END);
                id.put(out);
                out.put_bool(watched_in.is_some());
                out.put_u64(watched_in.unwrap_or_default());
            }
            Transaction(transaction) => {
                out.put_u8(if transaction.is_write() { TRANSACTION } else { READING_TRANSACTION });
                transaction.encode(out);
            }
            Lock(command) => {
                out.put_u8(if command.is_write() { LOCK } else { LOCK_READ });
                command.encode(out);
            }
            Queue(command) => {
                out.put_u8(if command.is_write() { QUEUE } else { QUEUE_READ });
                command.encode(out);
            }
            Fenced(fenced) => {
                out.put_u8(FENCED);
                fenced.encode(out);
            }
            Script(script) => {
                out.put_u8(match (script.is_write(), script.has_extent()) {
                    (false, _) if script.has_options() => READING_SCRIPT_WITH_OPTIONS,
                    (true, _) if script.has_options() => SCRIPT_WITH_OPTIONS,
                    (false, false) => READING_SCRIPT,
                    (false, true) => READING_SCRIPT_WITH_EXTENT,
                    (true, false) => SCRIPT,
                    (true, true) => SCRIPT_WITH_EXTENT,
                });
                script.encode(out);
            }
            Hash(command) => {
                out.put_u8(if command.is_write() { HASH } else { HASH_READ });
                command.encode(out);
            }
            OnList(command) => {
                out.put_u8(if command.is_write() { LIST } else { LIST_READ });
                command.encode(out);
            }
            OnSet(command) => {
                out.put_u8(if command.is_write() { SET_WRITE } else { SET_READ });
                command.encode(out);
            }
            OnSorted(command) => {
                out.put_u8(if command.is_write() { SORTED_WRITE } else { SORTED_READ });
                command.encode(out);
            }
            OnStream(command) => {
                out.put_u8(if command.is_write() { STREAM_WRITE } else { STREAM_READ });
                command.encode(out);
            }
            OnBytes(command) => {
                out.put_u8(if command.is_write() { BYTES_WRITE } else { BYTES_READ });
                command.encode(out);
            }
            Sort(command) => {
                out.put_u8(if command.is_write() { SORT_WRITE } else { SORT_READ });
                command.encode(out);
            }
            Foreseen(foreseen) => {
                out.put_u8(FORESEEN);
                foreseen.encode(out);
            }
            Supplied(supplied) => {
                out.put_u8(SUPPLIED);
                supplied.encode(out);
            }
            Bounded(bounded) => {
                out.put_u8(BOUNDED);
                bounded.encode(out);
            }
        }
    }

    /// Takes one command off the front of `reader`.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes end early or contain something that no encoder writes.
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
            USED => Used {
                key: reader.bytes()?,
                usage: if reader.bool()? { Usage::Frequency } else { Usage::Idle },
            },
            ENCODING => Encoding {
                key: reader.bytes()?,
                limits: EncodingLimits {
                    hash_fields: reader.u32()?,
                    hash_item_bytes: reader.u32()?,
                    intset_members: reader.u32()?,
                    sorted_members: reader.u32()?,
                    sorted_member_bytes: reader.u32()?,
                },
            },
            MEMORY_USAGE => MemoryUsage { key: reader.bytes()? },
            DIGEST => Digest { key: reader.bytes()? },
            DUMP => Dump { key: reader.bytes()? },
            RECENT => Recent { from: reader.u64()?, bytes_max: reader.u32()? },
            WATCH => Watch { keys: List::decode(reader)? },
            READING_TRANSACTION => Transaction(super::Transaction::decode(reader, false)?),
            TRANSACTION => Transaction(super::Transaction::decode(reader, true)?),
            LOCK_READ => Lock(super::LockCommand::decode(reader, false)?),
            LOCK => Lock(super::LockCommand::decode(reader, true)?),
            QUEUE_READ => Queue(super::QueueCommand::decode(reader, false)?),
            QUEUE => Queue(super::QueueCommand::decode(reader, true)?),
            FENCED => Fenced(super::Fenced::decode(reader)?),
            READING_SCRIPT => Script(super::Script::decode(reader, false, false)?),
            SCRIPT => Script(super::Script::decode(reader, true, false)?),
            READING_SCRIPT_WITH_EXTENT => Script(super::Script::decode(reader, false, true)?),
            SCRIPT_WITH_EXTENT => Script(super::Script::decode(reader, true, true)?),
            READING_SCRIPT_WITH_OPTIONS => Script(super::Script::decode_with_options(reader, false)?),
            SCRIPT_WITH_OPTIONS => Script(super::Script::decode_with_options(reader, true)?),
            HASH_READ => Hash(super::HashCommand::decode(reader, false)?),
            HASH => Hash(super::HashCommand::decode(reader, true)?),
            LIST_READ => OnList(super::ListCommand::decode(reader, false)?),
            LIST => OnList(super::ListCommand::decode(reader, true)?),
            SET_READ => OnSet(super::SetCommand::decode(reader, false)?),
            SET_WRITE => OnSet(super::SetCommand::decode(reader, true)?),
            SORTED_READ => OnSorted(super::SortedCommand::decode(reader, false)?),
            SORTED_WRITE => OnSorted(super::SortedCommand::decode(reader, true)?),
            STREAM_READ => OnStream(super::StreamCommand::decode(reader, false)?),
            STREAM_WRITE => OnStream(super::StreamCommand::decode(reader, true)?),
            BYTES_READ => OnBytes(super::BytesCommand::decode(reader, false)?),
            BYTES_WRITE => OnBytes(super::BytesCommand::decode(reader, true)?),
            SORT_READ => Sort(super::SortCommand::decode(reader, false)?),
            SORT_WRITE => Sort(super::SortCommand::decode(reader, true)?),
            SET_IF => SetIf {
                key: reader.bytes()?,
                value: reader.bytes()?,
                expiry: take_expiry(reader)?,
                comparison: Comparison::decode(reader)?,
                answer: set_answer(reader.u8()?)?,
            },
            DELETE_IF => DeleteIf { key: reader.bytes()?, comparison: Comparison::decode(reader)? },
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
                let (key, deadline) = (reader.bytes()?, Deadline::take(reader)?);
                Expire { key, deadline, condition: expire_condition(reader.u8()?)? }
            }
            PERSIST => Persist { key: reader.bytes()? },
            RENAME => Rename { from: reader.bytes()?, to: reader.bytes()?, if_absent: reader.bool()? },
            COPY => Copy { from: reader.bytes()?, to: reader.bytes()?, replace: reader.bool()? },
            RESTORE => {
                let (key, payload) = (reader.bytes()?, reader.bytes()?);
                let deadline = if reader.bool()? { Some(Deadline::take(reader)?) } else { None };
                let how = reader.u8()?;
                let used = match how & !1 {
                    0 => None,
                    RESTORED_IDLE => Some(FormerUse::Idle(reader.u32()?)),
                    RESTORED_FREQUENCY => Some(FormerUse::Frequency(reader.u8()?)),
                    _ => return Err(Malformed("unknown use of a restored value")),
                };
                Restore { key, payload, deadline, replaces: how & 1 != 0, used }
            }
            CLEAR => Clear,
            PURGE => Purge { until: reader.u64()? },
            SKIP_VERSIONS => SkipVersions { by: reader.u64()? },
            EVICT => Evict { key: reader.bytes()?, version: reader.u64()? },
            REPLICATE => Replicate { key: reader.bytes()?, value: reader.bytes()?, version: reader.u64()? },
            SET_CODED => SetCoded {
                key: reader.bytes()?,
                reference: take_reference(reader)?,
                membership: reader.u32()?,
                expiry: take_expiry(reader)?,
                condition: condition(reader.u8()?)?,
                answer: match set_answer(reader.u8()?)? {
                    // It would need the bytes of the previous value.
                    SetAnswer::Before => return Err(Malformed("a coded value that asks for the one before")),
                    answer => answer,
                },
            },
            ABANDON => {
                let ValueId { coordinator, counter } = ValueId::take(reader)?;
                Abandon { coordinator, counter }
            }
            FORESEEN => Foreseen(super::Foreseen::decode(reader)?),
            SUPPLIED => Supplied(super::Supplied::decode(reader)?),
            BOUNDED => Bounded(super::Bounded::decode(reader)?),
            LONG_PART => {
                let (id, offset, length) = (ValueId::take(reader)?, reader.u32()?, reader.u32()?);
                LongPart { id, offset, length, bytes: reader.bytes()? }
            }
            LONG_END => {
                let (id, is_watching, epoch) = (ValueId::take(reader)?, reader.bool()?, reader.u64()?);
                LongEnd { id, watched_in: is_watching.then_some(epoch) }
            }
            _ => return Err(Malformed("unknown command tag")),
        })
    }
}

fn take_reference<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8; REFERENCE_BYTES], Malformed> {
    let bytes = reader.take(REFERENCE_BYTES)?;
    Reference::decode(bytes)?;
    bytes.try_into().map_err(|_| Malformed("ends early"))
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

impl<'a> Part<'a> for Expiry {
    fn put(self, out: &mut Vec<u8>) {
        put_expiry(out, self);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        take_expiry(reader)
    }
}

impl<'a> Part<'a> for Deadline {
    fn put(self, out: &mut Vec<u8>) {
        put_expiry(out, Expiry::Set(self));
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        match take_expiry(reader)? {
            Expiry::Set(deadline) => Ok(deadline),
            _ => Err(Malformed("an expiry without a deadline")),
        }
    }
}

/// An option that is encoded as one byte.
macro_rules! one_byte {
    ($name:ident, $take:ident) => {
        impl<'a> Part<'a> for $name {
            fn put(self, out: &mut Vec<u8>) {
                out.put_u8(self as u8);
            }

            fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
                $take(reader.u8()?)
            }
        }
    };
}

one_byte!(Condition, condition);
one_byte!(ExpiryUnit, expiry_unit);
one_byte!(ExpireCondition, expire_condition);

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
