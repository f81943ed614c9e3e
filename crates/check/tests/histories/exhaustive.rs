//! The definition of linearizability, spelled out: it tries all orders. It shares no code with the checker.

use check::{Action, Answer, History, Operation, Outcome, Value};

type State = Option<Vec<u8>>;

/// Whether there is an order of these operations on one key that begins in one of these states.
pub(crate) fn is_possible(history: &History, operations: &[Operation], initial: &[State]) -> bool {
    initial.iter().any(|state| order(history, &mut operations.to_vec(), state))
}

fn order(history: &History, rest: &mut Vec<Operation>, state: &State) -> bool {
    if rest.iter().all(|operation| !matches!(operation.outcome, Outcome::Ok(_))) {
        return true;
    }
    for index in 0..rest.len() {
        let next = rest[index];
        let is_first = rest.iter().all(|other| {
            !matches!(other.outcome, Outcome::Ok(_)) || other.end.is_none_or(|end| end >= next.start)
        });
        if next.outcome == Outcome::Failed || !is_first {
            continue;
        }
        let (after, answers) = carry_out(history, state, next.action);
        let fits = match next.outcome {
            Outcome::Ok(answer) => answers.iter().any(|expected| is_same(history, *expected, answer)),
            _ => true,
        };
        if fits {
            rest.remove(index);
            let found = order(history, rest, &after);
            rest.insert(index, next);
            if found {
                return true;
            }
        }
    }
    false
}

fn is_same(history: &History, expected: Expected, answer: Answer) -> bool {
    match (expected, answer) {
        (Expected::Done, Answer::Done) => true,
        (Expected::Value(expected), Answer::Value(value)) => {
            expected == value.map(|value| history.value_bytes(value))
        }
        (Expected::Applied(expected), Answer::Applied(applied)) => expected == applied,
        (Expected::Sum(expected), Answer::Sum(sum)) => expected == sum,
        _ => false,
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Expected<'a> {
    Done,
    Value(Option<&'a [u8]>),
    Applied(bool),
    Sum(i64),
}

/// Returns the state that an action leaves, and every correct answer.
pub(crate) fn carry_out<'a>(
    history: &History,
    state: &'a State,
    action: Action,
) -> (State, Vec<Expected<'a>>) {
    let bytes = |value: Value| Some(history.value_bytes(value).to_vec());
    match action {
        Action::Get => (state.clone(), vec![Expected::Value(state.as_deref())]),
        Action::Set(value) => (bytes(value), vec![Expected::Done]),
        Action::Delete => (None, vec![Expected::Done, Expected::Applied(state.is_some())]),
        Action::Increment(delta) => {
            let text = state.as_deref().unwrap_or(b"0");
            let integer = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
            match integer {
                Some(integer) if integer.to_string().as_bytes() == text => {
                    let sum = integer + delta;
                    (Some(sum.to_string().into_bytes()), vec![Expected::Sum(sum)])
                }
                _ => (state.clone(), Vec::new()),
            }
        }
        Action::SetIfAbsent(value) => {
            let after = if state.is_none() { bytes(value) } else { state.clone() };
            (after, vec![Expected::Applied(state.is_none())])
        }
        Action::GetAndSet(value) => (bytes(value), vec![Expected::Value(state.as_deref())]),
        Action::CompareAndSet { expected, value } => {
            let holds = *state == expected.and_then(bytes);
            (if holds { bytes(value) } else { state.clone() }, vec![Expected::Applied(holds)])
        }
        Action::Lock(_) => unreachable!("a key takes no requests for locks"),
    }
}
