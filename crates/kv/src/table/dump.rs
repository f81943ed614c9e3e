//! Values in Redis's serialization format: `DUMP` and `RESTORE`.

use super::charges::OUT_OF_MEMORY;
use super::collections::{Collection, Field};
use super::entry::Entry;
use super::kind::Kind;
use super::members::{item_of, member_of};
use super::order;
use super::order::{key_of, number_of, short};
use super::refusals::refuse_large_reply;
use super::tree::Items;
use super::{NO_DEADLINE, Record, Table, streams};
use crate::command::{Deadline, restored_bytes};
use crate::limits::{RESTORED_ITEMS_MAX, VALUE_BYTES_MAX_CEILING, WALKED_BYTES_MAX};
use crate::reply::ReplyBuffer;
use crate::{UnixMs, Version};
use rdb::payload::{self, Refusal};
use rdb::value;
use rdb::write::{self, put_length, put_text};
use rdb::{Damaged, Fault, Part};

/// The error of a restored value whose key exists.
pub const BUSY_KEY: &str = "BUSYKEY Target key name already exists.";
const WRONG_FOOTER: &str = "ERR DUMP payload version or checksum are wrong";
const BAD_DATA: &str = "ERR Bad data format";

/// Why a payload was not restored.
enum Refused {
    /// It is damaged.
    Damaged(Damaged),
    /// A part of it does not fit the value being restored.
    Part(&'static str),
    /// It has more items than one command may store.
    TooMany,
    /// It takes more memory than its record may add.
    TooMuch,
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Refused {
        match fault {
            Fault::Damaged(damaged) => Refused::Damaged(damaged),
            Fault::Read(_) | Fault::TooLong => {
                unreachable!("bytes in memory are read, and nothing is kept of them")
            }
        }
    }
}

/// The value of a payload, as far as it has been read.
enum Restored {
    Text(Vec<u8>),
    Plain(Collection),
    Stream(Box<streams::Restoring>),
}

impl Restored {
    fn new(kind: rdb::Kind) -> Option<Restored> {
        Some(match kind {
            rdb::Kind::String => Restored::Text(Vec::new()),
            rdb::Kind::List => Restored::Plain(Collection::new(Kind::List)),
            rdb::Kind::Set => Restored::Plain(Collection::new(Kind::Set)),
            rdb::Kind::SortedSet => Restored::Plain(Collection::new(Kind::Sorted)),
            rdb::Kind::Hash => Restored::Plain(Collection::new(Kind::Hash)),
            rdb::Kind::Stream => Restored::Stream(Box::default()),
            rdb::Kind::Module => return None,
        })
    }

