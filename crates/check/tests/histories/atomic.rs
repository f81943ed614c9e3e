//! Histories of an atomic store: each operation takes effect at one instant between its start and its end, drawn at
//! random. Operations with an unknown outcome take effect at any later time, or never.

use check::{Action, Answer, History, Operation, Outcome};

use crate::exhaustive::{Expected, carry_out};
use crate::random::Random;

/// The kinds of operations in a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kinds {
    /// Reads, writes, and deletes whose answer has no count.
    Plain,
    /// Reads and increments by one.
    Counter,
    /// All kinds.
    All,
}

/// The shape of a history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) clients: u64,
    pub(crate) operations: u64,
    pub(crate) keys: u64,
    pub(crate) kinds: Kinds,
    /// Values are unique, or drawn from this many.
    pub(crate) values: Option<u64>,
    /// One in this many outcomes is unknown.
    pub(crate) unknown_one_in: u64,
    /// The longest duration of an operation.
    pub(crate) time_max: u64,
}

pub(crate) fn action(history: &mut History, random: &mut Random, shape: Shape, number: u64) -> Action {
    let drawn = shape.values.map_or(number, |values| random.below(values));
    let value = history.value(drawn.to_string().as_bytes());
    match random.below(14) {
        0..7 if shape.kinds != Kinds::All => Action::Get,
        _ if shape.kinds == Kinds::Counter => Action::Increment(1),
        13 if shape.kinds == Kinds::Plain => Action::Delete,
        _ if shape.kinds == Kinds::Plain => Action::Set(value),
        0..4 => Action::Get,
        4..6 => Action::Set(value),
        6 => Action::Delete,
        7..10 => Action::Increment(random.pick(&[1, 1, 1, 2, -1])),
        10..12 => Action::SetIfAbsent(value),
        12 => Action::GetAndSet(value),
        _ => {
            let other = history.value(random.below(4).to_string().as_bytes());
            let expected = random.pick(&[None, Some(other), Some(other)]);
            Action::CompareAndSet { expected, value }
        }
    }
}

/// A history of an atomic store.
pub(crate) fn history(random: &mut Random, shape: Shape) -> History {
    let mut history = History::new();
    // The instant at which each operation takes effect, if it does.
    let mut planned: Vec<(Option<u64>, Operation)> = Vec::new();
    let mut clocks: Vec<u64> = (0..shape.clients).map(|_| random.below(shape.time_max)).collect();
    for number in 0..shape.operations {
        let client = random.below(shape.clients);
        let clock = &mut clocks[client as usize];
        let start = *clock;
        let end = start + random.below(shape.time_max);
        *clock = end + 1 + random.below(shape.time_max / 4 + 1);
        let key = history.key(format!("key{}", random.below(shape.keys)).as_bytes());
        let action = action(&mut history, random, shape, number);
        let is_unknown = random.one_in(shape.unknown_one_in);
        let instant = match is_unknown {
            true if random.one_in(2) => None,
            true if random.one_in(4) => Some(start + random.below(shape.time_max * 10)),
            _ => Some(start + random.below(end - start + 1)),
        };
        let outcome = if is_unknown { Outcome::Unknown } else { Outcome::Ok(Answer::Done) };
        let end = Some(end);
        planned.push((
            instant,
            Operation { client, node: None, key, action, start, end, outcome, version: None },
        ));
    }
    let mut order: Vec<usize> = (0..planned.len()).filter(|index| planned[*index].0.is_some()).collect();
    order.sort_by_key(|index| planned[*index].0);
    let mut states = vec![None; shape.keys as usize];
    for index in order {
        let operation = planned[index].1;
        let state: &mut Option<Vec<u8>> = &mut states[operation.key.index()];
        let (after, replies) = carry_out(&history, state, operation.action);
        let outcome = match replies.last().copied() {
            _ if operation.outcome == Outcome::Unknown => Outcome::Unknown,
            None => Outcome::Failed,
            Some(_) if shape.kinds == Kinds::Plain && operation.action == Action::Delete => {
                Outcome::Ok(Answer::Done)
            }
            Some(Expected::Done) => Outcome::Ok(Answer::Done),
            Some(Expected::Applied(applied)) => Outcome::Ok(Answer::Applied(applied)),
            Some(Expected::Sum(sum)) => Outcome::Ok(Answer::Sum(sum)),
            Some(Expected::Value(value)) => {
                let value = value.map(<[u8]>::to_vec);
                Outcome::Ok(Answer::Value(value.map(|value| history.value(&value))))
            }
        };
        planned[index].1.outcome = outcome;
        *state = after;
    }
    for (_, operation) in planned {
        history.push(operation);
    }
    history
}
