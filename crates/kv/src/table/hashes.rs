//! Commands on hashes: `HSET`, `HGET` and their kin. For the representation see [`super::collections`] and
//! [`super::fields`].
//!
//! A field is missing from its deadline on, for reads by the reader's clock and for writes by the record's time. What is
//! left of it is removed by the write that sets it again, or by a purge ([`super::expire`]).

use super::collections::{Collection, Found, HASH_BYTES, KEY_BYTES, Key, find_key};
use super::entry::{Entry, Kind};
use super::expire::allows;
use super::fields::Field;
use super::numbers::{NOT_FINITE, OVERFLOW};
use super::reads::refuse_large_reply;
use super::sets::Draws;
use super::strings::WRONG_KIND;
use super::transactions::CUT_WRITE;
use super::tree::{Discarded, Items, Tree};
use super::{NO_DEADLINE, Record, Table};
use crate::command::{
    Condition, Deadline, EncodingLimits, ExpireCondition, Expiry, ExpiryUnit, HashCommand, HashPart, List,
};
use crate::glob::Pattern;
use crate::limits::SCANNED_AT_ONCE;
use crate::number::{self, FloatError};
use crate::reply::{Reply, ReplyBuffer};
use crate::{UnixMs, Version};

const NOT_AN_INTEGER: &str = "ERR hash value is not an integer";
const NOT_A_FLOAT: &str = "ERR hash value is not a float";

// What commands on deadlines of fields answer for each.
const NO_FIELD: i64 = -2;
const WITHOUT_DEADLINE: i64 = -1;
const FORBIDDEN: i64 = 0;
const DONE: i64 = 1;
const EXPIRED: i64 = 2;

/// How many fields `HRANDFIELD` draws before it answers that there is none, if all it drew have expired.
const TRIES: usize = 100;

/// How Redis would store a hash, as `OBJECT ENCODING` reports it.
pub(super) fn encoding(entry: &Entry, limits: &EncodingLimits) -> &'static [u8] {
    let items = entry.items();
    let is_short = |text: &[u8]| text.len() <= limits.hash_item_bytes as usize;
    let is_small = items.len() <= limits.hash_fields as usize
        && items.iter_from(0).map(Field::of).all(|field| is_short(field.name) && is_short(field.value));
    match (is_small, entry.has_deadlines()) {
        (true, true) => b"listpackex",
        (true, false) => b"listpack",
        (false, _) => b"hashtable",
    }
}

/// A read-only view of a hash at one time.
#[derive(Clone, Copy)]
struct Hash<'a> {
    items: Items<'a>,
    /// In which a large hash's fields are found.
    names: Option<&'a Tree>,
    /// The deadlines of a large hash's fields.
    due: Option<Items<'a>>,
    has_deadlines: bool,
    now: UnixMs,
}

impl<'a> Hash<'a> {
    fn of(entry: Option<&'a Entry>, now: UnixMs) -> Hash<'a> {
        let collection = entry.and_then(Entry::collection);
        Hash {
            items: entry.map_or(Items::EMPTY, Entry::items),
            names: collection.and_then(Collection::names),
            due: collection.map(Collection::due),
            has_deadlines: entry.is_some_and(Entry::has_deadlines),
            now,
        }
    }

    /// The rank of a field, whether or not it has expired, and the field.
    fn find(self, name: &[u8]) -> Option<(usize, Field<'a>)> {
        if self.names.is_none() {
            let mut fields = self.items.iter_from(0).map(Field::of).enumerate();
            return fields.find(|(_, field)| field.name == name);
        }
        let number = find_key(Kind::Hash, self.items, self.names, name)?;
        let (rank, mut items) = self.items.iter_from_key(&number);
        Some((rank, Field::of(items.next()?)))
    }

    fn get(self, name: &[u8]) -> Option<Field<'a>> {
        self.find(name).map(|(_, field)| field).filter(|field| field.is_live(self.now))
    }