    /// Takes the next part. A field that has already expired is left out.
    fn take(&mut self, part: Part<'_>, now: UnixMs) -> Result<(), &'static str> {
        const TWICE: &str = "a member or a field that is there twice";
        let collection = match self {
            Restored::Text(text) => {
                let Part::Text(bytes) = part else { return Err("a string that is none") };
                text.extend_from_slice(bytes);
                return Ok(());
            }
            Restored::Stream(stream) => return stream.take(part),
            Restored::Plain(collection) => collection,
        };
        let is_new = match part {
            Part::Element(element) => {
                collection.insert(collection.len(), element);
                true
            }
            Part::Member(member) => collection.insert_in_order(item_of(member, &mut Vec::new())),
            Part::Scored(member, score) => {
                let is_new = collection.key_of_name(member).is_none();
                if is_new {
                    collection.add_named(&[&short(key_of(score))[..], member].concat());
                }
                is_new
            }
            Part::Field { name, value, deadline_ms } => {
                let deadline = deadline_ms.unwrap_or(NO_DEADLINE);
                let is_new = collection.find_field(name).is_none();
                if is_new && deadline > now {
                    collection.add_field(&Field { name, value, deadline });
                }
                is_new
            }
            _ => return Err("a part of another type"),
        };
        if is_new { Ok(()) } else { Err(TWICE) }
    }
}

/// Reads the value of a payload, and returns whether it had any items.
///
/// Also returns the bytes of its strings, at most `bytes_max`: a field's name that is written once may belong to a million
/// entries.
fn read(
    form: rdb::Form,
    source: &mut rdb::Source<&[u8]>,
    now: UnixMs,
    bytes_max: u64,
) -> Result<(Restored, bool, u64), Refused> {
    // A compressed string may expand to many times its size.
    source.limit_expansion(WALKED_BYTES_MAX);
    let mut restored = Restored::new(form.kind()).ok_or(Refused::Part("a value of a module"))?;
    let (mut items, mut bytes) = (0, 0);
    value::read(form, source, &mut |part| {
        items += 1;
        bytes += part_bytes(&part);
        if bytes > bytes_max {
            return Err(Refused::TooMuch);
        }
        if items > RESTORED_ITEMS_MAX {
            return Err(Refused::TooMany);
        }
        restored.take(part, now).map_err(Refused::Part)
    })?;
    Ok((restored, items > 0, bytes))
}

/// Bytes of the strings of a part.
fn part_bytes(part: &Part<'_>) -> u64 {
    let bytes = match part {
        Part::Text(text) | Part::Element(text) | Part::Member(text) | Part::Scored(text, _) => text.len(),
        Part::Field { name, value, .. } => name.len() + value.len(),
        Part::Entry(_, words) => words.iter().map(<[u8]>::len).sum(),
        Part::Group { name, .. } | Part::Consumer { name, .. } => name.len(),
        Part::Stream { .. } | Part::Pending { .. } | Part::Owned(_) => 0,
    };
    bytes as u64
}

fn reply_damaged(at: u64, why: &str, out: &mut ReplyBuffer) {
    out.error(&format!("{BAD_DATA}: at byte {at}: {why}"));
}

impl Table {
    /// `RESTORE`: stores the value of a payload.
    pub(super) fn restore(
        &mut self,
        key: &[u8],
        payload: &[u8],
        deadline: Option<Deadline>,
        replaces: bool,
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        let place = self.find_live(self.index.hash(key), key, record);
        if place.is_some() && !replaces {
            return out.error(BUSY_KEY);
        }
        let (form, mut source) = match payload::open(payload) {
            Ok(opened) => opened,
            Err(Refusal::Footer) => return out.error(WRONG_FOOTER),
            Err(Refusal::Type(tag)) => {
                return reply_damaged(0, &format!("type {tag}, which is not known"), out);
            }
        };
        let behind = payload.len() as u64 - payload::FOOTER_BYTES as u64;
        let paid = if self.charges.are_bounded() { restored_bytes(payload) } else { 0 };
        let bytes_max = paid.saturating_add(self.charges.left());
        let restored = match read(form, &mut source, record.time, bytes_max) {
            Ok(_) if source.at() != behind => {
                return reply_damaged(source.at(), "bytes behind the value", out);
            }
            Ok((_, false, _)) => return reply_damaged(1, "a collection without items", out),
            Ok((Restored::Text(text), ..)) if text.len() > VALUE_BYTES_MAX_CEILING => {
                return reply_damaged(1, "a string that is too long", out);
            }
            Ok((restored, _, bytes)) => {
                self.charges.take(bytes.saturating_sub(paid));
                restored
            }
            Err(Refused::TooMuch) => return out.error(OUT_OF_MEMORY),
            Err(Refused::Damaged(Damaged { at, why })) => return reply_damaged(at, why, out),
            Err(Refused::Part(why)) => return reply_damaged(source.at(), why, out),
            Err(Refused::TooMany) => {
                return out.error(&format!(
                    "ERR RESTORE of more items than RESTORED_ITEMS_MAX, {RESTORED_ITEMS_MAX}, which is all that a command \
                     may store in one step; nothing was done"
                ));
            }
        };
        let deadline = deadline.map_or(NO_DEADLINE, |deadline| record.deadline(deadline));
        if deadline <= record.time {
            self.statistics.expired += 1;
            if let Some(place) = place {
                self.remove(place, record);
            }
            return out.ok();
        }
        let restored = match restored {
            Restored::Stream(stream) => match stream.finish() {
                Ok(collection) => Restored::Plain(collection),
                Err(why) => return reply_damaged(source.at(), why, out),
            },
            restored => restored,
        };
        let held = self.hold_overwritten(place);
        match restored {
            Restored::Text(text) => self.put(key, &text, deadline, Kind::Plain, record),
            Restored::Plain(collection) => self.put_restored(key, collection, deadline, record),
            Restored::Stream(_) => unreachable!("it has become a collection"),
        }
        self.note_held(key, held);
        out.ok();
    }

