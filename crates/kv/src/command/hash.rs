//! Commands on a key that holds a hash: fields, each with a value.

use super::family::{Part, family};
use super::{Condition, Deadline, ExpireCondition, Expiry, ExpiryUnit, List};
use crate::codec::{Malformed, Reader, Writer};

/// The part of a hash's fields to return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashPart {
    /// Their names (`HKEYS`).
    Fields,
    /// Their values (`HVALS`).
    Values,
    /// Both: a map (`HGETALL`).
    Both,
}

impl<'a> Part<'a> for HashPart {
    fn put(self, out: &mut Vec<u8>) {
        out.put_u8(self as u8);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        use HashPart::*;
        let tag = reader.u8()? as usize;
        [Fields, Values, Both].get(tag).copied().ok_or(Malformed("unknown part of a hash"))
    }
}

family! {
    /// A command on a hash. A key that does not exist is an empty hash, and an empty hash does not exist. A field may have
    /// a deadline of its own, from which on it is missing.
    HashCommand {
        // Reads.
        /// A field's value, or null (`HGET`).
        Get = 1 { key: &'a [u8], field: &'a [u8] }
        /// The values of fields, null for a missing field (`HMGET`).
        MultiGet = 2 { key: &'a [u8], fields: List<'a> }
        /// All fields (`HGETALL`, `HKEYS`, `HVALS`): in the order in which they were added, or, of a large hash, in the
        /// order of their hashes.
        All = 3 { key: &'a [u8], part: HashPart }
        /// The number of fields (`HLEN`).
        Length = 4 { key: &'a [u8] }
        /// Whether a field exists: 1 or 0 (`HEXISTS`).
        Exists = 5 { key: &'a [u8], field: &'a [u8] }
        /// The length of a field's value in bytes (`HSTRLEN`).
        ValueLength = 6 { key: &'a [u8], field: &'a [u8] }
        /// Some fields from a cursor on, with their values if `with_values`, and the next cursor (`HSCAN`).
        Scan = 8 { key: &'a [u8], position: u64, count: u64, pattern: Option<&'a [u8]>, with_values: bool }
        /// A field drawn at random, or null. With `count`: an array of that many distinct fields, or, if negative, of that
        /// many draws (`HRANDFIELD`).
        Random = 9 { key: &'a [u8], count: Option<i64>, with_values: bool }
        /// The expiries of fields: an array with -2 for a missing field, -1 for a field without a deadline (`HTTL` etc.).
        TimeToLive = 10 { key: &'a [u8], fields: List<'a>, unit: ExpiryUnit }

        // Writes.
        /// Removes fields; returns how many existed (`HDEL`).
        Delete = 66 { key: &'a [u8], fields: List<'a> }
        /// Sets fields, which lose their deadlines; returns how many are new (`HSET`), or `OK` (`HMSET`).
        Set = 69 { key: &'a [u8], pairs: List<'a>, counts: bool }
        /// Sets a field that does not exist; returns 1 or 0 (`HSETNX`).
        SetIfAbsent = 70 { key: &'a [u8], field: &'a [u8], value: &'a [u8] }
        /// Adds to the integer in a field and returns the sum (`HINCRBY`).
        IncrementBy = 71 { key: &'a [u8], field: &'a [u8], delta: i64 }
        /// Adds to the decimal number in a field, given as validated text, and returns the sum (`HINCRBYFLOAT`).
        IncrementByFloat = 72 { key: &'a [u8], field: &'a [u8], delta: &'a [u8] }
        /// Sets the deadline of fields: an array with 1, 0 if the condition forbids it, 2 if the deadline is past and the
        /// field is removed, -2 for a missing field (`HEXPIRE` etc.).
        Expire = 73 { key: &'a [u8], fields: List<'a>, deadline: Deadline, condition: ExpireCondition }
        /// Removes the deadlines of fields: an array with 1, -1 for a field without a deadline, -2 for a missing field
        /// (`HPERSIST`).
        Persist = 74 { key: &'a [u8], fields: List<'a> }
        /// Returns the values of fields and changes their expiry (`HGETEX`).
        GetExpire = 75 { key: &'a [u8], fields: List<'a>, expiry: Expiry }
        /// Sets fields with an expiry, if the condition holds for all of them; returns 1 or 0 (`HSETEX`).
        SetExpire = 76 { key: &'a [u8], pairs: List<'a>, expiry: Expiry, condition: Condition }
        /// Returns the values of fields and removes them (`HGETDEL`).
        GetDelete = 77 { key: &'a [u8], fields: List<'a> }
    }
}

impl<'a> HashCommand<'a> {
    /// The first field that it looks for; empty if it looks for none.
    pub(super) fn first_name(&self) -> &'a [u8] {
        use HashCommand::*;
        match *self {
            Get { field, .. } | Exists { field, .. } | ValueLength { field, .. } => field,
            SetIfAbsent { field, .. } | IncrementBy { field, .. } | IncrementByFloat { field, .. } => field,
            MultiGet { fields, .. } | Delete { fields, .. } | TimeToLive { fields, .. } => fields.first(),
            Expire { fields, .. } | Persist { fields, .. } | GetExpire { fields, .. } => fields.first(),
            GetDelete { fields, .. } => fields.first(),
            Set { pairs, .. } | SetExpire { pairs, .. } => pairs.first(),
            All { .. } | Length { .. } | Scan { .. } | Random { .. } => &[],
        }
    }

    /// The hash's key.
    pub fn key(&self) -> &'a [u8] {
        use HashCommand::*;
        match *self {
            Get { key, .. } | MultiGet { key, .. } | All { key, .. } | Length { key } => key,
            Exists { key, .. } | ValueLength { key, .. } | Scan { key, .. } | Random { key, .. } => key,
            TimeToLive { key, .. } | Set { key, .. } | SetIfAbsent { key, .. } | Delete { key, .. } => key,
            IncrementBy { key, .. } | IncrementByFloat { key, .. } | Expire { key, .. } => key,
            Persist { key, .. } | GetExpire { key, .. } | SetExpire { key, .. } | GetDelete { key, .. } => {
                key
            }
        }
    }

    /// Its name as clients know it.
    pub fn name(&self) -> &'static str {
        use HashCommand::*;
        match self {
            Get { .. } => "HGET",
            MultiGet { .. } => "HMGET",
            All { part: HashPart::Fields, .. } => "HKEYS",
            All { part: HashPart::Values, .. } => "HVALS",
            All { part: HashPart::Both, .. } => "HGETALL",
            Length { .. } => "HLEN",
            Exists { .. } => "HEXISTS",
            ValueLength { .. } => "HSTRLEN",
            Scan { .. } => "HSCAN",
            Random { .. } => "HRANDFIELD",
            TimeToLive { .. } => "HTTL",
            Set { counts: true, .. } => "HSET",
            Set { counts: false, .. } => "HMSET",
            SetIfAbsent { .. } => "HSETNX",
            Delete { .. } => "HDEL",
            IncrementBy { .. } => "HINCRBY",
            IncrementByFloat { .. } => "HINCRBYFLOAT",
            Expire { .. } => "HEXPIRE",
            Persist { .. } => "HPERSIST",
            GetExpire { .. } => "HGETEX",
            SetExpire { .. } => "HSETEX",
            GetDelete { .. } => "HGETDEL",
        }
    }

    /// Whether it may enlarge the data.
    pub(super) fn may_grow(&self) -> bool {
        use HashCommand::*;
        let grows = matches!(self, Set { .. } | SetIfAbsent { .. } | IncrementBy { .. } | SetExpire { .. });
        grows || matches!(self, IncrementByFloat { .. } | Expire { .. } | GetExpire { .. })
    }

    /// Whether it only removes fields.
    pub(super) fn only_deletes(&self) -> bool {
        matches!(self, Self::Delete { .. } | Self::GetDelete { .. })
    }

    /// Whether it may read or return many fields.
    pub(super) fn may_walk(&self) -> bool {
        use HashCommand::*;
        matches!(self, All { .. } | Scan { .. } | Random { count: Some(_), .. })
    }

    /// The most bytes of the hash that it reads or returns. `bytes_of` returns the size of a key.
    pub(super) fn walked_bytes(&self, bytes_of: impl Fn(&[u8]) -> u64) -> u64 {
        use HashCommand::*;
        /// The cost of finding one field.
        const FIELD_BYTES: u64 = 512;
        let part = |bytes: u64, fields: u64| bytes.saturating_mul(4).min(fields.saturating_mul(FIELD_BYTES));
        match *self {
            All { key, .. } => bytes_of(key),
            Random { key, count: Some(count @ 0..), .. } => part(bytes_of(key), count.unsigned_abs()),
            Random { count: Some(count), .. } => count.unsigned_abs().saturating_mul(FIELD_BYTES),
            Scan { key, count, pattern, .. } => {
                part(bytes_of(key), count.max(crate::limits::SCANNED_AT_ONCE))
                    .saturating_mul(1 + pattern.map_or(0, <[u8]>::len) as u64 / 8)
            }
            _ => 0,
        }
    }
}