    fn value(self, name: &[u8]) -> Option<&'a [u8]> {
        self.get(name).map(|field| field.value)
    }

    /// The fields that have not expired, in the order in which they were added.
    fn iter(self) -> impl Iterator<Item = Field<'a>> {
        self.items.iter_from(0).map(Field::of).filter(move |field| field.is_live(self.now))
    }

    /// The number of fields that have not expired.
    fn len(self) -> usize {
        match self.due {
            _ if !self.has_deadlines => self.items.len(),
            Some(due) => self.items.len() - due.seek(&(self.now + 1).to_be_bytes()),
            None => self.iter().count(),
        }
    }

    /// The fields of these ranks, without those that have expired.
    fn at(self, ranks: impl Iterator<Item = usize>) -> Vec<Field<'a>> {
        let fields = ranks.filter_map(|rank| self.items.get(rank)).map(Field::of);
        fields.filter(|field| field.is_live(self.now)).collect()
    }
}

/// A field of the hash that an entry holds.
pub(super) fn field_of<'a>(entry: &'a Entry, name: &[u8], now: UnixMs) -> Option<Field<'a>> {
    Hash::of(Some(entry), now).get(name)
}

impl Collection {
    /// Adds a field behind all others.
    pub(super) fn add_field(&mut self, name: &[u8], value: &[u8], deadline: UnixMs) {
        let last = self.len().checked_sub(1).and_then(|last| self.items().get(last));
        let number = last.map_or(0, |item| u64::from_be_bytes(Field::of(item).number) + 1).to_be_bytes();
        let mut item = Vec::with_capacity(KEY_BYTES + 16 + name.len() + value.len());
        Field { number, deadline, name, value }.put(&mut item);
        self.add_named(&item);
    }

    fn as_hash(&self, now: UnixMs) -> Hash<'_> {
        let due = self.due();
        Hash { items: self.items(), names: self.names(), due: Some(due), has_deadlines: due.len() > 0, now }
    }

    /// Sets a field with the deadline that follows from the present one. Returns whether the field is new.
    fn set_field(
        &mut self,
        (name, value): (&[u8], &[u8]),
        deadline: impl Fn(UnixMs) -> UnixMs,
        now: UnixMs,
        discarded: &mut Discarded,
    ) -> bool {
        match self.as_hash(now).find(name) {
            Some((rank, field)) if field.is_live(now) => {
                let mut item = Vec::with_capacity(KEY_BYTES + 16 + name.len() + value.len());
                Field { value, deadline: deadline(field.deadline), ..field }.put(&mut item);
                self.replace_named(rank, &item, discarded);
                return false;
            }
            // One that comes back after it has expired is new.
            Some((rank, _)) => self.remove_named(rank..rank + 1, discarded),
            None => {}
        }
        self.add_field(name, value, deadline(NO_DEADLINE));
        true
    }

    /// Changes the deadline of a field that exists.
    fn set_deadline(&mut self, name: &[u8], deadline: UnixMs, now: UnixMs, discarded: &mut Discarded) {
        let Some((rank, field)) = self.as_hash(now).find(name) else { return };
        if field.is_live(now) && field.deadline != deadline {
            let mut item = Vec::new();
            Field { deadline, ..field }.put(&mut item);
            self.replace_named(rank, &item, discarded);
        }
    }

    /// Removes a field; returns whether it existed.
    fn remove_field(&mut self, name: &[u8], now: UnixMs, discarded: &mut Discarded) -> bool {
        let Some((rank, field)) = self.as_hash(now).find(name) else { return false };
        let is_live = field.is_live(now);
        self.remove_named(rank..rank + 1, discarded);
        is_live
    }

    /// Removes at most `most` fields whose deadline is at or before `until`; returns how many.
    pub(super) fn remove_due_fields(
        &mut self,
        until: UnixMs,
        most: usize,
        discarded: &mut Discarded,
    ) -> usize {
        let is_due = |item: &&[u8]| item.first_chunk().is_some_and(|it| u64::from_be_bytes(*it) <= until);
        let due: Vec<Vec<u8>> =
            self.due().iter_from(0).take_while(is_due).take(most).map(<[u8]>::to_vec).collect();
        for item in &due {
            let rank = self.items().seek(&item[KEY_BYTES..]);
            self.remove_named(rank..rank + 1, discarded);
        }
        due.len()
    }
}

