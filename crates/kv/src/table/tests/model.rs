//! Random records against a model: a sorted map, and the simplest code that defines each command.

use super::*;
use crate::command::{Comparison, Deadline, Draft, ExpireCondition};
use crate::digest::digest_of;
use proptest::collection::{SizeRange, vec};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// An encoded command, as a log would hold it.
#[derive(Clone)]
pub(super) struct Record(Vec<u8>);

impl Record {
    pub(super) fn of(command: &Command<'_>) -> Record {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        Record(bytes)
    }

    pub(super) fn command(&self) -> Command<'_> {
        Command::decode(&mut Reader::new(&self.0)).unwrap()
    }
}

impl std::fmt::Debug for Record {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.command().fmt(formatter)
    }
}

/// Records over few keys, so that they affect each other: single commands, and transactions of several.
pub(super) fn records(count: impl Into<SizeRange>) -> impl Strategy<Value = Vec<Record>> {
    vec(prop_oneof![9 => record(), 1 => vec(record(), 0..5).prop_map(together)], count)
}

/// One transaction of all those commands that are allowed in one.
fn together(records: Vec<Record>) -> Record {
    let mut draft = Draft::default();
    for record in &records {
        draft.push(&record.command());
    }
    Record::of(&Command::Transaction(draft.transaction()))
}

/// The time of a record. It follows from the record's number, so that every replay uses the same time.
pub(super) fn time_of(offset: Version) -> UnixMs {
    1000 + offset * 3
}

/// Applies records as the next ones of a history.
pub(super) fn replay(table: &mut Table, records: &[Record], offset: &mut Version) {
    for record in records {
        *offset += 1;
        table.apply(&record.command(), *offset, time_of(*offset), &mut ReplyBuffer::new());
    }
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    (0..12u8).prop_map(|number| format!("key{number}").into_bytes())
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => vec(any::<u8>(), 0..40),
        2 => (-100..100i64).prop_map(|number| number.to_string().into_bytes()),
        1 => vec(any::<u8>(), 0..2000),
    ]
}

fn deadline() -> impl Strategy<Value = Deadline> {
    prop_oneof![
        (-20..200i64).prop_map(Deadline::In),
        (900..1500i64).prop_map(Deadline::At),
        Just(Deadline::In(i64::MAX))
    ]
}

fn expiry() -> impl Strategy<Value = Expiry> {
    prop_oneof![2 => Just(Expiry::Clear), 1 => Just(Expiry::Keep), 2 => deadline().prop_map(Expiry::Set)]
}

/// Values to compare with the current ones: often equal, because there are few.
fn comparison() -> impl Strategy<Value = (usize, Vec<u8>)> {
    (0..4usize, prop_oneof![3 => (0..3i64).prop_map(|number| number.to_string().into_bytes()), 1 => value()])
}

fn compared((kind, value): &(usize, Vec<u8>)) -> Comparison<'_> {
    use Comparison::*;
    let digest = digest_of(value);
    [Equal(value), NotEqual(value), DigestEqual(digest), DigestNotEqual(digest)][*kind]
}

