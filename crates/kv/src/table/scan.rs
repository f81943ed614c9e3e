//! Reads of the whole table: `KEYS`, `SCAN`, `RANDOMKEY`.
//!
//! A scan walks the index in the order of hashes, and returns keys whose hashes share their upper bits together. A key's
//! hash does not change, whatever is written in the meantime, so **a scan returns every key that is present throughout
//! exactly once**, and a key that is added or removed in the meantime at most once.
//!
//! Tables with the same seed have their keys in the same order, so a scan can continue at another replica. A table with
//! another seed orders them differently. So a cursor identifies its seed, and if it meets another one (the cluster's
//! secret was changed in the meantime, for example) the scan of the group starts over: it then returns keys twice, as
//! Redis allows, and omits none.

use super::Table;
use super::draws::mix;
use super::entry::Entry;
use super::index::KeyHash;
use super::refusals::refuse_large_reply;
use crate::UnixMs;
use crate::glob::Pattern;
use crate::limits::KEY_BYTES_MAX;
use crate::reply::ReplyBuffer;

/// Number of the lowest bits of a cursor, which name the group.
const GROUP_BITS: u32 = 16;

/// Number of the bits above those: the upper bits of the next hash. Of a million keys, a hundred pairs share them.
const HASH_BITS: u32 = 32;

/// Number of the highest bits, which depend on the table's seed: as many as a signed number has room for. The chance that
/// two seeds look alike is one in 32 768.
const SEED_BITS: u32 = 15;

/// The group in which a cursor of `SCAN` continues; 0 for the start of a scan.
pub fn scan_group(cursor: u64) -> u16 {
    cursor as u16
}

/// The position of a scan within one group: all keys whose hashes begin with a smaller value were returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Mark(u64);

impl Mark {
    fn of(hash: KeyHash) -> Mark {
        Mark(hash.number() >> (KeyHash::BITS - HASH_BITS))
    }

    fn first_hash(self) -> KeyHash {
        KeyHash::from_number(self.0 << (KeyHash::BITS - HASH_BITS))
    }

    /// The position of a cursor. A mark from another table means nothing here: start over.
    fn from_cursor(cursor: u64, seed_mark: u64) -> Mark {
        let is_from_here = cursor >> (GROUP_BITS + HASH_BITS) == seed_mark;
        Mark(if is_from_here { cursor >> GROUP_BITS & ((1 << HASH_BITS) - 1) } else { 0 })
    }

    fn cursor(self, seed_mark: u64, group: u16) -> u64 {
        (seed_mark << HASH_BITS | self.0) << GROUP_BITS | u64::from(group)
    }
}

/// A scan ends a step early so that its reply stays within the limit. This much is reserved for the keys of one more mark,
/// which are hardly ever more than two.
const SCAN_BYTES_LEFT: usize = 16 * KEY_BYTES_MAX;

/// Up to this many keys, `RANDOMKEY` looks at all of them; above, it draws.
const RANDOM_COUNTED_MAX: usize = 4096;

/// Keys that `RANDOMKEY` draws before it walks on from one.
const RANDOM_TRIES: u64 = 16;

/// Expired keys that `RANDOMKEY` skips before it replies that there is none.
const RANDOM_EXPIRED_MAX: usize = 1000;

/// Selects the keys that a scan returns.
#[derive(Clone, Copy)]
pub(super) struct Filter<'a> {
    pub(super) pattern: Option<&'a Pattern>,
    /// Kind of value, case-insensitive.
    pub(super) kind: Option<&'a [u8]>,
}

impl Filter<'_> {
    fn admits(&self, entry: &Entry) -> bool {
        self.kind.is_none_or(|kind| kind.eq_ignore_ascii_case(entry.kind().type_name()))
            && self.pattern.is_none_or(|pattern| pattern.matches(entry.key()))
    }
}

impl Table {
    /// The keys that have not expired, in no particular order. Takes time in proportion to the table.
    pub fn live_keys(&self, now: UnixMs) -> impl Iterator<Item = &[u8]> {
        self.index.iter().filter(move |entry| !entry.expired(now)).map(Entry::key)
    }