impl Table {
    pub(super) fn read_hash(
        &mut self,
        command: &HashCommand<'_>,
        now: UnixMs,
        out: &mut ReplyBuffer,
    ) -> Version {
        let mut draws = self.draws_to_read();
        let entry = self.peek(command.key(), now);
        let (hit, version) = (entry.is_some(), entry.map_or(0, Entry::version));
        match entry {
            Some(entry) if entry.kind() != Kind::Hash => out.error(WRONG_KIND),
            entry => tell(command, Hash::of(entry, now), &mut draws, out),
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
            Set { pairs, counts, .. } => {
                let added = self.set_fields(found, pairs, |_| NO_DEADLINE, record);
                if counts { out.integer(added as i64) } else { out.ok() }
            }
            SetIfAbsent { field, value, .. } => {
                let is_there = self.hash_at(found, record).get(field).is_some();
                if !is_there {
                    self.set_value(found, field, value, record);
                }
                out.integer(i64::from(!is_there));
            }
            Delete { fields, .. } => out.integer(self.delete_fields(found, fields, record) as i64),
            IncrementBy { field, delta, .. } => {
                let before = self.hash_at(found, record).value(field).map_or(Some(0), number::parse_integer);
                let Some(before) = before else { return out.error(NOT_AN_INTEGER) };
                let Some(sum) = before.checked_add(delta) else { return out.error(OVERFLOW) };
                let mut buffer = [0; number::INTEGER_TEXT_BYTES_MAX];
                self.set_value(found, field, number::format_integer(sum, &mut buffer), record);
                out.integer(sum);
            }
            IncrementByFloat { field, delta, .. } => {
                let before = self.hash_at(found, record).value(field).unwrap_or(b"0");
                let sum = match number::add_floats(before, delta) {
                    Ok(sum) => sum,
                    Err(FloatError::NotANumber) => return out.error(NOT_A_FLOAT),
                    Err(FloatError::NotFinite) => return out.error(NOT_FINITE),
                };
                self.set_value(found, field, sum.as_bytes(), record);
                out.bulk(sum.as_bytes());
            }
            Expire { fields, deadline, condition, .. } => {
                self.expire_fields(found, fields, (deadline, condition), record, out);
            }
            Persist { fields, .. } => self.persist_fields(found, fields, record, out),
            GetExpire { fields, expiry, .. } => {
                self.tell_values(found, fields, record, out);
                match expiry {
                    Expiry::Keep => {}
                    Expiry::Clear => self.set_deadlines(found, fields, NO_DEADLINE, record),
                    Expiry::Set(deadline) => {
                        self.set_deadlines(found, fields, record.deadline(deadline), record);
                    }
                }
            }
            SetExpire { pairs, expiry, condition, .. } => {
                let hash = self.hash_at(found, record);
                let mut names = pairs.pairs().map(|(name, _)| hash.get(name).is_some());
                let allowed = match condition {
                    Condition::Always => true,
                    Condition::IfAbsent => names.all(|is_there| !is_there),
                    Condition::IfPresent => names.all(|is_there| is_there),
                };
                if !allowed {
                    return out.integer(0);
                }
                self.set_fields_until(found, pairs, expiry, record);
                out.integer(1);
            }
            GetDelete { fields, .. } => {
                self.tell_values(found, fields, record, out);
                self.delete_fields(found, fields, record);
            }
            // Answered by `read_hash`.
            Get { .. } | MultiGet { .. } | All { .. } | Length { .. } | Random { .. } => {}
            Exists { .. } | ValueLength { .. } | Scan { .. } | TimeToLive { .. } => {}
        }
    }

