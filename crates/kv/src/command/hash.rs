//! Commands on a key that holds a hash: fields, each with a value.

use super::List;
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

/// A command on a hash. A key that does not exist is a hash without fields, and a hash without fields does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The fields are named after the terms in the variants' docs.
pub enum HashCommand<'a> {
    // Reads.
    /// A field's value, or null (`HGET`).
    Get { key: &'a [u8], field: &'a [u8] },
    /// The values of fields, null for a missing field (`HMGET`).
    MultiGet { key: &'a [u8], fields: List<'a> },
    /// All fields, in the order in which they were added (`HGETALL`, `HKEYS`, `HVALS`).
    All { key: &'a [u8], part: HashPart },
    /// The number of fields (`HLEN`).
    Length { key: &'a [u8] },
    /// Whether a field exists: 1 or 0 (`HEXISTS`).
    Exists { key: &'a [u8], field: &'a [u8] },
    /// The length of a field's value in bytes (`HSTRLEN`).
    ValueLength { key: &'a [u8], field: &'a [u8] },
    /// Some fields with their values from a cursor on, and the next cursor (`HSCAN`).
    Scan { key: &'a [u8], position: u64, count: u64, pattern: Option<&'a [u8]> },

    // Writes. `bytes_max` limits the bytes of the whole hash.
    /// Sets fields; returns how many are new (`HSET`), or `OK` (`HMSET`).
    Set { key: &'a [u8], pairs: List<'a>, bytes_max: u64, counts: bool },
    /// Sets a field that does not exist; returns 1 or 0 (`HSETNX`).
    SetIfAbsent { key: &'a [u8], field: &'a [u8], value: &'a [u8], bytes_max: u64 },
    /// Removes fields; returns how many existed (`HDEL`).
    Delete { key: &'a [u8], fields: List<'a> },
    /// Adds to the integer in a field and returns the sum (`HINCRBY`).
    IncrementBy { key: &'a [u8], field: &'a [u8], delta: i64, bytes_max: u64 },
    /// Adds to the decimal number in a field, given as validated text, and returns the sum (`HINCRBYFLOAT`).
    IncrementByFloat { key: &'a [u8], field: &'a [u8], delta: &'a [u8], bytes_max: u64 },
}

// Tags of the encoding. Writes are from 64 on. A tag is never reused for another command.
const GET: u8 = 1;
const MULTI_GET: u8 = 2;
const ALL: u8 = 3;
const LENGTH: u8 = 4;
const EXISTS: u8 = 5;
const VALUE_LENGTH: u8 = 6;
const SCAN: u8 = 7;
const SET: u8 = 64;
const SET_IF_ABSENT: u8 = 65;
const DELETE: u8 = 66;
const INCREMENT_BY: u8 = 67;
const INCREMENT_BY_FLOAT: u8 = 68;

impl<'a> HashCommand<'a> {
    /// Whether it may change the table.
    pub fn is_write(&self) -> bool {
        use HashCommand::*;
        match self {
            Get { .. } | MultiGet { .. } | All { .. } | Length { .. } => false,
            Exists { .. } | ValueLength { .. } | Scan { .. } => false,
            Set { .. } | SetIfAbsent { .. } | Delete { .. } => true,
            IncrementBy { .. } | IncrementByFloat { .. } => true,
        }
    }

    /// The most fields that it changes.
    pub fn changes(&self) -> usize {
        use HashCommand::*;
        match self {
            Set { pairs, .. } => pairs.len() / 2,
            Delete { fields, .. } => fields.len(),
            _ => usize::from(self.is_write()),
        }
    }

    /// The hash's key.
    pub fn key(&self) -> &'a [u8] {
        use HashCommand::*;
        match *self {
            Get { key, .. } | MultiGet { key, .. } | All { key, .. } | Length { key } => key,
            Exists { key, .. } | ValueLength { key, .. } | Scan { key, .. } => key,
            Set { key, .. } | SetIfAbsent { key, .. } | Delete { key, .. } => key,
            IncrementBy { key, .. } | IncrementByFloat { key, .. } => key,
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
            Set { counts: true, .. } => "HSET",
            Set { counts: false, .. } => "HMSET",
            SetIfAbsent { .. } => "HSETNX",
            Delete { .. } => "HDEL",
            IncrementBy { .. } => "HINCRBY",
            IncrementByFloat { .. } => "HINCRBYFLOAT",
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        use HashCommand::*;
        let begin = |out: &mut Vec<u8>, tag: u8| {
            out.put_u8(tag);
            out.put_bytes(self.key());
        };
        match *self {
            Get { field, .. } => {
                begin(out, GET);
                out.put_bytes(field);
            }
            MultiGet { fields, .. } => {
                begin(out, MULTI_GET);
                fields.encode(out);
            }
            All { part, .. } => {
                begin(out, ALL);
                out.put_u8(part as u8);
            }
            Length { .. } => begin(out, LENGTH),
            Exists { field, .. } => {
                begin(out, EXISTS);
                out.put_bytes(field);
            }
            ValueLength { field, .. } => {
                begin(out, VALUE_LENGTH);
                out.put_bytes(field);
            }
            Scan { position, count, pattern, .. } => {
                begin(out, SCAN);
                out.put_u64(position);
                out.put_u64(count);
                out.put_bool(pattern.is_some());
                out.put_bytes(pattern.unwrap_or_default());
            }
            Set { pairs, bytes_max, counts, .. } => {
                begin(out, SET);
                pairs.encode(out);
                out.put_u64(bytes_max);
                out.put_bool(counts);
            }
            SetIfAbsent { field, value, bytes_max, .. } => {
                begin(out, SET_IF_ABSENT);
                out.put_bytes(field);
                out.put_bytes(value);
                out.put_u64(bytes_max);
            }
            Delete { fields, .. } => {
                begin(out, DELETE);
                fields.encode(out);
            }
            IncrementBy { field, delta, bytes_max, .. } => {
                begin(out, INCREMENT_BY);
                out.put_bytes(field);
                out.put_i64(delta);
                out.put_u64(bytes_max);
            }
            IncrementByFloat { field, delta, bytes_max, .. } => {
                begin(out, INCREMENT_BY_FLOAT);
                out.put_bytes(field);
                out.put_bytes(delta);
                out.put_u64(bytes_max);
            }
        }
    }

    pub(super) fn decode(reader: &mut Reader<'a>, writes: bool) -> Result<HashCommand<'a>, Malformed> {
        use HashCommand::*;
        let tag = reader.u8()?;
        let key = reader.bytes()?;
        let command = match tag {
            GET => Get { key, field: reader.bytes()? },
            MULTI_GET => MultiGet { key, fields: List::decode(reader)? },
            ALL => All { key, part: part(reader.u8()?)? },
            LENGTH => Length { key },
            EXISTS => Exists { key, field: reader.bytes()? },
            VALUE_LENGTH => ValueLength { key, field: reader.bytes()? },
            SCAN => {
                let (position, count) = (reader.u64()?, reader.u64()?);
                let (has_pattern, pattern) = (reader.bool()?, reader.bytes()?);
                Scan { key, position, count, pattern: has_pattern.then_some(pattern) }
            }
            SET => {
                let pairs = List::decode(reader)?;
                if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
                    return Err(Malformed("fields without values"));
                }
                Set { key, pairs, bytes_max: reader.u64()?, counts: reader.bool()? }
            }
            SET_IF_ABSENT => {
                SetIfAbsent { key, field: reader.bytes()?, value: reader.bytes()?, bytes_max: reader.u64()? }
            }
            DELETE => Delete { key, fields: List::decode(reader)? },
            INCREMENT_BY => {
                IncrementBy { key, field: reader.bytes()?, delta: reader.i64()?, bytes_max: reader.u64()? }
            }
            INCREMENT_BY_FLOAT => IncrementByFloat {
                key,
                field: reader.bytes()?,
                delta: reader.bytes()?,
                bytes_max: reader.u64()?,
            },
            _ => return Err(Malformed("unknown command on a hash")),
        };
        match command.is_write() == writes {
            true => Ok(command),
            false => Err(Malformed("a command on a hash is not what it says")),
        }
    }
}

fn part(tag: u8) -> Result<HashPart, Malformed> {
    use HashPart::*;
    [Fields, Values, Both].get(tag as usize).copied().ok_or(Malformed("unknown part of a hash"))
}
