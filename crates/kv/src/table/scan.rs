//! Reads of the whole table: `KEYS`, `SCAN`, `RANDOMKEY`.
//!
//! A scan walks the slots by number. A key keeps its slot for as long as it exists, whatever is written
//! meanwhile, so **a scan tells every key that is present throughout exactly once**; one that comes or goes
//! meanwhile is told at most once for each time that it comes.

use super::Table;
use super::reads::refuse_large_reply;
use crate::UnixMs;
use crate::glob;
use crate::limits::{KEY_BYTES_MAX, REPLY_BYTES_MAX};
use crate::reply::ReplyBuffer;

/// A scan ends a step early rather than let its reply grow beyond the limit: one more key always has room.
const SCAN_BYTES_MAX: usize = REPLY_BYTES_MAX - 2 * KEY_BYTES_MAX;

/// Up to so many keys `RANDOMKEY` counts; beyond it draws slots.
const RANDOM_COUNTED_MAX: usize = 4096;

/// Slots that `RANDOMKEY` tries at random before it walks on from one.
const RANDOM_TRIES: u32 = 16;

/// Expired keys that `RANDOMKEY` passes over before it answers that there is none.
const RANDOM_EXPIRED_MAX: usize = 1000;

/// Which keys a scan tells.
#[derive(Clone, Copy)]
pub(super) struct Filter<'a> {
    pub(super) pattern: Option<&'a [u8]>,
    /// Kind of value; every value here is a string.
    pub(super) kind: Option<&'a [u8]>,
}

impl Filter<'_> {
    fn admits(&self, key: &[u8]) -> bool {
        self.kind.is_none_or(|kind| kind.eq_ignore_ascii_case(b"string"))
            && self.pattern.is_none_or(|pattern| glob::matches(pattern, key))
    }
}

impl Table {
    pub(super) fn keys(&mut self, pattern: &[u8], now: UnixMs, out: &mut ReplyBuffer) {
        let mut told = std::mem::take(&mut self.scratch);
        told.clear();
        let mut count = 0;
        for entry in
            self.slab.iter().filter(|entry| !entry.expired(now) && glob::matches(pattern, entry.key()))
        {
            told.bulk(entry.key());
            count += 1;
            if told.len() > REPLY_BYTES_MAX {
                break;
            }
        }
        if told.len() > REPLY_BYTES_MAX {
            refuse_large_reply(out.len(), out);
        } else {
            out.array(count);
            out.extend_encoded(told.as_bytes());
        }
        told.clear();
        self.scratch = told;
    }

    /// Visits up to `count` slots from slot `from` on and tells their keys. `group` is this table's number
    /// among the groups that one scan goes through, and how many those are.
    ///
    /// The cursor for the rest of part p is `slot * parts + p`, where the slot is the next one to visit and
    /// so at least 1. When a part is done the cursor is the start of the next, which is its number, or 0 after
    /// the last: 0 means only start and end.
    pub(super) fn scan(
        &mut self,
        from: u64,
        count: u64,
        filter: Filter<'_>,
        group: (u32, u32),
        now: UnixMs,
        out: &mut ReplyBuffer,
    ) {
        let (part, parts) = (u64::from(group.0), u64::from(group.1));
        let mut told = std::mem::take(&mut self.scratch);
        told.clear();
        let (mut keys, mut visited) = (0, 0);
        let mut next = self.slab.next_slot(usize::try_from(from).unwrap_or(usize::MAX));
        while let Some(slot) = next {
            if let Some(entry) = self.slab.get(slot)
                && !entry.expired(now)
                && filter.admits(entry.key())
            {
                told.bulk(entry.key());
                keys += 1;
            }
            next = self.slab.next_slot(slot as usize + 1);
            visited += 1;
            if visited >= count || told.len() > SCAN_BYTES_MAX {
                break;
            }
        }
        let cursor = match next {
            Some(slot) => u64::from(slot) * parts + part,
            None if part + 1 < parts => part + 1,
            None => 0,
        };
        out.array(2);
        out.bulk(cursor.to_string().as_bytes());
        out.array(keys);
        out.extend_encoded(told.as_bytes());
        self.scratch = told;
    }

    /// A few random tries find a key quickly and fairly in a table that is well filled; else the first key
    /// after a random slot is taken.
    pub(super) fn random_key(&mut self, draw: u64, now: UnixMs, out: &mut ReplyBuffer) {
        let end = self.slab.end() as u64;
        if end == 0 {
            return out.null();
        }
        if self.len() <= RANDOM_COUNTED_MAX {
            // Few enough to count them, so that each is as likely as the other however many holes there are.
            let live = || self.slab.iter().filter(|entry| !entry.expired(now));
            let count = live().count() as u64;
            let picked = count.checked_sub(1).and_then(|_| live().nth((mix(draw) % count) as usize));
            return match picked {
                Some(entry) => out.bulk(entry.key()),
                None => out.null(),
            };
        }
        let slot_of = |number: u64| ((u128::from(mix(number)) * u128::from(end)) >> 64) as usize;
        for attempt in 0..u64::from(RANDOM_TRIES) {
            let slot = slot_of(draw.wrapping_add(attempt)) as u32;
            if let Some(entry) = self.slab.get(slot).filter(|entry| !entry.expired(now)) {
                return out.bulk(entry.key());
            }
        }
        let start = slot_of(draw);
        let (mut from, mut expired, mut wrapped) = (start, 0, false);
        while expired <= RANDOM_EXPIRED_MAX {
            match self.slab.next_slot(from) {
                Some(slot) if !wrapped || (slot as usize) < start => {
                    if let Some(entry) = self.slab.get(slot) {
                        if !entry.expired(now) {
                            return out.bulk(entry.key());
                        }
                        expired += 1;
                    }
                    from = slot as usize + 1;
                }
                None if !wrapped => (from, wrapped) = (0, true),
                _ => break,
            }
        }
        out.null();
    }
}

/// Spreads consecutive numbers evenly (the finaliser of splitmix64).
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