    /// The type of each key that has not expired, as `TYPE` says it, its length (bytes of a string, items of
    /// another value), and the bytes of memory that it takes. In no particular order. Takes time in
    /// proportion to the table.
    pub fn key_sizes(&self, now: UnixMs) -> impl Iterator<Item = (&'static [u8], [u64; 2])> {
        self.index.iter().filter(move |entry| !entry.expired(now)).map(|entry| {
            let length = if entry.is_collection() { entry.items().len() } else { entry.full_length() };
            (entry.kind().type_name(), [length, entry.memory_bytes()].map(|size| size as u64))
        })
    }

    pub(super) fn keys(&mut self, pattern: &[u8], now: UnixMs, out: &mut ReplyBuffer) {
        let pattern = Pattern::new(pattern);
        let mut encoded = std::mem::take(&mut self.scratch);
        encoded.clear();
        let mut count = 0;
        for entry in self.index.iter().filter(|entry| !entry.expired(now) && pattern.matches(entry.key())) {
            encoded.bulk(entry.key());
            count += 1;
            if encoded.len() > out.reply_bytes_max() {
                break;
            }
        }
        if encoded.len() > out.reply_bytes_max() {
            refuse_large_reply(out.len(), out);
        } else {
            out.array(count);
            out.extend_encoded(encoded.as_bytes());
        }
        encoded.clear();
        self.scratch = encoded;
    }

    /// Visits about `count` entries from a cursor on and returns their keys. `group` is this table's group, and
    /// `next_group` the next one of the scan, 0 if there is none.
    ///
    /// At the end of a group the cursor is the number of the next one, or 0 after the last: 0 means only start and end.
    pub(super) fn scan(
        &mut self,
        cursor: u64,
        count: u64,
        filter: Filter<'_>,
        (group, next_group): (u16, u16),
        now: UnixMs,
        out: &mut ReplyBuffer,
    ) {
        let mut encoded = std::mem::take(&mut self.scratch);
        encoded.clear();
        let bytes_max = out.reply_bytes_max().saturating_sub(SCAN_BYTES_LEFT);
        let seed_mark = self.index.drawn_from_seed(SEED_BITS);
        let (mut keys, mut visited) = (0, 0);
        let mut next = Mark::from_cursor(cursor, seed_mark);
        let mut then = u64::from(next_group);
        for (hash, entry) in self.index.walk_from(next.first_hash()) {
            let mark = Mark::of(hash);
            if mark >= next && visited > 0 && (visited >= count || encoded.len() > bytes_max) {
                then = mark.cursor(seed_mark, group);
                break;
            }
            if !entry.expired(now) && filter.admits(entry) {
                encoded.bulk(entry.key());
                keys += 1;
            }
            next = Mark(mark.0 + 1);
            visited += 1;
        }
        out.array(2);
        out.bulk(then.to_string().as_bytes());
        out.array(keys);
        out.extend_encoded(encoded.as_bytes());
        self.scratch = encoded;
    }

    /// Picks each key that has not expired with equal probability, unless so many have expired that the draws find
    /// none.
    pub(super) fn random_key(&mut self, draw: u64, now: UnixMs, out: &mut ReplyBuffer) {
        match self.draw_entry(draw, now) {
            Some(entry) => out.bulk(entry.key()),
            None => out.null(),
        }
    }

    fn draw_entry(&self, draw: u64, now: UnixMs) -> Option<&Entry> {
        let is_live = |entry: &&Entry| !entry.expired(now);
        if self.index.len() <= RANDOM_COUNTED_MAX {
            let count = self.index.iter().filter(is_live).count() as u64;
            let number = mix(draw).checked_rem(count)?;
            return self.index.iter().filter(is_live).nth(number as usize);
        }
        let mut start = KeyHash::default();
        for attempt in 0..RANDOM_TRIES {
            let number = mix(draw.wrapping_add(attempt)) % self.index.len() as u64;
            let (hash, entry) = self.index.nth(number as usize)?;
            if is_live(&entry) {
                return Some(entry);
            }
            start = hash;
        }
        let around = self.index.walk_from(start).map(|(_, entry)| entry).chain(self.index.iter());
        around.take(RANDOM_EXPIRED_MAX).find(is_live)
    }
}
