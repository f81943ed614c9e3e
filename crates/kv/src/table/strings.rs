//! Writes of values: `SET` in all its forms, `GETDEL`, `GETEX`, `MSET`, `APPEND`, `SETRANGE`.

use super::changes::ChangeClass;
use super::entry::Entry;
use super::index::{KeyHash, Place};
use super::kind::Kind;
use super::refusals::{NO_DIGEST, WRONG_KIND, WrongKind};
use super::transactions::CUT_WRITE;
use super::{NO_DEADLINE, Record, Table};
use crate::command::{Comparison, Condition, Deadline, Expiry, List, SetAnswer};
use crate::limits::VALUE_BYTES_MAX_CEILING;
use crate::reply::ReplyBuffer;

pub(super) const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";

/// The reply to a command for a key that holds another kind of value than the command expects.
impl Table {
    #[allow(clippy::too_many_arguments)] // They are the fields of the command.
    pub(super) fn set(
        &mut self,
        key: &[u8],
        value: &[u8],
        expiry: Expiry,
        condition: Condition,
        answer: SetAnswer,
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        let hash = self.index.hash(key);
        let found = self.find_live(hash, key, record);
        let wanted = match condition {
            Condition::Always => true,
            Condition::IfAbsent => found.is_none(),
            Condition::IfPresent => found.is_some(),
        };
        self.set_found(
            (hash, key, found),
            wanted.then_some((value, expiry, Kind::Plain)),
            answer,
            record,
            out,
        );
    }

    #[allow(clippy::too_many_arguments)] // They are the fields of the command.
    pub(super) fn set_if(
        &mut self,
        key: &[u8],
        value: &[u8],
        expiry: Expiry,
        comparison: Comparison<'_>,
        answer: SetAnswer,
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        let hash = self.index.hash(key);
        let found = self.find_live(hash, key, record);
        if self.is_collection_at(found) {
            return out.error(WRONG_KIND);
        }
        if comparison == Comparison::NoDigest && found.is_some() {
            return out.error(NO_DIGEST);
        }
        let wanted = self.compares(comparison, found);
        self.set_found(
            (hash, key, found),
            wanted.then_some((value, expiry, Kind::Plain)),
            answer,
            record,
            out,
        );
    }

    /// Replies, and stores `new` with its expiry, if given.
    pub(super) fn set_found(
        &mut self,
        (hash, key, found): (KeyHash, &[u8], Option<Place>),
        new: Option<(&[u8], Expiry, Kind)>,
        answer: SetAnswer,
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        match answer {
            SetAnswer::Before if self.is_collection_at(found) => return out.error(WRONG_KIND),
            SetAnswer::Before => self.write_before(found, out),
            SetAnswer::Integer => out.integer(i64::from(new.is_some())),
            SetAnswer::Status if new.is_some() => out.ok(),
            SetAnswer::Status => out.null(),
        }
        if let Some(new) = new {
            self.store_at((hash, key, found), new, record);
        }
    }

    /// Stores a value with its expiry under a key that was looked up.
    #[inline(always)]
    pub(super) fn store_at(
        &mut self,
        (hash, key, found): (KeyHash, &[u8], Option<Place>),
        (value, expiry, kind): (&[u8], Expiry, Kind),
        record: Record,
    ) {
        let deadline = match expiry {
            Expiry::Clear => NO_DEADLINE,
            Expiry::Keep => found.map_or(NO_DEADLINE, |place| self.index.entry(place).deadline()),
            Expiry::Set(deadline) => record.deadline(deadline),
        };
        match found {
            // A value whose deadline has passed is not stored, and the present value is removed.
            Some(place) if deadline <= record.time => self.remove(place, record),
            None if deadline <= record.time => {}
            Some(place) => {
                self.note_overwritten(place, kind, record);
                self.overwrite(place, value, deadline, kind, record);
            }
            None => self.insert(hash, Entry::new(key, value, record.stamp(deadline, kind)), record),
        }
        if let Expiry::Set(_) = expiry
            && deadline > record.time
        {
            self.changes.note_as(key, ChangeClass::Generic, "expire");
        }
    }

    pub(super) fn delete_if(
        &mut self,
        key: &[u8],
        comparison: Comparison<'_>,
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        let hash = self.index.hash(key);
        let Ok(found) = self.find_string(hash, key, record, out) else { return };
        match found.filter(|place| self.compares(comparison, Some(*place))) {
            Some(place) => {
                self.remove(place, record);
                out.integer(1);
            }
            None => out.integer(0),
        }
    }

    /// Whether the value at a place meets a condition. A value stored outside the table is compared by its digest. Its
    /// length differs from that of the given value; otherwise its bytes would have been supplied.
    fn compares(&self, comparison: Comparison<'_>, found: Option<Place>) -> bool {
        let entry = found.map(|place| self.index.entry(place));
        match (comparison, entry.and_then(Entry::reference)) {
            (_, None) => comparison.holds(entry.map(Entry::value)),
            (Comparison::Equal(_), Some(_)) => false,
            (Comparison::NotEqual(_), Some(_)) => true,
            (Comparison::DigestEqual(digest), Some(reference)) => reference.digest == digest,
            (Comparison::DigestNotEqual(digest), Some(reference)) => reference.digest != digest,
            (Comparison::NoDigest, Some(_)) => false,
        }
    }

    fn is_collection_at(&self, found: Option<Place>) -> bool {
        found.is_some_and(|place| self.index.entry(place).is_collection())
    }

