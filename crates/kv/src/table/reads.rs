//! Reads of single keys, and of several keys by name.

use super::entry::Entry;
use super::kind::Kind;
use super::refusals::{WRONG_KIND, refuse_large_reply};
use super::{NO_DEADLINE, Table, WARMED_KEYS_MAX, hashes, sets, sorted};
use crate::coded::View;
use crate::command::{Command, EncodingLimits, ExpiryUnit, List};
use crate::digest::digest_of;
use crate::number::parse_integer;
use crate::reply::{Lent, Reply, ReplyBuffer};
use crate::{UnixMs, Version};
use std::num::NonZero;

/// Longest value that Redis embeds in one allocation with its header, in bytes.
const EMBEDDED_BYTES_MAX: usize = 44;

/// Bytes of a reply element in addition to its content.
const ELEMENT_BYTES: usize = 5;

/// A value of this many bytes should not be moved more than once.
const LARGE_BYTES: usize = 256 << 10;

impl Table {
    /// Looks a key up for a read, passes the entry to `read`, and counts the hit or miss. Returns the key's version.
    #[inline]
    pub(super) fn with_entry(
        &mut self,
        key: &[u8],
        now: UnixMs,
        read: impl FnOnce(Option<&Entry>),
    ) -> Version {
        let entry = self.peek(key, now);
        let version = entry.map_or(0, Entry::version);
        let hit = entry.is_some();
        read(entry);
        self.count_lookup(hit);
        version
    }

    #[inline]
    pub(super) fn count_lookup(&mut self, hit: bool) {
        self.statistics.hits += u64::from(hit);
        self.statistics.misses += u64::from(!hit);
    }

    /// `GET`. A value of at least `lent_bytes_min` bytes is lent.
    ///
    /// As with [`Table::update`], the path of most reads is short, and everything else stays off it.
    #[inline(always)]
    pub(super) fn get(
        &mut self,
        key: &[u8],
        now: UnixMs,
        lent_bytes_min: Option<NonZero<usize>>,
        out: &mut ReplyBuffer,
    ) -> Version {
        let is_large = |bytes: usize| lent_bytes_min.is_some_and(|bytes_min| bytes >= bytes_min.get());
        let likely = self.index.likely(self.index.hash(key));
        match likely.and_then(|entry| entry.string_of(key, now)) {
            Some((value, version)) if !is_large(value.len()) => {
                out.bulk(value);
                self.statistics.hits += 1;
                version
            }
            _ => self.get_unusual(key, now, is_large, out),
        }
    }

    /// `GET` of a key that may be missing or far from its home, or of a value that is stored elsewhere or so large that
    /// it is lent.
    #[inline(never)]
    fn get_unusual(
        &mut self,
        key: &[u8],
        now: UnixMs,
        is_large: impl Fn(usize) -> bool,
        out: &mut ReplyBuffer,
    ) -> Version {
        let start = out.len();
        let (mut is_coded, mut is_lent) = (false, false);
        let version = self.with_entry(key, now, |entry| match entry {
            Some(entry) if !entry.is_bytes() => {
                is_coded = entry.is_coded();
                write_value(entry, View::Whole, out);
            }
            Some(entry) if is_large(entry.value().len()) => is_lent = true,
            Some(entry) => out.bulk(entry.value()),
            None => out.null(),
        });
        if is_coded {
            mark_unresolved(&Command::Get { key }, start, out);
        }
        if is_lent && let Some(value) = self.lend_value(key) {
            out.push_lent(Lent::Value(value));
        }
        version
    }

    /// `GET` within a transaction.
    pub(super) fn get_part(&mut self, key: &[u8], now: UnixMs, out: &mut ReplyBuffer) -> Version {
        self.with_entry(key, now, |entry| match entry {
            Some(entry) => write_value(entry, View::Whole, out),
            None => out.null(),
        })
    }