pub(super) fn record() -> impl Strategy<Value = Record> {
    use ExpireCondition::*;
    let condition =
        || prop::sample::select(vec![Condition::Always, Condition::IfAbsent, Condition::IfPresent]);
    let answer = prop::sample::select(vec![SetAnswer::Status, SetAnswer::Integer, SetAnswer::Before]);
    let when = vec![Always, IfNone, IfSome, IfLater, IfEarlier, IfSomeAndLater, IfSomeAndEarlier];
    prop_oneof![
        6 => (key(), value()).prop_map(|(key, value)| Record::of(&plain_set(&key, &value))),
        6 => (key(), value(), expiry(), condition(), answer).prop_map(|(key, value, expiry, condition, answer)| {
            Record::of(&Command::Set { key: &key, value: &value, expiry, condition, answer })
        }),
        4 => (key(), comparison(), expiry(), any::<bool>()).prop_map(|(key, compare, expiry, before)| {
            let answer = if before { SetAnswer::Before } else { SetAnswer::Status };
            let (value, comparison) = (&compare.1, compared(&compare));
            Record::of(&Command::SetIf { key: &key, value, expiry, comparison, answer })
        }),
        2 => (key(), comparison()).prop_map(|(key, compare)| {
            Record::of(&Command::DeleteIf { key: &key, comparison: compared(&compare) })
        }),
        1 => key().prop_map(|key| Record::of(&Command::GetDelete { key: &key })),
        1 => (key(), expiry()).prop_map(|(key, expiry)| Record::of(&Command::GetExpire { key: &key, expiry })),
        1 => (vec((key(), value()), 1..4), any::<bool>()).prop_map(|(pairs, if_absent)| {
            let mut scratch = Vec::new();
            let items = pairs.iter().flat_map(|(key, value)| [&key[..], &value[..]]);
            Record::of(&Command::MultiSet { pairs: List::build(&mut scratch, items), if_absent })
        }),
        4 => vec(key(), 1..3).prop_map(|keys| {
            let mut scratch = Vec::new();
            Record::of(&Command::Delete { keys: List::build(&mut scratch, keys.iter().map(Vec::as_slice)) })
        }),
        3 => (key(), value()).prop_map(|(key, value)| {
            Record::of(&Command::Append { key: &key, value: &value, bytes_max: 3000 })
        }),
        2 => (key(), 0..100u64, value()).prop_map(|(key, offset, value)| {
            Record::of(&Command::SetRange { key: &key, offset, value: &value })
        }),
        3 => (key(), any::<i64>(), 1..1000i64).prop_map(|(key, delta, small)| {
            let delta = if delta % 10 == 0 { delta } else { small };
            Record::of(&Command::IncrementBy { key: &key, delta })
        }),
        3 => (key(), deadline(), prop::sample::select(when)).prop_map(|(key, deadline, condition)| {
            Record::of(&Command::Expire { key: &key, deadline, condition })
        }),
        1 => key().prop_map(|key| Record::of(&Command::Persist { key: &key })),
        2 => (key(), key(), any::<bool>()).prop_map(|(from, to, if_absent)| {
            Record::of(&Command::Rename { from: &from, to: &to, if_absent })
        }),
        2 => (key(), key(), any::<bool>()).prop_map(|(from, to, replace)| {
            let to = if from == to { b"other".to_vec() } else { to };
            Record::of(&Command::Copy { from: &from, to: &to, replace })
        }),
        1 => prop_oneof![9 => Just(None), 1 => Just(Some(()))].prop_map(|clear| match clear {
            Some(()) => Record::of(&Command::Clear {}),
            None => Record::of(&Command::Persist { key: b"key0" }),
        }),
        1 => (900..1500u64).prop_map(|until| Record::of(&Command::Purge { until })),
        1 => (key(), value(), 0..500u64).prop_map(|(key, value, version)| {
            Record::of(&Command::Replicate { key: &key, value: &value, version })
        }),
    ]
}

#[derive(Clone)]
struct Kept {
    value: Vec<u8>,
    deadline: Option<u64>,
    version: Version,
}

#[derive(Default)]
struct Model {
    keys: BTreeMap<Vec<u8>, Kept>,
    floor: Version,
}

fn bulk(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.escape_ascii())
}

fn value_or_nil(kept: Option<&Kept>) -> String {
    kept.map_or("nil".to_owned(), |kept| bulk(&kept.value))
}

fn absolute(deadline: Deadline, time: u64) -> u64 {
    let at = match deadline {
        Deadline::In(milliseconds) => i128::from(time) + i128::from(milliseconds),
        Deadline::At(at) => i128::from(at),
    };
    at.clamp(0, i128::from(u64::MAX - 1)) as u64
}

impl Model {
    /// Removes the expired keys that the command names, then carries it out on the remaining keys.
    fn apply(&mut self, command: &Command<'_>, offset: Version, time: u64) -> String {
        let version = offset.max(self.floor + 1);
        if let Command::Transaction(transaction) = command {
            let replies: Vec<_> =
                transaction.commands().map(|command| self.apply_one(&command, version, time)).collect();
            return format!("[{}]", replies.join(" "));
        }
        self.apply_one(command, version, time)
    }

    fn apply_one(&mut self, command: &Command<'_>, version: Version, time: u64) -> String {
        let keys_before = self.keys.len();
        let named = |keys: &mut BTreeMap<Vec<u8>, Kept>, key: &[u8]| {
            if keys.get(key).is_some_and(|kept| kept.deadline.is_some_and(|deadline| deadline <= time)) {
                keys.remove(key);
            }
        };
        command.for_each_key(|key| named(&mut self.keys, key));
        let removed = self.keys.len() != keys_before;
        let (reply, wrote) = self.carry_out(command, version, time);
        if wrote || removed {
            self.floor = self.floor.max(version);
        }
        reply
    }

    fn put(&mut self, key: &[u8], value: &[u8], deadline: Option<u64>, version: Version, time: u64) {
        if deadline.is_some_and(|deadline| deadline <= time) {
            self.keys.remove(key);
        } else {
            self.keys.insert(key.to_vec(), Kept { value: value.to_vec(), deadline, version });
        }
    }