    /// Like [`Table::find_live`], for commands on strings: replies with an error if the key holds another kind.
    pub(super) fn find_string(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        record: Record,
        out: &mut ReplyBuffer,
    ) -> Result<Option<Place>, WrongKind> {
        let found = self.find_live(hash, key, record);
        if self.is_collection_at(found) {
            out.error(WRONG_KIND);
            return Err(WrongKind);
        }
        Ok(found)
    }

    /// Replies with the value at a place before it changes, and counts the lookup.
    fn write_before(&mut self, found: Option<Place>, out: &mut ReplyBuffer) {
        match found {
            Some(_) if self.is_quiet => out.error(CUT_WRITE),
            Some(place) => out.bulk(self.index.entry(place).value()),
            None => out.null(),
        }
        self.count_lookup(found.is_some());
    }

    pub(super) fn get_delete(&mut self, key: &[u8], record: Record, out: &mut ReplyBuffer) {
        let hash = self.index.hash(key);
        let Ok(found) = self.find_string(hash, key, record, out) else { return };
        self.write_before(found, out);
        if let Some(place) = found {
            self.remove(place, record);
        }
    }

    pub(super) fn get_expire(&mut self, key: &[u8], expiry: Expiry, record: Record, out: &mut ReplyBuffer) {
        let hash = self.index.hash(key);
        let Ok(found) = self.find_string(hash, key, record, out) else { return };
        self.write_before(found, out);
        let Some(place) = found else { return };
        match expiry {
            Expiry::Keep => {}
            Expiry::Clear if self.index.entry(place).deadline() == NO_DEADLINE => {}
            Expiry::Clear => self.set_deadline(place, NO_DEADLINE, record),
            Expiry::Set(deadline) => match record.deadline(deadline) {
                past if past <= record.time => self.remove(place, record),
                deadline => self.set_deadline(place, deadline, record),
            },
        }
    }

    pub(super) fn multi_set(
        &mut self,
        pairs: List<'_>,
        if_absent: bool,
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        if if_absent && !self.is_met_for_all(Condition::IfAbsent, pairs, record) {
            return out.integer(0);
        }
        for (key, value) in pairs.pairs() {
            self.put(key, value, NO_DEADLINE, Kind::Plain, record);
        }
        if if_absent { out.integer(1) } else { out.ok() }
    }

    pub(super) fn multi_set_expire(
        &mut self,
        pairs: List<'_>,
        expiry: Expiry,
        condition: Condition,
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        if !self.is_met_for_all(condition, pairs, record) {
            return out.integer(0);
        }
        for (key, value) in pairs.pairs() {
            let hash = self.index.hash(key);
            let found = self.find_live(hash, key, record);
            self.store_at((hash, key, found), (value, expiry, Kind::Plain), record);
        }
        out.integer(1);
    }

    /// Whether the keys of these pairs are all missing, or all there, as the condition demands. All of them are looked up, so
    /// that each is counted, and removed if it has expired.
    fn is_met_for_all(&mut self, condition: Condition, pairs: List<'_>, record: Record) -> bool {
        let mut present = 0;
        if condition != Condition::Always {
            for (key, _) in pairs.pairs() {
                present += usize::from(self.find_live(self.index.hash(key), key, record).is_some());
            }
        }
        match condition {
            Condition::Always => true,
            Condition::IfAbsent => present == 0,
            Condition::IfPresent => present == pairs.len() / 2,
        }
    }

    pub(super) fn append(
        &mut self,
        key: &[u8],
        value: &[u8],
        bytes_max: u64,
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        let hash = self.index.hash(key);
        let Ok(found) = self.find_string(hash, key, record, out) else { return };
        let length = found.map_or(0, |place| self.index.entry(place).value().len());
        let sum = length + value.len();
        if sum as u64 > bytes_max.min(VALUE_BYTES_MAX_CEILING as u64) {
            return out.error(TOO_LONG);
        }
        match found {
            Some(place) => self.write_at(place, length, value, record),
            None => self.insert(hash, Entry::new(key, value, record.stamp(NO_DEADLINE, Kind::Plain)), record),
        }
        out.integer(sum as i64);
    }

    /// The caller has checked the length against its own limit; this refuses only what cannot be represented.
    pub(super) fn set_range(
        &mut self,
        key: &[u8],
        offset: u64,
        value: &[u8],
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        let hash = self.index.hash(key);
        let Ok(found) = self.find_string(hash, key, record, out) else { return };
        let length = found.map_or(0, |place| self.index.entry(place).full_length());
        if value.is_empty() {
            return out.integer(length as i64);
        }
        let end = offset.saturating_add(value.len() as u64);
        if end > VALUE_BYTES_MAX_CEILING as u64 {
            return out.error(TOO_LONG);
        }
        match found {
            Some(place) => self.write_at(place, offset as usize, value, record),
            None => {
                let mut padded = Vec::with_capacity(end as usize);
                padded.resize(offset as usize, 0);
                padded.extend_from_slice(value);
                self.insert(hash, Entry::new(key, &padded, record.stamp(NO_DEADLINE, Kind::Raw)), record);
            }
        }
        out.integer(end.max(length as u64) as i64);
    }
}

impl Record {
    /// The absolute deadline, given the record's time. If it is at or before that time, the key expires at once.
    pub(super) fn deadline(self, deadline: Deadline) -> crate::UnixMs {
        let latest = NO_DEADLINE - 1;
        match deadline {
            Deadline::In(milliseconds) => self.time.saturating_add_signed(milliseconds).min(latest),
            Deadline::At(time) => u64::try_from(time).unwrap_or(0),
        }
    }
}
