//! Commands on hashes: `HSET`, `HGET` and similar ones. For the representation see [`super::collections`] and
//! `collections::fields`.
//!
//! A field is missing from its deadline on, for reads by the reader's clock and for writes by the record's time. The
//! expired field is physically removed by the write that sets it again, or by a purge ([`super::expire`]).

use super::changes::ChangeClass;
use super::collections::{Collection, Field, Order, find_field};
use super::draws::Draws;
use super::entry::Entry;
use super::expire::allows;
use super::found::Found;
use super::kind::Kind;
use super::name_hash::{HASH_BYTES, hash_of};
use super::refusals::{NOT_FINITE, OVERFLOW, WRONG_KIND, refuse_large_reply};
use super::transactions::CUT_WRITE;
use super::tree::{Discarded, Items};
use super::{NO_DEADLINE, Record, Table};
use crate::command::{
    Condition, Deadline, EncodingLimits, ExpireCondition, Expiry, ExpiryUnit, HashCommand, HashPart, List,
};
use crate::glob::Pattern;
use crate::number::{self, FloatError};
use crate::reply::{Reply, ReplyBuffer};
use crate::{UnixMs, Version};

const NOT_AN_INTEGER: &str = "ERR hash value is not an integer";
const NOT_A_FLOAT: &str = "ERR hash value is not a float";

// The replies of commands on deadlines, for each field.
const NO_FIELD: i64 = -2;
const WITHOUT_DEADLINE: i64 = -1;
const FORBIDDEN: i64 = 0;
const DONE: i64 = 1;
const EXPIRED: i64 = 2;

/// How many fields `HRANDFIELD` draws before it replies that there is none, if all of them have expired.
const TRIES: usize = 100;

/// How Redis would store a hash, as `OBJECT ENCODING` reports it.
pub(super) fn encoding(entry: &Entry, limits: &EncodingLimits) -> &'static [u8] {
    let items = entry.items();
    let is_short = |text: &[u8]| text.len() <= limits.hash_item_bytes as usize;
    let is_small = items.len() <= limits.hash_fields as usize
        && entry.fields().all(|field| is_short(field.name) && is_short(field.value));
    match (is_small, entry.has_deadlines()) {
        (true, true) => b"listpackex",
        (true, false) => b"listpack",
        (false, _) => b"hashtable",
    }
}

/// A read-only view of a hash at one time.
#[derive(Clone, Copy)]
pub(super) struct Hash<'a> {
    items: Items<'a>,
    order: Order,
    /// The deadlines of a large hash's fields.
    due: Option<Items<'a>>,
    has_deadlines: bool,
    collection: Option<&'a Collection>,
    now: UnixMs,
}

impl<'a> Hash<'a> {
    fn of(entry: Option<&'a Entry>, now: UnixMs) -> Hash<'a> {
        Hash {
            items: entry.map_or(Items::EMPTY, Entry::items),
            order: entry.map_or(Order::Added, Entry::order),
            due: entry.and_then(Entry::collection).map(Collection::due),
            has_deadlines: entry.is_some_and(Entry::has_deadlines),
            collection: entry.and_then(Entry::collection),
            now,
        }
    }

    /// The hash that a collection is.
    pub(super) fn of_collection(collection: &'a Collection, now: UnixMs) -> Hash<'a> {
        Hash {
            items: collection.items(),
            order: collection.order(),
            due: Some(collection.due()),
            has_deadlines: collection.due().len() > 0,
            collection: Some(collection),
            now,
        }
    }

    fn get(self, name: &[u8]) -> Option<Field<'a>> {
        find_field(self.items, self.order, name)
            .map(|(_, field)| field)
            .filter(|field| field.is_live(self.now))
    }

    fn value(self, name: &[u8]) -> Option<&'a [u8]> {
        self.get(name).map(|field| field.value)
    }

