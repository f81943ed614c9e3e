//! Checks lists, sets, sorted sets and the deliveries to streams' groups, including their order: see
//! [`check::collections`].

use crate::operation::{Key, Kind, QUEUES, Reply, Value};
use crate::promise::Space;
use crate::record::Entry;
use crate::report::{Broken, Failure};
use check::collections::{Action, Answer, Explained, Operation, explain};
use std::collections::BTreeMap;

/// Search steps for each key. A collection that takes more is not counted as checked; its elements are checked in any
/// case (`queues`).
const STEPS: u64 = 10_000;

/// The most operations on a key that are checked. Those that had not ended when the next operation began count as
/// unknown.
const OPERATIONS: usize = 400;

/// A request that waits at a node which its group does not reach for a second is taken out of the queue, and what it had been
/// served goes back. If its client still waits then, it gets something else later, or nothing. A little less than that
/// second, since clocks differ.
const GONE_US: u64 = 900_000;

/// Returns how many operations were checked, and the first broken promise.
pub(super) fn judge<'e>(
    entries: impl Iterator<Item = &'e Entry> + Clone,
    space: &Space,
) -> (u64, Option<Failure>) {
    let pushes = entries.clone().filter(|entry| matches!(entry.operation.kind, Kind::Push | Kind::PushFront));
    let list_of: BTreeMap<Value, Key> =
        pushes.map(|entry| (entry.operation.value, entry.operation.key)).collect();
    let mut histories: BTreeMap<Key, (Vec<&Entry>, Vec<Operation>)> = BTreeMap::new();
    // A read at any replica may be old.
    for entry in entries.filter(|entry| !space.reads_any || entry.operation.kind != Kind::Contains) {
        for (key, operation) in operations_of(entry, &list_of) {
            let (entries, operations) = histories.entry(key).or_default();
            let waits = matches!(operation.action, Action::Take | Action::TakeLowest);
            if waits && operation.answer.is_some_and(|(end, _)| end - operation.start >= GONE_US) {
                entries.push(entry);
                operations.push(Operation { answer: None, ..operation });
            }
            entries.push(entry);
            operations.push(operation);
        }
    }
    let mut checked = 0;
    for (key, (entries, operations)) in &mut histories {
        if let Some(next) = operations.get(OPERATIONS) {
            let until = next.start;
            operations.truncate(OPERATIONS);
            for operation in operations.iter_mut() {
                operation.answer = operation.answer.filter(|(end, _)| *end < until);
            }
        }
        match explain(operations, STEPS) {
            Explained::Yes => checked += operations.len() as u64,
            Explained::Undecided => {}
            Explained::No { stuck, explained } => {
                let entry = entries[stuck];
                let (end, reply) = entry.reply().unwrap_or((u64::MAX, Reply::Unknown));
                let mut name = Vec::new();
                key.write(&space.keyspace.prefix, &mut name);
                let words = format!(
                    "keyspace '{}': no order of the {} operations on {} explains their answers; when {explained} \
                     answers are explained, that of client {} is not: {} -> {reply}",
                    space.keyspace.name(),
                    operations.len(),
                    String::from_utf8_lossy(&name),
                    entry.client,
                    entry.operation.describe(&space.keyspace.prefix),
                );
                let window_us = (entry.start, end);
                return (checked, Some(Failure { broken: Broken::Safety, words, window_us, picture: None }));
            }
        }
    }
    (checked, None)
}

/// The operations on single collections that an entry stands for. A client that waits at all lists takes from the one that has had its
/// element. Without an answer it may have taken from any, and with none it found nothing at one moment of each.
fn operations_of(entry: &Entry, list_of: &BTreeMap<Value, Key>) -> Vec<(Key, Operation)> {
    let key = entry.operation.key;
    let Some(operation) = operation(entry) else { return Vec::new() };
    let taken = match (entry.operation.kind, entry.reply()) {
        (Kind::TakeAny, Some((_, Reply::Value(value)))) => list_of.get(&value).copied(),
        (Kind::TakeAny, _) => None,
        _ => return vec![(key, operation)],
    };
    match taken {
        Some(key) => vec![(key, operation)],
        None => (0..QUEUES).map(|number| (Key { number, ..key }, operation)).collect(),
    }
}

/// Returns an operation on a collection in the checker's form; `None` for others, and for one that was refused.
fn operation(entry: &Entry) -> Option<Operation> {
    let operation = &entry.operation;
    let (member, score) = (operation.member(), operation.score());
    let action = match operation.kind {
        Kind::Push | Kind::Append => Action::PushBack(operation.value.number),
        Kind::PushFront => Action::PushFront(operation.value.number),
        Kind::PopFront => Action::PopFront,
        Kind::Rotate => Action::Rotate,
        Kind::Deliver => Action::Deliver,
        Kind::Claim => Action::Claim,
        Kind::Acknowledge => Action::Acknowledge,
        Kind::PopBack => Action::PopBack,
        Kind::Take | Kind::TakeAny => Action::Take,
        Kind::Add => Action::Add(member),
        Kind::Remove | Kind::RemoveScored => Action::Remove(member),
        Kind::Contains => Action::Contains(member),
        Kind::Draw => Action::Draw,
        Kind::SetScore => Action::SetScore(member, score),
        Kind::AddScore => Action::AddScore(member, score),
        Kind::PopLowest => Action::PopLowest,
        Kind::TakeLowest => Action::TakeLowest,
        _ => return None,
    };
    let answer = match (operation.kind, entry.reply()) {
        (_, Some((_, Reply::Refused(_)))) => return None,
        (_, None | Some((_, Reply::Unknown | Reply::Wrong | Reply::Torn))) => None,
        (kind, Some((at, reply))) => Some((at, answer(kind, reply))),
    };
    Some(Operation { action, start: entry.start, answer })
}

/// An answer of the wrong kind becomes one that fits no action.
fn answer(kind: Kind, reply: Reply) -> Answer {
    use Kind::*;
    match (kind, reply) {
        (Push | PushFront, Reply::Integer(_)) | (Append, Reply::Session(_) | Reply::Ok) => Answer::Done,
        (PopLowest | TakeLowest, Reply::Nil) => Answer::Scored(None),
        (PopLowest | TakeLowest, Reply::Scored(member, score)) => Answer::Scored(Some((member, score))),
        (Take | TakeAny | PopFront | PopBack | Rotate | Deliver | Claim | Acknowledge | Draw, Reply::Nil) => {
            Answer::Element(None)
        }
        (
            Take | TakeAny | PopFront | PopBack | Rotate | Deliver | Claim | Acknowledge,
            Reply::Value(value),
        ) => Answer::Element(Some(value.number)),
        (Draw, Reply::Integer(member)) => Answer::Element(u32::try_from(member).ok()),
        (AddScore, Reply::Integer(sum)) => Answer::Score(sum),
        (Add | Remove | RemoveScored | Contains | SetScore, Reply::Integer(count)) => {
            Answer::Applied(count == 1)
        }
        _ => Answer::Scored(Some((u32::MAX, i64::MAX))),
    }
}
