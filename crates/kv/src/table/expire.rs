//! Expiry: `EXPIRE` and similar commands, `PERSIST`, and the leader's `Purge`.
//!
//! A key is missing from its deadline on, for reads by the reader's clock and for writes by the record's time. A write
//! first removes those of its keys that have expired, a purge removes all that are due; both are records, so replicas
//! agree on what exists. The same holds for fields of hashes: see [`super::hashes`].

use super::changes::ChangeClass;
use super::found::Found;
use super::kind::Kind;
use super::{NO_DEADLINE, Record, Table};
use crate::UnixMs;
use crate::command::{Deadline, ExpireCondition};
use crate::reply::ReplyBuffer;

/// Most fields that one record removes because they have expired.
const PURGED_FIELDS_MAX: usize = 1000;

impl Table {
    pub(super) fn expire(
        &mut self,
        key: &[u8],
        deadline: Deadline,
        condition: ExpireCondition,
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        let hash = self.index.hash(key);
        let Some(place) = self.find_live(hash, key, record) else {
            return out.integer(0);
        };
        let deadline = record.deadline(deadline);
        if !allows(condition, self.index.entry(place).deadline(), deadline) {
            return out.integer(0);
        }
        if deadline <= record.time {
            self.statistics.expired += 1;
            self.remove(place, record);
        } else {
            self.set_deadline(place, deadline, record);
        }
        out.integer(1);
    }

    pub(super) fn persist(&mut self, key: &[u8], record: Record, out: &mut ReplyBuffer) {
        let hash = self.index.hash(key);
        let found = self.find_live(hash, key, record);
        match found.filter(|place| self.index.entry(*place).deadline() != NO_DEADLINE) {
            Some(place) => {
                self.set_deadline(place, NO_DEADLINE, record);
                out.integer(1);
            }
            None => out.integer(0),
        }
    }

    pub(super) fn purge(&mut self, until: UnixMs, record: Record, out: &mut ReplyBuffer) {
        let mut count = 0;
        while let Some((place, _)) = self.first_to_expire(until) {
            self.remove_expired(place, record);
            count += 1;
        }
        self.statistics.purged += count as u64;
        self.changes.begin_event(Some((ChangeClass::Hash, "hexpired")));
        self.purge_fields(until, record);
        self.drop_long(until);
        self.purged_at = self.purged_at.map(|_| self.statistics.lookups());
        out.integer(count);
    }

    /// Removes some fields whose deadline is at or before `until`: millions of fields of one hash may expire at once. The
    /// leader proposes the rest again.
    fn purge_fields(&mut self, until: UnixMs, record: Record) {
        let mut left = PURGED_FIELDS_MAX;
        while left > 0
            && let Some((place, entry)) = self.first_field_to_expire(until)
        {
            let key = entry.key().to_vec();
            let found = Found { key: &key, hash: place.hash, place: Some(place) };
            let due = self.edit_collection(found, Kind::Hash, record, |hash, discarded| {
                hash.remove_due_fields(until, left, discarded)
            });
            left -= due.len();
            self.statistics.purged_fields += due.len() as u64;
            self.cover_due_fields(&key, due);
        }
    }

    /// Whether any field of a hash expires.
    pub fn has_field_deadlines(&self) -> bool {
        !self.fields_due.is_empty()
    }

    /// The number of hashes with fields that expire.
    pub fn hashes_with_deadlines(&self) -> usize {
        self.fields_due.len()
    }

    /// Whether nothing here ever has to be purged.
    pub fn has_no_deadlines(&self) -> bool {
        self.expiries.is_empty() && self.fields_due.is_empty() && self.long.is_empty()
    }

    /// Has a leader propose [`crate::Command::Purge`] only after a read has looked a key up, or as usual again. What has expired is
    /// missing in any case. For tests.
    pub fn keep_expired(&mut self, is_kept: bool) {
        self.purged_at = is_kept.then(|| self.statistics.lookups());
    }

    /// The deadline up to which a leader should propose [`crate::Command::Purge`] now; `None` when nothing is due.
    ///
    /// Chosen so that the purge removes at most about `keys_max` keys: more only when several keys share that deadline.
    pub fn purge_until(&self, now: UnixMs, keys_max: usize) -> Option<UnixMs> {
        if self.has_no_deadlines() || self.purged_at == Some(self.statistics.lookups()) {
            return None;
        }
        let deadlines = self.expiries.iter().map(|(deadline, _)| *deadline);
        let until = deadlines.take(keys_max.max(1)).take_while(|deadline| *deadline <= now).last();
        let field = || self.fields_due.first().filter(|(deadline, _)| *deadline <= now).map(|_| now);
        until.or_else(field).or_else(|| self.long.due(now))
    }
}

/// Whether a key or field that expires at `present` may get the deadline `new`.
pub(super) fn allows(condition: ExpireCondition, present: UnixMs, new: UnixMs) -> bool {
    use ExpireCondition::*;
    let (some, later, earlier) = (present != NO_DEADLINE, new > present, new < present);
    match condition {
        Always => true,
        IfNone => !some,
        IfSome => some,
        // A key without expiry counts as infinitely late, and NO_DEADLINE is later than any deadline.
        IfLater => later,
        IfEarlier => earlier,
        IfSomeAndLater => some && later,
        IfSomeAndEarlier => some && earlier,
    }
}