    fn put_restored(&mut self, key: &[u8], collection: Collection, deadline: UnixMs, record: Record) {
        self.put_collection(key, collection, record);
        if deadline != NO_DEADLINE
            && let Some((place, _)) = self.find(self.index.hash(key), key)
        {
            self.set_deadline(place, deadline, record);
        }
    }

    /// `DUMP`: the value of a key as a payload.
    pub(super) fn dump(&mut self, key: &[u8], now: UnixMs, out: &mut ReplyBuffer) -> Version {
        self.with_entry(key, now, |entry| match entry {
            Some(entry) if entry.kind() == Kind::Hash && !has_live_field(entry, now) => out.null(),
            Some(entry) => {
                let (start, mut payload) = (out.len(), Vec::new());
                let version = put_value(entry, now, &mut payload);
                payload::close(version, 0, &mut payload);
                match payload.len() <= out.reply_bytes_max() {
                    true => out.bulk(&payload),
                    false => refuse_large_reply(start, out),
                }
            }
            None => out.null(),
        })
    }
}

/// The value of an entry as a payload, without the fields' deadlines.
pub(super) fn payload_of(entry: &Entry) -> Vec<u8> {
    let mut payload = Vec::new();
    let version = put_value(entry, 0, &mut payload);
    payload::close(version, 0, &mut payload);
    payload
}

/// A field of a hash that expires: key, field and deadline.
pub type ExpiringField = (Box<[u8]>, Box<[u8]>, UnixMs);

/// Appends a key without its value, in the format of Redis's files.
fn put_key(entry: &Entry, tag: u8, out: &mut Vec<u8>) {
    const DEADLINE_MS: u8 = 0xfc;
    if entry.deadline() != NO_DEADLINE {
        out.push(DEADLINE_MS);
        out.extend_from_slice(&entry.deadline().to_le_bytes());
    }
    out.push(tag);
    put_text(entry.key(), out);
}

/// Appends a key with its value, or the next part of a collection, in the format of Redis's files. For a collection: the
/// items from the rank `from` on, until `out` has `enough` bytes. Returns the rank of the next item. With `expiring`,
/// fields that expire are written without their deadlines, which are noted there instead.
pub(super) fn put_part(
    entry: &Entry,
    from: usize,
    enough: usize,
    out: &mut Vec<u8>,
    expiring: Option<&mut Vec<ExpiringField>>,
) -> usize {
    // Deadlines are written relative to the earliest; with 1 in its place there is no need to look at all fields first.
    const LEAST: UnixMs = 1;
    let items = if entry.is_collection() { entry.items() } else { Items::EMPTY };
    let has_form_with_deadlines = entry.kind() == Kind::Hash && expiring.is_none() && entry.has_deadlines();
    let mut noted = expiring;
    let tag = match entry.kind() {
        Kind::List => write::tag::LIST,
        Kind::Set => write::tag::SET,
        Kind::Sorted => write::tag::SORTED_SET,
        Kind::Hash if has_form_with_deadlines => write::tag::HASH_WITH_DEADLINES,
        Kind::Hash => write::tag::HASH,
        Kind::Plain | Kind::Text | Kind::Raw | Kind::Coded | Kind::Stream => {
            let mut value = Vec::new();
            put_value(entry, 0, &mut value);
            put_key(entry, value[0], out);
            out.extend_from_slice(&value[1..]);
            return items.len();
        }
    };
    if from == 0 {
        put_key(entry, tag, out);
        if has_form_with_deadlines {
            out.extend_from_slice(&LEAST.to_le_bytes());
        }
        put_length(items.len() as u64, out);
    }
    let (mut next, order) = (from, entry.order());
    for item in items.iter_from(from) {
        match entry.kind() {
            Kind::Set => put_text(&member_of(item), out),
            Kind::Sorted => {
                let (key, member) = order::scored_parts(item);
                put_text(member, out);
                out.extend_from_slice(&number_of(key).to_le_bytes());
            }
            Kind::Hash => {
                let field = order.field(item);
                let expires = field.deadline != NO_DEADLINE;
                if has_form_with_deadlines {
                    put_length(if expires { field.deadline - LEAST + 1 } else { 0 }, out);
                }
                put_text(field.name, out);
                put_text(field.value, out);
                if let Some(noted) = &mut noted
                    && expires
                {
                    noted.push((entry.key().into(), field.name.into(), field.deadline));
                }
            }
            _ => put_text(item, out),
        }
        next += 1;
        if out.len() >= enough {
            break;
        }
    }
    next
}

fn has_live_field(entry: &Entry, now: UnixMs) -> bool {
    !entry.has_deadlines() || entry.fields().any(|field| field.is_live(now))
}

/// Appends the number of a value's type and the value. Returns the version of the format that this needs.
fn put_value(entry: &Entry, now: UnixMs, out: &mut Vec<u8>) -> u16 {
    let items = if entry.is_collection() { entry.items() } else { Items::EMPTY };
    let all = || items.iter_from(0);
    match entry.kind() {
        Kind::Plain | Kind::Text | Kind::Raw | Kind::Coded => {
            out.push(write::tag::STRING);
            put_text(entry.value(), out);
        }
        Kind::List => {
            out.push(write::tag::LIST);
            put_length(items.len() as u64, out);
            all().for_each(|element| put_text(element, out));
        }
        Kind::Set => {
            out.push(write::tag::SET);
            put_length(items.len() as u64, out);
            all().for_each(|item| put_text(&member_of(item), out));
        }
        Kind::Sorted => {
            out.push(write::tag::SORTED_SET);
            put_length(items.len() as u64, out);
            // The greatest first, as in Redis, because a reader takes that order fastest.
            for item in items.iter_back(items.len()) {
                let (key, member) = order::scored_parts(item);
                put_text(member, out);
                out.extend_from_slice(&number_of(key).to_le_bytes());
            }
        }
        Kind::Hash if entry.has_deadlines() => {
            let live = || entry.fields().filter(|field| field.is_live(now));
            let deadlines = live().map(|field| field.deadline).filter(|deadline| *deadline != NO_DEADLINE);
            let least = deadlines.min().unwrap_or(0);
            out.push(write::tag::HASH_WITH_DEADLINES);
            out.extend_from_slice(&least.to_le_bytes());
            put_length(live().count() as u64, out);
            for field in live() {
                let behind = if field.deadline == NO_DEADLINE { 0 } else { field.deadline - least + 1 };
                put_length(behind, out);
                put_text(field.name, out);
                put_text(field.value, out);
            }
            return payload::VERSION_WITH_DEADLINES;
        }
        Kind::Hash => {
            out.push(write::tag::HASH);
            put_length(items.len() as u64, out);
            for field in entry.fields() {
                put_text(field.name, out);
                put_text(field.value, out);
            }
        }
        Kind::Stream => {
            out.push(write::tag::STREAM);
            streams::dump(items, out);
        }
    }
    payload::VERSION
}