    pub(super) fn fetch(&mut self, key: &[u8], now: UnixMs, out: &mut ReplyBuffer) -> Version {
        self.with_entry(key, now, |entry| {
            let Some(entry) = entry else { return out.null() };
            if entry.is_collection() {
                return out.error(WRONG_KIND);
            }
            out.array(3);
            write_value(entry, View::Whole, out);
            out.integer(entry.version() as i64);
            match entry.deadline() {
                NO_DEADLINE => out.null(),
                deadline => out.integer(deadline as i64),
            }
        })
    }

    pub(super) fn multi_get(&mut self, keys: List<'_>, now: UnixMs, out: &mut ReplyBuffer) {
        let start = out.len();
        let (mut reply_bytes, mut has_room) = (ELEMENT_BYTES, false);
        out.array(keys.len());
        let mut rest = keys.iter();
        for place in 0..keys.len() {
            self.warm_some(place, keys, &rest);
            let Some(key) = rest.next() else { break };
            let entry = self.peek(key, now);
            let hit = entry.is_some();
            match entry {
                // As in Redis, a key that is not a string has no value here.
                Some(entry) if entry.is_collection() => out.null(),
                Some(entry) => {
                    let length = entry.full_length();
                    reply_bytes += ELEMENT_BYTES + length;
                    if reply_bytes > out.reply_bytes_max() {
                        return refuse_large_reply(start, out);
                    }
                    if length >= LARGE_BYTES && !std::mem::replace(&mut has_room, true) {
                        self.make_room(keys, now, out);
                    }
                    write_value(entry, View::Whole, out);
                }
                None => out.null(),
            }
            self.count_lookup(hit);
        }
    }

    /// Warms the next keys of a long list, sixteen at a time.
    #[inline]
    fn warm_some<'k>(&self, place: usize, keys: List<'_>, rest: &(impl Iterator<Item = &'k [u8]> + Clone)) {
        if keys.len() > WARMED_KEYS_MAX && place.is_multiple_of(WARMED_KEYS_MAX) {
            self.warm(rest.clone());
        }
    }

    /// Reserves room for the values of all these keys at once: otherwise large ones would be moved for each that follows.
    #[cold]
    fn make_room(&self, keys: List<'_>, now: UnixMs, out: &mut ReplyBuffer) {
        let entries = keys.iter().filter_map(|key| self.peek(key, now));
        let here = entries.filter(|entry| !entry.is_collection() && entry.reference().is_none());
        let bytes: usize = here.map(|entry| ELEMENT_BYTES + entry.value().len()).sum();
        out.reserve(bytes.min(out.reply_bytes_max()));
    }

    pub(super) fn exists(&mut self, keys: List<'_>, now: UnixMs, out: &mut ReplyBuffer) {
        let mut count = 0;
        for key in keys.iter() {
            let hit = self.peek(key, now).is_some();
            self.count_lookup(hit);
            count += i64::from(hit);
        }
        out.integer(count);
    }

    pub(super) fn kind_of_value(&mut self, key: &[u8], now: UnixMs, out: &mut ReplyBuffer) -> Version {
        let name = |entry: &Entry| entry.kind().type_name();
        self.with_entry(key, now, |entry| out.push(Reply::Status(entry.map_or(b"none", name))))
    }

    pub(super) fn length(&mut self, key: &[u8], now: UnixMs, out: &mut ReplyBuffer) -> Version {
        self.with_entry(key, now, |entry| match entry {
            Some(entry) if entry.is_collection() => out.error(WRONG_KIND),
            _ => out.integer(entry.map_or(0, |entry| entry.full_length() as i64)),
        })
    }

    pub(super) fn get_range(
        &mut self,
        key: &[u8],
        start: i64,
        end: i64,
        now: UnixMs,
        out: &mut ReplyBuffer,
    ) -> Version {
        self.with_entry(key, now, |entry| match entry {
            Some(entry) => write_value(entry, View::Range { start, end }, out),
            None => out.bulk(b""),
        })
    }