    fn hash_at(&self, found: Found<'_>, record: Record) -> Hash<'_> {
        Hash::of(found.place.map(|place| self.index.entry(place)), record.time)
    }

    /// Sets the value of a field, which keeps its deadline.
    fn set_value(&mut self, found: Found<'_>, field: &[u8], value: &[u8], record: Record) {
        self.edit_collection(found, Kind::Hash, record, |hash, discarded| {
            hash.set_field((field, value), |before| before, record.time, discarded);
        });
    }

    /// Sets fields and returns how many are new.
    fn set_fields(
        &mut self,
        found: Found<'_>,
        pairs: List<'_>,
        deadline: impl Fn(UnixMs) -> UnixMs,
        record: Record,
    ) -> usize {
        self.edit_collection(found, Kind::Hash, record, |hash, discarded| {
            let set = |pair: &(&[u8], &[u8])| hash.set_field(*pair, &deadline, record.time, discarded);
            pairs.pairs().filter(set).count()
        })
    }

    fn set_fields_until(&mut self, found: Found<'_>, pairs: List<'_>, expiry: Expiry, record: Record) {
        let deadline = match expiry {
            Expiry::Clear => NO_DEADLINE,
            Expiry::Keep => {
                self.set_fields(found, pairs, |before| before, record);
                return;
            }
            Expiry::Set(deadline) => record.deadline(deadline),
        };
        if deadline > record.time {
            self.set_fields(found, pairs, |_| deadline, record);
        } else {
            // They have expired already.
            self.edit_collection(found, Kind::Hash, record, |hash, discarded| {
                for (name, _) in pairs.pairs() {
                    hash.remove_field(name, record.time, discarded);
                }
            });
        }
    }

    /// Removes fields and returns how many existed. A hash without fields is removed.
    fn delete_fields(&mut self, found: Found<'_>, fields: List<'_>, record: Record) -> usize {
        self.edit_collection(found, Kind::Hash, record, |hash, discarded| {
            fields.iter().filter(|name| hash.remove_field(name, record.time, discarded)).count()
        })
    }

    fn expire_fields(
        &mut self,
        found: Found<'_>,
        fields: List<'_>,
        (deadline, condition): (Deadline, ExpireCondition),
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        let deadline = record.deadline(deadline);
        out.array(fields.len());
        self.edit_collection(found, Kind::Hash, record, |hash, discarded| {
            for name in fields.iter() {
                let answer = match hash.as_hash(record.time).get(name).map(|field| field.deadline) {
                    None => NO_FIELD,
                    Some(present) if !allows(condition, present, deadline) => FORBIDDEN,
                    Some(_) if deadline <= record.time => {
                        hash.remove_field(name, record.time, discarded);
                        EXPIRED
                    }
                    Some(_) => {
                        hash.set_deadline(name, deadline, record.time, discarded);
                        DONE
                    }
                };
                out.integer(answer);
            }
        });
    }

    fn persist_fields(&mut self, found: Found<'_>, fields: List<'_>, record: Record, out: &mut ReplyBuffer) {
        out.array(fields.len());
        for name in fields.iter() {
            out.integer(match self.hash_at(found, record).get(name).map(|field| field.deadline) {
                None => NO_FIELD,
                Some(NO_DEADLINE) => WITHOUT_DEADLINE,
                Some(_) => DONE,
            });
        }
        self.set_deadlines(found, fields, NO_DEADLINE, record);
    }

    /// Sets the deadline of those fields that exist. One that is past removes them.
    fn set_deadlines(&mut self, found: Found<'_>, fields: List<'_>, deadline: UnixMs, record: Record) {
        if deadline <= record.time {
            self.delete_fields(found, fields, record);
            return;
        }
        self.edit_collection(found, Kind::Hash, record, |hash, discarded| {
            fields.iter().for_each(|name| hash.set_deadline(name, deadline, record.time, discarded));
        });
    }

    /// Replies with the values of fields before they change.
    fn tell_values(&self, found: Found<'_>, fields: List<'_>, record: Record, out: &mut ReplyBuffer) {
        if self.is_quiet {
            return out.error(CUT_WRITE);
        }
        let start = out.len();
        tell_fields(self.hash_at(found, record), fields, out);
        if ReplyBuffer::is_error(&out.as_bytes()[start..]) {
            out.truncate(start);
            out.error(super::lists::TOO_MANY_POPPED);
        }
    }
}

fn tell_value(value: Option<&[u8]>, out: &mut ReplyBuffer) {
    match value {
        Some(value) => out.bulk(value),
        None => out.null(),
    }
}

fn tell_fields(hash: Hash<'_>, fields: List<'_>, out: &mut ReplyBuffer) {
    let start = out.len();
    out.array(fields.len());
    for field in fields.iter() {
        tell_value(hash.value(field), out);
        // One field may be requested many times.
        if out.len() - start > out.reply_bytes_max() {
            return refuse_large_reply(start, out);
        }
    }
}

fn tell(command: &HashCommand<'_>, hash: Hash<'_>, draws: &mut Draws, out: &mut ReplyBuffer) {
    use HashCommand::*;
    match *command {
        Get { field, .. } => tell_value(hash.value(field), out),
        MultiGet { fields, .. } => tell_fields(hash, fields, out),
        All { part, .. } => tell_all(hash, part, out),
        Length { .. } => out.integer(hash.len() as i64),
        Exists { field, .. } => out.integer(hash.get(field).is_some().into()),
        ValueLength { field, .. } => out.integer(hash.value(field).map_or(0, <[u8]>::len) as i64),
        Scan { position, count, pattern, with_values, .. } => {
            scan(hash, position, count, pattern, with_values, out);
        }
        Random { count, with_values, .. } => tell_random(hash, count, with_values, draws, out),
        TimeToLive { fields, unit, .. } => {
            out.array(fields.len());
            for name in fields.iter() {
                out.integer(match hash.get(name).map(|field| field.deadline) {
                    None => NO_FIELD,
                    Some(NO_DEADLINE) => WITHOUT_DEADLINE,
                    Some(deadline) => time_to_live(deadline, unit, hash.now) as i64,
                });
            }
        }
        // Carried out by `change_hash`.
        Set { .. } | SetIfAbsent { .. } | Delete { .. } | IncrementBy { .. } | IncrementByFloat { .. } => {}
        Expire { .. } | Persist { .. } | GetExpire { .. } | SetExpire { .. } | GetDelete { .. } => {}
    }
}

/// The expiry of a field. Unlike those of keys, seconds are rounded up, as in Redis.
fn time_to_live(deadline: UnixMs, unit: ExpiryUnit, now: UnixMs) -> u64 {
    match unit {
        ExpiryUnit::SecondsLeft => (deadline - now).div_ceil(1000),
        ExpiryUnit::MillisecondsLeft => deadline - now,
        ExpiryUnit::UnixSeconds => deadline.div_ceil(1000),
        ExpiryUnit::UnixMilliseconds => deadline,
    }
}

fn tell_all(hash: Hash<'_>, part: HashPart, out: &mut ReplyBuffer) {
    let (start, count) = (out.len(), hash.len());
    if part == HashPart::Both {
        out.map(count)
    } else {
        out.array(count)
    }
    for Field { name, value, .. } in hash.iter() {
        if part != HashPart::Values {
            out.bulk(name);
        }
        if part != HashPart::Fields {
            out.bulk(value);
        }
        if out.len() - start > out.reply_bytes_max() {
            return refuse_large_reply(start, out);
        }
    }
}

fn tell_drawn<'a>(
    count: usize,
    fields: impl Iterator<Item = Field<'a>>,
    with_values: bool,
    out: &mut ReplyBuffer,
) {
    let start = out.len();
    if with_values {
        out.push(Reply::Pairs(count as u32))
    } else {
        out.array(count)
    }
    for Field { name, value, .. } in fields.take(count) {
        if with_values {
            out.push(Reply::Pair);
        }
        out.bulk(name);
        if with_values {
            out.bulk(value);
        }
        if out.len() - start > out.reply_bytes_max() {
            return refuse_large_reply(start, out);
        }
    }
}

