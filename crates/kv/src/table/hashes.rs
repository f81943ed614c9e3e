//! Commands on hashes: `HSET`, `HGET` and their kin. For the representation of a hash see [`super::fields`].

use super::collections::Found;
use super::entry::{Entry, Kind};
use super::fields::{Edit, Fields, build};
use super::index::Place;
use super::numbers::{NOT_FINITE, OVERFLOW};
use super::strings::WRONG_KIND;
use super::{NO_DEADLINE, Record, Table};
use crate::command::{HashCommand, HashPart, List};
use crate::glob::Pattern;
use crate::limits::{BUILT_ANEW_MIN_LARGE, HASH_BYTES_MAX};
use crate::number::{self, FloatError};
use crate::reply::ReplyBuffer;
use crate::{UnixMs, Version};
use std::collections::{BTreeMap, BTreeSet};

const NOT_AN_INTEGER: &str = "ERR hash value is not an integer";
const NOT_A_FLOAT: &str = "ERR hash value is not a float";

/// If a command changes at least this many fields, the hash is rebuilt. Where each change takes long, fewer are enough.
const BUILT_ANEW_MIN: usize = 64;
/// Size in bytes from which each change of a hash takes long.
const LARGE_HASH_BYTES: usize = 1 << 20;

fn built_anew_min(bytes: usize) -> usize {
    if bytes >= LARGE_HASH_BYTES { BUILT_ANEW_MIN_LARGE } else { BUILT_ANEW_MIN }
}

/// `HSCAN` returns a hash of up to this many fields at once, as Redis does; `OBJECT ENCODING` uses the same limit.
const LISTPACK_FIELDS_MAX: usize = 512;
/// Longest field or value in what `OBJECT ENCODING` calls a listpack, in bytes.
const LISTPACK_ITEM_BYTES_MAX: usize = 64;

impl Fields<'_> {
    /// How Redis would store the hash, as `OBJECT ENCODING` reports it.
    pub(super) fn encoding(self) -> &'static [u8] {
        let is_short = |text: &[u8]| text.len() <= LISTPACK_ITEM_BYTES_MAX;
        let is_small = self.len() <= LISTPACK_FIELDS_MAX
            && self.iter().all(|(field, value)| is_short(field) && is_short(value));
        if is_small { b"listpack" } else { b"hashtable" }
    }
}

impl Table {
    pub(super) fn read_hash(
        &mut self,
        command: &HashCommand<'_>,
        now: UnixMs,
        out: &mut ReplyBuffer,
    ) -> Version {
        let entry = self.peek(command.key(), now);
        let (hit, version) = (entry.is_some(), entry.map_or(0, Entry::version));
        match entry {
            Some(entry) if entry.kind() != Kind::Hash => out.error(WRONG_KIND),
            entry => tell(command, entry.map(|entry| Fields::of(entry.value())), out),
        }
        self.count_lookup(hit);
        version
    }

    pub(super) fn change_hash(&mut self, command: &HashCommand<'_>, record: Record, out: &mut ReplyBuffer) {
        use HashCommand::*;
        let Ok(found) = self.find_kind(command.key(), Kind::Hash, record) else {
            return out.error(WRONG_KIND);
        };
        match *command {
            Set { pairs, bytes_max, counts, .. } => match self.set_fields(found, pairs, bytes_max, record) {
                Ok(added) if counts => out.integer(added as i64),
                Ok(_) => out.ok(),
                Err(error) => out.error(&error),
            },
            SetIfAbsent { field, value, bytes_max, .. } => match self.field(found, field) {
                Some(_) => out.integer(0),
                None => match self.set_field(found, field, value, bytes_max, record) {
                    Ok(()) => out.integer(1),
                    Err(error) => out.error(&error),
                },
            },
            Delete { fields, .. } => out.integer(self.delete_fields(found, fields, record) as i64),
            IncrementBy { field, delta, bytes_max, .. } => {
                let before = self.field(found, field).map_or(Some(0), number::parse_integer);
                let Some(before) = before else { return out.error(NOT_AN_INTEGER) };
                let Some(sum) = before.checked_add(delta) else { return out.error(OVERFLOW) };
                let mut buffer = [0; number::INTEGER_TEXT_BYTES_MAX];
                let text = number::format_integer(sum, &mut buffer);
                match self.set_field(found, field, text, bytes_max, record) {
                    Ok(()) => out.integer(sum),
                    Err(error) => out.error(&error),
                }
            }
            IncrementByFloat { field, delta, bytes_max, .. } => {
                let before = self.field(found, field).unwrap_or(b"0");
                let sum = match number::add_floats(before, delta) {
                    Ok(sum) => sum,
                    Err(FloatError::NotANumber) => return out.error(NOT_A_FLOAT),
                    Err(FloatError::NotFinite) => return out.error(NOT_FINITE),
                };
                match self.set_field(found, field, sum.as_bytes(), bytes_max, record) {
                    Ok(()) => out.bulk(sum.as_bytes()),
                    Err(error) => out.error(&error),
                }
            }
            // Answered by `read_hash`.
            Get { .. } | MultiGet { .. } | All { .. } | Length { .. } => {}
            Exists { .. } | ValueLength { .. } | Scan { .. } => {}
        }
    }

