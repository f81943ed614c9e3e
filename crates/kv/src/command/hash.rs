//! Commands on a key that holds a hash: fields, each with a value.

use super::declaration::{Needs, Part, family};
use super::{Deadline, ExpireCondition, Expiry, ExpiryUnit, FieldsCondition, List};
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
    HashCommand needs(Needs::Hash) {
        // Reads.
        /// A field's value, or null (`HGET`).
        Get = 1 "HGET" Reads { key: &'a [u8], field: &'a [u8] } first(field);
        /// The values of fields, null for a missing field (`HMGET`).
        MultiGet = 2 "HMGET" Reads { key: &'a [u8], fields: List<'a> } first(fields.first());
        /// All fields (`HGETALL`, `HKEYS`, `HVALS`): in the order in which they were added, or, of a large hash, in the
        /// order of their hashes.
        All = 3 (match part {
            HashPart::Fields => "HKEYS",
            HashPart::Values => "HVALS",
            HashPart::Both => "HGETALL",
        }) Reads { key: &'a [u8], part: HashPart }
            walks(true) lists(true);
        /// The number of fields (`HLEN`).
        Length = 4 "HLEN" Reads { key: &'a [u8] };
        /// Whether a field exists: 1 or 0 (`HEXISTS`).
        Exists = 5 "HEXISTS" Reads { key: &'a [u8], field: &'a [u8] } first(field);
        /// The length of a field's value in bytes (`HSTRLEN`).
        ValueLength = 6 "HSTRLEN" Reads { key: &'a [u8], field: &'a [u8] } first(field);
        /// Some fields from a cursor on, with their values if `with_values`, and the next cursor (`HSCAN`).
        Scan = 8 "HSCAN" Reads {
            key: &'a [u8], position: u64, count: u64, pattern: Option<&'a [u8]>, with_values: bool,
        } walks(true) lists(true);
        /// A field drawn at random, or null. With `count`: an array of that many distinct fields, or, if negative, of that
        /// many draws (`HRANDFIELD`).
        Random = 9 "HRANDFIELD" Reads { key: &'a [u8], count: Option<i64>, with_values: bool }
            walks(count.is_some());
        /// The expiries of fields: an array with -2 for a missing field, -1 for a field without a deadline (`HTTL` etc.).
        TimeToLive = 10 "HTTL" Reads { key: &'a [u8], fields: List<'a>, unit: ExpiryUnit }
            first(fields.first());

        // Writes.
        /// Removes fields; returns how many existed (`HDEL`).
        Delete = 66 "HDEL" Frees { key: &'a [u8], fields: List<'a> } first(fields.first()) event("hdel");
        /// Sets fields, which lose their deadlines; returns how many are new (`HSET`), or `OK` (`HMSET`).
        Set = 69 (if counts { "HSET" } else { "HMSET" }) Grows {
            key: &'a [u8], pairs: List<'a>, counts: bool,
        } first(pairs.first()) event("hset");
        /// Sets a field that does not exist; returns 1 or 0 (`HSETNX`).
        SetIfAbsent = 70 "HSETNX" Grows { key: &'a [u8], field: &'a [u8], value: &'a [u8] }
            first(field) event("hset");
        /// Adds to the integer in a field and returns the sum (`HINCRBY`).
        IncrementBy = 71 "HINCRBY" Grows { key: &'a [u8], field: &'a [u8], delta: i64 }
            first(field) event("hincrby");
        /// Adds to the decimal number in a field, given as validated text, and returns the sum (`HINCRBYFLOAT`).
        IncrementByFloat = 72 "HINCRBYFLOAT" Grows { key: &'a [u8], field: &'a [u8], delta: &'a [u8] }
            first(field) event("hincrbyfloat");
        /// Sets the deadline of fields: an array with 1, 0 if the condition forbids it, 2 if the deadline is past and the
        /// field is removed, -2 for a missing field (`HEXPIRE` etc.).
        Expire = 73 "HEXPIRE" Grows {
            key: &'a [u8], fields: List<'a>, deadline: Deadline, condition: ExpireCondition,
        } first(fields.first()) event("hexpire");
        /// Removes the deadlines of fields: an array with 1, -1 for a field without a deadline, -2 for a missing field
        /// (`HPERSIST`).
        Persist = 74 "HPERSIST" Changes { key: &'a [u8], fields: List<'a> }
            first(fields.first()) event("hpersist");
        /// Returns the values of fields and changes their expiry (`HGETEX`).
        GetExpire = 75 "HGETEX" Grows { key: &'a [u8], fields: List<'a>, expiry: Expiry }
            first(fields.first()) event(if expiry == Expiry::Clear { "hpersist" } else { "hexpire" });
        /// Sets fields with an expiry, if the condition holds; returns 1 or 0 (`HSETEX`).
        SetExpire = 76 "HSETEX" Grows {
            key: &'a [u8], pairs: List<'a>, expiry: Expiry, condition: FieldsCondition,
        } first(pairs.first()) event("hset");
        /// Returns the values of fields and removes them (`HGETDEL`).
        GetDelete = 77 "HGETDEL" Frees { key: &'a [u8], fields: List<'a> } first(fields.first()) event("hdel");
    }
}

impl<'a> HashCommand<'a> {
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