    fn carry_out(&mut self, command: &Command<'_>, version: Version, time: u64) -> (String, bool) {
        let get = |model: &Model, key: &[u8]| model.keys.get(key).cloned();
        match *command {
            Command::Set { key, value, expiry, answer, .. }
            | Command::SetIf { key, value, expiry, answer, .. } => {
                let before = get(self, key);
                let value_before = before.as_ref().map(|kept| &kept.value[..]);
                let wanted = match *command {
                    Command::SetIf { comparison, .. } => comparison.holds(value_before),
                    Command::Set { condition: Condition::IfAbsent, .. } => before.is_none(),
                    Command::Set { condition: Condition::IfPresent, .. } => before.is_some(),
                    _ => true,
                };
                let deadline = match expiry {
                    Expiry::Clear => None,
                    Expiry::Keep => before.as_ref().and_then(|kept| kept.deadline),
                    Expiry::Set(deadline) => Some(absolute(deadline, time)),
                };
                if wanted {
                    self.put(key, value, deadline, version, time);
                }
                let stored = self.keys.contains_key(key);
                let reply = match answer {
                    SetAnswer::Status if wanted => "OK".to_owned(),
                    SetAnswer::Status => "nil".to_owned(),
                    SetAnswer::Integer => i64::from(wanted).to_string(),
                    SetAnswer::Before => value_or_nil(before.as_ref()),
                };
                (reply, wanted && (stored || before.is_some()))
            }
            Command::GetDelete { key } => {
                let before = self.keys.remove(key);
                (value_or_nil(before.as_ref()), before.is_some())
            }
            Command::GetExpire { key, expiry } => {
                let Some(before) = get(self, key) else { return ("nil".to_owned(), false) };
                let deadline = match expiry {
                    Expiry::Keep => before.deadline,
                    Expiry::Clear => None,
                    Expiry::Set(deadline) => Some(absolute(deadline, time)),
                };
                let wrote =
                    !matches!(expiry, Expiry::Keep) && (deadline.is_some() || before.deadline.is_some());
                if wrote {
                    self.put(key, &before.value, deadline, version, time);
                }
                (bulk(&before.value), wrote)
            }
            Command::MultiSet { pairs, if_absent } => {
                if if_absent && pairs.pairs().any(|(key, _)| self.keys.contains_key(key)) {
                    return ("0".to_owned(), false);
                }
                pairs.pairs().for_each(|(key, value)| self.put(key, value, None, version, time));
                (if if_absent { "1" } else { "OK" }.to_owned(), true)
            }
            Command::Delete { keys } => {
                let count = keys.iter().filter(|key| self.keys.remove(*key).is_some()).count();
                (count.to_string(), count > 0)
            }
            Command::DeleteIf { key, comparison } => {
                let is_wanted = get(self, key).is_some_and(|kept| comparison.holds(Some(&kept.value)));
                if is_wanted {
                    self.keys.remove(key);
                }
                (i64::from(is_wanted).to_string(), is_wanted)
            }
            Command::Append { key, value, bytes_max } => {
                let before = get(self, key);
                let deadline = before.as_ref().and_then(|kept| kept.deadline);
                let sum = [&before.map_or(vec![], |kept| kept.value)[..], value].concat();
                if sum.len() as u64 > bytes_max {
                    let error = "!ERR string exceeds maximum allowed size (proto-max-bulk-len)";
                    return (error.to_owned(), false);
                }
                self.put(key, &sum, deadline, version, time);
                (sum.len().to_string(), true)
            }
            Command::SetRange { key, offset, value } => {
                let before = get(self, key);
                let deadline = before.as_ref().and_then(|kept| kept.deadline);
                let mut whole = before.map_or(vec![], |kept| kept.value);
                if value.is_empty() {
                    return (whole.len().to_string(), false);
                }
                let offset = offset as usize;
                whole.resize(whole.len().max(offset + value.len()), 0);
                whole[offset..offset + value.len()].copy_from_slice(value);
                self.put(key, &whole, deadline, version, time);
                (whole.len().to_string(), true)
            }
            Command::IncrementBy { key, delta } => {
                let before = get(self, key);
                let text = before.as_ref().map_or("0".into(), |kept| String::from_utf8_lossy(&kept.value));
                let Some(number) = text.parse::<i64>().ok().filter(|number| number.to_string() == text)
                else {
                    return ("!ERR value is not an integer or out of range".to_owned(), false);
                };
                let Some(sum) = number.checked_add(delta) else {
                    return ("!ERR increment or decrement would overflow".to_owned(), false);
                };
                let deadline = before.as_ref().and_then(|kept| kept.deadline);
                self.put(key, sum.to_string().as_bytes(), deadline, version, time);
                (sum.to_string(), true)
            }
            Command::Expire { key, deadline, condition } => {
                use ExpireCondition::*;
                let Some(before) = get(self, key) else { return ("0".to_owned(), false) };
                let new = absolute(deadline, time);
                let old = before.deadline;
                let allowed = match condition {
                    Always => true,
                    IfNone => old.is_none(),
                    IfSome => old.is_some(),
                    IfLater | IfSomeAndLater => old.is_some_and(|old| new > old),
                    IfEarlier => old.is_none_or(|old| new < old),
                    IfSomeAndEarlier => old.is_some_and(|old| new < old),
                };
                if allowed {
                    self.put(key, &before.value, Some(new), version, time);
                }
                (i64::from(allowed).to_string(), allowed)
            }
            Command::Persist { key } => {
                let Some(before) = get(self, key).filter(|kept| kept.deadline.is_some()) else {
                    return ("0".to_owned(), false);
                };
                self.put(key, &before.value, None, version, time);
                ("1".to_owned(), true)
            }
            Command::Rename { from, to, if_absent } => {
                let Some(moved) = get(self, from) else { return ("!ERR no such key".to_owned(), false) };
                if if_absent && self.keys.contains_key(to) {
                    return ("0".to_owned(), false);
                }
                if from != to {
                    self.keys.remove(from);
                    self.keys.insert(to.to_vec(), Kept { version, ..moved });
                }
                (if if_absent { "1" } else { "OK" }.to_owned(), from != to)
            }
            Command::Copy { from, to, replace } => {
                let Some(copied) = get(self, from) else { return ("0".to_owned(), false) };
                if !replace && self.keys.contains_key(to) {
                    return ("0".to_owned(), false);
                }
                self.keys.insert(to.to_vec(), Kept { version, ..copied });
                ("1".to_owned(), true)
            }
            Command::Clear {} => {
                let wrote = !self.keys.is_empty();
                self.keys.clear();
                ("OK".to_owned(), wrote)
            }
            Command::Purge { until } => {
                let before = self.keys.len();
                self.keys.retain(|_, kept| kept.deadline.is_none_or(|deadline| deadline > until));
                let count = before - self.keys.len();
                (count.to_string(), count > 0)
            }
            Command::Replicate { key, value, version: given } => {
                let present = get(self, key).map_or(0, |kept| kept.version);
                // A new key whose version is not the highest uses up a version.
                let is_unordered = present == 0 && given > 0 && given < version;
                if given > present {
                    self.put(key, value, None, given, time);
                    self.floor = self.floor.max(given);
                }
                (format!("[{} {}]", i64::from(given > present), given.max(present)), is_unordered)
            }
            _ => unreachable!("no such record is made here"),
        }
    }
}