fn tell_random(
    hash: Hash<'_>,
    count: Option<i64>,
    with_values: bool,
    draws: &mut Draws,
    out: &mut ReplyBuffer,
) {
    let (length, live) = (hash.items.len(), hash.len());
    // Those that have expired are soon removed, so hardly any is drawn.
    let mut draw = || {
        let fields = std::iter::repeat_with(|| hash.items.get(draws.below(length)).map(Field::of));
        fields.take(TRIES).flatten().find(|field| field.is_live(hash.now))
    };
    match count {
        None if live == 0 => out.null(),
        None => tell_value(draw().map(|field| field.name), out),
        Some(_) if live == 0 => out.array(0),
        Some(count @ 0..) => {
            let wanted = usize::try_from(count).unwrap_or(usize::MAX);
            if wanted >= live {
                return tell_drawn(live, hash.iter(), with_values, out);
            }
            let drawn = hash.at(draws.distinct(wanted, length).into_iter());
            tell_drawn(drawn.len(), drawn.into_iter(), with_values, out);
        }
        Some(count) => {
            let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
            // Each takes at least five bytes of the reply.
            if wanted > out.reply_bytes_max() / 5 {
                return refuse_large_reply(out.len(), out);
            }
            let Some(first) = draw() else { return out.array(0) };
            let drawn = std::iter::once(first).chain(std::iter::repeat_with(|| draw().unwrap_or(first)));
            tell_drawn(wanted, drawn, with_values, out);
        }
    }
}