    fn fields(&self, found: Found<'_>) -> Option<Fields<'_>> {
        found.place.map(|place| Fields::of(self.index.entry(place).value()))
    }

    fn field(&self, found: Found<'_>, field: &[u8]) -> Option<&[u8]> {
        self.fields(found)?.get(field)
    }

    /// Sets one field. Does nothing if that would make the hash too large.
    fn set_field(
        &mut self,
        found: Found<'_>,
        field: &[u8],
        value: &[u8],
        bytes_max: u64,
        record: Record,
    ) -> Result<(), String> {
        let Some(place) = found.place else {
            let bytes = build(std::iter::once((field, value)));
            check_size(bytes.len(), bytes_max)?;
            self.insert_hash(found, &bytes, record);
            return Ok(());
        };
        let edit = Fields::of(self.index.entry(place).value()).set(field, value);
        check_size(edit.length_after(), bytes_max)?;
        self.make(edit, place, record);
        Ok(())
    }

    /// Sets fields and returns how many are new. Does nothing if that would make the hash too large.
    fn set_fields(
        &mut self,
        found: Found<'_>,
        pairs: List<'_>,
        bytes_max: u64,
        record: Record,
    ) -> Result<usize, String> {
        if let [Some((field, value)), None] = {
            let mut all = pairs.pairs();
            [all.next(), all.next()]
        } {
            let is_new = self.field(found, field).is_none();
            self.set_field(found, field, value, bytes_max, record)?;
            return Ok(is_new.into());
        }
        let held = self.fields(found);
        let held_bytes = held.map_or(0, |fields| fields.byte_count());
        let given: usize = pairs.pairs().map(|(field, value)| Fields::bytes_of(field, value)).sum();
        let is_surely_small = check_size(held_bytes + given, bytes_max).is_ok();
        if let Some(place) = found.place
            && is_surely_small
            && pairs.len() / 2 < built_anew_min(held_bytes)
        {
            let mut added = 0;
            for (field, value) in pairs.pairs() {
                let edit = Fields::of(self.index.entry(place).value()).set(field, value);
                added += usize::from(edit.adds());
                self.make(edit, place, record);
            }
            return Ok(added);
        }
        // The last value given for a field counts; the field keeps the position of its first occurrence.
        let values: BTreeMap<&[u8], &[u8]> = pairs.pairs().collect();
        let mut told = BTreeSet::new();
        let old = held.into_iter().flat_map(Fields::iter);
        let old = old.map(|(field, value)| (field, values.get(field).copied().unwrap_or(value)));
        let is_new = |field: &[u8]| held.is_none_or(|held| held.get(field).is_none());
        let new = pairs.pairs().map(|(field, _)| field).filter(|field| is_new(field) && told.insert(*field));
        let new: Vec<_> = new.map(|field| (field, values.get(field).copied().unwrap_or_default())).collect();
        let added = new.len();
        let bytes = build(old.chain(new));
        check_size(bytes.len(), bytes_max)?;
        self.replace_hash(found, &bytes, record);
        Ok(added)
    }

    /// Removes fields and returns how many existed. A hash without fields is removed.
    fn delete_fields(&mut self, found: Found<'_>, fields: List<'_>, record: Record) -> usize {
        let (Some(place), Some(held)) = (found.place, self.fields(found)) else { return 0 };
        let before = held.len();
        let unwanted: BTreeSet<&[u8]> = fields.iter().filter(|field| held.get(field).is_some()).collect();
        if unwanted.len() == before {
            self.remove(place, record);
        } else if unwanted.len() >= built_anew_min(held.byte_count()) {
            let bytes = build(held.iter().filter(|(field, _)| !unwanted.contains(field)));
            self.replace_hash(found, &bytes, record);
        } else {
            for field in &unwanted {
                if let Some(edit) = Fields::of(self.index.entry(place).value()).remove(field) {
                    self.make(edit, place, record);
                }
            }
        }
        unwanted.len()
    }

    fn make(&mut self, edit: Edit<'_>, place: Place, record: Record) {
        self.edit_hash(place, edit.length_after(), record, |bytes| edit.apply(bytes));
    }

    fn insert_hash(&mut self, found: Found<'_>, bytes: &[u8], record: Record) {
        let entry = Entry::new(found.key, bytes, record.stamp(NO_DEADLINE, Kind::Hash));
        self.insert(found.hash, entry, record);
    }

    fn replace_hash(&mut self, found: Found<'_>, bytes: &[u8], record: Record) {
        let Some(place) = found.place else { return self.insert_hash(found, bytes, record) };
        let deadline = self.index.entry(place).deadline();
        self.overwrite(place, bytes, deadline, Kind::Hash, record);
    }
}

fn check_size(bytes: usize, bytes_max: u64) -> Result<(), String> {
    let most = bytes_max.min(HASH_BYTES_MAX as u64);
    match bytes as u64 > most {
        true => Err(format!("ERR the hash would take more than {most} bytes; nothing was done")),
        false => Ok(()),
    }
}

fn tell(command: &HashCommand<'_>, fields: Option<Fields<'_>>, out: &mut ReplyBuffer) {
    use HashCommand::*;
    let get = |field| fields.and_then(|fields| fields.get(field));
    let tell_value = |value: Option<&[u8]>, out: &mut ReplyBuffer| match value {
        Some(value) => out.bulk(value),
        None => out.null(),
    };
    let count = fields.map_or(0, |fields| fields.len());
    match *command {
        Get { field, .. } => tell_value(get(field), out),
        MultiGet { fields: wanted, .. } => {
            let told: usize = wanted.iter().filter_map(get).map(<[u8]>::len).sum();
            if told > out.reply_bytes_max() {
                // One field may be requested many times.
                return super::reads::refuse_large_reply(out.len(), out);
            }
            out.array(wanted.len());
            wanted.iter().for_each(|field| tell_value(get(field), out));
        }
        All { part, .. } => {
            if part == HashPart::Both {
                out.map(count)
            } else {
                out.array(count)
            }
            for (field, value) in fields.into_iter().flat_map(Fields::iter) {
                if part != HashPart::Values {
                    out.bulk(field);
                }
                if part != HashPart::Fields {
                    out.bulk(value);
                }
            }
        }
        Length { .. } => out.integer(count as i64),
        Exists { field, .. } => out.integer(get(field).is_some().into()),
        ValueLength { field, .. } => out.integer(get(field).map_or(0, <[u8]>::len) as i64),
        Scan { position, count: wanted, pattern, .. } => {
            let pattern = pattern.map(Pattern::new);
            let mut told = Vec::new();
            let mut note = |field, value| {
                if pattern.as_ref().is_none_or(|pattern| pattern.matches(field)) {
                    told.push((field, value));
                }
            };
            let mut next = 0;
            if let Some(fields) = fields {
                if count <= LISTPACK_FIELDS_MAX {
                    fields.iter().for_each(|(field, value)| note(field, value));
                } else {
                    next = fields.scan(position, wanted, note);
                }
            }
            out.array(2);
            out.bulk(next.to_string().as_bytes());
            out.array(2 * told.len());
            for (field, value) in told {
                out.bulk(field);
                out.bulk(value);
            }
        }
        // Carried out by `change_hash`.
        Set { .. } | SetIfAbsent { .. } | Delete { .. } | IncrementBy { .. } | IncrementByFloat { .. } => {}
    }
}
