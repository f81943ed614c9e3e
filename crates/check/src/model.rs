//! The behaviour of one key: its states, and [`Model::step`], the whole sequential specification.
//!
//! An operation with its outcome becomes a [`Step`], which says in which states it is possible and what state it
//! leaves. The states of a key are numbers: [`ABSENT`], then the values that occur in its operations, then sums that
//! arise only on the way. A search therefore compares numbers, never bytes.
//!
//! The treatment of unknown outcomes (see `search`) relies on one property of steps: a step whose answer is known
//! leaves the same state wherever it is possible, or leaves every state unchanged.

use std::collections::BTreeMap;

use crate::history::{Action, Answer, History, Operation, Outcome, Value};

/// What a key holds, as a number that is meaningful only within one [`Model`].
pub(crate) type State = u32;

/// The state of a key that does not exist. Every key begins in it.
pub(crate) const ABSENT: State = 0;

/// An operation together with what its answer reveals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// Possible in this state; leaves it unchanged.
    Observe(State),
    /// Possible in every other state; leaves it unchanged.
    ObserveNot(State),
    /// Possible in every state; leaves this one.
    Write(State),
    /// Possible in one state.
    Replace { from: State, to: State },
    /// Possible in every state but [`ABSENT`]; leaves [`ABSENT`].
    Remove,
    /// An increment: possible in one state, or in two if `or_absent` is set.
    Add { from: State, to: State, or_absent: bool },
    /// A conditional write with an unknown outcome: it does nothing where its condition does not hold.
    MayReplace { from: State, to: State },
    /// An increment with an unknown outcome: it does nothing where there is no integer, and on overflow.
    MayAdd(i64),
    /// An answer that does not fit its action.
    Impossible,
}

impl Step {
    /// Returns the one state in which it is possible, if there is only one.
    pub(crate) fn observes(self) -> Option<State> {
        match self {
            Step::Observe(from) | Step::Replace { from, .. } | Step::Add { from, or_absent: false, .. } => {
                Some(from)
            }
            _ => None,
        }
    }

    /// Returns the state that it can produce, if there is only one.
    pub(crate) fn produces(self) -> Option<State> {
        match self {
            Step::Write(to)
            | Step::Replace { to, .. }
            | Step::Add { to, .. }
            | Step::MayReplace { to, .. } => Some(to),
            Step::Remove => Some(ABSENT),
            Step::Observe(_) | Step::ObserveNot(_) | Step::MayAdd(_) | Step::Impossible => None,
        }
    }

    /// Whether it leaves every state in which it is possible unchanged.
    pub(crate) fn is_observation(self) -> bool {
        matches!(self, Step::Observe(_) | Step::ObserveNot(_))
    }
}

/// The states of one key.
pub(crate) struct Model {
    /// State `i + 1` is the value `values[i]`; sorted.
    values: Vec<Value>,
    /// The integers that states hold; kept only for keys that are incremented.
    integers: BTreeMap<State, i64>,
    states: BTreeMap<i64, State>,
    next: State,
}

impl Model {
    /// Creates the model for a key's operations.
    pub(crate) fn new(history: &History, operations: &[Operation]) -> Model {
        let mut values = Vec::with_capacity(operations.len());
        let mut adds = false;
        for operation in operations {
            values.extend(operation.action.stores());
            if let Action::CompareAndSet { expected: Some(value), .. } = operation.action {
                values.push(value);
            }
            if let Outcome::Ok(Answer::Value(Some(value))) = operation.outcome {
                values.push(value);
            }
            adds |= matches!(operation.action, Action::Increment(_));
        }
        values.sort_unstable();
        values.dedup();
        let next = values.len() as State + 1;
        let mut model = Model { values, integers: BTreeMap::new(), states: BTreeMap::new(), next };
        if adds {
            for (index, value) in model.values.iter().enumerate() {
                if let Some(integer) = integer(history.value_bytes(*value)) {
                    model.integers.insert(index as State + 1, integer);
                    model.states.insert(integer, index as State + 1);
                }
            }
        }
        model
    }