/// Returns fields from a cursor on: all of a hash with few, else about `count` in the order of their hashes. Fields with
/// equal hashes are returned together, so a field that exists all the time is returned exactly once.
fn scan(
    hash: Hash<'_>,
    position: u64,
    count: u64,
    pattern: Option<&[u8]>,
    with_values: bool,
    out: &mut ReplyBuffer,
) {
    let pattern = pattern.map(Pattern::new);
    let is_wanted = |field: &Field<'_>| {
        field.is_live(hash.now) && pattern.as_ref().is_none_or(|pattern| pattern.matches(field.name))
    };
    let (mut told, mut next) = (Vec::new(), 0);
    match hash.names {
        Some(index) if hash.items.len() as u64 > SCANNED_AT_ONCE => {
            let (index, mut before, mut bytes) = (index.items(), None, 0);
            let from = u32::try_from(position).map_or(index.len(), |from| index.seek(&from.to_be_bytes()));
            for (seen, item) in (0..).zip(index.iter_from(from)) {
                let name_hash = item.first_chunk::<HASH_BYTES>();
                let is_enough = seen >= count.max(1) || bytes > out.reply_bytes_max() / 2;
                if is_enough && before != name_hash {
                    next = name_hash.map_or(0, |hash| u32::from_be_bytes(*hash));
                    break;
                }
                before = name_hash;
                let number: Key = item.last_chunk().copied().unwrap_or_default();
                let field = hash.items.get(hash.items.seek(&number)).map(Field::of);
                if let Some(field) = field.filter(is_wanted) {
                    bytes += field.name.len() + field.value.len();
                    told.push(field);
                }
            }
        }
        _ => told.extend(hash.items.iter_from(0).map(Field::of).filter(is_wanted)),
    }
    out.array(2);
    out.bulk(next.to_string().as_bytes());
    out.array(told.len() * if with_values { 2 } else { 1 });
    for Field { name, value, .. } in told {
        out.bulk(name);
        if with_values {
            out.bulk(value);
        }
    }
}
