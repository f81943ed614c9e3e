//! Counters: `INCR` and similar commands, `INCRBYFLOAT`. Numbers are stored as text; see [`crate::number`].

use super::entry::Entry;
use super::index::Place;
use super::kind::Kind;
use super::refusals::{NOT_AN_INTEGER, NOT_FINITE, OVERFLOW};
use super::{NO_DEADLINE, Record, Table};
use crate::number::{self, FloatError};
use crate::reply::ReplyBuffer;

const NOT_A_FLOAT: &str = "ERR value is not a valid float";

impl Table {
    pub(super) fn increment_by(&mut self, key: &[u8], delta: i64, record: Record, out: &mut ReplyBuffer) {
        let hash = self.index.hash(key);
        let Ok(found) = self.find_string(hash, key, record, out) else { return };
        if self.is_no_number(found) {
            return out.error(NOT_AN_INTEGER);
        }
        let before = match found.map(|place| number::parse_integer(self.index.entry(place).value())) {
            Some(None) => return out.error(NOT_AN_INTEGER),
            Some(Some(before)) => before,
            None => 0,
        };
        let Some(sum) = before.checked_add(delta) else {
            return out.error(OVERFLOW);
        };
        let mut buffer = [0; number::INTEGER_TEXT_BYTES_MAX];
        let text = number::format_integer(sum, &mut buffer);
        match found {
            Some(place) => self.replace_value(place, text, Kind::Plain, record),
            None => self.insert(hash, Entry::new(key, text, record.stamp(NO_DEADLINE, Kind::Plain)), record),
        }
        out.integer(sum);
    }

    pub(super) fn increment_by_float(
        &mut self,
        key: &[u8],
        delta: &[u8],
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        let hash = self.index.hash(key);
        let Ok(found) = self.find_string(hash, key, record, out) else { return };
        if self.is_no_number(found) {
            return out.error(NOT_A_FLOAT);
        }
        let before = found.map_or(&b"0"[..], |place| self.index.entry(place).value());
        let sum = match number::add_floats(before, delta) {
            Ok(sum) => sum,
            Err(FloatError::NotANumber) => return out.error(NOT_A_FLOAT),
            Err(FloatError::NotFinite) => return out.error(NOT_FINITE),
        };
        let text = sum.as_bytes();
        match found {
            Some(place) => self.replace_value(place, text, Kind::Text, record),
            None => self.insert(hash, Entry::new(key, text, record.stamp(NO_DEADLINE, Kind::Text)), record),
        }
        out.bulk(text);
    }

    /// A value stored outside the table, whose bytes were not requested, is too long to be a number.
    fn is_no_number(&self, found: Option<Place>) -> bool {
        found.is_some_and(|place| self.index.entry(place).is_coded())
    }

    /// Replaces the value of the key at a place; its deadline stays.
    pub(super) fn replace_value(&mut self, place: Place, value: &[u8], kind: Kind, record: Record) {
        let deadline = self.index.entry(place).deadline();
        self.overwrite(place, value, deadline, kind, record);
    }
}