    /// The number of states; sums that arise later are numbered after these.
    pub(crate) fn states(&self) -> usize {
        self.next as usize
    }

    /// Returns a state for a value that occurs in no operation.
    pub(crate) fn other_state(&mut self) -> State {
        self.next += 1;
        self.next - 1
    }

    /// Returns the integer that a state of an incremented key holds.
    pub(crate) fn integer(&self, state: State) -> Option<i64> {
        if state == ABSENT { Some(0) } else { self.integers.get(&state).copied() }
    }

    /// Returns the meaning of an operation and its outcome. `None`: it did not happen, or was a read without an
    /// answer.
    pub(crate) fn compile(&mut self, operation: &Operation) -> Option<Step> {
        let answer = match operation.outcome {
            Outcome::Ok(answer) => answer,
            Outcome::Failed => return None,
            Outcome::Unknown => return self.compile_unknown(operation.action),
        };
        Some(match (operation.action, answer) {
            (Action::Get, Answer::Value(value)) => Step::Observe(self.state(value)),
            (Action::Set(value), Answer::Done) => Step::Write(self.state(Some(value))),
            (Action::Delete, Answer::Done) => Step::Write(ABSENT),
            (Action::Delete, Answer::Applied(true)) => Step::Remove,
            (Action::Delete, Answer::Applied(false)) => Step::Observe(ABSENT),
            (Action::Increment(delta), Answer::Sum(sum)) => match sum.checked_sub(delta) {
                Some(0) if delta == 0 => return Some(self.add_nothing()),
                Some(before) => {
                    let (from, to) = (self.state_of(before), self.state_of(sum));
                    if from == to {
                        Step::Observe(from)
                    } else {
                        Step::Add { from, to, or_absent: before == 0 }
                    }
                }
                None => Step::Impossible,
            },
            (Action::SetIfAbsent(value), Answer::Applied(true)) => replace(ABSENT, self.state(Some(value))),
            (Action::SetIfAbsent(_), Answer::Applied(false)) => Step::ObserveNot(ABSENT),
            (Action::GetAndSet(value), Answer::Value(before)) => {
                replace(self.state(before), self.state(Some(value)))
            }
            (Action::CompareAndSet { expected, value }, Answer::Applied(true)) => {
                replace(self.state(expected), self.state(Some(value)))
            }
            (Action::CompareAndSet { expected, .. }, Answer::Applied(false)) => {
                Step::ObserveNot(self.state(expected))
            }
            _ => Step::Impossible,
        })
    }

    fn compile_unknown(&mut self, action: Action) -> Option<Step> {
        Some(match action {
            Action::Get | Action::Lock(_) => return None,
            Action::Set(value) | Action::GetAndSet(value) => Step::Write(self.state(Some(value))),
            Action::Delete => Step::Write(ABSENT),
            Action::Increment(delta) => Step::MayAdd(delta),
            Action::SetIfAbsent(value) => Step::MayReplace { from: ABSENT, to: self.state(Some(value)) },
            Action::CompareAndSet { expected, value } => {
                Step::MayReplace { from: self.state(expected), to: self.state(Some(value)) }
            }
        })
    }

    /// Executes a step, as the sequential specification: returns the state that it leaves, or `None` if it is
    /// impossible in this state.
    pub(crate) fn step(&mut self, state: State, step: Step) -> Option<State> {
        match step {
            Step::Observe(value) => (state == value).then_some(state),
            Step::ObserveNot(value) => (state != value).then_some(state),
            Step::Write(value) => Some(value),
            Step::Replace { from, to } => (state == from).then_some(to),
            Step::Remove => (state != ABSENT).then_some(ABSENT),
            Step::Add { from, to, or_absent } => {
                (state == from || or_absent && state == ABSENT).then_some(to)
            }
            Step::MayReplace { from, to } => Some(if state == from { to } else { state }),
            Step::MayAdd(delta) => {
                let sum = self.integer(state).and_then(|integer| integer.checked_add(delta));
                Some(sum.map_or(state, |sum| self.state_of(sum)))
            }
            Step::Impossible => None,
        }
    }