/// Every key with the reply to `Fetch`, including expired keys that have not been removed yet.
fn contents(table: &mut Table) -> BTreeMap<Vec<u8>, String> {
    let mut out = ReplyBuffer::new();
    table.read(&Command::Keys { pattern: b"*" }, 0, &mut out);
    let mut reader = Reader::new(out.as_bytes());
    let Reply::Array(count) = Reply::decode(&mut reader).unwrap() else { panic!("KEYS answers an array") };
    (0..count)
        .map(|_| {
            let Reply::Bulk(key) = Reply::decode(&mut reader).unwrap() else { panic!("a key is a bulk") };
            let mut fetched = ReplyBuffer::new();
            table.read(&Command::Fetch { key }, 0, &mut fetched);
            (key.to_vec(), text_of(&fetched))
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn the_table_matches_the_model(records in records(0..80), is_colliding in any::<bool>()) {
        let mut model = Model::default();
        let mut table = if is_colliding { colliding(5) } else { Table::new(5) };
        for (number, record) in records.iter().enumerate() {
            let offset = number as u64 + 1;
            let command = record.command();
            let mut out = ReplyBuffer::new();
            table.apply(&command, offset, time_of(offset), &mut out);
            let expected = model.apply(&command, offset, time_of(offset));
            prop_assert_eq!(text_of(&out), expected, "{:?}", command);
            let kept: BTreeMap<_, _> = model.keys.iter().map(|(key, kept)| {
                let deadline = kept.deadline.map_or("nil".to_owned(), |deadline| (deadline as i64).to_string());
                (key.clone(), format!("[{} {} {deadline}]", bulk(&kept.value), kept.version))
            }).collect();
            prop_assert_eq!(contents(&mut table), kept, "after {:?}", command);
            prop_assert_eq!(table.version_floor(), model.floor, "after {:?}", command);
            table.check_invariants();
        }
    }
}
