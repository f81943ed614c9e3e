//! Counters: `INCR` and similar commands, `INCRBYFLOAT`. Numbers are stored as text; see [`crate::number`].

use super::changes::ChangeClass;
use super::entry::Entry;
use super::index::Place;
use super::kind::Kind;
use super::refusals::{NOT_AN_INTEGER, NOT_FINITE, OVERFLOW};
use super::{NO_DEADLINE, Record, Table};
use crate::command::{Expiry, Step};
use crate::number::{self, FloatError};
use crate::reply::{Reply, ReplyBuffer};

const NOT_A_FLOAT: &str = "ERR value is not a valid float";
const IS_INFINITE: &str = "ERR value cannot be Infinity";
const ADDED_TOO_MUCH: &str = "ERR applied increment would overflow";
const ADDED_INFINITY: &str = "ERR applied increment would be Infinity";

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

    /// Adds to a number within bounds. Out of them, nothing changes, or the bound is stored.
    pub(super) fn increment_within(
        &mut self,
        key: &[u8],
        (step, saturates): (Step<'_>, bool),
        (expiry, if_without): (Expiry, bool),
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        let hash = self.index.hash(key);
        let Ok(found) = self.find_string(hash, key, record, out) else { return };
        // No number is as long as a value that is stored elsewhere.
        let before = match found {
            Some(place) if self.is_no_number(found) => &self.index.entry(place).value()[..0],
            Some(place) => self.index.entry(place).value(),
            None => b"0",
        };
        let sum = match sum_within(before, step, saturates) {
            Ok(sum) => sum,
            Err(why) => return out.error(why),
        };
        out.array(2);
        out.push(sum.replies[0]);
        out.push(sum.replies[1]);
        let Some(text) = sum.text else { return };
        let has_deadline = found.is_some_and(|place| self.index.entry(place).deadline() != NO_DEADLINE);
        let expiry = match expiry {
            // A missing key has no expiry to keep, and `Keep` leaves it without.
            Expiry::Set(_) if if_without && has_deadline => Expiry::Keep,
            expiry => expiry,
        };
        let kind = if matches!(step, Step::Whole { .. }) { Kind::Plain } else { Kind::Text };
        self.store_at((hash, key, found), (text.as_bytes(), expiry, kind), record);
        if expiry == Expiry::Clear && has_deadline {
            self.changes.note_as(key, ChangeClass::Generic, "persist");
        }
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

/// What [`sum_within`] has computed.
struct Sum {
    /// What is stored; `None` if the sum is out of bounds and nothing is.
    text: Option<String>,
    /// The number as it is then, and what was added to it.
    replies: [Reply<'static>; 2],
}

/// Adds to a number, given as text, within bounds.
///
/// # Errors
/// The words of the error reply.
fn sum_within(before: &[u8], step: Step<'_>, saturates: bool) -> Result<Sum, &'static str> {
    match step {
        Step::Whole { by, least, most } => {
            let before = number::parse_integer(before).ok_or(NOT_AN_INTEGER)?;
            let whole = i128::from(before) + i128::from(by);
            let is_within = (i128::from(least)..=i128::from(most)).contains(&whole);
            if !is_within && !saturates {
                return Ok(Sum { text: None, replies: [Reply::Integer(before), Reply::Integer(0)] });
            }
            let sum = whole.min(most.into()).max(least.into());
            let added = i64::try_from(sum - i128::from(before)).map_err(|_| ADDED_TOO_MUCH)?;
            let sum = before + added;
            Ok(Sum { text: Some(sum.to_string()), replies: [Reply::Integer(sum), Reply::Integer(added)] })
        }
        Step::Decimal { by, least, most } => {
            let known = number::parse_float(before).ok_or(NOT_A_FLOAT)?;
            if known.is_infinite() {
                return Err(IS_INFINITE);
            }
            let double = |text: &str| number::parse_float(text.as_bytes()).unwrap_or(f64::NAN);
            let text = match number::add_floats(before, by) {
                Ok(text) => Some(text),
                Err(FloatError::NotANumber) => return Err(NOT_A_FLOAT),
                Err(FloatError::NotFinite) => None,
            };
            let by = number::parse_float(by).ok_or(NOT_A_FLOAT)?;
            let sum = text.as_deref().map_or(known + by, double);
            if let Some(text) = text
                && (least..=most).contains(&sum)
            {
                return Ok(Sum { text: Some(text), replies: [Reply::Double(sum), Reply::Double(by)] });
            }
            if !saturates {
                return Ok(Sum { text: None, replies: [Reply::Double(known), Reply::Double(0.0)] });
            }
            let bound = sum.min(most.min(f64::MAX)).max(least.max(-f64::MAX));
            // The fewest digits: a bound is stored as it was written.
            let text = if bound == 0.0 { "0".to_owned() } else { bound.to_string() };
            let taken = format!("-{}", String::from_utf8_lossy(before));
            let taken = taken.strip_prefix("--").unwrap_or(&taken);
            let added = number::add_floats(text.as_bytes(), taken.as_bytes()).map_err(|_| ADDED_INFINITY)?;
            Ok(Sum { replies: [Reply::Double(bound), Reply::Double(double(&added))], text: Some(text) })
        }
    }
}