    /// The fields that have not expired, in their order.
    fn iter(self) -> impl Iterator<Item = Field<'a>> {
        let fields = self.items.iter_from(0).map(move |item| self.order.field(item));
        fields.filter(move |field| field.is_live(self.now))
    }

    fn field_at(self, rank: usize) -> Option<Field<'a>> {
        self.items.get(rank).map(|item| self.order.field(item))
    }

    /// Appends the parts of the field that an item holds, unless it has expired.
    pub(super) fn write_field(self, item: &[u8], part: HashPart, out: &mut ReplyBuffer) {
        let field = self.order.field(item);
        if field.is_live(self.now) {
            write_parts(&field, part, out);
        }
    }

    /// Appends the value of a field, or null.
    pub(super) fn write_value(self, name: &[u8], out: &mut ReplyBuffer) {
        write_value(self.value(name), out);
    }

    /// Appends when a field expires.
    pub(super) fn write_expiry(self, name: &[u8], unit: ExpiryUnit, out: &mut ReplyBuffer) {
        out.integer(match self.get(name).map(|field| field.deadline) {
            None => NO_FIELD,
            Some(NO_DEADLINE) => WITHOUT_DEADLINE,
            Some(deadline) => time_to_live(deadline, unit, self.now) as i64,
        });
    }

    /// Appends the head of all fields, which follow.
    pub(super) fn write_head(self, part: HashPart, out: &mut ReplyBuffer) {
        match part {
            HashPart::Both => out.map(self.len()),
            HashPart::Fields | HashPart::Values => out.array(self.len()),
        }
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
    fn at(self, ranks: &[usize]) -> Vec<Field<'a>> {
        let fields = self.items.at(ranks).map(|item| self.order.field(item));
        fields.filter(|field| field.is_live(self.now)).collect()
    }
}

/// A field of the hash that an entry holds, unless the field has expired.
pub(super) fn field_of<'a>(entry: &'a Entry, name: &[u8], now: UnixMs) -> Option<Field<'a>> {
    Hash::of(Some(entry), now).get(name)
}