    pub(super) fn time_to_live(
        &mut self,
        key: &[u8],
        unit: ExpiryUnit,
        now: UnixMs,
        out: &mut ReplyBuffer,
    ) -> Version {
        self.with_entry(key, now, |entry| {
            let Some(entry) = entry else {
                return out.integer(-2);
            };
            let deadline = entry.deadline();
            if deadline == NO_DEADLINE {
                return out.integer(-1);
            }
            let seconds = |milliseconds: u64| milliseconds.saturating_add(500) / 1000;
            let answer = match unit {
                ExpiryUnit::SecondsLeft => seconds(deadline - now),
                ExpiryUnit::MillisecondsLeft => deadline - now,
                ExpiryUnit::UnixSeconds => seconds(deadline),
                ExpiryUnit::UnixMilliseconds => deadline,
            };
            out.integer(answer as i64);
        })
    }

    pub(super) fn digest_of_value(&mut self, key: &[u8], now: UnixMs, out: &mut ReplyBuffer) -> Version {
        self.with_entry(key, now, |entry| match entry {
            Some(entry) if entry.is_collection() => out.error(WRONG_KIND),
            Some(entry) => {
                let reference = entry.reference();
                let digest = reference.map_or_else(|| digest_of(entry.value()), |reference| reference.digest);
                out.bulk(format!("{digest:016x}").as_bytes());
            }
            None => out.null(),
        })
    }

    /// Does not count as a lookup of the key, as in Redis.
    pub(super) fn encoding(
        &mut self,
        key: &[u8],
        limits: &EncodingLimits,
        now: UnixMs,
        out: &mut ReplyBuffer,
    ) -> Version {
        let Some(entry) = self.peek(key, now) else {
            out.null();
            return 0;
        };
        out.bulk(match entry.kind() {
            Kind::Hash => hashes::encoding(entry, limits),
            Kind::List => b"quicklist",
            Kind::Set => sets::encoding(entry, limits),
            Kind::Sorted => sorted::encoding(entry, limits),
            Kind::Stream => b"stream",
            Kind::Raw | Kind::Coded => b"raw",
            Kind::Plain if parse_integer(entry.value()).is_some() => b"int",
            _ if entry.value().len() <= EMBEDDED_BYTES_MAX => b"embstr",
            _ => b"raw",
        });
        entry.version()
    }

    /// Does not count as a lookup of the key, as in Redis.
    pub(super) fn memory_usage(&mut self, key: &[u8], now: UnixMs, out: &mut ReplyBuffer) -> Version {
        // The index is shared by all keys; this is about one key's share, including gaps.
        const INDEX_BYTES: usize = 30;
        let Some(entry) = self.peek(key, now) else {
            out.null();
            return 0;
        };
        out.integer((entry.memory_bytes() + INDEX_BYTES) as i64);
        entry.version()
    }
}

impl Kind {
    /// The type of the value, as clients know it.
    pub(super) fn type_name(self) -> &'static [u8] {
        match self {
            Kind::Hash => b"hash",
            Kind::List => b"list",
            Kind::Set => b"set",
            Kind::Sorted => b"zset",
            Kind::Stream => b"stream",
            Kind::Plain | Kind::Text | Kind::Raw | Kind::Coded => b"string",
        }
    }
}

/// Appends a string, or a reference to it.
fn write_value(entry: &Entry, view: View, out: &mut ReplyBuffer) {
    if entry.is_collection() {
        return out.error(WRONG_KIND);
    }
    match entry.reference() {
        Some(reference) => Table::write_reference(reference, view, out),
        None => out.bulk(view.of(entry.value())),
    }
}

/// Marks the reply that begins at `start` as unresolved: it contains references.
#[cold]
pub(super) fn mark_unresolved(command: &Command<'_>, start: usize, out: &mut ReplyBuffer) {
    let mut encoded = Vec::new();
    command.encode(&mut encoded);
    out.mark_unresolved(start, &encoded);
}