    fn state(&self, value: Option<Value>) -> State {
        // Every value of the key's operations is in the list.
        value.map_or(ABSENT, |value| self.values.partition_point(|other| *other < value) as State + 1)
    }

    /// Returns the state that holds an integer.
    pub(crate) fn state_of(&mut self, integer: i64) -> State {
        *self.states.entry(integer).or_insert_with(|| {
            let state = self.next;
            self.next += 1;
            self.integers.insert(state, integer);
            state
        })
    }

    /// The step of adding 0 with the sum 0: the key was absent or "0", and holds "0" afterwards.
    fn add_nothing(&mut self) -> Step {
        let zero = self.state_of(0);
        Step::Add { from: zero, to: zero, or_absent: true }
    }
}

/// Returns the step of replacing a value; replacing it by itself is an observation.
fn replace(from: State, to: State) -> Step {
    if from == to { Step::Observe(from) } else { Step::Replace { from, to } }
}

/// Returns the integer that an increment reads from these bytes: as in Redis, only the canonical form counts.
pub(crate) fn integer(bytes: &[u8]) -> Option<i64> {
    let integer = std::str::from_utf8(bytes).ok()?.parse::<i64>().ok()?;
    (integer.to_string().as_bytes() == bytes).then_some(integer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_integers_are_integers() {
        assert_eq!(integer(b"-12"), Some(-12));
        assert_eq!(integer(b"0"), Some(0));
        assert_eq!(integer(b"9223372036854775807"), Some(i64::MAX));
        for text in ["", "+1", "01", "-0", " 1", "1 ", "1.0", "9223372036854775808", "x"] {
            assert_eq!(integer(text.as_bytes()), None, "{text:?}");
        }
    }

    /// The property on which the treatment of unknown outcomes relies.
    #[test]
    fn a_step_with_an_answer_leaves_one_state_or_every_state_as_it_is() {
        let mut history = History::new();
        let key = history.key(b"k");
        let values = [b"0".as_slice(), b"1", b"2", b"x"].map(|value| history.value(value));
        let mut operations = Vec::new();
        let mut actions = vec![Action::Get, Action::Delete];
        actions.extend([-1, 0, 1, 2].map(Action::Increment));
        for value in values {
            actions.extend([Action::Set(value), Action::SetIfAbsent(value), Action::GetAndSet(value)]);
            let expected = [None, Some(values[0]), Some(values[3])];
            actions.extend(expected.map(|expected| Action::CompareAndSet { expected, value }));
        }
        let mut answers =
            vec![Answer::Done, Answer::Value(None), Answer::Applied(true), Answer::Applied(false)];
        answers.extend(values.map(|value| Answer::Value(Some(value))));
        answers.extend([-1, 0, 1, 2].map(Answer::Sum));
        for action in actions {
            for answer in &answers {
                let id = history.begin(0, key, action, 0);
                history.end(id, 1, Outcome::Ok(*answer));
                operations.push(*history.operation(id));
            }
        }
        let mut model = Model::new(&history, &operations);
        let steps: Vec<Step> = operations.iter().filter_map(|operation| model.compile(operation)).collect();
        assert_eq!(steps.len(), operations.len());
        for step in steps {
            let all = 0..model.states() as State;
            let moves: Vec<(State, State)> =
                all.filter_map(|state| Some((state, model.step(state, step)?))).collect();
            let stays = moves.iter().all(|(before, after)| before == after);
            let one = moves.iter().all(|(_, after)| *after == moves[0].1);
            assert!(stays || one, "{step:?}: {moves:?}");
            assert_eq!(
                step.is_observation(),
                stays && step != Step::Impossible && !moves.is_empty(),
                "{step:?}"
            );
        }
    }
}