impl Collection {
    /// A field that has not expired.
    fn live_field(&self, name: &[u8], now: UnixMs) -> Option<Field<'_>> {
        self.find_field(name).map(|(_, field)| field).filter(|field| field.is_live(now))
    }

    /// Sets a field. Its new deadline follows from its present one. Returns whether the field is new.
    fn set_field(
        &mut self,
        (name, value): (&[u8], &[u8]),
        deadline: impl Fn(UnixMs) -> UnixMs,
        now: UnixMs,
        discarded: &mut Discarded,
    ) -> bool {
        if deadline(NO_DEADLINE) == NO_DEADLINE && self.overwrite_value(name, value) {
            return false;
        }
        match self.find_field(name) {
            Some((rank, before)) if before.is_live(now) => {
                let (shape, field) =
                    (before.shape(), Field { name, value, deadline: deadline(before.deadline) });
                self.replace_field(rank, shape, &field, discarded);
                return false;
            }
            // A field that is set after it has expired is new.
            Some((rank, before)) => {
                let shape = before.shape();
                self.remove_field(rank, shape, discarded);
            }
            None => {}
        }
        self.add_field(&Field { name, value, deadline: deadline(NO_DEADLINE) });
        true
    }

    /// Changes the deadline of a field that exists.
    fn set_deadline(&mut self, name: &[u8], deadline: UnixMs, now: UnixMs, discarded: &mut Discarded) {
        let Some((rank, field)) = self.find_field(name) else { return };
        if field.is_live(now) && field.deadline != deadline {
            let (shape, value) = (field.shape(), field.value.to_vec());
            self.replace_field(rank, shape, &Field { deadline, name, value: &value }, discarded);
        }
    }

    /// Removes a field; returns whether it existed.
    fn delete_field(&mut self, name: &[u8], now: UnixMs, discarded: &mut Discarded) -> bool {
        let Some((rank, field)) = self.find_field(name) else { return false };
        let (is_live, shape) = (field.is_live(now), field.shape());
        self.remove_field(rank, shape, discarded);
        is_live
    }

    /// Removes at most `most` fields whose deadline is at or before `until`; returns their names.
    pub(super) fn remove_due_fields(
        &mut self,
        until: UnixMs,
        most: usize,
        discarded: &mut Discarded,
    ) -> Vec<Vec<u8>> {
        let is_due = |item: &&[u8]| item.first_chunk().is_some_and(|it| u64::from_be_bytes(*it) <= until);
        let name_of = |item: &[u8]| item[size_of::<UnixMs>()..].to_vec();
        let due: Vec<Vec<u8>> = self.due().iter_from(0).take_while(is_due).take(most).map(name_of).collect();
        for name in &due {
            self.delete_field(name, until, discarded);
        }
        due
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
            entry => answer(command, Hash::of(entry, now), &mut draws, out),
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
                self.write_values(found, fields, record, out);
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
                let allowed = match condition.fields {
                    Condition::Always => true,
                    Condition::IfAbsent => names.all(|is_there| !is_there),
                    Condition::IfPresent => names.all(|is_there| is_there),
                };
                let of_key = match condition.key {
                    Condition::Always => true,
                    Condition::IfAbsent => hash.len() == 0,
                    Condition::IfPresent => hash.len() > 0,
                };
                if !allowed || !of_key {
                    return out.integer(0);
                }
                self.set_fields_until(found, pairs, expiry, record);
                out.integer(1);
            }
            GetDelete { fields, .. } => {
                self.write_values(found, fields, record, out);
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
            if deadline != NO_DEADLINE {
                self.changes.note_as(found.key, ChangeClass::Hash, "hexpire");
            }
        } else {
            // These fields have expired already.
            let hash = self.hash_at(found, record);
            if pairs.pairs().any(|(name, _)| hash.get(name).is_some()) {
                self.changes.note(found.key);
            }
            self.begin_removal();
            self.edit_collection(found, Kind::Hash, record, |hash, discarded| {
                for (name, _) in pairs.pairs() {
                    hash.delete_field(name, record.time, discarded);
                }
            });
        }
    }

    /// The following changes remove fields, whatever the command: their new deadline has passed.
    fn begin_removal(&mut self) {
        self.changes.begin_event(Some((ChangeClass::Hash, "hdel")));
    }

    /// Removes fields and returns how many existed. A hash without fields is removed.
    fn delete_fields(&mut self, found: Found<'_>, fields: List<'_>, record: Record) -> usize {
        self.edit_collection(found, Kind::Hash, record, |hash, discarded| {
            fields.iter().filter(|name| hash.delete_field(name, record.time, discarded)).count()
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
        if deadline <= record.time {
            self.begin_removal();
        }
        self.edit_collection(found, Kind::Hash, record, |hash, discarded| {
            for name in fields.iter() {
                let answer = match hash.live_field(name, record.time).map(|field| field.deadline) {
                    None => NO_FIELD,
                    Some(present) if !allows(condition, present, deadline) => FORBIDDEN,
                    Some(_) if deadline <= record.time => {
                        hash.delete_field(name, record.time, discarded);
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

    /// Sets the deadline of those fields that exist. A deadline in the past removes them.
    fn set_deadlines(&mut self, found: Found<'_>, fields: List<'_>, deadline: UnixMs, record: Record) {
        if deadline <= record.time {
            self.begin_removal();
            self.delete_fields(found, fields, record);
            return;
        }
        self.edit_collection(found, Kind::Hash, record, |hash, discarded| {
            fields.iter().for_each(|name| hash.set_deadline(name, deadline, record.time, discarded));
        });
    }

    /// Replies with the values of fields, before they change.
    fn write_values(&self, found: Found<'_>, fields: List<'_>, record: Record, out: &mut ReplyBuffer) {
        if self.is_quiet {
            return out.error(CUT_WRITE);
        }
        let start = out.len();
        write_fields(self.hash_at(found, record), fields, out);
        if ReplyBuffer::is_error(&out.as_bytes()[start..]) {
            out.truncate(start);
            out.error(super::refusals::TOO_MANY_POPPED);
        }
    }
}

fn write_value(value: Option<&[u8]>, out: &mut ReplyBuffer) {
    match value {
        Some(value) => out.bulk(value),
        None => out.null(),
    }
}

fn write_fields(hash: Hash<'_>, fields: List<'_>, out: &mut ReplyBuffer) {
    let start = out.len();
    out.array(fields.len());
    for field in Collection::touching(hash.collection, fields) {
        hash.write_value(field, out);
        // One field may be requested many times.
        if out.len() - start > out.reply_bytes_max() {
            return refuse_large_reply(start, out);
        }
    }
}

fn answer(command: &HashCommand<'_>, hash: Hash<'_>, draws: &mut Draws, out: &mut ReplyBuffer) {
    use HashCommand::*;
    match *command {
        Get { field, .. } => write_value(hash.value(field), out),
        MultiGet { fields, .. } => write_fields(hash, fields, out),
        All { part, .. } => write_all(hash, part, out),
        Length { .. } => out.integer(hash.len() as i64),
        Exists { field, .. } => out.integer(hash.get(field).is_some().into()),
        ValueLength { field, .. } => out.integer(hash.value(field).map_or(0, <[u8]>::len) as i64),
        Scan { position, count, pattern, with_values, .. } => {
            scan(hash, position, count, pattern, with_values, out);
        }
        Random { count, with_values, .. } => write_random(hash, count, with_values, draws, out),
        TimeToLive { fields, unit, .. } => {
            out.array(fields.len());
            for name in Collection::touching(hash.collection, fields) {
                hash.write_expiry(name, unit, out);
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

fn write_parts(field: &Field<'_>, part: HashPart, out: &mut ReplyBuffer) {
    if part != HashPart::Values {
        out.bulk(field.name);
    }
    if part != HashPart::Fields {
        out.bulk(field.value);
    }
}

fn write_all(hash: Hash<'_>, part: HashPart, out: &mut ReplyBuffer) {
    let start = out.len();
    hash.write_head(part, out);
    for field in hash.iter() {
        write_parts(&field, part, out);
        if out.len() - start > out.reply_bytes_max() {
            return refuse_large_reply(start, out);
        }
    }
}

fn write_drawn<'a>(
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

fn write_random(
    hash: Hash<'_>,
    count: Option<i64>,
    with_values: bool,
    draws: &mut Draws,
    out: &mut ReplyBuffer,
) {
    let (length, live) = (hash.items.len(), hash.len());
    // Expired fields are soon removed, so hardly any is drawn.
    let mut draw = || {
        let fields = std::iter::repeat_with(|| hash.field_at(draws.below(length)));
        fields.take(TRIES).flatten().find(|field| field.is_live(hash.now))
    };
    match count {
        None if live == 0 => out.null(),
        None => write_value(draw().map(|field| field.name), out),
        Some(_) if live == 0 => out.array(0),
        Some(count @ 0..) => {
            let wanted = usize::try_from(count).unwrap_or(usize::MAX);
            if wanted >= live {
                return write_drawn(live, hash.iter(), with_values, out);
            }
            let drawn = hash.at(&draws.distinct(wanted, length));
            write_drawn(drawn.len(), drawn.into_iter(), with_values, out);
        }
        Some(count) => {
            let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
            // Each field takes at least five bytes of the reply.
            if wanted > out.reply_bytes_max() / 5 {
                return refuse_large_reply(out.len(), out);
            }
            let Some(first) = draw() else { return out.array(0) };
            let drawn = std::iter::once(first).chain(std::iter::repeat_with(|| draw().unwrap_or(first)));
            write_drawn(wanted, drawn, with_values, out);
        }
    }
}

/// Returns fields from a cursor on: all fields of a small hash, otherwise about `count` in the order of their hashes.
/// Fields with equal hashes are returned together, so a field that exists throughout is returned exactly once.
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
    let (mut matching, mut next) = (Vec::new(), 0);
    // Greater than any hash: nothing is left.
    let from = u32::try_from(position).ok();
    match (hash.order, from) {
        (_, None) => {}
        // The hash may have been large when the scan began.
        (Order::Added, Some(from)) => {
            let is_left = |field: &Field<'_>| from == 0 || hash_of(field.name) >= from.to_be_bytes();
            matching.extend(hash.iter().filter(is_left).filter(is_wanted));
        }
        (Order::Hashed, Some(from)) => {
            let (mut before, mut bytes) = (None, 0);
            let items = hash.items.iter_from(hash.items.seek(&from.to_be_bytes()));
            for (seen, item) in (0..).zip(items) {
                let name_hash = item.first_chunk::<HASH_BYTES>();
                let is_enough = seen >= count.max(1) || bytes > out.reply_bytes_max() / 2;
                if is_enough && before != name_hash {
                    next = name_hash.map_or(0, |hash| u32::from_be_bytes(*hash));
                    break;
                }
                before = name_hash;
                let field = hash.order.field(item);
                if is_wanted(&field) {
                    bytes += field.name.len() + field.value.len();
                    matching.push(field);
                }
            }
        }
    }
    out.array(2);
    out.bulk(next.to_string().as_bytes());
    out.array(matching.len() * if with_values { 2 } else { 1 });
    for Field { name, value, .. } in matching {
        out.bulk(name);
        if with_values {
            out.bulk(value);
        }
    }
}
